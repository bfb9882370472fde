//! Tests that a commit leaves all or nothing: after any fault at any moment, and after a kill.

use tidemill_base::cancellation::Interrupted;

use super::*;
use crate::commit::file_commit::StagingFolder;
use crate::commit::fs::fault::{self, InjectedFault};

/// Runs the output of these tests: five files in folders, two of them spooled.
fn work(
    root: &Path,
    pattern: &str,
    overwrite: bool,
    rows: &[RecordBatch],
) -> Result<OutputSummary> {
    let url = format!("{}/{pattern}", root.display());
    run(&SinkSpec { overwrite, ..SinkSpec::new(url) }, rows, 500)
}

pub(super) fn numbers(range: std::ops::Range<i64>, note: &str) -> RecordBatch {
    let notes = StringArray::from_iter_values(range.clone().map(|_| note));
    let folders = Int64Array::from_iter_values(range.clone().map(|i| i % 2));
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from_iter_values(range)) as ArrayRef),
        ("folder", Arc::new(folders)),
        ("note", Arc::new(notes)),
    ])
    .unwrap()
}

/// Creates a destination with one file, and returns it with its content.
fn destination(temp: &tempfile::TempDir) -> (PathBuf, BTreeMap<String, String>) {
    let root = temp.path().join("out");
    std::fs::create_dir_all(root.join("0")).unwrap();
    std::fs::write(root.join("0/other.txt"), "mine").unwrap();
    std::fs::write(root.join("0/0.csv"), "old").unwrap();
    let before = read_tree(temp.path());
    (root, before)
}

