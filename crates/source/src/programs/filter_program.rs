//! Filter programs: pass bytes through a program's standard input and output.
//!
//! One thread serves both pipes. It waits until the program accepts input or has output, and does whichever
//! is possible. A program that writes before it has read everything (a decompressor), after it (`sort`), or
//! without reading cannot deadlock. A hanging program can be cancelled at every wait ([`CancelFlag`]). The last
//! messages on standard error are kept for the error if the program fails; those of a successful program are
//! dropped.
//!
//! A program is an argument vector, never a shell command line. It runs in a process group of its own, which
//! is killed as a whole, so that the children of a script end with it. A program with files works in a folder
//! of its own that contains them ([`companion_files`](super::companion_files)); any other program works in the
//! run's folder.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_base::cancellation::{CancelFlag, Interrupted};
use tidemill_base::redaction;

use crate::programs::companion_files::{ProgramFiles, WorkFolder};

/// A result with this module's error.
pub type Result<T, E = ProgramError> = std::result::Result<T, E>;

/// An error of a filter program. Each variant becomes a variant of [`tidemill_base::Error`], which the user
/// sees.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program does not exist, or must not be run.
    #[error("{message}")]
    Usage {
        /// The problem.
        message: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// The program failed.
    #[error("`{program}` {reason}")]
    Failed {
        /// Name of the program.
        program: String,
        /// The file that it processed; empty if it had no input.
        file: String,
        /// Its exit: `ended with status 3`.
        reason: String,
        /// The last bytes of its standard error.
        stderr_tail: String,
    },
    /// The operating system failed on a pipe, or the output could not be written.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The program, or the file that is written.
        path: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A file that the program needs does not exist.
    #[error("no such file: `{path}`")]
    NotFound {
        /// The path as the user wrote it.
        path: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// A file that the program needs has changed.
    #[error("`{path}` changed while it was read: {reason}")]
    FileChanged {
        /// The file.
        path: String,
        /// The difference.
        reason: String,
    },
    /// A remote file that the program needs cannot be fetched.
    #[error(transparent)]
    Remote(tidemill_remote::Error),
    /// The run was cancelled.
    #[error("interrupted")]
    Interrupted,
}

impl ProgramError {
    pub(crate) fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        ProgramError::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    pub(crate) fn from_io_at(action: &'static str, path: &Path, source: io::Error) -> Self {
        ProgramError::Io { action, path: path.display().to_string(), source }
    }

    fn from_io(action: &'static str, path: &str, source: io::Error) -> Self {
        ProgramError::Io { action, path: path.to_owned(), source }
    }
}

impl From<Interrupted> for ProgramError {
    fn from(Interrupted: Interrupted) -> Self {
        ProgramError::Interrupted
    }
}

impl From<tidemill_remote::Error> for ProgramError {
    fn from(error: tidemill_remote::Error) -> Self {
        match error {
            tidemill_remote::Error::Interrupted => ProgramError::Interrupted,
            tidemill_remote::Error::Usage { message, hint } => {
                ProgramError::Usage { message, hint }
            }
            other => ProgramError::Remote(other),
        }
    }
}

impl From<ProgramError> for tidemill_base::Error {
    fn from(error: ProgramError) -> Self {
        use tidemill_base::Error as Told;
        match error {
            ProgramError::Usage { message, hint } => Told::Usage { message, hint },
            ProgramError::Failed { program, file, reason, stderr_tail: said } => {
                Told::UserProgram { program, file, reason, said }
            }
            ProgramError::Io { action, path, source } => Told::io(action, path, source),
            ProgramError::NotFound { path, hint } => Told::NotFound { path, hint },
            ProgramError::FileChanged { path, reason } => Told::FileChanged { path, reason },
            ProgramError::Remote(error) => error.into(),
            ProgramError::Interrupted => Told::Interrupted,
        }
    }
}

/// A program's argument vector, and the files that it finds in its working folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterProgram {
    argv: Arc<[String]>,
    files: Option<Arc<ProgramFiles>>,
}

