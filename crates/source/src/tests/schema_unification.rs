//! Files with different columns, read as one table.

use arrow::array::{
    BooleanArray, Date32Array, DictionaryArray, Float64Array, Int32Array, Int64Array,
    LargeStringArray, NullArray, StringArray, StructArray, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{Int32Type, TimeUnit};
use tidemill_text::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};

use super::*;

fn int(name: &str) -> (String, DataType) {
    (name.into(), DataType::Int64)
}

fn string(name: &str) -> (String, DataType) {
    (name.into(), DataType::Utf8View)
}

fn spec_with_same_layout(folder: &tempfile::TempDir, pattern: &str) -> SourceSpec {
    SourceSpec { layout_policy: Some(ColumnLayoutPolicy::Same), ..spec(folder, pattern) }
}

fn wanted(source: &Source, names: &[&str]) -> ReadOptions {
    let projection = names.iter().map(|name| source.schema().index_of(name).unwrap()).collect();
    ReadOptions { projection: Some(projection), ..ReadOptions::default() }
}

fn read_column(source: &Arc<Source>, name: &str) -> Result<Vec<String>> {
    let rows = read(source, 1 << 20, &wanted(source, &[name]))?.0;
    Ok(rows.into_iter().map(|mut row| row.remove(0)).collect())
}

fn sourced(name: &str, array: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter([(name, array)]).unwrap()
}

#[test]
fn columns_of_csv_files_are_unified_by_name() {
    let folder = folder(&[
        ("a.csv", b"day,n\n2013-01-01,1\n"),
        ("b.csv", b"\xef\xbb\xbfcity,\"n\",day\r\nparis,2,2013-01-02\r\n\"a,b\",,\r\n"),
        ("c.csv", b""),
        ("d.csv", b"\n\n"),
        ("e.csv", b"late,city\n"),
        ("f.csv", b"n\n3\n"),
        ("g.csv", b"day,n\n2013-01-03,4"),
    ]);
    let source = open(&folder, "*.csv").unwrap();
    let day = ("day".into(), DataType::Date32);
    assert_eq!(types(&source), [day, int("n"), string("city"), string("late")]);
    assert_eq!(source.layout_count(), 4);
    let expected = text(&[
        &["2013-01-01", "1", "∅", "∅"],
        &["2013-01-02", "2", "paris", "∅"],
        &["∅", "∅", "a,b", "∅"],
        &["∅", "3", "∅", "∅"],
        &["2013-01-03", "4", "∅", "∅"],
    ]);
    for target in [10, 100, 1 << 20] {
        let found = read(&source, target, &ReadOptions::default()).unwrap().0;
        assert_eq!(found, expected, "{target}");
    }
    let turned = read(&source, 1 << 20, &wanted(&source, &["city", "n"])).unwrap().0;
    assert_eq!(turned[1], ["paris", "2"]);
    let none = wanted(&source, &[]);
    let mut reader = source.read_split(&source.splits().unwrap()[0], &none).unwrap();
    assert_eq!(reader.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 5);
    assert_eq!(reader.stats().rows, 5);
}

#[test]
fn predicate_on_a_missing_column_sees_nulls() {
    let folder = folder(&[
        ("a.csv", b"n,s\n1,x\n2,y\n"),
        ("b.csv", b"s\nx\n"),
        ("c.csv", b"s,n\nx,2\ny,1\n"),
    ]);
    let source = open(&folder, "*.csv").unwrap();
    let equals = |column, constant| Predicate {
        column,
        condition: ValueCondition::Comparison(ComparisonOperator::Equal, constant),
    };
    let one = || equals(0, PredicateConstant::Int(1));
    let x = || equals(1, PredicateConstant::Text("x".into()));
    let is_null = || Predicate { column: 0, condition: ValueCondition::IsNull };
    let is_there = || Predicate { column: 0, condition: ValueCondition::IsNotNull };
    for (predicates, expected) in [
        (vec![one()], &[&["1", "x"][..], &["1", "y"]][..]),
        (vec![one(), x()], &[&["1", "x"]]),
        (vec![x()], &[&["1", "x"], &["∅", "x"], &["2", "x"]]),
        (vec![is_null()], &[&["∅", "x"]]),
        (vec![is_there(), x()], &[&["1", "x"], &["2", "x"]]),
    ] {
        let options = ReadOptions { predicates, ..ReadOptions::default() };
        let mut found = Rows::new();
        for split in source.splits_with_target_bytes(1 << 20, &mut |_, _| true).unwrap() {
            let mut reader = source.read_split(&split, &options).unwrap();
            reader.by_ref().for_each(|batch| found.extend(rows_of(&batch.unwrap())));
            // A dropped row is still a valid row.
            assert_eq!(reader.stats().rows, 5);
        }
        assert_eq!(found, text(expected));
    }
}

