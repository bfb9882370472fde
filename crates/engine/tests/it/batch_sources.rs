//! Tests of sources that provide record batches: tables in memory, registered formats and rowfiles.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeBinaryArray, Int32Array, Int64Array,
    LargeStringArray, ListArray, NullArray, RecordBatch, RecordBatchIterator, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use tidemill_engine::formats::{
    BoxedBatchReader, BoxedHostError, RegisteredFormatReader, RegisteredFormatWriter,
    register_format,
};
use tidemill_engine::sink::{Sink, SinkSpec};
use tidemill_engine::source::{MemoryRows, SourceSpec};
use tidemill_engine::{Error, NamedSource, Query, QueryPlan, RunId};

use crate::common::{Folder, Random, collect_answer, run_query, settings, string_rows};

fn memory_source(name: &str, given: MemoryRows) -> NamedSource {
    let given = Some(Arc::new(given));
    NamedSource {
        name: name.into(),
        spec: SourceSpec { url: name.into(), memory_rows: given, ..SourceSpec::default() },
    }
}

fn query_over_sources(sources: Vec<NamedSource>, sql: &str) -> Query {
    Query { sql: sql.into(), sources, ..Query::default() }
}

/// Returns numbers from `first` on, a category for each, and columns in array layouts that files never have.
fn event_batch(first: i64, rows: i64) -> RecordBatch {
    let names = ["ann", "bob", "eve"];
    let name = |n: i64| names[(n % 3) as usize];
    let keys: Int32Array = (0..rows).map(|n| Some(((first + n) % 3) as i32)).collect();
    let category =
        DictionaryArray::<Int32Type>::new(keys, Arc::new(StringArray::from(names.to_vec())));
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from_iter_values(first..first + rows)) as ArrayRef),
        ("who", Arc::new(category)),
        ("large", Arc::new(LargeStringArray::from_iter_values((first..first + rows).map(name)))),
        ("nothing", Arc::new(NullArray::new(rows as usize))),
    ])
    .unwrap()
}

fn event_table() -> MemoryRows {
    // More than one split, with batches larger and smaller than the engine's.
    let sizes = [1, 20_000, 0, 3, 9000, 70_000];
    let mut first = 0;
    let batches: Vec<RecordBatch> = sizes
        .map(|rows| {
            first += rows;
            event_batch(first - rows, rows)
        })
        .into();
    MemoryRows::from_table(batches[0].schema(), batches)
}

const EVENT_TABLE_ROWS: i64 = 1 + 20_000 + 3 + 9000 + 70_000;

#[test]
fn memory_table_is_queried_like_a_file() {
    let ask = |sql: &str| {
        run_query(&query_over_sources(vec![memory_source("df", event_table())], sql), &settings())
            .unwrap()
    };
    let sql = "SELECT who, count(*) AS c, count(nothing) AS z, sum(n) AS s, unique(large) AS u \
        FROM df GROUP BY who ORDER BY who";
    let answer = ask(sql);
    let expected: Vec<Vec<String>> = (0..3)
        .map(|kind| {
            let own: Vec<i64> = (0..EVENT_TABLE_ROWS).filter(|n| n % 3 == kind).collect();
            let name = ["ann", "bob", "eve"][kind as usize];
            let (count, sum) = (own.len().to_string(), own.iter().sum::<i64>().to_string());
            vec![name.into(), count, "0".into(), sum, "1".into()]
        })
        .collect();
    assert_eq!(answer.rows(), expected);
    let coverage = answer.coverage;
    assert!(coverage.complete && coverage.mergeable && coverage.splits.total > 1);
    assert_eq!((coverage.rows.done, coverage.files), (EVENT_TABLE_ROWS as u64, 1));
    assert_eq!(coverage.bytes.done, coverage.bytes.total);

    assert_eq!(ask("SELECT count(*) FROM df").single_value(), EVENT_TABLE_ROWS.to_string());
    let rows = ask("SELECT n, large FROM df").rows();
    let in_order = rows.iter().enumerate().all(|(at, row)| row[0] == at.to_string());
    assert!(in_order && rows.len() == EVENT_TABLE_ROWS as usize);
    let some = ask("SELECT large, n FROM df WHERE who = 'bob' AND n > 98990 LIMIT 2").rows();
    assert_eq!(some, string_rows(&[&["bob", "98992"], &["bob", "98995"]]));
    // Columns of nulls take no memory, yet their rows count.
    let nulls: ArrayRef = Arc::new(NullArray::new(7));
    let nulls = RecordBatch::try_from_iter([("x", nulls)]).unwrap();
    let nulls =
        || memory_source("nulls", MemoryRows::from_table(nulls.schema(), vec![nulls.clone()]));
    let count = crate::common::run_query(
        &query_over_sources(vec![nulls()], "SELECT count(*) FROM nulls"),
        &settings(),
    );
    assert_eq!(count.unwrap().single_value(), "7");
}

