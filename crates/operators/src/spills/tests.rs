use futures::StreamExt;
use futures::executor::block_on;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Returns new folders and a spill space in them.
fn space_in(count: usize) -> (Vec<TempDir>, SpillSpace) {
    let folders: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
    let paths: Vec<PathBuf> = folders.iter().map(|folder| folder.path().into()).collect();
    let space = SpillSpace::new(&paths, &RunProgress::new());
    (folders, space)
}

/// Returns the injected fault of a folder.
fn fault(space: &SpillSpace, folder: usize) -> &fault::InjectedWriteFault {
    &space.inner.folders[folder].fault
}

/// Writes a spill of these bytes.
fn write_spill(space: &SpillSpace, bytes: &[u8]) -> io::Result<SpilledData> {
    let spill = space.create_spill();
    let mut writer = spill.writer();
    writer.write_all(bytes)?;
    writer.flush()?;
    Ok(spill)
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8).collect()
}

fn read_spill(spill: &SpilledData) -> Vec<u8> {
    let mut bytes = Vec::new();
    spill.reader().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn interleaved_spills_are_read_back_separately() {
    let folder = tempfile::tempdir().unwrap();
    let progress = RunProgress::new();
    let space = SpillSpace::new(&[folder.path().into()], &progress);
    let spills: Vec<SpilledData> = (0..3).map(|_| space.create_spill()).collect();
    let mut writers: Vec<SpillAppender> = spills.iter().map(SpilledData::writer).collect();
    let mut expected = vec![Vec::new(); 3];
    for turn in 0..60 {
        let index = turn % 3;
        let bytes = pattern(turn as u64, [1, 700, 40_000, 300_000][turn % 4]);
        writers[index].write_all(&bytes).unwrap();
        expected[index].extend(bytes);
    }
    writers.iter_mut().for_each(|writer| writer.flush().unwrap());
    for (spill, expected) in spills.iter().zip(&expected) {
        assert!(read_spill(spill) == *expected);
        assert_eq!(spill.bytes(), expected.len() as u64);
        let mut streamed = Vec::new();
        let mut stream = spill.read_stream().unwrap();
        while let Some(bytes) = block_on(stream.next()) {
            streamed.extend(bytes.unwrap());
        }
        assert!(streamed == *expected);
    }
    let total: usize = expected.iter().map(Vec::len).sum();
    assert_eq!(progress.spilled_bytes(), total as u64);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a spill has a name");
}

#[test]
fn a_spill_is_read_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let spill = SpillSpace::new(&[folder.path().into()], &RunProgress::new()).create_spill();
    let mut stream = spill.read_stream().unwrap();
    assert!(block_on(stream.next()).is_none());
    let mut writer = spill.writer();
    for part in [&b"one"[..], b"two"] {
        writer.write_all(part).unwrap();
        writer.flush().unwrap();
        assert_eq!(block_on(stream.next()).unwrap().unwrap(), part);
        assert!(block_on(stream.next()).is_none());
    }
}

#[test]
fn dropped_spill_frees_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let space = SpillSpace::new(&[folder.path().into()], &RunProgress::new());
    let bytes = pattern(5, 3 * BLOCK_BYTES as usize + 1);
    for _ in 0..10 {
        let spill = space.create_spill();
        let mut writer = spill.writer();
        writer.write_all(&bytes).unwrap();
        writer.flush().unwrap();
        let reader = spill.reader();
        drop((spill, writer));
        assert_eq!(space.block_counts(), [(4, 0)], "a reader still reads");
        drop(reader);
        assert_eq!(space.block_counts(), [(4, 4)]);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn any_number_of_spills_takes_one_open_file() {
    let folder = tempfile::tempdir().unwrap();
    let space = SpillSpace::new(&[folder.path().into()], &RunProgress::new());
    let spills: Vec<SpilledData> = (0..100).map(|_| space.create_spill()).collect();
    for spill in &spills {
        let mut writer = spill.writer();
        writer.write_all(b"some").unwrap();
        writer.flush().unwrap();
    }
    let readers: Vec<SpillReader> = spills.iter().map(SpilledData::reader).collect();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    // A descriptor of another test may be closed by the time its link is read.
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    assert_eq!(targets.filter(|target| target.starts_with(folder.path())).count(), 1);
    assert_eq!(readers.len(), 100);
}

#[test]
fn unwritable_folder_is_named_on_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let spill = SpillSpace::new(std::slice::from_ref(&missing), &RunProgress::new()).create_spill();
    let mut writer = spill.writer();
    let error = writer.write_all(&pattern(1, BUFFER_BYTES)).unwrap_err();
    let message = Error::io("write", "elsewhere", error).to_string();
    assert!(message.starts_with(&format!("cannot spill to `{}`", missing.display())));
    assert!(message.contains("\nhint: --spill-dir"), "{message}");
}

