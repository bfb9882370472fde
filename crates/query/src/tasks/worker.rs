//! Who reads splits for somebody else.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tidemill_base::RunSettings;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::format_decimal_bytes;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_base::memory_account::MemoryAccount;
use tidemill_base::progress::process_cpu_seconds;
use tidemill_remote::scratch::{ScratchFile, ScratchStorage};
use tidemill_remote::{PrefetchBudget, StorageOptions};
use tidemill_sink::{
    BegunUpload, OpenOutputTarget, SinkResources, SinkSpec, WorkerOutputFile, WorkerOutputWriter,
    WriterPartitioner,
};
use tidemill_source::program_files::ProgramFiles;
use tidemill_source::{RejectLog, SourceReopener};
use tidemill_sql::statement::parse_select;
use tidemill_tables::hash_ranges::KeyHashRanges;
use tidemill_tables::merge::{ChunkMerger, run_on_threads};
use tidemill_tables::partial_tables::PartialTableHeader;
use tidemill_tables::{AggregateTable, StateUpdateSwitch, TableSpec};

use super::Took;
use super::job::{Asked, DrawnSaid, Job, bad};
use super::laid::{LaidRange, LaidWriter, Lay, Laying, Placed, Write, each_of};
use super::parted::{Parted, PartedWriter, Parting, Reduce, Reduced, Spool, Written, groups};
use super::task::{NotRead, PartWriter, Read, RowsPlace, Task, Told, failed};
use crate::columns::named;
use crate::map::Map;
use crate::plan::{Over, Plan};
use crate::route::{Route, Tables};
use crate::rows::OrderedRows;
use crate::scan::{RunState, Scan, SoFar, SourceTable};
use crate::tables::{self, Work};
use crate::turbo::Turbo;
use crate::turbo::found::{Finding, FoundRows};
use crate::turbo::runner::{self, Guessed, Taken, Unseen, Until};

/// A job as one process does its tasks: planned once, however many there are.
pub struct Worker {
    plan: Plan,
    asked: Asked,
    /// What is kept per group; none of rows.
    spec: Option<Arc<TableSpec>>,
    /// How splits are read that were drawn, and what was looked at of their starts.
    drawn: Option<(DrawnSaid, Arc<Guessed>)>,
    stream: Arc<SourceTable>,
    reopener: SourceReopener,
    /// Where large tables go, and how they are put apart.
    scratch: Option<(ScratchStorage, Parting)>,
    /// Where rows go, and what is written of them.
    laying: Option<Laid>,
    /// One task at a time; it has all threads.
    in_work: Mutex<Mapped>,
}

/// So many places are written at a time at most: each takes an eighth of the memory.
const WRITERS_MAX: usize = 4;

/// Rows that are laid down for whoever writes them.
struct Laid {
    scratch: ScratchStorage,
    laying: Laying,
    spec: SinkSpec,
    place: OpenOutputTarget,
    schema: SchemaRef,
}

/// The map over the splits of the last task, of which the next one's is made.
type Mapped = Option<(Map, Arc<Scan>)>;

impl Worker {
    /// Plans a job; what is elsewhere is reached by `storage`, beyond what the environment says. Of the files that come
    /// with the job, each is on this machine at a path.
    ///
    /// # Errors
    /// Where the job is of another release, or is planned otherwise here.
    pub fn new(
        job: &[u8],
        settings: &RunSettings,
        storage: &StorageOptions,
        files: &[(String, PathBuf)],
    ) -> Result<Self> {
        run_on_large_stack(PLAN_STACK_BYTES, || Self::planned(job, settings, storage, files))
    }

