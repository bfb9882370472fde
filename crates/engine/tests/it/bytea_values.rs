//! Tests of BYTEA: comparisons, combinations with other values, and the functions that take it.

use crate::common::Folder;

/// `s` is a stored id set, a view as Arrow has it, of the bytes 91 01 05; `b` is a cast, and no view.
fn evaluate_expression(what: &str) -> String {
    let sql =
        format!("SELECT {what} AS x FROM (SELECT id_set(5) AS s), (SELECT '\\x6162'::bytea AS b)");
    Folder::new().run_sql(&sql).single_value()
}

#[test]
fn text_literal_compared_with_bytea_is_bytea() {
    for (condition, expected) in [
        (r"s = '\x910105'", "true"),
        (r"'\x910105' = s", "true"),
        (r"s <> '\x910105'", "false"),
        (r"s < '\x910106'", "true"),
        (r"s >= '\x910106'", "false"),
        (r"s IN ('\x00', '\x910105')", "true"),
        (r"s NOT IN ('\x00', '\x910105')", "false"),
        (r"'\x910105' IN (s, '\x00')", "true"),
        (r"s BETWEEN '\x91' AND '\x92'", "true"),
        (r"s IS DISTINCT FROM '\x910105'", "false"),
        (r"s IS NOT DISTINCT FROM '\x910105'", "true"),
        (r"CASE s WHEN '\x910105' THEN 1 ELSE 2 END", "1"),
        (r"nullif(s, '\x910105') IS NULL", "true"),
        (r"'\x910105' IN (SELECT id_set(5))", "true"),
        // Without hexadecimal digits the text stands for its letters, as in a cast.
        ("b = 'ab'", "true"),
        ("b = 'abc'", "false"),
        ("s = NULL", "∅"),
    ] {
        assert_eq!(evaluate_expression(condition), expected, "{condition}");
    }
}

#[test]
fn comparison_of_text_column_with_bytea_is_an_error() {
    let folder = Folder::new();
    folder.write("t.csv", "t,n\n\\x910105,5\n");
    let from = "FROM (SELECT id_set(n) AS s, min(t) AS t FROM '$/t.csv')";
    for condition in [
        "s = t",
        "t <> s",
        "s IN (t, 'a')",
        "s BETWEEN '\\x00' AND t",
        "s IS DISTINCT FROM t",
        "CASE s WHEN t THEN true END",
        "s IN (SELECT t FROM '$/t.csv')",
    ] {
        let said = folder.sql_error(&format!("SELECT {condition} {from}"));
        let expected = "a BYTEA and a TEXT have nothing in common\nhint: CAST(text AS BYTEA)";
        assert!(said.starts_with(expected), "{condition}: {said}");
    }
    let joined = "SELECT count(*) FROM (SELECT id_set(n) AS s FROM '$/t.csv') JOIN '$/t.csv' AS t ON s = t.t";
    assert!(folder.sql_error(joined).starts_with("a BYTEA and a TEXT have nothing in common"));
    let cast = format!("SELECT s = unhex(substr(t, 3)) {from}");
    assert_eq!(folder.run_sql(&cast).single_value(), "true");
}

#[test]
fn bytea_arrays_of_different_layouts_combine() {
    for (what, expected) in [
        ("coalesce(s, b) = s", "true"),
        ("coalesce(NULL, b, s) = b", "true"),
        ("ifnull(s, b) = s", "true"),
        ("nvl(b, s) = b", "true"),
        ("coalesce(NULL, b) = b", "true"),
        ("[s, b][2] = b", "true"),
        ("[b, NULL][1] = b", "true"),
        ("array_length([b, NULL, s])", "3"),
    ] {
        assert_eq!(evaluate_expression(what), expected, "{what}");
    }
}

#[test]
fn length_functions_count_bytes_of_bytea() {
    for (what, expected) in [
        ("length(s)", "3"),
        ("length(b)", "2"),
        ("length('ä'::bytea)", "2"),
        ("octet_length(s)", "3"),
        ("octet_length('ä'::bytea)", "2"),
        ("bit_length(s)", "24"),
        ("bit_length(b)", "16"),
        ("length(nullif(s, s))", "∅"),
        ("octet_length('ä')", "2"),
        ("bit_length('ä')", "16"),
        ("length('ä')", "1"),
        ("length([s, b])", "2"),
    ] {
        assert_eq!(evaluate_expression(what), expected, "{what}");
    }
    let said = Folder::new().sql_error("SELECT octet_length(5)");
    assert!(said.starts_with("there is no `octet_length(BIGINT)`"), "{said}");
}

#[test]
fn text_functions_refuse_bytea() {
    for (what, expected) in [
        ("left(b, 1)", "left(BYTEA, BIGINT)"),
        ("right(b, 1)", "right(BYTEA, BIGINT)"),
        ("reverse(b)", "reverse(BYTEA)"),
        ("concat(b, 'x')", "concat(BYTEA, TEXT)"),
        ("concat_ws(',', b)", "concat_ws(TEXT, BYTEA)"),
        ("lpad(b, 5)", "lpad(BYTEA, BIGINT)"),
        ("b LIKE 'a%'", "BYTEA LIKE TEXT"),
        ("b NOT ILIKE 'a%'", "BYTEA ILIKE TEXT"),
        ("string_agg(b, ',')", "string_agg(BYTEA, TEXT)"),
        ("string_agg(b, ',') OVER ()", "string_agg(BYTEA, TEXT)"),
        ("upper(b)", "upper(BYTEA)"),
    ] {
        let said =
            Folder::new().sql_error(&format!("SELECT {what} AS x FROM (SELECT 'ab'::bytea AS b)"));
        assert!(said.starts_with(&format!("there is no `{expected}`\nhint: CAST")), "{said}");
    }
    let said = Folder::new().sql_error("SELECT substr(b, 1) FROM (SELECT 'ab'::bytea AS b)");
    let expected = "`substr` does not take an argument of type BYTEA\nhint: CAST";
    assert!(said.starts_with(expected), "{said}");
    // Functions that return or display bytes accept BYTEA.
    for (what, expected) in
        [("concat(b, b) = '\\x61626162'", "true"), ("hex(b)", "6162"), ("encode(b, 'hex')", "6162")]
    {
        assert_eq!(evaluate_expression(what), expected, "{what}");
    }
}
