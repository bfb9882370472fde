//! What an interval takes, and an order.
//!
//! `cargo run --release -p tidemill-sampling --example call_cost`

use std::hint::black_box;
use std::time::Instant;

use tidemill_sampling::{CELLS, DrawnOrder, Sample, cell_of};

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
        black_box(DrawnOrder::new(count, black_box(7)).map(black_box).count());
    });
    println!("an index of the order of {count}: {:.0} ns", order / count as f64);
    for read in [40, 1_000] {
        let mut sample = Sample::new(count, count as f64, 0.95);
        let (mut even, mut rows, mut skewed) = ([0.0; CELLS], [0.0; CELLS], [0.0; CELLS]);
        for (number, index) in DrawnOrder::new(count, 7).take(read).enumerate() {
            sample.add(index, 1.0);
            let cell = cell_of(index, count) as usize;
            even[cell] += (index * 7919 % 101) as f64;
            rows[cell] += (number % 3) as f64;
            // A few cells have far more than the others.
            skewed[cell] += if cell.is_multiple_of(13) { 60.0 } else { (number % 5) as f64 };
        }
        let read = read as u64;
        let plain = nanoseconds(100_000, || {
            black_box(sample.total(black_box(&even), read));
        });
        let ratio = nanoseconds(100_000, || {
            black_box(sample.ratio(black_box(&even), black_box(&rows), read));
        });
        let resampled = nanoseconds(2_000, || {
            black_box(sample.total(black_box(&skewed), read));
        });
        println!(
            "{read} splits: a total {plain:.0} ns, a ratio {ratio:.0} ns, resampled {resampled:.0} ns"
        );
    }
}
