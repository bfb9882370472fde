//! Waits without the interpreter's lock. Twenty times a second a wait checks signals, so that Ctrl-C ends the
//! run, and shows the progress to the user.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tidemill_engine::cancellation::Interrupted;
use tidemill_engine::remote::silent_hosts;
use tidemill_engine::run_handle::CANCEL_GRACE_PERIOD;
use tidemill_engine::{CancelFlag, Error, Result, RunProgress};

use crate::errors::to_exception;

/// Interval between two checks of signals.
pub(crate) const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between two updates of a display.
const DISPLAY_UPDATE_INTERVAL: Duration = Duration::from_millis(100);

/// A Python object that shows the progress of a run. It has `update(bytes_done, bytes_total,
/// rows_done, silent)` and `clear()`; `silent` names a host that has not answered for a while, or is `None`.
pub struct ProgressDisplay {
    object: Py<PyAny>,
    progress: RunProgress,
    /// Time of the last update; `None` while no wait is in progress.
    updated_at: Mutex<Option<Instant>>,
}

impl ProgressDisplay {
    /// Returns a display of `progress` by the object, if there is one.
    pub fn new(object: Option<Py<PyAny>>, progress: &RunProgress) -> Option<Arc<Self>> {
        let progress = progress.clone();
        object.map(|object| {
            Arc::new(ProgressDisplay { object, progress, updated_at: Mutex::new(None) })
        })
    }

    fn update_if_due(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut told = self.updated_at.lock();
            if told.is_some_and(|told| told.elapsed() < DISPLAY_UPDATE_INTERVAL) {
                return Ok(());
            }
            *told = Some(Instant::now());
        }
        let silent = silent_hosts::longest_silent_host().map(|silent| silent.to_string());
        let progress = &self.progress;
        let seen = (progress.bytes_done(), progress.bytes_total(), progress.rows_done(), silent);
        ignore_display_failure(py, self.object.bind(py).call_method1("update", seen))
    }

    /// Removes the progress from the display.
    pub fn clear(&self, py: Python<'_>) -> PyResult<()> {
        if self.updated_at.lock().take().is_none() {
            return Ok(());
        }
        ignore_display_failure(py, self.object.bind(py).call_method0("clear"))
    }
}

/// Ignores a failing display, which is no reason to end a run; a signal that arrives
/// meanwhile is.
fn ignore_display_failure(py: Python<'_>, called: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    match called {
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
        _ => Ok(()),
    }
}

/// Checks signals and updates the display while a thread waits without the interpreter's lock.
pub(crate) struct SignalWaiter {
    cancel: CancelFlag,
    display: Option<Arc<ProgressDisplay>>,
    exception: Option<PyErr>,
}

impl SignalWaiter {
    /// Creates a waiter that raises `cancel` after a signal.
    pub(crate) fn new(cancel: CancelFlag, display: Option<Arc<ProgressDisplay>>) -> Self {
        SignalWaiter { cancel, display, exception: None }
    }

    /// Cancels the run once a signal handler has raised an exception. The wait then ends with the run, which
    /// takes only moments and removes its staged files.
    pub(crate) fn check_signals(&mut self) -> Result<(), Interrupted> {
        if self.exception.is_some() {
            return Ok(());
        }
        let display = self.display.as_deref();
        let looked = Python::try_attach(|py| {
            py.check_signals()?;
            display.map_or(Ok(()), |display| display.update_if_due(py))
        });
        match looked {
            Some(Ok(())) => Ok(()),
            Some(Err(raised)) => {
                self.cancel.cancel();
                self.exception = Some(raised);
                Ok(())
            }
            // The interpreter is shutting down, and the waiting thread ends with it.
            None => {
                self.cancel.cancel();
                Err(Interrupted)
            }
        }
    }

    /// Returns true if a signal handler has raised an exception.
    pub(crate) fn has_exception(&self) -> bool {
        self.exception.is_some()
    }

    /// Returns the exception that a signal handler has raised.
    pub(crate) fn into_exception(self) -> Option<PyErr> {
        self.exception
    }

    /// Ends the wait: clears the display, and returns the result or the exception.
    pub(crate) fn finish<T>(mut self, py: Python<'_>, done: Result<T>) -> PyResult<T> {
        if let Some(display) = &self.display
            && let Err(raised) = display.clear(py)
        {
            self.exception.get_or_insert(raised);
        }
        match self.exception {
            Some(raised) => Err(raised),
            None => done.map_err(|error| to_exception(py, error)),
        }
    }
}

/// Runs `work` on a thread of its own, which is abandoned if Ctrl-C does not end it in time.
pub(crate) fn run_on_thread<T: Send + 'static>(
    py: Python<'_>,
    cancel: CancelFlag,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    run_on_thread_with_display(py, cancel, None, work)
}

/// Runs `work` like [`run_on_thread`], and displays its progress.
pub(crate) fn run_on_thread_with_display<T: Send + 'static>(
    py: Python<'_>,
    cancel: CancelFlag,
    display: Option<Arc<ProgressDisplay>>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let mut waiter = SignalWaiter::new(cancel.clone(), display);
    let wait = || -> Result<T> {
        let (sender, receiver) = sync_channel(1);
        std::thread::Builder::new()
            .name("tick".to_owned())
            .spawn(move || {
                // The receiver is gone if this thread was abandoned.
                let _ = sender.send(work());
            })
            .map_err(|source| Error::io("start", "a thread", source))?;
        let mut cancelled_at = None;
        loop {
            match receiver.recv_timeout(SIGNAL_CHECK_INTERVAL) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Internal("a thread ended without an answer".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => waiter.check_signals()?,
            }
            if cancel.is_cancelled()
                && cancelled_at.get_or_insert_with(Instant::now).elapsed() >= CANCEL_GRACE_PERIOD
            {
                return Err(Error::Interrupted);
            }
        }
    };
    let done = py.detach(wait);
    waiter.finish(py, done)
}
