//! A format of times, whatever the language that it was written in: what is to be written, part by part.
//!
//! C's codes (`codes`), PostgreSQL's patterns (`patterns`) and Java's letters (`letters`) all become a list of
//! [`Piece`]s, once a batch. A time is written by going through them, and read by going through them too:
//! what is read goes by the calendar at the end, so that the parts may stand in any order.

use std::fmt::Write;

use arrow::array::timezone::Tz;
use datafusion_common::Result;
use std::sync::Arc;

use super::calendar::{
    Date, MONTHS, WEEKDAYS, day_of_year, days_in_month, days_of, first_day, is_leap, iso_week,
    iso_year_begins, week_of_year, weekday,
};
use super::clocks::{DAY_NANOS, SECOND_NANOS, Shown, Times, Zone};

/// A number that a time has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Year,
    /// The last digits of the year: so many.
    YearEnd(u32),
    /// The year with a comma before its thousands.
    YearWithComma,
    Century,
    IsoYear,
    IsoYearEnd(u32),
    Quarter,
    Month,
    Day,
    DayOfYear,
    /// The day of the year of ISO 8601, from 1.
    IsoDayOfYear,
    /// From 0.
    Hour,
    /// From 1 to 24.
    HourTo24,
    /// From 1 to 12.
    Hour12,
    /// From 0 to 11.
    HourTo11,
    Minute,
    Second,
    /// Seconds since midnight.
    SecondOfDay,
    IsoWeek,
    /// Weeks that begin on Sunday; what is before the first is week 0.
    WeekFromSunday,
    /// Weeks that begin on Monday; what is before the first is week 0.
    WeekFromMonday,
    /// The week of the year, the first beginning on its first day.
    WeekFromFirst,
    /// The same, of the month.
    WeekOfMonth,
    /// From 1, Monday.
    IsoWeekday,
    /// From 0, Sunday.
    WeekdayFrom0,
    /// From 1, Sunday.
    WeekdayFrom1,
    /// Days since noon of the first of January 4713 before our era.
    JulianDay,
    /// Seconds since 1970.
    Epoch,
}

impl Field {
    /// Whether days are asked for: times of day have none.
    fn is_of_days(self) -> bool {
        !matches!(
            self,
            Field::Hour
                | Field::HourTo24
                | Field::Hour12
                | Field::HourTo11
                | Field::Minute
                | Field::Second
                | Field::SecondOfDay
        )
    }

    /// How many digits are read at most.
    fn digits(self) -> usize {
        match self {
            Field::Year | Field::IsoYear => 4,
            Field::YearEnd(digits) | Field::IsoYearEnd(digits) => digits as usize,
            Field::YearWithComma | Field::SecondOfDay => 5,
            Field::Quarter
            | Field::IsoWeekday
            | Field::WeekdayFrom0
            | Field::WeekdayFrom1
            | Field::WeekOfMonth => 1,
            Field::DayOfYear | Field::IsoDayOfYear => 3,
            Field::JulianDay => 7,
            Field::Epoch => 18,
            _ => 2,
        }
    }

    /// What it is called in a message.
    fn called(self) -> &'static str {
        match self {
            Field::Year | Field::YearEnd(_) | Field::YearWithComma => "a year",
            Field::Century => "a century",
            Field::IsoYear | Field::IsoYearEnd(_) => "a year of weeks",
            Field::Quarter => "a quarter",
            Field::Month => "a month",
            Field::Day => "a day",
            Field::DayOfYear | Field::IsoDayOfYear => "a day of the year",
            Field::Hour | Field::HourTo24 | Field::Hour12 | Field::HourTo11 => "an hour",
            Field::Minute => "a minute",
            Field::Second | Field::SecondOfDay => "a second",
            Field::IsoWeek
            | Field::WeekFromSunday
            | Field::WeekFromMonday
            | Field::WeekFromFirst
            | Field::WeekOfMonth => "a week",
            Field::IsoWeekday | Field::WeekdayFrom0 | Field::WeekdayFrom1 => "a day of the week",
            Field::JulianDay => "a Julian day",
            Field::Epoch => "seconds since 1970",
        }
    }
}

