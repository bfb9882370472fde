//! Values as JSON: `to_json`, `json_object`, `json_array`.
//!
//! Numbers, booleans and nulls become those of JSON; a number that JSON cannot express, such as NaN, becomes
//! null. Structs and maps become objects, lists arrays. All other values become strings: times, intervals,
//! and bytes as hexadecimal digits. A TEXT becomes a string even if it holds JSON, since nothing
//! distinguishes the two; [`json_raw`](RAW_JSON_FIELD) marks JSON.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int64Array, LargeListArray,
    StringViewArray, StructArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Field, Fields, Float32Type, Float64Type, Int64Type, UInt64Type};
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use super::JSON_SECTION;
use super::json_scanner::{JsonScanner, write_compact};
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, cast_to_views, excerpt_for_message, format_as_texts,
    is_text_type, query_error, usage_error,
};

/// The name of the one field in the result of `json_raw`, which identifies it.
const RAW_JSON_FIELD: &str = "(json)";

/// Returns the result type of `json_raw`.
fn raw_json_type() -> DataType {
    DataType::Struct(Fields::from(vec![Field::new(RAW_JSON_FIELD, DataType::Utf8View, true)]))
}

/// A column to be encoded as JSON.
pub(super) enum JsonEncoder {
    Null,
    Booleans(BooleanArray),
    Integers(Int64Array),
    Unsigned(UInt64Array),
    Floats(Float32Array),
    Doubles(Float64Array),
    /// Text that is written as it is.
    Raw(StringViewArray),
    /// Text that is written as a JSON string.
    Texts(StringViewArray),
    Objects(Vec<(String, JsonEncoder)>, Option<NullBuffer>),
    Arrays(LargeListArray, Box<JsonEncoder>),
    Maps {
        offsets: Vec<usize>,
        keys: StringViewArray,
        values: Box<JsonEncoder>,
        nulls: Option<NullBuffer>,
    },
}

impl JsonEncoder {
    pub(super) fn from_array(array: &ArrayRef) -> PlanResult<Self> {
        let as_type = |to: &DataType| cast_with_options(array, to, &STRICT_CAST_OPTIONS);
        Ok(match array.data_type() {
            DataType::Null => JsonEncoder::Null,
            DataType::Boolean => JsonEncoder::Booleans(array.as_boolean().clone()),
            DataType::UInt64 => JsonEncoder::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            DataType::Float32 => JsonEncoder::Floats(array.as_primitive::<Float32Type>().clone()),
            whole if whole.is_integer() => JsonEncoder::Integers(
                as_type(&DataType::Int64)?.as_primitive::<Int64Type>().clone(),
            ),
            float if float.is_floating() => JsonEncoder::Doubles(
                as_type(&DataType::Float64)?.as_primitive::<Float64Type>().clone(),
            ),
            decimal if decimal.is_decimal() => {
                JsonEncoder::Raw(cast_to_views(&as_type(&DataType::Utf8)?)?)
            }
            text if is_text_type(text) => JsonEncoder::Texts(cast_to_views(array)?),
            DataType::Dictionary(_, values) => JsonEncoder::from_array(&as_type(values)?)?,
            own if *own == raw_json_type() => {
                let inner = array.as_struct();
                let texts = inner.column(0).as_string_view();
                let nulls = NullBuffer::union(inner.nulls(), texts.nulls());
                let (views, buffers, _) = texts.clone().into_parts();
                JsonEncoder::Raw(StringViewArray::try_new(views, buffers, nulls)?)
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let members = columns.map(|(field, column)| {
                    Ok((field.name().clone(), JsonEncoder::from_array(column)?))
                });
                let members = members.collect::<PlanResult<Vec<_>>>()?;
                JsonEncoder::Objects(members, array.nulls().cloned())
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let lists = as_type(&DataType::LargeList(Arc::clone(item)))?;
                let lists = lists.as_list::<i64>().clone();
                let items = JsonEncoder::from_array(lists.values())?;
                JsonEncoder::Arrays(lists, Box::new(items))
            }
            DataType::Map(..) => {
                let maps = array.as_map();
                JsonEncoder::Maps {
                    offsets: maps
                        .value_offsets()
                        .iter()
                        .map(|offset| usize::try_from(*offset).unwrap_or(0))
                        .collect(),
                    keys: format_as_texts(maps.keys())?,
                    values: Box::new(JsonEncoder::from_array(maps.values())?),
                    nulls: maps.nulls().cloned(),
                }
            }
            _ => JsonEncoder::Texts(format_as_texts(array)?),
        })
    }

