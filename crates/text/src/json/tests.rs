use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType as T, Field};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::text_fault::TextFaultKind;
use crate::unknown_keys::{quote_path_step, shorten_path};
use crate::value_parsing;
use crate::{BlockDecoder, DecodedBlocks, Options, sql_types::sql_type_name};

fn field(name: &str, data_type: T) -> FieldRef {
    Arc::new(Field::new(name, data_type, true))
}

fn list_type(item: T) -> T {
    T::List(field("item", item))
}

fn struct_type(fields: Vec<FieldRef>) -> T {
    T::Struct(fields.into())
}

fn map_type(value: T) -> T {
    let pair = vec![Arc::new(Field::new("key", T::Utf8, false)), field("value", value)];
    T::Map(Arc::new(Field::new("entries", T::Struct(pair.into()), false)), false)
}

/// Returns columns of every shape.
fn columns() -> Vec<FieldRef> {
    let inner = vec![field("n", T::Int64), field("t", T::Utf8), field("l", list_type(T::Int64))];
    let item = vec![field("x", T::Int64), field("a longer name", T::Utf8View)];
    vec![
        field("a", T::Int64),
        field("t", T::Utf8View),
        field("float", T::Float64),
        field("is it", T::Boolean),
        field("s", struct_type(inner)),
        field("list of objects", list_type(struct_type(item))),
        field("m", map_type(T::Utf8View)),
        field("", T::Int64),
        field("é\"\\", T::Utf8View),
        field("ll", list_type(list_type(T::Boolean))),
    ]
}

fn cell_to_json(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        T::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        T::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        T::Boolean => json!(array.as_boolean().value(row)),
        T::Utf8 => json!(array.as_string::<i32>().value(row)),
        T::Utf8View => json!(array.as_string_view().value(row)),
        T::Timestamp(arrow_schema::TimeUnit::Microsecond, _) => {
            json!(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        T::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            columns
                .map(|(field, column)| (field.name().clone(), cell_to_json(column, row)))
                .collect()
        }
        T::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|item| cell_to_json(&items, item)).collect()
        }
        T::Map(_, _) => {
            let pairs = array.as_map().value(row);
            let mut entries = Map::new();
            for at in 0..pairs.len() {
                let key = pairs.column(0).as_string::<i32>().value(at).to_owned();
                let other = entries.insert(key, cell_to_json(pairs.column(1), at));
                assert_eq!(other, None, "a map has a key once");
            }
            entries.iter().map(|(key, value)| json!([key, value])).collect()
        }
        other => panic!("{other}"),
    }
}

fn rows_to_json(batches: &[RecordBatch]) -> Vec<Value> {
    let mut rows = Vec::new();
    for batch in batches {
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
        for row in 0..batch.num_rows() {
            rows.push(batch.columns().iter().map(|column| cell_to_json(column, row)).collect());
        }
    }
    rows
}

/// Returns the cell of a column of this type for a value; `None` if the column cannot hold it.
fn expected_cell(value: Option<&Value>, data_type: &T, mismatch_is_null: bool) -> Option<Value> {
    let null = mismatch_is_null.then_some(Value::Null);
    Some(match (data_type, value.unwrap_or(&Value::Null)) {
        (_, Value::Null) => Value::Null,
        (T::Struct(fields), Value::Object(object)) => fields
            .iter()
            .map(|field| {
                let part = object.get(field.name());
                Some((
                    field.name().clone(),
                    expected_cell(part, field.data_type(), mismatch_is_null)?,
                ))
            })
            .collect::<Option<Map<_, _>>>()?
            .into(),
        (T::List(item), Value::Array(items)) => items
            .iter()
            .map(|value| expected_cell(Some(value), item.data_type(), mismatch_is_null))
            .collect::<Option<Vec<_>>>()?
            .into(),
        (T::Map(entries, _), Value::Object(object)) => {
            let T::Struct(pair) = entries.data_type() else { panic!() };
            object
                .iter()
                .map(|(key, value)| {
                    let value = expected_cell(Some(value), pair[1].data_type(), mismatch_is_null)?;
                    Some(json!([key, value]))
                })
                .collect::<Option<Vec<_>>>()?
                .into()
        }
        (T::Utf8 | T::Utf8View, nested @ (Value::Array(_) | Value::Object(_))) => {
            json!(nested.to_string())
        }
        (T::Struct(_) | T::List(_) | T::Map(_, _), _) | (_, Value::Array(_) | Value::Object(_)) => {
            return null;
        }
        (leaf, scalar) => {
            let text = match scalar {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if !value_parsing::can_parse_as(&text, leaf) {
                return null;
            }
            match leaf {
                T::Int64 => json!(text.parse::<i64>().unwrap()),
                T::Float64 => json!(value_parsing::parse_float(&text).unwrap()),
                T::Boolean => json!(value_parsing::parse_boolean(&text).unwrap()),
                _ => json!(text),
            }
        }
    })
}

/// Normalizes JSON within texts to the spelling of serde_json: white space and escapes depend on the
/// writer.
fn normalize_json_text(value: Value) -> Value {
    match value {
        Value::String(text) if text.starts_with(['{', '[']) => serde_json::from_str::<Value>(&text)
            .map_or(json!(text), |inner| json!(inner.to_string())),
        Value::Array(items) => items.into_iter().map(normalize_json_text).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key, normalize_json_text(value))).collect()
        }
        other => other,
    }
}

fn decode_with(
    careful: bool,
    columns: Vec<FieldRef>,
    options: Options,
    text: &[u8],
) -> (Vec<Value>, DecodedBlocks) {
    let mut decoder = JsonDecoder::new(columns, &[], options).unwrap();
    decoder.decoder.tokenizer_mut().is_always_exact = careful;
    let mut out = DecodedBlocks::default();
    decoder.decode(text, &mut out);
    let found = rows_to_json(&out.batches);
    // A used decoder gives the same result again.
    let mut again = DecodedBlocks::default();
    decoder.decode(text, &mut again);
    assert_eq!(found, rows_to_json(&again.batches));
    assert_eq!((&out.rejected, out.rows), (&again.rejected, again.rows));
    out.unknown_keys.sort_by(|one, other| {
        (one.first_offset, &one.path).cmp(&(other.first_offset, &other.path))
    });
    again.unknown_keys.sort_by(|one, other| {
        (one.first_offset, &one.path).cmp(&(other.first_offset, &other.path))
    });
    assert_eq!(
        (&out.unknown_keys, out.unknown_key_overflow_count),
        (&again.unknown_keys, again.unknown_key_overflow_count)
    );
    (found, out)
}

/// Returns the keys of columns, and further keys that have columns, if the test counts keys at all.
fn known_keys(columns: &[FieldRef], others: &[&str], counts: bool) -> Option<Arc<KnownKeys>> {
    let others = others.iter().map(|name| field(name, T::Utf8View));
    let all: Vec<FieldRef> = columns.iter().cloned().chain(others).collect();
    counts.then(|| Arc::new(KnownKeys::new(&all, |_| true)))
}

fn decode(columns: Vec<FieldRef>, options: Options, text: &[u8]) -> (Vec<Value>, DecodedBlocks) {
    decode_with(false, columns, options, text)
}

/// A small pseudorandom generator of choices.
struct ChoiceGenerator(u64);

