//! A file's text as a stream of blocks from its first byte: decompressed, filtered, without the byte-order
//! mark and a line that declares the field separator.

use std::sync::Arc;

use tidemill_text::record_boundaries::RecordGrammar;

use crate::error::Result;
use crate::files::byte_input::{
    ByteInput, ByteReadContext, FileInput, FilteredInput, OpenFile, ReadPattern,
};
use crate::files::compression::COMPRESSED_READ_BYTES;
use crate::splits::text_blocks::{BlockReader, RecordFraming};
use crate::{SourceFile, schema::content_detection};

/// The byte-order mark of UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// Size of a read of skipped lines, which are few.
const SKIPPED_LINES_READ_BYTES: usize = 4 << 10;

/// Extent of a read of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadExtent {
    /// The records that start before this offset.
    Until(u64),
    /// The beginning, as far as a sample needs it.
    Sample,
    /// The very beginning, in reads of `read_bytes`.
    Beginning {
        read_bytes: usize,
        /// True if an object that is thus read whole may be kept.
        keeps_object: bool,
    },
}

/// Opens a file, and reads it to its end if it is compressed, to find damage.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt); those of reading.
pub(crate) fn verify_compressed_file(file: &SourceFile, watch: ByteReadContext) -> Result<()> {
    let cancel = watch.cancel.clone();
    // Opening the file checks that it is unchanged.
    let open = Arc::new(OpenFile::open(file, ReadPattern::UntilSplitEnd(file.size()), &watch)?);
    if file.is_read_as_stored() {
        return Ok(());
    }
    open.begin_reading_at(0)?;
    let input = Box::new(FileInput::new(open, 0, 0, watch));
    let mut input = content_detection::decompress_by_content(
        file,
        input,
        COMPRESSED_READ_BYTES,
        Some(file.size()),
    )?;
    let mut buffer = vec![0; COMPRESSED_READ_BYTES];
    while input.read(&mut buffer)? == buffer.len() {
        cancel.check()?;
    }
    Ok(())
}

/// Opens a file's decoded bytes from its start as blocks of records, behind a byte-order mark. Returns also
/// the open file, unless the input is standard input.
pub(crate) fn open_text_blocks(
    file: &SourceFile,
    stdin: Option<Box<dyn ByteInput>>,
    ends: impl Into<RecordFraming>,
    watch: ByteReadContext,
    extent: ReadExtent,
) -> Result<(BlockReader, Option<Arc<OpenFile>>)> {
    let (cancel, is_eager) = (watch.cancel.clone(), watch.allows_short_reads);
    let gave = Arc::clone(&watch.program_output_bytes);
    let (access, limit) = match extent {
        ReadExtent::Until(end) => (ReadPattern::UntilSplitEnd(end), Some(end)),
        ReadExtent::Sample => (ReadPattern::Sample, None),
        ReadExtent::Beginning { keeps_object: keeps, .. } => {
            (ReadPattern::Beginning { may_keep: keeps }, None)
        }
    };
    let (input, open): (Box<dyn ByteInput>, _) = match stdin {
        Some(input) => (input, None),
        None => {
            let open = Arc::new(OpenFile::open(file, access, &watch)?);
            open.begin_reading_at(0)?;
            let counted_to = match limit {
                Some(limit) if file.is_read_as_stored() => limit,
                _ => file.size(),
            };
            (Box::new(FileInput::new(open.clone(), 0, counted_to, watch)), Some(open))
        }
    };
    let (buffer_bytes, stored_bytes) = match extent {
        ReadExtent::Beginning { read_bytes, .. } => (read_bytes, None),
        _ => (COMPRESSED_READ_BYTES, (!file.is_stream()).then_some(file.size())),
    };
    let mut input =
        content_detection::decompress_by_content(file, input, buffer_bytes, stored_bytes)?;
    let is_stored = file.is_read_as_stored();
    if let Some(program) = &file.filter_program {
        let program = FilteredInput::start(program, input, &file.display_name, (&cancel, gave))?;
        input = Box::new(program.with_short_reads(is_eager));
    }
    let limit = limit.filter(|_| is_stored && !file.is_stream());
    let ends = ends.into();
    let mut blocks = BlockReader::new(input, ends, 0, limit);
    if let ReadExtent::Beginning { read_bytes, .. } = extent {
        blocks.set_read_bytes(read_bytes);
    }
    if !is_stored || file.is_stream() {
        blocks.enable_line_counting(1);
    }
    let head = blocks.peek(3)?;
    let skip = if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    // The output of a program has not been inspected before.
    if file.filter_program.is_some()
        && let Some(encoding) = content_detection::TextEncoding::detect(blocks.buffered_bytes())
    {
        return Err(encoding.unsupported_error(&file.display_name));
    }
    skip_to_records(&mut blocks, file, ends, skip)?;
    if ends == RecordFraming::Json {
        blocks.detect_json_layout(&file.display_name)?;
    }
    Ok((blocks, open))
}

/// Skips the bytes before a file's header or first record: `mark` bytes of a byte-order mark, a line that
/// declares the field separator, and the lines that the user skips.
fn skip_to_records(
    blocks: &mut BlockReader,
    file: &SourceFile,
    ends: RecordFraming,
    mark: usize,
) -> Result<()> {
    // Only in delimited text: in line formats every line is a record, including this one.
    let is_delimited =
        matches!(ends, RecordFraming::Lines(grammar) if grammar != RecordGrammar::LINES);
    let said = if is_delimited { blocks.read_separator_line(mark)? } else { 0 };
    blocks.skip_bytes(mark + said);
    // The separator line is one of the skipped lines.
    if file.skipped_lines > 0 {
        blocks.skip_lines(file.skipped_lines.saturating_sub(u64::from(said > 0)))?;
        blocks.end_if_at_limit();
    }
    let _ = file.records_offset.set(blocks.position());
    Ok(())
}

/// Returns the offset of the header, or of the first record, of a file that is read as it is stored.
///
/// Cost: reads the skipped lines once for all callers.
///
/// # Errors
/// Those of reading.
pub(crate) fn find_records_offset(
    file: &SourceFile,
    ends: impl Into<RecordFraming>,
    watch: &ByteReadContext,
) -> Result<u64> {
    if let Some(at) = file.records_offset.get() {
        return Ok(*at);
    }
    let ends = ends.into();
    let open = Arc::new(OpenFile::open(file, ReadPattern::Random, watch)?);
    // The reader of the file's first split counts these bytes.
    let input = FileInput::new(open, 0, 0, watch.clone());
    let mut blocks = BlockReader::new(Box::new(input), ends, 0, None);
    blocks.set_read_bytes(SKIPPED_LINES_READ_BYTES);
    let mark = if blocks.peek(3)?.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    skip_to_records(&mut blocks, file, ends, mark)?;
    Ok(*file.records_offset.get_or_init(|| blocks.position()))
}
