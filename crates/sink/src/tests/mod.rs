//! Tests of the whole sink.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;

use super::formats::FileEncoding;
use super::*;
use crate::writing::codec_resolution::resolve_codec;
use crate::writing::row_writer::{FileWriteSpec, RowWriter};

mod commit;
mod disk_model;
mod partitioned_output;
mod paths;
mod power_cut;

/// Day and state as path columns, an integer, a float, a string.
fn flights() -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([
        ("day", Arc::new(Date32Array::from(vec![15706, 15707, 15706, 15706])) as ArrayRef, false),
        (
            "state",
            Arc::new(StringArray::from(vec![Some("TX"), Some("NY"), None, Some("TX")])),
            true,
        ),
        ("users", Arc::new(Int64Array::from(vec![Some(1), None, Some(-3), Some(4)])), true),
        ("delay", Arc::new(Float64Array::from(vec![0.5, 2.0, 1e20, f64::NAN])), true),
        (
            "note",
            Arc::new(StringArray::from(vec![Some("a,b"), Some(""), None, Some("\"q\"\n")])),
            true,
        ),
    ])
    .unwrap()
}

/// Returns the error message for the user.
fn user_message(error: Error) -> String {
    tidemill_base::Error::from(error).to_string()
}

/// Every file below a folder with its text.
fn read_tree(folder: &Path) -> BTreeMap<String, String> {
    fn walk(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                found.insert(format!("{name}/"), String::new());
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                found.insert(name, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, "", &mut found);
    found
}

#[test]
fn a_file_per_value_appears_at_commit() {
    let temp = tempfile::tempdir().unwrap();
    let spec = SinkSpec::new(format!("{}/out/{{state}}/{{day}}.csv", temp.path().display()));
    let mut sink = Sink::create(&spec, flights().schema(), &RunId::new(), 1 << 20).unwrap();
    sink.write(&flights()).unwrap();
    assert!(!temp.path().join("out/TX").exists());
    let written = sink.commit().unwrap();
    assert_eq!((written.files, written.rows), (3, 4));
    let header = "day,state,users,delay,note\n";
    let expected = [
        ("out/", String::new()),
        ("out/NY/", String::new()),
        ("out/NY/2013-01-02.csv", format!("{header}2013-01-02,NY,,2.0,\"\"\n")),
        ("out/TX/", String::new()),
        (
            "out/TX/2013-01-01.csv",
            format!("{header}2013-01-01,TX,1,0.5,\"a,b\"\n2013-01-01,TX,4,NaN,\"\"\"q\"\"\n\"\n"),
        ),
        ("out/__HIVE_DEFAULT_PARTITION__/", String::new()),
        (
            "out/__HIVE_DEFAULT_PARTITION__/2013-01-01.csv",
            format!("{header}2013-01-01,,-3,1e20,\n"),
        ),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    assert_eq!(read_tree(temp.path()), expected);
    let bytes: usize = expected.values().map(String::len).sum();
    assert_eq!(written.bytes, bytes as u64);
}

fn run(spec: &SinkSpec, batches: &[RecordBatch], memory: usize) -> Result<OutputSummary> {
    let mut sink = Sink::create(spec, batches[0].schema(), &RunId::new(), memory)?;
    for batch in batches {
        sink.write(batch)?;
    }
    sink.commit()
}

/// Returns a folder in memory if possible: there, thousands of commits wait for no disk, and the
/// tested order of operations is the same.
fn memory_tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn template(temp: &tempfile::TempDir, pattern: &str) -> SinkSpec {
    SinkSpec::new(format!("{}/{pattern}", temp.path().display()))
}

/// Creates a writer for an output that is not a file.
fn stream<W: Write + Send + 'static>(
    format: OutputFormat,
    schema: SchemaRef,
    null: Option<&str>,
    out: W,
) -> Result<RowWriter<W>> {
    format.check_schema(&schema)?;
    let encoding = FileEncoding {
        codec: resolve_codec(None, format, None, false)?,
        is_stream: true,
        null_text: null.map(str::to_owned),
        has_header: true,
        output_name: "a stream".into(),
        memory_limit_bytes: 128 << 20,
        threads: 2,
        cancel: CancelFlag::new(),
    };
    let writing = FileWriteSpec { format, encoding, program: None };
    RowWriter::new(out, &writing, schema)
}

fn streamed(format: OutputFormat, null: Option<&str>, batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = stream(format, batches[0].schema(), null, Vec::new()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap()
}

fn text(format: OutputFormat, null: Option<&str>, batch: &RecordBatch) -> String {
    String::from_utf8(streamed(format, null, std::slice::from_ref(batch))).unwrap()
}

fn one_column(name: &str, array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, Arc::new(array) as ArrayRef, true)]).unwrap()
}