impl ChoiceGenerator {
    fn next_below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Writes a value in one of many spellings.
fn write_value(value: &Value, choices: &mut ChoiceGenerator, white: bool, out: &mut String) {
    let blank = |choices: &mut ChoiceGenerator, out: &mut String| {
        if white {
            for _ in 0..choices.next_below(12).saturating_sub(8) {
                out.push([' ', '\t', '\r', ' '][choices.next_below(4) as usize]);
            }
            if choices.next_below(40) == 0 {
                out.push_str(&" ".repeat(100));
            }
        }
    };
    blank(choices, out);
    match value {
        Value::String(text) => write_text(text, choices, out),
        Value::Array(items) => {
            out.push('[');
            blank(choices, out);
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, choices, white, out);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            blank(choices, out);
            for (index, (key, value)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                blank(choices, out);
                if choices.next_below(30) == 0 {
                    // The last of several values counts.
                    write_text(key, choices, out);
                    let others = [":null,", ":17,", ":\"x\",", ":[1],", ":{},"];
                    out.push_str(others[choices.next_below(5) as usize]);
                    blank(choices, out);
                }
                write_text(key, choices, out);
                blank(choices, out);
                out.push(':');
                write_value(value, choices, white, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
    blank(choices, out);
}

fn write_text(text: &str, choices: &mut ChoiceGenerator, out: &mut String) {
    let escapes = choices.next_below(4) == 0;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\u{8}' => out.push_str("\\b"),
            '/' if escapes => out.push_str("\\/"),
            other if (other as u32) < 0x20 || escapes && choices.next_below(3) == 0 => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    out.push_str(&if choices.next_below(2) == 0 {
                        format!("\\u{unit:04x}")
                    } else {
                        format!("\\u{unit:04X}")
                    });
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z]{0,6}",
        "[a-zé𝄞\"\\\\/{}\\[\\]:, ]{0,14}",
        "\\PC{0,80}",
        "-?[0-9]{1,20}",
        Just("\u{0}\n\u{1f}\u{8}".to_owned()),
        Just("null".to_owned()),
    ]
    .prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-100i64..100).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        prop::sample::select(vec![0.1, -2.5, 1e300, 5e-324, 1e22, -0.0]).prop_map(Value::from),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number(), text()];
    scalar.prop_recursive(4, 24, 5, |inner| {
        let pair = (text(), inner.clone())
            .prop_map(|(key, value)| (key.as_str().unwrap().to_owned(), value));
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(Value::from),
            prop::collection::vec(pair, 0..5)
                .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Returns a value that a column of the type can hold, or occasionally any value.
fn fitting_value(data_type: &T) -> BoxedStrategy<Value> {
    let good: BoxedStrategy<Value> = match data_type {
        T::Int64 => {
            prop_oneof![(-100i64..100).prop_map(Value::from), any::<i64>().prop_map(Value::from)]
                .boxed()
        }
        T::Float64 => (-1e6..1e6f64).prop_map(Value::from).boxed(),
        T::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        T::Struct(fields) => object_with_fields(fields),
        T::List(item) => prop::collection::vec(fitting_value(item.data_type()), 0..4)
            .prop_map(Value::from)
            .boxed(),
        T::Map(entries, _) => {
            let T::Struct(pair) = entries.data_type() else { panic!() };
            prop::collection::vec(("[a-z\"é]{0,12}", fitting_value(pair[1].data_type())), 0..4)
                .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into())
                .boxed()
        }
        _ => text().boxed(),
    };
    prop_oneof![40 => good, 2 => Just(Value::Null), 1 => any_value()].boxed()
}

/// Returns an object with some of the fields and others, in any order.
fn object_with_fields(fields: &[FieldRef]) -> BoxedStrategy<Value> {
    let wanted: Vec<_> = fields
        .iter()
        .map(|field| {
            let name = field.name().clone();
            prop::option::weighted(0.8, (Just(name), fitting_value(field.data_type())))
        })
        .collect();
    let others = prop::collection::vec(("[a-zé]{0,9}", any_value()), 0..4);
    (wanted, others, any::<u64>())
        .prop_map(|(wanted, others, order)| {
            let mut pairs: Vec<_> = wanted.into_iter().flatten().chain(others).collect();
            let count = pairs.len().max(1);
            let by = (order as usize % count).min(pairs.len());
            pairs.rotate_left(by);
            // A wanted key among the others counts if it comes first.
            let mut object = Map::new();
            for (key, value) in pairs {
                object.entry(key).or_insert(value);
            }
            Value::from(object)
        })
        .boxed()
}

fn documents() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(object_with_fields(&columns()), 0..12)
}

fn lines(documents: &[Value], seed: u64, white: bool) -> String {
    let mut choices = ChoiceGenerator(seed | 1);
    let mut out = String::new();
    for document in documents {
        write_value(document, &mut choices, white, &mut out);
        out.push('\n');
        if choices.next_below(8) == 0 {
            out.push_str([" \t\n", "\n", "\r\n"][choices.next_below(3) as usize]);
        }
    }
    out
}

fn mutate(text: &str, changes: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for &(place, byte, how) in changes {
        if bytes.is_empty() {
            break;
        }
        let place = place % bytes.len();
        match how {
            0 => bytes[place] = byte,
            1 => bytes.insert(place, byte),
            2 => drop(bytes.remove(place)),
            _ => {
                let other = (place + usize::from(byte)) % bytes.len();
                bytes.swap(place, other);
            }
        }
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    let byte = prop_oneof![
        prop::sample::select(b"{}[]:,\"\\\n \t\r0-1.e+ntfu\x00\x1f\x7f\xc3\xff".to_vec()),
        any::<u8>()
    ];
    prop::collection::vec((any::<usize>(), byte, 0u8..4), 0..6)
}

/// Returns whether serde_json accepts a line as an object; `None` where it has limits of its own.
fn serde_accepts(line: &[u8]) -> Option<bool> {
    match serde_json::from_slice::<Value>(line) {
        Ok(value) => Some(value.is_object()),
        Err(error) if error.to_string().contains("number out of range") => None,
        Err(_) => Some(false),
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn documents_are_read_as_serde_json_reads_them(
        documents in documents(), seed: u64, white: bool, batch_rows in 1usize..20, strict: bool,
        mismatch_is_null: bool, last: bool
    ) {
        let mut text = lines(&documents, seed, white);
        if last {
            text.truncate(text.trim_end_matches('\n').len());
        }
        let known = known_keys(&columns(), &["a", "b", "c", "d", "é"], true);
        let options = Options { batch_rows, checks_skipped_values: strict, mismatch_is_null, known_keys: known, ..Options::default() };
        let (found, out) = decode(columns(), options, text.as_bytes());
        let all: Vec<Option<Value>> = documents.iter().map(|document| {
            columns().iter()
                .map(|field| expected_cell(document.get(field.name()), field.data_type(), mismatch_is_null))
                .collect::<Option<Vec<_>>>().map(Value::from)
        }).collect();
        let good: Vec<Value> = all.iter().flatten().cloned().collect();
        prop_assert_eq!(out.rejected.len(), all.len() - good.len());
        let [found, good] = [found, good].map(|rows| normalize_json_text(rows.into()));
        prop_assert_eq!(found, good, "{}", text);
        let mut unknown = BTreeMap::new();
        let read = documents.iter().zip(&all).filter(|(_, row)| row.is_some());
        read.for_each(|(document, _)| count_unknown_keys(document, &columns(), "", &mut unknown));
        let counted: BTreeMap<String, u64> =
            out.unknown_keys.iter().map(|key| (key.path.clone(), key.count)).collect();
        // Occasionally a key is written twice.
        prop_assert!(counted.keys().eq(unknown.keys()), "{}", text);
        prop_assert!(unknown.iter().all(|(key, count)| counted[key] >= *count), "{}", text);
        prop_assert!(out.unknown_keys.iter().all(|key| text.as_bytes()[key.first_offset] == b'"'));
    }

    #[test]
    fn the_fast_path_and_the_careful_one_agree(
        documents in documents(), seed: u64, white: bool, changes in changes(), strict: bool,
        mismatch_is_null: bool, batch_rows in 1usize..20, counts: bool
    ) {
        let text = mutate(&lines(&documents, seed, white), &changes);
        let known = known_keys(&columns(), &["a", "b", "c"], counts);
        let options = Options { checks_skipped_values: strict, mismatch_is_null, batch_rows, known_keys: known, ..Options::default() };
        for columns in [columns(), columns()[4..6].to_vec(), vec![]] {
            let (fast, fast_out) = decode_with(false, columns.clone(), options.clone(), &text);
            let (slow, slow_out) = decode_with(true, columns, options.clone(), &text);
            prop_assert_eq!(fast, slow);
            prop_assert_eq!(fast_out.rows, slow_out.rows);
            prop_assert_eq!(fast_out.rejected, slow_out.rejected);
            prop_assert_eq!(fast_out.unknown_keys, slow_out.unknown_keys);
            // Line by line, so that the fault of one window does not hide another.
        }
        let options = Options { checks_skipped_values: strict, ..Options::default() };
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let (fast, fast_out) = decode_with(false, columns(), options.clone(), line);
            let (slow, slow_out) = decode_with(true, columns(), options.clone(), line);
            prop_assert_eq!(fast, slow);
            prop_assert_eq!(fast_out.rejected, slow_out.rejected);
        }
    }

    #[test]
    fn strict_mode_accepts_what_serde_json_accepts(
        documents in documents(), seed: u64, white: bool, changes in changes()
    ) {
        let text = mutate(&lines(&documents, seed, white), &changes);
        let options = Options { checks_skipped_values: true, ..Options::default() };
        for line in text.split(|byte| *byte == b'\n').filter(|line| !is_blank(line)) {
            let Some(accepts) = serde_accepts(line) else { continue };
            let (_, out) = decode(vec![], options.clone(), line);
            prop_assert_eq!(out.rejected.is_empty(), accepts, "{:?}: {}", out.rejected, String::from_utf8_lossy(line));
            // Wanted values are checked in any mode.
            if !accepts {
                continue;
            }
            let (_, lenient) = decode(vec![], Options::default(), line);
            prop_assert!(lenient.rejected.is_empty());
        }
    }

    #[test]
    fn the_index_is_the_same_with_every_instruction_set(
        bytes in prop::collection::vec(
            prop::sample::select(b"aaaa1\"\"\"\\{}[]:,, \t\n\r\x01\xc3".to_vec()), 0..400),
        from in 0usize..100
    ) {
        let from = from.min(bytes.len());
        let (mut one, mut kinds_one, mut slashes_one) = (vec![7], vec![8], vec![]);
        let seen = structural_index::index_structurals(
            &bytes, from, bytes.len(), &mut one, &mut kinds_one, &mut slashes_one);
        let (mut other, mut kinds_other, mut slashes_other) = (vec![7], vec![8], vec![]);
        // SAFETY: the portable implementation needs nothing of the processor.
        let expected = unsafe {
            structural_index::build_index_simd::<crate::simd::Portable>(
                &bytes, from, bytes.len(), &mut other, &mut kinds_other, &mut slashes_other)
        };
        prop_assert_eq!(seen, expected);
        let characters: Vec<u8> = one[1..].iter().map(|at| bytes[*at as usize]).collect();
        prop_assert_eq!(&kinds_one[1..], characters);
        prop_assert_eq!(one, other);
        prop_assert_eq!(kinds_one, kinds_other);
        prop_assert_eq!(slashes_one, slashes_other);
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(prop_oneof![
            3 => prop::sample::select(b"{}[]:,\"\\\n at1nul".to_vec()), 1 => any::<u8>()], 0..120),
        strict: bool, mismatch_is_null: bool
    ) {
        let options = Options { checks_skipped_values: strict, mismatch_is_null, ..Options::default() };
        let (fast, fast_out) = decode_with(false, columns(), options.clone(), &bytes);
        let (slow, slow_out) = decode_with(true, columns(), options, &bytes);
        prop_assert_eq!(fast, slow);
        prop_assert_eq!(fast_out.rejected, slow_out.rejected);
    }

    #[test]
    fn records_are_found_in_any_separation_and_pieces(
        documents in documents(), seed: u64, cuts in prop::collection::vec(0.0..1.0f64, 0..6)
    ) {
        let (text, expected) = sequence_with_ranges(&documents, seed);
        let (found, broken) = scan_in_pieces(&text, &piece_ends(text.len(), cuts));
        prop_assert_eq!(broken, None);
        prop_assert_eq!(&found, &expected, "{}", String::from_utf8_lossy(&text));
        let (rows, out) = decode(columns(), Options::default(), &records_as_lines(&text, &found));
        let (model, model_out) =
            decode(columns(), Options::default(), lines(&documents, seed, false).as_bytes());
        let [rows, model] = [rows, model].map(|rows| normalize_json_text(rows.into()));
        prop_assert_eq!(rows, model);
        prop_assert_eq!(out.rejected.len(), model_out.rejected.len());
    }

    #[test]
    fn no_byte_of_a_broken_sequence_is_lost(
        documents in documents(), seed: u64, changes in changes(),
        cuts in prop::collection::vec(0.0..1.0f64, 0..6)
    ) {
        let (text, _) = sequence_with_ranges(&documents, seed);
        let text = mutate(std::str::from_utf8(&text).unwrap(), &changes);
        let (found, broken) = scan_in_pieces(&text, &[text.len()]);
        prop_assert_eq!(&scan_in_pieces(&text, &piece_ends(text.len(), cuts)), &(found.clone(), broken));
        let mut at = 0;
        let end = broken.unwrap_or(text.len() as u64);
        for record in found.into_iter().chain(std::iter::once(end..end)) {
            let record = record.start as usize..record.end as usize;
            prop_assert!(at <= record.start && record.start <= record.end);
            for byte in &text[at..record.start] {
                prop_assert!(b" \t\r\n\x1e,[]".contains(byte), "{byte} in {:?}", text);
            }
            at = record.end;
        }
    }

    #[test]
    fn records_that_share_a_line_are_read_as_on_lines_of_their_own(
        documents in documents(), seed: u64, changes in changes(), strict: bool
    ) {
        let mut choices = ChoiceGenerator(seed | 1);
        let mut text = String::new();
        for document in &documents {
            text.push_str(["", "\x1e", " \x1e ", ""][choices.next_below(4) as usize]);
            write_value(document, &mut choices, true, &mut text);
            text.push_str(["", ",", " , \n", "\n", ",\x1e\n", "\r\n"][choices.next_below(6) as usize]);
        }
        // A comma belongs to the record before it in the line.
        let options = Options { checks_skipped_values: strict, ..Options::default() };
        let (found, out) = decode_joined(false, options.clone(), text.as_bytes());
        let (model, model_out) =
            decode(columns(), options.clone(), lines(&documents, seed, false).as_bytes());
        let [rows, model] = [found, model].map(|rows| normalize_json_text(rows.into()));
        prop_assert_eq!(rows, model, "{}", text);
        prop_assert_eq!(out.rejected.len(), model_out.rejected.len());
        // The exact path agrees on broken lines too, and they affect no other line.
        let text = mutate(&text, &changes);
        let (fast, fast_out) = decode_joined(false, options.clone(), &text);
        let (slow, slow_out) = decode_joined(true, options.clone(), &text);
        prop_assert_eq!(&fast, &slow);
        prop_assert_eq!(&fast_out.rejected, &slow_out.rejected);
        let mut count = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            count += decode_joined(false, options.clone(), line).0.len();
        }
        prop_assert_eq!(count, fast.len());
    }

    #[test]
    fn layout_is_decided_by_the_first_record(
        documents in documents(), seed: u64, changes in changes(), at in 0.0..1.0f64
    ) {
        let (text, _) = sequence_with_ranges(&documents, seed);
        let text = mutate(std::str::from_utf8(&text).unwrap(), &changes);
        let at = (text.len() as f64 * at) as usize;
        let all = detect_layout(&text, true);
        prop_assert!(all.is_some());
        if let Some(early) = detect_layout(&text[..at], false) {
            prop_assert_eq!(Some(early), detect_layout(&text, false));
            prop_assert_eq!(Some(early), all);
        }
    }

    #[test]
    fn short_structures_are_accepted_or_refused_as_by_serde_json(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"a\"", "\"b\"", "1", "null", " ", "\"\\u0061\"", "{\"a\":", "}", "-", "01", "x",
        ]), 0..12)
    ) {
        let line = format!("{{{}", tokens.concat());
        let accepts = serde_accepts(line.as_bytes()).unwrap();
        for careful in [false, true] {
            let options = Options { checks_skipped_values: true, ..Options::default() };
            let (_, out) = decode_with(careful, vec![], options.clone(), line.as_bytes());
            prop_assert_eq!(out.rejected.is_empty(), accepts, "{} {}", careful, line);
            let options = Options { mismatch_is_null: true, ..options };
            let wanted = vec![field("a", struct_type(vec![field("a", list_type(T::Int64))])), field("b", map_type(T::Int64))];
            let (_, out) = decode_with(careful, wanted, options, line.as_bytes());
            prop_assert_eq!(out.rejected.is_empty(), accepts, "{} {}", careful, line);
        }
    }
}

