//! Tests of JSON fields with an empty name, and of the column names of fields.

use crate::common::Folder;

#[test]
fn field_with_an_empty_name_is_accessible() {
    let folder = Folder::new();
    folder.write(
        "o.json",
        "{\"id\":1,\"o\":{\"\":3,\"a\":{\"\":{\"b\":\"x\"}}}}\n{\"id\":2,\"o\":{\"\":1,\"a\":{\"\":{\"b\":\"y\"}}}}\n\
         {\"id\":3,\"o\":null}\n",
    );
    for (sql, expected) in [
        ("SELECT o[''] FROM '$/o.json' ORDER BY id", vec!["3", "1", "∅"]),
        ("SELECT o.\"\" FROM '$/o.json' ORDER BY id", vec!["3", "1", "∅"]),
        ("SELECT t.o.\"\" AS x FROM '$/o.json' t ORDER BY t.id", vec!["3", "1", "∅"]),
        ("SELECT o.a['']['b'] FROM '$/o.json' ORDER BY id", vec!["x", "y", "∅"]),
        ("SELECT o.a.\"\".b FROM '$/o.json' ORDER BY id", vec!["x", "y", "∅"]),
        ("SELECT id FROM '$/o.json' WHERE o[''] > 2", vec!["1"]),
        ("SELECT id FROM '$/o.json' WHERE o IS NOT NULL ORDER BY o['']", vec!["2", "1"]),
        ("SELECT sum(id) FROM '$/o.json' GROUP BY o[''] HAVING o[''] = 1", vec!["2"]),
        ("SELECT max(o['']) FROM '$/o.json'", vec!["3"]),
        ("SELECT [x.\"\" FOR x IN [o]] FROM '$/o.json' WHERE id = 1", vec!["[3]"]),
    ] {
        assert_eq!(folder.run_sql(sql).rows().concat(), expected, "{sql}");
    }
    let answer = folder.run_sql("SELECT o.* FROM '$/o.json' ORDER BY id LIMIT 1");
    assert_eq!(answer.column_names(), ["", "a"]);
    assert_eq!(answer.rows()[0][0], "3");
    let message = folder.sql_error("SELECT o.a['']['b'][''] FROM '$/o.json'");
    assert!(message.contains("TEXT"), "{message}");
    let message = folder.sql_error("SELECT o.a[''][''] FROM '$/o.json'");
    assert!(message.contains("unknown field ``"), "{message}");
}

#[test]
fn field_columns_are_named_as_written() {
    let folder = Folder::new();
    folder.write("f.json", "{\"d\":{\"json\":{\"a\":1,\"a[b]\":2,\"c d\":3}},\"x[y]\":4}\n");
    for (written, name) in [
        ("d.json.a", "d.json.a"),
        ("d.json.\"a[b]\"", "d.json.\"a[b]\""),
        ("d['json']['a']", "d['json']['a']"),
        ("d.json['a[b]']", "d.json['a[b]']"),
        ("t.d.json.\"c d\"", "d.json.\"c d\""),
        ("\"x[y]\"", "x[y]"),
        ("t.\"x[y]\"", "x[y]"),
        ("d.json.a + 1", "d.json.a + 1"),
        ("abs(d['json']['a'])", "abs(d['json']['a'])"),
    ] {
        let answer = folder.run_sql(&format!("SELECT {written} FROM '$/f.json' t"));
        assert_eq!(answer.column_names(), [name], "{written}");
        // The planner has its own name only for a path with dots alone.
        if !name.starts_with("d.json.") || name.contains(['\'', '+']) {
            let answer =
                folder.run_sql(&format!("SELECT * FROM (SELECT {written} FROM '$/f.json' t)"));
            assert_eq!(answer.column_names(), [name], "a subquery of {written}");
        }
    }
}
