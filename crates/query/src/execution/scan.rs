//! A source as a table that DataFusion can plan over, and its splits as partitions.
//!
//! A table is scanned in one of two ways. For the table path each split is a partition of its own, read on
//! the calling thread, so that the runner decides when to read a split and learns its outcome
//! ([`Scan::take_outcome`]). For DataFusion's own execution a few partitions take splits from a common queue,
//! each on a blocking thread behind a bounded channel.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::{
    RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter,
};
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use parking_lot::{Condvar, Mutex, RwLock};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::{ComputeTurn, CoreSharing};
use tidemill_base::coverage::ReadAmount;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::RunProgress;
use tidemill_dialect::translation::{PercentSample, RowCountSample};
use tidemill_operators::batch_positions::BatchPosition;
use tidemill_operators::batch_positions::StableSort;
use tidemill_remote::{AccessPlan, PrefetchBudget};
use tidemill_source::schema::nested_projection::NestedProjections;
use tidemill_source::{ReadOptions, RejectLog, Source, Split, SplitReader, SplitStats};
use tidemill_sql::IntoTidemillError;
use tidemill_sql::into_datafusion_error;
use tidemill_sql::scan_statistics::ScanWithStatistics;
use tidemill_sql::session::{BATCH_ROWS, ScanMode};
use tidemill_text::Predicate;
use tracing::{Span, debug_span};

use crate::planning::table_sample::RowSampler;
use crate::{planning::pruning, planning::source_statistics};

/// Maximum number of splits whose first [`SPLIT_PREFIX_BYTES`] are read to measure the cost of starting a
/// split.
const SPLIT_PREFIXES_MAX: usize = 512;
/// Bytes read from the start of such a split.
const SPLIT_PREFIX_BYTES: u64 = 1 << 10;

/// Maximum number of Parquet files whose metadata gives the share of stored bytes that columns take.
const COLUMN_SHARE_FILES_MAX: usize = 64;

/// Memory target of a batch, in bytes, at an assumed sixteen bytes for each value. A batch of many columns
/// has fewer rows.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Metadata key that marks a hidden column in the schema of a partial table.
const HIDDEN_COLUMN_KEY: &str = "tidemill.hidden";

/// Returns the number of rows in a batch of so many columns: 64 at least, `rows_max`, the operators' batch
/// size, at most.
fn choose_batch_rows(columns: usize, rows_max: usize) -> usize {
    (BATCH_BYTES_MAX / 16 / columns.max(1)).clamp(64, BATCH_ROWS).min(rows_max)
}

/// The state that all scans of a run share.
#[derive(Debug, Clone)]
pub(crate) struct RunState {
    /// Cancels the run.
    pub cancel: CancelFlag,
    /// Counters for the progress display.
    pub progress: RunProgress,
    /// Receiver of rejected records.
    pub rejects: Arc<RejectLog>,
    /// Memory budget for prefetching remote files.
    pub prefetch_budget: PrefetchBudget,
    /// Access to the machine's cores, which the run shares with other runs.
    pub cores: Option<CoreSharing>,
}

/// A source as a DataFusion table.
#[derive(Debug)]
pub(crate) struct SourceTable {
    /// The source's columns, followed by the hidden columns that the query names.
    schema: SchemaRef,
    /// The names of those hidden columns …
    hidden_columns: BTreeSet<String>,
    /// … and for each, in the schema's order, its position in the source.
    hidden_source_columns: Vec<usize>,
    /// The source; `None` for a table that is only planned over, as for the merge of partial tables.
    source: Option<Arc<Source>>,
    /// The sample by share, if one is read.
    sample: Option<PercentSample>,
    /// The sample of a number of rows, which is drawn from the rows read.
    row_sample: Option<RowCountSample>,
    run_state: RunState,
    scans: Mutex<Vec<Arc<Scan>>>,
    /// The columns and fields that the query uses; `None` until it is planned.
    used_fields: Mutex<Option<Arc<NestedProjections>>>,
    /// True if all records are read, even if no operator wants their rows.
    reads_all_records: AtomicBool,
    /// The size of splits, if it does not follow from the source's size.
    split_sizing: Mutex<Option<SplitSizing>>,
    /// The splits to read next, for a table whose splits are assigned from outside.
    assigned_splits: Mutex<Option<(Arc<Source>, Vec<Split>)>>,
}

/// The size of splits for a run that may end before it has read all of the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitSizing {
    /// Bytes of a split, if given.
    pub split_bytes: Option<u64>,
    /// True to read only the prefixes of some splits, spread evenly.
    pub reads_prefixes_only: bool,
}