#[test]
fn blocks_alternate_between_folders() {
    let (folders, space) = space_in(3);
    let bytes = pattern(3, 7 * BLOCK_BYTES as usize + 5);
    let spill = write_spill(&space, &bytes).unwrap();
    assert_eq!(space.block_counts(), [(3, 0), (3, 0), (2, 0)]);
    assert!(read_spill(&spill) == bytes);
    // Many small spills alternate, too.
    let small: Vec<SpilledData> = (0..6).map(|_| write_spill(&space, b"some").unwrap()).collect();
    assert_eq!(space.block_counts(), [(5, 0), (5, 0), (4, 0)]);
    drop((spill, small));
    assert_eq!(space.block_counts(), [(5, 5), (5, 5), (4, 4)]);
    for folder in folders {
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a spill has a name");
    }
}

#[test]
fn full_folder_is_skipped_from_refused_byte_on() {
    for kind in
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge]
    {
        // Full in the middle of a block, between two blocks, and before the first.
        for room in [BLOCK_BYTES + 1000, BLOCK_BYTES, 0] {
            let (_folders, space) = space_in(2);
            fault(&space, 0).refuse_from(room, kind);
            let bytes = pattern(7, 9 * BLOCK_BYTES as usize + 77);
            let spill = write_spill(&space, &bytes).unwrap();
            assert!(read_spill(&spill) == bytes, "{kind} {room}");
            let mut middle = vec![0; 3 * BLOCK_BYTES as usize];
            spill.read_exact_at(BLOCK_BYTES - 3, &mut middle).unwrap();
            assert!(middle == bytes[BLOCK_BYTES as usize - 3..][..middle.len()], "{kind} {room}");
            let counts = space.block_counts();
            assert!(counts[0].0 <= 2 && counts[1].0 >= 8, "{kind} {room}: {counts:?}");
            // The folder has room again, but stays skipped because another has room.
            fault(&space, 0).clear();
            let more = write_spill(&space, &bytes).unwrap();
            assert_eq!(space.block_counts()[0], counts[0], "{kind} {room}");
            assert!(read_spill(&more) == bytes && read_spill(&spill) == bytes, "{kind} {room}");
        }
    }
}

#[test]
fn free_blocks_in_full_folders_are_used_once_all_are_full() {
    let (_folders, space) = space_in(2);
    let full = io::ErrorKind::StorageFull;
    fault(&space, 0).refuse_from(2 * BLOCK_BYTES, full);
    fault(&space, 1).refuse_from(3 * BLOCK_BYTES, full);
    let bytes = pattern(9, BLOCK_BYTES as usize);
    let mut spills: Vec<SpilledData> =
        (0..5).map(|_| write_spill(&space, &bytes).unwrap()).collect();
    assert!(write_spill(&space, &bytes).is_err());
    // The first spill was in the first folder.
    spills.remove(0);
    spills.push(write_spill(&space, &bytes).unwrap());
    assert!(write_spill(&space, &bytes).is_err());
    // Another folder gets room.
    fault(&space, 1).clear();
    spills.push(write_spill(&space, &bytes).unwrap());
    assert!(spills.iter().all(|spill| read_spill(spill) == bytes));
}

#[test]
fn refused_block_is_reused_last() {
    let (_folders, space) = space_in(1);
    let folder = &space.inner.folders[0];
    let taken = || folder.allocate_block().unwrap().1;
    assert_eq!([taken(), taken(), taken(), taken()], [0, 1, 2, 3]);
    folder.free_block(0);
    folder.free_refused_block(2);
    assert_eq!(space.block_counts(), [(4, 2)]);
    folder.free_refused_block(3);
    assert_eq!(space.block_counts(), [(3, 2)], "the end is where it was");
    assert_eq!([taken(), taken(), taken()], [0, 2, 3]);
}

#[test]
fn disk_full_error_names_each_folder_with_free_space() {
    let (folders, space) = space_in(2);
    for (index, kind) in
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].into_iter().enumerate()
    {
        fault(&space, index).refuse_from(10, kind);
    }
    let Err(error) = write_spill(&space, &pattern(1, BUFFER_BYTES)) else { panic!("it has room") };
    let error = Error::io("write", "elsewhere", error);
    let Error::SpillDiskFull { folders: told, .. } = &error else { panic!("{error:?}") };
    let paths: Vec<String> = folders.iter().map(|it| it.path().display().to_string()).collect();
    assert!(told.iter().map(|(path, _)| path).eq(&paths), "{error}");
    assert!(told.iter().all(|(_, free)| free.is_some()), "{error}");
    let message = error.to_string();
    assert!(message.starts_with("no room to spill: "), "{message}");
    assert!(message.contains("\nhint: free some space, "), "{message}");
}

