//! A parsed format of times, independent of the language in which it was written.
//!
//! The parsers of C's codes (`percent_codes`), PostgreSQL's patterns (`postgres_patterns`) and Java's letters
//! (`java_patterns`) all produce a list of [`FormatPiece`]s, once per batch. Writing and parsing both iterate
//! over the pieces. Parsed fields are converted to a time only at the end, so that the pieces may stand in
//! any order.

use std::fmt::Write;

use arrow::array::timezone::Tz;
use datafusion_common::Result;
use std::sync::Arc;

use super::calendar::{
    CalendarDate, MONTH_NAMES, WEEKDAY_NAMES, day_of_year, days_from_date, days_in_month,
    first_day_of_year, is_leap_year, iso_week, iso_year_start, week_of_year, weekday,
};
use super::local_times::{DAY_NANOS, LocalTime, LocalZone, SECOND_NANOS, TimeArgument};

/// A numeric field of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeField {
    Year,
    /// The last digits of the year; the number is their count.
    YearLastDigits(u32),
    /// The year with a comma before its thousands.
    YearWithComma,
    Century,
    IsoYear,
    IsoYearLastDigits(u32),
    Quarter,
    Month,
    Day,
    DayOfYear,
    /// Day of the ISO 8601 year, from 1.
    IsoDayOfYear,
    /// 0 to 23.
    Hour,
    /// 1 to 24.
    Hour1To24,
    /// 1 to 12.
    Hour1To12,
    /// 0 to 11.
    Hour0To11,
    Minute,
    Second,
    /// Seconds since midnight.
    SecondOfDay,
    IsoWeek,
    /// Week that begins on Sunday; days before the first Sunday are in week 0.
    WeekFromSunday,
    /// Week that begins on Monday; days before the first Monday are in week 0.
    WeekFromMonday,
    /// Week of the year; the first week begins on the first day of the year.
    WeekFromFirst,
    /// Week of the month; the first week begins on the first day of the month.
    WeekOfMonth,
    /// 1 is Monday.
    IsoWeekday,
    /// 0 is Sunday.
    WeekdayFrom0,
    /// 1 is Sunday.
    WeekdayFrom1,
    /// Days since noon of January 1, 4713 BC.
    JulianDay,
    /// Seconds since 1970.
    Epoch,
}

impl TimeField {
    /// Returns whether the field needs a date, which times of day do not have.
    fn needs_days(self) -> bool {
        !matches!(
            self,
            TimeField::Hour
                | TimeField::Hour1To24
                | TimeField::Hour1To12
                | TimeField::Hour0To11
                | TimeField::Minute
                | TimeField::Second
                | TimeField::SecondOfDay
        )
    }

    /// Returns the maximum number of digits that parsing takes.
    fn digits_max(self) -> usize {
        match self {
            TimeField::Year | TimeField::IsoYear => 4,
            TimeField::YearLastDigits(digits) | TimeField::IsoYearLastDigits(digits) => {
                digits as usize
            }
            TimeField::YearWithComma | TimeField::SecondOfDay => 5,
            TimeField::Quarter
            | TimeField::IsoWeekday
            | TimeField::WeekdayFrom0
            | TimeField::WeekdayFrom1
            | TimeField::WeekOfMonth => 1,
            TimeField::DayOfYear | TimeField::IsoDayOfYear => 3,
            TimeField::JulianDay => 7,
            TimeField::Epoch => 18,
            _ => 2,
        }
    }

    /// Returns the name of the field for messages.
    fn noun(self) -> &'static str {
        match self {
            TimeField::Year | TimeField::YearLastDigits(_) | TimeField::YearWithComma => "a year",
            TimeField::Century => "a century",
            TimeField::IsoYear | TimeField::IsoYearLastDigits(_) => "a year of weeks",
            TimeField::Quarter => "a quarter",
            TimeField::Month => "a month",
            TimeField::Day => "a day",
            TimeField::DayOfYear | TimeField::IsoDayOfYear => "a day of the year",
            TimeField::Hour
            | TimeField::Hour1To24
            | TimeField::Hour1To12
            | TimeField::Hour0To11 => "an hour",
            TimeField::Minute => "a minute",
            TimeField::Second | TimeField::SecondOfDay => "a second",
            TimeField::IsoWeek
            | TimeField::WeekFromSunday
            | TimeField::WeekFromMonday
            | TimeField::WeekFromFirst
            | TimeField::WeekOfMonth => "a week",
            TimeField::IsoWeekday | TimeField::WeekdayFrom0 | TimeField::WeekdayFrom1 => {
                "a day of the week"
            }
            TimeField::JulianDay => "a Julian day",
            TimeField::Epoch => "seconds since 1970",
        }
    }
}

/// The padding before the digits of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    Zeros(usize),
    Blanks(usize),
    Nothing,
}

/// The letter case in which a name is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LetterCase {
    AsIs,
    Upper,
    Lower,
}

