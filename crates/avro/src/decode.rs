//! Rows into Arrow's buffers, by a plan that is made of the schema once.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, IntervalMonthDayNanoArray, ListArray, MapArray, NullArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, make_array,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, Buffer, IntervalMonthDayNano, NullBuffer,
    OffsetBuffer, ScalarBuffer, i256,
};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, SchemaRef};

use crate::cursor::Cursor;
use crate::error::Fault;
use crate::schema::{Named, Schema, Type, entries_of, fields_of, item_of, union_fields};

/// Offsets of lists and keys are of 32 bits.
const OFFSET: Fault = "more items than a column has room for";

/// Decodes the wanted columns of rows, and steps over the others.
pub(crate) struct Decoder {
    steps: Vec<Step>,
    /// Per wanted column, which of the steps it is.
    columns: Vec<usize>,
    schema: SchemaRef,
    rows: usize,
    /// The least that a row takes in a file.
    row_bytes_min: usize,
    /// What the cursor has counted in this batch.
    expanded: usize,
}

struct Step {
    name: String,
    kind: Type,
    values: Option<Values>,
}

impl Decoder {
    pub(crate) fn new(schema: &Schema, columns: &[usize]) -> Self {
        let steps =
            schema.fields.iter().enumerate().map(|(index, Named { name, kind, .. })| Step {
                name: name.clone(),
                kind: kind.clone(),
                values: columns.contains(&index).then(|| Values::new(kind)),
            });
        let fields = columns.iter().filter_map(|column| schema.arrow().fields().get(*column));
        let fields: Vec<FieldRef> = fields.cloned().collect();
        let least = |sum: usize, field: &Named| sum.saturating_add(field.kind.bytes_min());
        Self {
            steps: steps.collect(),
            columns: columns.to_vec(),
            schema: Arc::new(arrow_schema::Schema::new(fields)),
            rows: 0,
            row_bytes_min: schema.fields.iter().fold(0, least),
            expanded: 0,
        }
    }

    /// How many rows at most are so many bytes if all their values are null.
    pub(crate) fn rows_max(&self, bytes: usize) -> usize {
        let wanted = self.steps.iter().filter(|step| step.values.is_some());
        let row = wanted.fold(0, |sum: usize, step| sum.saturating_add(null_bytes(&step.kind)));
        bytes / row.max(1)
    }

    pub(crate) fn row_bytes_min(&self) -> usize {
        self.row_bytes_min
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn expanded(&self) -> usize {
        self.expanded
    }

    /// The memory of what was decoded, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.steps.iter().filter_map(|step| step.values.as_ref()).map(Values::bytes).sum()
    }

    /// Decodes so many rows, or fewer if they are large. Tells how many; else the row and the
    /// column at fault.
    pub(crate) fn decode(
        &mut self,
        cursor: &mut Cursor<'_>,
        rows: u64,
    ) -> Result<u64, (u64, String, Fault)> {
        if self.columns.is_empty() && self.row_bytes_min == 0 {
            // Nothing to see: rows of nothing.
            self.rows += usize::try_from(rows).unwrap_or(usize::MAX);
            return Ok(rows);
        }
        for row in 0..rows {
            for step in &mut self.steps {
                let done = match &mut step.values {
                    Some(values) => values.decode(cursor),
                    None => skip(&step.kind, cursor),
                };
                done.map_err(|fault| (row, step.name.clone(), fault))?;
            }
            self.rows += 1;
            // Looked at now and then: a look costs as much as a small row.
            if row % 256 == 255 && self.bytes() >= 64 << 20 {
                self.expanded = cursor.expanded();
                return Ok(row + 1);
            }
        }
        self.expanded = cursor.expanded();
        Ok(rows)
    }

