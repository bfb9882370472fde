//! Reader of Avro object container files, which can be split at any byte and are read from the next block.
//!
//! A file has no list of its blocks. A split is a byte range, and its first block follows the first sync
//! marker in it: sixteen bytes that the file's writer chose. Another occurrence of these bytes is very
//! unlikely but possible (a column of bytes may contain another Avro file). So a start is a speculative
//! boundary that the split before verifies, as in quoted text.

use std::any::Any;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_avro as avro;
use tidemill_base::cancellation::CancelFlag;

use super::julian_dates::{JulianCalendarFlags, convert_batch_to_gregorian};
use super::stored_batch_reader::{self, StoredBatchIterator};
use super::{FileFormat, FileMetadata, FormatKind, SplitPartReader, SplitPartRequest, TypedFormat};
use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, ByteReadContext, FileInput, OpenFile, ReadPattern};
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns};
use crate::{SourceFile, Split};

/// Bytes of one header read; few headers are longer.
const HEADER_READ_BYTES: usize = 16 << 10;
/// Bytes of one read of blocks.
const BLOCK_READ_BYTES: usize = 256 << 10;
/// Bytes searched for a sync marker at a time; blocks are rarely longer.
const MARKER_WINDOW_BYTES: usize = 64 << 10;
/// Maximum size of a block head: two integers of at most ten bytes.
const BLOCK_HEAD_BYTES_MAX: usize = 20;

/// The Avro format.
pub(super) struct AvroSourceFormat;

impl FileFormat for AvroSourceFormat {
    fn name(&self) -> &str {
        "avro"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["avro"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Typed(self)
    }
}

impl TypedFormat for AvroSourceFormat {
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        stdin: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns> {
        stored_batch_reader::inspect_files(files, layouts, &mut |file| {
            Ok(Box::new(AvroFileMetadata(read_header(file, stdin.take())?)))
        })
    }

    fn open_part(&self, mut reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let stdin = reading.stdin.take();
        let blocks = AvroBlockReader::open(
            &reading,
            &reading.format_metadata::<AvroFileMetadata>()?.0,
            stdin,
        )?;
        Ok(stored_batch_reader::new_batch_reader(reading, blocks))
    }

    fn can_read_streams(&self) -> bool {
        true
    }

    fn is_splittable_anywhere(&self) -> bool {
        true
    }

    fn has_speculative_boundaries(&self) -> bool {
        true
    }

    fn find_exact_boundaries(&self, splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
        find_exact_boundaries(splits, cancel)
    }
}

/// The header of a file.
#[derive(Debug)]
struct AvroFileMetadata(avro::Header);

impl FileMetadata for AvroFileMetadata {
    fn schema(&self) -> &SchemaRef {
        self.0.schema()
    }
}

/// Returns the header of a file that was inspected as Avro.
pub(crate) fn avro_header(file: &SourceFile) -> Option<&avro::Header> {
    let known: &dyn Any = file.metadata()?;
    known.downcast_ref().map(|AvroFileMetadata(header)| header)
}

/// Reads the header of a file.
///
/// # Errors
/// [`Error::Corrupt`] if it is not an Avro file, [`Error::Usage`] if it has no columns; I/O errors.
fn read_header(file: &SourceFile, stdin: Option<Box<dyn ByteInput>>) -> Result<avro::Header> {
    let input = match stdin {
        Some(input) => input,
        None => {
            let watch = file.read_context();
            let open = OpenFile::open(file, ReadPattern::Beginning { may_keep: false }, &watch)?;
            Box::new(FileInput::new(Arc::new(open), 0, 0, watch))
        }
    };
    let mut input = BufReader::with_capacity(HEADER_READ_BYTES, ByteInputReader(input));
    avro::Header::read(&mut input).map_err(|error| error_from_avro(error, file.display_name()))
}

/// A [`Read`] over an input that keeps this crate's errors.
struct ByteInputReader(Box<dyn ByteInput>);

impl Read for ByteInputReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(io::Error::other)
    }
}

fn error_from_avro(error: avro::Error, path: &str) -> Error {
    match error {
        avro::Error::Io(error) => Error::from_io("read", path, error),
        avro::Error::DamagedFile { offset, reason } => Error::Corrupt {
            path: path.to_owned(),
            offset: Some(offset),
            reason,
            hint: Some("it is truncated or not an Avro file; write or fetch it again".into()),
        },
        other => Error::usage_with_hint(
            format!("`{path}` cannot be read as a table: {other}"),
            "a program that knows it can write it as JSON lines: see --source-exec",
        ),
    }
}

/// The blocks of a split part.
struct AvroBlockReader {
    reader: avro::Reader<BufReader<ByteInputReader>>,
    open_file: Option<Arc<OpenFile>>,
    path: Arc<str>,
    start_offset: u64,
    /// True if dates follow the Julian calendar.
    has_julian_dates: bool,
}

