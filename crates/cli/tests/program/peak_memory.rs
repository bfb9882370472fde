//! Peak memory of runs whose tables are several times the budget.
//!
//! Each query runs in its own process, and `wait4` returns the peak resident memory of that process.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::process::{Child, Command};

use crate::TestFolder;

/// Maximum resident memory of a run with `--memory 64M`, in MiB: the budget and a slack. The slack covers the
/// program's code (72 MiB of its file), the buffers of readers and writers, the copies made by spills and
/// answers, and freed memory that the allocator retains.
const RESIDENT_MIB_MAX: u64 = 64 + SLACK_MIB;
const SLACK_MIB: u64 = 136;

/// Number of input rows, of about 60 bytes each.
const ROWS: u64 = 1 << 20;

/// Writes rows of a unique number `n`, a unique text `s` of 32 characters and a float `f`, not ordered by
/// `n`. They are not collected in memory: the peak of a process starts at the size of its parent process.
fn write_rows(place: &TestFolder, rows: u64) {
    let mut file = BufWriter::new(File::create(place.write("in.csv", "")).unwrap());
    writeln!(file, "n,s,f").unwrap();
    for row in 0..rows {
        let n = row.wrapping_mul(2_654_435_761) % rows;
        let hash = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let s = (u128::from(hash) << 64) | u128::from(hash.rotate_left(17));
        let f = hash % 1_000_003;
        writeln!(file, "{n},{s:032x},{f}.25").unwrap();
    }
    file.into_inner().unwrap();
}

/// Waits for a process; returns whether it succeeded, and its peak resident memory in MiB.
fn wait_for_peak_memory(child: Child) -> (bool, u64) {
    let (mut status, id) = (0, libc::pid_t::try_from(child.id()).unwrap());
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers point to values of the expected types, and nothing has waited for this child yet.
    let found = unsafe { libc::wait4(id, &raw mut status, 0, usage.as_mut_ptr()) };
    assert_eq!(found, id);
    // SAFETY: all-zero bytes are a valid `rusage`, and the call has filled it.
    let usage = unsafe { usage.assume_init() };
    let unit = if cfg!(target_os = "macos") { 1 << 20 } else { 1 << 10 };
    // An answer from a sample exits with status 3.
    let is_well = libc::WIFEXITED(status) && matches!(libc::WEXITSTATUS(status), 0 | 3);
    (is_well, u64::try_from(usage.ru_maxrss).unwrap() / unit)
}

/// Runs a command, discards its answer, and returns its peak resident memory in MiB.
fn resident_mib(place: &TestFolder, mut command: Command) -> u64 {
    let said = place.path().join("said.txt");
    let child = command.stdout(File::create("/dev/null").unwrap());
    let child = child.stderr(File::create(&said).unwrap()).spawn().unwrap();
    let (is_well, resident_mib) = wait_for_peak_memory(child);
    assert!(is_well, "{command:?}: {}", fs::read_to_string(said).unwrap());
    resident_mib
}

/// Aggregates for each kind of state, the group key, and further arguments.
///
/// Groups have few rows, so that the states of all groups are several times as large as the budget.
const AGGREGATES_BY_STATE_KIND: &[(&str, &str, &[&str])] = &[
    ("count(*)", "s", &[]),
    ("sum(n), avg(n)", "s", &[]),
    ("sum(f), avg(f)", "s", &[]),
    ("sum(CAST(n AS DECIMAL(20, 2))), avg(CAST(f AS DECIMAL(20, 2)))", "s", &[]),
    ("sum(make_array(n, n * 2)), avg(make_array(f))", "n // 3", &[]),
    ("min(s), max(s)", "n // 2", &[]),
    ("min(n), max(f)", "s", &[]),
    ("bit_and(n), bit_or(n), bit_xor(n)", "s", &[]),
    ("median(f), percentile_cont(f, 0.3)", "s", &[]),
    ("stddev(f), var(n)", "n // 2", &[]),
    ("corr(f, n), regr_slope(n, f)", "n // 2", &[]),
    // Exact states of values of many magnitudes take 2 kB each.
    ("kurtosis(f * power(10, n % 61 - 30)), skewness(f)", "n // 4", &[]),
    ("kurtosis(f * power(10, n % 61 - 30)), skewness(f)", "n // 4", &["--threads", "7"]),
    ("unique(s)", "n // 2", &[]),
    ("hll_sketch(s)", "n // 4", &[]),
    (
        "hll_union(CASE WHEN f < 500000 THEN '\\x128b7f0000000000000002' ELSE '\\x118b7f' END)",
        "s",
        &[],
    ),
    ("quantile(f, 0.5, 0.9)", "n // 2", &[]),
    ("histogram(f, 5)", "n // 4", &[]),
    ("bootstrap_sum(n, s)", "n // 2", &[]),
    ("unique_exact(n), id_set(n)", "s", &[]),
    ("unique_exact(s)", "n // 4", &[]),
    ("id_set_union(CASE WHEN f < 500000 THEN '\\x910108' ELSE '\\x9100' END)", "s", &[]),
    ("distinct_values(s, 40)", "n // 4", &[]),
    ("distinct_sample(s, 8), distinct_sample(n, 5, f)", "n // 4", &[]),
    ("inverse_histogram(s, 8)", "n // 4", &[]),
    ("top_k(s, 3)", "n // 4", &[]),
    ("top_k(n, 3), top_k(n, 2, n)", "n // 4", &[]),
    ("collect(s, 3)", "n // 4", &[]),
    ("first_value(s), last_value(s)", "n // 2", &[]),
    ("any_value(s), nth_value(s, 2)", "n // 2", &[]),
    ("arg_max(s, f), first_value(s ORDER BY f)", "n // 2", &[]),
    ("array_agg(s)", "n // 8", &[]),
    ("array_agg(s ORDER BY f)", "n // 8", &[]),
    ("string_agg(s, '+')", "n // 8", &[]),
    ("count(DISTINCT s)", "n // 8", &[]),
    ("sum(f), count(*)", "n % 50000", &["--sample", "99%"]),
    ("quantile(f, 0.5), avg(f)", "n % 20000", &["--sample", "99%"]),
];

