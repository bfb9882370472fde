//! Tests that a power cut at any moment leaves all of an output or nothing, and all of it once the
//! commit has returned.
//!
//! Each test records the operations of a run. After every operation it builds the states that a
//! power cut may leave ([`Disk`]), lets a later run recover them and checks the files. Recoveries
//! are cut off at each of their operations too.

use std::collections::{BTreeSet, HashSet};

use tidemill_remote::upload::UploadJournal;

use super::commit::numbers;
use super::disk_model::{Bytes, Disk, Image, Rename, Vault};
use super::*;
use crate::commit::fs::fault::{self, InjectedFault};
use crate::commit::fs::recorder::{RecordedOperation, record_operations};
use crate::commit::s3_commit::create_run_folder;

/// Contents of files, by path.
type Files = BTreeMap<String, String>;

/// Returns true if the files are allowed after a power cut. The flag is true if the run had
/// returned.
type Allowed<'a> = &'a dyn Fn(&Files, bool) -> bool;

/// A recorded run.
struct Trace<'a> {
    temp: &'a tempfile::TempDir,
    /// The disk before the run.
    disk: Disk,
    operations: Vec<RecordedOperation>,
    /// The folders, relative to the base, that a later run recovers.
    roots: &'a [&'a str],
    /// Folders that may remain, empty or not.
    folders: BTreeSet<String>,
}

fn base(temp: &tempfile::TempDir) -> PathBuf {
    temp.path().join("disk")
}

fn vault(temp: &tempfile::TempDir) -> PathBuf {
    temp.path().join("vault")
}

