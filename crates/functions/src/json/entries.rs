//! Entries of structs, maps and JSON: `struct_entries`, `struct_keys`, `json_entries`.
//!
//! An object whose keys are data, `{"users": {"ann": {…}, "bob": {…}}}`, is a struct with a field for each
//! key, or a map if it has very many. Its entries are a list, which `unnest` turns into rows; `json_each` in
//! FROM is `unnest(json_entries(x))` with a column for each field.
//!
//! All values of a list have one type. Those of a struct are cast to the [common type](common_type()) of its
//! fields, or become JSON if there is none. A struct has a null field for each key that its record lacks.
//! `struct_entries` returns all fields. `json_entries` returns those that are not null, since a map and a
//! JSON text have only the record's own keys.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewArray, StringViewBuilder, StructArray,
    UInt64Array, new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast_with_options, interleave, take};
use arrow::datatypes::{DataType, Field, Fields};
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use super::common_types::{cast_to_common, common_type};
use super::extraction::{duckdb_type_name, invalid_json_error};
use super::json_encoder::JsonEncoder;
use super::json_scanner::{JsonKind, JsonScanner, write_compact, write_unescaped};
use super::nested_paths::item_range;
use super::{JSON_SECTION, STRUCT_SECTION};
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, format_as_texts, is_text_type, list_type,
    query_error, usage_error,
};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            STRUCT_SECTION,
            &["struct_entries(s)"],
            "The fields of a struct, or the entries of a map, as a list of STRUCT(key, value); values of types without a \
             common one are JSON.",
        )
        .with_arguments(&[ArgumentKind::Any], 1)
        .with_return_type_closure(|asked| {
            let given = dictionary_value_type(asked.argument_type(0));
            match EntryTypes::from_type(given) {
                Some(types) if !is_list_type(given) && !is_text_type(given) => Ok(types.list_type(false)),
                _ => Err(usage_error(
                    format!(
                        "`{}` takes a struct or a map, and this is a {}",
                        asked.function_name(),
                        sql_type_name(given)
                    ),
                    "json_entries(x) takes JSON in a TEXT, and lists",
                )),
            }
        })
        .into_udf(|call| {
            let values = decode_dictionary_argument(call)?;
            match values.data_type() {
                DataType::Struct(_) => struct_entries(&values, &EntryListBuilder::new(false), false),
                _ => map_entries(&values, &EntryListBuilder::new(false), false),
            }
        }),
        ClosureFunction::new(STRUCT_SECTION, &["struct_keys(s)"], "The names of a struct's fields, or the keys of a map, as a list.")
            .with_arguments(&[ArgumentKind::Any], 1)
            .with_return_type_closure(|asked| match dictionary_value_type(asked.argument_type(0)) {
                DataType::Struct(_) => Ok(list_type(DataType::Utf8View)),
                map @ DataType::Map(..) => match EntryTypes::from_type(map) {
                    Some(types) => Ok(list_type(types.key)),
                    None => Ok(list_type(DataType::Utf8View)),
                },
                DataType::Null => Ok(list_type(DataType::Utf8View)),
                other => Err(usage_error(
                    format!("`{}` takes a struct or a map, and this is a {}", asked.function_name(), sql_type_name(other)),
                    "json_keys(x) takes JSON in a TEXT",
                )),
            })
            .into_udf(|call| {
                let values = decode_dictionary_argument(call)?;
                let entries = match values.data_type() {
                    DataType::Struct(_) => struct_entries(&values, &EntryListBuilder::new(false), false)?,
                    _ => map_entries(&values, &EntryListBuilder::new(false), false)?,
                };
                let entries = entries.as_list::<i32>();
                let keys = Arc::clone(entries.values().as_struct().column(0));
                let item = Arc::new(Field::new_list_field(keys.data_type().clone(), true));
                let (offsets, nulls) = (entries.offsets().clone(), entries.nulls().cloned());
                Ok(Arc::new(ListArray::try_new(item, offsets, keys, nulls)?))
            }),
        ClosureFunction::new(
            JSON_SECTION,
            &["json_entries(x)"],
            "The entries of a JSON object or array, a map, a list, or the fields of a struct that are not null, as a list of \
             STRUCT(key, value, type). `FROM t, json_each(t.x)` makes rows of them.",
        )
        .with_arguments(&[ArgumentKind::Any], 1)
        .with_return_type_closure(|asked| {
            let given = dictionary_value_type(asked.argument_type(0));
            match EntryTypes::from_type(given) {
                Some(types) => Ok(types.list_type(true)),
                None => Err(usage_error(
                    format!(
                        "`{}` takes JSON in a TEXT, a struct, a map or a list, and this is a {}",
                        asked.function_name(),
                        sql_type_name(given)
                    ),
                    "to_json(x) makes JSON of any value",
                )),
            }
        })
        .into_udf(|call| {
            let values = decode_dictionary_argument(call)?;
            let lists = EntryListBuilder::new(true);
            match values.data_type() {
                DataType::Struct(_) => struct_entries(&values, &lists, true),
                DataType::Map(..) => map_entries(&values, &lists, true),
                list if is_list_type(list) => list_entries(&values, &lists),
                _ => json_entries(call, &lists),
            }
        }),
    ]
}

