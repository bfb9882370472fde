//! Evaluation of predicates on decoded columns, with the semantics of the text filter on spans: a value that
//! cannot be compared with the constant keeps its row.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, downcast_integer};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use tidemill_base::column_types::dictionary_text_type;
use tidemill_text::{ComparisonOperator, ParsedValue, PredicateConstant, ValueCondition};

/// Returns whether predicates can be evaluated on columns of a type.
pub(super) fn can_test_type(of: &DataType) -> bool {
    *of == dictionary_text_type()
        || of.is_signed_integer()
        || matches!(of, DataType::Utf8View | DataType::Float64)
}

/// Clears the entries of `keep` whose row does not satisfy the test.
pub(super) fn mask_rows(array: &ArrayRef, test: &ValueCondition, keep: &mut [bool]) {
    let nulls = array.logical_nulls();
    let nulls = nulls.as_ref().filter(|nulls| nulls.null_count() > 0);
    macro_rules! integer {
        ($t:ty) => {{
            let values = array.as_primitive::<$t>().values();
            // The most frequent predicate, so it has a loop of its own.
            if let (
                ValueCondition::Comparison(
                    ComparisonOperator::Equal,
                    PredicateConstant::Int(wanted),
                ),
                None,
            ) = (test, nulls)
            {
                let wanted = <$t as ArrowPrimitiveType>::Native::try_from(*wanted).ok();
                keep.iter_mut().zip(values).for_each(|(keep, v)| *keep &= Some(*v) == wanted);
                return;
            }
            let value = |row: usize| i64::try_from(values[row]).ok();
            mask_each_row(keep, nulls, test, |row| {
                value(row).is_none_or(|value| test.is_satisfied_by(Some(ParsedValue::Int(value))))
            });
        }};
    }
    downcast_integer! {
        array.data_type() => (integer),
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            mask_each_row(keep, nulls, test, |row| test.is_satisfied_by(Some(ParsedValue::Float(values[row]))));
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            mask_each_row(keep, nulls, test, |row| {
                test.is_satisfied_by(Some(ParsedValue::Text(values.value(row).as_bytes())))
            });
        }
        of if *of == dictionary_text_type() => {
            let coded = array.as_dictionary::<Int32Type>();
            let values = coded.values().as_string::<i32>();
            let holds = |value: &str| test.is_satisfied_by(Some(ParsedValue::Text(value.as_bytes())));
            let holds: Vec<bool> = values.iter().map(|value| value.is_none_or(holds)).collect();
            let place = |code: i32| usize::try_from(code).unwrap_or(usize::MAX);
            let codes = coded.keys().values();
            mask_each_row(keep, nulls, test, |row| {
                holds.get(place(codes[row])).is_none_or(|holds| *holds)
            });
        }
        _ => {}
    }
}

/// Evaluates the test on the rows that are still kept; `holds` decides for rows that are not null.
fn mask_each_row(
    keep: &mut [bool],
    nulls: Option<&NullBuffer>,
    test: &ValueCondition,
    holds: impl Fn(usize) -> bool,
) {
    let of_null = test.is_satisfied_by(None);
    for (row, keep) in keep.iter_mut().enumerate().filter(|(_, keep)| **keep) {
        *keep = match nulls.is_some_and(|nulls| nulls.is_null(row)) {
            true => of_null,
            false => holds(row),
        };
    }
}
