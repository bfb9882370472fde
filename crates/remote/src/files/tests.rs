//! Tests of the file commands against a server with injected faults, and of processes that are killed at a
//! request.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use rustix::process::{Pid, Signal, kill_process};

use super::test_s3_server::{ServerFault, ServerRequest, TestS3Server};
use super::*;
use crate::error::{Error, Result};

const MIB: usize = 1 << 20;
/// Slightly more than three blocks or parts.
const LARGE: usize = 25 * MIB + 77;

fn bytes(count: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut all: Vec<u8> =
        std::iter::repeat_with(&mut word).take(count / 8 + 1).flatten().collect();
    all.truncate(count);
    all
}

fn settings(server: &TestS3Server) -> FileAccessSettings {
    FileAccessSettings {
        storage_options: server.storage_options(),
        ..FileAccessSettings::default()
    }
}

fn list_names(server: &TestS3Server, url: &str, recursive: bool) -> Result<Vec<String>> {
    let mut names = Vec::new();
    ls(url, recursive, &settings(server), &mut |entry| {
        names.push(entry.name);
        Ok(())
    })?;
    Ok(names)
}

/// Returns the files below a folder with their content.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn fill(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                fill(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    fill(folder, folder, &mut found);
    found
}

fn names(folder: &Path) -> Vec<String> {
    tree(folder).into_keys().collect()
}

fn fetch(
    server: &TestS3Server,
    url: &str,
    output: &Path,
    options: DownloadOptions,
) -> Result<CopySummary> {
    let output = Some(output.to_str().unwrap().to_owned());
    download_files(&[url.to_owned()], &DownloadOptions { output, ..options }, &settings(server))
}

/// Returns upload options with a long timeout: tests check results, not speed, and the machine may be slow.
fn patient_options() -> UploadOptions {
    UploadOptions {
        shutdown_timeout: std::time::Duration::from_secs(600),
        ..UploadOptions::default()
    }
}

fn send(
    server: &TestS3Server,
    path: &Path,
    url: &str,
    home: &Path,
    options: UploadOptions,
) -> Result<CopySummary> {
    let patience = patient_options().shutdown_timeout;
    let options =
        UploadOptions { home: Some(home.to_owned()), shutdown_timeout: patience, ..options };
    upload_files(&[path.to_str().unwrap().to_owned()], url, &options, &settings(server))
}

// Listings.

#[test]
fn du_counts_a_symlink_as_itself_and_a_hard_link_once() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir_all(root.join("a")).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(root.join("a/data"), bytes(1000)).unwrap();
    std::fs::write(elsewhere.join("large"), bytes(5000)).unwrap();
    std::fs::hard_link(root.join("a/data"), root.join("again")).unwrap();
    symlink("a/data", root.join("file")).unwrap();
    symlink(&elsewhere, root.join("folder")).unwrap();
    symlink("nowhere", root.join("gone")).unwrap();
    symlink("..", root.join("a/up")).unwrap();
    symlink(&root, folder.path().join("named")).unwrap();
    let sums = |url: &Path| {
        let mut sums = Vec::new();
        let options = FolderUsageOptions::default();
        du(url.to_str().unwrap(), options, &FileAccessSettings::default(), &mut |usage| {
            sums.push((usage.files, usage.bytes));
            Ok(())
        })
        .map(|()| sums)
    };
    // A link's bytes are those of its path.
    let in_a = 1000 + "..".len() as u64;
    let links = ["a/data", elsewhere.to_str().unwrap(), "nowhere"];
    let all = in_a + links.iter().map(|path| path.len() as u64).sum::<u64>();
    let expected = vec![(2, in_a), (5, all)];
    assert_eq!(sums(&root).unwrap(), expected);
    // A link in the URL itself is followed.
    assert_eq!(sums(&folder.path().join("named")).unwrap(), expected);
    assert_eq!(sums(&root.join("file")).unwrap(), [(1, 1000)]);
    // A pattern matches the links themselves.
    assert_eq!(sums(&root.join("f*e")).unwrap(), [(1, "a/data".len() as u64)]);
}

#[test]
fn ls_lists_folder_contents_and_pattern_matches() {
    let empty: &[u8] = b"";
    let keys = [
        "a.csv",
        "logs",
        "logs-old/x",
        "logs/",
        "logs/.hid",
        "logs/1/a.csv",
        "logs/1/b.json",
        "logs/2/a.csv",
        "logs/z.csv",
        "new\nline",
        "odd//x",
        "esc\x1b[31m",
    ];
    let keys: Vec<(&str, &[u8])> = keys.iter().map(|key| (*key, empty)).collect();
    let server = TestS3Server::with_objects(&keys);
    for (url, recursive, expected) in [
        (
            "s3://b",
            false,
            &["a.csv", "esc\x1b[31m", "logs", "logs-old/", "logs/", "new\nline", "odd/"][..],
        ),
        ("s3://b/logs/", false, &[".hid", "1/", "2/", "z.csv"]),
        // The name is both an object and a folder.
        ("s3://b/logs", false, &["logs", ".hid", "1/", "2/", "z.csv"]),
        ("s3://b/logs/", true, &[".hid", "1/a.csv", "1/b.json", "2/a.csv", "z.csv"]),
        ("s3://b/logs/*", false, &["1/", "2/", "z.csv"]),
        ("s3://b/l*", false, &["logs", "logs-old/", "logs/"]),
        ("s3://b/logs/*/a.csv", false, &["1/a.csv", "2/a.csv"]),
        ("s3://b/logs/[12]", true, &["1/a.csv", "1/b.json", "2/a.csv"]),
        ("s3://b/{logs/2,a*}", false, &["a.csv", "logs/2/a.csv"]),
        ("s3://b/odd/", false, &["/"]),
        ("s3://b/odd/", true, &["/x"]),
        ("s3://b/odd//", false, &["x"]),
        ("s3://b/a.csv", false, &["a.csv"]),
    ] {
        let mut found = list_names(&server, url, recursive).unwrap();
        if url.contains('{') {
            found.sort();
        }
        assert_eq!(found, expected, "{url} {recursive}");
    }
    let missing = list_names(&server, "s3://b/lags/", false).unwrap_err();
    let message = tidemill_base::Error::from(missing).to_string();
    assert!(message.contains("did you mean `s3://b/logs`?"), "{message}");
    assert!(list_names(&server, "s3://b/x*", false).is_err());
    assert!(matches!(list_names(&server, "s3://b/odd/../x", false), Err(Error::Usage { .. })));
}