/// The notation of an offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UtcOffsetStyle {
    /// `+0200`
    Plain,
    /// `+02:00`
    Colon,
    /// `+02`, or `+05:30` if there are minutes.
    Short,
    /// `+02`
    Hours,
    /// `00`, the minutes of `+02:00`.
    Minutes,
    /// `+02:00`, or `Z` for UTC.
    ColonOrZ,
    /// `+0200`, or `Z` for UTC.
    PlainOrZ,
    /// `+02`, `+0530`, or `Z` for UTC.
    ShortOrZ,
}

/// A piece of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FormatPiece {
    Text(Box<str>),
    Number(TimeField, Padding),
    /// A number with its ordinal suffix: `1st`.
    Ordinal(TimeField, Padding, LetterCase),
    /// The first digits of the fraction of a second.
    Fraction(u32),
    /// The point and the fraction of a second, in groups of three digits as needed; nothing for whole
    /// seconds.
    OptionalFraction,
    /// `September`; padded with blanks to the length of the longest name if `is_padded`.
    MonthName {
        is_short: bool,
        letter_case: LetterCase,
        is_padded: bool,
    },
    Weekday {
        is_short: bool,
        letter_case: LetterCase,
        is_padded: bool,
    },
    /// The month in Roman numerals.
    RomanMonth {
        letter_case: LetterCase,
        is_padded: bool,
    },
    /// `AM`, or `A.M.`
    AmPm {
        letter_case: LetterCase,
        has_dots: bool,
    },
    /// `AD`, or `A.D.`
    Era {
        letter_case: LetterCase,
        has_dots: bool,
    },
    UtcOffset(UtcOffsetStyle),
    /// `CEST`
    ZoneAbbreviation(LetterCase),
    /// `Europe/Berlin`
    ZoneName,
}

/// A parsed format that writes and parses times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DateTimeFormat {
    pieces: Vec<FormatPiece>,
    /// True if the format contains an era, and the year therefore counts within its era.
    has_era: bool,
    /// Year of a text whose format has none; 1970 if this is `None`.
    pub(super) default_year: Option<i64>,
}

/// The reason why a text does not match a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormatMismatch {
    /// The expected piece, or the problem.
    pub(super) reason: String,
}

impl DateTimeFormat {
    pub(super) fn push(&mut self, piece: FormatPiece) {
        if let (Some(FormatPiece::Text(last)), FormatPiece::Text(next)) =
            (self.pieces.last_mut(), &piece)
        {
            *last = format!("{last}{next}").into();
            return;
        }
        self.has_era |= matches!(piece, FormatPiece::Era { .. });
        self.pieces.push(piece);
    }

    pub(super) fn push_char(&mut self, letter: char) {
        self.push(FormatPiece::Text(letter.to_string().into()));
    }

    pub(super) fn last(&self) -> Option<&FormatPiece> {
        self.pieces.last()
    }

    pub(super) fn pieces(&self) -> &[FormatPiece] {
        &self.pieces
    }

