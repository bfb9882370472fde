//! Writes results to sinks and terminals, and prints the summary of a run.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use tidemill_engine::coverage::EstimateAccuracy;
use tidemill_engine::coverage_file::CoverageFile;
use tidemill_engine::run_handle::{PreparedRun, RunEvent, RunHandle, write_to_sink};
use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::sink::display::terminal_table::{
    DEFAULT_ROWS_MAX, TerminalTable, TerminalTableOptions,
};
use tidemill_engine::sink::{OutputFormat, OutputSummary, SinkSpec};
use tidemill_engine::{CancelFlag, Coverage, Error, InterimResult, Result, ResultCache, coverage};

use super::{VerbOutcome, parse_program, print_paged};
use crate::args::{DisplayedRowsLimit, ResultDisplayArgs, SinkArgs, TableDisplayArgs, WriteArgs};
use crate::stdout_display::{self, PagedStdout};
use crate::terminal::{self, RunProgressBar};

impl SinkArgs {
    /// Returns the sink of these flags, with a job file's sink as default.
    pub(crate) fn to_sink_spec(&self, job: Option<&SinkSpec>) -> Result<SinkSpec> {
        self.write.to_sink_spec(self.output.as_deref(), job)
    }

    /// Returns the sink of a `COPY … TO`, with the flags for which COPY has no option.
    ///
    /// # Errors
    /// [`Error::Usage`] for a flag that duplicates a part of the statement.
    pub(crate) fn copy_to_sink_spec(&self, copy: &SinkSpec) -> Result<SinkSpec> {
        let WriteArgs { format, compression, no_header, .. } = &self.write;
        for (flag, value) in
            [("--output", &self.output), ("--format", format), ("--compression", compression)]
        {
            if let Some(value) = value {
                return Err(copy_flag_conflict(flag, value));
            }
        }
        if *no_header {
            return Err(copy_flag_conflict("--no-header", "HEADER false"));
        }
        self.write.to_sink_spec(None, Some(copy))
    }
}

/// Returns the error for a flag that duplicates a part of `COPY … TO`.
pub(super) fn copy_flag_conflict(flag: &str, value: &str) -> Error {
    let hint = match flag {
        "--output" => "leave --output out, or the query alone: SELECT …".to_owned(),
        "--no-header" => format!("COPY … TO 'out.csv' ({value})"),
        _ => format!("COPY … TO 'out' ({} {value})", flag.trim_start_matches('-').to_uppercase()),
    };
    Error::usage_with_hint(format!("COPY names its output itself, and `{flag}` is beside it"), hint)
}

impl WriteArgs {
    /// Returns the sink of these flags for `output`, or else for the job file's sink.
    pub(crate) fn to_sink_spec(
        &self,
        output: Option<&str>,
        job: Option<&SinkSpec>,
    ) -> Result<SinkSpec> {
        let mut sink = match (output, job) {
            (Some(url), Some(job)) => {
                // Another output may have another suffix, so the job's format does not apply.
                SinkSpec { url: url.to_owned(), format: None, compression: None, ..job.clone() }
            }
            (None, Some(job)) => job.clone(),
            (url, None) => SinkSpec::new(url.unwrap_or("-")),
        };
        if let Some(format) = &self.format {
            sink.format = Some(format.parse()?);
        }
        if let Some(compression) = &self.compression {
            sink.compression = Some(compression.parse()?);
        }
        if let Some(count) = self.max_files {
            sink.max_files = count;
        }
        sink.overwrite |= self.overwrite;
        sink.has_header &= !self.no_header;
        if let Some(program) = parse_program(&self.sink_exec)? {
            sink.exec = Some(program);
        }
        sink.check_exec()?;
        if sink.url == "-" {
            let terminal = std::io::stdout().is_terminal();
            let format = sink.format.unwrap_or(match terminal {
                true => OutputFormat::Text,
                false => OutputFormat::Csv,
            });
            let is_compressed = sink.compression.as_ref().is_some_and(|codec| !codec.is_none());
            if terminal && (format.is_binary() || is_compressed) {
                let what = match format.is_binary() {
                    true => format!("format `{}`", format.name()),
                    false => format!("compressed {}", format.name()),
                };
                return Err(Error::usage_with_hint(
                    format!("{what} is not for a terminal"),
                    "name a file with --output, or pipe it into a program that reads it",
                ));
            }
            sink.format = Some(format);
        }
        Ok(sink)
    }
}

