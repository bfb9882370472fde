//! The tasks by which workers shuffle rows of groups and write the files of an output.

use std::ops::Range;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Result;
use tidemill_base::progress::RunProgress;
use tidemill_remote::scratch::ScratchFile;
use tidemill_sink::{BegunUpload, PathValues, WorkerOutputBucket};

use super::cluster_job::corrupt_message_error;
use super::row_shuffle::{ShuffleGroupsTask, ShuffledRange, WriteFilesTask, WrittenFiles};
use super::shuffle_files::ShuffleFile;
use super::task_messages::TaskResult;
use super::unordered_scheduler::{EncodedTask, TaskSource, TaskStats};

/// Bytes of a writer partition above which its objects probably need an upload.
const UPLOAD_PARTITION_BYTES_MIN: u64 = 256 << 10;
/// Number of workers that may run copies of a task at the same time, each with its own uploads.
const TASK_COPIES_MAX: usize = 2;

/// The tasks that shuffle rows of groups, and their results.
pub(super) struct GroupShuffleTasks<'a> {
    pub ranges: Vec<Option<(ScratchFile, Range<u64>)>>,
    pub ranges_per_task: usize,
    pub progress: &'a RunProgress,
    /// The result for each range.
    pub results: Vec<Option<ShuffledRange>>,
}

impl GroupShuffleTasks<'_> {
    fn task_ranges(&self, number: usize) -> Range<usize> {
        let first = number * self.ranges_per_task;
        first..self.ranges.len().min(first + self.ranges_per_task)
    }
}

impl TaskSource for GroupShuffleTasks<'_> {
    fn task_count(&self) -> usize {
        self.ranges.len().div_ceil(self.ranges_per_task)
    }

    fn encode_task(&mut self, number: usize) -> Result<EncodedTask> {
        let ranges = self.ranges.get(self.task_ranges(number)).unwrap_or_default().to_vec();
        let bytes = ranges.iter().flatten().map(|(_, bytes)| bytes.end - bytes.start).sum();
        let name = format!("groups {} of {}", number + 1, self.task_count());
        Ok(EncodedTask {
            cost_bytes: bytes,
            display_name: name,
            encoded_task: ShuffleGroupsTask { ranges }.encode()?,
        })
    }

    fn accept_result(&mut self, number: usize, content: Vec<u8>) -> Result<TaskStats> {
        let part = TaskResult::decode(content)?;
        let laid = part.shuffled_ranges()?;
        let slots = self.task_ranges(number);
        let slots = self.results.get_mut(slots).unwrap_or_default();
        if laid.len() != slots.len() {
            return Err(corrupt_message_error("some ranges are missing"));
        }
        slots.iter_mut().zip(laid).for_each(|(slot, own)| *slot = Some(own));
        self.progress.table_counters().add_worker_cpu(part.time.cpu);
        Ok(TaskStats { time: part.time, input_bytes: 0 })
    }

    fn work_description(&self, number: usize) -> String {
        format!("the same groups, task {} of {} that finish them", number + 1, self.task_count())
    }
}

/// An object's writer partition, path values and key.
pub(super) type OutputObject = (usize, PathValues, String);

/// The tasks that write files, and their results.
pub(super) struct FileWriteTasks<'a> {
    /// The scratch files with the shuffled rows.
    pub shuffle_files: &'a [ShuffleFile],
    /// The objects to write, and the bucket in which the driver begins their uploads. `None` for files.
    pub objects: Option<(&'a WorkerOutputBucket, Vec<OutputObject>)>,
    pub partitions_per_task: usize,
    pub progress: &'a RunProgress,
    pub cancel: &'a CancelFlag,
    /// Writer partitions that are written once more, with an upload for each object.
    pub retried_partitions: Vec<Range<usize>>,
    /// All files written so far.
    pub results: WrittenFiles,
    /// Number of tasks whose files are written.
    pub finished_task_count: u64,
}

impl FileWriteTasks<'_> {
    /// Returns the number of writer partitions; 1 for an output of one file.
    fn partition_count(&self) -> usize {
        let runs = self.shuffle_files.iter().flat_map(|part| &part.runs);
        runs.map(|run| run.len().saturating_sub(1)).max().unwrap_or(0)
    }

    /// Returns the number of tasks without retries.
    fn initial_task_count(&self) -> usize {
        self.partition_count().div_ceil(self.partitions_per_task)
    }

    fn task_partitions(&self, number: usize) -> Range<usize> {
        match number.checked_sub(self.initial_task_count()) {
            Some(again) => self.retried_partitions.get(again).cloned().unwrap_or_default(),
            None => {
                let first = number * self.partitions_per_task;
                first..self.partition_count().min(first + self.partitions_per_task)
            }
        }
    }

    /// Begins uploads for those objects of a task that probably need one.
    fn begin_uploads(&self, number: usize, places: &Range<usize>) -> Result<Vec<Vec<BegunUpload>>> {
        let Some((bucket, objects)) = &self.objects else { return Ok(Vec::new()) };
        let bytes = |place: usize| -> u64 {
            self.shuffle_files
                .iter()
                .map(|part| part.partition_byte_count(&(place..place + 1)))
                .sum()
        };
        let is_sure = number >= self.initial_task_count();
        let is_large: Vec<bool> = places
            .clone()
            .map(|place| is_sure || bytes(place) > UPLOAD_PARTITION_BYTES_MIN)
            .collect();
        let own = objects.iter().filter(|(place, ..)| {
            place.checked_sub(places.start).and_then(|at| is_large.get(at)).is_some_and(|it| *it)
        });
        let own: Vec<_> = own.map(|(_, values, key)| (values.clone(), key.clone())).collect();
        Ok(bucket.begin_uploads(&own, TASK_COPIES_MAX, &mut || self.cancel.check())?)
    }
}

impl TaskSource for FileWriteTasks<'_> {
    fn task_count(&self) -> usize {
        self.initial_task_count() + self.retried_partitions.len()
    }

    fn encode_task(&mut self, number: usize) -> Result<EncodedTask> {
        let places = self.task_partitions(number);
        let parts =
            self.shuffle_files.iter().filter_map(|part| part.select_partitions(&places)).collect();
        let bytes = self.shuffle_files.iter().map(|part| part.partition_byte_count(&places)).sum();
        let begun = self.begin_uploads(number, &places)?;
        let write = WriteFilesTask { count: places.len(), parts, begun };
        let name = format!("write {} of {}", number + 1, self.task_count());
        Ok(EncodedTask { cost_bytes: bytes, display_name: name, encoded_task: write.encode()? })
    }

    fn accept_result(&mut self, number: usize, content: Vec<u8>) -> Result<TaskStats> {
        let part = TaskResult::decode(content)?;
        let WrittenFiles { rows, files, is_too_large } = part.written_files()?;
        self.progress.map_counters().add_worker_cpu(part.time.cpu);
        match is_too_large {
            true if self.objects.is_none() => {
                return Err(corrupt_message_error("a file is never too large"));
            }
            true => self.retried_partitions.push(self.task_partitions(number)),
            false => {
                self.finished_task_count += 1;
                let all = self.task_count() - self.retried_partitions.len();
                self.progress.set_write_task_counts(self.finished_task_count, all as u64);
                self.results.rows += rows;
                self.results.files.extend(files);
            }
        }
        Ok(TaskStats { time: part.time, input_bytes: 0 })
    }

    fn work_description(&self, number: usize) -> String {
        format!("the same files, task {} of {} that write them", number + 1, self.task_count())
    }
}