#[test]
fn tables_of_every_kind_of_state_keep_to_the_budget() {
    let place = TestFolder::new();
    write_rows(&place, ROWS);
    let mut table = String::new();
    let mut is_kept = true;
    for (aggregates, key, more) in AGGREGATES_BY_STATE_KIND {
        let sql = format!("SELECT {key} AS k, {aggregates} FROM 'in.csv' GROUP BY k");
        let own = ["query", &sql, "--memory", "64M", "--format", "json"];
        let threads = if more.contains(&"--threads") { &[][..] } else { &["--threads", "2"] };
        let resident_mib =
            resident_mib(&place, place.tidemill(&[&own[..], threads, *more].concat()));
        let spilled = place.job_log_runs()[0]["spilled_bytes"].as_u64().unwrap_or(0) >> 20;
        let more = more.join(" ");
        writeln!(table, "{resident_mib} MiB, {spilled} MiB spilled: {aggregates} {more}").unwrap();
        is_kept &= resident_mib <= RESIDENT_MIB_MAX && spilled > 0;
    }
    println!("{table}");
    assert!(is_kept, "more than {RESIDENT_MIB_MAX} MiB, or nothing spilled:\n{table}");
}

#[test]
fn memory_of_an_order_dependent_table_does_not_grow_with_the_input() {
    let place = TestFolder::new();
    let resident_mib_of = |rows| {
        write_rows(&place, rows);
        let sql = "SELECT n // 3 AS k, collect(s || s || s || s, 3) AS v FROM 'in.csv' GROUP BY k";
        let words = ["query", sql, "--memory", "64M", "--threads", "2", "--format", "json"];
        resident_mib(&place, place.tidemill(&words))
    };
    let found = [1, 4].map(|times| resident_mib_of(times * ROWS));
    println!("{found:?} MiB");
    assert!(found.iter().all(|mib| *mib <= RESIDENT_MIB_MAX), "{found:?} MiB");
}

/// Number of files that are read at once, each by a program that waits after its last line.
const STALLED_FILES: usize = 32;

/// Size in MiB of the buffers that a waiting thread keeps.
const READER_BUFFERS_MIB: u64 = 3;

#[test]
fn tables_of_stalled_threads_keep_to_the_budget() {
    check_memory_of_stalled_threads("count(*), sum(n), min(n), max(n)", 100_000, "1");
    check_memory_of_stalled_threads("kurtosis((n + 1) * power(10, n % 61 - 30))", 12_000, "7");
}

/// Checks the peak memory of a run over files of `groups` groups each, all of which are open at once.
fn check_memory_of_stalled_threads(aggregates: &str, groups: usize, threads: &str) {
    let place = TestFolder::new();
    for file in 0..STALLED_FILES {
        // More than the 10,000 rows that inference reads, and more than a pipe holds: no program ends before
        // a split reads it.
        let pad = "x".repeat((3 << 20) / groups);
        let rows = (0..groups).map(|row| format!("{},{row},{pad}\n", row * STALLED_FILES + file));
        place.write(&format!("in/{file:02}.csv"), format!("k,n,pad\n{}", rows.collect::<String>()));
    }
    for pipe in ["arrived", "gate"] {
        assert!(place.program("mkfifo").arg(pipe).status().unwrap().success());
    }
    let pipe = |name| {
        // Open for reading and writing, so that opening does not wait and reading meets no end.
        OpenOptions::new().read(true).write(true).open(place.path().join(name)).unwrap()
    };
    let (mut arrived, mut gate) = (pipe("arrived"), pipe("gate"));
    let folder = place.path().display().to_string();
    let script = format!("cat; echo >> '{folder}/arrived'; read -r line < '{folder}/gate'");
    let mut command = place.tidemill(&[
        "query",
        &format!("SELECT k, {aggregates} FROM 'in/*.csv' GROUP BY k"),
        "--drop=1%",
        "--memory=64M",
        &format!("--threads={threads}"),
        "--source-exec=sh",
        "--source-exec=-c",
        &format!("--source-exec={script}"),
    ]);
    let said = place.path().join("said.txt");
    command.stdout(File::create(place.path().join("out.csv")).unwrap());
    let child = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
    let mut released = arrived.try_clone().unwrap();
    let waiter = std::thread::spawn(move || {
        let found = wait_for_peak_memory(child);
        // A failed run must not leave the test waiting below.
        released.write_all(&[b'\n'; STALLED_FILES]).unwrap();
        found
    });
    // Every program has written its rows, and none has ended.
    let mut lines = [0; STALLED_FILES];
    arrived.read_exact(&mut lines).unwrap();
    gate.write_all(&lines).unwrap();
    let (is_well, resident_mib) = waiter.join().unwrap();
    assert!(is_well, "{}", fs::read_to_string(said).unwrap());
    println!("{resident_mib} MiB: {aggregates}");
    let answer = BufReader::new(File::open(place.path().join("out.csv")).unwrap());
    assert_eq!(answer.lines().count(), 1 + groups * STALLED_FILES);
    let readers_mib = READER_BUFFERS_MIB * STALLED_FILES as u64;
    assert!(resident_mib <= RESIDENT_MIB_MAX + readers_mib, "{resident_mib} MiB");
}
