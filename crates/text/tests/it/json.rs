//! Comparison of JSON lines with `arrow_json`.
//!
//! Arrow reads a number in a text column, as we do, if told to coerce; and both grammars
//! cover whole documents if we check skipped values. The tests do not write JSON that only Arrow accepts
//! (doubled commas, leading zeros, control characters in strings).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType as T, Field, FieldRef, Schema, SchemaRef};
use proptest::prelude::*;
use proptest::sample::select;
use tidemill_text::json::JsonDecoder;
use tidemill_text::{BlockDecoder, DecodedBlocks, Options};

use crate::values::{REFUSED, scalars, texts, words};
use crate::{same, values};

/// A document, possibly with duplicate keys, and with numbers in their spelling.
#[derive(Debug, Clone)]
enum Json {
    Null,
    Boolean(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

fn types() -> BoxedStrategy<T> {
    scalars()
        .prop_recursive(3, 12, 4, |inner| {
            let item = inner.clone().prop_map(|t| T::List(field("item", t)));
            let map = inner.clone().prop_map(|value| {
                let key = Arc::new(Field::new("key", T::Utf8, false));
                let pair = T::Struct(vec![key, field("value", value)].into());
                T::Map(Arc::new(Field::new("entries", pair, false)), false)
            });
            prop_oneof![2 => fields(inner, 1..5).prop_map(|f| T::Struct(f.into())), 2 => item, 1 => map]
        })
        .boxed()
}

fn field(name: &str, data_type: T) -> FieldRef {
    Arc::new(Field::new(name, data_type, true))
}

const NAMES: [&str; 12] =
    ["a", "b", "n", "ts", "user", "é\"\\", "", "a longer name", "status_code", "x.y", "A", "key"];

fn fields(types: BoxedStrategy<T>, count: std::ops::Range<usize>) -> BoxedStrategy<Vec<FieldRef>> {
    let names = prop::sample::subsequence(NAMES.to_vec(), count).prop_shuffle();
    (names, prop::collection::vec(types, NAMES.len()))
        .prop_map(|(names, types)| {
            names.into_iter().zip(types).map(|(name, t)| field(name, t)).collect()
        })
        .boxed()
}

/// Any JSON.
fn anything() -> BoxedStrategy<Json> {
    let number =
        select(vec!["0", "-1", "1.50", "2e3", "-0.0", "12345678901234567890123", "1E-400"]);
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Boolean),
        number.prop_map(|number| Json::Number(number.to_owned())),
        words().prop_map(Json::Text),
    ]
    .prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::List),
            prop::collection::vec((words(), inner), 0..4).prop_map(Json::Object),
        ]
    })
    .boxed()
}

/// Returns values that a column of the type can mostly hold.
fn fitting(data_type: &T) -> BoxedStrategy<Json> {
    let good = match data_type {
        T::Struct(fields) => members(fields),
        T::List(item) => {
            prop::collection::vec(fitting(item.data_type()), 0..4).prop_map(Json::List).boxed()
        }
        T::Map(entries, _) => {
            let T::Struct(pair) = entries.data_type() else { unreachable!() };
            prop::collection::vec((words(), fitting(pair[1].data_type())), 0..4)
                .prop_map(Json::Object)
                .boxed()
        }
        T::Boolean => prop_oneof![
            4 => any::<bool>().prop_map(Json::Boolean),
            1 => texts(&T::Boolean).prop_map(Json::Text)
        ]
        .boxed(),
        leaf => (texts(leaf), any::<bool>())
            .prop_map(|(text, quoted)| {
                if is_number(&text) && !quoted { Json::Number(text) } else { Json::Text(text) }
            })
            .boxed(),
    };
    prop_oneof![60 => good, 3 => Just(Json::Null), 1 => anything()].boxed()
}

/// Returns whether a text is a JSON number.
fn is_number(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    is_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && is_digits(fraction)
        && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
}

