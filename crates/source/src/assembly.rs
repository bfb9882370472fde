//! The columns of batches: which columns of the files are read for them, and how a file's batch becomes one of
//! the source.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tidemill_base::column_types::dictionary_text_type;
use tidemill_text::{Predicate, ValueCondition};

use super::error::{Error, Result};
use super::formats::batches::WantedColumn;
use super::hidden::{self, Hidden};
use super::opener::{self, Opener};
use super::options::ReadOptions;
use super::projection::{self, Projection};
use super::{Origin, Source, SourceFile};

/// Where a column of the batches comes from.
enum ColumnOrigin {
    /// The folder key of this position.
    Key(usize),
    /// What is read of the file, by its position among that.
    File(usize),
    /// What is known of a record besides what is in it.
    Hidden(Hidden),
    /// A field of a record, and a column of the file: positions as those.
    Promoted { record: usize, field: String, own: Option<usize> },
}

/// The columns that are read in files of one layout.
pub(super) struct LayoutColumns {
    layout: usize,
    /// Per column that is read, which of the decoded ones it is; none if it is not there.
    slots: Vec<Option<usize>>,
    /// The decoded ones: their places in the file, and what they become.
    pub(super) decoded: Vec<(usize, FieldRef)>,
    /// Those of them whose types a sample showed, by position.
    pub(super) inferred: Vec<usize>,
    /// By position among the decoded ones.
    pub(super) predicates: Vec<Predicate>,
    /// A predicate does not hold of a column that is not there: no row is wanted.
    pub(super) drops_all: bool,
}

impl LayoutColumns {
    /// What a file has for a column that is read; none if it has nothing.
    pub(super) fn column<'a>(
        &self,
        batch: &'a RecordBatch,
        at: usize,
    ) -> Result<Option<&'a ArrayRef>> {
        match self.slots.get(at) {
            Some(Some(slot)) => batch.columns().get(*slot).map(Some).ok_or_else(lacking),
            Some(None) => Ok(None),
            None => Err(lacking()),
        }
    }
}

fn lacking() -> Error {
    Error::Internal("a batch lacks a column".into())
}

fn no_layout() -> Error {
    Error::Internal("columns are not found yet".into())
}

/// What opens the records of a batch, by the positions of their columns among those that are read.
pub(super) type Openers = Vec<(usize, Opener)>;

/// Makes batches of a source out of its files' batches.
pub(super) struct Assembly {
    schema: SchemaRef,
    origins: Vec<ColumnOrigin>,
    /// Columns of the files that are read.
    file_columns: Vec<(usize, FieldRef)>,
    /// By position among these.
    predicates: Vec<Predicate>,
    /// What fills up columns of which only parts are read, or that a file does not have.
    nulls: projection::Nulls,
    /// How a file is read that is like the last one.
    layout: Option<LayoutColumns>,
}

