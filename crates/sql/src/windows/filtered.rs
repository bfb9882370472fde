//! Windows with a FILTER: `sum(n) FILTER (WHERE n > 0) OVER (ORDER BY day)`.
//!
//! DataFusion's windows keep the condition to themselves, so that no other step can run such a call. Here
//! it is the first argument of an aggregate that leaves rows out itself.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::filter;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::WindowFunctionParams;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, ReversedUDAF, Signature,
    Volatility, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::error::Error;
use tidemill_planning::DynLogicalPlan;

use crate::messages::external;
use crate::rewrite::each_expression;

/// Makes the conditions arguments, once all types are settled.
#[derive(Debug)]
pub struct FilteredWindows;

impl AnalyzerRule for FilteredWindows {
    fn name(&self) -> &str {
        "filtered_windows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        plan.transform_up_with_subqueries_dyn(&mut |plan| match plan {
            LogicalPlan::Window(_) => each_expression(plan, &within),
            plan => Ok(Transformed::no(plan)),
        })
        .data()
    }
}

fn within(expr: Expr, _: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let WindowFunctionDefinition::AggregateUDF(inner) = &call.fun else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let Some(condition) = call.params.filter.take() else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    call.fun = WindowFunctionDefinition::AggregateUDF(Filtered::of(Arc::clone(inner)));
    call.params.args.insert(0, *condition);
    Ok(Transformed::yes(Expr::WindowFunction(call)))
}

/// Another aggregate of the rows for which the first argument is true.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Filtered {
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

impl Filtered {
    fn of(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(AggregateUDF::from(Filtered { inner, signature }))
    }

    /// The call as it is written.
    fn written(params: &WindowFunctionParams) -> WindowFunctionParams {
        let mut params = params.clone();
        if !params.args.is_empty() {
            params.filter = Some(Box::new(params.args.remove(0)));
        }
        params
    }

    /// The inner aggregate's accumulator, of what `make` makes for its arguments.
    fn accumulator_of(
        args: &AccumulatorArgs<'_>,
        make: impl FnOnce(AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        let inner = make(AccumulatorArgs {
            return_field: Arc::clone(&args.return_field),
            exprs: without_condition(args.exprs)?,
            expr_fields: without_condition(args.expr_fields)?,
            ..*args
        })?;
        Ok(Box::new(OfSome { inner }))
    }
}

/// What stands after the condition.
fn without_condition<T>(all: &[T]) -> PlanResult<&[T]> {
    let (_, others) = all
        .split_first()
        .ok_or_else(|| external(Error::Internal("a FILTER without a condition".into())))?;
    Ok(others)
}

impl AggregateUDFImpl for Filtered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> PlanResult<String> {
        self.inner.window_function_schema_name(&Self::written(params))
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> PlanResult<String> {
        self.inner.window_function_display_name(&Self::written(params))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(without_condition(types)?)
    }

    fn return_field(&self, fields: &[FieldRef]) -> PlanResult<FieldRef> {
        self.inner.return_field(without_condition(fields)?)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.inner().reverse_expr() {
            ReversedUDAF::Reversed(inner) => ReversedUDAF::Reversed(Self::of(inner)),
            other => other,
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Self::accumulator_of(&args, |args| self.inner.accumulator(args))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        Self::accumulator_of(&args, |args| self.inner.create_sliding_accumulator(args))
    }

    fn state_fields(&self, _: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        no_state()
    }
}

/// A window has no other part that it is put together with.
pub fn no_state<T>() -> PlanResult<T> {
    Err(external(Error::Internal("the state of a window's call".into())))
}

#[derive(Debug)]
struct OfSome {
    inner: Box<dyn Accumulator>,
}

/// The inner aggregate's arguments of the rows for which the condition is true: null is not.
fn chosen(arguments: &[ArrayRef]) -> PlanResult<Vec<ArrayRef>> {
    let others = without_condition(arguments)?;
    let condition = arguments[0].as_boolean();
    others.iter().map(|argument| Ok(filter(argument, condition)?)).collect()
}

impl Accumulator for OfSome {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> PlanResult<()> {
        self.inner.update_batch(&chosen(arguments)?)
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> PlanResult<()> {
        self.inner.retract_batch(&chosen(arguments)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        no_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        no_state()
    }
}
