//! Conversion between typed rows and columns through serde.
//!
//! Values are matched by name. A field of the row that the schema does not have is an error; a field that
//! only the schema has is null or takes its default. Dates and times are integers in their unit, decimals are
//! strings, enums are unit variants or strings, maps are maps, and `Vec<u8>` and byte strings are binary.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray,
    ListArray, MapArray, NullArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray,
    StringViewArray, StructArray, make_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, FieldRef, SchemaRef};
use serde::de::{
    DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::ser::{self, Serialize};

use crate::error::Error;
use crate::read_at::ReadAt;
use crate::reader::{ReadOptions, Reader, RowfileBatches};
use crate::schema::{FieldType, Schema, SchemaField, StringLayout};

/// The error type of this module's serializer and deserializer.
#[derive(Debug)]
pub(crate) struct SerdeRowError(String);

impl fmt::Display for SerdeRowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SerdeRowError {}

impl ser::Error for SerdeRowError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::de::Error for SerdeRowError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Result<T, E = SerdeRowError> = std::result::Result<T, E>;

// ------------------------------------------------------------------------- rows to columns

/// A builder that collects typed rows into a batch.
#[derive(Debug)]
pub(crate) struct TypedRowBuilder {
    schema: SchemaRef,
    columns: TypedColumnBuilder,
    rows: usize,
}

impl TypedRowBuilder {
    pub(crate) fn new(schema: &Schema) -> Self {
        let arrow = Arc::new(schema.to_arrow(StringLayout::View));
        Self {
            columns: TypedColumnBuilder::new_root(&schema.fields, &arrow),
            schema: arrow,
            rows: 0,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row. After an error the builder is as before.
    pub(crate) fn push_row<T: Serialize + ?Sized>(&mut self, row: &T) -> Result<(), Error> {
        match row.serialize(&mut self.columns) {
            Ok(()) => {
                self.rows += 1;
                Ok(())
            }
            Err(SerdeRowError(reason)) => {
                self.columns.truncate(self.rows);
                Err(Error::Serde(reason))
            }
        }
    }

    /// Returns the rows so far and removes them from the builder.
    pub(crate) fn take_batch(&mut self) -> Result<RecordBatch, Error> {
        let rows = std::mem::take(&mut self.rows);
        let TypedColumnValues::Struct { columns, .. } = &mut self.columns.values else {
            return Err(Error::Serde("a row is a struct".into()));
        };
        let arrays =
            columns.iter_mut().map(TypedColumnBuilder::take_array).collect::<Result<_, Error>>()?;
        self.columns.valid.clear();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

#[derive(Debug)]
struct TypedColumnBuilder {
    name: String,
    arrow_field: Option<FieldRef>,
    nullable: bool,
    default: Option<serde_json::Value>,
    valid: Vec<bool>,
    values: TypedColumnValues,
}

#[derive(Debug)]
enum TypedColumnValues {
    Null,
    Boolean(Vec<bool>),
    Integer {
        values: Vec<i128>,
        min: i128,
        max: i128,
    },
    Float(Vec<f64>),
    Decimal {
        values: Vec<i256>,
        precision: u8,
        scale: i8,
    },
    /// Offsets and bytes.
    Bytes {
        ends: Vec<usize>,
        bytes: Vec<u8>,
        is_text: bool,
    },
    Fixed {
        size: usize,
        bytes: Vec<u8>,
    },
    Enum {
        values: Vec<i32>,
        symbols: Vec<String>,
        known: HashMap<String, i32>,
    },
    List {
        ends: Vec<usize>,
        items: Box<TypedColumnBuilder>,
    },
    Map {
        ends: Vec<usize>,
        keys: Box<TypedColumnBuilder>,
        values: Box<TypedColumnBuilder>,
    },
    Struct {
        columns: Vec<TypedColumnBuilder>,
        known: HashMap<String, usize>,
    },
}

impl TypedColumnBuilder {
    fn new_root(fields: &[SchemaField], arrow: &arrow_schema::Schema) -> Self {
        let kind = TypedColumnValues::new_struct(fields, arrow.fields());
        Self {
            name: String::new(),
            arrow_field: None,
            nullable: false,
            default: None,
            valid: vec![],
            values: kind,
        }
    }

    fn new(field: &SchemaField, arrow: &FieldRef) -> Self {
        Self {
            name: field.name.clone(),
            arrow_field: Some(arrow.clone()),
            nullable: field.nullable,
            default: field.default.clone(),
            valid: Vec::new(),
            values: TypedColumnValues::new(field, arrow.data_type()),
        }
    }

    fn len(&self) -> usize {
        self.valid.len()
    }

    fn mismatch_error<T>(&self, found: impl fmt::Display) -> Result<T> {
        let expected = self
            .arrow_field
            .as_ref()
            .map_or_else(|| "a struct or map".to_owned(), |arrow| arrow.data_type().to_string());
        Err(SerdeRowError(format!("column `{}`: expected {expected}, found {found}", self.name)))
    }

    fn push_null(&mut self) -> Result<()> {
        if !self.nullable {
            return self.mismatch_error("null");
        }
        self.push_placeholder();
        self.valid.push(false);
        Ok(())
    }

    /// Adds a placeholder under a null.
    fn push_placeholder(&mut self) {
        match &mut self.values {
            TypedColumnValues::Null => {}
            TypedColumnValues::Boolean(values) => values.push(false),
            TypedColumnValues::Integer { values, .. } => values.push(0),
            TypedColumnValues::Float(values) => values.push(0.0),
            TypedColumnValues::Decimal { values, .. } => values.push(i256::ZERO),
            TypedColumnValues::Bytes { ends, bytes, .. } => ends.push(bytes.len()),
            TypedColumnValues::Fixed { size, bytes } => bytes.resize(bytes.len() + *size, 0),
            TypedColumnValues::Enum { values, .. } => values.push(0),
            TypedColumnValues::List { ends, items } => ends.push(items.len()),
            TypedColumnValues::Map { ends, keys, .. } => ends.push(keys.len()),
            TypedColumnValues::Struct { columns, .. } => {
                for column in columns {
                    column.push_placeholder();
                    column.valid.push(!column.nullable);
                }
            }
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.valid.truncate(rows);
        let end = |ends: &mut Vec<usize>| {
            ends.truncate(rows);
            ends.last().copied().unwrap_or_default()
        };
        match &mut self.values {
            TypedColumnValues::Null => {}
            TypedColumnValues::Boolean(values) => values.truncate(rows),
            TypedColumnValues::Integer { values, .. } => values.truncate(rows),
            TypedColumnValues::Float(values) => values.truncate(rows),
            TypedColumnValues::Decimal { values, .. } => values.truncate(rows),
            TypedColumnValues::Bytes { ends, bytes, .. } => bytes.truncate(end(ends)),
            TypedColumnValues::Fixed { size, bytes } => bytes.truncate(rows * *size),
            TypedColumnValues::Enum { values, .. } => values.truncate(rows),
            TypedColumnValues::List { ends, items } => items.truncate(end(ends)),
            TypedColumnValues::Map { ends, keys, values } => {
                let end = end(ends);
                keys.truncate(end);
                values.truncate(end);
            }
            TypedColumnValues::Struct { columns, .. } => {
                columns.iter_mut().for_each(|column| column.truncate(rows));
            }
        }
    }

    fn push_integer(&mut self, value: i128) -> Result<()> {
        match &mut self.values {
            TypedColumnValues::Integer { values, min, max } if (*min..=*max).contains(&value) => {
                values.push(value);
            }
            #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
            TypedColumnValues::Float(values) => values.push(value as f64),
            TypedColumnValues::Decimal { .. } => return self.push_text(&value.to_string()),
            _ => return self.mismatch_error(value),
        }
        self.valid.push(true);
        Ok(())
    }

    fn push_float(&mut self, value: f64) -> Result<()> {
        match &mut self.values {
            TypedColumnValues::Float(values) => values.push(value),
            _ => return self.mismatch_error(value),
        }
        self.valid.push(true);
        Ok(())
    }

    fn push_text(&mut self, value: &str) -> Result<()> {
        match &mut self.values {
            TypedColumnValues::Bytes { ends, bytes, .. } => {
                bytes.extend_from_slice(value.as_bytes());
                ends.push(bytes.len());
            }
            TypedColumnValues::Enum { values, symbols, known } => match known.get(value) {
                Some(symbol) => values.push(*symbol),
                None => {
                    let symbols = symbols.join(", ");
                    return Err(SerdeRowError(format!(
                        "column `{}`: expected one of {symbols}, found `{value}`",
                        self.name
                    )));
                }
            },
            TypedColumnValues::Decimal { values, precision, scale } => {
                match crate::scalar_arrays::parse_decimal(value, *precision, *scale) {
                    Some(value) => values.push(value),
                    None => return self.mismatch_error(format!("`{value}`")),
                }
            }
            _ => return self.mismatch_error(format!("`{value}`")),
        }
        self.valid.push(true);
        Ok(())
    }

    fn push_bytes(&mut self, value: &[u8]) -> Result<()> {
        match &mut self.values {
            TypedColumnValues::Bytes { ends, bytes, is_text: false } => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len());
            }
            TypedColumnValues::Fixed { size, bytes } if *size == value.len() => {
                bytes.extend_from_slice(value)
            }
            _ => return self.mismatch_error(format!("{} bytes", value.len())),
        }
        self.valid.push(true);
        Ok(())
    }

    fn take_array(&mut self) -> Result<ArrayRef, Error> {
        let Some(field) = self.arrow_field.clone() else {
            return Err(Error::Serde("a column without a type".into()));
        };
        let data_type = field.data_type();
        let valid = std::mem::take(&mut self.valid);
        let rows = valid.len();
        let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
        fn offsets<O: arrow_array::OffsetSizeTrait>(ends: &[usize]) -> OffsetBuffer<O> {
            let starts = std::iter::once(&0).chain(ends);
            OffsetBuffer::from_lengths(ends.iter().zip(starts).map(|(end, start)| end - start))
        }
        macro_rules! integers {
            ($arrow:ty, $values:expr) => {{
                #[expect(clippy::cast_possible_truncation, reason = "looked at when pushed")]
                let values = $values.iter().map(|value| *value as _);
                let array = PrimitiveArray::<$arrow>::new(values.collect::<Vec<_>>().into(), nulls);
                let data = array.into_data().into_builder().data_type(data_type.clone());
                make_array(data.build()?)
            }};
        }
        Ok(match &mut self.values {
            TypedColumnValues::Null => Arc::new(NullArray::new(rows)),
            TypedColumnValues::Boolean(values) => {
                Arc::new(BooleanArray::new(std::mem::take(values).into(), nulls))
            }
            TypedColumnValues::Integer { values, min, .. } => {
                let values = std::mem::take(values);
                match (data_type.primitive_width(), *min < 0) {
                    (Some(1), true) => integers!(Int8Type, values),
                    (Some(2), true) => integers!(Int16Type, values),
                    (Some(4), true) => integers!(Int32Type, values),
                    (_, true) => integers!(Int64Type, values),
                    (Some(1), false) => integers!(UInt8Type, values),
                    (Some(2), false) => integers!(UInt16Type, values),
                    (Some(4), false) => integers!(UInt32Type, values),
                    (_, false) => integers!(UInt64Type, values),
                }
            }
            TypedColumnValues::Float(values) => {
                let values = std::mem::take(values);
                match data_type {
                    DataType::Float16 => {
                        type Half = <Float16Type as ArrowPrimitiveType>::Native;
                        let values: Vec<Half> = values.into_iter().map(Half::from_f64).collect();
                        Arc::new(PrimitiveArray::<Float16Type>::new(values.into(), nulls))
                    }
                    DataType::Float32 => {
                        #[expect(clippy::cast_possible_truncation, reason = "the nearest")]
                        let values: Vec<f32> = values.into_iter().map(|it| it as f32).collect();
                        Arc::new(PrimitiveArray::<Float32Type>::new(values.into(), nulls))
                    }
                    _ => Arc::new(PrimitiveArray::<Float64Type>::new(values.into(), nulls)),
                }
            }
            TypedColumnValues::Decimal { values, .. } => {
                let values = std::mem::take(values);
                let narrow = values.iter().map(|value| value.as_i128());
                match data_type {
                    DataType::Decimal32(..) => {
                        let narrow = narrow.map(|value| i32::try_from(value).unwrap_or_default());
                        let values: Vec<i32> = narrow.collect();
                        let array = PrimitiveArray::<Decimal32Type>::new(values.into(), nulls);
                        Arc::new(array.with_data_type(data_type.clone()))
                    }
                    DataType::Decimal64(..) => {
                        let narrow = narrow.map(|value| i64::try_from(value).unwrap_or_default());
                        let values: Vec<i64> = narrow.collect();
                        let array = PrimitiveArray::<Decimal64Type>::new(values.into(), nulls);
                        Arc::new(array.with_data_type(data_type.clone()))
                    }
                    DataType::Decimal128(..) => {
                        let values: Vec<i128> = narrow.collect();
                        let array = PrimitiveArray::<Decimal128Type>::new(values.into(), nulls);
                        Arc::new(array.with_data_type(data_type.clone()))
                    }
                    _ => {
                        let array = PrimitiveArray::<Decimal256Type>::new(values.into(), nulls);
                        Arc::new(array.with_data_type(data_type.clone()))
                    }
                }
            }
            TypedColumnValues::Bytes { ends, bytes, is_text } => {
                let ends = std::mem::take(ends);
                let bytes = std::mem::take(bytes);
                let at = |row: usize| {
                    let start = row.checked_sub(1).and_then(|row| ends.get(row)).copied();
                    bytes.get(start.unwrap_or(0)..*ends.get(row)?)
                };
                let is_valid = |row: &usize| nulls.as_ref().is_none_or(|it| it.is_valid(*row));
                let values = (0..rows).map(|row| Some(row).filter(is_valid).and_then(at));
                if *is_text {
                    let texts = values.map(|it| it.and_then(|it| std::str::from_utf8(it).ok()));
                    Arc::new(texts.collect::<StringViewArray>())
                } else {
                    Arc::new(values.collect::<BinaryViewArray>())
                }
            }
            TypedColumnValues::Fixed { size, bytes } => {
                let size = i32::try_from(*size).unwrap_or(i32::MAX);
                let bytes = std::mem::take(bytes);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, bytes.into(), nulls, rows)?)
            }
            TypedColumnValues::Enum { values, symbols, .. } => {
                let keys =
                    PrimitiveArray::<Int32Type>::try_new(std::mem::take(values).into(), nulls)?;
                let symbols = StringArray::from_iter_values(symbols.iter());
                Arc::new(DictionaryArray::try_new(keys, Arc::new(symbols))?)
            }
            TypedColumnValues::List { ends, items } => {
                let DataType::List(item) = data_type else {
                    return Err(Error::Serde("a list that is none".into()));
                };
                let ends = std::mem::take(ends);
                let items = items.take_array()?;
                Arc::new(ListArray::try_new(item.clone(), offsets(&ends), items, nulls)?)
            }
            TypedColumnValues::Map { ends, keys, values } => {
                let DataType::Map(entries, sorted) = data_type else {
                    return Err(Error::Serde("a map that is none".into()));
                };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(Error::Serde("a map without pairs".into()));
                };
                let ends = std::mem::take(ends);
                let pairs = vec![keys.take_array()?, values.take_array()?];
                let pairs = StructArray::try_new(pair.clone(), pairs, None)?;
                let entries = entries.clone();
                Arc::new(MapArray::try_new(entries, offsets(&ends), pairs, nulls, *sorted)?)
            }
            TypedColumnValues::Struct { columns, .. } => {
                let DataType::Struct(fields) = data_type else {
                    return Err(Error::Serde("a struct that is none".into()));
                };
                let arrays =
                    columns.iter_mut().map(Self::take_array).collect::<Result<_, Error>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?)
            }
        })
    }
}

