//! `ORDER BY`, and what else is sorted, beyond memory.
//!
//! DataFusion's sort merges what it wrote out by rows that it reads one batch at a time from each run, and asks for
//! memory by the batch; with little of it, it has many passes or none that ends. Here rows become records of bytes,
//! and [`tidemill_sort`] has them: in memory, or fanned out to partitions that are sorted each by itself.
//!
//! ```text
//!  record   [length of key: u32][key: arrow_row of what is sorted by][how][rest: the other columns]
//!                                                                      0: in the record; 1: parked
//! ```
//!
//! How the rest lies is in `rests`. What is sorted by and is a column is not stored twice: the key gives it back. A rest that is too long for the
//! sorter is parked on disk, and the record has its place.

mod rests;

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use tidemill_base::RunSettings;
use tidemill_base::error::Error;
use tidemill_base::memory_budget::format_binary_bytes;
use tidemill_base::progress::RunProgress;
use tidemill_planning::DynTreeNode;
use tidemill_sort::{
    DiskCounts, EncodedKeyOrder, MEMORY_BYTES_MIN, Options, OutputFraming, RecordShape, SortTask,
    SortedRecords, Sorter,
};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::in_place::InPlace;
use crate::input_order::Place;
use crate::messages::external;
use crate::pool::{Pool, size_above};
use crate::session::Stable;
use crate::spills::{Spill, SpillSpace, Writer};
use rests::{Encoded, Rests};

/// What the step registers with the memory pool.
pub(crate) const CONSUMER: &str = "FanOutSort";

/// An entry of the sorter's, beside a record's bytes.
const ENTRY_BYTES: usize = 18;

/// A batch that is handed on has so much, or one row.
const PORTION_BYTES: u64 = 4 << 20;

/// The rest of a record follows, or the place where it is parked.
const FOLLOWS: u8 = 0;
const PARKED: u8 = 1;

/// What the sorts of a session need to know of its run; an extension of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct OfRun(pub(crate) RunSettings);

/// Puts our sorts in the place of DataFusion's, but of the first few rows, which a heap has.
#[derive(Debug)]
pub(crate) struct FanOutSorts;

impl PhysicalOptimizerRule for FanOutSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            let run = if let Some(sort) = plan.downcast_ref::<SortExec>() {
                let is_of_all = sort.fetch().is_none();
                (is_of_all && is_storable(&sort.schema())).then_some(partition as _)
            } else if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
                let sort = sort_below(merge);
                let is_of_all = merge.fetch().is_none();
                sort.filter(|sort| is_of_all && sort.expr() == merge.expr()).map(|_| whole as _)
            } else {
                None
            };
            Ok(match run {
                Some(run) => {
                    Transformed::yes(Arc::new(InPlace { name: CONSUMER, theirs: plan, run }) as _)
                }
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "fan_out_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The sort whose partitions are merged, if it is one of ours.
fn sort_below(merge: &SortPreservingMergeExec) -> Option<&SortExec> {
    let below = merge.input().downcast_ref::<InPlace>()?;
    below.theirs.downcast_ref::<SortExec>()
}

fn is_storable(schema: &Schema) -> bool {
    let of = |field: &Arc<arrow::datatypes::Field>| SortField::new(field.data_type().clone());
    RowConverter::supports_fields(&schema.fields().iter().map(of).collect::<Vec<_>>())
}

/// A sort of one partition, or of all, if they are to be one.
fn partition(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let Some(sort) = theirs.downcast_ref::<SortExec>() else {
        return Err(external(Error::Internal("a sort of another kind".into())));
    };
    let joined = sort.input().downcast_ref::<CoalescePartitionsExec>();
    match joined.filter(|joined| joined.fetch().is_none() && !sort.preserve_partitioning()) {
        Some(joined) => run(sort.expr(), joined.input(), None, &context),
        None => run(sort.expr(), sort.input(), Some(partition), &context),
    }
}

/// A sort of all partitions.
fn whole(
    theirs: &Arc<dyn ExecutionPlan>,
    _: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let merge = theirs.downcast_ref::<SortPreservingMergeExec>();
    match merge.and_then(sort_below) {
        Some(sort) => run(sort.expr(), sort.input(), None, &context),
        None => Err(external(Error::Internal("a merge of another kind".into()))),
    }
}

fn run(
    by: &LexOrdering,
    input: &Arc<dyn ExecutionPlan>,
    partition: Option<usize>,
    context: &Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let config = context.session_config();
    let Some(OfRun(settings)) = config.get_extension::<OfRun>().map(|of| of.as_ref().clone())
    else {
        return Err(external(Error::Internal("a sort of no run".into())));
    };
    let schema = input.schema();
    let count = input.output_partitioning().partition_count();
    let consumer = MemoryConsumer::new(format!("{CONSUMER}[{}]", partition.unwrap_or_default()));
    let sort = Sort {
        form: Arc::new(Form::new(by, &schema)?),
        // Who shares memory registers before it is first asked for.
        reservation: consumer.with_can_spill(true).register(context.memory_pool()),
        threads: partition.map_or(settings.threads, |_| (settings.threads / count).max(1)),
        batch_rows: config.batch_size(),
        context: Arc::clone(context),
        settings,
    };
    let partitions = partition.map_or(0..count, |one| one..one + 1);
    let inputs = partitions.map(|partition| input.execute(partition, Arc::clone(context)));
    let inputs = inputs.collect::<PlanResult<Vec<_>>>()?;
    let batches = stream::once(async move { Ok::<_, DataFusionError>(sort.start(inputs)) });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.try_flatten())))
}