    /// Writes the value of a row.
    pub(super) fn write_value(&self, row: usize, made: &mut String) {
        // Writing to a `String` cannot fail.
        let _ = match self {
            JsonEncoder::Null => made.write_str("null"),
            JsonEncoder::Booleans(all) if all.is_valid(row) => write!(made, "{}", all.value(row)),
            JsonEncoder::Integers(all) if all.is_valid(row) => write!(made, "{}", all.value(row)),
            JsonEncoder::Unsigned(all) if all.is_valid(row) => write!(made, "{}", all.value(row)),
            JsonEncoder::Floats(all) if all.is_valid(row) && all.value(row).is_finite() => {
                write!(made, "{:?}", all.value(row))
            }
            JsonEncoder::Doubles(all) if all.is_valid(row) && all.value(row).is_finite() => {
                write!(made, "{:?}", all.value(row))
            }
            JsonEncoder::Raw(all) if all.is_valid(row) => made.write_str(all.value(row)),
            JsonEncoder::Texts(all) if all.is_valid(row) => {
                write_string(all.value(row), made);
                Ok(())
            }
            JsonEncoder::Objects(members, nulls) if is_valid(nulls.as_ref(), row) => {
                made.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    if index > 0 {
                        made.push(',');
                    }
                    write_string(name, made);
                    made.push(':');
                    member.write_value(row, made);
                }
                made.write_str("}")
            }
            JsonEncoder::Arrays(lists, items) if lists.is_valid(row) => {
                made.push('[');
                for (index, item) in item_range(lists.value_offsets(), row).enumerate() {
                    if index > 0 {
                        made.push(',');
                    }
                    items.write_value(item, made);
                }
                made.write_str("]")
            }
            JsonEncoder::Maps { offsets, keys, values, nulls } if is_valid(nulls.as_ref(), row) => {
                let first = offsets.get(row).copied().unwrap_or(0);
                let end = offsets.get(row + 1).copied().unwrap_or(first);
                made.push('{');
                for entry in first..end {
                    if entry > first {
                        made.push(',');
                    }
                    write_string(keys.value(entry), made);
                    made.push(':');
                    values.write_value(entry, made);
                }
                made.write_str("}")
            }
            _ => made.write_str("null"),
        };
    }
}

fn is_valid(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_none_or(|nulls| nulls.is_valid(row))
}

fn item_range(offsets: &[i64], row: usize) -> std::ops::Range<usize> {
    let at = |index: usize| offsets.get(index).and_then(|offset| usize::try_from(*offset).ok());
    at(row).unwrap_or(0)..at(row + 1).unwrap_or(0)
}

/// Writes a string with quotes and escapes.
fn write_string(text: &str, made: &mut String) {
    made.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter == '"' || letter == '\\' || letter < ' ') {
        let (plain, behind) = rest.split_at(at);
        made.push_str(plain);
        let mut letters = behind.chars();
        match letters.next() {
            Some('"') => made.push_str("\\\""),
            Some('\\') => made.push_str("\\\\"),
            Some('\n') => made.push_str("\\n"),
            Some('\r') => made.push_str("\\r"),
            Some('\t') => made.push_str("\\t"),
            Some(control) => {
                // Writing to a `String` cannot fail.
                let _ = write!(made, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        rest = letters.as_str();
    }
    made.push_str(rest);
    made.push('"');
}

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            JSON_SECTION,
            &["to_json(x)"],
            "A value as JSON: structs and maps are objects, lists arrays; NaN and the infinities are null.",
        )
        .with_aliases(&["to_jsonb", "row_to_json", "array_to_json", "json_quote", "tojsonstring"])
        .with_arguments(&[ArgumentKind::Any], 1)
        .into_udf(|call| {
            let values = call.argument_column(0)?;
            let encoder = JsonEncoder::from_array(&values)?;
            call.build_texts(|row, made| {
                if values.is_null(row) || values.data_type().is_null() {
                    return Ok(false);
                }
                encoder.write_value(row, made);
                Ok(true)
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_object(key, x, key, x, …)"],
            "A JSON object of keys and values; a value that is JSON already is json_raw(x).",
        )
        .with_aliases(&["json_build_object", "jsonb_build_object"])
        .with_arguments(&[], 0)
        .with_variadic_argument(ArgumentKind::Any)
        .with_null_arguments()
        .with_return_type_closure(|asked| {
            if asked.argument_count() % 2 == 1 {
                return Err(usage_error(
                    "`json_object` takes keys and values in turn, and the last key has no value",
                    "it is called as json_object('a', x, 'b', y)",
                ));
            }
            for index in (0..asked.argument_count()).step_by(2) {
                let given = asked.argument_type(index);
                if !is_text_type(given) {
                    return Err(usage_error(
                        format!("a key of `json_object` is a TEXT, and this is a {}", sql_type_name(given)),
                        "CAST(x AS TEXT) makes one; it is called as json_object('a', x, 'b', y)",
                    ));
                }
            }
            Ok(DataType::Utf8View)
        })
        .into_udf(json_object),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_array(x, …)"],
            "A JSON array of values; a value that is JSON already is json_raw(x).",
        )
        .with_aliases(&["json_build_array", "jsonb_build_array"])
        .with_arguments(&[], 0)
        .with_variadic_argument(ArgumentKind::Any)
        .with_null_arguments()
        .into_udf(|call| {
            let columns = (0..call.argument_count()).map(|index| JsonEncoder::from_array(&call.argument_column(index)?));
            let columns: Vec<JsonEncoder> = columns.collect::<PlanResult<_>>()?;
            call.build_texts(|row, made| {
                made.push('[');
                for (index, column) in columns.iter().enumerate() {
                    if index > 0 {
                        made.push(',');
                    }
                    column.write_value(row, made);
                }
                made.push(']');
                Ok(true)
            })
        }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_raw(json)"],
            "JSON in a text, to stand as it is in what to_json, json_object and json_array write.",
        )
        .with_arguments(&[ArgumentKind::Text], 1)
        .with_return_type(raw_json_type())
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            let mut scanner = JsonScanner::default();
            let made = call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                match scanner.scan_whole(text) {
                    Ok(value) => write_compact(value, made),
                    Err(malformed) => {
                        return Err(query_error(
                            format!(
                                "`{}` is no JSON: {} behind {} bytes",
                                excerpt_for_message(text),
                                malformed.message,
                                malformed.offset
                            ),
                            "to_json(x) makes a JSON string of any text",
                        ));
                    }
                }
                Ok(true)
            })?;
            let nulls = made.nulls().cloned();
            let fields = Fields::from(vec![Field::new(RAW_JSON_FIELD, DataType::Utf8View, true)]);
            Ok(Arc::new(StructArray::try_new(fields, vec![made], nulls)?))
        }),
    ]
}

