//! Standard error and signals: the progress bar, complaints, Ctrl-C.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tidemill_engine::coverage::{grouped, human_bytes};
use tidemill_engine::error::without_secrets;
use tidemill_engine::{Cancel, Error, Progress};

/// The exit status after an interrupt.
const INTERRUPTED: i32 = 130;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Shorter runs show no bar: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(300);

/// Raises `cancel` on the first Ctrl-C or SIGTERM, and ends the process on the second.
pub(crate) fn watch_signals(cancel: &Cancel) -> anyhow::Result<()> {
    let cancel = cancel.clone();
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(INTERRUPTED);
        }
        cancel.cancel();
    })?;
    Ok(())
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
    let _ = writeln!(std::io::stderr().lock(), "{}", without_secrets(text));
}

/// A warning on standard error.
pub(crate) fn warn(text: &str) {
    let label = if colours() { "\x1b[1;33mwarning:\x1b[0m" } else { "warning:" };
    note(&format!("{label} {text}"));
}

/// An error and its hints on standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    let label = if colours() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
    // An error of ours has its cause in its words.
    let text = match error.downcast_ref::<Error>() {
        Some(ours) => ours.to_string(),
        None => format!("{error:#}"),
    };
    note(&format!("{label} {text}"));
}

/// The progress bar of a run, on standard error if that is a terminal.
///
/// It is drawn by whoever waits for the run, calling [`Bar::tick`].
pub(crate) struct Bar {
    progress: Progress,
    bar: Option<ProgressBar>,
    started: Instant,
    drawn: Instant,
    bytes: u64,
    hidden: bool,
}

impl Bar {
    /// A bar that shows once the run has taken a moment.
    pub(crate) fn new(progress: &Progress) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            bar.set_style(style(progress.clone(), false));
            bar
        });
        Bar { progress: progress.clone(), bar, started: now, drawn: now, bytes: 0, hidden: true }
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
        }
        self.drawn = Instant::now();
        let total = self.progress.bytes_total();
        // The bar never goes back and is never full before the end.
        self.bytes = self.bytes.max(self.progress.bytes_done());
        if total > 0 {
            if bar.length().is_none() {
                bar.set_style(style(self.progress.clone(), true));
            }
            bar.set_length(total);
            bar.set_position(self.bytes.min(total));
        } else {
            bar.set_position(self.bytes);
        }
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
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn style(progress: Progress, has_total: bool) -> ProgressStyle {
    let template = if has_total {
        "{bar:28} {bytes_read} of {bytes_planned}, {rows} rows, {rate}/s, {eta} left"
    } else {
        "{spinner} {bytes_read}, {rows} rows, {rate}/s, {elapsed}"
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let rows = progress;
    let eta_known = Arc::new(AtomicBool::new(false));
    style
        .progress_chars("━╸ ")
        .with_key("bytes_read", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}", human_bytes(state.pos()));
        })
        .with_key("bytes_planned", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}", human_bytes(state.len().unwrap_or(0)));
        })
        .with_key("rows", move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}", grouped(rows.rows_done()));
        })
        .with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}", human_bytes(whole(state.per_sec())));
        })
        .with_key("eta", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let known = state.per_sec() > 0.0 || eta_known.load(Ordering::Relaxed);
            eta_known.store(known, Ordering::Relaxed);
            let _ = match known {
                true => write!(out, "{}", indicatif::HumanDuration(state.eta())),
                false => write!(out, "…"),
            };
        })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate that is shown with three digits"
)]
fn whole(rate: f64) -> u64 {
    rate.max(0.0) as u64
}
