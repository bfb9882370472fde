//! The container file: its header, and its blocks one after another.

use std::io::Read;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::codec::{Codec, decompress};
use crate::error::{Error, Result};
use crate::row_decoder::RowDecoder;
use crate::schema::Schema;
use crate::value_cursor::ValueCursor;

pub(crate) const MAGIC: &[u8; 4] = b"Obj\x01";
/// Length of a sync marker.
pub const SYNC_BYTES: usize = 16;
/// Maximum length of a file's metadata, which consists mainly of its schema.
const METADATA_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of the metadata keys and values that the header keeps.
const METADATA_ENTRY_BYTES_MAX: usize = 128;
/// Maximum number of bytes for which the reader allocates memory before they arrive.
const READ_STEP_BYTES: usize = 8 << 20;
/// Memory size at which the reader returns a batch.
const BATCH_BYTES: usize = 64 << 20;

/// The header of a file.
#[derive(Debug, Clone)]
pub struct Header {
    schema: Arc<Schema>,
    schema_json: Arc<[u8]>,
    codec: Codec,
    sync_marker: [u8; SYNC_BYTES],
    header_bytes: u64,
    /// Short metadata entries that Avro does not define.
    metadata: Arc<[(String, String)]>,
}

impl Header {
    /// Reads a header from the beginning of a file, and not a byte more.
    ///
    /// # Errors
    /// [`Error::DamagedFile`] if it is not a header; [`Error::UnsupportedSchema`] for a schema without
    /// columns or an unknown codec; read errors.
    pub fn read(input: &mut impl Read) -> Result<Self> {
        let mut input = CountingInput { input, offset: 0 };
        let begins =
            |at: u64, reason: &str| Error::DamagedFile { offset: at, reason: reason.into() };
        let mut magic = [0; MAGIC.len()];
        let count = input.fill_buffer(&mut magic)?;
        if magic[..count] != *MAGIC {
            let reason = match count {
                0 => "it is empty, and has no schema",
                _ => "it does not begin as an Avro file does",
            };
            return Err(begins(0, reason));
        }
        let (mut json, mut codec) = (None, None);
        let mut properties = Vec::new();
        loop {
            let mut entries = input.read_long()?;
            if entries == 0 {
                break;
            }
            if entries < 0 {
                // The length that follows is for readers that step over the entries.
                input.read_long()?;
                entries = entries.checked_neg().unwrap_or(0);
            }
            for _ in 0..entries {
                let key = input.read_metadata_bytes()?;
                let value = input.read_metadata_bytes()?;
                match key.as_slice() {
                    b"avro.schema" => json = Some(value),
                    b"avro.codec" => codec = Some(value),
                    _ if key.len().max(value.len()) <= METADATA_ENTRY_BYTES_MAX => {
                        properties
                            .extend(String::from_utf8(key).ok().zip(String::from_utf8(value).ok()));
                    }
                    _ => {}
                }
            }
        }
        let Some(json) = json else {
            return Err(begins(4, "its metadata has no `avro.schema`"));
        };
        let codec = match codec {
            None => Codec::Null,
            Some(name) => Codec::from_name(&name).ok_or_else(|| Error::UnsupportedSchema {
                reason: format!(
                    "its codec `{}` is none of null, deflate, snappy, zstandard, bzip2, xz",
                    name.escape_ascii()
                ),
            })?,
        };
        let mut sync = [0; SYNC_BYTES];
        if input.fill_buffer(&mut sync)? < SYNC_BYTES {
            return Err(input.truncation_error());
        }
        let schema = Arc::new(Schema::parse(&json)?);
        let properties = properties.into();
        Ok(Self {
            schema,
            schema_json: json.into(),
            codec,
            sync_marker: sync,
            header_bytes: input.offset,
            metadata: properties,
        })
    }

    /// Returns the columns.
    pub fn schema(&self) -> &SchemaRef {
        self.schema.arrow_schema()
    }

    /// Returns the columns as the schema declares them: see [`Schema::declared_schema`].
    pub fn declared_schema(&self) -> arrow_schema::Schema {
        self.schema.declared_schema()
    }

    /// Returns the schema's JSON as the file has it.
    pub fn schema_json(&self) -> &[u8] {
        &self.schema_json
    }

    /// Returns the value of a metadata key; `None` for keys and values of more than 128 bytes, or that are
    /// not text.
    pub fn metadata_value(&self, key: &str) -> Option<&str> {
        let (_, value) = self.metadata.iter().find(|(own, _)| own == key)?;
        Some(value)
    }

