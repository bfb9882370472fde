//! Converts Python objects to rows of a rowfile. Rows are collected column by column, and become batches of
//! many rows.
//!
//! A value is accepted only if nothing of it is lost: no float for an integer, no time of day for a date, no
//! microseconds for a column of seconds.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow::array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, ListArray, MapArray, NullArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef, SchemaRef, i256};
use arrow::error::ArrowError;
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
    PyType,
};
use serde_json::Value;
use tidemill_rowfile::{FieldType, Schema, SchemaField, StringLayout, TemporalUnit};

/// The reason why an object is refused as a value of its column.
pub(crate) enum RowFault {
    /// The column's path, from the innermost name on, and the reason.
    InvalidValue(Vec<String>, String),
    /// An exception that Python code raised.
    PythonException(PyErr),
}

impl From<PyErr> for RowFault {
    fn from(error: PyErr) -> Self {
        RowFault::PythonException(error)
    }
}

type RowResult = Result<(), RowFault>;

/// The Python classes and functions that the conversion needs.
struct ConversionTypes {
    datetime: Py<PyAny>,
    date: Py<PyAny>,
    time: Py<PyAny>,
    timedelta: Py<PyAny>,
    decimal: Py<PyAny>,
    enum_class: Py<PyAny>,
    dataclass_fields: Py<PyAny>,
    is_dataclass: Py<PyAny>,
    epoch: Py<PyAny>,
    epoch_utc: Py<PyAny>,
}

impl ConversionTypes {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        let dataclasses = py.import("dataclasses")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let new = datetime.getattr("datetime")?;
        Ok(ConversionTypes {
            date: datetime.getattr("date")?.unbind(),
            time: datetime.getattr("time")?.unbind(),
            timedelta: datetime.getattr("timedelta")?.unbind(),
            decimal: py.import("decimal")?.getattr("Decimal")?.unbind(),
            enum_class: py.import("enum")?.getattr("Enum")?.unbind(),
            dataclass_fields: dataclasses.getattr("fields")?.unbind(),
            is_dataclass: dataclasses.getattr("is_dataclass")?.unbind(),
            epoch: new.call1((1970, 1, 1))?.unbind(),
            epoch_utc: new.call1((1970, 1, 1, 0, 0, 0, 0, utc))?.unbind(),
            datetime: new.unbind(),
        })
    }
}

/// The day number of 1970-01-01 as `date.toordinal` counts.
const EPOCH_ORDINAL: i64 = 719_163;

/// A builder that collects rows for a batch.
pub(crate) struct RowBuilder {
    kit: ConversionTypes,
    schema: SchemaRef,
    fields: FieldBuilders,
    row_count: usize,
    /// Bytes of the variable-length values so far.
    buffered_bytes: usize,
}

