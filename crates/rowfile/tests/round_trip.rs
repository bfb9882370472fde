//! What was written comes back, whatever it is and however it is cut into batches and blocks.

mod common;

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use common::Random;
use proptest::prelude::*;
use tidemill_rowfile::{Codec, ReadOptions, Reader, Schema, WriteOptions, Writer};

fn options(random: &mut Random) -> WriteOptions {
    WriteOptions {
        codec: *random.pick(&[Codec::None, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(3)]),
        block_bytes: *random.pick(&[1, 100, 5_000, 1 << 20]),
        statistics: !random.chance(4),
        ..WriteOptions::default()
    }
}

fn write(
    schema: &Arc<arrow_schema::Schema>,
    batches: &[RecordBatch],
    options: WriteOptions,
) -> Vec<u8> {
    let schema = Schema::from_arrow(schema).unwrap();
    let mut writer = Writer::new(Vec::new(), &schema, options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8], options: &ReadOptions) -> Vec<RecordBatch> {
    let reader = Reader::new(bytes.to_vec(), "test").unwrap();
    let batches: Vec<RecordBatch> =
        reader.read(options).unwrap().collect::<Result<_, _>>().unwrap();
    for column in batches.iter().flat_map(RecordBatch::columns) {
        column.to_data().validate_full().unwrap();
    }
    batches
}

fn same(schema: &Arc<arrow_schema::Schema>, expected: &[RecordBatch], found: &[RecordBatch]) {
    let expected = concat_batches(schema, expected).unwrap();
    let found = concat_batches(schema, found).unwrap();
    assert_eq!(expected.num_rows(), found.num_rows());
    for (index, field) in schema.fields().iter().enumerate() {
        assert_eq!(expected.column(index), found.column(index), "{field}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rows_come_back_as_they_were(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = common::schema(random);
        let batches = common::batches(random, &schema);
        let bytes = write(&schema, &batches, options(random));
        let batch_rows = *random.pick(&[1, 7, 64, 8192]);
        let wanted =
            ReadOptions { schema: Some(schema.clone()), batch_rows, ..ReadOptions::default() };
        same(&schema, &batches, &read(&bytes, &wanted));
    }

    #[test]
    fn a_projection_is_what_a_projection_of_all_is(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = common::schema(random);
        let batches = common::batches(random, &schema);
        let bytes = write(&schema, &batches, options(random));
        let wanted: Vec<usize> =
            (0..schema.fields().len()).filter(|_| random.chance(2)).rev().collect();
        let projected = Arc::new(schema.project(&wanted).unwrap());
        let expected: Vec<RecordBatch> =
            batches.iter().map(|batch| batch.project(&wanted).unwrap()).collect();
        let names = wanted.iter().map(|index| schema.field(*index).name().clone()).collect();
        let options = ReadOptions {
            schema: Some(schema.clone()),
            columns: Some(names),
            ..ReadOptions::default()
        };
        same(&projected, &expected, &read(&bytes, &options));
    }

    #[test]
    fn ranges_that_follow_one_another_read_every_row_once(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = common::schema(random);
        let batches = common::batches(random, &schema);
        let bytes = write(&schema, &batches, options(random));
        let mut found = Vec::new();
        let mut from = 0;
        let end = bytes.len() as u64;
        while from < end {
            let to = (from + 1 + random.below(bytes.len() / 3 + 1) as u64).min(end);
            let range = Some(from..to);
            let options = ReadOptions { schema: Some(schema.clone()), range, ..ReadOptions::default() };
            found.extend(read(&bytes, &options));
            from = to;
        }
        same(&schema, &batches, &found);
    }

    #[test]
    fn a_schema_survives_its_json(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = Schema::from_arrow(&common::schema(random)).unwrap();
        prop_assert_eq!(&Schema::parse(&schema.to_json()).unwrap(), &schema);
        let arrow = schema.to_arrow(tidemill_rowfile::Strings::Small);
        prop_assert_eq!(Schema::from_arrow(&arrow).unwrap(), schema);
    }
}
