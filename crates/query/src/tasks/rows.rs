//! The rows of a map whose splits are read elsewhere, in the order of the input.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use tidemill_base::error::Result;
use tidemill_base::progress::RunProgress;
use tidemill_source::SplitStats;

use super::dealer::Dealer;
use super::task::{Part, Read};
use crate::rows::Limits;
use crate::scan::{Scan, SoFar};

/// An iterator of batches.
pub(crate) struct RowsElsewhere {
    dealer: Option<Dealer>,
    scan: Arc<Scan>,
    progress: RunProgress,
    /// The part at hand, and the places of its task's splits.
    part: Option<(Range<usize>, Part)>,
    /// What was read of those splits of it that have not been counted.
    read: VecDeque<Read>,
    /// What had been read of the first of these when the last batch was made.
    so_far: SoFar,
    limits: Limits,
    is_cut_short: bool,
    ended: bool,
}

impl RowsElsewhere {
    pub(super) fn new(
        dealer: Dealer,
        scan: Arc<Scan>,
        progress: &RunProgress,
        (skip, left): (usize, Option<usize>),
    ) -> Self {
        RowsElsewhere {
            dealer: Some(dealer),
            scan,
            progress: progress.clone(),
            part: None,
            read: VecDeque::new(),
            so_far: SoFar::default(),
            limits: Limits { skip, left },
            is_cut_short: false,
            ended: false,
        }
    }

    /// Whether reading ended because no more rows were wanted.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// The next batch of the input, before skipping and limiting.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some((places, part)) = &mut self.part else {
                let Some(dealer) = &mut self.dealer else { return Ok(None) };
                let Some((places, mut part)) = dealer.next()? else { return Ok(None) };
                self.read = part.read.drain(..).collect();
                self.part = Some((places, part));
                continue;
            };
            let places = places.clone();
            match part.next_batch()? {
                Some((at, batch)) => {
                    let at = at.ok_or_else(Dealer::of_others)?;
                    self.count(&places, at.place)?;
                    self.so_far = SoFar { rows: at.rows, rejected: at.rejected };
                    return Ok(Some(batch));
                }
                None => {
                    // A part that ends early has rows enough.
                    if self.read.back().is_none_or(|read| read.place + 1 != places.len()) {
                        return Err(Dealer::of_others());
                    }
                    self.count(&places, places.len())?;
                    self.part = None;
                }
            }
        }
    }

    /// Counts the splits of the part at hand before one of them.
    fn count(&mut self, places: &Range<usize>, before: usize) -> Result<()> {
        while let Some(read) = self.read.pop_front_if(|read| read.place < before) {
            let split = self.scan.splits().get(places.start + read.place);
            let split = split.ok_or_else(Dealer::of_others)?;
            let stats = SplitStats::from_description(read.stats, split)?;
            self.progress.add_bytes(split.bytes);
            self.progress.add_rows(stats.rows);
            self.scan.accept(stats)?;
            self.so_far = SoFar::default();
        }
        Ok(())
    }

    /// Counts what was read, up to the last batch, of the split at which no more rows were wanted.
    fn count_part(&mut self) -> Result<()> {
        let (Some((places, _)), Some(read)) = (&self.part, self.read.pop_front()) else {
            return Ok(());
        };
        if self.so_far == SoFar::default() {
            return Ok(());
        }
        let split = self.scan.splits().get(places.start + read.place);
        let stats = SplitStats::from_description(read.stats, split.ok_or_else(Dealer::of_others)?)?;
        self.progress.add_rows(self.so_far.rows);
        self.scan.accept_part(stats, self.so_far)
    }

    fn limited(&mut self) -> Result<Option<RecordBatch>> {
        while !self.limits.are_reached() {
            let Some(batch) = self.next_batch()? else { return Ok(None) };
            if let Some(batch) = self.limits.take(&batch) {
                return Ok(Some(batch));
            }
        }
        let is_over = self.dealer.as_ref().is_none_or(Dealer::has_ended) && self.read.is_empty();
        self.is_cut_short = !is_over;
        self.count_part()?;
        Ok(None)
    }
}

impl Iterator for RowsElsewhere {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.limited();
        if !matches!(next, Ok(Some(_))) {
            self.ended = true;
            // What is in work is nobody's any more.
            self.dealer = None;
            self.part = None;
        }
        next.transpose()
    }
}