/// Creates the disk of a test, with some files on it.
fn prepare(files: &[(&str, &str)]) -> tempfile::TempDir {
    let temp = memory_tempdir();
    std::fs::create_dir(base(&temp)).unwrap();
    std::fs::create_dir(vault(&temp)).unwrap();
    for (path, text) in files {
        let path = base(&temp).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    temp
}

/// Returns the files and the folders below a folder.
fn found(folder: &Path) -> (Files, BTreeSet<String>) {
    let (folders, files): (Files, Files) =
        read_tree(folder).into_iter().partition(|(name, _)| name.ends_with('/'));
    (files, folders.into_keys().collect())
}

/// Returns the subsets of `count` pending changes that a power cut keeps: all subsets of up to six
/// changes; of more changes none, all, each prefix, each alone, all but each, and 24 random subsets.
fn subsets(count: usize) -> Vec<Vec<bool>> {
    let of = |keep: &dyn Fn(usize) -> bool| (0..count).map(keep).collect::<Vec<bool>>();
    if count <= 6 {
        return (0..1_usize << count).map(|bits| of(&|at| bits >> at & 1 == 1)).collect();
    }
    let mut subsets = vec![of(&|_| false), of(&|_| true)];
    for one in 0..count {
        subsets.extend([of(&|at| at <= one), of(&|at| at == one), of(&|at| at != one)]);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..24 {
        subsets.push(of(&|_| false));
        for keep in subsets.last_mut().unwrap() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *keep = state >> 63 == 1;
        }
    }
    subsets
}

/// Returns the states in which a power cut may leave a disk.
fn images(disk: &Disk) -> Vec<Image> {
    let mut images = Vec::new();
    for subset in subsets(disk.pending()) {
        for bytes in [Bytes::Written, Bytes::Lost, Bytes::Half, Bytes::Zeros] {
            let image = disk.crash(&|at| subset[at], bytes);
            if !images.contains(&image) {
                images.push(image);
            }
        }
    }
    images
}

impl<'a> Trace<'a> {
    /// Records the operations of `work` on a disk.
    fn of<T>(
        temp: &'a tempfile::TempDir,
        rename: Rename,
        roots: &'a [&'a str],
        work: impl FnOnce() -> T,
    ) -> (T, Trace<'a>) {
        let disk = Disk::scan(&base(temp), &vault(temp), rename);
        let (_, mut folders) = found(&base(temp));
        let (result, operations) = record_operations(&vault(temp), work);
        for operation in &operations {
            if let RecordedOperation::CreateFolder(path) = operation {
                let path = path.strip_prefix(base(temp)).unwrap().to_str().unwrap();
                if !path.contains(".tidemill-") {
                    folders.insert(format!("{path}/"));
                }
            }
        }
        (result, Trace { temp, disk, operations, roots, folders })
    }

    /// Checks all states that a power cut may leave; returns the number of different states.
    fn check(&self, allowed: Allowed<'_>) -> usize {
        let mut vault = Vault::new(&vault(self.temp));
        let mut seen: HashSet<(Image, bool)> = HashSet::new();
        let mut disk = self.disk.clone();
        for at in 0..=self.operations.len() {
            if let Some(before) = at.checked_sub(1) {
                disk.apply(&self.operations[before]);
            }
            let has_returned = at == self.operations.len();
            for (number, image) in images(&disk).into_iter().enumerate() {
                if !seen.insert((image.clone(), has_returned)) {
                    continue;
                }
                let context = || {
                    let before = &self.operations[..at];
                    format!("a power cut behind {before:#?} leaves\n{image:?}")
                };
                let operations = self.recover(&mut vault, &image, allowed, has_returned, &context);
                // Recoveries of different states are similar, so cut off only some of them.
                if number % 7 == 0 {
                    self.cut_recovery(&mut vault, &image, &operations, allowed, has_returned);
                }
            }
        }
        seen.len()
    }

    /// Recovers a state, and checks the files and folders that are left.
    fn recover(
        &self,
        states: &mut Vault,
        image: &Image,
        allowed: Allowed<'_>,
        has_returned: bool,
        context: &dyn Fn() -> String,
    ) -> Vec<RecordedOperation> {
        let left = self.temp.path().join("left");
        states.build(image, &left);
        let roots =
            || self.roots.iter().try_for_each(|root| recover_commits(&left.join(root)).map(drop));
        let (recovered, operations) = record_operations(&vault(self.temp), roots);
        if let Err(error) = recovered {
            panic!("{error}: {}", context());
        }
        let (files, folders) = found(&left);
        assert!(allowed(&files, has_returned), "{files:#?}, {has_returned}, {}", context());
        assert!(folders.is_subset(&self.folders), "{folders:?}, {}", context());
        std::fs::remove_dir_all(&left).unwrap();
        operations
    }

    /// Checks that a recovery can be cut off at each of its operations, and repeated.
    fn cut_recovery(
        &self,
        states: &mut Vault,
        image: &Image,
        operations: &[RecordedOperation],
        allowed: Allowed<'_>,
        has_returned: bool,
    ) {
        let left = self.temp.path().join("left");
        states.build(image, &left);
        let mut disk = Disk::scan(&left, &vault(self.temp), Rename::Atomic);
        std::fs::remove_dir_all(&left).unwrap();
        let mut seen: HashSet<Image> = HashSet::new();
        for operation in operations {
            disk.apply(operation);
            for number in 0..4 {
                let is_kept = |at: usize| match number {
                    0 => false,
                    1 => true,
                    _ => at % 2 == number % 2,
                };
                let again = disk.crash(&is_kept, Bytes::Written);
                if seen.insert(again.clone()) {
                    let context = || format!("recovery of\n{image:?}cut off\n{again:?}");
                    self.recover(states, &again, allowed, has_returned, &context);
                }
            }
        }
    }
}

/// Checks that a power cut leaves the output of a run whole or absent, and whole once the run has
/// returned.
fn whole_or_absent(
    files: &[(&str, &str)],
    roots: &[&str],
    rename: Rename,
    work: &dyn Fn(&Path) -> Result<()>,
) -> usize {
    let temp = prepare(files);
    let (before, _) = found(&base(&temp));
    let (result, trace) = Trace::of(&temp, rename, roots, || work(&base(&temp)));
    result.unwrap();
    let (after, _) = found(&base(&temp));
    assert_ne!(before, after);
    trace.check(&|found, has_returned| *found == after || (!has_returned && *found == before))
}

/// Writes rows to a template below a folder.
fn write(base: &Path, pattern: &str, overwrite: bool, rows: &[RecordBatch]) -> Result<()> {
    let url = format!("{}/{pattern}", base.display());
    run(&SinkSpec { overwrite, ..SinkSpec::new(url) }, rows, 500).map(drop)
}

const OLD: &[(&str, &str)] =
    &[("out/0/0.csv", "old"), ("out/0/other.txt", "mine"), ("out/1.csv", "older")];

