//! A source as a table that DataFusion can plan over, and its splits as partitions.
//!
//! A table is scanned in one of two ways. For the partial-table runner each split is a
//! partition of its own, read on the thread that asks, so that the runner decides when a
//! split is read and learns what came of it ([`Scan::outcome`]). For DataFusion's own
//! execution a few partitions take splits from a common queue, each on a blocking thread
//! behind a bounded channel.

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
use tidemill_remote::{AccessPlan, PrefetchBudget};
use tidemill_source::nested_projection::NestedProjections;
use tidemill_source::{ReadOptions, RejectLog, Source, Split, SplitReader, SplitStats};
use tidemill_sql::IntoTidemillError;
use tidemill_sql::batch_positions::BatchPosition;
use tidemill_sql::dialects::{PercentSample, RowCountSample};
use tidemill_sql::into_datafusion_error;
use tidemill_sql::scan_statistics::ScanWithStatistics;
use tidemill_sql::session::{BATCH_ROWS, ScanMode, StableSort};
use tidemill_text::Predicate;
use tracing::{Span, debug_span};

use crate::row_sampling::RowSampler;
use crate::{pruning, source_statistics};

/// So many beginnings of splits tell what a beginning takes, of so many bytes each.
const SPLIT_PREFIXES_MAX: usize = 512;
const SPLIT_PREFIX_BYTES: u64 = 1 << 10;

/// Of so many files it is looked at what their columns take.
const COLUMN_SHARE_FILES_MAX: usize = 64;

/// What a batch of many columns may take, at sixteen bytes a value: it has fewer rows then.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// What is said of a hidden column in the schema of a kept table.
const HIDDEN_COLUMN_KEY: &str = "tidemill.hidden";

/// Rows of a batch of so many columns, where operators take `rows_max`.
fn choose_batch_rows(columns: usize, rows_max: usize) -> usize {
    (BATCH_BYTES_MAX / 16 / columns.max(1)).clamp(64, BATCH_ROWS).min(rows_max)
}

/// What all scans of a run share.
#[derive(Debug, Clone)]
pub(crate) struct RunState {
    /// Stops the run.
    pub cancel: CancelFlag,
    /// What a display reads.
    pub progress: RunProgress,
    /// Where malformed records go.
    pub rejects: Arc<RejectLog>,
    /// What may be read ahead of files that are not on this machine.
    pub prefetch_budget: PrefetchBudget,
    /// Its turns among the runs on this machine.
    pub cores: Option<CoreSharing>,
}

/// A source as a table.
#[derive(Debug)]
pub(crate) struct SourceTable {
    /// The source's columns, and behind them the hidden ones that the query names.
    schema: SchemaRef,
    /// The names of those …
    hidden_columns: BTreeSet<String>,
    /// … and for each of them, in the schema's order, its position in the source.
    hidden_source_columns: Vec<usize>,
    /// None for a table that is only planned over: partial tables hold what was read.
    source: Option<Arc<Source>>,
    /// Which part of it is read.
    sample: Option<PercentSample>,
    /// The number of its rows that are drawn, of those that are read.
    row_sample: Option<RowCountSample>,
    run_state: RunState,
    scans: Mutex<Vec<Arc<Scan>>>,
    /// What the query uses of the columns; none until it is planned.
    used_fields: Mutex<Option<Arc<NestedProjections>>>,
    /// Whether all records are to be read, whoever wants their rows.
    reads_all_records: AtomicBool,
    /// How fine it is cut, if not as its size says.
    split_sizing: Mutex<Option<SplitSizing>>,
    /// Of a table whose splits somebody else deals out: those that are read next.
    assigned_splits: Mutex<Option<(Arc<Source>, Vec<Split>)>>,
}

/// How fine a source is cut for a run that may end before all of it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitSizing {
    /// The bytes of a split, if they are told.
    pub split_bytes: Option<u64>,
    /// Whether of some splits, spread evenly, the beginnings are read alone.
    pub reads_prefixes_only: bool,
}

