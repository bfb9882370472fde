//! Which part of the order a record belongs to: boundaries taken from a sample.
//!
//! Boundaries are quantiles of the sample. A key that takes several quantiles gets a part of its
//! own, bounded on both sides, whose records all tie: they need no sort, however many there are.
//!
//! Where the prefix is a hash, parts are even cuts of its 64 bits, which are right whatever the sample has; from that
//! come the common keys alone.

use std::cmp::Ordering;

use crate::order::Order;

#[derive(Debug, Clone)]
struct Boundary {
    /// `None`: all records of the prefix are before it.
    record: Option<Vec<u8>>,
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
    /// The parts of an order, at most `count` of them (at least one).
    pub(crate) fn of_order<O: Order>(order: &O, sample: Vec<&[u8]>, count: usize) -> Self {
        if order.is_hashed() {
            Parts::even(order, sample, count)
        } else {
            Parts::choose(order, sample, count)
        }
    }

    /// Even cuts of the prefixes, and parts for keys that are common in a sample.
    fn even<O: Order>(order: &O, mut sample: Vec<&[u8]>, count: usize) -> Self {
        let count = count.max(1);
        sample.sort_by(|a, b| order.compare(a, b));
        // As common as four parts are: they are a quarter of them at most, and take two boundaries each.
        let common = (4 * sample.len()).div_ceil(count).max(8);
        let groups = sample.chunk_by(|a, b| order.compare(a, b).is_eq());
        let groups: Vec<_> = groups.filter(|group| group.len() >= common).collect();
        let even = count - 2 * groups.len().min(count / 4);
        // By prefix; one without a record is behind all that have the same.
        let mut boundaries: Vec<(u64, Option<&[u8]>)> = (1..even as u128)
            .map(|index| (((index << 64) / even as u128) as u64 - 1, None))
            .chain(
                groups.iter().take(count / 4).map(|group| (order.prefix(group[0]), Some(group[0]))),
            )
            .collect();
        boundaries.sort_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| match (a.1, b.1) {
                (Some(a), Some(b)) => order.compare(a, b),
                (a, b) => a.is_none().cmp(&b.is_none()),
            })
        });
        let mut parts = Parts::default();
        for (prefix, record) in boundaries {
            match record {
                Some(record) => {
                    parts.push(order, record, false);
                    parts.push(order, record, true);
                }
                None => {
                    parts.prefixes.push(prefix);
                    parts.boundaries.push(Boundary { record: None, above: true, tied: false });
                }
            }
        }
        parts
    }

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
        let record = Some(record.to_vec());
        self.boundaries.push(Boundary { record, above, tied: above });
    }

    /// A part more, behind all others, for what comes after a record that none of the last part is behind.
    pub(crate) fn end_last<O: Order>(&mut self, order: &O, most: Vec<u8>) {
        self.prefixes.push(order.prefix(&most));
        self.boundaries.push(Boundary { record: Some(most), above: true, tied: false });
    }

    /// A part more, before all others, for what comes before a record that none of the first part is before.
    pub(crate) fn begin_first<O: Order>(&mut self, order: &O, least: Vec<u8>) {
        self.prefixes.insert(0, order.prefix(&least));
        let first = Boundary { record: Some(least), above: false, tied: false };
        self.boundaries.insert(0, first);
    }

    pub(crate) fn count(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// The prefix and the record where a part ends, and whether those that tie with it belong to the part; the last part has no end.
    pub(crate) fn end(&self, part: usize) -> Option<(u64, Option<&[u8]>, bool)> {
        let boundary = self.boundaries.get(part)?;
        Some((self.prefixes[part], boundary.record.as_deref(), boundary.above))
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
            let compared = boundary.record.as_deref().map(|end| order.compare(record, end));
            let below = match compared.unwrap_or(Ordering::Equal) {
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
    use crate::order::{ByteOrder, HashOrder, Order, Reverse};
    use proptest::prelude::*;

    fn check<O: Order>(order: &O, sample: &[Vec<u8>], records: &[Vec<u8>], count: usize) {
        let parts = Parts::of_order(order, sample.iter().map(Vec::as_slice).collect(), count);
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
        fn even_parts_follow_the_order(sample in records(), others in records(), common in records(), count in 0..40usize) {
            let records = [&sample[..], &others, &common].concat();
            let sample = [sample, vec![common; 20].concat()].concat();
            let order = HashOrder::new(ByteOrder, 3);
            check(&order, &sample, &records, count);
            check(&Reverse(order), &sample, &records, count);
        }

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
