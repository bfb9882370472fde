//! Written files are read back in any pieces, and damaged ones are reported.

#[path = "../../rowfile/tests/it/common.rs"]
mod common;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Fields, Schema};
use common::Random;
use proptest::prelude::*;
use tidemill_avro::{Codec, Error, Header, Reader, SYNC_BYTES, Writer, check_schema};

const CODECS: [Codec; 6] = [
    Codec::Null,
    Codec::Deflate(6),
    Codec::Snappy,
    Codec::Zstandard(1),
    Codec::Bzip2(1),
    Codec::Xz(0),
];

fn write(schema: &Schema, batches: &[RecordBatch], codec: Codec, flushes: bool) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), schema, codec).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        if flushes {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap()
}

/// Reads the rows of the blocks that begin between two offsets.
fn read(
    bytes: &[u8],
    from: u64,
    until: u64,
    columns: Option<&[usize]>,
    batch_rows: usize,
) -> Result<Vec<RecordBatch>, Error> {
    let header = Header::read(&mut &bytes[..])?;
    let all: Vec<usize> = (0..header.schema().fields().len()).collect();
    let start = from.max(header.header_bytes());
    let input = bytes.get(start as usize..).unwrap_or_default();
    let size = Some(bytes.len() as u64);
    let columns = columns.unwrap_or(&all);
    let reader = Reader::new(input, &header, start, until, size, columns, batch_rows)?;
    reader.map(|batch| batch.map(|(batch, _)| batch)).collect()
}

fn texts(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("∅");
    let rows = batches.iter().flat_map(|batch| {
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        (0..batch.num_rows())
            .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect())
            .collect::<Vec<Vec<String>>>()
    });
    rows.collect()
}

/// Returns whether values of a type come back as the same text.
fn is_shown_alike(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float16 | DataType::Date64 | DataType::Timestamp(_, Some(_)) => false,
        DataType::Timestamp(unit, None) => *unit != arrow_schema::TimeUnit::Second,
        DataType::Time32(unit) => *unit != arrow_schema::TimeUnit::Second,
        DataType::Struct(fields) => fields.iter().all(|field| is_shown_alike(field.data_type())),
        DataType::List(item) | DataType::LargeList(item) => is_shown_alike(item.data_type()),
        DataType::Map(entries, _) => is_shown_alike(entries.data_type()),
        _ => true,
    }
}

/// Returns columns that Avro can hold.
fn schema(random: &mut Random) -> Arc<Schema> {
    let is_held = |field: &arrow_schema::FieldRef| {
        check_schema(&Schema::new(vec![field.clone()])).is_ok() && is_shown_alike(field.data_type())
    };
    let fields: Fields = common::fields(random, 3).iter().filter(|f| is_held(f)).cloned().collect();
    Arc::new(Schema::new(fields))
}

