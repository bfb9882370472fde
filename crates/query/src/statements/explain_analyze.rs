//! `EXPLAIN ANALYZE`: runs a query, drops its rows, and returns the plan with measurements of the run.
//!
//! Every figure is a counter of this run or a clock: bytes, rows and splits come from the scans, spilled
//! bytes and processor time from [`Progress`](tidemill_base::progress::RunProgress), memory from the process.
//! The result has the coverage of the query that ran.

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

use crate::execution::results::{CoverageBuilder, Results, RowSource};
use crate::execution::scan::SourceTable;
use crate::plan::QueryPlan;
use crate::planning::execution_path::ExecutionPath;

/// Schema of the result: one text column, with a line of the plan in each row, as for `EXPLAIN`.
static PLAN_LINE_SCHEMA: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)])));

/// Returns the schema of the result of `EXPLAIN ANALYZE`.
pub(crate) fn plan_line_schema() -> &'static SchemaRef {
    &PLAN_LINE_SCHEMA
}

/// Durations of the phases of a run.
struct PhaseDurations {
    /// Time to plan the query, which includes listing and sampling files.
    planning: Duration,
    /// Time from the end of planning to the first rows. The table path reads its input in this phase.
    starting: Duration,
    /// Time from then to the last row.
    finishing: Duration,
}

impl QueryPlan {
    /// Runs the query, and returns its plan with the measurements of the run.
    ///
    /// # Errors
    /// Those of running the query.
    pub(crate) fn run_explain_analyze(self, planning: Duration) -> Result<Results> {
        let mut text = self.explain()?.to_string();
        let (settings, tables) = (self.settings.clone(), self.source_tables.clone());
        let (logical, sql) = (self.logical_plan.clone(), self.query.sql.clone());
        let (is_mergeable, has_tables) = (
            self.require_mergeable().is_ok(),
            matches!(self.execution_path, ExecutionPath::Tables(_)),
        );
        let mut memory = MemoryWatch::start();
        let (began, cpu_seconds) = (Instant::now(), process_cpu_seconds());
        let mut results = self.run()?;
        let starting = began.elapsed();
        let mut rows = 0;
        for batch in &mut results {
            rows += batch?.num_rows() as u64;
        }
        let took = began.elapsed();
        let times = PhaseDurations { planning, starting, finishing: took.saturating_sub(starting) };
        let coverage = results.coverage();
        let progress = &settings.progress;
        let memory = memory.stop(took);
        let cpu_seconds = (process_cpu_seconds() - cpu_seconds).max(0.0);

        let mut said = vec![format_phase_durations(&times, has_tables, progress, cpu_seconds)];
        said.push(format!(
            "memory: at most {} in this process, of a budget of {}; {} spilled",
            format_decimal_bytes(memory.peak_bytes),
            format_decimal_bytes(settings.memory_bytes),
            format_decimal_bytes(progress.spilled_bytes()),
        ));
        said.push(format!("input: {}", coverage.summary_line()));
        let read = tables.iter().filter_map(|(name, table)| format_source(name, table));
        said.extend(read);
        said.extend(format_row_counts(has_tables, progress, &coverage, rows));
        said.extend(progress.workers().into_iter().map(|(name, done)| {
            format!(
                "worker {name}: {}, {}, {} of processor time",
                format_count(done.tasks_done, "task"),
                format_decimal_bytes(done.bytes_done),
                format_seconds(done.cpu_time),
            )
        }));
        text.push_str("measured:\n");
        said.iter().for_each(|line| _ = writeln!(text, "  {line}"));

        let lines = StringArray::from(text.lines().collect::<Vec<_>>());
        let batch = RecordBatch::try_new(Arc::clone(plan_line_schema()), vec![Arc::new(lines)])?;
        let account = CoverageBuilder {
            source_tables: Vec::new(),
            // The run itself has checked the rejected records against their limit.
            rejects: Arc::new(RejectLog::new(settings.max_bad, None)),
            is_mergeable,
            rejected_folder: None,
            table_estimates: Arc::new(Mutex::new(coverage.estimates.clone())),
            engine_precisions: Arc::default(),
            engine_aggregates: Vec::new(),
            sql,
            logical_plan: logical,
            is_cut_short: false,
            is_stable_sort: false,
            part_read: None,
            shown_bounds: Vec::new(),
            merged_coverage: Some(coverage),
        };
        Ok(Results {
            schema: Arc::clone(plan_line_schema()),
            row_source: RowSource::SingleBatch(Some(batch)),
            row_calculation: None,
            coverage_builder: account,
            cancel: settings.cancel,
            has_ended: false,
            is_complete: false,
        })
    }
}

/// Formats the durations of the phases and the processor time as one line.
fn format_phase_durations(
    times: &PhaseDurations,
    has_tables: bool,
    progress: &RunProgress,
    cpu_seconds: f64,
) -> String {
    let PhaseDurations { planning, starting, finishing } = times;
    let phases = match has_tables {
        true => format!(
            "reading and grouping {}, merging and finishing {}",
            format_seconds(*starting),
            format_seconds(*finishing)
        ),
        false => format!("running {}", format_seconds(*starting + *finishing)),
    };
    let mut line = format!("time: planning {}, {phases}", format_seconds(*planning));
    _ = write!(line, "; {cpu_seconds:.3} s of processor time in this process");
    let (map, tables) = (progress.map_counters().cpu_ns(), progress.table_counters().cpu_ns());
    if map > 0 || tables > 0 {
        let of = |ns: u64| format_seconds(Duration::from_nanos(ns));
        _ = write!(line, " (map {}, tables {})", of(map), of(tables));
    }
    line
}

/// Formats one line about a source: the files and splits read, of how many. Returns `None` for a source
/// without scans.
fn format_source(name: &str, table: &SourceTable) -> Option<String> {
    let source = table.source()?;
    let scans = table.scans();
    if scans.is_empty() {
        // Workers read it, or nobody did.
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
        format_count(all as u64, "file"),
        format_grouped_digits(splits),
        format_count(planned, "split"),
        format_decimal_bytes(bytes),
        format_count(rows, "row"),
    );
    if scans.len() > 1 {
        _ = write!(line, " in {} readings", scans.len());
    }
    if rejected > 0 {
        _ = write!(line, ", {} rejected", format_grouped_digits(rejected));
    }
    Some(line)
}

/// Formats the row counts between the steps, one line each.
fn format_row_counts(
    has_tables: bool,
    progress: &RunProgress,
    coverage: &Coverage,
    rows: u64,
) -> Vec<String> {
    let result = format!("result: {}", format_count(rows, "row"));
    match has_tables {
        true => vec![
            format!(
                "map: {} in, {} out",
                format_count(coverage.rows.done, "row"),
                format_count(progress.map_counters().rows(), "row")
            ),
            format!("tables: {}", format_count(progress.table_counters().rows(), "group")),
            result,
        ],
        false => vec![result],
    }
}

fn format_seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

fn format_count(count: u64, word: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{} {word}{end}", format_grouped_digits(count))
}
