//! A reader's schema against a writer's: what each field comes from, or why it cannot.
//!
//! The rules are those of the Avro specification ("Schema Resolution"), by name and recursively,
//! with what Arrow's types add. They are checked once, when a file is opened; every conflict
//! is listed. What depends on values (is a required field null, is an enum's symbol known) is
//! looked at while decoding.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{DataType, FieldRef, Fields};

use crate::decode::{Node, Out, RecordPlan};
use crate::error::{Conflict, Conflicts, Error, Result};
use crate::layout::{LeafKind, Record, SlotKind};
use crate::schema::{Field, Schema, Type, Unit, path};
use crate::values;

/// How data of a writer's schema is read with a reader's. Made once; it can be shared by
/// threads and used for any number of files with the same schema.
#[derive(Debug)]
pub struct Plan {
    pub(crate) writer: Schema,
    pub(crate) record: Record,
    pub(crate) rows: RecordPlan,
    pub(crate) schema: arrow_schema::SchemaRef,
}

impl Plan {
    /// The plan to read data of `writer` as `reader`, whose fields' metadata may have the
    /// [keys](crate::keys) for aliases, defaults and enums. Only what `reader` names is decoded:
    /// a projection is a schema with fewer fields.
    ///
    /// # Errors
    /// [`Error::Incompatible`] with every conflict; what [`Schema::from_arrow`] refuses.
    pub fn new(writer: &Schema, reader: &arrow_schema::SchemaRef) -> Result<Self> {
        writer.check()?;
        let logical = Schema::from_arrow(reader)?;
        let record = Record::new(writer);
        let mut resolver = Resolver { conflicts: Vec::new() };
        let mut rows = RecordPlan::new(&record);
        let source =
            WriterRecord { record: &record, fields: &writer.fields, first: 0, nulls: Vec::new() };
        rows.outs = resolver.fields(&logical.fields, reader.fields(), &source, &mut rows, "");
        if !resolver.conflicts.is_empty() {
            return Err(Error::Incompatible(Conflicts(resolver.conflicts)));
        }
        Ok(Self { writer: writer.clone(), record, rows, schema: reader.clone() })
    }

    /// The schema of the batches that come out.
    #[must_use]
    pub fn schema(&self) -> &arrow_schema::SchemaRef {
        &self.schema
    }

    /// The schema of the data.
    #[must_use]
    pub fn writer(&self) -> &Schema {
        &self.writer
    }
}

impl Schema {
    /// Whether a reader with this schema reads data of `writer`.
    ///
    /// ```
    /// # use tidemill_rowfile::{Error, Schema};
    /// let old = Schema::parse(r#"{"fields": [{"name": "n", "type": "int64"}]}"#)?;
    /// let new = Schema::parse(r#"{"fields": [{"name": "n", "type": "float64"}]}"#)?;
    /// assert!(new.reads(&old).is_ok());
    /// let Err(Error::Incompatible(conflicts)) = old.reads(&new) else { panic!() };
    /// assert_eq!(conflicts.0[0].column, "n");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Incompatible`] with every conflict.
    pub fn reads(&self, writer: &Self) -> Result<()> {
        self.check()?;
        let arrow = self.to_arrow(crate::Strings::default());
        Plan::new(writer, &Arc::new(arrow)).map(|_| ())
    }
}

/// Where a reader's fields may come from.
struct WriterRecord<'a> {
    record: &'a Record,
    fields: &'a [Field],
    /// The leaf of the first.
    first: usize,
    /// Bits of structs that hold them and that the reader does not have: where one is set, they
    /// are null.
    nulls: Vec<usize>,
}

/// A field of the writer.
struct WriterField<'a> {
    field: &'a Field,
    leaf: usize,
    nulls: Vec<usize>,
}

/// How many leaves a field takes.
fn leaves(field: &Field) -> usize {
    match &field.kind {
        Type::Struct(fields) => 1 + fields.iter().map(leaves).sum::<usize>(),
        _ => 1,
    }
}

impl<'a> WriterRecord<'a> {
    fn named(&self, name: &str) -> Option<WriterField<'a>> {
        let mut leaf = self.first;
        for field in self.fields {
            if field.name == name {
                let mut nulls = self.nulls.clone();
                nulls.extend(self.record.leaves.get(leaf).and_then(|leaf| leaf.null));
                return Some(WriterField { field, leaf, nulls });
            }
            leaf += leaves(field);
        }
        None
    }

    /// A field by its name or a path into structs.
    fn find(&self, name: &str) -> Option<WriterField<'a>> {
        if let Some(found) = self.named(name) {
            return Some(found);
        }
        // Names may have dots themselves: try every cut.
        name.match_indices('.').find_map(|(at, _)| {
            let outer = self.named(name.get(..at)?)?;
            let Type::Struct(fields) = &outer.field.kind else { return None };
            let inner = WriterRecord {
                record: self.record,
                fields,
                first: outer.leaf + 1,
                nulls: outer.nulls,
            };
            inner.find(name.get(at + 1..)?)
        })
    }
}

