//! Cut points between range partitions, derived from a sample.
//!
//! Cut points are quantiles of the sample. A key that takes several quantiles gets a partition of its
//! own, bounded on both sides, whose records all tie: they need no sort, however many there are.
//!
//! For an order with a hashed prefix, the cut points divide its 64 bits evenly, which is right for any
//! sample; the sample only provides the common keys.

use std::cmp::Ordering;

use crate::record_order::RecordOrder;

#[derive(Debug, Clone)]
struct CutPoint {
    /// `None`: all records of the prefix are before it.
    record: Option<Vec<u8>>,
    /// True if records that tie with it are before it.
    includes_ties: bool,
    /// True if all records of the partition before it tie.
    ends_tied_partition: bool,
}

/// The cut points between partitions; there is one partition more than cut points.
#[derive(Debug, Clone, Default)]
pub(crate) struct CutPoints {
    prefixes: Vec<u64>,
    cut_points: Vec<CutPoint>,
}

impl CutPoints {
    /// Derives cut points from a sample, for at most `count` partitions (at least one).
    pub(crate) fn from_sample<O: RecordOrder>(order: &O, sample: Vec<&[u8]>, count: usize) -> Self {
        if order.has_hashed_prefix() {
            CutPoints::evenly_hashed(order, sample, count)
        } else {
            CutPoints::from_quantiles(order, sample, count)
        }
    }

    /// Divides the prefixes evenly, and adds partitions for keys that are common in a sample.
    fn evenly_hashed<O: RecordOrder>(order: &O, mut sample: Vec<&[u8]>, count: usize) -> Self {
        let count = count.max(1);
        sample.sort_by(|a, b| order.compare(a, b));
        // As common as four partitions: at most a quarter of them, and they take two cut points each.
        let common = (4 * sample.len()).div_ceil(count).max(8);
        let groups = sample.chunk_by(|a, b| order.compare(a, b).is_eq());
        let groups: Vec<_> = groups.filter(|group| group.len() >= common).collect();
        let even = count - 2 * groups.len().min(count / 4);
        // By prefix; a cut point without a record is behind all records of that prefix.
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
        let mut parts = CutPoints::default();
        for (prefix, record) in boundaries {
            match record {
                Some(record) => {
                    parts.push_cut_point(order, record, false);
                    parts.push_cut_point(order, record, true);
                }
                None => {
                    parts.prefixes.push(prefix);
                    parts.cut_points.push(CutPoint {
                        record: None,
                        includes_ties: true,
                        ends_tied_partition: false,
                    });
                }
            }
        }
        parts
    }

    /// Divides the sample into at most `count` partitions (at least one), of equal size if possible.
    pub(crate) fn from_quantiles<O: RecordOrder>(
        order: &O,
        mut sample: Vec<&[u8]>,
        count: usize,
    ) -> Self {
        sample.sort_by(|a, b| {
            order.prefix(a).cmp(&order.prefix(b)).then_with(|| order.compare(a, b))
        });
        let mut parts = CutPoints::default();
        let same = |a: &[u8], b: &[u8]| order.compare(a, b) == Ordering::Equal;
        let quantile = |index: usize| sample.get(index * sample.len() / count.max(1)).copied();
        let mut index = 1;
        while index < count && parts.cut_points.len() + 1 < count {
            let Some(record) = quantile(index) else { break };
            let first = index;
            while index < count && quantile(index).is_some_and(|other| same(other, record)) {
                index += 1;
            }
            parts.push_cut_point(order, record, false);
            if index - first > 1 && parts.cut_points.len() + 1 < count {
                parts.push_cut_point(order, record, true);
            }
        }
        parts
    }

    fn push_cut_point<O: RecordOrder>(&mut self, order: &O, record: &[u8], above: bool) {
        self.prefixes.push(order.prefix(record));
        let record = Some(record.to_vec());
        self.cut_points.push(CutPoint { record, includes_ties: above, ends_tied_partition: above });
    }