impl TypedColumnValues {
    fn new_struct(fields: &[SchemaField], arrow: &arrow_schema::Fields) -> Self {
        let columns: Vec<TypedColumnBuilder> = fields
            .iter()
            .zip(arrow)
            .map(|(field, arrow)| TypedColumnBuilder::new(field, arrow))
            .collect();
        let known = fields.iter().map(|field| field.name.clone()).zip(0..).collect();
        Self::Struct { columns, known }
    }

    fn new(field: &SchemaField, arrow: &DataType) -> Self {
        let integer = |min: i128, max: i128| Self::Integer { values: Vec::new(), min, max };
        match (&field.kind, arrow) {
            (FieldType::Null, _) => Self::Null,
            (FieldType::Boolean, _) => Self::Boolean(Vec::new()),
            (FieldType::Int8, _) => integer(i8::MIN.into(), i8::MAX.into()),
            (FieldType::Int16, _) => integer(i16::MIN.into(), i16::MAX.into()),
            (FieldType::Uint8, _) => integer(0, u8::MAX.into()),
            (FieldType::Uint16, _) => integer(0, u16::MAX.into()),
            (FieldType::Uint32, _) => integer(0, u32::MAX.into()),
            (FieldType::Uint64, _) => integer(0, u64::MAX.into()),
            (FieldType::Int32 | FieldType::Date | FieldType::Time(_), other)
                if other.primitive_width() == Some(4) =>
            {
                integer(i32::MIN.into(), i32::MAX.into())
            }
            (FieldType::Float16 | FieldType::Float32 | FieldType::Float64, _) => {
                Self::Float(Vec::new())
            }
            (FieldType::Decimal { precision, scale, .. }, _) => {
                Self::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            (FieldType::String, _) => {
                Self::Bytes { ends: Vec::new(), bytes: Vec::new(), is_text: true }
            }
            (FieldType::Binary, _) => {
                Self::Bytes { ends: Vec::new(), bytes: Vec::new(), is_text: false }
            }
            (FieldType::Fixed(size), _) => Self::Fixed { size: *size as usize, bytes: Vec::new() },
            (FieldType::Enum { symbols, .. }, _) => Self::Enum {
                values: Vec::new(),
                symbols: symbols.clone(),
                known: symbols.iter().cloned().zip(0..).collect(),
            },
            (FieldType::List(item), DataType::List(inner)) => Self::List {
                ends: Vec::new(),
                items: Box::new(TypedColumnBuilder::new(item, inner)),
            },
            (FieldType::Map { key, value, .. }, DataType::Map(entries, _)) => {
                match entries.data_type() {
                    DataType::Struct(pair) if pair.len() == 2 => Self::Map {
                        ends: Vec::new(),
                        keys: Box::new(TypedColumnBuilder::new(key, &pair[0])),
                        values: Box::new(TypedColumnBuilder::new(value, &pair[1])),
                    },
                    _ => Self::Null,
                }
            }
            (FieldType::Struct(fields), DataType::Struct(inner)) => Self::new_struct(fields, inner),
            _ => integer(i64::MIN.into(), i64::MAX.into()),
        }
    }
}

/// A default value for a field that a row leaves out.
struct DefaultValue<'a>(&'a serde_json::Value);

