//! Inference of columns and their types from a sample.
//!
//! A sample consists of blocks of whole records from the beginning of the input: at least
//! [`SAMPLE_RECORDS_MIN`] records or [`SAMPLE_BYTES_MAX`], if the input has that much. Inference assigns a
//! type only if every value of the sample can be read as it, by the parsers that will read it
//! ([`value_parsing`]).
//!
//! The beginnings of further files are samples of their own, which widen the first one: a
//! column without values gets a type, numbers and times become wider, and nothing else
//! changes. A column of numbers does not become text because a late file has `n/a` in it: that
//! would change the meaning of comparisons, and the decoder better reports it where it stands.

use arrow_schema::{DataType, TimeUnit};

use crate::canonical_spelling::{
    is_canonical_float, is_canonical_integer, is_canonical_time, is_special_float,
};
use crate::value_parsing;

mod comma_numbers;
pub mod csv;
pub mod json;
mod non_iso_dates;

pub use comma_numbers::CommaNumbers;
pub use non_iso_dates::NonIsoDates;

/// Minimum number of records in a sample, if the input has that many.
pub const SAMPLE_RECORDS_MIN: u64 = 10_000;
/// Size at which a sample ends, however few records it has.
pub const SAMPLE_BYTES_MAX: u64 = 16 << 20;

/// The types that the values of a text column may have, narrowed value by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InferredTextType {
    has_values: bool,
    can_be_boolean: bool,
    can_be_int: bool,
    can_be_uint: bool,
    can_be_float: bool,
    has_number: bool,
    can_be_date: bool,
    can_be_naive: bool,
    can_be_zoned: bool,
    /// True if all values are dates or times, with or without a zone.
    can_be_temporal: bool,
    has_time: bool,
    needs_nanos: bool,
    /// True if all values are canonical times of day.
    can_be_time_of_day: bool,
}

impl Default for InferredTextType {
    fn default() -> Self {
        Self {
            has_values: false,
            can_be_boolean: true,
            can_be_int: true,
            can_be_uint: true,
            can_be_float: true,
            has_number: false,
            can_be_date: true,
            can_be_naive: true,
            can_be_zoned: true,
            can_be_temporal: true,
            has_time: false,
            needs_nanos: false,
            can_be_time_of_day: true,
        }
    }
}

impl InferredTextType {
    /// Adds a value that is not null.
    pub fn add_value(&mut self, text: &str) {
        self.has_values = true;
        if self.can_be_boolean && value_parsing::parse_boolean(text).is_none() {
            self.can_be_boolean = false;
        }
        if self.can_be_int || self.can_be_uint || self.can_be_float {
            self.add_number(text);
        }
        self.can_be_time_of_day = self.can_be_time_of_day && is_canonical_time(text.as_bytes());
        if self.can_be_temporal {
            match value_parsing::parse_date_time(text) {
                Some(written) => {
                    self.can_be_date &= !written.has_time;
                    self.can_be_naive &= written.utc_offset_seconds.is_none();
                    self.can_be_zoned &= written.utc_offset_seconds.is_some();
                    self.has_time |= written.has_time;
                    self.needs_nanos |= written.nanos % 1000 != 0;
                }
                None => {
                    (self.can_be_date, self.can_be_naive, self.can_be_zoned) =
                        (false, false, false);
                    self.can_be_temporal = false;
                }
            }
        }
    }

    fn add_number(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if is_canonical_integer(bytes) {
            self.can_be_int &= bytes.len() < 19 || text.parse::<i64>().is_ok();
            self.can_be_uint &=
                bytes[0] != b'-' && (bytes.len() < 20 || text.parse::<u64>().is_ok());
            self.can_be_float &= is_canonical_float(bytes);
            self.has_number = true;
            return;
        }
        (self.can_be_int, self.can_be_uint) = (false, false);
        self.can_be_float &= is_canonical_float(bytes);
        self.has_number |= self.can_be_float && !is_special_float(bytes);
    }