/// The display settings of a table on a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableDisplaySettings {
    /// Maximum number of rows; `None` shows all.
    rows_max: Option<usize>,
    groups_digits: bool,
    uses_pager: bool,
    shows_header: bool,
}

impl TableDisplayArgs {
    /// Returns the display settings of these flags with a maximum number of rows.
    pub(super) fn display_settings(&self, rows: DisplayedRowsLimit) -> TableDisplaySettings {
        let rows = match rows {
            DisplayedRowsLimit::All => None,
            DisplayedRowsLimit::AtMost(count) => Some(count),
        };
        TableDisplaySettings {
            rows_max: rows,
            groups_digits: self.thousands,
            uses_pager: !self.no_pager,
            shows_header: true,
        }
    }
}

impl ResultDisplayArgs {
    /// Returns the display settings of these flags.
    pub(super) fn display_settings(&self) -> TableDisplaySettings {
        self.look
            .display_settings(self.rows.unwrap_or(DisplayedRowsLimit::AtMost(DEFAULT_ROWS_MAX)))
    }
}

impl TableDisplaySettings {
    fn terminal_table_options(self) -> TerminalTableOptions {
        TerminalTableOptions {
            width: stdout_display::terminal_size().0,
            rows_max: self.rows_max,
            group_digits: self.groups_digits,
            use_colours: stdout_display::shows_colours(self.uses_pager),
            has_header: self.shows_header,
        }
    }
}

/// Returns true if the sink is a terminal.
pub(super) fn writes_to_terminal(sink: &SinkSpec) -> bool {
    sink.url == "-" && std::io::stdout().is_terminal()
}

/// Returns true if the sink shows a table on a terminal.
fn shows_table_on_terminal(sink: &SinkSpec) -> bool {
    writes_to_terminal(sink) && sink.format == Some(OutputFormat::Text)
}

/// Returns true if the sink can show interim results and replace them.
pub(super) fn can_show_interim_results(sink: &SinkSpec) -> bool {
    shows_table_on_terminal(sink) && stdout_display::can_redraw()
}

/// The destination of the coverage as JSON.
pub(super) enum CoverageDestination {
    NotRequested,
    StandardOutput,
    File(CoverageFile),
}

impl CoverageDestination {
    /// Opens the destination, and refuses one that is also the destination of the result.
    pub(super) fn new(flag: Option<&str>, result_url: Option<&str>) -> Result<Self> {
        match flag {
            None => Ok(CoverageDestination::NotRequested),
            Some("-") if result_url == Some("-") => Err(Error::usage_with_hint(
                "--coverage - and the result both want standard output",
                "give --coverage a file, or name the result's file with --output",
            )),
            Some("-") => Ok(CoverageDestination::StandardOutput),
            Some(path) => Ok(CoverageDestination::File(CoverageFile::create(path, result_url)?)),
        }
    }

    /// Writes the coverage, if there is a destination.
    pub(super) fn write(&self, coverage: &Coverage) -> Result<()> {
        match self {
            CoverageDestination::NotRequested => Ok(()),
            CoverageDestination::File(file) => Ok(file.write(coverage)?),
            CoverageDestination::StandardOutput => {
                let json = serde_json::to_string_pretty(coverage)
                    .map_err(|error| Error::Internal(format!("coverage as JSON: {error}")))?;
                print_paged(format!("{json}\n").as_bytes())
            }
        }
    }
}

/// Interval for redrawing the bar while no rows arrive.
const PROGRESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The part of a run's summary that is printed on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SummaryDetail {
    /// Outputs and coverage.
    OutputsAndCoverage,
    /// Written files, and the coverage if the result is for people.
    OutputsAndCoverageForPeople,
    /// The coverage only if records were rejected or left out.
    FaultsOnly,
}

/// A slot that retains a result in addition to its display.
pub(super) struct ResultRetention<'a> {
    pub(super) retained_result: &'a mut Option<ResultCache>,
    pub(super) bytes_max: u64,
}

