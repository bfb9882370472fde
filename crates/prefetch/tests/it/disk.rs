//! The disk tier: over a network that fails, in a folder that is damaged, and beside other processes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use proptest::prelude::*;
use tidemill_prefetch::{
    ByteSink, CachedOrigin, DiskTier, DiskTierOptions, Options, Origin, PrefetchStore, Result,
};
use tokio::runtime::Runtime;

use crate::faulty_store::{FaultyStore, StoreFault, expected_byte};
use crate::{KIB, MIB, SIZE, expected_bytes, fault, on_runtime, options, requested_ranges};

const FLUSH_TIMEOUT: Duration = Duration::from_secs(600);

/// Opens a tier that collects its warnings.
fn open_tier_with_warnings(
    folder: &FilePath,
    options: DiskTierOptions,
) -> (DiskTier, Arc<Mutex<Vec<String>>>) {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&warnings);
    let warn = move |warning: &str| told.lock().push(warning.to_owned());
    (DiskTier::open(folder, options, warn).unwrap(), warnings)
}

fn open_tier(folder: &FilePath, limit_bytes: u64) -> DiskTier {
    open_tier_with_warnings(folder, DiskTierOptions::new(limit_bytes)).0
}

fn flush_all(tier: &DiskTier) {
    assert!(tier.flush(FLUSH_TIMEOUT), "what was fetched is not written");
}

fn open_cached_store(
    faulty: &Arc<FaultyStore>,
    options: Options,
    tier: &DiskTier,
    name: &str,
) -> PrefetchStore {
    let store = PrefetchStore::new(Arc::clone(faulty) as Arc<_>, options).unwrap();
    let store = store.with_disk_tier(tier.clone(), name);
    tier.set_queue_bytes(64 * MIB);
    store
}

/// All files below a folder.
fn list_files(folder: &FilePath) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(list_files(&entry.path())),
            _ => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

/// Lists the pieces in a folder.
fn list_pieces(folder: &FilePath) -> Vec<PathBuf> {
    let mut all = list_files(&folder.join("v1"));
    all.retain(|path| {
        let is_temporary = path.parent().is_some_and(|parent| parent.ends_with("tmp"));
        !is_temporary && !path.ends_with("used")
    });
    all
}

fn charged_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(4 * KIB) + 4 * KIB
}

/// Returns the charge of a folder's files.
fn charged_folder_bytes(folder: &FilePath) -> u64 {
    // Files are made and removed under the lock only. (Without that file, nobody makes or removes any.)
    let used = File::options().read(true).write(true).open(folder.join("v1/used")).ok();
    if let Some(used) = &used {
        used.lock().unwrap();
    }
    // Files being written come last: one that is published meanwhile is not counted twice.
    let mut all = list_pieces(folder);
    all.extend(list_files(&folder.join("v1/tmp")));
    all.iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|about| charged_bytes(about.len()))
        .sum()
}

/// An object whose bytes depend on offset and object, and that counts its requests.
#[derive(Debug)]
struct PlainOrigin {
    version: u8,
    size: u64,
    requests: AtomicUsize,
}

impl PlainOrigin {
    fn new(version: u8, size: u64) -> Arc<PlainOrigin> {
        Arc::new(PlainOrigin { version, size, requests: AtomicUsize::new(0) })
    }

    fn take_request_count(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

impl Origin for PlainOrigin {
    fn size(&self) -> u64 {
        self.size
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.requests.fetch_add(1, Ordering::SeqCst);
            into.record_request();
            into.put(&expected_bytes(self.version, range));
            Ok(())
        })
    }
}

/// Reads a range of an object over a tier and checks the bytes.
async fn read_and_check(object: &Arc<PlainOrigin>, tier: &DiskTier, range: Range<u64>) {
    let name = format!("{}", object.version);
    let origin = CachedOrigin::new(Arc::clone(object) as Arc<_>, tier, &[&name]);
    let mut bytes = BytesMut::new();
    origin.fetch(range.clone(), &mut bytes).await.unwrap();
    assert!(bytes == expected_bytes(object.version, range), "wrong bytes");
}

#[derive(Debug, Clone)]
enum FileDamage {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Zero(prop::sample::Index),
    Longer,
    Remove,
    OtherFile(prop::sample::Index),
    ReplaceByFolder,
}

