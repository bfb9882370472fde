//! Text as it stands in URLs, and as digits.

use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use tidemill_base::types::{EXACTLY, sql_type};

use super::SECTION;
use crate::call::{Call, Function, Kind, is_text, refused, views};

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["url_encode(text)"],
            "A text as it stands in a URL: %20 for a space, letters, digits and - _ . ~ as they are.",
        )
        .also(&["encodeurlcomponent", "urlencode"])
        .takes(&[Kind::Text], 1)
        .runs(|call| {
            let texts = call.texts(0)?;
            call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                encoded(text, made);
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["url_decode(text)"],
            "The text that stands in a URL; a plus sign is one. What is no UTF-8 becomes U+FFFD.",
        )
        .also(&["decodeurlcomponent", "urldecode"])
        .takes(&[Kind::Text], 1)
        .runs(|call| {
            let texts = call.texts(0)?;
            let mut bytes = Vec::new();
            call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                decoded(text, false, &mut bytes, made);
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["url_decode_form(text)"],
            "The text that stands in a query string or a form; a plus sign is a space.",
        )
        .also(&["decodeurlformcomponent"])
        .takes(&[Kind::Text], 1)
        .runs(|call| {
            let texts = call.texts(0)?;
            let mut bytes = Vec::new();
            call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                decoded(text, true, &mut bytes, made);
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["hex(x)"],
            "A text's or bytes' hexadecimal digits, two a byte; those of a whole number.",
        )
        .takes(&[Kind::Any], 1)
        .settles(|asked| {
            let given = asked.data_type(0);
            let is_taken = is_text(given)
                || given.is_integer()
                || given.is_null()
                || matches!(given, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
            match is_taken {
                true => Ok(DataType::Utf8View),
                false => Err(refused(
                    format!("`hex` takes a text, bytes or a whole number, and this is a {}", sql_type(given)),
                    "CAST(x AS BIGINT) makes a whole number, CAST(x AS TEXT) a text",
                )),
            }
        })
        .runs(hex),
    ]
}

fn encoded(text: &str, made: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                made.push(char::from(byte));
            }
            _ => {
                made.push('%');
                made.push(char::from(DIGITS[usize::from(byte >> 4)]));
                made.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }
}

/// What a part of a URL says. A percent sign without two digits is one; bytes that are no UTF-8 are shown as
/// such: logs have both, of those who look for a way in.
pub(crate) fn decoded(text: &str, is_form: bool, bytes: &mut Vec<u8>, made: &mut String) {
    if !text.bytes().any(|byte| byte == b'%' || (is_form && byte == b'+')) {
        made.push_str(text);
        return;
    }
    bytes.clear();
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (byte, behind) {
            (b'%', [high, low, more @ ..]) => match (digit(*high), digit(*low)) {
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

/// The value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn hex(call: &Call) -> PlanResult<ArrayRef> {
    let values = call.column(0)?;
    let given = values.data_type().clone();
    let digits = |bytes: Option<&[u8]>, made: &mut String| {
        bytes.is_some_and(|bytes| bytes.iter().all(|byte| write!(made, "{byte:02X}").is_ok()))
    };
    if is_text(&given) || given.is_null() {
        let texts = views(&values)?;
        return call.written(|row, made| {
            Ok(digits(texts.is_valid(row).then(|| texts.value(row).as_bytes()), made))
        });
    }
    if given == DataType::UInt64 {
        let numbers = values.as_primitive::<UInt64Type>();
        return call.written(|row, made| {
            Ok(numbers.is_valid(row) && write!(made, "{:X}", numbers.value(row)).is_ok())
        });
    }
    if given.is_integer() {
        let numbers = cast_with_options(&values, &DataType::Int64, &EXACTLY)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        return call.written(|row, made| {
            Ok(numbers.is_valid(row) && write!(made, "{:X}", numbers.value(row)).is_ok())
        });
    }
    let bytes = cast_with_options(&values, &DataType::BinaryView, &EXACTLY)?;
    let bytes = bytes.as_binary_view();
    call.written(|row, made| Ok(digits(bytes.is_valid(row).then(|| bytes.value(row)), made)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::{answer, check};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    #[test]
    fn texts_are_written_as_in_urls_and_read_again() {
        check(&[
            ("url_encode", &["a b&c/é~-_."], "a%20b%26c%2F%C3%A9~-_."),
            ("urlencode", &[""], ""),
            ("url_decode", &["a%20b%26+c%zz%C3%A9"], "a b&+c%zzé"),
            ("url_decode", &["100%"], "100%"),
            ("url_decode", &["%4"], "%4"),
            ("url_decode", &["%ff%c3"], "\u{fffd}\u{fffd}"),
            ("url_decode", &["%00"], "\0"),
            ("url_decode_form", &["a+b%2B"], "a b+"),
            ("hex", &["abc"], "616263"),
            ("hex", &["é"], "C3A9"),
        ]);
        assert_eq!(answer("hex", &[ScalarValue::from(255_i64)]), "FF");
        assert_eq!(answer("hex", &[ScalarValue::from(-1_i32)]), "FFFFFFFFFFFFFFFF");
        assert_eq!(answer("hex", &[ScalarValue::from(u64::MAX)]), "FFFFFFFFFFFFFFFF");
        assert_eq!(answer("hex", &[ScalarValue::Binary(Some(vec![0, 171]))]), "00AB");
        assert_eq!(
            answer("hex", &[ScalarValue::from(1.5)]),
            "`hex` takes a text, bytes or a whole number, and this is a DOUBLE\nhint: CAST(x AS BIGINT) makes a whole number, CAST(x AS TEXT) a text"
        );
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in ".{0,20}") {
            let mut made = String::new();
            encoded(&text, &mut made);
            prop_assert!(made.bytes().all(|byte| byte.is_ascii_graphic()));
            let (mut bytes, mut again) = (Vec::new(), String::new());
            decoded(&made, true, &mut bytes, &mut again);
            prop_assert_eq!(again, text);
        }
    }
}
