//! The writer of one file in any of the formats.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use parking_lot::Mutex;
use tidemill_source::programs::filter_program::{self, FilterProgram, ProgramWriter};

use crate::OutputFormat;
use crate::error::{Error, Result};
use crate::formats::line_format::LineFormat;
use crate::formats::{BatchEncoder, EncodeError, FileEncoding};
use crate::writing::compression::{CompressedWriter, OutputCodec};
use crate::writing::encoder_output::{EncoderOutput, ErrorTrackingWriter};

/// The format, encoding and filter program with which an output's files are written.
#[derive(Clone)]
pub(crate) struct FileWriteSpec {
    pub(crate) format: OutputFormat,
    pub(crate) encoding: FileEncoding,
    /// The program that the encoded bytes pass through.
    pub(crate) program: Option<FilterProgram>,
}

impl FileWriteSpec {
    /// Returns the line format, if bytes can be appended to a file.
    pub(crate) fn line_format(&self) -> Option<Box<dyn LineFormat>> {
        // A program needs a whole file.
        if self.program.is_some() { None } else { self.format.line_format(&self.encoding) }
    }
}

/// The receiver of encoded and compressed bytes: the output itself, or a program in front of it.
enum ProgramFilterWriter<W: Write> {
    Direct(W),
    ThroughProgram(Box<ProgramWriter<W>>),
}

impl<W: Write> ProgramFilterWriter<W> {
    fn new(out: W, writing: &FileWriteSpec) -> filter_program::Result<Self> {
        let encoding = &writing.encoding;
        Ok(match &writing.program {
            None => ProgramFilterWriter::Direct(out),
            Some(program) => {
                let through =
                    ProgramWriter::start(program, &encoding.output_name, out, &encoding.cancel)?;
                ProgramFilterWriter::ThroughProgram(Box::new(through))
            }
        })
    }

    fn finish(self) -> filter_program::Result<W> {
        match self {
            ProgramFilterWriter::Direct(out) => Ok(out),
            ProgramFilterWriter::ThroughProgram(through) => through.finish(),
        }
    }
}

impl<W: Write> Write for ProgramFilterWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ProgramFilterWriter::Direct(out) => out.write(bytes),
            ProgramFilterWriter::ThroughProgram(through) => through.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ProgramFilterWriter::Direct(out) => out.flush(),
            ProgramFilterWriter::ThroughProgram(through) => through.flush(),
        }
    }
}

/// Writes one file, or a stream, in a format. Rows are written as they come; [`BatchEncoder`] states how many
/// of them it holds back.
pub(crate) struct RowWriter<W: Write + Send + 'static> {
    encoder: Box<dyn BatchEncoder>,
    /// Cuts rows into equal batches, if the file's bytes depend on batch boundaries.
    batch_cutter: Option<BatchCutter>,
    out: Arc<Mutex<ErrorTrackingWriter<CompressedWriter<ProgramFilterWriter<W>>>>>,
    schema: SchemaRef,
    /// The name of the output in errors.
    output_name: String,
}

