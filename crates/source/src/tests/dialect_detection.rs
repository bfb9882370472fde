//! Detection of undeclared text options from a sample, and the notes for the user.

use arrow::datatypes::{Schema, TimeUnit};

use super::*;

/// A source of one file, and the folder that it is in.
fn opened(
    name: &str,
    bytes: &[u8],
    change: impl Fn(&mut SourceSpec),
) -> Result<(tempfile::TempDir, Arc<Source>)> {
    let folder = folder(&[(name, bytes)]);
    let mut spec = spec(&folder, name);
    change(&mut spec);
    let source = Arc::new(Source::open(&spec)?);
    Ok((folder, source))
}

fn names(source: &Source) -> String {
    let names = source.schema().fields().iter().map(|field| field.name().clone());
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn delimiters_are_detected_and_options_override_them() {
    let said = |_: &mut SourceSpec| {};
    for (text, written, first) in [
        ("a,b\n1,2\n", None, &["1", "2"][..]),
        ("a;b\nx,y;2\n", Some("separated by `;`"), &["x,y", "2"]),
        ("a\tb\n1\t2\n", Some("separated by tabs"), &["1", "2"]),
        ("a|b|c\n1|2|3\n", Some("separated by `|`"), &["1", "2", "3"]),
        ("a b\n1 2\n3 4\n", Some("separated by spaces"), &["1", "2"]),
        ("a;b\n'1;2';3\n'4;5';6\n", Some("separated by `;`, quoted by `'`"), &["1;2", "3"]),
    ] {
        let (_folder, source) = opened("x.csv", text.as_bytes(), said).unwrap();
        assert_eq!(source.describe_detected_dialect().as_deref(), written, "{text}");
        assert_eq!(rows(&source)[0], first, "{text}");
        assert_eq!(source.warning(), None, "{text}");
    }
    let comma = |spec: &mut SourceSpec| spec.text_options.delimiter = Some(b',');
    let (_folder, source) = opened("x.csv", b"a;b\n1;2\n", comma).unwrap();
    assert_eq!((names(&source), source.describe_detected_dialect()), ("a;b".to_owned(), None));
    let (_folder, source) = opened("x.csv", b"a;b\n1;2\n1;2;3\n", said).unwrap();
    let warning = source.warning().unwrap();
    assert!(
        warning.contains("is read as one column") && warning.contains("--delimiter ';'"),
        "{warning}"
    );
    let (_folder, source) = opened("x.csv", b"name   size\nx      1\nyy     2\n", said).unwrap();
    let warning = source.warning().unwrap();
    assert!(warning.contains("--source-exec tr"), "{warning}");
    // Compressed, and in several files.
    let bytes = compressed("gz", b"a;b\n1;2\n");
    assert_eq!(rows(&opened("x.csv.gz", &bytes, said).unwrap().1), text(&[&["1", "2"]]));
    let folder = folder(&[("a.csv", b"a;b\n1;2\n"), ("b.csv", b"b;c\n3;4\n")]);
    let source = open(&folder, "*.csv").unwrap();
    assert_eq!(rows(&source), text(&[&["1", "2", "∅"], &["∅", "3", "4"]]));
    // A pipe is read from its beginning after detection.
    let spec = SourceSpec { url: "-".into(), format: Some(Format::Csv), ..SourceSpec::default() };
    let text_of = format!("a;b\n{}", noise(50_000).replace(',', ";"));
    let stdin = Box::new(std::io::Cursor::new(text_of.into_bytes()));
    let source = Arc::new(Source::open_with_stdin(&spec, stdin, &CancelFlag::new()).unwrap());
    assert_eq!((names(&source), rows(&source).len()), ("a b".to_owned(), 50_000));
}

#[test]
fn escaped_quotes_are_detected_with_every_delimiter() {
    for (name, delimiter) in [("x.csv", ","), ("x.csv", ";"), ("x.csv", "|"), ("x.tsv", "\t")] {
        let text_of = |text: &str| text.replace('@', delimiter).into_bytes();
        let escaped = text_of("a@b\n1@\"say \\\"hi\\\"\"\n2@\"{\\\"k\\\": 1}\"\n");
        let (_folder, source) = opened(name, &escaped, |_| {}).unwrap();
        let expected: &[&[&str]] = &[&["1", "say \"hi\""], &["2", "{\"k\": 1}"]];
        assert_eq!(rows(&source), text(expected), "{delimiter}");
        assert!(
            source.describe_detected_dialect().is_some_and(|written| written.contains('\\')),
            "{delimiter}"
        );
        let byte = delimiter.as_bytes()[0];
        let said = |spec: &mut SourceSpec| spec.text_options.delimiter = Some(byte);
        assert_eq!(rows(&opened(name, &escaped, said).unwrap().1), text(expected), "{delimiter}");
        let doubled = text_of("a@b\n1@\"say \"\"hi\"\"\"\n2@\"C:\\\"\n");
        let (_folder, source) = opened(name, &doubled, |_| {}).unwrap();
        assert_eq!(rows(&source), text(&[&["1", "say \"hi\""], &["2", "C:\\"]]), "{delimiter}");
    }
    // A pipe is read from its beginning, too.
    let spec = SourceSpec { url: "-".into(), format: Some(Format::Tsv), ..SourceSpec::default() };
    let bytes = Box::new(std::io::Cursor::new(b"a\tb\n1\t\"x \\\"y\\\"\"\n".to_vec()));
    let source = Arc::new(Source::open_with_stdin(&spec, bytes, &CancelFlag::new()).unwrap());
    assert_eq!(rows(&source), text(&[&["1", "x \"y\""]]));
}

#[test]
fn first_line_can_declare_the_delimiter() {
    for line in ["sep=;\n", "sep=;\r\n", "\"sep=;\"\n", "\u{feff}sep=;\n"] {
        // Nothing in the records shows the delimiter.
        let bytes = format!("{line}a,b;c\nx,5;2\ny,5;4\n");
        let (_folder, source) = opened("x.csv", bytes.as_bytes(), |_| {}).unwrap();
        assert_eq!(names(&source), "a,b c", "{line:?}");
        assert_eq!(rows(&source), text(&[&["x,5", "2"], &["y,5", "4"]]), "{line:?}");
        assert_eq!(source.warning(), None);
        let no_header = |spec: &mut SourceSpec| spec.text_options.header = Some(false);
        let bytes = format!("{line}1;2\n");
        let (_folder, source) = opened("x.csv", bytes.as_bytes(), no_header).unwrap();
        assert_eq!(rows(&source), text(&[&["1", "2"]]), "{line:?}");
    }
    // An option overrides the line; a line that declares nothing is a header.
    let comma = |spec: &mut SourceSpec| spec.text_options.delimiter = Some(b',');
    let (_folder, source) = opened("x.csv", b"sep=;\na,b\n1,2\n", comma).unwrap();
    assert_eq!(rows(&source), text(&[&["1", "2"]]));
    for header in ["sep=x", "sep=", "sep=;;", "sep;b", "\"sep=;"] {
        let bytes = format!("{header}\n1\n");
        let source = opened("x.csv", bytes.as_bytes(), |_| {});
        assert!(source.is_err() || names(&source.unwrap().1).contains("sep"), "{header}");
    }
    // Every file has its own separator line, which counts as a line.
    let data = folder(&[("a.csv", b"sep=;\na;b\n1;2\n"), ("b.csv", b"sep=;\na;b\n3;4\n5\n")]);
    let source = open(&data, "*.csv").unwrap();
    let error = read(&source, 1 << 20, &ReadOptions::default()).unwrap_err();
    assert!(user_message(error).contains("b.csv: line 4 (byte 14)"));
    let compressed = compressed("gz", b"sep=;\na;b\n1;2\n3\n");
    let (_folder, source) = opened("x.csv.gz", &compressed, |_| {}).unwrap();
    let error = read(&source, 1 << 20, &ReadOptions::default()).unwrap_err();
    assert!(user_message(error).contains("line 4"));
}

#[test]
fn record_taken_for_a_header_is_detected_by_its_values() {
    let warns = |bytes: &str| {
        let (_folder, source) = opened("x.csv", bytes.as_bytes(), |_| {}).unwrap();
        source.warning().is_some_and(|warning| warning.contains("--header=false"))
    };
    for bytes in [
        "x,2\ny,4\n",
        "x,2.5\ny,4\n",
        "x,2026-01-01\ny,2026-01-02\n",
        "x,2,7\ny,4,9\n",
        "1,2\n3,4\n",
    ] {
        assert!(warns(bytes), "{bytes}");
    }
    for bytes in [
        "x,n\ny,4\n",
        "x,2\ny,z\n",
        "country,2020,2021\na,1,2\n",
        "country,2020\na,1\n",
        "week,1,2,3\na,1,2,3\n",
        "x,2026-01-01\ny,4\n",
        "x,a1\ny,4\n",
    ] {
        assert!(!warns(bytes), "{bytes}");
    }
}

#[test]
fn record_errors_have_helpful_hints() {
    let told = |name: &str, bytes: &str, change: &dyn Fn(&mut SourceSpec)| {
        let (_folder, source) = opened(name, bytes.as_bytes(), change).unwrap();
        user_message(read(&source, 1 << 20, &ReadOptions::default()).unwrap_err())
    };
    let log = |description: &'static str| {
        move |spec: &mut SourceSpec| spec.text_options.log_format = Some(description.into())
    };
    for (found, parts, absent) in [
        (
            told("x.log", "x y\n", &log("%{INT:a} %{INT:b}")),
            &["the line does not match the pattern of --log-format\n", "all of a line"][..],
            "byte 1)",
        ),
        (told("x.log", "10.0.0.1 - - [10/Oct\n", &log("combined")), &["all of a line"], "jq -c"),
        (
            told(
                "x.log",
                "[10/Oct/2000:13:55:36.250] h\n",
                &log("[%{%d/%b/%Y:%T}t.%{usec_frac}t] %h"),
            ),
            &["expected a time as `%d/%b/%Y:%T.%6f`, found `10/Oct/2000:13:55:36.250`", "ts TEXT"],
            "WITH TIME ZONE",
        ),
        // Columns whose type the format fixes.
        (
            told(
                "x.log",
                "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 40x 2\n",
                &|spec| {
                    spec.format = Some(Format::AccessLog);
                },
            ),
            &["found `40x`", "--log-format", "--mismatch null", "--max-bad"],
            "--schema",
        ),
        (
            told("x.log", "2024-03-27T13:06:56.123456789Z host app: x\n", &|spec| {
                spec.format = Some(Format::Syslog);
            }),
            &["found `2024-03-27T13:06:56.123456789Z`", "--mismatch null", "--max-bad"],
            "--schema",
        ),
        (
            told("x.csv", "# made by x\na,b\n1,2\n", &|_| {}),
            &["expected 1 field, found 2", "--comment '#'"],
            "--max-bad",
        ),
        (
            told("x.csv", "a,b\n1,2\n# note\n", &|_| {}),
            &["expected 2 fields, found 1", "--comment '#'"],
            "--max-bad",
        ),
    ] {
        for part in parts {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert!(!found.contains(absent), "{absent}: {found}");
    }
    // The hint offers `--null` for a value that usually means null.
    let is_number = |spec: &mut SourceSpec| {
        spec.declared_schema =
            Some(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)])));
    };
    for (value, offered) in [
        ("N/A", true),
        ("null", true),
        ("?", true),
        ("-", true),
        ("none", true),
        ("10.0.0.2:80", false),
        (":1:80", false),
        ("oops", false),
        ("x", false),
        ("'-'", false),
    ] {
        let found = told("x.csv", &format!("n\n1\n{value}\n"), &is_number);
        assert_eq!(found.contains(&format!("--null '{value}'")), offered, "{found}");
    }
}