impl RowBuilder {
    pub(crate) fn new(py: Python<'_>, schema: &Schema) -> PyResult<Self> {
        let arrow = Arc::new(schema.to_arrow(StringLayout::Large));
        let fields = FieldBuilders::new(py, &schema.fields, arrow.fields());
        Ok(RowBuilder {
            kit: ConversionTypes::new(py)?,
            schema: arrow,
            fields,
            row_count: 0,
            buffered_bytes: 0,
        })
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(crate) fn row_count(&self) -> usize {
        self.row_count
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Adds a row: a dictionary, a mapping or an instance of a dataclass. A fault leaves the builder
    /// unchanged.
    pub(crate) fn push_row(&mut self, object: &Bound<'_, PyAny>) -> RowResult {
        let pushed = self.fields.push_row(&self.kit, object, &mut self.buffered_bytes);
        match pushed {
            Ok(()) => self.row_count += 1,
            Err(_) => self.fields.truncate(self.row_count),
        }
        pushed
    }

    /// Returns the rows so far as a batch, and empties the builder.
    pub(crate) fn take_batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.row_count);
        self.buffered_bytes = 0;
        let columns = self.fields.take_arrays()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// The builders of the columns of a row or a struct.
struct FieldBuilders {
    columns: Vec<ColumnBuilder>,
    names: Vec<Py<PyString>>,
    index_by_name: HashMap<String, usize>,
    /// Dataclasses seen so far, with a flag for each column: true if the dataclass has it.
    dataclass_columns: Vec<(Py<PyType>, Vec<bool>)>,
}

struct ColumnBuilder {
    name: String,
    arrow: FieldRef,
    field: SchemaField,
    validity: Vec<bool>,
    values: ColumnValues,
}

enum ColumnValues {
    Null,
    Boolean(Vec<bool>),
    Integer { values: Vec<i64>, min: i64, max: i64 },
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Decimal { values: Vec<i256>, precision: u8, scale: i8 },
    Text { ends: Vec<i64>, bytes: Vec<u8> },
    Binary { ends: Vec<i64>, bytes: Vec<u8> },
    Fixed { size: usize, bytes: Vec<u8> },
    Date(Vec<i64>),
    Time { values: Vec<i64>, unit: TemporalUnit },
    Timestamp { values: Vec<i64>, unit: TemporalUnit, has_zone: bool },
    Duration { values: Vec<i64>, unit: TemporalUnit },
    Enum(EnumSymbols),
    List { ends: Vec<usize>, items: Box<ColumnBuilder> },
    Map { ends: Vec<usize>, keys: Box<ColumnBuilder>, values: Box<ColumnBuilder> },
    Struct(FieldBuilders),
}

struct EnumSymbols {
    values: Vec<i32>,
    names: Vec<String>,
    number_by_symbol: HashMap<String, i32>,
    /// Enumerations seen so far, with a flag: true if their values, not their names, are the symbols.
    uses_values_by_class: Vec<(Py<PyType>, bool)>,
}

impl FieldBuilders {
    fn new(py: Python<'_>, fields: &[SchemaField], arrow: &arrow::datatypes::Fields) -> Self {
        let names = fields.iter().map(|field| PyString::intern(py, &field.name).unbind());
        let columns =
            fields.iter().zip(arrow).map(|(field, arrow)| ColumnBuilder::new(py, field, arrow));
        FieldBuilders {
            columns: columns.collect(),
            names: names.collect(),
            index_by_name: fields.iter().map(|field| field.name.clone()).zip(0..).collect(),
            dataclass_columns: Vec::new(),
        }
    }

    fn push_row(
        &mut self,
        kit: &ConversionTypes,
        object: &Bound<'_, PyAny>,
        bytes: &mut usize,
    ) -> RowResult {
        let py = object.py();
        if let Ok(row) = object.cast::<PyDict>() {
            return self.push_dict(kit, row, bytes);
        }
        let class = object.get_type();
        let known = self.dataclass_columns.iter().position(|(known, _)| known.is(&class));
        let at = match known {
            Some(at) => at,
            None if kit.is_dataclass.bind(py).call1((&class,))?.is_truthy()? => {
                let has = self.dataclass_column_flags(kit, &class)?;
                self.dataclass_columns.push((class.unbind(), has));
                self.dataclass_columns.len() - 1
            }
            None => {
                if object.cast::<PyMapping>().is_ok() {
                    let row = PyDict::new(py);
                    row.update(object.cast::<PyMapping>().map_err(PyErr::from)?)?;
                    return self.push_dict(kit, &row, bytes);
                }
                return Err(RowFault::InvalidValue(
                    Vec::new(),
                    format!(
                        "expected a dict or an instance of a dataclass, found {}",
                        describe_value(object)
                    ),
                ));
            }
        };
        let has = &self.dataclass_columns[at].1;
        for ((column, name), has) in self.columns.iter_mut().zip(&self.names).zip(has) {
            match has {
                true => match object.getattr(name.bind(py)) {
                    Ok(value) => column.push(kit, &value, bytes)?,
                    Err(error) if error.is_instance_of::<PyAttributeError>(py) => {
                        column.push_missing()?;
                    }
                    Err(error) => return Err(error.into()),
                },
                false => column.push_missing()?,
            }
        }
        Ok(())
    }

    fn push_dict(
        &mut self,
        kit: &ConversionTypes,
        row: &Bound<'_, PyDict>,
        bytes: &mut usize,
    ) -> RowResult {
        let py = row.py();
        let mut found = 0;
        for (column, name) in self.columns.iter_mut().zip(&self.names) {
            match row.get_item(name.bind(py))? {
                Some(value) => {
                    found += 1;
                    column.push(kit, &value, bytes)?;
                }
                None => match column.push_missing() {
                    Ok(()) => {}
                    // A field with an unknown name explains the missing one better.
                    Err(missing) => return self.check_names(row).and(Err(missing)),
                },
            }
        }
        if found == row.len() { Ok(()) } else { self.check_names(row) }
    }

    fn check_names(&self, row: &Bound<'_, PyDict>) -> RowResult {
        for key in row.keys() {
            let name: Option<String> = key.extract().ok();
            if name.as_ref().is_none_or(|name| !self.index_by_name.contains_key(name)) {
                let name = name.unwrap_or_else(|| describe_value(&key));
                return Err(RowFault::InvalidValue(Vec::new(), self.unknown_field_message(&name)));
            }
        }
        Ok(())
    }

    /// Returns a flag for each column, true if the dataclass has it; refuses other fields.
    fn dataclass_column_flags(
        &self,
        kit: &ConversionTypes,
        class: &Bound<'_, PyType>,
    ) -> Result<Vec<bool>, RowFault> {
        let py = class.py();
        let mut has = vec![false; self.columns.len()];
        for field in kit.dataclass_fields.bind(py).call1((class,))?.try_iter()? {
            let name: String = field?.getattr(intern!(py, "name"))?.extract()?;
            match self.index_by_name.get(&name) {
                Some(at) => has[*at] = true,
                None => {
                    return Err(RowFault::InvalidValue(
                        Vec::new(),
                        self.unknown_field_message(&name),
                    ));
                }
            }
        }
        Ok(has)
    }

    fn unknown_field_message(&self, name: &str) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        tidemill_engine::suggestions::unknown_name_message("field", name, &names)
    }

    fn push_placeholder(&mut self) {
        for column in &mut self.columns {
            column.push_placeholder();
            column.validity.push(!column.field.nullable);
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }

    fn take_arrays(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.iter_mut().map(ColumnBuilder::take_array).collect()
    }
}

/// Describes a value for messages: its text, shortened, and its type.
pub(crate) fn describe_value(object: &Bound<'_, PyAny>) -> String {
    const CHARS_MAX: usize = 60;
    let class = object.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    let text = object.repr().map(|text| text.to_string()).unwrap_or_default();
    if text.chars().count() > CHARS_MAX {
        let cut: String = text.chars().take(CHARS_MAX).collect();
        return format!("{cut}… ({class})");
    }
    format!("{text} ({class})")
}

impl ColumnBuilder {
    fn new(py: Python<'_>, field: &SchemaField, arrow: &FieldRef) -> Self {
        ColumnBuilder {
            name: field.name.clone(),
            arrow: Arc::clone(arrow),
            field: field.clone(),
            validity: Vec::new(),
            values: ColumnValues::new(py, &field.kind, arrow.data_type()),
        }
    }

    fn type_fault(&self, found: impl std::fmt::Display) -> RowResult {
        let expected = &self.field.kind;
        Err(RowFault::InvalidValue(
            vec![self.name.clone()],
            format!("expected {expected}, found {found}"),
        ))
    }

    fn value_fault(&self, reason: impl Into<String>) -> RowResult {
        Err(RowFault::InvalidValue(vec![self.name.clone()], reason.into()))
    }

    fn add_path(&self, done: RowResult) -> RowResult {
        done.map_err(|fault| match fault {
            RowFault::InvalidValue(mut path, reason) => {
                path.push(self.name.clone());
                RowFault::InvalidValue(path, reason)
            }
            other => other,
        })
    }

    fn push_null(&mut self) -> RowResult {
        if !self.field.nullable {
            return self.type_fault("None");
        }
        self.push_placeholder();
        self.validity.push(false);
        Ok(())
    }

    /// Adds the value of a field that the row lacks.
    fn push_missing(&mut self) -> RowResult {
        match self.field.default.clone() {
            Some(default) => self.push_json(&default),
            None if self.field.nullable => self.push_null(),
            None => self.value_fault("the row has no such field, which may not be null"),
        }
    }

    /// Adds a placeholder, which a null hides.
    fn push_placeholder(&mut self) {
        match &mut self.values {
            ColumnValues::Null => {}
            ColumnValues::Boolean(values) => values.push(false),
            ColumnValues::Integer { values, .. }
            | ColumnValues::Date(values)
            | ColumnValues::Time { values, .. }
            | ColumnValues::Timestamp { values, .. }
            | ColumnValues::Duration { values, .. } => values.push(0),
            ColumnValues::Unsigned(values) => values.push(0),
            ColumnValues::Float(values) => values.push(0.0),
            ColumnValues::Decimal { values, .. } => values.push(i256::ZERO),
            ColumnValues::Text { ends, bytes } | ColumnValues::Binary { ends, bytes } => {
                ends.push(bytes.len() as i64);
            }
            ColumnValues::Fixed { size, bytes } => bytes.resize(bytes.len() + *size, 0),
            ColumnValues::Enum(symbols) => symbols.values.push(0),
            ColumnValues::List { ends, items } => ends.push(items.validity.len()),
            ColumnValues::Map { ends, keys, .. } => ends.push(keys.validity.len()),
            ColumnValues::Struct(fields) => fields.push_placeholder(),
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.validity.truncate(rows);
        fn truncate_ends<T: Copy + Default>(ends: &mut Vec<T>, rows: usize) -> T {
            ends.truncate(rows);
            ends.last().copied().unwrap_or_default()
        }
        match &mut self.values {
            ColumnValues::Null => {}
            ColumnValues::Boolean(values) => values.truncate(rows),
            ColumnValues::Integer { values, .. }
            | ColumnValues::Date(values)
            | ColumnValues::Time { values, .. }
            | ColumnValues::Timestamp { values, .. }
            | ColumnValues::Duration { values, .. } => values.truncate(rows),
            ColumnValues::Unsigned(values) => values.truncate(rows),
            ColumnValues::Float(values) => values.truncate(rows),
            ColumnValues::Decimal { values, .. } => values.truncate(rows),
            ColumnValues::Text { ends, bytes } | ColumnValues::Binary { ends, bytes } => {
                bytes.truncate(usize::try_from(truncate_ends(ends, rows)).unwrap_or_default());
            }
            ColumnValues::Fixed { size, bytes } => bytes.truncate(rows * *size),
            ColumnValues::Enum(symbols) => symbols.values.truncate(rows),
            ColumnValues::List { ends, items } => items.truncate(truncate_ends(ends, rows)),
            ColumnValues::Map { ends, keys, values } => {
                let end = truncate_ends(ends, rows);
                keys.truncate(end);
                values.truncate(end);
            }
            ColumnValues::Struct(fields) => fields.truncate(rows),
        }
    }

    fn push(
        &mut self,
        kit: &ConversionTypes,
        object: &Bound<'_, PyAny>,
        bytes_seen: &mut usize,
    ) -> RowResult {
        let py = object.py();
        if object.is_none() {
            return self.push_null();
        }
        let is_a = |class: &Py<PyAny>| object.is_instance(class.bind(py));
        match &mut self.values {
            ColumnValues::Null => return self.type_fault(describe_value(object)),
            ColumnValues::Boolean(values) => match object.extract::<bool>() {
                Ok(value) => values.push(value),
                Err(_) => return self.type_fault(describe_value(object)),
            },
            ColumnValues::Integer { values, min, max } => match extract_i64(object) {
                Some(value) if (*min..=*max).contains(&value) => values.push(value),
                _ => return self.type_fault(describe_value(object)),
            },
            ColumnValues::Unsigned(values) => match extract_u64(object) {
                Some(value) => values.push(value),
                None => return self.type_fault(describe_value(object)),
            },
            ColumnValues::Float(values) => match extract_float(object, kit)? {
                Some(value) if stays_finite(value, &self.field.kind) => values.push(value),
                _ => return self.type_fault(describe_value(object)),
            },
            ColumnValues::Decimal { values, precision, scale } => {
                let is_number = is_a(&kit.decimal)?
                    || (object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>());
                let text = if is_number { Some(object.str()?.to_string()) } else { None };
                match text.and_then(|text| parse_scaled_decimal(&text, *precision, *scale)) {
                    Some(value) => values.push(value),
                    None => return self.type_fault(describe_value(object)),
                }
            }
            ColumnValues::Text { ends, bytes } => {
                let Ok(text) = object.cast::<PyString>() else {
                    return self.type_fault(describe_value(object));
                };
                match text.to_str() {
                    Ok(text) => {
                        bytes.extend_from_slice(text.as_bytes());
                        *bytes_seen += text.len();
                    }
                    Err(_) => {
                        return self
                            .type_fault(format!("a lone surrogate: {}", describe_value(object)));
                    }
                }
                ends.push(bytes.len() as i64);
            }
            ColumnValues::Binary { ends, bytes } => {
                let before = bytes.len();
                if !append_bytes(object, bytes)? {
                    return self.type_fault(describe_value(object));
                }
                ends.push(bytes.len() as i64);
                *bytes_seen += bytes.len() - before;
            }
            ColumnValues::Fixed { size, bytes } => {
                let (before, size) = (bytes.len(), *size);
                let is_taken = append_bytes(object, bytes)?;
                let found = bytes.len() - before;
                if !is_taken || found != size {
                    bytes.truncate(before);
                    return match is_taken {
                        true => self.type_fault(format!("{found} bytes")),
                        false => self.type_fault(describe_value(object)),
                    };
                }
                *bytes_seen += size;
            }
            ColumnValues::Date(values) => {
                if !is_a(&kit.date)? || is_a(&kit.datetime)? {
                    return self.type_fault(describe_value(object));
                }
                let ordinal: i64 = object.call_method0(intern!(py, "toordinal"))?.extract()?;
                let day = ordinal - EPOCH_ORDINAL;
                let is_days = self.field.kind == FieldType::Date;
                values.push(if is_days { day } else { day * 86_400_000 });
            }
            ColumnValues::Time { values, unit } => {
                if !is_a(&kit.time)? {
                    return self.type_fault(describe_value(object));
                }
                if !object.getattr(intern!(py, "tzinfo"))?.is_none() {
                    return self
                        .type_fault(format!("a time with a zone: {}", describe_value(object)));
                }
                let part = |name| -> PyResult<i64> { object.getattr(name)?.extract() };
                let (hour, minute) = (part(intern!(py, "hour"))?, part(intern!(py, "minute"))?);
                let seconds = (hour * 60 + minute) * 60 + part(intern!(py, "second"))?;
                match time_to_ticks(seconds, part(intern!(py, "microsecond"))?, 0, *unit) {
                    Some(value) => values.push(value),
                    None => return self.precision_fault(object),
                }
            }
            ColumnValues::Timestamp { values, unit, has_zone } => {
                if !is_a(&kit.datetime)? {
                    return self.type_fault(describe_value(object));
                }
                let is_local = object.getattr(intern!(py, "tzinfo"))?.is_none();
                if is_local == *has_zone {
                    let what = if is_local { "without" } else { "with" };
                    return self
                        .type_fault(format!("a time {what} a zone: {}", describe_value(object)));
                }
                let epoch = if is_local { &kit.epoch } else { &kit.epoch_utc };
                let (seconds, micros) = match timedelta_parts(&object.sub(epoch.bind(py))?) {
                    Ok(parts) => parts,
                    Err(_) => return self.type_fault(describe_value(object)),
                };
                // pandas' subclass has nanoseconds too.
                let is_other = !object.get_type().is(&kit.datetime);
                let nanos: i64 = match is_other {
                    true => match object.getattr_opt(intern!(py, "nanosecond"))? {
                        Some(nanos) => nanos.extract()?,
                        None => 0,
                    },
                    false => 0,
                };
                match time_to_ticks(seconds, micros, nanos, *unit) {
                    Some(value) => values.push(value),
                    None => return self.precision_fault(object),
                }
            }
            ColumnValues::Duration { values, unit } => {
                if !is_a(&kit.timedelta)? {
                    return self.type_fault(describe_value(object));
                }
                let Ok((seconds, micros)) = timedelta_parts(object) else {
                    return self.type_fault(describe_value(object));
                };
                let nanos: i64 = match object.getattr_opt(intern!(py, "nanoseconds"))? {
                    Some(nanos) => nanos.extract()?,
                    None => 0,
                };
                match time_to_ticks(seconds, micros, nanos, *unit) {
                    Some(value) => values.push(value),
                    None => return self.precision_fault(object),
                }
            }
            ColumnValues::Enum(symbols) => match symbols.find_symbol(kit, object)? {
                Some(symbol) => symbols.values.push(symbol),
                None => {
                    let names = symbols.names.join(", ");
                    let found = describe_value(object);
                    return self.value_fault(format!("expected one of {names}, found {found}"));
                }
            },
            ColumnValues::List { ends, items } => {
                let mut pushed = Ok(());
                if let Ok(list) = object.cast::<PyList>() {
                    for item in list.iter() {
                        pushed = items.push(kit, &item, bytes_seen);
                        if pushed.is_err() {
                            break;
                        }
                    }
                } else if is_sequence(object)? {
                    for item in object.try_iter()? {
                        pushed = items.push(kit, &item?, bytes_seen);
                        if pushed.is_err() {
                            break;
                        }
                    }
                } else {
                    return self.type_fault(describe_value(object));
                }
                if pushed.is_err() {
                    return self.add_path(pushed);
                }
                if items.validity.len() > i32::MAX as usize {
                    return self.value_fault("a batch of rows has more items than fit");
                }
                ends.push(items.validity.len());
            }
            ColumnValues::Map { ends, keys, values } => {
                let copy;
                let map = match object.cast::<PyDict>() {
                    Ok(map) => map,
                    Err(_) => match object.cast::<PyMapping>() {
                        Ok(map) => {
                            copy = PyDict::new(py);
                            copy.update(map)?;
                            &copy
                        }
                        Err(_) => return self.type_fault(describe_value(object)),
                    },
                };
                let mut pushed = Ok(());
                for (key, value) in map.iter() {
                    pushed = keys.push(kit, &key, bytes_seen);
                    if pushed.is_ok() {
                        pushed = values.push(kit, &value, bytes_seen);
                    }
                    if pushed.is_err() {
                        break;
                    }
                }
                if pushed.is_err() {
                    return self.add_path(pushed);
                }
                if keys.validity.len() > i32::MAX as usize {
                    return self.value_fault("a batch of rows has more pairs than fit");
                }
                ends.push(keys.validity.len());
            }
            ColumnValues::Struct(fields) => {
                let pushed = fields.push_row(kit, object, bytes_seen);
                if pushed.is_err() {
                    return self.add_path(pushed);
                }
            }
        }
        self.validity.push(true);
        Ok(())
    }

    fn precision_fault(&self, object: &Bound<'_, PyAny>) -> RowResult {
        self.type_fault(format!("{}, which does not fit its unit", describe_value(object)))
    }

    /// Adds a default value in the JSON form of the rowfile format.
    fn push_json(&mut self, json: &Value) -> RowResult {
        let wrong = |column: &Self| {
            column.value_fault(format!("its default {json} is no {}", column.field.kind))
        };
        if json.is_null() {
            return self.push_null();
        }
        let pushed = match (&mut self.values, json) {
            (ColumnValues::Boolean(values), Value::Bool(value)) => {
                values.push(*value);
                true
            }
            (ColumnValues::Integer { values, min, max }, Value::Number(number)) => {
                let value = number.as_i64().filter(|value| (*min..=*max).contains(value));
                values.extend(value);
                value.is_some()
            }
            (
                ColumnValues::Date(values)
                | ColumnValues::Time { values, .. }
                | ColumnValues::Timestamp { values, .. }
                | ColumnValues::Duration { values, .. },
                Value::Number(number),
            ) => {
                values.extend(number.as_i64());
                number.is_i64()
            }
            (ColumnValues::Unsigned(values), Value::Number(number)) => {
                values.extend(number.as_u64());
                number.is_u64()
            }
            (ColumnValues::Float(values), Value::Number(number)) => {
                values.extend(number.as_f64());
                number.as_f64().is_some()
            }
            (
                ColumnValues::Decimal { values, precision, scale },
                Value::String(_) | Value::Number(_),
            ) => {
                let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
                let value = parse_scaled_decimal(&text, *precision, *scale);
                values.extend(value);
                value.is_some()
            }
            (ColumnValues::Text { ends, bytes }, Value::String(text)) => {
                bytes.extend_from_slice(text.as_bytes());
                ends.push(bytes.len() as i64);
                true
            }
            (ColumnValues::Binary { ends, bytes }, Value::String(text)) => {
                let value: Option<Vec<u8>> = decode_latin1(text);
                let is_taken = value.is_some();
                bytes.extend(value.unwrap_or_default());
                if is_taken {
                    ends.push(bytes.len() as i64);
                }
                is_taken
            }
            (ColumnValues::Fixed { size, bytes }, Value::String(text)) => {
                let value = decode_latin1(text).filter(|value| value.len() == *size);
                let is_taken = value.is_some();
                bytes.extend(value.unwrap_or_default());
                is_taken
            }
            (ColumnValues::Enum(symbols), Value::String(text)) => {
                let symbol = symbols.number_by_symbol.get(text).copied();
                symbols.values.extend(symbol);
                symbol.is_some()
            }
            (ColumnValues::List { ends, items }, Value::Array(values)) => {
                for value in values {
                    items.push_json(value)?;
                }
                ends.push(items.validity.len());
                true
            }
            (ColumnValues::Map { ends, keys, values }, Value::Object(pairs)) => {
                for (key, value) in pairs {
                    keys.push_json(&Value::String(key.clone()))?;
                    values.push_json(value)?;
                }
                ends.push(keys.validity.len());
                true
            }
            (ColumnValues::Struct(fields), Value::Object(pairs)) => {
                for column in &mut fields.columns {
                    match pairs.get(&column.name) {
                        Some(value) => column.push_json(value)?,
                        None => column.push_missing()?,
                    }
                }
                true
            }
            _ => false,
        };
        if !pushed {
            return wrong(self);
        }
        self.validity.push(true);
        Ok(())
    }

    fn take_array(&mut self) -> Result<ArrayRef, ArrowError> {
        let data_type = self.arrow.data_type();
        let valid = std::mem::take(&mut self.validity);
        let rows = valid.len();
        let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
        fn offsets(ends: &[usize]) -> OffsetBuffer<i32> {
            let starts = std::iter::once(&0).chain(ends);
            OffsetBuffer::from_lengths(ends.iter().zip(starts).map(|(end, start)| end - start))
        }
        fn large_offsets(ends: &[i64]) -> OffsetBuffer<i64> {
            let all: Vec<i64> = std::iter::once(0).chain(ends.iter().copied()).collect();
            OffsetBuffer::new(all.into())
        }
        /// Builds an array of integers of the type's width; their range was checked when they were added.
        macro_rules! integers {
            ($arrow:ty, $values:expr) => {{
                let values = $values.into_iter().map(|value| value as _);
                let array = PrimitiveArray::<$arrow>::new(values.collect::<Vec<_>>().into(), nulls);
                let data = array.into_data().into_builder().data_type(data_type.clone());
                make_array(data.build()?)
            }};
        }
        Ok(match &mut self.values {
            ColumnValues::Null => Arc::new(NullArray::new(rows)),
            ColumnValues::Boolean(values) => {
                Arc::new(BooleanArray::new(std::mem::take(values).into(), nulls))
            }
            ColumnValues::Integer { values, min, .. } => {
                let values = std::mem::take(values);
                match (data_type.primitive_width(), *min < 0) {
                    (Some(1), true) => integers!(Int8Type, values),
                    (Some(2), true) => integers!(Int16Type, values),
                    (Some(4), true) => integers!(Int32Type, values),
                    (_, true) => integers!(Int64Type, values),
                    (Some(1), false) => integers!(UInt8Type, values),
                    (Some(2), false) => integers!(UInt16Type, values),
                    (_, false) => integers!(UInt32Type, values),
                }
            }
            ColumnValues::Date(values)
            | ColumnValues::Time { values, .. }
            | ColumnValues::Timestamp { values, .. }
            | ColumnValues::Duration { values, .. } => {
                let values = std::mem::take(values);
                match data_type.primitive_width() {
                    Some(4) => integers!(Int32Type, values),
                    _ => integers!(Int64Type, values),
                }
            }
            ColumnValues::Unsigned(values) => integers!(UInt64Type, std::mem::take(values)),
            ColumnValues::Float(values) => {
                let values = std::mem::take(values).into_iter();
                match data_type {
                    DataType::Float16 => {
                        type Half = <Float16Type as ArrowPrimitiveType>::Native;
                        let values: Vec<Half> = values.map(Half::from_f64).collect();
                        Arc::new(PrimitiveArray::<Float16Type>::new(values.into(), nulls))
                    }
                    DataType::Float32 => {
                        let values: Vec<f32> = values.map(|value| value as f32).collect();
                        Arc::new(PrimitiveArray::<Float32Type>::new(values.into(), nulls))
                    }
                    _ => {
                        let values: Vec<f64> = values.collect();
                        Arc::new(PrimitiveArray::<Float64Type>::new(values.into(), nulls))
                    }
                }
            }
            ColumnValues::Decimal { values, .. } => {
                let values = std::mem::take(values);
                let narrow = values.iter().map(|value| value.as_i128());
                macro_rules! decimals {
                    ($arrow:ty, $values:expr) => {{
                        let array = PrimitiveArray::<$arrow>::new($values.into(), nulls);
                        Arc::new(array.with_data_type(data_type.clone()))
                    }};
                }
                match data_type {
                    DataType::Decimal32(..) => {
                        decimals!(Decimal32Type, narrow.map(|it| it as i32).collect::<Vec<_>>())
                    }
                    DataType::Decimal64(..) => {
                        decimals!(Decimal64Type, narrow.map(|it| it as i64).collect::<Vec<_>>())
                    }
                    DataType::Decimal128(..) => {
                        decimals!(Decimal128Type, narrow.collect::<Vec<_>>())
                    }
                    _ => decimals!(Decimal256Type, values),
                }
            }
            ColumnValues::Text { ends, bytes } => {
                let bytes = Buffer::from(std::mem::take(bytes));
                let ends = large_offsets(&std::mem::take(ends));
                Arc::new(LargeStringArray::try_new(ends, bytes, nulls)?)
            }
            ColumnValues::Binary { ends, bytes } => {
                let bytes = Buffer::from(std::mem::take(bytes));
                let ends = large_offsets(&std::mem::take(ends));
                Arc::new(LargeBinaryArray::try_new(ends, bytes, nulls)?)
            }
            ColumnValues::Fixed { size, bytes } => {
                let size = i32::try_from(*size).unwrap_or(i32::MAX);
                let bytes = std::mem::take(bytes);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(size, bytes.into(), nulls, rows)?)
            }
            ColumnValues::Enum(symbols) => {
                let keys = std::mem::take(&mut symbols.values);
                let keys = PrimitiveArray::<Int32Type>::try_new(keys.into(), nulls)?;
                let names = StringArray::from_iter_values(symbols.names.iter());
                Arc::new(DictionaryArray::try_new(keys, Arc::new(names))?)
            }
            ColumnValues::List { ends, items } => {
                let DataType::List(item) = data_type else {
                    return Err(builder_mismatch_error(data_type));
                };
                let ends = std::mem::take(ends);
                let items = items.take_array()?;
                Arc::new(ListArray::try_new(Arc::clone(item), offsets(&ends), items, nulls)?)
            }
            ColumnValues::Map { ends, keys, values } => {
                let DataType::Map(entries, sorted) = data_type else {
                    return Err(builder_mismatch_error(data_type));
                };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(builder_mismatch_error(data_type));
                };
                let ends = std::mem::take(ends);
                let pairs = vec![keys.take_array()?, values.take_array()?];
                let pairs = StructArray::try_new(pair.clone(), pairs, None)?;
                let entries = Arc::clone(entries);
                Arc::new(MapArray::try_new(entries, offsets(&ends), pairs, nulls, *sorted)?)
            }
            ColumnValues::Struct(inner) => {
                let DataType::Struct(fields) = data_type else {
                    return Err(builder_mismatch_error(data_type));
                };
                let arrays = inner.take_arrays()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?)
            }
        })
    }
}

