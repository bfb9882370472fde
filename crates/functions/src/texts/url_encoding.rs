//! Percent-encoding of text in URLs: `url_encode`, `url_decode`.

use datafusion_expr::ScalarUDF;

use super::TEXT_SECTION;
use crate::closure_function::{ArgumentKind, ClosureFunction};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["url_encode(text)"],
            "A text as it stands in a URL: %20 for a space, letters, digits and - _ . ~ as they are.",
        )
        .with_aliases(&["encodeurlcomponent", "urlencode"])
        .with_arguments(&[ArgumentKind::Text], 1)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                percent_encode(text, made);
                Ok(true)
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["url_decode(text)"],
            "The text that stands in a URL; a plus sign is one. What is no UTF-8 becomes U+FFFD.",
        )
        .with_aliases(&["decodeurlcomponent", "urldecode"])
        .with_arguments(&[ArgumentKind::Text], 1)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            let mut bytes = Vec::new();
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                percent_decode(text, false, &mut bytes, made);
                Ok(true)
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["url_decode_form(text)"],
            "The text that stands in a query string or a form; a plus sign is a space.",
        )
        .with_aliases(&["decodeurlformcomponent"])
        .with_arguments(&[ArgumentKind::Text], 1)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            let mut bytes = Vec::new();
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                percent_decode(text, true, &mut bytes, made);
                Ok(true)
            })
        }),
    ]
}

fn percent_encode(text: &str, made: &mut String) {
    const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                made.push(char::from(byte));
            }
            _ => {
                made.push('%');
                made.push(char::from(HEX_DIGITS[usize::from(byte >> 4)]));
                made.push(char::from(HEX_DIGITS[usize::from(byte & 15)]));
            }
        }
    }
}

/// Decodes a percent-encoded part of a URL. A percent sign without two digits stays as it is, and bytes that
/// are not UTF-8 become U+FFFD: logs of attack attempts contain both.
pub(crate) fn percent_decode(text: &str, is_form: bool, bytes: &mut Vec<u8>, made: &mut String) {
    if !text.bytes().any(|byte| byte == b'%' || (is_form && byte == b'+')) {
        made.push_str(text);
        return;
    }
    bytes.clear();
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (byte, behind) {
            (b'%', [high, low, more @ ..]) => match (hex_digit_value(*high), hex_digit_value(*low))
            {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = more;
                }
                _ => bytes.push(b'%'),
            },
            (b'+', _) if is_form => bytes.push(b' '),
            _ => bytes.push(*byte),
        }
    }
    made.push_str(&String::from_utf8_lossy(bytes));
}

/// Returns the value of a hexadecimal digit.
fn hex_digit_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::check_text_calls;
    use proptest::prelude::*;

    #[test]
    fn url_encode_and_url_decode_match_expected_values() {
        check_text_calls(&[
            ("url_encode", &["a b&c/é~-_."], "a%20b%26c%2F%C3%A9~-_."),
            ("urlencode", &[""], ""),
            ("url_decode", &["a%20b%26+c%zz%C3%A9"], "a b&+c%zzé"),
            ("url_decode", &["100%"], "100%"),
            ("url_decode", &["%4"], "%4"),
            ("url_decode", &["%ff%c3"], "\u{fffd}\u{fffd}"),
            ("url_decode", &["%00"], "\0"),
            ("url_decode_form", &["a+b%2B"], "a b+"),
        ]);
    }

    proptest! {
        #[test]
        fn percent_encoded_text_decodes_to_itself(text in ".{0,20}") {
            let mut made = String::new();
            percent_encode(&text, &mut made);
            prop_assert!(made.bytes().all(|byte| byte.is_ascii_graphic()));
            let (mut bytes, mut again) = (Vec::new(), String::new());
            percent_decode(&made, true, &mut bytes, &mut again);
            prop_assert_eq!(again, text);
        }
    }
}
