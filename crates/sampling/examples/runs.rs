//! Measures the error in the number of splits read in a run of the input, which intervals use for the ends of
//! runs.
//!
//! `cargo run --release -p tidemill-sampling --example runs`
//!
//! The program reads shares from 5 to 98 % of 1,810 and 8,000 splits, in 300 orders each. For runs of 20, 60
//! and 250 splits, it prints the variance of the number of their splits that were read, around their share.

use tidemill_sampling::SamplingOrder;

const SHARES: [f64; 10] = [0.05, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98];

fn main() {
    println!("| splits | in the run | {} |", SHARES.map(|share| format!("{share}")).join(" | "));
    println!("| ---: | ---: |{}", " ---: |".repeat(SHARES.len()));
    for count in [1_810_usize, 8_000] {
        for run in [20_usize, 60, 250] {
            let variances = SHARES.map(|share| format!("{:.2}", variance(count, run, share)));
            println!("| {count} | {run} | {} |", variances.join(" | "));
        }
    }
}

/// Returns the variance over orders and positions of the run.
fn variance(count: usize, run: usize, share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let taken = (share * count as f64) as usize;
    let expected = run as f64 * taken as f64 / count as f64;
    let (mut squares, mut runs) = (0.0, 0.0);
    for seed in 0..300 {
        let mut is_read = vec![false; count];
        SamplingOrder::new(count, seed).take(taken).for_each(|index| is_read[index] = true);
        let first = usize::try_from(seed).unwrap_or(0) * 37 % run;
        for start in (first..=count - run).step_by(3 * run) {
            let read = is_read[start..start + run].iter().filter(|read| **read).count();
            squares += (read as f64 - expected).powi(2);
            runs += 1.0;
        }
    }
    squares / runs
}