fn builder_mismatch_error(data_type: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("a column of {data_type} was built as another type"))
}

impl ColumnValues {
    fn new(py: Python<'_>, kind: &FieldType, arrow: &DataType) -> Self {
        let integer = |min: i64, max: i64| ColumnValues::Integer { values: Vec::new(), min, max };
        match (kind, arrow) {
            (FieldType::Boolean, _) => ColumnValues::Boolean(Vec::new()),
            (FieldType::Int8, _) => integer(i8::MIN.into(), i8::MAX.into()),
            (FieldType::Int16, _) => integer(i16::MIN.into(), i16::MAX.into()),
            (FieldType::Int32, _) => integer(i32::MIN.into(), i32::MAX.into()),
            (FieldType::Int64, _) => integer(i64::MIN, i64::MAX),
            (FieldType::Uint8, _) => integer(0, u8::MAX.into()),
            (FieldType::Uint16, _) => integer(0, u16::MAX.into()),
            (FieldType::Uint32, _) => integer(0, u32::MAX.into()),
            (FieldType::Uint64, _) => ColumnValues::Unsigned(Vec::new()),
            (FieldType::Float16 | FieldType::Float32 | FieldType::Float64, _) => {
                ColumnValues::Float(Vec::new())
            }
            (FieldType::Decimal { precision, scale, .. }, _) => {
                ColumnValues::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            (FieldType::String, _) => ColumnValues::Text { ends: Vec::new(), bytes: Vec::new() },
            (FieldType::Binary, _) => ColumnValues::Binary { ends: Vec::new(), bytes: Vec::new() },
            (FieldType::Fixed(size), _) => {
                ColumnValues::Fixed { size: *size as usize, bytes: Vec::new() }
            }
            (FieldType::Date | FieldType::Date64, _) => ColumnValues::Date(Vec::new()),
            (FieldType::Time(unit), _) => ColumnValues::Time { values: Vec::new(), unit: *unit },
            (FieldType::Timestamp { unit, zone }, _) => ColumnValues::Timestamp {
                values: Vec::new(),
                unit: *unit,
                has_zone: zone.is_some(),
            },
            (FieldType::Duration(unit), _) => {
                ColumnValues::Duration { values: Vec::new(), unit: *unit }
            }
            (FieldType::Enum { symbols, .. }, _) => ColumnValues::Enum(EnumSymbols {
                values: Vec::new(),
                names: symbols.clone(),
                number_by_symbol: symbols.iter().cloned().zip(0..).collect(),
                uses_values_by_class: Vec::new(),
            }),
            (FieldType::List(item), DataType::List(inner)) => ColumnValues::List {
                ends: Vec::new(),
                items: Box::new(ColumnBuilder::new(py, item, inner)),
            },
            (FieldType::Map { key, value, .. }, DataType::Map(entries, _)) => {
                match entries.data_type() {
                    DataType::Struct(pair) if pair.len() == 2 => ColumnValues::Map {
                        ends: Vec::new(),
                        keys: Box::new(ColumnBuilder::new(py, key, &pair[0])),
                        values: Box::new(ColumnBuilder::new(py, value, &pair[1])),
                    },
                    _ => ColumnValues::Null,
                }
            }
            (FieldType::Struct(fields), DataType::Struct(inner)) => {
                ColumnValues::Struct(FieldBuilders::new(py, fields, inner))
            }
            _ => ColumnValues::Null,
        }
    }
}

impl EnumSymbols {
    /// Returns the number of a symbol. A symbol is a text, or a member of an enumeration: its value if all
    /// values of the enumeration are texts, else its name.
    fn find_symbol(
        &mut self,
        kit: &ConversionTypes,
        object: &Bound<'_, PyAny>,
    ) -> Result<Option<i32>, RowFault> {
        let py = object.py();
        if !object.is_instance(kit.enum_class.bind(py))? {
            let Ok(text) = object.cast::<PyString>() else { return Ok(None) };
            return Ok(text
                .to_str()
                .ok()
                .and_then(|text| self.number_by_symbol.get(text).copied()));
        }
        let class = object.get_type();
        let by_value = match self.uses_values_by_class.iter().find(|(known, _)| known.is(&class)) {
            Some((_, by_value)) => *by_value,
            None => {
                let mut by_value = true;
                for member in class.try_iter()? {
                    let value = member?.getattr(intern!(py, "value"))?;
                    by_value &= value.is_instance_of::<PyString>();
                }
                self.uses_values_by_class.push((class.unbind(), by_value));
                by_value
            }
        };
        let name = if by_value { intern!(py, "value") } else { intern!(py, "name") };
        let text: String = object.getattr(name)?.extract()?;
        Ok(self.number_by_symbol.get(&text).copied())
    }
}

/// Returns an integer; booleans are refused.
fn extract_i64(object: &Bound<'_, PyAny>) -> Option<i64> {
    if object.is_instance_of::<PyBool>() {
        return None;
    }
    object.extract().ok()
}

fn extract_u64(object: &Bound<'_, PyAny>) -> Option<u64> {
    if object.is_instance_of::<PyBool>() {
        return None;
    }
    object.extract().ok()
}

/// Returns a float, or an integer that a float represents exactly.
fn extract_float(object: &Bound<'_, PyAny>, kit: &ConversionTypes) -> PyResult<Option<f64>> {
    let py = object.py();
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(Some(value.value()));
    }
    if object.is_instance_of::<PyBool>() || object.is_instance(kit.decimal.bind(py))? {
        return Ok(None);
    }
    let Ok(value) = object.extract::<f64>() else { return Ok(None) };
    let is_exact =
        !object.is_instance_of::<PyInt>() || PyFloat::new(py, value).into_any().eq(object)?;
    Ok(is_exact.then_some(value))
}

