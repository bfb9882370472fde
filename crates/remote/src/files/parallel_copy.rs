//! Copies many files concurrently and collects the errors of those that fail.
//!
//! The thread that finds the files fills a short queue, and worker threads, which start on demand, take files
//! from it. A failed file is counted and reported, and the others continue. After 100 failures the run stops,
//! because the cause is probably not in the files.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;

use crate::error::{Error, Result};

/// Maximum number of failures; the run stops at this count.
const COPY_FAILURES_MAX: u64 = 100;
/// Maximum number of queued files per worker.
const QUEUED_PER_WORKER: usize = 4;
/// Interval between checks of the cancel flag while a thread waits.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A file that could not be copied, and the error.
#[derive(Debug)]
pub struct CopyFailure {
    /// URL or path of the file.
    pub url: String,
    /// The error.
    pub error: Error,
}

/// Counts and errors of a copy of many files.
#[derive(Debug, Default)]
pub struct CopySummary {
    /// Number of files that were copied.
    pub files: u64,
    /// Their total size in bytes.
    pub bytes: u64,
    /// Bytes of them that an earlier run had copied.
    pub resumed_bytes: u64,
    /// Number of files that were up to date.
    pub skipped: u64,
    /// Files that could not be copied: about 100 at most.
    pub failures: Vec<CopyFailure>,
    /// True if the run stopped after too many failures and left files out.
    pub gave_up: bool,
    /// Warnings for the user, independent of single files.
    pub warnings: Vec<String>,
}

/// Result of the copy of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyOutcome {
    Copied { bytes: u64, resumed_bytes: u64 },
    Skipped,
}

struct CopyQueue<T> {
    state: Mutex<CopyQueueState<T>>,
    changed: Condvar,
}

struct CopyQueueState<T> {
    items: VecDeque<T>,
    is_closed: bool,
    has_stopped: bool,
    idle: usize,
    summary: CopySummary,
}

