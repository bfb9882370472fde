//! Parquet files with types, statistics and footers that only other programs write.

use arrow::array::{AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{IntervalMonthDayNano, IntervalUnit, TimeUnit};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
    Int96, Int96Type,
};
use parquet::file::metadata::{
    KeyValue, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader,
    ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::*;

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

const TAIL_BYTES: usize = 8;

/// Writes a file; `write` fills each row group and gets its index.
fn write_file_with(
    properties: WriterPropertiesBuilder,
    message: &str,
    groups: usize,
    mut write: impl FnMut(&mut Group<'_>, usize),
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(message).unwrap());
    let properties = Arc::new(properties.build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for index in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        write(&mut group, index);
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn write_file(message: &str, write: impl FnMut(&mut Group<'_>, usize)) -> Vec<u8> {
    write_file_with(WriterProperties::builder(), message, 1, write)
}

/// Writes the next column: its non-null values, and the definition level of each row.
fn column<T: parquet::data_type::DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, levels, None).unwrap();
    column.close().unwrap();
}

fn footer_start(bytes: &[u8]) -> usize {
    let end = bytes.len() - TAIL_BYTES;
    let length: [u8; 4] = bytes[end..end + 4].try_into().unwrap();
    end - u32::from_le_bytes(length) as usize
}

/// Replaces the footer of a file.
fn with_footer(
    bytes: &[u8],
    change: impl FnOnce(ParquetMetaDataBuilder, Vec<RowGroupMetaData>) -> ParquetMetaData,
) -> Vec<u8> {
    let start = footer_start(bytes);
    let footer = &bytes[start..bytes.len() - TAIL_BYTES];
    let mut builder = ParquetMetaDataReader::decode_metadata(footer).unwrap().into_builder();
    let groups = builder.take_row_groups();
    let changed = change(builder, groups);
    let mut file = bytes[..start].to_vec();
    ParquetMetaDataWriter::new(&mut file, &changed).finish().unwrap();
    file
}

/// Changes the row count of a row group and the value counts of its columns.
fn with_counts(bytes: &[u8], group: usize, rows: i64, values: i64) -> Vec<u8> {
    with_footer(bytes, |builder, mut groups| {
        let mut changed = groups[group].clone().into_builder().set_num_rows(rows);
        let columns = changed.take_columns().into_iter();
        let columns = columns.map(|it| it.into_builder().set_num_values(values).build().unwrap());
        groups[group] = changed.set_column_metadata(columns.collect()).build().unwrap();
        builder.set_row_groups(groups).build()
    })
}

/// Changes the total row count of a file with less than 64 rows.
fn with_total(bytes: &[u8], total: u8) -> Vec<u8> {
    let (start, mut file) = (footer_start(bytes), bytes.to_vec());
    let metadata = ParquetMetaDataReader::decode_metadata(&bytes[start..bytes.len() - TAIL_BYTES]);
    let rows = metadata.unwrap().file_metadata().num_rows();
    // The field with id 3, followed by the list of row groups.
    let rows = 2 * u8::try_from(rows).unwrap();
    let place = bytes[start..].windows(3).position(|bytes| bytes == [0x16, rows, 0x19]).unwrap();
    file[start + place + 1] = 2 * total;
    file
}

fn int96(day: i32, nanos: i64) -> Int96 {
    let mut value = Int96::new();
    value.set_data(nanos as u32, (nanos >> 32) as u32, day as u32);
    value
}

fn rows_in(folder: &tempfile::TempDir, name: &str) -> Rows {
    read_all(&open(folder, name).unwrap()).unwrap()
}

fn read_all(source: &Arc<Source>) -> Result<Rows> {
    read(source, 1 << 20, &ReadOptions::default()).map(|(rows, _)| rows)
}

/// Reads all rows of a file, or returns the error message.
fn outcome(bytes: &[u8]) -> std::result::Result<Rows, String> {
    let folder = folder(&[("a.parquet", bytes)]);
    open(&folder, "a.parquet").and_then(|source| read_all(&source)).map_err(user_message)
}

/// Counts the rows of a file without reading a column.
fn count(bytes: &[u8]) -> std::result::Result<u64, String> {
    let folder = folder(&[("a.parquet", bytes)]);
    count_of(&folder, Some(vec![])).map_err(user_message)
}

/// Counts the rows of `a.parquet`, reading the columns of a projection.
fn count_of(folder: &tempfile::TempDir, projection: Option<Vec<usize>>) -> Result<u64> {
    let source = open(folder, "a.parquet")?;
    let mut rows = 0;
    let options = ReadOptions { projection, ..ReadOptions::default() };
    for split in source.splits()? {
        for batch in source.read_split(&split, &options)? {
            rows += batch?.num_rows() as u64;
        }
    }
    Ok(rows)
}

fn check_refused(outcome: std::result::Result<impl std::fmt::Debug, String>, parts: &[&str]) {
    let told = outcome.unwrap_err();
    for part in parts {
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
}

fn text(value: &str) -> ByteArray {
    ByteArray::from(value)
}

const TIMES: &str = "message m { OPTIONAL INT96 t; }";

fn times(values: &[Int96], levels: &[i16]) -> Vec<u8> {
    write_file(TIMES, |group, _| column::<Int96Type>(group, values, Some(levels)))
}

#[test]
fn int96_is_read_in_microseconds_without_overflow() {
    let second = 1_000_000_000;
    let values = [
        int96(5_373_484, (23 * 3600 + 59 * 60 + 59) * second + 999_999_000),
        int96(1_721_426, 0),
        int96(2_440_588, 1000),
        int96(2_440_587, 86_399 * second),
        // A negative time of day, and one beyond the end of the day.
        int96(2_440_588, -second),
        int96(2_440_588, 90_000 * second),
    ];
    let levels = [1, 0, 1, 1, 1, 1, 1];
    let expected = [
        "9999-12-31T23:59:59.999999",
        "∅",
        "0001-01-01T00:00:00",
        "1970-01-01T00:00:00.000001",
        "1969-12-31T23:59:59",
        "1969-12-31T23:59:59",
        "1970-01-02T01:00:00",
    ];
    for has_dictionary in [true, false] {
        let properties = WriterProperties::builder().set_dictionary_enabled(has_dictionary);
        let bytes = write_file_with(properties, TIMES, 3, |group, _| {
            column::<Int96Type>(group, &values, Some(&levels));
        });
        let folder = folder(&[("a.parquet", &bytes)]);
        let source = open(&folder, "a.parquet").unwrap();
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(types(&source), [("t".to_owned(), micros)]);
        let rows: Vec<String> = read_all(&source).unwrap().concat();
        assert_eq!(rows, [expected, expected, expected].concat());
    }
}

#[test]
fn wrapped_years_of_spark_are_restored() {
    // 290000-12-30T23:00:00, which Arrow cannot format.
    let bytes = times(&[int96(-105_862_232, -32_509_551_616_000)], &[1]);
    let folder = folder(&[("a.parquet", &bytes)]);
    let source = open(&folder, "a.parquet").unwrap();
    let split = source.splits().unwrap().remove(0);
    let batch =
        source.read_split(&split, &ReadOptions::default()).unwrap().next().unwrap().unwrap();
    let values = batch.column(0).as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
    assert_eq!(values.value(0), 9_089_380_393_200_000_000);
}

#[test]
fn int96_in_nested_columns_is_converted() {
    let message = "message m {
        REQUIRED GROUP s { OPTIONAL INT96 t; }
        REQUIRED GROUP l (LIST) { REPEATED GROUP list { OPTIONAL INT96 element; } }
        REQUIRED GROUP m (MAP) { REPEATED GROUP key_value {
            REQUIRED BYTE_ARRAY key (STRING); OPTIONAL INT96 value; } }
    }";
    let bytes = write_file(message, |group, _| {
        let far = int96(5_373_484, 0);
        column::<Int96Type>(group, &[far], Some(&[1]));
        let mut list = group.next_column().unwrap().unwrap();
        let items = list.typed::<Int96Type>();
        items.write_batch(&[far, far], Some(&[2, 1, 2]), Some(&[0, 1, 1])).unwrap();
        list.close().unwrap();
        let mut keys = group.next_column().unwrap().unwrap();
        keys.typed::<ByteArrayType>().write_batch(&[text("k")], Some(&[1]), Some(&[0])).unwrap();
        keys.close().unwrap();
        let mut values = group.next_column().unwrap().unwrap();
        values.typed::<Int96Type>().write_batch(&[far], Some(&[2]), Some(&[0])).unwrap();
        values.close().unwrap();
    });
    let day = "9999-12-31T00:00:00";
    let expected = [format!("{{t: {day}}}"), format!("[{day}, ∅, {day}]"), format!("{{k: {day}}}")];
    assert_eq!(outcome(&bytes).unwrap(), [expected]);
}

/// Writes times in a unit of Parquet, one per row group, at several depths. The Arrow schema has the type `arrow`,
/// whose unit may differ.
fn zoned_times(unit: &str, ticks: &[i64], arrow: &DataType) -> Vec<u8> {
    let stored = format!("INT64 {{}} (TIMESTAMP({unit}, true))");
    let leaf = |name: &str| stored.replace("{}", name);
    let message = format!(
        "message m {{
            OPTIONAL {};
            REQUIRED GROUP s {{ REQUIRED {}; OPTIONAL GROUP i {{ OPTIONAL {}; }} }}
            REQUIRED GROUP l (LIST) {{ REPEATED GROUP list {{ OPTIONAL {}; }} }}
            REQUIRED GROUP m (MAP) {{ REPEATED GROUP key_value {{
                REQUIRED BYTE_ARRAY key (STRING); OPTIONAL {}; }} }}
            REQUIRED {};
        }}",
        leaf("t"),
        leaf("t"),
        leaf("t"),
        leaf("element"),
        leaf("value"),
        leaf("d"),
    );
    let field = |name: &str, data_type: &DataType, is_nullable| {
        Arc::new(Field::new(name, data_type.clone(), is_nullable))
    };
    let inner = DataType::Struct(vec![field("t", arrow, true)].into());
    let outer = DataType::Struct(vec![field("t", arrow, false), field("i", &inner, true)].into());
    let pair = vec![field("key", &DataType::Utf8, false), field("value", arrow, true)];
    let entries = field("key_value", &DataType::Struct(pair.into()), false);
    let hint = Schema::new(vec![
        field("t", arrow, true),
        field("s", &outer, false),
        field("l", &DataType::List(field("element", arrow, true)), false),
        field("m", &DataType::Map(entries, false), false),
        field(
            "d",
            &DataType::Dictionary(Box::new(DataType::Int32), Box::new(arrow.clone())),
            false,
        ),
    ]);
    let hint = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&hint));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![hint]));
    write_file_with(properties, &message, ticks.len(), |group, index| {
        let tick = ticks[index];
        column::<Int64Type>(group, &[tick], Some(&[1]));
        column::<Int64Type>(group, &[tick], None);
        column::<Int64Type>(group, &[tick], Some(&[2]));
        let mut list = group.next_column().unwrap().unwrap();
        let items = list.typed::<Int64Type>();
        items.write_batch(&[tick, tick], Some(&[2, 2]), Some(&[0, 1])).unwrap();
        list.close().unwrap();
        let mut keys = group.next_column().unwrap().unwrap();
        keys.typed::<ByteArrayType>().write_batch(&[text("k")], Some(&[1]), Some(&[0])).unwrap();
        keys.close().unwrap();
        let mut values = group.next_column().unwrap().unwrap();
        values.typed::<Int64Type>().write_batch(&[tick], Some(&[2]), Some(&[0])).unwrap();
        values.close().unwrap();
        column::<Int64Type>(group, &[tick], None);
    })
}

