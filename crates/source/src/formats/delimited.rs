//! Delimited text: CSV and TSV.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema};
use tidemill_text::csv::CsvDecoder;
use tidemill_text::{Decode, cut, infer, values};

use super::inferred::{nothing_to_infer, refuse_unreadable};
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::columns::{Collected, Columns, Layouts, Shown};
use crate::dialect::{Dialect, Takes};
use crate::error::{Error, Result};
use crate::sample::{Header, SPREAD_FILES, Sample, column_names};
use crate::{SourceFile, SourceSpec};

/// Text with something between its fields.
pub(super) struct Delimited {
    name: &'static str,
    suffixes: &'static [&'static str],
    delimiter: u8,
}

pub(super) static CSV: Delimited = Delimited { name: "csv", suffixes: &["csv"], delimiter: b',' };
pub(super) static TSV: Delimited =
    Delimited { name: "tsv", suffixes: &["tsv", "tab"], delimiter: b'\t' };

impl FileFormat for Delimited {
    fn name(&self) -> &str {
        self.name
    }

    fn suffixes(&self) -> &'static [&'static str] {
        self.suffixes
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Text(self)
    }
}

impl TextFormat for Delimited {
    fn columns(&self, spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
        columns(spec, sample, self.name)
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, dialect: &Dialect) -> Result<()> {
        rename_by_position(&mut columns.fields, wanted, dialect);
        columns.override_types(wanted)?;
        refuse_unreadable(columns, self.name, values::is_supported)
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn Decode>, FieldRef> {
        let Decoding { dialect, fields, columns, options, .. } = of;
        Ok(Box::new(CsvDecoder::new(dialect, fields, columns, options)?))
    }

    fn takes(&self) -> Takes {
        Takes { delimiter: Some(self.delimiter), nulls: true, ..Takes::default() }
    }
}

/// Without a header, a schema with as many columns as the file names them.
fn rename_by_position(fields: &mut [FieldRef], wanted: &Schema, dialect: &Dialect) {
    let foreign =
        || wanted.fields().iter().any(|field| !fields.iter().any(|own| own.name() == field.name()));
    if !dialect.header && wanted.fields().len() == fields.len() && foreign() {
        for (own, wanted) in fields.iter_mut().zip(wanted.fields()) {
            *own = Arc::new(Field::new(wanted.name(), own.data_type().clone(), true));
        }
    }
}

fn columns(spec: &SourceSpec, sample: &mut Sample<'_>, format: &str) -> Result<Columns> {
    let dialect = sample.dialect.clone();
    let grammar = cut::Grammar::delimited(&dialect);
    let may_differ = sample.files.len() > 1 && spec.layouts.unwrap_or_default() == Layouts::Union;
    let mut collected = Collected::default();
    // What is known of the beginnings of files already.
    let mut begun: HashMap<usize, infer::csv::Inference> = HashMap::new();
    if may_differ && dialect.header {
        let mut known: HashMap<Arc<Vec<String>>, usize> = HashMap::new();
        for (file, header) in sample.headers(grammar)?.into_iter().enumerate() {
            let Some(Header { names, records }) = header else { continue };
            let layout = match known.get(&names) {
                Some(layout) => *layout,
                None => {
                    let layout = collected.add(file, names.iter().map(String::as_str));
                    known.insert(names, layout);
                    layout
                }
            };
            collected.set(file, layout);
            begun.extend(records.map(|records| (file, records)));
        }
        refuse_stranger(&collected, sample.files)?;
    }

    let mut shown: Vec<Shown> = Vec::new();
    let mut take = |collected: &Collected, file: usize, inference: &infer::csv::Inference| {
        shown.resize(collected.names().len(), Shown::default());
        for (column, (kind, values)) in collected.columns_of(file).iter().zip(inference.kinds()) {
            shown[*column].add(file, kind, values);
        }
    };
    // The beginning of the source.
    let mut current: Option<(usize, infer::csv::Inference)> = None;
    let looked_at = sample.each_block(grammar, |file, mut block| {
        if current.as_ref().is_none_or(|(index, _)| *index != file.index) {
            let Some((fields, used)) = tidemill_text::csv::first_record(&dialect, block) else {
                return Ok(0);
            };
            if let Some((index, inference)) = current.take() {
                take(&collected, index, &inference);
            }
            if collected.is_empty() {
                let names = column_names(&dialect, fields, &file.shown)?;
                collected.add(file.index, names.iter().map(String::as_str));
            }
            let fields = collected.columns_of(file.index).len();
            current = Some((file.index, infer::csv::Inference::new(&dialect, fields)));
            if dialect.header {
                block = &block[used..];
            }
        }
        Ok(current.as_mut().map_or(0, |(_, inference)| inference.add(block)))
    })?;
    if let Some((index, inference)) = current.take() {
        take(&collected, index, &inference);
    }
    if collected.is_empty() {
        return nothing_to_infer(spec, format);
    }
    if may_differ {
        // The beginnings of others.
        let inspect = |file: &SourceFile, block: &[u8]| {
            let fields = collected.columns_of(file.index).len();
            let mut inference = infer::csv::Inference::new(&dialect, fields);
            let records = match tidemill_text::csv::first_record(&dialect, block) {
                Some((_, used)) if dialect.header => &block[used..],
                _ => block,
            };
            inference.add(records);
            Some(inference)
        };
        let mut chosen = sample.spread(looked_at);
        let unread: Vec<usize> =
            chosen.iter().copied().filter(|file| !begun.contains_key(file)).collect();
        begun.extend(sample.beginnings(&unread, grammar, inspect)?);
        for file in &chosen {
            if let Some(inference) = begun.get(file) {
                take(&collected, *file, inference);
            }
        }
        // And of the first files with columns that nothing is known of yet.
        let is_unknown = |column: &usize| shown.get(*column).is_none_or(|shown| !shown.is_seen());
        let is_new = |file: &usize| *file >= looked_at && !chosen.contains(file);
        let unknown = collected.layouts().filter(|(_, columns)| columns.iter().any(is_unknown));
        chosen = unknown.map(|(file, _)| file).filter(is_new).take(SPREAD_FILES).collect();
        for (file, inference) in sample.beginnings(&chosen, grammar, inspect)? {
            for (column, (kind, values)) in collected.columns_of(file).iter().zip(inference.kinds())
            {
                shown[*column].add(file, kind, values);
            }
        }
    }
    shown.resize(collected.names().len(), Shown::default());
    let fields = collected.names().iter().zip(&shown).map(|(name, shown)| shown.field(name));
    let fields: Vec<FieldRef> = fields.collect();
    let shown_by = shown.iter().map(Shown::file).collect();
    let clashes = vec![None; fields.len()];
    Ok(collected.finish(fields, shown_by, clashes))
}

/// Where a file's header has nothing in common with the others', it is most likely a record, whose
/// values must not become columns.
fn refuse_stranger(collected: &Collected, files: &[Arc<SourceFile>]) -> Result<()> {
    let (Some((file, columns)), Some((first, _))) =
        (collected.stranger(), collected.layouts().next())
    else {
        return Ok(());
    };
    let shown = |file: usize| files.get(file).map_or("", |file| file.shown()).to_owned();
    let mut names: Vec<String> =
        columns.iter().take(4).map(|column| format!("`{}`", collected.names()[*column])).collect();
    if columns.len() > names.len() {
        names.push("…".into());
    }
    Err(Error::Differ {
        path: shown(file),
        other: shown(first),
        reason: format!("they have no column in common; its header is {}", names.join(", ")),
        hint: Some(
            "if it has no header, write one into it or make it a source of its own; --header=false \
             is for sources of which no file has one"
                .into(),
        ),
    })
}