    fn planned(
        job: &[u8],
        settings: &RunSettings,
        storage: &StorageOptions,
        files: &[(String, PathBuf)],
    ) -> Result<Self> {
        let Job { said, schemas, sides, output } = Job::decoded(job)?;
        let parent = settings.spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
        let files = ProgramFiles::from_local_files(files, &parent)?;
        let reopener = SourceReopener::new(said.source, storage, files, &settings.cancel)?;
        let nothing = Arc::new(reopener.open_files(&[])?);
        let mut sources = said.names.into_iter().zip(schemas);
        let (source, schema) = sources.next().ok_or_else(|| bad("it has no source"))?;
        let header = PartialTableHeader {
            sql: said.sql,
            source_name: source,
            source_schema: schema,
            joined_sources: sources.collect(),
            table_description: Vec::new(),
            runs: Vec::new(),
        };
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::new(RejectLog::with_deferred_counting()),
            ahead: PrefetchBudget::with_prefetch_bytes(
                settings.memory_bytes / 16,
                storage.read_memory_bytes(),
            ),
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
        let statement = parse_select(&header.sql)?;
        let sample = said.sample.map(Into::into);
        let plan = over.plan(statement, |name, schema| {
            let planned_over = SourceTable::without_files(Arc::clone(schema), run.clone());
            if is_there || name != header.source_name {
                return planned_over;
            }
            is_there = true;
            SourceTable::new(Arc::clone(&nothing), run.clone(), sample, planned_over.hidden())
        })?;
        let (own_sides, spec) = match (&plan.route, &said.asked) {
            (Route::Tables(parts), Asked::Tables(asked)) => {
                let spec = match said.drawn.and_then(|drawn| drawn.cells) {
                    Some(splits) => plan.spec_with_cells(parts, splits)?,
                    None => Arc::clone(&parts.spec),
                };
                let found = spec.describe_keys_and_states();
                if &found != asked {
                    return Err(bad(&format!(
                        "its tables are `{}`, and here they are `{}`",
                        asked.join("; "),
                        found.join("; ")
                    )));
                }
                (&parts.sides, Some(spec))
            }
            (Route::Rows { sides, .. }, Asked::Rows { .. }) => (sides, None),
            _ => return Err(bad("it goes another way here")),
        };
        if own_sides.len() != sides.len() {
            return Err(bad("what is joined is not what is joined here"));
        }
        for (side, batches) in own_sides.iter().zip(sides) {
            side.rows.fill(batches);
        }
        let stream = plan
            .table(&header.source_name)
            .ok_or_else(|| Error::Internal("a job without its source".into()))?;
        let open = |parting: Parting| -> Result<_> {
            Ok((ScratchStorage::open(&parting.url, storage, &settings.cancel)?, parting))
        };
        let scratch = said.parting.map(open).transpose()?;
        let laid = |(laying, schema): (Laying, SchemaRef)| -> Result<_> {
            let cancel = &settings.cancel;
            let scratch = ScratchStorage::open(&laying.url, storage, cancel)?;
            let spec = laying.output.clone().into_spec()?;
            let place = OpenOutputTarget::open(&spec, laying.folder.as_ref(), storage, cancel)?;
            Ok(Laid { scratch, laying, spec, place, schema })
        };
        let laying = said.laying.zip(output).map(laid).transpose()?;
        let in_work = Mutex::new(None);
        let drawn = said.drawn.map(|drawn| (drawn, Arc::default()));
        let asked = said.asked;
        Ok(Worker { stream, reopener, asked, spec, drawn, plan, scratch, laying, in_work })
    }

    /// Does a task; what comes of it, its error included, is a message to whoever dealt it.
    /// `copy` others were told to do it before, and may do so at the same time.
    pub fn run(&self, task: &[u8], copy: usize) -> Vec<u8> {
        let mut mapped = self.in_work.lock();
        let done = catch_panic(|| self.part(task, copy, &mut mapped));
        self.stream.forget_scans();
        done.unwrap_or_else(failed)
    }

