//! The rows of a source do not depend on its splits.

use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray, StructArray};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use tidemill_text::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};

use super::*;

fn split_source(source: &Source, target: u64) -> Vec<Split> {
    let cutting = SplitOptions { target_bytes: Some(target), ..SplitOptions::default() };
    source.splits_with_options(cutting, &mut |_, _| true).unwrap()
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
    (0..count).map(line).collect::<String>().into_bytes()
}

#[test]
fn text_is_split_to_the_target_size() {
    let csv = |row| format!("{row},\"a, {row}\",\"say \"\"{row}\"\"\",{}\n", row % 7);
    let json = |row| format!("{{\"n\": {row}, \"t\": \"text {row}\", \"l\": [{row}, null]}}\n");
    let log = |row| {
        format!(
            "10.0.0.{} - - [05/Mar/2024:10:11:12 +0000] \"GET /{row} HTTP/1.1\" 200 {row} \"-\" \"-\"\n",
            row % 256
        )
    };
    let files: [(&str, Vec<u8>); 3] = [
        ("a.csv", [b"n,a,b,c\n".to_vec(), lines(4000, csv)].concat()),
        ("a.jsonl", lines(4000, json)),
        ("access.log", lines(4000, log)),
    ];
    for (name, bytes) in files {
        let folder = folder(&[(name, &bytes)]);
        let source = open(&folder, name).unwrap();
        let (expected, _) = read(&source, u64::MAX, &ReadOptions::default()).unwrap();
        assert_eq!(expected.len(), 4000, "{name}");
        for target in [100, 1000, 16 << 10, 60 << 10] {
            let splits = split_source(&source, target);
            assert!(splits.len() as u64 >= bytes.len() as u64 / target, "{name} {target}");
            let (rows, again) = read_splits(&source, splits, &ReadOptions::default()).unwrap();
            assert!(rows == expected, "{name} {target}");
            assert_eq!(again, 0, "{name} {target}: starts guessed wrong");
        }
    }
}

#[test]
fn sampled_source_has_thousands_of_splits() {
    let bytes = lines(400_000, |row| format!("{{\"n\": {row}}}\n"));
    let folder = folder(&[("a.jsonl", &bytes), ("b.jsonl", b"{\"n\": 1}\n")]);
    let source = open(&folder, "*.jsonl").unwrap();
    let target = source.sample_split_target_bytes();
    assert_eq!(target, 16 << 10);
    let splits = split_source(&source, target);
    assert_eq!(splits.len() as u64, (bytes.len() as u64).div_ceil(target) + 1);
    let all: u64 = splits.iter().map(|split| split.bytes).sum();
    assert_eq!(all, source.total_bytes());
}

/// A quote is open at the start of a split, and lines within it look like records of others.
#[test]
fn small_split_detects_that_it_starts_within_quotes() {
    let csv = |row: usize| match row % 40 {
        0 => format!("{row},\"first\nsecond, and\nthird\"\n"),
        _ => format!("{row},\"plain {row}\"\n"),
    };
    let bytes = [b"n,t\n".to_vec(), lines(6000, csv)].concat();
    let folder = folder(&[("a.csv", &bytes)]);
    let source = open(&folder, "a.csv").unwrap();
    let (expected, _) = read(&source, u64::MAX, &ReadOptions::default()).unwrap();
    for target in [97, 1009, 4099, 20_011] {
        let splits = split_source(&source, target);
        let (rows, again) = read_splits(&source, splits, &ReadOptions::default()).unwrap();
        assert!(rows == expected, "{target}");
        assert_eq!(again, 0, "{target}");
    }
}

#[test]
fn boundary_is_found_from_preceding_bytes_when_the_split_misleads() {
    // The text within quotes looks like records, for longer than a small split inspects.
    let row = |row: usize| match row % 50 {
        7 => format!("{row},\"{}\"\n", "1,a line of a text\n".repeat(300)),
        _ => format!("{row},\"plain, {row}\"\n"),
    };
    let bytes = [b"n,t\n".to_vec(), lines(400, row)].concat();
    let folder = folder(&[("a.csv", &bytes)]);
    let source = open(&folder, "a.csv").unwrap();
    let cancel = CancelFlag::new();
    let mut exact = split_source(&source, 3000);
    let splits = exact.clone();
    source.resolve_exact_starts(&mut exact, &cancel).unwrap();
    let mut wrong = 0;
    for (split, exact) in splits.iter().zip(&exact) {
        let seen = source.guess_start_from_before(split, &cancel).unwrap();
        assert_eq!(seen, exact.exact_start, "split {}", split.index);
        let start =
            source.read_split(split, &ReadOptions::default()).unwrap().first_record_offset();
        wrong += usize::from(exact.exact_start.is_some_and(|exact| start != Some(exact)));
    }
    assert!(wrong > 0, "the guesses are all right");
    // Reading the text before it detects the wrong guess.
    let (expected, _) = read(&source, u64::MAX, &ReadOptions::default()).unwrap();
    let (rows, again) = read_splits(&source, splits, &ReadOptions::default()).unwrap();
    assert!(rows == expected);
    assert!(again > 0);
}

