//! Whole sorts, with failing and corrupting disks, compared with `Vec::sort`.

use std::io;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::error::Error;
use crate::options::Options;
use crate::record_blocks::RecordShape;
use crate::record_order::{ByteOrder, ByteRangeOrder, HashOrder, RecordOrder, ReverseOrder};
use crate::report::SortReport;
use crate::sorter::{CommittedInput, Sorter};

/// A generator with the same sequence on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum InputKind {
    Random,
    Ascending,
    Descending,
    FewKeys,
    /// Half of the rows have one key.
    Skewed,
    /// A key of eight bytes and a long payload.
    Wide,
    /// 100 bytes, the key in the first ten.
    HundredBytes,
    AllEqual,
}

const INPUT_KINDS: [InputKind; 8] = [
    InputKind::Random,
    InputKind::Ascending,
    InputKind::Descending,
    InputKind::FewKeys,
    InputKind::Skewed,
    InputKind::Wide,
    InputKind::HundredBytes,
    InputKind::AllEqual,
];

fn records(kind: InputKind, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let mut records = Vec::new();
    let mut total = 0;
    while total < bytes {
        let n = records.len() as u64;
        let record = match kind {
            InputKind::Random => format!("{:x}", random.next() >> random.below(60)).into_bytes(),
            InputKind::Ascending => format!("{n:012} and more").into_bytes(),
            InputKind::Descending => format!("{:012} and more", u32::MAX as u64 - n).into_bytes(),
            InputKind::FewKeys => vec![b'a' + random.below(3) as u8; random.below(40) as usize],
            InputKind::Skewed if random.below(2) == 0 => b"the key of half of all rows".to_vec(),
            InputKind::Skewed => format!("{:x}", random.next()).into_bytes(),
            InputKind::Wide => {
                let mut record = random.next().to_be_bytes().to_vec();
                record.resize(8 + random.below(3000) as usize, b'.');
                record
            }
            InputKind::HundredBytes => {
                let mut record = random.next().to_be_bytes().to_vec();
                record.extend_from_slice(&n.to_be_bytes());
                record.resize(100, b'.');
                record
            }
            InputKind::AllEqual => b"twenty bytes of this".to_vec(),
        };
        total += record.len();
        records.push(record);
    }
    records
}

fn options(folder: &tempfile::TempDir) -> Options {
    Options {
        memory_bytes: 1 << 20,
        threads: 2,
        spill_dirs: vec![folder.path().to_path_buf()],
        ..Options::default()
    }
}

