//! Results of the functions of stored sketches, call by call. The sketches of hashes come from PostgreSQL's
//! documentation and from the storage specification.

use arrow::array::{Array, AsArray, BinaryArray, LargeStringArray};
use arrow::datatypes::{DataType, Float64Type};
use tidemill_sketch::{Hll, HllParams, HllStorageDialect};

use super::*;
use crate::test_calls::{check_call_errors, check_calls};

/// Sketches of two values and of one value.
const HLL_OF_TWO_HASHES: &str = r"\x128b7f00000000000000010000000000000002";
const HLL_OF_ONE_HASH: &str = r"\x128b7f0000000000000002";

#[test]
fn hll_functions_match_expected_values() {
    check_calls(&[
        (&format!("hll_cardinality('{HLL_OF_TWO_HASHES}')"), "2.0"),
        (
            &format!(
                "hll_cardinality('{}')",
                HLL_OF_TWO_HASHES.to_uppercase().replace("\\X", "\\x")
            ),
            "2.0",
        ),
        (r"hll_cardinality('\x118b7f')", "0.0"),
        (r"hll_cardinality('\x108b7f')", "NULL"),
        ("hll_cardinality(NULL)", "NULL"),
        (&format!("hll_cardinality('{HLL_OF_TWO_HASHES}', 'ertl')"), "2.0"),
        (&format!("hll_error('{HLL_OF_TWO_HASHES}')"), "0.0"),
        (&format!("hll_error('{HLL_OF_TWO_HASHES}', 'published')"), "0.0"),
        (
            &format!("hll_merge('{HLL_OF_TWO_HASHES}', '{HLL_OF_ONE_HASH}')"),
            &HLL_OF_TWO_HASHES[2..],
        ),
        (r"hll_merge('\x118b7f', NULL)", "NULL"),
        (
            &format!("hll_intersection('{HLL_OF_TWO_HASHES}', '{HLL_OF_ONE_HASH}')"),
            "{value: 1.0, error: 0.0, low: 1.0, high: 1.0}",
        ),
        (
            &format!("hll_difference('{HLL_OF_TWO_HASHES}', '{HLL_OF_ONE_HASH}')"),
            "{value: 1.0, error: 0.0, low: 1.0, high: 1.0}",
        ),
        (
            &format!("hll_jaccard('{HLL_OF_TWO_HASHES}', '{HLL_OF_ONE_HASH}')"),
            "{value: 0.5, error: 0.0, low: 0.5, high: 0.5}",
        ),
        (&format!("hll_intersection('{HLL_OF_TWO_HASHES}', NULL)"), "NULL"),
    ]);
    check_call_errors(&[
        ("hll_cardinality('abc')", "`abc` is no stored sketch"),
        (r"hll_cardinality('\x1')", "an even number"),
        (r"hll_cardinality('\xgg')", "hexadecimal digits"),
        (r"hll_cardinality('\x128b7f00')", "7 more expected"),
        (r"hll_cardinality('\x')", "is no HyperLogLog"),
        (r"hll_cardinality('\x11bf7f')", "must be from 4 to 24"),
        ("hll_cardinality(1)", "it is called as hll_cardinality(s)"),
        ("hll_cardinality('a', 'loglog')", "there is no estimator `loglog`"),
        ("hll_error('a', NULL)", "it is called as hll_error(s)"),
        ("hll_merge('a')", "it is called as hll_merge(a, b)"),
        ("hll_merge('a', 'b', TRUE)", "it is called as hll_merge(a, b)"),
    ]);
}

