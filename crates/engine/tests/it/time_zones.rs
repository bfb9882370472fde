//! Tests of time zones with daylight saving, and of instants.

use crate::common::{Folder, string_rows};

#[test]
fn ambiguous_and_skipped_local_times_resolve_to_instants() {
    let folder = Folder::new();
    for (shown, zone, expected) in [
        ("2024-07-01 12:00:00", "America/New_York", "2024-07-01 16:00"),
        ("2024-11-03 01:30:00", "America/New_York", "2024-11-03 06:30"),
        ("2024-03-10 02:30:00", "America/New_York", "2024-03-10 07:30"),
        ("2011-12-30 12:00:00", "Pacific/Apia", "2011-12-30 22:00"),
        ("2024-10-27 00:30:00", "Atlantic/Azores", "2024-10-27 01:30"),
    ] {
        let sql =
            format!("SELECT TIMESTAMP '{shown}' AT TIME ZONE '{zone}' AT TIME ZONE 'UTC' AS x");
        let found = folder.run_sql(&sql).rows()[0][0].replace('T', " ");
        assert!(found.starts_with(expected), "{shown} {zone}: {found}");
    }
}

#[test]
fn day_with_two_midnights_is_one_group() {
    let folder = Folder::new();
    folder.write(
        "az.csv",
        "ts\n2024-10-27T00:30:00Z\n2024-10-27T01:30:00Z\n2024-10-27T12:00:00Z\n2024-10-28T01:30:00Z\n",
    );
    for part in ["day", "week", "month"] {
        let sql = format!(
            "SELECT count(*) AS n FROM '$/az.csv' \
             GROUP BY date_trunc('{part}', ts AT TIME ZONE 'Atlantic/Azores') ORDER BY n DESC"
        );
        let expected: &[&str] = if part == "month" { &["4"] } else { &["3", "1"] };
        let found: Vec<String> = folder.run_sql(&sql).rows().concat();
        assert_eq!(found, expected, "{part}");
    }
    // An hour that occurs twice counts as two.
    let sql = "SELECT count(DISTINCT date_trunc('hour', ts AT TIME ZONE 'Atlantic/Azores')) \
               FROM '$/az.csv'";
    assert_eq!(folder.run_sql(sql).rows(), [["4"]]);
    let midnight = "SELECT date_trunc('day', TIMESTAMP '2024-04-26 12:00:00' AT TIME ZONE \
                    'Africa/Cairo') AT TIME ZONE 'UTC' AS x";
    let found = folder.run_sql(midnight).rows()[0][0].replace('T', " ");
    assert!(found.starts_with("2024-04-25 22:00"), "{found}");
}

/// A day is that of local time, in every zone and at every hour, and not that of UTC.
#[test]
fn date_trunc_uses_local_midnight() {
    let folder = Folder::new();
    let zones = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "+02:00"];
    let hours: String = (0..72 * 5)
        .map(|hour| {
            format!("2026-{:02}-{:02}T{:02}:30:00Z\n", 1 + hour / 24 % 12, 26 + hour % 3, hour % 24)
        })
        .collect();
    folder.write("h.csv", format!("t\n{hours}2026-06-30T22:30:00Z\n2026-12-31T23:30:00Z\n"));
    for zone in zones {
        for part in ["day", "week", "month", "quarter", "year"] {
            // The other way round: local time is truncated as a time without a zone.
            let sql = format!(
                "SELECT count(*) FROM (SELECT t AT TIME ZONE '{zone}' AS z FROM '$/h.csv') \
                 WHERE CAST(date_trunc('{part}', z) AS TIMESTAMP) \
                       <> date_trunc('{part}', CAST(z AS TIMESTAMP))"
            );
            assert_eq!(folder.run_sql(&sql).rows(), [["0"]], "{zone} {part}");
        }
    }
    let sql = "SELECT CAST(date_trunc('day', t AT TIME ZONE 'Europe/Berlin') AS TIMESTAMP) AS d, \
               CAST(date_trunc('year', t AT TIME ZONE 'Europe/Berlin') AS TIMESTAMP) AS y \
               FROM '$/h.csv' ORDER BY t DESC LIMIT 1";
    assert_eq!(folder.run_sql(sql).rows(), [["2027-01-01T00:00:00", "2027-01-01T00:00:00"]]);
}

