//! Encodes rows and columns as Arrow IPC streams, for pickling.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Encodes a schema and its batches as bytes.
///
/// # Errors
/// `ValueError` for a type that Arrow IPC does not have.
pub(crate) fn encode_batches<'py>(
    py: Python<'py>,
    schema: &Schema,
    batches: &[RecordBatch],
) -> PyResult<Bound<'py, PyBytes>> {
    let written = py.detach(|| -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.into_inner()
    });
    Ok(PyBytes::new(py, &written.map_err(to_value_error)?))
}

/// Decodes the schema and the batches of an encoded stream.
///
/// # Errors
/// `ValueError` for bytes that [`encode_batches`] did not write.
pub(crate) fn decode_batches(bytes: &[u8]) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(to_value_error)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(to_value_error)?;
    Ok((schema, batches))
}

fn to_value_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
