//! Converts Arrow values to built-in Python objects: `int`, `str`, `datetime.date`, `dict`, …

use std::ops::Range;
use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::types::*;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyException, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use tidemill_engine::Error;
use tidemill_engine::column_types::sql_type_name;

use crate::errors::to_exception;

type PyObjects<'py> = Vec<Bound<'py, PyAny>>;

/// Returns the rows of a batch as dictionaries.
///
/// # Errors
/// `UsageError` for a value that Python has no built-in type for, naming its column.
pub(crate) fn rows_to_dicts<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<Bound<'py, PyList>> {
    let schema = batch.schema_ref();
    for (i, field) in schema.fields().iter().enumerate() {
        if schema.fields()[..i].iter().any(|earlier| earlier.name() == field.name()) {
            let message = format!("a dictionary cannot hold two columns called `{}`", field.name());
            return Err(to_exception(
                py,
                Error::usage_with_hint(message, "name one of them otherwise with AS"),
            ));
        }
    }
    let names = schema.fields().iter().map(|field| PyString::new(py, field.name()));
    let names = names.collect::<Vec<_>>();
    let mut columns = column_values(py, batch)?;
    let rows = PyList::empty(py);
    for _ in 0..batch.num_rows() {
        let row = PyDict::new(py);
        for (name, values) in names.iter().zip(&mut columns) {
            row.set_item(name, values.next())?;
        }
        rows.append(row)?;
    }
    Ok(rows)
}

/// Returns the rows of a batch as tuples.
///
/// # Errors
/// `UsageError` for a value that Python has no built-in type for, naming its column.
pub(crate) fn rows_to_tuples<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<Bound<'py, PyList>> {
    let mut columns = column_values(py, batch)?;
    let rows = PyList::empty(py);
    for _ in 0..batch.num_rows() {
        rows.append(PyTuple::new(py, columns.iter_mut().map(Iterator::next))?)?;
    }
    Ok(rows)
}

/// Returns the values of each column of a batch.
fn column_values<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<Vec<std::vec::IntoIter<Bound<'py, PyAny>>>> {
    let makers = PythonConstructors::new(py)?;
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    let values = columns.map(|(field, array)| {
        let values = makers
            .convert_array(array)
            .map_err(|error| column_value_error(py, field.name(), error))?;
        Ok(values.into_iter())
    });
    values.collect()
}

fn column_value_error(py: Python<'_>, column: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(py) && !error.is_instance_of::<PyValueError>(py) {
        return error;
    }
    let reason = error.value(py);
    to_exception(
        py,
        Error::usage_with_hint(
            format!("a value of column `{column}` is no Python object: {reason}"),
            "cast the column in SQL, or take the result as Arrow with to_arrow()",
        ),
    )
}

/// The constructors of Python objects.
struct PythonConstructors<'py> {
    py: Python<'py>,
    decimal: Bound<'py, PyAny>,
    date: Bound<'py, PyAny>,
    time: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
    epoch: Bound<'py, PyAny>,
    epoch_utc: Bound<'py, PyAny>,
}

/// Maximum days of an interval that becomes a `timedelta`, which has up to 999,999,999 days. 64 bits of
/// nanoseconds add up to 106,752 days.
const INTERVAL_DAYS_MAX: u32 = 999_800_000;

/// The day number of 1970-01-01 as `date.fromordinal` counts.
const EPOCH_ORDINAL: i64 = 719_163;