impl SourceTable {
    /// A table over an opened source, with those of its hidden columns that are named.
    pub(crate) fn new(
        source: Arc<Source>,
        run: RunState,
        sample: Option<PercentSample>,
        hidden: &BTreeSet<String>,
    ) -> Self {
        let mut fields = source.schema().fields().to_vec();
        let (mut hidden_places, mut names) = (Vec::new(), BTreeSet::new());
        let first = fields.len();
        // In the order of their names: who lists names for a table's columns relies on it.
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

    /// A table to plan over, whose rows are not here.
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

    /// Has scans planned from now on read these splits of a source, which has the columns that this one was planned
    /// over.
    pub(crate) fn assign_splits(&self, source: Arc<Source>, splits: Vec<Split>) {
        *self.assigned_splits.lock() = Some((source, splits));
    }

    /// The hidden columns that it has, as the query names them.
    pub(crate) fn hidden_columns(&self) -> &BTreeSet<String> {
        &self.hidden_columns
    }

    /// Its columns, of which it is said which are hidden.
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

    /// Which column of the source one of the table's is.
    fn source_column_index(&self, column: usize) -> usize {
        let own = self.schema.fields().len() - self.hidden_source_columns.len();
        let hidden = column.checked_sub(own).and_then(|at| self.hidden_source_columns.get(at));
        hidden.copied().unwrap_or(column)
    }

    /// Which of its rows are read, if not all.
    pub(crate) fn sample(&self) -> Option<PercentSample> {
        self.sample
    }

    /// The same table, of whose rows a number is drawn.
    #[must_use]
    pub(crate) fn with_row_sample(self, row_sample: Option<RowCountSample>) -> Self {
        SourceTable { row_sample, ..self }
    }

    /// The number of its rows that are drawn, if they are not all taken.
    pub(crate) fn row_sample(&self) -> Option<RowCountSample> {
        self.row_sample
    }

    /// Whether a sample of its rows is read.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sample.is_some() || self.row_sample.is_some()
    }

    /// Has it cut finely, into splits of so many bytes or by its size.
    pub(crate) fn split_finely(&self, split_bytes: Option<u64>) {
        self.set_split_sizing(Some(SplitSizing { split_bytes, reads_prefixes_only: false }));
    }

    /// Says how it is cut from now on; none is as its size has it.
    pub(crate) fn set_split_sizing(&self, cut: Option<SplitSizing>) {
        *self.split_sizing.lock() = cut;
    }

    /// The source, if there is one to read.
    pub(crate) fn source(&self) -> Option<&Arc<Source>> {
        self.source.as_ref()
    }

    /// Says what is used of the columns: scans planned from now on read no more of them.
    pub(crate) fn set_used_fields(&self, used: &Arc<NestedProjections>) {
        *self.used_fields.lock() = Some(Arc::clone(used));
    }

    /// Says that all records are read, also where a join turns out to want no more rows of them: the
    /// query has no limit, and what is malformed is to be known.
    pub(crate) fn set_reads_all_records(&self) {
        self.reads_all_records.store(true, Ordering::Relaxed);
    }

    /// Forgets what was read, for a run that starts over. Whoever still reads is stopped, and
    /// counts nothing more.
    pub(crate) fn discard_scans(&self) {
        for scan in self.scans.lock().drain(..) {
            *scan.is_discarded.write() = true;
            scan.stop_readers();
        }
    }

    /// The scans planned so far; one per mention of the table in a plan.
    pub(crate) fn scans(&self) -> Vec<Arc<Scan>> {
        self.scans.lock().clone()
    }
}

/// The first kibibyte of some splits of files that are cut between any two records, spread evenly over all.
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
        // Row groups and rows of text are left out where that is cheap; rows are filtered above.
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
    /// Scans it; the columns `coded` come as codes, as `all` columns' types have it.
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
        // A row's place in its split tells whether it is in a sample, so that nothing is left out before.
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

/// What reading has taken in so far.
#[derive(Debug, Default)]
struct ScanTotals {
    splits: AtomicU64,
    bytes: AtomicU64,
    rows: AtomicU64,
    rejected: AtomicU64,
}

/// One reading of a source's splits.
pub(crate) struct Scan {
    source: Arc<Source>,
    run_state: RunState,
    /// Ends the readers of this scan.
    stop: CancelFlag,
    projection: Option<Vec<usize>>,
    /// The columns that come as codes.
    encoded_columns: Vec<usize>,
    /// What text rows must satisfy, by the columns' positions in the source.
    predicates: Vec<Predicate>,
    /// Which of the rows are taken.
    sample: Option<PercentSample>,
    /// Whether these were found to leave many rows.
    predicates_keep_many: Arc<AtomicBool>,
    used_fields: Option<Arc<NestedProjections>>,
    schema: SchemaRef,
    splits: Vec<Split>,
    split_states: Vec<Mutex<SplitState>>,
    total_bytes: u64,
    /// A sort that spills counts the text of a larger batch several times.
    batch_rows: usize,
    totals: ScanTotals,
    /// Whether it was forgotten: what it reads is not counted.
    is_discarded: RwLock<bool>,
    /// Whether all of it is read, whoever wants its rows.
    reads_all_records: bool,
    queue: SplitQueue,
    /// How far each further reading has come: a recursion reads its tables at every level anew.
    reread_positions: Mutex<Vec<Arc<AtomicUsize>>>,
    /// What is told of what will be read, once reading begins.
    access_plan: OnceLock<Option<Arc<AccessPlan>>>,
    /// Whether rows are handed on as soon as they are there.
    is_eager: AtomicBool,
    /// What came of splits, where somebody else counts them.
    reported_splits: Option<Mutex<Vec<ReportedSplit>>>,
    /// Which splits a plan over this scan reads when it is executed, where these are others from time to time.
    current_scan: Option<Arc<CurrentScan>>,
}