/// A sort that has not begun.
struct Sort {
    form: Arc<Form>,
    reservation: MemoryReservation,
    threads: usize,
    batch_rows: usize,
    context: Arc<TaskContext>,
    settings: RunSettings,
}

impl Sort {
    fn start(self, inputs: Vec<SendableRecordBatchStream>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.form.schema);
        let mut builder = RecordBatchReceiverStream::builder(schema, 2);
        let sender = builder.tx();
        builder.spawn(async move {
            let (batch_rows, form) = (self.batch_rows, Arc::clone(&self.form));
            let (sorted, held) = self.gathered(inputs).await?;
            let handed_on = tokio::task::spawn_blocking(move || {
                hand_on(sorted, &held, &form, batch_rows, &sender)
            });
            handed_on.await.unwrap_or_else(|ended| match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The run has ended before.
                Err(_) => Err(external(Error::Interrupted)),
            })
        });
        builder.build()
    }

    /// All rows of some inputs, which are read at once.
    async fn gathered(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> PlanResult<(SortedRecords<EncodedKeyOrder>, Arc<Held>)> {
        let pool = self.context.memory_pool().downcast_ref::<Pool>();
        let share = pool.map_or(self.settings.memory_share_bytes(1, 4), Pool::share) as u64;
        let mut options = Options::default();
        options.memory_bytes = share.max(MEMORY_BYTES_MIN);
        options.threads = self.threads;
        options.stable = true;
        let stable = self.context.session_config().get_extension::<Stable>();
        options.limit = stable.and_then(|stable| stable.limit);
        options.spill_dirs = self.settings.spill_dirs.clone();
        options.cancel = self.settings.cancel.atomic_flag().into();
        let memory_bytes = usize::try_from(options.memory_bytes).unwrap_or(usize::MAX);
        let sorter = Sorter::new(EncodedKeyOrder, RecordShape::Variable, options).map_err(told)?;
        let held = Arc::new(Held {
            record_bytes_max: sorter.budget().record_bytes_max,
            memory_bytes,
            reservation: self.reservation,
            parked: Mutex::new(Parked::new(&self.settings)),
            spilled: Mutex::new(0),
            progress: self.settings.progress,
        });
        let sorter = Arc::new(sorter);
        let mut tasks = JoinSet::new();
        for (index, input) in inputs.into_iter().enumerate() {
            let (sorter, form) = (Arc::clone(&sorter), Arc::clone(&self.form));
            tasks.spawn(gather(input, sorter, index as u64, form, Arc::clone(&held)));
        }
        while let Some(ended) = tasks.join_next().await {
            match ended.map_err(tokio::task::JoinError::try_into_panic) {
                Ok(done) => done?,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(_)) => return Err(external(Error::Interrupted)),
            }
        }
        held.parked.lock().writer.rest()?;
        let sorter = Arc::into_inner(sorter);
        let sorter = sorter.ok_or_else(|| external(Error::Internal("a sort goes on".into())))?;
        let sorted = sorter.finish().map_err(told)?;
        if sorted.is_spilled() {
            held.reservation.try_resize(held.memory_bytes)?;
        }
        Ok((sorted, held))
    }
}

