//! Results of the functions of times, call by call.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, NaiveDateTime};
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use proptest::prelude::*;

use crate::test_calls::{call_with_columns, check_call_errors, check_calls};

/// Expected values from DuckDB 2.0.
#[test]
fn fields_of_times_match_duckdb() {
    check_calls(&[
        ("date_parts('year', 'yr', DATE '2020-01-02')", "{year: 2020, yr: 2020}"),
        (
            "date_parts('epoch', 'julian', 'era', 'timezone', 'timezone_hour', TIMESTAMP '2020-01-02 03:04:05.5')",
            "{epoch: 1577934245.5, julian: 2458851.1278414354, era: 1, timezone: 0, timezone_hour: 0}",
        ),
        (
            "date_parts('y', 'mon', 'd', 'h', 'm', 's', 'ms', 'us', 'ns', TIMESTAMP '2020-01-02 03:04:05.5')",
            "{y: 2020, mon: 1, d: 2, h: 3, m: 4, s: 5, ms: 5500, us: 5500000, ns: 5500000000}",
        ),
        (
            "date_parts('millennium', 'century', 'decade', 'quarter', DATE '2001-10-10')",
            "{millennium: 3, century: 21, decade: 200, quarter: 4}",
        ),
        ("date_parts('century', 'millennium', DATE '2000-01-01')", "{century: 20, millennium: 2}"),
        (
            "date_parts('century', 'millennium', 'decade', 'year', 'era', DATE '0000-01-01')",
            "{century: -1, millennium: -1, decade: 0, year: 0, era: 0}",
        ),
        ("date_field('decade', DATE '-0014-01-01')", "-1"),
        ("date_field('yearweek', DATE '-0001-01-01')", "-253"),
        (
            "date_parts('isoyear', 'week', 'yearweek', DATE '2021-01-01')",
            "{isoyear: 2020, week: 53, yearweek: 202053}",
        ),
        (
            "date_parts('weekday', 'isodow', 'doy', DATE '2021-01-03')",
            "{weekday: 0, isodow: 7, doy: 3}",
        ),
        (
            "date_parts('hour', 'epoch', 'timezone_hour', TIME '10:11:12.5')",
            "{hour: 10, epoch: 36672.5, timezone_hour: 0}",
        ),
        (
            "date_parts('hour', 'timezone', 'timezone_hour', 'timezone_minute', 'epoch', BERLIN '2026-07-01 10:00:00')",
            "{hour: 10, timezone: 7200, timezone_hour: 2, timezone_minute: 0, epoch: 1782892800.0}",
        ),
        ("date_parts('year', NULL)", "NULL"),
        ("date_field(NULL, DATE '2021-01-03')", "NULL"),
        ("date_field('doy', NULL)", "NULL"),
        ("date_part_named('epoch', TIMESTAMP '2020-01-02 03:04:05.5')", "1577934245.5"),
        ("date_part_named('second', TIMESTAMP '2020-01-02 03:04:05.5')", "5.0"),
        ("date_part_named(NULL, DATE '2021-01-03')", "NULL"),
    ]);
    check_call_errors(&[
        ("date_parts('foo', DATE '2020-01-02')", "a time has no field `foo`"),
        ("date_parts('year', TIME '10:00:00')", "a TIME has no field `year`"),
        ("date_parts('year', 'YEAR', DATE '2020-01-02')", "has the field `YEAR` twice"),
        ("date_parts('year', NULL, DATE '2020-01-02')", "a field of `date_parts` is NULL"),
        ("date_parts(DATE '2020-01-02')", "it is called as date_parts('year', 'month', …, x)"),
        ("date_field('week', 1)", "it is called as date_field('century', x)"),
        ("date_part_named('foo', DATE '2020-01-02')", "a time has no field `foo`"),
    ]);
}

/// Expected values from DuckDB 2.0.
#[test]
fn parts_of_intervals_keep_their_sign() {
    check_calls(&[
        (
            "date_parts('year', 'month', 'epoch', 'hour', INTERVAL '3 years 2 months 40 days 30 hours')",
            "{year: 3, month: 2, epoch: 103420800.0, hour: 30}",
        ),
        (
            "date_parts('decade', 'quarter', 'century', 'millennium', INTERVAL '14000 months')",
            "{decade: 116, quarter: 3, century: 11, millennium: 1}",
        ),
        ("date_field('quarter', INTERVAL '-21 months')", "-2"),
        ("date_field('quarter', INTERVAL '-14 months')", "1"),
        ("date_field('century', INTERVAL '-1400 months')", "-1"),
        ("date_field('epoch', INTERVAL '-6 months')", "-15552000.0"),
        (
            "date_parts('second', 'ms', 'us', INTERVAL '61.5 seconds')",
            "{second: 1, ms: 1500, us: 1500000}",
        ),
    ]);
    check_call_errors(&[
        ("date_field('era', INTERVAL '1 month')", "an interval has no field `era`"),
        ("date_field('julian', INTERVAL '1 month')", "an interval has no field `julian`"),
    ]);
}

