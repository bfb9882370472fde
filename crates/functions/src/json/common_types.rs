//! The common type of a struct's fields, and casts to it that lose nothing.
//!
//! `{"ann": {"age": 3}, "bob": {"age": 4, "city": "Ulm"}}` has fields of two struct types, whose common type
//! has the fields of both. The common type of integers and floats is DOUBLE, as in a column of JSON. An
//! integer that a DOUBLE would round is an error instead of another number. The caller handles types without
//! a common type, such as TEXT and BIGINT.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeListArray, ListArray, StructArray, new_null_array,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type, UInt64Type};
use datafusion_common::Result as PlanResult;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use crate::closure_function::{is_text_type, query_error};

/// Returns the type that values of two types are cast to, if there is one that loses nothing.
pub(super) fn common_type(one: &DataType, other: &DataType) -> Option<DataType> {
    use DataType::{
        Decimal128, Dictionary, FixedSizeList, Float64, LargeList, List, Null, Struct, Utf8View,
    };
    Some(match (one, other) {
        (one, other) if one == other => one.clone(),
        (Null, some) | (some, Null) => some.clone(),
        (one, other) if is_text_type(one) && is_text_type(other) => Utf8View,
        (Dictionary(_, values), other) | (other, Dictionary(_, values)) => {
            common_type(values, other)?
        }
        (one, other) if one.is_integer() && other.is_integer() => common_integer_type(one, other)?,
        (one, other) if is_integer_or_float(one) && is_integer_or_float(other) => Float64,
        (Decimal128(digits, places), Decimal128(other_digits, other_places)) => {
            let whole = |digits: u8, places: i8| i16::from(digits) - i16::from(places);
            let whole = whole(*digits, *places).max(whole(*other_digits, *other_places));
            let places = *places.max(other_places);
            let digits = u8::try_from(whole + i16::from(places)).ok().filter(|all| *all <= 38)?;
            Decimal128(digits, places)
        }
        (Struct(one), Struct(other)) => Struct(common_fields(one, other)?),
        (List(one), List(other)) => List(common_item_field(one, other)?),
        (
            List(one) | LargeList(one) | FixedSizeList(one, _),
            List(other) | LargeList(other) | FixedSizeList(other, _),
        ) => LargeList(common_item_field(one, other)?),
        _ => return None,
    })
}

fn is_integer_or_float(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating()
}

/// Returns the integer type that holds all values of both types, unless only a DECIMAL does.
fn common_integer_type(one: &DataType, other: &DataType) -> Option<DataType> {
    let is_wider = |data_type: &DataType| data_type.is_unsigned_integer();
    match (is_wider(one), is_wider(other)) {
        (true, true) => Some(DataType::UInt64),
        _ if *one == DataType::UInt64 || *other == DataType::UInt64 => None,
        _ => Some(DataType::Int64),
    }
}

/// Returns the fields of both structs by name, in the order of their first occurrence.
fn common_fields(one: &Fields, other: &Fields) -> Option<Fields> {
    let mut fields: Vec<FieldRef> = one.iter().cloned().collect();
    for field in other {
        match fields.iter_mut().find(|known| known.name() == field.name()) {
            Some(known) => {
                let data_type = common_type(known.data_type(), field.data_type())?;
                *known = Arc::new(Field::new(field.name(), data_type, true));
            }
            None => fields.push(Arc::new(field.as_ref().clone().with_nullable(true))),
        }
    }
    let nullable = fields.into_iter().map(|field| match field.is_nullable() {
        true => field,
        false => Arc::new(field.as_ref().clone().with_nullable(true)),
    });
    Some(nullable.collect())
}

fn common_item_field(one: &FieldRef, other: &FieldRef) -> Option<FieldRef> {
    let data_type = common_type(one.data_type(), other.data_type())?;
    Some(Arc::new(Field::new_list_field(data_type, true)))
}