/// What stands before the digits of a number that has fewer than it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Zeros(usize),
    Blanks(usize),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letters {
    AsTheyAre,
    Upper,
    Lower,
}

/// How far ahead of UTC the clock is, written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// `+0200`
    Plain,
    /// `+02:00`
    Colon,
    /// `+02`, and `+05:30` where there are minutes.
    Short,
    /// `+02`
    Hours,
    /// `00`, of `+02:00`
    Minutes,
    /// `+02:00`, and `Z` of UTC.
    ColonOrZ,
    /// `+0200`, and `Z` of UTC.
    PlainOrZ,
    /// `+02`, `+0530`, and `Z` of UTC.
    ShortOrZ,
}

/// A part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Box<str>),
    Number(Field, Fill),
    /// A number with its ending: `1st`.
    Ordinal(Field, Fill, Letters),
    /// The first digits of the second's fraction.
    Fraction(u32),
    /// The fraction with its point: as many digits as there are, of three each; nothing of whole seconds.
    PointAndFraction,
    /// `September`; blanks fill it up to as many letters as the longest name.
    MonthName {
        short: bool,
        letters: Letters,
        filled: bool,
    },
    Weekday {
        short: bool,
        letters: Letters,
        filled: bool,
    },
    /// The month in Roman numerals.
    RomanMonth {
        letters: Letters,
        filled: bool,
    },
    /// `AM`, or `A.M.`
    HalfDay {
        letters: Letters,
        dots: bool,
    },
    /// `AD`, or `A.D.`
    Era {
        letters: Letters,
        dots: bool,
    },
    Ahead(Ahead),
    /// `CEST`
    Abbreviation(Letters),
    /// `Europe/Berlin`
    ZoneName,
}

/// A format, ready to write and read times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Format {
    pieces: Vec<Piece>,
    /// Whether the era is written, and the year by its number in it.
    has_era: bool,
    /// The year of a text whose format has none; 1970 if this is none.
    pub(super) missing_year: Option<i64>,
}

/// Why a text is not read by a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unread {
    /// What was expected, or what is wrong.
    pub(super) reason: String,
}

impl Format {
    pub(super) fn push(&mut self, piece: Piece) {
        if let (Some(Piece::Text(last)), Piece::Text(next)) = (self.pieces.last_mut(), &piece) {
            *last = format!("{last}{next}").into();
            return;
        }
        self.has_era |= matches!(piece, Piece::Era { .. });
        self.pieces.push(piece);
    }

    pub(super) fn push_char(&mut self, letter: char) {
        self.push(Piece::Text(letter.to_string().into()));
    }

