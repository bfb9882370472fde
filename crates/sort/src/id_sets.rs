//! Sets of 64-bit ids, larger than memory: union, intersection, difference.
//!
//! Each input is a set: an id that occurs twice counts once. Inputs in ascending order are merged as they
//! are read. Others are sorted first, each with its part of the memory, so that no set
//! needs to fit.
//!
//! ```
//! use tidemill_sort::id_sets::{IdFormat, IdSetOperand, IdSetOptions, SetOperation, combine_id_sets};
//!
//! let a = IdSetOperand::new("a", IdFormat::Text, &b"3\n1\n2\n"[..]);
//! let b = IdSetOperand::new("b", IdFormat::Text, &b"2\n3\n4\n"[..]);
//! let mut both = Vec::new();
//! let options = IdSetOptions::default();
//! let counts = combine_id_sets(SetOperation::Intersect, vec![a, b], &options, &mut |ids| {
//!     both.extend_from_slice(ids);
//!     Ok(())
//! })?;
//! assert_eq!((both, counts.output_ids), (vec![2, 3], 2));
//! # Ok::<(), tidemill_sort::id_sets::IdSetError>(())
//! ```

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block_feed::feed_blocks;
use crate::cancel_flag::SortCancelFlag;
use crate::loser_tree::{LoserTree, MergeSource};
use crate::options::MEMORY_BYTES_MIN;
use crate::record_blocks::RecordShape;
use crate::record_order::U64Order;
use crate::sorted_blocks::{OutputFraming, SortedBlock, SortedBlocks};
use crate::sorter::Sorter;

/// Number of ids that are read at once.
const BLOCK_IDS: usize = 1 << 14;

/// The reason why sets were not combined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdSetError {
    /// The operating system refused a file operation.
    #[error("cannot {action} `{name}`: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The input.
        name: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A line that is not an id.
    #[error(
        "`{name}`, line {line}: `{text}` is no {kind}\nhint: one number a line, from {least} to {most}"
    )]
    InvalidLine {
        /// The input.
        name: String,
        /// The line's number, from 1.
        line: u64,
        /// Text of the line, cut off if it is long.
        text: String,
        /// The expected kind of id.
        kind: &'static str,
        /// The least id.
        least: i128,
        /// The greatest id.
        most: i128,
    },
    /// An input of raw ids that ends within an id.
    #[error(
        "`{name}` ends with {bytes} bytes of an id of 8\nhint: raw ids have 8 bytes each, little-endian"
    )]
    TruncatedId {
        /// The input.
        name: String,
        /// Number of remaining bytes.
        bytes: usize,
    },
    /// An input that is not in the promised order.
    #[error(
        "`{name}` is not in order at its id number {number}\nhint: leave out that it is sorted, and it will be"
    )]
    NotSorted {
        /// The input.
        name: String,
        /// Number of the id, from 1.
        number: u64,
    },
    /// No input was given.
    #[error("no sets to combine\nhint: name at least one input")]
    NoInput,
    /// An error of the sort.
    #[error(transparent)]
    Sort(#[from] crate::Error),
    /// The consumer of the ids failed.
    #[error("cannot write ids: {0}")]
    Output(io::Error),
}

/// The operation that combines the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperation {
    /// Ids of any set.
    Union,
    /// Ids of all sets.
    Intersect,
    /// Ids of the first set that no other set has.
    Diff,
    /// Ids of an odd number of sets; for two sets: ids of exactly one of them.
    Xor,
    /// As `Union`, but only counts the ids and emits none.
    Count,
}

impl SetOperation {
    fn includes_id(self, sets: usize, first: bool, of: usize) -> bool {
        match self {
            SetOperation::Union | SetOperation::Count => true,
            SetOperation::Intersect => sets == of,
            SetOperation::Diff => first && sets == 1,
            SetOperation::Xor => sets % 2 == 1,
        }
    }
}

/// Format of written ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdFormat {
    /// Eight bytes each, little-endian.
    Raw,
    /// A decimal number on each line; ignores blanks around it, empty lines and a byte-order mark before the
    /// first.
    Text,
}

