//! Coalescing of nearby ranges into one request.

use std::ops::Range;

/// Maximum gap that is fetched with its neighbours: it takes less time than the 30 ms of another request.
pub const COALESCE_GAP_BYTES_MAX: u64 = 256 << 10;

/// Returns the ranges in order, with those joined whose gap costs less than a request.
pub fn coalesce_ranges(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match all.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(COALESCE_GAP_BYTES_MAX) => {
                last.end = last.end.max(range.end);
            }
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_ranges_are_coalesced_in_order_and_distant_ones_are_not() {
        let far = COALESCE_GAP_BYTES_MAX + 100;
        let pairs = |ranges: &[Range<u64>]| -> Vec<(u64, u64)> {
            ranges.iter().map(|range| (range.start, range.end)).collect()
        };
        for (ranges, expected) in [
            (vec![], vec![]),
            (vec![(10, 20), (0, 5)], vec![(0, 20)]),
            (vec![(0, 50), (10, 20)], vec![(0, 50)]),
            (vec![(0, 50), (far, far + 1)], vec![(0, 50), (far, far + 1)]),
            (vec![(0, 100), (far, far + 1)], vec![(0, far + 1)]),
        ] {
            let ranges: Vec<Range<u64>> = ranges.iter().map(|(start, end)| *start..*end).collect();
            assert_eq!(pairs(&coalesce_ranges(&ranges)), expected);
        }
    }
}
