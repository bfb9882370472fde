//! Parsers from text to values: the spelling that a field must have to be of a type.
//!
//! Only this module decides it. Inference calls [`can_parse_as`] and the decoders call
//! [`parse_column_with_nulls`], so that an inferred type is a type that can be read. It is stricter than
//! Arrow's own parsers where those would lose something silently:
//!
//! | text | as | Arrow | here |
//! | --- | --- | --- | --- |
//! | `2013-01-01 05:00:00` | Date32 | the time is dropped | refused |
//! | `2013-01-01T05:00:00.1234567` | Timestamp(µs) | digits are dropped | refused |
//! | `2013-01-01T05:00:00+02:00` | Timestamp without zone | silently moved to UTC | refused |
//! | `1.5` (JSON) | Int64 | truncated to 1 | refused |
//! | `1700000000` (JSON) | Timestamp | taken as microseconds | refused |
//! | `12.345` | Decimal(10, 2) | the last digit is dropped | refused |
//! | `12:30:00.5` | Time32(s) | the fraction is dropped | refused |
//!
//! Columns arrive as string views. A value of up to 12 bytes, as most numbers and dates
//! are, is stored inside the view, and comparing it with a null string is one comparison of
//! 128-bit integers instead of a regular expression.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal128Type, Decimal256Type, DecimalType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, BooleanArray, LargeStringArray,
    PrimitiveArray, StringArray, StringViewArray,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer};
use arrow_cast::parse::{Parser, string_to_time_nanoseconds};
use arrow_schema::{DataType, TimeUnit};

use crate::inline_views::{VIEW_INLINE_BYTES_MAX, make_inline_view};

/// The strings that mean null.
#[derive(Debug, Clone, Default)]
pub(crate) struct NullStrings {
    contains_empty: bool,
    short_views: Vec<u128>,
    long_words: Vec<String>,
    words: Vec<String>,
}

impl NullStrings {
    /// Returns the given strings, and the empty string if `empty`.
    pub(crate) fn new(nulls: &[String], empty: bool) -> Self {
        let (short, long): (Vec<_>, Vec<_>) = nulls
            .iter()
            .filter(|null| !null.is_empty())
            .partition(|n| n.len() <= VIEW_INLINE_BYTES_MAX);
        Self {
            contains_empty: empty || nulls.iter().any(String::is_empty),
            short_views: short.into_iter().map(|null| make_view(null.as_bytes(), 0, 0)).collect(),
            long_words: long.into_iter().cloned().collect(),
            words: nulls.iter().filter(|null| !null.is_empty()).cloned().collect(),
        }
    }

    /// Returns whether no string means null.
    pub(crate) fn is_empty(&self) -> bool {
        !self.contains_empty && !self.has_words()
    }

    /// Returns whether the empty string means null.
    #[inline(always)]
    pub(crate) fn contains_empty(&self) -> bool {
        self.contains_empty
    }

    /// Returns whether strings other than the empty one mean null.
    #[inline(always)]
    pub(crate) fn has_words(&self) -> bool {
        !self.short_views.is_empty() || !self.long_words.is_empty()
    }

    /// Returns the strings that mean null, without the empty one.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Returns whether the short value of this view is one of the strings.
    #[inline(always)]
    pub(crate) fn contains_view(&self, view: u128) -> bool {
        self.short_views.contains(&view)
    }

    /// Returns whether `value` means null.
    #[inline]
    pub(crate) fn contains_bytes(&self, value: &[u8]) -> bool {
        match value.len() {
            0 => self.contains_empty,
            len if len <= VIEW_INLINE_BYTES_MAX => {
                !self.short_views.is_empty()
                    && self.short_views.contains(&make_inline_view(value, 0, len))
            }
            _ => self.long_words.iter().any(|null| null.as_bytes() == value),
        }
    }

    /// Returns whether `value` means null.
    pub(crate) fn contains(&self, value: &str) -> bool {
        self.contains_bytes(value.as_bytes())
    }

    #[inline]
    fn matches_view(&self, view: u128, value: impl FnOnce() -> bool) -> bool {
        // The low 32 bits of a view are the length.
        #[allow(clippy::cast_possible_truncation)]
        let length = view as u32 as usize;
        match length {
            0 => self.contains_empty,
            1..=VIEW_INLINE_BYTES_MAX => self.short_views.contains(&view),
            _ => !self.long_words.is_empty() && value(),
        }
    }

