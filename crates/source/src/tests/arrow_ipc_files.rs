//! Arrow IPC: files with a footer, and streams.

use std::io::Cursor;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array,
    Decimal128Array, Decimal256Array, DictionaryArray, DurationMillisecondArray,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, LargeBinaryArray, LargeListArray, LargeStringArray,
    ListArray, MapBuilder, NullArray, RunArray, StringArray, StringBuilder, StringViewArray,
    StructArray, Time32SecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt16Array, UInt64Array,
};
use arrow::datatypes::{Int32Type, Int64Type, i256};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::CompressionType;

use super::*;

/// A batch with a column of every type, with nulls. Values start at `from`.
fn batch_of_every_type(from: i64, rows: i64) -> RecordBatch {
    let numbers = || (from..from + rows).map(|n| (n % 5 != 3).then_some(n));
    let texts = || numbers().map(|n| n.map(|n| format!("{n} of a text that is not short at all")));
    let kinds: Int32Array = numbers().map(|n| n.map(|n| (n % 3) as i32)).collect();
    let categories = Arc::new(StringArray::from(vec!["red", "green", "blue"]));
    let items = || numbers().map(|n| n.map(|n| (0..n % 4).map(move |k| (k != 1).then_some(n + k))));
    let ends = Int32Array::from_iter_values(
        (1..=rows as i32).filter(|end| end % 2 == 1 || *end == rows as i32),
    );
    let runs = Int64Array::from_iter_values((0..ends.len() as i64).map(|n| from + n));
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for n in numbers() {
        for key in 0..n.unwrap_or(0) % 3 {
            map.keys().append_value(format!("k{key}"));
            map.values().append_option((key != 1).then_some("v"));
        }
        map.append(n.is_some()).unwrap();
    }
    let inner: [(Arc<Field>, ArrayRef); 2] = [
        (
            Arc::new(Field::new("deep", DataType::Utf8, true)),
            Arc::new(texts().collect::<StringArray>()),
        ),
        (
            Arc::new(Field::new("n", DataType::Int64, true)),
            Arc::new(numbers().collect::<Int64Array>()),
        ),
    ];
    let fixed = numbers().map(|n| n.map(|n| [n as u8, 1, 2]));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 3).unwrap();
    let pairs = numbers().map(|n| n.map(|n| [Some(n), None]));
    let bytes = || texts().map(|text| text.map(String::into_bytes));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(numbers().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>()) as _),
        ("i8", Arc::new(numbers().map(|n| n.map(|n| n as i8)).collect::<Int8Array>()) as ArrayRef),
        ("u16", Arc::new(numbers().map(|n| n.map(|n| n as u16)).collect::<UInt16Array>())),
        ("i64", Arc::new(numbers().collect::<Int64Array>())),
        ("u64", Arc::new(numbers().map(|n| n.map(|n| n as u64)).collect::<UInt64Array>())),
        ("f32", Arc::new(numbers().map(|n| n.map(|n| n as f32 / 4.0)).collect::<Float32Array>())),
        ("f64", Arc::new(numbers().map(|n| n.map(|n| n as f64 / 8.0)).collect::<Float64Array>())),
        ("d128", {
            let values: Decimal128Array = numbers().map(|n| n.map(i128::from)).collect();
            Arc::new(values.with_precision_and_scale(20, 3).unwrap())
        }),
        ("d256", {
            let values: Decimal256Array = numbers().map(|n| n.map(i256::from)).collect();
            Arc::new(values.with_precision_and_scale(50, 3).unwrap())
        }),
        ("text", Arc::new(texts().collect::<StringArray>())),
        ("large", Arc::new(texts().collect::<LargeStringArray>())),
        ("view", Arc::new(texts().collect::<StringViewArray>())),
        (
            "short",
            Arc::new(numbers().map(|n| n.map(|n| n.to_string())).collect::<StringViewArray>()),
        ),
        ("bytes", Arc::new(bytes().collect::<BinaryArray>())),
        ("large_bytes", Arc::new(bytes().collect::<LargeBinaryArray>())),
        ("view_bytes", Arc::new(bytes().collect::<BinaryViewArray>())),
        ("fixed", Arc::new(fixed)),
        ("date", Arc::new(numbers().map(|n| n.map(|n| n as i32)).collect::<Date32Array>())),
        ("date64", {
            Arc::new(numbers().map(|n| n.map(|n| n * 86_400_000)).collect::<Date64Array>())
        }),
        ("time", {
            Arc::new(
                numbers().map(|n| n.map(|n| (n % 86_400) as i32)).collect::<Time32SecondArray>(),
            )
        }),
        ("nanos", Arc::new(numbers().collect::<Time64NanosecondArray>())),
        ("stamp", Arc::new(numbers().collect::<TimestampMicrosecondArray>())),
        ("zoned", {
            let values: TimestampNanosecondArray = numbers().collect();
            Arc::new(values.with_timezone("Europe/Berlin"))
        }),
        ("duration", Arc::new(numbers().collect::<DurationMillisecondArray>())),
        ("interval", {
            let of = |n: i64| arrow::datatypes::IntervalMonthDayNano::new(n as i32, 1, n);
            Arc::new(numbers().map(|n| n.map(of)).collect::<IntervalMonthDayNanoArray>())
        }),
        ("kind", Arc::new(DictionaryArray::<Int32Type>::new(kinds, categories))),
        ("runs", Arc::new(RunArray::try_new(&ends, &runs).unwrap())),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(items()))),
        ("large_list", Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(items()))),
        ("pair", {
            Arc::new(FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(pairs, 2))
        }),
        ("struct", Arc::new(StructArray::from(inner.to_vec()))),
        ("map", Arc::new(map.finish())),
        ("nothing", Arc::new(NullArray::new(rows as usize))),
        ("last", Arc::new(Int64Array::from_iter_values(from..from + rows))),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn rows_as_text(batch: &RecordBatch) -> Rows {
    let options = arrow::util::display::FormatOptions::default().with_null("∅");
    let columns = batch.columns().iter().map(|column| {
        let format = arrow::util::display::ArrayFormatter::try_new(column, &options).unwrap();
        (0..column.len()).map(|row| format.value(row).to_string()).collect::<Vec<_>>()
    });
    let columns: Vec<Vec<String>> = columns.collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|c| c[row].clone()).collect()).collect()
}