/// The environment variable that holds the name of the file being filtered.
const FILE_ENV_VARIABLE: &str = "TIDEMILL_FILE";
/// Number of bytes kept of a program's standard error.
const STDERR_TAIL_BYTES_MAX: usize = 4 << 10;
/// Maximum wait before the cancel flag is checked again, in milliseconds.
const POLL_TIMEOUT_MS: i32 = 50;
/// Requested capacity of a pipe: fewer switches between this process and the program.
const PIPE_CAPACITY_BYTES: libc::c_int = 1 << 20;
/// Number of bytes that the `feed` of [`RunningProgram::read`] should append at a time.
pub(crate) const FEED_CHUNK_BYTES: usize = 256 << 10;

impl FilterProgram {
    /// Creates the program `words[0]` with the following words as arguments.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] if there is no word, or one contains a NUL.
    pub fn new(words: Vec<String>) -> Result<Self> {
        let hint = "it is a list, the program first: [\"gzip\", \"-9\"]";
        match words.first() {
            None => Err(ProgramError::usage_with_hint("`exec` names no program", hint)),
            Some(name) if name.is_empty() => Err(ProgramError::usage_with_hint(
                "`exec` names no program: its first word is empty",
                hint,
            )),
            Some(_) if words.iter().any(|word| word.contains('\0')) => {
                Err(ProgramError::usage_with_hint("`exec` has a NUL character in it", hint))
            }
            Some(_) => Ok(FilterProgram { argv: words.into(), files: None }),
        }
    }

    /// Returns the program with these files, in a working folder of its own; without files it runs in the
    /// run's folder.
    #[must_use]
    pub fn with_files(self, files: Option<Arc<ProgramFiles>>) -> Self {
        FilterProgram { files, ..self }
    }

    /// Returns the files that the program finds in its working folder.
    pub fn accompanying_files(&self) -> Option<&Arc<ProgramFiles>> {
        self.files.as_ref()
    }

    /// Checks the program's files, and fetches remote ones.
    ///
    /// # Errors
    /// As [`ProgramFiles::prepare_files`].
    pub fn prepare_files(&self, cancel: &CancelFlag) -> Result<()> {
        match &self.files {
            None => Ok(()),
            Some(files) => files.prepare_files(cancel).map(drop),
        }
    }

    /// Returns the argument vector for a process in another folder: a relative program path becomes absolute
    /// if the program has files.
    ///
    /// # Errors
    /// [`ProgramError::Io`] if the current folder is unknown.
    pub fn portable_argv(&self) -> Result<Vec<String>> {
        let mut words = self.argv.to_vec();
        if let (Some(files), Some(first)) = (&self.files, words.first_mut()) {
            *first = files.executable_path(first)?.display().to_string();
        }
        Ok(words)
    }

