//! Arrow IPC: files with a footer, whose batches are read in any order, and streams, which are read from
//! front to back.
//!
//! ```text
//!   stream:   schema ‖ (dictionary ‖ batch)* ‖ end mark (ff ff ff ff 00 00 00 00)
//!   file:     ARROW1 00 00 ‖ stream ‖ footer ‖ its length (4) ‖ ARROW1
//!   message:  ff ff ff ff ‖ length (4) ‖ metadata, padded ‖ body
//!   body:     per column its validity, offsets, values …, each buffer at a multiple of 8
//! ```
//!
//! In a file, a batch is a chunk. The metadata of a batch states where in its body each buffer is, so only
//! the buffers of requested columns are read; the rest of the body stays untouched zero pages. Arrow's
//! decoder builds arrays from the buffers and validates them. It trusts two claims that a damaged file may
//! make: that buffers lie inside the body, and the length of a decompressed buffer, which it allocates. This
//! module checks both first: no codec expands its input by more than [`LZ4_RATIO_MAX`] and
//! [`ZSTD_RATIO_MAX`].
//!
//! A file that cannot be read by position (standard input, a server without ranges) is read as the stream
//! that it contains. A stream must have its end mark: without it, nothing distinguishes a stream that was cut
//! between two batches from a complete one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, Schema, SchemaRef, UnionMode};
use arrow::error::ArrowError;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{CompressionType, Message, MessageHeader, MetadataVersion};
use tidemill_base::column_types::is_valid_type;

use super::arrow_column_conversion::ColumnConversion;
use super::stored_batch_reader::{self, PlainBatches};
use super::{
    FileChunk, FileFormat, FileMetadata, FormatKind, SplitPartReader, SplitPartRequest, TypedFormat,
};
use crate::SourceFile;
use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, ByteReadContext, FileInput, OpenFile, ReadPattern};
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns};

const ARROW_MAGIC: &[u8; 6] = b"ARROW1";
/// Maximum nesting of a schema.
const FIELD_DEPTH_MAX: usize = 64;
/// Maximum alignment that a writer uses before the first message.
const PADDING_BYTES_MAX: usize = 256;
/// Size of the magic bytes and their padding before the first message of a file.
const PADDED_MAGIC_BYTES: u64 = 8;
const CONTINUATION_MARKER: [u8; 4] = [0xff; 4];
/// Size of the end of a file after its footer: the footer length and the magic bytes.
const TRAILER_BYTES: usize = 10;
/// Bytes of the file's end read first; few footers are longer.
const TAIL_READ_BYTES: u64 = 64 << 10;
/// Maximum gap between buffers of a local file that are read together.
const LOCAL_READ_GAP_BYTES_MAX: u64 = 16 << 10;
/// Maximum gap between buffers of a remote file, where a request costs as much time as a few MB.
const REMOTE_READ_GAP_BYTES_MAX: u64 = 256 << 10;
/// Maximum size of a request to a remote file.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Maximum number of concurrent requests.
const PENDING_REQUESTS_MAX: usize = 8;
/// Step by which a buffer grows if the size of the input is unknown, so that a false length allocates little.
const STREAM_ALLOCATION_BYTES: usize = 8 << 20;
/// Maximum expansion of a block of lz4.
const LZ4_RATIO_MAX: u64 = 255;
/// Maximum expansion of zstd, whose shortest block of 128 KiB takes four bytes.
const ZSTD_RATIO_MAX: u64 = 32 << 10;
/// Additional expansion allowed for a codec frame of a few bytes.
const RATIO_SLACK_BYTES: u64 = 256 << 10;

/// The location of a message in a file.
#[derive(Debug, Clone, Copy)]
struct MessageSpan {
    offset: u64,
    metadata_bytes: usize,
    body_bytes: usize,
}

impl MessageSpan {
    fn total_bytes(&self) -> u64 {
        self.metadata_bytes as u64 + self.body_bytes as u64
    }
}

/// The Arrow IPC format.
pub(super) struct ArrowSourceFormat;

impl FileFormat for ArrowSourceFormat {
    fn name(&self) -> &str {
        "arrow"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["arrow", "arrows", "feather", "ipc"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Typed(self)
    }
}

impl TypedFormat for ArrowSourceFormat {
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        stdin: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns> {
        stored_batch_reader::inspect_files(files, layouts, &mut |file| {
            Ok(Box::new(inspect_file(file, stdin.take())?))
        })
    }

    fn open_part(&self, mut reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let stdin = reading.stdin.take();
        let batches = open_batches(&reading, reading.format_metadata()?, stdin)?;
        Ok(stored_batch_reader::new_batch_reader(reading, PlainBatches(batches)))
    }

