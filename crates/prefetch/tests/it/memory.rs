//! Memory, counted by the allocator: what is fetched ahead stays within the budget.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use object_store::path::Path;
use tidemill_prefetch::{Options, PrefetchPool, PrefetchStore};
use tokio::runtime::Runtime;

use crate::faulty_store::FaultyStore;

/// Block size of this test, which no other allocation has.
const BLOCK_BYTES: usize = 64 << 10;

struct BlockCountingAllocator;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static CURRENT_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for BlockCountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == BLOCK_BYTES + 1 && IS_COUNTING.load(Ordering::SeqCst) {
            let now = CURRENT_BYTES.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
            PEAK_BYTES.fetch_max(now, Ordering::SeqCst);
        }
        // SAFETY: as asked.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.size() == BLOCK_BYTES + 1 && IS_COUNTING.load(Ordering::SeqCst) {
            CURRENT_BYTES.fetch_sub(layout.size(), Ordering::SeqCst);
        }
        // SAFETY: as asked.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: BlockCountingAllocator = BlockCountingAllocator;

#[test]
fn many_readers_hold_no_more_than_the_budget() {
    let runtime = Runtime::new().unwrap();
    // An odd block size: no other test allocates exactly as much.
    let options = Options {
        block_bytes: BLOCK_BYTES as u64 + 1,
        window_bytes: 1 << 20,
        memory_bytes: (BLOCK_BYTES as u64 + 1) * 64,
        ..Options::default()
    };
    let pool = PrefetchPool::new(options.memory_bytes, runtime.handle().clone());
    let size = (BLOCK_BYTES as u64 + 1) * 40;
    IS_COUNTING.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let faulty = Arc::new(FaultyStore::new(size, Vec::new()));
                let store = PrefetchStore::with_pool(faulty, pool.clone(), options);
                let mut reader = runtime.block_on(store.open(&Path::from("a"))).unwrap();
                reader.declare_range(0..size);
                let mut part = vec![0; 10_000];
                while reader.read(&mut part).unwrap() > 0 {}
            });
        }
    });
    let most = PEAK_BYTES.load(Ordering::SeqCst) as u64;
    assert!(most > 0, "nothing was counted");
    assert!(most <= options.memory_bytes, "{most} of {}", options.memory_bytes);
    assert_eq!(pool.stats().served_bytes, 8 * size);
}