#[test]
fn one_file_survives_a_power_cut_whole_or_not_at_all() {
    let rows = [numbers(1..4, "x")];
    for rename in [Rename::Atomic, Rename::Torn] {
        let mut states = 0;
        for (files, name, root) in [
            (&[][..], "x.csv", ""),
            (&[][..], "a/b/c/x.csv", "a/b/c"),
            (OLD, "out/x.parquet", "out"),
            (OLD, "out/1.csv", "out"),
            (OLD, "out/0/new/x.csv", "out/0/new"),
        ] {
            let work = |base: &Path| write(base, name, name == "out/1.csv", &rows);
            states += whole_or_absent(files, &[root], rename, &work);
        }
        assert!(states > 100, "{states}");
    }
}

#[test]
fn files_in_nested_new_folders_survive_a_power_cut_all_or_none() {
    let rows = [numbers(1..4, "x"), numbers(1..4, "y")];
    for rename in [Rename::Atomic, Rename::Torn] {
        for pattern in ["new/deep/{folder}/{n}/x.csv", "new/{n}.parquet", "{folder}/{n}.csv"] {
            let fixed = &pattern[..pattern.find('{').unwrap()];
            let root = fixed.strip_suffix('/').unwrap_or(fixed);
            let work = |base: &Path| write(base, pattern, false, &rows);
            let states = whole_or_absent(&[], &[root], rename, &work);
            assert!(states > 100, "{states}");
        }
    }
}

#[test]
fn files_that_replace_others_survive_a_power_cut_all_or_none() {
    let rows = [numbers(0..4, "x")];
    for rename in [Rename::Atomic, Rename::Torn] {
        let work = |base: &Path| write(base, "out/{folder}/{n}.csv", true, &rows);
        assert!(whole_or_absent(OLD, &["out"], rename, &work) > 100);
    }
}

#[test]
fn many_files_and_folders_that_one_call_makes_durable_survive_a_power_cut_all_or_none() {
    let rows = [numbers(0..18, "x")];
    for pattern in ["new/deep/{n}.csv", "new/{n}/x.csv"] {
        let work = |base: &Path| write(base, pattern, false, &rows);
        let root = pattern.split_once("/{").unwrap().0;
        assert!(whole_or_absent(&[], &[root], Rename::Atomic, &work) > 100);
    }
}

#[test]
fn a_set_and_a_file_of_any_content_survive_a_power_cut_whole_or_not_at_all() {
    let rows = numbers(1..4, "x");
    let set = |base: &Path| {
        let (root, run) = (base.join("converted"), RunId::new());
        let spec = SinkSpec::new(format!("{}/", root.display()));
        let format = OutputFormat::Json;
        let cancel = CancelFlag::new();
        let set = FileSet::create(&root, &spec, format, &run, 1 << 20, &cancel, &mut || Ok(()))?;
        for target in ["a.json", "b/c/d.json", "b/e.json"] {
            let mut file = set.begin_file(target.to_owned(), rows.schema())?;
            file.write(&rows)?;
            set.finish_file(file)?;
        }
        set.commit(&root, false, &mut || Ok(())).map(drop)
    };
    assert!(whole_or_absent(&[], &["converted"], Rename::Atomic, &set) > 100);
    let staged = |base: &Path| {
        let mut file = StagedFile::create(&base.join("p/q.part"), false, &RunId::new())?;
        file.write_all(b"groups").map_err(|e| Error::io("write", "q.part", e))?;
        let bytes = file.bytes_written();
        file.commit(bytes)
    };
    assert!(whole_or_absent(&[], &["p"], Rename::Atomic, &staged) > 20);
}