#[derive(Debug, Clone)]
enum TierStep {
    Range(usize, usize, u64, u64),
    Ranges(usize, usize, Vec<(u64, u64)>),
    Whole(usize, usize),
    Flush(usize),
    Reopen(usize),
    Damage(prop::sample::Index, FileDamage),
    /// All cached files are removed, or no file can be made in their place any more.
    RemoveAll(bool),
}

fn step() -> impl Strategy<Value = TierStep> {
    let index = any::<prop::sample::Index>;
    let damage = prop_oneof![
        3 => index().prop_map(FileDamage::Cut),
        5 => (index(), 0..8u8).prop_map(|(at, bit)| FileDamage::Flip(at, bit)),
        2 => index().prop_map(FileDamage::Zero),
        1 => Just(FileDamage::Longer),
        2 => Just(FileDamage::Remove),
        3 => index().prop_map(FileDamage::OtherFile),
        1 => Just(FileDamage::ReplaceByFolder),
    ];
    let place = || (0..SIZE, 1..300_000u64);
    prop_oneof![
        8 => (0..2usize, 0..2usize, place()).prop_map(|(a, b, (c, d))| TierStep::Range(a, b, c, d)),
        2 => (0..2usize, 0..2usize, prop::collection::vec(place(), 1..5))
            .prop_map(|(a, b, c)| TierStep::Ranges(a, b, c)),
        1 => (0..2usize, 0..2usize).prop_map(|(a, b)| TierStep::Whole(a, b)),
        4 => (0..2usize).prop_map(TierStep::Flush),
        3 => (0..2usize).prop_map(TierStep::Reopen),
        8 => (index(), damage).prop_map(|(file, damage)| TierStep::Damage(file, damage)),
        1 => prop::bool::weighted(0.2).prop_map(TierStep::RemoveAll),
    ]
}

/// Damages a file of the folder as disks and people do.
fn apply_damage(folder: &FilePath, file: &prop::sample::Index, damage: &FileDamage) {
    let all = list_files(&folder.join("v1"));
    if all.is_empty() {
        return;
    }
    let path = file.get(&all);
    // It may be gone by now.
    let Ok(mut bytes) = fs::read(path) else { return };
    if bytes.is_empty() && !matches!(damage, FileDamage::Remove | FileDamage::Longer) {
        return;
    }
    match damage {
        FileDamage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        FileDamage::Flip(at, bit) => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        FileDamage::Zero(at) => {
            let at = at.index(bytes.len());
            bytes[at..].fill(0);
        }
        FileDamage::Longer => bytes.push(0),
        FileDamage::Remove => return drop(fs::remove_file(path)),
        FileDamage::OtherFile(other) => bytes = fs::read(other.get(&all)).unwrap_or_default(),
        FileDamage::ReplaceByFolder => {
            let _ = fs::remove_file(path);
            return drop(fs::create_dir(path));
        }
    }
    // In place, as damage is: readers may have it open.
    if let Ok(file) = File::options().write(true).open(path) {
        let _ = file.set_len(bytes.len() as u64).and_then(|()| file.write_all_at(&bytes, 0));
    }
}

