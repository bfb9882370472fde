//! Sources end to end: files in, rows out.

use std::io::Write as _;
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;
use tidemill_base::progress::RunProgress;

use super::error::user_message;
use super::*;

mod arrow_ipc_files;
mod avro;
mod dialect_detection;
mod error_propagation;
mod foreign_files;
mod json_sequences;
mod parquet_writers;
mod schema_unification;
mod skipped_lines;
mod split_invariance;
mod type_mismatches;
mod unknown_keys;
mod unresponsive_files;

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

/// Reads all rows; reads and verifies the splits in order, as a runner does. Also returns the number of
/// splits that were read again.
fn read(source: &Arc<Source>, target: u64, options: &ReadOptions) -> Result<(Rows, usize)> {
    read_splits(source, source.splits_with_target_bytes(target, &mut |_, _| true)?, options)
}

fn read_splits(
    source: &Arc<Source>,
    splits: Vec<Split>,
    options: &ReadOptions,
) -> Result<(Rows, usize)> {
    let (mut rows, mut again) = (Vec::new(), 0);
    let mut expected: Option<(usize, u64)> = None;
    let mut total = 0;
    for split in splits {
        let file = split.parts[0].file.index();
        let mut reader = source.read_split(&split, options)?;
        let (mut part, mut failure) = (Vec::new(), None);
        for batch in &mut reader {
            match batch {
                Ok(batch) => part.extend(rows_of(&batch)),
                Err(error) => failure = Some(error),
            }
        }
        let truth = expected.filter(|(of, _)| *of == file && split.parts[0].range.start > 0);
        if let Some((_, start)) = truth
            && reader.first_record_offset() != Some(start)
        {
            assert!(!reader.is_start_exact());
            again += 1;
            (part, failure) = (Vec::new(), None);
            reader = source
                .read_split(&split, &ReadOptions { exact_start: Some(start), ..options.clone() })?;
            for batch in &mut reader {
                part.extend(rows_of(&batch?));
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        expected = reader.next_record_offset().map(|end| (file, end));
        let mut stats = reader.into_stats();
        assert_eq!(stats.rows, part.len() as u64);
        stats.commit_to(&options.reject_log)?;
        total += stats.rows;
        rows.extend(part);
    }
    options.reject_log.finish(total)?;
    Ok((rows, again))
}

fn rows(source: &Arc<Source>) -> Rows {
    read(source, 1 << 20, &ReadOptions::default()).unwrap().0
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    user_message(result.unwrap_err())
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
fn projected_columns_are_read_and_none_are_needed_to_count() {
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
    spec.text_options.nulls = vec!["NA".into()];
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
            let mut splits = source.splits_with_target_bytes(target, &mut |_, _| true).unwrap();
            source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
            let mut exact = Vec::new();
            for split in &splits {
                let reader = source.read_split(split, &ReadOptions::default()).unwrap();
                assert!(reader.is_start_exact());
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
        spec.text_options.delimiter = Some(delimiter);
        spec.text_options.escape = escape.then_some(b'\\');
        let source = Arc::new(Source::open(&spec).unwrap());
        let options = ReadOptions { batch_rows, ..ReadOptions::default() };
        for target in 1..file.len() as u64 {
            let (found, _) = read(&source, target, &options).unwrap();
            prop_assert_eq!(&found, &records, "target {}", target);
        }
    }
}

#[test]
fn speculative_boundaries_on_ordinary_data_are_right() {
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

/// Several splits begin within a long record, and more than one reads through the rest of it.
#[test]
fn splits_within_a_long_record_start_after_it() {
    let text = "x, \"\" and more\n".repeat(400_000);
    let mut file = String::from("id,note\n");
    for id in 0..40 {
        let note = if id % 10 == 3 { text.as_str() } else { "short" };
        file.push_str(&format!("{id},\"{note}\"\n"));
    }
    let folder = folder(&[("a.csv", file.as_bytes())]);
    for target in [1 << 18, 1 << 20, 3 << 20] {
        let source = open(&folder, "a.csv").unwrap();
        let (found, again) = read(&source, target, &ReadOptions::default()).unwrap();
        assert_eq!((found.len(), again), (40, 0), "{target}");
        // Boundaries found by the first reading serve the second.
        let (found, again) = read(&source, target, &ReadOptions::default()).unwrap();
        assert_eq!((found.len(), again), (40, 0), "{target}");
    }
}

#[test]
fn sources_that_cannot_be_opened_say_why() {
    let folder = folder(&[
        ("utf16.csv", b"\xff\xfea\0"),
        ("empty.csv", b""),
        ("mixed/a.csv", b"a\n1\n"),
        ("mixed/b.json", b"{}\n"),
        ("odd.dat", b"a\n"),
    ]);
    for (pattern, parts) in [
        ("utf16.csv", &["UTF-16", "iconv"][..]),
        ("empty.csv", &["is empty: 0 bytes, no header", "--schema"]),
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
    type Change = fn(&Path);
    let change: &[(&str, Change)] = &[
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
        assert!(matches!(error, Error::FileChanged { .. }), "{error:?}");
        assert!(user_message(error).contains(expected), "{expected}");
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
    assert_eq!(source.splits_with_target_bytes(1, &mut |_, _| true).unwrap().len(), 6);
    assert_eq!(source.splits().unwrap().len(), 1);
    assert_eq!(source.parquet_metadata(0).unwrap().num_row_groups(), 5);

    let progress = RunProgress::new();
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
    let pruned = source.splits_with_pruning(&mut |file, group| file == 0 && group == 4).unwrap();
    let reader = source.read_split(&pruned[0], &ReadOptions::default()).unwrap();
    let rows: Rows = reader.flat_map(|batch| rows_of(&batch.unwrap())).collect();
    assert_eq!(rows, expected[4000..5000]);
}

#[test]
fn a_single_row_group_is_several_splits() {
    use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};
    use arrow::datatypes::Int64Type;
    const ROWS: i64 = 300_000;
    let numbers = (0..ROWS).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed()));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let texts = (0..ROWS).map(|row| (row % 11 != 0).then(|| format!("text {}", row % 70_001)));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..ROWS).map(|row| (row % 7 != 0).then(|| (0..row % 4).map(Some))),
    ));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts), ("l", lists)]).unwrap();
    let folder = folder(&[]);
    let path = folder.path().join("one.parquet");
    parquet_file(&path, &batch, ROWS as usize);
    let source = open(&folder, "one.parquet").unwrap();
    assert_eq!(source.parquet_metadata(0).unwrap().num_row_groups(), 1);
    let expected = rows_of(&batch);
    for (target, splits) in [(1, 4), (1 << 30, 1)] {
        assert_eq!(
            source.splits_with_target_bytes(target, &mut |_, _| true).unwrap().len(),
            splits
        );
        for ahead in [1 << 10, 64 << 20] {
            let progress = RunProgress::new();
            let options = ReadOptions {
                prefetch_budget: tidemill_remote::PrefetchBudget::new(ahead),
                progress: progress.clone(),
                ..ReadOptions::default()
            };
            assert!(read(&source, target, &options).unwrap().0 == expected, "{target} {ahead}");
            let size = source.splits().unwrap().iter().map(|split| split.bytes).sum::<u64>();
            assert_eq!((progress.rows_done(), progress.bytes_done()), (ROWS as u64, size));
        }
    }
    // Statistics belong to the row group.
    assert!(source.splits_with_pruning(&mut |_, group| group != 0).unwrap().is_empty());
    let third = &source.splits_with_target_bytes(1, &mut |_, _| true).unwrap()[2];
    assert_eq!(third.parts[0].file_row_number(5), (150_006, 0));

    std::fs::copy(&path, folder.path().join("other.parquet")).unwrap();
    let both = open(&folder, "*.parquet").unwrap();
    assert_eq!(both.splits_with_target_bytes(1, &mut |_, _| true).unwrap().len(), 8);
    let twice = [expected.as_slice(), &expected].concat();
    assert!(read(&both, 1, &ReadOptions::default()).unwrap().0 == twice);
}

