//! Tests of functions that return the keys of an object as rows: `json_each`, `struct_entries`,
//! `struct_keys`.

use std::fmt::Write;

use tidemill_engine::{Query, QueryPlan, RunSettings, TurboSettings};

use crate::common::{Folder, collect_answer, query, settings, string_rows};

fn write_files(folder: &Folder) {
    folder.write(
        "u.json",
        "{\"id\":1,\"users\":{\"ann\":{\"age\":3},\"bob\":{\"age\":4,\"city\":\"Ulm\"}}}\n\
         {\"id\":2,\"users\":{\"bob\":{\"age\":5}}}\n{\"id\":3,\"users\":null}\n",
    );
    folder.write(
        "t.csv",
        "id,j\n1,\"{\"\"a\"\": 1, \"\"b\"\": {\"\"c\"\": [2]}}\"\n2,\"[true, null]\"\n3,\n4,{}\n",
    );
}

#[test]
fn json_each_returns_a_row_per_key() {
    let folder = Folder::new();
    write_files(&folder);
    let users = string_rows(&[&["1", "ann", "3"], &["1", "bob", "4"], &["2", "bob", "5"]]);
    for sql in [
        "SELECT t.id, e.key, e.value.age FROM '$/u.json' t, json_each(t.users) AS e ORDER BY t.id, e.key",
        "SELECT id, key, value['age'] FROM '$/u.json', json_each(users) ORDER BY id, key",
        "SELECT id, e.key, e.value['age'] FROM '$/u.json' t CROSS JOIN LATERAL json_each(t.users) e ORDER BY 1, 2",
        "SELECT id, name, u.age FROM '$/u.json' t, LATERAL json_each(t.users) AS e(name, u) ORDER BY 1, 2",
        "SELECT id, key, value.age FROM (SELECT * FROM '$/u.json') t JOIN jsonb_each(t.users) ON true ORDER BY 1, 2",
        "SELECT id, e.key, e.value.age FROM read_json('$/u.json') t, json_each(t.users) AS e ORDER BY 1, 2",
        "SELECT id, x.key, x.value.age FROM (SELECT id, unnest(struct_entries(users)) AS x FROM '$/u.json') \
         WHERE x.value IS NOT NULL ORDER BY 1, 2",
    ] {
        assert_eq!(folder.run_sql(sql).rows(), users, "{sql}");
    }
    for (sql, expected) in [
        (
            "SELECT t.id, e.* FROM '$/t.csv' t, json_each(t.j) AS e ORDER BY id, key",
            string_rows(&[
                &["1", "a", "1", "UBIGINT"],
                &["1", "b", "{\"c\":[2]}", "OBJECT"],
                &["2", "0", "true", "BOOLEAN"],
                &["2", "1", "null", "NULL"],
            ]),
        ),
        ("SELECT count(*) FROM '$/t.csv' t, json_each(t.j) AS e", string_rows(&[&["4"]])),
        (
            "SELECT e.type, count(*) FROM '$/t.csv' t, json_each(t.j) AS e GROUP BY e.type ORDER BY e.type LIMIT 2",
            string_rows(&[&["BOOLEAN", "1"], &["NULL", "1"]]),
        ),
        (
            "SELECT id, e.key FROM '$/t.csv' t LEFT JOIN json_each(t.j) AS e ON true ORDER BY id, key",
            string_rows(&[
                &["1", "a"],
                &["1", "b"],
                &["2", "0"],
                &["2", "1"],
                &["3", "∅"],
                &["4", "∅"],
            ]),
        ),
        ("SELECT t.* FROM '$/t.csv' t, json_each(t.j) AS e WHERE e.key = 'a'", {
            string_rows(&[&["1", "{\"a\": 1, \"b\": {\"c\": [2]}}"]])
        }),
        (
            "SELECT e.key, f.key, f.value FROM '$/t.csv' t, json_each(t.j) AS e, json_each(e.value) AS f \
             WHERE f.key IS NOT NULL AND e.key = 'b' AND t.id = 1",
            string_rows(&[&["b", "c", "[2]"]]),
        ),
        (
            "SELECT key, value FROM '$/t.csv' t, json_each(t.j, '/b') AS e WHERE id = 1",
            string_rows(&[&["c", "[2]"]]),
        ),
        (
            "SELECT key, value, type FROM json_each('{\"a\": 1, \"b\": [2]}') ORDER BY key",
            string_rows(&[&["a", "1", "UBIGINT"], &["b", "[2]", "ARRAY"]]),
        ),
        ("SELECT e.k FROM json_each('[7]') AS e(k)", string_rows(&[&["0"]])),
        (
            "SELECT t.id, e.value FROM '$/t.csv' t JOIN json_each('{\"1\": \"one\"}') e ON e.key = CAST(t.id AS TEXT)",
            string_rows(&[&["1", "\"one\""]]),
        ),
        (
            "SELECT id, map_entries(map(['k'], [id]))[1].value, struct_keys(users) FROM '$/u.json' ORDER BY id LIMIT 1",
            string_rows(&[&["1", "1", "[ann, bob]"]]),
        ),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), expected, "{sql}");
    }
    let answer = folder.run_sql(
        "SELECT e.key, f.key, f.value FROM '$/t.csv' t, json_each(t.j) AS e, json_each(e.value) AS f WHERE t.id = 1",
    );
    assert_eq!(answer.column_names(), ["key", "key_1", "value"]);
    let answer =
        folder.run_sql("SELECT f.key FROM '$/t.csv' t, json_each(t.j) e, json_each(t.j) f");
    assert_eq!(answer.column_names(), ["key"]);
}

