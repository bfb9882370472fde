//! Which columns do rows of Python's own objects have? A type is what all rows of a column need: whole
//! numbers beside floats are floats, a field that some rows do not have may be null, and what has no
//! common type is refused with the two rows that differ. Nothing becomes text by itself.

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

use crate::errors::raise;
use crate::objects::RawStream;
use crate::rowfile::rows::{Fault, RowBuilder, described};

/// Rows that become a batch.
const ROWS_MAX: usize = 8192;
/// Bytes of strings and the like in them.
const BYTES_MAX: usize = 8 << 20;
/// Digits that a decimal has at most.
const DIGITS_MAX: u64 = 76;

/// What the values of a column have been so far.
enum Kind {
    /// Nothing but null.
    Null,
    Boolean,
    /// Whether some are too large to have a sign, and whether some have one.
    Integer {
        is_large: bool,
        is_negative: bool,
    },
    Float,
    Decimal {
        whole: u64,
        behind: u64,
    },
    Text,
    Binary,
    Date,
    Time,
    Timestamp {
        has_zone: bool,
    },
    Duration,
    List(Box<Column>),
    Struct(Columns),
}

impl Kind {
    /// What Python calls it.
    fn word(&self) -> &'static str {
        match self {
            Kind::Null => "None",
            Kind::Boolean => "bool",
            Kind::Integer { .. } => "int",
            Kind::Float => "float",
            Kind::Decimal { .. } => "Decimal",
            Kind::Text => "str",
            Kind::Binary => "bytes",
            Kind::Date => "date",
            Kind::Time => "time",
            Kind::Timestamp { has_zone: false } => "datetime without a zone",
            Kind::Timestamp { has_zone: true } => "datetime with a zone",
            Kind::Duration => "timedelta",
            Kind::List(_) => "list",
            Kind::Struct(_) => "dict",
        }
    }

    /// The type as a rowfile's schema has it.
    fn json(&self) -> Value {
        match self {
            Kind::Null => json!("null"),
            Kind::Boolean => json!("boolean"),
            Kind::Integer { is_large: true, is_negative: false } => json!("uint64"),
            Kind::Integer { .. } => json!("int64"),
            Kind::Float => json!("float64"),
            Kind::Decimal { whole, behind } => {
                let precision = (whole + behind).max(1);
                let bits = if precision <= 38 { 128 } else { 256 };
                json!({"decimal": {"bits": bits, "precision": precision, "scale": behind}})
            }
            Kind::Text => json!("string"),
            Kind::Binary => json!("binary"),
            Kind::Date => json!("date"),
            Kind::Time => json!({"time": "us"}),
            Kind::Timestamp { has_zone: false } => json!({"timestamp": {"unit": "us"}}),
            Kind::Timestamp { has_zone: true } => {
                json!({"timestamp": {"unit": "us", "zone": "UTC"}})
            }
            Kind::Duration => json!({"duration": "us"}),
            Kind::List(item) => json!({"list": item.json("item")}),
            Kind::Struct(columns) => json!({"struct": columns.json()}),
        }
    }
}

struct Column {
    kind: Kind,
    /// The first row that had a value.
    row: u64,
}

#[derive(Default)]
struct Columns {
    columns: Vec<(String, Column)>,
    known: HashMap<String, usize>,
}

impl Columns {
    fn json(&self) -> Vec<Value> {
        self.columns.iter().map(|(name, column)| column.json(name)).collect()
    }

    fn see(&mut self, kit: &Kit<'_>, fields: &Bound<'_, PyDict>, row: u64) -> Result<(), Fault> {
        for (key, value) in fields.iter() {
            let name: String = match key.cast::<PyString>() {
                Ok(name) => name.extract()?,
                Err(_) => {
                    let reason = format!("the name of a column is a str, not {}", described(&key));
                    return Err(Fault::Wrong(Vec::new(), reason));
                }
            };
            let at = match self.known.get(&name) {
                Some(at) => *at,
                None => {
                    self.known.insert(name.clone(), self.columns.len());
                    self.columns.push((name.clone(), Column { kind: Kind::Null, row }));
                    self.columns.len() - 1
                }
            };
            if let Some((_, column)) = self.columns.get_mut(at) {
                column.see(kit, &value, row).map_err(|fault| within(fault, name))?;
            }
        }
        Ok(())
    }
}