    fn can_read_streams(&self) -> bool {
        true
    }
}

/// The schema and batches of a file, as its beginning or its footer states them.
#[derive(Debug)]
struct ArrowFileMetadata {
    /// The columns as Arrow's decoder needs them, with the numbers of their dictionaries.
    decoder_schema: SchemaRef,
    conversion: ColumnConversion,
    /// `None` if the input is read from front to back.
    footer: Option<ArrowFooter>,
    /// The batches that the footer lists. Only their sizes in bytes are known.
    chunks: Vec<FileChunk>,
}

#[derive(Debug)]
struct ArrowFooter {
    dictionaries: Vec<MessageSpan>,
    batches: Vec<MessageSpan>,
}

impl FileMetadata for ArrowFileMetadata {
    fn schema(&self) -> &SchemaRef {
        self.conversion.source_schema()
    }

    fn user_note(&self) -> Option<&str> {
        self.conversion.renaming_note()
    }

    fn chunks(&self) -> Option<&[FileChunk]> {
        (!self.chunks.is_empty()).then_some(&self.chunks)
    }

    fn chunk_rows_with_offsets(&self) -> Option<Vec<(u64, u64)>> {
        None
    }

    fn chunk_offset(&self, chunk: usize) -> u64 {
        let batch = self.footer.as_ref().and_then(|footer| footer.batches.get(chunk));
        batch.filter(|_| chunk > 0).map_or(0, |batch| batch.offset)
    }
}

/// Reads the footer of a file, or the first message of a stream.
///
/// # Errors
/// [`Error::Corrupt`] if it is not Arrow data; I/O errors.
fn inspect_file(file: &SourceFile, stdin: Option<Box<dyn ByteInput>>) -> Result<ArrowFileMetadata> {
    if stdin.is_none() && !file.is_stream() {
        if file.size() == 0 {
            return Err(corrupt_error(file.display_name(), None, "it is empty, and has no schema"));
        }
        let open = OpenFile::open(file, ReadPattern::Random, &file.read_context())?;
        let mut head = [0; ARROW_MAGIC.len()];
        let count = open.read_at(&mut head, 0)?;
        if head[..count] == *ARROW_MAGIC {
            return read_footer(&open, file.display_name());
        }
    }
    let input = match stdin {
        Some(input) => input,
        None => {
            let watch = file.read_context();
            let open = OpenFile::open(file, ReadPattern::Beginning { may_keep: false }, &watch)?;
            Box::new(FileInput::new(Arc::new(open), 0, 0, watch))
        }
    };
    let stream = ArrowStreamReader::open_stream(input, file)?;
    let shown = ColumnConversion::new(&stream.schema, file.display_name());
    Ok(ArrowFileMetadata {
        decoder_schema: stream.schema,
        conversion: shown,
        footer: None,
        chunks: Vec::new(),
    })
}

fn read_footer(open: &OpenFile, path: &str) -> Result<ArrowFileMetadata> {
    let size = open.size();
    let cut = || corrupt_error(path, Some(size), "it does not end as an Arrow file does");
    let mut tail_bytes = TAIL_READ_BYTES.min(size);
    loop {
        let mut tail = vec![0; to_usize(tail_bytes, path)?];
        open.read_at(&mut tail, size - tail_bytes)?;
        let Some((rest, trailer)) = tail.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(cut());
        };
        let (length, magic) = trailer.split_at(4);
        if magic != ARROW_MAGIC {
            return Err(cut());
        }
        let length = u64::from(u32::from_le_bytes([length[0], length[1], length[2], length[3]]));
        let end = size - TRAILER_BYTES as u64;
        let start = end.checked_sub(length).filter(|start| *start >= PADDED_MAGIC_BYTES);
        let Some(start) = start.filter(|_| length > 0) else {
            return Err(corrupt_error(
                path,
                Some(end),
                format!("its footer is said to have {length} bytes, more than there are"),
            ));
        };
        let needed = length + TRAILER_BYTES as u64;
        if needed > tail_bytes {
            tail_bytes = needed;
            continue;
        }
        let bytes = &rest[rest.len() - to_usize(length, path)?..];
        return parse_footer(bytes, start, path);
    }
}

fn parse_footer(bytes: &[u8], start: u64, path: &str) -> Result<ArrowFileMetadata> {
    let damaged = |reason: String| corrupt_error(path, Some(start), reason);
    let footer = arrow_ipc::root_as_footer(bytes)
        .map_err(|error| damaged(format!("its footer cannot be read ({error})")))?;
    let schema = footer.schema().ok_or_else(|| damaged("its footer has no schema".into()))?;
    let schema = decode_schema(schema, path, start)?;
    let place = |block: &arrow_ipc::Block| {
        let place = MessageSpan {
            offset: u64::try_from(block.offset()).ok()?,
            metadata_bytes: usize::try_from(block.metaDataLength()).ok()?,
            body_bytes: usize::try_from(block.bodyLength()).ok()?,
        };
        let end = place.offset.checked_add(place.total_bytes())?;
        (place.offset >= PADDED_MAGIC_BYTES && end <= start).then_some(place)
    };
    let outside = || damaged("its footer names a place outside of the file".into());
    let places = |block| place(block).ok_or_else(outside);
    let dictionaries = footer.dictionaries().into_iter().flatten().map(places);
    let dictionaries = dictionaries.collect::<Result<Vec<MessageSpan>>>()?;
    let batches = footer.recordBatches().into_iter().flatten().map(places);
    let batches = batches.collect::<Result<Vec<MessageSpan>>>()?;
    let chunk = |place: &MessageSpan| FileChunk { row_count: 1, stored_bytes: place.total_bytes() };
    let chunks = batches.iter().map(chunk).collect();
    let shown = ColumnConversion::new(&schema, path);
    Ok(ArrowFileMetadata {
        decoder_schema: schema,
        conversion: shown,
        footer: Some(ArrowFooter { dictionaries, batches }),
        chunks,
    })
}

