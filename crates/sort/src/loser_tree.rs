//! Merge of any number of sorted sources: a loser tree (Knuth, volume 3, section 5.4.1).
//!
//! Each inner node holds the source that lost there. After the winner has advanced, only the path
//! from its leaf to the root is replayed: log2(k) comparisons a record, most of them of two
//! prefixes.

use std::cmp::Ordering;

use crate::error::Result;
use crate::record_order::RecordOrder;

/// A source of records in order.
pub(crate) trait MergeSource {
    /// Returns the next record; `None` at the end.
    fn head(&self) -> Option<&[u8]>;

    /// Moves to the next record.
    fn advance(&mut self) -> Result<()>;

    /// Returns the rank of the head among ties; of equal ranks the source that was given first wins.
    fn ordinal(&self) -> u128 {
        0
    }
}

pub(crate) struct LoserTree<'a, O, S> {
    order: &'a O,
    sources: Vec<S>,
    /// `None` for a source at its end.
    prefixes: Vec<Option<u64>>,
    /// Loser at node n, from 1 on; index 0 holds the overall winner.
    losers: Vec<usize>,
}

impl<'a, O: RecordOrder, S: MergeSource> LoserTree<'a, O, S> {
    pub(crate) fn new(order: &'a O, sources: Vec<S>) -> Self {
        let count = sources.len();
        let prefixes =
            sources.iter().map(|source| source.head().map(|record| order.prefix(record))).collect();
        let mut tree = LoserTree { order, sources, prefixes, losers: vec![0; count.max(1)] };
        if count > 0 {
            let mut winners = vec![0; 2 * count];
            for (index, winner) in winners[count..].iter_mut().enumerate() {
                *winner = index;
            }
            for node in (1..count).rev() {
                let (a, b) = (winners[2 * node], winners[2 * node + 1]);
                let (winner, loser) = if tree.precedes(a, b) { (a, b) } else { (b, a) };
                winners[node] = winner;
                tree.losers[node] = loser;
            }
            tree.losers[0] = winners[1];
        }
        tree
    }

    /// Returns whether the head of source `a` comes before that of `b`.
    fn precedes(&self, a: usize, b: usize) -> bool {
        match (self.prefixes[a], self.prefixes[b]) {
            (Some(x), Some(y)) => match x.cmp(&y) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => {
                    let compared = match (self.sources[a].head(), self.sources[b].head()) {
                        (Some(x), Some(y)) if !self.order.prefix_decides() => {
                            self.order.compare(x, y)
                        }
                        _ => Ordering::Equal,
                    };
                    let ordinal = |index: usize| (self.sources[index].ordinal(), index);
                    compared.then_with(|| ordinal(a).cmp(&ordinal(b))) == Ordering::Less
                }
            },
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a < b,
        }
    }

    /// Returns the source whose head comes first; `None` when all are at their ends.
    pub(crate) fn winner(&self) -> Option<&S> {
        let winner = self.losers[0];
        self.prefixes.get(winner).copied().flatten().map(|_| &self.sources[winner])
    }

    /// Advances the winner.
    pub(crate) fn advance(&mut self) -> Result<()> {
        let mut winner = self.losers[0];
        let Some(source) = self.sources.get_mut(winner) else { return Ok(()) };
        source.advance()?;
        self.prefixes[winner] = source.head().map(|record| self.order.prefix(record));
        let mut node = (winner + self.sources.len()) / 2;
        while node > 0 {
            if self.precedes(self.losers[node], winner) {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node /= 2;
        }
        self.losers[0] = winner;
        Ok(())
    }

    /// Returns the sources in their original order.
    pub(crate) fn into_sources(self) -> Vec<S> {
        self.sources
    }
}

#[cfg(test)]
mod tests {
    use super::{LoserTree, MergeSource};
    use crate::error::Result;
    use crate::record_order::ByteOrder;
    use proptest::prelude::*;

    struct ListSource(Vec<Vec<u8>>, usize);
    impl MergeSource for ListSource {
        fn head(&self) -> Option<&[u8]> {
            self.0.get(self.1).map(Vec::as_slice)
        }
        fn advance(&mut self) -> Result<()> {
            self.1 += 1;
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn merge_equals_sort(lists in prop::collection::vec(prop::collection::vec(prop::collection::vec(0..3u8, 0..12), 0..9), 0..9)) {
            let mut all: Vec<_> = lists.concat();
            all.sort();
            let sources = lists.into_iter().map(|mut list| { list.sort(); ListSource(list, 0) }).collect();
            let mut tree = LoserTree::new(&ByteOrder, sources);
            let mut merged = Vec::new();
            while let Some(source) = tree.winner() {
                merged.push(source.head().unwrap().to_vec());
                tree.advance().unwrap();
            }
            prop_assert_eq!(merged, all);
        }
    }
}