/// A list, a struct and a map.
fn nested() -> RecordBatch {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("a"), None, Some("x\"y")]);
    lists.append_null();
    let structs = StructArray::from(vec![
        (
            Arc::new(Field::new("n", DataType::Int64, true)),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("f", DataType::Float64, true)),
            Arc::new(Float64Array::from(vec![f64::INFINITY, 1.0])) as ArrayRef,
        ),
    ]);
    let mut maps = MapBuilder::new(None, Int32Builder::new(), Date32Builder::new());
    maps.keys().append_value(7);
    maps.values().append_value(15706);
    maps.append(true).unwrap();
    maps.append(true).unwrap();
    RecordBatch::try_from_iter_with_nullable([
        ("l", Arc::new(lists.finish()) as ArrayRef, true),
        ("s", Arc::new(structs), true),
        ("m", Arc::new(maps.finish()), true),
    ])
    .unwrap()
}

#[test]
fn csv_has_a_header_and_distinguishes_null_from_empty() {
    let expected = "\
day,state,users,delay,note
2013-01-01,TX,1,0.5,\"a,b\"
2013-01-02,NY,,2.0,\"\"
2013-01-01,,-3,1e20,
2013-01-01,TX,4,NaN,\"\"\"q\"\"
\"
";
    assert_eq!(text(OutputFormat::Csv, None, &flights()), expected);
    let expected = "\
day\tstate\tusers\tdelay\tnote
2013-01-01\tTX\t1\t0.5\ta,b
2013-01-02\tNY\tNA\t2.0\t\"\"
2013-01-01\tNA\t-3\t1e20\tNA
2013-01-01\tTX\t4\tNaN\t\"\"\"q\"\"
\"
";
    assert_eq!(text(OutputFormat::Tsv, Some("NA"), &flights()), expected);
    let strings =
        one_column("a,b", StringArray::from(vec![Some("NA"), None, Some(" x "), Some("\r")]));
    assert_eq!(text(OutputFormat::Csv, Some("NA"), &strings), "\"a,b\"\n\"NA\"\nNA\n x \n\"\r\"\n");
    // A reader skips an empty line, and with it the row.
    assert_eq!(text(OutputFormat::Csv, None, &strings), "\"a,b\"\nNA\n\"\"\n x \n\"\r\"\n");
}

#[test]
fn csv_holds_nested_values_as_json() {
    let expected = "\
l,s,m
\"[\"\"a\"\",null,\"\"x\\\"\"y\"\"]\",\"{\"\"n\"\":-9223372036854775808,\"\"f\"\":null}\",\"{\"\"7\"\":\"\"2013-01-01\"\"}\"
,\"{\"\"n\"\":null,\"\"f\"\":1.0}\",{}
";
    assert_eq!(text(OutputFormat::Csv, None, &nested()), expected);
}

#[test]
fn json_has_every_key_in_every_row() {
    let expected = r#"{"day":"2013-01-01","state":"TX","users":1,"delay":0.5,"note":"a,b"}
{"day":"2013-01-02","state":"NY","users":null,"delay":2.0,"note":""}
{"day":"2013-01-01","state":null,"users":-3,"delay":1e20,"note":null}
{"day":"2013-01-01","state":"TX","users":4,"delay":null,"note":"\"q\"\n"}
"#;
    assert_eq!(text(OutputFormat::Json, Some("NA"), &flights()), expected);
    let expected = r#"{"l":["a",null,"x\"y"],"s":{"n":-9223372036854775808,"f":null},"m":{"7":"2013-01-01"}}
{"l":null,"s":{"n":null,"f":1.0},"m":{}}
"#;
    assert_eq!(text(OutputFormat::Json, None, &nested()), expected);
}