#[test]
fn make_timestamptz_converts_local_time_to_instant() {
    check_calls(&[
        ("make_timestamptz(0)", "1970-01-01T00:00:00Z"),
        ("make_timestamptz(1684509234845000)", "2023-05-19T15:13:54.845Z"),
        (
            "make_timestamptz(2021, 12, 30, 10, 12, 4.123, 'America/New_York')",
            "2021-12-30T15:12:04.123Z",
        ),
        ("make_timestamptz(2021, 12, 30, 10, 12, 4)", "2021-12-30T10:12:04Z"),
        ("make_timestamptz(2021, 12, 30, 10, 12, 4, 'UTC')", "2021-12-30T10:12:04Z"),
        ("make_timestamptz(2021, 12, 30, 10, 12, 4, '+02:00')", "2021-12-30T08:12:04Z"),
        // A local time that occurs twice is the later one; a skipped one is as long after the clock change.
        ("make_timestamptz(2026, 10, 25, 2, 30, 0, 'Europe/Berlin')", "2026-10-25T01:30:00Z"),
        ("make_timestamptz(2026, 3, 29, 2, 30, 0, 'Europe/Berlin')", "2026-03-29T01:30:00Z"),
        ("make_timestamptz(2021, 12, 30, 10, 12, 4, NULL)", "NULL"),
        ("make_timestamptz(2021, NULL, 30, 10, 12, 4, 'UTC')", "NULL"),
    ]);
    check_call_errors(&[
        ("make_timestamptz(2021, 13, 1, 0, 0, 0)", "of month 13 has no answer"),
        ("make_timestamptz(2021, 12, 1, 0, 0, 0, 'Nowhere')", "there is no zone `Nowhere`"),
    ]);
}

#[test]
fn strftime_formats_times_by_c_codes() {
    check_calls(&[
        (
            "strftime(TIMESTAMP '2026-01-05 08:05:09.012345', '%Y-%m-%d %H:%M:%S.%f')",
            "2026-01-05 08:05:09.012345",
        ),
        ("strftime(TIMESTAMP '2026-01-05 08:05:09.012345', '%g %n')", "012 012345000"),
        (
            "strftime(TIMESTAMP '2026-01-05 08:05:09', '%-d.%-m.%y %-H %-I %I %p %P')",
            "5.1.26 8 8 08 AM am",
        ),
        ("strftime(TIMESTAMP '2026-01-05 20:05:09', '%e|%_H|%k|%l|%I%p')", " 5|20|20| 8|08PM"),
        ("strftime(TIMESTAMP '2026-01-05 00:05:09', '%I %H')", "12 00"),
        ("strftime(DATE '2026-01-05', '%a %A %b %B %h')", "Mon Monday Jan January Jan"),
        ("strftime(DATE '2026-01-05', '%j %-j %u %w %U %W %V %G')", "005 5 1 1 01 01 02 2026"),
        ("strftime(DATE '2027-01-03', '%j %u %w %U %W %V %G')", "003 7 0 01 00 53 2026"),
        (
            "strftime(DATE '2026-01-05', '%c|%x|%X|%D|%F|%T|%R')",
            "2026-01-05 00:00:00|2026-01-05|00:00:00|01/05/26|2026-01-05|00:00:00|00:00",
        ),
        ("strftime(DATE '2026-01-05', '100%%, %q. %C')", "100%, 1. 21"),
        ("strftime(DATE '2000-12-31', '%C')", "20"),
        ("strftime(TIMESTAMP '2026-01-05 08:05:09', '%z %:z %Z')", "+0000 +00:00 UTC"),
        (
            "strftime(BERLIN '2026-07-01 12:00:00', '%Y-%m-%d %H:%M %z %Z')",
            "2026-07-01 12:00 +0200 CEST",
        ),
        ("strftime(TIMESTAMPTZ '2026-07-01 12:00:00', '%H:%M %z %Z')", "12:00 +0000 UTC"),
        ("strftime(TIME '08:05:09.5', '%H:%M:%S.%g')", "08:05:09.500"),
        ("strftime(TIMESTAMP '1969-12-31 23:59:59', '%s')", "-1"),
        ("strftime(BERLIN '1970-01-01 01:00:00', '%s')", "0"),
        ("strftime(TIMESTAMP '2026-01-05 08:05:09', '%.f|%3f|%.6f')", "|000|.000000"),
        ("strftime(TIMESTAMP '2026-01-05 08:05:09.25', '%S%.f')", "09.250"),
        // Arguments in either order; a text is accepted as a time.
        ("strftime('%d.%m.', DATE '2026-01-05')", "05.01."),
        ("strftime('%d.%m.', '2026-01-05 08:00:00')", "05.01."),
        ("strftime('2026-01-05', '%d.%m.')", "05.01."),
        ("strftime('2026-01-05'::Dictionary(Int32, Utf8), '%d.%m.'::LargeUtf8)", "05.01."),
        ("strftime(DATE '2026-01-05', '%d'::Utf8View)", "05"),
        ("strftime(DATE '2026-01-05'::Timestamp(Second, None), '%d')", "05"),
        ("strftime(DATE '2026-01-05'::Date64, '%d')", "05"),
        (
            "strftime(TIMESTAMP '2026-01-05 08:05:09.123456'::Timestamp(Millisecond, None), '%f')",
            "123000",
        ),
        (
            "strftime(TIMESTAMP '2026-01-05 08:05:09.123456'::Timestamp(Nanosecond, None), '%n')",
            "123456000",
        ),
        ("strftime(NULL, '%d')", "NULL"),
        ("strftime(DATE '2026-01-05', NULL)", "NULL"),
        ("strftime(DATE '2026-01-05', '')", ""),
        ("strftime(DATE '-0001-01-05', '%Y')", "-0001"),
        ("strftime(9223372036854775807::Timestamp(Second, None), '%Y')", "292277026596"),
        (
            "strftime(-9223372036854775807::Timestamp(Second, None), '%Y %s')",
            "-292277022657 -9223372036854775807",
        ),
    ]);
    check_call_errors(&[
        ("strftime(DATE '2026-01-05', '%Y %Q')", "the format `%Y %Q` has `%Q` at character 4"),
        ("strftime(DATE '2026-01-05', 'a%')", "ends within a code"),
        ("strftime(DATE '2026-01-05', '%-')", "ends within a code"),
        ("strftime(TIME '08:05:09', '%d')", "a TIME has no days"),
        ("strftime(1, '%d')", "takes other arguments than (BIGINT, TEXT)"),
        (
            "strftime(DATE '2026-01-05')",
            "it is called as strftime(ts, format), strftime(format, ts)",
        ),
        ("strftime('%d', 'soon')", "soon"),
        (
            "strftime(9223372036854775807::Timestamp(Second, Some(\"Europe/Berlin\")), '%Y')",
            "beyond the years",
        ),
    ]);
}

