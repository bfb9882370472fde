//! Window calls with a FILTER: `sum(n) FILTER (WHERE n > 0) OVER (ORDER BY day)`.
//!
//! DataFusion's window expressions do not expose the condition, so that no other operator can run such a call.
//! Here the condition becomes the first argument of an aggregate that leaves rows out itself.

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

use tidemill_planning::error_carrier::into_datafusion_error;
use tidemill_planning::plan_rewriting::rewrite_node_expressions;

/// An analyzer rule that turns the FILTER of a window call into an argument, after all types are settled.
#[derive(Debug)]
pub struct WindowFilterRule;

impl AnalyzerRule for WindowFilterRule {
    fn name(&self) -> &str {
        "filtered_windows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        plan.transform_up_with_subqueries_dyn(&mut |plan| match plan {
            LogicalPlan::Window(_) => rewrite_node_expressions(plan, &move_filter_into_arguments),
            plan => Ok(Transformed::no(plan)),
        })
        .data()
    }
}

fn move_filter_into_arguments(expr: Expr, _: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let WindowFunctionDefinition::AggregateUDF(inner) = &call.fun else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let Some(condition) = call.params.filter.take() else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    call.fun = WindowFunctionDefinition::AggregateUDF(FilteredAggregate::wrap(Arc::clone(inner)));
    call.params.args.insert(0, *condition);
    Ok(Transformed::yes(Expr::WindowFunction(call)))
}

/// An aggregate over the rows for which the first argument is true; it wraps another aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FilteredAggregate {
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

impl FilteredAggregate {
    fn wrap(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(AggregateUDF::from(FilteredAggregate { inner, signature }))
    }

    /// Returns the parameters of the call as it is written in SQL, with the condition as its FILTER.
    fn params_with_filter(params: &WindowFunctionParams) -> WindowFunctionParams {
        let mut params = params.clone();
        if !params.args.is_empty() {
            params.filter = Some(Box::new(params.args.remove(0)));
        }
        params
    }

    /// Wraps the inner aggregate's accumulator, which `make` creates from the arguments without the condition.
    fn filtering_accumulator(
        args: &AccumulatorArgs<'_>,
        make: impl FnOnce(AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        let inner = make(AccumulatorArgs {
            return_field: Arc::clone(&args.return_field),
            exprs: without_condition(args.exprs)?,
            expr_fields: without_condition(args.expr_fields)?,
            ..*args
        })?;
        Ok(Box::new(FilteringAccumulator { inner }))
    }
}

/// Returns all items but the first, which is the condition.
fn without_condition<T>(all: &[T]) -> PlanResult<&[T]> {
    let (_, others) = all.split_first().ok_or_else(|| {
        into_datafusion_error(Error::Internal("a FILTER without a condition".into()))
    })?;
    Ok(others)
}

impl AggregateUDFImpl for FilteredAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> PlanResult<String> {
        self.inner.window_function_schema_name(&Self::params_with_filter(params))
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> PlanResult<String> {
        self.inner.window_function_display_name(&Self::params_with_filter(params))
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
            ReversedUDAF::Reversed(inner) => ReversedUDAF::Reversed(Self::wrap(inner)),
            other => other,
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Self::filtering_accumulator(&args, |args| self.inner.accumulator(args))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        Self::filtering_accumulator(&args, |args| self.inner.create_sliding_accumulator(args))
    }

    fn state_fields(&self, _: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        window_state_error()
    }
}

/// Returns an internal error: a window call has no partial state to merge.
pub fn window_state_error<T>() -> PlanResult<T> {
    Err(into_datafusion_error(Error::Internal("the state of a window's call".into())))
}

#[derive(Debug)]
struct FilteringAccumulator {
    inner: Box<dyn Accumulator>,
}

/// Filters the inner aggregate's arguments to the rows for which the condition is true; null is not true.
fn filter_arguments(arguments: &[ArrayRef]) -> PlanResult<Vec<ArrayRef>> {
    let others = without_condition(arguments)?;
    let condition = arguments[0].as_boolean();
    others.iter().map(|argument| Ok(filter(argument, condition)?)).collect()
}

impl Accumulator for FilteringAccumulator {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> PlanResult<()> {
        self.inner.update_batch(&filter_arguments(arguments)?)
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> PlanResult<()> {
        self.inner.retract_batch(&filter_arguments(arguments)?)
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
        window_state_error()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        window_state_error()
    }
}
