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
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::escape_control_chars;
use tidemill_remote::Endpoint;

use super::error::{Error, Result};
use super::{FileLocation, SourceFile};

/// A file that answers does so within this.
const FILE_WAIT: Duration = Duration::from_millis(200);
/// In a folder where so many files have not answered one after another, no others are asked: each would take its time, and
/// a thread.
const UNANSWERED_MAX: usize = 4;
/// So many answers wait for whoever goes through them.
const ASKED_AHEAD: usize = 256;
/// What is read of a file to see that it can be: of its beginning, and of its end.
const ASKED_BYTES: usize = 4 << 10;
/// Half of the time is for looks at files, and each has such a part of what is left of it, so that several that hang do not
/// use all of it up …
const LOOK_SHARE: u32 = 4;
/// … of what is elsewhere more, two fifths, until one has answered …
const FIRST_LOOK_SHARE: (u32, u32) = (2, 5);
/// … but at least this, which a file that answers keeps to …
const LOOK_WAIT_MIN: Duration = Duration::from_millis(10);
/// Where there is no deadline, those that go through a program or are no files of this machine, and show nothing, take so
/// long all together: each has half of what is left of it …
const LOOKS_WAIT: Duration = Duration::from_secs(5);
/// … but at least this, which is enough for a program to start on a machine that has other work.
const LATER_LOOK_WAIT: Duration = Duration::from_millis(100);
/// So long a program is waited for that is told to end.
const PROGRAMS_WAIT: Duration = Duration::from_millis(100);
/// How often somebody who waits for the whole looks whether the run is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// How long the opening of a source waits for what does not answer.
#[derive(Debug, Clone)]
pub struct Patience {
    /// How long for one file. Default: 200 ms.
    pub file_wait: Duration,
    /// Until when for all together. Default: for ever.
    pub until: Option<Instant>,
    /// Until when for what can be read once to show its types; those of the records that have come are taken then. Default: for
    /// half of the time that there is.
    pub pipe_until: Option<Instant>,
    /// What ends the opening besides the run's own flag, and not what is done with the source afterwards: whoever says that
    /// what was read is enough while nothing was. Default: nothing does.
    pub enough: CancelFlag,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { file_wait: FILE_WAIT, until: None, pipe_until: None, enough: CancelFlag::new() }
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
    /// Whether it does not answer; otherwise it cannot be read.
    pub is_late: bool,
}

/// Why a file is left out.
#[derive(Debug, Clone)]
pub(super) struct Reason {
    pub(super) said: String,
    /// As in [`LeftOut`].
    pub(super) is_late: bool,
}

type Work = Box<dyn FnOnce() + Send>;

/// Asks files, and notes what is left out.
#[derive(Debug)]
pub(super) struct Asking {
    patience: Patience,
    /// Until when all looks are to be over.
    looks_until: Option<Instant>,
    /// Threads that wait for work, each by the end of its queue; one that is not here hangs, and ends with its file.
    idle: Mutex<Vec<Sender<Work>>>,
    /// In each folder, how many files have not answered since one did.
    unanswered: Mutex<HashMap<PathBuf, usize>>,
    /// What looks have taken that nothing came of, together, and the longest of the others.
    in_vain: Mutex<(Duration, Duration)>,
    left_out: Mutex<Vec<LeftOut>>,
    /// The servers that are asked.
    servers: Mutex<Vec<Endpoint>>,
}

impl Asking {
    pub(super) fn new(patience: Patience) -> Self {
        let (idle, unanswered, left_out) = (Mutex::default(), Mutex::default(), Mutex::default());
        let now = Instant::now();
        let half = |until: Instant| now + until.saturating_duration_since(now) / 2;
        let looks_until = patience.until.map(half);
        let (in_vain, servers) = (Mutex::default(), Mutex::default());
        Asking { patience, looks_until, idle, unanswered, in_vain, left_out, servers }
    }

