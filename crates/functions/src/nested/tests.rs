//! Results of the functions of lists and structs, call by call.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int64Array, ListArray, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion_common::ScalarValue;
use datafusion_expr::ColumnarValue;

use crate::test_calls::{
    call_with_columns, check_call_errors, check_calls, evaluate_call, format_value,
};

#[test]
fn list_aggregate_finds_an_aggregate_by_its_name() {
    check_calls(&[
        ("list_aggregate([1, 2, 2], 'SUM')", "5"),
        ("list_aggr([1, 2, 4], 'avg')", "2.3333333333333335"),
        ("array_aggregate([1, 2, 4], 'mean')", "2.3333333333333335"),
        ("array_aggr([NULL::Int64, 2, 1], 'min')", "1"),
        ("list_aggregate([3, 1, NULL, 2], 'min')", "1"),
        ("list_aggregate([3, 1, NULL, 2], 'max')", "3"),
        ("list_aggregate(['b', 'a'], 'min')", "a"),
        ("list_aggregate([1.5, 'NaN'::Float64], 'max')", "NaN"),
        ("list_aggregate([1, NULL], 'first')", "1"),
        ("list_aggregate([1, NULL], 'last')", "NULL"),
        ("list_aggregate([1, NULL], 'arbitrary')", "1"),
        ("list_aggregate([1, NULL], 'any_value')", "1"),
        ("list_aggregate([1, NULL, 1], 'count')", "2"),
        ("list_aggregate([1, NULL, 1], 'approx_count_distinct')", "1"),
        ("list_aggregate([TRUE, FALSE, NULL], 'count_if')", "1"),
        ("list_aggregate([TRUE, NULL], 'bool_and')", "true"),
        ("list_aggregate([FALSE, NULL], 'bool_or')", "false"),
        ("list_aggregate([1, NULL], 'list')", "[1, ]"),
        ("list_aggregate([1, 2], 'product')", "2.0"),
        ("list_aggregate([1e200, 1e200], 'product')", "inf"),
        ("list_aggregate([1e308, 1.0, -1e308], 'fsum')", "1.0"),
        ("list_aggregate([1e308, 1.0, -1e308], 'favg')", "0.3333333333333333"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_cont', 0.25)", "1.75"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', 0.5)", "2"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', 0)", "1"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', 1)", "4"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', -0.25)", "4"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', -0.5)", "3"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', -0.55)", "2"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_disc', -1)", "1"),
        ("list_aggregate([1, 2, 3, 4], 'quantile_cont', -0.25)", "3.25"),
        ("list_aggregate([1, 2, 3, 4, 5], 'quantile_cont', -0.1)", "4.6"),
        ("list_aggregate([10, 20, 30, 40], 'quantile_cont', 0.9)", "37.0"),
        ("list_aggregate([1e308, -1e308], 'quantile_cont', 0.5)", "0.0"),
        ("list_aggregate(['NaN'::Float64, 1.0], 'quantile_cont', 0.5)", "NaN"),
        ("list_aggregate(['a', 'b', 'c'], 'quantile', 1)", "c"),
        ("list_aggregate(['a', NULL, 'b'], 'string_agg', '|')", "a|b"),
        ("list_aggregate([1, 2], 'group_concat')", "1,2"),
        ("list_aggregate(NULL, 'sum')", "NULL"),
        ("list_aggregate(NULL, 'histogram')", "NULL"),
        ("list_aggregate([NULL], 'bit_and')", "NULL"),
        ("list_aggregate([1.5::Decimal128(4, 1), 2.2::Decimal128(4, 1)], 'sum')", "3.7"),
    ]);
    check_call_errors(&[
        ("list_aggregate([1], 'nosuch')", "`list_aggregate` knows no aggregate `nosuch`"),
        ("list_aggregate([1], NULL)", "takes the name of an aggregate, a constant"),
        ("list_aggregate([1], 'sum', 2)", "it is called as list_aggregate(list, 'name')"),
        ("list_aggregate([1], 'quantile_cont')", "takes other arguments than"),
        ("list_aggregate([1], 'quantile_cont', -1.25)", "a quantile's fraction is -1.25"),
        ("list_aggregate([1], 'quantile_disc', 1.5)", "a quantile's fraction is 1.5"),
        ("list_aggregate([1], 'quantile_disc', 'NaN'::Float64)", "a quantile's fraction is NaN"),
        ("list_aggregate(['a'], 'stddev')", "takes other arguments than (TEXT[], TEXT)"),
        ("list_aggregate(1, 'sum')", "takes other arguments than (BIGINT, TEXT)"),
        ("list_aggregate([9223372036854775807, 1], 'sum')", "does not fit the type of its answer"),
    ]);
}

