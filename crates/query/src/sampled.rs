//! Which rows of a split are in a sample.
//!
//! A row is told by where it is: the file and the place in it where its split begins, and the row's number in the
//! split. Splits are cut by the sizes of the files alone, so that a statement takes the same rows however many
//! threads there are. SplitMix64 (Steele, Lea, Flood, 2014) makes a number of that and the seed.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use tidemill_base::error::{Error, Result};
use tidemill_source::Split;
use tidemill_sql::dialects::Sample;

/// Takes rows of a split, batch by batch.
pub(crate) struct Sampler {
    /// What is taken: numbers below it; all where there is none.
    below: Option<u64>,
    /// Of splits: whether this one is in the sample.
    split: Option<bool>,
    state: u64,
    row: u64,
}

impl Sampler {
    /// A sampler of the rows of a split.
    pub(crate) fn new(sample: Sample, split: &Split) -> Self {
        let mut state = mixed(sample.seed);
        if let Some(piece) = split.pieces.first() {
            for byte in piece.file.shown().bytes() {
                state = mixed(state ^ u64::from(byte));
            }
            state = mixed(state ^ piece.range.start);
            if let Some(rows) = &piece.rows {
                state = mixed(state ^ rows.start);
            }
            for group in piece.row_groups.iter().flatten().take(1) {
                state = mixed(state ^ *group as u64);
            }
        }
        let share = sample.percent / 100.0;
        // 2^64 times the share; all, where that is beyond.
        let below = (share < 1.0).then_some((share * 18_446_744_073_709_551_616.0) as u64);
        let is_below = |number: u64| below.is_none_or(|below| number < below);
        let split = sample.by_split.then(|| is_below(mixed(state)));
        Sampler { below, split, state, row: 0 }
    }

    /// The next batch's rows that are in the sample.
    ///
    /// # Errors
    /// As Arrow's `filter`.
    pub(crate) fn taken(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let first = self.row;
        self.row += batch.num_rows() as u64;
        match self.split {
            Some(true) => return Ok(batch.clone()),
            Some(false) => return Ok(batch.slice(0, 0)),
            None => {}
        }
        let Some(below) = self.below else { return Ok(batch.clone()) };
        let is_taken = |row: u64| Some(mixed(self.state ^ row.wrapping_mul(GOLDEN)) < below);
        let kept: BooleanArray = (first..self.row).map(is_taken).collect();
        filter_record_batch(batch, &kept).map_err(|error| Error::Internal(error.to_string()))
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The next number of SplitMix64.
fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