/// The scan whose splits a plan reads that is kept: what is joined in it is put into a table once.
#[derive(Default)]
struct CurrentScan {
    execution_lock: Mutex<()>,
    scan: Mutex<Weak<Scan>>,
}

/// So many splits a plan that is kept reads at once, at most.
const REUSABLE_PLAN_PARTITIONS: usize = 256;

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("source", &self.source).finish_non_exhaustive()
    }
}

/// What is known of a split before and after it was read.
#[derive(Default)]
struct SplitState {
    exact_start: Option<u64>,
    was_read: bool,
    outcome: Option<SplitOutcome>,
    read_counts: ReadCounts,
}

/// What a reader had read when it gave a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadCounts {
    /// Good rows.
    pub rows: u64,
    /// Refused records.
    pub rejected: u64,
}

/// What came of reading a split, to its end or to an error.
pub(crate) struct SplitOutcome {
    /// Rows, bytes, refused records, and where it started and ended.
    pub stats: SplitStats,
    /// Whether the start was known rather than guessed.
    pub is_exact_start: bool,
}

/// A split that was read for somebody else.
pub(crate) struct ReportedSplit {
    /// Its place among the scan's splits.
    pub index: usize,
    /// Rows that left the map.
    pub mapped_rows: u64,
    /// What came of it.
    pub outcome: SplitOutcome,
}

impl Scan {
    /// The same reading of other splits, of a source that has the same columns; somebody else counts them.
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

    /// Whether a plan over the scan that this one is of can read its splits.
    pub(crate) fn has_reusable_plan(&self) -> bool {
        self.current_scan.is_some() && self.splits.len() <= REUSABLE_PLAN_PARTITIONS
    }

    /// Executes a plan, which reads the splits of this scan.
    pub(crate) fn execute_plan<T>(self: &Arc<Self>, execute: impl FnOnce() -> T) -> T {
        let Some(current) = &self.current_scan else { return execute() };
        // Whoever still has a scan of before does the same for that one.
        let _one_at_a_time = current.execution_lock.lock();
        *current.scan.lock() = Arc::downgrade(self);
        execute()
    }

    /// How many partitions a plan over it has that reads a split in each.
    pub(crate) fn partition_count(&self) -> usize {
        match self.current_scan {
            Some(_) => self.splits.len().max(REUSABLE_PLAN_PARTITIONS),
            None => self.splits.len(),
        }
    }

