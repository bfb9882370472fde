//! PostgreSQL's patterns of times: `YYYY-MM-DD HH24:MI:SS`.
//!
//! Source: its manual, "Data Type Formatting Functions". Names of months and days are filled with blanks up to
//! nine letters unless `FM` stands before them, and are spelled as the pattern is: `MONTH`, `Month`, `month`.
//! Departures: a letter that is no pattern is refused, but for `T` and `Z`, where PostgreSQL copies it; the
//! `T` between a day and an hour is one (to PostgreSQL `DDTHH24` is a day with `TH` and `H24`); `HH24:MM`,
//! hours and a month, is refused; `FX` and `TM` change nothing; times that are read may have fewer digits than
//! their pattern, but no other signs.

use datafusion_common::Result;

use super::formats::{Ahead, Field, Fill, Format, Letters, Piece};
use crate::callable::{brief, usage};

/// Numbers, and how many digits they have. A longer one stands before those that it begins with.
const NUMBERS: [(&str, Field, usize); 28] = [
    ("HH24", Field::Hour, 2),
    ("HH12", Field::Hour12, 2),
    ("HH", Field::Hour12, 2),
    ("MI", Field::Minute, 2),
    ("SSSSS", Field::SecondOfDay, 0),
    ("SSSS", Field::SecondOfDay, 0),
    ("SS", Field::Second, 2),
    ("Y,YYY", Field::YearWithComma, 0),
    ("YYYY", Field::Year, 4),
    ("YYY", Field::YearEnd(3), 3),
    ("YY", Field::YearEnd(2), 2),
    ("Y", Field::YearEnd(1), 1),
    ("IYYY", Field::IsoYear, 4),
    ("IYY", Field::IsoYearEnd(3), 3),
    ("IY", Field::IsoYearEnd(2), 2),
    ("IDDD", Field::IsoDayOfYear, 3),
    ("IW", Field::IsoWeek, 2),
    ("ID", Field::IsoWeekday, 1),
    ("I", Field::IsoYearEnd(1), 1),
    ("MM", Field::Month, 2),
    ("DDD", Field::DayOfYear, 3),
    ("DD", Field::Day, 2),
    ("D", Field::WeekdayFrom1, 1),
    ("WW", Field::WeekFromFirst, 2),
    ("W", Field::WeekOfMonth, 1),
    ("CC", Field::Century, 2),
    ("J", Field::JulianDay, 0),
    ("Q", Field::Quarter, 1),
];

const FRACTIONS: [(&str, u32); 8] =
    [("MS", 3), ("US", 6), ("FF1", 1), ("FF2", 2), ("FF3", 3), ("FF4", 4), ("FF5", 5), ("FF6", 6)];

/// The format that a pattern is.
///
/// # Errors
/// For letters that are no pattern.
pub(super) fn parsed(pattern: &str) -> Result<Format> {
    let mut format = Format::default();
    let mut rest = pattern;
    let mut fills = true;
    while let Some(letter) = rest.chars().next() {
        let upper = rest.get(..rest.len().min(5)).map(str::to_ascii_uppercase);
        let upper = upper.unwrap_or_else(|| {
            rest.chars().take(5).take_while(char::is_ascii).collect::<String>().to_ascii_uppercase()
        });
        if letter == '"' {
            rest = quoted(&rest[1..], pattern, &mut format)?;
            continue;
        }
        if letter == '\\' {
            let escaped = rest[1..].chars().next();
            format.push_char(escaped.unwrap_or('\\'));
            rest = rest.get(1 + escaped.map_or(0, char::len_utf8)..).unwrap_or_default();
            continue;
        }
        if upper.starts_with("FM") {
            fills = false;
            rest = &rest[2..];
            continue;
        }
        if upper.starts_with("FX") || upper.starts_with("TM") {
            rest = &rest[2..];
            continue;
        }
        let is_behind_a_day = matches!(format.last(), Some(Piece::Number(Field::Day, _)));
        if letter == 'T' && is_behind_a_day && upper.starts_with("THH") {
            format.push_char('T');
            rest = &rest[1..];
            continue;
        }
        let Some((piece, length)) = piece_at(rest, &upper, fills) else {
            let is_copied = !letter.is_ascii_alphabetic() || matches!(letter, 'T' | 'Z');
            if !is_copied {
                let place = pattern[..pattern.len() - rest.len()].chars().count() + 1;
                return Err(usage(
                    format!(
                        "the pattern `{}` has `{letter}` at character {place}, which is no pattern of times",
                        brief(pattern)
                    ),
                    "patterns are YYYY MM DD HH24 MI SS MS US Mon Month Dy Day AM TZ and others of PostgreSQL; \
                     text stands in \"quotes\"; with % in it, it is a format of C's codes",
                ));
            }
            format.push_char(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        };
        no_month_for_minutes(&format, &piece, pattern)?;
        rest = &rest[length..];
        let ends = rest.get(..2).filter(|ending| ending.eq_ignore_ascii_case("TH"));
        // `DDTHH24` is no ending.
        let ends = ends.filter(|_| !rest.get(..3).is_some_and(|next| next.starts_with("THH")));
        match (piece, ends) {
            (Piece::Number(field, fill), Some(ending)) => {
                let letters = match ending {
                    "TH" => Letters::Upper,
                    _ => Letters::Lower,
                };
                format.push(Piece::Ordinal(field, fill, letters));
                rest = &rest[2..];
            }
            (piece, _) => format.push(piece),
        }
        fills = true;
    }
    Ok(format)
}

/// Text in quotes, up to its end.
fn quoted<'a>(text: &'a str, pattern: &str, format: &mut Format) -> Result<&'a str> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok(&text[at + 1..]),
            '\\' => match letters.next() {
                Some((_, escaped)) => format.push_char(escaped),
                None => break,
            },
            other => format.push_char(other),
        }
    }
    Err(usage(
        format!("the pattern `{}` has a quote that does not end", brief(pattern)),
        "text stands between two of \"; \\\" is a quote in it",
    ))
}

