//! What a value is, and where there may be none: `typeof` and `error`.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, new_null_array};
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Volatility;
use datafusion_expr::scalar_doc_sections::DOC_SECTION_OTHER;
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;

use crate::callable::{Function, Given, Told, as_text, called_as, external};

/// `typeof`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeOf;

impl Function for TypeOf {
    fn names(&self) -> &'static [&'static str] {
        &["typeof", "pg_typeof", "totypename"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_OTHER,
            calls: "typeof(x)",
            what: "The type of a value, by SQL's name of it: `typeof(DATE '2026-11-20')` is `DATE`, and `typeof([1, 2])` \
                   is `BIGINT[]`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![of.clone()]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        false
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let name = match given.value(0)?.data_type() {
            DataType::Null => "NULL".into(),
            other => sql_type_name(&other),
        };
        Ok(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(name, given.rows))))
    }
}

/// `error`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Raised;

impl Function for Raised {
    fn names(&self) -> &'static [&'static str] {
        &["error", "raise_error"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_OTHER,
            calls: "error(message)",
            what: "Ends the query with a message, for the branch of a CASE that should not be reached; of a message \
                   that is NULL it is NULL: `error(NULL)` is `NULL`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![as_text(of).ok_or_else(|| called_as(self, given))?]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    /// It has to stay where it is written.
    fn volatility(&self) -> Volatility {
        Volatility::Volatile
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let messages = given.texts(0)?;
        match (0..given.rows).find_map(|row| messages.at(row)) {
            Some(message) => Err(external(Error::Query(message.to_owned()))),
            None => Ok(new_null_array(&DataType::Null, given.rows)),
        }
    }
}