#[test]
fn json_strings_are_what_a_json_parser_reads_back() {
    let all: String = (0..0x500_u32).filter_map(char::from_u32).chain(['\u{2028}', '😀']).collect();
    let line =
        text(OutputFormat::Json, None, &one_column("x", StringArray::from(vec![all.as_str()])));
    assert_eq!(line.lines().count(), 1);
    let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(parsed["x"], serde_json::Value::from(all));
}

#[test]
fn a_table_is_aligned_and_cannot_drive_the_terminal() {
    let batch = RecordBatch::try_from_iter_with_nullable([
        (
            "who",
            Arc::new(StringArray::from(vec![Some("東京"), None, Some("\x1b[31mred\n")]))
                as ArrayRef,
            true,
        ),
        ("n", Arc::new(Int32Array::from(vec![Some(5), Some(-12345), None])), true),
        ("last", Arc::new(StringArray::from(vec!["a", "\u{202e}b", ""])), true),
    ])
    .unwrap();
    let expected = [
        "who                 n  last",
        "-------------  ------  ---------",
        "東京                5  a",
        "NULL           -12345  \\u{202e}b",
        "\\x1b[31mred\\n    NULL",
        "",
    ];
    assert_eq!(text(OutputFormat::Text, None, &batch), expected.join("\n"));
    let expected = "day  state  users  delay  note\n---  -----  -----  -----  ----\n";
    assert_eq!(text(OutputFormat::Text, None, &flights().slice(0, 0)), expected);
}

#[test]
fn a_long_table_streams_with_the_widths_of_its_first_window() {
    let count = 2_500;
    let numbers =
        Int64Array::from_iter_values((0..count).map(|i| if i == 2_000 { i64::MAX } else { i }));
    let names = StringArray::from_iter_values((0..count).map(|i| format!("n{i}")));
    let batch = RecordBatch::try_from_iter([
        ("n", Arc::new(numbers) as ArrayRef),
        ("name", Arc::new(names)),
    ])
    .unwrap();
    let table = text(OutputFormat::Text, None, &batch);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2_502);
    assert_eq!(lines[2], "  0  n0");
    assert_eq!(lines[2_001], "1999  n1999");
    assert_eq!(lines[2_002], "9223372036854775807  n2000");
}

