//! Writes a file.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema};
use md5::{Digest, Md5};

use crate::codec::{Codec, Compressor};
use crate::container::{MAGIC, SYNC_BYTES};
use crate::encode::{self, BatchRows, bytes, long};
use crate::error::Result;

/// A block is written when its rows are so long.
const BLOCK_BYTES: usize = 64 << 10;

/// Whether columns can be written.
///
/// # Errors
/// [`Error::Unwritable`](crate::Error::Unwritable) with the column and what to do.
pub fn check(schema: &Schema) -> Result<()> {
    encode::schema(schema.fields()).map(|_| ())
}

/// Writes batches as one file.
pub struct Writer<W> {
    out: W,
    fields: Fields,
    json: String,
    codec: Codec,
    compressor: Compressor,
    /// None until the header is written, which the first block has a say in.
    sync: Option<[u8; SYNC_BYTES]>,
    block: Vec<u8>,
    rows: i64,
    stored: Vec<u8>,
    scratch: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file of these columns.
    ///
    /// # Errors
    /// [`Error::Unwritable`](crate::Error::Unwritable), and what the codec cannot do.
    pub fn new(out: W, schema: &Schema, codec: Codec) -> Result<Self> {
        Ok(Self {
            out,
            fields: schema.fields().clone(),
            json: encode::schema(schema.fields())?.to_string(),
            codec,
            compressor: Compressor::new(codec)?,
            sync: None,
            block: Vec::new(),
            rows: 0,
            stored: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Adds rows, whose columns are those of the file.
    ///
    /// # Errors
    /// [`Error::Value`](crate::Error::Value), and those of writing.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let fields = self.fields.clone();
        let rows = BatchRows::new(batch, &fields)?;
        for row in 0..batch.num_rows() {
            rows.encode(row, &mut self.block)?;
            self.rows += 1;
            if self.block.len() >= BLOCK_BYTES {
                self.write_block()?;
            }
        }
        Ok(())
    }

    /// Hands on the rows that wait for their block to be full.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> Result<()> {
        if self.rows > 0 {
            self.write_block()?;
        }
        Ok(self.out.flush()?)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<W> {
        if self.rows > 0 {
            self.write_block()?;
        }
        // A file without rows is a header.
        self.header()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(&mut self) -> Result<[u8; SYNC_BYTES]> {
        if let Some(sync) = self.sync {
            return Ok(sync);
        }
        let mut hash = Md5::new();
        for part in [self.json.as_bytes(), self.codec.name().as_bytes(), &self.block] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let sync: [u8; SYNC_BYTES] = hash.finalize().into();
        let mut header = MAGIC.to_vec();
        long(2, &mut header);
        bytes(b"avro.schema", &mut header);
        bytes(self.json.as_bytes(), &mut header);
        bytes(b"avro.codec", &mut header);
        bytes(self.codec.name().as_bytes(), &mut header);
        long(0, &mut header);
        header.extend_from_slice(&sync);
        self.out.write_all(&header)?;
        self.sync = Some(sync);
        Ok(sync)
    }

    fn write_block(&mut self) -> Result<()> {
        let sync = self.header()?;
        self.compressor.compress(&self.block, &mut self.stored)?;
        self.scratch.clear();
        long(self.rows, &mut self.scratch);
        long(self.stored.len() as i64, &mut self.scratch);
        self.out.write_all(&self.scratch)?;
        self.out.write_all(&self.stored)?;
        self.out.write_all(&sync)?;
        self.block.clear();
        self.rows = 0;
        Ok(())
    }
}