#[test]
fn strptime_parses_texts_by_c_codes() {
    check_calls(&[
        ("strptime('2026-01-05 08:05:09', '%Y-%m-%d %H:%M:%S')", "2026-01-05T08:05:09"),
        ("strptime(' 5/1/26 8:05 pm ', '%d/%m/%y %I:%M %p')", "2026-01-05T20:05:00"),
        ("strptime('12:30 AM', '%I:%M %p')", "1900-01-01T00:30:00"),
        ("strptime('20260105', '%Y%m%d')", "2026-01-05T00:00:00"),
        ("strptime('20260105T080509.25', '%Y%m%dT%H%M%S.%f')", "2026-01-05T08:05:09.250"),
        ("strptime('10/Oct/2000:13:55:36 -0700', '%d/%b/%Y:%H:%M:%S %z')", "2000-10-10T20:55:36"),
        ("strptime('2026-07-01 12:00 Europe/Berlin', '%Y-%m-%d %H:%M %Z')", "2026-07-01T10:00:00"),
        ("strptime('2026-07-01 12:00 UTC', '%Y-%m-%d %H:%M %Z')", "2026-07-01T12:00:00"),
        ("strptime('2026-07-01T12:00+05:30', '%Y-%m-%dT%H:%M%z')", "2026-07-01T06:30:00"),
        ("strptime('2026-07-01T12:00Z', '%Y-%m-%dT%H:%M%z')", "2026-07-01T12:00:00"),
        // Local times that occur twice, and never.
        ("strptime('2026-10-25 02:30 Europe/Berlin', '%F %R %Z')", "2026-10-25T01:30:00"),
        ("strptime('2026-03-29 02:30 Europe/Berlin', '%F %R %Z')", "2026-03-29T01:30:00"),
        ("strptime('monday, 5 JANUARY 2026', '%A, %d %B %Y')", "2026-01-05T00:00:00"),
        ("strptime('1767600309', '%s')", "2026-01-05T08:05:09"),
        ("strptime('-1', '%s')", "1969-12-31T23:59:59"),
        ("strptime('2026 005', '%Y %j')", "2026-01-05T00:00:00"),
        ("strptime('2026-W02-1', '%G-W%V-%u')", "2026-01-05T00:00:00"),
        ("strptime('2026 01 Mon', '%Y %W %a')", "2026-01-05T00:00:00"),
        ("strptime('2026 01 Sun', '%Y %U %a')", "2026-01-04T00:00:00"),
        ("strptime('2024-02-29', '%Y-%m-%d')", "2024-02-29T00:00:00"),
        ("strptime('12026-02-28', '%Y-%m-%d')", "+12026-02-28T00:00:00"),
        ("strptime('-0044-03-15', '%Y-%m-%d')", "-0044-03-15T00:00:00"),
        ("strptime('68', '%y')", "2068-01-01T00:00:00"),
        ("strptime('69', '%y')", "1969-01-01T00:00:00"),
        ("strptime('23:59:60', '%H:%M:%S')", "1900-01-02T00:00:00"),
        ("try_strptime('12:30:60', '%H:%M:%S')", "NULL"),
        ("strptime('2026-01-05', ['%d.%m.%Y', '%Y-%m-%d'])", "2026-01-05T00:00:00"),
        ("strptime(NULL, '%Y')", "NULL"),
        ("strptime('2026', NULL)", "NULL"),
        ("strptime('2026'::Utf8View, '%Y'::LargeUtf8)", "2026-01-01T00:00:00"),
        ("strptime('2026'::Dictionary(Int32, Utf8), '%Y')", "2026-01-01T00:00:00"),
        ("strptime('50%', '%y%%')", "2050-01-01T00:00:00"),
        ("try_strptime('2026-02-30', '%Y-%m-%d')", "NULL"),
        ("try_strptime('2026-02-28', '%Y-%m-%d')", "2026-02-28T00:00:00"),
        ("try_strptime('x', ['%d.%m.%Y', '%Y-%m-%d'])", "NULL"),
        ("try_strptime('300000', '%Y')", "NULL"),
    ]);
    check_call_errors(&[
        (
            "strptime('2026-02-30', '%Y-%m-%d')",
            "`2026-02-30` does not fit the format `%Y-%m-%d`: February 2026 has no day 30",
        ),
        (
            "strptime('2026-13-01', '%Y-%m-%d')",
            "a month from 1 to 12 is expected at character 6, where `13-01` stands",
        ),
        ("strptime('2026-01', '%Y-%m-%d')", "`-` is expected at its end"),
        ("strptime('2026-01-01 x', '%Y-%m-%d')", "its end is expected at character 12"),
        ("strptime('x', '%Y-%m-%d')", "hint: try_strptime(text, format) is NULL"),
        ("strptime('x', ['%Y', '%d'])", "any of the formats `%Y`, `%d`"),
        ("strptime('2026', '%E')", "has `%E` at character 1"),
        ("strptime('2026', ['%Y', '%E'])", "has `%E` at character 1"),
        ("strptime('2026 366', '%Y %j')", "2026 has 365 days"),
        ("strptime('2026 54', '%G %V')", "a week from 1 to 53"),
        ("strptime('2027 53', '%G %V')", "2027 has no week 53"),
        ("strptime('12 Nowhere', '%H %Z')", "a zone's name"),
        ("strptime('300000', '%Y')", "TIMESTAMP: it is before or after"),
        ("strptime(2026, '%Y')", "takes other arguments than (BIGINT, TEXT)"),
    ]);
}

