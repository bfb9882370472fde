//! Rows whose files workers write: the same files, byte by byte, as where this process writes them, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::query::{
    ScratchSpec, SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool,
};
use tidemill_engine::running::{Running, deliver};
use tidemill_engine::sink::{OutputSummary, SinkSpec};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{
    CancelFlag, Error, NamedSource, Query, Result, RunId, RunProgress, RunSettings,
};

use crate::bucket::Bucket;
use crate::common::{Folder, Random, settings};
use crate::elsewhere::{Dealt, large};

/// Runs a query into an output; what it has written, what it rests on, and what the user is told.
fn delivered(
    query: Query,
    spec: &SinkSpec,
    settings: &RunSettings,
) -> Result<(OutputSummary, u64, Option<String>)> {
    let mut running = Running::query(query.with_worker_output(spec), settings.clone())?;
    let written = deliver(&mut running, spec, &RunId::new(), settings.memory_bytes, |_| Ok(()))?;
    let rows = running.coverage().map_or(0, |coverage| coverage.rows.done);
    Ok((written, rows, running.take_warning()))
}

/// All files below a folder, and what they hold.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn of(folder: &Folder, sql: &str) -> Query {
    let spec = SourceSpec { url: folder.sql("$/?.csv"), ..SourceSpec::default() };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    Query { sources, sql: sql.into(), ..Query::default() }
}

/// The same query with workers, who have a place for what they lay down.
fn with(
    query: &Query,
    workers: Arc<dyn WorkerPool>,
    scratch: &Folder,
    above: Option<u64>,
) -> Query {
    let scratch = ScratchSpec { url: Some(scratch.sql("$")), inline_bytes_max: above };
    Query { workers: Some(workers), scratch, ..query.clone() }
}

