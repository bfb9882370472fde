//! Products and distances of two lists of numbers.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Float64Builder, ListBuilder};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_ARRAY;

use super::sums::list_item_type;
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, RowMapping, argument_array, internal_error,
    usage_error, wrong_arguments_error,
};

/// A function of two lists of numbers, calculated in DOUBLE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum VectorFunction {
    InnerProduct,
    NegativeInnerProduct,
    CosineSimilarity,
    CosineDistance,
    CrossProduct,
}

impl VectorFunction {
    pub(super) const ALL: [VectorFunction; 5] = [
        VectorFunction::InnerProduct,
        VectorFunction::NegativeInnerProduct,
        VectorFunction::CosineSimilarity,
        VectorFunction::CosineDistance,
        VectorFunction::CrossProduct,
    ];

    /// Returns the number for two lists of the same length; a cosine of empty lists is `None`.
    fn evaluate(self, left: &[f64], right: &[f64]) -> Option<f64> {
        let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let cosine = || {
            // The angle does not depend on the scale; at this scale squares neither overflow nor underflow.
            let (left, right) = (scale_to_one(left), scale_to_one(right));
            let lengths = product(&left, &left).sqrt() * product(&right, &right).sqrt();
            (!left.is_empty()).then(|| (product(&left, &right) / lengths).clamp(-1.0, 1.0))
        };
        match self {
            VectorFunction::InnerProduct => Some(product(left, right) + 0.0),
            VectorFunction::NegativeInnerProduct => Some(0.0 - product(left, right)),
            VectorFunction::CosineSimilarity => cosine(),
            VectorFunction::CosineDistance => cosine().map(|cosine| 1.0 - cosine),
            VectorFunction::CrossProduct => None,
        }
    }
}

/// Multiplies numbers by a power of two that makes the largest about one, if their squares would lose digits
/// otherwise.
fn scale_to_one(numbers: &[f64]) -> Cow<'_, [f64]> {
    /// Magnitudes whose squares, and the sums of these, keep all their digits.
    const EXACT_SQUARE_RANGE: std::ops::RangeInclusive<f64> = 1e-100..=1e100;
    let largest = numbers.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    if largest == 0.0 || !largest.is_finite() || EXACT_SQUARE_RANGE.contains(&largest) {
        return Cow::Borrowed(numbers);
    }
    let (_, exponent) = libm::frexp(largest);
    numbers.iter().map(|number| libm::ldexp(*number, -exponent)).collect()
}

/// An argument of lists of numbers.
struct NumberLists {
    lists: ArrayRef,
    rows: RowMapping,
}

impl NumberLists {
    fn from_argument(given: &ArgumentBatch<'_>, at: usize) -> Result<Self> {
        let (lists, rows) = argument_array(given.argument(at)?)?;
        match lists.as_list_opt::<i32>() {
            Some(_) => Ok(NumberLists { lists, rows }),
            None => Err(internal_error("a list is none")),
        }
    }

    /// Returns the numbers of a row, or `None` for a null list.
    ///
    /// # Errors
    /// Fails if an item is null.
    fn row_numbers(&self, row: usize, name: &str) -> Result<Option<&[f64]>> {
        let lists = self.lists.as_list::<i32>();
        let row = self.rows.value_index(row);
        if lists.is_null(row) {
            return Ok(None);
        }
        let items = lists.values().as_primitive::<Float64Type>();
        let places = lists.value_offsets();
        let place = |at: usize| usize::try_from(places[at]).unwrap_or_default();
        let (start, end) = (place(row), place(row + 1));
        if items.null_count() > 0 && (start..end).any(|at| items.is_null(at)) {
            return Err(usage_error(
                format!("`{name}` takes lists without NULL, and one has a NULL among its items"),
                "list_transform(list, x -> coalesce(x, 0)) replaces them",
            ));
        }
        Ok(Some(&items.values()[start..end]))
    }
}

