//! Standard error and signals: the progress bar, complaints, Ctrl-C.

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

use crate::screen;

/// The exit status after an interrupt.
const INTERRUPTED: i32 = 130;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Shorter runs show no bar: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(300);

/// A run that goes on for longer shows what each of its workers on a cluster has done, a line each …
const WORKERS_PATIENCE: Duration = Duration::from_secs(2);

/// … of so many at most.
const WORKERS_SHOWN: usize = 8;

/// What runs, for whoever wants to stop it.
static RUNS: Mutex<Option<CancelFlag>> = Mutex::new(None);

/// What ends reading without ending the run, for an answer that may rest on a part of the input.
static ENOUGH: Mutex<Option<CancelFlag>> = Mutex::new(None);

/// Whether what is stopped is the run alone.
static IS_SHELL: AtomicBool = AtomicBool::new(false);

/// When the command began.
pub(crate) fn began() -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    *BEGAN.get_or_init(Instant::now)
}

/// Raises `cancel` on the first Ctrl-C or SIGTERM, and ends the process on the second.
pub(crate) fn watch_signals(cancel: &CancelFlag) -> anyhow::Result<()> {
    runs(Some(cancel.clone()));
    static IS_SET: AtomicBool = AtomicBool::new(false);
    if IS_SET.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        let enough = ENOUGH.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(enough) = enough.filter(|enough| !enough.is_cancelled()) {
            return enough.cancel();
        }
        let cancel = RUNS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match cancel {
            Some(cancel) if !cancel.is_cancelled() => {
                cancel.cancel();
                // What has ended is not here any more, and a write to a pipe that nobody reads never does.
                if !IS_SHELL.load(Ordering::Relaxed) && !screen::is_paged() {
                    std::thread::sleep(CANCEL_GRACE_PERIOD);
                    if is_direct_write_running() {
                        end_interrupted();
                    }
                }
            }
            // A pager that is left behind would keep the terminal; a shell goes on.
            Some(_) if screen::is_paged() || IS_SHELL.load(Ordering::Relaxed) => {}
            _ => std::process::exit(INTERRUPTED),
        }
    })?;
    Ok(())
}

/// From now on a signal stops a run and not the process.
pub(crate) fn keep_shell() {
    IS_SHELL.store(true, Ordering::Relaxed);
}

/// From now on the first signal has the run answer with what it has read.
pub(crate) fn answer_first(enough: &CancelFlag) {
    *ENOUGH.lock().unwrap_or_else(PoisonError::into_inner) = Some(enough.clone());
}

/// The run has ended: a signal is for the process again.
pub(crate) fn nothing_runs() {
    *ENOUGH.lock().unwrap_or_else(PoisonError::into_inner) = None;
    runs(None);
}

fn runs(cancel: Option<CancelFlag>) -> Option<CancelFlag> {
    std::mem::replace(&mut *RUNS.lock().unwrap_or_else(PoisonError::into_inner), cancel)
}

/// Lets a write beyond the limit of a file's size (`ulimit -f`) fail as one to a full disk does: left alone the
/// system ends the process without a word. Programs that are started have the signal as it was.
pub(crate) fn outlive_the_limit_of_a_file() {
    #[cfg(unix)]
    {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing, so that it may run at any time. That it cannot be set changes nothing.
        unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
    }
}

/// Whether standard error is a terminal that shows colours.
fn colours() -> bool {
    let plain = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !plain("NO_COLOR") && !dumb
}

/// A line on standard error, without secrets of URLs. That it cannot be written is no failure of the
/// run.
pub(crate) fn note(text: &str) {
    labelled("", text);
}

/// What names and values of files bring with them must not reach the terminal as they are: it would obey.
fn labelled(label: &str, text: &str) {
    let text = escape_control_chars(&redact_secrets(text), &['\n', '\t']);
    let _ = writeln!(std::io::stderr().lock(), "{label}{text}");
}

/// A warning on standard error.
pub(crate) fn warn(text: &str) {
    labelled(if colours() { "\x1b[1;33mwarning:\x1b[0m " } else { "warning: " }, text);
}

/// An error and its hints on standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    let label = if colours() { "\x1b[1;31merror:\x1b[0m " } else { "error: " };
    // An error of ours has its cause in its words.
    let text = match error.downcast_ref::<Error>() {
        Some(ours) => ours.to_string(),
        None => format!("{error:#}"),
    };
    labelled(label, &text);
}

/// Ends the process as an interrupted run ends it.
pub(crate) fn end_interrupted() -> ! {
    complain(&Error::Interrupted.into());
    std::process::exit(INTERRUPTED)
}

/// True if a bar is on the screen, which says itself what is waited for.
static IS_BAR_SHOWN: AtomicBool = AtomicBool::new(false);

/// Interval between two checks for hosts that do not answer.
const SILENT_LOOK: Duration = Duration::from_millis(250);

