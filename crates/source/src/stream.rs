//! A file's text from its first byte: decompressed, through a program, behind a byte-order mark and a
//! line that says what stands between fields.

use std::sync::Arc;

use tidemill_text::record_boundaries::RecordGrammar;

use super::blocks::{Blocks, Ends};
use super::compression::STORED_BUFFER_BYTES;
use super::error::Result;
use super::input::{ByteInput, FileInput, OpenFile, ProgramInput, ReadPattern, Watch};
use super::{SourceFile, magic};

/// The byte-order mark of UTF-8.
pub(super) const MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// One read of lines that are skipped, which are few.
const HEAD_BYTES: usize = 4 << 10;

/// How much of a file is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extent {
    /// The records that start before this offset.
    Until(u64),
    /// Its beginning, as much of it as a sample takes.
    Sample,
    /// Its very beginning, in reads of so many bytes.
    Beginning {
        read_bytes: usize,
        /// Whether an object that is read whole so may be kept.
        keeps: bool,
    },
}

/// Opens a file, and reads it to its end if it is compressed, for what is wrong with it.
///
/// # Errors
/// [`Error::Corrupt`](super::Error::Corrupt); those of reading.
pub(super) fn check_stored(file: &SourceFile, watch: Watch) -> Result<()> {
    let cancel = watch.cancel.clone();
    // That it is still the file that it was is seen when it is opened.
    let open = Arc::new(OpenFile::open(file, ReadPattern::UntilSplitEnd(file.size()), &watch)?);
    if file.is_plain() {
        return Ok(());
    }
    open.start_at(0)?;
    let input = Box::new(FileInput::new(open, 0, 0, watch));
    let mut input = magic::decoded(file, input, STORED_BUFFER_BYTES, Some(file.size()))?;
    let mut buffer = vec![0; STORED_BUFFER_BYTES];
    while input.read(&mut buffer)? == buffer.len() {
        cancel.check()?;
    }
    Ok(())
}

/// A file's decoded bytes from its start, as blocks of records, behind a byte-order mark; and the
/// file itself, where there is one.
pub(super) fn stream(
    file: &SourceFile,
    stdin: Option<Box<dyn ByteInput>>,
    ends: impl Into<Ends>,
    watch: Watch,
    extent: Extent,
) -> Result<(Blocks, Option<Arc<OpenFile>>)> {
    let (cancel, is_eager) = (watch.cancel.clone(), watch.eager);
    let gave = Arc::clone(&watch.gave);
    let (access, limit) = match extent {
        Extent::Until(end) => (ReadPattern::UntilSplitEnd(end), Some(end)),
        Extent::Sample => (ReadPattern::Sample, None),
        Extent::Beginning { keeps, .. } => (ReadPattern::Beginning { may_keep: keeps }, None),
    };
    let (input, open): (Box<dyn ByteInput>, _) = match stdin {
        Some(input) => (input, None),
        None => {
            let open = Arc::new(OpenFile::open(file, access, &watch)?);
            open.start_at(0)?;
            let counted_to = match limit {
                Some(limit) if file.is_plain() => limit,
                _ => file.size(),
            };
            (Box::new(FileInput::new(open.clone(), 0, counted_to, watch)), Some(open))
        }
    };
    let (buffer_bytes, stored_bytes) = match extent {
        Extent::Beginning { read_bytes, .. } => (read_bytes, None),
        _ => (STORED_BUFFER_BYTES, (!file.is_stream()).then_some(file.size())),
    };
    let mut input = magic::decoded(file, input, buffer_bytes, stored_bytes)?;
    let is_stored = file.is_plain();
    if let Some(program) = &file.program {
        let program = ProgramInput::start(program, input, &file.shown, (&cancel, gave))?;
        input = Box::new(program.eager(is_eager));
    }
    let limit = limit.filter(|_| is_stored && !file.is_stream());
    let ends = ends.into();
    let mut blocks = Blocks::new(input, ends, 0, limit);
    if let Extent::Beginning { read_bytes, .. } = extent {
        blocks.set_read_bytes(read_bytes);
    }
    if !is_stored || file.is_stream() {
        blocks.count_lines(1);
    }
    let head = blocks.peek(3)?;
    let skip = if head.starts_with(MARK) { MARK.len() } else { 0 };
    // The output of a program has not been looked at before.
    if file.program.is_some()
        && let Some(encoding) = magic::Encoding::detect(blocks.buffered())
    {
        return Err(encoding.refusal(&file.shown));
    }
    skip_to_records(&mut blocks, file, ends, skip)?;
    if ends == Ends::Json {
        blocks.settle_layout(&file.shown)?;
    }
    Ok((blocks, open))
}

/// Skips what stands before the header, or the first record, of a file: `mark` bytes of a byte-order mark, a line that says
/// what stands between fields, and the lines that the user leaves out.
fn skip_to_records(blocks: &mut Blocks, file: &SourceFile, ends: Ends, mark: usize) -> Result<()> {
    // Of delimited text alone: where every line is a record, this one is, too.
    let is_delimited = matches!(ends, Ends::Lines(grammar) if grammar != RecordGrammar::LINES);
    let said = if is_delimited { blocks.skip_separator(mark)? } else { 0 };
    blocks.skip(mark + said);
    // The line that says what stands between fields is one of those that are left out.
    if file.skip_lines > 0 {
        blocks.skip_lines(file.skip_lines.saturating_sub(u64::from(said > 0)))?;
        blocks.stop_at_limit();
    }
    let _ = file.records_at.set(blocks.position());
    Ok(())
}

/// Returns where the header, or the first record, of a file begins that is read as it is stored.
///
/// Cost: reading the lines that are skipped, once for all that ask.
///
/// # Errors
/// Those of reading.
pub(super) fn records_at(file: &SourceFile, ends: impl Into<Ends>, watch: &Watch) -> Result<u64> {
    if let Some(at) = file.records_at.get() {
        return Ok(*at);
    }
    let ends = ends.into();
    let open = Arc::new(OpenFile::open(file, ReadPattern::Random, watch)?);
    // The reader of the file's first split counts these bytes.
    let input = FileInput::new(open, 0, 0, watch.clone());
    let mut blocks = Blocks::new(Box::new(input), ends, 0, None);
    blocks.set_read_bytes(HEAD_BYTES);
    let mark = if blocks.peek(3)?.starts_with(MARK) { MARK.len() } else { 0 };
    skip_to_records(&mut blocks, file, ends, mark)?;
    Ok(*file.records_at.get_or_init(|| blocks.position()))
}
