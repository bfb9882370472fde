//! Column types in SQL's words.

use arrow_schema::{DataType, IntervalUnit, TimeUnit};

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
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("DECIMAL({precision}, {scale})"),
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
