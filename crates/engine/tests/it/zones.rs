//! Clocks that are turned.

use crate::common::Folder;

#[test]
fn times_that_clocks_show_twice_or_never_are_instants() {
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
        let found = folder.ask(&sql).rows()[0][0].replace('T', " ");
        assert!(found.starts_with(expected), "{shown} {zone}: {found}");
    }
}

#[test]
fn a_day_of_two_midnights_is_one_group() {
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
        let found: Vec<String> = folder.ask(&sql).rows().concat();
        assert_eq!(found, expected, "{part}");
    }
    // An hour that comes twice is two.
    let sql = "SELECT count(DISTINCT date_trunc('hour', ts AT TIME ZONE 'Atlantic/Azores')) \
               FROM '$/az.csv'";
    assert_eq!(folder.ask(sql).rows(), [["4"]]);
    let midnight = "SELECT date_trunc('day', TIMESTAMP '2024-04-26 12:00:00' AT TIME ZONE \
                    'Africa/Cairo') AT TIME ZONE 'UTC' AS x";
    let found = folder.ask(midnight).rows()[0][0].replace('T', " ");
    assert!(found.starts_with("2024-04-25 22:00"), "{found}");
}

/// The day of the clocks, in every zone and at every hour, and not that of UTC.
#[test]
fn a_day_begins_when_the_clocks_say_so() {
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
            // The other way: what the clocks show is truncated as a time without a zone.
            let sql = format!(
                "SELECT count(*) FROM (SELECT t AT TIME ZONE '{zone}' AS z FROM '$/h.csv') \
                 WHERE CAST(date_trunc('{part}', z) AS TIMESTAMP) \
                       <> date_trunc('{part}', CAST(z AS TIMESTAMP))"
            );
            assert_eq!(folder.ask(&sql).rows(), [["0"]], "{zone} {part}");
        }
    }
    let sql = "SELECT CAST(date_trunc('day', t AT TIME ZONE 'Europe/Berlin') AS TIMESTAMP) AS d, \
               CAST(date_trunc('year', t AT TIME ZONE 'Europe/Berlin') AS TIMESTAMP) AS y \
               FROM '$/h.csv' ORDER BY t DESC LIMIT 1";
    assert_eq!(folder.ask(sql).rows(), [["2027-01-01T00:00:00", "2027-01-01T00:00:00"]]);
}
