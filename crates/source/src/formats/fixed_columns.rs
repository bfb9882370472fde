//! Type declarations for formats that always have the same columns.

use arrow::datatypes::Schema;
use tidemill_text::sql_type_name;

use crate::error::{Error, Result};
use crate::schema::column_layouts::FileColumns;

/// Accepts declared types that equal the column's own type.
///
/// # Errors
/// [`Error::Usage`] for other types.
pub(super) fn declare_fixed_types(
    columns: &mut FileColumns,
    wanted: &Schema,
    format: &str,
) -> Result<()> {
    for field in wanted.fields() {
        // `override_types` reports unknown columns.
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
