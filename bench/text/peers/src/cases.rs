//! The kinds of data and their columns, from `cases.json`, which the Python side reads too.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use serde_json::Value;

use crate::Result;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Int,
    Float,
    Bool,
    Text,
    /// Microseconds in UTC, which Arrow's own readers only know as `+00:00`.
    Time,
}

impl Kind {
    pub fn data_type(self) -> DataType {
        match self {
            Kind::Int => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::Bool => DataType::Boolean,
            Kind::Text => DataType::Utf8View,
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        }
    }
}

/// A column that is asked for.
#[derive(Clone)]
pub struct Wanted {
    /// Its keys from the outside in; one, but for JSON.
    pub path: Vec<String>,
    pub kind: Kind,
    /// Its place among all columns of the data.
    pub at: usize,
}

/// A kind of data, and which of its columns are asked for.
pub struct Case {
    pub format: String,
    pub header: bool,
    pub wanted: Vec<Wanted>,
    /// Every column that the data has, where that is known: a CSV parser needs it.
    pub all: Vec<Wanted>,
}

impl Case {
    pub fn named(data: &str, columns: &str) -> Result<Self> {
        let cases: Value = serde_json::from_str(include_str!("../../cases.json"))?;
        let case = cases.get(data).ok_or_else(|| format!("no data called `{data}`"))?;
        let format = case["format"].as_str().unwrap_or_default().to_owned();
        let all = wanted(&case[if case.get("all").is_some() { "all" } else { "few" }], &[])?;
        let chosen = case.get(columns).ok_or_else(|| format!("`{data}` has no `{columns}`"))?;
        Ok(Self { header: format == "csv", wanted: wanted(chosen, &all)?, all, format })
    }

    /// The columns asked for, nested as the data is.
    pub fn schema(&self) -> Schema {
        let leaves: Vec<(&[String], Kind)> =
            self.wanted.iter().map(|w| (w.path.as_slice(), w.kind)).collect();
        Schema::new(nested(&leaves))
    }

    /// The columns asked for, side by side.
    pub fn flat_schema(&self) -> Schema {
        let field = |w: &Wanted| Field::new(w.path.join("."), w.kind.data_type(), true);
        Schema::new(self.wanted.iter().map(field).collect::<Vec<_>>())
    }
}

fn wanted(list: &Value, all: &[Wanted]) -> Result<Vec<Wanted>> {
    let mut found = Vec::new();
    for (index, pair) in list.as_array().into_iter().flatten().enumerate() {
        let name = pair[0].as_str().unwrap_or_default();
        let kind = match pair[1].as_str() {
            Some("int") => Kind::Int,
            Some("float") => Kind::Float,
            Some("bool") => Kind::Bool,
            Some("text") => Kind::Text,
            Some("time") => Kind::Time,
            other => return Err(format!("`{name}`: no such type: {other:?}").into()),
        };
        let path: Vec<String> = name.split('/').map(str::to_owned).collect();
        let at = all.iter().position(|column| column.path == path).unwrap_or(index);
        found.push(Wanted { path, kind, at });
    }
    Ok(found)
}

fn nested(leaves: &[(&[String], Kind)]) -> Fields {
    let mut fields: Vec<Field> = Vec::new();
    for (path, kind) in leaves {
        let name = &path[0];
        if fields.iter().any(|field| field.name() == name) {
            continue;
        }
        if path.len() == 1 {
            fields.push(Field::new(name, kind.data_type(), true));
            continue;
        }
        let below: Vec<_> = leaves
            .iter()
            .filter(|(other, _)| other.len() > 1 && other[0] == *name)
            .map(|(other, kind)| (&other[1..], *kind))
            .collect();
        fields.push(Field::new(name, DataType::Struct(nested(&below)), true));
    }
    fields.into_iter().map(Arc::new).collect()
}