    /// What was decoded.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let values = self.steps.get_mut(*column).and_then(|step| step.values.as_mut());
            let values = values.ok_or_else(|| {
                ArrowError::InvalidArgumentError(format!("there is no column {column}"))
            })?;
            columns.push(values.finish(None)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.expanded = 0;
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// What a null of a type takes in memory.
fn null_bytes(kind: &Type) -> usize {
    match kind {
        Type::Null => 0,
        Type::Boolean => 1,
        Type::Int(_) | Type::Float | Type::Array(_) | Type::Map(_) => 4,
        Type::Long(_) | Type::Double => 8,
        Type::Fixed(size) if matches!(kind.arrow(), DataType::FixedSizeBinary(_)) => *size,
        Type::Decimal { precision: 39.., .. } => 32,
        Type::Record(fields) | Type::Union(fields) => {
            fields.iter().fold(1, |sum: usize, field| sum.saturating_add(null_bytes(&field.kind)))
        }
        Type::Nullable(kind, _) => 1 + null_bytes(kind),
        _ => 16,
    }
}

/// Steps over a value.
fn skip(kind: &Type, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    match kind {
        Type::Null => {}
        Type::Boolean => {
            cursor.boolean()?;
        }
        Type::Int(_) => {
            cursor.int()?;
        }
        Type::Long(_) => {
            cursor.long()?;
        }
        Type::Enum(symbols) => {
            symbol(symbols.len(), cursor)?;
        }
        Type::Float => {
            cursor.take(4)?;
        }
        Type::Double => {
            cursor.take(8)?;
        }
        Type::Bytes | Type::String | Type::Decimal { size: None, .. } => {
            cursor.bytes()?;
        }
        Type::Fixed(size) | Type::Decimal { size: Some(size), .. } => {
            cursor.take(*size)?;
        }
        Type::Uuid => {
            cursor.take(16)?;
        }
        Type::Duration => {
            cursor.take(12)?;
        }
        Type::Array(item) => loop {
            let (count, size) = cursor.items(item.bytes_min())?;
            match (count, size) {
                (0, _) => break,
                (_, Some(size)) => {
                    cursor.take(size)?;
                }
                (count, None) => (0..count).try_for_each(|_| skip(item, cursor))?,
            }
        },
        Type::Map(value) => loop {
            let (count, size) = cursor.items(value.bytes_min().saturating_add(1))?;
            match (count, size) {
                (0, _) => break,
                (_, Some(size)) => {
                    cursor.take(size)?;
                }
                (count, None) => {
                    for _ in 0..count {
                        cursor.bytes()?;
                        skip(value, cursor)?;
                    }
                }
            }
        },
        Type::Record(fields) => fields.iter().try_for_each(|field| skip(&field.kind, cursor))?,
        Type::Nullable(kind, null_first) => {
            if is_value(*null_first, cursor)? {
                skip(kind, cursor)?;
            }
        }
        Type::Union(branches) => skip(&branches[branch(branches.len(), cursor)?].kind, cursor)?,
    }
    Ok(())
}

fn symbol(count: usize, cursor: &mut Cursor<'_>) -> Result<usize, Fault> {
    let index = usize::try_from(cursor.int()?).ok().filter(|index| *index < count);
    index.ok_or("a symbol that its enum does not have")
}

fn branch(count: usize, cursor: &mut Cursor<'_>) -> Result<usize, Fault> {
    let index = usize::try_from(cursor.long()?).ok().filter(|index| *index < count);
    index.ok_or("a type that its union does not have")
}

/// Whether a value of one type or null is a value.
#[inline]
fn is_value(null_first: bool, cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    Ok((branch(2, cursor)? == 1) == null_first)
}

/// The values of a column, or of something within one.
enum Values {
    Null(usize),
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>, DataType),
    Long(Vec<i64>, DataType),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(crate::views::Views),
    Text(crate::views::Views),
    /// Bytes of this length, read as bytes of any.
    LongFixed(usize, crate::views::Views),
    Fixed(usize, Vec<u8>, usize),
    Uuid(crate::views::Views),
    Duration(Vec<IntervalMonthDayNano>),
    Decimal {
        values: Vec<i128>,
        size: Option<usize>,
        precision: u8,
        scale: i8,
        limit: i128,
    },
    WideDecimal {
        values: Vec<i256>,
        size: Option<usize>,
        precision: u8,
        scale: i8,
        limit: i256,
    },
    Enum(crate::views::Views, Symbols),
    List {
        item: FieldRef,
        bytes_min: usize,
        offsets: Vec<i32>,
        values: Box<Values>,
    },
    Map {
        entries: FieldRef,
        bytes_min: usize,
        offsets: Vec<i32>,
        keys: Keys,
        values: Box<Values>,
    },
    Struct {
        fields: Fields,
        children: Vec<Values>,
        count: usize,
    },
    Nullable {
        null_first: bool,
        null_bytes: usize,
        valid: BooleanBufferBuilder,
        values: Box<Values>,
    },
    Union(Box<Union>),
}

/// A struct of which at most one field has a value.
struct Union {
    fields: Fields,
    /// Per branch, which of the fields it is; none for null.
    branches: Vec<Option<usize>>,
    children: Vec<(BooleanBufferBuilder, Values)>,
    valid: BooleanBufferBuilder,
    null_bytes: usize,
}

/// The symbols of an enum, as views that are made once.
struct Symbols {
    views: Arc<[u128]>,
    text: Buffer,
}

#[derive(Default)]
struct Keys {
    offsets: Vec<i32>,
    text: Vec<u8>,
}

fn room() -> Vec<i32> {
    vec![0]
}

impl Values {
    fn new(kind: &Type) -> Self {
        let bits = || BooleanBufferBuilder::new(0);
        match kind {
            Type::Null => Values::Null(0),
            Type::Boolean => Values::Boolean(bits()),
            Type::Int(data_type) => Values::Int(Vec::new(), data_type.clone()),
            Type::Long(data_type) => Values::Long(Vec::new(), data_type.clone()),
            Type::Float => Values::Float(Vec::new()),
            Type::Double => Values::Double(Vec::new()),
            Type::Bytes => Values::Bytes(Default::default()),
            Type::String => Values::Text(Default::default()),
            Type::Fixed(size) => match kind.arrow() {
                DataType::FixedSizeBinary(_) => Values::Fixed(*size, Vec::new(), 0),
                _ => Values::LongFixed(*size, Default::default()),
            },
            Type::Uuid => Values::Uuid(Default::default()),
            Type::Duration => Values::Duration(Vec::new()),
            Type::Decimal { precision: precision @ ..=38, scale, size } => Values::Decimal {
                values: Vec::new(),
                size: *size,
                precision: *precision,
                scale: *scale,
                limit: 10_i128.pow(u32::from(*precision)),
            },
            Type::Decimal { precision, scale, size } => Values::WideDecimal {
                values: Vec::new(),
                size: *size,
                precision: *precision,
                scale: *scale,
                limit: i256::from_i128(10).wrapping_pow(u32::from(*precision)),
            },
            Type::Enum(symbols) => {
                let mut text = Vec::new();
                let views = symbols.iter().map(|symbol| {
                    let offset = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    if symbol.len() > 12 {
                        text.extend_from_slice(symbol.as_bytes());
                    }
                    make_view(symbol.as_bytes(), 0, offset)
                });
                let views = views.collect();
                Values::Enum(Default::default(), Symbols { views, text: Buffer::from_vec(text) })
            }
            Type::Array(item) => Values::List {
                item: item_of(item),
                bytes_min: item.bytes_min(),
                offsets: room(),
                values: Box::new(Values::new(item)),
            },
            Type::Map(value) => Values::Map {
                entries: entries_of(value),
                bytes_min: value.bytes_min().saturating_add(1),
                offsets: room(),
                keys: Keys { offsets: room(), text: Vec::new() },
                values: Box::new(Values::new(value)),
            },
            Type::Record(fields) => Values::Struct {
                fields: fields_of(fields),
                children: fields.iter().map(|field| Values::new(&field.kind)).collect(),
                count: 0,
            },
            Type::Nullable(inner, null_first) => Values::Nullable {
                null_first: *null_first,
                null_bytes: null_bytes(inner),
                valid: bits(),
                values: Box::new(Values::new(inner)),
            },
            Type::Union(branches) => {
                let mut fields = 0;
                let places = branches.iter().map(|branch| match branch.kind {
                    Type::Null => None,
                    _ => {
                        fields += 1;
                        Some(fields - 1)
                    }
                });
                let places = places.collect();
                let named = branches.iter().filter(|branch| !matches!(branch.kind, Type::Null));
                Values::Union(Box::new(Union {
                    fields: union_fields(branches),
                    branches: places,
                    children: named.map(|b| (bits(), Values::new(&b.kind))).collect(),
                    valid: bits(),
                    null_bytes: null_bytes(kind),
                }))
            }
        }
    }