    /// Returns whether a piece needs a date, which times of day do not have.
    pub(super) fn needs_days(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            FormatPiece::Number(field, _) | FormatPiece::Ordinal(field, ..) => field.needs_days(),
            FormatPiece::MonthName { .. }
            | FormatPiece::Weekday { .. }
            | FormatPiece::RomanMonth { .. }
            | FormatPiece::Era { .. } => true,
            _ => false,
        })
    }

    /// Returns whether texts of this format are instants: the format has an offset, a zone or seconds since
    /// 1970.
    pub(super) fn is_instant_format(&self) -> bool {
        self.pieces.iter().any(|piece| {
            matches!(
                piece,
                FormatPiece::UtcOffset(_)
                    | FormatPiece::ZoneAbbreviation(_)
                    | FormatPiece::ZoneName
                    | FormatPiece::Number(TimeField::Epoch, _)
            )
        })
    }

    /// Writes a time.
    ///
    /// # Errors
    /// Fails for a time outside of the zone's calendar.
    pub(super) fn write_time(
        &self,
        shown: LocalTime,
        times: &TimeArgument,
        out: &mut String,
    ) -> Result<()> {
        let mut clock = LocalTimeFields { local_time: shown, date: shown.date() };
        let is_of_our_era = clock.date.year > 0;
        if self.has_era && !is_of_our_era {
            clock.date.year = 1 - clock.date.year;
        }
        for piece in &self.pieces {
            match piece {
                FormatPiece::Text(text) => out.push_str(text),
                FormatPiece::Number(field, fill) => clock.write_field(*field, *fill, out),
                FormatPiece::Ordinal(field, fill, letters) => {
                    let from = out.len();
                    clock.write_field(*field, *fill, out);
                    let ending = ordinal_suffix(&out[from..]);
                    write_in_case(ending, *letters, out);
                }
                FormatPiece::Fraction(digits) => {
                    write_fraction(clock.local_time.nanos % SECOND_NANOS, *digits, out);
                }
                FormatPiece::OptionalFraction => {
                    let nanos = clock.local_time.nanos % SECOND_NANOS;
                    let digits = match nanos {
                        0 => continue,
                        whole if whole % 1_000_000 == 0 => 3,
                        whole if whole % 1_000 == 0 => 6,
                        _ => 9,
                    };
                    out.push('.');
                    write_fraction(nanos, digits, out);
                }
                FormatPiece::MonthName {
                    is_short: short,
                    letter_case: letters,
                    is_padded: filled,
                } => {
                    let name = MONTH_NAMES[clock.date.month as usize - 1];
                    write_name(name, *short, *letters, *filled, out);
                }
                FormatPiece::Weekday {
                    is_short: short,
                    letter_case: letters,
                    is_padded: filled,
                } => {
                    let name = WEEKDAY_NAMES[weekday(clock.local_time.days) as usize];
                    write_name(name, *short, *letters, *filled, out);
                }
                FormatPiece::RomanMonth { letter_case: letters, is_padded: filled } => {
                    let from = out.len();
                    write_in_case(ROMAN_MONTHS[clock.date.month as usize - 1], *letters, out);
                    while *filled && out.len() < from + 4 {
                        out.push(' ');
                    }
                }
                FormatPiece::AmPm { letter_case: letters, has_dots: dots } => {
                    let text = match (clock.local_time.nanos * 2 < DAY_NANOS, dots) {
                        (true, false) => "AM",
                        (true, true) => "A.M.",
                        (false, false) => "PM",
                        (false, true) => "P.M.",
                    };
                    write_in_case(text, *letters, out);
                }
                FormatPiece::Era { letter_case: letters, has_dots: dots } => {
                    let text = match (is_of_our_era, dots) {
                        (true, false) => "AD",
                        (true, true) => "A.D.",
                        (false, false) => "BC",
                        (false, true) => "B.C.",
                    };
                    write_in_case(text, *letters, out);
                }
                FormatPiece::UtcOffset(ahead) => {
                    write_utc_offset(clock.local_time.utc_offset_seconds, *ahead, out)
                }
                FormatPiece::ZoneAbbreviation(letters) => match &times.zone {
                    Some(zone) => {
                        let instant = clock
                            .local_time
                            .total_seconds()
                            .wrapping_sub(clock.local_time.utc_offset_seconds);
                        write_in_case(&zone.abbreviation(instant)?, *letters, out);
                    }
                    None => write_in_case("UTC", *letters, out),
                },
                FormatPiece::ZoneName => match &times.zone {
                    Some(zone) => out.push_str(&zone.name),
                    None => out.push_str("UTC"),
                },
            }
        }
        Ok(())
    }
}

const ROMAN_MONTHS: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

struct LocalTimeFields {
    local_time: LocalTime,
    date: CalendarDate,
}

impl LocalTimeFields {
    fn field_value(&self, field: TimeField) -> i64 {
        let LocalTime { days, nanos, utc_offset_seconds: ahead } = self.local_time;
        let seconds = nanos / SECOND_NANOS;
        let hour = seconds / 3_600;
        let ending = |year: i64, digits: u32| year.abs() % 10_i64.pow(digits.min(9));
        match field {
            TimeField::Year | TimeField::YearWithComma => self.date.year,
            TimeField::YearLastDigits(digits) => ending(self.date.year, digits),
            TimeField::Century => (self.date.year - 1).div_euclid(100) + 1,
            TimeField::IsoYear => iso_week(days).0,
            TimeField::IsoYearLastDigits(digits) => ending(iso_week(days).0, digits),
            TimeField::Quarter => i64::from((self.date.month - 1) / 3 + 1),
            TimeField::Month => self.date.month.into(),
            TimeField::Day => self.date.day.into(),
            TimeField::DayOfYear => day_of_year(days).into(),
            TimeField::IsoDayOfYear => days - iso_year_start(iso_week(days).0) + 1,
            TimeField::Hour => hour,
            TimeField::Hour1To24 => (hour + 23) % 24 + 1,
            TimeField::Hour1To12 => (hour + 11) % 12 + 1,
            TimeField::Hour0To11 => hour % 12,
            TimeField::Minute => seconds / 60 % 60,
            TimeField::Second => seconds % 60,
            TimeField::SecondOfDay => seconds,
            TimeField::IsoWeek => iso_week(days).1.into(),
            TimeField::WeekFromSunday => week_of_year(days, true).into(),
            TimeField::WeekFromMonday => week_of_year(days, false).into(),
            TimeField::WeekFromFirst => i64::from((day_of_year(days) - 1) / 7 + 1),
            TimeField::WeekOfMonth => i64::from((self.date.day - 1) / 7 + 1),
            TimeField::IsoWeekday => i64::from(weekday(days) + 1),
            TimeField::WeekdayFrom0 => i64::from((weekday(days) + 1) % 7),
            TimeField::WeekdayFrom1 => i64::from((weekday(days) + 1) % 7 + 1),
            TimeField::JulianDay => days + 2_440_588,
            TimeField::Epoch => self.local_time.total_seconds().wrapping_sub(ahead),
        }
    }