#[test]
fn to_char_formats_times_by_postgres_patterns() {
    check_calls(&[
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09.012345', 'YYYY-MM-DD HH24:MI:SS.MS')",
            "2026-01-05 20:05:09.012",
        ),
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09.012345', 'yyyy-mm-dd hh24:mi:ss.us')",
            "2026-01-05 20:05:09.012345",
        ),
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09', 'HH:MI AM HH12 pm P.M. a.m.')",
            "08:05 PM 08 pm P.M. p.m.",
        ),
        (
            "to_char(DATE '2026-01-05', 'Month|MONTH|month|Mon|MON|mon')",
            "January  |JANUARY  |january  |Jan|JAN|jan",
        ),
        (
            "to_char(DATE '2026-01-05', 'Day|DAY|day|Dy|DY|dy')",
            "Monday   |MONDAY   |monday   |Mon|MON|mon",
        ),
        ("to_char(DATE '2026-01-05', 'FMMonth FMDD, YYYY')", "January 5, 2026"),
        ("to_char(DATE '2026-01-05', 'FMDay, FMDDth FMMonth')", "Monday, 5th January"),
        ("to_char(DATE '2026-01-01', 'DDth FMDDTH')", "01st 1ST"),
        ("to_char(DATE '2026-01-12', 'FMDDth')", "12th"),
        ("to_char(DATE '2026-01-05', 'YYYY YYY YY Y Y,YYY CC')", "2026 026 26 6 2,026 21"),
        ("to_char(DATE '2027-01-03', 'IYYY IYY IY I IW ID IDDD')", "2026 026 26 6 53 7 371"),
        (
            "to_char(DATE '2026-01-05', 'DDD D ID W WW Q J RM|rm')",
            "005 2 1 1 01 1 2461046 I   |i   ",
        ),
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09', 'SSSS SSSSS FF3 FF6')",
            "72309 72309 000 000000",
        ),
        ("to_char(DATE '2026-01-05', '\"Year\" YYYY \"q\\\"\"Q')", "Year 2026 q\"1"),
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
            "2026-01-05T20:05:09Z",
        ),
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09', 'YYYY-MM-DDTHH24:MI:SSZ')",
            "2026-01-05T20:05:09Z",
        ),
        (
            "to_char(BERLIN '2026-07-01 12:00:00', 'HH24 TZ tz OF TZH:TZM')",
            "12 CEST cest +02 +02:00",
        ),
        ("to_char(DATE '-0043-03-15', 'YYYY BC AD')", "0044 BC BC"),
        ("to_char(DATE '2026-01-05', 'AD A.D.')", "AD A.D."),
        // Chrono's codes.
        (
            "to_char(TIMESTAMP '2026-01-05 20:05:09.5', '%d/%m/%Y %H:%M:%S%.3f %f')",
            "05/01/2026 20:05:09.500 500000000",
        ),
        ("to_char(DATE '2026-01-05', '%c')", "Mon Jan  5 00:00:00 2026"),
        ("to_char(BERLIN '2026-07-01 12:00:00', '%+')", "2026-07-01T12:00:00+02:00"),
        ("to_char('2026-01-05', 'DD.MM.')", "05.01."),
        ("to_char(TIME '08:05:09', 'HH24:MI')", "08:05"),
        ("to_char(NULL, 'DD')", "NULL"),
        ("to_char(1234.5, '9,999.99')", " 1,234.50"),
        ("to_char(1234, '99,999')", "  1,234"),
        ("to_char(1234::UInt64, '99999')", "  1234"),
        ("to_char(125::Decimal128(5, 0), '999')", " 125"),
        ("to_char(1.25::Decimal128(5, 2), '9.9')", " 1.3"),
    ]);
    check_call_errors(&[
        (
            "to_char(DATE '2026-01-05', 'YYYY-XX')",
            "has `X` at character 6, which is no pattern of times",
        ),
        ("to_char(TIMESTAMP '2026-01-05 20:05:09', 'HH24:MM')", "hint: minutes are MI"),
        ("to_char(DATE '2026-01-05', '\"YYYY')", "a quote that does not end"),
        ("to_char(TIME '08:05:09', 'YYYY')", "a TIME has no days"),
        ("to_char(12, 'YYYY')", "no pattern of numbers"),
        ("to_char(TRUE, '9')", "takes other arguments"),
    ]);
}

