//! Sorts beyond memory, for `ORDER BY` and for operators that need sorted input.
//!
//! DataFusion's sort merges its spilled runs row by row from one batch of each run, and reserves memory by the
//! batch. With little memory it needs many passes, or does not finish. Here rows become records of bytes, and
//! [`tidemill_sort`] sorts them: in memory, or fanned out to range partitions that are sorted each by itself.
//!
//! ```text
//!  record   [length of key: u32][key: arrow_row of the sort expressions][location][payload: the other columns]
//!                                                                        0: inline; 1: spilled
//! ```
//!
//! `payload_codec` defines the bytes of the payload. A sort expression that is a column is not stored twice: the
//! column is decoded from the key. A payload that is too long for the sorter is spilled, and the record contains
//! its position in the spill.

mod payload_codec;

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

use crate::batch_positions::BatchPosition;
use crate::batch_positions::StableSort;
use crate::execution_override::ExecutionOverride;
use crate::memory_pool::{OperatorMemoryPool, memory_flag_value};
use crate::spills::{SpillAppender, SpillSpace, SpilledData};
use payload_codec::{EncodedPayloads, PayloadCodec};
use tidemill_planning::error_carrier::into_datafusion_error;

/// The operator's name, also in the memory pool.
pub(crate) const FAN_OUT_SORT_CONSUMER: &str = "FanOutSort";

/// Bytes of the sorter's entry for a record, beside the record itself.
const SORT_ENTRY_BYTES: usize = 18;

/// Maximum size in bytes of an output batch of more than one row.
const OUTPUT_BATCH_BYTES: u64 = 4 << 20;

/// Value of the location byte: the payload follows, or the position of the spilled payload.
const PAYLOAD_INLINE: u8 = 0;
const PAYLOAD_SPILLED: u8 = 1;

/// The settings of the run that a session's sorts need; an extension of DataFusion's configuration.
#[derive(Debug, Clone)]
pub struct SortRunSettings(pub RunSettings);

/// A physical rule that replaces DataFusion's sorts, except those with a row limit, which a heap computes.
#[derive(Debug)]
pub struct FanOutSortRule;

