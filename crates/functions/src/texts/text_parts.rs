//! Splits of a text, and parts by their number: `string_split`, `elt`, `text_slice`, `field`.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use memchr::memmem::Finder;

use super::TEXT_SECTION;
use crate::closure_function::{ArgumentKind, CallBatch, ClosureFunction, list_type};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["string_split(text, separator)"],
            "The parts of a text between separators, as a list; an empty separator makes a list of the letters, and a \
             null one a list of the text.",
        )
        .with_aliases(&["str_split", "split"])
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 2)
        .with_null_trailing_arguments()
        .with_return_type(list_type(DataType::Utf8View))
        .into_udf(split_by_separator),
        ClosureFunction::new(
            TEXT_SECTION,
            &["elt(n, text1, text2, …)"],
            "The text of a number among several, the first being 1; null where there is none.",
        )
        .with_arguments(&[ArgumentKind::Integer, ArgumentKind::Text], 2)
        .with_variadic_argument(ArgumentKind::Text)
        .with_null_arguments()
        .into_udf(|call| {
            let numbers = call.integer_operand(0)?;
            let texts = (1..call.argument_count()).map(|index| call.text_operand(index));
            let texts: Vec<_> = texts.collect::<PlanResult<_>>()?;
            call.build_borrowed_texts(|row| {
                let index = numbers.get(row).and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
                Ok(index.and_then(|index| texts.get(index)?.get(row)))
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["text_slice(text, first, last)"],
            "The letters of a text from the first to the last of two numbers, of which those below zero count from its end: `text_slice('hello', 2, -2)` is `ell`; `x[2:-2]` is the same, and `x[1]` the first letter.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Integer, ArgumentKind::Integer], 3)
        .into_udf(|call| {
            let (texts, firsts, lasts) = (call.text_operand(0)?, call.integer_operand(1)?, call.integer_operand(2)?);
            call.build_borrowed_texts(|row| {
                let (Some(text), Some(first), Some(last)) =
                    (texts.get(row), firsts.get(row), lasts.get(row))
                else {
                    return Ok(None);
                };
                Ok(Some(slice_chars(text, first, last)))
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["field(text, text1, text2, …)"],
            "The number of a text among several, the first being 1; 0 where it is none of them.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 2)
        .with_variadic_argument(ArgumentKind::Text)
        .with_null_arguments()
        .with_return_type(DataType::Int64)
        .into_udf(|call| {
            let texts = (0..call.argument_count()).map(|index| call.text_operand(index));
            let texts: Vec<_> = texts.collect::<PlanResult<_>>()?;
            call.build_integers(|row| {
                let [text, among @ ..] = texts.as_slice() else { return Ok(None) };
                let text = text.get(row);
                let found = among.iter().position(|of| text.is_some() && of.get(row) == text);
                Ok(found.map_or(Some(0), |index| i64::try_from(index + 1).ok()))
            })
        }),
    ]
}

/// Returns the characters from one position to another, inclusive; positions count from 1, or from -1 at the
/// end.
fn slice_chars(text: &str, first: i64, last: i64) -> &str {
    // The offset at which a character begins, or the end of the text.
    let begins = |place: u64| {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        text.char_indices().nth(place).map_or(text.len(), |(at, _)| at)
    };
    let ends = |place: u64| {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        text.char_indices().rev().nth(place).map_or(0, |(at, _)| at)
    };
    let from = match first {
        0 => 0,
        1.. => begins(first.unsigned_abs() - 1),
        _ => ends(first.unsigned_abs() - 1),
    };
    let to = match last {
        0.. => begins(last.unsigned_abs()),
        -1 => text.len(),
        _ => ends(last.unsigned_abs() - 2),
    };
    text.get(from..to).unwrap_or_default()
}

fn split_by_separator(call: &CallBatch) -> PlanResult<ArrayRef> {
    let (texts, separators) = (call.text_operand(0)?, call.text_operand(1)?);
    let constant = separators.constant().map(|separator| Finder::new(separator.as_bytes()));
    call.build_text_lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let Some(separator) = separators.get(row) else {
            items.append_item(Some(text))?;
            return Ok(true);
        };
        if text.is_empty() {
            items.append_item(Some(text))?;
            return Ok(true);
        }
        if separator.is_empty() {
            for (start, letter) in text.char_indices() {
                items.append_item(text.get(start..start + letter.len_utf8()))?;
            }
            return Ok(true);
        }
        let own;
        let finder = match &constant {
            Some(finder) => finder,
            None => {
                own = Finder::new(separator.as_bytes());
                &own
            }
        };
        let mut start = 0;
        for found in finder.find_iter(text.as_bytes()) {
            items.append_item(text.get(start..found))?;
            start = found + separator.len();
        }
        items.append_item(text.get(start..))?;
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use crate::closure_function::tests::{call_in_all_forms, check_text_calls, text_constant};
    use datafusion_common::ScalarValue;

    #[test]
    fn split_slice_and_choice_match_expected_values() {
        check_text_calls(&[
            ("string_split", &["a,b,,c", ","], "[a, b, '', c]"),
            ("str_split", &["a::b", "::"], "[a, b]"),
            ("split", &["a.b", "."], "[a, b]"),
            ("string_split", &["aaa", "aa"], "['', a]"),
            ("string_split", &["äöü", ""], "[ä, ö, ü]"),
            ("string_split", &["äöü", "ö"], "[ä, ü]"),
            ("string_split", &["", ","], "['']"),
            ("string_split", &["", ""], "['']"),
            ("field", &["b", "a", "b", "b"], "2"),
            ("field", &["x", "a", "b"], "0"),
        ]);
        assert_eq!(
            call_in_all_forms("string_split", &[text_constant("a b"), ScalarValue::Utf8(None)]),
            "[a b]"
        );
        assert_eq!(
            call_in_all_forms("string_split", &[ScalarValue::Utf8(None), text_constant(",")]),
            "NULL"
        );
        for (first, last, expected) in [
            (1, 1, "h"),
            (2, 3, "él"),
            (-2, -1, "lo"),
            (2, -2, "éll"),
            (0, 2, "hé"),
            (4, 99, "lo"),
            (-99, 2, "hé"),
            (3, 2, ""),
            (9, 9, ""),
            (1, -9, ""),
            (i64::MIN, i64::MAX, "héllo"),
        ] {
            let args = [text_constant("héllo"), ScalarValue::from(first), ScalarValue::from(last)];
            assert_eq!(call_in_all_forms("text_slice", &args), expected, "{first} {last}");
        }
        let elt = |n: i64| {
            call_in_all_forms(
                "elt",
                &[ScalarValue::from(n), text_constant("a"), text_constant("b")],
            )
        };
        assert_eq!([elt(0), elt(1), elt(2), elt(3), elt(-1)], ["NULL", "a", "b", "NULL", "NULL"]);
        assert_eq!(call_in_all_forms("field", &[ScalarValue::Utf8(None), text_constant("a")]), "0");
    }
}