/// Returns an object with some of the fields, some of them twice, and others, in any order.
fn members(fields: &[FieldRef]) -> BoxedStrategy<Json> {
    let one = |field: &FieldRef| (Just(field.name().clone()), fitting(field.data_type())).boxed();
    let wanted: Vec<_> =
        fields.iter().map(|field| prop::option::weighted(0.85, one(field))).collect();
    let again: Vec<_> =
        fields.iter().map(|field| prop::option::weighted(0.04, one(field))).collect();
    let unknown = words().prop_filter("a wanted key", |key| !NAMES.contains(&key.as_str()));
    let others = prop::collection::vec((unknown, anything()), 0..3);
    (wanted, again, others)
        .prop_map(|(wanted, again, others)| {
            wanted.into_iter().chain(again).flatten().chain(others).collect::<Vec<_>>()
        })
        .prop_shuffle()
        .prop_map(Json::Object)
        .boxed()
}

/// Returns a document without objects and arrays in text columns: Arrow refuses them, and here they become
/// their JSON text.
fn without_nested_texts(value: &Json, data_type: &T) -> Json {
    match (data_type, value) {
        (T::Struct(fields), Json::Object(members)) => {
            let member = |(key, value): &(String, Json)| {
                let field = fields.iter().find(|field| field.name() == key);
                let value = match field {
                    Some(field) => without_nested_texts(value, field.data_type()),
                    None => value.clone(),
                };
                (key.clone(), value)
            };
            Json::Object(members.iter().map(member).collect())
        }
        (T::List(item), Json::List(items)) => {
            let items = items.iter().map(|value| without_nested_texts(value, item.data_type()));
            Json::List(items.collect())
        }
        (T::Map(entries, _), Json::Object(members)) => {
            let T::Struct(pair) = entries.data_type() else { unreachable!() };
            let entry = |(key, value): &(String, Json)| {
                (key.clone(), without_nested_texts(value, pair[1].data_type()))
            };
            Json::Object(members.iter().map(entry).collect())
        }
        (
            T::Utf8 | T::Utf8View | T::LargeUtf8 | T::Dictionary(..),
            Json::List(_) | Json::Object(_),
        ) => Json::Null,
        _ => value.clone(),
    }
}

/// Returns a document that Arrow reads as we read this one; one rule per line.
fn for_arrow(value: &Json, data_type: &T) -> Json {
    let refused = || Json::Text(REFUSED.to_owned());
    match (data_type, value) {
        (T::Struct(fields), Json::Object(members)) => {
            let member = |(key, value): &(String, Json)| {
                let field = fields.iter().find(|field| field.name() == key);
                let value = match field {
                    Some(field) => for_arrow(value, field.data_type()),
                    None => value.clone(),
                };
                (key.clone(), value)
            };
            Json::Object(members.iter().map(member).collect())
        }
        (T::List(item), Json::List(items)) => {
            Json::List(items.iter().map(|value| for_arrow(value, item.data_type())).collect())
        }
        (T::Map(entries, _), Json::Object(members)) => {
            let T::Struct(pair) = entries.data_type() else { unreachable!() };
            let entry = |(key, value): &(String, Json)| {
                (key.clone(), for_arrow(value, pair[1].data_type()))
            };
            // If a key comes again, the last entry counts.
            let is_last = |(at, (key, _)): &(usize, &(String, Json))| {
                members.iter().skip(at + 1).all(|(other, _)| other != key)
            };
            let kept = members.iter().enumerate().filter(is_last);
            Json::Object(kept.map(|(_, member)| entry(member)).collect())
        }
        // A Boolean may be in quotes.
        (T::Boolean, Json::Text(text)) if text.eq_ignore_ascii_case("true") => Json::Boolean(true),
        (T::Boolean, Json::Text(text)) if text.eq_ignore_ascii_case("false") => {
            Json::Boolean(false)
        }
        // 1.0 and 1e3 are no integers, and a number out of range is not rounded into it.
        (data_type, Json::Number(text)) if data_type.is_integer() && !is_of(text, data_type) => {
            refused()
        }
        // A number is neither a date nor a time.
        (data_type, Json::Number(_)) if data_type.is_temporal() => refused(),
        (data_type, Json::Text(text)) if !data_type.is_nested() => {
            Json::Text(values::for_arrow(text, data_type))
        }
        // Decimals mean the same in quotes and without.
        (data_type @ (T::Decimal128(..) | T::Decimal256(..)), Json::Number(text)) => {
            Json::Text(values::for_arrow(text, data_type))
        }
        _ => value.clone(),
    }
}

