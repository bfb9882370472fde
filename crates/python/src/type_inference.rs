//! Infers the columns of Python rows. The type of a column covers the values of all rows: integers beside
//! floats are floats, and a field that some rows lack is nullable. Values without a common type are refused,
//! with the two rows that differ. No value is converted to text.

use std::collections::HashMap;

use arrow::array::{RecordBatch, RecordBatchIterator};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
};
use serde_json::{Value, json};
use tidemill_engine::Error;
use tidemill_rowfile::Schema;

use crate::errors::to_exception;
use crate::object_sources::RawStream;
use crate::rowfile::row_builder::{RowBuilder, RowFault, describe_value};

/// Maximum number of rows per batch.
const BATCH_ROWS_MAX: usize = 8192;
/// Maximum bytes of variable-length values per batch.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Maximum number of digits of a decimal.
const DECIMAL_DIGITS_MAX: u64 = 76;

/// The type that covers the values of a column so far.
enum InferredType {
    /// Only nulls.
    Null,
    Boolean,
    /// `is_above_i64`: some values exceed the signed range; `is_negative`: some are negative.
    Integer {
        is_above_i64: bool,
        is_negative: bool,
    },
    Float,
    Decimal {
        integer_digits: u64,
        fraction_digits: u64,
    },
    Text,
    Binary,
    Date,
    Time,
    Timestamp {
        has_zone: bool,
    },
    Duration,
    List(Box<InferredColumn>),
    Struct(InferredColumns),
}

impl InferredType {
    /// Returns the type's name in Python.
    fn python_name(&self) -> &'static str {
        match self {
            InferredType::Null => "None",
            InferredType::Boolean => "bool",
            InferredType::Integer { .. } => "int",
            InferredType::Float => "float",
            InferredType::Decimal { .. } => "Decimal",
            InferredType::Text => "str",
            InferredType::Binary => "bytes",
            InferredType::Date => "date",
            InferredType::Time => "time",
            InferredType::Timestamp { has_zone: false } => "datetime without a zone",
            InferredType::Timestamp { has_zone: true } => "datetime with a zone",
            InferredType::Duration => "timedelta",
            InferredType::List(_) => "list",
            InferredType::Struct(_) => "dict",
        }
    }

    /// Returns the type in the JSON form of a rowfile schema.
    fn to_schema_json(&self) -> Value {
        match self {
            InferredType::Null => json!("null"),
            InferredType::Boolean => json!("boolean"),
            InferredType::Integer { is_above_i64: true, is_negative: false } => json!("uint64"),
            InferredType::Integer { .. } => json!("int64"),
            InferredType::Float => json!("float64"),
            InferredType::Decimal { integer_digits: whole, fraction_digits: behind } => {
                let precision = (whole + behind).max(1);
                let bits = if precision <= 38 { 128 } else { 256 };
                json!({"decimal": {"bits": bits, "precision": precision, "scale": behind}})
            }
            InferredType::Text => json!("string"),
            InferredType::Binary => json!("binary"),
            InferredType::Date => json!("date"),
            InferredType::Time => json!({"time": "us"}),
            InferredType::Timestamp { has_zone: false } => json!({"timestamp": {"unit": "us"}}),
            InferredType::Timestamp { has_zone: true } => {
                json!({"timestamp": {"unit": "us", "zone": "UTC"}})
            }
            InferredType::Duration => json!({"duration": "us"}),
            InferredType::List(item) => json!({"list": item.to_schema_json("item")}),
            InferredType::Struct(columns) => json!({"struct": columns.to_schema_json()}),
        }
    }
}

struct InferredColumn {
    inferred_type: InferredType,
    /// Number of the first row with a value.
    first_row: u64,
}

#[derive(Default)]
struct InferredColumns {
    columns: Vec<(String, InferredColumn)>,
    index_by_name: HashMap<String, usize>,
}

impl InferredColumns {
    fn to_schema_json(&self) -> Vec<Value> {
        self.columns.iter().map(|(name, column)| column.to_schema_json(name)).collect()
    }

