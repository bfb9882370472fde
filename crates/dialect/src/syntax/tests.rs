use std::sync::LazyLock;

use super::*;

fn parse(sql: &str) -> Result<Box<Statement>> {
    match crate::translation::parse_statements(sql).map(|mut all| all.pop()) {
        Ok(Some(statement)) => Ok(Box::new(statement)),
        other => Err(Error::Internal(format!("is not parsed: {other:?}"))),
    }
}

fn parse_unwrapped(sql: &str) -> Box<Statement> {
    parse(sql).unwrap()
}

fn check_sql(sql: &str) -> Result<()> {
    static STATE: LazyLock<SessionState> = LazyLock::new(|| {
        let settings = tidemill_base::RunSettings::new(64 << 20);
        tidemill_sql::session::open_session(64 << 20, &settings, Default::default())
            .unwrap()
            .state()
    });
    let mut statement = parse(sql)?;
    normalize_statement(&mut statement);
    check_statement(&statement, &STATE)
}

/// Checks rows of SQL and the beginning of its refusal; an empty text stands for supported SQL.
fn check_rows(rows: &[(&str, &str)]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(sql, expected)| match (check_sql(sql), *expected) {
            (Ok(()), "") => None,
            (Ok(()), _) => Some(format!("{sql}\nis let through; expected: {expected}")),
            (Err(error @ Error::Usage { .. }), expected)
                if !expected.is_empty() && error.to_string().starts_with(expected) =>
            {
                None
            }
            (Err(error), _) => Some(format!("{sql}\nfound:    {error}\nexpected: {expected}")),
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn clauses_of_a_query_are_honoured_or_refused_by_name() {
    check_rows(&[
        ("SELECT a FROM t WHERE b GROUP BY a HAVING count(*) > 1 ORDER BY a LIMIT 1 OFFSET 2", ""),
        ("SELECT a FROM t OFFSET 2 ROWS", ""),
        ("SELECT a FROM t LIMIT 2, 3", ""),
        ("SELECT a FROM t UNION SELECT a FROM u ORDER BY 1 NULLS FIRST", ""),
        ("SELECT a FROM t UNION ALL BY NAME SELECT a FROM u", ""),
        ("FROM t", ""),
        ("FROM t SELECT a WHERE a > 1", ""),
        ("VALUES (1, 2), (3, 4)", ""),
        ("WITH x(a) AS (SELECT 1) SELECT a FROM x", ""),
        ("FROM t |> WHERE a > 1 |> SELECT a |> ORDER BY a |> LIMIT 1", ""),
        ("FROM t |> AGGREGATE sum(a) AS s GROUP BY b |> EXTEND s * 2 AS d |> AS x", ""),
        (
            "SELECT a FROM t FETCH FIRST 3 ROWS ONLY",
            "`FETCH FIRST 3 ROWS ONLY` is not supported\nhint: write LIMIT 3",
        ),
        ("SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES", "`FETCH FIRST 3 ROWS WITH TIES`"),
        ("SELECT a FROM t FETCH FIRST 3 PERCENT ROWS ONLY", "`FETCH FIRST 3 PERCENT ROWS ONLY`"),
        ("SELECT TOP 3 a FROM t", "`TOP 3` is not supported\nhint: write LIMIT 3"),
        ("SELECT a FROM t FOR UPDATE", "`FOR UPDATE`"),
        ("SELECT a FROM t FOR SHARE NOWAIT", "`FOR SHARE NOWAIT`"),
        ("SELECT a FROM t FOR JSON AUTO", "`FOR JSON`"),
        ("SELECT a FROM t FOR XML AUTO", "`FOR XML`"),
        ("SELECT a FROM t FOR BROWSE", "`FOR BROWSE`"),
        ("SELECT a FROM t SETTINGS max_threads = 1", "`SETTINGS`"),
        ("SELECT a FROM t FORMAT CSV", "`FORMAT CSV`"),
        ("SELECT a FROM t FORMAT NULL", "`FORMAT NULL`"),
        ("SELECT sum(a) EXPORT_STATE FROM t", "`EXPORT_STATE`"),
        ("SELECT a AS export_state FROM t", ""),
        ("SELECT a FROM t LIMIT 1 BY b", "`LIMIT … BY`"),
        ("SELECT a FROM t ORDER BY a WITH FILL FROM 1 TO 2", "`WITH FILL`"),
        ("SELECT a FROM t ORDER BY a INTERPOLATE (a AS 1)", "`INTERPOLATE`"),
        (
            "SELECT a FROM t ORDER BY 'a'",
            "`ORDER BY 'a'` is by a constant text\nhint: a column is named in double quotes or none: ORDER BY \"a\"",
        ),
        ("SELECT a FROM t MINUS SELECT a FROM u", "`MINUS` is not supported\nhint: write EXCEPT"),
        ("SELECT a FROM t INTERSECT BY NAME SELECT a FROM u", "`INTERSECT BY NAME`"),
        ("SELECT * FROM (VALUE (1))", "`VALUE`"),
        ("SELECT 1 UNION TABLE t", "`TABLE t`"),
        (
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 9) SELECT * FROM x",
            "",
        ),
        (
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x LIMIT 5) SELECT * FROM x",
            "`LIMIT in WITH RECURSIVE x`",
        ),
        (
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n FROM x ORDER BY n) SELECT * FROM x",
            "`ORDER BY in WITH RECURSIVE x`",
        ),
        (
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION BY NAME SELECT n FROM x) SELECT * FROM x",
            "`BY NAME in WITH RECURSIVE x`",
        ),
        ("FROM t |> DROP a", "`|> DROP a`"),
        ("FROM t |> SET a = 1", "`|> SET a = 1`"),
        ("FROM t |> RENAME a AS b", "`|> RENAME a AS b`"),
        ("FROM t |> TABLESAMPLE BERNOULLI (10 PERCENT)", "`|> TABLESAMPLE"),
        ("FROM t |> AGGREGATE sum(a) GROUP BY b ASC", "`ASC and DESC in |> AGGREGATE`"),
        ("FROM t |> SELECT sum(a)", "the aggregate function `sum` cannot stand in a |> step"),
    ]);
}