    /// Returns the validity of the rows; rows that are null already stay null.
    fn validity(&self, strings: &StringViewArray) -> Option<NullBuffer> {
        if self.is_empty() {
            return strings.nulls().cloned();
        }
        let views = strings.views();
        let valid = BooleanBuffer::collect_bool(views.len(), |row| {
            !self.matches_view(views[row], || self.contains(strings.value(row)))
        });
        let valid = match strings.nulls() {
            Some(nulls) => &valid & nulls.inner(),
            None => valid,
        };
        let nulls = NullBuffer::new(valid);
        (nulls.null_count() > 0).then_some(nulls)
    }
}

/// Returns whether text can be read as a column of this type.
#[must_use]
pub fn is_supported_type(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Boolean
        | T::Int8
        | T::Int16
        | T::Int32
        | T::Int64
        | T::UInt8
        | T::UInt16
        | T::UInt32
        | T::UInt64
        | T::Float32
        | T::Float64
        | T::Decimal128(_, _)
        | T::Decimal256(_, _)
        | T::Date32
        | T::Date64
        | T::Utf8
        | T::LargeUtf8
        | T::Utf8View
        | T::Binary
        | T::BinaryView
        | T::Time32(TimeUnit::Second | TimeUnit::Millisecond)
        | T::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond) => true,
        T::Timestamp(_, zone) => {
            zone.as_deref().is_none_or(|zone| ColumnTimeZone::parse(zone).is_some())
        }
        _ => false,
    }
}

/// Returns whether `value`, which is not null, is of a type.
#[must_use]
pub fn can_parse_as(value: &str, data_type: &DataType) -> bool {
    let one = StringViewArray::from_iter_values([value]);
    parse_column_with_nulls(&one, data_type, &NullStrings::default()).is_ok()
}

/// Parses a column of text as a type; nulls stay null.
///
/// # Errors
/// The first row that is not of that type.
pub fn parse_column(strings: &StringViewArray, data_type: &DataType) -> Result<ArrayRef, usize> {
    parse_column_with_nulls(strings, data_type, &NullStrings::default())
}