#[test]
fn date_format_takes_java_patterns_and_mysql_codes() {
    check_calls(&[
        (
            "date_format(TIMESTAMP '2026-01-05 20:05:09.012345', 'yyyy-MM-dd HH:mm:ss.SSS')",
            "2026-01-05 20:05:09.012",
        ),
        ("date_format(TIMESTAMP '2026-01-05 20:05:09', 'd/M/yy h:mm a')", "5/1/26 8:05 PM"),
        ("date_format(TIMESTAMP '2026-01-05 00:05:09', 'k K H h')", "24 0 0 12"),
        (
            "date_format(DATE '2026-01-05', 'E EEEE MMM MMMM Q DDD D G')",
            "Mon Monday Jan January 1 005 5 AD",
        ),
        ("date_format(DATE '2026-01-05', 'yyyy''Q''Q ''o''''clock''')", "2026Q1 o'clock"),
        (
            "date_format(BERLIN '2026-07-01 12:00:00', 'XXX XX X xxx Z z VV')",
            "+02:00 +0200 +02 +02:00 +0200 CEST Europe/Berlin",
        ),
        ("date_format(TIMESTAMP '2026-07-01 12:00:00', 'XXX X xxx')", "Z Z +00:00"),
        (
            "date_format(TIMESTAMP '2026-01-05 20:05:09', '%Y-%m-%d %H:%i:%s')",
            "2026-01-05 20:05:09",
        ),
        (
            "date_format(TIMESTAMP '2026-01-05 20:05:09.25', '%W, %M %e %c %D %h:%i %p %f %r %T')",
            "Monday, January 5 1 5th 08:05 PM 250000 08:05:09 PM 20:05:09",
        ),
        (
            "date_format(DATE '2026-01-05', '%a %b %j %w %v %x %y %k %l')",
            "Mon Jan 005 1 02 2026 26 0 12",
        ),
        ("format_datetime(DATE '2026-01-05', 'yyyy')", "2026"),
        (
            "formatdatetime(TIMESTAMP '2026-01-05 20:05:09', '%F %T %D %R %e %M %b %G-%V %u %w')",
            "2026-01-05 20:05:09 01/05/26 20:05  5 January Jan 2026-02 1 1",
        ),
        ("date_format(NULL, 'yyyy')", "NULL"),
        (
            "date_parse('2026-01-05T08:05:09.25+02:00', 'yyyy-MM-dd''T''HH:mm:ss.SSXXX')",
            "2026-01-05T06:05:09.250",
        ),
        ("date_parse('Mon, 5 Jan 26', 'E, d MMM yy')", "2026-01-05T00:00:00"),
        ("str_to_date('05/01/2026', '%d/%m/%Y')", "2026-01-05T00:00:00"),
        ("str_to_date('1:05:09 PM', '%r')", "1970-01-01T13:05:09"),
        ("parse_datetime('20260105', 'yyyyMMdd')", "2026-01-05T00:00:00"),
        ("from_unixtime(1767600309)", "2026-01-05T08:05:09Z"),
        ("from_unixtime(1767600309, 'Europe/Berlin')", "2026-01-05T09:05:09+01:00"),
        ("from_unixtime(1767600309, '+02:00')", "2026-01-05T10:05:09+02:00"),
        ("from_unixtime(1767600309, 'yyyy-MM-dd HH:mm:ss')", "2026-01-05 08:05:09"),
        ("from_unixtime(1767600309, '%Y-%m-%d')", "2026-01-05"),
        ("from_unixtime(NULL)", "NULL"),
    ]);
    check_call_errors(&[
        ("date_format(DATE '2026-01-05', 'YYYY-MM-dd')", "hint: a year is y"),
        ("date_format(DATE '2026-01-05', 'yyyy-MM-DD')", "has `DD` at character 9"),
        ("date_format(DATE '2026-01-05', 'yyyy ''')", "a quote that does not end"),
        ("date_format(DATE '2026-01-05', '%H:%M')", "minutes are %i"),
        ("date_format(DATE '2026-01-05', '%Q')", "has `%Q` at character 1"),
        ("date_parse('x', 'yyyy')", "`x` does not fit the format `yyyy`"),
        ("date_parse('x', 'YYYY')", "hint: a year is y"),
        ("from_unixtime(1, 'Europe/Nowhere')", "there is no zone `Europe/Nowhere`"),
        ("from_unixtime(1, 'bbb')", "has `bbb` at character 1"),
        ("from_unixtime(1.5)", "takes other arguments"),
    ]);
}

#[test]
fn differences_count_boundaries_or_whole_units() {
    check_calls(&[
        ("date_diff('day', DATE '2026-01-05', DATE '2026-02-01')", "27"),
        (
            "date_diff('days', TIMESTAMP '2026-01-05 23:59:59', TIMESTAMP '2026-01-06 00:00:01')",
            "1",
        ),
        ("date_sub('day', TIMESTAMP '2026-01-05 23:59:59', TIMESTAMP '2026-01-06 00:00:01')", "0"),
        (
            "date_diff('hour', TIMESTAMP '2026-01-05 23:59:59', TIMESTAMP '2026-01-06 00:00:01')",
            "1",
        ),
        (
            "date_sub('second', TIMESTAMP '2026-01-05 23:59:59', TIMESTAMP '2026-01-06 00:00:01')",
            "2",
        ),
        (
            "date_diff('microsecond', TIMESTAMP '2026-01-05 00:00:00', TIMESTAMP '2026-01-05 00:00:00.000007')",
            "7",
        ),
        (
            "date_diff('millisecond', TIMESTAMP '2026-01-05 00:00:00', TIMESTAMP '2026-01-05 00:00:00.0019')",
            "1",
        ),
        ("date_diff('week', DATE '2026-01-04', DATE '2026-01-05')", "1"),
        ("date_sub('week', DATE '2026-01-04', DATE '2026-01-05')", "0"),
        ("date_diff('month', DATE '2026-01-31', DATE '2026-02-01')", "1"),
        ("date_diff('quarter', DATE '2025-12-31', DATE '2026-01-01')", "1"),
        ("date_diff('year', DATE '2025-12-31', DATE '2026-01-01')", "1"),
        ("date_diff('decade', DATE '2019-12-31', DATE '2020-01-01')", "1"),
        ("date_diff('century', DATE '1999-12-31', DATE '2000-01-01')", "1"),
        ("date_diff('isoyear', DATE '2025-12-28', DATE '2025-12-29')", "1"),
        ("date_diff('month', DATE '2026-02-01', DATE '2026-01-31')", "-1"),
        ("date_sub('month', DATE '2026-01-31', DATE '2026-02-28')", "1"),
        ("date_sub('month', DATE '2026-01-31', DATE '2026-02-27')", "0"),
        ("date_sub('month', DATE '2026-02-28', DATE '2026-01-31')", "-1"),
        (
            "date_sub('month', TIMESTAMP '2026-01-15 12:00:00', TIMESTAMP '2026-02-15 11:59:59')",
            "0",
        ),
        ("date_sub('year', DATE '2024-02-29', DATE '2025-02-28')", "1"),
        ("date_sub('quarter', DATE '2026-01-15', DATE '2026-07-14')", "1"),
        ("timestampdiff('YEAR', '2020-06-01', '2026-01-05')", "5"),
        ("date_diff('hour', TIME '08:59:00', TIME '10:01:00')", "2"),
        ("date_sub('hour', TIME '08:59:00', TIME '10:01:00')", "1"),
        ("date_diff('hour', TIMESTAMPTZ '2026-06-30 23:00:00', BERLIN '2026-07-01 01:00:00')", "0"),
        ("date_diff(DATE '2026-01-05', DATE '2026-01-01')", "4"),
        ("datediff('2026-01-05', '2026-01-01')", "4"),
        ("date_sub(DATE '2026-01-05', 5)", "2025-12-31"),
        ("date_sub('2026-01-05', 5)", "2025-12-31"),
        ("date_diff('day', NULL, DATE '2026-01-01')", "NULL"),
        ("date_diff(NULL, DATE '2026-01-01', DATE '2026-01-01')", "NULL"),
        (
            "age(TIMESTAMP '2026-03-01 10:00:00', TIMESTAMP '2026-01-31 12:00:00')",
            "1 mons 22 hours",
        ),
        ("age(DATE '2026-01-31', DATE '2026-03-01')", "-1 mons -1 days"),
        ("age(DATE '2026-01-31', DATE '2026-01-31')", "0 secs"),
        ("months_between(DATE '2026-03-31', DATE '2026-02-28')", "1.0"),
        ("months_between(TIMESTAMP '1997-02-28 10:30:00', DATE '1996-10-30')", "3.94959677"),
        (
            "months_between(TIMESTAMP '1997-02-28 10:30:00', DATE '1996-10-30', FALSE)",
            "3.9495967741935485",
        ),
    ]);
    check_call_errors(&[
        (
            "date_diff('fortnight', DATE '2026-01-01', DATE '2026-01-01')",
            "`fortnight` is no unit of time",
        ),
        ("date_diff('hour', TIME '08:59:00', DATE '2026-01-01')", "of a time of day and a day"),
        (
            "date_diff('ns', -290000::Timestamp(Second, None), 9223372036854775807::Timestamp(Second, None))",
            "too far apart",
        ),
        ("age(DATE '2026-01-01')", "age(current_date(), birthday)"),
    ]);
}