impl Assembly {
    /// The columns that `options` want of a source.
    ///
    /// # Errors
    /// Where a column is refused.
    pub(super) fn new(source: &Source, options: &ReadOptions) -> Result<(Self, Openers)> {
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        let projection = options.projection.as_deref().unwrap_or(&all);
        let mut fields = Vec::with_capacity(projection.len());
        let mut columns = Vec::with_capacity(projection.len());
        let mut file_columns: Vec<(usize, FieldRef)> = Vec::new();
        let mut predicates = Vec::new();
        // Of rows that were dropped on the way, nothing tells where they were.
        let is_numbered = projection.iter().any(|column| source.is_row_number(*column));
        // Per promotion, the column that is read and the fields that are wanted.
        let mut records: BTreeMap<usize, (usize, BTreeMap<String, Projection>)> = BTreeMap::new();
        for &index in projection {
            if let Some(refusal) = source.refusal(index) {
                return Err(refusal);
            }
            let (Some(field), Some(origin)) = (source.field(index), source.origins.get(index))
            else {
                return Err(Error::Internal(format!("the source has no column {index}")));
            };
            let field = &match options.coded.contains(&index) {
                true => Arc::new(field.as_ref().clone().with_data_type(dictionary_text_type())),
                false => Arc::clone(field),
            };
            fields.push(field.clone());
            let parts = options.used.as_ref().and_then(|used| used.get(field.name()));
            let next = file_columns.len();
            columns.push(match origin {
                Origin::Key(index) => ColumnOrigin::Key(*index),
                Origin::Hidden(hidden) => ColumnOrigin::Hidden(*hidden),
                Origin::File(_) => ColumnOrigin::File(next),
                Origin::Promoted(index) => {
                    let promoted = &source.promoted[*index];
                    let record = source.promotions[promoted.promotion].column;
                    let (at, wanted) = records.entry(promoted.promotion).or_insert_with(|| {
                        file_columns.push((record, source.columns.fields[record].clone()));
                        (next, BTreeMap::new())
                    });
                    let parts = parts.cloned().unwrap_or(Projection::Whole);
                    wanted.insert(promoted.field.clone(), parts);
                    let (record, field) = (*at, promoted.field.clone());
                    let own = promoted.own.map(|own| {
                        file_columns.push((own, source.columns.fields[own].clone()));
                        file_columns.len() - 1
                    });
                    ColumnOrigin::Promoted { record, field, own }
                }
            });
            if let Origin::File(place) = origin {
                let own = options.predicates.iter().filter(|_| !is_numbered);
                let own = own.filter(|predicate| predicate.column == index);
                predicates
                    .extend(own.map(|own| Predicate { column: file_columns.len(), ..own.clone() }));
                let narrowed = match parts {
                    Some(parts) if source.format.reads_parts() => {
                        projection::narrowed(field, parts)
                    }
                    _ => None,
                };
                file_columns.push((*place, narrowed.unwrap_or_else(|| field.clone())));
            }
        }
        let mut openers = Vec::with_capacity(records.len());
        for (promotion, (at, wanted)) in records {
            let names: Vec<String> = wanted.keys().cloned().collect();
            let (_, field) = &mut file_columns[at];
            if source.format.reads_parts()
                && let Some(narrowed) = projection::narrowed(field, &Projection::Fields(wanted))
            {
                *field = narrowed;
            }
            let promotion = &source.promotions[promotion];
            openers.push((at, Opener::new(source, promotion, &names, options.batch_rows)?));
        }
        let assembly = Assembly {
            schema: Arc::new(Schema::new(fields)),
            origins: columns,
            file_columns,
            predicates,
            nulls: projection::Nulls::default(),
            layout: None,
        };
        Ok((assembly, openers))
    }

    /// The columns of the batches.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns of the current file.
    pub(super) fn layout(&self) -> Result<&LayoutColumns> {
        self.layout.as_ref().ok_or_else(no_layout)
    }

    /// Turns to files of a layout; whether it is another than before.
    pub(super) fn turn_to(&mut self, source: &Source, layout: usize) -> Result<bool> {
        let is_other = self.layout.as_ref().is_none_or(|now| now.layout != layout);
        if is_other {
            self.layout = Some(self.placed(source, layout)?);
        }
        Ok(is_other)
    }

    /// Whether records are numbered.
    pub(super) fn is_numbered(&self) -> bool {
        let is_number = |of: &ColumnOrigin| matches!(of, ColumnOrigin::Hidden(Hidden::RowNumber));
        self.origins.iter().any(is_number)
    }

    /// What is the same for all records of a file, its folders' columns among that, `rows` times each.
    pub(super) fn keys(
        &self,
        source: &Source,
        file: usize,
        rows: usize,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let keys = self.origins.iter().map(|origin| match origin {
            ColumnOrigin::File(_) | ColumnOrigin::Promoted { .. } => Ok(None),
            ColumnOrigin::Key(index) => source.key_values(file, *index, rows).map(Some),
            ColumnOrigin::Hidden(hidden) => {
                let of_file = source.files.get(file).and_then(|file| hidden.of_file(file));
                of_file.map(|text| hidden::repeated(text, rows)).transpose()
            }
        });
        keys.collect()
    }