#[test]
fn values_have_one_text_each() {
    let check = |array: ArrayRef, expected: &[&str]| {
        let column = crate::writing::value_text::TextColumn::new(&array).unwrap();
        for (row, expected) in expected.iter().enumerate() {
            let mut text = Vec::new();
            column.write_text(row, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), *expected, "{:?}", array.data_type());
        }
        assert_eq!(array.len(), expected.len());
    };
    check(Arc::new(Int8Array::from(vec![0, -128, 127])), &["0", "-128", "127"]);
    check(Arc::new(UInt64Array::from(vec![u64::MAX, 10])), &["18446744073709551615", "10"]);
    check(Arc::new(Int64Array::from(vec![i64::MIN])), &["-9223372036854775808"]);
    check(Arc::new(BooleanArray::from(vec![true, false])), &["true", "false"]);
    check(
        Arc::new(Float64Array::from(vec![
            0.1,
            -0.0,
            1e15,
            123456789012345.0,
            1e16,
            5e-324,
            f64::MAX,
            f64::NAN,
            f64::NEG_INFINITY,
        ])),
        &[
            "0.1",
            "-0.0",
            "1000000000000000.0",
            "123456789012345.0",
            "1e16",
            "5e-324",
            "1.7976931348623157e308",
            "NaN",
            "-inf",
        ],
    );
    check(Arc::new(Float32Array::from(vec![0.1, 16777216.0, 3.0])), &["0.1", "16777216.0", "3.0"]);
    check(
        Arc::new(Date32Array::from(vec![0, -1, 15706, 11016, 2932896, 2932897, -719529])),
        &[
            "1970-01-01",
            "1969-12-31",
            "2013-01-01",
            "2000-02-29",
            "9999-12-31",
            "+10000-01-01",
            "-0001-12-31",
        ],
    );
    check(
        Arc::new(Date64Array::from(vec![0, 86_400_000, 1])),
        &["1970-01-01", "1970-01-02", "1970-01-01T00:00:00.001"],
    );
    check(
        Arc::new(TimestampNanosecondArray::from(vec![0, 1, 1_000, 1_000_000, -1])),
        &[
            "1970-01-01T00:00:00",
            "1970-01-01T00:00:00.000000001",
            "1970-01-01T00:00:00.000001",
            "1970-01-01T00:00:00.001",
            "1969-12-31T23:59:59.999999999",
        ],
    );
    check(
        Arc::new(TimestampSecondArray::from(vec![1_357_017_300]).with_timezone("UTC")),
        &["2013-01-01T05:15:00Z"],
    );
    check(
        Arc::new(TimestampMillisecondArray::from(vec![1_357_017_300_250]).with_timezone("-05:00")),
        &["2013-01-01T00:15:00.250-05:00"],
    );
    check(
        Arc::new(TimestampSecondArray::from(vec![1_357_017_300]).with_timezone("Mars/Olympus")),
        &["2013-01-01T05:15:00Z"],
    );
    // No year is too far.
    check(Arc::new(TimestampSecondArray::from(vec![i64::MAX])), &["+292277026596-12-04T15:30:07"]);
    check(Arc::new(Time32SecondArray::from(vec![0, 86_399])), &["00:00:00", "23:59:59"]);
    check(Arc::new(Time64MicrosecondArray::from(vec![18_900_000_010])), &["05:15:00.000010"]);
    check(
        Arc::new(DurationMillisecondArray::from(vec![90_500, -1, 0])),
        &["PT90.500S", "-PT0.001S", "PT0S"],
    );
    check(Arc::new(IntervalYearMonthArray::from(vec![14, 0, -1])), &["P1Y2M", "PT0S", "P-1M"]);
    check(
        Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(
            1,
            -2,
            -3_500_000_000,
        )])),
        &["P1M-2DT-3.500S"],
    );
    check(
        Arc::new(Decimal128Array::from(vec![12345, -5]).with_precision_and_scale(10, 2).unwrap()),
        &["123.45", "-0.05"],
    );
    check(Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..]])), &["\\x00ff"]);
    check(
        Arc::new(StringViewArray::from(vec!["a longer text than twelve bytes"])),
        &["a longer text than twelve bytes"],
    );
    let keys = Int8Array::from(vec![1, 0]);
    let dictionary = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["x", "y"])));
    check(Arc::new(dictionary), &["y", "x"]);
}

#[test]
fn a_timestamp_reads_as_arrow_writes_it() {
    use arrow::util::display::array_value_to_string;
    let mut value: i64 = 17;
    for _ in 0..2_000 {
        value =
            value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let arrays: [ArrayRef; 3] = [
            Arc::new(TimestampNanosecondArray::from(vec![value])),
            Arc::new(TimestampMicrosecondArray::from(vec![value >> 8]).with_timezone("+00:00")),
            Arc::new(Date32Array::from(vec![(value >> 45) as i32])),
        ];
        for array in arrays {
            let mut ours = Vec::new();
            crate::writing::value_text::TextColumn::new(&array).unwrap().write_text(0, &mut ours);
            assert_eq!(String::from_utf8(ours).unwrap(), array_value_to_string(&array, 0).unwrap());
        }
    }
}

