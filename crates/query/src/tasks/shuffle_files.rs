//! Scratch files with partitioned groups or rows, through which workers exchange what is too large to send.
//!
//! ```text
//!   a task's table                      one file, runs of sections           ranges     (KeyHashRanges)
//!     chunk ── by hash ── G G G ──────►  │ 0 │ 1 │ … │ 63 │                   │
//!     chunk ── by hash ── G G G ──────►  │ 0 │ 1 │ … │ 63 │                   ▼
//!   another task's ───────────────────►  …                      range 1 of all files, in their order ─ merge ─ finish
//! ```
//!
//! Bytes go from a worker to a file to another worker. Messages contain only names and offsets.

use std::io::{BufReader, Read};
use std::ops::Range;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::error::{Error, Result};
use tidemill_remote::scratch::{ScratchFile, ScratchReader, ScratchStorage, ScratchWriter};
use tidemill_sink::{PathValues, WriterPartitioner};
use tidemill_tables::SketchPrecision;
use tidemill_tables::merging::chunk_spills::slice_batch;
use tidemill_tables::merging::hash_ranges::KeyHashRanges;
use tidemill_tables::merging::sections;

use super::cluster_job::{append_section, corrupt_message_error};
use super::task_messages::GROUPS_SECTION;

/// Buffer size for reading one partition of a scratch file.
const READ_BUFFER_BYTES: usize = 256 << 10;

/// The description of a table shuffle that workers get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableShuffleSpec {
    /// The location of the query's scratch files.
    pub url: String,
    /// Number of leading hash bits that select a range.
    pub bits: u32,
    /// Maximum bytes of a table that is sent to the driver; a larger one is partitioned.
    pub bytes_max: u64,
}

/// A scratch file with a partitioned table or partitioned rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShuffleFile {
    pub file: ScratchFile,
    /// The runs of sections in the file. Each run lists where its partitions begin, and where the last one
    /// ends.
    pub runs: Vec<Vec<u64>>,
}

impl ShuffleFile {
    /// Returns the file with the offsets of some partitions only, or `None` if they are empty.
    pub(super) fn select_partitions(&self, ranges: &Range<usize>) -> Option<ShuffleFile> {
        let own = |run: &Vec<u64>| run.get(ranges.start..=ranges.end).map(<[u64]>::to_vec);
        let runs: Vec<Vec<u64>> = self.runs.iter().filter_map(own).collect();
        let runs: Vec<_> = runs.into_iter().filter(|run| run.first() < run.last()).collect();
        (!runs.is_empty()).then(|| ShuffleFile { file: self.file.clone(), runs })
    }

    /// Returns the number of bytes in some partitions.
    pub(super) fn partition_byte_count(&self, ranges: &Range<usize>) -> u64 {
        let of = |run: &Vec<u64>| {
            let ends = run.get(ranges.start).zip(run.get(ranges.end));
            ends.map_or(0, |(start, end)| end.saturating_sub(*start))
        };
        self.runs.iter().map(of).sum()
    }
}

/// The output of a shuffle writer.
pub(super) enum ShuffleOutput {
    /// The batches, which are few enough to be sent.
    Batches(Vec<RecordBatch>),
    /// The scratch file with the partitioned batches.
    File(ShuffleFile),
}

/// Writes a table or rows: holds batches until they are large, and partitions them into a scratch file from
/// then on.
pub(super) struct ShuffleWriter<'a> {
    scratch: &'a ScratchStorage,
    partitioner: ShufflePartitioner,
    held_bytes_max: u64,
    label: String,
    held_batches: Vec<RecordBatch>,
    held_bytes: u64,
    file_writer: Option<ScratchWriter>,
    runs: Vec<Vec<u64>>,
}

/// The rule by which rows are partitioned.
enum ShufflePartitioner {
    /// For tables: ranges of the hashes of the first columns, whose number is given.
    HashRanges(KeyHashRanges, usize),
    /// For rows: the worker that writes their output file.
    OutputWriters(Box<WriterPartitioner>),
}

