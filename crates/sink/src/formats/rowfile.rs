//! Rows whose schema stands once (`docs/formats/rowfile.md`).

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_rowfile as rowfile;

use super::{EncodeError, Encoder, Encoding, FileFormat, refuse_equal_names};
use crate::compression::{Choice, Codec, leveled, plain};
use crate::error::{Error, Result};
use crate::out::Out;

pub(super) struct Rowfile;

impl FileFormat for Rowfile {
    fn name(&self) -> &str {
        "rowfile"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["rowfile"]
    }

    fn codecs(&self) -> &'static [Choice] {
        const { &[leveled("zstd", 1, 22, 1), plain("none"), plain("lz4")] }
    }

    fn keeps_columns(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        refuse_equal_names(self.name(), schema)?;
        rowfile::Schema::from_arrow(schema).map_err(|error| {
            Error::usage_hint(
                format!("rowfile cannot hold this result: {error}"),
                "cast the column, or write `arrow`",
            )
        })?;
        Ok(())
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        let codec = match encoding.codec {
            Codec::None => rowfile::Codec::None,
            Codec::Lz4 => rowfile::Codec::Lz4,
            Codec::Zstd(level) => rowfile::Codec::Zstd(Codec::signed(level)),
            other => return Err(EncodeError::Encoder(format!("rowfile with {other:?}"))),
        };
        let options = rowfile::WriteOptions { codec, ..rowfile::WriteOptions::default() };
        let rows = rowfile::Schema::from_arrow(schema)?;
        Ok(Box::new(rowfile::Writer::new(out, &rows, options)?))
    }
}

impl Encoder for rowfile::Writer<Out> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        Ok(rowfile::Writer::write(self, batch)?)
    }

    fn finish(self: Box<Self>) -> Result<(), EncodeError> {
        rowfile::Writer::finish(*self)?;
        Ok(())
    }
}

impl From<rowfile::Error> for EncodeError {
    fn from(error: rowfile::Error) -> Self {
        match error {
            rowfile::Error::Io { error, .. } => EncodeError::Output(error),
            other => EncodeError::Unwritable(other.to_string()),
        }
    }
}