/// Decodes a schema and checks that all of its columns can be read.
fn decode_schema(schema: arrow_ipc::Schema<'_>, path: &str, offset: u64) -> Result<SchemaRef> {
    if !schema.endianness().equals_to_target_endianness() {
        return Err(Error::usage_with_hint(
            format!("`{path}` is Arrow data of a machine with another order of bytes"),
            "write it again on a machine like this one",
        ));
    }
    if schema.fields().is_none() {
        return Err(corrupt_error(path, Some(offset), "its schema has no list of fields"));
    }
    if let Some((name, bits)) = find_unsupported_integer(schema) {
        return Err(unsupported_integer_error(path, &name, bits));
    }
    let schema = catch_decoder_panic(|| Ok(fb_to_schema(schema))).map_err(|_| {
        corrupt_error(path, Some(offset), "its schema has a type that is not known")
    })?;
    match schema.fields().iter().find(|field| !is_valid_type(field.data_type())) {
        None => Ok(Arc::new(schema)),
        Some(field) => {
            let (name, data_type) = (field.name(), field.data_type());
            let reason =
                format!("column `{name}` is of a type that no value can have: {data_type}");
            Err(corrupt_error(path, Some(offset), reason))
        }
    }
}

/// Finds a column whose integers have a width that Arrow does not support; returns its name and the width in
/// bits.
pub(super) fn find_unsupported_integer(schema: arrow_ipc::Schema<'_>) -> Option<(String, i32)> {
    fn bits(field: arrow_ipc::Field<'_>, depth: usize) -> Option<i32> {
        let own = field.type_as_int().map(|own| own.bitWidth());
        let own = own.filter(|bits| !matches!(bits, 8 | 16 | 32 | 64));
        let depth = depth.checked_sub(1)?;
        own.or_else(|| field.children()?.iter().find_map(|inner| bits(inner, depth)))
    }
    schema.fields()?.iter().find_map(|field| {
        let bits = bits(field, FIELD_DEPTH_MAX)?;
        Some((field.name().unwrap_or_default().to_owned(), bits))
    })
}

/// Returns the error for a column of integers with an unsupported width.
pub(super) fn unsupported_integer_error(path: &str, name: &str, bits: i32) -> Error {
    Error::usage_with_hint(
        format!("`{path}` cannot be read: column `{name}` is of integers of {bits} bits"),
        "write it with the column as DECIMAL(38, 0), BIGINT or text",
    )
}

/// Runs a decoder and converts its panic to an error: Arrow's decoder panics on some damaged messages.
fn catch_decoder_panic<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    tidemill_base::panics::catch_silently(work)
        .unwrap_or_else(|_| Err(ArrowError::IpcError("the decoder gave up".into())))
}

fn corrupt_error(path: &str, offset: Option<u64>, reason: impl Into<String>) -> Error {
    Error::Corrupt {
        path: path.to_owned(),
        offset,
        reason: reason.into(),
        hint: Some("it is truncated or not an Arrow IPC file; write or fetch it again".into()),
    }
}

fn to_usize(bytes: u64, path: &str) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| corrupt_error(path, None, "it is larger than memory can be"))
}

/// Batches, each with its stored bytes.
type BoxedStoredBatches = Box<dyn Iterator<Item = Result<(RecordBatch, u64)>> + Send>;

/// Opens the requested columns of some batches of a file, each batch with its stored bytes.
///
/// # Errors
/// [`Error::FileChanged`], [`Error::Io`].
fn open_batches(
    reading: &SplitPartRequest<'_>,
    layout: &ArrowFileMetadata,
    stdin: Option<Box<dyn ByteInput>>,
) -> Result<BoxedStoredBatches> {
    let (file, watch) = (&reading.part.file, &reading.context);
    let chunks = reading.part.row_groups.clone().unwrap_or_default();
    let columns = stored_batch_reader::file_column_indices(&reading.columns);
    let wanted = BatchProjection::new(
        Arc::clone(&layout.decoder_schema),
        layout.conversion.clone(),
        columns,
        file.display_name(),
    );
    if let (Some(footer), None) = (&layout.footer, &stdin) {
        let open = OpenFile::open(file, ReadPattern::Random, watch)?;
        let places: Vec<MessageSpan> =
            chunks.iter().filter_map(|index| footer.batches.get(*index)).copied().collect();
        let mut reader = ArrowFileReader {
            open_file: open,
            projection: wanted,
            dictionaries: HashMap::new(),
            remaining_spans: places.into_iter(),
            context: watch.clone(),
        };
        if reader.projection.needs_dictionaries {
            for place in &footer.dictionaries {
                reader.read_dictionary(*place)?;
            }
        }
        return Ok(Box::new(reader));
    }
    let input = match stdin {
        Some(input) => input,
        None => {
            let open = OpenFile::open(file, ReadPattern::UntilSplitEnd(file.size()), watch)?;
            // The input reports no progress; the batches do.
            Box::new(FileInput::new(Arc::new(open), 0, 0, watch.clone()))
        }
    };
    let mut stream = ArrowStreamReader::open_stream(input, file)?;
    if stream.schema != layout.decoder_schema {
        return Err(Error::FileChanged {
            path: file.display_name().to_owned(),
            reason: "its columns are others than when it was listed".into(),
        });
    }
    stream.projection = Some(wanted);
    Ok(Box::new(stream))
}

