//! Casts to JSON, `x::JSON`: a text is JSON already, and any other value is written as `to_json(x)` writes
//! it.

use std::sync::Arc;

use arrow::compute::cast_with_options;
use arrow::datatypes::DataType;
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_dialect::marker_functions::JSON_CAST_FUNCTION;

/// Returns the function of casts to JSON; `None` if the product's functions lack `to_json`.
pub(crate) fn json_cast_udf() -> Option<ScalarUDF> {
    let to_json = tidemill_functions::scalar_functions().find(|it| it.name() == "to_json")?;
    let signature = Signature::any(1, Volatility::Immutable);
    Some(ScalarUDF::from(JsonCastFunction { to_json: Arc::new(to_json), signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonCastFunction {
    to_json: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for JsonCastFunction {
    fn name(&self) -> &str {
        JSON_CAST_FUNCTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return internal_err!("a cast to JSON is of one value");
        };
        let is_text = match value.data_type() {
            DataType::Dictionary(_, item) => item.is_string(),
            of => of.is_string() || of.is_null(),
        };
        let json = match is_text {
            true => value.clone(),
            false => self.to_json.invoke_with_args(args)?,
        };
        Ok(match json {
            ColumnarValue::Array(array) => ColumnarValue::Array(cast_with_options(
                &array,
                &DataType::Utf8View,
                &STRICT_CAST_OPTIONS,
            )?),
            ColumnarValue::Scalar(value) => {
                ColumnarValue::Scalar(value.cast_to(&DataType::Utf8View)?)
            }
        })
    }
}