#[test]
fn time_zone_of_the_arrow_schema_is_kept_in_every_unit() {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let second = 1_767_225_600;
    let shown = "2025-12-31T19:00:00-05:00";
    for (name, unit, per_second) in [
        ("MILLIS", Millisecond, 1_000),
        ("MICROS", Microsecond, 1_000_000),
        ("NANOS", Nanosecond, 1_000_000_000),
    ] {
        let ticks = [second * per_second, (second + 3600) * per_second];
        for arrow in [Second, Millisecond, Microsecond, Nanosecond] {
            let arrow = DataType::Timestamp(arrow, Some("America/New_York".into()));
            let bytes = zoned_times(name, &ticks, &arrow);
            let folder = folder(&[("a.parquet", &bytes)]);
            let source = open(&folder, "a.parquet").unwrap();
            let kind = DataType::Timestamp(unit, Some("America/New_York".into()));
            let fields = source.schema().fields().clone();
            assert_eq!(fields[0].data_type(), &kind, "{name} {arrow}");
            for field in &fields[1..4] {
                let found = field.data_type().to_string();
                assert!(found.contains("America/New_York") && !found.contains("UTC"), "{found}");
            }
            let rows = read_all(&source).unwrap();
            let expected = [
                shown.to_owned(),
                format!("{{t: {shown}, i: {{t: {shown}}}}}"),
                format!("[{shown}, {shown}]"),
                format!("{{k: {shown}}}"),
                shown.to_owned(),
            ];
            assert_eq!(rows[0], expected, "{name} {arrow}");
            assert!(rows[1][0].starts_with("2025-12-31T20:00:00"), "{:?}", rows[1]);
            // The bounds of row groups are instants in the unit of the file.
            let metadata = source.parquet_metadata(0).unwrap();
            let own = metadata.file_metadata().schema_descr();
            let converter = StatisticsConverter::try_new("t", source.schema(), own).unwrap();
            let least = converter.row_group_mins(metadata.row_groups()).unwrap();
            assert_eq!(least.data_type(), &kind);
            let least = arrow::compute::cast(&least, &DataType::Int64).unwrap();
            assert_eq!(least.as_primitive::<arrow::datatypes::Int64Type>().values(), &ticks);
        }
        // A naive type of the Arrow schema does not make naive times of instants.
        let bytes = zoned_times(name, &ticks, &DataType::Timestamp(Second, None));
        let folder = folder(&[("a.parquet", &bytes)]);
        let source = open(&folder, "a.parquet").unwrap();
        let utc = DataType::Timestamp(unit, Some("UTC".into()));
        assert_eq!(source.schema().field(0).data_type(), &utc);
    }
}

