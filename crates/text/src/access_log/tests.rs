use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type, TimestampMicrosecondType};
use arrow_schema::{Field, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::lines::tests::{check_windows, decode_with, real_log, rows};
use crate::predicate_filter::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
use crate::{DecodedBlocks, Options};

/// Returns all columns as text.
fn text_columns(places: &[usize]) -> Vec<(usize, FieldRef)> {
    let all = access_log_columns();
    places
        .iter()
        .map(|place| {
            let field = all[*place].as_ref().clone().with_data_type(DataType::Utf8View);
            (*place, Arc::new(field))
        })
        .collect()
}

fn typed(names: &[&str]) -> Vec<(usize, FieldRef)> {
    let all: Vec<_> = access_log_columns().into_iter().enumerate().collect();
    let of = |name: &&str| all.iter().find(|(_, field)| field.name() == name).unwrap().clone();
    names.iter().map(of).collect()
}

fn decode(columns: Vec<(usize, FieldRef)>, options: Options, text: &[u8]) -> DecodedBlocks {
    decode_with(&mut AccessLogDecoder::new(columns, options).unwrap(), text)
}

// The model: the grammar of the module's documentation, applied to strings character by
// character.

fn model_unescape(raw: &str) -> String {
    let raw = raw.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < raw.len() {
        let two = raw.get(at + 1).copied().unwrap_or(0);
        let digits = raw.get(at + 2..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .map(|digits| u8::from_str_radix(digits, 16).unwrap());
        if raw[at] != b'\\' {
            out.push(raw[at]);
            at += 1;
        } else if two == b'x' && byte.is_some() {
            out.push(byte.unwrap());
            at += 4;
        } else if let Some(place) = b"\"\\bnrtv".iter().position(|b| *b == two) {
            out.push(b"\"\\\x08\n\r\t\x0b"[place]);
            at += 2;
        } else {
            out.push(b'\\');
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| String::from_utf8(raw.to_vec()).unwrap())
}

fn model_pieces(line: &str) -> Option<Vec<String>> {
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = line.chars().collect();
    loop {
        let mut length = 0;
        if rest.first() == Some(&'"') {
            length = 1;
            loop {
                match rest.get(length) {
                    None => return None,
                    Some('\\') => length += 2,
                    Some('"') if matches!(rest.get(length + 1), None | Some(' ')) => break,
                    Some(_) => length += 1,
                }
            }
            length += 1;
        } else {
            while rest.get(length).is_some_and(|c| *c != ' ') {
                length += 1;
            }
        }
        pieces.push(rest[..length].iter().collect());
        if length == rest.len() {
            return Some(pieces);
        }
        rest = rest.split_off(length + 1);
    }
}

/// Returns true if an unescaped quote may have ended a value within it.
fn model_is_cut(piece: &str) -> bool {
    // Escapes of other characters stand for themselves.
    let mut plain = String::new();
    let mut chars = piece.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().map_or('x', |_| 'x') } else { c });
    }
    let Some(inner) = plain.strip_prefix('"') else { return plain.contains('"') };
    let mut inner = &inner[..inner.len() - 1];
    while let Some((_, behind)) = inner.split_once(" \"") {
        match behind.split_once('"') {
            Some((_, behind)) => inner = behind,
            None => return true,
        }
    }
    false
}

fn model(line: &[u8]) -> Option<Vec<Option<String>>> {
    let line = std::str::from_utf8(line).ok()?;
    let mut pieces = model_pieces(line)?;
    while pieces.len() > 1 && (pieces[0].ends_with(',') || pieces[1].starts_with(',')) {
        let next = pieces.remove(1);
        pieces[0] = format!("{} {next}", pieces[0]);
    }
    let unquoted = |piece: &str| {
        piece.strip_prefix('"').map_or(piece, |rest| &rest[..rest.len() - 1]).to_owned()
    };
    let is_time = |at: usize| {
        pieces[at].starts_with('[')
            && pieces[at + 1].ends_with(']')
            && pieces[at + 2].starts_with('"')
    };
    let time = (3..pieces.len().checked_sub(2)?).find(|at| is_time(*at))?;
    // The pieces before the time of a record with a site, or after the header of another log.
    let is_address =
        |word: &str| word.split(',').next().unwrap().parse::<std::net::IpAddr>().is_ok();
    let words = &pieces[2..time];
    if time > 3
        && (words.iter().any(|word| word == "-" || word.contains(':'))
            || pieces[0].is_empty()
            || pieces[1].is_empty()
            || is_address(&pieces[1])
            || words.len() > 2 && is_address(&words[words.len() - 3]))
    {
        return None;
    }
    if pieces[time + 2..].iter().any(|piece| model_is_cut(piece)) {
        return None;
    }
    let user = pieces[2..time].join(" ");
    let user = if time == 3 { unquoted(&user) } else { user };
    let stamp = format!("{} {}", pieces[time], pieces[time + 1]);
    let request = unquoted(&pieces[time + 2]);
    let words: Vec<&str> = request.split(' ').collect();
    let is_method = words.len() > 1
        && !words[0].is_empty()
        && words[0].chars().all(|c| c.is_ascii_uppercase() || "-_".contains(c));
    let last = words[words.len() - 1];
    let request = if !is_method {
        [None, Some(request.clone()), None]
    } else if last.starts_with("HTTP/") {
        let path = words[1..words.len() - 1].join(" ");
        [Some(words[0].into()), Some(path).filter(|p| !p.is_empty()), Some(last.into())]
    } else {
        let path = words[1..].join(" ");
        [Some(words[0].into()), Some(path).filter(|p| !p.is_empty()), None]
    };
    let after = &pieces[time + 3..];
    if after.len() < 2 {
        return None;
    }
    let combined = after.len() >= 4 && after[2].starts_with('"') && after[3].starts_with('"');
    let mut row = vec![Some(unquoted(&pieces[0])), Some(unquoted(&pieces[1])), Some(user), None];
    row.extend(request);
    row.extend([Some(unquoted(&after[0])), Some(unquoted(&after[1]))]);
    row.extend([2, 3].map(|at| combined.then(|| unquoted(&after[at]))));
    let value = |text: String| Some(model_unescape(&text)).filter(|text| text != "-");
    let mut row: Vec<_> = row.into_iter().map(|text| text.and_then(value)).collect();
    // The time keeps its spelling.
    row[3] = Some(stamp[1..stamp.len() - 1].to_owned()).filter(|text| text != "-");
    Some(row)
}

