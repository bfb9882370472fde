//! Tests of schema resolution between a reader's schema and a writer's data. `fuzz/src/avro.rs` compares it
//! with Avro's on generated schemas.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_rowfile::{
    Error, ReadOptions, Reader, RowDecodePlan, Schema, StringLayout, WriteOptions, Writer,
};

fn schema(fields: &Value) -> Schema {
    Schema::parse(&json!({ "fields": fields }).to_string()).unwrap()
}

fn file(fields: &Value, rows: &[Value]) -> Reader<Vec<u8>> {
    let options = WriteOptions { block_bytes: 60, ..WriteOptions::default() };
    let mut writer = Writer::new(Vec::new(), &schema(fields), options).unwrap();
    rows.iter().for_each(|row| writer.write_row(row).unwrap());
    Reader::new(writer.finish().unwrap(), "test.rows").unwrap()
}

fn read(file: &Reader<Vec<u8>>, reader: &Value) -> Result<Vec<Value>, Error> {
    let schema = Some(Arc::new(schema(reader).to_arrow(StringLayout::View)));
    file.read_rows_as(&ReadOptions { schema, ..ReadOptions::default() })?.collect()
}

/// Reads one field `x` of a type as another type, and checks the value or the error.
fn check(writer: Value, value: Value, reader: Value, expected: Result<Value, &str>) {
    let field = |kind: &Value| {
        let mut field = json!({"name": "x"});
        let kind = if kind.is_object() && kind.get("type").is_some() {
            kind.clone()
        } else {
            json!({ "type": kind })
        };
        field.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        json!([field])
    };
    let found = read(&file(&field(&writer), &[json!({"x": value})]), &field(&reader));
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, [json!({"x": expected})]),
        (Err(error), Err(expected)) => {
            let error = error.to_string();
            assert!(error.contains(expected), "{writer} as {reader}: {error}");
        }
        (found, expected) => panic!("{writer} as {reader}: {found:?}, expected {expected:?}"),
    }
}

#[test]
fn types_widen_and_do_not_narrow() {
    check(json!("date"), json!(19_000), json!("date64"), Ok(json!(1_641_600_000_000_i64)));
    let no = |reason| Err(reason);
    for (from, to) in [
        ("int8", "int16"),
        ("int16", "int32"),
        ("int32", "int64"),
        ("int8", "int64"),
        ("uint8", "uint64"),
        ("uint8", "int16"),
        ("uint32", "int64"),
        ("int64", "int64"),
    ] {
        check(json!(from), json!(7), json!(to), Ok(json!(7)));
        if from != to {
            check(json!(to), json!(7), json!(from), no("types only widen, never narrow"));
        }
    }
    check(json!("int8"), json!(-128), json!("int64"), Ok(json!(-128)));
    check(json!("uint64"), json!(u64::MAX), json!("int64"), no("the data has uint64"));
    check(json!("int32"), json!(-5), json!("uint64"), no("the data has int32"));
    check(json!("int64"), json!(-5), json!("float32"), Ok(json!(-5.0)));
    check(
        json!("uint64"),
        json!(1_u64 << 63),
        json!("float64"),
        Ok(json!(9_223_372_036_854_775_808.0)),
    );
    check(json!("float32"), json!(0.5), json!("float64"), Ok(json!(0.5)));
    check(json!("float16"), json!(0.5), json!("float64"), Ok(json!(0.5)));
    check(json!("float64"), json!(0.5), json!("float32"), no("the data has float64"));
    check(json!("string"), json!("größe"), json!("string"), Ok(json!("größe")));
    check(json!("boolean"), json!(true), json!("int32"), no("the data has boolean"));
}

#[test]
fn dates_widen_to_timestamps_and_decimals_in_precision() {
    let us = json!({"timestamp": {"unit": "us", "zone": "UTC"}});
    check(json!("date"), json!(2), us.clone(), Ok(json!(172_800_000_000_i64)));
    check(json!("date"), json!(-1), json!({"timestamp": {"unit": "s"}}), Ok(json!(-86_400)));
    check(json!("date"), json!(200_000_000), us.clone(), Err("row 0, column `x`: day 200000000"));
    check(
        us,
        json!(5),
        json!({"timestamp": {"unit": "ms", "zone": "UTC"}}),
        Err("units and zones"),
    );
    let decimal = |bits, precision, scale| json!({"decimal": {"bits": bits, "precision": precision, "scale": scale}});
    check(decimal(32, 5, 2), json!("-1.50"), decimal(128, 20, 2), Ok(json!("-1.50")));
    check(
        decimal(128, 38, 2),
        json!("-123456789012345678901234567890.12"),
        decimal(256, 60, 2),
        Ok(json!("-123456789012345678901234567890.12")),
    );
    check(decimal(64, 10, 2), json!("1.50"), decimal(64, 10, 3), Err("the scale must be the same"));
}