/// Pushes the records as `tasks` tasks from two threads, and returns the sorted records and the statistics.
fn sort_with<O: RecordOrder>(
    order: O,
    options: Options,
    records: &[Vec<u8>],
    tasks: usize,
    before_finish: impl FnOnce(&Sorter<O>),
) -> Result<(Vec<Vec<u8>>, SortReport), Error> {
    let sorter = Sorter::new(order, RecordShape::Variable, options)?;
    let pieces: Vec<_> =
        records.chunks(records.len().div_ceil(tasks.max(1)).max(1)).enumerate().collect();
    before_finish(&sorter);
    std::thread::scope(|scope| {
        let (sorter, pieces) = (&sorter, &pieces);
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                scope.spawn(move || {
                    for (number, piece) in pieces.iter().filter(|(number, _)| number % 2 == thread)
                    {
                        let mut task = sorter.start_task(*number as u64);
                        for record in *piece {
                            task.push(record)?;
                        }
                        task.commit()?;
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    collect_sorted(sorter)
}

/// Collects all records of a sort.
fn collect_sorted<O: RecordOrder>(sorter: Sorter<O>) -> Result<(Vec<Vec<u8>>, SortReport), Error> {
    let mut sorted = Vec::new();
    let report = sorter.finish()?.for_each(|record| {
        sorted.push(record.to_vec());
        Ok(())
    })?;
    Ok((sorted, report))
}

fn is_folder_empty(folder: &tempfile::TempDir) -> bool {
    std::fs::read_dir(folder.path()).unwrap().next().is_none()
}

#[test]
fn inputs_of_every_kind_are_sorted_beyond_memory() {
    let folder = tempfile::tempdir().unwrap();
    for kind in INPUT_KINDS {
        let input = records(kind, 3 << 20, 1);
        let mut expected = input.clone();
        expected.sort();
        let (sorted, report) = sort_with(ByteOrder, options(&folder), &input, 7, |_| ()).unwrap();
        assert!(sorted == expected, "{kind:?}");
        assert!(report.partitions > 1 && report.disk.writes > 10, "{kind:?}: {report:?}");
        expected.reverse();
        let (sorted, _) =
            sort_with(ReverseOrder(ByteOrder), options(&folder), &input, 3, |_| ()).unwrap();
        assert!(sorted == expected, "{kind:?}");
        assert!(is_folder_empty(&folder));
    }
}

#[test]
fn ties_keep_their_order_and_unique_keeps_the_first() {
    let folder = tempfile::tempdir().unwrap();
    for kind in INPUT_KINDS {
        let mut input = records(kind, 3 << 20, 2);
        for (number, record) in input.iter_mut().enumerate() {
            record.truncate(8);
            record.resize(8, b' ');
            record.extend_from_slice(&(number as u32).to_be_bytes());
        }
        let key = || ByteRangeOrder::new(0..8);
        let mut expected = input.clone();
        expected.sort_by(|a, b| a[..8].cmp(&b[..8]));
        let stable = Options { stable: true, ..options(&folder) };
        let (sorted, _) = sort_with(key(), stable, &input, 9, |_| ()).unwrap();
        assert!(sorted == expected, "{kind:?}");
        expected.dedup_by(|b, a| a[..8] == b[..8]);
        let unique = Options { unique: true, ..options(&folder) };
        let (sorted, report) = sort_with(key(), unique, &input, 9, |_| ()).unwrap();
        assert!(sorted == expected, "{kind:?}");
        assert_eq!(report.output.rows + report.dropped.rows, input.len() as u64);
    }
}

#[test]
fn key_of_half_of_the_rows_needs_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::Skewed, 2 << 20, 3);
    let (_, report) = sort_with(ByteOrder, options(&folder), &input, 4, |_| ()).unwrap();
    assert_eq!((report.partitions_tied, report.partitions_merged), (1, 0), "{report:?}");
}

#[test]
fn hashed_groups_have_even_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let order = HashOrder::new(ByteRangeOrder::new(0..8), 5);
    // The first half has a thousand keys, the second one key for each record.
    let mut input = records(InputKind::HundredBytes, 6 << 20, 30);
    let half = input.len() / 2;
    for (number, record) in input[..half].iter_mut().enumerate() {
        record[..8].copy_from_slice(&(number as u64 % 1000).to_be_bytes());
    }
    let sorter = Sorter::new(order, RecordShape::Variable, options(&folder)).unwrap();
    let mut task = sorter.start_task(0);
    input.iter().for_each(|record| task.push(record).unwrap());
    task.commit().unwrap();
    let sorted = sorter.finish().unwrap();
    let CommittedInput::Spilled(fan_out) = &sorted.input else { panic!("it fits") };
    let rows: Vec<_> = fan_out.partitions.iter().map(|part| part.lock().rows).collect();
    let mean = input.len() as u64 / rows.len() as u64;
    // A thousand keys of 31 rows each are spread by chance.
    assert!(rows.len() > 10 && rows.iter().all(|rows| rows.abs_diff(mean) < mean / 2), "{rows:?}");
    let mut out = Vec::new();
    let take = |record: &[u8]| {
        out.push(record.to_vec());
        Ok(())
    };
    sorted.for_each(take).unwrap();
    let groups = out.chunk_by(|a, b| a[..8] == b[..8]).count();
    assert_eq!(groups, 1000 + input.len() - half);
    out.sort();
    input.sort();
    assert!(out == input);
}

#[test]
fn a_group_of_half_of_the_rows_has_a_partition() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::Skewed, 3 << 20, 31);
    for seed in 0..3 {
        let order = HashOrder::new(ByteOrder, seed);
        let mut expected = input.clone();
        expected.sort_by(|a, b| order.compare(a, b));
        let (sorted, report) = sort_with(order, options(&folder), &input, 4, |_| ()).unwrap();
        assert!(sorted == expected);
        assert_eq!((report.partitions_tied, report.partitions_merged), (1, 0), "{report:?}");
        // The key need not be seen early.
        let late: Vec<_> = input
            .iter()
            .filter(|record| record[0] != b't')
            .chain(input.iter().filter(|record| record[0] == b't'))
            .cloned()
            .collect();
        let (sorted, _) = sort_with(order, options(&folder), &late, 1, |_| ()).unwrap();
        assert!(sorted == expected);
        let limited = Options { limit: Some(30_000), ..options(&folder) };
        let (sorted, _) = sort_with(order, limited, &late, 9, |_| ()).unwrap();
        assert!(sorted == expected[..30_000]);
    }
}