    /// Returns the narrowest type of all values, if there was a value.
    #[must_use]
    pub fn data_type(&self) -> Option<DataType> {
        if !self.has_values {
            return None;
        }
        let unit = if self.needs_nanos { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        Some(if self.can_be_boolean {
            DataType::Boolean
        } else if self.can_be_int {
            DataType::Int64
        } else if self.can_be_uint {
            DataType::UInt64
        } else if self.can_be_float && self.has_number {
            DataType::Float64
        } else if self.can_be_date {
            DataType::Date32
        } else if self.can_be_naive && self.has_time {
            DataType::Timestamp(unit, None)
        } else if self.can_be_zoned && self.has_time {
            DataType::Timestamp(unit, Some("UTC".into()))
        } else if self.can_be_time_of_day {
            DataType::Time64(TimeUnit::Microsecond)
        } else {
            DataType::Utf8View
        })
    }

    /// Returns the narrowest type where only dates and times may be distinguished from text: in JSON, a
    /// number in quotes is meant to be text.
    #[must_use]
    pub fn temporal_type(&self) -> Option<DataType> {
        let kind = Self {
            can_be_boolean: false,
            can_be_int: false,
            can_be_uint: false,
            can_be_float: false,
            ..*self
        };
        kind.data_type()
    }

    /// Returns whether [`temporal_type`](Self::temporal_type) is plain text, whatever values follow.
    pub(crate) fn is_never_temporal(&self) -> bool {
        self.has_values
            && !(self.can_be_date
                || self.can_be_naive
                || self.can_be_zoned
                || self.can_be_time_of_day)
    }

    /// Returns whether one more value would leave everything unchanged that
    /// [`temporal_type`](Self::temporal_type) depends on.
    pub(crate) fn is_temporal_type_unchanged_by(&self, text: &str) -> bool {
        let mut dates = Self {
            can_be_boolean: false,
            can_be_int: false,
            can_be_uint: false,
            can_be_float: false,
            ..*self
        };
        let before = dates;
        dates.add_value(text);
        dates == before
    }

    /// Returns whether all values are dates or times of which some state a zone and others none.
    #[must_use]
    pub fn is_partly_zoned(&self) -> bool {
        self.has_values && self.can_be_temporal && !self.can_be_naive && !self.can_be_zoned
    }

    /// Widens the types by those of values elsewhere, unless a type would become text: numbers and
    /// times become wider. The decoder reports values that do not fit them.
    pub fn widen(&mut self, other: &Self) {
        let is_text = |kind: &Self| kind.data_type() == Some(DataType::Utf8View);
        let mut wider = *self;
        wider.merge(other);
        if !self.has_values || is_text(self) || !is_text(&wider) {
            *self = wider;
        }
    }

    /// Merges the types of other values: keeps the types that all values may have.
    pub fn merge(&mut self, other: &Self) {
        self.has_values |= other.has_values;
        self.can_be_boolean &= other.can_be_boolean;
        self.can_be_int &= other.can_be_int;
        self.can_be_uint &= other.can_be_uint;
        self.can_be_float &= other.can_be_float;
        self.has_number |= other.has_number;
        self.can_be_date &= other.can_be_date;
        self.can_be_naive &= other.can_be_naive;
        self.can_be_zoned &= other.can_be_zoned;
        self.can_be_temporal &= other.can_be_temporal;
        self.has_time |= other.has_time;
        self.needs_nanos |= other.needs_nanos;
        self.can_be_time_of_day &= other.can_be_time_of_day;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

    #[test]
    fn the_narrowest_type_that_holds_every_value_is_chosen() {
        let micros =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        for (texts, expected) in [
            (&["true", "FALSE"][..], DataType::Boolean),
            (&["1", "-2"], DataType::Int64),
            (&["9223372036854775807"], DataType::Int64),
            (&["9223372036854775808", "1"], DataType::UInt64),
            (&["9223372036854775808", "-1"], DataType::Utf8View),
            (&["18446744073709551616"], DataType::Utf8View),
            (&["1", "2.5"], DataType::Float64),
            (&["1e5", "0.5", "5.0"], DataType::Float64),
            (&[".5"], DataType::Utf8View),
            (&["5."], DataType::Utf8View),
            (&["1", "-0"], DataType::Float64),
            (&["007"], DataType::Utf8View),
            (&["12345e67"], DataType::Utf8View),
            (&["123e4567", "1234e5678"], DataType::Utf8View),
            (&["9007199254740993", "7"], DataType::Int64),
            (&["9007199254740993", "7.5"], DataType::Utf8View),
            (&["9007199254740992", "7.5"], DataType::Float64),
            (&["1", "nan"], DataType::Utf8View),
            (&["1.5", "inf", "-inf", "NaN"], DataType::Float64),
            (&["1", "NaN"], DataType::Float64),
            (&["NaN"], DataType::Utf8View),
            (&["00501", "12345"], DataType::Utf8View),
            (&["+49", "1"], DataType::Utf8View),
            (&["0", "0.5", "-0"], DataType::Float64),
            (&["1", "true"], DataType::Utf8View),
            (&["2013-01-01"], DataType::Date32),
            (&["2013-01-01", "2013-01-01 10:00:00"], micros(None)),
            (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00+02:00"], micros(Some("UTC"))),
            (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00"], DataType::Utf8View),
            (&["2013-01-01T10:00:00.123456789"], DataType::Timestamp(TimeUnit::Nanosecond, None)),
            (&["10:00:00"], TIME),
            (&["10:00:00", "23:59:59.25"], TIME),
            (&["10:00:00", "10:00"], DataType::Utf8View),
            (&["10:00:00", "2013-01-01 10:00:00"], DataType::Utf8View),
            (&["24:00:00"], DataType::Utf8View),
            (&["10:00:00.1234567"], DataType::Utf8View),
            (&["2013-02-30"], DataType::Utf8View),
            (&["-", "1"], DataType::Utf8View),
            (&["1.2.3.4"], DataType::Utf8View),
            (&[" 1"], DataType::Utf8View),
        ] {
            let mut kind = InferredTextType::default();
            texts.iter().for_each(|text| kind.add_value(text));
            let found = kind.data_type().unwrap();
            assert_eq!(found, expected, "{texts:?}");
            for text in texts {
                assert!(value_parsing::can_parse_as(text, &found), "{text} as {found}");
            }
        }
        assert_eq!(InferredTextType::default().data_type(), None);
    }

    #[test]
    fn mixed_zoned_and_naive_times_are_detected() {
        for (texts, expected) in [
            (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00"][..], true),
            (&["2013-01-01T10:00:00", "2013-01-01T10:00:00+02:00"], true),
            (&["2013-01-01", "2013-01-01T10:00:00+02:00"], true),
            (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00+02:00"], false),
            (&["2013-01-01T10:00:00", "2013-01-01"], false),
            (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00", "x"], false),
            (&["x", "2013-01-01T10:00:00Z", "2013-01-01T10:00:00"], false),
            (&[], false),
        ] {
            let kind = |texts: &[&str]| {
                let mut kind = InferredTextType::default();
                texts.iter().for_each(|text| kind.add_value(text));
                kind
            };
            assert_eq!(kind(texts).is_partly_zoned(), expected, "{texts:?}");
            let mut merged = InferredTextType::default();
            texts.iter().for_each(|text| merged.merge(&kind(&[text])));
            assert_eq!(merged.is_partly_zoned(), expected, "{texts:?}");
        }
    }

    #[test]
    fn type_is_widened_but_never_to_text() {
        let micros = |zone: Option<&str>| {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into)))
        };
        for (own, other, expected) in [
            (&["1"][..], &["2.5"][..], Some(DataType::Float64)),
            (&["1"], &["x"], Some(DataType::Int64)),
            (&["1"], &["2.5", "x"], Some(DataType::Int64)),
            (&["1"], &[], Some(DataType::Int64)),
            (&[], &["x"], Some(DataType::Utf8View)),
            (&[], &["1"], Some(DataType::Int64)),
            (&["x"], &["1"], Some(DataType::Utf8View)),
            (&["NaN"], &["1"], Some(DataType::Float64)),
            (&["true"], &["1"], Some(DataType::Boolean)),
            (&["2013-01-01"], &["2013-01-01 10:00:00"], micros(None)),
            (&["2013-01-01 10:00:00Z"], &["2013-01-01 10:00:00"], micros(Some("UTC"))),
            (&["10:00:00"], &["10:00:00.5"], Some(TIME)),
            (&["10:00:00"], &["10:00"], Some(TIME)),
            (&[], &["10:00:00"], Some(TIME)),
            (&[], &[], None),
        ] {
            let kind = |texts: &[&str]| {
                let mut kind = InferredTextType::default();
                texts.iter().for_each(|text| kind.add_value(text));
                kind
            };
            let mut widened = kind(own);
            widened.widen(&kind(other));
            assert_eq!(widened.data_type(), expected, "{own:?} {other:?}");
        }
    }
}
