//! Which splits count of those that are read, and whether that is enough.

use std::collections::BTreeMap;

use tidemill_sampling::SplitSample;

use super::drawing::{Drawing, splits_with_left_out};
use super::runner::{GivenUp, Until, Why};
use crate::scan::{Outcome, Scan};

/// Where a split began and ended that counts.
#[derive(Clone, Copy)]
struct Landed {
    start: Option<u64>,
    end: Option<u64>,
    is_exact: bool,
}

/// The splits of a run so far.
pub(super) struct Tally {
    /// A place for each split; none until it counts.
    places: Vec<Option<Landed>>,
    count: usize,
    /// Splits that were drawn and neither count yet nor are given up, each with the number of its thread.
    open: BTreeMap<usize, usize>,
    /// Bytes and rows of the source in what counts.
    pub bytes: u64,
    pub rows: u64,
    /// Splits that are left out, and their bytes.
    pub given_up: Vec<GivenUp>,
    pub given_up_bytes: u64,
    /// Whether a split began elsewhere than the one before it ended.
    pub has_wrong_start: bool,
    /// How many were found to by what stands before them.
    pub checked_wrong: u64,
}

impl Tally {
    /// Of so many splits.
    pub(super) fn new(splits: usize) -> Self {
        Tally {
            places: vec![None; splits],
            count: 0,
            open: BTreeMap::new(),
            bytes: 0,
            rows: 0,
            given_up: Vec::new(),
            given_up_bytes: 0,
            has_wrong_start: false,
            checked_wrong: 0,
        }
    }

    /// Records that a thread has drawn a split. The split is open until it [counts](Tally::land) or is
    /// [given up](Tally::give_up).
    pub(super) fn begin(&mut self, index: usize, thread: usize) {
        self.open.insert(index, thread);
    }

    /// Returns the open splits in order, each with the number of its thread.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, usize)> {
        self.open.iter().map(|(split, thread)| (*split, *thread))
    }

    /// Returns true if a split is open.
    pub(super) fn is_open(&self, index: usize) -> bool {
        self.open.contains_key(&index)
    }

    /// Gives up a split, which is left out of the answer.
    pub(super) fn give_up(&mut self, given_up: GivenUp) {
        self.open.remove(&given_up.split);
        self.given_up.push(given_up);
    }

    /// Has a split of so many bytes count, with what came of it.
    pub(super) fn land(
        &mut self,
        scan: &Scan,
        index: usize,
        bytes: u64,
        outcome: Option<&Outcome>,
    ) {
        let landed = match outcome {
            Some(Outcome { stats, is_exact }) => Landed {
                start: stats.first_record_offset,
                end: stats.next_record_offset,
                is_exact: *is_exact,
            },
            None => Landed { start: None, end: None, is_exact: true },
        };
        self.open.remove(&index);
        self.count += usize::from(self.places[index].replace(landed).is_none());
        self.bytes += bytes;
        self.rows += outcome.map_or(0, |outcome| outcome.stats.rows);
        self.has_wrong_start |=
            self.is_wrong_start(scan, index) || self.is_wrong_start(scan, index + 1);
    }

    /// Whether a split counts.
    pub(super) fn has(&self, index: usize) -> bool {
        self.places.get(index).is_some_and(Option::is_some)
    }

    /// How many count.
    pub(super) fn landed(&self) -> usize {
        self.count
    }

    /// The splits that count, in the order of the data.
    fn indices(&self) -> impl Iterator<Item = usize> {
        self.places.iter().enumerate().filter(|(_, place)| place.is_some()).map(|(index, _)| index)
    }

    /// Whether all of them count.
    pub(super) fn is_whole(&self) -> bool {
        self.count == self.places.len()
    }

    /// Why no more is to be read, if what has been is enough.
    pub(super) fn enough(&self, drawing: &Drawing, until: &Until) -> Option<Why> {
        if self.is_whole() {
            return Some(Why::Whole);
        }
        if until.drop.is_some() && self.bytes >= drawing.total - drawing.drop_bytes {
            return Some(Why::Drop);
        }
        if self.count + self.given_up.len() < drawing.count() {
            return None;
        }
        Some(if drawing.count() < self.places.len() { Why::Sample } else { Why::Drop })
    }

    /// What counts, as a sample of all.
    pub(super) fn sample(&self, scan: &Scan, drawing: &Drawing, confidence: f64) -> SplitSample {
        let mut sample =
            SplitSample::new(splits_with_left_out(scan), drawing.weight as f64, confidence);
        for index in self.indices() {
            sample.add(index, drawing.weights[index] as f64);
        }
        sample
    }

    /// How many splits began elsewhere than those before them ended, among those of which both were read.
    pub(super) fn wrong_starts(&self, scan: &Scan) -> u64 {
        let wrong = self.indices().filter(|index| self.is_wrong_start(scan, *index)).count() as u64;
        wrong.max(self.checked_wrong)
    }

    /// Whether a split began elsewhere than the one before it ended, if both were read.
    fn is_wrong_start(&self, scan: &Scan, index: usize) -> bool {
        let get = |index: usize| self.places.get(index).copied().flatten();
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