#[test]
fn parquet_and_arrow_hold_the_rows_and_an_empty_result_its_schema() {
    for batches in [vec![flights(), flights()], vec![flights().slice(0, 0)], vec![nested()]] {
        let schema = batches[0].schema();
        let all = arrow::compute::concat_batches(&schema, &batches).unwrap();
        let parquet = streamed(OutputFormat::Parquet, None, &batches);
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes(parquet));
        let reader = reader.unwrap();
        let column =
            reader.metadata().row_groups().first().map(|group| group.column(0).compression());
        if let Some(compression) = column {
            assert!(matches!(compression, parquet::basic::Compression::ZSTD(_)));
        }
        let fields = reader.schema().fields().clone();
        assert_eq!(&fields, schema.fields());
        let found: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        let found = arrow::compute::concat_batches(&schema, &found).unwrap();
        assert_eq!(format!("{found:?}"), format!("{all:?}"));
        let stream = streamed(OutputFormat::Arrow, None, &batches);
        let reader = arrow::ipc::reader::StreamReader::try_new(stream.as_slice(), None).unwrap();
        assert_eq!(reader.schema(), schema);
        let found: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        let found = arrow::compute::concat_batches(&schema, &found).unwrap();
        assert_eq!(format!("{found:?}"), format!("{all:?}"));
    }
}

/// Returns the bytes as the input of the Parquet reader.
fn bytes(all: Vec<u8>) -> std::fs::File {
    use std::io::Seek;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&all).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn a_format_that_cannot_hold_the_schema_is_refused_before_any_work() {
    let twice = Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("a", DataType::Int64, true),
    ]);
    let schema = Arc::new(twice);
    for (format, right) in [
        (OutputFormat::Json, false),
        (OutputFormat::Parquet, false),
        (OutputFormat::Csv, true),
        (OutputFormat::Arrow, true),
        (OutputFormat::Rowfile, false),
        (OutputFormat::Avro, false),
    ] {
        let spec = SinkSpec { format: Some(format), ..SinkSpec::new("-") };
        assert_eq!(describe_output(&spec, &schema).is_ok(), right, "{format}");
    }
}

#[test]
fn formats_are_detected_from_names() {
    for (name, expected) in [
        ("csv", Some(OutputFormat::Csv)),
        ("text", Some(OutputFormat::Text)),
        ("ndjson", Some(OutputFormat::Json)),
        ("excel", None),
    ] {
        assert_eq!(name.parse::<OutputFormat>().ok(), expected, "{name}");
    }
    let error = user_message("parket".parse::<OutputFormat>().unwrap_err());
    assert!(
        error.starts_with("unknown output format `parket`; did you mean `parquet`?"),
        "{error}"
    );
    for (path, expected) in [
        ("a.csv", Some(OutputFormat::Csv)),
        ("a.b.JSONL", Some(OutputFormat::Json)),
        (".parquet", Some(OutputFormat::Parquet)),
        ("a.arrows", Some(OutputFormat::Arrow)),
        ("a.feather", Some(OutputFormat::Arrow)),
        ("a.avro", Some(OutputFormat::Avro)),
        ("a.rowfile", Some(OutputFormat::Rowfile)),
        ("a.tsv", Some(OutputFormat::Tsv)),
        ("a.csv.gz", Some(OutputFormat::Csv)),
        ("a.gz", None),
        ("csv", None),
    ] {
        assert_eq!(OutputFormat::from_path(path), expected, "{path}");
    }
}

#[test]
fn one_file_is_written_staged_and_committed() {
    let temp = tempfile::tempdir().unwrap();
    for suffix in ["csv", "json", "parquet", "arrow"] {
        let spec = template(&temp, &format!("new/folder/x.{suffix}"));
        let path = PathBuf::from(&spec.url);
        let mut sink = Sink::create(&spec, flights().schema(), &RunId::new(), 1 << 20).unwrap();
        sink.write(&flights()).unwrap();
        assert!(!path.exists());
        drop(sink);
        // A sink that is dropped leaves nothing, not even the folders it made.
        assert_eq!(read_tree(temp.path()), BTreeMap::new());
        let written = run(&spec, &[flights()], 1 << 20).unwrap();
        assert_eq!(written.paths, std::slice::from_ref(&spec.url));
        assert_eq!(written.root, path.parent().unwrap().display().to_string());
        assert_eq!((written.files, written.rows), (1, 4));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), written.bytes);
        assert_eq!(read_tree(temp.path()).len(), 3);
        // The second run is refused before any work, unless it may replace the file.
        let again = Sink::create(&spec, flights().schema(), &RunId::new(), 1 << 20);
        assert!(matches!(again, Err(Error::OutputExists { more: 0, .. })));
        let spec = SinkSpec { overwrite: true, ..spec };
        assert_eq!(run(&spec, &[flights(), flights()], 1 << 20).unwrap().rows, 8);
        std::fs::remove_dir_all(temp.path().join("new")).unwrap();
    }
}