/// Returns whether a text is an integer in a type's range.
fn is_of(text: &str, data_type: &T) -> bool {
    let Ok(number) = text.parse::<i128>() else { return false };
    let bits = 8 * data_type.primitive_width().unwrap() as u32;
    if data_type.is_signed_integer() {
        (-(1i128 << (bits - 1))..1 << (bits - 1)).contains(&number)
    } else {
        (0..1i128 << bits).contains(&number)
    }
}

/// A small pseudorandom generator of choices.
#[derive(Clone)]
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Writes white space occasionally.
    fn blank(&mut self, out: &mut String) {
        if self.below(8) == 0 {
            out.push_str([" ", "\t", "\r", "  "][self.below(4) as usize]);
        }
    }
}

fn write(value: &Json, choices: &mut Choices, out: &mut String) {
    choices.blank(out);
    match value {
        Json::Null => out.push_str("null"),
        Json::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(text) => out.push_str(text),
        Json::Text(text) => write_text(text, choices, out),
        Json::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, choices, out);
            }
            choices.blank(out);
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                choices.blank(out);
                write_text(key, choices, out);
                choices.blank(out);
                out.push(':');
                write(value, choices, out);
            }
            choices.blank(out);
            out.push('}');
        }
    }
    choices.blank(out);
}

fn write_text(text: &str, choices: &mut Choices, out: &mut String) {
    let escapes = choices.below(5) == 0;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Arrow decodes the escaped pair of a character beyond U+1FFFF to another character.
            other if other < ' ' || escapes && other < '\u{20000}' && choices.below(3) == 0 => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Returns Arrow's batches for a text.
fn arrow(schema: &SchemaRef, lax: bool, text: &str) -> Result<Vec<RecordBatch>, ArrowError> {
    arrow_json::ReaderBuilder::new(schema.clone())
        .with_coerce_primitive(true)
        .with_ignore_type_conflicts(lax)
        .build(text.as_bytes())?
        .collect()
}

fn ours(schema: &SchemaRef, options: Options, text: &str) -> DecodedBlocks {
    let columns = schema.fields().iter().cloned().collect();
    let mut decoder = JsonDecoder::new(columns, &[], options).unwrap();
    let mut out = DecodedBlocks::default();
    decoder.decode(text.as_bytes(), &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn documents_are_read_as_arrow_reads_them(
        (fields, documents) in fields(types(), 1..7).prop_flat_map(|fields| {
            let document = prop_oneof![40 => members(&fields), 1 => anything()];
            (Just(fields), prop::collection::vec((document, any::<u64>()), 0..12))
        }),
        lax: bool,
        strict: bool,
        batch_rows in 1usize..20,
    ) {
        let schema = Arc::new(Schema::new(fields));
        let record = T::Struct(schema.fields().clone());
        let (mut text, mut all_for_arrow) = (String::new(), String::new());
        // Arrow stops at the first fault, so each record is a document for it.
        let (mut good, mut bad) = (Vec::new(), 0);
        for (document, seed) in &documents {
            let mut choices = Choices(seed | 1);
            let document = &without_nested_texts(document, &record);
            write(document, &mut choices.clone(), &mut text);
            let start = all_for_arrow.len();
            write(&for_arrow(document, &record), &mut choices, &mut all_for_arrow);
            for out in [&mut text, &mut all_for_arrow] {
                out.push_str(["\n", "\r\n", "\n \n"][(seed % 7 / 3) as usize]);
            }
            // A record that is not an object is always rejected.
            match arrow(&schema, lax, &all_for_arrow[start..]) {
                Ok(batches) if matches!(document, Json::Object(_)) => good.extend(batches),
                _ => bad += 1,
            }
        }
        let options = Options { batch_rows, mismatch_is_null: lax, checks_skipped_values: strict, ..Options::default() };
        let out = ours(&schema, options, &text);
        prop_assert_eq!(out.rejected.len(), bad, "{:?}\n{}\n{}", out.rejected, text, all_for_arrow);
        same(&out.batches, &good)?;
        // The whole text gives the same.
        if bad == 0 {
            let whole = arrow(&schema, lax, &all_for_arrow).unwrap();
            same(&out.batches, &whole)?;
        }
    }
}