/// Executes steps over two objects and two tiers in one folder; a result that is no error must be an object's
/// bytes.
fn run_steps(faults: [Vec<Option<StoreFault>>; 2], steps: &[TierStep], limit_bytes: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = Path::from("a");
    let [one, two] = faults;
    let faulty = [
        Arc::new(FaultyStore::new(SIZE, one)),
        Arc::new(FaultyStore::with_first_version(SIZE, two, 10)),
    ];
    let versions = [0..10, 10..20];
    let is_right = |object: usize, bytes: &[u8], at: u64| {
        let of = |version: u8| {
            bytes.iter().zip(at..).all(|(found, at)| *found == expected_byte(version, at))
        };
        versions[object].clone().any(of)
    };
    Runtime::new().unwrap().block_on(async {
        let open = || {
            let tier = open_tier(folder.path(), limit_bytes);
            let of = |object: usize| {
                open_cached_store(&faulty[object], options(4 * MIB), &tier, ["x", "y"][object])
            };
            (of(0), of(1), tier)
        };
        let mut tiers = [open(), open()];
        let mut is_blocked = false;
        for step in steps {
            let store = |tier: &usize, object: &usize| match object {
                0 => &tiers[*tier].0,
                _ => &tiers[*tier].1,
            };
            match step {
                TierStep::Range(tier, object, start, length) => {
                    let range = *start..start + length;
                    if let Ok(bytes) = store(tier, object).get_range(&path, range).await {
                        assert_eq!(bytes.len() as u64, *length.min(&(SIZE - start)));
                        assert!(is_right(*object, &bytes, *start), "wrong bytes");
                    }
                }
                TierStep::Ranges(tier, object, ranges) => {
                    let all: Vec<Range<u64>> =
                        ranges.iter().map(|(at, n)| *at..(at + n).min(SIZE)).collect();
                    if let Ok(found) = store(tier, object).get_ranges(&path, &all).await {
                        for (bytes, range) in found.iter().zip(&all) {
                            assert_eq!(bytes.len() as u64, range.end - range.start);
                            assert!(is_right(*object, bytes, range.start), "wrong bytes");
                        }
                    }
                }
                TierStep::Whole(tier, object) => {
                    if let Ok(found) = store(tier, object).get(&path).await
                        && let Ok(bytes) = found.bytes().await
                    {
                        assert_eq!(bytes.len() as u64, SIZE);
                        assert!(is_right(*object, &bytes, 0), "wrong bytes");
                    }
                }
                TierStep::Flush(tier) => flush_all(&tiers[*tier].2),
                TierStep::Reopen(tier) if !is_blocked => tiers[*tier] = open(),
                TierStep::Reopen(_) => {}
                TierStep::Damage(file, damage) => apply_damage(folder.path(), file, damage),
                TierStep::RemoveAll(is_for_good) => {
                    let _ = fs::remove_dir_all(folder.path().join("v1"));
                    if *is_for_good {
                        let _ = fs::write(folder.path().join("v1"), "");
                        is_blocked = true;
                    }
                }
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn reads_over_damaged_files_return_object_bytes_or_an_error(
        one in prop::collection::vec(fault(), 0..20),
        two in prop::collection::vec(prop_oneof![
            12 => fault(),
            1 => Just(Some(StoreFault::Replaced)),
        ], 0..40).prop_filter("so many versions there are", |faults| {
            faults.iter().filter(|fault| **fault == Some(StoreFault::Replaced)).count() < 8
        }),
        steps in prop::collection::vec(step(), 1..60),
        limit_bytes in prop_oneof![Just(MIB), Just(3 * MIB), Just(64 * MIB)],
    ) {
        run_steps([one, two], &steps, limit_bytes);
    }
}

#[test]
fn second_process_fetches_nothing_that_the_first_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
    let path = Path::from("a");
    let ranges = [5..10, 1_000_000..1_050_000, 300_000..300_001, SIZE - 8..SIZE];
    on_runtime(async {
        let tier = open_tier(folder.path(), 64 * MIB);
        let store = open_cached_store(&faulty, options(16 * MIB), &tier, "x");
        for range in &ranges {
            store.get_range(&path, range.clone()).await.unwrap();
        }
        flush_all(&tier);
        assert_eq!(requested_ranges(&faulty), ranges);
    });
    faulty.requested_ranges.lock().clear();
    on_runtime(async {
        let tier = open_tier(folder.path(), 64 * MIB);
        let store = open_cached_store(&faulty, options(16 * MIB), &tier, "x");
        for range in ranges.iter().cloned().chain(std::iter::once(1_010_000..1_020_000)) {
            let bytes = store.get_range(&path, range.clone()).await.unwrap();
            assert!(bytes == expected_bytes(0, range));
        }
        assert!(requested_ranges(&faulty).is_empty());
        let stats = store.stats();
        assert_eq!((stats.fetched_bytes, stats.requests), (0, 0));
        assert_eq!((stats.disk_bytes, stats.disk_reads), (stats.served_bytes, 5));
        assert_eq!(stats.wasted_bytes, 0);
        // Caches the whole object: first with its cached end, then completely.
        store.get(&path).await.unwrap().bytes().await.unwrap();
        flush_all(&tier);
    });
    faulty.requested_ranges.lock().clear();
    on_runtime(async {
        let tier = open_tier(folder.path(), 64 * MIB);
        let store = open_cached_store(&faulty, options(16 * MIB), &tier, "x");
        let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(bytes == expected_bytes(0, 0..SIZE));
        assert!(requested_ranges(&faulty).is_empty());
        // In another store it is another object.
        open_cached_store(&faulty, options(16 * MIB), &tier, "y")
            .get_range(&path, 5..10)
            .await
            .unwrap();
        assert_eq!(requested_ranges(&faulty), vec![5..10; 1]);
    });
}

#[test]
fn cached_ends_of_a_range_are_not_fetched_and_the_gap_is_one_request() {
    let folder = tempfile::tempdir().unwrap();
    on_runtime(async {
        let tier = open_tier(folder.path(), 64 * MIB);
        let object = PlainOrigin::new(0, 10_000);
        for range in [0..100, 400..500, 100..200, 900..1_000] {
            read_and_check(&object, &tier, range).await;
        }
        flush_all(&tier);
        assert_eq!((object.take_request_count(), list_pieces(folder.path()).len()), (4, 4));
        read_and_check(&object, &tier, 50..950).await;
        flush_all(&tier);
        // The part within the requested range was removed.
        assert_eq!((object.take_request_count(), list_pieces(folder.path()).len()), (1, 4));
        read_and_check(&object, &tier, 0..1_000).await;
        assert_eq!(object.take_request_count(), 0);
        read_and_check(&object, &tier, 0..10_000).await;
        flush_all(&tier);
        assert_eq!((object.take_request_count(), list_pieces(folder.path()).len()), (1, 5));
        let stats = tier.stats();
        assert_eq!(stats.written_bytes, 400 + 700 + 9_000);
        assert_eq!((stats.dropped_bytes, stats.evicted_bytes, stats.damaged_files), (0, 0, 0));
    });
}

#[test]
fn a_damaged_piece_is_fetched_again_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    on_runtime(async {
        let tier = open_tier(folder.path(), 64 * MIB);
        let object = PlainOrigin::new(0, MIB);
        read_and_check(&object, &tier, 0..500_000).await;
        flush_all(&tier);
        let [path] = &list_pieces(folder.path())[..] else { panic!("one piece") };
        let file = File::options().write(true).open(path).unwrap();
        let byte = [expected_byte(0, 300_000) ^ 0x10];
        let head = file.metadata().unwrap().len() - 500_000;
        file.write_all_at(&byte, head + 300_000).unwrap();
        object.take_request_count();
        // Chunks before the damage are right, and a small read checks only the chunks that it touches.
        read_and_check(&object, &tier, 0..200_000).await;
        assert_eq!((object.take_request_count(), tier.stats().damaged_files), (0, 0));
        read_and_check(&object, &tier, 0..500_000).await;
        flush_all(&tier);
        assert_eq!((object.take_request_count(), tier.stats().damaged_files), (1, 1));
        assert!(!path.exists());
        // The intact part of it was removed with the file.
        read_and_check(&object, &tier, 0..500_000).await;
        flush_all(&tier);
        assert_eq!(object.take_request_count(), 1);
        read_and_check(&object, &tier, 0..500_000).await;
        assert_eq!(object.take_request_count(), 0);
    });
}

#[test]
fn cached_files_are_private_and_contain_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("a/cache");
    on_runtime(async {
        let tier = open_tier(&at, 64 * MIB);
        let object = PlainOrigin::new(0, 1_000);
        let identity = ["https://user:hush-hush@host/key?signature=hush-hush", "\"etag\""];
        let origin = CachedOrigin::new(object, &tier, &identity);
        origin.fetch(0..1_000, &mut BytesMut::new()).await.unwrap();
        flush_all(&tier);
    });
    let all = list_files(&at);
    assert_eq!(all.len(), 3, "{all:?}");
    for path in all {
        let bytes = fs::read(&path).unwrap();
        let words = ["hush", "user", "host", "key?", "etag"];
        let has = |word: &str| {
            path.strip_prefix(&at).unwrap().display().to_string().contains(word)
                || bytes.windows(word.len()).any(|part| part == word.as_bytes())
        };
        assert!(!words.into_iter().any(has), "{path:?}");
        let mode = |path: &FilePath| fs::metadata(path).unwrap().mode() & 0o777;
        if !path.ends_with("CACHEDIR.TAG") {
            assert_eq!(mode(&path), 0o600, "{path:?}");
        }
        assert_eq!(mode(path.parent().unwrap()), 0o700, "{path:?}");
    }
    fs::set_permissions(at.join("v1"), fs::Permissions::from_mode(0o770)).unwrap();
    let error = DiskTier::open(&at, DiskTierOptions::new(MIB), |_| ()).unwrap_err();
    assert!(error.to_string().contains("others can write to it"), "{error}");
    let error = DiskTier::open(&at, DiskTierOptions::new(MIB - 1), |_| ()).unwrap_err();
    assert!(error.to_string().contains("at least 1 MiB"), "{error}");
}

/// Returns the length of a piece's file.
fn file_bytes(count: u64) -> u64 {
    68 + 4 * count.div_ceil(64 * KIB) + count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn least_recently_read_pieces_are_evicted(
        reads in prop::collection::vec((0..40u64, prop::bool::weighted(0.05)), 1..200),
    ) {
        let limit = MIB;
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let touch_interval = Duration::ZERO;
            open_tier_with_warnings(folder.path(), DiskTierOptions { touch_interval, ..DiskTierOptions::new(limit) }).0
        };
        let object = PlainOrigin::new(0, 40 * 100_000);
        let range = |place: u64| place * 100_000..place * 100_000 + (1 + place % 5) * 20_000;
        let cost = |place: &u64| charged_bytes(file_bytes((1 + place % 5) * 20_000));
        // Oldest first.
        let mut model: VecDeque<u64> = VecDeque::new();
        Runtime::new().unwrap().block_on(async {
            let mut tier = open();
            for (place, is_reopened) in reads {
                if is_reopened {
                    tier = open();
                }
                read_and_check(&object, &tier, range(place)).await;
                flush_all(&tier);
                let sum: u64 = model.iter().map(cost).sum();
                match model.iter().position(|other| *other == place) {
                    Some(known) => drop(model.remove(known)),
                    None if sum + cost(&place) > limit => {
                        let mut left = sum;
                        while left > limit - cost(&place).max(limit / 16) {
                            left -= cost(&model.pop_front().unwrap());
                        }
                    }
                    None => {}
                }
                model.push_back(place);
                let mut names: Vec<String> = model
                    .iter()
                    .map(|place| format!("{:x}-{:x}", range(*place).start, range(*place).end))
                    .collect();
                names.sort();
                let mut found: Vec<String> = list_pieces(folder.path())
                    .iter()
                    .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                    .collect();
                found.sort();
                assert_eq!(found, names);
                assert!(charged_folder_bytes(folder.path()) <= limit);
            }
        });
    }
}

