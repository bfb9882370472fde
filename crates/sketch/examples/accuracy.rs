//! Measures the error of HyperLogLog's estimates over a thousand runs, beside the error that they state.
//!
//! `cargo run --release -p tidemill-sketch --example accuracy` prints for each load n/m and estimator the
//! mean error and the root of the mean squared error, both in units of n/√m (the standard error of
//! filled registers is 1.04 of them), and the standard error that `Hll::estimate` returns.

use tidemill_sketch::{CardinalityEstimator, ExplicitThreshold, Hll, HllParams};

const RUNS: i64 = 1000;

fn main() {
    let params =
        |log2m| HllParams { log2m, expthresh: ExplicitThreshold::Never, ..HllParams::default() };
    let estimators = [CardinalityEstimator::Published, CardinalityEstimator::Improved];
    println!(
        "{:>5} {:>6} {:>33} {:>27}",
        "log2m", "n/m", "published: mean, rms, stated", "improved"
    );
    for log2m in [4, 8, 10, 12] {
        let m = 2f64.powi(log2m);
        for load in [0.25, 0.5, 1.0, 2.0, 2.3, 2.5, 2.7, 3.0, 3.5, 4.0, 5.0, 7.0, 10.0, 20.0] {
            let n = (m * load) as i64;
            let (mut sum, mut squares, mut stated) = ([0.0; 2], [0.0; 2], [0.0; 2]);
            for run in 0..RUNS {
                let mut hll = Hll::new(params(log2m as u8)).expect("in range");
                // Distinct values in each run.
                hll.add_i64s(&(run << 32..(run << 32) + n).collect::<Vec<_>>());
                for (of, estimator) in estimators.into_iter().enumerate() {
                    let estimate = hll.estimate(estimator);
                    let error = (estimate.value - n as f64) / n as f64 * m.sqrt();
                    sum[of] += error / RUNS as f64;
                    squares[of] += error * error / RUNS as f64;
                    stated[of] += estimate.standard_error / n as f64 * m.sqrt() / RUNS as f64;
                }
            }
            print!("{log2m:>5} {load:>6}");
            for of in 0..2 {
                print!("{:>13.3} {:>6.3} {:>6.3}", sum[of], squares[of].sqrt(), stated[of]);
            }
            println!();
        }
    }
}
