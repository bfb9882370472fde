//! Tests that intervals over few splits hold for bursts, incidents and heavy tails, and that uniform data has
//! intervals.
//!
//! The tests cover some cells of the study `examples/bursts.rs`. All seeds are fixed.

mod shapes;

use shapes::{InputShape, InputSplits, NAMES, ROW_GROUPS, TEXT, ValueDistribution, run_estimators};

const HOUR_OF_37: f64 = 1.0 / 37.0;
const HOUR_OF_DAY: f64 = 1.0 / 24.0;
const RUNS: u64 = 200;

/// Checks that nine of ten intervals hold, for each estimator with an interval in at least a twentieth of the runs.
fn check_coverage(shape: InputShape, splits: InputSplits, reads: &[usize]) {
    for &read in reads {
        let found = run_estimators(shape, splits, read, RUNS, true);
        for (outcome, name) in found.iter().zip(NAMES) {
            let what = format!("{name}, {read} of {}, {shape:?}: {outcome:?}", splits.count);
            assert!(outcome.shown() < 5.0 || outcome.coverage() >= 90.0, "{what}");
        }
    }
}

#[test]
fn bursts_of_errors_are_within_intervals() {
    for shape in [
        InputShape::Burst(0.01, 0.44, HOUR_OF_37),
        InputShape::Ramp(0.01, 0.44, HOUR_OF_37),
        InputShape::Burst(0.001, 0.44, HOUR_OF_37),
        InputShape::Burst(0.01, 0.44, 0.01),
        InputShape::Spikes(0.01, 0.44, 0.02),
    ] {
        check_coverage(shape, ROW_GROUPS, &[5, 8, 20, 30, 40, 60, 90]);
        check_coverage(shape, TEXT, &[20, 41, 82, 205, 410]);
    }
}

/// Intervals hold because of the margin; without it they miss bursts.
#[test]
fn without_room_missed_bursts_are_not_within_intervals() {
    for (splits, read) in [(ROW_GROUPS, 5), (ROW_GROUPS, 20), (TEXT, 20)] {
        let [count, ..] =
            run_estimators(InputShape::Burst(0.01, 0.44, HOUR_OF_37), splits, read, RUNS, false);
        assert!(count.shown() > 50.0 && count.coverage() < 70.0, "{read}: {count:?}");
    }
}

#[test]
fn incidents_of_a_day_are_within_intervals() {
    for run in [1.0, 1.0 / 7.0, 1.0 / 30.0] {
        for times in [3.0, 10.0] {
            check_coverage(
                InputShape::Incident(run, HOUR_OF_DAY, times),
                TEXT,
                &[41, 205, 410, 1_024],
            );
        }
        let errors = InputShape::BurstOfDay(run, HOUR_OF_DAY, 0.01, 0.44);
        check_coverage(errors, TEXT, &[41, 205, 410, 1_024]);
    }
}

#[test]
fn drift_is_within_intervals() {
    check_coverage(InputShape::Drift(0.02, 0.2), ROW_GROUPS, &[30, 60]);
    check_coverage(InputShape::Drift(0.02, 0.2), TEXT, &[41, 205, 410]);
}

#[test]
fn heavy_tails_are_within_intervals() {
    for spread in [
        ValueDistribution::Pareto(1.5),
        ValueDistribution::Pareto(2.0),
        ValueDistribution::Lognormal(2.0),
    ] {
        for share in [0.5, 0.125, 0.01] {
            let shape = InputShape::Everywhere(share, spread);
            check_coverage(shape, ROW_GROUPS, &[30, 60]);
            check_coverage(shape, TEXT, &[41, 205, 410, 1_024]);
        }
    }
}

/// A rule that shows no interval at all would pass the tests of coverage, so check that intervals are shown and narrow.
#[test]
fn rows_that_are_alike_keep_their_intervals() {
    let check = |share: f64, splits: InputSplits, read, [count, sum, mean]: [f64; 3]| {
        let found = run_estimators(
            InputShape::Everywhere(share, ValueDistribution::Exponential),
            splits,
            read,
            100,
            true,
        );
        for ((outcome, name), most) in found.iter().zip(NAMES).zip([count, sum, mean, count * 1.5])
        {
            let width = outcome.widths / f64::from(outcome.shown);
            let what = format!("{name}, {read} of {}, {share}: {outcome:?}", splits.count);
            assert!(outcome.shown == outcome.runs && outcome.coverage() >= 95.0, "{what}");
            assert!(width <= most, "{what}");
        }
    };
    check(0.57, ROW_GROUPS, 30, [0.05, 0.4, 0.4]);
    check(0.57, ROW_GROUPS, 60, [0.02, 0.2, 0.2]);
    check(0.57, TEXT, 41, [0.06, 0.4, 0.4]);
    check(0.57, TEXT, 410, [0.01, 0.05, 0.05]);
    check(0.14, TEXT, 41, [0.2, 0.4, 0.4]);
    check(0.14, TEXT, 410, [0.04, 0.06, 0.06]);
    check(0.01, TEXT, 410, [0.2, 0.25, 0.1]);
    check(0.001, TEXT, 1_024, [0.2, 0.3, 0.2]);
}