    fn observe_row(
        &mut self,
        kit: &InferenceTypes<'_>,
        fields: &Bound<'_, PyDict>,
        row: u64,
    ) -> Result<(), RowFault> {
        for (key, value) in fields.iter() {
            let name: String = match key.cast::<PyString>() {
                Ok(name) => name.extract()?,
                Err(_) => {
                    let reason =
                        format!("the name of a column is a str, not {}", describe_value(&key));
                    return Err(RowFault::InvalidValue(Vec::new(), reason));
                }
            };
            let at = match self.index_by_name.get(&name) {
                Some(at) => *at,
                None => {
                    self.index_by_name.insert(name.clone(), self.columns.len());
                    self.columns.push((
                        name.clone(),
                        InferredColumn { inferred_type: InferredType::Null, first_row: row },
                    ));
                    self.columns.len() - 1
                }
            };
            if let Some((_, column)) = self.columns.get_mut(at) {
                column
                    .observe_value(kit, &value, row)
                    .map_err(|fault| prepend_path(fault, name))?;
            }
        }
        Ok(())
    }
}

fn prepend_path(fault: RowFault, name: String) -> RowFault {
    match fault {
        RowFault::InvalidValue(mut path, reason) => {
            path.push(name);
            RowFault::InvalidValue(path, reason)
        }
        raised => raised,
    }
}

/// The Python classes that the inference distinguishes.
struct InferenceTypes<'py> {
    datetime: Bound<'py, PyAny>,
    date: Bound<'py, PyAny>,
    time: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
    decimal: Bound<'py, PyAny>,
}

