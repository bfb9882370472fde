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

mod apart;
mod calls;
mod chain;
mod order;

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

use crate::messages::external;
use crate::portions::KeepToBudget;
use crate::windows::beside::PORTION;
use crate::windows::running_totals::EqualsAtOnce;
use crate::windows::whole_partitions::OnePartitionAtATime;
use apart::Apart;
use calls::{Answers, Span, Work};
use chain::{Chain, Equals};
use order::{Keys, Order, Starts};

/// What the step is called, also in the memory pool.
pub(crate) const CONSUMER: &str = "WindowsInParts";

/// What a row takes while its part is at work, beside its values: its group, its place, its key's code.
const ROW_BYTES: usize = 48;

/// A part's rows are numbered with 32 bits, and so are the bytes of its texts.
const PART_MAX: usize = 1 << 30;

/// The values of an aggregate of one argument, of each group's rows up to the end of each of its steps, for
/// those aggregates of which that can be had in one loop: of the argument's values in order, and of where
/// groups and steps begin, and the end. A step is within one group.
pub type RunningTotals =
    fn(&AggregateFunctionExpr, &ArrayRef, &[u32], &[u32]) -> PlanResult<Option<ArrayRef>>;

/// Puts the step in the place of windows and the sort below them.
#[derive(Debug)]
pub(crate) struct InParts {
    /// What the expressions of a step may make at a time.
    pub bytes_max: u64,
    pub running_totals: Option<RunningTotals>,
}

impl PhysicalOptimizerRule for InParts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        // The rows of one thread may be in an order that was asked for: nothing tells any more.
        let is_one = plan.output_partitioning().partition_count() == 1;
        self.placed(plan, is_one)
    }

    fn name(&self) -> &str {
        "windows_in_parts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl InParts {
    /// A plan with the step where it can be; `is_ordered` where it matters in which order its rows come.
    fn placed(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        is_ordered: bool,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if !is_ordered && let Some(chain) = Chain::of(&plan, self.running_totals)? {
            let input = self.placed(Arc::clone(&chain.input), false)?;
            return Ok(Arc::new(WindowsInParts::new(plan, chain, input, self.bytes_max)));
        }
        let required = plan.required_input_ordering();
        let maintains = plan.maintains_input_order();
        let children: Vec<_> = plan.children().into_iter().cloned().collect();
        let mut is_other = false;
        let placed = children.into_iter().enumerate().map(|(index, child)| {
            let is_ordered = required.get(index).is_some_and(Option::is_some)
                || is_ordered && maintains.get(index).copied().unwrap_or(true);
            let placed = self.placed(Arc::clone(&child), is_ordered)?;
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
struct WindowsInParts {
    /// DataFusion's steps, of which this is in the place.
    theirs: Arc<dyn ExecutionPlan>,
    chain: Arc<Chain>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    bytes_max: u64,
}

impl WindowsInParts {
    fn new(
        theirs: Arc<dyn ExecutionPlan>,
        chain: Chain,
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
        WindowsInParts { theirs, chain, input, properties, bytes_max }
    }
}

impl fmt::Debug for WindowsInParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(CONSUMER).field("theirs", &self.theirs).finish_non_exhaustive()
    }
}

impl DisplayAs for WindowsInParts {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.theirs.fmt_as(format, f)
    }
}

impl ExecutionPlan for WindowsInParts {
    fn name(&self) -> &str {
        CONSUMER
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
            .map_err(|_| external(Error::Internal("windows have one input".into())))?;
        Ok(Arc::new(WindowsInParts {
            theirs: Arc::clone(&self.theirs),
            chain: Arc::clone(&self.chain),
            input,
            properties: Arc::clone(&self.properties),
            bytes_max: self.bytes_max,
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
        let consumer = MemoryConsumer::new(format!("{CONSUMER}[{partition}]")).with_can_spill(true);
        let keys = self.chain.groups.iter().map(|key| Arc::clone(&key.expr)).collect();
        let step = Step {
            theirs: Arc::clone(&self.theirs),
            chain: Arc::clone(&self.chain),
            bytes_max: self.bytes_max,
            context: Arc::clone(&context),
        };
        let gathering = Gathering {
            step,
            reservation: consumer.register(context.memory_pool()),
            rows: Apart::new(self.input.schema(), keys),
            input: self.input.execute(partition, context)?,
        };
        let answers = stream::once(gathering.run()).flat_map(|answers| match answers {
            Ok(answers) => answers,
            Err(error) => stream::once(async { Err(error) }).boxed(),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.theirs.schema(), answers)))
    }
}

type Batches = futures::stream::BoxStream<'static, PlanResult<RecordBatch>>;

/// What the step does.
struct Step {
    theirs: Arc<dyn ExecutionPlan>,
    chain: Arc<Chain>,
    bytes_max: u64,
    context: Arc<TaskContext>,
}

impl Step {
    /// What DataFusion's steps make of rows.
    fn as_theirs(&self, schema: SchemaRef, rows: Batches) -> PlanResult<Batches> {
        let rows: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows));
        let rows = Rows { schema: Arc::clone(&schema), rows: Mutex::new(Some(rows)) };
        let rows =
            StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, [], false, None)?;
        let plan = over(&self.theirs, Arc::new(rows))?;
        let config = self.context.session_config().options();
        let plan = OnePartitionAtATime.optimize(plan, config)?;
        let plan = EqualsAtOnce.optimize(plan, config)?;
        let plan = KeepToBudget { bytes_max: self.bytes_max }.optimize(plan, config)?;
        Ok(plan.execute(0, Arc::clone(&self.context))?.boxed())
    }
}

