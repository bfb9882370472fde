//! Random schemas and data, all generated from one seed.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use serde_json::{Value, json};
use tidemill_rowfile::metadata_keys;

/// A pseudo-random number generator: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 32) as usize) % limit.max(1)
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

pub(crate) const UNITS: [TimeUnit; 4] =
    [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
pub(crate) const SYMBOLS: [&str; 5] = ["debug", "info", "warn", "error", "größer"];

pub(crate) fn field(random: &mut Random, name: &str, depth: usize) -> FieldRef {
    if random.chance(20) {
        let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let symbols = serde_json::to_string(&SYMBOLS).unwrap();
        let field = Field::new(name, kind, random.chance(2));
        return Arc::new(
            field.with_metadata([(metadata_keys::ENUM_SYMBOLS.to_string(), symbols)].into()),
        );
    }
    let data_type = data_type(random, depth);
    let nullable = random.chance(2) || data_type == DataType::Null;
    Arc::new(Field::new(name, data_type, nullable))
}

fn data_type(random: &mut Random, depth: usize) -> DataType {
    let kinds = if depth == 0 { 34 } else { 42 };
    match random.below(kinds) {
        0 => DataType::Boolean,
        1 => DataType::Int8,
        2 => DataType::Int16,
        3 => DataType::Int32,
        4 => DataType::Int64,
        5 => DataType::UInt8,
        6 => DataType::UInt16,
        7 => DataType::UInt32,
        8 => DataType::UInt64,
        9 => DataType::Float16,
        10 => DataType::Float32,
        11 => DataType::Float64,
        12 => DataType::Decimal32(7, 2),
        13 => DataType::Decimal64(15, -3),
        14 => DataType::Decimal128(38, 9),
        15 => DataType::Decimal256(76, 0),
        16 => DataType::Date32,
        17 => DataType::Date64,
        18 => DataType::Time32(*random.pick(&UNITS[..2])),
        19 => DataType::Time64(*random.pick(&UNITS[2..])),
        20 => DataType::Timestamp(*random.pick(&UNITS), None),
        21 => DataType::Timestamp(*random.pick(&UNITS), Some("Europe/Berlin".into())),
        22 => DataType::Duration(*random.pick(&UNITS)),
        23 => DataType::FixedSizeBinary([1, 3, 16, 40][random.below(4)]),
        24 => DataType::Binary,
        25 => DataType::LargeBinary,
        26 => DataType::BinaryView,
        27 | 28 => DataType::LargeUtf8,
        29 | 30 => DataType::Utf8,
        31 | 32 => DataType::Utf8View,
        33 => DataType::Null,
        34 | 35 => DataType::List(field(random, "item", depth - 1)),
        36 => DataType::LargeList(field(random, "element", depth - 1)),
        37 => {
            let key = Arc::new(Field::new("k", DataType::Utf8, false));
            let pair: Fields = vec![key, field(random, "v", depth - 1)].into();
            DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false)
        }
        _ => DataType::Struct(fields(random, depth - 1)),
    }
}

pub(crate) fn fields(random: &mut Random, depth: usize) -> Fields {
    let count = if random.chance(20) { 0 } else { 1 + random.below(6) };
    (0..count).map(|index| field(random, &format!("f{index}"), depth)).collect()
}

pub(crate) fn schema(random: &mut Random) -> Arc<Schema> {
    Arc::new(Schema::new(fields(random, 3)))
}

/// Returns a width in bits for a column's values: all equal, close together, or anything.
fn spread(random: &mut Random) -> u32 {
    *random.pick(&[0, 1, 6, 8, 13, 16, 31, 40, 55, 63, 64])
}

fn number(random: &mut Random, bits: u32, offset: u64) -> u64 {
    let number = random.next();
    let number = if bits == 0 { 0 } else { number >> (64 - bits) };
    number.wrapping_add(offset)
}

pub(crate) fn text(random: &mut Random, most: usize) -> String {
    let alphabet: Vec<char> = match random.below(4) {
        0 => "абвгдежз".chars().collect(),
        1 => "数据工程师😀".chars().collect(),
        _ => "abcdefgh /.-0123".chars().collect(),
    };
    let length = random.below(most + 1);
    (0..length).map(|_| *random.pick(&alphabet)).collect()
}

pub(crate) fn nulls(random: &mut Random, field: &Field, rows: usize) -> Option<NullBuffer> {
    if !field.is_nullable() || random.chance(4) {
        return None;
    }
    let one_in = *random.pick(&[1, 2, 10]);
    Some(BooleanBuffer::collect_bool(rows, |_| !random.chance(one_in)).into())
}

fn primitive<T: ArrowPrimitiveType>(
    random: &mut Random,
    rows: usize,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
    of: impl Fn(u64) -> T::Native,
) -> ArrayRef {
    let (bits, offset) = (spread(random), if random.chance(2) { random.next() } else { 0 });
    let values: Vec<T::Native> = (0..rows).map(|_| of(number(random, bits, offset))).collect();
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone()))
}