#[test]
fn clauses_of_a_select_are_honoured_or_refused_by_name() {
    check_rows(&[
        ("SELECT ALL a FROM t", ""),
        ("SELECT DISTINCT a FROM t", ""),
        ("SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b", ""),
        ("SELECT a, t.b AS c, t.* EXCEPT (a), * EXCLUDE (a, b) REPLACE (a + 1 AS a) FROM t", ""),
        ("SELECT /*+ PARALLEL(4) */ a FROM t", ""),
        ("SELECT a, sum(b) FROM t GROUP BY ALL", ""),
        ("SELECT a, sum(b) FROM t GROUP BY ROLLUP (a), CUBE (c), GROUPING SETS ((a), ())", ""),
        ("SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY c)", ""),
        ("SELECT a FROM t QUALIFY rank() OVER (ORDER BY a) = 1", ""),
        ("SELECT FROM t", "`SELECT without columns`"),
        ("SELECT a INTO u FROM t", "`SELECT INTO`"),
        ("SELECT * ILIKE 'a%' FROM t", "`* ILIKE 'a%'`"),
        ("SELECT * RENAME (a AS b) FROM t", "`* RENAME (a AS b)`"),
        ("SELECT a AS (b, c) FROM t", "`AS (b, c)`"),
        ("SELECT a FROM t LATERAL VIEW explode(b) x AS y", "`LATERAL VIEW`"),
        ("SELECT a FROM t PREWHERE a > 1", "`PREWHERE` is not supported\nhint: write WHERE"),
        ("SELECT a FROM t START WITH a = 1 CONNECT BY PRIOR a = b", "`START WITH`"),
        ("SELECT a FROM t CONNECT BY PRIOR a = b", "`CONNECT BY`"),
        (
            "SELECT a FROM t GROUP BY a WITH ROLLUP",
            "`WITH ROLLUP` is not supported\nhint: write GROUP BY ROLLUP (a, b)",
        ),
        ("SELECT a FROM t GROUP BY a WITH CUBE", "`WITH CUBE`"),
        ("SELECT a FROM t GROUP BY a WITH TOTALS", "`WITH TOTALS`"),
        ("SELECT a FROM t GROUP BY 'a'", "`GROUP BY 'a'` is by a constant text"),
        ("SELECT a FROM t CLUSTER BY a", "`CLUSTER BY`"),
        ("SELECT a FROM t DISTRIBUTE BY a", "`DISTRIBUTE BY`"),
        ("SELECT a FROM t SORT BY a", "`SORT BY`"),
        ("SELECT sum(a) OVER v FROM t WINDOW w AS (ORDER BY b), v AS w", "`WINDOW v AS w`"),
        ("SELECT sum(a) OVER (w ORDER BY c) FROM t WINDOW w AS (PARTITION BY b)", "`OVER (w …)`"),
        (
            "SELECT a FROM t WINDOW w AS (ORDER BY b) QUALIFY rank() OVER w = 1",
            "`OVER w in QUALIFY`",
        ),
        ("SELECT a FROM t WINDOW w AS (ORDER BY b) ORDER BY sum(a) OVER w", "`OVER w in ORDER BY`"),
        (
            "SELECT (SELECT max(sum(a) OVER w) FROM u WINDOW w AS (ORDER BY b)) FROM t",
            "the window function `sum` cannot stand in an aggregate function",
        ),
        (
            "SELECT (SELECT sum(a) OVER w FROM u WINDOW w AS (ORDER BY b)) FROM t",
            "`OVER w in the select list`",
        ),
    ]);
}

