//! Columns of JSON lines: the shape that the sample's values have in common.
//!
//! | values | type |
//! | --- | --- |
//! | `true`, `false` | Boolean |
//! | integers; with some beyond i64 | Int64; UInt64 if none is negative |
//! | numbers | Float64 |
//! | text, all of it dates, or dates with times | Date32, Timestamp(µs) |
//! | text; scalars of several kinds | Utf8View |
//! | arrays | List |
//! | objects | Struct; Map if there are more than 200 keys and their values have one type |
//! | null only | Utf8View |
//! | objects or arrays mixed with something else | Utf8View; to read it is a located error |

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use serde_json::Value;

use super::TextKind;
use crate::error::{Error, Result};

/// An object with more distinct keys than this is a map, if its values allow it: DuckDB's
/// threshold.
const STRUCT_KEYS_MAX: usize = 200;

/// What values at one place looked like.
#[derive(Debug, Default, Clone)]
struct Shape {
    boolean: bool,
    int: bool,
    negative: bool,
    beyond_i64: bool,
    float: bool,
    text: Option<TextKind>,
    items: Option<Box<Shape>>,
    object: Option<Box<Object>>,
}

/// Keys in the order of their first appearance.
#[derive(Debug, Default, Clone)]
struct Object {
    places: HashMap<String, usize>,
    keys: Vec<(String, Shape)>,
}

impl Object {
    fn shape(&mut self, key: &str) -> &mut Shape {
        let place = match self.places.get(key) {
            Some(place) => *place,
            None => {
                self.places.insert(key.into(), self.keys.len());
                self.keys.push((key.into(), Shape::default()));
                self.keys.len() - 1
            }
        };
        &mut self.keys[place].1
    }
}

impl Shape {
    fn add(&mut self, value: &Value, nulls: &[String]) {
        match value {
            Value::Null => {}
            Value::Bool(_) => self.boolean = true,
            Value::Number(number) => {
                if let Some(int) = number.as_i64() {
                    self.int = true;
                    self.negative |= int < 0;
                } else if number.is_u64() {
                    self.beyond_i64 = true;
                } else {
                    self.float = true;
                }
            }
            Value::String(text) => {
                if !nulls.contains(text) {
                    self.text.get_or_insert_default().add(text);
                }
            }
            Value::Array(items) => {
                let shape = self.items.get_or_insert_default();
                items.iter().for_each(|item| shape.add(item, nulls));
            }
            Value::Object(object) => {
                let shape = self.object.get_or_insert_default();
                object.iter().for_each(|(key, value)| shape.shape(key).add(value, nulls));
            }
        }
    }

    fn merge(&mut self, other: &Shape) {
        self.boolean |= other.boolean;
        self.int |= other.int;
        self.negative |= other.negative;
        self.beyond_i64 |= other.beyond_i64;
        self.float |= other.float;
        if let Some(text) = &other.text {
            self.text.get_or_insert_default().merge(text);
        }
        if let Some(items) = &other.items {
            self.items.get_or_insert_default().merge(items);
        }
        if let Some(object) = &other.object {
            let own = self.object.get_or_insert_default();
            for (key, shape) in &object.keys {
                own.shape(key).merge(shape);
            }
        }
    }

    fn is_scalar(&self) -> bool {
        self.boolean || self.is_number() || self.text.is_some()
    }

    fn is_number(&self) -> bool {
        self.int || self.beyond_i64 || self.float
    }

    /// Whether values of different shapes meet somewhere in it.
    fn conflicts(&self) -> bool {
        let shapes = [self.is_scalar(), self.items.is_some(), self.object.is_some()];
        shapes.iter().filter(|shape| **shape).count() > 1
            || self.items.as_ref().is_some_and(|items| items.conflicts())
            || self.object.as_ref().is_some_and(|o| o.keys.iter().any(|(_, s)| s.conflicts()))
    }

    fn data_type(&self) -> DataType {
        match (&self.items, &self.object) {
            (Some(items), None) if !self.is_scalar() => {
                DataType::List(Arc::new(Field::new("item", items.data_type(), true)))
            }
            (None, Some(object)) if !self.is_scalar() => object.data_type(),
            (None, None) => self.scalar_type(),
            _ => DataType::Utf8View,
        }
    }