#[test]
fn local_and_remote_listings_agree() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestS3Server::start(2);
    for key in ["a-b/1", "a/1", "a/2/3", "a.csv", "z"] {
        let path = folder.path().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, key).unwrap();
        server.store(key, key.into());
    }
    std::os::unix::fs::symlink(folder.path(), folder.path().join("a/up")).unwrap();
    server.store("a/up", Vec::new());
    std::fs::remove_file(folder.path().join("a/up")).unwrap();
    server.with_state(|state| state.objects.remove("a/up"));
    let root = folder.path().to_str().unwrap();
    for (below, recursive) in
        [("", false), ("", true), ("/a", false), ("/a*", false), ("/*/1", false)]
    {
        let here = list_names(&server, &format!("{root}{below}"), recursive).unwrap();
        let there = list_names(&server, &format!("s3://b{below}"), recursive).unwrap();
        assert_eq!(here, there, "{below} {recursive}");
    }
    assert!(matches!(
        list_names(&server, &format!("{root}/none"), false),
        Err(Error::NotFound { .. })
    ));
}

fn key() -> impl Strategy<Value = String> {
    proptest::collection::vec("[ab+ %é\n]{0,2}", 1..4)
        .prop_map(|parts| parts.join("/"))
        .prop_filter("a key is something", |key| !key.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn listings_and_sums_match_a_naive_count(
        keys in proptest::collection::btree_set(key(), 1..12),
        folder in key(),
        page in 1_usize..5,
    ) {
        let server = TestS3Server::start(page);
        for (size, key) in keys.iter().enumerate() {
            server.store(key, vec![0; size + 1]);
        }
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let prefix = if prefix == "/" { String::new() } else { prefix };
        let below: BTreeSet<&str> =
            keys.iter().filter_map(|key| key.strip_prefix(&prefix)).collect();
        let url = format!("s3://b/{prefix}");
        if below.is_empty() {
            prop_assert!(list_names(&server, &url, true).is_err());
            return Ok(());
        }
        let all: Vec<&str> = below.iter().copied().collect();
        prop_assert_eq!(list_names(&server, &url, true).unwrap(), all.clone());
        let level: BTreeSet<&str> =
            below.iter().map(|key| key.find('/').map_or(*key, |at| &key[..=at])).collect();
        let level: Vec<&str> = level.into_iter().collect();
        prop_assert_eq!(list_names(&server, &url, false).unwrap(), level);

        let mut sums = BTreeMap::new();
        let options = FolderUsageOptions { depth: 9 };
        du(&url, options, &settings(&server), &mut |usage| {
            assert!(sums.insert(usage.url, (usage.files, usage.bytes)).is_none());
            Ok(())
        }).unwrap();
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (size, key) in keys.iter().enumerate() {
            let Some(below) = key.strip_prefix(&prefix) else { continue };
            let folders = below.match_indices('/').map(|(at, _)| &below[..=at]);
            for folder in std::iter::once("").chain(folders) {
                let sum = expected.entry(format!("{url}{folder}")).or_default();
                sum.0 += 1;
                sum.1 += size as u64 + 1;
            }
        }
        prop_assert_eq!(sums, expected);
    }
}

#[test]
fn stat_reports_all_object_metadata() {
    let server = TestS3Server::with_objects(&[("logs/a//b.csv", b"1234")]);
    let told = |url: &str| {
        let mut all = Vec::new();
        stat(url, &settings(&server), &mut |stat| {
            all.push(stat);
            Ok(())
        })
        .map(|()| all)
    };
    let found = told("s3://b/logs/a//b.csv").unwrap();
    assert_eq!((found[0].size, found[0].kind), (Some(4), EntryKind::File));
    assert_eq!(found[0].content_type.as_deref(), Some("text/csv"));
    assert_eq!(found[0].modified.as_deref(), Some("2026-11-20T10:00:00Z"));
    assert_eq!(found[0].e_tag.as_deref(), Some("\"81dc9bdb52d04dc20036dbd8313ed055\""));
    assert_eq!(found[0].more, BTreeMap::from([("version-id".to_owned(), "v7".to_owned())]));
    assert_eq!(told("s3://b/logs").unwrap()[0].kind, EntryKind::Folder);
    assert_eq!(told("s3://b/logs/**/*.csv").unwrap().len(), 1);
    assert!(matches!(told("s3://b/none"), Err(Error::NotFound { .. })));
}

#[test]
fn overloaded_server_is_retried_and_then_reported() {
    let server = TestS3Server::with_objects(&[("a", b"1")]);
    let count = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&count);
    server.set_fault_rule(move |_| match own.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => ServerFault::Status(503),
        _ => ServerFault::None,
    });
    assert_eq!(list_names(&server, "s3://b/", false).unwrap(), ["a"]);
    server.set_fault_rule(|_| ServerFault::Status(503));
    let message = tidemill_base::Error::from(list_names(&server, "s3://b/", false).unwrap_err());
    let message = message.to_string();
    assert!(
        message.contains("cannot list `s3://b/`: the server answered 503 SlowDown"),
        "{message}"
    );
    assert!(message.contains("after 2 retries"), "{message}");
    server.set_fault_rule(|_| ServerFault::Status(403));
    let message = tidemill_base::Error::from(list_names(&server, "s3://b/", false).unwrap_err());
    assert!(message.to_string().contains("s3:ListBucket"), "{message}");
}

