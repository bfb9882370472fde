//! Tests with full disks and killed processes.
//!
//! A test that needs its own process starts itself again, with the task in an
//! environment variable. The kernel kills the process at a chosen byte of the file
//! (`RLIMIT_FSIZE`), and no code runs afterwards. `make soak` sends kills from outside at arbitrary times,
//! after the process has reported its progress.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::Random;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use tidemill_rowfile::{Codec, Error, ReadOptions, Reader, Schema, WriteOptions, Writer, salvage};

/// The environment variable with the task and the path of a child process.
const CHILD_TASK_VARIABLE: &str = "ROWFILE_CHILD";
/// The environment variable with the byte of the file at which the child process is killed.
const FILE_LIMIT_VARIABLE: &str = "ROWFILE_LIMIT";
/// Number of rows that are written at a time.
const ROWS_PER_WRITE: usize = 50;

/// Returns the rows from `first` on: numbers, and a text derived from each.
fn rows(first: usize, count: usize) -> RecordBatch {
    let numbers = first..first + count;
    let texts = numbers.clone().map(|number| format!("{number} ").repeat(number % 40));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.map(|n| n as i64)));
    RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap()
}

fn schema() -> Schema {
    Schema::from_arrow(&rows(0, 0).schema()).unwrap()
}

fn options() -> WriteOptions {
    WriteOptions { codec: Codec::None, block_bytes: 3000, ..WriteOptions::default() }
}

/// Asserts that a file contains the rows from 0 on, and returns their number.
fn assert_rows(reader: &Reader<impl tidemill_rowfile::ReadAt>) -> usize {
    let strings = tidemill_rowfile::StringLayout::Small;
    let options = ReadOptions { strings, ..ReadOptions::default() };
    let mut found = 0;
    for batch in reader.read(&options).unwrap() {
        let batch = batch.unwrap();
        assert_eq!(batch, rows(found, batch.num_rows()));
        found += batch.num_rows();
    }
    assert_eq!(found as u64, reader.row_count());
    found
}

/// Asserts that a file is refused as truncated behind its last whole block, and that all rows of its whole
/// blocks are salvaged. Returns their number.
fn assert_truncated(path: &Path) -> usize {
    let error = Reader::open(path).expect_err("a file without an end");
    let Error::Truncated { end, blocks, rows: found, .. } = &error else { panic!("{error}") };
    if *blocks > 0 {
        let (last, offset) = end.block.unwrap();
        assert_eq!(last + 1, *blocks);
        let named = format!("the last whole block is block {last} at byte {offset}");
        assert!(error.to_string().contains(&named), "{error}");
    }
    let Ok((saved, report)) = salvage(File::open(path).unwrap(), "test.rows", Vec::new()) else {
        assert_eq!(*blocks, 0);
        return 0;
    };
    assert_eq!((report.blocks, report.rows), (*blocks, *found));
    assert_rows(&Reader::new(saved, "saved").unwrap())
}

/// Returns the arguments that run only this test, in a new process.
fn child_command_arguments(test: &str) -> [OsString; 4] {
    let program = std::env::current_exe().unwrap();
    let test = format!("crashes::{test}");
    [program.into(), "--exact".into(), test.into(), "--nocapture".into()]
}

/// Returns the path of the task if this process was started as a child.
fn child_path() -> Option<PathBuf> {
    std::env::var_os(CHILD_TASK_VARIABLE).map(Into::into)
}