#[test]
fn time_buckets_start_at_multiples_from_the_origin() {
    check_calls(&[
        (
            "time_bucket(INTERVAL '5 minutes', TIMESTAMP '2026-01-05 08:04:59')",
            "2026-01-05T08:00:00",
        ),
        ("time_bucket('5 minutes', TIMESTAMP '2026-01-05 08:05:00')", "2026-01-05T08:05:00"),
        ("time_bucket(INTERVAL '1 day', TIMESTAMP '2026-01-05 08:05:00')", "2026-01-05T00:00:00"),
        ("time_bucket(INTERVAL '7 days', DATE '2026-01-11')", "2026-01-05"),
        ("time_bucket(INTERVAL '1 week', DATE '1969-12-31')", "1969-12-29"),
        ("time_bucket(INTERVAL '2 weeks', DATE '2000-01-16')", "2000-01-03"),
        ("time_bucket(INTERVAL '2 weeks', DATE '2000-01-17')", "2000-01-17"),
        ("time_bucket(INTERVAL '1 month', DATE '2026-01-31')", "2026-01-01"),
        (
            "time_bucket(INTERVAL '3 months', TIMESTAMP '2026-12-31 08:05:00')",
            "2026-10-01T00:00:00",
        ),
        ("time_bucket(INTERVAL '5 years', DATE '1999-12-31')", "1995-01-01"),
        ("time_bucket(INTERVAL '10 years', DATE '2026-01-05')", "2020-01-01"),
        (
            "time_bucket(INTERVAL '1 hour', TIMESTAMP '2026-01-05 08:05:00', TIMESTAMP '2026-01-01 00:30:00')",
            "2026-01-05T07:30:00",
        ),
        ("time_bucket(INTERVAL '1 month', DATE '2026-01-14', DATE '2020-06-15')", "2025-12-15"),
        ("time_bucket(INTERVAL '1 month', DATE '2026-01-15', DATE '2020-06-15')", "2026-01-15"),
        (
            "time_bucket(INTERVAL '1 hour', TIMESTAMP '2026-01-05 08:05:00', INTERVAL '10 minutes')",
            "2026-01-05T07:10:00",
        ),
        ("time_bucket(INTERVAL '1 month', DATE '2026-01-03', INTERVAL '4 days')", "2025-12-05"),
        // Days follow local time; hours keep their length.
        (
            "time_bucket(INTERVAL '1 day', BERLIN '2026-07-01 01:00:00')",
            "2026-07-01T00:00:00+02:00",
        ),
        (
            "time_bucket(INTERVAL '1 month', BERLIN '2026-07-01 01:00:00')",
            "2026-07-01T00:00:00+02:00",
        ),
        (
            "time_bucket(INTERVAL '1 hour', BERLIN '2026-07-01 01:30:00')",
            "2026-07-01T01:00:00+02:00",
        ),
        ("time_bucket(INTERVAL '5 minutes', 7::Timestamp(Second, None))", "1970-01-01T00:00:00"),
        ("time_bucket(INTERVAL '5 minutes', -7::Timestamp(Second, None))", "1969-12-31T23:55:00"),
        (
            "time_bucket(INTERVAL '1 microsecond', TIMESTAMP '2026-01-05 08:05:00.000001'::Timestamp(Nanosecond, None))",
            "2026-01-05T08:05:00.000001",
        ),
        ("time_bucket(NULL, DATE '2026-01-05')", "NULL"),
        ("time_bucket(INTERVAL '1 day', NULL)", "NULL"),
        ("time_bucket(INTERVAL '1 day', '2026-01-05 08:05:00')", "2026-01-05T00:00:00"),
    ]);
    check_call_errors(&[
        ("time_bucket(INTERVAL '0 days', DATE '2026-01-05')", "more than nothing"),
        ("time_bucket(INTERVAL '-1 days', DATE '2026-01-05')", "more than nothing"),
        ("time_bucket(INTERVAL '1 month 1 day', DATE '2026-01-05')", "not of both"),
        ("time_bucket(5, DATE '2026-01-05')", "takes other arguments"),
    ]);
}

