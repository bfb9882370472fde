//! `EXPLAIN ANALYZE`: runs a query, drops its rows, and answers with the plan and what the run measured.
//!
//! Every figure is a counter of this run or a clock: bytes, rows and splits come from the scans, spilled bytes and
//! processor time from [`Progress`](tidemill_base::progress::Progress), memory from the process. The answer has the
//! coverage of the query that was run.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;
use tidemill_base::coverage::{Coverage, format_decimal_bytes, format_grouped_digits};
use tidemill_base::error::Result;
use tidemill_base::memory_watch::MemoryWatch;
use tidemill_base::progress::{RunProgress, process_cpu_seconds};
use tidemill_base::redaction::redact_url;
use tidemill_source::RejectLog;

use crate::plan::Plan;
use crate::results::{Account, Results, RowSource};
use crate::route::Route;
use crate::scan::SourceTable;

/// The columns of the answer: a line of the plan in each row, as `EXPLAIN` gives it.
static COLUMNS: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)])));

/// The columns of the answer to `EXPLAIN ANALYZE`.
pub(crate) fn columns() -> &'static SchemaRef {
    &COLUMNS
}

/// Durations of the phases of a run.
struct Times {
    /// Until the query was planned, files being listed and sampled.
    planning: Duration,
    /// From there until the first rows could be asked for: a route by tables has read its input by then.
    starting: Duration,
    /// From there until the last row.
    finishing: Duration,
}

impl Plan {
    /// Runs the query, and returns its plan with the figures of the run.
    ///
    /// # Errors
    /// As the query.
    pub(crate) fn analyze(self, planning: Duration) -> Result<Results> {
        let mut text = self.explain()?.to_string();
        let (settings, tables) = (self.settings.clone(), self.tables.clone());
        let (logical, sql) = (self.logical.clone(), self.query.sql.clone());
        let (is_mergeable, has_tables) =
            (self.mergeable().is_ok(), matches!(self.route, Route::Tables(_)));
        let mut memory = MemoryWatch::start();
        let (began, cpu_seconds) = (Instant::now(), process_cpu_seconds());
        let mut results = self.run()?;
        let starting = began.elapsed();
        let mut rows = 0;
        for batch in &mut results {
            rows += batch?.num_rows() as u64;
        }
        let took = began.elapsed();
        let times = Times { planning, starting, finishing: took.saturating_sub(starting) };
        let coverage = results.coverage();
        let progress = &settings.progress;
        let memory = memory.stop(took);
        let cpu_seconds = (process_cpu_seconds() - cpu_seconds).max(0.0);

        let mut said = vec![times_line(&times, has_tables, progress, cpu_seconds)];
        said.push(format!(
            "memory: at most {} in this process, of a budget of {}; {} spilled",
            format_decimal_bytes(memory.peak_bytes),
            format_decimal_bytes(settings.memory_bytes),
            format_decimal_bytes(progress.spilled_bytes()),
        ));
        said.push(format!("input: {}", coverage.summary_line()));
        let read = tables.iter().filter_map(|(name, table)| source_line(name, table));
        said.extend(read);
        said.extend(steps_line(has_tables, progress, &coverage, rows));
        said.extend(progress.workers().into_iter().map(|(name, done)| {
            format!(
                "worker {name}: {}, {}, {} of processor time",
                counted(done.tasks_done, "task"),
                format_decimal_bytes(done.bytes_done),
                seconds(done.cpu_time),
            )
        }));
        text.push_str("measured:\n");
        said.iter().for_each(|line| _ = writeln!(text, "  {line}"));

        let lines = StringArray::from(text.lines().collect::<Vec<_>>());
        let batch = RecordBatch::try_new(Arc::clone(columns()), vec![Arc::new(lines)])?;
        let account = Account {
            tables: Vec::new(),
            // The run has judged its records.
            rejects: Arc::new(RejectLog::new(settings.max_bad, None)),
            mergeable: is_mergeable,
            rejected_folder: None,
            estimates: Arc::new(Mutex::new(coverage.estimates.clone())),
            precisions: Arc::default(),
            calls: Vec::new(),
            sql,
            plan: logical,
            cut_short: false,
            is_stable: false,
            part: None,
            shown: Vec::new(),
            merged: Some(coverage),
        };
        Ok(Results {
            schema: Arc::clone(columns()),
            inner: RowSource::Ready(Some(batch)),
            calculation: None,
            account,
            cancel: settings.cancel,
            ended: false,
            complete: false,
        })
    }
}

/// The line of the run's times.
fn times_line(times: &Times, has_tables: bool, progress: &RunProgress, cpu_seconds: f64) -> String {
    let Times { planning, starting, finishing } = times;
    let phases = match has_tables {
        true => format!(
            "reading and grouping {}, merging and finishing {}",
            seconds(*starting),
            seconds(*finishing)
        ),
        false => format!("running {}", seconds(*starting + *finishing)),
    };
    let mut line = format!("time: planning {}, {phases}", seconds(*planning));
    _ = write!(line, "; {cpu_seconds:.3} s of processor time in this process");
    let (map, tables) = (progress.map_counters().cpu_ns(), progress.table_counters().cpu_ns());
    if map > 0 || tables > 0 {
        let of = |ns: u64| seconds(Duration::from_nanos(ns));
        _ = write!(line, " (map {}, tables {})", of(map), of(tables));
    }
    line
}

/// The line of a source: which of its files and splits were read.
fn source_line(name: &str, table: &SourceTable) -> Option<String> {
    let source = table.source()?;
    let scans = table.scans();
    if scans.is_empty() {
        // Read by workers, or not at all.
        return None;
    }
    let (mut planned, mut files) = (0, HashSet::new());
    let (mut splits, mut bytes, mut rows, mut rejected) = (0, 0, 0, 0);
    for scan in &scans {
        planned += scan.splits().len() as u64;
        let pieces = scan.splits().iter().flat_map(|split| &split.parts);
        files.extend(pieces.map(|piece| piece.file.display_name().to_owned()));
        splits += scan.split_amount().done;
        bytes += scan.byte_amount().done;
        rows += scan.row_count();
        rejected += scan.rejected_count();
    }
    let all = source.files().iter().map(|file| file.display_name()).collect::<HashSet<_>>().len();
    let mut line = format!(
        "source {}: {} of {}, {} of {}, {} read, {} decoded",
        redact_url(name),
        format_grouped_digits(files.len() as u64),
        counted(all as u64, "file"),
        format_grouped_digits(splits),
        counted(planned, "split"),
        format_decimal_bytes(bytes),
        counted(rows, "row"),
    );
    if scans.len() > 1 {
        _ = write!(line, " in {} readings", scans.len());
    }
    if rejected > 0 {
        _ = write!(line, ", {} rejected", format_grouped_digits(rejected));
    }
    Some(line)
}

/// The lines of the rows between the steps.
fn steps_line(
    has_tables: bool,
    progress: &RunProgress,
    coverage: &Coverage,
    rows: u64,
) -> Vec<String> {
    let result = format!("result: {}", counted(rows, "row"));
    match has_tables {
        true => vec![
            format!(
                "map: {} in, {} out",
                counted(coverage.rows.done, "row"),
                counted(progress.map_counters().rows(), "row")
            ),
            format!("tables: {}", counted(progress.table_counters().rows(), "group")),
            result,
        ],
        false => vec![result],
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

fn counted(count: u64, word: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{} {word}{end}", format_grouped_digits(count))
}