#[test]
fn selective_parquet_predicates_are_evaluated_before_other_columns() {
    use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};
    use arrow::datatypes::Float64Type;
    use tidemill_text::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
    const ROWS: i32 = 200_000;
    let mixed = |row: i32| (i64::from(row) * 7919 % 100_003) as i32;
    let numbers: ArrayRef =
        Arc::new(Int32Array::from_iter((0..ROWS).map(|row| (row % 1000 != 7).then(|| mixed(row)))));
    let texts: ArrayRef = Arc::new(
        (0..ROWS).map(|row| Some(format!("text {}", row % 5000))).collect::<StringArray>(),
    );
    let floats = (0..ROWS).map(|row| match row % 3000 {
        0 => f64::NAN,
        1 => -0.0,
        _ => f64::from(mixed(row)),
    });
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(floats));
    let sorted: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS));
    let columns = [("n", numbers), ("t", texts), ("f", floats), ("row", sorted)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let folder = folder(&[]);
    parquet_file(&folder.path().join("a.parquet"), &batch, 70_000);
    let source = open(&folder, "a.parquet").unwrap();
    let all = rows_of(&batch);

    type Wanted = fn(i32, Option<i32>, f64) -> bool;
    let is = |comparison, constant| ValueCondition::Comparison(comparison, constant);
    let text = |text: &str| PredicateConstant::Text(text.into());
    let cases: Vec<(Vec<(usize, ValueCondition)>, Wanted)> = vec![
        (vec![(0, is(ComparisonOperator::Less, PredicateConstant::Int(500)))], |_, n, _| {
            n.is_some_and(|n| n < 500)
        }),
        (vec![(0, is(ComparisonOperator::Equal, PredicateConstant::Int(-1)))], |_, _, _| false),
        (vec![(0, ValueCondition::IsNull)], |_, n, _| n.is_none()),
        (vec![(0, ValueCondition::IsNotNull)], |_, n, _| n.is_some()),
        (
            vec![(
                0,
                ValueCondition::InSet(
                    vec![PredicateConstant::Int(7919), PredicateConstant::Int(3)].into(),
                ),
            )],
            |_, n, _| n == Some(7919) || n == Some(3),
        ),
        (vec![(1, is(ComparisonOperator::Equal, text("text 17")))], |row, _, _| row % 5000 == 17),
        (vec![(2, is(ComparisonOperator::Equal, PredicateConstant::Float(0.0)))], |_, _, f| {
            f == 0.0
        }),
        (vec![(2, is(ComparisonOperator::Greater, PredicateConstant::Float(1e300)))], |_, _, f| {
            f.is_nan()
        }),
        (
            vec![
                (3, is(ComparisonOperator::GreaterOrEqual, PredicateConstant::Int(199_000))),
                (1, is(ComparisonOperator::NotEqual, text("text 4999"))),
            ],
            |row, _, _| row >= 199_000 && row % 5000 != 4999,
        ),
        // Few matching rows at the beginning, only matching rows at the end.
        (
            vec![(3, is(ComparisonOperator::Greater, PredicateConstant::Int(100_000)))],
            |row, _, _| row > 100_000,
        ),
    ];
    let value = |row: i32| (row % 1000 != 7).then(|| mixed(row));
    for (tests, wanted) in cases {
        let predicates: Vec<Predicate> =
            tests.into_iter().map(|(column, test)| Predicate { column, condition: test }).collect();
        let float = |row: i32| batch.column(2).as_primitive::<Float64Type>().value(row as usize);
        let is_wanted = |row: &i32| wanted(*row, value(*row), float(*row));
        let expected: Rows =
            (0..ROWS).filter(is_wanted).map(|row| all[row as usize].clone()).collect();
        for (target, batch_rows) in [(1, 8192), (1 << 30, 1000)] {
            let progress = RunProgress::new();
            let options = ReadOptions {
                predicates: predicates.clone(),
                progress: progress.clone(),
                batch_rows,
                ..ReadOptions::default()
            };
            let mut found = Rows::new();
            let mut counted = 0;
            for split in source.splits_with_target_bytes(target, &mut |_, _| true).unwrap() {
                let mut reader = source.read_split(&split, &options).unwrap();
                found.extend(reader.by_ref().flat_map(|batch| rows_of(&batch.unwrap())));
                counted += reader.stats().rows;
            }
            // A reader may keep rows that do not match.
            found.retain(|row| {
                expected.binary_search_by_key(&number(&row[3]), |row| number(&row[3])).is_ok()
            });
            assert!(found == expected, "{predicates:?}: {} of {}", found.len(), expected.len());
            assert_eq!((progress.rows_done(), counted), (ROWS as u64, ROWS as u64));
        }
    }

    let predicates = vec![Predicate {
        column: 1,
        condition: ValueCondition::Comparison(
            ComparisonOperator::Equal,
            PredicateConstant::Text("text 17".into()),
        ),
    }];
    let options = ReadOptions { predicates, ..ReadOptions::default() };
    let splits = source.splits_with_target_bytes(1, &mut |_, _| true).unwrap();
    let readers = splits.iter().map(|split| source.read_split(split, &options).unwrap());
    let found = readers.flatten().map(|batch| batch.unwrap().num_rows()).sum::<usize>();
    assert_eq!(found, 40, "the others are left out");
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

#[test]
fn wide_parquet_files_are_read_in_slices_when_memory_is_short() {
    use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray, StructArray};
    use arrow::datatypes::Int64Type;
    let rows = 0..700i64;
    let columns = (0..100i64).map(|at| {
        let column: ArrayRef = match at % 4 {
            0 => Arc::new(Int64Array::from_iter(
                rows.clone().map(|row| (row % 5 != at % 5).then_some(row + at)),
            )),
            1 => Arc::new(StringArray::from_iter_values(
                rows.clone().map(|row| format!("a text that is no short one, {at} {row}")),
            )),
            2 => Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
                rows.clone().map(|row| Some((0..row % 4).map(|item| Some(item * at)))),
            )),
            _ => {
                let within: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
                Arc::new(StructArray::try_from(vec![("x", within.clone()), ("y", within)]).unwrap())
            }
        };
        (format!("c{at}"), column)
    });
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let folder = folder(&[]);
    parquet_file(&folder.path().join("wide.parquet"), &batch, 300);
    let source = open(&folder, "wide.parquet").unwrap();
    let expected = rows_of(&batch);
    for (batch_rows, projection) in
        [(8192, None), (7, None), (8192, Some((50..95).rev().collect()))]
    {
        let options = ReadOptions {
            batch_rows,
            projection,
            prefetch_budget: tidemill_remote::PrefetchBudget::new(1 << 10),
            ..ReadOptions::default()
        };
        let expected = match &options.projection {
            Some(columns) => rows_of(&batch.project(columns).unwrap()),
            None => expected.clone(),
        };
        for target in [1, 1 << 30] {
            assert_eq!(read(&source, target, &options).unwrap().0, expected);
        }
        let splits = source.splits().unwrap();
        let most = splits.iter().map(|split| {
            let reader = source.read_split(split, &options).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).max().unwrap()
        });
        // An eighth of a row group.
        assert_eq!(most.max(), Some(batch_rows.min(38)));
    }
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
        // An empty file is not damaged.
        let is_told = match cut {
            0 => matches!(error, Error::Usage { .. }),
            _ => matches!(error, Error::Corrupt { .. }),
        };
        assert!(is_told, "{error:?}");
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

