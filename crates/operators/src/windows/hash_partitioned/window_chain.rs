//! Decides which windows of a plan run by hash partition, and collects their keys, calls and output columns.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use tidemill_planning::DynTreeNode;

use crate::windows::hash_partitioned::RunningAggregateFn;
use crate::windows::hash_partitioned::call_evaluation::WindowCall;
use crate::windows::hash_partitioned::row_order::are_types_sortable;

/// Windows on top of each other and of a sort. Between them stand only projections that rename, leave out or
/// cast columns.
pub(super) struct WindowChain {
    /// The input of the sort.
    pub input: Arc<dyn ExecutionPlan>,
    /// The keys that rows of one group share. A partition of each window consists of whole groups or lies
    /// within one.
    pub group_keys: Vec<PhysicalSortExpr>,
    /// The keys by which the rows of a group are ordered.
    pub order_keys: Vec<PhysicalSortExpr>,
    /// The distinct keys of the calls' windows; several calls may share an entry.
    pub window_keys: Vec<WindowKeys>,
    pub calls: Vec<WindowCall>,
    pub running_aggregate: Option<RunningAggregateFn>,
    /// Indices of the input columns that the output needs.
    pub input_columns: Vec<usize>,
    /// Schema of these columns and the calls' results, and the projection that makes the output of them;
    /// `None` if they are the output already.
    pub output_projection: Option<(SchemaRef, Vec<Arc<dyn PhysicalExpr>>)>,
}

/// The keys that delimit a call's partitions and peers, where they differ from those of the row order.
#[derive(PartialEq)]
pub(super) struct WindowKeys {
    pub partition_keys: Option<Vec<PhysicalSortExpr>>,
    pub peer_keys: PeerKeys,
}

#[derive(PartialEq)]
pub(super) enum PeerKeys {
    /// All keys of the row order.
    FullOrder,
    /// None: all rows of a partition are peers.
    WholePartition,
    OrderPrefix(Vec<PhysicalSortExpr>),
}

/// An operator of a chain.
enum ChainOperator<'a> {
    Windows(&'a [Arc<dyn WindowExpr>]),
    ColumnProjection(&'a ProjectionExec),
}

impl<'a> ChainOperator<'a> {
    fn from_plan(plan: &'a Arc<dyn ExecutionPlan>) -> Option<ChainOperator<'a>> {
        if let Some(step) = plan.downcast_ref::<WindowAggExec>() {
            return Some(ChainOperator::Windows(step.window_expr()));
        }
        if let Some(step) = plan.downcast_ref::<BoundedWindowAggExec>() {
            let is_sorted = step.input_order_mode == InputOrderMode::Sorted;
            return is_sorted.then(|| ChainOperator::Windows(step.window_expr()));
        }
        let step = plan.downcast_ref::<ProjectionExec>()?;
        let are_columns = step.expr().iter().all(|column| is_column_or_cast(&column.expr));
        are_columns.then_some(ChainOperator::ColumnProjection(step))
    }
}

/// Returns whether the expression is a column or a cast of one.
fn is_column_or_cast(expr: &Arc<dyn PhysicalExpr>) -> bool {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => is_column_or_cast(cast.expr()),
        None => expr.is::<Column>(),
    }
}

/// Replaces the columns of an expression by the expressions that define them.
fn substitute_columns(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
) -> PlanResult<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up_dyn(&mut |expr| {
            if let Some(column) = expr.downcast_ref::<Column>() {
                let made = columns.get(column.index());
                return Ok(
                    made.map_or(Transformed::no(expr), |made| Transformed::yes(Arc::clone(made)))
                );
            }
            // Text that was cast to a view type and back.
            let within = expr.downcast_ref::<CastExpr>().and_then(|outer| {
                let inner = outer.expr().downcast_ref::<CastExpr>()?;
                let is_same = inner.expr().data_type(schema).ok()? == *outer.cast_type();
                let is_view =
                    matches!(inner.cast_type(), DataType::Utf8View | DataType::BinaryView);
                (is_same && is_view).then(|| Arc::clone(inner.expr()))
            });
            Ok(within.map_or(Transformed::no(expr), Transformed::yes))
        })
        .data()
}

