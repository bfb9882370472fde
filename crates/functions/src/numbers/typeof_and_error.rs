//! `typeof`, the SQL name of a value's type, and `error`, which ends a query with a message.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, new_null_array};
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Volatility;
use datafusion_expr::scalar_doc_sections::DOC_SECTION_OTHER;
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;

use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, external_error, text_cast_type, wrong_arguments_error,
};

/// The function `typeof`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeOfFunction;

impl RowFunction for TypeOfFunction {
    fn names(&self) -> &'static [&'static str] {
        &["typeof", "pg_typeof", "totypename"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_OTHER,
            syntax: "typeof(x)",
            description: "The type of a value, by SQL's name of it: `typeof(DATE '2026-11-20')` is `DATE`, and `typeof([1, 2])` \
                   is `BIGINT[]`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![of.clone()]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        false
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let name = match given.argument(0)?.data_type() {
            DataType::Null => "NULL".into(),
            other => sql_type_name(&other),
        };
        Ok(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(name, given.row_count))))
    }
}

/// The function `error`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ErrorFunction;

impl RowFunction for ErrorFunction {
    fn names(&self) -> &'static [&'static str] {
        &["error", "raise_error"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_OTHER,
            syntax: "error(message)",
            description: "Ends the query with a message, for the branch of a CASE that should not be reached; of a message \
                   that is NULL it is NULL: `error(NULL)` is `NULL`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![text_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    /// Volatile, so that the optimizer does not evaluate or move the call.
    fn volatility(&self) -> Volatility {
        Volatility::Volatile
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let messages = given.text_argument(0)?;
        match (0..given.row_count).find_map(|row| messages.get(row)) {
            Some(message) => Err(external_error(Error::Query(message.to_owned()))),
            None => Ok(new_null_array(&DataType::Null, given.row_count)),
        }
    }
}