/// Returns the value type of a dictionary, and any other type unchanged.
fn dictionary_value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

fn decode_dictionary_argument(call: &CallBatch) -> PlanResult<ArrayRef> {
    let column = call.argument_column(0)?;
    match column.data_type() {
        DataType::Dictionary(_, values) => {
            Ok(cast_with_options(&column, values, &STRICT_CAST_OPTIONS)?)
        }
        _ => Ok(column),
    }
}

fn is_list_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

/// The types of the keys and values of entries.
struct EntryTypes {
    key: DataType,
    value: DataType,
    /// True if values become JSON in a TEXT.
    is_json: bool,
}

impl EntryTypes {
    /// Returns the types of the entries of a type, if it has entries.
    fn from_type(data_type: &DataType) -> Option<Self> {
        let typed = |value: DataType| EntryTypes { key: DataType::Utf8View, value, is_json: false };
        let json =
            || EntryTypes { key: DataType::Utf8View, value: DataType::Utf8View, is_json: true };
        Some(match data_type {
            DataType::Struct(fields) => {
                let mut types = fields.iter().map(|field| field.data_type());
                let common = match types.next() {
                    Some(first) => types
                        .try_fold(dictionary_value_type(first).clone(), |common, other| {
                            common_type(&common, dictionary_value_type(other))
                        }),
                    None => Some(DataType::Utf8View),
                };
                match common {
                    Some(DataType::Null) => typed(DataType::Utf8View),
                    Some(common) => typed(common),
                    None => json(),
                }
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) => match pair.iter().collect::<Vec<_>>().as_slice() {
                    [key, value] => EntryTypes {
                        key: key.data_type().clone(),
                        ..typed(value.data_type().clone())
                    },
                    _ => return None,
                },
                _ => return None,
            },
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                typed(item.data_type().clone())
            }
            DataType::Null => json(),
            text if is_text_type(text) => json(),
            _ => return None,
        })
    }

    /// Returns the type of a list of entries. With `is_typed`, entries have the type of each value, and keys
    /// are texts.
    fn list_type(&self, is_typed: bool) -> DataType {
        let key = if is_typed { DataType::Utf8View } else { self.key.clone() };
        list_type(DataType::Struct(entry_fields(key, self.value.clone(), is_typed)))
    }
}

fn entry_fields(key: DataType, value: DataType, is_typed: bool) -> Fields {
    let mut fields = vec![Field::new("key", key, true), Field::new("value", value, true)];
    if is_typed {
        fields.push(Field::new("type", DataType::Utf8View, true));
    }
    Fields::from(fields)
}

/// A builder of lists of entries.
struct EntryListBuilder {
    /// True if each entry has a field for the type of its value.
    is_typed: bool,
}

impl EntryListBuilder {
    fn new(is_typed: bool) -> Self {
        EntryListBuilder { is_typed }
    }

    /// Returns the lists whose entries are consecutive in `keys` and `values`.
    fn finish(
        &self,
        keys: ArrayRef,
        values: ArrayRef,
        is_json: bool,
        lengths: &[usize],
        nulls: Option<NullBuffer>,
    ) -> PlanResult<ArrayRef> {
        check_entry_count(lengths.iter().sum())?;
        let mut columns = vec![keys, values];
        if self.is_typed {
            let types = json_type_names(&columns[1], is_json)?;
            columns.push(Arc::new(types));
        }
        let (key, value) = (columns[0].data_type().clone(), columns[1].data_type().clone());
        let fields = entry_fields(key, value, self.is_typed);
        let entries = StructArray::try_new(fields, columns, None)?;
        let item = Arc::new(Field::new_list_field(entries.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(entries), nulls)?))
    }
}

