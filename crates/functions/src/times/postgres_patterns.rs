//! PostgreSQL's patterns of times: `YYYY-MM-DD HH24:MI:SS`.
//!
//! Source: PostgreSQL manual, "Data Type Formatting Functions". Names of months and days are padded with
//! blanks to nine letters unless `FM` precedes them, and take the case of the pattern: `MONTH`, `Month`,
//! `month`.
//!
//! Departures: a letter that is not a pattern is an error, except `T` and `Z`, while PostgreSQL copies all
//! such letters. The `T` between a day and an hour is a letter (PostgreSQL reads `DDTHH24` as a day with
//! `TH`, and `H24`). `HH24:MM`, hours and a month, is an error. `FX` and `TM` have no effect. A parsed time
//! may have fewer digits than its pattern, but no other punctuation.

use datafusion_common::Result;

use super::datetime_format::{
    DateTimeFormat, FormatPiece, LetterCase, Padding, TimeField, UtcOffsetStyle,
};
use crate::row_function::{shorten_for_message, usage_error};

/// Patterns of numbers with their maximum digits. A pattern precedes those that are its prefixes.
const NUMBER_PATTERNS: [(&str, TimeField, usize); 28] = [
    ("HH24", TimeField::Hour, 2),
    ("HH12", TimeField::Hour1To12, 2),
    ("HH", TimeField::Hour1To12, 2),
    ("MI", TimeField::Minute, 2),
    ("SSSSS", TimeField::SecondOfDay, 0),
    ("SSSS", TimeField::SecondOfDay, 0),
    ("SS", TimeField::Second, 2),
    ("Y,YYY", TimeField::YearWithComma, 0),
    ("YYYY", TimeField::Year, 4),
    ("YYY", TimeField::YearLastDigits(3), 3),
    ("YY", TimeField::YearLastDigits(2), 2),
    ("Y", TimeField::YearLastDigits(1), 1),
    ("IYYY", TimeField::IsoYear, 4),
    ("IYY", TimeField::IsoYearLastDigits(3), 3),
    ("IY", TimeField::IsoYearLastDigits(2), 2),
    ("IDDD", TimeField::IsoDayOfYear, 3),
    ("IW", TimeField::IsoWeek, 2),
    ("ID", TimeField::IsoWeekday, 1),
    ("I", TimeField::IsoYearLastDigits(1), 1),
    ("MM", TimeField::Month, 2),
    ("DDD", TimeField::DayOfYear, 3),
    ("DD", TimeField::Day, 2),
    ("D", TimeField::WeekdayFrom1, 1),
    ("WW", TimeField::WeekFromFirst, 2),
    ("W", TimeField::WeekOfMonth, 1),
    ("CC", TimeField::Century, 2),
    ("J", TimeField::JulianDay, 0),
    ("Q", TimeField::Quarter, 1),
];

const FRACTION_PATTERNS: [(&str, u32); 8] =
    [("MS", 3), ("US", 6), ("FF1", 1), ("FF2", 2), ("FF3", 3), ("FF4", 4), ("FF5", 5), ("FF6", 6)];

/// Parses a pattern.
///
/// # Errors
/// Fails for letters that are not a pattern.
pub(super) fn parse_postgres_pattern(pattern: &str) -> Result<DateTimeFormat> {
    let mut format = DateTimeFormat::default();
    let mut rest = pattern;
    let mut fills = true;
    while let Some(letter) = rest.chars().next() {
        let upper = rest.get(..rest.len().min(5)).map(str::to_ascii_uppercase);
        let upper = upper.unwrap_or_else(|| {
            rest.chars().take(5).take_while(char::is_ascii).collect::<String>().to_ascii_uppercase()
        });
        if letter == '"' {
            rest = parse_quoted_text(&rest[1..], pattern, &mut format)?;
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
        let is_behind_a_day = matches!(format.last(), Some(FormatPiece::Number(TimeField::Day, _)));
        if letter == 'T' && is_behind_a_day && upper.starts_with("THH") {
            format.push_char('T');
            rest = &rest[1..];
            continue;
        }
        let Some((piece, length)) = parse_piece(rest, &upper, fills) else {
            let is_copied = !letter.is_ascii_alphabetic() || matches!(letter, 'T' | 'Z');
            if !is_copied {
                let place = pattern[..pattern.len() - rest.len()].chars().count() + 1;
                return Err(usage_error(
                    format!(
                        "the pattern `{}` has `{letter}` at character {place}, which is no pattern of times",
                        shorten_for_message(pattern)
                    ),
                    "patterns are YYYY MM DD HH24 MI SS MS US Mon Month Dy Day AM TZ and others of PostgreSQL; \
                     text stands in \"quotes\"; with % in it, it is a format of C's codes",
                ));
            }
            format.push_char(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        };
        reject_month_for_minutes(&format, &piece, pattern)?;
        rest = &rest[length..];
        let ends = rest.get(..2).filter(|ending| ending.eq_ignore_ascii_case("TH"));
        // In `DDTHH24`, `TH` is not an ordinal suffix.
        let ends = ends.filter(|_| !rest.get(..3).is_some_and(|next| next.starts_with("THH")));
        match (piece, ends) {
            (FormatPiece::Number(field, fill), Some(ending)) => {
                let letters = match ending {
                    "TH" => LetterCase::Upper,
                    _ => LetterCase::Lower,
                };
                format.push(FormatPiece::Ordinal(field, fill, letters));
                rest = &rest[2..];
            }
            (piece, _) => format.push(piece),
        }
        fills = true;
    }
    Ok(format)
}

/// Parses quoted text. Returns the rest behind the closing quote.
fn parse_quoted_text<'a>(
    text: &'a str,
    pattern: &str,
    format: &mut DateTimeFormat,
) -> Result<&'a str> {
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
    Err(usage_error(
        format!("the pattern `{}` has a quote that does not end", shorten_for_message(pattern)),
        "text stands between two of \"; \\\" is a quote in it",
    ))
}