/// Returns the offsets of the blocks: after each marker.
fn starts(bytes: &[u8], sync: &[u8]) -> Vec<u64> {
    let places = bytes.windows(SYNC_BYTES).enumerate().filter(|(_, window)| *window == sync);
    places.map(|(at, _)| (at + SYNC_BYTES) as u64).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rows_round_trip_in_any_pieces(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        let batches = common::batches(random, &schema);
        let codec = *random.pick(&CODECS);
        let flushes = random.chance(2);
        let bytes = write(&schema, &batches, codec, flushes);
        prop_assert!(bytes == write(&schema, &batches, codec, flushes));
        let expected = texts(&batches);
        let batch_rows = *random.pick(&[1, 7, 8192]);
        prop_assert_eq!(&texts(&read(&bytes, 0, u64::MAX, None, batch_rows).unwrap()), &expected);

        let wanted: Vec<usize> =
            (0..schema.fields().len()).filter(|_| random.chance(2)).rev().collect();
        let found = texts(&read(&bytes, 0, u64::MAX, Some(&wanted), batch_rows).unwrap());
        let projected: Vec<Vec<String>> = expected
            .iter()
            .map(|row| wanted.iter().map(|column| row[*column].clone()).collect())
            .collect();
        prop_assert_eq!(found, projected);

        let sync = *Header::read(&mut &bytes[..]).unwrap().sync_marker();
        let starts = starts(&bytes, &sync);
        let mut pieces = Vec::new();
        let mut from = 0;
        while from < bytes.len() as u64 {
            let until = from + 1 + random.below(bytes.len()) as u64;
            // A reader of a piece finds its first block this way.
            let first = starts.iter().copied().find(|start| *start >= from);
            if let Some(first) = first.filter(|first| *first < until) {
                pieces.extend(texts(&read(&bytes, first, until, None, batch_rows).unwrap()));
            }
            from = until;
        }
        prop_assert_eq!(pieces, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_file_with_bytes_changed_added_or_gone_is_read_or_refused(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        let batch = common::batch(random, &schema, 5);
        let mut bytes = write(&schema, &[batch], Codec::Null, false);
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes.insert(at, random.next() as u8),
                _ => drop(bytes.remove(at)),
            }
        }
        match read(&bytes, 0, u64::MAX, None, 100) {
            Ok(batches) => drop(texts(&batches)),
            Err(Error::DamagedFile { .. } | Error::UnsupportedSchema { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn small() -> RecordBatch {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a text of some length"), None]));
    let lists = ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([
        Some(vec![Some(1), None]),
        Some(vec![]),
    ]);
    let inner: Fields = vec![Field::new("deep", DataType::Utf8, true)].into();
    let inner = StructArray::new(inner, vec![texts.clone()], None);
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from(vec![5, -70_000])) as ArrayRef),
        ("text", texts),
        ("list", Arc::new(lists)),
        ("inner", Arc::new(inner)),
    ])
    .unwrap()
}

#[test]
fn damaged_files_never_panic() {
    for codec in CODECS {
        let batch = small();
        let whole = write(batch.schema_ref(), &[batch.clone(), batch.clone()], codec, true);
        let header = Header::read(&mut &whole[..]).unwrap();
        let starts = starts(&whole, header.sync_marker());
        for cut in 0..whole.len() {
            match read(&whole[..cut], 0, u64::MAX, None, 100) {
                // Nothing states the number of blocks.
                Ok(batches) => {
                    let blocks = starts.iter().position(|start| *start == cut as u64);
                    assert_eq!(Some(texts(&batches).len()), blocks.map(|blocks| 2 * blocks));
                }
                Err(Error::DamagedFile { offset, .. }) => assert!(offset <= cut as u64),
                Err(other) => panic!("cut at {cut}: {other}"),
            }
        }
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            match read(&bytes, 0, u64::MAX, None, 100) {
                Ok(batches) => drop(texts(&batches)),
                Err(Error::DamagedFile { .. } | Error::UnsupportedSchema { .. }) => refused += 1,
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
        assert!(refused > whole.len() / 2, "{refused} of {}", whole.len());
    }
}

fn long(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// Returns a file of one block.
fn forged(kind: &str, rows: i64, size: i64, body: &[u8]) -> Vec<u8> {
    let schema =
        format!(r#"{{"type":"record","name":"R","fields":[{{"name":"x","type":{kind}}}]}}"#);
    let mut file = b"Obj\x01\x02\x16avro.schema".to_vec();
    file.extend(long(schema.len() as i64));
    file.extend(schema.as_bytes());
    file.push(0);
    file.extend([7; SYNC_BYTES]);
    file.extend(long(rows));
    file.extend(long(size));
    file.extend(body);
    file.extend([7; SYNC_BYTES]);
    file
}

#[test]
fn lengths_and_counts_that_the_bytes_do_not_justify_are_refused() {
    let most = i64::MAX;
    let array = r#"{"type":"array","items":"null"}"#;
    let wide = (0..5000).map(|n| format!(r#"{{"name":"f{n}","type":"long"}}"#));
    let wide = wide.collect::<Vec<_>>().join(",");
    let wide = format!(
        r#"{{"type":"array","items":["null",{{"type":"record","name":"W","fields":[{wide}]}}]}}"#
    );
    let nulls = [long(100_000), vec![0; 100_000], vec![0]].concat();
    for (kind, rows, size, body, expected) in [
        (r#""long""#, 1, most, vec![1], "which are not there"),
        (r#""long""#, -1, 1, vec![1], "a block of -1 rows"),
        (r#""long""#, most, 1, vec![2], "rows in 1 bytes"),
        (r#""string""#, 1, 10, long(most), "ends in the middle"),
        (r#""string""#, 1, 1, long(-1), "a length below zero"),
        (r#""int""#, 1, 10, long(most), "an int of more than 32 bits"),
        (r#""long""#, 1, 10, vec![0xff; 10], "more than 64 bits"),
        (r#""boolean""#, 1, 1, vec![2], "neither 0 nor 1"),
        (r#"["null","int"]"#, 1, 1, vec![4], "a type that its union does not have"),
        (r#"{"type":"enum","name":"E","symbols":["a"]}"#, 1, 1, vec![2], "a symbol that"),
        (r#""string""#, 1, 2, vec![2, 0xff], "not UTF-8"),
        (array, 1, 10, long(most), "more items than"),
        (r#"{"type":"map","values":"null"}"#, 1, 10, long(most), "more items than"),
        (
            r#"{"type":"bytes","logicalType":"decimal","precision":2}"#,
            1,
            3,
            vec![4, 1, 0],
            "more digits",
        ),
        (wide.as_str(), 1, nulls.len() as i64, nulls, "more than 1 GiB"),
        (r#""long""#, 1, 2, vec![2, 2], "1 bytes behind the rows"),
    ] {
        let mut body = body;
        body.resize(if size == most { body.len() } else { size as usize }, 0);
        let error = read(&forged(kind, rows, size, &body), 0, u64::MAX, None, 100).unwrap_err();
        assert!(error.to_string().contains(expected), "{kind}: {error}");
    }
    // Many nulls without memory in one row are fine.
    let nulls = [long(1 << 20), long(0)].concat();
    let file = forged(array, 1, nulls.len() as i64, &nulls);
    assert_eq!(read(&file, 0, u64::MAX, None, 100).unwrap()[0].num_rows(), 1);
    let empty = forged(r#"{"type":"record","name":"Z","fields":[]}"#, 1 << 40, 0, &[]);
    let header = Header::read(&mut &empty[..]).unwrap();
    let start = header.header_bytes();
    let input = &empty[start as usize..];
    let mut reader = Reader::new(input, &header, start, u64::MAX, None, &[], 8192).unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap().0.num_rows(), 8192);
}

#[test]
fn what_avro_cannot_hold_is_refused_with_the_column() {
    let nested: Fields = vec![Field::new("n", DataType::UInt64, true)].into();
    let pair: Fields =
        vec![Field::new("k", DataType::Int32, false), Field::new("v", DataType::Int32, true)]
            .into();
    let entries = Arc::new(Field::new("entries", DataType::Struct(pair), false));
    for (name, kind, expected) in [
        ("u", DataType::UInt64, "column `u` has unsigned integers of 64 bits"),
        ("s", DataType::Struct(nested), "column `s.n` has unsigned"),
        ("sum(x)", DataType::Int64, "column `sum(x)` has a name that Avro does not take"),
        ("m", DataType::Map(entries, false), "column `m` is a map whose keys are not text"),
        ("d", DataType::Decimal128(9, -2), "which Avro does not have"),
        ("t", DataType::Time64(arrow_schema::TimeUnit::Nanosecond), "which Avro does not have"),
    ] {
        let schema = Schema::new(vec![Field::new(name, kind, true)]);
        let error = check_schema(&schema).unwrap_err().to_string();
        assert!(error.starts_with(expected) || error.contains(expected), "{error}");
    }
    let twice = Schema::new(vec![Field::new("a", DataType::Int32, true); 2]);
    assert!(check_schema(&twice).unwrap_err().to_string().contains("is there twice"));
}

#[test]
fn a_file_without_rows_has_its_columns() {
    let batch = small().slice(0, 0);
    let bytes = write(batch.schema_ref(), std::slice::from_ref(&batch), Codec::Deflate(6), false);
    let header = Header::read(&mut &bytes[..]).unwrap();
    assert_eq!(header.header_bytes(), bytes.len() as u64);
    assert_eq!(header.schema().fields().len(), 4);
    assert!(read(&bytes, 0, u64::MAX, None, 100).unwrap().is_empty());
}