fn model_lines(text: &[u8]) -> Vec<&[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|l| l.strip_suffix(b"\r").unwrap_or(l)).filter(|l| !l.is_empty()).collect()
}

fn check(text: &[u8], batch_rows: usize) -> Result<(), TestCaseError> {
    let places: Vec<usize> = (0..11).collect();
    let lines = model_lines(text);
    let expected: Vec<_> = lines.iter().filter_map(|line| model(line)).collect();
    for places in [&places[..], &[7, 0], &[10, 9], &[5, 5], &[]] {
        let options = Options { batch_rows, ..Options::default() };
        let out = decode(text_columns(places), options, text);
        prop_assert_eq!(out.rows as usize, expected.len());
        prop_assert_eq!(out.rejected.len(), lines.len() - expected.len());
        if places.is_empty() {
            continue;
        }
        let expected: Vec<Vec<_>> = expected
            .iter()
            .map(|row| places.iter().map(|place| row[*place].clone()).collect())
            .collect();
        prop_assert_eq!(rows(&out.batches), expected);
        prop_assert!(out.batches.iter().all(|batch| batch.num_rows() <= batch_rows));
    }
    Ok(())
}

/// Returns mostly well-formed lines: a log of one format with a few odd lines.
fn log() -> impl Strategy<Value = String> {
    let user = prop_oneof![
        8 => Just("-".to_owned()), 2 => "[a-z]{1,20}", 1 => Just("\"\"".into()), 1 => Just(r#"a\"b"#.into()),
    ];
    let request = prop_oneof![
        8 => "(GET|POST|M-SEARCH) /[a-z0-9/?&=.]{0,40} HTTP/[12]\\.[01]",
        1 => Just(r"\x16\x03\x01\x02".to_owned()),
        1 => Just(r#"GET /\"a\\ b\xc3\xa9\ HTTP/1.1"#.to_owned()),
        1 => Just("-".to_owned()),
        1 => Just("".to_owned()),
        1 => Just("GET /old".to_owned()),
        1 => Just("GET HTTP/1.0".to_owned()),
        1 => Just("get / HTTP/1.0".to_owned()),
        1 => "[GETHP/1. ]{0,20}",
    ];
    let agent = prop_oneof![
        6 => "[a-zA-Z0-9();./ ]{0,80}", 1 => Just("é\\\"é".to_owned()), 1 => Just("-".to_owned()),
    ];
    let line = (user, request, agent, 0..5u8, prop::bool::weighted(0.05)).prop_map(
        |(user, request, agent, extra, cr)| {
            let extra = match extra {
                0 => " 0.001 \"x y\"",
                _ => "",
            };
            let end = if cr { "\r\n" } else { "\n" };
            (
                format!("10.0.0.1 - {user} [10/Oct/2000:13:55:36 -0700] \"{request}\" 200 -"),
                format!(" \"-\" \"{agent}\""),
                extra,
                end,
            )
        },
    );
    let odd = prop_oneof![
        Just("\n".to_owned()),
        Just("h - John Smith [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2\n".to_owned()),
        Just("h - a b [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2\n".to_owned()),
        Just("1.2.3.4, 5.6.7.8 - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2\n".to_owned()),
        Just(
            "1.2.3.4, , ::1 - a b [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2 \"r\" \"a\"\n".into()
        ),
        Just("1.2.3.4, [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2\n".to_owned()),
        Just("h - \"\" b [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2 \"r\" \"a\"\n".to_owned()),
        Just("h - - [10/Oct/2000:13:55:36 -0700] \"GET /\n".to_owned()),
        Just("h - - [10/Oct/2000:13:55:36 -0700] \"GET \"q\" /\" 1 2\n".to_owned()),
        Just("h - - [x y] \"GET\"/\" 1 2 \"3\" 4\n".to_owned()),
        Just("h - - [x] \"GET /\" 1 2 \"3\" \"4\" 5\n".to_owned()),
        Just("h - - [x y] \"GET /\" 1\n".to_owned()),
        Just(
            "Nov 10 12:11:55 h nginx: 1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2\n"
                .into()
        ),
        Just("web_1  | 1.2.3.4 - ann [10/Oct/2000:13:55:36 -0700] \"GET /\" 1 2\n".to_owned()),
        Just("h - - [x y] \"GET /\" 1 2 \"-\" \"a \"b\" c\"\n".to_owned()),
        Just("h - - [x y] \"GET /\" 1 2 \"-\" \"a \"b\", c\"\n".to_owned()),
        Just("h - - [x y] \"GET /\" 1 2 \"-\" \"a b\"c\"\n".to_owned()),
        Just("a\rb\n".to_owned()),
        "[ \"\\\\\\[\\]a\r-]{0,30}\n",
    ];
    (any::<bool>(), prop::bool::weighted(0.3), prop::collection::vec((line, odd, 0..20u8), 0..40))
        .prop_map(|(combined, extras, lines)| {
            let mut text = String::new();
            for ((common, more, extra, end), odd, which) in lines {
                if which == 0 {
                    text.push_str(&odd);
                    continue;
                }
                text.push_str(&common);
                if combined {
                    text.push_str(&more);
                }
                if extras {
                    text.push_str(extra);
                }
                text.push_str(end);
            }
            text
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn logs_are_read_as_the_model_reads_them(
        log in log(), batch_rows in 1usize..50, last: bool, cut in prop::option::weighted(0.2, any::<prop::sample::Index>())
    ) {
        let mut text = log.into_bytes();
        if let Some(cut) = cut && !text.is_empty() {
            let at = cut.index(text.len());
            text[at] = b'"';
        }
        let text = if last { text.strip_suffix(b"\n").unwrap_or(&text) } else { &text };
        check(text, batch_rows)?;
    }

    #[test]
    fn any_text_is_read_as_the_model_reads_it(
        pieces in prop::collection::vec(prop::sample::select(vec![
            " ", "\"", "\\", "\n", "\r", "[", "]", "-", "a", "GET ", " HTTP/1.1", "[a b] \"", "\" 1 2",
            "a - - [x y] \"", "\" \"",
        ]), 0..80)
    ) {
        check(pieces.concat().as_bytes(), 8192)?;
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, pieces in log()) {
        let mut text = pieces.into_bytes();
        text.extend(bytes);
        check(&text, 8192)?;
        decode(typed(&["ts", "status", "bytes", "ip"]), Options::default(), &text);
    }

    #[test]
    fn times_are_those_of_chrono(seconds in -60_000_000_000i64..200_000_000_000, zone in -14 * 60i32..14 * 60) {
        let offset = chrono::FixedOffset::east_opt(zone * 60).unwrap();
        let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap().with_timezone(&offset);
        let text = time.format("%d/%b/%Y:%H:%M:%S %z").to_string();
        let mut days = ClfDayCache::default();
        if text.len() == 26 {
            prop_assert_eq!(days.parse_instant(text.as_bytes()), Some(seconds));
            prop_assert_eq!(days.parse_instant(text.as_bytes()), Some(seconds));
        }
    }
}

#[test]
fn values_get_their_types_and_faults_their_places() {
    let text = concat!(
        "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif HTTP/1.0\" 200 2326\n",
        "::1 - - [31/Dec/2016:23:59:60 +0000] \"-\" 408 -\n",
        "::1 - - [31/Feb/2016:23:59:60 +0000] \"-\" 408 -\n",
        "::1 - - [28/Feb/2016:23:59:59 +0000] \"-\" 40x -\n",
        "::1 - - [28/Feb/2016:23:59:59 +0000] \"a b\n",
        "::1 - - [28/Feb/2016:23:59:59 +0000] \"a b\" 200\n",
        "::1 - - nothing\n",
        "::\u{ff} - - [29/Feb/2016:00:00:00 +0130] \"-\" 70000 1\n",
    );
    let mut text = text.as_bytes().to_vec();
    text.extend(b"::1 - - [01/Mar/2016:23:59:59 +0000] \"GET /\xff HTTP/1.1\" 200 0\n");
    let names = ["ts", "status", "bytes", "ip", "path"];
    let out = decode(typed(&names), Options::default(), &text);
    let batch = &out.batches[0];
    let times = batch.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values().to_vec(), [971_211_336_000_000, 1_483_228_800_000_000]);
    assert_eq!(batch.column(1).as_primitive::<Int16Type>().values().to_vec(), [200, 408]);
    let bytes: Vec<_> = batch.column(2).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(bytes, [Some(2326), None]);
    let faults: Vec<String> = out
        .rejected
        .iter()
        .map(|bad| {
            let column = bad.fault.column.clone().unwrap_or_default();
            format!("{column} at {}: {}", bad.fault.offset, bad.fault)
        })
        .collect();
    assert_eq!(
        faults,
        [
            "ts at 9: expected a timestamp with a time zone, to microseconds, found `31/Feb/2016:23:59:60 +0000`",
            "status at 41: expected a SMALLINT, found `40x`",
            " at 37: a quote is never closed",
            " at 46: the line ends within its value (a status and a size should follow the request)",
            " at 8: expected a time in brackets and a request in quotes at byte 9",
            "status at 42: expected a SMALLINT, found `70000`",
            "path at 43: the record is not valid UTF-8 from its byte 44 on",
        ]
    );
    let options = Options { mismatch_is_null: true, ..Options::default() };
    let out = decode(typed(&names), options, &text);
    assert_eq!((out.rows, out.rejected.len()), (5, 4));
    assert_eq!(out.batches[0].column(1).null_count(), 2);
}

#[test]
fn fraction_of_a_second_is_kept() {
    let line = |time: &str| format!("h - - [{time} -0700] \"GET / HTTP/1.1\" 200 1\n");
    let second = "10/Oct/2000:13:55:36";
    let times =
        [".123", "", ".5", ".000001", ".123456000"].map(|part| line(&format!("{second}{part}")));
    let out = decode(typed(&["ts"]), Options::default(), times.concat().as_bytes());
    assert!(out.rejected.is_empty(), "{:?}", out.rejected);
    let found = out.batches[0].column(0).as_primitive::<TimestampMicrosecondType>();
    let expected = [123_000, 0, 500_000, 1, 123_456].map(|micros| 971_211_336_000_000 + micros);
    assert_eq!(found.values().to_vec(), expected);
    // No fraction, more digits than microseconds have, and a second that is no leap second.
    for odd in [".", ".12x", ".1234567", ".1234567890", "x123", ".1 "] {
        let out =
            decode(typed(&["ts"]), Options::default(), line(&format!("{second}{odd}")).as_bytes());
        assert_eq!((out.rows, out.rejected.len()), (0, 1), "{odd}");
    }
    let out = decode(typed(&["ts"]), Options::default(), line("10/Oct/2000:13:55:60.5").as_bytes());
    assert_eq!(out.rejected.len(), 1);
}

#[test]
fn predicates_keep_what_a_filter_on_values_keeps() {
    let line = |index: usize| {
        let agent = if index.is_multiple_of(7) { "\\\"q\\\"" } else { "x y" };
        let bytes = if index.is_multiple_of(3) { "-".to_owned() } else { index.to_string() };
        let status = 200 + index % 5;
        format!(
            "10.0.0.{} - - [10/Oct/2000:13:55:36 -0700] \"GET /{index} HTTP/1.1\" {status} {bytes} \"-\" \"{agent}\"\n",
            index % 4
        )
    };
    let text: String = (0..1000).map(line).collect();
    let predicate = |column, test| Predicate { column, condition: test };
    let predicates = vec![
        predicate(
            0,
            ValueCondition::Comparison(
                ComparisonOperator::GreaterOrEqual,
                PredicateConstant::Int(203),
            ),
        ),
        predicate(1, ValueCondition::IsNotNull),
        predicate(2, ValueCondition::InSet(vec![PredicateConstant::Text("\"q\"".into())].into())),
        predicate(3, ValueCondition::IsNull),
    ];
    let options = Options { predicates, ..Options::default() };
    let names = ["status", "bytes", "user_agent", "referrer", "path"];
    let out = decode(typed(&names), options, text.as_bytes());
    let found: Vec<String> = out
        .batches
        .iter()
        .flat_map(|b| b.column(4).as_string_view().iter().map(|v| v.unwrap().to_owned()))
        .collect();
    let expected: Vec<String> = (0..1000)
        .filter(|index| index % 5 >= 3 && index % 3 != 0 && index % 7 == 0)
        .map(|index| format!("/{index}"))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(out.rows, 1000);
}

#[test]
fn result_does_not_depend_on_windows_and_blocks() {
    let places: Vec<usize> = (0..11).collect();
    let record = |index, long| {
        format!(
            "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /{} HTTP/1.1\" {} 1 \"-\" \"é {index}\"\n",
            "x".repeat(long),
            index % 1000
        )
    };
    check_windows(record, |options, text| decode(text_columns(&places), options, text));
}

#[test]
fn types_that_a_column_cannot_be_are_refused() {
    for (place, data_type) in [
        (3, DataType::Timestamp(TimeUnit::Second, None)),
        (3, DataType::Date32),
        (0, DataType::new_list(DataType::Utf8, true)),
    ] {
        let field = Arc::new(Field::new("c", data_type, true));
        assert!(AccessLogDecoder::new(vec![(place, field)], Options::default()).is_err());
    }
}

// Aggregates computed by Python's `re` and `datetime`.
#[test]
fn a_real_log_has_the_sums_that_another_program_finds() {
    let Some(text) = real_log("apache_access.log") else { return };
    let names =
        ["ip", "ts", "method", "path", "protocol", "status", "bytes", "referrer", "user_agent"];
    let out = decode(typed(&names), Options::default(), &text);
    assert_eq!((out.rows, out.rejected.len()), (9999, 1));
    assert_eq!(out.rejected[0].fault.kind, TextFaultKind::UnclosedQuote);
    let (mut bytes, mut nulls, mut referrers, mut first, mut last) = (0, 0, 0, i64::MAX, 0);
    let (mut ips, mut paths, mut statuses, mut agents) =
        (std::collections::BTreeSet::new(), 0, 0, 0);
    for batch in &out.batches {
        ips.extend(batch.column(0).as_string_view().iter().flatten().map(str::to_owned));
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
        first = first.min(*times.values().iter().min().unwrap());
        last = last.max(*times.values().iter().max().unwrap());
        paths += batch.column(3).as_string_view().iter().flatten().map(str::len).sum::<usize>();
        statuses += batch
            .column(5)
            .as_primitive::<Int16Type>()
            .values()
            .iter()
            .map(|s| i64::from(*s))
            .sum::<i64>();
        bytes += batch.column(6).as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        nulls += batch.column(6).null_count();
        referrers += batch.column(7).null_count();
        agents += batch.column(8).as_string_view().iter().flatten().map(str::len).sum::<usize>();
    }
    let found = (bytes, nulls, referrers, first, last, ips.len(), paths, statuses, agents);
    assert_eq!(found, EXPECTED);
}

/// Bytes sent, requests without them, without a referrer, first and last time, clients, bytes
/// of paths, sum of statuses, bytes of user agents.
const EXPECTED: (i64, usize, usize, i64, i64, usize, usize, i64, usize) = (
    2_747_282_505,
    669,
    4072,
    1_431_857_100_000_000,
    1_432_155_959_000_000,
    1753,
    322_987,
    2_108_104,
    896_224,
);

// Shapes.

/// Returns the columns that a sample shows beyond those of every log, and what inference did not recognize.
fn infer_shape(text: &str) -> (String, Option<String>) {
    let shown = AccessLogShape::infer_from_sample(text.as_bytes());
    let own: Vec<String> = access_log_columns().iter().map(|field| field.name().clone()).collect();
    let names = shown.shape.columns();
    let others = names.iter().map(|field| field.name().clone()).filter(|name| !own.contains(name));
    (others.collect::<Vec<_>>().join(" "), shown.unrecognized)
}

#[test]
fn sample_shows_leading_and_trailing_columns() {
    let time = "[10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 7";
    let check = |before: &str, behind: &str, expected: &str, unknown: &str| {
        let lines: String = (1..=9)
            .map(|n| {
                let (before, behind) =
                    (before.replace('#', &n.to_string()), behind.replace('#', &n.to_string()));
                format!("{before} {time}{behind}\n")
            })
            .collect();
        let (found, what) = infer_shape(&lines);
        assert_eq!(found, expected, "{lines}");
        let what = what.unwrap_or_default();
        assert!(
            if unknown.is_empty() { what.is_empty() } else { what.contains(unknown) },
            "{what}"
        );
    };
    let combined = " \"-\" \"curl/#\"";
    check("10.0.0.# - -", "", "", "");
    check("10.0.0.# - -", combined, "", "");
    check("a.example:80 10.0.0.# - -", combined, "host port", "");
    check("a.example:80 client.example - ann", "", "host port", "");
    check("[::1]:443 ::# - -", combined, "host port", "");
    check("a.example 10.0.0.# - -", combined, "host", "");
    check("h - John Smith", combined, "", "a field before the client");
    check("::1 - John Smith", combined, "", "a field before the client");
    check("\"-\" x 10.0.0.# - -", combined, "", "fields before the client");
    check("10.0.0.# - -", &format!("{combined} 0.00#"), "request_time", "");
    check("10.0.0.# - -", " 0.00#", "request_time", "");
    check("10.0.0.# - -", &format!("{combined} \"0.00#\""), "request_time", "");
    check("10.0.0.# - -", &format!("{combined} 0.00# -"), "request_time", "");
    check(
        "10.0.0.# - -",
        &format!("{combined} 0.50# 0.00#"),
        "request_time upstream_response_time",
        "",
    );
    check(
        "10.0.0.# - -",
        &format!("{combined} 0.00# 0.50#"),
        "upstream_response_time request_time",
        "",
    );
    check(
        "10.0.0.# - -",
        &format!("{combined} \"10.1.2.#, 10.0.0.1\" 0.00#"),
        "x_forwarded_for request_time",
        "",
    );
    check("10.0.0.# - -", &format!("{combined} \"-\""), "", "");
    check("10.0.0.# - -", &format!("{combined} 150# 7"), "", "`1501 7` in the first");
    check(
        "10.0.0.# - -",
        &format!("{combined} 0.001 0.002 0.003"),
        "",
        "`0.001 0.002 0.003` in the first",
    );
    check(
        "a.example:80 10.0.0.# - -",
        &format!("{combined} 0.00# x"),
        "host port request_time",
        "`x` in the first",
    );
    assert_eq!(infer_shape(""), (String::new(), None));
    assert_eq!(infer_shape("nothing\n\n"), (String::new(), None));
}

#[test]
fn lists_and_odd_records_do_not_change_columns() {
    let line = |behind: &str| {
        format!(
            "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 7 \"-\" \"u\"{behind}\n"
        )
    };
    let check = |behind: &[&str], expected: &str, unknown: &str| {
        let text: String = behind.iter().map(|behind| line(behind)).collect();
        let (found, what) = infer_shape(&text);
        assert_eq!(found, expected, "{behind:?}");
        let what = what.unwrap_or_default();
        assert!(what.contains(unknown) && unknown.is_empty() == what.is_empty(), "{what}");
    };
    let both = "request_time upstream_response_time";
    check(&[" 0.300 0.200", " 0.400 0.100, 0.200"], both, "");
    check(&[" 0.300 0.200", " 0.400 0.100, 0.200 : 0.050, -"], both, "");
    check(&[" 0.200 0.300", " 0.100, 0.200 0.400"], "upstream_response_time request_time", "");
    // One odd record among many changes nothing.
    let with = |odd: &'static str| [vec![" 0.300 0.200"; 50], vec![odd]].concat();
    for odd in [" 0.100 0.101", " 1 0.5", " x y", " 0.1", "", " 0.1 0.2 0.3"] {
        check(&with(odd), both, "");
    }
    check(&[vec![" 0.3 0.2"; 9], vec![" 0.300 0.200"]].concat(), "", "`0.3 0.2` in the first");
    check(&[" 0.300 0.200", " 0.100 0.200"], "", "`0.300 0.200` in the first");
    // Trailing pieces of too few records are not read, and reported.
    check(&["", " 0.300 0.200"], "", "`0.300 0.200` in the first");
    let text = [line(" 0.300 0.200"), line(" 0.400 0.100, 0.200"), line(" 0.400 0.100, 0.200 : -")];
    let found = rows_by_inferred_shape(&text.concat(), &["request_time", "upstream_response_time"]);
    let some = |values: [&str; 2]| values.map(|value| Some(value.to_owned())).to_vec();
    let expected = [["0.300", "0.200"], ["0.400", "0.100, 0.200"], ["0.400", "0.100, 0.200 : -"]];
    assert_eq!(found, expected.map(some));
    let text = [line(" 0.200 0.300").repeat(9), line(" 0.100, 0.200 0.400")].concat();
    let found = rows_by_inferred_shape(&text, &["request_time", "upstream_response_time"]);
    assert_eq!(found.last(), Some(&some(["0.400", "0.100, 0.200"])));
}

#[test]
fn a_site_is_before_the_client_or_the_record_is_malformed() {
    let rest = "[10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 7 \"-\" \"u\"\n";
    let names = ["host", "port", "ip", "ident", "user"];
    let read = |text: &str| {
        let shape = AccessLogShape::infer_from_sample(text.as_bytes()).shape;
        let columns: Vec<_> = shape.columns().into_iter().enumerate().collect();
        let is_named = |field: &FieldRef| names.contains(&field.name().as_str());
        let columns =
            columns.into_iter().filter(|(_, field)| is_named(field)).map(|(place, field)| {
                (
                    place,
                    Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)) as FieldRef,
                )
            });
        let columns = columns.collect();
        let mut decoder =
            AccessLogDecoder::with_shape(&shape, columns, Options::default()).unwrap();
        let out = decode_with(&mut decoder, text.as_bytes());
        let faults: Vec<String> = out.rejected.iter().map(|bad| bad.fault.to_string()).collect();
        let rows: Vec<String> = rows(&out.batches)
            .into_iter()
            .map(|row| {
                row.into_iter().map(|v| v.unwrap_or("∅".into())).collect::<Vec<_>>().join("|")
            })
            .collect();
        (rows, faults)
    };
    let log = |before: &[(&str, usize)]| {
        before
            .iter()
            .map(|(before, count)| format!("{before} {rest}").repeat(*count))
            .collect::<String>()
    };
    let (plain, site) = ("10.0.0.1 - -", "b.com:80 10.0.0.2 - -");
    // One odd record among many is malformed, ...
    let (rows, faults) = read(&log(&[(plain, 20), (site, 1)]));
    assert_eq!((rows.len(), faults.len()), (20, 1));
    assert!(faults[0].contains("more stands before the time than a client"), "{}", faults[0]);
    for odd in ["b.com 10.0.0.2 - -", "b.com:80 10.0.0.2 ann bob", "b.com 10.0.0.2 - ann"] {
        assert_eq!(read(&log(&[(plain, 20), (odd, 1), (plain, 2)])).1.len(), 1, "{odd}");
    }
    // ... a good share is a column.
    let (rows, faults) = read(&log(&[(plain, 3), (site, 1)]));
    assert_eq!(faults, [""; 0]);
    assert_eq!(rows[2..], ["∅|∅|10.0.0.1|∅|∅", "b.com|80|10.0.0.2|∅|∅"]);
    // The other way around.
    let (rows, faults) = read(&log(&[
        (site, 20),
        (plain, 1),
        ("10.0.0.1 - John Smith", 1),
        ("b.com 10.0.0.2 - -", 1),
    ]));
    assert_eq!(faults, [""; 0]);
    assert_eq!(
        rows[20..],
        ["∅|∅|10.0.0.1|∅|∅", "∅|∅|10.0.0.1|∅|John Smith", "b.com|∅|10.0.0.2|∅|∅"]
    );
    assert_eq!(read(&log(&[(site, 20), ("10.0.0.1 - - -", 1)])).1.len(), 1);
    // Hosts that are addresses, and a host that is missing.
    let (rows, faults) =
        read(&log(&[("::1:80 10.0.0.2 - -", 2), ("[::1]:80 ::2 - -", 1), (":80 10.0.0.2 - -", 1)]));
    assert_eq!(faults, [""; 0]);
    assert_eq!(rows[1..], ["::1|80|10.0.0.2|∅|∅", "[::1]|80|::2|∅|∅", "|80|10.0.0.2|∅|∅"]);
}

#[test]
fn a_list_of_clients_is_one_value() {
    let rest = "[10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 7 \"-\" \"u\"\n";
    let lists = [
        "1.2.3.4",
        "1.2.3.4, 5.6.7.8",
        "1.2.3.4, 5.6.7.8, 9.9.9.9",
        "::1, unknown",
        "1.2.3.4 , 5.6.7.8",
        "1.2.3.4 ,5.6.7.8 ,::1",
    ];
    for (site, names) in [("", &["ip", "user"][..]), ("b.com:80 ", &["ip", "user", "host"])] {
        for users in [["-", "-"], ["ann", "John Smith"]] {
            for repeated in [1, 40] {
                let records = lists.iter().flat_map(|list| {
                    users.map(|user| {
                        (format!("{site}{list} - {user} {rest}").repeat(repeated), user)
                    })
                });
                let (texts, users): (Vec<String>, Vec<&str>) = records.unzip();
                let rows = rows_by_inferred_shape(&texts.concat(), names);
                let all = lists.iter().flat_map(|list| [list; 2]).zip(users);
                let expected: Vec<_> = all
                    .flat_map(|(list, user)| {
                        let user = Some(user).filter(|user| *user != "-").map(str::to_owned);
                        let host = names.get(2).map(|_| Some("b.com".to_owned()));
                        let row = [Some((*list).to_owned()), user].into_iter().chain(host);
                        vec![row.collect::<Vec<_>>(); repeated]
                    })
                    .collect();
                assert_eq!(rows, expected, "{site} {users:?} {repeated}", users = texts[0]);
            }
        }
    }
    let out = decode(typed(&["ip"]), Options::default(), format!("1.2.3.4, {rest}").as_bytes());
    assert_eq!(out.rejected.len(), 1);
}

/// Reads a log with the shape inferred from it, all columns as text.
fn rows_by_inferred_shape(text: &str, names: &[&str]) -> Vec<Vec<Option<String>>> {
    let shape = AccessLogShape::infer_from_sample(text.as_bytes()).shape;
    let all: Vec<_> = shape.columns().into_iter().enumerate().collect();
    let of = |name: &&str| {
        let (place, field) = all.iter().find(|(_, field)| field.name() == name).unwrap();
        (*place, Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)))
    };
    let columns = names.iter().map(of).collect();
    let mut decoder = AccessLogDecoder::with_shape(&shape, columns, Options::default()).unwrap();
    let out = decode_with(&mut decoder, text.as_bytes());
    assert!(out.rejected.is_empty(), "{:?}", out.rejected);
    rows(&out.batches)
}