/// Generates an array with typical features: values under nulls, and an offset at the beginning.
pub(crate) fn array(random: &mut Random, field: &Field, rows: usize) -> ArrayRef {
    let before = if random.chance(4) { random.below(5) } else { 0 };
    let array = whole(random, field, before + rows);
    array.slice(before, rows)
}

fn whole(random: &mut Random, field: &Field, rows: usize) -> ArrayRef {
    let nulls = nulls(random, field, rows);
    let data_type = field.data_type();
    macro_rules! integers {
        ($arrow:ty) => {
            primitive::<$arrow>(random, rows, nulls, data_type, |value| value as _)
        };
    }
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            let one_in = *random.pick(&[1, 2, 5, usize::MAX]);
            let values = BooleanBuffer::collect_bool(rows, |_| random.chance(one_in));
            Arc::new(BooleanArray::new(values, nulls))
        }
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Date32 => integers!(Date32Type),
        DataType::Date64 => integers!(Date64Type),
        DataType::Time32(TimeUnit::Second) => integers!(Time32SecondType),
        DataType::Time32(_) => integers!(Time32MillisecondType),
        DataType::Time64(TimeUnit::Microsecond) => integers!(Time64MicrosecondType),
        DataType::Time64(_) => integers!(Time64NanosecondType),
        DataType::Timestamp(TimeUnit::Second, _) => integers!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => integers!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integers!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => integers!(TimestampNanosecondType),
        DataType::Duration(TimeUnit::Second) => integers!(DurationSecondType),
        DataType::Duration(TimeUnit::Millisecond) => integers!(DurationMillisecondType),
        DataType::Duration(TimeUnit::Microsecond) => integers!(DurationMicrosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => integers!(DurationNanosecondType),
        DataType::Decimal32(..) => {
            primitive::<Decimal32Type>(random, rows, nulls, data_type, |v| v as i32 % 9_999_999)
        }
        DataType::Decimal64(..) => {
            primitive::<Decimal64Type>(random, rows, nulls, data_type, |v| v as i64 % 1_000_000_000)
        }
        DataType::Decimal128(..) => {
            let wide = random.chance(2);
            let sign = if random.chance(2) { -1 } else { 1 };
            primitive::<Decimal128Type>(random, rows, nulls, data_type, |value| {
                sign * i128::from(value) * if wide { 1_000_000_007 } else { 1 }
            })
        }
        DataType::Decimal256(..) => {
            let wide = random.chance(2);
            primitive::<Decimal256Type>(random, rows, nulls, data_type, |value| {
                let value = i256::from_i128(i128::from(value.cast_signed()));
                if wide { value.wrapping_mul(i256::from_i128(i128::MAX / 3)) } else { value }
            })
        }
        DataType::Float16 => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            primitive::<Float16Type>(random, rows, nulls, data_type, |v| Half::from_bits(v as u16))
        }
        DataType::Float32 => primitive::<Float32Type>(random, rows, nulls, data_type, |value| {
            f32::from_bits(value as u32)
        }),
        DataType::Float64 => {
            primitive::<Float64Type>(random, rows, nulls, data_type, f64::from_bits)
        }
        DataType::FixedSizeBinary(size) => {
            let bytes: Vec<u8> = (0..rows * *size as usize).map(|_| random.next() as u8).collect();
            Arc::new(
                FixedSizeBinaryArray::try_new_with_len(*size, bytes.into(), nulls, rows).unwrap(),
            )
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let most = *random.pick(&[0, 1, 8, 12, 20, 70, 300]);
            let prefix = if random.chance(3) { "https://example.org/a/long/prefix/" } else { "" };
            let texts: Vec<String> =
                (0..rows).map(|_| format!("{prefix}{}", text(random, most))).collect();
            strings(data_type, &texts, nulls)
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let most = *random.pick(&[0, 1, 8, 12, 20, 70, 300]);
            let values: Vec<Vec<u8>> = (0..rows)
                .map(|_| (0..random.below(most + 1)).map(|_| random.next() as u8).collect())
                .collect();
            binary(data_type, &values, nulls)
        }
        DataType::Dictionary(..) => {
            let mut order: Vec<&str> = SYMBOLS.to_vec();
            order.rotate_left(random.below(SYMBOLS.len()));
            let keys: Vec<i32> = (0..rows).map(|_| random.below(order.len()) as i32).collect();
            let keys = Int32Array::new(keys.into(), nulls);
            Arc::new(DictionaryArray::new(keys, Arc::new(StringArray::from(order))))
        }
        DataType::List(item) => {
            let (offsets, items) = items(random, rows, |random, rows| array(random, item, rows));
            Arc::new(ListArray::new(item.clone(), offsets, items, nulls))
        }
        DataType::LargeList(item) => {
            let (offsets, items) = items(random, rows, |random, rows| array(random, item, rows));
            let offsets: Vec<i64> = offsets.iter().map(|offset| i64::from(*offset)).collect();
            let offsets = OffsetBuffer::new(offsets.into());
            Arc::new(LargeListArray::new(item.clone(), offsets, items, nulls))
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else { unreachable!() };
            let (offsets, items) = items(random, rows, |random, rows| {
                let arrays = pair.iter().map(|field| array(random, field, rows)).collect();
                Arc::new(
                    StructArray::try_new_with_length(pair.clone(), arrays, None, rows).unwrap(),
                )
            });
            let items = items.as_any().downcast_ref::<StructArray>().unwrap().clone();
            Arc::new(MapArray::new(entries.clone(), offsets, items, nulls, *sorted))
        }
        DataType::Struct(fields) => {
            let arrays = fields.iter().map(|field| array(random, field, rows)).collect();
            Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows).unwrap())
        }
        other => unreachable!("{other}"),
    }
}