    fn scalar_type(&self) -> DataType {
        match (self.boolean, self.is_number(), &self.text) {
            (true, false, None) => DataType::Boolean,
            (false, true, None) if self.float || (self.beyond_i64 && self.negative) => {
                DataType::Float64
            }
            (false, true, None) if self.beyond_i64 => DataType::UInt64,
            (false, true, None) => DataType::Int64,
            (false, false, Some(text)) => text.temporal_type().unwrap_or(DataType::Utf8View),
            _ => DataType::Utf8View,
        }
    }
}

impl Object {
    fn data_type(&self) -> DataType {
        // A struct has at least one field.
        if self.keys.is_empty() {
            return map(DataType::Utf8View);
        }
        if self.keys.len() > STRUCT_KEYS_MAX {
            let mut values = Shape::default();
            self.keys.iter().for_each(|(_, shape)| values.merge(shape));
            let kinds = [values.boolean, values.is_number(), values.text.is_some()];
            let mixed = kinds.iter().filter(|kind| **kind).count() > 1;
            if !mixed && !values.conflicts() {
                return map(values.data_type());
            }
        }
        DataType::Struct(self.fields().into())
    }

    fn fields(&self) -> Vec<FieldRef> {
        self.keys
            .iter()
            .map(|(key, shape)| Arc::new(Field::new(key, shape.data_type(), true)))
            .collect()
    }
}

fn map(values: DataType) -> DataType {
    let pair = vec![Field::new("key", DataType::Utf8, false), Field::new("value", values, true)];
    let entries = Field::new("entries", DataType::Struct(pair.into()), false);
    DataType::Map(Arc::new(entries), false)
}

/// Columns as the sample shows them so far.
pub(crate) struct Inference {
    nulls: Vec<String>,
    columns: Object,
    objects: u64,
    first_fault: Option<Error>,
}

impl Inference {
    pub(crate) fn new(nulls: &[String]) -> Self {
        let columns = Object::default();
        Self { nulls: nulls.to_vec(), columns, objects: 0, first_fault: None }
    }

    /// Takes a block of whole lines and returns how many records it holds. Lines that are no
    /// objects are left to the reading, which reports them.
    pub(crate) fn add(&mut self, block: &[u8], is_first: bool, shown: &str) -> Result<u64> {
        if is_first {
            refuse_other_layouts(block, shown)?;
        }
        let mut records = 0;
        for line in block.split(|byte| *byte == b'\n') {
            if line.trim_ascii().is_empty() {
                continue;
            }
            records += 1;
            match serde_json::from_slice::<Value>(line) {
                Ok(Value::Object(object)) => {
                    self.objects += 1;
                    for (key, value) in &object {
                        self.columns.shape(key).add(value, &self.nulls);
                    }
                }
                other => {
                    self.first_fault.get_or_insert_with(|| Error::Corrupt {
                        path: shown.into(),
                        offset: None,
                        reason: match other {
                            Ok(_) => "its lines are not JSON objects".into(),
                            Err(error) => format!("its lines are not JSON ({error})"),
                        },
                        hint: Some(
                            "--source-format names another format (job file: source.format)".into(),
                        ),
                    });
                }
            }
        }
        Ok(records)
    }

    /// The columns; none if there was no record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there were records and none was an object.
    pub(crate) fn fields(self) -> Result<Option<Vec<FieldRef>>> {
        match self.first_fault {
            Some(fault) if self.objects == 0 => Err(fault),
            _ if self.objects == 0 => Ok(None),
            _ => Ok(Some(self.columns.fields())),
        }
    }
}