/// The step while rows come.
struct Gathering {
    step: Step,
    /// Of the rows.
    reservation: MemoryReservation,
    rows: Apart,
    input: SendableRecordBatchStream,
}

impl Gathering {
    async fn run(mut self) -> PlanResult<Batches> {
        while let Some(batch) = self.input.next().await.transpose()? {
            if batch.num_rows() == 0 {
                continue;
            }
            self.rows.put(&batch)?;
            if !granted(self.reservation.try_resize(self.rows.bytes()))? {
                return self.into_theirs();
            }
        }
        let (bytes, rows) = self.rows.largest();
        let work = self.reservation.new_empty();
        let calls = self.step.chain.calls.len();
        let is_granted = bytes < PART_MAX
            && rows < PART_MAX
            && granted(work.try_grow(2 * bytes + rows * (ROW_BYTES + 16 * calls)))?;
        if !is_granted {
            drop(work);
            return self.into_theirs();
        }
        let answering = Answering {
            step: self.step,
            rows: self.rows,
            next: 0,
            part: None,
            work,
            _held: self.reservation,
            theirs: None,
        };
        let batches = stream::try_unfold(answering, |mut answering| async move {
            Ok(answering.next().await?.map(|batch| (batch, answering)))
        });
        Ok(batches.boxed())
    }

    /// Hands all rows to DataFusion's steps.
    fn into_theirs(self) -> PlanResult<Batches> {
        // From here on the sort counts them.
        drop(self.reservation);
        let schema = self.input.schema();
        let rows = stream::iter(self.rows.into_batches().map(Ok)).chain(self.input);
        self.step.as_theirs(schema, rows.boxed())
    }
}

/// Whether memory was granted.
fn granted(answer: PlanResult<()>) -> PlanResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(DataFusionError::ResourcesExhausted(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Windows and their sort over another input.
fn over(
    plan: &Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let input = match (plan.downcast_ref::<SortExec>(), plan.children().as_slice()) {
        (None, [below]) => over(below, input)?,
        _ => input,
    };
    with_children(plan, vec![input])
}

/// Rows as the input of a plan, once.
struct Rows {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let again = || -> SendableRecordBatchStream {
            let error = external(Error::Internal("rows are asked for twice".into()));
            let error = stream::once(async { Err(error) });
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), error))
        };
        self.rows.lock().take().unwrap_or_else(again)
    }
}

/// The step once all rows are there.
struct Answering {
    step: Step,
    rows: Apart,
    /// The part that comes next.
    next: usize,
    part: Option<Answered>,
    /// Of a part at work.
    work: MemoryReservation,
    _held: MemoryReservation,
    /// The answers of the parts that are left, where what a call holds did not fit beside all rows.
    theirs: Option<Batches>,
}

/// A part with its answers, of which the first may have been handed on.
struct Answered {
    rows: RecordBatch,
    order: Option<UInt32Array>,
    answers: Vec<Answers>,
    /// The place of the first row that was not.
    next: usize,
}

