//! Results of the functions of numbers and of values of any type, call by call.

use crate::test_calls::{check_call_errors, check_calls, evaluate_call};

/// Expected values from another implementation, written from the layout in the header of `hashes`.
#[test]
fn hash_values_follow_the_documented_layout() {
    check_calls(&[
        ("hash(NULL)", "16804241149081757544"),
        ("hash(1)", "8872220978401710467"),
        ("hash(1::Int8)", "8872220978401710467"),
        ("hash(1::UInt64)", "8872220978401710467"),
        ("hash('18446744073709551615'::UInt64)", "896958318687799551"),
        ("hash(1.5)", "4025879017986559845"),
        ("hash(1.5::Float32)", "4025879017986559845"),
        ("hash(-0.0)", "8246226261626403269"),
        ("hash(0.0)", "8246226261626403269"),
        ("hash(TRUE)", "1958330602912918803"),
        ("hash(DATE '2026-11-20')", "10342413728218491986"),
        ("hash(DATE '2026-11-20'::Date64)", "10342413728218491986"),
        ("hash(TIMESTAMP '2026-11-20 08:05:00')", "10613117119403302815"),
        ("hash(TIMESTAMPTZ '2026-11-20 08:05:00')", "10613117119403302815"),
        ("hash(TIMESTAMP '2026-11-20 08:05:00'::Timestamp(Second, None))", "10613117119403302815"),
        ("hash(TIME '00:00:01.5')", "12673974276577947791"),
        ("hash(INTERVAL '1 month 2 days 3 seconds')", "13908905701889075036"),
        ("hash([1, NULL])", "12939115672630030467"),
        ("hash([1::Int8, NULL])", "12939115672630030467"),
        ("hash(2.5::Decimal128(5, 1))", "10698311981166867122"),
        ("hash(2.5::Decimal128(20, 9))", "10698311981166867122"),
        ("hash('a', 1)", "3367035323981720327"),
        ("hash('a'::Utf8View, 1::Int16)", "3367035323981720327"),
        ("hash('a'::Dictionary(Int32, Utf8), 1)", "3367035323981720327"),
    ]);
    check_call_errors(&[("hash()", "it is called as hash(x, …)")]);
}

