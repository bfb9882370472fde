//! Arrays from values outside of rows: JSON defaults of fields that the data does not have, and the
//! bounds of columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray,
    FixedSizeBinaryArray, GenericListArray, Int32Array, LargeBinaryArray, LargeStringArray,
    MapArray, PrimitiveArray, StringArray, StringViewArray, StructArray, cast::AsArray,
    new_null_array,
};
use arrow_buffer::{OffsetBuffer, i256};
use arrow_schema::{DataType, FieldRef, TimeUnit};
use serde_json::Value;

use crate::schema::{FieldType, SchemaField, StringLayout, to_arrow_field};

/// Evaluates `$body` with `$arrow` as the Arrow type of a data type whose values are integers of
/// at most 64 bits, for any logical type; `$other` for other data types.
macro_rules! with_integer_type {
    (@with $type:ident, $arrow:ident, $body:expr) => {{
        type $arrow = arrow_array::types::$type;
        $body
    }};
    ($data_type:expr, $arrow:ident => $body:expr, _ => $other:expr) => {
        match $data_type {
            DataType::Int8 => with_integer_type!(@with Int8Type, $arrow, $body),
            DataType::Int16 => with_integer_type!(@with Int16Type, $arrow, $body),
            DataType::Int32 => with_integer_type!(@with Int32Type, $arrow, $body),
            DataType::Int64 => with_integer_type!(@with Int64Type, $arrow, $body),
            DataType::UInt8 => with_integer_type!(@with UInt8Type, $arrow, $body),
            DataType::UInt16 => with_integer_type!(@with UInt16Type, $arrow, $body),
            DataType::UInt32 => with_integer_type!(@with UInt32Type, $arrow, $body),
            DataType::UInt64 => with_integer_type!(@with UInt64Type, $arrow, $body),
            DataType::Date32 => with_integer_type!(@with Date32Type, $arrow, $body),
            DataType::Date64 => with_integer_type!(@with Date64Type, $arrow, $body),
            DataType::Time32(TimeUnit::Second) => with_integer_type!(@with Time32SecondType, $arrow, $body),
            DataType::Time32(_) => with_integer_type!(@with Time32MillisecondType, $arrow, $body),
            DataType::Time64(TimeUnit::Microsecond) => with_integer_type!(@with Time64MicrosecondType, $arrow, $body),
            DataType::Time64(_) => with_integer_type!(@with Time64NanosecondType, $arrow, $body),
            DataType::Timestamp(TimeUnit::Second, _) => with_integer_type!(@with TimestampSecondType, $arrow, $body),
            DataType::Timestamp(TimeUnit::Millisecond, _) => with_integer_type!(@with TimestampMillisecondType, $arrow, $body),
            DataType::Timestamp(TimeUnit::Microsecond, _) => with_integer_type!(@with TimestampMicrosecondType, $arrow, $body),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => with_integer_type!(@with TimestampNanosecondType, $arrow, $body),
            DataType::Duration(TimeUnit::Second) => with_integer_type!(@with DurationSecondType, $arrow, $body),
            DataType::Duration(TimeUnit::Millisecond) => with_integer_type!(@with DurationMillisecondType, $arrow, $body),
            DataType::Duration(TimeUnit::Microsecond) => with_integer_type!(@with DurationMicrosecondType, $arrow, $body),
            DataType::Duration(TimeUnit::Nanosecond) => with_integer_type!(@with DurationNanosecondType, $arrow, $body),
            DataType::Decimal32(..) => with_integer_type!(@with Decimal32Type, $arrow, $body),
            DataType::Decimal64(..) => with_integer_type!(@with Decimal64Type, $arrow, $body),
            _ => $other,
        }
    };
}
pub(crate) use with_integer_type;