/// The columns to read of each batch.
struct BatchProjection {
    schema: SchemaRef,
    conversion: ColumnConversion,
    /// Column indices in ascending order.
    column_indices: Vec<usize>,
    needs_dictionaries: bool,
    path: Arc<str>,
}

impl BatchProjection {
    fn new(
        schema: SchemaRef,
        shown: ColumnConversion,
        mut columns: Vec<usize>,
        path: &str,
    ) -> Self {
        columns.sort_unstable();
        columns.dedup();
        let has_dictionaries =
            columns.iter().any(|column| has_dictionary(schema.field(*column).data_type()));
        BatchProjection {
            schema,
            conversion: shown,
            column_indices: columns,
            needs_dictionaries: has_dictionaries,
            path: path.into(),
        }
    }

    /// Decodes the arrays of a batch from its body.
    fn decode_batch(
        &self,
        body: &Buffer,
        batch: arrow_ipc::RecordBatch<'_>,
        dictionaries: &HashMap<i64, ArrayRef>,
        version: MetadataVersion,
        offset: u64,
    ) -> Result<RecordBatch> {
        let damaged = |reason: String| corrupt_error(&self.path, Some(offset), reason);
        let rows = usize::try_from(batch.length())
            .map_err(|_| damaged(format!("a batch of {} rows", batch.length())))?;
        // The only check of a batch whose rows are counted without decoding a column.
        if let Some(first) = batch.nodes().into_iter().flatten().next()
            && first.length() != batch.length()
        {
            let reason =
                format!("a batch of {rows} rows whose first column has {}", first.length());
            return Err(damaged(reason));
        }
        if self.column_indices.is_empty() {
            let none = Arc::new(Schema::empty());
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            return Ok(RecordBatch::try_new_with_options(none, vec![], &options)?);
        }
        let decoded = catch_decoder_panic(|| {
            RecordBatchDecoder::try_new(
                body,
                batch,
                Arc::clone(&self.schema),
                dictionaries,
                &version,
            )?
            .with_projection(Some(&self.column_indices))
            .read_record_batch()
        });
        let decoded = decoded.map_err(|error| {
            damaged(format!("a batch cannot be read ({})", error_reason(&error)))
        })?;
        self.conversion.convert_batch(decoded, &self.column_indices)
    }
}

fn error_reason(error: &ArrowError) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((_, reason)) => reason.to_owned(),
        None => text,
    }
}

fn has_dictionary(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_dictionary(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_dictionary(field.data_type())),
        DataType::Union(fields, _) => {
            fields.iter().any(|(_, field)| has_dictionary(field.data_type()))
        }
        DataType::RunEndEncoded(_, values) => has_dictionary(values.data_type()),
        _ => false,
    }
}

/// Parses the metadata of a message, after its length prefix.
fn parse_message<'a>(bytes: &'a [u8], path: &str, offset: u64) -> Result<Message<'a>> {
    let unreadable = |what: String| corrupt_error(path, Some(offset), what);
    let rest = bytes.strip_prefix(&CONTINUATION_MARKER).unwrap_or(bytes);
    let rest = rest.get(4..).ok_or_else(|| unreadable("a message without metadata".into()))?;
    arrow_ipc::root_as_message(rest)
        .map_err(|error| unreadable(format!("a message's metadata cannot be read ({error})")))
}

/// Selects the buffers of a batch that belong to requested columns, as ranges of its body.
struct BufferSelection<'a> {
    buffer_ranges: Vec<(u64, u64)>,
    next_buffer: usize,
    view_buffer_counts: Box<dyn Iterator<Item = i64> + 'a>,
    metadata_version: MetadataVersion,
    selected_ranges: Vec<(u64, u64)>,
}