    pub(super) fn last(&self) -> Option<&Piece> {
        self.pieces.last()
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The first part that dates, or times of day, have not; what it is called.
    pub(super) fn is_of_days(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Number(field, _) | Piece::Ordinal(field, ..) => field.is_of_days(),
            Piece::MonthName { .. }
            | Piece::Weekday { .. }
            | Piece::RomanMonth { .. }
            | Piece::Era { .. } => true,
            _ => false,
        })
    }

    /// Returns whether a text of this format is an instant: it has an offset, a zone or seconds since 1970.
    pub(super) fn has_instants(&self) -> bool {
        self.pieces.iter().any(|piece| {
            matches!(
                piece,
                Piece::Ahead(_)
                    | Piece::Abbreviation(_)
                    | Piece::ZoneName
                    | Piece::Number(Field::Epoch, _)
            )
        })
    }

    /// Writes a time.
    ///
    /// # Errors
    /// Where the zone's calendar does not reach it.
    pub(super) fn write(&self, shown: Shown, times: &Times, out: &mut String) -> Result<()> {
        let mut clock = Clock { shown, date: shown.date() };
        let is_of_our_era = clock.date.year > 0;
        if self.has_era && !is_of_our_era {
            clock.date.year = 1 - clock.date.year;
        }
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Number(field, fill) => clock.number(*field, *fill, out),
                Piece::Ordinal(field, fill, letters) => {
                    let from = out.len();
                    clock.number(*field, *fill, out);
                    let ending = ordinal_ending(&out[from..]);
                    spell(ending, *letters, out);
                }
                Piece::Fraction(digits) => {
                    fraction(clock.shown.nanos % SECOND_NANOS, *digits, out);
                }
                Piece::PointAndFraction => {
                    let nanos = clock.shown.nanos % SECOND_NANOS;
                    let digits = match nanos {
                        0 => continue,
                        whole if whole % 1_000_000 == 0 => 3,
                        whole if whole % 1_000 == 0 => 6,
                        _ => 9,
                    };
                    out.push('.');
                    fraction(nanos, digits, out);
                }
                Piece::MonthName { short, letters, filled } => {
                    let name = MONTHS[clock.date.month as usize - 1];
                    named(name, *short, *letters, *filled, out);
                }
                Piece::Weekday { short, letters, filled } => {
                    let name = WEEKDAYS[weekday(clock.shown.days) as usize];
                    named(name, *short, *letters, *filled, out);
                }
                Piece::RomanMonth { letters, filled } => {
                    let from = out.len();
                    spell(ROMAN[clock.date.month as usize - 1], *letters, out);
                    while *filled && out.len() < from + 4 {
                        out.push(' ');
                    }
                }
                Piece::HalfDay { letters, dots } => {
                    let text = match (clock.shown.nanos * 2 < DAY_NANOS, dots) {
                        (true, false) => "AM",
                        (true, true) => "A.M.",
                        (false, false) => "PM",
                        (false, true) => "P.M.",
                    };
                    spell(text, *letters, out);
                }
                Piece::Era { letters, dots } => {
                    let text = match (is_of_our_era, dots) {
                        (true, false) => "AD",
                        (true, true) => "A.D.",
                        (false, false) => "BC",
                        (false, true) => "B.C.",
                    };
                    spell(text, *letters, out);
                }
                Piece::Ahead(ahead) => write_ahead(clock.shown.ahead, *ahead, out),
                Piece::Abbreviation(letters) => match &times.zone {
                    Some(zone) => {
                        let instant = clock.shown.seconds().wrapping_sub(clock.shown.ahead);
                        spell(&zone.abbreviation(instant)?, *letters, out);
                    }
                    None => spell("UTC", *letters, out),
                },
                Piece::ZoneName => match &times.zone {
                    Some(zone) => out.push_str(&zone.name),
                    None => out.push_str("UTC"),
                },
            }
        }
        Ok(())
    }
}

const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

struct Clock {
    shown: Shown,
    date: Date,
}

impl Clock {
    fn value(&self, field: Field) -> i64 {
        let Shown { days, nanos, ahead } = self.shown;
        let seconds = nanos / SECOND_NANOS;
        let hour = seconds / 3_600;
        let ending = |year: i64, digits: u32| year.abs() % 10_i64.pow(digits.min(9));
        match field {
            Field::Year | Field::YearWithComma => self.date.year,
            Field::YearEnd(digits) => ending(self.date.year, digits),
            Field::Century => (self.date.year - 1).div_euclid(100) + 1,
            Field::IsoYear => iso_week(days).0,
            Field::IsoYearEnd(digits) => ending(iso_week(days).0, digits),
            Field::Quarter => i64::from((self.date.month - 1) / 3 + 1),
            Field::Month => self.date.month.into(),
            Field::Day => self.date.day.into(),
            Field::DayOfYear => day_of_year(days).into(),
            Field::IsoDayOfYear => days - iso_year_begins(iso_week(days).0) + 1,
            Field::Hour => hour,
            Field::HourTo24 => (hour + 23) % 24 + 1,
            Field::Hour12 => (hour + 11) % 12 + 1,
            Field::HourTo11 => hour % 12,
            Field::Minute => seconds / 60 % 60,
            Field::Second => seconds % 60,
            Field::SecondOfDay => seconds,
            Field::IsoWeek => iso_week(days).1.into(),
            Field::WeekFromSunday => week_of_year(days, true).into(),
            Field::WeekFromMonday => week_of_year(days, false).into(),
            Field::WeekFromFirst => i64::from((day_of_year(days) - 1) / 7 + 1),
            Field::WeekOfMonth => i64::from((self.date.day - 1) / 7 + 1),
            Field::IsoWeekday => i64::from(weekday(days) + 1),
            Field::WeekdayFrom0 => i64::from((weekday(days) + 1) % 7),
            Field::WeekdayFrom1 => i64::from((weekday(days) + 1) % 7 + 1),
            Field::JulianDay => days + 2_440_588,
            Field::Epoch => self.shown.seconds().wrapping_sub(ahead),
        }
    }

