//! Title lines above a header: lines that are skipped, and headers that are named by their line.

use super::*;

use std::io::Cursor;

/// Changes the options of a source as a user would.
type OptionsChange = fn(&mut TextOptions);

fn with(folder: &tempfile::TempDir, pattern: &str, change: OptionsChange) -> Result<Arc<Source>> {
    let mut spec = spec(folder, pattern);
    change(&mut spec.text_options);
    Source::open(&spec).map(Arc::new)
}

fn names(source: &Source) -> Vec<String> {
    source.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// Returns columns and rows, after checking that they are equal for every input kind.
fn read_all(text: &[u8], change: OptionsChange) -> (Vec<String>, Rows) {
    let data = folder(&[
        ("a.csv", text),
        ("a.csv.gz", &compressed("gz", text)),
        ("a.csv.xz", &compressed("xz", text)),
    ]);
    let source = with(&data, "a.csv", change).unwrap();
    let (columns, whole) = (names(&source), rows(&source));
    for target in 1..text.len().min(60) as u64 {
        let (found, _) = read(&source, target, &ReadOptions::default()).unwrap();
        assert_eq!(found, whole, "{target}");
        // Boundaries found by reading are equal.
        let mut splits = source.splits_with_target_bytes(target, &mut |_, _| true).unwrap();
        source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
        let (found, again) = read_splits(&source, splits, &ReadOptions::default()).unwrap();
        assert_eq!((found, again), (whole.clone(), 0), "{target}");
    }
    for name in ["a.csv.gz", "a.csv.xz"] {
        let source = with(&data, name, change).unwrap();
        assert_eq!((names(&source), rows(&source)), (columns.clone(), whole.clone()), "{name}");
    }
    let mut spec =
        SourceSpec { url: "-".into(), format: Some(Format::Csv), ..SourceSpec::default() };
    change(&mut spec.text_options);
    let stdin = Box::new(Cursor::new(text.to_vec()));
    let source = Arc::new(Source::open_with_stdin(&spec, stdin, &CancelFlag::new()).unwrap());
    assert_eq!((names(&source), rows(&source)), (columns.clone(), whole.clone()));
    (columns, whole)
}

#[test]
fn lines_above_a_header_are_skipped_for_every_input_kind() {
    let table: Rows = text(&[&["1", "x"], &["2", "y"]]);
    let skip_3: OptionsChange = |options| options.skip_lines = Some(3);
    let row_4: OptionsChange = |options| options.header_row = Some(4);
    let headless: OptionsChange =
        |options| (options.skip_lines, options.header) = (Some(4), Some(false));
    let delimited: OptionsChange =
        |options| (options.header_row, options.delimiter) = (Some(4), Some(b';'));
    let commented: OptionsChange =
        |options| (options.header_row, options.comment) = (Some(4), Some(b'#'));
    for (written, change, columns) in [
        ("Report\nof 2026\n\nn,t\n1,x\n2,y\n", skip_3, ["n", "t"]),
        ("Report\nof 2026\n\nn,t\n1,x\n2,y", row_4, ["n", "t"]),
        ("Report\r\nof 2026\r\n\r\nn,t\r\n1,x\r\n2,y\r\n", row_4, ["n", "t"]),
        ("\u{feff}Report\nof 2026\n\nn,t\n1,x\n2,y\n", row_4, ["n", "t"]),
        // Nothing in titles has a meaning, not even quotes.
        ("\"Report\nof \"\"2026\n,\",,\"\nn,t\n1,x\n2,y\n", row_4, ["n", "t"]),
        ("\0\u{1}\n\u{e9}\n# x\nn,t\n1,x\n2,y\n", row_4, ["n", "t"]),
        ("a\nb\nc\nn,t\n1,x\n2,y\n", headless, ["column_1", "column_2"]),
        ("a;b\n;\n;;;\nn;t\n1;x\n2;y\n", delimited, ["n", "t"]),
        // The delimiter is detected from the header on.
        ("a,b\n,\n,,,\nn;t\n1;x\n2;y\n", row_4, ["n", "t"]),
        ("sep=|\nof 2026\n\nn|t\n1|x\n2|y\n", row_4, ["n", "t"]),
        ("#\n# 2\n\n# 4\nn,t\n# z\n1,x\n2,y\n", commented, ["n", "t"]),
    ] {
        let (found, rows) = read_all(written.as_bytes(), change);
        assert_eq!(
            (found, rows),
            (columns.map(str::to_owned).to_vec(), table.clone()),
            "{written}"
        );
    }
    // The named line may be blank: the header is the first record from there on.
    let data = folder(&[("a.csv", b"Report\nof 2026\n-\n\n\nn,t\n1,x\n2,y\n")]);
    let source = with(&data, "a.csv", row_4).unwrap();
    assert_eq!((names(&source), rows(&source)), (vec!["n".into(), "t".into()], table.clone()));
    let latin1 = b"L\xe4nge\nBreite\n\nn,t\n1,x\n2,y\n";
    assert_eq!(read_all(latin1, row_4).1, table);
}

#[test]
fn titles_that_are_longer_than_splits_are_left_out() {
    let titles = "a \"title\", of some length\n".repeat(2000);
    let records: String = (0..2000).map(|n| format!("{n},\"x\n{n}\"\n")).collect();
    let data = folder(&[("a.csv", format!("{titles}n,t\n{records}").as_bytes())]);
    let source = with(&data, "a.csv", |options| options.header_row = Some(2001)).unwrap();
    assert_eq!(names(&source), ["n", "t"]);
    let whole = rows(&source);
    assert_eq!(whole.len(), 2000);
    for target in [500, 5000, 20_000] {
        // A copy without detected properties.
        let source = with(&data, "a.csv", |options| options.header_row = Some(2001)).unwrap();
        let (found, _) = read(&source, target, &ReadOptions::default()).unwrap();
        assert!(found == whole, "{target}");
        let mut splits = source.splits_with_target_bytes(target, &mut |_, _| true).unwrap();
        for split in &splits {
            let seen = source.guess_start_from_before(split, &CancelFlag::new()).unwrap();
            let reader = source.read_split(split, &ReadOptions::default()).unwrap();
            assert!(
                seen.is_none_or(|seen| Some(seen) == reader.first_record_offset()),
                "{split:?}"
            );
        }
        source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
        assert!(read_splits(&source, splits, &ReadOptions::default()).unwrap().0 == whole);
    }
    let progress = RunProgress::new();
    let options = ReadOptions { progress: progress.clone(), ..ReadOptions::default() };
    read(&source, 5000, &options).unwrap();
    assert_eq!(progress.bytes_done(), source.total_bytes());
}

#[test]
fn several_files_have_the_same_titles_and_may_be_shorter() {
    let data = folder(&[
        ("a.csv", b"Report 1\n\nn,t\n1,x\n"),
        ("b.csv", b"Report 2\n\nn,t\n2,y\n"),
        ("c.csv", b"Report 3"),
        ("d.csv", b""),
        ("e.csv", b"Report 5\n\nt,n,more\nz,3,9\n"),
        ("f.csv", b"Report 6\n\nn,t\n"),
    ]);
    let row_3: OptionsChange = |options| options.header_row = Some(3);
    let source = with(&data, "*.csv", row_3).unwrap();
    assert_eq!(names(&source), ["n", "t", "more"]);
    let expected = text(&[&["1", "x", "∅"], &["2", "y", "∅"], &["3", "z", "9"]]);
    for target in [1, 5, 1 << 20] {
        assert_eq!(read(&source, target, &ReadOptions::default()).unwrap().0, expected);
    }
    let mut same = spec(&data, "[ab].csv");
    same.text_options.skip_lines = Some(2);
    same.layout_policy = Some(ColumnLayoutPolicy::Same);
    let source = Arc::new(Source::open(&same).unwrap());
    assert_eq!(rows(&source), text(&[&["1", "x"], &["2", "y"]]));
    for (name, expected) in [
        ("c.csv", "`/c.csv` has nothing behind its first 2 lines, which are skipped, no header"),
        ("d.csv", "`/d.csv` is empty: 0 bytes, no header"),
    ] {
        let error = message(with(&data, name, row_3));
        let error = error.replace(&data.path().display().to_string(), "");
        assert!(error.contains(expected), "{error}");
    }
    let mut empty = spec(&data, "c.csv");
    empty.text_options.skip_lines = Some(9);
    empty.declared_schema =
        Some(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)])));
    assert_eq!(rows(&Arc::new(Source::open(&empty).unwrap())), Rows::new());
}