impl SourceTable {
    /// Creates a table over an opened source, with those of its hidden columns that `hidden` names.
    pub(crate) fn new(
        source: Arc<Source>,
        run: RunState,
        sample: Option<PercentSample>,
        hidden: &BTreeSet<String>,
    ) -> Self {
        let mut fields = source.schema().fields().to_vec();
        let (mut hidden_places, mut names) = (Vec::new(), BTreeSet::new());
        let first = fields.len();
        // In the order of their names, on which callers that list a table's columns rely.
        for name in hidden {
            let place = source.hidden_columns().iter().position(|field| field.name() == name);
            let field = place.and_then(|place| source.hidden_columns().get(place));
            if let (Some(place), Some(field)) = (place, field) {
                hidden_places.push(first + place);
                fields.push(Arc::clone(field));
                names.insert(name.clone());
            }
        }
        let schema = match hidden_places.is_empty() {
            true => Arc::clone(source.schema()),
            false => Arc::new(Schema::new(fields)),
        };
        SourceTable {
            schema,
            hidden_columns: names,
            hidden_source_columns: hidden_places,
            source: Some(source),
            sample,
            row_sample: None,
            run_state: run,
            scans: Mutex::default(),
            used_fields: Mutex::default(),
            reads_all_records: AtomicBool::default(),
            split_sizing: Mutex::default(),
            assigned_splits: Mutex::default(),
        }
    }

    /// Creates a table to plan over, which has no rows to scan. Its schema may have hidden columns marked.
    pub(crate) fn without_files(schema: SchemaRef, run: RunState) -> Self {
        let is_hidden = |field: &&FieldRef| field.metadata().contains_key(HIDDEN_COLUMN_KEY);
        let names = schema.fields().iter().filter(is_hidden).map(|field| field.name().clone());
        let hidden: BTreeSet<String> = names.collect();
        let plain = |field: &FieldRef| {
            let mut said = field.metadata().clone();
            said.remove(HIDDEN_COLUMN_KEY);
            Arc::new(field.as_ref().clone().with_metadata(said))
        };
        let schema = match hidden.is_empty() {
            true => schema,
            false => Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>())),
        };
        SourceTable {
            schema,
            hidden_columns: hidden,
            hidden_source_columns: Vec::new(),
            source: None,
            sample: None,
            row_sample: None,
            run_state: run,
            scans: Mutex::default(),
            used_fields: Mutex::default(),
            reads_all_records: AtomicBool::default(),
            split_sizing: Mutex::default(),
            assigned_splits: Mutex::default(),
        }
    }

    /// Assigns splits of `source` to the scans planned from now on. The source has the columns that this
    /// table was planned over.
    pub(crate) fn assign_splits(&self, source: Arc<Source>, splits: Vec<Split>) {
        *self.assigned_splits.lock() = Some((source, splits));
    }

    /// Returns the names of the table's hidden columns.
    pub(crate) fn hidden_columns(&self) -> &BTreeSet<String> {
        &self.hidden_columns
    }

    /// Returns the schema with hidden columns marked in their metadata.
    pub(crate) fn schema_with_hidden_marks(&self) -> SchemaRef {
        if self.hidden_columns.is_empty() {
            return Arc::clone(&self.schema);
        }
        let kept = |field: &FieldRef| match self.hidden_columns.contains(field.name()) {
            true => {
                let mut said = field.metadata().clone();
                said.insert(HIDDEN_COLUMN_KEY.to_owned(), String::new());
                Arc::new(field.as_ref().clone().with_metadata(said))
            }
            false => Arc::clone(field),
        };
        Arc::new(Schema::new(self.schema.fields().iter().map(kept).collect::<Vec<_>>()))
    }

    /// Returns the source's column for a column of the table.
    fn source_column_index(&self, column: usize) -> usize {
        let own = self.schema.fields().len() - self.hidden_source_columns.len();
        let hidden = column.checked_sub(own).and_then(|at| self.hidden_source_columns.get(at));
        hidden.copied().unwrap_or(column)
    }

    /// Returns the sample by share, if not all rows are read.
    pub(crate) fn sample(&self) -> Option<PercentSample> {
        self.sample
    }

    /// Sets the sample of a number of rows.
    #[must_use]
    pub(crate) fn with_row_sample(self, row_sample: Option<RowCountSample>) -> Self {
        SourceTable { row_sample, ..self }
    }

    /// Returns the sample of a number of rows, if not all rows are taken.
    pub(crate) fn row_sample(&self) -> Option<RowCountSample> {
        self.row_sample
    }

    /// Returns true if only a sample of the rows is read.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sample.is_some() || self.row_sample.is_some()
    }

    /// Sets small splits for the scans planned from now on: of `split_bytes`, or by the source's size.
    pub(crate) fn split_finely(&self, split_bytes: Option<u64>) {
        self.set_split_sizing(Some(SplitSizing { split_bytes, reads_prefixes_only: false }));
    }

    /// Sets the size of splits for the scans planned from now on; `None` derives it from the source's size.
    pub(crate) fn set_split_sizing(&self, cut: Option<SplitSizing>) {
        *self.split_sizing.lock() = cut;
    }

    /// Returns the source, if there is one to read.
    pub(crate) fn source(&self) -> Option<&Arc<Source>> {
        self.source.as_ref()
    }

    /// Sets the columns and fields that the query uses. Scans planned from now on read no others.
    pub(crate) fn set_used_fields(&self, used: &Arc<NestedProjections>) {
        *self.used_fields.lock() = Some(Arc::clone(used));
    }

    /// Makes scans read all records, even if a join turns out to want no more of them: the query has no
    /// limit, and all rejected records must be reported.
    pub(crate) fn set_reads_all_records(&self) {
        self.reads_all_records.store(true, Ordering::Relaxed);
    }

    /// Discards all scans, for a run that starts over. Their readers are stopped and count nothing more.
    pub(crate) fn discard_scans(&self) {
        for scan in self.scans.lock().drain(..) {
            *scan.is_discarded.write() = true;
            scan.stop_readers();
        }
    }

    /// Returns the scans planned so far, one per mention of the table in a plan.
    pub(crate) fn scans(&self) -> Vec<Arc<Scan>> {
        self.scans.lock().clone()
    }
}