    fn number(&self, field: Field, fill: Fill, out: &mut String) {
        let value = self.value(field);
        if field == Field::YearWithComma {
            let (thousands, rest) = (value.abs() / 1_000, value.abs() % 1_000);
            if value < 0 {
                out.push('-');
            }
            digits(thousands.unsigned_abs(), Fill::Nothing, out);
            out.push(',');
            digits(rest.unsigned_abs(), Fill::Zeros(3), out);
            return;
        }
        if value < 0 {
            out.push('-');
        }
        digits(value.unsigned_abs(), fill, out);
    }
}

/// The numbers below 100, of two digits each.
const PAIRS: &str = "00010203040506070809101112131415161718192021222324252627282930313233343536373839\
                     40414243444546474849505152535455565758596061626364656667686970717273747576777879\
                     8081828384858687888990919293949596979899";

/// The two digits of a number below 100.
fn pair(value: u64) -> &'static str {
    let at = 2 * value as usize;
    PAIRS.get(at..at + 2).unwrap_or_default()
}

/// Writes a number's digits.
fn digits(value: u64, fill: Fill, out: &mut String) {
    // Most numbers of a time have two, and its year four.
    match fill {
        Fill::Zeros(2) if value < 100 => return out.push_str(pair(value)),
        Fill::Zeros(4) if value < 10_000 => {
            out.push_str(pair(value / 100));
            return out.push_str(pair(value % 100));
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
        Fill::Zeros(width) => (width, '0'),
        Fill::Blanks(width) => (width, ' '),
        Fill::Nothing => (0, ' '),
    };
    for _ in held.len() - at..filled {
        out.push(with);
    }
    for digit in &held[at..] {
        out.push(char::from(*digit));
    }
}

/// Writes the first digits of a fraction of a second; there are nine, and zeros behind them.
fn fraction(nanos: i64, count: u32, out: &mut String) {
    let cut = nanos / 10_i64.pow(9 - count.min(9));
    digits(cut.unsigned_abs(), Fill::Zeros(count.min(9) as usize), out);
    for _ in 9..count {
        out.push('0');
    }
}

fn spell(text: &str, letters: Letters, out: &mut String) {
    match letters {
        Letters::AsTheyAre => out.push_str(text),
        Letters::Upper => out.extend(text.chars().map(|letter| letter.to_ascii_uppercase())),
        Letters::Lower => out.extend(text.chars().map(|letter| letter.to_ascii_lowercase())),
    }
}

/// Writes a month's or a day's name. The longest have nine letters.
fn named(name: &str, short: bool, letters: Letters, filled: bool, out: &mut String) {
    let name = if short { &name[..3] } else { name };
    spell(name, letters, out);
    if filled && !short {
        (name.len()..9).for_each(|_| out.push(' '));
    }
}

fn ordinal_ending(number: &str) -> &'static str {
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

fn write_ahead(ahead: i64, how: Ahead, out: &mut String) {
    let is_z = matches!(how, Ahead::ColonOrZ | Ahead::PlainOrZ | Ahead::ShortOrZ);
    if is_z && ahead == 0 {
        out.push('Z');
        return;
    }
    let (hours, minutes) = (ahead.unsigned_abs() / 3_600, ahead.unsigned_abs() / 60 % 60);
    if how == Ahead::Minutes {
        digits(minutes, Fill::Zeros(2), out);
        return;
    }
    out.push(if ahead < 0 { '-' } else { '+' });
    digits(hours, Fill::Zeros(2), out);
    match how {
        Ahead::Plain | Ahead::PlainOrZ => digits(minutes, Fill::Zeros(2), out),
        Ahead::Colon | Ahead::ColonOrZ => {
            out.push(':');
            digits(minutes, Fill::Zeros(2), out);
        }
        Ahead::Short if minutes > 0 => {
            out.push(':');
            digits(minutes, Fill::Zeros(2), out);
        }
        Ahead::ShortOrZ if minutes > 0 => digits(minutes, Fill::Zeros(2), out),
        _ => {}
    }
}

/// What was read of a text so far.
#[derive(Debug, Default)]
struct Found {
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
    is_before_era: bool,
    julian_day: Option<i64>,
    epoch: Option<i64>,
    ahead: Option<i64>,
    zone: Option<Zone>,
    missing_year: Option<i64>,
}

/// A text that is read from its beginning.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The reason why what stands here is not what a format has here.
    fn expected(&self, what: impl std::fmt::Display) -> Unread {
        let reason = match self.rest().chars().next() {
            Some(_) => {
                let place = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
                let rest: String = self.rest().chars().take(20).collect();
                format!("{what} is expected at character {place}, where `{rest}` stands")
            }
            None => format!("{what} is expected at its end"),
        };
        Unread { reason }
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// As many digits as there are, up to some.
    fn number(&mut self, digits_max: usize) -> Option<i64> {
        let digits = self.rest().bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
        let number = self.rest().get(..digits)?.parse().ok()?;
        self.at += digits;
        Some(number)
    }

    /// Whether the rest begins so, whatever the case of its letters.
    fn takes(&mut self, text: &str) -> bool {
        let is_here =
            self.rest().get(..text.len()).is_some_and(|here| here.eq_ignore_ascii_case(text));
        if is_here {
            self.at += text.len();
        }
        is_here
    }

    /// Which of the names stands here: whole, or its first three letters.
    fn name(&mut self, names: &[&str], short: bool) -> Option<i64> {
        let of = |reader: &mut Self, letters: Option<usize>| {
            names.iter().position(|name| reader.takes(&name[..letters.unwrap_or(name.len())]))
        };
        let found = match short {
            true => of(self, Some(3)),
            false => of(self, None).or_else(|| of(self, Some(3))),
        };
        found.map(|at| at as i64)
    }

    /// `+02:00`, `+0200`, `+02` or `Z`, in seconds.
    fn ahead(&mut self) -> Option<i64> {
        if self.takes("Z") || self.takes("UTC") || self.takes("GMT") {
            return Some(0);
        }
        let before = self.at;
        let sign = match self.rest().as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return None,
        };
        self.at += 1;
        let from = self.at;
        let hours = self.number(2).filter(|hours| self.at - from == 2 && *hours <= 23);
        let colon = self.takes(":");
        let from = self.at;
        let minutes = self.number(2);
        let digits = self.at - from;
        let (Some(hours), Some(minutes)) = (hours, minutes.or((!colon).then_some(0))) else {
            self.at = before;
            return None;
        };
        if digits == 1 || minutes > 59 {
            self.at = before;
            return None;
        }
        Some(sign * (hours * 3_600 + minutes * 60))
    }
}

