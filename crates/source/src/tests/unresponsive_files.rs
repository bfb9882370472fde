//! Sources with files that cannot be read or do not respond.

use std::time::{Duration, Instant};

use super::*;
use crate::files::byte_input::{ByteReadContext, OpenFile, ReadPattern};
use crate::schema::content_detection;

/// Timeouts that responsive files never reach, however busy the machine is.
fn generous_timeouts() -> OpenTimeouts {
    OpenTimeouts { file_timeout: Duration::from_secs(600), ..OpenTimeouts::default() }
}

fn opened(folder: &tempfile::TempDir, pattern: &str) -> Result<Arc<Source>> {
    let spec = spec(folder, pattern);
    let nothing = Box::new(std::io::empty());
    Source::open_with_timeouts(&spec, nothing, &CancelFlag::new(), &generous_timeouts())
        .map(Arc::new)
}

fn pipe(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn unreadable_files_are_skipped_and_named() {
    let mut damaged = gzip(&b"n\n1\n2\n".repeat(1000));
    damaged.truncate(20);
    let files: [(&str, &[u8]); 5] = [
        ("a.csv", b"n\n1\n"),
        ("b.csv.gz", &damaged),
        ("c.csv.gz", &gzip(b"n\n3\n")),
        ("empty.csv", b""),
        ("z.csv", b"n\n2\n"),
    ];
    for pattern in ["*.csv*", ""] {
        let folder = folder(&files);
        std::os::unix::fs::symlink("/nowhere", folder.path().join("link.csv")).unwrap();
        pipe(&folder.path().join("pipe.csv"));
        assert!(open(&folder, pattern).is_err());
        let source = opened(&folder, pattern).unwrap();
        assert_eq!(rows(&source), text(&[&["1"], &["3"], &["2"]]), "{pattern}");
        let left_out = source.skipped_files();
        let names: Vec<&str> =
            left_out.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["link.csv", "pipe.csv", "b.csv.gz"], "{pattern}: {left_out:?}");
        assert!(left_out[0].reason.contains("No such file"), "{}", left_out[0].reason);
        assert!(left_out[1].reason.contains("not a regular file"), "{}", left_out[1].reason);
        assert!(left_out[2].reason.contains("damaged"), "{}", left_out[2].reason);
        assert_eq!((left_out[2].file_index, left_out[2].stored_bytes), (Some(1), 20));
    }
}

#[test]
fn compressed_file_split_by_its_name_is_refused_when_read() {
    let mut random = 7_u32;
    let lines: String = (0..40_000)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("{random}\n")
        })
        .collect();
    let folder =
        folder(&[("a.csv", b"n\n1\n"), ("b.csv", &gzip(format!("n\n{lines}").as_bytes()))]);
    let source = open(&folder, "*.csv").unwrap();
    // A remote file whose beginning has not been inspected.
    let mut twin = source.files()[1].clone_unopened();
    twin.detected_compression = OnceLock::new();
    let (twin, middle) = (Arc::new(twin), source.files()[1].size() / 2);
    let watch = ByteReadContext::default();
    let open = OpenFile::open(&twin, ReadPattern::Random, &watch).unwrap();
    let mut seen = [0; 2000];
    let count = open.read_at(&mut seen, middle).unwrap();
    for _ in 0..2 {
        let error = content_detection::check_split_compression(&twin, &open, &seen[..count])
            .unwrap_err()
            .to_string();
        assert!(error.contains("b.csv") && error.contains("compressed"), "{error}");
    }
    let other = Arc::new(source.files()[0].clone_unopened());
    content_detection::check_split_compression(&other, &open, "ä,ö\n".as_bytes().split_at(1).1)
        .unwrap();
    // The file is neither text nor a file of another kind.
    let other = OpenFile::open(&source.files()[0], ReadPattern::Random, &watch).unwrap();
    content_detection::check_split_compression(&source.files()[0], &other, &seen[..count]).unwrap();
}

#[test]
fn program_without_output_is_skipped() {
    let files: Vec<(String, Vec<u8>)> =
        (0..5).map(|n| (format!("{n}.csv"), format!("n\n{n}\n").into_bytes())).collect();
    let folder = folder(&files.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>());
    let script = "case \"$TIDEMILL_FILE\" in */0.csv|*/3.csv) sleep 600;; *) cat;; esac";
    let mut spec = spec(&folder, "*.csv");
    let words = ["sh", "-c", script].map(str::to_owned);
    spec.filter_program = Some(FilterProgram::new(words.to_vec()).unwrap());
    let patience = OpenTimeouts {
        // Starting a program takes a second on a busy machine.
        file_timeout: Duration::from_secs(5),
        deadline: Some(Instant::now() + Duration::from_secs(100)),
        ..OpenTimeouts::default()
    };
    let nothing = Box::new(std::io::empty());
    let source = Source::open_with_timeouts(&spec, nothing, &CancelFlag::new(), &patience).unwrap();
    let left_out = source.skipped_files();
    let files: Vec<_> = left_out.iter().filter_map(|left| left.file_index).collect();
    assert_eq!(files, [0, 3], "{left_out:?}");
    assert!(left_out.iter().all(|left| left.is_unresponsive), "{left_out:?}");
}

