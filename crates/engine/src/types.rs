//! Column types in SQL's words, as `tidemill schema` shows them and `--schema` takes them.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};

/// The SQL name of a type: `BIGINT`, `TEXT[]`, `STRUCT<a BIGINT>`.
///
/// What has no SQL name is called by its Arrow name.
pub fn sql_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INT UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "TEXT".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Time64(TimeUnit::Nanosecond) => "TIME".into(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            let zone = if zone.is_some() { " WITH TIME ZONE" } else { "" };
            match digits {
                9 => format!("TIMESTAMP{zone}"),
                digits => format!("TIMESTAMP({digits}){zone}"),
            }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => "INTERVAL".into(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("{}[]", sql_type(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), sql_type(field.data_type())));
            format!("STRUCT<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => format!(
                "MAP<{}, {}>",
                sql_type(fields[0].data_type()),
                sql_type(fields[1].data_type())
            ),
            other => other.to_string(),
        },
        DataType::Dictionary(_, value) => sql_type(value),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::sql_type;
    use crate::query::schema_from_sql;
    use crate::types::DataType::{self, *};
    use crate::types::TimeUnit;

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
