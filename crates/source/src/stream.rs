//! A file's text from its first byte: decompressed, through a program, behind a byte-order mark and a
//! line that says what stands between fields.

use std::sync::Arc;

use tidemill_text::cut::Grammar;

use super::blocks::{Blocks, Ends};
use super::compression::STORED_BUFFER_BYTES;
use super::error::{Error, Result};
use super::input::{Access, ByteInput, FileInput, OpenFile, ProgramInput, Watch};
use super::{SourceFile, magic};

/// What a format makes of a file's bytes before records are found in them.
pub(super) type Opened = fn(Box<dyn ByteInput>, &Arc<str>) -> Box<dyn ByteInput>;

/// Nothing.
pub(super) fn as_it_is(input: Box<dyn ByteInput>, _: &Arc<str>) -> Box<dyn ByteInput> {
    input
}

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
/// [`Error::Corrupt`]; those of reading.
pub(super) fn check_stored(file: &SourceFile, watch: Watch) -> Result<()> {
    let cancel = watch.cancel.clone();
    // That it is still the file that it was is seen when it is opened.
    let open = Arc::new(OpenFile::open(file, Access::Until(file.size()), &watch)?);
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
    opened: Opened,
    ends: impl Into<Ends>,
    watch: Watch,
    extent: Extent,
) -> Result<(Blocks, Option<Arc<OpenFile>>)> {
    let (cancel, is_eager) = (watch.cancel.clone(), watch.eager);
    let gave = Arc::clone(&watch.gave);
    let (access, limit) = match extent {
        Extent::Until(end) => (Access::Until(end), Some(end)),
        Extent::Sample => (Access::Sample, None),
        Extent::Beginning { keeps, .. } => (Access::Beginning { keeps }, None),
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
    input = opened(input, &file.shown);
    let limit = limit.filter(|_| is_stored && !file.is_stream());
    let ends = ends.into();
    let mut blocks = Blocks::new(input, ends, 0, limit);
    if let Extent::Beginning { read_bytes, .. } = extent {
        blocks.set_read_bytes(read_bytes);
    }
    if !is_stored || file.is_stream() {
        blocks.count_lines(1);
    }
    let skip = match blocks.peek(3)? {
        [0xef, 0xbb, 0xbf] => 3,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return Err(Error::Corrupt {
                path: file.shown.to_string(),
                offset: Some(0),
                reason: "it begins with a UTF-16 byte-order mark".into(),
                hint: Some("text is read as UTF-8; convert it: iconv -f UTF-16 -t UTF-8".into()),
            });
        }
        _ => 0,
    };
    // Of delimited text alone: where every line is a record, this one is, too.
    let is_delimited = matches!(ends, Ends::Lines(grammar) if grammar != Grammar::LINES);
    let said = if is_delimited { blocks.skip_separator(skip)? } else { 0 };
    blocks.skip(skip + said);
    Ok((blocks, open))
}