#[test]
fn fifty_times_the_memory_is_sorted_with_one_merge_at_most() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [InputKind::HundredBytes, InputKind::Wide] {
        let input = records(kind, 50 << 20, 4);
        let mut expected = input.clone();
        expected.sort();
        let (sorted, report) = sort_with(ByteOrder, options(&folder), &input, 4, |_| ()).unwrap();
        assert!(sorted == expected);
        assert!(report.partitions_merged > 0 && report.runs > 1, "{report:?}");
        // Written twice and read twice; a tenth for frames and lengths.
        assert!(report.merges < 10, "{report:?}");
        assert!(report.spilled_bytes_per_byte() < 5.0, "{report:?}");
    }
}

#[test]
fn sample_of_sorted_input_avoids_a_merge() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::Ascending, 3 << 20, 5);
    let sample = |sorter: &Sorter<ByteOrder>| {
        let step = input.len() / sorter.sample_rows_wanted();
        input.iter().step_by(step).for_each(|record| sorter.add_sample(record));
    };
    let (sorted, report) = sort_with(ByteOrder, options(&folder), &input, 4, sample).unwrap();
    assert!(sorted == input);
    assert_eq!(report.partitions_merged, 0, "{report:?}");
}

/// Sorted or reversed input is written once, also if other records come before or between.
#[test]
fn sorted_input_needs_no_run_without_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [InputKind::Ascending, InputKind::Descending] {
        for disturbed in [false, true] {
            let mut input = records(kind, 12 << 20, 6);
            if disturbed {
                for (at, record) in records(InputKind::Random, 1 << 20, 7).into_iter().enumerate() {
                    let at = at * 31 % input.len();
                    input[at] = record;
                }
            }
            let mut expected = input.clone();
            expected.sort();
            for tasks in [1, 2] {
                let (sorted, report) =
                    sort_with(ByteOrder, options(&folder), &input, tasks, |_| ()).unwrap();
                assert!(sorted == expected, "{kind:?}");
                // With two halves at once the end of the second one is ahead of that of the first one.
                if tasks == 1 && !disturbed {
                    assert_eq!(report.partitions_merged, 0, "{kind:?}: {report:?}");
                    assert!(report.spilled_bytes_per_byte() < 2.6, "{kind:?}: {report:?}");
                }
            }
        }
    }
}

#[test]
fn input_that_fits_memory_touches_no_file() {
    let nowhere =
        Options { spill_dirs: vec![PathBuf::from("/nowhere/at/all")], ..Options::default() };
    for kind in INPUT_KINDS {
        let input = records(kind, 3 << 20, 6);
        let mut expected = input.clone();
        expected.sort();
        let (sorted, report) = sort_with(ByteOrder, nowhere.clone(), &input, 5, |_| ()).unwrap();
        assert!(sorted == expected, "{kind:?}");
        assert_eq!(report.partitions, 0);
    }
    let small = Options { memory_bytes: 1 << 20, ..nowhere };
    let error = sort_with(ByteOrder, small, &records(InputKind::Random, 4 << 20, 6), 1, |_| ())
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("`/nowhere/at/all`"), "{error}");
}

