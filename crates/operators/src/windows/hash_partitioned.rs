//! Windows over partitions, without a sort of all rows: `rank() OVER (PARTITION BY user ORDER BY ts)`.
//!
//! DataFusion sorts all rows by the keys of PARTITION BY and ORDER BY, and hands one SQL partition after the
//! other to each call. But the order of rows matters only within a SQL partition. This operator therefore
//! scatters rows by the hash of their keys to hash partitions that fit in a core's cache
//! ([`row_partitioning`]). In each hash partition it counts the rows into their groups and sorts each group by
//! itself, which costs the logarithm of the group's row count instead of that of all rows ([`row_order`]).
//! Calls are evaluated for all groups of a hash partition in one loop where they can be
//! ([`call_evaluation`]). [`window_chain`] decides which windows qualify. If no call needs an order, nothing is
//! sorted or moved. DuckDB, too, partitions rows by hash before it sorts them.
//!
//! All rows are held until the input ends, because a partition may continue until then. Rows that do not fit in
//! the operator's share of memory go to DataFusion's operators after all: first the held rows, then the rest of
//! the input. Those operators sort, and the sort spills. They also run the calls with results of another form
//! (lists, texts of any length).
//!
//! The output is unordered, where DataFusion's would be in the order of the keys. The rule leaves the plan as
//! it is if an operator above requires an order, or if there is one thread, because the query may have asked
//! for an order. If all rows are one hash partition, they come in the order of their keys.

mod call_evaluation;
mod row_order;
mod row_partitioning;
mod window_chain;

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tidemill_base::error::Error;

use crate::expression_memory::ExpressionMemoryRule;
use crate::windows::running_totals::RunningTotalsRule;
use crate::windows::whole_partitions::WholePartitionsRule;
use crate::windows::window_output::OUTPUT_PORTION_BYTES;
use call_evaluation::{CallBoundaries, CallOutput, EvaluationContext};
use row_order::{PartitionRowOrder, RangeStarts, RowOrderKeys};
use row_partitioning::HashPartitionedRows;
use tidemill_planning::error_carrier::into_datafusion_error;
use window_chain::{PeerKeys, WindowChain};

/// The operator's name, in plans and in the memory pool.
pub(crate) const HASH_PARTITIONED_WINDOW_CONSUMER: &str = "WindowsInParts";

/// Bytes that a row of the evaluated hash partition takes beside its values: group, position and key code.
const PARTITION_ROW_BYTES: usize = 48;

/// Maximum number of rows and of bytes of a hash partition: row numbers and text offsets have 32 bits.
const PARTITION_SIZE_MAX: usize = 1 << 30;

/// A function that computes an aggregate of one argument for the rows of each group up to the end of each of
/// the group's steps. It receives the argument's values in order, the offsets at which groups begin and those
/// at which steps begin, both followed by the end. A step lies within one group. The function returns `None`
/// for an aggregate that it cannot compute in one loop.
pub type RunningAggregateFn =
    fn(&AggregateFunctionExpr, &ArrayRef, &[u32], &[u32]) -> PlanResult<Option<ArrayRef>>;

/// A physical rule that replaces windows and the sort below them by [`HashPartitionedWindowExec`].
#[derive(Debug)]
pub struct HashPartitionedWindowsRule {
    /// Maximum size in bytes of the output of an operator's expressions at a time.
    pub expression_bytes_max: u64,
    /// Computes running aggregates over sorted partitions, if the session has one.
    pub running_aggregate: Option<RunningAggregateFn>,
}

impl PhysicalOptimizerRule for HashPartitionedWindowsRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        // The rows of one thread may be in an order that the query asked for; the plan no longer tells.
        let is_one = plan.output_partitioning().partition_count() == 1;
        self.replace_windows(plan, is_one)
    }

    fn name(&self) -> &str {
        "windows_in_parts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl HashPartitionedWindowsRule {
    /// Replaces windows where possible; `is_ordered` says that the order of the plan's rows matters.
    fn replace_windows(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        is_ordered: bool,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if !is_ordered && let Some(chain) = WindowChain::try_new(&plan, self.running_aggregate)? {
            let input = self.replace_windows(Arc::clone(&chain.input), false)?;
            return Ok(Arc::new(HashPartitionedWindowExec::new(
                plan,
                chain,
                input,
                self.expression_bytes_max,
            )));
        }
        let required = plan.required_input_ordering();
        let maintains = plan.maintains_input_order();
        let children: Vec<_> = plan.children().into_iter().cloned().collect();
        let mut is_other = false;
        let placed = children.into_iter().enumerate().map(|(index, child)| {
            let is_ordered = required.get(index).is_some_and(Option::is_some)
                || is_ordered && maintains.get(index).copied().unwrap_or(true);
            let placed = self.replace_windows(Arc::clone(&child), is_ordered)?;
            is_other |= !Arc::ptr_eq(&placed, &child);
            Ok(placed)
        });
        let placed = placed.collect::<PlanResult<Vec<_>>>()?;
        match is_other {
            true => with_children(&plan, placed),
            false => Ok(plan),
        }
    }
}