impl<W: Write + Send + 'static> RowWriter<W> {
    /// Begins a file. Writes the header even if no row follows.
    pub(crate) fn new(out: W, writing: &FileWriteSpec, schema: SchemaRef) -> Result<Self> {
        let encoding = &writing.encoding;
        let name = encoding.output_name.as_str();
        let around = match writing.format.is_binary() {
            true => OutputCodec::None,
            false => encoding.codec,
        };
        let out = CompressedWriter::new(ProgramFilterWriter::new(out, writing)?, around)
            .map_err(|error| Error::io("compress", name, error))?;
        let out = Arc::new(Mutex::new(ErrorTrackingWriter { first_error: None, out }));
        let encoder = writing.format.new_encoder(EncoderOutput::new(&out), &schema, encoding);
        let encoder = encoder.map_err(|error| output_error(error, &mut out.lock(), name))?;
        let cut = BatchCutter::new_if_needed(writing, &schema);
        Ok(RowWriter { encoder, batch_cutter: cut, out, schema, output_name: name.to_owned() })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// [`Error::Io`] if the output refuses them, or its reader has gone; a value that the format cannot hold.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = conform_to_schema(batch, &self.schema)?;
        let written = match &mut self.batch_cutter {
            Some(cut) => cut.write(&batch, self.encoder.as_mut()),
            None => self.encoder.write(&batch),
        };
        written.map_err(|error| output_error(error, &mut self.out.lock(), &self.output_name))
    }

    /// Ends the file: writes footers and flushes everything to the output.
    ///
    /// # Errors
    /// Returns the errors of [`write`](Self::write).
    pub(crate) fn finish(self) -> Result<W> {
        let RowWriter { mut encoder, batch_cutter: cut, out, output_name: name, .. } = self;
        let rest = cut.map_or(Ok(()), |mut cut| cut.flush_batch(encoder.as_mut()));
        let ended = rest.and_then(|()| encoder.finish());
        ended.map_err(|error| output_error(error, &mut out.lock(), &name))?;
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

/// Collects rows into batches of [`CUT_BATCH_ROWS`] rows, except for the last. The bytes of a file are then
/// the same, whether memory, splits or a cluster determine the incoming batches.
struct BatchCutter {
    schema: SchemaRef,
    waiting_batches: Vec<RecordBatch>,
    waiting_rows: usize,
}

/// Number of rows in each batch.
const CUT_BATCH_ROWS: usize = 8192;

impl BatchCutter {
    /// Returns `None` if bytes do not depend on batch boundaries, for streams, which are read as they come,
    /// and for dictionaries, of which each batch has its own.
    fn new_if_needed(writing: &FileWriteSpec, schema: &SchemaRef) -> Option<Self> {
        let is_cut = writing.format.depends_on_batch_boundaries() && !writing.encoding.is_stream;
        let has_dictionary = schema
            .flattened_fields()
            .iter()
            .any(|field| matches!(field.data_type(), DataType::Dictionary(_, _)));
        let schema = Arc::clone(schema);
        (is_cut && !has_dictionary).then(|| BatchCutter {
            schema,
            waiting_batches: Vec::new(),
            waiting_rows: 0,
        })
    }

    fn write(
        &mut self,
        batch: &RecordBatch,
        encoder: &mut dyn BatchEncoder,
    ) -> Result<(), EncodeError> {
        let mut at = 0;
        while at < batch.num_rows() {
            let count = (CUT_BATCH_ROWS - self.waiting_rows).min(batch.num_rows() - at);
            self.waiting_batches.push(batch.slice(at, count));
            (at, self.waiting_rows) = (at + count, self.waiting_rows + count);
            if self.waiting_rows == CUT_BATCH_ROWS {
                self.flush_batch(encoder)?;
            }
        }
        Ok(())
    }

    fn flush_batch(&mut self, encoder: &mut dyn BatchEncoder) -> Result<(), EncodeError> {
        self.waiting_rows = 0;
        let waiting = std::mem::take(&mut self.waiting_batches);
        match waiting.as_slice() {
            [] => Ok(()),
            [one] => encoder.write(one),
            many => encoder.write(&concat_batches(&self.schema, many)?),
        }
    }
}

/// Returns the error for the user: the first error of the output, if there was one, else the encoder's.
fn output_error<W>(error: EncodeError, out: &mut ErrorTrackingWriter<W>, name: &str) -> Error {
    out.first_error.take().map_or(error, EncodeError::Output).into_sink_error(name)
}

/// Returns the batch under the sink's schema. Batches of one stream may differ in nullability and
/// metadata, which the writers of Arrow and Parquet refuse.
pub(crate) fn conform_to_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options).map_err(
        |error| Error::Internal(format!("a batch does not have the schema of its sink: {error}")),
    )
}
