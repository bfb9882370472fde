//! A tree of a job's values, each with its origin in the file. Overrides are written into this tree.

use tidemill_base::error::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value of a job's tree, and its origin.
#[derive(Debug, Clone)]
pub(super) struct JobValueNode {
    pub(super) value: JobFileValue,
    pub(super) origin: JobValueOrigin,
}

/// The place where a value was written.
#[derive(Debug, Clone)]
pub(super) enum JobValueOrigin {
    /// A line of the file, from 1.
    Line(usize),
    /// A `--set` override: its key, and its value as typed.
    Override(String, String),
    Unknown,
}

/// A value of a job file, from TOML or JSON.
#[derive(Debug, Clone)]
pub(super) enum JobFileValue {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    DateTime,
    List(Vec<JobValueNode>),
    Table(JobValueTree),
}

impl JobFileValue {
    pub(super) fn type_description(&self) -> &'static str {
        match self {
            JobFileValue::Text(_) => "a string",
            JobFileValue::Integer(_) | JobFileValue::Float(_) => "a number",
            JobFileValue::Boolean(_) => "true or false",
            JobFileValue::DateTime => "a date or time",
            JobFileValue::List(_) => "a list",
            JobFileValue::Table(_) => "a table",
        }
    }
}

impl JobFileValue {
    /// Converts the value to JSON. Times and numbers that JSON does not have become null; no key of a job
    /// accepts them.
    pub(super) fn into_json(self) -> serde_json::Value {
        match self {
            JobFileValue::Text(text) => text.into(),
            JobFileValue::Integer(number) => number.into(),
            JobFileValue::Float(number) => number.into(),
            JobFileValue::Boolean(boolean) => boolean.into(),
            JobFileValue::DateTime => serde_json::Value::Null,
            JobFileValue::List(nodes) => {
                nodes.into_iter().map(|node| node.value.into_json()).collect()
            }
            JobFileValue::Table(tree) => tree.into_json(),
        }
    }
}

impl JobValueNode {
    /// Returns the text. For an override it is the text typed after `--set key=`, so that `2013` counts as
    /// text too.
    pub(super) fn into_text(self) -> Result<String, JobValueNode> {
        match (self.value, self.origin) {
            (JobFileValue::Text(text), _) => Ok(text),
            (
                JobFileValue::Integer(_)
                | JobFileValue::Float(_)
                | JobFileValue::Boolean(_)
                | JobFileValue::DateTime,
                JobValueOrigin::Override(_, typed),
            ) => Ok(typed),
            (value, place) => Err(JobValueNode { value, origin: place }),
        }
    }
}

/// The entries of a table, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct JobValueTree(pub(super) Vec<(String, JobValueNode)>);

impl JobValueTree {
    pub(super) fn get(&self, key: &str) -> Option<&JobValueNode> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    pub(super) fn into_json(self) -> serde_json::Value {
        let entries = self.0.into_iter();
        entries.map(|(key, node)| (key, node.value.into_json())).collect()
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut JobValueNode> {
        self.0.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Writes the override `--set key=text` into the tree, and creates missing tables.
    pub(super) fn apply_override(&mut self, key: &str, text: &str) -> Result<()> {
        let place = JobValueOrigin::Override(key.to_owned(), text.to_owned());
        let steps: Vec<&str> = key.split('.').map(str::trim).collect();
        if steps.iter().any(|step| step.is_empty()) {
            return Err(Error::usage_with_hint(
                format!("--set `{key}`: not a key of a job file"),
                "write the section and the key: --set source.url=FILE",
            ));
        }
        self.parent_table(&steps, key, &place)?.insert_or_replace(
            steps[steps.len() - 1],
            JobValueNode { value: parse_override_value(text, &place), origin: place },
        );
        Ok(())
    }

    /// Returns the table that contains the last of `steps`, and creates missing tables. `key` is the complete
    /// key for messages.
    pub(super) fn parent_table(
        &mut self,
        steps: &[&str],
        key: &str,
        place: &JobValueOrigin,
    ) -> Result<&mut JobValueTree> {
        let [step, rest @ ..] = steps else { return Ok(self) };
        if rest.is_empty() {
            return Ok(self);
        }
        if self.get_mut(step).is_none() {
            let value = JobFileValue::Table(JobValueTree::default());
            self.insert_or_replace(step, JobValueNode { value, origin: place.clone() });
        }
        let Some(node) = self.get_mut(step) else {
            return Err(Error::Internal(format!("`{step}` was not put into the job")));
        };
        match &mut node.value {
            JobFileValue::Table(table) => table.parent_table(rest, key, place),
            // For one of several `[[source]]`, the next step is its name.
            JobFileValue::List(nodes) => {
                let names: Vec<String> =
                    nodes.iter().filter_map(JobValueNode::name_entry).map(str::to_owned).collect();
                let wanted =
                    names.iter().position(|name| Some(name.as_str()) == rest.first().copied());
                let mut named = nodes.iter_mut().filter(|node| node.name_entry().is_some());
                match wanted.and_then(|position| named.nth(position)) {
                    Some(JobValueNode { value: JobFileValue::Table(table), .. })
                        if rest.len() > 1 =>
                    {
                        table.parent_table(&rest[1..], key, place)
                    }
                    _ => Err(Error::usage_with_hint(
                        format!("--set `{key}`: there are several of `[[{step}]]`"),
                        format!(
                            "name the one that is meant, as in --set {step}.NAME.url=…; names: {}",
                            names.join(", ")
                        ),
                    )),
                }
            }
            other => Err(Error::usage(format!(
                "--set `{key}`: `{step}` is {}, not a table",
                other.type_description()
            ))),
        }
    }

    pub(super) fn insert_or_replace(&mut self, key: &str, node: JobValueNode) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = node,
            None => self.0.push((key.to_owned(), node)),
        }
    }
}

