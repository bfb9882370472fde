//! Files as other programs and other machines leave them: archives, other encodings, unfinished ends.

use super::*;

use std::io::Cursor;

/// Ten names of columns and a few rows, in each format, so that each has a record per line.
const LINES: [(&str, Format, &str); 7] = [
    ("a.csv", Format::Csv, "k,n\nx,1\ny,2\nz,3\n"),
    ("a.tsv", Format::Tsv, "k\tn\nx\t1\ny\t2\nz\t3\n"),
    ("a.json", Format::Json, "{\"k\":1}\n{\"k\":2}\n{\"k\":3}\n"),
    ("a.txt", Format::Lines, "x\ny\nz\n"),
    (
        "access.log",
        Format::AccessLog,
        "1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 1\n\
         1.2.3.4 - - [10/Oct/2000:13:55:37 -0700] \"GET /b HTTP/1.0\" 200 2\n\
         1.2.3.4 - - [10/Oct/2000:13:55:38 -0700] \"GET /c HTTP/1.0\" 200 3\n",
    ),
    (
        "sys.log",
        Format::Syslog,
        "Oct 11 22:14:15 h su: a\nOct 11 22:14:16 h su: b\nOct 11 22:14:17 h su: c\n",
    ),
    ("app.log", Format::Logfmt, "k=x n=1\nk=y n=2\nk=z n=3\n"),
];

/// All rows, and the malformed records among them with their offsets.
fn read_with_bad_records(source: &Arc<Source>, target: u64) -> (Rows, Vec<(u64, String)>) {
    let options = rejects("100%", None);
    let (rows, _) = read(source, target, &options).unwrap();
    let bad = options.reject_log.first_records();
    (rows, bad.into_iter().map(|bad| (bad.offset, bad.reason)).collect())
}

fn from_stdin(format: Format, bytes: &[u8]) -> Arc<Source> {
    let spec = SourceSpec { url: "-".into(), format: Some(format), ..SourceSpec::default() };
    let stdin = Box::new(Cursor::new(bytes.to_vec()));
    Arc::new(Source::open_with_stdin(&spec, stdin, &CancelFlag::new()).unwrap())
}

#[test]
fn nul_bytes_at_the_end_are_one_malformed_record_in_every_format() {
    for (name, format, text) in LINES {
        let whole = rows(&open(&folder(&[(name, text.as_bytes())]), name).unwrap());
        assert_eq!(whole.len(), 3, "{name}");
        let last = text[..text.len() - 1].rfind('\n').unwrap() + 1;
        for (cut, nuls) in [(text.len(), 1), (text.len(), 5000), (last + 1, 7), (last + 1, 300_000)]
        {
            let mut bytes = text.as_bytes()[..cut].to_vec();
            bytes.resize(cut + nuls, 0);
            let is_whole = cut == text.len();
            let (good, offset) = if is_whole { (3, cut) } else { (2, last) };
            let reason = match (is_whole, nuls) {
                (true, 1) => "1 NUL byte stands in the place of records, up to the end".to_owned(),
                (true, _) => {
                    format!("{nuls} NUL bytes stand in the place of records, up to the end")
                }
                (false, _) => {
                    format!(
                        "the record is cut off: {nuls} NUL bytes stand behind it, up to the end"
                    )
                }
            };
            let check = |source: &Arc<Source>, target: u64, how: &str| {
                assert_eq!(source.format(), format, "{name} {how}");
                let (rows, bad) = read_with_bad_records(source, target);
                assert_eq!(rows, whole[..good], "{name} {how} {cut} {nuls}");
                assert_eq!(bad, [(offset as u64, reason.clone())], "{name} {how} {cut} {nuls}");
            };
            let data = folder(&[(name, &bytes)]);
            // In one split and in many, some of them within the NUL bytes.
            for target in [1 << 20, 3000, 7] {
                if nuls > 10_000 && target < 3000 {
                    continue;
                }
                check(&open(&data, name).unwrap(), target, "plain");
            }
            let error = user_message(
                read(&open(&data, name).unwrap(), 3000, &rejects("0", None)).unwrap_err(),
            );
            let places =
                [format!("(byte {offset}): {reason}"), format!("truncate --size={offset} FILE")];
            assert!(places.iter().all(|place| error.contains(place)), "{error}");
            for kind in ["gz", "zst"] {
                let packed = format!("{name}.{kind}");
                let data = folder(&[(&packed, &compressed(kind, &bytes))]);
                check(&open(&data, &packed).unwrap(), 3000, kind);
            }
            check(&from_stdin(format, &bytes), 1, "stdin");
        }
    }
}

