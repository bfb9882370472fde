//! JSON records that are not one per line.

use std::io::Read;

use super::*;

/// An input that yields pieces of the given sizes, repeatedly in this order.
struct ChunkedInput {
    bytes: Vec<u8>,
    at: usize,
    sizes: Vec<usize>,
    next: usize,
}

impl ChunkedInput {
    fn new(bytes: &[u8], sizes: &[usize]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, sizes: sizes.to_vec(), next: 0 }
    }
}

impl Read for ChunkedInput {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let size = self.sizes.get(self.next % self.sizes.len().max(1)).copied().unwrap_or(1 << 20);
        self.next += 1;
        let count = size.max(1).min(out.len()).min(self.bytes.len() - self.at);
        out[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// The outcome of reading a text: rows, number of rejected records and the first of them without the file
/// name, or the error.
type SequenceReadOutcome =
    std::result::Result<(Rows, u64, Vec<(Option<u64>, u64, String)>), String>;

fn outcome(source: Result<Arc<Source>>, target: u64, allowed: &str) -> SequenceReadOutcome {
    let options = rejects(allowed, None);
    let read = source.and_then(|source| read(&source, target, &options));
    let (rows, _) = read.map_err(|error| match error {
        Error::Corrupt { offset, reason, .. } => format!("{offset:?}: {reason}"),
        error => user_message(error),
    })?;
    let first = options.reject_log.first_records();
    let places = first.into_iter().map(|bad| (bad.line, bad.offset, bad.reason)).collect();
    Ok((rows, options.reject_log.count(), places))
}

/// Returns the outcome on each path: a file, cut and whole, compressed, a program and a pipe.
fn outcomes(text: &[u8], allowed: &str, sizes: &[usize]) -> Vec<(String, SequenceReadOutcome)> {
    let packed = compressed("gz", text);
    let folder = folder(&[("a.json", text), ("b.json.gz", &packed)]);
    let mut found = Vec::new();
    for target in [1, 50, 1 << 20] {
        found.push((format!("cut by {target}"), outcome(open(&folder, "a.json"), target, allowed)));
    }
    found.push(("compressed".to_owned(), outcome(open(&folder, "b.json.gz"), 1, allowed)));
    let json = SourceSpec { url: "-".into(), format: Some(Format::Json), ..SourceSpec::default() };
    let pieces = Box::new(ChunkedInput::new(text, sizes));
    let source = Source::open_with_stdin(&json, pieces, &CancelFlag::new()).map(Arc::new);
    found.push(("piped".to_owned(), outcome(source, 1, allowed)));
    found
}

#[test]
fn objects_are_read_with_any_separator() {
    let pretty = "{\n  \"a\": 1,\n  \"t\": \"}{\"\n}";
    for text in [
        "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n".to_owned(),
        "{\"a\":1}{\"a\":2}{\"a\":3}".to_owned(),
        "{\"a\":1} {\"a\":2}\t{\"a\":3}\n".to_owned(),
        "{\"a\":1},\n{\"a\":2},\n{\"a\":3},\n".to_owned(),
        "{\"a\":1},\r\n{\"a\":2},\r\n{\"a\":3}".to_owned(),
        "\u{1e}{\"a\":1}\n\u{1e}{\"a\":2}\n\u{1e}{\"a\":3}\n".to_owned(),
        "{\"a\":1}\u{1e}{\"a\":2}\u{1e}{\"a\":3}".to_owned(),
        format!("{pretty}\n{{\n  \"a\": 2\n}}\n{{\"a\":3}}\n"),
        format!("{pretty},\n{{\"a\":2}}, {{\"a\":\n3}}\n"),
        format!("{pretty}{pretty}{pretty}")
            .replacen('1', "2", 2)
            .replacen('2', "1", 1)
            .replace("2,\n  \"t\": \"}{\"\n}{\n  \"a\": 1", "2,\n  \"t\": \"}{\"\n}{\n  \"a\": 3"),
        "[{\"a\":1},{\"a\":2},{\"a\":3}]".to_owned(),
        "[\n{\"a\":1},\n{\"a\":2},\n{\"a\":3}\n]\n".to_owned(),
        "[{\"a\":1}]\n[{\"a\":2},\n{\"a\":3}]\n".to_owned(),
        "[{\"a\":1}]{\"a\":2}\n[{\"a\":3}]\n".to_owned(),
        "\u{feff}[{\"a\":1},{\"a\":2}\n,{\"a\":3}]".to_owned(),
        "\u{feff}{\"a\":1}{\"a\":2}{\"a\":3}".to_owned(),
        // Lines to begin with.
        "{\"a\":1}\n{\"a\":2}{\"a\":3}\n".to_owned(),
        "{\"a\":1}\n{\"a\":2},\n{\"a\":3}\n".to_owned(),
        "{\"a\":1}\n\u{1e}{\"a\":2}\n\u{1e}{\"a\":3},\n".to_owned(),
        "{\"a\":1}\n{\"a\":2}, {\"a\":3}".to_owned(),
    ] {
        for (path, found) in outcomes(text.as_bytes(), "0", &[3, 1, 7]) {
            let (rows, bad, _) = found.unwrap_or_else(|error| panic!("{text:?} {path}: {error}"));
            let values: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
            assert_eq!((values, bad), (vec!["1", "2", "3"], 0), "{text:?} {path}");
        }
    }
}

#[test]
fn rejected_records_of_a_sequence_have_file_offsets() {
    for (text, good, expected) in [
        (
            "{\n  \"a\": 1\n}\n\n{\n  \"a\": tru\n}\n{\"a\": 2}\n",
            2,
            (5, 14, "not valid JSON: expected a value at byte 10"),
        ),
        (
            "[{\"a\": 1},\n{\"a\": 2}, {\"b\":\n01,\n\"a\": \"x\"},\n{\"a\":3}]",
            3,
            (2, 21, "expected a BIGINT, found `x`"),
        ),
        ("{\"a\": 1}{\"a\": 2}\n\n,,{\"a\": 3}", 3, (3, 19, "expected an object, found a comma")),
        ("\u{1e}{\"a\": \n\u{1e}{\"a\": 1}\n\u{1e}{\"a\": 2}", 2, (1, 1, "the line ends within")),
        ("{\"a\": 1}{\"a\": \"x\ny\"}{\"a\": 2}", 2, (1, 8, "a control character in a string")),
        ("{\"a\": 1}\n{\n\"a\": 2\n}\n", 1, (2, 9, "the line ends within its value")),
        (
            "{\"a\": 0},\n{\"a\": 1, \"s\": \"x\",\n{\"a\": 2},\n{\"a\": 3},\n",
            3,
            (2, 10, "the line ends within"),
        ),
        (
            "[\n{\"a\": 0},\n{\"a\": 1, \"s\": \"x\n{\"a\": 2},\n{\"a\": 3}\n]\n",
            3,
            (3, 12, "the line ends within"),
        ),
        (
            "[{\"a\": 1} {\"a\": 2},\n{\"a\": 3}]",
            3,
            (1, 10, "expected a comma between two records of an array"),
        ),
        ("{\"a\": 1}\n,{\"a\": 2}\n", 1, (2, 9, "found a comma with no record before it")),
    ] {
        for (path, found) in outcomes(text.as_bytes(), "100%", &[2, 5]) {
            let (rows, count, first) =
                found.unwrap_or_else(|error| panic!("{text:?} {path}: {error}"));
            let (line, offset, reason) = expected;
            assert_eq!((rows.len(), count > 0), (good, true), "{text:?} {path}");
            assert_eq!((first[0].0, first[0].1), (Some(line), offset), "{text:?} {path}");
            assert!(first[0].2.contains(reason), "{text:?} {path}: {}", first[0].2);
        }
        // No rejected record is allowed.
        for (path, found) in outcomes(text.as_bytes(), "0", &[100]) {
            assert!(found.unwrap_err().contains("malformed"), "{text:?} {path}");
        }
    }
    let run = tempfile::tempdir().unwrap();
    let folder = folder(&[("a.json", b"{\n  \"a\": 1\n}{\n  \"a\": tru\n}")]);
    let options = rejects("1", Some(&run));
    read(&open(&folder, "a.json").unwrap(), 1, &options).unwrap();
    let copy = std::fs::read_to_string(run.path().join("rejected/1.jsonl")).unwrap();
    let copy: serde_json::Value = serde_json::from_str(&copy).unwrap();
    assert_eq!(copy["record"], "{\n  \"a\": tru\n}");
}

#[test]
fn an_array_that_is_broken_off_is_an_error_on_every_path() {
    for (text, offset) in [
        ("[{\"a\": 1},\n{\"a\"", 15),
        ("[{\"a\": 1}", 9),
        ("[", 1),
        ("{\"a\": 1}[{\"a\": 2},", 18),
        ("\u{1e}[{\"a\": 1},\u{1e}{\"a\": 2}\n", 11),
    ] {
        for (path, found) in outcomes(text.as_bytes(), "100%", &[4]) {
            let expected = format!("Some({offset}): an array of records begins in it");
            let error = found.expect_err(text);
            assert!(error.starts_with(&expected), "{text:?} {path}: {error}");
        }
    }
}

#[test]
fn files_of_all_layouts_are_one_source() {
    let pretty = "{\n \"a\": 2\n}\n".repeat(3000);
    let lines = "{\"a\": 1}\n".repeat(3000);
    let folder = folder(&[
        ("1.json", lines.as_bytes()),
        ("2.json", pretty.as_bytes()),
        ("3.json", b"[{\"a\": 3}]"),
        ("4.json", b"\n{\"a\": 4}{\"a\": 5}"),
        ("5.json", b""),
        ("6.json", b" \n"),
    ]);
    let source = open(&folder, "*.json").unwrap();
    let count = |file: usize| {
        let splits = source.splits_with_target_bytes(1000, &mut |_, _| true).unwrap();
        splits.iter().filter(|split| split.parts.iter().any(|it| it.file.index() == file)).count()
    };
    assert!(count(0) > 20);
    assert_eq!(count(1), 1);
    for target in [1000, 1 << 30] {
        let (rows, _) = read(&source, target, &ReadOptions::default()).unwrap();
        let sum: i64 = rows.iter().map(|row| row[0].parse::<i64>().unwrap()).sum();
        assert_eq!((rows.len(), sum), (6003, 3000 + 6000 + 12));
    }
}

#[test]
fn rows_of_a_sequence_are_numbered_with_those_that_are_refused() {
    let folder = folder(&[("a.json", b"{\"a\": 1}{\"a\": x}\n{\n\"a\": 3}")]);
    let unhidden = vec![(HiddenColumn::RowNumber, "n".to_owned())];
    let spec = SourceSpec { exposed_hidden_columns: unhidden, ..spec(&folder, "a.json") };
    let source = Arc::new(Source::open(&spec).unwrap());
    let cutting = SplitOptions { keeps_row_numbers: true, ..SplitOptions::default() };
    let splits = source.splits_with_options(cutting, &mut |_, _| true).unwrap();
    let (rows, _) = read_splits(&source, splits, &rejects("1", None)).unwrap();
    let numbers: Vec<i64> = rows.iter().map(|row| row[1].parse().unwrap()).collect();
    assert_eq!(numbers[1] - numbers[0], 2, "{rows:?}");
}

/// Objects in several notations, and the text between two of them.
fn parts() -> impl Strategy<Value = Vec<(i64, u8, &'static str)>> {
    let between = prop::sample::select(vec![
        "\n", "", " ", ",\n", "\u{1e}", "\r\n", "\n\u{1e}", ",", " \n\n", ",\u{1e}",
    ]);
    prop::collection::vec((any::<i64>(), 0u8..4, between), 1..12)
}

fn object(number: i64, how: u8) -> String {
    match how {
        0 => format!("{{\"a\":{number}}}"),
        1 => format!("{{ \"t\": \"}}{{\\\"[,\", \"a\" : {number}, \"l\": [{{}}, [\"]\"]]}}"),
        2 => format!("{{\"b\": {{}},\"a\":{number}}}"),
        _ => format!("{{\n  \"l\": [\n    {{}},\n    1\n  ],\n  \"a\": {number}\n}}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_sequence_of_objects_gives_the_same_rows_however_it_comes(
        parts in parts(), sizes in prop::collection::vec(1usize..40, 1..5)
    ) {
        use tidemill_text::json::{JsonLayout, detect_layout};
        let text: String =
            parts.iter().map(|(number, how, between)| object(*number, *how) + between).collect();
        let is_lines = detect_layout(text.as_bytes(), true) == Some(JsonLayout::Lines);
        let has_spread = parts.iter().any(|(_, how, _)| *how == 3);
        let all = outcomes(text.as_bytes(), "100%", &sizes);
        let expected: Vec<String> = parts.iter().map(|(number, ..)| number.to_string()).collect();
        for (path, found) in &all {
            prop_assert_eq!(found, &all[0].1, "{:?} {}", &text, path);
            let Ok((rows, bad, _)) = found else { panic!("{text:?} {path}: {found:?}") };
            // If the file has a record per line, an object that spans several lines is rejected line by line.
            let is_read = !(is_lines && has_spread);
            prop_assert_eq!(is_read, *bad == 0, "{:?} {}", &text, path);
            if is_read {
                let column = |row: &Vec<String>| row.iter().find(|it| it.parse::<i64>().is_ok()).cloned();
                let values: Vec<String> = rows.iter().filter_map(column).collect();
                prop_assert_eq!(&values, &expected, "{:?} {}", &text, path);
            }
        }
    }

    #[test]
    fn broken_sequences_are_the_same_however_they_come(
        parts in parts(), sizes in prop::collection::vec(1usize..40, 1..5),
        changes in prop::collection::vec((any::<usize>(), prop::sample::select(b"{}[],:\"\\\n \x1ex0".to_vec())), 1..4)
    ) {
        let mut text: Vec<u8> = parts
            .iter()
            .flat_map(|(number, how, between)| (object(*number, *how) + between).into_bytes())
            .collect();
        for (at, byte) in changes {
            let at = at % (text.len() + 1);
            text.insert(at, byte);
        }
        let all = outcomes(&text, "100%", &sizes);
        for (path, found) in &all {
            prop_assert_eq!(found, &all[0].1, "{:?} {}", String::from_utf8_lossy(&text), path);
        }
    }
}

#[test]
fn nul_bytes_behind_a_sequence_are_one_malformed_record() {
    for (text, rows, line, offset, reason) in [
        (
            "\u{1e}{\"a\":1}\n\u{1e}{\"a\":2}\n\0\0\0\0",
            2,
            3,
            18,
            "4 NUL bytes stand in the place of records, up to the end",
        ),
        (
            "\u{1e}{\"a\":1}\n\u{1e}{\"a\":\0\0",
            1,
            2,
            10,
            "the record is cut off: 2 NUL bytes stand behind it, up to the end",
        ),
        (
            "[{\"a\":\n1}]\n\0\0\0",
            1,
            3,
            11,
            "3 NUL bytes stand in the place of records, up to the end",
        ),
        // NUL bytes that precede other bytes are the beginning of a record.
        ("\u{1e}{\"a\":1}\n\0\0\u{1e}{\"a\":2}\n", 2, 2, 9, "the record begins with 2 NUL bytes"),
    ] {
        for (path, outcome) in outcomes(text.as_bytes(), "1", &[3]) {
            let (found, count, first) = outcome.unwrap();
            assert_eq!((found.len(), count), (rows, 1), "{path}: {text:?}");
            assert_eq!(first, [(Some(line), offset, reason.to_owned())], "{path}: {text:?}");
        }
    }
    let folder = folder(&[("a.json", b"\x1e{\"a\":1}\n\0\0\0\0")]);
    let told = message(read(&open(&folder, "a.json").unwrap(), 1, &ReadOptions::default()));
    assert!(told.contains("truncate --size=9 FILE removes what is no whole record"), "{told}");
}
