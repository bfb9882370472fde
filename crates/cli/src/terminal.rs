//! Standard error and signals: progress bar, warnings, errors, and Ctrl-C.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidemill_engine::coverage::{format_decimal_bytes, format_grouped_digits};
use tidemill_engine::error::{escape_control_chars, redact_secrets};
use tidemill_engine::progress::WorkerProgress;
use tidemill_engine::remote::silent_hosts;
use tidemill_engine::run_handle::CANCEL_GRACE_PERIOD;
use tidemill_engine::sink::is_direct_write_running;
use tidemill_engine::{CancelFlag, Error, RunProgress};

use crate::stdout_display;

/// The exit status after an interrupt.
const INTERRUPTED_EXIT_STATUS: i32 = 130;

/// Redraw interval of the bar.
const BAR_REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Delay before the bar appears. In shorter runs it would only flicker.
const BAR_DELAY: Duration = Duration::from_millis(300);

/// Delay before a run on a cluster shows a line for each worker.
const WORKER_LINES_DELAY: Duration = Duration::from_secs(2);

/// Maximum number of worker lines.
const WORKER_LINES_MAX: usize = 8;

/// The cancel flag of the current run.
static CURRENT_RUN: Mutex<Option<CancelFlag>> = Mutex::new(None);

/// The flag that ends reading without ending the run, for an answer that may rest on a part of the input.
static EARLY_ANSWER: Mutex<Option<CancelFlag>> = Mutex::new(None);

/// True in a shell, where a signal stops the run and not the process.
static SURVIVES_SIGNALS: AtomicBool = AtomicBool::new(false);

/// Returns the start time of the command; the first call sets it.
pub(crate) fn command_start() -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    *BEGAN.get_or_init(Instant::now)
}

/// Raises `cancel` on the first Ctrl-C or SIGTERM, and ends the process on the second.
pub(crate) fn watch_signals(cancel: &CancelFlag) -> anyhow::Result<()> {
    replace_current_run(Some(cancel.clone()));
    static IS_SET: AtomicBool = AtomicBool::new(false);
    if IS_SET.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        let enough = EARLY_ANSWER.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(enough) = enough.filter(|enough| !enough.is_cancelled()) {
            return enough.cancel();
        }
        let cancel = CURRENT_RUN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match cancel {
            Some(cancel) if !cancel.is_cancelled() => {
                cancel.cancel();
                // A run that has ended is no longer registered, and a write to a pipe that nobody reads never
                // ends.
                if !SURVIVES_SIGNALS.load(Ordering::Relaxed) && !stdout_display::is_pager_running()
                {
                    std::thread::sleep(CANCEL_GRACE_PERIOD);
                    if is_direct_write_running() {
                        exit_interrupted();
                    }
                }
            }
            // An abandoned pager would keep the terminal, and a shell outlives its runs.
            Some(_)
                if stdout_display::is_pager_running()
                    || SURVIVES_SIGNALS.load(Ordering::Relaxed) => {}
            _ => std::process::exit(INTERRUPTED_EXIT_STATUS),
        }
    })?;
    Ok(())
}

/// Makes signals stop a run and not the process from now on.
pub(crate) fn survive_signals() {
    SURVIVES_SIGNALS.store(true, Ordering::Relaxed);
}

/// Makes the first signal end only the reading, so that the run answers from the input read so far.
pub(crate) fn answer_early_on_signal(enough: &CancelFlag) {
    *EARLY_ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = Some(enough.clone());
}

/// Unregisters the run that has ended: signals act on the process again.
pub(crate) fn clear_current_run() {
    *EARLY_ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = None;
    replace_current_run(None);
}