fn with_children(
    plan: &Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(children, options)
}

/// The operator that evaluates a chain of windows by hash partition.
struct HashPartitionedWindowExec {
    /// DataFusion's operators, which this operator replaces.
    datafusion_plan: Arc<dyn ExecutionPlan>,
    chain: Arc<WindowChain>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    expression_bytes_max: u64,
}

impl HashPartitionedWindowExec {
    fn new(
        theirs: Arc<dyn ExecutionPlan>,
        chain: WindowChain,
        input: Arc<dyn ExecutionPlan>,
        bytes_max: u64,
    ) -> Self {
        // Equal columns stay equal, whatever the order.
        let mut equals = theirs.equivalence_properties().clone();
        equals.clear_orderings();
        let properties = PlanProperties::new(
            equals,
            theirs.output_partitioning().clone(),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (chain, properties) = (Arc::new(chain), Arc::new(properties));
        HashPartitionedWindowExec {
            datafusion_plan: theirs,
            chain,
            input,
            properties,
            expression_bytes_max: bytes_max,
        }
    }
}

impl fmt::Debug for HashPartitionedWindowExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(HASH_PARTITIONED_WINDOW_CONSUMER)
            .field("theirs", &self.datafusion_plan)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for HashPartitionedWindowExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.datafusion_plan.fmt_as(format, f)
    }
}

impl ExecutionPlan for HashPartitionedWindowExec {
    fn name(&self) -> &str {
        HASH_PARTITIONED_WINDOW_CONSUMER
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
        let [input] = <[_; 1]>::try_from(children)
            .map_err(|_| into_datafusion_error(Error::Internal("windows have one input".into())))?;
        Ok(Arc::new(HashPartitionedWindowExec {
            datafusion_plan: Arc::clone(&self.datafusion_plan),
            chain: Arc::clone(&self.chain),
            input,
            properties: Arc::clone(&self.properties),
            expression_bytes_max: self.expression_bytes_max,
        }))
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
        let consumer =
            MemoryConsumer::new(format!("{HASH_PARTITIONED_WINDOW_CONSUMER}[{partition}]"))
                .with_can_spill(true);
        let keys = self.chain.group_keys.iter().map(|key| Arc::clone(&key.expr)).collect();
        let step = WindowExecution {
            datafusion_plan: Arc::clone(&self.datafusion_plan),
            chain: Arc::clone(&self.chain),
            expression_bytes_max: self.expression_bytes_max,
            context: Arc::clone(&context),
        };
        let gathering = InputCollection {
            execution: step,
            reservation: consumer.register(context.memory_pool()),
            rows: HashPartitionedRows::new(self.input.schema(), keys),
            input: self.input.execute(partition, context)?,
        };
        let answers =
            stream::once(gathering.collect_and_evaluate()).flat_map(|answers| match answers {
                Ok(answers) => answers,
                Err(error) => stream::once(async { Err(error) }).boxed(),
            });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.datafusion_plan.schema(), answers)))
    }
}

type BoxedBatchStream = futures::stream::BoxStream<'static, PlanResult<RecordBatch>>;

/// The parts of the operator that an execution needs.
struct WindowExecution {
    datafusion_plan: Arc<dyn ExecutionPlan>,
    chain: Arc<WindowChain>,
    expression_bytes_max: u64,
    context: Arc<TaskContext>,
}

impl WindowExecution {
    /// Runs DataFusion's operators over `rows`.
    fn run_datafusion_plan(
        &self,
        schema: SchemaRef,
        rows: BoxedBatchStream,
    ) -> PlanResult<BoxedBatchStream> {
        let rows: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows));
        let rows = OneTimeStream { schema: Arc::clone(&schema), stream: Mutex::new(Some(rows)) };
        let rows =
            StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, [], false, None)?;
        let plan = replace_chain_input(&self.datafusion_plan, Arc::new(rows))?;
        let config = self.context.session_config().options();
        let plan = WholePartitionsRule.optimize(plan, config)?;
        let plan = RunningTotalsRule.optimize(plan, config)?;
        let plan = ExpressionMemoryRule { expression_bytes_max: self.expression_bytes_max }
            .optimize(plan, config)?;
        Ok(plan.execute(0, Arc::clone(&self.context))?.boxed())
    }
}

