//! Partial tables of earlier runs, merged and finished.

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
use tidemill_remote::PrefetchBudget;
use tidemill_sink::StagedFile;
use tidemill_source::RejectLog;
use tidemill_sql::statement::parse_select;
use tidemill_tables::AggregateTable;
use tidemill_tables::merge::{ChunkMerger, MergedTable};
use tidemill_tables::partial_tables::{self, PartialRun, PartialTableHeader, PartialTableReader};

use crate::plan::{Over, Plan, refuse_standard_output};
use crate::results::Results;
use crate::scan::{RunState, SourceTable};
use crate::secrets::without_secrets;

/// Partial tables merged in the order given.
pub struct Merge {
    plan: Plan,
    partials: Vec<PathBuf>,
    repeats: Repeats,
}

/// Whether the rows of one run may be in several of the tables that are merged, and count as often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repeats {
    /// It is an error.
    #[default]
    Refused,
    /// They may.
    Allowed,
}

/// The runs that were met so far, and the first table that holds each.
#[derive(Default)]
struct Met {
    runs: Vec<PartialRun>,
    tables: HashMap<String, PathBuf>,
}

impl Met {
    fn add(&mut self, path: &Path, runs: Vec<PartialRun>, repeats: Repeats) -> Result<()> {
        for run in runs {
            match self.tables.get(&run.run) {
                None => {
                    self.tables.insert(run.run.clone(), path.to_path_buf());
                    self.runs.push(run);
                }
                Some(first) if repeats == Repeats::Refused => {
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

impl Merge {
    /// Opens the partial tables' headers and plans their query.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a file that is no partial table; [`Error::Usage`] where two are
    /// not of the same query, or hold rows of the same run.
    pub fn new(partials: &[PathBuf], settings: &RunSettings) -> Result<Self> {
        Self::with_repeats(partials, Repeats::Refused, settings)
    }

    /// The same, where rows of one run may be in several tables.
    ///
    /// # Errors
    /// As [`Merge::new`].
    pub fn with_repeats(
        partials: &[PathBuf],
        repeats: Repeats,
        settings: &RunSettings,
    ) -> Result<Self> {
        run_on_large_stack(PLAN_STACK_BYTES, || Self::planned(partials, repeats, settings))
    }

    fn planned(partials: &[PathBuf], repeats: Repeats, settings: &RunSettings) -> Result<Self> {
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
            // Earlier releases kept what may be secret.
            oldest.get_or_insert_with(|| path.clone());
            let (statement, sql) = without_secrets(&header.sql)?;
            header.sql = sql;
            Ok((statement, header))
        };
        let (statement, first) = header(first_path)?;
        let mut met = Met::default();
        met.add(first_path, first.runs.clone(), repeats)?;
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
            met.add(path, other.runs, repeats)?;
        }
        let rejects = Arc::new(RejectLog::new(settings.max_bad, None));
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::clone(&rejects),
            ahead: PrefetchBudget::default(),
            cores: None,
        };
        let over_headers = |counts_as_before: bool, statement: Statement| -> Result<Plan> {
            let rejects = Arc::clone(&rejects);
            let over =
                Over { header: &first, settings, rejects, counts_as_before, planned_ns: None };
            over.plan(statement, |_, schema| {
                SourceTable::without_files(Arc::clone(schema), run.clone())
            })
        };
        let mut plan = over_headers(false, statement.clone())?;
        let mut found = plan.mergeable()?.spec.describe_keys_and_states();
        if found != first.table_description {
            // Earlier releases took some aggregates of different values apart in another way.
            plan = over_headers(true, statement)?;
            found = plan.mergeable()?.spec.describe_keys_and_states();
        }
        if found != first.table_description {
            return Err(Error::Corrupt {
                path: first_path.display().to_string(),
                offset: None,
                reason: "its tables are not those of its query".into(),
                hint: Some("make it again with this release".into()),
            });
        }
        if let (Some(path), true) = (oldest, plan.mergeable()?.spec.had_truncated_nanoseconds()) {
            return Err(Error::usage_with_hint(
                format!(
                    "`{}` is of an earlier release, whose `unique` and `top_k` cut nanoseconds to \
                     microseconds",
                    path.display()
                ),
                "make it again with this release",
            ));
        }
        Ok(Merge { plan, partials: partials.to_vec(), repeats })
    }

    /// The result's columns.
    pub fn schema(&self) -> &SchemaRef {
        self.plan.schema()
    }

    fn fold(&self) -> Result<(MergedTable, Coverage, Vec<PartialRun>)> {
        let parts = self.plan.mergeable()?;
        self.plan.tell_progress();
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
        let mut met = Met::default();
        let mut turn = ComputeTurn::new(settings.cores.as_ref());
        for (place, path) in self.partials.iter().enumerate() {
            let mut reader = PartialTableReader::open(path)?;
            while let Some(groups) = reader.next_groups()? {
                turn.acquire(|| settings.cancel.is_cancelled());
                settings.cancel.check()?;
                let chunk = decoder
                    .decode_partial_table_chunk(&groups, place)
                    .map_err(|e| in_file(e, path))?;
                merger.add_chunk(chunk)?;
                merger.merge_and_spill(0)?;
            }
            coverages.extend(reader.coverage().cloned());
            met.add(path, reader.runs(), self.repeats)?;
        }
        let merged = merger.finish(settings.threads)?;
        settings.progress.table_counters().add_thread_cpu(&mut clock);
        Ok((merged, partial_tables::merge_coverages(&coverages), met.runs))
    }

    /// Merges and finishes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file; else as [`Plan::run`].
    pub fn run(self) -> Result<Results> {
        let (merged, coverage, _) = self.fold()?;
        let account = self.plan.account(Some(coverage));
        self.plan.finish(self.plan.mergeable()?, merged, account, None)
    }

    /// Merges into one partial table at `out`.
    ///
    /// # Errors
    /// [`Error::Usage`] where `out` is `-`; else as [`Merge::run`] and [`StagedFile::create`].
    pub fn run_partial(self, out: &Path, overwrite: bool, run: &RunId) -> Result<Coverage> {
        refuse_standard_output(out)?;
        let file = StagedFile::create(out, overwrite, run)?;
        let (merged, coverage, runs) = self.fold()?;
        self.plan.keep(self.plan.mergeable()?, merged, out, file, (Some(coverage), runs))
    }
}

/// A complaint about a state, with the file that it is in.
fn in_file(error: Error, file: &Path) -> Error {
    match error {
        Error::Corrupt { offset, reason, hint, .. } => {
            Error::Corrupt { path: file.display().to_string(), offset, reason, hint }
        }
        other => other,
    }
}
