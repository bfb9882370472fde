//! What formats share that have the same columns always.

use arrow::datatypes::Schema;
use tidemill_text::sql_type_name;

use crate::error::{Error, Result};
use crate::file_columns::FileColumns;

/// Gives columns the types that the user has for them, which can only be their own.
///
/// # Errors
/// [`Error::Usage`] for others.
pub(super) fn declare_fixed_types(
    columns: &mut FileColumns,
    wanted: &Schema,
    format: &str,
) -> Result<()> {
    for field in wanted.fields() {
        // An unknown one is for whoever takes the types over.
        let own = columns.fields.iter().find(|own| own.name() == field.name());
        if let Some(own) = own.filter(|own| own.data_type() != field.data_type()) {
            return Err(Error::usage_with_hint(
                format!(
                    "column `{}` is {} in {format} and cannot be read as {}",
                    field.name(),
                    sql_type_name(own.data_type()),
                    sql_type_name(field.data_type())
                ),
                "convert it in the query: CAST(column AS type)",
            ));
        }
    }
    columns.override_types(wanted)
}
