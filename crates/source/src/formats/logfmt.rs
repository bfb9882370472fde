//! logfmt: `key=value` pairs, one record per line.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::logfmt::{self, LogfmtDecoder};
use tidemill_text::{BlockDecoder, record_boundaries};

use super::inferred_columns::{
    declare_types_by_name, declared_columns_without_data, file_columns_found_by_name,
    record_file_types, unreadable_records_error,
};
use super::{DecoderSpec, FileFormat, FormatKind, TextFormat};
use crate::error::Result;
use crate::schema::column_layouts::{FileColumns, TypeWitnesses};
use crate::schema::source_sample::SourceSample;
use crate::{SourceFile, SourceSpec};

const NAME: &str = "logfmt";

/// The logfmt format.
pub(super) struct LogfmtSourceFormat;

impl FileFormat for LogfmtSourceFormat {
    fn name(&self) -> &str {
        NAME
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["logfmt"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Text(self)
    }
}

impl TextFormat for LogfmtSourceFormat {
    fn infer_columns(
        &self,
        spec: &SourceSpec,
        sample: &mut SourceSample<'_>,
    ) -> Result<FileColumns> {
        infer_columns(spec, sample)
    }

    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        _: &SourceSample<'_>,
    ) -> Result<()> {
        declare_types_by_name(columns, wanted, NAME)
    }

    fn has_keyed_records(&self) -> bool {
        true
    }

    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let (columns, options) = of.into_columns_and_options();
        Ok(Box::new(LogfmtDecoder::new(columns, options)?))
    }
}

fn infer_columns(spec: &SourceSpec, sample: &mut SourceSample<'_>) -> Result<FileColumns> {
    let mut inference = logfmt::LogfmtInference::default();
    let mut shown_by = TypeWitnesses::default();
    let mut current: Option<usize> = None;
    let mut first_fault = None;
    let looked_at =
        sample.for_each_block(record_boundaries::RecordGrammar::LINES, |file, block| {
            if current != Some(file.index) {
                record_file_types(&mut shown_by, current, || inference.fields());
                current = Some(file.index);
            }
            let records = inference.add_block(block);
            if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
                first_fault = Some((file.display_name.to_string(), fault.clone()));
            }
            Ok(records)
        })?;
    record_file_types(&mut shown_by, current, || inference.fields());
    inference.settle_types();
    let chosen = sample.spread_files(looked_at);
    let look = |_: &SourceFile, block: &[u8]| {
        let mut inference = logfmt::LogfmtInference::default();
        inference.add_block(block);
        Some(inference)
    };
    for (file, other) in
        sample.inspect_beginnings(&chosen, record_boundaries::RecordGrammar::LINES, look)?
    {
        inference.widen(&other);
        shown_by.record_types(file, &inference.fields());
    }
    match inference.fields() {
        fields if fields.is_empty() => match first_fault.filter(|_| spec.declared_schema.is_none())
        {
            None => declared_columns_without_data(spec, sample, "record", "blank lines, if any"),
            Some((path, fault)) => Err(unreadable_records_error(path, "logfmt", &fault)),
        },
        fields => Ok(file_columns_found_by_name(fields, &shown_by, !sample.covers_all_records)),
    }
}
