//! Tests of the one order of lists and structs, in every clause and function.

use crate::common::Folder;

/// Lists in their order, the greatest last.
const SORTED_LISTS: [&str; 8] =
    ["[]", "[1]", "[1,2]", "[1,2,0]", "[1,null]", "[2]", "[null,1]", "[null,null]"];

fn write_lists(folder: &Folder) {
    // The file has them in another order.
    let order = [5, 2, 7, 0, 3, 6, 1, 4];
    let rows: String = order
        .iter()
        .map(|at| format!("{{\"place\":{at},\"x\":{0},\"s\":{{\"l\":{0}}}}}\n", SORTED_LISTS[*at]))
        .collect();
    folder.write("lists.json", &rows);
}

#[test]
fn lists_and_structs_have_one_order_in_every_clause() {
    let folder = Folder::new();
    write_lists(&folder);
    let upwards: Vec<String> = (0..SORTED_LISTS.len()).map(|place| place.to_string()).collect();
    let downwards: Vec<String> = upwards.iter().rev().cloned().collect();
    for column in ["x", "s"] {
        for (sql, expected) in [
            (format!("SELECT place FROM '$/lists.json' ORDER BY {column}"), &upwards),
            (format!("SELECT place FROM '$/lists.json' ORDER BY {column} DESC"), &downwards),
            (
                format!(
                    "SELECT rank() OVER (ORDER BY {column}) - 1 FROM '$/lists.json' ORDER BY place"
                ),
                &upwards,
            ),
            (
                format!(
                    "SELECT count(*) FROM '$/lists.json' a JOIN '$/lists.json' b \
                     ON b.{column} < a.{column} OR a.place = 0 AND b.place < 0 \
                     GROUP BY a.place ORDER BY a.place"
                ),
                &upwards[1..].to_vec(),
            ),
        ] {
            assert_eq!(&folder.run_sql(&sql).rows().concat(), expected, "{sql}");
        }
        let sql = format!(
            "SELECT (SELECT max(place) FROM '$/lists.json' b WHERE b.{column} = m) AS most, \
                    (SELECT max(place) FROM '$/lists.json' b WHERE b.{column} = n) AS least \
             FROM (SELECT max({column}) AS m, min({column}) AS n FROM '$/lists.json')"
        );
        assert_eq!(folder.run_sql(&sql).rows(), [["7", "0"]], "{sql}");
        let sql = format!(
            "SELECT DISTINCT max({column}) OVER () = (SELECT {column} FROM '$/lists.json' WHERE \
             place = 7) FROM '$/lists.json'"
        );
        assert_eq!(folder.run_sql(&sql).rows(), [["true"]], "{sql}");
        let sql = format!(
            "SELECT DISTINCT ON (place > 3) place FROM '$/lists.json' ORDER BY place > 3, {column} DESC"
        );
        assert_eq!(folder.run_sql(&sql).sorted_rows().concat(), ["3", "7"], "{sql}");
        let sql = format!("SELECT array_agg(place ORDER BY {column}) FROM '$/lists.json'");
        assert_eq!(folder.run_sql(&sql).rows(), [["[0, 1, 2, 3, 4, 5, 6, 7]"]], "{sql}");
    }
}

#[test]
fn list_functions_use_the_same_order() {
    let folder = Folder::new();
    let list = format!("[{}]", SORTED_LISTS[1..].join(","));
    let sql = format!(
        "SELECT array_max({list}) = [NULL, NULL], array_min({list}) = [1], \
         array_sort({list}) = {list}, \
         greatest([1, 2], [1, NULL]) = [1, NULL], least([1, 2], NULL, [1, NULL]) = [1, 2], \
         [1, NULL] BETWEEN [1, 9] AND [2]"
    );
    assert_eq!(folder.run_sql(&sql).rows(), [["true"; 6]]);
    let sql = "SELECT array_sort([2, NULL, 1]), list_sort(['b', NULL, 'a'], 'asc'), \
               array_sort([2, NULL, 1], 'DESC'), array_sort([2, NULL, 1], 'ASC', 'NULLS FIRST'), \
               array_sort([[2], NULL, [1]])";
    let expected = ["[1, 2, ∅]", "[a, b, ∅]", "[2, 1, ∅]", "[∅, 1, 2]", "[[1], [2], ∅]"];
    assert_eq!(folder.run_sql(sql).rows(), [expected]);
}

/// DataFusion's rule for the fields of structs loses its column above a join.
#[test]
fn struct_fields_are_accessible_above_a_join() {
    let folder = Folder::new();
    folder.write("t.json", "{\"word\":\"a\",\"record\":{\"b\":\"ab\"},\"z\":1}\n");
    let sql = "SELECT a.z FROM '$/t.json' a RIGHT JOIN '$/t.json' b \
               ON (a.word = b.word AND CAST(NULL AS BOOLEAN)) WHERE a.record['b'] LIKE 'a%'";
    assert!(folder.run_sql(sql).rows().is_empty());
    let sql = sql.replace("CAST(NULL AS BOOLEAN)", "true");
    assert_eq!(folder.run_sql(&sql).rows(), [["1"]]);
}

