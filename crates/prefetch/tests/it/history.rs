//! The read history, through damage and beside other processes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use tidemill_prefetch::ReadHistory;
use tidemill_prefetch::read_history::HISTORY_FILE_BYTES_MAX;
use tidemill_prefetch::tuner::{AccessOrder, ReadHistoryRecord};

/// Returns a record as a run would write it, distinguished by its number.
fn record_with_number(number: u64) -> ReadHistoryRecord {
    ReadHistoryRecord {
        ended_at_seconds: 1_795_737_600 + number,
        location: "s3://logs".into(),
        job_name: format!("a job of {number} words = 100 %\n"),
        access_order: [AccessOrder::Declared, AccessOrder::Sequential, AccessOrder::Random]
            [number as usize % 3],
        object_bytes_max: 1 << 27,
        memory_bytes: 1 << 29,
        block_bytes: 8 << 20,
        window_bytes: 256 << 20,
        requests: number,
        bytes: number << 23,
        first_byte_us: 30_000,
        connection_rate: 25_000_000,
        total_rate: 400_000_000,
        busy_ms: 5_000,
        stall_ms: 1_000,
        wasted_bytes: number,
        throttled_responses: 0,
        concurrent_requests_max: 64,
    }
}

fn request_counts(history: &ReadHistory) -> Vec<u64> {
    history.records().unwrap().iter().map(|record| record.requests).collect()
}

#[test]
fn written_records_are_read_back_and_a_missing_file_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let reads = folder.path().join("reads");
    let history = ReadHistory::for_endpoint(&reads, "https://user:hush-hush@host/logs");
    assert_eq!(history.records().unwrap(), []);
    let records: Vec<ReadHistoryRecord> = (0..5).map(record_with_number).collect();
    records.iter().for_each(|record| history.append(record).unwrap());
    assert_eq!(history.records().unwrap(), records);
    let other = ReadHistory::for_endpoint(&reads, "https://host/logs");
    assert_eq!(other.records().unwrap(), []);
    let text = fs::read_to_string(history.path()).unwrap();
    assert!(!text.contains("hush") && !history.path().to_string_lossy().contains("hush"));
    use std::os::unix::fs::PermissionsExt;
    for (path, mode) in [(reads.as_path(), 0o700), (history.path(), 0o600)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[test]
fn long_word_is_cut_at_a_character_boundary() {
    let folder = tempfile::tempdir().unwrap();
    let history = ReadHistory::for_endpoint(folder.path(), "e");
    let job = "ä".repeat(200) + "b";
    history
        .append(&ReadHistoryRecord { job_name: format!("x{job}"), ..record_with_number(1) })
        .unwrap();
    let found = history.records().unwrap();
    assert_eq!(found[0].job_name, format!("x{}", "ä".repeat(49)));
}

proptest! {
    #[test]
    fn damaged_lines_are_skipped_and_never_believed(
        count in 1..8u64,
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        is_cut in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let history = ReadHistory::for_endpoint(folder.path(), "e");
        let records: Vec<ReadHistoryRecord> = (0..count).map(record_with_number).collect();
        records.iter().for_each(|record| history.append(record).unwrap());
        let whole = fs::read(history.path()).unwrap();
        let mut bytes = whole.clone();
        for (place, byte) in &places {
            let at = place.index(bytes.len());
            bytes[at] = *byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend_from_slice(&noise);
        fs::write(history.path(), &bytes).unwrap();
        let found = history.records().unwrap();
        prop_assert!(found.iter().all(|record| records.contains(record)), "{:?}", found);
        if !is_cut {
            // A byte damages a line, or joins two.
            prop_assert!(found.len() + 2 * places.len() + 1 >= records.len());
        }
        // The next record is a line of its own.
        history.append(&record_with_number(99)).unwrap();
        let after = history.records().unwrap();
        prop_assert_eq!(after.last(), Some(&record_with_number(99)));
        prop_assert_eq!(after.len(), found.len() + 1);
    }
}

#[test]
fn latest_records_stay_when_there_are_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let history = ReadHistory::for_endpoint(folder.path(), "e");
    for number in 0..400 {
        history.append(&record_with_number(number)).unwrap();
        let size = fs::metadata(history.path()).unwrap().len();
        assert!(size <= HISTORY_FILE_BYTES_MAX, "{size} at {number}");
    }
    let found = request_counts(&history);
    assert!(found.len() > 80, "{}", found.len());
    let expected: Vec<u64> = (400 - found.len() as u64..400).collect();
    assert_eq!(found, expected);
    // No other file is left.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A child process of the test below, which starts it twice: appends 250 records and prints the time of each.
#[test]
fn a_process_of_its_own() {
    let Ok(told) = std::env::var("TIDEMILL_TEST_HISTORY") else { return };
    let (folder, first) = told.split_once('|').unwrap();
    let history = ReadHistory::for_endpoint(Path::new(folder), "e");
    let first: u64 = first.parse().unwrap();
    for number in first..first + 250 {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        println!("\nappends {number} {time}");
        history
            .append(&ReadHistoryRecord { ended_at_seconds: time, ..record_with_number(number) })
            .unwrap();
        // The file is readable whatever the other process does.
        history.records().unwrap();
    }
}

#[test]
fn two_processes_append_without_losing_a_line_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let start = |first: u64| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "history::a_process_of_its_own", "--nocapture"])
            .env("TIDEMILL_TEST_HISTORY", format!("{}|{first}", folder.path().display()))
            .output()
    };
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| start(10_000).unwrap());
        [start(20_000).unwrap(), other.join().unwrap()]
    });
    let mut appended: Vec<(u64, u64)> = Vec::new();
    for one in both {
        let said = String::from_utf8_lossy(&one.stdout);
        assert!(one.status.success(), "{said}{}", String::from_utf8_lossy(&one.stderr));
        appended.extend(said.lines().filter_map(|line| {
            let (number, time) = line.strip_prefix("appends ")?.split_once(' ')?;
            Some((time.parse().ok()?, number.parse().ok()?))
        }));
    }
    assert_eq!(appended.len(), 500);
    appended.sort_unstable();
    let found = ReadHistory::for_endpoint(folder.path(), "e").records().unwrap();
    assert!(found.is_sorted_by_key(|record| record.ended_at_seconds));
    // The latest records survive, whichever process shortened the file and however long that took.
    for (_, number) in &appended[420..] {
        assert!(found.iter().any(|record| record.requests == *number), "{number} is lost");
    }
}

#[test]
fn unwritable_folder_and_irregular_file_are_errors_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let history = ReadHistory::for_endpoint(&file.join("reads"), "e");
    assert!(history.append(&record_with_number(1)).is_err());
    let history = ReadHistory::for_endpoint(folder.path(), "e");
    fs::create_dir(history.path()).unwrap();
    assert!(history.append(&record_with_number(1)).is_err());
    assert!(history.records().is_err());
    fs::remove_dir(history.path()).unwrap();
    // A link may point to a foreign file.
    std::os::unix::fs::symlink(&file, history.path()).unwrap();
    assert!(history.append(&record_with_number(1)).is_err());
    assert_eq!(fs::read(&file).unwrap(), b"");
}
