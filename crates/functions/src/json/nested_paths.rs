//! Paths into structs, lists and maps: `->` returns a value of the field's own type.
//!
//! A path may continue into a TEXT that holds JSON.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringViewArray, UInt64Array};
use arrow::compute::{cast_with_options, nullif, take};
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::Error;
use tidemill_base::suggestions;

use super::extraction;
use super::json_encoder::JsonEncoder;
use super::json_path::{JsonPath, PathStep};
use crate::closure_function::{
    CallBatch, PlannedCall, cast_to_views, format_as_texts, is_text_type, usage_error,
};

/// Returns whether values of a type have fields or items.
pub(super) fn is_nested(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_)
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::Map(..) => true,
        DataType::Dictionary(_, values) => is_nested(values),
        _ => false,
    }
}

fn invalid_step_error(
    name: &str,
    step: &PathStep,
    of: &DataType,
) -> datafusion_common::DataFusionError {
    let (what, hint) = match step {
        PathStep::Key(key) | PathStep::KeyOrIndex(key, _) => {
            (format!("the key `{key}`"), "a list takes numbers from 0: x -> 0")
        }
        PathStep::Index(index) => {
            (format!("the number {index}"), "a struct takes the name of a field: x -> 'a'")
        }
        PathStep::AllMembers | PathStep::AllItems => {
            ("a star".to_owned(), "to_json(x) makes JSON, which a path with stars looks into")
        }
    };
    usage_error(format!("`{name}` finds nothing by {what} in a {}", sql_type_name(of)), hint)
}

/// Returns the type that a path step leads to.
fn step_type(name: &str, of: &DataType, step: &PathStep) -> PlanResult<DataType> {
    match (of, step) {
        (DataType::Dictionary(_, values), _) => step_type(name, values, step),
        (DataType::Struct(fields), PathStep::Key(key) | PathStep::KeyOrIndex(key, _)) => {
            match fields.iter().find(|field| field.name() == key) {
                Some(field) => Ok(field.data_type().clone()),
                None => {
                    let names: Vec<&str> =
                        fields.iter().map(|field| field.name().as_str()).collect();
                    let message = suggestions::unknown_name_message("field", key, &names);
                    Err(datafusion_common::DataFusionError::External(Box::new(Error::usage(
                        message,
                    ))))
                }
            }
        }
        (
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            PathStep::Index(_) | PathStep::KeyOrIndex(_, Some(_)),
        ) => Ok(item.data_type().clone()),
        (DataType::Map(entries, _), PathStep::Key(_) | PathStep::KeyOrIndex(..)) => {
            match entries.data_type() {
                DataType::Struct(pair) => match pair.iter().collect::<Vec<_>>().as_slice() {
                    [key, value] if is_text_type(key.data_type()) => Ok(value.data_type().clone()),
                    _ => Err(invalid_step_error(name, step, of)),
                },
                _ => Err(invalid_step_error(name, step, of)),
            }
        }
        _ => Err(invalid_step_error(name, step, of)),
    }
}

/// Returns the result type. The steps behind a TEXT are a path into its JSON.
pub(super) fn result_type(
    asked: &PlannedCall<'_>,
    path: &JsonPath,
    is_text_wanted: bool,
) -> PlanResult<DataType> {
    let mut at = asked.argument_type(0).clone();
    for (index, step) in path.steps().iter().enumerate() {
        if is_text_type(&at) {
            let rest = JsonPath::from_steps(path.steps().get(index..).unwrap_or_default().to_vec());
            return match rest.has_wildcards() {
                true => Err(invalid_step_error(asked.function_name(), &PathStep::AllItems, &at)),
                false => Ok(DataType::Utf8View),
            };
        }
        at = step_type(asked.function_name(), &at, step)?;
    }
    Ok(if is_text_wanted { DataType::Utf8View } else { at })
}

