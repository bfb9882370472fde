//! Formats of `%` and a letter, in four dialects.
//!
//! C's and Python's codes are also DuckDB's, which adds `%f`, `%g` and `%n` for six, three and nine digits of
//! the fraction. DataFusion's `to_char` and `to_timestamp` take chrono's codes, where `%f` has nine digits.
//! In MySQL, `%M` is the name of the month and `%i` the minutes; ClickHouse follows MySQL and adds some of
//! C's codes. Sources: the manuals of DuckDB ("Date Format Functions"), chrono (`format::strftime`), MySQL
//! (`DATE_FORMAT`) and ClickHouse (`formatDateTime`). A `-` behind the `%` writes a number without leading
//! zeros, `_` with leading blanks.

use datafusion_common::Result;

use super::datetime_format::{
    DateTimeFormat, FormatPiece, LetterCase, Padding, TimeField, UtcOffsetStyle,
};
use crate::row_function::{shorten_for_message, usage_error};

/// The dialect of a format's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CodeDialect {
    /// C, Python and DuckDB.
    C,
    /// DataFusion's `to_char` and `to_timestamp`.
    Chrono,
    MySql,
    ClickHouse,
}

/// Parses a format of codes.
///
/// # Errors
/// Fails for an unknown code.
pub(super) fn parse_codes(text: &str, dialect: CodeDialect) -> Result<DateTimeFormat> {
    let mut format = DateTimeFormat::default();
    let mut letters = text.chars().enumerate().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != '%' {
            format.push_char(letter);
            continue;
        }
        let mut code = String::new();
        let mut fill = None;
        if let Some((_, flag @ ('-' | '_' | '0'))) = letters.peek().copied()
            && dialect != CodeDialect::MySql
        {
            fill = Some(flag);
            letters.next();
        }
        // Colons, points and digit counts are part of a code.
        while let Some((_, letter)) = letters.peek().copied() {
            code.push(letter);
            letters.next();
            if letter.is_alphabetic() || !":.369".contains(letter) {
                break;
            }
        }
        let known = push_code(&mut format, &code, fill, dialect);
        if !known {
            let shown = match fill {
                Some(flag) => format!("%{flag}{code}"),
                None => format!("%{code}"),
            };
            let place = at + 1;
            let message = match code.is_empty() {
                true => format!("the format `{}` ends within a code", shorten_for_message(text)),
                false => format!(
                    "the format `{}` has `{shown}` at character {place}, which is no code",
                    shorten_for_message(text)
                ),
            };
            return Err(usage_error(message, DIALECT_HINTS[dialect as usize]));
        }
    }
    if dialect == CodeDialect::MySql || dialect == CodeDialect::ClickHouse {
        reject_month_for_minutes(text)?;
    }
    Ok(format)
}

const DIALECT_HINTS: [&str; 4] = [
    "codes are %Y %m %d %H %M %S %f %y %b %B %a %A %j %p %I %z %Z and others of C; %% is a percent sign",
    "codes are %Y %m %d %H %M %S %f %y %b %B %a %A %j %p %I %z %Z and others of C; %% is a percent sign",
    "codes are MySQL's: %Y %m %d %H %i %s %f %y %M %b %W %a %c %e %h %p; strftime takes C's",
    "codes are ClickHouse's: %Y %m %d %H %i %S %f %y %M %b %W %a %c %e %h %p; strftime takes C's",
];

/// Fails for `%H:%M` in MySQL's dialect, which means hours and the name of a month, while C's means hours and
/// minutes.
fn reject_month_for_minutes(text: &str) -> Result<()> {
    for hour in ["%H", "%h", "%I", "%k", "%l"] {
        for between in [":", ".", "", "h"] {
            if text.contains(&format!("{hour}{between}%M")) {
                return Err(usage_error(
                    format!(
                        "`%M` behind `{hour}` is the month's name, in the format `{}`",
                        shorten_for_message(text)
                    ),
                    "minutes are %i in MySQL's and ClickHouse's codes; strftime takes C's, where they are %M",
                ));
            }
        }
    }
    Ok(())
}

/// Returns a number of `width` digits, with leading zeros unless a flag changes that.
fn number_piece(field: TimeField, width: usize, flag: Option<char>) -> FormatPiece {
    let fill = match flag {
        Some('-') => Padding::Nothing,
        Some('_') => Padding::Blanks(width),
        _ => Padding::Zeros(width),
    };
    FormatPiece::Number(field, fill)
}

