//! Columns of JSON lines: the shape that the sample's values have in common.
//!
//! | values | type |
//! | --- | --- |
//! | `true`, `false` | Boolean |
//! | integers; with some beyond i64 | Int64; UInt64 if none is negative |
//! | numbers | Float64 |
//! | text, all of it dates, dates with times, or times of day | Date32, Timestamp(µs), Time64(µs) |
//! | text; scalars of several kinds | Utf8View |
//! | arrays | List |
//! | objects | Struct; Map if there are more than 200 keys and their values have one type that rounds none of them |
//! | null only | Utf8View |
//! | objects or arrays mixed with something else | Utf8View, these as they are written |
//!
//! Of a key that comes twice in an object, the last value counts.
//!
//! Most records tell nothing new. So each is first gone over once by a [`Confirmation`], which
//! allocates nothing and answers whether the record is sound and every value of it is of a shape
//! that was seen at its place. Only if it is not, the record is checked in full, which finds the
//! fault, and then read for what is new.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use hashbrown::HashMap;

use super::TextKind;
use crate::fault::{Fault, FaultKind};
use crate::json::grammar::{Cursor, Inside, Scalar, is_white};
use crate::json::{check, first_of_line, is_blank, stripped, unescape};
use crate::values;

/// An object with more distinct keys than this is a map, if its values allow it: DuckDB's
/// threshold.
const STRUCT_KEYS_MAX: usize = 200;
/// Of a sample with more keys than this, which are columns each, no further ones are taken.
pub const COLUMNS_MAX: usize = 100_000;
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
    /// An integer that a double would round.
    rounded: bool,
    text: Option<TextKind>,
    items: Option<Box<Shape>>,
    object: Option<Box<Object>>,
    /// What it is is known: another sample may only widen it.
    settled: bool,
}

/// Keys in the order of their first appearance.
#[derive(Debug, Default, Clone)]
struct Object {
    places: HashMap<String, usize>,
    keys: Vec<Key>,
    /// Objects seen.
    stamp: u64,
}

#[derive(Debug, Clone)]
struct Key {
    name: String,
    /// `"name":`, or nothing if the name has characters that are written as escapes.
    quoted: String,
    shape: Shape,
    /// The object it was last seen in.
    stamp: u64,
}

impl Key {
    fn new(name: &str) -> Self {
        let is_plain = !name.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
        let quoted = if is_plain { format!("\"{name}\":") } else { String::new() };
        Self { name: name.into(), quoted, shape: Shape::default(), stamp: 0 }
    }
}

