//! The tally of splits: which are complete, open or given up, and whether that is enough.

use std::collections::BTreeMap;

use tidemill_sampling::SplitSample;

use super::local_runner::{GivenUpSplit, StopCondition, StopReason};
use super::sampling_plan::{SamplingPlan, split_count_with_left_out};
use crate::execution::scan::{Scan, SplitOutcome};

/// A complete split: where it began and ended.
#[derive(Clone, Copy)]
struct CompletedSplit {
    start: Option<u64>,
    end: Option<u64>,
    is_exact: bool,
}

/// The state of each split of a run.
pub(super) struct SplitTally {
    /// The complete splits by index; `None` for all others.
    completed_splits: Vec<Option<CompletedSplit>>,
    completed_count: usize,
    /// Splits that are begun and neither complete nor given up, each with the number of its thread.
    open_splits: BTreeMap<usize, usize>,
    /// Bytes and source rows of the complete splits.
    pub bytes: u64,
    pub rows: u64,
    /// Splits that are left out, and their bytes.
    pub given_up: Vec<GivenUpSplit>,
    pub given_up_bytes: u64,
    /// True if a split began at another offset than the end of the one before it.
    pub has_wrong_start: bool,
    /// Number of wrong starts that were found by reading the bytes before a split.
    pub checked_wrong_start_count: u64,
}

impl SplitTally {
    /// Creates the tally of `splits` splits.
    pub(super) fn new(splits: usize) -> Self {
        SplitTally {
            completed_splits: vec![None; splits],
            completed_count: 0,
            open_splits: BTreeMap::new(),
            bytes: 0,
            rows: 0,
            given_up: Vec::new(),
            given_up_bytes: 0,
            has_wrong_start: false,
            checked_wrong_start_count: 0,
        }
    }

    /// Records that a thread has begun a split. The split is open until it is
    /// [complete](SplitTally::complete_split) or [given up](SplitTally::give_up_split).
    pub(super) fn open_split(&mut self, index: usize, thread: usize) {
        self.open_splits.insert(index, thread);
    }

    /// Returns the open splits in order, each with the number of its thread.
    pub(super) fn open_splits(&self) -> impl Iterator<Item = (usize, usize)> {
        self.open_splits.iter().map(|(split, thread)| (*split, *thread))
    }

    /// Returns true if a split is open.
    pub(super) fn is_split_open(&self, index: usize) -> bool {
        self.open_splits.contains_key(&index)
    }

    /// Gives up a split, which is left out of the answer.
    pub(super) fn give_up_split(&mut self, given_up: GivenUpSplit) {
        self.open_splits.remove(&given_up.split);
        self.given_up.push(given_up);
    }

    /// Marks a split as complete, with its bytes and its outcome.
    pub(super) fn complete_split(
        &mut self,
        scan: &Scan,
        index: usize,
        bytes: u64,
        outcome: Option<&SplitOutcome>,
    ) {
        let landed = match outcome {
            Some(SplitOutcome { stats, is_exact_start: is_exact }) => CompletedSplit {
                start: stats.first_record_offset,
                end: stats.next_record_offset,
                is_exact: *is_exact,
            },
            None => CompletedSplit { start: None, end: None, is_exact: true },
        };
        self.open_splits.remove(&index);
        self.completed_count += usize::from(self.completed_splits[index].replace(landed).is_none());
        self.bytes += bytes;
        self.rows += outcome.map_or(0, |outcome| outcome.stats.rows);
        self.has_wrong_start |=
            self.is_wrong_start(scan, index) || self.is_wrong_start(scan, index + 1);
    }

    /// Returns true if a split is complete.
    pub(super) fn is_split_complete(&self, index: usize) -> bool {
        self.completed_splits.get(index).is_some_and(Option::is_some)
    }

    /// Returns the number of complete splits.
    pub(super) fn completed_count(&self) -> usize {
        self.completed_count
    }

    /// Returns the complete splits in input order.
    fn completed_indices(&self) -> impl Iterator<Item = usize> {
        self.completed_splits
            .iter()
            .enumerate()
            .filter(|(_, place)| place.is_some())
            .map(|(index, _)| index)
    }

    /// Returns true if all splits are complete.
    pub(super) fn is_whole_input(&self) -> bool {
        self.completed_count == self.completed_splits.len()
    }

    /// Returns the reason to stop, if enough splits are complete.
    pub(super) fn stop_reason(
        &self,
        drawing: &SamplingPlan,
        until: &StopCondition,
    ) -> Option<StopReason> {
        if self.is_whole_input() {
            return Some(StopReason::WholeInput);
        }
        if until.drop_share.is_some() && self.bytes >= drawing.total_bytes - drawing.drop_bytes {
            return Some(StopReason::DropShare);
        }
        if self.completed_count + self.given_up.len() < drawing.split_count_max() {
            return None;
        }
        Some(if drawing.split_count_max() < self.completed_splits.len() {
            StopReason::SampleShare
        } else {
            StopReason::DropShare
        })
    }

    /// Returns the complete splits as a sample of the input.
    pub(super) fn sample(
        &self,
        scan: &Scan,
        drawing: &SamplingPlan,
        confidence: f64,
    ) -> SplitSample {
        let mut sample = SplitSample::new(
            split_count_with_left_out(scan),
            drawing.total_weight as f64,
            confidence,
        );
        for index in self.completed_indices() {
            sample.add(index, drawing.split_weights[index] as f64);
        }
        sample
    }

    /// Returns the number of splits that began at another offset than the end of the split before them, as
    /// far as known.
    pub(super) fn wrong_start_count(&self, scan: &Scan) -> u64 {
        let wrong =
            self.completed_indices().filter(|index| self.is_wrong_start(scan, *index)).count()
                as u64;
        wrong.max(self.checked_wrong_start_count)
    }

    /// Returns true if a split began at another offset than the end of the one before it, and both are
    /// complete.
    fn is_wrong_start(&self, scan: &Scan, index: usize) -> bool {
        let get = |index: usize| self.completed_splits.get(index).copied().flatten();
        let earlier = index.checked_sub(1).and_then(get);
        let (Some(this), Some(earlier)) = (get(index), earlier) else { return false };
        if this.is_exact || earlier.end.is_none() || this.start == earlier.end {
            return false;
        }
        let splits = scan.splits();
        if splits[index - 1].index + 1 != splits[index].index {
            // The splits are no neighbours: the driver has sampled them among others.
            return false;
        }
        let before = splits[index - 1].parts.last().map(|piece| piece.file.index());
        let own = splits[index].parts.first().map(|piece| piece.file.index());
        before == own
    }
}
