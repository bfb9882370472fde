//! What the functions of numbers and of any values answer, call by call.

use crate::trial::{check, check_refused};

/// Calculated by another implementation, from the layout that `hashes` draws.
#[test]
fn hashes_are_of_the_layout_that_is_drawn() {
    check(&[
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
    check_refused(&[("hash()", "it is called as hash(x, …)")]);
}

#[test]
fn bytes_have_the_digests_that_are_published() {
    check(&[
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
    check_refused(&[
        ("sha2('abc', 100)", "`sha2` has no digest of 100 bits"),
        ("md5(1)", "takes other arguments than (BIGINT)"),
    ]);
}

#[test]
fn numbers_are_measured() {
    check(&[
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
        ("format_bytes(1048575)", "1.0 MiB"),
        ("format_bytes(-1048576)", "-1.0 MiB"),
        ("format_bytes(9223372036854775807)", "8.0 EiB"),
        ("formatreadablesize(1)", "1.00 B"),
        ("formatreadablesize(1073741824)", "1.00 GiB"),
        ("formatreadablequantity(12)", "12.00"),
        ("formatreadablequantity(1234)", "1.23 thousand"),
        ("formatreadablequantity(1e18)", "1000.00 quadrillion"),
    ]);
    check_refused(&[
        ("width_bucket(1, 5, 5, 10)", "bounds are two different numbers"),
        ("width_bucket(1, 0, 5, 0)", "has no 0 buckets"),
        ("bar(1, 0, 10, 100000)", "is not 100000 letters wide"),
        ("bar('x', 0, 10)", "takes other arguments"),
    ]);
}

#[test]
fn bits_are_written_and_read() {
    check(&[
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
    check_refused(&[
        ("unhex('xy')", "`xy` does not fit bytes in hexadecimal digits"),
        ("unhex('ä')", "hexadecimal digits"),
        ("hex(1.5)", "takes other arguments"),
    ]);
}

#[test]
fn formulas_are_calculated() {
    check(&[
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
        ("typeof(NULL)", "NULL"),
        ("typeof(1)", "BIGINT"),
        ("typeof('a'::Dictionary(Int32, Utf8))", "TEXT"),
        ("typeof(TIMESTAMP '2026-01-01 00:00:00')", "TIMESTAMP(6)"),
        ("typeof(TIMESTAMPTZ '2026-01-01 00:00:00')", "TIMESTAMP(6) WITH TIME ZONE"),
        ("typeof(INTERVAL '1 day')", "INTERVAL"),
        ("typeof(1::Decimal128(5, 2))", "DECIMAL(5, 2)"),
    ]);
    check_refused(&[
        ("gamma(0)", "`gamma` of 0 has no answer"),
        ("lgamma(-2)", "`lgamma` of -2 has no answer"),
        ("error('no such shop')", "no such shop"),
        ("even('x')", "takes other arguments"),
        ("hypot(1)", "it is called as hypot(x, y)"),
    ]);
}