#[test]
fn several_tiers_that_write_read_and_evict_at_once_keep_the_limit_and_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 2 * MIB;
    let size = 8 * MIB;
    let objects = [PlainOrigin::new(0, size), PlainOrigin::new(1, size)];
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (folder, objects) = (folder.path(), &objects);
            scope.spawn(move || {
                on_runtime(async {
                    let tier = open_tier(folder, limit);
                    let mut state = seed;
                    for _ in 0..300 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                        let object = &objects[(state >> 20) as usize % 2];
                        let at = (state >> 33) % 60 * 100_000;
                        read_and_check(object, &tier, at..at + 1 + (state >> 12) % 200_000).await;
                        if state >> 60 == 0 {
                            flush_all(&tier);
                        }
                        assert!(charged_folder_bytes(folder) <= limit);
                    }
                    flush_all(&tier);
                    let stats = tier.stats();
                    assert_eq!((stats.damaged_files, stats.dropped_bytes), (0, 0));
                    assert!(stats.evicted_bytes + stats.read_bytes > 0);
                });
            });
        }
    });
    assert!(charged_folder_bytes(folder.path()) <= limit);
    // The limit is used, too.
    assert!(charged_folder_bytes(folder.path()) > limit / 2);
}

#[test]
fn damaged_used_sum_is_recounted() {
    let folder = tempfile::tempdir().unwrap();
    let limit = MIB;
    let object = PlainOrigin::new(0, 100 * MIB);
    on_runtime(async {
        for damage in 0..20_u64 {
            let tier = open_tier(folder.path(), limit);
            for at in 0..10 {
                let at = (damage * 10 + at) * 200_000;
                read_and_check(&object, &tier, at..at + 100_000).await;
            }
            flush_all(&tier);
            assert!(charged_folder_bytes(folder.path()) <= limit);
            let used = folder.path().join("v1/used");
            let file = File::options().write(true).open(&used).unwrap();
            match damage % 3 {
                0 => file.set_len(damage).unwrap(),
                1 => file.write_all_at(&[0xff], damage).unwrap(),
                _ => fs::remove_file(&used).unwrap(),
            }
        }
    });
}

