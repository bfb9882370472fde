//! Opening a source some of whose files do not respond, or cannot be read.
//!
//! A query that must answer by a deadline from a sample can go without some of the data if it says so, but
//! cannot wait for a hanging file system. A hanging read cannot be cancelled. A helper thread therefore
//! **probes** files first. If a file does not answer in time, its thread is abandoned; it ends when the file
//! does answer. A file that has answered is then read as usual.
//!
//! ```text
//!   listed ── probed ─┬ an answer ── sampled, cut, read
//!                     ├ no answer ── text: not sampled, a split of its own; else skipped: unknown columns
//!                     └ an error  ── skipped
//! ```
//!
//! A file that proves to be damaged during inference is skipped too, and inference runs again.

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

use crate::error::{Error, Result};
use crate::{FileLocation, SourceFile};

/// Time within which a responsive file answers.
const FILE_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of successive unresponsive files in a folder before its other files are no longer probed.
/// Each would take its timeout and a thread.
const UNANSWERED_FILES_MAX: usize = 4;
/// Maximum number of answers that wait for the caller.
const PENDING_ANSWERS_MAX: usize = 256;
/// Number of bytes read at the beginning and at the end of a file to see that it can be read.
const READ_PROBE_BYTES: usize = 4 << 10;
/// Divisor of the remaining inspection time, which is half of the time until the deadline. Each inspection
/// gets this share, so that several hanging files do not use up all of it.
const INSPECTION_SHARE_DIVISOR: u32 = 4;
/// Share of the remaining inspection time for a remote file as long as none has answered: two fifths.
const FIRST_REMOTE_INSPECTION_SHARE: (u32, u32) = (2, 5);
/// Minimum timeout of an inspection, which a responsive file keeps to.
const INSPECTION_TIMEOUT_MIN: Duration = Duration::from_millis(10);
/// Total time for fruitless inspections of filtered or remote files if there is no deadline. Each gets half
/// of the remaining time.
const FRUITLESS_INSPECTIONS_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum timeout of such an inspection, enough to start a program on a busy machine.
const LATER_INSPECTION_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Time to wait for a cancelled program to end.
const PROGRAM_EXIT_TIMEOUT: Duration = Duration::from_millis(100);
/// Poll interval for cancellation while waiting for the open.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time limits for opening a source whose files may not respond.
#[derive(Debug, Clone)]
pub struct OpenTimeouts {
    /// Timeout for a single file. Default: 200 ms.
    pub file_timeout: Duration,
    /// Deadline for the whole open. Default: none.
    pub deadline: Option<Instant>,
    /// Time at which inference from a read-once stream stops and uses the records that have arrived. Default:
    /// half of the time until the deadline.
    pub pipe_deadline: Option<Instant>,
    /// Flag that ends the open, in addition to the run's own flag. It does not affect later reads: it says
    /// that the data read so far is enough although nothing was read. Default: never set.
    pub early_stop: CancelFlag,
}

impl Default for OpenTimeouts {
    fn default() -> Self {
        OpenTimeouts {
            file_timeout: FILE_TIMEOUT,
            deadline: None,
            pipe_deadline: None,
            early_stop: CancelFlag::new(),
        }
    }
}

/// A file that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Path that messages show.
    pub path: String,
    /// Position among the source's files; none if the file is not part of the source.
    pub file_index: Option<usize>,
    /// Stored size in bytes; 0 if unknown.
    pub stored_bytes: u64,
    /// Reason for skipping the file.
    pub reason: String,
    /// True if the file does not respond; false if it cannot be read.
    pub is_unresponsive: bool,
}

/// Reason for skipping a file.
#[derive(Debug, Clone)]
pub(crate) struct SkipReason {
    pub(crate) message: String,
    /// See [`SkippedFile::is_unresponsive`].
    pub(crate) is_unresponsive: bool,
}

type ProbeJob = Box<dyn FnOnce() + Send>;

