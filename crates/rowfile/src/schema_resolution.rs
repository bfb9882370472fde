//! Schema resolution: maps each field of a reader's schema to the writer's data, or reports a conflict.
//!
//! The rules are those of the Avro specification ("Schema Resolution"), by name and recursively,
//! extended to Arrow's types. They are checked once, when a file is opened, and every conflict
//! is listed. Conditions on values (a null in a required field, an unknown enum symbol) are
//! checked while decoding.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{DataType, FieldRef, Fields};

use crate::error::{Error, Result, SchemaConflict, SchemaConflicts};
use crate::row_decoder::{FieldValueSource, OutputField, RecordDecodePlan};
use crate::row_layout::{LeafKind, RowStructure, SlotKind};
use crate::scalar_arrays;
use crate::schema::{FieldType, Schema, SchemaField, TemporalUnit, field_path};

/// A plan for reading data of a writer's schema with a reader's schema. Threads can share it, and it serves
/// any number of files with the same schema.
#[derive(Debug)]
pub struct RowDecodePlan {
    pub(crate) writer_schema: Schema,
    pub(crate) record: RowStructure,
    pub(crate) record_plan: RecordDecodePlan,
    pub(crate) output_schema: arrow_schema::SchemaRef,
}

impl RowDecodePlan {
    /// Creates the plan to read data of `writer` as `reader`. The metadata of the reader's fields may contain
    /// the [keys](crate::metadata_keys) for aliases, defaults and enums. Only fields of `reader` are decoded:
    /// a projection is a schema with fewer fields.
    ///
    /// # Errors
    /// [`Error::IncompatibleSchemas`] with every conflict; errors of [`Schema::from_arrow`].
    pub fn new(writer: &Schema, reader: &arrow_schema::SchemaRef) -> Result<Self> {
        writer.validate()?;
        let logical = Schema::from_arrow(reader)?;
        let record = RowStructure::new(writer);
        let mut resolver = SchemaResolver { conflicts: Vec::new() };
        let mut rows = RecordDecodePlan::new(&record);
        let source = WriterRecord {
            record: &record,
            fields: &writer.fields,
            first_leaf: 0,
            null_bits: Vec::new(),
        };
        rows.output_fields =
            resolver.resolve_fields(&logical.fields, reader.fields(), &source, &mut rows, "");
        if !resolver.conflicts.is_empty() {
            return Err(Error::IncompatibleSchemas(SchemaConflicts(resolver.conflicts)));
        }
        Ok(Self {
            writer_schema: writer.clone(),
            record,
            record_plan: rows,
            output_schema: reader.clone(),
        })
    }

    /// Returns the schema of the decoded batches.
    #[must_use]
    pub fn output_schema(&self) -> &arrow_schema::SchemaRef {
        &self.output_schema
    }

    /// Returns the schema of the data.
    #[must_use]
    pub fn writer_schema(&self) -> &Schema {
        &self.writer_schema
    }
}

impl Schema {
    /// Checks that a reader with this schema can read data of `writer`.
    ///
    /// ```
    /// # use tidemill_rowfile::{Error, Schema};
    /// let old = Schema::parse(r#"{"fields": [{"name": "n", "type": "int64"}]}"#)?;
    /// let new = Schema::parse(r#"{"fields": [{"name": "n", "type": "float64"}]}"#)?;
    /// assert!(new.check_can_read(&old).is_ok());
    /// let Err(Error::IncompatibleSchemas(conflicts)) = old.check_can_read(&new) else { panic!() };
    /// assert_eq!(conflicts.0[0].column, "n");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IncompatibleSchemas`] with every conflict.
    pub fn check_can_read(&self, writer: &Self) -> Result<()> {
        self.validate()?;
        let arrow = self.to_arrow(crate::StringLayout::default());
        RowDecodePlan::new(writer, &Arc::new(arrow)).map(|_| ())
    }
}

/// The writer's fields that a reader's fields may come from.
struct WriterRecord<'a> {
    record: &'a RowStructure,
    fields: &'a [SchemaField],
    /// Leaf of the first field.
    first_leaf: usize,
    /// Null bits of enclosing structs that the reader does not have: if one is set, the fields
    /// are null.
    null_bits: Vec<usize>,
}

/// A field of the writer.
struct WriterField<'a> {
    field: &'a SchemaField,
    leaf: usize,
    null_bits: Vec<usize>,
}