/// Fails if a batch has more entries than a 32-bit Arrow offset can count.
fn check_entry_count(entries: usize) -> PlanResult<()> {
    match i32::try_from(entries) {
        Ok(_) => Ok(()),
        Err(_) => Err(query_error(
            format!(
                "the objects of these rows have {entries} entries, and a list of a batch has at most 2147483647"
            ),
            "a condition leaves rows out: WHERE octet_length(x) < 1000000",
        )),
    }
}

/// Returns DuckDB's name for the JSON type of each value.
fn json_type_names(values: &ArrayRef, is_json: bool) -> PlanResult<StringViewArray> {
    let constant = match values.data_type() {
        _ if is_json => None,
        text if is_text_type(text) => Some("VARCHAR"),
        list if is_list_type(list) => Some("ARRAY"),
        DataType::Map(..) => Some("OBJECT"),
        _ => None,
    };
    let mut made = StringViewBuilder::with_capacity(values.len());
    if let Some(constant) = constant {
        for row in 0..values.len() {
            made.try_append_value(if values.is_null(row) { "NULL" } else { constant })?;
        }
        return Ok(made.finish());
    }
    if is_json {
        let texts = format_as_texts(values)?;
        for text in &texts {
            made.try_append_value(text.map_or("NULL", duckdb_type_name))?;
        }
        return Ok(made.finish());
    }
    let encoder = JsonEncoder::from_array(values)?;
    let mut text = String::new();
    for row in 0..values.len() {
        text.clear();
        encoder.write_value(row, &mut text);
        made.try_append_value(if values.is_null(row) { "NULL" } else { duckdb_type_name(&text) })?;
    }
    Ok(made.finish())
}

/// Encodes values as JSON.
fn encode_as_json(values: &ArrayRef) -> PlanResult<ArrayRef> {
    let encoder = JsonEncoder::from_array(values)?;
    let mut made = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) || values.data_type().is_null() {
            made.append_null();
            continue;
        }
        text.clear();
        encoder.write_value(row, &mut text);
        made.try_append_value(&text)?;
    }
    Ok(Arc::new(made.finish()))
}

/// Returns the fields of structs as entries; `without_nulls` leaves out null fields.
fn struct_entries(
    values: &ArrayRef,
    lists: &EntryListBuilder,
    without_nulls: bool,
) -> PlanResult<ArrayRef> {
    let Some(types) = EntryTypes::from_type(values.data_type()) else {
        return no_entries_error(values);
    };
    let structs = values.as_struct();
    let columns = structs.columns().iter().map(|column| match types.is_json {
        true => encode_as_json(column),
        false => cast_to_common(column, &types.value),
    });
    let columns = columns.collect::<PlanResult<Vec<_>>>()?;
    let logical: Vec<Option<NullBuffer>> = columns.iter().map(|c| c.logical_nulls()).collect();
    let is_null =
        |field: usize, row: usize| logical[field].as_ref().is_some_and(|nulls| nulls.is_null(row));
    check_entry_count(columns.len().saturating_mul(structs.len()))?;
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(structs.len());
    for row in 0..structs.len() {
        let before = places.len();
        if structs.is_valid(row) {
            let fields = 0..columns.len();
            let fields = fields.filter(|field| !without_nulls || !is_null(*field, row));
            places.extend(fields.map(|field| (field, row)));
        }
        lengths.push(places.len() - before);
    }
    let names: Vec<&str> = structs.column_names();
    let names = StringViewArray::from_iter_values(names);
    let of_names: UInt64Array = places.iter().map(|(field, _)| Some(*field as u64)).collect();
    let keys = take(&names, &of_names, None)?;
    let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
    let values = match places.is_empty() {
        true => new_empty_array(&types.value),
        false => interleave(&columns, &places)?,
    };
    lists.finish(keys, values, types.is_json, &lengths, structs.nulls().cloned())
}

