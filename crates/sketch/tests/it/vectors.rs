//! The storage specification's vectors, written by postgresql-hll. They are not part of this
//! crate: without them these tests print a note and pass.

use std::path::Path;

use tidemill_sketch::{Hll, HllStorageDialect, hash_bytes, hash_i64};

/// The dialect of the vectors, which were written after `hll_set_max_sparse(512)`.
const DIALECT: HllStorageDialect = HllStorageDialect::Postgres { sparse_registers_max: Some(512) };

/// The rows of a CSV file after its header.
fn rows(name: &str) -> Option<Vec<Vec<String>>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/hll");
    let Ok(text) = std::fs::read_to_string(Path::new(folder).join(name)) else {
        eprintln!("skipped: the vectors `{name}` are not there");
        return None;
    };
    let rows = text.lines().skip(1).filter(|line| !line.is_empty());
    Some(rows.map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.strip_prefix("\\x").unwrap();
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[track_caller]
fn check(hll: &Hll, cardinality: &str, multiset: &str) {
    let expect: f64 = cardinality.parse().unwrap();
    assert!(
        (hll.cardinality() - expect).abs() <= 1e-14 * expect,
        "{} is not {expect}",
        hll.cardinality()
    );
    assert_eq!(hll.to_bytes(DIALECT), bytes(multiset));
}

#[test]
fn integers_hash_as_in_postgresql() {
    let Some(rows) = rows("murmur_bigint.csv") else { return };
    assert!(rows.len() > 100);
    for row in rows {
        let [seed, key, expect]: [i64; 3] =
            std::array::from_fn(|column| row[column].parse().unwrap());
        let found = hash_bytes(&key.to_le_bytes(), seed.cast_unsigned());
        assert_eq!(found.cast_signed(), expect, "seed {seed}, key {key}");
        if seed == 0 {
            assert_eq!(hash_i64(key), found);
        }
    }
}

#[test]
fn adding_goes_through_postgresqls_states() {
    let Some(rows) = rows("cumulative_add_sparse_edge.csv") else { return };
    assert!(rows.len() > 500);
    let mut hll = Hll::from_bytes(&bytes(&rows[0][2])).unwrap();
    check(&hll, &rows[0][0], &rows[0][2]);
    for row in &rows[1..] {
        let value: i64 = row[1].parse().unwrap();
        hll.add_hash(value.cast_unsigned());
        check(&hll, &row[0], &row[2]);
    }
}

fn unions(name: &str) {
    let Some(rows) = rows(name) else { return };
    assert!(rows.len() > 3);
    let mut union = Hll::from_bytes(&bytes(&rows[0][1])).unwrap();
    for row in &rows {
        let hll = Hll::from_bytes(&bytes(&row[1])).unwrap();
        let expect: f64 = row[0].parse().unwrap();
        assert!((hll.cardinality() - expect).abs() <= 1e-14 * expect);
        union.merge(&hll);
        check(&union, &row[2], &row[3]);

        let mut other_way = hll.clone();
        other_way.merge(&union);
        assert_eq!(other_way, union);
    }
    // Any order and grouping of the same states gives the same bytes.
    let states = || rows.iter().map(|row| Hll::from_bytes(&bytes(&row[1])).unwrap());
    let mut backwards: Vec<Hll> = states().collect();
    while backwards.len() > 1 {
        let last = backwards.pop().unwrap();
        let half = (backwards.len() - 1) / 2;
        backwards[half].merge(&last);
    }
    assert_eq!(backwards[0].to_bytes(DIALECT), union.to_bytes(DIALECT));
}

#[test]
fn unions_are_postgresqls_when_explicit_is_promoted() {
    unions("cumulative_union_explicit_promotion.csv");
}

#[test]
fn unions_are_postgresqls_when_sparse_is_promoted() {
    unions("cumulative_union_sparse_promotion.csv");
}

#[test]
fn unions_are_postgresqls_when_full_becomes_sparse() {
    unions("cumulative_union_sparse_full_representation.csv");
}
