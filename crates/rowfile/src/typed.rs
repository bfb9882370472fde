//! One typed row at a time, through serde: to columns and back.
//!
//! Values keep their place by name: a field of the row that the schema does not have is an
//! error, one that only the schema has is null or its default. Dates and times are integers in
//! their unit, decimals strings, enums unit variants or strings, maps maps, `Vec<u8>` and byte strings binary.

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
use crate::reader::{Batches, ReadOptions, Reader};
use crate::schema::{Field, Schema, Strings, Type};
use crate::source::ReadAt;

/// What serde hands around.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

impl ser::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::de::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Result<T, E = Wrong> = std::result::Result<T, E>;

// ------------------------------------------------------------------------- rows to columns

/// Gathers rows into a batch.
#[derive(Debug)]
pub(crate) struct RowBuilder {
    schema: SchemaRef,
    columns: TypedColumn,
    rows: usize,
}

impl RowBuilder {
    pub(crate) fn new(schema: &Schema) -> Self {
        let arrow = Arc::new(schema.to_arrow(Strings::View));
        Self { columns: TypedColumn::fields(&schema.fields, &arrow), schema: arrow, rows: 0 }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row. After an error it is as if the row had not been given.
    pub(crate) fn push<T: Serialize + ?Sized>(&mut self, row: &T) -> Result<(), Error> {
        match row.serialize(&mut self.columns) {
            Ok(()) => {
                self.rows += 1;
                Ok(())
            }
            Err(Wrong(reason)) => {
                self.columns.truncate(self.rows);
                Err(Error::Serde(reason))
            }
        }
    }

    /// The rows so far, which are forgotten.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, Error> {
        let rows = std::mem::take(&mut self.rows);
        let ColumnValues::Struct { columns, .. } = &mut self.columns.kind else {
            return Err(Error::Serde("a row is a struct".into()));
        };
        let arrays = columns.iter_mut().map(TypedColumn::take).collect::<Result<_, Error>>()?;
        self.columns.valid.clear();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

#[derive(Debug)]
struct TypedColumn {
    name: String,
    arrow: Option<FieldRef>,
    nullable: bool,
    default: Option<serde_json::Value>,
    valid: Vec<bool>,
    kind: ColumnValues,
}

#[derive(Debug)]
enum ColumnValues {
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
        items: Box<TypedColumn>,
    },
    Map {
        ends: Vec<usize>,
        keys: Box<TypedColumn>,
        values: Box<TypedColumn>,
    },
    Struct {
        columns: Vec<TypedColumn>,
        known: HashMap<String, usize>,
    },
}

impl TypedColumn {
    fn fields(fields: &[Field], arrow: &arrow_schema::Schema) -> Self {
        let kind = ColumnValues::of_struct(fields, arrow.fields());
        Self {
            name: String::new(),
            arrow: None,
            nullable: false,
            default: None,
            valid: vec![],
            kind,
        }
    }

    fn new(field: &Field, arrow: &FieldRef) -> Self {
        Self {
            name: field.name.clone(),
            arrow: Some(arrow.clone()),
            nullable: field.nullable,
            default: field.default.clone(),
            valid: Vec::new(),
            kind: ColumnValues::new(field, arrow.data_type()),
        }
    }

    fn len(&self) -> usize {
        self.valid.len()
    }

    fn wrong<T>(&self, found: impl fmt::Display) -> Result<T> {
        let expected = self
            .arrow
            .as_ref()
            .map_or_else(|| "a struct or map".to_owned(), |arrow| arrow.data_type().to_string());
        Err(Wrong(format!("column `{}`: expected {expected}, found {found}", self.name)))
    }

    fn push_null(&mut self) -> Result<()> {
        if !self.nullable {
            return self.wrong("null");
        }
        self.pad();
        self.valid.push(false);
        Ok(())
    }