/// Returns the entries of maps; `has_text_keys` converts keys to text.
fn map_entries(
    values: &ArrayRef,
    lists: &EntryListBuilder,
    has_text_keys: bool,
) -> PlanResult<ArrayRef> {
    if values.data_type().is_null() {
        let types =
            EntryTypes { key: DataType::Utf8View, value: DataType::Utf8View, is_json: true };
        return Ok(arrow::array::new_null_array(&types.list_type(lists.is_typed), values.len()));
    }
    let maps = values.as_map();
    let (places, lengths) = item_indices(maps.value_offsets(), maps.len(), maps.nulls());
    let keys: ArrayRef = match has_text_keys {
        true => Arc::new(format_as_texts(maps.keys())?),
        false => Arc::clone(maps.keys()),
    };
    let keys = take(&keys, &places, None)?;
    let values = take(maps.values(), &places, None)?;
    lists.finish(keys, values, false, &lengths, maps.nulls().cloned())
}

/// Returns the items of lists as entries, whose keys are their positions from 0.
fn list_entries(values: &ArrayRef, lists: &EntryListBuilder) -> PlanResult<ArrayRef> {
    let Some(types) = EntryTypes::from_type(values.data_type()) else {
        return no_entries_error(values);
    };
    let item = Arc::new(Field::new_list_field(types.value, true));
    let all = cast_with_options(values, &DataType::LargeList(item), &STRICT_CAST_OPTIONS)?;
    let all = all.as_list::<i64>();
    let (places, lengths) = item_indices(all.value_offsets(), all.len(), all.nulls());
    let mut keys = StringViewBuilder::with_capacity(places.len());
    for key in lengths.iter().flat_map(|length| 0..*length) {
        keys.try_append_value(key.to_string())?;
    }
    let values = take(all.values(), &places, None)?;
    lists.finish(Arc::new(keys.finish()), values, false, &lengths, all.nulls().cloned())
}

/// Returns the indices of the items of all rows that are not null, and the number of items in each row.
fn item_indices<O: Copy + TryInto<usize>>(
    offsets: &[O],
    rows: usize,
    nulls: Option<&NullBuffer>,
) -> (UInt64Array, Vec<usize>) {
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(rows);
    for row in 0..rows {
        let is_valid = nulls.is_none_or(|nulls| nulls.is_valid(row));
        let range = item_range(offsets, row).filter(|_| is_valid).unwrap_or(0..0);
        lengths.push(range.len());
        places.extend(range.map(|place| place as u64));
    }
    (UInt64Array::from(places), lengths)
}

/// Returns the members of objects and the items of arrays in texts; any other value is one entry without a
/// key.
fn json_entries(call: &CallBatch, lists: &EntryListBuilder) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let mut scanner = JsonScanner::default();
    let (mut keys, mut values) = (StringViewBuilder::new(), StringViewBuilder::new());
    let mut lengths = Vec::with_capacity(call.row_count());
    let mut valid = Vec::with_capacity(call.row_count());
    let (mut key, mut value) = (String::new(), String::new());
    let mut entries = 0usize;
    for row in 0..call.row_count() {
        let text = texts.get(row);
        valid.push(text.is_some());
        let mut length = 0;
        if let Some(text) = text {
            let whole =
                scanner.scan_whole(text).map_err(|error| invalid_json_error(text, error))?;
            let mut done = Ok(());
            let mut add = |own: Option<&str>, of: &str| {
                length += 1;
                value.clear();
                write_compact(of, &mut value);
                if done.is_ok() {
                    match own {
                        Some(own) => done = keys.try_append_value(own),
                        None => keys.append_null(),
                    }
                }
                if done.is_ok() {
                    done = values.try_append_value(&value);
                }
            };
            let scanned = match JsonKind::from_value(whole) {
                JsonKind::Object => scanner.for_each_member(whole, |own, of| {
                    key.clear();
                    write_unescaped(own, &mut key);
                    add(Some(&key), of);
                }),
                JsonKind::Array => {
                    let mut place = 0usize;
                    scanner.for_each_item(whole, |of| {
                        add(Some(&place.to_string()), of);
                        place += 1;
                    })
                }
                _ => {
                    add(None, whole);
                    Ok(())
                }
            };
            scanned.map_err(|error| invalid_json_error(text, error))?;
            done?;
        }
        entries += length;
        check_entry_count(entries)?;
        lengths.push(length);
    }
    let (keys, values) = (Arc::new(keys.finish()), Arc::new(values.finish()));
    lists.finish(keys, values, true, &lengths, Some(NullBuffer::from(valid)))
}