/// Returns the first kibibyte of some splits, spread evenly, of files that can be cut between any two
/// records.
fn take_split_prefixes(splits: Vec<Split>) -> Vec<Split> {
    let is_cut = |split: &Split| match split.parts.as_slice() {
        [piece] => piece.row_groups.is_none() && !piece.is_whole_file(),
        _ => false,
    };
    let mut cut: Vec<Split> = splits.into_iter().filter(is_cut).collect();
    let each = cut.len().div_ceil(SPLIT_PREFIXES_MAX).max(1);
    cut = cut.into_iter().step_by(each).collect();
    for (index, split) in cut.iter_mut().enumerate() {
        split.index = index;
        for piece in &mut split.parts {
            piece.range.end = piece.range.end.min(piece.range.start + SPLIT_PREFIX_BYTES);
            split.bytes = piece.range.end - piece.range.start;
        }
    }
    cut
}

#[async_trait]
impl TableProvider for SourceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        // Row groups and rows of text are left out where that is cheap; the plan above filters all rows.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        self.scan_with_dictionary_codes(&self.schema, &[], state, projection, filters)
    }
}

impl SourceTable {
    /// Plans a scan that returns the columns `coded` as dictionary codes. `all` is the table's schema with
    /// those types.
    pub(crate) fn scan_with_dictionary_codes(
        &self,
        all: &SchemaRef,
        coded: &[usize],
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let (source, given) = match self.assigned_splits.lock().clone() {
            Some((source, splits)) => (source, Some(splits)),
            None => match &self.source {
                Some(source) => (Arc::clone(source), None),
                None => {
                    let missing = Error::Internal("a table without files was scanned".into());
                    return Err(into_datafusion_error(missing));
                }
            },
        };
        let source = &source;
        let schema = match projection {
            Some(columns) => Arc::new(all.project(columns)?),
            None => Arc::clone(all),
        };
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let mut wanted =
            projection.unwrap_or(&all).iter().map(|column| self.source_column_index(*column));
        if let Some(refusal) = wanted.find_map(|column| source.column_error(column)) {
            return Err(into_datafusion_error(refusal.into()));
        }
        // The position of a row decides whether it is sampled, so no filter may drop rows before.
        let filters = if self.is_sampled() { &[] } else { filters };
        let is_all = projection.is_none() && self.hidden_source_columns.is_empty();
        let projection: Option<Vec<usize>> = (!is_all).then(|| {
            let columns = projection.unwrap_or(&all).iter();
            columns.map(|column| self.source_column_index(*column)).collect()
        });
        let is_numbered =
            projection.iter().flatten().any(|column| source.is_row_number_column(*column));
        let cut = *self.split_sizing.lock();
        let target_bytes =
            cut.map(|cut| cut.split_bytes.unwrap_or_else(|| source.sample_split_target_bytes()));
        let is_given = given.is_some();
        let splits = match given {
            Some(splits) => splits,
            None => pruning::prune_splits(source, filters, is_numbered, target_bytes)
                .map_err(into_datafusion_error)?,
        };
        let splits = if cut.is_some_and(|cut| cut.reads_prefixes_only) {
            take_split_prefixes(splits)
        } else {
            splits
        };
        let total_bytes = splits.iter().map(|split| split.bytes).sum();
        let scan = Arc::new(Scan {
            source: Arc::clone(source),
            stop: self.run_state.cancel.child_flag(),
            run_state: self.run_state.clone(),
            predicates: pruning::build_read_predicates(source.schema(), filters),
            sample: self.sample,
            predicates_keep_many: Arc::default(),
            used_fields: self.used_fields.lock().clone(),
            projection,
            encoded_columns: coded.to_vec(),
            schema: Arc::clone(&schema),
            split_states: splits.iter().map(|_| Mutex::default()).collect(),
            splits,
            total_bytes,
            batch_rows: choose_batch_rows(schema.fields().len(), state.config().batch_size()),
            totals: ScanTotals::default(),
            is_discarded: RwLock::default(),
            reads_all_records: self.reads_all_records.load(Ordering::Relaxed),
            queue: SplitQueue::default(),
            reread_positions: Mutex::default(),
            access_plan: OnceLock::new(),
            is_eager: AtomicBool::new(false),
            reported_splits: is_given.then(Mutex::default),
            current_scan: is_given.then(Arc::default),
        });
        self.run_state
            .progress
            .set_bytes_total(self.run_state.progress.bytes_total() + total_bytes);
        self.scans.lock().push(Arc::clone(&scan));
        let mode = state.config().get_extension::<ScanMode>();
        let shares_splits = mode.as_deref() != Some(&ScanMode::PerSplit);
        let partitions: Vec<Arc<dyn PartitionStream>> = match mode.as_deref() {
            Some(ScanMode::PerSplit) => (0..scan.partition_count())
                .map(|index| Arc::new(SplitPartition { scan: Arc::clone(&scan), index }) as _)
                .collect(),
            mode => {
                let wanted = if let Some(ScanMode::Pooled(count)) = mode { *count } else { 1 };
                scan.queue.is_used.store(true, Ordering::Relaxed);
                (0..wanted.clamp(1, scan.splits.len().max(1)))
                    .map(|_| Arc::new(QueuePartition::new(&scan)) as _)
                    .collect()
            }
        };
        let streams = StreamingTableExec::try_new(schema, partitions, None, None, false, None)?;
        let known = Arc::new(move || {
            source_statistics::estimate_statistics(
                &scan.source,
                &scan.splits,
                scan.projection.as_deref(),
            )
        });
        Ok(Arc::new(ScanWithStatistics::new(streams, known, shares_splits)))
    }
}

