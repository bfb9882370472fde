//! Access logs of web servers, in the Common or Combined Log Format.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::Decode;
use tidemill_text::access_log::{self, AccessLogDecoder};

use super::fixed;
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::SourceSpec;
use crate::columns::Columns;
use crate::dialect::Dialect;
use crate::error::Result;
use crate::sample::Sample;

const NAME: &str = "access-log";

/// The format.
pub(super) struct AccessLog;

impl FileFormat for AccessLog {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Text(self)
    }
}

impl TextFormat for AccessLog {
    fn columns(&self, _: &SourceSpec, _: &mut Sample<'_>) -> Result<Columns> {
        Ok(Columns::uniform(access_log::columns()))
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, _: &Dialect) -> Result<()> {
        fixed::settle(columns, wanted, NAME)
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn Decode>, FieldRef> {
        Ok(Box::new(AccessLogDecoder::new(of.columns, of.options)?))
    }
}
