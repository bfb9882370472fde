//! Values of the SQL parameters `$1` and `:name`. The package determines their kinds: see `_parameters.py`.

use pyo3::prelude::*;
use tidemill_engine::hex::decode_hex;
use tidemill_engine::query::QueryParameter;
use tidemill_engine::{Error, Result};

/// A parameter value: its kind, its text, and the items of a list.
#[derive(FromPyObject)]
pub(crate) struct PythonParameterValue(String, String, Vec<PythonParameterValue>);

/// A parameter's name and value.
pub(crate) type NamedPythonParameter = (String, PythonParameterValue);

/// Converts parameters to the engine's.
///
/// # Errors
/// [`Error::Internal`] for a kind that the package does not give.
pub(crate) fn into_engine_parameters(
    given: Vec<NamedPythonParameter>,
) -> Result<Vec<(String, QueryParameter)>> {
    given.into_iter().map(|(name, value)| Ok((name, value.into_engine_parameter()?))).collect()
}

impl PythonParameterValue {
    fn into_engine_parameter(self) -> Result<QueryParameter> {
        let PythonParameterValue(kind, text, items) = self;
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
            "bytes" => QueryParameter::Bytes(decode_bytes(&text)?),
            "list" => {
                let items = items.into_iter().map(PythonParameterValue::into_engine_parameter);
                QueryParameter::List(items.collect::<Result<_>>()?)
            }
            _ => match kind.strip_prefix("cast ") {
                Some(to) => QueryParameter::Cast(to.to_owned(), text),
                None => return Err(Error::Internal(format!("a parameter of kind `{kind}`"))),
            },
        })
    }
}

/// Decodes hexadecimal digits.
fn decode_bytes(digits: &str) -> Result<Vec<u8>> {
    decode_hex(digits).ok_or_else(|| Error::Internal(format!("`{digits}` are no bytes")))
}
