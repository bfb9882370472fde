//! Rows that workers lay down for other workers, who write the files of an output.
//!
//! ```text
//!   a task's rows                    one scratch file, by who is to write them       the output's folder
//!     batch ── apart by path ─────────►  │ 0 │ 1 │ … │ 15 │                   │
//!     batch ── apart by path ─────────►  │ 0 │ 1 │ … │ 15 │                   ▼
//!   another task's ───────────────────►  …                     1 of all files, in their order ─ write ─ files without a name
//!                                                                                                              │
//!   driver: gate · read · which files there are ◄──────────────────────────────────────────────────────────────┘ commit
//! ```
//!
//! What passes the driver are names, offsets, and the values in each file's name. Rows that are few come to it as ever: they
//! are put behind those before them if there are many after all, and else they are all that there is.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::RunProgress;
use tidemill_remote::scratch::{ScratchFile, ScratchFolder, ScratchStorage};
use tidemill_sink::{
    BegunUpload, PathValues, SinkSpec, WorkerOutputFile, WorkerOutputFolder, WorkerOutputSpec,
    WorkerOutputTarget, WriterPartitioner,
};
use tidemill_source::SplitStats;

use super::Reach;
use super::dealer::Dealer;
use super::job::bad;
use super::output::Output;
use super::parted::{Groups, Parted, PartedWriter, Written, groups};
use super::reduction::Ranged;
use super::task::Part;
use super::unordered::Tasks;
use super::writing::{LayingGroups, Writing};
use crate::scan::Scan;

/// So many places are there for each thread: some have more to write than others.
const PLACES_PER_THREAD: usize = 4;
/// And so many at least, and at most: each is told where all scratch files have what is its own.
const PLACES_MIN: usize = 16;
const PLACES_MAX: usize = 4096;
/// Rows are put apart so many bytes at a time, or a sixteenth of the memory: what a place has of each is a section.
const GATHER_BYTES: usize = 16 << 20;
const GATHER_SHARE: usize = 16;

/// How rows are laid down, and who writes what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Laying {
    /// The place of the query's scratch files.
    pub url: String,
    /// Among so many writers rows are put apart.
    pub places: usize,
    /// Rows of more bytes are laid down.
    pub bytes_max: u64,
    pub output: WorkerOutputSpec,
    /// Where files are before they appear; none of objects.
    pub folder: Option<WorkerOutputFolder>,
}

/// Ranges of finished groups, of which one worker is to lay the rows down.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lay {
    /// Where each lies; none of one without groups.
    pub ranges: Vec<Option<(ScratchFile, Range<u64>)>>,
}

/// Where rows of a range were laid down.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LaidRange {
    /// None without rows.
    pub part: Option<Parted>,
    /// The objects that these are for, if they are for objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathValues>,
}

/// Some places that one worker is to write, each by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Write {
    /// How many places.
    pub count: usize,
    /// What was laid down, in the order of the splits; its runs have these places alone.
    pub parts: Vec<Parted>,
    /// For each time that the task is done at once, the uploads that were begun for its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Vec<BegunUpload>>,
}

/// What was written.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Placed {
    pub rows: u64,
    pub files: Vec<WorkerOutputFile>,
    /// Whether an object has become so large that an upload has to be begun for it: nothing counts then.
    #[serde(default)]
    pub is_too_large: bool,
}

/// Rows on their way: kept while they are few, and laid down from then on.
pub(super) struct LaidWriter<'a> {
    parted: PartedWriter<'a>,
    /// Rows that are put apart together; where there is one place, batches stay as they are.
    waiting: Option<Vec<RecordBatch>>,
    waiting_bytes: usize,
    waiting_max: usize,
}

impl<'a> LaidWriter<'a> {
    /// Lays down rows of more than `bytes_max`, within its share of so much memory.
    pub(super) fn new(
        scratch: &'a ScratchStorage,
        spread: WriterPartitioner,
        (bytes_max, memory_bytes): (u64, usize),
        label: &str,
    ) -> Self {
        let waiting = (spread.writer_count() > 1).then(Vec::new);
        let parted = PartedWriter::of_rows(scratch, spread, bytes_max, label);
        let waiting_max = GATHER_BYTES.min(memory_bytes / GATHER_SHARE);
        LaidWriter { parted, waiting, waiting_bytes: 0, waiting_max }
    }

    pub(super) fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let Some(waiting) = &mut self.waiting else { return self.parted.write(rows) };
        self.waiting_bytes += rows.columns().iter().map(visible_values_bytes).sum::<usize>();
        waiting.push(rows);
        if self.waiting_bytes >= self.waiting_max { self.put() } else { Ok(()) }
    }

    fn put(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        let waiting = self.waiting.as_mut().map(std::mem::take).unwrap_or_default();
        let rows = match waiting.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            [first, ..] => concat_batches(first.schema_ref(), &waiting)?,
        };
        self.parted.write(rows)
    }

    /// Ends it, with the paths that it has met.
    pub(super) fn finish(mut self) -> Result<(Vec<PathValues>, Written)> {
        self.put()?;
        Ok((self.parted.paths(), self.parted.finish()?))
    }
}

