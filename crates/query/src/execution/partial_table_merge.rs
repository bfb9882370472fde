//! The merge of partial tables that earlier runs have written, and the result of the merged table.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::sql::parser::Statement;
use tidemill_base::RunSettings;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result};
use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_base::progress::ThreadCpuClock;
use tidemill_base::state_folder::RunId;
use tidemill_dialect::statement::parse_select;
use tidemill_remote::PrefetchBudget;
use tidemill_sink::StagedFile;
use tidemill_source::RejectLog;
use tidemill_tables::AggregateTable;
use tidemill_tables::merging::merge::{ChunkMerger, MergedTable};
use tidemill_tables::merging::partial_tables::{
    self, PartialRun, PartialTableHeader, PartialTableReader,
};

use crate::execution::results::Results;
use crate::execution::scan::{RunState, SourceTable};
use crate::plan::{HeaderPlanner, QueryPlan, refuse_standard_output};
use crate::statements::sql_redaction::parse_without_secrets;

/// Partial tables of one query, which are merged in the given order.
pub struct PartialTableMerge {
    plan: QueryPlan,
    partials: Vec<PathBuf>,
    repeat_policy: RepeatedRunPolicy,
}

/// The treatment of partial tables that hold the rows of the same run, which would count more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepeatedRunPolicy {
    /// The merge fails.
    #[default]
    Refuse,
    /// The rows count as often as they occur.
    Allow,
}

/// The runs found so far, and the first table that holds each.
#[derive(Default)]
struct SeenRuns {
    runs: Vec<PartialRun>,
    first_paths: HashMap<String, PathBuf>,
}

