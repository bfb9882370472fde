//! Standard output on a terminal: its size, colours, and paging through `$PAGER`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_engine::{Error, Result};

/// Terminal size if neither the terminal nor the environment states it.
const DEFAULT_COLUMNS: usize = 80;
const DEFAULT_LINES: usize = 24;

/// True while a pager has the terminal, and with it Ctrl-C.
static IS_PAGER_RUNNING: AtomicBool = AtomicBool::new(false);

/// Returns the columns and lines of the terminal on standard output.
pub(crate) fn terminal_size() -> (usize, usize) {
    terminal_size_of(libc::STDOUT_FILENO)
}

/// Returns the columns and lines of the terminal on a file descriptor.
pub(crate) fn terminal_size_of(descriptor: libc::c_int) -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) };
    let told = |name| std::env::var(name).ok()?.trim().parse().ok().filter(|count| *count > 0);
    let known = |count: u16| Some(usize::from(count)).filter(|count| *count > 0);
    (
        known(size.ws_col).or_else(|| told("COLUMNS")).unwrap_or(DEFAULT_COLUMNS),
        known(size.ws_row).or_else(|| told("LINES")).unwrap_or(DEFAULT_LINES),
    )
}

/// Returns true if output and progress go to a terminal on which drawn lines can be replaced.
pub(crate) fn can_redraw() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    io::stdout().is_terminal() && io::stderr().is_terminal() && !dumb
}

/// Returns a remark as one dimmed line, cut to the width of the terminal.
pub(crate) fn dimmed_line(text: &str, width: usize, colours: bool) -> String {
    let text: String = text.chars().take(width).collect();
    if colours { format!("\x1b[2m{text}\x1b[0m") } else { text }
}

/// Returns true while a pager has the terminal.
pub(crate) fn is_pager_running() -> bool {
    IS_PAGER_RUNNING.load(Ordering::Relaxed)
}

/// Returns the pager that the environment names, if any.
fn pager_command() -> Option<OsString> {
    let pager = std::env::var_os("PAGER")?;
    (!pager.to_string_lossy().trim().is_empty() && pager != "cat").then_some(pager)
}

/// Returns true if colours on standard output are visible: `less` shows them only with the right options.
pub(crate) fn shows_colours(uses_pager: bool) -> bool {
    let plain = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !io::stdout().is_terminal() || plain("NO_COLOR") || dumb {
        return false;
    }
    match pager_command().filter(|_| uses_pager) {
        None => true,
        Some(pager) => {
            let pager = pager.to_string_lossy().into_owned();
            let program = pager.split_whitespace().next().unwrap_or_default();
            let is_told = match std::env::var("LESS") {
                Ok(options) => options.contains(['R', 'r']),
                Err(_) => true,
            };
            program.rsplit('/').next() == Some("less") && is_told
        }
    }
}

/// A writer to standard output that pages through `$PAGER` once the output exceeds a screen.
///
/// Only output to a terminal is paged. Dropping it waits until the user has left the pager.
pub(crate) struct PagedStdout {
    state: PagingState,
    lines_per_screen: usize,
}

enum PagingState {
    /// The output so far, which is less than a screen.
    Buffering(Vec<u8>),
    Direct,
    Paging(Child),
}

impl PagedStdout {
    /// Creates a writer; `uses_pager` allows paging.
    pub(crate) fn new(uses_pager: bool) -> Self {
        let is_paged = uses_pager && io::stdout().is_terminal() && pager_command().is_some();
        let state = if is_paged { PagingState::Buffering(Vec::new()) } else { PagingState::Direct };
        PagedStdout { state, lines_per_screen: terminal_size().1 }
    }

    /// Writes the buffered output, and waits until the user has left the pager.
    ///
    /// # Errors
    /// [`Error::ClosedPipe`] if the reader left before the end; errors of writing the output.
    pub(crate) fn finish(mut self) -> Result<()> {
        let refused = |error| Error::io("write", "standard output", error);
        match std::mem::replace(&mut self.state, PagingState::Direct) {
            PagingState::Buffering(held) => {
                let mut out = io::stdout().lock();
                out.write_all(&held).and_then(|()| out.flush()).map_err(refused)
            }
            PagingState::Direct => io::stdout().lock().flush().map_err(refused),
            PagingState::Paging(child) => wait_for_pager(child),
        }
    }

    fn start_pager(&mut self) -> io::Result<()> {
        let PagingState::Buffering(held) = &mut self.state else { return Ok(()) };
        let held = std::mem::take(held);
        let mut command = Command::new("sh");
        command.arg("-c").arg(pager_command().unwrap_or_default()).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            // Quit if all fits, show colours, do not fold lines, keep the screen's content.
            command.env("LESS", "FRSX");
        }
        let mut child = command.spawn()?;
        IS_PAGER_RUNNING.store(true, Ordering::Relaxed);
        let written = match &mut child.stdin {
            Some(stdin) => stdin.write_all(&held),
            None => Ok(()),
        };
        self.state = PagingState::Paging(child);
        written
    }
}

/// Waits until the user has left the pager.
fn wait_for_pager(mut child: Child) -> Result<()> {
    drop(child.stdin.take());
    let status = child.wait();
    IS_PAGER_RUNNING.store(false, Ordering::Relaxed);
    let status = status.map_err(|error| Error::io("wait for", "the pager", error))?;
    // The exit statuses of a shell that cannot start a program.
    match status.code() {
        Some(126 | 127) => Err(Error::usage_with_hint(
            format!("PAGER: `{}` cannot be started", pager_command().unwrap_or_default().display()),
            "set PAGER to a program such as less, or give --no-pager",
        )),
        _ => Ok(()),
    }
}

impl Write for PagedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let PagingState::Buffering(held) = &mut self.state {
            held.extend_from_slice(bytes);
            // The last line of the screen is for the shell's prompt.
            if held.iter().filter(|byte| **byte == b'\n').count() >= self.lines_per_screen {
                self.start_pager()?;
            }
            return Ok(bytes.len());
        }
        match &mut self.state {
            PagingState::Paging(Child { stdin: Some(stdin), .. }) => stdin.write(bytes),
            _ => io::stdout().lock().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.state {
            PagingState::Direct => io::stdout().lock().flush(),
            PagingState::Paging(Child { stdin: Some(stdin), .. }) => stdin.flush(),
            _ => Ok(()),
        }
    }
}

impl Drop for PagedStdout {
    fn drop(&mut self) {
        if let PagingState::Paging(child) = std::mem::replace(&mut self.state, PagingState::Direct)
        {
            // The code that was writing reports the error.
            let _ = wait_for_pager(child);
        }
    }
}
