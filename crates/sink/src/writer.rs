//! The writer of one file in any of the formats.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use parking_lot::Mutex;
use tidemill_source::filter_program::{self, FilterProgram, ProgramWriter};

use super::OutputFormat;
use super::compression::{Codec, Compressed};
use super::error::{Error, Result};
use super::formats::lines::LineFormat;
use super::formats::{EncodeError, Encoder, Encoding};
use super::out::{Out, Tracked};

/// How the files of an output are written.
#[derive(Clone)]
pub(super) struct Writing {
    pub(super) format: OutputFormat,
    pub(super) encoding: Encoding,
    /// What the encoded bytes go through.
    pub(super) exec: Option<FilterProgram>,
}

impl Writing {
    /// The line format, where bytes can be appended to a file.
    pub(super) fn lines(&self) -> Option<Box<dyn LineFormat>> {
        // A program is given a whole file.
        if self.exec.is_some() { None } else { self.format.lines(&self.encoding) }
    }
}

/// Where encoded and compressed bytes go.
enum Encoded<W: Write> {
    Plain(W),
    Through(Box<ProgramWriter<W>>),
}

impl<W: Write> Encoded<W> {
    fn new(out: W, writing: &Writing) -> filter_program::Result<Self> {
        let encoding = &writing.encoding;
        Ok(match &writing.exec {
            None => Encoded::Plain(out),
            Some(program) => {
                let through = ProgramWriter::start(program, &encoding.name, out, &encoding.cancel)?;
                Encoded::Through(Box::new(through))
            }
        })
    }

    fn finish(self) -> filter_program::Result<W> {
        match self {
            Encoded::Plain(out) => Ok(out),
            Encoded::Through(through) => through.finish(),
        }
    }
}

impl<W: Write> Write for Encoded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoded::Plain(out) => out.write(bytes),
            Encoded::Through(through) => through.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoded::Plain(out) => out.flush(),
            Encoded::Through(through) => through.flush(),
        }
    }
}

/// Writes one file, or a stream, in a format. Rows are written as they come; how much of them waits is said at
/// [`Encoder`].
pub(super) struct RowWriter<W: Write + Send + 'static> {
    encoder: Box<dyn Encoder>,
    /// Where bytes depend on how rows are cut into batches.
    cut: Option<Cut>,
    out: Arc<Mutex<Tracked<Compressed<Encoded<W>>>>>,
    schema: SchemaRef,
    /// What errors call the output.
    name: String,
}

impl<W: Write + Send + 'static> RowWriter<W> {
    /// Begins a file: the header is written even if no row follows.
    pub(super) fn new(out: W, writing: &Writing, schema: SchemaRef) -> Result<Self> {
        let encoding = &writing.encoding;
        let name = encoding.name.as_str();
        let around = match writing.format.is_binary() {
            true => Codec::None,
            false => encoding.codec,
        };
        let out = Compressed::new(Encoded::new(out, writing)?, around)
            .map_err(|error| Error::io("compress", name, error))?;
        let out = Arc::new(Mutex::new(Tracked { failure: None, out }));
        let encoder = writing.format.encoder(Out::new(&out), &schema, encoding);
        let encoder = encoder.map_err(|error| told(error, &mut out.lock(), name))?;
        let cut = Cut::of(writing, &schema);
        Ok(RowWriter { encoder, cut, out, schema, name: name.to_owned() })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// [`Error::Io`] where the output refuses them, or its reader has gone; a value that the format cannot hold.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = conform(batch, &self.schema)?;
        let written = match &mut self.cut {
            Some(cut) => cut.write(&batch, self.encoder.as_mut()),
            None => self.encoder.write(&batch),
        };
        written.map_err(|error| told(error, &mut self.out.lock(), &self.name))
    }

    /// Ends the file: footers are written and everything is flushed to the output.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(super) fn finish(self) -> Result<W> {
        let RowWriter { mut encoder, cut, out, name, .. } = self;
        let rest = cut.map_or(Ok(()), |mut cut| cut.put(encoder.as_mut()));
        let ended = rest.and_then(|()| encoder.finish());
        ended.map_err(|error| told(error, &mut out.lock(), &name))?;
        let alone = Arc::into_inner(out);
        let alone = alone.ok_or_else(|| Error::Internal("an output is still written to".into()))?;
        let mut out = alone.into_inner().out;
        let refused = |error| Error::io("write", &name, error);
        out.flush().map_err(refused)?;
        let mut out = out.finish().map_err(refused)?.finish()?;
        out.flush().map_err(refused)?;
        Ok(out)
    }
}

/// Batches of so many rows each, but the last: however rows come, by batches that memory, splits or a cluster have made, a
/// file of them has the same bytes.
struct Cut {
    schema: SchemaRef,
    waiting: Vec<RecordBatch>,
    rows: usize,
}

/// The rows of a batch.
const CUT_ROWS: usize = 8192;

impl Cut {
    /// None where bytes do not depend on batches, for what is read as it comes, and where each batch has dictionaries of its
    /// own.
    fn of(writing: &Writing, schema: &SchemaRef) -> Option<Self> {
        let is_cut = writing.format.depends_on_batches() && !writing.encoding.is_stream;
        let has_dictionary = schema
            .flattened_fields()
            .iter()
            .any(|field| matches!(field.data_type(), DataType::Dictionary(_, _)));
        let schema = Arc::clone(schema);
        (is_cut && !has_dictionary).then(|| Cut { schema, waiting: Vec::new(), rows: 0 })
    }

    fn write(&mut self, batch: &RecordBatch, encoder: &mut dyn Encoder) -> Result<(), EncodeError> {
        let mut at = 0;
        while at < batch.num_rows() {
            let count = (CUT_ROWS - self.rows).min(batch.num_rows() - at);
            self.waiting.push(batch.slice(at, count));
            (at, self.rows) = (at + count, self.rows + count);
            if self.rows == CUT_ROWS {
                self.put(encoder)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, encoder: &mut dyn Encoder) -> Result<(), EncodeError> {
        self.rows = 0;
        let waiting = std::mem::take(&mut self.waiting);
        match waiting.as_slice() {
            [] => Ok(()),
            [one] => encoder.write(one),
            many => encoder.write(&concat_batches(&self.schema, many)?),
        }
    }
}

/// What the user is told: what the output said first, if it did.
fn told<W>(error: EncodeError, out: &mut Tracked<W>, name: &str) -> Error {
    out.failure.take().map_or(error, EncodeError::Output).told(name)
}

/// The batch under the sink's schema: batches of one stream may differ in nullability and
/// metadata, which the writers of Arrow and Parquet refuse.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options).map_err(
        |error| Error::Internal(format!("a batch does not have the schema of its sink: {error}")),
    )
}
