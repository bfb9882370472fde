//! How does Python wait? Without the interpreter's lock, looking up twenty times a second: at
//! signals, so that Ctrl-C ends what runs, and at the progress, which is shown to the user.

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

use crate::errors::raise;

/// How long is waited between two looks.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// How often a display is told.
const REDRAW: Duration = Duration::from_millis(100);

/// A Python object that shows the progress of a run: it has `update(bytes_done, bytes_total,
/// rows_done, silent)`, where `silent` says which host has not answered for a while, or is `None`, and `clear()`.
pub struct Display {
    object: Py<PyAny>,
    progress: RunProgress,
    /// When it was told last; none while nobody waits.
    told: Mutex<Option<Instant>>,
}

impl Display {
    /// Shows `progress` by the object, if there is one.
    pub fn new(object: Option<Py<PyAny>>, progress: &RunProgress) -> Option<Arc<Self>> {
        let progress = progress.clone();
        object.map(|object| Arc::new(Display { object, progress, told: Mutex::new(None) }))
    }

    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut told = self.told.lock();
            if told.is_some_and(|told| told.elapsed() < REDRAW) {
                return Ok(());
            }
            *told = Some(Instant::now());
        }
        let silent = silent_hosts::longest_silent_host().map(|silent| silent.to_string());
        let progress = &self.progress;
        let seen = (progress.bytes_done(), progress.bytes_total(), progress.rows_done(), silent);
        no_failure(py, self.object.bind(py).call_method1("update", seen))
    }

    /// Takes away what is shown.
    pub fn clear(&self, py: Python<'_>) -> PyResult<()> {
        if self.told.lock().take().is_none() {
            return Ok(());
        }
        no_failure(py, self.object.bind(py).call_method0("clear"))
    }
}

/// That the progress cannot be shown is no reason to end a run; a signal that arrives
/// meanwhile is.
fn no_failure(py: Python<'_>, called: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    match called {
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
        _ => Ok(()),
    }
}

/// Looks at signals and shows the progress while a thread without the interpreter's lock waits.
pub(crate) struct Waiter {
    cancel: CancelFlag,
    display: Option<Arc<Display>>,
    raised: Option<PyErr>,
}

impl Waiter {
    /// A waiter that stops what `cancel` stops.
    pub(crate) fn new(cancel: CancelFlag, display: Option<Arc<Display>>) -> Self {
        Waiter { cancel, display, raised: None }
    }

    /// Stops the run once a signal's handler has raised something. The run's own end, which
    /// comes within moments, is what ends the wait: what it has staged is gone by then.
    pub(crate) fn tick(&mut self) -> Result<(), Interrupted> {
        if self.raised.is_some() {
            return Ok(());
        }
        let display = self.display.as_deref();
        let looked = Python::try_attach(|py| {
            py.check_signals()?;
            display.map_or(Ok(()), |display| display.tick(py))
        });
        match looked {
            Some(Ok(())) => Ok(()),
            Some(Err(raised)) => {
                self.cancel.cancel();
                self.raised = Some(raised);
                Ok(())
            }
            // The interpreter is ending, and so is what waits.
            None => {
                self.cancel.cancel();
                Err(Interrupted)
            }
        }
    }

    /// Whether a signal's handler has raised something.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.is_some()
    }

    /// What a signal's handler has raised.
    pub(crate) fn raised(self) -> Option<PyErr> {
        self.raised
    }

    /// What the wait has come to; what was shown is taken away.
    pub(crate) fn done<T>(mut self, py: Python<'_>, done: Result<T>) -> PyResult<T> {
        if let Some(display) = &self.display
            && let Err(raised) = display.clear(py)
        {
            self.raised.get_or_insert(raised);
        }
        match self.raised {
            Some(raised) => Err(raised),
            None => done.map_err(|error| raise(py, error)),
        }
    }
}

/// Does something on a thread of its own, which is left behind if Ctrl-C does not end it.
pub(crate) fn on_a_thread<T: Send + 'static>(
    py: Python<'_>,
    cancel: CancelFlag,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    on_a_thread_showing(py, cancel, None, work)
}

/// The same, with its progress shown meanwhile.
pub(crate) fn on_a_thread_showing<T: Send + 'static>(
    py: Python<'_>,
    cancel: CancelFlag,
    display: Option<Arc<Display>>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let mut waiter = Waiter::new(cancel.clone(), display);
    let wait = || -> Result<T> {
        let (sender, receiver) = sync_channel(1);
        std::thread::Builder::new()
            .name("tick".to_owned())
            .spawn(move || {
                // Nobody listens any more if this was left behind.
                let _ = sender.send(work());
            })
            .map_err(|source| Error::io("start", "a thread", source))?;
        let mut cancelled_at = None;
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Internal("a thread ended without an answer".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => waiter.tick()?,
            }
            if cancel.is_cancelled()
                && cancelled_at.get_or_insert_with(Instant::now).elapsed() >= CANCEL_GRACE_PERIOD
            {
                return Err(Error::Interrupted);
            }
        }
    };
    let done = py.detach(wait);
    waiter.done(py, done)
}
