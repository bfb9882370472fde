//! Decoder from rows to Arrow's buffers, which follows a plan that is derived from the schema once.

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

use crate::error::ValueFault;
use crate::schema::{
    AvroType, NamedType, Schema, list_item_field, map_entries_field, struct_fields, union_fields,
};
use crate::value_cursor::ValueCursor;

/// Fault of a column whose lists or keys exceed 32-bit offsets.
const OFFSET_OVERFLOW: ValueFault = "more items than a column has room for";

/// A decoder of the wanted columns of rows, which steps over the others.
pub(crate) struct RowDecoder {
    file_columns: Vec<AvroFileColumn>,
    /// Index into `column_layouts` of each wanted column.
    wanted_columns: Vec<usize>,
    schema: SchemaRef,
    row_count: usize,
    /// Minimum length of a row in a file.
    row_bytes_min: usize,
    /// The cursor's count of expanded bytes in this batch.
    expanded_bytes: usize,
}

struct AvroFileColumn {
    name: String,
    avro_type: AvroType,
    builder: Option<ValueBuilder>,
}

impl RowDecoder {
    pub(crate) fn new(schema: &Schema, columns: &[usize]) -> Self {
        let steps = schema.named_types.iter().enumerate().map(
            |(index, NamedType { name, avro_type: kind, .. })| AvroFileColumn {
                name: name.clone(),
                avro_type: kind.clone(),
                builder: columns.contains(&index).then(|| ValueBuilder::new(kind)),
            },
        );
        let fields =
            columns.iter().filter_map(|column| schema.arrow_schema().fields().get(*column));
        let fields: Vec<FieldRef> = fields.cloned().collect();
        let least =
            |sum: usize, field: &NamedType| sum.saturating_add(field.avro_type.encoded_bytes_min());
        Self {
            file_columns: steps.collect(),
            wanted_columns: columns.to_vec(),
            schema: Arc::new(arrow_schema::Schema::new(fields)),
            row_count: 0,
            row_bytes_min: schema.named_types.iter().fold(0, least),
            expanded_bytes: 0,
        }
    }

    /// Returns the number of rows that take `bytes` of memory if all their values are null.
    pub(crate) fn rows_max(&self, bytes: usize) -> usize {
        let wanted = self.file_columns.iter().filter(|step| step.builder.is_some());
        let row =
            wanted.fold(0, |sum: usize, step| sum.saturating_add(null_bytes(&step.avro_type)));
        bytes / row.max(1)
    }

    pub(crate) fn row_bytes_min(&self) -> usize {
        self.row_bytes_min
    }

    pub(crate) fn row_count(&self) -> usize {
        self.row_count
    }

    pub(crate) fn expanded_bytes(&self) -> usize {
        self.expanded_bytes
    }