#[test]
fn an_unknown_symbol_takes_the_default() {
    let old = json!({"enum": {"symbols": ["a", "b", "c"]}});
    let new = json!({"enum": {"symbols": ["c", "other"], "default": "other"}});
    check(old.clone(), json!("c"), new.clone(), Ok(json!("c")));
    check(old.clone(), json!("a"), new, Ok(json!("other")));
    let strict = json!({"enum": {"symbols": ["c"]}});
    check(old.clone(), json!("c"), strict.clone(), Ok(json!("c")));
    check(old.clone(), json!("a"), strict, Err("row 0, column `x`: `a` is no symbol"));
    check(old, json!("b"), json!("string"), Ok(json!("b")));
}

#[test]
fn nullability_is_checked_by_value() {
    let rows: Vec<Value> = (0..100)
        .map(|row| if row == 77 { json!({"x": null}) } else { json!({"x": row}) })
        .collect();
    let file = file(&json!([{"name": "x", "type": "int64", "nullable": true}]), &rows);
    let error = read(&file, &json!([{"name": "x", "type": "int64"}])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`test.rows`: row 77, column `x`: it is null, which the reader's schema does not allow"
    );
}

#[test]
fn required_field_of_a_null_struct_is_accepted() {
    let kind = |nullable| {
        json!([{"name": "s", "nullable": true, "type": {"struct": [
        {"name": "t", "type": {"struct": [
            {"name": "e", "nullable": nullable, "type": {"enum": {"symbols": ["a"]}}},
            {"name": "n", "nullable": nullable, "type": "date"}]}}]}}])
    };
    let rows = [json!({"s": null}), json!({"s": {"t": {"e": "a", "n": 3}}})];
    let found = read(&file(&kind(true), &rows), &kind(false)).unwrap();
    assert_eq!(found, rows);
}

#[test]
fn a_field_is_found_by_its_aliases_and_a_missing_one_takes_its_default() {
    let old = json!([
        {"name": "usr", "type": "string"},
        {"name": "dropped", "type": {"list": {"name": "item", "type": "string"}}},
        {"name": "n", "type": "int32"}]);
    let file = file(&old, &[json!({"usr": "ada", "dropped": ["x", "y"], "n": 1})]);
    let new = json!([
        {"name": "n", "type": "int64"},
        {"name": "user", "type": "string", "aliases": ["login", "usr"]},
        {"name": "none", "type": "string", "nullable": true},
        {"name": "price", "type": {"decimal": {"bits": 64, "precision": 9, "scale": 2}}, "default": "-2.5"},
        {"name": "tags", "type": {"list": {"name": "item", "type": "string"}}, "default": ["a", "b"]},
        {"name": "by", "type": {"map": {"key": {"name": "k", "type": "string"},
            "value": {"name": "v", "type": "int8"}}}, "default": {"x": -1}},
        {"name": "at", "type": {"struct": [{"name": "x", "type": "float32"},
            {"name": "y", "type": "uint8", "default": 9}]}, "default": {"x": 0.5}},
        {"name": "level", "type": {"enum": {"symbols": ["low", "high"]}}, "default": "high"}]);
    let expected = json!({
        "n": 1, "user": "ada", "none": null, "price": "-2.50", "tags": ["a", "b"],
        "by": {"x": -1}, "at": {"x": 0.5, "y": 9}, "level": "high"});
    assert_eq!(read(&file, &new).unwrap(), [expected]);
}

