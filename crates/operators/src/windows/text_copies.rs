//! Copies text out of view arrays below windows.
//!
//! A window keeps the rows that it may need again, and appends each batch to them. Appended views
//! keep the buffers that they point into alive, and cutting off finished rows drops no buffer: all rows
//! that a window has read would stay in memory, and each batch would pass through a longer
//! list of buffers. Below a window, the rule therefore casts text and bytes to contiguous arrays, which are
//! copied by their visible range, and casts them back to views above it.

use std::sync::Arc;
use tidemill_planning::DynTreeNode;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::{Cast, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Window;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// An optimizer rule that removes views below windows. It comes last, after the other rules have settled types.
#[derive(Debug)]
pub struct CopyTextBelowWindowsRule;

impl OptimizerRule for CopyTextBelowWindowsRule {
    fn name(&self) -> &str {
        "windows_copy_text"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Window(top) = &plan else { return Ok(Transformed::no(plan)) };
        // Windows directly above each other share the copies.
        let mut chain = vec![top];
        let mut last = top;
        while let LogicalPlan::Window(next) = last.input.as_ref() {
            chain.push(next);
            last = next;
        }
        if chain.iter().all(|window| !has_view_columns(window.input.schema())) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new_for_projection();
        let mut made = Arc::clone(&last.input);
        for window in chain.into_iter().rev() {
            if has_view_columns(made.schema()) {
                made = Arc::new(LogicalPlan::Projection(project_without_views(made)?));
            }
            let calls = window.window_expr.iter().cloned().map(|expr| {
                let name = names.save(&expr);
                Ok(name.restore(restore_call_types(expr, window.input.schema())?))
            });
            let calls = calls.collect::<PlanResult<_>>()?;
            made = Arc::new(LogicalPlan::Window(Window::try_new(calls, made)?));
        }
        let outputs = top.schema.iter().zip(made.schema().iter()).map(
            |((qualifier, wanted), (had, field))| {
                let column = Expr::Column(Column::from((had, field)));
                match wanted.data_type() == field.data_type() {
                    true => column,
                    false => cast_expr(column, wanted.data_type().clone())
                        .alias_qualified(qualifier.cloned(), wanted.name()),
                }
            },
        );
        let outputs = outputs.collect();
        let above = Projection::try_new_with_schema(outputs, made, Arc::clone(&top.schema))?;
        Ok(Transformed::yes(LogicalPlan::Projection(above)))
    }
}

fn has_view_columns(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| type_without_views(field.data_type()).is_some())
}

/// Projects the columns of a plan to types without views.
fn project_without_views(below: Arc<LogicalPlan>) -> PlanResult<Projection> {
    let schema = Arc::clone(below.schema());
    let inputs = schema.iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match type_without_views(field.data_type()) {
            Some(to) => cast_expr(column, to).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        }
    });
    Projection::try_new(inputs.collect(), below)
}

fn cast_expr(expr: Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to))
}

/// Returns the type with views replaced, or `None` if it contains no view.
fn type_without_views(data_type: &DataType) -> Option<DataType> {
    let within = |field: &FieldRef| {
        type_without_views(field.data_type())
            .map(|to| Arc::new(Field::clone(field).with_data_type(to)))
    };
    match data_type {
        DataType::Utf8View => Some(DataType::LargeUtf8),
        DataType::BinaryView => Some(DataType::LargeBinary),
        DataType::List(item) => within(item).map(DataType::List),
        DataType::LargeList(item) => within(item).map(DataType::LargeList),
        DataType::FixedSizeList(item, size) => {
            within(item).map(|item| DataType::FixedSizeList(item, *size))
        }
        DataType::Struct(fields) if fields.iter().any(|field| within(field).is_some()) => {
            let fields =
                fields.iter().map(|field| within(field).unwrap_or_else(|| Arc::clone(field)));
            Some(DataType::Struct(fields.collect()))
        }
        _ => None,
    }
}

/// Adapts a window call to copied columns. An argument that is a plain column stays one, so that nothing is cast
/// at each evaluation. Columns in other expressions are cast to the type for which the expression was planned.
fn restore_call_types(expr: Expr, below: &DFSchema) -> PlanResult<Expr> {
    let mut call = match expr {
        Expr::WindowFunction(call) => call,
        Expr::Alias(mut alias) => {
            *alias.expr = restore_call_types(*alias.expr, below)?;
            return Ok(Expr::Alias(alias));
        }
        other => return Ok(other),
    };
    let typed = |expr: &mut Expr| -> PlanResult<()> {
        if matches!(expr, Expr::Column(_)) {
            return Ok(());
        }
        let rewritten = std::mem::take(expr).transform_up_dyn(&mut |expr| {
            let to = match &expr {
                Expr::Column(_) => expr.get_type(below)?,
                _ => return Ok(Transformed::no(expr)),
            };
            Ok(match type_without_views(&to) {
                Some(_) => Transformed::yes(cast_expr(expr, to)),
                None => Transformed::no(expr),
            })
        });
        *expr = rewritten?.data;
        Ok(())
    };
    let WindowFunction { params, .. } = call.as_mut();
    params.args.iter_mut().try_for_each(typed)?;
    params.partition_by.iter_mut().try_for_each(typed)?;
    params.order_by.iter_mut().try_for_each(|key| typed(&mut key.expr))?;
    params.filter.iter_mut().try_for_each(|filter| typed(filter))?;
    Ok(Expr::WindowFunction(call))
}
