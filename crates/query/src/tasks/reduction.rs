//! The tables that workers have put apart by ranges of hashes, merged range by range by workers.

use std::io::Cursor;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::TableReference;
use tidemill_base::coverage::format_grouped_digits;
use tidemill_base::error::Result;
use tidemill_base::progress::RunProgress;
use tidemill_remote::scratch::{self, ScratchFile, ScratchFolder, ScratchStorage};
use tidemill_tables::SketchPrecision;
use tidemill_tables::hash_ranges::KeyHashRanges;
use tidemill_tables::merge::{AnswerBatches, MergedTable, SORTED_ANSWER_GROUPS_MAX};

use super::dealer::Dealer;
use super::job::bad;
use super::parted::{Groups, Parted, PartedWriter, Parting, Reduce, Reduced, Written, groups};
use super::task::Part;
use super::unordered::{Came, NewTask, Tasks};
use super::{Reach, not_elsewhere};
use crate::plan::Plan;
use crate::route::Tables;

/// A part of a scratch file, in bytes.
type ScratchRange = (ScratchFile, Range<u64>);

/// Tables that take more are put apart, unless somebody has said another size.
const PART_BYTES_MAX: u64 = 4 << 20;
/// So many ranges are there for each thread: they are not equally large, and some take longer.
const RANGES_PER_THREAD: usize = 4;
/// And so many at least: a thread merges one at a time, within its share of a worker's memory.
const RANGES_MIN: usize = 64;

/// What becomes of the large tables of a query.
pub(super) struct Reduction {
    folder: Arc<ScratchFolder>,
    parting: Parting,
    ranges: KeyHashRanges,
    key_count: usize,
    /// Threads of a worker.
    threads: usize,
    /// The tables, in the order of the splits.
    parts: Vec<Parted>,
    /// What of a range may be sent to the driver rather than by a file.
    sent_bytes_max: u64,
}

impl Reduction {
    /// A place for large tables; none where there is none that all workers see, or one group is all that there is.
    ///
    /// # Errors
    /// Where it cannot be written to.
    pub(super) fn create(plan: &Plan, parts: &Tables, reach: Reach) -> Result<Option<Reduction>> {
        let key_count = parts.spec.keys.len();
        if key_count == 0 {
            return Ok(None);
        }
        let Some(folder) = folder(plan, &parts.stream, reach)? else { return Ok(None) };
        let ranges =
            KeyHashRanges::with_count_at_least((RANGES_PER_THREAD * reach.threads).max(RANGES_MIN));
        let bytes_max = bytes_max(plan);
        let parting = Parting { url: folder.url.clone(), bits: ranges.bits(), bytes_max };
        let threads = (reach.threads / reach.workers.max(1)).max(1);
        // Of all ranges together little passes the driver.
        let sent_bytes_max =
            (plan.settings.memory_share_bytes(1, 8) as u64).min(bytes_max.saturating_mul(4));
        let sent_bytes_max = sent_bytes_max / ranges.count() as u64;
        let parts = Vec::new();
        let folder = Arc::new(folder);
        let all = Reduction { folder, parting, ranges, key_count, threads, parts, sent_bytes_max };
        Ok(Some(all))
    }

    /// What workers are told.
    pub(super) fn parting(&self) -> Parting {
        self.parting.clone()
    }

    /// The place.
    pub(super) fn folder(&self) -> Arc<ScratchFolder> {
        Arc::clone(&self.folder)
    }

    /// A file that all machines have to see.
    pub(super) fn lock(&self) -> Option<PathBuf> {
        self.folder.lock_path.clone()
    }

    /// Whether there is no large table.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes the next large table.
    pub(super) fn add(&mut self, parted: Parted) {
        self.parts.push(parted);
    }

    /// Puts the driver's own table behind those that there are.
    pub(super) fn add_own(&mut self, mut merged: MergedTable) -> Result<()> {
        let mut own =
            PartedWriter::new(&self.folder.storage, self.ranges, self.key_count, 0, "own");
        while let Some(groups) = merged.next_encoded_groups()? {
            own.write(groups)?;
        }
        if let Written::Parted(parted) = own.finish()? {
            self.parts.push(parted);
        }
        Ok(())
    }

