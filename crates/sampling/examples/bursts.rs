//! Measures how often intervals hold for bursts, incidents and heavy tails when few splits are read. This is the
//! calibration of [`UnlikeSplitMargin`](tidemill_sampling::UnlikeSplitMargin).
//!
//! `cargo run --release -p tidemill-sampling --example bursts -- [RUNS] [--without-room] [--only TEXT]`
//!
//! For each shape the study generates an input of 100 equal splits (row groups) and one of 4,096 splits (text), and
//! generates new data after every 20 runs. Each of RUNS runs (1,000 by default) draws a new order. A cell shows the
//! percentage of intervals that hold the exact answer (bold below 90), the mean half width in percent of the answer,
//! and, below 100, the percentage of runs with an interval. Rows without any interval are left out.

use std::env;
use std::fmt::Write as _;

#[path = "../tests/shapes/mod.rs"]
mod shapes;

use shapes::{
    EstimatorCoverage, InputShape, InputSplits, ROW_GROUPS, TEXT, ValueDistribution, run_estimators,
};

const HOUR_OF_37: f64 = 1.0 / 37.0;
const HOUR_OF_DAY: f64 = 1.0 / 24.0;

const SHAPES: [(&str, InputShape); 23] = [
    ("57 % of the rows", InputShape::Everywhere(0.57, ValueDistribution::Exponential)),
    ("14 % of the rows", InputShape::Everywhere(0.14, ValueDistribution::Exponential)),
    ("1 % of the rows", InputShape::Everywhere(0.01, ValueDistribution::Exponential)),
    ("0.1 % of the rows", InputShape::Everywhere(0.001, ValueDistribution::Exponential)),
    ("2 % growing to 20 %", InputShape::Drift(0.02, 0.2)),
    ("a day of 7", InputShape::Incident(1.0 / 7.0, HOUR_OF_DAY, 1.0)),
    ("a day of 30", InputShape::Incident(1.0 / 30.0, HOUR_OF_DAY, 1.0)),
    ("1 %, 44 % in an hour of 37", InputShape::Burst(0.01, 0.44, HOUR_OF_37)),
    ("1 %, up to 44 % in an hour of 37", InputShape::Ramp(0.01, 0.44, HOUR_OF_37)),
    ("0.1 %, 44 % in an hour of 37", InputShape::Burst(0.001, 0.44, HOUR_OF_37)),
    ("1 %, 44 % in a hundredth", InputShape::Burst(0.01, 0.44, 0.01)),
    ("1 %, 44 % in a 250th", InputShape::Burst(0.01, 0.44, 0.004)),
    ("1 %, 44 % in a 1,000th", InputShape::Burst(0.01, 0.44, 0.001)),
    ("1 %, 44 % in 2 % of the splits", InputShape::Spikes(0.01, 0.44, 0.02)),
    (
        "a day of 7: 1 %, 44 % in an hour",
        InputShape::BurstOfDay(1.0 / 7.0, HOUR_OF_DAY, 0.01, 0.44),
    ),
    ("tenfold values in an hour of 24", InputShape::Incident(1.0, HOUR_OF_DAY, 10.0)),
    ("a day of 7: tenfold values in an hour", InputShape::Incident(1.0 / 7.0, HOUR_OF_DAY, 10.0)),
    ("a day of 30: tenfold values in an hour", InputShape::Incident(1.0 / 30.0, HOUR_OF_DAY, 10.0)),
    ("tenfold values in an hour of 168", InputShape::Incident(1.0, 1.0 / 168.0, 10.0)),
    ("30-fold values in an hour of 168", InputShape::Incident(1.0, 1.0 / 168.0, 30.0)),
    ("Pareto, α = 1.5, a key of 8", InputShape::Everywhere(0.125, ValueDistribution::Pareto(1.5))),
    ("Pareto, α = 1.2, a key of 100", InputShape::Everywhere(0.01, ValueDistribution::Pareto(1.2))),
    (
        "lognormal, σ = 2, a key of 8",
        InputShape::Everywhere(0.125, ValueDistribution::Lognormal(2.0)),
    ),
];

const READS: [(InputSplits, &[usize]); 2] =
    [(ROW_GROUPS, &[20, 30, 60, 90]), (TEXT, &[20, 41, 82, 205, 410, 1_024])];

fn cell(outcome: &EstimatorCoverage) -> String {
    if outcome.shown == 0 {
        return "none".to_owned();
    }
    let coverage = outcome.coverage();
    let mark = if coverage < 90.0 { "**" } else { "" };
    let width = 100.0 * outcome.widths / f64::from(outcome.shown);
    let digits = usize::from(width < 9.95);
    let mut cell = format!("{mark}{coverage:.1}{mark}, ±{width:.digits$}");
    if outcome.shown < outcome.runs {
        let _ = write!(cell, ", {:.0} % shown", outcome.shown());
    }
    cell
}

fn main() {
    let (mut runs, mut has_room, mut only) = (1_000, true, String::new());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--without-room" => has_room = false,
            "--only" => only = arguments.next().expect("--only takes a text"),
            _ => runs = argument.parse().expect("the number of runs"),
        }
    }
    println!("| rows of the group | splits | read | count | sum | mean |");
    println!("| --- | ---: | ---: | --- | --- | --- |");
    for (name, shape) in SHAPES.iter().filter(|(name, _)| name.contains(&only)) {
        for (splits, reads) in READS {
            for read in reads {
                let found = run_estimators(*shape, splits, *read, runs, has_room);
                if found[..3].iter().all(|outcome| outcome.shown == 0) {
                    continue;
                }
                let [count, sum, mean, ..] = found;
                println!(
                    "| {name} | {} | {read} | {} | {} | {} |",
                    splits.count,
                    cell(&count),
                    cell(&sum),
                    cell(&mean)
                );
            }
        }
    }
}
