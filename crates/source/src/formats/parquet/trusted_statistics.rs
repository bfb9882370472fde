//! Removes column chunk statistics that cannot be trusted.
//!
//! Pruning skips row groups by the bounds of their columns, so wrong bounds lose rows. Known faults of writers:
//!
//! | statistics | trusted |
//! | --- | --- |
//! | deprecated `min` and `max`: parquet-mr before 1.10 and Impala before 2.12 wrote them in signed order for every type, and parquet-mr before 1.8.1 wrote reused buffers for byte arrays (PARQUET-251, PARQUET-686) | for signed numbers and booleans only |
//! | `min_value` and `max_value` without a column order in the footer, which leaves their order undefined | for signed numbers and booleans only |
//! | a column order other than the type's own | no |
//! | `INT96`, `INTERVAL` and unknown annotations, which have no order | no |
//! | a bound that is no value of the type, or a minimum above the maximum | no |
//! | a minimum of 0.0 | as -0.0, which writers do not distinguish |
//! | a null count above the number of values | no |
//!
//! The loaded footer contains trusted statistics only. Bounds of `UUID` columns are converted to text, the type of
//! these columns in the source.

use std::cmp::Ordering;

use parquet::basic::{ColumnOrder, ConvertedType, LogicalType, SortOrder, Type as PhysicalType};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescriptor;

use crate::formats::julian_dates::{JulianCalendarFlags, is_gregorian_day};

use super::inexact_types::{format_uuid, is_int96, is_interval, is_uuid};

/// Maximum size of a decimal of up to 38 digits.
const DECIMAL128_BYTES: usize = 16;
/// Maximum number of digits of such a decimal.
const DECIMAL128_DIGITS: i32 = 38;
/// Maximum size of any decimal.
const DECIMAL256_BYTES: usize = 32;
/// -0.0 as a half-precision float, little endian.
const NEGATIVE_ZERO_F16: [u8; 2] = [0x00, 0x80];

/// Returns the trusted part of a chunk's statistics; `None` if the chunk has none.
///
/// `column` is the descriptor in the file's own schema, which may differ from the chunk's. `order` is the column
/// order that the footer states, if any.
pub(super) fn trusted_statistics(
    column: &ColumnDescriptor,
    order: Option<ColumnOrder>,
    chunk: &ColumnChunkMetaData,
) -> Option<Statistics> {
    let own = chunk.statistics()?;
    let values = u64::try_from(chunk.num_values()).unwrap_or(0);
    let nulls = own.null_count_opt().filter(|nulls| *nulls <= values);
    let has_bounds =
        has_type_order(column, order, own.is_min_max_deprecated()) && has_valid_bounds(column, own);
    let distinct = own.distinct_count_opt();
    Some(match own {
        // Readers of bounds find none under any type, and null counts under every type.
        _ if !has_bounds => Statistics::byte_array(None, None, distinct, nulls, false),
        Statistics::Boolean(own) => Statistics::boolean(
            own.min_opt().copied(),
            own.max_opt().copied(),
            distinct,
            nulls,
            false,
        ),
        Statistics::Int32(own) => Statistics::int32(
            own.min_opt().copied(),
            own.max_opt().copied(),
            distinct,
            nulls,
            false,
        ),
        Statistics::Int64(own) => Statistics::int64(
            own.min_opt().copied(),
            own.max_opt().copied(),
            distinct,
            nulls,
            false,
        ),
        Statistics::Int96(_) => Statistics::int96(None, None, distinct, nulls, false),
        Statistics::Float(own) => {
            let least = own.min_opt().map(|least| if *least == 0.0 { -0.0 } else { *least });
            Statistics::float(least, own.max_opt().copied(), distinct, nulls, false)
        }
        Statistics::Double(own) => {
            let least = own.min_opt().map(|least| if *least == 0.0 { -0.0 } else { *least });
            Statistics::double(least, own.max_opt().copied(), distinct, nulls, false)
        }
        Statistics::ByteArray(own) => Statistics::ByteArray(
            ValueStatistics::new(
                own.min_opt().cloned(),
                own.max_opt().cloned(),
                distinct,
                nulls,
                false,
            )
            .with_min_is_exact(own.min_is_exact())
            .with_max_is_exact(own.max_is_exact()),
        ),
        Statistics::FixedLenByteArray(own) if is_uuid(column) => {
            let text = |bound: Option<&FixedLenByteArray>| {
                Some(ByteArray::from(format_uuid(bound?.data())?.to_vec()))
            };
            Statistics::byte_array(text(own.min_opt()), text(own.max_opt()), distinct, nulls, false)
        }
        Statistics::FixedLenByteArray(own) => {
            let is_float = column.logical_type_ref() == Some(&LogicalType::Float16);
            let least = own.min_opt().cloned().map(|least| match least.data() {
                [0x00, 0x00] if is_float => ByteArray::from(NEGATIVE_ZERO_F16.to_vec()).into(),
                _ => least,
            });
            Statistics::FixedLenByteArray(
                ValueStatistics::new(least, own.max_opt().cloned(), distinct, nulls, false)
                    .with_min_is_exact(own.min_is_exact())
                    .with_max_is_exact(own.max_is_exact()),
            )
        }
    })
}