    /// The source that is read.
    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The columns that are read.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The splits, in the order of the data.
    pub(crate) fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// The share of the stored bytes that the columns have which are read: of Parquet, by its first files.
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
            // No column is read: what is known of the rows is.
            false => 1.0,
        }
    }

    /// A turn to be taken by a thread that reads splits.
    pub(crate) fn new_core_turn(&self) -> ComputeTurn<'_> {
        ComputeTurn::new(self.run_state.cores.as_ref())
    }

    /// Ends its readers, even one that waits for standard input: no more rows are wanted.
    pub(crate) fn stop_readers(&self) {
        self.stop.cancel();
    }

    /// Has rows handed on as soon as they are there, rather than many at once.
    pub(crate) fn set_eager(&self) {
        self.is_eager.store(true, Ordering::Relaxed);
    }

    /// Whether rows are handed on as soon as they are there.
    pub(crate) fn is_eager(&self) -> bool {
        self.is_eager.load(Ordering::Relaxed)
    }

    /// Has split `index` read from a known start the next time.
    pub(crate) fn set_exact_start(&self, index: usize, start: u64) {
        self.split_states[index].lock().exact_start = Some(start);
    }

    /// What came of the last reading of split `index`; given out once.
    pub(crate) fn take_outcome(&self, index: usize) -> Option<SplitOutcome> {
        self.split_states[index].lock().outcome.take()
    }

    /// Reads split `index` for what there is to count, if nobody did: a join that holds no rows
    /// asks for none, and what is malformed in them is to be known all the same.
    ///
    /// # Errors
    /// As reading.
    pub(crate) fn read_unrequested_split(self: &Arc<Self>, index: usize) -> Result<()> {
        if self.split_states[index].lock().outcome.is_some() {
            return Ok(());
        }
        let scan = Arc::clone(self);
        let mut batches = SplitBatches::new(scan, index);
        batches.try_for_each(|batch| batch.map(drop)).into_tidemill_error()?;
        Ok(())
    }

    /// Counts a split whose rows were taken.
    ///
    /// # Errors
    /// [`Error::BadRecords`] where its malformed records exceed what is allowed.
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

    /// Counts a split of which so many rows left the map, or keeps what came of it for whoever counts it elsewhere.
    ///
    /// # Errors
    /// As [`Scan::accept`].
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

    /// Whether what came of splits is counted elsewhere.
    pub(crate) fn reports_splits(&self) -> bool {
        self.reported_splits.is_some()
    }

    /// What came of splits that are counted elsewhere, in their order.
    pub(crate) fn take_reported_splits(&self) -> Vec<ReportedSplit> {
        self.reported_splits.as_ref().map_or(Vec::new(), |told| std::mem::take(&mut told.lock()))
    }

    /// What the reader of split `index` has read.
    pub(crate) fn read_counts(&self, index: usize) -> ReadCounts {
        self.split_states[index].lock().read_counts
    }

    /// Counts a split that was read as far as `so_far` because no more rows were wanted.
    ///
    /// # Errors
    /// As [`Scan::accept`].
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

    /// Counts what was read of a split that nobody reads to its end.
    pub(crate) fn add_read_counts(&self, so_far: ReadCounts) {
        self.totals.rows.fetch_add(so_far.rows, Ordering::Relaxed);
        self.totals.rejected.fetch_add(so_far.rejected, Ordering::Relaxed);
    }

    /// Splits read.
    pub(crate) fn split_amount(&self) -> ReadAmount {
        let done = self.totals.splits.load(Ordering::Relaxed);
        ReadAmount { done, total: self.splits.len() as u64, left_out: 0 }
    }

    /// Stored bytes read. For standard input, whose size nobody knows before, the total is
    /// what was read.
    pub(crate) fn byte_amount(&self) -> ReadAmount {
        let done = self.totals.bytes.load(Ordering::Relaxed);
        ReadAmount { done, total: self.total_bytes.max(done), left_out: 0 }
    }

    /// Rows taken.
    pub(crate) fn row_count(&self) -> u64 {
        self.totals.rows.load(Ordering::Relaxed)
    }

    /// Records refused.
    pub(crate) fn rejected_count(&self) -> u64 {
        self.totals.rejected.load(Ordering::Relaxed)
    }

    fn open_reader(&self, index: usize) -> Result<SplitRows> {
        let (exact_start, was_read) = {
            let mut slot = self.split_states[index].lock();
            (slot.exact_start, std::mem::replace(&mut slot.was_read, true))
        };
        // Read a second time, a split is no further progress.
        let progress = if was_read { RunProgress::new() } else { self.run_state.progress.clone() };
        let place = (!was_read).then_some(index);
        self.open_split_reader(&self.splits[index], exact_start, progress, place)
    }

    /// Tells of all splits before the first is read, where all of them will be.
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
        // Its place among the splits: read a second time, it was not told of.
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

/// A split as a partition.
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

/// The rows of a split as its source has them, an iterator of batches.
pub(crate) struct SplitBatches {
    scan: Arc<Scan>,
    index: usize,
    span: Span,
    reader: Option<SplitRows>,
    has_ended: bool,
}

/// The reading of a split.
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
        // A reader dropped in the middle tells how far it came, too.
        if !self.has_ended {
            self.finish_reading();
        }
    }
}

/// Splits that several partitions take from.
#[derive(Default)]
struct SplitQueue {
    /// Whether the scan's partitions take from it.
    is_used: AtomicBool,
    /// With exact starts, found at the first pull: nothing here can be read a second time.
    splits: Mutex<Option<Arc<Vec<Split>>>>,
    next_index: AtomicUsize,
    /// How many are reading a split of it.
    reader_count: Mutex<usize>,
    reader_ended: Condvar,
}

/// Counts a reader while it lives, whatever ends it.
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

    /// Takes splits and sends their rows until no more are wanted, or nobody is left to want any.
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
        // Whoever waits for a turn learns in no other way that the query has ended.
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
                // Over, it goes on to where it ends.
                turn.acquire(is_over);
            }
            self.count_split(reader.reader.into_stats())?;
            if !is_wanted {
                return Ok(());
            }
        }
    }

    /// Reads the splits once more, of which nothing is counted: they are by now.
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

    /// Reads what nobody wanted of a scan that is to be read as a whole: once one side of a join has
    /// ended, DataFusion asks for no more of the other.
    ///
    /// # Errors
    /// As reading.
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

/// Where the batches of a split are.
fn batch_places(index: usize) -> impl Iterator<Item = BatchPosition> {
    let split = u32::try_from(index).unwrap_or(u32::MAX);
    (0..=u32::MAX).map(move |batch| BatchPosition { split_index: split, batch_index: batch })
}

/// How often who waits for readers looks whether the run was stopped.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One of the partitions that share a queue.
struct QueuePartition {
    scan: Arc<Scan>,
    /// How often it was executed.
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