/// Returns the number of leaves of a field.
fn leaf_count(field: &SchemaField) -> usize {
    match &field.kind {
        FieldType::Struct(fields) => 1 + fields.iter().map(leaf_count).sum::<usize>(),
        _ => 1,
    }
}

impl<'a> WriterRecord<'a> {
    fn field_named(&self, name: &str) -> Option<WriterField<'a>> {
        let mut leaf = self.first_leaf;
        for field in self.fields {
            if field.name == name {
                let mut nulls = self.null_bits.clone();
                nulls.extend(self.record.leaves.get(leaf).and_then(|leaf| leaf.null_bit));
                return Some(WriterField { field, leaf, null_bits: nulls });
            }
            leaf += leaf_count(field);
        }
        None
    }

    /// Finds a field by its name or by a path into structs.
    fn field_at_path(&self, name: &str) -> Option<WriterField<'a>> {
        if let Some(found) = self.field_named(name) {
            return Some(found);
        }
        // Names may contain dots: try every split.
        name.match_indices('.').find_map(|(at, _)| {
            let outer = self.field_named(name.get(..at)?)?;
            let FieldType::Struct(fields) = &outer.field.kind else { return None };
            let inner = WriterRecord {
                record: self.record,
                fields,
                first_leaf: outer.leaf + 1,
                null_bits: outer.null_bits,
            };
            inner.field_at_path(name.get(at + 1..)?)
        })
    }
}

struct SchemaResolver {
    conflicts: Vec<SchemaConflict>,
}

impl SchemaResolver {
    fn add_conflict(&mut self, column: &str, reason: String) {
        self.conflicts.push(SchemaConflict { column: column.into(), reason });
    }

    fn resolve_fields(
        &mut self,
        fields: &[SchemaField],
        arrow: &Fields,
        source: &WriterRecord<'_>,
        plan: &mut RecordDecodePlan,
        outer: &str,
    ) -> Vec<OutputField> {
        let pairs = fields.iter().zip(arrow);
        pairs
            .filter_map(|(field, arrow)| {
                let names = std::iter::once(&field.name).chain(&field.aliases);
                // Aliases may be paths; the field's own name is matched literally.
                let found = source
                    .field_named(&field.name)
                    .or_else(|| names.skip(1).find_map(|name| source.field_at_path(name)));
                let column = field_path(outer, &field.name);
                match found {
                    Some(found) => {
                        self.resolve_field(field, arrow, found, source.record, plan, column)
                    }
                    None => self.resolve_missing_field(field, arrow, column),
                }
            })
            .collect()
    }

    fn resolve_missing_field(
        &mut self,
        field: &SchemaField,
        arrow: &FieldRef,
        column: String,
    ) -> Option<OutputField> {
        let node = match &field.default {
            Some(default) => match scalar_arrays::array_from_json(field, arrow, default) {
                Ok(value) => FieldValueSource::Constant(value),
                Err(reason) => {
                    self.add_conflict(&column, format!("its default {default}: {reason}"));
                    return None;
                }
            },
            None if field.nullable => FieldValueSource::Null,
            None => {
                self.add_conflict(
                    &column,
                    format!(
                        "the data has no such field, and it has neither a default nor may it be \
                         null (type {})",
                        field.kind
                    ),
                );
                return None;
            }
        };
        Some(OutputField {
            field: arrow.clone(),
            path: column,
            null_bits: Vec::new(),
            source: node,
        })
    }

    fn resolve_field(
        &mut self,
        field: &SchemaField,
        arrow: &FieldRef,
        found: WriterField<'_>,
        record: &RowStructure,
        plan: &mut RecordDecodePlan,
        column: String,
    ) -> Option<OutputField> {
        let node = self.resolve_value_source(field, arrow, &found, record, plan, &column)?;
        Some(OutputField {
            field: arrow.clone(),
            path: column,
            null_bits: found.null_bits,
            source: node,
        })
    }