#[test]
fn empty_memory_table_has_its_columns() {
    let batch = event_batch(0, 0);
    for batches in [vec![], vec![batch.clone()]] {
        let source = memory_source("df", MemoryRows::from_table(batch.schema(), batches));
        let answer = run_query(
            &query_over_sources(vec![source], "SELECT count(*), max(who) FROM df"),
            &settings(),
        );
        assert_eq!(answer.unwrap().rows(), string_rows(&[&["0", "∅"]]));
    }
}

#[test]
fn memory_table_is_the_build_side_of_a_join_with_files() {
    let folder = Folder::new();
    let mut events = String::from("who,page\n");
    (0..3000)
        .for_each(|n| events.push_str(&format!("{},{}\n", ["ann", "bob", "joe"][n % 3], n % 5)));
    folder.write("events.csv", events);
    let columns: [(&str, ArrayRef); 2] = [
        ("who", Arc::new(StringArray::from(vec!["ann", "bob"]))),
        ("city", Arc::new(StringArray::from(vec!["Rome", "Oslo"]))),
    ];
    let people = RecordBatch::try_from_iter(columns).unwrap();
    let people = memory_source("people", MemoryRows::from_table(people.schema(), vec![people]));
    let sql = folder.substitute_path(
        "SELECT city, count(*) AS n FROM '$/events.csv' LEFT JOIN people USING (who) GROUP BY city \
         ORDER BY city",
    );
    let plan = QueryPlan::new(&query_over_sources(vec![people], &sql), &settings()).unwrap();
    let explain = plan.explain().unwrap();
    assert_eq!(explain.path, "partial tables", "{}", explain.why);
    assert!(explain.why.contains("`people` held in memory"), "{}", explain.why);
    let rows = collect_answer(plan.run().unwrap()).unwrap().rows();
    assert_eq!(rows, string_rows(&[&["Oslo", "1000"], &["Rome", "1000"], &["∅", "1000"]]));
}

#[test]
fn stream_is_read_once_and_its_error_is_reported() {
    let stream = |batches: Vec<Result<RecordBatch, arrow::error::ArrowError>>| {
        MemoryRows::from_stream(Box::new(RecordBatchIterator::new(
            batches,
            event_batch(0, 0).schema(),
        )))
    };
    let three =
        || vec![Ok(event_batch(0, 10)), Ok(event_batch(10, 9000)), Ok(event_batch(9010, 3))];
    let source = memory_source("s", stream(three()));
    let answer = run_query(
        &query_over_sources(vec![source.clone()], "SELECT who, count(*) FROM s GROUP BY who"),
        &settings(),
    );
    assert_eq!(answer.unwrap().coverage.rows.done, 9013);
    let again =
        run_query(&query_over_sources(vec![source], "SELECT n FROM s"), &settings()).err().unwrap();
    assert!(again.to_string().contains("`s` is a stream and can be read only once"), "{again}");
    let twice = memory_source("s", stream(three()));
    let sql = "SELECT count(*) FROM s a JOIN s b ON a.n = b.n";
    assert!(run_query(&query_over_sources(vec![twice], sql), &settings()).is_err());

    let failure = arrow::error::ArrowError::ExternalError("the producer broke".into());
    let failing = memory_source("s", stream(vec![Ok(event_batch(0, 10)), Err(failure)]));
    let error =
        run_query(&query_over_sources(vec![failing], "SELECT count(*) FROM s"), &settings())
            .err()
            .unwrap();
    assert!(error.to_string().contains("the producer broke"), "{error}");
}