/// After Nicolas Seriot, "Parsing JSON is a Minefield" (2016): inputs that must be accepted (y), inputs
/// that must be refused (n), and inputs that are up to the implementation (i), with its decision.
#[test]
fn grammar_corner_cases_follow_rfc_8259() {
    let yes = [
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[[]]",
        "[{}]",
        "[\"\"]",
        "0",
        "-0",
        "0e1",
        "0e+1",
        "1E22",
        "1e-2",
        "1E+2",
        "-1",
        "-123",
        "0.1",
        "-0.0",
        "1.5e3",
        "123.456789",
        "1e400",
        "-1e-400",
        "123123123123123123123123123",
        "true",
        "false",
        "null",
        "\"\"",
        "\"a\"",
        "\"\\\"\"",
        "\"\\\\\"",
        "\"\\/\"",
        "\"\\b\\f\\n\\r\\t\"",
        "\"\\u0000\"",
        "\"\\u0060\\u012a\\u12AB\"",
        "\"\\uD801\\udc37\"",
        "\"\\\\u0000\"",
        "\"\\\\\\\"\"",
        "\"\u{7f}\"",
        "\"\u{2028}\u{2029}\"",
        "\"\u{10ffff}\"",
        "\"\u{fffe}\"",
        "\"asd \"",
        "\"/* no comment */\"",
        "\"{[:,]}\"",
        "[1,null,\"x\",{}]",
        "[\"a\", [1, [2, []]]]",
        "{\"a\":{\"b\":[{\"c\":1}]}}",
        "{\"\":0}",
        "{\"a\":1,\"a\":2}",
        "{\"a\\u0000b\":1}",
        "[1\t]",
        "[ 1 , 2 ]",
        "\"\\uffff\"",
        "\"\\uDBFF\\uDFFF\"",
    ];
    let no = [
        "",
        "nul",
        "nope",
        "nulll",
        "True",
        "tru",
        "NaN",
        "Infinity",
        "-Infinity",
        "+1",
        "01",
        "-01",
        "-",
        "1.",
        ".5",
        "-.5",
        "1.e1",
        "1e",
        "1e+",
        "1eE2",
        "0x10",
        "1_000",
        "1a",
        "--1",
        "1+2",
        "\u{ff11}",
        "1 000",
        "'a'",
        "a",
        "\"a",
        "a\"",
        "\"\\\"",
        "\"\\a\"",
        "\"\\x00\"",
        "\"\\u\"",
        "\"\\u00\"",
        "\"\\u00g0\"",
        "\"\\U0041\"",
        "\"\\uD800\"",
        "\"\\uDC00\"",
        "\"\\uD800\\u\"",
        "\"\\uD800\\u0041\"",
        "\"\\uD800\\uD800\"",
        "\"\\uD800x\"",
        "\"\\\u{9}\"",
        "\"\t\"",
        "\"\u{0}\"",
        "\"\u{1f}\"",
        "[",
        "]",
        "[1",
        "1]",
        "[1,]",
        "[,1]",
        "[,]",
        "[1,,2]",
        "[1 2]",
        "[1:2]",
        "[\"a\"",
        "[\"a\":1]",
        "[\"a\"\"b\"]",
        "[1}",
        "{]",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{:1}",
        "{\"a\" 1}",
        "{\"a\"::1}",
        "{\"a\":1,}",
        "{,\"a\":1}",
        "{\"a\":1,,\"b\":2}",
        "{\"a\":1 \"b\":2}",
        "{a:1}",
        "{1:1}",
        "{null:1}",
        "{[]:1}",
        "{'a':1}",
        "{\"a\":1,\"b\"}",
        "{\"a\":\"b\":1}",
        "{\"a\":1]",
        "{\"a\":[1}",
        "[{]}",
        "[[]",
        "[]]",
        "{}}",
        "[1]x",
        "\u{feff}1",
        "\u{a0}1",
        "\u{c}1",
        "/**/1",
        "1//",
        "#1",
        "*",
        "\\",
        "\\n",
        "\\u0031",
        "[\\]",
        "\\\"a\\\"",
        "1\u{0}",
        "\u{7f}",
        "\"a\"b",
        "b\"a\"",
        "\"a\" \"b\"",
        "\"a\"1",
        "1\"a\"",
        "1,2",
        ",",
        ":",
        "\"a\":1",
    ];
    let wanted = [vec![], vec![field("k", T::Utf8View)], vec![field("other", T::Utf8View)]];
    let check = |value: &str, good: bool| {
        for text in [
            format!("{{\"k\":{value}}}"),
            format!("{{\"k\": [1, {value}], \"other\": \"x\"}}\n"),
            format!("{{\"o\":{{\"p\":{value}}}}}"),
            format!("{{\"other\":null,\"k\" :{value} ,\"z\":0}}\n"),
        ] {
            for (careful, columns) in
                [false, true].into_iter().flat_map(|careful| wanted.clone().map(|w| (careful, w)))
            {
                let strict = Options {
                    checks_skipped_values: true,
                    mismatch_is_null: true,
                    ..Options::default()
                };
                let (_, out) = decode_with(careful, columns, strict, text.as_bytes());
                assert_eq!(out.rejected.is_empty(), good, "{careful} {text} {:?}", out.rejected);
            }
        }
        // Wanted values are checked even where others are not.
        let text = format!("{{\"a\":1,\"k\":{value}}}\n");
        let shape = value.trim_start().starts_with(['[', '{']);
        if !shape {
            let wanted = vec![field("k", T::Utf8View)];
            let (_, out) = decode(wanted, Options::default(), text.as_bytes());
            assert_eq!(out.rejected.is_empty(), good, "{text} {:?}", out.rejected);
        }
    };
    yes.iter().for_each(|value| check(value, true));
    // A number with a line separator in it and the like are refused because they are no scalars.
    no.iter().filter(|value| !matches!(**value, "1,2" | "\u{0}")).for_each(|value| {
        if value.contains(',') && !value.starts_with(['[', '{', ',']) {
            return;
        }
        check(value, false);
    });
}

#[test]
fn separators_and_strings_are_checked_where_nothing_is_wanted() {
    for (line, good) in [
        ("{\"x\": nope}", true),
        ("{\"x\": \"\\q\"}", true),
        ("{\"x\": 01, \"y\": [+1]}", true),
        ("{\"\\q\": 1}", true),
        ("{\"x\" 1}", false),
        ("{\"x\":}", false),
        ("{\"x\": 1,, \"y\": 2}", false),
        ("{\"x\": 1 \"y\": 2}", false),
        ("{\"x\": [1 2]}", false),
        ("{\"x\": [{]}}", false),
        ("{\"x\": {\"y\": [}]}", false),
        ("{\"x\": {\"y\"}}", false),
        ("{\"x\": \"a\tb\"}", false),
        ("{\"x\": \\\"}", false),
        ("{x: 1}", false),
    ] {
        for careful in [false, true] {
            let (_, out) = decode_with(careful, vec![], Options::default(), line.as_bytes());
            assert_eq!(out.rejected.is_empty(), good, "{line}");
            let options = Options { checks_skipped_values: true, ..Options::default() };
            let (_, out) = decode_with(careful, vec![], options, line.as_bytes());
            assert!(!out.rejected.is_empty(), "{line}");
        }
    }
}

#[test]
fn faults_state_column_and_offset() {
    let columns = vec![
        field("a", T::Int64),
        field(
            "s",
            struct_type(vec![field("t", list_type(struct_type(vec![field("c", T::Int64)])))]),
        ),
        field("m", map_type(T::Int64)),
    ];
    let cases: &[(&[u8], Option<&str>, usize, &str)] = &[
        (b"{\"a\": 1.5}", Some("a"), 6, "expected a BIGINT, found `1.5`"),
        (b"{\"a\": true}", Some("a"), 6, "expected a BIGINT, found `true`"),
        (b"{\"a\": \"x\"}", Some("a"), 7, "expected a BIGINT, found `x`"),
        (
            b"{\"a\": 9223372036854775808}",
            Some("a"),
            6,
            "expected a BIGINT, found `9223372036854775808`",
        ),
        (b"{\"a\": {\"z\": 1}}", Some("a"), 6, "expected a BIGINT, found an object `{\"z\": 1}`"),
        (b"{\"s\": 3}", Some("s"), 6, "expected an object, found a number `3`"),
        (
            b"{\"s\": {\"t\": [{}, 7]}}",
            Some("s.t[1]"),
            17,
            "expected an object, found a number `7`",
        ),
        (
            b"{\"s\": {\"t\": [{}, {\"c\": []}]}}",
            Some("s.t[1].c"),
            23,
            "expected a BIGINT, found an array `[]`",
        ),
        (
            b"{\"s\": {\"t\": [{}, {\"c\": \"x\"}]}}",
            Some("s.t[1].c"),
            24,
            "expected a BIGINT, found `x`",
        ),
        (b"{\"m\": {\"k\": 1, \"l\": \"x\"}}", Some("m.l"), 21, "expected a BIGINT, found `x`"),
        (
            b"{\"s\": {\"t\": [], \"u\": \"\\q\"}, \"a\": nope}",
            Some("a"),
            33,
            "not valid JSON: expected a value at byte 34",
        ),
        (
            b"{\"s\": {\"t\": \"\\q\"}}",
            Some("s.t"),
            13,
            "not valid JSON: an escape that stands for nothing at byte 14",
        ),
        (
            b"{\"a\": \"\\q\"}",
            Some("a"),
            7,
            "not valid JSON: an escape that stands for nothing at byte 8",
        ),
        (b"{\"a\": 01}", Some("a"), 6, "not valid JSON: a malformed number at byte 7"),
        (b"{\"a\": 1} {\"a\": 2}", None, 9, "the line goes on after its value, from byte 10 on"),
        (b"{\"a\": 1}}", None, 8, "the line goes on after its value, from byte 9 on"),
        (b"{\"a\": 1", None, 7, "the line ends within its value (within an object)"),
        (b"{\"a\": \"1", Some("a"), 8, "the line ends within its value (within a string)"),
        (b"{\"a\" 1}", None, 5, "not valid JSON: expected `:` at byte 6"),
        (b"{\"z\": 1,}", None, 8, "not valid JSON: expected a key in quotes at byte 9"),
        (b"{\"z\": [1,]}", None, 9, "not valid JSON: expected a value at byte 10"),
        (b"[{\"a\": 1}]", None, 0, "expected an object, found an array"),
        (b"17", None, 0, "expected an object, found a number"),
        (
            b"]{\"a\": 1}",
            None,
            0,
            "expected an object, found a closing bracket that nothing opened, or a comma before it",
        ),
        (b",{\"a\": 1}", None, 0, "expected an object, found a comma with no record before it"),
        (b"nope", None, 0, "not valid JSON: expected a value at byte 1"),
        (b"{\"z\": \"\xff\"}", None, 7, "the record is not valid UTF-8 from its byte 8 on"),
    ];
    for (line, column, at, message) in cases {
        let good = b"{\"a\": 1, \"s\": {\"t\": [{\"c\": 3}]}}\n";
        let text = [&good[..], line, b"\n", good].concat();
        let (found, out) = decode(columns.clone(), Options::default(), &text);
        let shown = String::from_utf8_lossy(line);
        assert_eq!((found.len(), out.rejected.len()), (2, 1), "{shown}");
        let bad = &out.rejected[0];
        assert_eq!(bad.range, good.len()..good.len() + line.len() + 1);
        let fault = &bad.fault;
        assert_eq!(
            (fault.column.as_deref(), fault.offset, fault.to_string().as_str()),
            (*column, *at, *message),
            "{shown}"
        );
    }
}