/// Removes the bounds of dates and timestamps from before the Gregorian calendar, if they follow the Julian
/// calendar.
pub(super) fn without_julian_bounds(
    trusted: Statistics,
    column: &ColumnDescriptor,
    julian_dates: JulianCalendarFlags,
) -> Statistics {
    let logical = column.logical_type_ref();
    let is_date =
        column.converted_type() == ConvertedType::DATE || logical == Some(&LogicalType::Date);
    let is_timestamp = matches!(logical, Some(LogicalType::Timestamp { .. }))
        || matches!(
            column.converted_type(),
            ConvertedType::TIMESTAMP_MILLIS | ConvertedType::TIMESTAMP_MICROS
        );
    if !julian_dates.has_julian_dates || !(is_date || is_timestamp) {
        return trusted;
    }
    // The unit is not decoded here, and a timestamp before 1970 may precede the Gregorian calendar in any
    // unit.
    let is_same = match &trusted {
        Statistics::Int32(own) => {
            own.min_opt().is_none_or(|least| is_gregorian_day((*least).into()))
        }
        Statistics::Int64(own) => own.min_opt().is_none_or(|least| *least >= 0),
        _ => true,
    };
    if is_same {
        return trusted;
    }
    let (distinct, nulls) = (trusted.distinct_count_opt(), trusted.null_count_opt());
    Statistics::byte_array(None, None, distinct, nulls, false)
}

fn type_order(column: &ColumnDescriptor) -> SortOrder {
    let (logical, converted) = (column.logical_type_ref(), column.converted_type());
    ColumnOrder::sort_order_for_type(logical, converted, column.physical_type())
}

/// Returns whether the bounds follow the order of the column's type.
fn has_type_order(
    column: &ColumnDescriptor,
    order: Option<ColumnOrder>,
    is_deprecated: bool,
) -> bool {
    let own = type_order(column);
    if own == SortOrder::UNDEFINED || is_int96(column) || is_interval(column) {
        return false;
    }
    let is_number = match column.physical_type() {
        PhysicalType::BOOLEAN => true,
        PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::FLOAT | PhysicalType::DOUBLE => {
            own == SortOrder::SIGNED
        }
        _ => false,
    };
    match order {
        Some(ColumnOrder::TYPE_DEFINED_ORDER(_)) => is_number || !is_deprecated,
        None | Some(ColumnOrder::UNDEFINED) => is_number,
        Some(ColumnOrder::UNKNOWN) => false,
    }
}

/// Returns whether the bounds are values of the type, with the minimum not above the maximum.
fn has_valid_bounds(column: &ColumnDescriptor, own: &Statistics) -> bool {
    let is_unsigned = type_order(column) == SortOrder::UNSIGNED;
    match own {
        Statistics::Boolean(own) => is_no_greater(own.min_opt(), own.max_opt(), bool::cmp),
        Statistics::Int32(own) if is_unsigned => {
            is_no_greater(own.min_opt(), own.max_opt(), |one, two| {
                one.cast_unsigned().cmp(&two.cast_unsigned())
            })
        }
        Statistics::Int64(own) if is_unsigned => {
            is_no_greater(own.min_opt(), own.max_opt(), |one, two| {
                one.cast_unsigned().cmp(&two.cast_unsigned())
            })
        }
        Statistics::Int32(own) => is_no_greater(own.min_opt(), own.max_opt(), i32::cmp),
        Statistics::Int64(own) => is_no_greater(own.min_opt(), own.max_opt(), i64::cmp),
        Statistics::Int96(_) => false,
        // Pruning ignores NaN bounds.
        Statistics::Float(own) => is_no_greater(own.min_opt(), own.max_opt(), |one, two| {
            one.partial_cmp(two).unwrap_or(Ordering::Equal)
        }),
        Statistics::Double(own) => is_no_greater(own.min_opt(), own.max_opt(), |one, two| {
            one.partial_cmp(two).unwrap_or(Ordering::Equal)
        }),
        Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
            let bounds = [own.min_bytes_opt(), own.max_bytes_opt()];
            let length = usize::try_from(column.type_length()).ok();
            let is_decimal = is_decimal(column);
            let is_value = |bound: &[u8]| match own {
                _ if is_decimal => {
                    let most = match column.type_precision() > DECIMAL128_DIGITS
                        || length.is_some_and(|length| length > DECIMAL128_BYTES)
                    {
                        true => DECIMAL256_BYTES,
                        false => DECIMAL128_BYTES,
                    };
                    (1..=most).contains(&bound.len())
                }
                Statistics::FixedLenByteArray(_) => Some(bound.len()) == length,
                _ => true,
            };
            bounds.into_iter().flatten().all(is_value)
                && match bounds {
                    [Some(least), Some(greatest)] if is_decimal => {
                        to_sortable_decimal(least).cmp(&to_sortable_decimal(greatest)).is_le()
                    }
                    // The bytes of half-precision floats are not ordered.
                    [Some(_), Some(_)] if !is_unsigned => true,
                    [Some(least), Some(greatest)] => least <= greatest,
                    _ => true,
                }
        }
    }
}

