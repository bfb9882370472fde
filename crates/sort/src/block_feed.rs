//! Distribution of blocks from one reader to several threads that push their records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;

use crate::error::Error;
use crate::record_order::RecordOrder;
use crate::sorter::{SortTask, Sorter};

/// Reads blocks until `read` leaves one empty, and pushes their records by `take` on `threads` threads;
/// block n is task n. Blocks are reused.
pub(crate) fn feed_blocks<O: RecordOrder, B: Default + Send, E: From<Error> + Send>(
    sorter: &Sorter<O>,
    threads: usize,
    mut read: impl FnMut(&mut B) -> Result<bool, E>,
    take: impl Fn(&mut SortTask<O>, &B) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let mut numbers = 0..;
    let read = |block: &mut B| {
        let more = read(block)?;
        Ok(numbers.next().filter(|_| more).map(|task| BlockTask { task, is_last: true }))
    };
    feed_lanes(sorter, threads, 1, read, take)
}

/// The task that a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockTask {
    pub(crate) task: u64,
    /// True if no other block of the task follows. The last task of all may leave it open.
    pub(crate) is_last: bool,
}

/// As [`feed_blocks`], for tasks of several consecutive blocks. Each task has one thread.
pub(crate) fn feed_multi_block_tasks<O: RecordOrder, B: Default + Send, E: From<Error> + Send>(
    sorter: &Sorter<O>,
    threads: usize,
    read: impl FnMut(&mut B) -> Result<Option<BlockTask>, E>,
    take: impl Fn(&mut SortTask<O>, &B) -> Result<(), E> + Sync,
) -> Result<(), E> {
    feed_lanes(sorter, threads, threads.max(1), read, take)
}

/// Assigns tasks to `lanes` lanes in turn, each with threads of its own; one thread if tasks have several
/// blocks.
fn feed_lanes<O: RecordOrder, B: Default + Send, E: From<Error> + Send>(
    sorter: &Sorter<O>,
    threads: usize,
    lanes: usize,
    mut read: impl FnMut(&mut B) -> Result<Option<BlockTask>, E>,
    take: impl Fn(&mut SortTask<O>, &B) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (full, blocks): (Vec<_>, Vec<_>) = (0..lanes)
        .map(|_| {
            let (full, blocks) = sync_channel::<(BlockTask, B)>(1);
            (full, Mutex::new(blocks))
        })
        .unzip();
    let spare = Mutex::new(Vec::new());
    let failed = AtomicBool::new(false);
    let take_block = |open: &mut Option<SortTask<O>>, place: BlockTask, block: &B| {
        let task = open.get_or_insert_with(|| sorter.start_task(place.task));
        take(task, block)?;
        match open.take_if(|_| place.is_last) {
            Some(task) => task.commit().map(|_| ()).map_err(E::from),
            None => Ok(()),
        }
    };
    // After a failure blocks are taken and left, so that the reader notices it and never waits.
    let work = |lane: usize| {
        let (mut result, mut open) = (Ok(()), None);
        loop {
            let received = blocks[lane].lock().recv();
            let Ok((place, block)) = received else { break };
            if result.is_ok() {
                result = take_block(&mut open, place, &block);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
            }
            spare.lock().push(block);
        }
        match open {
            Some(task) if result.is_ok() => task.commit().map(|_| ()).map_err(E::from),
            _ => result,
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..threads.max(1)).map(|thread| scope.spawn(move || work(thread % lanes))).collect();
        let mut read_all = || {
            loop {
                let mut block = spare.lock().pop().unwrap_or_default();
                let Some(place) = read(&mut block)? else { break };
                let lane = (place.task % lanes as u64) as usize;
                if failed.load(Ordering::Relaxed) || full[lane].send((place, block)).is_err() {
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
