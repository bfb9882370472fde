//! Work on a thread of its own, while the bar moves and an interrupt is looked for.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tidemill_engine::run_handle::CANCEL_GRACE_PERIOD;
use tidemill_engine::{CancelFlag, Error, Result};

use crate::terminal::{self, RunProgressBar};

/// How often the bar moves and the flag is looked at.
const PROGRESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// What `work` returns, done on a thread of its own while the bar moves. It ends itself when it is to stop.
pub(super) fn run_with_progress<T: Send>(
    bar: &mut RunProgressBar,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    run_on_thread(work, || bar.tick())
}

/// The same for what may be stuck where no flag is looked at: in a read from a pipe that nobody writes to, in a
/// write to one that nobody reads. [`GRACE`] after `cancel` is raised the process ends without it. What was
/// staged without a name goes with the process; what has one stays, hidden, as after a kill.
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
                // Whoever waits is there until this has been sent.
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