#[test]
fn unnested_rows_are_not_unique_by_group_key() {
    let folder = Folder::new();
    folder.write("u.csv", "k,v\n1,3\n1,1\n1,3\n2,5\n2,4\n");
    let aliased = "(SELECT k AS kk, unnest(collect(v, 3)) AS u FROM '$/u.csv' GROUP BY k)";
    let of_aliased = |sql: &str| folder.run_sql(&sql.replace("LISTS", aliased)).rows();
    let sorted = [["1", "1"], ["1", "3"], ["1", "3"], ["2", "4"], ["2", "5"]];
    assert_eq!(of_aliased("SELECT kk, u FROM LISTS ORDER BY kk, u"), sorted);
    assert_eq!(
        of_aliased("SELECT count(*) FROM LISTS AS a JOIN LISTS AS b ON a.kk = b.kk"),
        [["13"]]
    );
    let left = "SELECT count(*) FROM '$/u.csv' AS t LEFT JOIN LISTS AS q ON t.k = q.kk";
    assert_eq!(of_aliased(left), [["13"]]);
    let flat =
        "SELECT k % 3 AS kk, unnest(array_agg(v)) AS u FROM '$/u.csv' GROUP BY k ORDER BY 1, 2";
    assert_eq!(of_aliased(flat), sorted);
    let numbered = "SELECT n, unnest([3, 1, 2]) AS u FROM (SELECT row_number() OVER (ORDER BY v) AS n \
        FROM '$/u.csv' WHERE k = 2) ORDER BY n, u";
    let expected = [["1", "1"], ["1", "2"], ["1", "3"], ["2", "1"], ["2", "2"], ["2", "3"]];
    assert_eq!(of_aliased(numbered), expected);
    let lists = "(SELECT k, unnest(collect(v, 3)) AS u FROM '$/u.csv' GROUP BY k)";
    let asked = |sql: &str| folder.run_sql(&sql.replace("LISTS", lists)).rows();
    let rows = [["1", "3"], ["1", "3"], ["1", "1"], ["2", "5"], ["2", "4"]];
    assert_eq!(asked("SELECT k, u FROM LISTS ORDER BY k, u DESC"), rows);
    assert_eq!(asked("SELECT DISTINCT k FROM LISTS ORDER BY k"), [["1"], ["2"]]);
    let counts = "SELECT k, count(*) AS n FROM LISTS GROUP BY k, u ORDER BY k, n";
    assert_eq!(asked(counts), [["1", "1"], ["1", "2"], ["2", "1"], ["2", "1"]]);
    let distinct = "SELECT k, count(DISTINCT u) AS n FROM LISTS GROUP BY k ORDER BY k";
    assert_eq!(asked(distinct), [["1", "2"], ["2", "2"]]);
    let with = "WITH x AS LISTS SELECT k, count(DISTINCT u) AS n FROM x GROUP BY k ORDER BY k";
    assert_eq!(asked(with), [["1", "2"], ["2", "2"]]);
    let within = "SELECT count(*) FROM LISTS AS a WHERE a.k IN (SELECT DISTINCT k FROM LISTS AS b)";
    assert_eq!(asked(within), [["5"]]);
    let joined = "SELECT a.k, a.u, b.v FROM LISTS AS a JOIN '$/u.csv' AS b ON a.k = b.k AND a.u = b.v \
        ORDER BY 1, 2, 3";
    assert_eq!(asked(joined).len(), 7);
    let structs = "SELECT k, u.value, u.count FROM (SELECT k, unnest(top_k(v, 2)) AS u \
        FROM '$/u.csv' GROUP BY k) ORDER BY k, u.count, u.value";
    assert_eq!(
        asked(structs),
        [["1", "1", "1"], ["1", "3", "2"], ["2", "4", "1"], ["2", "5", "1"]]
    );
}

#[test]
fn list_has_all_and_any_of_a_null_list_are_null() {
    let folder = Folder::new();
    folder.write("l.json", "{\"id\":1,\"l\":[1,2]}\n{\"id\":2,\"l\":null}\n{\"id\":3,\"l\":[]}\n");
    for (call, expected) in [
        ("array_has_all(l, [1])", ["true", "∅", "false"]),
        ("list_has_all([1, 2], l)", ["true", "∅", "true"]),
        ("array_has_all(l, CAST(NULL AS BIGINT[]))", ["∅", "∅", "∅"]),
        ("array_has_any(l, [1])", ["true", "∅", "false"]),
    ] {
        let rows = folder.run_sql(&format!("SELECT {call} FROM '$/l.json' ORDER BY id")).rows();
        assert_eq!(rows.concat(), expected, "{call}");
    }
    let kept =
        folder.run_sql("SELECT count(*) FROM '$/l.json' WHERE array_has_all(l, [])").single_value();
    assert_eq!(kept, "2");
}

#[test]
fn list_lengths_and_positions_are_signed() {
    let folder = Folder::new();
    folder.write("l.json", "{\"l\":[\"a\",\"b\"]}\n{\"l\":[]}\n");
    let sql = "SELECT l[len(l)], len(l) - 5, length(l) - 5, array_position(l, 'b') - 5, \
               array_positions(l, 'b'), typeof(cardinality(l)), typeof(array_ndims(l)) FROM '$/l.json'";
    let found: Vec<String> = folder.run_sql(sql).rows().iter().map(|row| row.join("|")).collect();
    assert_eq!(found, ["b|-3|-3|-3|[2]|BIGINT|BIGINT", "∅|-5|-5|∅|[]|BIGINT|BIGINT"]);
}