/// Waits for a run, writes its rows, and prints a summary.
pub(super) fn write_result(
    running: RunHandle,
    preparation: &PreparedRun,
    sink: &SinkSpec,
    coverage: &CoverageDestination,
    how: (SummaryDetail, TableDisplaySettings),
) -> anyhow::Result<VerbOutcome> {
    write_and_retain_result(running, preparation, sink, coverage, how, None)
}

/// Writes a result like [`write_result`]; a result shown on a terminal is also retained in `keep`.
pub(super) fn write_and_retain_result(
    mut running: RunHandle,
    preparation: &PreparedRun,
    sink: &SinkSpec,
    coverage: &CoverageDestination,
    (how, showing): (SummaryDetail, TableDisplaySettings),
    keep: Option<ResultRetention<'_>>,
) -> anyhow::Result<VerbOutcome> {
    let settings = &preparation.settings;
    let mut bar = RunProgressBar::new(&settings.progress);
    let showing = TableDisplaySettings { shows_header: sink.has_header, ..showing };
    if shows_table_on_terminal(sink) {
        let shown =
            show_rows_on_terminal((&mut running, &settings.stop_reading), showing, keep, &mut bar);
        bar.clear();
        if let Some(warning) = running.take_warning() {
            terminal::print_warning(&warning);
        }
        return print_summary_and_coverage(
            &running,
            &shown?,
            sink,
            coverage,
            (how, settings.max_bad),
        );
    }
    let to_terminal = writes_to_terminal(sink);
    let written =
        write_to_sink(&mut running, sink, &preparation.run_id, settings.memory_bytes, |rows| {
            if to_terminal && rows > 0 {
                // Rows and the bar share the screen.
                bar.clear();
            } else {
                bar.tick();
            }
            Ok(())
        });
    bar.clear();
    if let Some(warning) = running.take_warning() {
        terminal::print_warning(&warning);
    }
    let written = written?;
    if let Some(warning) = &written.warning {
        terminal::print_warning(warning);
    }
    print_summary_and_coverage(&running, &written, sink, coverage, (how, settings.max_bad))
}

/// Prints the summary of a run that has ended, and writes its coverage.
fn print_summary_and_coverage(
    running: &RunHandle,
    written: &OutputSummary,
    sink: &SinkSpec,
    coverage: &CoverageDestination,
    (how, max_bad): (SummaryDetail, BadRecordLimit),
) -> anyhow::Result<VerbOutcome> {
    let found = running
        .coverage()
        .ok_or_else(|| Error::Internal("a run that has ended without a coverage".to_owned()))?;
    print_summary(found, sink, written, how);
    coverage.write(found)?;
    if max_bad == BadRecordLimit::Unlimited && found.rows.rejected > 0 {
        let error = Error::BadRecords {
            count: found.rows.rejected,
            allowed: BadRecordLimit::default().to_string(),
            first: found.first_rejected.clone(),
        };
        return Err(error.into());
    }
    Ok(if found.complete { VerbOutcome::Complete } else { VerbOutcome::Incomplete })
}

/// Shows a run's rows as a table on the terminal.
fn show_rows_on_terminal(
    (running, enough): (&mut RunHandle, &CancelFlag),
    showing: TableDisplaySettings,
    keep: Option<ResultRetention<'_>>,
    bar: &mut RunProgressBar,
) -> Result<OutputSummary> {
    let schema = running.wait_for_schema(|| {
        bar.tick();
        Ok(())
    })?;
    let mut table: Option<TerminalTable> = None;
    let mut glimpses = InterimResultDisplay { drawn_lines: 0, started_at: Instant::now() };
    let mut pages = PagedStdout::new(showing.uses_pager);
    let mut kept =
        keep.map(|keep| keep.retained_result.insert(ResultCache::new(schema, keep.bytes_max)));
    // The columns are final once there are rows, or the run has ended without rows.
    let screen = |running: &mut RunHandle| -> Result<TerminalTable> {
        Ok(TerminalTable::new(
            &running.wait_for_schema(|| Ok(()))?,
            showing.terminal_table_options(),
        )?)
    };
    let mut is_written = false;
    loop {
        match running.next_event(PROGRESS_CHECK_INTERVAL)? {
            RunEvent::InterimResult(glimpse) => {
                // From here on the user may accept the interim result.
                terminal::answer_early_on_signal(enough);
                if glimpse.bytes_read_share == 0.0 {
                    continue;
                }
                bar.clear();
                glimpses.draw(&glimpse, showing.terminal_table_options())?;
            }
            RunEvent::Batch(batch) => {
                glimpses.erase(bar);
                // Rows and the bar share the screen.
                if showing.rows_max.is_none() && batch.num_rows() > 0 {
                    is_written = true;
                    bar.clear();
                }
                if let Some(kept) = &mut kept {
                    kept.add_batch(&batch);
                }
                let table = match &mut table {
                    Some(table) => table,
                    none => none.insert(screen(running)?),
                };
                table.add_batch(&batch, &mut pages).map_err(Error::from)?;
            }
            RunEvent::NothingYet if is_written => {}
            RunEvent::NothingYet => bar.tick(),
            RunEvent::End => break,
        }
    }
    bar.clear();
    glimpses.erase(bar);
    let table = match table {
        Some(table) => table,
        None => screen(running)?,
    };
    let rows = table.row_count();
    let shown = table.finish(&mut pages).map_err(Error::from).and_then(|()| pages.finish());
    match shown {
        // All rows have been read: a user who leaves the pager has seen enough, and the summary still
        // follows.
        Ok(()) | Err(Error::ClosedPipe) => Ok(OutputSummary { rows, ..OutputSummary::default() }),
        Err(error) => Err(error),
    }
}