impl WindowChain {
    /// Returns the chain of windows at the top of a plan, or `None` if one of them does not qualify.
    pub(super) fn try_new(
        plan: &Arc<dyn ExecutionPlan>,
        running_totals: Option<RunningAggregateFn>,
    ) -> PlanResult<Option<WindowChain>> {
        if plan.downcast_ref::<ProjectionExec>().is_some() {
            return Ok(None);
        }
        let mut levels = Vec::new();
        let mut below = plan;
        while let Some(level) = ChainOperator::from_plan(below)
            && let [input] = below.children().as_slice()
        {
            levels.push(level);
            below = input;
        }
        let sort = match below.downcast_ref::<SortExec>() {
            Some(sort) if sort.fetch().is_none() && !levels.is_empty() => sort,
            _ => return Ok(None),
        };
        let input = Arc::clone(sort.input());
        let own = input.schema();
        // The calls are not known yet: their columns follow those of the input.
        let mut fields = own.fields().to_vec();
        let columns = fields.len();
        let mut made: Vec<Arc<dyn PhysicalExpr>> = own
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| Arc::new(Column::new(field.name(), index)) as _)
            .collect();
        let mut asked = Vec::new();
        for level in levels.into_iter().rev() {
            let windows = match level {
                ChainOperator::Windows(windows) => windows,
                ChainOperator::ColumnProjection(step) => {
                    let schema = Arc::new(Schema::new(fields.clone()));
                    let next = step
                        .expr()
                        .iter()
                        .map(|column| substitute_columns(&column.expr, &made, &schema));
                    made = next.collect::<PlanResult<_>>()?;
                    continue;
                }
            };
            let before = made.clone();
            for call in windows {
                let field = call.field()?;
                made.push(Arc::new(Column::new(field.name(), fields.len())));
                fields.push(field);
                asked.push((Arc::clone(call), before.clone()));
            }
        }
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let mut below = Vec::with_capacity(asked.len());
        for (call, columns) in &asked {
            let of = |expr: &Arc<dyn PhysicalExpr>| substitute_columns(expr, columns, &schema);
            let partition_by =
                call.partition_by().iter().map(of).collect::<PlanResult<Vec<_>>>()?;
            let order_by = call
                .order_by()
                .iter()
                .map(|key| Ok(PhysicalSortExpr { expr: of(&key.expr)?, options: key.options }));
            below.push((partition_by, order_by.collect::<PlanResult<Vec<_>>>()?));
        }
        let Some(fewest) = below.iter().map(|(by, _)| by).min_by_key(|by| by.len()) else {
            return Ok(None);
        };
        let keys: Vec<PhysicalSortExpr> = sort.expr().iter().cloned().collect();
        let (groups, within) = keys.split_at(fewest.len().min(keys.len()));
        let are_groups = !fewest.is_empty()
            && groups.len() == fewest.len()
            && groups.iter().all(|key| fewest.contains(&key.expr));
        let types = keys.iter().map(|key| key.expr.data_type(&own));
        let types = types.collect::<PlanResult<Vec<_>>>()?;
        if !are_groups || !are_types_sortable(types.into_iter()) {
            return Ok(None);
        }
        let mut chain = WindowChain {
            group_keys: groups.to_vec(),
            order_keys: within.to_vec(),
            window_keys: Vec::new(),
            calls: Vec::new(),
            running_aggregate: running_totals,
            input_columns: Vec::new(),
            output_projection: None,
            input,
        };
        for ((call, made), (partition_by, order_by)) in asked.iter().zip(&below) {
            let Some(over) = chain.window_keys_for(partition_by, order_by) else { return Ok(None) };
            let is_of_groups = over.partition_keys.is_none();
            let span = match chain.window_keys.iter().position(|span| *span == over) {
                Some(span) => span,
                None => {
                    chain.window_keys.push(over);
                    chain.window_keys.len() - 1
                }
            };
            let of = CallInputColumns {
                definitions: made,
                definition_schema: &schema,
                input_column_count: columns,
            };
            let Some(call) = WindowCall::try_new(call, &of, span, is_of_groups)? else {
                return Ok(None);
            };
            chain.calls.push(call);
        }
        chain.set_output_columns(&made, columns, &schema)?;
        Ok(Some(chain))
    }

    /// Settles the output columns and their projection.
    fn set_output_columns(
        &mut self,
        made: &[Arc<dyn PhysicalExpr>],
        columns: usize,
        schema: &SchemaRef,
    ) -> PlanResult<()> {
        let used: HashSet<usize> =
            made.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        self.input_columns = (0..columns).filter(|index| used.contains(index)).collect();
        let there: Vec<usize> =
            self.input_columns.iter().copied().chain(columns..schema.fields().len()).collect();
        let fields: Vec<_> =
            there.iter().map(|&index| Arc::clone(&schema.fields()[index])).collect();
        let mut moved: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            let at = there.iter().position(|there| *there == index).unwrap_or(0);
            moved.push(Arc::new(Column::new(field.name(), at)));
        }
        let made = made.iter().map(|expr| substitute_columns(expr, &moved, schema));
        let made = made.collect::<PlanResult<Vec<_>>>()?;
        let is_it = |(index, expr): (usize, &Arc<dyn PhysicalExpr>)| {
            expr.downcast_ref::<Column>().is_some_and(|column| column.index() == index)
        };
        if made.len() != fields.len() || !made.iter().enumerate().all(is_it) {
            self.output_projection = Some((Arc::new(Schema::new(fields)), made));
        }
        Ok(())
    }

    /// Returns the keys of a call's window, or `None` if its rows would have to be sorted again.
    fn window_keys_for(
        &self,
        partition_by: &[Arc<dyn PhysicalExpr>],
        order_by: &[PhysicalSortExpr],
    ) -> Option<WindowKeys> {
        // Partition keys that are not group keys come next in the order.
        let more: HashSet<&Arc<dyn PhysicalExpr>> = partition_by
            .iter()
            .filter(|key| self.group_keys.iter().all(|group| !group.expr.eq(key)))
            .collect();
        let (next, rest) = self.order_keys.split_at_checked(more.len())?;
        if partition_by.len() != self.group_keys.len() + more.len()
            || !next.iter().all(|key| more.contains(&key.expr))
        {
            return None;
        }
        let all = |keys: &[PhysicalSortExpr]| [self.group_keys.as_slice(), keys].concat();
        let partitions = (!more.is_empty()).then(|| all(next));
        // An order key that is also a partition key does not distinguish rows of a partition.
        let order_by: Vec<&PhysicalSortExpr> =
            order_by.iter().filter(|key| !partition_by.contains(&key.expr)).collect();
        let is_order = rest.len() >= order_by.len()
            && order_by.iter().zip(rest).all(|(key, there)| **key == *there);
        let equals = match order_by.len() {
            0 => PeerKeys::WholePartition,
            _ if !is_order => return None,
            count if count == rest.len() => PeerKeys::FullOrder,
            count => PeerKeys::OrderPrefix(all(&self.order_keys[..more.len() + count])),
        };
        Some(WindowKeys { partition_keys: partitions, peer_keys: equals })
    }

    /// Returns whether the order of rows within a group matters.
    pub(super) fn needs_row_order(&self) -> bool {
        self.calls.iter().any(WindowCall::needs_row_order)
    }
}

