//! Tests of `list_reduce` and list comprehensions.

use crate::common::{Folder, string_rows};

fn write_lists(folder: &Folder) {
    folder.write(
        "l.json",
        "{\"id\":1,\"n\":10,\"l\":[1,2,3],\"w\":[\"a\",\"b\"],\"s\":[{\"v\":1.5},{\"v\":2}]}\n\
         {\"id\":2,\"n\":20,\"l\":[],\"w\":[\"c\"],\"s\":[]}\n{\"id\":3,\"n\":30,\"l\":null,\"w\":null,\"s\":null}\n\
         {\"id\":4,\"n\":40,\"l\":[7],\"w\":[\"d\",null,\"e\"],\"s\":[{\"v\":4}]}\n",
    );
}

fn assert_values(folder: &Folder, expression: &str, expected: [&str; 4]) {
    let sql = format!("SELECT {expression} FROM '$/l.json' ORDER BY id");
    assert_eq!(folder.run_sql(&sql).rows().concat(), expected, "{expression}");
}

#[test]
fn lists_are_reduced_item_by_item() {
    let folder = Folder::new();
    write_lists(&folder);
    assert_values(&folder, "list_reduce(l, (a, b) -> a + b)", ["6", "∅", "∅", "7"]);
    assert_values(&folder, "list_reduce(l, (a, b) -> a * 10 + b, 0)", ["123", "0", "∅", "7"]);
    assert_values(&folder, "reduce(l, 5, (a, b) -> a - b)", ["-1", "5", "∅", "-2"]);
    assert_values(&folder, "array_reduce(l, (a, b) -> a + b * n)", ["51", "∅", "∅", "7"]);
    assert_values(&folder, "list_reduce(l, (a, b) -> a + b, 0.5)", ["6.5", "0.5", "∅", "7.5"]);
    assert_values(&folder, "list_reduce(w, (a, b) -> a || b)", ["ab", "c", "∅", "∅"]);
    assert_values(
        &folder,
        "list_reduce(w, (a, b) -> concat(a, '-', b))",
        ["a-b", "c", "∅", "d--e"],
    );
    assert_values(&folder, "list_reduce(s, (a, b) -> a + b.v, 0.0)", ["3.5", "0.0", "∅", "4.0"]);
    assert_values(&folder, "list_reduce(l, lambda a, b: a + b, 1)", ["7", "1", "∅", "8"]);
    assert_values(
        &folder,
        "list_transform(l, lambda x: x + n)",
        ["[11, 12, 13]", "[]", "∅", "[47]"],
    );
    assert_values(&folder, "arrayFold((a, b) -> a + b, l, 1)", ["7", "1", "∅", "8"]);
    assert_values(&folder, "aggregate(l, 1, (a, b) -> a + b)", ["7", "1", "∅", "8"]);
    assert_values(
        &folder,
        "list_reduce(l, (a, b) -> a + list_reduce([b, n], (c, d) -> c * d), 0)",
        ["60", "0", "∅", "280"],
    );
    for (sql, expected) in [
        ("SELECT list_reduce([1.25, 2.5], (a, b) -> a + b)", "3.75"),
        ("SELECT list_reduce([[1], [2, 3]], (a, b) -> list_concat(a, b))", "[1, 2, 3]"),
        ("SELECT list_reduce(list_filter([1, 2, 3], x -> x > 1), (a, b) -> a * b)", "6"),
        ("SELECT sum(list_reduce(l, (a, b) -> a + b)) FROM '$/l.json'", "13"),
        ("SELECT count(*) FROM '$/l.json' WHERE list_reduce(l, (a, b) -> a + b) > 6", "1"),
    ] {
        assert_eq!(folder.run_sql(sql).single_value(), expected, "{sql}");
    }
}

