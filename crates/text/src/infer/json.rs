//! Inference of the columns of JSON records: the shape that the sample's values have in common.
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
//! | objects or arrays mixed with something else | Utf8View, these with their JSON spelling |
//!
//! If a key comes twice in an object, the last value counts.
//!
//! Most records add nothing new. A [`RecordConfirmation`] therefore first scans each record once, without
//! allocating, and tells whether the record is sound and every value of it has a shape
//! that was seen at its place. Only if not, inference checks the record in full, which finds the
//! fault, and then adds its shapes.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use hashbrown::HashMap;

use super::InferredTextType;
use crate::json::grammar::{JsonCursor, JsonScalar, StringInterior, is_json_whitespace};
use crate::json::{
    check_object_line, first_record_length, is_blank_line, strip_separators, unescape_string,
};
use crate::text_fault::{TextFault, TextFaultKind};
use crate::value_parsing;

/// Number of distinct keys above which an object becomes a map, if its values allow it: DuckDB's
/// threshold.
const STRUCT_KEYS_MAX: usize = 200;
/// Maximum number of keys that a sample may have, each a column; inference ignores further ones.
pub const JSON_COLUMNS_MAX: usize = 100_000;
/// Maximum nesting depth that inference examines.
const NESTING_DEPTH_MAX: usize = 128;

/// The shape of the values at one place.
#[derive(Debug, Default, Clone)]
struct JsonShape {
    has_boolean: bool,
    has_int: bool,
    has_negative: bool,
    exceeds_i64: bool,
    has_float: bool,
    /// True if a double would round one of the integers.
    has_rounded_int: bool,
    text_type: Option<InferredTextType>,
    item_shape: Option<Box<JsonShape>>,
    object_shape: Option<Box<JsonObjectShape>>,
    /// True if the type is fixed: another sample may only widen it.
    is_settled: bool,
}

/// The shape of objects: keys in the order of their first appearance.
#[derive(Debug, Default, Clone)]
struct JsonObjectShape {
    key_indices: HashMap<String, usize>,
    keys: Vec<JsonKeyShape>,
    /// Number of objects so far.
    object_count: u64,
}

#[derive(Debug, Clone)]
struct JsonKeyShape {
    name: String,
    /// `"name":`, or empty if the name has characters that JSON writes as escapes.
    quoted_name: String,
    shape: JsonShape,
    /// Number of the last object that had the key.
    last_object: u64,
}

impl JsonKeyShape {
    fn new(name: &str) -> Self {
        let is_plain = !name.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
        let quoted = if is_plain { format!("\"{name}\":") } else { String::new() };
        Self { name: name.into(), quoted_name: quoted, shape: JsonShape::default(), last_object: 0 }
    }
}

impl JsonObjectShape {
    fn find_or_add_key(&mut self, key: &str) -> usize {
        match self.key_indices.get(key) {
            Some(place) => *place,
            None => {
                self.key_indices.insert(key.into(), self.keys.len());
                self.keys.push(JsonKeyShape::new(key));
                self.keys.len() - 1
            }
        }
    }
}