/// Parses a column of text as a type. On failure returns the first row that is not of that type.
pub(crate) fn parse_column_with_nulls(
    strings: &StringViewArray,
    data_type: &DataType,
    nulls: &NullStrings,
) -> Result<ArrayRef, usize> {
    use DataType as T;
    let valid = nulls.validity(strings);
    Ok(match data_type {
        T::Utf8View => {
            let (views, buffers, _) = strings.clone().into_parts();
            // Same views over the same buffers, so still valid UTF-8 and in bounds.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, valid) })
        }
        T::Utf8 => Arc::new(nullable_rows(strings, valid).collect::<StringArray>()),
        T::LargeUtf8 => Arc::new(nullable_rows(strings, valid).collect::<LargeStringArray>()),
        T::Binary | T::BinaryView => {
            let text = parse_column_with_nulls(strings, &T::Utf8View, nulls)?;
            arrow_cast::cast(&text, data_type).map_err(|_| 0usize)?
        }
        T::Boolean => {
            let mut failed = None;
            let values = BooleanBuffer::collect_bool(strings.len(), |row| {
                if valid.as_ref().is_some_and(|valid| valid.is_null(row)) {
                    return false;
                }
                parse_boolean(strings.value(row)).unwrap_or_else(|| {
                    failed.get_or_insert(row);
                    false
                })
            });
            if let Some(row) = failed {
                return Err(row);
            }
            Arc::new(BooleanArray::new(values, valid))
        }
        T::Int8 => parse_primitive_array::<Int8Type>(strings, valid)?,
        T::Int16 => parse_primitive_array::<Int16Type>(strings, valid)?,
        T::Int32 => parse_primitive_array::<Int32Type>(strings, valid)?,
        T::Int64 => parse_primitive_array::<Int64Type>(strings, valid)?,
        T::UInt8 => parse_primitive_array::<UInt8Type>(strings, valid)?,
        T::UInt16 => parse_primitive_array::<UInt16Type>(strings, valid)?,
        T::UInt32 => parse_primitive_array::<UInt32Type>(strings, valid)?,
        T::UInt64 => parse_primitive_array::<UInt64Type>(strings, valid)?,
        T::Float32 => parse_primitive_array::<Float32Type>(strings, valid)?,
        T::Float64 => parse_primitive_array::<Float64Type>(strings, valid)?,
        T::Time32(TimeUnit::Second) => {
            Arc::new(build_primitive_array::<Time32SecondType>(strings, valid, |text| {
                parse_time_of_day(text, 1_000_000_000)?.try_into().ok()
            })?)
        }
        T::Time32(TimeUnit::Millisecond) => {
            Arc::new(build_primitive_array::<Time32MillisecondType>(strings, valid, |text| {
                parse_time_of_day(text, 1_000_000)?.try_into().ok()
            })?)
        }
        T::Time64(TimeUnit::Microsecond) => {
            Arc::new(build_primitive_array::<Time64MicrosecondType>(strings, valid, |text| {
                parse_time_of_day(text, 1_000)
            })?)
        }
        T::Time64(TimeUnit::Nanosecond) => {
            Arc::new(build_primitive_array::<Time64NanosecondType>(strings, valid, |text| {
                parse_time_of_day(text, 1)
            })?)
        }
        T::Date32 => Arc::new(build_primitive_array::<Date32Type>(strings, valid, parse_date)?),
        T::Date64 => Arc::new(build_primitive_array::<Date64Type>(strings, valid, |text| {
            parse_date(text).map(|days| i64::from(days) * 86_400_000)
        })?),
        T::Decimal128(precision, scale) => {
            let array = build_primitive_array::<Decimal128Type>(strings, valid, |text| {
                parse_decimal::<Decimal128Type>(text, *precision, *scale)
            })?;
            Arc::new(array.with_precision_and_scale(*precision, *scale).map_err(|_| 0usize)?)
        }
        T::Decimal256(precision, scale) => {
            let array = build_primitive_array::<Decimal256Type>(strings, valid, |text| {
                parse_decimal::<Decimal256Type>(text, *precision, *scale)
            })?;
            Arc::new(array.with_precision_and_scale(*precision, *scale).map_err(|_| 0usize)?)
        }
        T::Timestamp(unit, zone) => {
            let parsed_zone = match zone {
                None => None,
                Some(zone) => Some(ColumnTimeZone::parse(zone).ok_or(0usize)?),
            };
            let parse = |text: &str| parse_timestamp(text, *unit, parsed_zone.as_ref());
            let zone = zone.clone();
            match unit {
                TimeUnit::Second => Arc::new(
                    build_primitive_array::<TimestampSecondType>(strings, valid, parse)?
                        .with_timezone_opt(zone),
                ) as ArrayRef,
                TimeUnit::Millisecond => Arc::new(
                    build_primitive_array::<TimestampMillisecondType>(strings, valid, parse)?
                        .with_timezone_opt(zone),
                ),
                TimeUnit::Microsecond => Arc::new(
                    build_primitive_array::<TimestampMicrosecondType>(strings, valid, parse)?
                        .with_timezone_opt(zone),
                ),
                TimeUnit::Nanosecond => Arc::new(
                    build_primitive_array::<TimestampNanosecondType>(strings, valid, parse)?
                        .with_timezone_opt(zone),
                ),
            }
        }
        _ => return Err(0),
    })
}

fn nullable_rows(
    strings: &StringViewArray,
    valid: Option<NullBuffer>,
) -> impl Iterator<Item = Option<&str>> {
    (0..strings.len()).map(move |row| {
        let null = valid.as_ref().is_some_and(|valid| valid.is_null(row));
        (!null).then(|| strings.value(row))
    })
}

fn parse_primitive_array<T: ArrowPrimitiveType + Parser>(
    strings: &StringViewArray,
    valid: Option<NullBuffer>,
) -> Result<ArrayRef, usize> {
    Ok(Arc::new(build_primitive_array::<T>(strings, valid, T::parse)?))
}