#[test]
fn clauses_of_a_table_are_honoured_or_refused_by_name() {
    check_rows(&[
        ("SELECT * FROM 'a.csv' AS a, (SELECT 1) AS b(c), LATERAL (SELECT a.x) AS d", ""),
        (
            "SELECT * FROM t JOIN u ON t.a = u.a LEFT JOIN v USING (a) CROSS JOIN w NATURAL JOIN x",
            "",
        ),
        ("SELECT * FROM t LEFT SEMI JOIN u ON t.a = u.a RIGHT ANTI JOIN v ON t.a = v.a", ""),
        ("SELECT * FROM (t JOIN u ON t.a = u.a) FULL JOIN v ON true", ""),
        ("SELECT * FROM range(1, 10), UNNEST([1, 2]) AS x(a)", ""),
        ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "`TABLESAMPLE`"),
        ("SELECT * FROM (SELECT 1) AS x TABLESAMPLE (10 PERCENT)", "`TABLESAMPLE`"),
        ("SELECT * FROM t SAMPLE (10)", "`TABLESAMPLE`"),
        ("SELECT * FROM t PARTITION (p0, p1)", "`PARTITION (p0, p1)`"),
        ("SELECT * FROM t WITH (NOLOCK)", "`WITH (NOLOCK)`"),
        ("SELECT * FROM t AS x(a BIGINT)", "`x(a BIGINT)`"),
        ("SELECT * FROM range(1, 10) WITH ORDINALITY", "`WITH ORDINALITY`"),
        ("SELECT * FROM UNNEST([1]) WITH ORDINALITY", "`WITH ORDINALITY`"),
        ("SELECT * FROM UNNEST([1]) WITH OFFSET", "`WITH OFFSET`"),
        ("SELECT * FROM LATERAL range(start => 1, stop => 2)", "`start => 1 in range(…)`"),
        ("SELECT * FROM range(stop => 2)", "`stop => 2 in range(…)`"),
        ("SELECT * FROM TABLE(f(1))", "`TABLE (…)`"),
        ("SELECT * FROM t PIVOT (sum(a) FOR b IN ('x'))", "`PIVOT`"),
        ("SELECT * FROM t UNPIVOT (a FOR b IN (c, d))", "`UNPIVOT`"),
        ("SELECT * FROM t SEMI JOIN u ON t.a = u.a", "`SEMI JOIN`"),
        ("SELECT * FROM t ANTI JOIN u ON t.a = u.a", "`ANTI JOIN`"),
        ("SELECT * FROM t CROSS APPLY u", "`CROSS APPLY`"),
        ("SELECT * FROM t OUTER APPLY u", "`OUTER APPLY`"),
        ("SELECT * FROM t ARRAY JOIN b", "`ARRAY JOIN`"),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS true)", "`MATCH_RECOGNIZE`"),
    ]);
}