fn length_mismatch_error(name: &str, left: usize, right: usize) -> DataFusionError {
    usage_error(
        format!("`{name}` takes lists of the same length, and two have {left} and {right} items"),
        "array_resize(list, n, 0) makes a list longer",
    )
}

impl RowFunction for VectorFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            VectorFunction::InnerProduct => &[
                "list_inner_product",
                "list_dot_product",
                "array_inner_product",
                "array_dot_product",
            ],
            VectorFunction::NegativeInnerProduct => &[
                "list_negative_inner_product",
                "list_negative_dot_product",
                "array_negative_inner_product",
                "array_negative_dot_product",
            ],
            VectorFunction::CosineSimilarity => {
                &["list_cosine_similarity", "array_cosine_similarity"]
            }
            VectorFunction::CosineDistance => &["list_cosine_distance", "array_cosine_distance"],
            VectorFunction::CrossProduct => &["array_cross_product"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            VectorFunction::InnerProduct => (
                "list_inner_product(list, other)",
                "The sum of the products of items in the same place, a DOUBLE: \
                 `list_inner_product([1, 2], [3, 4])` is `11.0`.",
            ),
            VectorFunction::NegativeInnerProduct => (
                "list_negative_inner_product(list, other)",
                "The inner product with the opposite sign, by which the nearest list is the smallest: \
                 `list_negative_inner_product([1, 2], [3, 4])` is `-11.0`.",
            ),
            VectorFunction::CosineSimilarity => (
                "list_cosine_similarity(list, other)",
                "The cosine of the angle between two lists of numbers of any size, NaN where one has only zeros, an infinite \
                 number or NaN: \
                 `list_cosine_similarity([3, 4], [4, 3])` is `0.96`.",
            ),
            VectorFunction::CosineDistance => (
                "list_cosine_distance(list, other)",
                "One less the cosine of the angle between two lists of numbers: \
                 `list_cosine_distance([1, 0], [0, 1])` is `1.0`.",
            ),
            VectorFunction::CrossProduct => (
                "array_cross_product(list, other)",
                "The cross product of two lists of three numbers each: \
                 `array_cross_product([1, 2, 3], [4, 5, 6])` is `[-3.0, 6.0, -3.0]`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_ARRAY, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_vector = |list: &DataType| {
            list_item_type(list).is_some_and(|item| item.is_numeric() || item.is_null())
        };
        let numbers = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
        match given {
            [left, right] if is_vector(left) && is_vector(right) => Ok(vec![numbers; 2]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, taken: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        match self {
            VectorFunction::CrossProduct => {
                taken.first().cloned().ok_or_else(|| wrong_arguments_error(self, taken))
            }
            _ => Ok(DataType::Float64),
        }
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let name = self.names()[0];
        let (left, right) =
            (NumberLists::from_argument(given, 0)?, NumberLists::from_argument(given, 1)?);
        let pair = |row: usize| {
            let pair = left.row_numbers(row, name)?.zip(right.row_numbers(row, name)?);
            match pair {
                Some((left, right)) if left.len() != right.len() => {
                    Err(length_mismatch_error(name, left.len(), right.len()))
                }
                pair => Ok(pair),
            }
        };
        if *self != VectorFunction::CrossProduct {
            let found = (0..given.row_count)
                .map(|row| Ok(pair(row)?.and_then(|(left, right)| self.evaluate(left, right))));
            return Ok(Arc::new(found.collect::<Result<Float64Array>>()?));
        }
        let mut found = ListBuilder::new(Float64Builder::new());
        for row in 0..given.row_count {
            match pair(row)? {
                None => found.append_null(),
                Some(([a, b, c], [x, y, z])) => {
                    let items = [b * z - c * y, c * x - a * z, a * y - b * x];
                    found.values().append_slice(&items);
                    found.append(true);
                }
                Some((left, _)) => {
                    return Err(usage_error(
                        format!("`{name}` takes lists of 3 items, and two have {}", left.len()),
                        "a cross product has three dimensions",
                    ));
                }
            }
        }
        Ok(Arc::new(found.finish()))
    }
}