impl<'py> PythonConstructors<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let new = datetime.getattr("datetime")?;
        Ok(PythonConstructors {
            py,
            decimal: py.import("decimal")?.getattr("Decimal")?,
            date: datetime.getattr("date")?.getattr("fromordinal")?,
            time: datetime.getattr("time")?,
            timedelta: datetime.getattr("timedelta")?,
            epoch: new.call1((1970, 1, 1))?,
            epoch_utc: new.call1((1970, 1, 1, 0, 0, 0, 0, utc))?,
        })
    }

    fn convert_array(&self, array: &ArrayRef) -> PyResult<PyObjects<'py>> {
        macro_rules! each {
            ($array:expr, $make:expr) => {{
                let make = $make;
                let values = $array.iter();
                values.map(|value| value.map_or_else(|| Ok(self.none()), &make)).collect()
            }};
        }
        macro_rules! number {
            ($t:ty) => {
                each!(array.as_primitive::<$t>(), |value| self.object(value))
            };
        }
        macro_rules! decimal {
            ($t:ty, $precision:expr, $scale:expr) => {
                each!(array.as_primitive::<$t>(), |value| {
                    self.decimal.call1((<$t>::format_decimal(value, *$precision, *$scale),))
                })
            };
        }
        match array.data_type() {
            DataType::Null => Ok((0..array.len()).map(|_| self.none()).collect()),
            DataType::Boolean => each!(array.as_boolean(), |value| self.object(value)),
            DataType::Int8 => number!(Int8Type),
            DataType::Int16 => number!(Int16Type),
            DataType::Int32 => number!(Int32Type),
            DataType::Int64 => number!(Int64Type),
            DataType::UInt8 => number!(UInt8Type),
            DataType::UInt16 => number!(UInt16Type),
            DataType::UInt32 => number!(UInt32Type),
            DataType::UInt64 => number!(UInt64Type),
            DataType::Float16 => self.convert_array_as(array, &DataType::Float32),
            DataType::Float32 => number!(Float32Type),
            DataType::Float64 => number!(Float64Type),
            DataType::Decimal32(precision, scale) => decimal!(Decimal32Type, precision, scale),
            DataType::Decimal64(precision, scale) => decimal!(Decimal64Type, precision, scale),
            DataType::Decimal128(precision, scale) => decimal!(Decimal128Type, precision, scale),
            DataType::Decimal256(precision, scale) => decimal!(Decimal256Type, precision, scale),
            DataType::Utf8View => each!(array.as_string_view(), |value| self.object(value)),
            DataType::Utf8 | DataType::LargeUtf8 => {
                self.convert_array_as(array, &DataType::Utf8View)
            }
            DataType::BinaryView => each!(array.as_binary_view(), |value| {
                Ok(PyBytes::new(self.py, value).into_any())
            }),
            DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
                self.convert_array_as(array, &DataType::BinaryView)
            }
            DataType::Date32 => each!(array.as_primitive::<Date32Type>(), |days| {
                self.date.call1((i64::from(days) + EPOCH_ORDINAL,))
            }),
            DataType::Date64 => self.convert_array_as(array, &DataType::Date32),
            DataType::Timestamp(unit, zone) => {
                let zone = zone.as_deref().map(|zone| self.make_time_zone(zone)).transpose()?;
                let ticks = self.time_integers(array)?;
                each!(ticks.as_primitive::<Int64Type>(), |value| {
                    self.make_datetime(value, *unit, zone.as_ref())
                })
            }
            DataType::Duration(unit) => {
                let ticks = self.time_integers(array)?;
                each!(ticks.as_primitive::<Int64Type>(), |value| self.make_timedelta(value, *unit))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                each!(array.as_primitive::<IntervalMonthDayNanoType>(), |span| self
                    .make_interval(span))
            }
            DataType::Interval(_) => {
                self.convert_array_as(array, &DataType::Interval(IntervalUnit::MonthDayNano))
            }
            DataType::Time32(unit) | DataType::Time64(unit) => {
                let ticks = self.time_integers(array)?;
                each!(ticks.as_primitive::<Int64Type>(), |value| self.make_time(value, *unit))
            }
            DataType::Dictionary(_, values) => self.convert_array_as(array, values),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let ends = ListOffsets(list.offsets());
                let items = self.convert_array(&ends.referenced_items(list.values()))?;
                self.convert_non_null_rows(array, |row| {
                    Ok(PyList::new(self.py, &items[ends.item_range(row)])?.into_any())
                })
            }
            DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => {
                self.convert_array_as(array, &DataType::List(Arc::clone(item)))
            }
            DataType::Struct(fields) => {
                let mut columns = Vec::with_capacity(fields.len());
                for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                    columns.push((field.name(), self.convert_array(column)?));
                }
                let make = |row: usize| {
                    let fields = PyDict::new(self.py);
                    for (name, values) in &columns {
                        fields.set_item(name, &values[row])?;
                    }
                    Ok(fields.into_any())
                };
                self.convert_non_null_rows(array, make)
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                let ends = ListOffsets(map.offsets());
                let keys = self.convert_array(&ends.referenced_items(map.keys()))?;
                let values = self.convert_array(&ends.referenced_items(map.values()))?;
                self.convert_non_null_rows(array, |row| {
                    let entries = PyDict::new(self.py);
                    for entry in ends.item_range(row) {
                        entries.set_item(&keys[entry], &values[entry])?;
                    }
                    Ok(entries.into_any())
                })
            }
            other => Err(PyValueError::new_err(format!("it is of type {}", sql_type_name(other)))),
        }
    }

    fn convert_array_as(&self, array: &ArrayRef, data_type: &DataType) -> PyResult<PyObjects<'py>> {
        let array = cast(array, data_type).map_err(|e| PyValueError::new_err(e.to_string()))?;
        self.convert_array(&array)
    }

    /// Casts a column of times to the integers that represent them.
    fn time_integers(&self, array: &ArrayRef) -> PyResult<ArrayRef> {
        let ticks = match array.data_type() {
            DataType::Time32(_) => {
                cast(array, &DataType::Int32).and_then(|i| cast(&i, &DataType::Int64))
            }
            _ => cast(array, &DataType::Int64),
        };
        ticks.map_err(|e| PyValueError::new_err(e.to_string()))
    }

    fn convert_non_null_rows(
        &self,
        array: &ArrayRef,
        make: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<PyObjects<'py>> {
        let value = |row| if array.is_null(row) { Ok(self.none()) } else { make(row) };
        (0..array.len()).map(value).collect()
    }

    fn none(&self) -> Bound<'py, PyAny> {
        self.py.None().into_bound(self.py)
    }

    fn object<T: IntoPyObject<'py>>(&self, value: T) -> PyResult<Bound<'py, PyAny>> {
        value.into_bound_py_any(self.py)
    }

    fn make_time_zone(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let known = match name {
            "UTC" | "+00:00" | "Z" => return self.epoch_utc.getattr("tzinfo"),
            name => self.py.import("zoneinfo")?.getattr("ZoneInfo")?.call1((name,)),
        };
        // An unknown zone raises a `KeyError`.
        known.map_err(|error| match error.is_instance_of::<PyException>(self.py) {
            true => PyValueError::new_err(format!("the time zone `{name}` is not known")),
            false => error,
        })
    }

    fn make_datetime(
        &self,
        ticks: i64,
        unit: TimeUnit,
        zone: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let delta = self.make_timedelta(ticks, unit)?;
        match zone {
            None => self.epoch.call_method1("__add__", (delta,)),
            Some(zone) => {
                let moment = self.epoch_utc.call_method1("__add__", (delta,))?;
                moment.call_method1("astimezone", (zone,))
            }
        }
    }

    fn make_timedelta(&self, ticks: i64, unit: TimeUnit) -> PyResult<Bound<'py, PyAny>> {
        let (seconds, micros) = seconds_and_micros(ticks, unit)?;
        self.timedelta.call1((0, seconds, micros))
    }

    /// Returns a `timedelta` if it holds the interval exactly, otherwise a `tidemill.Interval`.
    fn make_interval(&self, span: IntervalMonthDayNano) -> PyResult<Bound<'py, PyAny>> {
        let IntervalMonthDayNano { months, days, nanoseconds } = span;
        let is_delta =
            months == 0 && nanoseconds % 1_000 == 0 && days.unsigned_abs() <= INTERVAL_DAYS_MAX;
        if is_delta {
            return self.timedelta.call1((days, 0, nanoseconds / 1_000));
        }
        let class = self.py.import("tidemill._interval")?.getattr("Interval")?;
        class.call1((months, days, nanoseconds))
    }

    fn make_time(&self, ticks: i64, unit: TimeUnit) -> PyResult<Bound<'py, PyAny>> {
        let (seconds, micros) = seconds_and_micros(ticks, unit)?;
        self.time.call1((seconds / 3600, seconds / 60 % 60, seconds % 60, micros))
    }
}