#[test]
fn function_clauses_are_honoured_or_refused_by_name() {
    check_rows(&[
        ("SELECT count(*), count(DISTINCT a), count(ALL a), sum(a) FILTER (WHERE b) FROM t", ""),
        ("SELECT array_agg(DISTINCT a ORDER BY a), string_agg(a, ',' ORDER BY b) FROM t", ""),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t", ""),
        ("SELECT percentile_cont(a, 0.5 ORDER BY a) FROM t", ""),
        ("SELECT first_value(a ORDER BY b) IGNORE NULLS, lag(a) IGNORE NULLS OVER () FROM t", ""),
        ("SELECT sum(a) FILTER (WHERE b) OVER (ORDER BY c ROWS 2 PRECEDING) FROM t", ""),
        ("SELECT avg(a ORDER BY b) FROM t", "`avg(… ORDER BY …)`"),
        ("SELECT upper(DISTINCT a) FROM t", "`DISTINCT of upper`"),
        ("SELECT upper(a ORDER BY b) FROM t", "`ORDER BY of upper`"),
        ("SELECT upper(a) FILTER (WHERE b) FROM t", "`FILTER of upper`"),
        ("SELECT upper(a) IGNORE NULLS FROM t", "`IGNORE NULLS or RESPECT NULLS of upper`"),
        ("SELECT upper(a IGNORE NULLS) FROM t", "`IGNORE NULLS or RESPECT NULLS of upper`"),
        ("SELECT upper(a) OVER () FROM t", "`OVER of upper`"),
        ("SELECT upper() WITHIN GROUP (ORDER BY a) FROM t", "`WITHIN GROUP of upper`"),
        ("SELECT unnest(a) OVER () FROM t", "`OVER of unnest`"),
        ("SELECT corr(DISTINCT a, b) FROM t", "`corr(DISTINCT …)`"),
        ("SELECT count(DISTINCT *) FROM t", "`count(DISTINCT *)`"),
        ("SELECT count(t.*) FROM t", "`count(t.*)`"),
        ("SELECT sum(*) FROM t", "`sum(*)`"),
        ("SELECT sum(a) IGNORE NULLS OVER () FROM t", "`sum(…) IGNORE NULLS OVER`"),
        (
            "SELECT first_value(a) FILTER (WHERE b) OVER () FROM t",
            "`FILTER of first_value with OVER`",
        ),
        ("SELECT row_number() FILTER (WHERE b) OVER () FROM t", "`FILTER of row_number`"),
        ("SELECT ntile(DISTINCT 4) OVER () FROM t", "`DISTINCT of ntile`"),
        ("SELECT rank() IGNORE NULLS OVER (ORDER BY a) FROM t", "`IGNORE NULLS of rank`"),
        ("SELECT row_number() FROM t", "`row_number` is a window function, and has no OVER"),
        ("SELECT percentile_cont(a, 0.5 ORDER BY b) FROM t", "`percentile_cont(a, … ORDER BY b)`"),
        ("SELECT quantile(0.5)(a) FROM t", "`quantile(0.5)(a)`"),
        ("SELECT array(SELECT 1)", "`array(SELECT …)`"),
        ("SELECT array_agg(a LIMIT 2) FROM t", "`LIMIT in array_agg(…)`"),
        ("SELECT group_concat(a SEPARATOR ',') FROM t", "`SEPARATOR in group_concat(…)`"),
        ("SELECT any_value(a HAVING MAX b) FROM t", "`HAVING in any_value(…)`"),
        ("SELECT listagg(a, ',' ON OVERFLOW ERROR) FROM t", "`ON OVERFLOW in listagg(…)`"),
        ("SELECT unnest(a => b) FROM t", "`a => b in unnest(…)`"),
        ("SELECT unnest(a := b) FROM t", "`a := b in unnest(…)`"),
    ]);
}