#[test]
fn duplicate_column_names_get_a_number() {
    let field = |name: &str| Field::new(name, DataType::Int64, true);
    let schema = Arc::new(Schema::new(vec![field("a"), field("b"), field("a")]));
    let columns = (1..=3).map(|n| Arc::new(Int64Array::from(vec![n])) as ArrayRef).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let source = memory_source("df", MemoryRows::from_table(schema, vec![batch]));
    let answer =
        run_query(&query_over_sources(vec![source], "SELECT a_1, b, a FROM df"), &settings())
            .unwrap();
    assert_eq!(answer.rows(), string_rows(&[&["3", "2", "1"]]));
}

#[test]
fn fixed_size_binary_casts_to_text_and_bytea() {
    let values = [Some(b"ab"), None].into_iter();
    let values = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 2).unwrap();
    let batch = RecordBatch::try_from_iter([("f", Arc::new(values) as ArrayRef)]).unwrap();
    for (what, expected) in [
        ("CAST(f AS TEXT)", "ab"),
        ("f::VARCHAR", "ab"),
        ("TRY_CAST(f AS TEXT)", "ab"),
        ("upper(CAST(f AS TEXT))", "AB"),
        ("hex(CAST(f AS BYTEA))", "6162"),
    ] {
        let source =
            memory_source("df", MemoryRows::from_table(batch.schema(), vec![batch.clone()]));
        let sql = format!("SELECT {what} AS x FROM df");
        let answer = run_query(&query_over_sources(vec![source], &sql), &settings()).unwrap();
        assert_eq!(answer.rows(), string_rows(&[&[expected], &["∅"]]), "{what}");
    }
}

#[test]
fn uuids_are_compared_with_text() {
    let values = [Some([0xab; 16]), None, Some([1; 16])].into_iter();
    let values = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).unwrap();
    let extension = ("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned());
    let field = Field::new("u", DataType::FixedSizeBinary(16), true);
    let field = field.with_metadata([extension].into());
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(values)]).unwrap();
    let uuid = "abababab-abab-abab-abab-abababababab";
    for condition in
        [format!("u = '{uuid}'"), format!("u IN ('x', '{uuid}')"), "u LIKE 'ab%'".into()]
    {
        let source =
            memory_source("df", MemoryRows::from_table(Arc::clone(&schema), vec![batch.clone()]));
        let sql = format!("SELECT u FROM df WHERE {condition}");
        let answer = run_query(&query_over_sources(vec![source], &sql), &settings()).unwrap();
        assert_eq!(answer.rows(), string_rows(&[&[uuid]]), "{condition}");
    }
}

/// A format with records of eight bytes, `NNNNN;K` and a line end: a number and a key.
struct FixedWidthFormat {
    is_splittable: bool,
    /// Byte range and columns of each read.
    read_requests: ReadRequests,
}

fn fixed_width_schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![field("n", DataType::Int32), field("key", DataType::Utf8)]))
}

impl RegisteredFormatReader for FixedWidthFormat {
    fn schema(&self, path: &str, _: u64) -> Result<SchemaRef, BoxedHostError> {
        match path.contains("broken") {
            true => Err("no such luck".into()),
            false => Ok(fixed_width_schema()),
        }
    }

    fn read(
        &self,
        path: &str,
        bytes: Range<u64>,
        columns: &[&str],
    ) -> Result<BoxedBatchReader, BoxedHostError> {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        self.read_requests.lock().unwrap().push((bytes.clone(), columns));
        let data = std::fs::read(path)?;
        let records =
            data.chunks(8).enumerate().filter(|(at, _)| bytes.contains(&(*at as u64 * 8)));
        let (mut numbers, mut keys) = (Vec::new(), Vec::new());
        for (_, record) in records {
            let record = std::str::from_utf8(record)?;
            numbers.push(record[..5].parse::<i32>()?);
            keys.push(record[6..7].to_owned());
        }
        let mut batches = Vec::new();
        for at in (0..numbers.len()).step_by(10_000) {
            let end = (at + 10_000).min(numbers.len());
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int32Array::from(numbers[at..end].to_vec())),
                Arc::new(StringArray::from(keys[at..end].to_vec())),
            ];
            batches.push(Ok(RecordBatch::try_new(fixed_width_schema(), columns)?));
        }
        if path.contains("late") {
            batches.push(Err(arrow::error::ArrowError::ExternalError("out of luck".into())));
        }
        if path.contains("lacking") {
            let other: ArrayRef = Arc::new(NullArray::new(1));
            batches.push(Ok(RecordBatch::try_from_iter([("other", other)])?));
        }
        Ok(Box::new(RecordBatchIterator::new(batches, fixed_width_schema())))
    }

    fn is_splittable(&self) -> bool {
        self.is_splittable
    }
}

