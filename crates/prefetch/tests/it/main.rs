//! Readers and stores over a store that misbehaves.

mod disk;
mod faulty_store;
mod history;
mod memory;
mod tuner;

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use faulty_store::{FaultyStore, StoreFault, expected_byte};
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory};
use proptest::prelude::*;
use tidemill_prefetch::access_plan::{AccessPlan, ObjectRanges};
use tidemill_prefetch::{ByteSink, Options, Origin, PrefetchPool, PrefetchStore, StoreObject};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::runtime::{Handle, Runtime};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn options(memory_bytes: u64) -> Options {
    Options { block_bytes: 64 * KIB, window_bytes: 512 * KIB, memory_bytes, ..Options::default() }
}

fn open_store(faulty: Arc<FaultyStore>, options: Options) -> PrefetchStore {
    PrefetchStore::new(faulty, options).unwrap()
}

fn expected_bytes(version: u8, range: Range<u64>) -> Vec<u8> {
    range.map(|at| expected_byte(version, at)).collect()
}

/// Returns the version that the bytes belong to; a replaced object is never mixed.
fn version_of(bytes: &[u8], at: u64) -> Option<u8> {
    let is = |version: &u8| {
        bytes.iter().zip(at..).all(|(found, at)| *found == expected_byte(*version, at))
    };
    (0..4).find(is)
}

#[derive(Debug, Clone)]
enum ReaderStep {
    Read(usize),
    Seek(u64),
    Declare(u64, u64),
    Reopen,
    AsyncRead(usize),
    Range(u64, u64),
    Ranges(Vec<(u64, u64)>),
    Whole,
}

fn step(size: u64) -> impl Strategy<Value = ReaderStep> {
    prop_oneof![
        6 => (1..200_000usize).prop_map(ReaderStep::Read),
        3 => (0..size + 10).prop_map(ReaderStep::Seek),
        1 => (0..size, 0..size).prop_map(|(start, length)| ReaderStep::Declare(start, length)),
        1 => Just(ReaderStep::Reopen),
        3 => (1..200_000usize).prop_map(ReaderStep::AsyncRead),
        3 => (0..size, 1..300_000u64).prop_map(|(start, length)| ReaderStep::Range(start, length)),
        1 => proptest::collection::vec((0..size, 1..100_000u64), 1..5).prop_map(ReaderStep::Ranges),
        1 => Just(ReaderStep::Whole),
    ]
}

fn fault() -> impl Strategy<Value = Option<StoreFault>> {
    prop_oneof![
        8 => Just(None),
        1 => Just(Some(StoreFault::Refused)),
        2 => any::<u8>().prop_map(|part| Some(StoreFault::BodyEndsEarly(part))),
        2 => any::<u8>().prop_map(|part| Some(StoreFault::BodyFails(part))),
        1 => Just(Some(StoreFault::WrongRange)),
    ]
}

const SIZE: u64 = 2 * MIB + 12_345;

