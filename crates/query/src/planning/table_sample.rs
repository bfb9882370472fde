//! Samples of a source's rows: `TABLESAMPLE` with a share or with a number of rows.
//!
//! A row of a share is identified by its location: the file, the offset at which its split begins, and its
//! number within the split. Splits depend on the sizes of the files alone, so a statement takes the same rows
//! with any number of threads. SplitMix64 (Steele, Lea, Flood, 2014) hashes the location with the seed.
//!
//! A sample of `n` rows is a plan: the `n` rows with the smallest hashes of the seed, the file's name and the
//! record's number, which is a sort with a limit. That hash does not depend on splits, so the sample is the
//! same for every way to cut and read the files. The sort holds as many rows as the sample has, and spills.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use tidemill_base::error::{Error, Result};
use tidemill_dialect::translation::{PercentSample, RowCountSample};
use tidemill_planning::DynLogicalPlan;
use tidemill_source::{Source, Split};

use crate::execution::scan::SourceTable;

/// A sampler of one split's rows, batch by batch.
pub(crate) struct RowSampler {
    /// Rows whose hash is below this limit are sampled; `None` samples all rows.
    hash_limit: Option<u64>,
    /// For a sample of whole splits, whether this split is sampled; `None` for a sample of rows.
    is_split_sampled: Option<bool>,
    hash_state: u64,
    next_row: u64,
}

impl RowSampler {
    /// Creates a sampler of the rows of a split.
    pub(crate) fn new(sample: PercentSample, split: &Split) -> Self {
        let mut state = splitmix64(sample.seed);
        if let Some(piece) = split.parts.first() {
            for byte in piece.file.display_name().bytes() {
                state = splitmix64(state ^ u64::from(byte));
            }
            state = splitmix64(state ^ piece.range.start);
            if let Some(rows) = &piece.row_range {
                state = splitmix64(state ^ rows.start);
            }
            for group in piece.row_groups.iter().flatten().take(1) {
                state = splitmix64(state ^ *group as u64);
            }
        }
        let share = sample.percent / 100.0;
        // 2^64 times the share; `None` for a share of one or more.
        let below = (share < 1.0).then_some((share * 18_446_744_073_709_551_616.0) as u64);
        let is_below = |number: u64| below.is_none_or(|below| number < below);
        let split = sample.by_split.then(|| is_below(splitmix64(state)));
        RowSampler { hash_limit: below, is_split_sampled: split, hash_state: state, next_row: 0 }
    }

    /// Returns the sampled rows of the next batch.
    ///
    /// # Errors
    /// Errors of Arrow's `filter`.
    pub(crate) fn sample_batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let first = self.next_row;
        self.next_row += batch.num_rows() as u64;
        match self.is_split_sampled {
            Some(true) => return Ok(batch.clone()),
            Some(false) => return Ok(batch.slice(0, 0)),
            None => {}
        }
        let Some(below) = self.hash_limit else { return Ok(batch.clone()) };
        let is_taken =
            |row: u64| Some(splitmix64(self.hash_state ^ row.wrapping_mul(GOLDEN_GAMMA)) < below);
        let kept: BooleanArray = (first..self.next_row).map(is_taken).collect();
        filter_record_batch(batch, &kept).map_err(|error| Error::Internal(error.to_string()))
    }
}

/// SplitMix64's increment: 2^64 divided by the golden ratio.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the next output of SplitMix64.
fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The SQL function whose values put rows in random order.
const HASH_FUNCTION: &str = "hash";
/// The hidden column that numbers a file's records.
const ROW_NUMBER_COLUMN: &str = "file_row_number";
/// The hidden columns that name a record's file. One of them suffices: a data column may have the name of
/// another.
const FILE_NAME_COLUMNS: [&str; 3] = ["filename", "_path", "$path"];

/// Returns the hidden columns that identify a source's rows for a sample: file name and row number.
///
/// # Errors
/// [`Error::Usage`] if columns of the data have their names.
pub(crate) fn row_identity_columns(source: &Source) -> Result<[&'static str; 2]> {
    let is_there = |name: &str| source.hidden_columns().iter().any(|field| field.name() == name);
    let file = FILE_NAME_COLUMNS.into_iter().find(|name| is_there(name));
    match file.filter(|_| is_there(ROW_NUMBER_COLUMN)) {
        Some(file) => Ok([file, ROW_NUMBER_COLUMN]),
        None => Err(Error::usage_with_hint(
            format!(
                "a sample of a number of rows is drawn by the hidden columns {} and {ROW_NUMBER_COLUMN}, and the data has columns of these names",
                FILE_NAME_COLUMNS[0]
            ),
            "take a share: TABLESAMPLE (1 PERCENT)",
        )),
    }
}

/// Replaces each table that has a sample of `n` rows by the plan that draws those rows.
///
/// # Errors
/// Errors of DataFusion's plan builder.
pub(crate) fn insert_row_samples(
    plan: LogicalPlan,
    tables: &[(String, Arc<SourceTable>)],
    state: &SessionState,
) -> PlanResult<LogicalPlan> {
    if tables.iter().all(|(_, table)| table.row_sample().is_none()) {
        return Ok(plan);
    }
    let Some(hash) = state.scalar_functions().get(HASH_FUNCTION) else {
        return Err(DataFusionError::Internal(format!("no function `{HASH_FUNCTION}`")));
    };
    let drawn = plan.transform_up_with_subqueries_dyn(&mut |node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let table = tables.iter().find(|(name, _)| name == scan.table_name.table());
        let Some((table, RowCountSample { rows, seed })) =
            table.and_then(|(_, table)| Some((table, table.row_sample()?)))
        else {
            return Ok(Transformed::no(node));
        };
        let Some(file) =
            FILE_NAME_COLUMNS.into_iter().find(|name| table.hidden_columns().contains(*name))
        else {
            return Err(DataFusionError::Internal("a sample without its files".into()));
        };
        let column =
            |name: &str| Expr::Column(Column::new(Some(scan.table_name.clone()), name.to_owned()));
        let number =
            hash.call(vec![lit(seed.cast_signed()), column(ROW_NUMBER_COLUMN), column(file)]);
        let keys =
            [number, column(file), column(ROW_NUMBER_COLUMN)].map(|key| key.sort(true, false));
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let drawn = LogicalPlanBuilder::from(node).sort(keys)?.limit(0, Some(rows))?.build()?;
        Ok(Transformed::yes(drawn))
    })?;
    Ok(drawn.data)
}
