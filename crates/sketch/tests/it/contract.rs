//! The contract that every state fulfils.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{
    BootstrapSum, DistinctSample, DistinctValues, ExplicitThreshold, FOUR_POWER_SUMS, FloatSum,
    Hll, HllParams, Moments, ONE_COLUMN_SUMS, Quantiles, SketchError, SortedIdSet, TWO_COLUMN_SUMS,
    TopK,
};
use tidemill_sketch::{hash_bytes, hash_i64};

trait MergeableState: Clone + PartialEq + Debug + Default {
    /// True if `decode` accepts canonical bytes only.
    const STRICT: bool = true;
    /// Maximum number of bytes of memory per encoded byte, besides half a kilobyte.
    const MEMORY_FACTOR: usize = 64;
    /// Adds a value that depends on `seed`.
    fn add_any(&mut self, seed: u64);
    /// Creates an empty state with parameters so small that a few hundred values end its exactness.
    fn small() -> Self;
    fn merge(&mut self, other: &Self);
    fn heap_bytes(&self) -> usize;
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(bytes: &[u8]) -> Result<Self, SketchError>;

    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![];
        self.encode(&mut out);
        out
    }
}

macro_rules! state {
    ($type:ty, $($rest:tt)*) => {
        impl MergeableState for $type {
            fn merge(&mut self, other: &Self) { <$type>::merge(self, other) }
            fn heap_bytes(&self) -> usize { <$type>::heap_bytes(self) }
            fn encode(&self, out: &mut Vec<u8>) { <$type>::encode(self, out) }
            fn decode(bytes: &[u8]) -> Result<Self, SketchError> { <$type>::decode(bytes) }
            $($rest)*
        }
    };
}

state! {
    Hll,
    // Bytes of other implementations are accepted too.
    const STRICT: bool = false;
    fn add_any(&mut self, seed: u64) {
        self.add_hash(hash_i64(seed.cast_signed()));
    }
    fn small() -> Self {
        let expthresh = ExplicitThreshold::PowerOfTwo(3);
        Hll::new(HllParams { log2m: 8, regwidth: 5, expthresh, sparse: true }).unwrap()
    }
}
state! {
    Quantiles,
    fn add_any(&mut self, seed: u64) {
        // All bit patterns: all exponents, subnormals, infinities, NaNs.
        self.add(f64::from_bits(hash_i64(seed.cast_signed())));
        self.add(seed as f64);
    }
    fn small() -> Self {
        Quantiles::new(16).unwrap()
    }
}
state! {
    TopK,
    fn add_any(&mut self, seed: u64) {
        let text = format!("item {:>1$}", seed % 50, (seed % 40) as usize);
        self.add(text.as_bytes(), seed % 3 + 1);
    }
    fn small() -> Self {
        TopK::new(8).unwrap()
    }
}
state! {
    FloatSum,
    fn add_any(&mut self, seed: u64) {
        match seed % 5 {
            0 => self.add(f64::from_bits(hash_i64(seed.cast_signed()))),
            _ => self.add(seed as f64 / 10.0),
        }
    }
    fn small() -> Self {
        FloatSum::default()
    }
}

state! {
    DistinctValues,
    fn add_any(&mut self, seed: u64) {
        let text = format!("item {:>1$}", seed % 50, (seed % 40) as usize);
        self.add(&text.as_bytes()[seed as usize % 5..]);
    }
    fn small() -> Self {
        DistinctValues::new(40).unwrap()
    }
}

state! {
    DistinctSample<i128>,
    fn add_any(&mut self, seed: u64) {
        let text = format!("item {:>1$}", seed % 50, (seed % 40) as usize);
        let weight = i128::from(hash_i64(seed.cast_signed())) << (seed % 64);
        self.add(hash_bytes(text.as_bytes(), 0), text.as_bytes(), weight);
    }
    fn small() -> Self {
        DistinctSample::new(12).unwrap()
    }
}
state! {
    DistinctSample<f64>,
    // Sums of very large and very small floats are wide.
    const MEMORY_FACTOR: usize = 72;
    fn add_any(&mut self, seed: u64) {
        let text = format!("item {:>1$}", seed % 50, (seed % 40) as usize);
        self.add(hash_bytes(text.as_bytes(), 0), text.as_bytes(), any_float(seed));
    }
    fn small() -> Self {
        DistinctSample::new(12).unwrap()
    }
}

