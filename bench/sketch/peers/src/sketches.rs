//! The sketches, each with the same few calls.

use std::collections::HashSet;
use std::hash::BuildHasher;

use cardinality_estimator::CardinalityEstimator;
use hyperloglogplus::{HyperLogLog, HyperLogLogPlus};
use serde::{Deserialize, Serialize};
use tidemill_sketch::{Estimator, ExplicitThreshold, Hll, HllParams, hash_bytes, hash_i64};
use wyhash::WyHash;

/// A sketch under measurement. The hash is part of an insert.
pub trait Sketch: Clone {
    fn new(log2m: u8) -> Self;
    fn add_integers(&mut self, values: &[i64]);
    fn add_texts(&mut self, values: &[[u8; 10]]);
    fn merge(&mut self, other: &Self);
    fn estimate(&mut self) -> f64;
    fn serialize(&self, out: &mut Vec<u8>);
    fn deserialize(bytes: &[u8]) -> Self;
    /// The standard error that its registers should have.
    fn expected_error(log2m: u8) -> f64 {
        1.04 / f64::from(1u32 << log2m).sqrt()
    }
}

fn ours(log2m: u8) -> Hll {
    // As PostgreSQL has it at 11, as `unique` has it at 14.
    let regwidth = if log2m < 14 { 5 } else { 6 };
    let expthresh = ExplicitThreshold::Automatic;
    Hll::new(HllParams { log2m, regwidth, expthresh, sparse: true }).expect("in range")
}

/// Ours, values in batches.
impl Sketch for Hll {
    fn new(log2m: u8) -> Self {
        ours(log2m)
    }
    fn add_integers(&mut self, values: &[i64]) {
        self.add_i64s(values);
    }
    fn add_texts(&mut self, values: &[[u8; 10]]) {
        self.add_all_bytes(values);
    }
    fn merge(&mut self, other: &Self) {
        Hll::merge(self, other);
    }
    fn estimate(&mut self) -> f64 {
        self.cardinality_by(Estimator::Improved)
    }
    fn serialize(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
    fn deserialize(bytes: &[u8]) -> Self {
        Hll::decode(bytes).expect("just written")
    }
}

/// Ours, one value a call.
#[derive(Clone)]
pub struct OneByOne(Hll);

impl Sketch for OneByOne {
    fn new(log2m: u8) -> Self {
        OneByOne(ours(log2m))
    }
    fn add_integers(&mut self, values: &[i64]) {
        values.iter().for_each(|value| self.0.add_hash(hash_i64(*value)));
    }
    fn add_texts(&mut self, values: &[[u8; 10]]) {
        values.iter().for_each(|value| self.0.add_hash(hash_bytes(value, 0)));
    }
    fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }
    fn estimate(&mut self) -> f64 {
        self.0.cardinality()
    }
    fn serialize(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn deserialize(bytes: &[u8]) -> Self {
        OneByOne(Hll::decode(bytes).expect("just written"))
    }
}

/// Cloudflare's, whose precision is part of its type; one for integers and one for texts, as that is, too.
#[derive(Clone)]
pub struct Cloudflare<const P: usize> {
    integers: CardinalityEstimator<i64, WyHash, P, 6>,
    texts: CardinalityEstimator<[u8], WyHash, P, 6>,
}

impl<const P: usize> Sketch for Cloudflare<P> {
    fn new(log2m: u8) -> Self {
        assert_eq!(usize::from(log2m), P);
        Cloudflare { integers: CardinalityEstimator::new(), texts: CardinalityEstimator::new() }
    }
    fn add_integers(&mut self, values: &[i64]) {
        values.iter().for_each(|value| self.integers.insert(value));
    }
    fn add_texts(&mut self, values: &[[u8; 10]]) {
        values.iter().for_each(|value| self.texts.insert(value.as_slice()));
    }
    fn merge(&mut self, other: &Self) {
        self.integers.merge(&other.integers);
    }
    fn estimate(&mut self) -> f64 {
        (self.integers.estimate() + self.texts.estimate()) as f64
    }
    fn serialize(&self, out: &mut Vec<u8>) {
        bincode::serialize_into(out, &self.integers).expect("to memory");
    }
    fn deserialize(bytes: &[u8]) -> Self {
        let integers = bincode::deserialize(bytes).expect("just written");
        Cloudflare { integers, texts: CardinalityEstimator::new() }
    }
}

/// The hash of Cloudflare's for `hyperloglogplus`, whose users choose one: quicker than the standard library's.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Wy;

impl BuildHasher for Wy {
    type Hasher = WyHash;
    fn build_hasher(&self) -> WyHash {
        WyHash::default()
    }
}

/// HyperLogLog++.
#[derive(Clone)]
pub struct PlusPlus(HyperLogLogPlus<i64, Wy>);

impl Sketch for PlusPlus {
    fn new(log2m: u8) -> Self {
        PlusPlus(HyperLogLogPlus::new(log2m, Wy).expect("in range"))
    }
    fn add_integers(&mut self, values: &[i64]) {
        values.iter().for_each(|value| self.0.insert(value));
    }
    fn add_texts(&mut self, values: &[[u8; 10]]) {
        values.iter().for_each(|value| self.0.insert_any(value.as_slice()));
    }
    fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0).expect("of one precision");
    }
    fn estimate(&mut self) -> f64 {
        self.0.count()
    }
    fn serialize(&self, out: &mut Vec<u8>) {
        bincode::serialize_into(out, &self.0).expect("to memory");
    }
    fn deserialize(bytes: &[u8]) -> Self {
        PlusPlus(bincode::deserialize(bytes).expect("just written"))
    }
}

/// The base line: the standard library's set of all values.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Exact {
    integers: HashSet<i64>,
    texts: HashSet<[u8; 10]>,
}

impl Sketch for Exact {
    fn new(_: u8) -> Self {
        Exact::default()
    }
    fn add_integers(&mut self, values: &[i64]) {
        self.integers.extend(values);
    }
    fn add_texts(&mut self, values: &[[u8; 10]]) {
        self.texts.extend(values);
    }
    fn merge(&mut self, other: &Self) {
        self.integers.extend(&other.integers);
    }
    fn estimate(&mut self) -> f64 {
        (self.integers.len() + self.texts.len()) as f64
    }
    fn serialize(&self, out: &mut Vec<u8>) {
        bincode::serialize_into(out, self).expect("to memory");
    }
    fn deserialize(bytes: &[u8]) -> Self {
        bincode::deserialize(bytes).expect("just written")
    }
    fn expected_error(_: u8) -> f64 {
        0.0
    }
}
