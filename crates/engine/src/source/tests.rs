//! Sources end to end: files in, rows out.

use std::io::Write as _;
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::*;
use crate::progress::Progress;

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

#[test]
fn json_lines_become_typed_and_nested_rows() {
    let folder = folder(&[(
        "a.jsonl",
        b"\xef\xbb\xbf{\"a\": 1, \"b\": {\"c\": [1.5, null], \"d\": \"x\"}, \"t\": \"2013-01-01T05:00:00Z\"}\r\n\
          \n{\"t\": null, \"b\": null, \"a\": null}\n{\"b\": {\"d\": \"y\\n\"}, \"e\": true}",
    )]);
    let source = open(&folder, "a.jsonl").unwrap();
    let names: Vec<_> =
        types(&source).into_iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    assert_eq!(
        names,
        [
            "a Int64",
            "b Struct(\"c\": List(Float64), \"d\": Utf8View)",
            "t Timestamp(µs, \"UTC\")",
            "e Boolean"
        ]
    );
    let expected = text(&[
        &["1", "{c: [1.5, ∅], d: x}", "2013-01-01T05:00:00Z", "∅"],
        &["∅", "∅", "∅", "∅"],
        &["∅", "{c: ∅, d: y\n}", "∅", "true"],
    ]);
    assert_eq!(rows(&source), expected);
    for (projection, expected) in [
        (vec![], text(&[&[], &[], &[]])),
        (vec![3, 0, 3], text(&[&["∅", "1", "∅"], &["∅", "∅", "∅"], &["true", "∅", "true"]])),
    ] {
        let options = ReadOptions { projection: Some(projection), ..ReadOptions::default() };
        assert_eq!(read(&source, 1 << 20, &options).unwrap().0, expected);
    }
}