/// Extracts the value at a path from each row.
pub(super) fn extract_by_path(
    call: &CallBatch,
    path: &JsonPath,
    is_text_wanted: bool,
) -> PlanResult<ArrayRef> {
    let mut at = call.argument_column(0)?;
    for (index, step) in path.steps().iter().enumerate() {
        if is_text_type(at.data_type()) {
            let rest = path.steps().get(index..).unwrap_or_default();
            return extraction::extract_by_steps(call, &cast_to_views(&at)?, rest, is_text_wanted);
        }
        at = follow_step(&at, step)?;
    }
    if !is_text_wanted {
        return Ok(at);
    }
    Ok(Arc::new(match is_nested(at.data_type()) {
        true => encode_as_json(call, &at)?.as_string_view().clone(),
        false => format_as_texts(&at)?,
    }))
}

fn encode_as_json(call: &CallBatch, values: &ArrayRef) -> PlanResult<ArrayRef> {
    let encoder = JsonEncoder::from_array(values)?;
    call.build_texts(|row, made| {
        if values.is_null(row) {
            return Ok(false);
        }
        encoder.write_value(row, made);
        Ok(true)
    })
}

/// Follows one step of a path in each row.
fn follow_step(of: &ArrayRef, step: &PathStep) -> PlanResult<ArrayRef> {
    let nothing =
        || Ok(arrow::array::new_null_array(&step_type("", of.data_type(), step)?, of.len()));
    match (of.data_type(), step) {
        (DataType::Dictionary(_, values), _) => {
            follow_step(&cast_with_options(of, values, &STRICT_CAST_OPTIONS)?, step)
        }
        (DataType::Struct(_), PathStep::Key(key) | PathStep::KeyOrIndex(key, _)) => {
            let structs = of.as_struct();
            let Some(field) = structs.column_by_name(key) else { return nothing() };
            match structs.nulls() {
                Some(nulls) => {
                    let is_null = BooleanArray::new(!nulls.inner(), None);
                    Ok(nullif(field, &is_null)?)
                }
                None => Ok(Arc::clone(field)),
            }
        }
        (DataType::Map(..), PathStep::Key(key) | PathStep::KeyOrIndex(key, _)) => {
            let maps = of.as_map();
            let keys: StringViewArray = format_as_texts(maps.keys())?;
            let offsets = maps.value_offsets();
            let places = (0..maps.len()).map(|row| {
                let range = item_range(offsets, row).filter(|_| maps.is_valid(row))?;
                range.into_iter().find(|at| keys.value(*at) == key).map(|at| at as u64)
            });
            Ok(take(maps.values(), &places.collect::<UInt64Array>(), None)?)
        }
        (
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            PathStep::Index(_) | PathStep::KeyOrIndex(_, Some(_)),
        ) => {
            let index = match step {
                PathStep::Index(index) => *index,
                PathStep::KeyOrIndex(_, Some(index)) => i64::try_from(*index).unwrap_or(i64::MAX),
                _ => return nothing(),
            };
            let lists = cast_with_options(
                of,
                &DataType::LargeList(Arc::clone(item)),
                &STRICT_CAST_OPTIONS,
            )?;
            let lists = lists.as_list::<i64>();
            let offsets = lists.value_offsets();
            let places = (0..lists.len()).map(|row| {
                let range = item_range(offsets, row).filter(|_| lists.is_valid(row))?;
                let back = usize::try_from(index.unsigned_abs()).ok()?;
                let at = match index < 0 {
                    true => range.end.checked_sub(back)?,
                    false => range.start.checked_add(back)?,
                };
                range.contains(&at).then_some(at as u64)
            });
            Ok(take(lists.values(), &places.collect::<UInt64Array>(), None)?)
        }
        _ => nothing(),
    }
}

