//! HyperLogLog against a `HashSet`, and its parameters against one another.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{Dialect, ExplicitThreshold, Hll, HllParams, hash_bytes, hash_i64};

use crate::{grouping, in_random_groups};

const DIALECTS: [Dialect; 2] = [Dialect::Postgres { sparse_registers_max: None }, Dialect::Java];

fn thresholds() -> impl Strategy<Value = ExplicitThreshold> {
    prop_oneof![
        Just(ExplicitThreshold::Never),
        (0u8..8).prop_map(ExplicitThreshold::PowerOfTwo),
        Just(ExplicitThreshold::Automatic),
    ]
}

fn params() -> impl Strategy<Value = HllParams> {
    (4u8..=12, 1u8..=8, thresholds(), any::<bool>()).prop_map(
        |(log2m, regwidth, expthresh, sparse)| HllParams { log2m, regwidth, expthresh, sparse },
    )
}

fn of(params: HllParams, hashes: &[u64]) -> Hll {
    let mut hll = Hll::new(params).unwrap();
    hashes.iter().for_each(|&hash| hll.add_hash(hash));
    hll
}

/// Hashes as they come from values, and such as only an adversary finds.
fn hashes(max: usize) -> impl Strategy<Value = Vec<u64>> {
    let hash = prop_oneof![
        4 => (0i64..2000).prop_map(hash_i64),
        1 => any::<u64>(),
        1 => (0u64..64).prop_map(|shift| 1 << shift),
        1 => 0u64..4,
    ];
    vec(hash, 0..max)
}

proptest! {
    #[test]
    fn order_and_grouping_leave_no_trace(
        params in params(),
        hashes in hashes(1500),
        (cuts, picks) in grouping(),
    ) {
        let all = of(params, &hashes);
        let grouped = in_random_groups(
            &hashes,
            &cuts,
            &picks,
            || Hll::new(params).unwrap(),
            |hll, &hash| hll.add_hash(hash),
            Hll::merge,
        );
        let mut sorted = hashes.clone();
        sorted.sort_unstable();
        let sorted = of(params, &sorted);
        for dialect in DIALECTS {
            prop_assert_eq!(all.to_bytes(dialect), grouped.to_bytes(dialect));
            prop_assert_eq!(all.to_bytes(dialect), sorted.to_bytes(dialect));
        }
        prop_assert_eq!(all.cardinality().to_bits(), grouped.cardinality().to_bits());
        prop_assert_eq!(all, grouped);
    }

    #[test]
    fn every_dialect_reads_back(params in params(), hashes in hashes(1500)) {
        let hll = of(params, &hashes);
        for dialect in DIALECTS {
            let bytes = hll.to_bytes(dialect);
            let back = Hll::from_bytes(&bytes).unwrap();
            prop_assert_eq!(&back, &hll);
            prop_assert_eq!(back.to_bytes(dialect), bytes);
        }
    }

    #[test]
    fn registers_are_the_definitions(params in params(), hashes in hashes(300)) {
        let params = HllParams { expthresh: ExplicitThreshold::Never, sparse: false, ..params };
        let mut registers = vec![0u64; 1 << params.log2m];
        for hash in &hashes {
            let (index, rest) = (hash & ((1 << params.log2m) - 1), hash >> params.log2m);
            if rest != 0 {
                let run = u64::from(rest.trailing_zeros() + 1).min((1 << params.regwidth) - 1);
                let register = &mut registers[index as usize];
                *register = run.max(*register);
            }
        }
        let mut digits = String::new();
        for register in registers {
            digits += &format!("{register:0width$b}", width = params.regwidth.into());
        }
        while !digits.len().is_multiple_of(8) {
            digits.push('0');
        }
        let expect: Vec<u8> = digits
            .as_bytes()
            .chunks(8)
            .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
            .collect();
        let bytes = of(params, &hashes).to_bytes(Dialect::default());
        if !hashes.is_empty() {
            prop_assert_eq!(&bytes[3..], expect);
        }
    }

    /// Folding: a merge into smaller parameters is what they would have seen themselves.
    #[test]
    fn merging_different_parameters_loses_nothing_but_precision(
        a in params(),
        b in params(),
        seeds_a in vec(any::<i64>(), 0..600),
        seeds_b in vec(any::<i64>(), 0..600),
    ) {
        let hashes = |seeds: &[i64]| seeds.iter().map(|&seed| hash_i64(seed)).collect::<Vec<_>>();
        let (hashes_a, hashes_b) = (hashes(&seeds_a), hashes(&seeds_b));
        let (mut left, mut right) = (of(a, &hashes_a), of(b, &hashes_b));
        let right_before = right.clone();
        right.merge(&left);
        left.merge(&right_before);
        prop_assert_eq!(&left, &right);

        let smaller = HllParams {
            log2m: a.log2m.min(b.log2m),
            regwidth: a.regwidth.min(b.regwidth),
            expthresh: a.expthresh.min(b.expthresh),
            sparse: a.sparse && b.sparse,
        };
        prop_assert_eq!(left.params(), smaller);
        let both = [hashes_a, hashes_b].concat();
        let expect = of(smaller, &both);
        // EXPLICIT may have been left on the way, where the larger state had a lower threshold
        // of its own.
        if left.is_exact() == expect.is_exact() {
            prop_assert_eq!(left, expect);
        } else {
            let registers = HllParams { expthresh: ExplicitThreshold::Never, ..smaller };
            let mut left = left;
            left.merge(&Hll::new(registers).unwrap());
            prop_assert_eq!(left, of(registers, &both));
        }
    }
}

