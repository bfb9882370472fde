//! Completes texts of times and numbers in spellings that Arrow's casts do not parse.
//!
//! - `'2026-03-01 10:30'` is a time without seconds, which Arrow requires.
//! - `'1e3'`, `'12.0'`, `'0xff'` and `'1_000'` are whole numbers, which Arrow parses only as digits. `'1.5'` is not a
//!   whole number, here as in PostgreSQL.
//! - `'1.5e3'` is a DECIMAL, which Arrow parses only without an exponent.
//!
//! Other texts stay unchanged, and the cast reports errors in them. Cost: a look at each text, and a copy of each batch
//! with a text to complete.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::DataType;
use datafusion::common::{Result as PlanResult, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use crate::common_type::is_decimal;
use tidemill_planning::plan_rewriting::invoke_unary_function;

/// A spelling of texts that Arrow's casts do not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TextSpelling {
    /// A time without seconds.
    TimeWithoutSeconds,
    /// A whole number with a point, an exponent, underscores between its digits, or hexadecimal or binary digits.
    WholeNumber,
    /// A number with an exponent.
    DecimalWithExponent,
}

impl TextSpelling {
    /// Returns the spelling that is completed before texts are cast to a type, if there is one.
    pub(crate) fn for_cast_target(to: &DataType) -> Option<Self> {
        match to {
            DataType::Timestamp(_, _) | DataType::Date32 => Some(TextSpelling::TimeWithoutSeconds),
            to if to.is_integer() => Some(TextSpelling::WholeNumber),
            to if is_decimal(to) => Some(TextSpelling::DecimalWithExponent),
            _ => None,
        }
    }

    /// Returns the text in Arrow's spelling, or `None` if it has that spelling already.
    fn complete_text(self, text: &str) -> Option<String> {
        match self {
            TextSpelling::TimeWithoutSeconds => lacks_seconds(text).then(|| {
                format!("{}:00{}", &text[..MINUTE_TEXT_BYTES], &text[MINUTE_TEXT_BYTES..])
            }),
            TextSpelling::WholeNumber => normalize_whole_number(text),
            TextSpelling::DecimalWithExponent => normalize_decimal(text),
        }
    }
}

/// Returns whether an expression is a call of [`completed_text_call`].
pub(crate) fn is_completed_text_call(expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else { return false };
    call.func.inner().downcast_ref::<CompleteTextFunction>().is_some()
}

/// Returns a call that completes a text.
pub(crate) fn completed_text_call(text: Expr, spelling: TextSpelling) -> Expr {
    let function = |spelling| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(CompleteTextFunction { spelling, signature }))
    };
    static TIMES: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    static WHOLE_NUMBERS: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    static DECIMALS: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    let once = match spelling {
        TextSpelling::TimeWithoutSeconds => &TIMES,
        TextSpelling::WholeNumber => &WHOLE_NUMBERS,
        TextSpelling::DecimalWithExponent => &DECIMALS,
    };
    let function = Arc::clone(once.get_or_init(|| function(spelling)));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![text]))
}

/// The function that completes texts for Arrow's casts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CompleteTextFunction {
    spelling: TextSpelling,
    signature: Signature,
}

impl ScalarUDFImpl for CompleteTextFunction {
    fn name(&self) -> &str {
        match self.spelling {
            TextSpelling::TimeWithoutSeconds => "with_seconds",
            TextSpelling::WholeNumber => "as_digits",
            TextSpelling::DecimalWithExponent => "without_exponent",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [of] => Ok(of.clone()),
            _ => plan_err!("`{}` takes one text", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| complete_texts(array, self.spelling))
    }
}

/// Completes the texts of an array for Arrow's casts.
pub(crate) fn complete_texts(array: &ArrayRef, spelling: TextSpelling) -> PlanResult<ArrayRef> {
    let is_other = |text: &str| spelling.complete_text(text).is_some();
    // Most columns need no change, and are not copied.
    let is_any_other = match array.data_type() {
        DataType::Utf8View => array.as_string_view().iter().flatten().any(is_other),
        DataType::Utf8 => array.as_string::<i32>().iter().flatten().any(is_other),
        _ => true,
    };
    if !is_any_other {
        return Ok(Arc::clone(array));
    }
    let texts = cast_with_options(array, &DataType::Utf8, &STRICT_CAST_OPTIONS)?;
    let texts = texts.as_string::<i32>();
    let texts: StringArray = texts
        .iter()
        .map(|text| text.map(|text| spelling.complete_text(text).map_or(text.into(), Cow::Owned)))
        .collect();
    Ok(cast_with_options(&texts, array.data_type(), &STRICT_CAST_OPTIONS)?)
}

/// Maximum number of digits of a completed number, more than any type has.
const WRITTEN_DIGITS_MAX: usize = 100;

/// Returns the digits of a whole number in another spelling; `None` if it needs no change or is not a whole number.
fn normalize_whole_number(text: &str) -> Option<String> {
    let is_marked =
        |byte: &u8| matches!(byte, b'.' | b'e' | b'E' | b'_' | b'x' | b'X' | b'b' | b'B');
    if text.len() > WRITTEN_DIGITS_MAX || !text.as_bytes().iter().any(is_marked) {
        return None;
    }
    let text = strip_underscores(text)?;
    for (radix, prefixes) in [(16, ["0x", "0X"]), (2, ["0b", "0B"])] {
        if let Some(digits) = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)) {
            let is_digits = digits.chars().all(|digit| digit.is_digit(radix));
            let number = is_digits.then(|| u128::from_str_radix(digits, radix).ok()).flatten()?;
            return Some(number.to_string());
        }
    }
    let NumberSpelling { sign, digits, exponent: zeros } = NumberSpelling::parse(&text)?;
    let places =
        usize::try_from(zeros.unsigned_abs()).ok().filter(|places| *places <= WRITTEN_DIGITS_MAX);
    let places = if digits.is_empty() { return Some("0".to_owned()) } else { places? };
    if zeros >= 0 {
        return Some(format!("{sign}{digits}{}", "0".repeat(places)));
    }
    let (whole, fraction) = digits.split_at_checked(digits.len().checked_sub(places)?)?;
    let is_whole = fraction.bytes().all(|digit| digit == b'0') && !whole.is_empty();
    is_whole.then(|| format!("{sign}{whole}"))
}