impl Serialize for DefaultValue<'_> {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

macro_rules! integers {
    ($($name:ident: $native:ty,)*) => {
        $(fn $name(self, value: $native) -> Result<()> {
            self.push_integer(value.into())
        })*
    };
}

impl<'a> ser::Serializer for &'a mut TypedColumnBuilder {
    type Ok = ();
    type Error = SerdeRowError;
    type SerializeSeq = ItemSerializer<'a>;
    type SerializeTuple = ItemSerializer<'a>;
    type SerializeTupleStruct = ItemSerializer<'a>;
    type SerializeTupleVariant = ser::Impossible<(), SerdeRowError>;
    type SerializeMap = FieldSerializer<'a>;
    type SerializeStruct = FieldSerializer<'a>;
    type SerializeStructVariant = ser::Impossible<(), SerdeRowError>;

    fn serialize_bool(self, value: bool) -> Result<()> {
        match &mut self.values {
            TypedColumnValues::Boolean(values) => values.push(value),
            _ => return self.mismatch_error(value),
        }
        self.valid.push(true);
        Ok(())
    }

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_i128(self, value: i128) -> Result<()> {
        self.push_integer(value)
    }

    fn serialize_f32(self, value: f32) -> Result<()> {
        self.push_float(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<()> {
        self.push_float(value)
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.push_text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<()> {
        self.push_text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        self.push_bytes(value)
    }

    fn serialize_none(self) -> Result<()> {
        self.push_null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.push_null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        self.push_null()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<()> {
        self.push_text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<()> {
        self.mismatch_error(format!("the variant `{variant}`, which holds a value"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ItemSerializer<'a>> {
        match self.values {
            TypedColumnValues::List { .. }
            | TypedColumnValues::Bytes { is_text: false, .. }
            | TypedColumnValues::Fixed { .. } => {
                Ok(ItemSerializer { column: self, bytes: Vec::new() })
            }
            _ => self.mismatch_error("a sequence"),
        }
    }

    fn serialize_tuple(self, length: usize) -> Result<ItemSerializer<'a>> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<ItemSerializer<'a>> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant> {
        self.mismatch_error(format!("the variant `{variant}`, which holds values"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<FieldSerializer<'a>> {
        match &self.values {
            TypedColumnValues::Map { .. } | TypedColumnValues::Struct { .. } => {
                Ok(FieldSerializer { column: self, key: None })
            }
            _ => self.mismatch_error("a map"),
        }
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<FieldSerializer<'a>> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant> {
        self.mismatch_error(format!("the variant `{variant}`, which holds fields"))
    }
}

/// A serializer for the items of a list, or for bytes one by one.
struct ItemSerializer<'a> {
    column: &'a mut TypedColumnBuilder,
    bytes: Vec<u8>,
}

impl ItemSerializer<'_> {
    fn push_item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        match &mut self.column.values {
            TypedColumnValues::List { items, .. } => value.serialize(&mut **items),
            _ => {
                let integer =
                    TypedColumnValues::Integer { values: Vec::new(), min: 0, max: u8::MAX.into() };
                let mut byte = TypedColumnBuilder {
                    name: self.column.name.clone(),
                    arrow_field: self.column.arrow_field.clone(),
                    nullable: false,
                    default: None,
                    valid: Vec::new(),
                    values: integer,
                };
                value.serialize(&mut byte)?;
                if let TypedColumnValues::Integer { values, .. } = byte.values {
                    self.bytes.extend(values.iter().filter_map(|value| u8::try_from(*value).ok()));
                }
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<()> {
        match &mut self.column.values {
            TypedColumnValues::List { ends, items } => {
                ends.push(items.len());
                self.column.valid.push(true);
                Ok(())
            }
            _ => self.column.push_bytes(&self.bytes),
        }
    }
}

/// Implements serde's three traits for sequences, tuples and tuple structs.
macro_rules! sequences {
    ($($sequence:ident, $element:ident;)*) => {
        $(impl ser::$sequence for ItemSerializer<'_> {
            type Ok = ();
            type Error = SerdeRowError;

            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.push_item(value)
            }

            fn end(self) -> Result<()> {
                self.finish()
            }
        })*
    };
}
sequences! {
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
}

/// A serializer for the fields of a struct, or for the pairs of a map.
struct FieldSerializer<'a> {
    column: &'a mut TypedColumnBuilder,
    /// The last key, if a map is serialized into a struct.
    key: Option<String>,
}

impl FieldSerializer<'_> {
    fn serialize_named_field<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<()> {
        let rows = self.column.len();
        match &mut self.column.values {
            TypedColumnValues::Struct { columns, known } => {
                let column = known.get(name).and_then(|at| columns.get_mut(*at));
                match column {
                    Some(column) if column.len() == rows => value.serialize(column),
                    Some(_) => Err(SerdeRowError(format!("the row has the field `{name}` twice"))),
                    None => {
                        let mut names: Vec<&str> = known.keys().map(String::as_str).collect();
                        names.sort_unstable();
                        let names = names.join(", ");
                        Err(SerdeRowError(format!("unknown field `{name}`; fields: {names}")))
                    }
                }
            }
            TypedColumnValues::Map { keys, values, .. } => {
                keys.push_text(name)?;
                value.serialize(&mut **values)
            }
            _ => self.column.mismatch_error("a struct"),
        }
    }

    fn finish(self) -> Result<()> {
        let rows = self.column.len();
        match &mut self.column.values {
            TypedColumnValues::Struct { columns, .. } => {
                for column in columns {
                    if column.len() > rows {
                        continue;
                    }
                    match column.default.take() {
                        Some(default) => {
                            let pushed = DefaultValue(&default).serialize(&mut *column);
                            column.default = Some(default);
                            pushed?;
                        }
                        None if column.nullable => column.push_null()?,
                        None => {
                            return Err(SerdeRowError(format!(
                                "the row has no field `{}`",
                                column.name
                            )));
                        }
                    }
                }
            }
            TypedColumnValues::Map { ends, keys, .. } => ends.push(keys.len()),
            _ => return self.column.mismatch_error("a struct"),
        }
        self.column.valid.push(true);
        Ok(())
    }
}

impl ser::SerializeStruct for FieldSerializer<'_> {
    type Ok = ();
    type Error = SerdeRowError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.serialize_named_field(name, value)
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}

impl ser::SerializeMap for FieldSerializer<'_> {
    type Ok = ();
    type Error = SerdeRowError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        if let TypedColumnValues::Map { keys, .. } = &mut self.column.values {
            return key.serialize(&mut **keys);
        }
        let kind = TypedColumnValues::Bytes { ends: Vec::new(), bytes: Vec::new(), is_text: true };
        let mut name = TypedColumnBuilder {
            name: self.column.name.clone(),
            arrow_field: None,
            nullable: false,
            default: None,
            valid: Vec::new(),
            values: kind,
        };
        key.serialize(&mut name)?;
        if let TypedColumnValues::Bytes { bytes, .. } = name.values {
            self.key = String::from_utf8(bytes).ok();
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        if let TypedColumnValues::Map { values, .. } = &mut self.column.values {
            return value.serialize(&mut **values);
        }
        let name = self.key.take().unwrap_or_default();
        self.serialize_named_field(&name, value)
    }

    fn end(self) -> Result<()> {
        self.finish()
    }
}

// ------------------------------------------------------------------------- columns to rows

/// An iterator over the typed rows of a file.
pub struct TypedRows<T, S: ReadAt> {
    batches: RowfileBatches<S>,
    current: Option<(StructArray, usize)>,
    row: PhantomData<fn() -> T>,
}

impl<S: ReadAt> Reader<S> {
    /// Reads rows as values of a type, by the names of its fields.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use tidemill_rowfile::{ReadOptions, Reader, Schema, WriteOptions, Writer};
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Visit {
    ///     user: String,
    ///     pages: Vec<u32>,
    ///     seconds: Option<f64>,
    /// }
    ///
    /// let schema = Schema::parse(
    ///     r#"{"fields": [
    ///         {"name": "user", "type": "string"},
    ///         {"name": "pages", "type": {"list": {"name": "item", "type": "uint32"}}},
    ///         {"name": "seconds", "type": "float64", "nullable": true}
    ///     ]}"#,
    /// )?;
    /// let visit = Visit { user: "ada".into(), pages: vec![3, 1], seconds: None };
    /// let mut writer = Writer::new(Vec::new(), &schema, WriteOptions::default())?;
    /// writer.write_row(&visit)?;
    ///
    /// let reader = Reader::new(writer.finish()?, "memory")?;
    /// let visits: Result<Vec<Visit>, _> = reader.read_rows_as(&ReadOptions::default())?.collect();
    /// assert_eq!(visits?, [visit]);
    /// # Ok::<(), tidemill_rowfile::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_rows_as<T: DeserializeOwned>(
        &self,
        options: &ReadOptions,
    ) -> Result<TypedRows<T, S>, Error> {
        Ok(TypedRows { batches: self.read(options)?, current: None, row: PhantomData })
    }
}

impl<T: DeserializeOwned, S: ReadAt> Iterator for TypedRows<T, S> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((rows, row)) = &mut self.current {
                if *row < rows.len() {
                    let cell = ArrayCell { array: rows, row: *row };
                    *row += 1;
                    return Some(
                        T::deserialize(cell).map_err(|SerdeRowError(reason)| Error::Serde(reason)),
                    );
                }
                self.current = None;
            }
            match self.batches.next()? {
                Ok(batch) => self.current = Some((batch.into(), 0)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// A value in an array; the deserializer of one row or value.
#[derive(Clone, Copy)]
struct ArrayCell<'a> {
    array: &'a dyn Array,
    row: usize,
}

impl<'a> ArrayCell<'a> {
    fn visit_value<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Self { array, row } = self;
        if array.is_null(row) || array.data_type() == &DataType::Null {
            return visitor.visit_unit();
        }
        macro_rules! integer {
            ($arrow:ty, $visit:ident) => {{
                // Dates and times are read as their stored integers.
                let data = array.to_data();
                let values: &[<$arrow as ArrowPrimitiveType>::Native] = data.buffer(0);
                let value = values.get(row).copied().unwrap_or_default();
                visitor.$visit(value)
            }};
        }
        let data_type = array.data_type();
        match data_type {
            DataType::Boolean => visitor.visit_bool(array.as_boolean().value(row)),
            DataType::UInt8 => integer!(UInt8Type, visit_u8),
            DataType::UInt16 => integer!(UInt16Type, visit_u16),
            DataType::UInt32 => integer!(UInt32Type, visit_u32),
            DataType::UInt64 => integer!(UInt64Type, visit_u64),
            DataType::Float16 => {
                visitor.visit_f32(array.as_primitive::<Float16Type>().value(row).to_f32())
            }
            DataType::Float32 => visitor.visit_f32(array.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => visitor.visit_f64(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal32(..) => {
                visitor.visit_string(array.as_primitive::<Decimal32Type>().value_as_string(row))
            }
            DataType::Decimal64(..) => {
                visitor.visit_string(array.as_primitive::<Decimal64Type>().value_as_string(row))
            }
            DataType::Decimal128(..) => {
                visitor.visit_string(array.as_primitive::<Decimal128Type>().value_as_string(row))
            }
            DataType::Decimal256(..) => {
                visitor.visit_string(array.as_primitive::<Decimal256Type>().value_as_string(row))
            }
            DataType::Utf8 => visitor.visit_str(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => visitor.visit_str(array.as_string::<i64>().value(row)),
            DataType::Utf8View => visitor.visit_str(array.as_string_view().value(row)),
            DataType::Dictionary(..) => {
                let array = array.as_dictionary::<Int32Type>();
                let key = usize::try_from(array.keys().value(row)).unwrap_or_default();
                ArrayCell { array: array.values(), row: key }.visit_value(visitor)
            }
            DataType::List(_) | DataType::LargeList(_) => visitor.visit_seq(self.item_access()),
            DataType::Map(..) | DataType::Struct(_) => self.visit_pairs(visitor),
            other => match (other.primitive_width(), self.bytes()) {
                (_, Some(bytes)) => visitor.visit_bytes(bytes),
                (Some(1), _) => integer!(Int8Type, visit_i8),
                (Some(2), _) => integer!(Int16Type, visit_i16),
                (Some(4), _) => integer!(Int32Type, visit_i32),
                _ => integer!(Int64Type, visit_i64),
            },
        }
    }

    fn bytes(self) -> Option<&'a [u8]> {
        Some(match self.array.data_type() {
            DataType::Binary => self.array.as_binary::<i32>().value(self.row),
            DataType::LargeBinary => self.array.as_binary::<i64>().value(self.row),
            DataType::BinaryView => self.array.as_binary_view().value(self.row),
            DataType::FixedSizeBinary(_) => self.array.as_fixed_size_binary().value(self.row),
            _ => return None,
        })
    }

    fn item_access(self) -> ListItemAccess {
        let array = match self.array.data_type() {
            DataType::LargeList(_) => self.array.as_list::<i64>().value(self.row),
            _ => self.array.as_list::<i32>().value(self.row),
        };
        ListItemAccess { array, next: 0 }
    }

    fn visit_pairs<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.array.data_type() {
            DataType::Map(..) => {
                let pairs = self.array.as_map().value(self.row);
                visitor.visit_map(MapPairAccess { pairs, next: 0 })
            }
            _ => {
                let array = self.array.as_struct();
                visitor.visit_map(StructFieldAccess { array, row: self.row, next: 0 })
            }
        }
    }
}

impl<'de> serde::Deserializer<'de> for ArrayCell<'_> {
    type Error = SerdeRowError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_value(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.array.is_null(self.row) || self.array.data_type() == &DataType::Null {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let symbol: String = serde::Deserialize::deserialize(self)?;
        visitor.visit_enum(symbol.into_deserializer())
    }

    /// Deserializes binary values as sequences too, for `Vec<u8>`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.bytes() {
            Some(bytes) if !self.array.is_null(self.row) => {
                let bytes = serde::de::value::SeqDeserializer::<_, SerdeRowError>::new(
                    bytes.iter().copied(),
                );
                visitor.visit_seq(bytes)
            }
            _ => self.visit_value(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple_struct map struct identifier ignored_any
    }
}

struct ListItemAccess {
    array: ArrayRef,
    next: usize,
}

impl<'de> SeqAccess<'de> for ListItemAccess {
    type Error = SerdeRowError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.next == self.array.len() {
            return Ok(None);
        }
        self.next += 1;
        seed.deserialize(ArrayCell { array: &self.array, row: self.next - 1 }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.array.len() - self.next)
    }
}

struct MapPairAccess {
    pairs: StructArray,
    next: usize,
}

impl<'de> MapAccess<'de> for MapPairAccess {
    type Error = SerdeRowError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        match self.pairs.columns().first() {
            Some(keys) if self.next < keys.len() => {
                seed.deserialize(ArrayCell { array: keys, row: self.next }).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.next += 1;
        match self.pairs.columns().get(1) {
            Some(values) => seed.deserialize(ArrayCell { array: values, row: self.next - 1 }),
            None => Err(SerdeRowError("a map without values".into())),
        }
    }
}

struct StructFieldAccess<'a> {
    array: &'a StructArray,
    row: usize,
    next: usize,
}

impl<'de> MapAccess<'de> for StructFieldAccess<'_> {
    type Error = SerdeRowError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        match self.array.fields().get(self.next) {
            Some(field) => seed.deserialize(field.name().as_str().into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.next += 1;
        let name = self.array.fields().get(self.next - 1).map_or("", |field| field.name());
        match self.array.columns().get(self.next - 1) {
            Some(column) => seed.deserialize(ArrayCell { array: column, row: self.row }).map_err(
                |SerdeRowError(reason)| SerdeRowError(format!("column `{name}`: {reason}")),
            ),
            None => Err(SerdeRowError(format!("no column `{name}`"))),
        }
    }
}