#[test]
fn a_smaller_limit_is_kept_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let object = PlainOrigin::new(0, 16 * MIB);
    on_runtime(async {
        let tier = open_tier(folder.path(), 16 * MIB);
        for at in 0..20 {
            read_and_check(&object, &tier, at * 200_000..at * 200_000 + 200_000).await;
        }
        flush_all(&tier);
        assert!(charged_folder_bytes(folder.path()) > 3 * MIB);
        let tier = open_tier(folder.path(), MIB);
        // The writer starts with the eviction.
        read_and_check(&object, &tier, 8 * MIB..8 * MIB + 10).await;
        flush_all(&tier);
        assert!(charged_folder_bytes(folder.path()) <= MIB);
    });
}

#[test]
fn slow_writer_delays_no_read_and_drops_what_exceeds_its_queue() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
    on_runtime(async {
        let tier = open_tier(folder.path(), 64 * MIB);
        flush_all(&tier);
        let mut read_write = File::options();
        read_write.create(true).truncate(false).read(true).write(true);
        let used = read_write.open(folder.path().join("v1/used")).unwrap();
        used.lock().unwrap();
        let store = open_cached_store(&faulty, options(4 * MIB), &tier, "x");
        tier.set_queue_bytes(MIB);
        let bytes = store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap();
        assert!(bytes == expected_bytes(0, 0..SIZE));
        // The last bytes are dropped after they were read.
        while tier.stats().dropped_bytes < SIZE - MIB {
            tokio::task::yield_now().await;
        }
        assert!(!tier.flush(Duration::ZERO));
        used.unlock().unwrap();
        flush_all(&tier);
        let stats = tier.stats();
        assert!(stats.dropped_bytes <= SIZE - MIB + 64 * KIB, "{stats:?}");
        assert_eq!(stats.written_bytes, SIZE - stats.dropped_bytes);
    });
}