impl RegisteredFormatWriter for FixedWidthFormat {
    fn write(&self, path: &Path, batches: BoxedBatchReader) -> Result<(), BoxedHostError> {
        if !self.is_splittable {
            return Ok(());
        }
        let mut out = String::new();
        for batch in batches {
            let batch = batch?;
            let numbers = batch.column(0).as_primitive::<Int32Type>();
            let keys = batch.column(1).as_string_view();
            for (number, key) in numbers.values().iter().zip(keys) {
                if *number < 0 {
                    return Err(format!("{number} is below zero").into());
                }
                out.push_str(&format!("{number:05};{}\n", key.unwrap_or("-")));
            }
        }
        Ok(std::fs::write(path, out)?)
    }
}

type ReadRequests = Arc<Mutex<Vec<(Range<u64>, Vec<String>)>>>;

fn register_fixed_width_format(name: &str, is_splittable: bool) -> ReadRequests {
    let asked = ReadRequests::default();
    let format = || FixedWidthFormat { is_splittable, read_requests: Arc::clone(&asked) };
    register_format(name, None, Some(Box::new(format())), Some(Box::new(format()))).unwrap();
    asked
}

fn random_records(random: &mut Random, count: usize) -> (String, Vec<(i32, char)>) {
    let records: Vec<(i32, char)> = (0..count)
        .map(|_| (random.next_below(90_000) as i32, (b'a' + random.next_below(4) as u8) as char))
        .collect();
    (records.iter().map(|(n, key)| format!("{n:05};{key}\n")).collect(), records)
}

#[test]
fn registered_format_is_read_in_splits() {
    let mut random = Random(3);
    for (name, is_splittable) in [("fixed-ranges", true), ("fixed-whole", false)] {
        let asked = register_fixed_width_format(name, is_splittable);
        let folder = Folder::new();
        let (one, mut all) = random_records(&mut random, 400_000);
        let (two, more) = random_records(&mut random, 1000);
        all.extend(more);
        folder.write(&format!("day=1/one.{name}"), one);
        folder.write(&format!("day=2/two.{name}"), two);
        let answer = folder.run_sql(&format!(
            "SELECT day, key, count(*) AS c, sum(n) AS s FROM '$/*/*.{name}' GROUP BY day, key \
             ORDER BY day, key"
        ));
        let mut expected = Vec::new();
        for (day, own) in [(1, &all[..400_000]), (2, &all[400_000..])] {
            for key in 'a'..='d' {
                let own: Vec<i64> =
                    own.iter().filter(|(_, k)| *k == key).map(|(n, _)| i64::from(*n)).collect();
                let sum = own.iter().sum::<i64>();
                expected.push(vec![
                    day.to_string(),
                    key.into(),
                    own.len().to_string(),
                    sum.to_string(),
                ]);
            }
        }
        assert_eq!(answer.rows(), expected);
        let splits = answer.coverage.splits.total;
        assert_eq!(splits > 2, is_splittable, "{splits} splits");
        assert_eq!(answer.coverage.rows.done, 401_000);
        let numbers = folder.run_sql(&format!("SELECT n FROM '$/*/*.{name}'")).rows();
        let in_order = numbers.iter().zip(&all).all(|(row, (n, _))| row[0] == n.to_string());
        assert!(in_order && numbers.len() == all.len());
        // The query asks the reader only for the columns that it uses.
        let asked = asked.lock().unwrap();
        assert!(asked.iter().any(|(_, columns)| *columns == ["n"]), "{:?}", asked.last());
        assert!(
            asked.iter().any(|(_, columns)| *columns == ["key", "n"] || *columns == ["n", "key"])
        );
    }
}

