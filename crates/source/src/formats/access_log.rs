//! Access logs of web servers: in the Common or Combined Log Format, or in a format that the user describes.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::access_log::{self, AccessLogDecoder, AccessLogShape};
use tidemill_text::log_format::LogFormatDecoder;
use tidemill_text::record_boundaries::RecordGrammar;
use tidemill_text::{BlockDecoder, value_parsing};

use super::inferred_columns::check_readable_types;
use super::{DecoderSpec, FileFormat, FormatKind, LogLineFormat, TextFormat, fixed_columns};
use crate::SourceSpec;
use crate::error::Result;
use crate::schema::column_layouts::FileColumns;
use crate::schema::source_sample::SourceSample;
use crate::schema::text_options::{TextOptionSupport, parse_log_format};

const NAME: &str = "access-log";

/// The access log format.
pub(super) struct AccessLogSourceFormat;

impl FileFormat for AccessLogSourceFormat {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Text(self)
    }
}

impl TextFormat for AccessLogSourceFormat {
    fn detect_text_options(&self, spec: &SourceSpec, sample: &mut SourceSample<'_>) -> Result<()> {
        if let Some(description) = &spec.text_options.log_format {
            sample.log_lines =
                LogLineFormat::UserDescribed(Arc::new(parse_log_format(description)?));
            return Ok(());
        }
        let Some((file, text)) = sample.read_beginning(RecordGrammar::LINES)? else {
            return Ok(());
        };
        let shown = AccessLogShape::infer_from_sample(&text);
        if let Some(unknown) = shown.unrecognized {
            sample.notes.push(format!(
                "the records of `{}` have {unknown}; --log-format says what it is, as the server's \
                 configuration does (job file: source.options, log_format = '…')",
                sample.files[file].display_name()
            ));
        }
        sample.log_lines = LogLineFormat::Extended(Arc::new(shown.shape));
        Ok(())
    }

    fn infer_columns(&self, _: &SourceSpec, sample: &mut SourceSample<'_>) -> Result<FileColumns> {
        Ok(FileColumns::with_uniform_layout(match &sample.log_lines {
            LogLineFormat::Standard => access_log::access_log_columns(),
            LogLineFormat::Extended(shape) => shape.columns(),
            LogLineFormat::UserDescribed(format) => format.columns(),
        }))
    }

    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        sample: &SourceSample<'_>,
    ) -> Result<()> {
        // Columns of a user-described format take the types that the user declares.
        if matches!(sample.log_lines, LogLineFormat::UserDescribed(_)) {
            columns.override_types(wanted)?;
            return check_readable_types(columns, NAME, value_parsing::is_supported_type);
        }
        fixed_columns::declare_fixed_types(columns, wanted, NAME)
    }

    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        Ok(match of.log_lines {
            LogLineFormat::Standard => Box::new(AccessLogDecoder::new(of.columns, of.options)?),
            LogLineFormat::Extended(shape) => {
                Box::new(AccessLogDecoder::with_shape(shape, of.columns, of.options)?)
            }
            LogLineFormat::UserDescribed(format) => {
                Box::new(LogFormatDecoder::new(format, of.columns, of.options)?)
            }
        })
    }

    fn supported_options(&self) -> TextOptionSupport {
        TextOptionSupport { log_format: true, ..TextOptionSupport::default() }
    }
}