/// Asks once more, with workers who write the rows, what was answered here, and compares; nothing where they do not.
pub(crate) fn written_again(query: &Query, settings: &RunSettings) {
    let seed = query.sql.len() as u64;
    let mut random = Random(seed);
    let names = ["all.csv", "all.json", "all.tsv.gz"];
    let name = names[random.below(names.len() as u64) as usize];
    let (here, there, scratch) = (Folder::new(), Folder::new(), Folder::new());
    // A run that fails ends whatever shares its flag.
    let settings = || RunSettings {
        progress: RunProgress::new(),
        rejected_folder: None,
        cancel: CancelFlag::new(),
        ..settings.clone()
    };
    let to = |folder: &Folder| SinkSpec::new(folder.path().join(name).to_string_lossy());
    let workers = Dealt::new(seed, 3, 5);
    let own = with(query, workers, &scratch, Some(0));
    let one = delivered(query.clone(), &to(&here), &settings());
    let two = delivered(own, &to(&there), &settings());
    match (one, two) {
        (Ok((one, ..)), Ok((two, ..))) => {
            assert_eq!((one.rows, one.bytes), (two.rows, two.bytes), "{}", query.sql);
            assert!(files(here.path()) == files(there.path()), "{}: {name}", query.sql);
        }
        (Err(_), Err(_)) => {
            assert!(files(there.path()).is_empty(), "{}", query.sql);
        }
        (Err(error), Ok(_)) => {
            panic!("{}: {name} is written by workers, and here {error}", query.sql)
        }
        // A worker has another budget.
        (Ok(_), Err(Error::MemoryBudgetTooSmall { .. })) => {}
        (Ok(_), Err(error)) => panic!("{}: {name}: {error}", query.sql),
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{}", query.sql);
}

const STATEMENTS: [&str; 5] = [
    "SELECT * FROM source",
    "SELECT k, x * 2 AS double, filename, substr(k, 5, 1) AS digit FROM source WHERE s LIKE '%words%'",
    "SELECT *, CASE WHEN x > 1e11 THEN s END AS part FROM source WHERE x > 5e10",
    "SELECT k FROM source WHERE k = 'there is none'",
    "SELECT k, max(x) AS x, first(s ORDER BY s) AS s FROM source GROUP BY k HAVING max(x) < 0",
];

#[test]
fn files_that_workers_write_are_those_of_one_process() {
    let folder = Folder::new();
    large(&folder, 11);
    let outputs = [
        (0, "all.csv"),
        (0, "deep/er/all.json.gz"),
        (0, "all.tsv"),
        (1, "{digit}.csv"),
        (1, "{digit}/{k}.tsv"),
        (1, "key={k}/all.json"),
        (1, "{k}.json.zst"),
        (2, "{part}.csv"),
        (2, "all.json"),
        (3, "none.csv"),
        (3, "{k}.csv"),
        (4, "none.json"),
        (4, "{k}.csv"),
    ];
    let are_none = |statement| matches!(statement, 3 | 4);
    for (seed, (statement, name)) in (1..).zip(outputs) {
        let sql = STATEMENTS[statement];
        let (query, here) = (of(&folder, sql), Folder::new());
        let to = |folder: &Folder| SinkSpec::new(format!("{}/{name}", folder.path().display()));
        let (expected, rows, _) = delivered(query.clone(), &to(&here), &settings()).unwrap();
        let all = files(here.path());
        for (threads, lost, above) in [(1, 0, Some(0)), (4, 3, Some(100_000)), (64, 2, None)] {
            let (there, scratch) = (Folder::new(), Folder::new());
            let workers = Dealt::new(seed, threads, lost);
            let own = with(&query, workers.clone(), &scratch, above);
            let (written, read, warning) = delivered(own, &to(&there), &settings()).unwrap();
            let how = format!("{sql} to {name}, {threads} threads, above {above:?}");
            assert_eq!((written.files, written.rows), (expected.files, expected.rows), "{how}");
            assert_eq!((written.bytes, read), (expected.bytes, rows), "{how}");
            assert_eq!(warning, None, "{how}");
            let found = files(there.path());
            assert!(found.keys().eq(all.keys()), "{how}: {:?}", found.keys());
            assert!(found == all, "{how}");
            // Of nothing there is nothing to write, and what is little is written here.
            if above.is_some() || are_none(statement) {
                assert_eq!(workers.written() > 0, !are_none(statement), "{how}");
            }
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{how}");
        }
    }
}

#[test]
fn files_of_batches_have_the_same_bytes_whoever_writes_them() {
    let folder = Folder::new();
    large(&folder, 12);
    for (seed, (statement, name)) in (1..).zip([
        (1, "all.parquet"),
        (0, "all.arrow"),
        (0, "all.avro"),
        (1, "all.rowfile"),
        (0, "all.arrows"),
        (1, "{digit}.parquet"),
        (2, "{part}.arrow"),
        (1, "{digit}/{k}.avro"),
        (1, "{digit}.rowfile"),
    ]) {
        // How large a row group may be is a matter of memory: that of these workers.
        let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
        let (query, here) = (of(&folder, STATEMENTS[statement]), Folder::new());
        let to = |folder: &Folder| SinkSpec::new(format!("{}/{name}", folder.path().display()));
        delivered(query.clone(), &to(&here), &settings).unwrap();
        let all = files(here.path());
        for (threads, lost) in [(1, 0), (4, 3)] {
            let (there, scratch) = (Folder::new(), Folder::new());
            let workers = Dealt::new(seed, threads, lost);
            let own = with(&query, workers.clone(), &scratch, Some(0));
            delivered(own, &to(&there), &settings).unwrap();
            assert!(workers.written() > 0, "{name}");
            let found = files(there.path());
            assert!(found.keys().eq(all.keys()), "{name}");
            let other = found.iter().find(|(path, content)| all[*path] != **content);
            assert_eq!(other.map(|(path, _)| path), None, "{name}: other bytes");
        }
    }
}

#[test]
fn too_many_files_and_files_that_are_there_are_refused_whoever_writes_them() {
    let folder = Folder::new();
    large(&folder, 13);
    let query = of(&folder, "SELECT k, x FROM source");
    let refused = |spec: &SinkSpec, out: &Folder| {
        let scratch = Folder::new();
        let here = delivered(query.clone(), spec, &settings()).unwrap_err().to_string();
        let before = files(out.path());
        let own = with(&query, Dealt::new(5, 4, 0), &scratch, Some(0));
        let there = delivered(own, spec, &settings()).unwrap_err().to_string();
        assert_eq!(there, here);
        assert_eq!(files(out.path()), before);
        here
    };
    let out = Folder::new();
    let spec = SinkSpec::new(format!("{}/{{k}}.csv", out.path().display()));
    // Fewer than all workers together meet, and more than some of them have to write.
    let said = refused(&SinkSpec { max_files: 1_500, ..spec }, &out);
    assert!(said.contains("would write more than 1500 files"), "{said}");
    out.write("all.csv", "something");
    let said = refused(&SinkSpec::new(out.path().join("all.csv").to_string_lossy()), &out);
    assert!(said.contains("exists already"), "{said}");
}

/// Workers on a machine that does not see the output's folder.
#[derive(Debug)]
struct Blind(Arc<Dealt>);

impl WorkerPool for Blind {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        self.0.worker_counts()
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        let lock = job.shared_paths.iter().find(|path| path.contains("/.tidemill-"));
        match lock {
            Some(lock) => {
                Err(Error::usage(format!("`{lock}` is not on `far`, where a worker would read it")))
            }
            None => self.0.start_job(job),
        }
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        self.0.submit_task(task)
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        self.0.next_outcome(wait)
    }

    fn end_job(&self) {
        self.0.end_job();
    }
}