#[test]
fn file_of_nul_bytes_has_no_columns_and_is_one_malformed_record() {
    for (name, _, text) in LINES {
        let nuls = [0; 700];
        let other = format!("b-{name}");
        let data = folder(&[(name, &nuls), (&other, text.as_bytes())]);
        if name.ends_with(".csv") || name.ends_with(".tsv") || name.ends_with(".json") {
            let error = user_message(open(&data, name).unwrap_err());
            let expected = "at byte 0: 700 NUL bytes stand in the place of records";
            assert!(error.contains(expected) && error.contains("hint: "), "{error}");
        } else {
            let (rows, bad) = read_with_bad_records(&open(&data, name).unwrap(), 7);
            assert_eq!((rows.len(), bad.len(), bad[0].0), (0, 1, 0), "{name}");
        }
        let mut both = spec(&data, name);
        both.more_urls = vec![format!("{}/{other}", data.path().display())];
        let source = Arc::new(Source::open(&both).unwrap());
        if name.ends_with(".log") {
            continue;
        }
        let (rows, bad) = read_with_bad_records(&source, 7);
        assert_eq!((rows.len(), bad.len()), (3, 1), "{name}");
    }
}

#[test]
fn nul_bytes_after_length_prefixed_records_are_one_malformed_record() {
    let counted = "22 <34>1 - h su - - - a\n\n23 <34>1 - h su - - - b\nb\n";
    for (text, good, offset) in [
        (format!("{counted}\0\0\0"), 2, counted.len()),
        (format!("{counted}22 <34>1 - h\0\0\0"), 2, counted.len()),
    ] {
        let data = folder(&[("a.log", text.as_bytes())]);
        let mut spec = spec(&data, "a.log");
        (spec.format, spec.text_options.framing) =
            (Some(Format::Syslog), Some(SyslogFraming::Octets));
        let (rows, bad) = read_with_bad_records(&Arc::new(Source::open(&spec).unwrap()), 7);
        assert_eq!((rows.len(), bad.len()), (good, 1), "{bad:?}");
        assert_eq!(bad[0].0, offset as u64);
        assert!(bad[0].1.contains("3 NUL bytes"), "{bad:?}");
    }
}