impl<'a> BufferSelection<'a> {
    /// Returns the ranges of the buffers of wanted columns. Returns `None` if a buffer lies outside of the
    /// body, if all buffers together exceed the body, or if they do not match the columns.
    fn select_buffers(
        batch: arrow_ipc::RecordBatch<'a>,
        version: MetadataVersion,
        body_bytes: usize,
        columns: impl Iterator<Item = (DataType, bool)>,
    ) -> Option<Vec<(u64, u64)>> {
        let mut total = 0_u64;
        let all = batch.buffers()?.iter().map(|buffer| {
            let start = u64::try_from(buffer.offset()).ok()?;
            let length = u64::try_from(buffer.length()).ok()?;
            let end = start.checked_add(length)?;
            total = total.checked_add(length)?;
            (length == 0 || end <= body_bytes as u64).then_some((start, end))
        });
        let all = all.collect::<Option<Vec<_>>>()?;
        if total > body_bytes as u64 {
            return None;
        }
        let view_buffers = Box::new(batch.variadicBufferCounts().into_iter().flatten());
        let mut found = BufferSelection {
            buffer_ranges: all,
            next_buffer: 0,
            view_buffer_counts: view_buffers,
            metadata_version: version,
            selected_ranges: Vec::new(),
        };
        for (data_type, is_wanted) in columns {
            found.walk_type(&data_type, is_wanted)?;
        }
        (found.next_buffer == found.buffer_ranges.len()).then_some(found.selected_ranges)
    }

    fn take_buffers(&mut self, count: usize, is_wanted: bool) -> Option<()> {
        let end = self.next_buffer.checked_add(count)?;
        let taken = self.buffer_ranges.get(self.next_buffer..end)?;
        if is_wanted {
            self.selected_ranges.extend(taken.iter().filter(|(start, end)| start < end));
        }
        self.next_buffer = end;
        Some(())
    }

    /// Walks the buffers of a type in the order in which the format stores them.
    fn walk_type(&mut self, data_type: &DataType, is_wanted: bool) -> Option<()> {
        match data_type {
            DataType::Null => Some(()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                self.take_buffers(3, is_wanted)
            }
            DataType::Utf8View | DataType::BinaryView => {
                let count = usize::try_from(self.view_buffer_counts.next()?).ok()?;
                self.take_buffers(count.checked_add(2)?, is_wanted)
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                self.take_buffers(2, is_wanted)?;
                self.walk_type(item.data_type(), is_wanted)
            }
            DataType::ListView(item) | DataType::LargeListView(item) => {
                self.take_buffers(3, is_wanted)?;
                self.walk_type(item.data_type(), is_wanted)
            }
            DataType::FixedSizeList(item, _) => {
                self.take_buffers(1, is_wanted)?;
                self.walk_type(item.data_type(), is_wanted)
            }
            DataType::Struct(fields) => {
                self.take_buffers(1, is_wanted)?;
                fields.iter().try_for_each(|field| self.walk_type(field.data_type(), is_wanted))
            }
            DataType::RunEndEncoded(ends, values) => {
                self.walk_type(ends.data_type(), is_wanted)?;
                self.walk_type(values.data_type(), is_wanted)
            }
            DataType::Union(fields, mode) => {
                let validity = usize::from(self.metadata_version < MetadataVersion::V5);
                let offsets = usize::from(*mode == UnionMode::Dense);
                self.take_buffers(validity + 1 + offsets, is_wanted)?;
                let mut fields = fields.iter();
                fields.try_for_each(|(_, field)| self.walk_type(field.data_type(), is_wanted))
            }
            _ => self.take_buffers(2, is_wanted),
        }
    }
}

/// Checks the decompressed lengths that compressed buffers claim, before the decoder allocates them.
fn check_decompressed_lengths(
    batch: arrow_ipc::RecordBatch<'_>,
    body: &[u8],
    wanted: &[(u64, u64)],
) -> Result<(), String> {
    let Some(compression) = batch.compression() else { return Ok(()) };
    let ratio = match compression.codec() {
        CompressionType::LZ4_FRAME => LZ4_RATIO_MAX,
        CompressionType::ZSTD => ZSTD_RATIO_MAX,
        other => return Err(format!("it is compressed by codec {}, which is not known", other.0)),
    };
    for (start, end) in wanted {
        let length =
            usize::try_from(*start).ok().and_then(|start| body.get(start..)?.first_chunk());
        let Some(length) = length.filter(|_| end - start >= 8).copied().map(i64::from_le_bytes)
        else {
            return Err("a compressed buffer is shorter than its length".into());
        };
        let stored = end - start;
        let most = stored.saturating_mul(ratio).saturating_add(RATIO_SLACK_BYTES);
        if length != -1 && !u64::try_from(length).is_ok_and(|length| length <= most) {
            return Err(format!(
                "a compressed buffer of {stored} bytes is said to become {length} bytes"
            ));
        }
    }
    Ok(())
}

/// Reads the batches of a file by their positions.
struct ArrowFileReader {
    open_file: OpenFile,
    projection: BatchProjection,
    dictionaries: HashMap<i64, ArrayRef>,
    remaining_spans: std::vec::IntoIter<MessageSpan>,
    context: ByteReadContext,
}

impl ArrowFileReader {
    fn read_metadata(&self, place: MessageSpan) -> Result<Vec<u8>> {
        let mut metadata = vec![0; place.metadata_bytes];
        self.open_file.read_at(&mut metadata, place.offset)?;
        Ok(metadata)
    }

