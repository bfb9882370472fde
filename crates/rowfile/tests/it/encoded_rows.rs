//! Tests of single encoded rows, and of columns that contain them.

use std::sync::Arc;

use crate::common::{self, Random};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Int64Array, LargeBinaryArray, RecordBatch,
    StringArray, StructArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Fields};
use proptest::prelude::*;
use tidemill_rowfile::{
    Error, ReadOptions, Reader, RowDecodePlan, Schema, StringLayout, WriteOptions, Writer,
    metadata_keys,
};

/// Generates a batch of random rows with some long strings.
fn random_rows(random: &mut Random) -> RecordBatch {
    let schema = common::schema(random);
    let rows = random.below(100);
    let batch = common::batch(random, &schema, rows);
    if random.chance(2) {
        return batch;
    }
    let most = *random.pick(&[300, 70_000]);
    let long: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..rows).map(|_| "ä".repeat(if random.chance(5) { random.below(most) } else { 3 })),
    ));
    let mut fields = schema.fields().to_vec();
    fields.push(Arc::new(Field::new("long", DataType::Utf8, false)));
    let columns = batch.columns().iter().cloned().chain([long]).collect();
    RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), columns).unwrap()
}

fn structs(batch: &RecordBatch) -> StructArray {
    let fields = batch.schema().fields().clone();
    StructArray::try_new_with_length(fields, batch.columns().to_vec(), None, batch.num_rows())
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn structs_that_are_encoded_alone_come_back_and_nulls_are_nulls(seed: u64) {
        let random = &mut Random::new(seed);
        let batch = random_rows(random);
        let schema = Schema::from_arrow(&batch.schema()).unwrap();
        let plain = structs(&batch);
        let nulls = common::nulls(random, &Field::new("", DataType::Null, true), batch.num_rows());
        let (fields, columns, _) = plain.into_parts();
        let expected =
            StructArray::try_new_with_length(fields, columns, nulls, batch.num_rows()).unwrap();
        let encoded = schema.encode_structs(&expected).unwrap();
        prop_assert_eq!(encoded.null_count(), expected.null_count());
        let plan = RowDecodePlan::new(&schema, &batch.schema()).unwrap();
        let same = |found: StructArray| {
            found.to_data().validate_full().unwrap();
            // Values under a null are not defined.
            let valid: UInt32Array = (0..expected.len() as u32)
                .filter(|row| expected.is_valid(*row as usize)).map(Some).collect();
            assert_eq!(found.nulls().map_or(0, |nulls| nulls.null_count()), expected.null_count());
            assert_eq!(
                arrow_select::take::take(&found, &valid, None).unwrap().as_ref(),
                arrow_select::take::take(&expected, &valid, None).unwrap().as_ref(),
            );
        };
        same(plan.decode_rows(&encoded, "rows").unwrap());
        same(plan.decode_rows(&encoded.iter().collect::<BinaryViewArray>(), "rows").unwrap());
        same(plan.decode_rows(&encoded.iter().collect::<LargeBinaryArray>(), "rows").unwrap());
        let (before, rows) = (random.below(batch.num_rows() + 1), batch.num_rows());
        let found = plan.decode_rows(&encoded.slice(before, rows - before), "rows").unwrap();
        prop_assert_eq!(found.len(), rows - before);
    }

    #[test]
    fn a_row_has_the_same_bytes_in_whatever_company(seed: u64) {
        let random = &mut Random::new(seed);
        let batch = random_rows(random);
        let schema = Schema::from_arrow(&batch.schema()).unwrap();
        let all = schema.encode_rows(&batch).unwrap();
        for row in 0..batch.num_rows().min(5) {
            let alone = schema.encode_rows(&batch.slice(row, 1)).unwrap();
            prop_assert_eq!(alone.value(0), all.value(row));
        }
    }

    #[test]
    fn a_row_that_is_cut_or_has_more_is_refused_by_its_number(seed: u64) {
        let random = &mut Random::new(seed);
        let batch = random_rows(random);
        prop_assume!(batch.num_rows() > 0);
        let schema = Schema::from_arrow(&batch.schema()).unwrap();
        let encoded = schema.encode_rows(&batch).unwrap();
        let plan = RowDecodePlan::new(&schema, &batch.schema()).unwrap();
        let bad = random.below(batch.num_rows());
        let mut rows: Vec<Vec<u8>> = encoded.iter().flatten().map(<[u8]>::to_vec).collect();
        if random.chance(2) {
            rows[bad].push(0);
        } else {
            let length = random.below(rows[bad].len());
            rows[bad].truncate(length);
        }
        let damaged = BinaryArray::from_iter_values(&rows);
        match plan.decode_rows(&damaged, "input") {
            Err(Error::InvalidEncodedRow { name, row, .. }) => prop_assert_eq!((name.as_str(), row), ("input", bad as u64)),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

/// Returns rows of an id and a name.
fn inputs() -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let names: ArrayRef = Arc::new(StringArray::from(vec![Some("ada"), None, Some("größe")]));
    RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("name", names, true)]).unwrap()
}