fn options(compression: Option<CompressionType>) -> IpcWriteOptions {
    IpcWriteOptions::default().try_with_compression(compression).unwrap()
}

fn as_file(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let schema = batches[0].schema();
    let mut writer =
        FileWriter::try_new_with_options(Vec::new(), &schema, options(compression)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn as_stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let schema = batches[0].schema();
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &schema, options(compression)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

const KINDS: [Option<CompressionType>; 3] =
    [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];

fn read_all(source: &Arc<Source>, target: u64, options: &ReadOptions) -> Result<Rows> {
    let mut rows = Vec::new();
    for split in source.splits_with_target_bytes(target, &mut |_, _| true)? {
        for batch in source.read_split(&split, options)? {
            rows.extend(rows_as_text(&batch?));
        }
    }
    Ok(rows)
}

fn open_pipe(bytes: &[u8]) -> Result<Arc<Source>> {
    let spec = SourceSpec { url: "-".into(), format: Some(Format::Arrow), ..SourceSpec::default() };
    let input = Box::new(Cursor::new(bytes.to_vec()));
    Source::open_with_stdin(&spec, input, &CancelFlag::new()).map(Arc::new)
}

#[test]
fn batches_become_splits_and_columns_are_read_separately() {
    let sizes = [1, 0, 2000, 3, 9000, 1];
    let mut from = 0;
    let batches = sizes.map(|rows| {
        from += rows;
        batch_of_every_type(from - rows, rows)
    });
    let expected: Rows = batches.iter().flat_map(rows_as_text).collect();
    for compression in KINDS {
        for (name, bytes) in [
            ("a.arrow", as_file(&batches, compression)),
            ("a.arrows", as_stream(&batches, compression)),
        ] {
            let folder = folder(&[(name, &bytes)]);
            let source = open(&folder, name).unwrap();
            assert_eq!(source.format(), Format::Arrow);
            let splits = source.splits_with_target_bytes(1, &mut |_, _| true).unwrap();
            assert_eq!(splits.len(), if name == "a.arrow" { 6 } else { 1 });
            let progress = RunProgress::new();
            let options = ReadOptions { progress: progress.clone(), ..ReadOptions::default() };
            assert_eq!(read_all(&source, 1, &options).unwrap(), expected, "{name}");
            let bytes: u64 = splits.iter().map(|split| split.bytes).sum();
            assert_eq!((progress.rows_done(), progress.bytes_done()), (11_005, bytes));
            for column in 0..expected[0].len() {
                let projection = vec![column, expected[0].len() - 1 - column];
                let options =
                    ReadOptions { projection: Some(projection), ..ReadOptions::default() };
                let found = read_all(&source, 1 << 30, &options).unwrap();
                let wanted = expected
                    .iter()
                    .map(|row| vec![row[column].clone(), row[row.len() - 1 - column].clone()]);
                assert!(found.into_iter().eq(wanted), "{name}: {}", source.schema().field(column));
            }
            let options = ReadOptions { projection: Some(vec![]), ..ReadOptions::default() };
            assert_eq!(read_all(&source, 1, &options).unwrap().len(), 11_005);
        }
    }
}

#[test]
fn pipe_is_read_as_a_stream_or_as_the_stream_in_a_file() {
    let batches = [batch_of_every_type(0, 700), batch_of_every_type(700, 20)];
    let expected: Rows = batches.iter().flat_map(rows_as_text).collect();
    for compression in KINDS {
        for bytes in [as_file(&batches, compression), as_stream(&batches, compression)] {
            let source = open_pipe(&bytes).unwrap();
            assert_eq!(read_all(&source, 1, &ReadOptions::default()).unwrap(), expected);
            let cut = open_pipe(&bytes[..bytes.len() - 1]).unwrap();
            let error = message(read_all(&cut, 1, &ReadOptions::default()));
            assert!(error.contains("`standard input` is damaged at byte"), "{error}");
        }
    }
}

#[test]
fn files_and_streams_of_different_columns_are_one_table() {
    let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![1 << 40]));
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let keys = Int32Array::from(vec![0]);
    let kinds: ArrayRef =
        Arc::new(DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["k"]))));
    let one = as_file(&[batch(vec![("n", ints), ("word", words)])], None);
    let two = as_stream(&[batch(vec![("word", kinds), ("n", longs)])], None);
    let folder = folder(&[("1.arrow", &one), ("2.arrow", &two)]);
    let source = open(&folder, "*.arrow").unwrap();
    let expected = [("n".to_owned(), DataType::Int64), ("word".to_owned(), DataType::Utf8View)];
    assert_eq!(types(&source), expected);
    assert_eq!(source.layout_count(), 2);
    assert_eq!(rows(&source), text(&[&["1", "x"], &["2", "y"], &["1099511627776", "k"]]));
    let same =
        SourceSpec { layout_policy: Some(ColumnLayoutPolicy::Same), ..spec(&folder, "*.arrow") };
    let source = Source::open(&same).map(Arc::new);
    let error = message(source.and_then(|source| read_all(&source, 1, &ReadOptions::default())));
    assert!(error.contains("2.arrow` does not go with"), "{error}");
    let wide = SourceSpec {
        declared_schema: Some(Arc::new(Schema::new(vec![Field::new(
            "n",
            DataType::Float64,
            true,
        )]))),
        ..spec(&folder, "*.arrow")
    };
    let source = Arc::new(Source::open(&wide).unwrap());
    assert_eq!(rows(&source)[2][0], "1099511627776.0");
}