/// One array of objects, and objects spread over lines, are JSON but not JSON lines.
fn refuse_other_layouts(block: &[u8], shown: &str) -> Result<()> {
    let refuse = |reason: &str, hint: &str| {
        Err(Error::Corrupt {
            path: shown.into(),
            offset: Some(0),
            reason: reason.into(),
            hint: Some(format!("{hint} > file.jsonl makes JSON lines of it")),
        })
    };
    let text = block.trim_ascii_start();
    if text.first() == Some(&b'[') {
        return refuse(
            "it is one JSON array, and JSON is read as lines with one object each",
            "jq -c '.[]'",
        );
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Err(error) = serde_json::from_slice::<Value>(line) else { return Ok(()) };
    if error.is_eof() {
        let first = serde_json::Deserializer::from_slice(text).into_iter::<Value>().next();
        if matches!(first, Some(Ok(Value::Object(_)))) {
            return refuse(
                "its objects span several lines, and JSON is read as lines with one object each",
                "jq -c .",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(text: &str) -> Vec<(String, String)> {
        let mut inference = Inference::new(&["NA".to_string()]);
        inference.add(text.as_bytes(), true, "x").unwrap();
        let fields = inference.fields().unwrap().unwrap();
        fields.iter().map(|f| (f.name().clone(), f.data_type().to_string())).collect()
    }

    #[test]
    fn the_common_shape_of_values_is_found() {
        for (values, expected) in [
            (&["1", "null", "-2"][..], "Int64"),
            (&["1", "2.5"], "Float64"),
            (&["18446744073709551615", "1"], "UInt64"),
            (&["18446744073709551615", "-1"], "Float64"),
            (&["true", "null"], "Boolean"),
            (&["null"], "Utf8View"),
            (&["1", "\"a\""], "Utf8View"),
            (&["true", "1"], "Utf8View"),
            (&["\"2013-01-01\"", "\"NA\""], "Date32"),
            (&["\"2013-01-01T10:00:00Z\""], "Timestamp(µs, \"UTC\")"),
            (&["\"2013-01-01 10:00\""], "Timestamp(µs)"),
            (&["\"123\""], "Utf8View"),
            (&["\"true\""], "Utf8View"),
            (&["[]", "[1]", "null"], "List(Int64)"),
            (&["[null]"], "List(Utf8View)"),
            (&["{\"x\": 1}", "{\"y\": [\"a\"]}"], "Struct(\"x\": Int64, \"y\": List(Utf8View))"),
            (&["{\"x\": 1}", "3"], "Utf8View"),
            (&["[1]", "{\"x\": 1}"], "Utf8View"),
        ] {
            let lines: Vec<_> =
                values.iter().map(|value| format!("{{\"c\": {value}}}\n")).collect();
            let found = infer(&lines.concat());
            assert_eq!(found, [("c".to_string(), expected.to_string())], "{values:?}");
        }
    }

    #[test]
    fn many_keys_make_a_map_if_their_values_agree() {
        let object = |value: &dyn Fn(usize) -> String, keys: usize| {
            let pairs: Vec<_> = (0..keys).map(|key| format!("\"k{key}\":{}", value(key))).collect();
            format!("{{\"c\":{{{}}}}}\n", pairs.join(","))
        };
        let number = |key: usize| key.to_string();
        let text_or_number = |key: usize| if key == 7 { "\"x\"".into() } else { "1".into() };
        assert!(infer(&object(&number, 201))[0].1.starts_with("Map("));
        assert!(infer(&object(&number, 200))[0].1.starts_with("Struct("));
        assert!(infer(&object(&text_or_number, 201))[0].1.starts_with("Struct("));
        assert!(infer("{\"c\":{}}\n")[0].1.starts_with("Map("));
    }

    #[test]
    fn layouts_that_are_not_json_lines_are_refused_with_a_way_out() {
        for (text, expected) in [
            ("[{\"a\": 1},\n{\"a\": 2}]\n", "one JSON array"),
            ("{\n  \"a\": 1\n}\n", "span several lines"),
            ("a,b\n1,2\n", "lines are not JSON"),
            ("1\n2\n", "not JSON objects"),
        ] {
            let mut inference = Inference::new(&[]);
            let message = match inference.add(text.as_bytes(), true, "x.json") {
                Err(error) => error.to_string(),
                Ok(_) => inference.fields().unwrap_err().to_string(),
            };
            assert!(message.contains(expected), "{message}");
        }
    }
}
