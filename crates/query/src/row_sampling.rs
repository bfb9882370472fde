//! Which rows of a split are in a sample.
//!
//! A row is told by where it is: the file and the place in it where its split begins, and the row's number in the
//! split. Splits are cut by the sizes of the files alone, so that a statement takes the same rows however many
//! threads there are. SplitMix64 (Steele, Lea, Flood, 2014) makes a number of that and the seed.
//!
//! A number of rows is drawn by a plan: the rows with the smallest hashes of the seed, the file's name and the record's
//! number, which is a sort with a limit. The hash does not know of splits, so that the sample is the same for every way
//! to cut and to read the files; the sort holds as many rows as are drawn, and spills.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use tidemill_base::error::{Error, Result};
use tidemill_planning::DynLogicalPlan;
use tidemill_source::{Source, Split};
use tidemill_sql::dialects::{PercentSample, RowCountSample};

use crate::scan::SourceTable;

/// Takes rows of a split, batch by batch.
pub(crate) struct RowSampler {
    /// What is taken: numbers below it; all where there is none.
    hash_limit: Option<u64>,
    /// Of splits: whether this one is in the sample.
    is_split_sampled: Option<bool>,
    hash_state: u64,
    next_row: u64,
}

impl RowSampler {
    /// A sampler of the rows of a split.
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
        // 2^64 times the share; all, where that is beyond.
        let below = (share < 1.0).then_some((share * 18_446_744_073_709_551_616.0) as u64);
        let is_below = |number: u64| below.is_none_or(|below| number < below);
        let split = sample.by_split.then(|| is_below(splitmix64(state)));
        RowSampler { hash_limit: below, is_split_sampled: split, hash_state: state, next_row: 0 }
    }

    /// The next batch's rows that are in the sample.
    ///
    /// # Errors
    /// As Arrow's `filter`.
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

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The next number of SplitMix64.
fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The function of SQL that orders rows at random.
const HASH_FUNCTION: &str = "hash";
/// The hidden column that numbers a file's records.
const ROW_NUMBER_COLUMN: &str = "file_row_number";
/// The hidden columns that name a record's file, of which one is enough: a column of the data may have the name of another.
const FILE_NAME_COLUMNS: [&str; 3] = ["filename", "_path", "$path"];

/// The hidden columns by which rows of a source are drawn.
///
/// # Errors
/// [`Error::Usage`] where columns of the data have their names.
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

/// Puts the rows that are drawn in the place of each table of which a number of rows is drawn.
///
/// # Errors
/// As DataFusion's plan builder.
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
