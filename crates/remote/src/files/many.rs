//! How something is done to many files at once, and what becomes of those that fail.
//!
//! The thread that finds them fills a short queue; workers, started as they are needed, take from it. One
//! that fails is counted and the first are told; the others go on, until so many have failed that the cause is
//! hardly theirs.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;

use crate::error::{Error, Result};

/// After so many failures no more are tried.
const FAILURES_MAX: u64 = 100;
/// So many that wait for a worker are known, for each.
const QUEUED: usize = 4;
/// How long a thread waits before it looks at the flag.
const LOOK: Duration = Duration::from_millis(50);

/// A file that was not copied, and why.
#[derive(Debug)]
pub struct Failure {
    /// Its URL or path.
    pub url: String,
    /// What went wrong.
    pub error: Error,
}

/// What became of many files.
#[derive(Debug, Default)]
pub struct Copied {
    /// How many are there now that were not.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that had been copied by a run before.
    pub resumed_bytes: u64,
    /// How many were there already.
    pub skipped: u64,
    /// How many could not be copied: at most 100.
    pub failed: Vec<Failure>,
    /// Whether there were more, which were not tried after so many failures.
    pub gave_up: bool,
    /// What should be told, whatever became of the files.
    pub warnings: Vec<String>,
}

/// What became of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Copied { bytes: u64, resumed_bytes: u64 },
    Skipped,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
    has_stopped: bool,
    idle: usize,
    copied: Copied,
}

impl<T> Queue<T> {
    fn next(&self) -> Option<T> {
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

    fn end(&self, stop: bool) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.has_stopped |= stop;
        self.changed.notify_all();
    }
}

/// Does `work` to all that `produce` hands over, `at_once` at a time.
///
/// # Errors
/// Those of `produce`, after what was begun has ended; [`Error::Interrupted`]; and the one failure, if all
/// there was is one and it failed.
pub(super) fn run<T: Send>(
    at_once: usize,
    cancel: &CancelFlag,
    produce: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()>,
    work: impl Fn(&T) -> Result<Done> + Sync,
    name: impl Fn(&T) -> String + Sync,
) -> Result<Copied> {
    let at_once = at_once.max(1);
    let queue = Queue {
        state: Mutex::new(State {
            items: VecDeque::new(),
            is_closed: false,
            has_stopped: false,
            idle: 0,
            copied: Copied::default(),
        }),
        changed: Condvar::new(),
    };
    let worker = || {
        while let Some(item) = queue.next() {
            let done = work(&item);
            let mut state = queue.state.lock();
            match done {
                Ok(Done::Copied { bytes, resumed_bytes }) => {
                    state.copied.files += 1;
                    state.copied.bytes += bytes;
                    state.copied.resumed_bytes += resumed_bytes;
                }
                Ok(Done::Skipped) => state.copied.skipped += 1,
                Err(Error::Interrupted) => {
                    state.has_stopped = true;
                    queue.changed.notify_all();
                    return;
                }
                Err(error) => {
                    let failure = Failure { url: name(&item), error };
                    state.copied.failed.push(failure);
                    if state.copied.failed.len() as u64 >= FAILURES_MAX {
                        state.copied.gave_up |= !(state.is_closed && state.items.is_empty());
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
            while state.items.len() >= at_once * QUEUED && !state.has_stopped {
                queue.changed.wait_for(&mut state, LOOK);
                cancel.check()?;
            }
            if state.has_stopped {
                // Told by whoever stopped it.
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
        queue.end(found.is_err() && cancel.is_cancelled());
        found
    });
    cancel.check()?;
    let mut copied = queue.state.into_inner().copied;
    match found {
        Err(Error::Interrupted) if copied.gave_up => {}
        found => found?,
    }
    if produced == 1
        && let Some(failure) = copied.failed.pop()
    {
        return Err(failure.error);
    }
    Ok(copied)
}

#[cfg(test)]
mod unit {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn of(count: u64, fails: impl Fn(u64) -> bool + Sync) -> Result<Copied> {
        run(
            7,
            &CancelFlag::new(),
            |each| (0..count).try_for_each(each),
            |item| match fails(*item) {
                true => Err(Error::usage("no")),
                false => Ok(Done::Copied { bytes: *item, resumed_bytes: 0 }),
            },
            u64::to_string,
        )
    }

    #[test]
    fn each_is_done_once_and_failures_are_left_behind() {
        let copied = of(1000, |item| item % 100 == 3).unwrap();
        assert_eq!((copied.files, copied.failed.len(), copied.gave_up), (990, 10, false));
        let sum: u64 = (0..1000).filter(|item| item % 100 != 3).sum();
        assert_eq!(copied.bytes, sum);
        assert_eq!(of(0, |_| true).unwrap().files, 0);
        assert!(matches!(of(1, |_| true), Err(Error::Usage { .. })));
    }

    #[test]
    fn when_all_fail_it_is_given_up() {
        let copied = of(100_000, |_| true).unwrap();
        assert!(copied.gave_up && copied.files == 0);
        let failed = copied.failed.len() as u64;
        assert!((FAILURES_MAX..FAILURES_MAX + 7).contains(&failed), "{failed}");
    }

    #[test]
    fn a_search_that_fails_ends_after_what_was_begun() {
        let done = AtomicU64::new(0);
        let ended = run(
            3,
            &CancelFlag::new(),
            |each| {
                (0..5).try_for_each(each)?;
                Err(Error::usage("gone"))
            },
            |_| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(Done::Skipped)
            },
            u64::to_string,
        );
        assert!(matches!(ended, Err(Error::Usage { .. })));
        assert_eq!(done.into_inner(), 5);
    }

    #[test]
    fn what_is_cancelled_ends() {
        let cancel = CancelFlag::new();
        let ended = run(
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
