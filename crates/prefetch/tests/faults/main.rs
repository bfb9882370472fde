//! Random reads under random faults of network and server: each returns the bytes of one version or an error,
//! stays within the memory, and ends. From the readers down to HTTP all code is the real one. The tests are a
//! process of their own, whose allocator counts the memory of the network's threads.

#[path = "../wire/server.rs"]
#[allow(dead_code, reason = "it does for others what is not of use here")]
mod server;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use proptest::prelude::*;
use server::{Fault, Server};
use tidemill_prefetch::{Endpoint, Options, PrefetchStore};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::runtime::{Builder, Runtime};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// More than the minimum memory.
const SIZE: u64 = MIB + 412_345;
/// More than ten times the time of a run on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(60);

thread_local! {
    /// True on threads of the network's runtime.
    static IS_NETWORK: Cell<bool> = const { Cell::new(false) };
}

/// Bytes that the network's threads hold in allocations of [`COUNTED_BYTES_MIN`] and more: blocks.
static CURRENT_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);
const COUNTED_BYTES_MIN: usize = 8 << 10;
/// Size of the mark in front of an allocation that may be counted; it says whether it is.
const MARK_BYTES: usize = 16;

struct CountingAllocator;

fn layout_with_mark(layout: Layout) -> Option<Layout> {
    let may = layout.size() >= COUNTED_BYTES_MIN && layout.align() <= MARK_BYTES;
    may.then(|| Layout::from_size_align(layout.size() + MARK_BYTES, MARK_BYTES).ok()).flatten()
}

// SAFETY: the system's allocator does all of it; a larger allocation has a mark in front of it, by the layout
// alone, so that `dealloc` finds it there.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(larger) = layout_with_mark(layout) else {
            // SAFETY: as asked.
            return unsafe { System.alloc(layout) };
        };
        // SAFETY: as asked, with room for the mark.
        let start = unsafe { System.alloc(larger) };
        if start.is_null() {
            return start;
        }
        let counts = IS_NETWORK.try_with(Cell::get).unwrap_or(false);
        if counts {
            let now = CURRENT_BYTES.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
            PEAK_BYTES.fetch_max(now, Ordering::SeqCst);
        }
        // SAFETY: there is room for the mark, and for as much as was asked behind it.
        unsafe {
            start.write(u8::from(counts));
            start.add(MARK_BYTES)
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some(larger) = layout_with_mark(layout) else {
            // SAFETY: as asked.
            return unsafe { System.dealloc(at, layout) };
        };
        // SAFETY: `alloc` put a mark there.
        unsafe {
            let start = at.sub(MARK_BYTES);
            if start.read() == 1 {
                CURRENT_BYTES.fetch_sub(layout.size(), Ordering::SeqCst);
            }
            System.dealloc(start, larger);
        }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Debug, Clone)]
enum FaultTestStep {
    Read(usize),
    ReadAsync(usize),
    Seek(u64),
    Declare(u64, u64),
    Reopen,
    Range(u64, u64),
    Ranges(Vec<(u64, u64)>),
    Whole,
}

fn step() -> impl Strategy<Value = FaultTestStep> {
    let place = || (0..SIZE, 1..300_000u64);
    prop_oneof![
        6 => (1..200_000usize).prop_map(FaultTestStep::Read),
        3 => (1..200_000usize).prop_map(FaultTestStep::ReadAsync),
        3 => (0..SIZE + 10).prop_map(FaultTestStep::Seek),
        2 => (0..SIZE, 0..SIZE).prop_map(|(start, length)| FaultTestStep::Declare(start, length)),
        2 => Just(FaultTestStep::Reopen),
        3 => place().prop_map(|(start, length)| FaultTestStep::Range(start, length)),
        1 => proptest::collection::vec(place(), 1..5).prop_map(FaultTestStep::Ranges),
        1 => Just(FaultTestStep::Whole),
    ]
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    let part = any::<u8>;
    prop_oneof![
        12 => Just(None),
        2 => prop::sample::select(vec![500, 503, 429, 408, 404, 403]).prop_map(|s| Some(Fault::Status(s))),
        1 => Just(Some(Fault::Lost)),
        1 => Just(Some(Fault::Stall)),
        2 => (0..60u8).prop_map(|turns| Some(Fault::Late(turns))),
        2 => part().prop_map(|part| Some(Fault::Short(part))),
        2 => part().prop_map(|part| Some(Fault::Reset(part))),
        1 => part().prop_map(|part| Some(Fault::Hang(part))),
        1 => Just(Some(Fault::Longer)),
        1 => Just(Some(Fault::Elsewhere)),
    ]
}

