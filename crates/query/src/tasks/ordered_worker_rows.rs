//! The rows of a map whose splits workers read, in input order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use tidemill_base::error::Result;
use tidemill_base::progress::RunProgress;
use tidemill_source::SplitStats;

use super::ordered_scheduler::OrderedScheduler;
use super::task_messages::{SplitReport, TaskResult};
use crate::execution::ordered_rows::RowLimits;
use crate::execution::scan::{ReadCounts, Scan};

/// An iterator over the rows that workers send, in input order.
pub(crate) struct OrderedWorkerRows {
    scheduler: Option<OrderedScheduler>,
    scan: Arc<Scan>,
    progress: RunProgress,
    /// The current task's result, and the indices of the task's splits.
    current_result: Option<(Range<usize>, TaskResult)>,
    /// Reports on those of its splits that are not counted yet.
    pending_reports: VecDeque<SplitReport>,
    /// Progress within the first of these splits when its last batch was made.
    current_split_progress: ReadCounts,
    row_limits: RowLimits,
    is_cut_short: bool,
    has_ended: bool,
}

impl OrderedWorkerRows {
    pub(super) fn new(
        dealer: OrderedScheduler,
        scan: Arc<Scan>,
        progress: &RunProgress,
        (skip, left): (usize, Option<usize>),
    ) -> Self {
        OrderedWorkerRows {
            scheduler: Some(dealer),
            scan,
            progress: progress.clone(),
            current_result: None,
            pending_reports: VecDeque::new(),
            current_split_progress: ReadCounts::default(),
            row_limits: RowLimits { skip, remaining: left },
            is_cut_short: false,
            has_ended: false,
        }
    }

    /// Returns true if reading ended because the limit was reached.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Returns the next batch of the input, before skipping and limiting.
    fn next_unlimited_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some((places, part)) = &mut self.current_result else {
                let Some(dealer) = &mut self.scheduler else { return Ok(None) };
                let Some((places, mut part)) = dealer.next_result()? else { return Ok(None) };
                self.pending_reports = part.split_reports.drain(..).collect();
                self.current_result = Some((places, part));
                continue;
            };
            let places = places.clone();
            match part.next_batch()? {
                Some((at, batch)) => {
                    let at = at.ok_or_else(OrderedScheduler::mismatched_splits_error)?;
                    self.count_splits_before(&places, at.place)?;
                    self.current_split_progress =
                        ReadCounts { rows: at.rows, rejected: at.rejected };
                    return Ok(Some(batch));
                }
                None => {
                    // A result that ends early has enough rows.
                    if self.pending_reports.back().is_none_or(|read| read.place + 1 != places.len())
                    {
                        return Err(OrderedScheduler::mismatched_splits_error());
                    }
                    self.count_splits_before(&places, places.len())?;
                    self.current_result = None;
                }
            }
        }
    }

    /// Counts those splits of the current result that come before the split at index `before`.
    fn count_splits_before(&mut self, places: &Range<usize>, before: usize) -> Result<()> {
        while let Some(read) = self.pending_reports.pop_front_if(|read| read.place < before) {
            let split = self.scan.splits().get(places.start + read.place);
            let split = split.ok_or_else(OrderedScheduler::mismatched_splits_error)?;
            let stats = SplitStats::from_description(read.stats, split)?;
            self.progress.add_bytes(split.bytes);
            self.progress.add_rows(stats.rows);
            self.scan.count_split(stats)?;
            self.current_split_progress = ReadCounts::default();
        }
        Ok(())
    }

    /// Counts the rows, up to the last batch, of the split in which the limit was reached.
    fn count_partial_split(&mut self) -> Result<()> {
        let (Some((places, _)), Some(read)) =
            (&self.current_result, self.pending_reports.pop_front())
        else {
            return Ok(());
        };
        if self.current_split_progress == ReadCounts::default() {
            return Ok(());
        }
        let split = self.scan.splits().get(places.start + read.place);
        let stats = SplitStats::from_description(
            read.stats,
            split.ok_or_else(OrderedScheduler::mismatched_splits_error)?,
        )?;
        self.progress.add_rows(self.current_split_progress.rows);
        self.scan.count_partial_split(stats, self.current_split_progress)
    }

    fn next_limited_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.row_limits.are_reached() {
            let Some(batch) = self.next_unlimited_batch()? else { return Ok(None) };
            if let Some(batch) = self.row_limits.apply_to_batch(&batch) {
                return Ok(Some(batch));
            }
        }
        let is_over = self.scheduler.as_ref().is_none_or(OrderedScheduler::has_ended)
            && self.pending_reports.is_empty();
        self.is_cut_short = !is_over;
        self.count_partial_split()?;
        Ok(None)
    }
}

impl Iterator for OrderedWorkerRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.next_limited_batch();
        if !matches!(next, Ok(Some(_))) {
            self.has_ended = true;
            // Dropping the scheduler ends the remaining tasks.
            self.scheduler = None;
            self.current_result = None;
        }
        next.transpose()
    }
}