    fn write_field(&self, field: TimeField, fill: Padding, out: &mut String) {
        let value = self.field_value(field);
        if field == TimeField::YearWithComma {
            let (thousands, rest) = (value.abs() / 1_000, value.abs() % 1_000);
            if value < 0 {
                out.push('-');
            }
            write_padded_number(thousands.unsigned_abs(), Padding::Nothing, out);
            out.push(',');
            write_padded_number(rest.unsigned_abs(), Padding::Zeros(3), out);
            return;
        }
        if value < 0 {
            out.push('-');
        }
        write_padded_number(value.unsigned_abs(), fill, out);
    }
}

/// The numbers below 100 with two digits each.
const TWO_DIGIT_NUMBERS: &str = "00010203040506070809101112131415161718192021222324252627282930313233343536373839\
                     40414243444546474849505152535455565758596061626364656667686970717273747576777879\
                     8081828384858687888990919293949596979899";

/// Returns the two digits of a number below 100.
fn two_digits(value: u64) -> &'static str {
    let at = 2 * value as usize;
    TWO_DIGIT_NUMBERS.get(at..at + 2).unwrap_or_default()
}

/// Writes the digits of a number with padding.
fn write_padded_number(value: u64, fill: Padding, out: &mut String) {
    // Fast paths: most numbers of a time have two digits, and years have four.
    match fill {
        Padding::Zeros(2) if value < 100 => return out.push_str(two_digits(value)),
        Padding::Zeros(4) if value < 10_000 => {
            out.push_str(two_digits(value / 100));
            return out.push_str(two_digits(value % 100));
        }
        _ => {}
    }
    let mut held = [0_u8; 20];
    let mut at = held.len();
    let mut rest = value;
    loop {
        at -= 1;
        held[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let (filled, with) = match fill {
        Padding::Zeros(width) => (width, '0'),
        Padding::Blanks(width) => (width, ' '),
        Padding::Nothing => (0, ' '),
    };
    for _ in held.len() - at..filled {
        out.push(with);
    }
    for digit in &held[at..] {
        out.push(char::from(*digit));
    }
}

/// Writes the first `count` digits of a fraction of a second, with zeros behind the ninth.
fn write_fraction(nanos: i64, count: u32, out: &mut String) {
    let cut = nanos / 10_i64.pow(9 - count.min(9));
    write_padded_number(cut.unsigned_abs(), Padding::Zeros(count.min(9) as usize), out);
    for _ in 9..count {
        out.push('0');
    }
}

fn write_in_case(text: &str, letters: LetterCase, out: &mut String) {
    match letters {
        LetterCase::AsIs => out.push_str(text),
        LetterCase::Upper => out.extend(text.chars().map(|letter| letter.to_ascii_uppercase())),
        LetterCase::Lower => out.extend(text.chars().map(|letter| letter.to_ascii_lowercase())),
    }
}

/// Writes the name of a month or a day. The longest names have nine letters.
fn write_name(name: &str, short: bool, letters: LetterCase, filled: bool, out: &mut String) {
    let name = if short { &name[..3] } else { name };
    write_in_case(name, letters, out);
    if filled && !short {
        (name.len()..9).for_each(|_| out.push(' '));
    }
}

fn ordinal_suffix(number: &str) -> &'static str {
    let number = number.as_bytes();
    let is_teen = number.len() > 1 && number[number.len() - 2] == b'1';
    match number.last() {
        _ if is_teen => "th",
        Some(b'1') => "st",
        Some(b'2') => "nd",
        Some(b'3') => "rd",
        _ => "th",
    }
}

fn write_utc_offset(ahead: i64, how: UtcOffsetStyle, out: &mut String) {
    let is_z = matches!(
        how,
        UtcOffsetStyle::ColonOrZ | UtcOffsetStyle::PlainOrZ | UtcOffsetStyle::ShortOrZ
    );
    if is_z && ahead == 0 {
        out.push('Z');
        return;
    }
    let (hours, minutes) = (ahead.unsigned_abs() / 3_600, ahead.unsigned_abs() / 60 % 60);
    if how == UtcOffsetStyle::Minutes {
        write_padded_number(minutes, Padding::Zeros(2), out);
        return;
    }
    out.push(if ahead < 0 { '-' } else { '+' });
    write_padded_number(hours, Padding::Zeros(2), out);
    match how {
        UtcOffsetStyle::Plain | UtcOffsetStyle::PlainOrZ => {
            write_padded_number(minutes, Padding::Zeros(2), out)
        }
        UtcOffsetStyle::Colon | UtcOffsetStyle::ColonOrZ => {
            out.push(':');
            write_padded_number(minutes, Padding::Zeros(2), out);
        }
        UtcOffsetStyle::Short if minutes > 0 => {
            out.push(':');
            write_padded_number(minutes, Padding::Zeros(2), out);
        }
        UtcOffsetStyle::ShortOrZ if minutes > 0 => {
            write_padded_number(minutes, Padding::Zeros(2), out)
        }
        _ => {}
    }
}

/// The fields that were parsed from a text so far.
#[derive(Debug, Default)]
struct ParsedFields {
    year: Option<i64>,
    century: Option<i64>,
    iso_year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_week: Option<i64>,
    week_from_sunday: Option<i64>,
    week_from_monday: Option<i64>,
    week_from_first: Option<i64>,
    /// 0 is Monday.
    weekday: Option<i64>,
    hour: Option<i64>,
    hour12: Option<i64>,
    is_afternoon: Option<bool>,
    minute: Option<i64>,
    second: Option<i64>,
    second_of_day: Option<i64>,
    nanos: i64,
    is_before_common_era: bool,
    julian_day: Option<i64>,
    epoch: Option<i64>,
    utc_offset: Option<i64>,
    zone: Option<LocalZone>,
    default_year: Option<i64>,
}

/// A cursor over a text that is parsed by a format.
struct FormattedTextCursor<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> FormattedTextCursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Returns the mismatch at the current position, where `what` was expected.
    fn mismatch(&self, what: impl std::fmt::Display) -> FormatMismatch {
        let reason = match self.rest().chars().next() {
            Some(_) => {
                let place = self.text.get(..self.position).unwrap_or_default().chars().count() + 1;
                let rest: String = self.rest().chars().take(20).collect();
                format!("{what} is expected at character {place}, where `{rest}` stands")
            }
            None => format!("{what} is expected at its end"),
        };
        FormatMismatch { reason }
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start().len();
    }

    /// Parses a number of at most `digits_max` digits.
    fn parse_number(&mut self, digits_max: usize) -> Option<i64> {
        let digits = self.rest().bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
        let number = self.rest().get(..digits)?.parse().ok()?;
        self.position += digits;
        Some(number)
    }

    /// Consumes `text`, in any case. Returns false if the rest does not begin with it.
    fn consume(&mut self, text: &str) -> bool {
        let is_here =
            self.rest().get(..text.len()).is_some_and(|here| here.eq_ignore_ascii_case(text));
        if is_here {
            self.position += text.len();
        }
        is_here
    }

    /// Parses one of the names, either whole or its first three letters. Returns its index.
    fn parse_name(&mut self, names: &[&str], short: bool) -> Option<i64> {
        let of = |reader: &mut Self, letters: Option<usize>| {
            names.iter().position(|name| reader.consume(&name[..letters.unwrap_or(name.len())]))
        };
        let found = match short {
            true => of(self, Some(3)),
            false => of(self, None).or_else(|| of(self, Some(3))),
        };
        found.map(|at| at as i64)
    }

    /// Parses `+02:00`, `+0200`, `+02` or `Z`. Returns seconds.
    fn parse_utc_offset(&mut self) -> Option<i64> {
        if self.consume("Z") || self.consume("UTC") || self.consume("GMT") {
            return Some(0);
        }
        let before = self.position;
        let sign = match self.rest().as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return None,
        };
        self.position += 1;
        let from = self.position;
        let hours = self.parse_number(2).filter(|hours| self.position - from == 2 && *hours <= 23);
        let colon = self.consume(":");
        let from = self.position;
        let minutes = self.parse_number(2);
        let digits = self.position - from;
        let (Some(hours), Some(minutes)) = (hours, minutes.or((!colon).then_some(0))) else {
            self.position = before;
            return None;
        };
        if digits == 1 || minutes > 59 {
            self.position = before;
            return None;
        }
        Some(sign * (hours * 3_600 + minutes * 60))
    }
}

