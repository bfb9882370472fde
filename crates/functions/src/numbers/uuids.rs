//! Versions and times of UUIDs, which are texts here: `uuid_extract_version` and `uuid_extract_timestamp`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{DOC_SECTION_DATETIME, DOC_SECTION_STRING};
use tidemill_base::error::Error;

use crate::callable::{Function, Given, Told, as_text, brief, called_as, external, overflow};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum OfUuid {
    /// `uuid_extract_version`
    Version,
    /// `uuid_extract_timestamp`
    Timestamp,
}

const ZONE: &str = "UTC";

impl Function for OfUuid {
    fn names(&self) -> &'static [&'static str] {
        match self {
            OfUuid::Version => &["uuid_extract_version"],
            OfUuid::Timestamp => &["uuid_extract_timestamp"],
        }
    }

    fn told(&self) -> Told {
        match self {
            OfUuid::Version => Told {
                section: DOC_SECTION_STRING,
                calls: "uuid_extract_version(x)",
                what: "The version of a UUID: `uuid_extract_version('ac227128-7d55-7ee0-a765-5025cc52e55a')` is `7`.",
            },
            OfUuid::Timestamp => Told {
                section: DOC_SECTION_DATETIME,
                calls: "uuid_extract_timestamp(x)",
                what: "The time in a UUID of version 7: \
                       `uuid_extract_timestamp('0196f97a-db14-71c3-9132-9f0b1334466f')` is `2025-05-22T19:31:40.436Z`.",
            },
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![as_text(of).ok_or_else(|| called_as(self, given))?]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            OfUuid::Version => DataType::Int64,
            OfUuid::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())),
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let texts = given.texts(0)?;
        let numbers = (0..given.rows).map(|row| {
            texts
                .at(row)
                .map(|text| {
                    let uuid = parse_uuid(text)?;
                    match self {
                        OfUuid::Version => Ok(version(uuid)),
                        OfUuid::Timestamp => microseconds(text, uuid),
                    }
                })
                .transpose()
        });
        let numbers: Int64Array = numbers.collect::<Result<_>>()?;
        Ok(match self {
            OfUuid::Version => Arc::new(numbers),
            OfUuid::Timestamp => {
                let times: TimestampMicrosecondArray = numbers.reinterpret_cast();
                Arc::new(times.with_timezone(ZONE))
            }
        })
    }
}

/// Reads 32 hexadecimal digits, between which hyphens and around which braces may stand.
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
        _ => Err(external(Error::Cast {
            value: brief(text),
            to: "a UUID".into(),
            cast: None,
            hint: Some(
                "a UUID has 32 hexadecimal digits: ac227128-7d55-7ee0-a765-5025cc52e55a".into(),
            ),
        })),
    }
}

fn version(uuid: u128) -> i64 {
    ((uuid >> 76) & 15) as i64
}

/// Returns the microseconds since 1970 in a UUID of version 7, whose first 48 bits are milliseconds.
fn microseconds(text: &str, uuid: u128) -> Result<i64> {
    match version(uuid) {
        7 => Ok((uuid >> 80) as i64 * 1000),
        other => Err(overflow(
            format!(
                "the UUID `{}` is of version {other}, which has no time that is read",
                brief(text)
            ),
            Some("uuid_extract_version(x) = 7 in a condition leaves others out"),
        )),
    }
}