/// A callback that gets the number of bytes of each read.
pub type ReadCallback = Arc<dyn Fn(u64) + Send + Sync>;

/// Options for combining sets.
#[derive(Clone)]
#[non_exhaustive]
pub struct IdSetOptions {
    /// Memory in bytes. Default: 1 GiB. Minimum: 1 MiB for each input that has to be sorted.
    pub memory_bytes: u64,
    /// Threads. Default: the processors available to the process.
    pub threads: usize,
    /// Folders for spilled ids. Default: the system's.
    pub spill_dirs: Vec<PathBuf>,
    /// True if ids are numbers in two's complement, with negative ones first. Default: no.
    pub signed: bool,
    /// Called after each read of an input of bytes, including the check of its order. Default: none.
    pub on_read: Option<ReadCallback>,
    /// Cancels the operation from another thread.
    pub cancel: SortCancelFlag,
}

impl std::fmt::Debug for IdSetOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("memory_bytes", &self.memory_bytes)
            .field("threads", &self.threads)
            .field("spill_dirs", &self.spill_dirs)
            .field("signed", &self.signed)
            .finish_non_exhaustive()
    }
}

impl Default for IdSetOptions {
    fn default() -> Self {
        let crate::Options { memory_bytes, threads, spill_dirs, cancel, .. } =
            crate::Options::default();
        IdSetOptions { memory_bytes, threads, spill_dirs, signed: false, on_read: None, cancel }
    }
}

/// Order of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputOrder {
    Sorted,
    Unsorted,
}

/// A callback that fills a list with ids.
type IdBatchReader<'a> = Box<dyn FnMut(&mut Vec<u64>) -> io::Result<()> + Send + 'a>;

enum IdInputSource<'a> {
    Reader(IdFormat, Box<dyn Read + Send + 'a>),
    Blocks(IdBatchReader<'a>),
}

/// A set of ids.
pub struct IdSetOperand<'a> {
    name: String,
    source: IdInputSource<'a>,
    order: InputOrder,
}

impl std::fmt::Debug for IdSetOperand<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .field("sorted", &self.order)
            .finish_non_exhaustive()
    }
}

impl<'a> IdSetOperand<'a> {
    /// Creates an input of ids from bytes, in any order. The name appears in messages.
    pub fn new(name: impl Into<String>, format: IdFormat, reader: impl Read + Send + 'a) -> Self {
        IdSetOperand {
            name: name.into(),
            source: IdInputSource::Reader(format, Box::new(reader)),
            order: InputOrder::Unsorted,
        }
    }

    /// Opens a file of ids. Reads it once to check its order: a file in ascending order is not sorted.
    ///
    /// # Errors
    /// The file cannot be read, or contains something other than ids.
    pub fn from_file(
        path: &Path,
        format: IdFormat,
        options: &IdSetOptions,
    ) -> Result<IdSetOperand<'static>, IdSetError> {
        let name = path.display().to_string();
        let open = || {
            std::fs::File::open(path).map_err(|source| IdSetError::Io {
                action: "open",
                name: name.clone(),
                source,
            })
        };
        let order = U64Order { signed: options.signed };
        let mut sorted = InputOrder::Sorted;
        let file = open()?;
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let mut reader = IdReader::new(IdSetOperand::new(name.clone(), format, file), options);
            let (mut ids, mut last) = (Vec::new(), 0);
            while sorted == InputOrder::Sorted && reader.read_ids(&mut ids)? {
                for id in &ids {
                    if order.unsigned_rank(*id) < last {
                        sorted = InputOrder::Unsorted;
                    }
                    last = order.unsigned_rank(*id);
                }
            }
        } else {
            sorted = InputOrder::Unsorted;
        }
        let file = open()?;
        Ok(IdSetOperand { order: sorted, ..IdSetOperand::new(name, format, file) })
    }

    /// Creates an input from a callback: `next` fills an empty list with ids, or leaves it empty at the end.
    pub fn from_batches(
        name: impl Into<String>,
        next: impl FnMut(&mut Vec<u64>) -> io::Result<()> + Send + 'a,
    ) -> Self {
        IdSetOperand {
            name: name.into(),
            source: IdInputSource::Blocks(Box::new(next)),
            order: InputOrder::Unsorted,
        }
    }

    /// Declares that the ids are in order, so that nothing is sorted or spilled. The order is checked.
    #[must_use]
    pub fn assume_sorted(mut self) -> Self {
        self.order = InputOrder::Sorted;
        self
    }
}