#[test]
fn the_number_of_tasks_does_not_change_the_number_of_operations() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::HundredBytes, 3 << 20, 7);
    let of = |tasks| {
        let (_, report) = sort_with(ByteOrder, options(&folder), &input, tasks, |_| ()).unwrap();
        assert!(report.mean_operation_bytes() >= (1 << 20) / 64, "{report:?}");
        assert_eq!(report.runs, 0, "{report:?}");
        report.disk.operations()
    };
    let few = of(10);
    let many = of(200);
    assert!(many.abs_diff(few) * 10 <= few, "{few} and {many}");
}

#[test]
fn attempts_that_are_not_committed_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [100 << 10, 3 << 20] {
        let input = records(InputKind::Random, bytes, 8);
        let mut expected = input.clone();
        expected.sort();
        let sorter = Sorter::new(ByteOrder, RecordShape::Variable, options(&folder)).unwrap();
        for (number, piece) in input.chunks(input.len().div_ceil(5)).enumerate() {
            let mut given_up = sorter.start_task(number as u64);
            piece.iter().for_each(|record| given_up.push(record).unwrap());
            let mut task = sorter.start_task(number as u64);
            piece.iter().for_each(|record| task.push(record).unwrap());
            let mut late = sorter.start_task(number as u64);
            piece.iter().for_each(|record| late.push(record).unwrap());
            assert!(task.commit().unwrap());
            assert!(!late.commit().unwrap());
            drop(given_up);
        }
        assert!(collect_sorted(sorter).unwrap().0 == expected);
    }
}

#[test]
fn full_disk_is_reported_at_every_write_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // Most of it goes to one partition, from one task, so that each sort writes the same.
    let mut input = records(InputKind::Random, 1 << 20, 9);
    input.extend((0..100_000).map(|n| format!("7fff{n:012} and more").into_bytes()));
    let (_, whole) = sort_with(ByteOrder, options(&folder), &input, 1, |_| ()).unwrap();
    assert!(whole.runs > 0, "the writes of runs are to fail too: {whole:?}");
    for write in (0..whole.disk.writes / 4 * 3).step_by(3) {
        let fail = |sorter: &Sorter<ByteOrder>| {
            sorter.core.spill_storage().fault.fail_write(write, io::ErrorKind::StorageFull, true);
        };
        let error =
            sort_with(ByteOrder, options(&folder), &input, 1, fail).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        assert!(error.is_retryable());
        let text = error.to_string();
        assert!(
            text.contains("bytes are still to be written")
                && text.contains(folder.path().to_str().unwrap()),
            "{text}"
        );
        assert!(is_folder_empty(&folder));
    }
}

#[test]
fn file_size_limit_is_not_reported_as_full_disk() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let input = records(InputKind::Random, 3 << 20, 9);
    let spill_dirs = vec![one.path().to_path_buf(), other.path().to_path_buf()];
    let both = Options { spill_dirs, ..options(&one) };
    for options in [options(&one), both.clone()] {
        let fail = |sorter: &Sorter<ByteOrder>| {
            sorter.core.spill_storage().fault.fail_write(7, io::ErrorKind::FileTooLarge, true);
        };
        let error = sort_with(ByteOrder, options, &input, 2, fail).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::FileSizeLimit { .. }), "{error}");
        assert!(!error.is_retryable());
        let text = error.to_string();
        assert!(
            text.contains("may not grow beyond") && text.contains("`ulimit -f unlimited`"),
            "{text}"
        );
        assert!(!text.contains("free"), "{text}");
    }
    // Another folder has a file of its own.
    let fail = |sorter: &Sorter<ByteOrder>| {
        sorter.core.spill_storage().fault.fail_write(7, io::ErrorKind::FileTooLarge, false);
    };
    sort_with(ByteOrder, both, &input, 2, fail).unwrap();
}

