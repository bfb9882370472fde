//! Tests of rowfiles as sources: pruned blocks are not read, and salvage reads the intact blocks of damaged
//! files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int32Array, Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field};
use tidemill_engine::convert::Conversion;
use tidemill_engine::sink::{OutputFormat, SinkSpec};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, Result, RunId};
use tidemill_rowfile::{BlockInfo, Codec, Reader, Schema, WriteOptions, Writer};

use crate::common::{
    Folder, QueryAnswer, Random, collect_answer, run_query, settings, string_rows,
};

/// Writes a file with blocks of `rows` rows.
fn write_rowfile(
    folder: &Folder,
    name: &str,
    columns: Vec<(&str, ArrayRef)>,
    rows: usize,
) -> PathBuf {
    write_rowfile_with(folder, name, columns, rows, WriteOptions::default())
}

fn write_rowfile_with(
    folder: &Folder,
    name: &str,
    columns: Vec<(&str, ArrayRef)>,
    rows: usize,
    options: WriteOptions,
) -> PathBuf {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let schema = Schema::from_arrow(&batch.schema()).unwrap();
    let mut writer = Writer::new(Vec::new(), &schema, options).unwrap();
    for first in (0..batch.num_rows()).step_by(rows) {
        writer.write(&batch.slice(first, rows.min(batch.num_rows() - first))).unwrap();
        writer.flush().unwrap();
    }
    folder.write(name, writer.finish().unwrap())
}