/// The instant that a text represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParsedInstant {
    /// Nanoseconds since 1970.
    pub(super) nanos: i128,
}

impl DateTimeFormat {
    /// Parses a text.
    ///
    /// # Errors
    /// Returns the reason why the text does not match this format or is not a time.
    pub(super) fn parse(&self, text: &str) -> std::result::Result<ParsedInstant, FormatMismatch> {
        let mut reader = FormattedTextCursor { text, position: 0 };
        let mut found = ParsedFields { default_year: self.default_year, ..ParsedFields::default() };
        reader.skip_blanks();
        for (at, piece) in self.pieces.iter().enumerate() {
            let next = self.pieces.get(at + 1);
            parse_piece(piece, next, &mut reader, &mut found)?;
        }
        reader.skip_blanks();
        if !reader.rest().is_empty() {
            return Err(reader.mismatch("its end"));
        }
        found.to_instant()
    }
}

fn parse_piece(
    piece: &FormatPiece,
    next: Option<&FormatPiece>,
    reader: &mut FormattedTextCursor<'_>,
    found: &mut ParsedFields,
) -> std::result::Result<(), FormatMismatch> {
    match piece {
        FormatPiece::Text(text) => match_text(text, reader),
        FormatPiece::Number(field, fill) => {
            if matches!(fill, Padding::Blanks(_)) {
                reader.skip_blanks();
            }
            parse_field(*field, next, reader, found)
        }
        FormatPiece::Ordinal(field, ..) => {
            parse_field(*field, next, reader, found)?;
            match ["st", "nd", "rd", "th"].iter().any(|ending| reader.consume(ending)) {
                true => Ok(()),
                false => Err(reader.mismatch("`th`")),
            }
        }
        FormatPiece::Fraction(digits) => {
            let from = reader.position;
            let Some(number) = reader.parse_number((*digits).min(9) as usize) else {
                return Err(reader.mismatch("a fraction of a second"));
            };
            found.nanos = number * 10_i64.pow(9 - (reader.position - from) as u32);
            Ok(())
        }
        FormatPiece::OptionalFraction => {
            if !reader.consume(".") {
                return Ok(());
            }
            parse_piece(&FormatPiece::Fraction(9), next, reader, found)
        }
        FormatPiece::MonthName { is_short: short, is_padded: filled, .. } => {
            let month = reader.parse_name(&MONTH_NAMES, *short);
            found.month = Some(month.ok_or_else(|| reader.mismatch("a month's name"))? + 1);
            skip_padding(*filled, next, reader);
            Ok(())
        }
        FormatPiece::Weekday { is_short: short, is_padded: filled, .. } => {
            let day = reader.parse_name(&WEEKDAY_NAMES, *short);
            found.weekday = Some(day.ok_or_else(|| reader.mismatch("a day's name"))?);
            skip_padding(*filled, next, reader);
            Ok(())
        }
        FormatPiece::RomanMonth { is_padded: filled, .. } => {
            // The longest numeral that matches.
            let mut months: Vec<usize> = (0..12).collect();
            months.sort_by_key(|&month| std::cmp::Reverse(ROMAN_MONTHS[month].len()));
            let month = months.into_iter().find(|&month| reader.consume(ROMAN_MONTHS[month]));
            let month = month.ok_or_else(|| reader.mismatch("a month in Roman numerals"))?;
            found.month = Some(month as i64 + 1);
            skip_padding(*filled, next, reader);
            Ok(())
        }
        FormatPiece::AmPm { .. } => {
            found.is_afternoon = Some(if reader.consume("AM") || reader.consume("A.M.") {
                false
            } else if reader.consume("PM") || reader.consume("P.M.") {
                true
            } else {
                return Err(reader.mismatch("AM or PM"));
            });
            Ok(())
        }
        FormatPiece::Era { .. } => {
            found.is_before_common_era = if ["BC", "B.C."].iter().any(|era| reader.consume(era)) {
                true
            } else if ["AD", "A.D."].iter().any(|era| reader.consume(era)) {
                false
            } else {
                return Err(reader.mismatch("AD or BC"));
            };
            Ok(())
        }
        FormatPiece::UtcOffset(_) => {
            let ahead = reader.parse_utc_offset();
            found.utc_offset =
                Some(ahead.ok_or_else(|| reader.mismatch("an offset like `+02:00`"))?);
            Ok(())
        }
        FormatPiece::ZoneAbbreviation(_) | FormatPiece::ZoneName => parse_zone(reader, found),
    }
}