/// Totals of the splits that were read and counted.
#[derive(Debug, Default)]
struct ScanTotals {
    splits: AtomicU64,
    bytes: AtomicU64,
    rows: AtomicU64,
    rejected: AtomicU64,
}

/// One pass over a source's splits.
pub(crate) struct Scan {
    source: Arc<Source>,
    run_state: RunState,
    /// Cancels the readers of this scan.
    stop: CancelFlag,
    projection: Option<Vec<usize>>,
    /// The columns returned as dictionary codes.
    encoded_columns: Vec<usize>,
    /// Predicates on rows of text, by the columns' positions in the source.
    predicates: Vec<Predicate>,
    /// The sample by share, if one is read.
    sample: Option<PercentSample>,
    /// Set once readers find that the predicates keep many rows.
    predicates_keep_many: Arc<AtomicBool>,
    used_fields: Option<Arc<NestedProjections>>,
    schema: SchemaRef,
    splits: Vec<Split>,
    split_states: Vec<Mutex<SplitState>>,
    total_bytes: u64,
    /// Rows of a batch. A spilling sort counts the text of a larger batch several times.
    batch_rows: usize,
    totals: ScanTotals,
    /// True once the scan is discarded: what it reads is not counted.
    is_discarded: RwLock<bool>,
    /// True if all records are read, even if no operator wants their rows.
    reads_all_records: bool,
    queue: SplitQueue,
    /// The next split of each further pass: a recursive query reads its tables again at every level.
    reread_positions: Mutex<Vec<Arc<AtomicUsize>>>,
    /// The access plan of the remote files, announced once reading begins; `None` inside for local files.
    access_plan: OnceLock<Option<Arc<AccessPlan>>>,
    /// True to pass rows on as soon as they are read, in small batches.
    is_eager: AtomicBool,
    /// Outcomes of splits, where the driver counts them and not this process.
    reported_splits: Option<Mutex<Vec<ReportedSplit>>>,
    /// The scan whose splits the reusable plan over this scan reads; `None` if the plan always reads this
    /// scan's.
    current_scan: Option<Arc<CurrentScan>>,
}

/// The scan whose splits a reusable plan currently reads. A plan is reused so that its build sides are hashed
/// only once.
#[derive(Default)]
struct CurrentScan {
    execution_lock: Mutex<()>,
    scan: Mutex<Weak<Scan>>,
}

/// Maximum number of splits that a reusable plan reads per assignment; it is planned with this many
/// partitions.
const REUSABLE_PLAN_PARTITIONS: usize = 256;

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("source", &self.source).finish_non_exhaustive()
    }
}

/// The state of a split before and after it was read.
#[derive(Default)]
struct SplitState {
    exact_start: Option<u64>,
    was_read: bool,
    outcome: Option<SplitOutcome>,
    read_counts: ReadCounts,
}

/// The rows and records read of a split by the time of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadCounts {
    /// Valid rows.
    pub rows: u64,
    /// Rejected records.
    pub rejected: u64,
}

/// The outcome of reading a split, to its end or to an error.
pub(crate) struct SplitOutcome {
    /// Rows, bytes and rejected records, and the offsets at which the split started and ended.
    pub stats: SplitStats,
    /// True if the start was known and not a speculative boundary.
    pub is_exact_start: bool,
}

/// The outcome of a split that this process read for the driver.
pub(crate) struct ReportedSplit {
    /// Index among the scan's splits.
    pub index: usize,
    /// Number of rows that left the map.
    pub mapped_rows: u64,
    /// Outcome of reading.
    pub outcome: SplitOutcome,
}

