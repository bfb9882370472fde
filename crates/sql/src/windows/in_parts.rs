//! Windows over partitions, without a sort of all rows: `rank() OVER (PARTITION BY user ORDER BY ts)`.
//!
//! DataFusion sorts all rows by the partition's keys and the order's, and hands the partitions one after the
//! other to each call. But it matters only within a partition where its rows stand. So rows are put apart by
//! the hash of their keys, into parts that fit in a core's cache ([`apart`]); of each part its rows are counted
//! into their groups, each group is sorted by itself, which takes the logarithm of a group's rows where that of
//! all was taken ([`order`]), and calls answer for all groups of a part in one loop where they can
//! ([`calls`]). Where no call asks for an order, nothing is sorted, or moved. DuckDB, too, puts rows apart by
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
mod order;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputOrderMode, PlanProperties, ReplaceChildrenOptions,
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
use calls::{Answers, Call, Span, Work};
use order::{Keys, Order, Starts, can_be_sorted};

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

/// Windows that stand on each other and on a sort, with nothing in between but columns that are renamed, left
/// out or cast.
struct Chain {
    /// What the sort is of.
    input: Arc<dyn ExecutionPlan>,
    /// What rows of one group have in common. The partitions of each window are made of whole groups, or are
    /// within one.
    groups: Vec<PhysicalSortExpr>,
    /// What the rows of a group are in order of.
    within: Vec<PhysicalSortExpr>,
    /// What calls are over, each of which several may have in common.
    spans: Vec<Over>,
    calls: Vec<Call>,
    running_totals: Option<RunningTotals>,
    /// The columns of the input that are handed on.
    kept: Vec<usize>,
    /// These and the calls, as what is handed on is made of them; nothing is to be made where it is they.
    made: Option<(SchemaRef, Vec<Arc<dyn PhysicalExpr>>)>,
}

/// What tells the rows that a call is over, where that are not those that the order has.
#[derive(PartialEq)]
struct Over {
    partitions: Option<Vec<PhysicalSortExpr>>,
    equals: Equals,
}

#[derive(PartialEq)]
enum Equals {
    /// Those that the order has.
    OfOrder,
    /// All of a partition.
    All,
    Of(Vec<PhysicalSortExpr>),
}

/// A step of a chain.
enum Level<'a> {
    Windows(&'a [Arc<dyn WindowExpr>]),
    Columns(&'a ProjectionExec),
}

impl<'a> Level<'a> {
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Level<'a>> {
        if let Some(step) = plan.downcast_ref::<WindowAggExec>() {
            return Some(Level::Windows(step.window_expr()));
        }
        if let Some(step) = plan.downcast_ref::<BoundedWindowAggExec>() {
            let is_sorted = step.input_order_mode == InputOrderMode::Sorted;
            return is_sorted.then(|| Level::Windows(step.window_expr()));
        }
        let step = plan.downcast_ref::<ProjectionExec>()?;
        let are_columns = step.expr().iter().all(|column| is_column(&column.expr));
        are_columns.then_some(Level::Columns(step))
    }
}

/// Whether it is a column, cast to another type or not.
fn is_column(expr: &Arc<dyn PhysicalExpr>) -> bool {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => is_column(cast.expr()),
        None => expr.is::<Column>(),
    }
}

