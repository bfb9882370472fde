//! How do values reach SQL's `$1` and `:name`? As the package has told their kinds: see `_parameters.py`.

use pyo3::prelude::*;
use tidemill_engine::hex::decode_hex;
use tidemill_engine::query::QueryParameter;
use tidemill_engine::{Error, Result};

/// A value: its kind, its text, and what a list holds.
#[derive(FromPyObject)]
pub(crate) struct GivenValue(String, String, Vec<GivenValue>);

/// The name of a parameter, and its value.
pub(crate) type GivenParameter = (String, GivenValue);

/// The parameters as the engine has them.
///
/// # Errors
/// [`Error::Internal`] for a kind that the package does not give.
pub(crate) fn parameters(given: Vec<GivenParameter>) -> Result<Vec<(String, QueryParameter)>> {
    given.into_iter().map(|(name, value)| Ok((name, value.parameter()?))).collect()
}

impl GivenValue {
    fn parameter(self) -> Result<QueryParameter> {
        let GivenValue(kind, text, items) = self;
        Ok(match kind.as_str() {
            "null" => QueryParameter::Null,
            "boolean" => QueryParameter::Boolean(text == "true"),
            "number" => QueryParameter::Number(text),
            "text" => QueryParameter::Text(text),
            "date" => QueryParameter::TypedLiteral("DATE", text),
            "time" => QueryParameter::TypedLiteral("TIME", text),
            "timestamp" => QueryParameter::TypedLiteral("TIMESTAMP", text),
            "timestamptz" => QueryParameter::TypedLiteral("TIMESTAMPTZ", text),
            "interval" => QueryParameter::TypedLiteral("INTERVAL", text),
            "bytes" => QueryParameter::Bytes(bytes(&text)?),
            "list" => {
                let items = items.into_iter().map(GivenValue::parameter);
                QueryParameter::List(items.collect::<Result<_>>()?)
            }
            _ => match kind.strip_prefix("cast ") {
                Some(to) => QueryParameter::Cast(to.to_owned(), text),
                None => return Err(Error::Internal(format!("a parameter of kind `{kind}`"))),
            },
        })
    }
}

/// Bytes of their hexadecimal digits.
fn bytes(digits: &str) -> Result<Vec<u8>> {
    decode_hex(digits).ok_or_else(|| Error::Internal(format!("`{digits}` are no bytes")))
}
