//! Struct fields with an empty name: `o['']` and `o.""` of `{"o": {"": 1}}`.
//!
//! DataFusion's `get_field` refuses an empty name. The planner calls a function of ours for that one step of
//! a path: `o.a['']['b']` is `get_field(empty_field(get_field(o, 'a')), 'b')`. Sources do not read single
//! fields of a struct below such a step, but the whole struct.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{
    Column, DFSchema, DataFusionError, Result as PlanResult, ScalarValue, TableReference,
};
use datafusion::functions::core::get_field;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, GetFieldAccess, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use tidemill_base::error::Error;
use tidemill_base::suggestions;

use tidemill_planning::plan_rewriting::invoke_unary_function;

/// Plans access to fields with an empty name.
#[derive(Debug)]
pub(crate) struct EmptyFieldNamePlanner;

impl ExprPlanner for EmptyFieldNamePlanner {
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawFieldAccessExpr>> {
        let is_empty = matches!(&expr.field_access, GetFieldAccess::NamedStructField { name }
            if name.try_as_str().flatten() == Some(""));
        let is_struct = || matches!(expr.expr.get_type(schema), Ok(DataType::Struct(_)));
        match is_empty && is_struct() {
            true => Ok(PlannerResult::Planned(empty_field_call(expr.expr))),
            false => Ok(PlannerResult::Original(expr)),
        }
    }

    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> PlanResult<PlannerResult<Vec<Expr>>> {
        if !nested_names.iter().any(String::is_empty) {
            return Ok(PlannerResult::Original(Vec::new()));
        }
        let mut made = Expr::Column(Column::from((qualifier, field)));
        for name in nested_names {
            made = match name.is_empty() {
                true => empty_field_call(made),
                false => {
                    let args = vec![made, lit(ScalarValue::from(name.clone()))];
                    Expr::ScalarFunction(ScalarFunction::new_udf(get_field(), args))
                }
            };
        }
        Ok(PlannerResult::Planned(made))
    }
}

fn empty_field_call(of: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(EmptyFieldFunction { signature }))
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![of]))
}

/// The function that returns a struct's field with an empty name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EmptyFieldFunction {
    signature: Signature,
}

/// Returns the index and the definition of the field with an empty name.
fn find_empty_field(fields: &Fields) -> PlanResult<(usize, &FieldRef)> {
    let mut places = fields.iter().enumerate();
    places.find(|(_, field)| field.name().is_empty()).ok_or_else(|| {
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        DataFusionError::External(Box::new(Error::usage(suggestions::unknown_name_message(
            "field", "", &names,
        ))))
    })
}

fn not_a_struct_error(of: &DataType) -> DataFusionError {
    DataFusionError::Internal(format!("a {of} has no field with an empty name"))
}

impl ScalarUDFImpl for EmptyFieldFunction {
    fn name(&self) -> &str {
        "empty_field"
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        let of = args.first().map(|of| of.schema_name().to_string());
        Ok(format!("{}['']", of.unwrap_or_default()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [DataType::Struct(fields)] => Ok(find_empty_field(fields)?.1.data_type().clone()),
            [DataType::Null] | [] => Ok(DataType::Null),
            [other, ..] => Err(not_a_struct_error(other)),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |value: &ArrayRef| {
            let Some(structs) = value.as_struct_opt() else {
                return match value.data_type() {
                    DataType::Null => Ok(Arc::clone(value)),
                    other => Err(not_a_struct_error(other)),
                };
            };
            let field = structs.column(find_empty_field(structs.fields())?.0);
            Ok(match structs.nulls() {
                Some(nulls) => nullif(field, &BooleanArray::new(!nulls.inner(), None))?,
                None => Arc::clone(field),
            })
        })
    }
}
