//! Written rows are read back unchanged, for any data and any division into batches and blocks.

use std::sync::Arc;

use crate::common::{self, Random};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, Int32Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat_batches;
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

    /// Covers short and long strings, long common prefixes, empty strings and nulls, in every layout, alone
    /// in their row and with other columns.
    #[test]
    fn strings_come_back_and_lie_between_their_bounds(seed: u64) {
        let random = &mut Random::new(seed);
        let kind = random.pick(&[DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View]).clone();
        let longest = *random.pick(&[1, 7, 8, 13, 32, 33, 70, 300]);
        let prefix = "https://shop.example.com/product?item="[..random.below(39)].to_owned();
        let distinct: Vec<String> = (0..1 + random.below(300))
            .map(|_| {
                let text = (0..random.below(longest + 1)).map(|_| *random.pick(&['a', 'b', '\0', 'é']));
                let text: String = text.collect();
                if random.chance(50) { text } else { format!("{prefix}{text}") }
            })
            .collect();
        let nulls = *random.pick(&[0, 2, 10]);
        let mut column = || {
            let values = (0..random.below(700))
                .map(|_| (nulls == 0 || !random.chance(nulls)).then(|| random.pick(&distinct).clone()));
            match kind {
                DataType::Utf8 => Arc::new(values.collect::<StringArray>()) as ArrayRef,
                DataType::LargeUtf8 => Arc::new(values.collect::<LargeStringArray>()),
                _ => Arc::new(values.collect::<StringViewArray>()),
            }
        };
        let columns: Vec<ArrayRef> = (0..3).map(|_| column()).collect();
        let (alone, block_bytes) = (random.chance(2), *random.pick(&[1_000, 5_000, 1 << 20]));
        let mut fields = vec![Field::new("s", kind.clone(), nulls > 0)];
        if !alone {
            fields.push(Field::new("n", DataType::Int32, false));
        }
        let schema = Arc::new(arrow_schema::Schema::new(fields));
        let batches: Vec<RecordBatch> = columns
            .into_iter()
            .map(|strings| {
                let mut columns = vec![strings.clone()];
                if !alone {
                    columns.push(Arc::new(Int32Array::from_iter_values(0..strings.len() as i32)));
                }
                RecordBatch::try_new(schema.clone(), columns).unwrap()
            })
            .collect();
        let bytes = write(&schema, &batches, WriteOptions { block_bytes, ..WriteOptions::default() });
        let wanted = ReadOptions { schema: Some(schema.clone()), ..ReadOptions::default() };
        same(&schema, &batches, &read(&bytes, &wanted));

        let reader = Reader::new(bytes, "test").unwrap();
        let bounds = reader.column_statistics("s").unwrap();
        let (mins, maxes) = (bounds.min.as_string_view(), bounds.max.as_string_view());
        for block in 0..reader.blocks().len() {
            let one = ReadOptions { blocks: Some(vec![block]), ..ReadOptions::default() };
            let found: Vec<RecordBatch> =
                reader.read(&one).unwrap().collect::<Result<_, _>>().unwrap();
            let values: Vec<&str> =
                found.iter().flat_map(|batch| batch.column(0).as_string_view().iter().flatten()).collect();
            let Some(least) = values.iter().min() else { continue };
            let greatest = values.iter().max().unwrap();
            let bound = |array: &StringViewArray| array.is_valid(block).then(|| array.value(block).to_owned());
            let (min, max) = (bound(mins), bound(maxes));
            if values.iter().all(|value| value.len() <= 32) {
                prop_assert_eq!((min.as_deref(), max.as_deref()), (Some(*least), Some(*greatest)));
            } else {
                prop_assert!(min.is_none_or(|min| min.as_str() <= *least));
                prop_assert!(max.is_none_or(|max| max.as_str() >= *greatest));
            }
        }
    }

    #[test]
    fn a_schema_survives_its_json(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = Schema::from_arrow(&common::schema(random)).unwrap();
        prop_assert_eq!(&Schema::parse(&schema.to_json()).unwrap(), &schema);
        let arrow = schema.to_arrow(tidemill_rowfile::StringLayout::Small);
        prop_assert_eq!(Schema::from_arrow(&arrow).unwrap(), schema);
    }
}
