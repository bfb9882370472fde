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
//!
//! Of a key that comes twice in an object, the last value counts.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use super::TextKind;
use crate::fault::Fault;
use crate::json::grammar::{Cursor, Inside, Scalar};
use crate::json::{check, unescape};

/// An object with more distinct keys than this is a map, if its values allow it: DuckDB's
/// threshold.
const STRUCT_KEYS_MAX: usize = 200;
/// What is nested deeper than this is not looked at.
const DEPTH_MAX: usize = 128;

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
    /// Each with the object it was last seen in.
    keys: Vec<(String, Shape, u64)>,
    /// Objects seen.
    stamp: u64,
}

impl Object {
    fn place(&mut self, key: &str) -> usize {
        match self.places.get(key) {
            Some(place) => *place,
            None => {
                self.places.insert(key.into(), self.keys.len());
                self.keys.push((key.into(), Shape::default(), 0));
                self.keys.len() - 1
            }
        }
    }
}

/// The value of a string.
fn text_of<'a>(text: &'a [u8], inside: Inside, buffer: &'a mut Vec<u8>) -> &'a str {
    let raw = &text[inside.start..inside.end];
    buffer.clear();
    let bytes = if inside.has_escapes && unescape(raw, buffer) { &buffer[..] } else { raw };
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl Object {
    /// Takes the object that comes next.
    fn add(&mut self, cursor: &mut Cursor, nulls: &[String], depth: usize) -> Result<(), Fault> {
        let mut members = Vec::new();
        let mut buffer = Vec::new();
        cursor.at += 1;
        if cursor.peek_in("an object")? == b'}' {
            cursor.at += 1;
        } else {
            loop {
                let key = cursor.key()?;
                let place = self.place(text_of(cursor.text, key, &mut buffer));
                members.push((place, cursor.at));
                cursor.skip()?;
                if !cursor.goes_on(b'}')? {
                    break;
                }
            }
        }
        let end = cursor.at;
        self.stamp += 1;
        for (place, at) in members.into_iter().rev() {
            let (_, shape, stamp) = &mut self.keys[place];
            if *stamp != self.stamp {
                *stamp = self.stamp;
                cursor.at = at;
                shape.add(cursor, nulls, depth + 1)?;
            }
        }
        cursor.at = end;
        Ok(())
    }
}

impl Shape {
    /// Takes the value that comes next.
    fn add(&mut self, cursor: &mut Cursor, nulls: &[String], depth: usize) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return cursor.skip();
        }
        match cursor.peek_in("a value")? {
            b'{' => self.object.get_or_insert_default().add(cursor, nulls, depth),
            b'[' => {
                let shape = self.items.get_or_insert_default();
                cursor.at += 1;
                if cursor.peek_in("an array")? == b']' {
                    cursor.at += 1;
                    return Ok(());
                }
                loop {
                    shape.add(cursor, nulls, depth + 1)?;
                    if !cursor.goes_on(b']')? {
                        return Ok(());
                    }
                }
            }
            b'"' => {
                let inside = cursor.string(true)?;
                let mut buffer = Vec::new();
                let text = text_of(cursor.text, inside, &mut buffer);
                if !nulls.iter().any(|null| null == text) {
                    self.text.get_or_insert_default().add(text);
                }
                Ok(())
            }
            _ => {
                let (scalar, token) = cursor.scalar()?;
                match scalar {
                    Scalar::Null => {}
                    Scalar::Boolean => self.boolean = true,
                    Scalar::Number => self.add_number(std::str::from_utf8(token).unwrap_or("")),
                }
                Ok(())
            }
        }
    }

    fn add_number(&mut self, text: &str) {
        match text.parse::<i64>() {
            // A zero that has a sign is a float's.
            Ok(int) if text != "-0" => {
                self.int = true;
                self.negative |= int < 0;
            }
            _ if text.parse::<u64>().is_ok() => self.beyond_i64 = true,
            _ => self.float = true,
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
            for (key, shape, _) in &object.keys {
                let place = own.place(key);
                own.keys[place].1.merge(shape);
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
            || self.object.as_ref().is_some_and(|o| o.keys.iter().any(|(_, s, _)| s.conflicts()))
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
            self.keys.iter().for_each(|(_, shape, _)| values.merge(shape));
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
            .map(|(key, shape, _)| Arc::new(Field::new(key, shape.data_type(), true)))
            .collect()
    }
}

fn map(values: DataType) -> DataType {
    let pair = vec![Field::new("key", DataType::Utf8, false), Field::new("value", values, true)];
    let entries = Field::new("entries", DataType::Struct(pair.into()), false);
    DataType::Map(Arc::new(entries), false)
}

/// Columns as the sample shows them so far.
///
/// ```
/// use tidemill_text::infer::json::Inference;
///
/// let mut inference = Inference::new(&[]);
/// assert_eq!(inference.add(b"{\"a\": [1]}\n{\"a\": null, \"b\": \"2013-01-01\"}\n"), 2);
/// let types: Vec<_> = inference.fields().iter().map(|f| f.data_type().to_string()).collect();
/// assert_eq!(types, ["List(Int64)", "Date32"]);
/// ```
#[derive(Debug)]
pub struct Inference {
    nulls: Vec<String>,
    columns: Object,
    objects: u64,
    first_fault: Option<Fault>,
}

impl Inference {
    /// For records in which these strings mean null.
    #[must_use]
    pub fn new(nulls: &[String]) -> Self {
        let columns = Object::default();
        Self { nulls: nulls.to_vec(), columns, objects: 0, first_fault: None }
    }

    /// Takes a block of whole lines and returns how many records it holds. Lines that are no
    /// objects are left to the reading, which reports them.
    pub fn add(&mut self, block: &[u8]) -> u64 {
        let mut records = 0;
        for line in block.split(|byte| *byte == b'\n') {
            if line.trim_ascii().is_empty() {
                continue;
            }
            records += 1;
            match self.add_line(line) {
                Ok(()) => self.objects += 1,
                Err(fault) => {
                    self.first_fault.get_or_insert(fault);
                }
            }
        }
        records
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        // Nothing is taken of a record that is none.
        check(line)?;
        let mut cursor = Cursor::new(line, true);
        cursor.peek();
        self.columns.add(&mut cursor, &self.nulls, 0)
    }

    /// How many objects there were.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Why the first line that is not an object is none, if there was one.
    #[must_use]
    pub fn first_fault(&self) -> Option<&Fault> {
        self.first_fault.as_ref()
    }

    /// The columns, in the order in which their keys came first.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldRef> {
        self.columns.fields()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(text: &str) -> Vec<(String, String)> {
        let mut inference = Inference::new(&["NA".to_string()]);
        inference.add(text.as_bytes());
        assert!(inference.first_fault().is_none(), "{text}");
        let fields = inference.fields();
        fields.iter().map(|f| (f.name().clone(), f.data_type().to_string())).collect()
    }

    #[test]
    fn the_common_shape_of_values_is_found() {
        for (values, expected) in [
            (&["1", "null", "-2"][..], "Int64"),
            (&["1", "2.5"], "Float64"),
            (&["18446744073709551615", "1"], "UInt64"),
            (&["18446744073709551615", "-1"], "Float64"),
            (&["-0"], "Float64"),
            (&["1e2"], "Float64"),
            (&["18446744073709551616"], "Float64"),
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
    fn the_last_of_two_values_counts_and_escapes_are_read() {
        let text = r#"{"a": "x", "b\u0021": 1, "a": 1, "t": "2013\u002d01-01", "n": "N\u0041"}"#;
        let found = infer(text);
        let expected = [("a", "Int64"), ("b!", "Int64"), ("t", "Date32"), ("n", "Utf8View")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    }

    #[test]
    fn lines_that_are_no_objects_are_counted_and_kept_out() {
        for (line, reason) in [
            ("a,b", "not valid JSON: expected a value at byte 1"),
            ("1", "expected an object, found a number"),
            ("{\"b\": 1", "the line ends within its value"),
            ("{\"b\": 01}", "not valid JSON: a malformed number at byte 7"),
            ("{\"b\": 1} {}", "the line goes on"),
        ] {
            let mut inference = Inference::new(&[]);
            assert_eq!(inference.add(format!("{line}\n").as_bytes()), 1);
            assert_eq!(inference.objects(), 0);
            assert!(inference.first_fault().unwrap().to_string().contains(reason));
            assert_eq!(inference.add(b"\n{\"a\": 1}\n \n"), 1);
            assert_eq!(inference.objects(), 1);
            assert_eq!(inference.fields().len(), 1);
        }
    }

    #[test]
    fn deep_nesting_ends_somewhere() {
        let deep = format!("{{\"a\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(infer(&deep).len(), 1);
    }
}