struct Resolver {
    conflicts: Vec<Conflict>,
}

impl Resolver {
    fn conflict(&mut self, column: &str, reason: String) {
        self.conflicts.push(Conflict { column: column.into(), reason });
    }

    fn fields(
        &mut self,
        fields: &[Field],
        arrow: &Fields,
        source: &WriterRecord<'_>,
        plan: &mut RecordPlan,
        outer: &str,
    ) -> Vec<Out> {
        let pairs = fields.iter().zip(arrow);
        pairs
            .filter_map(|(field, arrow)| {
                let names = std::iter::once(&field.name).chain(&field.aliases);
                // A path is an alias; the field's own name is taken as it is.
                let found = source
                    .named(&field.name)
                    .or_else(|| names.skip(1).find_map(|name| source.find(name)));
                let column = path(outer, &field.name);
                match found {
                    Some(found) => self.field(field, arrow, found, source.record, plan, column),
                    None => self.missing(field, arrow, column),
                }
            })
            .collect()
    }

    fn missing(&mut self, field: &Field, arrow: &FieldRef, column: String) -> Option<Out> {
        let node = match &field.default {
            Some(default) => match values::from_json(field, arrow, default) {
                Ok(value) => Node::Constant(value),
                Err(reason) => {
                    self.conflict(&column, format!("its default {default}: {reason}"));
                    return None;
                }
            },
            None if field.nullable => Node::Null,
            None => {
                self.conflict(
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
        Some(Out { field: arrow.clone(), path: column, nulls: Vec::new(), node })
    }

    fn field(
        &mut self,
        field: &Field,
        arrow: &FieldRef,
        found: WriterField<'_>,
        record: &Record,
        plan: &mut RecordPlan,
        column: String,
    ) -> Option<Out> {
        let node = self.node(field, arrow, &found, record, plan, &column)?;
        Some(Out { field: arrow.clone(), path: column, nulls: found.nulls, node })
    }

    fn node(
        &mut self,
        field: &Field,
        arrow: &FieldRef,
        found: &WriterField<'_>,
        record: &Record,
        plan: &mut RecordPlan,
        column: &str,
    ) -> Option<Node> {
        let leaf = record.leaves.get(found.leaf)?;
        let writer = &found.field.kind;
        if !is_readable(arrow.data_type()) {
            let data_type = arrow.data_type();
            self.conflict(column, format!("rows are not decoded into {data_type}"));
            return None;
        }
        let widens = |times| Node::Integer {
            slot: match leaf.kind {
                LeafKind::Integer { slot } => slot,
                _ => usize::MAX,
            },
            signed: is_signed(record, leaf.kind),
            times,
        };
        let node = match (writer, &field.kind) {
            (Type::Null, _) if field.nullable => Some(Node::Null),
            (Type::Boolean, Type::Boolean) => match leaf.kind {
                LeafKind::Boolean { bit } => Some(Node::Boolean { bit }),
                _ => None,
            },
            (Type::Date, Type::Timestamp { unit, .. }) => Some(widens(86_400 * unit.per_second())),
            (Type::Date, Type::Date64) => Some(widens(86_400 * Unit::Millisecond.per_second())),
            (
                Type::Decimal { bits, precision, scale },
                Type::Decimal { bits: to, precision: digits, scale: behind },
            ) if scale == behind && precision <= digits && bits <= to => match leaf.kind {
                LeafKind::Wide { slot } => Some(Node::Wide { slot }),
                _ => Some(widens(1)),
            },
            (writer, reader)
                if writer == reader
                    && matches!(leaf.kind, LeafKind::Integer { .. })
                    && !matches!(writer, Type::Enum { .. }) =>
            {
                Some(widens(1))
            }
            (writer, reader) if is_wider(writer, reader) => Some(widens(1)),
            (Type::Float16, Type::Float16 | Type::Float32 | Type::Float64)
            | (Type::Float32, Type::Float32 | Type::Float64)
            | (Type::Float64, Type::Float64) => match leaf.kind {
                LeafKind::Float { slot } => match record.slots.get(slot) {
                    Some(SlotKind::Float { bytes }) => Some(Node::Float { slot, bytes: *bytes }),
                    _ => None,
                },
                _ => None,
            },
            (Type::Fixed(size), Type::Fixed(wanted)) if size == wanted => match leaf.kind {
                LeafKind::Fixed { slot } => Some(Node::Fixed { slot }),
                _ => None,
            },
            (Type::String | Type::Binary, Type::String | Type::Binary) => {
                Some(Node::Bytes { want: plan.want(found.leaf) })
            }
            (Type::Enum { symbols, .. }, Type::Enum { .. } | Type::String) => {
                let LeafKind::Integer { slot } = leaf.kind else { return None };
                let (known, default): (&[String], _) = match &field.kind {
                    Type::Enum { symbols, default } => (symbols, default.as_ref()),
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
                let values = values::text_as(&values, target)?;
                Some(Node::Enum { slot, keys, names: symbols.clone(), symbols: values })
            }
            (Type::List(from), Type::List(to)) => {
                let (DataType::List(item) | DataType::LargeList(item)) = arrow.data_type() else {
                    return None;
                };
                let to = std::slice::from_ref(to.as_ref());
                let item: Fields = [item.clone()].into_iter().collect();
                return self.list(
                    (std::slice::from_ref(from.as_ref()), to, &item),
                    found,
                    record,
                    plan,
                    column,
                );
            }
            (Type::Map { key, value, .. }, Type::Map { key: to_key, value: to_value, .. }) => {
                let DataType::Map(entries, _) = arrow.data_type() else { return None };
                let DataType::Struct(pair) = entries.data_type() else { return None };
                let from = [(**key).clone(), (**value).clone()];
                let to = [(**to_key).clone(), (**to_value).clone()];
                return self.list((&from, &to, pair), found, record, plan, column);
            }
            (Type::Struct(from), Type::Struct(to)) => {
                let DataType::Struct(inner) = arrow.data_type() else { return None };
                let source =
                    WriterRecord { record, fields: from, first: found.leaf + 1, nulls: Vec::new() };
                let outs = self.fields(to, inner, &source, plan, column);
                return Some(Node::Struct(outs));
            }
            _ => None,
        };
        if node.is_none() {
            let hint = hint(writer, &field.kind);
            self.conflict(
                column,
                format!("the data has {writer}, which is not read as {}{hint}", field.kind),
            );
        }
        node
    }

    /// The items of a list, or the pairs of a map: the same number of fields, by their order.
    fn list(
        &mut self,
        (from, to, arrow): (&[Field], &[Field], &Fields),
        found: &WriterField<'_>,
        record: &Record,
        plan: &mut RecordPlan,
        column: &str,
    ) -> Option<Node> {
        let LeafKind::List { count, child, .. } = record.leaves.get(found.leaf)?.kind else {
            return None;
        };
        let inner = record.children.get(child)?;
        let mut items = RecordPlan::new(inner);
        let mut leaf = 0;
        for ((from, to), arrow) in from.iter().zip(to).zip(arrow) {
            let nulls = inner.leaves.get(leaf)?.null.into_iter().collect();
            let found = WriterField { field: from, leaf, nulls };
            let column = path(column, &to.name);
            let out = self.field(to, arrow, found, inner, &mut items, column);
            items.outs.extend(out);
            leaf += leaves(from);
        }
        Some(Node::List { want: plan.want(found.leaf), count, child, items })
    }
}

fn is_signed(record: &Record, kind: LeafKind) -> bool {
    match kind {
        LeafKind::Integer { slot } => {
            matches!(record.slots.get(slot), Some(SlotKind::Integer { signed: true, .. }))
        }
        _ => false,
    }
}

/// Whether integers widen.
fn is_wider(writer: &Type, reader: &Type) -> bool {
    fn rank(kind: &Type) -> Option<(bool, u8)> {
        Some(match kind {
            Type::Int8 => (true, 8),
            Type::Int16 => (true, 16),
            Type::Int32 => (true, 32),
            Type::Int64 => (true, 64),
            Type::Uint8 => (false, 8),
            Type::Uint16 => (false, 16),
            Type::Uint32 => (false, 32),
            Type::Uint64 => (false, 64),
            _ => return None,
        })
    }
    match (rank(writer), rank(reader), reader) {
        (Some((false, from)), Some((true, to)), _) => from < to,
        (Some((from_signed, from)), Some((to_signed, to)), _) => {
            from_signed == to_signed && from <= to
        }
        // As Avro has it: any integer, though not every one of them exactly.
        (Some(_), None, Type::Float32 | Type::Float64) => true,
        _ => false,
    }
}

/// Arrow types that rows are decoded into.
fn is_readable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(key, values) => {
            **key == DataType::Int32 && crate::schema::is_text(values)
        }
        _ => true,
    }
}

fn hint(writer: &Type, reader: &Type) -> &'static str {
    match (writer, reader) {
        _ if is_wider(reader, writer) => "; types only widen, never narrow",
        (Type::Timestamp { .. }, Type::Timestamp { .. }) => "; units and zones must be the same",
        (Type::Decimal { .. }, Type::Decimal { .. }) => {
            "; the scale must be the same, and the precision may only grow"
        }
        _ => "",
    }
}

/// A projection of a schema by column names, in the order of the names.
pub(crate) fn project(schema: &arrow_schema::Schema, columns: &[String]) -> Result<Fields> {
    columns
        .iter()
        .map(|name| {
            let found = schema.fields().iter().find(|field| field.name() == name);
            found.cloned().ok_or_else(|| {
                let fields = schema.fields().iter();
                let named = fields.map(|field| Field {
                    name: field.name().clone(),
                    kind: Type::Null,
                    nullable: true,
                    aliases: Vec::new(),
                    default: None,
                    doc: None,
                    metadata: std::collections::BTreeMap::new(),
                });
                crate::schema::unknown(name, &named.collect::<Vec<_>>())
            })
        })
        .collect()
}