#[test]
fn aggregates_of_no_items_are_null_and_counts_zero() {
    const COUNTS: [&str; 3] = ["count", "approx_count_distinct", "entropy"];
    for name in [
        "first",
        "any_value",
        "min",
        "max",
        "mode",
        "median",
        "mad",
        "sum",
        "avg",
        "fsum",
        "favg",
        "product",
        "var_pop",
        "var_samp",
        "stddev",
        "stddev_pop",
        "sem",
        "skewness",
        "kurtosis",
        "kurtosis_pop",
        "histogram",
        "bit_and",
        "bit_or",
        "bit_xor",
        "list",
        "string_agg",
    ] {
        for list in ["[]::List(Int64)", "[NULL::Int64]"] {
            let found = evaluate_call(&format!("list_aggregate({list}, '{name}')")).unwrap();
            let expected = if name == "list" && list.contains("NULL") { "[]" } else { "NULL" };
            assert_eq!(found, expected, "{name} of {list}");
        }
    }
    for name in COUNTS {
        for list in ["[]::List(Int64)", "[NULL::Int64]"] {
            let found = evaluate_call(&format!("list_aggregate({list}, '{name}')")).unwrap();
            assert!(found == "0" || found == "0.0", "{name} of {list}: {found}");
        }
    }
}

/// Expected values from DuckDB 2.0, except for the last digits.
#[test]
fn statistics_of_lists_are_those_of_duckdb() {
    check_calls(&[
        ("list_mad([1, 2, 4, 10])", "1.5"),
        ("list_mad(['NaN'::Float64, 2.0, 4.0])", "2.0"),
        ("list_mad([DATE '2020-01-01', DATE '2020-01-02', DATE '2021-01-01'])", "1 days"),
        ("list_mad([TIME '10:00:00', TIME '12:00:00'])", "1 hours"),
        ("list_median(['a', 'b'])", "a"),
        ("list_median([DATE '2020-01-01', DATE '2020-01-02'])", "2020-01-01T12:00:00"),
        (
            "list_median([TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP '2020-01-02 00:00:00'])",
            "2020-01-01T12:00:00",
        ),
        ("list_median(['NaN'::Float64, 1.0, 2.0, 1e400])", "inf"),
        ("list_skewness([1, 2, 4])", "0.9352195295828248"),
        ("list_skewness([1, 2])", "NULL"),
        ("list_skewness([0.1, 0.1, 0.1])", "NULL"),
        ("list_kurtosis([1, 2, 4])", "NULL"),
        ("list_kurtosis([1, 2, 4, 8])", "0.7576559546313795"),
        ("list_kurtosis_pop([1])", "NULL"),
        ("list_kurtosis_pop([1, 2, 4, 8])", "-1.0989792060491494"),
        ("list_var_samp([1])", "NULL"),
        ("list_var_pop([1])", "0.0"),
        ("list_var_pop([1e400, 1.0])", "NaN"),
        ("list_var_pop([1e301, -1e301])", "inf"),
        ("list_var_pop([1e-301, -1e-301])", "0.0"),
        ("list_sem([1, 2, 3])", "0.4714045207910317"),
        ("list_entropy([0.0, -0.0])", "0.0"),
        ("list_entropy([1, 2, 3, NULL])", "1.584962500721156"),
        ("list_mode([1, 2, 2, 1, NULL, NULL, NULL])", "1"),
        ("list_mode([[1], [1], [0]])", "[1]"),
        ("list_histogram([1.0, 'NaN'::Float64, 'NaN'::Float64, 1.0])", "{1.0: 2, NaN: 2}"),
        ("list_bit_and([5::Int8, 7::Int8])", "5"),
        ("list_bit_xor([5, -1])", "-6"),
        ("list_bit_or(['18446744073709551614'::UInt64, 1::UInt64])", "18446744073709551615"),
        ("list_string_agg([1, NULL, 2], NULL)", "NULL"),
        ("list_bool_and([NULL::Boolean])", "NULL"),
        ("list_avg([9007199254740993, 0, 0])", "3002399751580331.0"),
    ]);
    check_call_errors(&[
        ("list_skewness(['NaN'::Float64, 2.0, 3.0])", "`list_skewness` has no answer for a number"),
        ("list_kurtosis([1e400, 1.0, 2.0, 3.0])", "that is infinite or NaN"),
        ("list_bit_or([5.5])", "takes other arguments than (DOUBLE[])"),
        ("list_mad(['a'])", "takes other arguments than (TEXT[])"),
    ]);
}