impl AvroBlockReader {
    /// Opens a split part at `exact_start`, or where its first block seems to begin.
    ///
    /// # Errors
    /// I/O errors.
    fn open(
        reading: &SplitPartRequest<'_>,
        header: &avro::Header,
        stdin: Option<Box<dyn ByteInput>>,
    ) -> Result<Self> {
        let SplitPartRequest { part: piece, columns, options, context: watch, .. } = reading;
        let file = &piece.file;
        let (input, open, start): (Box<dyn ByteInput>, _, _) = match stdin {
            Some(mut input) => {
                skip_bytes(input.as_mut(), header.header_bytes())?;
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
                    None => find_block_start(&open, header, piece.range.start, &watch.cancel)?,
                };
                let input = FileInput::new(Arc::clone(&open), start, 0, watch.clone());
                (Box::new(input), Some(open), start)
            }
        };
        let is_stream = file.is_stream();
        let until = if is_stream { u64::MAX } else { piece.range.end };
        let size = (!is_stream).then_some(file.size());
        let mut columns = stored_batch_reader::file_column_indices(columns);
        columns.sort_unstable();
        columns.dedup();
        let input = BufReader::with_capacity(BLOCK_READ_BYTES, ByteInputReader(input));
        let reader =
            avro::Reader::new(input, header, start, until, size, &columns, options.batch_rows);
        let path: Arc<str> = file.display_name().into();
        let reader = reader.map_err(|error| error_from_avro(error, &path))?;
        let is_julian =
            JulianCalendarFlags::from_metadata(|key| header.metadata_value(key)).has_julian_dates;
        Ok(Self { reader, open_file: open, path, start_offset: start, has_julian_dates: is_julian })
    }
}

impl Iterator for AvroBlockReader {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next() {
            Some(Ok((batch, offset))) if self.has_julian_dates => Some(
                convert_batch_to_gregorian(batch).map(|batch| (batch, offset)).map_err(Error::from),
            ),
            Some(batch) => Some(batch.map_err(|error| error_from_avro(error, &self.path))),
            None => self.open_file.as_ref().and_then(|open| open.verify_identity().err()).map(Err),
        }
    }
}

impl StoredBatchIterator for AvroBlockReader {
    fn record_boundaries(&self) -> Option<(u64, u64)> {
        Some((self.start_offset, self.reader.next_block_offset()))
    }
}

fn skip_bytes(input: &mut dyn ByteInput, bytes: u64) -> Result<()> {
    let mut buffer = vec![0; HEADER_READ_BYTES];
    let mut left = bytes;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(HEADER_READ_BYTES).min(HEADER_READ_BYTES);
        let count = input.read(&mut buffer[..wanted])?;
        if count == 0 {
            break;
        }
        left -= count as u64;
    }
    Ok(())
}

/// Returns the start of the first block after a sync marker, at `from` or later; the file size if there is
/// none.
fn find_block_start(
    open: &OpenFile,
    header: &avro::Header,
    from: u64,
    cancel: &CancelFlag,
) -> Result<u64> {
    let marker = header.sync_marker();
    let finder = memchr::memmem::Finder::new(marker);
    // The header ends with the first sync marker.
    let least = header.header_bytes() - marker.len() as u64;
    let mut at = from.saturating_sub(marker.len() as u64).max(least);
    let mut window = vec![0; MARKER_WINDOW_BYTES];
    loop {
        cancel.check()?;
        let count = open.read_at(&mut window, at)?;
        if let Some(place) = finder.find(&window[..count]) {
            return Ok(at + (place + marker.len()) as u64);
        }
        if count < window.len() {
            return Ok(open.size());
        }
        // A marker that begins at the end of the window is found in the next window.
        at += (count - (marker.len() - 1)) as u64;
    }
}

/// Finds the exact boundaries of the splits of one local file by going from block to block. In a remote file
/// each block would cost a request, so the sync marker is trusted.
///
/// # Errors
/// I/O errors.
fn find_exact_boundaries(splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
    let Some(piece) = splits.first().and_then(|split| split.parts.first()) else { return Ok(()) };
    let file = Arc::clone(&piece.file);
    let Some(header) = avro_header(&file) else {
        return Err(Error::Internal(format!("`{}` was not looked at", file.display_name)));
    };
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
    let open = OpenFile::open(&file, ReadPattern::Random, &watch)?;
    let is_here = open.remote_reader().is_none();
    let mut position = header.header_bytes();
    for split in splits.iter_mut().filter(|split| split.parts[0].range.start > 0) {
        let wanted = split.parts[0].range.start;
        if !is_here {
            split.exact_start = Some(find_block_start(&open, header, wanted, cancel)?);
            continue;
        }
        while position < wanted.min(open.size()) {
            cancel.check()?;
            let mut head = [0; BLOCK_HEAD_BYTES_MAX];
            let count = open.read_at(&mut head, position)?;
            match avro::block_length_from_head(&head[..count]) {
                Some(bytes) => position = position.saturating_add(bytes),
                // The reader of the block reports the damage.
                None => position = open.size(),
            }
        }
        split.exact_start = Some(position.min(open.size()));
    }
    open.verify_identity()
}