state! {
    SortedIdSet,
    // One byte may encode a block of consecutive ids.
    const MEMORY_FACTOR: usize = 1024;
    fn add_any(&mut self, seed: u64) {
        self.add(seed % 300);
        self.add(seed >> (seed % 64));
    }
    fn small() -> Self {
        SortedIdSet::new()
    }
}

state! {
    BootstrapSum,
    fn add_any(&mut self, seed: u64) {
        self.add(seed % 20, 1, any_float(seed));
    }
    fn small() -> Self {
        BootstrapSum::new(5).unwrap()
    }
}

/// Moments of floats of any size, some not finite, and of integers that need all bits.
macro_rules! moments {
    ($number:ty, $columns:expr, $value:expr) => {
        state! {
            Moments<$number, $columns>,
            fn add_any(&mut self, seed: u64) {
                let value: fn(u64) -> $number = $value;
                let _ = self.add(value(seed), value(seed ^ 0x55));
            }
            fn small() -> Self {
                Moments::default()
            }
        }
    };
}
fn any_float(seed: u64) -> f64 {
    match seed % 5 {
        0 => f64::from_bits(hash_i64(seed.cast_signed())),
        _ => seed as f64 / 10.0,
    }
}
fn any_integer(seed: u64) -> i64 {
    hash_i64(seed.cast_signed()).cast_signed() >> (seed % 64)
}
moments!(f64, ONE_COLUMN_SUMS, any_float);
moments!(f64, TWO_COLUMN_SUMS, any_float);
moments!(f64, FOUR_POWER_SUMS, any_float);
moments!(i64, ONE_COLUMN_SUMS, any_integer);
moments!(i64, TWO_COLUMN_SUMS, any_integer);

fn filled<S: MergeableState>(mut state: S, seeds: &[u64]) -> S {
    seeds.iter().for_each(|&seed| state.add_any(seed));
    state
}

fn an_empty_state_owns_no_heap_memory<S: MergeableState>() {
    assert_eq!(S::default().heap_bytes(), 0);
    assert_eq!(S::small().heap_bytes(), 0);
    assert_eq!(S::decode(&S::default().bytes()).unwrap().heap_bytes(), 0);
    assert!(S::default().bytes().len() <= 6);
}

fn merging_an_empty_state_changes_nothing<S: MergeableState>() {
    for count in [0, 1, 9, 1000] {
        let seeds: Vec<u64> = (0..count).collect();
        let full = filled(S::small(), &seeds);
        let mut merged = full.clone();
        merged.merge(&S::small());
        assert_eq!(merged, full);
        let mut merged = S::small();
        merged.merge(&full);
        assert_eq!(merged, full);
        assert_eq!(merged.bytes(), full.bytes());
    }
}

fn a_state_comes_back_from_its_bytes<S: MergeableState>(seeds: &[u64]) {
    for state in [filled(S::default(), seeds), filled(S::small(), seeds)] {
        let bytes = state.bytes();
        let back = S::decode(&bytes).unwrap();
        assert_eq!(back, state);
        assert_eq!(back.bytes(), bytes);
    }
}

fn a_state_goes_on_after_it_came_back<S: MergeableState>(seeds: &[u64], more: &[u64]) {
    let state = filled(S::small(), seeds);
    let back = S::decode(&state.bytes()).unwrap();
    assert_eq!(filled(back, more), filled(state, more));
}