impl ShufflePartitioner {
    fn partition_count(&self) -> usize {
        match self {
            ShufflePartitioner::HashRanges(ranges, _) => ranges.count(),
            ShufflePartitioner::OutputWriters(spread) => spread.writer_count(),
        }
    }

    fn partition_rows(&mut self, rows: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        match self {
            ShufflePartitioner::HashRanges(ranges, key_count) => {
                ranges.partition_groups(rows, *key_count)
            }
            ShufflePartitioner::OutputWriters(spread) => Ok(spread.partition_rows(rows)?),
        }
    }
}

impl<'a> ShuffleWriter<'a> {
    /// Creates a writer for a table whose first columns are `key_count` keys. `label` becomes part of the
    /// file's name.
    pub(super) fn for_groups(
        scratch: &'a ScratchStorage,
        ranges: KeyHashRanges,
        key_count: usize,
        bytes_max: u64,
        label: impl Into<String>,
    ) -> Self {
        Self::with_partitioner(
            scratch,
            ShufflePartitioner::HashRanges(ranges, key_count),
            bytes_max,
            label.into(),
        )
    }

    /// Creates a writer for rows. Each batch stays one section.
    pub(super) fn for_rows(
        scratch: &'a ScratchStorage,
        spread: WriterPartitioner,
        bytes_max: u64,
        label: &str,
    ) -> Self {
        Self::with_partitioner(
            scratch,
            ShufflePartitioner::OutputWriters(Box::new(spread)),
            bytes_max,
            label.to_owned(),
        )
    }

    fn with_partitioner(
        scratch: &'a ScratchStorage,
        apart: ShufflePartitioner,
        bytes_max: u64,
        label: String,
    ) -> Self {
        ShuffleWriter {
            scratch,
            partitioner: apart,
            held_bytes_max: bytes_max,
            label,
            held_batches: Vec::new(),
            held_bytes: 0,
            file_writer: None,
            runs: Vec::new(),
        }
    }

    /// Appends groups in their stored form, or rows.
    pub(super) fn write(&mut self, groups: RecordBatch) -> Result<()> {
        if self.file_writer.is_none() {
            self.held_bytes +=
                groups.columns().iter().map(visible_values_bytes).sum::<usize>() as u64;
            self.held_batches.push(groups);
            if self.held_bytes <= self.held_bytes_max {
                return Ok(());
            }
            self.file_writer = Some(self.scratch.create_file(&self.label)?);
            return std::mem::take(&mut self.held_batches)
                .iter()
                .try_for_each(|held| self.write_partitions(held));
        }
        self.write_partitions(&groups)
    }

    fn write_partitions(&mut self, groups: &RecordBatch) -> Result<()> {
        let Some(out) = &mut self.file_writer else { return Ok(()) };
        let count = self.partitioner.partition_count();
        for (range, own) in self.partitioner.partition_rows(groups)? {
            // A partition before the last one written begins another run.
            let is_behind = self.runs.last().is_none_or(|run| run.len() > range + 1);
            if is_behind {
                if let Some(run) = self.runs.last_mut() {
                    run.resize(count + 1, out.written_bytes());
                }
                self.runs.push(Vec::new());
            }
            if let Some(run) = self.runs.last_mut() {
                let begun = run.len().max(range + 1);
                run.resize(begun, out.written_bytes());
            }
            let mut write = |own: &RecordBatch| -> Result<()> {
                let mut section = Vec::new();
                append_section(&mut section, GROUPS_SECTION, &sections::encode_batch(own)?)?;
                Ok(out.write(&section)?)
            };
            match self.partitioner {
                ShufflePartitioner::HashRanges(..) => {
                    slice_batch(&own).try_for_each(|slice| write(&slice?))?
                }
                ShufflePartitioner::OutputWriters(_) => write(&own)?,
            }
        }
        Ok(())
    }