/// Numbers of ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSetCounts {
    /// Number of distinct ids of each input.
    pub input_ids: Vec<u64>,
    /// Number of ids that the operation selected.
    pub output_ids: u64,
}

/// Reads the ids of an input in its order.
struct IdReader<'a> {
    input: IdSetOperand<'a>,
    cancel: SortCancelFlag,
    on_read: Option<ReadCallback>,
    signed: bool,
    line_number: u64,
    /// Beginning of an incomplete id.
    unparsed: Vec<u8>,
    at_end: bool,
}

impl<'a> IdReader<'a> {
    fn new(input: IdSetOperand<'a>, options: &IdSetOptions) -> Self {
        IdReader {
            input,
            cancel: options.cancel.clone(),
            on_read: options.on_read.clone(),
            signed: options.signed,
            line_number: 0,
            unparsed: Vec::new(),
            at_end: false,
        }
    }

    /// Reads some ids into `ids`; `false` at the end.
    fn read_ids(&mut self, ids: &mut Vec<u64>) -> Result<bool, IdSetError> {
        ids.clear();
        while ids.is_empty() {
            self.cancel.check_cancelled()?;
            let name = &self.input.name;
            let failed = |source| IdSetError::Io { action: "read", name: name.clone(), source };
            match &mut self.input.source {
                IdInputSource::Blocks(next) => {
                    next(ids).map_err(failed)?;
                    return Ok(!ids.is_empty());
                }
                IdInputSource::Reader(format, reader) => {
                    if self.at_end {
                        return Ok(false);
                    }
                    let start = self.unparsed.len();
                    self.unparsed.resize(start + BLOCK_IDS * 8, 0);
                    let read = loop {
                        match reader.read(&mut self.unparsed[start..]) {
                            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                            result => break result,
                        }
                    };
                    let read = read.map_err(failed)?;
                    self.unparsed.truncate(start + read);
                    if let Some(on_read) = &self.on_read {
                        on_read(read as u64);
                    }
                    self.at_end = read == 0;
                    match format {
                        IdFormat::Raw => self.parse_raw(ids)?,
                        IdFormat::Text => self.parse_text(ids)?,
                    }
                }
            }
        }
        Ok(true)
    }

