//! Formats of `%` and a letter, in the four dialects that there are of them.
//!
//! C's and Python's codes are DuckDB's too, which has `%f`, `%g` and `%n` for six, three and nine digits of the
//! fraction; DataFusion's `to_char` and `to_timestamp` take chrono's, where `%f` are nine. MySQL's `%M` is the
//! month's name, and minutes are `%i`; ClickHouse's go by MySQL, and have C's besides. Sources: the manuals of
//! DuckDB ("Date Format Functions"), chrono (`format::strftime`), MySQL (`DATE_FORMAT`) and ClickHouse
//! (`formatDateTime`). A `-` behind the `%` writes a number without zeros before it, `_` with blanks.

use datafusion_common::Result;

use super::formats::{Ahead, Field, Fill, Format, Letters, Piece};
use crate::callable::{brief, usage};

/// Whose codes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    /// C, Python and DuckDB.
    C,
    /// DataFusion's `to_char`.
    Chrono,
    MySql,
    ClickHouse,
}

/// The format that a text of codes is.
///
/// # Errors
/// For a code that there is not.
pub(super) fn parsed(text: &str, dialect: Dialect) -> Result<Format> {
    let mut format = Format::default();
    let mut letters = text.chars().enumerate().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != '%' {
            format.push_char(letter);
            continue;
        }
        let mut code = String::new();
        let mut fill = None;
        if let Some((_, flag @ ('-' | '_' | '0'))) = letters.peek().copied()
            && dialect != Dialect::MySql
        {
            fill = Some(flag);
            letters.next();
        }
        // Colons, points and counts of digits are part of a code.
        while let Some((_, letter)) = letters.peek().copied() {
            code.push(letter);
            letters.next();
            if letter.is_alphabetic() || !":.369".contains(letter) {
                break;
            }
        }
        let known = put(&mut format, &code, fill, dialect);
        if !known {
            let shown = match fill {
                Some(flag) => format!("%{flag}{code}"),
                None => format!("%{code}"),
            };
            let place = at + 1;
            let message = match code.is_empty() {
                true => format!("the format `{}` ends within a code", brief(text)),
                false => format!(
                    "the format `{}` has `{shown}` at character {place}, which is no code",
                    brief(text)
                ),
            };
            return Err(usage(message, HINTS[dialect as usize]));
        }
    }
    if dialect == Dialect::MySql || dialect == Dialect::ClickHouse {
        no_month_for_minutes(text)?;
    }
    Ok(format)
}

const HINTS: [&str; 4] = [
    "codes are %Y %m %d %H %M %S %f %y %b %B %a %A %j %p %I %z %Z and others of C; %% is a percent sign",
    "codes are %Y %m %d %H %M %S %f %y %b %B %a %A %j %p %I %z %Z and others of C; %% is a percent sign",
    "codes are MySQL's: %Y %m %d %H %i %s %f %y %M %b %W %a %c %e %h %p; strftime takes C's",
    "codes are ClickHouse's: %Y %m %d %H %i %S %f %y %M %b %W %a %c %e %h %p; strftime takes C's",
];

/// `%H:%M` is hours and minutes to C, and hours and a month's name to MySQL.
fn no_month_for_minutes(text: &str) -> Result<()> {
    for hour in ["%H", "%h", "%I", "%k", "%l"] {
        for between in [":", ".", "", "h"] {
            if text.contains(&format!("{hour}{between}%M")) {
                return Err(usage(
                    format!(
                        "`%M` behind `{hour}` is the month's name, in the format `{}`",
                        brief(text)
                    ),
                    "minutes are %i in MySQL's and ClickHouse's codes; strftime takes C's, where they are %M",
                ));
            }
        }
    }
    Ok(())
}

/// A number of so many digits, zeros before it unless a flag says otherwise.
fn number(field: Field, width: usize, flag: Option<char>) -> Piece {
    let fill = match flag {
        Some('-') => Fill::Nothing,
        Some('_') => Fill::Blanks(width),
        _ => Fill::Zeros(width),
    };
    Piece::Number(field, fill)
}

/// The same, blanks before it unless a flag says otherwise.
fn blank(field: Field, width: usize, flag: Option<char>) -> Piece {
    number(field, width, Some(flag.unwrap_or('_')))
}

fn month_name(short: bool) -> Piece {
    Piece::MonthName { short, letters: Letters::AsTheyAre, filled: false }
}

fn day_name(short: bool) -> Piece {
    Piece::Weekday { short, letters: Letters::AsTheyAre, filled: false }
}

fn half_day(letters: Letters) -> Piece {
    Piece::HalfDay { letters, dots: false }
}

/// Several codes at once.
fn all(format: &mut Format, codes: &str, dialect: Dialect) -> bool {
    let mut letters = codes.chars();
    while let Some(letter) = letters.next() {
        match (letter, letters.clone().next()) {
            ('%', Some(code)) => {
                letters.next();
                if !put(format, &code.to_string(), None, dialect) {
                    return false;
                }
            }
            _ => format.push_char(letter),
        }
    }
    true
}

