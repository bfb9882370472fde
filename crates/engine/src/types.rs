//! Column types in SQL's words, as `tidemill schema` shows them and `--schema` takes them.

use arrow::datatypes::{DataType, TimeUnit};

pub use tidemill_text::sql_type;

/// Whether there can be values of a type: a file may say of a map that its entries are of three
/// fields, which Arrow's arrays have no place for.
pub(crate) fn is_possible(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(entries, _) => {
            matches!(entries.data_type(), DataType::Struct(fields) if fields.len() == 2)
                && is_possible(entries.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| is_possible(field.data_type())),
        DataType::Union(fields, _) => {
            fields.iter().all(|(_, field)| is_possible(field.data_type()))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => is_possible(item.data_type()),
        DataType::FixedSizeList(item, length) => *length >= 0 && is_possible(item.data_type()),
        DataType::FixedSizeBinary(length) => *length >= 0,
        DataType::Dictionary(keys, values) => keys.is_dictionary_key_type() && is_possible(values),
        DataType::RunEndEncoded(ends, values) => {
            ends.data_type().is_run_ends_type() && is_possible(values.data_type())
        }
        DataType::Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        DataType::Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::{is_possible, sql_type};
    use crate::query::schema_from_sql;
    use arrow::datatypes::DataType::{self, *};
    use arrow::datatypes::{Fields, TimeUnit};

    #[test]
    fn a_type_that_no_array_can_have_is_not_possible() {
        let map = |names: &[&str]| {
            let fields: Fields = names.iter().map(|name| Field::new(*name, Int8, false)).collect();
            Map(Arc::new(Field::new("entries", Struct(fields), false)), false)
        };
        let list = |item: DataType| List(Arc::new(Field::new("item", item, true)));
        for (data_type, expected) in [
            (map(&["k", "v"]), true),
            (map(&["k", "v", "w"]), false),
            (map(&["k"]), false),
            (list(map(&[])), false),
            (Map(Arc::new(Field::new("entries", Int8, false)), false), false),
            (FixedSizeList(Arc::new(Field::new("item", Int8, true)), -1), false),
            (FixedSizeBinary(-1), false),
            (Dictionary(Box::new(Utf8), Box::new(Int8)), false),
            (Dictionary(Box::new(Int8), Box::new(Utf8)), true),
            (Time32(TimeUnit::Nanosecond), false),
            (Time64(TimeUnit::Nanosecond), true),
        ] {
            assert_eq!(is_possible(&data_type), expected, "{data_type}");
            if expected {
                arrow::array::new_empty_array(&data_type);
            }
        }
    }

    #[test]
    fn a_type_that_is_shown_is_understood_as_a_schema() {
        for (data_type, sql) in [
            (Boolean, "BOOLEAN"),
            (Int8, "TINYINT"),
            (Int16, "SMALLINT"),
            (Int32, "INT"),
            (Int64, "BIGINT"),
            (UInt64, "BIGINT UNSIGNED"),
            (Float32, "FLOAT"),
            (Float64, "DOUBLE"),
            (Decimal128(10, 2), "DECIMAL(10, 2)"),
            (Date32, "DATE"),
            (Timestamp(TimeUnit::Nanosecond, None), "TIMESTAMP"),
            (Timestamp(TimeUnit::Microsecond, None), "TIMESTAMP(6)"),
            (Timestamp(TimeUnit::Second, None), "TIMESTAMP(0)"),
            (List(Arc::new(Field::new("item", Int64, true))), "BIGINT[]"),
        ] {
            assert_eq!(sql_type(&data_type), sql);
            let schema = schema_from_sql(&format!("x {sql}")).unwrap();
            assert_eq!(sql_type(schema.field(0).data_type()), sql);
        }
        assert_eq!(sql_type(&Utf8View), "TEXT");
        let fields = vec![Field::new("a", Int64, true), Field::new("b", Utf8View, true)];
        assert_eq!(sql_type(&DataType::Struct(fields.into())), "STRUCT<a BIGINT, b TEXT>");
    }
}
