//! Tables that are too large to be sent: put apart by ranges of hashes in scratch files, and merged range by range.
//!
//! ```text
//!   a task's table                      one file, runs of sections           ranges     (tables/ranges.rs)
//!     chunk ── apart ── G G G ─────────►  │ 0 │ 1 │ … │ 63 │                   │
//!     chunk ── apart ── G G G ─────────►  │ 0 │ 1 │ … │ 63 │                   ▼
//!   another task's ───────────────────►  …                      range 1 of all files, in their order ─ merge ─ finish
//! ```
//!
//! Bytes go from worker to file to worker; what is told of them are names and offsets.

use std::io::{BufReader, Read};
use std::ops::Range;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::error::{Error, Result};
use tidemill_remote::scratch::{ScratchFile, ScratchReader, ScratchStorage, ScratchWriter};
use tidemill_sink::{PathValues, WriterPartitioner};
use tidemill_tables::SketchPrecision;
use tidemill_tables::chunk_spills::slice_batch;
use tidemill_tables::hash_ranges::KeyHashRanges;
use tidemill_tables::sections;

use super::job::{bad, put};
use super::task::GROUPS;

/// What is read of a file at once, of one range.
const READ_BYTES: usize = 256 << 10;

/// How large tables are put apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parting {
    /// The place of the query's files.
    pub url: String,
    /// Of so many first bits of a hash is a range.
    pub bits: u32,
    /// Tables of more bytes are put apart.
    pub bytes_max: u64,
}

/// A table in a scratch file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parted {
    pub file: ScratchFile,
    /// Runs of sections, one after the other: where each range begins, and where the last of them ends.
    pub runs: Vec<Vec<u64>>,
}

impl Parted {
    /// What it has of some ranges; none if that is nothing.
    pub(super) fn only(&self, ranges: &Range<usize>) -> Option<Parted> {
        let own = |run: &Vec<u64>| run.get(ranges.start..=ranges.end).map(<[u64]>::to_vec);
        let runs: Vec<Vec<u64>> = self.runs.iter().filter_map(own).collect();
        let runs: Vec<_> = runs.into_iter().filter(|run| run.first() < run.last()).collect();
        (!runs.is_empty()).then(|| Parted { file: self.file.clone(), runs })
    }

    /// The bytes of some ranges.
    pub(super) fn bytes(&self, ranges: &Range<usize>) -> u64 {
        let of = |run: &Vec<u64>| {
            let ends = run.get(ranges.start).zip(run.get(ranges.end));
            ends.map_or(0, |(start, end)| end.saturating_sub(*start))
        };
        self.runs.iter().map(of).sum()
    }
}

/// What became of a table that was written.
pub(super) enum Written {
    /// It is so small that it is sent.
    Few(Vec<RecordBatch>),
    Parted(Parted),
}

/// A table on its way: kept until it is large, and put apart from then on.
pub(super) struct PartedWriter<'a> {
    scratch: &'a ScratchStorage,
    apart: Apart,
    bytes_max: u64,
    label: String,
    held: Vec<RecordBatch>,
    held_bytes: u64,
    out: Option<ScratchWriter>,
    runs: Vec<Vec<u64>>,
}

/// By what rows are put apart.
enum Apart {
    /// Of tables, by ranges of the hashes of so many keys.
    Ranges(KeyHashRanges, usize),
    /// Of rows, by who is to write them.
    Places(Box<WriterPartitioner>),
}

impl Apart {
    fn count(&self) -> usize {
        match self {
            Apart::Ranges(ranges, _) => ranges.count(),
            Apart::Places(spread) => spread.writer_count(),
        }
    }

    fn of(&mut self, rows: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        match self {
            Apart::Ranges(ranges, key_count) => ranges.partition_groups(rows, *key_count),
            Apart::Places(spread) => Ok(spread.partition_rows(rows)?),
        }
    }
}

impl<'a> PartedWriter<'a> {
    /// A table whose first columns are `key_count` keys; what it is stands in its file's name.
    pub(super) fn new(
        scratch: &'a ScratchStorage,
        ranges: KeyHashRanges,
        key_count: usize,
        bytes_max: u64,
        label: impl Into<String>,
    ) -> Self {
        Self::by(scratch, Apart::Ranges(ranges, key_count), bytes_max, label.into())
    }