#[test]
fn day_and_epoch_functions_match_expected_values() {
    check_calls(&[
        ("last_day(DATE '2026-02-01')", "2026-02-28"),
        ("last_day(TIMESTAMP '2024-02-29 23:59:59')", "2024-02-29"),
        ("last_day('2026-12-05')", "2026-12-31"),
        ("eomonth(NULL)", "NULL"),
        ("dayname(TIMESTAMP '2026-01-05 08:05:00')", "Monday"),
        ("dayname(BERLIN '2026-07-01 01:00:00')", "Wednesday"),
        ("monthname(DATE '2026-01-05')", "January"),
        ("next_day(DATE '2026-01-05', 'Monday')", "2026-01-12"),
        ("next_day(DATE '2026-01-05', 'tu')", "2026-01-06"),
        ("next_day(DATE '2026-01-05', 'SUN')", "2026-01-11"),
        ("add_months(DATE '2026-03-31', -1)", "2026-02-28"),
        ("add_months(DATE '2024-02-29', 12)", "2025-02-28"),
        ("date_add('2026-01-31', 1)", "2026-02-01"),
        ("epoch(TIMESTAMP '1970-01-01 00:00:01.5')", "1.5"),
        ("epoch(BERLIN '1970-01-01 01:00:00')", "0.0"),
        ("epoch(DATE '1970-01-02')", "86400.0"),
        ("epoch(TIME '00:01:00')", "60.0"),
        ("epoch(INTERVAL '1 day 1 second')", "86401.0"),
        ("epoch(INTERVAL '14 months')", "36741600.0"),
        ("epoch_ms(TIMESTAMP '1969-12-31 23:59:59.9995')", "-1"),
        ("epoch_ms(-1)", "1969-12-31T23:59:59.999"),
        ("epoch_us(1767600309000001)", "2026-01-05T08:05:09.000001"),
        ("epoch_ns(TIMESTAMP '1970-01-01 00:00:01.5')", "1500000000"),
        ("epoch_ms(INTERVAL '1 second')", "1000"),
        ("epoch_ms(NULL)", "NULL"),
        ("unix_seconds(TIMESTAMP '1969-12-31 23:59:59.5')", "-1"),
        ("unix_timestamp(TIMESTAMP '2026-01-05 08:05:09')", "1767600309"),
        ("unix_timestamp('2026-01-05 08:05:09')", "1767600309"),
        ("unix_timestamp('05.01.2026', 'dd.MM.yyyy')", "1767571200"),
        ("unix_timestamp('05.01.2026', '%d.%m.%Y')", "1767571200"),
        ("unix_date(TIMESTAMP '1969-12-31 23:59:59')", "-1"),
        ("unix_date(BERLIN '1970-01-01 00:30:00')", "0"),
        ("unix_date(BERLIN '1970-01-01 23:30:00+00:00')", "1"),
        ("unix_millis(TIMESTAMP '1970-01-01 00:00:01')", "1000"),
        ("unix_nanos(DATE '1970-01-01')", "0"),
        ("make_timestamp(2026, 1, 5, 8, 5, 9.5)", "2026-01-05T08:05:09.500"),
        ("make_timestamp(2026, 1, 5, 24, 0, 0)", "2026-01-06T00:00:00"),
        ("make_timestamp(1767600309000001)", "2026-01-05T08:05:09.000001"),
        ("make_timestamp(2026, 1, NULL, 8, 5, 9)", "NULL"),
        ("make_timestamp_ms(1767600309001)", "2026-01-05T08:05:09.001"),
        ("make_timestamp_ns(1)", "1970-01-01T00:00:00.000000001"),
        ("timestamp_seconds(1767600309)", "2026-01-05T08:05:09"),
        ("timestamp_micros(1)", "1970-01-01T00:00:00.000001"),
        ("date_from_unix_date(-1)", "1969-12-31"),
        ("julian(DATE '2026-01-05')", "2461046.0"),
    ]);
    check_call_errors(&[
        ("next_day(DATE '2026-01-05', 'someday')", "`someday` is no day of the week"),
        ("make_timestamp(2026, 2, 29, 0, 0, 0)", "day 29, in a month of 28, has no answer"),
        ("make_timestamp(2026, 1, 1, 0, 0, 60)", "second 60"),
        ("make_timestamp(2026, 13, 1, 0, 0, 0)", "month 13"),
        ("epoch_ns(9223372036854775807::Timestamp(Second, None))", "is no BIGINT"),
        ("epoch_ms('x')", "x"),
        ("timestamp_seconds(9223372036854775807)", ""),
        ("date_from_unix_date(9223372036854775807)", "beyond the years"),
        ("add_months(DATE '2026-01-05', 9223372036854775807)", "beyond the years"),
        ("date_add(DATE '2026-01-05', 9223372036854775807)", "beyond the years"),
        ("last_day(9223372036854775807::Timestamp(Second, None))", "beyond the years"),
        ("unix_timestamp('x', 'yyyy')", "`x` does not fit the format `yyyy`"),
    ]);
}