#[test]
fn invalid_reductions_explain_the_error() {
    let folder = Folder::new();
    write_lists(&folder);
    for (sql, expected) in [
        ("SELECT list_reduce(id, (a, b) -> a + b) FROM '$/l.json'", "`list_reduce` takes a list"),
        ("SELECT list_reduce(l) FROM '$/l.json'", "`list_reduce` takes other arguments"),
        ("SELECT list_reduce(l, (a, b) -> [a]) FROM '$/l.json'", "CAST gives it one type"),
        (
            "SELECT list_reduce(s, (a, b) -> b.v) FROM '$/l.json'",
            "a start has the type of the answer",
        ),
        (
            "SELECT list_reduce(l, (a, b, i, j) -> a + b) FROM '$/l.json'",
            "a function of that many parameters",
        ),
        (
            "SELECT list_reduce([9223372036854775807, 1], (a, b) -> a + b)",
            "9223372036854775807 + 1",
        ),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains(expected), "{sql}: {message}");
    }
}

#[test]
fn list_comprehensions_filter_and_transform_lists() {
    let folder = Folder::new();
    write_lists(&folder);
    assert_values(&folder, "[x * 2 FOR x IN l IF x > 1]", ["[4, 6]", "[]", "∅", "[14]"]);
    assert_values(&folder, "[x + n for x in l]", ["[11, 12, 13]", "[]", "∅", "[47]"]);
    assert_values(&folder, "[x.v for x in s if x.v > 1.5]", ["[2.0]", "[]", "∅", "[4.0]"]);
    assert_values(
        &folder,
        "[upper(w) for w in w if w is not null]",
        ["[A, B]", "[C]", "∅", "[D, E]"],
    );
    assert_values(
        &folder,
        "[[y for y in l if y > x] for x in l]",
        ["[[2, 3], [3], []]", "[]", "∅", "[[]]"],
    );
    assert_values(
        &folder,
        "list_sum([x for x in l if if(x > 2, true, false)])",
        ["3", "∅", "∅", "7"],
    );
    let sql = "SELECT l FROM '$/l.json' WHERE len([x FOR x IN l IF x > 2]) = 1 ORDER BY [x FOR x IN l] DESC";
    assert_eq!(folder.run_sql(sql).rows(), string_rows(&[&["[7]"], &["[1, 2, 3]"]]));
    assert_values(
        &folder,
        "[[x, n] for x in l]",
        ["[[1, 10], [2, 10], [3, 10]]", "[]", "∅", "[[7, 40]]"],
    );
    for (written, name) in [
        ("[x*2 for x in l if \"x\" > 1]", "[x * 2 FOR x IN l IF x > 1]"),
        ("[x for x in [y for y in l]]", "[x FOR x IN [y FOR y IN l]]"),
        ("len([x for x in l])", "len([x FOR x IN l])"),
        ("list_transform(l, x -> x + 1)", "list_transform(l, x -> x + 1)"),
        ("sum(list_reduce(l, (a, b) -> a + b))", "sum(list_reduce(l, (a, b) -> a + b))"),
    ] {
        let answer = folder.run_sql(&format!("SELECT {written} FROM '$/l.json'"));
        assert_eq!(answer.column_names(), [name], "{written}");
    }
    assert_values(&folder, "[x * i for x, i in l]", ["[1, 4, 9]", "[]", "∅", "[7]"]);
    assert_values(&folder, "[x + i for x, i in l if i <> 2]", ["[2, 6]", "[]", "∅", "[8]"]);
    assert_values(&folder, "list_reduce(l, (a, b, i) -> a * b + i)", ["15", "∅", "∅", "7"]);
    assert_values(&folder, "list_reduce(l, (a, b, i) -> a * b + i, 10)", ["75", "10", "∅", "71"]);
}

#[test]
fn lambdas_in_join_conditions_reference_both_sides() {
    let folder = Folder::new();
    folder.write("a.json", "{\"k\":1,\"t\":[\"a\",\"b\"]}\n{\"k\":2,\"t\":[]}\n");
    folder.write("b.csv", "k,w\n1,5\n2,6\n");
    for (on, expected) in [
        ("len(list_filter(a.t, x -> x = 'a' AND b.w > 5)) > 0", "1 6"),
        ("len(list_filter(a.t, x -> b.w > 5)) = 2", "1 6"),
        ("a.k = b.k AND list_contains(list_transform(a.t, x -> x || b.w), 'a5')", "1 5"),
    ] {
        let sql = format!("SELECT a.k, b.w FROM '$/a.json' a JOIN '$/b.csv' b ON {on}");
        assert_eq!(folder.run_sql(&sql).rows().concat().join(" "), expected, "{on}");
    }
}