/// The instant that a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instant {
    /// Nanoseconds since 1970.
    pub(super) nanos: i128,
}

impl Format {
    /// Reads a text.
    ///
    /// # Errors
    /// The reason why it is none of this format, or no time.
    pub(super) fn read(&self, text: &str) -> std::result::Result<Instant, Unread> {
        let mut reader = Reader { text, at: 0 };
        let mut found = Found { missing_year: self.missing_year, ..Found::default() };
        reader.blanks();
        for (at, piece) in self.pieces.iter().enumerate() {
            let next = self.pieces.get(at + 1);
            read_piece(piece, next, &mut reader, &mut found)?;
        }
        reader.blanks();
        if !reader.rest().is_empty() {
            return Err(reader.expected("its end"));
        }
        found.instant()
    }
}

fn read_piece(
    piece: &Piece,
    next: Option<&Piece>,
    reader: &mut Reader<'_>,
    found: &mut Found,
) -> std::result::Result<(), Unread> {
    match piece {
        Piece::Text(text) => read_text(text, reader),
        Piece::Number(field, fill) => {
            if matches!(fill, Fill::Blanks(_)) {
                reader.blanks();
            }
            read_number(*field, next, reader, found)
        }
        Piece::Ordinal(field, ..) => {
            read_number(*field, next, reader, found)?;
            match ["st", "nd", "rd", "th"].iter().any(|ending| reader.takes(ending)) {
                true => Ok(()),
                false => Err(reader.expected("`th`")),
            }
        }
        Piece::Fraction(digits) => {
            let from = reader.at;
            let Some(number) = reader.number((*digits).min(9) as usize) else {
                return Err(reader.expected("a fraction of a second"));
            };
            found.nanos = number * 10_i64.pow(9 - (reader.at - from) as u32);
            Ok(())
        }
        Piece::PointAndFraction => {
            if !reader.takes(".") {
                return Ok(());
            }
            read_piece(&Piece::Fraction(9), next, reader, found)
        }
        Piece::MonthName { short, filled, .. } => {
            let month = reader.name(&MONTHS, *short);
            found.month = Some(month.ok_or_else(|| reader.expected("a month's name"))? + 1);
            read_filling(*filled, next, reader);
            Ok(())
        }
        Piece::Weekday { short, filled, .. } => {
            let day = reader.name(&WEEKDAYS, *short);
            found.weekday = Some(day.ok_or_else(|| reader.expected("a day's name"))?);
            read_filling(*filled, next, reader);
            Ok(())
        }
        Piece::RomanMonth { filled, .. } => {
            // The longest of those that fit.
            let mut months: Vec<usize> = (0..12).collect();
            months.sort_by_key(|&month| std::cmp::Reverse(ROMAN[month].len()));
            let month = months.into_iter().find(|&month| reader.takes(ROMAN[month]));
            let month = month.ok_or_else(|| reader.expected("a month in Roman numerals"))?;
            found.month = Some(month as i64 + 1);
            read_filling(*filled, next, reader);
            Ok(())
        }
        Piece::HalfDay { .. } => {
            found.is_afternoon = Some(if reader.takes("AM") || reader.takes("A.M.") {
                false
            } else if reader.takes("PM") || reader.takes("P.M.") {
                true
            } else {
                return Err(reader.expected("AM or PM"));
            });
            Ok(())
        }
        Piece::Era { .. } => {
            found.is_before_era = if ["BC", "B.C."].iter().any(|era| reader.takes(era)) {
                true
            } else if ["AD", "A.D."].iter().any(|era| reader.takes(era)) {
                false
            } else {
                return Err(reader.expected("AD or BC"));
            };
            Ok(())
        }
        Piece::Ahead(_) => {
            let ahead = reader.ahead();
            found.ahead = Some(ahead.ok_or_else(|| reader.expected("an offset like `+02:00`"))?);
            Ok(())
        }
        Piece::Abbreviation(_) | Piece::ZoneName => read_zone(reader, found),
    }
}

