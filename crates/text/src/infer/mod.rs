//! Which columns there are and of which types, from a sample.
//!
//! A sample is some blocks of whole records from the beginning of the input: at least
//! [`SAMPLE_RECORDS`] records or [`SAMPLE_BYTES`], if there is so much. A type is given only if
//! every value of the sample can be read as it, by the parsers that will read it
//! ([`values`]).
//!
//! Beginnings of further files are samples of their own, by which the first one is widened: a
//! column that it did not show gets a type, numbers and times become wider, and nothing else
//! changes. A column of numbers does not become text because a late file has `n/a` in it: that
//! would change what comparisons mean, and is better reported where it stands.

use arrow_schema::{DataType, TimeUnit};

use crate::canonical::{is_canonical_float, is_canonical_integer, is_canonical_time, is_special};
use crate::values;

mod commas;
pub mod csv;
mod day_order;
pub mod json;

pub use commas::Commas;
pub use day_order::DayOrder;

/// Records that a sample has at least, if there are so many.
pub const SAMPLE_RECORDS: u64 = 10_000;
/// Bytes after which a sample ends however few records it has.
pub const SAMPLE_BYTES: u64 = 16 << 20;

/// The types that text can turn out to be of, narrowed value by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextKind {
    seen: bool,
    boolean: bool,
    int: bool,
    uint: bool,
    float: bool,
    number_seen: bool,
    date: bool,
    naive: bool,
    zoned: bool,
    /// All values are dates or times, of a zone or not.
    temporal: bool,
    time_seen: bool,
    nanos: bool,
    /// All values are canonical times of day.
    clock: bool,
}

impl Default for TextKind {
    fn default() -> Self {
        Self {
            seen: false,
            boolean: true,
            int: true,
            uint: true,
            float: true,
            number_seen: false,
            date: true,
            naive: true,
            zoned: true,
            temporal: true,
            time_seen: false,
            nanos: false,
            clock: true,
        }
    }
}

impl TextKind {
    /// Takes a value that is not null.
    pub fn add(&mut self, text: &str) {
        self.seen = true;
        if self.boolean && values::boolean(text).is_none() {
            self.boolean = false;
        }
        if self.int || self.uint || self.float {
            self.add_number(text);
        }
        self.clock = self.clock && is_canonical_time(text.as_bytes());
        if self.temporal {
            match values::date_time(text) {
                Some(written) => {
                    self.date &= !written.has_time;
                    self.naive &= written.offset.is_none();
                    self.zoned &= written.offset.is_some();
                    self.time_seen |= written.has_time;
                    self.nanos |= written.nanos % 1000 != 0;
                }
                None => {
                    (self.date, self.naive, self.zoned) = (false, false, false);
                    self.temporal = false;
                }
            }
        }
    }

    fn add_number(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if is_canonical_integer(bytes) {
            self.int &= bytes.len() < 19 || text.parse::<i64>().is_ok();
            self.uint &= bytes[0] != b'-' && (bytes.len() < 20 || text.parse::<u64>().is_ok());
            self.float &= is_canonical_float(bytes);
            self.number_seen = true;
            return;
        }
        (self.int, self.uint) = (false, false);
        self.float &= is_canonical_float(bytes);
        self.number_seen |= self.float && !is_special(bytes);
    }

    /// The narrowest type of all values, if there was one.
    #[must_use]
    pub fn data_type(&self) -> Option<DataType> {
        if !self.seen {
            return None;
        }
        let unit = if self.nanos { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        Some(if self.boolean {
            DataType::Boolean
        } else if self.int {
            DataType::Int64
        } else if self.uint {
            DataType::UInt64
        } else if self.float && self.number_seen {
            DataType::Float64
        } else if self.date {
            DataType::Date32
        } else if self.naive && self.time_seen {
            DataType::Timestamp(unit, None)
        } else if self.zoned && self.time_seen {
            DataType::Timestamp(unit, Some("UTC".into()))
        } else if self.clock {
            DataType::Time64(TimeUnit::Microsecond)
        } else {
            DataType::Utf8View
        })
    }

    /// The same where only dates and times may be told from text: in JSON, where a number in
    /// quotes was meant to be text.
    #[must_use]
    pub fn temporal_type(&self) -> Option<DataType> {
        let kind = Self { boolean: false, int: false, uint: false, float: false, ..*self };
        kind.data_type()
    }

    /// Whether it is mere text to [`temporal_type`](Self::temporal_type), whatever values come.
    pub(crate) fn is_never_temporal(&self) -> bool {
        self.seen && !(self.date || self.naive || self.zoned || self.clock)
    }

    /// Whether one more value would leave all that [`temporal_type`](Self::temporal_type) goes by
    /// as it is.
    pub(crate) fn keeps_temporal_type(&self, text: &str) -> bool {
        let mut dates = Self { boolean: false, int: false, uint: false, float: false, ..*self };
        let before = dates;
        dates.add(text);
        dates == before
    }

    /// Returns whether all values are dates or times of which some state a zone and others none.
    #[must_use]
    pub fn is_partly_zoned(&self) -> bool {
        self.seen && self.temporal && !self.naive && !self.zoned
    }

    /// Takes what values elsewhere show, unless it would make text of what is none: numbers and
    /// times become wider, and what does not fit them is left to the reading, which reports it.
    pub fn widen(&mut self, other: &Self) {
        let is_text = |kind: &Self| kind.data_type() == Some(DataType::Utf8View);
        let mut wider = *self;
        wider.merge(other);
        if !self.seen || is_text(self) || !is_text(&wider) {
            *self = wider;
        }
    }

    /// What values of both kinds have in common.
    pub fn merge(&mut self, other: &Self) {
        self.seen |= other.seen;
        self.boolean &= other.boolean;
        self.int &= other.int;
        self.uint &= other.uint;
        self.float &= other.float;
        self.number_seen |= other.number_seen;
        self.date &= other.date;
        self.naive &= other.naive;
        self.zoned &= other.zoned;
        self.temporal &= other.temporal;
        self.time_seen |= other.time_seen;
        self.nanos |= other.nanos;
        self.clock &= other.clock;
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
            let mut kind = TextKind::default();
            texts.iter().for_each(|text| kind.add(text));
            let found = kind.data_type().unwrap();
            assert_eq!(found, expected, "{texts:?}");
            for text in texts {
                assert!(values::accepts(text, &found), "{text} as {found}");
            }
        }
        assert_eq!(TextKind::default().data_type(), None);
    }

    #[test]
    fn times_with_and_without_a_zone_are_told_from_other_text() {
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
                let mut kind = TextKind::default();
                texts.iter().for_each(|text| kind.add(text));
                kind
            };
            assert_eq!(kind(texts).is_partly_zoned(), expected, "{texts:?}");
            let mut merged = TextKind::default();
            texts.iter().for_each(|text| merged.merge(&kind(&[text])));
            assert_eq!(merged.is_partly_zoned(), expected, "{texts:?}");
        }
    }

    #[test]
    fn a_kind_is_widened_but_never_made_text() {
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
                let mut kind = TextKind::default();
                texts.iter().for_each(|text| kind.add(text));
                kind
            };
            let mut widened = kind(own);
            widened.widen(&kind(other));
            assert_eq!(widened.data_type(), expected, "{own:?} {other:?}");
        }
    }
}