impl Object {
    fn place(&mut self, key: &str) -> usize {
        match self.places.get(key) {
            Some(place) => *place,
            None => {
                self.places.insert(key.into(), self.keys.len());
                self.keys.push(Key::new(key));
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
                if depth == 0 && self.keys.len() > COLUMNS_MAX {
                    let reason = format!("more than {COLUMNS_MAX} keys are too many");
                    return Err(Fault::new(cursor.at, FaultKind::Syntax(reason)));
                }
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
            let key = &mut self.keys[place];
            if key.stamp != self.stamp {
                key.stamp = self.stamp;
                cursor.at = at;
                key.shape.add(cursor, nulls, depth + 1)?;
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
        self.rounded |= values::rounds_as_double(text);
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

    /// Whether a number would change nothing.
    fn covers_number(&self, text: &str) -> bool {
        let mut number = Self::default();
        number.add_number(text);
        // Whatever else there is, floats and other numbers are floats.
        let keeps_kind = self.float
            || !number.float
                && (self.int || !number.int)
                && (self.negative || !number.negative)
                && (self.beyond_i64 || !number.beyond_i64);
        keeps_kind && (self.rounded || !number.rounded)
    }

    fn merge(&mut self, other: &Shape) {
        self.boolean |= other.boolean;
        self.int |= other.int;
        self.negative |= other.negative;
        self.beyond_i64 |= other.beyond_i64;
        self.float |= other.float;
        self.rounded |= other.rounded;
        if let Some(text) = &other.text {
            self.text.get_or_insert_default().merge(text);
        }
        if let Some(items) = &other.items {
            self.items.get_or_insert_default().merge(items);
        }
        if let Some(object) = &other.object {
            let own = self.object.get_or_insert_default();
            for key in &object.keys {
                let place = own.place(&key.name);
                own.keys[place].shape.merge(&key.shape);
            }
        }
    }

    fn settle(&mut self) {
        if let Some(items) = &mut self.items {
            items.settle();
        }
        if let Some(object) = &mut self.object {
            object.settle();
        }
        self.settled = self.is_scalar() || self.items.is_some() || self.object.is_some();
    }

    /// Takes what another sample shows; of what is settled only what leaves it what it is.
    fn widen(&mut self, other: &Shape) {
        if !self.settled {
            return self.merge(other);
        }
        match (self.is_scalar(), &mut self.items, &mut self.object) {
            (false, Some(items), None) => {
                if let Some(other) = &other.items {
                    items.widen(other);
                }
            }
            (false, None, Some(object)) => {
                if let Some(other) = &other.object {
                    object.widen(other);
                }
            }
            (true, None, None) if !self.boolean => match (self.is_number(), &mut self.text) {
                (true, None) => {
                    self.int |= other.int;
                    self.negative |= other.negative;
                    self.beyond_i64 |= other.beyond_i64;
                    self.float |= other.float;
                    self.rounded |= other.rounded;
                }
                (false, Some(text)) => {
                    let mut wider = *text;
                    if let Some(other) = &other.text {
                        wider.merge(other);
                    }
                    let is_mere =
                        |kind: &TextKind| kind.temporal_type() == Some(DataType::Utf8View);
                    if is_mere(text) || !is_mere(&wider) {
                        *text = wider;
                    }
                }
                _ => {}
            },
            _ => {}
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
            || self.object.as_ref().is_some_and(|o| o.keys.iter().any(|key| key.shape.conflicts()))
    }

    /// Returns whether its type would round an integer somewhere in it.
    fn rounds(&self) -> bool {
        self.rounded && self.is_number() && self.scalar_type() == DataType::Float64
            || self.items.as_ref().is_some_and(|items| items.rounds())
            || self.object.as_ref().is_some_and(|o| o.keys.iter().any(|key| key.shape.rounds()))
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

/// Goes once over a record that may tell nothing new. What it says no to may still tell nothing
/// new; of the shapes it changes nothing but the stamps.
struct Confirmation<'a> {
    cursor: Cursor<'a>,
    nulls: &'a [String],
    buffer: &'a mut Vec<u8>,
}

impl Confirmation<'_> {
    fn record(&mut self, columns: &mut Object) -> bool {
        simdutf8::basic::from_utf8(self.cursor.text).is_ok()
            && self.next() == b'{'
            && self.object(columns, 0)
            && self.cursor.peek().is_none()
    }

    /// The byte behind white space, which stays there; zero, which begins nothing, at the end.
    #[inline(always)]
    fn next(&mut self) -> u8 {
        while let Some(&byte) = self.cursor.text.get(self.cursor.at) {
            if !is_white(byte) {
                return byte;
            }
            self.cursor.at += 1;
        }
        0
    }

    fn object(&mut self, object: &mut Object, depth: usize) -> bool {
        self.cursor.at += 1;
        if self.next() == b'}' {
            self.cursor.at += 1;
            return true;
        }
        object.stamp += 1;
        let mut expected = 0;
        loop {
            let Some(place) = self.key(object, expected) else { return false };
            let key = &mut object.keys[place];
            // Of a key that comes twice only the last value counts.
            if key.stamp == object.stamp {
                return false;
            }
            key.stamp = object.stamp;
            expected = place + 1;
            if !self.value(&mut key.shape, depth + 1) {
                return false;
            }
            let behind = self.next();
            self.cursor.at += 1;
            match behind {
                b',' => {}
                byte => return byte == b'}',
            }
        }
    }

    /// Takes a key and its colon and returns its place, if it is known: most often the one that
    /// is expected.
    #[inline(always)]
    fn key(&mut self, object: &Object, expected: usize) -> Option<usize> {
        if self.next() != b'"' {
            return None;
        }
        if let Some(Key { quoted, .. }) = object.keys.get(expected)
            && !quoted.is_empty()
            && self.cursor.text[self.cursor.at..].starts_with(quoted.as_bytes())
        {
            self.cursor.at += quoted.len();
            return Some(expected);
        }
        let inside = self.string()?;
        if self.next() != b':' {
            return None;
        }
        self.cursor.at += 1;
        object.places.get(text_of(self.cursor.text, inside, self.buffer)).copied()
    }

    fn value(&mut self, shape: &mut Shape, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            return self.cursor.skip().is_ok();
        }
        match self.next() {
            b'"' => self.text(shape.text.as_ref()),
            b'-' | b'0'..=b'9' => self.number(shape),
            b'n' => self.literal(b"null"),
            b't' => shape.boolean && self.literal(b"true"),
            b'f' => shape.boolean && self.literal(b"false"),
            b'{' => shape.object.as_mut().is_some_and(|object| self.object(object, depth)),
            b'[' => shape.items.as_mut().is_some_and(|items| self.array(items, depth)),
            _ => false,
        }
    }

    fn array(&mut self, items: &mut Shape, depth: usize) -> bool {
        self.cursor.at += 1;
        if self.next() == b']' {
            self.cursor.at += 1;
            return true;
        }
        loop {
            if !self.value(items, depth + 1) {
                return false;
            }
            let behind = self.next();
            self.cursor.at += 1;
            match behind {
                b',' => {}
                byte => return byte == b']',
            }
        }
    }

    /// What follows it is looked at where a comma or the end must be.
    #[inline(always)]
    fn literal(&mut self, word: &[u8]) -> bool {
        let found = self.cursor.text[self.cursor.at..].starts_with(word);
        self.cursor.at += word.len();
        found
    }

    #[inline(always)]
    fn text(&mut self, kind: Option<&TextKind>) -> bool {
        let Some(inside) = self.string() else { return false };
        // Of mere text, null strings make no difference either.
        if kind.is_some_and(TextKind::is_never_temporal) {
            return true;
        }
        let text = text_of(self.cursor.text, inside, self.buffer);
        self.nulls.iter().any(|null| null == text)
            || kind.is_some_and(|kind| kind.keeps_temporal_type(text))
    }

    /// Takes the string whose opening quote comes next, eight bytes at a time up to its first
    /// escape.
    #[inline(always)]
    fn string(&mut self) -> Option<Inside> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let (text, start) = (self.cursor.text, self.cursor.at + 1);
        let mut at = start;
        while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*bytes);
            let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word;
            let quotes = less(word ^ (ONES * u64::from(b'"')), 1);
            let backslashes = less(word ^ (ONES * u64::from(b'\\')), 1);
            // Exact up to the first of each kind.
            let found = (quotes | backslashes | less(word, 0x20)) & (ONES << 7);
            if found == 0 {
                at += 8;
                continue;
            }
            at += found.trailing_zeros() as usize / 8;
            if text[at] != b'"' {
                break;
            }
            self.cursor.at = at + 1;
            return Some(Inside { start, end: at, has_escapes: false });
        }
        self.cursor.string(true).ok()
    }

    /// Takes a number; what follows a short one is looked at where a comma or the end must be.
    #[inline(always)]
    fn number(&mut self, shape: &Shape) -> bool {
        let (text, start) = (self.cursor.text, self.cursor.at);
        let digits = |at: usize| text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let is_negative = text[start] == b'-';
        let first = start + usize::from(is_negative);
        let count = digits(first);
        let mut end = first + count;
        let is_float = text.get(end) == Some(&b'.');
        // Zeros with a sign and integers of more digits may be floats.
        let is_short = (1..=values::EXACT_DIGITS).contains(&count)
            && (text[first] != b'0' || (count == 1 && (is_float || !is_negative)));
        if is_float {
            end += 1 + digits(end + 1);
        }
        if !is_short || text[end - 1] == b'.' || matches!(text.get(end), Some(b'.' | b'e' | b'E')) {
            return self.cursor.scalar().is_ok_and(|(_, token)| {
                std::str::from_utf8(token).is_ok_and(|t| shape.covers_number(t))
            });
        }
        self.cursor.at = end;
        shape.float || (!is_float && shape.int && (shape.negative || !is_negative))
    }
}

impl Object {
    fn settle(&mut self) {
        self.keys.iter_mut().for_each(|key| key.shape.settle());
    }