/// Returns an array of one value, given as JSON.
pub(crate) fn array_from_json(
    field: &SchemaField,
    arrow: &FieldRef,
    json: &Value,
) -> Result<ArrayRef, String> {
    let data_type = arrow.data_type();
    if json.is_null() {
        return if field.nullable {
            Ok(new_null_array(data_type, 1))
        } else {
            Err("it may not be null".into())
        };
    }
    let wrong = || format!("expected {}, found {json}", field.kind);
    let integer = || json.as_i64().ok_or_else(wrong);
    macro_rules! integer_of {
        ($arrow:ty) => {{
            let value = match json.as_u64() {
                Some(value) => value.try_into().map_err(|_| wrong())?,
                None => integer()?.try_into().map_err(|_| wrong())?,
            };
            Ok(single_value_array::<$arrow>(value, data_type))
        }};
    }
    if !matches!(field.kind, FieldType::Decimal { .. }) {
        with_integer_type!(data_type, Arrow => return integer_of!(Arrow), _ => {});
    }
    match (&field.kind, data_type) {
        (_, DataType::Boolean) => {
            Ok(Arc::new(BooleanArray::from(vec![json.as_bool().ok_or_else(wrong)?])))
        }
        (_, DataType::Float16) => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            Ok(single_value_array::<Float16Type>(
                Half::from_f64(parse_json_float(json).ok_or_else(wrong)?),
                data_type,
            ))
        }
        #[expect(clippy::cast_possible_truncation, reason = "the nearest float is meant")]
        (_, DataType::Float32) => Ok(single_value_array::<Float32Type>(
            parse_json_float(json).ok_or_else(wrong)? as f32,
            data_type,
        )),
        (_, DataType::Float64) => Ok(single_value_array::<Float64Type>(
            parse_json_float(json).ok_or_else(wrong)?,
            data_type,
        )),
        (FieldType::Decimal { precision, scale, .. }, _) => {
            let text = match json {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(wrong()),
            };
            let value = parse_decimal(&text, *precision, *scale).ok_or_else(wrong)?;
            let narrow = || value.to_i128().ok_or_else(wrong);
            match data_type {
                DataType::Decimal32(..) => {
                    let value = narrow()?.try_into().map_err(|_| wrong())?;
                    Ok(single_value_array::<Decimal32Type>(value, data_type))
                }
                DataType::Decimal64(..) => {
                    let value = narrow()?.try_into().map_err(|_| wrong())?;
                    Ok(single_value_array::<Decimal64Type>(value, data_type))
                }
                DataType::Decimal128(..) => {
                    Ok(single_value_array::<Decimal128Type>(narrow()?, data_type))
                }
                _ => Ok(single_value_array::<Decimal256Type>(value, data_type)),
            }
        }
        (FieldType::Enum { symbols, .. }, DataType::Dictionary(_, values)) => {
            let symbol = json.as_str().ok_or_else(wrong)?;
            let at = symbols.iter().position(|known| known == symbol).ok_or_else(|| {
                format!("`{symbol}` is none of the symbols: {}", symbols.join(", "))
            })?;
            let all: ArrayRef = Arc::new(StringArray::from_iter_values(symbols));
            let all = cast_strings(&all, values).ok_or_else(wrong)?;
            let key = Int32Array::from(vec![i32::try_from(at).map_err(|_| wrong())?]);
            Ok(Arc::new(DictionaryArray::try_new(key, all).map_err(|error| error.to_string())?))
        }
        (FieldType::String, _) => {
            let text: ArrayRef =
                Arc::new(StringArray::from(vec![json.as_str().ok_or_else(wrong)?]));
            cast_strings(&text, data_type).ok_or_else(wrong)
        }
        (FieldType::Binary | FieldType::Fixed(_), _) => {
            let text = json.as_str().ok_or_else(wrong)?;
            let bytes: Option<Vec<u8>> =
                text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect();
            let bytes = bytes.ok_or_else(|| {
                "bytes are written as a string of the characters U+0000 to U+00FF".to_owned()
            })?;
            match data_type {
                DataType::Binary => Ok(Arc::new(BinaryArray::from(vec![bytes.as_slice()]))),
                DataType::LargeBinary => {
                    Ok(Arc::new(LargeBinaryArray::from(vec![bytes.as_slice()])))
                }
                DataType::BinaryView => Ok(Arc::new(BinaryViewArray::from(vec![bytes.as_slice()]))),
                DataType::FixedSizeBinary(size) if usize::try_from(*size) == Ok(bytes.len()) => {
                    let array =
                        FixedSizeBinaryArray::try_new_with_len(*size, bytes.into(), None, 1);
                    Ok(Arc::new(array.map_err(|error| error.to_string())?))
                }
                _ => Err(format!("{} bytes are not {}", bytes.len(), field.kind)),
            }
        }
        (FieldType::List(item), DataType::List(inner) | DataType::LargeList(inner)) => {
            let values = json.as_array().ok_or_else(wrong)?;
            let values = concatenate_json_values(item, inner, values.iter())?;
            let (length, nothing) = (values.len(), None);
            match data_type {
                DataType::List(_) => GenericListArray::<i32>::try_new(
                    inner.clone(),
                    OffsetBuffer::from_lengths([length]),
                    values,
                    nothing,
                )
                .map(|array| Arc::new(array) as ArrayRef),
                _ => GenericListArray::<i64>::try_new(
                    inner.clone(),
                    OffsetBuffer::from_lengths([length]),
                    values,
                    nothing,
                )
                .map(|array| Arc::new(array) as ArrayRef),
            }
            .map_err(|error| error.to_string())
        }
        (FieldType::Map { key, value, .. }, DataType::Map(entries, sorted)) => {
            let object = json.as_object().ok_or_else(wrong)?;
            let DataType::Struct(pair) = entries.data_type() else { return Err(wrong()) };
            let (Some(key_field), Some(value_field)) = (pair.first(), pair.get(1)) else {
                return Err(wrong());
            };
            if key.kind != FieldType::String {
                return Err("a map with other keys than strings has no default but null".into());
            }
            let keys: Vec<Value> = object.keys().map(|key| Value::from(key.as_str())).collect();
            let keys = concatenate_json_values(key, key_field, keys.iter())?;
            let values = concatenate_json_values(value, value_field, object.values())?;
            let length = keys.len();
            let entries_array =
                StructArray::try_new_with_length(pair.clone(), vec![keys, values], None, length);
            let array = entries_array.and_then(|array| {
                let offsets = OffsetBuffer::from_lengths([length]);
                MapArray::try_new(entries.clone(), offsets, array, None, *sorted)
            });
            Ok(Arc::new(array.map_err(|error| error.to_string())?))
        }
        (FieldType::Struct(fields), DataType::Struct(inner)) => {
            let object = json.as_object().ok_or_else(wrong)?;
            let unknown = object.keys().find(|key| fields.iter().all(|field| field.name != **key));
            if let Some(unknown) = unknown {
                return Err(format!("the struct has no field `{unknown}`"));
            }
            let arrays = fields.iter().zip(inner).map(|(field, inner)| {
                let value = object.get(&field.name).or(field.default.as_ref());
                array_from_json(field, inner, value.unwrap_or(&Value::Null))
                    .map_err(|reason| format!("field `{}`: {reason}", field.name))
            });
            let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
            let array = StructArray::try_new_with_length(inner.clone(), arrays, None, 1);
            Ok(Arc::new(array.map_err(|error| error.to_string())?))
        }
        _ => Err(wrong()),
    }
}