impl PhysicalOptimizerRule for FanOutSortRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            let run = if let Some(sort) = plan.downcast_ref::<SortExec>() {
                let is_of_all = sort.fetch().is_none();
                (is_of_all && is_row_encodable(&sort.schema()))
                    .then_some(execute_partition_sort as _)
            } else if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
                let sort = merged_sort(merge);
                let is_of_all = merge.fetch().is_none();
                sort.filter(|sort| is_of_all && sort.expr() == merge.expr())
                    .map(|_| execute_merged_sort as _)
            } else {
                None
            };
            Ok(match run {
                Some(run) => Transformed::yes(Arc::new(ExecutionOverride {
                    name: FAN_OUT_SORT_CONSUMER,
                    datafusion_plan: plan,
                    execute_fn: run,
                }) as _),
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

/// Returns the sort whose partitions are merged, if it is already replaced.
fn merged_sort(merge: &SortPreservingMergeExec) -> Option<&SortExec> {
    let below = merge.input().downcast_ref::<ExecutionOverride>()?;
    below.datafusion_plan.downcast_ref::<SortExec>()
}

fn is_row_encodable(schema: &Schema) -> bool {
    let of = |field: &Arc<arrow::datatypes::Field>| SortField::new(field.data_type().clone());
    RowConverter::supports_fields(&schema.fields().iter().map(of).collect::<Vec<_>>())
}

/// Sorts one partition, or all of them if the plan coalesces them first.
fn execute_partition_sort(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let Some(sort) = theirs.downcast_ref::<SortExec>() else {
        return Err(into_datafusion_error(Error::Internal("a sort of another kind".into())));
    };
    let joined = sort.input().downcast_ref::<CoalescePartitionsExec>();
    match joined.filter(|joined| joined.fetch().is_none() && !sort.preserve_partitioning()) {
        Some(joined) => execute_sort(sort.expr(), joined.input(), None, &context),
        None => execute_sort(sort.expr(), sort.input(), Some(partition), &context),
    }
}

/// Sorts all partitions.
fn execute_merged_sort(
    theirs: &Arc<dyn ExecutionPlan>,
    _: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let merge = theirs.downcast_ref::<SortPreservingMergeExec>();
    match merge.and_then(merged_sort) {
        Some(sort) => execute_sort(sort.expr(), sort.input(), None, &context),
        None => Err(into_datafusion_error(Error::Internal("a merge of another kind".into()))),
    }
}

fn execute_sort(
    by: &LexOrdering,
    input: &Arc<dyn ExecutionPlan>,
    partition: Option<usize>,
    context: &Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let config = context.session_config();
    let Some(SortRunSettings(settings)) =
        config.get_extension::<SortRunSettings>().map(|of| of.as_ref().clone())
    else {
        return Err(into_datafusion_error(Error::Internal("a sort of no run".into())));
    };
    let schema = input.schema();
    let count = input.output_partitioning().partition_count();
    let consumer =
        MemoryConsumer::new(format!("{FAN_OUT_SORT_CONSUMER}[{}]", partition.unwrap_or_default()));
    let sort = FanOutSort {
        record_format: Arc::new(RecordFormat::new(by, &schema)?),
        // A consumer that shares memory registers before the pool grants it any.
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

/// A sort that has not started.
struct FanOutSort {
    record_format: Arc<RecordFormat>,
    reservation: MemoryReservation,
    threads: usize,
    batch_rows: usize,
    context: Arc<TaskContext>,
    settings: RunSettings,
}

impl FanOutSort {
    fn start(self, inputs: Vec<SendableRecordBatchStream>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.record_format.schema);
        let mut builder = RecordBatchReceiverStream::builder(schema, 2);
        let sender = builder.tx();
        builder.spawn(async move {
            let (batch_rows, form) = (self.batch_rows, Arc::clone(&self.record_format));
            let (sorted, held) = self.sort_inputs(inputs).await?;
            let handed_on = tokio::task::spawn_blocking(move || {
                send_batches(sorted, &held, &form, batch_rows, &sender)
            });
            handed_on.await.unwrap_or_else(|ended| match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The run has ended already.
                Err(_) => Err(into_datafusion_error(Error::Interrupted)),
            })
        });
        builder.build()
    }

    /// Reads all inputs concurrently and sorts their rows.
    async fn sort_inputs(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> PlanResult<(SortedRecords<EncodedKeyOrder>, Arc<SortResources>)> {
        let pool = self.context.memory_pool().downcast_ref::<OperatorMemoryPool>();
        let share = pool.map_or(
            self.settings.memory_share_bytes(1, 4),
            OperatorMemoryPool::spillable_share_bytes,
        ) as u64;
        let mut options = Options::default();
        options.memory_bytes = share.max(MEMORY_BYTES_MIN);
        options.threads = self.threads;
        options.stable = true;
        let stable = self.context.session_config().get_extension::<StableSort>();
        options.limit = stable.and_then(|stable| stable.rows_max);
        options.spill_dirs = self.settings.spill_dirs.clone();
        options.cancel = self.settings.cancel.atomic_flag().into();
        let memory_bytes = usize::try_from(options.memory_bytes).unwrap_or(usize::MAX);
        let sorter = Sorter::new(EncodedKeyOrder, RecordShape::Variable, options)
            .map_err(sort_error_to_datafusion)?;
        let held = Arc::new(SortResources {
            record_bytes_max: sorter.budget().record_bytes_max,
            memory_bytes,
            reservation: self.reservation,
            oversized_payloads: Mutex::new(OversizedPayloads::new(&self.settings)),
            counted_spill_bytes: Mutex::new(0),
            progress: self.settings.progress,
        });
        let sorter = Arc::new(sorter);
        let mut tasks = JoinSet::new();
        for (index, input) in inputs.into_iter().enumerate() {
            let (sorter, form) = (Arc::clone(&sorter), Arc::clone(&self.record_format));
            tasks.spawn(push_input(input, sorter, index as u64, form, Arc::clone(&held)));
        }
        while let Some(ended) = tasks.join_next().await {
            match ended.map_err(tokio::task::JoinError::try_into_panic) {
                Ok(done) => done?,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(_)) => return Err(into_datafusion_error(Error::Interrupted)),
            }
        }
        held.oversized_payloads.lock().writer.flush_and_release_buffer()?;
        let sorter = Arc::into_inner(sorter);
        let sorter = sorter
            .ok_or_else(|| into_datafusion_error(Error::Internal("a sort goes on".into())))?;
        let sorted = sorter.finish().map_err(sort_error_to_datafusion)?;
        if sorted.is_spilled() {
            held.reservation.try_resize(held.memory_bytes)?;
        }
        Ok((sorted, held))
    }
}

/// The resources of a sort beside its records.
struct SortResources {
    record_bytes_max: usize,
    memory_bytes: usize,
    /// Memory reservation for the part of the sorter's memory that is filled.
    reservation: MemoryReservation,
    oversized_payloads: Mutex<OversizedPayloads>,
    /// Spilled bytes of the sorter that are counted in `progress`.
    counted_spill_bytes: Mutex<u64>,
    progress: RunProgress,
}

impl SortResources {
    /// Reserves memory for bytes pushed to the sorter, up to its limit; beyond that it spills.
    fn reserve_sorter_bytes(&self, bytes: usize) -> PlanResult<()> {
        let more = self.memory_bytes.saturating_sub(self.reservation.size()).min(bytes);
        self.reservation.try_grow(more)
    }

    /// Counts the bytes spilled since the last call.
    fn count_spilled_bytes(&self, disk: DiskCounts) {
        let mut spilled = self.counted_spill_bytes.lock();
        self.progress.add_spilled_bytes(disk.write_bytes.saturating_sub(*spilled));
        *spilled = disk.write_bytes.max(*spilled);
    }
}

/// The payloads that are too long for the sorter, in a spill.
struct OversizedPayloads {
    spill: SpilledData,
    writer: SpillAppender,
    end: u64,
}

impl OversizedPayloads {
    fn new(settings: &RunSettings) -> Self {
        let spill = SpillSpace::new(&settings.spill_dirs, &settings.progress).create_spill();
        let writer = spill.writer();
        OversizedPayloads { spill, writer, end: 0 }
    }

    /// Appends a payload and returns its position and length.
    fn append(&mut self, bytes: &[u8]) -> PlanResult<[u8; 16]> {
        let place = (u128::from(self.end) << 64 | bytes.len() as u128).to_be_bytes();
        self.writer.write_all(bytes)?;
        self.end += bytes.len() as u64;
        Ok(place)
    }

    fn read(&self, place: &[u8]) -> PlanResult<Vec<u8>> {
        let damaged =
            || into_datafusion_error(Error::Internal("a parked row without a place".into()));
        let place = u128::from_be_bytes(place.try_into().map_err(|_| damaged())?);
        let mut bytes = vec![0; usize::try_from(place as u64).map_err(|_| damaged())?];
        self.spill.read_exact_at((place >> 64) as u64, &mut bytes)?;
        Ok(bytes)
    }
}

/// Pushes the rows of one input to the sorter as records. Ties are output in the order of their tasks. A batch with
/// an input position starts a task of its own, or continues that of the preceding batch; all other batches share
/// the task of the input.
async fn push_input(
    mut input: SendableRecordBatchStream,
    sorter: Arc<Sorter<EncodedKeyOrder>>,
    index: u64,
    form: Arc<RecordFormat>,
    held: Arc<SortResources>,
) -> PlanResult<()> {
    let mut encoded = EncodedPayloads::default();
    let mut current: Option<(SortTask<EncodedKeyOrder>, Option<BatchPosition>)> = None;
    while let Some(batch) = input.next().await.transpose()? {
        let place = BatchPosition::from_batch(&batch);
        let goes_on = |before: &Option<BatchPosition>| match (before, &place) {
            (Some(before), Some(place)) => place.is_directly_after(before),
            (before, place) => before.is_none() && place.is_none(),
        };
        if let Some((task, _)) = current.take_if(|(_, before)| !goes_on(before)) {
            commit_task(task)?;
        }
        let begin =
            || (sorter.start_task(place.as_ref().map_or(index, BatchPosition::sort_key)), None);
        let (task, before) = current.get_or_insert_with(begin);
        *before = place;
        let bytes = form.push_batch(&batch, &held, &mut encoded, task)?;
        held.reserve_sorter_bytes(bytes)?;
        held.count_spilled_bytes(task.disk_counts());
    }
    current.map_or(Ok(()), |(task, _)| commit_task(task))
}

/// Commits a task's records to the sort.
fn commit_task(task: SortTask<EncodedKeyOrder>) -> PlanResult<()> {
    match task.commit().map_err(sort_error_to_datafusion)? {
        true => Ok(()),
        // Its rows would be missing from the output.
        false => Err(into_datafusion_error(Error::Internal("two batches of one place".into()))),
    }
}

/// Decodes the sorted records and sends batches until the receiver is dropped.
fn send_batches(
    sorted: SortedRecords<EncodedKeyOrder>,
    held: &SortResources,
    form: &RecordFormat,
    batch_rows: usize,
    sender: &Sender<PlanResult<RecordBatch>>,
) -> PlanResult<()> {
    let mut blocks =
        sorted.into_blocks(OutputFraming::LengthPrefixed).map_err(sort_error_to_datafusion)?;
    while let Some(block) = blocks.next_block().map_err(sort_error_to_datafusion)? {
        held.count_spilled_bytes(blocks.disk_counts());
        let records: Vec<&[u8]> = block.records().collect();
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at(batch_record_count(rest, batch_rows));
            rest = others;
            if sender.blocking_send(Ok(form.decode_batch(some, held)?)).is_err() {
                return Ok(());
            }
        }
    }
    held.count_spilled_bytes(blocks.finish().map_err(sort_error_to_datafusion)?.disk);
    Ok(())
}

/// Returns how many of the next records form a batch: as many as fit in [`OUTPUT_BATCH_BYTES`] with their spilled
/// payloads, at least one.
fn batch_record_count(records: &[&[u8]], batch_rows: usize) -> usize {
    let mut bytes = 0u64;
    let within = |record: &&&[u8]| {
        bytes =
            bytes.saturating_add(record.len() as u64).saturating_add(spilled_payload_bytes(record));
        bytes <= OUTPUT_BATCH_BYTES
    };
    records.iter().take(batch_rows).take_while(within).count().max(1)
}

/// Returns the size of a record's spilled payload, or 0 if the payload is inline.
fn spilled_payload_bytes(record: &[u8]) -> u64 {
    match EncodedKeyOrder::split_key(record).1.split_first() {
        Some((&PAYLOAD_SPILLED, place)) => {
            place.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
        }
        _ => 0,
    }
}

/// The location of a column in a record: index of the key or of the payload column.
#[derive(Debug, Clone, Copy)]
enum ColumnLocation {
    Key(usize),
    Payload(usize),
}

/// The format of the records of a sort.
struct RecordFormat {
    schema: SchemaRef,
    sort_exprs: Vec<PhysicalSortExpr>,
    key_converter: RowConverter,
    /// Columns that are not sort expressions themselves.
    payload_columns: Vec<usize>,
    payload_codec: PayloadCodec,
    column_locations: Vec<ColumnLocation>,
}

impl RecordFormat {
    fn new(by: &LexOrdering, schema: &SchemaRef) -> PlanResult<RecordFormat> {
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
                    ColumnLocation::Payload(rest.len() - 1)
                },
                ColumnLocation::Key,
            )
        });
        let places: Vec<ColumnLocation> = places.collect();
        let rests = PayloadCodec::new(rest.iter().map(|index| &schema.fields()[*index]))?;
        Ok(RecordFormat {
            schema: Arc::clone(schema),
            sort_exprs: by,
            key_converter: keys,
            payload_columns: rest,
            payload_codec: rests,
            column_locations: places,
        })
    }

    /// Pushes a batch's rows to the sorter and returns the bytes that they take there.
    fn push_batch(
        &self,
        batch: &RecordBatch,
        held: &SortResources,
        encoded: &mut EncodedPayloads,
        task: &mut SortTask<EncodedKeyOrder>,
    ) -> PlanResult<usize> {
        let keys = self.sort_exprs.iter().map(|key| Ok(key.evaluate_to_sort_column(batch)?.values));
        let keys = self.key_converter.convert_columns(&keys.collect::<PlanResult<Vec<_>>>()?)?;
        let rest: Vec<ArrayRef> =
            self.payload_columns.iter().map(|index| Arc::clone(batch.column(*index))).collect();
        self.payload_codec.encode(&rest, batch.num_rows(), encoded)?;
        let mut bytes = 0;
        for row in 0..batch.num_rows() {
            let (key, rest) = (keys.row(row).data(), encoded.row(row));
            let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
            let record_bytes = length.len() + key.len() + 1 + rest.len();
            let pushed = match record_bytes <= held.record_bytes_max {
                true => task.push_concatenated(&[&length, key, &[PAYLOAD_INLINE], rest]),
                false => {
                    let place = held.oversized_payloads.lock().append(rest)?;
                    task.push_concatenated(&[&length, key, &[PAYLOAD_SPILLED], &place])
                }
            };
            pushed.map_err(sort_error_to_datafusion)?;
            bytes += record_bytes.min(held.record_bytes_max) + SORT_ENTRY_BYTES;
        }
        Ok(bytes)
    }

    /// Decodes records to a batch.
    fn decode_batch(&self, records: &[&[u8]], held: &SortResources) -> PlanResult<RecordBatch> {
        let (mut keys, mut rests) = (Vec::with_capacity(records.len()), Vec::new());
        let mut fetched = Vec::new();
        for record in records {
            let (key, rest) = EncodedKeyOrder::split_key(record);
            keys.push(key);
            match rest.split_first() {
                Some((&PAYLOAD_INLINE, rest)) => rests.push(Some(rest)),
                Some((_, place)) => {
                    fetched.push(held.oversized_payloads.lock().read(place)?);
                    rests.push(None);
                }
                None => {
                    return Err(into_datafusion_error(Error::Internal(
                        "a record cut short".into(),
                    )));
                }
            }
        }
        let mut fetched = fetched.iter().map(Vec::as_slice);
        let rests = rests.into_iter().map(|rest| rest.or_else(|| fetched.next()));
        let rests: Vec<&[u8]> = rests.map(Option::unwrap_or_default).collect();
        let parser = self.key_converter.parser();
        let keys = self.key_converter.convert_rows(keys.iter().map(|key| parser.parse(key)))?;
        let rests = self.payload_codec.decode(&rests)?;
        let columns =
            self.column_locations.iter().zip(self.schema.fields()).map(|(place, field)| {
                let column = match place {
                    ColumnLocation::Key(index) => &keys[*index],
                    ColumnLocation::Payload(index) => &rests[*index],
                };
                cast_to_type(column, field.data_type())
            });
        let columns = columns.collect::<PlanResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Casts a decoded column to its schema type: the row format returns dictionaries as plain values.
fn cast_to_type(column: &ArrayRef, wanted: &DataType) -> PlanResult<ArrayRef> {
    match column.data_type() == wanted {
        true => Ok(Arc::clone(column)),
        false => Ok(cast(column, wanted)?),
    }
}

fn sort_error_to_datafusion(error: tidemill_sort::Error) -> DataFusionError {
    into_datafusion_error(match error {
        tidemill_sort::Error::RecordTooLong { bytes, limit_bytes } => Error::MemoryBudgetTooSmall {
            message: format!(
                "out of memory: what a row is sorted by has {}, more than the {} that it may have",
                format_binary_bytes(bytes),
                format_binary_bytes(limit_bytes),
            ),
            // The limit is an eighth of a share, and a share is nearly all of the half that operators have.
            hint: Some(format!(
                "--memory {} or more may do; or sort by the beginning of it: left(x, 100)",
                memory_flag_value(bytes.saturating_mul(19))
            )),
        },
        other => convert_sort_error(other),
    })
}

/// Converts an error of the sorter to the error type of the workspace.
pub fn convert_sort_error(error: tidemill_sort::Error) -> Error {
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