fn within(fault: Fault, name: String) -> Fault {
    match fault {
        Fault::Wrong(mut path, reason) => {
            path.push(name);
            Fault::Wrong(path, reason)
        }
        raised => raised,
    }
}

/// Python's classes.
struct Kit<'py> {
    datetime: Bound<'py, PyAny>,
    date: Bound<'py, PyAny>,
    time: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
    decimal: Bound<'py, PyAny>,
}

impl<'py> Kit<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        Ok(Kit {
            datetime: datetime.getattr("datetime")?,
            date: datetime.getattr("date")?,
            time: datetime.getattr("time")?,
            timedelta: datetime.getattr("timedelta")?,
            decimal: py.import("decimal")?.getattr("Decimal")?,
        })
    }

    /// The kind of a value that holds no others; none of one that no column can hold.
    fn kind_of(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<Kind>> {
        let py = object.py();
        if object.is_instance_of::<PyBool>() {
            return Ok(Some(Kind::Boolean));
        }
        if object.is_instance_of::<PyInt>() {
            let is_negative = object.lt(0)?;
            let is_large = object.extract::<i64>().is_err();
            let fits = !is_large || object.extract::<u64>().is_ok();
            return Ok(fits.then_some(Kind::Integer { is_large, is_negative }));
        }
        if object.is_instance_of::<PyFloat>() {
            return Ok(Some(Kind::Float));
        }
        if object.is_instance_of::<PyString>() {
            return Ok(Some(Kind::Text));
        }
        if object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>() {
            return Ok(Some(Kind::Binary));
        }
        if object.is_instance(&self.datetime)? {
            let has_zone = !object.getattr(intern!(py, "tzinfo"))?.is_none();
            return Ok(Some(Kind::Timestamp { has_zone }));
        }
        if object.is_instance(&self.date)? {
            return Ok(Some(Kind::Date));
        }
        if object.is_instance(&self.time)? {
            return Ok(Some(Kind::Time));
        }
        if object.is_instance(&self.timedelta)? {
            return Ok(Some(Kind::Duration));
        }
        if object.is_instance(&self.decimal)? {
            let (_, digits, exponent): (u8, Vec<u8>, Bound<'_, PyAny>) =
                object.call_method0(intern!(py, "as_tuple"))?.extract()?;
            // Of one that is no number it is a letter.
            let Ok(exponent) = exponent.extract::<i64>() else { return Ok(None) };
            let digits = digits.len() as u64;
            let behind = exponent.min(0).unsigned_abs();
            let whole = digits.saturating_sub(behind) + exponent.max(0).unsigned_abs();
            return Ok((whole + behind <= DIGITS_MAX).then_some(Kind::Decimal { whole, behind }));
        }
        // A number of NumPy's.
        let is_one_of_numpy = object.getattr_opt(intern!(py, "dtype"))?.is_some()
            && object.getattr_opt(intern!(py, "ndim"))?.is_some_and(|n| n.eq(0).unwrap_or(false));
        if is_one_of_numpy {
            let own = object.call_method0(intern!(py, "item"))?;
            if !own.get_type().is(object.get_type()) {
                return self.kind_of(&own);
            }
        }
        Ok(None)
    }
}

impl Column {
    fn json(&self, name: &str) -> Value {
        json!({"name": name, "type": self.kind.json(), "nullable": true})
    }

    fn see(&mut self, kit: &Kit<'_>, object: &Bound<'_, PyAny>, row: u64) -> Result<(), Fault> {
        if object.is_none() {
            return Ok(());
        }
        if let Ok(fields) = object.cast::<PyDict>() {
            if matches!(self.kind, Kind::Null) {
                *self = Column { kind: Kind::Struct(Columns::default()), row };
            }
            return match &mut self.kind {
                Kind::Struct(columns) => columns.see(kit, fields, row),
                _ => Err(self.differs("dict", row)),
            };
        }
        if is_interval(object)? {
            let reason = format!("no column can hold {}", described(object));
            return Err(Fault::Wrong(Vec::new(), reason));
        }
        let list = match object.cast::<PyList>() {
            Ok(list) => Some(list.try_iter()?),
            Err(_) if is_list(object)? => Some(object.try_iter()?),
            Err(_) => None,
        };
        if let Some(items) = list {
            if matches!(self.kind, Kind::Null) {
                let item = Column { kind: Kind::Null, row };
                *self = Column { kind: Kind::List(Box::new(item)), row };
            }
            let Kind::List(item) = &mut self.kind else {
                return Err(self.differs("list", row));
            };
            for object in items {
                item.see(kit, &object?, row).map_err(|fault| within(fault, "item".to_owned()))?;
            }
            return Ok(());
        }
        let Some(kind) = kit.kind_of(object)? else {
            let reason = format!("no column can hold {}", described(object));
            return Err(Fault::Wrong(Vec::new(), reason));
        };
        let (word, has) = (kind.word(), std::mem::replace(&mut self.kind, Kind::Null));
        let both = match (has, kind) {
            (Kind::Null, kind) => {
                self.row = row;
                Some(kind)
            }
            (
                Kind::Integer { is_large, is_negative },
                Kind::Integer { is_large: also_large, is_negative: also_negative },
            ) => {
                let is_large = is_large || also_large;
                let is_negative = is_negative || also_negative;
                if is_large && is_negative {
                    let reason = "its whole numbers need more than 64 bits".to_owned();
                    return Err(Fault::Wrong(Vec::new(), reason));
                }
                Some(Kind::Integer { is_large, is_negative })
            }
            (Kind::Integer { .. } | Kind::Float, Kind::Integer { .. } | Kind::Float) => {
                Some(Kind::Float)
            }
            (Kind::Decimal { whole, behind }, Kind::Integer { .. })
            | (Kind::Integer { .. }, Kind::Decimal { whole, behind }) => {
                // A whole number of 64 bits has up to 20 digits.
                Some(Kind::Decimal { whole: whole.max(20), behind })
            }
            (Kind::Decimal { whole, behind }, Kind::Decimal { whole: more, behind: further }) => {
                Some(Kind::Decimal { whole: whole.max(more), behind: behind.max(further) })
            }
            (has, kind) => {
                let is_same = has.word() == kind.word();
                self.kind = has;
                if !is_same {
                    return Err(self.differs(word, row));
                }
                None
            }
        };
        if let Some(both) = both {
            if let Kind::Decimal { whole, behind } = &both
                && whole + behind > DIGITS_MAX
            {
                let reason = format!("its decimals need more than {DIGITS_MAX} digits");
                return Err(Fault::Wrong(Vec::new(), reason));
            }
            self.kind = both;
        }
        Ok(())
    }

    fn differs(&self, found: &str, row: u64) -> Fault {
        let (has, first) = (self.kind.word(), self.row);
        Fault::Wrong(Vec::new(), format!("row {first} has {has}, and row {row} {found}"))
    }

    /// The path of a struct that has no fields, if there is one.
    fn without_fields(&self) -> Option<Vec<String>> {
        match &self.kind {
            Kind::List(item) => item.without_fields(),
            Kind::Struct(columns) if columns.columns.is_empty() => Some(Vec::new()),
            Kind::Struct(columns) => columns.without_fields(),
            _ => None,
        }
    }
}

impl Columns {
    fn without_fields(&self) -> Option<Vec<String>> {
        self.columns.iter().find_map(|(name, column)| {
            let mut path = column.without_fields()?;
            path.push(name.clone());
            Some(path)
        })
    }
}

/// Returns true for an interval of months, days and nanoseconds: a tuple, but no list.
fn is_interval(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.is_instance_of::<PyTuple>()
        && object.hasattr(intern!(py, "months"))?
        && object.hasattr(intern!(py, "nanoseconds"))?)
}