/// An expression of a step's columns as one of what these are made of.
fn made_of(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
) -> PlanResult<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|expr| {
            if let Some(column) = expr.downcast_ref::<Column>() {
                let made = columns.get(column.index());
                return Ok(
                    made.map_or(Transformed::no(expr), |made| Transformed::yes(Arc::clone(made)))
                );
            }
            // Text that was made views and text again.
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

impl Chain {
    /// The windows that a plan begins with, if all of them can be had so.
    fn of(
        plan: &Arc<dyn ExecutionPlan>,
        running_totals: Option<RunningTotals>,
    ) -> PlanResult<Option<Chain>> {
        if plan.downcast_ref::<ProjectionExec>().is_some() {
            return Ok(None);
        }
        let mut levels = Vec::new();
        let mut below = plan;
        while let Some(level) = Level::of(below)
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
        // What calls there are is not known yet: their columns come behind these.
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
                Level::Windows(windows) => windows,
                Level::Columns(step) => {
                    let schema = Arc::new(Schema::new(fields.clone()));
                    let next =
                        step.expr().iter().map(|column| made_of(&column.expr, &made, &schema));
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
            let of = |expr: &Arc<dyn PhysicalExpr>| made_of(expr, columns, &schema);
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
        if !are_groups || !can_be_sorted(types.into_iter()) {
            return Ok(None);
        }
        let mut chain = Chain {
            groups: groups.to_vec(),
            within: within.to_vec(),
            spans: Vec::new(),
            calls: Vec::new(),
            running_totals,
            kept: Vec::new(),
            made: None,
            input,
        };
        for ((call, made), (partition_by, order_by)) in asked.iter().zip(&below) {
            let Some(over) = chain.over(partition_by, order_by) else { return Ok(None) };
            let is_of_groups = over.partitions.is_none();
            let span = match chain.spans.iter().position(|span| *span == over) {
                Some(span) => span,
                None => {
                    chain.spans.push(over);
                    chain.spans.len() - 1
                }
            };
            let of = Columns { made, schema: &schema, own: columns };
            let Some(call) = Call::of(call, &of, span, is_of_groups)? else { return Ok(None) };
            chain.calls.push(call);
        }
        chain.hand_on(&made, columns, &schema)?;
        Ok(Some(chain))
    }

    /// Settles which columns are handed on, and as what.
    fn hand_on(
        &mut self,
        made: &[Arc<dyn PhysicalExpr>],
        columns: usize,
        schema: &SchemaRef,
    ) -> PlanResult<()> {
        let used: HashSet<usize> =
            made.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        self.kept = (0..columns).filter(|index| used.contains(index)).collect();
        let there: Vec<usize> =
            self.kept.iter().copied().chain(columns..schema.fields().len()).collect();
        let fields: Vec<_> =
            there.iter().map(|&index| Arc::clone(&schema.fields()[index])).collect();
        let mut moved: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            let at = there.iter().position(|there| *there == index).unwrap_or(0);
            moved.push(Arc::new(Column::new(field.name(), at)));
        }
        let made = made.iter().map(|expr| made_of(expr, &moved, schema));
        let made = made.collect::<PlanResult<Vec<_>>>()?;
        let is_it = |(index, expr): (usize, &Arc<dyn PhysicalExpr>)| {
            expr.downcast_ref::<Column>().is_some_and(|column| column.index() == index)
        };
        if made.len() != fields.len() || !made.iter().enumerate().all(is_it) {
            self.made = Some((Arc::new(Schema::new(fields)), made));
        }
        Ok(())
    }

    /// What a call is over; none where it would have to be sorted anew.
    fn over(
        &self,
        partition_by: &[Arc<dyn PhysicalExpr>],
        order_by: &[PhysicalSortExpr],
    ) -> Option<Over> {
        // Keys of the partition that are no keys of groups come next in the order.
        let more: HashSet<&Arc<dyn PhysicalExpr>> = partition_by
            .iter()
            .filter(|key| self.groups.iter().all(|group| !group.expr.eq(key)))
            .collect();
        let (next, rest) = self.within.split_at_checked(more.len())?;
        if partition_by.len() != self.groups.len() + more.len()
            || !next.iter().all(|key| more.contains(&key.expr))
        {
            return None;
        }
        let all = |keys: &[PhysicalSortExpr]| [self.groups.as_slice(), keys].concat();
        let partitions = (!more.is_empty()).then(|| all(next));
        // A key that is one of the partition's as well tells no rows of it apart.
        let order_by: Vec<&PhysicalSortExpr> =
            order_by.iter().filter(|key| !partition_by.contains(&key.expr)).collect();
        let is_order = rest.len() >= order_by.len()
            && order_by.iter().zip(rest).all(|(key, there)| **key == *there);
        let equals = match order_by.len() {
            0 => Equals::All,
            _ if !is_order => return None,
            count if count == rest.len() => Equals::OfOrder,
            count => Equals::Of(all(&self.within[..more.len() + count])),
        };
        Some(Over { partitions, equals })
    }

    /// Whether it matters how the rows of a group stand.
    fn is_ordered(&self) -> bool {
        self.calls.iter().any(Call::is_ordered)
    }
}

/// The columns that calls are asked of.
struct Columns<'a> {
    /// What they are made of: of the rows' own, and of the calls below.
    made: &'a [Arc<dyn PhysicalExpr>],
    /// Of what they are made of.
    schema: &'a SchemaRef,
    /// How many are the rows' own, which come first.
    own: usize,
}

impl Columns<'_> {
    /// An expression as one of the rows' own columns, if it asks for no others, and makes no more of a part
    /// than there is of it.
    fn below(&self, expr: &Arc<dyn PhysicalExpr>) -> PlanResult<Option<Arc<dyn PhysicalExpr>>> {
        let expr = made_of(expr, self.made, self.schema)?;
        Ok((self.is_below(&expr) && makes_little(&expr, self.schema)?).then_some(expr))
    }

    /// Whether an expression is of the rows' own columns alone.
    fn is_below(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        collect_columns(expr).iter().all(|column| column.index() < self.own)
    }
}

/// Whether an expression makes no texts or lists, which may be of any length (`repeat`), also not to look at
/// them: it is run over a whole part.
fn makes_little(expr: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> PlanResult<bool> {
    if expr.is::<Literal>() || is_column(expr) {
        return Ok(true);
    }
    let made = expr.data_type(schema)?;
    let mut is_little = made.is_primitive() || matches!(made, DataType::Boolean | DataType::Null);
    for child in expr.children() {
        is_little = is_little && makes_little(child, schema)?;
    }
    Ok(is_little)
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
                return self.as_theirs();
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
            return self.as_theirs();
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
    fn as_theirs(self) -> PlanResult<Batches> {
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