/// How a query's rows are laid down for workers who write them, if they are to be.
pub(super) struct Plans {
    pub folder: Arc<ScratchFolder>,
    pub laying: Laying,
    pub output: Output,
    pub spec: SinkSpec,
    /// How stores are reached, if that is not as the source says.
    pub secrets: Option<BTreeMap<String, String>>,
    /// Threads of a worker.
    threads: usize,
    place: WorkerOutputTarget,
}

impl Plans {
    /// Where an output is, which so many may write; none where they would not reach its bucket, as there are no `secrets`
    /// by which they reach the source as well.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and where the scratch folder that the user names cannot be written to.
    pub(super) fn of(
        output: &Output,
        folder: impl FnOnce() -> Result<Option<Arc<ScratchFolder>>>,
        (reach, bytes_max): (Reach, u64),
        secrets: Option<BTreeMap<String, String>>,
        cancel: &CancelFlag,
    ) -> Result<Option<Plans>> {
        let Some(place) = output.place(cancel)? else { return Ok(None) };
        let placed = match &place {
            WorkerOutputTarget::Folder(folder) => Some(folder.clone()),
            WorkerOutputTarget::Bucket(_) if secrets.is_some() => None,
            WorkerOutputTarget::Bucket(_) => return Ok(None),
        };
        let Some(folder) = folder()? else { return Ok(None) };
        let said = output.said().clone();
        let spec = said.clone().into_spec()?;
        let places = (PLACES_PER_THREAD * reach.threads).clamp(PLACES_MIN, PLACES_MAX);
        let threads = (reach.threads / reach.workers.max(1)).max(1);
        let url = folder.url.clone();
        let laying = Laying { url, places, bytes_max, output: said, folder: placed };
        let output = output.clone();
        Ok(Some(Plans { folder, laying, output, spec, secrets, threads, place }))
    }

    /// Has workers lay down the rows of finished groups, and write them.
    ///
    /// # Errors
    /// The first that a worker meets.
    pub(super) fn have_groups_written(
        &self,
        dealer: &Dealer,
        ranged: Ranged,
        schema: &SchemaRef,
        cancel: &CancelFlag,
    ) -> Result<()> {
        // Behind what merged the ranges.
        let behind = ranged.tasks;
        let ranges = ranged.places()?;
        let done = ranges.iter().map(|_| None).collect();
        let (threads, progress) = (self.threads, dealer.progress());
        let mut laying = LayingGroups { ranges, threads, progress, done };
        dealer.further(behind).run(&mut laying)?;
        let behind = behind + laying.count();
        let (mut parts, mut paths) = (Vec::new(), HashSet::new());
        for laid in laying.done {
            let laid = laid.ok_or_else(|| bad("some ranges are missing"))?;
            parts.extend(laid.part);
            paths.extend(laid.paths);
        }
        self.have_written((dealer, behind), parts, paths, schema, cancel)
    }

    /// Has workers write what was laid down, by tasks that stand behind so many others.
    ///
    /// # Errors
    /// The first that a worker meets.
    pub(super) fn have_written(
        &self,
        (dealer, behind): (&Dealer, usize),
        parts: Vec<Parted>,
        paths: HashSet<PathValues>,
        schema: &SchemaRef,
        cancel: &CancelFlag,
    ) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let objects = match &self.place {
            WorkerOutputTarget::Folder(_) => None,
            WorkerOutputTarget::Bucket(bucket) => {
                let mut paths: Vec<PathValues> = paths.into_iter().collect();
                paths.sort_unstable();
                let spread = WriterPartitioner::new(&self.spec, schema, self.laying.places)?;
                // Before anything is begun for them.
                spread.check_path_count(paths.len())?;
                let of_writer = |(values, key)| (spread.writer_index(&values), values, key);
                Some((bucket, bucket.object_keys(&paths)?.into_iter().map(of_writer).collect()))
            }
        };
        let mut writing = Writing {
            parts: &parts,
            objects,
            threads: self.threads,
            progress: dealer.progress(),
            cancel,
            again: Vec::new(),
            done: Placed::default(),
            ended: 0,
        };
        dealer.progress().set_write_task_counts(0, writing.count() as u64);
        dealer.further(behind).run(&mut writing)?;
        let Placed { rows, files, .. } = writing.done;
        self.output.set_written(rows, files);
        Ok(())
    }

    /// Notes that workers do not see the output's folder, if that is what an error says.
    pub(super) fn is_out_of_sight(&self, error: &Error) -> bool {
        let Some(folder) = &self.laying.folder else { return false };
        let lock = folder.lock.to_string_lossy();
        let text = error.to_string();
        let is_it = text.contains(lock.as_ref());
        if is_it {
            let first = text.lines().next().unwrap_or_default();
            let (_, of) = first.split_once("` is not on ").unwrap_or(("", "a worker's machine"));
            let machine = of.split(',').next().unwrap_or(of);
            self.output.warn(format!(
                "the output's folder is not on {machine}: its files are written by this process, which all rows pass"
            ));
        }
        is_it
    }
}

