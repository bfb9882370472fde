//! Columns of values from Python: Arrow arrays and streams through the PyCapsule interface, and NumPy arrays
//! by their address in memory. Neither is copied, except for NumPy's texts, which take 32 bits per character.

use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BooleanArray, Int64Array, LargeBinaryBuilder,
    LargeStringBuilder, StructArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use tidemill_engine::column_types::sql_type_name;
use tidemill_engine::{Error, Result};

use crate::arrow_import::{self, ImportedArrays};
use crate::errors::to_exception;

/// Number of NumPy texts that become an array at a time.
const TEXTS_PER_ARRAY: usize = 1 << 16;

/// A column that can be read once.
pub(crate) struct ValueColumn {
    data_type: DataType,
    source: ValueSource,
    /// The rest of the current array.
    rest: Option<ArrayRef>,
}

enum ValueSource {
    /// No array besides `rest`.
    RestOnly,
    Stream(ImportedArrays),
    Texts(FixedWidthTexts),
}

fn unreadable_array_error(py: Python<'_>, error: impl std::fmt::Display) -> PyErr {
    to_exception(py, Error::usage(format!("the array cannot be read: {error}")))
}

impl ValueColumn {
    /// Imports the column of an object that exports an Arrow stream or array.
    pub(crate) fn from_arrow(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if !object.hasattr(intern!(py, "__arrow_c_stream__"))? {
            return ValueColumn::from_array(import_arrow_array(object)?, py);
        }
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
        // SAFETY: a capsule of this name holds a valid stream, which is moved out of it; a released stream
        // stays in the capsule.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
        let stream =
            ImportedArrays::new(stream).map_err(|error| unreadable_array_error(py, error))?;
        let data_type = single_column_type(stream.data_type(), py)?.clone();
        Ok(ValueColumn { data_type, source: ValueSource::Stream(stream), rest: None })
    }

    /// Imports a NumPy array that has one dimension, no gaps, and the machine's byte order.
    pub(crate) fn from_numpy(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = array.py();
        let numpy = NumpyArray::new(array)?;
        if let Some(width) = numpy.type_code.strip_prefix(['U', 'S']) {
            let width: usize = width.parse().map_err(|_| numpy.unsupported_type_error(py))?;
            let is_text = numpy.type_code.starts_with('U');
            let data_type = if is_text { DataType::LargeUtf8 } else { DataType::LargeBinary };
            let width = if is_text { width * 4 } else { width };
            let (buffer, len) = (numpy.memory(width)?, numpy.len);
            let texts = FixedWidthTexts { buffer, width, is_text, next: 0, len };
            return Ok(ValueColumn { data_type, source: ValueSource::Texts(texts), rest: None });
        }
        ValueColumn::from_array(numpy.to_arrow(py)?, py)
    }

    fn from_array(array: ArrayRef, py: Python<'_>) -> PyResult<Self> {
        let data_type = single_column_type(array.data_type(), py)?.clone();
        Ok(ValueColumn { data_type, source: ValueSource::RestOnly, rest: Some(array) })
    }

    /// Returns the type of the values.
    pub(crate) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Calls `take` with pieces of at most `piece_max` values, without the interpreter's lock, and checks
    /// signals between the pieces.
    pub(crate) fn for_each_piece(
        mut self,
        py: Python<'_>,
        piece_max: usize,
        mut take: impl FnMut(&ArrayRef) -> Result<()> + Send,
    ) -> PyResult<()> {
        let mut next = || -> Result<bool> {
            let piece = self
                .next_piece(piece_max)
                .map_err(|error| Error::usage(format!("the array cannot be read: {error}")))?;
            piece.as_ref().map_or(Ok(false), |piece| take(piece).map(|()| true))
        };
        while py.detach(&mut next).map_err(|error| to_exception(py, error))? {
            py.check_signals()?;
        }
        Ok(())
    }