    /// Returns the approximate memory of the decoded rows.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.file_columns
            .iter()
            .filter_map(|step| step.builder.as_ref())
            .map(ValueBuilder::memory_bytes)
            .sum()
    }

    /// Decodes `rows` rows, or fewer if they are large; returns their number. On failure returns the row and
    /// the column at fault.
    pub(crate) fn decode_rows(
        &mut self,
        cursor: &mut ValueCursor<'_>,
        rows: u64,
    ) -> Result<u64, (u64, String, ValueFault)> {
        if self.wanted_columns.is_empty() && self.row_bytes_min == 0 {
            // Rows without columns and bytes.
            self.row_count += usize::try_from(rows).unwrap_or(usize::MAX);
            return Ok(rows);
        }
        for row in 0..rows {
            for step in &mut self.file_columns {
                let done = match &mut step.builder {
                    Some(values) => values.decode_value(cursor),
                    None => skip_value(&step.avro_type, cursor),
                };
                done.map_err(|fault| (row, step.name.clone(), fault))?;
            }
            self.row_count += 1;
            // Checked only now and then: a check costs as much as a small row.
            if row % 256 == 255 && self.memory_bytes() >= 64 << 20 {
                self.expanded_bytes = cursor.expanded_bytes();
                return Ok(row + 1);
            }
        }
        self.expanded_bytes = cursor.expanded_bytes();
        Ok(rows)
    }

    /// Returns the batch of the decoded rows.
    pub(crate) fn finish_batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(self.wanted_columns.len());
        for column in &self.wanted_columns {
            let values = self.file_columns.get_mut(*column).and_then(|step| step.builder.as_mut());
            let values = values.ok_or_else(|| {
                ArrowError::InvalidArgumentError(format!("there is no column {column}"))
            })?;
            columns.push(values.finish_array(None)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        self.row_count = 0;
        self.expanded_bytes = 0;
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// Returns the memory that a null of a type takes.
fn null_bytes(kind: &AvroType) -> usize {
    match kind {
        AvroType::Null => 0,
        AvroType::Boolean => 1,
        AvroType::Int(_) | AvroType::Float | AvroType::Array(_) | AvroType::Map(_) => 4,
        AvroType::Long(_) | AvroType::Double => 8,
        AvroType::Fixed(size) if matches!(kind.arrow_type(), DataType::FixedSizeBinary(_)) => *size,
        AvroType::Decimal { precision: 39.., .. } => 32,
        AvroType::Record(fields) | AvroType::Union(fields) => fields
            .iter()
            .fold(1, |sum: usize, field| sum.saturating_add(null_bytes(&field.avro_type))),
        AvroType::Nullable(kind, _) => 1 + null_bytes(kind),
        _ => 16,
    }
}

/// Skips a value.
fn skip_value(kind: &AvroType, cursor: &mut ValueCursor<'_>) -> Result<(), ValueFault> {
    match kind {
        AvroType::Null => {}
        AvroType::Boolean => {
            cursor.read_boolean()?;
        }
        AvroType::Int(_) => {
            cursor.read_int()?;
        }
        AvroType::Long(_) => {
            cursor.read_long()?;
        }
        AvroType::Enum(symbols) => {
            read_symbol(symbols.len(), cursor)?;
        }
        AvroType::Float => {
            cursor.take_bytes(4)?;
        }
        AvroType::Double => {
            cursor.take_bytes(8)?;
        }
        AvroType::Bytes | AvroType::String | AvroType::Decimal { size: None, .. } => {
            cursor.read_bytes()?;
        }
        AvroType::Fixed(size) | AvroType::Decimal { size: Some(size), .. } => {
            cursor.take_bytes(*size)?;
        }
        AvroType::Uuid => {
            cursor.take_bytes(16)?;
        }
        AvroType::Duration => {
            cursor.take_bytes(12)?;
        }
        AvroType::Array(item) => loop {
            let (count, size) = cursor.read_item_count(item.encoded_bytes_min())?;
            match (count, size) {
                (0, _) => break,
                (_, Some(size)) => {
                    cursor.take_bytes(size)?;
                }
                (count, None) => (0..count).try_for_each(|_| skip_value(item, cursor))?,
            }
        },
        AvroType::Map(value) => loop {
            let (count, size) =
                cursor.read_item_count(value.encoded_bytes_min().saturating_add(1))?;
            match (count, size) {
                (0, _) => break,
                (_, Some(size)) => {
                    cursor.take_bytes(size)?;
                }
                (count, None) => {
                    for _ in 0..count {
                        cursor.read_bytes()?;
                        skip_value(value, cursor)?;
                    }
                }
            }
        },
        AvroType::Record(fields) => {
            fields.iter().try_for_each(|field| skip_value(&field.avro_type, cursor))?
        }
        AvroType::Nullable(kind, null_first) => {
            if read_not_null(*null_first, cursor)? {
                skip_value(kind, cursor)?;
            }
        }
        AvroType::Union(branches) => {
            skip_value(&branches[read_branch(branches.len(), cursor)?].avro_type, cursor)?
        }
    }
    Ok(())
}

fn read_symbol(count: usize, cursor: &mut ValueCursor<'_>) -> Result<usize, ValueFault> {
    let index = usize::try_from(cursor.read_int()?).ok().filter(|index| *index < count);
    index.ok_or("a symbol that its enum does not have")
}

fn read_branch(count: usize, cursor: &mut ValueCursor<'_>) -> Result<usize, ValueFault> {
    let index = usize::try_from(cursor.read_long()?).ok().filter(|index| *index < count);
    index.ok_or("a type that its union does not have")
}

/// Reads the branch of a nullable value and returns whether it is not null.
#[inline]
fn read_not_null(null_first: bool, cursor: &mut ValueCursor<'_>) -> Result<bool, ValueFault> {
    Ok((read_branch(2, cursor)? == 1) == null_first)
}

/// A builder of the values of a column, or of a part of one.
enum ValueBuilder {
    Null(usize),
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>, DataType),
    Long(Vec<i64>, DataType),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(crate::view_builder::ByteViewCollector),
    Text(crate::view_builder::ByteViewCollector),
    /// Bytes of this fixed length, which become bytes of any length.
    LongFixed(usize, crate::view_builder::ByteViewCollector),
    Fixed(usize, Vec<u8>, usize),
    Uuid(crate::view_builder::ByteViewCollector),
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
    Enum(crate::view_builder::ByteViewCollector, AvroEnumSymbols),
    List {
        item: FieldRef,
        bytes_min: usize,
        offsets: Vec<i32>,
        values: Box<ValueBuilder>,
    },
    Map {
        entries: FieldRef,
        bytes_min: usize,
        offsets: Vec<i32>,
        keys: MapKeys,
        values: Box<ValueBuilder>,
    },
    Struct {
        fields: Fields,
        children: Vec<ValueBuilder>,
        count: usize,
    },
    Nullable {
        null_first: bool,
        null_bytes: usize,
        valid: BooleanBufferBuilder,
        values: Box<ValueBuilder>,
    },
    Union(Box<UnionBuilder>),
}

/// A builder of a struct of which at most one field has a value.
struct UnionBuilder {
    fields: Fields,
    /// Index of each branch's field; `None` for null.
    branches: Vec<Option<usize>>,
    children: Vec<(BooleanBufferBuilder, ValueBuilder)>,
    valid: BooleanBufferBuilder,
    null_bytes: usize,
}

/// The symbols of an enum, with views that are made once.
struct AvroEnumSymbols {
    views: Arc<[u128]>,
    text: Buffer,
}

#[derive(Default)]
struct MapKeys {
    offsets: Vec<i32>,
    text: Vec<u8>,
}

fn new_offsets() -> Vec<i32> {
    vec![0]
}

impl ValueBuilder {
    fn new(kind: &AvroType) -> Self {
        let bits = || BooleanBufferBuilder::new(0);
        match kind {
            AvroType::Null => ValueBuilder::Null(0),
            AvroType::Boolean => ValueBuilder::Boolean(bits()),
            AvroType::Int(data_type) => ValueBuilder::Int(Vec::new(), data_type.clone()),
            AvroType::Long(data_type) => ValueBuilder::Long(Vec::new(), data_type.clone()),
            AvroType::Float => ValueBuilder::Float(Vec::new()),
            AvroType::Double => ValueBuilder::Double(Vec::new()),
            AvroType::Bytes => ValueBuilder::Bytes(Default::default()),
            AvroType::String => ValueBuilder::Text(Default::default()),
            AvroType::Fixed(size) => match kind.arrow_type() {
                DataType::FixedSizeBinary(_) => ValueBuilder::Fixed(*size, Vec::new(), 0),
                _ => ValueBuilder::LongFixed(*size, Default::default()),
            },
            AvroType::Uuid => ValueBuilder::Uuid(Default::default()),
            AvroType::Duration => ValueBuilder::Duration(Vec::new()),
            AvroType::Decimal { precision: precision @ ..=38, scale, size } => {
                ValueBuilder::Decimal {
                    values: Vec::new(),
                    size: *size,
                    precision: *precision,
                    scale: *scale,
                    limit: 10_i128.pow(u32::from(*precision)),
                }
            }
            AvroType::Decimal { precision, scale, size } => ValueBuilder::WideDecimal {
                values: Vec::new(),
                size: *size,
                precision: *precision,
                scale: *scale,
                limit: i256::from_i128(10).wrapping_pow(u32::from(*precision)),
            },
            AvroType::Enum(symbols) => {
                let mut text = Vec::new();
                let views = symbols.iter().map(|symbol| {
                    let offset = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    if symbol.len() > 12 {
                        text.extend_from_slice(symbol.as_bytes());
                    }
                    make_view(symbol.as_bytes(), 0, offset)
                });
                let views = views.collect();
                ValueBuilder::Enum(
                    Default::default(),
                    AvroEnumSymbols { views, text: Buffer::from_vec(text) },
                )
            }
            AvroType::Array(item) => ValueBuilder::List {
                item: list_item_field(item),
                bytes_min: item.encoded_bytes_min(),
                offsets: new_offsets(),
                values: Box::new(ValueBuilder::new(item)),
            },
            AvroType::Map(value) => ValueBuilder::Map {
                entries: map_entries_field(value),
                bytes_min: value.encoded_bytes_min().saturating_add(1),
                offsets: new_offsets(),
                keys: MapKeys { offsets: new_offsets(), text: Vec::new() },
                values: Box::new(ValueBuilder::new(value)),
            },
            AvroType::Record(fields) => ValueBuilder::Struct {
                fields: struct_fields(fields),
                children: fields.iter().map(|field| ValueBuilder::new(&field.avro_type)).collect(),
                count: 0,
            },
            AvroType::Nullable(inner, null_first) => ValueBuilder::Nullable {
                null_first: *null_first,
                null_bytes: null_bytes(inner),
                valid: bits(),
                values: Box::new(ValueBuilder::new(inner)),
            },
            AvroType::Union(branches) => {
                let mut fields = 0;
                let places = branches.iter().map(|branch| match branch.avro_type {
                    AvroType::Null => None,
                    _ => {
                        fields += 1;
                        Some(fields - 1)
                    }
                });
                let places = places.collect();
                let named =
                    branches.iter().filter(|branch| !matches!(branch.avro_type, AvroType::Null));
                ValueBuilder::Union(Box::new(UnionBuilder {
                    fields: union_fields(branches),
                    branches: places,
                    children: named.map(|b| (bits(), ValueBuilder::new(&b.avro_type))).collect(),
                    valid: bits(),
                    null_bytes: null_bytes(kind),
                }))
            }
        }
    }

    /// Reads one value.
    fn decode_value(&mut self, cursor: &mut ValueCursor<'_>) -> Result<(), ValueFault> {
        match self {
            ValueBuilder::Null(count) => *count += 1,
            ValueBuilder::Boolean(bits) => bits.append(cursor.read_boolean()?),
            ValueBuilder::Int(values, _) => values.push(cursor.read_int()?),
            ValueBuilder::Long(values, _) => values.push(cursor.read_long()?),
            ValueBuilder::Float(values) => values.push(f32::from_le_bytes(cursor.take_array()?)),
            ValueBuilder::Double(values) => values.push(f64::from_le_bytes(cursor.take_array()?)),
            ValueBuilder::Bytes(views) => views.push_value(cursor.read_bytes()?),
            ValueBuilder::Text(views) => views.push_value(read_text(cursor)?),
            ValueBuilder::LongFixed(size, views) => views.push_value(cursor.take_bytes(*size)?),
            ValueBuilder::Fixed(size, values, count) => {
                values.extend_from_slice(cursor.take_bytes(*size)?);
                *count += 1;
            }
            ValueBuilder::Uuid(views) => views.push_value(&format_uuid(&cursor.take_array()?)),
            ValueBuilder::Duration(values) => {
                let [months, days, millis] =
                    [cursor.take_array()?, cursor.take_array()?, cursor.take_array()?]
                        .map(u32::from_le_bytes);
                let (Ok(months), Ok(days)) = (i32::try_from(months), i32::try_from(days)) else {
                    return Err("a duration of more than 2147483647 months or days");
                };
                let nanoseconds = i64::from(millis) * 1_000_000;
                values.push(IntervalMonthDayNano { months, days, nanoseconds });
            }
            ValueBuilder::Decimal { values, size, limit, .. } => {
                let bytes = read_decimal(*size, cursor)?;
                let value = i128::from_be_bytes(sign_extend(bytes)?);
                if value >= *limit || value <= -*limit {
                    return Err("a decimal of more digits than its type has");
                }
                values.push(value);
            }
            ValueBuilder::WideDecimal { values, size, limit, .. } => {
                let bytes = read_decimal(*size, cursor)?;
                let value = i256::from_be_bytes(sign_extend(bytes)?);
                if value >= *limit || value <= -*limit {
                    return Err("a decimal of more digits than its type has");
                }
                values.push(value);
            }
            ValueBuilder::Enum(views, symbols) => {
                views.push_view(symbols.views[read_symbol(symbols.views.len(), cursor)?]);
            }
            ValueBuilder::List { bytes_min, offsets, values, .. } => {
                let mut end = last_offset(offsets);
                loop {
                    let (count, _) = cursor.read_item_count(*bytes_min)?;
                    if count == 0 {
                        break;
                    }
                    end = i32::try_from(count)
                        .ok()
                        .and_then(|n| end.checked_add(n))
                        .ok_or(OFFSET_OVERFLOW)?;
                    (0..count).try_for_each(|_| values.decode_value(cursor))?;
                }
                offsets.push(end);
            }
            ValueBuilder::Map { bytes_min, offsets, keys, values, .. } => {
                let mut end = last_offset(offsets);
                loop {
                    let (count, _) = cursor.read_item_count(*bytes_min)?;
                    if count == 0 {
                        break;
                    }
                    end = i32::try_from(count)
                        .ok()
                        .and_then(|n| end.checked_add(n))
                        .ok_or(OFFSET_OVERFLOW)?;
                    for _ in 0..count {
                        keys.text.extend_from_slice(read_text(cursor)?);
                        keys.offsets
                            .push(i32::try_from(keys.text.len()).map_err(|_| OFFSET_OVERFLOW)?);
                        values.decode_value(cursor)?;
                    }
                }
                offsets.push(end);
            }
            ValueBuilder::Struct { children, count, .. } => {
                children.iter_mut().try_for_each(|child| child.decode_value(cursor))?;
                *count += 1;
            }
            ValueBuilder::Nullable { null_first, null_bytes, valid, values } => {
                let is_value = read_not_null(*null_first, cursor)?;
                valid.append(is_value);
                if is_value {
                    values.decode_value(cursor)?;
                } else {
                    cursor.count_expanded(*null_bytes)?;
                    values.push_null();
                }
            }
            ValueBuilder::Union(union) => {
                let wanted = union.branches[read_branch(union.branches.len(), cursor)?];
                union.valid.append(wanted.is_some());
                cursor.count_expanded(union.null_bytes)?;
                for (index, (valid, values)) in union.children.iter_mut().enumerate() {
                    let is_value = wanted == Some(index);
                    valid.append(is_value);
                    match is_value {
                        true => values.decode_value(cursor)?,
                        false => values.push_null(),
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends a placeholder where an outer value is null.
    fn push_null(&mut self) {
        match self {
            ValueBuilder::Null(count) => *count += 1,
            ValueBuilder::Boolean(bits) => bits.append(false),
            ValueBuilder::Int(values, _) => values.push(0),
            ValueBuilder::Long(values, _) => values.push(0),
            ValueBuilder::Float(values) => values.push(0.0),
            ValueBuilder::Double(values) => values.push(0.0),
            ValueBuilder::Bytes(views)
            | ValueBuilder::Text(views)
            | ValueBuilder::LongFixed(_, views)
            | ValueBuilder::Uuid(views)
            | ValueBuilder::Enum(views, _) => views.push_null(),
            ValueBuilder::Fixed(size, values, count) => {
                values.resize(values.len() + *size, 0);
                *count += 1;
            }
            ValueBuilder::Duration(values) => values.push(IntervalMonthDayNano::default()),
            ValueBuilder::Decimal { values, .. } => values.push(0),
            ValueBuilder::WideDecimal { values, .. } => values.push(i256::ZERO),
            ValueBuilder::List { offsets, .. } | ValueBuilder::Map { offsets, .. } => {
                offsets.push(last_offset(offsets))
            }
            ValueBuilder::Struct { children, count, .. } => {
                children.iter_mut().for_each(ValueBuilder::push_null);
                *count += 1;
            }
            ValueBuilder::Nullable { valid, values, .. } => {
                valid.append(false);
                values.push_null();
            }
            ValueBuilder::Union(union) => {
                union.valid.append(false);
                for (valid, values) in &mut union.children {
                    valid.append(false);
                    values.push_null();
                }
            }
        }
    }

    /// Returns the approximate memory of the values.
    fn memory_bytes(&self) -> usize {
        match self {
            ValueBuilder::Null(_) => 0,
            ValueBuilder::Boolean(bits) => bits.len() / 8,
            ValueBuilder::Int(values, _) => 4 * values.len(),
            ValueBuilder::Long(values, _) => 8 * values.len(),
            ValueBuilder::Float(values) => 4 * values.len(),
            ValueBuilder::Double(values) => 8 * values.len(),
            ValueBuilder::Bytes(views)
            | ValueBuilder::Text(views)
            | ValueBuilder::LongFixed(_, views)
            | ValueBuilder::Uuid(views)
            | ValueBuilder::Enum(views, _) => views.memory_bytes(),
            ValueBuilder::Fixed(_, values, _) => values.len(),
            ValueBuilder::Duration(values) => 16 * values.len(),
            ValueBuilder::Decimal { values, .. } => 16 * values.len(),
            ValueBuilder::WideDecimal { values, .. } => 32 * values.len(),
            ValueBuilder::List { offsets, values, .. } => 4 * offsets.len() + values.memory_bytes(),
            ValueBuilder::Map { offsets, keys, values, .. } => {
                4 * (offsets.len() + keys.offsets.len()) + keys.text.len() + values.memory_bytes()
            }
            ValueBuilder::Struct { children, .. } => {
                children.iter().map(ValueBuilder::memory_bytes).sum()
            }
            ValueBuilder::Nullable { values, .. } => values.memory_bytes(),
            ValueBuilder::Union(union) => {
                union.children.iter().map(|(_, values)| values.memory_bytes()).sum()
            }
        }
    }

    /// Returns the array of the values.
    fn finish_array(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            ValueBuilder::Null(count) => Arc::new(NullArray::new(std::mem::take(count))),
            ValueBuilder::Boolean(bits) => Arc::new(boolean_array(bits.finish(), nulls)?),
            ValueBuilder::Int(values, data_type) => {
                primitive_array(std::mem::take(values), data_type, nulls)?
            }
            ValueBuilder::Long(values, data_type) => {
                primitive_array(std::mem::take(values), data_type, nulls)?
            }
            ValueBuilder::Float(values) => {
                Arc::new(Float32Array::try_new(std::mem::take(values).into(), nulls)?)
            }
            ValueBuilder::Double(values) => {
                Arc::new(Float64Array::try_new(std::mem::take(values).into(), nulls)?)
            }
            ValueBuilder::Bytes(views) | ValueBuilder::LongFixed(_, views) => {
                views.finish_binary(nulls)
            }
            // SAFETY: `read_text` checked the text, and a uuid consists of digits.
            ValueBuilder::Text(views) | ValueBuilder::Uuid(views) => unsafe {
                views.finish_text(nulls)
            },
            ValueBuilder::Enum(views, symbols) => {
                if !symbols.text.is_empty() {
                    views.add_shared_buffer(symbols.text.clone());
                }
                // SAFETY: symbols are text.
                unsafe { views.finish_text(nulls) }
            }
            ValueBuilder::Fixed(size, values, count) => {
                let values = Buffer::from_vec(std::mem::take(values));
                let size = i32::try_from(*size)
                    .map_err(|_| ArrowError::InvalidArgumentError("a fixed size".into()))?;
                let rows = std::mem::take(count);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, values, nulls, rows)?)
            }
            ValueBuilder::Duration(values) => {
                let values = ScalarBuffer::from(std::mem::take(values));
                Arc::new(IntervalMonthDayNanoArray::try_new(values, nulls)?)
            }
            ValueBuilder::Decimal { values, precision, scale, .. } => {
                let values = Decimal128Array::try_new(std::mem::take(values).into(), nulls)?;
                Arc::new(values.with_precision_and_scale(*precision, *scale)?)
            }
            ValueBuilder::WideDecimal { values, precision, scale, .. } => {
                let values = Decimal256Array::try_new(std::mem::take(values).into(), nulls)?;
                Arc::new(values.with_precision_and_scale(*precision, *scale)?)
            }
            ValueBuilder::List { item, offsets, values, .. } => {
                let offsets = take_offsets(offsets);
                let values = values.finish_array(None)?;
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
            ValueBuilder::Map { entries, offsets, keys, values, .. } => {
                let offsets = take_offsets(offsets);
                let text = Buffer::from_vec(std::mem::take(&mut keys.text));
                // SAFETY: `read_text` checked each key.
                let keys = unsafe {
                    StringArray::new_unchecked(take_offsets(&mut keys.offsets), text, None)
                };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(ArrowError::SchemaError("a map without entries".into()));
                };
                let columns = vec![Arc::new(keys) as ArrayRef, values.finish_array(None)?];
                let pairs = StructArray::try_new(pair.clone(), columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, false)?)
            }
            ValueBuilder::Struct { fields, children, count } => {
                let columns = children.iter_mut().map(|child| child.finish_array(None));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let rows = std::mem::take(count);
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?)
            }
            ValueBuilder::Nullable { valid, values, .. } => {
                values.finish_array(union_nulls(nulls, Some(valid.finish())))?
            }
            ValueBuilder::Union(union) => {
                let rows = union.valid.len();
                let nulls = union_nulls(nulls, Some(union.valid.finish()));
                let children = union.children.iter_mut();
                let columns = children.map(|(valid, values)| {
                    values.finish_array(union_nulls(None, Some(valid.finish())))
                });
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let fields = union.fields.clone();
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows)?)
            }
        })
    }
}

