//! `accuracy` and `sizes`: how far estimates are off over many runs, beside what they should be.
//!
//! A run is one stream of different values; its sketch is asked at every cardinality on its way, so that a thousand
//! runs of ten million take minutes. No hashes are kept (an exact count has no error to look at).

use tidemill_sketch::{Estimator, ExplicitThreshold, Hll, HllParams, hash_i64};

use crate::data;
use crate::sketches::{Cloudflare, PlusPlus, Sketch};

/// Points of a decade.
const DECADE: i32 = 20;
const BATCH: usize = 4096;
const ESTIMATORS: [(&str, Estimator); 2] =
    [("published", Estimator::Published), ("improved", Estimator::Improved)];
const PARAMETERS: [(u8, u8); 2] = [(11, 5), (14, 6)];

/// Sums over the runs.
#[derive(Clone, Copy, Default)]
struct Errors {
    sum: f64,
    squares: f64,
    stated: f64,
    covered: u32,
}

/// Of each cardinality, sketch and estimator one line: bias, root mean square and what was stated, as shares of the
/// cardinality, and in how many runs the interval at 95 % held it.
pub fn by_cardinality(runs: u64, largest: u64) {
    let mut points: Vec<u64> = (0..)
        .map(|step| 10f64.powf(f64::from(step) / f64::from(DECADE)).round() as u64)
        .take_while(|point| *point <= largest)
        .collect();
    points.dedup();
    let mut errors = vec![[[Errors::default(); ESTIMATORS.len()]; PARAMETERS.len()]; points.len()];
    let mut hashes = Vec::with_capacity(BATCH);
    for run in 0..runs {
        let mut sketches = PARAMETERS.map(|(log2m, regwidth)| {
            let expthresh = ExplicitThreshold::Never;
            Hll::new(HllParams { log2m, regwidth, expthresh, sparse: true }).expect("in range")
        });
        let mut done = 0;
        for (point, errors) in points.iter().zip(&mut errors) {
            while done < *point {
                let next = (done + BATCH as u64).min(*point);
                hashes.clear();
                hashes.extend((done..next).map(|n| hash_i64((run << 32 | n).cast_signed())));
                sketches.iter_mut().for_each(|sketch| sketch.add_hashes(&hashes));
                done = next;
            }
            let truth = *point as f64;
            for (sketch, errors) in sketches.iter().zip(errors) {
                for ((_, estimator), errors) in ESTIMATORS.iter().zip(errors) {
                    let estimate = sketch.estimate(*estimator);
                    let error = (estimate.value - truth) / truth;
                    let (low, high) = estimate.interval();
                    errors.sum += error;
                    errors.squares += error * error;
                    errors.stated += estimate.standard_error / truth;
                    errors.covered += u32::from(low <= truth && truth <= high);
                }
            }
        }
        if (run + 1) % 50 == 0 {
            eprintln!("{} of {runs} runs", run + 1);
        }
    }
    let runs = runs as f64;
    for (point, errors) in points.iter().zip(&errors) {
        for ((log2m, regwidth), errors) in PARAMETERS.iter().zip(errors) {
            for ((name, _), errors) in ESTIMATORS.iter().zip(errors) {
                println!(
                    "{{\"cardinality\": {point}, \"log2m\": {log2m}, \"regwidth\": {regwidth}, \"estimator\": \"{name}\", \
                     \"bias\": {:.3e}, \"rms\": {:.4e}, \"stated\": {:.4e}, \"covered\": {}}}",
                    errors.sum / runs,
                    (errors.squares / runs).sqrt(),
                    errors.stated / runs,
                    f64::from(errors.covered) / runs,
                );
            }
        }
    }
}

/// Error beside bytes at one cardinality, of each sketch at some precisions.
pub fn by_size(runs: u64, count: u64) {
    for log2m in [10, 11, 12, 13, 14] {
        sizes::<Hll>("tidemill", log2m, runs, count);
        sizes::<PlusPlus>("hyperloglogplus", log2m, runs, count);
        match log2m {
            10 => sizes::<Cloudflare<10>>("cardinality-estimator", log2m, runs, count),
            11 => sizes::<Cloudflare<11>>("cardinality-estimator", log2m, runs, count),
            12 => sizes::<Cloudflare<12>>("cardinality-estimator", log2m, runs, count),
            13 => sizes::<Cloudflare<13>>("cardinality-estimator", log2m, runs, count),
            _ => sizes::<Cloudflare<14>>("cardinality-estimator", log2m, runs, count),
        }
    }
}

fn sizes<S: Sketch>(name: &str, log2m: u8, runs: u64, count: u64) {
    let (mut squares, mut size) = (0.0, 0);
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for run in 0..runs {
        values.clear();
        values.extend((0..count).map(|n| data::scrambled(run << 32 | n).cast_signed()));
        let mut sketch = S::new(log2m);
        sketch.add_integers(&values);
        squares += (sketch.estimate() / count as f64 - 1.0).powi(2);
        bytes.clear();
        sketch.serialize(&mut bytes);
        size += bytes.len();
    }
    println!(
        "{{\"sketch\": \"{name}\", \"log2m\": {log2m}, \"cardinality\": {count}, \"bytes\": {:.0}, \"rms\": {:.4e}}}",
        size as f64 / runs as f64,
        (squares / runs as f64).sqrt(),
    );
}