/// The columns that the expressions of a call refer to.
pub(super) struct CallInputColumns<'a> {
    /// Definition of each column, in terms of the input's columns and the results of the calls below.
    pub definitions: &'a [Arc<dyn PhysicalExpr>],
    /// Schema of the columns that the definitions refer to.
    pub definition_schema: &'a SchemaRef,
    /// Number of input columns, which come first in the schema.
    pub input_column_count: usize,
}

impl CallInputColumns<'_> {
    /// Rewrites an expression to the input's columns. Returns `None` if it needs other columns, or if its
    /// result for a hash partition may be larger than the partition itself.
    pub(super) fn rewrite_to_input(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> PlanResult<Option<Arc<dyn PhysicalExpr>>> {
        let expr = substitute_columns(expr, self.definitions, self.definition_schema)?;
        Ok((self.uses_input_only(&expr)
            && is_fixed_width_expression(&expr, self.definition_schema)?)
        .then_some(expr))
    }

    /// Returns whether an expression refers to the input's columns alone.
    pub(super) fn uses_input_only(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        collect_columns(expr).iter().all(|column| column.index() < self.input_column_count)
    }
}

/// Returns whether neither an expression nor its operands produce texts or lists, which may have any length
/// (`repeat`): it is evaluated over a whole hash partition.
fn is_fixed_width_expression(expr: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> PlanResult<bool> {
    if expr.is::<Literal>() || is_column_or_cast(expr) {
        return Ok(true);
    }
    let made = expr.data_type(schema)?;
    let mut is_little = made.is_primitive() || matches!(made, DataType::Boolean | DataType::Null);
    for child in expr.children() {
        is_little = is_little && is_fixed_width_expression(child, schema)?;
    }
    Ok(is_little)
}