fn replace_current_run(cancel: Option<CancelFlag>) -> Option<CancelFlag> {
    std::mem::replace(&mut *CURRENT_RUN.lock().unwrap_or_else(PoisonError::into_inner), cancel)
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail as one to a full disk does. By default the
/// system ends the process without a message. Started programs inherit the default signal handling.
pub(crate) fn ignore_file_size_signal() {
    #[cfg(unix)]
    {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing, so it may run at any time. If the call fails, the default stays.
        unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
    }
}

/// Returns true if standard error is a terminal that shows colours.
fn stderr_shows_colours() -> bool {
    let plain = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !plain("NO_COLOR") && !dumb
}

/// Prints a line on standard error, without the secrets of URLs. A failed write does not fail the
/// run.
pub(crate) fn print_note(text: &str) {
    print_labelled("", text);
}

/// Prints a labelled line. Control characters from names and values of files are made visible, because a
/// terminal would obey them.
fn print_labelled(label: &str, text: &str) {
    let text = escape_control_chars(&redact_secrets(text), &['\n', '\t']);
    let _ = writeln!(std::io::stderr().lock(), "{label}{text}");
}

/// Prints a warning on standard error.
pub(crate) fn print_warning(text: &str) {
    print_labelled(
        if stderr_shows_colours() { "\x1b[1;33mwarning:\x1b[0m " } else { "warning: " },
        text,
    );
}

/// Prints an error and its hints on standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    let label = if stderr_shows_colours() { "\x1b[1;31merror:\x1b[0m " } else { "error: " };
    // Tidemill's errors contain their causes in their text.
    let text = match error.downcast_ref::<Error>() {
        Some(ours) => ours.to_string(),
        None => format!("{error:#}"),
    };
    print_labelled(label, &text);
}

/// Exits as an interrupted run does.
pub(crate) fn exit_interrupted() -> ! {
    print_error(&Error::Interrupted.into());
    std::process::exit(INTERRUPTED_EXIT_STATUS)
}

/// True while a bar is on the screen; the bar itself shows what the run waits for.
static IS_BAR_SHOWN: AtomicBool = AtomicBool::new(false);

/// Interval between two checks for hosts that do not answer.
const SILENT_HOST_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Reports hosts on standard error that have not answered for a while, each once, while no bar shows them.
/// The reporting thread starts with the process's first request.
pub(crate) fn report_silent_hosts() {
    silent_hosts::set_first_request_hook(|| {
        // The run does not need this thread.
        let _ = std::thread::Builder::new().name("silent-hosts".to_owned()).spawn(|| {
            let mut told = BTreeSet::new();
            loop {
                std::thread::sleep(SILENT_HOST_CHECK_INTERVAL);
                if !IS_BAR_SHOWN.load(Ordering::Relaxed)
                    && let Some(silent) = silent_hosts::longest_silent_host()
                    && told.insert(silent.host.clone())
                {
                    print_note(&silent.to_string());
                }
            }
        });
    });
}

/// The progress bar of a run, on standard error if that is a terminal.
///
/// The thread that waits for the run draws it by calling [`RunProgressBar::tick`].
pub(crate) struct RunProgressBar {
    progress: RunProgress,
    bar: Option<ProgressBar>,
    started_at: Instant,
    drawn_at: Instant,
    bytes: u64,
    has_rate: bool,
    is_hidden: bool,
    /// The plural noun of the counted items, such as `rows`.
    unit_noun: &'static str,
}

