//! Nanoseconds per add of each state, for one group and for a thousand in turn.
//!
//! `cargo run --release -p tidemill-sketch --example speed`

use std::hint::black_box;
use std::time::Instant;

use tidemill_sketch::{FloatSum, Hll, Quantiles, TopK, hash_bytes, hash_i64};

const ADDS: usize = 8_000_000;
const ROUNDS: usize = 3;

/// The best of a few rounds, which other programs disturb least.
fn measure<S: Clone>(name: &str, new: S, add: impl Fn(&mut S, usize), heap: impl Fn(&S) -> usize) {
    print!("{name:<44}");
    for groups in [1, 1000] {
        let mut best = f64::INFINITY;
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let mut states = vec![new.clone(); groups];
            let start = Instant::now();
            let mut group = 0;
            for i in 0..ADDS {
                add(&mut states[group], i);
                group = if group + 1 == groups { 0 } else { group + 1 };
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / ADDS as f64);
            bytes = black_box(&states).iter().map(&heap).sum::<usize>() / groups;
        }
        print!("{best:>9.1} ns {bytes:>7} B");
    }
    println!();
}

fn main() {
    println!("{:<44}{:>12} {:>9}{:>12} {:>9}", "", "1 group", "heap", "1000", "each");
    // Inputs are made beforehand: what is measured is the add.
    let mask = (1 << 20) - 1;
    let hashes: Vec<u64> = (0..=mask as i64).map(hash_i64).collect();
    let unit: Vec<f64> = hashes.iter().map(|hash| (hash >> 11) as f64 / 2f64.powi(53)).collect();
    let cents: Vec<f64> = hashes.iter().map(|hash| (hash % 1_000_000) as f64 / 100.0).collect();
    let small: Vec<f64> = hashes.iter().map(|hash| (hash % 500) as f64).collect();
    let code = |hash: u64, count: u64| {
        let n = hash % count;
        let letter = |n: u64| b'A' + (n % 26) as u8;
        [letter(n), letter(n / 26), letter(n / 676)]
    };
    let few: Vec<[u8; 3]> = hashes.iter().map(|&hash| code(hash, 5)).collect();
    let codes: Vec<[u8; 3]> = hashes.iter().map(|&hash| code(hash, 350)).collect();
    let urls: Vec<String> = hashes
        .iter()
        .map(|&hash| {
            format!("/articles/2013/{:08x}/index.html", ((hash >> 32) * (hash >> 32)) >> 50)
        })
        .collect();

    let add = |hll: &mut Hll, i: usize| hll.add_hash(hashes[i & mask]);
    measure("hll, all different", Hll::default(), add, Hll::heap_bytes);
    let add = |hll: &mut Hll, i: usize| hll.add_hash(hashes[(i / 1000) & 511]);
    measure("hll, 512 different (explicit)", Hll::default(), add, Hll::heap_bytes);
    let add = |sum: &mut u64, i: usize| *sum ^= hash_bytes(&codes[i & mask], 0);
    measure("hash_bytes of 3 bytes", 0, add, |_| 0);
    let add = |sum: &mut u64, i: usize| *sum ^= hash_bytes(urls[i & mask].as_bytes(), 0);
    measure("hash_bytes of 35 bytes", 0, add, |_| 0);
    let add = |hll: &mut Hll, i: usize| hll.add_hash(hash_i64(i as i64));
    measure("hll with hash_i64", Hll::default(), add, Hll::heap_bytes);

    let add = |state: &mut Quantiles, i: usize| state.add(unit[i & mask]);
    measure("quantiles, evenly from 0 to 1", Quantiles::default(), add, Quantiles::heap_bytes);
    let add = |state: &mut Quantiles, i: usize| state.add(cents[i & mask]);
    measure("quantiles, prices to 10,000.00", Quantiles::default(), add, Quantiles::heap_bytes);
    let add = |state: &mut Quantiles, i: usize| state.add(small[i & mask]);
    measure("quantiles, 500 different integers", Quantiles::default(), add, Quantiles::heap_bytes);

    let add = |state: &mut TopK, i: usize| state.add(&few[i & mask], 1);
    measure("top-k, 5 codes of 3 letters", TopK::default(), add, TopK::heap_bytes);
    let add = |state: &mut TopK, i: usize| state.add(&codes[i & mask], 1);
    measure("top-k, 350 codes of 3 letters", TopK::default(), add, TopK::heap_bytes);
    let add = |state: &mut TopK, i: usize| state.add(urls[i & mask].as_bytes(), 1);
    measure("top-k, skewed paths of 35 bytes", TopK::default(), add, TopK::heap_bytes);

    let add = |sum: &mut FloatSum, i: usize| sum.add(cents[i & mask]);
    measure("float sum, prices", FloatSum::default(), add, FloatSum::heap_bytes);
    let add = |sum: &mut FloatSum, i: usize| sum.add(unit[i & mask] - 0.5);
    measure("float sum, both signs", FloatSum::default(), add, FloatSum::heap_bytes);
    let mut wide = FloatSum::default();
    wide.add(1e300);
    let add = |sum: &mut FloatSum, i: usize| sum.add(unit[i & mask] - 0.5);
    measure("float sum, both signs, wide", wide, add, FloatSum::heap_bytes);
}
