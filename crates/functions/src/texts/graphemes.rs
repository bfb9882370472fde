//! Parts of texts by grapheme clusters: what a reader takes for one letter, of however many code points.
//!
//! Clusters are the extended ones of Unicode's annex 29. Positions and counts are DuckDB's: those below zero
//! count from the end, and a length below zero reaches backwards.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use unicode_segmentation::UnicodeSegmentation;

use super::SECTION;
use crate::call::{Call, Function, Kind};

/// All functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["length_grapheme(text)"],
            "The number of grapheme clusters of a text: `length_grapheme('S̈a')` is `2`.",
        )
        .takes(&[Kind::Text], 1)
        .gives(DataType::Int64)
        .runs(|call| {
            let texts = call.texts(0)?;
            call.numbers(|row| {
                Ok(texts.get(row).and_then(|text| i64::try_from(text.graphemes(true).count()).ok()))
            })
        }),
        Function::new(
            SECTION,
            &["left_grapheme(text, n)"],
            "The first grapheme clusters of a text; all but the last ones where `n` is below zero: \
             `left_grapheme('S̈ab', 2)` is `S̈a`.",
        )
        .takes(&[Kind::Text, Kind::Integer], 2)
        .runs(|call| parts(call, |count, n, _| 0..first_clusters(count, n))),
        Function::new(
            SECTION,
            &["right_grapheme(text, n)"],
            "The last grapheme clusters of a text; all but the first ones where `n` is below zero: \
             `right_grapheme('aS̈b', 2)` is `S̈b`.",
        )
        .takes(&[Kind::Text, Kind::Integer], 2)
        .runs(|call| parts(call, |count, n, _| count - first_clusters(count, n)..count)),
        Function::new(
            SECTION,
            &["substring_grapheme(text, start)", "substring_grapheme(text, start, length)"],
            "The grapheme clusters of a text from a position on, the first being 1 and the last -1; a length below \
             zero takes those before the position: `substring_grapheme('aS̈bc', 2, 2)` is `S̈b`.",
        )
        .takes(&[Kind::Text, Kind::Integer, Kind::Integer], 2)
        .runs(|call| parts(call, clusters_between)),
    ]
}

/// Returns how many of `count` clusters `left_grapheme` takes.
fn first_clusters(count: i64, n: i64) -> i64 {
    match n {
        0.. => n.min(count),
        _ => count.saturating_add(n).max(0),
    }
}

/// Returns the range of clusters that begins at a position and has a length.
fn clusters_between(count: i64, start: i64, length: Option<i64>) -> std::ops::Range<i64> {
    let start = match start {
        0.. => start - 1,
        _ => count.saturating_add(start),
    };
    let Some(length) = length else { return start..count };
    let end = start.saturating_add(length);
    start.min(end)..start.max(end)
}