fn bytes_are_refused_or_canonical<S: MergeableState>(bytes: &[u8]) {
    let Ok(state) = S::decode(bytes) else { return };
    // A small header may request many registers, but the data must justify them.
    assert!(
        state.heap_bytes() <= S::MEMORY_FACTOR * bytes.len() + 512,
        "{} bytes",
        state.heap_bytes()
    );
    let canonical = state.bytes();
    if S::STRICT {
        assert_eq!(canonical, bytes);
    } else {
        assert!(canonical.len() <= 3 * bytes.len() + 16);
    }
    let back = S::decode(&canonical).unwrap();
    assert_eq!(back, state);
    assert_eq!(back.bytes(), canonical);
    // The decoded state is fully usable.
    let mut other = S::small();
    other.add_any(1);
    other.merge(&back);
    a_state_comes_back_from_its_bytes::<S>(&[]);
    other.bytes();
}

fn every_prefix_and_extension_is_refused<S: MergeableState>(seeds: &[u64]) {
    if !S::STRICT {
        return;
    }
    let mut bytes = filled(S::small(), seeds).bytes();
    for end in 0..bytes.len() {
        if let Ok(shorter) = S::decode(&bytes[..end]) {
            // A sum without its digits is a valid sum.
            assert_eq!(shorter.bytes(), bytes[..end]);
        }
    }
    assert!(S::decode(&[]).is_err());
    bytes[0] ^= 0x0f;
    assert!(matches!(S::decode(&bytes), Err(SketchError::UnknownFormat { .. })));
}

/// Returns bytes close to a valid encoding: some replaced, the end cut off or extended.
fn mutated(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)], length: i8) -> Vec<u8> {
    for (at, byte) in changes {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
    }
    let length = bytes.len().saturating_add_signed((length / 16).into());
    bytes.resize(length, 0);
    bytes
}

macro_rules! contract {
    ($name:ident, $type:ty) => {
        mod $name {
            use super::*;

            #[test]
            fn an_empty_state_owns_no_heap_memory() {
                super::an_empty_state_owns_no_heap_memory::<$type>();
            }

            #[test]
            fn merging_an_empty_state_changes_nothing() {
                super::merging_an_empty_state_changes_nothing::<$type>();
            }

            proptest! {
                #[test]
                fn a_state_comes_back_from_its_bytes(seeds in vec(any::<u64>(), 0..700)) {
                    super::a_state_comes_back_from_its_bytes::<$type>(&seeds);
                }

                #[test]
                fn a_state_goes_on_after_it_came_back(
                    seeds in vec(any::<u64>(), 0..200),
                    more in vec(any::<u64>(), 0..200),
                ) {
                    super::a_state_goes_on_after_it_came_back::<$type>(&seeds, &more);
                }

                #[test]
                fn every_prefix_and_extension_is_refused(seeds in vec(any::<u64>(), 0..50)) {
                    super::every_prefix_and_extension_is_refused::<$type>(&seeds);
                }
            }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(4096))]

                #[test]
                fn arbitrary_bytes_are_refused_or_canonical(
                    first in prop_oneof![0u8..0xb0, (1u8..11).prop_map(|kind| kind << 4 | 1)],
                    rest in vec(prop_oneof![0u8..20, any::<u8>()], 0..60),
                ) {
                    let bytes: Vec<u8> = std::iter::once(first).chain(rest).collect();
                    super::bytes_are_refused_or_canonical::<$type>(&bytes);
                }

                #[test]
                fn damaged_bytes_are_refused_or_canonical(
                    seeds in vec(any::<u64>(), 0..60),
                    small in any::<bool>(),
                    changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                    length in any::<i8>(),
                ) {
                    let state = if small { <$type>::small() } else { <$type>::default() };
                    let bytes = filled(state, &seeds).bytes();
                    super::bytes_are_refused_or_canonical::<$type>(&mutated(bytes, &changes, length));
                }
            }
        }
    };
}