impl Scan {
    /// Returns a scan with the same settings over other splits, of a source with the same columns. The driver
    /// counts them.
    pub(crate) fn with_splits(&self, source: Arc<Source>, splits: Vec<Split>) -> Arc<Scan> {
        Arc::new(Scan {
            source,
            stop: self.run_state.cancel.child_flag(),
            run_state: self.run_state.clone(),
            predicates: self.predicates.clone(),
            sample: self.sample,
            predicates_keep_many: Arc::clone(&self.predicates_keep_many),
            used_fields: self.used_fields.clone(),
            projection: self.projection.clone(),
            encoded_columns: self.encoded_columns.clone(),
            schema: Arc::clone(&self.schema),
            split_states: splits.iter().map(|_| Mutex::default()).collect(),
            total_bytes: splits.iter().map(|split| split.bytes).sum(),
            splits,
            batch_rows: self.batch_rows,
            totals: ScanTotals::default(),
            is_discarded: RwLock::default(),
            reads_all_records: self.reads_all_records,
            queue: SplitQueue::default(),
            reread_positions: Mutex::default(),
            access_plan: OnceLock::new(),
            is_eager: AtomicBool::new(self.is_eager()),
            reported_splits: Some(Mutex::default()),
            current_scan: self.current_scan.clone(),
        })
    }

    /// Returns true if the reusable plan of this scan's table can read its splits.
    pub(crate) fn has_reusable_plan(&self) -> bool {
        self.current_scan.is_some() && self.splits.len() <= REUSABLE_PLAN_PARTITIONS
    }

    /// Executes the reusable plan such that it reads this scan's splits.
    pub(crate) fn execute_plan<T>(self: &Arc<Self>, execute: impl FnOnce() -> T) -> T {
        let Some(current) = &self.current_scan else { return execute() };
        // A thread that executes the plan for an earlier scan sets that scan in the same way.
        let _one_at_a_time = current.execution_lock.lock();
        *current.scan.lock() = Arc::downgrade(self);
        execute()
    }

    /// Returns the number of partitions of a plan that reads one split in each.
    pub(crate) fn partition_count(&self) -> usize {
        match self.current_scan {
            Some(_) => self.splits.len().max(REUSABLE_PLAN_PARTITIONS),
            None => self.splits.len(),
        }
    }

