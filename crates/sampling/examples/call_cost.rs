//! Measures the time of an interval and of an order.
//!
//! `cargo run --release -p tidemill-sampling --example call_cost`

use std::hint::black_box;
use std::time::Instant;

use tidemill_sampling::{SamplingOrder, SplitSample, SumsByCell, UnlikeSplitMargin, cell_of_split};

fn nanoseconds(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    best
}

fn main() {
    let count = 20_000;
    let order = nanoseconds(5, || {
        black_box(SamplingOrder::new(count, black_box(7)).map(black_box).count());
    });
    println!("an index of the order of {count}: {:.0} ns", order / count as f64);
    for read in [40, 1_000] {
        let mut sample = SplitSample::new(count, count as f64, 0.95);
        // Groups: everywhere, with two quantities, with skewed values, in a short run, and in few splits.
        let mut series: [SumsByCell; 5] = Default::default();
        let mut seen = [read as u64, read as u64, read as u64, 0, 0];
        for (number, index) in SamplingOrder::new(count, 7).take(read).enumerate() {
            sample.add(index, 1.0);
            let cell = cell_of_split(index, count);
            series[0].add(cell, (index * 7919 % 101) as f64);
            series[1].add(cell, (number % 3) as f64);
            let is_large = (index / 256).is_multiple_of(13);
            series[2].add(cell, if is_large { 60.0 } else { (number % 5) as f64 });
            if (3_000..7_000).contains(&index) {
                series[3].add(cell, (index * 7919 % 101) as f64);
                seen[3] += 1;
            }
            if index.is_multiple_of(20) {
                series[4].add(cell, 1.0);
                seen[4] += 1;
            }
        }
        let [even, rows, skewed, run, few] = &series;
        let plain = nanoseconds(100_000, || {
            black_box(sample.estimate_total(black_box(even), seen[0], UnlikeSplitMargin::NONE));
        });
        let ratio = nanoseconds(100_000, || {
            black_box(sample.estimate_ratio(
                black_box(even),
                black_box(rows),
                seen[0],
                UnlikeSplitMargin::NONE,
            ));
        });
        let in_run = nanoseconds(100_000, || {
            black_box(sample.estimate_total(black_box(run), seen[3], UnlikeSplitMargin::NONE));
        });
        let resampled = nanoseconds(2_000, || {
            black_box(sample.estimate_total(black_box(skewed), seen[2], UnlikeSplitMargin::NONE));
        });
        let in_few = nanoseconds(2_000, || {
            black_box(sample.estimate_total(black_box(few), seen[4], UnlikeSplitMargin::NONE));
        });
        println!(
            "{read} splits: a total {plain:.0} ns, a ratio {ratio:.0} ns, of a run {in_run:.0} ns, resampled {resampled:.0} ns, in few splits {in_few:.0} ns"
        );
        let cells: Vec<u32> = SamplingOrder::new(count, 7)
            .take(read)
            .map(|index| cell_of_split(index, count))
            .collect();
        let add = nanoseconds(200, || {
            let mut series = SumsByCell::default();
            for cell in &cells {
                for row in 0..100 {
                    series.add(black_box(*cell), f64::from(row));
                }
            }
            black_box(series);
        });
        println!("  a row added {:.2} ns", add / (read as f64 * 100.0));
    }
}