#[test]
fn doubled_and_missing_values_do_not_cancel_out() {
    for (text, good, bad) in [
        ("{\"a\":1}\n\n{}{\"a\":2}\n", 1, 1),
        ("{\"a\":1}\n{\"a\":2\n}\n{\"a\":3}{\"a\":4}\n", 1, 3),
        ("{\"a\":1}\n{\"a\":2} \n \t\n {\"a\":3}\n", 3, 0),
        ("{\"a\":1}\n{\"a\":2} {\n{\"a\":3}", 2, 1),
        ("{\"a\":1}\n{\"x\":\"\n\"}\n{\"a\":3}\n", 2, 2),
        ("x\n{\"a\":1}", 1, 1),
        ("{\"a\":1}\nx", 1, 1),
        ("{\"a\":1}\n\"x\"\n", 1, 1),
        ("\n\n", 0, 0),
        ("", 0, 0),
    ] {
        let (found, out) = decode(vec![field("a", T::Int64)], Options::default(), text.as_bytes());
        assert_eq!((found.len(), out.rejected.len()), (good, bad), "{text}");
    }
}

#[test]
fn last_value_of_duplicate_key_counts() {
    let columns = vec![
        field("a", T::Int64),
        field("l", list_type(T::Int64)),
        field("a", T::Utf8View),
        field("s", struct_type(vec![field("x", T::Int64), field("x", T::Utf8View)])),
    ];
    let text =
        b"{\"a\":1,\"l\":[1,2],\"\\u0061\":2,\"l\":[3],\"s\":{\"x\":0},\"s\":{\"x\":4,\"x\":5}}\n\
                 {\"l\":[1],\"l\":null,\"a\":7}\n";
    let (found, out) = decode(columns, Options::default(), text);
    assert!(out.rejected.is_empty());
    // The cell of a struct is displayed as an object, in which the last part counts too.
    assert_eq!(found, [json!([2, [3], "2", {"x": "5"}]), json!([7, null, "7", null])]);
}

