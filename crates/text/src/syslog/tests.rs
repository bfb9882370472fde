use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;

use super::*;
use crate::lines::tests::{decode_with, real_log, rows};
use crate::predicate_filter::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
use crate::{DecodedBlocks, Options};

/// 1 July 2015.
const JULY: i64 = 1_435_708_800;

fn format(framing: SyslogFraming) -> SyslogFormat {
    SyslogFormat { framing, reference_seconds: JULY, offset_seconds: 0 }
}

fn typed(names: &[&str]) -> Vec<(usize, FieldRef)> {
    let all: Vec<_> = syslog_columns().into_iter().enumerate().collect();
    let of = |name: &&str| all.iter().find(|(_, field)| field.name() == name).unwrap().clone();
    names.iter().map(of).collect()
}

fn decode(columns: Vec<(usize, FieldRef)>, framing: SyslogFraming, text: &[u8]) -> DecodedBlocks {
    let mut decoder = SyslogDecoder::new(columns, &format(framing), Options::default()).unwrap();
    decode_with(&mut decoder, text)
}

/// Version, time, host, app, pid, msgid, data in its spelling, message.
type Model = Vec<Option<String>>;

fn text_columns() -> Vec<(usize, FieldRef)> {
    (2..10)
        .map(|place| {
            let field = syslog_columns()[place].as_ref().clone().with_data_type(DataType::Utf8View);
            (place, Arc::new(field))
        })
        .collect()
}

// The model: the grammar of the module's documentation, applied to strings.