#[test]
fn records_are_read_by_their_shape_and_those_of_another_too() {
    let time = "[10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\"";
    let line = |n: usize| {
        format!(
            "a{n}.example:80 10.0.0.{n} - - {time} 200 {n} \"r{n}\" \"u {n}\" 0.50{n} 0.00{n}\n"
        )
    };
    let text = (1..9).map(line).collect::<String>();
    let odd = [
        // Without a host, with a user of two words, with two servers asked, without trailing pieces.
        format!("10.0.0.9 - - {time} 200 9 \"r\" \"u\" 0.509 0.009\n"),
        format!("b:8080 10.0.0.9 - a b {time} 200 9 \"r\" \"u\" 0.509 0.009\n"),
        format!("b:8080 10.0.0.9 - - {time} 200 9 \"r\" \"u\" 0.509 0.001, 0.002\n"),
        format!("b:8080 10.0.0.9 - - {time} 200 9 \"r\" \"u\"\n"),
        format!("b:8080 10.0.0.9 - - {time} 200 9\n"),
    ]
    .concat();
    let names = [
        "host",
        "port",
        "ip",
        "user",
        "status",
        "referrer",
        "request_time",
        "upstream_response_time",
    ];
    let found = rows_by_inferred_shape(&format!("{text}{odd}{text}"), &names);
    let some = |values: &[&str]| -> Vec<Option<String>> {
        values.iter().map(|value| (*value != "-").then(|| (*value).to_owned())).collect()
    };
    let regular = |n: usize| {
        some(&[
            &format!("a{n}.example"),
            "80",
            &format!("10.0.0.{n}"),
            "-",
            "200",
            &format!("r{n}"),
            &format!("0.50{n}"),
            &format!("0.00{n}"),
        ])
    };
    let mut expected: Vec<Vec<Option<String>>> = (1..9).map(regular).collect();
    expected.extend([
        some(&["-", "-", "10.0.0.9", "-", "200", "r", "0.509", "0.009"]),
        some(&["b", "8080", "10.0.0.9", "a b", "200", "r", "0.509", "0.009"]),
        some(&["b", "8080", "10.0.0.9", "-", "200", "r", "0.509", "0.001, 0.002"]),
        some(&["b", "8080", "10.0.0.9", "-", "200", "r", "-", "-"]),
        some(&["b", "8080", "10.0.0.9", "-", "200", "-", "-", "-"]),
    ]);
    expected.extend((1..9).map(regular));
    assert_eq!(found, expected);
    // In the Common format, a trailing piece is no referrer.
    let text: String =
        (1..9).map(|n| format!("10.0.0.{n} - - {time} 200 {n} 0.50{n} 0.00{n}\n")).collect();
    let found = rows_by_inferred_shape(&text, &["bytes", "referrer", "request_time"]);
    let expected: Vec<_> =
        (1..9).map(|n| some(&[&n.to_string(), "-", &format!("0.50{n}")])).collect();
    assert_eq!(found, expected);
    let found = rows_by_inferred_shape(&text, &["bytes", "referrer"]);
    let expected: Vec<_> = (1..9).map(|n: usize| some(&[&n.to_string(), "-"])).collect();
    assert_eq!(found, expected);
}

