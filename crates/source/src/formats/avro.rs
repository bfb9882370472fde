//! Avro object container files: cut anywhere, and read from the next block on.
//!
//! Nothing in a file lists its blocks. A split is a range of bytes, and its first block is the one
//! behind the first sync marker in it, sixteen bytes that the file's writer chose. That these
//! sixteen bytes are nowhere else is nearly certain and not quite (a file may hold another one in a
//! column of bytes), so a start is a guess that the split before confirms, as in quoted text.

use std::any::Any;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_avro as avro;
use tidemill_base::cancellation::CancelFlag;

use super::batches::{self, StoredBatches};
use super::julian_dates::{JulianDates, gregorian_batch};
use super::{FileFormat, FileMetadata, Kind, PieceReader, Reading, TypedFormat};
use crate::columns::{Columns, Layouts};
use crate::error::{Error, Result};
use crate::input::{ByteInput, FileInput, OpenFile, ReadPattern, Watch};
use crate::{SourceFile, Split};

/// A header is nearly always in this much.
const HEADER_BYTES: usize = 16 << 10;
/// One read of blocks brings so much.
const READ_BYTES: usize = 256 << 10;
/// One look for a sync marker takes so much: a block is rarely longer.
const WINDOW_BYTES: usize = 64 << 10;
/// Two integers of at most ten bytes.
const BLOCK_HEAD_BYTES: usize = 20;

/// The format.
pub(super) struct Avro;

impl FileFormat for Avro {
    fn name(&self) -> &str {
        "avro"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["avro"]
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Typed(self)
    }
}

impl TypedFormat for Avro {
    fn columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: Layouts,
        stdin: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<Columns> {
        batches::columns(files, layouts, &mut |file| {
            Ok(Box::new(AvroFile(inspect(file, stdin.take())?)))
        })
    }

    fn open(&self, mut reading: Reading<'_>) -> Result<Box<dyn PieceReader>> {
        let stdin = reading.stdin.take();
        let blocks = Blocks::open(&reading, &reading.metadata_as::<AvroFile>()?.0, stdin)?;
        Ok(batches::reader(reading, blocks))
    }

    fn is_read_forwards(&self) -> bool {
        true
    }

    fn is_cut_anywhere(&self) -> bool {
        true
    }

    fn guesses_starts(&self) -> bool {
        true
    }

    fn find_starts(&self, splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
        find_starts(splits, cancel)
    }
}

/// What a file begins with.
#[derive(Debug)]
struct AvroFile(avro::Header);

impl FileMetadata for AvroFile {
    fn schema(&self) -> &SchemaRef {
        self.0.schema()
    }
}

/// What is known of a file that was looked at as Avro.
pub(crate) fn header(file: &SourceFile) -> Option<&avro::Header> {
    let known: &dyn Any = file.metadata()?;
    known.downcast_ref().map(|AvroFile(header)| header)
}

/// What a file begins with.
///
/// # Errors
/// [`Error::Corrupt`] for what is no Avro file, [`Error::Usage`] for one that has no columns; those
/// of reading.
fn inspect(file: &SourceFile, stdin: Option<Box<dyn ByteInput>>) -> Result<avro::Header> {
    let input = match stdin {
        Some(input) => input,
        None => {
            let watch = file.watch();
            let open = OpenFile::open(file, ReadPattern::Beginning { may_keep: false }, &watch)?;
            Box::new(FileInput::new(Arc::new(open), 0, 0, watch))
        }
    };
    let mut input = BufReader::with_capacity(HEADER_BYTES, Bytes(input));
    avro::Header::read(&mut input).map_err(|error| from_avro(error, file.shown()))
}

/// An input as a reader, whose errors stay ours.
struct Bytes(Box<dyn ByteInput>);

impl Read for Bytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(io::Error::other)
    }
}

fn from_avro(error: avro::Error, path: &str) -> Error {
    match error {
        avro::Error::Io(error) => Error::io("read", path, error),
        avro::Error::DamagedFile { offset, reason } => Error::Corrupt {
            path: path.to_owned(),
            offset: Some(offset),
            reason,
            hint: Some("it is truncated or not an Avro file; write or fetch it again".into()),
        },
        other => Error::usage_hint(
            format!("`{path}` cannot be read as a table: {other}"),
            "a program that knows it can write it as JSON lines: see --source-exec",
        ),
    }
}

/// The blocks of a piece.
struct Blocks {
    reader: avro::Reader<BufReader<Bytes>>,
    open: Option<Arc<OpenFile>>,
    path: Arc<str>,
    start: u64,
    /// True if dates are by the Julian calendar.
    is_julian: bool,
}