#[test]
fn columns_are_those_of_the_files_that_can_be_read() {
    let (folder, expected) = parquet_folder();
    write(folder.path(), "y=2013/damaged.parquet", b"PAR1 and no footer PAR1");
    write(folder.path(), "y=2014/empty.parquet", b"");
    let whole = open(&folder, "").unwrap_err();
    assert!(matches!(whole, Error::Usage { .. } | Error::Corrupt { .. }), "{whole}");
    let source = opened(&folder, "").unwrap();
    assert_eq!(source.skipped_files().len(), 2, "{:?}", source.skipped_files());
    let (found, _) = read(&source, 1 << 20, &ReadOptions::default()).unwrap();
    assert_eq!(found.len(), expected.len());
}

#[test]
fn error_is_reported_when_no_file_can_be_read() {
    let folder = folder(&[("b.csv.gz", b"\x1f\x8b\x08 and no more")]);
    assert!(opened(&folder, "*.gz").is_err());
    let parquet = self::folder(&[("a.parquet", b"PAR1 and no footer PAR1")]);
    assert!(opened(&parquet, "*.parquet").is_err());
    let links = self::folder(&[]);
    std::os::unix::fs::symlink("/nowhere", links.path().join("link.csv")).unwrap();
    assert!(opened(&links, "*.csv").is_err());
}

#[test]
fn unresponsive_file_is_not_split_and_its_header_is_checked() {
    let long = lines_of(2000);
    let folder = folder(&[("a.csv", &long), ("b.csv", &long), ("c.csv", &long)]);
    let source = open(&folder, "*.csv").unwrap();
    source.files()[1].is_readable.set(false).unwrap();
    assert!(source.files()[1].is_unresponsive());
    let splits = source.splits_with_target_bytes(1000, &mut |_, _| true).unwrap();
    let of = |file: usize| splits.iter().filter(|it| it.parts[0].file.index() == file).count();
    assert!(of(0) > 5 && of(1) == 1 && of(2) > 5);
    let (found, _) = read(&source, 1000, &ReadOptions::default()).unwrap();
    assert_eq!(found.len(), 6000);

    // Its columns are assumed to be those of the first file until it is read.
    write(folder.path(), "b.csv", b"n,m\n1,2\n");
    let mut source = Source::open(&spec(&folder, "*.csv")).unwrap();
    source.files()[1].is_readable.set(false).unwrap();
    source.columns.file_layouts[1] = 0;
    let error = message(read(&Arc::new(source), 1000, &ReadOptions::default()));
    assert!(error.contains("its header is another"), "{error}");
}

fn lines_of(count: usize) -> Vec<u8> {
    let rows = (0..count).map(|row| format!("{row}\n"));
    std::iter::once("n\n".to_owned()).chain(rows).collect::<String>().into_bytes()
}

#[test]
fn silent_pipe_is_read_until_the_deadline() {
    let folder = folder(&[]);
    pipe(&folder.path().join("pipe.csv"));
    let spec = spec(&folder, "pipe.csv");
    let until = Some(Instant::now() + Duration::from_millis(20));
    let patience = OpenTimeouts { deadline: until, ..generous_timeouts() };
    let nothing = Box::new(std::io::empty());
    let error =
        Source::open_with_timeouts(&spec, nothing, &CancelFlag::new(), &patience).unwrap_err();
    assert!(error.to_string().contains("before the deadline"), "{error}");
    // The early-stop flag ends it, too.
    let cancel = CancelFlag::new();
    cancel.cancel();
    let error = Source::open_with_stdin(&spec, Box::new(std::io::empty()), &cancel).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

#[test]
fn the_error_of_an_address_that_does_not_answer_names_it() {
    // The system accepts connections to it, and no process reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.csv", silent.local_addr().unwrap());
    let spec = SourceSpec { url: url.clone(), ..SourceSpec::default() };
    let until = Some(Instant::now() + Duration::from_secs(2));
    let patience = OpenTimeouts { deadline: until, ..generous_timeouts() };
    let nothing = Box::new(std::io::empty());
    let error =
        Source::open_with_timeouts(&spec, nothing, &CancelFlag::new(), &patience).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(&url) && message.contains("it did not answer within"), "{message}");
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let folder = folder(&[]);
    let path = folder.path().join("pipe.csv");
    pipe(&path);
    let writer = std::thread::spawn(move || std::fs::write(path, lines_of(100_000)).unwrap());
    let source = open(&folder, "pipe.csv").unwrap();
    assert_eq!(rows(&source).len(), 100_000);
    writer.join().unwrap();
}