#[test]
fn other_folders_take_over_from_one_that_is_full() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let input = records(InputKind::Random, 3 << 20, 10);
    let mut expected = input.clone();
    expected.sort();
    let spill_dirs = vec![one.path().to_path_buf(), other.path().to_path_buf()];
    let fail = |sorter: &Sorter<ByteOrder>| {
        sorter.core.spill_storage().fault.fail_write(20, io::ErrorKind::StorageFull, false);
    };
    let (sorted, _) =
        sort_with(ByteOrder, Options { spill_dirs, ..options(&one) }, &input, 2, fail).unwrap();
    assert!(sorted == expected);
}

#[test]
fn other_disk_faults_name_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::Ascending, 2 << 20, 11);
    // From one task, so that each sort does the same.
    let (_, whole) = sort_with(ByteOrder, options(&folder), &input, 1, |_| ()).unwrap();
    for n in [0, 1, 5, whole.disk.writes.min(whole.disk.reads) - 1] {
        for write in [true, false] {
            let fail = |sorter: &Sorter<ByteOrder>| {
                let fault = &sorter.core.spill_storage().fault;
                if write {
                    fault.fail_write(n, io::ErrorKind::Other, false)
                } else {
                    fault.fail_read(n)
                }
            };
            let error =
                sort_with(ByteOrder, options(&folder), &input, 1, fail).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
            assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        }
    }
}

#[test]
fn flipped_bit_is_found_and_repaired_from_a_copy() {
    let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let input = records(InputKind::Ascending, 2 << 20, 12);
    // From one task, so that each sort reads the same.
    let (_, whole) = sort_with(ByteOrder, options(&folder), &input, 1, |_| ()).unwrap();
    let last = whole.disk.reads - 1;
    for (read, place) in [(0, 0), (3, 28), (7, 1000), (last / 2, 16_000), (last, 5)] {
        let flip =
            |sorter: &Sorter<ByteOrder>| sorter.core.spill_storage().fault.flip_read(read, place);
        let error =
            sort_with(ByteOrder, options(&folder), &input, 1, flip).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::CorruptSpill { .. }), "{error}");
        let copied = Options { copy_dir: Some(copies.path().to_path_buf()), ..options(&folder) };
        let (sorted, _) = sort_with(ByteOrder, copied, &input, 1, flip).unwrap();
        assert!(sorted == input);
    }
    assert!(is_folder_empty(&folder) && is_folder_empty(&copies));
}

#[test]
fn cancel_flag_ends_a_sort_in_every_phase() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::Random, 3 << 20, 13);
    let start = || {
        let options = options(&folder);
        let cancel = options.cancel.clone();
        (Sorter::new(ByteOrder, RecordShape::Variable, options).unwrap(), cancel)
    };
    let (sorter, cancel) = start();
    cancel.cancel();
    let mut task = sorter.start_task(0);
    assert!(matches!(input.iter().try_for_each(|record| task.push(record)), Err(Error::Cancelled)));
    let (sorter, cancel) = start();
    let mut task = sorter.start_task(0);
    input.iter().for_each(|record| task.push(record).unwrap());
    task.commit().unwrap();
    let mut blocks =
        sorter.finish().unwrap().into_blocks(crate::OutputFraming::Concatenated).unwrap();
    blocks.next_block().unwrap().unwrap();
    cancel.cancel();
    assert!(matches!(blocks.next_block(), Err(Error::Cancelled)));
    drop(blocks);
    assert!(is_folder_empty(&folder));
}

#[test]
fn limit_returns_the_first_rows_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [200 << 10, 4 << 20] {
        let input = records(InputKind::Random, bytes, 14);
        let mut expected = input.clone();
        expected.sort();
        for limit in [0, 1, 999, expected.len(), usize::MAX] {
            let limited = Options { limit: Some(limit as u64), ..options(&folder) };
            let (sorted, report) = sort_with(ByteOrder, limited, &input, 3, |_| ()).unwrap();
            assert!(sorted == expected[..limit.min(expected.len())]);
            assert_eq!(report.output.rows, sorted.len() as u64);
        }
    }
}

