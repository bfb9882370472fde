//! Java's patterns of times: `yyyy-MM-dd HH:mm:ss`.
//!
//! Sources: Spark's manual, "Datetime Patterns", and Java's `DateTimeFormatter`. The number of repetitions of
//! a letter sets the number of digits or the length of a name. Text stands in single quotes; two single
//! quotes write one.

use datafusion_common::Result;

use super::datetime_format::{
    DateTimeFormat, FormatPiece, LetterCase, Padding, TimeField, UtcOffsetStyle,
};
use crate::row_function::{shorten_for_message, usage_error};

/// Parses a pattern.
///
/// # Errors
/// Fails for letters that are not a pattern.
pub(super) fn parse_java_pattern(pattern: &str) -> Result<DateTimeFormat> {
    let mut format = DateTimeFormat::default();
    let letters: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        if letter == '\'' {
            at = parse_quoted_text(&letters, at, pattern, &mut format)?;
            continue;
        }
        if !letter.is_ascii_alphabetic() {
            format.push_char(letter);
            at += 1;
            continue;
        }
        let count = letters[at..].iter().take_while(|next| **next == letter).count();
        let Some(piece) = letter_piece(letter, count) else {
            let word: String = letters[at..at + count].iter().take(10).collect();
            return Err(usage_error(
                format!(
                    "the pattern `{}` has `{word}` at character {}, which is no pattern of times",
                    shorten_for_message(pattern),
                    at + 1
                ),
                pattern_hint(letter),
            ));
        };
        format.push(piece);
        at += count;
    }
    Ok(format)
}

fn pattern_hint(letter: char) -> &'static str {
    match letter {
        'Y' => "a year is y: yyyy-MM-dd",
        'D' => "a day of the month is d: yyyy-MM-dd; a day of the year is D or DDD",
        _ => {
            "patterns are yyyy MM dd HH mm ss SSS MMM MMMM E EEEE a XXX and others of Java; text stands in \
             'quotes'; with % in it, it is a format of MySQL's codes"
        }
    }
}

/// Parses quoted text that begins at `at`. Returns the index behind its end.
fn parse_quoted_text(
    letters: &[char],
    at: usize,
    pattern: &str,
    format: &mut DateTimeFormat,
) -> Result<usize> {
    let mut at = at + 1;
    if letters.get(at) == Some(&'\'') {
        format.push_char('\'');
        return Ok(at + 1);
    }
    loop {
        match (letters.get(at), letters.get(at + 1)) {
            (Some('\''), Some('\'')) => {
                format.push_char('\'');
                at += 2;
            }
            (Some('\''), _) => return Ok(at + 1),
            (Some(letter), _) => {
                format.push_char(*letter);
                at += 1;
            }
            (None, _) => {
                return Err(usage_error(
                    format!(
                        "the pattern `{}` has a quote that does not end",
                        shorten_for_message(pattern)
                    ),
                    "text stands between two of ', and two of them are one in it",
                ));
            }
        }
    }
}

fn letter_piece(letter: char, count: usize) -> Option<FormatPiece> {
    let number = |field: TimeField, most: usize| {
        let fill = if count == 1 { Padding::Nothing } else { Padding::Zeros(count) };
        (count <= most).then_some(FormatPiece::Number(field, fill))
    };
    let name = LetterCase::AsIs;
    match (letter, count) {
        ('y' | 'u', 2) => {
            Some(FormatPiece::Number(TimeField::YearLastDigits(2), Padding::Zeros(2)))
        }
        ('y' | 'u', _) => number(TimeField::Year, 6),
        ('M' | 'L', 1..=2) => number(TimeField::Month, 2),
        ('M' | 'L', 3) => {
            Some(FormatPiece::MonthName { is_short: true, letter_case: name, is_padded: false })
        }
        ('M' | 'L', 4) => {
            Some(FormatPiece::MonthName { is_short: false, letter_case: name, is_padded: false })
        }
        ('d', _) => number(TimeField::Day, 2),
        // `DD` is an error, because it is mostly a mistake for the day of the month.
        ('D', 1 | 3) => number(TimeField::DayOfYear, 3),
        ('Q' | 'q', _) => number(TimeField::Quarter, 2),
        ('H', _) => number(TimeField::Hour, 2),
        ('h', _) => number(TimeField::Hour1To12, 2),
        ('k', _) => number(TimeField::Hour1To24, 2),
        ('K', _) => number(TimeField::Hour0To11, 2),
        ('m', _) => number(TimeField::Minute, 2),
        ('s', _) => number(TimeField::Second, 2),
        ('S', 1..=9) => Some(FormatPiece::Fraction(count as u32)),
        ('E', 1..=3) => {
            Some(FormatPiece::Weekday { is_short: true, letter_case: name, is_padded: false })
        }
        ('E', 4) => {
            Some(FormatPiece::Weekday { is_short: false, letter_case: name, is_padded: false })
        }
        ('a', 1) => Some(FormatPiece::AmPm { letter_case: LetterCase::Upper, has_dots: false }),
        ('G', 1..=3) => Some(FormatPiece::Era { letter_case: LetterCase::Upper, has_dots: false }),
        ('X', 1) => Some(FormatPiece::UtcOffset(UtcOffsetStyle::ShortOrZ)),
        ('X', 2) => Some(FormatPiece::UtcOffset(UtcOffsetStyle::PlainOrZ)),
        ('X', 3) => Some(FormatPiece::UtcOffset(UtcOffsetStyle::ColonOrZ)),
        ('x', 1..=2) | ('Z', 1..=3) => Some(FormatPiece::UtcOffset(UtcOffsetStyle::Plain)),
        ('x', 3) => Some(FormatPiece::UtcOffset(UtcOffsetStyle::Colon)),
        ('z', 1..=3) => Some(FormatPiece::ZoneAbbreviation(name)),
        ('V', 2) => Some(FormatPiece::ZoneName),
        _ => None,
    }
}