#[test]
fn int96_out_of_range_is_an_error_that_names_the_row() {
    let bytes = times(&[int96(2_440_588, 0), int96(i32::MAX, 0)], &[1, 0, 1]);
    check_refused(outcome(&bytes), &["a.parquet`", "column `t`, row 3", "2147483647", "hint: "]);
    // The Arrow schema asks for nanoseconds.
    let hint =
        Schema::new(vec![Field::new("t", DataType::Timestamp(TimeUnit::Nanosecond, None), true)]);
    let hint = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&hint));
    let with_hint = |values: &[Int96]| {
        let properties =
            WriterProperties::builder().set_key_value_metadata(Some(vec![hint.clone()]));
        write_file_with(properties, TIMES, 1, |group, _| {
            column::<Int96Type>(group, values, Some(&vec![1; values.len()]));
        })
    };
    let (first, last) = (763_145_224_192, 85_636_854_775_807);
    let ends = with_hint(&[int96(2_333_836, first), int96(2_547_339, last)]);
    let expected = [["1677-09-21T00:12:43.145224192"], ["2262-04-11T23:47:16.854775807"]];
    assert_eq!(outcome(&ends).unwrap(), expected);
    for beyond in [int96(2_333_836, first - 1), int96(2_547_339, last + 1)] {
        check_refused(outcome(&with_hint(&[beyond])), &["column `t`, row 1", "no TIMESTAMP"]);
    }
    let exact = with_hint(&[int96(2_440_588, 1)]);
    assert_eq!(outcome(&exact).unwrap(), [["1970-01-01T00:00:00.000000001"]]);
    check_refused(
        outcome(&with_hint(&[int96(5_373_484, 0)])),
        &["column `t`, row 1", "Julian day 5373484", "no TIMESTAMP"],
    );
}