fn without_staging(tree: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let keep = |name: &&String| !name.contains("/.tidemill-");
    tree.iter().filter(|(name, _)| keep(name)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Fails each operation in turn, and checks the remaining files.
fn every_fault(pattern: &str, overwrite: bool, range: std::ops::Range<i64>, fault: InjectedFault) {
    let rows = [numbers(range.clone(), "first"), numbers(range, "second")];
    let whole = memory_tempdir();
    destination(&whole);
    work(&whole.path().join("out"), pattern, overwrite, &rows).unwrap();
    let after = read_tree(whole.path());
    let (mut unfinished, mut undone) = (0, 0);
    for n in 0.. {
        let temp = memory_tempdir();
        let (root, before) = destination(&temp);
        let (result, reached) =
            fault::run_with_fault(n, fault, || work(&root, pattern, overwrite, &rows));
        if !reached {
            assert!(n > 40, "only {n} operations");
            result.unwrap();
            assert_eq!(read_tree(temp.path()), after);
            break;
        }
        let left = read_tree(temp.path());
        let visible = without_staging(&left);
        if result.is_ok() {
            // Only the removal of unneeded files may fail unnoticed.
            assert_eq!(visible, after, "{fault:?} at {n}");
        } else if fault == InjectedFault::Once && visible != before && visible != after {
            // Files were replaced; the commit waits to be finished.
            assert!(overwrite, "{fault:?} at {n}: {visible:?}");
            assert!(matches!(result, Err(Error::UnfinishedCommit { .. })), "{result:?}");
        }
        // Faults hit recovery too, at any moment; it is repeated.
        for m in 0.. {
            let again = fault::run_with_fault(m, InjectedFault::Crash, || recover_commits(&root));
            if !again.1 || m > 200 {
                break;
            }
        }
        let recovered = recover_commits(&root).unwrap();
        assert_eq!(recovered, RecoveryReport::default(), "{fault:?} at {n}");
        let found = read_tree(temp.path());
        if found == before {
            undone += 1;
        } else {
            unfinished += usize::from(result.is_err());
            assert_eq!(found, after, "{fault:?} at {n}");
        }
    }
    assert!(undone > 10, "{undone}");
    assert!(fault != InjectedFault::Crash || unfinished > 3, "{unfinished}");
}

#[test]
fn a_failing_operation_leaves_all_or_nothing() {
    every_fault("{folder}/{n}.csv", false, 1..6, InjectedFault::Once);
    every_fault("{folder}/{n}.parquet", false, 1..4, InjectedFault::Once);
    every_fault("{folder}/{n}.csv", true, 0..5, InjectedFault::Once);
}

#[test]
fn a_crash_at_any_operation_leaves_all_or_nothing() {
    every_fault("{folder}/{n}.csv", false, 1..6, InjectedFault::Crash);
    every_fault("{folder}/{n}.parquet", false, 1..4, InjectedFault::Crash);
    every_fault("{folder}/{n}.csv", true, 0..5, InjectedFault::Crash);
    // Enough files for the one call that syncs them all.
    every_fault("{folder}/{n}.csv", false, 1..20, InjectedFault::Crash);
}

#[test]
fn a_crash_while_a_failed_commit_is_taken_back_leaves_all_or_nothing() {
    for later in 0..24 {
        every_fault("{folder}/{n}.csv", false, 1..6, InjectedFault::OnceThenCrash(later));
    }
}

#[test]
fn a_file_that_appears_during_a_crashed_commit_is_not_replaced() {
    let rows = [numbers(1..6, "x")];
    // A file of the same length as the run's own: its size does not give it away.
    let theirs = "!".repeat("n,folder,note\n5,1,x\n".len());
    let mut met = 0;
    for n in 0.. {
        let (mut committed, mut free, mut reached) = (false, false, false);
        // A crash of the run at its n-th operation and of the recovery at its m-th.
        for m in 0.. {
            let temp = memory_tempdir();
            let (root, mut before) = destination(&temp);
            reached = fault::run_with_fault(n, InjectedFault::Crash, || {
                work(&root, "{folder}/{n}.csv", false, &rows)
            })
            .1;
            committed = read_tree(temp.path()).keys().any(|name| name.ends_with("manifest.json"));
            free = !root.join("1/5.csv").exists();
            if !reached || !free {
                break;
            }
            std::fs::create_dir_all(root.join("1")).unwrap();
            std::fs::write(root.join("1/5.csv"), &theirs).unwrap();
            let crashed =
                fault::run_with_fault(m, InjectedFault::Crash, || recover_commits(&root)).1;
            recover_commits(&root).unwrap();
            before.insert("out/1/".into(), String::new());
            before.insert("out/1/5.csv".into(), theirs.clone());
            assert_eq!(read_tree(temp.path()), before, "{n}, {m}");
            if !crashed {
                break;
            }
        }
        met += usize::from(committed && free);
        if !reached {
            break;
        }
    }
    assert!(met > 3, "{met}");
}

#[test]
fn a_file_put_in_place_of_a_committed_one_is_not_taken_back() {
    let rows = [numbers(1..6, "x")];
    let theirs = |length: usize| "?".repeat(length);
    let mut met = 0;
    for n in 0.. {
        let temp = memory_tempdir();
        let (root, _) = destination(&temp);
        let reached = fault::run_with_fault(n, InjectedFault::Crash, || {
            work(&root, "{folder}/{n}.csv", false, &rows)
        })
        .1;
        let given: Vec<PathBuf> = (1..5)
            .map(|n| root.join(format!("{}/{n}.csv", n % 2)))
            .filter(|p| p.exists())
            .collect();
        // Another program takes the last name, so that the commit has to be undone, and puts a file of
        // the same length in place of one of the run's own: over it, or written into it.
        if reached && !given.is_empty() && !root.join("1/5.csv").exists() {
            met += 1;
            std::fs::create_dir_all(root.join("1")).unwrap();
            std::fs::write(root.join("1/5.csv"), "theirs").unwrap();
            let length = usize::try_from(given[0].metadata().unwrap().len()).unwrap();
            if met % 2 == 0 {
                std::fs::remove_file(&given[0]).unwrap();
            }
            std::fs::write(&given[0], theirs(length)).unwrap();
            // Clocks of file systems are coarse.
            let file = std::fs::File::options().write(true).open(&given[0]).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            let recovered = recover_commits(&root).unwrap();
            assert_eq!(recovered.undone_runs.len(), 1, "{n}");
            assert_eq!(std::fs::read_to_string(&given[0]).unwrap(), theirs(length), "{n}");
            assert!(given[1..].iter().all(|path| !path.exists()), "{n}");
            assert_eq!(recover_commits(&root).unwrap(), RecoveryReport::default());
        }
        if !reached {
            break;
        }
    }
    assert!(met > 1, "{met}");
}

#[test]
fn live_run_on_same_names_is_reported_by_its_identifier() {
    let temp = tempfile::tempdir().unwrap();
    let schema = flights().schema();
    let spec = template(&temp, "out/{day}.csv");
    let live = RunId::new();
    let mut first = Sink::create(&spec, schema.clone(), &live, 1 << 20).unwrap();
    let busy = Sink::create(&spec, schema.clone(), &RunId::new(), 1 << 20);
    match busy.map(|_| ()) {
        Err(Error::OutputBusy { path, run }) => {
            assert!(path.ends_with("out/{day}.csv"), "{path}");
            assert_eq!(run, live.to_string());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(recover_commits(&temp.path().join("out")).unwrap().live_runs, [live.to_string()]);
    // Other names do not conflict, and a run's end does not disturb the other.
    run(&template(&temp, "out/{state}.csv"), &[flights()], 1 << 20).unwrap();
    first.write(&flights()).unwrap();
    first.commit().unwrap();
    let files = read_tree(temp.path()).into_keys().filter(|name| !name.ends_with('/')).count();
    assert_eq!(files, 5);
}

#[test]
fn sink_reports_recovery_of_dead_runs() {
    let temp = memory_tempdir();
    let rows = [numbers(1..6, "x")];
    let mut met = RecoveryReport::default();
    for n in 0.. {
        let (root, _) = destination(&temp);
        if !fault::run_with_fault(n, InjectedFault::Crash, || {
            work(&root, "{folder}/{n}.csv", false, &rows)
        })
        .1
        {
            break;
        }
        let spec = template(&temp, "out/x.csv");
        let sink = Sink::create(&spec, rows[0].schema(), &RunId::new(), 0).unwrap();
        let recovered = sink.recovery_report().unwrap();
        met.finished_runs.extend_from_slice(&recovered.finished_runs);
        met.removed_runs.extend_from_slice(&recovered.removed_runs);
        drop(sink);
        std::fs::remove_dir_all(&root).unwrap();
    }
    assert!(met.finished_runs.len() > 3 && met.removed_runs.len() > 3, "{met:?}");
}

#[test]
fn one_of_two_concurrent_commits_wins_completely() {
    let temp = tempfile::tempdir().unwrap();
    let schema = flights().schema();
    // Different templates, the same name.
    let mut many = Sink::create(&template(&temp, "{state}.csv"), schema.clone(), &RunId::new(), 0);
    let mut one = Sink::create(&template(&temp, "TX.csv"), schema, &RunId::new(), 1 << 20);
    many.as_mut().unwrap().write(&flights()).unwrap();
    one.as_mut().unwrap().write(&flights().slice(0, 1)).unwrap();
    one.unwrap().commit().unwrap();
    let before = read_tree(temp.path());
    assert!(matches!(many.unwrap().commit(), Err(Error::OutputExists { .. })));
    let after = without_staging(&read_tree(temp.path()));
    assert_eq!(after.len(), 1);
    assert_eq!(after["TX.csv"], before["TX.csv"]);
}

#[test]
fn many_threads_committing_to_one_folder_leave_one_winner_each() {
    let temp = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let spec = template(&temp, &format!("{{state}}-{}.csv", thread / 2));
            scope.spawn(move || {
                // Busy, Exists or done; never a mixture.
                let _ = run(&spec, &[flights()], 1 << 20);
            });
        }
    });
    let found = read_tree(temp.path());
    assert!(found.len() == 3 || found.len() == 6, "{found:?}");
    assert!(!found.keys().any(|name| name.contains("tidemill")), "{found:?}");
}

#[test]
fn a_manifest_of_a_later_version_or_a_strange_one_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join(".tidemill-20261120T212055-1a2b3c4d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("0"), "x").unwrap();
    let entry = |staged: &str, target: &str| {
        format!(
            r#"{{"version":1,"run":"r","pattern":"p","overwrite":true,"folders":[],
                "files":[{{"staged":"{staged}","target":"{target}","bytes":1,"replaces":false}}]}}"#
        )
    };
    for (manifest, expected) in [
        (r#"{"version":2,"steps":[]}"#.to_owned(), "version 2"),
        ("{".to_owned(), "EOF"),
        (entry("0", "../x.csv"), "`../x.csv`"),
        (entry("0", "a//b"), "`a//b`"),
        (entry("../0", "x.csv"), "`../0`"),
        (entry("lock", "x.csv"), "`lock`"),
        (entry("0", ".tidemill-x/y"), "`.tidemill-x/y`"),
    ] {
        std::fs::write(dir.join("manifest.json"), &manifest).unwrap();
        let before = read_tree(temp.path());
        let error = recover_commits(temp.path()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        let error = user_message(error);
        assert!(error.contains(expected) && error.contains("manifest.json"), "{error}");
        assert!(run(&template(&temp, "y.csv"), &[flights()], 0).is_err());
        assert_eq!(read_tree(temp.path()), before);
    }
    std::fs::write(dir.join("manifest.json"), entry("0", "x.csv")).unwrap();
    assert_eq!(recover_commits(temp.path()).unwrap().finished_runs, ["20261120T212055-1a2b3c4d"]);
    assert_eq!(
        read_tree(temp.path()),
        [("x.csv".to_owned(), "x".to_owned())].into_iter().collect()
    );
}

#[test]
fn a_folder_of_the_users_own_with_such_a_name_is_not_touched() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join(".tidemill-notes")).unwrap();
    let strange = temp.path().join(".tidemill-20261120T212055-1a2b3c4d");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("letter.txt"), "dear").unwrap();
    let before = read_tree(temp.path());
    recover_commits(temp.path()).unwrap();
    assert_eq!(read_tree(temp.path()), before);
    assert_eq!(recover_commits(&temp.path().join("missing")).unwrap(), RecoveryReport::default());
}

