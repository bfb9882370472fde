//! Imports Arrow arrays and streams of other libraries into arrow-rs.
//!
//! A slice of a struct array has an offset, and its children keep their full length. If a child is a
//! struct array itself, arrow-rs (59.3) subtracts the offset twice and panics: `ArrayData::slice` slices
//! the children and keeps the offset, which the array built from it applies again. So imported data is
//! normalized first: struct arrays start at offset 0, and their children have the same length. Only
//! offsets move; no value is copied.
//!
//! Polars (2.1) exports arrays of the null type with a buffer. Arrow gives them none, and arrow-rs refuses
//! it, so the import ignores that buffer.

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

/// The reason why exported data is not a table.
pub(crate) enum TableImportError {
    /// The data is a single column.
    SingleColumn,
    /// A column has an extension type of one library, which others do not know.
    UnknownColumnType {
        column: String,
        format: String,
    },
    Arrow(ArrowError),
}

impl From<ArrowError> for TableImportError {
    fn from(error: ArrowError) -> Self {
        TableImportError::Arrow(error)
    }
}

/// Imports the schema of record batches.
///
/// # Errors
/// If the data has no columns, or a column has an unknown type.
pub(crate) fn import_table_schema(schema: &FFI_ArrowSchema) -> Result<Schema, TableImportError> {
    if schema.format() != "+s" {
        return Err(TableImportError::SingleColumn);
    }
    for column in schema.children() {
        if let Some(format) = find_foreign_type(column) {
            let (column, format) = (column.name().unwrap_or_default(), format);
            return Err(TableImportError::UnknownColumnType {
                column: column.to_owned(),
                format: format.to_owned(),
            });
        }
    }
    Ok(Schema::try_from(schema)?)
}

/// Returns the first library-specific type within a column's type. Arrow's own formats do not begin with `_`.
fn find_foreign_type(schema: &FFI_ArrowSchema) -> Option<&str> {
    let format = schema.format();
    if format.starts_with('_') {
        return Some(format);
    }
    schema
        .children()
        .find_map(find_foreign_type)
        .or_else(|| schema.dictionary().and_then(find_foreign_type))
}

/// Imports an array, and takes ownership of it.
///
/// # Safety
/// The array is valid and has the type `data_type`.
///
/// # Errors
/// If the layout does not match the type.
pub(crate) unsafe fn import_array_data(
    mut array: FFI_ArrowArray,
    data_type: DataType,
) -> Result<ArrayData, ArrowError> {
    // SAFETY: guaranteed by the caller.
    unsafe { hide_null_array_buffers(&mut array, &data_type) };
    // SAFETY: guaranteed by the caller.
    unsafe { from_ffi_and_data_type(array, data_type) }
}

/// Hides the buffers of null arrays from arrow-rs. The producer still releases them, as it keeps its own
/// record of them.
///
/// # Safety
/// The array is valid and has the type `data_type`.
unsafe fn hide_null_array_buffers(array: &mut FFI_ArrowArray, data_type: &DataType) {
    let inner: Vec<&DataType> = match data_type {
        DataType::Null => {
            array.n_buffers = 0;
            return;
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        DataType::Dictionary(_, values) => {
            // SAFETY: the dictionary of a valid array is valid or absent.
            if let Some(dictionary) = unsafe { array.dictionary.as_mut() } {
                // SAFETY: as above.
                unsafe { hide_null_array_buffers(dictionary, values) };
            }
            return;
        }
        _ => return,
    };
    for (index, data_type) in inner.into_iter().enumerate().take(array.num_children()) {
        // SAFETY: a valid array has as many children as it states, and each is valid.
        if let Some(child) = unsafe { array.children.add(index).read_unaligned().as_mut() } {
            // SAFETY: as above.
            unsafe { hide_null_array_buffers(child, data_type) };
        }
    }
}

/// Returns the rows of the struct array `data`.
///
/// # Errors
/// If its columns do not match the schema.
pub(crate) fn batch_from_data(
    data: ArrayData,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let rows = data.len();
    let (_, columns, _) = StructArray::from(normalize_struct_offsets(&data, 0, rows)).into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Returns the array of `data`.
pub(crate) fn array_from_data(data: &ArrayData) -> ArrayRef {
    make_array(normalize_struct_offsets(data, 0, data.len()))
}

/// Returns a slice of an array in which all struct arrays start at offset 0.
fn normalize_struct_offsets(data: &ArrayData, offset: usize, length: usize) -> ArrayData {
    let children = data.child_data();
    let builder = match data.data_type() {
        DataType::Struct(_) => {
            let at = data.offset() + offset;
            let children =
                children.iter().map(|child| normalize_struct_offsets(child, at, length)).collect();
            let nulls = data.nulls().map(|nulls| nulls.slice(offset, length));
            data.clone().into_builder().offset(0).len(length).nulls(nulls).child_data(children)
        }
        _ if children.is_empty() => return data.slice(offset, length),
        _ => {
            let children = children
                .iter()
                .map(|child| normalize_struct_offsets(child, 0, child.len()))
                .collect();
            data.slice(offset, length).into_builder().child_data(children)
        }
    };
    // SAFETY: the values and buffers are the same; only the offsets are represented differently.
    unsafe { builder.build_unchecked() }
}

/// A stream of another library, of batches or of arrays of one column.
struct ImportedStream(FFI_ArrowArrayStream);

impl ImportedStream {
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

    fn pull_array(&mut self, data_type: DataType) -> Result<Option<ArrayData>, ArrowError> {
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
        // SAFETY: the stream guarantees that its arrays match its schema.
        unsafe { import_array_data(array, data_type) }.map(Some)
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

/// A stream of record batches of another library.
pub(crate) struct ImportedBatches {
    stream: ImportedStream,
    schema: SchemaRef,
}

impl ImportedBatches {
    /// Takes ownership of a stream.
    ///
    /// # Errors
    /// If the stream was taken before, or has no columns of known types.
    pub(crate) fn new(stream: FFI_ArrowArrayStream) -> Result<Self, TableImportError> {
        let mut stream = ImportedStream(stream);
        Ok(ImportedBatches { schema: Arc::new(import_table_schema(&stream.schema()?)?), stream })
    }

    fn pull_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let data = self.stream.pull_array(DataType::Struct(self.schema.fields().clone()))?;
        data.map(|data| batch_from_data(data, &self.schema)).transpose()
    }
}

impl Iterator for ImportedBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull_batch().transpose()
    }
}

impl RecordBatchReader for ImportedBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A stream of arrays of another library, all of one type.
pub(crate) struct ImportedArrays {
    stream: ImportedStream,
    data_type: DataType,
}

impl ImportedArrays {
    /// Takes ownership of a stream.
    ///
    /// # Errors
    /// If the stream was taken before, or has an unknown type.
    pub(crate) fn new(stream: FFI_ArrowArrayStream) -> Result<Self, ArrowError> {
        let mut stream = ImportedStream(stream);
        let data_type = Field::try_from(&stream.schema()?)?.data_type().clone();
        Ok(ImportedArrays { stream, data_type })
    }

    /// Returns the type of the arrays.
    pub(crate) fn data_type(&self) -> &DataType {
        &self.data_type
    }
}

impl Iterator for ImportedArrays {
    type Item = Result<ArrayRef, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pulled = self.stream.pull_array(self.data_type.clone());
        pulled.map(|data| data.map(|data| array_from_data(&data))).transpose()
    }
}