/// The layout of a generated Parquet file.
#[derive(Debug, Clone)]
struct ParquetFileSpec {
    rows: usize,
    group_rows: usize,
    page_rows: usize,
    has_index: bool,
    is_second_version: bool,
    has_lists: bool,
    has_dictionaries: bool,
}

fn parquet_file_specs() -> impl Strategy<Value = ParquetFileSpec> {
    let numbers = (1usize..6000, 1usize..4000, 1usize..700);
    let ways = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (numbers, ways).prop_map(|((rows, group_rows, page_rows), (one, two, three, four))| {
        ParquetFileSpec {
            rows,
            group_rows,
            page_rows,
            has_index: one,
            is_second_version: two,
            has_lists: three,
            has_dictionaries: four,
        }
    })
}

fn generate_batch(written: &ParquetFileSpec) -> RecordBatch {
    let rows = 0..i64::try_from(written.rows).unwrap();
    let numbers = |by: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(
            rows.clone().map(|row| (row % by != 1).then_some(row * 7919 % 10_007)),
        ))
    };
    let texts: ArrayRef = Arc::new(StringArray::from_iter(
        rows.clone().map(|row| (row % 11 != 0).then(|| format!("text {}", row % 13))),
    ));
    let long: ArrayRef = Arc::new(StringArray::from_iter_values(
        rows.clone().map(|row| "long text, ".repeat(row as usize % 17)),
    ));
    let within = StructArray::try_from(vec![("x", numbers(3)), ("y", texts.clone())]).unwrap();
    let mut columns = vec![
        ("row", Arc::new(Int64Array::from_iter_values(rows.clone())) as ArrayRef),
        ("n", numbers(5)),
        ("t", texts),
        ("long", long),
        ("s", Arc::new(within)),
    ];
    if written.has_lists {
        let lists = rows.clone().map(|row| (row % 7 != 0).then(|| (0..row % 4).map(Some)));
        columns.push((
            "l",
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as ArrayRef,
        ));
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

fn write_parquet(path: &Path, written: &ParquetFileSpec) -> RecordBatch {
    let version = match written.is_second_version {
        true => WriterVersion::PARQUET_2_0,
        false => WriterVersion::PARQUET_1_0,
    };
    let statistics = match written.has_index {
        true => EnabledStatistics::Page,
        false => EnabledStatistics::Chunk,
    };
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(written.group_rows))
        .set_data_page_row_count_limit(written.page_rows)
        .set_write_batch_size(written.page_rows.clamp(1, 50))
        .set_dictionary_enabled(written.has_dictionaries)
        .set_offset_index_disabled(!written.has_index)
        .set_statistics_enabled(statistics)
        .set_writer_version(version)
        .build();
    let batch = generate_batch(written);
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    batch
}

