//! System logs by RFC 3164 or RFC 5424, with one record per line or with length prefixes.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::BlockDecoder;
use tidemill_text::syslog::{self, SyslogDecoder};

use super::fixed_columns;
use super::{DecoderSpec, FileFormat, FormatKind, TextFormat};
use crate::SourceSpec;
use crate::error::Result;
use crate::schema::column_layouts::FileColumns;
use crate::schema::source_sample::SourceSample;
use crate::schema::text_options::TextOptionSupport;

const NAME: &str = "syslog";

/// The syslog format.
pub(super) struct SyslogSourceFormat;

impl FileFormat for SyslogSourceFormat {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Text(self)
    }
}

impl TextFormat for SyslogSourceFormat {
    fn infer_columns(&self, _: &SourceSpec, _: &mut SourceSample<'_>) -> Result<FileColumns> {
        Ok(FileColumns::with_uniform_layout(syslog::syslog_columns()))
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
        // The modification time of the file determines the year of dates without one.
        let read = syslog::SyslogFormat::default();
        let read = syslog::SyslogFormat {
            framing: of.framing,
            reference_seconds: of.modified_seconds.unwrap_or(read.reference_seconds),
            ..read
        };
        Ok(Box::new(SyslogDecoder::new(of.columns, &read, of.options)?))
    }

    fn supported_options(&self) -> TextOptionSupport {
        TextOptionSupport { framing: true, ..TextOptionSupport::default() }
    }

    fn needs_file_context(&self) -> bool {
        true
    }
}
