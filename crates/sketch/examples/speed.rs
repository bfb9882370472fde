//! Measures nanoseconds per add of each state, for one group and for a thousand in turn, and the cost per
//! value of many small groups.
//!
//! `cargo run --release -p tidemill-sketch --example speed`; with `-- hll` HyperLogLog in batches, with
//! `-- ids` sets of ids, with `-- bootstrap` rows of the bootstrap; with `-- 'distinct values'` or another
//! part of a name, the lines whose names contain it.

use std::hint::black_box;
use std::time::Instant;

use tidemill_sketch::{
    BootstrapSum, CardinalityEstimator, DistinctSample, DistinctValues, FloatSum, Hll, HllParams,
    HllStorageDialect, QuantileLevel, Quantiles, SortedIdSet, TopK, hash_bytes, hash_i64,
};

const ADDS: usize = 8_000_000;
const ROUNDS: usize = 3;

/// Returns true if the arguments select a line.
fn is_selected(name: &str) -> bool {
    std::env::args().nth(1).is_none_or(|part| name.contains(&part))
}

/// Measures the best of a few rounds, the one that other programs disturb least.
fn measure<S: Clone>(name: &str, new: S, add: impl Fn(&mut S, usize), heap: impl Fn(&S) -> usize) {
    if !is_selected(name) {
        return;
    }
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

/// Number of groups, and of values in each, for the case of many small groups.
const GROUPS: usize = 100_000;
const VALUES: usize = 100;

/// Number of values of a group that are added at once.
const BATCH_VALUES: usize = 10;

/// The operations that are measured on the states of many groups.
struct GroupBenchmark<'a, S, T> {
    add: &'a dyn Fn(&mut S, &[T]),
    merge: &'a dyn Fn(&mut S, S),
    answer: &'a dyn Fn(&S) -> f64,
    heap: &'a dyn Fn(&S) -> usize,
}

/// Measures two states per group with half of its values each, added one by one in random order or several of
/// a group at once; their merge; and the answer. `values` holds the next power of two and some more.
fn measure_many_groups<S: Clone, T: Copy>(
    name: &str,
    new: &S,
    values: &[T],
    of: &GroupBenchmark<'_, S, T>,
) {
    if !is_selected(name) {
        return;
    }
    let rows = GROUPS * VALUES;
    let mask = values.len().next_power_of_two() / 2 - 1;
    let mut best = [f64::INFINITY; 4];
    let mut note = |what: usize, start: Instant| {
        best[what] = best[what].min(start.elapsed().as_secs_f64() * 1e9 / rows as f64);
    };
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let mut halves = [vec![new.clone(); GROUPS], vec![new.clone(); GROUPS]];
        let start = Instant::now();
        for (half, states) in halves.iter_mut().enumerate() {
            for i in half * rows / 2..(half + 1) * rows / 2 {
                let group = ((hash_i64(i as i64) >> 32) as usize * GROUPS) >> 32;
                (of.add)(&mut states[group], &values[i & mask..][..1]);
            }
        }
        note(0, start);
        drop(black_box(halves));

        let mut halves = [vec![new.clone(); GROUPS], vec![new.clone(); GROUPS]];
        let start = Instant::now();
        for (half, states) in halves.iter_mut().enumerate() {
            for time in 0..VALUES / 2 / BATCH_VALUES {
                for (group, state) in states.iter_mut().enumerate() {
                    let at = ((half * VALUES + time) * GROUPS + group) * BATCH_VALUES;
                    (of.add)(state, &values[at & mask..][..BATCH_VALUES]);
                }
            }
        }
        note(1, start);
        let [mut states, others] = halves;
        let start = Instant::now();
        states.iter_mut().zip(others).for_each(|(state, other)| (of.merge)(state, other));
        note(2, start);
        let start = Instant::now();
        black_box(states.iter().map(of.answer).sum::<f64>());
        note(3, start);
        bytes =
            states.iter().map(|state| size_of::<S>() + (of.heap)(state)).sum::<usize>() / GROUPS;
    }
    print!("{name:<44}");
    best.iter().for_each(|best| print!("{best:>9.1}"));
    println!("{bytes:>9} B");
}

/// Measures the best of all rounds of `run` within half a second, in ns for each of `count`. `run` gets a
/// fresh copy of `state`; very fast operations are repeated `times` on one copy.
fn measure_batch<S: Clone>(
    name: &str,
    state: &S,
    count: usize,
    times: usize,
    mut run: impl FnMut(&mut S),
) {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.5 {
        let mut state = state.clone();
        let start = Instant::now();
        for _ in 0..times {
            run(black_box(&mut state));
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / (count * times) as f64);
        black_box(&state);
    }
    println!("{name:<60}{best:>12.2} ns");
}