#[test]
fn where_workers_do_not_see_the_output_it_is_written_here_and_the_user_is_told() {
    let folder = Folder::new();
    large(&folder, 14);
    let query = of(&folder, STATEMENTS[1]);
    let (here, there, scratch) = (Folder::new(), Folder::new(), Folder::new());
    let to = |folder: &Folder| SinkSpec::new(format!("{}/{{digit}}.csv", folder.path().display()));
    delivered(query.clone(), &to(&here), &settings()).unwrap();
    let workers = Dealt::new(3, 2, 0);
    let own = with(&query, Arc::new(Blind(workers.clone())), &scratch, Some(0));
    let (_, _, warning) = delivered(own, &to(&there), &settings()).unwrap();
    assert_eq!(workers.written(), 0);
    assert!(files(here.path()) == files(there.path()));
    assert_eq!(
        warning.as_deref(),
        Some(
            "the output's folder is not on `far`: its files are written by this process, which all rows pass"
        )
    );
}

#[test]
fn objects_that_workers_send_are_the_files_of_one_process_and_no_upload_is_left() {
    let folder = Folder::new();
    large(&folder, 15);
    // Small in memory, and large as text.
    let long = "SELECT substr(k, 5, 1) AS digit, 1234567 AS a_column_of_quite_a_long_name FROM source WHERE x > 78e9";
    for (seed, (sql, name)) in (1..).zip([
        (STATEMENTS[0], "all.csv"),
        (STATEMENTS[1], "deep/all.json.gz"),
        (STATEMENTS[1], "{digit}.csv"),
        (STATEMENTS[1], "{digit}/{k}.tsv"),
        (STATEMENTS[2], "{part}.json"),
        (long, "{digit}.json"),
        (STATEMENTS[3], "{k}.csv"),
    ]) {
        let (query, here) = (of(&folder, sql), Folder::new());
        let spec = SinkSpec::new(format!("{}/{name}", here.path().display()));
        let (expected, ..) = delivered(query.clone(), &spec, &settings()).unwrap();
        for (threads, lost, above) in [(1, 0, Some(0)), (4, 3, Some(100_000))] {
            let (bucket, scratch) = (Bucket::new(), Folder::new());
            let spec = SinkSpec {
                storage_options: bucket.options(),
                ..SinkSpec::new(format!("s3://out/a/{name}"))
            };
            let workers = Dealt::new(seed, threads, lost);
            let own = with(&query, workers.clone(), &scratch, above);
            let (written, ..) = delivered(own, &spec, &settings()).unwrap();
            let how = format!("{sql} to {name}, {threads} threads, above {above:?}");
            assert_eq!((written.files, written.rows), (expected.files, expected.rows), "{how}");
            let found = bucket.below("a/");
            let all = files(here.path());
            let names: Vec<PathBuf> = found.keys().map(PathBuf::from).collect();
            assert!(names.iter().eq(all.keys()), "{how}: {names:?}");
            assert!(found.values().eq(all.values()), "{how}");
            let kept = bucket.kept();
            assert!(kept.uploads.is_empty(), "{how}: {} uploads", kept.uploads.len());
            assert_eq!(workers.written() > 0, !all.is_empty(), "{how}");
            let is_large = all.values().any(|content| content.len() > 256 << 10);
            assert!(kept.begun > 0 || !is_large, "{how}");
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{how}");
        }
    }
}