/// Beside a time of a zone, a time without one and a date are local times of that zone, for every operator
/// and function. Only their local times tell two zones apart.
#[test]
fn differences_of_zoned_and_naive_times_use_local_time() {
    let folder = Folder::new();
    let table = |zoned_unit: &str, naive: &str| {
        format!(
            "(SELECT arrow_cast(TIMESTAMPTZ '2026-01-01 00:00:00Z', 'Timestamp({zoned_unit}, Some(\"Asia/Singapore\"))') AS z, \
             arrow_cast(TIMESTAMPTZ '2026-01-01 00:00:00Z', 'Timestamp(Microsecond, Some(\"Europe/Berlin\"))') AS b, \
             TIMESTAMPTZ '2026-01-01 00:00:00Z' AS u, {naive} '2026-01-01 00:00:00' AS n, \
             {naive} '2026-01-01 08:00:00' AS n8, DATE '2026-01-01' AS d) AS t"
        )
    };
    for unit in ["Second", "Microsecond", "Nanosecond"] {
        for naive in ["TIMESTAMP", "TIMESTAMP(9)"] {
            let table = table(unit, naive);
            for (expr, expected) in [
                // The local time of Singapore is 8 o'clock.
                ("extract(epoch FROM z - n)", "28800.0"),
                ("extract(epoch FROM n - z)", "-28800.0"),
                ("extract(epoch FROM z - n8)", "0.0"),
                ("extract(epoch FROM z - d)", "28800.0"),
                ("extract(epoch FROM age(z, n))", "28800.0"),
                ("date_diff('hour', n, z)", "8"),
                ("date_sub('hour', n, z)", "8"),
                ("date_diff('hour', d, z)", "8"),
                ("z = n8", "true"),
                ("z = n", "false"),
                ("z > n", "true"),
                ("z = d", "false"),
                ("z > d", "true"),
                ("z IN (d)", "false"),
                ("date_trunc('day', z) = d", "true"),
                ("z BETWEEN d AND DATE '9999-12-31'", "true"),
                // One instant, in three zones.
                ("extract(epoch FROM z - b)", "0.0"),
                ("extract(epoch FROM u - z)", "0.0"),
                ("extract(epoch FROM z - u)", "0.0"),
                ("extract(epoch FROM age(z, b))", "0.0"),
                ("date_diff('day', z, b)", "0"),
                ("date_diff('hour', u, b)", "0"),
                ("z = b AND b = u", "true"),
            ] {
                let sql = format!("SELECT {expr} FROM {table}");
                assert_eq!(folder.run_sql(&sql).single_value(), expected, "{unit} {naive} {expr}");
            }
        }
    }
}

#[test]
fn date_diff_counts_local_hour_boundaries() {
    let folder = Folder::new();
    let at =
        |zone: &str, time: &str| format!("TIMESTAMP '2024-11-28 {time}' AT TIME ZONE '{zone}'");
    for (unit, start, end, expected) in [
        // The local time of Kolkata passes 10 o'clock at half past four of UTC.
        ("hour", "TIMESTAMP '2024-11-28 09:40:00'".to_owned(), at("Asia/Kolkata", "10:05:00"), "1"),
        ("hour", at("Asia/Kolkata", "09:40:00"), at("Asia/Kolkata", "10:05:00"), "1"),
        ("hour", at("Asia/Kolkata", "10:05:00"), at("Asia/Kolkata", "09:40:00"), "-1"),
        ("hour", at("Asia/Kolkata", "09:10:00"), at("Asia/Kolkata", "09:55:00"), "0"),
        ("minute", at("Asia/Kolkata", "09:40:30"), at("Asia/Kolkata", "10:05:00"), "25"),
        ("day", at("Asia/Kolkata", "23:40:00"), at("Asia/Kolkata", "23:59:00"), "0"),
        ("hour", at("UTC", "09:40:00"), at("UTC", "10:05:00"), "1"),
    ] {
        let sql = format!("SELECT date_diff('{unit}', {start}, {end})");
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{sql}");
    }
}

#[test]
fn timestamp_and_its_zoned_form_are_separate_columns() {
    let folder = Folder::new();
    let table = "(VALUES (TIMESTAMP '2026-01-01 00:00:00')) AS t (ts)";
    for list in [
        "ts AT TIME ZONE 'Europe/Berlin',ts",
        "max(ts AT TIME ZONE 'Europe/Berlin'),max(ts)",
        "ts AT TIME ZONE 'Europe/Berlin',ts AT TIME ZONE 'Asia/Tokyo'",
    ] {
        let answer = folder.run_sql(&format!("SELECT {list} FROM {table}"));
        assert_eq!(answer.column_names().join(","), list);
    }
    let days = format!(
        "SELECT date_trunc('day', ts AT TIME ZONE 'Asia/Tokyo')::DATE AS day, count(*) FROM {table} \
         GROUP BY date_trunc('day', ts AT TIME ZONE 'Asia/Tokyo')"
    );
    assert_eq!(folder.run_sql(&days).rows(), string_rows(&[&["2026-01-01", "1"]]));
}

#[test]
fn fractional_seconds_are_rounded_to_microseconds_once() {
    let folder = Folder::new();
    let sql = "SELECT to_timestamp(1646861401.5241024)";
    assert_eq!(folder.run_sql(sql).single_value(), "2022-03-09T21:30:01.524102Z");
}

