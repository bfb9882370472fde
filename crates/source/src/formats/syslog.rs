//! System logs, of RFC 3164 or RFC 5424, a record per line or counted.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::BlockDecoder;
use tidemill_text::syslog::{self, SyslogDecoder};

use super::fixed;
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::SourceSpec;
use crate::columns::Columns;
use crate::dialect::Takes;
use crate::error::Result;
use crate::sample::Sample;

const NAME: &str = "syslog";

/// The format.
pub(super) struct Syslog;

impl FileFormat for Syslog {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Text(self)
    }
}

impl TextFormat for Syslog {
    fn columns(&self, _: &SourceSpec, _: &mut Sample<'_>) -> Result<Columns> {
        Ok(Columns::uniform(syslog::syslog_columns()))
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, _: &Sample<'_>) -> Result<()> {
        fixed::settle(columns, wanted, NAME)
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        // A date without a year is of the time when the file was last written to.
        let read = syslog::SyslogFormat::default();
        let read = syslog::SyslogFormat {
            framing: of.framing,
            reference_seconds: of.written_seconds.unwrap_or(read.reference_seconds),
            ..read
        };
        Ok(Box::new(SyslogDecoder::new(of.columns, &read, of.options)?))
    }

    fn takes(&self) -> Takes {
        Takes { framing: true, ..Takes::default() }
    }

    fn depends_on_file(&self) -> bool {
        true
    }
}