    /// Adds a value that nobody sees.
    fn pad(&mut self) {
        match &mut self.kind {
            ColumnValues::Null => {}
            ColumnValues::Boolean(values) => values.push(false),
            ColumnValues::Integer { values, .. } => values.push(0),
            ColumnValues::Float(values) => values.push(0.0),
            ColumnValues::Decimal { values, .. } => values.push(i256::ZERO),
            ColumnValues::Bytes { ends, bytes, .. } => ends.push(bytes.len()),
            ColumnValues::Fixed { size, bytes } => bytes.resize(bytes.len() + *size, 0),
            ColumnValues::Enum { values, .. } => values.push(0),
            ColumnValues::List { ends, items } => ends.push(items.len()),
            ColumnValues::Map { ends, keys, .. } => ends.push(keys.len()),
            ColumnValues::Struct { columns, .. } => {
                for column in columns {
                    column.pad();
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
        match &mut self.kind {
            ColumnValues::Null => {}
            ColumnValues::Boolean(values) => values.truncate(rows),
            ColumnValues::Integer { values, .. } => values.truncate(rows),
            ColumnValues::Float(values) => values.truncate(rows),
            ColumnValues::Decimal { values, .. } => values.truncate(rows),
            ColumnValues::Bytes { ends, bytes, .. } => bytes.truncate(end(ends)),
            ColumnValues::Fixed { size, bytes } => bytes.truncate(rows * *size),
            ColumnValues::Enum { values, .. } => values.truncate(rows),
            ColumnValues::List { ends, items } => items.truncate(end(ends)),
            ColumnValues::Map { ends, keys, values } => {
                let end = end(ends);
                keys.truncate(end);
                values.truncate(end);
            }
            ColumnValues::Struct { columns, .. } => {
                columns.iter_mut().for_each(|column| column.truncate(rows));
            }
        }
    }

    fn integer(&mut self, value: i128) -> Result<()> {
        match &mut self.kind {
            ColumnValues::Integer { values, min, max } if (*min..=*max).contains(&value) => {
                values.push(value);
            }
            #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
            ColumnValues::Float(values) => values.push(value as f64),
            ColumnValues::Decimal { .. } => return self.text(&value.to_string()),
            _ => return self.wrong(value),
        }
        self.valid.push(true);
        Ok(())
    }

    fn float(&mut self, value: f64) -> Result<()> {
        match &mut self.kind {
            ColumnValues::Float(values) => values.push(value),
            _ => return self.wrong(value),
        }
        self.valid.push(true);
        Ok(())
    }

    fn text(&mut self, value: &str) -> Result<()> {
        match &mut self.kind {
            ColumnValues::Bytes { ends, bytes, .. } => {
                bytes.extend_from_slice(value.as_bytes());
                ends.push(bytes.len());
            }
            ColumnValues::Enum { values, symbols, known } => match known.get(value) {
                Some(symbol) => values.push(*symbol),
                None => {
                    let symbols = symbols.join(", ");
                    return Err(Wrong(format!(
                        "column `{}`: expected one of {symbols}, found `{value}`",
                        self.name
                    )));
                }
            },
            ColumnValues::Decimal { values, precision, scale } => {
                match crate::values::decimal(value, *precision, *scale) {
                    Some(value) => values.push(value),
                    None => return self.wrong(format!("`{value}`")),
                }
            }
            _ => return self.wrong(format!("`{value}`")),
        }
        self.valid.push(true);
        Ok(())
    }

    fn bytes(&mut self, value: &[u8]) -> Result<()> {
        match &mut self.kind {
            ColumnValues::Bytes { ends, bytes, is_text: false } => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len());
            }
            ColumnValues::Fixed { size, bytes } if *size == value.len() => {
                bytes.extend_from_slice(value)
            }
            _ => return self.wrong(format!("{} bytes", value.len())),
        }
        self.valid.push(true);
        Ok(())
    }

    fn take(&mut self) -> Result<ArrayRef, Error> {
        let Some(field) = self.arrow.clone() else {
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
        Ok(match &mut self.kind {
            ColumnValues::Null => Arc::new(NullArray::new(rows)),
            ColumnValues::Boolean(values) => {
                Arc::new(BooleanArray::new(std::mem::take(values).into(), nulls))
            }
            ColumnValues::Integer { values, min, .. } => {
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
            ColumnValues::Float(values) => {
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
            ColumnValues::Decimal { values, .. } => {
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
            ColumnValues::Bytes { ends, bytes, is_text } => {
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
            ColumnValues::Fixed { size, bytes } => {
                let size = i32::try_from(*size).unwrap_or(i32::MAX);
                let bytes = std::mem::take(bytes);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, bytes.into(), nulls, rows)?)
            }
            ColumnValues::Enum { values, symbols, .. } => {
                let keys =
                    PrimitiveArray::<Int32Type>::try_new(std::mem::take(values).into(), nulls)?;
                let symbols = StringArray::from_iter_values(symbols.iter());
                Arc::new(DictionaryArray::try_new(keys, Arc::new(symbols))?)
            }
            ColumnValues::List { ends, items } => {
                let DataType::List(item) = data_type else {
                    return Err(Error::Serde("a list that is none".into()));
                };
                let ends = std::mem::take(ends);
                let items = items.take()?;
                Arc::new(ListArray::try_new(item.clone(), offsets(&ends), items, nulls)?)
            }
            ColumnValues::Map { ends, keys, values } => {
                let DataType::Map(entries, sorted) = data_type else {
                    return Err(Error::Serde("a map that is none".into()));
                };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(Error::Serde("a map without pairs".into()));
                };
                let ends = std::mem::take(ends);
                let pairs = vec![keys.take()?, values.take()?];
                let pairs = StructArray::try_new(pair.clone(), pairs, None)?;
                let entries = entries.clone();
                Arc::new(MapArray::try_new(entries, offsets(&ends), pairs, nulls, *sorted)?)
            }
            ColumnValues::Struct { columns, .. } => {
                let DataType::Struct(fields) = data_type else {
                    return Err(Error::Serde("a struct that is none".into()));
                };
                let arrays = columns.iter_mut().map(Self::take).collect::<Result<_, Error>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?)
            }
        })
    }
}

impl ColumnValues {
    fn of_struct(fields: &[Field], arrow: &arrow_schema::Fields) -> Self {
        let columns: Vec<TypedColumn> =
            fields.iter().zip(arrow).map(|(field, arrow)| TypedColumn::new(field, arrow)).collect();
        let known = fields.iter().map(|field| field.name.clone()).zip(0..).collect();
        Self::Struct { columns, known }
    }

    fn new(field: &Field, arrow: &DataType) -> Self {
        let integer = |min: i128, max: i128| Self::Integer { values: Vec::new(), min, max };
        match (&field.kind, arrow) {
            (Type::Null, _) => Self::Null,
            (Type::Boolean, _) => Self::Boolean(Vec::new()),
            (Type::Int8, _) => integer(i8::MIN.into(), i8::MAX.into()),
            (Type::Int16, _) => integer(i16::MIN.into(), i16::MAX.into()),
            (Type::Uint8, _) => integer(0, u8::MAX.into()),
            (Type::Uint16, _) => integer(0, u16::MAX.into()),
            (Type::Uint32, _) => integer(0, u32::MAX.into()),
            (Type::Uint64, _) => integer(0, u64::MAX.into()),
            (Type::Int32 | Type::Date | Type::Time(_), other)
                if other.primitive_width() == Some(4) =>
            {
                integer(i32::MIN.into(), i32::MAX.into())
            }
            (Type::Float16 | Type::Float32 | Type::Float64, _) => Self::Float(Vec::new()),
            (Type::Decimal { precision, scale, .. }, _) => {
                Self::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            (Type::String, _) => Self::Bytes { ends: Vec::new(), bytes: Vec::new(), is_text: true },
            (Type::Binary, _) => {
                Self::Bytes { ends: Vec::new(), bytes: Vec::new(), is_text: false }
            }
            (Type::Fixed(size), _) => Self::Fixed { size: *size as usize, bytes: Vec::new() },
            (Type::Enum { symbols, .. }, _) => Self::Enum {
                values: Vec::new(),
                symbols: symbols.clone(),
                known: symbols.iter().cloned().zip(0..).collect(),
            },
            (Type::List(item), DataType::List(inner)) => {
                Self::List { ends: Vec::new(), items: Box::new(TypedColumn::new(item, inner)) }
            }
            (Type::Map { key, value, .. }, DataType::Map(entries, _)) => {
                match entries.data_type() {
                    DataType::Struct(pair) if pair.len() == 2 => Self::Map {
                        ends: Vec::new(),
                        keys: Box::new(TypedColumn::new(key, &pair[0])),
                        values: Box::new(TypedColumn::new(value, &pair[1])),
                    },
                    _ => Self::Null,
                }
            }
            (Type::Struct(fields), DataType::Struct(inner)) => Self::of_struct(fields, inner),
            _ => integer(i64::MIN.into(), i64::MAX.into()),
        }
    }
}

/// The value of a default, for a field that a row leaves out.
struct Default<'a>(&'a serde_json::Value);

impl Serialize for Default<'_> {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

macro_rules! integers {
    ($($name:ident: $native:ty,)*) => {
        $(fn $name(self, value: $native) -> Result<()> {
            self.integer(value.into())
        })*
    };
}

impl<'a> ser::Serializer for &'a mut TypedColumn {
    type Ok = ();
    type Error = Wrong;
    type SerializeSeq = Items<'a>;
    type SerializeTuple = Items<'a>;
    type SerializeTupleStruct = Items<'a>;
    type SerializeTupleVariant = ser::Impossible<(), Wrong>;
    type SerializeMap = Fields<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = ser::Impossible<(), Wrong>;

    fn serialize_bool(self, value: bool) -> Result<()> {
        match &mut self.kind {
            ColumnValues::Boolean(values) => values.push(value),
            _ => return self.wrong(value),
        }
        self.valid.push(true);
        Ok(())
    }

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_i128(self, value: i128) -> Result<()> {
        self.integer(value)
    }

    fn serialize_f32(self, value: f32) -> Result<()> {
        self.float(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<()> {
        self.float(value)
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<()> {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        self.bytes(value)
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
        self.text(variant)
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
        self.wrong(format!("the variant `{variant}`, which holds a value"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'a>> {
        match self.kind {
            ColumnValues::List { .. }
            | ColumnValues::Bytes { is_text: false, .. }
            | ColumnValues::Fixed { .. } => Ok(Items { column: self, bytes: Vec::new() }),
            _ => self.wrong("a sequence"),
        }
    }

    fn serialize_tuple(self, length: usize) -> Result<Items<'a>> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Items<'a>> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant> {
        self.wrong(format!("the variant `{variant}`, which holds values"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'a>> {
        match &self.kind {
            ColumnValues::Map { .. } | ColumnValues::Struct { .. } => {
                Ok(Fields { column: self, key: None })
            }
            _ => self.wrong("a map"),
        }
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Fields<'a>> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant> {
        self.wrong(format!("the variant `{variant}`, which holds fields"))
    }
}

/// The items of a list, or bytes one by one.
struct Items<'a> {
    column: &'a mut TypedColumn,
    bytes: Vec<u8>,
}

impl Items<'_> {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        match &mut self.column.kind {
            ColumnValues::List { items, .. } => value.serialize(&mut **items),
            _ => {
                let integer =
                    ColumnValues::Integer { values: Vec::new(), min: 0, max: u8::MAX.into() };
                let mut byte = TypedColumn {
                    name: self.column.name.clone(),
                    arrow: self.column.arrow.clone(),
                    nullable: false,
                    default: None,
                    valid: Vec::new(),
                    kind: integer,
                };
                value.serialize(&mut byte)?;
                if let ColumnValues::Integer { values, .. } = byte.kind {
                    self.bytes.extend(values.iter().filter_map(|value| u8::try_from(*value).ok()));
                }
                Ok(())
            }
        }
    }

    fn done(self) -> Result<()> {
        match &mut self.column.kind {
            ColumnValues::List { ends, items } => {
                ends.push(items.len());
                self.column.valid.push(true);
                Ok(())
            }
            _ => self.column.bytes(&self.bytes),
        }
    }
}

/// To serde lists, tuples and structs without names are three things.
macro_rules! sequences {
    ($($sequence:ident, $element:ident;)*) => {
        $(impl ser::$sequence for Items<'_> {
            type Ok = ();
            type Error = Wrong;

            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.push(value)
            }

            fn end(self) -> Result<()> {
                self.done()
            }
        })*
    };
}
sequences! {
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
}

/// The fields of a struct, or the pairs of a map.
struct Fields<'a> {
    column: &'a mut TypedColumn,
    /// The key that was given last, of a map that is a struct here.
    key: Option<String>,
}

impl Fields<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        let rows = self.column.len();
        match &mut self.column.kind {
            ColumnValues::Struct { columns, known } => {
                let column = known.get(name).and_then(|at| columns.get_mut(*at));
                match column {
                    Some(column) if column.len() == rows => value.serialize(column),
                    Some(_) => Err(Wrong(format!("the row has the field `{name}` twice"))),
                    None => {
                        let mut names: Vec<&str> = known.keys().map(String::as_str).collect();
                        names.sort_unstable();
                        let names = names.join(", ");
                        Err(Wrong(format!("unknown field `{name}`; fields: {names}")))
                    }
                }
            }
            ColumnValues::Map { keys, values, .. } => {
                keys.text(name)?;
                value.serialize(&mut **values)
            }
            _ => self.column.wrong("a struct"),
        }
    }

