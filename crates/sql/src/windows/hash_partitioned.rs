//! Windows over partitions, without a sort of all rows: `rank() OVER (PARTITION BY user ORDER BY ts)`.
//!
//! DataFusion sorts all rows by the partition's keys and the order's, and hands the partitions one after the
//! other to each call. But it matters only within a partition where its rows stand. So rows are put apart by
//! the hash of their keys, into parts that fit in a core's cache ([`apart`]); of each part its rows are counted
//! into their groups, each group is sorted by itself, which takes the logarithm of a group's rows where that of
//! all was taken ([`order`]), and calls answer for all groups of a part in one loop where they can
//! ([`calls`]); which windows can be had so tells [`chain`]. Where no call asks for an order, nothing is sorted, or moved. DuckDB, too, puts rows apart by
//! hash before it sorts them.
//!
//! All rows are held until the last one has come, as nobody knows before whether a partition has ended. What
//! does not fit in the step's share of memory goes to DataFusion's steps after all, first what is
//! held and then the rest: these sort, which spills. So does what they answer in another form
//! (lists, texts of any length).
//!
//! The answers come in no order, where DataFusion's would be in that of the keys: where a step above counts on
//! it, or there is one thread, so that an order might have been asked for, all is left as it was. Rows
//! that are one part come in the order of their keys.

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

use crate::error_translation::into_datafusion_error;
use crate::expression_memory::ExpressionMemoryRule;
use crate::windows::running_totals::RunningTotalsRule;
use crate::windows::whole_partitions::WholePartitionsRule;
use crate::windows::window_output::OUTPUT_PORTION_BYTES;
use call_evaluation::{CallBoundaries, CallOutput, EvaluationContext};
use row_order::{PartitionRowOrder, RangeStarts, RowOrderKeys};
use row_partitioning::HashPartitionedRows;
use window_chain::{PeerKeys, WindowChain};

/// What the step is called, also in the memory pool.
pub(crate) const HASH_PARTITIONED_WINDOW_CONSUMER: &str = "WindowsInParts";

/// What a row takes while its part is at work, beside its values: its group, its place, its key's code.
const PARTITION_ROW_BYTES: usize = 48;

/// A part's rows are numbered with 32 bits, and so are the bytes of its texts.
const PARTITION_SIZE_MAX: usize = 1 << 30;

/// The values of an aggregate of one argument, of each group's rows up to the end of each of its steps, for
/// those aggregates of which that can be had in one loop: of the argument's values in order, and of where
/// groups and steps begin, and the end. A step is within one group.
pub type RunningAggregateFn =
    fn(&AggregateFunctionExpr, &ArrayRef, &[u32], &[u32]) -> PlanResult<Option<ArrayRef>>;

/// Puts the step in the place of windows and the sort below them.
#[derive(Debug)]
pub(crate) struct HashPartitionedWindowsRule {
    /// What the expressions of a step may make at a time.
    pub expression_bytes_max: u64,
    pub running_aggregate: Option<RunningAggregateFn>,
}

impl PhysicalOptimizerRule for HashPartitionedWindowsRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        // The rows of one thread may be in an order that was asked for: nothing tells any more.
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
    /// A plan with the step where it can be; `is_ordered` where it matters in which order its rows come.
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

/// The step.
struct HashPartitionedWindowExec {
    /// DataFusion's steps, of which this is in the place.
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
        // Columns that are equal stay so, whatever the order.
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

/// What the step does.
struct WindowExecution {
    datafusion_plan: Arc<dyn ExecutionPlan>,
    chain: Arc<WindowChain>,
    expression_bytes_max: u64,
    context: Arc<TaskContext>,
}

impl WindowExecution {
    /// What DataFusion's steps make of rows.
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

/// The step while rows come.
struct InputCollection {
    execution: WindowExecution,
    /// Of the rows.
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

    /// Hands all rows to DataFusion's steps.
    fn fall_back_to_datafusion(self) -> PlanResult<BoxedBatchStream> {
        // From here on the sort counts them.
        drop(self.reservation);
        let schema = self.input.schema();
        let rows = stream::iter(self.rows.into_batches().map(Ok)).chain(self.input);
        self.execution.run_datafusion_plan(schema, rows.boxed())
    }
}

/// Whether memory was granted.
fn is_memory_granted(answer: PlanResult<()>) -> PlanResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(DataFusionError::ResourcesExhausted(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Windows and their sort over another input.
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

/// Rows as the input of a plan, once.
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

/// The step once all rows are there.
struct PartitionEvaluation {
    execution: WindowExecution,
    rows: HashPartitionedRows,
    /// The part that comes next.
    next_partition: usize,
    evaluated_partition: Option<EvaluatedPartition>,
    /// Of a part at work.
    partition_reservation: MemoryReservation,
    _rows_reservation: MemoryReservation,
    /// The answers of the parts that are left, where what a call holds did not fit beside all rows.
    fallback_output: Option<BoxedBatchStream>,
}

/// A part with its answers, of which the first may have been handed on.
struct EvaluatedPartition {
    rows: RecordBatch,
    row_order: Option<UInt32Array>,
    call_outputs: Vec<CallOutput>,
    /// The place of the first row that was not.
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
                    // Each partition is of one part.
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
