//! logfmt: `key=value` pairs, a record per line.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::logfmt::{self, LogfmtDecoder};
use tidemill_text::{BlockDecoder, record_boundaries};

use super::inferred::{found_by_name, note, nothing_to_infer, settle_by_name, unreadable};
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::columns::{Columns, ShownBy};
use crate::error::Result;
use crate::sample::Sample;
use crate::{SourceFile, SourceSpec};

const NAME: &str = "logfmt";

/// The format.
pub(super) struct Logfmt;

impl FileFormat for Logfmt {
    fn name(&self) -> &str {
        NAME
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["logfmt"]
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Text(self)
    }
}

impl TextFormat for Logfmt {
    fn columns(&self, spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
        columns(spec, sample)
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, _: &Sample<'_>) -> Result<()> {
        settle_by_name(columns, wanted, NAME)
    }

    fn has_keys(&self) -> bool {
        true
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let (columns, options) = of.by_name();
        Ok(Box::new(LogfmtDecoder::new(columns, options)?))
    }
}

fn columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let mut inference = logfmt::LogfmtInference::default();
    let mut shown_by = ShownBy::default();
    let mut current: Option<usize> = None;
    let mut first_fault = None;
    let looked_at = sample.each_block(record_boundaries::RecordGrammar::LINES, |file, block| {
        if current != Some(file.index) {
            note(&mut shown_by, current, || inference.fields());
            current = Some(file.index);
        }
        let records = inference.add_block(block);
        if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
            first_fault = Some((file.shown.to_string(), fault.clone()));
        }
        Ok(records)
    })?;
    note(&mut shown_by, current, || inference.fields());
    inference.settle_types();
    let chosen = sample.spread(looked_at);
    let look = |_: &SourceFile, block: &[u8]| {
        let mut inference = logfmt::LogfmtInference::default();
        inference.add_block(block);
        Some(inference)
    };
    for (file, other) in
        sample.beginnings(&chosen, record_boundaries::RecordGrammar::LINES, look)?
    {
        inference.widen(&other);
        shown_by.note(file, &inference.fields());
    }
    match inference.fields() {
        fields if fields.is_empty() => match first_fault.filter(|_| spec.schema.is_none()) {
            None => nothing_to_infer(spec, sample, "record", "blank lines, if any"),
            Some((path, fault)) => Err(unreadable(path, "logfmt", &fault)),
        },
        fields => Ok(found_by_name(fields, &shown_by, !sample.is_all)),
    }
}