/// Blanks that fill a name up, unless the format has blanks behind it, which stand for any number.
fn read_filling(filled: bool, next: Option<&Piece>, reader: &mut Reader<'_>) {
    let blanks = matches!(next, Some(Piece::Text(text)) if text.starts_with(char::is_whitespace));
    if filled && !blanks {
        reader.blanks();
    }
}

/// A blank stands for as many as there are, one at least; all else for itself.
fn read_text(text: &str, reader: &mut Reader<'_>) -> std::result::Result<(), Unread> {
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if letter.is_whitespace() {
            rest = rest.trim_start();
            let before = reader.at;
            reader.blanks();
            if reader.at == before && !reader.rest().is_empty() {
                return Err(reader.expected("a blank"));
            }
            continue;
        }
        match reader.rest().strip_prefix(letter) {
            Some(_) => reader.at += letter.len_utf8(),
            None => return Err(reader.expected(format_args!("`{letter}`"))),
        }
        rest = &rest[letter.len_utf8()..];
    }
    Ok(())
}

fn read_zone(reader: &mut Reader<'_>, found: &mut Found) -> std::result::Result<(), Unread> {
    if let Some(ahead) = reader.ahead() {
        found.ahead = Some(ahead);
        return Ok(());
    }
    let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || "/_-+".contains(*letter);
    let name: String = reader.rest().chars().take_while(is_of_name).collect();
    let zone = match name.parse::<Tz>() {
        Ok(_) if !name.is_empty() => Zone::of(&Arc::from(name.as_str())),
        _ => return Err(reader.expected("a zone's name, like Europe/Berlin or UTC,")),
    };
    reader.at += name.len();
    match zone {
        Ok(Some(zone)) => found.zone = Some(zone),
        _ => found.ahead = Some(0),
    }
    Ok(())
}