fn items(
    random: &mut Random,
    rows: usize,
    make: impl Fn(&mut Random, usize) -> ArrayRef,
) -> (OffsetBuffer<i32>, ArrayRef) {
    let most = *random.pick(&[0, 1, 3, 9]);
    let mut offsets = vec![if random.chance(4) { 2 } else { 0 }];
    for _ in 0..rows {
        let last = *offsets.last().unwrap();
        offsets.push(last + random.below(most + 1) as i32);
    }
    let length = *offsets.last().unwrap() as usize + random.below(2);
    let items = make(random, length);
    (OffsetBuffer::new(ScalarBuffer::from(offsets)), items)
}

fn strings(data_type: &DataType, texts: &[String], nulls: Option<NullBuffer>) -> ArrayRef {
    macro_rules! with_nulls {
        ($array:ty) => {{
            let array = <$array>::from_iter_values(texts);
            let data = array.to_data().into_builder().nulls(nulls).build().unwrap();
            Arc::new(<$array>::from(data)) as ArrayRef
        }};
    }
    match data_type {
        DataType::Utf8 => with_nulls!(StringArray),
        DataType::LargeUtf8 => with_nulls!(LargeStringArray),
        _ => with_nulls!(StringViewArray),
    }
}

fn binary(data_type: &DataType, values: &[Vec<u8>], nulls: Option<NullBuffer>) -> ArrayRef {
    macro_rules! with_nulls {
        ($array:ty) => {{
            let array = <$array>::from_iter_values(values);
            let data = array.to_data().into_builder().nulls(nulls).build().unwrap();
            Arc::new(<$array>::from(data)) as ArrayRef
        }};
    }
    match data_type {
        DataType::Binary => with_nulls!(BinaryArray),
        DataType::LargeBinary => with_nulls!(LargeBinaryArray),
        _ => with_nulls!(BinaryViewArray),
    }
}

pub(crate) fn batch(random: &mut Random, schema: &Arc<Schema>, rows: usize) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| array(random, field, rows)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
}

pub(crate) fn batches(random: &mut Random, schema: &Arc<Schema>) -> Vec<RecordBatch> {
    let count = random.below(4);
    let most = *random.pick(&[1, 10, 100, 1000]);
    (0..count)
        .map(|_| {
            let rows = random.below(most + 1);
            batch(random, schema, rows)
        })
        .collect()
}

fn hex(bytes: &[u8]) -> Value {
    let mut text = String::new();
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text.into()
}

/// Returns a value as the second reader prints it: the stored value without interpretation. But numbers
/// beyond 64 bits, which are floats in `serde_json`, become strings.
pub(crate) fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Value::Null;
    }
    let items = |array: ArrayRef| (0..array.len()).map(|row| value(&array, row)).collect::<Value>();
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float16 => hex(&array.as_primitive::<Float16Type>().value(row).to_le_bytes()),
        DataType::Float32 => hex(&array.as_primitive::<Float32Type>().value(row).to_le_bytes()),
        DataType::Float64 => hex(&array.as_primitive::<Float64Type>().value(row).to_le_bytes()),
        DataType::Decimal128(..) => {
            array.as_primitive::<Decimal128Type>().value(row).to_string().into()
        }
        DataType::Decimal256(..) => {
            array.as_primitive::<Decimal256Type>().value(row).to_string().into()
        }
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Binary => hex(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => hex(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => hex(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => hex(array.as_fixed_size_binary().value(row)),
        DataType::Dictionary(..) => {
            let array = array.as_dictionary::<Int32Type>();
            value(array.values(), array.keys().value(row) as usize)
        }
        DataType::List(_) => items(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => items(array.as_list::<i64>().value(row)),
        DataType::Map(..) => {
            let pairs = array.as_map().value(row);
            (0..pairs.len())
                .map(|row| json!([value(pairs.column(0), row), value(pairs.column(1), row)]))
                .collect()
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let pairs = fields
                .iter()
                .zip(columns)
                .map(|(field, column)| (field.name().clone(), value(column, row)));
            Value::Object(pairs.collect::<serde_json::Map<_, _>>())
        }
        other => {
            let data = array.to_data();
            match other.primitive_width() {
                Some(1) => data.buffer::<i8>(0)[row].into(),
                Some(2) => data.buffer::<i16>(0)[row].into(),
                Some(4) => data.buffer::<i32>(0)[row].into(),
                _ => data.buffer::<i64>(0)[row].into(),
            }
        }
    }
}