#[test]
fn expressions_are_honoured_or_refused_by_name() {
    check_rows(&[
        ("SELECT a.b.c, a['b'], a[1], a[1:2], a::BIGINT, TRY_CAST(a AS DATE), -a, NOT a", ""),
        ("SELECT a IS NOT DISTINCT FROM b, a IS UNKNOWN, a BETWEEN 1 AND 2, a IN (1, 2)", ""),
        ("SELECT a LIKE 'x' ESCAPE '\\', a ILIKE 'x', a SIMILAR TO 'x', a ~ 'x', a = ANY([1])", ""),
        ("SELECT a IN (SELECT b FROM t), EXISTS (SELECT 1), (SELECT 1), a > ALL (SELECT 1)", ""),
        (
            "SELECT extract(year FROM a), trim(BOTH 'x' FROM a), substring(a FROM 1 FOR 2), floor(a)",
            "",
        ),
        ("SELECT CASE a WHEN 1 THEN 2 ELSE 3 END, INTERVAL '1 day', DATE '2026-11-20', (1, 2)", ""),
        ("SELECT [1, 2], {'a': 1}, MAP {'a': 1}, struct(a, 2), overlay(a PLACING 'x' FROM 1)", ""),
        ("SELECT a AT TIME ZONE 'UTC', a || b, a & b, a << 2, X'00', E'\\n', $$x$$", ""),
        ("SELECT a LIKE ANY ('x')", "`LIKE ANY`"),
        ("SELECT a LIKE 'x' ESCAPE '!'", "`ESCAPE '!'`"),
        ("SELECT a SIMILAR TO 'x' ESCAPE '!'", ""),
        ("SELECT a SIMILAR TO 'x' ESCAPE '!!'", "`SIMILAR TO … ESCAPE '!!'`"),
        ("SELECT a RLIKE 'x'", "`RLIKE`"),
        ("SELECT a REGEXP 'x'", "`RLIKE`"),
        ("SELECT a COLLATE \"de\"", "`COLLATE \"de\"`"),
        ("SELECT a IS NORMALIZED", "`IS NORMALIZED`"),
        ("SELECT CONVERT(a, BIGINT)", "`CONVERT`"),
        ("SELECT CAST(a AS DATE FORMAT 'YYYY')", "`CAST … FORMAT 'YYYY'`"),
        ("SELECT a IN UNNEST([1])", "`IN UNNEST`"),
        ("SELECT a AT TIME ZONE b", "`AT TIME ZONE b`"),
        ("SELECT floor(a TO DAY)", "`FLOOR(a TO DAY)`"),
        ("SELECT substr(a)", "`substring(a)` is not supported"),
        ("SELECT ceil(a, 2)", "`CEIL(a, 2)`"),
        ("SELECT trim(a, 'x', 'y')", "`TRIM(a, 'x', 'y')`"),
        ("SELECT INTERVAL '1-2' YEAR TO MONTH", "`INTERVAL '1-2' YEAR TO MONTH`"),
        ("SELECT STRUCT<a BIGINT>(1)", "`STRUCT<a BIGINT>(1)`"),
        ("SELECT a[:2]", "`a slice without both ends`"),
        ("SELECT a XOR b", "`XOR`"),
        ("SELECT 2 ^ 10", "`^`"),
        ("SELECT a -> 'b'", "`->`"),
        ("SELECT a ->> 'b'", "`->>`"),
        ("SELECT a @> b, a <@ b", ""),
        ("SELECT a && b", "`&&`"),
        ("SELECT ~a", "`~`"),
        ("SELECT ?", "`?`"),
        ("SELECT $1", "`$1`"),
        ("SELECT N'x'", "`N'x'`"),
        ("SELECT MATCH (a) AGAINST ('x')", "`MATCH … AGAINST`"),
        ("SELECT a MEMBER OF (b)", "`MEMBER OF`"),
    ]);
}

#[test]
fn types_are_honoured_or_refused_by_name() {
    for data_type in [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "INTEGER",
        "BIGINT",
        "BIGINT UNSIGNED",
        "REAL",
        "FLOAT",
        "DOUBLE",
        "DOUBLE PRECISION",
        "DECIMAL(10, 2)",
        "NUMERIC",
        "TEXT",
        "VARCHAR",
        "CHAR",
        "STRING",
        "BYTEA",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMP(3)",
        "TIMESTAMP WITH TIME ZONE",
        "INTERVAL",
        "BIGINT[]",
        "STRUCT<a BIGINT, b TEXT>",
    ] {
        check_rows(&[(&format!("SELECT CAST(a AS {data_type})"), "")]);
    }
    for data_type in [
        "VARCHAR(3)",
        "CHAR(3)",
        "STRING(3)",
        "INT(11)",
        "FLOAT(53)",
        "DOUBLE(10,2)",
        "TIMESTAMP(2)",
        "TIME(4)",
        "UUID",
        "JSON",
        "BLOB",
        "DATETIME",
        "HUGEINT",
        "INT64",
        "UBIGINT",
        "NVARCHAR(3)",
        "FLOAT64",
        "MEDIUMINT",
        "BIT(3)",
    ] {
        check_rows(&[(
            &format!("SELECT CAST(a AS {data_type})"),
            &format!("`{data_type}` is not supported"),
        )]);
    }
}