#[test]
fn program_that_waits_after_its_records_is_not_skipped() {
    // Several blocks, and fewer rows than columns are inferred from.
    let rows: String = (0..6000).map(|row| format!("{row},{}\n", "x".repeat(400))).collect();
    let text = format!("n,pad\n{rows}");
    let folder = folder(&[("a.csv", text.as_bytes()), ("b.csv", text.as_bytes())]);
    let mut spec = spec(&folder, "*.csv");
    let words = ["sh", "-c", "cat; sleep 600"].map(str::to_owned);
    spec.filter_program = Some(FilterProgram::new(words.to_vec()).unwrap());
    let nothing = Box::new(std::io::empty());
    let source =
        Source::open_with_timeouts(&spec, nothing, &CancelFlag::new(), &generous_timeouts())
            .unwrap();
    assert_eq!(source.skipped_files().len(), 0, "{:?}", source.skipped_files());
    assert_eq!(source.schema().field(0).data_type(), &DataType::Int64);
}

#[test]
fn silent_programs_share_one_timeout_and_partial_output_is_reported() {
    let files: Vec<(String, &[u8])> =
        (0..8).map(|n| (format!("{n}.csv"), &b"n\n1\n2\n"[..])).collect();
    let folder = folder(&files.iter().map(|(name, text)| (&**name, *text)).collect::<Vec<_>>());
    let mut spec = spec(&folder, "*.csv");
    let script = "case \"$TIDEMILL_FILE\" in */0.csv) cat;; */1.csv) head -c 4; sleep 600;; *) sleep 600;; esac";
    spec.filter_program =
        Some(FilterProgram::new(["sh", "-c", script].map(str::to_owned).to_vec()).unwrap());
    let (began, nothing) = (Instant::now(), Box::new(std::io::empty()));
    let source =
        Source::open_with_timeouts(&spec, nothing, &CancelFlag::new(), &generous_timeouts())
            .unwrap();
    let left_out = source.skipped_files();
    assert_eq!(
        left_out.iter().filter_map(|left| left.file_index).collect::<Vec<_>>(),
        (1..8).collect::<Vec<_>>()
    );
    assert!(left_out[0].reason.contains("gave 4 B of it within"), "{left_out:?}");
    assert!(left_out[1].reason.contains("gave nothing of it within"), "{left_out:?}");
    // A limit for a hang: seven consecutive waits would take 35 s.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn early_stop_ends_opening() {
    let folder = folder(&[("a.csv", b"n\n1\n"), ("b.csv", b"n\n2\n")]);
    let mut spec = spec(&folder, "*.csv");
    let started = folder.path().join("started");
    let script = format!("touch '{}'; sleep 600", started.display());
    let words = ["sh", "-c", &script].map(str::to_owned);
    spec.filter_program = Some(FilterProgram::new(words.to_vec()).unwrap());
    let nothing = || Box::new(std::io::empty());
    for is_patient in [true, false] {
        let _ = std::fs::remove_file(&started);
        let (enough, cancel) = (CancelFlag::new(), CancelFlag::new());
        let opened = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !started.exists() {
                    std::thread::yield_now();
                }
                enough.cancel();
            });
            match is_patient {
                true => {
                    let patience =
                        OpenTimeouts { early_stop: enough.clone(), ..generous_timeouts() };
                    Source::open_with_timeouts(&spec, nothing(), &cancel, &patience)
                }
                false => {
                    let patience =
                        OpenTimeouts { early_stop: enough.clone(), ..OpenTimeouts::default() };
                    Source::open_with_early_stop(&spec, nothing(), &cancel, &patience)
                }
            }
        });
        assert!(matches!(opened, Err(Error::Interrupted)), "{is_patient}: {opened:?}");
        assert!(!cancel.is_cancelled());
    }
}

#[test]
fn a_name_with_a_line_end_in_it_cuts_no_reason_off() {
    let folder = folder(&[("a.csv", b"n\n1\n")]);
    pipe(&folder.path().join("y\n\u{1b}]0;t\u{7}.csv"));
    let source = opened(&folder, "*.csv").unwrap();
    let [left_out] = &source.skipped_files()[..] else { panic!("{:?}", source.skipped_files()) };
    let reason = left_out.reason.lines().next().unwrap();
    assert!(reason.contains("y\\n\\x1b]0;t\\x07.csv` is not a regular file"), "{reason}");
}