#[test]
fn an_empty_result_is_a_file_with_a_header_and_no_partitioned_file() {
    let temp = tempfile::tempdir().unwrap();
    let none = flights().slice(0, 0);
    run(&template(&temp, "x.csv"), std::slice::from_ref(&none), 1 << 20).unwrap();
    let written = run(&template(&temp, "out/{day}.csv"), &[none], 1 << 20).unwrap();
    assert_eq!(written.files, 0);
    let expected = [("x.csv".to_owned(), "day,state,users,delay,note\n".to_owned())];
    assert_eq!(read_tree(temp.path()), expected.into_iter().collect());
}

#[test]
fn files_without_a_header_are_their_rows() {
    let temp = tempfile::tempdir().unwrap();
    let headless = |pattern: &str| SinkSpec { has_header: false, ..template(&temp, pattern) };
    let rows = flights().project(&[1, 2]).unwrap().slice(0, 2);
    run(&headless("x.csv"), std::slice::from_ref(&rows), 1 << 20).unwrap();
    run(&headless("out/{state}.tsv"), std::slice::from_ref(&rows), 1 << 20).unwrap();
    run(&headless("none.csv"), &[rows.slice(0, 0)], 1 << 20).unwrap();
    let text = SinkSpec { format: Some(OutputFormat::Text), ..headless("x.txt") };
    run(&text, std::slice::from_ref(&rows), 1 << 20).unwrap();
    let files = read_tree(temp.path());
    let found: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let expected = [
        ("none.csv", ""),
        ("out/", ""),
        ("out/NY.tsv", "NY\t\n"),
        ("out/TX.tsv", "TX\t1\n"),
        ("x.csv", "TX,1\nNY,\n"),
        ("x.txt", "TX     1\nNY  NULL\n"),
    ];
    assert_eq!(found, expected);
    for pattern in ["x.json", "x.parquet", "x.arrow"] {
        let error = run(&headless(pattern), std::slice::from_ref(&rows), 1 << 20).unwrap_err();
        assert!(error.to_string().contains("has no header that could be left out"), "{error}");
    }
}

#[test]
fn only_the_names_a_run_writes_are_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let spec = template(&temp, "out/{state}.csv");
    run(&spec, &[flights()], 1 << 20).unwrap();
    let before = read_tree(temp.path());
    let texas = flights().slice(0, 1);
    match run(&spec, &[flights()], 1 << 20) {
        Err(Error::OutputExists { path, more }) => {
            assert!(path.ends_with("out/NY.csv"), "{path}");
            assert_eq!(more, 2);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read_tree(temp.path()), before);
    let spec = SinkSpec { overwrite: true, ..spec };
    run(&spec, &[texas], 1 << 20).unwrap();
    let after = read_tree(temp.path());
    assert_eq!(after["out/NY.csv"], before["out/NY.csv"]);
    assert_eq!(after["out/TX.csv"].lines().count(), 2);
}

#[test]
fn more_files_than_allowed_are_refused_with_what_would_allow_them() {
    let temp = tempfile::tempdir().unwrap();
    let spec = SinkSpec { max_files: 2, ..template(&temp, "out/{state}/{day}.csv") };
    let error = user_message(run(&spec, &[flights()], 1 << 20).unwrap_err());
    assert!(error.contains("more than 2 files: columns `state`, `day` together have"), "{error}");
    assert!(error.contains("--max-files N"), "{error}");
    assert_eq!(read_tree(temp.path()), BTreeMap::new());
}

