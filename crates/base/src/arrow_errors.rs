//! Translates Arrow's error messages about values and types into SQL terms.
//!
//! Arrow's errors are plain texts. Only this module parses them. A test covers each known message, so that a
//! new Arrow version cannot change silently what the user reads.

use arrow::error::ArrowError;

use crate::error::Error;

/// Finds one of our errors within the sources of another library's error; else wraps that error's text.
fn find_inner_error(error: &(dyn std::error::Error + 'static)) -> Error {
    let inner = std::iter::successors(Some(error), |error| error.source());
    let ours = inner.filter_map(|error| error.downcast_ref::<Error>()).next();
    ours.map_or_else(|| Error::Query(error.to_string()), Error::duplicate)
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(source) => match source.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(source) => find_inner_error(source.as_ref()),
            },
            ArrowError::IoError(_, source) => Error::io("read or write", "a stream", source),
            ArrowError::DivideByZero => Error::Query("division by zero".into()),
            ArrowError::CastError(message) => translate_cast_error(&message),
            ArrowError::ComputeError(message)
            | ArrowError::InvalidArgumentError(message)
            | ArrowError::ArithmeticOverflow(message) => {
                translate_arrow_message(&message).unwrap_or(Error::Query(message))
            }
            ArrowError::ParseError(message) => {
                let time = message.strip_prefix("Error parsing timestamp from '");
                match time.and_then(|rest| rest.split_once("': ")) {
                    Some((text, _)) => Error::Cast {
                        value: text.to_owned(),
                        to: "TIMESTAMP".to_owned(),
                        cast: None,
                        hint: Some("a time is written as 2026-11-20T09:19:00".to_owned()),
                    },
                    None => translate_cast_error(&message),
                }
            }
            other => Error::Query(other.to_string()),
        }
    }
}

/// Parts of Arrow messages, each with the message and the hint that replace it.
const MESSAGE_TRANSLATIONS: [(&str, &str, &str); 2] = [
    (
        "Date arithmetic overflow: ",
        "a date moved by an interval is beyond what DATE holds",
        "a TIMESTAMP reaches the year 294246",
    ),
    (
        "Unsupported CAST from Struct(",
        "records with other fields do not meet",
        "give both the same fields, with NULL where there is none",
    ),
];

/// Translates a message of Arrow into one of our errors. Returns `None` for an unknown message.
pub fn translate_arrow_message(message: &str) -> Option<Error> {
    if let Some((_, rest)) = message.split_once("Unsupported CAST from Struct(")
        && let Some((_, to)) = rest.rsplit_once(") to ")
        && !to.starts_with("Struct(")
        && !rest.contains(" to Struct(")
    {
        return Some(Error::usage_with_hint(
            format!("a STRUCT is not cast to {}", replace_arrow_type_names(to)),
            "unnest(s) in the select list makes columns of its fields; --format json writes it whole",
        ));
    }
    if let Some((_, ours, hint)) =
        MESSAGE_TRANSLATIONS.iter().find(|(part, _, _)| message.contains(part))
    {
        return Some(Error::usage_with_hint(*ours, *hint));
    }
    if let Some(operation) = message.strip_prefix("Overflow happened on: ") {
        // A factor of a thousand is a change of unit, and a number of that many digits counts nanoseconds:
        // arithmetic on plain numbers has its own check.
        let is_long = |number: &str| number.trim_start_matches('-').len() > 15;
        let is_of_units = [" * 1000000000", " * 1000000", " * 1000"];
        let is_of_units = is_of_units.iter().any(|factor| operation.ends_with(factor));
        let hint = (is_of_units || operation.split(' ').any(is_long)).then(|| {
            "times of nanoseconds are at most 292 years apart; CAST(ts AS TIMESTAMP(6)) reaches further"
                .to_owned()
        });
        let message = format!("`{operation}` does not fit its type");
        return Some(Error::Overflow { message, hint });
    }
    for (too, most) in [
        (" is too large to store in a Decimal", "Max"),
        (" is too small to store in a Decimal", "Min"),
    ] {
        let Some((value, rest)) = message.split_once(too) else { continue };
        let precision = rest.split_once("precision ").map_or(rest, |(_, rest)| rest);
        let (precision, limit) = precision.split_once(&format!(". {most} is "))?;
        let value = value.rsplit(' ').next().unwrap_or(value);
        return Some(Error::Overflow {
            message: format!("`{value}` does not fit a DECIMAL of {precision} digits"),
            hint: Some(format!(
                "that ends at {limit}; TRY_CAST(x AS DECIMAL({precision}, …)) gives NULL for what \
                 is beyond"
            )),
        });
    }
    if message.starts_with("Regular expression did not compile") {
        let fault = message.lines().find_map(|line| {
            let line =
                line.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '~' | ')'));
            line.strip_prefix("error: ")
        });
        let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
        return Some(Error::usage(format!("a regular expression is not understood{fault}")));
    }
    None
}