#[test]
fn int96_with_nanoseconds_needs_a_schema() {
    let bytes = times(&[int96(2_440_588, 1_234_567)], &[1]);
    check_refused(
        outcome(&bytes),
        &["column `t`, row 1", "more digits than TIMESTAMP(6)", "--schema 't TIMESTAMP' reads"],
    );
    let folder = folder(&[("a.parquet", &bytes)]);
    for (unit, expected) in [
        (TimeUnit::Nanosecond, "1970-01-01T00:00:00.001234567"),
        (TimeUnit::Microsecond, "1970-01-01T00:00:00.001234"),
    ] {
        let mut wanted = spec(&folder, "a.parquet");
        let field = Field::new("t", DataType::Timestamp(unit, None), true);
        wanted.declared_schema = Some(Arc::new(Schema::new(vec![field])));
        let source = Arc::new(Source::open(&wanted).unwrap());
        assert_eq!(read_all(&source).unwrap(), [[expected]]);
    }
}

fn bytes_of(parts: &[u32]) -> FixedLenByteArray {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    ByteArray::from(bytes).into()
}

const SPANS: &str = "message m { OPTIONAL FIXED_LEN_BYTE_ARRAY (12) i (INTERVAL); }";

#[test]
fn interval_keeps_months_days_and_milliseconds() {
    let parts = [[1, 0, 0], [0, 30, 0], [14, 3, 5000], [0, 0, u32::MAX], [0, 0, 0]];
    let values: Vec<_> = parts.iter().map(|parts| bytes_of(parts)).collect();
    let bytes = write_file(SPANS, |group, _| {
        column::<FixedLenByteArrayType>(group, &values, Some(&[1, 1, 1, 1, 1, 0]));
    });
    let folder = folder(&[("a.parquet", &bytes)]);
    let source = open(&folder, "a.parquet").unwrap();
    let kind = DataType::Interval(IntervalUnit::MonthDayNano);
    assert_eq!(types(&source), [("i".to_owned(), kind)]);
    let split = source.splits().unwrap().remove(0);
    let batch =
        source.read_split(&split, &ReadOptions::default()).unwrap().next().unwrap().unwrap();
    let found: &IntervalMonthDayNanoArray = batch.column(0).as_primitive();
    let expected = parts.iter().map(|[months, days, millis]| {
        let nanoseconds = i64::from(*millis) * 1_000_000;
        Some(IntervalMonthDayNano { months: *months as i32, days: *days as i32, nanoseconds })
    });
    let expected: Vec<_> = expected.chain([None]).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    for parts in [[u32::MAX, 0, 0], [0, 1 << 31, 0]] {
        let bytes = write_file(SPANS, |group, _| {
            column::<FixedLenByteArrayType>(group, &[bytes_of(&parts)], Some(&[1]));
        });
        check_refused(outcome(&bytes), &["column `i`, row 1", "more than 2147483647"]);
    }
}

#[test]
fn uuid_is_text_with_text_bounds() {
    let message = "message m { REQUIRED FIXED_LEN_BYTE_ARRAY (16) u (UUID); }";
    let uuid = |first: u8| -> FixedLenByteArray {
        let bytes: Vec<u8> = (0..16).map(|at| if at == 0 { first } else { 0xa0 + at }).collect();
        ByteArray::from(bytes).into()
    };
    let bytes = write_file(message, |group, _| {
        column::<FixedLenByteArrayType>(group, &[uuid(0xff), uuid(0x01)], None);
    });
    let rest = "a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";
    let (least, greatest) = (format!("01{rest}"), format!("ff{rest}"));
    let folder = folder(&[("a.parquet", &bytes)]);
    let source = open(&folder, "a.parquet").unwrap();
    assert_eq!(types(&source), [("u".to_owned(), DataType::Utf8View)]);
    assert_eq!(rows_in(&folder, "a.parquet"), [[greatest.clone()], [least.clone()]]);
    assert_eq!(bounds(&source), [Some((least.clone().into_bytes(), greatest.into_bytes()))]);
    // Pruning converts them to the shown type.
    let Some(FileColumn::OwnColumn { schema, keeps_order: true }) = source.file_column(0, 0) else {
        panic!("no statistics")
    };
    let metadata = source.parquet_metadata(0).unwrap();
    let own = metadata.file_metadata().schema_descr();
    let converter = StatisticsConverter::try_new("u", schema, own).unwrap();
    let found = converter.row_group_mins(metadata.row_groups()).unwrap();
    assert_eq!(found.as_string_view().value(0), least);
}