/// Pushes each task's records in several attempts that are all open at once, and commits one of them. The
/// others have records that precede all, which must not count.
fn sort_in_attempts<O: RecordOrder>(
    order: O,
    options: Options,
    tasks: &[Vec<Vec<u8>>],
    random: &mut Random,
) -> (Vec<Vec<u8>>, SortReport) {
    let sorter = Sorter::new(order, RecordShape::Variable, options).unwrap();
    let least = vec![vec![0u8; 12]; 500 << random.below(5)];
    let mut open: Vec<_> = (0..tasks.len()).collect();
    let mut running = Vec::new();
    loop {
        if !open.is_empty() && running.len() < 4 {
            let number = open.swap_remove(random.below(open.len() as u64) as usize);
            let real = random.below(3);
            for attempt in 0..3 {
                let records = if attempt == real { &tasks[number] } else { &least };
                running.push((sorter.start_task(number as u64), records, 0, attempt == real));
            }
        }
        if running.is_empty() {
            break;
        }
        let at = random.below(running.len() as u64) as usize;
        let (task, records, done, is_real) = &mut running[at];
        let next = (*done + 1 + random.below(4000) as usize).min(records.len());
        records[*done..next].iter().for_each(|record| task.push(record).unwrap());
        *done = next;
        if next == records.len() && (*is_real || running.len() > 3) {
            let (task, _, _, is_real) = running.swap_remove(at);
            if is_real {
                assert!(task.commit().unwrap());
            }
        } else if running.iter().all(|(.., is_real)| !is_real) && open.is_empty() {
            // A late commit is refused.
            running.drain(..).for_each(|(task, ..)| assert!(!task.commit().unwrap()));
        }
    }
    collect_sorted(sorter).unwrap()
}

#[test]
fn ten_rows_of_fifty_times_the_memory_need_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, bytes) in INPUT_KINDS
        .map(|kind| (kind, 3 << 20))
        .into_iter()
        .chain([(InputKind::HundredBytes, 50 << 20)])
    {
        let input = records(kind, bytes, 20);
        let mut expected = input.clone();
        expected.sort();
        for (tasks, unique) in [(500, false), (1, false), (2, false), (500, true)] {
            if bytes > 3 << 20 && tasks < 500 {
                continue;
            }
            if unique {
                expected.dedup();
            }
            let limited = Options { limit: Some(10), unique, stable: true, ..options(&folder) };
            let (sorted, report) = sort_with(ByteOrder, limited, &input, tasks, |_| ()).unwrap();
            assert!(sorted == expected[..expected.len().min(10)], "{kind:?}");
            assert_eq!(report.disk, crate::DiskCounts::default(), "{kind:?}: {report:?}");
            let mut out = report.output;
            out.merge(&report.dropped);
            out.merge(&report.behind_limit);
            assert_eq!(out.rows, input.len() as u64, "{kind:?}: {report:?}");
            assert_eq!(report.output.rows, sorted.len() as u64);
        }
    }
}

#[test]
fn partitions_behind_a_limit_are_neither_kept_nor_read() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::HundredBytes, 12 << 20, 21);
    let mut expected = input.clone();
    expected.sort();
    let (_, whole) = sort_with(ByteOrder, options(&folder), &input, 50, |_| ()).unwrap();
    let limited = Options { limit: Some(20_000), ..options(&folder) };
    let (sorted, report) = sort_with(ByteOrder, limited, &input, 50, |_| ()).unwrap();
    assert!(sorted == expected[..20_000]);
    assert!(report.partitions > 1 && report.behind_limit.rows > 0, "{report:?}");
    // A sixth of the rows is wanted; of the first rows all are kept.
    assert!(report.disk.writes * 2 < whole.disk.writes, "{report:?} of {whole:?}");
    assert!(report.disk.reads * 3 < whole.disk.reads, "{report:?} of {whole:?}");
}