#[test]
fn format_above_maximum_length_is_rejected() {
    let long = format!("'{}'", "x".repeat(1_001));
    for call in ["strftime(DATE '2026-01-05', $)", "to_char(1, $)", "strptime('x', $)"] {
        let call = call.replace('$', &long);
        check_call_errors(&[(&call, "a format has 1001 bytes; 1000 is the most")]);
    }
}

/// A function that takes chrono's formats and always fails.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ChronoFormatFunction(Signature, DataType);

impl ScalarUDFImpl for ChronoFormatFunction {
    fn name(&self) -> &str {
        "to_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.1.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(crate::row_function::usage_error("theirs", "none"))
    }
}

#[test]
fn postgres_patterns_are_parsed_and_chrono_formats_passed_on() {
    let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
    for (answer, text, pattern, expected) in [
        (&nanos, "05 Jan 2026", "DD Mon YYYY", "2026-01-05T00:00:00"),
        (&nanos, "2026-01-05 08:05:09.25", "YYYY-MM-DD HH24:MI:SS.MS", "2026-01-05T08:05:09.250"),
        (&nanos, "2026-01-05T08:05:09", "YYYY-MM-DDTHH24:MI:SS", "2026-01-05T08:05:09"),
        (&nanos, "1/5/26 8:05 p.m.", "MM/DD/YY HH:MI P.M.", "2026-01-05T20:05:00"),
        (&nanos, "5th January 2026", "FMDDth Month YYYY", "2026-01-05T00:00:00"),
        (&nanos, "2026-02 1", "IYYY-IW ID", "2026-01-05T00:00:00"),
        (&nanos, "2461046", "J", "2026-01-05T00:00:00"),
        (&nanos, "44-03-15 BC", "YYYY-MM-DD BC", ""),
        (&DataType::Date32, "44-03-15 BC", "YYYY-MM-DD BC", "-0043-03-15"),
        (&DataType::Date32, "20260105", "YYYYMMDD", "2026-01-05"),
        (&DataType::Date32, "V 2026", "RM YYYY", "2026-05-01"),
        (&DataType::Date32, "2026-02-30", "YYYY-MM-DD", "has no day 30"),
        (&DataType::Date32, "2026-02-30", "%Y", "theirs"),
        (&DataType::Date32, "2026-02-30", "YYYY-XX", "has `X` at character 6"),
    ] {
        let theirs =
            ChronoFormatFunction(Signature::variadic_any(Volatility::Immutable), answer.clone());
        let function = crate::with_postgres_patterns(&Arc::new(ScalarUDF::from(theirs)));
        let pattern_value = datafusion_common::ScalarValue::from(pattern);
        let fields =
            ["text", "pattern"].map(|name| Arc::new(Field::new(name, DataType::Utf8, true)));
        let field = function.return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &[None, Some(&pattern_value)],
        });
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some(text), None]));
        let found = field.and_then(|return_field| {
            function.invoke_with_args(ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(column), ColumnarValue::Scalar(pattern_value)],
                arg_fields: fields.to_vec(),
                number_rows: 2,
                return_field,
                config_options: Arc::new(ConfigOptions::default()),
            })
        });
        match found {
            Ok(found) => {
                let found = found.to_array(2).unwrap();
                assert!(arrow::array::Array::is_null(&found, 1));
                let first = datafusion_common::ScalarValue::try_from_array(&found, 0).unwrap();
                assert_eq!(
                    crate::test_calls::format_value(&first),
                    expected,
                    "{text} by {pattern}"
                );
            }
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains(expected) && !expected.starts_with("20"),
                    "{text} by {pattern}: {error}"
                );
            }
        }
    }
}

proptest! {
    /// Compares formatted times with chrono's, and parses them back.
    #[test]
    fn formatted_times_match_chrono_and_parse_back(
        micros in -62_135_596_800_000_000_i64..253_402_300_799_999_999,
    ) {
        let chrono: NaiveDateTime = DateTime::from_timestamp_micros(micros).unwrap().naive_utc();
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![micros]));
        for (format, same) in [
            ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%6f"),
            ("%d %B %Y %I:%M:%S.%f %p", "%d %B %Y %I:%M:%S.%6f %p"),
            ("%Y %j %T.%f", "%Y %j %T.%6f"),
            ("%G-%V-%u %T.%f", "%G-%V-%u %T.%6f"),
            ("%Y %U %w %T.%f", "%Y %U %w %T.%6f"),
            ("%Y %W %a %T.%f", "%Y %W %a %T.%6f"),
            ("%a, %e %b %Y %k:%M:%S.%f %z", "%a, %e %b %Y %k:%M:%S.%6f +0000"),
        ] {
            let written = call_with_columns(
                "strftime",
                &[ColumnarValue::Array(Arc::clone(&times)), ColumnarValue::Scalar(format.into())],
                1,
            ).unwrap().to_array(1).unwrap();
            let text = written.as_string::<i32>().value(0).to_owned();
            prop_assert_eq!(&text, &chrono.format(same).to_string());
            let read = call_with_columns(
                "strptime",
                &[ColumnarValue::Array(written), ColumnarValue::Scalar(format.into())],
                1,
            ).unwrap().to_array(1).unwrap();
            prop_assert_eq!(read.as_primitive::<TimestampMicrosecondType>().value(0), micros, "{}", text);
        }
    }

    /// Checks that no text and no format cause a panic.
    #[test]
    fn no_text_and_format_cause_a_panic(text in "\\PC{0,24}", format in "[%a-zA-Z0-9 '\":.\\\\-]{0,12}") {
        use super::time_to_text::FormatLanguage;
        for language in [FormatLanguage::C, FormatLanguage::Postgres, FormatLanguage::Java, FormatLanguage::ClickHouse] {
            if let Ok(parsed) = language.parse_format(&format) {
                let _ = parsed.parse(&text);
            }
        }
        let _ = crate::numbers::number_patterns::NumberPattern::parse(&format);
    }
}