    fn widen(&mut self, other: &Object) {
        for key in &other.keys {
            let place = self.place(&key.name);
            self.keys[place].shape.widen(&key.shape);
        }
    }

    fn data_type(&self) -> DataType {
        // A struct has at least one field.
        if self.keys.is_empty() {
            return map(DataType::Utf8View);
        }
        if self.keys.len() > STRUCT_KEYS_MAX {
            let mut values = Shape::default();
            self.keys.iter().for_each(|key| values.merge(&key.shape));
            let kinds = [values.boolean, values.is_number(), values.text.is_some()];
            let mixed = kinds.iter().filter(|kind| **kind).count() > 1;
            if !mixed && !values.conflicts() && !values.rounds() {
                return map(values.data_type());
            }
        }
        DataType::Struct(self.fields().into())
    }

    fn fields(&self) -> Vec<FieldRef> {
        self.keys
            .iter()
            .map(|key| Arc::new(Field::new(&key.name, key.shape.data_type(), true)))
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
    buffer: Vec<u8>,
    /// True if a line may hold several records.
    joined: bool,
    /// Nothing is confirmed: every record is read for what is new.
    #[cfg(test)]
    careful: bool,
}

impl Inference {
    /// For records in which these strings mean null.
    #[must_use]
    pub fn new(nulls: &[String]) -> Self {
        Self {
            nulls: nulls.to_vec(),
            columns: Object::default(),
            objects: 0,
            first_fault: None,
            buffer: Vec::new(),
            joined: false,
            #[cfg(test)]
            careful: false,
        }
    }