    fn next_piece(&mut self, piece_max: usize) -> Result<Option<ArrayRef>, ArrowError> {
        loop {
            if let Some(rest) = self.rest.take() {
                let piece = rest.slice(0, rest.len().min(piece_max));
                if rest.len() > piece.len() {
                    self.rest = Some(rest.slice(piece.len(), rest.len() - piece.len()));
                }
                return Ok(Some(match piece.as_any().downcast_ref::<StructArray>() {
                    Some(records) => Arc::clone(records.column(0)),
                    None => piece,
                }));
            }
            self.rest = match &mut self.source {
                ValueSource::RestOnly => return Ok(None),
                ValueSource::Stream(stream) => match stream.next().transpose()? {
                    Some(array) => Some(array),
                    None => return Ok(None),
                },
                ValueSource::Texts(texts) => match texts.next_array()? {
                    Some(array) => Some(array),
                    None => return Ok(None),
                },
            };
        }
    }
}

/// Returns the type of a column, or of the only column of a table.
fn single_column_type<'a>(data_type: &'a DataType, py: Python<'_>) -> PyResult<&'a DataType> {
    let DataType::Struct(fields) = data_type else { return Ok(data_type) };
    if let [field] = fields.as_ref() {
        return Ok(field.data_type());
    }
    let names: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name())).collect();
    let error = Error::usage_with_hint(
        format!("a column is wanted, and this is a table of {}: {}", names.len(), names.join(", ")),
        "give one of its columns: table['name']",
    );
    Err(to_exception(py, error))
}

fn import_arrow_array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let pair = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
    let capsule = |index: usize| -> PyResult<Bound<'_, PyCapsule>> {
        Ok(pair.get_item(index)?.cast_into::<PyCapsule>()?)
    };
    let (schema, array) = (capsule(0)?, capsule(1)?);
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    let failed = |error: ArrowError| unreadable_array_error(object.py(), error);
    // SAFETY: a capsule of this name holds a valid schema, which stays its own.
    let data_type = DataType::try_from(unsafe { schema.as_ref() }).map_err(failed)?;
    // SAFETY: a capsule of this name holds a valid array, of the schema beside it. It is moved out.
    let data = unsafe {
        arrow_import::import_array_data(FFI_ArrowArray::from_raw(array.as_ptr()), data_type)
    };
    Ok(arrow_import::array_from_data(&data.map_err(failed)?))
}

/// A NumPy array.
struct NumpyArray<'a, 'py> {
    array: &'a Bound<'py, PyAny>,
    address: usize,
    len: usize,
    /// NumPy's type code: `i8`, `M8[us]`, `U12`.
    type_code: String,
}

impl NumpyArray<'_, '_> {
    fn new<'a, 'py>(array: &'a Bound<'py, PyAny>) -> PyResult<NumpyArray<'a, 'py>> {
        let interface = array.getattr(intern!(array.py(), "__array_interface__"))?;
        let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
        let (len,): (usize,) = interface.get_item("shape")?.extract()?;
        let kind: String = interface.get_item("typestr")?.extract()?;
        let kind = kind.trim_start_matches(['<', '>', '|', '=']).to_owned();
        Ok(NumpyArray { array, address, len, type_code: kind })
    }

    fn unsupported_type_error(&self, py: Python<'_>) -> PyErr {
        let kind = &self.type_code;
        to_exception(py, Error::usage(format!("an array of NumPy's type `{kind}` cannot be taken")))
    }

    /// Returns the memory of the values; the buffer keeps the array alive.
    fn memory(&self, width: usize) -> PyResult<Buffer> {
        struct Owner {
            _array: AssertUnwindSafe<Py<PyAny>>,
        }
        let bytes = self
            .len
            .checked_mul(width)
            .ok_or_else(|| self.unsupported_type_error(self.array.py()))?;
        let Some(start) = NonNull::new(self.address as *mut u8).filter(|_| bytes > 0) else {
            return Ok(Buffer::from_vec(Vec::<u64>::new()));
        };
        let owner = Arc::new(Owner { _array: AssertUnwindSafe(self.array.clone().unbind()) });
        // SAFETY: NumPy states the address of its values, which are valid as long as the array lives.
        Ok(unsafe { Buffer::from_custom_allocation(start, bytes, owner) })
    }