fn model(line: &str) -> Option<(Option<u32>, Model)> {
    let (priority, rest) = match line.strip_prefix('<') {
        None => (None, line),
        Some(rest) => {
            let (digits, rest) = rest.split_once('>')?;
            let is_number =
                (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            let priority: u32 = digits.parse().ok().filter(|n| is_number && *n < 192)?;
            (Some(priority), rest)
        }
    };
    if priority.is_some()
        && let Some((version, rest)) = rest.split_once(' ')
        && (1..=3).contains(&version.len())
        && version.bytes().all(|b| b.is_ascii_digit())
        && !version.starts_with('0')
    {
        return Some((priority, model_modern(version, rest)?));
    }
    Some((priority, model_classic(rest)?))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn model_modern(version: &str, rest: &str) -> Option<Model> {
    let mut row = vec![some(version)];
    let mut words = rest.splitn(6, ' ');
    for _ in 0..5 {
        let word = words.next().filter(|word| !word.is_empty())?;
        let is_day = word.len() == 10
            && word
                .char_indices()
                .all(|(at, c)| if matches!(at, 4 | 7) { c == '-' } else { c.is_ascii_digit() });
        if row.len() == 1 && is_day {
            return None;
        }
        row.push(some(word).filter(|word| word != "-"));
    }
    let rest = words.next()?;
    let length = model_data(rest)?.1;
    row.push(some(&rest[..length]).filter(|data| data != "-"));
    let message = &rest[length..];
    if message.is_empty() {
        row.push(None);
    } else {
        let message = message.strip_prefix(' ')?;
        row.push(some(message.strip_prefix('\u{feff}').unwrap_or(message)));
    }
    Some(row)
}

/// Keys and values.
type Entries = Vec<(String, Option<String>)>;

/// Returns the entries of structured data, and its length.
fn model_data(text: &str) -> Option<(Entries, usize)> {
    if text.starts_with('-') {
        return Some((vec![], 1));
    }
    let is_name = |c: &char| !" =]\"".contains(*c);
    let mut entries = Vec::new();
    let mut rest = text;
    while let Some(inner) = rest.strip_prefix('[') {
        let id: String = inner.chars().take_while(is_name).collect();
        rest = &inner[id.len()..];
        if id.is_empty() {
            return None;
        }
        if rest.starts_with(']') {
            entries.push((id.clone(), None));
        } else if !rest.starts_with(' ') {
            return None;
        }
        while let Some(inner) = rest.strip_prefix(' ') {
            let name: String = inner.chars().take_while(is_name).collect();
            let inner = inner[name.len()..].strip_prefix("=\"").filter(|_| !name.is_empty())?;
            let (mut value, mut length, mut chars) = (String::new(), 0, inner.chars());
            loop {
                let next = chars.next()?;
                length += next.len_utf8();
                if next == '"' {
                    break;
                }
                if next != '\\' {
                    value.push(next);
                    continue;
                }
                let escape = chars.next()?;
                length += escape.len_utf8();
                if !"\"\\]".contains(escape) {
                    value.push('\\');
                }
                value.push(escape);
            }
            entries.push((format!("{id}.{name}"), Some(value)));
            rest = &inner[length..];
        }
        rest = rest.strip_prefix(']')?;
    }
    if entries.is_empty() { None } else { Some((entries, text.len() - rest.len())) }
}

fn is_model_year(word: &str) -> bool {
    word.len() == 4
        && word.bytes().all(|byte| byte.is_ascii_digit())
        && word.parse().is_ok_and(|year| (1970..2100).contains(&year))
}

fn model_classic(rest: &str) -> Option<Model> {
    let bytes = rest.as_bytes();
    let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
    let months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
    let is_month = rest.get(..3).is_some_and(|m| m.is_ascii() && months.split(' ').any(|n| n == m));
    let length = if is_month
        && bytes.len() >= 15
        && (at(3), at(6), at(9), at(12)) == (b' ', b' ', b':', b':')
        && b" 0123".contains(&at(4))
        && at(5).is_ascii_digit()
    {
        15
    } else if is_month
        && bytes.len() >= 14
        && (at(3), at(5), at(8), at(11)) == (b' ', b' ', b':', b':')
        && b"123456789".contains(&at(4))
    {
        14
    } else if let Some((_, rest)) = rest.split_once(' ').filter(|_| is_month && at(3) == b' ')
        && let Some((day, year_and_clock)) =
            rest.split_at_checked(if at(5) == b' ' { 1 } else { 2 })
        && let Some((year, clock)) =
            year_and_clock.get(1..).and_then(|rest| rest.split_at_checked(4))
        && year_and_clock.starts_with(' ')
        && is_model_year(year)
        && clock.len() >= 9
        && [0, 3, 6].map(|at| clock.as_bytes()[at]) == *b" ::"
        && (day.len() == 1 || b" 0123".contains(&at(4)) && at(5).is_ascii_digit())
        && (day.len() == 2 || b"123456789".contains(&at(4)))
    {
        4 + day.len() + 5 + 9
    } else if at(0).is_ascii_digit() && (at(4), at(7), at(10), at(13)) == (b'-', b'-', b'T', b':') {
        14 + bytes[14..].iter().take_while(|b| **b != b' ').count()
    } else {
        return None;
    };
    let (time, rest) = rest.split_at_checked(length)?;
    let (mut time, mut rest) = (time.to_owned(), rest.to_owned());
    if is_month
        && let Some((year, behind)) = rest.strip_prefix(' ').and_then(|rest| rest.split_once(' '))
        && is_model_year(year)
    {
        time = format!("{time} {year}");
        rest = format!(" {behind}");
    }
    if length == 20 || length == 19 && is_month {
        // The year precedes the clock.
        rest = rest.strip_prefix(':').filter(|rest| rest.starts_with(' ')).unwrap_or(&rest).into();
    }
    let rest = rest.strip_prefix(' ')?;
    let word = rest.split(' ').next()?;
    let (host, rest) = if word.ends_with(':') {
        (None, rest)
    } else {
        (some(word).filter(|word| !word.is_empty()), rest.split_once(' ')?.1)
    };
    if host.is_none() && !word.ends_with(':') {
        return None;
    }
    let end = rest.find([' ', '[', ':']).unwrap_or(rest.len());
    let (app, tail) = rest.split_at(end);
    let mut found = None;
    if let Some(tail) = tail.strip_prefix(':') {
        found = Some((None, tail));
    } else if let Some((pid, tail)) = tail.strip_prefix('[').and_then(|tail| tail.split_once(']'))
        && !pid.is_empty()
        && !pid.contains(' ')
    {
        found = Some((some(pid), tail.strip_prefix(':').unwrap_or(tail)));
    }
    let (app, pid, message) = match found {
        Some((pid, tail)) if !app.is_empty() => {
            (some(app), pid, tail.strip_prefix(' ').unwrap_or(tail))
        }
        _ => (None, None, rest),
    };
    Some(vec![None, Some(time), host, app, pid, None, None, some(message)])
}

fn check(text: &[u8]) -> Result<(), TestCaseError> {
    let lines = text.split(|byte| *byte == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let good: Vec<_> =
        lines.iter().filter_map(|line| model(std::str::from_utf8(line).ok()?)).collect();
    let out = decode(text_columns(), SyslogFraming::Lines, text);
    let expected: Vec<_> = good.iter().map(|(_, row)| row.clone()).collect();
    prop_assert_eq!(rows(&out.batches), expected);
    prop_assert_eq!(out.rejected.len(), lines.len() - good.len());
    // In other types, and record by record for some of them.
    let out =
        decode(typed(&["severity", "data", "facility", "message"]), SyslogFraming::Lines, text);
    prop_assert_eq!(out.rows as usize, good.len());
    let numbers = |column: usize| -> Vec<Option<i16>> {
        let of = |batch: &RecordBatch| {
            batch.column(column).as_primitive::<Int16Type>().iter().collect::<Vec<_>>()
        };
        out.batches.iter().flat_map(of).collect()
    };
    let wanted = |read: fn(u32) -> u32| -> Vec<Option<i16>> {
        good.iter().map(|(priority, _)| priority.map(|p| read(p) as i16)).collect()
    };
    prop_assert_eq!(numbers(0), wanted(|priority| priority % 8));
    prop_assert_eq!(numbers(2), wanted(|priority| priority / 8));
    let data: Vec<_> = out.batches.iter().flat_map(maps).collect();
    let wanted: Vec<_> = good
        .iter()
        .map(|(_, row)| row[6].as_ref().map(|data| model_data(data).unwrap().0))
        .collect();
    prop_assert_eq!(data, wanted);
    let options = Options { batch_rows: 3, ..Options::default() };
    let mut decoder = SyslogDecoder::new(vec![], &format(SyslogFraming::Lines), options).unwrap();
    let out = decode_with(&mut decoder, text);
    prop_assert_eq!(out.rows as usize, good.len());
    Ok(())
}

/// Returns the maps of the second column.
fn maps(batch: &RecordBatch) -> Vec<Option<Entries>> {
    let maps = batch.column(1).as_map();
    let of = |row: usize| {
        let entries = maps.value(row);
        let (keys, values) =
            (entries.column(0).as_string::<i32>().clone(), entries.column(1).as_string_view());
        let pairs = keys.iter().zip(values.iter());
        pairs.map(|(key, value)| (key.unwrap().to_owned(), value.map(str::to_owned))).collect()
    };
    (0..maps.len()).map(|row| maps.is_valid(row).then(|| of(row))).collect()
}

fn log() -> impl Strategy<Value = String> {
    let priority = prop_oneof![
        2 => Just(String::new()), 6 => (0u32..192).prop_map(|n| format!("<{n}>")),
        1 => "<[0-9]{0,4}>?",
    ];
    let classic = (
        prop_oneof![
            6 => "(Jan|Oct) [ 123][0-9] 1[0-9]:00:59 ",
            2 => "(Jan|Oct) [0-9] 1[0-9]:00:59 ",
            2 => "(Jan|Oct) ([ 123][0-9]|[0-9]) 1[0-9]:00:59 (19[67]9|2024|2100):? ",
            2 => "(Jan|Oct) ([ 123][0-9]|[0-9]) (19[67]9|2024|2100) 1[0-9]:00:59:? ",
            2 => "2015-0[1-9]-11T22:14:15(\\.003)?(Z|\\+02:00)? ",
            1 => "Okt 11 22:14:15 ",
        ],
        prop_oneof![5 => "[a-z:]{0,6} ", 1 => Just(String::new())],
        prop_oneof![4 => "[a-z]{1,5}(\\[[0-9]{1,3}\\])?: ", 1 => "[a\\[\\]: 1]{0,8}"],
        "[a-zé ]{0,30}",
    )
        .prop_map(|(time, host, tag, message)| format!("{time}{host}{tag}{message}"));
    let data = prop_oneof![
        3 => Just("-".to_owned()),
        3 => Just("[a@1 b=\"c d\" e=\"\"][x]".to_owned()),
        2 => Just(r#"[id k="\"q\" \\ \] \n é" k="]"]"#.to_owned()),
        2 => "\\[[a =\\]\"\\\\\\[b]{0,12}\\]",
    ];
    let modern = (
        "[1-9][0-9]{0,2} (-|2003-10-11T22:14:15.003Z) (-|host) (-|app) (-|[0-9]{1,4})",
        "( -| ID47){0,1} ",
        data,
        prop_oneof![4 => " (\u{feff})?[a-zé\\[\"]{0,20}", 1 => Just(String::new())],
    )
        .prop_map(|(head, id, data, message)| format!("{head}{id}{data}{message}"));
    let line = (priority, prop_oneof![classic, modern], prop::bool::weighted(0.1)).prop_map(
        |(priority, rest, cr)| format!("{priority}{rest}{}\n", if cr { "\r" } else { "" }),
    );
    let odd = prop_oneof![Just("\n".to_owned()), "[<>0-9 \\[\\]:-]{0,20}\n"];
    prop::collection::vec(prop_oneof![20 => line, 1 => odd], 0..30).prop_map(|lines| lines.concat())
}

/// Returns the records of a stream, each with true if it is counted; the last one may be truncated.
fn model_frames(mut text: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let mut frames = Vec::new();
    while !text.is_empty() {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = std::str::from_utf8(&text[..digits]).unwrap().parse::<usize>();
        let length = length.ok().filter(|n| *n <= FRAME_BYTES_MAX && text[0] != b'0');
        let (frame, counted) = match length {
            Some(length) if text.get(digits) == Some(&b' ') => (digits + 1 + length, true),
            _ => (text.iter().position(|b| *b == b'\n').map_or(text.len(), |at| at + 1), false),
        };
        let (frame, rest) = text.split_at(frame.min(text.len()));
        frames.push((frame.to_vec(), counted));
        text = rest;
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn logs_are_read_as_the_model_reads_them(log in log(), last: bool) {
        let text = if last { log.trim_end_matches('\n') } else { &log };
        check(text.as_bytes())?;
    }

    #[test]
    fn broken_logs_are_read_as_the_model_reads_them(
        log in log(), breaks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)
    ) {
        let mut text = log.into_bytes();
        for (at, byte) in breaks {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = byte;
            }
        }
        check(&text)?;
        decode(typed(&["ts", "data"]), SyslogFraming::Octets, &text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        check(&bytes)?;
        decode(typed(&["ts", "data"]), SyslogFraming::Octets, &bytes);
    }

    #[test]
    fn frames_are_cut_where_the_model_cuts_them(
        parts in prop::collection::vec(prop::sample::select(vec![
            &b"1"[..], b"3 ", b"10 ", b"0 ", b"<1>Oct 11 22:14:15 h a: b", b"25 ", b"\n", b"\r\n", b"9999999 ", b"\xc3\xa9", b"x y",
        ]), 0..40),
        blocks in prop::collection::vec(1usize..20, 1..20),
    ) {
        let text = parts.concat();
        let frames = model_frames(&text);
        let mut ends = Vec::new();
        let mut at = 0;
        for (frame, _) in &frames {
            at += frame.len();
            ends.push(at);
        }
        // The last record ends only if it is whole.
        if let Some((frame, counted)) = frames.last() {
            let digits = frame.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let is_whole = if *counted {
                let length: usize = std::str::from_utf8(&frame[..digits]).unwrap().parse().unwrap();
                frame.len() == digits + 1 + length
            } else {
                frame.ends_with(b"\n")
            };
            if !is_whole {
                ends.pop();
            }
        }
        let (mut framer, mut found, mut at) = (SyslogFramer::new(), Vec::new(), 0);
        while let Some(end) = framer.find_first_record_end(&text[at..]) {
            at += end;
            found.push(at);
        }
        prop_assert_eq!(&found, &ends);
        // Whatever the blocks of the stream, the last end of each block is one of those.
        let (mut framer, mut at) = (SyslogFramer::new(), 0);
        for length in blocks.iter().cycle().take(text.len()) {
            let to = (at + length).min(text.len());
            let last = framer.find_last_record_end(&text[at..to]).map(|end| at + end);
            prop_assert_eq!(last, ends.iter().copied().rfind(|end| *end > at && *end <= to));
            at = to;
        }
        // Every record becomes a row or a rejected record.
        let out = decode(typed(&["message"]), SyslogFraming::Octets, &text);
        let blank = |frame: &[u8]| matches!(frame, b"\n" | b"\r\n" | b"\r");
        let count = frames.iter().filter(|(frame, _)| !blank(frame)).count();
        prop_assert_eq!(out.rows as usize + out.rejected.len(), count);
    }

    #[test]
    fn date_without_year_is_of_the_latest_past_year(
        reference in 0i64..4_000_000_000, back in -1i64..300, second in 0i64..86_400, hours in -12i32..13
    ) {
        let offset = i64::from(hours) * 3600;
        let time = (reference / 86_400 - back) * 86_400 + second;
        let local = chrono::DateTime::from_timestamp(time + offset, 0).unwrap();
        let format =
            SyslogFormat { reference_seconds: reference, offset_seconds: hours * 3600, ..format(SyslogFraming::Lines) };
        let mut times = SyslogTimeParser::new(&format);
        for pattern in ["%b %e %H:%M:%S", "%b %d %H:%M:%S", "%b %-d %H:%M:%S"] {
            let text = local.format(pattern).to_string();
            let found = times.parse_instant(text.as_bytes());
            if time <= reference + 86_400 {
                prop_assert_eq!(found, Some((time, 0)));
            } else {
                prop_assert!(found.unwrap().0 < reference - 300 * 86_400);
            }
        }
        let text = local.format("%Y-%m-%dT%H:%M:%S").to_string();
        prop_assert_eq!(times.parse_instant(text.as_bytes()), Some((time, 0)));
    }
}

#[test]
fn examples_of_the_standards_are_read() {
    let text = concat!(
        "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8\n",
        "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time.\n",
        "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 ",
        "[exampleSDID@32473 iut=\"3\" eventSource=\"Application\" eventID=\"1011\"]",
        "[examplePriority@32473 class=\"high\"] \u{feff}An application\n",
        "2024-03-27T13:06:56.123456+01:00 ip-10-77 systemd[1]: Started.\n",
        "Feb 29 00:00:00 host last message repeated 2 times\n",
        "Jul  2 00:00:00 host kernel: [12.5] up\n",
        "Jul  2 00:00:01 postfix/smtpd[12]: no host\n",
        "<34>Apr 4 10:00:00 router one: blank\n",
    );
    let all: Vec<_> = syslog_columns().into_iter().enumerate().collect();
    let out = decode(all, SyslogFraming::Lines, text.as_bytes());
    assert!(out.rejected.is_empty(), "{:?}", out.rejected);
    let batch = &out.batches[0];
    let short = |column: usize| -> Vec<Option<i16>> {
        batch.column(column).as_primitive::<Int16Type>().iter().collect()
    };
    assert_eq!(short(0)[..4], [Some(4), Some(20), Some(20), None]);
    assert_eq!(short(1)[..4], [Some(2), Some(5), Some(5), None]);
    assert_eq!(short(2)[..4], [None, Some(1), Some(1), None]);
    let times = batch.column(3).as_primitive::<TimestampMicrosecondType>();
    let time = |text: &str| chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros();
    assert_eq!(
        times.values().to_vec(),
        [
            time("2014-10-11T22:14:15Z"),
            time("2003-08-24T05:14:15.000003-07:00"),
            time("2003-10-11T22:14:15.003Z"),
            time("2024-03-27T13:06:56.123456+01:00"),
            time("2012-02-29T00:00:00Z"),
            // Exactly a day after the reference is possible, a second more is not.
            time("2015-07-02T00:00:00Z"),
            time("2014-07-02T00:00:01Z"),
            time("2015-04-04T10:00:00Z"),
        ]
    );
    let text = |column: usize| -> Vec<&str> {
        batch.column(column).as_string_view().iter().map(|v| v.unwrap_or("NULL")).collect()
    };
    assert_eq!(
        text(4),
        [
            "mymachine",
            "192.0.2.1",
            "mymachine.example.com",
            "ip-10-77",
            "host",
            "host",
            "NULL",
            "router"
        ]
    );
    assert_eq!(
        text(5),
        ["su", "myproc", "evntslog", "systemd", "NULL", "kernel", "postfix/smtpd", "one"]
    );
    assert_eq!(text(6), ["NULL", "8710", "NULL", "1", "NULL", "NULL", "12", "NULL"]);
    assert_eq!(text(7)[..3], ["NULL", "NULL", "ID47"]);
    assert_eq!(
        text(9),
        [
            "'su root' failed for lonvick on /dev/pts/8",
            "%% It's time.",
            "An application",
            "Started.",
            "last message repeated 2 times",
            "[12.5] up",
            "no host",
            "blank"
        ]
    );
}

#[test]
fn a_year_beside_the_time_is_the_year() {
    for (line, time, host, app, message) in [
        ("Dec 23 15:31:15 2024 host app: x", "2024-12-23T15:31:15Z", "host", "app", "x"),
        ("<34>Dec  3 15:31:15 2024 host app[7]: x", "2024-12-03T15:31:15Z", "host", "app", "x"),
        ("Dec 3 15:31:15 2099 app: x", "2099-12-03T15:31:15Z", "NULL", "app", "x"),
        ("Feb 29 15:31:15 1972 host x y", "1972-02-29T15:31:15Z", "host", "NULL", "x y"),
        ("Dec 23 2024 15:31:15 host app: x", "2024-12-23T15:31:15Z", "host", "app", "x"),
        ("Dec 3 2024 15:31:15 host : x", "2024-12-03T15:31:15Z", "host", "NULL", ": x"),
        (
            "<166>Jul  4 1970 15:31:15: %ASA-6-302013: x",
            "1970-07-04T15:31:15Z",
            "NULL",
            "%ASA-6-302013",
            "x",
        ),
        ("Dec 31 2016 23:59:60 host app: x", "2017-01-01T00:00:00Z", "host", "app", "x"),
        // Not a year.
        ("Dec 23 15:31:15 1969 app: x", "2014-12-23T15:31:15Z", "1969", "app", "x"),
        ("Dec 23 15:31:15 2100 app: x", "2014-12-23T15:31:15Z", "2100", "app", "x"),
        ("Dec 23 15:31:15 20245 app: x", "2014-12-23T15:31:15Z", "20245", "app", "x"),
        ("Dec 23 15:31:15 2024: x", "2014-12-23T15:31:15Z", "NULL", "2024", "x"),
    ] {
        let out =
            decode(typed(&["ts", "host", "app", "message"]), SyslogFraming::Lines, line.as_bytes());
        assert!(out.rejected.is_empty(), "{line}: {:?}", out.rejected);
        let batch = &out.batches[0];
        let micros = batch.column(0).as_primitive::<TimestampMicrosecondType>().value(0);
        let expected = chrono::DateTime::parse_from_rfc3339(time).unwrap().timestamp_micros();
        assert_eq!(micros, expected, "{line}");
        let found = [1, 2, 3].map(|column| batch.column(column).as_string_view().iter().next());
        let found = found.map(|value| value.flatten().unwrap_or("NULL"));
        assert_eq!(found, [host, app, message], "{line}");
    }
    // An invalid day or clock, and a leap second where there was none.
    for line in [
        "Feb 30 15:31:15 2024 h a: x",
        "Feb 29 2023 15:31:15 h a: x",
        "Dec 23 2024 25:31:15 h a: x",
        "Dec 23 2024 15:31:60 h a: x",
        "Dec 23 1969 15:31:15 h a: x",
    ] {
        let out = decode(typed(&["ts"]), SyslogFraming::Lines, line.as_bytes());
        assert_eq!((out.rows, out.rejected.len()), (0, 1), "{line}");
    }
}

#[test]
fn faults_have_their_kinds_and_places() {
    let text = concat!(
        "<192>Oct 11 22:14:15 h a: b\n",
        "not a log line\n",
        "Oct 41 22:14:15 h a: b\n",
        "Oct 0 22:14:15 h a: b\n",
        "Oct 4  22:14:15 h a: b\n",
        "Feb 30 22:14:15 h a: b\n",
        "<1>1 - - - - - [a b=\"c]\n",
        "<1>1 - - - - - [a b=c]\n",
        "<1>1 - - - - - [a]x\n",
        "<1>1 - -\n",
        "<1>1 2003-10-11 22:14:15 h a - - - text\n",
    );
    let out = decode(typed(&["ts", "message"]), SyslogFraming::Lines, text.as_bytes());
    let faults: Vec<_> = out
        .rejected
        .iter()
        .map(|bad| {
            format!(
                "{} {}: {}",
                bad.fault.column.clone().unwrap_or_default(),
                bad.fault.offset,
                bad.fault
            )
        })
        .collect();
    assert_eq!(
        faults,
        [
            " 1: expected a priority of at most 191 in angle brackets at byte 2",
            " 0: expected a date and a time at byte 1",
            " 0: expected a date and a time at byte 1",
            " 0: expected a date and a time at byte 1",
            " 0: expected a date and a time at byte 1",
            "ts 0: expected a timestamp with a time zone, to microseconds, found `Feb 30 22:14:15`",
            " 23: a quote is never closed",
            " 20: expected `=` and a value in quotes at byte 21",
            " 18: expected a space behind the structured data at byte 19",
            " 8: the line ends within its value (expected a space and the next header field)",
            " 5: expected a time with `T` between the day and the clock at byte 6",
        ]
    );
}

#[test]
fn counted_records_may_hold_line_ends() {
    let message = "<34>Oct 11 22:14:15 h app: two\nlines";
    let mut stream = Vec::new();
    for index in 0..3000 {
        stream.extend(format!("{} {message}", message.len()).into_bytes());
        if index % 1000 == 0 {
            stream.extend(b"<34>Oct 11 22:14:15 h app: a line\n");
        }
    }
    let mut decoder =
        SyslogDecoder::new(typed(&["message"]), &format(SyslogFraming::Octets), Options::default())
            .unwrap();
    let (mut framer, mut kept, mut messages) = (SyslogFramer::new(), Vec::new(), Vec::new());
    for block in stream.chunks(777) {
        let last = framer.find_last_record_end(block);
        kept.extend_from_slice(block);
        let Some(last) = last else { continue };
        let rest = kept.split_off(kept.len() - block.len() + last);
        let out = decode_with(&mut decoder, &kept);
        assert!(out.rejected.is_empty(), "{:?}", out.rejected);
        messages.extend(rows(&out.batches).into_iter().map(|row| row[0].clone().unwrap()));
        kept = rest;
    }
    assert!(kept.is_empty() && framer.can_end_here());
    assert_eq!(messages.iter().filter(|message| *message == "two\nlines").count(), 3000);
    assert_eq!(messages.iter().filter(|message| *message == "a line").count(), 3);
    // A truncated record is refused.
    let out = decode_with(&mut decoder, b"30 <34>Oct 11 22:14:15 h app: x");
    assert!(matches!(out.rejected[0].fault.kind, TextFaultKind::EndsInsideValue(_)));
}

#[test]
fn predicates_keep_what_a_filter_on_values_keeps() {
    let text: String = (0..192)
        .map(|priority| {
            format!("<{priority}>1 - h{} app - - [a b=\"{priority}\"] {priority}\n", priority % 3)
        })
        .collect();
    for names in [
        &["severity", "facility", "host", "message"][..],
        &["severity", "facility", "host", "message", "data"],
    ] {
        let predicate = |column, test| Predicate { column, condition: test };
        let predicates = vec![
            predicate(
                0,
                ValueCondition::Comparison(
                    ComparisonOperator::LessOrEqual,
                    PredicateConstant::Int(3),
                ),
            ),
            predicate(
                1,
                ValueCondition::InSet(
                    vec![PredicateConstant::Int(4), PredicateConstant::Int(20)].into(),
                ),
            ),
            predicate(
                2,
                ValueCondition::Comparison(
                    ComparisonOperator::NotEqual,
                    PredicateConstant::Text("h0".into()),
                ),
            ),
        ];
        let options = Options { predicates, batch_rows: 100, ..Options::default() };
        let mut decoder =
            SyslogDecoder::new(typed(names), &format(SyslogFraming::Lines), options).unwrap();
        let out = decode_with(&mut decoder, text.as_bytes());
        let found: Vec<String> = out
            .batches
            .iter()
            .flat_map(|b| b.column(3).as_string_view().iter().map(|v| v.unwrap().to_owned()))
            .collect();
        let expected: Vec<String> = (0..192)
            .filter(|p| p % 8 <= 3 && [4, 20].contains(&(p / 8)) && p % 3 != 0)
            .map(|p| p.to_string())
            .collect();
        assert_eq!(found, expected);
        assert_eq!(out.rows, 192);
    }
}

#[test]
fn types_that_a_column_cannot_be_are_refused() {
    for (place, data_type) in [
        (0, DataType::Utf8View),
        (3, DataType::Timestamp(TimeUnit::Second, None)),
        (8, DataType::new_list(DataType::Utf8, true)),
        (9, DataType::new_list(DataType::Utf8, true)),
    ] {
        let field = Arc::new(Field::new("c", data_type, true));
        let decoder =
            SyslogDecoder::new(vec![(place, field)], &SyslogFormat::default(), Options::default());
        assert!(decoder.is_err());
    }
}

// Aggregates computed by Python's `re` and `datetime`.
#[test]
fn a_real_log_has_the_sums_that_another_program_finds() {
    let Some(text) = real_log("auth.log") else { return };
    let names = ["ts", "host", "app", "pid", "message", "data"];
    let out = decode(typed(&names), SyslogFraming::Lines, &text);
    assert_eq!((out.rows, out.rejected.len()), (7121, 0));
    let (mut times, mut sizes, mut nulls) = (0i64, [0usize; 5], 0);
    let mut apps = std::collections::BTreeMap::<String, usize>::new();
    for batch in &out.batches {
        let column = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        times += column.values().iter().map(|micros| micros / 1_000_000).sum::<i64>();
        for (place, size) in sizes.iter_mut().enumerate().skip(1) {
            let column = batch.column(place).as_string_view();
            *size += column.iter().flatten().map(str::len).sum::<usize>();
        }
        nulls += batch.column(3).null_count();
        assert_eq!(batch.column(5).null_count(), batch.num_rows());
        for app in batch.column(2).as_string_view().iter().flatten() {
            *apps.entry(app.to_owned()).or_default() += 1;
        }
    }
    assert_eq!((times, sizes[1..].to_vec(), nulls), (TIMES, SIZES.to_vec(), 795));
    assert_eq!(apps.iter().map(|(app, n)| (app.as_str(), *n)).collect::<Vec<_>>(), APPS);
}

/// The sum of all times, of 2015, in seconds.
const TIMES: i64 = 10_169_212_651_287;
/// Bytes of all hosts, apps, process numbers and messages.
const SIZES: [usize; 4] = [106_815, 35_458, 29_839, 470_453];
const APPS: [(&str, usize); 9] = [
    ("CRON", 1264),
    ("chpasswd", 417),
    ("groupadd", 3),
    ("sshd", 4095),
    ("su", 45),
    ("sudo", 557),
    ("systemd", 238),
    ("systemd-logind", 452),
    ("useradd", 50),
];