/// Returns the range of a row's items.
pub(super) fn item_range<O: Copy + TryInto<usize>>(
    offsets: &[O],
    row: usize,
) -> Option<std::ops::Range<usize>> {
    let start = (*offsets.get(row)?).try_into().ok()?;
    Some(start..(*offsets.get(row + 1)?).try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{call_function, error_message, format_value};
    use arrow::array::{
        Int64Array, ListBuilder, MapBuilder, StringArray, StringBuilder, StructArray,
    };
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Field, Fields};
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;

    fn extract_rows(name: &str, column: &ArrayRef, path: ScalarValue) -> Vec<String> {
        let rows = column.len();
        let args = vec![ColumnarValue::Array(Arc::clone(column)), ColumnarValue::Scalar(path)];
        match call_function(name, args, rows) {
            Ok(made) => (0..rows).map(|row| format_value(&made, row)).collect(),
            Err(error) => vec![error_message(error)],
        }
    }

    #[test]
    fn extraction_keeps_types_of_fields_and_items() {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("x"), Some("{\"k\":[5]}")]);
        lists.append_value([Some("y")]);
        lists.append_null();
        let lists: ArrayRef = Arc::new(lists.finish());
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let fields = Fields::from(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("l", lists.data_type().clone(), true),
        ]);
        let nulls = NullBuffer::from(vec![true, false, true]);
        let structs: ArrayRef =
            Arc::new(StructArray::new(fields, vec![numbers, Arc::clone(&lists)], Some(nulls)));
        let text = |text: &str| ScalarValue::from(text);
        let n = |number: i64| ScalarValue::from(number);
        for (name, column, path, expected) in [
            ("json_extract", &structs, text("n"), vec!["1", "NULL", "3"]),
            ("json_extract_string", &structs, text("$.n"), vec!["1", "NULL", "3"]),
            ("json_extract", &structs, text("$.l[0]"), vec!["x", "NULL", "NULL"]),
            ("json_extract_string", &structs, text("/l/1"), vec!["{\"k\":[5]}", "NULL", "NULL"]),
            ("json_extract", &structs, text("$.l[1].k[0]"), vec!["5", "NULL", "NULL"]),
            (
                "json_extract_string",
                &structs,
                text("$"),
                vec![r#"{"n":1,"l":["x","{\"k\":[5]}"]}"#, "NULL", r#"{"n":3,"l":null}"#],
            ),
            ("json_extract", &lists, n(0), vec!["x", "y", "NULL"]),
            ("json_extract", &lists, n(-2), vec!["x", "NULL", "NULL"]),
            ("json_extract", &lists, n(7), vec!["NULL", "NULL", "NULL"]),
            ("json_extract", &structs, text("m"), vec!["unknown field `m`\nfields: n, l"]),
            (
                "json_extract",
                &structs,
                n(0),
                vec![
                    "`json_extract` finds nothing by the number 0 in a STRUCT<n BIGINT, l TEXT[]>\nhint: a struct takes the name of a field: x -> 'a'",
                ],
            ),
            (
                "json_extract",
                &lists,
                text("a"),
                vec![
                    "`json_extract` finds nothing by the key `a` in a TEXT[]\nhint: a list takes numbers from 0: x -> 0",
                ],
            ),
        ] {
            assert_eq!(extract_rows(name, column, path.clone()), expected, "{name} {path}");
        }
    }

    #[test]
    fn extraction_finds_map_values_by_key() {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
        for (key, value) in [("a", "1"), ("b", "2")] {
            maps.keys().append_value(key);
            maps.values().append_value(value);
        }
        maps.append(true).unwrap();
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        assert_eq!(
            extract_rows("json_extract", &maps, ScalarValue::from("b")),
            ["2", "NULL", "NULL"]
        );
        assert_eq!(
            extract_rows("json_extract", &maps.slice(1, 2), ScalarValue::from("b")),
            ["NULL", "NULL"]
        );
        let column: ArrayRef = Arc::new(StringArray::from(vec!["b", "b", "b"]));
        let args = vec![ColumnarValue::Array(maps), ColumnarValue::Array(column)];
        assert_eq!(
            error_message(call_function("json_extract", args, 3).unwrap_err()),
            "`json_extract` of a struct, a list or a map takes a constant path\nhint: map_extract(m, key) and list[n] take what is calculated"
        );
    }
}