    /// Rows, of which each batch stays one.
    pub(super) fn of_rows(
        scratch: &'a ScratchStorage,
        spread: WriterPartitioner,
        bytes_max: u64,
        label: &str,
    ) -> Self {
        Self::by(scratch, Apart::Places(Box::new(spread)), bytes_max, label.to_owned())
    }

    fn by(scratch: &'a ScratchStorage, apart: Apart, bytes_max: u64, label: String) -> Self {
        PartedWriter {
            scratch,
            apart,
            bytes_max,
            label,
            held: Vec::new(),
            held_bytes: 0,
            out: None,
            runs: Vec::new(),
        }
    }

    /// Appends groups, in their form on disk.
    pub(super) fn write(&mut self, groups: RecordBatch) -> Result<()> {
        if self.out.is_none() {
            self.held_bytes +=
                groups.columns().iter().map(visible_values_bytes).sum::<usize>() as u64;
            self.held.push(groups);
            if self.held_bytes <= self.bytes_max {
                return Ok(());
            }
            self.out = Some(self.scratch.create_file(&self.label)?);
            return std::mem::take(&mut self.held).iter().try_for_each(|held| self.put(held));
        }
        self.put(&groups)
    }

    fn put(&mut self, groups: &RecordBatch) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let count = self.apart.count();
        for (range, own) in self.apart.of(groups)? {
            // Behind a later range begins another run.
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
                put(&mut section, GROUPS, &sections::encode_batch(own)?)?;
                Ok(out.write(&section)?)
            };
            match self.apart {
                Apart::Ranges(..) => slice_batch(&own).try_for_each(|slice| write(&slice?))?,
                Apart::Places(_) => write(&own)?,
            }
        }
        Ok(())
    }

    /// The paths that its rows are for, where they are rows.
    pub(super) fn paths(&self) -> Vec<PathValues> {
        match &self.apart {
            Apart::Ranges(..) => Vec::new(),
            Apart::Places(spread) => spread.path_values(),
        }
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Result<Written> {
        let Some(out) = self.out.take() else { return Ok(Written::Few(self.held)) };
        if let Some(run) = self.runs.last_mut() {
            run.resize(self.apart.count() + 1, out.written_bytes());
        }
        Ok(Written::Parted(Parted { file: out.finish()?, runs: self.runs }))
    }
}

/// The groups of sections that are read from somewhere.
pub(super) struct Groups<R: Read> {
    from: R,
    coming: std::vec::IntoIter<RecordBatch>,
}

impl<R: Read> Groups<R> {
    pub(super) fn new(from: R) -> Self {
        Groups { from, coming: Vec::new().into_iter() }
    }

    /// The next of them; none at the end.
    ///
    /// # Errors
    /// Where they are damaged.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.coming.next() {
                return Ok(Some(batch));
            }
            let read = sections::read_section(&mut self.from);
            let read = read.map_err(|error| Error::io("read", "a scratch file", error))?;
            match read {
                None => return Ok(None),
                Some((GROUPS, content)) => {
                    let batches = sections::decode_batches(&content).map_err(|why| bad(&why))?;
                    self.coming = batches.into_iter();
                }
                Some(_) => return Err(bad("a section of an unknown kind")),
            }
        }
    }
}

/// The groups of a range of a file.
///
/// # Errors
/// Where it is not there.
pub(super) fn groups(
    scratch: &ScratchStorage,
    file: &ScratchFile,
    bytes: Range<u64>,
) -> Result<Groups<BufReader<ScratchReader>>> {
    let size = usize::try_from(bytes.end - bytes.start).unwrap_or(READ_BYTES).min(READ_BYTES);
    Ok(Groups::new(BufReader::with_capacity(size.max(1), scratch.read_range(file, bytes)?)))
}

/// Ranges of some tables that one worker is to merge, each by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reduce {
    /// How many ranges.
    pub count: usize,
    /// The tables, in the order of the splits; their runs have these ranges alone.
    pub parts: Vec<Parted>,
    /// What is larger of a range goes to a scratch file.
    pub bytes_max: u64,
}