/// Hours with a month behind them are meant with minutes.
fn no_month_for_minutes(format: &Format, piece: &Piece, pattern: &str) -> Result<()> {
    let is_month = matches!(piece, Piece::Number(Field::Month, _));
    let is_hour = |piece: &Piece| matches!(piece, Piece::Number(Field::Hour | Field::Hour12, _));
    let behind = match format.pieces() {
        [.., hour, Piece::Text(text)] if text.as_ref() == ":" => Some(hour),
        _ => None,
    };
    match is_month && behind.is_some_and(is_hour) {
        true => Err(usage(
            format!("`MM` behind the hours is the month, in the pattern `{}`", brief(pattern)),
            "minutes are MI: HH24:MI:SS",
        )),
        false => Ok(()),
    }
}

/// The spelling that a word asks for by its own.
fn letters_of(word: &str) -> Letters {
    let mut letters = word.chars().filter(char::is_ascii_alphabetic);
    let first = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    let second = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    match (first, second) {
        (true, true) => Letters::Upper,
        (false, _) => Letters::Lower,
        (true, false) => Letters::AsTheyAre,
    }
}

/// The pattern at the beginning of a text, and how long it is.
fn piece_at(rest: &str, upper: &str, fills: bool) -> Option<(Piece, usize)> {
    let word = |length: usize| letters_of(&rest[..length]);
    let is = |pattern: &str| upper.starts_with(pattern);
    if is("MONTH") {
        return Some((Piece::MonthName { short: false, letters: word(5), filled: fills }, 5));
    }
    if is("MON") {
        return Some((Piece::MonthName { short: true, letters: word(3), filled: false }, 3));
    }
    if is("DAY") {
        return Some((Piece::Weekday { short: false, letters: word(3), filled: fills }, 3));
    }
    if is("DY") {
        return Some((Piece::Weekday { short: true, letters: word(2), filled: false }, 2));
    }
    if is("RM") {
        return Some((Piece::RomanMonth { letters: word(2), filled: fills }, 2));
    }
    for (pattern, dots) in [("A.M.", true), ("P.M.", true), ("AM", false), ("PM", false)] {
        if is(pattern) {
            let letters = half(&rest[..1]);
            return Some((Piece::HalfDay { letters, dots }, pattern.len()));
        }
    }
    for (pattern, dots) in [("A.D.", true), ("B.C.", true), ("AD", false), ("BC", false)] {
        if is(pattern) {
            let letters = half(&rest[..1]);
            return Some((Piece::Era { letters, dots }, pattern.len()));
        }
    }
    for (pattern, ahead) in [("TZH", Ahead::Hours), ("TZM", Ahead::Minutes), ("OF", Ahead::Short)] {
        if is(pattern) {
            return Some((Piece::Ahead(ahead), pattern.len()));
        }
    }
    if is("TZ") {
        let letters = match &rest[..2] {
            "tz" => Letters::Lower,
            _ => Letters::Upper,
        };
        return Some((Piece::Abbreviation(letters), 2));
    }
    if let Some((pattern, digits)) = FRACTIONS.iter().find(|(pattern, _)| is(pattern)) {
        return Some((Piece::Fraction(*digits), pattern.len()));
    }
    let (pattern, field, width) = NUMBERS.iter().find(|(pattern, ..)| is(pattern))?;
    let fill = if fills { Fill::Zeros(*width) } else { Fill::Nothing };
    Some((Piece::Number(*field, fill), pattern.len()))
}

fn half(first: &str) -> Letters {
    match first.chars().all(|letter| letter.is_ascii_uppercase()) {
        true => Letters::Upper,
        false => Letters::Lower,
    }
}