impl<'py> InferenceTypes<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        Ok(InferenceTypes {
            datetime: datetime.getattr("datetime")?,
            date: datetime.getattr("date")?,
            time: datetime.getattr("time")?,
            timedelta: datetime.getattr("timedelta")?,
            decimal: py.import("decimal")?.getattr("Decimal")?,
        })
    }

    /// Returns the type of a scalar; `None` if no column can hold it.
    fn infer_scalar_type(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<InferredType>> {
        let py = object.py();
        if object.is_instance_of::<PyBool>() {
            return Ok(Some(InferredType::Boolean));
        }
        if object.is_instance_of::<PyInt>() {
            let is_negative = object.lt(0)?;
            let is_large = object.extract::<i64>().is_err();
            let fits = !is_large || object.extract::<u64>().is_ok();
            return Ok(
                fits.then_some(InferredType::Integer { is_above_i64: is_large, is_negative })
            );
        }
        if object.is_instance_of::<PyFloat>() {
            return Ok(Some(InferredType::Float));
        }
        if object.is_instance_of::<PyString>() {
            return Ok(Some(InferredType::Text));
        }
        if object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>() {
            return Ok(Some(InferredType::Binary));
        }
        if object.is_instance(&self.datetime)? {
            let has_zone = !object.getattr(intern!(py, "tzinfo"))?.is_none();
            return Ok(Some(InferredType::Timestamp { has_zone }));
        }
        if object.is_instance(&self.date)? {
            return Ok(Some(InferredType::Date));
        }
        if object.is_instance(&self.time)? {
            return Ok(Some(InferredType::Time));
        }
        if object.is_instance(&self.timedelta)? {
            return Ok(Some(InferredType::Duration));
        }
        if object.is_instance(&self.decimal)? {
            let (_, digits, exponent): (u8, Vec<u8>, Bound<'_, PyAny>) =
                object.call_method0(intern!(py, "as_tuple"))?.extract()?;
            // The exponent of an infinity or NaN is a letter.
            let Ok(exponent) = exponent.extract::<i64>() else { return Ok(None) };
            let digits = digits.len() as u64;
            let behind = exponent.min(0).unsigned_abs();
            let whole = digits.saturating_sub(behind) + exponent.max(0).unsigned_abs();
            return Ok((whole + behind <= DECIMAL_DIGITS_MAX).then_some(InferredType::Decimal {
                integer_digits: whole,
                fraction_digits: behind,
            }));
        }
        // A NumPy scalar.
        let is_one_of_numpy = object.getattr_opt(intern!(py, "dtype"))?.is_some()
            && object.getattr_opt(intern!(py, "ndim"))?.is_some_and(|n| n.eq(0).unwrap_or(false));
        if is_one_of_numpy {
            let own = object.call_method0(intern!(py, "item"))?;
            if !own.get_type().is(object.get_type()) {
                return self.infer_scalar_type(&own);
            }
        }
        Ok(None)
    }
}

impl InferredColumn {
    fn to_schema_json(&self, name: &str) -> Value {
        json!({"name": name, "type": self.inferred_type.to_schema_json(), "nullable": true})
    }

    fn observe_value(
        &mut self,
        kit: &InferenceTypes<'_>,
        object: &Bound<'_, PyAny>,
        row: u64,
    ) -> Result<(), RowFault> {
        if object.is_none() {
            return Ok(());
        }
        if let Ok(fields) = object.cast::<PyDict>() {
            if matches!(self.inferred_type, InferredType::Null) {
                *self = InferredColumn {
                    inferred_type: InferredType::Struct(InferredColumns::default()),
                    first_row: row,
                };
            }
            return match &mut self.inferred_type {
                InferredType::Struct(columns) => columns.observe_row(kit, fields, row),
                _ => Err(self.type_conflict("dict", row)),
            };
        }
        if is_interval(object)? {
            let reason = format!("no column can hold {}", describe_value(object));
            return Err(RowFault::InvalidValue(Vec::new(), reason));
        }
        let list = match object.cast::<PyList>() {
            Ok(list) => Some(list.try_iter()?),
            Err(_) if is_list_like(object)? => Some(object.try_iter()?),
            Err(_) => None,
        };
        if let Some(items) = list {
            if matches!(self.inferred_type, InferredType::Null) {
                let item = InferredColumn { inferred_type: InferredType::Null, first_row: row };
                *self = InferredColumn {
                    inferred_type: InferredType::List(Box::new(item)),
                    first_row: row,
                };
            }
            let InferredType::List(item) = &mut self.inferred_type else {
                return Err(self.type_conflict("list", row));
            };
            for object in items {
                item.observe_value(kit, &object?, row)
                    .map_err(|fault| prepend_path(fault, "item".to_owned()))?;
            }
            return Ok(());
        }
        let Some(kind) = kit.infer_scalar_type(object)? else {
            let reason = format!("no column can hold {}", describe_value(object));
            return Err(RowFault::InvalidValue(Vec::new(), reason));
        };
        let (word, has) =
            (kind.python_name(), std::mem::replace(&mut self.inferred_type, InferredType::Null));
        let both = match (has, kind) {
            (InferredType::Null, kind) => {
                self.first_row = row;
                Some(kind)
            }
            (
                InferredType::Integer { is_above_i64: is_large, is_negative },
                InferredType::Integer { is_above_i64: also_large, is_negative: also_negative },
            ) => {
                let is_large = is_large || also_large;
                let is_negative = is_negative || also_negative;
                if is_large && is_negative {
                    let reason = "its whole numbers need more than 64 bits".to_owned();
                    return Err(RowFault::InvalidValue(Vec::new(), reason));
                }
                Some(InferredType::Integer { is_above_i64: is_large, is_negative })
            }
            (
                InferredType::Integer { .. } | InferredType::Float,
                InferredType::Integer { .. } | InferredType::Float,
            ) => Some(InferredType::Float),
            (
                InferredType::Decimal { integer_digits: whole, fraction_digits: behind },
                InferredType::Integer { .. },
            )
            | (
                InferredType::Integer { .. },
                InferredType::Decimal { integer_digits: whole, fraction_digits: behind },
            ) => {
                // A 64-bit integer has up to 20 digits.
                Some(InferredType::Decimal {
                    integer_digits: whole.max(20),
                    fraction_digits: behind,
                })
            }
            (
                InferredType::Decimal { integer_digits: whole, fraction_digits: behind },
                InferredType::Decimal { integer_digits: more, fraction_digits: further },
            ) => Some(InferredType::Decimal {
                integer_digits: whole.max(more),
                fraction_digits: behind.max(further),
            }),
            (has, kind) => {
                let is_same = has.python_name() == kind.python_name();
                self.inferred_type = has;
                if !is_same {
                    return Err(self.type_conflict(word, row));
                }
                None
            }
        };
        if let Some(both) = both {
            if let InferredType::Decimal { integer_digits: whole, fraction_digits: behind } = &both
                && whole + behind > DECIMAL_DIGITS_MAX
            {
                let reason = format!("its decimals need more than {DECIMAL_DIGITS_MAX} digits");
                return Err(RowFault::InvalidValue(Vec::new(), reason));
            }
            self.inferred_type = both;
        }
        Ok(())
    }

    fn type_conflict(&self, found: &str, row: u64) -> RowFault {
        let (has, first) = (self.inferred_type.python_name(), self.first_row);
        RowFault::InvalidValue(Vec::new(), format!("row {first} has {has}, and row {row} {found}"))
    }

    /// Returns the path of a struct without fields, if there is one.
    fn find_empty_struct(&self) -> Option<Vec<String>> {
        match &self.inferred_type {
            InferredType::List(item) => item.find_empty_struct(),
            InferredType::Struct(columns) if columns.columns.is_empty() => Some(Vec::new()),
            InferredType::Struct(columns) => columns.find_empty_struct(),
            _ => None,
        }
    }
}

impl InferredColumns {
    fn find_empty_struct(&self) -> Option<Vec<String>> {
        self.columns.iter().find_map(|(name, column)| {
            let mut path = column.find_empty_struct()?;
            path.push(name.clone());
            Some(path)
        })
    }
}

/// Returns true for an interval of months, days and nanoseconds, which is a tuple but no list.
fn is_interval(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.is_instance_of::<PyTuple>()
        && object.hasattr(intern!(py, "months"))?
        && object.hasattr(intern!(py, "nanoseconds"))?)
}