#[test]
fn new_files_have_the_permissions_that_the_umask_leaves() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let plain = temp.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    run(&template(&temp, "x.csv"), &[flights()], 0).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&temp.path().join("x.csv")), mode(&plain));
}

/// The child process of the kill tests: replaces 200 files, over and over, until it is killed; if requested,
/// it kills itself at the n-th operation of its second round.
#[test]
fn child_that_is_killed() {
    let Some(root) = std::env::var_os("TIDEMILL_TEST_KILLED") else { return };
    let root = PathBuf::from(root);
    let at: Option<usize> =
        std::env::var("TIDEMILL_TEST_KILLED_AT").ok().map(|n| n.parse().unwrap());
    for round in 0.. {
        println!("round");
        let rows = [numbers(0..200, &format!("round {round}"))];
        let write = || work(&root, "{folder}/{n}.csv", true, &rows).unwrap();
        match at {
            Some(n) if round == 1 => drop(fault::run_with_fault(n, InjectedFault::Kill, write)),
            _ => drop(write()),
        }
        if at.is_some() && round == 1 {
            return;
        }
    }
}

fn child(root: &Path, at: Option<usize>) -> std::process::Command {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "tests::commit::child_that_is_killed", "--nocapture"])
        .args(["--test-threads", "1"])
        .env("TIDEMILL_TEST_KILLED", root)
        .stderr(std::process::Stdio::null());
    if let Some(at) = at {
        child.env("TIDEMILL_TEST_KILLED_AT", at.to_string());
    }
    child
}