fn rejects(allowed: &str, folder: Option<&tempfile::TempDir>) -> ReadOptions {
    let folder = folder.map(|folder| folder.path().to_path_buf());
    let rejects = Arc::new(RejectLog::new(allowed.parse().unwrap(), folder));
    ReadOptions { reject_log: rejects, ..ReadOptions::default() }
}

#[test]
fn rejected_csv_records_are_located_explained_and_written_to_the_reject_file() {
    let mut file = String::from("id,x,name\n");
    // Enough valid records that the malformed ones are beyond the sample.
    for id in 0..60_000 {
        file.push_str(&format!("{id},{id}.5,name {id}\n"));
    }
    let mut file = file.into_bytes();
    let first = file.len();
    file.extend_from_slice(b"60000,oops,\"two\nlines\"\n1.5,1,a\n60001,1,good\n");
    file.extend_from_slice(b"1,2\n1,2,3,4\n2,2,\xff\xfe\n60002,2,good\n3,3,\"open\n");
    let data = folder(&[("a.csv", &file)]);
    let source = open(&data, "a.csv").unwrap();

    let error = read(&source, 1 << 20, &ReadOptions::default()).unwrap_err();
    let Error::BadRecords { first: shown, count, .. } = &error else { panic!("{error:?}") };
    assert!(*count >= 1);
    assert_eq!(shown[0].line, Some(60_002));
    assert_eq!(shown[0].offset, first as u64);
    assert_eq!(shown[0].column.as_deref(), Some("x"));
    assert_eq!(shown[0].reason, "expected a DOUBLE, found `oops`");
    let message = user_message(error);
    assert!(
        message.contains("hint: --schema 'x TEXT'") && !message.contains("--null"),
        "{message}"
    );

    let run = tempfile::tempdir().unwrap();
    for target in [1 << 20, 100_000, 500] {
        let options = rejects("6", Some(&run));
        let (found, _) = read(&source, target, &options).unwrap();
        assert_eq!(found.len(), 60_002);
        assert_eq!(found[60_000], ["60001", "1.0", "good"]);
        assert_eq!(options.reject_log.count(), 6);
        let first = options.reject_log.first_records();
        let found: Vec<_> =
            first.iter().map(|bad| (bad.line.unwrap(), bad.reason.clone())).collect();
        assert_eq!(
            found,
            [
                (60_002, "expected a DOUBLE, found `oops`".to_string()),
                (60_004, "expected a BIGINT, found `1.5`".into()),
                (60_006, "expected 3 fields, found 2".into()),
                (60_007, "expected 3 fields, found 4".into()),
                (60_008, "field 3 is not valid UTF-8".into()),
            ]
        );
    }
    let copies = std::fs::read_to_string(run.path().join("rejected/3.jsonl")).unwrap();
    let copies: Vec<serde_json::Value> =
        copies.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(copies.len(), 6);
    assert_eq!(copies[0]["record"], "60000,oops,\"two\nlines\"");
    assert_eq!(copies[4]["record_hex"], "322c322cfffe0a");
    assert_eq!(copies[5]["reason"], "a quote is never closed");
    assert_eq!(copies[5]["line"], 60_010);

    let options = rejects("5", Some(&run));
    assert!(matches!(read(&source, 1 << 20, &options), Err(Error::BadRecords { count: 6, .. })));
    read(&source, 1 << 20, &rejects("1%", None)).unwrap();
    let error = read(&source, 1 << 20, &rejects("0.005%", None)).unwrap_err();
    let message = user_message(error);
    assert!(message.contains("6 malformed records, 0.005% allowed"), "{message}");

    // A column that is not read is not checked; records of the wrong width are still rejected.
    let options = ReadOptions { projection: Some(vec![2]), ..rejects("4", None) };
    assert_eq!(read(&source, 1 << 20, &options).unwrap().0.len(), 60_004);
}