    fn parse_raw(&mut self, ids: &mut Vec<u64>) -> Result<(), IdSetError> {
        let (whole, rest) = self.unparsed.as_chunks::<8>();
        ids.extend(whole.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        if self.at_end && !rest.is_empty() {
            return Err(IdSetError::TruncatedId {
                name: self.input.name.clone(),
                bytes: rest.len(),
            });
        }
        self.unparsed.drain(..whole.len() * 8);
        Ok(())
    }

    fn parse_text(&mut self, ids: &mut Vec<u64>) -> Result<(), IdSetError> {
        let end = if self.at_end {
            self.unparsed.len()
        } else {
            memchr::memrchr(b'\n', &self.unparsed).map_or(0, |at| at + 1)
        };
        // No number is longer; without this limit a line without an end could take all memory.
        const LINE_BYTES_MAX: usize = 1 << 16;
        let rest = &self.unparsed[..end];
        let mut lines = rest.split_inclusive(|byte| *byte == b'\n');
        let too_long = end == 0 && self.unparsed.len() > LINE_BYTES_MAX;
        let cut = too_long.then(|| &self.unparsed[..64]);
        for line in lines.by_ref().chain(cut) {
            // Skips a byte-order mark.
            let line = match self.line_number {
                0 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
                _ => line,
            };
            self.line_number += 1;
            let digits = line.trim_ascii();
            if digits.is_empty() && !too_long {
                continue;
            }
            let id = parse_id(digits, self.signed).filter(|_| !too_long);
            ids.push(id.ok_or_else(|| {
                let (kind, least, most) = if self.signed {
                    ("signed id", i128::from(i64::MIN), i128::from(i64::MAX))
                } else {
                    ("id", 0, i128::from(u64::MAX))
                };
                let text = String::from_utf8_lossy(&digits[..digits.len().min(64)]).into_owned();
                IdSetError::InvalidLine {
                    name: self.input.name.clone(),
                    line: self.line_number,
                    text,
                    kind,
                    least,
                    most,
                }
            })?);
        }
        self.unparsed.drain(..end);
        Ok(())
    }
}

fn parse_id(digits: &[u8], signed: bool) -> Option<u64> {
    let (negative, digits) = match digits.split_first() {
        Some((b'-', rest)) if signed => (true, rest),
        _ => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    match (signed, negative) {
        (false, _) => Some(value),
        (true, false) => i64::try_from(value).ok().map(i64::cast_unsigned),
        (true, true) => (value <= 1 << 63).then(|| value.wrapping_neg()),
    }
}

/// The distinct ids of a set in ascending order.
struct SortedIdStream<'a> {
    order: U64Order,
    source: SortedIdSource<'a>,
    ids: Vec<u64>,
    next_index: usize,
    head: Option<[u8; 8]>,
    rank: u64,
    count: u64,
    error: Option<IdSetError>,
}

enum SortedIdSource<'a> {
    Reader(Box<IdReader<'a>>),
    Sorted(SortedBlocks),
}

impl<'a> SortedIdStream<'a> {
    fn new(order: U64Order, from: SortedIdSource<'a>) -> Result<Self, IdSetError> {
        let mut stream = SortedIdStream {
            order,
            source: from,
            ids: Vec::new(),
            next_index: 0,
            head: None,
            rank: 0,
            count: 0,
            error: None,
        };
        stream.advance_id()?;
        Ok(stream)
    }