#[test]
fn full_device_gives_no_space_error() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    match Writer::new(full, &schema(), options()) {
        Err(Error::Io { error, .. }) => assert_eq!(error.kind(), ErrorKind::StorageFull),
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Writes to a disk with too little room, then appends to an earlier file.
fn fill_disk(folder: &Path) {
    let is_full = |error: &Error| {
        let Error::Io { error, file } = error else { panic!("{error}") };
        assert!(file.ends_with(".rows"), "{file}");
        assert!(
            matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::FileTooLarge),
            "{error}"
        );
    };
    let write_until_full = |mut writer: Writer<File>, mut first: usize| {
        loop {
            match writer.write(&rows(first, ROWS_PER_WRITE)) {
                Ok(()) => first += ROWS_PER_WRITE,
                Err(error) => {
                    is_full(&error);
                    break;
                }
            }
            assert!(first < 1_000_000, "the disk is not full yet");
        }
        assert!(matches!(
            writer.write(&rows(first, ROWS_PER_WRITE)),
            Err(Error::WriterPoisoned { .. })
        ));
        assert!(matches!(writer.close(), Err(Error::WriterPoisoned { .. })));
        first
    };
    let small = folder.join("small.rows");
    let mut writer = Writer::create(&small, &schema(), options()).unwrap();
    writer.write(&rows(0, ROWS_PER_WRITE)).unwrap();
    writer.close().unwrap();

    let large = folder.join("large.rows");
    let given = write_until_full(Writer::create(&large, &schema(), options()).unwrap(), 0);
    let kept = assert_truncated(&large);
    // Some of the last rows may have been written.
    assert!(kept > 0 && kept < given + ROWS_PER_WRITE, "{kept} of {given}");
    // Room for a few more blocks, which is not enough.
    let length = std::fs::metadata(&large).unwrap().len();
    File::options().write(true).open(&large).unwrap().set_len(length - 40_000).unwrap();

    write_until_full(Writer::append(&small, 3000).unwrap(), ROWS_PER_WRITE);
    let reader = Reader::open(&small).unwrap();
    assert!(reader.unfinished_bytes() > 0);
    assert_eq!(assert_rows(&reader), ROWS_PER_WRITE);
    // Removing the failed file makes room.
    std::fs::remove_file(&large).unwrap();
    let mut writer = Writer::append(&small, 3000).unwrap();
    writer.write(&rows(ROWS_PER_WRITE, ROWS_PER_WRITE)).unwrap();
    writer.close().unwrap();
    let reader = Reader::open(&small).unwrap();
    reader.verify().unwrap();
    assert_eq!((assert_rows(&reader), reader.unfinished_bytes()), (2 * ROWS_PER_WRITE, 0));
}

#[test]
fn a_disk_that_is_full_leaves_what_can_be_salvaged_and_the_old_end_of_what_was_there() {
    if let Some(folder) = child_path() {
        return fill_disk(&folder);
    }
    let name = "a_disk_that_is_full_leaves_what_can_be_salvaged_and_the_old_end_of_what_was_there";
    // A private file system that disappears with the process; if mounting is not allowed, a
    // limit on the file's size. The limit is in units of 512 or
    // 1024 bytes.
    let mount = "mount -t tmpfs -o size=300k tmpfs \"$ROWFILE_CHILD\"";
    let is_mounted = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", mount])
        .env(CHILD_TASK_VARIABLE, tempfile::tempdir().unwrap().path())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let limit = "trap '' XFSZ; ulimit -f 300; exec \"$@\"";
    let mut ways = vec![vec!["sh", "-c", limit, "sh"]];
    let mounted = format!("{mount} && exec \"$@\"");
    if is_mounted {
        ways.push(vec![
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &mounted,
            "sh",
        ]);
    }
    for way in ways {
        let folder = tempfile::tempdir().unwrap();
        let done = Command::new(way[0])
            .args(&way[1..])
            .args(child_command_arguments(name))
            .env(CHILD_TASK_VARIABLE, folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("1 passed"), "{way:?}\n{said}\n{error}");
    }
}

/// The outcome of a child process.
struct ChildOutcome {
    /// Number of rows that it reported as written.
    said: usize,
    /// The signal that killed it.
    signal: Option<i32>,
}

/// Starts the test again for a file. The kernel kills it once the file would grow past `bytes`: the current
/// write stops at that byte, and no code runs after it.
fn run_until_killed_at(test: &str, path: &Path, bytes: usize) -> ChildOutcome {
    let program = child_command_arguments(test);
    let done = Command::new(&program[0])
        .args(&program[1..])
        .env(CHILD_TASK_VARIABLE, path)
        .env(FILE_LIMIT_VARIABLE, bytes.to_string())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let said = said.lines().rev().find_map(|line| line.strip_prefix("rows "));
    ChildOutcome {
        said: said.map_or(0, |rows| rows.parse().unwrap()),
        signal: done.status.signal(),
    }
}

