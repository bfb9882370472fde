//! Java's patterns of times: `yyyy-MM-dd HH:mm:ss`.
//!
//! Source: Spark's manual, "Datetime Patterns", and Java's `DateTimeFormatter`. How often a letter is written
//! says how many digits it has, or how long a name is; text stands in single quotes, and two of them are one.

use datafusion_common::Result;

use super::formats::{Ahead, Field, Fill, Format, Letters, Piece};
use crate::callable::{brief, usage};

/// The format that a pattern is.
///
/// # Errors
/// For letters that are no pattern.
pub(super) fn parsed(pattern: &str) -> Result<Format> {
    let mut format = Format::default();
    let letters: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        if letter == '\'' {
            at = quoted(&letters, at, pattern, &mut format)?;
            continue;
        }
        if !letter.is_ascii_alphabetic() {
            format.push_char(letter);
            at += 1;
            continue;
        }
        let count = letters[at..].iter().take_while(|next| **next == letter).count();
        let Some(piece) = piece_of(letter, count) else {
            let word: String = letters[at..at + count].iter().take(10).collect();
            return Err(usage(
                format!(
                    "the pattern `{}` has `{word}` at character {}, which is no pattern of times",
                    brief(pattern),
                    at + 1
                ),
                hint_of(letter),
            ));
        };
        format.push(piece);
        at += count;
    }
    Ok(format)
}

fn hint_of(letter: char) -> &'static str {
    match letter {
        'Y' => "a year is y: yyyy-MM-dd",
        'D' => "a day of the month is d: yyyy-MM-dd; a day of the year is D or DDD",
        _ => {
            "patterns are yyyy MM dd HH mm ss SSS MMM MMMM E EEEE a XXX and others of Java; text stands in \
             'quotes'; with % in it, it is a format of MySQL's codes"
        }
    }
}

/// Text in quotes from a place on; where it ends.
fn quoted(letters: &[char], at: usize, pattern: &str, format: &mut Format) -> Result<usize> {
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
                return Err(usage(
                    format!("the pattern `{}` has a quote that does not end", brief(pattern)),
                    "text stands between two of ', and two of them are one in it",
                ));
            }
        }
    }
}

fn piece_of(letter: char, count: usize) -> Option<Piece> {
    let number = |field: Field, most: usize| {
        let fill = if count == 1 { Fill::Nothing } else { Fill::Zeros(count) };
        (count <= most).then_some(Piece::Number(field, fill))
    };
    let name = Letters::AsTheyAre;
    match (letter, count) {
        ('y' | 'u', 2) => Some(Piece::Number(Field::YearEnd(2), Fill::Zeros(2))),
        ('y' | 'u', _) => number(Field::Year, 6),
        ('M' | 'L', 1..=2) => number(Field::Month, 2),
        ('M' | 'L', 3) => Some(Piece::MonthName { short: true, letters: name, filled: false }),
        ('M' | 'L', 4) => Some(Piece::MonthName { short: false, letters: name, filled: false }),
        ('d', _) => number(Field::Day, 2),
        // Two letters are meant with the day of the month, mostly.
        ('D', 1 | 3) => number(Field::DayOfYear, 3),
        ('Q' | 'q', _) => number(Field::Quarter, 2),
        ('H', _) => number(Field::Hour, 2),
        ('h', _) => number(Field::Hour12, 2),
        ('k', _) => number(Field::HourTo24, 2),
        ('K', _) => number(Field::HourTo11, 2),
        ('m', _) => number(Field::Minute, 2),
        ('s', _) => number(Field::Second, 2),
        ('S', 1..=9) => Some(Piece::Fraction(count as u32)),
        ('E', 1..=3) => Some(Piece::Weekday { short: true, letters: name, filled: false }),
        ('E', 4) => Some(Piece::Weekday { short: false, letters: name, filled: false }),
        ('a', 1) => Some(Piece::HalfDay { letters: Letters::Upper, dots: false }),
        ('G', 1..=3) => Some(Piece::Era { letters: Letters::Upper, dots: false }),
        ('X', 1) => Some(Piece::Ahead(Ahead::ShortOrZ)),
        ('X', 2) => Some(Piece::Ahead(Ahead::PlainOrZ)),
        ('X', 3) => Some(Piece::Ahead(Ahead::ColonOrZ)),
        ('x', 1..=2) | ('Z', 1..=3) => Some(Piece::Ahead(Ahead::Plain)),
        ('x', 3) => Some(Piece::Ahead(Ahead::Colon)),
        ('z', 1..=3) => Some(Piece::Abbreviation(name)),
        ('V', 2) => Some(Piece::ZoneName),
        _ => None,
    }
}