#[test]
fn registered_reader_errors_name_the_file() {
    register_fixed_width_format("fixed-bad", true);
    let folder = Folder::new();
    folder.write("broken.fixed-bad", "00001;a\n");
    folder.write("late.fixed-bad", "00001;a\n");
    folder.write("lacking.fixed-bad", "00001;a\n");
    folder.write("odd.fixed-bad", "0000x;a\n");
    for (file, part) in [
        ("broken", "as `fixed-bad`: no such luck"),
        ("late", "as `fixed-bad`: out of luck"),
        ("lacking", "without the column `n`"),
        ("odd", "invalid digit"),
    ] {
        let error = folder.sql_error(&format!("SELECT sum(n) FROM '$/{file}.fixed-bad'"));
        assert!(error.contains(part) && error.contains(&format!("{file}.fixed-bad`")), "{error}");
    }
    // A registered format refuses unknown columns, as a file does.
    let error = folder.sql_error("SELECT m FROM '$/late.fixed-bad'");
    assert!(error.contains("`m`"), "{error}");
}

fn write_batch(folder: &Folder, url: &str, batch: &RecordBatch) -> Result<u64, Error> {
    let spec = SinkSpec::new(folder.substitute_path(url));
    let mut sink = Sink::create(&spec, batch.schema(), &RunId::new(), 1 << 20)?;
    sink.write(batch)?;
    Ok(sink.commit()?.files)
}