    /// Returns the sync marker, which ends each block.
    pub fn sync_marker(&self) -> &[u8; SYNC_BYTES] {
        &self.sync_marker
    }

    /// Returns the length of the header, where the first block begins.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes
    }
}

/// An input that counts the bytes read.
struct CountingInput<R> {
    input: R,
    offset: u64,
}

impl<R: Read> CountingInput<R> {
    /// Fills a buffer; returns fewer bytes only at the end of the input.
    fn fill_buffer(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match self.input.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    fn truncation_error(&self) -> Error {
        Error::DamagedFile {
            offset: self.offset,
            reason: "it ends in the middle of a block".into(),
        }
    }

    /// Reads a variable-length integer; `None` if the input ends before it.
    fn read_long_or_end(&mut self) -> Result<Option<i64>> {
        let mut bytes = [0; 10];
        for index in 0..bytes.len() {
            if self.fill_buffer(&mut bytes[index..=index])? == 0 {
                return match index {
                    0 => Ok(None),
                    _ => Err(self.truncation_error()),
                };
            }
            if bytes[index] < 0x80 {
                break;
            }
        }
        let value = ValueCursor::new(&bytes, 0, 0).read_long();
        let damaged =
            |reason: &str| Error::DamagedFile { offset: self.offset, reason: reason.into() };
        value.map(Some).map_err(damaged)
    }

    fn read_long(&mut self) -> Result<i64> {
        self.read_long_or_end()?.ok_or_else(|| self.truncation_error())
    }

    /// Reads a metadata key or value with its length.
    fn read_metadata_bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.read_long()?;
        let most = METADATA_BYTES_MAX.saturating_sub(self.offset);
        match u64::try_from(length).ok().filter(|length| *length <= most) {
            Some(length) => {
                let mut bytes = Vec::new();
                self.read_into(length, &mut bytes)?;
                Ok(bytes)
            }
            None => Err(Error::DamagedFile {
                offset: self.offset,
                reason: format!("{length} bytes of metadata"),
            }),
        }
    }

    /// Appends `count` bytes to `out`, which grows as they arrive.
    fn read_into(&mut self, count: u64, out: &mut Vec<u8>) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(READ_STEP_BYTES).min(READ_STEP_BYTES);
            let from = out.len();
            out.resize(from + step, 0);
            if self.fill_buffer(&mut out[from..])? < step {
                return Err(self.truncation_error());
            }
            left -= step as u64;
        }
        Ok(())
    }
}

/// Returns the length of a block, its sync marker included, from its first twenty bytes; `None` if no block
/// begins with them.
pub fn block_length_from_head(head: &[u8]) -> Option<u64> {
    let mut cursor = ValueCursor::new(head, 0, 0);
    let rows = cursor.read_long().ok()?;
    let bytes = u64::try_from(cursor.read_long().ok()?).ok()?;
    let before = (rows >= 0).then_some(cursor.position() as u64)?;
    before.checked_add(bytes)?.checked_add(SYNC_BYTES as u64)
}

/// A reader of consecutive blocks, which returns batches of the wanted columns.
pub struct Reader<R> {
    input: CountingInput<R>,
    header: Header,
    decoder: RowDecoder,
    /// Offset at or after which no block that begins there is read.
    read_until: u64,
    /// Size of the file, if it is known.
    file_size: Option<u64>,
    batch_rows: usize,
    compressed: Vec<u8>,
    current_block: DecompressedBlock,
    /// Offset of the next block.
    next_block_offset: u64,
    is_finished: bool,
}

/// The current block, decompressed.
#[derive(Default)]
struct DecompressedBlock {
    bytes: Vec<u8>,
    position: usize,
    offset: u64,
    row_count: u64,
    rows_left: u64,
}