    /// Returns the source.
    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Returns the schema of the columns read.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the splits, in the order of the data.
    pub(crate) fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// Returns the share of the stored bytes that the columns of this scan take, by the first files of a
    /// Parquet source. 1.0 for other formats.
    pub(crate) fn column_bytes_share(&self) -> f64 {
        let own: BTreeSet<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let (mut read, mut stored) = (0i64, 0i64);
        for file in 0..self.source.files().len().min(COLUMN_SHARE_FILES_MAX) {
            let Some(metadata) = self.source.parquet_metadata(file) else { return 1.0 };
            for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
                let bytes = column.compressed_size();
                stored += bytes;
                let name = column.column_path().parts().first();
                read +=
                    if name.is_some_and(|name| own.contains(name.as_str())) { bytes } else { 0 };
            }
        }
        match read > 0 && stored > 0 {
            true => (read as f64 / stored as f64).min(1.0),
            // A scan without columns reads what tells the number of rows.
            false => 1.0,
        }
    }

    /// Creates the turn that a reading thread takes to compute.
    pub(crate) fn new_core_turn(&self) -> ComputeTurn<'_> {
        ComputeTurn::new(self.run_state.cores.as_ref())
    }

    /// Stops the scan's readers, even one that waits for standard input: no more rows are needed.
    pub(crate) fn stop_readers(&self) {
        self.stop.cancel();
    }

    /// Makes readers pass rows on as soon as they are read, not in full batches.
    pub(crate) fn set_eager(&self) {
        self.is_eager.store(true, Ordering::Relaxed);
    }

    /// Returns true if readers pass rows on as soon as they are read.
    pub(crate) fn is_eager(&self) -> bool {
        self.is_eager.load(Ordering::Relaxed)
    }

    /// Sets the exact start of split `index` for its next reading.
    pub(crate) fn set_exact_start(&self, index: usize, start: u64) {
        self.split_states[index].lock().exact_start = Some(start);
    }

    /// Takes the outcome of the last reading of split `index`.
    pub(crate) fn take_outcome(&self, index: usize) -> Option<SplitOutcome> {
        self.split_states[index].lock().outcome.take()
    }

    /// Reads split `index` to count its records, unless it was read: a join whose build side is empty
    /// requests no rows, but rejected records must be reported all the same.
    ///
    /// # Errors
    /// Errors of reading.
    pub(crate) fn read_unrequested_split(self: &Arc<Self>, index: usize) -> Result<()> {
        if self.split_states[index].lock().outcome.is_some() {
            return Ok(());
        }
        let scan = Arc::clone(self);
        let mut batches = SplitBatches::new(scan, index);
        batches.try_for_each(|batch| batch.map(drop)).into_tidemill_error()?;
        Ok(())
    }

    /// Counts a split that was read.
    ///
    /// # Errors
    /// [`Error::BadRecords`] if the rejected records exceed their limit.
    pub(crate) fn count_split(&self, mut stats: SplitStats) -> Result<()> {
        let is_void = self.is_discarded.read();
        if *is_void {
            return Ok(());
        }
        stats.commit_to(&self.run_state.rejects)?;
        self.totals.splits.fetch_add(1, Ordering::Relaxed);
        self.totals.bytes.fetch_add(stats.bytes, Ordering::Relaxed);
        self.totals.rows.fetch_add(stats.rows, Ordering::Relaxed);
        self.totals.rejected.fetch_add(stats.rejected_count, Ordering::Relaxed);
        Ok(())
    }

    /// Counts a split of which `mapped_rows` rows left the map, or keeps its outcome where the driver counts
    /// it.
    ///
    /// # Errors
    /// Those of [`Scan::count_split`].
    pub(crate) fn count_or_report_split(
        &self,
        index: usize,
        mapped_rows: u64,
        outcome: SplitOutcome,
    ) -> Result<()> {
        match &self.reported_splits {
            Some(told) => {
                told.lock().push(ReportedSplit { index, mapped_rows, outcome });
                Ok(())
            }
            None => self.count_split(outcome.stats),
        }
    }

    /// Returns true if the driver counts the splits.
    pub(crate) fn reports_splits_to_driver(&self) -> bool {
        self.reported_splits.is_some()
    }

    /// Takes the outcomes of splits for the driver, in their order.
    pub(crate) fn take_reported_splits(&self) -> Vec<ReportedSplit> {
        self.reported_splits.as_ref().map_or(Vec::new(), |told| std::mem::take(&mut told.lock()))
    }

    /// Returns the rows and records read of split `index` so far.
    pub(crate) fn read_counts(&self, index: usize) -> ReadCounts {
        self.split_states[index].lock().read_counts
    }

    /// Counts a split up to `so_far`, because no more of its rows were needed.
    ///
    /// # Errors
    /// Those of [`Scan::count_split`].
    pub(crate) fn count_partial_split(
        &self,
        mut stats: SplitStats,
        so_far: ReadCounts,
    ) -> Result<()> {
        let is_void = self.is_discarded.read();
        if *is_void {
            return Ok(());
        }
        stats.truncate_rejected(so_far.rejected);
        stats.commit_to(&self.run_state.rejects)?;
        self.totals.rows.fetch_add(so_far.rows, Ordering::Relaxed);
        self.totals.rejected.fetch_add(stats.rejected_count, Ordering::Relaxed);
        Ok(())
    }

    /// Adds the rows and records of a split that is not read to its end.
    pub(crate) fn add_read_counts(&self, so_far: ReadCounts) {
        self.totals.rows.fetch_add(so_far.rows, Ordering::Relaxed);
        self.totals.rejected.fetch_add(so_far.rejected, Ordering::Relaxed);
    }

    /// Returns the number of splits read, of all.
    pub(crate) fn split_amount(&self) -> ReadAmount {
        let done = self.totals.splits.load(Ordering::Relaxed);
        ReadAmount { done, total: self.splits.len() as u64, left_out: 0 }
    }

    /// Returns the stored bytes read, of all. For standard input, whose size is unknown before, the total is
    /// the bytes read.
    pub(crate) fn byte_amount(&self) -> ReadAmount {
        let done = self.totals.bytes.load(Ordering::Relaxed);
        ReadAmount { done, total: self.total_bytes.max(done), left_out: 0 }
    }

    /// Returns the number of rows read.
    pub(crate) fn row_count(&self) -> u64 {
        self.totals.rows.load(Ordering::Relaxed)
    }

    /// Returns the number of rejected records.
    pub(crate) fn rejected_count(&self) -> u64 {
        self.totals.rejected.load(Ordering::Relaxed)
    }

    fn open_reader(&self, index: usize) -> Result<SplitRows> {
        let (exact_start, was_read) = {
            let mut slot = self.split_states[index].lock();
            (slot.exact_start, std::mem::replace(&mut slot.was_read, true))
        };
        // Reading a split again is no further progress.
        let progress = if was_read { RunProgress::new() } else { self.run_state.progress.clone() };
        let place = (!was_read).then_some(index);
        self.open_split_reader(&self.splits[index], exact_start, progress, place)
    }

    /// Announces all splits to the remote files before the first is read, where all of them will be.
    fn announce_splits(&self, options: &ReadOptions) -> Result<Option<Arc<AccessPlan>>> {
        if let Some(course) = self.access_plan.get() {
            return Ok(course.clone());
        }
        let is_whole = self.reads_all_records || !self.queue.is_used.load(Ordering::Relaxed);
        let course = match is_whole {
            true => self.source.access_plan(&self.splits, options)?,
            false => None,
        };
        Ok(self.access_plan.get_or_init(|| course).clone())
    }

    fn open_split_reader(
        &self,
        split: &Split,
        exact_start: Option<u64>,
        progress: RunProgress,
        place: Option<usize>,
    ) -> Result<SplitRows> {
        let mut options = ReadOptions {
            projection: self.projection.clone(),
            dictionary_columns: self.encoded_columns.clone(),
            predicates: self.predicates.clone(),
            predicates_keep_many: Arc::clone(&self.predicates_keep_many),
            used_fields: self.used_fields.clone(),
            batch_rows: self.batch_rows,
            exact_start,
            cancel: self.stop.clone(),
            progress,
            reject_log: Arc::clone(&self.run_state.rejects),
            prefetch_budget: self.run_state.prefetch_budget.clone(),
            low_latency: self.is_eager(),
            access_plan: None,
        };
        // Its index among the announced splits; a second reading is not announced.
        if let Some(place) = place {
            options.access_plan = self.announce_splits(&options)?.map(|course| (course, place));
        }
        let reader = self.source.read_split(split, &options)?;
        Ok(SplitRows { reader, sampler: self.sample.map(|sample| RowSampler::new(sample, split)) })
    }
}

