//! Sources end to end: files in, rows out.

use std::io::Write as _;
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::*;

/// Rows as text, null as `∅`.
type Rows = Vec<Vec<String>>;

fn rows_of(batch: &RecordBatch) -> Rows {
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Struct(_) | DataType::List(_) | DataType::Map(_, _) => {
                let options = arrow::util::display::FormatOptions::default().with_null("∅");
                let format =
                    arrow::util::display::ArrayFormatter::try_new(column, &options).unwrap();
                (0..column.len()).map(|row| format.value(row).to_string()).collect::<Vec<_>>()
            }
            _ => {
                let text = cast(column, &DataType::Utf8).unwrap();
                let text = text.as_string::<i32>();
                text.iter().map(|value| value.unwrap_or("∅").to_string()).collect()
            }
        })
        .collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|c| c[row].clone()).collect()).collect()
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        write(folder.path(), name, bytes);
    }
    folder
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn spec(folder: &tempfile::TempDir, pattern: &str) -> SourceSpec {
    SourceSpec { url: format!("{}/{pattern}", folder.path().display()), ..SourceSpec::default() }
}

fn open(folder: &tempfile::TempDir, pattern: &str) -> Result<Arc<Source>> {
    Source::open(&spec(folder, pattern)).map(Arc::new)
}