fn no_entries_error(values: &ArrayRef) -> PlanResult<ArrayRef> {
    Err(query_error(
        format!("a {} has no entries", sql_type_name(values.data_type())),
        "to_json(x) makes JSON of any value",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{call_function, error_message, format_value};
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use datafusion_expr::ColumnarValue;

    fn structs(fields: Vec<(&str, ArrayRef)>, nulls: Option<Vec<bool>>) -> ArrayRef {
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = fields
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
            .unzip();
        let nulls = nulls.map(NullBuffer::from);
        Arc::new(StructArray::try_new(Fields::from(fields), columns, nulls).unwrap())
    }

    fn integers(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    fn check(name: &str, column: &ArrayRef, expected: &[&str]) {
        let rows = column.len();
        let found = match call_function(name, vec![ColumnarValue::Array(Arc::clone(column))], rows)
        {
            Ok(made) => (0..rows).map(|row| format_value(&made, row)).collect(),
            Err(error) => vec![error_message(error)],
        };
        assert_eq!(found, expected, "{name} of {}", column.data_type());
    }

    #[test]
    fn entries_of_structs_share_one_type() {
        let of_integers = structs(
            vec![
                ("ann", integers(vec![Some(1), None, Some(3)])),
                ("bob", integers(vec![None, None, Some(4)])),
            ],
            Some(vec![true, true, false]),
        );
        check(
            "struct_entries",
            &of_integers,
            &[
                "[{key: ann, value: 1}, {key: bob, value: }]",
                "[{key: ann, value: }, {key: bob, value: }]",
                "NULL",
            ],
        );
        check(
            "json_entries",
            &of_integers,
            &["[{key: ann, value: 1, type: UBIGINT}]", "[]", "NULL"],
        );
        check("struct_keys", &of_integers, &["[ann, bob]", "[ann, bob]", "NULL"]);
        let of_numbers = structs(
            vec![("a", integers(vec![Some(-1)])), ("b", Arc::new(Float64Array::from(vec![1.5])))],
            None,
        );
        check(
            "json_entries",
            &of_numbers,
            &["[{key: a, value: -1.0, type: DOUBLE}, {key: b, value: 1.5, type: DOUBLE}]"],
        );
        let mixed = structs(
            vec![("a", integers(vec![Some(1)])), ("b", Arc::new(StringArray::from(vec!["x"])))],
            None,
        );
        check(
            "json_entries",
            &mixed,
            &[r#"[{key: a, value: 1, type: UBIGINT}, {key: b, value: "x", type: VARCHAR}]"#],
        );
        check("struct_entries", &mixed, &[r#"[{key: a, value: 1}, {key: b, value: "x"}]"#]);
        check(
            "struct_entries",
            &integers(vec![Some(1)]),
            &[
                "`struct_entries` takes a struct or a map, and this is a BIGINT\nhint: json_entries(x) takes JSON in a TEXT, and lists",
            ],
        );
    }

    #[test]
    fn struct_values_are_merged_to_the_union_of_fields() {
        let ann = structs(vec![("age", integers(vec![Some(3)]))], None);
        let bob = structs(
            vec![
                ("age", integers(vec![Some(4)])),
                ("city", Arc::new(StringArray::from(vec!["Ulm"]))),
            ],
            None,
        );
        check(
            "json_entries",
            &structs(vec![("ann", ann), ("bob", bob)], None),
            &[
                "[{key: ann, value: {age: 3, city: }, type: OBJECT}, {key: bob, value: {age: 4, city: Ulm}, type: OBJECT}]",
            ],
        );
    }

    #[test]
    fn json_entries_keep_values_as_written() {
        let column: ArrayRef = Arc::new(StringArray::from(vec![
            Some(r#"{"a": {"b": [1, 2]}, "caf\u00e9": null, "a": -2}"#),
            Some("[true, 1.5]"),
            Some("7"),
            Some("{}"),
            None,
        ]));
        check(
            "json_entries",
            &column,
            &[
                r#"[{key: a, value: {"b":[1,2]}, type: OBJECT}, {key: café, value: null, type: NULL}, {key: a, value: -2, type: BIGINT}]"#,
                "[{key: 0, value: true, type: BOOLEAN}, {key: 1, value: 1.5, type: DOUBLE}]",
                "[{key: , value: 7, type: UBIGINT}]",
                "[]",
                "NULL",
            ],
        );
        let column: ArrayRef = Arc::new(StringArray::from(vec![r#"{"a":"#]));
        let rows = vec![ColumnarValue::Array(column)];
        let error = error_message(call_function("json_entries", rows, 1).unwrap_err());
        assert!(error.contains(r#"`{"a":` is no JSON"#), "{error}");
    }
}
