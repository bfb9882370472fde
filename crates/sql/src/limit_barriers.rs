//! A rule that keeps sorts above the limits below them.
//!
//! `EnsureRequirements` moves a required order down the plan to the place where sorting is cheapest. It moves it
//! through a `GlobalLimitExec` too, because a limit outputs rows in the order of its input. But a sort below a limit
//! changes the rows that the limit keeps: `SELECT x FROM (SELECT x FROM t LIMIT 2) ORDER BY x` returns the two smallest
//! rows of `t`, and with an OFFSET the moved sort keeps too few rows for the limit to skip. Windows, groups and
//! sort-merge joins require an order as well.
//!
//! [`LimitBarrierRule`] runs the rule once for the plan below each limit that has operators above it, and once for the
//! plan above, in which a leaf replaces the limit. Nothing moves through a leaf. A plan has few limits, so this costs
//! microseconds.
//!
//! A limit takes the first rows in the order of the sources if only order-preserving operators such as filters and
//! projections are between it and its sources. So the plan below it runs on one partition, which reads the splits one
//! after another. Several threads would output rows in no fixed order, and the limit would keep different rows in
//! each run. The rest of the plan keeps its threads. A sorted branch of a `UNION ALL` also keeps its position: a leaf
//! without a known order stands in for it, so that the rule neither merges the branches by their order nor removes its
//! threads.

use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use crate::scan_statistics::ScanWithStatistics;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_operators::ordered_unions::OrderedUnionRule;

/// DataFusion's rule that places sorts, restricted so that no sort moves through a limit.
#[derive(Debug)]
pub(crate) struct LimitBarrierRule {
    /// DataFusion's rule.
    pub datafusion_rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for LimitBarrierRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let ordered = plan.transform_down_dyn(&mut |step| match is_limit(&step)
            && is_in_source_order(&step)
        {
            true => read_splits_in_order(step),
            false => Ok(Transformed::no(step)),
        });
        let above = self.replace_limits_by_leaves(ordered.data()?, true, config)?;
        restore_limits(self.datafusion_rule.optimize(above, config)?)
    }

    fn name(&self) -> &str {
        self.datafusion_rule.name()
    }

    fn schema_check(&self) -> bool {
        self.datafusion_rule.schema_check()
    }
}

impl LimitBarrierRule {
    /// Replaces limits by leaves, each with the limit and the plan below it as optimized by the rule.
    ///
    /// A limit stays if only projections, output requirements and other limits are above it (`is_top`), because no sort
    /// can move through it then. It is still replaced if its rows come in the order of its sources.
    fn replace_limits_by_leaves(
        &self,
        step: Arc<dyn ExecutionPlan>,
        is_top: bool,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let passes = step.is::<ProjectionExec>() || step.is::<OutputRequirementExec>();
        let is_below_top = is_top && (passes || is_limit(&step));
        let inputs = step.children().into_iter().map(Arc::clone);
        let inputs = inputs.map(|input| self.replace_limits_by_leaves(input, is_below_top, config));
        let inputs = inputs.collect::<PlanResult<Vec<_>>>()?;
        let step = replace_children_if_necessary(step, inputs)?;
        let is_ordered = is_limit(&step) && is_in_source_order(&step);
        if !is_limit(&step) || is_top && !is_ordered {
            return Ok(step);
        }
        let plan = match is_ordered {
            true => self.optimize_in_source_order(
                self.replace_sorts_by_leaves(step, false, config)?,
                config,
            )?,
            // The rule removes a sort whose columns a projection leaves out, although an OFFSET depends on it.
            false if is_sorted(&step) => self
                .datafusion_rule
                .optimize(self.replace_sorts_by_leaves(step, true, config)?, config)?,
            false => self.datafusion_rule.optimize(step, config)?,
        };
        let properties = Arc::clone(plan.properties());
        Ok(Arc::new(LimitLeaf { plan, properties, is_ordered }))
    }