/// A batch small enough that every byte of its file or stream can be damaged.
fn small_batch() -> RecordBatch {
    let keys: Int32Array = [Some(0), None, Some(1)].into_iter().collect();
    let kinds = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["some", "kinds"])));
    let lists = [Some(vec![Some(1), None]), None, Some(vec![])];
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as ArrayRef),
        ("kind", Arc::new(kinds)),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ("view", Arc::new(StringViewArray::from(vec!["a text beyond twelve bytes", "b", ""]))),
    ])
    .unwrap()
}

#[test]
fn damaged_arrow_files_are_errors_and_never_panics() {
    for compression in KINDS {
        for whole in
            [as_file(&[small_batch()], compression), as_stream(&[small_batch()], compression)]
        {
            let folder = folder(&[("a.arrow", &whole)]);
            let path = folder.path().join("a.arrow");
            let read = || {
                let source = open(&folder, "a.arrow")?;
                read_all(&source, 1, &ReadOptions::default())
            };
            let expected = read().unwrap();
            // Every byte of one kind, and some of the others.
            let step = if compression.is_none() { 1 } else { 7 };
            for cut in (step..whole.len()).step_by(step) {
                std::fs::write(&path, &whole[..cut]).unwrap();
                let error = read().unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "cut at {cut}: {error:?}");
            }
            let mut refused = 0;
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= [0xff, 0x01, 0x80][at % 3];
                std::fs::write(&path, &bytes).unwrap();
                match read() {
                    // There are no checksums, so damage may change values and names.
                    Ok(rows) => assert!(rows.len() <= expected.len(), "{at}"),
                    Err(Error::Corrupt { .. } | Error::Usage { .. }) => refused += 1,
                    Err(other) => panic!("byte {at}: {other:?}"),
                }
            }
            assert!(refused > whole.len() / 8, "{refused} of {}", whole.len());
        }
    }
}

