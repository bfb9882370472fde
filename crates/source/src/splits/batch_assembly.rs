//! Assembles the source's batches: selects the file columns to read, and turns a file's batch into a batch of
//! the source's schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tidemill_base::column_types::dictionary_text_type;
use tidemill_text::{Predicate, ValueCondition};

use crate::error::{Error, Result};
use crate::formats::stored_batch_reader::WantedColumn;
use crate::read_options::ReadOptions;
use crate::schema::hidden_columns::{self, HiddenColumn};
use crate::schema::nested_projection::{self, NestedProjection};
use crate::schema::promoted_records::{self, RecordExtractor};
use crate::{Source, SourceColumnOrigin, SourceFile};

/// Origin of a column in the batches.
enum BatchColumnOrigin {
    /// The folder key at this position.
    Key(usize),
    /// A column of the file, by position among the columns that are read.
    File(usize),
    /// A hidden column.
    Hidden(HiddenColumn),
    /// A field of a promoted record and the file's own column of the same name, by position among the columns
    /// that are read.
    Promoted { record: usize, field: String, own: Option<usize> },
}

/// A projection for files of one column layout.
pub(crate) struct LayoutProjection {
    layout_index: usize,
    /// Position of each read column among the decoded columns; none if the file lacks it.
    decoded_slots: Vec<Option<usize>>,
    /// Decoded columns: position in the file, and resulting field.
    pub(crate) decoded_columns: Vec<(usize, FieldRef)>,
    /// Positions of the decoded columns whose types were inferred from a sample.
    pub(crate) inferred_positions: Vec<usize>,
    /// Predicates, by position among the decoded columns.
    pub(crate) predicates: Vec<Predicate>,
    /// True if a predicate fails for a missing column, so that no row is wanted.
    pub(crate) drops_all_rows: bool,
}

impl LayoutProjection {
    /// Returns the array of a read column; none if the file lacks the column.
    pub(crate) fn decoded_column<'a>(
        &self,
        batch: &'a RecordBatch,
        at: usize,
    ) -> Result<Option<&'a ArrayRef>> {
        match self.decoded_slots.get(at) {
            Some(Some(slot)) => {
                batch.columns().get(*slot).map(Some).ok_or_else(missing_column_error)
            }
            Some(None) => Ok(None),
            None => Err(missing_column_error()),
        }
    }
}

fn missing_column_error() -> Error {
    Error::Internal("a batch lacks a column".into())
}

fn missing_layout_error() -> Error {
    Error::Internal("columns are not found yet".into())
}

/// Extractors for promoted records, with the positions of their columns among the columns that are read.
pub(crate) type ColumnExtractors = Vec<(usize, RecordExtractor)>;

/// Converts batches of files to batches of the source.
pub(crate) struct BatchAssembler {
    schema: SchemaRef,
    origins: Vec<BatchColumnOrigin>,
    /// Columns of the files that are read.
    file_columns: Vec<(usize, FieldRef)>,
    /// Predicates, by position among `column_layouts`.
    predicates: Vec<Predicate>,
    /// Null arrays for missing columns and for fields that are not read.
    null_columns: nested_projection::NullColumns,
    /// Projection for the column layout of the current file.
    projection: Option<LayoutProjection>,
}