    fn done(self) -> Result<()> {
        let rows = self.column.len();
        match &mut self.column.kind {
            ColumnValues::Struct { columns, .. } => {
                for column in columns {
                    if column.len() > rows {
                        continue;
                    }
                    match column.default.take() {
                        Some(default) => {
                            let pushed = Default(&default).serialize(&mut *column);
                            column.default = Some(default);
                            pushed?;
                        }
                        None if column.nullable => column.push_null()?,
                        None => {
                            return Err(Wrong(format!("the row has no field `{}`", column.name)));
                        }
                    }
                }
            }
            ColumnValues::Map { ends, keys, .. } => ends.push(keys.len()),
            _ => return self.column.wrong("a struct"),
        }
        self.column.valid.push(true);
        Ok(())
    }
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Wrong;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.field(name, value)
    }

    fn end(self) -> Result<()> {
        self.done()
    }
}

impl ser::SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Wrong;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        if let ColumnValues::Map { keys, .. } = &mut self.column.kind {
            return key.serialize(&mut **keys);
        }
        let kind = ColumnValues::Bytes { ends: Vec::new(), bytes: Vec::new(), is_text: true };
        let mut name = TypedColumn {
            name: self.column.name.clone(),
            arrow: None,
            nullable: false,
            default: None,
            valid: Vec::new(),
            kind,
        };
        key.serialize(&mut name)?;
        if let ColumnValues::Bytes { bytes, .. } = name.kind {
            self.key = String::from_utf8(bytes).ok();
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        if let ColumnValues::Map { values, .. } = &mut self.column.kind {
            return value.serialize(&mut **values);
        }
        let name = self.key.take().unwrap_or_default();
        self.field(&name, value)
    }

    fn end(self) -> Result<()> {
        self.done()
    }
}