#[test]
fn last_value_of_duplicate_map_key_counts() {
    let columns = || {
        vec![
            field("m", map_type(T::Int64)),
            field("mm", map_type(map_type(T::Utf8View))),
            field("lm", list_type(map_type(struct_type(vec![field("x", T::Float64)])))),
        ]
    };
    let many = |last: &str| {
        let pairs: Vec<_> = (0..250).rev().map(|key| format!("\"k{key}\":{key}")).collect();
        format!("{{\"m\":{{{},{last}}}}}", pairs.join(","))
    };
    for (line, expected) in [
        (r#"{"m":{"a":1,"b":2,"a":3}}"#.to_owned(), json!([[["b", 2], ["a", 3]], null, null])),
        // Only the grammar of a replaced value counts, and escapes in keys are resolved.
        (r#"{"m":{"a":"x","\u0061":[{}],"a":3}}"#.into(), json!([[["a", 3]], null, null])),
        (r#"{"m":{"a":1,"\u0061":null}}"#.into(), json!([[["a", null]], null, null])),
        (r#"{"m":{"a":1},"m":{"b":2,"b":3}}"#.into(), json!([[["b", 3]], null, null])),
        (
            r#"{"mm":{"a":{"x":"1","y":"2","x":"3"},"b":{},"a":{"z":"4","z":"5"}}}"#.into(),
            json!([null, [["b", []], ["a", [["z", "5"]]]], null]),
        ),
        (
            r#"{"lm":[{"a":{"x":1},"a":{"x":2,"x":3}},null,{"":{},"":null}]}"#.into(),
            json!([null, null, [[["a", {"x": 3.0}]], null, [["", null]]]]),
        ),
    ] {
        let text = format!("{{}}\n{line}\n{{}}\n");
        for careful in [false, true] {
            let (found, out) = decode_with(careful, columns(), Options::default(), text.as_bytes());
            assert!(out.rejected.is_empty(), "{line} {:?}", out.rejected);
            let [found, expected] = [&found[1], &expected].map(with_ordered_map_entries);
            assert_eq!(found, expected, "{line}");
        }
    }
    for (last, count, value) in [
        ("\"k1\":7", 250, 7),
        ("\"k250\":7", 251, 1),
        ("\"\\u006b1\":8", 250, 8),
        ("\"k1\":\"x\",\"k1\":9", 250, 9),
    ] {
        let (found, out) = decode(columns(), Options::default(), many(last).as_bytes());
        assert!(out.rejected.is_empty(), "{last} {:?}", out.rejected);
        let entries = found[0][0].as_array().unwrap();
        assert_eq!(entries.len(), count, "{last}");
        assert!(entries.contains(&json!(["k1", value])), "{last}");
    }
    for (line, reason) in [
        (r#"{"m":{"a":01,"a":1}}"#, "a malformed number"),
        (r#"{"m":{"a":1,"a":"x"}}"#, "expected a BIGINT, found `x`"),
        (r#"{"m":{"a":1,"a"}}"#, "expected `:`"),
    ] {
        let (_, out) = decode(columns(), Options::default(), line.as_bytes());
        assert!(out.rejected[0].fault.to_string().contains(reason), "{}", out.rejected[0].fault);
    }
}

/// Returns the value with the entries of maps in order.
fn with_ordered_map_entries(value: &Value) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let mut items: Vec<Value> = items.iter().map(with_ordered_map_entries).collect();
    if items
        .iter()
        .all(|item| item.as_array().is_some_and(|pair| pair.first().is_some_and(Value::is_string)))
    {
        items.sort_by_key(Value::to_string);
    }
    items.into()
}

/// Members in the order of one program, each with its possible values.
const HABITUAL_MEMBERS: [(&str, &[&str]); 16] = [
    ("\"id\"", &["1", "2", "-30", "null", "12345678901", "1.5", "{}", "\"4\""]),
    ("\"xid\"", &["1", "\"\"", "null", "[]"]),
    ("\"src_ip_addr\"", &["\"1.2.3.4\"", "\"::1\"", "null"]),
    ("\"dst_ip_addr\"", &["\"5.6.7.8\"", "\"a\\\"b\"", "\"x\\\\\"", "null", "[1]"]),
    (
        "\"user\"",
        &[
            "{\"n\":1,\"of\":[1,2],\"a longer name\":\"x\"}",
            "{\"n\":2,\"of\":[],\"a longer name\":\"y\"}",
            "{\"n\":3,\"a longer name\":null}",
            "{ \"n\" : 4, \"of\": {}}",
            "{}",
            "null",
        ],
    ),
    ("\"zz1bcdef\"", &["1", "2"]),
    ("\"\\u0061bcdef\"", &["3", "4"]),
    (
        "\"context\"",
        &[
            "{\"a\":{\"b\":[1,{\"c\":2}]},\"d\":\"e\"}",
            "{\"a\":{\"b\":[2,{\"c\":3}]},\"d\":\"},{\"}",
            "{\"a\":{\"b\":[2,{\"c\"}]},\"d\":\"\"}",
            "{\"a\":{\"b\":{2,[\"c\":3]}},\"d\":\"\"}",
            "{\"a\":{},\"d\":1}",
            "{\"a\":{1},\"d\":1}",
            "{\"a\":{ },\"d\":1}",
            "null",
        ],
    ),
    ("\"tags\"", &["[]", "[\"a\"]", "[\"a\",\"b,\"]", "[1,[2]]", "[1,2}", "[{\"x\":1}]", "\"[\""]),
    ("\"\"", &["1", "\"2\"", "null"]),
    ("\"abcdef\"", &["5", "null", "true"]),
    ("\"is it\"", &["true", "false", "null", "tru", "TRUE"]),
    ("\"a key of more than sixteen bytes\"", &["\"v\"", "\"w\""]),
    ("\"a key of no more than them\"", &["\"v\"", "\"w\""]),
    ("\"dst_ip_addr\" ", &["\"9\""]),
    ("\"last\"", &["1e3", "01", "-", "1.", "\"\\q\"", "7"]),
];

/// Keys of these that have columns besides the habitual ones.
const KNOWN_HABITUAL_KEYS: &[&str] = &["tags", "src_ip_addr", "x", "last", "xid"];

/// Returns lines of members in mostly the same order; `rare` in 64 of the choices are unusual.
fn habitual_lines(count: usize, rare: u64, seed: u64) -> String {
    let mut choices = ChoiceGenerator(seed | 1);
    let mut text = String::new();
    for _ in 0..count {
        let mut members: Vec<(&str, &[&str])> = HABITUAL_MEMBERS.to_vec();
        let lucky = |choices: &mut ChoiceGenerator| choices.next_below(64) < rare;
        members.retain(|_| !lucky(&mut choices));
        if lucky(&mut choices) && members.len() > 1 {
            let (from, to) = (
                choices.next_below(members.len() as u64),
                choices.next_below(members.len() as u64),
            );
            members.swap(from as usize, to as usize);
        }
        if lucky(&mut choices) && !members.is_empty() {
            let twice = members[choices.next_below(members.len() as u64) as usize];
            members.insert(choices.next_below(members.len() as u64 + 1) as usize, twice);
        }
        text.push('{');
        for (at, (key, values)) in members.iter().enumerate() {
            let separators: &[&str] = if lucky(&mut choices) { &[" , ", ":", ","] } else { &[","] };
            if at > 0 {
                text.push_str(separators[choices.next_below(separators.len() as u64) as usize]);
            }
            // Another key with the same ending.
            let other = lucky(&mut choices).then(|| key.replace("\"dst", "\"mac"));
            text.push_str(other.as_deref().unwrap_or(key));
            text.push_str(if lucky(&mut choices) { ": " } else { ":" });
            let unusual = lucky(&mut choices);
            let among = if unusual { values.len() } else { values.len().min(2) } as u64;
            text.push_str(values[choices.next_below(among) as usize]);
        }
        text.push_str(if lucky(&mut choices) && rare > 4 { "\n" } else { "}\n" });
    }
    text
}

fn habitual_columns() -> Vec<FieldRef> {
    let user = vec![field("a longer name", T::Utf8View), field("n", T::Int64)];
    vec![
        field("id", T::Int64),
        field("dst_ip_addr", T::Utf8View),
        field("user", struct_type(user)),
        field("abcdef", T::Utf8View),
        field("", T::Int64),
        field("a key of more than sixteen bytes", T::Utf8View),
        field("is it", T::Boolean),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn fast_and_exact_paths_agree_on_any_key_order(
        rare in 0u64..16, seed: u64, strict: bool, mismatch_is_null: bool, few in 0usize..8,
        counts: bool
    ) {
        let text = habitual_lines(60, rare, seed);
        let columns = habitual_columns()[few.min(7)..].to_vec();
        let known = known_keys(&habitual_columns(), KNOWN_HABITUAL_KEYS, counts);
        let options = Options { checks_skipped_values: strict, mismatch_is_null, known_keys: known, ..Options::default() };
        let (fast, fast_out) = decode_with(false, columns.clone(), options.clone(), text.as_bytes());
        let (slow, slow_out) = decode_with(true, columns, options, text.as_bytes());
        prop_assert_eq!(fast, slow, "{}", text);
        prop_assert_eq!(fast_out.rejected, slow_out.rejected, "{}", text);
        prop_assert_eq!(fast_out.unknown_keys, slow_out.unknown_keys, "{}", text);
    }
}

/// Returns similar lines: the same members, whose values have the same shape.
fn similar_lines(count: usize, places: &[u64], spaces: bool) -> String {
    let mut choices =
        ChoiceGenerator(places.iter().fold(7, |seed, place| seed.wrapping_mul(31) + place));
    let keys: Vec<&str> = places
        .iter()
        .map(|place| HABITUAL_MEMBERS[(*place % 16) as usize].0)
        .filter(|key| !key.contains('\\') && !key.ends_with(' '))
        .collect();
    let mut text = String::new();
    for _ in 0..count {
        let member = |key: &&str| {
            let value = match (*key, choices.next_below(8)) {
                ("\"user\"", n) => {
                    format!("{{\"n\":{n},\"of\":[1,{{}}],\"a longer name\":\"x{n}\"}}")
                }
                ("\"tags\"", n) => format!("[{{\"id\":{n}}},[],\"}}\"]"),
                (_, 0) => "null".to_owned(),
                (_, 1) => "\"a: ,\"".to_owned(),
                (_, 2) => "-12".to_owned(),
                (_, n) => (n * 1237).to_string(),
            };
            format!("{key}:{}{value}", if spaces { " " } else { "" })
        };
        let members: Vec<String> = keys.iter().map(member).collect();
        text += &format!("{{{}}}\n", members.join(if spaces { ", " } else { "," }));
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn pattern_and_exact_paths_agree_on_similar_records(
        places in prop::collection::vec(0u64..16, 1..16), twice: bool, spaces: bool,
        changes in changes(), mismatch_is_null: bool, batch_rows in 1usize..60, few in 0usize..8,
        counts: bool
    ) {
        let mut places = places;
        if !twice {
            places.sort_unstable();
            places.dedup();
        }
        let plain = similar_lines(40, &places, spaces);
        let columns = habitual_columns()[few.min(7)..].to_vec();
        let known = known_keys(&habitual_columns(), KNOWN_HABITUAL_KEYS, counts);
        let options = Options { mismatch_is_null, batch_rows, known_keys: known, ..Options::default() };
        for text in [plain.as_bytes(), &mutate(&plain, &changes)] {
            let (fast, fast_out) = decode_with(false, columns.clone(), options.clone(), text);
            let (slow, slow_out) = decode_with(true, columns.clone(), options.clone(), text);
            prop_assert_eq!(fast, slow, "{}", String::from_utf8_lossy(text));
            prop_assert_eq!(fast_out.rejected, slow_out.rejected, "{}", String::from_utf8_lossy(text));
            prop_assert_eq!(fast_out.unknown_keys, slow_out.unknown_keys, "{}", String::from_utf8_lossy(text));
        }
    }
}

/// Counts the keys that no column has, in a document without duplicate keys.
fn count_unknown_keys(
    value: &Value,
    fields: &[FieldRef],
    path: &str,
    unknown: &mut BTreeMap<String, u64>,
) {
    let Value::Object(members) = value else { return };
    for (key, value) in members {
        let is_other = path.is_empty() && ["a", "b", "c", "d", "é"].contains(&key.as_str());
        match fields.iter().find(|field| field.name() == key) {
            Some(field) => {
                let path = format!("{path}{}", quote_path_step(key));
                count_unknown_keys_within(value, field.data_type(), &path, unknown);
            }
            None if is_other => {}
            None => {
                *unknown
                    .entry(shorten_path(&format!("{path}{}", quote_path_step(key))))
                    .or_default() += 1
            }
        }
    }
}

fn count_unknown_keys_within(
    value: &Value,
    data_type: &T,
    path: &str,
    unknown: &mut BTreeMap<String, u64>,
) {
    match (data_type, value) {
        (T::Struct(fields), _) => count_unknown_keys(value, fields, &format!("{path}."), unknown),
        (T::List(item), Value::Array(items)) => items.iter().for_each(|it| {
            count_unknown_keys_within(it, item.data_type(), &format!("{path}[]"), unknown)
        }),
        _ => {}
    }
}

#[test]
fn unknown_keys_are_counted_even_if_similar_to_known_ones() {
    let columns = vec![
        field("id", T::Int64),
        field("s", struct_type(vec![field("n", T::Int64), field("old_status", T::Utf8View)])),
    ];
    let known = || {
        let old = ["old_status", "a longer name of a key: old_status", "l", "m"];
        known_keys(&columns, &old, true)
    };
    let wanted = [columns.clone(), columns[..1].to_vec(), vec![], columns[1..].to_vec()];
    let line = |id: usize, status: &str, long: &str, inner: &str| {
        format!(
            "{{\"id\":{id},\"{status}\":\"x\",\"s\":{{\"n\":1,\"{inner}\":\"y\"}},\
             \"a longer name of a key: {long}\":2,\"m\":{{\"zz\":1}}}}\n"
        )
    };
    let mut text = String::new();
    for id in 0..900 {
        let name = |at: usize| if id >= at { "new_status" } else { "old_status" };
        text += &line(id, name(300), name(500), name(700));
        // Occasionally something else, and at the end no two records are similar.
        if id % 100 == 50 {
            text += "{\"id\":1,\"old\\u005fstatus\":3,\"new\\u005fstatus\":3,\"l\":[{\"z\":1}]}\n";
        }
    }
    for wanted in wanted {
        for careful in [false, true] {
            let options = Options { known_keys: known(), ..Options::default() };
            let (_, out) = decode_with(careful, wanted.clone(), options, text.as_bytes());
            let mut expected = vec![
                ("new_status", 600 + 9, text.find("\"new\\u005f").unwrap()),
                (
                    "a longer name of a key: new_status",
                    400,
                    text.find("\"a longer name of a key: new_status").unwrap(),
                ),
            ];
            if wanted.iter().any(|field| field.name() == "s") {
                let at = text.find("{\"n\":1,\"new_status\"").unwrap() + 7;
                expected.push(("s.new_status", 200, at));
            }
            let found: Vec<_> = out
                .unknown_keys
                .iter()
                .map(|key| (key.path.as_str(), key.count, key.first_offset))
                .collect();
            assert_eq!(found, expected, "{wanted:?}");
        }
    }
}

#[test]
fn keys_of_rejected_records_and_skipped_values_are_not_counted() {
    let columns = vec![field("a", T::Int64), field("s", struct_type(vec![field("n", T::Int64)]))];
    let closed = Arc::new(KnownKeys::new(&columns, |place| place != 1));
    for (line, expected) in [
        ("{\"a\":1,\"z\":1}", vec![("z", 1)]),
        ("{\"a\":\"x\",\"z\":1}", vec![]),
        ("{\"z\":1,\"a\":1", vec![]),
        ("{\"z\":1,\"z\":2}", vec![("z", 2)]),
        ("{\"s\":{\"z\":1,\"n\":2}}", vec![("s.z", 1)]),
        ("{\"s\":{\"z\":1,\"n\":\"x\"}}", vec![]),
        ("{\"y\":{\"z\":1}}", vec![("y", 1)]),
        ("{\"\\q\":1}", vec![("\\q", 1)]),
        ("{\"\":1}", vec![("", 1)]),
    ] {
        // Other records of the block count.
        let text = format!("{{\"a\":1,\"y\":1}}\n{line}\n{{\"a\":1,\"y\":1}}\n");
        for careful in [false, true] {
            let options =
                Options { known_keys: known_keys(&columns, &["y"], true), ..Options::default() };
            let (_, out) = decode_with(careful, columns.clone(), options, text.as_bytes());
            let found: Vec<_> =
                out.unknown_keys.iter().map(|key| (key.path.as_str(), key.count)).collect();
            let expected: Vec<_> =
                expected.iter().filter(|(path, _)| *path != "y").copied().collect();
            assert_eq!(found, expected, "{line}");
        }
    }
    // Keys inside declared columns are not reported.
    let options = Options { known_keys: Some(closed), ..Options::default() };
    let (_, out) = decode(columns, options, b"{\"s\":{\"z\":1}}\n{\"t\":1}");
    let found: Vec<_> = out.unknown_keys.iter().map(|key| key.path.as_str()).collect();
    assert_eq!(found, ["t"]);
}

#[test]
fn similar_records_are_taken_by_pattern() {
    let user = |n: usize| format!("\"user\":{{\"n\":{n},\"of\":[],\"a longer name\":\"x\"}}");
    for (odd, expected) in [(usize::MAX, 999), (500, 998), (3, 0)] {
        // One record differs, or every third.
        let line = |n: usize| match n % odd {
            0 if n > 0 => format!("{{\"id\":{n}}}\n"),
            _ => format!("{{\"id\":{n},\"xid\":null,{},\"abcdef\":\"é\"}}\n", user(n)),
        };
        let text: String = (0..1000).map(line).collect();
        let columns = habitual_columns();
        let mut decoder = JsonDecoder::new(columns, &[], Options::default()).unwrap();
        let mut out = DecodedBlocks::default();
        decoder.decode(text.as_bytes(), &mut out);
        assert!(out.rejected.is_empty());
        let taken = decoder.decoder.tokenizer_mut().pattern_matcher.taken_records;
        match expected {
            0 => assert!(taken < 1000),
            _ => assert_eq!(taken, expected),
        }
        let ids = |row: &Value| row[0].as_u64().unwrap();
        assert!(rows_to_json(&out.batches).iter().map(ids).eq(0..1000));
    }
}

#[test]
fn key_with_wanted_ending_is_not_mistaken_for_it() {
    let columns = vec![field("dst_ip_addr", T::Utf8View), field("n", T::Int64)];
    let alike = "{\"src_ip_addr\":\"s\",\"dst_ip_addr\":\"d\",\"n\":1}\n";
    let other = "{\"dst_ip_addr\":\"t\",\"src_ip_addr\":\"u\",\"n\":2}\n";
    let third = "{\"dst_ip_addr\":\"v\",\"dst_ip_addr\":\"w\",\"n\":3}\n";
    let text = [alike, alike, other, alike, third, alike].concat();
    let (found, out) = decode(columns, Options::default(), text.as_bytes());
    assert!(out.rejected.is_empty());
    let one = json!(["d", 1]);
    let expected = [one.clone(), one.clone(), json!(["t", 2]), one.clone(), json!(["w", 3]), one];
    assert_eq!(found, expected);
}

#[test]
fn keys_in_random_order_are_found_across_pauses() {
    // Long enough for guessing to pause, resume and pause for longer.
    let mut choices = ChoiceGenerator(7);
    let (mut text, mut sum) = (String::new(), 0);
    for row in 0..9000u64 {
        let mut members: Vec<String> = (0..12).map(|key| format!("\"key {key}\":{row}")).collect();
        members.push(format!("\"wanted\":{row}"));
        for at in 1..members.len() {
            members.swap(at, choices.next_below(at as u64 + 1) as usize);
        }
        text.push_str(&format!("{{{}}}\n", members.join(",")));
        sum += row;
    }
    let columns = vec![field("key 3", T::Int64), field("wanted", T::Int64)];
    let (found, out) = decode(columns, Options::default(), text.as_bytes());
    assert!(out.rejected.is_empty());
    for column in 0..2 {
        let total: u64 = found.iter().map(|row| row[column].as_u64().unwrap()).sum();
        assert_eq!(total, sum);
    }
}

#[test]
fn non_text_values_in_text_columns_keep_their_spelling() {
    let columns = || vec![field("t", T::Utf8View), field("l", list_type(T::Utf8View))];
    for (line, expected) in [
        (r#"{"t": {"b" : [1, 2.50]} }"#, Ok(json!([r#"{"b" : [1, 2.50]}"#, null]))),
        (r#"{"t":[],"l":[{},"x",[ ],null]}"#, Ok(json!(["[]", ["{}", "x", "[ ]", null]]))),
        (r#"{"t":{"k\"":"\u0041"}}"#, Ok(json!([r#"{"k\"":"\u0041"}"#, null]))),
        (r#"{"t":"{\"a\":1}"}"#, Ok(json!([r#"{"a":1}"#, null]))),
        (r#"{"t":{},"t":"x"}"#, Ok(json!(["x", null]))),
        (r#"{"t":"x","t":[1]}"#, Ok(json!(["[1]", null]))),
        (r#"{"t":{"a":01}}"#, Err(Some("t"))),
        (r#"{"t":["\q"]}"#, Err(Some("t"))),
        (r#"{"t":[1 2]}"#, Err(Some("t"))),
        (r#"{"t":{"a"}}"#, Err(Some("t"))),
    ] {
        for careful in [false, true] {
            let options = Options::default();
            let (found, out) = decode_with(careful, columns(), options, line.as_bytes());
            let found = match out.rejected.first() {
                Some(bad) => Err(bad.fault.column.clone()),
                None => Ok(found[0].clone()),
            };
            assert_eq!(found, expected.clone().map_err(|c| c.map(str::to_owned)), "{line}");
        }
    }
}

#[test]
fn wrong_shape_is_ignored_if_a_later_duplicate_counts() {
    let inner = struct_type(vec![field("x", T::Int64), field("l", list_type(T::Int64))]);
    let columns = vec![
        field("s", inner),
        field("t", T::Utf8View),
        field("b", T::Boolean),
        field("l", list_type(T::Int64)),
    ];
    for (line, fault) in [
        ("{\"s\":3,\"s\":{\"x\":1}}", None),
        ("{\"s\":{\"l\":[[],{}]},\"l\":[1],\"s\":null,\"l\":[2]}", None),
        ("{\"s\":{\"x\":[],\"x\":{},\"x\":4}}", None),
        ("{\"t\":[],\"s\":3,\"t\":[1],\"s\":{},\"t\":\"\"}", None),
        ("{\"s\":{},\"s\":3}", Some("s at 12: expected an object, found a number `3`")),
        ("{\"l\":3,\"s\":[],\"l\":[]}", Some("s at 11: expected an object, found an array `[]`")),
        (
            "{\"l\":3,\"s\":[],\"s\":4,\"l\":[]}",
            Some("s at 18: expected an object, found a number `4`"),
        ),
        (
            "{\"b\":{},\"l\":3,\"l\":[[]]}",
            Some("b at 5: expected a Boolean (true or false), found an object `{}`"),
        ),
    ] {
        for careful in [false, true] {
            let options = Options::default();
            let (_, out) = decode_with(careful, columns.clone(), options, line.as_bytes());
            let found = out.rejected.first().map(|bad| {
                format!(
                    "{} at {}: {}",
                    bad.fault.column.as_ref().unwrap(),
                    bad.fault.offset,
                    bad.fault
                )
            });
            assert_eq!(found.as_deref(), fault, "{line}");
        }
    }
}

#[test]
fn skipped_values_may_nest_deeply() {
    for depth in [10, 63, 64, 65, 66, 200, 100_000] {
        let deep = format!(
            "{{\"x\":{}{},\"a\":1}}\n{{\"x\":{}1{},\"a\":2}}\n",
            "[".repeat(depth),
            "]".repeat(depth),
            "{\"y\":".repeat(depth),
            "}".repeat(depth)
        );
        let (found, out) = decode(vec![field("a", T::Int64)], Options::default(), deep.as_bytes());
        assert!(out.rejected.is_empty());
        assert_eq!(found, [json!([1]), json!([2])]);
    }
    let mut data_type = T::Int64;
    for _ in 0..100 {
        data_type = list_type(data_type);
    }
    let deep = format!("{{\"a\":{}1{}}}\n", "[".repeat(100), "]".repeat(100));
    let (found, _) = decode(vec![field("a", data_type)], Options::default(), deep.as_bytes());
    assert!(found[0].to_string().contains("[[1]]"));
}

#[test]
fn null_strings_are_null_but_not_as_keys() {
    let nulls = ["NA".to_owned(), "-1".to_owned()];
    let columns = vec![
        field("a", T::Int64),
        field("t", T::Utf8View),
        field("m", map_type(T::Utf8View)),
        field("b", T::Boolean),
    ];
    let mut decoder = JsonDecoder::new(columns, &nulls, Options::default()).unwrap();
    let mut out = DecodedBlocks::default();
    decoder.decode(
        b"{\"a\":-1,\"t\":\"NA\",\"m\":{\"NA\":\"NA\"},\"b\":\"NA\"}\n{\"a\":\"NA\",\"t\":\"\"}\n",
        &mut out,
    );
    assert!(out.rejected.is_empty());
    assert_eq!(
        rows_to_json(&out.batches),
        [json!([null, null, [["NA", null]], null]), json!([null, "", null, null])]
    );
}

#[test]
fn result_does_not_depend_on_windows_and_blocks() {
    // More than a window, with records of all lengths, some longer than a window.
    let mut text = String::new();
    for index in 0..3000usize {
        let long = if index % 700 == 3 { 70_000 } else { index % 50 };
        let slash = if index % 3 == 0 { "\\n" } else { "" };
        text.push_str(&format!(
            "{{\"skipped\":[{{\"a\":\"{}\"}}],\"t\":\"{slash}{}\", \"a\":{index}}}\n",
            "x".repeat(long),
            "é".repeat(index % 7)
        ));
    }
    let wanted = || vec![field("a", T::Int64), field("t", T::Utf8View)];
    let options = |batch_rows| Options { batch_rows, ..Options::default() };
    let (all, out) = decode(wanted(), options(8192), text.as_bytes());
    assert_eq!((out.rows, out.rejected.len()), (3000, 0));
    assert_eq!(all[3], json!([3, "\nééé"]));
    for batch_rows in [1, 7, 100] {
        let (few, out) = decode(wanted(), options(batch_rows), text.as_bytes());
        assert!(out.batches.iter().all(|batch| batch.num_rows() <= batch_rows));
        assert_eq!(all, few);
    }
    let mut pieces = Vec::new();
    for lines in text.split_inclusive('\n').collect::<Vec<_>>().chunks(11) {
        pieces.extend(decode(wanted(), options(8192), lines.concat().as_bytes()).0);
    }
    assert_eq!(all, pieces);
}

#[test]
fn unsupported_column_types_are_refused() {
    for data_type in [
        T::Duration(arrow_schema::TimeUnit::Second),
        list_type(T::Null),
        struct_type(vec![Arc::new(Field::new("n", T::Int64, false))]),
    ] {
        let bad = field("bad", data_type);
        let wanted = vec![field("a", T::Int64), bad.clone()];
        let found = JsonDecoder::new(wanted, &[], Options::default()).err();
        assert_eq!(found, Some(bad), "{}", sql_type_name(&T::Int64));
    }
    let strict = Arc::new(Field::new("a", T::Int64, false));
    assert!(JsonDecoder::new(vec![strict], &[], Options::default()).is_err());
}

#[test]
fn truncated_value_is_distinguished_from_wrong_one() {
    for (line, cut) in [("{\"a\":tr", true), ("{\"a\":trx", false), ("{\"a", true), ("{", true)] {
        let wanted = vec![field("a", T::Int64)];
        let (_, out) = decode(wanted, Options::default(), line.as_bytes());
        let kind = &out.rejected[0].fault.kind;
        assert_eq!(matches!(kind, TextFaultKind::EndsInsideValue(_)), cut, "{line}: {kind:?}");
    }
}

/// Returns a text of objects with anything allowed between them, and their ranges.
fn sequence_with_ranges(documents: &[Value], seed: u64) -> (Vec<u8>, Vec<Range<u64>>) {
    let mut choices = ChoiceGenerator(seed | 1);
    let (mut text, mut records, mut in_array) = (String::new(), Vec::new(), false);
    let white = |choices: &mut ChoiceGenerator, text: &mut String| {
        text.push_str(["", "", " ", "\n", "\r\n", "\t \n\n"][choices.next_below(6) as usize]);
    };
    for (index, document) in documents.iter().enumerate() {
        white(&mut choices, &mut text);
        if in_array && choices.next_below(4) == 0 {
            text.push(']');
            in_array = false;
            white(&mut choices, &mut text);
        }
        match choices.next_below(4) {
            _ if in_array => text.push(','),
            0 if index > 0 => text.push(','),
            1 if !in_array => text.push(RECORD_SEPARATOR as char),
            2 if !in_array => {
                text.push('[');
                in_array = true;
            }
            _ => {}
        }
        white(&mut choices, &mut text);
        let start = text.len() as u64;
        match choices.next_below(3) {
            0 => text.push_str(&serde_json::to_string_pretty(document).unwrap()),
            1 => {
                let mut object = String::new();
                write_value(document, &mut choices, true, &mut object);
                text.push_str(object.trim());
            }
            _ => text.push_str(&document.to_string()),
        }
        records.push(start..text.len() as u64);
    }
    white(&mut choices, &mut text);
    if in_array {
        text.push(']');
    }
    (text.into_bytes(), records)
}

fn piece_ends(len: usize, cuts: Vec<f64>) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| (cut * len as f64) as usize).collect();
    ends.sort_unstable();
    ends.push(len);
    ends
}

fn scan_in_pieces(text: &[u8], ends: &[usize]) -> (Vec<Range<u64>>, Option<u64>) {
    let (mut scanner, mut records, mut start) = (RecordScanner::new(0), Vec::new(), 0);
    for &end in ends {
        // A limit only pauses the scan.
        while start < end && scanner.broken_array_offset().is_none() {
            let max = records.len() + 2;
            start += scanner.scan(&text[start..end], &mut records, max);
        }
    }
    let broken = scanner.finish(&mut records);
    (records, broken)
}

/// Returns the records on lines of their own.
fn records_as_lines(text: &[u8], records: &[Range<u64>]) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records {
        let record = &text[record.start as usize..record.end as usize];
        lines.extend(record.is_empty().then_some(MISSING_COMMA_MARKER));
        lines.extend(record.iter().map(|byte| if *byte == b'\n' { b'\r' } else { *byte }));
        lines.push(b'\n');
    }
    lines
}

fn decode_joined(careful: bool, options: Options, text: &[u8]) -> (Vec<Value>, DecodedBlocks) {
    let decoder = JsonDecoder::new(columns(), &[], options).unwrap();
    let mut decoder = decoder.with_joined_records();
    decoder.decoder.tokenizer_mut().is_always_exact = careful;
    let mut out = DecodedBlocks::default();
    decoder.decode(text, &mut out);
    (rows_to_json(&out.batches), out)
}

#[test]
fn non_records_of_a_sequence_are_refused_alone() {
    for (text, good, bad, is_closed) in [
        ("", 0, 0, true),
        ("{}{}", 2, 0, true),
        ("{} {}\t{}", 3, 0, true),
        ("{},\n{},\n", 2, 0, true),
        ("{}\n,{}", 2, 0, true),
        (",{}", 1, 1, true),
        ("{},,{}", 2, 1, true),
        ("{},\n,{}", 2, 1, true),
        ("\x1e{}\n\x1e{}\n", 2, 0, true),
        ("\x1e\x1e{}\n", 1, 0, true),
        ("\x1e{\"a\":\x1e{}\n", 1, 1, true),
        ("\x1e{\"a\":\"\x1e{}\n\x1e{\"\\\x1e{}", 2, 2, true),
        ("{}x {}", 0, 1, true),
        ("{}x {}\n{}", 1, 1, true),
        ("x{} {}\r\n{}", 1, 1, true),
        ("{}} {}", 0, 1, true),
        ("{}\n}\n{}", 2, 1, true),
        ("{}]{}", 0, 1, true),
        ("x {}\n\"a b\" {}", 2, 2, true),
        ("{\"a\":[1}{}", 0, 1, true),
        ("{\"a\":1}, \"b\": {\"c\":1}}\n{}", 2, 1, true),
        ("{\"a\":{\"b\":2]}{}", 1, 1, true),
        ("{\"a\":1 {}{}", 0, 1, true),
        ("{}{\"a\":", 1, 1, true),
        ("[]", 0, 0, true),
        (" \n[ \n ]\n", 0, 0, true),
        ("[{},{}]", 2, 0, true),
        ("[{},\n,{}]", 2, 1, true),
        ("[{},]", 1, 1, true),
        ("[,{}]", 1, 1, true),
        ("[{}]{}", 2, 0, true),
        ("[{}]\n{}\n[{}]", 3, 0, true),
        ("[{}],[{}],", 2, 0, true),
        ("[{} {}]", 2, 1, true),
        ("[{}{},{}\n{}]", 4, 2, true),
        ("[{}][{}]{}", 3, 0, true),
        ("[{}x,\n{}]", 1, 1, true),
        // A truncated record ends where a line begins with another one.
        ("{\"a\":0},\n{\"a\":1,\"b\":\"x\",\n{\"a\":2},\n{\"a\":3},\n", 3, 1, true),
        ("{\"a\":0},\n{\"a\":1,\"b\":\"x\n{\"a\":2},\n{\"a\":3},\n", 3, 1, true),
        ("{\"a\":0},\n{\"a\":1,\"b\":\"x\\\n{\"a\":2},\n{\"a\":3},\n", 3, 1, true),
        ("{\"a\":0},\n{\"a\":1,\"b\":{\"c\":[1],\n{\"a\":2},\n{\"a\":3},\n", 3, 1, true),
        ("{\"a\":0},\n{\"a\":1,\"b\":12\n{\"a\":2},\n{\"a\":3},\n", 3, 1, true),
        ("{\"a\":0},\n{\n{\"a\":2},\n{\"a\":3},\n", 3, 1, true),
        ("{\"a\":0},\n{\"a\"\n{\"a\":2},\n{\n{\n{\"a\":3},\n", 3, 3, true),
        ("[\n{\"a\":0},\n{\"a\":1,\"b\":\"x\",\n{\"a\":2},\n{\"a\":3}\n]", 3, 1, true),
        // The `{` may be the value of a key, or an item of a list.
        ("{\"a\":0},\n{\"a\":1,\"b\":\n{\"a\":2},\n{\"a\":3},\n", 2, 1, true),
        ("{\"a\":0},\n{\"a\":1,\"b\":\n\t\n{\"a\":2},\n\"c\":[\n{},\n{}\n]},\n", 2, 0, true),
        // Deeper inside, it cannot be distinguished from one within the record.
        ("{\"a\":0},\n{\"a\":1,\n {\"a\":2},\n {\"a\":3},\n", 1, 1, true),
        ("[1,[{}],\"a,b\",{}]", 1, 3, true),
        ("[{\"a\":\"\n\"},{}]", 1, 1, true),
        ("[{\"a\":\"\\\n\"},{}]", 1, 1, true),
        ("[{\"a\":\",]}\\\"\"},{}]", 2, 0, true),
        ("[{}},{}]", 0, 1, false),
        ("[{}},{}\n,{}]", 1, 1, true),
        ("[7}, {}\n]", 0, 1, true),
        ("[{},{\"a\":", 1, 1, false),
        ("[{},\x1e{}]", 1, 0, false),
        ("[{}", 1, 0, false),
    ] {
        let ends: Vec<usize> = (1..=text.len()).collect();
        let (records, broken) = scan_in_pieces(text.as_bytes(), &ends);
        assert_eq!(broken.is_none(), is_closed, "{text}");
        let lines = records_as_lines(text.as_bytes(), &records);
        let (found, out) = decode(vec![], Options::default(), &lines);
        assert_eq!((found.len(), out.rejected.len()), (good, bad), "{text:?} {records:?}");
    }
}

#[test]
fn records_sharing_a_line_are_separated() {
    for (line, good, bad) in [
        ("{}", 1, 0),
        ("{}{}", 2, 0),
        ("{} {} ", 2, 0),
        ("{},", 1, 0),
        ("{} , {} ,", 2, 0),
        ("{},{}", 2, 0),
        ("\x1e{}", 1, 0),
        ("\x1e {}\x1e{}\x1e", 2, 0),
        ("\x1e", 0, 0),
        ("{\"a\":\x1e{}", 1, 1),
        (",", 0, 1),
        (",{}", 0, 1),
        ("{},,", 0, 1),
        ("{},,{}", 0, 1),
        ("{}x{}", 0, 1),
        ("{}}", 0, 1),
        ("{}[{}]", 0, 1),
        ("[{},{}]", 0, 1),
        ("{\"a\":1,", 0, 1),
        ("{}{", 1, 1),
        ("{", 0, 1),
    ] {
        for behind in ["", "\n", "\r\n", "\n{}"] {
            let text = format!("{line}{behind}");
            let good = good + usize::from(behind.ends_with('}'));
            for careful in [false, true] {
                let (found, out) = decode_joined(careful, Options::default(), text.as_bytes());
                assert_eq!((found.len(), out.rejected.len()), (good, bad), "{text:?}");
            }
            let mut inference = crate::infer::json::JsonInference::new(&[]).with_joined_records();
            let records = inference.add_block(text.as_bytes());
            assert_eq!(
                (inference.object_count(), records),
                (good as u64, (good + bad) as u64),
                "{text:?}"
            );
        }
        // A lone object has its line to itself.
        let (found, _) = decode(vec![], Options::default(), line.as_bytes());
        assert_eq!(found.len(), usize::from(line == "{}"), "{line:?}");
    }
    let text = b" \x1e{\"a\": 1},\x1e{\"a\": x}";
    let (_, out) = decode_joined(false, Options::default(), text);
    let bad = &out.rejected[0];
    assert_eq!((bad.range.clone(), bad.fault.offset), (12..20, 6));
    assert_eq!(text[bad.range.start + bad.fault.offset], b'x');
}

#[test]
fn first_record_decides_the_layout() {
    use JsonLayout::{Lines, Sequence};
    for (text, early, all) in [
        ("", None, Lines),
        (" \n", None, Lines),
        ("{", None, Lines),
        ("{}", None, Lines),
        ("{} \t", None, Lines),
        ("{}\n", Some(Lines), Lines),
        ("\n{} \r\n[", Some(Lines), Lines),
        ("{\"a\":1}\n{\n", Some(Lines), Lines),
        ("{}{", Some(Sequence), Sequence),
        ("{} {", Some(Sequence), Sequence),
        ("{},", Some(Sequence), Sequence),
        ("{}[", Some(Sequence), Sequence),
        ("{}\x1e", Some(Sequence), Sequence),
        ("\x1e", Some(Sequence), Sequence),
        (" \n[", Some(Sequence), Sequence),
        ("{\n", None, Lines),
        ("{\n\"a\": 1", None, Sequence),
        ("{\n\"a\": 1\n}", Some(Sequence), Sequence),
        ("{\"a\": [{\"b\": 1},\n {}]}", Some(Sequence), Sequence),
        // Broken lines, and one that is cut off before a separator.
        ("{\"a\": 1\n{", Some(Lines), Lines),
        ("{\"a\": [1,\n{}\n{}\n", Some(Lines), Lines),
        ("{\"a\": \"x\n", Some(Lines), Lines),
        ("{\"a\": 1\x1e{}", Some(Sequence), Sequence),
        ("{\"a\" 1", None, Lines),
        ("{\"a\" 1 \x1e", Some(Sequence), Sequence),
        ("{\"a\" 1\n\x1e", Some(Lines), Lines),
        ("{}x\n", Some(Lines), Lines),
        ("a,b\n", Some(Lines), Lines),
        ("7\n", Some(Lines), Lines),
    ] {
        assert_eq!(detect_layout(text.as_bytes(), false), early, "{text:?}");
        assert_eq!(detect_layout(text.as_bytes(), true), Some(all), "{text:?}");
    }
}

#[test]
fn uncommon_types_are_read_as_in_other_formats() {
    let micros = |zone: Option<&str>| {
        T::Timestamp(arrow_schema::TimeUnit::Microsecond, zone.map(Into::into))
    };
    let columns = vec![
        field("t", micros(Some("UTC"))),
        field("d", T::Date32),
        field("n", T::Decimal128(10, 2)),
        field("u", T::UInt64),
        field("k", T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8View))),
    ];
    let text = br#"{"t":"2013-01-01T05:00:00Z","d":"2013-01-01","n":1.50,"u":18446744073709551615,"k":"x\u0041"}
{"t":"2013-01-01T05:00:00+01:00","d":null,"n":"-3","u":"7","k":12}
{"t":1700000000}
{"u":-1}
{"n":"1.2.3"}
"#;
    let mut decoder = JsonDecoder::new(columns, &[], Options::default()).unwrap();
    let mut out = DecodedBlocks::default();
    decoder.decode(text, &mut out);
    let batch = &out.batches[0];
    let faults: Vec<_> = out.rejected.iter().map(|bad| bad.fault.column.clone().unwrap()).collect();
    assert_eq!(faults, ["t", "u", "n"]);
    assert_eq!(batch.num_rows(), 2);
    batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    let keys = arrow_cast::cast(batch.column(4), &T::Utf8).unwrap();
    assert_eq!(keys.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("xA"), Some("12")]);
    let faults: Vec<_> = out.rejected.iter().map(|bad| bad.fault.column.clone().unwrap()).collect();
    assert_eq!(faults, ["t", "u", "n"]);
}

#[test]
fn inferred_double_columns_refuse_inexact_numbers() {
    let columns = || {
        let inner = struct_type(vec![field("n", T::Float64)]);
        vec![
            field("m", map_type(T::Float64)),
            field("l", map_type(list_type(inner.clone()))),
            field("f", T::Float64),
            field("s", inner),
            field("fs", list_type(T::Float64)),
        ]
    };
    const ALL: [usize; 5] = [0, 1, 2, 3, 4];
    for (line, column, value) in [
        ("{\"m\":{\"a\":9007199254740993}}", Some("m.a"), "9007199254740993"),
        ("{\"m\":{\"b\":1,\"a\":-9007199254740993}}", Some("m.a"), "-9007199254740993"),
        ("{\"m\":{\"a\":\"9007199254740993\"}}", Some("m.a"), "9007199254740993"),
        ("{\"m\":{\"a\":18446744073709551617}}", Some("m.a"), "18446744073709551617"),
        ("{\"l\":{\"a\":[{},{\"n\":9007199254740993}]}}", Some("l.a[1].n"), "9007199254740993"),
        ("{\"f\":9007199254740993}", Some("f"), "9007199254740993"),
        ("{\"f\":18446744073709551615}", Some("f"), "18446744073709551615"),
        ("{\"s\":{\"n\":9007199254740993}}", Some("s.n"), "9007199254740993"),
        ("{\"fs\":[0.5,9007199254740993]}", Some("fs[1]"), "9007199254740993"),
        ("{\"f\":1e400}", Some("f"), "1e400"),
        ("{\"s\":{\"n\":-1.5E+309}}", Some("s.n"), "-1.5E+309"),
        ("{\"fs\":[1e-400]}", Some("fs[0]"), "1e-400"),
        ("{\"m\":{\"a\":9007199254740992}}", None, ""),
        ("{\"m\":{\"a\":9007199254740994,\"b\":-0}}", None, ""),
        ("{\"m\":{\"a\":1000000000000000000000}}", None, ""),
        ("{\"m\":{\"a\":9007199254740993.0,\"b\":0.1}}", None, ""),
        ("{\"f\":9007199254740992}", None, ""),
        ("{\"f\":18446744073709551616}", None, ""),
        ("{\"f\":0.1000000000000000055511151231257827}", None, ""),
        ("{\"f\":-0.0e-400,\"fs\":[5e-324,1.7976931348623157e308]}", None, ""),
    ] {
        for (inferred, mismatch_is_null) in [(true, false), (true, true), (false, false)] {
            let inferred = if inferred { ALL.to_vec() } else { vec![] };
            let is_refused = column.is_some() && !inferred.is_empty() && !mismatch_is_null;
            let options =
                Options { inferred_columns: inferred, mismatch_is_null, ..Options::default() };
            // Many records fill a window.
            let text = format!("{}{line}\n", "{\"f\":0.5}\n".repeat(100));
            for careful in [false, true] {
                let (found, out) =
                    decode_with(careful, columns(), options.clone(), text.as_bytes());
                assert_eq!(found.len(), 101 - usize::from(is_refused), "{line}");
                let Some(bad) = out.rejected.first() else { continue };
                assert_eq!(bad.fault.column.as_deref(), column, "{line}");
                let value = value.to_owned();
                let kind = match value.contains(['e', 'E']) {
                    true => TextFaultKind::DoubleOutOfRange { value },
                    false => TextFaultKind::RoundedByDouble { value },
                };
                assert_eq!(bad.fault.kind, kind, "{line}");
            }
        }
    }
    let options =
        Options { inferred_columns: ALL.to_vec(), mismatch_is_null: true, ..Options::default() };
    let text = "{\"m\":{\"a\":9007199254740993,\"b\":0.5},\"fs\":[1e400,1]}";
    let (found, out) = decode(columns(), options, text.as_bytes());
    assert_eq!(found[0][0], json!([["a", null], ["b", 0.5]]));
    assert_eq!(found[0][4], json!([null, 1.0]));
    assert_eq!(out.mismatches.iter().map(|column| column.count).sum::<u64>(), 2);
}

#[test]
fn predicate_keeps_rows_whose_number_no_double_holds() {
    use crate::predicate_filter::{
        ComparisonOperator, Predicate, PredicateConstant, ValueCondition,
    };
    let line = |value: &str| format!("{{\"f\":{value}}}\n");
    for value in ["9007199254740993", "1e400", "1e-400"] {
        for (comparison, constant) in [
            (ComparisonOperator::NotEqual, 9007199254740992.0),
            (ComparisonOperator::Equal, 0.5),
            (ComparisonOperator::Less, -1.0),
        ] {
            let test = ValueCondition::Comparison(comparison, PredicateConstant::Float(constant));
            let predicates = vec![Predicate { column: 0, condition: test }];
            let options = Options { inferred_columns: vec![0], predicates, ..Options::default() };
            let text = line("0.5") + &line(value) + &line("9007199254740992");
            let (_, out) = decode(vec![field("f", T::Float64)], options, text.as_bytes());
            assert_eq!(out.rejected.len(), 1, "{value} {constant}");
            assert_eq!(out.rows, 2, "{value} {constant}");
        }
    }
}

#[test]
fn inferred_times_of_a_zone_state_their_zone_at_any_depth() {
    let zoned = || T::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into()));
    let columns = || {
        let inner = struct_type(vec![field("t", zoned())]);
        vec![
            field("t", zoned()),
            field("o", inner.clone()),
            field("l", list_type(inner)),
            field("m", map_type(zoned())),
        ]
    };
    for (line, column) in [
        ("{\"t\":\"2026-01-01T05:00:00\"}", Some("t")),
        ("{\"t\":\"2026-01-01\"}", Some("t")),
        ("{\"o\":{\"t\":\"2026-01-01T05:00:00\"}}", Some("o.t")),
        ("{\"l\":[{},{\"t\":\"2026-01-01T05:00:00\"}]}", Some("l[1].t")),
        ("{\"m\":{\"a\":\"2026-01-01T05:00:00\"}}", Some("m.a")),
        ("{\"t\":\"2026-01-01T05:00:00Z\",\"o\":{\"t\":\"2026-01-01T05:00:00+02:00\"}}", None),
    ] {
        for is_inferred in [true, false] {
            let inferred = if is_inferred { vec![0, 1, 2, 3] } else { vec![] };
            let options = Options { inferred_columns: inferred, ..Options::default() };
            let text = format!("{{}}\n{line}\n{{}}\n");
            let (found, out) = decode(columns(), options, text.as_bytes());
            let column = column.filter(|_| is_inferred);
            assert_eq!(found.len(), if column.is_some() { 2 } else { 3 }, "{line}");
            let at_fault = out.rejected.iter().map(|bad| bad.fault.column.as_deref());
            assert_eq!(
                at_fault.collect::<Vec<_>>(),
                column.map(Some).into_iter().collect::<Vec<_>>(),
                "{line}"
            );
        }
    }
}

#[test]
fn predicates_drop_rows_beside_nested_columns_too() {
    use crate::predicate_filter::{
        ComparisonOperator, Predicate, PredicateConstant, ValueCondition,
    };
    let test =
        ValueCondition::Comparison(ComparisonOperator::GreaterOrEqual, PredicateConstant::Int(2));
    let predicates = vec![Predicate { column: 1, condition: test }];
    let text = b"{\"a\":1,\"l\":[1]}\n{\"a\":2,\"l\":[2]}\n{}\nx\n{\"a\":3}\n{\"a\":\"x\"}\n";
    for first in [field("l", list_type(T::Int64)), field("l2", T::Int64)] {
        let wanted = vec![first, field("a", T::Int64)];
        let options = Options { predicates: predicates.clone(), ..Options::default() };
        let (found, out) = decode(wanted, options, text);
        let ids: Vec<_> = found.iter().map(|row| row[1].clone()).collect();
        assert_eq!((ids, out.rows, out.rejected.len()), (vec![json!(2), json!(3)], 4, 2));
    }
}

#[test]
fn broken_lines_among_many_cost_no_other_line() {
    let broken: [&[u8]; 8] = [
        b"{\"a\":\"\n\"}",
        b"{\"a\":1",
        b"{\"x\":\"\xc3\",\"a\":1}",
        b"nope",
        b"{\"a\":1}}",
        b"{\"x\":[1 2]}",
        b"{\"x\":\"y\\\"}",
        b"{\"a\":{}}",
    ];
    let mut text = Vec::new();
    let mut expected = 0;
    for index in 0..4000usize {
        if index % 37 == 5 {
            let line = broken[index % broken.len()];
            text.extend_from_slice(line);
            expected += line.split(|byte| *byte == b'\n').count();
        } else {
            let text_at = "é\\n ".repeat(index % 40);
            text.extend_from_slice(format!("{{\"t\":\"{text_at}\",\"a\":{index}}}").as_bytes());
        }
        text.extend_from_slice(if index % 11 == 0 { b"\r\n \n" } else { b"\n" });
    }
    let wanted = || vec![field("a", T::Int64), field("t", T::Utf8View)];
    for batch_rows in [3, 1000, 8192] {
        let options = Options { batch_rows, ..Options::default() };
        let (fast, fast_out) = decode_with(false, wanted(), options.clone(), &text);
        let (slow, slow_out) = decode_with(true, wanted(), options, &text);
        assert_eq!(fast_out.rejected.len(), expected);
        assert_eq!(fast, slow);
        assert_eq!((fast_out.rejected, fast_out.rows), (slow_out.rejected, slow_out.rows));
    }
}

/// An inferred column refuses a value after the sample that would have changed the column's type
/// within it; a declared type accepts it.
#[test]
fn strings_in_inferred_columns_of_numbers_and_booleans_are_refused() {
    for (data_type, usual, value, declared) in [
        (T::Int64, "1", "\"007\"", json!(7)),
        (T::Int64, "1", "\"7\"", json!(7)),
        (T::Int64, "1", "\"+1\"", json!(1)),
        (T::Int64, "1", "-0", json!(0)),
        (T::Float64, "1.5", "\"1.5\"", json!(1.5)),
        (T::Float64, "1.5", "\"9007199254740993\"", json!(9007199254740992.0)),
        (T::Boolean, "true", "\"TRUE\"", json!(true)),
        (T::Boolean, "true", "\"false\"", json!(false)),
    ] {
        let part = |data_type: &T| struct_type(vec![field("p", data_type.clone())]);
        for (column, wrap) in [
            (data_type.clone(), "@"),
            (part(&data_type), "{\"p\": @}"),
            (list_type(data_type.clone()), "[@, @]"),
            (list_type(part(&data_type)), "[{\"p\": @}]"),
            (map_type(data_type.clone()), "{\"k\": @}"),
        ] {
            let line = |value: &str| format!("{{\"v\": {}}}\n", wrap.replace('@', value));
            for (before, behind) in [(0, 0), (40, 1), (5000, 40)] {
                let usual_before = line(usual).repeat(before);
                let text = format!("{usual_before}{}{}", line(value), line(usual).repeat(behind));
                let columns = || vec![field("v", column.clone())];
                let inferred = Options { inferred_columns: vec![0], ..Options::default() };
                let out = decode(columns(), inferred.clone(), text.as_bytes()).1;
                assert_eq!((out.rows, out.rejected.len()), ((before + behind) as u64, 1), "{text}");
                assert_eq!(out.rejected[0].range.start, usual_before.len());
                let told = out.rejected[0].fault.to_string();
                let starts = ["expected a", "a DOUBLE holds no integer"];
                assert!(starts.iter().any(|start| told.starts_with(start)), "{told}");
                let nulls = Options { mismatch_is_null: true, ..inferred };
                let (rows, out) = decode(columns(), nulls, text.as_bytes());
                assert_eq!((rows.len(), out.rejected.len()), (before + behind + 1, 0), "{text}");
                let (rows, out) = decode(columns(), Options::default(), text.as_bytes());
                assert_eq!((rows.len(), out.rejected.len()), (before + behind + 1, 0), "{text}");
                if wrap == "@" {
                    assert_eq!(rows[before][0], declared, "{text}");
                }
            }
        }
    }
}

/// A predicate keeps values that the column refuses, and a null string is null.
#[test]
fn predicates_keep_strings_that_an_inferred_column_refuses() {
    use crate::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
    let test = ValueCondition::Comparison(ComparisonOperator::Greater, PredicateConstant::Int(8));
    let predicates = vec![Predicate { column: 0, condition: test }];
    for (inferred, mismatch_is_null, rows, bad) in
        [(vec![0], false, 1, 1), (vec![0], true, 1, 0), (vec![], false, 2, 0)]
    {
        let predicates = predicates.clone();
        let options = Options {
            inferred_columns: inferred,
            predicates,
            mismatch_is_null,
            ..Options::default()
        };
        let text = b"{\"v\": 9}\n{\"v\": \"10\"}\n{\"v\": \"NA\"}\n{\"v\": 3}\n{\"v\": 8}\n";
        let columns = vec![field("v", T::Int64)];
        let mut decoder = JsonDecoder::new(columns, &["NA".to_owned()], options).unwrap();
        let mut out = DecodedBlocks::default();
        decoder.decode(text, &mut out);
        let kept: usize = out.batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!((kept, out.rejected.len()), (rows, bad));
        assert!(
            out.rejected.iter().all(|bad| {
                bad.fault.to_string() == "expected a BIGINT, found a string `\"10\"`"
            })
        );
    }
}
