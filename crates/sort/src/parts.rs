//! Which part of the order a record belongs to: boundaries taken from a sample.
//!
//! Boundaries are quantiles of the sample. A key that takes several quantiles gets a part of its
//! own, bounded on both sides, whose records all tie: they need no sort, however many there are.

use std::cmp::Ordering;

use crate::order::Order;

#[derive(Debug, Clone)]
struct Boundary {
    record: Vec<u8>,
    /// Whether records that tie with it are before it.
    above: bool,
    /// Whether all records of the part before it tie.
    tied: bool,
}

/// Boundaries between parts; there is one part more than boundaries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    prefixes: Vec<u64>,
    boundaries: Vec<Boundary>,
}

impl Parts {
    /// At most `count` parts (at least one), of equal numbers of sampled records where that can be.
    pub(crate) fn choose<O: Order>(order: &O, mut sample: Vec<&[u8]>, count: usize) -> Self {
        sample.sort_by(|a, b| {
            order.prefix(a).cmp(&order.prefix(b)).then_with(|| order.compare(a, b))
        });
        let mut parts = Parts::default();
        let same = |a: &[u8], b: &[u8]| order.compare(a, b) == Ordering::Equal;
        let quantile = |index: usize| sample.get(index * sample.len() / count.max(1)).copied();
        let mut index = 1;
        while index < count && parts.boundaries.len() + 1 < count {
            let Some(record) = quantile(index) else { break };
            let first = index;
            while index < count && quantile(index).is_some_and(|other| same(other, record)) {
                index += 1;
            }
            parts.push(order, record, false);
            if index - first > 1 && parts.boundaries.len() + 1 < count {
                parts.push(order, record, true);
            }
        }
        parts
    }

    fn push<O: Order>(&mut self, order: &O, record: &[u8], above: bool) {
        self.prefixes.push(order.prefix(record));
        self.boundaries.push(Boundary { record: record.to_vec(), above, tied: above });
    }

    /// A part more, behind all others, for what comes after a record that none of the last part is behind.
    pub(crate) fn end_last<O: Order>(&mut self, order: &O, most: Vec<u8>) {
        self.prefixes.push(order.prefix(&most));
        self.boundaries.push(Boundary { record: most, above: true, tied: false });
    }

    /// A part more, before all others, for what comes before a record that none of the first part is before.
    pub(crate) fn begin_first<O: Order>(&mut self, order: &O, least: Vec<u8>) {
        self.prefixes.insert(0, order.prefix(&least));
        self.boundaries.insert(0, Boundary { record: least, above: false, tied: false });
    }

    pub(crate) fn count(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// The record where a part ends, and whether those that tie with it belong to the part; the last part has no end.
    pub(crate) fn end(&self, part: usize) -> Option<(&[u8], bool)> {
        self.boundaries.get(part).map(|boundary| (boundary.record.as_slice(), boundary.above))
    }

    /// Whether all records of a part tie.
    pub(crate) fn ties(&self, part: usize) -> bool {
        part > 0 && self.boundaries.get(part).is_some_and(|boundary| boundary.tied)
    }

    /// The part of a record with this prefix.
    #[inline]
    pub(crate) fn of<O: Order>(&self, order: &O, record: &[u8], prefix: u64) -> usize {
        let mut part = self.prefixes.partition_point(|boundary| *boundary < prefix);
        while self.prefixes.get(part) == Some(&prefix) {
            let boundary = &self.boundaries[part];
            let below = match order.compare(record, &boundary.record) {
                Ordering::Less => true,
                Ordering::Equal => boundary.above,
                Ordering::Greater => false,
            };
            if below {
                break;
            }
            part += 1;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;
    use crate::order::{ByteOrder, Order, Reverse};
    use proptest::prelude::*;

    fn check<O: Order>(order: &O, sample: &[Vec<u8>], records: &[Vec<u8>], count: usize) {
        let parts = Parts::choose(order, sample.iter().map(Vec::as_slice).collect(), count);
        assert!(parts.count() <= count.max(1));
        for a in records {
            let part = parts.of(order, a, order.prefix(a));
            assert!(part < parts.count());
            for b in records {
                let other = parts.of(order, b, order.prefix(b));
                if part < other {
                    assert!(order.compare(a, b).is_lt());
                }
                if part == other && parts.ties(part) {
                    assert!(order.compare(a, b).is_eq());
                }
            }
        }
    }

    fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(0..2u8, 0..11), 0..40)
    }

    proptest! {
        #[test]
        fn parts_follow_the_order(sample in records(), others in records(), count in 0..20usize) {
            check(&ByteOrder, &sample, &[sample.clone(), others.clone()].concat(), count);
            check(&Reverse(ByteOrder), &sample, &[sample.clone(), others].concat(), count);
        }
    }

    #[test]
    fn a_common_key_has_a_part_of_its_own() {
        let mut sample: Vec<&[u8]> = vec![b"m"; 50];
        sample.extend([&b"a"[..], b"b", b"c", b"x", b"y", b"z"].repeat(8));
        let parts = Parts::choose(&ByteOrder, sample, 16);
        assert!(parts.ties(parts.of(&ByteOrder, b"m", ByteOrder.prefix(b"m"))));
        assert!(!parts.ties(parts.of(&ByteOrder, b"l", ByteOrder.prefix(b"l"))));
    }
}