fn seconds_and_micros(ticks: i64, unit: TimeUnit) -> PyResult<(i64, i64)> {
    let per_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let (seconds, rest) = (ticks.div_euclid(per_second), ticks.rem_euclid(per_second));
    if per_second > 1_000_000 && rest % 1_000 != 0 {
        return Err(PyValueError::new_err("its nanoseconds would be lost"));
    }
    let micros =
        if per_second > 1_000_000 { rest / 1_000 } else { rest * (1_000_000 / per_second) };
    Ok((seconds, micros))
}

/// The offsets of lists in their array of items.
struct ListOffsets<'a>(&'a OffsetBuffer<i32>);

impl ListOffsets<'_> {
    /// Returns the items of all lists, without those of lists that were sliced away.
    fn referenced_items(&self, items: &ArrayRef) -> ArrayRef {
        let (first, last) = (offset_to_usize(self.0[0]), offset_to_usize(self.0[self.0.len() - 1]));
        items.slice(first, last - first)
    }

    /// Returns the range of one list's items.
    fn item_range(&self, row: usize) -> Range<usize> {
        let first = offset_to_usize(self.0[0]);
        offset_to_usize(self.0[row]) - first..offset_to_usize(self.0[row + 1]) - first
    }
}

/// Converts an Arrow offset, which is never negative.
fn offset_to_usize(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or(0)
}
