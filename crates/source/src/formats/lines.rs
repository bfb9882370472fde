//! Plain lines of text, as one column `line`.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::BlockDecoder;
use tidemill_text::lines::{self, LinesDecoder};

use super::fixed_columns;
use super::{DecoderSpec, FileFormat, FormatKind, TextFormat};
use crate::SourceSpec;
use crate::error::Result;
use crate::schema::column_layouts::FileColumns;
use crate::schema::source_sample::SourceSample;

const NAME: &str = "lines";

/// The format of plain lines.
pub(super) struct LinesSourceFormat;

impl FileFormat for LinesSourceFormat {
    fn name(&self) -> &str {
        NAME
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["txt", "log", "text"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Text(self)
    }
}

impl TextFormat for LinesSourceFormat {
    fn infer_columns(&self, _: &SourceSpec, _: &mut SourceSample<'_>) -> Result<FileColumns> {
        Ok(FileColumns::with_uniform_layout(lines::line_columns()))
    }

    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        _: &SourceSample<'_>,
    ) -> Result<()> {
        fixed_columns::declare_fixed_types(columns, wanted, NAME)
    }

    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let (columns, options) = of.into_columns_and_options();
        Ok(Box::new(LinesDecoder::new(columns, options)?))
    }
}