/// Whether it has items in an order: a tuple, an array.
fn is_list(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyTuple>() {
        return Ok(true);
    }
    let py = object.py();
    Ok(object
        .getattr_opt(intern!(py, "ndim"))?
        .is_some_and(|dimensions| dimensions.gt(0).unwrap_or(false)))
}

/// The rows of `rows`, an iterable of dictionaries that can be read twice, as a table; `name` is what
/// messages call it.
#[pyfunction]
pub(crate) fn table_of_rows(
    py: Python<'_>,
    name: &str,
    rows: &Bound<'_, PyAny>,
) -> PyResult<RawStream> {
    let kit = Kit::new(py)?;
    let mut columns = Columns::default();
    let mut count = 0;
    for row in rows.try_iter()? {
        let row = row?;
        let seen = match as_dict(&row)? {
            Some(fields) => columns.see(&kit, &fields, count),
            None => {
                Err(Fault::Wrong(Vec::new(), format!("expected a dict, found {}", described(&row))))
            }
        };
        seen.map_err(|fault| refused(py, name, fault, count))?;
        count += 1;
        if count % (ROWS_MAX as u64) == 0 {
            py.check_signals()?;
        }
    }
    if columns.columns.is_empty() {
        let error = Error::usage_with_hint(
            format!("`{name}` has no columns: it holds no dict with a key"),
            "an empty table with columns is one of Arrow, pandas or Polars",
        );
        return Err(raise(py, error));
    }
    if let Some(path) = columns.without_fields() {
        let fault = Fault::Wrong(path, "its dicts have no keys, and so no type".to_owned());
        return Err(refused(py, name, fault, 0));
    }
    let json = json!({"fields": columns.json()}).to_string();
    let schema = Schema::parse(&json)
        .map_err(|error| raise(py, Error::usage(format!("`{name}`: {error}"))))?;
    let mut builder = RowBuilder::new(py, &schema)?;
    let in_python = |error| raise(py, Error::Internal(format!("rows as Arrow: {error}")));
    let mut batches: Vec<RecordBatch> = Vec::new();
    for (number, row) in (0..).zip(rows.try_iter()?) {
        let row = row?;
        builder.push(&row).map_err(|fault| refused(py, name, fault, number))?;
        if builder.count() >= ROWS_MAX || builder.bytes() >= BYTES_MAX {
            py.check_signals()?;
            batches.push(builder.take().map_err(in_python)?);
        }
    }
    if builder.count() > 0 || batches.is_empty() {
        batches.push(builder.take().map_err(in_python)?);
    }
    let schema = builder.schema();
    Ok(RawStream::new(Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), schema))))
}

fn as_dict<'py>(row: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(fields) = row.cast::<PyDict>() {
        return Ok(Some(fields.clone()));
    }
    let Ok(mapping) = row.cast::<PyMapping>() else { return Ok(None) };
    let copy = PyDict::new(row.py());
    copy.update(mapping)?;
    Ok(Some(copy))
}

/// A fault as Python's exception.
fn refused(py: Python<'_>, name: &str, fault: Fault, row: u64) -> PyErr {
    match fault {
        Fault::Raised(error) => error,
        Fault::Wrong(mut path, reason) => {
            path.reverse();
            let place = match path.is_empty() {
                true => format!("row {row}"),
                false => format!("column `{}`", path.join(".")),
            };
            let hint = "give the values of a column one type; None is one of every type";
            raise(py, Error::usage_with_hint(format!("`{name}`, {place}: {reason}"), hint))
        }
    }
}