fn int_array(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

/// Returns the count that a query answers, and the number of rows that it read.
fn count_and_rows_read(folder: &Folder, filter: &str) -> (String, u64) {
    let sql = format!("SELECT count(*) FROM '$/**/*.rowfile' WHERE {filter}");
    let answer = folder.run_sql(&sql);
    (answer.single_value(), answer.coverage.rows.done)
}

#[test]
fn blocks_of_differing_files_are_pruned_by_statistics() {
    let folder = Folder::new();
    let noon = 1_357_041_600_000;
    let user = |names: &[&str]| -> ArrayRef {
        let names: ArrayRef = Arc::new(StringArray::from(names.to_vec()));
        Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("name", DataType::Utf8, true)),
            names,
        )]))
    };
    write_rowfile(
        &folder,
        "a.rowfile",
        vec![
            ("id", Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef),
            ("t", Arc::new(TimestampMillisecondArray::from(vec![noon, noon + 1, noon + 2]))),
            ("user", user(&["ann", "bob", "joe"])),
        ],
        1,
    );
    write_rowfile(
        &folder,
        "b.rowfile",
        vec![
            ("extra", int_array(&[7, 8])),
            ("t", Arc::new(TimestampMicrosecondArray::from(vec![noon * 1000, noon * 1000 + 5]))),
            ("id", int_array(&[1 << 40, 2])),
        ],
        1,
    );
    for (filter, expected, rows) in [
        ("id = 2", "2", 2),
        ("id > 3", "1", 1),
        ("2 >= id", "3", 3),
        ("id IN (1, 3)", "2", 2),
        ("id BETWEEN 3 AND 4", "1", 1),
        ("id <> 2", "3", 3),
        ("NOT id > 1", "1", 1),
        ("extra = 7", "1", 1),
        ("extra > 0", "2", 2),
        ("extra IS NULL", "3", 3),
        ("extra IS NOT NULL", "2", 2),
        ("extra = 7 OR id = 3", "2", 2),
        ("coalesce(extra, 0) = 0", "3", 5),
        ("t = TIMESTAMP '2013-01-01 12:00:00'", "2", 2),
        ("t > TIMESTAMP '2013-01-01 12:00:00.001'", "1", 1),
        ("t > TIMESTAMP '2013-01-01 12:00:00' AND t < TIMESTAMP '2013-01-01 12:00:00.001'", "1", 1),
        ("\"user\".name = 'bob'", "1", 1),
        ("\"user\".name > 'bob' OR id > 3", "2", 2),
        ("\"user\".name = 'eve'", "0", 0),
        ("\"user\".name IS NULL", "2", 2),
        ("\"user\" IS NULL", "2", 5),
    ] {
        assert_eq!(count_and_rows_read(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
}

#[test]
fn partition_column_overrides_rowfile_column_in_pruning() {
    let folder = Folder::new();
    write_rowfile(
        &folder,
        "day=1/a.rowfile",
        vec![("day", int_array(&[9])), ("n", int_array(&[1]))],
        1,
    );
    write_rowfile(
        &folder,
        "day=2/b.rowfile",
        vec![("n", int_array(&[2])), ("day", int_array(&[1]))],
        1,
    );
    write_rowfile(&folder, "day=2/c.rowfile", vec![("n", int_array(&[3]))], 1);
    for (filter, expected, rows) in [
        ("day = 1", "1", 1),
        ("day = 2", "2", 2),
        ("day = 9", "0", 0),
        ("day = 2 AND n = 3", "1", 1),
        ("day IS NULL", "0", 0),
    ] {
        assert_eq!(count_and_rows_read(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
}

#[test]
fn column_names_with_dots_are_not_field_paths() {
    let folder = Folder::new();
    let inner: ArrayRef = int_array(&[1, 2]);
    let field = Arc::new(Field::new("b", DataType::Int64, true));
    let columns = vec![
        ("a.b", int_array(&[100, 200])),
        ("a", Arc::new(StructArray::from(vec![(field, inner)])) as ArrayRef),
    ];
    write_rowfile(&folder, "x.rowfile", columns, 1);
    assert_eq!(count_and_rows_read(&folder, "a.b = 1 OR \"a.b\" = 200").0, "2");
    assert_eq!(count_and_rows_read(&folder, "\"a.b\" = 100").0, "1");
    assert_eq!(count_and_rows_read(&folder, "a.b = 2 AND \"a.b\" = 200").0, "1");
}

/// Returns columns of every type that compares, some of their values null.
fn random_columns(random: &mut Random, rows: usize, narrow: bool) -> Vec<(&'static str, ArrayRef)> {
    fn with_random_nulls<T>(
        random: &mut Random,
        rows: usize,
        make: impl Fn(&mut Random) -> T,
    ) -> Vec<Option<T>> {
        // Some blocks have nulls alone, and some have none.
        let share = [0, 10, 50, 100][random.next_below(4) as usize];
        (0..rows).map(|_| (random.next_below(100) >= share).then(|| make(random))).collect()
    }
    let near = |random: &mut Random| random.next_below(20) as i64 - 10;
    let word = |random: &mut Random| {
        let tail = ["", "e", "é", "z", "\u{10FFFF}"][random.next_below(5) as usize];
        let long =
            ["", "a prefix of more than thirty-two bytes in all "][random.next_below(2) as usize];
        format!("{long}{}{tail}", ["a", "b", "ab", ""][random.next_below(4) as usize])
    };
    let float = |random: &mut Random| match random.next_below(12) {
        0 => -0.0,
        1 => 0.0,
        2 => f64::NAN,
        3 => f64::INFINITY,
        other => (other as f64 - 6.0) / 2.0,
    };
    let whole = with_random_nulls(random, rows, near);
    let whole: ArrayRef = match narrow {
        true => Arc::new(whole.iter().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        false => Arc::new(Int64Array::from(whole)),
    };
    let unsigned: UInt64Array =
        with_random_nulls(random, rows, |random| u64::MAX - random.next_below(5))
            .into_iter()
            .collect();
    let floats = with_random_nulls(random, rows, float);
    let floats: ArrayRef = match narrow {
        true => Arc::new(floats.iter().map(|x| x.map(|x| x as f32)).collect::<Float32Array>()),
        false => Arc::new(Float64Array::from(floats)),
    };
    let decimals: Decimal128Array =
        with_random_nulls(random, rows, |random| i128::from(near(random)) * 25)
            .into_iter()
            .collect();
    let dates: Date32Array =
        with_random_nulls(random, rows, |random| near(random) as i32).into_iter().collect();
    let hours = |random: &mut Random| near(random) * 3_600_000;
    let times = with_random_nulls(random, rows, hours);
    let times: ArrayRef = match narrow {
        true => Arc::new(TimestampMillisecondArray::from(times)),
        false => {
            let micros = times.iter().map(|time| time.map(|time| time * 1000));
            Arc::new(micros.collect::<TimestampMicrosecondArray>())
        }
    };
    let texts: StringArray = with_random_nulls(random, rows, word).into_iter().collect();
    let bytes = with_random_nulls(random, rows, |random| word(random).into_bytes());
    let bytes: BinaryArray = bytes.iter().map(Option::as_deref).collect();
    let bits: BooleanArray =
        with_random_nulls(random, rows, |random| random.next_below(2) == 0).into_iter().collect();
    let names: StringArray = with_random_nulls(random, rows, word).into_iter().collect();
    let ages: Int64Array = with_random_nulls(random, rows, near).into_iter().collect();
    let fields = vec![
        Arc::new(Field::new("name", DataType::Utf8, true)),
        Arc::new(Field::new("age", DataType::Int64, true)),
    ];
    let nulls =
        with_random_nulls(random, rows, |_| ()).iter().map(Option::is_some).collect::<Vec<_>>();
    let arrays: Vec<ArrayRef> = vec![Arc::new(names), Arc::new(ages)];
    let user = StructArray::new(fields.into(), arrays, Some(nulls.into()));
    let mut all: Vec<(&str, ArrayRef)> = vec![
        ("whole", whole),
        ("unsigned", Arc::new(unsigned)),
        ("float", floats),
        ("exact", Arc::new(decimals.with_precision_and_scale(10, 2).unwrap())),
        ("day", Arc::new(dates)),
        ("at", times),
        ("word", Arc::new(texts)),
        ("raw", Arc::new(bytes)),
        ("bit", Arc::new(bits)),
        ("person", Arc::new(user)),
    ];
    // Files lack columns, and have them in another order.
    all.retain(|(name, _)| *name == "word" || random.next_below(5) > 0);
    let count = all.len();
    all.rotate_left(random.next_below(count as u64) as usize);
    all
}

fn random_comparison(random: &mut Random) -> String {
    let n = random.next_below(20) as i64 - 10;
    let word = ["a", "b", "ab", "", "aé", "a prefix of more than thirty-two bytes in all b"]
        [random.next_below(6) as usize];
    let (column, constant) = match random.next_below(11) {
        0 => ("whole", n.to_string()),
        1 => ("unsigned", (u64::MAX - random.next_below(5)).to_string()),
        2 => {
            ("float", ["0.0", "-1.5", "2.0", "'NaN'::DOUBLE"][random.next_below(4) as usize].into())
        }
        3 => ("exact", format!("{}", n as f64 / 4.0)),
        4 if n < 0 => ("day", format!("DATE '1969-12-{}'", 32 + n)),
        4 => ("day", format!("DATE '1970-01-{:02}'", n + 1)),
        5 => ("at", format!("TIMESTAMP '1970-01-01 {:02}:00:00'", n.abs())),
        6 => ("word", format!("'{word}'")),
        7 => ("raw", format!("CAST('{word}' AS BYTEA)")),
        8 => ("bit", ["true", "false"][random.next_below(2) as usize].into()),
        9 => ("person.name", format!("'{word}'")),
        _ => ("person.age", n.to_string()),
    };
    match random.next_below(10) {
        0 => format!("{column} IS NULL"),
        1 => format!("{column} IS NOT NULL"),
        2 => format!("{column} IN ({constant}, {constant})"),
        3 => format!("NOT {column} = {constant}"),
        4 => format!("{column} IS DISTINCT FROM {constant}"),
        _ => {
            let operator = ["=", "<>", "<", "<=", ">", ">="][random.next_below(6) as usize];
            format!("{column} {operator} {constant}")
        }
    }
}

#[test]
fn filters_give_the_same_rows_with_and_without_pruning() {
    let (mut skipped, mut asked) = (0, 0);
    for seed in 0..12 {
        let mut random = Random(seed);
        let (with, without) = (Folder::new(), Folder::new());
        for file in 0..3 {
            let rows = 1 + random.next_below(60) as usize;
            let narrow = random.next_below(2) == 0;
            let columns = random_columns(&mut random, rows, narrow);
            let block = 1 + random.next_below(6) as usize;
            let name = format!("{file}.rowfile");
            let options = WriteOptions { statistics: false, ..WriteOptions::default() };
            write_rowfile(&with, &name, columns.clone(), block);
            write_rowfile_with(&without, &name, columns, block, options);
        }
        for _ in 0..20 {
            let mut filter = random_comparison(&mut random);
            for _ in 0..random.next_below(3) {
                let joined = ["AND", "OR"][random.next_below(2) as usize];
                filter = format!("({filter}) {joined} ({})", random_comparison(&mut random));
            }
            let sql =
                format!("SELECT word, count(*) FROM '$/*.rowfile' WHERE {filter} GROUP BY word");
            let (one, two) =
                (with.try_run_sql(&sql, &settings()), without.try_run_sql(&sql, &settings()));
            match (one, two) {
                (Ok(one), Ok(two)) => {
                    assert_eq!(one.rows(), two.rows(), "seed {seed}: {filter}");
                    asked += 1;
                    skipped += u64::from(one.coverage.bytes.total < two.coverage.bytes.total);
                }
                // A column that none of the files has.
                (one, two) => {
                    let (one, two) = (one.err().unwrap(), two.err().unwrap());
                    assert!(one.to_string().contains("unknown column"), "{filter}: {one}");
                    assert!(two.to_string().contains("unknown column"), "{filter}: {two}");
                }
            }
        }
    }
    assert!(asked > 170 && skipped > 50, "{skipped} of {asked}");
}

#[test]
fn pruned_damaged_block_is_not_read() {
    let folder = Folder::new();
    let columns = vec![("id", int_array(&(0..100).collect::<Vec<_>>()))];
    let path = write_rowfile(&folder, "a.rowfile", columns, 10);
    let mut bytes = std::fs::read(&path).unwrap();
    let block = Reader::open(&path).unwrap().blocks()[3].clone();
    *bytes.get_mut(block.offset as usize + block.bytes as usize - 1).unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for (filter, expected, rows) in
        [("id < 30", "30", 30), ("id >= 40", "60", 60), ("id = 77", "1", 10)]
    {
        assert_eq!(count_and_rows_read(&folder, filter), (expected.to_owned(), rows), "{filter}");
    }
    for filter in ["id < 31", "id >= 39", "id = 35", "true"] {
        let sql = format!("SELECT count(*) FROM '$/a.rowfile' WHERE {filter}");
        let refusal = folder.sql_error(&sql);
        assert!(refusal.contains("a.rowfile` is damaged: block 3 at byte"), "{refusal}");
    }
}

// Salvage

fn query_with_salvage(folder: &Folder, url: &str, sql: &str) -> Result<QueryAnswer> {
    let spec = SourceSpec {
        url: folder.substitute_path(url),
        salvage_damaged: true,
        ..SourceSpec::default()
    };
    let sources = vec![NamedSource { name: "t".into(), spec }];
    run_query(&Query { sql: sql.into(), sources, ..Query::default() }, &settings())
}

#[test]
fn salvage_reads_a_truncated_file_up_to_its_last_whole_block() {
    let folder = Folder::new();
    let columns = vec![("id", int_array(&(0..50).collect::<Vec<_>>()))];
    let path = write_rowfile(&folder, "a.rowfile", columns, 10);
    let whole = std::fs::read(&path).unwrap();
    let blocks = Reader::open(&path).unwrap().blocks().to_vec();
    let end = |block: usize| (blocks[block].offset + u64::from(blocks[block].bytes)) as usize;
    folder.write("b.rowfile", &whole);
    for (length, rows, left) in
        [(end(4), 50, 0), (end(3) + 7, 40, 7), (end(0), 10, 0), (end(0) - 1, 0, end(0) - 1)]
    {
        std::fs::write(&path, &whole[..length]).unwrap();
        let refusal = folder.sql_error("SELECT sum(id) FROM '$/a.rowfile'");
        let blocks_left = rows / 10;
        assert!(refusal.contains("a.rowfile` was cut off: "), "{refusal}");
        let hint = format!("hint: --salvage reads the {blocks_left} whole block");
        assert!(refusal.contains(&hint), "{refusal}");

        let answer =
            query_with_salvage(&folder, "$/a.rowfile", "SELECT count(*), sum(id) FROM t").unwrap();
        let sum = (0..rows).sum::<usize>().to_string();
        let sum = if rows == 0 { "∅" } else { &sum };
        assert_eq!(answer.rows(), string_rows(&[&[&rows.to_string(), sum]]));
        let coverage = answer.coverage;
        let salvaged = &coverage.salvaged[0];
        assert!(!coverage.complete && salvaged.path.ends_with("a.rowfile"));
        assert_eq!(salvaged.blocks, blocks_left as u64);
        let left = if rows == 0 { left as u64 - blocks[0].offset } else { left as u64 };
        assert_eq!((salvaged.bytes_left_out, coverage.bytes.left_out), (left, left));
        let line = coverage.summary_line();
        assert!(
            line.starts_with("INCOMPLETE: ") && line.contains("a.rowfile` from byte"),
            "{line}"
        );
        // A whole file reports no salvage.
        let both = query_with_salvage(&folder, "$/*.rowfile", "SELECT count(*) FROM t").unwrap();
        assert_eq!(both.single_value(), (rows + 50).to_string());
        assert_eq!(both.coverage.salvaged.len(), 1);
        let one = query_with_salvage(&folder, "$/b.rowfile", "SELECT id FROM t ORDER BY id DESC")
            .unwrap();
        assert!(one.rows().len() == 50 && one.coverage.complete);
    }
}

#[test]
fn salvage_skips_a_damaged_block_on_every_path_and_reports_it() {
    let folder = Folder::new();
    let columns = vec![("id", int_array(&(0..50).collect::<Vec<_>>()))];
    let path = write_rowfile(&folder, "a.rowfile", columns, 10);
    let mut bytes = std::fs::read(&path).unwrap();
    let block = Reader::open(&path).unwrap().blocks()[2].clone();
    *bytes.get_mut(block.offset as usize + 60).unwrap() ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let routes: BTreeMap<&str, usize> = [
        ("SELECT id FROM t WHERE id <> 7", 39),
        ("SELECT id, count(*) FROM t GROUP BY id", 40),
        ("SELECT id FROM t ORDER BY id DESC", 40),
    ]
    .into();
    for (sql, rows) in routes {
        let answer = query_with_salvage(&folder, "$/a.rowfile", sql).unwrap();
        assert_eq!(answer.rows().len(), rows, "{sql}");
        let salvaged = answer.coverage.salvaged;
        assert!(!answer.coverage.complete, "{sql}");
        assert_eq!((salvaged[0].offset, salvaged[0].places), (block.offset, 1), "{sql}");
        assert_eq!(salvaged[0].bytes_left_out, u64::from(block.bytes), "{sql}");
    }
    // A later merge still reports the salvage.
    let spec = SourceSpec {
        url: folder.substitute_path("$/a.rowfile"),
        salvage_damaged: true,
        ..Default::default()
    };
    let sources = vec![NamedSource { name: "t".into(), spec }];
    let sql = "SELECT count(*) AS n FROM t".into();
    let plan = QueryPlan::new(&Query { sql, sources, ..Query::default() }, &settings()).unwrap();
    let part = folder.path().join("a.part");
    plan.write_partial_table(&part, false, &RunId::new()).unwrap();
    let merged =
        collect_answer(PartialTableMerge::new(&[part], &settings()).unwrap().run().unwrap())
            .unwrap();
    assert_eq!(merged.single_value(), "40");
    assert!(!merged.coverage.complete && merged.coverage.salvaged.len() == 1);
}

fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            1 => (crc >> 1) ^ 0x82f6_3b78,
            _ => crc >> 1,
        })
    });
    (!crc).to_le_bytes()
}

/// Changes a byte of a block and corrects its checksums.
fn corrupt_block_text(bytes: &mut [u8], block: &BlockInfo, text: &[u8]) {
    let at = block.offset as usize;
    let section = &mut bytes[at..at + block.bytes as usize];
    let place = section.windows(text.len()).position(|window| window == text).unwrap();
    section[place] = 0xff;
    let checksum = crc32c(&section[48..]);
    section[40..44].copy_from_slice(&checksum);
    let checksum = crc32c(&section[..44]);
    section[44..48].copy_from_slice(&checksum);
}

#[test]
fn salvage_skips_a_block_with_undecodable_rows() {
    let folder = Folder::new();
    let names: Vec<String> = (0..50).map(|n| format!("name-{n:02}")).collect();
    let columns = vec![
        ("id", int_array(&(0..50).collect::<Vec<_>>())),
        ("name", Arc::new(StringArray::from(names)) as ArrayRef),
    ];
    let options = WriteOptions { codec: Codec::None, ..WriteOptions::default() };
    let path = write_rowfile_with(&folder, "a.rowfile", columns, 10, options);
    let mut bytes = std::fs::read(&path).unwrap();
    let blocks = Reader::open(&path).unwrap().blocks().to_vec();
    corrupt_block_text(&mut bytes, &blocks[2], b"name-25");
    std::fs::write(&path, &bytes).unwrap();
    let refusal = folder.sql_error("SELECT max(name) FROM '$/a.rowfile'");
    let expected = "a.rowfile`: row 25, column `name`: it is not valid UTF-8";
    assert!(refusal.contains(expected), "{refusal}");

    // All rows of the block are left out, whatever columns the query reads.
    for (sql, rows) in [
        ("SELECT id FROM t WHERE id <> 7", 39),
        ("SELECT name FROM t", 40),
        ("SELECT id, count(*) FROM t GROUP BY id", 40),
        ("SELECT id FROM t ORDER BY id DESC", 40),
    ] {
        let answer = query_with_salvage(&folder, "$/a.rowfile", sql).unwrap();
        assert_eq!(answer.rows().len(), rows, "{sql}");
        let coverage = answer.coverage;
        assert!(!coverage.complete, "{sql}");
        let [salvaged] = coverage.salvaged.as_slice() else { panic!("{sql}: {coverage:?}") };
        assert_eq!((salvaged.offset, salvaged.places), (blocks[2].offset, 1), "{sql}");
        assert_eq!(salvaged.bytes_left_out, u64::from(blocks[2].bytes), "{sql}");
        assert!(salvaged.blocks == 4 && salvaged.reason.contains("UTF-8"), "{salvaged:?}");
        let bytes = coverage.bytes;
        assert_eq!((bytes.done + bytes.left_out, coverage.rows.done), (bytes.total, 40), "{sql}");
    }
    let count = query_with_salvage(&folder, "$/a.rowfile", "SELECT count(*) FROM t").unwrap();
    assert_eq!(count.single_value(), "40");
    let twice = "SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id";
    assert_eq!(query_with_salvage(&folder, "$/a.rowfile", twice).unwrap().single_value(), "40");

    // A later merge still reports it, and so does a conversion.
    let spec = SourceSpec {
        url: folder.substitute_path("$/a.rowfile"),
        salvage_damaged: true,
        ..Default::default()
    };
    let sources = vec![NamedSource { name: "t".into(), spec: spec.clone() }];
    let sql = "SELECT sum(id) AS n FROM t".into();
    let plan = QueryPlan::new(&Query { sql, sources, ..Query::default() }, &settings()).unwrap();
    let part = folder.path().join("a.part");
    plan.write_partial_table(&part, false, &RunId::new()).unwrap();
    let merged =
        collect_answer(PartialTableMerge::new(&[part], &settings()).unwrap().run().unwrap())
            .unwrap();
    assert_eq!(merged.single_value(), (0..50).filter(|n| n / 10 != 2).sum::<u32>().to_string());
    assert!(!merged.coverage.complete && merged.coverage.salvaged.len() == 1);
    let mut sink = SinkSpec::new(format!("{}/", folder.path().join("csv").display()));
    sink.format = Some(OutputFormat::Csv);
    let (select, condition) = (None, None);
    let conversion =
        Conversion { source: spec, select, condition, sink, skip_existing: false, workers: None };
    let converted = conversion.run_to_folder(&settings(), &RunId::new()).unwrap();
    assert_eq!(converted.output_summary.rows, 40);
    assert!(!converted.coverage.complete && converted.coverage.salvaged.len() == 1);

    // Beside a damaged block.
    bytes[blocks[4].offset as usize + 60] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let answer = query_with_salvage(&folder, "$/a.rowfile", "SELECT sum(id) FROM t").unwrap();
    assert_eq!(answer.single_value(), (0..40).filter(|n| n / 10 != 2).sum::<u32>().to_string());
    let salvaged = &answer.coverage.salvaged[0];
    assert_eq!((salvaged.offset, salvaged.places, salvaged.blocks), (blocks[2].offset, 2, 3));
}

#[test]
fn only_rowfiles_can_be_salvaged() {
    let folder = Folder::new();
    folder.write("a.csv", "x\n1\n");
    let refused =
        query_with_salvage(&folder, "$/a.csv", "SELECT x FROM t").err().unwrap().to_string();
    assert!(refused.contains("`recover` has no meaning for format `csv`"), "{refused}");
    folder.write("b.rowfile", "x\n1\n");
    let refused =
        query_with_salvage(&folder, "$/b.rowfile", "SELECT * FROM t").err().unwrap().to_string();
    assert!(refused.contains("is not a rowfile"), "{refused}");
}