    /// Notes a server that is going to be asked, and has it asked a second time where it is slow.
    pub(super) fn asks(&self, server: &Endpoint) {
        server.hedge_early();
        self.servers.lock().push(server.clone());
    }

    /// An error that says that there was no time, with what servers have answered until then.
    pub(super) fn with_what_was_met(&self, error: Error) -> Error {
        match error {
            Error::Io { action, path, source } if source.kind() == io::ErrorKind::TimedOut => {
                let met = self.servers.lock().iter().find_map(Endpoint::last_failure);
                let source = match met {
                    Some(met) => io::Error::new(source.kind(), format!("{source}: {met}")),
                    None => source,
                };
                Error::Io { action, path, source }
            }
            error => error,
        }
    }

    /// Until when all looks are to be over, where there is a deadline.
    pub(super) fn half_time(&self) -> Option<Instant> {
        self.looks_until
    }

    fn left(&self) -> Duration {
        self.share().map_or(self.patience.file_wait, |left| left.min(self.patience.file_wait))
    }

    /// The time that there is for one look.
    fn share(&self) -> Option<Duration> {
        let left = self.looks_until?.saturating_duration_since(Instant::now());
        Some((left / LOOK_SHARE).max(LOOK_WAIT_MIN))
    }

    /// What comes of asking something of a file; none where it does not answer in time.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let work = Mutex::new(Some(work));
        let once = move |_: &PathBuf| work.lock().take().map(|work| work());
        self.ask_each(vec![path.to_path_buf()], |path| path, once).next().flatten().flatten()
    }

    /// The same of many, in their order. They are asked by one thread, one after the other, ahead of whoever goes through
    /// the answers: to hand each over takes twenty times what asking does.
    pub(super) fn ask_each<I: Send + Sync + 'static, T: Send + 'static>(
        &self,
        items: Vec<I>,
        path_of: fn(&I) -> &Path,
        work: impl Fn(&I) -> T + Send + Sync + 'static,
    ) -> Answers<'_, I, T> {
        let (items, work) = (Arc::new(items), Arc::new(work));
        Answers { asking: self, items, path_of, work, at: 0, asked: None }
    }

    /// Whether files can be read now, as [`answers`](Self::answers) tells afterwards.
    pub(super) fn ask_files<'a>(&self, files: impl Iterator<Item = &'a Arc<SourceFile>>) {
        let is_asked = |file: &&Arc<SourceFile>| {
            matches!(file.place, FileLocation::Local(_))
                && file.left_out.get().is_none()
                && file.answers.get().is_none()
        };
        let files: Vec<Arc<SourceFile>> = files.filter(is_asked).cloned().collect();
        let answers = self.ask_each(
            files.clone(),
            |file| file.path(),
            |file| looked_at(file.path(), file.size()),
        );
        files.iter().zip(answers).for_each(|(file, answer)| note_answer(file, answer));
    }

    /// Until when a file has to have shown its beginning that may take for ever, and cannot be asked: one that goes
    /// through a program, and what is elsewhere.
    pub(super) fn looks_until(&self, file: &SourceFile) -> Option<Instant> {
        if file.program.is_none() && matches!(file.place, FileLocation::Local(_)) {
            return None;
        }
        Some(Instant::now() + self.share_elsewhere().unwrap_or_else(|| self.share_of_looks()))
    }

    /// The time that there is for a look at what is elsewhere: as long as none has answered more of it, as how long an
    /// answer takes there is not known yet, and then what two of the slowest took.
    fn share_elsewhere(&self) -> Option<Duration> {
        let left = self.looks_until?.saturating_duration_since(Instant::now());
        let longest = self.in_vain.lock().1;
        let share = match longest.is_zero() {
            true => left / FIRST_LOOK_SHARE.1 * FIRST_LOOK_SHARE.0,
            false => (left / LOOK_SHARE).max((longest * 2).min(left)),
        };
        Some(share.max(LOOK_WAIT_MIN))
    }

    /// Until when something elsewhere is waited for that is not known yet.
    pub(super) fn look_ends(&self) -> Instant {
        Instant::now() + self.share_elsewhere().unwrap_or_else(|| self.share_of_looks())
    }

    /// Notes how long something elsewhere was waited for, and whether it has answered.
    pub(super) fn has_waited(&self, waited: Duration, has_answered: bool) {
        let (in_vain, longest) = &mut *self.in_vain.lock();
        match has_answered {
            true => *longest = waited.max(*longest),
            false => *in_vain += waited,
        }
    }

    /// The same where there is no deadline.
    fn share_of_looks(&self) -> Duration {
        let (in_vain, longest) = *self.in_vain.lock();
        let share = LOOKS_WAIT.saturating_sub(in_vain) / 2;
        // A program that takes long to start does so for each file.
        share.max((longest * 2).min(LOOKS_WAIT / 2)).max(LATER_LOOK_WAIT)
    }

    /// What came of looking at a file's beginning, which was ended where that took too long, and of which its program gave
    /// so many bytes; none for a file that is left out therefore, or because it cannot be read.
    ///
    /// # Errors
    /// That of looking, where it is not about the file.
    pub(super) fn looked<T>(
        &self,
        file: &SourceFile,
        began: Instant,
        (cancel, gave): (&CancelFlag, u64),
        looked: Result<T>,
    ) -> Result<Option<T>> {
        match looked {
            Ok(found) => {
                let longest = &mut self.in_vain.lock().1;
                *longest = began.elapsed().max(*longest);
                Ok(Some(found))
            }
            Err(Error::Interrupted) if !cancel.is_cancelled() => {
                let waited = began.elapsed();
                self.in_vain.lock().0 += waited;
                file.leave_out_late(said_of_late(file, waited, gave));
                Ok(None)
            }
            // Of a file of this machine the other looks would have to be taken anew.
            Err(error @ (Error::Remote(_) | Error::Program(_))) => {
                file.leave_out(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// That none of the files could be looked at, if that is why nothing was found.
    pub(super) fn nobody_answered(&self, files: &[Arc<SourceFile>]) -> Option<Error> {
        let mut read = files.iter().filter(|file| file.size() > 0).peekable();
        read.peek()?;
        let has_answered = |file: &Arc<SourceFile>| {
            file.left_out.get().is_none() && file.answers.get() != Some(&false)
        };
        if read.any(has_answered) {
            return None;
        }
        let first = files.iter().find_map(|file| Some((file, file.left_out.get()?)));
        Some(match first {
            Some((file, reason)) => {
                Error::io("read", file.shown(), io::Error::other(reason.said.clone()))
            }
            None => {
                let file = files.first().map_or("", |file| file.shown());
                Error::io("read", file, io::Error::other(self.no_answer()))
            }
        })
    }

    /// Whether a file can be read now. One that cannot at all is left out.
    pub(super) fn answers(&self, file: &SourceFile) -> bool {
        if file.left_out.get().is_some() {
            return false;
        }
        let FileLocation::Local(path) = &file.place else { return true };
        if let Some(answers) = file.answers.get() {
            return *answers;
        }
        let (asked, size) = (path.clone(), file.size());
        note_answer(file, self.ask(path, move || looked_at(&asked, size)));
        file.answers.get() == Some(&true)
    }

    /// Why a file is not read that does not answer.
    pub(super) fn no_answer(&self) -> String {
        if self.left().is_zero() {
            return "it did not answer before the deadline".to_owned();
        }
        format!("it did not answer within {} ms", self.patience.file_wait.as_millis())
    }

    /// Notes a file that will not even be one of the source's.
    pub(super) fn note(&self, path: &Path, reason: String, is_late: bool) {
        let path = path.display().to_string();
        let reason = in_a_line(reason, &path);
        self.left_out.lock().push(LeftOut { path, file: None, bytes: 0, reason, is_late });
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

/// What comes of asking many, in their order; none for one that does not answer in time.
pub(super) struct Answers<'a, I, T> {
    asking: &'a Asking,
    items: Arc<Vec<I>>,
    path_of: fn(&I) -> &Path,
    work: Arc<dyn Fn(&I) -> T + Send + Sync>,
    /// The next.
    at: usize,
    /// The thread that asks from there on, and what it is told.
    asked: Option<(Sender<Work>, Receiver<T>)>,
}

impl<I: Send + Sync + 'static, T: Send + 'static> Answers<'_, I, T> {
    /// Has the items from the next on asked.
    fn begin(&self) -> Option<(Sender<Work>, Receiver<T>)> {
        let (tell, told) = sync_channel(ASKED_AHEAD);
        let (items, work, from) = (Arc::clone(&self.items), Arc::clone(&self.work), self.at);
        // Whoever did not wait for an answer takes no others.
        let ask = Box::new(move || {
            let _ = items[from..].iter().try_for_each(|item| tell.send(work(item)));
        });
        let helper = self.asking.idle.lock().pop().or_else(started)?;
        helper.send(ask).ok()?;
        Some((helper, told))
    }
}

impl<I: Send + Sync + 'static, T: Send + 'static> Iterator for Answers<'_, I, T> {
    type Item = Option<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.get(self.at)?;
        let folder = (self.path_of)(item).parent().unwrap_or(Path::new("")).to_path_buf();
        let count = self.asking.unanswered.lock().get(&folder).copied().unwrap_or(0);
        if self.asked.is_none() {
            if count >= UNANSWERED_MAX {
                self.at += 1;
                return Some(None);
            }
            self.asked = self.begin();
        }
        let answer = match &self.asked {
            // What is there is taken, whatever the time.
            Some((_, told)) => {
                told.try_recv().ok().or_else(|| told.recv_timeout(self.asking.left()).ok())
            }
            None => None,
        };
        self.at += 1;
        if answer.is_none() {
            *self.asking.unanswered.lock().entry(folder).or_default() += 1;
            self.asked = None;
        } else if count > 0 {
            self.asking.unanswered.lock().remove(&folder);
        }
        if self.at == self.items.len()
            && let Some((helper, _)) = self.asked.take()
        {
            self.asking.idle.lock().push(helper);
        }
        Some(answer)
    }
}

/// A reason in which the file may be named, whose name may have line ends in it: what stands behind the first line of a
/// reason is what can be done about it.
pub(super) fn in_a_line(reason: String, name: &str) -> String {
    let shown = escape_control_chars(name, &[]);
    if shown == name { reason } else { reason.replace(name, &shown) }
}

/// What is said of a file that did not show its first records in time, of which its program may have given some bytes all
/// the same: records are looked at once there is a block of them.
fn said_of_late(file: &SourceFile, waited: Duration, gave: u64) -> String {
    let waited = waited.as_millis();
    match (&file.program, gave) {
        (None, _) => match file.met() {
            Some(met) => format!("it could not be looked at within {waited} ms: {met}"),
            None => format!("it did not answer within {waited} ms"),
        },
        (Some(program), 0) => format!("`{}` gave nothing of it within {waited} ms", program.name()),
        (Some(program), gave) => format!(
            "`{}` gave {} of it within {waited} ms, too little to look at",
            program.name(),
            tidemill_base::coverage::format_decimal_bytes(gave),
        ),
    }
}

/// Notes whether a file can be read now. One that cannot at all is left out.
fn note_answer(file: &SourceFile, answer: Option<io::Result<()>>) {
    if let Some(Err(error)) = &answer {
        file.leave_out(error.to_string());
    }
    let _ = file.answers.set(matches!(answer, Some(Ok(()))));
}

/// A thread that does what it is given, until nobody gives it any more.
fn started() -> Option<Sender<Work>> {
    let (give, given): (Sender<Work>, Receiver<Work>) = channel();
    let work = move || {
        tidemill_base::panics::silence_thread_panics();
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
    has_programs: bool,
    cancel: &CancelFlag,
    open: impl FnOnce(&CancelFlag) -> Result<T> + Send + 'static,
) -> Result<T> {
    let part = cancel.child_flag();
    let (tell, told) = channel();
    let stop = part.clone();
    let work = move || {
        tidemill_base::panics::silence_thread_panics();
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
                if let Err(interrupted) = cancel.check().and_then(|()| patience.enough.check()) {
                    stop.cancel();
                    if has_programs {
                        // Whoever reads from a program ends it.
                        let _ = told.recv_timeout(PROGRAMS_WAIT);
                    }
                    return Err(interrupted.into());
                }
                if patience.until.is_some_and(|until| Instant::now() >= until) {
                    stop.cancel();
                    if has_programs {
                        // Whoever reads from a program ends it.
                        let _ = told.recv_timeout(PROGRAMS_WAIT);
                    }
                    let late = io::Error::new(
                        io::ErrorKind::TimedOut,
                        "its files could not be listed and looked into before the deadline",
                    );
                    return Err(Error::io("open", tidemill_base::redaction::redact_url(url), late));
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
        let asking = |wait| Asking::new(Patience { file_wait: wait, ..Patience::default() });
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
    fn looks_that_nothing_comes_of_share_their_time_where_there_is_no_deadline() {
        let asking = Asking::new(Patience::default());
        let mut all = Duration::ZERO;
        for _ in 0..5 {
            let share = asking.share_of_looks();
            assert_eq!(share, (LOOKS_WAIT - all) / 2);
            all += share;
            asking.in_vain.lock().0 = all;
        }
        asking.in_vain.lock().0 = LOOKS_WAIT * 2;
        assert_eq!(asking.share_of_looks(), LATER_LOOK_WAIT);
        // Where programs take long to begin, others are not given up sooner.
        asking.in_vain.lock().1 = LATER_LOOK_WAIT * 3;
        assert_eq!(asking.share_of_looks(), LATER_LOOK_WAIT * 6);
        asking.in_vain.lock().1 = LOOKS_WAIT;
        assert_eq!(asking.share_of_looks(), LOOKS_WAIT / 2);
    }

    #[test]
    fn a_look_elsewhere_has_as_long_as_answers_take_there() {
        let until = Some(Instant::now() + Duration::from_secs(2000));
        let asking = Asking::new(Patience { until, ..Patience::default() });
        let seconds = |share: Option<Duration>| share.unwrap().as_secs_f64();
        // Two fifths of half of the time, and less once somebody has answered.
        assert!((390.0..=400.0).contains(&seconds(asking.share_elsewhere())));
        asking.in_vain.lock().1 = Duration::from_secs(300);
        assert!((590.0..=600.0).contains(&seconds(asking.share_elsewhere())));
        asking.in_vain.lock().1 = Duration::from_secs(1);
        assert!((240.0..=250.0).contains(&seconds(asking.share_elsewhere())));
        asking.in_vain.lock().1 = Duration::from_secs(9000);
        assert!((990.0..=1000.0).contains(&seconds(asking.share_elsewhere())));
    }

    #[test]
    fn what_takes_too_long_to_open_is_told_to_stop() {
        let until = Some(Instant::now());
        let patience = Patience { until, ..Patience::default() };
        let (tell, told) = channel();
        let open = move |cancel: &CancelFlag| {
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            let _ = tell.send(());
            Err::<(), _>(Error::Interrupted)
        };
        let opened = by_deadline(&patience, "s3://a/b", false, &CancelFlag::new(), open);
        assert!(opened.is_err());
        told.recv().unwrap();
    }
}