#[test]
fn a_fault_below_titles_has_its_own_line_and_byte() {
    let written = b"Report\n\nn,t\n1,x\n2\n";
    let data = folder(&[("a.csv", written), ("a.csv.gz", &compressed("gz", written))]);
    for name in ["a.csv", "a.csv.gz"] {
        let source = with(&data, name, |options| options.skip_lines = Some(2)).unwrap();
        let error = message(read(&source, 1 << 20, &ReadOptions::default()));
        assert!(error.contains("line 5 (byte 16): expected 2 fields, found 1"), "{error}");
    }
    let data = folder(&[("a.csv", b"Report\n\nn,\xe4\n1,x\n")]);
    let error = message(with(&data, "a.csv", |options| options.skip_lines = Some(2)));
    assert!(error.contains("at byte 10: its header, line 3, is not valid UTF-8"), "{error}");
}

#[test]
fn contradictory_line_options_are_refused() {
    let data = folder(&[("a.csv", b"a,b\n1,2\n"), ("a.json", b"{\"a\":1}\n"), ("a.txt", b"x\n")]);
    for (name, change, expected) in [
        (
            "a.csv",
            (|options| (options.skip_lines, options.header_row) = (Some(1), Some(2)))
                as OptionsChange,
            "exclude each other",
        ),
        ("a.csv", |options| options.header_row = Some(0), "the first line of a file is 1"),
        (
            "a.csv",
            |options| (options.header_row, options.header) = (Some(2), Some(false)),
            "`header` says that there is none",
        ),
        (
            "a.json",
            |options| options.skip_lines = Some(1),
            "option `skip_lines` has no meaning for format `json`",
        ),
        (
            "a.txt",
            |options| options.header_row = Some(1),
            "option `header_row` has no meaning for format `lines`",
        ),
    ] {
        let error = message(with(&data, name, change));
        assert!(error.contains(expected) && error.contains("\nhint: "), "{error}");
    }
    let mut options = TextOptions::default();
    options.set_option("skip_lines", "3").unwrap();
    options.set_option("header_row", "4").unwrap();
    assert_eq!((options.skip_lines, options.header_row), (Some(3), Some(4)));
    for value in ["-1", "x", "", "1.5"] {
        let error = user_message(options.set_option("skip_lines", value).unwrap_err());
        assert!(error.contains("option `skip_lines` is a number of lines, not"), "{error}");
    }
}