fn numbers_with_parity(numbers: Vec<i32>) -> RecordBatch {
    let keys = numbers.iter().map(|n| if n % 2 == 0 { "e" } else { "o" });
    let columns: [(&str, ArrayRef); 2] = [
        ("n", Arc::new(Int32Array::from(numbers.clone()))),
        ("key", Arc::new(arrow::array::StringViewArray::from_iter_values(keys))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn registered_format_writes_one_and_many_files() {
    register_fixed_width_format("fixed-out", true);
    let folder = Folder::new();
    assert_eq!(
        write_batch(&folder, "$/one.fixed-out", &numbers_with_parity(vec![3, 1, 2])).unwrap(),
        1
    );
    let text = std::fs::read_to_string(folder.path().join("one.fixed-out")).unwrap();
    assert_eq!(text, "00003;o\n00001;o\n00002;e\n");
    assert_eq!(
        write_batch(&folder, "$/{key}/x.fixed-out", &numbers_with_parity((0..50_000).collect()))
            .unwrap(),
        2
    );
    let back =
        folder.run_sql("SELECT key, count(*), sum(n) FROM '$/?/x.fixed-out' GROUP BY 1 ORDER BY 1");
    assert_eq!(back.rows()[0], ["e", "25000", "624975000"]);

    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let error =
        write_batch(&folder, "$/two.fixed-out", &numbers_with_parity(vec![1, -1, 2])).unwrap_err();
    assert!(error.to_string().contains("-1 is below zero"), "{error}");
    register_fixed_width_format("fixed-none", false);
    let error =
        write_batch(&folder, "$/two.fixed-none", &numbers_with_parity(vec![1])).unwrap_err();
    assert!(error.to_string().contains("its writer has made no file"), "{error}");
    assert_eq!(names(), before);
}

#[test]
fn format_names_and_suffixes_are_unique() {
    let reader = || -> Option<Box<dyn RegisteredFormatReader>> {
        Some(Box::new(FixedWidthFormat {
            is_splittable: true,
            read_requests: ReadRequests::default(),
        }))
    };
    for (name, suffix, part) in [
        ("csv", None, "is there already"),
        ("text", None, "is there already"),
        ("Pcap", None, "cannot name a format"),
        ("", None, "cannot name a format"),
        ("mine", Some("jsonl"), "suffix of format `json`"),
        ("mine", Some("tar.x"), "cannot be a format's suffix"),
    ] {
        let error = register_format(name, suffix, reader(), None).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
    assert!(register_format("mine", None, None, None).is_err());
    register_format("first", Some("own"), reader(), None).unwrap();
    let error = register_format("second", Some("own"), reader(), None).unwrap_err().to_string();
    assert!(error.contains("suffix of format `first`"), "{error}");
    // A second registration of a name replaces the first.
    register_format("first", Some("own"), reader(), None).unwrap();
    let folder = Folder::new();
    let error =
        write_batch(&folder, "$/x.own", &numbers_with_parity(vec![1])).unwrap_err().to_string();
    assert!(error.contains("registered without a writer"), "{error}");
}

#[test]
fn rowfiles_are_written_and_read_back() {
    let folder = Folder::new();
    let rows = event_batch(0, 60_000);
    let rows = rows.project(&[0, 1, 2]).unwrap();
    assert_eq!(write_batch(&folder, "$/{who}.rowfile", &rows).unwrap(), 3);
    let sql = "SELECT who, count(*) AS c, sum(n) AS s, max(large) AS l FROM '$/*.rowfile' GROUP BY \
        who ORDER BY who";
    let answer = folder.run_sql(sql);
    assert_eq!(answer.rows()[1], ["bob", "20000", "599990000", "bob"]);
    assert!(answer.coverage.complete && answer.coverage.mergeable);
    assert_eq!(folder.run_sql("SELECT count(*) FROM '$/*.rowfile'").single_value(), "60000");
    let some = folder.run_sql("SELECT n FROM '$/ann.rowfile' WHERE n > 59990").rows();
    assert_eq!(some, string_rows(&[&["59991"], &["59994"], &["59997"]]));
    // Files with different columns are unified as in other formats.
    let more = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]);
    assert_eq!(write_batch(&folder, "$/zoe.rowfile", &more.unwrap()).unwrap(), 1);
    let nobody = folder.run_sql("SELECT n, who FROM '$/*.rowfile' WHERE who IS NULL").rows();
    assert_eq!(nobody, string_rows(&[&["1", "∅"]]));

    let path = folder.path().join("ann.rowfile");
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, &sound[..sound.len() - 10]).unwrap();
    let error = folder.sql_error(sql);
    assert!(error.contains("ann.rowfile`") && error.contains("cut off"), "{error}");
    let mut bytes = sound;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = folder.sql_error(sql);
    assert!(error.contains("ann.rowfile`"), "{error}");
    std::fs::write(&path, "n,who\n1,ann\n").unwrap();
    let error = folder.sql_error(sql);
    assert!(error.contains("is not a rowfile"), "{error}");
}

#[test]
fn fields_of_a_null_struct_are_null() {
    let folder = Folder::new();
    let inner = Arc::new(Field::new("x", DataType::Int64, false));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 0, 3]));
    let nulls = NullBuffer::from(vec![true, false, true]);
    let column = StructArray::new(vec![inner].into(), vec![values], Some(nulls));
    let lists = ListArray::new(
        Arc::new(Field::new("item", column.data_type().clone(), true)),
        OffsetBuffer::from_lengths([2, 1, 0]),
        Arc::new(column.clone()),
        None,
    );
    let batch = RecordBatch::try_from_iter([
        ("s", Arc::new(column) as ArrayRef),
        ("items", Arc::new(lists)),
    ])
    .unwrap();
    let answers = |query: &Query| {
        let answer = run_query(query, &settings()).unwrap();
        assert_eq!(answer.rows(), string_rows(&[&["2", "1", "1", "∅"]]));
    };
    let sql = "SELECT count(s.x) AS n, count(*) FILTER (WHERE s.x IS NULL) AS gone, \
        min(s.x) AS least, min(items[2]['x']) AS other FROM df";
    let table = MemoryRows::from_table(batch.schema(), vec![batch.clone()]);
    answers(&query_over_sources(vec![memory_source("df", table)], sql));
    for name in ["a.rowfile", "a.arrow", "a.parquet"] {
        let path = folder.path().join(name);
        let mut sink = Sink::create(
            &SinkSpec::new(path.display().to_string()),
            batch.schema(),
            &RunId::new(),
            1 << 20,
        )
        .unwrap();
        sink.write(&batch).unwrap();
        sink.commit().unwrap();
        answers(&query_over_sources(
            vec![],
            &sql.replace("FROM df", &format!("FROM '{}'", path.display())),
        ));
    }
}
