//! Values as JSON: `to_json`, `json_object`, `json_array`.
//!
//! Numbers, booleans and nulls are those of JSON; a number that JSON has no word for, such as NaN, is null. Structs
//! and maps are objects, lists arrays. All else is a string as it is shown: times, spans, bytes by their
//! hexadecimal digits. A TEXT is a string, also where it holds JSON, since nothing tells the one from the other:
//! [`json_raw`](RAW) says so.

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

use super::SECTION;
use super::scan::{Scanner, compact};
use crate::call::{Call, Function, Kind, as_texts, failed, is_text, refused, shown, views};

/// The one field of what `json_raw` answers, by which it is known.
const RAW: &str = "(json)";

/// The type of what `json_raw` answers.
fn raw_type() -> DataType {
    DataType::Struct(Fields::from(vec![Field::new(RAW, DataType::Utf8View, true)]))
}

/// A column, to be written as JSON.
pub(super) enum Encoder {
    Null,
    Flags(BooleanArray),
    Integers(Int64Array),
    Unsigned(UInt64Array),
    Floats(Float32Array),
    Doubles(Float64Array),
    /// What stands as it is.
    Raw(StringViewArray),
    /// What is a string.
    Texts(StringViewArray),
    Objects(Vec<(String, Encoder)>, Option<NullBuffer>),
    Arrays(LargeListArray, Box<Encoder>),
    Maps {
        offsets: Vec<usize>,
        keys: StringViewArray,
        values: Box<Encoder>,
        nulls: Option<NullBuffer>,
    },
}