#[inline]
fn build_primitive_array<T: ArrowPrimitiveType>(
    strings: &StringViewArray,
    valid: Option<NullBuffer>,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>, usize> {
    let mut values = Vec::with_capacity(strings.len());
    match &valid {
        None => {
            for row in 0..strings.len() {
                values.push(parse(strings.value(row)).ok_or(row)?);
            }
        }
        Some(valid) => {
            for row in 0..strings.len() {
                values.push(if valid.is_valid(row) {
                    parse(strings.value(row)).ok_or(row)?
                } else {
                    T::default_value()
                });
            }
        }
    }
    Ok(PrimitiveArray::new(values.into(), valid))
}

/// Parses `true` or `false` in any case.
pub(crate) fn parse_boolean(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// Parses a float in the spelling that a column of floats takes.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    Float64Type::parse(text)
}

/// Number of decimal digits up to which a double holds every integer.
pub(crate) const DOUBLE_EXACT_DIGITS: usize = 15;

/// Returns whether a text is an integer that differs from the nearest double.
pub(crate) fn is_rounded_as_double(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = digits.trim_start_matches('0');
    digits.len() > DOUBLE_EXACT_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        // Formatting writes all digits of a finite double, and no digits of infinity.
        && digits.parse::<f64>().is_ok_and(|nearest| format!("{nearest:.0}") != digits)
}

/// Returns whether a text is a decimal number whose nearest double is infinite, or zero although the number
/// is not.
pub(crate) fn is_out_of_double_range(text: &str) -> bool {
    let Some(nearest) = parse_float(text) else { return false };
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let has_digit = mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    has_digit && (nearest.is_infinite() || nearest == 0.0)
}

/// Returns whether a text is a finite number that the nearest double represents: an integer (no point, no
/// exponent) exactly, and any other number up to rounding.
pub(crate) fn is_representable_as_double(text: &str) -> bool {
    parse_float(text).is_some_and(f64::is_finite)
        && !is_out_of_double_range(text)
        && !is_rounded_as_double(text)
}

/// Parses `[+-]digits[.digits][e[+-]digits]`, possibly surrounded by white space, into units of the scale.
/// Returns `None` if the type does not hold the number exactly.
fn parse_decimal<T: DecimalType>(text: &str, precision: u8, scale: i8) -> Option<T::Native> {
    let text = text.trim_ascii().as_bytes();
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let exponent = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match exponent {
        Some(at) => (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?),
        None => (text, "0"),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = (&mantissa[..point], mantissa.get(point + 1..).unwrap_or_default());
    let digits = || whole.iter().chain(fraction);
    if whole.is_empty() && fraction.is_empty() || !digits().all(u8::is_ascii_digit) {
        return None;
    }
    // An exponent that does not fit belongs to zero, or to a number that does not fit.
    let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let zeros = digits().take_while(|digit| **digit == b'0').count();
    let count = whole.len() + fraction.len();
    let trailing = digits().rev().take_while(|digit| **digit == b'0').count();
    let zero = T::Native::usize_as(0);
    if zeros == count {
        return Some(zero);
    }
    // The digits times ten to the power of `shift` have the scale.
    let shift = exponent.parse::<i64>().ok()?.checked_add(i64::from(scale))?;
    let shift =
        shift.checked_add(i64::try_from(trailing).ok()? - i64::try_from(fraction.len()).ok()?)?;
    let significant = count - zeros - trailing;
    let shift = usize::try_from(shift).ok()?;
    if significant.checked_add(shift)? > usize::from(precision) {
        return None;
    }
    let ten = T::Native::usize_as(10);
    let mut value = zero;
    for digit in digits().skip(zeros).take(significant) {
        let digit = T::Native::usize_as(usize::from(digit - b'0'));
        value = value.mul_checked(ten).ok()?.add_checked(digit).ok()?;
    }
    for _ in 0..shift {
        value = value.mul_checked(ten).ok()?;
    }
    if negative { value.neg_checked().ok() } else { Some(value) }
}

/// Parses `HH:MM[:SS[.fraction]]`, possibly with AM or PM, into units of `step` nanoseconds. Returns `None`
/// if those do not hold the time exactly.
fn parse_time_of_day(text: &str, step: i64) -> Option<i64> {
    const DAY_NANOS: i64 = 86_400_000_000_000;
    // Beyond nanoseconds, dropping a digit other than zero would lose something.
    let fraction = text.bytes().skip_while(|byte| *byte != b'.').skip(1 + 9);
    if fraction.into_iter().any(|byte| matches!(byte, b'1'..=b'9')) {
        return None;
    }
    // A leap second needs a day, which a time of day does not have.
    if text.get(6..8) == Some("60") {
        return None;
    }
    let nanos = string_to_time_nanoseconds(text).ok()?;
    (nanos % step == 0 && nanos < DAY_NANOS).then_some(nanos / step)
}

fn parse_digits(bytes: &[u8]) -> Option<u32> {
    let mut number = 0;
    for byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u32::from(digit);
    }
    Some(number)
}

/// Parses `YYYY-MM-DD` into days since 1970-01-01.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    let bytes: &[u8; 10] = text.as_bytes().try_into().ok()?;
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) =
        (parse_digits(&bytes[..4])?, parse_digits(&bytes[5..7])?, parse_digits(&bytes[8..])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if day == 0 || day > last {
        return None;
    }
    // Days of the proleptic Gregorian calendar, years beginning in March (Hinnant, "chrono-
    // Compatible Low-Level Date Algorithms").
    let shifted = i32::try_from(year).ok()? - i32::from(month <= 2);
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let (month, day) = (i32::try_from(month).ok()?, i32::try_from(day).ok()?);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// A date, possibly with a time, as the text states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParsedDateTime {
    /// Seconds since 1970-01-01 00:00:00 in local time of the text.
    pub(crate) seconds: i64,
    /// Fraction of the second in nanoseconds.
    pub(crate) nanos: u32,
    /// Offset of the local time from UTC in seconds, if the text states it.
    pub(crate) utc_offset_seconds: Option<i32>,
    /// True if the text has a time besides the date.
    pub(crate) has_time: bool,
}