/// Fails for hours followed by a month, which is a mistake for minutes.
fn reject_month_for_minutes(
    format: &DateTimeFormat,
    piece: &FormatPiece,
    pattern: &str,
) -> Result<()> {
    let is_month = matches!(piece, FormatPiece::Number(TimeField::Month, _));
    let is_hour = |piece: &FormatPiece| {
        matches!(piece, FormatPiece::Number(TimeField::Hour | TimeField::Hour1To12, _))
    };
    let behind = match format.pieces() {
        [.., hour, FormatPiece::Text(text)] if text.as_ref() == ":" => Some(hour),
        _ => None,
    };
    match is_month && behind.is_some_and(is_hour) {
        true => Err(usage_error(
            format!(
                "`MM` behind the hours is the month, in the pattern `{}`",
                shorten_for_message(pattern)
            ),
            "minutes are MI: HH24:MI:SS",
        )),
        false => Ok(()),
    }
}

/// Returns the letter case that a pattern word asks for by its own case.
fn letter_case_of_word(word: &str) -> LetterCase {
    let mut letters = word.chars().filter(char::is_ascii_alphabetic);
    let first = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    let second = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    match (first, second) {
        (true, true) => LetterCase::Upper,
        (false, _) => LetterCase::Lower,
        (true, false) => LetterCase::AsIs,
    }
}

/// Parses the pattern at the beginning of a text. Returns the piece and the length of the pattern.
fn parse_piece(rest: &str, upper: &str, fills: bool) -> Option<(FormatPiece, usize)> {
    let word = |length: usize| letter_case_of_word(&rest[..length]);
    let is = |pattern: &str| upper.starts_with(pattern);
    if is("MONTH") {
        return Some((
            FormatPiece::MonthName { is_short: false, letter_case: word(5), is_padded: fills },
            5,
        ));
    }
    if is("MON") {
        return Some((
            FormatPiece::MonthName { is_short: true, letter_case: word(3), is_padded: false },
            3,
        ));
    }
    if is("DAY") {
        return Some((
            FormatPiece::Weekday { is_short: false, letter_case: word(3), is_padded: fills },
            3,
        ));
    }
    if is("DY") {
        return Some((
            FormatPiece::Weekday { is_short: true, letter_case: word(2), is_padded: false },
            2,
        ));
    }
    if is("RM") {
        return Some((FormatPiece::RomanMonth { letter_case: word(2), is_padded: fills }, 2));
    }
    for (pattern, dots) in [("A.M.", true), ("P.M.", true), ("AM", false), ("PM", false)] {
        if is(pattern) {
            let letters = letter_case_of_first(&rest[..1]);
            return Some((
                FormatPiece::AmPm { letter_case: letters, has_dots: dots },
                pattern.len(),
            ));
        }
    }
    for (pattern, dots) in [("A.D.", true), ("B.C.", true), ("AD", false), ("BC", false)] {
        if is(pattern) {
            let letters = letter_case_of_first(&rest[..1]);
            return Some((
                FormatPiece::Era { letter_case: letters, has_dots: dots },
                pattern.len(),
            ));
        }
    }
    for (pattern, ahead) in [
        ("TZH", UtcOffsetStyle::Hours),
        ("TZM", UtcOffsetStyle::Minutes),
        ("OF", UtcOffsetStyle::Short),
    ] {
        if is(pattern) {
            return Some((FormatPiece::UtcOffset(ahead), pattern.len()));
        }
    }
    if is("TZ") {
        let letters = match &rest[..2] {
            "tz" => LetterCase::Lower,
            _ => LetterCase::Upper,
        };
        return Some((FormatPiece::ZoneAbbreviation(letters), 2));
    }
    if let Some((pattern, digits)) = FRACTION_PATTERNS.iter().find(|(pattern, _)| is(pattern)) {
        return Some((FormatPiece::Fraction(*digits), pattern.len()));
    }
    let (pattern, field, width) = NUMBER_PATTERNS.iter().find(|(pattern, ..)| is(pattern))?;
    let fill = if fills { Padding::Zeros(*width) } else { Padding::Nothing };
    Some((FormatPiece::Number(*field, fill), pattern.len()))
}

fn letter_case_of_first(first: &str) -> LetterCase {
    match first.chars().all(|letter| letter.is_ascii_uppercase()) {
        true => LetterCase::Upper,
        false => LetterCase::Lower,
    }
}