// ------------------------------------------------------------------------- columns to rows

/// Typed rows of a file.
pub struct TypedRows<T, S: ReadAt> {
    batches: Batches<S>,
    current: Option<(StructArray, usize)>,
    row: PhantomData<fn() -> T>,
}

impl<S: ReadAt> Reader<S> {
    /// Rows as values of a type, by the names of its fields.
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
    /// let visits: Result<Vec<Visit>, _> = reader.rows_as(&ReadOptions::default())?.collect();
    /// assert_eq!(visits?, [visit]);
    /// # Ok::<(), tidemill_rowfile::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn rows_as<T: DeserializeOwned>(
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
                    let cell = Cell { array: rows, row: *row };
                    *row += 1;
                    return Some(
                        T::deserialize(cell).map_err(|Wrong(reason)| Error::Serde(reason)),
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

/// A value.
#[derive(Clone, Copy)]
struct Cell<'a> {
    array: &'a dyn Array,
    row: usize,
}

impl<'a> Cell<'a> {
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Self { array, row } = self;
        if array.is_null(row) || array.data_type() == &DataType::Null {
            return visitor.visit_unit();
        }
        macro_rules! integer {
            ($arrow:ty, $visit:ident) => {{
                // A date or time is read as what it is kept as.
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
                Cell { array: array.values(), row: key }.visit(visitor)
            }
            DataType::List(_) | DataType::LargeList(_) => visitor.visit_seq(self.items()),
            DataType::Map(..) | DataType::Struct(_) => self.pairs(visitor),
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

    fn items(self) -> ItemsOf {
        let array = match self.array.data_type() {
            DataType::LargeList(_) => self.array.as_list::<i64>().value(self.row),
            _ => self.array.as_list::<i32>().value(self.row),
        };
        ItemsOf { array, next: 0 }
    }

    fn pairs<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.array.data_type() {
            DataType::Map(..) => {
                let pairs = self.array.as_map().value(self.row);
                visitor.visit_map(PairsOf { pairs, next: 0 })
            }
            _ => {
                let array = self.array.as_struct();
                visitor.visit_map(FieldsOf { array, row: self.row, next: 0 })
            }
        }
    }
}

impl<'de> serde::Deserializer<'de> for Cell<'_> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit(visitor)
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