/// Expected values calculated with sixty digits.
#[test]
fn statistics_keep_their_digits_at_any_size_and_beside_any_mean() {
    let skewed = [1.0, 2.0, 4.0, 8.0];
    let check = |name: &str, numbers: &[f64], expected: f64| {
        let call = format!("{name}({numbers:?})");
        let found: f64 = evaluate_call(&call).unwrap().parse().unwrap();
        let error = (found - expected).abs();
        assert!(error <= expected.abs() * 1e-14, "{call} is {found}, and not {expected}");
    };
    for scale in [1e-320, 1e-200, 1e-90, 1.0, 1e90, 1e300] {
        let numbers = skewed.map(|number| number * scale);
        // Subnormal numbers are themselves rounded.
        if scale > 1e-300 {
            check("list_skewness", &numbers, 1.1376243669576889);
            check("list_kurtosis", &numbers, 0.7576559546313799);
            check("list_kurtosis_pop", &numbers, -1.0989792060491494);
            check("list_stddev_pop", &numbers, 2.680951323690902 * scale);
            check("list_stddev_samp", &numbers, 3.095695936834452 * scale);
            check("list_sem", &numbers, 1.340475661845451 * scale);
        }
        assert_ne!(evaluate_call(&format!("list_skewness({numbers:?})")).unwrap(), "NULL");
    }
    for mean in [1e3, 1e9, -1e12, 1e15] {
        let numbers = skewed.map(|number| number + mean);
        check("list_skewness", &numbers, 1.1376243669576889);
        check("list_kurtosis", &numbers, 0.7576559546313799);
        check("list_var_pop", &numbers, 7.1875);
        check("list_var_samp", &numbers, 9.583333333333334);
    }
}

#[test]
fn one_number_that_is_not_finite_has_no_variance() {
    check_calls(&[
        ("list_var_pop([1e400])", "NaN"),
        ("list_var_pop(['NaN'::Float64])", "NaN"),
        ("list_stddev_pop([1e400])", "NaN"),
        ("list_sem(['NaN'::Float64])", "NaN"),
        ("list_var_pop([1e400, 1e400])", "NaN"),
        ("list_var_samp([-1e400])", "NULL"),
        ("list_var_pop([7])", "0.0"),
    ]);
}

/// Lists of lists of two zeros, and of two NaNs, as columns of one row.
#[test]
fn floats_within_items_have_one_zero_and_one_nan() {
    let nan = f64::from_bits(f64::NAN.to_bits() | 1);
    let pairs = [vec![0.0, f64::NAN], vec![-0.0, nan], vec![1.0, -f64::NAN]];
    let of = |name: &str, items: ArrayRef| {
        let offsets = OffsetBuffer::from_lengths([items.len()]);
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        let list: ArrayRef = Arc::new(ListArray::new(field, offsets, items, None));
        let name = ColumnarValue::Scalar(ScalarValue::from(name));
        let found =
            call_with_columns("list_aggregate", &[ColumnarValue::Array(list), name], 1).unwrap();
        format_value(&ScalarValue::try_from_array(&found.to_array(1).unwrap(), 0).unwrap())
    };
    let numbers = pairs.iter().map(|pair| Some(pair.iter().copied().map(Some)));
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(numbers);
    let column = |at: usize| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(pairs.iter().map(|pair| pair[at])))
    };
    let structs: ArrayRef =
        Arc::new(StructArray::try_from(vec![("x", column(0)), ("y", column(1))]).unwrap());
    let fixed = FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Float64, true)),
        2,
        Arc::clone(lists.values()),
        None,
    );
    let of_lists = StructArray::try_from(vec![("l", Arc::new(lists.clone()) as ArrayRef)]).unwrap();
    for items in [Arc::new(lists) as ArrayRef, structs, Arc::new(fixed), Arc::new(of_lists)] {
        let of_type = items.data_type().clone();
        assert_eq!(of("count_distinct", Arc::clone(&items)), "2", "{of_type}");
        // The mode is the first of two equal items.
        let mode = of("mode", items);
        assert!(mode.contains("0.0") && !mode.contains("-0.0"), "{of_type}: {mode}");
    }
}

#[test]
fn cosine_similarity_does_not_depend_on_magnitude() {
    for size in ["1e-320", "1e-200", "1.0", "1e200", "1.7e308"] {
        let lists = format!("[{size}, {size}], [0.0, {size}]");
        let found: f64 =
            evaluate_call(&format!("list_cosine_similarity({lists})")).unwrap().parse().unwrap();
        assert!((found - 0.5f64.sqrt()).abs() < 1e-15, "{size}: {found}");
        let found: f64 =
            evaluate_call(&format!("list_cosine_distance({lists})")).unwrap().parse().unwrap();
        assert!((found - (1.0 - 0.5f64.sqrt())).abs() < 1e-15, "{size}: {found}");
    }
    check_calls(&[
        ("list_cosine_similarity([1e200, 1e-200], [1e-200, 1e-200])", "0.7071067811865476"),
        ("list_cosine_similarity([1e400, 1.0], [1.0, 1.0])", "NaN"),
        ("list_cosine_similarity(['NaN'::Float64, 1e300], [1.0, 1.0])", "NaN"),
    ]);
}