fn single_value_array<T: ArrowPrimitiveType>(value: T::Native, data_type: &DataType) -> ArrayRef {
    let array = PrimitiveArray::<T>::from_value(value, 1);
    Arc::new(array.with_data_type(data_type.clone()))
}

/// Returns an array of several JSON values.
fn concatenate_json_values<'a>(
    field: &SchemaField,
    arrow: &FieldRef,
    values: impl Iterator<Item = &'a Value>,
) -> Result<ArrayRef, String> {
    let arrays: Vec<ArrayRef> =
        values.map(|value| array_from_json(field, arrow, value)).collect::<Result<_, _>>()?;
    if arrays.is_empty() {
        return Ok(arrow_array::new_empty_array(arrow.data_type()));
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    arrow_select::concat::concat(&arrays).map_err(|error| error.to_string())
}

/// Parses a float. As in Avro's defaults, also accepts words for numbers that JSON cannot express.
fn parse_json_float(json: &Value) -> Option<f64> {
    match json.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity" | "INF") => Some(f64::INFINITY),
        Some("-Infinity" | "-INF") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => json.as_f64(),
    }
}

/// Parses a decimal such as `-1.50` as an integer with `scale` digits after the point.
pub(crate) fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i256> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(behind) {
        return None;
    }
    let mut all = format!("{whole}{behind}");
    let missing = i64::from(scale) - i64::try_from(behind.len()).ok()?;
    if let Ok(missing) = usize::try_from(missing) {
        all.push_str(&"0".repeat(missing));
    } else {
        let surplus = usize::try_from(-missing).ok()?;
        let kept = all.len().checked_sub(surplus)?;
        if all.get(kept..)?.bytes().any(|byte| byte != b'0') {
            return None;
        }
        all.truncate(kept);
    }
    let all = all.trim_start_matches('0');
    if all.len() > usize::from(precision) {
        return None;
    }
    i256::from_string(&format!("{sign}{}", if all.is_empty() { "0" } else { all }))
}

