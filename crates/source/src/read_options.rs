//! How a split is to be read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidemill_base::BadRecordLimit;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::progress::RunProgress;
use tidemill_remote::AccessPlan;
use tidemill_remote::reader::PrefetchBudget;
use tidemill_text::Predicate;

use super::nested_projection::NestedProjections;
use super::reject_log::RejectLog;

/// How to read a split.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Columns by position in [`Source::schema`], in the order wanted; none for all. May be
    /// empty: the batches then have no columns and a row count.
    pub projection: Option<Vec<usize>>,
    /// Which of the columns, by their positions in [`Source::schema`], come as codes of a dictionary
    /// of texts, being [`coded`](Source::is_coded). Default: none.
    pub dictionary_columns: Vec<usize>,
    /// What rows must satisfy, by the columns' positions in [`Source::schema`]; those of text
    /// that do not are dropped before they are built, and those of Parquet where that leaves few. A
    /// column that is not in the projection is not asked. Default: nothing.
    pub predicates: Vec<Predicate>,
    /// Set where the predicates were found to leave many rows, for all that read with them.
    pub predicates_keep_many: Arc<AtomicBool>,
    /// What is used of nested columns of JSON; what is not comes out null. Default: all of it.
    pub used_fields: Option<Arc<NestedProjections>>,
    /// Rows of a batch at most. Default: 8192. A batch is smaller where a block of input ends.
    pub batch_rows: usize,
    /// Where the split's first record starts, as the reader of the split before it found out.
    /// Overrides a guess and [`Split::exact_start`].
    pub exact_start: Option<u64>,
    /// Looked at once per block.
    pub cancel: CancelFlag,
    /// Told of stored bytes and rows as they are read. A second reading of a split should
    /// have counters of its own.
    pub progress: RunProgress,
    /// Where refused records go.
    pub reject_log: Arc<RejectLog>,
    /// What may be read ahead of files that are not on this machine. Default: 64 MiB.
    pub prefetch_budget: PrefetchBudget,
    /// Whether rows are handed on as soon as they are there: what can only be read front to back is not waited for until
    /// a block of it is full. Default: not.
    pub low_latency: bool,
    /// Where the split stands among those that are read, where that was told. Default: not.
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