    fn resolve_value_source(
        &mut self,
        field: &SchemaField,
        arrow: &FieldRef,
        found: &WriterField<'_>,
        record: &RowStructure,
        plan: &mut RecordDecodePlan,
        column: &str,
    ) -> Option<FieldValueSource> {
        let leaf = record.leaves.get(found.leaf)?;
        let writer = &found.field.kind;
        if !is_decodable_type(arrow.data_type()) {
            let data_type = arrow.data_type();
            self.add_conflict(column, format!("rows are not decoded into {data_type}"));
            return None;
        }
        let widens = |times| FieldValueSource::Integer {
            slot: match leaf.kind {
                LeafKind::Integer { slot } => slot,
                _ => usize::MAX,
            },
            signed: is_signed_slot(record, leaf.kind),
            factor: times,
        };
        let node = match (writer, &field.kind) {
            (FieldType::Null, _) if field.nullable => Some(FieldValueSource::Null),
            (FieldType::Boolean, FieldType::Boolean) => match leaf.kind {
                LeafKind::Boolean { bit } => Some(FieldValueSource::Boolean { bit }),
                _ => None,
            },
            (FieldType::Date, FieldType::Timestamp { unit, .. }) => {
                Some(widens(86_400 * unit.units_per_second()))
            }
            (FieldType::Date, FieldType::Date64) => {
                Some(widens(86_400 * TemporalUnit::Millisecond.units_per_second()))
            }
            (
                FieldType::Decimal { bits, precision, scale },
                FieldType::Decimal { bits: to, precision: digits, scale: behind },
            ) if scale == behind && precision <= digits && bits <= to => match leaf.kind {
                LeafKind::Wide { slot } => Some(FieldValueSource::Wide { slot }),
                _ => Some(widens(1)),
            },
            (writer, reader)
                if writer == reader
                    && matches!(leaf.kind, LeafKind::Integer { .. })
                    && !matches!(writer, FieldType::Enum { .. }) =>
            {
                Some(widens(1))
            }
            (writer, reader) if is_widening(writer, reader) => Some(widens(1)),
            (FieldType::Float16, FieldType::Float16 | FieldType::Float32 | FieldType::Float64)
            | (FieldType::Float32, FieldType::Float32 | FieldType::Float64)
            | (FieldType::Float64, FieldType::Float64) => match leaf.kind {
                LeafKind::Float { slot } => match record.slots.get(slot) {
                    Some(SlotKind::Float { bytes }) => {
                        Some(FieldValueSource::Float { slot, bytes: *bytes })
                    }
                    _ => None,
                },
                _ => None,
            },
            (FieldType::Fixed(size), FieldType::Fixed(wanted)) if size == wanted => match leaf.kind
            {
                LeafKind::Fixed { slot } => Some(FieldValueSource::Fixed { slot }),
                _ => None,
            },
            (FieldType::String | FieldType::Binary, FieldType::String | FieldType::Binary) => {
                Some(FieldValueSource::Bytes { span_index: plan.request_spans(found.leaf) })
            }
            (FieldType::Enum { symbols, .. }, FieldType::Enum { .. } | FieldType::String) => {
                let LeafKind::Integer { slot } = leaf.kind else { return None };
                let (known, default): (&[String], _) = match &field.kind {
                    FieldType::Enum { symbols, default } => (symbols, default.as_ref()),
                    _ => (symbols, None),
                };
                let position = |symbol: &String| {
                    let at = known.iter().position(|known| known == symbol)?;
                    i32::try_from(at).ok()
                };
                let keys = symbols
                    .iter()
                    .map(|symbol| position(symbol).or_else(|| default.and_then(position)))
                    .collect();
                let values: ArrayRef = Arc::new(StringArray::from_iter_values(known));
                let target = match arrow.data_type() {
                    DataType::Dictionary(_, values) => values.as_ref(),
                    other => other,
                };
                let values = scalar_arrays::cast_strings(&values, target)?;
                Some(FieldValueSource::Enum {
                    slot,
                    reader_keys: keys,
                    writer_symbols: symbols.clone(),
                    symbols: values,
                })
            }
            (FieldType::List(from), FieldType::List(to)) => {
                let (DataType::List(item) | DataType::LargeList(item)) = arrow.data_type() else {
                    return None;
                };
                let to = std::slice::from_ref(to.as_ref());
                let item: Fields = [item.clone()].into_iter().collect();
                return self.resolve_items(
                    (std::slice::from_ref(from.as_ref()), to, &item),
                    found,
                    record,
                    plan,
                    column,
                );
            }
            (
                FieldType::Map { key, value, .. },
                FieldType::Map { key: to_key, value: to_value, .. },
            ) => {
                let DataType::Map(entries, _) = arrow.data_type() else { return None };
                let DataType::Struct(pair) = entries.data_type() else { return None };
                let from = [(**key).clone(), (**value).clone()];
                let to = [(**to_key).clone(), (**to_value).clone()];
                return self.resolve_items((&from, &to, pair), found, record, plan, column);
            }
            (FieldType::Struct(from), FieldType::Struct(to)) => {
                let DataType::Struct(inner) = arrow.data_type() else { return None };
                let source = WriterRecord {
                    record,
                    fields: from,
                    first_leaf: found.leaf + 1,
                    null_bits: Vec::new(),
                };
                let outs = self.resolve_fields(to, inner, &source, plan, column);
                return Some(FieldValueSource::Struct(outs));
            }
            _ => None,
        };
        if node.is_none() {
            let hint = conflict_hint(writer, &field.kind);
            self.add_conflict(
                column,
                format!("the data has {writer}, which is not read as {}{hint}", field.kind),
            );
        }
        node
    }

