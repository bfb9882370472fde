//! The state of threads that read splits, by which stalled reads are detected.
//!
//! A blocked read cannot be interrupted. A run that needs its threads therefore watches them: it starts a
//! replacement thread for one that has received nothing for long, and abandons the blocked one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time without data after which a read counts as stalled.
const STALL_THRESHOLD: Duration = Duration::from_millis(100);

/// Maximum number of threads; at this number no thread is replaced.
const READER_THREADS_MAX: usize = 256;

/// The progress of one thread that reads splits.
#[derive(Debug)]
pub(crate) struct ReaderThreadState {
    run_started_at: Instant,
    /// The split being read, plus one; 0 for none.
    split_plus_one: AtomicUsize,
    /// Time of the last progress, in milliseconds of the run; `u64::MAX` while the thread waits for others.
    progress_ms: AtomicU64,
    /// True if a replacement thread was started.
    is_replaced: AtomicBool,
}

impl ReaderThreadState {
    /// Creates the state of a thread, in a run that started at `began`.
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

    /// Records that the thread begins to read a split.
    pub(crate) fn begin_split(&self, split: usize) {
        self.record_progress();
        self.split_plus_one.store(split + 1, Ordering::SeqCst);
    }

    /// Records that the thread has finished its split.
    pub(crate) fn end_split(&self) {
        self.split_plus_one.store(0, Ordering::SeqCst);
    }

    /// Records that data arrived and the thread reads on.
    pub(crate) fn record_progress(&self) {
        self.progress_ms.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    /// Records that the thread waits for its turn, or until its rows are taken. Such a wait is no stall,
    /// however long.
    pub(crate) fn suspend_stall_check(&self) {
        self.progress_ms.store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns the split being read.
    pub(crate) fn current_split(&self) -> Option<usize> {
        self.split_plus_one.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Returns true if a replacement thread was started.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::SeqCst)
    }

    /// Returns true if the thread has waited too long for data.
    pub(crate) fn has_stalled(&self) -> bool {
        self.is_replaced() || self.idle_time() > STALL_THRESHOLD
    }

    /// Returns the time since the last progress.
    pub(crate) fn idle_time(&self) -> Duration {
        let moved_ms = self.progress_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.elapsed_ms().saturating_sub(moved_ms))
    }
}

/// Marks stalled threads as replaced, and returns the number of replacement threads to start.
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
        // A run that started long ago and has received nothing since.
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
