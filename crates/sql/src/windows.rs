//! Windows over computed keys, and over text.
//!
//! What a window's rows are parted and in order by is computed below it, once for all windows that stand
//! on one another: `PARTITION BY length(s) > 5`. DataFusion would compute it for the order and for each
//! window again, and misses the order of what has functions within operators.
//!
//! A window keeps the rows that it may need again, and appends each batch to them. Appended views
//! bring along the buffers that they point into, and cutting off the rows that are done with drops
//! none: whatever a window has seen would stay in memory, and each batch would pass through a longer
//! list of buffers. Below a window, text and bytes therefore lie in arrays of their own, which are
//! copied by what they show, and are views again above it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::{Cast, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Window;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawWindowExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Plans `row_number` and ranks as BIGINT, which counts are, too: DataFusion's have no sign, so that
/// `row_number() OVER () - 5` would be a DECIMAL and `-rank() OVER (…)` an error.
#[derive(Debug)]
pub(crate) struct Ranks;

impl ExprPlanner for Ranks {
    fn plan_window(&self, raw: RawWindowExpr) -> PlanResult<PlannerResult<RawWindowExpr>> {
        if !matches!(raw.func_def.name(), "row_number" | "rank" | "dense_rank" | "ntile") {
            return Ok(PlannerResult::Original(raw));
        }
        let params = WindowFunctionParams {
            args: raw.args,
            partition_by: raw.partition_by,
            order_by: raw.order_by,
            window_frame: raw.window_frame,
            filter: raw.filter,
            null_treatment: raw.null_treatment,
            distinct: raw.distinct,
        };
        let rank = Expr::WindowFunction(Box::new(WindowFunction { fun: raw.func_def, params }));
        Ok(PlannerResult::Planned(Expr::Cast(Cast::new(Box::new(rank), DataType::Int64))))
    }
}

/// The rule for keys.
#[derive(Debug)]
pub(crate) struct ComputedKeys;

impl OptimizerRule for ComputedKeys {
    fn name(&self) -> &str {
        "windows_have_columns_as_keys"
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
        let chain = chain(top);
        let mut computed: Vec<&Expr> = Vec::new();
        for key in chain.iter().flat_map(|window| keys(window)) {
            if !computed.contains(&key) {
                computed.push(key);
            }
        }
        let Some(below) = chain.last().map(|window| &window.input) else {
            return Ok(Transformed::no(plan));
        };
        if computed.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let taken = |name: &String| below.schema().has_column_with_unqualified_name(name);
        let mut names = (0_u32..).map(|index| format!("__key_{index}")).filter(|name| !taken(name));
        let named: Vec<(&Expr, String)> =
            computed.into_iter().filter_map(|key| Some((key, names.next()?))).collect();
        let own = below.schema().iter().map(|field| Expr::Column(Column::from(field)));
        let own = own.chain(named.iter().map(|(key, name)| (*key).clone().alias(name)));
        let mut made =
            LogicalPlan::Projection(Projection::try_new(own.collect(), Arc::clone(below))?);
        let names = NamePreserver::new_for_projection();
        for window in chain.iter().rev() {
            let calls = window.window_expr.iter().map(|call| {
                let name = names.save(call);
                name.restore(with_columns(call.clone(), &named))
            });
            made = LogicalPlan::Window(Window::try_new(calls.collect(), Arc::new(made))?);
        }
        let outputs = top.schema.iter().map(|field| Expr::Column(Column::from(field)));
        let outputs = outputs.collect();
        let above =
            Projection::try_new_with_schema(outputs, Arc::new(made), Arc::clone(&top.schema))?;
        Ok(Transformed::yes(LogicalPlan::Projection(above)))
    }
}

/// A window and those below it, one upon the other, as far as the keys of all are of columns that are
/// there below the last.
fn chain(top: &Window) -> Vec<&Window> {
    let mut chain = vec![top];
    let mut last = top;
    while let LogicalPlan::Window(next) = last.input.as_ref() {
        let below = next.input.schema();
        let mut all = chain.iter().flat_map(|window| keys(window));
        let is_below = |key: &Expr| key.column_refs().into_iter().all(|of| below.has_column(of));
        if !all.all(is_below) {
            break;
        }
        chain.push(next);
        last = next;
    }
    chain
}

fn call_of(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(call) => Some(call),
        Expr::Alias(alias) => call_of(&alias.expr),
        _ => None,
    }
}