    /// Takes several records in a line too, as
    /// [`JsonDecoder::with_joined_records`](crate::json::JsonDecoder::with_joined_records).
    #[must_use]
    pub fn with_joined_records(mut self) -> Self {
        self.joined = true;
        self
    }

    /// Whether there are more keys than [`COLUMNS_MAX`], not counting those of objects within.
    pub fn is_too_wide(&self) -> bool {
        self.columns.keys.len() > COLUMNS_MAX
    }

    /// Takes a block of whole lines and returns how many records it holds. Lines that are no
    /// objects are left to the reading, which reports them.
    pub fn add(&mut self, block: &[u8]) -> u64 {
        let mut records = 0;
        for line in block.split(|byte| *byte == b'\n') {
            if line.trim_ascii().is_empty() {
                continue;
            }
            if self.confirms(line) {
                (records, self.objects) = (records + 1, self.objects + 1);
                continue;
            }
            let mut rest = line;
            while !(rest.is_empty() || self.joined && is_blank(rest)) {
                let mut record = rest;
                if self.joined {
                    (record, rest) = rest.split_at(first_of_line(rest));
                    record = stripped(record).1;
                } else {
                    rest = &[];
                }
                records += 1;
                match self.add_record(record) {
                    Ok(()) => self.objects += 1,
                    Err(fault) => {
                        self.first_fault.get_or_insert(fault);
                    }
                }
            }
        }
        records
    }

    fn add_record(&mut self, line: &[u8]) -> Result<(), Fault> {
        // Nothing is taken of a record that is none.
        check(line)?;
        let mut cursor = Cursor::new(line, true);
        cursor.peek();
        self.columns.add(&mut cursor, &self.nulls, 0)
    }

    /// Whether the line is an object that is known to tell nothing new.
    fn confirms(&mut self, line: &[u8]) -> bool {
        #[cfg(test)]
        if self.careful {
            return false;
        }
        let cursor = Cursor::new(line, true);
        let (nulls, buffer) = (&self.nulls[..], &mut self.buffer);
        Confirmation { cursor, nulls, buffer }.record(&mut self.columns)
    }