    /// Where the wanted columns are in files of a layout.
    fn placed(&self, source: &Source, layout: usize) -> Result<LayoutColumns> {
        let Some(places) = source.columns.layouts.get(layout) else {
            return Err(Error::Internal(format!("there is no layout {layout}")));
        };
        let (mut slots, mut decoded, mut inferred) = (Vec::new(), Vec::new(), Vec::new());
        for (index, field) in &self.file_columns {
            let place = places.places.get(*index).copied().flatten();
            slots.push(place.map(|_| decoded.len()));
            inferred.extend(
                place.filter(|_| source.columns.is_inferred(*index)).map(|_| decoded.len()),
            );
            decoded.extend(place.map(|place| (place, field.clone())));
        }
        let (mut predicates, mut drops_all) = (Vec::new(), false);
        for predicate in &self.predicates {
            match slots.get(predicate.column).copied().flatten() {
                Some(slot) => predicates.push(Predicate { column: slot, ..predicate.clone() }),
                // All of it is null, and so is a comparison with it.
                None => drops_all |= predicate.condition != ValueCondition::IsNull,
            }
        }
        Ok(LayoutColumns { layout, slots, decoded, inferred, predicates, drops_all })
    }

    /// What is wanted of a file of the current layout.
    pub(super) fn wanted_columns(&self, source: &Source) -> Vec<WantedColumn> {
        let Some(found) = &self.layout else { return Vec::new() };
        let present = self.file_columns.iter().zip(&found.slots).filter(|(_, slot)| slot.is_some());
        let columns = present.zip(&found.decoded).map(|(((index, _), _), (place, field))| {
            let shown_by = source.columns.shown_by.get(*index).copied().flatten();
            let shown_by = shown_by.and_then(|file| source.files.get(file)).cloned();
            WantedColumn { place: *place, field: field.clone(), shown_by }
        });
        columns.collect()
    }

    /// Adds what is not in the file's own columns, and nulls for those that the file does not have.
    pub(super) fn assemble(
        &mut self,
        batch: &RecordBatch,
        records: &[(usize, Option<StructArray>)],
        keys: &[Option<ArrayRef>],
        numbers: Option<&ArrayRef>,
        file: &SourceFile,
    ) -> Result<RecordBatch> {
        let Some(found) = &self.layout else { return Err(no_layout()) };
        let rows = batch.num_rows();
        let own = |at: usize| found.column(batch, at);
        let mut columns = Vec::with_capacity(self.origins.len());
        for ((column, key), field) in self.origins.iter().zip(keys).zip(self.schema.fields()) {
            columns.push(match (column, key) {
                (ColumnOrigin::Key(_) | ColumnOrigin::Hidden(_), Some(key)) => {
                    key.slice(0, rows.min(key.len()))
                }
                (ColumnOrigin::Hidden(Hidden::RowNumber), None) => {
                    numbers.cloned().ok_or_else(lacking)?
                }
                (ColumnOrigin::Key(_) | ColumnOrigin::Hidden(_), None) => return Err(lacking()),
                (ColumnOrigin::File(at), _) => match own(*at)? {
                    None => self.nulls.get(field.data_type(), rows),
                    Some(column) => projection::widened(column, field.data_type(), &mut self.nulls)
                        .ok_or_else(lacking)?,
                },
                (ColumnOrigin::Promoted { record, field: name, own: column }, _) => {
                    let opened = records.iter().find(|(at, _)| at == record);
                    let inner = opened
                        .and_then(|(_, opened)| opened.as_ref())
                        .and_then(|opened| opener::field(opened, name));
                    let column = column.map(own).transpose()?.flatten().cloned();
                    opener::joined(inner, column, field, rows, file)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))
    }
}