/// Checks that a disk fault causes one warning and that reading continues.
async fn assert_reads_continue_without(folder: &FilePath, spoil: impl FnOnce()) -> String {
    let (tier, warnings) = open_tier_with_warnings(folder, DiskTierOptions::new(64 * MIB));
    let object = PlainOrigin::new(0, 16 * MIB);
    read_and_check(&object, &tier, 0..100_000).await;
    flush_all(&tier);
    spoil();
    for at in 1..20 {
        read_and_check(&object, &tier, at * 300_000..at * 300_000 + 200_000).await;
        flush_all(&tier);
    }
    read_and_check(&object, &tier, 0..100_000).await;
    assert!(tier.stats().dropped_bytes > 0);
    let warnings = warnings.lock();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("reading goes on without it"), "{warnings:?}");
    warnings[0].clone()
}

#[test]
fn unwritable_folder_causes_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    on_runtime(async {
        let temporary = folder.path().join("v1/tmp");
        let warning = assert_reads_continue_without(folder.path(), || {
            fs::remove_dir(&temporary).unwrap();
            fs::write(&temporary, "").unwrap();
        });
        let warning = warning.await;
        assert!(warning.starts_with("cannot write to the read cache"), "{warning}");
    });
}

#[test]
fn full_disk_causes_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("small");
    fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&mount)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        // A user who may not mount has the test of the file size limit, below.
        return;
    }
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let _mounted = Mounted(mount.clone());
    on_runtime(async {
        let warning = assert_reads_continue_without(&mount.join("cache"), || ()).await;
        assert!(warning.contains("No space left"), "{warning}");
    });
}