impl RunProgressBar {
    /// Creates a bar that appears once the run has taken a moment.
    pub(crate) fn new(progress: &RunProgress) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{spinner} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        RunProgressBar {
            progress: progress.clone(),
            bar,
            started_at: now,
            drawn_at: now,
            bytes: 0,
            has_rate: false,
            is_hidden: true,
            unit_noun: "rows",
        }
    }

    /// Creates a bar that never appears.
    pub(crate) fn disabled() -> Self {
        let mut bar = RunProgressBar::new(&RunProgress::default());
        bar.bar = None;
        bar
    }

    /// Creates a bar that counts files instead of rows.
    pub(crate) fn for_files(progress: &RunProgress) -> Self {
        let mut bar = RunProgressBar::new(progress);
        bar.unit_noun = "files";
        bar
    }

    /// Creates a bar that counts ids of the result.
    pub(crate) fn for_ids(progress: &RunProgress) -> Self {
        let mut bar = RunProgressBar::new(progress);
        bar.unit_noun = "ids";
        bar
    }

    /// Redraws the bar if the redraw interval has passed.
    pub(crate) fn tick(&mut self) {
        let Some(bar) = &self.bar else { return };
        if self.started_at.elapsed() < BAR_DELAY
            || (!self.is_hidden && self.drawn_at.elapsed() < BAR_REDRAW_INTERVAL)
        {
            return;
        }
        if self.is_hidden {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            self.is_hidden = false;
            IS_BAR_SHOWN.store(true, Ordering::Relaxed);
        }
        self.drawn_at = Instant::now();
        let total = self.progress.bytes_total();
        // The bar never moves backwards.
        self.bytes = self.bytes.max(self.progress.bytes_done());
        if total > 0 {
            bar.set_length(total);
            self.bytes = self.bytes.min(total);
        }
        bar.set_position(self.bytes);
        self.has_rate |= bar.per_sec() > 0.0;
        let state = ProgressLine {
            bytes: self.bytes,
            bytes_total: total,
            rows: self.progress.rows_done(),
            unit_noun: self.unit_noun,
            bytes_per_second: rate_to_integer(bar.per_sec()),
            remaining_time: (self.has_rate && total > 0).then(|| bar.eta()),
            elapsed: self.started_at.elapsed(),
            next_phase: self.progress.plan_outline().final_activity,
            spilled_bytes: self.progress.spilled_bytes(),
            worker_and_lost_task_counts: self.progress.worker_counts(),
            wait_reason: self.progress.wait_reason(),
            silent_host: silent_hosts::longest_silent_host().map(|silent| silent.to_string()),
            output_tasks_done_and_total: self.progress.write_task_counts(),
        };
        // The spinner takes two columns, and a terminal wraps after its last column.
        let (columns, lines) = stdout_display::terminal_size_of(libc::STDERR_FILENO);
        let mut text = state.render(columns.saturating_sub(3));
        if self.started_at.elapsed() >= WORKER_LINES_DELAY {
            let workers = self.progress.workers();
            for line in worker_lines(&workers, columns.saturating_sub(1), lines / 3) {
                text.push('\n');
                text.push_str(&line);
            }
        }
        bar.set_message(text);
        bar.tick();
    }

    /// Hides the bar while `write` writes something else.
    pub(crate) fn suspend_while<T>(&mut self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Removes the bar for good.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            if !self.is_hidden {
                IS_BAR_SHOWN.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for RunProgressBar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The values of one drawing of a run's progress.
struct ProgressLine {
    bytes: u64,
    /// 0 if the total is unknown.
    bytes_total: u64,
    rows: u64,
    unit_noun: &'static str,
    bytes_per_second: u64,
    remaining_time: Option<Duration>,
    elapsed: Duration,
    next_phase: Option<&'static str>,
    spilled_bytes: u64,
    /// Number of workers on a cluster, and number of tasks lost with workers that ended.
    worker_and_lost_task_counts: (u64, u64),
    /// Reason for a wait before the first byte is read.
    wait_reason: Option<&'static str>,
    /// A host that has not answered for a while.
    silent_host: Option<String>,
    /// Number of output tasks that have written their files, and number of all output tasks.
    output_tasks_done_and_total: (u64, u64),
}

/// Maximum and minimum number of columns of the bar itself.
const BAR_COLUMNS_MAX: usize = 28;
const BAR_COLUMNS_MIN: usize = 8;

impl ProgressLine {
    /// Returns a line of at most `columns` columns. Where the space does not suffice, the bar gets shorter,
    /// then parts are left out.
    fn render(&self, columns: usize) -> String {
        let rows = format!("{} {}", format_grouped_digits(self.rows), self.unit_noun);
        let rate = format!("{}/s", format_decimal_bytes(self.bytes_per_second));
        let elapsed = indicatif::HumanDuration(self.elapsed).to_string();
        let is_read = self.bytes_total > 0 && self.bytes >= self.bytes_total;
        let workers = match self.worker_and_lost_task_counts {
            (0, _) => String::new(),
            (1, 0) => "1 worker".to_owned(),
            (workers, 0) => format!("{} workers", format_grouped_digits(workers)),
            (workers, lost) => {
                format!(
                    "{} workers, {} tasks again",
                    format_grouped_digits(workers),
                    format_grouped_digits(lost)
                )
            }
        };
        let waits = self.silent_host.as_deref().or(self.wait_reason.filter(|_| self.bytes == 0));
        let parts = match (is_read, self.bytes_total) {
            _ if waits.is_some() => vec![waits.unwrap_or_default().to_owned(), elapsed],
            (true, _) => {
                // The bytes read say nothing about the progress of the next phase.
                let what = match self.output_tasks_done_and_total {
                    (_, 0) => self.next_phase.unwrap_or("writing").to_owned(),
                    (done, all) => format!(
                        "writing, {} of {} tasks",
                        format_grouped_digits(done),
                        format_grouped_digits(all)
                    ),
                };
                let spilled = match self.spilled_bytes {
                    0 => String::new(),
                    bytes => format!("{} on disk", format_decimal_bytes(bytes)),
                };
                vec![format!("all read, {what}"), rows, elapsed, spilled, workers]
            }
            (false, 0) => vec![format_decimal_bytes(self.bytes), rows, rate, elapsed, workers],
            (false, total) => {
                let left = match self.remaining_time {
                    Some(left) => format!("{} left", indicatif::HumanDuration(left)),
                    None => "… left".to_owned(),
                };
                let read = format!(
                    "{} of {}",
                    format_decimal_bytes(self.bytes),
                    format_decimal_bytes(total)
                );
                vec![read, rows, rate, left, workers]
            }
        };
        let mut text = String::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let gap = if text.is_empty() { "" } else { ", " };
            if text.chars().count() + gap.len() + part.chars().count() > columns {
                break;
            }
            text.push_str(gap);
            text.push_str(part);
        }
        let room = columns.saturating_sub(text.chars().count() + 1).min(BAR_COLUMNS_MAX);
        if is_read || self.bytes_total == 0 || room < BAR_COLUMNS_MIN || waits.is_some() {
            return text;
        }
        format!("{} {text}", render_bar(self.bytes, self.bytes_total, room))
    }
}

/// Returns a line for each worker, in at most `lines` lines of `columns` columns. If there are more workers,
/// those with the most bytes are shown.
fn worker_lines(
    workers: &BTreeMap<String, WorkerProgress>,
    columns: usize,
    lines: usize,
) -> Vec<String> {
    let most = lines.min(WORKER_LINES_MAX);
    if workers.is_empty() || most < 2 {
        return Vec::new();
    }
    let mut shown: Vec<(&String, &WorkerProgress)> = workers.iter().collect();
    let left = match shown.len() > most {
        true => shown.len() - (most - 1),
        false => 0,
    };
    if left > 0 {
        shown.sort_by_key(|(_, worker)| std::cmp::Reverse(worker.bytes_done));
        shown.truncate(most - 1);
        shown.sort_by_key(|(name, _)| *name);
    }
    let cells: Vec<[String; 5]> = shown
        .iter()
        .map(|(name, worker)| {
            let lost = match worker.tasks_lost {
                0 => String::new(),
                lost => format!("{} lost", format_grouped_digits(lost)),
            };
            [
                (*name).clone(),
                format!("{} tasks", format_grouped_digits(worker.tasks_done)),
                format_decimal_bytes(worker.bytes_done),
                format!("{:.1} s CPU", worker.cpu_time.as_secs_f64()),
                lost,
            ]
        })
        .collect();
    let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let [name, numbers @ ..] = row;
        let mut text = format!("  {name:<0$}", widths[0]);
        for (number, width) in numbers.iter().zip(&widths[1..]) {
            text.push_str(&format!("  {number:>width$}"));
        }
        text.trim_end().chars().take(columns).collect()
    };
    let mut text: Vec<String> = cells.iter().map(line).collect();
    if left > 0 {
        let more = format!("  … and {} more", format_grouped_digits(left as u64));
        text.push(more.chars().take(columns).collect());
    }
    text
}

