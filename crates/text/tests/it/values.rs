//! Types, spellings of their values, and spellings that Arrow reads differently.

use arrow_schema::{DataType as T, TimeUnit};
use proptest::prelude::*;
use proptest::sample::select;

/// A text that is a value of no type but text.
pub(crate) const REFUSED: &str = "x";

/// Types of single values.
pub(crate) fn scalars() -> BoxedStrategy<T> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let unit = select(vec![Second, Millisecond, Microsecond, Nanosecond]);
    let zone = select(vec![None, Some("UTC"), Some("+02:00"), Some("America/New_York")]);
    prop_oneof![
        4 => select(vec![
            T::Int8, T::Int16, T::Int32, T::Int64, T::UInt8, T::UInt16, T::UInt32, T::UInt64
        ]),
        2 => select(vec![T::Float32, T::Float64]),
        1 => Just(T::Boolean),
        1 => select(vec![T::Date32, T::Date64]),
        1 => select(vec![
            T::Time32(Second), T::Time32(Millisecond), T::Time64(Microsecond), T::Time64(Nanosecond)
        ]),
        2 => (unit, zone).prop_map(|(unit, zone)| T::Timestamp(unit, zone.map(Into::into))),
        1 => (1u8..=38).prop_flat_map(|p| (0..=p).prop_map(move |s| T::Decimal128(p, s as i8))),
        1 => (1u8..=76).prop_flat_map(|p| (0..=p).prop_map(move |s| T::Decimal256(p, s as i8))),
        3 => select(vec![T::Utf8, T::Utf8View]),
    ]
    .boxed()
}

/// Returns texts in place of values of a type: mostly values of it, some of which no type can hold.
pub(crate) fn texts(data_type: &T) -> BoxedStrategy<String> {
    let good = match data_type {
        T::Boolean => select(vec!["true", "false", "TRUE", "False", "1", "yes"])
            .prop_map(str::to_owned)
            .boxed(),
        T::Float32 | T::Float64 => floats(),
        T::Decimal128(_, scale) | T::Decimal256(_, scale) => decimals(*scale as usize),
        T::Date32 | T::Date64 => dates(),
        T::Time32(_) | T::Time64(_) => clocks(),
        T::Timestamp(unit, _) => timestamps(*unit),
        T::Utf8 | T::Utf8View | T::Dictionary(..) => words(),
        _ => integers(),
    };
    prop_oneof![20 => good.clone(), 1 => misspelt(good), 1 => words()]
        .prop_filter("a leap second in whole seconds", {
            // Arrow reads 23:59:60 in seconds as 23:59:59, in all other units as the next second.
            let seconds = matches!(data_type, T::Timestamp(TimeUnit::Second, _));
            move |text| !seconds || text.get(17..19) != Some("60")
        })
        .boxed()
}