/// Returns the rows of a log with its inferred shape, one line each, and the faults of its malformed records.
fn rows_and_faults(text: &str, names: &[&str]) -> (Vec<String>, Vec<String>) {
    let shape = AccessLogShape::infer_from_sample(text.as_bytes()).shape;
    let all: Vec<_> = shape.columns().into_iter().enumerate().collect();
    let of = |name: &&str| {
        let (place, field) = all.iter().find(|(_, field)| field.name() == name).unwrap();
        (*place, Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)))
    };
    let columns = names.iter().map(of).collect();
    let mut decoder = AccessLogDecoder::with_shape(&shape, columns, Options::default()).unwrap();
    let out = decode_with(&mut decoder, text.as_bytes());
    let shown = |row: Vec<Option<String>>| {
        row.into_iter().map(|value| value.unwrap_or("∅".into())).collect::<Vec<_>>().join("|")
    };
    let faults = out.rejected.iter().map(|bad| bad.fault.to_string()).collect();
    (rows(&out.batches).into_iter().map(shown).collect(), faults)
}

#[test]
fn a_record_behind_the_header_of_another_log_is_malformed() {
    let rest = "[10/Nov/2022:12:11:55 +0000] \"GET / HTTP/1.1\" 200 741 \"-\" \"M\"";
    let headers = [
        "Nov 10 12:11:55 10.10.1.13 nginx: 140.82.121.3 - -",
        "Nov 10 12:11:55 10.10.1.13 nginx: 140.82.121.3 - frank",
        "<190>Nov 10 12:11:55 web1 nginx: client.example.com - frank",
        "<34>1 2022-11-10T12:11:55Z host nginx 7 - - 10.0.0.1 - -",
        "2022-11-10T12:11:55Z host nginx[7]: 10.0.0.1 - -",
        "2022-11-10T12:11:55.123456Z 10.0.0.1 - -",
        "2022-11-10T12:11:55 10.0.0.1 - -",
        "web_1  | 10.0.64.1 - -",
        "web_1  | 10.0.64.1 - frank",
        "web-1 | 10.0.64.1 - -",
        "web-1 | 10.0.64.1 frank frank",
        "[pod/web-1/nginx] 10.0.64.1 - -",
        "1668082315.123 10.0.0.1 - -",
    ];
    for header in headers {
        for count in [1, 40] {
            let text = format!("{header} {rest}\n").repeat(count);
            let (rows, faults) = rows_and_faults(&text, &["ip", "ident", "user"]);
            assert_eq!((rows.len(), faults.len()), (0, count), "{header}");
            assert!(faults[0].contains("more stands before the time"), "{}", faults[0]);
            // Among other records, too.
            let text = format!("10.0.0.1 - - {rest}\n").repeat(20) + &text;
            if count == 1 {
                let (rows, faults) = rows_and_faults(&text, &["ip"]);
                assert_eq!((rows.len(), faults.len()), (20, 1), "{header}");
            }
        }
    }
    // Users with blanks, lists of clients and sites are unaffected.
    for (before, names, expected) in [
        ("10.0.0.1 - John Smith", &["ip", "ident", "user"][..], "10.0.0.1|∅|John Smith"),
        ("10.0.0.1 x John A. Smith-Doe", &["ip", "ident", "user"], "10.0.0.1|x|John A. Smith-Doe"),
        ("1.2.3.4, 5.6.7.8 - -", &["ip", "ident", "user"], "1.2.3.4, 5.6.7.8|∅|∅"),
        ("1.2.3.4, ::1 - John Smith", &["ip", "ident", "user"], "1.2.3.4, ::1|∅|John Smith"),
        (
            "a.example:80 1.2.3.4, ::1 - J S",
            &["host", "port", "ip", "user"],
            "a.example|80|1.2.3.4, ::1|J S",
        ),
        ("a.example:8080:80 10.0.0.1 - -", &["host", "port", "ip"], "a.example:8080|80|10.0.0.1"),
        ("web-1_x 10.0.0.1 - -", &["host", "ip"], "web-1_x|10.0.0.1"),
        ("bücher.example 10.0.0.1 - -", &["host", "ip"], "bücher.example|10.0.0.1"),
        ("[::1]:443 ::2 - ann", &["host", "port", "ip", "user"], "[::1]|443|::2|ann"),
    ] {
        let (rows, faults) = rows_and_faults(&format!("{before} {rest}\n").repeat(3), names);
        assert_eq!((rows, faults.len()), (vec![expected.to_owned(); 3], 0), "{before}");
    }
}