/// Returns a number of `width` characters, with leading blanks unless a flag changes that.
fn blank_padded_piece(field: TimeField, width: usize, flag: Option<char>) -> FormatPiece {
    number_piece(field, width, Some(flag.unwrap_or('_')))
}

fn month_name_piece(short: bool) -> FormatPiece {
    FormatPiece::MonthName { is_short: short, letter_case: LetterCase::AsIs, is_padded: false }
}

fn weekday_piece(short: bool) -> FormatPiece {
    FormatPiece::Weekday { is_short: short, letter_case: LetterCase::AsIs, is_padded: false }
}

fn half_day_piece(letters: LetterCase) -> FormatPiece {
    FormatPiece::AmPm { letter_case: letters, has_dots: false }
}

/// Pushes a format of several codes, the expansion of one code.
fn push_codes(format: &mut DateTimeFormat, codes: &str, dialect: CodeDialect) -> bool {
    let mut letters = codes.chars();
    while let Some(letter) = letters.next() {
        match (letter, letters.clone().next()) {
            ('%', Some(code)) => {
                letters.next();
                if !push_code(format, &code.to_string(), None, dialect) {
                    return false;
                }
            }
            _ => format.push_char(letter),
        }
    }
    true
}

/// Pushes the piece that a code stands for. Returns false for an unknown code.
fn push_code(
    format: &mut DateTimeFormat,
    code: &str,
    flag: Option<char>,
    dialect: CodeDialect,
) -> bool {
    use CodeDialect::{C, Chrono, ClickHouse, MySql};
    let is_click = dialect == ClickHouse;
    // ClickHouse has these codes of MySQL too.
    let is_mysql = dialect == MySql || is_click;
    let piece = match (code, dialect) {
        ("%", _) => FormatPiece::Text("%".into()),
        ("Y", _) => number_piece(TimeField::Year, 4, flag),
        ("y", _) => number_piece(TimeField::YearLastDigits(2), 2, flag),
        ("m", _) => number_piece(TimeField::Month, 2, flag),
        ("d", _) => number_piece(TimeField::Day, 2, flag),
        ("H", _) => number_piece(TimeField::Hour, 2, flag),
        ("I", _) => number_piece(TimeField::Hour1To12, 2, flag),
        ("S", _) => number_piece(TimeField::Second, 2, flag),
        ("j", _) => number_piece(TimeField::DayOfYear, 3, flag),
        ("p", _) => half_day_piece(LetterCase::Upper),
        ("a", _) => weekday_piece(true),
        ("b", _) => month_name_piece(true),
        ("w", _) => FormatPiece::Number(TimeField::WeekdayFrom0, Padding::Nothing),

        ("i", _) if is_mysql => number_piece(TimeField::Minute, 2, flag),
        ("s", _) if is_mysql => number_piece(TimeField::Second, 2, flag),
        ("h", _) if is_mysql => number_piece(TimeField::Hour1To12, 2, flag),
        ("k", MySql) => number_piece(TimeField::Hour, 0, flag),
        ("l", MySql) => number_piece(TimeField::Hour1To12, 0, flag),
        ("k", ClickHouse) => blank_padded_piece(TimeField::Hour, 2, flag),
        ("l", ClickHouse) => number_piece(TimeField::Hour1To12, 2, flag),
        ("M", _) if is_mysql => month_name_piece(false),
        ("W", _) if is_mysql => weekday_piece(false),
        ("c", MySql) => number_piece(TimeField::Month, 0, flag),
        ("c", ClickHouse) => number_piece(TimeField::Month, 2, flag),
        ("e", MySql) => number_piece(TimeField::Day, 0, flag),
        ("D", MySql) => FormatPiece::Ordinal(TimeField::Day, Padding::Nothing, LetterCase::Lower),
        ("f", _) if is_mysql => FormatPiece::Fraction(6),
        ("r", MySql) => return push_codes(format, "%h:%i:%s %p", dialect),
        ("T", _) if is_mysql => return push_codes(format, "%H:%i:%s", dialect),
        ("U", MySql) => number_piece(TimeField::WeekFromSunday, 2, flag),
        ("v", MySql) => number_piece(TimeField::IsoWeek, 2, flag),
        ("x", MySql) => number_piece(TimeField::IsoYear, 4, flag),
        (_, MySql) => return false,

        ("R", ClickHouse) => return push_codes(format, "%H:%i", dialect),
        ("r", ClickHouse) => return push_codes(format, "%h:%i %p", dialect),
        ("Q", ClickHouse) => FormatPiece::Number(TimeField::Quarter, Padding::Nothing),
        ("z", ClickHouse) => FormatPiece::UtcOffset(UtcOffsetStyle::Plain),
        ("n", ClickHouse) => FormatPiece::Text("\n".into()),

        ("M", _) => number_piece(TimeField::Minute, 2, flag),
        ("B", _) if !is_click => month_name_piece(false),
        ("A", _) if !is_click => weekday_piece(false),
        ("h", _) => month_name_piece(true),
        ("e", _) => blank_padded_piece(TimeField::Day, 2, flag),
        ("C", _) => number_piece(TimeField::Century, 2, flag),
        ("G", _) => number_piece(TimeField::IsoYear, 4, flag),
        ("u", _) => FormatPiece::Number(TimeField::IsoWeekday, Padding::Nothing),
        ("V", _) => number_piece(TimeField::IsoWeek, 2, flag),
        ("D", _) => return push_codes(format, "%m/%d/%y", dialect),
        ("F", _) => return push_codes(format, "%Y-%m-%d", dialect),
        ("t", _) => FormatPiece::Text("\t".into()),
        ("g", ClickHouse | Chrono) => number_piece(TimeField::IsoYearLastDigits(2), 2, flag),
        (_, ClickHouse) => return false,

        ("k", _) => blank_padded_piece(TimeField::Hour, 2, flag),
        ("l", _) => blank_padded_piece(TimeField::Hour1To12, 2, flag),
        ("P", _) => half_day_piece(LetterCase::Lower),
        ("U", _) => number_piece(TimeField::WeekFromSunday, 2, flag),
        ("W", _) => number_piece(TimeField::WeekFromMonday, 2, flag),
        ("s", _) => FormatPiece::Number(TimeField::Epoch, Padding::Nothing),
        ("q", _) => FormatPiece::Number(TimeField::Quarter, Padding::Nothing),
        ("z", _) => FormatPiece::UtcOffset(UtcOffsetStyle::Plain),
        (":z", _) => FormatPiece::UtcOffset(UtcOffsetStyle::Colon),
        ("Z", _) => FormatPiece::ZoneAbbreviation(LetterCase::AsIs),
        ("R", _) => return push_codes(format, "%H:%M", dialect),
        ("T", _) => return push_codes(format, "%H:%M:%S", dialect),
        ("r", _) => return push_codes(format, "%I:%M:%S %p", dialect),
        ("v", _) => return push_codes(format, "%e-%b-%Y", dialect),
        (".f", _) => FormatPiece::OptionalFraction,
        ("3f", _) => FormatPiece::Fraction(3),
        ("6f", _) => FormatPiece::Fraction(6),
        ("9f", _) => FormatPiece::Fraction(9),
        (".3f", _) => return push_point_and_fraction(format, 3),
        (".6f", _) => return push_point_and_fraction(format, 6),
        (".9f", _) => return push_point_and_fraction(format, 9),

        ("f", C) => FormatPiece::Fraction(6),
        ("g", C) => FormatPiece::Fraction(3),
        ("n", C) => FormatPiece::Fraction(9),
        ("c", C) => return push_codes(format, "%Y-%m-%d %H:%M:%S", dialect),
        ("x", C) => return push_codes(format, "%Y-%m-%d", dialect),
        ("X", C) => return push_codes(format, "%H:%M:%S", dialect),

        ("f", _) => FormatPiece::Fraction(9),
        ("n", _) => FormatPiece::Text("\n".into()),
        ("c", _) => return push_codes(format, "%a %b %e %H:%M:%S %Y", dialect),
        ("x", _) => return push_codes(format, "%m/%d/%y", dialect),
        ("X", _) => return push_codes(format, "%H:%M:%S", dialect),
        ("+", _) => {
            push_codes(format, "%Y-%m-%dT%H:%M:%S", dialect);
            format.push(FormatPiece::OptionalFraction);
            FormatPiece::UtcOffset(UtcOffsetStyle::Colon)
        }
        _ => return false,
    };
    format.push(piece);
    true
}

fn push_point_and_fraction(format: &mut DateTimeFormat, digits: u32) -> bool {
    format.push_char('.');
    format.push(FormatPiece::Fraction(digits));
    true
}
