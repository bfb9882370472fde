//! The file around the rows: its header, and block after block.

use std::io::Read;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::codec::{Codec, decompress};
use crate::cursor::Cursor;
use crate::decode::Decoder;
use crate::error::{Error, Result};
use crate::schema::Schema;

pub(crate) const MAGIC: &[u8; 4] = b"Obj\x01";
/// A sync marker's length.
pub const SYNC_BYTES: usize = 16;
/// The metadata of a file, its schema above all, is no longer.
const METADATA_BYTES_MAX: u64 = 64 << 20;
/// Longer keys and values of the metadata are not kept.
const PROPERTY_BYTES_MAX: usize = 128;
/// What is made room for before it has come.
const STEP_BYTES: usize = 8 << 20;
/// A batch is handed over when it takes so much memory.
const BATCH_BYTES: usize = 64 << 20;

/// What a file begins with.
#[derive(Debug, Clone)]
pub struct Header {
    schema: Arc<Schema>,
    json: Arc<[u8]>,
    codec: Codec,
    sync: [u8; SYNC_BYTES],
    length: u64,
    /// Metadata of short keys and values that are not Avro's own.
    properties: Arc<[(String, String)]>,
}

impl Header {
    /// Reads a header from the beginning of a file, and not a byte beyond it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is none; [`Error::Unreadable`] for a schema without columns or a
    /// codec that is not known; those of reading.
    pub fn read(input: &mut impl Read) -> Result<Self> {
        let mut input = Bytes { input, at: 0 };
        let begins = |at: u64, reason: &str| Error::Damaged { offset: at, reason: reason.into() };
        let mut magic = [0; MAGIC.len()];
        let count = input.fill(&mut magic)?;
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
            let mut entries = input.long()?;
            if entries == 0 {
                break;
            }
            if entries < 0 {
                // The length that follows is for whoever steps over it.
                input.long()?;
                entries = entries.checked_neg().unwrap_or(0);
            }
            for _ in 0..entries {
                let key = input.bytes()?;
                let value = input.bytes()?;
                match key.as_slice() {
                    b"avro.schema" => json = Some(value),
                    b"avro.codec" => codec = Some(value),
                    _ if key.len().max(value.len()) <= PROPERTY_BYTES_MAX => {
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
            Some(name) => Codec::named(&name).ok_or_else(|| Error::Unreadable {
                reason: format!(
                    "its codec `{}` is none of null, deflate, snappy, zstandard, bzip2, xz",
                    name.escape_ascii()
                ),
            })?,
        };
        let mut sync = [0; SYNC_BYTES];
        if input.fill(&mut sync)? < SYNC_BYTES {
            return Err(input.short());
        }
        let schema = Arc::new(Schema::parse(&json)?);
        let properties = properties.into();
        Ok(Self { schema, json: json.into(), codec, sync, length: input.at, properties })
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        self.schema.arrow()
    }

    /// The columns as the schema declares them: see [`Schema::declared`].
    pub fn declared(&self) -> arrow_schema::Schema {
        self.schema.declared()
    }

    /// The schema as the file has it.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the value of a key of the metadata; none for keys and values of more than 128 bytes, or that are no text.
    pub fn property(&self, key: &str) -> Option<&str> {
        let (_, value) = self.properties.iter().find(|(own, _)| own == key)?;
        Some(value)
    }

    /// What stands behind each block.
    pub fn sync(&self) -> &[u8; SYNC_BYTES] {
        &self.sync
    }

    /// Where the first block begins.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Bytes from a place in a file on.
struct Bytes<R> {
    input: R,
    at: u64,
}

impl<R: Read> Bytes<R> {
    /// Fewer bytes than asked for only at the end.
    fn fill(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match self.input.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    fn short(&self) -> Error {
        Error::Damaged { offset: self.at, reason: "it ends in the middle of a block".into() }
    }

    /// A variable-length integer; none where the input ends before it.
    fn maybe_long(&mut self) -> Result<Option<i64>> {
        let mut bytes = [0; 10];
        for index in 0..bytes.len() {
            if self.fill(&mut bytes[index..=index])? == 0 {
                return match index {
                    0 => Ok(None),
                    _ => Err(self.short()),
                };
            }
            if bytes[index] < 0x80 {
                break;
            }
        }
        let value = Cursor::new(&bytes, 0, 0).long();
        let damaged = |reason: &str| Error::Damaged { offset: self.at, reason: reason.into() };
        value.map(Some).map_err(damaged)
    }

    fn long(&mut self) -> Result<i64> {
        self.maybe_long()?.ok_or_else(|| self.short())
    }

    /// Metadata behind its length.
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.long()?;
        let most = METADATA_BYTES_MAX.saturating_sub(self.at);
        match u64::try_from(length).ok().filter(|length| *length <= most) {
            Some(length) => {
                let mut bytes = Vec::new();
                self.append(length, &mut bytes)?;
                Ok(bytes)
            }
            None => Err(Error::Damaged {
                offset: self.at,
                reason: format!("{length} bytes of metadata"),
            }),
        }
    }

    /// Appends so many bytes, for which room is made as they come.
    fn append(&mut self, count: u64, out: &mut Vec<u8>) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(STEP_BYTES).min(STEP_BYTES);
            let from = out.len();
            out.resize(from + step, 0);
            if self.fill(&mut out[from..])? < step {
                return Err(self.short());
            }
            left -= step as u64;
        }
        Ok(())
    }
}

/// The length of a block, its sync marker included, from its first twenty bytes; none if they are
/// no block's.
pub fn block_bytes(head: &[u8]) -> Option<u64> {
    let mut cursor = Cursor::new(head, 0, 0);
    let rows = cursor.long().ok()?;
    let bytes = u64::try_from(cursor.long().ok()?).ok()?;
    let before = (rows >= 0).then_some(cursor.at() as u64)?;
    before.checked_add(bytes)?.checked_add(SYNC_BYTES as u64)
}

/// Reads blocks one after another, as batches of the wanted columns.
pub struct Reader<R> {
    input: Bytes<R>,
    header: Header,
    decoder: Decoder,
    /// Blocks that begin here or behind are not read.
    until: u64,
    /// Where the file ends, if that is known.
    size: Option<u64>,
    batch_rows: usize,
    stored: Vec<u8>,
    block: Block,
    /// Where the next block begins.
    next_block: u64,
    is_over: bool,
}

/// The block that is being read, decompressed.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    at: usize,
    offset: u64,
    rows: u64,
    rows_left: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the blocks that begin before `until`, the first of which begins at `start`, where
    /// `input` does. `columns` are positions in the header's schema; `size` is where the file
    /// ends, if that is known.
    ///
    /// # Errors
    /// None yet: what is wrong with a block is told when it is read.
    pub fn new(
        input: R,
        header: &Header,
        start: u64,
        until: u64,
        size: Option<u64>,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Self> {
        let decoder = Decoder::new(&header.schema, columns);
        let batch_rows = batch_rows.min(decoder.rows_max(BATCH_BYTES)).max(1);
        Ok(Self {
            input: Bytes { input, at: start },
            header: header.clone(),
            decoder,
            until,
            size,
            batch_rows,
            stored: Vec::new(),
            block: Block::default(),
            next_block: start,
            is_over: false,
        })
    }

    /// Where the next block begins that has not been begun.
    pub fn next_block(&self) -> u64 {
        self.next_block
    }

    /// The next rows, and the bytes of the blocks that were begun for them.
    ///
    /// # Errors
    /// [`Error::Damaged`], and those of reading.
    pub fn next_batch(&mut self) -> Result<Option<(RecordBatch, u64)>> {
        let begun = self.next_block;
        while !self.is_over {
            if self.block.rows_left == 0 && !self.next()? {
                self.is_over = true;
                break;
            }
            let block = &mut self.block;
            let rows = self.batch_rows - self.decoder.rows();
            let rows = u64::try_from(rows).unwrap_or(u64::MAX).min(block.rows_left);
            let mut cursor = Cursor::new(&block.bytes, block.at, self.decoder.expanded());
            let decoded = self.decoder.decode(&mut cursor, rows);
            let done = match decoded {
                Ok(done) => done,
                Err((row, column, fault)) => {
                    let row = block.rows - block.rows_left + row;
                    return Err(Error::Damaged {
                        offset: block.offset,
                        reason: format!("row {row} of the block there, column `{column}`: {fault}"),
                    });
                }
            };
            block.at = cursor.at();
            block.rows_left -= done;
            if block.rows_left == 0 && cursor.left() > 0 {
                return Err(Error::Damaged {
                    offset: block.offset,
                    reason: format!("{} bytes behind the rows of the block there", cursor.left()),
                });
            }
            if self.decoder.rows() >= self.batch_rows || self.decoder.bytes() >= BATCH_BYTES {
                break;
            }
        }
        if self.decoder.rows() == 0 {
            return Ok(None);
        }
        let batch = self.decoder.finish().map_err(|error| Error::Damaged {
            offset: self.block.offset,
            reason: error.to_string(),
        })?;
        Ok(Some((batch, self.next_block - begun)))
    }

    /// Reads the next block; false at the end.
    fn next(&mut self) -> Result<bool> {
        let offset = self.next_block;
        if offset >= self.until {
            return Ok(false);
        }
        let Some(rows) = self.input.maybe_long()? else { return Ok(false) };
        let bytes = self.input.long()?;
        let damaged = |reason: String| Error::Damaged { offset, reason };
        let (Ok(rows), Ok(length)) = (u64::try_from(rows), u64::try_from(bytes)) else {
            return Err(damaged(format!("a block of {rows} rows and {bytes} bytes")));
        };
        let end = self.input.at.checked_add(length).and_then(|end| end.checked_add(16));
        if end.is_none_or(|end| self.size.is_some_and(|size| end > size)) {
            return Err(damaged(format!("a block of {length} bytes, which are not there")));
        }
        let codec = self.header.codec;
        let block = &mut self.block;
        let stored = match codec {
            Codec::Null => &mut block.bytes,
            _ => &mut self.stored,
        };
        stored.clear();
        stored.shrink_to(STEP_BYTES);
        self.input.append(length, stored)?;
        let mut sync = [0; SYNC_BYTES];
        if self.input.fill(&mut sync)? < SYNC_BYTES {
            return Err(self.input.short());
        }
        if sync != self.header.sync {
            let reason = "the block that begins there does not end with the file's sync marker";
            return Err(damaged(reason.into()));
        }
        if codec != Codec::Null {
            decompress(codec, &self.stored, &mut block.bytes)
                .map_err(|fault| damaged(fault.into()))?;
        }
        // More rows than bytes would be found out, but slowly.
        let most = match self.decoder.row_bytes_min() {
            0 => u64::MAX,
            least => (block.bytes.len() / least) as u64,
        };
        if rows > most {
            let has = block.bytes.len();
            return Err(damaged(format!("a block of {rows} rows in {has} bytes")));
        }
        *block =
            Block { bytes: std::mem::take(&mut block.bytes), at: 0, offset, rows, rows_left: rows };
        self.next_block = self.input.at;
        Ok(true)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over && self.decoder.rows() == 0 {
            return None;
        }
        let next = self.next_batch();
        self.is_over |= next.is_err();
        next.transpose()
    }
}