    /// Returns the program's name for messages.
    pub fn name(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// Returns the argument vector.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }
}

/// A filter program that is running.
pub(crate) struct RunningProgram {
    name: String,
    /// Name of the file being filtered, for messages.
    file_name: String,
    child: Child,
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
    stderr_tail: Vec<u8>,
    /// Input for the program; the bytes from `written_input_bytes` on are still to be written.
    pending_input: Vec<u8>,
    written_input_bytes: usize,
    cancel: CancelFlag,
    has_ended: bool,
    /// True if a read returns the available bytes instead of waiting for more.
    allows_short_reads: bool,
    /// Number of bytes that the program has returned.
    pub(crate) output_bytes: Arc<AtomicU64>,
    /// The program's own working folder, if it has files. It is the last field, so that it is dropped last.
    work_folder: Option<WorkFolder>,
}

/// The operations that a program's pipes allow now.
#[derive(Default)]
struct ProgramReadiness {
    accepts_input: bool,
    has_output: bool,
}

impl RunningProgram {
    /// Starts `program` on `file`; without `takes` its standard input is empty.
    pub(crate) fn start(
        program: &FilterProgram,
        file: &str,
        takes: bool,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        cancel.check()?;
        let name = program.name().to_owned();
        let words = program.argv();
        let first = match &program.files {
            None => words[0].clone().into(),
            Some(files) => files.executable_path(&words[0])?,
        };
        let work =
            program.files.as_ref().map(|files| files.create_work_folder(cancel)).transpose()?;
        let mut command = Command::new(first);
        if let Some(work) = &work {
            command.current_dir(work.path());
        }
        command
            .args(&words[1..])
            .env(FILE_ENV_VARIABLE, file)
            .stdin(if takes { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(|error| start_error(&name, error))?;
        let stdin = child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stdout = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stderr = child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let filter = RunningProgram {
            name,
            file_name: file.to_owned(),
            child,
            stdin,
            stdout,
            stderr,
            stderr_tail: Vec::new(),
            pending_input: Vec::new(),
            written_input_bytes: 0,
            cancel: cancel.clone(),
            has_ended: false,
            allows_short_reads: false,
            output_bytes: Arc::default(),
            work_folder: work,
        };
        for pipe in [&filter.stdin, &filter.stdout].into_iter().flatten() {
            enlarge_pipe(pipe);
        }
        if let Some(stdin) = &filter.stdin {
            set_nonblocking(stdin).map_err(|e| ProgramError::from_io("start", &filter.name, e))?;
        }
        Ok(filter)
    }

    /// Fills `out` as far as possible with the program's output. Meanwhile it writes the input that `feed`
    /// appends; `feed` returns false at its end. Returns fewer bytes than requested only at the end, after
    /// the program has succeeded, or if short reads are allowed.
    pub(crate) fn read<E: From<ProgramError>>(
        &mut self,
        out: &mut [u8],
        feed: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<usize, E> {
        let mut filled = 0;
        while filled < out.len() && self.stdout.is_some() {
            if self.stdin.is_some() && self.written_input_bytes == self.pending_input.len() {
                self.pending_input.clear();
                self.written_input_bytes = 0;
                if !feed(&mut self.pending_input)? {
                    self.stdin = None;
                }
            }
            let ready = self.wait_until_ready(self.allows_short_reads && filled > 0)?;
            if ready.has_output {
                filled += self.read_output(&mut out[filled..])?;
            } else if self.allows_short_reads && filled > 0 {
                return Ok(filled);
            }
            if ready.accepts_input {
                self.write_input()?;
            }
        }
        if filled < out.len() && !self.has_ended {
            self.wait_for_exit()?;
        }
        Ok(filled)
    }

    /// Lets reads return the available bytes instead of waiting until `out` is full.
    pub(crate) fn set_short_reads_allowed(&mut self, eager: bool) {
        self.allows_short_reads = eager;
    }

    /// Returns true if the program has output or has ended; waits for at most 50 ms.
    pub(crate) fn wait_for_output(&mut self) -> Result<bool> {
        Ok(self.stdout.is_none() || self.wait_until_ready(true)?.has_output)
    }

    /// Returns true if reads return the available bytes.
    pub(crate) fn allows_short_reads(&self) -> bool {
        self.allows_short_reads
    }

    /// Writes `bytes` to the program, and its output so far to `out`.
    fn write_through(&mut self, bytes: &[u8], out: &mut dyn Write) -> Result<()> {
        self.pending_input.clear();
        self.pending_input.extend_from_slice(bytes);
        self.written_input_bytes = 0;
        // A program that closes its input has read all it wants; its exit status tells whether it succeeded.
        while self.stdin.is_some() && self.written_input_bytes < self.pending_input.len() {
            let ready = self.wait_until_ready(false)?;
            if ready.has_output {
                self.forward_output(out)?;
            }
            if ready.accepts_input {
                self.write_input()?;
            }
        }
        Ok(())
    }

    /// Closes the program's input, and writes the rest of its output to `out`.
    fn finish(&mut self, out: &mut dyn Write) -> Result<()> {
        self.stdin = None;
        while self.stdout.is_some() {
            if self.wait_until_ready(false)?.has_output {
                self.forward_output(out)?;
            }
        }
        self.wait_for_exit()
    }

    fn forward_output(&mut self, out: &mut dyn Write) -> Result<()> {
        let mut buffer = [0; 64 << 10];
        let count = self.read_output(&mut buffer)?;
        out.write_all(&buffer[..count])
            .map_err(|error| ProgramError::from_io("write", &self.file_name, error))
    }

    /// Waits until the program accepts input or has output, and keeps its messages.
    fn wait_until_ready(&mut self, once: bool) -> Result<ProgramReadiness> {
        loop {
            self.cancel.check()?;
            let pipes = [
                (&self.stdin, libc::POLLOUT),
                (&self.stdout, libc::POLLIN),
                (&self.stderr, libc::POLLIN),
            ];
            // `poll` ignores a negative descriptor.
            let mut wanted = pipes.map(|(pipe, events)| libc::pollfd {
                fd: pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                events,
                revents: 0,
            });
            // SAFETY: `wanted` is an array of three `pollfd`, whose descriptors are open as long
            // as `self`.
            let count = unsafe { libc::poll(wanted.as_mut_ptr(), 3, POLL_TIMEOUT_MS) };
            if count < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(ProgramError::from_io("wait for", &self.name, error));
            }
            if wanted[2].revents != 0 {
                self.read_stderr();
            }
            let ready = ProgramReadiness {
                accepts_input: wanted[0].revents != 0,
                has_output: wanted[1].revents != 0,
            };
            if ready.accepts_input || ready.has_output || once {
                return Ok(ready);
            }
        }
    }

    /// Reads some of the program's output; closes the pipe at its end.
    fn read_output(&mut self, out: &mut [u8]) -> Result<usize> {
        let Some(stdout) = &mut self.stdout else { return Ok(0) };
        loop {
            match stdout.read(out) {
                Ok(0) => {
                    self.stdout = None;
                    return Ok(0);
                }
                Ok(count) => {
                    self.output_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ProgramError::from_io("read from", &self.name, error)),
            }
        }
    }

    /// Writes some of the pending input; closes the pipe if the program reads no more.
    fn write_input(&mut self) -> Result<()> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        match stdin.write(&self.pending_input[self.written_input_bytes..]) {
            Ok(count) => self.written_input_bytes += count,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                io::ErrorKind::BrokenPipe => self.stdin = None,
                _ => return Err(ProgramError::from_io("write to", &self.name, error)),
            },
        }
        Ok(())
    }