/// What comes of a range: finished groups in the order of their hashes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reduced {
    /// How good the answers are, an entry per aggregate.
    pub precisions: Vec<Option<PrecisionSaid>>,
    /// Where they lie, if they do not follow.
    pub file: Option<ScratchFile>,
    /// How many there are.
    pub groups: u64,
}

/// A precision, of which each bit is said.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct PrecisionSaid {
    exact: bool,
    error: u64,
    rank: u64,
}

impl From<SketchPrecision> for PrecisionSaid {
    fn from(
        SketchPrecision { is_exact: exact, error_max: error, rank_error_max: rank }: SketchPrecision,
    ) -> Self {
        PrecisionSaid { exact, error: error.to_bits(), rank: rank.to_bits() }
    }
}

impl From<PrecisionSaid> for SketchPrecision {
    fn from(PrecisionSaid { exact, error, rank }: PrecisionSaid) -> Self {
        SketchPrecision {
            is_exact: exact,
            error_max: f64::from_bits(error),
            rank_error_max: f64::from_bits(rank),
        }
    }
}

/// Bytes that are kept until they are many, and go to a scratch file from then on.
pub(super) struct Spool<'a> {
    scratch: &'a ScratchStorage,
    label: &'static str,
    bytes_max: u64,
    held: Vec<u8>,
    out: Option<ScratchWriter>,
}

impl<'a> Spool<'a> {
    pub(super) fn new(scratch: &'a ScratchStorage, label: &'static str, bytes_max: u64) -> Self {
        Spool { scratch, label, bytes_max, held: Vec::new(), out: None }
    }

    /// Appends groups.
    pub(super) fn write(&mut self, groups: &RecordBatch) -> Result<()> {
        for slice in slice_batch(groups) {
            put(&mut self.held, GROUPS, &sections::encode_batch(&slice?)?)?;
            if self.out.is_none() && self.held.len() as u64 > self.bytes_max {
                self.out = Some(self.scratch.create_file(self.label)?);
            }
            if let Some(out) = &mut self.out {
                out.write(&self.held)?;
                self.held.clear();
            }
        }
        Ok(())
    }

    /// Ends it: the bytes, or where they lie.
    pub(super) fn finish(self) -> Result<(Vec<u8>, Option<ScratchFile>)> {
        let file = self.out.map(ScratchWriter::finish).transpose()?;
        Ok((self.held, file))
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
        /// Whatever chunks come in, each range has its own of them, in their order.
        #[test]
        fn every_range_has_what_is_its_own_in_the_order_of_the_chunks(
            chunks in prop::collection::vec(prop::collection::vec(0..500_i64, 1..40), 1..12),
            bits in 0..5_u32,
            bytes_max in prop_oneof![Just(0), Just(500), Just(1 << 20)],
        ) {
            let folder = tempfile::tempdir().unwrap();
            let url = folder.path().to_str().unwrap();
            let (storage, cancel) = (StorageOptions::default(), CancelFlag::default());
            let made = ScratchFolder::create(url, &storage, &cancel).unwrap();
            let ranges = KeyHashRanges::with_bits(bits);
            let mut writer = PartedWriter::new(&made.storage, ranges, 1, bytes_max, "part");
            let mut expected: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
            for chunk in &chunks {
                writer.write(batch(chunk)).unwrap();
                for (range, own) in ranges.partition_groups(&batch(chunk), 1).unwrap() {
                    let values = own.column(0).as_primitive::<Int64Type>().values().to_vec();
                    expected.entry(range).or_default().extend(values);
                }
            }
            match writer.finish().unwrap() {
                Written::Few(held) => {
                    prop_assert!(bytes_max > 0);
                    prop_assert_eq!(held.len(), chunks.len());
                }
                Written::Parted(parted) => {
                    let mut found: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
                    for range in 0..ranges.count() {
                        let Some(own) = parted.only(&(range..range + 1)) else { continue };
                        prop_assert_eq!(own.bytes(&(0..1)), parted.bytes(&(range..range + 1)));
                        for run in &own.runs {
                            let mut of = groups(&made.storage, &own.file, run[0]..run[1]).unwrap();
                            while let Some(batch) = of.next().unwrap() {
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