    /// Returns the output paths of the rows; empty for tables.
    pub(super) fn output_paths(&self) -> Vec<PathValues> {
        match &self.partitioner {
            ShufflePartitioner::HashRanges(..) => Vec::new(),
            ShufflePartitioner::OutputWriters(spread) => spread.path_values(),
        }
    }

    /// Finishes the file.
    pub(super) fn finish(mut self) -> Result<ShuffleOutput> {
        let Some(out) = self.file_writer.take() else {
            return Ok(ShuffleOutput::Batches(self.held_batches));
        };
        if let Some(run) = self.runs.last_mut() {
            run.resize(self.partitioner.partition_count() + 1, out.written_bytes());
        }
        Ok(ShuffleOutput::File(ShuffleFile { file: out.finish()?, runs: self.runs }))
    }
}

/// A reader of sections with groups or rows.
pub(super) struct GroupReader<R: Read> {
    reader: R,
    pending_batches: std::vec::IntoIter<RecordBatch>,
}

impl<R: Read> GroupReader<R> {
    pub(super) fn new(from: R) -> Self {
        GroupReader { reader: from, pending_batches: Vec::new().into_iter() }
    }

    /// Returns the next batch, or `None` at the end.
    ///
    /// # Errors
    /// Fails if the sections are damaged.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.pending_batches.next() {
                return Ok(Some(batch));
            }
            let read = sections::read_section(&mut self.reader);
            let read = read.map_err(|error| Error::io("read", "a scratch file", error))?;
            match read {
                None => return Ok(None),
                Some((GROUPS_SECTION, content)) => {
                    let batches = sections::decode_batches(&content)
                        .map_err(|why| corrupt_message_error(&why))?;
                    self.pending_batches = batches.into_iter();
                }
                Some(_) => return Err(corrupt_message_error("a section of an unknown kind")),
            }
        }
    }
}

/// Opens a byte range of a scratch file for reading.
///
/// # Errors
/// Fails if the file does not exist.
pub(super) fn open_group_range(
    scratch: &ScratchStorage,
    file: &ScratchFile,
    bytes: Range<u64>,
) -> Result<GroupReader<BufReader<ScratchReader>>> {
    let size = usize::try_from(bytes.end - bytes.start)
        .unwrap_or(READ_BUFFER_BYTES)
        .min(READ_BUFFER_BYTES);
    Ok(GroupReader::new(BufReader::with_capacity(size.max(1), scratch.read_range(file, bytes)?)))
}

/// A reduce task: merges some hash ranges, one at a time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReduceTask {
    /// Number of ranges.
    pub count: usize,
    /// The tables in split order. Their runs have the offsets of these ranges only.
    pub parts: Vec<ShuffleFile>,
    /// Maximum bytes of a range's answers that are sent to the driver; more go to a scratch file.
    pub bytes_max: u64,
}

/// The result of a reduce task for one range: finished groups in hash order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReducedRange {
    /// The precision of each aggregate's answers.
    pub precisions: Vec<Option<SerializedPrecision>>,
    /// The scratch file with the groups; `None` if they follow in the message.
    pub file: Option<ScratchFile>,
    /// Number of groups.
    pub groups: u64,
}

/// A precision in serializable form, with the bits of its floats.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SerializedPrecision {
    exact: bool,
    error: u64,
    rank: u64,
}

impl From<SketchPrecision> for SerializedPrecision {
    fn from(
        SketchPrecision { is_exact: exact, error_max: error, rank_error_max: rank }: SketchPrecision,
    ) -> Self {
        SerializedPrecision { exact, error: error.to_bits(), rank: rank.to_bits() }
    }
}

impl From<SerializedPrecision> for SketchPrecision {
    fn from(SerializedPrecision { exact, error, rank }: SerializedPrecision) -> Self {
        SketchPrecision {
            is_exact: exact,
            error_max: f64::from_bits(error),
            rank_error_max: f64::from_bits(rank),
        }
    }
}

