//! Casts between TEXT and lists, structs and maps in DuckDB's spelling, and casts of structs to maps.
//!
//! Arrow writes a list without quotes and a null as nothing, so that `[NULL]` and `['']` have the same text. It
//! casts a text to a list of that one text instead of parsing it. Here `CAST(list AS TEXT)` writes
//! `[a, NULL, '', 'b, c']`, a struct as `{'a': 1, 'b': x}` and a map as `{k=1}`, and `CAST(text AS T[])` parses
//! it: [`nested_text`](crate::nested_text) has the grammar.
//!
//! The leaf values of a text are cast from texts. A field that the text lacks is null; one that the struct lacks is
//! an error. Under TRY_CAST a malformed text is null, and so is a leaf value that does not fit its type.
//!
//! Cost: one pass over the text for each level of nesting.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StringViewArray, StringViewBuilder, StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options, interleave, take};
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::util::display::FormatOptions;
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;

use crate::lenient_text_casts::{TextSpelling, complete_texts};
use crate::nested_text::{
    NestedPartText, StructMembers, quote_text, split_list, split_map_text, split_struct,
    write_leaf_value,
};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::plan_rewriting::invoke_unary_function;

/// Returns whether a cast of `from` to `to` is implemented here.
pub(crate) fn is_nested_cast(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (from, to) if to.is_string() => is_nested(from),
        (DataType::Struct(_), DataType::Map(_, _)) => true,
        (from, to) => is_text(from) && is_nested(to),
    }
}