#[test]
fn enum_is_text() {
    let message = "message m {
        REQUIRED BYTE_ARRAY e (ENUM); REQUIRED BYTE_ARRAY b;
        REQUIRED GROUP m (MAP) { REPEATED GROUP key_value {
            REQUIRED BYTE_ARRAY key (ENUM); OPTIONAL BYTE_ARRAY value (ENUM); } }
    }";
    let bytes = write_file(message, |group, _| {
        column::<ByteArrayType>(group, &[text("RED")], None);
        column::<ByteArrayType>(group, &[text("RED")], None);
        for (value, level) in [("k", 1), ("v", 2)] {
            let mut column = group.next_column().unwrap().unwrap();
            let values = column.typed::<ByteArrayType>();
            values.write_batch(&[text(value)], Some(&[level]), Some(&[0])).unwrap();
            column.close().unwrap();
        }
    });
    let folder = folder(&[("a.parquet", &bytes)]);
    let source = open(&folder, "a.parquet").unwrap();
    let kinds: Vec<DataType> = types(&source).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds[..2], [DataType::Utf8View, DataType::BinaryView]);
    assert_eq!(rows_in(&folder, "a.parquet"), [["RED", "RED", "{k: v}"]]);
    assert_eq!(bounds(&source)[0], Some((b"RED".to_vec(), b"RED".to_vec())));
}

const NUMBERS: &str = "message m { REQUIRED INT32 n; }";

fn numbers(groups: usize) -> Vec<u8> {
    let properties = WriterProperties::builder();
    write_file_with(properties, NUMBERS, groups, |group, index| {
        let values: Vec<i32> = (0..6).map(|n| n + 6 * index as i32).collect();
        column::<Int32Type>(group, &values, None);
    })
}

#[test]
fn total_row_count_of_zero_is_replaced() {
    let bytes = numbers(2);
    let expected = outcome(&bytes).unwrap();
    assert_eq!(expected.len(), 12);
    let none = with_total(&bytes, 0);
    assert_eq!(outcome(&none).unwrap(), expected);
    assert_eq!(count(&none), Ok(12));
}

#[test]
fn contradictory_counts_are_an_error() {
    let bytes = numbers(2);
    for (changed, said) in [
        (with_total(&bytes, 11), "it has 11 rows, and its row groups have 12"),
        (with_total(&bytes, 13), "it has 13 rows, and its row groups have 12"),
        (with_counts(&bytes, 1, 7, 6), "row group 1 has 7 rows, and 6 values of column `n`"),
        (with_counts(&bytes, 1, 5, 6), "row group 1 has 5 rows, and 6 values of column `n`"),
        (with_counts(&bytes, 0, -6, -6), "row group 0 has -6 rows"),
    ] {
        check_refused(outcome(&changed), &["a.parquet` is damaged", "contradicts itself", said]);
        check_refused(count(&changed), &["contradicts itself", said]);
    }
}

#[test]
fn column_order_that_is_an_empty_union_is_an_unknown_one() {
    let bytes = numbers(2);
    let (start, end) = (footer_start(&bytes), bytes.len() - TAIL_BYTES);
    // The last field: a list of one union, whose field is an empty struct.
    let (known, empty) = ([0x19, 0x1c, 0x1c, 0, 0, 0], [0x19, 0x1c, 0, 0]);
    let footer = bytes[start..end].strip_suffix(&known).unwrap();
    let footer = [footer, &empty].concat();
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    let changed = [&bytes[..start], &footer, &length, b"PAR1"].concat();
    assert_eq!(outcome(&changed), outcome(&bytes));
    assert_eq!(count(&changed), count(&bytes));
}

#[test]
fn row_count_of_pages_is_checked_against_the_footer() {
    let bytes = numbers(2);
    for (changed, found, expected) in
        [(with_counts(&bytes, 1, 9, 9), 12, 15), (with_counts(&bytes, 1, 4, 4), 12, 10)]
    {
        check_refused(outcome(&changed), &["its pages have", "its footer says"]);
        // All row groups in one split.
        let folder = folder(&[("a.parquet", &changed)]);
        let source = open(&folder, "a.parquet").unwrap();
        let told = message(read(&source, u64::MAX, &ReadOptions::default()));
        assert!(told.contains(&format!("its pages have {found} rows from row 1")), "{told}");
        assert!(told.contains(&format!("its footer says {expected}")), "{told}");
        check_refused(count(&changed), &["row group 1 has 6 rows in the pages of column `n`"]);
    }
    assert_eq!(count(&bytes), Ok(12));
}

