//! Compares HyperLogLog with a `HashSet`, and its parameters with each other.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{
    CardinalityEstimator, ExplicitThreshold, Hll, HllParams, HllStorageDialect, SketchError,
    hash_bytes, hash_i64,
};

use crate::{grouping, in_random_groups};

const DIALECTS: [HllStorageDialect; 2] =
    [HllStorageDialect::Postgres { sparse_registers_max: None }, HllStorageDialect::Java];

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

/// Generates hashes of ordinary values, and hashes that only an adversary finds.
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
        let bytes = of(params, &hashes).to_bytes(HllStorageDialect::default());
        if !hashes.is_empty() {
            prop_assert_eq!(&bytes[3..], expect);
        }
    }

    /// A merge into smaller parameters gives the state that these parameters would have reached themselves.
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
        // The merged state may have left EXPLICIT on the way, if the larger state had a lower threshold
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
        assert_eq!(hll.relative_standard_error(), 0.0);
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
        assert_eq!(hll.relative_standard_error(), 1.04 / 128.0);
    };
    check(ExplicitThreshold::Never, 0);
    check(ExplicitThreshold::PowerOfTwo(0), 1);
    check(ExplicitThreshold::PowerOfTwo(7), 128);
    check(ExplicitThreshold::Automatic, 1536);
}