/// Runs in the child process: makes the kernel kill it at the first byte past the limit.
fn limit_file_size() {
    let bytes: libc::rlim_t = std::env::var(FILE_LIMIT_VARIABLE).unwrap().parse().unwrap();
    let size = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let no_dump = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both functions get valid arguments. The signal's default action is to kill the process; it
    // may have been inherited as ignored.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_CORE, &no_dump), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &size), 0);
        assert_ne!(libc::signal(libc::SIGXFSZ, libc::SIG_DFL), libc::SIG_ERR);
    }
}

/// Starts the test again, kills it from outside after `lines` progress reports, and returns the last reported
/// progress.
fn kill_after(test: &str, path: &Path, lines: usize) -> usize {
    let program = child_command_arguments(test);
    let mut child = Command::new(&program[0])
        .args(&program[1..])
        .arg("--ignored")
        .env(CHILD_TASK_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut reached = 0;
    for _ in 0..lines {
        // Skip lines of the test harness.
        let line = said
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("rows ").map(|rows| rows.parse().unwrap()));
        reached = line.expect("it goes on until it is killed");
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{status}");
    reached
}

/// Runs in the child process: reports progress.
fn report_rows(rows: usize) {
    if child_path().is_none() {
        return;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nrows {rows}").and_then(|()| out.flush()).unwrap();
}

/// Returns the bytes at which a process is killed: regular steps, and both sides of each block's beginning.
fn kill_points(whole: &[u8], from: usize) -> Vec<usize> {
    let reader = Reader::new(whole.to_vec(), "whole").unwrap();
    let blocks = reader.blocks().iter().map(|block| block.offset as usize);
    let mut points: Vec<usize> = blocks
        .flat_map(|offset| [offset - 1, offset, offset + 1])
        .chain((from..whole.len()).step_by(677))
        .chain([from + 1, whole.len() - 1])
        .filter(|point| (from..whole.len()).contains(point))
        .collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// Writes four times [`ROWS_PER_WRITE`] rows, each part flushed before it is reported, and the footer.
fn write_rows_and_footer(mut writer: Writer<File>, first: usize) {
    for first in (first..).step_by(ROWS_PER_WRITE).take(4) {
        writer.write(&rows(first, ROWS_PER_WRITE)).unwrap();
        writer.flush().unwrap();
        report_rows(first + ROWS_PER_WRITE);
    }
    writer.close().unwrap();
}

#[test]
fn a_writer_that_is_killed_at_any_byte_leaves_a_file_that_is_refused_and_every_whole_block() {
    let name =
        "a_writer_that_is_killed_at_any_byte_leaves_a_file_that_is_refused_and_every_whole_block";
    if let Some(path) = child_path() {
        limit_file_size();
        return write_rows_and_footer(Writer::create(&path, &schema(), options()).unwrap(), 0);
    }
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.rows");
    write_rows_and_footer(Writer::create(&whole, &schema(), options()).unwrap(), 0);
    let whole = std::fs::read(whole).unwrap();
    let path = folder.path().join("test.rows");
    for point in kill_points(&whole, 0) {
        let ended = run_until_killed_at(name, &path, point);
        assert_eq!(ended.signal, Some(libc::SIGXFSZ), "at byte {point}");
        assert!(std::fs::read(&path).unwrap() == whole[..point], "at byte {point}");
        if point == 0 {
            assert!(matches!(Reader::open(&path), Err(Error::NotARowfile { .. })));
        } else {
            let kept = assert_truncated(&path);
            assert!(kept >= ended.said, "at byte {point}: {kept} of {}", ended.said);
            assert!(matches!(Writer::append(&path, 3000), Err(Error::Truncated { .. })));
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_appender_that_is_killed_at_any_byte_leaves_the_old_end_or_the_new() {
    let name = "an_appender_that_is_killed_at_any_byte_leaves_the_old_end_or_the_new";
    if let Some(path) = child_path() {
        limit_file_size();
        return write_rows_and_footer(Writer::append(&path, 3000).unwrap(), 4 * ROWS_PER_WRITE);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    write_rows_and_footer(Writer::create(&path, &schema(), options()).unwrap(), 0);
    let before = std::fs::read(&path).unwrap();
    write_rows_and_footer(Writer::append(&path, 3000).unwrap(), 4 * ROWS_PER_WRITE);
    let after = std::fs::read(&path).unwrap();
    for point in kill_points(&after, before.len()) {
        std::fs::write(&path, &before).unwrap();
        let ended = run_until_killed_at(name, &path, point);
        assert_eq!(ended.signal, Some(libc::SIGXFSZ), "at byte {point}");
        assert!(std::fs::read(&path).unwrap() == after[..point], "at byte {point}");
        let reader = Reader::open(&path).unwrap();
        reader.verify().unwrap();
        assert_eq!(reader.unfinished_bytes(), (point - before.len()) as u64);
        assert_eq!(assert_rows(&reader), 4 * ROWS_PER_WRITE);
        let (saved, report) = salvage(File::open(&path).unwrap(), "test.rows", Vec::new()).unwrap();
        assert!(report.rows as usize >= ended.said.max(4 * ROWS_PER_WRITE), "at byte {point}");
        assert_rows(&Reader::new(saved, "saved").unwrap());
        // The next append continues from the previous footer.
        write_rows_and_footer(Writer::append(&path, 3000).unwrap(), 4 * ROWS_PER_WRITE);
        let reader = Reader::open(&path).unwrap();
        assert_eq!((assert_rows(&reader), reader.unfinished_bytes()), (8 * ROWS_PER_WRITE, 0));
    }
    // A process that is killed after its last byte has appended everything.
    std::fs::write(&path, &before).unwrap();
    let ended = run_until_killed_at(name, &path, after.len());
    assert_eq!((ended.said, ended.signal), (8 * ROWS_PER_WRITE, None));
    assert!(std::fs::read(&path).unwrap() == after);
}

/// Repeats a round until the duration of `make soak` is over; runs it once without it.
fn repeat_until_soak_ends(mut round: impl FnMut(u64)) {
    let seconds = std::env::var("SOAK_SECONDS").map_or(0, |text| text.parse().unwrap());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    for seed in 0.. {
        round(seed);
        if std::time::Instant::now() >= end {
            println!("{} rounds", seed + 1);
            return;
        }
    }
}

#[test]
#[ignore = "kills from outside: make soak repeats it for a given time"]
fn soak_a_writer_that_is_killed() {
    if let Some(path) = child_path() {
        let mut writer = Writer::create(&path, &schema(), options()).unwrap();
        for first in (0..).step_by(ROWS_PER_WRITE) {
            writer.write(&rows(first, ROWS_PER_WRITE)).unwrap();
            writer.flush().unwrap();
            report_rows(first + ROWS_PER_WRITE);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    repeat_until_soak_ends(|seed| {
        let lines = 1 + Random::new(seed).below(60);
        let reached = kill_after("soak_a_writer_that_is_killed", &path, lines);
        let kept = assert_truncated(&path);
        assert!(kept >= reached, "{kept} of {reached}");
        assert!(matches!(Writer::append(&path, 3000), Err(Error::Truncated { .. })));
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
#[ignore = "kills from outside: make soak repeats it for a given time"]
fn soak_an_appender_that_is_killed() {
    if let Some(path) = child_path() {
        let mut first = Reader::open(&path).unwrap().row_count() as usize;
        loop {
            let mut writer = Writer::append(&path, 3000).unwrap();
            for _ in 0..4 {
                writer.write(&rows(first, ROWS_PER_WRITE)).unwrap();
                first += ROWS_PER_WRITE;
            }
            writer.close().unwrap();
            report_rows(first);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    repeat_until_soak_ends(|seed| {
        // Start a new file when the old one has grown large.
        if seed % 50 == 0 {
            if seed > 0 {
                std::fs::remove_file(&path).unwrap();
            }
            let mut writer = Writer::create(&path, &schema(), options()).unwrap();
            writer.write(&rows(0, 4 * ROWS_PER_WRITE)).unwrap();
            writer.close().unwrap();
        }
        let lines = 1 + Random::new(seed).below(5);
        let reached = kill_after("soak_an_appender_that_is_killed", &path, lines);
        let reader = Reader::open(&path).unwrap();
        reader.verify().unwrap();
        let found = assert_rows(&reader);
        assert!(
            found >= reached && found.is_multiple_of(4 * ROWS_PER_WRITE),
            "{found} of {reached}"
        );
        let (saved, report) = salvage(File::open(&path).unwrap(), "test.rows", Vec::new()).unwrap();
        assert!(report.rows >= found as u64);
        assert_rows(&Reader::new(saved, "saved").unwrap());
    });
}