#[test]
fn a_length_that_the_file_does_not_justify_is_refused_before_it_is_reserved() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(1000)]));
    let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
    for compression in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        for whole in [
            as_file(std::slice::from_ref(&batch), Some(compression)),
            as_stream(std::slice::from_ref(&batch), Some(compression)),
        ] {
            let length = 1000_i64.to_le_bytes();
            let at = whole.windows(8).rposition(|window| window == length).unwrap();
            let mut forged = whole.clone();
            forged[at..at + 8].copy_from_slice(&(1_i64 << 60).to_le_bytes());
            let folder = folder(&[("a.arrow", &forged)]);
            let source = open(&folder, "a.arrow").unwrap();
            let error = message(read_all(&source, 1, &ReadOptions::default()));
            assert!(error.contains("is said to become 1152921504606846976 bytes"), "{error}");
        }
    }
}

#[test]
fn incomplete_streams_have_distinct_errors() {
    let stream = as_stream(&[small_batch()], None);
    let twice = [stream.clone(), stream.clone()].concat();
    let unended = &stream[..stream.len() - 8];
    for (bytes, expected) in [
        (&b"FEA1\0\0\0\0 and so on"[..], "begins like a Feather file of version 1"),
        (b"n,word\n1,x\n", "it is read as arrow and begins like text"),
        (b"\x01\x02\x03 and so on", "begins neither as an Arrow file nor as an Arrow stream"),
        (b"", "it is empty"),
        (&twice, "something follows its end mark"),
        (unended, "without the end mark of a stream"),
    ] {
        let folder = folder(&[("a.arrows", bytes)]);
        let read = open(&folder, "a.arrows")
            .and_then(|source| read_all(&source, 1, &ReadOptions::default()));
        let error = message(read);
        assert!(error.contains(expected) && error.contains("a.arrows"), "{error}");
    }
}

