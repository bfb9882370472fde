//! What a thread that reads splits is at, and whether it waits in vain.
//!
//! A read cannot be interrupted wherever it waits, so that whoever counts on threads watches them: one that has had
//! nothing for long has another started in its place, and is left to itself.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A read that has given nothing for so long has stalled.
const STALL_THRESHOLD: Duration = Duration::from_millis(100);

/// Of so many threads no more are replaced.
const READER_THREADS_MAX: usize = 256;

/// Of one thread.
#[derive(Debug)]
pub(crate) struct ReaderThreadState {
    run_started_at: Instant,
    /// The split that it reads, and one more; none is 0.
    split_plus_one: AtomicUsize,
    /// When it last had something, in milliseconds of the run; while it waits for others, for ever.
    progress_ms: AtomicU64,
    /// Whether another thread was started in its place.
    is_replaced: AtomicBool,
}

impl ReaderThreadState {
    /// Of a thread of a run that began then.
    pub(crate) fn new(began: Instant) -> Self {
        let reading = ReaderThreadState {
            run_started_at: began,
            split_plus_one: AtomicUsize::new(0),
            progress_ms: AtomicU64::new(0),
            is_replaced: AtomicBool::new(false),
        };
        reading.record_progress();
        reading
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.run_started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// It begins to read a split.
    pub(crate) fn begin_split(&self, split: usize) {
        self.record_progress();
        self.split_plus_one.store(split + 1, Ordering::SeqCst);
    }

    /// It has read it.
    pub(crate) fn end_split(&self) {
        self.split_plus_one.store(0, Ordering::SeqCst);
    }

    /// It has had something, and reads on.
    pub(crate) fn record_progress(&self) {
        self.progress_ms.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    /// It waits for its turn, or until its rows are taken, for as long as that takes; it has not stalled.
    pub(crate) fn suspend_stall_check(&self) {
        self.progress_ms.store(u64::MAX, Ordering::Relaxed);
    }

    /// The split that it reads.
    pub(crate) fn current_split(&self) -> Option<usize> {
        self.split_plus_one.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Whether another was started in its place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::SeqCst)
    }

    /// Whether it waits for something that has not come for long.
    pub(crate) fn has_stalled(&self) -> bool {
        self.is_replaced() || self.idle_time() > STALL_THRESHOLD
    }

    /// For how long it has had nothing.
    pub(crate) fn idle_time(&self) -> Duration {
        let moved_ms = self.progress_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.elapsed_ms().saturating_sub(moved_ms))
    }
}

/// How many threads are to be started in the place of those that wait.
pub(crate) fn mark_stalled_for_replacement<'a>(
    threads: impl ExactSizeIterator<Item = &'a ReaderThreadState>,
) -> usize {
    let may_be = READER_THREADS_MAX.saturating_sub(threads.len());
    let is_new = |thread: &&ReaderThreadState| {
        thread.current_split().is_some()
            && thread.has_stalled()
            && !thread.is_replaced.swap(true, Ordering::SeqCst)
    };
    threads.filter(is_new).take(may_be).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_replaced_once_and_not_while_it_waits_for_others() {
        // A run that began long ago, in which nothing has come since.
        let began = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let stalled = || {
            let reading = ReaderThreadState::new(began);
            reading.begin_split(7);
            reading.progress_ms.store(0, Ordering::Relaxed);
            reading
        };
        let threads = [stalled(), ReaderThreadState::new(began), stalled(), stalled(), stalled()];
        threads[2].suspend_stall_check();
        threads[3].end_split();
        threads[4].progress_ms.store(u64::MAX - 1, Ordering::Relaxed);
        assert_eq!(mark_stalled_for_replacement(threads.iter()), 1);
        assert_eq!(mark_stalled_for_replacement(threads.iter()), 0);
        assert!(threads[0].has_stalled() && threads[0].is_replaced());
        assert_eq!((threads[0].current_split(), threads[3].current_split()), (Some(7), None));
        let many: Vec<ReaderThreadState> = (0..READER_THREADS_MAX).map(|_| stalled()).collect();
        assert_eq!(mark_stalled_for_replacement(many.iter()), 0);
    }
}