#[test]
fn a_quote_that_may_have_cut_a_field_makes_its_record_malformed() {
    let start = "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700]";
    let good = format!("{start} \"GET / HTTP/1.1\" 200 2 \"r\" \"Moz\"\n");
    let names = ["path", "status", "referrer", "user_agent"];
    for odd in [
        r#""GET / HTTP/1.1" 200 2 "-" "Mozilla "x" y""#,
        r#""GET / HTTP/1.1" 200 2 "-" "Mozilla "x" "y" z""#,
        r#""GET / HTTP/1.1" 200 2 "-" "Mozilla "x y z" "-""#,
        r#""GET / HTTP/1.1" 200 2 "http://x/?a="b" c" "Moz""#,
        r#""GET /?q="a" HTTP/1.1" 200 2 "-" "Moz""#,
        r#""GET / HTTP/1.1" 200 2 "-" "Moz" a"b"#,
    ] {
        let text = [good.repeat(30), format!("{start} {odd}\n"), good.repeat(30)].concat();
        for names in [&names[..], &["ip"]] {
            let (rows, faults) = rows_and_faults(&text, names);
            assert_eq!((rows.len(), faults.len()), (60, 1), "{odd}");
            assert!(
                faults[0].starts_with("an unescaped quote within a field at byte"),
                "{faults:?}"
            );
        }
    }
    for (odd, expected) in [
        (r#""GET / HTTP/1.1" 200 2 "-" "a \"b\" c""#, r#"/|200|∅|a "b" c"#),
        (r#""GET / HTTP/1.1" 200 2 "-" "a ("b") c""#, r#"/|200|∅|a ("b") c"#),
        (r#""GET / HTTP/1.1" 200 2 "-" "a "b", c""#, r#"/|200|∅|a "b", c"#),
        (r#""GET / HTTP/1.1" 200 2 "-" "a "b c"d" "-""#, r#"/|200|∅|a "b c"d"#),
        (r#""GET / HTTP/1.1" 200 2 "http://x/?s=5"tv" "Moz""#, r#"/|200|http://x/?s=5"tv|Moz"#),
        (r#""GET /?q="x"&n=1 HTTP/1.1" 200 2 "-" "Moz""#, r#"/?q="x"&n=1|200|∅|Moz"#),
        (r#""GET / HTTP/1.1" 200 2 "-" "Moz" "x y" 0.001 7"#, "/|200|∅|Moz"),
    ] {
        let text = [good.repeat(30), format!("{start} {odd}\n"), good.repeat(30)].concat();
        let (rows, faults) = rows_and_faults(&text, &names);
        assert_eq!((rows[30].as_str(), rows.len(), faults.len()), (expected, 61, 0), "{odd}");
    }
}

#[test]
fn fields_in_place_of_referrer_and_agent_are_malformed() {
    let line = |behind: &str| {
        format!("10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 2{behind}\n")
    };
    let good = line(" \"r\" \"Moz\"");
    for odd in [" junk", " junk junk", " \"-\"", " 0.001", " \"r\" Moz", " - -", " a \"b\" \"c\""] {
        for count in [1, 3] {
            let text = [good.repeat(30), line(odd).repeat(count), good.repeat(3)].concat();
            for names in [&["referrer", "user_agent"][..], &["ip"], &["status", "path"]] {
                let (rows, faults) = rows_and_faults(&text, names);
                assert_eq!((rows.len(), faults.len()), (33, count), "{odd}");
                assert!(
                    faults[0].starts_with("expected a referrer and a user agent"),
                    "{faults:?}"
                );
            }
        }
    }
    // A record of the Common format among them, and logs of that format.
    let (rows, faults) = rows_and_faults(&[good.repeat(30), line("")].concat(), &["user_agent"]);
    assert_eq!((rows[30].as_str(), faults.len()), ("∅", 0));
    let (rows, faults) = rows_and_faults(&[line("").repeat(30), line(" 7")].concat(), &["status"]);
    assert_eq!((rows.len(), faults.len()), (31, 0));
    let text = [line(" 0.001").repeat(30), good].concat();
    let (rows, faults) = rows_and_faults(&text, &["referrer", "request_time"]);
    assert_eq!((rows[0].as_str(), rows[30].as_str(), faults.len()), ("∅|0.001", "r|∅", 0));
}

proptest! {
    /// The columns of every log do not depend on the sample's shape.
    #[test]
    fn a_shape_changes_no_other_column(log in log(), extra in prop::sample::select(vec!["", " 0.001", " 0.005 0.001", " 7", " \"10.0.0.1\" 0.001"])) {
        let text: String = log.lines().map(|line| format!("{line}{extra}\n")).collect();
        let shape = AccessLogShape::infer_from_sample(text.as_bytes()).shape;
        let names: Vec<String> = access_log_columns().iter().map(|field| field.name().clone()).collect();
        let all: Vec<_> = shape.columns().into_iter().enumerate().collect();
        prop_assert_eq!(shape.leading_piece_count(), 0);
        let own = all.iter().filter(|(_, field)| names.contains(field.name())).map(|(place, field)| {
            (*place, Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)) as FieldRef)
        });
        let own: Vec<_> = own.collect();
        let mut with_all = own.clone();
        with_all.extend(all.iter().filter(|(_, field)| !names.contains(field.name())).cloned());
        let read = |columns| {
            let mut decoder = AccessLogDecoder::with_shape(&shape, columns, Options { mismatch_is_null: true, ..Options::default() }).unwrap();
            decode_with(&mut decoder, text.as_bytes())
        };
        let same = AccessLogShape { combined: shape.combined, ..AccessLogShape::default() };
        let places: Vec<usize> = (0..11).collect();
        let mut plain = AccessLogDecoder::with_shape(&same, text_columns(&places), Options::default()).unwrap();
        let plain = decode_with(&mut plain, text.as_bytes());
        let (some, more) = (read(own), read(with_all));
        prop_assert_eq!(rows(&some.batches), rows(&plain.batches));
        let cut: Vec<_> = more.batches.iter().map(|batch| batch.project(&(0..11).collect::<Vec<_>>()).unwrap()).collect();
        prop_assert_eq!(rows(&cut), rows(&plain.batches));
    }

    #[test]
    fn no_sample_makes_a_shape_panic(bytes: Vec<u8>, pieces in prop::collection::vec(prop::sample::select(vec![
        " ", "\"", "\\", "\n", "[", "]", "-", "a:80", "10.0.0.1", "[a b] \"", "\" 1 2", "a - - [x y] \"", "\" \"", " 0.001"]), 0..60)) {
        for text in [bytes, pieces.concat().into_bytes()] {
            let shape = AccessLogShape::infer_from_sample(&text).shape;
            let all = shape.columns().into_iter().enumerate().collect();
            let mut decoder = AccessLogDecoder::with_shape(&shape, all, Options::default()).unwrap();
            decode_with(&mut decoder, &text);
        }
    }
}