/// Measures like [`measure_batch`], with all `values` in parts, each at its best: a round of all would hardly
/// ever run undisturbed by other programs.
fn measure_parts<S: Clone, T>(
    name: &str,
    state: &S,
    values: &[T],
    mut add: impl FnMut(&mut S, &[T]),
) {
    let parts = values.chunks(values.len() / 100);
    let mut best = vec![f64::INFINITY; parts.len()];
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.5 {
        let mut state = state.clone();
        for (part, best) in parts.clone().zip(&mut best) {
            let start = Instant::now();
            add(black_box(&mut state), black_box(part));
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let total = best.iter().sum::<f64>() * 1e9 / values.len() as f64;
    println!("{name:<60}{total:>12.2} ns");
}

/// Measures HyperLogLog's batches, estimates, merges and bytes.
fn hll_batches() {
    let values: Vec<i64> = (0..1_000_000).collect();
    let hashes: Vec<u64> = values.iter().map(|&value| hash_i64(value)).collect();
    for (log2m, regwidth) in [(11, 5), (14, 6), (14, 8)] {
        let name = |what: &str| format!("log2m {log2m}, regwidth {regwidth}: {what}");
        let empty = Hll::new(HllParams { log2m, regwidth, ..HllParams::default() }).unwrap();
        measure_parts(&name("a value of a million integers"), &empty, &values, Hll::add_i64s);
        measure_parts(&name("a value of a million hashes"), &empty, &hashes, Hll::add_hashes);
        let mut full = empty.clone();
        full.add_i64s(&values);
        measure_parts(&name("the same again"), &full, &values, Hll::add_i64s);
        let mut other = empty.clone();
        other.add_hash_iter((1_000_000..3_000_000).map(hash_i64));
        measure_batch(&name("a merge"), &full, 1, 20, |hll| hll.merge(black_box(&other)));
        let bytes = full.to_bytes(HllStorageDialect::default());
        let words = vec![1u64; bytes.len() / 8];
        let mut copy = words.clone();
        measure_batch(&name("a copy of as many bytes"), &(), 1, 20, |()| {
            copy.copy_from_slice(black_box(&words));
            black_box(&mut copy);
        });
        measure_batch(&name("an estimate"), &full, 1, 20, |hll| {
            black_box(hll.cardinality());
        });
        measure_batch(&name("an estimate by Ertl's"), &full, 1, 20, |hll| {
            black_box(hll.cardinality_with(CardinalityEstimator::Improved));
        });
        let mut merged = full.clone();
        merged.merge(&other);
        measure_batch(&name("the first estimate after a merge"), &merged, 1, 1, |hll| {
            black_box(hll.cardinality());
        });
        measure_batch(&name("to bytes"), &full, 1, 20, |hll| {
            black_box(hll.to_bytes(HllStorageDialect::default()));
        });
        measure_batch(&name("from bytes"), &(), 1, 20, |()| {
            black_box(Hll::from_bytes(black_box(&bytes)).unwrap());
        });
    }
}

/// Measures sets of ids: adding in any order, merging, operations, encoding and decoding.
fn sorted_ids() {
    const COUNT: usize = 100_000;
    let random: Vec<u64> = (0..COUNT as i64).map(hash_i64).collect();
    let one_in = |n: u64| -> Vec<u64> {
        (0..COUNT as u64 * n).filter(|id| hash_i64(id.cast_signed()).is_multiple_of(n)).collect()
    };
    let (third, shuffled) = (one_in(3), {
        let mut ids = one_in(3);
        ids.sort_by_key(|id| hash_i64(id.cast_signed()));
        ids
    });
    for (name, ids) in
        [("random", &random), ("one in three, shuffled", &shuffled), ("one in three", &third)]
    {
        let name = |what: &str| format!("ids, {name}: {what}");
        let add = |set: &mut SortedIdSet| {
            ids.iter().for_each(|id| set.add(*id));
            set.merge_buffer();
        };
        measure_batch(&name("an add"), &SortedIdSet::new(), ids.len(), 1, add);
        measure_batch(&name("an add, all at once"), &SortedIdSet::new(), ids.len(), 1, |set| {
            set.add_all(ids)
        });
    }
    let sorted = |ids: &[u64]| {
        let mut set = SortedIdSet::new();
        set.add_all(ids);
        set
    };
    let moved = |ids: &[u64]| sorted(&ids.iter().map(|id| id ^ 0x155).collect::<Vec<_>>());
    for (name, left, right) in [
        ("random", sorted(&random[..60_000]), sorted(&random[40_000..])),
        ("one in three", sorted(&third), moved(&third)),
        ("100,000 and 1,000", sorted(&random), sorted(&random[..1000])),
    ] {
        let name = |what: &str| format!("ids, {name}: {what}");
        let both = left.len() + right.len();
        measure_batch(&name("a union"), &left, both, 1, |set| set.union_with(&right));
        measure_batch(&name("an intersection"), &left, both, 1, |set| set.intersect_with(&right));
        measure_batch(&name("its length"), &left, both, 1, |set| {
            black_box(set.intersection_len(&right));
        });
        measure_batch(&name("a difference"), &left, both, 1, |set| set.subtract(&right));
    }
    let run: Vec<u64> = (0..COUNT as u64).collect();
    for (name, ids) in [
        ("all", run),
        ("one in three", third[..10_000].to_vec()),
        ("one in 1,000", one_in(1000)[..10_000].to_vec()),
        ("random", random[..10_000].to_vec()),
    ] {
        let set = sorted(&ids);
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        let name = |what: &str| {
            format!("ids, {name}, {:.2} bytes each: {what}", bytes.len() as f64 / ids.len() as f64)
        };
        let mut out = Vec::new();
        measure_batch(&name("to bytes"), &(), ids.len(), 1, |()| {
            out.clear();
            set.encode(&mut out);
        });
        measure_batch(&name("from bytes"), &(), ids.len(), 10, |()| {
            black_box(SortedIdSet::decode(black_box(&bytes)).unwrap());
        });
    }
}

/// Measures a row of the bootstrap, by its number of replicates and the distribution of the values.
fn bootstrap() {
    const ROWS: usize = 20_000;
    let hashes: Vec<u64> = (0..ROWS as i64).map(hash_i64).collect();
    let values = |of: fn(u64) -> f64| -> Vec<(u64, f64)> {
        hashes.iter().map(|hash| (*hash, of(*hash))).collect()
    };
    let prices = values(|hash| (hash % 1_000_000) as f64 / 100.0);
    let whole = values(|hash| (hash % 1000) as f64);
    let exponents = values(|hash| 2f64.powi((hash % 200) as i32 - 100) * 1.1);
    for replicates in [50, 200, 1000] {
        for (name, rows) in [("prices", &prices), ("whole", &whole), ("200 octaves", &exponents)] {
            let name = format!("bootstrap, {replicates} replicates, {name}: a row");
            let add = |state: &mut BootstrapSum, rows: &[(u64, f64)]| {
                rows.iter().for_each(|(unit, value)| state.add(*unit, 1, *value));
            };
            measure_parts(&name, &BootstrapSum::new(replicates).unwrap(), rows, add);
        }
    }
    let mut state = BootstrapSum::default();
    prices.iter().for_each(|(unit, value)| state.add(*unit, 1, *value));
    measure_batch("bootstrap, 200 replicates: a merge", &state, 1, 1, |into| {
        into.merge(black_box(&state))
    });
    measure_batch("bootstrap, 200 replicates: an interval", &state, 1, 1, |state| {
        black_box(state.confidence_interval(0.95));
    });
    println!("{} B", state.heap_bytes());
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("bootstrap") {
        return bootstrap();
    }
    if std::env::args().nth(1).as_deref() == Some("ids") {
        return sorted_ids();
    }
    if std::env::args().nth(1).as_deref() == Some("hll") {
        return hll_batches();
    }
    println!("{:<44}{:>12} {:>9}{:>12} {:>9}", "", "1 group", "heap", "1000", "each");
    // Inputs are prepared first, so that only the adds are measured.
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
    let words: Vec<[u8; 8]> = hashes.iter().map(|hash| (hash % 15).to_be_bytes()).collect();
    let add = |state: &mut TopK, i: usize| state.add(&words[i & mask], 1);
    measure("top-k, 15 different integers", TopK::default(), add, TopK::heap_bytes);
    let add = |state: &mut TopK, i: usize| state.add(&codes[i & mask], 1);
    measure("top-k, 350 codes of 3 letters", TopK::default(), add, TopK::heap_bytes);
    let add = |state: &mut TopK, i: usize| state.add(urls[i & mask].as_bytes(), 1);
    measure("top-k, skewed paths of 35 bytes", TopK::default(), add, TopK::heap_bytes);

    let heap = DistinctValues::heap_bytes;
    let status: Vec<[u8; 8]> = hashes.iter().map(|hash| (hash % 10).to_be_bytes()).collect();
    let add = |state: &mut DistinctValues, i: usize| state.add(&status[i & mask]);
    measure("distinct values, 10 integers", DistinctValues::default(), add, heap);
    let add = |state: &mut DistinctValues, i: usize| state.add(&few[i & mask]);
    measure("distinct values, 5 codes of 3 letters", DistinctValues::default(), add, heap);
    let add = |state: &mut DistinctValues, i: usize| state.add(&codes[i & mask]);
    measure("distinct values, 350 codes of 3 letters", DistinctValues::default(), add, heap);
    let add = |state: &mut DistinctValues, i: usize| state.add(urls[i & mask].as_bytes());
    measure("distinct values, paths, given up", DistinctValues::default(), add, heap);

    type Sample = DistinctSample<i128>;
    let heap = Sample::heap_bytes;
    let hashed: Vec<u64> = codes.iter().map(|code| hash_bytes(code, 0)).collect();
    let add = |state: &mut Sample, i: usize| state.add(hashed[i & mask], &codes[i & mask], 1);
    measure("distinct sample, 350 codes of 3 letters", Sample::default(), add, heap);
    let hashed: Vec<u64> = urls.iter().map(|url| hash_bytes(url.as_bytes(), 0)).collect();
    let add = |state: &mut Sample, i: usize| {
        state.add(hashed[i & mask], urls[i & mask].as_bytes(), 1);
    };
    measure("distinct sample, paths, most not in it", Sample::default(), add, heap);

    let add = |sum: &mut FloatSum, i: usize| sum.add(cents[i & mask]);
    measure("float sum, prices", FloatSum::default(), add, FloatSum::heap_bytes);
    let add = |sum: &mut FloatSum, i: usize| sum.add(unit[i & mask] - 0.5);
    measure("float sum, both signs", FloatSum::default(), add, FloatSum::heap_bytes);
    let mut wide = FloatSum::default();
    wide.add(1e300);
    let add = |sum: &mut FloatSum, i: usize| sum.add(unit[i & mask] - 0.5);
    measure("float sum, both signs, wide", wide, add, FloatSum::heap_bytes);

    let title = format!("{GROUPS} groups of {VALUES}, ns a value");
    println!(
        "\n{title:<44}{:>9}{:>9}{:>9}{:>9}{:>11}",
        "singly", "ten", "merge", "answer", "a group"
    );
    fn longer<T: Copy>(values: &[T]) -> Vec<T> {
        [values, &values[..BATCH_VALUES]].concat()
    }
    let fifteen: Vec<f64> = hashes.iter().map(|hash| (hash % 15) as f64).collect();
    let median = [QuantileLevel::new(0.5)];
    let of = GroupBenchmark {
        add: &Quantiles::add_all,
        merge: &Quantiles::merge_owned,
        answer: &|state: &Quantiles| {
            let mut of = 0.0;
            state.for_each_quantile(&median, |answer| of = answer.unwrap_or(0.0));
            of
        },
        heap: &Quantiles::heap_bytes,
    };
    measure_many_groups(
        "quantiles, evenly from 0 to 1",
        &Quantiles::default(),
        &longer(&unit),
        &of,
    );
    measure_many_groups(
        "quantiles, 15 different integers",
        &Quantiles::default(),
        &longer(&fifteen),
        &of,
    );
    let of = GroupBenchmark {
        add: &Hll::add_hashes,
        merge: &Hll::merge_owned,
        answer: &Hll::cardinality,
        heap: &Hll::heap_bytes,
    };
    measure_many_groups("hll, all different", &Hll::default(), &longer(&hashes), &of);
    let few: Vec<u64> = fifteen.iter().map(|value| hash_i64(*value as i64)).collect();
    measure_many_groups("hll, 15 different", &Hll::default(), &longer(&few), &of);
    let of = GroupBenchmark {
        add: &TopK::add_word_items,
        merge: &TopK::merge_owned,
        answer: &|state: &TopK| state.top_items(3).iter().map(|top| top.lower_bound as f64).sum(),
        heap: &TopK::heap_bytes,
    };
    let words: Vec<[u8; 8]> = fifteen.iter().map(|value| (*value as u64).to_be_bytes()).collect();
    measure_many_groups("top-k, 15 different integers", &TopK::default(), &longer(&words), &of);
}