#[test]
fn column_of_rows_keeps_its_schema_through_a_file() {
    let inputs = inputs();
    let schema = Schema::from_arrow(&inputs.schema()).unwrap();
    let outer = Arc::new(arrow_schema::Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        schema.rows_field("input", true),
    ]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let rows: ArrayRef = Arc::new(schema.encode_rows(&inputs).unwrap());
    let batch = RecordBatch::try_new(outer.clone(), vec![numbers, rows]).unwrap();
    let own = Schema::from_arrow(&outer).unwrap();
    let mut writer = Writer::new(Vec::new(), &own, WriteOptions::default()).unwrap();
    writer.write(&batch).unwrap();
    let reader = Reader::new(writer.finish().unwrap(), "test").unwrap();
    let found = reader.read(&ReadOptions::default()).unwrap().next().unwrap().unwrap();
    let field = found.schema().field(1).clone();
    let inner = Schema::from_rows_field(&field).unwrap().unwrap();
    assert_eq!(inner, schema);
    // As with files, a reader may request fewer columns and other types.
    let wanted = r#"{"fields": [{"name": "who", "type": "string", "nullable": true, "aliases": ["name"]},
        {"name": "id", "type": "float64"}]}"#;
    let wanted = Schema::parse(wanted).unwrap().to_arrow(StringLayout::View);
    let plan = RowDecodePlan::new(&inner, &Arc::new(wanted)).unwrap();
    let rows = plan.decode_rows(found.column(1), "input").unwrap();
    let who: Vec<_> = rows.column(0).as_string_view().iter().collect();
    assert_eq!(who, [Some("ada"), None, Some("größe")]);
    assert_eq!(
        rows.column(1).as_primitive::<arrow_array::types::Float64Type>().values(),
        &[7.0, 8.0, 9.0]
    );
    assert_eq!(Schema::from_rows_field(found.schema().field(0)).unwrap(), None);
}

#[test]
fn encoded_row_has_the_documented_bytes() {
    let inputs = inputs();
    let schema = Schema::from_arrow(&inputs.schema()).unwrap();
    let rows = schema.encode_rows(&inputs).unwrap();
    let id = |id: u64| (id ^ 1 << 63).to_le_bytes();
    // The width of lengths, bits, the number, the string's length and bytes.
    assert_eq!(rows.value(0), [&[1, 0], &id(7)[..], &[3], b"ada"].concat());
    assert_eq!(rows.value(1), [&[1, 1], &id(8)[..], &[0]].concat());
    let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(256), "x".repeat(255)]));
    let long = RecordBatch::try_from_iter([("s", long)]).unwrap();
    let rows = Schema::from_arrow(&long.schema()).unwrap().encode_rows(&long).unwrap();
    assert_eq!(&rows.value(0)[..4], [2, 0, 0, 1]);
    assert_eq!(&rows.value(1)[..3], [1, 0, 255]);
}

#[test]
fn messages_name_the_column_and_the_row() {
    let inputs = inputs();
    let schema = Schema::from_arrow(&inputs.schema()).unwrap();
    let rows = schema.encode_rows(&inputs).unwrap();
    let plan = RowDecodePlan::new(&schema, &inputs.schema()).unwrap();
    let message = |rows: &dyn Array| plan.decode_rows(rows, "input").unwrap_err().to_string();
    let with = |last: &[u8]| BinaryArray::from_iter([None, Some(rows.value(0)), None, Some(last)]);
    let hint = "hint: rows are decoded with the schema that they were encoded with";
    assert_eq!(
        message(&with(b"")),
        format!("`input`: row 3 is no encoded row: it has no bytes\n{hint}")
    );
    assert_eq!(
        message(&with(b"{}")),
        format!("`input`: row 3 is no encoded row: it begins with 123, not with 1, 2 or 4\n{hint}")
    );
    assert_eq!(
        message(&with(&rows.value(0)[..11])),
        format!(
            "`input`: row 3 is no encoded row: a row goes on behind the end of its bytes\n{hint}"
        )
    );
    let mut text = rows.value(2).to_vec();
    text[11] = 0xFF;
    assert_eq!(message(&with(&text)), "`input`: row 3, column `name`: it is not valid UTF-8");
    assert_eq!(message(&Int64Array::from(vec![1])), "column `input`: expected binary, found Int64");
    let field = Field::new("input", DataType::Binary, false)
        .with_metadata([(metadata_keys::ROW_SCHEMA.to_owned(), "{}".to_owned())].into());
    let error = Schema::from_rows_field(&field).unwrap_err().to_string();
    assert!(error.starts_with("column `input`: `rowfile.rows` in its metadata is no schema"));
}

#[test]
fn rows_without_fields_and_empty_columns_are_accepted() {
    let schema = Schema { fields: vec![] };
    let arrow = Arc::new(schema.to_arrow(StringLayout::View));
    let plan = RowDecodePlan::new(&schema, &arrow).unwrap();
    let empty = StructArray::new_empty_fields(3, None);
    let rows = schema.encode_structs(&empty).unwrap();
    assert_eq!(rows.value(0), [1, 0]);
    assert_eq!(plan.decode_rows(&rows, "rows").unwrap().len(), 3);
    let schema = Schema::from_arrow(&inputs().schema()).unwrap();
    let plan = RowDecodePlan::new(&schema, &inputs().schema()).unwrap();
    let none = BinaryArray::from_iter_values(Vec::<&[u8]>::new());
    assert_eq!(plan.decode_rows(&none, "rows").unwrap().len(), 0);
    let nulls = BinaryArray::from(vec![None::<&[u8]>; 4]);
    let found = plan.decode_rows(&nulls, "rows").unwrap();
    assert_eq!((found.len(), found.null_count()), (4, 4));
    let expected: Fields = inputs().schema().fields().clone();
    assert_eq!(found.fields(), &expected);
    assert_eq!(found.column(0).as_primitive::<Int64Type>().len(), 4);
}