#[test]
fn id_set_functions_match_expected_values() {
    let set = |ids: &[i64]| {
        let mut bytes = Vec::new();
        let ids: tidemill_sketch::SortedIdSet = ids.iter().map(|id| id.cast_unsigned()).collect();
        ids.encode(&mut bytes);
        bytes.iter().fold(String::from("\\x"), |text, byte| text + &format!("{byte:02x}"))
    };
    let (three, two) = (set(&[7, -1, 1 << 40]), set(&[7, 8]));
    check_calls(&[
        (&format!("id_set_cardinality('{three}')"), "3"),
        (&format!("id_set_ids('{three}')"), "[7, 1099511627776, -1]"),
        (&format!("id_set_contains('{three}', -1)"), "true"),
        (&format!("id_set_contains('{three}', 8)"), "false"),
        (&format!("id_set_contains('{three}', '18446744073709551615'::UInt64)"), "true"),
        (&format!("id_set_contains('{three}', NULL)"), "NULL"),
        (&format!("id_set_merge('{three}', '{two}')"), &set(&[7, 8, -1, 1 << 40])[2..]),
        (&format!("id_set_common('{three}', '{two}')"), &set(&[7])[2..]),
        (&format!("id_set_difference('{two}', '{three}')"), &set(&[8])[2..]),
        (&format!("id_set_jaccard('{three}', '{two}')"), "0.25"),
        (&format!("id_set_jaccard('{two}', '{two}')"), "1.0"),
        (&format!("id_set_jaccard('{0}', '{0}')", set(&[])), "0.0"),
        (&format!("id_set_jaccard('{two}', NULL)"), "NULL"),
        (&format!("id_set_cardinality('{}')", set(&[])), "0"),
        ("id_set_ids(NULL)", "NULL"),
    ]);
    check_call_errors(&[
        (&format!("id_set_cardinality('{HLL_OF_ONE_HASH}')"), "is no set of ids"),
        ("id_set_cardinality('x')", "`x` is no stored sketch"),
        ("id_set_contains('x', 1.5)", "it is called as id_set_contains(s, id)"),
    ]);
}

fn hll_bytes(ids: std::ops::Range<i64>) -> Vec<u8> {
    let params = HllParams { log2m: 11, regwidth: 5, ..HllParams::default() };
    let mut hll = Hll::new(params).unwrap();
    hll.add_i64s(&ids.collect::<Vec<_>>());
    hll.to_bytes(HllStorageDialect::default())
}

#[test]
fn estimate_below_its_error_is_null_unless_forced() {
    let (left, right) = (hll_bytes(0..100_000), hll_bytes(99_000..200_000));
    let columns: [ArrayRef; 2] = [left, right]
        .map(|bytes| std::sync::Arc::new(BinaryArray::from_vec(vec![&bytes])) as ArrayRef);
    let answer = |is_forced: Option<bool>| {
        let mut values: Vec<_> =
            columns.iter().map(|of| datafusion_expr::ColumnarValue::Array(of.clone())).collect();
        values.extend(is_forced.map(|is_forced| {
            datafusion_expr::ColumnarValue::Scalar(datafusion_common::ScalarValue::from(is_forced))
        }));
        let of = hlls::HllFunction::Intersection;
        let answer = of.return_type(&[], &[]).unwrap();
        let found = of
            .calculate(&ArgumentBatch { arguments: &values, row_count: 1, return_type: &answer })
            .unwrap();
        let found = found.as_struct().clone();
        let field = |name: &str| {
            let column = found.column_by_name(name).unwrap().as_primitive::<Float64Type>();
            column.is_valid(0).then(|| column.value(0))
        };
        (field("value"), field("error").unwrap(), field("low").unwrap(), field("high").unwrap())
    };
    let (value, error, low, high) = answer(None);
    assert!(value.is_none() && error > 1_000.0 && low == 0.0 && high > 1_000.0);
    let (value, ..) = answer(Some(true));
    assert!(value.is_some_and(|value| value < error));
    assert_eq!(answer(Some(false)).0, None);
}

#[test]
fn sketch_decodes_equally_from_bytes_and_hex_text() {
    let bytes = hll_bytes(0..5_000);
    let mut text = String::from("\\x");
    bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    assert_eq!(decode_hex_text(&text).unwrap(), bytes);
    let columns: [ArrayRef; 2] = [
        std::sync::Arc::new(BinaryArray::from_vec(vec![&bytes])),
        std::sync::Arc::new(LargeStringArray::from(vec![text])),
    ];
    let answers = columns.map(|column| {
        let values = [datafusion_expr::ColumnarValue::Array(column)];
        let given =
            ArgumentBatch { arguments: &values, row_count: 1, return_type: &DataType::Float64 };
        let found = hlls::HllFunction::Cardinality.calculate(&given).unwrap();
        found.as_primitive::<Float64Type>().value(0)
    });
    assert_eq!(answers[0], answers[1]);
    assert!((answers[0] / 5_000.0 - 1.0).abs() < 0.1);
}