/// Translates Arrow's message about a value that cannot be cast. An unknown message stays as it is.
pub fn translate_cast_error(message: &str) -> Error {
    if let Some(error) = translate_arrow_message(message) {
        return error;
    }
    if message.contains("to Timestamp(ns)") || message.contains("to timestamp[ns]") {
        return Error::Overflow {
            message:
                "a time outside of 1677 to 2262 does not fit TIMESTAMP(9), which is of nanoseconds"
                    .into(),
            hint: Some(
                "CAST(x AS TIMESTAMP(6)) of the nanoseconds beside it reaches any time".into(),
            ),
        };
    }
    let cast = |value: &str, to: &str| Error::Cast {
        value: value.to_owned(),
        to: to.to_owned(),
        cast: None,
        hint: None,
    };
    let text = ["Cannot cast string '", "Cannot cast value '"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.rsplit_once("' to value of "));
    if let Some((value, to)) = text {
        return cast(value, sql_name_of_arrow_type(to.trim_end_matches(" type")).as_str());
    }
    let number = message.strip_prefix("Can't cast value ");
    if let Some((value, to)) = number.and_then(|cast| cast.rsplit_once(" to type ")) {
        return cast(value, &sql_name_of_arrow_type(to));
    }
    if let Some(value) = message.strip_prefix("Invalid input syntax for type interval: \"") {
        return cast(value.trim_end_matches('"'), "INTERVAL");
    }
    match message.starts_with("Cannot cast ") {
        true => Error::Query(replace_arrow_type_names(message)),
        false => Error::Query(message.to_owned()),
    }
}

/// Returns SQL's name of the type that Arrow calls `name`, without digits and units: those in a message
/// do not always belong to the requested type.
pub fn sql_name_of_arrow_type(name: &str) -> String {
    let words = replace_arrow_type_names(name);
    match words.split_once('(') {
        Some((word @ ("DECIMAL" | "TIMESTAMP" | "TIME"), _)) => word.to_owned(),
        _ => words,
    }
}

/// Returns the position of the parenthesis that closes the one at the start of the text.
fn find_closing_parenthesis(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Replaces Arrow's type names in a message by SQL's.
pub fn replace_arrow_type_names(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(start) = rest.find(is_word) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        text.push_str(before);
        rest = &word[end..];
        let name = match &word[..end] {
            "Utf8" | "LargeUtf8" | "Utf8View" => "TEXT",
            "Int8" => "TINYINT",
            "Int16" => "SMALLINT",
            "Int32" => "INT",
            "Int64" => "BIGINT",
            "UInt8" => "TINYINT UNSIGNED",
            "UInt16" => "SMALLINT UNSIGNED",
            "UInt32" => "INT UNSIGNED",
            "UInt64" => "BIGINT UNSIGNED",
            "Float32" => "FLOAT",
            "Float64" => "DOUBLE",
            "Date32" => "DATE",
            "Boolean" => "BOOLEAN",
            "Binary" | "LargeBinary" | "BinaryView" => "BYTEA",
            "Decimal32" | "Decimal64" | "Decimal128" | "Decimal256" => "DECIMAL",
            "List" | "LargeList"
                if rest.starts_with('(') && find_closing_parenthesis(rest).is_some() =>
            {
                let end = find_closing_parenthesis(rest).unwrap_or(0);
                text.push_str(&replace_arrow_type_names(&rest[1..end]));
                rest = &rest[end + 1..];
                "[]"
            }
            // The parentheses hold a unit.
            unit @ ("Timestamp" | "Time32" | "Time64" | "Interval" | "Duration")
                if rest.starts_with('(') && rest.contains(')') =>
            {
                let (of, behind) = rest.split_once(')').unwrap_or((rest, ""));
                rest = behind;
                match (unit, of) {
                    ("Timestamp", _) => "TIMESTAMP",
                    ("Time32", "(s") => "TIME(0)",
                    ("Time32", _) => "TIME(3)",
                    ("Time64", "(µs") => "TIME(6)",
                    ("Time64", _) => "TIME",
                    _ => "INTERVAL",
                }
            }
            other => other,
        };
        text.push_str(name);
    }
    text.push_str(rest);
    text
}