#[test]
fn schema_allows_names_types_and_not_null() {
    let schema =
        |text: &str| check_column_list(&parse_unwrapped(&format!("CREATE TABLE t ({text})")));
    for text in ["a BIGINT", "a BIGINT NOT NULL, \"b c\" TEXT NULL, c STRUCT<d INT>[]"] {
        schema(text).unwrap();
    }
    for (text, expected) in [
        ("a BIGINT DEFAULT 5", "`a BIGINT DEFAULT 5`"),
        ("a BIGINT PRIMARY KEY", "`a BIGINT PRIMARY KEY`"),
        ("a BIGINT CHECK (a > 1)", "`a BIGINT CHECK (a > 1)`"),
        ("a BIGINT, UNIQUE (a)", "`(a BIGINT, UNIQUE (a))`"),
        ("a VARCHAR(10)", "`VARCHAR(10)`"),
        ("a BIGINT) WITH (b = 1", "`(a BIGINT) WITH (b = 1)`"),
        ("a BIGINT) AS (SELECT 1", "`(a BIGINT) AS (SELECT 1)`"),
    ] {
        let error = schema(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn misplaced_aggregates_and_windows_are_refused() {
    check_rows(&[
        ("SELECT sum(sum(a)) OVER (ORDER BY max(b)) FROM t GROUP BY c ORDER BY rank() OVER ()", ""),
        ("SELECT a FROM t GROUP BY a HAVING a > (SELECT max(b) FROM t)", ""),
        ("SELECT a FROM t WHERE a = (SELECT max(b) FROM t)", ""),
        (
            "SELECT a FROM t WHERE rank() OVER (ORDER BY a) = 1",
            "the window function `rank` cannot stand in WHERE\nhint: QUALIFY",
        ),
        (
            "SELECT a FROM t WHERE sum(a) > 1",
            "the aggregate function `sum` cannot stand in WHERE\nhint: HAVING",
        ),
        (
            "SELECT * FROM t JOIN u ON rank() OVER () = 1",
            "the window function `rank` cannot stand in JOIN … ON",
        ),
        (
            "SELECT * FROM t JOIN u ON sum(t.a) = 1",
            "the aggregate function `sum` cannot stand in JOIN … ON",
        ),
        (
            "SELECT 1 FROM t GROUP BY sum(a)",
            "the aggregate function `sum` cannot stand in GROUP BY",
        ),
        (
            "SELECT 1 FROM t GROUP BY ROLLUP (rank() OVER ())",
            "the window function `rank` cannot stand in GROUP BY",
        ),
        (
            "SELECT a FROM t GROUP BY a HAVING rank() OVER () = 1",
            "the window function `rank` cannot stand in HAVING",
        ),
        (
            "SELECT sum(sum(a)) FROM t",
            "the aggregate function `sum` cannot stand in an aggregate function",
        ),
        (
            "SELECT sum(rank() OVER ()) FROM t",
            "the window function `rank` cannot stand in an aggregate function",
        ),
        (
            "SELECT sum(rank() OVER ()) OVER () FROM t",
            "the window function `rank` cannot stand in a window function",
        ),
        (
            "SELECT sum(a) OVER (ORDER BY rank() OVER ()) FROM t",
            "the window function `rank` cannot stand in a window",
        ),
        (
            "SELECT sum(a) FILTER (WHERE sum(b) > 1) FROM t",
            "the aggregate function `sum` cannot stand in FILTER",
        ),
        ("SELECT a FROM t LIMIT sum(1)", "the aggregate function `sum` cannot stand in LIMIT"),
        ("VALUES (sum(1))", "the aggregate function `sum` cannot stand in VALUES"),
        (
            "SELECT a FROM t UNION SELECT a FROM u ORDER BY sum(a)",
            "the aggregate function `sum` cannot stand in ORDER BY behind",
        ),
    ]);
}

#[test]
fn from_without_select_selects_all_columns() {
    let completed = |sql: &str| {
        let mut statement = parse_unwrapped(sql);
        normalize_statement(&mut statement);
        statement.to_string()
    };
    assert_eq!(completed("FROM t"), "FROM t SELECT *");
    assert_eq!(completed("SELECT a FROM (FROM t)"), "SELECT a FROM (FROM t SELECT *)");
    assert_eq!(completed("FROM t SELECT a"), "FROM t SELECT a");
}

#[test]
fn replace_is_rewritten_as_except() {
    let rewritten = |sql: &str| {
        let mut statement = parse_unwrapped(sql);
        (rewrite_replace_as_except(&mut statement), statement.to_string())
    };
    let (found, text) = rewritten("SELECT * EXCEPT (c) REPLACE (a + 1 AS a) FROM t");
    assert_eq!((found, text.as_str()), (true, "SELECT * EXCEPT (c, a), a + 1 AS a FROM t"));
    assert!(!rewritten("SELECT * FROM t").0);
}