/// The first phase of an execution: collects the input.
struct InputCollection {
    execution: WindowExecution,
    /// Memory reservation for the collected rows.
    reservation: MemoryReservation,
    rows: HashPartitionedRows,
    input: SendableRecordBatchStream,
}

impl InputCollection {
    async fn collect_and_evaluate(mut self) -> PlanResult<BoxedBatchStream> {
        while let Some(batch) = self.input.next().await.transpose()? {
            if batch.num_rows() == 0 {
                continue;
            }
            self.rows.push(&batch)?;
            if !is_memory_granted(self.reservation.try_resize(self.rows.bytes()))? {
                return self.fall_back_to_datafusion();
            }
        }
        let (bytes, rows) = self.rows.largest_partition_size();
        let work = self.reservation.new_empty();
        let calls = self.execution.chain.calls.len();
        let is_granted = bytes < PARTITION_SIZE_MAX
            && rows < PARTITION_SIZE_MAX
            && is_memory_granted(
                work.try_grow(2 * bytes + rows * (PARTITION_ROW_BYTES + 16 * calls)),
            )?;
        if !is_granted {
            drop(work);
            return self.fall_back_to_datafusion();
        }
        let answering = PartitionEvaluation {
            execution: self.execution,
            rows: self.rows,
            next_partition: 0,
            evaluated_partition: None,
            partition_reservation: work,
            _rows_reservation: self.reservation,
            fallback_output: None,
        };
        let batches = stream::try_unfold(answering, |mut answering| async move {
            Ok(answering.next_batch().await?.map(|batch| (batch, answering)))
        });
        Ok(batches.boxed())
    }

    /// Hands all rows to DataFusion's operators.
    fn fall_back_to_datafusion(self) -> PlanResult<BoxedBatchStream> {
        // From here on the sort accounts for the rows.
        drop(self.reservation);
        let schema = self.input.schema();
        let rows = stream::iter(self.rows.into_batches().map(Ok)).chain(self.input);
        self.execution.run_datafusion_plan(schema, rows.boxed())
    }
}

/// Returns whether memory was granted; passes on any error but exhaustion.
fn is_memory_granted(answer: PlanResult<()>) -> PlanResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(DataFusionError::ResourcesExhausted(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Rebuilds windows and their sort over another input.
fn replace_chain_input(
    plan: &Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let input = match (plan.downcast_ref::<SortExec>(), plan.children().as_slice()) {
        (None, [below]) => replace_chain_input(below, input)?,
        _ => input,
    };
    with_children(plan, vec![input])
}

/// A stream of rows as the input of a plan that runs once.
struct OneTimeStream {
    schema: SchemaRef,
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for OneTimeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for OneTimeStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let again = || -> SendableRecordBatchStream {
            let error = into_datafusion_error(Error::Internal("rows are asked for twice".into()));
            let error = stream::once(async { Err(error) });
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), error))
        };
        self.stream.lock().take().unwrap_or_else(again)
    }
}

/// The second phase of an execution: evaluates one hash partition after the other.
struct PartitionEvaluation {
    execution: WindowExecution,
    rows: HashPartitionedRows,
    /// Index of the next hash partition.
    next_partition: usize,
    evaluated_partition: Option<EvaluatedPartition>,
    /// Memory reservation for the hash partition in evaluation.
    partition_reservation: MemoryReservation,
    _rows_reservation: MemoryReservation,
    /// The output for the remaining hash partitions, after memory of a call did not fit beside all rows.
    fallback_output: Option<BoxedBatchStream>,
}

/// A hash partition with the outputs of its calls; its first rows may be emitted already.
struct EvaluatedPartition {
    rows: RecordBatch,
    row_order: Option<UInt32Array>,
    call_outputs: Vec<CallOutput>,
    /// Position of the first row that is not emitted yet.
    next_row: usize,
}

impl PartitionEvaluation {
    async fn next_batch(&mut self) -> PlanResult<Option<RecordBatch>> {
        let schema = self.execution.datafusion_plan.schema();
        let batch_rows = self.execution.context.session_config().batch_size();
        loop {
            if let Some(theirs) = &mut self.fallback_output {
                return theirs.next().await.transpose();
            }
            if let Some(part) = &mut self.evaluated_partition {
                match part.next_batch(&self.execution.chain, &schema, batch_rows)? {
                    None => self.evaluated_partition = None,
                    batch => return Ok(batch),
                }
            }
            let Some(rows) = self.rows.partition(self.next_partition)? else { return Ok(None) };
            if rows.num_rows() > 0 {
                match self.evaluate_partition(rows) {
                    Ok(answered) => self.evaluated_partition = Some(answered),
                    // A SQL partition lies within one hash partition, so the rest can run elsewhere.
                    Err(DataFusionError::ResourcesExhausted(_)) => {
                        self.fallback_output = Some(self.run_remaining_in_datafusion()?);
                        continue;
                    }
                    Err(other) => return Err(other),
                }
            }
            self.next_partition += 1;
        }
    }

