//! Formats, partial tables and jobs return the same rows.

use std::fs;
use std::process::Stdio;

use crate::TestFolder;

const SQL: &str = "SELECT day, who, km FROM 'trips.csv'";

fn write_trips(place: &TestFolder) {
    place.write("trips.csv", "day,who,km\n1,ann,2.5\n1,\"b\"\"o\"\"b\",NA\n2,\"a,b\",4\n");
}

#[test]
fn every_format_that_is_read_gives_back_the_rows_that_were_written() {
    let place = TestFolder::new();
    write_trips(&place);
    let expected = place.run_ok(&["query", SQL, "--null", "NA"]);
    assert_eq!(expected, "day,who,km\n1,ann,2.5\n1,\"b\"\"o\"\"b\",\n2,\"a,b\",4.0\n");
    for format in [
        "csv", "tsv", "json", "parquet", "arrow", "arrows", "feather", "avro", "rowfile", "csv.gz",
        "tsv.zst", "json.bz2", "jsonl.xz",
    ] {
        let file = format!("copy.{format}");
        assert_eq!(place.run_ok(&["query", SQL, "--null", "NA", "-o", &file]), "");
        let copied = place.run_ok(&["query", &format!("SELECT * FROM '{file}'")]);
        assert_eq!(copied, expected, "{format}");
    }
}

#[test]
fn standard_output_takes_every_format() {
    let place = TestFolder::new();
    write_trips(&place);
    for (format, start) in [
        ("text", &b"day  who      km\n"[..]),
        ("csv", b"day,who,km\n"),
        ("tsv", b"day\twho\tkm\n"),
        ("json", b"{\"day\":1,"),
        ("parquet", b"PAR1"),
        ("arrow", b"\xff\xff\xff\xff"),
        ("avro", b"Obj\x01"),
        ("rowfile", b"TIDEROWS"),
    ] {
        let output = place.run(&["query", SQL, "--null", "NA", "--format", format]);
        assert!(output.status.success(), "{format}");
        assert!(output.stdout.starts_with(start), "{format}: {:?}", output.stdout);
        let says = String::from_utf8(output.stderr).unwrap();
        assert_eq!(says.starts_with("complete: 3 rows"), format == "text", "{format}: {says}");
    }
}

#[test]
fn merged_partial_tables_equal_the_whole_result() {
    let place = TestFolder::new();
    for part in 0..3 {
        let rows = (0..500).map(|i| {
            let n = part * 500 + i;
            format!("{},{},{}\n", n % 7, n * 7919 % 400, f64::from(n) / 8.0)
        });
        place.write(&format!("in/{part}.csv"), format!("k,user,x\n{}", rows.collect::<String>()));
    }
    place.write(
        "job.toml",
        "source.url = 'in/*.csv'\n[tables]\nby = ['k']\nn = 'count()'\nusers = 'unique(user)'\n\
         total = 'sum(x)'\nmid = 'quantile(x, 0.5)'\ntop = 'top_k(user, 3)'\nall = 'collect(x, 4)'",
    );
    let whole = place.run_ok(&["run", "job.toml"]);
    assert_eq!(whole.lines().count(), 8);
    for part in 0..3 {
        let (set, out) = (format!("source.url=in/{part}.csv"), format!("{part}.part"));
        assert_eq!(place.run_ok(&["run", "job.toml", "--set", &set, "--partial", &out]), "");
    }
    assert_eq!(place.run_ok(&["merge", "0.part", "1.part", "2.part"]), whole);
    place.run_ok(&["merge", "0.part", "1.part", "--partial", "01.part"]);
    assert_eq!(place.run_ok(&["merge", "01.part", "2.part"]), whole);
    let says = place.run_failing(1, &["run", "job.toml", "--partial", "0.part"]);
    assert!(says.contains("--overwrite replaces it"), "{says}");
    for words in [&["run", "job.toml", "--partial", "-"], &["merge", "01.part", "--partial", "-"]] {
        let says = place.run_failing(2, words);
        assert!(says.contains("cannot be written to `-`") && says.contains("\nhint: "), "{says}");
    }
    assert!(!place.folder.path().join("work/-").exists());
}

#[test]
fn job_returns_the_rows_of_its_query() {
    let place = TestFolder::new();
    write_trips(&place);
    let job = "[source]\nurl = 'trips.csv'\noptions.null = 'NA'\n[map]\n\
               sql = 'SELECT day, km FROM source'\n[tables]\nby = ['day']\nkm = 'sum(km)'";
    place.write("job.toml", job);
    let by_query = place.run_ok(&[
        "query",
        "SELECT day, sum(km) AS km FROM 'trips.csv' GROUP BY day",
        "--null",
        "NA",
    ]);
    assert_eq!(place.run_ok(&["run", "job.toml"]), by_query);

    let mut from_stdin = place.tidemill(&["run", "-"]);
    let file = fs::File::open(place.path().join("job.toml")).unwrap();
    let output = from_stdin.stdin(Stdio::from(file)).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), by_query);
}