#[test]
fn a_header_that_is_not_utf8_is_refused_with_its_place() {
    let said = |_: &mut SourceSpec| {};
    let refused = message(opened("x.csv", b"\nday,caf\xe9\n1,2\n", said));
    assert!(
        refused.contains("x.csv") && refused.contains("line 2") && refused.contains("byte 8"),
        "{refused}"
    );
    assert!(refused.contains("iconv"), "{refused}");
    // Without a header it is a record like any other.
    let no_header = |spec: &mut SourceSpec| spec.text_options.header = Some(false);
    assert!(opened("x.csv", b"day,caf\xe9\n1,2\n", no_header).is_ok());
    let folder = folder(&[("a.csv", b"a,b\n1,2\n"), ("b.csv", b"a,\xff\n1,2\n")]);
    let refused = message(open(&folder, "*.csv"));
    assert!(refused.contains("b.csv") && refused.contains("line 1"), "{refused}");
}

#[test]
fn null_words_among_numbers_are_reported_once() {
    let check = |bytes: &str, expected: &[&str]| {
        let (_folder, source) = opened("x.csv", bytes.as_bytes(), |_| {}).unwrap();
        let warning = source.warning().unwrap_or_default();
        for part in expected {
            assert!(warning.contains(part), "{bytes}: {warning}");
        }
        assert_eq!(warning.is_empty(), expected.is_empty(), "{bytes}: {warning}");
    };
    check(
        "t,n\nx,1\ny,NA\nz,3\n",
        &["but for `NA`: `n` (BIGINT)", "say --null 'NA'", "null = [\"NA\"]"],
    );
    check(
        "t,n,d\nx,1.5,2026-01-01\ny,-,N/A\n",
        &["`-`, `N/A`", "`n` (DOUBLE), `d` (DATE)", "--null '-' --null 'N/A'"],
    );
    check("t,n\nNA,1\nNA,2\n", &[]);
    check("t,n\nx,NA\ny,NA\n", &[]);
    check("t,n\nx,1\ny,unknown stuff\n", &[]);
    check("t,n\nx,a\ny,NA\n", &[]);
    let null = |spec: &mut SourceSpec| spec.text_options.nulls = vec!["NA".into()];
    assert_eq!(opened("x.csv", b"n\n1\nNA\n", null).unwrap().1.warning(), None);
    let schema = |spec: &mut SourceSpec| {
        let field = arrow::datatypes::Field::new("n", DataType::Utf8View, true);
        spec.declared_schema = Some(Arc::new(Schema::new(vec![field])));
    };
    assert_eq!(opened("x.csv", b"n\n1\nNA\n", schema).unwrap().1.warning(), None);
}