/// Interim results on the terminal, each of which replaces the one before.
struct InterimResultDisplay {
    /// Number of lines that the current interim result takes.
    drawn_lines: usize,
    started_at: Instant,
}

/// Number of screen lines that stay free for the bar and the lines above.
const RESERVED_LINES: usize = 3;

impl InterimResultDisplay {
    fn draw(&mut self, glimpse: &InterimResult, look: TerminalTableOptions) -> Result<()> {
        let lines_max = stdout_display::terminal_size().1.saturating_sub(RESERVED_LINES);
        // The header, the line that counts hidden rows, and the line below the table.
        let rows_max = lines_max.saturating_sub(5).max(1);
        let rows = Some(look.rows_max.unwrap_or(usize::MAX).min(rows_max));
        let mut table =
            TerminalTable::new(&glimpse.schema, TerminalTableOptions { rows_max: rows, ..look })
                .map_err(Error::from)?;
        let mut drawn = Vec::new();
        for batch in &glimpse.batches {
            table.add_batch(batch, &mut drawn).map_err(Error::from)?;
        }
        table.finish(&mut drawn).map_err(Error::from)?;
        let mut text = String::from_utf8_lossy(&drawn).into_owned();
        let per_share =
            self.started_at.elapsed().as_secs_f64() / glimpse.bytes_read_share.max(1e-6);
        let left = per_share * (1.0 - glimpse.bytes_read_share);
        let left = Duration::from_secs_f64(left.min(1e9));
        let say = interim_result_footer(glimpse.bytes_read_share, left, look.width);
        text.push_str(&stdout_display::dimmed_line(&say, look.width, look.use_colours));
        let lines: Vec<&str> = text.lines().take(lines_max.max(1)).collect();
        let mut out = std::io::stdout().lock();
        let back = self.erase_sequence();
        self.drawn_lines = lines.len();
        // A single write avoids flicker.
        let drawn = format!("{back}{}\n", lines.join("\n"));
        let written = out.write_all(drawn.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Error::io("write", "standard output", error))
    }

    /// Returns the escape sequence that erases the interim result on the screen.
    fn erase_sequence(&self) -> String {
        match self.drawn_lines {
            0 => String::new(),
            // The cursor is behind anything typed meanwhile.
            lines => format!("\r\x1b[{lines}A\x1b[J"),
        }
    }

    fn erase(&mut self, bar: &mut RunProgressBar) {
        if self.drawn_lines > 0 {
            bar.clear();
            let mut out = std::io::stdout().lock();
            // A failing output is reported when the rows are written.
            let _ = out.write_all(self.erase_sequence().as_bytes()).and_then(|()| out.flush());
            self.drawn_lines = 0;
        }
    }
}

