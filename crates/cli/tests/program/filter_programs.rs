//! Programs that filter the bytes of sources and outputs.

use std::fs;
use std::process::Stdio;

use crate::TestFolder;
use crate::interruption::{has_staging_folder, send_signal, wait_for_exit, wait_until};

/// Returns a folder with two files of words and numbers, a few thousand lines each.
fn folder_with_data() -> TestFolder {
    let place = TestFolder::new();
    let lines = |from: u64| -> String {
        (from..from + 4000).map(|n| format!("w{};{n}\n", n % 7)).collect()
    };
    place.write("a.dat", lines(0));
    place.write("b.dat", lines(4000));
    place
}

const JOB: &str = r#"
[source]
url    = "*.dat"
exec   = ["sh", "-c", "echo word,n; tr ';' ','"]
format = "csv"
[tables]
by  = ["word"]
n   = "count()"
sum = "sum(n)"
"#;

fn expected_table() -> String {
    let mut rows = vec!["word,n,sum".to_owned()];
    for word in 0..7u64 {
        let own: Vec<u64> = (0..8000).filter(|n| n % 7 == word).collect();
        rows.push(format!("w{word},{},{}", own.len(), own.iter().sum::<u64>()));
    }
    rows.join("\n") + "\n"
}

#[test]
fn source_program_filters_each_file() {
    let place = folder_with_data();
    place.write("job.toml", JOB);
    assert_eq!(place.run_ok(&["run", "job.toml"]), expected_table());
    let sql = "SELECT word, count() AS n, sum(n) AS sum FROM '*.dat' GROUP BY word ORDER BY word";
    let words = ["--source-exec", "sh", "--source-exec", "-c", "--source-exec"];
    let query =
        [&["query", sql][..], &words, &["echo word,n; tr ';' ','", "--source-format", "csv"]];
    assert_eq!(place.run_ok(&query.concat()), expected_table());
    // Compressed files are decompressed first. Without a format, the program's output is read as lines.
    place.write("c.dat", "one\ntwo\n");
    assert!(place.program("gzip").arg("c.dat").status().unwrap().success());
    let lines = ["query", "SELECT line FROM 'c.dat.gz'", "--source-exec", "rev"];
    assert_eq!(place.run_ok(&lines), "line\neno\nowt\n");
    // The program knows the name of its file.
    let sql = "SELECT line, count() AS n FROM '*.dat' GROUP BY line ORDER BY line";
    let script = "cat > /dev/null; echo $TIDEMILL_FILE";
    let named = [&["query", sql][..], &words, &[script]].concat();
    assert_eq!(place.run_ok(&named), "line,n\na.dat,1\nb.dat,1\n");
}

#[test]
fn source_without_url_reads_a_programs_output() {
    let place = TestFolder::new();
    place.write(
        "job.toml",
        "[source]\nexec = ['seq', '100000']\n[map]\nsql = 'SELECT CAST(line AS BIGINT) AS n FROM \
         source'\n[tables]\nn = 'count()'\nsum = 'sum(n)'\n",
    );
    assert_eq!(place.run_ok(&["run", "job.toml"]), "n,sum\n100000,5000050000\n");
    // Only the first rows of an endless program are read.
    place.write("job.toml", "[source]\nexec = ['yes']\n[map]\nsql = 'SELECT line FROM source'\n");
    let job = first_rows_of_endless_job(&place);
    assert_eq!(job, "line\ny\ny\n");
}