/// Returns the round that wrote all 200 files below a folder; they must all exist and be of one round.
fn common_round(temp: &tempfile::TempDir) -> u64 {
    let found = read_tree(temp.path());
    assert_eq!(found.len(), 203, "{:?}", found.keys());
    let rounds: std::collections::HashSet<&str> = found
        .iter()
        .filter(|(name, _)| name.ends_with(".csv"))
        .map(|(_, text)| text.split_once("round ").unwrap().1.trim())
        .collect();
    assert_eq!(rounds.len(), 1, "{rounds:?}");
    rounds.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn a_run_killed_at_any_operation_leaves_all_or_nothing() {
    use std::os::unix::process::ExitStatusExt;
    let (mut finished, mut removed) = (0, 0);
    // Tests every operation at either end, and some of the 200 equal ones in each phase between.
    for at in (0..20).chain((20..1_400).step_by(37)) {
        let temp = memory_tempdir();
        let root = temp.path().join("out");
        let status = child(&root, Some(at)).stdout(std::process::Stdio::null()).status().unwrap();
        let killed = status.signal() == Some(9);
        assert!(killed || status.success(), "{status}");
        let recovered = recover_commits(&root).unwrap();
        let round = common_round(&temp);
        assert_eq!(round == 0, killed && recovered.finished_runs.is_empty() && round == 0, "{at}");
        finished += recovered.finished_runs.len();
        removed += recovered.removed_runs.len();
        if !killed {
            break;
        }
    }
    assert!(finished > 5 && removed > 10, "{finished} finished, {removed} removed");
}

/// Kills hit random operations: `make soak` repeats it for a given time.
#[test]
#[ignore = "kills from outside: make soak repeats it for a given time"]
fn soak_a_run_killed_from_outside() {
    use std::io::BufRead;
    let temp = memory_tempdir();
    let root = temp.path().join("out");
    let mut whole = false;
    let seconds = std::env::var("SOAK_SECONDS").map_or(0, |text| text.parse().unwrap());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    for kill in 0_u64.. {
        let mut child = child(&root, None).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let begun = lines.map_while(std::io::Result::ok).find(|line| line.contains("round"));
        assert!(begun.is_some());
        // Spreads the kills over a round; the invariants hold whenever a kill comes.
        std::thread::sleep(std::time::Duration::from_micros(kill * 997 % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();
        recover_commits(&root).unwrap();
        // Once there is output, there always is. Before that, an empty destination may remain:
        // its creation cannot be recorded before it exists.
        whole |= read_tree(temp.path()).keys().any(|name| name != "out/");
        if whole {
            common_round(&temp);
        }
        if kill >= 39 && std::time::Instant::now() >= end {
            println!("{} rounds", kill + 1);
            return;
        }
    }
}

#[test]
fn a_run_that_waits_for_anothers_commit_can_be_stopped() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("out");
    std::fs::create_dir(&root).unwrap();
    let held = std::fs::File::open(&root).unwrap();
    held.lock().unwrap();
    let (run, mut calls) = (RunId::new(), 0);
    let mut wait = || {
        calls += 1;
        if calls < 3 { Ok(()) } else { Err(Interrupted) }
    };
    let stopped = StagingFolder::create(&root, "{n}.csv", &run, &mut wait).err();
    assert!(matches!(stopped, Some(Error::Interrupted)), "{stopped:?}");
    assert_eq!(calls, 3);
    held.unlock().unwrap();

    let staging = StagingFolder::create(&root, "{n}.csv", &run, &mut || Ok(())).unwrap();
    held.lock().unwrap();
    let stopped = staging.commit(Vec::new(), false, &mut || Err(Interrupted)).err();
    assert!(matches!(stopped, Some(Error::Interrupted)), "{stopped:?}");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}