/// Returns the line below an interim result, as detailed as `width` columns allow. Even the shortest form
/// says that Ctrl-C accepts the result.
fn interim_result_footer(share: f64, left: Duration, width: usize) -> String {
    let (read, left) = (coverage::format_percent(share), indicatif::HumanDuration(left));
    let says = [
        format!("{read} read, about {left} left; Ctrl-C takes the answer as it stands"),
        format!("{read} read, about {left} left; Ctrl-C takes this answer"),
        format!("{read} read; Ctrl-C takes this answer"),
        format!("{read} read; Ctrl-C takes it"),
    ];
    let fits = says.iter().position(|say| say.chars().count() <= width);
    let [.., last] = &says;
    fits.map_or(last, |place| &says[place]).clone()
}

/// Waits for a run that returns no rows.
pub(super) fn wait_for_run_without_rows(
    mut running: RunHandle,
    preparation: &PreparedRun,
) -> anyhow::Result<RunHandle> {
    let mut bar = RunProgressBar::new(&preparation.settings.progress);
    let ended = running.for_each_batch(
        |_| Ok(()),
        || {
            bar.tick();
            Ok(())
        },
    );
    bar.clear();
    if let Some(warning) = running.take_warning() {
        terminal::print_warning(&warning);
    }
    ended?;
    Ok(running)
}

/// Waits for a run that writes a partial table, and prints its summary.
pub(super) fn finish_partial_table(
    running: RunHandle,
    preparation: &PreparedRun,
    target: &str,
    coverage: &CoverageDestination,
) -> anyhow::Result<VerbOutcome> {
    let running = wait_for_run_without_rows(running, preparation)?;
    let found = running
        .coverage()
        .ok_or_else(|| Error::Internal("a run that has ended without a coverage".to_owned()))?;
    terminal::print_note(&format!("wrote the partial table `{target}`"));
    terminal::print_note(&found.summary_line());
    coverage.write(found)?;
    Ok(if found.complete { VerbOutcome::Complete } else { VerbOutcome::Incomplete })
}

/// Prints the summary of a run on standard error.
fn print_summary(found: &Coverage, sink: &SinkSpec, written: &OutputSummary, how: SummaryDetail) {
    // Without rows, only outputs named by column values are not written.
    if (how != SummaryDetail::FaultsOnly || found.rows.rejected > 0)
        && written.files == 0
        && sink.url != "-"
        && sink.url.contains('{')
    {
        terminal::print_note(&format!("wrote no file: there are no rows for `{}`", sink.url));
    }
    if how != SummaryDetail::FaultsOnly && written.files > 0 {
        let what = match written.files {
            1 => format!("`{}`", written.paths.first().map_or(sink.url.as_str(), String::as_str)),
            files => {
                format!("{} files in `{}`", coverage::format_grouped_digits(files), written.root)
            }
        };
        terminal::print_note(&format!(
            "wrote {what}: {} row{}, {}",
            coverage::format_grouped_digits(written.rows),
            if written.rows == 1 { "" } else { "s" },
            coverage::format_decimal_bytes(written.bytes)
        ));
    }
    let for_people = sink.format == Some(OutputFormat::Text);
    let gave_up = found.estimates.iter().any(EstimateAccuracy::has_too_large_answers);
    let is_late = found.sampled.as_ref().is_some_and(|sampled| sampled.late_seconds.is_some());
    let faulty = !found.complete || found.rows.rejected > 0 || gave_up || is_late;
    // A query without input has no coverage to print.
    let is_told = how == SummaryDetail::OutputsAndCoverageForPeople
        && (for_people && found.files > 0 || written.files > 0);
    if how == SummaryDetail::OutputsAndCoverage || is_told || faulty {
        terminal::print_note(&found.summary_line());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::interim_result_footer;

    #[test]
    fn interim_result_footer_fits_the_width() {
        let left = Duration::from_secs(15);
        for (width, expected) in [
            (100, "40 % read, about 15 seconds left; Ctrl-C takes the answer as it stands"),
            (70, "40 % read, about 15 seconds left; Ctrl-C takes the answer as it stands"),
            (69, "40 % read, about 15 seconds left; Ctrl-C takes this answer"),
            (60, "40 % read, about 15 seconds left; Ctrl-C takes this answer"),
            (40, "40 % read; Ctrl-C takes this answer"),
            (30, "40 % read; Ctrl-C takes it"),
            (10, "40 % read; Ctrl-C takes it"),
        ] {
            assert_eq!(interim_result_footer(0.4, left, width), expected, "{width}");
        }
    }
}