/// Returns true if a finite float stays finite in its type.
fn stays_finite(value: f64, kind: &FieldType) -> bool {
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    !value.is_finite()
        || match kind {
            FieldType::Float16 => Half::from_f64(value).is_finite(),
            FieldType::Float32 => (value as f32).is_finite(),
            _ => true,
        }
}

/// Appends the bytes of a bytes-like object; returns false for other objects.
fn append_bytes(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        out.extend_from_slice(bytes.as_bytes());
        return Ok(true);
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        out.extend_from_slice(&bytes.to_vec());
        return Ok(true);
    }
    if object.get_type().name()?.to_str()? == "memoryview" {
        let bytes = object.call_method0(intern!(object.py(), "tobytes"))?;
        out.extend_from_slice(bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
        return Ok(true);
    }
    Ok(false)
}

/// Returns true for an object with items in an order: a tuple, an array.
fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyTuple>() {
        return Ok(true);
    }
    let is_one_value = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.cast::<PyMapping>().is_ok();
    Ok(!is_one_value && object.hasattr("__getitem__")? && object.hasattr("__len__")?)
}

/// Returns the seconds and microseconds of a `timedelta`.
pub(crate) fn timedelta_parts(object: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
    let py = object.py();
    let days: i64 = object.getattr(intern!(py, "days"))?.extract()?;
    let seconds: i64 = object.getattr(intern!(py, "seconds"))?.extract()?;
    let micros: i64 = object.getattr(intern!(py, "microseconds"))?.extract()?;
    Ok((days * 86_400 + seconds, micros))
}

