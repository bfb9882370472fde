//! Tests of typed rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemill_rowfile::{Error, ReadOptions, Reader, Schema, WriteOptions, Writer};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Debug,
    Error,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Place {
    city: Option<String>,
    at: (f64, f64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Event {
    id: u64,
    small: i8,
    ts: i64,
    price: String,
    level: Level,
    body: Vec<u8>,
    tags: Vec<Option<String>>,
    counts: BTreeMap<String, u32>,
    place: Option<Place>,
    initial: char,
}

type Change = fn(&mut serde_json::Value);

const SCHEMA: &str = r#"{"fields": [
    {"name": "id", "type": "uint64"},
    {"name": "small", "type": "int8"},
    {"name": "ts", "type": {"timestamp": {"unit": "us", "zone": "UTC"}}},
    {"name": "price", "type": {"decimal": {"bits": 128, "precision": 20, "scale": 2}}},
    {"name": "level", "type": {"enum": {"symbols": ["debug", "error"]}}},
    {"name": "body", "type": "binary"},
    {"name": "tags", "type": {"list": {"name": "item", "type": "string", "nullable": true}}},
    {"name": "counts", "type": {"map": {"key": {"name": "key", "type": "string"},
                                        "value": {"name": "value", "type": "uint32"}}}},
    {"name": "place", "nullable": true, "type": {"struct": [
        {"name": "city", "type": "string", "nullable": true},
        {"name": "at", "type": {"list": {"name": "item", "type": "float64"}}}]}},
    {"name": "initial", "type": "string"},
    {"name": "later", "type": "int32", "default": 7}
]}"#;

fn event(id: u64) -> Event {
    let some = !id.is_multiple_of(3);
    Event {
        id,
        small: (id % 256) as i8,
        ts: id as i64 * -1_000_003,
        price: format!("{}.{:02}", id, id % 100),
        level: if some { Level::Debug } else { Level::Error },
        body: vec![id as u8; id as usize % 20],
        tags: vec![None, Some(format!("größer als zwölf Zeichen: {id}")), Some(String::new())],
        counts: (0..id as u32 % 4).map(|key| (key.to_string(), key)).collect(),
        place: some.then(|| Place {
            city: id.is_multiple_of(2).then(|| "Köln".into()),
            at: (1.5, id as f64),
        }),
        initial: 'ä',
    }
}

#[test]
fn typed_rows_round_trip() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let options = WriteOptions { block_bytes: 20_000, ..WriteOptions::default() };
    let mut writer = Writer::new(Vec::new(), &schema, options).unwrap();
    let events: Vec<Event> = (0..3000).map(event).collect();
    for event in &events {
        writer.write_row(event).unwrap();
    }
    assert_eq!(writer.row_count(), 3000);
    let reader = Reader::new(writer.finish().unwrap(), "test").unwrap();
    let found: Result<Vec<Event>, Error> =
        reader.read_rows_as(&ReadOptions::default()).unwrap().collect();
    assert_eq!(found.unwrap(), events);

    #[derive(Deserialize)]
    struct Later {
        later: i32,
    }
    let columns = Some(vec!["later".to_owned()]);
    let rows = reader.read_rows_as::<Later>(&ReadOptions { columns, ..ReadOptions::default() });
    assert!(rows.unwrap().all(|row| row.unwrap().later == 7));
}

#[test]
fn invalid_row_is_refused_and_leaves_no_trace() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let mut writer = Writer::new(Vec::new(), &schema, WriteOptions::default()).unwrap();
    writer.write_row(&event(1)).unwrap();
    let mut wrong = |change: Change| {
        let mut row = serde_json::to_value(event(2)).unwrap();
        change(&mut row);
        writer.write_row(&row).unwrap_err().to_string()
    };
    let cases: [(Change, &str); 6] = [
        (|row| row["tiny"] = 1.into(), "unknown field `tiny`; fields: body, counts, id"),
        (|row| row["small"] = 200.into(), "column `small`: expected Int8, found 200"),
        (|row| row["id"] = serde_json::Value::Null, "column `id`: expected UInt64, found null"),
        (|row| row["level"] = "warn".into(), "column `level`: expected one of debug, error"),
        (|row| row["price"] = "1.234".into(), "column `price`: expected Decimal128(20, 2)"),
        (
            |row| {
                row.as_object_mut().unwrap().remove("initial");
            },
            "the row has no field `initial`",
        ),
    ];
    for (change, expected) in cases {
        let found = wrong(change);
        assert!(found.contains(expected), "{found}");
    }
    writer.write_row(&event(3)).unwrap();
    let reader = Reader::new(writer.finish().unwrap(), "test").unwrap();
    let found: Result<Vec<Event>, Error> =
        reader.read_rows_as(&ReadOptions::default()).unwrap().collect();
    assert_eq!(found.unwrap(), [event(1), event(3)]);
}