#[test]
fn file_of_more_nul_bytes_than_a_record_may_have_is_an_error() {
    let data =
        folder(&[("a.json", &vec![0; (64 << 20) + 10]), ("b.csv", &vec![0; (64 << 20) + 10])]);
    for (name, reason) in [
        ("a.json", "at byte 0: the record is larger than 64 MiB, and NUL bytes make it so"),
        (
            "b.csv",
            "at byte 0: its header is no header: the record is larger than 64 MiB, and NUL bytes",
        ),
    ] {
        let error = user_message(open(&data, name).unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn nul_bytes_do_not_change_the_types_of_columns() {
    let mut text = b"n\n".to_vec();
    for n in 0..1000 {
        text.extend_from_slice(format!("{n}\n").as_bytes());
    }
    text.resize(text.len() + 100, 0);
    let data = folder(&[("a.csv", &text), ("a.json", b"{\"n\":1}\n{\"n\":2}\n\0\0\0")]);
    for name in ["a.csv", "a.json"] {
        assert_eq!(types(&open(&data, name).unwrap()), [("n".to_owned(), DataType::Int64)]);
    }
}

#[test]
fn nul_bytes_within_a_text_stay_what_they_are() {
    for (text, expected) in [
        (&b"a\0b\nc\n"[..], vec!["a\0b", "c"]),
        // As `find -print0` writes them.
        (b"a\0bc\0def\0", vec!["a\0bc\0def\0"]),
    ] {
        let data = folder(&[("a.txt", text)]);
        let found: Vec<String> = rows(&open(&data, "a.txt").unwrap()).concat();
        assert_eq!(found, expected);
    }
}

/// A tar archive of one file, with the header of Unix V7.
fn tar(name: &str, text: &[u8], magic: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let size = format!("{:011o}\0", text.len());
    for (at, field) in [
        (0, name.as_bytes()),
        (100, b"0000644\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, size.as_bytes()),
        (136, b"14372612345\0"),
        (148, b"        "),
        (156, b"0"),
        (257, magic),
    ] {
        header[at..at + field.len()].copy_from_slice(field);
    }
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header;
    archive.extend_from_slice(text);
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}

#[test]
fn archives_and_other_encodings_are_refused_by_name_however_they_come() {
    let text = "k,n\n".to_owned() + &"x,1\n".repeat(2000);
    let utf16 = |to_bytes: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
        format!("{mark}{text}").encode_utf16().flat_map(to_bytes).collect()
    };
    let (little, big) =
        (u16::to_le_bytes as fn(u16) -> [u8; 2], u16::to_be_bytes as fn(u16) -> [u8; 2]);
    let begins_like =
        "it is read as text and begins like a tar archive\nhint: extract it first: tar -xf";
    for (bytes, expected) in [
        (tar("one.csv", text.as_bytes(), b"ustar\x0000"), begins_like),
        (tar("one.csv", text.as_bytes(), b"ustar  \0"), begins_like),
        (tar("one.csv", text.as_bytes(), b""), begins_like),
        (
            utf16(little, ""),
            "it is UTF-16LE without a byte-order mark\nhint: text is read as UTF-8; convert it: iconv -f UTF-16LE -t UTF-8",
        ),
        (
            utf16(big, ""),
            "it is UTF-16BE without a byte-order mark\nhint: text is read as UTF-8; convert it: iconv -f UTF-16BE -t UTF-8",
        ),
        (
            utf16(little, "\u{feff}"),
            "it begins with a UTF-16 byte-order mark\nhint: text is read as UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
        ),
        (utf16(big, "\u{feff}"), "it begins with a UTF-16 byte-order mark"),
    ] {
        for (name, format) in [
            ("one.csv", Format::Csv),
            ("one.json", Format::Json),
            ("one.log", Format::Lines),
            ("one.txt", Format::Lines),
        ] {
            for kind in ["", "gz", "zst", "bz2", "xz"] {
                let (name, stored) = match kind {
                    "" => (name.to_owned(), bytes.clone()),
                    kind => (format!("{name}.{kind}"), compressed(kind, &bytes)),
                };
                let data = folder(&[(&name, &stored)]);
                let result = open(&data, &name)
                    .and_then(|source| read(&source, 1000, &rejects("100%", None)));
                let error = user_message(result.unwrap_err());
                assert!(error.contains(expected), "{name}: {error}");
                let mut spec =
                    SourceSpec { url: "-".into(), format: Some(format), ..SourceSpec::default() };
                let result = Source::open_with_stdin(
                    &spec,
                    Box::new(Cursor::new(stored.clone())),
                    &CancelFlag::new(),
                )
                .and_then(|source| read(&Arc::new(source), 1000, &rejects("100%", None)));
                let error = user_message(result.unwrap_err());
                assert!(error.contains(expected), "stdin {name}: {error}");
                // If the columns are declared, nothing is inspected before the file is split.
                spec = super::spec(&data, &name);
                if format == Format::Csv {
                    spec.declared_schema = Some(Arc::new(Schema::new(vec![Field::new(
                        "k",
                        DataType::Utf8View,
                        true,
                    )])));
                }
                let result = Source::open(&spec)
                    .and_then(|source| read(&Arc::new(source), 1000, &rejects("100%", None)));
                assert!(user_message(result.unwrap_err()).contains(expected), "{name}");
            }
        }
    }
}

#[test]
fn program_output_in_another_encoding_is_refused() {
    let data = folder(&[("a.csv", b"a,b\n1,2\n")]);
    let mut spec = spec(&data, "a.csv");
    let words = ["iconv", "-f", "UTF-8", "-t", "UTF-16LE"].map(str::to_owned).to_vec();
    spec.filter_program = Some(crate::programs::filter_program::FilterProgram::new(words).unwrap());
    spec.format = Some(Format::Csv);
    let result = Source::open(&spec);
    let error = user_message(result.unwrap_err());
    assert!(error.contains("it is UTF-16LE without a byte-order mark"), "{error}");
}

#[test]
fn format_of_rotated_logs_is_detected_from_their_lines() {
    let access = |n: u32| {
        format!("1.2.3.4 - - [10/Oct/2000:13:55:{n} -0700] \"GET /a HTTP/1.0\" 200 {n}\n")
            .into_bytes()
    };
    let sys = |n: u32| format!("Oct 11 22:14:{n} h su: {n}\n").into_bytes();
    let data = folder(&[
        ("nginx/access.log", &access(10)),
        ("nginx/access.log-20261127.gz", &compressed("gz", &access(12))),
        ("nginx/access.log-20261128", &access(11)),
        ("nginx/access.log.3.xz", &compressed("xz", &access(13))),
        ("sys/auth.log.3.xz", &compressed("xz", &sys(10))),
        ("sys/messages", &sys(11)),
        ("sys/messages-20261128.zst", &compressed("zst", &sys(12))),
        ("sys/syslog", &sys(13)),
        ("sys/syslog.1", &sys(14)),
        ("plain/app.log.1", b"one\ntwo\n"),
        ("pairs/app.log.old", b"a=1 b=2\n"),
        ("other/data.1", b"a=1 b=2\n"),
    ]);
    for (url, format, files) in [
        ("nginx", Format::AccessLog, 4),
        ("nginx/access.log*", Format::AccessLog, 4),
        ("nginx/access.log-20261127.gz", Format::AccessLog, 1),
        ("sys", Format::Syslog, 5),
        ("plain/app.log.1", Format::Lines, 1),
        ("pairs", Format::Logfmt, 1),
    ] {
        let source = open(&data, url).unwrap();
        assert_eq!((source.format(), source.files().len()), (format, files), "{url}");
        let expected = if format == Format::Lines { 2 } else { files };
        assert_eq!(rows(&source).len(), expected, "{url}");
    }
    let unknown = user_message(open(&data, "other/data.1").unwrap_err());
    assert!(unknown.contains("cannot tell the format"), "{unknown}");
    // An explicit format overrides detection.
    let mut lines = spec(&data, "sys");
    lines.format = Some(Format::Lines);
    assert_eq!(Source::open(&lines).unwrap().format(), Format::Lines);
}

#[test]
fn truncated_partition_value_comes_from_the_file() {
    let whole = "v".repeat(300);
    let cut = format!("k={}%~{:032x}/a.csv", "v".repeat(200), 7);
    let with_key = format!("k,n\n{whole},1\n");
    let data = folder(&[(&cut, with_key.as_bytes()), ("k=w/a.csv", b"k,n\nw,2\n")]);
    let source = open(&data, "**/*.csv").unwrap();
    assert_eq!(source.schema().fields().len(), 2);
    assert_eq!(rows(&source), text(&[&[whole.as_str(), "1"], &["w", "2"]]));
    // No file has the complete value.
    let data = folder(&[(&cut, b"n\n1\n")]);
    let error = message(open(&data, "**/*.csv"));
    assert!(error.contains("has no column `k`"), "{error}");
}
