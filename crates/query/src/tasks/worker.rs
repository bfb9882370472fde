//! Who reads splits for somebody else.

use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_base::Settings;
use tidemill_base::error::{Error, Result, caught};
use tidemill_base::stack::{PLAN_STACK_BYTES, on_large_stack};
use tidemill_remote::{Budget, StorageOptions};
use tidemill_source::{Rejects, Reopener};
use tidemill_sql::statement::one_select;
use tidemill_tables::partial::Header;

use super::job::{Job, bad};
use super::task::{PartWriter, Read, Task, failed};
use crate::plan::{Over, Plan};
use crate::route::Route;
use crate::scan::{RunState, SourceTable};
use crate::tables::{self, Part, Work};

/// A job as one process does its tasks: planned once, however many there are.
pub struct Worker {
    plan: Plan,
    stream: Arc<SourceTable>,
    reopener: Reopener,
    /// One task at a time; it has all threads.
    in_work: Mutex<()>,
}

impl Worker {
    /// Plans a job; what is elsewhere is reached by `storage`, beyond what the environment says.
    ///
    /// # Errors
    /// Where the job is of another release, or is planned otherwise here.
    pub fn new(job: &[u8], settings: &Settings, storage: &StorageOptions) -> Result<Self> {
        on_large_stack(PLAN_STACK_BYTES, || Self::planned(job, settings, storage))
    }

    fn planned(job: &[u8], settings: &Settings, storage: &StorageOptions) -> Result<Self> {
        let Job { said, schemas, sides } = Job::decoded(job)?;
        let reopener = Reopener::new(said.source, storage, &settings.cancel)?;
        let nothing = Arc::new(reopener.open(&[])?);
        let mut sources = said.names.into_iter().zip(schemas);
        let (source, schema) = sources.next().ok_or_else(|| bad("it has no source"))?;
        let header = Header {
            sql: said.sql,
            source,
            schema,
            others: sources.collect(),
            tables: said.tables,
            runs: Vec::new(),
        };
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::new(Rejects::held()),
            ahead: Budget::with(settings.memory_bytes / 16, storage.read_memory_bytes()),
            cores: None,
        };
        let mut is_there = false;
        let over = Over {
            header: &header,
            settings,
            rejects: Arc::clone(&run.rejects),
            counts_as_before: false,
            planned_ns: Some(said.planned_ns),
        };
        let statement = one_select(&header.sql)?;
        let sample = said.sample.map(Into::into);
        let plan = over.plan(statement, |name, schema| {
            let planned_over = SourceTable::without_files(Arc::clone(schema), run.clone());
            if is_there || name != header.source {
                return planned_over;
            }
            is_there = true;
            SourceTable::new(Arc::clone(&nothing), run.clone(), sample, planned_over.hidden())
        })?;
        let found = plan.tables_of()?.spec.describe();
        if found != header.tables {
            return Err(bad(&format!(
                "its tables are `{}`, and here they are `{}`",
                header.tables.join("; "),
                found.join("; ")
            )));
        }
        let own = plan.tables_of()?;
        if own.sides.len() != sides.len() {
            return Err(bad("what is joined is not what is joined here"));
        }
        for (side, batches) in own.sides.iter().zip(sides) {
            side.rows.fill(batches);
        }
        let stream = plan
            .table(&header.source)
            .ok_or_else(|| Error::Internal("a job without its source".into()))?;
        Ok(Worker { stream, reopener, plan, in_work: Mutex::new(()) })
    }

    /// Does a task; what comes of it, its error included, is a message to whoever dealt it.
    pub fn run(&self, task: &[u8]) -> Vec<u8> {
        let _turn = self.in_work.lock();
        let done = caught(|| self.part(task));
        self.stream.forget_scans();
        done.unwrap_or_else(failed)
    }

    fn part(&self, task: &[u8]) -> Result<Vec<u8>> {
        let Task { files, splits } = Task::decoded(task)?;
        let source = Arc::new(self.reopener.open(&files)?);
        let splits = splits
            .iter()
            .map(|split| source.described_split(split))
            .collect::<Result<Vec<_>, _>>()?;
        self.stream.give(Arc::clone(&source), splits);
        let Route::Tables(parts) = &self.plan.route else {
            return Err(Error::Internal("a job without tables".into()));
        };
        let coded = self.plan.coded(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let (map, scan) = self.plan.per_split(&parts.stream, map)?;
        let settings = &self.plan.settings;
        let work = Work {
            map,
            scan: Arc::clone(&scan),
            spec: &parts.spec,
            threads: settings.threads,
            budget_bytes: settings.share(3, 4),
            spill_dirs: &settings.spill_dirs,
            cancel: &settings.cancel,
            progress: &settings.progress,
        };
        let part = tables::run_part(&work)?;
        let read = scan.take_read().into_iter().map(|read| Read {
            place: read.index,
            is_exact: read.outcome.is_exact,
            mapped_rows: read.mapped_rows,
            stats: read.outcome.stats.describe(&scan.splits()[read.index]),
        });
        let mut writer = PartWriter::new(&read.collect::<Vec<_>>())?;
        match part {
            Part::Table(mut merged) => {
                while let Some(groups) = merged.next_groups()? {
                    writer.write(&groups)?;
                }
            }
            Part::Chunks(chunks) => {
                for (place, chunk) in chunks {
                    writer.begin_split(place)?;
                    for groups in chunk.groups()? {
                        writer.write(&groups?)?;
                    }
                }
            }
        }
        Ok(writer.finish())
    }
}