    /// Reads one value.
    fn decode(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        match self {
            Values::Null(count) => *count += 1,
            Values::Boolean(bits) => bits.append(cursor.boolean()?),
            Values::Int(values, _) => values.push(cursor.int()?),
            Values::Long(values, _) => values.push(cursor.long()?),
            Values::Float(values) => values.push(f32::from_le_bytes(cursor.array()?)),
            Values::Double(values) => values.push(f64::from_le_bytes(cursor.array()?)),
            Values::Bytes(views) => views.push(cursor.bytes()?),
            Values::Text(views) => views.push(text(cursor)?),
            Values::LongFixed(size, views) => views.push(cursor.take(*size)?),
            Values::Fixed(size, values, count) => {
                values.extend_from_slice(cursor.take(*size)?);
                *count += 1;
            }
            Values::Uuid(views) => views.push(&uuid(&cursor.array()?)),
            Values::Duration(values) => {
                let [months, days, millis] =
                    [cursor.array()?, cursor.array()?, cursor.array()?].map(u32::from_le_bytes);
                let (Ok(months), Ok(days)) = (i32::try_from(months), i32::try_from(days)) else {
                    return Err("a duration of more than 2147483647 months or days");
                };
                let nanoseconds = i64::from(millis) * 1_000_000;
                values.push(IntervalMonthDayNano { months, days, nanoseconds });
            }
            Values::Decimal { values, size, limit, .. } => {
                let bytes = decimal(*size, cursor)?;
                let value = i128::from_be_bytes(extended(bytes)?);
                if value >= *limit || value <= -*limit {
                    return Err("a decimal of more digits than its type has");
                }
                values.push(value);
            }
            Values::WideDecimal { values, size, limit, .. } => {
                let bytes = decimal(*size, cursor)?;
                let value = i256::from_be_bytes(extended(bytes)?);
                if value >= *limit || value <= -*limit {
                    return Err("a decimal of more digits than its type has");
                }
                values.push(value);
            }
            Values::Enum(views, symbols) => {
                views.push_view(symbols.views[symbol(symbols.views.len(), cursor)?]);
            }
            Values::List { bytes_min, offsets, values, .. } => {
                let mut end = last(offsets);
                loop {
                    let (count, _) = cursor.items(*bytes_min)?;
                    if count == 0 {
                        break;
                    }
                    end =
                        i32::try_from(count).ok().and_then(|n| end.checked_add(n)).ok_or(OFFSET)?;
                    (0..count).try_for_each(|_| values.decode(cursor))?;
                }
                offsets.push(end);
            }
            Values::Map { bytes_min, offsets, keys, values, .. } => {
                let mut end = last(offsets);
                loop {
                    let (count, _) = cursor.items(*bytes_min)?;
                    if count == 0 {
                        break;
                    }
                    end =
                        i32::try_from(count).ok().and_then(|n| end.checked_add(n)).ok_or(OFFSET)?;
                    for _ in 0..count {
                        keys.text.extend_from_slice(text(cursor)?);
                        keys.offsets.push(i32::try_from(keys.text.len()).map_err(|_| OFFSET)?);
                        values.decode(cursor)?;
                    }
                }
                offsets.push(end);
            }
            Values::Struct { children, count, .. } => {
                children.iter_mut().try_for_each(|child| child.decode(cursor))?;
                *count += 1;
            }
            Values::Nullable { null_first, null_bytes, valid, values } => {
                let is_value = is_value(*null_first, cursor)?;
                valid.append(is_value);
                if is_value {
                    values.decode(cursor)?;
                } else {
                    cursor.expand(*null_bytes)?;
                    values.push_null();
                }
            }
            Values::Union(union) => {
                let wanted = union.branches[branch(union.branches.len(), cursor)?];
                union.valid.append(wanted.is_some());
                cursor.expand(union.null_bytes)?;
                for (index, (valid, values)) in union.children.iter_mut().enumerate() {
                    let is_value = wanted == Some(index);
                    valid.append(is_value);
                    match is_value {
                        true => values.decode(cursor)?,
                        false => values.push_null(),
                    }
                }
            }
        }
        Ok(())
    }