    /// The map over a task's splits.
    fn map(&self, task: Task, mapped: &mut Mapped) -> Result<(Map, Arc<Scan>)> {
        let Task { files, splits, .. } = task;
        let source = Arc::new(self.reopener.open_files(&files)?);
        let splits = splits
            .iter()
            .map(|split| source.resolve_split(split))
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

    fn part(&self, task: &[u8], copy: usize, mapped: &mut Mapped) -> Result<Vec<u8>> {
        // A process has one task at a time.
        let (began, cpu_before) = (Instant::now(), process_cpu_seconds());
        let took = || {
            let cpu = (process_cpu_seconds() - cpu_before).max(0.0);
            let cpu = Duration::try_from_secs_f64(cpu).unwrap_or_default();
            Took { cpu, wall: began.elapsed() }
        };
        let task = match Told::decoded(task)? {
            Told::Read(task) => task,
            Told::Reduce(reduce) => {
                return self.reduce(&reduce)?.finish(&[], NotRead::default(), took());
            }
            Told::Lay(lay) => {
                return self.lay_groups(&lay)?.finish(&[], NotRead::default(), took());
            }
            Told::Write(write) => {
                return self.write(&write, copy)?.finish(&[], NotRead::default(), took());
            }
        };
        let patience = task.patience_ms.map(Duration::from_millis);
        let (map, scan) = self.map(task, mapped)?;
        let drawn = self.drawn.as_ref().zip(patience);
        let (writer, not_read) = match (&self.plan.route, &self.asked) {
            (Route::Tables(parts), Asked::Tables(_)) => match drawn {
                Some((drawn, patience)) => self.drawn_groups(map, &scan, drawn, patience)?,
                None => (self.groups(parts, map, &scan)?, NotRead::default()),
            },
            (Route::Rows { .. }, Asked::Rows { fetch }) => match drawn {
                Some((_, patience)) => self.drawn_rows(map, &scan, *fetch, patience)?,
                None => match &self.laying {
                    Some(laid) => (self.lay(map, &scan, laid)?, NotRead::default()),
                    None => (self.rows(map, &scan, *fetch)?, NotRead::default()),
                },
            },
            _ => return Err(Error::Internal("a job that was planned otherwise".into())),
        };
        let read = scan.take_read().into_iter().map(|read| Read {
            place: read.index,
            is_exact: read.outcome.is_exact,
            mapped_rows: read.mapped_rows,
            stats: read.outcome.stats.describe(&scan.splits()[read.index]),
        });
        let read = read.collect::<Vec<_>>();
        writer.finish(&read, not_read, took())
    }

    /// The groups of some drawn splits, as far as these can be read.
    fn drawn_groups(
        &self,
        map: Map,
        scan: &Arc<Scan>,
        (drawn, guessed): &(DrawnSaid, Arc<Guessed>),
        patience: Duration,
    ) -> Result<(PartWriter, NotRead)> {
        let settings = &self.plan.settings;
        let spec = self.spec.as_ref().ok_or_else(|| bad("there are no tables here"))?;
        let work = runner::Work {
            map,
            scan: Arc::clone(scan),
            spec: Arc::clone(spec),
            threads: settings.threads,
            account: settings.new_table_account(),
            spill_dirs: settings.spill_dirs.clone(),
            cancel: settings.cancel.clone(),
            enough: CancelFlag::new(),
            progress: settings.progress.clone(),
            interval_count: 0,
            rows_max: usize::MAX,
            watched: None,
            cells: StateUpdateSwitch::default(),
            is_careful: drawn.is_careful,
            patience: Some(patience),
            guessed: Arc::clone(guessed),
        };
        let Taken { mut merged, read, failed } = runner::run(work, &Until::default(), &mut Unseen)?;
        let mut writer = PartWriter::default();
        while let Some(groups) = merged.next_encoded_groups()? {
            writer.write(&groups)?;
        }
        let stalled = read.given_up.iter().filter(|it| it.error.is_none()).map(|it| it.split);
        let stalled = stalled.chain(read.in_flight.iter().copied());
        Ok((writer, not_read(failed, stalled, read.wrong_starts)))
    }

    /// The rows of some drawn splits, as they are found.
    fn drawn_rows(
        &self,
        map: Map,
        scan: &Arc<Scan>,
        fetch: Option<usize>,
        patience: Duration,
    ) -> Result<(PartWriter, NotRead)> {
        let settings = &self.plan.settings;
        let finding = Finding {
            map,
            scan: Arc::clone(scan),
            cancel: settings.cancel.clone(),
            enough: CancelFlag::new(),
            progress: settings.progress.clone(),
            threads: settings.threads,
            patience: Some(patience),
        };
        let mut rows = FoundRows::start(finding, Turbo::default(), (0, fetch))?;
        let mut writer = PartWriter::default();
        while let Some(batch) = rows.next().transpose()? {
            let (place, SoFar { rows, rejected }) = rows.place();
            writer.write_rows(RowsPlace { place, rows, rejected }, &batch)?;
            self.check_size(&writer)?;
        }
        let failed = rows.take_failed();
        if rows.is_cut_short() {
            let is_cut_short = true;
            return Ok((writer, NotRead { is_cut_short, ..not_read(failed, [].into_iter(), 0) }));
        }
        Ok((writer, not_read(failed, rows.unread().into_iter(), 0)))
    }

    /// Refuses rows that are too many to be sent.
    fn check_size(&self, writer: &PartWriter) -> Result<()> {
        let bytes_max = self.plan.settings.memory_share_bytes(1, 2);
        if writer.bytes() <= bytes_max {
            return Ok(());
        }
        Err(Error::MemoryBudgetTooSmall {
            message: format!(
                "the rows of a task take more than {}, half of a worker's memory",
                format_decimal_bytes(bytes_max as u64)
            ),
            hint: Some("more --memory; or on one machine, where rows need not wait".into()),
        })
    }

    /// The groups of some splits.
    fn groups(&self, parts: &Tables, map: Map, scan: &Arc<Scan>) -> Result<PartWriter> {
        let settings = &self.plan.settings;
        let work = Work {
            map,
            scan: Arc::clone(scan),
            spec: &parts.spec,
            threads: settings.threads,
            account: settings.new_table_account(),
            spill_dirs: &settings.spill_dirs,
            cancel: &settings.cancel,
            progress: &settings.progress,
        };
        let part = tables::run_part(&work)?;
        let mut writer = PartWriter::default();
        let Some((scratch, parting)) = &self.scratch else {
            part.each(&mut |groups| writer.write(&groups))?;
            return Ok(writer);
        };
        let (ranges, keys) = (KeyHashRanges::with_bits(parting.bits), parts.spec.keys.len());
        let mut parted = PartedWriter::new(scratch, ranges, keys, parting.bytes_max, "part");
        part.each(&mut |groups| parted.write(groups))?;
        match parted.finish()? {
            Written::Few(groups) => groups.iter().try_for_each(|groups| writer.write(groups))?,
            Written::Parted(parted) => writer.write_parted(&parted)?,
        }
        Ok(writer)
    }

    /// What comes of some ranges of hashes, one of them a thread at a time.
    fn reduce(&self, reduce: &Reduce) -> Result<PartWriter> {
        let settings = &self.plan.settings;
        let threads = settings.threads.clamp(1, reduce.count.max(1));
        let next = AtomicUsize::new(0);
        let account = settings.new_table_account();
        let done: Vec<_> = (0..reduce.count).map(|_| Mutex::new(None)).collect();
        let work = || -> Result<()> {
            loop {
                let range = next.fetch_add(1, Ordering::Relaxed);
                let Some(slot) = done.get(range) else { return Ok(()) };
                let own = self.reduced(&reduce.parts, range, &account, reduce.bytes_max)?;
                *slot.lock() = Some(own);
            }
        };
        run_on_threads(threads - 1, &work, &settings.progress)?;
        let mut writer = PartWriter::default();
        for (reduced, groups) in done.into_iter().filter_map(Mutex::into_inner) {
            writer.write_reduced(&reduced, &groups)?;
        }
        Ok(writer)
    }

    /// What comes of one range of tables.
    fn reduced(
        &self,
        parts: &[Parted],
        range: usize,
        account: &MemoryAccount,
        bytes_max: u64,
    ) -> Result<(Reduced, Vec<u8>)> {
        let settings = &self.plan.settings;
        let (Route::Tables(of), Some((scratch, parting))) = (&self.plan.route, &self.scratch)
        else {
            return Err(bad("there are no tables to be merged here"));
        };
        let (ranges, run) =
            (KeyHashRanges::with_bits(parting.bits), (&settings.cancel, &settings.progress));
        let merger =
            ChunkMerger::for_hash_range(ranges, &of.spec, account, &settings.spill_dirs, run)?;
        let decoder = AggregateTable::new(&of.spec)?;
        for part in parts {
            for run in &part.runs {
                let ends = run.get(range).zip(run.get(range + 1));
                let (start, end) = ends.ok_or_else(|| bad("a run without this range"))?;
                if start >= end {
                    continue;
                }
                let mut own = groups(scratch, &part.file, *start..*end)?;
                while let Some(groups) = own.next()? {
                    let chunk = decoder.decode_chunk(&groups)?;
                    match of.spec.is_order_insensitive() {
                        true => merger.add_chunk(chunk)?,
                        false => merger.accept_deferred(merger.defer_chunk(chunk)?, 0)?,
                    }
                    merger.merge_and_spill(0)?;
                }
            }
        }
        let mut merged = merger.finish(1)?;
        let mut spool = Spool::new(scratch, "reduced", bytes_max);
        let mut count = 0;
        while let Some(answer) = merged.next_answer_in_hash_order()? {
            count += answer.num_rows() as u64;
            spool.write(&answer)?;
        }
        let precisions = merged.precisions().iter().map(|it| it.map(Into::into)).collect();
        let (groups, file) = spool.finish()?;
        Ok((Reduced { precisions, file, groups: count }, groups))
    }

    /// The rows of some splits, laid down for whoever writes them.
    fn lay(&self, map: Map, scan: &Arc<Scan>, laid: &Laid) -> Result<PartWriter> {
        let settings = &self.plan.settings;
        let run = (&settings.cancel, &settings.progress);
        let (threads, held_max) = (settings.threads, settings.memory_share_bytes(1, 4));
        let rows = OrderedRows::start(map, Arc::clone(scan), threads, held_max, run, (0, None))?;
        let Laid { scratch, laying, spec, place, schema } = laid;
        let spread = WriterPartitioner::new(spec, schema, laying.places)?;
        let bytes_max = laying.bytes_max.min(settings.memory_share_bytes(1, 8) as u64);
        let own = (bytes_max, settings.memory_share_bytes(1, 1));
        let mut laid = LaidWriter::new(scratch, spread, own, "rows");
        for batch in rows {
            laid.write(named(batch?, schema)?)?;
        }
        let mut writer = PartWriter::default();
        let (paths, written) = laid.finish()?;
        match written {
            Written::Few(rows) => rows.iter().try_for_each(|rows| writer.write_whole(rows))?,
            Written::Parted(parted) => {
                writer.write_parted(&parted)?;
                if matches!(place, OpenOutputTarget::Bucket(_)) {
                    writer.write_paths(&paths)?;
                }
            }
        }
        Ok(writer)
    }

    /// The rows of some ranges of finished groups, laid down for whoever writes them.
    fn lay_groups(&self, lay: &Lay) -> Result<PartWriter> {
        let laid = self.laying.as_ref().ok_or_else(|| bad("there is nothing to write here"))?;
        let settings = &self.plan.settings;
        let threads = settings.threads.clamp(1, lay.ranges.len().max(1));
        let next = AtomicUsize::new(0);
        let memory_bytes = settings.memory_share_bytes(1, 1) / threads;
        let done: Vec<_> = lay.ranges.iter().map(|_| Mutex::new(LaidRange::default())).collect();
        let work = || -> Result<()> {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some((range, slot)) = lay.ranges.get(place).zip(done.get(place)) else {
                    return Ok(());
                };
                if let Some((file, bytes)) = range {
                    *slot.lock() = self.laid_range(laid, (file, bytes.clone()), memory_bytes)?;
                }
            }
        };
        run_on_threads(threads - 1, &work, &settings.progress)?;
        let done: Vec<LaidRange> = done.into_iter().map(Mutex::into_inner).collect();
        let mut writer = PartWriter::default();
        writer.write_laid(&done)?;
        Ok(writer)
    }