#[test]
fn flags_override_environment_and_environment_overrides_job_file() {
    let place = TestFolder::new();
    place.write("job.toml", "source.url = 'x.csv'\nrun.memory = '100M'\nrun.threads = 3");
    place.write("x.csv", "a\n1\n");
    let budget = |words: &[&str], variable: Option<&str>| {
        let mut command = place.tidemill(&["run", "job.toml", "--dry-run"]);
        command.args(words);
        if let Some(size) = variable {
            command.env("TIDEMILL_MEMORY", size).env("TIDEMILL_THREADS", "2");
        }
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().find(|line| line.starts_with("budget:")).unwrap().to_owned()
    };
    assert_eq!(budget(&[], None), "budget: 105 MB of memory, 3 threads");
    assert_eq!(budget(&[], Some("200MB")), "budget: 200 MB of memory, 2 threads");
    assert_eq!(
        budget(&["--memory", "300MB", "--threads", "1"], Some("200MB")),
        "budget: 300 MB of memory, 1 thread"
    );
}

#[test]
fn coverage_is_written_as_json() {
    let place = TestFolder::new();
    write_trips(&place);
    place.run_ok(&["query", SQL, "--coverage", "coverage.json"]);
    let coverage: serde_json::Value = serde_json::from_str(&place.read("coverage.json")).unwrap();
    assert_eq!(coverage["complete"], true);
    assert_eq!(coverage["rows"]["done"], 3);
    let shown = place.run_ok(&["query", SQL, "-o", "out.csv", "--coverage", "-"]);
    let coverage: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(coverage["rows"]["rejected"], 0);
}

#[test]
fn rejected_records_are_stored_and_reported() {
    let place = TestFolder::new();
    place.write("bad.csv", "x\n1\noops\n3\n");
    let words = ["query", "SELECT sum(x) AS s FROM 'bad.csv'", "--schema", "x BIGINT"];
    place.run_failing(1, &words);
    assert!(!place.has_home_folder("runs"));
    let output = place.run(&[&words[..], &["--max-bad", "1"]].concat());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "s\n4\n");
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(
        says.contains("1 records rejected (kept in ")
            || says.contains("1 record rejected (kept in "),
        "{says}"
    );
    assert!(place.has_home_folder("runs"));
}

#[test]
fn dry_run_explain_schema_and_head_leave_no_files() {
    let place = TestFolder::new();
    write_trips(&place);
    place.write("job.toml", "source.url = 'trips.csv'\nsink.url = 'out/{day}.json'");
    let before = place.file_names(".");
    let explained = place.run_ok(&["run", "job.toml", "--dry-run"]);
    assert!(
        explained.contains("sink: one json file for each `day`, `out/{day}.json`"),
        "{explained}"
    );
    place.run_ok(&["query", SQL, "--explain"]);
    let plan = place.run_ok(&["query", SQL, "--explain", "--format", "json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&plan).unwrap()["path"], "rows");
    place.run_ok(&["schema", "trips.csv"]);
    place.run_ok(&["head", "trips.csv"]);
    place.run_ok(&["--version"]);
    assert_eq!(place.run_ok(&["jobs"]).lines().count(), 1);
    assert_eq!(place.file_names("."), before);
    assert!(!place.has_home_folder(""));
    place.run_ok(&["query", SQL]);
    assert_eq!(place.file_names("."), before);
    assert!(!place.has_home_folder("runs"));
}

#[test]
fn head_skips_malformed_records_with_max_bad() {
    let place = TestFolder::new();
    place.write("bad.csv", "a,b\n1,2\n3\n4,5\n");
    let refused = place.run_failing(1, &["head", "bad.csv", "--rows", "1"]);
    assert!(refused.contains("line 3") && refused.contains("--max-bad"), "{refused}");
    let shown = place.tidemill(&["head", "bad.csv", "--max-bad", "100%"]).output().unwrap();
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), "a,b\n1,2\n4,5\n");
    let said = String::from_utf8(shown.stderr).unwrap();
    assert!(said.contains("1 record rejected"), "{said}");
    assert_eq!(shown.status.code(), Some(0));
    assert_eq!(place.file_names("."), ["bad.csv"]);
    assert!(!place.has_home_folder(""));
}

#[test]
fn sql_comes_from_a_file_or_from_standard_input() {
    let place = TestFolder::new();
    write_trips(&place);
    place.write("q.sql", "SELECT count() AS n\nFROM 'trips.csv' -- all of them\n;\n");
    assert_eq!(place.run_ok(&["query", "--file", "q.sql"]), "n\n3\n");
    let mut command = place.tidemill(&["query", "-"]);
    let file = fs::File::open(place.path().join("q.sql")).unwrap();
    let output = command.stdin(Stdio::from(file)).output().unwrap();
    assert_eq!(output.stdout, b"n\n3\n");
}

#[test]
fn completions_exist_for_every_shell() {
    let place = TestFolder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run_ok(&["completions", shell]);
        assert!(script.contains("max-bad"), "{shell}");
    }
}

#[test]
fn partitioned_output_without_rows_is_reported() {
    let place = TestFolder::new();
    place.write("bad.csv", "a,k\n1,x,3\n2,y,4\n");
    let sql = "SELECT a, k FROM 'bad.csv'";
    let output = place.run(&["query", sql, "--max-bad", "100%", "-o", "out/k={k}/x.csv"]);
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{says}");
    assert!(says.contains("wrote no file: there are no rows for `out/k={k}/x.csv`"), "{says}");
    assert!(says.contains("2 records rejected"), "{says}");
    // A file without columns in its name is written even without rows.
    let output = place.run(&["query", sql, "--max-bad", "100%", "-o", "x.csv"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("wrote `x.csv`: 0 rows"));
}
