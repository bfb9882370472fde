//! The job log's records of runs.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::TestFolder;

const JOB: &str = "name = 'by-day'\nsource.url = 'in.csv'\n\
    map.sql = 'SELECT day, who FROM source WHERE day < 3'\n\
    [tables]\nby = ['day']\nusers = 'unique(who)'\n[sink]\nurl = 'out/{day}.csv'\n";

fn folder_with_job() -> TestFolder {
    let place = TestFolder::new();
    place.write("in.csv", "day,who\n1,ann\n1,bob\n2,ann\n3,cy\n");
    place.write("job.toml", JOB);
    place
}

fn find_step<'a>(run: &'a Value, name: &str) -> &'a Value {
    let steps = run["steps"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("{name} of {run}"))
}

#[test]
fn job_log_records_input_and_output_of_each_step() {
    let place = folder_with_job();
    place.run_ok(&["run", "job.toml"]);
    let jobs = place.job_log_runs();
    assert_eq!(jobs.len(), 1);
    let run = &jobs[0];
    for (key, expected) in [
        ("name", Value::from("by-day")),
        ("verb", "run".into()),
        ("via", "command line".into()),
        ("mapper", "SELECT day, who FROM source WHERE day < 3".into()),
        ("reducer", "by day: users = unique(who)".into()),
        ("sources", vec!["in.csv"].into()),
        ("output", "out/{day}.csv".into()),
        ("outcome", "done".into()),
        ("path", "partial tables".into()),
        ("splits_done", 1.into()),
        ("rejected", 0.into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ] {
        assert_eq!(run[key], expected, "{key}");
    }
    assert_eq!(run["command"][1], "run");
    let bytes = place.read("in.csv").len();
    let (map, tables) = (find_step(run, "map"), find_step(run, "tables"));
    assert_eq!((&map["bytes_in"], &map["rows_in"]), (&bytes.into(), &4.into()));
    assert_eq!((&map["rows_out"], &tables["rows_in"]), (&3.into(), &3.into()));
    assert_eq!(
        (&tables["rows_out"], &find_step(run, "finish")["rows_out"]),
        (&2.into(), &2.into())
    );
    let written: usize = place.files("out").iter().map(|(_, content)| content.len()).sum();
    assert_eq!(find_step(run, "sink")["bytes_out"], written);
    assert!(run["memory_peak_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(run["wall_us"].as_u64().unwrap() > 0);
    let shown = place.run_ok(&["jobs", "show", run["id"].as_str().unwrap()]);
    assert!(shown.contains("tables    by day: users = unique(who)\n"), "{shown}");
}

#[test]
fn job_log_records_every_verb_that_runs() {
    let place = folder_with_job();
    place.run_ok(&["query", "SELECT day, who FROM 'in.csv' WHERE day > 1"]);
    place.run_ok(&["query", "SELECT day FROM 'in.csv' ORDER BY who, day"]);
    place.run_ok(&["query", "SELECT who, count() AS n FROM 'in.csv' GROUP BY who", "-o", "n.csv"]);
    place.run_ok(&["run", "job.toml", "--partial", "a.part"]);
    place.run_ok(&["merge", "a.part", "-o", "a.csv"]);
    place.run_ok(&["merge", "a.part", "--partial", "b.part"]);
    let jobs = place.job_log_runs();
    let steps: Vec<String> = jobs
        .iter()
        .rev()
        .map(|run| {
            assert_eq!(run["outcome"], "done");
            let steps = run["steps"].as_array().unwrap().iter();
            let steps: Vec<&str> = steps.map(|step| step["name"].as_str().unwrap()).collect();
            format!("{}: {}", run["verb"].as_str().unwrap(), steps.join(" "))
        })
        .collect();
    assert_eq!(
        steps,
        [
            "query: map sink",
            "query: plan sink",
            "query: map tables finish sink",
            "run: map tables sink",
            "merge: merge finish sink",
            "merge: merge sink",
        ]
    );
    assert_eq!(jobs[3]["reducer"], "by who (Utf8View); count(Int64(1)) = count of Null");
    let size = place.files(".").iter().find(|(name, _)| name == "a.part").unwrap().1.len();
    assert_eq!(find_step(&jobs[2], "sink")["bytes_out"], size);
    assert_eq!(find_step(&jobs[1], "merge")["bytes_in"], size);
}

#[test]
fn job_log_records_failed_runs_without_credentials() {
    let place = folder_with_job();
    place.run_failing(2, &["query", "SELECT whom FROM 'in.csv'"]);
    for words in [
        &["query", "SELECT 1 FROM 'no://ann:hunter2@nowhere.invalid/x.csv'"][..],
        &["run", "job.toml", "--set", "source.url='no?token=hunter2'"],
    ] {
        assert!(!place.run(words).status.success());
    }
    place.run_ok(&["run", "job.toml"]);
    place.run_failing(1, &["run", "job.toml"]);
    let jobs = place.job_log_runs();
    let errors: Vec<&Value> = jobs.iter().map(|run| &run["error"]).collect();
    assert_eq!(jobs.len(), 5);
    assert_eq!(*errors[4], "unknown column `whom`; did you mean `who`?");
    assert_eq!(*errors[1], Value::Null);
    assert_eq!(*errors[0], "`out/1.csv` exists already, and one other file of this output");
    assert_eq!(jobs[0]["outcome"], "failed");
    assert!(!serde_json::to_string(&jobs).unwrap().contains("hunter2"));
}

#[test]
fn concurrent_processes_lose_no_job_log_records() {
    let place = folder_with_job();
    // A limit so small that several segments are written.
    let limit = |command: &mut std::process::Command| {
        command.env("TIDEMILL_JOB_LOG", "1M").stdout(Stdio::null()).stderr(Stdio::piped());
    };
    let filler = format!("SELECT '{}' AS x", "x".repeat(6000));
    for round in 0..5 {
        let runs: Vec<_> = (0..10)
            .map(|number| {
                let sql = format!("{filler}, {round} AS round, {number} AS number");
                let mut command = place.tidemill(&["query", &sql]);
                limit(&mut command);
                command.spawn().unwrap()
            })
            .collect();
        for run in runs {
            let output = run.wait_with_output().unwrap();
            assert!(output.status.success());
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
    }
    let jobs = place.job_log_runs();
    let mut ends: Vec<String> = jobs
        .iter()
        .map(|run| run["mapper"].as_str().unwrap().rsplit("x, ").next().unwrap().to_owned())
        .collect();
    ends.sort();
    let mut expected: Vec<String> =
        (0..50).map(|run| format!("{} AS round, {} AS number", run / 10, run % 10)).collect();
    expected.sort();
    assert_eq!(ends, expected);
    let segments = fs::read_dir(place.folder.path().join("home/jobs")).unwrap().count();
    assert!(segments > 1, "{segments}");
}

#[test]
fn unwritable_job_log_causes_one_warning_and_no_failure() {
    let place = folder_with_job();
    place.write("home", "a file");
    let inside = place.path().join("home/state");
    for words in [
        &["query", "SELECT count() AS n FROM 'in.csv'"][..],
        &["query", "SELECT count() AS n FROM 'in.csv'", "--max-bad", "1"],
    ] {
        let output = place.tidemill(words).env("TIDEMILL_HOME", &inside).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "n\n4\n");
        let says = String::from_utf8(output.stderr).unwrap();
        assert!(says.starts_with("warning: cannot write to the state folder"), "{says}");
        assert_eq!(says.lines().count(), 1, "{says}");
    }
    // A state folder in which the job log cannot be created.
    let blocked = place.path().join("blocked");
    fs::create_dir(&blocked).unwrap();
    fs::write(blocked.join("jobs"), "a file").unwrap();
    let mut command = place.tidemill(&["run", "job.toml"]);
    let output = command.env("TIDEMILL_HOME", &blocked).output().unwrap();
    assert!(output.status.success());
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(says.starts_with("warning: this run is not in the job log: cannot"), "{says}");
    assert_eq!(place.file_names("out"), ["1.csv", "2.csv"]);
}