/// Executes steps; a result that is no error must be bytes of one version, the same for each reader.
async fn run_steps(server: &Server, store: &PrefetchStore, steps: Vec<FaultTestStep>) {
    let path = Path::from("a");
    let Ok(mut reader) = store.open(&path).await else { return };
    let (mut at, mut version) = (0, None);
    let is_one = |bytes: &[u8], at: u64| {
        assert!(server.version_of(bytes, at).is_some(), "bytes that are of no version");
    };
    let went_on = |bytes: Option<&[u8]>, at: &mut u64, version: &mut Option<usize>| {
        let Some(bytes) = bytes else { return };
        assert!(!bytes.is_empty() || *at >= SIZE, "an end before the end");
        if !bytes.is_empty() {
            // A short read may match several versions.
            let known = version.is_some_and(|version| server.is_of(version, bytes, *at));
            if !known {
                let found = server.version_of(bytes, *at).expect("bytes that are of no version");
                assert_eq!(*version.get_or_insert(found), found, "bytes of two versions");
            }
        }
        *at += bytes.len() as u64;
    };
    for step in steps {
        match step {
            FaultTestStep::Read(length) => {
                let mut bytes = vec![0; length];
                let read = Read::read(&mut reader, &mut bytes).ok();
                went_on(read.map(|count| &bytes[..count]), &mut at, &mut version);
            }
            FaultTestStep::ReadAsync(length) => {
                let mut bytes = vec![0; length];
                let read = AsyncReadExt::read(&mut reader, &mut bytes).await.ok();
                went_on(read.map(|count| &bytes[..count]), &mut at, &mut version);
            }
            FaultTestStep::Seek(to) => {
                AsyncSeekExt::seek(&mut reader, SeekFrom::Start(to)).await.unwrap();
                at = to;
            }
            FaultTestStep::Declare(start, length) => reader.declare_range(start..start + length),
            FaultTestStep::Reopen => {
                let Ok(opened) = store.open(&path).await else { continue };
                (reader, at, version) = (opened, 0, None);
            }
            FaultTestStep::Range(start, length) => {
                if let Ok(bytes) = store.get_range(&path, start..start + length).await {
                    assert_eq!(bytes.len() as u64, length.min(SIZE - start));
                    is_one(&bytes, start);
                }
            }
            FaultTestStep::Ranges(ranges) => {
                let ranges: Vec<Range<u64>> = ranges
                    .iter()
                    .map(|(start, length)| *start..(start + length).min(SIZE))
                    .collect();
                if let Ok(all) = store.get_ranges(&path, &ranges).await {
                    for (bytes, range) in all.iter().zip(&ranges) {
                        assert_eq!(bytes.len() as u64, range.end - range.start);
                        is_one(bytes, range.start);
                    }
                }
            }
            FaultTestStep::Whole => {
                if let Ok(found) = store.get(&path).await
                    && let Ok(bytes) = found.bytes().await
                {
                    assert_eq!(bytes.len() as u64, SIZE);
                    is_one(&bytes, 0);
                }
            }
        }
    }
}

fn network_runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(|| IS_NETWORK.set(true))
        .enable_time()
        .build()
        .unwrap()
}

/// Executes steps on threads of its own, with a memory and a time limit, and returns the peak of the memory.
fn run_with_watchdog(
    faults: Vec<Option<Fault>>,
    steps: Vec<FaultTestStep>,
    capacity: usize,
    memory_bytes: u64,
) -> u64 {
    static ONE: Mutex<()> = Mutex::new(());
    // The counters are global.
    let _one = ONE.lock();
    let (done, is_done) = channel();
    let what = format!("{faults:?} {steps:?} {capacity} {memory_bytes}");
    let running = std::thread::spawn(move || {
        let runtime = network_runtime();
        CURRENT_BYTES.store(0, Ordering::SeqCst);
        PEAK_BYTES.store(0, Ordering::SeqCst);
        runtime.block_on(async {
            let server = Arc::new(Server::new(SIZE, faults));
            server.capacity.store(capacity, Ordering::SeqCst);
            let options = Options {
                block_bytes: 64 * KIB,
                window_bytes: 512 * KIB,
                memory_bytes,
                ..Options::default()
            };
            let inner = Arc::new(server.store(&Endpoint::new()));
            let store = PrefetchStore::new(inner, options).unwrap();
            run_steps(&server, &store, steps).await;
        });
        // Requests in flight end with the runtime.
        drop(runtime);
        let _ = done.send(());
    });
    if is_done.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs: {what}");
    }
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
    assert_eq!(CURRENT_BYTES.load(Ordering::SeqCst), 0, "blocks that nobody frees");
    PEAK_BYTES.load(Ordering::SeqCst) as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn reads_under_any_faults_are_right_within_memory_and_end(
        faults in proptest::collection::vec(fault(), 0..60),
        replaced in proptest::option::of(0..60usize),
        steps in proptest::collection::vec(step(), 1..40),
        capacity in prop_oneof![3 => Just(usize::MAX), 1 => 1..6usize],
        memory_bytes in prop_oneof![Just(MIB), Just(2 * MIB)],
    ) {
        let mut faults = faults;
        if let Some(place) = replaced {
            faults.insert(place.min(faults.len()), Some(Fault::Replaced));
        }
        let most = run_with_watchdog(faults, steps, capacity, memory_bytes);
        prop_assert!(most <= memory_bytes, "{most} of {memory_bytes}");
    }
}

#[test]
fn prefetched_bytes_are_the_counted_bytes() {
    // The ranges stay until the last one has been read.
    let ranges = vec![(0, 150_000), (500_000, 150_000), (1_000_000, 150_000)];
    let most = run_with_watchdog(Vec::new(), vec![FaultTestStep::Ranges(ranges)], usize::MAX, MIB);
    assert!((450_000..=MIB).contains(&most), "{most}");
}