impl Answering {
    async fn next(&mut self) -> PlanResult<Option<RecordBatch>> {
        let schema = self.step.theirs.schema();
        let batch_rows = self.step.context.session_config().batch_size();
        loop {
            if let Some(theirs) = &mut self.theirs {
                return theirs.next().await.transpose();
            }
            if let Some(part) = &mut self.part {
                match part.next(&self.step.chain, &schema, batch_rows)? {
                    None => self.part = None,
                    batch => return Ok(batch),
                }
            }
            let Some(rows) = self.rows.part(self.next)? else { return Ok(None) };
            if rows.num_rows() > 0 {
                match self.answered(rows) {
                    Ok(answered) => self.part = Some(answered),
                    // Each partition is of one part.
                    Err(DataFusionError::ResourcesExhausted(_)) => {
                        self.theirs = Some(self.left_to_theirs()?);
                        continue;
                    }
                    Err(other) => return Err(other),
                }
            }
            self.next += 1;
        }
    }

    fn left_to_theirs(&mut self) -> PlanResult<Batches> {
        self.work.free();
        let schema = self.rows.schema();
        let rows = std::mem::replace(&mut self.rows, Apart::new(Arc::clone(&schema), Vec::new()));
        let parts = (self.next..).map_while(move |index| rows.part(index).transpose());
        self.step.as_theirs(schema, stream::iter(parts).boxed())
    }

    fn answered(&self, rows: RecordBatch) -> PlanResult<Answered> {
        let chain = self.step.chain.as_ref();
        let is_one = rows.num_rows() <= apart::ONE_PART && self.rows.is_together();
        let order = match chain.is_ordered() || is_one {
            true => {
                let keys = Keys { groups: &chain.groups, within: &chain.within };
                Order::of(&rows, &keys, is_one)?
            }
            false => Order::as_they_came(&rows, &chain.groups)?,
        };
        let spans = chain.spans.iter().map(|span| {
            let groups = match &span.partitions {
                None => None,
                Some(_) if !chain.is_ordered() => None,
                Some(keys) => Some(order.starts(&rows, keys)?),
            };
            let equals = match &span.equals {
                Equals::Of(keys) => Some(order.starts(&rows, keys)?),
                Equals::OfOrder | Equals::All => None,
            };
            Ok((groups, equals))
        });
        let spans = spans.collect::<PlanResult<Vec<(Option<Starts>, Option<Starts>)>>>()?;
        let work = Work {
            running_totals: chain.running_totals,
            reservation: &self.work,
            part_bytes: self.work.size(),
        };
        let answers = chain.calls.iter().map(|call| {
            let (groups, equals) = &spans[call.span];
            let groups = groups.as_deref().unwrap_or(&order.group_starts);
            let equals = match &chain.spans[call.span].equals {
                Equals::All => groups,
                Equals::OfOrder => &order.equal_starts,
                Equals::Of(_) => equals.as_deref().unwrap_or(groups),
            };
            let span = Span { groups, equals };
            call.answers(&rows, &order, &span, &work)
        });
        let answers = answers.collect::<PlanResult<Vec<_>>>()?;
        Ok(Answered { rows, order: order.rows, answers, next: 0 })
    }
}

impl Answered {
    fn next(
        &mut self,
        chain: &Chain,
        schema: &SchemaRef,
        most_rows: usize,
    ) -> PlanResult<Option<RecordBatch>> {
        let (first, most) = (self.next, most_rows.min(self.rows.num_rows() - self.next));
        if most == 0 {
            return Ok(None);
        }
        let fitting = self.answers.iter().map(|answers| answers.fitting(first, most, PORTION));
        let count = fitting.min().unwrap_or(most);
        let own = chain.kept.iter().map(|&index| match &self.order {
            None => Ok(self.rows.column(index).slice(first, count)),
            Some(order) => Ok(take(self.rows.column(index), &order.slice(first, count), None)?),
        });
        let answers = self.answers.iter().map(|answers| answers.at(first, count));
        let mut columns = own.chain(answers).collect::<PlanResult<Vec<_>>>()?;
        if let Some((of, made)) = &chain.made {
            let batch = RecordBatch::try_new(Arc::clone(of), columns)?;
            let made = made.iter().map(|column| column.evaluate(&batch)?.into_array(count));
            columns = made.collect::<PlanResult<_>>()?;
        }
        self.next += count;
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }
}