#[test]
fn likely_header_further_down_is_reported() {
    let table = "day,region,amount\n2026-11-01,north,12\n2026-11-02,south,7\n";
    let semicolons = table.replace(',', ";");
    for (written, line) in [
        (format!("Sales report\n\n{table}"), Some(3)),
        (format!("Sales report,,\n,,\n{table}"), Some(3)),
        (format!("Sales report, EMEA\n{semicolons}"), Some(2)),
        (format!("sep=;\nSales report\n{semicolons}"), Some(3)),
        (format!("\u{feff}Sales report\n{table}"), Some(2)),
        (format!("\"Sales, North, all\"\n{table}"), Some(2)),
        (format!("\"Sales, all\"\n{}", table.replace("north", "\"north\"")), Some(2)),
        (table.to_owned(), None),
        (format!("# by x\n{table}"), None),
    ] {
        let data = folder(&[("a.csv", written.as_bytes())]);
        let source = open(&data, "a.csv").unwrap();
        let note = source.warning().filter(|note| note.contains("--header-row"));
        let expected = line.map(|line| {
            format!(
                "the first record of `{}/a.csv` is taken for the names of its columns, and line {line} looks more like \
                 them; if line {line} is the header, below titles, say --header-row {line} (job file: source.options, \
                 header_row = {line})",
                data.path().display()
            )
        });
        assert_eq!(note, expected, "{written}");
        let hint = source.header_hint().unwrap_or_default();
        assert_eq!(hint.contains("say --header-row"), line.is_some(), "{hint}");
        let Some(line) = line else { continue };
        if let Err(error) = read(&source, 1 << 20, &ReadOptions::default()) {
            let error = user_message(error);
            assert!(error.contains(&format!("hint: if line {line} is the header")), "{error}");
        }
        let mut said = spec(&data, "a.csv");
        said.text_options.header_row = Some(line);
        let source = Arc::new(Source::open(&said).unwrap());
        assert_eq!((source.warning(), names(&source).len(), rows(&source).len()), (None, 3, 2));
        for change in [
            (|options| options.header = Some(true)) as OptionsChange,
            |options| options.header = Some(false),
            |options| options.skip_lines = Some(0),
        ] {
            let warning = with(&data, "a.csv", change).unwrap().warning().unwrap_or_default();
            assert!(!warning.contains("--header-row"), "{warning}");
        }
    }
}