    /// Keeps the last bytes of standard error.
    fn read_stderr(&mut self) {
        let mut buffer = [0; STDERR_TAIL_BYTES_MAX];
        let Some(stderr) = &mut self.stderr else { return };
        match stderr.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.stderr_tail.extend_from_slice(&buffer[..count]);
                let over = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES_MAX);
                self.stderr_tail.drain(..over);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.stderr = None,
        }
    }

    /// Waits for the program to exit, which must be a success.
    fn wait_for_exit(&mut self) -> Result<()> {
        self.stdin = None;
        // Children of the program may hold standard error open, so the exit is polled as well.
        let status = loop {
            let waited = |error| ProgramError::from_io("wait for", &self.name, error);
            if let Some(status) = self.child.try_wait().map_err(waited)? {
                break status;
            }
            self.poll_stderr()?;
        };
        while self.stderr.is_some() && self.has_stderr_output() {
            self.read_stderr();
        }
        self.has_ended = true;
        if status.success() {
            return self.work_folder.as_ref().map_or(Ok(()), WorkFolder::verify_files);
        }
        Err(ProgramError::Failed {
            program: self.name.clone(),
            file: self.file_name.clone(),
            reason: describe_exit(status),
            // A program may repeat arguments that it does not understand.
            stderr_tail: redaction::redact_text(String::from_utf8_lossy(&self.stderr_tail).trim()),
        })
    }

    /// Waits briefly for standard error, after the program has closed its output.
    fn poll_stderr(&mut self) -> Result<()> {
        self.cancel.check()?;
        match &self.stderr {
            Some(stderr) if is_readable(stderr, 10) => self.read_stderr(),
            Some(_) => {}
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
        Ok(())
    }

    fn has_stderr_output(&self) -> bool {
        self.stderr.as_ref().is_some_and(|stderr| is_readable(stderr, 0))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: a signal to the group of a child that has not been waited for, so that its process
            // number is still its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        // A killed child ends at once; without a wait it would remain a zombie.
        let _ = self.child.wait();
    }
}