/// Draws a bar of half-column steps, which is full only at the end.
fn render_bar(done: u64, total: u64, columns: usize) -> String {
    let steps = columns as u64 * 2;
    let reached = u128::from(done) * u128::from(steps) / u128::from(total.max(1));
    let reached = usize::try_from(reached).unwrap_or(0).min(columns * 2);
    let mut text = "━".repeat(reached / 2);
    if reached % 2 == 1 {
        text.push('╸');
    }
    text.extend(std::iter::repeat_n(' ', columns - reached.div_ceil(2)));
    text
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate that is shown with three digits"
)]
fn rate_to_integer(rate: f64) -> u64 {
    rate.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress_line(bytes: u64, total: u64) -> ProgressLine {
        ProgressLine {
            bytes,
            bytes_total: total,
            rows: 12_345_678,
            unit_noun: "rows",
            bytes_per_second: 123_000_000,
            remaining_time: Some(Duration::from_secs(720)),
            elapsed: Duration::from_secs(41),
            next_phase: Some("sorting"),
            spilled_bytes: 3_200_000_000,
            worker_and_lost_task_counts: (0, 0),
            wait_reason: None,
            silent_host: None,
            output_tasks_done_and_total: (0, 0),
        }
    }

    #[test]
    fn progress_line_fits_any_terminal_width() {
        for columns in 0..=220 {
            for (bytes, total) in
                [(0, 0), (123_000_000, 0), (1, 2), (615_000_000, 1_230_000_000), (7, 7)]
            {
                let line = progress_line(bytes, total).render(columns);
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn worker_lines_fit_the_terminal() {
        let worker = |number: u64| {
            let done = WorkerProgress {
                tasks_done: 3 * number,
                tasks_lost: number % 2,
                bytes_done: number * 1_000_000,
                cpu_time: Duration::from_millis(number * 700),
                ..WorkerProgress::default()
            };
            (format!("vm:{}", number * number), done)
        };
        let four: BTreeMap<String, WorkerProgress> = (9..13).map(worker).collect();
        assert_eq!(
            worker_lines(&four, 80, 24),
            [
                "  vm:100  30 tasks  10.0 MB  7.0 s CPU",
                "  vm:121  33 tasks  11.0 MB  7.7 s CPU  1 lost",
                "  vm:144  36 tasks  12.0 MB  8.4 s CPU",
                "  vm:81   27 tasks  9.00 MB  6.3 s CPU  1 lost",
            ]
        );
        assert_eq!(
            worker_lines(&four, 20, 3),
            ["  vm:121  33 tasks  ", "  vm:144  36 tasks  ", "  … and 2 more"]
        );
        assert!(worker_lines(&four, 80, 1).is_empty());
        assert!(worker_lines(&BTreeMap::new(), 80, 24).is_empty());
    }

    #[test]
    fn narrow_terminals_shorten_the_progress_line() {
        for (columns, bytes, expected) in [
            (
                100,
                615_000_000,
                "━━━━━━━━━━━━━━               615 MB of 1.23 GB, 12,345,678 rows, 123 MB/s, 12 minutes left",
            ),
            (
                77,
                615_000_000,
                "━━━━━━━╸        615 MB of 1.23 GB, 12,345,678 rows, 123 MB/s, 12 minutes left",
            ),
            (40, 615_000_000, "615 MB of 1.23 GB, 12,345,678 rows"),
            (77, 1_230_000_000, "all read, sorting, 12,345,678 rows, 41 seconds, 3.20 GB on disk"),
            (20, 1_230_000_000, "all read, sorting"),
        ] {
            assert_eq!(progress_line(bytes, 1_230_000_000).render(columns), expected);
        }
        let unknown = ProgressLine { bytes_total: 0, ..progress_line(615_000_000, 0) };
        assert_eq!(unknown.render(77), "615 MB, 12,345,678 rows, 123 MB/s, 41 seconds");
        for (elsewhere, expected) in [
            ((1, 0), "41 seconds, 1 worker"),
            ((1_234, 0), "41 seconds, 1,234 workers"),
            ((4, 17), "41 seconds, 4 workers, 17 tasks again"),
        ] {
            let there = ProgressLine {
                bytes_total: 0,
                worker_and_lost_task_counts: elsewhere,
                ..progress_line(615_000_000, 0)
            };
            assert!(there.render(99).ends_with(expected), "{}", there.render(99));
        }
        let there = ProgressLine {
            output_tasks_done_and_total: (3, 16),
            worker_and_lost_task_counts: (4, 0),
            spilled_bytes: 0,
            ..progress_line(7, 7)
        };
        assert_eq!(
            there.render(99),
            "all read, writing, 3 of 16 tasks, 12,345,678 rows, 41 seconds, 4 workers"
        );
        let waiting =
            ProgressLine { wait_reason: Some("waiting for workers"), ..progress_line(0, 7) };
        assert_eq!(waiting.render(99), "waiting for workers, 41 seconds");
        let silent = Some("waiting for `example.org`: refused; it is asked again".to_owned());
        let silent = ProgressLine { silent_host: silent, ..progress_line(1, 7) };
        assert_eq!(
            silent.render(99),
            "waiting for `example.org`: refused; it is asked again, 41 seconds"
        );
        let early = ProgressLine { remaining_time: None, ..progress_line(1, 2) };
        assert!(early.render(77).ends_with("… left"));
    }
}
