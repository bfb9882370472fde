//! The function that checks a scalar subquery: a second row is an error.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result as PlanResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use tidemill_dialect::error_translation::into_datafusion_error;

/// Returns a call with the value `value` that fails if the row count `number` is above 1.
pub(super) fn single_value_call(value: Expr, number: Expr) -> Expr {
    static SINGLE_VALUE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(SingleValue { signature }))
    });
    SINGLE_VALUE.call(vec![value, number])
}

/// `single_value(value, count)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl ScalarUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [value, _] => Ok(value.clone()),
            _ => plan_err!("`single_value` takes a value and a number"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        match args.arg_fields {
            [value, _] => Ok(Arc::new(value.as_ref().clone().with_nullable(true))),
            _ => plan_err!("`single_value` takes a value and a number"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [value, number] = args.args.as_slice() else {
            return plan_err!("`single_value` takes a value and a number");
        };
        let number =
            cast_with_options(&number.to_array(1)?, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        if number.as_primitive::<Int64Type>().iter().flatten().any(|number| number > 1) {
            return Err(into_datafusion_error(Error::usage_with_hint(
                "a subquery that stands for one value has more than one row",
                "an aggregate makes one of them: (SELECT max(x) FROM b); x IN (SELECT …) compares with all",
            )));
        }
        Ok(value.clone())
    }
}