    fn advance_id(&mut self) -> Result<(), IdSetError> {
        loop {
            if self.next_index >= self.ids.len() {
                self.next_index = 0;
                let more = match &mut self.source {
                    SortedIdSource::Reader(reader) => reader.read_ids(&mut self.ids)?,
                    SortedIdSource::Sorted(blocks) => match blocks.next_block()? {
                        Some(block) => {
                            self.ids.clear();
                            self.ids.extend(block_ids(&block));
                            true
                        }
                        None => false,
                    },
                };
                if !more {
                    self.ids.clear();
                    self.head = None;
                    return Ok(());
                }
            }
            let id = self.ids[self.next_index];
            self.next_index += 1;
            let rank = self.order.unsigned_rank(id);
            if self.head.is_some() && rank <= self.rank {
                if rank < self.rank {
                    let SortedIdSource::Reader(reader) = &self.source else { continue };
                    return Err(IdSetError::NotSorted {
                        name: reader.input.name.clone(),
                        number: self.count + 1,
                    });
                }
                continue;
            }
            self.head = Some(id.to_le_bytes());
            self.rank = rank;
            self.count += 1;
            return Ok(());
        }
    }
}

fn block_ids(block: &SortedBlock) -> impl Iterator<Item = u64> {
    block.bytes().as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

impl MergeSource for SortedIdStream<'_> {
    fn head(&self) -> Option<&[u8]> {
        self.head.as_ref().map(<[u8; 8]>::as_slice)
    }

    fn advance(&mut self) -> crate::Result<()> {
        self.advance_id().map_err(|error| {
            self.error = Some(error);
            crate::Error::Cancelled
        })
    }
}

/// Combines sets, and passes the selected ids to `output` in order, some thousands at a time.
///
/// # Errors
/// [`IdSetError`]; an error of `output` becomes [`IdSetError::Output`].
pub fn combine_id_sets(
    operation: SetOperation,
    inputs: Vec<IdSetOperand<'_>>,
    options: &IdSetOptions,
    output: &mut dyn FnMut(&[u64]) -> io::Result<()>,
) -> Result<IdSetCounts, IdSetError> {
    if inputs.is_empty() {
        return Err(IdSetError::NoInput);
    }
    let order = U64Order { signed: options.signed };
    let unsorted = inputs.iter().filter(|input| input.order == InputOrder::Unsorted).count() as u64;
    let each = (options.memory_bytes / unsorted.max(1)).max(MEMORY_BYTES_MIN);
    let mut streams = Vec::new();
    for input in inputs {
        let sorted = input.order;
        let mut reader = IdReader::new(input, options);
        let from = match sorted {
            InputOrder::Sorted => SortedIdSource::Reader(Box::new(reader)),
            InputOrder::Unsorted => {
                let sort = crate::Options {
                    memory_bytes: each,
                    threads: options.threads,
                    spill_dirs: options.spill_dirs.clone(),
                    cancel: options.cancel.clone(),
                    ..crate::Options::default()
                };
                // Equal ids need no order among themselves: the stream drops them.
                let sorter = Sorter::new(order, RecordShape::Fixed(8), sort)?;
                feed_blocks(
                    &sorter,
                    options.threads,
                    |ids| reader.read_ids(ids),
                    |task, ids: &Vec<u64>| {
                        ids.iter()
                            .try_for_each(|id| task.push(&id.to_le_bytes()))
                            .map_err(IdSetError::from)
                    },
                )?;
                SortedIdSource::Sorted(sorter.finish()?.into_blocks(OutputFraming::Concatenated)?)
            }
        };
        streams.push(SortedIdStream::new(order, from)?);
    }
    let mut counts = IdSetCounts { input_ids: vec![0; streams.len()], output_ids: 0 };
    let mut tree =
        LoserTree::new(&order, streams.into_iter().enumerate().map(NumberedStream).collect());
    let mut block = Vec::with_capacity(BLOCK_IDS);
    let of = counts.input_ids.len();
    while let Some(NumberedStream((number, stream))) = tree.winner() {
        let mut number = *number;
        let rank = stream.rank;
        let id = stream.head.map_or(0, u64::from_le_bytes);
        let (mut sets, mut first) = (0, false);
        loop {
            counts.input_ids[number] += 1;
            sets += 1;
            first |= number == 0;
            if let Err(error) = tree.advance() {
                let failed = tree
                    .into_sources()
                    .into_iter()
                    .find_map(|NumberedStream((_, stream))| stream.error);
                return Err(failed.unwrap_or(IdSetError::Sort(error)));
            }
            match tree.winner() {
                Some(NumberedStream((other, stream))) if stream.rank == rank => number = *other,
                _ => break,
            }
        }
        if operation.includes_id(sets, first, of) {
            counts.output_ids += 1;
            if operation != SetOperation::Count {
                block.push(id);
                if block.len() == BLOCK_IDS {
                    options.cancel.check_cancelled()?;
                    output(&block).map_err(IdSetError::Output)?;
                    block.clear();
                }
            }
        } else if counts.output_ids.is_multiple_of(BLOCK_IDS as u64) {
            options.cancel.check_cancelled()?;
        }
    }
    if !block.is_empty() {
        output(&block).map_err(IdSetError::Output)?;
    }
    Ok(counts)
}

struct NumberedStream<'a>((usize, SortedIdStream<'a>));

impl MergeSource for NumberedStream<'_> {
    fn head(&self) -> Option<&[u8]> {
        self.0.1.head()
    }

    fn advance(&mut self) -> crate::Result<()> {
        self.0.1.advance()
    }
}