/// What a sort has beside its records.
struct Held {
    record_bytes_max: usize,
    memory_bytes: usize,
    /// Of the sorter's memory as much as it has filled.
    reservation: MemoryReservation,
    parked: Mutex<Parked>,
    /// Of what was spilled so much is counted.
    spilled: Mutex<u64>,
    progress: RunProgress,
}

impl Held {
    /// Notes what the sorter was given: it spills when it has no room for more.
    fn grow(&self, bytes: usize) -> PlanResult<()> {
        let more = self.memory_bytes.saturating_sub(self.reservation.size()).min(bytes);
        self.reservation.try_grow(more)
    }

    /// Counts what was spilled since the last time.
    fn count(&self, disk: DiskCounts) {
        let mut spilled = self.spilled.lock();
        self.progress.add_spilled_bytes(disk.write_bytes.saturating_sub(*spilled));
        *spilled = disk.write_bytes.max(*spilled);
    }
}

/// What is too long for the sorter.
struct Parked {
    spill: Spill,
    writer: Writer,
    end: u64,
}

impl Parked {
    fn new(settings: &RunSettings) -> Self {
        let spill = SpillSpace::new(&settings.spill_dirs, &settings.progress).create();
        let writer = spill.writer();
        Parked { spill, writer, end: 0 }
    }

    /// Where the bytes are now.
    fn park(&mut self, bytes: &[u8]) -> PlanResult<[u8; 16]> {
        let place = (u128::from(self.end) << 64 | bytes.len() as u128).to_be_bytes();
        self.writer.write_all(bytes)?;
        self.end += bytes.len() as u64;
        Ok(place)
    }

    fn fetch(&self, place: &[u8]) -> PlanResult<Vec<u8>> {
        let damaged = || external(Error::Internal("a parked row without a place".into()));
        let place = u128::from_be_bytes(place.try_into().map_err(|_| damaged())?);
        let mut bytes = vec![0; usize::try_from(place as u64).map_err(|_| damaged())?];
        self.spill.read_exact_at((place >> 64) as u64, &mut bytes)?;
        Ok(bytes)
    }
}

/// Makes records of one input's rows. Ties come out in the order of their tasks: batches that say where they are
/// have one each, or share that of the batch before them; others have that of the input.
async fn gather(
    mut input: SendableRecordBatchStream,
    sorter: Arc<Sorter<EncodedKeyOrder>>,
    index: u64,
    form: Arc<Form>,
    held: Arc<Held>,
) -> PlanResult<()> {
    let mut encoded = Encoded::default();
    let mut current: Option<(SortTask<EncodedKeyOrder>, Option<Place>)> = None;
    while let Some(batch) = input.next().await.transpose()? {
        let place = Place::of(&batch);
        let goes_on = |before: &Option<Place>| match (before, &place) {
            (Some(before), Some(place)) => place.follows(before),
            (before, place) => before.is_none() && place.is_none(),
        };
        if let Some((task, _)) = current.take_if(|(_, before)| !goes_on(before)) {
            commit(task)?;
        }
        let begin = || (sorter.start_task(place.as_ref().map_or(index, Place::number)), None);
        let (task, before) = current.get_or_insert_with(begin);
        *before = place;
        let bytes = form.push(&batch, &held, &mut encoded, task)?;
        held.grow(bytes)?;
        held.count(task.disk_counts());
    }
    current.map_or(Ok(()), |(task, _)| commit(task))
}

