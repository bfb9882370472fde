//! Column types in SQL's words, as `tidemill schema` shows them and `--schema` takes them.

pub use tidemill_text::sql_type;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::sql_type;
    use crate::query::schema_from_sql;
    use arrow::datatypes::DataType::{self, *};
    use arrow::datatypes::TimeUnit;

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
