//! Runs work on a thread of its own while the progress bar moves and interrupts are checked.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tidemill_engine::run_handle::CANCEL_GRACE_PERIOD;
use tidemill_engine::{CancelFlag, Error, Result};

use crate::terminal::{self, RunProgressBar};

/// Interval for redrawing the bar and checking the cancel flag.
const PROGRESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` on a thread while the bar moves, and returns its result. `work` checks the cancel flag itself.
pub(super) fn run_with_progress<T: Send>(
    bar: &mut RunProgressBar,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    run_on_thread(work, || bar.tick())
}

/// Runs `work` like [`run_with_progress`], for work that may block where it checks no flag: reading from a
/// pipe without a writer, or writing to one without a reader. If `work` still runs [`CANCEL_GRACE_PERIOD`] after `cancel`
/// was raised, the process exits. Staged data without a name vanishes with the process; staged files with a
/// name stay hidden, as after a kill.
pub(super) fn run_with_progress_until_cancelled<T: Send>(
    cancel: &CancelFlag,
    bar: &mut RunProgressBar,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let mut since: Option<Instant> = None;
    run_on_thread(work, || {
        bar.tick();
        if cancel.is_cancelled()
            && since.get_or_insert_with(Instant::now).elapsed() >= CANCEL_GRACE_PERIOD
        {
            bar.clear();
            terminal::exit_interrupted();
        }
    })
}

fn run_on_thread<T: Send>(
    work: impl FnOnce() -> Result<T> + Send,
    mut tick: impl FnMut(),
) -> Result<T> {
    std::thread::scope(|scope| {
        let (done, wait) = channel();
        let worker = std::thread::Builder::new().name("work".into());
        worker
            .spawn_scoped(scope, move || {
                // The receiver lives until this message has been sent.
                let _ = done.send(work());
            })
            .map_err(|error| Error::io("start", "a thread", error))?;
        loop {
            match wait.recv_timeout(PROGRESS_CHECK_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => tick(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Internal("the work ended without an answer".to_owned()));
                }
            }
        }
    })
}