    /// Replaces the topmost sorts below a limit by leaves, each with the sort and the plan below it as optimized by the
    /// rule. A leaf declares its order only if `tells_order`; otherwise sorted sources are replaced, too.
    fn replace_sorts_by_leaves(
        &self,
        limit: Arc<dyn ExecutionPlan>,
        tells_order: bool,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let cut = limit.transform_down_dyn(&mut |step| {
            // `range()` is sorted without a sort.
            let is_sorted_source = step.children().is_empty() && step.output_ordering().is_some();
            if !step.is::<SortExec>() && (tells_order || !is_sorted_source) {
                return Ok(Transformed::no(step));
            }
            let plan = self.datafusion_rule.optimize(step, config)?;
            let mut of_rows = plan.equivalence_properties().clone();
            if !tells_order {
                of_rows.clear_orderings();
            }
            let (pipeline, boundedness) = (plan.pipeline_behavior(), plan.boundedness());
            let partitioning = plan.output_partitioning().clone();
            let properties = PlanProperties::new(of_rows, partitioning, pipeline, boundedness);
            let properties = Arc::new(properties);
            let leaf = LimitLeaf { plan, properties, is_ordered: true };
            Ok(Transformed::new(Arc::new(leaf) as _, true, TreeNodeRecursion::Jump))
        });
        cut.data()
    }

    /// Runs the rule for a limit that takes the first rows of its sources, without repartitioning them.
    fn optimize_in_source_order(
        &self,
        limit: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let mut config = config.clone();
        config.execution.target_partitions = 1;
        config.optimizer.enable_round_robin_repartition = false;
        OrderedUnionRule.optimize(self.datafusion_rule.optimize(limit, &config)?, &config)
    }
}

/// Returns whether the rows of an operator come in the order of the sources below it; a sorted branch of a union is a
/// source.
fn is_in_source_order(step: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(leaf) = step.downcast_ref::<LimitLeaf>() {
        return leaf.is_ordered;
    }
    if step.is::<UnionExec>() {
        return step
            .children()
            .into_iter()
            .all(|branch| is_sorted(branch) || is_in_source_order(branch));
    }
    let keeps_order =
        step.is::<UnnestExec>() || !step.is::<SortExec>() && preserves_input_order(step);
    keeps_order && step.children().into_iter().all(is_in_source_order)
}

/// Returns whether only operators that preserve the order of rows are above a sort.
fn is_sorted(step: &Arc<dyn ExecutionPlan>) -> bool {
    match step.children()[..] {
        _ if step.is::<SortExec>() => true,
        [input] => preserves_input_order(step) && is_sorted(input),
        _ => false,
    }
}

fn preserves_input_order(step: &Arc<dyn ExecutionPlan>) -> bool {
    step.maintains_input_order().into_iter().all(|is_kept| is_kept)
        && step.required_input_ordering().iter().all(Option::is_none)
}

/// Makes the scans below an operator read their splits one after another.
fn read_splits_in_order(
    step: Arc<dyn ExecutionPlan>,
) -> PlanResult<Transformed<Arc<dyn ExecutionPlan>>> {
    step.transform_down_dyn(&mut |step| {
        if step.is::<SortExec>() {
            // A sort reads on all threads.
            return Ok(Transformed::new(step, false, TreeNodeRecursion::Jump));
        }
        let scan = step
            .downcast_ref::<ScanWithStatistics>()
            .map(ScanWithStatistics::single_partition_scan)
            .transpose()?;
        Ok(match scan.flatten() {
            Some(scan) => Transformed::yes(scan as _),
            None => Transformed::no(step),
        })
    })
}

fn is_limit(step: &Arc<dyn ExecutionPlan>) -> bool {
    step.is::<GlobalLimitExec>() || step.is::<LocalLimitExec>()
}

/// Replaces the leaves by their limits and sorts.
fn restore_limits(plan: Arc<dyn ExecutionPlan>) -> PlanResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up_dyn(&mut |step| match step.downcast_ref::<LimitLeaf>() {
        Some(leaf) => Ok(Transformed::yes(restore_limits(Arc::clone(&leaf.plan))?)),
        None => Ok(Transformed::no(step)),
    })
    .data()
}

/// An operator without inputs that stands in for a limit, or a sort below one, and the plan below it.
#[derive(Debug)]
struct LimitLeaf {
    plan: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    /// True if the rows have the order of the sources.
    is_ordered: bool,
}

impl DisplayAs for LimitLeaf {
    fn fmt_as(
        &self,
        format: DisplayFormatType,
        f: &mut std::fmt::Formatter<'_>,
    ) -> std::fmt::Result {
        self.plan.fmt_as(format, f)
    }
}

impl ExecutionPlan for LimitLeaf {
    fn name(&self) -> &str {
        "LimitLeaf"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => {
                Err(into_datafusion_error(Error::Internal("a leaf was given an input".into())))
            }
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        self.plan.execute(partition, context)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let args = StatisticsArgs::new().with_partition(args.partition());
        StatisticsContext::new().compute(self.plan.as_ref(), &args)
    }
}