#[test]
fn uncommitted_rows_fill_no_partition_of_a_limited_sort() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::HundredBytes, 12 << 20, 23);
    let mut expected = input.clone();
    expected.sort();
    let limited = Options { limit: Some(20_000), ..options(&folder) };
    let sorter = Sorter::new(ByteOrder, RecordShape::Variable, limited).unwrap();
    let mut abandoned = sorter.start_task(0);
    for number in 0..30_000u32 {
        let mut record = [0u8; 100];
        record[8..12].copy_from_slice(&number.to_be_bytes());
        abandoned.push(&record).unwrap();
    }
    for (number, piece) in input.chunks(5000).enumerate() {
        let mut task = sorter.start_task(number as u64);
        piece.iter().for_each(|record| task.push(record).unwrap());
        task.commit().unwrap();
    }
    let mut sorted = Vec::new();
    let take = |record: &[u8]| {
        sorted.push(record.to_vec());
        Ok(())
    };
    let report = sorter.finish().unwrap().for_each(take).unwrap();
    assert!(sorted == expected[..20_000]);
    assert!(report.partitions > 1 && report.behind_limit.rows > 0, "{report:?}");
}

#[test]
fn lost_rows_are_found_with_a_limit_too() {
    let folder = tempfile::tempdir().unwrap();
    let input = records(InputKind::HundredBytes, 2 << 20, 22);
    let limited = Options { limit: Some(10), ..options(&folder) };
    let sorter = Sorter::new(ByteOrder, RecordShape::Variable, limited).unwrap();
    let mut task = sorter.start_task(0);
    input.iter().for_each(|record| task.push(record).unwrap());
    task.commit().unwrap();
    let mut sorted = sorter.finish().unwrap();
    sorted.committed_checksum.rows += 1;
    let error = sorted.for_each(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::ChecksumMismatch { .. }), "{error}");
}