/// Has a task's rows count.
fn commit(task: SortTask<EncodedKeyOrder>) -> PlanResult<()> {
    match task.commit().map_err(told)? {
        true => Ok(()),
        // Its rows would be missing.
        false => Err(external(Error::Internal("two batches of one place".into()))),
    }
}

/// Makes rows of records, and sends them until nobody wants more.
fn hand_on(
    sorted: SortedRecords<EncodedKeyOrder>,
    held: &Held,
    form: &Form,
    batch_rows: usize,
    sender: &Sender<PlanResult<RecordBatch>>,
) -> PlanResult<()> {
    let mut blocks = sorted.into_blocks(OutputFraming::LengthPrefixed).map_err(told)?;
    while let Some(block) = blocks.next_block().map_err(told)? {
        held.count(blocks.disk_counts());
        let records: Vec<&[u8]> = block.records().collect();
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at(portion(rest, batch_rows));
            rest = others;
            if sender.blocking_send(Ok(form.batch(some, held)?)).is_err() {
                return Ok(());
            }
        }
    }
    held.count(blocks.finish().map_err(told)?.disk);
    Ok(())
}

/// How many of the next records are a batch: as many as have few bytes with what is parked of them, at least one.
fn portion(records: &[&[u8]], batch_rows: usize) -> usize {
    let mut bytes = 0u64;
    let within = |record: &&&[u8]| {
        bytes = bytes.saturating_add(record.len() as u64).saturating_add(parked_bytes(record));
        bytes <= PORTION_BYTES
    };
    records.iter().take(batch_rows).take_while(within).count().max(1)
}

/// How much of a row is parked.
fn parked_bytes(record: &[u8]) -> u64 {
    match EncodedKeyOrder::split_key(record).1.split_first() {
        Some((&PARKED, place)) => place.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)),
        _ => 0,
    }
}

/// Which column of a record one of the rows is.
#[derive(Debug, Clone, Copy)]
enum Stored {
    Key(usize),
    Rest(usize),
}

/// How rows lie in records.
struct Form {
    schema: SchemaRef,
    by: Vec<PhysicalSortExpr>,
    keys: RowConverter,
    /// Columns that are no keys, or not as they are.
    rest: Vec<usize>,
    rests: Rests,
    places: Vec<Stored>,
}

impl Form {
    fn new(by: &LexOrdering, schema: &SchemaRef) -> PlanResult<Form> {
        let by: Vec<PhysicalSortExpr> = by.iter().cloned().collect();
        let keys = by.iter().map(|key| {
            let of = key.expr.data_type(schema)?;
            Ok(SortField::new_with_options(of, key.options))
        });
        let keys = RowConverter::new(keys.collect::<PlanResult<Vec<_>>>()?)?;
        let mut rest = Vec::new();
        let places = (0..schema.fields().len()).map(|index| {
            let is_it = |key: &PhysicalSortExpr| {
                key.expr.downcast_ref::<Column>().is_some_and(|column| column.index() == index)
            };
            by.iter().position(is_it).map_or_else(
                || {
                    rest.push(index);
                    Stored::Rest(rest.len() - 1)
                },
                Stored::Key,
            )
        });
        let places: Vec<Stored> = places.collect();
        let rests = Rests::new(rest.iter().map(|index| &schema.fields()[*index]))?;
        Ok(Form { schema: Arc::clone(schema), by, keys, rest, rests, places })
    }

    /// Gives a batch's rows to the sorter; what they take there.
    fn push(
        &self,
        batch: &RecordBatch,
        held: &Held,
        encoded: &mut Encoded,
        task: &mut SortTask<EncodedKeyOrder>,
    ) -> PlanResult<usize> {
        let keys = self.by.iter().map(|key| Ok(key.evaluate_to_sort_column(batch)?.values));
        let keys = self.keys.convert_columns(&keys.collect::<PlanResult<Vec<_>>>()?)?;
        let rest: Vec<ArrayRef> =
            self.rest.iter().map(|index| Arc::clone(batch.column(*index))).collect();
        self.rests.encode(&rest, batch.num_rows(), encoded)?;
        let mut bytes = 0;
        for row in 0..batch.num_rows() {
            let (key, rest) = (keys.row(row).data(), encoded.row(row));
            let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
            let record_bytes = length.len() + key.len() + 1 + rest.len();
            let pushed = match record_bytes <= held.record_bytes_max {
                true => task.push_concatenated(&[&length, key, &[FOLLOWS], rest]),
                false => {
                    let place = held.parked.lock().park(rest)?;
                    task.push_concatenated(&[&length, key, &[PARKED], &place])
                }
            };
            pushed.map_err(told)?;
            bytes += record_bytes.min(held.record_bytes_max) + ENTRY_BYTES;
        }
        Ok(bytes)
    }