    fn body_offset(place: MessageSpan) -> u64 {
        place.offset + place.metadata_bytes as u64
    }

    fn read_dictionary(&mut self, place: MessageSpan) -> Result<()> {
        self.context.cancel.check()?;
        let metadata = self.read_metadata(place)?;
        let message = parse_message(&metadata, &self.projection.path, place.offset)?;
        let mut body = MutableBuffer::from_len_zeroed(place.body_bytes);
        self.open_file.read_at(&mut body, Self::body_offset(place))?;
        add_dictionary(
            message,
            &body.into(),
            &self.projection.schema,
            &mut self.dictionaries,
            &self.projection.path,
            place.offset,
        )
    }

    fn read_batch(&mut self, place: MessageSpan) -> Result<RecordBatch> {
        self.context.cancel.check()?;
        let metadata = self.read_metadata(place)?;
        let damaged =
            |reason: String| corrupt_error(&self.projection.path, Some(place.offset), reason);
        let message = parse_message(&metadata, &self.projection.path, place.offset)?;
        let Some(batch) = message.header_as_record_batch() else {
            return Err(damaged("its footer has a batch here, and there is none".into()));
        };
        let is_wanted = |column| self.projection.column_indices.binary_search(&column).is_ok();
        let columns = self.projection.schema.fields().iter().enumerate();
        let columns = columns.map(|(index, field)| (field.data_type().clone(), is_wanted(index)));
        let buffers =
            BufferSelection::select_buffers(batch, message.version(), place.body_bytes, columns)
                .ok_or_else(|| damaged("a batch's buffers are not those of its columns".into()))?;
        // Zero pages: only those that are read take memory.
        let mut body = MutableBuffer::from_len_zeroed(place.body_bytes);
        self.read_buffers(&buffers, Self::body_offset(place), &mut body)?;
        check_decompressed_lengths(batch, &body, &buffers).map_err(damaged)?;
        self.projection.decode_batch(
            &body.into(),
            batch,
            &self.dictionaries,
            message.version(),
            place.offset,
        )
    }

    /// Reads buffers to their positions in a body that begins at offset `base` of the file.
    fn read_buffers(&self, buffers: &[(u64, u64)], base: u64, body: &mut [u8]) -> Result<()> {
        let mut sorted = buffers.to_vec();
        sorted.sort_unstable();
        let remote = self.open_file.remote_reader();
        let gap =
            if remote.is_some() { REMOTE_READ_GAP_BYTES_MAX } else { LOCAL_READ_GAP_BYTES_MAX };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (start, end) in sorted {
            match runs.last_mut() {
                Some(run) if start <= run.1.saturating_add(gap) => run.1 = run.1.max(end),
                _ => runs.push((start, end)),
            }
        }
        let slice = |body: &mut [u8], start: u64, end: u64| -> Option<std::ops::Range<usize>> {
            let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
            (range.end <= body.len()).then_some(range)
        };
        let outside =
            || corrupt_error(&self.projection.path, Some(base), "a buffer outside of its batch");
        let Some(remote) = remote else {
            for (start, end) in runs {
                let range = slice(body, start, end).ok_or_else(outside)?;
                self.open_file.read_at(&mut body[range], base + start)?;
            }
            return Ok(());
        };
        let mut requests = runs.into_iter().flat_map(|(start, end)| {
            let starts = (start..end).step_by(REQUEST_BYTES_MAX);
            starts.map(move |from| (from, end.min(from + REQUEST_BYTES_MAX as u64)))
        });
        let mut coming = std::collections::VecDeque::new();
        loop {
            while coming.len() < PENDING_REQUESTS_MAX
                && let Some((start, end)) = requests.next()
            {
                coming.push_back((
                    start,
                    end,
                    remote.object().fetch_range(base + start..base + end)?,
                ));
            }
            let Some((start, end, fetch)) = coming.pop_front() else { return Ok(()) };
            let bytes = fetch.wait(&self.context.cancel)?;
            let range = slice(body, start, end).ok_or_else(outside)?;
            if bytes.len() != range.len() {
                return Err(outside());
            }
            body[range].copy_from_slice(&bytes);
        }
    }
}

impl Iterator for ArrowFileReader {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(place) = self.remaining_spans.next() else {
            return self.open_file.verify_identity().err().map(Err);
        };
        let batch = self.read_batch(place);
        if batch.is_err() {
            self.remaining_spans = Vec::new().into_iter();
        }
        Some(batch.map(|batch| (batch, place.total_bytes())))
    }
}

