//! Hashes Python objects for sketches. An object has the hash of its value in a column: an `int` hashes as a
//! 64-bit integer, a `float` as a double, whatever its digits are.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyString};
use tidemill_engine::Error;
use tidemill_engine::hashing::{hash_decimal_text, hash_nanoseconds};
use tidemill_engine::sketch::{hash_bytes, hash_f64, hash_i64};

use crate::errors::to_exception;
use crate::rowfile::row_builder::{describe_value, timedelta_parts};

/// Number of objects hashed between two checks of signals.
const OBJECTS_PER_SIGNAL_CHECK: usize = 1 << 14;

const HASHABLE_TYPES_HINT: &str =
    "values are int, str, float, bytes, bool, Decimal, datetime, date, time, timedelta";

/// The day number of 1970-01-01 as `date.toordinal` counts.
const EPOCH_ORDINAL: i64 = 719_163;

/// A hasher of Python objects, with the classes that it distinguishes.
pub(crate) struct ObjectHasher<'py> {
    py: Python<'py>,
    datetime: Bound<'py, PyAny>,
    date: Bound<'py, PyAny>,
    time: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
    decimal: Bound<'py, PyAny>,
    epoch: Bound<'py, PyAny>,
    epoch_utc: Bound<'py, PyAny>,
}

impl<'py> ObjectHasher<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        let module = py.import("datetime")?;
        let datetime = module.getattr("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        Ok(ObjectHasher {
            py,
            date: module.getattr("date")?,
            time: module.getattr("time")?,
            timedelta: module.getattr("timedelta")?,
            decimal: py.import("decimal")?.getattr("Decimal")?,
            epoch: datetime.call1((1970, 1, 1))?,
            epoch_utc: datetime.call1((1970, 1, 1, 0, 0, 0, 0, utc))?,
            datetime,
        })
    }

    /// Returns the hash of an object, with a fast path for common types; `None` for a null.
    pub(crate) fn hash_object(object: &Bound<'py, PyAny>) -> PyResult<Option<u64>> {
        match hash_simple_value(object)? {
            Some(hash) => Ok(Some(hash)),
            None => ObjectHasher::new(object.py())?.hash_value(object),
        }
    }

    /// Returns the hashes of an iterable's objects, without nulls.
    pub(crate) fn hash_all_objects(objects: &Bound<'py, PyAny>) -> PyResult<Vec<u64>> {
        let py = objects.py();
        let hasher = ObjectHasher::new(py)?;
        let mut hashes = Vec::new();
        for (number, object) in objects.try_iter()?.enumerate() {
            hashes.extend(hasher.hash_value(&object?)?);
            if number % OBJECTS_PER_SIGNAL_CHECK == OBJECTS_PER_SIGNAL_CHECK - 1 {
                py.check_signals()?;
            }
        }
        Ok(hashes)
    }

    fn hash_value(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<u64>> {
        if object.is_none() {
            return Ok(None);
        }
        if let Some(hash) = hash_simple_value(object)? {
            return Ok(Some(hash));
        }
        let py = self.py;
        let name = object.get_type().name()?;
        let name = name.to_str()?;
        // pandas' nulls; `NaTType` is also a datetime.
        if matches!(name, "NAType" | "NaTType") {
            return Ok(None);
        }
        if matches!(name, "datetime64" | "timedelta64") {
            return self.hash_numpy_time(object);
        }
        let part = |name: &Bound<'py, PyString>| -> PyResult<i128> {
            match object.getattr_opt(name)? {
                Some(part) => part.extract(),
                None => Ok(0),
            }
        };
        let nanoseconds = |(seconds, micros): (i64, i64), nanos: i128| {
            i128::from(seconds) * 1_000_000_000 + i128::from(micros) * 1_000 + nanos
        };
        Ok(Some(if object.is_instance(&self.datetime)? {
            let is_local = object.getattr(intern!(py, "tzinfo"))?.is_none();
            let since = object.sub(if is_local { &self.epoch } else { &self.epoch_utc })?;
            // pandas' subclass has nanoseconds.
            hash_nanoseconds(nanoseconds(
                timedelta_parts(&since)?,
                part(intern!(py, "nanosecond"))?,
            ))
        } else if object.is_instance(&self.date)? {
            let ordinal: i64 = object.call_method0(intern!(py, "toordinal"))?.extract()?;
            hash_i64(ordinal - EPOCH_ORDINAL)
        } else if object.is_instance(&self.time)? {
            if !object.getattr(intern!(py, "tzinfo"))?.is_none() {
                return Err(refused_value_error(
                    object,
                    "is a time of day with a zone",
                    "a datetime has one",
                ));
            }
            let hours = part(intern!(py, "hour"))? * 60 + part(intern!(py, "minute"))?;
            let micros = (hours * 60 + part(intern!(py, "second"))?) * 1_000_000
                + part(intern!(py, "microsecond"))?;
            hash_nanoseconds(micros * 1_000)
        } else if object.is_instance(&self.timedelta)? {
            hash_nanoseconds(nanoseconds(
                timedelta_parts(object)?,
                part(intern!(py, "nanoseconds"))?,
            ))
        } else if object.is_instance(&self.decimal)? {
            if !object.call_method0(intern!(py, "is_finite"))?.is_truthy()? {
                return Err(refused_value_error(
                    object,
                    "is no number",
                    "leave it out, or give a float",
                ));
            }
            if !object.is_truthy()? {
                return Ok(Some(hash_decimal_text("0")));
            }
            let text = object.call_method1(intern!(py, "__format__"), ("f",))?;
            hash_decimal_text(text.cast::<PyString>()?.to_str()?)
        } else if name == "memoryview" {
            let bytes = object.call_method0(intern!(py, "tobytes"))?;
            hash_bytes(bytes.cast::<PyBytes>()?.as_bytes(), 0)
        } else {
            // A NumPy scalar.
            let is_one_of_numpy = object.getattr_opt(intern!(py, "dtype"))?.is_some()
                && object
                    .getattr_opt(intern!(py, "ndim"))?
                    .is_some_and(|n| n.eq(0).unwrap_or(false));
            if is_one_of_numpy {
                let own = object.call_method0(intern!(py, "item"))?;
                if !own.get_type().is(object.get_type()) {
                    return self.hash_value(&own);
                }
            }
            return Err(refused_value_error(
                object,
                "has no hash in a sketch",
                HASHABLE_TYPES_HINT,
            ));
        }))
    }

    /// Returns the hash of a `numpy.datetime64` or `timedelta64`, which equals that of an array's element.
    fn hash_numpy_time(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<u64>> {
        let numpy = self.py.import("numpy")?;
        let data = numpy.call_method1("datetime_data", (object.getattr("dtype")?,))?;
        let (unit, count): (String, i128) = data.extract()?;
        let ticks: i64 = object.call_method1("astype", ("int64",))?.extract()?;
        if ticks == i64::MIN {
            return Ok(None);
        }
        let ticks = i128::from(ticks) * count;
        let is_moment = object.get_type().name()? == "datetime64";
        let seconds = match unit.as_str() {
            "ns" => return Ok(Some(hash_nanoseconds(ticks))),
            "us" => return Ok(Some(hash_nanoseconds(ticks * 1_000))),
            "ms" => return Ok(Some(hash_nanoseconds(ticks * 1_000_000))),
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "D" | "W" | "M" | "Y" if is_moment => {
                let days = object.call_method1("astype", ("datetime64[D]",))?;
                return Ok(Some(hash_i64(days.call_method1("astype", ("int64",))?.extract()?)));
            }
            "D" => 86_400,
            "W" => 7 * 86_400,
            _ => {
                return Err(refused_value_error(
                    object,
                    "has no hash in a sketch",
                    HASHABLE_TYPES_HINT,
                ));
            }
        };
        Ok(Some(hash_nanoseconds(ticks * seconds * 1_000_000_000)))
    }
}