/// Casts values to a [common type](common_type) of theirs.
///
/// # Errors
/// Fails for an integer that a DOUBLE would round.
pub(super) fn cast_to_common(array: &ArrayRef, to: &DataType) -> PlanResult<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let cast = |to: &DataType| cast_with_options(array, to, &STRICT_CAST_OPTIONS);
    Ok(match (array.data_type(), to) {
        (DataType::Null, _) => new_null_array(to, array.len()),
        (DataType::Dictionary(_, values), _) => cast_to_common(&cast(values)?, to)?,
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let own = array.as_struct();
            let column = |field: &FieldRef| match own.column_by_name(field.name()) {
                Some(column) => cast_to_common(column, field.data_type()),
                None => Ok(new_null_array(field.data_type(), own.len())),
            };
            let columns = fields.iter().map(column).collect::<PlanResult<Vec<_>>>()?;
            let nulls = own.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, own.len())?)
        }
        (DataType::List(_), DataType::List(item)) => {
            let lists = array.as_list::<i32>();
            let values = cast_to_common(lists.values(), item.data_type())?;
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        (
            DataType::List(own) | DataType::LargeList(own) | DataType::FixedSizeList(own, _),
            DataType::LargeList(item),
        ) => {
            let lists = cast(&DataType::LargeList(Arc::clone(own)))?;
            let lists = lists.as_list::<i64>();
            let values = cast_to_common(lists.values(), item.data_type())?;
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            Arc::new(LargeListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        (from, DataType::Float64) if from.is_integer() => {
            if let Some(integer) = find_integer_that_double_rounds(array) {
                return Err(query_error(
                    format!(
                        "a DOUBLE is made of all values of a struct, and it would round the {} {integer}",
                        sql_type_name(from)
                    ),
                    "json_entries(to_json(s)) has each value as it is written",
                ));
            }
            cast(to)?
        }
        _ => cast(to)?,
    })
}

/// Returns the first integer that a DOUBLE cannot represent.
fn find_integer_that_double_rounds(integers: &ArrayRef) -> Option<i128> {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let is_rounded = |value: &i128| (*value as f64) as i128 != *value;
    match integers.data_type() {
        DataType::Int64 => {
            let mut values = integers.as_primitive::<Int64Type>().iter().flatten().map(i128::from);
            values.find(is_rounded)
        }
        DataType::UInt64 => {
            let mut values = integers.as_primitive::<UInt64Type>().iter().flatten().map(i128::from);
            values.find(is_rounded)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array};

    fn struct_type(all: &[(&str, DataType)]) -> DataType {
        let field = |(name, of): &(&str, DataType)| Field::new(*name, of.clone(), true);
        DataType::Struct(all.iter().map(field).collect())
    }

    fn list_type(item: DataType) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(item, true)))
    }

    #[test]
    fn common_type_exists_only_if_no_value_is_lost() {
        use DataType::{Boolean, Decimal128, Float64, Int8, Int64, Null, UInt32, UInt64, Utf8};
        for (one, other, expected) in [
            (Int64, Int64, Some(Int64)),
            (Int8, UInt32, Some(Int64)),
            (Int64, UInt64, None),
            (Int64, Float64, Some(Float64)),
            (Null, Boolean, Some(Boolean)),
            (Utf8, DataType::LargeUtf8, Some(DataType::Utf8View)),
            (Utf8, Int64, None),
            (Decimal128(5, 2), Decimal128(6, 0), Some(Decimal128(8, 2))),
            (Decimal128(38, 0), Decimal128(38, 10), None),
            (
                struct_type(&[("a", Int64)]),
                struct_type(&[("b", Utf8), ("a", Float64)]),
                Some(struct_type(&[("a", Float64), ("b", Utf8)])),
            ),
            (struct_type(&[("a", Int64)]), struct_type(&[("a", Utf8)]), None),
            (list_type(Int64), list_type(Null), Some(list_type(Int64))),
            (list_type(Int64), Int64, None),
        ] {
            assert_eq!(common_type(&one, &other), expected, "{one} {other}");
            assert_eq!(common_type(&other, &one).is_some(), expected.is_some(), "{other} {one}");
        }
    }

    #[test]
    fn integer_that_double_would_round_is_an_error() {
        let exact: ArrayRef = Arc::new(Int64Array::from(vec![Some(1 << 53), None, Some(-3)]));
        let made = cast_to_common(&exact, &DataType::Float64).unwrap();
        let expected = Float64Array::from(vec![Some(9007199254740992.0), None, Some(-3.0)]);
        assert_eq!(made.as_primitive(), &expected);
        let rounded: ArrayRef = Arc::new(Int64Array::from(vec![(1 << 53) + 1]));
        let error = cast_to_common(&rounded, &DataType::Float64).unwrap_err().to_string();
        assert!(error.contains("it would round the BIGINT 9007199254740993"), "{error}");
    }
}
