//! Conversion of Arrow unions to structs: one field per type, null in rows whose value has another type, as
//! for Avro.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StructArray, UInt64Array, UnionArray};
use arrow::compute::take;
use arrow::datatypes::{Fields, UnionFields};
use arrow::error::ArrowError;

use crate::schema::column_layouts::number_repeated_names;

/// Returns the fields of the struct that a union becomes.
pub(super) fn union_struct_fields(union: &UnionFields) -> Fields {
    let mut names: Vec<String> = union.iter().map(|(_, field)| field.name().clone()).collect();
    number_repeated_names(&mut names);
    let fields = union.iter().zip(names);
    let fields = fields.map(|((_, field), name)| {
        Arc::new(field.as_ref().clone().with_name(name).with_nullable(true))
    });
    fields.collect()
}

/// Converts a union to a struct with one column for each type of the union.
///
/// # Errors
/// Fails if an offset lies outside of its column.
pub(super) fn convert_union_to_struct(column: &UnionArray) -> Result<StructArray, ArrowError> {
    let union = column.fields();
    let columns = union.iter().map(|(type_id, _)| {
        let place =
            |row: usize| (column.type_id(row) == type_id).then(|| column.value_offset(row) as u64);
        let places: UInt64Array = (0..column.len()).map(place).collect();
        take(column.child(type_id), &places, None)
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
    StructArray::try_new_with_length(union_struct_fields(union), columns, None, column.len())
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type};

    use super::*;

    fn check(offsets: Option<Vec<i32>>, numbers: Vec<i64>, texts: Vec<&str>) {
        let fields = UnionFields::try_new(
            [0, 5],
            [Field::new("v", DataType::Int64, false), Field::new("v", DataType::Utf8, false)],
        );
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))];
        let union = UnionArray::try_new(
            fields.unwrap(),
            vec![0_i8, 5, 0].into(),
            offsets.map(Into::into),
            columns,
        );
        let union = union.unwrap();
        for (union, expected) in [
            (union.clone(), [(Some(1), None), (None, Some("x")), (Some(3), None)].as_slice()),
            (union.slice(1, 2), &[(None, Some("x")), (Some(3), None)]),
        ] {
            let made = convert_union_to_struct(&union).unwrap();
            assert_eq!(made.null_count(), 0);
            assert_eq!(made.column_names(), ["v", "v_1"]);
            let numbers = made.column(0).as_primitive::<Int64Type>().iter();
            let rows: Vec<_> = numbers.zip(made.column(1).as_string::<i32>()).collect();
            assert_eq!(rows, expected);
        }
    }

    #[test]
    fn a_union_has_a_field_for_each_type() {
        check(None, vec![1, 9, 3], vec!["", "x", ""]);
        check(Some(vec![0, 0, 1]), vec![1, 3], vec!["x"]);
    }
}