/// Returns the cast of `value` as a function.
pub(crate) fn nested_cast(value: Expr, to: DataType, is_tried: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Arc::new(ScalarUDF::from(NestedCast { to, is_try_cast: is_tried, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
}

fn is_nested(data_type: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    matches!(data_type, List(_) | LargeList(_) | FixedSizeList(_, _) | Struct(_) | Map(_, _))
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        other => other.is_string(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NestedCast {
    to: DataType,
    is_try_cast: bool,
    signature: Signature,
}

impl ScalarUDFImpl for NestedCast {
    fn name(&self) -> &str {
        if self.is_try_cast { "try_nested_cast" } else { "nested_cast" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.to.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| cast_nested(array, &self.to, self.is_try_cast))
    }
}

/// Casts a nested array, or any other array by Arrow's cast.
fn cast_nested(array: &ArrayRef, to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
    if !is_nested_cast(array.data_type(), to) {
        return cast(array, to, is_tried);
    }
    match to {
        to if to.is_string() => write_texts(array, to, is_tried),
        to if !is_text(array.data_type()) => struct_to_maps(array, to, is_tried),
        _ => {
            let texts = cast(array, &DataType::Utf8View, false)?;
            let texts = texts.as_string_view().iter();
            let texts = texts.map(|text| text.map(Cow::Borrowed)).collect();
            read_values(texts, to, is_tried)
        }
    }
}

fn cast(array: &ArrayRef, to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
    let options = CastOptions { safe: is_tried, format_options: FormatOptions::new() };
    Ok(cast_with_options(array, to, &options)?)
}

/// Converts structs to maps from field names to values.
fn struct_to_maps(array: &ArrayRef, to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
    let (Some((pair, _)), Some(structs)) = (map_entry_fields(to), array.as_struct_opt()) else {
        return exec_err!("a {} is no struct", array.data_type());
    };
    let columns = structs.columns().iter();
    let columns = columns.map(|values| cast_nested(values, pair[1].data_type(), is_tried));
    let columns = columns.collect::<PlanResult<Vec<_>>>()?;
    let names: StringViewArray =
        structs.fields().iter().map(|field| Some(field.name().as_str())).collect();
    let names = cast(&(Arc::new(names) as ArrayRef), pair[0].data_type(), is_tried)?;
    let (mut places, mut name_places, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..structs.len() {
        let start = places.len();
        if !structs.is_null(row) {
            places.extend((0..columns.len()).map(|column| (column, row)));
            name_places.extend((0..columns.len()).map(|column| (0, column)));
        }
        ranges.push((!structs.is_null(row)).then_some(start..places.len()));
    }
    let keys = interleave(&[names.as_ref()], &name_places)?;
    let values: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
    let values = interleave(&values, &places)?;
    build_maps(ranges, &keys, &values, to, is_tried)
}

/// Returns the key and value fields of a map type, and whether its entries are sorted.
fn map_entry_fields(to: &DataType) -> Option<(&Fields, bool)> {
    match to {
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => Some((pair, *sorted)),
            _ => None,
        },
        _ => None,
    }
}

/// Builds maps of entries; each row that is not null has a range of them. A map with a null key or a duplicate key is
/// an error, or null in a TRY_CAST.
fn build_maps(
    ranges: Vec<Option<Range<usize>>>,
    keys: &ArrayRef,
    values: &ArrayRef,
    to: &DataType,
    is_tried: bool,
) -> PlanResult<ArrayRef> {
    let (DataType::Map(entries, sorted), Some((pair, _))) = (to, map_entry_fields(to)) else {
        return exec_err!("{to} is no map");
    };
    let texts = NestedTexts::from_array(keys, is_tried)?;
    let (mut kept, mut kept_ranges) = (Vec::new(), Vec::with_capacity(ranges.len()));
    let mut valid = Vec::with_capacity(ranges.len());
    for range in ranges {
        let start = kept.len();
        let mut seen = HashSet::new();
        let mut is_map = range.is_some();
        for entry in range.into_iter().flatten() {
            let mut key = String::new();
            texts.write(entry, &mut key);
            if keys.is_null(entry) || seen.contains(&key) {
                if !is_tried {
                    return Err(into_datafusion_error(Error::usage_with_hint(
                        format!(
                            "a map has a value for each key, and `{key}` comes twice or is null"
                        ),
                        "TRY_CAST gives NULL for what is no map",
                    )));
                }
                is_map = false;
                break;
            }
            seen.insert(key);
            kept.push(entry as u64);
        }
        if !is_map {
            kept.truncate(start);
        }
        valid.push(is_map);
        kept_ranges.push(start..kept.len());
    }
    let kept = UInt64Array::from(kept);
    let columns = vec![take(keys, &kept, None)?, take(values, &kept, None)?];
    let pairs = StructArray::try_new(pair.clone(), columns, None)?;
    let nulls = Some(NullBuffer::from(valid));
    Ok(Arc::new(MapArray::try_new(
        entries.clone(),
        offsets_from_ranges(&kept_ranges),
        pairs,
        nulls,
        *sorted,
    )?))
}

/// Returns the texts of nested values.
fn write_texts(array: &ArrayRef, to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
    let values = NestedTexts::from_array(array, is_tried)?;
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        values.write(row, &mut text);
        texts.append_value(&text);
    }
    let texts: ArrayRef = Arc::new(texts.finish());
    cast(&texts, to, false)
}

/// Nested values with texts as leaves.
enum NestedTexts {
    Leaf(StringViewArray),
    List {
        ranges: Vec<Range<usize>>,
        items: Box<NestedTexts>,
        nulls: Option<NullBuffer>,
    },
    Struct {
        parts: Vec<(String, NestedTexts)>,
        nulls: Option<NullBuffer>,
    },
    Map {
        ranges: Vec<Range<usize>>,
        keys: Box<NestedTexts>,
        values: Box<NestedTexts>,
        nulls: Option<NullBuffer>,
    },
}

impl NestedTexts {
    fn from_array(array: &ArrayRef, is_tried: bool) -> PlanResult<Self> {
        let list = |ranges, items: &ArrayRef, nulls: Option<&NullBuffer>| -> PlanResult<Self> {
            let items = Box::new(NestedTexts::from_array(items, is_tried)?);
            Ok(NestedTexts::List { ranges, items, nulls: nulls.cloned() })
        };
        Ok(match array.data_type() {
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                list(offset_ranges(lists.offsets()), lists.values(), lists.nulls())?
            }
            DataType::LargeList(_) => {
                let lists = array.as_list::<i64>();
                list(offset_ranges(lists.offsets()), lists.values(), lists.nulls())?
            }
            DataType::FixedSizeList(_, size) => {
                let lists = array.as_fixed_size_list();
                let size = usize::try_from(*size).unwrap_or_default();
                let ranges = (0..lists.len()).map(|row| row * size..(row + 1) * size).collect();
                list(ranges, lists.values(), lists.nulls())?
            }
            DataType::Struct(fields) => {
                let structs = array.as_struct();
                let part = |(field, values): (&FieldRef, &ArrayRef)| -> PlanResult<(String, Self)> {
                    Ok((quote_text(field.name()), NestedTexts::from_array(values, is_tried)?))
                };
                let parts = fields.iter().zip(structs.columns()).map(part);
                NestedTexts::Struct {
                    parts: parts.collect::<PlanResult<_>>()?,
                    nulls: structs.nulls().cloned(),
                }
            }
            DataType::Map(_, _) => {
                let maps = array.as_map();
                NestedTexts::Map {
                    ranges: offset_ranges(maps.offsets()),
                    keys: Box::new(NestedTexts::from_array(maps.keys(), is_tried)?),
                    values: Box::new(NestedTexts::from_array(maps.values(), is_tried)?),
                    nulls: maps.nulls().cloned(),
                }
            }
            // Arrow cannot cast it to text directly.
            DataType::FixedSizeBinary(_) => {
                let bytes = cast(array, &DataType::BinaryView, false)?;
                NestedTexts::Leaf(
                    cast(&bytes, &DataType::Utf8View, is_tried)?.as_string_view().clone(),
                )
            }
            _ => NestedTexts::Leaf(
                cast(array, &DataType::Utf8View, is_tried)?.as_string_view().clone(),
            ),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            NestedTexts::Leaf(texts) => texts.is_null(row),
            NestedTexts::List { nulls, .. }
            | NestedTexts::Struct { nulls, .. }
            | NestedTexts::Map { nulls, .. } => {
                nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            }
        }
    }

    fn write(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            out.push_str("NULL");
            return;
        }
        let mut separator = "";
        let mut separate = |out: &mut String| {
            out.push_str(separator);
            separator = ", ";
        };
        match self {
            NestedTexts::Leaf(texts) => write_leaf_value(texts.value(row), out),
            NestedTexts::List { ranges, items, .. } => {
                out.push('[');
                for item in ranges[row].clone() {
                    separate(out);
                    items.write(item, out);
                }
                out.push(']');
            }
            NestedTexts::Struct { parts, .. } => {
                out.push('{');
                for (name, values) in parts {
                    separate(out);
                    _ = write!(out, "{name}: ");
                    values.write(row, out);
                }
                out.push('}');
            }
            NestedTexts::Map { ranges, keys, values, .. } => {
                out.push('{');
                for entry in ranges[row].clone() {
                    separate(out);
                    keys.write(entry, out);
                    out.push('=');
                    values.write(entry, out);
                }
                out.push('}');
            }
        }
    }
}

fn offset_ranges<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<Range<usize>> {
    offsets.windows(2).map(|pair| pair[0].as_usize()..pair[1].as_usize()).collect()
}

/// Parses texts as values of a type.
fn read_values(
    texts: Vec<Option<Cow<'_, str>>>,
    to: &DataType,
    is_tried: bool,
) -> PlanResult<ArrayRef> {
    let field_of = |field: &FieldRef| field.data_type().clone();
    match to {
        DataType::List(item) => {
            let (ranges, items, nulls) = read_lists(&texts, to, None, is_tried)?;
            let items = read_values(items, &field_of(item), is_tried)?;
            let lists = GenericListArray::<i32>::try_new(
                item.clone(),
                offsets_from_ranges(&ranges),
                items,
                nulls,
            )?;
            Ok(Arc::new(lists))
        }
        DataType::LargeList(item) => {
            let (ranges, items, nulls) = read_lists(&texts, to, None, is_tried)?;
            let items = read_values(items, &field_of(item), is_tried)?;
            let lists = GenericListArray::<i64>::try_new(
                item.clone(),
                offsets_from_ranges(&ranges),
                items,
                nulls,
            )?;
            Ok(Arc::new(lists))
        }
        DataType::FixedSizeList(item, size) => {
            let count = usize::try_from(*size).unwrap_or_default();
            let (_, items, nulls) = read_lists(&texts, to, Some(count), is_tried)?;
            let items = read_values(items, &field_of(item), is_tried)?;
            Ok(Arc::new(FixedSizeListArray::try_new(item.clone(), *size, items, nulls)?))
        }
        DataType::Struct(fields) => {
            let mut columns = vec![Vec::with_capacity(texts.len()); fields.len()];
            let mut valid = Vec::with_capacity(texts.len());
            for text in &texts {
                let members = text.as_deref().and_then(|text| split_struct(text).ok());
                match members.and_then(|members| struct_field_values(members, fields)) {
                    Some(values) => {
                        let values = columns.iter_mut().zip(values);
                        values.for_each(|(column, value)| column.push(value));
                        valid.push(true);
                    }
                    None => {
                        reject_text(text.as_deref(), to, is_tried)?;
                        columns.iter_mut().for_each(|column| column.push(None));
                        valid.push(false);
                    }
                }
            }
            let columns = columns.into_iter().zip(fields).map(|(values, field)| {
                let values = values.into_iter().map(|value| value.map(Cow::Owned)).collect();
                read_values(values, field.data_type(), is_tried)
            });
            let columns = columns.collect::<PlanResult<Vec<_>>>()?;
            let nulls = Some(NullBuffer::from(valid));
            Ok(Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                nulls,
                texts.len(),
            )?))
        }
        DataType::Map(_, _) => {
            let Some((pair, _)) = map_entry_fields(to) else { return exec_err!("{to} is no map") };
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            let mut ranges = Vec::with_capacity(texts.len());
            for text in &texts {
                let start = keys.len();
                let entries = text.as_deref().and_then(|text| split_map_text(text).ok());
                if entries.is_none() {
                    reject_text(text.as_deref(), to, is_tried)?;
                }
                let is_map = entries.is_some();
                for (key, value) in entries.into_iter().flatten() {
                    keys.push(Some(Cow::Owned(key)));
                    values.push(value.map(Cow::Owned));
                }
                ranges.push(is_map.then_some(start..keys.len()));
            }
            let keys = read_values(keys, pair[0].data_type(), is_tried)?;
            let values = read_values(values, pair[1].data_type(), is_tried)?;
            build_maps(ranges, &keys, &values, to, is_tried)
        }
        single => {
            let texts: ArrayRef =
                Arc::new(texts.iter().map(Option::as_deref).collect::<StringViewArray>());
            match TextSpelling::for_cast_target(single) {
                Some(spelling) => cast(&complete_texts(&texts, spelling)?, single, is_tried),
                None => cast(&texts, single, is_tried),
            }
        }
    }
}

type ListTexts = (Vec<Range<usize>>, Vec<Option<Cow<'static, str>>>, Option<NullBuffer>);

/// Parses lists: returns the ranges of their items, the items' texts, and the null lists. With `count`, each list must
/// have that many items, and a null list takes that many places.
fn read_lists(
    texts: &[Option<Cow<'_, str>>],
    to: &DataType,
    count: Option<usize>,
    is_tried: bool,
) -> PlanResult<ListTexts> {
    let (mut items, mut ranges, mut valid) =
        (Vec::new(), Vec::with_capacity(texts.len()), Vec::new());
    for text in texts {
        let start = items.len();
        let found = text.as_deref().and_then(|text| split_list(text).ok());
        let found = found.filter(|found| count.is_none_or(|count| found.len() == count));
        valid.push(found.is_some());
        match found {
            Some(found) => items.extend(found.into_iter().map(|item| item.map(Cow::Owned))),
            None => {
                reject_text(text.as_deref(), to, is_tried)?;
                items.extend(std::iter::repeat_n(None, count.unwrap_or_default()));
            }
        }
        ranges.push(start..items.len());
    }
    Ok((ranges, items, Some(NullBuffer::from(valid))))
}

fn offsets_from_ranges<O: OffsetSizeTrait>(ranges: &[Range<usize>]) -> OffsetBuffer<O> {
    OffsetBuffer::from_lengths(ranges.iter().map(ExactSizeIterator::len))
}

/// Rejects a text that is not a value of the type.
fn reject_text(text: Option<&str>, to: &DataType, is_tried: bool) -> PlanResult<()> {
    match text {
        Some(text) if !is_tried => Err(into_datafusion_error(Error::Cast {
            value: text.to_owned(),
            to: sql_type_name(to),
            cast: None,
            hint: None,
        })),
        _ => Ok(()),
    }
}

/// Returns the values of a struct's fields, or `None` if a member has no field or a field two members.
fn struct_field_values(members: StructMembers, fields: &Fields) -> Option<Vec<NestedPartText>> {
    let mut values = vec![None; fields.len()];
    let mut is_set = vec![false; fields.len()];
    let places = match members {
        StructMembers::Positional(parts) => parts.into_iter().enumerate().collect::<Vec<_>>(),
        StructMembers::Named(members) => {
            let placed =
                |(name, part): (String, NestedPartText)| Some((field_index(&name, fields)?, part));
            members.into_iter().map(placed).collect::<Option<Vec<_>>>()?
        }
    };
    for (place, part) in places {
        if std::mem::replace(is_set.get_mut(place)?, true) {
            return None;
        }
        *values.get_mut(place)? = part;
    }
    Some(values)
}

/// Returns the index of the field with a name; an exact match takes precedence over one that ignores case.
fn field_index(name: &str, fields: &Fields) -> Option<usize> {
    let exact = fields.iter().position(|field| field.name() == name);
    let is_same = |field: &FieldRef| field.name().to_lowercase() == name.to_lowercase();
    exact.or_else(|| fields.iter().position(is_same))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use proptest::prelude::*;

    use super::*;

    fn read(texts: &[&str], to: &DataType, is_tried: bool) -> PlanResult<ArrayRef> {
        read_values(texts.iter().map(|text| Some(Cow::Borrowed(*text))).collect(), to, is_tried)
    }

    fn written(array: &ArrayRef) -> Vec<Option<String>> {
        let texts = write_texts(array, &DataType::Utf8View, false).unwrap();
        texts.as_string_view().iter().map(|text| text.map(str::to_owned)).collect()
    }

    fn list_of(item: DataType) -> DataType {
        DataType::List(Arc::new(Field::new("item", item, true)))
    }

    fn map_of(value: DataType) -> DataType {
        let pair = Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", value, true),
        ]);
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false)
    }

    fn point() -> DataType {
        let fields =
            vec![Field::new("a", DataType::Int64, true), Field::new("B c", DataType::Utf8, true)];
        DataType::Struct(fields.into())
    }

    #[test]
    fn nested_texts_are_read_and_written() {
        for (text, to, expected) in [
            ("[1, 2,3 ]", list_of(DataType::Int64), "[1, 2, 3]"),
            (" [] ", list_of(DataType::Int64), "[]"),
            ("{1,NULL,3}", list_of(DataType::Int64), "[1, NULL, 3]"),
            ("{{\"a,b\",c},{}}", list_of(list_of(DataType::Utf8)), "[['a,b', c], []]"),
            ("[ ]", list_of(DataType::Utf8), "[]"),
            (
                "[NULL, '', null, 'null', a b]",
                list_of(DataType::Utf8),
                "[NULL, '', NULL, 'null', a b]",
            ),
            (
                "[\"a\\n\\u00e9\", \"b\\\"c\", 'd\\'\\\\']",
                list_of(DataType::Utf8),
                "[a\né, 'b\"c', 'd\\'\\\\']",
            ),
            ("[a,,b]", list_of(DataType::Utf8), "[a, '', b]"),
            ("[it\\'s, ok]", list_of(DataType::Utf8), "['it\\'s', ok]"),
            ("[a\\, b\\c]", list_of(DataType::Utf8), "[a\\, b\\c]"),
            ("[{\"k\":\"x]\"}, a[b]c]", list_of(DataType::Utf8), "['{\"k\":\"x]\"}', 'a[b]c']"),
            ("[[1,2],[],NULL]", list_of(list_of(DataType::Int64)), "[[1, 2], [], NULL]"),
            ("{a: 1, 'b c': x}", point(), "{'a': 1, 'B c': x}"),
            ("{\"B c\":\"x,y\"}", point(), "{'a': NULL, 'B c': 'x,y'}"),
            ("(1, x)", point(), "{'a': 1, 'B c': x}"),
            ("(1,)", point(), "{'a': 1, 'B c': NULL}"),
            ("{}", point(), "{'a': NULL, 'B c': NULL}"),
            ("{k=1, 'l m'=NULL}", map_of(DataType::Int64), "{k=1, l m=NULL}"),
            ("{\"k\": 1, \"x=y\": 2}", map_of(DataType::Int64), "{k=1, 'x=y'=2}"),
            ("{k=[1, 2]}", map_of(list_of(DataType::Int64)), "{k=[1, 2]}"),
        ] {
            let array = read(&[text], &to, false).unwrap();
            assert_eq!(array.data_type(), &to);
            assert_eq!(written(&array), [Some(expected.to_owned())], "{text}");
            let again = read(&[expected], &to, false).unwrap();
            assert_eq!(&array, &again, "{expected}");
        }
    }

    #[test]
    fn invalid_text_fails_cast_and_is_null_in_try_cast() {
        let numbers = list_of(DataType::Int64);
        let pair = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int64, true)), 2);
        for (text, to) in [
            ("", &numbers),
            ("1", &numbers),
            ("[1", &numbers),
            ("[1] x", &numbers),
            ("[[1]", &list_of(DataType::Utf8)),
            ("['a]", &list_of(DataType::Utf8)),
            ("[\"\\u12\"]", &list_of(DataType::Utf8)),
            ("[1]", &pair),
            ("{a 1}", &point()),
            ("{a: 1, c: 2}", &point()),
            ("{a: 1, A: 2}", &point()),
            ("(1, x, y)", &point()),
            ("{k:1}", &map_of(DataType::Int64)),
            ("{NULL=1}", &map_of(DataType::Int64)),
            ("{a=1, 'a'=2}", &map_of(DataType::Int64)),
        ] {
            assert!(read(&[text], to, false).is_err(), "{text}");
            let tried = read(&[text], to, true).unwrap();
            assert_eq!((tried.len(), tried.null_count()), (1, 1), "{text}");
        }
        assert!(read(&["[1,x]"], &numbers, false).is_err());
        assert_eq!(written(&read(&["[1,x]"], &numbers, true).unwrap()), [Some("[1, NULL]".into())]);
    }

    proptest! {
        #[test]
        fn text_lists_round_trip(
            lists in prop::collection::vec(
                prop::option::of(prop::collection::vec(
                    prop::option::of(prop_oneof!["[a-z ,:='\"()\\[\\]{}\\\\\n]{0,6}", Just("nUll".to_owned()), ".*"]), 0..5,
                )), 0..8,
            )
        ) {
            let mut builder = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
            for list in &lists {
                match list {
                    Some(items) => builder.append_value(items.iter().map(Option::as_deref)),
                    None => builder.append_null(),
                }
            }
            let lists: ArrayRef = Arc::new(builder.finish());
            let texts = written(&lists);
            let texts = texts.iter().map(|text| text.as_deref().map(Cow::Borrowed)).collect();
            let again = read_values(texts, lists.data_type(), false).unwrap();
            prop_assert_eq!(&again, &lists);
        }
    }
}