/// Skips the blanks that pad a name, unless the next piece begins with a blank, which matches any number of
/// them.
fn skip_padding(filled: bool, next: Option<&FormatPiece>, reader: &mut FormattedTextCursor<'_>) {
    let blanks =
        matches!(next, Some(FormatPiece::Text(text)) if text.starts_with(char::is_whitespace));
    if filled && !blanks {
        reader.skip_blanks();
    }
}

/// Matches literal text. A blank matches one or more blanks, any other character itself.
fn match_text(
    text: &str,
    reader: &mut FormattedTextCursor<'_>,
) -> std::result::Result<(), FormatMismatch> {
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if letter.is_whitespace() {
            rest = rest.trim_start();
            let before = reader.position;
            reader.skip_blanks();
            if reader.position == before && !reader.rest().is_empty() {
                return Err(reader.mismatch("a blank"));
            }
            continue;
        }
        match reader.rest().strip_prefix(letter) {
            Some(_) => reader.position += letter.len_utf8(),
            None => return Err(reader.mismatch(format_args!("`{letter}`"))),
        }
        rest = &rest[letter.len_utf8()..];
    }
    Ok(())
}

fn parse_zone(
    reader: &mut FormattedTextCursor<'_>,
    found: &mut ParsedFields,
) -> std::result::Result<(), FormatMismatch> {
    if let Some(ahead) = reader.parse_utc_offset() {
        found.utc_offset = Some(ahead);
        return Ok(());
    }
    let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || "/_-+".contains(*letter);
    let name: String = reader.rest().chars().take_while(is_of_name).collect();
    let zone = match name.parse::<Tz>() {
        Ok(_) if !name.is_empty() => LocalZone::from_name(&Arc::from(name.as_str())),
        _ => return Err(reader.mismatch("a zone's name, like Europe/Berlin or UTC,")),
    };
    reader.position += name.len();
    match zone {
        Ok(Some(zone)) => found.zone = Some(zone),
        _ => found.utc_offset = Some(0),
    }
    Ok(())
}