/// Probes files, and records skipped ones.
#[derive(Debug)]
pub(crate) struct FileProber {
    timeouts: OpenTimeouts,
    /// Time at which all inspections must end.
    inspection_deadline: Option<Instant>,
    /// Queues of idle helper threads; a thread that is missing here hangs, and ends when its file responds.
    idle_threads: Mutex<Vec<Sender<ProbeJob>>>,
    /// For each folder, the number of files that have not answered since one did.
    unanswered_by_folder: Mutex<HashMap<PathBuf, usize>>,
    /// Total time of fruitless inspections, and the longest time of a successful one.
    inspection_times: Mutex<(Duration, Duration)>,
    skipped_files: Mutex<Vec<SkippedFile>>,
    /// Servers of remote files.
    servers: Mutex<Vec<Endpoint>>,
}

impl FileProber {
    pub(crate) fn new(patience: OpenTimeouts) -> Self {
        let (idle, unanswered, left_out) = (Mutex::default(), Mutex::default(), Mutex::default());
        let now = Instant::now();
        let half = |until: Instant| now + until.saturating_duration_since(now) / 2;
        let looks_until = patience.deadline.map(half);
        let (in_vain, servers) = (Mutex::default(), Mutex::default());
        FileProber {
            timeouts: patience,
            inspection_deadline: looks_until,
            idle_threads: idle,
            unanswered_by_folder: unanswered,
            inspection_times: in_vain,
            skipped_files: left_out,
            servers,
        }
    }

    /// Registers a server that will be used; slow requests to it are hedged.
    pub(crate) fn register_server(&self, server: &Endpoint) {
        server.hedge_early();
        self.servers.lock().push(server.clone());
    }

    /// Adds the servers' last errors to a timeout error.
    pub(crate) fn with_last_server_failure(&self, error: Error) -> Error {
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

    /// Returns the time at which all inspections must end, if there is a deadline.
    pub(crate) fn inspection_deadline(&self) -> Option<Instant> {
        self.inspection_deadline
    }

    fn probe_timeout(&self) -> Duration {
        self.inspection_timeout()
            .map_or(self.timeouts.file_timeout, |left| left.min(self.timeouts.file_timeout))
    }

    /// Returns the time available for one inspection, if there is a deadline.
    fn inspection_timeout(&self) -> Option<Duration> {
        let left = self.inspection_deadline?.saturating_duration_since(Instant::now());
        Some((left / INSPECTION_SHARE_DIVISOR).max(INSPECTION_TIMEOUT_MIN))
    }

    /// Runs a task on a file; returns none if the file does not respond in time.
    pub(crate) fn probe<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let work = Mutex::new(Some(work));
        let once = move |_: &PathBuf| work.lock().take().map(|work| work());
        self.probe_each(vec![path.to_path_buf()], |path| path, once).next().flatten().flatten()
    }