/// Takes the range of clusters from each text that `range` makes of their count and the numbers of the row.
fn parts(
    call: &Call,
    range: impl Fn(i64, i64, Option<i64>) -> std::ops::Range<i64>,
) -> PlanResult<ArrayRef> {
    let texts = call.texts(0)?;
    let (first, second) = (call.integers(1)?, call.integers(2)?);
    let has_second = call.count() > 2;
    let mut boundaries = Vec::new();
    call.parts(|row| {
        let (Some(text), Some(n)) = (texts.get(row), first.get(row)) else { return Ok(None) };
        let length = second.get(row);
        if has_second && length.is_none() {
            return Ok(None);
        }
        boundaries.clear();
        boundaries.extend(text.grapheme_indices(true).map(|(start, _)| start));
        // A text has fewer clusters than bytes, and those fit 63 bits.
        let count = i64::try_from(boundaries.len()).unwrap_or(i64::MAX);
        let range = range(count, n, length);
        let byte_of = |cluster: i64| {
            let cluster = usize::try_from(cluster.max(0)).unwrap_or(usize::MAX);
            boundaries.get(cluster).copied().unwrap_or(text.len())
        };
        Ok(Some(text.get(byte_of(range.start)..byte_of(range.end)).unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use crate::call::tests::{answer, text};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    fn n(number: i64) -> ScalarValue {
        ScalarValue::from(number)
    }

    #[test]
    fn clusters_are_counted_and_cut_as_in_duckdb() {
        let family = "👨\u{200d}👩\u{200d}👧";
        for (letters, expected) in
            [("", "0"), ("S̈a", "2"), ("🇩🇪🇫🇷", "2"), (family, "1"), ("नमस्ते", "3"), ("가각", "2")]
        {
            assert_eq!(answer("length_grapheme", &[text(letters)]), expected, "{letters}");
        }
        for (name, of, numbers, expected) in [
            ("left_grapheme", "abc", &[n(0)][..], ""),
            ("left_grapheme", "🦆ab", &[n(2)], "🦆a"),
            ("left_grapheme", "🦆ab", &[n(-1)], "🦆a"),
            ("left_grapheme", "abc", &[n(-4)], ""),
            ("left_grapheme", "abc", &[n(i64::MAX)], "abc"),
            ("left_grapheme", "abc", &[n(i64::MIN)], ""),
            ("left_grapheme", "abc", &[ScalarValue::Int64(None)], "NULL"),
            ("right_grapheme", "🦆🤦S̈", &[n(1)], "S̈"),
            ("right_grapheme", "🦆🤦S̈", &[n(-1)], "🤦S̈"),
            ("right_grapheme", "abc", &[n(-3)], ""),
            ("right_grapheme", "abc", &[n(i64::MAX)], "abc"),
            ("right_grapheme", "abc", &[n(i64::MIN)], ""),
            ("right_grapheme", "", &[n(1)], ""),
            ("substring_grapheme", "hello", &[n(0), n(2)], "h"),
            ("substring_grapheme", "hello", &[n(-9), n(3)], ""),
            ("substring_grapheme", "hello", &[n(-9), n(5)], "h"),
            ("substring_grapheme", "hello", &[n(-9)], "hello"),
            ("substring_grapheme", "hello", &[n(0)], "hello"),
            ("substring_grapheme", "hello", &[n(-3)], "llo"),
            ("substring_grapheme", "hello", &[n(4), n(-2)], "el"),
            ("substring_grapheme", "hello", &[n(-2), n(-2)], "el"),
            ("substring_grapheme", "hello", &[n(7), n(-4)], "llo"),
            ("substring_grapheme", "hello", &[n(0), n(-4)], ""),
            ("substring_grapheme", "hello", &[n(3), n(99)], "llo"),
            ("substring_grapheme", "hello", &[n(i64::MAX), n(i64::MIN)], "hello"),
            ("substring_grapheme", "hello", &[n(i64::MIN), n(i64::MIN)], ""),
            ("substring_grapheme", "hello", &[n(-i64::MAX), n(i64::MAX)], "hello"),
            ("substring_grapheme", "🇩🇪🇫🇷", &[n(2), n(1)], "🇫🇷"),
            ("substring_grapheme", "hello", &[n(2), ScalarValue::Int64(None)], "NULL"),
        ] {
            let args: Vec<_> = std::iter::once(text(of)).chain(numbers.iter().cloned()).collect();
            assert_eq!(answer(name, &args), expected, "{name}{args:?}");
        }
    }

    proptest! {
        #[test]
        fn left_and_right_parts_join_to_the_text(of in "[ab\u{308}🇩🇪\r\n]{0,9}", at in -12_i64..12) {
            let left = answer("left_grapheme", &[text(&of), n(at)]);
            let count: i64 = answer("length_grapheme", &[text(&of)]).parse().unwrap();
            let taken = if at < 0 { (count + at).max(0) } else { at.min(count) };
            let right = answer("right_grapheme", &[text(&of), n(count - taken)]);
            prop_assert_eq!(format!("{left}{right}"), of);
        }
    }
}
