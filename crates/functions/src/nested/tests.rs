//! Calls of the functions of lists and structs, and their answers.

use crate::trial::{answer, check, check_refused};

#[test]
fn list_aggregate_finds_an_aggregate_by_its_name() {
    check(&[
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
        ("list_aggregate(['a', 'b', 'c'], 'quantile', 1)", "c"),
        ("list_aggregate(['a', NULL, 'b'], 'string_agg', '|')", "a|b"),
        ("list_aggregate([1, 2], 'group_concat')", "1,2"),
        ("list_aggregate(NULL, 'sum')", "NULL"),
        ("list_aggregate(NULL, 'histogram')", "NULL"),
        ("list_aggregate([NULL], 'bit_and')", "NULL"),
        ("list_aggregate([1.5::Decimal128(4, 1), 2.2::Decimal128(4, 1)], 'sum')", "3.7"),
    ]);
    check_refused(&[
        ("list_aggregate([1], 'nosuch')", "`list_aggregate` knows no aggregate `nosuch`"),
        ("list_aggregate([1], NULL)", "takes the name of an aggregate, a constant"),
        ("list_aggregate([1], 'sum', 2)", "it is called as list_aggregate(list, 'name')"),
        ("list_aggregate([1], 'quantile_cont')", "takes other arguments than"),
        ("list_aggregate([1], 'quantile_cont', -0.25)", "a quantile's fraction is -0.25"),
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
            let found = answer(&format!("list_aggregate({list}, '{name}')")).unwrap();
            let expected = if name == "list" && list.contains("NULL") { "[]" } else { "NULL" };
            assert_eq!(found, expected, "{name} of {list}");
        }
    }
    for name in COUNTS {
        for list in ["[]::List(Int64)", "[NULL::Int64]"] {
            let found = answer(&format!("list_aggregate({list}, '{name}')")).unwrap();
            assert!(found == "0" || found == "0.0", "{name} of {list}: {found}");
        }
    }
}

/// Answers of DuckDB 2.0, to the last digits.
#[test]
fn statistics_of_lists_are_those_of_duckdb() {
    check(&[
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
        ("list_skewness([1, 2, 4])", "0.9352195295828234"),
        ("list_skewness([1, 2])", "NULL"),
        ("list_skewness([0.1, 0.1, 0.1])", "NULL"),
        ("list_kurtosis([1, 2, 4])", "NULL"),
        ("list_kurtosis([1, 2, 4, 8])", "0.7576559546313795"),
        ("list_kurtosis_pop([1])", "NULL"),
        ("list_kurtosis_pop([1, 2, 4, 8])", "-1.0989792060491494"),
        ("list_var_samp([1])", "NULL"),
        ("list_var_pop([1])", "0.0"),
        ("list_var_pop([1e400, 1.0])", "NaN"),
        ("list_stddev_samp([1e301, -1e301])", "inf"),
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
    check_refused(&[
        ("list_skewness(['NaN'::Float64, 2.0, 3.0])", "`list_skewness` of numbers this large"),
        ("list_kurtosis([1e400, 1.0, 2.0, 3.0])", "`list_kurtosis` of numbers this large"),
        ("list_bit_or([5.5])", "takes other arguments than (DOUBLE[])"),
        ("list_mad(['a'])", "takes other arguments than (TEXT[])"),
    ]);
}

#[test]
fn vectors_have_products_and_distances() {
    check(&[
        ("list_inner_product([]::List(Float64), []::List(Float64))", "0.0"),
        ("list_dot_product([1, 2], [3, 4])", "11.0"),
        ("array_negative_dot_product([1, 2], [3, 4])", "-11.0"),
        ("array_cosine_distance([2, 2, 2], [-2, -2, -2])", "2.0"),
        ("list_cosine_similarity([0], [0])", "NaN"),
        ("list_cosine_similarity([]::List(Float64), []::List(Float64))", "NULL"),
        ("array_cross_product([-1, -2, 3], [4, 0, -8])", "[16.0, 4.0, 8.0]"),
        ("array_cross_product([1, 2, 3], NULL)", "NULL"),
    ]);
    check_refused(&[
        ("list_inner_product([1], [1, 2])", "two have 1 and 2 items"),
        ("list_inner_product([1, NULL], [1, 2])", "takes lists without NULL"),
        ("array_cross_product([1, 2], [1, 2])", "takes lists of 3 items, and two have 2"),
        ("list_inner_product(['a'], ['b'])", "takes other arguments"),
    ]);
}

#[test]
fn structs_get_other_fields() {
    check(&[
        (
            "struct_update(date_parts('year', 'doy', DATE '2026-11-20'), 'z', 1, 'YEAR', NULL)",
            "{YEAR: , doy: 324, z: 1}",
        ),
        ("struct_insert(date_parts('year', NULL), 'a', 1)", "{year: , a: 1}"),
    ]);
    check_refused(&[
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