    /// Bytes are a sequence to those who want one: `Vec<u8>`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.bytes() {
            Some(bytes) if !self.array.is_null(self.row) => {
                let bytes =
                    serde::de::value::SeqDeserializer::<_, Wrong>::new(bytes.iter().copied());
                visitor.visit_seq(bytes)
            }
            _ => self.visit(visitor),
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

struct ItemsOf {
    array: ArrayRef,
    next: usize,
}

impl<'de> SeqAccess<'de> for ItemsOf {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.next == self.array.len() {
            return Ok(None);
        }
        self.next += 1;
        seed.deserialize(Cell { array: &self.array, row: self.next - 1 }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.array.len() - self.next)
    }
}

struct PairsOf {
    pairs: StructArray,
    next: usize,
}

impl<'de> MapAccess<'de> for PairsOf {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        match self.pairs.columns().first() {
            Some(keys) if self.next < keys.len() => {
                seed.deserialize(Cell { array: keys, row: self.next }).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.next += 1;
        match self.pairs.columns().get(1) {
            Some(values) => seed.deserialize(Cell { array: values, row: self.next - 1 }),
            None => Err(Wrong("a map without values".into())),
        }
    }
}

struct FieldsOf<'a> {
    array: &'a StructArray,
    row: usize,
    next: usize,
}

impl<'de> MapAccess<'de> for FieldsOf<'_> {
    type Error = Wrong;

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
            Some(column) => seed
                .deserialize(Cell { array: column, row: self.row })
                .map_err(|Wrong(reason)| Wrong(format!("column `{name}`: {reason}"))),
            None => Err(Wrong(format!("no column `{name}`"))),
        }
    }
}
