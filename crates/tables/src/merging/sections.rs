//! Checksummed sections, the framing of partial tables and of messages about tables.
//!
//! ```text
//!   kind (1 byte)  length (8, little-endian)  crc32 of these and the content (4)  │  content
//! ```

use std::io::{Read, Write};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use tidemill_base::error::Result;
use tidemill_base::panics;

/// Size of a section's header, in bytes.
pub(crate) const SECTION_HEADER_BYTES: usize = 13;

/// Returns the checksum of a section: over the first nine bytes of its header and its content.
pub(crate) fn section_checksum(head: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(content);
    hasher.finalize()
}

/// Returns the header of a section.
fn section_header(kind: u8, content: &[u8]) -> [u8; SECTION_HEADER_BYTES] {
    let mut head = [0; SECTION_HEADER_BYTES];
    head[0] = kind;
    head[1..9].copy_from_slice(&(content.len() as u64).to_le_bytes());
    let sum = section_checksum(&head[..9], content);
    head[9..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Writes a section.
///
/// # Errors
/// Returns write errors.
pub fn write_section(out: &mut impl Write, kind: u8, content: &[u8]) -> std::io::Result<()> {
    out.write_all(&section_header(kind, content))?;
    out.write_all(content)
}

/// Encodes a batch as the content of a section.
///
/// # Errors
/// Returns the errors of Arrow's writer.
pub fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut stream = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    stream.write(batch)?;
    stream.finish()?;
    Ok(stream.into_inner()?)
}

/// Decodes the batches of a section's content.
///
/// # Errors
/// Returns a message if the content is not an Arrow stream.
pub fn decode_batches(content: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let read = || StreamReader::try_new(content, None)?.collect::<Result<_, ArrowError>>();
    decode_arrow_stream(content, read)
}

/// Decodes a content with Arrow's reader. That reader panics on some invalid inputs, which become errors
/// here.
///
/// # Errors
/// Returns the reason as a message.
pub(crate) fn decode_arrow_stream<T>(
    content: &[u8],
    read: impl FnOnce() -> Result<T, ArrowError>,
) -> Result<T, String> {
    if check_message_lengths(content).is_none() {
        return Err("lengths that do not fit it".to_owned());
    }
    match panics::catch_silently(read) {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("no Arrow stream".to_owned()),
    }
}

/// Reads sections from a byte slice.
pub struct SectionReader<'a> {
    remaining: &'a [u8],
}

impl<'a> SectionReader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        SectionReader { remaining: bytes }
    }

    /// Returns the number of bytes not read yet.
    pub fn remaining_bytes(&self) -> usize {
        self.remaining.len()
    }

    /// Returns kind and content of the next section; `None` at the end.
    ///
    /// # Errors
    /// Returns a message for a truncated section or a wrong checksum.
    pub fn next_section(&mut self) -> Result<Option<(u8, &'a [u8])>, &'static str> {
        if self.remaining.is_empty() {
            return Ok(None);
        }
        let cut = "it was cut off";
        let (head, rest) = self.remaining.split_first_chunk::<SECTION_HEADER_BYTES>().ok_or(cut)?;
        let mut length = [0; 8];
        length.copy_from_slice(&head[1..9]);
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| cut)?;
        let content = rest.get(..length).ok_or(cut)?;
        let sum = u32::from_le_bytes([head[9], head[10], head[11], head[12]]);
        if section_checksum(&head[..9], content) != sum {
            return Err("the checksum of a section does not hold");
        }
        self.remaining = &rest[length..];
        Ok(Some((head[0], content)))
    }
}

/// Reads the next section, its kind and its content; `None` at the end.
///
/// # Errors
/// Returns read errors, and `InvalidData` for bytes that are not a section or are truncated.
pub fn read_section(from: &mut impl Read) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    let mut head = Vec::with_capacity(SECTION_HEADER_BYTES);
    from.by_ref().take(SECTION_HEADER_BYTES as u64).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(None);
    }
    let cut = || invalid("it was cut off");
    let head: [u8; SECTION_HEADER_BYTES] = head.try_into().map_err(|_| cut())?;
    let mut length = [0; 8];
    length.copy_from_slice(&head[1..9]);
    let length = u64::from_le_bytes(length);
    let mut content = Vec::new();
    // The buffer grows with the bytes that arrive, whatever the length says.
    from.by_ref().take(length).read_to_end(&mut content)?;
    if content.len() as u64 != length {
        return Err(cut());
    }
    let sum = u32::from_le_bytes([head[9], head[10], head[11], head[12]]);
    if section_checksum(&head[..9], &content) != sum {
        return Err(invalid("the checksum of a section does not hold"));
    }
    Ok(Some((head[0], content)))
}

/// Returns `Some` if the messages of an Arrow stream are as long as their lengths say: Arrow's reader
/// allocates these lengths without a check. Partial tables are not compressed.
fn check_message_lengths(content: &[u8]) -> Option<()> {
    let word = |at: usize| {
        let bytes = content.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut at = 0;
    while at < content.len() {
        let is_marked = word(at)? == u32::MAX;
        let length = usize::try_from(word(if is_marked { at + 4 } else { at })?).ok()?;
        let start = at + if is_marked { 8 } else { 4 };
        if length == 0 {
            return Some(());
        }
        let end = start.checked_add(length)?;
        let metadata = content.get(start..end)?.to_vec();
        let message = ipc::root_as_message(&metadata).ok()?;
        let dictionary = message.header_as_dictionary_batch().and_then(|found| found.data());
        let batch = message.header_as_record_batch().or(dictionary);
        if batch.is_some_and(|batch| batch.compression().is_some()) {
            return None;
        }
        at = end.checked_add(usize::try_from(message.bodyLength()).ok()?)?;
        if at > content.len() {
            return None;
        }
    }
    Some(())
}