/// An iterator of batches: of those rows that are few, or that nobody else writes. All others are in files when it ends.
pub(crate) struct LaidRows {
    /// None at the end, when what is in work is nobody's any more.
    reading: Option<Reading>,
    coming: VecDeque<RecordBatch>,
}

struct Reading {
    dealer: Dealer,
    scan: Arc<Scan>,
    progress: RunProgress,
    cancel: CancelFlag,
    memory_bytes: usize,
    plans: Plans,
    schema: SchemaRef,
    /// Rows that came, behind all parts that there are.
    held: Vec<RecordBatch>,
    held_bytes: u64,
    parts: Vec<Parted>,
    /// Of objects, the paths that were met.
    paths: HashSet<PathValues>,
}

impl LaidRows {
    pub(super) fn new(
        dealer: Dealer,
        scan: Arc<Scan>,
        plans: Plans,
        schema: SchemaRef,
        (cancel, memory_bytes): (&CancelFlag, usize),
    ) -> Self {
        let progress = dealer.progress().clone();
        let reading = Reading {
            dealer,
            scan,
            progress,
            cancel: cancel.clone(),
            memory_bytes,
            plans,
            schema,
            held: Vec::new(),
            held_bytes: 0,
            parts: Vec::new(),
            paths: HashSet::new(),
        };
        LaidRows { reading: Some(reading), coming: VecDeque::new() }
    }
}

impl Iterator for LaidRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(reading) = self.reading.take() {
            match reading.run() {
                Ok(few) => self.coming = few.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        self.coming.pop_front().map(Ok)
    }
}

impl Reading {
    /// Has all rows read, and written if they are many.
    fn run(mut self) -> Result<Vec<RecordBatch>> {
        while let Some((places, part)) = self.dealer.next()? {
            self.take(&places, part)?;
        }
        if self.parts.is_empty() {
            return Ok(self.held);
        }
        self.put_held()?;
        let Reading { dealer, cancel, plans, schema, parts, paths, .. } = self;
        plans.have_written((&dealer, 0), parts, paths, &schema, &cancel)?;
        Ok(Vec::new())
    }

    fn take(&mut self, places: &Range<usize>, mut part: Part) -> Result<()> {
        if part.read.len() != places.len() {
            return Err(Dealer::of_others());
        }
        for read in part.read.drain(..) {
            let split = self.scan.splits().get(places.start + read.place);
            let split = split.ok_or_else(Dealer::of_others)?;
            let stats = SplitStats::from_description(read.stats, split)?;
            self.progress.add_bytes(split.bytes);
            self.progress.add_rows(stats.rows);
            self.progress.map_counters().add_rows(read.mapped_rows);
            self.scan.accept(stats)?;
        }
        if let Some(parted) = part.take_parted()? {
            self.put_held()?;
            self.parts.push(parted);
            self.paths.extend(part.take_paths()?);
            return Ok(());
        }
        while let Some((_, batch)) = part.next_batch()? {
            self.held_bytes +=
                batch.columns().iter().map(visible_values_bytes).sum::<usize>() as u64;
            self.held.push(batch);
        }
        if self.held_bytes > self.plans.laying.bytes_max { self.put_held() } else { Ok(()) }
    }

    /// Lays down what came to this process.
    fn put_held(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let Plans { folder, laying, spec, .. } = &self.plans;
        let spread = WriterPartitioner::new(spec, &self.schema, laying.places)?;
        let mut own = LaidWriter::new(&folder.storage, spread, (0, self.memory_bytes), "own");
        self.held_bytes = 0;
        self.held.drain(..).try_for_each(|batch| own.write(batch))?;
        let (paths, written) = own.finish()?;
        if let Written::Parted(parted) = written {
            self.parts.push(parted);
            self.paths.extend(paths);
        }
        Ok(())
    }
}

/// The rows that were laid down for one place, in their order.
pub(super) fn each_of(
    scratch: &ScratchStorage,
    parts: &[Parted],
    place: usize,
    each: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    for part in parts {
        for run in &part.runs {
            let ends = run.get(place).zip(run.get(place + 1));
            let (start, end) = ends.ok_or_else(|| bad("a run without this place"))?;
            if start >= end {
                continue;
            }
            let mut own: Groups<_> = groups(scratch, &part.file, *start..*end)?;
            while let Some(rows) = own.next()? {
                each(&rows)?;
            }
        }
    }
    Ok(())
}