/// Returns the first rows of an endless program, through a reader that closes the pipe.
fn first_rows_of_endless_job(place: &TestFolder) -> String {
    use std::io::Read;
    let mut command = place.tidemill(&["run", "job.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = [0; 9];
    child.stdout.take().unwrap().read_exact(&mut text).unwrap();
    let (status, stderr) = wait_for_exit(child);
    assert!(status.success(), "{stderr}");
    String::from_utf8(text.to_vec()).unwrap()
}

#[test]
fn failing_program_fails_the_run_with_its_message() {
    let place = folder_with_data();
    for (exec, status, parts) in [
        (
            "['sh', '-c', 'cat; echo it broke >&2; exit 7']",
            1,
            &["`sh` ended with status 7", "a.dat`", "it broke"][..],
        ),
        ("['no-such-program', '-x']", 2, &["no such program: `no-such-program`"]),
        ("'wc -l'", 2, &["no such program: `wc -l`", "[\"wc\", \"-l\"]"]),
        ("[]", 2, &["`exec` names no program"]),
        ("[1]", 2, &["exec", "list of strings"]),
    ] {
        place.write(
            "job.toml",
            format!("[source]\nurl = '*.dat'\nexec = {exec}\n[tables]\nn = 'count()'\n"),
        );
        let output = place.tidemill(&["run", "job.toml"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    }
    let sink = ["query", "SELECT 1 AS x", "-o", "out.csv", "--sink-exec"];
    for (program, part) in
        [("false", "`false` ended with status 1"), ("no-such", "no such program")]
    {
        let output = place.tidemill(&[&sink[..], &[program]].concat()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(part), "{stderr}");
        assert!(!place.path().join("out.csv").exists());
        assert!(!has_staging_folder(&place, "."));
    }
    let output =
        place.tidemill(&["query", "SELECT 1 AS x", "--sink-exec", "cat"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("pipe it through the program"));
}

#[test]
fn sink_program_filters_each_file() {
    let place = folder_with_data();
    place.write("job.toml", format!("{JOB}\n[sink]\nurl = 'out.csv'\nexec = ['tr', 'w', 'W']\n"));
    place.run_ok(&["run", "job.toml"]);
    assert_eq!(place.read("out.csv"), expected_table().replace('w', "W"));
    // One file per value, each through a program of its own; spooled formats too.
    let sql = "SELECT line, length(line) AS k FROM '*.dat'";
    for (format, program) in
        [("csv", &["gzip", "-9"][..]), ("json", &["gzip"]), ("parquet", &["gzip"])]
    {
        let out = format!("{format}/{{k}}.{format}.gz");
        let mut words =
            vec!["query", sql, "--source-format", "lines", "-o", &out, "--format", format];
        program.iter().for_each(|word| words.extend(["--sink-exec", word]));
        place.run_ok(&words);
        if format != "parquet" {
            let back =
                format!("SELECT count() AS n, count(DISTINCT line) AS d FROM '{format}/*.gz'");
            assert_eq!(place.run_ok(&["query", &back]), "n,d\n8000,8000\n");
        }
        let packed = fs::read(place.path().join(format!("{format}/4.{format}.gz"))).unwrap();
        assert_eq!(packed[..2], [0x1f, 0x8b]);
    }
}

#[test]
fn an_interrupt_ends_a_program_that_hangs() {
    for job in [
        "[source]\nexec = ['sh', '-c', 'touch started; sleep 1000']\n",
        "[source]\nurl = 'a.dat'\n[sink]\nurl = 'out.csv'\nexec = ['sh', '-c', 'touch started; sleep 1000']\n",
        "[source]\nurl = 'a.dat'\n[map]\nsql = 'SELECT line, line AS k FROM source'\n[sink]\nurl = \
         'out/{k}.csv'\nexec = ['sh', '-c', 'touch started; sleep 1000']\n",
    ] {
        let place = folder_with_data();
        place.write("job.toml", job);
        let mut command = place.tidemill(&["run", "job.toml", "--set", "source.format=lines"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let started = place.path().join("started");
        wait_until("the program has started", || started.exists());
        send_signal(&child, libc::SIGINT);
        let (status, stderr) = wait_for_exit(child);
        assert_eq!((status.code(), stderr.as_str()), (Some(130), "error: interrupted\n"), "{job}");
        assert!(!place.path().join("out.csv").exists() && !has_staging_folder(&place, "."));
        assert_eq!(place.file_names("out"), Vec::<String>::new());
    }
}

#[test]
fn interrupt_ends_a_hanging_program_in_turbo_mode() {
    let place = folder_with_data();
    let script = "touch started; head -c 3000; sleep 1000";
    let exec = ["--source-exec", "sh", "--source-exec", "-c", "--source-exec", script];
    for patience in [&["--drop", "20%"][..], &["--deadline", "1h"], &["--sample", "50%"]] {
        let started = place.path().join("started");
        let _ = fs::remove_file(&started);
        let sql = "SELECT count() AS n FROM '*.dat'";
        // The columns are inferred from the program's output.
        let words = [&["query", sql, "--source-format", "csv"][..], &exec, patience].concat();
        let mut command = place.tidemill(&words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the program has started", || started.exists());
        send_signal(&child, libc::SIGINT);
        let (status, stderr) = wait_for_exit(child);
        let found = (status.code(), stderr.as_str());
        assert_eq!(found, (Some(130), "error: interrupted\n"), "{patience:?}");
    }
}

#[test]
fn time_of_the_sink_program_counts_towards_the_deadline() {
    let place = folder_with_data();
    let output = place
        .tidemill(&["query", "SELECT count() AS n FROM '*.dat'", "--source-format", "lines"])
        .args(["--deadline", "1s", "-o", "n.csv"])
        .args(["--sink-exec", "sh", "--sink-exec", "-c", "--sink-exec", "sleep 2; cat"])
        .args(["--coverage", "coverage.json"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(" s after the deadline"), "{stderr}");
    let coverage = fs::read_to_string(place.path().join("coverage.json")).unwrap();
    assert!(!coverage.contains("\"late_seconds\": null"), "{coverage}");
}

/// A job whose programs look up words in files that they find by name.
const LOOKUP_JOB: &str = r#"
files = ["geo/names.csv", "tools/look.sh"]
[source]
url    = "*.dat"
exec   = ["sh", "./look.sh"]
format = "csv"
[tables]
by = ["word"]
n  = "count()"
[sink]
url  = "out.csv"
exec = ["sh", "-c", "cat - names.csv"]
"#;

#[test]
fn programs_find_files_by_name_in_their_working_folder() {
    let place = folder_with_data();
    place.write("geo/names.csv", "w0;zero\n");
    // Files that the program leaves behind are removed with its folder.
    let script = "echo word; echo > left; while read line; do case $line in w0*) cut -d ';' -f 2 \
                  names.csv;; *) echo other;; esac; done; test $(ls | wc -l) = 3";
    place.write("tools/look.sh", script);
    place.write("job.toml", LOOKUP_JOB);
    let spilled = place.write("spill/x", "").parent().unwrap().to_owned();
    place.run_ok(&["run", "job.toml", "--spill-dir", "spill"]);
    assert_eq!(place.read("out.csv"), "word,n\nother,6857\nzero,1143\nw0;zero\n");
    assert!(!place.path().join("left").exists());
    assert_eq!(fs::read_dir(&spilled).unwrap().count(), 1);
    // The same with flags; one program is on the path, the other is named by its path.
    let sql = "SELECT word, count() AS n FROM '*.dat' GROUP BY word ORDER BY word";
    place.write("tools/run", format!("#!/bin/sh\n{script}"));
    let run = place.path().join("tools/run");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&run, mode).unwrap();
    let named = ["--source-format", "csv", "--files", "geo/names.csv", "--files", "tools/look.sh"];
    for program in [&["sh", "look.sh"][..], &["tools/run"], &["./tools/run"]] {
        let mut words = [&["query", sql][..], &named].concat();
        program.iter().for_each(|word| words.extend(["--source-exec", word]));
        assert_eq!(place.run_ok(&words), "word,n\nother,6857\nzero,1143\n", "{program:?}");
    }
    let convert = ["convert", "a.dat", "out.json", "--files", "geo/names.csv", "--sink-exec"];
    let script = ["sh", "--sink-exec", "-c", "--sink-exec", "cat > /dev/null; cat names.csv"];
    place.run_ok(&[&convert[..], &script, &["--source-format", "lines"]].concat());
    assert_eq!(place.read("out.json"), "w0;zero\n");
    place.run_ok(
        &["run", "job.toml", "--files", "b.dat", "--set", "source.exec=['cat', 'b.dat']"]
            .iter()
            .chain(&["--set", "source.url=a.dat", "--overwrite", "--set", "source.format=lines"])
            .chain(&["--set", "tables.by=[]"])
            .copied()
            .collect::<Vec<_>>(),
    );
    assert_eq!(place.read("out.csv"), "n\n4000\nw0;zero\n");
}

#[test]
fn invalid_program_files_are_refused_before_the_run() {
    let place = folder_with_data();
    place.write("a/x.csv", "1");
    place.write("b/x.csv", "2");
    place.write("folder/y", "3");
    assert!(place.program("mkfifo").arg("fifo").status().unwrap().success());
    for (files, status, part) in [
        ("['a/x.csv', 'b/x.csv']", 2, "job.toml:1: `a/x.csv` and `b/x.csv` would both be `x.csv`"),
        ("['missing.csv']", 1, "no such file"),
        ("['../../missing.csv']", 1, "no such file"),
        ("['folder']", 2, "`folder` is a folder"),
        ("['folder/']", 2, "job.toml:1: `folder/` names no file"),
        ("['..']", 2, "names no file"),
        ("['/']", 2, "names no file"),
        ("['']", 2, "url is empty"),
        ("['-']", 2, "standard input"),
        ("['fifo']", 2, "a stream"),
        ("['https://host/%2e%2e']", 2, "names no file"),
        ("['ftp://host/x']", 2, "`ftp://` is not known"),
        ("[1]", 2, "files"),
    ] {
        let exec = "exec = ['sh', '-c', 'touch started']";
        let job = format!(
            "files = {files}\n[source]\nurl = 'a.dat'\n{exec}\n[sink]\nurl = 'out.csv'\n{exec}\n"
        );
        place.write("job.toml", job);
        let output = place.tidemill(&["run", "job.toml"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(part), "{files}: {stderr}");
        assert_eq!(output.status.code(), Some(status), "{files}: {stderr}");
        assert!(!place.path().join("out.csv").exists() && !place.path().join("started").exists());
    }
    for words in [
        &["query", "SELECT count() AS n FROM 'a.dat'", "--source-format", "lines"][..],
        &["convert", "a.dat", "out.csv", "--source-format", "lines"],
    ] {
        let output = place.tidemill(&[words, &["--files", "a/x.csv"]].concat()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("no program would find `a/x.csv`"), "{stderr}");
    }
}

#[test]
fn program_file_changed_during_the_run_fails_it() {
    let place = folder_with_data();
    place.write("x.csv", "1");
    let job = "files = ['x.csv']\n[source]\nurl = 'a.dat'\nformat = 'lines'\nexec = ['sh', '-c', \
               'cat; echo 2 >> x.csv']\n[sink]\nurl = 'out.csv'\n";
    place.write("job.toml", job);
    let output = place.tidemill(&["run", "job.toml"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("`x.csv` changed while it was read"), "{stderr}");
    assert!(!output.status.success() && !place.path().join("out.csv").exists());
}
