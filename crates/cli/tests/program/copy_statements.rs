//! `COPY (SELECT …) TO 'file'` equals the query with an output.

use crate::TestFolder;

fn write_trips(place: &TestFolder) {
    place.write("trips.csv", "day,who,km\n1,ann,2.5\n1,bob,\n2,eve,4\n");
}

const SQL: &str = "SELECT day, who, km FROM 'trips.csv' WHERE day < 3";

#[test]
fn copy_writes_the_same_files_as_a_query_with_output() {
    let place = TestFolder::new();
    write_trips(&place);
    let cases: [(&str, &[&str], &str); 8] = [
        ("x.csv", &[], ""),
        ("x.parquet", &["--compression", "zstd:9"], "(COMPRESSION zstd, COMPRESSION_LEVEL 9)"),
        ("x.json", &[], "WITH (FORMAT json)"),
        ("x.out", &["--format", "arrow"], "(FORMAT 'arrow')"),
        ("x.csv", &["--no-header"], "(HEADER false)"),
        ("x.tsv", &[], "(DELIMITER '\t', HEADER)"),
        ("{day}/x.csv.gz", &[], "(OVERWRITE_OR_IGNORE)"),
        ("day={day}/data_0.csv", &[], "PARTITION"),
    ];
    for (name, flags, options) in cases {
        let output = format!("flags/{name}");
        let mut words = vec!["query", SQL, "--overwrite", "-o", &output];
        words.extend(flags);
        let said = String::from_utf8(place.run(&words).stderr).unwrap();
        let target = match options {
            "PARTITION" => "'copy' (FORMAT csv, PARTITION_BY (day))".to_owned(),
            options => format!("'copy/{name}' {options}"),
        };
        let copy = place.run(&["query", &format!("COPY ({SQL}) TO {target};")]);
        assert!(copy.status.success() && copy.stdout.is_empty(), "{target}: {copy:?}");
        let copy_said = String::from_utf8(copy.stderr).unwrap();
        assert_eq!(copy_said.replace("copy", "flags"), said, "{target}");
        assert_eq!(place.files("copy"), place.files("flags"), "{target}");
        assert!(!place.files("copy").is_empty());
        std::fs::remove_dir_all(place.path().join("copy")).unwrap();
        std::fs::remove_dir_all(place.path().join("flags")).unwrap();
    }
}

#[test]
fn folders_of_a_partitioned_copy_are_read_as_partition_columns() {
    let place = TestFolder::new();
    write_trips(&place);
    place.run_ok(&["query", "COPY 'trips.csv' TO 'out' (FORMAT parquet, PARTITION_BY (day, who))"]);
    let names = ["day=1/who=ann", "day=1/who=bob", "day=2/who=eve"];
    assert_eq!(place.file_names("out"), names.map(|name| format!("{name}/data_0.parquet")));
    let rows = place.run_ok(&["query", "SELECT day, who, km FROM 'out' ORDER BY who"]);
    assert_eq!(rows, "day,who,km\n1,ann,2.5\n1,bob,\n2,eve,4.0\n");
}

#[test]
fn copy_follows_the_rules_of_outputs() {
    let place = TestFolder::new();
    write_trips(&place);
    let copy = |rest: &str| format!("COPY ({SQL}) TO {rest}");
    assert_eq!(place.run_ok(&["query", &copy("STDOUT")]), place.run_ok(&["query", SQL]));
    place.run_ok(&["query", &copy("'a.csv'")]);
    let says = place.run_failing(1, &["query", &copy("'a.csv'")]);
    assert!(says.starts_with("error: `a.csv` exists already"), "{says}");
    place.run_ok(&["query", &copy("'a.csv' (OVERWRITE)")]);
    place.run_ok(&["query", &copy("'a.csv'"), "--overwrite"]);
    // A failed copy leaves existing files unchanged.
    place.write("bad.csv", "km\n1\nx\n");
    let bad = "COPY (SELECT * FROM 'bad.csv') TO 'a.csv' (OVERWRITE)";
    place.run_failing(1, &["query", bad, "--schema", "km DOUBLE"]);
    assert_eq!(place.read("a.csv"), "day,who,km\n1,ann,2.5\n1,bob,\n2,eve,4.0\n");
    let parameter = place.run_ok(&["query", "COPY (SELECT :x AS x) TO STDOUT", "--param", "x=5"]);
    assert_eq!(parameter, "x\n5\n");
    let plan = place.run_ok(&["query", "--explain", &copy("'b/{day}.csv'")]);
    assert!(plan.ends_with("sink: one csv file for each `day`, `b/{day}.csv`\n"), "{plan}");
    assert!(place.file_names("b").is_empty());
    for (flags, expected) in [
        (&["-o", "b.csv"][..], "COPY names its output itself, and `--output` is beside it"),
        (&["--format", "csv"], "COPY names its output itself, and `--format` is beside it"),
        (&["--compression", "zstd"], "COPY names its output itself, and `--compression` is"),
        (&["--no-header"], "COPY names its output itself, and `--no-header` is beside it"),
        (&["-o", "b.csv", "--explain"], "COPY names its output itself, and `--output` is"),
    ] {
        let copy = copy("'c.csv'");
        let mut words = vec!["query", &copy];
        words.extend(flags);
        let says = place.run_failing(2, &words);
        assert!(says.contains(expected) && says.contains("\nhint: "), "{flags:?}: {says}");
    }
    let says = place.run_failing(2, &["query", "COPY (SELECT nope FROM 'trips.csv') TO 'd.csv'"]);
    assert!(says.contains("unknown column `nope`"), "{says}");
    let says = place.run_failing(2, &["query", "COPY t FROM 'trips.csv'"]);
    assert!(says.contains("COPY … FROM loads a table") && says.contains("\nhint: "), "{says}");
    place.write("job.toml", "source.url = 'trips.csv'\nmap.sql = \"COPY 'trips.csv' TO 'e.csv'\"");
    let says = place.run_failing(2, &["run", "job.toml"]);
    assert!(says.contains("`COPY` is not run here") && says.contains("[sink]"), "{says}");
    assert!(!place.path().join("c.csv").exists() && !place.path().join("d.csv").exists());
}