/// The rows of a split, or a sample of them.
struct SplitRows {
    reader: SplitReader,
    sampler: Option<RowSampler>,
}

impl Iterator for SplitRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?.map_err(Error::from);
        Some(match (&mut self.sampler, batch) {
            (Some(sampler), Ok(batch)) => sampler.sample_batch(&batch),
            (_, batch) => batch,
        })
    }
}

/// One split as a DataFusion partition.
#[derive(Debug)]
struct SplitPartition {
    scan: Arc<Scan>,
    index: usize,
}

impl PartitionStream for SplitPartition {
    fn schema(&self) -> &SchemaRef {
        &self.scan.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let current =
            self.scan.current_scan.as_ref().and_then(|current| current.scan.lock().upgrade());
        let scan = current.unwrap_or_else(|| Arc::clone(&self.scan));
        let batches = SplitBatches::new(scan, self.index);
        let schema = Arc::clone(&self.scan.schema);
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }
}

/// An iterator over the batches of a split as its source returns them.
pub(crate) struct SplitBatches {
    scan: Arc<Scan>,
    index: usize,
    span: Span,
    reader: Option<SplitRows>,
    has_ended: bool,
}

/// Returns the tracing span for reading a split.
fn split_span(split: &Split) -> Span {
    let file = split.parts.first().map_or("", |piece| piece.file.display_name());
    debug_span!("split", index = split.index, bytes = split.bytes, file)
}

impl SplitBatches {
    pub(crate) fn new(scan: Arc<Scan>, index: usize) -> Self {
        let span = split_span(&scan.splits[index]);
        SplitBatches { scan, index, span, reader: None, has_ended: false }
    }

    fn finish_reading(&mut self) {
        self.has_ended = true;
        if let Some(SplitRows { reader, .. }) = self.reader.take() {
            let is_exact = reader.is_start_exact();
            let outcome = SplitOutcome { is_exact_start: is_exact, stats: reader.into_stats() };
            self.scan.split_states[self.index].lock().outcome = Some(outcome);
        }
    }
}

impl Iterator for SplitBatches {
    type Item = PlanResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let _reading = self.span.clone().entered();
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => match self.scan.open_reader(self.index) {
                Ok(reader) => none.insert(reader),
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(into_datafusion_error(error)));
                }
            },
        };
        match reader.next() {
            Some(Ok(batch)) => {
                let stats = reader.reader.stats();
                let so_far = ReadCounts { rows: stats.rows, rejected: stats.rejected_count };
                self.scan.split_states[self.index].lock().read_counts = so_far;
                Some(Ok(batch))
            }
            Some(Err(error)) => {
                self.finish_reading();
                Some(Err(into_datafusion_error(error)))
            }
            None => {
                self.finish_reading();
                None
            }
        }
    }
}

impl Drop for SplitBatches {
    fn drop(&mut self) {
        // A reader that is dropped before its end also reports how far it came.
        if !self.has_ended {
            self.finish_reading();
        }
    }
}

/// The queue of splits from which several partitions read.
#[derive(Default)]
struct SplitQueue {
    /// True if the scan's partitions use the queue.
    is_used: AtomicBool,
    /// The splits with exact starts, found at the first read: a queued split cannot be read a second time.
    splits: Mutex<Option<Arc<Vec<Split>>>>,
    next_index: AtomicUsize,
    /// Number of threads that read a split of the queue.
    reader_count: Mutex<usize>,
    reader_ended: Condvar,
}

/// A guard that counts a reader of the queue until it is dropped.
struct ReaderGuard<'a>(&'a SplitQueue);

impl<'a> ReaderGuard<'a> {
    fn new(queue: &'a SplitQueue) -> Self {
        *queue.reader_count.lock() += 1;
        ReaderGuard(queue)
    }
}

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        *self.0.reader_count.lock() -= 1;
        self.0.reader_ended.notify_all();
    }
}

impl Scan {
    fn find_exact_splits(&self) -> Result<Arc<Vec<Split>>> {
        let mut splits = self.queue.splits.lock();
        if let Some(splits) = &*splits {
            return Ok(Arc::clone(splits));
        }
        let mut exact = self.splits.clone();
        self.source.resolve_exact_starts(&mut exact, &self.run_state.cancel)?;
        Ok(Arc::clone(splits.insert(Arc::new(exact))))
    }

    /// Reads splits of the queue and sends their rows, until no more are needed or no receiver is left.
    fn read_queued_splits(
        &self,
        send: impl FnMut(BatchPosition, Result<RecordBatch>) -> bool,
        is_left: impl Fn() -> bool,
    ) -> Result<()> {
        let _reading = ReaderGuard::new(&self.queue);
        self.read_queued_splits_uncounted(send, is_left)
    }