#[test]
fn row_count_is_checked_when_predicates_are_read_first() {
    use tidemill_text::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
    let message_type = "message m { REQUIRED INT64 n; REQUIRED INT64 v; }";
    let bytes = write_file(message_type, |group, _| {
        column::<Int64Type>(group, &(0..40_000).collect::<Vec<_>>(), None);
        column::<Int64Type>(group, &(0..40_000).collect::<Vec<_>>(), None);
    });
    let more = with_counts(&bytes, 0, 50_000, 50_000);
    let folder = folder(&[("a.parquet", &more)]);
    let source = open(&folder, "a.parquet").unwrap();
    let test = ValueCondition::Comparison(ComparisonOperator::Equal, PredicateConstant::Int(7));
    let options = ReadOptions {
        predicates: vec![Predicate { column: 0, condition: test }],
        ..ReadOptions::default()
    };
    let split = source.splits_with_target_bytes(u64::MAX, &mut |_, _| true).unwrap().remove(0);
    let read = |split: &Split| source.read_split(split, &options)?.collect::<Result<Vec<_>>>();
    let told = message(read(&split));
    assert!(told.contains("its pages have 40000 rows from row 1 on"), "{told}");
}

#[test]
fn dictionary_offset_of_zero_is_ignored() {
    let bytes = with_footer(&numbers(1), |builder, mut groups| {
        let chunk = &mut groups[0].columns_mut()[0];
        let start = chunk.dictionary_page_offset().unwrap();
        let changed = chunk.clone().into_builder().set_dictionary_page_offset(Some(0));
        *chunk = changed.set_data_page_offset(start).build().unwrap();
        builder.set_row_groups(groups).build()
    });
    assert_eq!(outcome(&bytes).unwrap().concat(), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(count(&bytes), Ok(6));
}

#[test]
fn description_of_other_files_is_refused() {
    let bytes = numbers(1);
    let with_path = with_footer(&bytes, |builder, mut groups| {
        let chunk = &mut groups[0].columns_mut()[0];
        let changed = chunk.clone().into_builder().set_file_path("part.0.parquet".to_owned());
        *chunk = changed.build().unwrap();
        builder.set_row_groups(groups).build()
    });
    // A path alone does not matter if the data is there.
    assert_eq!(outcome(&with_path), outcome(&bytes));
    let description = [b"PAR1", &with_path[footer_start(&with_path)..]].concat();
    check_refused(
        outcome(&description),
        &["a.parquet` describes other files and has no rows itself", "`part.0.parquet`"],
    );
}

#[test]
fn repeated_column_names_get_numbers() {
    let message = "message m { REQUIRED INT32 a; REQUIRED INT32 b; REQUIRED INT32 a;
        REQUIRED INT32 a_1; REQUIRED INT96 a; }";
    let bytes = write_file(message, |group, _| {
        for n in 0..4 {
            column::<Int32Type>(group, &[n], None);
        }
        column::<Int96Type>(group, &[int96(2_440_588, 0)], None);
    });
    let folder = folder(&[("a.parquet", &bytes), ("b.parquet", &bytes)]);
    let source = open(&folder, "*.parquet").unwrap();
    let names: Vec<&str> = source.schema().fields().iter().map(|it| it.name().as_str()).collect();
    assert_eq!(names, ["a", "b", "a_2", "a_1", "a_3"]);
    let row = ["0", "1", "2", "3", "1970-01-01T00:00:00"].map(str::to_owned);
    assert_eq!(read_all(&source).unwrap(), [row.clone(), row]);
    let told = source.warning().unwrap();
    assert!(told.contains("a.parquet`: of columns of one name the second `a` is `a_2`"), "{told}");
}

#[test]
fn encrypted_footer_is_refused() {
    let mut bytes = numbers(1);
    bytes.truncate(bytes.len() - 4);
    bytes.extend_from_slice(b"PARE");
    check_refused(
        outcome(&bytes),
        &["a.parquet` cannot be read: its footer is encrypted", "without encryption"],
    );
}

/// A file whose Arrow schema states the width of its second column.
fn with_hint_bits(bits: u8) -> Vec<u8> {
    let hint = Schema::new(vec![
        Field::new("k", DataType::Int32, false),
        Field::new("n", DataType::Int64, false),
    ]);
    let hint =
        base64::Engine::decode(&base64::prelude::BASE64_STANDARD, encode_arrow_schema(&hint));
    let mut hint = hint.unwrap();
    let place = hint.windows(4).position(|bytes| bytes == [64, 0, 0, 0]).unwrap();
    hint[place] = bits;
    let hint = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, hint);
    let hint = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), hint);
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![hint]));
    write_file_with(
        properties,
        "message m { REQUIRED INT32 k; REQUIRED INT64 n; }",
        1,
        |group, _| {
            column::<Int32Type>(group, &[1], None);
            column::<Int64Type>(group, &[2], None);
        },
    )
}

#[test]
fn integers_of_128_bits_are_refused() {
    assert_eq!(outcome(&with_hint_bits(64)).unwrap(), [["1", "2"]]);
    check_refused(
        outcome(&with_hint_bits(128)),
        &["a.parquet` cannot be read: column `n` is of integers of 128 bits", "DECIMAL(38, 0)"],
    );
}