/// The keys of a window that are no columns.
fn keys(window: &Window) -> impl Iterator<Item = &Expr> {
    let params = window.window_expr.iter().filter_map(|expr| Some(&call_of(expr)?.params));
    let all = params.flat_map(|params| {
        params.partition_by.iter().chain(params.order_by.iter().map(|key| &key.expr))
    });
    all.filter(|key| is_computed(key))
}

fn is_computed(key: &Expr) -> bool {
    !matches!(key, Expr::Column(_) | Expr::Literal(_, _))
}

/// A window's call with its keys as columns.
fn with_columns(expr: Expr, named: &[(&Expr, String)]) -> Expr {
    let mut call = match expr {
        Expr::WindowFunction(call) => call,
        Expr::Alias(mut alias) => {
            *alias.expr = with_columns(*alias.expr, named);
            return Expr::Alias(alias);
        }
        other => return other,
    };
    let WindowFunction { params, .. } = call.as_mut();
    let keys = params.partition_by.iter_mut();
    for key in keys.chain(params.order_by.iter_mut().map(|key| &mut key.expr)) {
        if let Some((_, name)) = named.iter().find(|(computed, _)| *computed == key) {
            *key = Expr::Column(Column::new_unqualified(name));
        }
    }
    Expr::WindowFunction(call)
}

/// The rule for text. It comes last: what others make of types is settled by then.
#[derive(Debug)]
pub(crate) struct CopiedText;

impl OptimizerRule for CopiedText {
    fn name(&self) -> &str {
        "windows_copy_text"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Window(window) = plan else { return Ok(Transformed::no(plan)) };
        let below = Arc::clone(window.input.schema());
        if below.fields().iter().all(|field| plain(field.data_type()).is_none()) {
            return Ok(Transformed::no(LogicalPlan::Window(window)));
        }
        let inputs = below.iter().map(|(qualifier, field)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            match plain(field.data_type()) {
                Some(to) => cast(column, to).alias_qualified(qualifier.cloned(), field.name()),
                None => column,
            }
        });
        let copied = Projection::try_new(inputs.collect(), Arc::clone(&window.input))?;
        let names = NamePreserver::new_for_projection();
        let calls = window.window_expr.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(as_before(expr, &below)?))
        });
        let calls = calls.collect::<PlanResult<_>>()?;
        let made = Window::try_new(calls, Arc::new(LogicalPlan::Projection(copied)))?;
        let outputs = window.schema.iter().zip(made.schema.iter()).map(
            |((qualifier, wanted), (had, field))| {
                let column = Expr::Column(Column::from((had, field)));
                match wanted.data_type() == field.data_type() {
                    true => column,
                    false => cast(column, wanted.data_type().clone())
                        .alias_qualified(qualifier.cloned(), wanted.name()),
                }
            },
        );
        let outputs = outputs.collect();
        let made = Arc::new(LogicalPlan::Window(made));
        let above = Projection::try_new_with_schema(outputs, made, window.schema)?;
        Ok(Transformed::yes(LogicalPlan::Projection(above)))
    }
}

fn cast(expr: Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to))
}

/// The type without views, if it has any.
fn plain(data_type: &DataType) -> Option<DataType> {
    let within = |field: &FieldRef| {
        plain(field.data_type()).map(|to| Arc::new(Field::clone(field).with_data_type(to)))
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

/// A window's call over copied columns. A column alone stays one, so that nothing is cast each time
/// that the call is evaluated; within other expressions it has the type that they were planned for.
fn as_before(expr: Expr, below: &DFSchema) -> PlanResult<Expr> {
    let mut call = match expr {
        Expr::WindowFunction(call) => call,
        Expr::Alias(mut alias) => {
            *alias.expr = as_before(*alias.expr, below)?;
            return Ok(Expr::Alias(alias));
        }
        other => return Ok(other),
    };
    let typed = |expr: &mut Expr| -> PlanResult<()> {
        if matches!(expr, Expr::Column(_)) {
            return Ok(());
        }
        let rewritten = std::mem::take(expr).transform_up(|expr| {
            let to = match &expr {
                Expr::Column(_) => expr.get_type(below)?,
                _ => return Ok(Transformed::no(expr)),
            };
            Ok(match plain(&to) {
                Some(_) => Transformed::yes(cast(expr, to)),
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