impl SeenRuns {
    fn add_runs(
        &mut self,
        path: &Path,
        runs: Vec<PartialRun>,
        repeats: RepeatedRunPolicy,
    ) -> Result<()> {
        for run in runs {
            match self.first_paths.get(&run.run) {
                None => {
                    self.first_paths.insert(run.run.clone(), path.to_path_buf());
                    self.runs.push(run);
                }
                Some(first) if repeats == RepeatedRunPolicy::Refuse => {
                    let both = match first == path {
                        true => format!("`{}` is given twice", path.display()),
                        false => format!(
                            "`{}` and `{}` both hold the rows of run `{}`",
                            first.display(),
                            path.display(),
                            run.run
                        ),
                    };
                    return Err(Error::usage_with_hint(
                        format!("{both}, which would count twice"),
                        "merge each table once; --allow-repeats counts it as often as it is given",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl PartialTableMerge {
    /// Opens the partial tables' headers and plans their query.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a file that is no partial table; [`Error::Usage`] where two belong to different
    /// queries, or hold rows of the same run.
    pub fn new(partials: &[PathBuf], settings: &RunSettings) -> Result<Self> {
        Self::open_with_repeat_policy(partials, RepeatedRunPolicy::Refuse, settings)
    }

    /// Opens the partial tables' headers and plans their query, with a policy for runs that occur in several
    /// tables.
    ///
    /// # Errors
    /// Those of [`PartialTableMerge::new`].
    pub fn open_with_repeat_policy(
        partials: &[PathBuf],
        repeats: RepeatedRunPolicy,
        settings: &RunSettings,
    ) -> Result<Self> {
        run_on_large_stack(PLAN_STACK_BYTES, || Self::open_and_plan(partials, repeats, settings))
    }

    fn open_and_plan(
        partials: &[PathBuf],
        repeats: RepeatedRunPolicy,
        settings: &RunSettings,
    ) -> Result<Self> {
        let Some(first_path) = partials.first() else {
            return Err(Error::usage("there is nothing to merge"));
        };
        let mut oldest = None;
        let mut header = |path: &PathBuf| -> Result<(Statement, PartialTableHeader)> {
            let reader = PartialTableReader::open(path)?;
            let mut header = reader.header().clone();
            if !reader.has_unknown_runs() {
                return Ok((parse_select(&header.sql)?, header));
            }
            // Earlier releases kept secrets in the SQL.
            oldest.get_or_insert_with(|| path.clone());
            let (statement, sql) = parse_without_secrets(&header.sql)?;
            header.sql = sql;
            Ok((statement, header))
        };
        let (statement, first) = header(first_path)?;
        let mut met = SeenRuns::default();
        met.add_runs(first_path, first.runs.clone(), repeats)?;
        for path in &partials[1..] {
            let (_, other) = header(path)?;
            let differs = if other.sql != first.sql {
                Some(("queries", first.sql.clone(), other.sql))
            } else if other.table_description != first.table_description {
                Some((
                    "tables",
                    first.table_description.join("; "),
                    other.table_description.join("; "),
                ))
            } else {
                None
            };
            if let Some((what, one, two)) = differs {
                return Err(Error::usage_with_hint(
                    format!(
                        "`{}` and `{}` are of different {what}:\n  {one}\n  {two}",
                        first_path.display(),
                        path.display()
                    ),
                    "merge partial tables of one job; `schema` in its [source] settles types",
                ));
            }
            met.add_runs(path, other.runs, repeats)?;
        }
        let rejects = Arc::new(RejectLog::new(settings.max_bad, None));
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::clone(&rejects),
            prefetch_budget: PrefetchBudget::default(),
            cores: None,
        };
        let over_headers = |counts_as_before: bool, statement: Statement| -> Result<QueryPlan> {
            let rejects = Arc::clone(&rejects);
            let over = HeaderPlanner {
                header: &first,
                settings,
                rejects,
                uses_legacy_distinct_counts: counts_as_before,
                now_ns: None,
            };
            over.plan_statement(statement, |_, schema| {
                SourceTable::without_files(Arc::clone(schema), run.clone())
            })
        };
        let mut plan = over_headers(false, statement.clone())?;
        let mut found = plan.require_mergeable()?.spec.describe_keys_and_states();
        if found != first.table_description {
            // Earlier releases split some distinct counts into two aggregations in another way.
            plan = over_headers(true, statement)?;
            found = plan.require_mergeable()?.spec.describe_keys_and_states();
        }
        if found != first.table_description {
            return Err(Error::Corrupt {
                path: first_path.display().to_string(),
                offset: None,
                reason: "its tables are not those of its query".into(),
                hint: Some("make it again with this release".into()),
            });
        }
        if let (Some(path), true) =
            (oldest, plan.require_mergeable()?.spec.had_truncated_nanoseconds())
        {
            return Err(Error::usage_with_hint(
                format!(
                    "`{}` is of an earlier release, whose `unique` and `top_k` cut nanoseconds to \
                     microseconds",
                    path.display()
                ),
                "make it again with this release",
            ));
        }
        Ok(PartialTableMerge { plan, partials: partials.to_vec(), repeat_policy: repeats })
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        self.plan.schema()
    }

    fn merge_chunks(&self) -> Result<(MergedTable, Coverage, Vec<PartialRun>)> {
        let parts = self.plan.require_mergeable()?;
        self.plan.report_execution_path();
        let settings = &self.plan.settings;
        let mut clock = ThreadCpuClock::start();
        let merger = ChunkMerger::new(
            &parts.spec,
            &settings.new_table_account(),
            &settings.spill_dirs,
            &settings.cancel,
            &settings.progress,
        )?;
        let decoder = AggregateTable::new(&parts.spec)?;
        let mut coverages = Vec::with_capacity(self.partials.len());
        let mut met = SeenRuns::default();
        let mut turn = ComputeTurn::new(settings.cores.as_ref());
        for (place, path) in self.partials.iter().enumerate() {
            let mut reader = PartialTableReader::open(path)?;
            while let Some(groups) = reader.next_groups()? {
                turn.acquire(|| settings.cancel.is_cancelled());
                settings.cancel.check()?;
                let chunk = decoder
                    .decode_partial_table_chunk(&groups, place)
                    .map_err(|e| with_file_path(e, path))?;
                merger.add_chunk(chunk)?;
                merger.merge_and_spill(0)?;
            }
            coverages.extend(reader.coverage().cloned());
            met.add_runs(path, reader.runs(), self.repeat_policy)?;
        }
        let merged = merger.finish(settings.threads)?;
        settings.progress.table_counters().add_thread_cpu(&mut clock);
        Ok((merged, partial_tables::merge_coverages(&coverages), met.runs))
    }

    /// Merges the tables and returns the result.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file; else those of [`QueryPlan::run`].
    pub fn run(self) -> Result<Results> {
        let (merged, coverage, _) = self.merge_chunks()?;
        let account = self.plan.new_coverage_builder(Some(coverage));
        self.plan.finish_table(self.plan.require_mergeable()?, merged, account, None)
    }

    /// Merges the tables into one partial table at `out`.
    ///
    /// # Errors
    /// [`Error::Usage`] where `out` is `-`; else those of [`PartialTableMerge::run`] and
    /// [`StagedFile::create`].
    pub fn write_partial_table(self, out: &Path, overwrite: bool, run: &RunId) -> Result<Coverage> {
        refuse_standard_output(out)?;
        let file = StagedFile::create(out, overwrite, run)?;
        let (merged, coverage, runs) = self.merge_chunks()?;
        self.plan.write_merged_table(
            self.plan.require_mergeable()?,
            merged,
            out,
            file,
            (Some(coverage), runs),
        )
    }
}

/// Adds the file's path to an error about corrupt states.
fn with_file_path(error: Error, file: &Path) -> Error {
    match error {
        Error::Corrupt { offset, reason, hint, .. } => {
            Error::Corrupt { path: file.display().to_string(), offset, reason, hint }
        }
        other => other,
    }
}