#[test]
fn access_log_format_is_detected_or_declared() {
    let time = "[10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 7";
    let vhost = format!("a.example:80 10.0.0.1 - - {time} \"-\" \"curl\"\n");
    let log = |spec: &mut SourceSpec| spec.format = Some(Format::AccessLog);
    let (_folder, source) = opened("access.log", vhost.as_bytes(), log).unwrap();
    assert!(names(&source).starts_with("host port ip ident"), "{}", names(&source));
    assert_eq!(rows(&source)[0][..3], ["a.example", "80", "10.0.0.1"]);
    let timed = format!("10.0.0.1 - - {time} \"-\" \"curl\" 0.250\n");
    let (_folder, source) = opened("access.log", timed.as_bytes(), log).unwrap();
    assert!(names(&source).ends_with("user_agent request_time"), "{}", names(&source));
    let more = format!("10.0.0.1 - - {time} \"-\" \"curl\" 1500\n");
    let warning = opened("access.log", more.as_bytes(), log).unwrap().1.warning().unwrap();
    assert!(warning.contains("`1500` in the first; --log-format says what it is"), "{warning}");
    // A format description implies an access log even if the file name implies plain text.
    let described = |spec: &mut SourceSpec| {
        spec.text_options.log_format =
            Some(r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D"#.into());
    };
    for name in ["access.log", "access", "access.log.1"] {
        let (_folder, source) = opened(name, more.as_bytes(), described).unwrap();
        assert_eq!(source.format(), Format::AccessLog);
        assert!(names(&source).ends_with("request_time_us"), "{}", names(&source));
        assert_eq!((rows(&source)[0][11].as_str(), source.warning()), ("1500", None));
    }
    let refused = message(opened("a.csv", b"a\n1\n", described));
    assert!(refused.contains("option `log_format` has no meaning for format `csv`"), "{refused}");
    let wrong = |spec: &mut SourceSpec| spec.text_options.log_format = Some("%h%l".into());
    let refused = message(opened("access.log", more.as_bytes(), wrong));
    assert!(refused.contains("nothing stands between `%h` and `%l`"), "{refused}");
    // A described column takes any type that text can be read as.
    let typed = |spec: &mut SourceSpec| {
        spec.text_options.log_format = Some("%{WORD:a} %{NOTSPACE:b}".into());
        let field = arrow::datatypes::Field::new("b", DataType::Int64, true);
        spec.declared_schema = Some(Arc::new(Schema::new(vec![field])));
    };
    let (_folder, source) = opened("x.log", b"u 7\nv -\n", typed).unwrap();
    assert_eq!(types(&source)[1].1, DataType::Int64);
    assert_eq!(rows(&source), text(&[&["u", "7"], &["v", "∅"]]));
}

#[cfg(unix)]
#[test]
fn a_pipe_with_a_name_is_read_as_a_stream() {
    let folder = folder(&[]);
    let path = folder.path().join("rows.csv");
    let status = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(status.success());
    let written = path.clone();
    // Opening it waits for the other end.
    let writer = std::thread::spawn(move || std::fs::write(written, b"a;b\n1;2\n3;4\n").unwrap());
    let source = open(&folder, "rows.csv").unwrap();
    assert!(source.is_stdin());
    assert_eq!(rows(&source), text(&[&["1", "2"], &["3", "4"]]));
    writer.join().unwrap();
    let mut several = spec(&folder, "rows.csv");
    several.more_urls = vec!["other.csv".into()];
    let refused = message(Source::open(&several));
    assert!(refused.contains("can be read only once"), "{refused}");
}

#[test]
fn an_empty_file_of_a_format_with_a_header_of_its_own_is_said_to_be_empty() {
    for name in ["x.parquet", "x.arrow", "x.avro"] {
        let Err(error) = opened(name, b"", |_| {}) else { panic!("{name} was opened") };
        let refused = user_message(error);
        assert!(refused.contains("it is empty (0 bytes)"), "{name}: {refused}");
    }
    let Err(error) = opened("x.csv", b"", |_| {}) else { panic!("x.csv was opened") };
    assert!(user_message(error).contains("is empty: 0 bytes, no header"));
}

/// Files that the system generates as they are read claim to have no bytes.
#[cfg(target_os = "linux")]
#[test]
fn a_file_of_the_system_that_says_that_it_is_empty_is_read_all_the_same() {
    let (url, format) = ("/proc/self/limits".to_owned(), Some(Format::Lines));
    let source = Source::open(&SourceSpec { url, format, ..SourceSpec::default() }).unwrap();
    let source = Arc::new(source);
    assert!(source.is_stdin());
    assert!(rows(&source).iter().any(|row| row.iter().any(|line| line.contains("open files"))));
    // Among several files it would be skipped.
    let (url, format) = ("/proc/self/limit*".to_owned(), Some(Format::Lines));
    let refused = message(Source::open(&SourceSpec { url, format, ..SourceSpec::default() }));
    assert!(refused.contains("says that it has no bytes and gives some"), "{refused}");
}

#[test]
fn numbers_and_dates_read_as_text_are_reported_with_a_conversion() {
    for (text, expected) in [
        ("day;n\n01.03.2026;1\n", "than 2026-03-01: `day`; strptime(day, '%d.%m.%Y')"),
        ("day\n2026/03/01\n2026/3/2\n", "`day`; strptime(day, '%Y/%m/%d') makes times of it"),
        ("a;the price\n1;1,5\n2;-0,25\n", "`the price`; replace(\"the price\", ',', '.')::DOUBLE"),
        ("a;p;q\n1;1.234,5;7,0\n", "`p`, `q`; replace(replace(p, '.', ''), ',', '.')::DOUBLE"),
        (
            "a;p\n1;1,234\n",
            "::DOUBLE or replace(p, ',', '')::BIGINT makes numbers of it, whichever",
        ),
    ] {
        let (_folder, source) = opened("x.csv", text.as_bytes(), |_| {}).unwrap();
        let warning = source.warning().unwrap();
        assert!(warning.contains(expected), "{warning}");
    }
    for text in ["a;p\n1;2,5\n2;2.5\n", "a;p\n1;2,5 kg\n", "a;p\n1;2\n", "a;p\n1;\n"] {
        let (_folder, source) = opened("x.csv", text.as_bytes(), |_| {}).unwrap();
        assert_eq!(source.warning(), None, "{text}");
    }
}

#[test]
fn repeated_header_names_get_numbers() {
    for (header, expected, said) in [
        ("a,b,a", "a b a_1", "the second `a` is `a_1`; if there is no header"),
        ("a,a,a_1,a", "a a_2 a_1 a_3", "the second `a` is `a_2`, and so on 1 more"),
        ("a,,A", "a column_2 A", ""),
        ("column_2,", "column_2 column_2_1", ""),
    ] {
        let values = vec!["1"; header.split(',').count()].join(",");
        let text = format!("{header}\n{values}\n");
        let (_folder, source) = opened("x.csv", text.as_bytes(), |_| {}).unwrap();
        assert_eq!(names(&source), expected);
        let warning = source.warning().unwrap_or_default();
        assert!(warning.contains(said) && warning.is_empty() == said.is_empty(), "{warning}");
    }
    // The note appears whichever file has the name.
    let folder = folder(&[("a.csv", b"k,k\n1,2\n"), ("b.csv", b"k,n,k\n3,4,5\n")]);
    let source = open(&folder, "*.csv").unwrap();
    assert_eq!(names(&source), "k k_1 n");
    let warning = source.warning().unwrap();
    assert!(
        warning.contains("a.csv`: of columns of one name the second `k` is `k_1`"),
        "{warning}"
    );
    assert_eq!(rows(&source), text(&[&["1", "2", "∅"], &["3", "5", "4"]]));
}

/// The values of a column `v`, one record each.
fn records_of(format: Format, values: impl Iterator<Item = &'static str>) -> String {
    let line = |value: &str| match format {
        Format::Json => format!("{{\"v\":\"{value}\"}}\n"),
        Format::Logfmt => format!("v={value}\n"),
        _ => format!("{value}\n"),
    };
    let header = if format == Format::Csv { "v\n" } else { "" };
    header.to_owned() + &values.map(line).collect::<String>()
}

#[test]
fn time_without_a_zone_behind_a_zoned_sample_is_a_located_error() {
    let (usual, other) = ("2026-01-01T00:00:00Z", "2026-01-01T05:00:00");
    // More than a sample.
    let count = 60_000;
    let declared = |spec: &mut SourceSpec| {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        spec.declared_schema = Some(Arc::new(Schema::new(vec![Field::new("v", utc, true)])));
    };
    for (name, format, line) in [
        ("x.csv", Format::Csv, count + 2),
        ("x.logfmt", Format::Logfmt, count + 1),
        ("x.json", Format::Json, count + 1),
    ] {
        let written = records_of(format, std::iter::repeat_n(usual, count).chain([other]));
        let (_folder, source) = opened(name, written.as_bytes(), |_| {}).unwrap();
        assert_eq!(types(&source)[0].1.to_string(), "Timestamp(µs, \"UTC\")");
        for target in [1 << 16, 1 << 30] {
            let told = message(read(&source, target, &ReadOptions::default()));
            let line = format!("line {line}");
            for part in [
                name,
                &line,
                "expected a timestamp with a time zone, to microseconds, found `2026-01-01T05:00:00`, which states none",
                "--schema 'v TIMESTAMP(6) WITH TIME ZONE' reads such times as UTC, --schema 'v TEXT' keeps",
                "--max-bad",
            ] {
                assert!(told.contains(part), "`{part}` is not in: {told}");
            }
        }
        let (_folder, source) = opened(name, written.as_bytes(), declared).unwrap();
        assert_eq!(rows(&source).last().unwrap(), &["2026-01-01T05:00:00Z"]);
        // In the opposite order.
        let written = records_of(format, std::iter::repeat_n(other, count).chain([usual]));
        let (_folder, source) = opened(name, written.as_bytes(), |_| {}).unwrap();
        assert_eq!(rows(&source).last().unwrap(), &["2026-01-01T00:00:00"]);
        let ahead = "2026-01-01T00:00:00+01:00";
        let written = records_of(format, std::iter::repeat_n(other, count).chain([ahead]));
        let (_folder, source) = opened(name, written.as_bytes(), |_| {}).unwrap();
        let told = message(read(&source, 1 << 20, &ReadOptions::default()));
        assert!(told.contains("--schema 'v TIMESTAMP WITH TIME ZONE'"), "{told}");
    }
}

#[test]
fn csv_column_of_times_with_and_without_offsets_is_text_with_a_warning() {
    let said = |_: &mut SourceSpec| {};
    let (_folder, source) =
        opened("o.csv", b"ts\n2026-03-01T10:00:00+02:00\n2026-03-01T08:30:00-01:00\n", said)
            .unwrap();
    assert_eq!(source.warning(), None);
    assert_eq!(rows(&source), text(&[&["2026-03-01T08:00:00Z"], &["2026-03-01T09:30:00Z"]]));
    let mixed = b"a,ts\n1,2026-03-01T10:00:00+02:00\n2,\n3,2026-03-01T08:30:00\n";
    let (_folder, source) = opened("m.csv", mixed, said).unwrap();
    let told = source.warning_for_columns(|name| name == "ts").unwrap();
    for part in ["m.csv`: read as text", "state a time zone: `ts`;", "ts::TIMESTAMPTZ makes times"]
    {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(source.warning_for_columns(|name| name == "a"), None);
    // With a value that is no time, the cast would fail.
    let (_folder, source) =
        opened("x.csv", b"ts\n2026-03-01T10:00:00+02:00\n2026-03-01T08:30:00\nsoon\n", said)
            .unwrap();
    assert_eq!(source.warning(), None);
    let declared = |spec: &mut SourceSpec| {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        spec.declared_schema = Some(Arc::new(Schema::new(vec![Field::new("ts", utc, true)])));
    };
    let (_folder, source) = opened("m.csv", mixed, declared).unwrap();
    assert_eq!(source.warning(), None);
    assert_eq!(rows(&source)[2], ["3", "2026-03-01T08:30:00Z"]);
}