fn read_number(
    field: Field,
    next: Option<&Piece>,
    reader: &mut Reader<'_>,
    found: &mut Found,
) -> std::result::Result<(), Unread> {
    let before = reader.at;
    let is_year = matches!(field, Field::Year | Field::IsoYear | Field::Epoch);
    let is_negative = is_year && reader.rest().starts_with('-');
    if is_negative || (is_year && reader.rest().starts_with('+')) {
        reader.at += 1;
    }
    // A year of more digits than four is told from what follows only where no digits do.
    let ends = !matches!(next, Some(Piece::Number(..) | Piece::Ordinal(..) | Piece::Fraction(_)));
    let digits_max = match field {
        Field::Year | Field::IsoYear if ends => 6,
        other => other.digits(),
    };
    let number = match field {
        Field::YearWithComma => {
            let thousands = reader.number(3);
            let rest = reader.takes(",").then(|| reader.number(3)).flatten();
            thousands.zip(rest).map(|(thousands, rest)| thousands * 1_000 + rest)
        }
        _ => reader.number(digits_max),
    };
    let Some(number) = number else {
        reader.at = before;
        return Err(reader.expected(field.called()));
    };
    let number = if is_negative { -number } else { number };
    let range = match field {
        Field::Quarter => 1..=4,
        Field::Month => 1..=12,
        Field::Day => 1..=31,
        Field::DayOfYear => 1..=366,
        Field::IsoDayOfYear => 1..=371,
        Field::Hour | Field::HourTo11 => 0..=23,
        Field::HourTo24 => 1..=24,
        Field::Hour12 => 1..=12,
        Field::Minute => 0..=59,
        // 60 is a leap second, which `instant` checks once the zone is known.
        Field::Second => 0..=60,
        Field::SecondOfDay => 0..=86_400,
        Field::IsoWeek => 1..=53,
        Field::WeekFromSunday | Field::WeekFromMonday => 0..=53,
        Field::WeekFromFirst => 1..=53,
        Field::WeekOfMonth => 1..=5,
        Field::IsoWeekday | Field::WeekdayFrom1 => 1..=7,
        Field::WeekdayFrom0 => 0..=6,
        _ => i64::MIN..=i64::MAX,
    };
    if !range.contains(&number) {
        reader.at = before;
        let (called, first, last) = (field.called(), range.start(), range.end());
        return Err(reader.expected(format_args!("{called} from {first} to {last}")));
    }
    // Two digits are the years 1969 to 2068; three of them are the last of 2000 to 2999.
    let ended = |digits: u32| match digits {
        1 => number + 2020,
        2 if number < 69 => number + 2000,
        2 => number + 1900,
        _ => number + 2000,
    };
    match field {
        Field::Year | Field::YearWithComma => found.year = Some(number),
        Field::YearEnd(digits) => found.year = Some(ended(digits)),
        Field::Century => found.century = Some(number),
        Field::IsoYear => found.iso_year = Some(number),
        Field::IsoYearEnd(digits) => found.iso_year = Some(ended(digits)),
        // It is in the month already.
        Field::Quarter | Field::WeekOfMonth | Field::IsoDayOfYear => {}
        Field::Month => found.month = Some(number),
        Field::Day => found.day = Some(number),
        Field::DayOfYear => found.day_of_year = Some(number),
        Field::Hour => found.hour = Some(number),
        Field::HourTo24 => found.hour = Some(number % 24),
        Field::Hour12 | Field::HourTo11 => found.hour12 = Some(number),
        Field::Minute => found.minute = Some(number),
        Field::Second => found.second = Some(number),
        Field::SecondOfDay => found.second_of_day = Some(number),
        Field::IsoWeek => found.iso_week = Some(number),
        Field::WeekFromSunday => found.week_from_sunday = Some(number),
        Field::WeekFromMonday => found.week_from_monday = Some(number),
        Field::WeekFromFirst => found.week_from_first = Some(number),
        Field::IsoWeekday => found.weekday = Some(number - 1),
        Field::WeekdayFrom0 | Field::WeekdayFrom1 => {
            let sunday = if field == Field::WeekdayFrom0 { 0 } else { 1 };
            found.weekday = Some((number - sunday + 6) % 7);
        }
        Field::JulianDay => found.julian_day = Some(number),
        Field::Epoch => found.epoch = Some(number),
    }
    Ok(())
}