impl<T> CopyQueue<T> {
    fn pop(&self) -> Option<T> {
        let mut state = self.state.lock();
        state.idle += 1;
        loop {
            if state.has_stopped {
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                state.idle -= 1;
                self.changed.notify_all();
                return Some(item);
            }
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn close(&self, stop: bool) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.has_stopped |= stop;
        self.changed.notify_all();
    }
}

/// Runs `work` on each item that `produce` yields, with `at_once` worker threads.
///
/// # Errors
/// The errors of `produce`, after the started items have finished; [`Error::Interrupted`]; and the error of
/// the item, if there was only one and it failed.
pub(super) fn run_in_parallel<T: Send>(
    at_once: usize,
    cancel: &CancelFlag,
    produce: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()>,
    work: impl Fn(&T) -> Result<CopyOutcome> + Sync,
    name: impl Fn(&T) -> String + Sync,
) -> Result<CopySummary> {
    let at_once = at_once.max(1);
    let queue = CopyQueue {
        state: Mutex::new(CopyQueueState {
            items: VecDeque::new(),
            is_closed: false,
            has_stopped: false,
            idle: 0,
            summary: CopySummary::default(),
        }),
        changed: Condvar::new(),
    };
    let worker = || {
        while let Some(item) = queue.pop() {
            let done = work(&item);
            let mut state = queue.state.lock();
            match done {
                Ok(CopyOutcome::Copied { bytes, resumed_bytes }) => {
                    state.summary.files += 1;
                    state.summary.bytes += bytes;
                    state.summary.resumed_bytes += resumed_bytes;
                }
                Ok(CopyOutcome::Skipped) => state.summary.skipped += 1,
                Err(Error::Interrupted) => {
                    state.has_stopped = true;
                    queue.changed.notify_all();
                    return;
                }
                Err(error) => {
                    let failure = CopyFailure { url: name(&item), error };
                    state.summary.failures.push(failure);
                    if state.summary.failures.len() as u64 >= COPY_FAILURES_MAX {
                        state.summary.gave_up |= !(state.is_closed && state.items.is_empty());
                        state.has_stopped = true;
                        queue.changed.notify_all();
                        return;
                    }
                }
            }
        }
    };
    let (mut started, mut produced) = (0, 0u64);
    let found = std::thread::scope(|scope| {
        let found = produce(&mut |item| {
            produced += 1;
            let mut state = queue.state.lock();
            while state.items.len() >= at_once * QUEUED_PER_WORKER && !state.has_stopped {
                queue.changed.wait_for(&mut state, CANCEL_POLL_INTERVAL);
                cancel.check()?;
            }
            if state.has_stopped {
                // The worker that stopped the run has the error.
                return Err(Error::Interrupted);
            }
            state.items.push_back(item);
            queue.changed.notify_all();
            if state.items.len() > state.idle && started < at_once {
                started += 1;
                let thread = std::thread::Builder::new().name("tidemill-copy".into());
                thread
                    .spawn_scoped(scope, worker)
                    .map_err(|source| Error::io("start", "a thread", source))?;
            }
            Ok(())
        });
        queue.close(found.is_err() && cancel.is_cancelled());
        found
    });
    cancel.check()?;
    let mut copied = queue.state.into_inner().summary;
    match found {
        Err(Error::Interrupted) if copied.gave_up => {}
        found => found?,
    }
    if produced == 1
        && let Some(failure) = copied.failures.pop()
    {
        return Err(failure.error);
    }
    Ok(copied)
}

#[cfg(test)]
mod unit {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn run_on_numbers(count: u64, fails: impl Fn(u64) -> bool + Sync) -> Result<CopySummary> {
        run_in_parallel(
            7,
            &CancelFlag::new(),
            |each| (0..count).try_for_each(each),
            |item| match fails(*item) {
                true => Err(Error::usage("no")),
                false => Ok(CopyOutcome::Copied { bytes: *item, resumed_bytes: 0 }),
            },
            u64::to_string,
        )
    }

    #[test]
    fn every_item_is_processed_once_despite_failures() {
        let copied = run_on_numbers(1000, |item| item % 100 == 3).unwrap();
        assert_eq!((copied.files, copied.failures.len(), copied.gave_up), (990, 10, false));
        let sum: u64 = (0..1000).filter(|item| item % 100 != 3).sum();
        assert_eq!(copied.bytes, sum);
        assert_eq!(run_on_numbers(0, |_| true).unwrap().files, 0);
        assert!(matches!(run_on_numbers(1, |_| true), Err(Error::Usage { .. })));
    }

    #[test]
    fn run_gives_up_after_too_many_failures() {
        let copied = run_on_numbers(100_000, |_| true).unwrap();
        assert!(copied.gave_up && copied.files == 0);
        let failed = copied.failures.len() as u64;
        assert!((COPY_FAILURES_MAX..COPY_FAILURES_MAX + 7).contains(&failed), "{failed}");
    }

    #[test]
    fn failed_search_finishes_started_items_first() {
        let done = AtomicU64::new(0);
        let ended = run_in_parallel(
            3,
            &CancelFlag::new(),
            |each| {
                (0..5).try_for_each(each)?;
                Err(Error::usage("gone"))
            },
            |_| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(CopyOutcome::Skipped)
            },
            u64::to_string,
        );
        assert!(matches!(ended, Err(Error::Usage { .. })));
        assert_eq!(done.into_inner(), 5);
    }

    #[test]
    fn cancelled_run_is_interrupted() {
        let cancel = CancelFlag::new();
        let ended = run_in_parallel(
            2,
            &cancel,
            |each| {
                loop {
                    each(())?;
                }
            },
            |()| {
                cancel.cancel();
                Err(Error::Interrupted)
            },
            |()| String::new(),
        );
        assert!(matches!(ended, Err(Error::Interrupted)));
    }
}