/// Reads splits one by one in reverse order, and returns their rows in the order of splits.
fn read_splits_separately(source: &Arc<Source>, splits: &[Split], options: &ReadOptions) -> Rows {
    let mut parts: Vec<(usize, Rows)> = Vec::new();
    for split in splits.iter().rev() {
        let progress = RunProgress::new();
        let options = ReadOptions { progress: progress.clone(), ..options.clone() };
        let reader = source.read_split(split, &options).unwrap();
        let rows = reader.flat_map(|batch| rows_of(&batch.unwrap())).collect();
        assert_eq!(progress.bytes_done(), split.bytes);
        parts.push((split.index, rows));
    }
    parts.sort_unstable_by_key(|(index, _)| *index);
    parts.into_iter().flat_map(|(_, rows)| rows).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn split_row_group_has_the_same_rows(
        written in parquet_file_specs(),
        target in 1u64..60_000,
        batch_rows in 1usize..3000,
        less in 0i64..10_007,
    ) {
        let folder = folder(&[]);
        let batch = write_parquet(&folder.path().join("a.parquet"), &written);
        let source = open(&folder, "a.parquet").unwrap();
        let expected = rows_of(&batch);
        let splits = split_source(&source, target);
        let sum: u64 = splits.iter().map(|split| split.bytes).sum();
        let whole: u64 = source.splits().unwrap().iter().map(|split| split.bytes).sum();
        prop_assert_eq!(sum, whole);
        let options = ReadOptions { batch_rows, ..ReadOptions::default() };
        prop_assert!(read_splits_separately(&source, &splits, &options) == expected);

        // Some columns, and the number of each row.
        let number = source.schema().fields().len()
            + source.hidden_columns().iter().position(|field| field.name() == "file_row_number").unwrap();
        let projection = Some(vec![2, number, 4]);
        let options = ReadOptions { projection, batch_rows, ..ReadOptions::default() };
        let some: Rows = expected
            .iter()
            .enumerate()
            .map(|(row, values)| vec![values[2].clone(), row.to_string(), values[4].clone()])
            .collect();
        prop_assert!(read_splits_separately(&source, &splits, &options) == some);

        // Dictionary codes, if the file has dictionaries.
        if source.is_low_cardinality(2) {
            let projection = Some(vec![2]);
            let options =
                ReadOptions { projection, dictionary_columns: vec![2], batch_rows, ..ReadOptions::default() };
            let codes: Rows = expected.iter().map(|values| vec![values[2].clone()]).collect();
            prop_assert!(read_splits_separately(&source, &splits, &options) == codes);
        }

        // A predicate may keep rows that do not match, and drops no row that matches.
        let test = ValueCondition::Comparison(ComparisonOperator::Less, PredicateConstant::Int(less));
        let predicates = vec![Predicate { column: 1, condition: test }];
        let options = ReadOptions { predicates, batch_rows, ..ReadOptions::default() };
        let holds =
            |row: &Vec<String>| row[1].parse::<i64>().is_ok_and(|value| value < less);
        let mut found = read_splits_separately(&source, &splits, &options);
        found.retain(holds);
        let wanted: Rows = expected.iter().filter(|row| holds(row)).cloned().collect();
        prop_assert!(found == wanted);
    }
}

#[test]
fn row_group_is_split_between_known_pages() {
    let plain = ParquetFileSpec {
        rows: 40_000,
        group_rows: 20_000,
        page_rows: 500,
        has_index: true,
        is_second_version: false,
        has_lists: true,
        has_dictionaries: false,
    };
    for (written, is_cut) in [
        (plain.clone(), true),
        // The page headers do not state the rows of lists …
        (ParquetFileSpec { has_index: false, ..plain.clone() }, false),
        // … but of all other columns, and in version 2 of all columns.
        (ParquetFileSpec { has_index: false, has_lists: false, ..plain.clone() }, true),
        (ParquetFileSpec { has_index: false, is_second_version: true, ..plain.clone() }, true),
    ] {
        let folder = folder(&[]);
        write_parquet(&folder.path().join("a.parquet"), &written);
        let source = open(&folder, "a.parquet").unwrap();
        let whole = source.splits_with_target_bytes(50_000, &mut |_, _| true).unwrap();
        assert!(whole.iter().all(|split| split.parts[0].row_range.is_none()), "{written:?}");
        let splits = split_source(&source, 50_000);
        assert_eq!(splits.len() > 2, is_cut, "{written:?}: {} splits", splits.len());
        if is_cut {
            let largest = splits.iter().map(|split| split.bytes).max().unwrap();
            assert!(largest < 120_000, "{written:?}: {largest}");
            let at = splits.iter().find(|split| split.index == 1).unwrap();
            let rows = at.parts[0].row_range.clone().unwrap();
            assert_eq!(rows.start % 500, 0);
            assert_eq!(at.parts[0].file_row_number(3), (rows.start + 4, 0));
        }
        // Statistics belong to the row group.
        let cutting = SplitOptions { target_bytes: Some(50_000), ..SplitOptions::default() };
        let second = source.splits_with_options(cutting, &mut |_, group| group == 1).unwrap();
        let rows = read_splits_separately(&source, &second, &ReadOptions::default());
        assert_eq!((rows.len(), rows[0][0].as_str()), (20_000, "20000"));
    }
}