#[test]
fn malformed_arrow_schema_is_ignored() {
    for hint in ["", "AAAA", "no base64", "/////wAAAAA="] {
        let hint = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), hint.to_owned());
        let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![hint]));
        let bytes = write_file_with(properties, NUMBERS, 1, |group, _| {
            column::<Int32Type>(group, &[7], None);
        });
        assert_eq!(outcome(&bytes).unwrap(), [["7"]]);
    }
}

fn bounds(source: &Source) -> Vec<Option<(Vec<u8>, Vec<u8>)>> {
    let metadata: &Arc<ParquetMetaData> = source.parquet_metadata(0).unwrap();
    let columns = metadata.row_group(0).columns().iter();
    let of = |column: &parquet::file::metadata::ColumnChunkMetaData| {
        let known = column.statistics()?;
        Some((known.min_bytes_opt()?.to_vec(), known.max_bytes_opt()?.to_vec()))
    };
    columns.map(of).collect()
}

#[test]
fn deprecated_bounds_are_trusted_for_signed_numbers_only() {
    use parquet::file::statistics::Statistics;
    let message = "message m {
        REQUIRED INT32 n; REQUIRED INT32 u (UINT_32); REQUIRED BYTE_ARRAY t (UTF8);
        REQUIRED FIXED_LEN_BYTE_ARRAY (2) d (DECIMAL(4, 0)); REQUIRED INT96 s;
    }";
    let plain = write_file(message, |group, _| {
        column::<Int32Type>(group, &[-1, 1], None);
        column::<Int32Type>(group, &[-1, 1], None);
        column::<ByteArrayType>(group, &[text("é"), text("z")], None);
        let decimal = |n: i16| ByteArray::from(n.to_be_bytes().to_vec()).into();
        column::<FixedLenByteArrayType>(group, &[decimal(-1), decimal(1)], None);
        column::<Int96Type>(group, &[int96(1, 0), int96(2, 0)], None);
    });
    let folder = folder(&[("new.parquet", &plain)]);
    let known = bounds(&open(&folder, "new.parquet").unwrap());
    assert_eq!(
        known.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, true, true, false]
    );
    let deprecated = with_footer(&plain, |builder, mut groups| {
        for chunk in groups[0].columns_mut() {
            // The order of signed bytes.
            let old = match chunk.statistics().unwrap() {
                Statistics::Int32(_) => Statistics::int32(Some(-1), Some(1), None, Some(0), true),
                Statistics::ByteArray(_) => {
                    Statistics::byte_array(Some(text("é")), Some(text("z")), None, Some(0), true)
                }
                Statistics::FixedLenByteArray(known) => Statistics::fixed_len_byte_array(
                    known.min_opt().cloned(),
                    known.max_opt().cloned(),
                    None,
                    Some(0),
                    true,
                ),
                _ => Statistics::int96(Some(int96(1, 0)), Some(int96(2, 0)), None, Some(0), true),
            };
            *chunk = chunk.clone().into_builder().set_statistics(old).build().unwrap();
        }
        builder.set_row_groups(groups).build()
    });
    write(folder.path(), "old.parquet", &deprecated);
    let source = open(&folder, "old.parquet").unwrap();
    let known = bounds(&source);
    assert_eq!(
        known.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, false, false, false, false]
    );
    // Null counts do not depend on the order.
    let nulls = source.parquet_metadata(0).unwrap().row_group(0).columns().iter();
    let nulls: Vec<_> = nulls.map(|it| it.statistics().unwrap().null_count_opt()).collect();
    assert_eq!(nulls, [Some(0); 5]);
    assert_eq!(rows_in(&folder, "old.parquet"), rows_in(&folder, "new.parquet"));
}

#[test]
fn understated_chunk_sizes_of_old_writers_are_corrected() {
    let texts: Vec<ByteArray> = (0..20).map(|n| text(&format!("text {}", n % 3))).collect();
    let message = "message m { REQUIRED BYTE_ARRAY t; REQUIRED BYTE_ARRAY u; }";
    for (writer, is_read) in [
        ("parquet-mr", true),
        ("parquet-mr version 1.2.8 (build x)", true),
        ("parquet-mr version 1.2.9", false),
        ("other", false),
    ] {
        let properties = WriterProperties::builder().set_created_by(writer.to_owned());
        let plain = write_file_with(properties, message, 1, |group, _| {
            column::<ByteArrayType>(group, &texts, None);
            column::<ByteArrayType>(group, &texts, None);
        });
        let short = with_footer(&plain, |builder, mut groups| {
            for chunk in groups[0].columns_mut() {
                let bytes = chunk.compressed_size() - 13;
                let changed = chunk.clone().into_builder().set_total_compressed_size(bytes);
                *chunk = changed.build().unwrap();
            }
            builder.set_row_groups(groups).build()
        });
        assert_eq!(outcome(&short).is_ok(), is_read, "{writer}");
        if is_read {
            assert_eq!(outcome(&short), outcome(&plain));
        }
    }
}