/// Writes ids in a format, for the output of [`combine_id_sets`].
///
/// # Errors
/// I/O errors of the writer.
pub fn write_ids(
    ids: &[u64],
    format: IdFormat,
    signed: bool,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(ids.len() * 8);
    for id in ids {
        match format {
            IdFormat::Raw => bytes.extend_from_slice(&id.to_le_bytes()),
            IdFormat::Text if signed => writeln!(bytes, "{}", id.cast_signed())?,
            IdFormat::Text => writeln!(bytes, "{id}")?,
        }
    }
    to.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::{
        IdFormat, IdSetError, IdSetOperand, IdSetOptions, SetOperation, combine_id_sets, write_ids,
    };
    use crate::tests::Random;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const OPERATIONS: [SetOperation; 5] = [
        SetOperation::Union,
        SetOperation::Intersect,
        SetOperation::Diff,
        SetOperation::Xor,
        SetOperation::Count,
    ];

    fn expected_ids(operation: SetOperation, sets: &[Vec<u64>], signed: bool) -> Vec<u64> {
        let mut all: BTreeMap<i128, BTreeSet<usize>> = BTreeMap::new();
        for (number, set) in sets.iter().enumerate() {
            for id in set {
                let value = if signed { i128::from(id.cast_signed()) } else { i128::from(*id) };
                all.entry(value).or_default().insert(number);
            }
        }
        let wanted = |within: &BTreeSet<usize>| match operation {
            SetOperation::Union | SetOperation::Count => true,
            SetOperation::Intersect => within.len() == sets.len(),
            SetOperation::Diff => within.iter().eq(&[0]),
            SetOperation::Xor => within.len() % 2 == 1,
        };
        all.into_iter().filter(|(_, within)| wanted(within)).map(|(id, _)| id as u64).collect()
    }

    fn bytes(ids: &[u64], format: IdFormat, signed: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_ids(ids, format, signed, &mut bytes).unwrap();
        bytes
    }

    fn options(folder: &tempfile::TempDir, signed: bool) -> IdSetOptions {
        IdSetOptions {
            memory_bytes: 1 << 20,
            threads: 2,
            spill_dirs: vec![folder.path().into()],
            signed,
            ..IdSetOptions::default()
        }
    }

    fn run(
        operation: SetOperation,
        inputs: Vec<IdSetOperand<'_>>,
        options: &IdSetOptions,
    ) -> Result<(Vec<u64>, super::IdSetCounts), IdSetError> {
        let mut ids = Vec::new();
        let counts = combine_id_sets(operation, inputs, options, &mut |more| {
            ids.extend_from_slice(more);
            Ok(())
        })?;
        Ok((ids, counts))
    }

    #[test]
    fn sets_beyond_memory_are_combined() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(1);
        let sets: Vec<Vec<u64>> =
            (0..3).map(|_| (0..300_000).map(|_| random.below(400_000)).collect()).collect();
        for operation in OPERATIONS {
            let inputs: Vec<_> = sets.iter().map(|ids| bytes(ids, IdFormat::Raw, false)).collect();
            let inputs = inputs
                .iter()
                .map(|bytes| IdSetOperand::new("set", IdFormat::Raw, &bytes[..]))
                .collect();
            let (ids, counts) = run(operation, inputs, &options(&folder, false)).unwrap();
            let expected = expected_ids(operation, &sets, false);
            assert_eq!(counts.output_ids, expected.len() as u64);
            assert!(operation == SetOperation::Count || ids == expected, "{operation:?}");
            assert_eq!(counts.input_ids[1], sets[1].iter().collect::<BTreeSet<_>>().len() as u64);
        }
    }

    #[test]
    fn files_in_order_are_not_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids");
        let ids: Vec<u64> = (0..500_000).map(|n| n / 2).collect();
        std::fs::write(&path, bytes(&ids, IdFormat::Raw, false)).unwrap();
        // A sort beyond memory would have to spill there.
        let nowhere =
            IdSetOptions { spill_dirs: vec!["/nowhere/at/all".into()], ..options(&folder, false) };
        let file = IdSetOperand::from_file(&path, IdFormat::Raw, &nowhere).unwrap();
        assert_eq!(run(SetOperation::Count, vec![file], &nowhere).unwrap().1.output_ids, 250_000);
        std::fs::write(&path, "5\n4\n").unwrap();
        let file = IdSetOperand::from_file(&path, IdFormat::Text, &nowhere).unwrap();
        assert_eq!(run(SetOperation::Union, vec![file], &nowhere).unwrap().0, [4, 5]);
        let claimed = IdSetOperand::new("x", IdFormat::Text, &b"5\n4\n"[..]).assume_sorted();
        let error = run(SetOperation::Union, vec![claimed], &nowhere).unwrap_err();
        assert!(matches!(error, IdSetError::NotSorted { number: 2, .. }), "{error}");
    }

    #[test]
    fn a_byte_order_mark_before_the_first_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("\u{feff}7\r\n5\r\n", &[5, 7][..]),
            ("\u{feff}\n7\n", &[7]),
            ("\u{feff}7", &[7]),
            ("\u{feff}", &[]),
        ] {
            let input = IdSetOperand::new("a.txt", IdFormat::Text, text.as_bytes());
            let (ids, _) = run(SetOperation::Union, vec![input], &options(&folder, false)).unwrap();
            assert_eq!(ids, expected, "{text:?}");
        }
    }

    #[test]
    fn invalid_ids_are_named_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        for (text, signed, line) in [
            ("1\n\n x \n", false, 3),
            ("-1", false, 1),
            ("18446744073709551616", false, 1),
            ("9223372036854775808", true, 1),
            ("-9223372036854775809", true, 1),
            ("-", true, 1),
            (&*"1".repeat(1 << 18), false, 1),
            ("1\n\u{feff}2\n", false, 2),
            ("\u{feff}\u{feff}1\n", false, 1),
        ] {
            let input = IdSetOperand::new("a.txt", IdFormat::Text, text.as_bytes());
            let error =
                run(SetOperation::Union, vec![input], &options(&folder, signed)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("`a.txt`, line {line}: ")), "{error}");
        }
        let input = IdSetOperand::new("a.raw", IdFormat::Raw, &[0u8; 11][..]);
        let error = run(SetOperation::Union, vec![input], &options(&folder, false)).unwrap_err();
        assert!(matches!(error, IdSetError::TruncatedId { bytes: 3, .. }), "{error}");
        assert!(matches!(
            run(SetOperation::Union, vec![], &options(&folder, false)),
            Err(IdSetError::NoInput)
        ));
        let missing = IdSetOperand::from_file(
            &folder.path().join("no"),
            IdFormat::Raw,
            &options(&folder, false),
        )
        .unwrap_err();
        assert!(missing.to_string().contains("no"), "{missing}");
    }

    proptest! {
        #[test]
        fn all_operations_agree_with_sets(
            sets in prop::collection::vec(prop::collection::vec(prop_oneof![0..20u64, any::<u64>(), u64::MAX - 3..u64::MAX], 0..40), 1..5),
            signed: bool,
            text: bool,
            sorted: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let format = if text { IdFormat::Text } else { IdFormat::Raw };
            let order = crate::record_order::U64Order { signed };
            let inputs: Vec<_> = sets.iter().map(|ids| {
                let mut ids = ids.clone();
                if sorted {
                    ids.sort_by_key(|id| order.unsigned_rank(*id));
                }
                bytes(&ids, format, signed)
            }).collect();
            for operation in OPERATIONS {
                let inputs = inputs.iter().map(|bytes| {
                    let input = IdSetOperand::new("set", format, &bytes[..]);
                    if sorted { input.assume_sorted() } else { input }
                }).collect();
                let (ids, counts) = run(operation, inputs, &options(&folder, signed)).unwrap();
                let expected = expected_ids(operation, &sets, signed);
                prop_assert_eq!(counts.output_ids, expected.len() as u64);
                prop_assert!(operation == SetOperation::Count || ids == expected);
            }
        }

        #[test]
        fn hostile_text_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..60), signed: bool) {
            let folder = tempfile::tempdir().unwrap();
            let _ = run(SetOperation::Xor, vec![IdSetOperand::new("x", IdFormat::Text, &bytes[..])], &options(&folder, signed));
        }
    }
}