#[test]
fn records_that_are_too_long_or_of_another_size_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sorter = Sorter::new(ByteOrder, RecordShape::Variable, options(&folder)).unwrap();
    let mut task = sorter.start_task(0);
    let most = sorter.budget().record_bytes_max;
    for _ in 0..20 {
        task.push(&vec![b'x'; most]).unwrap();
    }
    task.push(b"short").unwrap();
    task.commit().unwrap();
    let error = sorter.start_task(1).push(&vec![b'x'; most + 1]).unwrap_err();
    assert!(matches!(error, Error::RecordTooLong { .. }), "{error}");
    let report = sorter.finish().unwrap().for_each(|_| Ok(())).unwrap();
    assert_eq!(report.output.rows, 21);
    let sorter = Sorter::new(ByteOrder, RecordShape::Fixed(3), options(&folder)).unwrap();
    let error = sorter.start_task(1).push(b"four").unwrap_err();
    assert!(matches!(error, Error::RecordSize { expected: 3, found: 4 }), "{error}");
    assert!(Sorter::new(ByteOrder, RecordShape::Fixed(0), options(&folder)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn sort_equals_vec_sort(
        kind in prop::sample::select(&INPUT_KINDS[..]),
        bytes in prop_oneof![Just(0usize), 1..2000usize, 1..3_000_000usize],
        seed: u64,
        tasks in 1..50usize,
        threads in 1..5usize,
        stable: bool,
        unique: bool,
        memory in (1u64 << 20)..(4 << 20),
        expected in prop::option::of(0..10_000_000u64),
        key in prop::option::of((0..6usize, 0..20usize)),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let input = records(kind, bytes, seed);
        let options = Options { memory_bytes: memory, threads, stable, unique, expected_bytes: expected, ..options(&folder) };
        let mut model = input.clone();
        let sorted = if let Some((start, length)) = key {
            let order = ByteRangeOrder::new(start..start + length);
            model.sort_by(|a, b| order.compare(a, b));
            if unique {
                model.dedup_by(|b, a| order.compare(a, b).is_eq());
            }
            let (mut sorted, _) = sort_with(order.clone(), options, &input, tasks, |_| ()).unwrap();
            if !stable && !unique {
                // Ties are in any order, but each group has the same records.
                prop_assert!(sorted.is_sorted_by(|a, b| order.compare(a, b).is_le()));
                let whole = |a: &Vec<u8>, b: &Vec<u8>| order.compare(a, b).then_with(|| a.cmp(b));
                sorted.sort_by(whole);
                model.sort_by(whole);
            }
            sorted
        } else {
            model.sort();
            if unique {
                model.dedup();
            }
            sort_with(ByteOrder, options, &input, tasks, |_| ()).unwrap().0
        };
        prop_assert!(sorted == model);
        prop_assert!(is_folder_empty(&folder));
    }

    #[test]
    fn limited_sort_equals_truncated_vec_sort(
        kind in prop::sample::select(&INPUT_KINDS[..]),
        bytes in prop_oneof![1..2000usize, 1..3_000_000usize],
        seed: u64,
        tasks in 1..30usize,
        threads in 1..4usize,
        stable: bool,
        unique: bool,
        memory in (1u64 << 20)..(2 << 20),
        limit in prop_oneof![0..50u64, 0..5000u64, 0..50_000u64],
        length in 0..12usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        // Each record differs, so that it shows which of the ties came out.
        let mut input = records(kind, bytes, seed);
        for (number, record) in input.iter_mut().enumerate() {
            record.resize(length, b' ');
            record.extend_from_slice(&(number as u32).to_be_bytes());
        }
        let options = Options {
            memory_bytes: memory,
            threads,
            stable,
            unique,
            limit: Some(limit),
            ..options(&folder)
        };
        let key = ByteRangeOrder::new(0..length);
        let mut model = input.clone();
        model.sort_by(|a, b| key.compare(a, b));
        if unique {
            model.dedup_by(|b, a| key.compare(a, b).is_eq());
        }
        model.truncate(limit as usize);
        let pieces: Vec<_> =
            input.chunks(input.len().div_ceil(tasks)).map(<[Vec<u8>]>::to_vec).collect();
        let attempts = sort_in_attempts(key.clone(), options.clone(), &pieces, &mut Random(seed));
        let threads = sort_with(key.clone(), options, &input, tasks, |_| ()).unwrap();
        for (sorted, report) in [attempts, threads] {
            if stable || unique {
                prop_assert!(sorted == model);
            } else {
                prop_assert_eq!(sorted.len(), model.len());
                prop_assert!(sorted.iter().zip(&model).all(|(a, b)| key.compare(a, b).is_eq()));
                let numbers: std::collections::HashSet<_> =
                    sorted.iter().map(|record| &record[record.len() - 4..]).collect();
                prop_assert_eq!(numbers.len(), sorted.len());
            }
            prop_assert_eq!(report.input.rows, input.len() as u64);
            prop_assert!(report.output.rows + report.behind_limit.rows <= report.input.rows);
        }
        prop_assert!(is_folder_empty(&folder));
    }

    #[test]
    fn records_of_one_size_are_sorted(size in 1..200usize, count in 0..20_000usize, seed: u64) {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let mut input: Vec<Vec<u8>> =
            (0..count).map(|_| (0..size).map(|_| random.next() as u8).collect()).collect();
        let sorter = Sorter::new(ByteRangeOrder::new(0..10), RecordShape::Fixed(size), options(&folder)).unwrap();
        let mut task = sorter.start_task(0);
        input.iter().for_each(|record| task.push(record).unwrap());
        task.commit().unwrap();
        let mut output = Vec::new();
        sorter.finish().unwrap().write_to(None, &mut output).unwrap();
        let mut sorted: Vec<_> = output.chunks(size).map(<[u8]>::to_vec).collect();
        prop_assert!(sorted.is_sorted_by_key(|record| record[..10.min(size)].to_vec()));
        sorted.sort();
        input.sort();
        prop_assert!(sorted == input);
    }
}
