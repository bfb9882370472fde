//! Distances and similarities of two texts, character by character, as `levenshtein` compares them.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::TEXT_SECTION;
use crate::closure_function::{ArgumentKind, CallBatch, ClosureFunction, TextOperand, query_error};

/// Maximum number of pairs of letters that one row compares; takes about three seconds in
/// `damerau_levenshtein`.
const LETTER_PAIRS_MAX: usize = 500_000_000;

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["damerau_levenshtein(x, y)"],
            "The smallest number of letters to insert, delete, replace or swap with their neighbour that makes one \
             text of another, of texts with up to 500 million pairs of letters: `damerau_levenshtein('there', 'three')` \
             is `1`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 2)
        .with_return_type(DataType::Int64)
        .into_udf(|call| {
            let pairs = TextPairOperand::from_arguments(call)?;
            call.build_integers(|row| {
                let Some((x, y)) = pairs.get(row) else { return Ok(None) };
                check_letter_pair_count("damerau_levenshtein", x, y)?;
                Ok(Some(damerau_levenshtein_distance(x, y)))
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["jaro_similarity(x, y)", "jaro_similarity(x, y, least)"],
            "The Jaro similarity of two texts, from 0 to 1; 0 where it is less than `least`: \
             `jaro_similarity('duck', 'duke')` is `0.8333333333333334`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text, ArgumentKind::Number], 2)
        .with_return_type(DataType::Float64)
        .into_udf(|call| calculate_similarities(call, "jaro_similarity", strsim::jaro)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["jaro_winkler_similarity(x, y)", "jaro_winkler_similarity(x, y, least)"],
            "The Jaro-Winkler similarity of two texts, from 0 to 1, which counts up to four equal letters at the \
             beginning more; 0 where it is less than `least`: `jaro_winkler_similarity('duck', 'duke')` is \
             `0.8666666666666667`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text, ArgumentKind::Number], 2)
        .with_return_type(DataType::Float64)
        .into_udf(|call| calculate_similarities(call, "jaro_winkler_similarity", strsim::jaro_winkler)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["hamming(x, y)"],
            "The number of places at which two texts of the same length have different letters: \
             `hamming('duck', 'luck')` is `1`.",
        )
        .with_aliases(&["mismatches"])
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 2)
        .with_return_type(DataType::Int64)
        .into_udf(|call| {
            let pairs = TextPairOperand::from_arguments(call)?;
            call.build_integers(|row| {
                let Some((x, y)) = pairs.get(row) else { return Ok(None) };
                let (letters, other) = (x.chars().count(), y.chars().count());
                if letters != other {
                    return Err(query_error(
                        format!(
                            "`hamming` compares texts of the same length, and these have {letters} and {other} \
                             letters"
                        ),
                        "levenshtein(x, y) compares texts of any length",
                    ));
                }
                let different = x.chars().zip(y.chars()).filter(|(x, y)| x != y).count();
                Ok(i64::try_from(different).ok())
            })
        }),
    ]
}

/// The two text arguments of a call.
struct TextPairOperand {
    left: TextOperand,
    right: TextOperand,
}

impl TextPairOperand {
    fn from_arguments(call: &CallBatch) -> PlanResult<Self> {
        Ok(TextPairOperand { left: call.text_operand(0)?, right: call.text_operand(1)? })
    }

    fn get(&self, row: usize) -> Option<(&str, &str)> {
        Some((self.left.get(row)?, self.right.get(row)?))
    }
}

fn calculate_similarities(
    call: &CallBatch,
    name: &str,
    measure: fn(&str, &str) -> f64,
) -> PlanResult<arrow::array::ArrayRef> {
    let (pairs, leasts) = (TextPairOperand::from_arguments(call)?, call.double_operand(2)?);
    let has_least = call.argument_count() > 2;
    call.build_doubles(|row| {
        let Some((x, y)) = pairs.get(row) else { return Ok(None) };
        let least = match has_least {
            true => leasts.get(row),
            false => Some(0.0),
        };
        let Some(least) = least else { return Ok(None) };
        // Empty texts have no letter in common.
        if x.is_empty() || y.is_empty() {
            return Ok(Some(0.0));
        }
        check_letter_pair_count(name, x, y)?;
        let found = measure(x, y);
        Ok(Some(if found >= least { found } else { 0.0 }))
    })
}

/// Fails for two texts with more than [`LETTER_PAIRS_MAX`] pairs of letters.
fn check_letter_pair_count(name: &str, x: &str, y: &str) -> PlanResult<()> {
    let is_allowed =
        |x: usize, y: usize| x.checked_mul(y).is_some_and(|pairs| pairs <= LETTER_PAIRS_MAX);
    if is_allowed(x.len(), y.len()) {
        return Ok(());
    }
    let (letters, other) = (x.chars().count(), y.chars().count());
    match is_allowed(letters, other) {
        true => Ok(()),
        false => Err(query_error(
            format!(
                "`{name}` compares up to {LETTER_PAIRS_MAX} pairs of letters, and these texts have {letters} times {other}"
            ),
            "left(x, 1000) compares the beginnings",
        )),
    }
}

/// Returns the unrestricted Damerau-Levenshtein distance: other letters may be inserted or deleted between
/// two letters that are swapped.
///
/// Keeps three rows of the matrix. By an observation of Zhao and Sahni (2019), one of the two gaps in a swap
/// is empty in some optimal solution. The distance before a swap is therefore in the row above the letter's
/// last occurrence, which is remembered for each column.
///
/// Cost: one step for each pair of letters, whose number `check_letter_pair_count` bounds; memory for four
/// numbers per letter of the shorter text and one per letter of the longer.
fn damerau_levenshtein_distance(x: &str, y: &str) -> i64 {
    /// Marks a missing row or column.
    const NO_MATCH: u32 = u32::MAX;
    // The distance is symmetric; rows have the length of `y`.
    let (x, y) = if x.len() < y.len() { (y, x) } else { (x, y) };
    // Letters become the numbers of their first occurrences, which index a row without a hash.
    let mut codes: HashMap<char, u32> = HashMap::new();
    let mut coded = |text: &str| -> Vec<u32> {
        let letters = text.chars();
        letters
            .map(|letter| {
                let next = codes.len() as u32;
                *codes.entry(letter).or_insert(next)
            })
            .collect()
    };
    let (x, y) = (coded(x), coded(y));
    let (rows, columns) = (x.len() as u32, y.len() as u32);
    if columns == 0 {
        return rows.into();
    }
    let infinite = rows + columns + 1;
    // Column 0 of the matrix is at index 1; index 0 holds the border before it.
    let mut above: Vec<u32> = vec![infinite; y.len() + 2];
    let mut row: Vec<u32> = std::iter::once(infinite).chain(0..=columns).collect();
    // For each column, the distance two rows and columns before its latest match.
    let mut before_match = vec![infinite; y.len()];
    // The latest row of each letter. The gap to a missing row wraps around and is never 1.
    let mut row_of_letter: Vec<u32> = vec![NO_MATCH; codes.len()];
    for (i, &letter) in (1..).zip(&x) {
        std::mem::swap(&mut above, &mut row);
        // The latest column with this row's letter.
        let mut column_of_match = NO_MATCH;
        let mut before_swap = infinite;
        let mut two_above_left = row[1];
        row[1] = i;
        let mut left = i;
        let columns = above.windows(3).zip(&mut row[2..]).zip(&mut before_match).zip(&y);
        for (j, (((above, at), before_match), &other)) in (1_u32..).zip(columns) {
            // Branch-free, because random letters would cause mispredictions.
            let is_match = letter == other;
            let gap = j.wrapping_sub(column_of_match);
            let gap_above = i.wrapping_sub(row_of_letter[other as usize]);
            let swap = match (gap == 1, gap_above == 1) {
                (true, _) => *before_match + gap_above,
                (false, true) => before_swap + gap,
                (false, false) => infinite,
            };
            let edit = (left + 1).min(above[2] + 1).min(above[1] + u32::from(!is_match));
            *before_match = if is_match { above[0] } else { *before_match };
            before_swap = if is_match { two_above_left } else { before_swap };
            column_of_match = if is_match { j } else { column_of_match };
            two_above_left = *at;
            left = edit.min(swap);
            *at = left;
        }
        row_of_letter[letter as usize] = i;
    }
    row[y.len() + 1].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{call_in_all_forms, check_text_calls, text_constant};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    #[test]
    fn distances_and_similarities_match_duckdb() {
        check_text_calls(&[
            ("damerau_levenshtein", &["out", "out"], "0"),
            ("damerau_levenshtein", &["three", "there"], "1"),
            ("damerau_levenshtein", &["ca", "abc"], "2"),
            ("damerau_levenshtein", &["tomato", "otamot"], "3"),
            ("damerau_levenshtein", &["abcdefghi", "bzacdefig"], "4"),
            ("damerau_levenshtein", &["amanaplanacanalpanama", "m23aanaplancaanaalnama"], "6"),
            ("damerau_levenshtein", &["", "great"], "5"),
            ("damerau_levenshtein", &["great", ""], "5"),
            ("damerau_levenshtein", &["", ""], "0"),
            ("damerau_levenshtein", &["äb", "bä"], "1"),
            ("jaro_similarity", &["CRATE", "TRACE"], "0.7333333333333334"),
            ("jaro_similarity", &["", ""], "0.0"),
            ("jaro_similarity", &["a", ""], "0.0"),
            ("jaro_similarity", &["äb", "äb"], "1.0"),
            ("jaro_similarity", &["ä", "a"], "0.0"),
            ("jaro_winkler_similarity", &["MARTHA", "MARHTA"], "0.9611111111111111"),
            ("jaro_winkler_similarity", &["0", "00"], "0.8500000000000001"),
            ("jaro_winkler_similarity", &["", ""], "0.0"),
            ("hamming", &["äbc", "öbd"], "2"),
            ("mismatches", &["", ""], "0"),
            (
                "hamming",
                &["abc", "ab"],
                "`hamming` compares texts of the same length, and these have 3 and 2 letters\nhint: levenshtein(x, y) compares texts of any length",
            ),
        ]);
        for (least, expected) in [
            (ScalarValue::from(0.7), "0.7333333333333334"),
            (ScalarValue::from(0.8), "0.0"),
            (ScalarValue::from(-1_i64), "0.7333333333333334"),
            (ScalarValue::from(f64::NAN), "0.0"),
            (ScalarValue::Float64(None), "NULL"),
        ] {
            let call = [text_constant("CRATE"), text_constant("TRACE"), least];
            assert_eq!(call_in_all_forms("jaro_similarity", &call), expected);
        }
    }

    #[test]
    fn letter_pair_maximum_is_enforced() {
        let (long, short) = ("ä".repeat(22_361), "a".repeat(22_361));
        for name in ["damerau_levenshtein", "jaro_similarity", "jaro_winkler_similarity"] {
            let refused = call_in_all_forms(name, &[text_constant(&long), text_constant(&short)]);
            let expected = format!(
                "`{name}` compares up to 500000000 pairs of letters, and these texts have 22361 times 22361"
            );
            assert!(refused.contains(&expected), "{refused}");
        }
        // The maximum counts letters, not bytes, and a long text may be compared with a short one.
        assert!(check_letter_pair_count("f", &"ä".repeat(22_360), &"ä".repeat(22_360)).is_ok());
        let long = "ab".repeat(50_000);
        assert_eq!(
            call_in_all_forms("damerau_levenshtein", &[text_constant(&long), text_constant("")]),
            "100000"
        );
        assert_eq!(
            call_in_all_forms("damerau_levenshtein", &[text_constant("ba"), text_constant(&long)]),
            "99998"
        );
    }

    proptest! {
        #[test]
        fn edit_distance_matches_full_matrix(x in "[abcä]{0,9}", y in "[abcä]{0,9}") {
            let expected = strsim::damerau_levenshtein(&x, &y);
            prop_assert_eq!(damerau_levenshtein_distance(&x, &y), i64::try_from(expected).unwrap());
        }
    }
}