impl Found {
    /// The day that was read. A month or day that is missing is the first one, a missing year that of the format.
    fn days(&self) -> std::result::Result<i64, String> {
        if let Some(day) = self.julian_day {
            return Ok(day - 2_440_588);
        }
        let mut year = self.year.or(self.missing_year).unwrap_or(1970);
        if let (Some(century), Some(short)) = (self.century, self.year) {
            year = (century - 1) * 100 + short.rem_euclid(100);
            if short.rem_euclid(100) == 0 {
                year += 100;
            }
        }
        if self.is_before_era {
            year = 1 - year;
        }
        let days = self.days_of_year(year)?;
        // Weeks beside a full date are told by it; others must be those of the day that was found.
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

    /// The day of a year that was read.
    fn days_of_year(&self, year: i64) -> std::result::Result<i64, String> {
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
            let begins = iso_year_begins(year);
            if begins + (week - 1) * 7 >= iso_year_begins(year + 1) {
                return Err(format!("{year} has no week {week}"));
            }
            return Ok(begins + (week - 1) * 7 + self.weekday.unwrap_or(0));
        }
        if let Some(day) = self.day_of_year {
            if day == 366 && !is_leap(year) {
                return Err(format!("{year} has 365 days"));
            }
            return Ok(first_day(year) + day - 1);
        }
        if self.month.is_none() && self.day.is_none() {
            let first = first_day(year);
            if let Some(week) = self.week_from_first {
                return Ok(first + (week - 1) * 7);
            }
            // The first day of week 1 is the year's first Sunday, or Monday. Without a day of the week it is the first one.
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
            let name = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
            return Err(format!("{name} {year} has no day {day}"));
        }
        Ok(days_of(Date { year, month, day }))
    }

    fn second(&self) -> std::result::Result<i64, String> {
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

    fn instant(&self) -> std::result::Result<Instant, Unread> {
        let second = i128::from(SECOND_NANOS);
        if let Some(epoch) = self.epoch {
            return Ok(Instant { nanos: i128::from(epoch) * second + i128::from(self.nanos) });
        }
        let unread = |reason| Unread { reason };
        let days = self.days().map_err(unread)?;
        let shown = days * 86_400 + self.second().map_err(unread)?;
        let ahead = match (&self.zone, self.ahead) {
            (Some(zone), _) => zone.ahead_when_shown(shown, false).map_err(|_| {
                let mut reason = String::new();
                let _ = write!(reason, "the calendar of {} does not reach it", zone.name);
                Unread { reason }
            })?,
            (None, ahead) => ahead.unwrap_or(0),
        };
        // A leap second is the last of a day of UTC, and counts as the first of the next day.
        if self.second == Some(60) && (shown - ahead).rem_euclid(86_400) != 0 {
            return Err(unread(
                "a second is from 0 to 59, and 60 at 23:59 of UTC alone".to_owned(),
            ));
        }
        let nanos = i128::from(shown - ahead) * second + i128::from(self.nanos);
        Ok(Instant { nanos })
    }
}