#[test]
fn damaged_files_of_old_writers_are_errors_and_never_panics() {
    let message = "message m {
        OPTIONAL INT96 t; OPTIONAL FIXED_LEN_BYTE_ARRAY (12) i (INTERVAL);
        OPTIONAL FIXED_LEN_BYTE_ARRAY (16) u (UUID); REQUIRED BYTE_ARRAY e (ENUM);
    }";
    let properties = WriterProperties::builder().set_created_by("parquet-mr".to_owned());
    let bytes = write_file_with(properties, message, 2, |group, _| {
        let levels = Some(&[1, 0, 1][..]);
        column::<Int96Type>(group, &[int96(2_440_588, 0), int96(1, 0)], levels);
        let interval = bytes_of(&[1, 2, 3]);
        column::<FixedLenByteArrayType>(group, &[interval.clone(), interval], levels);
        let uuid = bytes_of(&[1, 2, 3, 4]);
        column::<FixedLenByteArrayType>(group, &[uuid.clone(), uuid], levels);
        column::<ByteArrayType>(group, &[text("A"), text("B"), text("A")], None);
    });
    let folder = folder(&[]);
    let (mut refused, mut read) = (0, 0);
    for at in 0..bytes.len() {
        for change in [0xff, 0x01] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            write(folder.path(), "a.parquet", &changed);
            for projection in [None, Some(vec![])] {
                match count_of(&folder, projection) {
                    Ok(_) => read += 1,
                    // An INT96 may get more digits.
                    Err(Error::Corrupt { .. } | Error::Usage { .. }) => refused += 1,
                    Err(other) => panic!("byte {at}: {other:?}"),
                }
            }
        }
    }
    assert!(refused > bytes.len() && read > bytes.len() / 4, "{refused} {read}");
}

#[test]
fn dates_that_spark_wrote_by_the_julian_calendar_are_gregorian() {
    let message = "message m {
        OPTIONAL INT32 d (DATE); OPTIONAL INT64 t (TIMESTAMP(MICROS, true)); OPTIONAL INT96 i;
    }";
    let days = [-719_164, -141_428, -141_427, 0];
    let with = |entries: &[(&str, &str)]| {
        let entries = entries
            .iter()
            .map(|(key, value)| KeyValue::new((*key).to_owned(), Some((*value).to_owned())));
        let properties =
            WriterProperties::builder().set_key_value_metadata(Some(entries.collect()));
        let bytes = write_file_with(properties, message, 1, |group, _| {
            column::<Int32Type>(group, &days, Some(&[1; 4]));
            let micros = days.map(|day| i64::from(day) * 86_400_000_000);
            column::<Int64Type>(group, &micros, Some(&[1; 4]));
            let instants = days.map(|day| int96(day + 2_440_588, 0));
            column::<Int96Type>(group, &instants, Some(&[1; 4]));
        });
        let folder = folder(&[("a.parquet", &bytes)]);
        let source = open(&folder, "a.parquet").unwrap();
        let has_bounds: Vec<bool> = bounds(&source).iter().map(Option::is_some).collect();
        let rows = read_all(&source).unwrap();
        (rows.into_iter().map(|row| row.join(" ")).collect::<Vec<_>>(), has_bounds)
    };
    let row = |day: &str| format!("{day} {day}T00:00:00Z {day}T00:00:00");
    let same = [row("1582-10-15"), row("1970-01-01")];
    let proleptic = [&[row("0000-12-30"), row("1582-10-14")], &same[..]].concat();
    let julian = [&[row("0001-01-01"), row("1582-10-04")], &same[..]].concat();
    let version = "org.apache.spark.version";
    assert_eq!(with(&[(version, "3.5.1")]), (proleptic.clone(), vec![true, true, false]));
    assert_eq!(with(&[]), (proleptic, vec![true, true, false]));
    assert_eq!(with(&[(version, "2.4.8")]), (julian, vec![false, false, false]));
    let (rows, _) = with(&[(version, "3.0.1")]);
    assert_eq!(rows[0], "0000-12-30 0000-12-30T00:00:00Z 0001-01-01T00:00:00");
}

#[test]
fn the_last_entry_of_a_repeated_map_key_counts() {
    let message = "message m { REQUIRED GROUP m (MAP) { REPEATED GROUP key_value {
        REQUIRED BYTE_ARRAY key (STRING); OPTIONAL INT64 value; } } }";
    let bytes = write_file(message, |group, _| {
        let mut keys = group.next_column().unwrap().unwrap();
        let names = [text("a"), text("b"), text("a"), text("a")];
        keys.typed::<ByteArrayType>()
            .write_batch(&names, Some(&[1; 4]), Some(&[0, 1, 1, 0]))
            .unwrap();
        keys.close().unwrap();
        let mut values = group.next_column().unwrap().unwrap();
        let typed = values.typed::<Int64Type>();
        typed.write_batch(&[1, 2, 3, 4], Some(&[2; 4]), Some(&[0, 1, 1, 0])).unwrap();
        values.close().unwrap();
    });
    assert_eq!(outcome(&bytes).unwrap(), [["{b: 2, a: 3}"], ["{a: 4}"]]);
}