/// Returns true for an object with items in an order: a tuple, an array.
fn is_list_like(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyTuple>() {
        return Ok(true);
    }
    let py = object.py();
    Ok(object
        .getattr_opt(intern!(py, "ndim"))?
        .is_some_and(|dimensions| dimensions.gt(0).unwrap_or(false)))
}

/// Returns the rows of `rows` as a table. `rows` is an iterable of dictionaries that can be read twice;
/// `name` is its name in messages.
#[pyfunction]
pub(crate) fn table_of_rows(
    py: Python<'_>,
    name: &str,
    rows: &Bound<'_, PyAny>,
) -> PyResult<RawStream> {
    let kit = InferenceTypes::new(py)?;
    let mut columns = InferredColumns::default();
    let mut count = 0;
    for row in rows.try_iter()? {
        let row = row?;
        let seen = match to_dict(&row)? {
            Some(fields) => columns.observe_row(&kit, &fields, count),
            None => Err(RowFault::InvalidValue(
                Vec::new(),
                format!("expected a dict, found {}", describe_value(&row)),
            )),
        };
        seen.map_err(|fault| inference_exception(py, name, fault, count))?;
        count += 1;
        if count % (BATCH_ROWS_MAX as u64) == 0 {
            py.check_signals()?;
        }
    }
    if columns.columns.is_empty() {
        let error = Error::usage_with_hint(
            format!("`{name}` has no columns: it holds no dict with a key"),
            "an empty table with columns is one of Arrow, pandas or Polars",
        );
        return Err(to_exception(py, error));
    }
    if let Some(path) = columns.find_empty_struct() {
        let fault =
            RowFault::InvalidValue(path, "its dicts have no keys, and so no type".to_owned());
        return Err(inference_exception(py, name, fault, 0));
    }
    let json = json!({"fields": columns.to_schema_json()}).to_string();
    let schema = Schema::parse(&json)
        .map_err(|error| to_exception(py, Error::usage(format!("`{name}`: {error}"))))?;
    let mut builder = RowBuilder::new(py, &schema)?;
    let in_python = |error| to_exception(py, Error::Internal(format!("rows as Arrow: {error}")));
    let mut batches: Vec<RecordBatch> = Vec::new();
    for (number, row) in (0..).zip(rows.try_iter()?) {
        let row = row?;
        builder.push_row(&row).map_err(|fault| inference_exception(py, name, fault, number))?;
        if builder.row_count() >= BATCH_ROWS_MAX || builder.buffered_bytes() >= BATCH_BYTES_MAX {
            py.check_signals()?;
            batches.push(builder.take_batch().map_err(in_python)?);
        }
    }
    if builder.row_count() > 0 || batches.is_empty() {
        batches.push(builder.take_batch().map_err(in_python)?);
    }
    let schema = builder.schema();
    Ok(RawStream::new(Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), schema))))
}

fn to_dict<'py>(row: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(fields) = row.cast::<PyDict>() {
        return Ok(Some(fields.clone()));
    }
    let Ok(mapping) = row.cast::<PyMapping>() else { return Ok(None) };
    let copy = PyDict::new(row.py());
    copy.update(mapping)?;
    Ok(Some(copy))
}

/// Converts a fault to an exception.
fn inference_exception(py: Python<'_>, name: &str, fault: RowFault, row: u64) -> PyErr {
    match fault {
        RowFault::PythonException(error) => error,
        RowFault::InvalidValue(mut path, reason) => {
            path.reverse();
            let place = match path.is_empty() {
                true => format!("row {row}"),
                false => format!("column `{}`", path.join(".")),
            };
            let hint = "give the values of a column one type; None is one of every type";
            to_exception(py, Error::usage_with_hint(format!("`{name}`, {place}: {reason}"), hint))
        }
    }
}
