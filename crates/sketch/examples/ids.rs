//! Measures id spaces and sets of a hundred million ids: bytes, time and the longest pause, beside a copy of
//! memory.
//!
//! `cargo run --release -p tidemill-sketch --example ids [MILLIONS]`; 100 by default, which takes 4 GB.

use std::hint::black_box;
use std::time::Instant;

use tidemill_sketch::{IdSet, IdSpace, IdSpaceView, hash_bytes};

/// Number of ids that are inserted together.
const SMALL_BATCH_IDS: usize = 1 << 14;
const LARGE_BATCH_IDS: usize = 1 << 20;

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn best_of(times: usize, mut work: impl FnMut()) -> f64 {
    (0..times).map(|_| seconds(&mut work)).fold(f64::INFINITY, f64::min)
}

/// Returns an odd multiple: a bijection in an order that no table could profit from.
fn id(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn main() {
    let millions = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(100u64);
    let count = millions * 1_000_000;
    let per_second = |seconds: f64| count as f64 / seconds / 1e6;

    let (mut ids, mut indexes) = (vec![0; LARGE_BATCH_IDS], Vec::new());
    let mut insert = |space: &mut IdSpace, batch: usize| {
        let (mut total, mut longest) = (0.0, 0f64);
        for start in (0..count).step_by(batch) {
            let length = (count - start).min(batch as u64) as usize;
            ids[..length].iter_mut().zip(start..).for_each(|(to, n)| *to = id(n));
            indexes.clear();
            let took = seconds(|| {
                space.insert_all_into(&ids[..length], &mut indexes).expect("there is room");
            });
            total += took;
            longest = longest.max(took);
        }
        (total, longest)
    };
    for (batch, name) in [(SMALL_BATCH_IDS, "thousands"), (LARGE_BATCH_IDS, "a million")] {
        let mut space = IdSpace::default();
        let (total, longest) = insert(&mut space, batch);
        let row = |what: &str, took: f64| {
            let name = format!("{name} together, {what}");
            println!("{name:<44}{:>10.1} million/s", per_second(took));
        };
        row("all of them new", total);
        println!("{:<44}{:>10.2} ms", "the longest call", longest * 1e3);
        println!("{:<44}{:>10.2}", "bytes an id", space.heap_bytes() as f64 / count as f64);
        row("all of them known", insert(&mut space, batch).0);
    }

    let mut space = IdSpace::default();
    insert(&mut space, SMALL_BATCH_IDS);
    let mut bytes = Vec::new();
    let took = seconds(|| space.encode(&mut bytes));
    println!("{:<44}{:>10.2} s", "serialized", took);
    drop(space);
    let took = best_of(5, || drop(black_box(IdSpaceView::open(&bytes))));
    println!("{:<44}{:>10.3} ms", "opened where it lies", took * 1e3);
    let view = IdSpaceView::open(&bytes).expect("just written");
    let found =
        (0..count).step_by(997).filter(|n| view.index_of(id(*n)) == Some(*n as u32)).count();
    assert_eq!(found as u64, count.div_ceil(997));
    drop(bytes);

    // Two sets of that many members among twice as many numbers.
    let random = |n: u32, salt: u64| hash_bytes(&n.to_le_bytes(), salt) & 1 == 1;
    let of = |salt| (0..2 * count as u32).filter(|n| random(*n, salt)).collect::<IdSet>();
    let (left, right) = (of(0), of(1));
    println!("{:<44}{:>10} and {}", "sets of", left.len(), right.len());
    let words = vec![1u64; (2 * count / 64) as usize];
    let mut copy = words.clone();
    let gigabytes = (words.len() * 8) as f64 / 1e9;
    let row = |name: &str, moved: f64, took: f64| {
        println!("{name:<44}{:>10.2} ms {:>8.1} GB/s", took * 1e3, moved * gigabytes / took);
    };
    let took = best_of(30, || {
        copy.copy_from_slice(black_box(&words));
        black_box(&mut copy);
    });
    row("a copy of as many words", 2.0, took);
    row("the same into new memory", 2.0, best_of(30, || drop(black_box(words.clone()))));
    let mut changed = left.clone();
    row("union, in place", 3.0, best_of(30, || changed.union_with(black_box(&right))));
    changed = left.clone();
    row("intersection, in place", 3.0, best_of(30, || changed.intersect_with(black_box(&right))));
    row("union into new memory", 3.0, best_of(30, || drop(black_box(&left | &right))));
    row("intersection into new memory", 3.0, best_of(30, || drop(black_box(&left & &right))));
    let took = best_of(30, || {
        black_box(left.intersection_len(&right));
    });
    row("how many both have", 2.0, took);
    let took = best_of(3, || {
        black_box(left.iter().map(u64::from).sum::<u64>());
    });
    println!(
        "{:<44}{:>10.2} ns a number",
        "all numbers, ascending",
        took * 1e9 / left.len() as f64
    );
}