/// Arrow UUIDs, also in a list, and a repeated column name.
fn uuids() -> RecordBatch {
    let extension = [("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())];
    let uuid = |name: &str| {
        Field::new(name, DataType::FixedSizeBinary(16), true)
            .with_metadata(extension.clone().into())
    };
    let values = [Some([0xab; 16]), None, Some([1; 16])].into_iter();
    let values = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).unwrap();
    let item = Arc::new(uuid("item"));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([0, 2, 1]);
    let lists = ListArray::new(Arc::clone(&item), offsets, Arc::new(values.clone()), None);
    let fields = vec![
        uuid("u"),
        Field::new("n", DataType::Int64, true),
        Field::new("l", DataType::List(item), true),
        Field::new("n", DataType::Int64, true),
        // Bytes without the extension type.
        Field::new("f", DataType::FixedSizeBinary(16), true),
    ];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(values.clone()),
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(lists),
        Arc::new(Int64Array::from(vec![4, 5, 6])),
        Arc::new(values),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

#[test]
fn uuids_are_text_and_repeated_names_get_numbers() {
    let batch = uuids();
    let files = folder(&[
        ("a.arrow", &as_file(std::slice::from_ref(&batch), None)),
        ("a.arrows", &as_stream(std::slice::from_ref(&batch), None)),
    ]);
    let given = SourceSpec {
        url: "df".into(),
        memory_rows: Some(Arc::new(MemoryRows::from_table(batch.schema(), vec![batch]))),
        ..SourceSpec::default()
    };
    let (one, other) = (
        "abababab-abab-abab-abab-abababababab".to_owned(),
        "01010101-0101-0101-0101-010101010101".to_owned(),
    );
    let lists = ["[]".to_owned(), format!("[{one}, ∅]"), format!("[{other}]")];
    for source in [spec(&files, "a.arrow"), spec(&files, "a.arrows"), given] {
        let source = Arc::new(Source::open(&source).unwrap());
        let kinds: Vec<_> = types(&source).into_iter().map(|(name, _)| name).collect();
        assert_eq!(kinds, ["u", "n", "l", "n_1", "f"]);
        assert_eq!(source.schema().field(0).data_type(), &DataType::Utf8View);
        assert_eq!(source.schema().field(4).data_type(), &DataType::FixedSizeBinary(16));
        // A projection in another order.
        let options = ReadOptions { projection: Some(vec![3, 0, 2]), ..ReadOptions::default() };
        let rows = read_all(&source, 1 << 20, &options).unwrap();
        let expected = [
            ["4", one.as_str(), lists[0].as_str()],
            ["5", "∅", lists[1].as_str()],
            ["6", other.as_str(), lists[2].as_str()],
        ];
        assert_eq!(rows, expected);
        let told = source.warning().unwrap();
        assert!(told.contains("of columns of one name the second `n` is `n_1`"), "{told}");
    }
}

#[test]
fn row_count_of_a_batch_is_checked_against_its_first_column() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7; 5]));
    let batch = RecordBatch::try_from_iter([("n", values)]).unwrap();
    let options = ReadOptions { projection: Some(vec![]), ..ReadOptions::default() };
    let count = |source: &Arc<Source>| -> Result<u64> {
        let mut rows = 0;
        for split in source.splits()? {
            for batch in source.read_split(&split, &options)? {
                rows += batch?.num_rows() as u64;
            }
        }
        Ok(rows)
    };
    for bytes in
        [as_file(std::slice::from_ref(&batch), None), as_stream(std::slice::from_ref(&batch), None)]
    {
        let (mut refused, five) = (0, 5_i64.to_le_bytes());
        for at in (0..bytes.len() - 8).filter(|at| bytes[*at..at + 8] == five) {
            let mut changed = bytes.clone();
            changed[at] = 6;
            let files = folder(&[("a.arrow", &changed)]);
            match open(&files, "a.arrow").and_then(|source| count(&source)) {
                Ok(rows) => assert_eq!(rows, 5, "byte {at}"),
                Err(Error::Corrupt { .. }) => refused += 1,
                Err(other) => panic!("byte {at}: {other:?}"),
            }
        }
        assert!(refused >= 2, "{refused}");
    }
}