/// More records than a sample has of the first files.
fn long(line: &str) -> String {
    format!("{line}\n").repeat(12_000)
}

#[test]
fn later_files_widen_types_and_give_new_columns_theirs() {
    let first = format!("n,d,s,e\n{}", long("1,2013-01-01,7,"));
    let folder = folder(&[
        ("a.csv", first.as_bytes()),
        ("b.csv", b"n,d,e,new\n2.5,2013-01-02 10:00:00,x,true\n"),
        ("c.csv", b"n,s\n3,8\n"),
    ]);
    let source = open(&folder, "*.csv").unwrap();
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    let expected = [
        ("n".into(), DataType::Float64),
        ("d".into(), micros),
        int("s"),
        string("e"),
        ("new".into(), DataType::Boolean),
    ];
    assert_eq!(types(&source), expected);
    let found = rows(&source);
    assert_eq!(found[0], ["1.0", "2013-01-01T00:00:00", "7", "∅", "∅"]);
    assert_eq!(found[12_000], ["2.5", "2013-01-02T10:00:00", "∅", "x", "true"]);
    assert_eq!(found[12_001], ["3.0", "∅", "8", "∅", "∅"]);
}

#[test]
fn a_column_of_numbers_is_not_made_text_by_a_later_file() {
    // The later file is in the sample or after it.
    for records in [200, 12_000] {
        let first = format!("n,s\n{}", "1,2\n".repeat(records));
        let folder = folder(&[("a.csv", first.as_bytes()), ("b.csv", b"s,n\n3,4\n5,n/a\n")]);
        let source = open(&folder, "*.csv").unwrap();
        assert_eq!(types(&source), [int("n"), int("s")]);
        let message = message(read_column(&source, "n"));
        for part in [
            "b.csv: line 3 (byte 8), column `n`: expected a BIGINT as in `",
            "a.csv`, found `n/a`",
            "hint: --null 'n/a'",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(read_column(&source, "s").unwrap().len(), records + 2);
        let mut with_null = spec(&folder, "*.csv");
        with_null.text_options.nulls = vec!["n/a".into()];
        let source = Arc::new(Source::open(&with_null).unwrap());
        assert_eq!(read_column(&source, "n").unwrap()[records + 1], "∅");
        let mut as_text = spec(&folder, "*.csv");
        let field = Field::new("n", DataType::Utf8View, true);
        as_text.declared_schema = Some(Arc::new(Schema::new(vec![field])));
        let source = Arc::new(Source::open(&as_text).unwrap());
        assert_eq!(read_column(&source, "n").unwrap()[records + 1], "n/a");
    }
}

#[test]
fn text_that_looks_like_numbers_in_a_few_small_files_is_text() {
    let files: Vec<(String, String)> = (0..40)
        .map(|file| {
            let note = if file % 3 == 0 { "17".to_owned() } else { format!("note {file}") };
            (format!("{file:02}.csv"), format!("id,note\n{file},{note}\n"))
        })
        .collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    let source = open(&folder(&files), "*.csv").unwrap();
    assert_eq!(types(&source), [int("id"), string("note")]);
}

#[test]
fn every_header_counts_and_the_last_files_values_too() {
    let first = format!("n\n{}", long("1"));
    let data = folder(&[("0.csv", first.as_bytes())]);
    for file in 0..300 {
        let name = format!("b{file:03}.csv");
        match file {
            77 => write(data.path(), &name, b"n,rare\n1,2.5\n"),
            299 => write(data.path(), &name, b"n\n1.5\n"),
            _ => write(data.path(), &name, b"n\n1\n"),
        }
    }
    let source = open(&data, "*.csv").unwrap();
    let expected = [("n".into(), DataType::Float64), ("rare".into(), DataType::Float64)];
    assert_eq!(types(&source), expected);
    let found = read_column(&source, "rare").unwrap();
    assert_eq!(found.iter().filter(|value| *value == "2.5").count(), 1);
    assert_eq!(found.len(), 12_300);
}

#[test]
fn thousands_of_files_are_one_table() {
    let data = folder(&[]);
    for file in 0..5000 {
        let content = match file % 1000 {
            999 => format!("b,c,a\n{file},x,1\n"),
            _ => format!("a,b\n1,{file}\n"),
        };
        write(data.path(), &format!("{file:04}.csv"), content.as_bytes());
    }
    let source = open(&data, "*.csv").unwrap();
    assert_eq!(types(&source), [int("a"), int("b"), string("c")]);
    assert_eq!(source.layout_count(), 2);
    let found = rows(&source);
    assert_eq!(found.len(), 5000);
    for (file, row) in found.iter().enumerate() {
        let c = if file % 1000 == 999 { "x" } else { "∅" };
        assert_eq!(*row, ["1", &file.to_string(), c]);
    }
}

#[test]
fn first_of_several_broken_files_is_named() {
    let data = folder(&[]);
    for file in 0..300 {
        let content: &[u8] = match file {
            150 | 250 => b"a,\xff\n1,2\n",
            _ => b"a,b\n1,2\n",
        };
        write(data.path(), &format!("{file:03}.csv"), content);
    }
    let message = message(open(&data, "*.csv"));
    assert!(message.contains("150.csv") && message.contains("is not valid UTF-8"), "{message}");
}

#[test]
fn odd_headers_of_later_files_are_read_as_those_of_the_first() {
    let folder = folder(&[
        ("a.csv", b"a,b\n1,2\n"),
        // A column without a name is named by its position.
        ("b.csv", b"a,b,\n3,4,\n"),
        ("c.csv", b"\n\nb,a\n6,5\n"),
        ("d.csv", b"a\n\"\"\n"),
    ]);
    let source = open(&folder, "*.csv").unwrap();
    assert_eq!(types(&source), [int("a"), int("b"), string("column_3")]);
    let expected = text(&[&["1", "2", "∅"], &["3", "4", "∅"], &["5", "6", "∅"], &["∅", "∅", "∅"]]);
    assert_eq!(rows(&source), expected);
    // A header of more than one read, compressed, and cut in the middle of the file.
    let wide: Vec<String> = (0..5000).map(|column| format!("column number {column}")).collect();
    let records = format!("{}\n", vec!["1"; 5000].join(",")).repeat(3);
    let text = format!("{}\n{records}", wide.join(","));
    let data = self::folder(&[("a.csv", text.as_bytes())]);
    write(data.path(), "b.csv.gz", &compressed("gz", text.as_bytes()));
    write(data.path(), "c.csv.zst", &compressed("zst", b"column number 4999,x\n5,6\n"));
    let source = open(&data, "*").unwrap();
    assert_eq!((source.schema().fields().len(), source.layout_count()), (5001, 2));
    let options = wanted(&source, &["column number 4999", "x"]);
    let (found, _) = read(&source, 20_000, &options).unwrap();
    assert_eq!(found.len(), 7);
    assert_eq!(
        (&found[0], &found[6]),
        (&vec!["1".to_owned(), "∅".into()], &vec!["5".into(), "6".into()])
    );
}

#[test]
fn a_file_whose_header_is_a_record_is_refused() {
    let folder = folder(&[
        ("a.csv", b"id,who,ms\n1,ann,20\n"),
        ("b.csv", b"x,y\n1,2\n"),
        ("c.csv", b"2,bob,20\n3,eve,20\n"),
        ("d.csv", b"4,dan,20\n"),
        ("e.csv", b"y,ms\n1,2\n"),
    ]);
    let message = message(open(&folder, "*.csv"));
    for part in [
        "c.csv` does not go with `",
        "a.csv`: they have no column in common; its header is `2`, `bob`, `20`",
        "if it has no header",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A chain of shared columns is enough.
    assert_eq!(names(&open(&folder, "[abe].csv").unwrap()), ["id", "who", "ms", "x", "y"]);
}

#[test]
fn files_without_headers_have_columns_by_their_place() {
    let folder = folder(&[("a.csv", b"1,2\n"), ("b.csv", b"1.5,x\n"), ("c.csv", b"1\n")]);
    let mut spec = spec(&folder, "*.csv");
    spec.text_options.header = Some(false);
    let source = Arc::new(Source::open(&spec).unwrap());
    let expected = [("column_1".into(), DataType::Float64), string("column_2")];
    assert_eq!(types(&source), expected);
    let message = message(read(&source, 1 << 20, &ReadOptions::default()));
    assert!(message.contains("c.csv: line 1 (byte 0): expected 2 fields, found 1"), "{message}");
}

#[test]
fn files_that_may_not_differ_are_an_error_that_names_both() {
    let folder =
        folder(&[("a.csv", b"x,y\n1,2\n"), ("b.csv", b"x,z\n1,2\n"), ("a.json", b"{\"a\": 1}\n")]);
    let source = Arc::new(Source::open(&spec_with_same_layout(&folder, "*.csv")).unwrap());
    assert_eq!(types(&source), [int("x"), int("y")]);
    let differs = message(read(&source, 1 << 20, &ReadOptions::default()));
    for part in
        ["b.csv` does not go with `", "a.csv`", "column 2 is `z` instead of `y`", "--layouts same"]
    {
        assert!(differs.contains(part), "{part}: {differs}");
    }
    let refused = message(Source::open(&spec_with_same_layout(&folder, "a.json")));
    assert!(refused.contains("`layouts` has no meaning for format `json`"), "{refused}");
    let unknown = message("sam".parse::<ColumnLayoutPolicy>());
    assert!(unknown.contains("`layouts` is `union` or `same`, not `sam`"), "{unknown}");

    let data = self::folder(&[]);
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    parquet_file(&data.path().join("a.parquet"), &sourced("a", ints), 10);
    parquet_file(&data.path().join("b.parquet"), &sourced("a", floats), 10);
    let differs = message(Source::open(&spec_with_same_layout(&data, "*.parquet")));
    for part in ["a.parquet", "b.parquet", "column 1 is `a` DOUBLE instead of `a` BIGINT"] {
        assert!(differs.contains(part), "{differs}");
    }
}

#[test]
fn a_folders_column_wins_in_files_that_differ() {
    let folder = folder(&[
        ("y=1/a.csv", b"n,y\n1,x\n"),
        ("y=2/b.csv", b"n\n2\n"),
        ("y=2/c.csv", b"m,n\n7,3\n"),
    ]);
    let source = open(&folder, "**/*.csv").unwrap();
    assert_eq!(types(&source), [int("n"), int("m"), int("y")]);
    let expected = text(&[&["1", "∅", "1"], &["2", "∅", "2"], &["3", "7", "2"]]);
    assert_eq!(rows(&source), expected);
}

#[test]
fn keys_of_json_are_collected_from_files_spread_over_the_listing() {
    let data =
        folder(&[("000.json", long(r#"{"a": 1, "s": {"x": 1}, "t": "2013-01-01"}"#).as_bytes())]);
    for file in 1..200 {
        let content = match file {
            199 => r#"{"a": 2.5, "s": {"y": "z"}, "t": "noon", "last": [1]}"#,
            _ => r#"{"a": 1}"#,
        };
        write(data.path(), &format!("{file:03}.json"), content.as_bytes());
    }
    let source = open(&data, "*.json").unwrap();
    let found: Vec<String> =
        types(&source).iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let inner = r#"s Struct("x": Int64, "y": Utf8View)"#;
    assert_eq!(found, ["a Float64", inner, "t Date32", "last List(Int64)"]);
    assert_eq!(read_column(&source, "last").unwrap().last().unwrap(), "[1]");
    let message = message(read_column(&source, "t"));
    for part in ["199.json: line 1", "`t`", "as in `", "000.json`, found `noon`"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn keys_of_logfmt_are_collected_from_later_files() {
    let data =
        folder(&[("a.logfmt", long("n=1 s=1").as_bytes()), ("b.logfmt", b"n=1.5 s=x late=true\n")]);
    let source = open(&data, "*.logfmt").unwrap();
    let n = ("n".into(), DataType::Float64);
    assert_eq!(types(&source), [n, int("s"), ("late".into(), DataType::Boolean)]);
    assert_eq!(read_column(&source, "late").unwrap()[12_000], "true");
    assert!(message(read_column(&source, "s")).contains("a.logfmt`, found `x`"));
}

// --------------------------------------------------------------------------------- Parquet

#[test]
fn parquet_columns_are_unified_by_name_and_widened() {
    let data = folder(&[]);
    let strukt = |fields: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let fields = fields.into_iter().map(|(name, array)| {
            (Arc::new(Field::new(name, array.data_type().clone(), true)), array)
        });
        Arc::new(StructArray::from(fields.collect::<Vec<_>>()))
    };
    let words = |words: Vec<&str>| -> ArrayRef { Arc::new(StringArray::from(words)) };
    let first = RecordBatch::try_from_iter([
        ("n", Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef),
        ("t", Arc::new(Date32Array::from(vec![15706, 15707]))),
        ("s", strukt(vec![("x", Arc::new(Int32Array::from(vec![1, 2])))])),
        ("z", Arc::new(NullArray::new(2))),
    ]);
    let second = RecordBatch::try_from_iter([
        ("z", words(vec!["late"])),
        (
            "s",
            strukt(vec![("y", words(vec!["w"])), ("x", Arc::new(Int64Array::from(vec![1 << 40])))]),
        ),
        ("t", Arc::new(TimestampMillisecondArray::from(vec![1_357_000_000_123])) as ArrayRef),
        ("n", Arc::new(Int64Array::from(vec![1 << 40]))),
        ("new", words(vec!["q"])),
    ]);
    let third = sourced("new", Arc::new(LargeStringArray::from(vec!["r"])));
    for (name, batch) in
        [("a.parquet", first.unwrap()), ("b.parquet", second.unwrap()), ("c.parquet", third)]
    {
        parquet_file(&data.path().join(name), &batch, 1);
    }
    let source = open(&data, "*.parquet").unwrap();
    let found: Vec<String> =
        types(&source).iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let inner = r#"s Struct("x": Int64, "y": Utf8View)"#;
    assert_eq!(found, ["n Int64", "t Timestamp(ms)", inner, "z Utf8View", "new Utf8View"]);
    let expected = text(&[
        &["1", "2013-01-01T00:00:00", "{x: 1, y: ∅}", "∅", "∅"],
        &["2", "2013-01-02T00:00:00", "{x: 2, y: ∅}", "∅", "∅"],
        &["1099511627776", "2013-01-01T00:26:40.123", "{x: 1099511627776, y: w}", "late", "q"],
        &["∅", "∅", "∅", "∅", "r"],
    ]);
    assert_eq!(rows(&source), expected);
    assert_eq!(read_column(&source, "new").unwrap(), ["∅", "∅", "q", "r"]);
    let none = read(&source, 1, &wanted(&source, &[])).unwrap().0;
    assert_eq!(none.len(), 4);
}

#[test]
fn parquet_columns_that_do_not_unify_are_an_error_where_they_are_read() {
    let data = folder(&[]);
    let batch = |n: ArrayRef| {
        let k: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        RecordBatch::try_from_iter([("k", k), ("n", n)]).unwrap()
    };
    let write = |name: &str, n: ArrayRef| {
        parquet_file(&data.path().join(name), &batch(n), 10);
    };
    write("a.parquet", Arc::new(Int64Array::from(vec![1])));
    write("b.parquet", Arc::new(Int32Array::from(vec![1])));
    write("c.parquet", Arc::new(StringArray::from(vec!["x"])));
    let source = open(&data, "*.parquet").unwrap();
    assert_eq!(read_column(&source, "k").unwrap(), ["1", "1", "1"]);
    let differ = message(read_column(&source, "n"));
    for part in [
        "c.parquet` does not go with `",
        "a.parquet`: column `n` is TEXT, not BIGINT",
        "hint: --schema 'n TEXT'",
    ] {
        assert!(differ.contains(part), "{part}: {differ}");
    }
    assert!(source.column_error(0).is_none() && source.column_error(1).is_some());
    let mut as_text = spec(&data, "*.parquet");
    let field = |kind| Some(Arc::new(Schema::new(vec![Field::new("n", kind, true)])));
    as_text.declared_schema = field(DataType::Utf8View);
    let source = Arc::new(Source::open(&as_text).unwrap());
    assert_eq!(read_column(&source, "n").unwrap(), ["1", "1", "x"]);
    as_text.declared_schema = field(DataType::Int64);
    let refused = message(Source::open(&as_text));
    assert!(
        refused.contains("column `n` is TEXT in parquet and cannot be read as BIGINT"),
        "{refused}"
    );

    // The error names the location of a nested value.
    let inner = |array: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new("x", array.data_type().clone(), true));
        Arc::new(StructArray::from(vec![(field, array)]))
    };
    let other = folder(&[]);
    let ints = sourced("s", inner(Arc::new(Int64Array::from(vec![1]))));
    let flags = sourced("s", inner(Arc::new(BooleanArray::from(vec![true]))));
    parquet_file(&other.path().join("a.parquet"), &ints, 10);
    parquet_file(&other.path().join("b.parquet"), &flags, 10);
    let differ = message(rows_or_error(&open(&other, "*.parquet").unwrap()));
    assert!(differ.contains("`x` in column `s` is BOOLEAN, not BIGINT"), "{differ}");
}

fn rows_or_error(source: &Arc<Source>) -> Result<Rows> {
    read(source, 1 << 20, &ReadOptions::default()).map(|(rows, _)| rows)
}

#[test]
fn a_value_that_the_wider_type_does_not_hold_is_an_error_that_names_both_files() {
    let data = folder(&[]);
    let long: ArrayRef = Arc::new(Int64Array::from(vec![(1 << 53) + 1]));
    parquet_file(&data.path().join("a.parquet"), &sourced("n", long), 10);
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
    parquet_file(&data.path().join("b.parquet"), &sourced("n", floats), 10);
    let source = open(&data, "*.parquet").unwrap();
    let message = message(rows_or_error(&source));
    for part in ["a.parquet", "b.parquet", "column `n`", "9007199254740993 would be rounded"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // With a declared type, a float is rounded as everywhere.
    let mut asked = spec(&data, "*.parquet");
    let field = Field::new("n", DataType::Float64, true);
    asked.declared_schema = Some(Arc::new(Schema::new(vec![field])));
    let source = Arc::new(Source::open(&asked).unwrap());
    assert_eq!(rows(&source), text(&[&["9007199254740992.0"], &["0.5"]]));
}

// ---------------------------------------------------------------------- against a model

/// Columns: a number, a text, a time and a truth, each narrow or wide where it can be.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
struct ModelFile {
    /// The columns of the file in its order, and whether each is wide.
    columns: Vec<(usize, bool)>,
    rows: Vec<[Option<u32>; 4]>,
}

fn model_file() -> impl Strategy<Value = ModelFile> {
    let order = Just((0..4usize).collect::<Vec<_>>()).prop_shuffle();
    let wide = prop::array::uniform4(any::<bool>());
    let value = || prop::option::weighted(0.8, 0..100u32);
    let rows = prop::collection::vec(prop::array::uniform4(value()), 0..6);
    (order, 1..5usize, wide, rows).prop_map(|(order, count, wide, rows)| ModelFile {
        columns: order.into_iter().take(count).map(|column| (column, wide[column])).collect(),
        rows,
    })
}

/// Formats a value as it is written.
fn written(column: usize, wide: bool, value: u32) -> String {
    let day = value % 28 + 1;
    match (column, wide) {
        (0, false) => value.to_string(),
        (0, true) => format!("{value}.5"),
        (1, _) => format!("t{value}, \u{e9}"),
        (2, false) => format!("2013-01-{day:02}"),
        (2, true) => format!("2013-01-{day:02} 10:00:00"),
        _ => value.is_multiple_of(2).to_string(),
    }
}

/// Formats a value as it is read from a column that is wide in some file.
fn expected(column: usize, wide: bool, any_wide: bool, value: u32) -> String {
    let text = written(column, wide, value);
    match (column, wide, any_wide) {
        (0, false, true) => format!("{text}.0"),
        (2, false, true) => format!("{text}T00:00:00"),
        (2, true, _) => text.replace(' ', "T"),
        _ => text,
    }
}

/// Returns the table that the files are together. The arguments define, by format, the files whose columns
/// count and the files whose values count for types.
fn model(
    files: &[ModelFile],
    has: impl Fn(&ModelFile) -> bool,
    shows: impl Fn(&ModelFile, usize) -> bool,
) -> (Vec<String>, Rows) {
    let mut order: Vec<usize> = Vec::new();
    let mut any_wide = [false; 4];
    for file in files.iter().filter(|file| has(file)) {
        for (column, wide) in &file.columns {
            if !order.contains(column) {
                order.push(*column);
            }
            any_wide[*column] |= *wide && shows(file, *column);
        }
    }
    let mut rows = Rows::new();
    for file in files {
        for row in &file.rows {
            let value = |column: &usize| {
                let (_, wide) = file.columns.iter().find(|(own, _)| own == column)?;
                Some(expected(*column, *wide, any_wide[*column], row[*column]?))
            };
            rows.push(order.iter().map(|c| value(c).unwrap_or_else(|| "∅".into())).collect());
        }
    }
    (order.iter().map(|column| NAMES[*column].to_owned()).collect(), rows)
}

fn has_values(file: &ModelFile, column: usize) -> bool {
    file.rows.iter().any(|row| row[column].is_some())
}

fn names(source: &Source) -> Vec<String> {
    source.schema().fields().iter().map(|field| field.name().clone()).collect()
}

fn parquet_column(file: &ModelFile, column: usize, wide: bool) -> ArrayRef {
    let values: Vec<Option<u32>> = file.rows.iter().map(|row| row[column]).collect();
    let day = |value: u32| i64::from(value % 28) + 15706;
    match (column, wide) {
        (0, false) => Arc::new(Int32Array::from_iter(values.iter().map(|v| v.map(|v| v as i32)))),
        (0, true) => {
            Arc::new(Float64Array::from_iter(values.iter().map(|v| v.map(|v| f64::from(v) + 0.5))))
        }
        (1, false) => {
            let texts: Vec<Option<String>> =
                values.iter().map(|value| value.map(|value| written(1, false, value))).collect();
            Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())
        }
        (1, true) => Arc::new(LargeStringArray::from_iter(
            values.iter().map(|value| value.map(|value| written(1, false, value))),
        )),
        (2, false) => {
            Arc::new(Date32Array::from_iter(values.iter().map(|v| v.map(|v| day(v) as i32))))
        }
        (2, true) => Arc::new(TimestampMicrosecondArray::from_iter(
            values.iter().map(|v| v.map(|v| (day(v) * 24 + 10) * 3_600_000_000)),
        )),
        (_, false) if values.iter().all(Option::is_none) => Arc::new(NullArray::new(values.len())),
        _ => Arc::new(BooleanArray::from_iter(values.iter().map(|v| v.map(|v| v % 2 == 0)))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn csv_files_are_what_a_model_by_name_says(
        files in prop::collection::vec(model_file(), 1..6),
        target in 1..200u64,
    ) {
        let data = folder(&[]);
        // Headers without anything in common are an error.
        let mut files = files;
        for file in &mut files {
            if file.columns.iter().all(|(column, _)| *column != 1) {
                file.columns.push((1, false));
            }
            // A null alone in its record would be a blank line.
            if let [(_, _)] = file.columns[..] {
                file.columns.push((3, false));
            }
        }
        for (index, file) in files.iter().enumerate() {
            let line = |values: Vec<String>| format!("{}\n", values.join(","));
            let mut text = line(file.columns.iter().map(|(c, _)| NAMES[*c].to_owned()).collect());
            for row in &file.rows {
                let value = |(column, wide): &(usize, bool)| {
                    let value = row[*column].map(|value| written(*column, *wide, value));
                    value.map_or_else(String::new, |value| format!("\"{value}\""))
                };
                text.push_str(&line(file.columns.iter().map(value).collect()));
            }
            write(data.path(), &format!("{index}.csv"), text.as_bytes());
        }
        let source = open(&data, "*.csv").unwrap();
        let (columns, expected) = model(&files, |_| true, has_values);
        prop_assert_eq!(names(&source), columns);
        prop_assert_eq!(read(&source, target, &ReadOptions::default()).unwrap().0, expected);
    }

    #[test]
    fn json_files_are_what_a_model_by_name_says(
        files in prop::collection::vec(model_file(), 1..6),
        target in 1..200u64,
    ) {
        prop_assume!(files.iter().any(|file| !file.rows.is_empty()));
        let data = folder(&[]);
        for (index, file) in files.iter().enumerate() {
            let mut text = String::new();
            for row in &file.rows {
                let member = |(column, wide): &(usize, bool)| {
                    let value = row[*column].map(|value| written(*column, *wide, value));
                    let value = match (column, value) {
                        (_, None) => "null".to_owned(),
                        (0 | 3, Some(value)) => value,
                        (_, Some(value)) => format!("\"{value}\""),
                    };
                    format!("\"{}\": {value}", NAMES[*column])
                };
                let members: Vec<String> = file.columns.iter().map(member).collect();
                text.push_str(&format!("{{{}}}\n", members.join(", ")));
            }
            write(data.path(), &format!("{index}.json"), text.as_bytes());
        }
        let source = open(&data, "*.json").unwrap();
        let (columns, expected) = model(&files, |file| !file.rows.is_empty(), has_values);
        prop_assert_eq!(names(&source), columns);
        prop_assert_eq!(read(&source, target, &ReadOptions::default()).unwrap().0, expected);
    }

    #[test]
    fn parquet_files_are_what_a_model_by_name_says(
        files in prop::collection::vec(model_file(), 1..6),
        target in 1..2000u64,
        group in 1..4usize,
    ) {
        let data = folder(&[]);
        for (index, file) in files.iter().enumerate() {
            let columns = file.columns.iter().map(|(column, wide)| {
                (NAMES[*column], parquet_column(file, *column, *wide), true)
            });
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            parquet_file(&data.path().join(format!("{index}.parquet")), &batch, group);
        }
        let source = open(&data, "*.parquet").unwrap();
        let (columns, expected) = model(&files, |_| true, |_, _| true);
        prop_assert_eq!(names(&source), columns);
        prop_assert_eq!(read(&source, target, &ReadOptions::default()).unwrap().0, expected);
    }
}