    /// Has all ranges merged.
    ///
    /// # Errors
    /// The first that a worker meets.
    pub(super) fn run(self, dealer: &Dealer) -> Result<Ranged> {
        let count = self.ranges.count();
        let done = (0..count).map(|_| None).collect();
        let mut merging = Merging { of: &self, progress: dealer.progress(), done };
        dealer.further(0).run(&mut merging)?;
        let tasks = merging.count();
        let done: Option<Vec<_>> = merging.done.into_iter().collect();
        let done = done.ok_or_else(|| bad("some ranges are missing"))?;
        Ok(Ranged { folder: self.folder, done, tasks })
    }
}

/// Finished groups, range by range.
pub(super) struct Ranged {
    folder: Arc<ScratchFolder>,
    done: Vec<(Reduced, Vec<u8>)>,
    /// How many tasks merged them.
    pub tasks: usize,
}

impl Ranged {
    /// How many there are.
    pub(super) fn groups(&self) -> u64 {
        self.done.iter().map(|(reduced, _)| reduced.groups).sum()
    }

    /// How good the answers are.
    pub(super) fn precisions(&self) -> Vec<Option<SketchPrecision>> {
        let mut precisions: Vec<Option<SketchPrecision>> = Vec::new();
        for (reduced, _) in &self.done {
            precisions.resize(precisions.len().max(reduced.precisions.len()), None);
            for (all, one) in precisions.iter_mut().zip(&reduced.precisions) {
                let one = one.map(SketchPrecision::from);
                *all = one.map(|one| all.map_or(one, |all| all.combine(one))).or(*all);
            }
        }
        precisions
    }

    /// The answers, in the order of their hashes.
    pub(super) fn answers(self) -> AnswerBatches {
        // The files are there as long as somebody reads of them.
        let folder = self.folder;
        let answers = self.done.into_iter().flat_map(move |(reduced, here)| {
            let folder = Arc::clone(&folder);
            of_range(folder, reduced.file, here)
        });
        Box::new(answers)
    }

    /// Where each range lies, in scratch files that all workers read; none of one without groups.
    ///
    /// # Errors
    /// Where there is no room for what has come to this process.
    pub(super) fn places(self) -> Result<Vec<Option<ScratchRange>>> {
        let mut own = self.folder.storage.create_file("ranges")?;
        let mut places = Vec::with_capacity(self.done.len());
        for (reduced, here) in self.done {
            let start = own.written_bytes();
            own.write(&here)?;
            places.push((reduced.file, start..own.written_bytes()));
        }
        let own = own.finish()?;
        let place = |(file, here): (Option<ScratchFile>, Range<u64>)| match file {
            Some(file) => {
                let all = 0..file.size_bytes();
                Some((file, all))
            }
            None => (here.start < here.end).then(|| (own.clone(), here)),
        };
        Ok(places.into_iter().map(place).collect())
    }
}

/// The tasks that merge ranges, and what came of them.
struct Merging<'a> {
    of: &'a Reduction,
    progress: &'a RunProgress,
    /// Of each range.
    done: Vec<Option<(Reduced, Vec<u8>)>>,
}

impl Merging<'_> {
    /// The ranges of a task: one for each thread of a worker.
    fn ranges(&self, number: usize) -> Range<usize> {
        let (first, threads) = (number * self.of.threads, self.of.threads);
        first..self.done.len().min(first + threads)
    }
}

impl Tasks for Merging<'_> {
    fn count(&self) -> usize {
        self.done.len().div_ceil(self.of.threads)
    }

    fn task(&mut self, number: usize) -> Result<NewTask> {
        let ranges = self.ranges(number);
        let parts = self.of.parts.iter().filter_map(|part| part.only(&ranges)).collect();
        let bytes = self.of.parts.iter().map(|part| part.bytes(&ranges)).sum();
        let reduce = Reduce { count: ranges.len(), parts, bytes_max: self.of.sent_bytes_max };
        let name = format!("merge {} of {}", number + 1, self.count());
        Ok(NewTask { bytes, name, content: reduce.encoded()? })
    }

    fn take(&mut self, number: usize, content: Vec<u8>) -> Result<Came> {
        let part = Part::decoded(content)?;
        let reduced = part.reduced()?;
        let ranges = self.ranges(number);
        let slots = self.done.get_mut(ranges).unwrap_or_default();
        if reduced.len() != slots.len() {
            return Err(bad("some ranges are missing"));
        }
        slots.iter_mut().zip(reduced).for_each(|(slot, own)| *slot = Some(own));
        self.progress.table_counters().add_worker_cpu(part.took.cpu);
        Ok(Came { took: part.took, bytes: 0 })
    }

    fn name(&self, number: usize) -> String {
        format!("the same groups, task {} of {} that merge them", number + 1, self.count())
    }
}