/// Has hosts told of on standard error that do not answer for a while, each once, where no bar says so. The thread for it
/// starts with the process's first request.
pub(crate) fn tell_of_silent_hosts() {
    silent_hosts::set_first_request_hook(|| {
        // Without it the run goes on as well.
        let _ = std::thread::Builder::new().name("silent-hosts".to_owned()).spawn(|| {
            let mut told = BTreeSet::new();
            loop {
                std::thread::sleep(SILENT_LOOK);
                if !IS_BAR_SHOWN.load(Ordering::Relaxed)
                    && let Some(silent) = silent_hosts::longest_silent_host()
                    && told.insert(silent.host.clone())
                {
                    note(&silent.to_string());
                }
            }
        });
    });
}

/// The progress bar of a run, on standard error if that is a terminal.
///
/// It is drawn by whoever waits for the run, calling [`Bar::tick`].
pub(crate) struct Bar {
    progress: RunProgress,
    bar: Option<ProgressBar>,
    started: Instant,
    drawn: Instant,
    bytes: u64,
    is_rated: bool,
    hidden: bool,
    /// What is counted beside bytes.
    unit: &'static str,
}

impl Bar {
    /// A bar that shows once the run has taken a moment.
    pub(crate) fn new(progress: &RunProgress) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{spinner} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Bar {
            progress: progress.clone(),
            bar,
            started: now,
            drawn: now,
            bytes: 0,
            is_rated: false,
            hidden: true,
            unit: "rows",
        }
    }

    /// One that is never shown.
    pub(crate) fn none() -> Self {
        let mut bar = Bar::new(&RunProgress::default());
        bar.bar = None;
        bar
    }

    /// The same for files, which are counted as rows are.
    pub(crate) fn of_files(progress: &RunProgress) -> Self {
        let mut bar = Bar::new(progress);
        bar.unit = "files";
        bar
    }

    /// The same for ids, which are counted as they come out.
    pub(crate) fn of_ids(progress: &RunProgress) -> Self {
        let mut bar = Bar::new(progress);
        bar.unit = "ids";
        bar
    }

    /// Redraws, if it is time to.
    pub(crate) fn tick(&mut self) {
        let Some(bar) = &self.bar else { return };
        if self.started.elapsed() < PATIENCE || (!self.hidden && self.drawn.elapsed() < TICK) {
            return;
        }
        if self.hidden {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            self.hidden = false;
            IS_BAR_SHOWN.store(true, Ordering::Relaxed);
        }
        self.drawn = Instant::now();
        let total = self.progress.bytes_total();
        // The bar never goes back.
        self.bytes = self.bytes.max(self.progress.bytes_done());
        if total > 0 {
            bar.set_length(total);
            self.bytes = self.bytes.min(total);
        }
        bar.set_position(self.bytes);
        self.is_rated |= bar.per_sec() > 0.0;
        let state = Shown {
            bytes: self.bytes,
            total,
            rows: self.progress.rows_done(),
            unit: self.unit,
            per_second: whole(bar.per_sec()),
            left: (self.is_rated && total > 0).then(|| bar.eta()),
            elapsed: self.started.elapsed(),
            afterwards: self.progress.plan_outline().final_activity,
            spilled: self.progress.spilled_bytes(),
            elsewhere: self.progress.worker_counts(),
            waits: self.progress.wait_reason(),
            silent: silent_hosts::longest_silent_host().map(|silent| silent.to_string()),
            written: self.progress.write_task_counts(),
        };
        // The spinner has two columns, and a terminal goes to the next line behind its last one.
        let (columns, lines) = screen::size_of(libc::STDERR_FILENO);
        let mut text = state.line(columns.saturating_sub(3));
        if self.started.elapsed() >= WORKERS_PATIENCE {
            let workers = self.progress.workers();
            for line in worker_lines(&workers, columns.saturating_sub(1), lines / 3) {
                text.push('\n');
                text.push_str(&line);
            }
        }
        bar.set_message(text);
        bar.tick();
    }

    /// Takes the bar away while something else is written.
    pub(crate) fn pause<T>(&mut self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away, for good.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            if !self.hidden {
                IS_BAR_SHOWN.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What is shown of a run that goes on.
struct Shown {
    bytes: u64,
    /// 0 where nobody knows.
    total: u64,
    rows: u64,
    unit: &'static str,
    per_second: u64,
    left: Option<Duration>,
    elapsed: Duration,
    afterwards: Option<&'static str>,
    spilled: u64,
    /// Workers on a cluster, and tasks that were lost with those that are gone.
    elsewhere: (u64, u64),
    /// What is waited for before anything is read.
    waits: Option<&'static str>,
    /// A host that has not answered for a while.
    silent: Option<String>,
    /// Tasks of workers that have written files, of so many.
    written: (u64, u64),
}

/// The columns of the bar itself: as many as there are, up to so many, and at least so many.
const BAR: usize = 28;
const BAR_MIN: usize = 8;

impl Shown {
    /// A line of at most so many columns: the bar is shorter, and then less is said, where it does not fit.
    fn line(&self, columns: usize) -> String {
        let rows = format!("{} {}", format_grouped_digits(self.rows), self.unit);
        let rate = format!("{}/s", format_decimal_bytes(self.per_second));
        let elapsed = indicatif::HumanDuration(self.elapsed).to_string();
        let is_read = self.total > 0 && self.bytes >= self.total;
        let workers = match self.elsewhere {
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
        let waits = self.silent.as_deref().or(self.waits.filter(|_| self.bytes == 0));
        let parts = match (is_read, self.total) {
            _ if waits.is_some() => vec![waits.unwrap_or_default().to_owned(), elapsed],
            (true, _) => {
                // What has been read is no measure of what comes now.
                let what = match self.written {
                    (_, 0) => self.afterwards.unwrap_or("writing").to_owned(),
                    (done, all) => format!(
                        "writing, {} of {} tasks",
                        format_grouped_digits(done),
                        format_grouped_digits(all)
                    ),
                };
                let spilled = match self.spilled {
                    0 => String::new(),
                    bytes => format!("{} on disk", format_decimal_bytes(bytes)),
                };
                vec![format!("all read, {what}"), rows, elapsed, spilled, workers]
            }
            (false, 0) => vec![format_decimal_bytes(self.bytes), rows, rate, elapsed, workers],
            (false, total) => {
                let left = match self.left {
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
        let room = columns.saturating_sub(text.chars().count() + 1).min(BAR);
        if is_read || self.total == 0 || room < BAR_MIN || waits.is_some() {
            return text;
        }
        format!("{} {text}", bar(self.bytes, self.total, room))
    }
}

/// What each worker has done, in so many lines of so many columns at most: those that have done most, where they are more.
fn worker_lines(
    workers: &BTreeMap<String, WorkerProgress>,
    columns: usize,
    lines: usize,
) -> Vec<String> {
    let most = lines.min(WORKERS_SHOWN);
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

/// A bar that is never full before the end.
fn bar(done: u64, total: u64, columns: usize) -> String {
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
fn whole(rate: f64) -> u64 {
    rate.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: u64, total: u64) -> Shown {
        Shown {
            bytes,
            total,
            rows: 12_345_678,
            unit: "rows",
            per_second: 123_000_000,
            left: Some(Duration::from_secs(720)),
            elapsed: Duration::from_secs(41),
            afterwards: Some("sorting"),
            spilled: 3_200_000_000,
            elsewhere: (0, 0),
            waits: None,
            silent: None,
            written: (0, 0),
        }
    }

    #[test]
    fn the_bar_fits_any_terminal() {
        for columns in 0..=220 {
            for (bytes, total) in
                [(0, 0), (123_000_000, 0), (1, 2), (615_000_000, 1_230_000_000), (7, 7)]
            {
                let line = shown(bytes, total).line(columns);
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn workers_have_a_line_each_as_far_as_there_is_room() {
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
    fn the_bar_says_as_much_as_there_is_room_for() {
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
            assert_eq!(shown(bytes, 1_230_000_000).line(columns), expected);
        }
        let unknown = Shown { total: 0, ..shown(615_000_000, 0) };
        assert_eq!(unknown.line(77), "615 MB, 12,345,678 rows, 123 MB/s, 41 seconds");
        for (elsewhere, expected) in [
            ((1, 0), "41 seconds, 1 worker"),
            ((1_234, 0), "41 seconds, 1,234 workers"),
            ((4, 17), "41 seconds, 4 workers, 17 tasks again"),
        ] {
            let there = Shown { total: 0, elsewhere, ..shown(615_000_000, 0) };
            assert!(there.line(99).ends_with(expected), "{}", there.line(99));
        }
        let there = Shown { written: (3, 16), elsewhere: (4, 0), spilled: 0, ..shown(7, 7) };
        assert_eq!(
            there.line(99),
            "all read, writing, 3 of 16 tasks, 12,345,678 rows, 41 seconds, 4 workers"
        );
        let waiting = Shown { waits: Some("waiting for workers"), ..shown(0, 7) };
        assert_eq!(waiting.line(99), "waiting for workers, 41 seconds");
        let silent = Some("waiting for `example.org`: refused; it is asked again".to_owned());
        let silent = Shown { silent, ..shown(1, 7) };
        assert_eq!(
            silent.line(99),
            "waiting for `example.org`: refused; it is asked again, 41 seconds"
        );
        let early = Shown { left: None, ..shown(1, 2) };
        assert!(early.line(77).ends_with("… left"));
    }
}