/// Adds a dictionary batch, which replaces or extends a dictionary.
fn add_dictionary(
    message: Message<'_>,
    body: &Buffer,
    schema: &Schema,
    dictionaries: &mut HashMap<i64, ArrayRef>,
    path: &str,
    offset: u64,
) -> Result<()> {
    let damaged = |reason: String| corrupt_error(path, Some(offset), reason);
    let unlike = || damaged("a dictionary's buffers are not those of its type".into());
    let Some(dictionary) = message.header_as_dictionary_batch() else {
        return Err(damaged("a dictionary is expected here, and there is none".into()));
    };
    let Some(batch) = dictionary.data() else { return Err(unlike()) };
    let buffers = batch.buffers().into_iter().flatten();
    let (mut total, mut wanted) = (0_u64, Vec::new());
    for buffer in buffers {
        let (start, length) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
        let (Ok(start), Ok(length)) = (start, length) else { return Err(unlike()) };
        total = total.saturating_add(length);
        if total > body.len() as u64 || (length > 0 && start > body.len() as u64 - length) {
            return Err(unlike());
        }
        wanted.extend((length > 0).then_some((start, start + length)));
    }
    check_decompressed_lengths(batch, body, &wanted).map_err(damaged)?;
    let version = message.version();
    catch_decoder_panic(|| read_dictionary(body, dictionary, schema, dictionaries, &version))
        .map_err(|error| damaged(format!("a dictionary cannot be read ({})", error_reason(&error))))
}

/// Reads the messages of a stream one after another.
struct ArrowStreamReader {
    input: Box<dyn ByteInput>,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    path: Arc<str>,
    position: u64,
    /// Size of the input, if known.
    input_bytes: Option<u64>,
    /// True if the stream is inside a file, so that a footer follows it.
    has_footer: bool,
    /// `None` while only the schema is read.
    projection: Option<BatchProjection>,
    is_finished: bool,
}

impl ArrowStreamReader {
    /// Reads the stream up to its schema.
    fn open_stream(input: Box<dyn ByteInput>, file: &SourceFile) -> Result<Self> {
        let mut stream = ArrowStreamReader {
            input,
            schema: Arc::new(Schema::empty()),
            dictionaries: HashMap::new(),
            path: file.display_name().into(),
            position: 0,
            input_bytes: (!file.is_stream()).then_some(file.size()),
            has_footer: false,
            projection: None,
            is_finished: false,
        };
        let mut head = [0; 8];
        let count = stream.read_into(&mut head)?;
        let introduction = &head[..count];
        let is_feather = introduction.starts_with(b"FEA1");
        let length = match introduction.split_at_checked(4) {
            _ if introduction.starts_with(ARROW_MAGIC) => {
                stream.has_footer = true;
                None
            }
            Some((first, second)) if first == CONTINUATION_MARKER && count == 8 => {
                Some([second[0], second[1], second[2], second[3]])
            }
            _ => {
                return Err(Error::Corrupt {
                    path: stream.path.to_string(),
                    offset: Some(0),
                    reason: if is_feather {
                        "it is a Feather file of version 1, which came before Arrow IPC".into()
                    } else if count == 0 {
                        "it is empty, and has no schema".into()
                    } else {
                        "it begins neither as an Arrow file nor as an Arrow stream".into()
                    },
                    hint: Some(if is_feather {
                        "pyarrow.feather reads it and writes version 2".into()
                    } else {
                        "--source-format names another format (job file: source.format)".into()
                    }),
                });
            }
        };
        let offset = stream.position - 8;
        let metadata = match length {
            Some(length) => stream.read_metadata_of_length(u32::from_le_bytes(length))?,
            None => stream.read_first_metadata()?,
        };
        let path = Arc::clone(&stream.path);
        let message = parse_message(&metadata, &path, offset)?;
        let schema = message.header_as_schema().ok_or_else(|| {
            corrupt_error(&path, Some(offset), "its first message is not a schema")
        })?;
        stream.schema = decode_schema(schema, &path, offset)?;
        stream.read_body(message)?;
        Ok(stream)
    }

    fn read_into(&mut self, out: &mut [u8]) -> Result<usize> {
        let count = self.input.read(out)?;
        self.position += count as u64;
        Ok(count)
    }

    fn truncation_error(&self) -> Error {
        corrupt_error(&self.path, Some(self.position), "it ends in the middle of a message")
    }

    /// Reads exactly `count` bytes. Without a known input size the buffer grows as bytes arrive, because
    /// `count` may be wrong.
    fn read_exact_bytes(&mut self, count: usize) -> Result<MutableBuffer> {
        if self.input_bytes.is_some_and(|size| count as u64 > size.saturating_sub(self.position)) {
            return Err(corrupt_error(
                &self.path,
                Some(self.position),
                format!("a message is said to have {count} bytes more, which are not there"),
            ));
        }
        let step = if self.input_bytes.is_some() { count } else { STREAM_ALLOCATION_BYTES };
        let mut bytes = MutableBuffer::new(0);
        while bytes.len() < count {
            let from = bytes.len();
            bytes.resize(count.min(from.saturating_add(step)), 0);
            let wanted = bytes.len() - from;
            if self.read_into(&mut bytes[from..])? < wanted {
                return Err(self.truncation_error());
            }
        }
        Ok(bytes)
    }