    fn laid_range(
        &self,
        laid: &Laid,
        (file, bytes): (&ScratchFile, Range<u64>),
        memory_bytes: usize,
    ) -> Result<LaidRange> {
        let Laid { scratch, laying, spec, place, schema } = laid;
        let Route::Tables(of) = &self.plan.route else {
            return Err(bad("there are no tables here"));
        };
        let (mut answers, shaped) = (groups(scratch, file, bytes)?, of.shaped());
        let answers = std::iter::from_fn(move || answers.next().transpose());
        let answers = answers.map(move |answer| answer.and_then(&shaped));
        let mut rows = self.plan.finish_over(of, Box::new(answers), &[], None)?;
        let spread = WriterPartitioner::new(spec, schema, laying.places)?;
        let mut writer = LaidWriter::new(scratch, spread, (0, memory_bytes), "groups");
        while let Some(batch) = rows.next(&self.plan.settings.cancel)? {
            writer.write(named(batch, schema)?)?;
        }
        let (paths, written) = writer.finish()?;
        let part = match written {
            Written::Parted(parted) => Some(parted),
            Written::Few(_) => None,
        };
        let is_bucket = matches!(place, OpenOutputTarget::Bucket(_));
        Ok(LaidRange { part, paths: if is_bucket { paths } else { Vec::new() } })
    }