/// Executes steps; a result that is no error must be bytes of the object, all of one version for each reader.
fn run_steps(faults: Vec<Option<StoreFault>>, steps: &[ReaderStep], memory_bytes: u64) {
    let runtime = Runtime::new().unwrap();
    let path = Path::from("a");
    let faulty = Arc::new(FaultyStore::new(SIZE, faults));
    runtime.block_on(async {
        let store = open_store(Arc::clone(&faulty), options(memory_bytes));
        let mut reader = store.open(&path).await.unwrap();
        let (mut at, mut version) = (0, None);
        let same = |known: &mut Option<u8>, bytes: &[u8], at: u64| {
            let found = version_of(bytes, at).expect("bytes that are of no version");
            assert_eq!(*known.get_or_insert(found), found, "bytes of two versions");
        };
        for step in steps {
            match step {
                ReaderStep::Read(length) => {
                    let mut buffer = vec![0; *length];
                    let read = tokio::task::block_in_place(|| Read::read(&mut reader, &mut buffer));
                    if let Ok(count) = read {
                        assert!(count > 0 || at >= SIZE);
                        if count > 0 {
                            same(&mut version, &buffer[..count], at);
                        }
                        at += count as u64;
                    }
                }
                ReaderStep::AsyncRead(length) => {
                    let mut buffer = vec![0; *length];
                    if let Ok(count) = AsyncReadExt::read(&mut reader, &mut buffer).await {
                        assert!(count > 0 || at >= SIZE);
                        if count > 0 {
                            same(&mut version, &buffer[..count], at);
                        }
                        at += count as u64;
                    }
                }
                ReaderStep::Seek(to) => {
                    AsyncSeekExt::seek(&mut reader, SeekFrom::Start(*to)).await.unwrap();
                    at = *to;
                }
                ReaderStep::Declare(start, length) => reader.declare_range(*start..start + length),
                ReaderStep::Reopen => {
                    reader = store.open(&path).await.unwrap();
                    (at, version) = (0, None);
                }
                ReaderStep::Range(start, length) => {
                    if let Ok(bytes) = store.get_range(&path, *start..start + length).await {
                        assert_eq!(bytes.len() as u64, *length.min(&(SIZE - start)));
                        assert!(version_of(&bytes, *start).is_some());
                    }
                }
                ReaderStep::Ranges(ranges) => {
                    let ranges: Vec<Range<u64>> = ranges
                        .iter()
                        .map(|(start, length)| *start..(start + length).min(SIZE))
                        .collect();
                    if let Ok(all) = store.get_ranges(&path, &ranges).await {
                        for (bytes, range) in all.iter().zip(&ranges) {
                            assert_eq!(bytes.len() as u64, range.end - range.start);
                            assert!(version_of(bytes, range.start).is_some());
                        }
                    }
                }
                ReaderStep::Whole => {
                    if let Ok(found) = store.get(&path).await
                        && let Ok(bytes) = found.bytes().await
                    {
                        assert_eq!(bytes.len() as u64, SIZE);
                        assert!(version_of(&bytes, 0).is_some());
                    }
                }
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn reads_over_faults_return_object_bytes_or_an_error(
        faults in proptest::collection::vec(fault(), 0..60),
        steps in proptest::collection::vec(step(SIZE), 1..60),
        memory_bytes in prop_oneof![Just(MIB), Just(3 * MIB)],
    ) {
        run_steps(faults, &steps, memory_bytes);
    }

    #[test]
    fn an_object_that_is_replaced_is_never_mixed(
        before in proptest::collection::vec(fault(), 0..10),
        after in proptest::collection::vec(fault(), 0..20),
        steps in proptest::collection::vec(step(SIZE), 1..60),
    ) {
        let faults = before.into_iter().chain([Some(StoreFault::Replaced)]).chain(after).collect();
        run_steps(faults, &steps, MIB);
    }
}

fn on_runtime(work: impl Future<Output = ()>) {
    Runtime::new().unwrap().block_on(work);
}

fn requested_ranges(faulty: &FaultyStore) -> Vec<Range<u64>> {
    faulty.requested_ranges.lock().clone()
}

#[test]
fn sequential_read_fetches_each_byte_once_in_growing_windows() {
    on_runtime(async {
        let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
        let store = open_store(Arc::clone(&faulty), options(4 * MIB));
        let mut reader = store.open(&Path::from("a")).await.unwrap();
        let mut all = Vec::new();
        tokio::task::block_in_place(|| Read::read_to_end(&mut reader, &mut all)).unwrap();
        assert!(all == expected_bytes(0, 0..SIZE));
        let stats = reader.stats();
        assert_eq!((stats.served_bytes, stats.fetched_bytes, stats.wasted_bytes), (SIZE, SIZE, 0));
        let mut ranges = requested_ranges(&faulty);
        // The first reads fetch only their own bytes, later ones blocks.
        assert!(ranges[0].end < 64 * KIB, "{ranges:?}");
        ranges.sort_by_key(|range| range.start);
        let blocks = ranges.iter().filter(|range| range.end - range.start == 64 * KIB).count();
        assert!(blocks > 28, "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
    });
}

#[test]
fn random_reads_fetch_only_their_own_bytes() {
    on_runtime(async {
        let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
        let store = open_store(Arc::clone(&faulty), options(4 * MIB));
        let path = Path::from("a");
        let places: Vec<u64> = (0..100).map(|n| n * 7_919 * 1_237 % (SIZE - 5_000)).collect();
        for at in &places {
            let bytes = store.get_range(&path, *at..at + 5_000).await.unwrap();
            assert_eq!(version_of(&bytes, *at), Some(0));
        }
        let fetched: u64 =
            requested_ranges(&faulty).iter().map(|range| range.end - range.start).sum();
        assert!(fetched <= 100 * 5_000 * 105 / 100, "{fetched}");
    });
}

#[test]
fn declared_range_is_fetched_at_once_and_nothing_beyond_it() {
    on_runtime(async {
        let (faulty, permits) = FaultyStore::new_gated(SIZE);
        let faulty = Arc::new(faulty);
        let store = open_store(Arc::clone(&faulty), options(16 * MIB));
        let mut reader = store.open(&Path::from("a")).await.unwrap();
        reader.declare_range(100_000..400_000);
        while requested_ranges(&faulty).len() < 6 {
            tokio::task::yield_now().await;
        }
        permits.add_permits(100);
        AsyncSeekExt::seek(&mut reader, SeekFrom::Start(100_000)).await.unwrap();
        let mut bytes = vec![0; 300_000];
        AsyncReadExt::read_exact(&mut reader, &mut bytes).await.unwrap();
        assert!(bytes == expected_bytes(0, 100_000..400_000));
        let mut ranges = requested_ranges(&faulty);
        ranges.sort_by_key(|range| range.start);
        assert_eq!((ranges.len(), ranges[0].start, ranges[5].end), (6, 100_000, 400_000));
        assert_eq!(reader.stats().wasted_bytes, 0);
    });
}

#[test]
fn blocks_are_halved_towards_the_end_of_an_object() {
    on_runtime(async {
        let size = 40 * MIB + 5;
        let faulty = Arc::new(FaultyStore::new(size, Vec::new()));
        let store = open_store(Arc::clone(&faulty), Options::default());
        let reader = store.open(&Path::from("a")).await.unwrap();
        reader.declare_range(0..size);
        while requested_ranges(&faulty).iter().map(|range| range.end - range.start).sum::<u64>()
            < size
        {
            tokio::task::yield_now().await;
        }
        let mut ranges = requested_ranges(&faulty);
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
        let lengths: Vec<u64> = ranges.iter().map(|range| range.end - range.start).collect();
        assert_eq!(lengths, [vec![2 * MIB; 5], vec![MIB; 29], vec![MIB + 5]].concat());
    });
}

#[test]
fn only_the_last_of_many_files_is_read_in_small_blocks() {
    on_runtime(async {
        let pool = PrefetchPool::new(512 * MIB, Handle::current());
        let mut tasks = Vec::new();
        let mut all = Vec::new();
        // The same size as one of 40 MB has by itself, behind more than the part with smaller blocks.
        for size in [100 * MIB, 40 * MIB] {
            let faulty = Arc::new(FaultyStore::new(size, Vec::new()));
            let meta = faulty.head(&Path::from("a")).await.unwrap();
            let origin = StoreObject::new(Arc::clone(&faulty) as Arc<dyn ObjectStore>, meta);
            let object = pool.open_object(Arc::new(origin), Options::default());
            let ranges: Vec<_> = (0..size).step_by(20 << 20).map(|at| at..at + 20 * MIB).collect();
            tasks.extend(ranges.into_iter().map(|range| {
                vec![ObjectRanges {
                    object: Arc::clone(&object),
                    ranges: vec![range],
                    is_block_aligned: true,
                }]
            }));
            all.push(faulty);
        }
        let course = AccessPlan::new(tasks, 512 * MIB);
        let fetched = |faulty: &FaultyStore| -> u64 {
            requested_ranges(faulty).iter().map(|range| range.end - range.start).sum()
        };
        while all.iter().any(|faulty| fetched(faulty) < faulty.size) {
            tokio::task::yield_now().await;
        }
        drop(course);
        let longest = |faulty: &FaultyStore| {
            requested_ranges(faulty).iter().map(|range| range.end - range.start).max()
        };
        let shortest = |faulty: &FaultyStore| {
            requested_ranges(faulty).iter().map(|range| range.end - range.start).min()
        };
        assert_eq!((longest(&all[0]), shortest(&all[0])), (Some(8 * MIB), Some(2 * MIB)));
        assert_eq!((longest(&all[1]), shortest(&all[1])), (Some(2 * MIB), Some(MIB)));
    });
}

/// An object of the largest possible size whose bytes never arrive.
#[derive(Debug)]
struct EndlessOrigin;

impl Origin for EndlessOrigin {
    fn size(&self) -> u64 {
        u64::MAX
    }

    fn fetch<'a>(
        &'a self,
        _: Range<u64>,
        _: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, tidemill_prefetch::Result<()>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn endless_task_claims_no_more_than_a_window() {
    on_runtime(async {
        let pool = PrefetchPool::new(32 * MIB, Handle::current());
        let object = pool.open_object(Arc::new(EndlessOrigin), Options::default());
        for in_blocks in [true, false] {
            let ranges = std::iter::once(0..u64::MAX / 2).collect();
            let leg =
                ObjectRanges { object: Arc::clone(&object), ranges, is_block_aligned: in_blocks };
            let course = AccessPlan::new(vec![vec![leg]], 256 * MIB);
            assert!(pool.used_bytes() <= 32 * MIB);
            drop(course);
        }
    });
}

/// Reads as a search for the first end of a line does.
#[test]
fn short_read_past_a_block_and_step_back_fetch_nothing_twice() {
    on_runtime(async {
        let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
        let store = open_store(Arc::clone(&faulty), options(4 * MIB));
        let mut reader = store.open(&Path::from("a")).await.unwrap();
        let (start, end) = (128 * KIB - 1_000, 320 * KIB);
        reader.declare_range(start..end);
        AsyncSeekExt::seek(&mut reader, SeekFrom::Start(start)).await.unwrap();
        AsyncReadExt::read_exact(&mut reader, &mut vec![0; 20_000]).await.unwrap();
        AsyncSeekExt::seek(&mut reader, SeekFrom::Start(start + 10)).await.unwrap();
        let mut bytes = vec![0; (end - start - 10) as usize];
        AsyncReadExt::read_exact(&mut reader, &mut bytes).await.unwrap();
        assert!(bytes == expected_bytes(0, start + 10..end));
        let mut ranges = requested_ranges(&faulty);
        ranges.sort_by_key(|range| range.start);
        assert_eq!((ranges[0].start, ranges.last().unwrap().end), (start, end));
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
    });
}

#[test]
fn a_block_that_two_readers_want_is_fetched_once() {
    on_runtime(async {
        let (faulty, permits) = FaultyStore::new_gated(SIZE);
        let faulty = Arc::new(faulty);
        let store = Arc::new(open_store(Arc::clone(&faulty), options(16 * MIB)));
        let path = Path::from("a");
        permits.add_permits(1);
        store.get_range(&path, 0..1).await.unwrap();
        let read = |start: u64| {
            let (store, path) = (Arc::clone(&store), path.clone());
            tokio::spawn(async move { store.get_range(&path, start..70_000).await.unwrap() })
        };
        let one = read(20_000);
        while requested_ranges(&faulty).len() < 2 {
            tokio::task::yield_now().await;
        }
        let two = read(30_000);
        permits.add_permits(1_000);
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert!(
            one == expected_bytes(0, 20_000..70_000) && two == expected_bytes(0, 30_000..70_000)
        );
        let twice =
            requested_ranges(&faulty).iter().filter(|range| range.contains(&40_000)).count();
        assert_eq!(twice, 1);
    });
}

#[test]
fn close_ranges_are_one_request() {
    on_runtime(async {
        let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
        let store = open_store(
            Arc::clone(&faulty),
            Options { block_bytes: 512 * KIB, ..options(64 * MIB) },
        );
        let ranges = [1_000..2_000, 5_000..9_000, 1_500_000..1_500_010];
        let all = store.get_ranges(&Path::from("a"), &ranges).await.unwrap();
        assert_eq!(all.iter().map(|bytes| bytes.len()).collect::<Vec<_>>(), [1_000, 4_000, 10]);
        let mut asked = requested_ranges(&faulty);
        asked.sort_by_key(|range| range.start);
        assert_eq!(asked, [1_000..9_000, 1_500_000..1_500_010]);
    });
}

#[test]
fn bytes_served_from_a_block_are_not_copied() {
    on_runtime(async {
        let faulty = Arc::new(FaultyStore::new(SIZE, Vec::new()));
        let store = open_store(Arc::clone(&faulty), options(16 * MIB));
        let (path, range) = (Path::from("a"), 10_000..50_000);
        store.get_range(&path, 0..1).await.unwrap();
        let two = [range.clone(), range];
        let all = store.get_ranges(&path, &two).await.unwrap();
        assert_eq!(all[0].as_ptr(), all[1].as_ptr());
    });
}

#[test]
fn replaced_object_is_an_error_and_then_read_anew() {
    on_runtime(async {
        let faults = vec![None, Some(StoreFault::Replaced)];
        let store = open_store(Arc::new(FaultyStore::new(SIZE, faults)), options(4 * MIB));
        let path = Path::from("a");
        store.get_range(&path, 0..10).await.unwrap();
        let error = store.get_range(&path, 1_000_000..1_000_010).await.unwrap_err();
        assert!(matches!(error, object_store::Error::Precondition { .. }), "{error}");
        let bytes = store.get_range(&path, 0..100).await.unwrap();
        assert_eq!(version_of(&bytes, 0), Some(1));
    });
}

#[test]
fn read_after_a_failed_read_ignores_older_requests() {
    // Requests are made in the order of need.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for is_declared in [false, true] {
            let (mut faulty, permits) = FaultyStore::new_gated(SIZE);
            let refused = std::iter::repeat_n(Some(StoreFault::Refused), 100);
            let fine = if is_declared { 0 } else { 1 };
            let faults = std::iter::repeat_n(None, fine).chain(refused);
            faulty.faults = parking_lot::Mutex::new(faults.collect());
            let faulty = Arc::new(faulty);
            let store = open_store(Arc::clone(&faulty), options(16 * MIB));
            let mut reader = store.open(&Path::from("a")).await.unwrap();
            let (mut head, mut rest) = (vec![0; 10 * fine], vec![0; 200_000]);
            if is_declared {
                reader.declare_range(0..SIZE);
            }
            permits.add_permits(fine);
            AsyncReadExt::read_exact(&mut reader, &mut head).await.unwrap();
            let start = head.len() as u64;
            let asked_before = requested_ranges(&faulty).len();
            let failing = async { AsyncReadExt::read_exact(&mut reader, &mut rest).await };
            let others_are_on_their_way = async {
                while requested_ranges(&faulty).len() < asked_before + 4 {
                    tokio::task::yield_now().await;
                }
                permits.add_permits(1);
            };
            let (failed, ()) = tokio::join!(failing, others_are_on_their_way);
            failed.unwrap_err();
            // Requests in flight will be refused; new ones will not.
            faulty.faults.lock().clear();
            for at in [100_000, start] {
                AsyncSeekExt::seek(&mut reader, SeekFrom::Start(at)).await.unwrap();
                let reading = async { AsyncReadExt::read_exact(&mut reader, &mut rest).await };
                let (read, ()) = tokio::join!(reading, async { permits.add_permits(1_000) });
                read.unwrap();
                assert!(rest == expected_bytes(0, at..at + 200_000));
            }
        }
    });
}

#[test]
fn cut_off_body_is_resumed_from_its_end() {
    on_runtime(async {
        let faults =
            vec![None, Some(StoreFault::BodyFails(128)), Some(StoreFault::BodyEndsEarly(128))];
        let faulty = Arc::new(FaultyStore::new(SIZE, faults));
        let store = open_store(Arc::clone(&faulty), options(4 * MIB));
        let path = Path::from("a");
        store.get_range(&path, 0..1).await.unwrap();
        let bytes = store.get_range(&path, 40_000..80_000).await.unwrap();
        assert!(bytes == expected_bytes(0, 40_000..80_000));
        assert_eq!(
            requested_ranges(&faulty)[1..],
            [40_000..80_000, 60_000..80_000, 70_000..80_000]
        );
        assert_eq!(store.stats().retries, 2);
    });
}

#[test]
fn senseless_options_are_refused_with_a_hint() {
    on_runtime(async {
        for (options, says) in [
            (Options { block_bytes: 1, ..Options::default() }, "at least 64 KiB"),
            (Options { window_bytes: 1, ..Options::default() }, "holds no block"),
            (Options { memory_bytes: 1, ..Options::default() }, "at least 1 MiB"),
        ] {
            let error = PrefetchStore::new(Arc::new(InMemory::new()), options).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    });
}

#[test]
fn prefetch_store_behaves_as_its_inner_store() {
    on_runtime(async {
        let store = PrefetchStore::new(Arc::new(InMemory::new()), Options::default()).unwrap();
        let (path, empty) = (Path::from("a/b"), Path::from("a/empty"));
        store.put(&path, "some bytes".into()).await.unwrap();
        store.put(&empty, "".into()).await.unwrap();
        assert_eq!(&store.get_range(&path, 5..10).await.unwrap()[..], b"bytes");
        store.put(&path, "others, and more".into()).await.unwrap();
        assert_eq!(&store.get_range(&path, 0..6).await.unwrap()[..], b"others");
        assert_eq!(
            &store.get(&path).await.unwrap().bytes().await.unwrap()[..],
            b"others, and more"
        );
        assert!(store.get(&empty).await.unwrap().bytes().await.unwrap().is_empty());
        assert!(store.get_range(&path, 50..60).await.is_err());
        store.delete(&path).await.unwrap();
        assert!(matches!(
            store.get_range(&path, 0..1).await.unwrap_err(),
            object_store::Error::NotFound { .. }
        ));
    });
}

#[test]
fn a_seek_before_the_beginning_is_refused() {
    on_runtime(async {
        let store = open_store(Arc::new(FaultyStore::new(SIZE, Vec::new())), options(4 * MIB));
        let mut reader = store.open(&Path::from("a")).await.unwrap();
        assert!(Seek::seek(&mut reader, SeekFrom::Current(-1)).is_err());
        assert_eq!(Seek::seek(&mut reader, SeekFrom::End(-1)).unwrap(), SIZE - 1);
        assert_eq!(Seek::seek(&mut reader, SeekFrom::End(5)).unwrap(), SIZE + 5);
        assert_eq!(Read::read(&mut reader, &mut [0; 5]).unwrap(), 0);
    });
}