fn start_error(name: &str, error: io::Error) -> ProgramError {
    match error.kind() {
        io::ErrorKind::NotFound if name.contains(' ') => {
            let words: Vec<String> = name.split_whitespace().map(|w| format!("{w:?}")).collect();
            ProgramError::usage_with_hint(
                format!("no such program: `{name}`"),
                format!("arguments are words of their own: [{}]", words.join(", ")),
            )
        }
        io::ErrorKind::NotFound => ProgramError::usage_with_hint(
            format!("no such program: `{name}`"),
            "`exec` names a program on the PATH, or by its path; a shell's line is \
             [\"sh\", \"-c\", \"…\"]",
        ),
        io::ErrorKind::PermissionDenied => ProgramError::usage_with_hint(
            format!("`{name}` is not a program that may be run"),
            "chmod +x makes a script one, if its first line names its interpreter",
        ),
        _ => ProgramError::from_io("start", name, error),
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended badly".into(),
    }
}

fn is_readable(pipe: &File, wait_ms: i32) -> bool {
    let mut wanted = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one `pollfd` with an open descriptor.
    (unsafe { libc::poll(&raw mut wanted, 1, wait_ms) }) > 0
}

fn set_nonblocking(pipe: &File) -> io::Result<()> {
    // SAFETY: flags of an open descriptor that only this function uses.
    unsafe {
        let flags = libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL);
        if flags < 0 || libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Requests a larger pipe; the default capacity is sufficient otherwise.
#[cfg(target_os = "linux")]
fn enlarge_pipe(pipe: &File) {
    // SAFETY: an open descriptor; the call changes only its capacity.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_CAPACITY_BYTES) };
}

#[cfg(not(target_os = "linux"))]
fn widen(_: &File) {
    let _ = PIPE_CAPACITY_BYTES;
}

/// Filters written bytes through a program, and writes its output to `out`.
pub struct ProgramWriter<W: Write> {
    program: RunningProgram,
    out: W,
}

impl<W: Write> ProgramWriter<W> {
    /// Starts `program`, whose output becomes the file `file`.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] if the program does not exist, or must not be run.
    pub fn start(program: &FilterProgram, file: &str, out: W, cancel: &CancelFlag) -> Result<Self> {
        Ok(ProgramWriter { program: RunningProgram::start(program, file, true, cancel)?, out })
    }

    /// Closes the program's input, waits for its exit, and returns `out`.
    ///
    /// # Errors
    /// [`ProgramError::Failed`] if the program fails; [`ProgramError::Io`] if `out` does.
    pub fn finish(mut self) -> Result<W> {
        self.program.finish(&mut self.out)?;
        Ok(self.out)
    }
}

impl<W: Write> Write for ProgramWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The error passes through the I/O error of `Write`, as the error that the user sees.
        let written = self.program.write_through(bytes, &mut self.out);
        written.map_err(|error| io::Error::other(tidemill_base::Error::from(error)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidemill_base::Error as Told;

    use super::*;

    fn program(words: &[&str]) -> FilterProgram {
        FilterProgram::new(words.iter().map(|word| (*word).to_owned()).collect()).unwrap()
    }

    fn sh(script: &str) -> FilterProgram {
        program(&["sh", "-c", script])
    }

    /// Returns the program's output for this input, read in pieces.
    fn through(program: &FilterProgram, input: &[u8], piece: usize) -> Result<Vec<u8>, Told> {
        let mut filter = RunningProgram::start(program, "a file", true, &CancelFlag::new())?;
        let mut left = input;
        let mut feed = |pending: &mut Vec<u8>| {
            let count = left.len().min(70_000);
            pending.extend_from_slice(&left[..count]);
            left = &left[count..];
            Ok(count > 0)
        };
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            let count = filter.read::<ProgramError>(&mut buffer, &mut feed)?;
            all.extend_from_slice(&buffer[..count]);
            if count < piece {
                return Ok(all);
            }
        }
    }

    fn written(program: &FilterProgram, input: &[u8]) -> Result<Vec<u8>, Told> {
        let mut through = ProgramWriter::start(program, "a file", Vec::new(), &CancelFlag::new())?;
        for piece in input.chunks(300_000) {
            through.write_all(piece).map_err(|error| Told::io("write", "a file", error))?;
        }
        Ok(through.finish()?)
    }

    #[test]
    fn bytes_go_through_whatever_the_program_does_first() {
        let input: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let half = input.len() / 2;
        let count = format!("{}\n", input.len());
        for (script, expected) in [
            ("cat", &input[..]),
            // Programs that read everything first, write first, read a part, or read nothing.
            ("wc -c | tr -d ' '", count.as_bytes()),
            ("head -c 6000000", &input[..half]),
            ("head -c 10 > /dev/null; echo done", b"done\n"),
            ("echo first; exec cat > /dev/null", b"first\n"),
            ("exec 0<&-; echo nothing", b"nothing\n"),
            ("true", b""),
        ] {
            for piece in [1 << 20, 4096] {
                assert!(through(&sh(script), &input, piece).unwrap() == expected, "{script}");
            }
            assert!(written(&sh(script), &input).unwrap() == expected, "{script}");
        }
        assert_eq!(through(&sh("cat; echo $TIDEMILL_FILE"), b"", 7).unwrap(), b"a file\n");
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let input = vec![b'x'; 1 << 20];
        for (script, parts) in [
            (
                "cat; echo one >&2; echo the last >&2; exit 3",
                &["`sh`", "`a file`", "status 3", "the last"][..],
            ),
            ("kill -9 $$", &["killed by signal 9"]),
            ("exec 1>&-; sleep 0.01; exit 4", &["status 4"]),
            // More than is kept, and more than a pipe holds; none of it blocks the program.
            (
                "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1",
                &["line 19999"],
            ),
        ] {
            for error in [through(&sh(script), &input, 4096), written(&sh(script), &input)] {
                let error = error.unwrap_err();
                assert!(matches!(error, Told::UserProgram { .. }), "{error}");
                let message = error.to_string();
                assert!(parts.iter().all(|part| message.contains(part)), "{message}");
                assert!(message.len() < 2 * STDERR_TAIL_BYTES_MAX, "{} bytes", message.len());
            }
        }
        let error = through(&program(&["no-such-program"]), b"", 10).unwrap_err();
        assert!(error.to_string().contains("no such program: `no-such-program`"), "{error}");
        for words in [vec![], vec![String::new()], vec!["a\0".to_owned()]] {
            assert!(FilterProgram::new(words).is_err());
        }
    }

    #[test]
    fn a_program_finds_its_files_by_name_and_writes_in_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.dat");
        std::fs::write(&path, "known").unwrap();
        let urls = [path.display().to_string()];
        let storage = tidemill_remote::StorageOptions::default();
        let files = ProgramFiles::new(&urls, &storage, folder.path()).unwrap();
        let sh = |script: &str| sh(script).with_files(files.clone());
        let script = "cat > /dev/null; echo > written; ls; cat known.dat";
        assert_eq!(through(&sh(script), b"x", 99).unwrap(), b"known.dat\nwritten\nknown");
        assert_eq!(written(&sh("cat > x; cat known.dat x"), b"!").unwrap(), b"known!");
        let here = std::fs::read_dir(".").unwrap();
        assert!(here.flatten().all(|entry| entry.file_name() != "written"));
        // Another process changes it, or the program itself.
        let error = through(&sh("cat; echo more >> known.dat"), b"x", 99).unwrap_err();
        assert!(matches!(error, Told::FileChanged { .. }), "{error}");
        let error = written(&sh("cat"), b"x").unwrap_err();
        assert!(matches!(error, Told::FileChanged { .. }), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let (alive, fifo) = (folder.path().join("alive"), folder.path().join("fifo"));
        // A child of the program holds the fifo open for writing until it is killed.
        let script = format!(
            "mkfifo '{fifo}'; (exec 9> '{fifo}'; touch '{alive}'; sleep 1000) & cat '{fifo}'",
            fifo = fifo.display(),
            alive = alive.display(),
        );
        let cancel = CancelFlag::new();
        let stop = cancel.clone();
        let started = alive.clone();
        let watcher = std::thread::spawn(move || {
            while !started.exists() {
                std::thread::yield_now();
            }
            stop.cancel();
        });
        let mut filter = RunningProgram::start(&sh(&script), "a file", false, &cancel).unwrap();
        let error = filter.read::<ProgramError>(&mut [0; 10], &mut |_| Ok(false)).unwrap_err();
        assert!(matches!(error, ProgramError::Interrupted));
        watcher.join().unwrap();
        let reader = File::open(&fifo);
        drop(filter);
        // Its last writer has ended: a reader of the fifo reaches the end.
        assert_eq!(reader.unwrap().read(&mut [0; 10]).unwrap(), 0);
    }
}
