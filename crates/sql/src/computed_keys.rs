//! Windows and sorts over computed keys.
//!
//! A projection below the windows computes their partition and order keys, such as `PARTITION BY length(s) >
//! 5`, once for all windows that are stacked on one another. DataFusion would compute them for the sort and
//! again for each window. It also fails to recognize the order of expressions with functions within
//! operators. A sort by such a key therefore sorts by a column too: otherwise `ORDER BY length(s) > n` on
//! several threads would be refused.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchemaRef, Result as PlanResult};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Window;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use tidemill_planning::DynTreeNode;

/// Replaces computed keys of windows and sorts by columns.
#[derive(Debug)]
pub(crate) struct ComputedKeyRule;

impl OptimizerRule for ComputedKeyRule {
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
        if let LogicalPlan::Sort(sort) = &plan {
            return Ok(match sort_by_key_columns(sort)? {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(plan),
            });
        }
        let LogicalPlan::Window(top) = &plan else { return Ok(Transformed::no(plan)) };
        let chain = stacked_windows(top);
        let mut computed: Vec<&Expr> = Vec::new();
        for key in chain.iter().flat_map(|window| computed_window_keys(window)) {
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
        let (mut made, named) = add_key_columns(below, computed)?;
        let names = NamePreserver::new_for_projection();
        for window in chain.iter().rev() {
            let calls = window.window_expr.iter().map(|call| {
                let name = names.save(call);
                name.restore(replace_keys_by_columns(call.clone(), &named))
            });
            made = LogicalPlan::Window(Window::try_new(calls.collect(), Arc::new(made))?);
        }
        Ok(Transformed::yes(project_to_schema(made, &top.schema)?))
    }
}

/// Adds a column for each key to a plan, and returns the keys with the names of their columns.
fn add_key_columns<'k>(
    below: &Arc<LogicalPlan>,
    keys: Vec<&'k Expr>,
) -> PlanResult<(LogicalPlan, Vec<(&'k Expr, String)>)> {
    let taken = |name: &String| below.schema().has_column_with_unqualified_name(name);
    let mut names = (0_u32..).map(|index| format!("__key_{index}")).filter(|name| !taken(name));
    let named: Vec<(&Expr, String)> =
        keys.into_iter().filter_map(|key| Some((key, names.next()?))).collect();
    let own = below.schema().iter().map(|field| Expr::Column(Column::from(field)));
    let own = own.chain(named.iter().map(|(key, name)| (*key).clone().alias(name)));
    let made = Projection::try_new(own.collect(), Arc::clone(below))?;
    Ok((LogicalPlan::Projection(made), named))
}

/// Projects a plan to the columns of `schema`.
fn project_to_schema(plan: LogicalPlan, schema: &DFSchemaRef) -> PlanResult<LogicalPlan> {
    let outputs = schema.iter().map(|field| Expr::Column(Column::from(field)));
    let outputs = outputs.collect();
    let above = Projection::try_new_with_schema(outputs, Arc::new(plan), Arc::clone(schema))?;
    Ok(LogicalPlan::Projection(above))
}

/// Rewrites a sort by functions within operators as a sort by columns; returns `None` for other sorts.
fn sort_by_key_columns(sort: &Sort) -> PlanResult<Option<LogicalPlan>> {
    let mut computed: Vec<&Expr> = Vec::new();
    for key in sort.expr.iter().map(|key| &key.expr) {
        let mut is_function = |expr: &Expr| Ok(matches!(expr, Expr::ScalarFunction(_)));
        let is_operator = is_computed(key) && !matches!(key, Expr::ScalarFunction(_));
        if is_operator && !computed.contains(&key) && key.exists_dyn(&mut is_function)? {
            computed.push(key);
        }
    }
    if computed.is_empty() {
        return Ok(None);
    }
    let (made, named) = add_key_columns(&sort.input, computed)?;
    let mut keys = sort.expr.clone();
    for key in &mut keys {
        if let Some((_, name)) = named.iter().find(|(computed, _)| **computed == key.expr) {
            key.expr = Expr::Column(Column::new_unqualified(name));
        }
    }
    let sorted = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(made), fetch: sort.fetch });
    project_to_schema(sorted, sort.input.schema()).map(Some)
}

/// Returns a window and the windows stacked below it, as long as all their keys refer to columns that exist
/// below the last window.
fn stacked_windows(top: &Window) -> Vec<&Window> {
    let mut chain = vec![top];
    let mut last = top;
    while let LogicalPlan::Window(next) = last.input.as_ref() {
        let below = next.input.schema();
        let mut all = chain.iter().flat_map(|window| computed_window_keys(window));
        let is_below = |key: &Expr| key.column_refs().into_iter().all(|of| below.has_column(of));
        if !all.all(is_below) {
            break;
        }
        chain.push(next);
        last = next;
    }
    chain
}

fn window_call(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(call) => Some(call),
        Expr::Alias(alias) => window_call(&alias.expr),
        _ => None,
    }
}

/// Returns the keys of a window that are not columns.
fn computed_window_keys(window: &Window) -> impl Iterator<Item = &Expr> {
    let params = window.window_expr.iter().filter_map(|expr| Some(&window_call(expr)?.params));
    let all = params.flat_map(|params| {
        params.partition_by.iter().chain(params.order_by.iter().map(|key| &key.expr))
    });
    all.filter(|key| is_computed(key))
}

fn is_computed(key: &Expr) -> bool {
    !matches!(key, Expr::Column(_) | Expr::Literal(_, _))
}

/// Replaces the keys of a window call by columns.
fn replace_keys_by_columns(expr: Expr, named: &[(&Expr, String)]) -> Expr {
    let mut call = match expr {
        Expr::WindowFunction(call) => call,
        Expr::Alias(mut alias) => {
            *alias.expr = replace_keys_by_columns(*alias.expr, named);
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
