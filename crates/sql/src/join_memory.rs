//! Which joins hold a side in memory, and which sort both.
//!
//! A hash join is the faster one, and holds its left side whole. So the joins of a plan whose left sides are
//! the smallest are hash joins, as many as fit in a share of the budget by what is known of their rows; the
//! others sort, which spills. What is known is an estimate: a plan whose rows turn out more is run anew with
//! all joins sorted, by whoever runs it.

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

use crate::error_translation::into_datafusion_error;
use crate::scan_statistics::{ScanWithStatistics, estimate_row_bytes};

/// What a row counts in a hash table beside its columns: its hash, its number and a chain's link, and the
/// room that a table has left.
const HASH_ENTRY_BYTES: usize = 40;

/// The rule; it runs once it is settled which side of each join is held.
#[derive(Debug)]
pub(crate) struct JoinMemoryRule {
    /// What all sides that are held may take.
    pub build_bytes_max: usize,
}

impl PhysicalOptimizerRule for JoinMemoryRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        // In one partition nothing can be joined otherwise.
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

/// What the held side of a join takes.
enum BuildSideSize {
    /// It is held however large it is: `NOT IN` looks at all of it for a null.
    AlwaysHeld,
    Bytes(usize),
    /// Nobody knows before it is read.
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

/// About how many rows a step has; where it does not say, as many as the largest of its inputs. None of a
/// source of which nobody knows.
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

/// Which of the sides are held: the smallest, as long as they fit.
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

/// The condition with the columns of the left side before those of the right one: a join that sorts gives it them so,
/// whatever it says, and one whose sides were turned round says it the other way.
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