fn boolean_array(
    values: BooleanBuffer,
    nulls: Option<NullBuffer>,
) -> Result<BooleanArray, ArrowError> {
    match nulls.as_ref().is_none_or(|nulls| nulls.len() == values.len()) {
        true => Ok(BooleanArray::new(values, nulls)),
        false => Err(ArrowError::InvalidArgumentError("truths and nulls of other lengths".into())),
    }
}

fn union_nulls(outer: Option<NullBuffer>, own: Option<BooleanBuffer>) -> Option<NullBuffer> {
    let own = own.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
    NullBuffer::union(outer.as_ref(), own.as_ref())
}

fn last_offset(offsets: &[i32]) -> i32 {
    offsets.last().copied().unwrap_or(0)
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let offsets = std::mem::replace(offsets, new_offsets());
    // SAFETY: the offsets begin with 0 and only grow.
    unsafe { OffsetBuffer::new_unchecked(offsets.into()) }
}

/// Returns an array of numbers as any type of their width.
fn primitive_array<T: ArrowNativeType>(
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

fn read_text<'a>(cursor: &mut ValueCursor<'a>) -> Result<&'a [u8], ValueFault> {
    let bytes = cursor.read_bytes()?;
    match bytes.is_ascii() || simdutf8::basic::from_utf8(bytes).is_ok() {
        true => Ok(bytes),
        false => Err("text that is not UTF-8"),
    }
}

fn read_decimal<'a>(
    size: Option<usize>,
    cursor: &mut ValueCursor<'a>,
) -> Result<&'a [u8], ValueFault> {
    match size {
        Some(size) => cursor.take_bytes(size),
        None => cursor.read_bytes(),
    }
}

/// Extends big-endian bytes to `N` bytes, with their sign.
fn sign_extend<const N: usize>(bytes: &[u8]) -> Result<[u8; N], ValueFault> {
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

/// Formats a UUID in the usual spelling.
fn format_uuid(bytes: &[u8; 16]) -> [u8; 36] {
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