#[test]
fn a_wrong_destination_is_refused_by_name() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("folder.csv")).unwrap();
    std::fs::create_dir_all(temp.path().join("out/TX.csv")).unwrap();
    std::fs::write(temp.path().join("file"), "").unwrap();
    let before = read_tree(temp.path());
    for (url, expected) in [
        ("folder.csv", "is a folder"),
        ("folder.csv/", "names a folder"),
        ("out/{state}.csv", "`out/TX.csv` is a folder"),
        ("file/x.csv", "is a file where the output needs a folder"),
        ("file/{day}.csv", "is a file where the output needs a folder"),
        ("file/a/{day}.csv", "cannot write to the folder"),
        ("out/{user}.csv", "unknown column `user`; did you mean `users`?"),
        ("out/x", "cannot tell the output's format"),
        ("out/x.gz", "cannot tell the output's format"),
        ("out/x.parquet.gz", "a name that ends in `.gz` is not one of parquet"),
    ] {
        let spec = SinkSpec { overwrite: true, ..template(&temp, url) };
        let error = user_message(run(&spec, &[flights()], 1 << 20).unwrap_err());
        let error = error.replace(&format!("{}/", temp.path().display()), "");
        assert!(error.contains(expected), "{url}: {error}");
        assert_eq!(read_tree(temp.path()), before, "{url}");
    }
    let spec = SinkSpec::new("gs://bucket/x.csv");
    assert!(user_message(run(&spec, &[flights()], 1 << 20).unwrap_err()).contains("`gs://`"));
}

#[test]
fn a_symbolic_link_is_written_through() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real/data.csv", temp.path().join("link.csv")).unwrap();
    let spec = template(&temp, "link.csv");
    // The link points to nothing yet.
    run(&spec, &[flights()], 1 << 20).unwrap();
    assert!(temp.path().join("link.csv").is_symlink());
    assert!(temp.path().join("real/data.csv").is_file());
    let again = run(&spec, &[flights()], 1 << 20);
    assert!(matches!(again, Err(Error::OutputExists { .. })), "{again:?}");
    run(&SinkSpec { overwrite: true, ..spec }, &[flights()], 1 << 20).unwrap();
    assert!(temp.path().join("link.csv").is_symlink());
}

#[test]
fn devices_and_pipes_are_written_directly() {
    let temp = tempfile::tempdir().unwrap();
    let spec = SinkSpec { format: Some(OutputFormat::Csv), ..SinkSpec::new("/dev/null") };
    let written = run(&spec, &[flights()], 1 << 20).unwrap();
    assert_eq!((written.files, written.rows), (0, 4));
    let pipe = temp.path().join("pipe.csv");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    run(&template(&temp, "pipe.csv"), &[flights()], 1 << 20).unwrap();
    assert_eq!(reader.join().unwrap(), text(OutputFormat::Csv, None, &flights()));
}

#[test]
fn a_description_says_what_would_be_written_and_writes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let schema = flights().schema();
    for (url, expected) in [
        ("-", "csv to standard output"),
        ("out/x.json", "one json file, `out/x.json`"),
        (
            "out/{state}/{day}.parquet",
            "one parquet file for each `state`, `day`, `out/{state}/{day}.parquet`",
        ),
    ] {
        assert_eq!(describe_output(&SinkSpec::new(url), &schema).unwrap().to_string(), expected);
    }
    assert!(describe_output(&template(&temp, "out/{dya}.csv"), &schema).is_err());
    assert_eq!(read_tree(temp.path()), BTreeMap::new());
}

#[test]
fn a_sink_can_move_to_another_thread() {
    fn sendable<T: Send>() {}
    sendable::<Sink>();
    sendable::<RowWriter<Vec<u8>>>();
}

#[test]
fn closed_pipe_is_distinguished_from_failure() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for format in OutputFormat::BUILT_IN.iter().copied() {
        let result = stream(format, flights().schema(), None, Gone).and_then(|mut writer| {
            writer.write(&flights())?;
            writer.finish().map(|_| ())
        });
        let told = tidemill_base::Error::from(result.unwrap_err());
        assert!(matches!(told, tidemill_base::Error::ClosedPipe), "{format}: {told:?}");
    }
}
