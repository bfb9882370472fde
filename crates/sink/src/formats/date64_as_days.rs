//! Converts dates in milliseconds (`date64`) for Parquet, which only has dates in days.
//!
//! The parquet crate writes them as plain integers, not marked as dates, unless all types of a file
//! are coerced. So they are written as days, and the file's Arrow schema records the original type:
//! Arrow's readers, including ours, return the original column, and all others see dates.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::EncodeError;
use crate::error::Error;

/// Returns the schema with dates in days instead of milliseconds; `None` if it has no such dates.
pub(super) fn schema_with_date32(schema: &SchemaRef) -> Option<SchemaRef> {
    let fields = fields_with_date32(schema.fields());
    let differs = fields.iter().zip(schema.fields()).any(|(days, own)| days != own);
    differs.then(|| Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

fn fields_with_date32(of: &[FieldRef]) -> Vec<FieldRef> {
    of.iter().map(field_with_date32).collect()
}

fn field_with_date32(of: &FieldRef) -> FieldRef {
    let data_type = type_with_date32(of.data_type());
    match &data_type == of.data_type() {
        true => Arc::clone(of),
        false => Arc::new(Field::clone(of).with_data_type(data_type)),
    }
}

fn type_with_date32(of: &DataType) -> DataType {
    match of {
        DataType::Date64 => DataType::Date32,
        DataType::List(item) => DataType::List(field_with_date32(item)),
        DataType::LargeList(item) => DataType::LargeList(field_with_date32(item)),
        DataType::FixedSizeList(item, size) => {
            DataType::FixedSizeList(field_with_date32(item), *size)
        }
        DataType::Map(entries, is_sorted) => DataType::Map(field_with_date32(entries), *is_sorted),
        DataType::Struct(inner) => DataType::Struct(fields_with_date32(inner).into()),
        DataType::Dictionary(key, value) => {
            DataType::Dictionary(key.clone(), Box::new(type_with_date32(value)))
        }
        other => other.clone(),
    }
}

/// Casts a batch to `schema`, which [`schema_with_date32`] returned.
///
/// # Errors
/// [`Error::Usage`] for a date that is not a whole number of days.
pub(super) fn cast_dates_to_days(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, EncodeError> {
    let column = |(column, field): (&ArrayRef, &FieldRef)| -> Result<ArrayRef, EncodeError> {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        let days = cast(column, field.data_type())?;
        if &cast(&days, column.data_type())? != column {
            return Err(EncodeError::Other(Error::usage_with_hint(
                format!(
                    "column `{}` has a date with a time of day, which is no date in Parquet",
                    field.name()
                ),
                "cast the column to TIMESTAMP, or write `arrow`",
            )));
        }
        Ok(days)
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column);
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<_, EncodeError>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