fn parse_field(
    field: TimeField,
    next: Option<&FormatPiece>,
    reader: &mut FormattedTextCursor<'_>,
    found: &mut ParsedFields,
) -> std::result::Result<(), FormatMismatch> {
    let before = reader.position;
    let is_year = matches!(field, TimeField::Year | TimeField::IsoYear | TimeField::Epoch);
    let is_negative = is_year && reader.rest().starts_with('-');
    if is_negative || (is_year && reader.rest().starts_with('+')) {
        reader.position += 1;
    }
    // A year may have more than four digits only if no digits follow it.
    let ends = !matches!(
        next,
        Some(FormatPiece::Number(..) | FormatPiece::Ordinal(..) | FormatPiece::Fraction(_))
    );
    let digits_max = match field {
        TimeField::Year | TimeField::IsoYear if ends => 6,
        other => other.digits_max(),
    };
    let number = match field {
        TimeField::YearWithComma => {
            let thousands = reader.parse_number(3);
            let rest = reader.consume(",").then(|| reader.parse_number(3)).flatten();
            thousands.zip(rest).map(|(thousands, rest)| thousands * 1_000 + rest)
        }
        _ => reader.parse_number(digits_max),
    };
    let Some(number) = number else {
        reader.position = before;
        return Err(reader.mismatch(field.noun()));
    };
    let number = if is_negative { -number } else { number };
    let range = match field {
        TimeField::Quarter => 1..=4,
        TimeField::Month => 1..=12,
        TimeField::Day => 1..=31,
        TimeField::DayOfYear => 1..=366,
        TimeField::IsoDayOfYear => 1..=371,
        TimeField::Hour | TimeField::Hour0To11 => 0..=23,
        TimeField::Hour1To24 => 1..=24,
        TimeField::Hour1To12 => 1..=12,
        TimeField::Minute => 0..=59,
        // 60 is a leap second, which `to_instant` checks once the zone is known.
        TimeField::Second => 0..=60,
        TimeField::SecondOfDay => 0..=86_400,
        TimeField::IsoWeek => 1..=53,
        TimeField::WeekFromSunday | TimeField::WeekFromMonday => 0..=53,
        TimeField::WeekFromFirst => 1..=53,
        TimeField::WeekOfMonth => 1..=5,
        TimeField::IsoWeekday | TimeField::WeekdayFrom1 => 1..=7,
        TimeField::WeekdayFrom0 => 0..=6,
        _ => i64::MIN..=i64::MAX,
    };
    if !range.contains(&number) {
        reader.position = before;
        let (called, first, last) = (field.noun(), range.start(), range.end());
        return Err(reader.mismatch(format_args!("{called} from {first} to {last}")));
    }
    // Two digits are the years 1969 to 2068; three digits are the last ones of 2000 to 2999.
    let ended = |digits: u32| match digits {
        1 => number + 2020,
        2 if number < 69 => number + 2000,
        2 => number + 1900,
        _ => number + 2000,
    };
    match field {
        TimeField::Year | TimeField::YearWithComma => found.year = Some(number),
        TimeField::YearLastDigits(digits) => found.year = Some(ended(digits)),
        TimeField::Century => found.century = Some(number),
        TimeField::IsoYear => found.iso_year = Some(number),
        TimeField::IsoYearLastDigits(digits) => found.iso_year = Some(ended(digits)),
        // The month or day determines it already.
        TimeField::Quarter | TimeField::WeekOfMonth | TimeField::IsoDayOfYear => {}
        TimeField::Month => found.month = Some(number),
        TimeField::Day => found.day = Some(number),
        TimeField::DayOfYear => found.day_of_year = Some(number),
        TimeField::Hour => found.hour = Some(number),
        TimeField::Hour1To24 => found.hour = Some(number % 24),
        TimeField::Hour1To12 | TimeField::Hour0To11 => found.hour12 = Some(number),
        TimeField::Minute => found.minute = Some(number),
        TimeField::Second => found.second = Some(number),
        TimeField::SecondOfDay => found.second_of_day = Some(number),
        TimeField::IsoWeek => found.iso_week = Some(number),
        TimeField::WeekFromSunday => found.week_from_sunday = Some(number),
        TimeField::WeekFromMonday => found.week_from_monday = Some(number),
        TimeField::WeekFromFirst => found.week_from_first = Some(number),
        TimeField::IsoWeekday => found.weekday = Some(number - 1),
        TimeField::WeekdayFrom0 | TimeField::WeekdayFrom1 => {
            let sunday = if field == TimeField::WeekdayFrom0 { 0 } else { 1 };
            found.weekday = Some((number - sunday + 6) % 7);
        }
        TimeField::JulianDay => found.julian_day = Some(number),
        TimeField::Epoch => found.epoch = Some(number),
    }
    Ok(())
}

impl ParsedFields {
    /// Returns the day of the parsed date. A missing month or day is the first one, a missing year the
    /// format's default.
    fn days_since_1970(&self) -> std::result::Result<i64, String> {
        if let Some(day) = self.julian_day {
            return Ok(day - 2_440_588);
        }
        let mut year = self.year.or(self.default_year).unwrap_or(1970);
        if let (Some(century), Some(short)) = (self.century, self.year) {
            year = (century - 1) * 100 + short.rem_euclid(100);
            if short.rem_euclid(100) == 0 {
                year += 100;
            }
        }
        if self.is_before_common_era {
            year = 1 - year;
        }
        let days = self.days_in_year(year)?;
        // A full date takes precedence over weeks beside it; without one, all weeks must agree with the day.
        if self.month.is_none() || self.day.is_none() {
            let weeks = [
                (self.iso_week, i64::from(iso_week(days).1)),
                (self.week_from_sunday, i64::from(week_of_year(days, true))),
                (self.week_from_monday, i64::from(week_of_year(days, false))),
            ];
            if weeks.iter().any(|(read, found)| read.is_some_and(|read| read != *found)) {
                return Err("its week and its day are not of one another".to_owned());
            }
        }
        Ok(days)
    }