    /// Reads the metadata of the first message in a file. Padding precedes it, as much as the writer aligns
    /// by.
    fn read_first_metadata(&mut self) -> Result<Vec<u8>> {
        for _ in 0..PADDING_BYTES_MAX / 8 {
            if let Some(metadata) = self.read_metadata()? {
                return Ok(metadata);
            }
            // The end mark was padding: four zeros, followed by four more.
            let mut zeros = [0xff; 4];
            if self.read_into(&mut zeros)? < 4 || zeros != [0; 4] {
                break;
            }
        }
        Err(corrupt_error(&self.path, Some(self.position), "an Arrow file without a schema"))
    }

    /// Reads the metadata of a message including its length prefix; returns `None` at the end mark.
    fn read_metadata(&mut self) -> Result<Option<Vec<u8>>> {
        let mut word = [0; 4];
        match self.read_into(&mut word)? {
            4 => {}
            0 => {
                return Err(corrupt_error(
                    &self.path,
                    Some(self.position),
                    "it ends without the end mark of a stream",
                ));
            }
            _ => return Err(self.truncation_error()),
        }
        // Writers before Arrow 0.15 omit the continuation marker.
        if word == CONTINUATION_MARKER && self.read_into(&mut word)? < 4 {
            return Err(self.truncation_error());
        }
        match u32::from_le_bytes(word) {
            0 => Ok(None),
            length => self.read_metadata_of_length(length).map(Some),
        }
    }

    fn read_metadata_of_length(&mut self, length: u32) -> Result<Vec<u8>> {
        let mut metadata = CONTINUATION_MARKER.to_vec();
        metadata.extend(length.to_le_bytes());
        let rest = self.read_exact_bytes(to_usize(u64::from(length), &self.path)?)?;
        metadata.extend_from_slice(&rest);
        Ok(metadata)
    }

    fn read_body(&mut self, message: Message<'_>) -> Result<Buffer> {
        let bytes = usize::try_from(message.bodyLength()).map_err(|_| {
            let reason = format!("a body of {} bytes", message.bodyLength());
            corrupt_error(&self.path, Some(self.position), reason)
        })?;
        Ok(self.read_exact_bytes(bytes)?.into())
    }

    fn next_batch(&mut self) -> Result<Option<(RecordBatch, u64)>> {
        loop {
            let offset = self.position;
            let Some(metadata) = self.read_metadata()? else {
                self.check_stream_end()?;
                return Ok(None);
            };
            let path = Arc::clone(&self.path);
            let damaged = |reason: String| corrupt_error(&path, Some(offset), reason);
            let message = parse_message(&metadata, &path, offset)?;
            let body = self.read_body(message)?;
            let Some(wanted) = &self.projection else {
                return Err(Error::Internal("a stream without wanted columns".into()));
            };
            match message.header_type() {
                MessageHeader::DictionaryBatch => {
                    if wanted.needs_dictionaries {
                        let schema = Arc::clone(&self.schema);
                        let known = &mut self.dictionaries;
                        add_dictionary(message, &body, &schema, known, &path, offset)?;
                    }
                }
                MessageHeader::RecordBatch => {
                    let Some(batch) = message.header_as_record_batch() else {
                        return Err(damaged("a batch without metadata".into()));
                    };
                    let is_wanted = |column| wanted.column_indices.binary_search(&column).is_ok();
                    let columns = self.schema.fields().iter().enumerate();
                    let columns =
                        columns.map(|(index, field)| (field.data_type().clone(), is_wanted(index)));
                    let version = message.version();
                    let buffers =
                        BufferSelection::select_buffers(batch, version, body.len(), columns)
                            .ok_or_else(|| {
                                damaged("a batch's buffers are not those of its columns".into())
                            })?;
                    check_decompressed_lengths(batch, &body, &buffers).map_err(damaged)?;
                    let batch =
                        wanted.decode_batch(&body, batch, &self.dictionaries, version, offset)?;
                    return Ok(Some((batch, self.position - offset)));
                }
                other => {
                    let name = other.variant_name().unwrap_or("unknown").to_owned();
                    return Err(damaged(format!("a message of kind {name}, which has no rows")));
                }
            }
        }
    }

    /// Checks that nothing but a file's footer follows the end mark.
    fn check_stream_end(&mut self) -> Result<()> {
        let end = self.position;
        let mut buffer = vec![0; 64 << 10];
        let mut last = Vec::new();
        loop {
            let count = self.read_into(&mut buffer)?;
            if count > 0 && !self.has_footer {
                return Err(Error::Corrupt {
                    path: self.path.to_string(),
                    offset: Some(end),
                    reason: "something follows its end mark".into(),
                    hint: Some(
                        "streams put one behind another are not one; read each by itself".into(),
                    ),
                });
            }
            last.extend_from_slice(&buffer[..count]);
            last.drain(..last.len().saturating_sub(ARROW_MAGIC.len()));
            if count < buffer.len() {
                break;
            }
        }
        if self.has_footer && last != ARROW_MAGIC {
            return Err(corrupt_error(
                &self.path,
                Some(self.position),
                "it does not end as an Arrow file does",
            ));
        }
        Ok(())
    }
}

impl Iterator for ArrowStreamReader {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished {
            return None;
        }
        let next = self.next_batch();
        self.is_finished = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