impl JobValueNode {
    pub(super) fn name_entry(&self) -> Option<&str> {
        match &self.value {
            JobFileValue::Table(JobValueTree(entries)) => {
                entries.iter().find_map(|(key, node)| match (key.as_str(), &node.value) {
                    ("name", JobFileValue::Text(name)) => Some(name.as_str()),
                    _ => None,
                })
            }
            _ => None,
        }
    }
}

/// Parses the value typed after `--set key=`: as TOML if it is valid TOML, or else as text.
pub(super) fn parse_override_value(text: &str, place: &JobValueOrigin) -> JobFileValue {
    let document = format!("value = {text}");
    let parsed = DeTable::parse(&document).ok().and_then(|table| {
        let mut entries = table.into_inner().into_iter();
        match (entries.next(), entries.next()) {
            (Some((_, value)), None) => {
                Some(value_from_toml(value.into_inner(), &|_| place.clone()))
            }
            _ => None,
        }
    });
    parsed.unwrap_or_else(|| JobFileValue::Text(text.to_owned()))
}

/// The byte offsets of a text's newlines, which convert offsets to line numbers.
pub(super) struct NewlineOffsets(Vec<usize>);

impl NewlineOffsets {
    pub(super) fn new(text: &str) -> Self {
        NewlineOffsets(text.match_indices('\n').map(|(offset, _)| offset).collect())
    }

    pub(super) fn line_number(&self, offset: usize) -> usize {
        self.0.partition_point(|newline| *newline < offset) + 1
    }
}

pub(super) fn tree_with_line_numbers(table: DeTable<'_>, lines: &NewlineOffsets) -> JobValueTree {
    tree_from_toml(table, &|offset| JobValueOrigin::Line(lines.line_number(offset)))
}

pub(super) fn tree_from_toml(
    table: DeTable<'_>,
    place: &dyn Fn(usize) -> JobValueOrigin,
) -> JobValueTree {
    // The parsed table is sorted by name; the positions of the keys restore the file's order.
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter().map(|(key, value)| {
        let place_of_key = place(key.span().start);
        let value = value_from_toml(value.into_inner(), place);
        (key.into_inner().into_owned(), JobValueNode { value, origin: place_of_key })
    });
    JobValueTree(entries.collect())
}

pub(super) fn value_from_toml(
    value: DeValue<'_>,
    place: &dyn Fn(usize) -> JobValueOrigin,
) -> JobFileValue {
    match value {
        DeValue::String(text) => JobFileValue::Text(text.into_owned()),
        DeValue::Integer(number) => {
            match i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()) {
                Ok(number) => JobFileValue::Integer(number),
                Err(_) => JobFileValue::Float(f64::INFINITY),
            }
        }
        DeValue::Float(number) => {
            JobFileValue::Float(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(boolean) => JobFileValue::Boolean(boolean),
        DeValue::Datetime(_) => JobFileValue::DateTime,
        DeValue::Array(values) => JobFileValue::List(
            values
                .into_iter()
                .map(|value: Spanned<DeValue<'_>>| {
                    let place_of_value = place(value.span().start);
                    JobValueNode {
                        value: value_from_toml(value.into_inner(), place),
                        origin: place_of_value,
                    }
                })
                .collect(),
        ),
        DeValue::Table(table) => JobFileValue::Table(tree_from_toml(table, place)),
    }
}

pub(super) fn value_from_json(value: serde_json::Value) -> Option<JobFileValue> {
    let node = |value| {
        value_from_json(value).map(|value| JobValueNode { value, origin: JobValueOrigin::Unknown })
    };
    Some(match value {
        serde_json::Value::Null => return None,
        serde_json::Value::Bool(boolean) => JobFileValue::Boolean(boolean),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => JobFileValue::Integer(number),
            None => JobFileValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => JobFileValue::Text(text),
        serde_json::Value::Array(values) => {
            JobFileValue::List(values.into_iter().filter_map(node).collect())
        }
        serde_json::Value::Object(entries) => JobFileValue::Table(JobValueTree(
            entries.into_iter().filter_map(|(key, value)| Some((key, node(value)?))).collect(),
        )),
    })
}
