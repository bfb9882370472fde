//! `hll`: one sketch, nanoseconds for each thing it does.

use std::hint::black_box;

use crate::sketches::{Cloudflare, Exact, OneByOne, PlusPlus, Sketch};
use crate::{Result, data, memory, timed};
use tidemill_sketch::Hll;

/// Values that come in one call, where a sketch takes more than one.
const BATCH: usize = 8192;
/// How many sketches are merged, read and so on.
const SKETCHES: usize = 200;
/// Inserts go on until so many values have gone in, each time into a new sketch.
const INSERTS: usize = 8_000_000;

pub fn run(peer: &str, log2m: u8, values: usize) -> Result<()> {
    match (peer, log2m) {
        ("tidemill", _) => measure::<Hll>(log2m, values, SKETCHES),
        ("tidemill-each", _) => measure::<OneByOne>(log2m, values, SKETCHES),
        ("cardinality-estimator", 11) => measure::<Cloudflare<11>>(log2m, values, SKETCHES),
        ("cardinality-estimator", 14) => measure::<Cloudflare<14>>(log2m, values, SKETCHES),
        ("hyperloglogplus", _) => measure::<PlusPlus>(log2m, values, SKETCHES),
        ("hashset", _) => measure::<Exact>(log2m, values, 3),
        _ => return Err(format!("no sketch `{peer}` of {log2m}").into()),
    }
    Ok(())
}

fn measure<S: Sketch>(log2m: u8, values: usize, sketches: usize) {
    let integers: Vec<i64> = (0..values as u64).map(|n| data::scrambled(n).cast_signed()).collect();
    let texts: Vec<[u8; 10]> = (0..values as u64).map(data::text).collect();
    let times = INSERTS.div_ceil(values).clamp(1, sketches);
    let mut estimates = Vec::new();
    let mut print = Vec::new();
    let mut note = |step: &str, took: f64, items: usize| {
        print.push(format!("\"{step}\": {:.4}", took * 1e9 / items as f64));
    };

    let mut whole = S::new(log2m);
    let mut took = 0.0;
    for _ in 0..times {
        whole = S::new(log2m);
        took += timed(|| {
            black_box(&integers).chunks(BATCH).for_each(|batch| whole.add_integers(batch))
        })
        .0;
    }
    note("integers", took, times * values);
    estimates.push(whole.estimate());

    let mut took = 0.0;
    for _ in 0..times {
        let mut of_texts = S::new(log2m);
        took +=
            timed(|| black_box(&texts).chunks(BATCH).for_each(|batch| of_texts.add_texts(batch))).0;
        estimates.truncate(1);
        estimates.push(of_texts.estimate());
    }
    note("strings", took, times * values);

    // Halves that overlap by a third of all.
    let third = values / 3;
    let (mut left, mut right) = (S::new(log2m), S::new(log2m));
    left.add_integers(&integers[..2 * third]);
    right.add_integers(&integers[third..]);
    let mut all = vec![left; sketches];
    let took = timed(|| all.iter_mut().for_each(|sketch| sketch.merge(black_box(&right)))).0;
    note("merge", took, sketches);
    // Of sketches that have just been merged: what is kept for estimates has to be made again.
    let (took, sum) =
        timed(|| all.iter_mut().map(|sketch| black_box(sketch).estimate()).sum::<f64>());
    note("estimate after a merge", took, sketches);
    estimates.push(sum / sketches as f64);
    let mut all = vec![whole; sketches];
    all.iter_mut().for_each(|sketch| sketch.add_integers(&integers[..1]));
    let (took, sum) =
        timed(|| all.iter_mut().map(|sketch| black_box(sketch).estimate()).sum::<f64>());
    note("estimate", took, sketches);
    estimates.push(sum / sketches as f64);

    let mut bytes = Vec::new();
    all[0].serialize(&mut bytes);
    let took = timed(|| {
        for sketch in &all {
            bytes.clear();
            black_box(sketch).serialize(&mut bytes);
        }
    })
    .0;
    note("serialize", took, sketches);
    all.clear();
    let (took, ()) =
        timed(|| (0..sketches).for_each(|_| all.push(S::deserialize(black_box(&bytes)))));
    note("deserialize", took, sketches);
    estimates.push(all[sketches / 2].estimate());

    drop(all);
    let before = memory::allocated();
    let mut one = S::new(log2m);
    one.add_integers(&integers);
    let memory = memory::allocated() - before + size_of::<S>();
    black_box(one);
    println!(
        "{{\"ns\": {{{}}}, \"bytes\": {}, \"memory\": {memory}, \"estimates\": {estimates:?}, \"error\": {}}}",
        print.join(", "),
        bytes.len(),
        S::expected_error(log2m),
    );
}