#[test]
fn source_columns_may_share_names_with_json_each() {
    let folder = Folder::new();
    folder.write("k.json", "{\"type\":\"x\",\"key\":\"y\",\"m\":{\"a\":1,\"b\":2}}\n");
    let rows =
        folder.run_sql("SELECT t.type, e.value FROM '$/k.json' t, json_each(t.m) AS e ORDER BY 2");
    assert_eq!(rows.rows(), [["x", "1"], ["x", "2"]]);
    let rows =
        folder.run_sql("SELECT t.key, e.k FROM '$/k.json' t, json_each(t.m) AS e(k) ORDER BY 2");
    assert_eq!(rows.rows(), [["y", "a"], ["y", "b"]]);
    let message = folder.sql_error("SELECT t.key, e.key FROM '$/k.json' t, json_each(t.m) AS e");
    assert!(message.contains("`key`") && message.contains("AS e (k, v)"), "{message}");
}

#[test]
fn invalid_json_each_calls_explain_the_error() {
    let folder = Folder::new();
    write_files(&folder);
    for (sql, expected) in [
        (
            "SELECT * FROM json_each('{\"a\":')",
            "is no JSON: the text ends where a value was expected",
        ),
        (
            "SELECT * FROM json_each(5)",
            "`json_entries` takes JSON in a TEXT, a struct, a map or a list",
        ),
        ("SELECT * FROM json_each()", "`json_each` takes other arguments"),
        ("SELECT * FROM json_each('1') AS e(a, b, c, d)", "`json_each` has 3 columns"),
        ("SELECT key FROM '$/u.json', json_each(users) WITH ORDINALITY", "has no WITH ORDINALITY"),
        ("SELECT json_each(j) FROM '$/t.csv'", "unknown function `json_each`"),
        (
            "SELECT key FROM '$/t.csv' t, json_each(t.j) e, json_each(t.j) f",
            "`key` is a column of e and f",
        ),
        (
            "SELECT e.key FROM '$/t.csv' t JOIN '$/u.json' u ON t.id = u.id, json_each(t.j) e",
            "stands beside more than one source",
        ),
        ("SELECT struct_entries(id) FROM '$/t.csv'", "`struct_entries` takes a struct or a map"),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains(expected), "{sql}: {message}");
    }
}

#[test]
fn entries_do_not_depend_on_splits_threads_memory_or_turbo() {
    let folder = Folder::new();
    let mut lines = String::new();
    for id in 0..40_000 {
        let (first, second) = (id % 7, id % 11);
        writeln!(
            lines,
            "{{\"id\":{id},\"m\":{{\"k{first}\":{id},\"n{second}\":1}},\"pad\":\"{id:060}\"}}"
        )
        .unwrap();
    }
    folder.write("m.json", lines);
    let sql = "SELECT e.key, count(*), sum(e.value) FROM '$/m.json' t, json_each(t.m) AS e GROUP BY e.key ORDER BY 1";
    let expected = folder.run_sql(sql).rows();
    assert_eq!(expected.len(), 18);
    assert_eq!(expected[0], ["k0", "5715", "114294285"]);
    for (threads, memory) in [(1, 64 << 20), (3, 32 << 20)] {
        let small = RunSettings { threads, ..RunSettings::new(memory) };
        assert_eq!(folder.run_sql_with(sql, &small).rows(), expected, "{threads}");
    }
    let mut turbo = TurboSettings::default();
    for (option, value) in [("deadline", "1h"), ("split_bytes", "4k"), ("no_intervals", "true")] {
        turbo.set_option(option, value).unwrap();
    }
    let query = Query { turbo: turbo.validate().unwrap(), ..query(folder.substitute_path(sql)) };
    let answer = QueryPlan::new(&query, &settings())
        .and_then(QueryPlan::run)
        .and_then(collect_answer)
        .unwrap();
    let counts = |rows: Vec<Vec<String>>| rows.into_iter().map(|row| row[..3].to_vec());
    assert!(counts(answer.rows()).eq(counts(expected)), "{:?}", answer.rows());
    let of_rows = "SELECT id, e.key FROM '$/m.json' t, json_each(t.m) AS e WHERE id IN (1, 39999)";
    let expected = string_rows(&[&["1", "k1"], &["1", "n1"], &["39999", "k1"], &["39999", "n3"]]);
    assert_eq!(folder.run_sql(of_rows).rows(), expected);
}