#[test]
fn integers_after_the_sample_are_exact_or_rejected() {
    let record = |values: &dyn Fn(usize) -> String| {
        let pairs: Vec<_> = (0..300).map(|key| format!("\"k{key}\":{}", values(key))).collect();
        format!("{{\"c\":{{{}}}}}\n", pairs.join(","))
    };
    let odd = record(&|key| if key == 7 { "9007199254740993".into() } else { "1.5".into() });
    let even = record(&|key| if key % 2 == 0 { "1.5".into() } else { key.to_string() });
    let few = "{\"c\":{\"k2\":0.5,\"k3\":-3}}\n";
    let folder = folder(&[
        ("early.json", odd.as_bytes()),
        ("late.json", (even + &few.repeat(20_000) + &odd).as_bytes()),
    ]);
    let early = open(&folder, "early.json").unwrap();
    let found = rows(&early).swap_remove(0).swap_remove(0);
    assert!(found.contains("k7: 9007199254740993, k8: 1.5"), "{found}");
    let late = open(&folder, "late.json").unwrap();
    assert!(matches!(types(&late)[0].1, DataType::Map(..)));
    for target in [1 << 16, 1 << 30] {
        let error = message(read(&late, target, &ReadOptions::default()));
        for part in [
            "line 20002",
            "column `c.k7`: a DOUBLE holds no integer `9007199254740993`",
            "--schema 'c TEXT'",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    // A declared DOUBLE takes the nearest value.
    let declared = SourceSpec {
        declared_schema: Some(Arc::new(Schema::new(late.schema().fields().clone()))),
        ..spec(&folder, "late.json")
    };
    let declared = Arc::new(Source::open(&declared).unwrap());
    assert_eq!(rows(&declared).len(), 20_002);
}

#[test]
fn json_integers_among_fractions_are_exact_or_rejected() {
    let fraction = "{\"v\":0.5,\"s\":{\"n\":0.5},\"l\":[0.5]}\n";
    let many = |key: usize| match key {
        1 => "\"k1\":9007199254740993".to_owned(),
        _ => format!("\"k{key}\":1.5"),
    };
    let pairs = |range: std::ops::Range<usize>| range.map(many).collect::<Vec<_>>().join(",");
    let wide = format!("{{\"v\":{{{},\"k1\":0.5}}}}\n", pairs(0..250));
    for (line, column, value, remedies) in [
        (
            "{\"v\":9007199254740993}",
            "v",
            "9007199254740993",
            &["'v DECIMAL(38, 6)'", "'v TEXT'", "'v DOUBLE'"][..],
        ),
        ("{\"s\":{\"n\":-9007199254740993}}", "s.n", "-9007199254740993", &["'s TEXT'"]),
        ("{\"l\":[1,9007199254740993]}", "l[1]", "9007199254740993", &["'l TEXT'"]),
        ("{\"v\":18446744073709551615}", "v", "18446744073709551615", &["'v TEXT'"]),
        ("{\"v\":1e400}", "v", "1e400", &["'v TEXT'", "'v DOUBLE'"]),
        ("{\"s\":{\"n\":1e400}}", "s.n", "1e400", &["'s TEXT'"]),
        ("{\"l\":[1e-400]}", "l[0]", "1e-400", &["'l TEXT'"]),
    ] {
        // Within the sample and after it.
        for before in [1, 20_000] {
            let data = format!("{}{line}\n{fraction}", fraction.repeat(before));
            let data = folder(&[("a.json", data.as_bytes())]);
            let source = open(&data, "a.json").unwrap();
            for target in [1 << 14, 1 << 30] {
                let error = message(read(&source, target, &ReadOptions::default()));
                let place = format!("line {} ", before + 1);
                let at_column = format!("column `{column}`");
                for part in [place.as_str(), &at_column, &format!("`{value}`")] {
                    assert!(error.contains(part), "{part}: {error}");
                }
                for part in remedies {
                    assert!(error.contains(&format!("--schema {part}")), "{part}: {error}");
                }
            }
            assert_eq!(read(&source, 1 << 14, &rejects("1", None)).unwrap().0.len(), before + 1);
        }
    }
    let both = "{\"a\":18446744073709551615}\n{\"a\":18446744073709551614}\n{\"a\":-1}\n";
    let late = format!("{wide}{{\"v\":{{\"k1\":9007199254740993}}}}\n");
    let data = folder(&[("both.json", both.as_bytes()), ("wide.json", late.as_bytes())]);
    let error = message(read(&open(&data, "both.json").unwrap(), 1, &rejects("1", None)));
    assert!(error.contains("a DOUBLE holds no integer `18446744073709551615`"), "{error}");
    let error = message(read(&open(&data, "wide.json").unwrap(), 1, &ReadOptions::default()));
    assert!(error.contains("column `v.k1`: a DOUBLE holds no integer"), "{error}");
    assert!(error.contains("--schema 'v TEXT' reads"), "{error}");
    // A name with a dot is a column's name here and a path there.
    for (member, late, reason, hint) in [
        (
            "\"x.y\":0.5",
            "\"x.y\":1e400",
            "`x.y`: `1e400` is beyond the range of a DOUBLE",
            "'\"x.y\" TEXT'",
        ),
        ("\"x.y\":0.5", "\"x.y\":\"a\"", "`x.y`: expected a DOUBLE, found `a`", "'\"x.y\" TEXT'"),
        (
            "\"x\":{\"y\":1}",
            "\"x\":{\"y\":1.5}",
            "`x.y`: expected a BIGINT, found `1.5`",
            "'x TEXT'",
        ),
    ] {
        let text = format!("{}{{{late}}}\n", format!("{{{member}}}\n").repeat(60_000));
        let data = folder(&[("dots.json", text.as_bytes())]);
        let error =
            message(read(&open(&data, "dots.json").unwrap(), 1 << 30, &ReadOptions::default()));
        assert!(error.contains(reason) && error.contains(hint), "{error}");
    }
    // A declared type is used.
    for (schema, expected) in [
        (DataType::Float64, ["1.8446744073709552e19", "1.8446744073709552e19", "-1.0"]),
        (DataType::Utf8View, ["18446744073709551615", "18446744073709551614", "-1"]),
        (DataType::Decimal128(38, 1), ["18446744073709551615.0", "18446744073709551614.0", "-1.0"]),
    ] {
        let schema = Schema::new(vec![Field::new("a", schema, true)]);
        let declared =
            SourceSpec { declared_schema: Some(Arc::new(schema)), ..spec(&data, "both.json") };
        let declared = Arc::new(Source::open(&declared).unwrap());
        assert_eq!(rows(&declared), text(&expected.each_ref().map(std::slice::from_ref)));
    }
}

#[test]
fn record_after_a_nul_hole_is_malformed_in_every_text_format() {
    let access = "1.1.1.1 - - [10/Oct/2026:13:55:36 -0700] \"GET / HTTP/1.1\" 200 2\n";
    for (name, header, record) in [
        ("a.csv", "a,b\n", "1,x\n"),
        ("a.tsv", "a\tb\n", "1\tx\n"),
        ("a.txt", "", "a line\n"),
        ("a.logfmt", "", "a=1 b=2\n"),
        ("a.json", "", "{\"a\":1}\n"),
        ("access.log", "", access),
        ("app.log", "", "a=1 b=2\n"),
        ("sys.log", "", "<34>Oct 11 22:14:15 host su: failed\n"),
        ("other.log", "", "just some text\n"),
    ] {
        let whole = format!("{header}{}", record.repeat(5));
        // The larger hole is longer than the beginning that shows the format.
        for (before, nuls, targets) in [
            (0, 5000, &[16, 1 << 12, 1 << 30][..]),
            (3, 5000, &[16, 1 << 12, 1 << 30]),
            (0, 600_000, &[1 << 30]),
        ] {
            let hole = "\0".repeat(nuls);
            let before_hole = format!("{header}{}", record.repeat(before));
            let holey = format!("{before_hole}{hole}{record}{}", record.repeat(4 - before));
            let gz = format!("{name}.gz");
            let data =
                folder(&[(name, holey.as_bytes()), (&gz, &compressed("gz", holey.as_bytes()))]);
            let sound = folder(&[(name, whole.as_bytes())]);
            let expected = open(&sound, name).unwrap();
            for name in [name, &gz] {
                let source = open(&data, name).unwrap();
                assert_eq!(types(&source), types(&expected), "{name} {before}");
                for &target in targets {
                    let error = message(read(&source, target, &ReadOptions::default()));
                    let place = format!(
                        "line {} (byte {}): the record begins with {nuls} NUL bytes",
                        before_hole.lines().count() + 1,
                        before_hole.len()
                    );
                    for part in [place.as_str(), "--source-exec tr --source-exec -d"] {
                        assert!(error.contains(part), "{name} {target}: {part}: {error}");
                    }
                    let found = read(&source, target, &rejects("1", None)).unwrap().0;
                    assert_eq!(found, rows(&expected)[..4], "{name}");
                }
            }
        }
    }
    let data = folder(&[("h.csv", b"\0\0\0\0a,b\n1,x\n")]);
    let error = message(open(&data, "h.csv"));
    assert!(error.contains("its header begins with 4 NUL bytes"), "{error}");
}

#[test]
fn bad_json_records_are_located_and_explained() {
    let lines: &[(&str, &str)] = &[
        ("{\"a\": 1.5}", "expected a BIGINT, found `1.5`"),
        ("{\"a\": \"x\"}", "expected a BIGINT, found `x`"),
        ("{\"a\": true}", "expected a BIGINT, found `true`"),
        ("{\"a\": {\"z\": 1}}", "expected a BIGINT, found an object"),
        ("{\"a\": 1} x {\"a\": 2}", "the line goes on after its value"),
        (",{\"a\": 1}", "expected an object, found a comma with no record before it"),
        ("{\"a\": 1", "the line ends within its value"),
        ("{\"a\": nope}", "not valid JSON"),
        ("[{\"a\": 1}]", "expected an object, found an array"),
        ("17", "expected an object, found a number"),
        ("{\"s\": {\"t\": 1700000000}}", "expected a timestamp"),
        ("{\"s\": 3}", "expected an object, found a number `3`"),
        ("{\"l\": [{\"d\": \"2013-01-01 05:00:00\"}]}", "expected a date"),
        ("{\"b\": \"yes\"}", "expected a Boolean"),
        ("{\"f\": \"abc\"}", "expected a DOUBLE, found `abc`"),
    ];
    let good = "{\"a\": 1, \"s\": {\"t\": \"2013-01-01T00:00:00\"}, \"l\": [{\"d\": \"2013-01-01\"}], \"b\": true, \"f\": 0.5}\n";
    for (line, reason) in lines {
        let mut file = good.repeat(10_001);
        while file.len() < 2 << 20 {
            file.push_str(&good.repeat(1000));
        }
        let at = file.len();
        let goods = file.lines().count();
        file.push_str(&format!("{line}\n{good}{good}"));
        let data = folder(&[("a.json", file.as_bytes())]);
        let source = open(&data, "a.json").unwrap();
        let options = rejects("1", None);
        let (found, _) = read(&source, 1 << 20, &options).unwrap();
        assert_eq!(found.len(), goods + 2, "{line}");
        let bad = &options.reject_log.first_records()[0];
        assert_eq!((bad.line, bad.offset), (Some(goods as u64 + 1), at as u64), "{line}");
        assert!(bad.reason.contains(reason), "{line}: {}", bad.reason);
    }
}

#[test]
fn a_wholly_bad_file_is_read_in_reasonable_time_and_counted_exactly() {
    let mut file = "a\n".to_string() + &"1\n".repeat(600_000);
    file.push_str(&"x\n".repeat(100_000));
    let data = folder(&[("a.csv", file.as_bytes())]);
    let source = open(&data, "a.csv").unwrap();
    let options = rejects("50%", None);
    assert_eq!(read(&source, 200_000, &options).unwrap().0.len(), 600_000);
    assert_eq!(options.reject_log.count(), 100_000);
    assert_eq!(options.reject_log.first_records()[4].line, Some(600_006));
}

#[test]
fn invalid_utf8_is_a_bad_record_in_every_text_format() {
    for (name, file, good) in [
        ("a.csv", &b"a,b\n1,x\n2,\xff\n3,y\n"[..], 2),
        ("a.json", b"{\"a\": \"x\"}\n{\"a\": \"\xc3\"}\n{\"a\": \"y\"}\n", 2),
        ("a.log", b"x\n\xff\ny\n", 2),
    ] {
        let data = folder(&[(name, file)]);
        let source = open(&data, name).unwrap();
        for projection in [None, Some(vec![])] {
            let options = ReadOptions { projection, ..rejects("1", None) };
            let (found, _) = read(&source, 1 << 20, &options).unwrap();
            assert_eq!((found.len(), options.reject_log.count()), (good, 1), "{name}");
            assert!(options.reject_log.first_records()[0].reason.contains("UTF-8"));
        }
    }
}

fn compressed(kind: &str, bytes: &[u8]) -> Vec<u8> {
    match kind {
        "gz" => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "zst" => {
            // With a checksum, as the zstd command writes it.
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "bz2" => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}

/// Rows that compress poorly.
fn noise(rows: u64) -> String {
    let mut state = 1u64;
    (0..rows)
        .map(|row| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(row);
            format!("{row},{state:x}{:x}\n", state.rotate_left(17).wrapping_mul(state | 1))
        })
        .collect()
}

#[test]
fn compressed_files_are_decoded_to_the_end_of_their_last_member() {
    for kind in ["gz", "zst", "bz2", "xz"] {
        let mut bytes = compressed(kind, b"a,b\n1,x\n2");
        bytes.extend(compressed(kind, b",y\n3,z"));
        let name = format!("a.csv.{kind}");
        let data = folder(&[(&name, &bytes), (&format!("b.csv.{kind}"), b"")]);
        let source = open(&data, "*").unwrap();
        let progress = RunProgress::new();
        let options = ReadOptions { progress: progress.clone(), ..ReadOptions::default() };
        let (found, _) = read(&source, 1, &options).unwrap();
        assert_eq!(found, text(&[&["1", "x"], &["2", "y"], &["3", "z"]]), "{kind}");
        assert_eq!(progress.bytes_done(), bytes.len() as u64);
    }
}

#[test]
fn padding_after_compressed_data_is_skipped_and_other_bytes_are_an_error() {
    for (kind, size) in [("gz", 3), ("zst", 3), ("bz2", 3), ("xz", 3), ("gz", 250_000)] {
        let whole = compressed(kind, format!("a,b\n{}", noise(size)).as_bytes());
        let name = format!("a.csv.{kind}");
        let padded = [&whole[..], &[0; 4096]].concat();
        let data = folder(&[(&name, &padded)]);
        let rows = read(&open(&data, &name).unwrap(), 1, &ReadOptions::default()).unwrap().0;
        assert_eq!(rows.len() as u64, size, "{kind}");
        std::fs::write(data.path().join(&name), [&padded[..], b"x"].concat()).unwrap();
        let result = open(&data, &name).and_then(|s| read(&s, 1, &rejects("100%", None)));
        let error = result.unwrap_err();
        let Error::Corrupt { offset, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*offset, Some(whole.len() as u64), "{kind}");
        let told = user_message(error);
        assert!(told.contains("and other bytes follow: `x`\nhint: "), "{told}");
    }
}

#[test]
fn a_truncated_or_corrupt_compressed_file_is_an_error_with_its_offset() {
    for (kind, rows) in [
        ("gz", 2000),
        ("zst", 2000),
        ("bz2", 2000),
        ("xz", 2000),
        ("gz", 200_000),
        ("zst", 250_000),
    ] {
        let whole = compressed(kind, format!("a,b\n{}", noise(rows)).as_bytes());
        let name = format!("a.csv.{kind}");
        let data = folder(&[(&name, &whole)]);
        let path = data.path().join(&name);
        assert_eq!(
            read(&open(&data, &name).unwrap(), 1, &ReadOptions::default()).unwrap().0.len() as u64,
            rows
        );

        std::fs::write(&path, &whole[..whole.len() - 7]).unwrap();
        let result = open(&data, &name).and_then(|s| read(&s, 1, &ReadOptions::default()));
        let error = result.unwrap_err();
        let Error::Corrupt { offset: Some(offset), reason, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(
            *offset <= whole.len() as u64 && *offset + 100_000 > whole.len() as u64,
            "{kind}: {error}"
        );
        assert!(reason.contains("ends before its end mark"), "{kind}: {error}");

        let mut broken = whole.clone();
        let middle = broken.len() / 2;
        broken[middle..middle + 64].fill(0xa5);
        std::fs::write(&path, &broken).unwrap();
        let result = open(&data, &name).and_then(|s| read(&s, 1, &rejects("100%", None)));
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{kind}: {error:?}");

        std::fs::write(&path, b"\0\x01a,b\n1,2\n3,4\n5,6\n").unwrap();
        let error = open(&data, &name).unwrap_err();
        assert!(user_message(error).contains("not a valid"), "{kind}");
        // Text is read as text, whatever its name says.
        std::fs::write(&path, b"a,b\n1,2\n").unwrap();
        let rows = read(&open(&data, &name).unwrap(), 1, &ReadOptions::default()).unwrap().0;
        assert_eq!(rows.len(), 1, "{kind}");
    }
}

#[test]
fn a_file_that_is_cut_off_within_its_magic_number_is_an_error() {
    let whole = compressed("bz2", b"a,b\n1,x\n");
    for length in 1..whole.len() {
        let data = folder(&[("a.csv.bz2", &whole[..length])]);
        let read = open(&data, "a.csv.bz2").and_then(|s| read(&s, 1, &ReadOptions::default()));
        let error = read.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{length}: {error:?}");
    }
}

#[test]
fn header_of_numbers_alone_is_reported() {
    let data = folder(&[
        ("n.csv", b"1,2.5,-3\n4,5,6\n"),
        ("years.csv", b"name,2024,2025\nx,1,2\n"),
        ("nan.csv", b"nan,inf\n1,2\n"),
        ("odd.csv", b"1,,3\n4,5,6\n"),
        ("dates.csv", b"2026-01-01,3,NaN\n2026-01-02,4,1\n"),
        ("unnamed.csv", b",\n1,2\n"),
        ("many.tsv", b"1\t2\t3\t4\t5\n1\t2\t3\t4\t5\n"),
    ]);
    let warning = |name: &str, header: Option<bool>| {
        let mut spec = spec(&data, name);
        spec.text_options.header = header;
        Source::open(&spec).unwrap().warning()
    };
    let said = warning("n.csv", None).unwrap();
    assert!(said.contains("the names of its columns: `1`, `2.5`, `-3`; if"), "{said}");
    let said = warning("many.tsv", None).unwrap();
    assert!(said.contains("`1`, `2`, `3`, `4`, …; if"), "{said}");
    assert!(warning("odd.csv", None).is_some() && warning("dates.csv", None).is_some());
    for (name, header) in [
        ("n.csv", Some(true)),
        ("n.csv", Some(false)),
        ("years.csv", None),
        ("nan.csv", None),
        ("unnamed.csv", None),
    ] {
        assert_eq!(warning(name, header), None, "{name}");
    }
}

#[test]
fn bad_records_in_a_compressed_file_have_their_line() {
    let body = format!("a,b\n{}x,1\n{}y\n", noise(30_000), noise(10));
    let bytes = compressed("gz", body.as_bytes());
    let data = folder(&[("a.csv.gz", &bytes)]);
    let source = open(&data, "a.csv.gz").unwrap();
    let options = rejects("2", None);
    read(&source, 1, &options).unwrap();
    let first = options.reject_log.first_records();
    let lines: Vec<_> = first.iter().map(|bad| (bad.line.unwrap(), bad.offset)).collect();
    let first = 4 + noise(30_000).len() as u64;
    assert_eq!(lines, [(30_002, first), (30_013, first + 4 + noise(10).len() as u64)]);
}

#[test]
fn a_reader_can_be_dropped_or_cancelled_before_its_end() {
    let bytes = compressed("gz", format!("a,b\n{}", noise(250_000)).as_bytes());
    assert!(bytes.len() > 5 << 20);
    let data = folder(&[("a.csv.gz", &bytes)]);
    let source = open(&data, "a.csv.gz").unwrap();
    let split = source.splits().unwrap().remove(0);
    let options = ReadOptions::default();
    let mut reader = source.read_split(&split, &options).unwrap();
    assert!(reader.next().unwrap().is_ok());
    drop(reader);
    let mut reader = source.read_split(&split, &options).unwrap();
    reader.next().unwrap().unwrap();
    options.cancel.cancel();
    let last = reader.by_ref().last().unwrap();
    assert!(matches!(last, Err(Error::Interrupted)));
    assert!(reader.next().is_none());
}

#[test]
fn standard_input_is_sampled_and_then_read_from_its_start() {
    for (format, plain, good) in [
        (Format::Csv, format!("a,b\n{}", noise(100_000)), 100_000),
        (Format::Lines, noise(50), 50),
        (Format::Json, "{\"a\": 1}\n{\"a\": 2}".to_string(), 2),
    ] {
        for kind in ["", "gz", "zst"] {
            let bytes = match kind {
                "" => plain.clone().into_bytes(),
                kind => compressed(kind, plain.as_bytes()),
            };
            let mut spec = SourceSpec { url: "-".into(), ..SourceSpec::default() };
            let stdin = || Box::new(std::io::Cursor::new(bytes.clone()));
            let error = Source::open_with_stdin(&spec, stdin(), &CancelFlag::new()).unwrap_err();
            assert!(user_message(error).contains("--source-format"));
            spec.format = Some(format);
            let source =
                Arc::new(Source::open_with_stdin(&spec, stdin(), &CancelFlag::new()).unwrap());
            assert!(source.is_stdin());
            assert_eq!(rows(&source).len(), good, "{format} {kind}");
            let again = message(read(&source, 1, &ReadOptions::default()));
            assert!(again.contains("only once"), "{again}");
        }
    }
    let spec =
        SourceSpec { url: "-".into(), format: Some(Format::Parquet), ..SourceSpec::default() };
    assert!(
        message(Source::open_with_stdin(&spec, Box::new(std::io::empty()), &CancelFlag::new()))
            .contains("file first")
    );
}

#[test]
fn folders_give_columns_that_win_over_the_files_own() {
    let data = folder(&[
        ("day=2013-01-01/s=a%2Fb/x.csv", b"n,day\n1,9\n2,9\n"),
        ("day=2013-01-02/s=__HIVE_DEFAULT_PARTITION__/x.csv", b"n,day\n3,9\n"),
    ]);
    let source = open(&data, "").unwrap();
    let names: Vec<_> =
        types(&source).into_iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    assert_eq!(names, ["n Int64", "day Date32", "s Utf8View"]);
    let expected = text(&[
        &["1", "2013-01-01", "a/b"],
        &["2", "2013-01-01", "a/b"],
        &["3", "2013-01-02", "∅"],
    ]);
    assert_eq!(rows(&source), expected);
    let options = ReadOptions { projection: Some(vec![2]), ..ReadOptions::default() };
    assert_eq!(read(&source, 1 << 20, &options).unwrap().0, text(&[&["a/b"], &["a/b"], &["∅"]]));
}

#[test]
fn a_users_schema_overrides_types_by_name() {
    let data = folder(&[
        ("a.csv", b"id,t\n1,2\n"),
        ("b.json", b"{\"id\": 1, \"t\": 2}\n"),
        ("c.csv", b""),
        ("d.log", b"x\n"),
    ]);
    let schema = |fields: &[(&str, DataType)]| {
        Some(Arc::new(Schema::new(
            fields
                .iter()
                .map(|(name, kind)| Field::new(*name, kind.clone(), true))
                .collect::<Vec<_>>(),
        )))
    };
    for file in ["a.csv", "b.json"] {
        let mut spec = spec(&data, file);
        spec.declared_schema = schema(&[("t", DataType::Utf8)]);
        let source = Arc::new(Source::open(&spec).unwrap());
        assert_eq!(source.schema().field(1).data_type(), &DataType::Utf8);
        assert_eq!(rows(&source), text(&[&["1", "2"]]));
        spec.declared_schema = schema(&[("idd", DataType::Utf8)]);
        // Any key may appear after the sample; a header is complete.
        match file {
            "a.csv" => assert!(message(Source::open(&spec)).contains("did you mean `id`")),
            _ => assert_eq!(Source::open(&spec).unwrap().schema().fields().len(), 3),
        }
        spec.declared_schema = schema(&[("id", DataType::Null)]);
        assert!(message(Source::open(&spec)).contains("cannot be of type Null"));
    }
    let mut empty = spec(&data, "c.csv");
    empty.declared_schema = schema(&[("a", DataType::Int64)]);
    let source = Arc::new(Source::open(&empty).unwrap());
    assert_eq!(rows(&source), Rows::new());
    assert_eq!(source.splits().unwrap().len(), 0);
    let mut headless = spec(&data, "a.csv");
    headless.text_options.header = Some(false);
    assert_eq!(types(&Source::open(&headless).unwrap())[0].0, "column_1");
    headless.declared_schema = schema(&[("x", DataType::Utf8View), ("y", DataType::Utf8View)]);
    let source = Arc::new(Source::open(&headless).unwrap());
    assert_eq!(rows(&source), text(&[&["id", "t"], &["1", "2"]]));
    let mut lines = spec(&data, "d.log");
    lines.declared_schema = schema(&[("line", DataType::Int64)]);
    assert!(message(Source::open(&lines)).contains("CAST"));
}

#[test]
fn text_options_are_applied() {
    for (file, change, expected) in [
        (
            &b"a|b\n# no, \"record\n1|'x|y'\n"[..],
            (|o: &mut TextOptions| {
                o.delimiter = Some(b'|');
                o.quote = Some(Some(b'\''));
                o.comment = Some(b'#');
            }) as fn(&mut TextOptions),
            text(&[&["1", "x|y"]]),
        ),
        (
            b"a,b\n\"1,\"x\"\n2,\"y\n",
            |o| o.quote = Some(None),
            text(&[&["\"1", "\"x\""], &["2", "\"y"]]),
        ),
        (b"a,b\n1,\"x\\\"y\"\n", |o| o.escape = Some(b'\\'), text(&[&["1", "x\"y"]])),
        (b"1,x\n2,y\n", |o| o.header = Some(false), text(&[&["1", "x"], &["2", "y"]])),
        (b"a\r1\r2\r", |_| (), text(&[&["1"], &["2"]])),
        (b"a\n\n1\n\n", |_| (), text(&[&["1"]])),
        (b"a\n\"\"\n1\n", |_| (), text(&[&["\u{2205}"], &["1"]])),
    ] {
        let data = folder(&[("a.csv", file)]);
        let mut spec = spec(&data, "a.csv");
        change(&mut spec.text_options);
        let source = Arc::new(Source::open(&spec).unwrap());
        assert_eq!(rows(&source), expected, "{}", file.escape_ascii());
    }
    let data = folder(&[("a.tsv", b"a\tb\n1\tx,y\n")]);
    assert_eq!(rows(&open(&data, "a.tsv").unwrap()), text(&[&["1", "x,y"]]));
}

#[test]
fn length_prefixed_syslog_is_read_in_one_split() {
    let framed = |text: &str| format!("{} {text}", text.len());
    let records: Vec<String> = (0..200)
        .map(|n| framed(&format!("<34>1 - h su - - - {n}\n<35>{}", "x".repeat(n))))
        .collect();
    let whole = records.concat();
    let data = folder(&[
        ("a.log", whole.as_bytes()),
        ("cut.log", &whole.as_bytes()[..whole.len() - 1]),
        ("mixed.log", b"<34>1 - h su - - - line\n20 <34>1 - h su - - - a<34>1 - h su - - - b"),
    ]);
    let of = |name: &str, framing| {
        let mut spec = spec(&data, name);
        spec.format = Some(Format::Syslog);
        spec.text_options.framing = framing;
        Arc::new(Source::open(&spec).unwrap())
    };
    let options = |allowed| ReadOptions { projection: Some(vec![0, 9]), ..rejects(allowed, None) };
    let expected: Rows =
        (0..200).map(|n| vec!["4".to_owned(), format!("{n}\n<35>{}", "x".repeat(n))]).collect();
    let octets = Some(SyslogFraming::Octets);
    for target in [1, 100, 1 << 20] {
        let source = of("a.log", octets);
        assert_eq!(source.splits_with_target_bytes(target, &mut |_, _| true).unwrap().len(), 1);
        assert_eq!(read(&source, target, &options("0")).unwrap().0, expected);
    }
    // A record that is shorter than its length prefix is rejected, and no other.
    let (found, _) = read(&of("cut.log", octets), 1 << 20, &options("1")).unwrap();
    assert_eq!(found, expected[..199]);
    assert!(read(&of("cut.log", octets), 1 << 20, &options("0")).is_err());
    let (found, _) = read(&of("mixed.log", octets), 1, &options("0")).unwrap();
    let messages: Vec<_> = found.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(messages, ["line", "a", "b"]);
}

#[test]
fn tiny_files_of_every_kind_never_panic() {
    let alphabet = b"a,\"\n\r\\{}[]:1\xff\xef\xbb\xbf\x1f\x8b";
    for name in ["a.csv", "a.json", "a.log", "a.parquet", "a.csv.gz", "a.json.zst"] {
        for first in alphabet {
            for second in alphabet {
                let data = folder(&[(name, &[*first, *second])]);
                if let Ok(source) = open(&data, name) {
                    let _ = read(&source, 1, &rejects("100%", None));
                }
            }
        }
    }
}

#[test]
fn a_giant_record_spanning_several_splits_is_one_row() {
    let giant = "line, \"\"x\"\"\n".repeat(300_000);
    let file = format!("a,b\n1,\"{giant}\"\n2,y\n");
    let data = folder(&[("a.csv", file.as_bytes())]);
    let source = open(&data, "a.csv").unwrap();
    assert!(source.splits().unwrap().len() > 2);
    let (found, _) = read(&source, 1 << 20, &ReadOptions::default()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0][1].len(), giant.len() - 2 * 300_000);
    let mut splits = source.splits().unwrap();
    source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
    assert_eq!(splits[1].exact_start, Some(file.len() as u64 - 4));
}

#[test]
fn small_files_share_splits_in_order() {
    let files: Vec<_> = (0..100).map(|i| format!("{i:03}.csv")).collect();
    let bodies: Vec<_> = (0..100).map(|i| format!("a\n{i}\n")).collect();
    let pairs: Vec<_> =
        files.iter().zip(&bodies).map(|(f, b)| (f.as_str(), b.as_bytes())).collect();
    let data = folder(&pairs);
    let source = open(&data, "*.csv").unwrap();
    assert_eq!(source.splits().unwrap().len(), 1);
    let found = rows(&source);
    assert_eq!(found, (0..100).map(|i| vec![i.to_string()]).collect::<Rows>());
    assert_eq!(read(&source, 17, &ReadOptions::default()).unwrap().0, found);
}

#[test]
fn a_schema_may_name_the_columns_of_folders() {
    let data = folder(&[("m=01/x.csv", b"n\n1\n"), ("m=02/x.csv", b"n\n2\n")]);
    assert_eq!(types(&open(&data, "").unwrap())[1].1, DataType::Utf8View);
    let mut spec = spec(&data, "");
    spec.declared_schema =
        Some(Arc::new(Schema::new(vec![Field::new("m", DataType::Int64, true)])));
    let source = Arc::new(Source::open(&spec).unwrap());
    assert_eq!(rows(&source), text(&[&["1", "1"], &["2", "2"]]));
    spec.declared_schema =
        Some(Arc::new(Schema::new(vec![Field::new("m", DataType::Utf8View, true)])));
    let source = Arc::new(Source::open(&spec).unwrap());
    assert_eq!(rows(&source), text(&[&["1", "01"], &["2", "02"]]));
    spec.declared_schema =
        Some(Arc::new(Schema::new(vec![Field::new("m", DataType::Boolean, true)])));
    let source = Arc::new(Source::open(&spec).unwrap());
    assert!(message(read(&source, 1, &ReadOptions::default())).contains("`01` is not a Boolean"));
}

#[test]
fn sources_and_readers_can_go_to_other_threads() {
    fn check<T: Send>() {}
    fn check_shared<T: Send + Sync>() {}
    check::<SplitReader>();
    check::<SplitStats>();
    check_shared::<Source>();
    check_shared::<RejectLog>();
    check_shared::<Split>();
}

#[test]
fn real_logs_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/logs");
    if !root.is_dir() {
        eprintln!("skipped: {} is not there", root.display());
        return;
    }
    for (name, format, expected) in [
        ("nginxplus.jsonl", None, 500),
        ("auth.log", None, 7121),
        ("apache_access.log", Some(Format::Lines), 10_000),
    ] {
        let url = root.join(name).display().to_string();
        let spec = SourceSpec { url, format, ..SourceSpec::default() };
        let source = Arc::new(Source::open(&spec).unwrap());
        let (whole, _) = read(&source, u64::MAX, &ReadOptions::default()).unwrap();
        assert_eq!(whole.len(), expected, "{name}");
        assert_eq!(read(&source, 70_000, &ReadOptions::default()).unwrap().0, whole);
    }
}

#[test]
fn json_line_with_two_values_does_not_offset_a_value_on_two_lines() {
    for (text, rows, bad) in [
        ("{\"a\":1}\n\n{}{\"a\":2}\n", 3, 0),
        ("{\"a\":1}\n{\"a\":2\n}\n{\"a\":3}{\"a\":4}\n", 3, 2),
        ("{\"a\":1}\n{\"a\":2} \n \t\n {\"a\":3}\n", 3, 0),
        ("{\"a\":1}\n{\"a\":2} {\n{\"a\":3}", 3, 1),
    ] {
        let folder = folder(&[("a.json", text.as_bytes())]);
        let source = open(&folder, "a.json").unwrap();
        let options = rejects("100%", None);
        let (found, _) = read(&source, 1 << 20, &options).unwrap();
        assert_eq!((found.len(), options.reject_log.count()), (rows, bad), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_give_the_same_rows_and_rejects_however_they_are_cut(
        name in prop::sample::select(vec!["a.csv", "a.json", "a.log"]),
        parts in prop::collection::vec(
            prop::sample::select(vec![
                &b"1"[..], b"a", b",", b"\"", b"\n", b"\r\n", b"\xff", b"\xc3\xa9", b"{\"a\":1}\n",
                b"{", b"}", b"[", b"]", b":", b"1,2\n", b"x,y\n", b"\"a\"\"\n\",2\n", b"null", b"\\",
            ]),
            1..60,
        ),
    ) {
        let bytes = [if name == "a.csv" { &b"p,q\n1,2\n"[..] } else { b"{\"a\":1}\n" }, &parts.concat()].concat();
        let folder = folder(&[(name, &bytes)]);
        let Ok(source) = open(&folder, name) else { return Ok(()) };
        let whole = rejects("100%", None);
        let (rows, _) = read(&source, 1 << 20, &whole).unwrap();
        for target in (1..bytes.len() as u64).step_by(3) {
            let cut = rejects("100%", None);
            let (found, _) = read(&source, target, &cut).unwrap();
            prop_assert_eq!(&found, &rows, "target {}", target);
            prop_assert_eq!(cut.reject_log.count(), whole.reject_log.count(), "target {}", target);
            prop_assert_eq!(cut.reject_log.first_records(), whole.reject_log.first_records(), "target {}", target);
        }
    }
}

#[test]
fn split_of_rejected_records_holds_few_of_them() {
    let mut file = "a,b\n".to_string() + &"1,x\n".repeat(300_000);
    file.push_str(&"x,\"y\n\"\n".repeat(200_000));
    let data = folder(&[("a.csv", file.as_bytes())]);
    let source = open(&data, "a.csv").unwrap();
    let options = rejects("50%", None);
    let split = source.splits().unwrap().pop().unwrap();
    let mut reader = source.read_split(&split, &options).unwrap();
    assert!(!reader.is_start_exact());
    reader.by_ref().for_each(|batch| assert!(batch.is_ok()));
    assert!(reader.is_start_exact());
    let stats = reader.into_stats();
    assert!(stats.rejected_records.len() < 100_000 && stats.rejected_count > 100_000);
    assert_eq!(
        options.reject_log.count() + stats.rejected_records.len() as u64,
        stats.rejected_count
    );
}
