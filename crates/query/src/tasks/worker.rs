//! Who reads splits for somebody else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemill_base::Settings;
use tidemill_base::coverage::human_bytes;
use tidemill_base::error::{Error, Result, caught};
use tidemill_base::progress::process_cpu_seconds;
use tidemill_base::stack::{PLAN_STACK_BYTES, on_large_stack};
use tidemill_remote::{Budget, StorageOptions};
use tidemill_source::{Rejects, Reopener};
use tidemill_sql::statement::one_select;
use tidemill_tables::partial::Header;

use super::job::{Asked, Job, bad};
use super::task::{PartWriter, Read, RowsPlace, Task, Took, failed};
use crate::map::Map;
use crate::plan::{Over, Plan};
use crate::route::{Route, Tables};
use crate::rows::OrderedRows;
use crate::scan::{RunState, Scan, SoFar, SourceTable};
use crate::tables::{self, Part, Work};

/// A job as one process does its tasks: planned once, however many there are.
pub struct Worker {
    plan: Plan,
    asked: Asked,
    stream: Arc<SourceTable>,
    reopener: Reopener,
    /// One task at a time; it has all threads.
    in_work: Mutex<Mapped>,
}

/// The map over the splits of the last task, of which the next one's is made.
type Mapped = Option<(Map, Arc<Scan>)>;

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
            tables: Vec::new(),
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
        let own_sides = match (&plan.route, &said.asked) {
            (Route::Tables(parts), Asked::Tables(asked)) => {
                let found = parts.spec.describe();
                if &found != asked {
                    return Err(bad(&format!(
                        "its tables are `{}`, and here they are `{}`",
                        asked.join("; "),
                        found.join("; ")
                    )));
                }
                &parts.sides
            }
            (Route::Rows { sides, .. }, Asked::Rows { .. }) => sides,
            _ => return Err(bad("it goes another way here")),
        };
        if own_sides.len() != sides.len() {
            return Err(bad("what is joined is not what is joined here"));
        }
        for (side, batches) in own_sides.iter().zip(sides) {
            side.rows.fill(batches);
        }
        let stream = plan
            .table(&header.source)
            .ok_or_else(|| Error::Internal("a job without its source".into()))?;
        let in_work = Mutex::new(None);
        Ok(Worker { stream, reopener, asked: said.asked, plan, in_work })
    }

    /// Does a task; what comes of it, its error included, is a message to whoever dealt it.
    pub fn run(&self, task: &[u8]) -> Vec<u8> {
        let mut mapped = self.in_work.lock();
        let done = caught(|| self.part(task, &mut mapped));
        self.stream.forget_scans();
        done.unwrap_or_else(failed)
    }

    /// The map over a task's splits.
    fn map(&self, task: &[u8], mapped: &mut Mapped) -> Result<(Map, Arc<Scan>)> {
        let Task { files, splits } = Task::decoded(task)?;
        let source = Arc::new(self.reopener.open(&files)?);
        let splits = splits
            .iter()
            .map(|split| source.described_split(split))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some((map, scan)) = mapped {
            let scan = scan.over(Arc::clone(&source), splits.clone());
            if let Some(map) = map.over(&scan) {
                return Ok((map, scan));
            }
        }
        self.stream.give(source, splits);
        let (map, scan) = match &self.plan.route {
            Route::Tables(parts) => {
                let coded = self.plan.coded(parts)?;
                let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
                self.plan.per_split(&parts.stream, map)?
            }
            Route::Rows { stream, map, .. } => self.plan.per_split(stream, map)?,
            Route::Engine { .. } => {
                return Err(Error::Internal("a job that has no splits".into()));
            }
        };
        *mapped = map.over(&scan).map(|map| (map, Arc::clone(&scan)));
        Ok((map, scan))
    }

    fn part(&self, task: &[u8], mapped: &mut Mapped) -> Result<Vec<u8>> {
        // A process has one task at a time.
        let (began, cpu_before) = (Instant::now(), process_cpu_seconds());
        let (map, scan) = self.map(task, mapped)?;
        let writer = match (&self.plan.route, &self.asked) {
            (Route::Tables(parts), Asked::Tables(_)) => self.groups(parts, map, &scan)?,
            (Route::Rows { .. }, Asked::Rows { fetch }) => self.rows(map, &scan, *fetch)?,
            _ => return Err(Error::Internal("a job that was planned otherwise".into())),
        };
        let read = scan.take_read().into_iter().map(|read| Read {
            place: read.index,
            is_exact: read.outcome.is_exact,
            mapped_rows: read.mapped_rows,
            stats: read.outcome.stats.describe(&scan.splits()[read.index]),
        });
        let read = read.collect::<Vec<_>>();
        let cpu = (process_cpu_seconds() - cpu_before).max(0.0);
        let cpu = Duration::try_from_secs_f64(cpu).unwrap_or_default();
        writer.finish(&read, Took { cpu, wall: began.elapsed() })
    }

    /// The groups of some splits.
    fn groups(&self, parts: &Tables, map: Map, scan: &Arc<Scan>) -> Result<PartWriter> {
        let settings = &self.plan.settings;
        let work = Work {
            map,
            scan: Arc::clone(scan),
            spec: &parts.spec,
            threads: settings.threads,
            budget_bytes: settings.share(3, 4),
            spill_dirs: &settings.spill_dirs,
            cancel: &settings.cancel,
            progress: &settings.progress,
        };
        let mut writer = PartWriter::default();
        match tables::run_part(&work)? {
            Part::Table(mut merged) => {
                while let Some(groups) = merged.next_groups()? {
                    writer.write(&groups)?;
                }
            }
            Part::Chunks(chunks) => {
                for chunk in chunks {
                    for groups in chunk.groups()? {
                        writer.write(&groups?)?;
                    }
                }
            }
        }
        Ok(writer)
    }

    /// The rows of some splits, in their order.
    fn rows(&self, map: Map, scan: &Arc<Scan>, fetch: Option<usize>) -> Result<PartWriter> {
        let settings = &self.plan.settings;
        let bytes_max = settings.share(1, 2);
        let run = (&settings.cancel, &settings.progress);
        let threads = settings.threads;
        let mut rows =
            OrderedRows::start(map, Arc::clone(scan), threads, bytes_max / 2, run, (0, fetch))?;
        let mut writer = PartWriter::default();
        while let Some(batch) = rows.next().transpose()? {
            let (place, SoFar { rows, rejected }) = rows.place();
            writer.write_rows(RowsPlace { place, rows, rejected }, &batch)?;
            if writer.bytes() > bytes_max {
                return Err(Error::Memory {
                    message: format!(
                        "the rows of a task take more than {}, half of a worker's memory",
                        human_bytes(bytes_max as u64)
                    ),
                    hint: Some("more --memory; or on one machine, where rows need not wait".into()),
                });
            }
        }
        Ok(writer)
    }
}
