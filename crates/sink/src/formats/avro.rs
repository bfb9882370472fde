//! Avro object container files.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_avro as avro;

use super::{EncodeError, Encoder, Encoding, FileFormat, refuse_depth};
use crate::compression::{Choice, Codec, leveled, plain};
use crate::error::{Error, Result};
use crate::out::Out;

/// How deep it is read here.
const DEPTH_MAX: usize = 31;

pub(super) struct Avro;

impl FileFormat for Avro {
    fn name(&self) -> &str {
        "avro"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["avro"]
    }

    fn codecs(&self) -> &'static [Choice] {
        const {
            &[
                leveled("deflate", 0, 9, 1),
                plain("none"),
                plain("snappy"),
                leveled("zstd", 1, 22, 1),
                leveled("bzip2", 1, 9, 9),
                leveled("xz", 0, 9, 6),
            ]
        }
    }

    fn depends_on_batches(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        refuse_depth(self.name(), schema, DEPTH_MAX)?;
        avro::check_schema(schema).map_err(|error| match error {
            avro::Error::UnsupportedColumn { column, reason, hint } => {
                let message = format!("avro cannot hold this result: column `{column}` {reason}");
                Error::usage_hint(message, hint)
            }
            other => Error::usage(format!("avro cannot hold this result: {other}")),
        })
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        let codec = match encoding.codec {
            Codec::None => avro::Codec::Null,
            Codec::Deflate(level) => avro::Codec::Deflate(level),
            Codec::Snappy => avro::Codec::Snappy,
            Codec::Zstd(level) => avro::Codec::Zstandard(Codec::signed(level)),
            Codec::Bzip2(level) => avro::Codec::Bzip2(level),
            Codec::Xz(level) => avro::Codec::Xz(level),
            other => return Err(EncodeError::Encoder(format!("avro with {other:?}"))),
        };
        Ok(Box::new(avro::Writer::new(out, schema, codec)?))
    }
}

impl Encoder for avro::Writer<Out> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        Ok(avro::Writer::write(self, batch)?)
    }

    fn finish(self: Box<Self>) -> Result<(), EncodeError> {
        avro::Writer::finish(*self)?;
        Ok(())
    }
}

impl From<avro::Error> for EncodeError {
    fn from(error: avro::Error) -> Self {
        match error {
            avro::Error::Io(error) => EncodeError::Output(error),
            other => EncodeError::Unwritable(other.to_string()),
        }
    }
}