fn integers() -> BoxedStrategy<String> {
    let edges = (select(vec![7u32, 8, 15, 16, 31, 32, 63, 64]), -2i128..=2, any::<bool>());
    prop_oneof![
        6 => (-200i32..300).prop_map(|n| n.to_string()),
        2 => any::<i64>().prop_map(|n| n.to_string()),
        1 => any::<u64>().prop_map(|n| n.to_string()),
        3 => edges.prop_map(|(bits, off, minus)| {
            let edge = (1i128 << bits) + off;
            (if minus { -edge } else { edge }).to_string()
        }),
        1 => "[-+]?0{0,3}[0-9]{1,20}",
        1 => "-?[0-9]{1,3}(\\.0|\\.5|e3|E-1|\\.)",
        1 => " {0,2}[0-9]{1,12} {0,2}",
        1 => select(vec!["", "-", "-0", "1_000", "0x1f", "٣"]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn floats() -> BoxedStrategy<String> {
    // Half way between two doubles, or very close to it.
    let half_way = (any::<u64>(), 1u32..70, -1i8..=1).prop_map(|(bits, shift, off)| {
        let odd = u128::from(bits >> 11 | 1 << 52) << 1 | 1;
        let whole = (odd << shift) >> 1;
        whole.wrapping_add_signed(i128::from(off)).to_string()
    });
    prop_oneof![
        4 => (-1e6..1e6f64).prop_map(|x| x.to_string()),
        3 => any::<u64>().prop_map(|bits| f64::from_bits(bits).to_string()),
        3 => any::<u64>().prop_map(|bits| format!("{:e}", f64::from_bits(bits))),
        2 => any::<u32>().prop_map(|bits| format!("{:e}", f32::from_bits(bits))),
        3 => half_way,
        4 => "-?[0-9]{1,5}(\\.[0-9]{0,4})?",
        3 => "[-+]?[0-9]{1,25}(\\.[0-9]{0,25})?([eE][-+]?[0-9]{1,3})?",
        1 => " {0,2}-?\\.?[0-9]{1,3} {0,2}",
        1 => select(vec![
            "", "NaN", "nan", "inf", "-Infinity", "+inf", ".", "1e", "-0", "-0.0", "1e400",
            "-1e400", "1e-400", "5e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
            "1.7976931348623157e308", "1.7976931348623159e308", "3.4028235677973366e38",
            "0.000000000000000000000000000000000000000000001", "9007199254740993",
            "123456789012345678901234567890123456789012345678901234567890",
        ]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn decimals(scale: usize) -> BoxedStrategy<String> {
    let kept = ("-?[0-9]{1,12}", "[0-9]{0,76}").prop_map(move |(whole, fraction)| {
        format!("{whole}.{}", &fraction[..fraction.len().min(scale)])
    });
    prop_oneof![
        4 => kept,
        2 => "[-+]?[0-9]{0,5}(\\.[0-9]{0,6})?",
        1 => "-?[0-9]{30,80}(\\.[0-9]{0,80})?",
        2 => "-?[0-9]{1,4}(\\.[0-9]{0,4})?[eE][-+]?[0-9]{1,2}",
        1 => "-?[0-9]{1,4}\\.[0-9]{0,2}0{0,80}",
        1 => " ?[0-9]{1,4} ?",
        1 => select(vec!["", "-", ".", "+.", "e5", "1e", "1.2.3", "--1"]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn dates() -> BoxedStrategy<String> {
    let any_day = (0u32..10_000, 0u32..14, 0u32..33);
    let day = (1970u32..2040, 1u32..13, 1u32..29);
    prop_oneof![
        6 => day.prop_map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}")),
        3 => any_day.clone().prop_map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}")),
        1 => any_day.prop_map(|(y, m, d)| format!("{y}-{m}-{d}")),
        1 => "[12][0-9]{3}(0[1-9]|1[0-2])[0-2][0-9]",
        1 => "[-+][0-9]{4,6}-(0[1-9]|1[0-2])-[0-2][0-9]",
        1 => select(vec!["2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29"])
            .prop_map(str::to_owned),
    ]
    .boxed()
}

fn clocks() -> BoxedStrategy<String> {
    prop_oneof![
        6 => "[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?",
        1 => "[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,12})?",
        1 => "[0-9]{1,2}:[0-5][0-9]( AM| pm)?",
        1 => "[0-9]{1,6}",
        1 => Just("23:59:60".to_owned()),
    ]
    .boxed()
}

fn timestamps(unit: TimeUnit) -> BoxedStrategy<String> {
    let clock = prop_oneof![
        8 => "[01][0-9]:[0-5][0-9]:[0-5][0-9]",
        1 => "[0-2][0-9]:[0-6][0-9]:[0-6][0-9]",
        1 => "[01][0-9]:[0-5][0-9]",
        1 => "[01][0-9][0-5][0-9][0-5][0-9]",
        // Local times around New York's clock changes.
        1 => "0[0-3]:[0-5][0-9]:00",
    ];
    let digits = match unit {
        TimeUnit::Second => "(\\.0{1,3})?",
        TimeUnit::Millisecond => "(\\.[0-9]{1,3})?",
        TimeUnit::Microsecond => "(\\.[0-9]{1,6})?",
        TimeUnit::Nanosecond => "(\\.[0-9]{1,9})?",
    };
    let fraction = prop_oneof![8 => digits, 1 => "(\\.[0-9]{0,14})?", 1 => "\\.[0-9]0{0,14}"];
    let zone = prop_oneof![
        4 => Just(String::new()),
        2 => select(vec!["Z", "z", "+00:00", " Z"]).prop_map(str::to_owned),
        2 => " ?[-+]([01][0-9]|2[0-4])(:?[0-6][0-9])?",
        1 => select(vec![" UTC", " Europe/Berlin", "+1"]).prop_map(str::to_owned),
    ];
    let day = prop_oneof![
        6 => dates(),
        1 => select(vec!["2013-03-10", "2013-11-03", "1677-09-21", "2262-04-11"])
            .prop_map(str::to_owned),
    ];
    let written = (day, select(vec!["T", " ", "t", "_"]), clock, fraction, zone).prop_map(
        |(day, between, clock, fraction, zone)| format!("{day}{between}{clock}{fraction}{zone}"),
    );
    prop_oneof![
        12 => written,
        2 => dates(),
        1 => select(vec![
            "1677-09-21T00:12:43.145224192", "1677-09-21T00:12:43.145224191",
            "1677-09-21T00:12:44", "2262-04-11T23:47:16.854775807", "2262-04-11T23:47:16.854775808",
        ]).prop_map(str::to_owned),
        1 => "[0-9]{1,13}",
    ]
    .boxed()
}

/// Returns text with the special characters of CSV and JSON.
pub(crate) fn words() -> BoxedStrategy<String> {
    prop_oneof![
        4 => "[a-z]{0,6}",
        2 => "[a-zA-Z ]{10,40}",
        2 => "[a-zé𝄞\",;|\t\r\n\\\\#/{}\\[\\]: ]{0,14}",
        1 => "\\PC{0,60}",
        1 => "-?[0-9]{1,20}",
        1 => select(vec!["null", "NA", "true", "\u{0}", "\u{1f}\u{8}"]).prop_map(str::to_owned),
    ]
    .boxed()
}

/// Changes one character of a text.
fn misspelt(good: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let character = select("0159+-.:eETZx ,\"".chars().collect::<Vec<_>>());
    (good, any::<prop::sample::Index>(), character)
        .prop_map(|(text, place, character)| {
            let mut all: Vec<char> = text.chars().collect();
            if !all.is_empty() {
                let place = place.index(all.len());
                all[place] = character;
            }
            all.into_iter().collect()
        })
        .boxed()
}

/// Returns a text that Arrow reads as we read `text`; one rule per line.
pub(crate) fn for_arrow(text: &str, data_type: &T) -> String {
    let refused = || REFUSED.to_owned();
    match data_type {
        // A date is YYYY-MM-DD: no time after it, no sign, and all digits.
        T::Date32 | T::Date64 if !is_like(text, "0000-00-00") => refused(),
        // A bare number of units is no time of day.
        T::Time32(_) | T::Time64(_) if !text.contains(':') => refused(),
        // A time of day has no digits beyond its unit.
        T::Time32(unit) | T::Time64(unit) if digits_lost(text, *unit) => refused(),
        // The leap second belongs to the next day and is no time of day.
        T::Time32(_) | T::Time64(_) if text.get(6..8) == Some("60") => refused(),
        T::Timestamp(unit, zone) => {
            let is_clock = |byte: char| matches!(byte, '0'..='9' | ':' | '.');
            let place = text.get(11..).and_then(|rest| rest.find(|byte| !is_clock(byte)));
            let (clock, offset) = text.split_at(place.map_or(text.len(), |place| place + 11));
            // A lone space is no offset.
            let offset = offset.strip_prefix(' ').filter(|o| !o.is_empty()).unwrap_or(offset);
            let moves = offset.contains(|digit| matches!(digit, '1'..='9'));
            match () {
                // An offset is hours and minutes, not a name.
                () if !is_offset(offset) => refused(),
                // A column without a zone accepts only the offset zero.
                () if zone.is_none() && moves => refused(),
                // No digit may be lost.
                () if digits_lost(clock, *unit) => refused(),
                // Second 60 is the last one of a UTC day.
                () if text.get(17..19) == Some("60") && !is_leap_second(text, offset) => refused(),
                // A clock has colons.
                () if is_like(clock, "0000-00-00_000000") => refused(),
                // A clock may lack its seconds.
                () if is_like(clock, "0000-00-00_00:00") => format!("{clock}:00{offset}"),
                // A space may precede `Z`, too.
                () => format!("{clock}{offset}"),
            }
        }
        // White space around a decimal means nothing, and 1e3 is 1000: Arrow gets both wrong.
        T::Decimal128(_, scale) | T::Decimal256(_, scale) => {
            plain_decimal(text.trim_ascii(), *scale as usize).unwrap_or_else(refused)
        }
        _ => text.to_owned(),
    }
}

/// Returns whether a text has digits where the pattern has `0`, a sign for `+`, anything for `_`.
fn is_like(text: &str, pattern: &str) -> bool {
    text.chars().count() == pattern.chars().count()
        && text.chars().zip(pattern.chars()).all(|(found, like)| match like {
            '0' => found.is_ascii_digit(),
            '+' => matches!(found, '+' | '-'),
            '_' => matches!(found, ' ' | 'T' | 't'),
            other => found == other,
        })
}

/// Returns whether a text is `Z`, hours, or hours and minutes, or empty.
fn is_offset(text: &str) -> bool {
    let is_number = ["+00", "+0000", "+00:00"].iter().any(|like| is_like(text, like));
    text.is_empty()
        || text.eq_ignore_ascii_case("z")
        || is_number && text[1..3] < *"24" && (text.len() == 3 || text[text.len() - 2..] < *"60")
}

/// Returns whether the minute of a text is the last of a UTC day.
fn is_leap_second(text: &str, offset: &str) -> bool {
    let number = |text: Option<&str>| text.and_then(|digits| digits.parse::<i32>().ok());
    let (Some(hour), Some(minute)) = (number(text.get(11..13)), number(text.get(14..16))) else {
        return false;
    };
    let hours = number(offset.get(1..3)).unwrap_or(0);
    let minutes = number(offset.get(offset.len().saturating_sub(2)..).filter(|_| offset.len() > 3));
    let ahead = hours * 60 + minutes.unwrap_or(0);
    let ahead = if offset.starts_with('-') { -ahead } else { ahead };
    (hour * 60 + minute + 1 - ahead).rem_euclid(24 * 60) == 0
}

/// Returns whether a fraction of a second has nonzero digits beyond the unit's.
fn digits_lost(text: &str, unit: TimeUnit) -> bool {
    let kept = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    let Some((_, fraction)) = text.split_once('.') else { return false };
    fraction
        .chars()
        .take_while(char::is_ascii_digit)
        .enumerate()
        .any(|(place, digit)| place >= kept && digit != '0')
}

/// Returns a decimal without an exponent and without digits beyond its scale; `None` if it has nonzero ones,
/// or is no number.
fn plain_decimal(text: &str, scale: usize) -> Option<String> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent),
        None => (text, "0"),
    };
    let bare = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let sign = &mantissa[..mantissa.len() - unsigned.len()];
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(&digits) || !is_digits(bare) {
        return None;
    }
    if digits.bytes().all(|digit| digit == b'0') {
        return Some("0".to_owned());
    }
    let exponent = exponent.parse::<i32>().ok().filter(|exponent| exponent.abs() < 1000)?;
    let point = whole.len() as i32 + exponent;
    let (digits, point) = if point < 0 {
        (format!("{}{digits}", "0".repeat(point.unsigned_abs() as usize)), 0)
    } else {
        let missing = (point as usize).saturating_sub(digits.len());
        (format!("{digits}{}", "0".repeat(missing)), point as usize)
    };
    let (whole, fraction) = digits.split_at(point);
    let (kept, lost) = fraction.split_at(fraction.len().min(scale));
    // Arrow counts digits in eight bits.
    let fits = whole.trim_start_matches('0').len() <= 76;
    let exact = lost.bytes().all(|digit| digit == b'0');
    (fits && exact).then(|| format!("{sign}0{whole}.{kept}"))
}