    fn read_queued_splits_uncounted(
        &self,
        mut send: impl FnMut(BatchPosition, Result<RecordBatch>) -> bool,
        is_left: impl Fn() -> bool,
    ) -> Result<()> {
        let splits = self.find_exact_splits()?;
        let mut turn = self.new_core_turn();
        // A thread that waits for a turn learns only here that the query has ended.
        let is_over = || self.stop.is_cancelled() || !self.reads_all_records && !is_left();
        loop {
            if !turn.acquire(is_over) {
                self.stop.check()?;
                return Ok(());
            }
            let index = self.queue.next_index.fetch_add(1, Ordering::Relaxed);
            let Some(split) = splits.get(index) else { return Ok(()) };
            let span = split_span(split);
            let progress = self.run_state.progress.clone();
            let mut reader = span.in_scope(|| {
                self.open_split_reader(split, split.exact_start, progress, Some(index))
            })?;
            let mut is_wanted = true;
            let mut places = batch_places(index);
            while let (Some(batch), Some(place)) = (span.in_scope(|| reader.next()), places.next())
            {
                let is_bad = batch.is_err();
                is_wanted = is_wanted && send(place, batch);
                if is_bad || !is_wanted && !self.reads_all_records {
                    let stats = reader.reader.into_stats();
                    let so_far = ReadCounts { rows: stats.rows, rejected: stats.rejected_count };
                    return self.count_partial_split(stats, so_far);
                }
                // When the run is over, the split is still read to its end.
                turn.acquire(is_over);
            }
            self.count_split(reader.reader.into_stats())?;
            if !is_wanted {
                return Ok(());
            }
        }
    }

    /// Reads the splits again without counting them: the first pass counts them.
    fn reread_splits(
        &self,
        round: usize,
        mut send: impl FnMut(BatchPosition, Result<RecordBatch>) -> bool,
        is_left: impl Fn() -> bool,
    ) -> Result<()> {
        let splits = self.find_exact_splits()?;
        let next = {
            let mut again = self.reread_positions.lock();
            while again.len() < round {
                again.push(Arc::default());
            }
            Arc::clone(&again[round - 1])
        };
        let mut turn = self.new_core_turn();
        let is_over = || self.stop.is_cancelled() || !is_left();
        loop {
            if !turn.acquire(is_over) {
                self.stop.check()?;
                return Ok(());
            }
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(split) = splits.get(index) else { return Ok(()) };
            let reader =
                self.open_split_reader(split, split.exact_start, RunProgress::new(), None)?;
            for (place, batch) in batch_places(index).zip(reader) {
                let is_bad = batch.is_err();
                if !send(place, batch) || is_bad {
                    return Ok(());
                }
                turn.acquire(is_over);
            }
        }
    }

    /// Reads the remaining splits of a scan that must be read whole: once one input of a join has ended,
    /// DataFusion requests no more of the other.
    ///
    /// # Errors
    /// Errors of reading.
    pub(crate) fn read_remaining_splits(&self) -> Result<()> {
        if !self.reads_all_records || !self.queue.is_used.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut readers = self.queue.reader_count.lock();
        while *readers > 0 {
            self.run_state.cancel.check()?;
            self.queue.reader_ended.wait_for(&mut readers, CANCEL_POLL_INTERVAL);
        }
        drop(readers);
        let mut failed = None;
        let taken = |_, batch| match batch {
            Ok(_) => true,
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        };
        self.read_queued_splits(taken, || true)?;
        failed.map_or(Ok(()), Err)
    }
}

/// Returns the positions of a split's batches in the input.
fn batch_places(index: usize) -> impl Iterator<Item = BatchPosition> {
    let split = u32::try_from(index).unwrap_or(u32::MAX);
    (0..=u32::MAX).map(move |batch| BatchPosition { split_index: split, batch_index: batch })
}

/// Poll interval for cancellation while waiting for other readers of the queue.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One of the partitions that share a queue.
struct QueuePartition {
    scan: Arc<Scan>,
    /// Number of executions so far. A recursive query executes a partition several times.
    execution_count: AtomicUsize,
}

impl QueuePartition {
    fn new(scan: &Arc<Scan>) -> Self {
        QueuePartition { scan: Arc::clone(scan), execution_count: AtomicUsize::new(0) }
    }
}

impl fmt::Debug for QueuePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt(f)
    }
}

impl PartitionStream for QueuePartition {
    fn schema(&self) -> &SchemaRef {
        &self.scan.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let tells_places = context.session_config().get_extension::<StableSort>().is_some();
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.scan.schema), 2);
        let sender = builder.tx();
        let scan = Arc::clone(&self.scan);
        let round = self.execution_count.fetch_add(1, Ordering::Relaxed);
        builder.spawn_blocking(move || {
            let send = |place: BatchPosition, batch: Result<RecordBatch>| {
                let batch = match tells_places {
                    true => batch.map(|batch| place.attach_to(&batch)),
                    false => batch,
                };
                sender.blocking_send(batch.map_err(into_datafusion_error)).is_ok()
            };
            let is_left = || !sender.is_closed();
            let sent = match round {
                0 => scan.read_queued_splits(send, is_left),
                round => scan.reread_splits(round, send, is_left),
            };
            sent.map_err(into_datafusion_error)
        });
        builder.build()
    }
}
