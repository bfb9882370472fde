//! A row counter for plans that run on one thread.
//!
//! `row_number()` would do, but a window keeps rows that it may need again, and for strings all that it has
//! ever seen, as views retain their buffers. A counter keeps nothing.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::UInt64Array;
use arrow::datatypes::DataType;
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Creates a call that numbers rows from 0 in the order of evaluation. Each call has its own counter.
pub(crate) fn create_row_counter() -> Expr {
    let place = RowCounterUdf {
        signature: Signature::nullary(Volatility::Volatile),
        next_number: Arc::new(AtomicU64::new(0)),
    };
    ScalarUDF::from(place).call(Vec::new())
}

#[derive(Debug)]
struct RowCounterUdf {
    signature: Signature,
    next_number: Arc<AtomicU64>,
}

impl PartialEq for RowCounterUdf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.next_number, &other.next_number)
    }
}

impl Eq for RowCounterUdf {}

impl Hash for RowCounterUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.next_number).hash(state);
    }
}

impl ScalarUDFImpl for RowCounterUdf {
    fn name(&self) -> &'static str {
        "place"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows as u64;
        let first = self.next_number.fetch_add(rows, Ordering::Relaxed);
        let places = UInt64Array::from_iter_values(first..first + rows);
        Ok(ColumnarValue::Array(Arc::new(places)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Field, UInt64Type};
    use datafusion::common::config::ConfigOptions;

    use super::*;

    #[test]
    fn row_numbers_continue_over_batches_and_restart_for_each_call() {
        let (Expr::ScalarFunction(one), Expr::ScalarFunction(other)) =
            (create_row_counter(), create_row_counter())
        else {
            panic!("no calls");
        };
        assert_ne!(one, other);
        assert_eq!(one, one.clone());
        let ask = |call: &datafusion::logical_expr::expr::ScalarFunction, number_rows| {
            let given = ScalarFunctionArgs {
                args: Vec::new(),
                arg_fields: Vec::new(),
                number_rows,
                return_field: Arc::new(Field::new("place", DataType::UInt64, false)),
                config_options: Arc::new(ConfigOptions::default()),
            };
            match call.func.invoke_with_args(given).unwrap() {
                ColumnarValue::Array(places) => {
                    places.as_primitive::<UInt64Type>().values().to_vec()
                }
                ColumnarValue::Scalar(place) => panic!("one for all rows: {place}"),
            }
        };
        assert_eq!(
            [ask(&one, 2), ask(&one.clone(), 1), ask(&one, 0), ask(&one, 1)].concat(),
            [0, 1, 2, 3]
        );
        assert_eq!(ask(&other, 1), [0]);
    }
}