fn json_object(call: &CallBatch) -> PlanResult<ArrayRef> {
    let mut members = Vec::new();
    for index in (0..call.argument_count()).step_by(2) {
        members.push((
            call.text_operand(index)?,
            JsonEncoder::from_array(&call.argument_column(index + 1)?)?,
        ));
    }
    call.build_texts(|row, made| {
        made.push('{');
        for (index, (keys, values)) in members.iter().enumerate() {
            let Some(key) = keys.get(row) else {
                return Err(query_error(
                    "a key of `json_object` is null",
                    "coalesce(key, '') has a text in its place",
                ));
            };
            if index > 0 {
                made.push(',');
            }
            write_string(key, made);
            made.push(':');
            values.write_value(row, made);
        }
        made.push('}');
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{
        call_function, call_in_all_forms, format_value, text_constant,
    };
    use arrow::array::{
        Int32Array, Int64Builder, ListBuilder, MapBuilder, StringArray, StringBuilder,
    };
    use arrow::datatypes::Int32Type;
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;
    use proptest::prelude::*;

    fn encode_rows(array: ArrayRef) -> Vec<String> {
        let rows = array.len();
        let made = call_function("to_json", vec![ColumnarValue::Array(array)], rows).unwrap();
        (0..rows).map(|row| format_value(&made, row)).collect()
    }

    #[test]
    fn scalars_are_encoded_as_json() {
        for (value, expected) in [
            (ScalarValue::from(1_i64), "1"),
            (ScalarValue::from(u64::MAX), "18446744073709551615"),
            (ScalarValue::from(1.5), "1.5"),
            (ScalarValue::from(1.0), "1.0"),
            (ScalarValue::from(1e300), "1e300"),
            (ScalarValue::Float32(Some(0.1)), "0.1"),
            (ScalarValue::from(f64::NAN), "null"),
            (ScalarValue::from(f64::INFINITY), "null"),
            (ScalarValue::from(true), "true"),
            (text_constant("x\"\\\n\té\u{1}"), "\"x\\\"\\\\\\n\\té\\u0001\""),
            (ScalarValue::Decimal128(Some(-1250), 5, 2), "-12.50"),
            (ScalarValue::Date32(Some(19724)), "\"2024-01-02\""),
            (
                ScalarValue::TimestampMicrosecond(Some(1_704_164_645_000_000), None),
                "\"2024-01-02T03:04:05\"",
            ),
            (ScalarValue::Binary(Some(vec![0, 171])), "\"00ab\""),
            (ScalarValue::Null, "NULL"),
            (ScalarValue::Int64(None), "NULL"),
        ] {
            assert_eq!(
                call_in_all_forms("to_json", std::slice::from_ref(&value)),
                expected,
                "{value:?}"
            );
        }
    }

    #[test]
    fn nested_values_are_encoded_as_json() {
        let mut lists = ListBuilder::new(Int64Builder::new());
        lists.append_value([Some(1), None]);
        lists.append_null();
        lists.append_value([]);
        let lists: ArrayRef = Arc::new(lists.finish());
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("x\"y"), None, Some("z")]));
        let fields = Fields::from(vec![
            Field::new("a", names.data_type().clone(), true),
            Field::new("b", lists.data_type().clone(), true),
        ]);
        let nulls = NullBuffer::from(vec![true, true, false]);
        let structs = StructArray::new(fields, vec![names, Arc::clone(&lists)], Some(nulls));
        assert_eq!(
            encode_rows(Arc::new(structs)),
            [r#"{"a":"x\"y","b":[1,null]}"#, r#"{"a":null,"b":null}"#, "NULL"]
        );
        assert_eq!(encode_rows(lists.slice(1, 2)), ["NULL", "[]"]);
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        maps.keys().append_value("a");
        maps.values().append_value(1);
        maps.append(true).unwrap();
        maps.keys().append_value("b");
        maps.values().append_null();
        maps.keys().append_value("c");
        maps.values().append_value(3);
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        assert_eq!(encode_rows(maps.slice(1, 2)), [r#"{"b":null,"c":3}"#, "NULL"]);
        let coded: arrow::array::DictionaryArray<Int32Type> = arrow::array::DictionaryArray::new(
            Int32Array::from(vec![1, 0]),
            Arc::new(Int64Array::from(vec![5, 6])),
        );
        assert_eq!(encode_rows(Arc::new(coded)), ["6", "5"]);
    }

    #[test]
    fn json_object_and_json_array_encode_arguments() {
        let n = ScalarValue::from(1_i64);
        for (name, args, expected) in [
            (
                "json_object",
                vec![text_constant("a"), n.clone(), text_constant("b"), text_constant("x")],
                r#"{"a":1,"b":"x"}"#,
            ),
            ("json_object", vec![text_constant("a"), ScalarValue::Null], r#"{"a":null}"#),
            ("json_build_object", vec![], "{}"),
            (
                "json_array",
                vec![n.clone(), text_constant("a"), ScalarValue::Utf8(None)],
                r#"[1,"a",null]"#,
            ),
            ("json_array", vec![], "[]"),
            (
                "json_object",
                vec![text_constant("a")],
                "`json_object` takes keys and values in turn, and the last key has no value\nhint: it is called as json_object('a', x, 'b', y)",
            ),
            (
                "json_object",
                vec![n.clone(), n.clone()],
                "a key of `json_object` is a TEXT, and this is a BIGINT\nhint: CAST(x AS TEXT) makes one; it is called as json_object('a', x, 'b', y)",
            ),
            (
                "json_object",
                vec![ScalarValue::Utf8(None), n],
                "a key of `json_object` is null\nhint: coalesce(key, '') has a text in its place",
            ),
        ] {
            assert_eq!(call_in_all_forms(name, &args), expected, "{name}{args:?}");
        }
    }

    #[test]
    fn json_raw_is_inserted_unquoted() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("{\"a\": [1]}"), None]));
        let raw = call_function("json_raw", vec![ColumnarValue::Array(texts)], 2).unwrap();
        let args =
            vec![ColumnarValue::Scalar(text_constant("k")), ColumnarValue::Array(Arc::clone(&raw))];
        let made = call_function("json_object", args, 2).unwrap();
        assert_eq!(format_value(&made, 0), r#"{"k":{"a":[1]}}"#);
        assert_eq!(format_value(&made, 1), r#"{"k":null}"#);
        assert_eq!(encode_rows(raw), ["{\"a\":[1]}", "NULL"]);
        let wrong = call_function("json_raw", vec![ColumnarValue::Scalar(text_constant("{"))], 1)
            .unwrap_err();
        assert_eq!(
            crate::closure_function::tests::error_message(wrong),
            "`{` is no JSON: a key in double quotes was expected behind 1 bytes\nhint: to_json(x) makes a JSON string of any text"
        );
    }

    proptest! {
        #[test]
        fn strings_encode_as_serde_json_decodes_them(text in ".{0,20}") {
            let mut made = String::new();
            write_string(&text, &mut made);
            prop_assert_eq!(serde_json::from_str::<String>(&made).unwrap(), text);
        }

        #[test]
        fn numbers_round_trip_through_json(number in any::<f64>()) {
            let made = call_in_all_forms("to_json", &[ScalarValue::from(number)]);
            let is_json = serde_json::from_str::<Option<f64>>(&made).is_ok();
            prop_assert!(is_json, "{}", made);
            prop_assert_eq!(made.parse().ok(), Some(number).filter(|number| number.is_finite()));
        }
    }
}