/// Returns the hash of an object that is neither a time nor a decimal; `None` for those.
#[inline]
fn hash_simple_value(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if let Ok(text) = object.cast::<PyString>() {
        return match text.to_str() {
            Ok(text) => Ok(Some(hash_bytes(text.as_bytes(), 0))),
            Err(_) => Err(refused_value_error(
                object,
                "has a surrogate, which no UTF-8 has",
                "text.encode(errors='surrogateescape') gives the bytes it is from",
            )),
        };
    }
    if object.is_instance_of::<PyInt>() {
        if let Ok(truth) = object.cast::<PyBool>() {
            return Ok(Some(hash_i64(truth.is_true().into())));
        }
        return match (object.extract::<i64>(), object.extract::<u64>()) {
            (Ok(value), _) => Ok(Some(hash_i64(value))),
            (_, Ok(value)) => Ok(Some(hash_i64(value.cast_signed()))),
            _ => {
                Err(refused_value_error(object, "needs more than 64 bits", "str(value) is a text"))
            }
        };
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(Some(hash_f64(value.value())));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(hash_bytes(bytes.as_bytes(), 0)));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Some(hash_bytes(&bytes.to_vec(), 0)));
    }
    Ok(None)
}

pub(crate) fn refused_value_error(object: &Bound<'_, PyAny>, why: &str, hint: &str) -> PyErr {
    to_exception(
        object.py(),
        Error::usage_with_hint(format!("{} {why}", describe_value(object)), hint),
    )
}
