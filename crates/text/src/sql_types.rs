//! SQL spelling of column names and Arrow types.

use std::borrow::Cow;

use arrow_schema::{DataType, IntervalUnit, TimeUnit};

/// Words that need double quotes as SQL names because they have another meaning without them.
const RESERVED_WORDS: [&str; 57] = [
    "all",
    "and",
    "anti",
    "any",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "cast",
    "check",
    "constraint",
    "cross",
    "desc",
    "distinct",
    "else",
    "end",
    "except",
    "exists",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "full",
    "group",
    "having",
    "in",
    "index",
    "inner",
    "intersect",
    "into",
    "is",
    "join",
    "key",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "primary",
    "qualify",
    "right",
    "select",
    "then",
    "true",
    "union",
    "unique",
    "using",
    "when",
    "where",
];

/// Returns a name as SQL spells it: in double quotes unless it is a plain word.
///
/// ```
/// use tidemill_text::quote_sql_name;
///
/// assert_eq!(quote_sql_name("user_id"), "user_id");
/// assert_eq!(quote_sql_name("order"), "\"order\"");
/// assert_eq!(quote_sql_name("my \"name\""), "\"my \"\"name\"\"\"");
/// ```
#[must_use]
pub fn quote_sql_name(name: &str) -> Cow<'_, str> {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    let is_reserved = RESERVED_WORDS.iter().any(|word| word.eq_ignore_ascii_case(name));
    match is_word && begins_well && !is_reserved {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("\"{}\"", name.replace('"', "\"\""))),
    }
}

/// Returns the SQL name of a type: `BIGINT`, `TEXT[]`, `STRUCT<a BIGINT>`.
///
/// A type without a SQL name keeps its Arrow name.
pub fn sql_type_name(data_type: &DataType) -> String {
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
        DataType::Time32(TimeUnit::Second) => "TIME(0)".into(),
        DataType::Time32(TimeUnit::Millisecond) => "TIME(3)".into(),
        DataType::Time64(TimeUnit::Microsecond) => "TIME(6)".into(),
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
            format!("{}[]", sql_type_name(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                format!("{} {}", quote_sql_name(field.name()), sql_type_name(field.data_type()))
            });
            format!("STRUCT<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => format!(
                "MAP({}, {})",
                sql_type_name(fields[0].data_type()),
                sql_type_name(fields[1].data_type())
            ),
            other => other.to_string(),
        },
        DataType::Dictionary(_, value) => sql_type_name(value),
        other => other.to_string(),
    }
}