    /// Says that the sample so far is what types are taken from: what is
    /// [widened](Self::widen) from now on only widens them.
    pub fn settle(&mut self) {
        self.columns.settle();
    }

    /// Takes what the beginning of another file shows: keys that are new here with all that they
    /// are there, and of the others wider numbers, times beside dates, and new keys of objects.
    /// What does not fit is left to the reading, which reports it.
    ///
    /// ```
    /// use tidemill_text::infer::json::Inference;
    ///
    /// let of = |text: &str| {
    ///     let mut inference = Inference::new(&[]);
    ///     inference.add(text.as_bytes());
    ///     inference
    /// };
    /// let mut first = of(r#"{"a": 1, "b": {"c": 1}, "d": 1}"#);
    /// first.settle();
    /// first.widen(&of(r#"{"a": 2.5, "b": {"e": true}, "d": "n/a", "f": 1}"#));
    /// let types: Vec<_> = first.fields().iter().map(|f| f.data_type().to_string()).collect();
    /// assert_eq!(types, ["Float64", r#"Struct("c": Int64, "e": Boolean)"#, "Int64", "Int64"]);
    /// ```
    pub fn widen(&mut self, other: &Inference) {
        self.columns.widen(&other.columns);
        self.objects += other.objects;
    }

    /// The keys that had a value other than null.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let has_values =
            |shape: &Shape| shape.is_scalar() || shape.items.is_some() || shape.object.is_some();
        let keys = self.columns.keys.iter().filter(move |key| has_values(&key.shape));
        keys.map(|key| key.name.as_str())
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
    use proptest::collection::vec;
    use proptest::prelude::*;

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
    fn keys_beyond_any_table_are_not_gathered() {
        let record = |keys: std::ops::Range<usize>| {
            let pairs: Vec<_> = keys.map(|key| format!("\"{key}\":0")).collect();
            format!("{{{}}}\n", pairs.join(","))
        };
        let mut inference = Inference::new(&[]);
        inference.add(record(0..COLUMNS_MAX).as_bytes());
        inference.add(record(0..COLUMNS_MAX).as_bytes());
        inference.add(format!("{{\"1\":{}}}\n", record(0..COLUMNS_MAX + 9).trim()).as_bytes());
        assert!(!inference.is_too_wide() && inference.first_fault().is_none());
        inference.add(record(COLUMNS_MAX..2 * COLUMNS_MAX).as_bytes());
        assert!(inference.is_too_wide());
        assert_eq!(inference.fields().len(), COLUMNS_MAX + 1);
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
    fn no_key_of_many_rounds_the_integers_of_another() {
        // As with few keys: 2^53 + 1 is between two doubles.
        for (odd, other, is_map) in [
            ("9007199254740993", "1.5", false),
            ("-9007199254740993", "1e0", false),
            ("18446744073709551615", "-1", false),
            ("18446744073709551617", "0.5", false),
            ("[9007199254740993]", "[1.5]", false),
            ("{\"n\":9007199254740993}", "{\"n\":1.5}", false),
            ("{\"n\":[{\"m\":9007199254740993}]}", "{\"n\":[{\"m\":1.5}]}", false),
            ("9007199254740993", "1", true),
            ("9007199254740992", "1.5", true),
            ("-9007199254740994", "1.5", true),
            ("18446744073709551615", "1", true),
            ("900719925474099.3", "1.5", true),
            ("{\"n\":9007199254740993}", "{\"m\":1.5}", true),
        ] {
            for (keys, at) in [(201, 0), (201, 200), (1000, 7), (5000, 4999)] {
                let pair = |key| format!("\"k{key}\":{}", if key == at { odd } else { other });
                let pairs: Vec<_> = (0..keys).map(pair).collect();
                let text = format!("{{\"c\":{{{}}}}}\n", pairs.join(","));
                let found = infer(&text).swap_remove(0).1;
                assert_eq!(found.starts_with("Map("), is_map, "{odd} {other} {keys}");
                if !is_map {
                    let alone = infer(&format!("{{\"c\":{odd}}}\n")).swap_remove(0).1;
                    assert!(found.contains(&format!("\"k{at}\": {alone}")), "{found}");
                }
            }
        }
    }

    #[test]
    fn a_later_file_that_shows_both_kinds_of_numbers_makes_no_map_round() {
        let of = |value: &str| {
            let pairs: Vec<_> = (0..300).map(|key| format!("\"k{key}\":{value}")).collect();
            let mut inference = Inference::new(&[]);
            inference.add(format!("{{\"c\":{{{}}}}}\n", pairs.join(",")).as_bytes());
            inference
        };
        for (first, second, is_map) in [
            ("9007199254740993", "1.5", false),
            ("1", "1.5", true),
            ("1.5", "9007199254740993", false),
        ] {
            let mut inference = of(first);
            inference.settle();
            inference.widen(&of(second));
            let found = inference.fields().swap_remove(0);
            assert_eq!(matches!(found.data_type(), DataType::Map(..)), is_map, "{first} {second}");
        }
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

    #[test]
    fn a_record_is_confirmed_if_it_tells_nothing_new() {
        for (seen, line, expected) in [
            (r#"{"a":1,"b":2}"#, r#" { "b" : null , "a" : 12 } "#, true),
            (r#"{"a":1}"#, "{}", true),
            (r#"{"a":1}"#, r#"{"\u0061":2}"#, true),
            (r#"{"a":1}"#, r#"{"a":2,"a":3}"#, false),
            (r#"{"a":1}"#, r#"{"b":null}"#, false),
            (r#"{"a":1}"#, r#"{"a":-1}"#, false),
            (r#"{"a":1}"#, r#"{"a":-0}"#, false),
            (r#"{"a":1}"#, r#"{"a":9007199254740992}"#, true),
            (r#"{"a":[1,9007199254740993]}"#, r#"{"a":[9223372036854775807]}"#, true),
            (r#"{"a":1}"#, r#"{"a":9223372036854775808}"#, false),
            (r#"{"a":1}"#, r#"{"a":1.0}"#, false),
            (r#"{"a":1}"#, r#"{"a":1e1}"#, false),
            (r#"{"a":0.5}"#, r#"{"a":-18446744073709551616}"#, true),
            (r#"{"a":0.5}"#, r#"{"a":-18446744073709551615}"#, false),
            (r#"{"a":0.5}"#, r#"{"a":9007199254740993}"#, false),
            (r#"{"a":[0.5,9007199254740993]}"#, r#"{"a":[9007199254740995]}"#, true),
            (r#"{"a":0.5}"#, r#"{"a":-0.5e-1}"#, true),
            (r#"{"a":0.5}"#, r#"{"a":00.5}"#, false),
            (r#"{"a":0.5}"#, r#"{"a":5.}"#, false),
            (r#"{"a":0.5}"#, r#"{"a":1.2.3}"#, false),
            (r#"{"a":1}"#, r#"{"a":-}"#, false),
            (r#"{"a":true}"#, r#"{"a":false}"#, true),
            (r#"{"a":true}"#, r#"{"a":falsey}"#, false),
            (r#"{"a":true}"#, r#"{"a":tru"#, false),
            (r#"{"a":true}"#, r#"{"a":"x"}"#, false),
            (r#"{"a":"x"}"#, r#"{"a":"2013-01-01, \"\u00e9\n\""}"#, true),
            (r#"{"a":"x"}"#, r#"{"a":"123456789\x"}"#, false),
            (r#"{"a":"x"}"#, "{\"a\":\"12345678\t\"}", false),
            (r#"{"a":"2013-01-01"}"#, r#"{"a":"2014\u002d01-01"}"#, true),
            (r#"{"a":"2013-01-01"}"#, r#"{"a":"NA"}"#, true),
            (r#"{"a":"2013-01-01"}"#, r#"{"a":"2014-01-01 10:00"}"#, false),
            (r#"{"a":"2013-01-01"}"#, r#"{"a":"x"}"#, false),
            (r#"{"a":1}"#, r#"{"a":"N\u0041"}"#, true),
            (r#"{"a":[{"b":1}]}"#, r#"{"a":[{},null,{"b":2}]}"#, true),
            (r#"{"a":[{"b":1}]}"#, r#"{"a":[{"b":2},]}"#, false),
            (r#"{"a":[{"b":1}]}"#, r#"{"a":[[]]}"#, false),
            (r#"{"a":1}"#, r#"{"a":2} x"#, false),
            (r#"{"a":1}"#, r#"{"a":2,}"#, false),
            (r#"{"a":1}"#, r#"{"a":2"#, false),
            (r#"{"a":1}"#, "[]", false),
            (r#"{"a\"b\\":1}"#, r#"{"a\"b\\":1}"#, true),
        ] {
            let mut inference = Inference::new(&["NA".to_string()]);
            inference.add(seen.as_bytes());
            assert_eq!(inference.confirms(line.as_bytes()), expected, "{seen} {line}");
        }
        let mut inference = Inference::new(&[]);
        inference.add(b"{\"a\":\"x\"}");
        assert!(!inference.confirms(b"{\"a\":\"\xff\"}"));
    }

    /// Values, mostly such as one finds again and again.
    fn value() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            4 => "[0-9]{1,3}|-?[1-9][0-9]{0,20}",
            2 => "-?[0-9]\\.[0-9]{1,3}|-?0|1e[-+]?5",
            4 => prop::sample::select(vec![
                "null", "true", "false", "\"\"", "\"x\"", "\"NA\"", "\"N\\u0041\"", "\"1\"",
                "\"2013-01-01\"", "\"2013\\u002d02-01\"", "\"2013-01-01T10:00:00Z\"",
                "\"2013-01-01 10:00:00\"", "\"2013-01-01T10:00:00.123456789Z\"", "\"2013-02-30\"",
                "\"a \\\"quoted\\\" word\"", "\"a long text without any\"", "\"é\\ud83d\\ude00\"",
                "\"\\ud83d\"", "\"\\x\"", "01", "nul", "-", "1.", "{}", "[]",
            ]).prop_map(str::to_owned),
        ];
        scalar.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                3 => object(inner.clone()),
                2 => vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
                // Enough keys for a map.
                1 => inner.prop_map(|value| {
                    let pair = |key| format!("\"k{key}\":{value}");
                    format!("{{{}}}", (0..205).map(pair).collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec!["a", "b", "c", "\\u0061", "d\\\"", "d\\\\"]);
        let colon = prop::sample::select(vec![":", ": ", " :"]);
        vec((key, colon, value), 0..4).prop_map(|members| {
            let pairs =
                members.iter().map(|(key, colon, value)| format!("\"{key}\"{colon}{value}"));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn what_is_confirmed_is_what_would_have_changed_nothing(
            kinds in vec(object(value()), 1..4),
            // Some of them again and again; at some the text is cut or spoiled.
            order in vec((0..4usize, prop::option::weighted(0.1, (0..60usize, any::<u8>()))), 1..20),
        ) {
            let mut confirming = Inference::new(&["NA".to_string()]);
            let mut careful = Inference { careful: true, ..Inference::new(&["NA".to_string()]) };
            for (kind, spoiled) in order {
                let mut line = kinds[kind % kinds.len()].clone().into_bytes();
                match spoiled {
                    Some((at, 0..100)) => line.truncate(at),
                    Some((at, byte)) if at < line.len() => line[at] = byte % 128,
                    _ => {}
                }
                prop_assert_eq!(confirming.add(&line), careful.add(&line));
                prop_assert_eq!(confirming.fields(), careful.fields());
                prop_assert_eq!(confirming.objects(), careful.objects());
                let fault = |inference: &Inference| inference.first_fault().map(ToString::to_string);
                prop_assert_eq!(fault(&confirming), fault(&careful));
            }
        }
    }
}