    /// Resolves the items of a list, or the pairs of a map: the same number of fields, matched by order.
    fn resolve_items(
        &mut self,
        (from, to, arrow): (&[SchemaField], &[SchemaField], &Fields),
        found: &WriterField<'_>,
        record: &RowStructure,
        plan: &mut RecordDecodePlan,
        column: &str,
    ) -> Option<FieldValueSource> {
        let LeafKind::List { count, child, .. } = record.leaves.get(found.leaf)?.kind else {
            return None;
        };
        let inner = record.children.get(child)?;
        let mut items = RecordDecodePlan::new(inner);
        let mut leaf = 0;
        for ((from, to), arrow) in from.iter().zip(to).zip(arrow) {
            let nulls = inner.leaves.get(leaf)?.null_bit.into_iter().collect();
            let found = WriterField { field: from, leaf, null_bits: nulls };
            let column = field_path(column, &to.name);
            let out = self.resolve_field(to, arrow, found, inner, &mut items, column);
            items.output_fields.extend(out);
            leaf += leaf_count(from);
        }
        Some(FieldValueSource::List {
            span_index: plan.request_spans(found.leaf),
            count,
            child,
            items,
        })
    }
}

fn is_signed_slot(record: &RowStructure, kind: LeafKind) -> bool {
    match kind {
        LeafKind::Integer { slot } => {
            matches!(record.slots.get(slot), Some(SlotKind::Integer { signed: true, .. }))
        }
        _ => false,
    }
}

/// Returns true if every integer type conversion from `writer` to `reader` widens.
fn is_widening(writer: &FieldType, reader: &FieldType) -> bool {
    fn rank(kind: &FieldType) -> Option<(bool, u8)> {
        Some(match kind {
            FieldType::Int8 => (true, 8),
            FieldType::Int16 => (true, 16),
            FieldType::Int32 => (true, 32),
            FieldType::Int64 => (true, 64),
            FieldType::Uint8 => (false, 8),
            FieldType::Uint16 => (false, 16),
            FieldType::Uint32 => (false, 32),
            FieldType::Uint64 => (false, 64),
            _ => return None,
        })
    }
    match (rank(writer), rank(reader), reader) {
        (Some((false, from)), Some((true, to)), _) => from < to,
        (Some((from_signed, from)), Some((to_signed, to)), _) => {
            from_signed == to_signed && from <= to
        }
        // As in Avro: any integer, although not every one exactly.
        (Some(_), None, FieldType::Float32 | FieldType::Float64) => true,
        _ => false,
    }
}

/// Returns true if rows can be decoded into the Arrow type.
fn is_decodable_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(key, values) => {
            **key == DataType::Int32 && crate::schema::is_string_type(values)
        }
        _ => true,
    }
}

fn conflict_hint(writer: &FieldType, reader: &FieldType) -> &'static str {
    match (writer, reader) {
        _ if is_widening(reader, writer) => "; types only widen, never narrow",
        (FieldType::Timestamp { .. }, FieldType::Timestamp { .. }) => {
            "; units and zones must be the same"
        }
        (FieldType::Decimal { .. }, FieldType::Decimal { .. }) => {
            "; the scale must be the same, and the precision may only grow"
        }
        _ => "",
    }
}

/// Projects a schema to columns, in the order of their names.
pub(crate) fn project_columns(schema: &arrow_schema::Schema, columns: &[String]) -> Result<Fields> {
    columns
        .iter()
        .map(|name| {
            let found = schema.fields().iter().find(|field| field.name() == name);
            found.cloned().ok_or_else(|| {
                let fields = schema.fields().iter();
                let named = fields.map(|field| SchemaField {
                    name: field.name().clone(),
                    kind: FieldType::Null,
                    nullable: true,
                    aliases: Vec::new(),
                    default: None,
                    doc: None,
                    metadata: std::collections::BTreeMap::new(),
                });
                crate::schema::unknown_column_error(name, &named.collect::<Vec<_>>())
            })
        })
        .collect()
}
