//! Options for reading a split.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidemill_base::BadRecordLimit;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::progress::RunProgress;
use tidemill_remote::AccessPlan;
use tidemill_remote::reader::PrefetchBudget;
use tidemill_text::Predicate;

use crate::rejects::reject_log::RejectLog;
use crate::schema::nested_projection::NestedProjections;

/// Options for reading a split.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Columns by position in [`Source::schema`](crate::Source::schema), in the wanted order; none for all. May be empty: the
    /// batches then have a row count and no columns.
    pub projection: Option<Vec<usize>>,
    /// Columns by position in [`Source::schema`](crate::Source::schema) that are read as dictionary codes. They must be
    /// [low-cardinality](crate::Source::is_low_cardinality) columns. Default: none.
    pub dictionary_columns: Vec<usize>,
    /// Predicates on rows, by the columns' positions in [`Source::schema`](crate::Source::schema). Text rows that fail are dropped
    /// before they are built; so are Parquet rows if that leaves few. Predicates on columns outside of the
    /// projection are ignored. Default: none.
    pub predicates: Vec<Predicate>,
    /// Set once the predicates were found to keep many rows; shared by all readers with these predicates.
    pub predicates_keep_many: Arc<AtomicBool>,
    /// Fields that the query uses of nested JSON columns; other fields are read as null. Default: all fields.
    pub used_fields: Option<Arc<NestedProjections>>,
    /// Maximum number of rows of a batch. Default: 8192. A batch is smaller at the end of an input block.
    pub batch_rows: usize,
    /// Start of the split's first record, as found by the reader of the split before. Overrides a guess and
    /// [`Split::exact_start`](crate::Split::exact_start).
    pub exact_start: Option<u64>,
    /// Cancel flag, checked once per block.
    pub cancel: CancelFlag,
    /// Counters for stored bytes and rows as they are read. A second read of a split should have counters of
    /// its own.
    pub progress: RunProgress,
    /// Log for rejected records.
    pub reject_log: Arc<RejectLog>,
    /// Budget for prefetching from remote files. Default: 64 MiB.
    pub prefetch_budget: PrefetchBudget,
    /// Returns rows as soon as they arrive: a stream is not read until a block is full. Default: false.
    pub low_latency: bool,
    /// The access plan that was announced for the splits, and this split's index in it. Default: none.
    pub access_plan: Option<(Arc<AccessPlan>, usize)>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            projection: None,
            dictionary_columns: Vec::new(),
            predicates: Vec::new(),
            predicates_keep_many: Arc::default(),
            used_fields: None,
            batch_rows: 8192,
            exact_start: None,
            cancel: CancelFlag::new(),
            progress: RunProgress::new(),
            reject_log: Arc::new(RejectLog::new(BadRecordLimit::default(), None)),
            prefetch_budget: PrefetchBudget::default(),
            low_latency: false,
            access_plan: None,
        }
    }
}
