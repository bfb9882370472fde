//! Distances and similarities of two texts, letter by letter, as `levenshtein` compares them.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::SECTION;
use crate::call::{Call, Function, Kind, Texts, failed};

/// Maximum number of pairs of letters that one row compares.
const PAIRS_MAX: usize = 10_000_000_000;

/// All functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["damerau_levenshtein(x, y)"],
            "The smallest number of letters to insert, delete, replace or swap with their neighbour that makes one \
             text of another: `damerau_levenshtein('there', 'three')` is `1`.",
        )
        .takes(&[Kind::Text, Kind::Text], 2)
        .gives(DataType::Int64)
        .runs(|call| {
            let pairs = Pairs::of(call)?;
            call.numbers(|row| {
                let Some((x, y)) = pairs.get(row) else { return Ok(None) };
                check_pairs("damerau_levenshtein", x, y)?;
                Ok(i64::try_from(edit_distance(x, y)).ok())
            })
        }),
        Function::new(
            SECTION,
            &["jaro_similarity(x, y)", "jaro_similarity(x, y, least)"],
            "The Jaro similarity of two texts, from 0 to 1; 0 where it is less than `least`: \
             `jaro_similarity('duck', 'duke')` is `0.8333333333333334`.",
        )
        .takes(&[Kind::Text, Kind::Text, Kind::Number], 2)
        .gives(DataType::Float64)
        .runs(|call| similarities(call, "jaro_similarity", strsim::jaro)),
        Function::new(
            SECTION,
            &["jaro_winkler_similarity(x, y)", "jaro_winkler_similarity(x, y, least)"],
            "The Jaro-Winkler similarity of two texts, from 0 to 1, which counts up to four equal letters at the \
             beginning more; 0 where it is less than `least`: `jaro_winkler_similarity('duck', 'duke')` is \
             `0.8666666666666667`.",
        )
        .takes(&[Kind::Text, Kind::Text, Kind::Number], 2)
        .gives(DataType::Float64)
        .runs(|call| similarities(call, "jaro_winkler_similarity", strsim::jaro_winkler)),
        Function::new(
            SECTION,
            &["hamming(x, y)"],
            "The number of places at which two texts of the same length have different letters: \
             `hamming('duck', 'luck')` is `1`.",
        )
        .also(&["mismatches"])
        .takes(&[Kind::Text, Kind::Text], 2)
        .gives(DataType::Int64)
        .runs(|call| {
            let pairs = Pairs::of(call)?;
            call.numbers(|row| {
                let Some((x, y)) = pairs.get(row) else { return Ok(None) };
                let (letters, other) = (x.chars().count(), y.chars().count());
                if letters != other {
                    return Err(failed(
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

/// The two texts of each row.
struct Pairs {
    left: Texts,
    right: Texts,
}

impl Pairs {
    fn of(call: &Call) -> PlanResult<Self> {
        Ok(Pairs { left: call.texts(0)?, right: call.texts(1)? })
    }

    fn get(&self, row: usize) -> Option<(&str, &str)> {
        Some((self.left.get(row)?, self.right.get(row)?))
    }
}

fn similarities(
    call: &Call,
    name: &str,
    measure: fn(&str, &str) -> f64,
) -> PlanResult<arrow::array::ArrayRef> {
    let (pairs, leasts) = (Pairs::of(call)?, call.doubles(2)?);
    let has_least = call.count() > 2;
    call.measures(|row| {
        let Some((x, y)) = pairs.get(row) else { return Ok(None) };
        let least = match has_least {
            true => leasts.get(row),
            false => Some(0.0),
        };
        let Some(least) = least else { return Ok(None) };
        // Two empty texts have no letter in common.
        if x.is_empty() || y.is_empty() {
            return Ok(Some(0.0));
        }
        check_pairs(name, x, y)?;
        let found = measure(x, y);
        Ok(Some(if found >= least { found } else { 0.0 }))
    })
}

/// Refuses two texts whose comparison takes minutes.
fn check_pairs(name: &str, x: &str, y: &str) -> PlanResult<()> {
    match x.len().checked_mul(y.len()) {
        Some(pairs) if pairs <= PAIRS_MAX => Ok(()),
        _ => Err(failed(
            format!(
                "`{name}` compares two texts of {} and {} bytes, which takes too long",
                x.len(),
                y.len()
            ),
            "left(x, 1000) compares the beginnings",
        )),
    }
}

/// Distance of Damerau and Levenshtein without restrictions: a swap may stand around letters that are inserted or
/// deleted.
///
/// Keeps three rows of the matrix, by the observation of Zhao and Sahni (2019) that one of the two gaps in a swap
/// is empty in some optimal solution: the distance before a swap is in the row above the letter's last occurrence,
/// which is remembered for each column.
fn edit_distance(x: &str, y: &str) -> usize {
    let (x, y): (Vec<char>, Vec<char>) = (x.chars().collect(), y.chars().collect());
    let infinite = x.len() + y.len() + 1;
    // Column 0 of the matrix is at 1: at 0 stands the border before it.
    let mut above: Vec<usize> = vec![infinite; y.len() + 2];
    let mut row: Vec<usize> = std::iter::once(infinite).chain(0..=y.len()).collect();
    // For a column, the distance two rows and columns before its latest match.
    let mut before_match = vec![infinite; y.len() + 2];
    let mut row_of_letter: HashMap<char, usize> = HashMap::new();
    for (i, letter) in (1..).zip(&x) {
        std::mem::swap(&mut above, &mut row);
        let mut column_of_match = None;
        let mut before_swap = infinite;
        let mut two_above_left = row[1];
        row[1] = i;
        for (j, other) in (1..).zip(&y) {
            let at = j + 1;
            let mut least = above[at - 1] + usize::from(letter != other);
            least = least.min(row[at - 1] + 1).min(above[at] + 1);
            if letter == other {
                column_of_match = Some(j);
                before_match[at] = above[at - 2];
                before_swap = two_above_left;
            } else {
                let row_of_match = row_of_letter.get(other).copied();
                match (column_of_match, row_of_match) {
                    (Some(column), Some(above_it)) if j - column == 1 => {
                        least = least.min(before_match[at] + (i - above_it));
                    }
                    (Some(column), Some(above_it)) if i - above_it == 1 => {
                        least = least.min(before_swap + (j - column));
                    }
                    _ => {}
                }
            }
            two_above_left = row[at];
            row[at] = least;
        }
        row_of_letter.insert(*letter, i);
    }
    row[y.len() + 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::{answer, check, text};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    #[test]
    fn distances_and_similarities_are_those_of_duckdb() {
        check(&[
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
            let call = [text("CRATE"), text("TRACE"), least];
            assert_eq!(answer("jaro_similarity", &call), expected);
        }
        let long = "a".repeat(200_000);
        let refused = answer("damerau_levenshtein", &[text(&long), text(&long)]);
        assert!(refused.contains("two texts of 200000 and 200000 bytes"), "{refused}");
    }

    proptest! {
        #[test]
        fn edit_distance_is_that_of_the_whole_matrix(x in "[abcä]{0,9}", y in "[abcä]{0,9}") {
            prop_assert_eq!(edit_distance(&x, &y), strsim::damerau_levenshtein(&x, &y));
        }
    }
}
