//! Tests of `glob('logs/*.csv')`, which returns the names of files as rows.

use tidemill_engine::{Query, QueryPlan};

use crate::common::{Folder, collect_answer, query, settings, string_rows};

fn folder() -> Folder {
    let folder = Folder::new();
    for name in ["b.csv", "a.csv", "sub/c.csv", "sub/d.txt", "e [1].csv"] {
        folder.write(name, "x\n1\n");
    }
    folder
}

#[test]
fn glob_lists_files_like_a_source() {
    let folder = folder();
    let listed = |sql: &str| -> Vec<String> {
        let found = folder.run_sql(sql).rows().concat();
        let root = format!("{}/", folder.path().display());
        found.iter().map(|path| path.strip_prefix(&root).unwrap_or(path).to_owned()).collect()
    };
    for (sql, expected) in [
        ("FROM glob('$/*.csv')", &["a.csv", "b.csv", "e [1].csv"][..]),
        ("SELECT * FROM glob('$/**/*.csv')", &["a.csv", "b.csv", "e [1].csv", "sub/c.csv"]),
        ("SELECT file FROM glob('$/{b,a}.csv')", &["a.csv", "b.csv"]),
        (
            "SELECT g.file FROM glob(['$/b*', '$/sub/*', '$/b.csv']) AS g",
            &["b.csv", "sub/c.csv", "sub/d.txt"],
        ),
        ("FROM glob('$/sub')", &["sub/c.csv", "sub/d.txt"]),
        ("SELECT f FROM glob('$/e [1].csv') AS g(f)", &["e [1].csv"]),
        ("SELECT glob.file FROM glob('$/none*')", &[]),
        ("SELECT file FROM glob('$/none/a.csv')", &[]),
        ("SELECT count(*) FROM glob('$/*') WHERE file LIKE '%.csv'", &["3"]),
        (
            "SELECT file FROM glob('$/*.csv') g JOIN (SELECT DISTINCT filename FROM '$/[ab].csv') r \
             ON r.filename = g.file ORDER BY file DESC",
            &["b.csv", "a.csv"],
        ),
        ("SELECT file FROM glob('$/*.csv') USING SAMPLE 2 ROWS ORDER BY 1 LIMIT 0", &[]),
        ("SELECT count(*) FROM (SELECT * FROM glob('$/*.csv') USING SAMPLE 2 ROWS)", &["2"]),
    ] {
        assert_eq!(listed(sql), expected, "{sql}");
    }
    let described = folder.run_sql("DESCRIBE SELECT * FROM glob('$/*.csv')").rows();
    assert_eq!(described, string_rows(&[&["file", "TEXT", "YES"]]));
    // The schema of files does not apply to their names.
    let query = Query {
        schema: Some("x BIGINT".into()),
        ..query(folder.substitute_path("FROM glob('$/a*')"))
    };
    let rows = QueryPlan::new(&query, &settings())
        .and_then(QueryPlan::run)
        .and_then(collect_answer)
        .unwrap()
        .rows();
    assert_eq!(rows, string_rows(&[&[&folder.substitute_path("$/a.csv")]]));
}

#[test]
fn glob_refuses_invalid_patterns() {
    let folder = folder();
    for sql in
        ["FROM glob()", "FROM glob(1)", "FROM glob('a', 'b')", "FROM glob(a)", "FROM glob([])"]
    {
        let message = folder.sql_error(sql);
        assert!(message.starts_with("`glob(") && message.contains("hint: it takes"), "{message}");
    }
}