proptest! {
    #[test]
    fn a_file_with_skipped_lines_is_the_rest_of_it(
        lines in prop::collection::vec("[ab\",;#]{0,8}", 0..6),
        skipped in 0..6u64,
        end in prop::sample::select(vec!["\n", "\r\n"]),
        records in prop::collection::vec(("[0-9]{1,3}", "[ab\n\",]{0,5}"), 0..12),
        has_header: bool,
        has_last_end: bool,
    ) {
        let titles = skipped.min(lines.len() as u64);
        let mut text: String = lines.iter().take(titles as usize).map(|line| format!("{line}{end}")).collect();
        let first = text.len();
        text.push_str(&format!("n,t{end}"));
        for (number, value) in &records {
            text.push_str(&format!("{number},\"{}\"{end}", value.replace('"', "\"\"")));
        }
        if !has_last_end {
            text.truncate(text.len() - end.len());
        }
        let data = folder(&[("a.csv", text.as_bytes()), ("b.csv", &text.as_bytes()[first..])]);
        let open = |name: &str, skipped: u64| {
            let mut spec = spec(&data, name);
            spec.text_options = TextOptions {
                skip_lines: Some(skipped),
                header: Some(has_header),
                delimiter: Some(b','),
                quote: Some(Some(b'"')),
                escape: Some(b'"'),
                ..TextOptions::default()
            };
            Arc::new(Source::open(&spec).unwrap())
        };
        let (source, rest) = (open("a.csv", titles), open("b.csv", 0));
        prop_assert_eq!(types(&source), types(&rest));
        let expected = rows(&rest);
        prop_assert_eq!(rows(&source), expected.clone());
        for target in [1, 2, 3, 5, 8, 13, 21, 34] {
            let (found, _) = read(&source, target, &ReadOptions::default()).unwrap();
            prop_assert_eq!(&found, &expected, "{}", target);
            let mut splits = source.splits_with_target_bytes(target, &mut |_, _| true).unwrap();
            source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
            let (found, _) = read_splits(&source, splits, &ReadOptions::default()).unwrap();
            prop_assert_eq!(&found, &expected, "{}", target);
        }
    }
}
