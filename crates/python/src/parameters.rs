//! How do values reach SQL's `$1` and `:name`? As the package has told their kinds: see `_parameters.py`.

use pyo3::prelude::*;
use tidemill_engine::hex::decode_hex;
use tidemill_engine::query::Parameter;
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
pub(crate) fn parameters(given: Vec<GivenParameter>) -> Result<Vec<(String, Parameter)>> {
    given.into_iter().map(|(name, value)| Ok((name, value.parameter()?))).collect()
}

impl GivenValue {
    fn parameter(self) -> Result<Parameter> {
        let GivenValue(kind, text, items) = self;
        Ok(match kind.as_str() {
            "null" => Parameter::Null,
            "boolean" => Parameter::Boolean(text == "true"),
            "number" => Parameter::Number(text),
            "text" => Parameter::Text(text),
            "date" => Parameter::Typed("DATE", text),
            "time" => Parameter::Typed("TIME", text),
            "timestamp" => Parameter::Typed("TIMESTAMP", text),
            "timestamptz" => Parameter::Typed("TIMESTAMPTZ", text),
            "interval" => Parameter::Typed("INTERVAL", text),
            "bytes" => Parameter::Bytes(bytes(&text)?),
            "list" => {
                let items = items.into_iter().map(GivenValue::parameter);
                Parameter::List(items.collect::<Result<_>>()?)
            }
            _ => match kind.strip_prefix("cast ") {
                Some(to) => Parameter::Cast(to.to_owned(), text),
                None => return Err(Error::Internal(format!("a parameter of kind `{kind}`"))),
            },
        })
    }
}

/// Bytes of their hexadecimal digits.
fn bytes(digits: &str) -> Result<Vec<u8>> {
    decode_hex(digits).ok_or_else(|| Error::Internal(format!("`{digits}` are no bytes")))
}