    /// Returns the day within a year, by date, day of the year or week.
    fn days_in_year(&self, year: i64) -> std::result::Result<i64, String> {
        let is_date = self.month.is_some() || self.day.is_some();
        let lacks_week = self.iso_year.is_some() && self.iso_week.is_none() && self.year.is_none();
        let lacks_year = self.iso_week.is_some() && self.iso_year.is_none() && self.year.is_some();
        let lacks_year = lacks_year && self.day_of_year.is_none();
        if !is_date && (lacks_week || lacks_year) {
            return Err("a week of ISO 8601 is of a year of ISO 8601: `%G-%V`".to_owned());
        }
        let is_of_week = self.iso_year.is_some() || !is_date && self.day_of_year.is_none();
        if let Some(week) = self.iso_week.filter(|_| is_of_week) {
            let year = self.iso_year.unwrap_or(year);
            let begins = iso_year_start(year);
            if begins + (week - 1) * 7 >= iso_year_start(year + 1) {
                return Err(format!("{year} has no week {week}"));
            }
            return Ok(begins + (week - 1) * 7 + self.weekday.unwrap_or(0));
        }
        if let Some(day) = self.day_of_year {
            if day == 366 && !is_leap_year(year) {
                return Err(format!("{year} has 365 days"));
            }
            return Ok(first_day_of_year(year) + day - 1);
        }
        if self.month.is_none() && self.day.is_none() {
            let first = first_day_of_year(year);
            if let Some(week) = self.week_from_first {
                return Ok(first + (week - 1) * 7);
            }
            // Week 1 begins on the year's first Sunday, or Monday. Without a day of the week the result is
            // that day.
            let weeks = self.week_from_sunday.map(|week| (week, 6));
            if let Some((week, begins)) = weeks.or(self.week_from_monday.map(|week| (week, 0))) {
                let day = self.weekday.unwrap_or(begins);
                let until = (begins - i64::from(weekday(first))).rem_euclid(7);
                let since = (day - begins).rem_euclid(7);
                return Ok(first + until + (week - 1) * 7 + since);
            }
        }
        let (month, day) = (self.month.unwrap_or(1) as u32, self.day.unwrap_or(1) as u32);
        if day > days_in_month(year, month) {
            let name = MONTH_NAMES.get(month as usize - 1).copied().unwrap_or_default();
            return Err(format!("{name} {year} has no day {day}"));
        }
        Ok(days_from_date(CalendarDate { year, month, day }))
    }

    fn seconds_since_midnight(&self) -> std::result::Result<i64, String> {
        if let Some(second) = self.second_of_day {
            return Ok(second);
        }
        let hour = match (self.hour, self.hour12, self.is_afternoon) {
            (Some(hour), _, None) | (Some(hour), Some(_), _) => hour,
            (Some(hour), None, Some(true)) if hour < 12 => hour + 12,
            (Some(12), None, Some(false)) => 0,
            (Some(hour), None, _) => hour,
            (None, Some(hour), is_afternoon) => {
                hour % 12 + if is_afternoon == Some(true) { 12 } else { 0 }
            }
            (None, None, _) => 0,
        };
        Ok(hour * 3_600 + self.minute.unwrap_or(0) * 60 + self.second.unwrap_or(0))
    }

    fn to_instant(&self) -> std::result::Result<ParsedInstant, FormatMismatch> {
        let second = i128::from(SECOND_NANOS);
        if let Some(epoch) = self.epoch {
            return Ok(ParsedInstant {
                nanos: i128::from(epoch) * second + i128::from(self.nanos),
            });
        }
        let unread = |reason| FormatMismatch { reason };
        let days = self.days_since_1970().map_err(unread)?;
        let shown = days * 86_400 + self.seconds_since_midnight().map_err(unread)?;
        let ahead = match (&self.zone, self.utc_offset) {
            (Some(zone), _) => zone.utc_offset_of_local_time(shown, false).map_err(|_| {
                let mut reason = String::new();
                let _ = write!(reason, "the calendar of {} does not reach it", zone.name);
                FormatMismatch { reason }
            })?,
            (None, ahead) => ahead.unwrap_or(0),
        };
        // A leap second is the last second of a UTC day and counts as the first second of the next day.
        if self.second == Some(60) && (shown - ahead).rem_euclid(86_400) != 0 {
            return Err(unread(
                "a second is from 0 to 59, and 60 at 23:59 of UTC alone".to_owned(),
            ));
        }
        let nanos = i128::from(shown - ahead) * second + i128::from(self.nanos);
        Ok(ParsedInstant { nanos })
    }
}