#[test]
fn each_of_several_outputs_survives_a_power_cut_all_or_none() {
    let rows = [numbers(1..3, "x")];
    let temp = prepare(&[]);
    let specs = ["both/{n}.csv", "both/{folder}/all.json", "other/x.csv"];
    // Begin all outputs before committing the first.
    let work = || {
        let sinks = specs.map(|pattern| {
            let spec = SinkSpec::new(format!("{}/{pattern}", base(&temp).display()));
            let mut sink = Sink::create(&spec, rows[0].schema(), &RunId::new(), 500).unwrap();
            sink.write(&rows[0]).unwrap();
            sink
        });
        for sink in sinks {
            sink.commit().unwrap();
        }
    };
    let ((), trace) = Trace::of(&temp, Rename::Atomic, &["both", "other"], work);
    let (after, _) = found(&base(&temp));
    let outputs: [BTreeSet<&str>; 3] = [
        ["both/1.csv", "both/2.csv"].into(),
        ["both/0/all.json", "both/1/all.json"].into(),
        ["other/x.csv"].into(),
    ];
    assert_eq!(after.len(), 5);
    let allowed = |found: &Files, has_returned: bool| {
        let all = outputs.iter().map(|files| {
            let there = files.iter().filter(|file| found.get(**file) == after.get(**file)).count();
            there == files.len() || (there == 0 && !has_returned)
        });
        all.into_iter().all(|holds| holds) && found.keys().all(|file| after.contains_key(file))
    };
    assert!(trace.check(&allowed) > 100);
}

/// A commit is taken back when an operation fails. A power cut must leave all of the output or
/// nothing before and during that, and nothing afterwards.
#[test]
fn a_commit_that_is_taken_back_survives_a_power_cut_all_or_none() {
    for (pattern, overwrite, range) in
        [("out/{folder}/{n}.csv", false, 1..4), ("out/{folder}/{n}.csv", true, 0..3)]
    {
        let rows = [numbers(range, "x")];
        let whole = prepare(OLD);
        write(&base(&whole), pattern, overwrite, &rows).unwrap();
        let (after, folders) = found(&base(&whole));
        let mut taken_back = 0;
        for n in 0.. {
            let temp = prepare(OLD);
            let (before, _) = found(&base(&temp));
            let work = || {
                fault::run_with_fault(n, InjectedFault::Once, || {
                    write(&base(&temp), pattern, overwrite, &rows)
                })
            };
            let ((result, reached), mut trace) = Trace::of(&temp, Rename::Atomic, &["out"], work);
            trace.folders.extend(folders.clone());
            if !reached {
                break;
            }
            let has_manifest = trace.operations.iter().any(|operation| {
                matches!(operation, RecordedOperation::Rename(_, to) if to.ends_with("undo.json"))
            });
            taken_back += usize::from(has_manifest);
            trace.check(&|found, has_returned| match &result {
                Ok(()) if has_returned => *found == after,
                Err(Error::UnfinishedCommit { .. }) | Ok(()) => *found == before || *found == after,
                Err(_) if has_returned => *found == before,
                Err(_) => *found == before || *found == after,
            });
        }
        assert!(taken_back > 3, "{taken_back}");
    }
}

/// A run may find folders that another run has created and not made durable, because it was killed
/// or is still running.
#[test]
fn an_output_below_folders_of_a_killed_run_survives_a_power_cut() {
    let (killed, next) = ([numbers(1..4, "killed")], [numbers(5..6, "next")]);
    for n in 0.. {
        let temp = prepare(&[]);
        let write_killed = || write(&base(&temp), "a/b/c/{n}.csv", false, &killed);
        let mut reached = false;
        let work = || {
            reached = fault::run_with_fault(n, InjectedFault::Crash, write_killed).1;
            write(&base(&temp), "a/b/c/next.csv", false, &next).unwrap();
        };
        let ((), trace) = Trace::of(&temp, Rename::Atomic, &["a/b/c"], work);
        let (after, _) = found(&base(&temp));
        let next = after["a/b/c/next.csv"].as_str();
        trace.check(&|found, has_returned| {
            let theirs = found.keys().filter(|name| !name.ends_with("/next.csv")).count();
            (theirs == 0 || theirs == 3)
                && match found.get("a/b/c/next.csv") {
                    Some(text) => text == next,
                    None => !has_returned,
                }
        });
        if !reached {
            assert!(n > 30, "only {n} operations");
            break;
        }
    }
}

/// Other programs may put files into folders that a run has just created.
#[test]
fn an_output_below_new_folders_that_others_use_survives_a_power_cut() {
    let rows = numbers(1..4, "x");
    let work = |base: &Path| {
        let spec = SinkSpec::new(format!("{}/a/b/x.csv", base.display()));
        let mut sink = Sink::create(&spec, rows.schema(), &RunId::new(), 500)?;
        sink.write(&rows)?;
        let theirs = ["a/theirs", "a/b/theirs"].map(|name| base.join(name));
        theirs.iter().for_each(|path| std::fs::write(path, "").unwrap());
        sink.commit()?;
        theirs.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        Ok(())
    };
    assert!(whole_or_absent(&[], &["a/b"], Rename::Atomic, &work) > 20);
}

