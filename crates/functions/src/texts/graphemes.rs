//! Parts of texts by grapheme clusters: characters as a reader sees them, of any number of code points.
//!
//! Clusters are the extended ones of Unicode's annex 29. Positions and counts follow DuckDB: negative ones
//! count from the end, and a negative length reaches backwards.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use unicode_segmentation::UnicodeSegmentation;

use super::TEXT_SECTION;
use crate::closure_function::{ArgumentKind, CallBatch, ClosureFunction};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["length_grapheme(text)"],
            "The number of grapheme clusters of a text: `length_grapheme('S̈a')` is `2`.",
        )
        .with_arguments(&[ArgumentKind::Text], 1)
        .with_return_type(DataType::Int64)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            call.build_integers(|row| {
                Ok(texts.get(row).and_then(|text| i64::try_from(text.graphemes(true).count()).ok()))
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["left_grapheme(text, n)"],
            "The first grapheme clusters of a text; all but the last ones where `n` is below zero: \
             `left_grapheme('S̈ab', 2)` is `S̈a`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Integer], 2)
        .into_udf(|call| extract_cluster_ranges(call, |count, n, _| 0..first_cluster_count(count, n))),
        ClosureFunction::new(
            TEXT_SECTION,
            &["right_grapheme(text, n)"],
            "The last grapheme clusters of a text; all but the first ones where `n` is below zero: \
             `right_grapheme('aS̈b', 2)` is `S̈b`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Integer], 2)
        .into_udf(|call| extract_cluster_ranges(call, |count, n, _| count - first_cluster_count(count, n)..count)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["substring_grapheme(text, start)", "substring_grapheme(text, start, length)"],
            "The grapheme clusters of a text from a position on, the first being 1 and the last -1; a length below \
             zero takes those before the position: `substring_grapheme('aS̈bc', 2, 2)` is `S̈b`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Integer, ArgumentKind::Integer], 2)
        .into_udf(|call| extract_cluster_ranges(call, cluster_range)),
    ]
}

/// Returns how many of `count` clusters `left_grapheme` takes.
fn first_cluster_count(count: i64, n: i64) -> i64 {
    match n {
        0.. => n.min(count),
        _ => count.saturating_add(n).max(0),
    }
}

/// Returns the range of clusters from a position with a length.
fn cluster_range(count: i64, start: i64, length: Option<i64>) -> std::ops::Range<i64> {
    let start = match start {
        0.. => start - 1,
        _ => count.saturating_add(start),
    };
    let Some(length) = length else { return start..count };
    let end = start.saturating_add(length);
    start.min(end)..start.max(end)
}

/// Extracts from each text the clusters that `range` selects, given their count and the numbers of the row.
fn extract_cluster_ranges(
    call: &CallBatch,
    range: impl Fn(i64, i64, Option<i64>) -> std::ops::Range<i64>,
) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let (first, second) = (call.integer_operand(1)?, call.integer_operand(2)?);
    let has_second = call.argument_count() > 2;
    let mut boundaries = Vec::new();
    call.build_borrowed_texts(|row| {
        let (Some(text), Some(n)) = (texts.get(row), first.get(row)) else { return Ok(None) };
        let length = second.get(row);
        if has_second && length.is_none() {
            return Ok(None);
        }
        boundaries.clear();
        boundaries.extend(text.grapheme_indices(true).map(|(start, _)| start));
        // A text has at most as many clusters as bytes, whose count fits 63 bits.
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
    use crate::closure_function::tests::{call_in_all_forms, text_constant};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    fn bigint(number: i64) -> ScalarValue {
        ScalarValue::from(number)
    }

    #[test]
    fn grapheme_functions_match_duckdb() {
        let family = "👨\u{200d}👩\u{200d}👧";
        for (letters, expected) in
            [("", "0"), ("S̈a", "2"), ("🇩🇪🇫🇷", "2"), (family, "1"), ("नमस्ते", "3"), ("가각", "2")]
        {
            assert_eq!(
                call_in_all_forms("length_grapheme", &[text_constant(letters)]),
                expected,
                "{letters}"
            );
        }
        for (name, of, numbers, expected) in [
            ("left_grapheme", "abc", &[bigint(0)][..], ""),
            ("left_grapheme", "🦆ab", &[bigint(2)], "🦆a"),
            ("left_grapheme", "🦆ab", &[bigint(-1)], "🦆a"),
            ("left_grapheme", "abc", &[bigint(-4)], ""),
            ("left_grapheme", "abc", &[bigint(i64::MAX)], "abc"),
            ("left_grapheme", "abc", &[bigint(i64::MIN)], ""),
            ("left_grapheme", "abc", &[ScalarValue::Int64(None)], "NULL"),
            ("right_grapheme", "🦆🤦S̈", &[bigint(1)], "S̈"),
            ("right_grapheme", "🦆🤦S̈", &[bigint(-1)], "🤦S̈"),
            ("right_grapheme", "abc", &[bigint(-3)], ""),
            ("right_grapheme", "abc", &[bigint(i64::MAX)], "abc"),
            ("right_grapheme", "abc", &[bigint(i64::MIN)], ""),
            ("right_grapheme", "", &[bigint(1)], ""),
            ("substring_grapheme", "hello", &[bigint(0), bigint(2)], "h"),
            ("substring_grapheme", "hello", &[bigint(-9), bigint(3)], ""),
            ("substring_grapheme", "hello", &[bigint(-9), bigint(5)], "h"),
            ("substring_grapheme", "hello", &[bigint(-9)], "hello"),
            ("substring_grapheme", "hello", &[bigint(0)], "hello"),
            ("substring_grapheme", "hello", &[bigint(-3)], "llo"),
            ("substring_grapheme", "hello", &[bigint(4), bigint(-2)], "el"),
            ("substring_grapheme", "hello", &[bigint(-2), bigint(-2)], "el"),
            ("substring_grapheme", "hello", &[bigint(7), bigint(-4)], "llo"),
            ("substring_grapheme", "hello", &[bigint(0), bigint(-4)], ""),
            ("substring_grapheme", "hello", &[bigint(3), bigint(99)], "llo"),
            ("substring_grapheme", "hello", &[bigint(i64::MAX), bigint(i64::MIN)], "hello"),
            ("substring_grapheme", "hello", &[bigint(i64::MIN), bigint(i64::MIN)], ""),
            ("substring_grapheme", "hello", &[bigint(-i64::MAX), bigint(i64::MAX)], "hello"),
            ("substring_grapheme", "🇩🇪🇫🇷", &[bigint(2), bigint(1)], "🇫🇷"),
            ("substring_grapheme", "hello", &[bigint(2), ScalarValue::Int64(None)], "NULL"),
        ] {
            let args: Vec<_> =
                std::iter::once(text_constant(of)).chain(numbers.iter().cloned()).collect();
            assert_eq!(call_in_all_forms(name, &args), expected, "{name}{args:?}");
        }
    }

    proptest! {
        #[test]
        fn left_and_right_graphemes_join_to_the_text(of in "[ab\u{308}🇩🇪\r\n]{0,9}", at in -12_i64..12) {
            let left = call_in_all_forms("left_grapheme", &[text_constant(&of), bigint(at)]);
            let count: i64 = call_in_all_forms("length_grapheme", &[text_constant(&of)]).parse().unwrap();
            let taken = if at < 0 { (count + at).max(0) } else { at.min(count) };
            let right = call_in_all_forms("right_grapheme", &[text_constant(&of), bigint(count - taken)]);
            prop_assert_eq!(format!("{left}{right}"), of);
        }
    }
}