    /// Runs a task on each item and returns the results in order. One helper thread runs all tasks ahead of
    /// the caller: handing over each task costs twenty times as much as a probe.
    pub(crate) fn probe_each<I: Send + Sync + 'static, T: Send + 'static>(
        &self,
        items: Vec<I>,
        path_of: fn(&I) -> &Path,
        work: impl Fn(&I) -> T + Send + Sync + 'static,
    ) -> ProbeAnswers<'_, I, T> {
        let (items, work) = (Arc::new(items), Arc::new(work));
        ProbeAnswers { prober: self, items, path_of, work, next_index: 0, helper: None }
    }

    /// Probes whether files can be read now; [`is_readable`](Self::is_readable) tells the results.
    pub(crate) fn probe_files<'a>(&self, files: impl Iterator<Item = &'a Arc<SourceFile>>) {
        let is_asked = |file: &&Arc<SourceFile>| {
            matches!(file.location, FileLocation::Local(_))
                && file.skip_reason.get().is_none()
                && file.is_readable.get().is_none()
        };
        let files: Vec<Arc<SourceFile>> = files.filter(is_asked).cloned().collect();
        let answers = self.probe_each(
            files.clone(),
            |file| file.local_path_or_empty(),
            |file| probe_read(file.local_path_or_empty(), file.size()),
        );
        files.iter().zip(answers).for_each(|(file, answer)| record_answer(file, answer));
    }

    /// Returns the deadline for inspecting the beginning of a file that may hang and cannot be probed: a
    /// filtered or a remote file.
    pub(crate) fn file_inspection_deadline(&self, file: &SourceFile) -> Option<Instant> {
        if file.filter_program.is_none() && matches!(file.location, FileLocation::Local(_)) {
            return None;
        }
        Some(
            Instant::now()
                + self
                    .remote_inspection_timeout()
                    .unwrap_or_else(|| self.inspection_timeout_without_deadline()),
        )
    }

    /// Returns the timeout for inspecting a remote file. Until a file has answered, the usual response time
    /// is unknown and the share is larger; then it is twice the longest response time.
    fn remote_inspection_timeout(&self) -> Option<Duration> {
        let left = self.inspection_deadline?.saturating_duration_since(Instant::now());
        let longest = self.inspection_times.lock().1;
        let share = match longest.is_zero() {
            true => left / FIRST_REMOTE_INSPECTION_SHARE.1 * FIRST_REMOTE_INSPECTION_SHARE.0,
            false => (left / INSPECTION_SHARE_DIVISOR).max((longest * 2).min(left)),
        };
        Some(share.max(INSPECTION_TIMEOUT_MIN))
    }

    /// Returns the deadline for inspecting a remote file that is not known yet.
    pub(crate) fn remote_inspection_deadline(&self) -> Instant {
        Instant::now()
            + self
                .remote_inspection_timeout()
                .unwrap_or_else(|| self.inspection_timeout_without_deadline())
    }

    /// Records the time that a remote file was waited for, and whether it has answered.
    pub(crate) fn record_remote_wait(&self, waited: Duration, has_answered: bool) {
        let (in_vain, longest) = &mut *self.inspection_times.lock();
        match has_answered {
            true => *longest = waited.max(*longest),
            false => *in_vain += waited,
        }
    }

    /// Returns the inspection timeout if there is no deadline.
    fn inspection_timeout_without_deadline(&self) -> Duration {
        let (in_vain, longest) = *self.inspection_times.lock();
        let share = FRUITLESS_INSPECTIONS_TIMEOUT.saturating_sub(in_vain) / 2;
        // A program that starts slowly does so for each file.
        share
            .max((longest * 2).min(FRUITLESS_INSPECTIONS_TIMEOUT / 2))
            .max(LATER_INSPECTION_TIMEOUT_MIN)
    }

    /// Handles the result of inspecting a file's beginning. `cancel` is the run's flag, and `gave` the number
    /// of bytes that the file's program returned. Returns none for a file that is skipped because the
    /// inspection timed out or failed.
    ///
    /// # Errors
    /// The error of the inspection, if it does not concern the file.
    pub(crate) fn handle_inspection<T>(
        &self,
        file: &SourceFile,
        began: Instant,
        (cancel, gave): (&CancelFlag, u64),
        looked: Result<T>,
    ) -> Result<Option<T>> {
        match looked {
            Ok(found) => {
                let longest = &mut self.inspection_times.lock().1;
                *longest = began.elapsed().max(*longest);
                Ok(Some(found))
            }
            Err(Error::Interrupted) if !cancel.is_cancelled() => {
                let waited = began.elapsed();
                self.inspection_times.lock().0 += waited;
                file.skip_unresponsive(late_file_message(file, waited, gave));
                Ok(None)
            }
            // For a local file, an error would require repeating the other inspections.
            Err(error @ (Error::Remote(_) | Error::Program(_))) => {
                file.skip_unreadable(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the error that none of the files could be inspected, if that is the case.
    pub(crate) fn unanswered_error(&self, files: &[Arc<SourceFile>]) -> Option<Error> {
        let mut read = files.iter().filter(|file| file.size() > 0).peekable();
        read.peek()?;
        let has_answered = |file: &Arc<SourceFile>| {
            file.skip_reason.get().is_none() && file.is_readable.get() != Some(&false)
        };
        if read.any(has_answered) {
            return None;
        }
        let first = files.iter().find_map(|file| Some((file, file.skip_reason.get()?)));
        Some(match first {
            Some((file, reason)) => Error::from_io(
                "read",
                file.display_name(),
                io::Error::other(reason.message.clone()),
            ),
            None => {
                let file = files.first().map_or("", |file| file.display_name());
                Error::from_io("read", file, io::Error::other(self.timeout_message()))
            }
        })
    }

    /// Returns true if a file can be read now. A file with a read error is skipped.
    pub(crate) fn is_readable(&self, file: &SourceFile) -> bool {
        if file.skip_reason.get().is_some() {
            return false;
        }
        let FileLocation::Local(path) = &file.location else { return true };
        if let Some(answers) = file.is_readable.get() {
            return *answers;
        }
        let (asked, size) = (path.clone(), file.size());
        record_answer(file, self.probe(path, move || probe_read(&asked, size)));
        file.is_readable.get() == Some(&true)
    }

    /// Returns the message about a file that does not respond.
    pub(crate) fn timeout_message(&self) -> String {
        if self.probe_timeout().is_zero() {
            return "it did not answer before the deadline".to_owned();
        }
        format!("it did not answer within {} ms", self.timeouts.file_timeout.as_millis())
    }

    /// Records a skipped file that does not become part of the source.
    pub(crate) fn skip_unlisted_file(&self, path: &Path, reason: String, is_late: bool) {
        let path = path.display().to_string();
        let reason = single_line_reason(reason, &path);
        self.skipped_files.lock().push(SkippedFile {
            path,
            file_index: None,
            stored_bytes: 0,
            reason,
            is_unresponsive: is_late,
        });
    }

    /// Returns the recorded files.
    pub(crate) fn skipped_unlisted_files(&self) -> Vec<SkippedFile> {
        self.skipped_files.lock().clone()
    }

    /// Skips the file that an error concerns.
    ///
    /// # Errors
    /// The error itself, if it concerns none of the files, or if no other file remains.
    pub(crate) fn skip_faulty_file(&self, files: &[Arc<SourceFile>], error: Error) -> Result<()> {
        let is_read = |file: &&Arc<SourceFile>| file.skip_reason.get().is_none() && file.size() > 0;
        let is_over = self.timeouts.deadline.is_some_and(|until| Instant::now() >= until);
        let path = error.faulty_path().filter(|_| !is_over);
        let Some(file) =
            path.and_then(|path| files.iter().find(|file| *file.display_name == *path))
        else {
            return Err(error);
        };
        let others = files.iter().filter(|other| other.index != file.index);
        if !is_read(&file) || others.filter(is_read).count() == 0 {
            return Err(error);
        }
        file.skip_unreadable(error.to_string());
        Ok(())
    }
}

/// Results of probing many items, in their order; none for an item that does not respond in time.
pub(crate) struct ProbeAnswers<'a, I, T> {
    prober: &'a FileProber,
    items: Arc<Vec<I>>,
    path_of: fn(&I) -> &Path,
    work: Arc<dyn Fn(&I) -> T + Send + Sync>,
    /// Index of the next item.
    next_index: usize,
    /// The helper thread that probes the remaining items, and the channel of its results.
    helper: Option<(Sender<ProbeJob>, Receiver<T>)>,
}

impl<I: Send + Sync + 'static, T: Send + 'static> ProbeAnswers<'_, I, T> {
    /// Starts probing the items from the next one on.
    fn start_helper(&self) -> Option<(Sender<ProbeJob>, Receiver<T>)> {
        let (tell, told) = sync_channel(PENDING_ANSWERS_MAX);
        let (items, work, from) =
            (Arc::clone(&self.items), Arc::clone(&self.work), self.next_index);
        // A caller that did not wait for a result drops the channel, which ends the helper.
        let ask = Box::new(move || {
            let _ = items[from..].iter().try_for_each(|item| tell.send(work(item)));
        });
        let helper = self.prober.idle_threads.lock().pop().or_else(spawn_helper)?;
        helper.send(ask).ok()?;
        Some((helper, told))
    }
}

impl<I: Send + Sync + 'static, T: Send + 'static> Iterator for ProbeAnswers<'_, I, T> {
    type Item = Option<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.get(self.next_index)?;
        let folder = (self.path_of)(item).parent().unwrap_or(Path::new("")).to_path_buf();
        let count = self.prober.unanswered_by_folder.lock().get(&folder).copied().unwrap_or(0);
        if self.helper.is_none() {
            if count >= UNANSWERED_FILES_MAX {
                self.next_index += 1;
                return Some(None);
            }
            self.helper = self.start_helper();
        }
        let answer = match &self.helper {
            // An available result is taken, whatever the time.
            Some((_, told)) => {
                told.try_recv().ok().or_else(|| told.recv_timeout(self.prober.probe_timeout()).ok())
            }
            None => None,
        };
        self.next_index += 1;
        if answer.is_none() {
            *self.prober.unanswered_by_folder.lock().entry(folder).or_default() += 1;
            self.helper = None;
        } else if count > 0 {
            self.prober.unanswered_by_folder.lock().remove(&folder);
        }
        if self.next_index == self.items.len()
            && let Some((helper, _)) = self.helper.take()
        {
            self.prober.idle_threads.lock().push(helper);
        }
        Some(answer)
    }
}