    /// A place that is null further out.
    fn push_null(&mut self) {
        match self {
            Values::Null(count) => *count += 1,
            Values::Boolean(bits) => bits.append(false),
            Values::Int(values, _) => values.push(0),
            Values::Long(values, _) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Bytes(views)
            | Values::Text(views)
            | Values::LongFixed(_, views)
            | Values::Uuid(views)
            | Values::Enum(views, _) => views.push_null(),
            Values::Fixed(size, values, count) => {
                values.resize(values.len() + *size, 0);
                *count += 1;
            }
            Values::Duration(values) => values.push(IntervalMonthDayNano::default()),
            Values::Decimal { values, .. } => values.push(0),
            Values::WideDecimal { values, .. } => values.push(i256::ZERO),
            Values::List { offsets, .. } | Values::Map { offsets, .. } => {
                offsets.push(last(offsets))
            }
            Values::Struct { children, count, .. } => {
                children.iter_mut().for_each(Values::push_null);
                *count += 1;
            }
            Values::Nullable { valid, values, .. } => {
                valid.append(false);
                values.push_null();
            }
            Values::Union(union) => {
                union.valid.append(false);
                for (valid, values) in &mut union.children {
                    valid.append(false);
                    values.push_null();
                }
            }
        }
    }

    /// What is held, roughly.
    fn bytes(&self) -> usize {
        match self {
            Values::Null(_) => 0,
            Values::Boolean(bits) => bits.len() / 8,
            Values::Int(values, _) => 4 * values.len(),
            Values::Long(values, _) => 8 * values.len(),
            Values::Float(values) => 4 * values.len(),
            Values::Double(values) => 8 * values.len(),
            Values::Bytes(views)
            | Values::Text(views)
            | Values::LongFixed(_, views)
            | Values::Uuid(views)
            | Values::Enum(views, _) => views.bytes(),
            Values::Fixed(_, values, _) => values.len(),
            Values::Duration(values) => 16 * values.len(),
            Values::Decimal { values, .. } => 16 * values.len(),
            Values::WideDecimal { values, .. } => 32 * values.len(),
            Values::List { offsets, values, .. } => 4 * offsets.len() + values.bytes(),
            Values::Map { offsets, keys, values, .. } => {
                4 * (offsets.len() + keys.offsets.len()) + keys.text.len() + values.bytes()
            }
            Values::Struct { children, .. } => children.iter().map(Values::bytes).sum(),
            Values::Nullable { values, .. } => values.bytes(),
            Values::Union(union) => union.children.iter().map(|(_, values)| values.bytes()).sum(),
        }
    }

