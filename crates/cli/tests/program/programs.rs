//! Programs of the user's that bytes go through, on the way in and on the way out.

use std::fs;
use std::process::Stdio;

use crate::Place;
use crate::endings::{ended, signal, staging, until};

/// A folder with `in.txt` of words and a number, a few thousand lines in two files.
fn place() -> Place {
    let place = Place::new();
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

fn expected() -> String {
    let mut rows = vec!["word,n,sum".to_owned()];
    for word in 0..7u64 {
        let own: Vec<u64> = (0..8000).filter(|n| n % 7 == word).collect();
        rows.push(format!("w{word},{},{}", own.len(), own.iter().sum::<u64>()));
    }
    rows.join("\n") + "\n"
}

#[test]
fn a_source_is_what_a_program_makes_of_its_files() {
    let place = place();
    place.write("job.toml", JOB);
    assert_eq!(place.ok(&["run", "job.toml"]), expected());
    let sql = "SELECT word, count() AS n, sum(n) AS sum FROM '*.dat' GROUP BY word ORDER BY word";
    let words = ["--source-exec", "sh", "--source-exec", "-c", "--source-exec"];
    let query =
        [&["query", sql][..], &words, &["echo word,n; tr ';' ','", "--source-format", "csv"]];
    assert_eq!(place.ok(&query.concat()), expected());
    // Compressed files are decompressed first, and without a format its output is lines.
    place.write("c.dat", "one\ntwo\n");
    assert!(place.program("gzip").arg("c.dat").status().unwrap().success());
    let lines = ["query", "SELECT line FROM 'c.dat.gz'", "--source-exec", "rev"];
    assert_eq!(place.ok(&lines), "line\neno\nowt\n");
    // It knows which file it is given.
    let sql = "SELECT line, count() AS n FROM '*.dat' GROUP BY line ORDER BY line";
    let script = "cat > /dev/null; echo $TIDEMILL_FILE";
    let named = [&["query", sql][..], &words, &[script]].concat();
    assert_eq!(place.ok(&named), "line,n\na.dat,1\nb.dat,1\n");
}

#[test]
fn a_source_without_a_url_is_what_a_program_gives() {
    let place = Place::new();
    place.write(
        "job.toml",
        "[source]\nexec = ['seq', '100000']\n[map]\nsql = 'SELECT CAST(line AS BIGINT) AS n FROM \
         source'\n[tables]\nn = 'count()'\nsum = 'sum(n)'\n",
    );
    assert_eq!(place.ok(&["run", "job.toml"]), "n,sum\n100000,5000050000\n");
    // No more of it is wanted than the first rows.
    place.write("job.toml", "[source]\nexec = ['yes']\n[map]\nsql = 'SELECT line FROM source'\n");
    let job = tidemill_run_limit(&place);
    assert_eq!(job, "line\ny\ny\n");
}

/// The first rows of an endless program, by way of a reader that closes the pipe.
fn tidemill_run_limit(place: &Place) -> String {
    use std::io::Read;
    let mut command = place.tidemill(&["run", "job.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = [0; 9];
    child.stdout.take().unwrap().read_exact(&mut text).unwrap();
    let (status, stderr) = ended(child);
    assert!(status.success(), "{stderr}");
    String::from_utf8(text.to_vec()).unwrap()
}

#[test]
fn a_program_that_fails_fails_the_run_and_says_why() {
    let place = place();
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
        assert!(!staging(&place, "."));
    }
    let output =
        place.tidemill(&["query", "SELECT 1 AS x", "--sink-exec", "cat"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("pipe it through the program"));
}

#[test]
fn a_file_is_what_a_program_makes_of_it() {
    let place = place();
    place.write("job.toml", format!("{JOB}\n[sink]\nurl = 'out.csv'\nexec = ['tr', 'w', 'W']\n"));
    place.ok(&["run", "job.toml"]);
    assert_eq!(place.read("out.csv"), expected().replace('w', "W"));
    // One per value, each through a program of its own; formats that are spooled too.
    let sql = "SELECT line, length(line) AS k FROM '*.dat'";
    for (format, program) in
        [("csv", &["gzip", "-9"][..]), ("json", &["gzip"]), ("parquet", &["gzip"])]
    {
        let out = format!("{format}/{{k}}.{format}.gz");
        let mut words =
            vec!["query", sql, "--source-format", "lines", "-o", &out, "--format", format];
        program.iter().for_each(|word| words.extend(["--sink-exec", word]));
        place.ok(&words);
        if format != "parquet" {
            let back =
                format!("SELECT count() AS n, count(DISTINCT line) AS d FROM '{format}/*.gz'");
            assert_eq!(place.ok(&["query", &back]), "n,d\n8000,8000\n");
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
        let place = place();
        place.write("job.toml", job);
        let mut command = place.tidemill(&["run", "job.toml", "--set", "source.format=lines"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let started = place.path().join("started");
        until("the program has started", || started.exists());
        signal(&child, libc::SIGINT);
        let (status, stderr) = ended(child);
        assert_eq!((status.code(), stderr.as_str()), (Some(130), "error: interrupted\n"), "{job}");
        assert!(!place.path().join("out.csv").exists() && !staging(&place, "."));
        assert_eq!(place.names("out"), Vec::<String>::new());
    }
}

#[test]
fn an_interrupt_ends_a_program_that_is_looked_at_patiently() {
    let place = place();
    let script = "touch started; head -c 3000; sleep 1000";
    let exec = ["--source-exec", "sh", "--source-exec", "-c", "--source-exec", script];
    for patience in [&["--drop", "20%"][..], &["--deadline", "1h"], &["--sample", "50%"]] {
        let started = place.path().join("started");
        let _ = fs::remove_file(&started);
        let sql = "SELECT count() AS n FROM '*.dat'";
        // What the columns are is looked for in what the program gives.
        let words = [&["query", sql, "--source-format", "csv"][..], &exec, patience].concat();
        let mut command = place.tidemill(&words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("the program has started", || started.exists());
        signal(&child, libc::SIGINT);
        let (status, stderr) = ended(child);
        let found = (status.code(), stderr.as_str());
        assert_eq!(found, (Some(130), "error: interrupted\n"), "{patience:?}");
    }
}

#[test]
fn the_time_of_the_program_that_takes_the_answer_counts() {
    let place = place();
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