/// All rows, splits read and verified in order as a runner does it; and how many splits had
/// to be read again.
fn read(source: &Arc<Source>, target: u64, options: &ReadOptions) -> Result<(Rows, usize)> {
    let (mut rows, mut again) = (Vec::new(), 0);
    let mut expected: Option<(usize, u64)> = None;
    let mut total = 0;
    for split in source.splits_of(target, &mut |_, _| true)? {
        let file = split.pieces[0].file.index();
        let mut reader = source.read(&split, options)?;
        let (mut part, mut failure) = (Vec::new(), None);
        for batch in &mut reader {
            match batch {
                Ok(batch) => part.extend(rows_of(&batch)),
                Err(error) => failure = Some(error),
            }
        }
        let truth = expected.filter(|(of, _)| *of == file && split.pieces[0].range.start > 0);
        if let Some((_, start)) = truth {
            if reader.start() != Some(start) {
                assert!(!reader.is_exact());
                again += 1;
                (part, failure) = (Vec::new(), None);
                reader = source
                    .read(&split, &ReadOptions { exact_start: Some(start), ..options.clone() })?;
                for batch in &mut reader {
                    part.extend(rows_of(&batch?));
                }
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        expected = reader.end().map(|end| (file, end));
        let mut stats = reader.into_stats();
        assert_eq!(stats.rows, part.len() as u64);
        stats.accept(&options.rejects)?;
        total += stats.rows;
        rows.extend(part);
    }
    options.rejects.finish(total)?;
    Ok((rows, again))
}

fn rows(source: &Arc<Source>) -> Rows {
    read(source, 1 << 20, &ReadOptions::default()).unwrap().0
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

fn types(source: &Source) -> Vec<(String, DataType)> {
    let fields = source.schema().fields();
    fields.iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
}

fn text(rows: &[&[&str]]) -> Rows {
    rows.iter().map(|row| row.iter().map(|value| value.to_string()).collect()).collect()
}

#[test]
fn csv_files_become_typed_rows() {
    let folder = folder(&[
        ("a.csv", b"day,n,x,ok\n2013-01-01,1,1.5,true\n2013-01-02,,2,false\n"),
        ("b.csv", b"\xef\xbb\xbfday,n,x,ok\r\n2013-01-03,\"3\",,TRUE"),
        ("c.csv", b""),
        ("d.csv", b"day,n,x,ok\n"),
    ]);
    let source = open(&folder, "*.csv").unwrap();
    let expected: Vec<(String, DataType)> = vec![
        ("day".into(), DataType::Date32),
        ("n".into(), DataType::Int64),
        ("x".into(), DataType::Float64),
        ("ok".into(), DataType::Boolean),
    ];
    assert_eq!(types(&source), expected);
    let expected = text(&[
        &["2013-01-01", "1", "1.5", "true"],
        &["2013-01-02", "∅", "2.0", "false"],
        &["2013-01-03", "3", "∅", "true"],
    ]);
    assert_eq!(rows(&source), expected);
}

#[test]
fn only_the_columns_asked_for_are_read_and_none_is_enough_to_count() {
    let folder = folder(&[("a.csv", b"a,b,c\n1,x,2\n3,y,4\n")]);
    let source = open(&folder, "a.csv").unwrap();
    let of = |projection: &[usize]| {
        let options =
            ReadOptions { projection: Some(projection.to_vec()), ..ReadOptions::default() };
        read(&source, 1 << 20, &options).unwrap().0
    };
    assert_eq!(of(&[2, 0]), text(&[&["2", "1"], &["4", "3"]]));
    assert_eq!(of(&[1, 1]), text(&[&["x", "x"], &["y", "y"]]));
    assert_eq!(of(&[]), text(&[&[], &[]]));
}

#[test]
fn null_strings_are_null_in_every_column() {
    let folder = folder(&[("a.csv", b"a,b\n1,x\nNA,NA\n2,\n")]);
    let mut spec = spec(&folder, "a.csv");
    spec.options.nulls = vec!["NA".into()];
    let source = Arc::new(Source::open(&spec).unwrap());
    assert_eq!(source.schema().field(0).data_type(), &DataType::Int64);
    assert_eq!(rows(&source), text(&[&["1", "x"], &["∅", "∅"], &["2", "∅"]]));
}

#[test]
fn a_file_cut_at_every_byte_gives_the_same_rows() {
    let body: &[&[u8]] = &[
        b"id,text,n\n1,\"two\nlines, one, comma\",1\n2,\"a \"\"quoted\"\" word\n\",2\n3,plain,3\n",
        b"id,text,n\r\n1,\"x\r\ny\",1\r\n\r\n2,\"\",2\r\n3,\"\"\"\"\"\",3\r\n4,5\"6\",4",
        b"id,text,n\n1,\"1,a,1\n2,b,2\n3,c,3\n4,d,4\n5,e,5\",1\n6,\"7,f,7\n8,g,8\",8\n",
        b"\xef\xbb\xbfid,text,n\n1,\"\n\n\n\n\",1\n2,\xc3\xa9,2\n\n\n",
    ];
    for body in body {
        let folder = folder(&[("a.csv", body)]);
        let source = open(&folder, "a.csv").unwrap();
        let whole = read(&source, 1 << 20, &ReadOptions::default()).unwrap().0;
        assert!(whole.len() >= 2);
        for target in 1..body.len() as u64 {
            let (found, _) = read(&source, target, &ReadOptions::default()).unwrap();
            assert_eq!(found, whole, "target {target} of {}", body.escape_ascii());
            let mut splits = source.splits_of(target, &mut |_, _| true).unwrap();
            source.exact_splits(&mut splits, &Cancel::new()).unwrap();
            let mut exact = Vec::new();
            for split in &splits {
                let reader = source.read(split, &ReadOptions::default()).unwrap();
                assert!(reader.is_exact());
                reader.for_each(|batch| exact.extend(rows_of(&batch.unwrap())));
            }
            assert_eq!(exact, whole, "exact, target {target}");
        }
    }
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,4}",
        "[a-c]{1,3}",
        prop::collection::vec(
            prop::sample::select(vec!["a", ",", ";", "\n", "\r\n", "\"", "\\", "é", " "]),
            1..6
        )
        .prop_map(|parts| parts.concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_records_in_a_random_dialect_survive_every_cut(
        records in prop::collection::vec(prop::collection::vec(field(), 3), 2..12),
        delimiter in prop::sample::select(vec![b',', b';', b'\t', b'|']),
        crlf: bool, always: bool, escape: bool, last_line_end: bool,
        batch_rows in 1usize..5,
    ) {
        let mut file = ["p", "q", "r"].join(&(delimiter as char).to_string());
        for record in &records {
            file.push_str(if crlf { "\r\n" } else { "\n" });
            for (index, value) in record.iter().enumerate() {
                if index > 0 {
                    file.push(delimiter as char);
                }
                let special = ['"', '\n', '\r', '\\', delimiter as char];
                if always || value.contains(special) {
                    let mut inner = value.clone();
                    if escape {
                        inner = inner.replace('\\', "\\\\").replace('"', "\\\"");
                    } else {
                        inner = inner.replace('"', "\"\"");
                    }
                    file.push('"');
                    file.push_str(&inner);
                    file.push('"');
                } else {
                    file.push_str(value);
                }
            }
        }
        if last_line_end {
            file.push('\n');
        }
        let folder = folder(&[("a.csv", file.as_bytes())]);
        let mut spec = spec(&folder, "a.csv");
        spec.options.delimiter = Some(delimiter);
        spec.options.escape = escape.then_some(b'\\');
        let source = Arc::new(Source::open(&spec).unwrap());
        let options = ReadOptions { batch_rows, ..ReadOptions::default() };
        for target in 1..file.len() as u64 {
            let (found, _) = read(&source, target, &options).unwrap();
            prop_assert_eq!(&found, &records, "target {}", target);
        }
    }
}

#[test]
fn guesses_on_ordinary_data_are_right() {
    let mut file = String::from("id,name,note\n");
    for id in 0..2000 {
        file.push_str(&format!("{id},name {id},\"note {id}, with\na line and \"\"quotes\"\"\"\n"));
    }
    let folder = folder(&[("a.csv", file.as_bytes())]);
    let source = open(&folder, "a.csv").unwrap();
    let (found, again) = read(&source, 4096, &ReadOptions::default()).unwrap();
    assert_eq!(found.len(), 2000);
    assert_eq!(again, 0);
}

#[test]
fn a_header_that_differs_is_an_error_that_names_both_files() {
    let folder = folder(&[("a.csv", b"x,y\n1,2\n"), ("b.csv", b"x,z\n1,2\n")]);
    let message = message(read(&open(&folder, "*.csv").unwrap(), 1 << 20, &ReadOptions::default()));
    for part in ["a.csv", "b.csv", "column 2 is `z` instead of `y`", "missing: y", "added: z"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn sources_that_cannot_be_opened_say_why() {
    let folder = folder(&[
        ("twice.csv", b"a,b,a\n1,2,3\n"),
        ("utf16.csv", b"\xff\xfea\0"),
        ("empty.csv", b""),
        ("mixed/a.csv", b"a\n1\n"),
        ("mixed/b.json", b"{}\n"),
        ("odd.dat", b"a\n"),
    ]);
    for (pattern, parts) in [
        ("twice.csv", &["`a` more than once"][..]),
        ("utf16.csv", &["UTF-16", "iconv"]),
        ("empty.csv", &["no csv data", "--schema"]),
        ("mixed", &["a.csv` is csv", "b.json` is json"]),
        ("odd.dat", &["cannot tell the format", "--source-format", "parquet"]),
        ("*.jsn", &["no file matches"]),
    ] {
        let message = message(open(&folder, pattern));
        for part in parts {
            assert!(message.contains(part), "{pattern}: {message}");
        }
    }
}

#[test]
fn a_file_that_changes_after_it_was_listed_is_an_error() {
    let change: &[(&str, fn(&Path))] = &[
        ("removed", |path| std::fs::remove_file(path).unwrap()),
        ("shrunk", |path| {
            std::fs::File::options().write(true).open(path).unwrap().set_len(10).unwrap();
        }),
        ("grown", |path| {
            let mut file = std::fs::File::options().append(true).open(path).unwrap();
            file.write_all(b"9\n").unwrap();
        }),
        ("replaced", |path| {
            let other = path.with_extension("new");
            std::fs::write(&other, "a\n1\n2\n3\n4\n5\n6\n").unwrap();
            std::fs::rename(other, path).unwrap();
        }),
    ];
    for (expected, change) in change {
        let folder = folder(&[("a.csv", b"a\n1\n2\n3\n4\n5\n6\n")]);
        let source = open(&folder, "a.csv").unwrap();
        change(&folder.path().join("a.csv"));
        let error = read(&source, 1 << 20, &ReadOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