/// Adds what a code stands for; false where there is no such code.
fn put(format: &mut Format, code: &str, flag: Option<char>, dialect: Dialect) -> bool {
    use Dialect::{C, Chrono, ClickHouse, MySql};
    let is_click = dialect == ClickHouse;
    // Those of MySQL, which ClickHouse has too.
    let is_mysql = dialect == MySql || is_click;
    let piece = match (code, dialect) {
        ("%", _) => Piece::Text("%".into()),
        ("Y", _) => number(Field::Year, 4, flag),
        ("y", _) => number(Field::YearEnd(2), 2, flag),
        ("m", _) => number(Field::Month, 2, flag),
        ("d", _) => number(Field::Day, 2, flag),
        ("H", _) => number(Field::Hour, 2, flag),
        ("I", _) => number(Field::Hour12, 2, flag),
        ("S", _) => number(Field::Second, 2, flag),
        ("j", _) => number(Field::DayOfYear, 3, flag),
        ("p", _) => half_day(Letters::Upper),
        ("a", _) => day_name(true),
        ("b", _) => month_name(true),
        ("w", _) => Piece::Number(Field::WeekdayFrom0, Fill::Nothing),

        ("i", _) if is_mysql => number(Field::Minute, 2, flag),
        ("s", _) if is_mysql => number(Field::Second, 2, flag),
        ("h", _) if is_mysql => number(Field::Hour12, 2, flag),
        ("k", MySql) => number(Field::Hour, 0, flag),
        ("l", MySql) => number(Field::Hour12, 0, flag),
        ("k", ClickHouse) => blank(Field::Hour, 2, flag),
        ("l", ClickHouse) => number(Field::Hour12, 2, flag),
        ("M", _) if is_mysql => month_name(false),
        ("W", _) if is_mysql => day_name(false),
        ("c", MySql) => number(Field::Month, 0, flag),
        ("c", ClickHouse) => number(Field::Month, 2, flag),
        ("e", MySql) => number(Field::Day, 0, flag),
        ("D", MySql) => Piece::Ordinal(Field::Day, Fill::Nothing, Letters::Lower),
        ("f", _) if is_mysql => Piece::Fraction(6),
        ("r", MySql) => return all(format, "%h:%i:%s %p", dialect),
        ("T", _) if is_mysql => return all(format, "%H:%i:%s", dialect),
        ("U", MySql) => number(Field::WeekFromSunday, 2, flag),
        ("v", MySql) => number(Field::IsoWeek, 2, flag),
        ("x", MySql) => number(Field::IsoYear, 4, flag),
        (_, MySql) => return false,

        ("R", ClickHouse) => return all(format, "%H:%i", dialect),
        ("r", ClickHouse) => return all(format, "%h:%i %p", dialect),
        ("Q", ClickHouse) => Piece::Number(Field::Quarter, Fill::Nothing),
        ("z", ClickHouse) => Piece::Ahead(Ahead::Plain),
        ("n", ClickHouse) => Piece::Text("\n".into()),

        ("M", _) => number(Field::Minute, 2, flag),
        ("B", _) if !is_click => month_name(false),
        ("A", _) if !is_click => day_name(false),
        ("h", _) => month_name(true),
        ("e", _) => blank(Field::Day, 2, flag),
        ("C", _) => number(Field::Century, 2, flag),
        ("G", _) => number(Field::IsoYear, 4, flag),
        ("u", _) => Piece::Number(Field::IsoWeekday, Fill::Nothing),
        ("V", _) => number(Field::IsoWeek, 2, flag),
        ("D", _) => return all(format, "%m/%d/%y", dialect),
        ("F", _) => return all(format, "%Y-%m-%d", dialect),
        ("t", _) => Piece::Text("\t".into()),
        ("g", ClickHouse | Chrono) => number(Field::IsoYearEnd(2), 2, flag),
        (_, ClickHouse) => return false,

        ("k", _) => blank(Field::Hour, 2, flag),
        ("l", _) => blank(Field::Hour12, 2, flag),
        ("P", _) => half_day(Letters::Lower),
        ("U", _) => number(Field::WeekFromSunday, 2, flag),
        ("W", _) => number(Field::WeekFromMonday, 2, flag),
        ("s", _) => Piece::Number(Field::Epoch, Fill::Nothing),
        ("q", _) => Piece::Number(Field::Quarter, Fill::Nothing),
        ("z", _) => Piece::Ahead(Ahead::Plain),
        (":z", _) => Piece::Ahead(Ahead::Colon),
        ("Z", _) => Piece::Abbreviation(Letters::AsTheyAre),
        ("R", _) => return all(format, "%H:%M", dialect),
        ("T", _) => return all(format, "%H:%M:%S", dialect),
        ("r", _) => return all(format, "%I:%M:%S %p", dialect),
        ("v", _) => return all(format, "%e-%b-%Y", dialect),
        (".f", _) => Piece::PointAndFraction,
        ("3f", _) => Piece::Fraction(3),
        ("6f", _) => Piece::Fraction(6),
        ("9f", _) => Piece::Fraction(9),
        (".3f", _) => return point(format, 3),
        (".6f", _) => return point(format, 6),
        (".9f", _) => return point(format, 9),

        ("f", C) => Piece::Fraction(6),
        ("g", C) => Piece::Fraction(3),
        ("n", C) => Piece::Fraction(9),
        ("c", C) => return all(format, "%Y-%m-%d %H:%M:%S", dialect),
        ("x", C) => return all(format, "%Y-%m-%d", dialect),
        ("X", C) => return all(format, "%H:%M:%S", dialect),

        ("f", _) => Piece::Fraction(9),
        ("n", _) => Piece::Text("\n".into()),
        ("c", _) => return all(format, "%a %b %e %H:%M:%S %Y", dialect),
        ("x", _) => return all(format, "%m/%d/%y", dialect),
        ("X", _) => return all(format, "%H:%M:%S", dialect),
        ("+", _) => {
            all(format, "%Y-%m-%dT%H:%M:%S", dialect);
            format.push(Piece::PointAndFraction);
            Piece::Ahead(Ahead::Colon)
        }
        _ => return false,
    };
    format.push(piece);
    true
}

fn point(format: &mut Format, digits: u32) -> bool {
    format.push_char('.');
    format.push(Piece::Fraction(digits));
    true
}
