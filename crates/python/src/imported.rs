//! Arrow arrays of others, as arrow-rs has them.
//!
//! A slice of an array of records begins at an offset, and its fields are of their whole length. Where
//! a field is of records itself, arrow-rs (59.3) takes the offset off twice and panics:
//! `ArrayData::slice` slices the fields and keeps the offset, which the array made of it applies once
//! more. So what comes from outside is settled first: records begin at 0, and their fields are as long
//! as they are. Offsets are moved, no value is copied.

use std::ffi::CStr;
use std::sync::Arc;

use arrow::array::{
    ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray,
    make_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow::ffi_stream::FFI_ArrowArrayStream;

/// The rows of `data`, an array of records.
///
/// # Errors
/// Where its columns are not those of the schema.
pub(crate) fn batch(data: ArrayData, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows = data.len();
    let (_, columns, _) = StructArray::from(settled(&data, 0, rows)).into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Values of `data`.
pub(crate) fn values(data: &ArrayData) -> ArrayRef {
    make_array(settled(data, 0, data.len()))
}

/// A part of an array in which all records begin at 0.
fn settled(data: &ArrayData, offset: usize, length: usize) -> ArrayData {
    let children = data.child_data();
    let builder = match data.data_type() {
        DataType::Struct(_) => {
            let at = data.offset() + offset;
            let children = children.iter().map(|child| settled(child, at, length)).collect();
            let nulls = data.nulls().map(|nulls| nulls.slice(offset, length));
            data.clone().into_builder().offset(0).len(length).nulls(nulls).child_data(children)
        }
        _ if children.is_empty() => return data.slice(offset, length),
        _ => {
            let children = children.iter().map(|child| settled(child, 0, child.len())).collect();
            data.slice(offset, length).into_builder().child_data(children)
        }
    };
    // SAFETY: the same values in the same buffers; only where they begin is said in another place.
    unsafe { builder.build_unchecked() }
}

/// A stream of others, of batches or of arrays of one column.
struct Foreign(FFI_ArrowArrayStream);

impl Foreign {
    fn schema(&mut self) -> Result<FFI_ArrowSchema, ArrowError> {
        let failed = |reason: &str| Err(ArrowError::CDataInterface(reason.to_owned()));
        let (Some(get_schema), true) = (self.0.get_schema, self.0.release.is_some()) else {
            return failed("the stream has been read already");
        };
        let mut schema = FFI_ArrowSchema::empty();
        // SAFETY: the stream is valid until it is released, and the schema is ours to fill.
        match unsafe { get_schema(&mut self.0, &mut schema) } {
            0 => Ok(schema),
            _ => failed("the stream gives no schema"),
        }
    }

    fn pull(&mut self, data_type: DataType) -> Result<Option<ArrayData>, ArrowError> {
        let gone = || ArrowError::CDataInterface("the stream has been read already".into());
        let get_next = self.0.get_next.ok_or_else(gone)?;
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: as above.
        if unsafe { get_next(&mut self.0, &mut array) } != 0 {
            return Err(ArrowError::CDataInterface(self.last_error()));
        }
        if array.is_released() {
            return Ok(None);
        }
        // SAFETY: the stream vouches for its arrays being of its schema.
        unsafe { from_ffi_and_data_type(array, data_type) }.map(Some)
    }

    fn last_error(&mut self) -> String {
        let Some(get_last_error) = self.0.get_last_error else {
            return "the stream failed".into();
        };
        // SAFETY: as above; the text is valid until the stream's next call.
        let text = unsafe { get_last_error(&mut self.0) };
        match text.is_null() {
            true => "the stream failed".into(),
            // SAFETY: as above.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        }
    }
}

/// A stream of batches of others.
pub(crate) struct Stream {
    stream: Foreign,
    schema: SchemaRef,
}

impl Stream {
    /// Takes a stream over.
    ///
    /// # Errors
    /// Where it has been taken over already, or has no schema that is known.
    pub(crate) fn new(stream: FFI_ArrowArrayStream) -> Result<Self, ArrowError> {
        let mut stream = Foreign(stream);
        Ok(Stream { schema: Arc::new(Schema::try_from(&stream.schema()?)?), stream })
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let data = self.stream.pull(DataType::Struct(self.schema.fields().clone()))?;
        data.map(|data| batch(data, &self.schema)).transpose()
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A stream of arrays of others, all of one type.
pub(crate) struct Arrays {
    stream: Foreign,
    data_type: DataType,
}

impl Arrays {
    /// Takes a stream over.
    ///
    /// # Errors
    /// As [`Stream::new`].
    pub(crate) fn new(stream: FFI_ArrowArrayStream) -> Result<Self, ArrowError> {
        let mut stream = Foreign(stream);
        let data_type = Field::try_from(&stream.schema()?)?.data_type().clone();
        Ok(Arrays { stream, data_type })
    }

    /// The type of the arrays.
    pub(crate) fn data_type(&self) -> &DataType {
        &self.data_type
    }
}

impl Iterator for Arrays {
    type Item = Result<ArrayRef, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pulled = self.stream.pull(self.data_type.clone());
        pulled.map(|data| data.map(|data| values(&data))).transpose()
    }
}
