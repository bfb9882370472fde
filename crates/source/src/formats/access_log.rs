//! Access logs of web servers: in the Common or Combined Log Format, or as their server is told.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::access_log::{self, AccessLogDecoder, AccessLogShape};
use tidemill_text::log_format::LogFormatDecoder;
use tidemill_text::record_boundaries::RecordGrammar;
use tidemill_text::{BlockDecoder, value_parsing};

use super::inferred::refuse_unreadable;
use super::{Decoding, FileFormat, Kind, LogLines, TextFormat, fixed};
use crate::SourceSpec;
use crate::columns::Columns;
use crate::dialect::{Takes, log_format};
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
    fn sniff(&self, spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<()> {
        if let Some(description) = &spec.options.log_format {
            sample.log = LogLines::Described(Arc::new(log_format(description)?));
            return Ok(());
        }
        let Some((file, text)) = sample.beginning(RecordGrammar::LINES)? else { return Ok(()) };
        let shown = AccessLogShape::infer_from_sample(&text);
        if let Some(unknown) = shown.unrecognized {
            sample.notes.push(format!(
                "the records of `{}` have {unknown}; --log-format says what it is, as the server's \
                 configuration does (job file: source.options, log_format = '…')",
                sample.files[file].shown()
            ));
        }
        sample.log = LogLines::Shaped(Arc::new(shown.shape));
        Ok(())
    }

    fn columns(&self, _: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
        Ok(Columns::uniform(match &sample.log {
            LogLines::Plain => access_log::access_log_columns(),
            LogLines::Shaped(shape) => shape.columns(),
            LogLines::Described(format) => format.columns(),
        }))
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, sample: &Sample<'_>) -> Result<()> {
        // What the user describes has the types that the user has for it.
        if matches!(sample.log, LogLines::Described(_)) {
            columns.override_types(wanted)?;
            return refuse_unreadable(columns, NAME, value_parsing::is_supported_type);
        }
        fixed::settle(columns, wanted, NAME)
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        Ok(match of.log {
            LogLines::Plain => Box::new(AccessLogDecoder::new(of.columns, of.options)?),
            LogLines::Shaped(shape) => {
                Box::new(AccessLogDecoder::with_shape(shape, of.columns, of.options)?)
            }
            LogLines::Described(format) => {
                Box::new(LogFormatDecoder::new(format, of.columns, of.options)?)
            }
        })
    }

    fn takes(&self) -> Takes {
        Takes { log_format: true, ..Takes::default() }
    }
}