impl Encoder {
    pub(super) fn of(array: &ArrayRef) -> PlanResult<Self> {
        let as_type = |to: &DataType| cast_with_options(array, to, &STRICT_CAST_OPTIONS);
        Ok(match array.data_type() {
            DataType::Null => Encoder::Null,
            DataType::Boolean => Encoder::Flags(array.as_boolean().clone()),
            DataType::UInt64 => Encoder::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            DataType::Float32 => Encoder::Floats(array.as_primitive::<Float32Type>().clone()),
            whole if whole.is_integer() => {
                Encoder::Integers(as_type(&DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            float if float.is_floating() => {
                Encoder::Doubles(as_type(&DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            decimal if decimal.is_decimal() => Encoder::Raw(views(&as_type(&DataType::Utf8)?)?),
            text if is_text(text) => Encoder::Texts(views(array)?),
            DataType::Dictionary(_, values) => Encoder::of(&as_type(values)?)?,
            own if *own == raw_type() => {
                let inner = array.as_struct();
                let texts = inner.column(0).as_string_view();
                let nulls = NullBuffer::union(inner.nulls(), texts.nulls());
                let (views, buffers, _) = texts.clone().into_parts();
                Encoder::Raw(StringViewArray::try_new(views, buffers, nulls)?)
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let members =
                    columns.map(|(field, column)| Ok((field.name().clone(), Encoder::of(column)?)));
                let members = members.collect::<PlanResult<Vec<_>>>()?;
                Encoder::Objects(members, array.nulls().cloned())
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let lists = as_type(&DataType::LargeList(Arc::clone(item)))?;
                let lists = lists.as_list::<i64>().clone();
                let items = Encoder::of(lists.values())?;
                Encoder::Arrays(lists, Box::new(items))
            }
            DataType::Map(..) => {
                let maps = array.as_map();
                Encoder::Maps {
                    offsets: maps
                        .value_offsets()
                        .iter()
                        .map(|offset| usize::try_from(*offset).unwrap_or(0))
                        .collect(),
                    keys: as_texts(maps.keys())?,
                    values: Box::new(Encoder::of(maps.values())?),
                    nulls: maps.nulls().cloned(),
                }
            }
            _ => Encoder::Texts(as_texts(array)?),
        })
    }

    /// Writes a row's value.
    pub(super) fn write(&self, row: usize, made: &mut String) {
        // Writing into a String cannot fail.
        let _ = match self {
            Encoder::Null => made.write_str("null"),
            Encoder::Flags(all) if all.is_valid(row) => write!(made, "{}", all.value(row)),
            Encoder::Integers(all) if all.is_valid(row) => write!(made, "{}", all.value(row)),
            Encoder::Unsigned(all) if all.is_valid(row) => write!(made, "{}", all.value(row)),
            Encoder::Floats(all) if all.is_valid(row) && all.value(row).is_finite() => {
                write!(made, "{:?}", all.value(row))
            }
            Encoder::Doubles(all) if all.is_valid(row) && all.value(row).is_finite() => {
                write!(made, "{:?}", all.value(row))
            }
            Encoder::Raw(all) if all.is_valid(row) => made.write_str(all.value(row)),
            Encoder::Texts(all) if all.is_valid(row) => {
                write_string(all.value(row), made);
                Ok(())
            }
            Encoder::Objects(members, nulls) if is_valid(nulls.as_ref(), row) => {
                made.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    if index > 0 {
                        made.push(',');
                    }
                    write_string(name, made);
                    made.push(':');
                    member.write(row, made);
                }
                made.write_str("}")
            }
            Encoder::Arrays(lists, items) if lists.is_valid(row) => {
                made.push('[');
                for (index, item) in range(lists.value_offsets(), row).enumerate() {
                    if index > 0 {
                        made.push(',');
                    }
                    items.write(item, made);
                }
                made.write_str("]")
            }
            Encoder::Maps { offsets, keys, values, nulls } if is_valid(nulls.as_ref(), row) => {
                let first = offsets.get(row).copied().unwrap_or(0);
                let end = offsets.get(row + 1).copied().unwrap_or(first);
                made.push('{');
                for entry in first..end {
                    if entry > first {
                        made.push(',');
                    }
                    write_string(keys.value(entry), made);
                    made.push(':');
                    values.write(entry, made);
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

fn range(offsets: &[i64], row: usize) -> std::ops::Range<usize> {
    let at = |index: usize| offsets.get(index).and_then(|offset| usize::try_from(*offset).ok());
    at(row).unwrap_or(0)..at(row + 1).unwrap_or(0)
}

/// A string in its quotes.
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
                // Writing into a String cannot fail.
                let _ = write!(made, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        rest = letters.as_str();
    }
    made.push_str(rest);
    made.push('"');
}

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["to_json(x)"],
            "A value as JSON: structs and maps are objects, lists arrays; NaN and the infinities are null.",
        )
        .also(&["to_jsonb", "row_to_json", "array_to_json", "json_quote", "tojsonstring"])
        .takes(&[Kind::Any], 1)
        .runs(|call| {
            let values = call.column(0)?;
            let encoder = Encoder::of(&values)?;
            call.written(|row, made| {
                if values.is_null(row) || values.data_type().is_null() {
                    return Ok(false);
                }
                encoder.write(row, made);
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["json_object(key, x, key, x, …)"],
            "A JSON object of keys and values; a value that is JSON already is json_raw(x).",
        )
        .also(&["json_build_object", "jsonb_build_object"])
        .takes(&[], 0)
        .and_more(Kind::Any)
        .of_nulls()
        .settles(|asked| {
            if asked.count() % 2 == 1 {
                return Err(refused(
                    "`json_object` takes keys and values in turn, and the last key has no value",
                    "it is called as json_object('a', x, 'b', y)",
                ));
            }
            for index in (0..asked.count()).step_by(2) {
                let given = asked.data_type(index);
                if !is_text(given) {
                    return Err(refused(
                        format!("a key of `json_object` is a TEXT, and this is a {}", sql_type_name(given)),
                        "CAST(x AS TEXT) makes one; it is called as json_object('a', x, 'b', y)",
                    ));
                }
            }
            Ok(DataType::Utf8View)
        })
        .runs(json_object),
        Function::new(
            SECTION,
            &["json_array(x, …)"],
            "A JSON array of values; a value that is JSON already is json_raw(x).",
        )
        .also(&["json_build_array", "jsonb_build_array"])
        .takes(&[], 0)
        .and_more(Kind::Any)
        .of_nulls()
        .runs(|call| {
            let columns = (0..call.count()).map(|index| Encoder::of(&call.column(index)?));
            let columns: Vec<Encoder> = columns.collect::<PlanResult<_>>()?;
            call.written(|row, made| {
                made.push('[');
                for (index, column) in columns.iter().enumerate() {
                    if index > 0 {
                        made.push(',');
                    }
                    column.write(row, made);
                }
                made.push(']');
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["json_raw(json)"],
            "JSON in a text, to stand as it is in what to_json, json_object and json_array write.",
        )
        .takes(&[Kind::Text], 1)
        .gives(raw_type())
        .runs(|call| {
            let texts = call.texts(0)?;
            let mut scanner = Scanner::default();
            let made = call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                match scanner.whole(text) {
                    Ok(value) => compact(value, made),
                    Err(malformed) => {
                        return Err(failed(
                            format!(
                                "`{}` is no JSON: {} behind {} bytes",
                                shown(text),
                                malformed.what,
                                malformed.at
                            ),
                            "to_json(x) makes a JSON string of any text",
                        ));
                    }
                }
                Ok(true)
            })?;
            let nulls = made.nulls().cloned();
            let fields = Fields::from(vec![Field::new(RAW, DataType::Utf8View, true)]);
            Ok(Arc::new(StructArray::try_new(fields, vec![made], nulls)?))
        }),
    ]
}

fn json_object(call: &Call) -> PlanResult<ArrayRef> {
    let mut members = Vec::new();
    for index in (0..call.count()).step_by(2) {
        members.push((call.texts(index)?, Encoder::of(&call.column(index + 1)?)?));
    }
    call.written(|row, made| {
        made.push('{');
        for (index, (keys, values)) in members.iter().enumerate() {
            let Some(key) = keys.get(row) else {
                return Err(failed(
                    "a key of `json_object` is null",
                    "coalesce(key, '') has a text in its place",
                ));
            };
            if index > 0 {
                made.push(',');
            }
            write_string(key, made);
            made.push(':');
            values.write(row, made);
        }
        made.push('}');
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::{answer, called, shown_value, text};
    use arrow::array::{
        Int32Array, Int64Builder, ListBuilder, MapBuilder, StringArray, StringBuilder,
    };
    use arrow::datatypes::Int32Type;
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;
    use proptest::prelude::*;

    fn json_of(array: ArrayRef) -> Vec<String> {
        let rows = array.len();
        let made = called("to_json", vec![ColumnarValue::Array(array)], rows).unwrap();
        (0..rows).map(|row| shown_value(&made, row)).collect()
    }

    #[test]
    fn values_are_written_as_json() {
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
            (text("x\"\\\n\té\u{1}"), "\"x\\\"\\\\\\n\\té\\u0001\""),
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
            assert_eq!(answer("to_json", std::slice::from_ref(&value)), expected, "{value:?}");
        }
    }

    #[test]
    fn structs_lists_and_maps_are_nested() {
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
            json_of(Arc::new(structs)),
            [r#"{"a":"x\"y","b":[1,null]}"#, r#"{"a":null,"b":null}"#, "NULL"]
        );
        assert_eq!(json_of(lists.slice(1, 2)), ["NULL", "[]"]);
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
        assert_eq!(json_of(maps.slice(1, 2)), [r#"{"b":null,"c":3}"#, "NULL"]);
        let coded: arrow::array::DictionaryArray<Int32Type> = arrow::array::DictionaryArray::new(
            Int32Array::from(vec![1, 0]),
            Arc::new(Int64Array::from(vec![5, 6])),
        );
        assert_eq!(json_of(Arc::new(coded)), ["6", "5"]);
    }

    #[test]
    fn objects_and_arrays_are_made_of_values() {
        let n = ScalarValue::from(1_i64);
        for (name, args, expected) in [
            ("json_object", vec![text("a"), n.clone(), text("b"), text("x")], r#"{"a":1,"b":"x"}"#),
            ("json_object", vec![text("a"), ScalarValue::Null], r#"{"a":null}"#),
            ("json_build_object", vec![], "{}"),
            ("json_array", vec![n.clone(), text("a"), ScalarValue::Utf8(None)], r#"[1,"a",null]"#),
            ("json_array", vec![], "[]"),
            (
                "json_object",
                vec![text("a")],
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
            assert_eq!(answer(name, &args), expected, "{name}{args:?}");
        }
    }

    #[test]
    fn json_stands_as_it_is_where_it_is_said_to_be() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("{\"a\": [1]}"), None]));
        let raw = called("json_raw", vec![ColumnarValue::Array(texts)], 2).unwrap();
        let args = vec![ColumnarValue::Scalar(text("k")), ColumnarValue::Array(Arc::clone(&raw))];
        let made = called("json_object", args, 2).unwrap();
        assert_eq!(shown_value(&made, 0), r#"{"k":{"a":[1]}}"#);
        assert_eq!(shown_value(&made, 1), r#"{"k":null}"#);
        assert_eq!(json_of(raw), ["{\"a\":[1]}", "NULL"]);
        let wrong = called("json_raw", vec![ColumnarValue::Scalar(text("{"))], 1).unwrap_err();
        assert_eq!(
            crate::call::tests::told(wrong),
            "`{` is no JSON: a key in double quotes was expected behind 1 bytes\nhint: to_json(x) makes a JSON string of any text"
        );
    }

    proptest! {
        #[test]
        fn strings_are_written_as_another_parser_reads_them(text in ".{0,20}") {
            let mut made = String::new();
            write_string(&text, &mut made);
            prop_assert_eq!(serde_json::from_str::<String>(&made).unwrap(), text);
        }

        #[test]
        fn numbers_are_json_and_keep_their_digits(number in any::<f64>()) {
            let made = answer("to_json", &[ScalarValue::from(number)]);
            let is_json = serde_json::from_str::<Option<f64>>(&made).is_ok();
            prop_assert!(is_json, "{}", made);
            prop_assert_eq!(made.parse().ok(), Some(number).filter(|number| number.is_finite()));
        }
    }
}