/// The answers of a range.
fn of_range(
    folder: Arc<ScratchFolder>,
    file: Option<ScratchFile>,
    here: Vec<u8>,
) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
    match file {
        None => {
            let mut own = Groups::new(Cursor::new(here));
            Box::new(std::iter::from_fn(move || own.next().transpose()))
        }
        Some(file) => {
            let opened = of_file(&folder.storage, &file);
            let mut own = match opened {
                Ok(own) => own,
                Err(error) => return Box::new(std::iter::once(Err(error))),
            };
            Box::new(std::iter::from_fn(move || {
                let _is_there = &folder;
                own.next().transpose()
            }))
        }
    }
}

fn of_file(
    scratch: &ScratchStorage,
    file: &ScratchFile,
) -> Result<Groups<impl std::io::Read + Send + use<>>> {
    groups(scratch, file, 0..file.size_bytes())
}

/// What is larger goes by way of a file.
pub(super) fn bytes_max(plan: &Plan) -> u64 {
    plan.query.scratch.part_bytes_max.unwrap_or(PART_BYTES_MAX)
}

/// A place for files of a query over a source; none where there is none that all workers see.
///
/// # Errors
/// Where it cannot be written to.
pub(super) fn folder(
    plan: &Plan,
    stream: &TableReference,
    reach: Reach,
) -> Result<Option<ScratchFolder>> {
    let Some(url) = place(plan, reach) else { return Ok(None) };
    let table = plan.table(stream.table());
    let source = table.as_ref().and_then(|table| table.source());
    let storage = source.map(|source| source.spec().storage_options.clone());
    match ScratchFolder::create(&url, &storage.unwrap_or_default(), &plan.settings.cancel) {
        Ok(folder) => Ok(Some(folder)),
        // Nobody has named it: all passes the driver, as it does where there is none.
        Err(_) if plan.query.scratch.url.is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Where large tables go: what the user names, else the first folder for what does not fit memory, if all workers are
/// here.
pub(super) fn place(plan: &Plan, reach: Reach) -> Option<String> {
    let own = || {
        let folder = plan.settings.spill_dirs.first().filter(|_| reach.is_here)?;
        Some(folder.to_string_lossy().into_owned())
    };
    plan.query.scratch.url.clone().or_else(own)
}

/// Refuses a place that is none.
///
/// # Errors
/// [`Error::Usage`](tidemill_base::error::Error::Usage).
pub(super) fn check(plan: &Plan) -> Result<()> {
    let Some(url) = &plan.query.scratch.url else { return Ok(()) };
    if url.trim().is_empty() {
        return Err(not_elsewhere("the place for scratch files is empty"));
    }
    // Also where nothing is too large to be sent.
    Ok(scratch::check_scratch_url(url)?)
}

/// How large tables go, in words; none where they are sent as others are.
pub(super) fn explained(plan: &Plan, parts: &Tables, reach: Reach) -> Option<String> {
    let url = place(plan, reach).filter(|_| !parts.spec.keys.is_empty())?;
    let bytes_max = bytes_max(plan);
    let written = plan.query.output.is_some() && parts.finishes_by_group(&plan.logical);
    Some(format!(
        "those of more than {} by files in `{}`, merged by workers, {} ranges of hashes{}",
        tidemill_base::coverage::format_decimal_bytes(bytes_max),
        tidemill_base::redaction::redact_url(&url),
        KeyHashRanges::with_count_at_least((RANGES_PER_THREAD * reach.threads).max(RANGES_MIN))
            .count(),
        match written {
            true => format!(
                "; of more than {} groups workers write the output's files, which the driver commits",
                format_grouped_digits(SORTED_ANSWER_GROUPS_MAX as u64)
            ),
            false => String::new(),
        }
    ))
}