    /// Writes the files of some places, one of them a thread at a time.
    fn write(&self, write: &Write, copy: usize) -> Result<PartWriter> {
        let laid = self.laying.as_ref().ok_or_else(|| bad("there is nothing to write here"))?;
        let settings = &self.plan.settings;
        // As where one process writes: how large a row group may be is told by the memory that there is.
        let threads = settings.threads.clamp(1, write.count.clamp(1, WRITERS_MAX));
        let room = SinkResources {
            memory_limit_bytes: settings.memory_share_bytes(1, 8),
            threads: (settings.threads / threads).max(1),
        };
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Placed::default());
        let work = || -> Result<()> {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                if place >= write.count {
                    return Ok(());
                }
                let begun = write.begun.get(copy).map(Vec::as_slice).unwrap_or_default();
                let own = self.written(laid, (&write.parts, place), begun, room)?;
                let mut done = done.lock();
                match own {
                    Some((rows, files)) => {
                        done.rows += rows;
                        done.files.extend(files);
                    }
                    None => done.is_too_large = true,
                }
            }
        };
        run_on_threads(threads - 1, &work, &settings.progress)?;
        let mut done = done.into_inner();
        if done.is_too_large {
            done.files.clear();
        }
        let mut writer = PartWriter::default();
        writer.write_placed(&done)?;
        Ok(writer)
    }

    /// The files of one place, and how many rows these have; none where an upload is missing for one of them.
    fn written(
        &self,
        laid: &Laid,
        (parts, place): (&[Parted], usize),
        begun: &[BegunUpload],
        room: SinkResources,
    ) -> Result<Option<(u64, Vec<WorkerOutputFile>)>> {
        let Laid { scratch, spec, place: own, schema, .. } = laid;
        if matches!(own, OpenOutputTarget::Bucket(_)) && spec.is_one_file() && begun.is_empty() {
            return Ok(None);
        }
        let RunSettings { cancel, spill_dirs, .. } = &self.plan.settings;
        let spill = spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
        let begin = || {
            let room = (room, spill.as_path());
            WorkerOutputWriter::new(spec, (own, begun), Arc::clone(schema), room, cancel)
        };
        let mut writer = None;
        each_of(scratch, parts, place, &mut |rows| {
            cancel.check()?;
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(begin()?),
            };
            Ok(writer.write(rows, &mut || cancel.check())?)
        })?;
        match writer {
            Some(writer) => Ok(writer.finish(&mut || cancel.check())?),
            None => Ok(Some((0, Vec::new()))),
        }
    }

    /// The rows of some splits, in their order.
    fn rows(&self, map: Map, scan: &Arc<Scan>, fetch: Option<usize>) -> Result<PartWriter> {
        let settings = &self.plan.settings;
        let bytes_max = settings.memory_share_bytes(1, 2);
        let run = (&settings.cancel, &settings.progress);
        let threads = settings.threads;
        let mut rows =
            OrderedRows::start(map, Arc::clone(scan), threads, bytes_max / 2, run, (0, fetch))?;
        let mut writer = PartWriter::default();
        while let Some(batch) = rows.next().transpose()? {
            let (place, SoFar { rows, rejected }) = rows.place();
            writer.write_rows(RowsPlace { place, rows, rejected }, &batch)?;
            self.check_size(&writer)?;
        }
        Ok(writer)
    }
}

/// What is told of splits that were not read: those that could not be, and those that stalled or were on their way.
fn not_read(
    failed: Vec<(usize, Error)>,
    stalled: impl Iterator<Item = usize>,
    wrong_starts: u64,
) -> NotRead {
    let mut stalled: Vec<usize> = stalled.collect();
    stalled.retain(|place| failed.iter().all(|(other, _)| other != place));
    stalled.sort_unstable();
    stalled.dedup();
    let failed = failed.into_iter().map(|(place, error)| (place, error.into())).collect();
    NotRead { failed, stalled, wrong_starts, is_cut_short: false }
}
