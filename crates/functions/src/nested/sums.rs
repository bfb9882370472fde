//! Exact sums and means of the numbers in a list. DataFusion's functions of these names convert all numbers
//! to DOUBLE first, which rounds large ones. Here integers and decimals are added without loss, and a sum
//! that does not fit the result type is an error, as it is for `sum`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Decimal128Type, Field, Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, argument_array, internal_error, overflow_error,
    wrong_arguments_error,
};

/// The functions `array_sum` and `array_avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum ListSumOrMean {
    Sum,
    Mean,
}

/// Returns the type in which items are added up.
fn sum_type(item: &DataType) -> Option<DataType> {
    Some(match item {
        DataType::Null => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        of if of.is_integer() => DataType::Int64,
        of if of.is_floating() => DataType::Float64,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
        DataType::Dictionary(_, values) => sum_type(values)?,
        _ => return None,
    })
}

pub(super) fn list_item_type(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        DataType::Null => Some(&DataType::Null),
        _ => None,
    }
}

/// Calls `of` with the indices of the valid items of each list; a null list has no result.
fn map_valid_items<T>(
    lists: &arrow::array::ListArray,
    of: impl Fn(&mut dyn Iterator<Item = usize>) -> Result<Option<T>>,
) -> Result<Vec<Option<T>>> {
    let items = lists.values();
    let places = lists.value_offsets();
    (0..lists.len())
        .map(|row| {
            if lists.is_null(row) {
                return Ok(None);
            }
            let place = |at: usize| usize::try_from(places[at]).unwrap_or_default();
            let mut valid = (place(row)..place(row + 1)).filter(|at| items.is_valid(*at));
            of(&mut valid)
        })
        .collect()
}

fn sum_overflow_error(name: &str) -> datafusion_common::DataFusionError {
    overflow_error(
        format!("what `{name}` adds up does not fit the type of its answer"),
        Some("of items that are DOUBLE it is rounded: CAST(list AS DOUBLE[])"),
    )
}

impl RowFunction for ListSumOrMean {
    fn names(&self) -> &'static [&'static str] {
        match self {
            ListSumOrMean::Sum => &["array_sum", "list_sum"],
            ListSumOrMean::Mean => &["array_avg", "list_avg"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            ListSumOrMean::Sum => (
                "array_sum(list)",
                "What the numbers of a list add up to, nulls left out, and null of none: `array_sum([1, 2])` is `3`.",
            ),
            ListSumOrMean::Mean => (
                "array_avg(list)",
                "The mean of the numbers of a list, nulls left out, and null of none: `array_avg([1, 2])` is `1.5`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_ARRAY, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [list] = given else { return Err(wrong_arguments_error(self, given)) };
        let item = list_item_type(list)
            .and_then(sum_type)
            .ok_or_else(|| wrong_arguments_error(self, given))?;
        Ok(vec![DataType::List(Arc::new(Field::new_list_field(item, true)))])
    }

    fn return_type(&self, given: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        let item = given
            .first()
            .and_then(list_item_type)
            .ok_or_else(|| wrong_arguments_error(self, given))?;
        Ok(match (self, item) {
            (ListSumOrMean::Mean, _) => DataType::Float64,
            (ListSumOrMean::Sum, DataType::Decimal128(_, scale)) => {
                DataType::Decimal128(38, *scale)
            }
            (ListSumOrMean::Sum, item) => item.clone(),
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let (lists, rows) = argument_array(given.argument(0)?)?;
        let lists = lists.as_list_opt::<i32>().ok_or_else(|| internal_error("a list is none"))?;
        let name = self.names()[0];
        let answers: ArrayRef = match (self, lists.values().data_type()) {
            (_, DataType::Float64) => {
                let items = lists.values().as_primitive::<Float64Type>();
                let sums = map_valid_items(lists, |places| {
                    let (mut sum, mut count) = (0.0, 0_u32);
                    for place in places {
                        sum += items.value(place);
                        count += 1;
                    }
                    Ok((count > 0).then(|| match self {
                        ListSumOrMean::Sum => sum,
                        ListSumOrMean::Mean => sum / f64::from(count),
                    }))
                })?;
                Arc::new(Float64Array::from(sums))
            }
            (_, DataType::Int64 | DataType::Decimal128(_, _)) => {
                let items = lists.values();
                let whole = items.as_primitive_opt::<Int64Type>();
                let decimals = items.as_primitive_opt::<Decimal128Type>();
                let sums = map_valid_items(lists, |places| {
                    let (mut sum, mut count) = (0_i128, 0_u32);
                    for place in places {
                        let item = match (whole, decimals) {
                            (Some(whole), _) => i128::from(whole.value(place)),
                            (_, Some(decimals)) => decimals.value(place),
                            _ => 0,
                        };
                        sum = sum.checked_add(item).ok_or_else(|| sum_overflow_error(name))?;
                        count += 1;
                    }
                    Ok((count > 0).then_some((sum, count)))
                })?;
                match (self, items.data_type()) {
                    (ListSumOrMean::Mean, of) => {
                        let scale = match of {
                            DataType::Decimal128(_, scale) => 10_f64.powi(i32::from(*scale)),
                            _ => 1.0,
                        };
                        let mean = |(sum, count): (i128, u32)| {
                            // The remainder contributes the digits behind those of the quotient.
                            let count = i128::from(count);
                            #[allow(clippy::cast_precision_loss)]
                            let mean = (sum / count) as f64 + (sum % count) as f64 / count as f64;
                            mean / scale
                        };
                        Arc::new(
                            sums.into_iter().map(|sum| sum.map(mean)).collect::<Float64Array>(),
                        )
                    }
                    (ListSumOrMean::Sum, DataType::Decimal128(_, scale)) => {
                        let sums: Decimal128Array =
                            sums.into_iter().map(|sum| sum.map(|(sum, _)| sum)).collect();
                        let fits = |sum: i128| sum.unsigned_abs() < 10_u128.pow(38);
                        if !sums.iter().flatten().all(fits) {
                            return Err(sum_overflow_error(name));
                        }
                        Arc::new(sums.with_precision_and_scale(38, *scale)?)
                    }
                    (ListSumOrMean::Sum, _) => {
                        let fit =
                            |sum: i128| i64::try_from(sum).map_err(|_| sum_overflow_error(name));
                        let sums =
                            sums.into_iter().map(|sum| sum.map(|(sum, _)| fit(sum)).transpose());
                        Arc::new(sums.collect::<Result<Int64Array>>()?)
                    }
                }
            }
            _ => return Err(internal_error("a list of no numbers")),
        };
        // A constant list has one result for all rows.
        let answers = match rows {
            crate::row_function::RowMapping::PerRow => answers,
            crate::row_function::RowMapping::Constant => {
                let indices = arrow::array::UInt64Array::from(vec![0_u64; given.row_count]);
                arrow::compute::take(&answers, &indices, None)?
            }
        };
        Ok(cast_with_options(&answers, given.return_type, &STRICT_CAST_OPTIONS)?)
    }
}
