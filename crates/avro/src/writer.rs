//! Writer of container files.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema};
use md5::{Digest, Md5};

use crate::codec::{Codec, Compressor};
use crate::container::{MAGIC, SYNC_BYTES};
use crate::error::Result;
use crate::row_encoder::{self, RowEncoder, write_bytes, write_long};

/// Length of a block's rows at which the writer writes the block.
const BLOCK_BYTES_TARGET: usize = 64 << 10;

/// Checks that columns can be written.
///
/// # Errors
/// [`Error::UnsupportedColumn`](crate::Error::UnsupportedColumn) with the column and a hint.
pub fn check_schema(schema: &Schema) -> Result<()> {
    row_encoder::avro_schema_of(schema.fields()).map(|_| ())
}

/// A writer of batches into one file.
pub struct Writer<W> {
    out: W,
    fields: Fields,
    schema_json: String,
    codec: Codec,
    compressor: Compressor,
    /// `None` until the header is written, since the marker depends on the first block.
    sync_marker: Option<[u8; SYNC_BYTES]>,
    block: Vec<u8>,
    block_rows: i64,
    compressed: Vec<u8>,
    block_head: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Returns a writer of a file with these columns.
    ///
    /// # Errors
    /// [`Error::UnsupportedColumn`](crate::Error::UnsupportedColumn), and errors of the codec.
    pub fn new(out: W, schema: &Schema, codec: Codec) -> Result<Self> {
        Ok(Self {
            out,
            fields: schema.fields().clone(),
            schema_json: row_encoder::avro_schema_of(schema.fields())?.to_string(),
            codec,
            compressor: Compressor::new(codec)?,
            sync_marker: None,
            block: Vec::new(),
            block_rows: 0,
            compressed: Vec::new(),
            block_head: Vec::new(),
        })
    }

    /// Adds rows with the columns of the file.
    ///
    /// # Errors
    /// [`Error::UnrepresentableValue`](crate::Error::UnrepresentableValue), and write errors.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let fields = self.fields.clone();
        let rows = RowEncoder::new(batch, &fields)?;
        for row in 0..batch.num_rows() {
            rows.encode_row(row, &mut self.block)?;
            self.block_rows += 1;
            if self.block.len() >= BLOCK_BYTES_TARGET {
                self.write_block()?;
            }
        }
        Ok(())
    }

    /// Writes the rows that wait for their block to fill.
    ///
    /// # Errors
    /// Write errors.
    pub fn flush(&mut self) -> Result<()> {
        if self.block_rows > 0 {
            self.write_block()?;
        }
        Ok(self.out.flush()?)
    }

    /// Ends the file and returns the output.
    ///
    /// # Errors
    /// Write errors.
    pub fn finish(mut self) -> Result<W> {
        if self.block_rows > 0 {
            self.write_block()?;
        }
        // A file without rows consists of a header.
        self.write_header()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_header(&mut self) -> Result<[u8; SYNC_BYTES]> {
        if let Some(sync) = self.sync_marker {
            return Ok(sync);
        }
        let mut hash = Md5::new();
        for part in [self.schema_json.as_bytes(), self.codec.name().as_bytes(), &self.block] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let sync: [u8; SYNC_BYTES] = hash.finalize().into();
        let mut header = MAGIC.to_vec();
        write_long(2, &mut header);
        write_bytes(b"avro.schema", &mut header);
        write_bytes(self.schema_json.as_bytes(), &mut header);
        write_bytes(b"avro.codec", &mut header);
        write_bytes(self.codec.name().as_bytes(), &mut header);
        write_long(0, &mut header);
        header.extend_from_slice(&sync);
        self.out.write_all(&header)?;
        self.sync_marker = Some(sync);
        Ok(sync)
    }

    fn write_block(&mut self) -> Result<()> {
        let sync = self.write_header()?;
        self.compressor.compress(&self.block, &mut self.compressed)?;
        self.block_head.clear();
        write_long(self.block_rows, &mut self.block_head);
        write_long(self.compressed.len() as i64, &mut self.block_head);
        self.out.write_all(&self.block_head)?;
        self.out.write_all(&self.compressed)?;
        self.out.write_all(&sync)?;
        self.block.clear();
        self.block_rows = 0;
        Ok(())
    }
}
