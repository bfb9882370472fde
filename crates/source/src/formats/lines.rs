//! Plain lines of text, as one column `line`.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::BlockDecoder;
use tidemill_text::lines::{self, LinesDecoder};

use super::fixed;
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::SourceSpec;
use crate::columns::Columns;
use crate::error::Result;
use crate::sample::Sample;

const NAME: &str = "lines";

/// The format.
pub(super) struct Lines;

impl FileFormat for Lines {
    fn name(&self) -> &str {
        NAME
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["txt", "log", "text"]
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Text(self)
    }
}

impl TextFormat for Lines {
    fn columns(&self, _: &SourceSpec, _: &mut Sample<'_>) -> Result<Columns> {
        Ok(Columns::uniform(lines::line_columns()))
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, _: &Sample<'_>) -> Result<()> {
        fixed::settle(columns, wanted, NAME)
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let (columns, options) = of.by_name();
        Ok(Box::new(LinesDecoder::new(columns, options)?))
    }
}