#[test]
fn json_maps_lists_of_objects_and_mixed_scalars_are_read() {
    let mut file = String::new();
    for row in 0..3 {
        let keys: Vec<_> = (0..150).map(|key| format!("\"k{row}_{key}\":{key}")).collect();
        file.push_str(&format!(
            "{{\"m\":{{{}}},\"l\":[{{\"x\":{row}}}],\"s\":{}}}\n",
            keys.join(","),
            ["1", "\"a\"", "true"][row]
        ));
    }
    let folder = folder(&[("a.json", file.as_bytes())]);
    let source = open(&folder, "a.json").unwrap();
    assert!(matches!(source.schema().field(0).data_type(), DataType::Map(_, false)));
    let options = ReadOptions { projection: Some(vec![1, 2]), ..ReadOptions::default() };
    assert_eq!(
        read(&source, 1 << 20, &options).unwrap().0,
        text(&[&["[{x: 0}]", "1"], &["[{x: 1}]", "a"], &["[{x: 2}]", "true"]])
    );
    assert!(rows(&source)[2][0].contains("k2_149: 149"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn random_json_lines_survive_every_cut(
        records in prop::collection::vec((any::<i64>(), "\\PC{0,6}", prop::option::of(-1e6..1e6f64)), 1..8),
        crlf: bool, last_line_end: bool, batch_rows in 1usize..4,
    ) {
        let lines: Vec<_> = records
            .iter()
            .map(|(int, text, float)| serde_json::json!({"t": format!("x{text}"), "i": int, "f": float}).to_string())
            .collect();
        let mut file = lines.join(if crlf { "\r\n" } else { "\n" });
        if last_line_end {
            file.push('\n');
        }
        let folder = folder(&[("a.json", file.as_bytes())]);
        let source = open(&folder, "a.json").unwrap();
        let options = ReadOptions { batch_rows, ..ReadOptions::default() };
        let whole = read(&source, 1 << 20, &options).unwrap().0;
        prop_assert_eq!(whole.len(), records.len());
        for (row, (int, text, _)) in whole.iter().zip(&records) {
            prop_assert_eq!(&row[0], &format!("x{text}"));
            prop_assert_eq!(&row[1], &int.to_string());
        }
        for target in 1..file.len() as u64 {
            let (found, again) = read(&source, target, &options).unwrap();
            prop_assert_eq!(&found, &whole);
            prop_assert_eq!(again, 0);
        }
    }
}

#[test]
fn lines_are_one_column() {
    let folder = folder(&[
        ("a.log", b"one\r\n\ntwo \xc3\xa9\nthree lines, longer than a view"),
        ("b.log", b"x\n"),
    ]);
    let source = open(&folder, "*.log").unwrap();
    let expected =
        text(&[&["one"], &[""], &["two é"], &["three lines, longer than a view"], &["x"]]);
    assert_eq!(rows(&source), expected);
    for batch_rows in 1..4 {
        for projection in [vec![0], vec![]] {
            let columns = projection.len();
            let options =
                ReadOptions { projection: Some(projection), batch_rows, ..ReadOptions::default() };
            for target in [1, 3, 100] {
                let found = read(&source, target, &options).unwrap().0;
                assert_eq!(found.len(), 5);
                assert!(found.iter().zip(&expected).all(|(f, e)| f[..] == e[..columns]));
            }
        }
    }
}

fn parquet_file(path: &Path, batch: &RecordBatch, rows_per_group: usize) {
    let properties = ::parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer =
        ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn parquet_folder() -> (tempfile::TempDir, Rows) {
    use arrow::array::{DictionaryArray, Int64Array, LargeStringArray, RecordBatch as B};
    let n = 5000;
    let dictionary: DictionaryArray<arrow::datatypes::Int32Type> = (0..n)
        .map(|row| if row % 7 == 0 { None } else { Some(["a", "b", "c"][row % 3]) })
        .collect();
    let batch = B::try_from_iter([
        ("n", Arc::new(Int64Array::from_iter_values(0..n as i64)) as arrow::array::ArrayRef),
        ("d", Arc::new(dictionary)),
        (
            "s",
            Arc::new(LargeStringArray::from_iter_values((0..n).map(|r| format!("some text {r}")))),
        ),
    ])
    .unwrap();
    let folder = folder(&[("y=2013/x", b""), ("y=2014/x", b"")]);
    std::fs::remove_file(folder.path().join("y=2013/x")).unwrap();
    std::fs::remove_file(folder.path().join("y=2014/x")).unwrap();
    parquet_file(&folder.path().join("y=2013/a.parquet"), &batch, 1000);
    parquet_file(&folder.path().join("y=2014/b.parquet"), &batch.slice(0, 10), 1000);
    let mut rows = rows_of(&batch);
    rows.extend(rows_of(&batch.slice(0, 10)));
    for (index, row) in rows.iter_mut().enumerate() {
        row.push(if index < n { "2013".into() } else { "2014".into() });
    }
    (folder, rows)
}

#[test]
fn parquet_row_groups_become_splits() {
    let (folder, expected) = parquet_folder();
    let source = open(&folder, "").unwrap();
    let kinds: Vec<_> = types(&source).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [DataType::Int64, DataType::Utf8View, DataType::Utf8View, DataType::Int64]);
    assert_eq!(rows(&source), expected);
    assert_eq!(source.splits_of(1, &mut |_, _| true).unwrap().len(), 6);
    assert_eq!(source.splits().unwrap().len(), 1);
    assert_eq!(source.parquet_metadata(0).unwrap().num_row_groups(), 5);

    let progress = Progress::new();
    let options = ReadOptions {
        projection: Some(vec![3, 2, 0]),
        progress: progress.clone(),
        ..ReadOptions::default()
    };
    let found = read(&source, 1, &options).unwrap().0;
    assert_eq!(found[3], [&expected[3][3], &expected[3][2], &expected[3][0]].map(String::clone));
    assert_eq!(progress.rows_done(), 5010);
    let bytes: u64 = source.splits().unwrap().iter().map(|split| split.bytes).sum();
    assert_eq!(progress.bytes_done(), bytes);

    let options = ReadOptions { projection: Some(vec![]), ..ReadOptions::default() };
    assert_eq!(read(&source, 1, &options).unwrap().0.len(), 5010);
    let pruned = source.splits_where(&mut |file, group| file == 0 && group == 4).unwrap();
    let reader = source.read(&pruned[0], &ReadOptions::default()).unwrap();
    let rows: Rows = reader.flat_map(|batch| rows_of(&batch.unwrap())).collect();
    assert_eq!(rows, expected[4000..5000]);
}

#[test]
fn damaged_parquet_files_are_errors_and_never_panics() {
    let (folder, expected) = parquet_folder();
    let path = folder.path().join("y=2014/b.parquet");
    let whole = std::fs::read(&path).unwrap();
    let url = "y=2014/b.parquet";
    for cut in [0, 3, 8, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = open(&folder, url).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    }
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        match open(&folder, url).and_then(|s| read(&s, 1 << 20, &ReadOptions::default())) {
            Ok(_) => {}
            Err(Error::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(refused > whole.len() / 4, "{refused} of {}", whole.len());
    let _ = expected;
}

#[test]
fn parquet_files_that_differ_are_an_error_that_names_both_and_the_column() {
    use arrow::array::{Float64Array, Int64Array};
    let folder = folder(&[]);
    let int = RecordBatch::try_from_iter([(
        "a",
        Arc::new(Int64Array::from(vec![1])) as arrow::array::ArrayRef,
    )]);
    let float = RecordBatch::try_from_iter([(
        "a",
        Arc::new(Float64Array::from(vec![1.0])) as arrow::array::ArrayRef,
    )]);
    parquet_file(&folder.path().join("a.parquet"), &int.unwrap(), 10);
    parquet_file(&folder.path().join("b.parquet"), &float.unwrap(), 10);
    let message = message(open(&folder, "*.parquet"));
    for part in ["a.parquet", "b.parquet", "column 1 is `a` Float64 instead of `a` Int64"] {
        assert!(message.contains(part), "{message}");
    }
}