#[test]
fn vector_functions_match_expected_values() {
    check_calls(&[
        ("list_inner_product([]::List(Float64), []::List(Float64))", "0.0"),
        ("list_dot_product([1, 2], [3, 4])", "11.0"),
        ("array_negative_dot_product([1, 2], [3, 4])", "-11.0"),
        ("array_cosine_distance([2, 2, 2], [-2, -2, -2])", "2.0"),
        ("list_cosine_similarity([0], [0])", "NaN"),
        ("list_cosine_similarity([]::List(Float64), []::List(Float64))", "NULL"),
        ("array_cross_product([-1, -2, 3], [4, 0, -8])", "[16.0, 4.0, 8.0]"),
        ("array_cross_product([1, 2, 3], NULL)", "NULL"),
    ]);
    check_call_errors(&[
        ("list_inner_product([1], [1, 2])", "two have 1 and 2 items"),
        ("list_inner_product([1, NULL], [1, 2])", "takes lists without NULL"),
        ("array_cross_product([1, 2], [1, 2])", "takes lists of 3 items, and two have 2"),
        ("list_inner_product(['a'], ['b'])", "takes other arguments"),
    ]);
}

/// A struct of `a` 1 and `A` 2, whose fields differ only in case.
#[test]
fn field_with_exact_case_takes_precedence() {
    let field = |name: &str, value: i64| {
        (Arc::new(Field::new(name, DataType::Int64, true)), {
            Arc::new(Int64Array::from(vec![value])) as ArrayRef
        })
    };
    let both = ScalarValue::Struct(Arc::new(StructArray::from(vec![field("a", 1), field("A", 2)])));
    let of = |name: &str, fields: &[(&str, i64)]| {
        let given = fields.iter().flat_map(|(name, value)| {
            [ScalarValue::from(*name), ScalarValue::from(*value)].map(ColumnarValue::Scalar)
        });
        let given: Vec<_> =
            std::iter::once(ColumnarValue::Scalar(both.clone())).chain(given).collect();
        let found = call_with_columns(name, &given, 1).map_err(|error| error.to_string())?;
        let found = ScalarValue::try_from_array(&found.to_array(1).unwrap(), 0).unwrap();
        Ok::<_, String>(format_value(&found))
    };
    for (fields, expected) in [
        (&[("A", 5)][..], "{a: 1, A: 5}"),
        (&[("a", 5)], "{a: 5, A: 2}"),
        (&[("A", 5), ("a", 6)], "{a: 6, A: 5}"),
        (&[("b", 5), ("A", 6)], "{a: 1, A: 6, b: 5}"),
    ] {
        assert_eq!(of("struct_update", fields).unwrap(), expected, "{fields:?}");
    }
    for (name, fields) in [
        ("struct_update", &[("A", 5), ("A", 6)][..]),
        ("struct_update", &[("b", 5), ("B", 6)]),
        ("struct_insert", &[("A", 5)]),
        ("struct_insert", &[("b", 5), ("B", 6)]),
    ] {
        let refused = of(name, fields).unwrap_err();
        assert!(refused.contains("would give a struct the field"), "{name}{fields:?}: {refused}");
    }
}

#[test]
fn struct_update_and_insert_set_fields() {
    check_calls(&[
        (
            "struct_update(date_parts('year', 'doy', DATE '2026-11-20'), 'z', 1, 'YEAR', NULL)",
            "{YEAR: , doy: 324, z: 1}",
        ),
        ("struct_insert(date_parts('year', NULL), 'a', 1)", "{year: , a: 1}"),
    ]);
    check_call_errors(&[
        (
            "struct_insert(date_parts('year', DATE '2026-11-20'), 'Year', 1)",
            "would give a struct the field `Year` twice",
        ),
        (
            "struct_update(date_parts('year', DATE '2026-11-20'), 'a', 1, 'a', 2)",
            "would give a struct the field `a` twice",
        ),
        ("struct_update(1, 'a', 1)", "it is called as struct_update(s, 'name', value, …)"),
        ("struct_update(date_parts('year', DATE '2026-11-20'))", "takes other arguments"),
    ]);
}
