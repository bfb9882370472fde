//! Lengths and positions of lists as BIGINT.
//!
//! DataFusion's are unsigned: `list[array_length(list)]` does not accept that type as an index, and
//! `array_length(list) - 5` cannot be negative. PostgreSQL and DuckDB return signed numbers.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::Result as PlanResult;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// DataFusion functions that return unsigned lengths and positions, or lists of them.
pub(crate) const UNSIGNED_LENGTH_FUNCTIONS: [&str; 6] = [
    "array_dims",
    "array_length",
    "array_ndims",
    "array_position",
    "array_positions",
    "cardinality",
];

/// A wrapper around a DataFusion function that casts its unsigned result to a signed one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct SignedLengthFunction {
    pub(crate) inner: Arc<ScalarUDF>,
}

fn signed_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::UInt64 => DataType::Int64,
        DataType::List(item) => DataType::List(signed_field(item)),
        other => other.clone(),
    }
}

fn signed_field(field: &Field) -> FieldRef {
    Arc::new(field.clone().with_data_type(signed_type(field.data_type())))
}

impl ScalarUDFImpl for SignedLengthFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        self.inner.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.coerce_types(given)
    }

    fn return_type(&self, taken: &[DataType]) -> PlanResult<DataType> {
        Ok(signed_type(&self.inner.return_type(taken)?))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        Ok(signed_field(self.inner.return_field_from_args(args)?.as_ref()))
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        self.inner.inner().simplify(args, info)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let signed_type = args.return_field.data_type().clone();
        args.return_field = self.inner.return_field_from_args(ReturnFieldArgs {
            arg_fields: &args.arg_fields,
            scalar_arguments: &vec![None; args.arg_fields.len()],
        })?;
        Ok(match self.inner.invoke_with_args(args)? {
            ColumnarValue::Array(array) => {
                let array: ArrayRef = cast(&array, &signed_type)?;
                ColumnarValue::Array(array)
            }
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.cast_to(&signed_type)?),
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
