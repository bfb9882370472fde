//! Choice between hash joins and sort-merge joins, by memory.
//!
//! A hash join is faster, and holds its left side, the build side, in memory. So the joins with the smallest
//! build sides are hash joins, as many as fit in a share of the budget by their estimated rows. The other
//! joins become sort-merge joins, which spill. If a plan has more rows than estimated, its caller runs it
//! again with sort-merge joins only.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::Schema;
use datafusion::common::JoinSide;
use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use crate::scan_statistics::{ScanWithStatistics, estimate_row_bytes};
use tidemill_dialect::error_translation::into_datafusion_error;

/// Bytes of a row in a hash table in addition to its columns: its hash, its index, the link of its chain, and
/// the free capacity of the table.
const HASH_ENTRY_BYTES: usize = 40;

/// Replaces the largest hash joins by sort-merge joins. The rule runs after the build side of each join is
/// chosen.
#[derive(Debug)]
pub(crate) struct JoinMemoryRule {
    /// Maximum bytes of all build sides together.
    pub build_bytes_max: usize,
}

impl PhysicalOptimizerRule for JoinMemoryRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        // With one partition, or without repartitioning, only hash joins are possible.
        if config.execution.target_partitions < 2 || !config.optimizer.repartition_joins {
            return Ok(plan);
        }
        let mut sides = Vec::new();
        let plan = plan
            .transform_up_dyn(&mut |step| {
                if let Some(join) = step.downcast_ref::<HashJoinExec>() {
                    sides.push(build_side_size(join));
                }
                Ok(Transformed::no(step))
            })
            .data()?;
        let is_held = choose_hash_joins(&sides, self.build_bytes_max);
        let mut is_held = is_held.into_iter();
        plan.transform_up_dyn(&mut |step| {
            let Some(join) = step.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(step));
            };
            match is_held.next() {
                Some(false) => Ok(Transformed::yes(sort_merge_join(join)?)),
                _ => Ok(Transformed::no(step)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "joins_in_memory"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The size of a join's build side.
enum BuildSideSize {
    /// The join must be a hash join, however large the build side is: `NOT IN` searches all of it for a null.
    AlwaysHeld,
    Bytes(usize),
    /// Unknown until it is read.
    Unknown,
}

fn build_side_size(join: &HashJoinExec) -> BuildSideSize {
    if join.null_aware {
        return BuildSideSize::AlwaysHeld;
    }
    match estimate_rows(join.left()) {
        Some(rows) => {
            let each = estimate_row_bytes(&join.left().schema()) + HASH_ENTRY_BYTES;
            BuildSideSize::Bytes(rows.saturating_mul(each))
        }
        None => BuildSideSize::Unknown,
    }
}

/// Returns the approximate number of rows of an operator. Without an estimate, the largest input counts.
/// Returns `None` if a source below has no estimate.
fn estimate_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok();
    if let Some(rows) = known.and_then(|known| known.num_rows.get_value().copied()) {
        return Some(rows);
    }
    if plan.downcast_ref::<ScanWithStatistics>().is_some() {
        return None;
    }
    plan.children().into_iter().try_fold(0, |most, input| Some(estimate_rows(input)?.max(most)))
}

/// Chooses the build sides to hold in memory: the smallest ones, as long as they fit.
fn choose_hash_joins(sides: &[BuildSideSize], bytes_max: usize) -> Vec<bool> {
    let mut is_held: Vec<bool> =
        sides.iter().map(|side| matches!(side, BuildSideSize::AlwaysHeld)).collect();
    let mut sized: Vec<(usize, usize)> = sides
        .iter()
        .enumerate()
        .filter_map(|(index, side)| match side {
            BuildSideSize::Bytes(bytes) => Some((*bytes, index)),
            _ => None,
        })
        .collect();
    sized.sort_unstable();
    let mut sum = 0usize;
    for (bytes, index) in sized {
        sum = sum.saturating_add(bytes);
        is_held[index] = sum <= bytes_max;
    }
    is_held
}

fn sort_merge_join(join: &HashJoinExec) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let sorted: Arc<dyn ExecutionPlan> = Arc::new(SortMergeJoinExec::try_new(
        Arc::clone(join.left()),
        Arc::clone(join.right()),
        join.on().to_vec(),
        join.filter().map(put_left_columns_first).transpose()?,
        *join.join_type(),
        vec![SortOptions::default(); join.on().len()],
        join.null_equality(),
    )?);
    let Some(columns) = join.projection.as_deref() else { return Ok(sorted) };
    let schema = sorted.schema();
    let columns = columns.iter().map(|&index| {
        let name = schema.field(index).name();
        ProjectionExpr { expr: Arc::new(Column::new(name, index)), alias: name.clone() }
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), sorted)?))
}

/// Puts the columns of the left side before those of the right side in a join condition. A sort-merge join
/// passes them in this order whatever the condition says, and a join with swapped sides has them in the other
/// order.
fn put_left_columns_first(condition: &JoinFilter) -> PlanResult<JoinFilter> {
    let (from, fields) = (condition.column_indices(), condition.schema().fields());
    let mut order: Vec<usize> = (0..from.len()).collect();
    order.sort_by_key(|&index| from[index].side != JoinSide::Left);
    let expression = Arc::clone(condition.expression()).transform_up_dyn(&mut |part| {
        let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let place = order.iter().position(|&index| index == column.index());
        let place = place
            .ok_or_else(|| into_datafusion_error(Error::Internal("a join of what?".into())))?;
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), place)) as _))
    });
    let fields: Vec<_> = order.iter().map(|&index| Arc::clone(&fields[index])).collect();
    let metadata = condition.schema().metadata().clone();
    Ok(JoinFilter::new(
        expression.data()?,
        order.iter().map(|&index| from[index].clone()).collect(),
        Arc::new(Schema::new_with_metadata(fields, metadata)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_build_sides_are_held_while_they_fit() {
        use BuildSideSize::{AlwaysHeld, Bytes, Unknown};
        for (sides, expected) in [
            (vec![Bytes(5), Bytes(1), Bytes(3)], vec![false, true, true]),
            (vec![Unknown, Bytes(0), AlwaysHeld], vec![false, true, true]),
            (vec![AlwaysHeld, Bytes(6)], vec![true, false]),
            (vec![Bytes(usize::MAX), Bytes(2), Bytes(2)], vec![false, true, true]),
            (vec![], vec![]),
        ] {
            assert_eq!(choose_hash_joins(&sides, 5), expected);
        }
    }
}