    /// Adds a partition behind all others, for records behind `most`. No record of the last partition is
    /// behind it.
    pub(crate) fn add_last_partition<O: RecordOrder>(&mut self, order: &O, most: Vec<u8>) {
        self.prefixes.push(order.prefix(&most));
        self.cut_points.push(CutPoint {
            record: Some(most),
            includes_ties: true,
            ends_tied_partition: false,
        });
    }

    /// Adds a partition before all others, for records before `least`. No record of the first partition is
    /// before it.
    pub(crate) fn add_first_partition<O: RecordOrder>(&mut self, order: &O, least: Vec<u8>) {
        self.prefixes.insert(0, order.prefix(&least));
        let first =
            CutPoint { record: Some(least), includes_ties: false, ends_tied_partition: false };
        self.cut_points.insert(0, first);
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.cut_points.len() + 1
    }

    /// Returns prefix and record at which a partition ends, and whether records that tie with it belong to
    /// the partition. The last partition has no end.
    pub(crate) fn partition_end(&self, part: usize) -> Option<(u64, Option<&[u8]>, bool)> {
        let boundary = self.cut_points.get(part)?;
        Some((self.prefixes[part], boundary.record.as_deref(), boundary.includes_ties))
    }

    /// Returns whether all records of a partition tie.
    pub(crate) fn is_tied_partition(&self, part: usize) -> bool {
        part > 0 && self.cut_points.get(part).is_some_and(|boundary| boundary.ends_tied_partition)
    }

    /// Returns the index of the partition for a record with this prefix.
    #[inline]
    pub(crate) fn partition_index<O: RecordOrder>(
        &self,
        order: &O,
        record: &[u8],
        prefix: u64,
    ) -> usize {
        let mut part = self.prefixes.partition_point(|boundary| *boundary < prefix);
        while self.prefixes.get(part) == Some(&prefix) {
            let boundary = &self.cut_points[part];
            let compared = boundary.record.as_deref().map(|end| order.compare(record, end));
            let below = match compared.unwrap_or(Ordering::Equal) {
                Ordering::Less => true,
                Ordering::Equal => boundary.includes_ties,
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
    use super::CutPoints;
    use crate::record_order::{ByteOrder, HashOrder, RecordOrder, ReverseOrder};
    use proptest::prelude::*;

    fn check<O: RecordOrder>(order: &O, sample: &[Vec<u8>], records: &[Vec<u8>], count: usize) {
        let parts =
            CutPoints::from_sample(order, sample.iter().map(Vec::as_slice).collect(), count);
        assert!(parts.partition_count() <= count.max(1));
        for a in records {
            let part = parts.partition_index(order, a, order.prefix(a));
            assert!(part < parts.partition_count());
            for b in records {
                let other = parts.partition_index(order, b, order.prefix(b));
                if part < other {
                    assert!(order.compare(a, b).is_lt());
                }
                if part == other && parts.is_tied_partition(part) {
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
        fn even_cut_points_follow_the_order(sample in records(), others in records(), common in records(), count in 0..40usize) {
            let records = [&sample[..], &others, &common].concat();
            let sample = [sample, vec![common; 20].concat()].concat();
            let order = HashOrder::new(ByteOrder, 3);
            check(&order, &sample, &records, count);
            check(&ReverseOrder(order), &sample, &records, count);
        }

        #[test]
        fn quantile_cut_points_follow_the_order(sample in records(), others in records(), count in 0..20usize) {
            check(&ByteOrder, &sample, &[sample.clone(), others.clone()].concat(), count);
            check(&ReverseOrder(ByteOrder), &sample, &[sample.clone(), others].concat(), count);
        }
    }

    #[test]
    fn common_key_has_a_partition_of_its_own() {
        let mut sample: Vec<&[u8]> = vec![b"m"; 50];
        sample.extend([&b"a"[..], b"b", b"c", b"x", b"y", b"z"].repeat(8));
        let parts = CutPoints::from_quantiles(&ByteOrder, sample, 16);
        assert!(parts.is_tied_partition(parts.partition_index(
            &ByteOrder,
            b"m",
            ByteOrder.prefix(b"m")
        )));
        assert!(!parts.is_tied_partition(parts.partition_index(
            &ByteOrder,
            b"l",
            ByteOrder.prefix(b"l")
        )));
    }
}