#[test]
fn estimates_are_within_their_stated_error() {
    let check = |log2m: u8, regwidth: u8, count: i64| {
        let mut sum_of_squares = 0.0;
        let runs = 20;
        for run in 0..runs {
            let params = HllParams { log2m, regwidth, ..HllParams::default() };
            let mut hll = Hll::new(params).unwrap();
            (0..count).for_each(|i| hll.add_hash(hash_i64(i * runs + run)));
            let error = hll.cardinality() / count as f64 - 1.0;
            assert!(error.abs() < 4.5 * hll.relative_standard_error(), "{log2m} {count}: {error}");
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
fn memory_grows_with_content() {
    let mut hll = Hll::default();
    hll.add_hash(1);
    assert_eq!(hll.heap_bytes(), 32);
    (0..100_000).for_each(|i| hll.add_hash(hash_i64(i)));
    // All registers of six bits, the value counts, and the state itself.
    assert!((12_288 + 256..12_288 + 400).contains(&hll.heap_bytes()), "{}", hll.heap_bytes());

    // One filled register must not allocate two gigabytes.
    let huge = [0x13, 0xff, 0x40, 0, 0, 0, 0, 2];
    let hll = Hll::from_bytes(&huge).unwrap();
    assert_eq!((hll.params().log2m, hll.params().regwidth), (31, 8));
    assert!(hll.heap_bytes() <= 64);
    assert_eq!(hll.count(), 1);
    assert_eq!(hll.to_bytes(HllStorageDialect::Java), huge);
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
    assert_eq!(hll.to_bytes(HllStorageDialect::default()), [0x10, 0xae, 0x7f]);
}

#[test]
fn data_that_contradicts_the_header_is_refused() {
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
fn too_narrow_registers_give_infinite_estimate() {
    let params =
        HllParams { log2m: 4, regwidth: 1, expthresh: ExplicitThreshold::Never, sparse: false };
    let hll = of(params, &(0..1000).map(hash_i64).collect::<Vec<_>>());
    assert_eq!(hll.cardinality(), f64::INFINITY);
    assert_eq!(hll.count(), u64::MAX);
}

/// Returns the memory that a state may own besides FULL's registers: counts of each value, and the smallest
/// tables.
fn constant_bytes(params: HllParams) -> usize {
    256 + 4 * (1 << params.regwidth)
}

proptest! {
    #[test]
    fn memory_never_exceeds_the_registers(
        params in params(),
        low in 0u8..2,
        hashes in hashes(3000),
    ) {
        let params = HllParams { log2m: params.log2m + 2 * low, ..params };
        let threshold = match params.expthresh {
            ExplicitThreshold::PowerOfTwo(n) => 8usize << n,
            _ => 0,
        };
        let full = usize::from(params.regwidth) << (params.log2m - 3);
        let bound = full.max(threshold) + constant_bytes(params);
        let mut hll = Hll::new(params).unwrap();
        for hash in hashes {
            hll.add_hash(hash);
            prop_assert!(hll.heap_bytes() <= bound, "{} of {bound}", hll.heap_bytes());
            let _ = hll.cardinality();
        }
        let back = Hll::from_bytes(&hll.to_bytes(HllStorageDialect::Java)).unwrap();
        prop_assert!(back.heap_bytes() <= bound);
    }

    #[test]
    fn batches_are_what_single_values_are(
        params in params(),
        values in vec(any::<i64>(), 0..1500),
        estimated_at in 0usize..1500,
    ) {
        let hashes: Vec<u64> = values.iter().map(|&value| hash_i64(value)).collect();
        let expect = of(params, &hashes);
        let (first, rest) = values.split_at(estimated_at.min(values.len()));
        let mut integers = Hll::new(params).unwrap();
        integers.add_i64s(first);
        let _ = integers.cardinality();
        integers.add_i64s(rest);
        prop_assert_eq!(&integers, &expect);
        // Counts kept while adding equal counts made afterwards.
        let counted_anew = Hll::from_bytes(&expect.to_bytes(HllStorageDialect::default())).unwrap();
        for estimator in [CardinalityEstimator::Published, CardinalityEstimator::Improved] {
            let estimate = integers.cardinality_with(estimator).to_bits();
            prop_assert_eq!(estimate, counted_anew.cardinality_with(estimator).to_bits());
        }
        let mut bytes = Hll::new(params).unwrap();
        bytes.add_byte_strings(values.iter().map(|value| value.to_le_bytes()));
        prop_assert_eq!(&bytes, &expect);
        let mut batch = Hll::new(params).unwrap();
        batch.add_hashes(&hashes);
        prop_assert_eq!(&batch, &expect);
    }

    /// Folding a state gives the state that the smaller parameters would have reached.
    #[test]
    fn a_folded_state_is_the_coarser_one(
        fine in params(),
        log2m in 4u8..=12,
        regwidth in 1u8..=8,
        values in vec(any::<i64>(), 0..1500),
    ) {
        let hashes: Vec<u64> = values.iter().map(|&value| hash_i64(value)).collect();
        let fine = HllParams { expthresh: ExplicitThreshold::Never, ..fine };
        let coarse = HllParams {
            log2m: log2m.min(fine.log2m),
            regwidth: regwidth.min(fine.regwidth),
            ..fine
        };
        let folded = of(fine, &hashes).fold_to_params(coarse.log2m, coarse.regwidth).unwrap();
        prop_assert_eq!(folded, of(coarse, &hashes));
    }

    #[test]
    fn the_length_is_known_before_writing(params in params(), hashes in hashes(1500)) {
        let hll = of(params, &hashes);
        for dialect in [
            HllStorageDialect::default(),
            HllStorageDialect::Java,
            HllStorageDialect::Postgres { sparse_registers_max: Some(100) },
        ] {
            prop_assert_eq!(hll.encoded_len(dialect), hll.to_bytes(dialect).len());
        }
    }

    #[test]
    fn comparisons_are_exact_while_states_are(
        left in vec(0i64..300, 0..200),
        right in vec(0i64..300, 0..200),
    ) {
        let of = |values: &[i64]| {
            let mut hll = Hll::default();
            hll.add_i64s(values);
            (hll, values.iter().copied().collect::<HashSet<i64>>())
        };
        let ((a, left), (b, right)) = (of(&left), of(&right));
        let found = a.compare(&b);
        let check = |found: tidemill_sketch::SketchEstimate, expect: usize| {
            assert!(found.is_exact());
            assert_eq!(found.value, expect as f64);
        };
        check(found.left, left.len());
        check(found.right, right.len());
        check(found.union, left.union(&right).count());
        check(found.intersection, left.intersection(&right).count());
        check(found.left_only, left.difference(&right).count());
        check(found.right_only, right.difference(&left).count());
        check(found.symmetric_difference, left.symmetric_difference(&right).count());
        let shared = left.intersection(&right).count() as f64;
        let all = left.union(&right).count().max(1) as f64;
        prop_assert_eq!(a.jaccard(&b).unwrap().value, shared / all);
        prop_assert_eq!(a.union(&b).count(), left.union(&right).count() as u64);
    }
}

/// Checks all parameters of the specification, including the largest, which no other implementation supports.
#[test]
fn every_parameter_adds_merges_and_round_trips() {
    for log2m in 4..=31 {
        for regwidth in 1..=8 {
            let params = HllParams { log2m, regwidth, ..HllParams::default() };
            let params = HllParams { expthresh: ExplicitThreshold::Never, ..params };
            let hashes: Vec<u64> = (0..200).map(hash_i64).collect();
            let mut hll = of(params, &hashes[..150]);
            hll.merge(&of(params, &hashes[100..]));
            assert_eq!(hll, of(params, &hashes));
            let bytes = hll.to_bytes(HllStorageDialect::default());
            assert_eq!(Hll::from_bytes(&bytes).unwrap(), hll);
            assert!(hll.heap_bytes() < 1 << 16);
            if log2m >= 12 {
                let error = hll.cardinality() / 200.0 - 1.0;
                assert!(error.abs() < 0.1, "{log2m} {regwidth}: {error}");
                let improved = hll.cardinality_with(CardinalityEstimator::Improved) / 200.0 - 1.0;
                assert!(improved.abs() < 0.1, "{log2m} {regwidth}: {improved}");
            }
        }
    }
}

/// Computes the published estimate by its formula, value by value, in the order of the registers.
#[test]
fn the_published_estimate_is_its_formula() {
    let params =
        HllParams { log2m: 10, expthresh: ExplicitThreshold::Never, ..HllParams::default() };
    for count in [1, 10, 1_000, 2_500, 3_000, 100_000, 1_000_000] {
        let hashes: Vec<u64> = (0..count).map(hash_i64).collect();
        let mut registers = vec![0; 1024];
        for hash in &hashes {
            let register: &mut u32 = &mut registers[*hash as usize & 1023];
            *register = (*register).max((hash >> 10).trailing_zeros() + 1);
        }
        let m = 1024f64;
        let sum: f64 = registers.iter().map(|&value| 2f64.powi(-(value as i32))).sum();
        let zeros = registers.iter().filter(|&&value| value == 0).count() as f64;
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let expect = if zeros > 0.0 && raw < 2.5 * m { m * (m / zeros).ln() } else { raw };
        let found = of(params, &hashes).cardinality();
        assert!((found / expect - 1.0).abs() < 1e-9, "{count}: {found}, not {expect}");
    }
}

/// Runs both estimators over 200 states of each size. The stated standard error matches the observed one (by
/// a chi-squared test that fails by chance less than once in 10^6, if the seeds were drawn anew), and the
/// improved estimator has no bias where the published one has.
#[test]
fn stated_standard_error_matches_observed_error() {
    const RUNS: i64 = 200;
    for (log2m, regwidth) in [(4, 6), (8, 5), (10, 6), (10, 4), (8, 2), (9, 1)] {
        let params =
            HllParams { log2m, regwidth, expthresh: ExplicitThreshold::Never, sparse: true };
        let m = 1i64 << log2m;
        for load in [0.1, 0.5, 1.0, 2.0, 3.5, 20.0] {
            let count = (load * m as f64) as i64;
            if count < 20 {
                continue;
            }
            let mut of_estimator = [(0.0, 0.0, 0.0); 2];
            for run in 0..RUNS {
                let mut hll = Hll::new(params).unwrap();
                hll.add_hash_iter((0..count).map(|i| hash_i64(i * RUNS + run)));
                let estimators = [CardinalityEstimator::Published, CardinalityEstimator::Improved];
                for (sums, estimator) in of_estimator.iter_mut().zip(estimators) {
                    let estimate = hll.estimate(estimator);
                    let error = estimate.value / count as f64 - 1.0;
                    sums.0 += error / RUNS as f64;
                    sums.1 += error * error / RUNS as f64;
                    sums.2 += (estimate.standard_error / count as f64).powi(2) / RUNS as f64;
                }
            }
            let [_, (bias, square, stated)] = of_estimator;
            let (observed, stated) = (square.sqrt(), stated.sqrt());
            let case = format!("{log2m}/{regwidth} at {load}: {observed:.4}, stated {stated:.4}");
            if stated.is_finite() && stated < 0.3 {
                assert!(observed < 1.3 * stated && stated < 1.35 * observed, "{case}");
                assert!(bias.abs() < 5.0 * stated / (RUNS as f64).sqrt() + 0.003, "{case}, {bias}");
            }
        }
    }
}

/// For inclusion and exclusion, the stated error matches the observed one or is slightly larger, and the
/// interval contains the true number. 400 runs tell an error to a 28th: one of 28 comparisons fails by chance
/// in 10,000 runs.
#[test]
fn set_operations_are_within_their_stated_error() {
    const RUNS: i64 = 400;
    for (only_left, both, only_right) in [
        (5000, 5000, 5000),
        (0, 10_000, 0),
        (0, 3000, 20_000),
        (9000, 0, 9000),
        (200, 9000, 200),
        (9500, 1000, 9500),
        (20, 30, 30_000),
    ] {
        let mut held = [0; 4];
        let mut squares = [(0.0, 0.0); 4];
        for run in 0..RUNS {
            let of = |range: std::ops::Range<i64>| {
                let mut hll = Hll::new(HllParams { log2m: 10, ..HllParams::default() }).unwrap();
                hll.add_hash_iter(range.map(|i| hash_i64(i * RUNS + run)));
                hll
            };
            let left = of(0..only_left + both);
            let right = of(only_left..only_left + both + only_right);
            let found = left.compare(&right);
            let union = (only_left + both + only_right) as f64;
            let pairs = [
                (found.intersection, both as f64),
                (found.left_only, only_left as f64),
                (found.symmetric_difference, (only_left + only_right) as f64),
                (found.jaccard, both as f64 / union),
            ];
            for ((sums, held), (found, expect)) in squares.iter_mut().zip(&mut held).zip(pairs) {
                sums.0 += (found.value - expect).powi(2);
                sums.1 += found.standard_error.powi(2);
                let (low, high) = found.confidence_interval();
                *held += i64::from((low - 1e-9..=high + 1e-9).contains(&expect));
            }
            assert_eq!(left.intersection(&right).is_ok(), {
                found.intersection.margin_of_error() <= found.intersection.value
            });
        }
        for (observed, stated) in squares {
            assert!(observed <= 1.35 * stated, "{only_left} {both} {only_right}: {squares:?}");
        }
        assert!(held.iter().all(|held| held * 10 >= RUNS * 9), "{only_left} {both}: {held:?}");
    }
}

#[test]
fn estimate_below_its_error_is_refused() {
    let of = |range: std::ops::Range<i64>| {
        let mut hll = Hll::default();
        hll.add_hash_iter(range.map(hash_i64));
        hll
    };
    let (left, right) = (of(0..100_000), of(99_990..200_000));
    let refused = left.intersection(&right).unwrap_err();
    assert!(refused.estimate.margin_of_error() > refused.estimate.value);
    let text = refused.to_string();
    assert!(text.starts_with("the intersection cannot be told from nothing: "), "{text}");
    assert!(text.contains("\nhint: "), "{text}");
    assert!(left.difference(&right).is_ok());
    let undefined = Hll::from_bytes(&[0x10, 0xae, 0x7f]).unwrap();
    assert!(left.intersection(&undefined).is_err());
    assert!(left.jaccard(&undefined).is_err());
    assert_eq!(of(0..0).jaccard(&of(0..0)).unwrap().value, 0.0);
    assert_eq!(left.difference(&of(0..0)).unwrap().value, left.compare(&right).left.value);
}

#[test]
fn a_large_state_is_read_only_where_it_is_allowed() {
    let empty = [0x11, 0xbf, 0x7f];
    assert_eq!(Hll::from_bytes(&empty).unwrap().heap_bytes(), 0);
    let refused = Hll::from_bytes_with_log2m_max(&empty, 24).unwrap_err();
    assert!(matches!(
        refused,
        SketchError::ParameterOutOfRange { name: "log2m", found: 31, max: 24, .. }
    ));
    assert!(Hll::from_bytes_with_log2m_max(&empty, 31).is_ok());
    let mut huge = Hll::from_bytes(&[0x11, 0xff, 0]).unwrap();
    huge.add_hash(1 << 40);
    assert!(huge.heap_bytes() < 100);
    assert_eq!(huge.encoded_len(HllStorageDialect::default()), 3 + (1 << 31));
}

#[test]
fn folding_never_makes_finer() {
    let hll = of(HllParams::default(), &[1, 2, 3]);
    assert!(hll.fold_to_params(15, 6).is_err());
    assert!(hll.fold_to_params(14, 7).is_err());
    assert!(hll.fold_to_params(3, 6).is_err());
    assert!(hll.fold_to_params(14, 0).is_err());
    assert_eq!(hll.fold_to_params(14, 6).unwrap(), hll);
}

#[test]
fn an_explicit_threshold_is_none_or_a_power_of_two() {
    assert_eq!(ExplicitThreshold::from_count(0), Ok(ExplicitThreshold::Never));
    assert_eq!(ExplicitThreshold::from_count(1), Ok(ExplicitThreshold::PowerOfTwo(0)));
    assert_eq!(ExplicitThreshold::from_count(1 << 30), Ok(ExplicitThreshold::PowerOfTwo(30)));
    for refused in [3, 1000, 1 << 31, u64::MAX] {
        assert!(ExplicitThreshold::from_count(refused).is_err());
    }
}