/// Returns a reason in which line ends of the file's name are escaped, because lines after the first one are
/// hints.
pub(crate) fn single_line_reason(reason: String, name: &str) -> String {
    let shown = escape_control_chars(name, &[]);
    if shown == name { reason } else { reason.replace(name, &shown) }
}

/// Returns the message about a file that did not show its first records in time. Its program may have
/// returned some bytes nevertheless, because records are inspected once there is a block of them.
fn late_file_message(file: &SourceFile, waited: Duration, gave: u64) -> String {
    let waited = waited.as_millis();
    match (&file.filter_program, gave) {
        (None, _) => match file.last_retried_error() {
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

/// Records whether a file can be read now. A file with a read error is skipped.
fn record_answer(file: &SourceFile, answer: Option<io::Result<()>>) {
    if let Some(Err(error)) = &answer {
        file.skip_unreadable(error.to_string());
    }
    let _ = file.is_readable.set(matches!(answer, Some(Ok(()))));
}

/// Starts a thread that runs jobs until its queue is dropped.
fn spawn_helper() -> Option<Sender<ProbeJob>> {
    let (give, given): (Sender<ProbeJob>, Receiver<ProbeJob>) = channel();
    let work = move || {
        tidemill_base::panics::silence_thread_panics();
        given.into_iter().for_each(|work| work());
    };
    std::thread::Builder::new().name("asks-files".into()).spawn(work).ok()?;
    Some(give)
}

/// Reads a little from both ends of a file.
fn probe_read(path: &Path, size: u64) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    let mut bytes = [0; READ_PROBE_BYTES];
    file.read_at(&mut bytes, 0)?;
    let end = size.saturating_sub(READ_PROBE_BYTES as u64);
    if end > 0 {
        file.read_at(&mut bytes, end)?;
    }
    Ok(())
}

/// Returns the result of `open`, or an error at the deadline. A hanging `open` is cancelled and continues on
/// its own thread.
///
/// # Errors
/// Those of `open`; [`Error::Io`] if it takes too long; [`Error::Interrupted`].
pub(crate) fn run_by_deadline<T: Send + 'static>(
    patience: &OpenTimeouts,
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
    started.map_err(|error| Error::from_io("open", url, error))?;
    loop {
        let left = patience.deadline.map(|until| until.saturating_duration_since(Instant::now()));
        match told
            .recv_timeout(left.map_or(CANCEL_POLL_INTERVAL, |left| left.min(CANCEL_POLL_INTERVAL)))
        {
            Ok(opened) => return opened,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal(format!("the thread that opens `{url}` gave up")));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupted) = cancel.check().and_then(|()| patience.early_stop.check())
                {
                    stop.cancel();
                    if has_programs {
                        // The thread that reads from a program ends it.
                        let _ = told.recv_timeout(PROGRAM_EXIT_TIMEOUT);
                    }
                    return Err(interrupted.into());
                }
                if patience.deadline.is_some_and(|until| Instant::now() >= until) {
                    stop.cancel();
                    if has_programs {
                        // The thread that reads from a program ends it.
                        let _ = told.recv_timeout(PROGRAM_EXIT_TIMEOUT);
                    }
                    let late = io::Error::new(
                        io::ErrorKind::TimedOut,
                        "its files could not be listed and looked into before the deadline",
                    );
                    return Err(Error::from_io(
                        "open",
                        tidemill_base::redaction::redact_url(url),
                        late,
                    ));
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
        let asking =
            |wait| FileProber::new(OpenTimeouts { file_timeout: wait, ..OpenTimeouts::default() });
        let long = asking(Duration::from_secs(600));
        assert_eq!(long.probe(Path::new("/a/x"), || 1), Some(1));
        assert_eq!(long.idle_threads.lock().len(), 1);
        let short = asking(Duration::from_millis(1));
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..UNANSWERED_FILES_MAX {
            let released = Arc::clone(&released);
            let hangs = move || released.lock().recv();
            assert!(short.probe(Path::new("/b/x"), hangs).is_none());
        }
        assert_eq!(short.idle_threads.lock().len(), 0, "threads that hang are not waited for");
        let asked = Arc::new(Mutex::new(false));
        let ask = Arc::clone(&asked);
        assert!(short.probe(Path::new("/b/y"), move || *ask.lock() = true).is_none());
        assert!(!*asked.lock());
        drop(release);
    }

    #[test]
    fn looks_that_nothing_comes_of_share_their_time_where_there_is_no_deadline() {
        let asking = FileProber::new(OpenTimeouts::default());
        let mut all = Duration::ZERO;
        for _ in 0..5 {
            let share = asking.inspection_timeout_without_deadline();
            assert_eq!(share, (FRUITLESS_INSPECTIONS_TIMEOUT - all) / 2);
            all += share;
            asking.inspection_times.lock().0 = all;
        }
        asking.inspection_times.lock().0 = FRUITLESS_INSPECTIONS_TIMEOUT * 2;
        assert_eq!(asking.inspection_timeout_without_deadline(), LATER_INSPECTION_TIMEOUT_MIN);
        // A slow program start keeps the timeout of other files long.
        asking.inspection_times.lock().1 = LATER_INSPECTION_TIMEOUT_MIN * 3;
        assert_eq!(asking.inspection_timeout_without_deadline(), LATER_INSPECTION_TIMEOUT_MIN * 6);
        asking.inspection_times.lock().1 = FRUITLESS_INSPECTIONS_TIMEOUT;
        assert_eq!(asking.inspection_timeout_without_deadline(), FRUITLESS_INSPECTIONS_TIMEOUT / 2);
    }

    #[test]
    fn a_look_elsewhere_has_as_long_as_answers_take_there() {
        let until = Some(Instant::now() + Duration::from_secs(2000));
        let asking = FileProber::new(OpenTimeouts { deadline: until, ..OpenTimeouts::default() });
        let seconds = |share: Option<Duration>| share.unwrap().as_secs_f64();
        // Two fifths of half of the time, and less once a file has answered.
        assert!((390.0..=400.0).contains(&seconds(asking.remote_inspection_timeout())));
        asking.inspection_times.lock().1 = Duration::from_secs(300);
        assert!((590.0..=600.0).contains(&seconds(asking.remote_inspection_timeout())));
        asking.inspection_times.lock().1 = Duration::from_secs(1);
        assert!((240.0..=250.0).contains(&seconds(asking.remote_inspection_timeout())));
        asking.inspection_times.lock().1 = Duration::from_secs(9000);
        assert!((990.0..=1000.0).contains(&seconds(asking.remote_inspection_timeout())));
    }

    #[test]
    fn slow_open_is_cancelled_at_its_deadline() {
        let until = Some(Instant::now());
        let patience = OpenTimeouts { deadline: until, ..OpenTimeouts::default() };
        let (tell, told) = channel();
        let open = move |cancel: &CancelFlag| {
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            let _ = tell.send(());
            Err::<(), _>(Error::Interrupted)
        };
        let opened = run_by_deadline(&patience, "s3://a/b", false, &CancelFlag::new(), open);
        assert!(opened.is_err());
        told.recv().unwrap();
    }
}