#[test]
fn an_output_below_folders_of_a_live_run_survives_a_power_cut() {
    let rows = numbers(1..4, "x");
    let temp = prepare(&[]);
    let begin = |pattern: &str| {
        let spec = SinkSpec::new(format!("{}/{pattern}", base(&temp).display()));
        let mut sink = Sink::create(&spec, rows.schema(), &RunId::new(), 500).unwrap();
        sink.write(&rows).unwrap();
        sink
    };
    let work = || {
        let first = begin("a/b/{n}.csv");
        begin("a/b/x.csv").commit().unwrap();
        first
    };
    let (first, trace) = Trace::of(&temp, Rename::Atomic, &["a/b"], work);
    let whole = std::fs::read_to_string(base(&temp).join("a/b/x.csv")).unwrap();
    let expected: Files = [("a/b/x.csv".to_owned(), whole)].into();
    // Release the lock, so that the later run does not find it held.
    drop(first);
    trace.check(&|found, has_returned| *found == expected || (!has_returned && found.is_empty()));
}

/// Another run may have created a folder on the way to its own destination and not synced it,
/// because it still runs or was killed.
#[test]
fn an_output_below_a_folder_that_another_destination_shares_survives_a_power_cut() {
    let (theirs, rows) = ([numbers(1..3, "theirs")], [numbers(5..6, "ours")]);
    let roots = ["a/b", "a/c"];
    // Kill the other run at every seventh of its operations, from the one after `a` is created on.
    for (first, their_root, root) in [(1, "a/b", "a/c"), (4, "a/c", "a/b")] {
        let (their_pattern, name) = (format!("{their_root}/{{n}}.csv"), format!("{root}/y.csv"));
        let is_whole = |found: &Files, whole: &str, has_returned: bool| {
            let count = found.keys().filter(|path| path.starts_with(their_root)).count();
            (count == 0 || count == 2)
                && match found.get(&name) {
                    Some(text) => text == whole,
                    None => !has_returned,
                }
        };

        let temp = prepare(&[]);
        let work = || {
            let spec = SinkSpec::new(format!("{}/{their_pattern}", base(&temp).display()));
            let mut sink = Sink::create(&spec, theirs[0].schema(), &RunId::new(), 500).unwrap();
            sink.write(&theirs[0]).unwrap();
            write(&base(&temp), &name, false, &rows).unwrap();
            sink
        };
        let (live, trace) = Trace::of(&temp, Rename::Atomic, &roots, work);
        let whole = std::fs::read_to_string(base(&temp).join(&name)).unwrap();
        // Release the lock, so that the later run does not find it held.
        drop(live);
        trace.check(&|found, has_returned| is_whole(found, &whole, has_returned));

        for n in (first..).step_by(7) {
            let temp = prepare(&[]);
            let write_killed = || write(&base(&temp), &their_pattern, false, &theirs);
            let mut reached = false;
            let work = || {
                reached = fault::run_with_fault(n, InjectedFault::Crash, write_killed).1;
                write(&base(&temp), &name, false, &rows).unwrap();
            };
            let ((), trace) = Trace::of(&temp, Rename::Atomic, &roots, work);
            let whole = std::fs::read_to_string(base(&temp).join(&name)).unwrap();
            trace.check(&|found, has_returned| is_whole(found, &whole, has_returned));
            if !reached {
                assert!(n > 30, "only {n} operations");
                break;
            }
        }
    }
}

/// A folder that a run finds may have a name that is not durable: the user has just created it.
#[test]
fn files_in_folders_that_nobody_has_synced_survive_a_power_cut_all_or_none() {
    let rows = [numbers(1..4, "x")];
    for unsynced in [&["out/0/x"][..], &["out/1", "out/1/x"], &["out/0/x", "out/1", "out/1/x"]] {
        for rename in [Rename::Atomic, Rename::Torn] {
            let work = |base: &Path| {
                for folder in unsynced {
                    crate::commit::fs::create_dir(&base.join(folder)).unwrap();
                }
                write(base, "out/{folder}/x/{n}.csv", false, &rows)
            };
            assert!(whole_or_absent(&[("out/0/other", "mine")], &["out"], rename, &work) > 100);
        }
    }
}