#[test]
fn every_conflict_is_listed() {
    let old = schema(&json!([
        {"name": "a", "type": "string"},
        {"name": "s", "type": {"struct": [{"name": "x", "type": "int64"}]}},
        {"name": "l", "type": {"list": {"name": "item", "type": "boolean"}}}]));
    let new = schema(&json!([
        {"name": "a", "type": "int32"},
        {"name": "b", "type": "int32"},
        {"name": "c", "type": "int8", "default": 300},
        {"name": "s", "type": {"struct": [{"name": "x", "type": "int32"}]}},
        {"name": "l", "type": {"list": {"name": "item", "type": "string"}}}]));
    let Err(Error::IncompatibleSchemas(conflicts)) = new.check_can_read(&old) else {
        panic!("it is read")
    };
    let columns: Vec<&str> = conflicts.0.iter().map(|it| it.column.as_str()).collect();
    assert_eq!(columns, ["a", "b", "c", "s.x", "l.item"]);
    assert!(conflicts.to_string().contains(
        "\n  column `s.x`: the data has int64, which is not read as int32; types only widen, never narrow"
    ));
}

#[test]
fn files_before_and_after_promotion_read_with_one_schema() {
    let before = json!([
        {"name": "id", "type": "int64"},
        {"name": "input", "nullable": true, "type": {"struct": [
            {"name": "user", "type": "string"},
            {"name": "page", "type": "int32", "nullable": true},
            {"name": "items", "type": {"list": {"name": "item", "type": "string"}}}]}}]);
    let promoted = schema(&before).promote_struct("input").unwrap();
    let names: Vec<&str> = promoted.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["id", "user", "page", "items"]);
    assert_eq!(promoted.fields[1].aliases, ["input.user"]);

    let old = file(
        &before,
        &[
            json!({"id": 1, "input": {"user": "ada", "page": 3, "items": ["x"]}}),
            json!({"id": 2, "input": null}),
        ],
    );
    let mut writer = Writer::new(Vec::new(), &promoted, WriteOptions::default()).unwrap();
    writer.write_row(&json!({"id": 3, "user": "bob", "page": null, "items": []})).unwrap();
    let new = Reader::new(writer.finish().unwrap(), "new.rows").unwrap();

    let arrow = Arc::new(promoted.to_arrow(StringLayout::View));
    let options = ReadOptions { schema: Some(arrow), ..ReadOptions::default() };
    let rows: Vec<Value> = [&old, &new]
        .into_iter()
        .flat_map(|file| file.read_rows_as(&options).unwrap().map(Result::unwrap))
        .collect();
    assert_eq!(
        rows,
        [
            json!({"id": 1, "user": "ada", "page": 3, "items": ["x"]}),
            json!({"id": 2, "user": null, "page": null, "items": null}),
            json!({"id": 3, "user": "bob", "page": null, "items": []})
        ]
    );
    let error = schema(&json!([
        {"name": "user", "type": "int32"},
        {"name": "input", "type": {"struct": [{"name": "user", "type": "string"}]}}]))
    .promote_struct("input")
    .unwrap_err();
    assert!(error.to_string().contains("its field `user` cannot stand beside it"), "{error}");
}

#[test]
fn statistics_bound_every_block() {
    let fields = json!([
        {"name": "n", "type": "int32"},
        {"name": "s", "type": "string", "nullable": true},
        {"name": "in", "nullable": true, "type": {"struct": [{"name": "f", "type": "float64"}]}}]);
    let rows: Vec<Value> = (0..200)
        .map(|row| {
            json!({
            "n": row - 100, "s": (row % 3 != 0).then(|| format!("{}{row:04}", "ä".repeat(40))),
            "in": (row % 2 == 0).then(|| json!({"f": f64::from(row) / 2.0}))})
        })
        .collect();
    let file = file(&fields, &rows);
    assert!(file.blocks().len() > 5);
    let options = ReadOptions::default();
    let batches: Vec<RecordBatch> = file.read(&options).unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.len(), file.blocks().len());
    for (column, path) in [(0, "n"), (1, "s")] {
        let found = file.column_statistics(path).unwrap();
        for (block, batch) in batches.iter().enumerate() {
            let array = batch.column(column);
            assert_eq!(found.nulls.value(block), array.null_count() as u64);
            let show = |array: &dyn Array, row: usize| {
                use arrow_array::cast::AsArray;
                match array.as_any().downcast_ref::<arrow_array::Int32Array>() {
                    Some(array) => format!("{:010}", array.value(row) + 1000),
                    None => array.as_string_view().value(row).to_owned(),
                }
            };
            let (min, max) = (show(&found.min, block), show(&found.max, block));
            for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
                let value = show(array, row);
                assert!(min <= value && value <= max, "{path}: {min} {value} {max}");
            }
        }
    }
    assert_eq!(file.column_statistics("in.f").unwrap().nulls.len(), file.blocks().len());
    assert!(file.column_statistics("in").is_none() && file.column_statistics("other").is_none());
}

