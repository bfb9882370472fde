//! The tree of a job's values, each with the place where it was written; overrides are written into it.

use tidemill_base::error::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value of the job's tree, and where it was written.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Origin,
}

#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A line of the file, from 1.
    Line(usize),
    /// `--set` with this key, and its value as it was typed.
    Override(String, String),
    Unknown,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Time,
    List(Vec<Node>),
    Table(Tree),
}

impl Value {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Boolean(_) => "true or false",
            Value::Time => "a date or time",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

impl Value {
    /// As JSON has it. No key of a job takes what JSON has not: a time, or a number that is
    /// none.
    pub(super) fn into_json(self) -> serde_json::Value {
        match self {
            Value::Text(text) => text.into(),
            Value::Integer(number) => number.into(),
            Value::Float(number) => number.into(),
            Value::Boolean(boolean) => boolean.into(),
            Value::Time => serde_json::Value::Null,
            Value::List(nodes) => nodes.into_iter().map(|node| node.value.into_json()).collect(),
            Value::Table(tree) => tree.into_json(),
        }
    }
}

impl Node {
    /// The text, or what was typed after `--set key=`, where `2013` was meant as text too.
    pub(super) fn into_text(self) -> Result<String, Node> {
        match (self.value, self.place) {
            (Value::Text(text), _) => Ok(text),
            (
                Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Time,
                Origin::Override(_, typed),
            ) => Ok(typed),
            (value, place) => Err(Node { value, place }),
        }
    }
}

/// A table's entries in the order in which they were written.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree(pub(super) Vec<(String, Node)>);

impl Tree {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    pub(super) fn into_json(self) -> serde_json::Value {
        let entries = self.0.into_iter();
        entries.map(|(key, node)| (key, node.value.into_json())).collect()
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.0.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Writes `--set key=text` into the tree, making the tables on the way.
    pub(super) fn set(&mut self, key: &str, text: &str) -> Result<()> {
        let place = Origin::Override(key.to_owned(), text.to_owned());
        let steps: Vec<&str> = key.split('.').map(str::trim).collect();
        if steps.iter().any(|step| step.is_empty()) {
            return Err(Error::usage_with_hint(
                format!("--set `{key}`: not a key of a job file"),
                "write the section and the key: --set source.url=FILE",
            ));
        }
        self.descend(&steps, key, &place)?
            .put(steps[steps.len() - 1], Node { value: override_value(text, &place), place });
        Ok(())
    }

    /// The table that holds the last of `steps`, which `key` ends with, made if it is missing.
    pub(super) fn descend(
        &mut self,
        steps: &[&str],
        key: &str,
        place: &Origin,
    ) -> Result<&mut Tree> {
        let [step, rest @ ..] = steps else { return Ok(self) };
        if rest.is_empty() {
            return Ok(self);
        }
        if self.get_mut(step).is_none() {
            let value = Value::Table(Tree::default());
            self.put(step, Node { value, place: place.clone() });
        }
        let Some(node) = self.get_mut(step) else {
            return Err(Error::Internal(format!("`{step}` was not put into the job")));
        };
        match &mut node.value {
            Value::Table(table) => table.descend(rest, key, place),
            // One of several `[[source]]`: the next step is its name.
            Value::List(nodes) => {
                let names: Vec<String> =
                    nodes.iter().filter_map(Node::name).map(str::to_owned).collect();
                let wanted =
                    names.iter().position(|name| Some(name.as_str()) == rest.first().copied());
                let mut named = nodes.iter_mut().filter(|node| node.name().is_some());
                match wanted.and_then(|position| named.nth(position)) {
                    Some(Node { value: Value::Table(table), .. }) if rest.len() > 1 => {
                        table.descend(&rest[1..], key, place)
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
                other.kind()
            ))),
        }
    }

    pub(super) fn put(&mut self, key: &str, node: Node) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = node,
            None => self.0.push((key.to_owned(), node)),
        }
    }
}

impl Node {
    pub(super) fn name(&self) -> Option<&str> {
        match &self.value {
            Value::Table(Tree(entries)) => {
                entries.iter().find_map(|(key, node)| match (key.as_str(), &node.value) {
                    ("name", Value::Text(name)) => Some(name.as_str()),
                    _ => None,
                })
            }
            _ => None,
        }
    }
}

/// The value typed after `--set key=`: TOML if it is that, else the text itself.
pub(super) fn override_value(text: &str, place: &Origin) -> Value {
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
    parsed.unwrap_or_else(|| Value::Text(text.to_owned()))
}

/// Offsets of a text's lines.
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn new(text: &str) -> Self {
        Lines(text.match_indices('\n').map(|(offset, _)| offset).collect())
    }

    pub(super) fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|newline| *newline < offset) + 1
    }
}

pub(super) fn table_from_toml(table: DeTable<'_>, lines: &Lines) -> Tree {
    tree_from_toml(table, &|offset| Origin::Line(lines.number(offset)))
}

pub(super) fn tree_from_toml(table: DeTable<'_>, place: &dyn Fn(usize) -> Origin) -> Tree {
    // The map is sorted by name; the file's order is that of the keys' positions.
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter().map(|(key, value)| {
        let place_of_key = place(key.span().start);
        let value = value_from_toml(value.into_inner(), place);
        (key.into_inner().into_owned(), Node { value, place: place_of_key })
    });
    Tree(entries.collect())
}

pub(super) fn value_from_toml(value: DeValue<'_>, place: &dyn Fn(usize) -> Origin) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => {
            match i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Float(f64::INFINITY),
            }
        }
        DeValue::Float(number) => {
            Value::Float(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(_) => Value::Time,
        DeValue::Array(values) => Value::List(
            values
                .into_iter()
                .map(|value: Spanned<DeValue<'_>>| {
                    let place_of_value = place(value.span().start);
                    Node {
                        value: value_from_toml(value.into_inner(), place),
                        place: place_of_value,
                    }
                })
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(tree_from_toml(table, place)),
    }
}

pub(super) fn value_from_json(value: serde_json::Value) -> Option<Value> {
    let node = |value| value_from_json(value).map(|value| Node { value, place: Origin::Unknown });
    Some(match value {
        serde_json::Value::Null => return None,
        serde_json::Value::Bool(boolean) => Value::Boolean(boolean),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Integer(number),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(values) => {
            Value::List(values.into_iter().filter_map(node).collect())
        }
        serde_json::Value::Object(entries) => Value::Table(Tree(
            entries.into_iter().filter_map(|(key, value)| Some((key, node(value)?))).collect(),
        )),
    })
}