#[test]
fn other_folder_error_ends_write() {
    let (_folders, space) = space_in(2);
    fault(&space, 1).refuse_from(0, io::ErrorKind::PermissionDenied);
    let Err(error) = write_spill(&space, &pattern(1, 3 * BLOCK_BYTES as usize)) else {
        panic!("it was written")
    };
    let message = Error::io("write", "elsewhere", error).to_string();
    let folder = space.inner.folders[1].path.display();
    assert!(message.starts_with(&format!("cannot spill to `{folder}`: ")), "{message}");
}

#[test]
fn unusable_spill_folder_is_reported_in_advance() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().to_path_buf();
    let (missing, file) = (good.join("missing"), good.join("file"));
    check_spill_folders(std::slice::from_ref(&good)).unwrap();
    assert_eq!(std::fs::read_dir(&good).unwrap().count(), 0);
    std::fs::write(&file, "").unwrap();
    let below = file.join("below");
    for (bad, why) in [(&missing, "there is no such folder"), (&file, "it is a file"), (&below, "")]
    {
        let error = check_spill_folders(&[good.clone(), bad.clone()]).unwrap_err();
        assert!(matches!(error, Error::Usage { .. }), "{error:?}");
        let expected = format!("cannot spill to `{}`: {why}", bad.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(error.to_string().contains("\nhint: "), "{error}");
    }
}

/// An action on one of several spills or folders.
#[derive(Debug, Clone)]
enum SpillAction {
    /// Writes a number of bytes in one call.
    Write(usize, usize),
    /// Drops a spill and begins another.
    Replace(usize),
    /// Makes a folder refuse bytes of its file from an offset on.
    Refuse(usize, u64),
    Mend(usize),
}

fn spill_action(spills: usize, folders: usize) -> impl Strategy<Value = SpillAction> {
    let bytes = prop_oneof![0..5_000_usize, 100_000..300_000_usize, 900_000..1_500_000_usize];
    prop_oneof![
        8 => (0..spills, bytes).prop_map(|(spill, bytes)| SpillAction::Write(spill, bytes)),
        2 => (0..spills).prop_map(SpillAction::Replace),
        1 => (0..folders, 0..6 * BLOCK_BYTES).prop_map(|(folder, room)| SpillAction::Refuse(folder, room)),
        1 => (0..folders).prop_map(SpillAction::Mend),
    ]
}

const SPILLS: usize = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Reads return the written bytes for any number of folders, whichever of them is full and when. If none has
    /// room, the write fails, and the bytes written before remain readable.
    #[test]
    fn spills_return_written_bytes_whichever_folder_is_full(
        folders in 1..4_usize,
        steps in prop::collection::vec(spill_action(SPILLS, 3), 1..30),
    ) {
        let (_folders, space) = space_in(folders);
        let begin = || {
            let spill = space.create_spill();
            let writer = spill.writer();
            (spill, writer, Vec::new())
        };
        let mut spills: Vec<(SpilledData, SpillAppender, Vec<u8>)> = (0..SPILLS).map(|_| begin()).collect();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                SpillAction::Write(index, bytes) => {
                    let (spill, writer, expected) = &mut spills[index];
                    let bytes = pattern(number as u64 + 1, bytes);
                    match writer.write_all(&bytes).and_then(|()| writer.flush()) {
                        Ok(()) => expected.extend(bytes),
                        Err(error) => {
                            let error = Error::io("write", "elsewhere", error);
                            let is_told = matches!(&error, Error::SpillDiskFull { .. });
                            prop_assert!(is_told, "{}", error);
                            let found = read_spill(spill);
                            prop_assert!(found.starts_with(expected));
                            prop_assert!(bytes.starts_with(&found[expected.len()..]));
                            spills[index] = begin();
                        }
                    }
                }
                SpillAction::Replace(index) => spills[index] = begin(),
                SpillAction::Refuse(folder, room) => {
                    fault(&space, folder % folders).refuse_from(room, io::ErrorKind::StorageFull);
                }
                SpillAction::Mend(folder) => fault(&space, folder % folders).clear(),
            }
            for (spill, _, expected) in &spills {
                prop_assert_eq!(spill.bytes(), expected.len() as u64);
            }
        }
        for (spill, _, expected) in &spills {
            prop_assert!(read_spill(spill) == *expected);
        }
        drop(spills);
        for (blocks, free) in space.block_counts() {
            prop_assert_eq!(blocks, free as u64, "a block is lost, or there twice");
        }
    }
}