/// Returns a command that runs one of the tests below as a process of its own.
fn child_process(test: &str, folder: &FilePath, before: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before} exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("TIDEMILL_TEST_CACHE", folder);
    command
}

/// Returns the folder of a process that [`child_process`] started.
fn child_folder() -> Option<PathBuf> {
    std::env::var_os("TIDEMILL_TEST_CACHE").map(PathBuf::from)
}

#[test]
fn a_file_that_may_not_be_so_long_is_one_warning_and_leaves_nothing() {
    if let Some(folder) = child_folder() {
        return on_runtime(async {
            let warning = assert_reads_continue_without(&folder, || ()).await;
            assert!(warning.contains("File too large"), "{warning}");
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "disk::a_file_that_may_not_be_so_long_is_one_warning_and_leaves_nothing";
    // A file may have 150,000 bytes and not 200,000.
    let output =
        child_process(name, folder.path(), "trap '' XFSZ; ulimit -f 300;").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    assert_eq!(list_files(&folder.path().join("v1/tmp")), [] as [PathBuf; 0]);
    assert_eq!(list_pieces(folder.path()).len(), 1);
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_believed_wrongly() {
    const PLACES: u64 = 64;
    let object = PlainOrigin::new(0, PLACES * 400_000);
    if let Some(folder) = child_folder() {
        // Writes until it is killed, and reports each flush.
        return on_runtime(async {
            let tier = open_tier(&folder, 2 * MIB);
            for at in (0..PLACES).cycle() {
                read_and_check(&object, &tier, at * 400_000..at * 400_000 + 390_000).await;
                if at % 4 == 0 {
                    flush_all(&tier);
                    println!("\nwritten");
                    std::io::stdout().flush().unwrap();
                }
            }
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let name =
        "disk::a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_believed_wrongly";
    for round in 1..8 {
        let mut writer =
            child_process(name, folder.path(), "").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut written = lines.map_while(std::io::Result::ok).filter(|line| line == "written");
        assert_eq!(written.by_ref().take(round).count(), round);
        writer.kill().unwrap();
        writer.wait().unwrap();
        drop(written);
        on_runtime(async {
            let tier = open_tier(folder.path(), 2 * MIB);
            for at in 0..PLACES {
                read_and_check(&object, &tier, at * 400_000..at * 400_000 + 390_000).await;
            }
            flush_all(&tier);
            assert_eq!(tier.stats().damaged_files, 0);
        });
        // The next count removes pieces without a writer.
        assert_eq!(list_files(&folder.path().join("v1/tmp")), [] as [PathBuf; 0]);
        assert!(charged_folder_bytes(folder.path()) <= 2 * MIB);
    }
}

#[test]
fn object_without_a_lasting_version_is_not_cached() {
    use object_store::memory::InMemory;
    use std::time::UNIX_EPOCH;
    use tidemill_prefetch::StoreObject;
    use tidemill_prefetch::origin::is_lasting_timestamp;

    let meta = |e_tag: Option<&str>, seconds: u64| object_store::ObjectMeta {
        location: Path::from("a"),
        last_modified: (UNIX_EPOCH + Duration::from_secs(seconds)).into(),
        size: 10,
        e_tag: e_tag.map(str::to_owned),
        version: None,
    };
    for (e_tag, seconds, is_kept) in [
        (Some("\"a\""), 0, true),
        (Some("W/\"a\""), 1_000, false),
        (None, 1_000, true),
        (None, 0, false),
        // A time in the future, or so recent that another write could have the same time.
        (None, 1 << 40, false),
    ] {
        let object = StoreObject::new(Arc::new(InMemory::new()), meta(e_tag, seconds));
        assert_eq!(object.lasting_version().is_some(), is_kept, "{e_tag:?} {seconds}");
    }
    let now = UNIX_EPOCH + Duration::from_secs(1_000);
    let at = |seconds| is_lasting_timestamp(seconds, now);
    assert_eq!([997, 998, 999, 1_000, -5].map(at), [true, true, false, false, false]);
}
