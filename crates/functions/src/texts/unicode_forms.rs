//! Canonical forms of Unicode: text without marks, and text in its composed form.

use std::borrow::Cow;
use std::sync::LazyLock;

use arrow::array::ArrayRef;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use regex::Regex;

use super::TEXT_SECTION;
use crate::closure_function::{ArgumentKind, CallBatch, ClosureFunction};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["strip_accents(text)"],
            "A text without the marks on its letters: `strip_accents('mühleisen')` is `muhleisen`.",
        )
        .with_arguments(&[ArgumentKind::Text], 1)
        .into_udf(|call| rewrite_non_ascii(call, strip_marks)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["nfc_normalize(text)"],
            "A text in Unicode's composed form (NFC), in which a letter and its mark are one code point where there is \
             one.",
        )
        .with_aliases(&["normalizeutf8nfc"])
        .with_arguments(&[ArgumentKind::Text], 1)
        .into_udf(|call| rewrite_non_ascii(call, compose)),
    ]
}

fn rewrite_non_ascii(call: &CallBatch, rewrite: fn(&str) -> Cow<'_, str>) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    call.build_texts(|row, made| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        match text.is_ascii() {
            true => made.push_str(text),
            false => made.push_str(&rewrite(text)),
        }
        Ok(true)
    })
}

fn compose(text: &str) -> Cow<'_, str> {
    ComposingNormalizerBorrowed::new_nfc().normalize(text)
}

/// Decomposes a text, drops its marks and composes the rest.
fn strip_marks(text: &str) -> Cow<'_, str> {
    /// Code points of the categories Mn, Mc and Me.
    static MARKS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{M}+").ok());
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    let bare = match MARKS.as_ref() {
        Some(marks) => marks.replace_all(&decomposed, "").into_owned(),
        None => decomposed.into_owned(),
    };
    Cow::Owned(compose(&bare).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::check_text_calls;
    use proptest::prelude::*;

    #[test]
    fn strip_accents_matches_duckdb() {
        check_text_calls(&[
            ("strip_accents", &[""], ""),
            ("strip_accents", &["hello"], "hello"),
            ("strip_accents", &["hannes mühleisen"], "hannes muhleisen"),
            ("strip_accents", &["ÄÖÜß"], "AOUß"),
            ("strip_accents", &["øłŁđﬁ½Ω"], "øłŁđﬁ½Ω"),
            ("strip_accents", &["가각"], "가각"),
            ("strip_accents", &["नमस्ते"], "नमसत"),
            ("strip_accents", &["ё й ǖ Ệ ΐ İ が"], "е и u E ι I か"),
            ("strip_accents", &["S\u{308}a\u{fe0d}"], "Sa"),
            ("nfc_normalize", &["u\u{308}x"], "üx"),
            ("nfc_normalize", &["\u{212b}"], "Å"),
            ("nfc_normalize", &["가"], "가"),
            ("normalizeutf8nfc", &["abc"], "abc"),
        ]);
    }

    proptest! {
        #[test]
        fn stripped_texts_have_no_marks_left(text in "([a-zäöüßéñ가각が]|\\p{M}|\\PC){0,12}") {
            let bare = strip_marks(&text).into_owned();
            let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(&bare).into_owned();
            let mark = Regex::new(r"\p{M}").unwrap();
            prop_assert!(!mark.is_match(&decomposed), "{bare:?}");
            // Other characters stay.
            let letters = |text: &str| text.chars().filter(char::is_ascii_alphabetic).collect::<String>();
            let all = DecomposingNormalizerBorrowed::new_nfd().normalize(&text).into_owned();
            prop_assert_eq!(letters(&decomposed), letters(&all));
        }
    }
}