contract!(hll, Hll);
contract!(quantiles, Quantiles);
contract!(top_k, TopK);
contract!(float_sum, FloatSum);
contract!(distinct_values, DistinctValues);
contract!(distinct_sample_of_whole_weights, DistinctSample<i128>);
contract!(distinct_sample_of_float_weights, DistinctSample<f64>);
contract!(ids, SortedIdSet);
contract!(bootstrap, BootstrapSum);
contract!(moments_of_floats, Moments<f64, ONE_COLUMN_SUMS>);
contract!(moments_of_two_floats, Moments<f64, TWO_COLUMN_SUMS>);
contract!(moments_of_four_powers, Moments<f64, FOUR_POWER_SUMS>);
contract!(moments_of_integers, Moments<i64, ONE_COLUMN_SUMS>);
contract!(moments_of_two_integers, Moments<i64, TWO_COLUMN_SUMS>);

#[test]
fn decoder_refuses_other_state_types() {
    let states = [
        Hll::default().bytes(),
        Quantiles::default().bytes(),
        TopK::default().bytes(),
        FloatSum::default().bytes(),
        Moments::<f64, ONE_COLUMN_SUMS>::default().bytes(),
        Moments::<f64, TWO_COLUMN_SUMS>::default().bytes(),
        Moments::<f64, FOUR_POWER_SUMS>::default().bytes(),
        Moments::<i64, ONE_COLUMN_SUMS>::default().bytes(),
        Moments::<i64, TWO_COLUMN_SUMS>::default().bytes(),
        DistinctValues::default().bytes(),
        DistinctSample::<i128>::default().bytes(),
        DistinctSample::<f64>::default().bytes(),
        SortedIdSet::default().bytes(),
        BootstrapSum::default().bytes(),
    ];
    for (at, bytes) in states.iter().enumerate() {
        let read = [
            Hll::decode(bytes).is_ok(),
            Quantiles::decode(bytes).is_ok(),
            TopK::decode(bytes).is_ok(),
            FloatSum::decode(bytes).is_ok(),
            Moments::<f64, ONE_COLUMN_SUMS>::decode(bytes).is_ok(),
            Moments::<f64, TWO_COLUMN_SUMS>::decode(bytes).is_ok(),
            Moments::<f64, FOUR_POWER_SUMS>::decode(bytes).is_ok(),
            Moments::<i64, ONE_COLUMN_SUMS>::decode(bytes).is_ok(),
            Moments::<i64, TWO_COLUMN_SUMS>::decode(bytes).is_ok(),
            DistinctValues::decode(bytes).is_ok(),
            DistinctSample::<i128>::decode(bytes).is_ok(),
            DistinctSample::<f64>::decode(bytes).is_ok(),
            SortedIdSet::decode(bytes).is_ok(),
            BootstrapSum::decode(bytes).is_ok(),
        ];
        let expect: Vec<bool> = (0..states.len()).map(|kind| kind == at).collect();
        assert_eq!(read, *expect);
    }
}

#[test]
fn error_names_problem_and_offset() {
    let check = |error: SketchError, expect: &str| assert_eq!(error.to_string(), expect);
    check(
        Quantiles::new(1000).unwrap_err(),
        "`max_bins` is 1000, but must be from 16 to 1048576\n\
         hint: it must be a power of two; 2048 is the default",
    );
    check(
        TopK::decode(&[0x32]).unwrap_err(),
        "not a `top-k` state that this version reads: the first byte is 0x32, \
         expected 0x31 (version 1)",
    );
    check(
        Quantiles::decode(&[0x21, 11]).unwrap_err(),
        "`quantiles` state ends at byte 2: 1 more expected there",
    );
    check(
        Hll::decode(&[0x11, 0x8b, 0x48, 0]).unwrap_err(),
        "`hll` state ends at byte 3, but 1 more follow",
    );
    check(
        Hll::decode(&[0x12, 0x8b, 0x48, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1])
            .unwrap_err(),
        "damaged `hll` state at byte 19: explicit values do not ascend",
    );
    assert_eq!(hash_bytes(b"", 0), 0);
}

