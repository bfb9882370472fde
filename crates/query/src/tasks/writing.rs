//! The tasks by which workers lay down rows of groups, and write the files of an output.

use std::ops::Range;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Result;
use tidemill_base::progress::RunProgress;
use tidemill_remote::scratch::ScratchFile;
use tidemill_sink::{BegunUpload, PathValues, WorkerOutputBucket};

use super::job::bad;
use super::laid::{LaidRange, Lay, Placed, Write};
use super::parted::Parted;
use super::task::Part;
use super::unordered::{Came, NewTask, Tasks};

/// What one place has to write is likely to become objects that need an upload, if it has more bytes.
const LARGE_BYTES: u64 = 256 << 10;
/// So many workers may do a task at the same time, each with uploads of its own.
const COPIES: usize = 2;

/// The tasks that lay rows of groups down, and what came of them.
pub(super) struct LayingGroups<'a> {
    pub ranges: Vec<Option<(ScratchFile, Range<u64>)>>,
    pub threads: usize,
    pub progress: &'a RunProgress,
    /// Of each range.
    pub done: Vec<Option<LaidRange>>,
}

impl LayingGroups<'_> {
    fn ranges_of(&self, number: usize) -> Range<usize> {
        let first = number * self.threads;
        first..self.ranges.len().min(first + self.threads)
    }
}

impl Tasks for LayingGroups<'_> {
    fn count(&self) -> usize {
        self.ranges.len().div_ceil(self.threads)
    }

    fn task(&mut self, number: usize) -> Result<NewTask> {
        let ranges = self.ranges.get(self.ranges_of(number)).unwrap_or_default().to_vec();
        let bytes = ranges.iter().flatten().map(|(_, bytes)| bytes.end - bytes.start).sum();
        let name = format!("groups {} of {}", number + 1, self.count());
        Ok(NewTask { bytes, name, content: Lay { ranges }.encoded()? })
    }

    fn take(&mut self, number: usize, content: Vec<u8>) -> Result<Came> {
        let part = Part::decoded(content)?;
        let laid = part.laid()?;
        let slots = self.ranges_of(number);
        let slots = self.done.get_mut(slots).unwrap_or_default();
        if laid.len() != slots.len() {
            return Err(bad("some ranges are missing"));
        }
        slots.iter_mut().zip(laid).for_each(|(slot, own)| *slot = Some(own));
        self.progress.table_counters().add_worker_cpu(part.took.cpu);
        Ok(Came { took: part.took, bytes: 0 })
    }

    fn name(&self, number: usize) -> String {
        format!("the same groups, task {} of {} that finish them", number + 1, self.count())
    }
}

/// An object's writer, values and key.
pub(super) type WrittenObject = (usize, PathValues, String);

/// The tasks that write files, and what came of them.
pub(super) struct Writing<'a> {
    pub parts: &'a [Parted],
    /// The objects to write, and the bucket in which the driver begins their uploads. `None` for files.
    pub objects: Option<(&'a WorkerOutputBucket, Vec<WrittenObject>)>,
    pub threads: usize,
    pub progress: &'a RunProgress,
    pub cancel: &'a CancelFlag,
    /// Places that are written once more, with an upload for each object.
    pub again: Vec<Range<usize>>,
    pub done: Placed,
    /// Tasks whose files are there.
    pub ended: u64,
}

impl Writing<'_> {
    /// How many places there are: one of one file.
    fn places(&self) -> usize {
        let runs = self.parts.iter().flat_map(|part| &part.runs);
        runs.map(|run| run.len().saturating_sub(1)).max().unwrap_or(0)
    }

    /// The tasks, without those that are done again.
    fn first_count(&self) -> usize {
        self.places().div_ceil(self.threads)
    }

    fn places_of(&self, number: usize) -> Range<usize> {
        match number.checked_sub(self.first_count()) {
            Some(again) => self.again.get(again).cloned().unwrap_or_default(),
            None => {
                let first = number * self.threads;
                first..self.places().min(first + self.threads)
            }
        }
    }

    /// Begins uploads for those objects of a task that are likely to need one.
    fn begun(&self, number: usize, places: &Range<usize>) -> Result<Vec<Vec<BegunUpload>>> {
        let Some((bucket, objects)) = &self.objects else { return Ok(Vec::new()) };
        let bytes = |place: usize| -> u64 {
            self.parts.iter().map(|part| part.bytes(&(place..place + 1))).sum()
        };
        let is_sure = number >= self.first_count();
        let is_large: Vec<bool> =
            places.clone().map(|place| is_sure || bytes(place) > LARGE_BYTES).collect();
        let own = objects.iter().filter(|(place, ..)| {
            place.checked_sub(places.start).and_then(|at| is_large.get(at)).is_some_and(|it| *it)
        });
        let own: Vec<_> = own.map(|(_, values, key)| (values.clone(), key.clone())).collect();
        Ok(bucket.begin_uploads(&own, COPIES, &mut || self.cancel.check())?)
    }
}

impl Tasks for Writing<'_> {
    fn count(&self) -> usize {
        self.first_count() + self.again.len()
    }

    fn task(&mut self, number: usize) -> Result<NewTask> {
        let places = self.places_of(number);
        let parts = self.parts.iter().filter_map(|part| part.only(&places)).collect();
        let bytes = self.parts.iter().map(|part| part.bytes(&places)).sum();
        let begun = self.begun(number, &places)?;
        let write = Write { count: places.len(), parts, begun };
        let name = format!("write {} of {}", number + 1, self.count());
        Ok(NewTask { bytes, name, content: write.encoded()? })
    }

    fn take(&mut self, number: usize, content: Vec<u8>) -> Result<Came> {
        let part = Part::decoded(content)?;
        let Placed { rows, files, is_too_large } = part.placed()?;
        self.progress.map_counters().add_worker_cpu(part.took.cpu);
        match is_too_large {
            true if self.objects.is_none() => return Err(bad("a file is never too large")),
            true => self.again.push(self.places_of(number)),
            false => {
                self.ended += 1;
                let all = self.count() - self.again.len();
                self.progress.set_write_task_counts(self.ended, all as u64);
                self.done.rows += rows;
                self.done.files.extend(files);
            }
        }
        Ok(Came { took: part.took, bytes: 0 })
    }

    fn name(&self, number: usize) -> String {
        format!("the same files, task {} of {} that write them", number + 1, self.count())
    }
}
