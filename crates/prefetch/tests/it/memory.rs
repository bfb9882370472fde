//! Memory, counted by the allocator: what is fetched ahead stays within the budget.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use object_store::path::Path;
use tidemill_prefetch::{Options, Pool, PrefetchStore};
use tokio::runtime::Runtime;

use crate::faulty::Faulty;

/// Blocks of this test are of a size that nothing else allocates.
const BLOCK: usize = 64 << 10;

struct Counting;

static IS_ON: AtomicBool = AtomicBool::new(false);
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == BLOCK + 1 && IS_ON.load(Ordering::SeqCst) {
            let now = NOW.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
            MOST.fetch_max(now, Ordering::SeqCst);
        }
        // SAFETY: as asked.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.size() == BLOCK + 1 && IS_ON.load(Ordering::SeqCst) {
            NOW.fetch_sub(layout.size(), Ordering::SeqCst);
        }
        // SAFETY: as asked.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn many_readers_hold_no_more_than_the_budget() {
    let runtime = Runtime::new().unwrap();
    // A block of an odd size: no other test allocates just so much.
    let options = Options {
        block_bytes: BLOCK as u64 + 1,
        window_bytes: 1 << 20,
        memory_bytes: (BLOCK as u64 + 1) * 64,
        ..Options::default()
    };
    let pool = Pool::new(options.memory_bytes, runtime.handle().clone());
    let size = (BLOCK as u64 + 1) * 40;
    IS_ON.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let faulty = Arc::new(Faulty::new(size, Vec::new()));
                let store = PrefetchStore::with_pool(faulty, pool.clone(), options);
                let mut reader = runtime.block_on(store.open(&Path::from("a"))).unwrap();
                reader.declare(0..size);
                let mut part = vec![0; 10_000];
                while reader.read(&mut part).unwrap() > 0 {}
            });
        }
    });
    let most = MOST.load(Ordering::SeqCst) as u64;
    assert!(most > 0, "nothing was counted");
    assert!(most <= options.memory_bytes, "{most} of {}", options.memory_bytes);
    assert_eq!(pool.stats().asked_bytes, 8 * size);
}