impl BatchAssembler {
    /// Creates an assembler for the columns that `options` request, and the extractors of their promoted
    /// records.
    ///
    /// # Errors
    /// The error of a column that cannot be read.
    pub(crate) fn new(source: &Source, options: &ReadOptions) -> Result<(Self, ColumnExtractors)> {
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        let projection = options.projection.as_deref().unwrap_or(&all);
        let mut fields = Vec::with_capacity(projection.len());
        let mut columns = Vec::with_capacity(projection.len());
        let mut file_columns: Vec<(usize, FieldRef)> = Vec::new();
        let mut predicates = Vec::new();
        // Dropped rows leave no trace of their positions, so row numbers rule out predicates.
        let is_numbered = projection.iter().any(|column| source.is_row_number_column(*column));
        // For each promoted record, the column that is read and the wanted fields.
        let mut records: BTreeMap<usize, (usize, BTreeMap<String, NestedProjection>)> =
            BTreeMap::new();
        for &index in projection {
            if let Some(refusal) = source.column_error(index) {
                return Err(refusal);
            }
            let (Some(field), Some(origin)) =
                (source.visible_or_hidden_field(index), source.origins.get(index))
            else {
                return Err(Error::Internal(format!("the source has no column {index}")));
            };
            let field = &match options.dictionary_columns.contains(&index) {
                true => Arc::new(field.as_ref().clone().with_data_type(dictionary_text_type())),
                false => Arc::clone(field),
            };
            fields.push(field.clone());
            let parts = options.used_fields.as_ref().and_then(|used| used.get(field.name()));
            let next = file_columns.len();
            columns.push(match origin {
                SourceColumnOrigin::Key(index) => BatchColumnOrigin::Key(*index),
                SourceColumnOrigin::Hidden(hidden) => BatchColumnOrigin::Hidden(*hidden),
                SourceColumnOrigin::File(_) => BatchColumnOrigin::File(next),
                SourceColumnOrigin::Promoted(index) => {
                    let promoted = &source.promoted_columns[*index];
                    let record = source.promoted_records[promoted.promotion].column;
                    let (at, wanted) = records.entry(promoted.promotion).or_insert_with(|| {
                        file_columns.push((record, source.columns.fields[record].clone()));
                        (next, BTreeMap::new())
                    });
                    let parts = parts.cloned().unwrap_or(NestedProjection::Whole);
                    wanted.insert(promoted.field.clone(), parts);
                    let (record, field) = (*at, promoted.field.clone());
                    let own = promoted.own.map(|own| {
                        file_columns.push((own, source.columns.fields[own].clone()));
                        file_columns.len() - 1
                    });
                    BatchColumnOrigin::Promoted { record, field, own }
                }
            });
            if let SourceColumnOrigin::File(place) = origin {
                let own = options.predicates.iter().filter(|_| !is_numbered);
                let own = own.filter(|predicate| predicate.column == index);
                predicates
                    .extend(own.map(|own| Predicate { column: file_columns.len(), ..own.clone() }));
                let narrowed = match parts {
                    Some(parts) if source.format.can_project_nested_fields() => {
                        nested_projection::narrow_field(field, parts)
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
            if source.format.can_project_nested_fields()
                && let Some(narrowed) =
                    nested_projection::narrow_field(field, &NestedProjection::Fields(wanted))
            {
                *field = narrowed;
            }
            let promotion = &source.promoted_records[promotion];
            openers
                .push((at, RecordExtractor::new(source, promotion, &names, options.batch_rows)?));
        }
        let assembly = BatchAssembler {
            schema: Arc::new(Schema::new(fields)),
            origins: columns,
            file_columns,
            predicates,
            null_columns: nested_projection::NullColumns::default(),
            projection: None,
        };
        Ok((assembly, openers))
    }

    /// Returns the schema of the batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the projection for the current file.
    pub(crate) fn layout_projection(&self) -> Result<&LayoutProjection> {
        self.projection.as_ref().ok_or_else(missing_layout_error)
    }

    /// Switches to files of another column layout; returns true if the layout changed.
    pub(crate) fn switch_layout(&mut self, source: &Source, layout: usize) -> Result<bool> {
        let is_other = self.projection.as_ref().is_none_or(|now| now.layout_index != layout);
        if is_other {
            self.projection = Some(self.project_layout(source, layout)?);
        }
        Ok(is_other)
    }

    /// Returns true if the batches have row numbers.
    pub(crate) fn needs_row_numbers(&self) -> bool {
        let is_number = |of: &BatchColumnOrigin| {
            matches!(of, BatchColumnOrigin::Hidden(HiddenColumn::RowNumber))
        };
        self.origins.iter().any(is_number)
    }

    /// Returns columns that are constant in a file, such as folder keys, as arrays of `rows` values.
    pub(crate) fn file_constant_columns(
        &self,
        source: &Source,
        file: usize,
        rows: usize,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let keys = self.origins.iter().map(|origin| match origin {
            BatchColumnOrigin::File(_) | BatchColumnOrigin::Promoted { .. } => Ok(None),
            BatchColumnOrigin::Key(index) => source.partition_values(file, *index, rows).map(Some),
            BatchColumnOrigin::Hidden(hidden) => {
                let of_file = source.files.get(file).and_then(|file| hidden.file_value(file));
                of_file.map(|text| hidden_columns::repeat_text(text, rows)).transpose()
            }
        });
        keys.collect()
    }

    /// Projects the wanted columns onto files of a layout.
    fn project_layout(&self, source: &Source, layout: usize) -> Result<LayoutProjection> {
        let Some(places) = source.columns.layouts.get(layout) else {
            return Err(Error::Internal(format!("there is no layout {layout}")));
        };
        let (mut slots, mut decoded, mut inferred) = (Vec::new(), Vec::new(), Vec::new());
        for (index, field) in &self.file_columns {
            let place = places.places.get(*index).copied().flatten();
            slots.push(place.map(|_| decoded.len()));
            inferred.extend(
                place.filter(|_| source.columns.has_inferred_type(*index)).map(|_| decoded.len()),
            );
            decoded.extend(place.map(|place| (place, field.clone())));
        }
        let (mut predicates, mut drops_all) = (Vec::new(), false);
        for predicate in &self.predicates {
            match slots.get(predicate.column).copied().flatten() {
                Some(slot) => predicates.push(Predicate { column: slot, ..predicate.clone() }),
                // A missing column is null, and so is every comparison with it.
                None => drops_all |= predicate.condition != ValueCondition::IsNull,
            }
        }
        Ok(LayoutProjection {
            layout_index: layout,
            decoded_slots: slots,
            decoded_columns: decoded,
            inferred_positions: inferred,
            predicates,
            drops_all_rows: drops_all,
        })
    }

    /// Returns the columns to read from files of the current layout.
    pub(crate) fn wanted_columns(&self, source: &Source) -> Vec<WantedColumn> {
        let Some(found) = &self.projection else { return Vec::new() };
        let present =
            self.file_columns.iter().zip(&found.decoded_slots).filter(|(_, slot)| slot.is_some());
        let columns =
            present.zip(&found.decoded_columns).map(|(((index, _), _), (place, field))| {
                let shown_by = source.columns.type_witnesses.get(*index).copied().flatten();
                let shown_by = shown_by.and_then(|file| source.files.get(file)).cloned();
                WantedColumn {
                    file_index: *place,
                    target_field: field.clone(),
                    type_witness: shown_by,
                }
            });
        columns.collect()
    }

    /// Adds the columns that are not stored in the file, and nulls for columns that the file lacks.
    pub(crate) fn assemble_batch(
        &mut self,
        batch: &RecordBatch,
        records: &[(usize, Option<StructArray>)],
        keys: &[Option<ArrayRef>],
        numbers: Option<&ArrayRef>,
        file: &SourceFile,
    ) -> Result<RecordBatch> {
        let Some(found) = &self.projection else { return Err(missing_layout_error()) };
        let rows = batch.num_rows();
        let own = |at: usize| found.decoded_column(batch, at);
        let mut columns = Vec::with_capacity(self.origins.len());
        for ((column, key), field) in self.origins.iter().zip(keys).zip(self.schema.fields()) {
            columns.push(match (column, key) {
                (BatchColumnOrigin::Key(_) | BatchColumnOrigin::Hidden(_), Some(key)) => {
                    key.slice(0, rows.min(key.len()))
                }
                (BatchColumnOrigin::Hidden(HiddenColumn::RowNumber), None) => {
                    numbers.cloned().ok_or_else(missing_column_error)?
                }
                (BatchColumnOrigin::Key(_) | BatchColumnOrigin::Hidden(_), None) => {
                    return Err(missing_column_error());
                }
                (BatchColumnOrigin::File(at), _) => match own(*at)? {
                    None => self.null_columns.slice_of(field.data_type(), rows),
                    Some(column) => nested_projection::widen_column(
                        column,
                        field.data_type(),
                        &mut self.null_columns,
                    )
                    .ok_or_else(missing_column_error)?,
                },
                (BatchColumnOrigin::Promoted { record, field: name, own: column }, _) => {
                    let opened = records.iter().find(|(at, _)| at == record);
                    let inner = opened
                        .and_then(|(_, opened)| opened.as_ref())
                        .and_then(|opened| promoted_records::extract_field(opened, name));
                    let column = column.map(own).transpose()?.flatten().cloned();
                    promoted_records::merge_promoted_column(inner, column, field, rows, file)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))
    }
}
