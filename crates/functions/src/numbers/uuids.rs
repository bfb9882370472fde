//! Versions and times of UUIDs in text form: `uuid_extract_version` and `uuid_extract_timestamp`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{DOC_SECTION_DATETIME, DOC_SECTION_STRING};
use tidemill_base::error::Error;

use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, external_error, overflow_error, shorten_for_message,
    text_cast_type, wrong_arguments_error,
};

/// Functions that read parts of a UUID.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum UuidFunction {
    /// `uuid_extract_version`
    Version,
    /// `uuid_extract_timestamp`
    Timestamp,
}

const UUID_TIME_ZONE: &str = "UTC";

impl RowFunction for UuidFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            UuidFunction::Version => &["uuid_extract_version"],
            UuidFunction::Timestamp => &["uuid_extract_timestamp"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        match self {
            UuidFunction::Version => FunctionDocs {
                section: DOC_SECTION_STRING,
                syntax: "uuid_extract_version(x)",
                description: "The version of a UUID: `uuid_extract_version('ac227128-7d55-7ee0-a765-5025cc52e55a')` is `7`.",
            },
            UuidFunction::Timestamp => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "uuid_extract_timestamp(x)",
                description: "The time in a UUID of version 7: \
                       `uuid_extract_timestamp('0196f97a-db14-71c3-9132-9f0b1334466f')` is `2025-05-22T19:31:40.436Z`.",
            },
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![text_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            UuidFunction::Version => DataType::Int64,
            UuidFunction::Timestamp => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(UUID_TIME_ZONE.into()))
            }
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let texts = given.text_argument(0)?;
        let numbers = (0..given.row_count).map(|row| {
            texts
                .get(row)
                .map(|text| {
                    let uuid = parse_uuid(text)?;
                    match self {
                        UuidFunction::Version => Ok(uuid_version(uuid)),
                        UuidFunction::Timestamp => uuid_timestamp_micros(text, uuid),
                    }
                })
                .transpose()
        });
        let numbers: Int64Array = numbers.collect::<Result<_>>()?;
        Ok(match self {
            UuidFunction::Version => Arc::new(numbers),
            UuidFunction::Timestamp => {
                let times: TimestampMicrosecondArray = numbers.reinterpret_cast();
                Arc::new(times.with_timezone(UUID_TIME_ZONE))
            }
        })
    }
}

/// Parses 32 hexadecimal digits, with optional hyphens between them and optional braces around them.
fn parse_uuid(text: &str) -> Result<u128> {
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut uuid = 0;
    let mut count = 0;
    for letter in bare.chars().filter(|letter| *letter != '-') {
        let digit = letter.to_digit(16).filter(|_| count < 32);
        let Some(digit) = digit else {
            count = 0;
            break;
        };
        uuid = uuid << 4 | u128::from(digit);
        count += 1;
    }
    match count {
        32 => Ok(uuid),
        _ => Err(external_error(Error::Cast {
            value: shorten_for_message(text),
            to: "a UUID".into(),
            cast: None,
            hint: Some(
                "a UUID has 32 hexadecimal digits: ac227128-7d55-7ee0-a765-5025cc52e55a".into(),
            ),
        })),
    }
}

fn uuid_version(uuid: u128) -> i64 {
    ((uuid >> 76) & 15) as i64
}

/// Returns the microseconds since 1970 of a UUID of version 7, whose first 48 bits count milliseconds.
fn uuid_timestamp_micros(text: &str, uuid: u128) -> Result<i64> {
    match uuid_version(uuid) {
        7 => Ok((uuid >> 80) as i64 * 1000),
        other => Err(overflow_error(
            format!(
                "the UUID `{}` is of version {other}, which has no time that is read",
                shorten_for_message(text)
            ),
            Some("uuid_extract_version(x) = 7 in a condition leaves others out"),
        )),
    }
}