/// Converts strings to another Arrow layout.
pub(crate) fn cast_strings(text: &ArrayRef, data_type: &DataType) -> Option<ArrayRef> {
    let values = text.as_string_opt::<i32>()?.iter();
    Some(match data_type {
        DataType::Utf8 => text.clone(),
        DataType::LargeUtf8 => Arc::new(values.collect::<LargeStringArray>()),
        DataType::Utf8View => Arc::new(values.collect::<StringViewArray>()),
        _ => return None,
    })
}

/// Returns the bounds of a column as an array of its type; `None` if the type has no order.
pub(crate) fn array_from_bounds<'a>(
    kind: &FieldType,
    bounds: impl Iterator<Item = Option<&'a [u8]>>,
) -> Option<ArrayRef> {
    let data_type = bound_type(kind);
    macro_rules! primitive {
        ($arrow:ty, $get:expr) => {{
            let values = bounds.map(|bound| bound.and_then($get));
            let array: PrimitiveArray<$arrow> = values.collect();
            Arc::new(array.with_data_type(data_type.clone())) as ArrayRef
        }};
    }
    macro_rules! integer {
        ($arrow:ty) => {
            primitive!($arrow, |bound: &[u8]| {
                let value = i64::from_le_bytes(*bound.first_chunk()?);
                <$arrow as ArrowPrimitiveType>::Native::try_from(value).ok()
            })
        };
    }
    if data_type == DataType::UInt64 {
        return Some(primitive!(UInt64Type, |bound: &[u8]| {
            Some(u64::from_le_bytes(*bound.first_chunk()?))
        }));
    }
    with_integer_type!(&data_type, Arrow => return Some(integer!(Arrow)), _ => {});
    Some(match &data_type {
        DataType::Boolean => {
            let values = bounds.map(|bound| bound.and_then(|bound| Some(*bound.first()? != 0)));
            Arc::new(values.collect::<BooleanArray>())
        }
        DataType::Decimal128(..) => primitive!(Decimal128Type, |bound: &[u8]| {
            i256::from_le_bytes(*bound.first_chunk()?).to_i128()
        }),
        DataType::Decimal256(..) => {
            primitive!(Decimal256Type, |bound: &[u8]| Some(i256::from_le_bytes(
                *bound.first_chunk()?
            )))
        }
        #[expect(clippy::cast_possible_truncation, reason = "it was one before")]
        DataType::Float32 => primitive!(Float32Type, |bound: &[u8]| {
            Some(f64::from_le_bytes(*bound.first_chunk()?) as f32)
        }),
        DataType::Float64 => {
            primitive!(Float64Type, |bound: &[u8]| Some(f64::from_le_bytes(*bound.first_chunk()?)))
        }
        DataType::Utf8View => {
            let texts = bounds.map(|bound| bound.and_then(|bound| std::str::from_utf8(bound).ok()));
            Arc::new(texts.collect::<StringViewArray>())
        }
        DataType::BinaryView => Arc::new(bounds.collect::<BinaryViewArray>()),
        _ => return None,
    })
}

/// Returns the Arrow type in which a column's bounds are returned.
fn bound_type(kind: &FieldType) -> DataType {
    let field = SchemaField {
        name: String::new(),
        kind: kind.clone(),
        nullable: true,
        aliases: Vec::new(),
        default: None,
        doc: None,
        metadata: BTreeMap::new(),
    };
    to_arrow_field(&field, StringLayout::View).data_type().clone()
}