/// Returns the value of a string, without escapes.
fn decode_string<'a>(text: &'a [u8], inside: StringInterior, buffer: &'a mut Vec<u8>) -> &'a str {
    let raw = &text[inside.start..inside.end];
    buffer.clear();
    let bytes = if inside.has_escapes && unescape_string(raw, buffer) { &buffer[..] } else { raw };
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl JsonObjectShape {
    /// Adds the object that comes next.
    fn add_object(
        &mut self,
        cursor: &mut JsonCursor,
        nulls: &[String],
        depth: usize,
    ) -> Result<(), TextFault> {
        let mut members = Vec::new();
        let mut buffer = Vec::new();
        cursor.position += 1;
        if cursor.peek_within("an object")? == b'}' {
            cursor.position += 1;
        } else {
            loop {
                if depth == 0 && self.keys.len() > JSON_COLUMNS_MAX {
                    let reason = format!("more than {JSON_COLUMNS_MAX} keys are too many");
                    return Err(TextFault::new(
                        cursor.position,
                        TextFaultKind::SyntaxError(reason),
                    ));
                }
                let key = cursor.read_key()?;
                let place = self.find_or_add_key(decode_string(cursor.text, key, &mut buffer));
                members.push((place, cursor.position));
                cursor.skip_value()?;
                if !cursor.take_comma_or_end(b'}')? {
                    break;
                }
            }
        }
        let end = cursor.position;
        self.object_count += 1;
        for (place, at) in members.into_iter().rev() {
            let key = &mut self.keys[place];
            if key.last_object != self.object_count {
                key.last_object = self.object_count;
                cursor.position = at;
                key.shape.add_value(cursor, nulls, depth + 1)?;
            }
        }
        cursor.position = end;
        Ok(())
    }
}

impl JsonShape {
    /// Adds the value that comes next.
    fn add_value(
        &mut self,
        cursor: &mut JsonCursor,
        nulls: &[String],
        depth: usize,
    ) -> Result<(), TextFault> {
        if depth > NESTING_DEPTH_MAX {
            return cursor.skip_value();
        }
        match cursor.peek_within("a value")? {
            b'{' => self.object_shape.get_or_insert_default().add_object(cursor, nulls, depth),
            b'[' => {
                let shape = self.item_shape.get_or_insert_default();
                cursor.position += 1;
                if cursor.peek_within("an array")? == b']' {
                    cursor.position += 1;
                    return Ok(());
                }
                loop {
                    shape.add_value(cursor, nulls, depth + 1)?;
                    if !cursor.take_comma_or_end(b']')? {
                        return Ok(());
                    }
                }
            }
            b'"' => {
                let inside = cursor.read_string(true)?;
                let mut buffer = Vec::new();
                let text = decode_string(cursor.text, inside, &mut buffer);
                if !nulls.iter().any(|null| null == text) {
                    self.text_type.get_or_insert_default().add_value(text);
                }
                Ok(())
            }
            _ => {
                let (scalar, token) = cursor.read_scalar()?;
                match scalar {
                    JsonScalar::Null => {}
                    JsonScalar::Boolean => self.has_boolean = true,
                    JsonScalar::Number => self.add_number(std::str::from_utf8(token).unwrap_or("")),
                }
                Ok(())
            }
        }
    }

    fn add_number(&mut self, text: &str) {
        self.has_rounded_int |= value_parsing::is_rounded_as_double(text);
        match text.parse::<i64>() {
            // A zero with a sign is a float.
            Ok(int) if text != "-0" => {
                self.has_int = true;
                self.has_negative |= int < 0;
            }
            _ if text.parse::<u64>().is_ok() => self.exceeds_i64 = true,
            _ => self.has_float = true,
        }
    }

    /// Returns whether adding a number would change nothing.
    fn is_number_covered(&self, text: &str) -> bool {
        let mut number = Self::default();
        number.add_number(text);
        // If there is a float, any other number leaves the type a float.
        let keeps_kind = self.has_float
            || !number.has_float
                && (self.has_int || !number.has_int)
                && (self.has_negative || !number.has_negative)
                && (self.exceeds_i64 || !number.exceeds_i64);
        keeps_kind && (self.has_rounded_int || !number.has_rounded_int)
    }

    fn merge(&mut self, other: &JsonShape) {
        self.has_boolean |= other.has_boolean;
        self.has_int |= other.has_int;
        self.has_negative |= other.has_negative;
        self.exceeds_i64 |= other.exceeds_i64;
        self.has_float |= other.has_float;
        self.has_rounded_int |= other.has_rounded_int;
        if let Some(text) = &other.text_type {
            self.text_type.get_or_insert_default().merge(text);
        }
        if let Some(items) = &other.item_shape {
            self.item_shape.get_or_insert_default().merge(items);
        }
        if let Some(object) = &other.object_shape {
            let own = self.object_shape.get_or_insert_default();
            for key in &object.keys {
                let place = own.find_or_add_key(&key.name);
                own.keys[place].shape.merge(&key.shape);
            }
        }
    }

    fn settle_types(&mut self) {
        if let Some(items) = &mut self.item_shape {
            items.settle_types();
        }
        if let Some(object) = &mut self.object_shape {
            object.settle_types();
        }
        self.is_settled =
            self.is_scalar() || self.item_shape.is_some() || self.object_shape.is_some();
    }

    /// Adds the shape of another sample. A fixed type only changes where that keeps its kind.
    fn widen(&mut self, other: &JsonShape) {
        if !self.is_settled {
            return self.merge(other);
        }
        match (self.is_scalar(), &mut self.item_shape, &mut self.object_shape) {
            (false, Some(items), None) => {
                if let Some(other) = &other.item_shape {
                    items.widen(other);
                }
            }
            (false, None, Some(object)) => {
                if let Some(other) = &other.object_shape {
                    object.widen(other);
                }
            }
            (true, None, None) if !self.has_boolean => {
                match (self.is_number(), &mut self.text_type) {
                    (true, None) => {
                        self.has_int |= other.has_int;
                        self.has_negative |= other.has_negative;
                        self.exceeds_i64 |= other.exceeds_i64;
                        self.has_float |= other.has_float;
                        self.has_rounded_int |= other.has_rounded_int;
                    }
                    (false, Some(text)) => {
                        let mut wider = *text;
                        if let Some(other) = &other.text_type {
                            wider.merge(other);
                        }
                        let is_mere = |kind: &InferredTextType| {
                            kind.temporal_type() == Some(DataType::Utf8View)
                        };
                        if is_mere(text) || !is_mere(&wider) {
                            *text = wider;
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn is_scalar(&self) -> bool {
        self.has_boolean || self.is_number() || self.text_type.is_some()
    }

    fn is_number(&self) -> bool {
        self.has_int || self.exceeds_i64 || self.has_float
    }

    /// Returns whether values of different shapes meet somewhere inside it.
    fn has_conflicts(&self) -> bool {
        let shapes = [self.is_scalar(), self.item_shape.is_some(), self.object_shape.is_some()];
        shapes.iter().filter(|shape| **shape).count() > 1
            || self.item_shape.as_ref().is_some_and(|items| items.has_conflicts())
            || self
                .object_shape
                .as_ref()
                .is_some_and(|o| o.keys.iter().any(|key| key.shape.has_conflicts()))
    }

    /// Returns whether its type would round an integer somewhere inside it.
    fn needs_rounding(&self) -> bool {
        self.has_rounded_int && self.is_number() && self.scalar_type() == DataType::Float64
            || self.item_shape.as_ref().is_some_and(|items| items.needs_rounding())
            || self
                .object_shape
                .as_ref()
                .is_some_and(|o| o.keys.iter().any(|key| key.shape.needs_rounding()))
    }

    fn data_type(&self) -> DataType {
        match (&self.item_shape, &self.object_shape) {
            (Some(items), None) if !self.is_scalar() => {
                DataType::List(Arc::new(Field::new("item", items.data_type(), true)))
            }
            (None, Some(object)) if !self.is_scalar() => object.data_type(),
            (None, None) => self.scalar_type(),
            _ => DataType::Utf8View,
        }
    }

    fn scalar_type(&self) -> DataType {
        match (self.has_boolean, self.is_number(), &self.text_type) {
            (true, false, None) => DataType::Boolean,
            (false, true, None) if self.has_float || (self.exceeds_i64 && self.has_negative) => {
                DataType::Float64
            }
            (false, true, None) if self.exceeds_i64 => DataType::UInt64,
            (false, true, None) => DataType::Int64,
            (false, false, Some(text)) => text.temporal_type().unwrap_or(DataType::Utf8View),
            _ => DataType::Utf8View,
        }
    }
}

/// A single pass over a record that may add nothing new. A record that it does not confirm may still add
/// nothing new. It changes nothing in the shapes but the object numbers.
struct RecordConfirmation<'a> {
    cursor: JsonCursor<'a>,
    nulls: &'a [String],
    unescape_buffer: &'a mut Vec<u8>,
}

impl RecordConfirmation<'_> {
    fn confirm_record(&mut self, columns: &mut JsonObjectShape) -> bool {
        simdutf8::basic::from_utf8(self.cursor.text).is_ok()
            && self.skip_to_token() == b'{'
            && self.confirm_object(columns, 0)
            && self.cursor.peek().is_none()
    }

    /// Skips white space and returns the next byte without consuming it; zero, which begins nothing, at the
    /// end.
    #[inline(always)]
    fn skip_to_token(&mut self) -> u8 {
        while let Some(&byte) = self.cursor.text.get(self.cursor.position) {
            if !is_json_whitespace(byte) {
                return byte;
            }
            self.cursor.position += 1;
        }
        0
    }

    fn confirm_object(&mut self, object: &mut JsonObjectShape, depth: usize) -> bool {
        self.cursor.position += 1;
        if self.skip_to_token() == b'}' {
            self.cursor.position += 1;
            return true;
        }
        object.object_count += 1;
        let mut expected = 0;
        loop {
            let Some(place) = self.match_key(object, expected) else { return false };
            let key = &mut object.keys[place];
            // If a key comes twice, only the last value counts.
            if key.last_object == object.object_count {
                return false;
            }
            key.last_object = object.object_count;
            expected = place + 1;
            if !self.confirm_value(&mut key.shape, depth + 1) {
                return false;
            }
            let behind = self.skip_to_token();
            self.cursor.position += 1;
            match behind {
                b',' => {}
                byte => return byte == b'}',
            }
        }
    }

    /// Consumes a key and its colon and returns the key's index, if the key is known: most often the expected
    /// one.
    #[inline(always)]
    fn match_key(&mut self, object: &JsonObjectShape, expected: usize) -> Option<usize> {
        if self.skip_to_token() != b'"' {
            return None;
        }
        if let Some(JsonKeyShape { quoted_name: quoted, .. }) = object.keys.get(expected)
            && !quoted.is_empty()
            && self.cursor.text[self.cursor.position..].starts_with(quoted.as_bytes())
        {
            self.cursor.position += quoted.len();
            return Some(expected);
        }
        let inside = self.scan_string()?;
        if self.skip_to_token() != b':' {
            return None;
        }
        self.cursor.position += 1;
        object
            .key_indices
            .get(decode_string(self.cursor.text, inside, self.unescape_buffer))
            .copied()
    }

    fn confirm_value(&mut self, shape: &mut JsonShape, depth: usize) -> bool {
        if depth > NESTING_DEPTH_MAX {
            return self.cursor.skip_value().is_ok();
        }
        match self.skip_to_token() {
            b'"' => self.confirm_text(shape.text_type.as_ref()),
            b'-' | b'0'..=b'9' => self.confirm_number(shape),
            b'n' => self.confirm_literal(b"null"),
            b't' => shape.has_boolean && self.confirm_literal(b"true"),
            b'f' => shape.has_boolean && self.confirm_literal(b"false"),
            b'{' => {
                shape.object_shape.as_mut().is_some_and(|object| self.confirm_object(object, depth))
            }
            b'[' => shape.item_shape.as_mut().is_some_and(|items| self.confirm_array(items, depth)),
            _ => false,
        }
    }

    fn confirm_array(&mut self, items: &mut JsonShape, depth: usize) -> bool {
        self.cursor.position += 1;
        if self.skip_to_token() == b']' {
            self.cursor.position += 1;
            return true;
        }
        loop {
            if !self.confirm_value(items, depth + 1) {
                return false;
            }
            let behind = self.skip_to_token();
            self.cursor.position += 1;
            match behind {
                b',' => {}
                byte => return byte == b']',
            }
        }
    }

    /// Consumes a literal. The caller checks that a comma or the end follows it.
    #[inline(always)]
    fn confirm_literal(&mut self, word: &[u8]) -> bool {
        let found = self.cursor.text[self.cursor.position..].starts_with(word);
        self.cursor.position += word.len();
        found
    }

    #[inline(always)]
    fn confirm_text(&mut self, kind: Option<&InferredTextType>) -> bool {
        let Some(inside) = self.scan_string() else { return false };
        // In plain text, null strings make no difference either.
        if kind.is_some_and(InferredTextType::is_never_temporal) {
            return true;
        }
        let text = decode_string(self.cursor.text, inside, self.unescape_buffer);
        self.nulls.iter().any(|null| null == text)
            || kind.is_some_and(|kind| kind.is_temporal_type_unchanged_by(text))
    }

    /// Consumes the string whose opening quote comes next, eight bytes at a time up to its first
    /// escape.
    #[inline(always)]
    fn scan_string(&mut self) -> Option<StringInterior> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let (text, start) = (self.cursor.text, self.cursor.position + 1);
        let mut at = start;
        while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*bytes);
            let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word;
            let quotes = less(word ^ (ONES * u64::from(b'"')), 1);
            let backslashes = less(word ^ (ONES * u64::from(b'\\')), 1);
            // The masks are exact up to the first byte of each kind.
            let found = (quotes | backslashes | less(word, 0x20)) & (ONES << 7);
            if found == 0 {
                at += 8;
                continue;
            }
            at += found.trailing_zeros() as usize / 8;
            if text[at] != b'"' {
                break;
            }
            self.cursor.position = at + 1;
            return Some(StringInterior { start, end: at, has_escapes: false });
        }
        self.cursor.read_string(true).ok()
    }

    /// Consumes a number. The caller checks that a comma or the end follows a short one.
    #[inline(always)]
    fn confirm_number(&mut self, shape: &JsonShape) -> bool {
        let (text, start) = (self.cursor.text, self.cursor.position);
        let digits = |at: usize| text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let is_negative = text[start] == b'-';
        let first = start + usize::from(is_negative);
        let count = digits(first);
        let mut end = first + count;
        let is_float = text.get(end) == Some(&b'.');
        // Zeros with a sign and integers of more digits may be floats.
        let is_short = (1..=value_parsing::DOUBLE_EXACT_DIGITS).contains(&count)
            && (text[first] != b'0' || (count == 1 && (is_float || !is_negative)));
        if is_float {
            end += 1 + digits(end + 1);
        }
        if !is_short || text[end - 1] == b'.' || matches!(text.get(end), Some(b'.' | b'e' | b'E')) {
            return self.cursor.read_scalar().is_ok_and(|(_, token)| {
                std::str::from_utf8(token).is_ok_and(|t| shape.is_number_covered(t))
            });
        }
        self.cursor.position = end;
        shape.has_float || (!is_float && shape.has_int && (shape.has_negative || !is_negative))
    }
}

impl JsonObjectShape {
    fn settle_types(&mut self) {
        self.keys.iter_mut().for_each(|key| key.shape.settle_types());
    }

    fn widen(&mut self, other: &JsonObjectShape) {
        for key in &other.keys {
            let place = self.find_or_add_key(&key.name);
            self.keys[place].shape.widen(&key.shape);
        }
    }

    fn data_type(&self) -> DataType {
        // A struct has at least one field.
        if self.keys.is_empty() {
            return map_type(DataType::Utf8View);
        }
        if self.keys.len() > STRUCT_KEYS_MAX {
            let mut values = JsonShape::default();
            self.keys.iter().for_each(|key| values.merge(&key.shape));
            let kinds = [values.has_boolean, values.is_number(), values.text_type.is_some()];
            let mixed = kinds.iter().filter(|kind| **kind).count() > 1;
            if !mixed && !values.has_conflicts() && !values.needs_rounding() {
                return map_type(values.data_type());
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

fn map_type(values: DataType) -> DataType {
    let pair = vec![Field::new("key", DataType::Utf8, false), Field::new("value", values, true)];
    let entries = Field::new("entries", DataType::Struct(pair.into()), false);
    DataType::Map(Arc::new(entries), false)
}

/// Columns inferred from the sample so far.
///
/// ```
/// use tidemill_text::infer::json::JsonInference;
///
/// let mut inference = JsonInference::new(&[]);
/// assert_eq!(inference.add_block(b"{\"a\": [1]}\n{\"a\": null, \"b\": \"2013-01-01\"}\n"), 2);
/// let types: Vec<_> = inference.fields().iter().map(|f| f.data_type().to_string()).collect();
/// assert_eq!(types, ["List(Int64)", "Date32"]);
/// ```
#[derive(Debug)]
pub struct JsonInference {
    nulls: Vec<String>,
    column_shapes: JsonObjectShape,
    object_count: u64,
    first_fault: Option<TextFault>,
    unescape_buffer: Vec<u8>,
    /// True if a line may hold several records.
    has_joined_records: bool,
    /// True to skip confirmation: every record is read in full.
    #[cfg(test)]
    skips_confirmation: bool,
}

impl JsonInference {
    /// Returns an inference for records in which these strings mean null.
    #[must_use]
    pub fn new(nulls: &[String]) -> Self {
        Self {
            nulls: nulls.to_vec(),
            column_shapes: JsonObjectShape::default(),
            object_count: 0,
            first_fault: None,
            unescape_buffer: Vec::new(),
            has_joined_records: false,
            #[cfg(test)]
            skips_confirmation: false,
        }
    }

    /// Accepts several records in a line too, as
    /// [`JsonDecoder::with_joined_records`](crate::json::JsonDecoder::with_joined_records).
    #[must_use]
    pub fn with_joined_records(mut self) -> Self {
        self.has_joined_records = true;
        self
    }

    /// Returns whether there are more keys than [`JSON_COLUMNS_MAX`], not counting those of nested objects.
    pub fn is_too_wide(&self) -> bool {
        self.column_shapes.keys.len() > JSON_COLUMNS_MAX
    }

    /// Adds a block of whole lines and returns the number of its records. Ignores lines that are not
    /// objects; the decoder reports them.
    pub fn add_block(&mut self, block: &[u8]) -> u64 {
        let mut records = 0;
        for line in block.split(|byte| *byte == b'\n') {
            if line.trim_ascii().is_empty() {
                continue;
            }
            if self.is_confirmed(line) {
                (records, self.object_count) = (records + 1, self.object_count + 1);
                continue;
            }
            let mut rest = line;
            while !(rest.is_empty() || self.has_joined_records && is_blank_line(rest)) {
                let mut record = rest;
                if self.has_joined_records {
                    (record, rest) = rest.split_at(first_record_length(rest));
                    record = strip_separators(record).1;
                } else {
                    rest = &[];
                }
                records += 1;
                match self.add_record(record) {
                    Ok(()) => self.object_count += 1,
                    Err(fault) => {
                        self.first_fault.get_or_insert(fault);
                    }
                }
            }
        }
        records
    }

    fn add_record(&mut self, line: &[u8]) -> Result<(), TextFault> {
        // A malformed record must not leave a partial shape.
        check_object_line(line)?;
        let mut cursor = JsonCursor::new(line, true);
        cursor.peek();
        self.column_shapes.add_object(&mut cursor, &self.nulls, 0)
    }

    /// Returns whether the line is an object that certainly adds nothing new.
    fn is_confirmed(&mut self, line: &[u8]) -> bool {
        #[cfg(test)]
        if self.skips_confirmation {
            return false;
        }
        let cursor = JsonCursor::new(line, true);
        let (nulls, buffer) = (&self.nulls[..], &mut self.unescape_buffer);
        RecordConfirmation { cursor, nulls, unescape_buffer: buffer }
            .confirm_record(&mut self.column_shapes)
    }

    /// Fixes the types of the sample so far: further samples
    /// ([`widen`](Self::widen)) only widen them.
    pub fn settle_types(&mut self) {
        self.column_shapes.settle_types();
    }

    /// Adds the beginning of another file: new keys with their types, and for other keys
    /// wider numbers, times beside dates, and new keys of objects.
    /// The decoder reports values that do not fit.
    ///
    /// ```
    /// use tidemill_text::infer::json::JsonInference;
    ///
    /// let of = |text: &str| {
    ///     let mut inference = JsonInference::new(&[]);
    ///     inference.add_block(text.as_bytes());
    ///     inference
    /// };
    /// let mut first = of(r#"{"a": 1, "b": {"c": 1}, "d": 1}"#);
    /// first.settle_types();
    /// first.widen(&of(r#"{"a": 2.5, "b": {"e": true}, "d": "n/a", "f": 1}"#));
    /// let types: Vec<_> = first.fields().iter().map(|f| f.data_type().to_string()).collect();
    /// assert_eq!(types, ["Float64", r#"Struct("c": Int64, "e": Boolean)"#, "Int64", "Int64"]);
    /// ```
    pub fn widen(&mut self, other: &JsonInference) {
        self.column_shapes.widen(&other.column_shapes);
        self.object_count += other.object_count;
    }

    /// Returns the keys that had a value other than null.
    pub fn non_null_keys(&self) -> impl Iterator<Item = &str> {
        let has_values = |shape: &JsonShape| {
            shape.is_scalar() || shape.item_shape.is_some() || shape.object_shape.is_some()
        };
        let keys = self.column_shapes.keys.iter().filter(move |key| has_values(&key.shape));
        keys.map(|key| key.name.as_str())
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn object_count(&self) -> u64 {
        self.object_count
    }

    /// Returns the reason why the first malformed line is not an object, if there was one.
    #[must_use]
    pub fn first_fault(&self) -> Option<&TextFault> {
        self.first_fault.as_ref()
    }

    /// Returns the columns in the order in which their keys first came.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldRef> {
        self.column_shapes.fields()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn infer(text: &str) -> Vec<(String, String)> {
        let mut inference = JsonInference::new(&["NA".to_string()]);
        inference.add_block(text.as_bytes());
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
    fn keys_beyond_the_maximum_are_not_collected() {
        let record = |keys: std::ops::Range<usize>| {
            let pairs: Vec<_> = keys.map(|key| format!("\"{key}\":0")).collect();
            format!("{{{}}}\n", pairs.join(","))
        };
        let mut inference = JsonInference::new(&[]);
        inference.add_block(record(0..JSON_COLUMNS_MAX).as_bytes());
        inference.add_block(record(0..JSON_COLUMNS_MAX).as_bytes());
        inference.add_block(
            format!("{{\"1\":{}}}\n", record(0..JSON_COLUMNS_MAX + 9).trim()).as_bytes(),
        );
        assert!(!inference.is_too_wide() && inference.first_fault().is_none());
        inference.add_block(record(JSON_COLUMNS_MAX..2 * JSON_COLUMNS_MAX).as_bytes());
        assert!(inference.is_too_wide());
        assert_eq!(inference.fields().len(), JSON_COLUMNS_MAX + 1);
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
    fn map_type_never_rounds_integers() {
        // As with few keys: 2^53 + 1 lies between two doubles.
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
    fn widening_never_makes_a_map_round_integers() {
        let of = |value: &str| {
            let pairs: Vec<_> = (0..300).map(|key| format!("\"k{key}\":{value}")).collect();
            let mut inference = JsonInference::new(&[]);
            inference.add_block(format!("{{\"c\":{{{}}}}}\n", pairs.join(",")).as_bytes());
            inference
        };
        for (first, second, is_map) in [
            ("9007199254740993", "1.5", false),
            ("1", "1.5", true),
            ("1.5", "9007199254740993", false),
        ] {
            let mut inference = of(first);
            inference.settle_types();
            inference.widen(&of(second));
            let found = inference.fields().swap_remove(0);
            assert_eq!(matches!(found.data_type(), DataType::Map(..)), is_map, "{first} {second}");
        }
    }

    #[test]
    fn last_value_of_duplicate_key_counts() {
        let text = r#"{"a": "x", "b\u0021": 1, "a": 1, "t": "2013\u002d01-01", "n": "N\u0041"}"#;
        let found = infer(text);
        let expected = [("a", "Int64"), ("b!", "Int64"), ("t", "Date32"), ("n", "Utf8View")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    }

    #[test]
    fn non_object_lines_are_counted_and_ignored() {
        for (line, reason) in [
            ("a,b", "not valid JSON: expected a value at byte 1"),
            ("1", "expected an object, found a number"),
            ("{\"b\": 1", "the line ends within its value"),
            ("{\"b\": 01}", "not valid JSON: a malformed number at byte 7"),
            ("{\"b\": 1} {}", "the line goes on"),
        ] {
            let mut inference = JsonInference::new(&[]);
            assert_eq!(inference.add_block(format!("{line}\n").as_bytes()), 1);
            assert_eq!(inference.object_count(), 0);
            assert!(inference.first_fault().unwrap().to_string().contains(reason));
            assert_eq!(inference.add_block(b"\n{\"a\": 1}\n \n"), 1);
            assert_eq!(inference.object_count(), 1);
            assert_eq!(inference.fields().len(), 1);
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = format!("{{\"a\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(infer(&deep).len(), 1);
    }

    #[test]
    fn record_without_new_shapes_is_confirmed() {
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
            let mut inference = JsonInference::new(&["NA".to_string()]);
            inference.add_block(seen.as_bytes());
            assert_eq!(inference.is_confirmed(line.as_bytes()), expected, "{seen} {line}");
        }
        let mut inference = JsonInference::new(&[]);
        inference.add_block(b"{\"a\":\"x\"}");
        assert!(!inference.is_confirmed(b"{\"a\":\"\xff\"}"));
    }

    /// Values, mostly those that occur again and again.
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
        fn confirmed_records_change_nothing(
            kinds in vec(object(value()), 1..4),
            // Some kinds again and again; at some places the text is cut or corrupted.
            order in vec((0..4usize, prop::option::weighted(0.1, (0..60usize, any::<u8>()))), 1..20),
        ) {
            let mut confirming = JsonInference::new(&["NA".to_string()]);
            let mut careful = JsonInference { skips_confirmation: true, ..JsonInference::new(&["NA".to_string()]) };
            for (kind, spoiled) in order {
                let mut line = kinds[kind % kinds.len()].clone().into_bytes();
                match spoiled {
                    Some((at, 0..100)) => line.truncate(at),
                    Some((at, byte)) if at < line.len() => line[at] = byte % 128,
                    _ => {}
                }
                prop_assert_eq!(confirming.add_block(&line), careful.add_block(&line));
                prop_assert_eq!(confirming.fields(), careful.fields());
                prop_assert_eq!(confirming.object_count(), careful.object_count());
                let fault = |inference: &JsonInference| inference.first_fault().map(ToString::to_string);
                prop_assert_eq!(fault(&confirming), fault(&careful));
            }
        }
    }
}