impl<R: Read> Reader<R> {
    /// Returns a reader of the blocks that begin before `until`. The first of them begins at `start`, where
    /// `input` does. `columns` are positions in the header's schema; `size` is the size of the file,
    /// if it is known.
    ///
    /// # Errors
    /// None yet: the reader reports faults of a block when it reads the block.
    pub fn new(
        input: R,
        header: &Header,
        start: u64,
        until: u64,
        size: Option<u64>,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Self> {
        let decoder = RowDecoder::new(&header.schema, columns);
        let batch_rows = batch_rows.min(decoder.rows_max(BATCH_BYTES)).max(1);
        Ok(Self {
            input: CountingInput { input, offset: start },
            header: header.clone(),
            decoder,
            read_until: until,
            file_size: size,
            batch_rows,
            compressed: Vec::new(),
            current_block: DecompressedBlock::default(),
            next_block_offset: start,
            is_finished: false,
        })
    }

    /// Returns the offset of the next block that has not been started.
    pub fn next_block_offset(&self) -> u64 {
        self.next_block_offset
    }

    /// Returns the next rows, and the length of the blocks that were started for them.
    ///
    /// # Errors
    /// [`Error::DamagedFile`], and read errors.
    pub fn next_batch(&mut self) -> Result<Option<(RecordBatch, u64)>> {
        let begun = self.next_block_offset;
        while !self.is_finished {
            if self.current_block.rows_left == 0 && !self.read_next_block()? {
                self.is_finished = true;
                break;
            }
            let block = &mut self.current_block;
            let rows = self.batch_rows - self.decoder.row_count();
            let rows = u64::try_from(rows).unwrap_or(u64::MAX).min(block.rows_left);
            let mut cursor =
                ValueCursor::new(&block.bytes, block.position, self.decoder.expanded_bytes());
            let decoded = self.decoder.decode_rows(&mut cursor, rows);
            let done = match decoded {
                Ok(done) => done,
                Err((row, column, fault)) => {
                    let row = block.row_count - block.rows_left + row;
                    return Err(Error::DamagedFile {
                        offset: block.offset,
                        reason: format!("row {row} of the block there, column `{column}`: {fault}"),
                    });
                }
            };
            block.position = cursor.position();
            block.rows_left -= done;
            if block.rows_left == 0 && cursor.remaining_bytes() > 0 {
                return Err(Error::DamagedFile {
                    offset: block.offset,
                    reason: format!(
                        "{} bytes behind the rows of the block there",
                        cursor.remaining_bytes()
                    ),
                });
            }
            if self.decoder.row_count() >= self.batch_rows
                || self.decoder.memory_bytes() >= BATCH_BYTES
            {
                break;
            }
        }
        if self.decoder.row_count() == 0 {
            return Ok(None);
        }
        let batch = self.decoder.finish_batch().map_err(|error| Error::DamagedFile {
            offset: self.current_block.offset,
            reason: error.to_string(),
        })?;
        Ok(Some((batch, self.next_block_offset - begun)))
    }

    /// Reads the next block; returns false at the end.
    fn read_next_block(&mut self) -> Result<bool> {
        let offset = self.next_block_offset;
        if offset >= self.read_until {
            return Ok(false);
        }
        let Some(rows) = self.input.read_long_or_end()? else { return Ok(false) };
        let bytes = self.input.read_long()?;
        let damaged = |reason: String| Error::DamagedFile { offset, reason };
        let (Ok(rows), Ok(length)) = (u64::try_from(rows), u64::try_from(bytes)) else {
            return Err(damaged(format!("a block of {rows} rows and {bytes} bytes")));
        };
        let end = self.input.offset.checked_add(length).and_then(|end| end.checked_add(16));
        if end.is_none_or(|end| self.file_size.is_some_and(|size| end > size)) {
            return Err(damaged(format!("a block of {length} bytes, which are not there")));
        }
        let codec = self.header.codec;
        let block = &mut self.current_block;
        let stored = match codec {
            Codec::Null => &mut block.bytes,
            _ => &mut self.compressed,
        };
        stored.clear();
        stored.shrink_to(READ_STEP_BYTES);
        self.input.read_into(length, stored)?;
        let mut sync = [0; SYNC_BYTES];
        if self.input.fill_buffer(&mut sync)? < SYNC_BYTES {
            return Err(self.input.truncation_error());
        }
        if sync != self.header.sync_marker {
            let reason = "the block that begins there does not end with the file's sync marker";
            return Err(damaged(reason.into()));
        }
        if codec != Codec::Null {
            decompress(codec, &self.compressed, &mut block.bytes)
                .map_err(|fault| damaged(fault.into()))?;
        }
        // Decoding would also find too many rows, but slowly.
        let most = match self.decoder.row_bytes_min() {
            0 => u64::MAX,
            least => (block.bytes.len() / least) as u64,
        };
        if rows > most {
            let has = block.bytes.len();
            return Err(damaged(format!("a block of {rows} rows in {has} bytes")));
        }
        *block = DecompressedBlock {
            bytes: std::mem::take(&mut block.bytes),
            position: 0,
            offset,
            row_count: rows,
            rows_left: rows,
        };
        self.next_block_offset = self.input.offset;
        Ok(true)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished && self.decoder.row_count() == 0 {
            return None;
        }
        let next = self.next_batch();
        self.is_finished |= next.is_err();
        next.transpose()
    }
}
