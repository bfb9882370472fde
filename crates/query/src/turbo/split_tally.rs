//! Which splits count of those that are read, and whether that is enough.

use std::collections::BTreeMap;

use tidemill_sampling::SplitSample;

use super::local_runner::{GivenUpSplit, StopCondition, StopReason};
use super::sampling_plan::{SamplingPlan, split_count_with_left_out};
use crate::scan::{Scan, SplitOutcome};

/// Where a split began and ended that counts.
#[derive(Clone, Copy)]
struct CompletedSplit {
    start: Option<u64>,
    end: Option<u64>,
    is_exact: bool,
}

/// The splits of a run so far.
pub(super) struct SplitTally {
    /// A place for each split; none until it counts.
    completed_splits: Vec<Option<CompletedSplit>>,
    completed_count: usize,
    /// Splits that were drawn and neither count yet nor are given up, each with the number of its thread.
    open_splits: BTreeMap<usize, usize>,
    /// Bytes and rows of the source in what counts.
    pub bytes: u64,
    pub rows: u64,
    /// Splits that are left out, and their bytes.
    pub given_up: Vec<GivenUpSplit>,
    pub given_up_bytes: u64,
    /// Whether a split began elsewhere than the one before it ended.
    pub has_wrong_start: bool,
    /// How many were found to by what stands before them.
    pub checked_wrong_start_count: u64,
}

impl SplitTally {
    /// Of so many splits.
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

    /// Records that a thread has drawn a split. The split is open until it [counts](Tally::land) or is
    /// [given up](Tally::give_up).
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

    /// Has a split of so many bytes count, with what came of it.
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

    /// Whether a split counts.
    pub(super) fn is_split_complete(&self, index: usize) -> bool {
        self.completed_splits.get(index).is_some_and(Option::is_some)
    }

    /// How many count.
    pub(super) fn completed_count(&self) -> usize {
        self.completed_count
    }

    /// The splits that count, in the order of the data.
    fn completed_indices(&self) -> impl Iterator<Item = usize> {
        self.completed_splits
            .iter()
            .enumerate()
            .filter(|(_, place)| place.is_some())
            .map(|(index, _)| index)
    }

    /// Whether all of them count.
    pub(super) fn is_whole_input(&self) -> bool {
        self.completed_count == self.completed_splits.len()
    }

    /// Why no more is to be read, if what has been is enough.
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

    /// What counts, as a sample of all.
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

    /// How many splits began elsewhere than those before them ended, among those of which both were read.
    pub(super) fn wrong_start_count(&self, scan: &Scan) -> u64 {
        let wrong =
            self.completed_indices().filter(|index| self.is_wrong_start(scan, *index)).count()
                as u64;
        wrong.max(self.checked_wrong_start_count)
    }

    /// Whether a split began elsewhere than the one before it ended, if both were read.
    fn is_wrong_start(&self, scan: &Scan, index: usize) -> bool {
        let get = |index: usize| self.completed_splits.get(index).copied().flatten();
        let earlier = index.checked_sub(1).and_then(get);
        let (Some(this), Some(earlier)) = (get(index), earlier) else { return false };
        if this.is_exact || earlier.end.is_none() || this.start == earlier.end {
            return false;
        }
        let splits = scan.splits();
        if splits[index - 1].index + 1 != splits[index].index {
            // Others of which somebody else has drawn these.
            return false;
        }
        let before = splits[index - 1].parts.last().map(|piece| piece.file.index());
        let own = splits[index].parts.first().map(|piece| piece.file.index());
        before == own
    }
}