/// The start time of a query, a number of seconds and a text with an offset are instants: they have a zone.
#[test]
fn instants_have_the_zone_utc() {
    let folder = Folder::new();
    folder.write(
        "n.csv",
        "n,ms,s,text,naive\n1767225600,1767225600000,1767225600.5,01/Jan/2026 02:00 +0200,2026-01-01 00:00:00\n",
    );
    for (expr, expected) in [
        ("to_timestamp(n) AT TIME ZONE 'Europe/Berlin'", "2026-01-01T01:00:00+01:00"),
        ("hour(to_timestamp(n) AT TIME ZONE 'Europe/Berlin')", "1"),
        ("to_timestamp(1767225600) AT TIME ZONE 'Europe/Berlin'", "2026-01-01T01:00:00+01:00"),
        ("to_timestamp(s)", "2026-01-01T00:00:00.500Z"),
        ("to_timestamp(CAST(s AS DECIMAL(12, 1)))", "2026-01-01T00:00:00.500Z"),
        ("to_timestamp_seconds(n)", "2026-01-01T00:00:00Z"),
        ("to_timestamp_millis(ms) AT TIME ZONE 'Asia/Tokyo'", "2026-01-01T09:00:00+09:00"),
        ("to_timestamp_micros(ms)", "1970-01-21T10:53:45.600Z"),
        ("to_timestamp_nanos(n)", "1970-01-01T00:00:01.767225600Z"),
        ("from_unixtime(n) AT TIME ZONE 'Asia/Tokyo'", "2026-01-01T09:00:00+09:00"),
        ("strptime(text, '%d/%b/%Y %H:%M %z')", "2026-01-01T00:00:00Z"),
        ("try_strptime(text, ['%Y', '%d/%b/%Y %H:%M %z'])", "2026-01-01T00:00:00Z"),
        ("to_timestamp(text, '%d/%b/%Y %H:%M %z')", "2026-01-01T00:00:00Z"),
        ("to_timestamp(text, 'DD/Mon/YYYY HH24:MI TZH')", "2026-01-01T00:00:00Z"),
        ("date_parse(text, 'dd/MMM/yyyy HH:mm Z')", "2026-01-01T00:00:00Z"),
        // Without a zone in the format, or with a format that is not a literal.
        ("strptime('2026-01-01', '%Y-%m-%d')", "2026-01-01T00:00:00"),
        ("strptime(text, '%d/%b/%Y %H:%M ' || '%z')", "2026-01-01T00:00:00"),
        ("to_timestamp('2026-01-01 00:00:00')", "2026-01-01T00:00:00"),
        ("epoch_ms(ms)", "2026-01-01T00:00:00"),
        // Beside a time without a zone.
        ("to_timestamp(n) = naive", "true"),
        ("to_timestamp(n) - naive = INTERVAL '0 hours'", "true"),
        ("date_diff('hour', naive, to_timestamp(n))", "0"),
        ("coalesce(naive, now())", "2026-01-01T00:00:00Z"),
        ("greatest(naive, to_timestamp(s))", "2026-01-01T00:00:00.500Z"),
        ("CASE WHEN n > 0 THEN naive ELSE to_timestamp(n) END", "2026-01-01T00:00:00Z"),
        ("naive < now() AND naive > now() - INTERVAL '100 years'", "true"),
        ("naive IN (to_timestamp(n))", "true"),
        ("naive BETWEEN to_timestamp(n) AND now()", "true"),
        ("DATE '9999-12-31' > now() AND DATE '0001-01-01' < now()", "true"),
        ("CAST(to_timestamp(n) AS TIMESTAMP)", "2026-01-01T00:00:00"),
        ("CAST(to_timestamp(n) AS DATE)", "2026-01-01"),
        ("CAST(to_timestamp(n) AS BIGINT)", "1767225600"),
        ("epoch(to_timestamp(s))", "1767225600.5"),
        ("strftime(to_timestamp(n), '%H:%M %z')", "00:00 +0000"),
        ("typeof(now())", "TIMESTAMP(6) WITH TIME ZONE"),
        ("typeof(current_timestamp)", "TIMESTAMP(6) WITH TIME ZONE"),
        ("typeof(localtimestamp)", "TIMESTAMP(6)"),
        ("typeof(date_trunc('day', now()))", "TIMESTAMP(6) WITH TIME ZONE"),
        ("typeof(now() + INTERVAL '1 day')", "TIMESTAMP(6) WITH TIME ZONE"),
        ("now() = current_timestamp AND localtimestamp = now()", "true"),
    ] {
        let sql = format!("SELECT {expr} AS x FROM '$/n.csv'");
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{expr}");
    }
    let union = "SELECT naive AS t FROM '$/n.csv' UNION SELECT to_timestamp(n) FROM '$/n.csv'";
    assert_eq!(folder.run_sql(union).single_value(), "2026-01-01T00:00:00Z");
    let groups = "SELECT max(to_timestamp(n)) AS last, count(*) AS n FROM '$/n.csv' GROUP BY to_timestamp(n)";
    assert_eq!(folder.run_sql(groups).rows(), string_rows(&[&["2026-01-01T00:00:00Z", "1"]]));
    let names = "SELECT strptime(text, '%d/%b/%Y %H:%M %z'), to_timestamp(n) FROM '$/n.csv'";
    let names = folder.run_sql(names);
    assert_eq!(names.column_names(), ["strptime(text, '%d/%b/%Y %H:%M %z')", "to_timestamp(n)"]);
}