    fn run_remaining_in_datafusion(&mut self) -> PlanResult<BoxedBatchStream> {
        self.partition_reservation.free();
        let schema = self.rows.schema();
        let rows = std::mem::replace(
            &mut self.rows,
            HashPartitionedRows::new(Arc::clone(&schema), Vec::new()),
        );
        let parts =
            (self.next_partition..).map_while(move |index| rows.partition(index).transpose());
        self.execution.run_datafusion_plan(schema, stream::iter(parts).boxed())
    }

    fn evaluate_partition(&self, rows: RecordBatch) -> PlanResult<EvaluatedPartition> {
        let chain = self.execution.chain.as_ref();
        let is_one = rows.num_rows() <= row_partitioning::SINGLE_PARTITION_ROWS_MAX
            && self.rows.is_unpartitioned();
        let order = match chain.needs_row_order() || is_one {
            true => {
                let keys =
                    RowOrderKeys { group_keys: &chain.group_keys, order_keys: &chain.order_keys };
                PartitionRowOrder::sort_rows(&rows, &keys, is_one)?
            }
            false => PartitionRowOrder::group_in_arrival_order(&rows, &chain.group_keys)?,
        };
        let spans = chain.window_keys.iter().map(|span| {
            let groups = match &span.partition_keys {
                None => None,
                Some(_) if !chain.needs_row_order() => None,
                Some(keys) => Some(order.peer_starts_for_keys(&rows, keys)?),
            };
            let equals = match &span.peer_keys {
                PeerKeys::OrderPrefix(keys) => Some(order.peer_starts_for_keys(&rows, keys)?),
                PeerKeys::FullOrder | PeerKeys::WholePartition => None,
            };
            Ok((groups, equals))
        });
        let spans =
            spans.collect::<PlanResult<Vec<(Option<RangeStarts>, Option<RangeStarts>)>>>()?;
        let work = EvaluationContext {
            running_aggregate: chain.running_aggregate,
            reservation: &self.partition_reservation,
            partition_bytes: self.partition_reservation.size(),
        };
        let answers = chain.calls.iter().map(|call| {
            let (groups, equals) = &spans[call.keys_index];
            let groups = groups.as_deref().unwrap_or(&order.group_starts);
            let equals = match &chain.window_keys[call.keys_index].peer_keys {
                PeerKeys::WholePartition => groups,
                PeerKeys::FullOrder => &order.peer_starts,
                PeerKeys::OrderPrefix(_) => equals.as_deref().unwrap_or(groups),
            };
            let span = CallBoundaries { partition_starts: groups, peer_starts: equals };
            call.evaluate(&rows, &order, &span, &work)
        });
        let answers = answers.collect::<PlanResult<Vec<_>>>()?;
        Ok(EvaluatedPartition {
            rows,
            row_order: order.sorted_rows,
            call_outputs: answers,
            next_row: 0,
        })
    }
}

impl EvaluatedPartition {
    fn next_batch(
        &mut self,
        chain: &WindowChain,
        schema: &SchemaRef,
        most_rows: usize,
    ) -> PlanResult<Option<RecordBatch>> {
        let (first, most) = (self.next_row, most_rows.min(self.rows.num_rows() - self.next_row));
        if most == 0 {
            return Ok(None);
        }
        let fitting = self
            .call_outputs
            .iter()
            .map(|answers| answers.rows_within_bytes(first, most, OUTPUT_PORTION_BYTES));
        let count = fitting.min().unwrap_or(most);
        let own = chain.input_columns.iter().map(|&index| match &self.row_order {
            None => Ok(self.rows.column(index).slice(first, count)),
            Some(order) => Ok(take(self.rows.column(index), &order.slice(first, count), None)?),
        });
        let answers = self.call_outputs.iter().map(|answers| answers.slice(first, count));
        let mut columns = own.chain(answers).collect::<PlanResult<Vec<_>>>()?;
        if let Some((of, made)) = &chain.output_projection {
            let batch = RecordBatch::try_new(Arc::clone(of), columns)?;
            let made = made.iter().map(|column| column.evaluate(&batch)?.into_array(count));
            columns = made.collect::<PlanResult<_>>()?;
        }
        self.next_row += count;
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }
}