/// Encoded groups: held in memory while they are few, and written to a scratch file from then on.
pub(super) struct GroupSpool<'a> {
    scratch: &'a ScratchStorage,
    label: &'static str,
    bytes_max: u64,
    held_bytes: Vec<u8>,
    file_writer: Option<ScratchWriter>,
}

impl<'a> GroupSpool<'a> {
    pub(super) fn new(scratch: &'a ScratchStorage, label: &'static str, bytes_max: u64) -> Self {
        GroupSpool { scratch, label, bytes_max, held_bytes: Vec::new(), file_writer: None }
    }

    /// Appends groups.
    pub(super) fn write(&mut self, groups: &RecordBatch) -> Result<()> {
        for slice in slice_batch(groups) {
            append_section(
                &mut self.held_bytes,
                GROUPS_SECTION,
                &sections::encode_batch(&slice?)?,
            )?;
            if self.file_writer.is_none() && self.held_bytes.len() as u64 > self.bytes_max {
                self.file_writer = Some(self.scratch.create_file(self.label)?);
            }
            if let Some(out) = &mut self.file_writer {
                out.write(&self.held_bytes)?;
                self.held_bytes.clear();
            }
        }
        Ok(())
    }

    /// Finishes the spool and returns the bytes in memory and the file, of which only one has groups.
    pub(super) fn finish(self) -> Result<(Vec<u8>, Option<ScratchFile>)> {
        let file = self.file_writer.map(ScratchWriter::finish).transpose()?;
        Ok((self.held_bytes, file))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use proptest::prelude::*;
    use tidemill_base::cancellation::CancelFlag;
    use tidemill_remote::StorageOptions;
    use tidemill_remote::scratch::ScratchFolder;

    use super::*;

    fn batch(values: &[i64]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("key_0", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()
    }

    proptest! {
        /// For any sequence of chunks, each range has its own rows, in the order of the chunks.
        #[test]
        fn each_range_holds_its_rows_in_chunk_order(
            chunks in prop::collection::vec(prop::collection::vec(0..500_i64, 1..40), 1..12),
            bits in 0..5_u32,
            bytes_max in prop_oneof![Just(0), Just(500), Just(1 << 20)],
        ) {
            let folder = tempfile::tempdir().unwrap();
            let url = folder.path().to_str().unwrap();
            let (storage, cancel) = (StorageOptions::default(), CancelFlag::default());
            let made = ScratchFolder::create(url, &storage, &cancel).unwrap();
            let ranges = KeyHashRanges::with_bits(bits);
            let mut writer = ShuffleWriter::for_groups(&made.storage, ranges, 1, bytes_max, "part");
            let mut expected: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
            for chunk in &chunks {
                writer.write(batch(chunk)).unwrap();
                for (range, own) in ranges.partition_groups(&batch(chunk), 1).unwrap() {
                    let values = own.column(0).as_primitive::<Int64Type>().values().to_vec();
                    expected.entry(range).or_default().extend(values);
                }
            }
            match writer.finish().unwrap() {
                ShuffleOutput::Batches(held) => {
                    prop_assert!(bytes_max > 0);
                    prop_assert_eq!(held.len(), chunks.len());
                }
                ShuffleOutput::File(parted) => {
                    let mut found: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
                    for range in 0..ranges.count() {
                        let Some(own) = parted.select_partitions(&(range..range + 1)) else { continue };
                        prop_assert_eq!(own.partition_byte_count(&(0..1)), parted.partition_byte_count(&(range..range + 1)));
                        for run in &own.runs {
                            let mut of = open_group_range(&made.storage, &own.file, run[0]..run[1]).unwrap();
                            while let Some(batch) = of.next_batch().unwrap() {
                                let values = batch.column(0).as_primitive::<Int64Type>().values();
                                found.entry(range).or_default().extend(values);
                            }
                        }
                    }
                    prop_assert_eq!(found, expected);
                }
            }
            drop(made);
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