/// Days and months of an interval are counted in local time, and hours elapse. Where local time skips or
/// repeats a time, the rule of `AT TIME ZONE` holds.
#[test]
fn intervals_are_added_to_zoned_times_in_local_time() {
    let folder = Folder::new();
    let at = |time: &str, zone: &str| format!("TIMESTAMPTZ '{time}+00' AT TIME ZONE '{zone}'");
    folder.write("b.csv", "t\n2026-10-24 00:30:00Z\n2026-03-28 01:30:00Z\n");
    for (expr, expected) in [
        (
            at("2026-10-24 00:30:00", "Europe/Berlin") + " + INTERVAL '1 day'",
            "2026-10-25T02:30:00+01:00",
        ),
        (
            at("2026-03-28 01:30:00", "Europe/Berlin") + " + INTERVAL '1 day'",
            "2026-03-29T03:30:00+02:00",
        ),
        (
            at("2026-03-30 00:30:00", "Europe/Berlin") + " - INTERVAL '1 day'",
            "2026-03-29T03:30:00+02:00",
        ),
        (
            "INTERVAL '1 month' + ".to_owned() + &at("2026-01-31 12:00:00.25", "Europe/Berlin"),
            "2026-02-28T13:00:00.250+01:00",
        ),
        (
            at("2026-10-24 23:30:00", "Europe/Berlin") + " + INTERVAL '2 hours'",
            "2026-10-25T02:30:00+01:00",
        ),
        (
            at("2026-10-25 00:30:00", "Europe/Berlin") + " + INTERVAL '1 hour'",
            "2026-10-25T02:30:00+01:00",
        ),
        (
            at("2026-10-24 00:30:00", "Europe/Berlin") + " + INTERVAL '1 day 1 hour'",
            "2026-10-25T03:30:00+01:00",
        ),
        (
            at("1969-12-31 23:59:59.5", "Asia/Tokyo") + " + INTERVAL '-1 day'",
            "1969-12-31T08:59:59.500+09:00",
        ),
        (at("2026-10-25 10:00:00", "Europe/Berlin") + " > '2026-10-25 02:30:00'", "true"),
        (at("2026-10-25 01:30:00", "Europe/Berlin") + " = '2026-10-25 02:30:00'", "true"),
        (at("2026-10-25 00:30:00", "Europe/Berlin") + " = '2026-10-25 02:30:00+02:00'", "true"),
        (
            at("2026-03-29 01:30:00", "Europe/Berlin")
                + " IN ('2026-03-29 02:30:00', '2026-01-01')",
            "true",
        ),
    ] {
        assert_eq!(folder.run_sql(&format!("SELECT {expr}")).single_value(), expected, "{expr}");
    }
    let days =
        "SELECT t AT TIME ZONE 'Europe/Berlin' + INTERVAL '1 day' AS x FROM '$/b.csv' ORDER BY t";
    let expected = string_rows(&[&["2026-03-29T03:30:00+02:00"], &["2026-10-25T02:30:00+01:00"]]);
    assert_eq!(folder.run_sql(days).rows(), expected);
    let kept = "SELECT count(*) FROM '$/b.csv' WHERE t AT TIME ZONE 'Europe/Berlin' < '2026-10-25 02:30:00'";
    assert_eq!(folder.run_sql(kept).single_value(), "2");
    assert!(
        folder
            .sql_error(&format!("SELECT {} > 'soon'", at("2026-10-25 10:00:00", "Europe/Berlin")))
            .contains("soon")
    );
}

#[test]
fn negative_numbers_below_the_smallest_bigint_are_decimals() {
    let folder = Folder::new();
    for (expr, expected) in [
        ("-9999999999999999999", "-9999999999999999999"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("-18446744073709551615", "-18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-9999999999999999999 = CAST('-9999999999999999999' AS DECIMAL(19, 0))", "true"),
        ("-9999999999999999999 IN (-9999999999999999998)", "false"),
    ] {
        assert_eq!(folder.run_sql(&format!("SELECT {expr}")).single_value(), expected, "{expr}");
    }
}
