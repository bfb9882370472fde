//! Opening a source some of whose files do not answer, or cannot be read.
//!
//! Who has to answer by a deadline from a sample of the data can go without some of it, if that is said, and cannot
//! wait for a file system that hangs. A read that hangs cannot be called back; so files are first **asked** by a
//! thread beside, which is left to itself where no answer comes in time and ends when the file does answer. A
//! file that has answered is then read as ever.
//!
//! ```text
//!   listed ── asked ─┬ answers      ── sampled, cut, read
//!                    ├ no answer    ── text: not sampled, a split of its own; else left out, as its columns are not known
//!                    └ an error     ── left out
//! ```
//!
//! What turns out to be damaged while the columns are looked for is left out too, and they are looked for again.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;

use super::error::{Error, Result};
use super::{FileLocation, SourceFile};

/// A file that answers does so within this.
const FILE_WAIT: Duration = Duration::from_millis(200);
/// In a folder where so many files have not answered one after another, no others are asked: each would take its time, and
/// a thread.
const UNANSWERED_MAX: usize = 4;
/// What is read of a file to see that it can be: of its beginning, and of its end.
const ASKED_BYTES: usize = 4 << 10;
/// How often somebody who waits for the whole looks whether the run is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// How long the opening of a source waits for what does not answer.
#[derive(Debug, Clone)]
pub struct Patience {
    /// How long for one file. Default: 200 ms.
    pub file_wait: Duration,
    /// Until when for all together. Default: for ever.
    pub until: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { file_wait: FILE_WAIT, until: None }
    }
}

/// A file that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The path, as messages show it.
    pub path: String,
    /// Its position among the source's files; none where it is not even among them.
    pub file: Option<usize>,
    /// Its bytes as stored; 0 where they are not known.
    pub bytes: u64,
    /// Why it is not read.
    pub reason: String,
}

type Work = Box<dyn FnOnce() + Send>;

/// Asks files, and notes what is left out.
#[derive(Debug)]
pub(super) struct Asking {
    patience: Patience,
    /// Threads that wait for work, each by the end of its queue; one that is not here hangs, and ends with its file.
    idle: Mutex<Vec<Sender<Work>>>,
    /// In each folder, how many files have not answered since one did.
    unanswered: Mutex<HashMap<PathBuf, usize>>,
    left_out: Mutex<Vec<LeftOut>>,
}

impl Asking {
    pub(super) fn new(patience: Patience) -> Self {
        let (idle, unanswered, left_out) = (Mutex::default(), Mutex::default(), Mutex::default());
        Asking { patience, idle, unanswered, left_out }
    }

    fn left(&self) -> Duration {
        let left = self.patience.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(self.patience.file_wait, |left| left.min(self.patience.file_wait))
    }

    /// What comes of asking something of a file; none where it does not answer in time.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        if self.unanswered.lock().get(&folder).is_some_and(|count| *count >= UNANSWERED_MAX) {
            return None;
        }
        let (tell, told) = channel();
        let work = Box::new(move || {
            let _ = tell.send(work());
        });
        let idle = self.idle.lock().pop().or_else(started);
        let answer = idle.and_then(|helper| {
            helper.send(work).ok()?;
            let answer = told.recv_timeout(self.left()).ok()?;
            self.idle.lock().push(helper);
            Some(answer)
        });
        let mut unanswered = self.unanswered.lock();
        match answer {
            Some(_) => drop(unanswered.remove(&folder)),
            None => *unanswered.entry(folder).or_default() += 1,
        }
        answer
    }

    /// Whether a file can be read now. One that cannot at all is left out.
    pub(super) fn answers(&self, file: &SourceFile) -> bool {
        if file.left_out.get().is_some() {
            return false;
        }
        let FileLocation::Local(path) = &file.place else { return true };
        *file.answers.get_or_init(|| {
            let (asked, size) = (path.clone(), file.size());
            match self.ask(path, move || looked_at(&asked, size)) {
                Some(Ok(())) => true,
                Some(Err(error)) => {
                    file.leave_out(error.to_string());
                    false
                }
                None => false,
            }
        })
    }

    /// Why a file is not read that does not answer.
    pub(super) fn no_answer(&self) -> String {
        format!("it did not answer within {} ms", self.patience.file_wait.as_millis())
    }

    /// Notes a file that will not even be one of the source's.
    pub(super) fn note(&self, path: &Path, reason: String) {
        let path = path.display().to_string();
        self.left_out.lock().push(LeftOut { path, file: None, bytes: 0, reason });
    }

    /// What has been noted.
    pub(super) fn noted(&self) -> Vec<LeftOut> {
        self.left_out.lock().clone()
    }

    /// Leaves out the file that an error is about.
    ///
    /// # Errors
    /// The error itself, where it is about none of the files, or where no other is left.
    pub(super) fn leave_out(&self, files: &[Arc<SourceFile>], error: Error) -> Result<()> {
        let is_read = |file: &&Arc<SourceFile>| file.left_out.get().is_none() && file.size() > 0;
        let is_over = self.patience.until.is_some_and(|until| Instant::now() >= until);
        let path = error.path_at_fault().filter(|_| !is_over);
        let Some(file) = path.and_then(|path| files.iter().find(|file| *file.shown == *path))
        else {
            return Err(error);
        };
        let others = files.iter().filter(|other| other.index != file.index);
        if !is_read(&file) || others.filter(is_read).count() == 0 {
            return Err(error);
        }
        file.leave_out(error.to_string());
        Ok(())
    }
}