    /// The rows of some records.
    fn batch(&self, records: &[&[u8]], held: &Held) -> PlanResult<RecordBatch> {
        let (mut keys, mut rests) = (Vec::with_capacity(records.len()), Vec::new());
        let mut fetched = Vec::new();
        for record in records {
            let (key, rest) = EncodedKeyOrder::split_key(record);
            keys.push(key);
            match rest.split_first() {
                Some((&FOLLOWS, rest)) => rests.push(Some(rest)),
                Some((_, place)) => {
                    fetched.push(held.parked.lock().fetch(place)?);
                    rests.push(None);
                }
                None => return Err(external(Error::Internal("a record cut short".into()))),
            }
        }
        let mut fetched = fetched.iter().map(Vec::as_slice);
        let rests = rests.into_iter().map(|rest| rest.or_else(|| fetched.next()));
        let rests: Vec<&[u8]> = rests.map(Option::unwrap_or_default).collect();
        let parser = self.keys.parser();
        let keys = self.keys.convert_rows(keys.iter().map(|key| parser.parse(key)))?;
        let rests = self.rests.decode(&rests)?;
        let columns = self.places.iter().zip(self.schema.fields()).map(|(place, field)| {
            let column = match place {
                Stored::Key(index) => &keys[*index],
                Stored::Rest(index) => &rests[*index],
            };
            typed(column, field.data_type())
        });
        let columns = columns.collect::<PlanResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// A column as the rows have it: what has codes comes back without.
fn typed(column: &ArrayRef, wanted: &DataType) -> PlanResult<ArrayRef> {
    match column.data_type() == wanted {
        true => Ok(Arc::clone(column)),
        false => Ok(cast(column, wanted)?),
    }
}

fn told(error: tidemill_sort::Error) -> DataFusionError {
    external(match error {
        tidemill_sort::Error::RecordTooLong { bytes, limit_bytes } => Error::MemoryBudgetTooSmall {
            message: format!(
                "out of memory: what a row is sorted by has {}, more than the {} that it may have",
                format_binary_bytes(bytes),
                format_binary_bytes(limit_bytes),
            ),
            // An eighth of a share, which is nearly all of the half that steps have.
            hint: Some(format!(
                "--memory {} or more may do; or sort by the beginning of it: left(x, 100)",
                size_above(bytes.saturating_mul(19))
            )),
        },
        other => sort_error(other),
    })
}

/// An error of a sort as the others are told.
pub fn sort_error(error: tidemill_sort::Error) -> Error {
    use tidemill_sort::Error as Sort;
    let text = error.to_string();
    let (message, hint) = match text.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (text, None),
    };
    match error {
        Sort::Cancelled => Error::Interrupted,
        Sort::Io { action, path, source } => Error::io(action, path, source),
        Sort::DiskFull { folders, source, .. } => {
            Error::spill_disk_full(folders.iter().map(|(path, _)| path.as_path()), source)
        }
        Sort::FileSizeLimit { folder, source, .. } => {
            Error::spill_disk_full([folder.as_path()], source)
        }
        Sort::CorruptSpill { folder, offset, reason, .. } => {
            let path = folder.display().to_string();
            Error::Corrupt { path, offset: Some(offset), reason, hint }
        }
        Sort::Output(source) => Error::io("write", "the sorted records", source),
        Sort::ChecksumMismatch { .. } => Error::Internal(message),
        _ => Error::Usage { message, hint },
    }
}

#[cfg(test)]
mod tests;