/// The examples of `docs/formats/states.md`.
#[test]
fn encoded_bytes_equal_documented_examples() {
    let mut hll = Hll::default();
    hll.add_hash(1);
    assert_eq!(hll.bytes(), [0x12, 0xae, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1]);

    let mut quantiles = Quantiles::default();
    [1.0, 2.0, 2.0].into_iter().for_each(|value| quantiles.add(value));
    let expect = [0x21, 0x0b, 0, 0, 2, 0x34, 0xff, 0x17, 1, 0, 2];
    assert_eq!(quantiles.bytes(), expect);

    let mut top = TopK::default();
    ["b", "a", "b"].into_iter().for_each(|item| top.add(item.as_bytes(), 1));
    assert_eq!(top.bytes(), [0x31, 0x80, 0x08, 0, 3, 2, 1, 0x61, 1, 1, 0x62, 2]);

    let sum = |value| {
        let mut sum = FloatSum::default();
        sum.add(value);
        sum.bytes()
    };
    assert_eq!(sum(1.0), [0x41, 0, 0x88, 1, 1]);
    assert_eq!(sum(-1.5), [0x41, 0, 0x87, 1, 0x80, 0xfe]);

    let mut moments = Moments::<i64, ONE_COLUMN_SUMS>::default();
    [3, -1].into_iter().for_each(|x| assert!(moments.add(x, 0).is_ok()));
    assert_eq!(moments.bytes(), [0x51, 0, 2, 1, 2, 1, 0x0a]);

    let mut values = DistinctValues::new(2).unwrap();
    ["b", "a", "b"].into_iter().for_each(|item| values.add(item.as_bytes()));
    assert_eq!(values.bytes(), [0x71, 2, 2, 1, 0x61, 1, 0x62]);
    values.add(b"c");
    assert_eq!(values.bytes(), [0x71, 2, 3]);

    let mut sample = DistinctSample::<i128>::new(3).unwrap();
    ["b", "a", "b"]
        .into_iter()
        .for_each(|item| sample.add(hash_bytes(item.as_bytes(), 0), item.as_bytes(), 1));
    assert_eq!(sample.bytes(), [0x81, 3, 0, 2, 1, 0x61, 1, 1, 1, 0x62, 1, 2]);
    let mut sample = DistinctSample::<f64>::new(3).unwrap();
    sample.add(hash_bytes(b"a", 0), b"a", 1.0);
    assert_eq!(sample.bytes(), [0x82, 3, 0, 1, 1, 0x61, 5, 0x41, 0, 0x88, 1, 1]);

    let ids = |ids: &[u64]| ids.iter().copied().collect::<SortedIdSet>().bytes();
    assert_eq!(ids(&[300, 7, 11, 7, 12]), [0x91, 4, 7, 9, 0x03, 0x00, 0x7c, 0x04]);
    assert_eq!(ids(&[5, 6, 7, 8]), [0x91, 4, 5, 0]);

    let mut bootstrap = BootstrapSum::default();
    bootstrap.add(1, 0, 1.5);
    let key = [0x54, 0x5d, 0xf5, 0x99, 0x13, 0x75, 0x82, 0x8d];
    let expect = [&[0xa1, 0xc8, 1, 1][..], &key, &1.5f64.to_le_bytes()].concat();
    assert_eq!(bootstrap.bytes(), expect);
    let mut bootstrap = BootstrapSum::new(2).unwrap();
    (0..65).for_each(|_| bootstrap.add(1, 0, 1.0));
    assert_eq!(bootstrap.bytes()[..8], [0xa1, 2, 65, 5, 0x41, 0, 0x88, 1]);
}