#[test]
fn few_values_are_counted_exactly() {
    let mut hll = Hll::default();
    let mut seen = HashSet::new();
    for i in 0..5000u64 {
        let value = hash_bytes(&(i * i % 1789).to_le_bytes(), 0);
        hll.add_hash(value);
        seen.insert(value);
        assert_eq!(hll.count(), seen.len() as u64);
        assert_eq!(hll.relative_error(), 0.0);
    }
    assert!(hll.is_exact());
}

#[test]
fn the_threshold_is_the_last_exact_count() {
    let check = |expthresh, exact: u64| {
        let mut hll = Hll::new(HllParams { expthresh, ..HllParams::default() }).unwrap();
        for i in 0..exact as i64 {
            hll.add_hash(hash_i64(i));
        }
        assert!(hll.is_exact());
        assert_eq!(hll.count(), exact);
        hll.add_hash(hash_i64(-1));
        assert!(!hll.is_exact());
        assert_eq!(hll.relative_error(), 1.04 / 128.0);
    };
    check(ExplicitThreshold::Never, 0);
    check(ExplicitThreshold::PowerOfTwo(0), 1);
    check(ExplicitThreshold::PowerOfTwo(7), 128);
    check(ExplicitThreshold::Automatic, 1536);
}

#[test]
fn estimates_keep_their_error() {
    let check = |log2m: u8, regwidth: u8, count: i64| {
        let mut sum_of_squares = 0.0;
        let runs = 20;
        for run in 0..runs {
            let params = HllParams { log2m, regwidth, ..HllParams::default() };
            let mut hll = Hll::new(params).unwrap();
            (0..count).for_each(|i| hll.add_hash(hash_i64(i * runs + run)));
            let error = hll.cardinality() / count as f64 - 1.0;
            assert!(error.abs() < 4.5 * hll.relative_error(), "{log2m} {count}: {error}");
            sum_of_squares += error * error;
        }
        let measured = (sum_of_squares / runs as f64).sqrt();
        let stated = 1.04 / 2f64.powi(log2m.into()).sqrt();
        assert!(measured < 1.6 * stated, "{log2m} {count}: {measured}, stated {stated}");
    };
    check(10, 6, 3_000);
    check(10, 6, 100_000);
    check(11, 5, 50_000);
    check(12, 8, 20_000);
    check(14, 6, 30_000);
    check(14, 6, 300_000);
}

#[test]
fn memory_follows_content() {
    let mut hll = Hll::default();
    hll.add_hash(1);
    assert_eq!(hll.heap_bytes(), 32);
    (0..100_000).for_each(|i| hll.add_hash(hash_i64(i)));
    assert_eq!(hll.heap_bytes(), 1 << 14);

    // Two gigabytes of registers are not set aside for one of them.
    let huge = [0x13, 0xff, 0x40, 0, 0, 0, 0, 2];
    let hll = Hll::from_bytes(&huge).unwrap();
    assert_eq!((hll.params().log2m, hll.params().regwidth), (31, 8));
    assert!(hll.heap_bytes() <= 64);
    assert_eq!(hll.count(), 1);
    assert_eq!(hll.to_bytes(Dialect::Java), huge);
}

#[test]
fn undefined_absorbs_everything() {
    let undefined = Hll::from_bytes(&[0x10, 0xae, 0x7f]).unwrap();
    let mut hll = of(HllParams::default(), &[1, 2, 3]);
    hll.merge(&undefined);
    assert!(hll.is_undefined());
    assert!(hll.cardinality().is_nan());
    assert_eq!(hll.count(), 0);
    hll.add_hash(4);
    assert_eq!(hll, undefined);
    assert_eq!(hll.to_bytes(Dialect::default()), [0x10, 0xae, 0x7f]);
}

#[test]
fn what_contradicts_the_header_is_refused() {
    let check = |bytes: &[u8]| assert!(Hll::from_bytes(bytes).is_err(), "{bytes:x?}");
    check(&[]);
    check(&[0x11]);
    check(&[0x11, 0x8b]);
    check(&[0x21, 0x8b, 0x48]); // another version
    check(&[0x15, 0x8b, 0x48]); // an unknown type
    check(&[0x11, 0x83, 0x48]); // log2m 3
    check(&[0x11, 0x8b, 0xc8]); // the highest bit
    check(&[0x11, 0x8b, 0x60]); // threshold 32
    check(&[0x12, 0x8b, 0x48, 1]); // a piece of a value
    check(&[0x12, 0x8b, 0x40, 0, 0, 0, 0, 0, 0, 0, 1]); // explicit, with threshold 0
    check(&[0x13, 0x8b, 0x08, 0, 1]); // sparse, ruled out
    check(&[0x13, 0x8b, 0x48, 0, 0x21, 0, 0x01]); // descending
    check(&[0x13, 0x8c, 0x48, 0, 1]); // 17 bits to a word, set bits left over
    check(&[0x14, 0x04, 0x48, 0]); // 16 registers of one bit in one byte
    check(&[0x14, 0x04, 0x48, 0, 0, 0]);
}

#[test]
fn registers_too_narrow_to_tell_say_so() {
    let params =
        HllParams { log2m: 4, regwidth: 1, expthresh: ExplicitThreshold::Never, sparse: false };
    let hll = of(params, &(0..1000).map(hash_i64).collect::<Vec<_>>());
    assert_eq!(hll.cardinality(), f64::INFINITY);
    assert_eq!(hll.count(), u64::MAX);
}