/// A thread that does what it is given, until nobody gives it any more.
fn started() -> Option<Sender<Work>> {
    let (give, given): (Sender<Work>, Receiver<Work>) = channel();
    let work = move || {
        tidemill_base::panics::all_are_caught();
        given.into_iter().for_each(|work| work());
    };
    std::thread::Builder::new().name("asks-files".into()).spawn(work).ok()?;
    Some(give)
}

/// Reads a little of a file.
fn looked_at(path: &Path, size: u64) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    let mut bytes = [0; ASKED_BYTES];
    file.read_at(&mut bytes, 0)?;
    let end = size.saturating_sub(ASKED_BYTES as u64);
    if end > 0 {
        file.read_at(&mut bytes, end)?;
    }
    Ok(())
}

/// What comes of `open` by the deadline. It goes on beside, if it hangs, and is told to stop.
///
/// # Errors
/// Its own; [`Error::Io`] where it takes too long; [`Error::Interrupted`].
pub(super) fn by_deadline<T: Send + 'static>(
    patience: &Patience,
    url: &str,
    cancel: &Cancel,
    open: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
) -> Result<T> {
    let part = cancel.part();
    let (tell, told) = channel();
    let stop = part.clone();
    let work = move || {
        tidemill_base::panics::all_are_caught();
        let _ = tell.send(open(&part));
    };
    let started = std::thread::Builder::new().name("opens-source".into()).spawn(work);
    started.map_err(|error| Error::io("open", url, error))?;
    loop {
        let left = patience.until.map(|until| until.saturating_duration_since(Instant::now()));
        match told.recv_timeout(left.map_or(LOOK, |left| left.min(LOOK))) {
            Ok(opened) => return opened,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal(format!("the thread that opens `{url}` gave up")));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupted) = cancel.check() {
                    stop.cancel();
                    return Err(interrupted.into());
                }
                if patience.until.is_some_and(|until| Instant::now() >= until) {
                    stop.cancel();
                    let late = io::Error::new(
                        io::ErrorKind::TimedOut,
                        "it did not answer before the deadline",
                    );
                    return Err(Error::io("open", tidemill_base::redact::shown(url), late));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_answer_is_not_asked_for_ever() {
        let asking = |wait| Asking::new(Patience { file_wait: wait, until: None });
        let long = asking(Duration::from_secs(600));
        assert_eq!(long.ask(Path::new("/a/x"), || 1), Some(1));
        assert_eq!(long.idle.lock().len(), 1);
        let short = asking(Duration::from_millis(1));
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..UNANSWERED_MAX {
            let released = Arc::clone(&released);
            let hangs = move || released.lock().recv();
            assert!(short.ask(Path::new("/b/x"), hangs).is_none());
        }
        assert_eq!(short.idle.lock().len(), 0, "threads that hang are not waited for");
        let asked = Arc::new(Mutex::new(false));
        let ask = Arc::clone(&asked);
        assert!(short.ask(Path::new("/b/y"), move || *ask.lock() = true).is_none());
        assert!(!*asked.lock());
        drop(release);
    }

    #[test]
    fn what_takes_too_long_to_open_is_told_to_stop() {
        let until = Some(Instant::now());
        let patience = Patience { until, ..Patience::default() };
        let (tell, told) = channel();
        let open = move |cancel: &Cancel| {
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            let _ = tell.send(());
            Err::<(), _>(Error::Interrupted)
        };
        let opened = by_deadline(&patience, "s3://a/b", &Cancel::new(), open);
        assert!(opened.is_err());
        told.recv().unwrap();
    }
}