/// Returns a number with an exponent in plain decimal notation; `None` if it has no exponent.
fn normalize_decimal(text: &str) -> Option<String> {
    if text.len() > WRITTEN_DIGITS_MAX || !text.contains(['e', 'E']) {
        return None;
    }
    let NumberSpelling { sign, digits, exponent: zeros } = NumberSpelling::parse(text)?;
    let places =
        usize::try_from(zeros.unsigned_abs()).ok().filter(|places| *places <= WRITTEN_DIGITS_MAX);
    let places = if digits.is_empty() { return Some("0".to_owned()) } else { places? };
    if zeros >= 0 {
        return Some(format!("{sign}{digits}{}", "0".repeat(places)));
    }
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    Some(format!("{sign}{whole}.{fraction}"))
}

/// Returns a text without the underscores between its digits; `None` if an underscore stands elsewhere.
fn strip_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let parts: Vec<&str> = text.split('_').collect();
    let is_between = parts.windows(2).all(|pair| {
        pair[0].ends_with(|sign: char| sign.is_ascii_hexdigit())
            && pair[1].starts_with(|sign: char| sign.is_ascii_hexdigit())
    });
    // `0b_1` has a `b` before the underscore that is a prefix, not a digit.
    let is_prefix = matches!(parts.first(), Some(&("0b" | "0B")));
    (is_between && !is_prefix).then(|| Cow::Owned(parts.concat()))
}

/// The spelling of a number: `1.50e3` has the digits `150` and the exponent 1.
struct NumberSpelling<'a> {
    sign: &'a str,
    /// Digits without leading zeros.
    digits: String,
    /// The power of ten that multiplies the digits; if negative, the number of digits after the point.
    exponent: i64,
}

impl<'a> NumberSpelling<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (sign, number) = match text.strip_prefix('-') {
            Some(number) => ("-", number),
            None => ("", text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (number, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let zeros = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        Some(NumberSpelling {
            sign,
            digits: digits.trim_start_matches('0').to_owned(),
            exponent: zeros,
        })
    }
}

/// Length of `2026-03-01 10:30` in bytes.
const MINUTE_TEXT_BYTES: usize = 16;

/// Returns whether a text is a date, an hour and a minute, optionally with a zone.
fn lacks_seconds(text: &str) -> bool {
    let Some(time) = text.as_bytes().get(..MINUTE_TEXT_BYTES) else { return false };
    let is_shaped = time.iter().zip(b"0000-00-00 00:00").all(|(byte, shape)| match shape {
        b'0' => byte.is_ascii_digit(),
        b' ' => matches!(byte, b' ' | b'T' | b't'),
        shape => byte == shape,
    });
    is_shaped && !text[MINUTE_TEXT_BYTES..].starts_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_seconds_are_added_to_times() {
        for (text, expected) in [
            ("2026-03-01 10:30", "2026-03-01 10:30:00"),
            ("2026-03-01T10:30Z", "2026-03-01T10:30:00Z"),
            ("2026-03-01 10:30+02:00", "2026-03-01 10:30:00+02:00"),
            ("2026-03-01 10:30:15", "2026-03-01 10:30:15"),
            ("2026-03-01", "2026-03-01"),
            ("2026-03-01 10:3", "2026-03-01 10:3"),
            ("äöü-03-01 10:30 ", "äöü-03-01 10:30 "),
            ("", ""),
        ] {
            let given: ArrayRef = Arc::new(StringArray::from(vec![Some(text), None]));
            let found = complete_texts(&given, TextSpelling::TimeWithoutSeconds).unwrap();
            assert_eq!(found.as_string::<i32>().value(0), expected);
            assert!(found.is_null(1));
        }
    }

    #[test]
    fn whole_numbers_are_written_out() {
        for (text, expected) in [
            ("1e2", Some("100")),
            ("-1.23E+2", Some("-123")),
            ("+12.0", Some("12")),
            ("1.", Some("1")),
            (".5e1", Some("5")),
            ("-100e-2", Some("-1")),
            ("0.0", Some("0")),
            ("0e999999", Some("0")),
            ("922337203685477580.7e1", Some("9223372036854775807")),
            ("12", None),
            ("1.5", None),
            ("1e-2", None),
            ("0.5e-99999999999999999999", None),
            ("1e9223372036854775807", None),
            (".", None),
            ("e5", None),
            ("1e", None),
            ("1.2.3", None),
            ("--1e2", None),
            ("1e2 ", None),
            ("é.5", None),
            ("0xFf", Some("255")),
            ("0b1111_0000", Some("240")),
            ("1_000", Some("1000")),
            ("0x", None),
            ("0b2", None),
            ("-0x1", None),
            ("0b_1", None),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("0x+f", None),
        ] {
            assert_eq!(normalize_whole_number(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("1e2", Some("100")),
            ("-1.5E-3", Some("-0.0015")),
            ("12.345e1", Some("123.45")),
            ("0e5", Some("0")),
            ("1.5", None),
            ("1e999", None),
            ("1e", None),
        ] {
            assert_eq!(normalize_decimal(text).as_deref(), expected, "{text}");
        }
    }
}