fn is_decimal(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Decimal(_)))
        || column.converted_type() == ConvertedType::DECIMAL
}

fn is_no_greater<T>(
    least: Option<&T>,
    greatest: Option<&T>,
    order: impl Fn(&T, &T) -> Ordering,
) -> bool {
    match (least, greatest) {
        (Some(least), Some(greatest)) => order(least, greatest).is_le(),
        _ => true,
    }
}

/// Widens a big-endian integer to 32 bytes whose unsigned order is the order of the integers.
fn to_sortable_decimal(bytes: &[u8]) -> [u8; DECIMAL256_BYTES] {
    let is_negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
    let mut wide = [if is_negative { 0xff } else { 0x00 }; DECIMAL256_BYTES];
    let place = DECIMAL256_BYTES.saturating_sub(bytes.len());
    wide[place..].copy_from_slice(&bytes[bytes.len() - (DECIMAL256_BYTES - place)..]);
    wide[0] ^= 0x80;
    wide
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::Int96;
    use parquet::file::metadata::ColumnChunkMetaData;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    const DEFINED: Option<ColumnOrder> = Some(ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::SIGNED));

    /// Returns the trusted bounds of a column chunk with four values.
    fn bounds(
        column: &str,
        order: Option<ColumnOrder>,
        statistics: Statistics,
    ) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let message = parse_message_type(&format!("message m {{ OPTIONAL {column}; }}")).unwrap();
        let schema = SchemaDescriptor::new(Arc::new(message));
        let chunk = ColumnChunkMetaData::builder(schema.column(0)).set_num_values(4);
        let chunk = chunk.set_statistics(statistics).build().unwrap();
        let trusted = trusted_statistics(&schema.column(0), order, &chunk).unwrap();
        let bytes = |bound: Option<&[u8]>| bound.map(<[u8]>::to_vec);
        (bytes(trusted.min_bytes_opt()), bytes(trusted.max_bytes_opt()))
    }

    fn ints(least: i32, greatest: i32, is_deprecated: bool) -> Statistics {
        Statistics::int32(Some(least), Some(greatest), None, Some(0), is_deprecated)
    }

    fn texts(least: &[u8], greatest: &[u8], is_deprecated: bool) -> Statistics {
        let bytes = |of: &[u8]| Some(ByteArray::from(of.to_vec()));
        Statistics::byte_array(bytes(least), bytes(greatest), None, Some(0), is_deprecated)
    }

    fn fixed(least: &[u8], greatest: &[u8], is_deprecated: bool) -> Statistics {
        let bytes = |of: &[u8]| Some(ByteArray::from(of.to_vec()).into());
        Statistics::fixed_len_byte_array(
            bytes(least),
            bytes(greatest),
            None,
            Some(0),
            is_deprecated,
        )
    }

    #[test]
    fn bounds_are_trusted_if_they_follow_the_order_of_the_type() {
        let undefined = Some(ColumnOrder::UNDEFINED);
        let unknown = Some(ColumnOrder::UNKNOWN);
        let int96 = |day| Some(Int96::from(vec![0, 0, day]));
        for (column, order, statistics, expected) in [
            ("INT32 c", DEFINED, ints(-1, 1, false), true),
            ("INT32 c", DEFINED, ints(-1, 1, true), true),
            ("INT32 c", None, ints(-1, 1, true), true),
            ("INT32 c", undefined, ints(-1, 1, false), true),
            ("INT32 c", unknown, ints(-1, 1, false), false),
            ("INT32 c (DATE)", None, ints(-1, 1, true), true),
            ("INT32 c (DECIMAL(5, 2))", None, ints(-1, 1, true), true),
            ("INT32 c (UINT_32)", DEFINED, ints(1, -1, false), true),
            ("INT32 c (UINT_32)", DEFINED, ints(-1, 1, false), false),
            ("INT32 c (UINT_32)", DEFINED, ints(1, 2, true), false),
            ("INT32 c (INTEGER(8, false))", None, ints(1, 2, false), false),
            ("INT32 c", DEFINED, ints(1, -1, false), false),
            ("INT96 c", DEFINED, Statistics::int96(int96(1), int96(2), None, None, false), false),
            ("BYTE_ARRAY c (UTF8)", DEFINED, texts(b"a", b"b", false), true),
            ("BYTE_ARRAY c (UTF8)", DEFINED, texts(b"a", b"b", true), false),
            ("BYTE_ARRAY c (UTF8)", None, texts(b"a", b"b", false), false),
            ("BYTE_ARRAY c (UTF8)", DEFINED, texts(b"\xc3\xa9", b"z", false), false),
            ("BYTE_ARRAY c (DECIMAL(5, 2))", DEFINED, texts(&[0xff], &[0, 1], false), true),
            ("BYTE_ARRAY c (DECIMAL(5, 2))", DEFINED, texts(&[1], &[0xff], false), false),
            ("BYTE_ARRAY c (DECIMAL(5, 2))", DEFINED, texts(&[], &[1], false), false),
            ("BYTE_ARRAY c (DECIMAL(5, 2))", DEFINED, texts(&[0; 17], &[1], false), false),
            ("BYTE_ARRAY c (DECIMAL(50, 2))", DEFINED, texts(&[0; 17], &[1], false), true),
            ("BYTE_ARRAY c (DECIMAL(50, 2))", DEFINED, texts(&[0; 33], &[1], false), false),
            ("FIXED_LEN_BYTE_ARRAY (2) c", DEFINED, fixed(b"ab", b"ac", false), true),
            ("FIXED_LEN_BYTE_ARRAY (2) c", DEFINED, fixed(b"a", b"ac", false), false),
            ("FIXED_LEN_BYTE_ARRAY (2) c", DEFINED, fixed(b"ab", b"ac", true), false),
            (
                "FIXED_LEN_BYTE_ARRAY (12) c (INTERVAL)",
                DEFINED,
                fixed(&[0; 12], &[1; 12], false),
                false,
            ),
            // -1.0 and 1.0 as half-precision floats.
            (
                "FIXED_LEN_BYTE_ARRAY (2) c (FLOAT16)",
                DEFINED,
                fixed(&[0, 0xbc], &[0, 0x3c], false),
                true,
            ),
        ] {
            let shown = format!("{column} {order:?} {statistics:?}");
            let (least, greatest) = bounds(column, order, statistics);
            assert_eq!((least.is_some(), greatest.is_some()), (expected, expected), "{shown}");
        }
    }

    #[test]
    fn minimum_of_zero_becomes_negative_zero() {
        let float = Statistics::float(Some(0.0), Some(1.0), None, None, false);
        let double = Statistics::double(Some(0.0), Some(1.0), None, None, false);
        let half = fixed(&[0, 0], &[0, 0x3c], false);
        for (column, statistics, least) in [
            ("FLOAT c", float, (-0.0f32).to_le_bytes().to_vec()),
            ("DOUBLE c", double, (-0.0f64).to_le_bytes().to_vec()),
            ("FIXED_LEN_BYTE_ARRAY (2) c (FLOAT16)", half, vec![0, 0x80]),
        ] {
            assert_eq!(bounds(column, DEFINED, statistics).0, Some(least), "{column}");
        }
    }

    #[test]
    fn null_count_above_the_value_count_is_dropped() {
        let schema = parse_message_type("message m { OPTIONAL INT32 c; }").unwrap();
        let schema = SchemaDescriptor::new(Arc::new(schema));
        for (nulls, expected) in
            [(None, None), (Some(0), Some(0)), (Some(4), Some(4)), (Some(5), None)]
        {
            let chunk = ColumnChunkMetaData::builder(schema.column(0))
                .set_num_values(4)
                .set_statistics(Statistics::int32(None, None, None, nulls, false));
            let trusted = trusted_statistics(&schema.column(0), DEFINED, &chunk.build().unwrap());
            assert_eq!(trusted.unwrap().null_count_opt(), expected);
        }
    }
}
