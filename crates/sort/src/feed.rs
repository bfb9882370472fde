//! Blocks from one reader to several threads that push their records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;

use crate::error::Error;
use crate::order::Order;
use crate::sorter::{Sorter, Task};

/// Reads blocks until `read` leaves one empty, and pushes their records by `take` on `threads` threads;
/// block n is task n. Blocks are used again.
pub(crate) fn feed<O: Order, B: Default + Send, E: From<Error> + Send>(
    sorter: &Sorter<O>,
    threads: usize,
    mut read: impl FnMut(&mut B) -> Result<bool, E>,
    take: impl Fn(&mut Task<O>, &B) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (full, blocks) = sync_channel::<(u64, B)>(1);
    let blocks = Mutex::new(blocks);
    let spare = Mutex::new(Vec::new());
    let failed = AtomicBool::new(false);
    let take_block = |number, block: &B| {
        let mut task = sorter.task(number);
        take(&mut task, block)?;
        task.commit().map(|_| ()).map_err(E::from)
    };
    // After a failure blocks are taken and left, so that the reader finds out and never waits.
    let work = || {
        let mut result = Ok(());
        loop {
            let received = blocks.lock().recv();
            let Ok((number, block)) = received else { return result };
            if result.is_ok() {
                result = take_block(number, &block);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
            }
            spare.lock().push(block);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut read_all = || {
            for number in 0.. {
                let mut block = spare.lock().pop().unwrap_or_default();
                if !read(&mut block)?
                    || failed.load(Ordering::Relaxed)
                    || full.send((number, block)).is_err()
                {
                    break;
                }
            }
            Ok(())
        };
        let mut result = read_all();
        drop(full);
        for worker in workers {
            let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}
