//! The cached parts of an object.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of an object, none of which lies within another: sorted by start they are sorted by end, too.
#[derive(Debug, Default)]
pub(super) struct PieceIndex(BTreeMap<u64, u64>);

impl PieceIndex {
    /// Adds a range and returns those that lay within it, which are removed. Returns `None` and adds nothing
    /// if another range covers it.
    pub(super) fn add(&mut self, range: &Range<u64>) -> Option<Vec<Range<u64>>> {
        if range.start >= range.end || self.is_covered_by_one(range) {
            return None;
        }
        let begin_in_it = self.0.range(range.start..range.end);
        let within: Vec<Range<u64>> = begin_in_it
            .map(|(start, end)| *start..*end)
            .take_while(|piece| piece.end <= range.end)
            .collect();
        for piece in &within {
            self.0.remove(&piece.start);
        }
        self.0.insert(range.start, range.end);
        Some(within)
    }

    /// Returns whether a single piece covers a range.
    pub(super) fn is_covered_by_one(&self, range: &Range<u64>) -> bool {
        self.piece_holding(range.start).is_some_and(|piece| range.end <= piece.end)
    }

    pub(super) fn remove(&mut self, range: &Range<u64>) {
        if self.0.get(&range.start) == Some(&range.end) {
            self.0.remove(&range.start);
        }
    }

    /// Returns the piece with a byte that reaches furthest.
    pub(super) fn piece_holding(&self, at: u64) -> Option<Range<u64>> {
        let (start, end) = self.0.range(..=at).next_back()?;
        (at < *end).then_some(*start..*end)
    }

    /// Returns the part of a range between the bytes that the pieces cover at its start and those that they
    /// cover at its end.
    pub(super) fn missing_range(&self, range: &Range<u64>) -> Range<u64> {
        let mut start = range.start;
        while start < range.end
            && let Some(piece) = self.piece_holding(start)
        {
            start = piece.end;
        }
        let mut end = range.end;
        while start < end
            && let Some((begins, ends)) = self.0.range(..end).next_back()
            && *ends >= end
        {
            end = *begins;
        }
        let start = start.min(range.end);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 40;

    proptest! {
        #[test]
        fn missing_range_is_covered_by_no_piece(
            pieces in proptest::collection::vec((0..SIZE, 1..15u64, any::<bool>()), 0..20),
            wanted in (0..SIZE, 1..SIZE),
        ) {
            let mut found = PieceIndex::default();
            let mut model: Vec<Range<u64>> = Vec::new();
            for (start, length, is_removed) in pieces {
                let range = start..(start + length).min(SIZE);
                if is_removed && let Some(piece) = found.piece_holding(start) {
                    found.remove(&piece);
                    model.retain(|other| *other != piece);
                    continue;
                }
                let within = |one: &Range<u64>, other: &Range<u64>| {
                    other.start <= one.start && one.end <= other.end
                };
                let is_new = !model.iter().any(|other| within(&range, other));
                let gone = found.add(&range);
                prop_assert_eq!(gone.is_some(), is_new);
                if let Some(gone) = gone {
                    prop_assert!(gone.iter().all(|piece| within(piece, &range)));
                    model.retain(|other| !within(other, &range));
                    model.push(range);
                }
            }
            let has = |at: u64| model.iter().any(|piece| piece.contains(&at));
            let range = wanted.0..(wanted.0 + wanted.1).min(SIZE);
            let start = range.clone().find(|at| !has(*at)).unwrap_or(range.end);
            let end = range.clone().rev().find(|at| !has(*at)).map_or(range.end, |at| at + 1);
            prop_assert_eq!(found.missing_range(&range), start..end.max(start));
            for at in 0..SIZE {
                let furthest =
                    model.iter().filter(|piece| piece.contains(&at)).map(|piece| piece.end).max();
                prop_assert_eq!(found.piece_holding(at).map(|piece| piece.end), furthest);
            }
        }
    }
}