    fn to_arrow(&self, py: Python<'_>) -> PyResult<ArrayRef> {
        let of = |data_type: DataType, width| self.primitive_array(data_type, width);
        let time = |unit: &str| {
            Some(match unit {
                "s" => TimeUnit::Second,
                "ms" => TimeUnit::Millisecond,
                "us" => TimeUnit::Microsecond,
                "ns" => TimeUnit::Nanosecond,
                _ => return None,
            })
        };
        match self.type_code.as_str() {
            "i1" => of(DataType::Int8, 1),
            "i2" => of(DataType::Int16, 2),
            "i4" => of(DataType::Int32, 4),
            "i8" => of(DataType::Int64, 8),
            "u1" => of(DataType::UInt8, 1),
            "u2" => of(DataType::UInt16, 2),
            "u4" => of(DataType::UInt32, 4),
            "u8" => of(DataType::UInt64, 8),
            "f2" => of(DataType::Float16, 2),
            "f4" => of(DataType::Float32, 4),
            "f8" => of(DataType::Float64, 8),
            "b1" => {
                let bytes = self.memory(1)?;
                Ok(Arc::new(BooleanArray::from_iter(bytes.iter().map(|byte| Some(*byte != 0)))))
            }
            // Days are integers, as in date columns.
            "M8[D]" => self.time_array(DataType::Int64),
            kind => {
                let unit = kind.strip_suffix(']').and_then(|kind| kind.split_once('['));
                let data_type = match unit {
                    Some(("M8", unit)) => time(unit).map(|unit| DataType::Timestamp(unit, None)),
                    Some(("m8", unit)) => time(unit).map(DataType::Duration),
                    _ => None,
                };
                self.time_array(data_type.ok_or_else(|| self.unsupported_type_error(py))?)
            }
        }
    }

    fn primitive_array(&self, data_type: DataType, width: usize) -> PyResult<ArrayRef> {
        let data = ArrayData::builder(data_type).len(self.len).add_buffer(self.memory(width)?);
        Ok(make_array(
            data.build().map_err(|error| unreadable_array_error(self.array.py(), error))?,
        ))
    }

    /// Returns an array of times, in which NumPy's "not a time", the smallest integer, is null.
    fn time_array(&self, data_type: DataType) -> PyResult<ArrayRef> {
        let ticks = self.primitive_array(DataType::Int64, 8)?;
        let values: &Int64Array = ticks.as_primitive();
        let nulls = values
            .values()
            .contains(&i64::MIN)
            .then(|| NullBuffer::from_iter(values.values().iter().map(|value| *value != i64::MIN)));
        let data = ticks.to_data().into_builder().data_type(data_type).nulls(nulls);
        Ok(make_array(
            data.build().map_err(|error| unreadable_array_error(self.array.py(), error))?,
        ))
    }
}

/// NumPy texts or bytes of a fixed width; zeros at the end are padding.
struct FixedWidthTexts {
    buffer: Buffer,
    width: usize,
    is_text: bool,
    next: usize,
    len: usize,
}

impl FixedWidthTexts {
    fn next_array(&mut self) -> Result<Option<ArrayRef>, ArrowError> {
        let count = (self.len - self.next).min(TEXTS_PER_ARRAY);
        if count == 0 {
            return Ok(None);
        }
        let all = self.buffer.get(self.next * self.width..).unwrap_or_default();
        let each = (0..count).map(|at| &all[at * self.width..(at + 1) * self.width]);
        self.next += count;
        if !self.is_text {
            let mut builder = LargeBinaryBuilder::new();
            for value in each {
                let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                builder.append_value(&value[..end]);
            }
            return Ok(Some(Arc::new(builder.finish())));
        }
        let (mut builder, mut text) = (LargeStringBuilder::new(), String::new());
        for value in each {
            text.clear();
            // Zeros inside of a text are characters, zeros at its end are padding.
            let mut zeros = 0;
            for &bytes in value.as_chunks::<4>().0 {
                let code = u32::from_ne_bytes(bytes);
                if code == 0 {
                    zeros += 1;
                    continue;
                }
                text.extend(std::iter::repeat_n('\0', std::mem::take(&mut zeros)));
                text.push(char::from_u32(code).ok_or_else(|| {
                    ArrowError::InvalidArgumentError(format!("{code:#x} is no character"))
                })?);
            }
            builder.append_value(&text);
        }
        Ok(Some(Arc::new(builder.finish())))
    }
}

/// Returns the exception for a column of an unsupported type.
pub(crate) fn column_type_error(py: Python<'_>, what: &str, of: &DataType, hint: &str) -> PyErr {
    to_exception(py, Error::usage_with_hint(format!("{what} of type {}", sql_type_name(of)), hint))
}