#[test]
fn plan_can_be_used_for_files_with_the_same_schema() {
    let fields = json!([{"name": "n", "type": "int32"}]);
    let (one, two) = (file(&fields, &[json!({"n": 1})]), file(&fields, &[json!({"n": 2})]));
    let arrow = Arc::new(one.schema().to_arrow(StringLayout::View));
    let plan = Arc::new(RowDecodePlan::new(one.schema(), &arrow).unwrap());
    for file in [&one, &two] {
        assert_eq!(file.read_with_plan(plan.clone(), &ReadOptions::default()).unwrap().count(), 1);
    }
    let other = file_of_other();
    assert!(other.read_with_plan(plan, &ReadOptions::default()).is_err());
    let columns = Some(vec!["N".to_owned()]);
    let error = one.read(&ReadOptions { columns, ..ReadOptions::default() }).err().unwrap();
    assert_eq!(error.to_string(), "unknown column `N`; did you mean `n`?\ncolumns: n");
}

fn file_of_other() -> Reader<Vec<u8>> {
    file(&json!([{"name": "m", "type": "int32"}]), &[json!({"m": 1})])
}

/// Any value as JSON; bytes become a list of numbers.
struct JsonRow(Value);

impl<'de> Deserialize<'de> for JsonRow {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Show;
        macro_rules! plain {
            ($($visit:ident: $kind:ty),*) => {
                $(fn $visit<E>(self, value: $kind) -> Result<Value, E> {
                    Ok(json!(value))
                })*
            };
        }
        impl<'de> serde::de::Visitor<'de> for Show {
            type Value = Value;

            plain!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
            plain!(visit_str: &str, visit_bytes: &[u8]);

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_some<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
                JsonRow::deserialize(from).map(|shown| shown.0)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut from: A,
            ) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(JsonRow(item)) = from.next_element()? {
                    items.push(item);
                }
                Ok(items.into())
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut from: A,
            ) -> Result<Value, A::Error> {
                let mut members = serde_json::Map::new();
                while let Some((name, JsonRow(value))) = from.next_entry()? {
                    members.insert(name, value);
                }
                Ok(members.into())
            }
        }
        from.deserialize_any(Show).map(JsonRow)
    }
}

/// Returns the result of a documented case: the row as it is read, or the error.
fn read_outcome(fields: &Value, row: &Value, reader: &Value) -> String {
    let file = file(fields, std::slice::from_ref(row));
    let schema = Arc::new(schema(reader).to_arrow(StringLayout::View));
    let options = ReadOptions { schema: Some(schema), ..ReadOptions::default() };
    let said = |error: Error| {
        let text = error.to_string();
        let reason = match &error {
            Error::IncompatibleSchemas(conflicts) => conflicts.0[0].reason.clone(),
            Error::InvalidValue { reason, .. } => reason.clone(),
            _ => text,
        };
        reason.replace('|', "\\|")
    };
    let rows = match file.read_rows_as::<JsonRow>(&options) {
        Ok(rows) => rows,
        Err(error) => return format!("refused: {}", said(error)),
    };
    match rows.collect::<Result<Vec<JsonRow>, Error>>() {
        Ok(rows) => format!("`{}`", rows[0].0),
        Err(error) => format!("the row is refused: {}", said(error)),
    }
}

#[test]
fn every_documented_case_gives_documented_result() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema-change.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (mut now, mut cases) = (String::new(), 0);
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let json = |cell: &str| serde_json::from_str(cell.trim_matches('`')).ok();
        let parsed = match cells.as_slice() {
            [_, fields, row, reader, _, _] => (json(fields), json(row), json(reader)),
            _ => (None, None, None),
        };
        match parsed {
            (Some(fields), Some(row), Some(reader)) => {
                let found = read_outcome(&fields, &row, &reader);
                now.push_str(&format!("{} | {found} |\n", cells[..5].join(" | ")));
                cases += 1;
            }
            _ => now.push_str(&format!("{line}\n")),
        }
    }
    assert!(cases >= 45, "{cases} cases");
    if std::env::var_os("TIDEMILL_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    } else {
        assert!(page == now, "TIDEMILL_GOLDEN=write rewrites {}:\n{now}", path.display());
    }
}
