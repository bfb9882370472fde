//! Tests that intervals contain the exact answer as often as stated. All seeds are fixed: every run is equal.
//!
//! `examples/calibrate.rs` is the study; these are a few of its cells, with bounds wide enough for another seed.

use tidemill_sampling::{
    ConfidenceInterval, SamplingOrder, SplitSample, SumsByCell, UnlikeSplitMargin, cell_of_split,
    look_confidence, splits_before_look,
};

fn word(seed: u64, number: u64) -> u64 {
    let mut word =
        seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ 0x5851_f42d_4c95_7f2d;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn unit(seed: u64, number: u64) -> f64 {
    (word(seed, number) >> 11) as f64 / (1_u64 << 53) as f64
}

struct Split {
    bytes: f64,
    rows: f64,
    sum: f64,
}

/// Generates splits with about 40 rows of the group, and `drift` more at the end than at the start.
fn splits(count: usize, drift: f64) -> Vec<Split> {
    (0..count as u64)
        .map(|index| {
            let size = 0.5 + unit(1, index);
            let rows = (size
                * (40.0 + 20.0 * unit(2, index) + drift * index as f64 / count as f64))
                .round();
            let sum = rows * (1.0 + unit(3, index));
            Split { bytes: 1000.0 * size, rows, sum }
        })
        .collect()
}

/// Returns the percentage of `runs` orders whose intervals of a total and of a mean contain the exact answer.
fn coverage_percent(splits: &[Split], read: usize, runs: u64) -> (f64, f64) {
    let count = splits.len();
    let bytes = splits.iter().map(|split| split.bytes).sum();
    let rows_exact: f64 = splits.iter().map(|split| split.rows).sum();
    let mean_exact = splits.iter().map(|split| split.sum).sum::<f64>() / rows_exact;
    let mut held = [0.0; 2];
    for seed in 0..runs {
        let mut sample = SplitSample::new(count, bytes, 0.95);
        let (mut rows, mut sum) = (SumsByCell::default(), SumsByCell::default());
        for index in SamplingOrder::new(count, word(4, seed)).take(read) {
            let cell = cell_of_split(index, count);
            sample.add(index, splits[index].bytes);
            rows.add(cell, splits[index].rows);
            sum.add(cell, splits[index].sum);
        }
        let estimates = [
            (sample.estimate_total(&rows, read as u64, UnlikeSplitMargin::NONE), rows_exact),
            (sample.estimate_ratio(&sum, &rows, read as u64, UnlikeSplitMargin::NONE), mean_exact),
        ];
        for (held, (estimate, exact)) in held.iter_mut().zip(estimates) {
            if let ConfidenceInterval::Bounds { lower: low, upper: high } = estimate.interval {
                *held += f64::from(u8::from(low <= exact && exact <= high)) / runs as f64 * 100.0;
            }
        }
    }
    (held[0], held[1])
}

#[test]
fn intervals_of_shuffled_data_hold_at_the_stated_confidence() {
    for (count, read) in [(200, 20), (200, 100), (1_000, 50), (1_000, 500)] {
        let (total, mean) = coverage_percent(&splits(count, 0.0), read, 400);
        assert!((91.5..=98.5).contains(&total), "total, {read} of {count}: {total}");
        assert!((91.5..=98.5).contains(&mean), "mean, {read} of {count}: {mean}");
    }
}

#[test]
fn intervals_of_drifting_data_hold_at_least_at_the_stated_confidence() {
    for (count, read) in [(200, 20), (1_000, 50), (1_000, 500)] {
        let (total, mean) = coverage_percent(&splits(count, 200.0), read, 400);
        assert!(total >= 91.5, "total, {read} of {count}: {total}");
        assert!(mean >= 91.5, "mean, {read} of {count}: {mean}");
    }
}

/// Stopping at the first interval that is narrow enough keeps the stated confidence.
#[test]
fn stopping_by_precision_keeps_the_confidence() {
    let splits = splits(400, 0.0);
    let bytes = splits.iter().map(|split| split.bytes).sum();
    let exact: f64 = splits.iter().map(|split| split.rows).sum();
    let (runs, mut held, mut early) = (400, 0, 0);
    for seed in 0..runs {
        let mut sample = SplitSample::new(400, bytes, 0.95);
        let mut series = SumsByCell::default();
        let mut look = 1;
        for (index, read) in SamplingOrder::new(400, word(5, seed)).zip(1..) {
            sample.add(index, splits[index].bytes);
            series.add(cell_of_split(index, 400), splits[index].rows);
            if read < splits_before_look(look) {
                continue;
            }
            let now = sample.with_confidence(look_confidence(look, 0.95));
            look += 1;
            if let ConfidenceInterval::Bounds { lower: low, upper: high } =
                now.estimate_total(&series, read, UnlikeSplitMargin::NONE).interval
                && (high - low) / 2.0 < 0.04 * exact
            {
                early += 1;
                held += u64::from(low <= exact && exact <= high);
                break;
            }
        }
    }
    assert!(early > runs * 9 / 10, "{early}");
    assert!(held * 100 >= early * 94, "{held} of {early}");
}

#[test]
fn equal_samples_give_equal_intervals() {
    let of = || {
        let mut sample = SplitSample::new(5_000, 5_000.0, 0.95);
        let mut series = SumsByCell::default();
        for index in SamplingOrder::new(5_000, 9).take(600) {
            sample.add(index, 1.0);
            // Skewed values, which are bootstrapped.
            series.add(cell_of_split(index, 5_000), (3.0 * unit(6, index as u64)).exp().powi(2));
        }
        sample.estimate_total(&series, 600, UnlikeSplitMargin::NONE)
    };
    assert!(matches!(of().interval, ConfidenceInterval::Bounds { .. }));
    assert_eq!(of(), of());
}