/// Decodes bytes that break one rule each and checks the reported rule.
#[test]
fn decode_error_names_the_violated_rule() {
    fn check<S: MergeableState>(bytes: &[u8], expect: &str) {
        let message = S::decode(bytes).expect_err(expect).to_string();
        assert!(message.contains(expect), "{message}");
    }
    type Q = Quantiles;
    check::<Q>(&[0x21, 3, 0, 0, 0], "not 2^4 to 2^20");
    check::<Q>(&[0x21, 21, 0, 0, 0], "not 2^4 to 2^20");
    check::<Q>(&[0x21, 4, 61, 0, 0], "above 60");
    check::<Q>(&[0x21, 4, 1, 0, 0], "without need");
    // Seventeen bins at level 0, where sixteen are allowed.
    let bins = |level, count: usize, each| {
        let start = [0x21, 4, level, 0, count as u8, 52, 0xff, 0x17, each];
        let rest = [0, each].repeat(count - 1);
        [&start[..], &rest].concat()
    };
    assert!(Q::decode(&bins(0, 16, 1)).is_ok());
    check::<Q>(&bins(0, 17, 1), "more bins than allowed");
    check::<Q>(&bins(0, 3, 0), "an empty bin");
    // At level 1, eight bins of two values each came from at most sixteen bins at level 0.
    let level_1 = |count, each| {
        let mut bytes = bins(1, count, each);
        bytes[5..8].copy_from_slice(&[51, 0xff, 0x17]);
        [&bytes[..], &[0, 0]].concat()
    };
    check::<Q>(&level_1(8, 2), "without need");
    assert!(Q::decode(&level_1(9, 2)).is_ok());
    check::<Q>(&level_1(16, 1), "without need");
    let mut outside = level_1(9, 2);
    *outside.last_mut().unwrap() = 2;
    check::<Q>(&outside, "outside its bin");
    check::<Q>(&[0x21, 4, 0, 0, 1, 51, 0xfe, 0x2f, 1], "not shifted as far");
    check::<Q>(&[0x21, 4, 0, 0, 1, 64, 1, 1], "64 or more");
    check::<Q>(&[0x21, 4, 0, 0, 1, 52, 0x80, 0x20, 1], "above all floats");
    check::<Q>(&[0x21, 4, 0, 0, 1, 51, 1, 1], "below all floats");
    let negative_zero = [0x21, 4, 0, 0, 1, 0, 255, 255, 255, 255, 255, 255, 255, 255, 127, 1];
    check::<Q>(&negative_zero, "negative zero");
    let mut many = vec![0x21, 4, 0, 0, 2, 52, 0xff, 0x17];
    many.extend([255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 1]);
    check::<Q>(&many, "more than 2^64 - 1");

    check::<TopK>(&[0x31, 0, 0, 0, 0], "capacity");
    check::<TopK>(&[0x31, 1, 0, 3, 3, 0, 1, 1, 0, 1, 1, 1, 1], "twice the capacity");
    check::<TopK>(&[0x31, 4, 0, 2, 2, 1, 9, 1, 1, 8, 1], "do not ascend");
    check::<TopK>(&[0x31, 4, 0, 2, 2, 1, 9, 1, 1, 9, 1], "do not ascend");
    check::<TopK>(&[0x31, 4, 0, 0, 1, 1, 9, 0], "count 0");
    check::<TopK>(&[0x31, 4, 0, 3, 1, 1, 9, 2], "add up");
    check::<TopK>(&[0x31, 4, 1, 6, 1, 1, 9, 2], "add up");
    assert!(TopK::decode(&[0x31, 4, 1, 7, 1, 1, 9, 2]).is_ok());
    check::<TopK>(&[0x31, 4, 0, 3, 1, 9, 9, 2], "expected there");

    check::<DistinctValues>(&[0x71, 0, 0], "limit");
    check::<DistinctValues>(&[0x71, 1, 3], "more items than the limit");
    check::<DistinctValues>(&[0x71, 1, 2, 0], "more follow");
    check::<DistinctValues>(&[0x71, 4, 2, 1, 9, 1, 8], "do not ascend");
    check::<DistinctValues>(&[0x71, 4, 2, 1, 9, 1, 9], "do not ascend");
    check::<DistinctValues>(&[0x71, 4, 2, 1, 9, 9, 9], "expected there");

    type D = DistinctSample<i128>;
    check::<D>(&[0x81, 0, 0, 0], "not 1 to 2^24");
    check::<D>(&[0x81, 3, 2, 0], "not 0 or 1");
    check::<D>(&[0x81, 1, 0, 2, 1, 8, 0, 1, 9, 0], "more items than it keeps");
    check::<D>(&[0x81, 3, 1, 2, 1, 8, 0, 1, 9, 0], "while there was room");
    check::<D>(&[0x81, 3, 0, 2, 1, 9, 0, 1, 9, 0], "do not ascend");
    check::<D>(&[0x81, 3, 0, 1, 1, 9, 1, 0], "not an exact sum");
    check::<D>(&[0x82, 3, 0, 0], "expected 0x81");
    assert!(D::decode(&[0x81, 2, 1, 2, 1, 8, 0, 1, 9, 0]).is_ok());

    check::<SortedIdSet>(&[0x91, 2, 5, 65, 0, 0, 0, 0, 0, 0, 0, 0, 0], "more than 64 bits");
    check::<SortedIdSet>(&[0x91, 2, 5, 1, 0], "wider than they need");
    check::<SortedIdSet>(&[0x91, 2, 5, 1, 3], "wider than they need");
    check::<SortedIdSet>(&[0x91, 2, 5, 2, 1], "wider than they need");
    assert!(SortedIdSet::decode(&[0x91, 2, 5, 2, 2]).is_ok());
    let last = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    check::<SortedIdSet>(&[&[0x91, 2][..], &last, &[0]].concat(), "does not fit");
    assert!(SortedIdSet::decode(&[&[0x91, 1][..], &last].concat()).is_ok());
    check::<SortedIdSet>(&[0x91, 0xff, 1, 5, 0], "expected there");
    check::<SortedIdSet>(&[0x91, 0, 5], "more follow");

    type B = BootstrapSum;
    check::<B>(&[0xa1, 1, 0], "not 2 to 65535");
    let row =
        |key: u8, value: f64| [&[key, 0, 0, 0, 0, 0, 0, 0][..], &value.to_le_bytes()].concat();
    let rows = |a: Vec<u8>, b: Vec<u8>| [vec![0xa1, 2, 2], a, b].concat();
    assert!(B::decode(&rows(row(1, 2.0), row(1, 2.0))).is_ok());
    check::<B>(&rows(row(2, 2.0), row(1, 2.0)), "do not ascend");
    check::<B>(&rows(row(1, -0.0), row(2, 2.0)), "written as another");
    check::<B>(&rows(row(1, 1.0), row(2, -f64::NAN)), "written as another");
    assert!(B::decode(&[0xa1, 2, 65, 2, 0x41, 0, 2, 0x41, 0, 2, 0x41, 0]).is_ok());
    check::<B>(&[0xa1, 2, 65, 2, 0x41, 0, 2, 0x41, 0], "expected there");
    check::<B>(&[0xa1, 2, 65, 2, 0x41, 0, 2, 0x41, 0, 2, 0x42, 0], "float-sum");

    check::<FloatSum>(&[0x41, 2], "neither 0 nor 1");
    check::<FloatSum>(&[0x41, 1, 0, 0, 0], "all 0");
    check::<FloatSum>(&[0x41, 0, 5], "lowest byte");
    check::<FloatSum>(&[0x41, 0, 5, 0, 1], "lowest byte");
    check::<FloatSum>(&[0x41, 0, 5, 1, 0], "longer than it needs");
    check::<FloatSum>(&[0x41, 0, 5, 0x81, 0xff], "longer than it needs");
    check::<FloatSum>(&[0x41, 0, 1, 1], "below any float");
    assert!(FloatSum::decode(&[0x41, 0, 1, 0x40]).is_ok());
    check::<FloatSum>(&[0x41, 0, 0x90, 2, 1], "larger than");
    assert!(FloatSum::decode(&[0x41, 0, 0x8f, 2, 1]).is_ok());
}