#[test]
fn digests_match_published_values() {
    check_calls(&[
        ("md5('')", "d41d8cd98f00b204e9800998ecf8427e"),
        ("md5('abc'::Binary)", "900150983cd24fb0d6963f7d28e17f72"),
        ("md5('abc'::Dictionary(Int32, Utf8))", "900150983cd24fb0d6963f7d28e17f72"),
        ("sha1('')", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("sha256('')", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("sha2('', 0)", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("sha2(NULL, 256)", "NULL"),
        ("md5(NULL)", "NULL"),
        ("crc32('123456789')", "3421780262"),
        ("xxhash64('')", "17241709254077376921"),
        ("xxhash64('abc'::LargeBinary)", "4952883123889572249"),
    ]);
    check_call_errors(&[
        ("sha2('abc', 100)", "`sha2` has no digest of 100 bits"),
        ("md5(1)", "takes other arguments than (BIGINT)"),
    ]);
}

#[test]
fn buckets_bars_and_sizes_match_expected_values() {
    check_calls(&[
        ("width_bucket(-1, 0, 100, 10)", "0"),
        ("width_bucket(0, 0, 100, 10)", "1"),
        ("width_bucket(99.999, 0, 100, 10)", "10"),
        ("width_bucket(100, 0, 100, 10)", "11"),
        ("width_bucket(5.35, 0.024, 10.06, 5)", "3"),
        ("width_bucket(0, 100, 0, 10)", "11"),
        ("width_bucket(100, 100, 0, 10)", "1"),
        ("width_bucket(1, 100, 0, 10)", "10"),
        ("width_bucket(1e308, -1.7e308, 1.7e308, 4)", "4"),
        ("width_bucket(NULL, 0, 100, 10)", "NULL"),
        ("bar(0, 0, 10, 10)", ""),
        ("bar(10, 0, 10, 10)", "██████████"),
        ("bar(99, 0, 10, 3)", "███"),
        ("bar(1, 0, 8, 1)", "▏"),
        ("bar(5, 5, 5, 3)", ""),
        ("bar(NULL, 0, 10)", "NULL"),
        ("format_bytes(0)", "0 bytes"),
        ("format_bytes(1)", "1 byte"),
        ("format_bytes(1023)", "1023 bytes"),
        ("format_bytes(1024)", "1.0 KiB"),
        ("format_bytes(-1)", "-1 byte"),
        ("format_bytes(1587)", "1.5 KiB"),
        ("format_bytes(1048575)", "1023.9 KiB"),
        ("format_bytes(1153536)", "1.0 MiB"),
        ("format_bytes(1154048)", "1.1 MiB"),
        ("format_bytes(-1048576)", "-1.0 MiB"),
        ("format_bytes(9223372036854775807)", "8191.9 PiB"),
        ("format_bytes('-9223372036854775808'::Int64)", "-8192.0 PiB"),
        ("format_bytes('18446744073709551615'::UInt64)", "16383.9 PiB"),
        ("format_bytes(1536.7)", "1.5 KiB"),
        ("format_bytes(NULL)", "NULL"),
        ("parse_formatted_bytes('0 B')", "0"),
        ("parse_formatted_bytes('1 byte')", "1"),
        ("parse_formatted_bytes('  2  mib  ')", "2097152"),
        ("parse_formatted_bytes('5MB')", "5000000"),
        ("parse_formatted_bytes('.5 k')", "500"),
        ("parse_formatted_bytes('1e3b')", "1000"),
        ("parse_formatted_bytes('1e-3 kb')", "1"),
        ("parse_formatted_bytes('1.9 b')", "1"),
        ("parse_formatted_bytes('-0 MB')", "0"),
        ("parse_formatted_bytes('18446744073709549568 b')", "18446744073709549568"),
        ("parse_formatted_bytes('3 GiB'::Dictionary(Int32, Utf8))", "3221225472"),
        ("parse_formatted_bytes(NULL)", "NULL"),
        ("formatreadablesize(1)", "1.00 B"),
        ("formatreadablesize(1073741824)", "1.00 GiB"),
        ("formatreadablequantity(12)", "12.00"),
        ("formatreadablequantity(1234)", "1.23 thousand"),
        ("formatreadablequantity(1e18)", "1000.00 quadrillion"),
    ]);
    check_call_errors(&[
        ("width_bucket(1, 5, 5, 10)", "bounds are two different numbers"),
        ("width_bucket(1, 0, 5, 0)", "has no 0 buckets"),
        ("parse_formatted_bytes('abc')", "a number stands before its unit"),
        ("parse_formatted_bytes('1.5.3 GB')", "a number stands before its unit"),
        ("parse_formatted_bytes('inf GiB')", "a number stands before its unit"),
        ("parse_formatted_bytes('é')", "a number stands before its unit"),
        ("parse_formatted_bytes('5')", "units are B, KB"),
        ("parse_formatted_bytes('1 Ki')", "units are B, KB"),
        ("parse_formatted_bytes('1e b')", "units are B, KB"),
        ("parse_formatted_bytes('-5 MB')", "it is from 0 B"),
        ("parse_formatted_bytes('18446744073709551615 b')", "it is from 0 B"),
        ("parse_formatted_bytes('1e400 b')", "it is from 0 B"),
        ("parse_formatted_bytes(5)", "takes other arguments than (BIGINT)"),
        ("bar(1, 0, 10, 100000)", "is not 100000 letters wide"),
        ("bar('x', 0, 10)", "takes other arguments"),
    ]);
}

#[test]
fn bits_round_trip_through_digit_functions() {
    check_calls(&[
        ("bit_count(-1)", "64"),
        ("bit_count(0)", "0"),
        ("bit_count('18446744073709551615'::UInt64)", "64"),
        ("bin(0)", "0"),
        ("bin(5::Int8)", "101"),
        ("bin(-1)", "1111111111111111111111111111111111111111111111111111111111111111"),
        ("hex(0)", "0"),
        ("hex(-1)", "FFFFFFFFFFFFFFFF"),
        ("hex('')", ""),
        ("hex('ä')", "C3A4"),
        ("hex('abc'::Binary)", "616263"),
        ("hex('abc'::Dictionary(Int32, Utf8))", "616263"),
        ("hex(NULL)", "NULL"),
        ("hex(unhex('aBc'))", "0ABC"),
        ("hex(unhex(''))", ""),
        ("from_hex(NULL)", "NULL"),
    ]);
    check_call_errors(&[
        ("unhex('xy')", "`xy` does not fit bytes in hexadecimal digits"),
        ("unhex('ä')", "hexadecimal digits"),
        ("hex(1.5)", "takes other arguments"),
    ]);
}

#[test]
fn formulas_return_expected_values() {
    check_calls(&[
        ("even(0)", "0.0"),
        ("even(2)", "2.0"),
        ("even(3)", "4.0"),
        ("even(-2.1)", "-4.0"),
        ("gamma(6)", "120.0"),
        ("lgamma(3)", "0.6931471805599453"),
        ("hypot(1e200, 0)", "1e200"),
        ("try_divide(NULL, 0)", "NULL"),
        ("try_divide(7, 2)", "3.5"),
        ("isfinite(NULL)", "NULL"),
        ("isinf(1e400)", "true"),
        ("is_nan(1)", "false"),
        ("sign(0)", "0"),
        ("sign(7)", "1"),
        ("sign(-0.5)", "-1"),
        ("sign('18446744073709551615'::UInt64)", "1"),
        ("sign(NULL)", "NULL"),
        ("signbit(-1e400)", "true"),
        ("signbit(NULL)", "NULL"),
        ("nextafter(99, 1)", "98.99999999999999"),
        ("nextafter(1::Float32, 2::Float32)", "1.0000001"),
        ("nextafter(1, 1)", "1.0"),
        ("nextafter(0, -1)", "-5e-324"),
        ("nextafter(1e400, 0)", "1.7976931348623157e308"),
        ("nextafter('NaN'::Float64, 1)", "NaN"),
        ("nextafter(1, NULL)", "NULL"),
        ("binom(6, 8)", "0"),
        ("binom(0, 0)", "1"),
        ("binom(100, 98)", "4950"),
        ("binom(130, 65)", "95067625827960698145584333020095113100"),
        ("binom(9223372036854775807, 1)", "9223372036854775807"),
        ("binom(NULL, 3)", "NULL"),
        ("typeof(NULL)", "NULL"),
        ("typeof(1)", "BIGINT"),
        ("typeof('a'::Dictionary(Int32, Utf8))", "TEXT"),
        ("typeof(TIMESTAMP '2026-01-01 00:00:00')", "TIMESTAMP(6)"),
        ("typeof(TIMESTAMPTZ '2026-01-01 00:00:00')", "TIMESTAMP(6) WITH TIME ZONE"),
        ("typeof(INTERVAL '1 day')", "INTERVAL"),
        ("typeof(1::Decimal128(5, 2))", "DECIMAL(5, 2)"),
    ]);
    check_call_errors(&[
        ("gamma(0)", "`gamma` of 0 has no answer"),
        ("lgamma(-2)", "`lgamma` of -2 has no answer"),
        ("error('no such shop')", "no such shop"),
        ("even('x')", "takes other arguments"),
        ("hypot(1)", "it is called as hypot(x, y)"),
        ("binom(-5, 2)", "`binom` of -5 and 2 has no answer"),
        ("binom(200, 100)", "does not fit DECIMAL(38, 0)"),
    ]);
}

/// Expected values from DuckDB 2.0, except for round bounds of negative maxima, which DuckDB puts one width
/// too high.
#[test]
fn equi_width_bins_match_duckdb() {
    check_calls(&[
        ("equi_width_bins(0, 10, 2, TRUE)", "[5, 10]"),
        ("equi_width_bins(0, 5, 10, TRUE)", "[0, 1, 2, 3, 4, 5]"),
        ("equi_width_bins(-10, 10, 5, TRUE)", "[-5, 0, 5, 10]"),
        ("equi_width_bins(0, 3, 1, TRUE)", "[5]"),
        (
            "equi_width_bins(0, 1734, 10, TRUE)",
            "[200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800]",
        ),
        (
            "equi_width_bins(1, 6000000, 7, TRUE)",
            "[1000000, 2000000, 3000000, 4000000, 5000000, 6000000]",
        ),
        (
            "equi_width_bins(-9223372036854775808, 9223372036854775807, 5, TRUE)",
            "[-5000000000000000000, 0, 5000000000000000000, 9223372036854775807]",
        ),
        ("equi_width_bins(-20, -10, 5, TRUE)", "[-18, -16, -14, -12, -10]"),
        ("equi_width_bins(5, 5, 5, TRUE)", "[5]"),
        ("equi_width_bins(0, 7, 3, FALSE)", "[2, 4, 7]"),
        ("equi_width_bins(-7, 0, 3, FALSE)", "[-4, -2, 0]"),
        ("equi_width_bins(0, 10, 5999, TRUE)", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"),
        ("equi_width_bins(0, 10, 5999, FALSE)", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"),
        ("equi_width_bins(0.0, 9.0, 7, TRUE)", "[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]"),
        ("equi_width_bins(-1.0, 1.0, 5, TRUE)", "[-0.5, 0.0, 0.5, 1.0]"),
        ("equi_width_bins(0.0, 6.347, 3, TRUE)", "[2.0, 4.0, 6.0, 8.0]"),
        ("equi_width_bins(0, 101.5, 5, TRUE)", "[20.0, 40.0, 60.0, 80.0, 100.0, 120.0]"),
        ("equi_width_bins(0.0, 1.0, 4, FALSE)", "[0.25, 0.5, 0.75, 1.0]"),
        ("equi_width_bins(5.0, 5.0, 5, TRUE)", "[5.0]"),
        (
            "equi_width_bins(-1e308, 1e308, 5, TRUE)",
            "[-4.999999999999999e307, 0.0, 4.999999999999999e307, 9.999999999999998e307, 1.4999999999999998e308]",
        ),
        // A range wider than the largest DOUBLE.
        ("equi_width_bins(-1.7e308, 1.7e308, 1, FALSE)", "[1.7e308]"),
        ("equi_width_bins(-1.7e308, 1.7e308, 1, TRUE)", "[1.7e308]"),
        ("equi_width_bins(-1.7e308, 1.7e308, 2, FALSE)", "[0.0, 1.7e308]"),
        // A range narrower than the spacing of the numbers at its ends.
        ("equi_width_bins(1.0, 1.0000000000000002, 4, FALSE)", "[1.0000000000000002]"),
        ("equi_width_bins(1.0, 1.0000000000000002, 4, TRUE)", "[1.0000000000000002]"),
        ("equi_width_bins(0.0, 5e-324, 4, TRUE)", "[5e-324]"),
        ("equi_width_bins(0.0, 1.0, 5, FALSE)", "[0.2, 0.4, 0.6, 0.8, 1.0]"),
        ("equi_width_bins(NULL, 5, 5, TRUE)", "NULL"),
        (
            "equi_width_bins(DATE '2020-01-15', DATE '2020-12-20', 4, TRUE)",
            "[2020-04-11, 2020-07-04, 2020-09-27, 2020-12-20]",
        ),
        (
            "equi_width_bins(DATE '2020-01-15', DATE '2020-12-20', 4, FALSE)",
            "[2020-04-09, 2020-07-03, 2020-09-26, 2020-12-20]",
        ),
        (
            "equi_width_bins(TIMESTAMP '1992-01-01 12:23:37', TIMESTAMP '2000-01-01 04:03:21', 2, TRUE)",
            "[1996-02-01T00:00:00, 2000-02-01T00:00:00]",
        ),
        (
            "equi_width_bins(TIMESTAMP '1992-01-01 01:23:37.999', TIMESTAMP '1992-01-01 23:03:21.3', 4, TRUE)",
            "[1992-01-01T07:30:00, 1992-01-01T13:00:00, 1992-01-01T18:30:00, 1992-01-02T00:00:00]",
        ),
        (
            "equi_width_bins(TIMESTAMP '1992-01-01 01:23:01.2', TIMESTAMP '1992-01-01 01:23:01.943', 4, TRUE)",
            "[1992-01-01T01:23:01.385750, 1992-01-01T01:23:01.571500, 1992-01-01T01:23:01.757250, 1992-01-01T01:23:01.943]",
        ),
        (
            "equi_width_bins(TIMESTAMP '2020-01-15 00:00:00', TIMESTAMP '2020-01-15 00:00:00', 4, TRUE)",
            "[2020-01-15T00:00:00]",
        ),
    ]);
    check_call_errors(&[
        ("equi_width_bins(6, 5, 5, TRUE)", "has a maximum below its minimum"),
        ("equi_width_bins(0, 5, 0, TRUE)", "`equi_width_bins` of 0 bins has no answer"),
        ("equi_width_bins(0, 5, 10001, TRUE)", "it makes 1 to 10000 of them"),
        ("equi_width_bins(0.0, 5.0, 10001, FALSE)", "it makes 1 to 10000 of them"),
        ("equi_width_bins(0, 1e400, 5, TRUE)", "takes finite numbers"),
        ("equi_width_bins('a', 'b', 5, TRUE)", "takes other arguments"),
    ]);
}

/// Evaluates a call that returns a list and parses its bounds.
fn evaluate_bounds(call: &str) -> Vec<f64> {
    let list = evaluate_call(call).unwrap();
    let bounds = list.trim_matches(['[', ']']).split(", ");
    bounds.map(|bound| bound.parse().unwrap()).collect()
}

#[test]
fn bin_bounds_ascend_to_the_maximum_with_equal_widths() {
    for (low, high) in [(1e9, 1e9 + 1e-3), (-0.3, 0.3), (0.1, 0.7), (-1e300, 3e300), (5.0, 5e7)] {
        for count in [1, 3, 10, 1_000, 10_000] {
            for is_round in ["FALSE", "TRUE"] {
                let call = format!("equi_width_bins({low:?}, {high:?}, {count}, {is_round})");
                let bounds = evaluate_bounds(&call);
                assert!(bounds.windows(2).all(|two| two[0] < two[1]), "{call}");
                assert!(bounds[0] > low && bounds.len() <= 2 * count, "{call}");
                let last = bounds[bounds.len() - 1];
                assert!(last >= high && (is_round == "TRUE" || last == high), "{call}: {last}");
            }
        }
    }
    // A thousandth next to a billion: no bound inherits the rounding error of the one before.
    let bounds = evaluate_bounds("equi_width_bins(1000000000.0, 1000000000.001, 1000, FALSE)");
    for (bound, place) in bounds.iter().zip(1..) {
        let exact = 1e9 + f64::from(place) * 1e-6;
        assert!((bound - exact).abs() <= 2.4e-7, "{place}: {bound}");
    }
    assert_eq!(bounds.len(), 1_000);
}

#[test]
fn uuid_functions_extract_version_and_time() {
    check_calls(&[
        ("uuid_extract_version('{AC227128-7d55-4ee0-a765-5025cc52e55a}')", "4"),
        ("uuid_extract_version('ac2271287d557ee0a7655025cc52e55a')", "7"),
        ("uuid_extract_version('00000000-0000-0000-0000-000000000000')", "0"),
        ("uuid_extract_version(NULL)", "NULL"),
        ("uuid_extract_timestamp(NULL)", "NULL"),
        ("uuid_extract_timestamp('00000000-0000-7000-0000-000000000000')", "1970-01-01T00:00:00Z"),
    ]);
    check_call_errors(&[
        ("uuid_extract_version('x')", "a UUID has 32 hexadecimal digits"),
        ("uuid_extract_version('ac2271287d557ee0a7655025cc52e55a0')", "a UUID has 32"),
        (
            "uuid_extract_timestamp('ac227128-7d55-4ee0-a765-5025cc52e55a')",
            "is of version 4, which has no time that is read",
        ),
        ("uuid_extract_version(1)", "takes other arguments than (BIGINT)"),
    ]);
}

#[test]
fn to_base_writes_digits_of_a_base() {
    check_calls(&[
        ("to_base(0, 2)", "0"),
        ("to_base(0, 2, 3)", "000"),
        ("to_base(10, 3)", "101"),
        ("to_base(42, 36)", "16"),
        ("to_base(9223372036854775807, 36)", "1Y2P0IJ32E8E7"),
        ("to_base('18446744073709551615'::UInt64, 16)", "FFFFFFFFFFFFFFFF"),
        ("to_base(10, 2, 64)", "0000000000000000000000000000000000000000000000000000000000001010"),
        ("to_base(10, 2, 0)", "1010"),
        ("to_base(10, NULL)", "NULL"),
        ("to_base(NULL, 2)", "NULL"),
        ("to_binary(-1)", "1111111111111111111111111111111111111111111111111111111111111111"),
        ("bin('aé')", "011000011100001110101001"),
        ("bin('')", ""),
        ("hex(unbin('101100001'))", "0161"),
        ("hex(from_binary('1'))", "01"),
        ("hex(unbin(''))", ""),
        ("hex(unhex('ABC'))", "0ABC"),
    ]);
    check_call_errors(&[
        ("to_base(10, 1)", "`to_base` has no digits of the base 1"),
        ("to_base(10, 37)", "a base is from 2 to 36"),
        ("to_base(10, 2, 65)", "does not fill up to 65 digits"),
        ("to_base(10, 2, -1)", "does not fill up to -1 digits"),
        ("to_base(-1, 2)", "`to_base` takes no number below zero, and this is -1"),
        ("to_base(1.5, 2)", "takes other arguments"),
        ("unbin('012')", "digits are 0 and 1"),
        ("unhex('xy')", "digits are 0 to 9 and A to F"),
    ]);
}