    /// An array of what was read.
    fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Values::Null(count) => Arc::new(NullArray::new(std::mem::take(count))),
            Values::Boolean(bits) => Arc::new(boolean(bits.finish(), nulls)?),
            Values::Int(values, data_type) => typed(std::mem::take(values), data_type, nulls)?,
            Values::Long(values, data_type) => typed(std::mem::take(values), data_type, nulls)?,
            Values::Float(values) => {
                Arc::new(Float32Array::try_new(std::mem::take(values).into(), nulls)?)
            }
            Values::Double(values) => {
                Arc::new(Float64Array::try_new(std::mem::take(values).into(), nulls)?)
            }
            Values::Bytes(views) | Values::LongFixed(_, views) => views.binary(nulls),
            // SAFETY: text was looked at as it was read, and a uuid is made of digits.
            Values::Text(views) | Values::Uuid(views) => unsafe { views.text(nulls) },
            Values::Enum(views, symbols) => {
                if !symbols.text.is_empty() {
                    views.share(symbols.text.clone());
                }
                // SAFETY: symbols are text.
                unsafe { views.text(nulls) }
            }
            Values::Fixed(size, values, count) => {
                let values = Buffer::from_vec(std::mem::take(values));
                let size = i32::try_from(*size)
                    .map_err(|_| ArrowError::InvalidArgumentError("a fixed size".into()))?;
                let rows = std::mem::take(count);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, values, nulls, rows)?)
            }
            Values::Duration(values) => {
                let values = ScalarBuffer::from(std::mem::take(values));
                Arc::new(IntervalMonthDayNanoArray::try_new(values, nulls)?)
            }
            Values::Decimal { values, precision, scale, .. } => {
                let values = Decimal128Array::try_new(std::mem::take(values).into(), nulls)?;
                Arc::new(values.with_precision_and_scale(*precision, *scale)?)
            }
            Values::WideDecimal { values, precision, scale, .. } => {
                let values = Decimal256Array::try_new(std::mem::take(values).into(), nulls)?;
                Arc::new(values.with_precision_and_scale(*precision, *scale)?)
            }
            Values::List { item, offsets, values, .. } => {
                let offsets = taken(offsets);
                let values = values.finish(None)?;
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
            Values::Map { entries, offsets, keys, values, .. } => {
                let offsets = taken(offsets);
                let text = Buffer::from_vec(std::mem::take(&mut keys.text));
                // SAFETY: each key was looked at as it was read.
                let keys =
                    unsafe { StringArray::new_unchecked(taken(&mut keys.offsets), text, None) };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(ArrowError::SchemaError("a map without entries".into()));
                };
                let columns = vec![Arc::new(keys) as ArrayRef, values.finish(None)?];
                let pairs = StructArray::try_new(pair.clone(), columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, false)?)
            }
            Values::Struct { fields, children, count } => {
                let columns = children.iter_mut().map(|child| child.finish(None));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let rows = std::mem::take(count);
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?)
            }
            Values::Nullable { valid, values, .. } => {
                values.finish(both(nulls, Some(valid.finish())))?
            }
            Values::Union(union) => {
                let rows = union.valid.len();
                let nulls = both(nulls, Some(union.valid.finish()));
                let children = union.children.iter_mut();
                let columns =
                    children.map(|(valid, values)| values.finish(both(None, Some(valid.finish()))));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let fields = union.fields.clone();
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows)?)
            }
        })
    }
}