/// The number of sync calls of a commit, without those for the folders above the test's disk.
#[cfg(target_os = "linux")]
#[test]
fn a_commit_makes_few_sync_calls() {
    let check = |pattern: &str, count: i64, expected: usize| {
        let temp = prepare(OLD);
        let rows = [numbers(0..count, "x")];
        let work = || write(&base(&temp), pattern, false, &rows).unwrap();
        let ((), trace) = Trace::of(&temp, Rename::Atomic, &[], work);
        let is_sync = |operation: &&RecordedOperation| match operation {
            RecordedOperation::SyncFolder(path) => path.starts_with(base(&temp)),
            RecordedOperation::SyncFile(_) | RecordedOperation::SyncAll => true,
            _ => false,
        };
        let calls: Vec<&RecordedOperation> = trace.operations.iter().filter(is_sync).collect();
        assert_eq!(calls.len(), expected, "{pattern}, {count} files: {calls:#?}");
    };
    check("x.csv", 1, 4);
    check("out/x.csv", 1, 5);
    check("new/x.csv", 1, 5);
    check("new/deep/deeper/x.csv", 1, 7);
    check("out/{n}.json", 2, 8);
    check("out/{folder}/{n}.json", 15, 23);
    check("out/{folder}/new/{n}.csv", 3, 13);
    check("new/{n}.csv", 365, 4);
    check("new/{n}/x.csv", 1000, 5);
    check("new/{n}/deep/x.csv", 1000, 5);
}

/// A truncated manifest is no commit: recovery refuses it and changes nothing.
#[test]
fn a_torn_manifest_is_not_trusted() {
    let rows = [numbers(1..4, "x")];
    let temp = prepare(&[]);
    let work = || write(&base(&temp), "out/{n}.csv", false, &rows);
    let (result, trace) = Trace::of(&temp, Rename::Atomic, &["out"], work);
    result.unwrap();
    let names_it = |operation: &RecordedOperation| matches!(operation, RecordedOperation::Rename(_, to) if to.ends_with("manifest.json"));
    let at = trace.operations.iter().position(names_it).unwrap();
    let mut disk = trace.disk.clone();
    trace.operations[..=at].iter().for_each(|operation| disk.apply(operation));
    let whole = disk.crash(&|_| true, Bytes::Written);
    let path = whole.0.keys().find(|path| path.ends_with("manifest.json")).unwrap().clone();
    let Some(Some((id, bytes))) = whole.0.get(&path).cloned() else { panic!("no manifest") };
    let mut states = Vault::new(&vault(&temp));
    for length in 0..bytes.len() - 1 {
        let mut torn = whole.clone();
        torn.0.insert(path.clone(), Some((id, bytes[..length].to_vec())));
        let left = temp.path().join("left");
        states.build(&torn, &left);
        let before = read_tree(&left);
        let error = recover_commits(&left.join("out")).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{length}: {error}");
        assert_eq!(read_tree(&left), before, "{length}");
        std::fs::remove_dir_all(&left).unwrap();
    }
}

/// A run that writes to a bucket notes its uploads on this machine before it sends anything, so
/// that a later run can abort them. The notes survive any later power cut.
#[test]
fn the_notes_of_uploads_survive_a_power_cut() {
    let temp = prepare(&[("uploads/other", "")]);
    let mut disk = Disk::scan(&base(&temp), &vault(&temp), Rename::Atomic);
    let (begun, operations) = record_operations(&vault(&temp), || {
        let run = "20261120T212055-1a2b3c4d".parse().unwrap();
        let bucket = ("reports", None);
        let (folder, lock, uploads) =
            create_run_folder(&base(&temp).join("uploads"), "s3://reports/x.csv", &run, bucket)?;
        uploads.record_upload("x.csv", None).unwrap();
        uploads.record_upload("x.csv", Some("7")).unwrap();
        Ok::<_, Error>((folder, lock))
    });
    let (folder, _) = begun.unwrap();
    operations.iter().for_each(|operation| disk.apply(operation));
    let whole = disk.crash(&|_| true, Bytes::Written);
    assert_eq!(images(&disk), [whole]);
    assert_eq!(std::fs::read_to_string(folder.join("uploads.jsonl")).unwrap().lines().count(), 2);
}