impl Blocks {
    /// Opens a piece at `exact_start`, or where its first block seems to begin.
    ///
    /// # Errors
    /// Those of reading.
    fn open(
        reading: &Reading<'_>,
        header: &avro::Header,
        stdin: Option<Box<dyn ByteInput>>,
    ) -> Result<Self> {
        let Reading { piece, columns, options, watch, .. } = reading;
        let file = &piece.file;
        let (input, open, start): (Box<dyn ByteInput>, _, _) = match stdin {
            Some(mut input) => {
                drain(input.as_mut(), header.header_bytes())?;
                (input, None, header.header_bytes())
            }
            None => {
                let open = Arc::new(OpenFile::open(
                    file,
                    ReadPattern::UntilSplitEnd(piece.range.end),
                    watch,
                )?);
                let start = match options.exact_start {
                    _ if piece.range.start == 0 => header.header_bytes(),
                    Some(start) => start,
                    None => find(&open, header, piece.range.start, &watch.cancel)?,
                };
                let input = FileInput::new(Arc::clone(&open), start, 0, watch.clone());
                (Box::new(input), Some(open), start)
            }
        };
        let is_stream = file.is_stream();
        let until = if is_stream { u64::MAX } else { piece.range.end };
        let size = (!is_stream).then_some(file.size());
        let mut columns = batches::places(columns);
        columns.sort_unstable();
        columns.dedup();
        let input = BufReader::with_capacity(READ_BYTES, Bytes(input));
        let reader =
            avro::Reader::new(input, header, start, until, size, &columns, options.batch_rows);
        let path: Arc<str> = file.shown().into();
        let reader = reader.map_err(|error| from_avro(error, &path))?;
        let is_julian = JulianDates::of(|key| header.metadata_value(key)).dates;
        Ok(Self { reader, open, path, start, is_julian })
    }
}

impl Iterator for Blocks {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next() {
            Some(Ok((batch, offset))) if self.is_julian => {
                Some(gregorian_batch(batch).map(|batch| (batch, offset)).map_err(Error::from))
            }
            Some(batch) => Some(batch.map_err(|error| from_avro(error, &self.path))),
            None => self.open.as_ref().and_then(|open| open.verify().err()).map(Err),
        }
    }
}

impl StoredBatches for Blocks {
    fn places(&self) -> Option<(u64, u64)> {
        Some((self.start, self.reader.next_block_offset()))
    }
}

fn drain(input: &mut dyn ByteInput, bytes: u64) -> Result<()> {
    let mut buffer = vec![0; HEADER_BYTES];
    let mut left = bytes;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
        let count = input.read(&mut buffer[..wanted])?;
        if count == 0 {
            break;
        }
        left -= count as u64;
    }
    Ok(())
}

/// Where the first block behind a sync marker begins, at `from` or later; the file's size if there
/// is none.
fn find(open: &OpenFile, header: &avro::Header, from: u64, cancel: &CancelFlag) -> Result<u64> {
    let marker = header.sync_marker();
    let finder = memchr::memmem::Finder::new(marker);
    // The header ends with the first one.
    let least = header.header_bytes() - marker.len() as u64;
    let mut at = from.saturating_sub(marker.len() as u64).max(least);
    let mut window = vec![0; WINDOW_BYTES];
    loop {
        cancel.check()?;
        let count = open.read_at(&mut window, at)?;
        if let Some(place) = finder.find(&window[..count]) {
            return Ok(at + (place + marker.len()) as u64);
        }
        if count < window.len() {
            return Ok(open.size());
        }
        // One that begins at the window's end is found in the next.
        at += (count - (marker.len() - 1)) as u64;
    }
}

/// Finds where the splits of one file start, from block to block, where that is cheap: elsewhere
/// each would be a request, and the marker is believed.
///
/// # Errors
/// Those of reading.
fn find_starts(splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
    let Some(piece) = splits.first().and_then(|split| split.pieces.first()) else { return Ok(()) };
    let file = Arc::clone(&piece.file);
    let Some(header) = header(&file) else {
        return Err(Error::Internal(format!("`{}` was not looked at", file.shown)));
    };
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let open = OpenFile::open(&file, ReadPattern::Random, &watch)?;
    let is_here = open.remote().is_none();
    let mut position = header.header_bytes();
    for split in splits.iter_mut().filter(|split| split.pieces[0].range.start > 0) {
        let wanted = split.pieces[0].range.start;
        if !is_here {
            split.exact_start = Some(find(&open, header, wanted, cancel)?);
            continue;
        }
        while position < wanted.min(open.size()) {
            cancel.check()?;
            let mut head = [0; BLOCK_HEAD_BYTES];
            let count = open.read_at(&mut head, position)?;
            match avro::block_length_from_head(&head[..count]) {
                Some(bytes) => position = position.saturating_add(bytes),
                // Whoever reads the block says what is wrong with it.
                None => position = open.size(),
            }
        }
        split.exact_start = Some(position.min(open.size()));
    }
    open.verify()
}