#[test]
fn files_whose_workers_end_each_time_appear_nowhere() {
    let folder = Folder::new();
    large(&folder, 16);
    let query = Query { split_attempts_max: Some(2), ..of(&folder, STATEMENTS[1]) };
    let (bucket, out, scratch) = (Bucket::new(), Folder::new(), Folder::new());
    let to_bucket =
        SinkSpec { storage_options: bucket.options(), ..SinkSpec::new("s3://out/{digit}.csv") };
    let to_folder = SinkSpec::new(format!("{}/{{digit}}.csv", out.path().display()));
    for (spec, seed) in [(&to_bucket, 1), (&to_folder, 2)] {
        let workers = Arc::new(Poisoned(Dealt::new(seed, 4, 0)));
        let own = with(&query, workers, &scratch, Some(0));
        let error = delivered(own, spec, &settings()).unwrap_err().to_string();
        assert!(error.contains("a worker ended 2 times over the same files, task"), "{error}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
    let kept = bucket.kept();
    assert!(kept.begun > 0 && kept.uploads.is_empty() && kept.objects.is_empty());
    assert!(files(out.path()).is_empty());
}

/// Workers that end whenever they write.
#[derive(Debug)]
struct Poisoned(Arc<Dealt>);

impl WorkerPool for Poisoned {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        self.0.worker_counts()
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        self.0.start_job(job)
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        self.0.submit_task(task)
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        let before = self.0.written();
        let done = self.0.next_outcome(wait)?;
        let is_written = self.0.written() > before;
        Ok(done.map(|done| match is_written {
            true => TaskOutcome { result: Err("it was killed".into()), ..done },
            false => done,
        }))
    }

    fn end_job(&self) {
        self.0.end_job();
    }
}

/// More groups than are put into the order of their keys.
const GROUPS: u64 = 300_000;

#[test]
fn groups_that_are_many_are_written_by_workers_as_by_one_process() {
    let folder = Folder::new();
    let mut random = Random(18);
    for file in 0..3 {
        let mut text = String::from("k,x\n");
        for row in 0..GROUPS / 3 * 2 {
            let key = (row * 3 + file) % (GROUPS + 50_000);
            text.push_str(&format!("{key},{}\n", random.below(1 << 20)));
        }
        folder.write(&format!("{file}.csv"), text);
    }
    let all = "SELECT k, count(*) AS n, sum(x) AS s, k % 7 AS part FROM source GROUP BY k";
    let some =
        "SELECT k, max(x) AS x, 'g' || count(*) AS n FROM source GROUP BY k HAVING max(x) % 2 = 1";
    let none = "SELECT k, sum(x) AS s FROM source GROUP BY k HAVING sum(x) < 0";
    // By the driver: in the order of their keys, or of something else.
    let few = "SELECT k % 1000 AS m, sum(x) AS s FROM source GROUP BY k % 1000";
    let ordered = "SELECT k, sum(x) AS s FROM source GROUP BY k ORDER BY s DESC, k";
    let windowed = "SELECT k, sum(x) AS s, sum(sum(x)) OVER () AS t FROM source GROUP BY k";
    for (seed, (sql, name, is_written)) in (1..).zip([
        (all, "all.csv", true),
        (all, "{part}.json", true),
        (all, "all.parquet", true),
        (all, "{part}.parquet", true),
        (some, "{n}/all.csv.gz", true),
        (some, "s3", true),
        (none, "none.csv", false),
        (few, "few.csv", false),
        (ordered, "ordered.csv", false),
        (windowed, "windowed.csv", false),
    ]) {
        let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
        let (query, here, there, scratch) =
            (of(&folder, sql), Folder::new(), Folder::new(), Folder::new());
        let bucket = Bucket::new();
        let name = if name == "s3" { "{n}.csv" } else { name };
        let is_bucket = name == "{n}.csv";
        let to = |folder: &Folder| SinkSpec::new(format!("{}/{name}", folder.path().display()));
        let (expected, read, _) = delivered(query.clone(), &to(&here), &settings).unwrap();
        let spec = match is_bucket {
            false => to(&there),
            true => SinkSpec {
                storage_options: bucket.options(),
                ..SinkSpec::new(format!("s3://out/{name}"))
            },
        };
        let workers = Dealt::new(seed, 4, 4);
        let own = with(&query, workers.clone(), &scratch, Some(0));
        let (written, rows, _) = delivered(own, &spec, &settings).unwrap();
        assert_eq!((written.files, written.rows), (expected.files, expected.rows), "{sql}: {name}");
        assert_eq!(rows, read, "{sql}");
        assert_eq!(workers.written() > 0, is_written, "{sql}: {name}");
        let found = match is_bucket {
            false => files(there.path()),
            true => bucket.below("").into_iter().map(|(key, it)| (key.into(), it)).collect(),
        };
        assert!(found == files(here.path()), "{sql}: {name}");
        assert!(bucket.kept().uploads.is_empty());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{sql}");
    }
}