#[test]
fn archived_object_error_names_the_restore_command() {
    let server = TestS3Server::with_objects(&[("x/a.csv", b"1"), ("x/b.csv", b"2")]);
    server.set_fault_rule(|request| match request.method.as_str() {
        "GET" if request.key == "x/b.csv" => ServerFault::Archived,
        _ => ServerFault::None,
    });
    let mut out = Vec::new();
    let urls = ["s3://b/x/*".to_owned()];
    let read = cat(&urls, 0..u64::MAX, &settings(&server), &mut |bytes| out.write_all(bytes));
    let message = tidemill_base::Error::from(read.unwrap_err()).to_string();
    for part in [
        "cannot read `s3://b/x/b.csv`",
        "it is archived (storage class DEEP_ARCHIVE) and has to be restored before it is read",
        "hint: aws s3api restore-object --bucket b --key 'x/b.csv' --restore-request Days=7",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

// Output of `cat`.

#[test]
fn cat_concatenates_the_range_of_each_file() {
    let large = bytes(LARGE);
    let server = TestS3Server::with_objects(&[
        ("a", b"hello"),
        ("b/1", b"12345"),
        ("b/2", b"67890"),
        ("l", &large),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("here");
    std::fs::write(&here, "local").unwrap();
    let read = |urls: &[&str], range: std::ops::Range<u64>| {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let mut out = Vec::new();
        let count = cat(&urls, range, &settings(&server), &mut |bytes| out.write_all(bytes))?;
        assert_eq!(count, out.len() as u64);
        Result::Ok(out)
    };
    let all = 0..u64::MAX;
    let here = here.to_str().unwrap();
    assert_eq!(
        read(&["s3://b/a", here, "s3://b/b/*"], all.clone()).unwrap(),
        b"hellolocal1234567890"
    );
    assert_eq!(read(&["s3://b/b", here, "s3://b/a"], 1..3).unwrap(), b"2378ocel");
    assert_eq!(read(&["s3://b/a"], 7..9).unwrap(), b"");
    assert!(
        read(&["s3://b/l", "s3://b/a", "s3://b/l"], all).unwrap()
            == [&large[..], b"hello", &large[..]].concat()
    );
    for range in [0..5, 100..9 * MIB, 7..LARGE - 1, 9 * MIB..LARGE] {
        let asked = range.start as u64..range.end as u64;
        assert!(read(&["s3://b/l"], asked).unwrap() == large[range.clone()], "{range:?}");
    }
    assert!(matches!(read(&["s3://b/none"], 0..9), Err(Error::NotFound { .. })));
}

#[test]
fn cat_reports_a_closed_pipe() {
    let server = TestS3Server::with_objects(&[("a", b"hello")]);
    let gone = cat(&["s3://b/a".into()], 0..9, &settings(&server), &mut |_| {
        Err(std::io::ErrorKind::BrokenPipe.into())
    });
    let told = tidemill_base::Error::from(gone.unwrap_err());
    assert!(matches!(told, tidemill_base::Error::ClosedPipe), "{told}");
}

// Downloads.

#[test]
fn downloads_are_written_to_the_expected_paths() {
    let server = TestS3Server::with_objects(&[
        ("x/a.csv", b"1"),
        ("x/y/b.csv", b"22"),
        ("x/y/", b""),
        ("c", b""),
    ]);
    for (url, output, expected) in [
        ("s3://b/x/a.csv", "out.csv", &["out.csv"][..]),
        ("s3://b/x/a.csv", "new/", &["new/a.csv"]),
        ("s3://b/x/a.csv", "here", &["here/a.csv", "here/old"]),
        ("s3://b/x", "here", &["here/a.csv", "here/old", "here/y/b.csv"]),
        ("s3://b/x/*/*.csv", "all", &["all/y/b.csv"]),
        ("s3://b/", "b", &["b/c", "b/x/a.csv", "b/x/y/b.csv"]),
        ("s3://b/{c,x/a.csv}", "d", &["d/c", "d/x/a.csv"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        if output == "here" {
            std::fs::create_dir(folder.path().join("here")).unwrap();
            std::fs::write(folder.path().join("here/old"), "old").unwrap();
        }
        let output = format!("{}/{output}", folder.path().to_str().unwrap());
        let copied = fetch(&server, url, Path::new(&output), DownloadOptions::default()).unwrap();
        assert_eq!(names(folder.path()), expected, "{url}");
        assert!(copied.failures.is_empty(), "{url}");
    }
    let modified = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fetch(&server, "s3://b/x/a.csv", &path, DownloadOptions::default()).unwrap();
    let since = modified(&path).duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_795_168_800, "2026-11-20T10:00:00Z");
}

#[test]
fn unsafe_keys_are_refused_and_other_keys_are_downloaded() {
    let long = "x".repeat(300);
    let keys: Vec<(&str, &[u8])> = [
        "ok.csv",
        "../up",
        "../../etc/passwd",
        "a//b",
        "a/./c",
        "a/../../d",
        "/abs",
        "new\nline",
        "both",
        "both/x",
        long.as_str(),
        ".tidemill-get-0123456789abcdef",
        "esc\x1b[31m",
        "dots...",
    ]
    .iter()
    .map(|key| (*key, b"evil".as_slice()))
    .collect();
    let server = TestS3Server::with_objects(&keys);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a/b/c");
    let copied = fetch(
        &server,
        "s3://b/",
        &output,
        DownloadOptions { concurrent_files: 1, ..DownloadOptions::default() },
    );
    let copied = copied.unwrap();
    let found = names(folder.path());
    assert_eq!(found, ["a/b/c/both", "a/b/c/dots...", "a/b/c/ok.csv"]);
    assert_eq!((copied.files, copied.failures.len()), (3, keys.len() - 3));
    for failure in &copied.failures {
        let message = tidemill_base::Error::from(failure.error.duplicate()).to_string();
        let shown = tidemill_base::redaction::escape_control_chars(&failure.url, &[]);
        let is_named = message.contains(&shown) || failure.url.contains("both");
        assert!(is_named, "{}: {message}", failure.url);
    }
}

#[test]
fn existing_files_stay_unless_overwrite_is_set() {
    let server = TestS3Server::with_objects(&[("x/a", b"new"), ("x/b", b"bbb"), ("x/c", b"ccc")]);
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    std::fs::write(&a, "mine").unwrap();
    let copied = fetch(&server, "s3://b/x", folder.path(), DownloadOptions::default()).unwrap();
    assert_eq!((copied.files, copied.failures.len()), (2, 1));
    assert!(matches!(copied.failures[0].error, Error::Exists { .. }));
    assert_eq!(std::fs::read(&a).unwrap(), b"mine");
    let skip = DownloadOptions { skip_existing: true, ..DownloadOptions::default() };
    let copied = fetch(&server, "s3://b/x", folder.path(), skip.clone()).unwrap();
    assert_eq!((copied.skipped, copied.failures.len()), (2, 1), "another size");
    // A file with the object's size that is older than the object.
    std::fs::write(&b, "old").unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    std::fs::File::options().write(true).open(&b).unwrap().set_modified(old).unwrap();
    let sync = DownloadOptions { overwrite: true, ..skip };
    let copied = fetch(&server, "s3://b/x", folder.path(), sync).unwrap();
    assert_eq!((copied.files, copied.skipped), (2, 1));
    let all: Vec<_> = tree(folder.path()).into_values().collect();
    assert_eq!(all, [b"new", b"bbb", b"ccc"]);
}

#[test]
fn download_survives_or_reports_a_fault_at_any_request() {
    let all = bytes(LARGE);
    let server = TestS3Server::with_objects(&[("l", &all)]);
    let faults = [
        ServerFault::Status(503),
        ServerFault::CutBody(1000),
        ServerFault::LoseResponse,
        ServerFault::Status(403),
    ];
    for fault in faults {
        for at in [0, 1, 2, 3] {
            let count = AtomicU64::new(0);
            server.set_fault_rule(move |_| match count.fetch_add(1, Ordering::Relaxed) == at {
                true => fault,
                false => ServerFault::None,
            });
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("l");
            let copied = fetch(&server, "s3://b/l", &target, DownloadOptions::default());
            match &copied {
                Ok(_) => {
                    assert!(tree(folder.path()) == BTreeMap::from([("l".into(), all.clone())]))
                }
                Err(Error::Remote { status: Some(403), .. })
                    if fault == ServerFault::Status(403) =>
                {
                    assert_eq!(names(folder.path()), [""; 0], "{at}");
                }
                Err(error) => panic!("{fault:?} at {at}: {error}"),
            }
        }
    }
}

#[test]
fn download_with_a_wrong_md5_is_refused() {
    let server = TestS3Server::with_objects(&[("a", b"hello")]);
    server.set_fault_rule(|request| {
        if request.method == "GET" { ServerFault::FlipBit } else { ServerFault::None }
    });
    let folder = tempfile::tempdir().unwrap();
    let always = DownloadOptions { verify: EtagVerification::Always, ..DownloadOptions::default() };
    let damaged = fetch(&server, "s3://b/a", &folder.path().join("a"), always);
    let message = tidemill_base::Error::from(damaged.unwrap_err()).to_string();
    assert!(message.contains("`s3://b/a` is damaged: the MD5 sum of what arrived"), "{message}");
    assert!(message.contains("--no-verify"), "{message}");
    assert_eq!(names(folder.path()), [""; 0]);
    // The server is not AWS, so its ETag need not be an MD5 sum.
    for (name, verify) in [("b", EtagVerification::Documented), ("c", EtagVerification::Never)] {
        let options = DownloadOptions { verify, ..DownloadOptions::default() };
        fetch(&server, "s3://b/a", &folder.path().join(name), options).unwrap();
    }
    assert_eq!(names(folder.path()), ["b", "c"]);
}

#[test]
fn different_etag_prevents_a_skip_unless_verification_is_off() {
    let server = TestS3Server::with_objects(&[("a", b"hello")]);
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("a");
    // Other bytes of the same size.
    std::fs::write(&path, "hallo").unwrap();
    let written_at = |seconds| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    let get = |verify| {
        let options = DownloadOptions { verify, skip_existing: true, ..DownloadOptions::default() };
        fetch(&server, "s3://b/a", &path, options).map(|copied| copied.skipped)
    };
    // Skipped by its time, which is later than the object's.
    written_at(4_000_000_000);
    assert_eq!(get(EtagVerification::Never).unwrap(), 1);
    for verify in [EtagVerification::Documented, EtagVerification::Always] {
        assert!(matches!(get(verify), Err(Error::Exists { .. })));
    }
    written_at(60);
    let put = |verify| {
        let options = UploadOptions { verify, skip_existing: true, ..UploadOptions::default() };
        send(&server, &path, "s3://b/a", home.path(), options).map(|copied| copied.skipped)
    };
    assert_eq!(put(EtagVerification::Never).unwrap(), 1);
    for verify in [EtagVerification::Documented, EtagVerification::Always] {
        assert!(matches!(put(verify), Err(Error::Exists { .. })));
    }
}

/// Returns a rule that cancels the run at the request for offset `from`, once all bytes before it are
/// written.
fn cancel_at_offset(
    settings: &FileAccessSettings,
    from: usize,
) -> impl Fn(&ServerRequest) -> ServerFault + Send + Sync + 'static {
    let settings = settings.clone();
    move |request| match request.range_start() {
        Some(at) if at >= from as u64 => {
            while settings.progress.bytes_done() < from as u64 {
                std::thread::yield_now();
            }
            settings.cancel.cancel();
            ServerFault::Stall
        }
        _ => ServerFault::None,
    }
}

#[test]
fn interrupted_download_resumes_where_it_stopped() {
    let mut all = bytes(LARGE);
    let server = TestS3Server::with_objects(&[("l", &all)]);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("l");
    let get = |settings: &FileAccessSettings| {
        let output = Some(target.to_str().unwrap().to_owned());
        download_files(
            &["s3://b/l".into()],
            &DownloadOptions { output, ..DownloadOptions::default() },
            settings,
        )
    };
    let stopped = |server: &TestS3Server| {
        let settings = settings(server);
        server.set_fault_rule(cancel_at_offset(&settings, 24 * MIB));
        let ended = get(&settings);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        let kept = names(folder.path());
        assert!(kept.len() == 2 && kept.iter().all(|name| name.starts_with(".tidemill-get-")));
        server.clear_faults();
    };
    stopped(&server);
    assert_eq!(get(&settings(&server)).unwrap().resumed_bytes, 24 * MIB as u64);
    assert!(tree(folder.path()) == BTreeMap::from([("l".into(), all.clone())]));
    let asked: Vec<u64> = server
        .with_state(|state| state.requests.iter().filter_map(ServerRequest::range_start).collect());
    assert_eq!(asked, [24 * MIB as u64]);

    // A download of another version starts from the beginning.
    std::fs::remove_file(&target).unwrap();
    stopped(&server);
    all[0] ^= 1;
    server.store("l", all.clone());
    assert_eq!(get(&settings(&server)).unwrap().resumed_bytes, 0);
    assert!(tree(folder.path()) == BTreeMap::from([("l".into(), all)]));
}

fn error_message(error: &Error) -> String {
    tidemill_base::Error::from(error.duplicate()).to_string()
}

/// Creates a special file: a pipe or a socket.
fn make_special_file(path: &Path, kind: rustix::fs::FileType) {
    use rustix::fs::{CWD, Mode, mknodat};
    mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

const SPECIAL: [rustix::fs::FileType; 2] =
    [rustix::fs::FileType::Fifo, rustix::fs::FileType::Socket];

#[test]
fn no_file_takes_the_place_of_a_pipe_or_a_socket() {
    use std::os::unix::fs::FileTypeExt;
    let server = TestS3Server::with_objects(&[("a", b"hello")]);
    for kind in SPECIAL {
        let folder = tempfile::tempdir().unwrap();
        let (place, link) = (folder.path().join("place"), folder.path().join("link"));
        make_special_file(&place, kind);
        std::os::unix::fs::symlink(&place, &link).unwrap();
        for target in [&place, &link] {
            for (overwrite, skip_existing) in [(false, false), (true, false), (true, true)] {
                let options =
                    DownloadOptions { overwrite, skip_existing, ..DownloadOptions::default() };
                let message =
                    error_message(&fetch(&server, "s3://b/a", target, options).unwrap_err());
                let expected = format!("`{}` is not a regular file", target.display());
                assert!(message.contains(&expected), "{message}");
                assert!(message.contains("tidemill cat"), "{message}");
                assert!(!message.contains("--overwrite"), "{message}");
            }
        }
        let is = place.symlink_metadata().unwrap().file_type();
        assert!(is.is_fifo() || is.is_socket(), "{is:?}");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

#[test]
fn colliding_targets_are_refused_with_both_sources_named() {
    let keys: [(&str, &[u8]); 4] =
        [("e1/n", b"first"), ("e2/n", b"other"), ("e1/own", b"1"), ("e2/own2", b"2")];
    let server = TestS3Server::with_objects(&keys);
    for (overwrite, skip_existing) in [(false, false), (true, false), (false, true), (true, true)] {
        for (urls, files) in [
            (["s3://b/e1/n", "s3://b/e2/n"], &["n"][..]),
            (["s3://b/e1", "s3://b/e2/"], &["n", "own", "own2"]),
            (["s3://b/e1/n", "s3://b/e1/n"], &["n"]),
            (["s3://b/e1/*", "s3://b/e2/?"], &["n", "own"]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let output = Some(folder.path().to_str().unwrap().to_owned());
            let options =
                DownloadOptions { output, overwrite, skip_existing, ..DownloadOptions::default() };
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let copied = download_files(&urls, &options, &settings(&server)).unwrap();
            assert_eq!((copied.files as usize, copied.skipped), (files.len(), 0), "{urls:?}");
            assert_eq!(copied.failures.len(), 1, "{urls:?}");
            let message = error_message(&copied.failures[0].error);
            for part in
                [&copied.failures[0].url, &urls[0], &format!("{}/n", folder.path().display())]
            {
                assert!(message.contains(part.as_str()), "{message}");
            }
            assert_eq!(names(folder.path()), files, "{urls:?}");
            assert_eq!(std::fs::read(folder.path().join("n")).unwrap(), b"first");
        }
        let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (key, bytes) in keys {
            let path = folder.path().join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for (paths, keys) in [
            (["e1/n", "e2/n"], &["to/n"][..]),
            (["e1", "e2"], &["to/n", "to/own", "to/own2"]),
            (["e1/n", "e1/n"], &["to/n"]),
        ] {
            let server = TestS3Server::start(1000);
            let paths = paths.map(path);
            let home = Some(home.path().to_owned());
            let options = UploadOptions { home, overwrite, skip_existing, ..patient_options() };
            let copied = upload_files(&paths, "s3://b/to/", &options, &settings(&server)).unwrap();
            assert_eq!((copied.files as usize, copied.skipped), (keys.len(), 0), "{paths:?}");
            assert_eq!(copied.failures.len(), 1, "{paths:?}");
            let message = error_message(&copied.failures[0].error);
            for part in [&copied.failures[0].url, &paths[0], "s3://b/to/n"] {
                assert!(message.contains(part), "{message}");
            }
            let there = objects(&server);
            assert_eq!(there.keys().collect::<Vec<_>>(), keys);
            assert_eq!(there["to/n"].as_slice(), b"first");
        }
    }
}

#[test]
fn small_file_with_equal_size_and_different_md5_is_not_skipped() {
    let server = TestS3Server::with_objects(&[("a", b"hello")]);
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("a");
    let set = |text: &str, seconds: u64| {
        std::fs::write(&path, text).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    let (older, newer) = (1, 4_000_000_000);
    let skip = DownloadOptions { skip_existing: true, ..DownloadOptions::default() };
    let sync = DownloadOptions { overwrite: true, ..skip.clone() };
    for time in [older, newer] {
        set("hello", time);
        assert_eq!(fetch(&server, "s3://b/a", &path, skip.clone()).unwrap().skipped, 1);
        set("hallo", time);
        let refused = fetch(&server, "s3://b/a", &path, skip.clone());
        assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
        assert_eq!(fetch(&server, "s3://b/a", &path, sync.clone()).unwrap().files, 1);
        assert_eq!(std::fs::read(&path).unwrap(), b"hello");

        let skip = UploadOptions { skip_existing: true, ..UploadOptions::default() };
        set("hallo", time);
        let refused = send(&server, &path, "s3://b/a", home.path(), skip.clone());
        assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
        let sync = UploadOptions { overwrite: true, ..skip.clone() };
        assert_eq!(send(&server, &path, "s3://b/a", home.path(), sync).unwrap().files, 1);
        assert_eq!(objects(&server)["a"].as_slice(), b"hallo");
        assert_eq!(send(&server, &path, "s3://b/a", home.path(), skip).unwrap().skipped, 1);
        server.store("a", b"hello".to_vec());
    }
}

#[test]
fn pipes_and_sockets_are_refused_and_other_files_are_uploaded() {
    for kind in SPECIAL {
        let server = TestS3Server::start(1000);
        let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("b");
        make_special_file(&path, kind);
        for name in ["a", "c"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let is_named = |error: &Error| {
            let message = error_message(error);
            let expected = format!("`{}` is not a regular file", path.display());
            assert!(message.contains(&expected), "{message}");
        };
        let all = send(&server, folder.path(), "s3://b", home.path(), UploadOptions::default());
        let all = all.unwrap();
        assert_eq!((all.files, all.failures.len()), (2, 1));
        is_named(&all.failures[0].error);
        assert_eq!(objects(&server).into_keys().collect::<Vec<_>>(), ["a", "c"]);
        let one = send(&server, &path, "s3://b/x", home.path(), UploadOptions::default());
        is_named(&one.unwrap_err());
        let url = path.to_str().unwrap().to_owned();
        is_named(&open_file(&url, &settings(&server)).unwrap_err());
        let read = cat(&[url], 0..u64::MAX, &settings(&server), &mut |_| Ok(()));
        is_named(&read.unwrap_err());
    }
}

#[test]
fn a_key_that_is_a_file_and_a_folder_leaves_nothing_half_done() {
    for (keys, at_once, overwrite) in [1, 4]
        .into_iter()
        .flat_map(|n| [(n, false), (n, true)])
        .flat_map(|(n, overwrite)| [(["f", "f/g"], n, overwrite), (["f", "f/g/h"], n, overwrite)])
    {
        let server =
            TestS3Server::with_objects(&[(keys[0], b"file"), (keys[1], b"below"), ("z", b"z")]);
        let folder = tempfile::tempdir().unwrap();
        let options =
            DownloadOptions { concurrent_files: at_once, overwrite, ..DownloadOptions::default() };
        let copied = fetch(&server, "s3://b/", folder.path(), options.clone()).unwrap();
        assert_eq!((copied.files, copied.failures.len()), (2, 1));
        let message = error_message(&copied.failures[0].error);
        assert!(message.contains("s3://b/f"), "{message}");
        assert!(message.contains(&format!("{}/f", folder.path().display())), "{message}");
        assert!(!message.contains("--overwrite"), "{message}");
        let found = names(folder.path());
        assert!(found == ["f", "z"] || found == [keys[1], "z"], "{found:?}");

        // The folder exists first.
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("f")).unwrap();
        let copied = fetch(&server, "s3://b/", folder.path(), options).unwrap();
        let message = error_message(&copied.failures[0].error);
        let expected = format!("which is a folder, because of the key `{}`", keys[1]);
        assert!(message.contains(&expected), "{message}");
        assert!(!message.contains("--overwrite"), "{message}");
        assert_eq!(names(folder.path()), [keys[1], "z"]);
    }
}

#[test]
fn a_folder_that_is_made_while_its_file_is_fetched_leaves_nothing_half_done() {
    for overwrite in [false, true] {
        let server = TestS3Server::with_objects(&[("f", b"file"), ("f/g", b"below")]);
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("f");
        server.set_fault_rule(move |request| {
            if request.method == "GET" && request.headers.contains_key("if-match") {
                let _ = std::fs::create_dir(&own);
            }
            ServerFault::None
        });
        let options = DownloadOptions { overwrite, ..DownloadOptions::default() };
        let message = error_message(
            &fetch(&server, "s3://b/f", &folder.path().join("f"), options).unwrap_err(),
        );
        assert!(message.contains("because of the key `f/g`"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn errors_show_control_characters_and_fitting_hints() {
    let server =
        TestS3Server::with_objects(&[("a\nb\t", b"1"), ("..", b"2"), ("x//y", b"3"), ("ok", b"4")]);
    let folder = tempfile::tempdir().unwrap();
    let copied = fetch(&server, "s3://b/", folder.path(), DownloadOptions::default()).unwrap();
    assert_eq!((copied.files, copied.failures.len()), (1, 3));
    for failure in &copied.failures {
        let message = error_message(&failure.error);
        assert!(!message.contains("by itself"), "{message}");
        if failure.url.contains('a') {
            assert!(message.contains("`s3://b/a\\nb\\t`"), "{message}");
        }
    }
    let output = |output: &str| {
        let options = DownloadOptions { output: Some(output.into()), ..DownloadOptions::default() };
        error_message(
            &download_files(&["s3://b/ok".into()], &options, &settings(&server)).unwrap_err(),
        )
    };
    assert!(output("s3://c/d").contains("copying between buckets"));
    assert!(output("").contains("--output is empty"));
    let broken = folder.path().join("broken\n");
    std::os::unix::fs::symlink("gone", &broken).unwrap();
    let url = broken.to_str().unwrap();
    let home = tempfile::tempdir().unwrap();
    for error in [
        send(&server, &broken, "s3://b/", home.path(), UploadOptions::default()).unwrap_err(),
        cat(&[url.into()], 0..9, &settings(&server), &mut |_| Ok(())).map(drop).unwrap_err(),
    ] {
        let message = error_message(&error);
        assert!(message.contains("link to `gone`, which is not there"), "{message}");
        assert!(message.contains("broken\\n`") && !message.contains("did you mean"), "{message}");
    }
}

// Uploads.

fn objects(server: &TestS3Server) -> BTreeMap<String, Arc<Vec<u8>>> {
    server.with_state(|state| {
        state.objects.iter().map(|(key, stored)| (key.clone(), Arc::clone(&stored.bytes))).collect()
    })
}

fn uploads(server: &TestS3Server) -> usize {
    server.with_state(|state| state.uploads.len())
}

#[test]
fn uploads_are_written_to_the_expected_keys() {
    let folder = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [("x/a", "1"), ("x/y/b", "22"), ("x/.hid", "")] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for (path, url, expected) in [
        ("x/a", "s3://b/k.csv", &["k.csv"][..]),
        ("x/a", "s3://b/logs/", &["logs/a"]),
        ("x/a", "s3://b", &["a"]),
        ("x", "s3://b/logs", &["logs/.hid", "logs/a", "logs/y/b"]),
        ("x/*", "s3://b/logs", &["logs/a"]),
        ("x/**/*", "s3://b/", &["a", "y/b"]),
    ] {
        let server = TestS3Server::start(1000);
        let copied =
            send(&server, &folder.path().join(path), url, home.path(), UploadOptions::default());
        assert_eq!(copied.unwrap().files as usize, expected.len(), "{path} {url}");
        let keys: Vec<String> = objects(&server).into_keys().collect();
        assert_eq!(keys, expected, "{path} {url}");
    }
}

#[test]
fn large_files_are_sent_in_parts_and_replace_no_object() {
    let server = TestS3Server::start(1000);
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = bytes(LARGE);
    let path = folder.path().join("l");
    std::fs::write(&path, &all).unwrap();
    let send = |options| send(&server, &path, "s3://b/l", home.path(), options);
    assert_eq!(send(UploadOptions::default()).unwrap().bytes, LARGE as u64);
    assert!(*objects(&server)["l"] == all);
    assert!(matches!(send(UploadOptions::default()), Err(Error::Exists { .. })));
    let skip = UploadOptions { skip_existing: true, ..UploadOptions::default() };
    // The file is newer than the server's clock, and the object has several parts, so its MD5 sum is unknown.
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    assert_eq!(send(skip).unwrap().skipped, 1);
    // Another client creates the object after the check, and before the upload is completed.
    server.with_state(|state| state.objects.clear());
    let faster = server.shared_state();
    server.set_fault_rule(move |request| {
        if request.method == "POST" && request.query.contains_key("uploadId") {
            faster.store("l", b"theirs".to_vec());
        }
        ServerFault::None
    });
    assert!(matches!(send(UploadOptions::default()), Err(Error::Exists { .. })));
    assert_eq!(objects(&server)["l"].as_slice(), b"theirs");
    assert_eq!((uploads(&server), names(home.path())), (0, vec![]));
}

#[test]
fn small_files_with_equal_md5_are_skipped() {
    let server = TestS3Server::with_objects(&[("a", b"hello")]);
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("a");
    let skip = UploadOptions { skip_existing: true, ..UploadOptions::default() };
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000);
    for (text, skipped) in [("hello", Some(1)), ("hallo", None)] {
        std::fs::write(&path, text).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let copied = send(&server, &path, "s3://b/a", home.path(), skip.clone());
        assert_eq!(copied.ok().map(|copied| copied.skipped), skipped, "{text}");
    }
    let sync = UploadOptions { overwrite: true, ..skip };
    send(&server, &path, "s3://b/a", home.path(), sync).unwrap();
    assert_eq!(objects(&server)["a"].as_slice(), b"hallo");
}

#[test]
fn a_fault_at_any_request_of_an_upload_leaves_all_of_it_or_nothing() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = bytes(LARGE);
    let path = folder.path().join("l");
    std::fs::write(&path, &all).unwrap();
    for fault in [ServerFault::Status(503), ServerFault::LoseResponse, ServerFault::Status(403)] {
        for at in 0..8 {
            let server = TestS3Server::start(1000);
            let count = AtomicU64::new(0);
            server.set_fault_rule(move |_| match count.fetch_add(1, Ordering::Relaxed) == at {
                true => fault,
                false => ServerFault::None,
            });
            let sent = send(&server, &path, "s3://b/l", home.path(), UploadOptions::default());
            match &sent {
                Ok(_) => {}
                // Requests that are not idempotent are not repeated after a lost response.
                Err(Error::Remote { status: Some(403) | None, .. }) => {
                    let there = objects(&server);
                    assert!(there.is_empty() || *there["l"] == all, "{fault:?} at {at}");
                    server.clear_faults();
                    let again =
                        UploadOptions { overwrite: true, skip_existing: true, ..patient_options() };
                    send(&server, &path, "s3://b/l", home.path(), again).unwrap();
                }
                Err(error) => panic!("{fault:?} at {at}: {error}"),
            }
            assert!(*objects(&server)["l"] == all, "{fault:?} at {at}");
            // If the response to the request that starts an upload is lost, an upload with an unknown id
            // remains.
            let unknown = usize::from(fault == ServerFault::LoseResponse && at == 1);
            assert!(uploads(&server) <= unknown, "{fault:?} at {at}");
            assert_eq!(names(home.path()), [""; 0], "{fault:?} at {at}");
        }
    }
}

#[test]
fn upload_resumes_after_a_server_failure() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = bytes(LARGE);
    let path = folder.path().join("l");
    std::fs::write(&path, &all).unwrap();
    let server = TestS3Server::start(1000);
    let fails = |request: &ServerRequest| {
        let is_last = request.query.get("partNumber").is_some_and(|number| number == "4");
        if is_last { ServerFault::Status(503) } else { ServerFault::None }
    };
    server.set_fault_rule(fails);
    let send = || send(&server, &path, "s3://b/l", home.path(), UploadOptions::default());
    assert!(matches!(send(), Err(Error::Remote { status: Some(503), .. })));
    assert_eq!((uploads(&server), names(home.path()).len()), (1, 1));
    server.clear_faults();
    let copied = send().unwrap();
    assert_eq!(copied.resumed_bytes, 24 * MIB as u64);
    let parts =
        server.with_state(|state| state.requests.iter().filter(|r| r.is_part_upload()).count());
    assert_eq!(parts, 1);
    assert!(*objects(&server)["l"] == all);
    assert_eq!((uploads(&server), names(home.path())), (0, vec![]));

    // Parts that were discarded meanwhile are sent again.
    server.with_state(|state| state.objects.clear());
    server.set_fault_rule(fails);
    send().unwrap_err();
    server.clear_faults();
    server.with_state(|state| state.uploads.clear());
    send().unwrap();
    assert!(*objects(&server)["l"] == all);

    // If the file has changed, the upload starts again and the old one is aborted.
    server.with_state(|state| state.objects.clear());
    server.set_fault_rule(fails);
    send().unwrap_err();
    server.clear_faults();
    let other = bytes(LARGE - 5);
    std::fs::write(&path, &other).unwrap();
    assert_eq!(send().unwrap().resumed_bytes, 0);
    assert!(*objects(&server)["l"] == other);
    assert_eq!((uploads(&server), names(home.path())), (0, vec![]));
}

#[test]
fn interrupt_aborts_the_upload() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("l");
    std::fs::write(&path, bytes(LARGE)).unwrap();
    let server = TestS3Server::start(1000);
    let is_begin = |request: &ServerRequest| request.query.contains_key("uploads");
    let when: [fn(&ServerRequest) -> bool; 3] = [
        is_begin,
        |request| request.is_part_upload(),
        |request| request.query.get("partNumber").is_some_and(|number| number == "3"),
    ];
    for when in when {
        let settings = settings(&server);
        let cancel = settings.cancel.clone();
        server.set_fault_rule(move |request| {
            if when(request) {
                cancel.cancel();
            }
            ServerFault::None
        });
        let sent = UploadOptions { home: Some(home.path().to_owned()), ..patient_options() };
        let sent = upload_files(&[path.to_str().unwrap().into()], "s3://b/l", &sent, &settings);
        assert!(matches!(sent, Err(Error::Interrupted)), "{sent:?}");
        assert_eq!((uploads(&server), objects(&server).len()), (0, 0));
        assert_eq!(names(home.path()), [""; 0]);
    }
}

#[test]
fn unsupported_sources_and_targets_are_refused_with_a_hint() {
    let server = TestS3Server::start(1000);
    let settings = settings(&server);
    let text = |error: Error| tidemill_base::Error::from(error).to_string();
    let get = |url: &str| {
        text(download_files(&[url.into()], &DownloadOptions::default(), &settings).unwrap_err())
    };
    let put = |path: &str, url: &str| {
        text(upload_files(&[path.into()], url, &UploadOptions::default(), &settings).unwrap_err())
    };
    for (message, expected) in [
        (get("Cargo.toml"), "is on this machine already"),
        (get("no/such.csv"), "`no/such.csv` is neither a URL nor a file on this machine"),
        (get("https://h/*.csv"), "does not list its files"),
        (put("a", "there.csv"), "cp copies"),
        (put("a", "https://h/x"), "a web server takes no files"),
        (put("s3://b/a", "s3://b/c"), "fetch it first: tidemill get"),
        (put("/none/such", "s3://b/c"), "no such file"),
        (put("/dev/null", "s3://b/c"), "not a regular file"),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

// Killed processes.

const CHILD: &str = "TIDEMILL_TEST_COPY";

/// Not a test of its own: the next two tests start and kill it.
#[test]
fn a_process_to_be_killed() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = words.split('\n').collect();
    let [verb, endpoint, from, to, home] = words.as_slice() else { panic!("{words:?}") };
    let mut settings = FileAccessSettings::default();
    for (name, value) in [
        ("endpoint_url", *endpoint),
        ("allow_http", "true"),
        ("region", "us-east-1"),
        ("access_key_id", "key-id"),
        ("secret_access_key", "hush-hush"),
        ("unsigned_payload", "true"),
    ] {
        settings.storage_options.set(name, value).unwrap();
    }
    let from = [(*from).to_owned()];
    if *verb == "get" {
        let output = Some((*to).to_owned());
        let _ = download_files(
            &from,
            &DownloadOptions { output, ..DownloadOptions::default() },
            &settings,
        );
    } else {
        let options = UploadOptions { home: Some(PathBuf::from(home)), ..UploadOptions::default() };
        let _ = upload_files(&from, to, &options, &settings);
    }
}

/// Runs a copy in a child process, and kills it when request `number` arrives, before the response. Returns
/// true if there was such a request.
fn run_killed_at_request(server: &TestS3Server, words: [&str; 4], number: u64) -> bool {
    #[derive(Default)]
    struct Process {
        id: Mutex<Option<Pid>>,
        is_dead: Mutex<bool>,
        died: Condvar,
    }
    let process: Arc<Process> = Arc::default();
    let (own, count) = (Arc::clone(&process), AtomicU64::new(0));
    let reached = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&reached);
    server.set_fault_rule(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == number {
            told.store(1, Ordering::Relaxed);
            let id = own.id.lock().unwrap();
            kill_process(id, Signal::KILL).unwrap();
            let mut is_dead = own.is_dead.lock();
            while !*is_dead {
                own.died.wait(&mut is_dead);
            }
        }
        ServerFault::None
    });
    let [verb, from, to, home] = words;
    // Hold the lock, so that the rule cannot run before the process id is known.
    let mut id = process.id.lock();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "files::tests::a_process_to_be_killed"])
        .env(CHILD, [verb, server.url.as_str(), from, to, home].join("\n"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    *id = Some(Pid::from_child(&child));
    drop(id);
    child.wait().unwrap();
    *process.is_dead.lock() = true;
    process.died.notify_all();
    server.clear_faults();
    reached.load(Ordering::Relaxed) == 1
}

#[test]
fn a_process_killed_at_any_request_of_a_download_leaves_nothing_wrong() {
    let all = bytes(LARGE);
    let server = TestS3Server::with_objects(&[("x/a", b"small"), ("x/l", &all)]);
    let expected =
        BTreeMap::from([("a".to_owned(), b"small".to_vec()), ("l".to_owned(), all.clone())]);
    for number in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().to_str().unwrap();
        let was_killed = run_killed_at_request(&server, ["get", "s3://b/x/", to, ""], number);
        for (name, found) in tree(folder.path()) {
            let is_part = name.starts_with(".tidemill-get-");
            assert!(is_part || found == expected[&name], "{name} after {number}");
        }
        let again = DownloadOptions { skip_existing: true, ..DownloadOptions::default() };
        let copied = fetch(&server, "s3://b/x/", folder.path(), again).unwrap();
        assert!(copied.failures.is_empty(), "{:?}", copied.failures);
        assert!(tree(folder.path()) == expected, "after {number}");
        if !was_killed {
            assert!(number > 3);
            return;
        }
    }
}

#[test]
fn a_process_killed_at_any_request_of_an_upload_leaves_nothing_wrong() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = bytes(LARGE);
    let path = folder.path().join("l");
    std::fs::write(&path, &all).unwrap();
    for number in 0.. {
        let server = TestS3Server::start(1000);
        let words = ["put", path.to_str().unwrap(), "s3://b/l", home.path().to_str().unwrap()];
        let was_killed = run_killed_at_request(&server, words, number);
        let there = objects(&server);
        assert!(there.is_empty() || *there["l"] == all, "after {number}");
        let again =
            UploadOptions { skip_existing: true, overwrite: true, ..UploadOptions::default() };
        let copied = send(&server, &path, "s3://b/l", home.path(), again).unwrap();
        assert!(copied.failures.is_empty(), "{:?}", copied.failures);
        assert!(*objects(&server)["l"] == all, "after {number}");
        // If the process was killed while the upload id was on its way, nobody knows the id.
        assert!(uploads(&server) <= usize::from(number == 1), "after {number}");
        if !was_killed {
            assert!(number > 5);
            assert_eq!((uploads(&server), names(home.path())), (0, vec![]));
            return;
        }
    }
}

// Random access.

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn an_open_object_gives_its_bytes_wherever_it_is_read(
        size in 0..3 * MIB,
        reads in proptest::collection::vec((0..3 * MIB + 9, 0..2 * MIB, any::<bool>()), 1..10),
    ) {
        let all = bytes(size);
        let server = TestS3Server::with_objects(&[("a", &all)]);
        let mut settings = settings(&server);
        for (name, value) in [("read_block", "64K"), ("read_memory", "1M")] {
            settings.storage_options.set(name, value).unwrap();
        }
        let file = open_file("s3://b/a", &settings).unwrap();
        prop_assert_eq!(file.size(), Some(size as u64));
        for (at, length, is_claimed) in reads {
            let range = at as u64..(at + length) as u64;
            let _claims = is_claimed.then(|| file.prefetch_ranges(std::slice::from_ref(&range)).unwrap());
            let mut out = vec![0; length];
            let count = file.read_at(&mut out, at as u64, &mut || Ok(())).unwrap();
            let expected = &all[at.min(size)..(at + length).min(size)];
            prop_assert_eq!(&out[..count], expected);
        }
    }
}

#[test]
fn a_read_that_is_interrupted_leaves_the_file_open() {
    let all = bytes(LARGE);
    let server = TestS3Server::with_objects(&[("a", &all)]);
    let file = open_file("s3://b/a", &settings(&server)).unwrap();
    let mut out = vec![0; LARGE];
    let stopped = file.read_at(&mut out, 0, &mut || Err(tidemill_base::cancellation::Interrupted));
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    assert_eq!(file.read_at(&mut out, 0, &mut || Ok(())).unwrap(), LARGE);
    assert!(out == all);
}

#[test]
fn literal_names_match_exactly_and_clones_share_connections() {
    let server =
        TestS3Server::with_objects(&[("x/[a]", b"1"), ("x/a", b"22"), ("{b,c}/d", b"333")]);
    let settings = FileAccessSettings { has_literal_names: true, ..settings(&server) };
    let listed = |url: &str| {
        let mut names = Vec::new();
        ls(url, false, &settings, &mut |entry| {
            names.push(entry.name);
            Ok(())
        })?;
        Ok(names)
    };
    assert_eq!(listed("s3://b/x/[a]").unwrap(), ["[a]"]);
    assert_eq!(listed("s3://b/{b,c}").unwrap(), ["d"]);
    let nothing: Result<Vec<String>> = listed("s3://b/x/*");
    assert!(matches!(nothing, Err(Error::NotFound { .. })), "{nothing:?}");
    let one = settings.connections.open_bucket("b", &settings.storage_options, &settings.cancel);
    let other =
        settings.clone().connections.open_bucket("b", &settings.storage_options, &settings.cancel);
    assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
}