fn boolean(values: BooleanBuffer, nulls: Option<NullBuffer>) -> Result<BooleanArray, ArrowError> {
    match nulls.as_ref().is_none_or(|nulls| nulls.len() == values.len()) {
        true => Ok(BooleanArray::new(values, nulls)),
        false => Err(ArrowError::InvalidArgumentError("truths and nulls of other lengths".into())),
    }
}

fn both(outer: Option<NullBuffer>, own: Option<BooleanBuffer>) -> Option<NullBuffer> {
    let own = own.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
    NullBuffer::union(outer.as_ref(), own.as_ref())
}

fn last(offsets: &[i32]) -> i32 {
    offsets.last().copied().unwrap_or(0)
}

fn taken(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let offsets = std::mem::replace(offsets, room());
    // SAFETY: they begin with 0 and only grow.
    unsafe { OffsetBuffer::new_unchecked(offsets.into()) }
}

/// Numbers as any type of their width.
fn typed<T: ArrowNativeType>(
    values: Vec<T>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let data = ArrayData::builder(data_type.clone())
        .len(values.len())
        .add_buffer(Buffer::from_vec(values))
        .nulls(nulls);
    Ok(make_array(data.build()?))
}

fn text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let bytes = cursor.bytes()?;
    match bytes.is_ascii() || simdutf8::basic::from_utf8(bytes).is_ok() {
        true => Ok(bytes),
        false => Err("text that is not UTF-8"),
    }
}

fn decimal<'a>(size: Option<usize>, cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    match size {
        Some(size) => cursor.take(size),
        None => cursor.bytes(),
    }
}

/// Big-endian bytes with their sign, as so many of them.
fn extended<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Fault> {
    let sign = match bytes.first() {
        Some(first) if *first >= 0x80 => 0xff,
        _ => 0,
    };
    let mut wide = [sign; N];
    let spare = bytes.len().saturating_sub(N);
    let (more, low) = bytes.split_at(spare);
    let from = N - low.len();
    wide[from..].copy_from_slice(low);
    let keeps_sign = spare == 0 || (low[0] >= 0x80) == (sign == 0xff);
    match more.iter().all(|byte| *byte == sign) && keeps_sign {
        true => Ok(wide),
        false => Err("a decimal of more digits than its type has"),
    }
}

/// As it is usually written.
fn uuid(bytes: &[u8; 16]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        for digit in [byte >> 4, byte & 0xf] {
            text[at] = b"0123456789abcdef"[usize::from(digit)];
            at += 1;
        }
    }
    text
}