/// Converts a time to its unit; `None` if precision would be lost or the value does not fit.
fn time_to_ticks(seconds: i64, micros: i64, nanos: i64, unit: TemporalUnit) -> Option<i64> {
    let per_second = match unit {
        TemporalUnit::Second => 1,
        TemporalUnit::Millisecond => 1_000,
        TemporalUnit::Microsecond => 1_000_000,
        TemporalUnit::Nanosecond => 1_000_000_000,
    };
    let nanos =
        i128::from(seconds) * 1_000_000_000 + i128::from(micros) * 1_000 + i128::from(nanos);
    let per_tick = 1_000_000_000 / per_second;
    (nanos % per_tick == 0).then(|| i64::try_from(nanos / per_tick).ok()).flatten()
}

/// Parses a decimal to an integer scaled by `10^scale`; `None` if digits would be lost.
fn parse_scaled_decimal(text: &str, precision: u8, scale: i8) -> Option<i256> {
    /// Limit of appended zeros, above the number of digits of any decimal type.
    const APPENDED_ZEROS_MAX: i64 = 100;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (digits, exponent) = match digits.split_once(['E', 'e']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let mut all = format!("{whole}{behind}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if all.bytes().all(|byte| byte == b'0') {
        return Some(i256::ZERO);
    }
    let behind = i64::try_from(behind.len()).ok()?;
    let missing = i64::from(scale).checked_sub(behind)?.checked_add(exponent)?;
    if missing > APPENDED_ZEROS_MAX {
        return None;
    }
    match usize::try_from(missing) {
        Ok(missing) => all.push_str(&"0".repeat(missing)),
        Err(_) => {
            let kept = all.len().checked_sub(usize::try_from(-missing).ok()?)?;
            if all[kept..].bytes().any(|byte| byte != b'0') {
                return None;
            }
            all.truncate(kept);
        }
    }
    let all = all.trim_start_matches('0');
    if all.len() > usize::from(precision) {
        return None;
    }
    i256::from_string(&format!("{sign}{all}"))
}

/// Decodes bytes that are written as characters up to U+00FF.
fn decode_latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect()
}