/// Returns whether a type is a text type: any text is a value of it.
pub(crate) fn is_text_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => true,
        DataType::Dictionary(_, values) => is_text_type(values),
        _ => false,
    }
}

/// Parses `YYYY-MM-DD`, optionally followed by `T` or a space, `HH:MM[:SS[.fraction]]`, and `Z` or an offset.
pub(crate) fn parse_date_time(text: &str) -> Option<ParsedDateTime> {
    let days = i64::from(parse_date(text.get(..10)?)?);
    let bytes = text.as_bytes();
    if bytes.len() == 10 {
        let seconds = days * 86_400;
        return Some(ParsedDateTime {
            seconds,
            nanos: 0,
            utc_offset_seconds: None,
            has_time: false,
        });
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') || bytes.len() < 16 || bytes[13] != b':' {
        return None;
    }
    let (hour, minute) = (parse_digits(&bytes[11..13])?, parse_digits(&bytes[14..16])?);
    let (mut second, mut nanos, mut at) = (0, 0, 16);
    if bytes.get(at) == Some(&b':') {
        second = parse_digits(bytes.get(17..19)?)?;
        at = 19;
        if bytes.get(at) == Some(&b'.') {
            let fraction = &bytes[20..];
            let count = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            // Beyond nanoseconds, dropping a digit other than zero would lose something.
            if count == 0 || fraction[..count].iter().skip(9).any(|byte| *byte != b'0') {
                return None;
            }
            let kept = count.min(9);
            nanos = parse_digits(&fraction[..kept])? * 10u32.pow(9 - u32::try_from(kept).ok()?);
            at = 20 + count;
        }
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    let offset = parse_zone_offset(&bytes[at..])?;
    if second == 60 && !can_be_leap_second(seconds - i64::from(offset.unwrap_or(0))) {
        return None;
    }
    Some(ParsedDateTime { seconds, nanos, utc_offset_seconds: offset, has_time: true })
}

/// Returns whether second 60 is possible at an instant in seconds since 1970-01-01 UTC.
///
/// A leap second is the last second of a UTC day, and counts as the first second of the next day. Every
/// other second 60 is a mistake. A time without a zone is taken for UTC.
pub(crate) fn can_be_leap_second(seconds: i64) -> bool {
    seconds.rem_euclid(86_400) == 0
}

/// Parses an empty text, `Z`, `+HH`, `+HHMM` or `+HH:MM`, possibly after a space.
fn parse_zone_offset(bytes: &[u8]) -> Option<Option<i32>> {
    let bytes = match bytes {
        [] => return Some(None),
        [b' ', rest @ ..] => rest,
        rest => rest,
    };
    let (sign, rest) = match bytes {
        b"Z" | b"z" => return Some(Some(0)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest {
        [a, b] => (parse_digits(&[*a, *b])?, 0),
        [a, b, c, d] | [a, b, b':', c, d] => (parse_digits(&[*a, *b])?, parse_digits(&[*c, *d])?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    i32::try_from(hours * 3600 + minutes * 60).ok().map(|seconds| Some(sign * seconds))
}

/// The time zone of a timestamp column.
enum ColumnTimeZone {
    FixedOffset(i32),
    NamedZone(arrow_array::timezone::Tz),
}

impl ColumnTimeZone {
    fn parse(name: &str) -> Option<Self> {
        if matches!(name, "UTC" | "Z" | "utc") {
            return Some(ColumnTimeZone::FixedOffset(0));
        }
        if let Some(Some(seconds)) = parse_zone_offset(name.as_bytes()) {
            return Some(ColumnTimeZone::FixedOffset(seconds));
        }
        name.parse().ok().map(ColumnTimeZone::NamedZone)
    }

    /// Returns the offset of the zone from UTC in seconds when its local time is `seconds`.
    fn offset_at_local_time(&self, seconds: i64) -> Option<i32> {
        match self {
            ColumnTimeZone::FixedOffset(offset) => Some(*offset),
            ColumnTimeZone::NamedZone(zone) => {
                use chrono::{Offset, TimeZone};
                let shown = chrono::DateTime::from_timestamp(seconds, 0)?.naive_utc();
                let offset = zone.offset_from_local_datetime(&shown).single()?;
                Some(offset.fix().local_minus_utc())
            }
        }
    }
}

fn parse_timestamp(text: &str, unit: TimeUnit, zone: Option<&ColumnTimeZone>) -> Option<i64> {
    let written = parse_date_time(text)?;
    let offset = match (zone, written.utc_offset_seconds) {
        // A column without a zone holds local times; the local time of another zone would be
        // mixed in silently.
        (None, None | Some(0)) => 0,
        (None, Some(_)) => return None,
        (Some(_), Some(offset)) => offset,
        (Some(zone), None) => zone.offset_at_local_time(written.seconds)?,
    };
    let seconds = written.seconds - i64::from(offset);
    let (per_second, step) = match unit {
        TimeUnit::Second => (1, 1_000_000_000),
        TimeUnit::Millisecond => (1_000, 1_000_000),
        TimeUnit::Microsecond => (1_000_000, 1_000),
        TimeUnit::Nanosecond => (1_000_000_000, 1),
    };
    if written.nanos % step != 0 {
        return None;
    }
    // The first instants of a unit lie in a second that begins before them.
    let units = i128::from(seconds) * i128::from(per_second) + i128::from(written.nanos / step);
    units.try_into().ok()
}

/// Returns the SQL name of a type with its article and, where it helps, its form: "a BIGINT".
#[must_use]
pub fn describe_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Date32 | DataType::Date64 => "a date (YYYY-MM-DD)".into(),
        DataType::Timestamp(unit, zone) => {
            let unit = match unit {
                TimeUnit::Second => "seconds",
                TimeUnit::Millisecond => "milliseconds",
                TimeUnit::Microsecond => "microseconds",
                TimeUnit::Nanosecond => "nanoseconds",
            };
            match zone {
                Some(_) => format!("a timestamp with a time zone, to {unit}"),
                None => format!("a timestamp without a time zone, to {unit}"),
            }
        }
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "text".into(),
        DataType::Dictionary(_, values) => describe_type(values),
        DataType::Time32(_) | DataType::Time64(_) => "a time of day (HH:MM:SS)".into(),
        DataType::Boolean => "a Boolean (true or false)".into(),
        DataType::Struct(_) | DataType::Map(_, _) => "an object".into(),
        DataType::List(_) | DataType::LargeList(_) => "an array".into(),
        other => {
            let name = crate::sql_types::sql_type_name(other);
            let article = if name.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
            format!("{article} {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NANOS: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
    const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

    proptest! {
        #[test]
        fn an_integer_is_rounded_if_no_double_equals_it(
            high in any::<u64>(), low in 0u64..9, shift in 0u32..64, negative: bool, zeros in 0usize..3
        ) {
            let number = (u128::from(high) << 64 >> shift) / 2 + u128::from(low);
            let sign = if negative { "-" } else { "" };
            let text = format!("{sign}{}{number}", "0".repeat(zeros));
            let is_exact = number as f64 as u128 == number;
            prop_assert_eq!(is_rounded_as_double(&text), !is_exact, "{}", text);
        }
    }

    #[test]
    fn only_integers_are_reported_as_rounded() {
        for (text, expected) in [
            ("9007199254740993", true),
            ("9007199254740993.0", false),
            ("9007199254740993e0", false),
            ("", false),
            ("-", false),
            ("0", false),
            ("a9007199254740993", false),
            (&"9".repeat(400), true),
        ] {
            assert_eq!(is_rounded_as_double(text), expected, "{text}");
        }
    }

    #[test]
    fn double_holds_integers_to_the_last_digit_and_other_numbers_within_its_range() {
        for (text, expected) in [
            ("0", true),
            ("-0", true),
            ("0e999", true),
            ("0.000", true),
            ("9007199254740992", true),
            ("9007199254740993", false),
            ("-9007199254740993", false),
            ("9007199254740993.0", true),
            ("9007199254740993e0", true),
            ("1000000000000000000000", true),
            ("1000000000000000000001", false),
            (&"9".repeat(400), false),
            (&format!("{}.5", "9".repeat(400)), false),
            ("1e308", true),
            ("1e400", false),
            ("-1E+400", false),
            ("5e-324", true),
            ("1e-400", false),
            ("-0.0000001e-400", false),
            ("0.1234567890123456789", true),
            ("x", false),
        ] {
            assert_eq!(is_representable_as_double(text), expected, "{text}");
        }
    }

    #[test]
    fn text_is_of_a_type_only_if_nothing_is_lost() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let new_york = DataType::Timestamp(TimeUnit::Microsecond, Some("America/New_York".into()));
        for (text, data_type, expected) in [
            ("12", DataType::Int64, true),
            ("-9223372036854775808", DataType::Int64, true),
            ("9223372036854775808", DataType::Int64, false),
            ("1.5", DataType::Int64, false),
            ("1e3", DataType::Int64, false),
            ("300", DataType::UInt8, false),
            ("abc", DataType::Float64, false),
            ("1e-3", DataType::Float64, true),
            ("NaN", DataType::Float64, true),
            ("TRUE", DataType::Boolean, true),
            ("1", DataType::Boolean, false),
            ("2013-01-01", DataType::Date32, true),
            ("2013-02-29", DataType::Date32, false),
            ("2012-02-29", DataType::Date32, true),
            ("2013-1-1", DataType::Date32, false),
            ("20130101", DataType::Date32, false),
            ("2013-01-01 05:00:00", DataType::Date32, false),
            ("2013-01-01 05:00:00", MICROS, true),
            ("2013-01-01T05:00", MICROS, true),
            ("2013-01-01", MICROS, true),
            ("2013-01-01T05:00:00.123456", MICROS, true),
            ("2013-01-01T05:00:00.1234560", MICROS, true),
            ("2013-01-01T05:00:00.1234567", MICROS, false),
            ("2013-01-01T05:00:00Z", MICROS, true),
            ("2013-01-01T05:00:00+02:00", MICROS, false),
            ("2013-01-01T25:00:00", MICROS, false),
            ("2013-01-01T05:00:00.", MICROS, false),
            ("2013-01-01T05:00:00é", MICROS, false),
            ("2013-01-0é", MICROS, false),
            ("1700000000", MICROS, false),
            ("2013-01-01T05:00:00 +0200", utc.clone(), true),
            ("2013-01-01T05:00:00", utc, true),
            ("2013-03-10T02:30:00", new_york.clone(), false),
            ("2013-03-10T03:30:00", new_york, true),
            ("1677-09-21T00:12:43.145224192", NANOS, true),
            ("1677-09-21T00:12:43.145224191", NANOS, false),
            ("2262-04-11T23:47:16.854775807", NANOS, true),
            ("2262-04-11T23:47:16.854775808", NANOS, false),
            ("12.34", DataType::Decimal128(10, 2), true),
            ("12.345", DataType::Decimal128(10, 2), false),
            ("12.3400", DataType::Decimal128(10, 2), true),
            ("1234567.1", DataType::Decimal128(3, 1), false),
            ("1234e-2", DataType::Decimal128(4, 2), true),
            ("1.5e3", DataType::Decimal128(4, 0), true),
            ("1e99999999999999999999", DataType::Decimal128(4, 0), false),
            ("1e-40000", DataType::Decimal128(4, 0), false),
            ("0e99999999999999999999", DataType::Decimal128(4, 0), true),
            ("-.5", DataType::Decimal128(4, 1), true),
            (".", DataType::Decimal128(4, 1), false),
            ("+.", DataType::Decimal128(4, 1), false),
            ("e5", DataType::Decimal128(4, 1), false),
            ("1e", DataType::Decimal128(4, 1), false),
            ("1.2.3", DataType::Decimal128(4, 1), false),
            ("12:30:00", DataType::Time64(TimeUnit::Nanosecond), true),
            ("12:30", DataType::Time32(TimeUnit::Second), true),
            ("12:30:00.500", DataType::Time32(TimeUnit::Millisecond), true),
            ("12:30:00.5", DataType::Time32(TimeUnit::Second), false),
            ("12:30:00.1234567891", DataType::Time64(TimeUnit::Nanosecond), false),
            ("23:59:60", DataType::Time32(TimeUnit::Second), false),
            ("12:30:60", DataType::Time64(TimeUnit::Microsecond), false),
            ("12:30:60.5", DataType::Time64(TimeUnit::Nanosecond), false),
            ("2016-12-31T23:59:60", MICROS, true),
            ("2016-12-31 23:59:60.5Z", MICROS, true),
            ("2016-12-31T12:30:60", MICROS, false),
            ("2016-12-31T12:30:60.5Z", MICROS, false),
            ("1230", DataType::Time32(TimeUnit::Second), false),
            ("x", DataType::Null, false),
        ] {
            assert_eq!(can_parse_as(text, &data_type), expected, "{text} as {data_type}");
        }
    }

    #[test]
    fn null_strings_of_any_length_are_null_in_any_type() {
        let nulls = NullStrings::new(&["NA".into(), "not available at all".into()], true);
        let strings = StringViewArray::from(vec![
            Some("1"),
            Some("NA"),
            None,
            Some(""),
            Some("not available at all"),
        ]);
        for data_type in [DataType::Int64, DataType::Utf8View, DataType::Utf8, DataType::Float64] {
            let column = parse_column_with_nulls(&strings, &data_type, &nulls).unwrap();
            assert_eq!(column.null_count(), 4, "{data_type}");
            assert!(column.is_valid(0));
        }
        assert_eq!(
            parse_column_with_nulls(&strings, &DataType::Int64, &NullStrings::default()),
            Err(1)
        );
    }

    proptest! {
        #[test]
        fn dates_and_times_agree_with_chrono(
            year in 0i32..=9999, day in 0u32..366, second in 0u32..86_400, nanos in 0u32..1_000_000_000
        ) {
            let Some(date) = chrono::NaiveDate::from_yo_opt(year, day + 1) else { return Ok(()) };
            let time = date.and_time(
                chrono::NaiveTime::from_num_seconds_from_midnight_opt(second, nanos).unwrap(),
            );
            let text = time.format("%Y-%m-%dT%H:%M:%S%.9f").to_string();
            let written = parse_date_time(&text).unwrap();
            prop_assert_eq!(written.seconds, time.and_utc().timestamp());
            prop_assert_eq!(written.nanos, nanos);
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,30}|[0-9:T. +\\-Zé]{0,40}") {
            for data_type in [MICROS, DataType::Date32, DataType::Int64, DataType::Float64] {
                let _ = can_parse_as(&text, &data_type);
            }
        }
    }
}
