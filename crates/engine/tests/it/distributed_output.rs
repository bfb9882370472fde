//! Tests of output files that workers write: equal byte by byte to those of one process, and no others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::query::{
    ScratchSpec, SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool,
};
use tidemill_engine::run_handle::{RunHandle, write_to_sink};
use tidemill_engine::sink::{OutputSummary, SinkSpec};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{
    CancelFlag, Error, NamedSource, Query, Result, RunId, RunProgress, RunSettings,
};

use crate::cluster_execution::{RandomOrderWorkerPool, write_large_files};
use crate::common::{Folder, Random, settings};
use crate::fake_s3_bucket::FakeS3Bucket;

/// Runs a query into an output; returns the written files, the number of rows read and the user's warning.
fn write_output(
    query: Query,
    spec: &SinkSpec,
    settings: &RunSettings,
) -> Result<(OutputSummary, u64, Option<String>)> {
    let mut running = RunHandle::start_query(query.with_worker_output(spec), settings.clone())?;
    let written =
        write_to_sink(&mut running, spec, &RunId::new(), settings.memory_bytes, |_| Ok(()))?;
    let rows = running.coverage().map_or(0, |coverage| coverage.rows.done);
    Ok((written, rows, running.take_warning()))
}

/// Returns all files below a folder and their contents.
fn read_files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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

fn source_query(folder: &Folder, sql: &str) -> Query {
    let spec = SourceSpec { url: folder.substitute_path("$/?.csv"), ..SourceSpec::default() };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    Query { sources, sql: sql.into(), ..Query::default() }
}

/// Returns the same query with workers and with scratch storage for their chunks.
fn query_with_workers(
    query: &Query,
    workers: Arc<dyn WorkerPool>,
    scratch: &Folder,
    above: Option<u64>,
) -> Query {
    let scratch = ScratchSpec { url: Some(scratch.substitute_path("$")), inline_bytes_max: above };
    Query { workers: Some(workers), scratch, ..query.clone() }
}

/// Runs a query again with workers that write its rows and compares the files; does nothing where they
/// cannot.
pub(crate) fn check_output_with_workers(query: &Query, settings: &RunSettings) {
    let seed = query.sql.len() as u64;
    let mut random = Random(seed);
    let names = ["all.csv", "all.json", "all.tsv.gz"];
    let name = names[random.next_below(names.len() as u64) as usize];
    let (here, there, scratch) = (Folder::new(), Folder::new(), Folder::new());
    // A run that fails cancels all runs that share its flag.
    let settings = || RunSettings {
        progress: RunProgress::new(),
        rejected_folder: None,
        cancel: CancelFlag::new(),
        ..settings.clone()
    };
    let to = |folder: &Folder| SinkSpec::new(folder.path().join(name).to_string_lossy());
    let workers = RandomOrderWorkerPool::new(seed, 3, 5);
    let own = query_with_workers(query, workers, &scratch, Some(0));
    let one = write_output(query.clone(), &to(&here), &settings());
    let two = write_output(own, &to(&there), &settings());
    match (one, two) {
        (Ok((one, ..)), Ok((two, ..))) => {
            assert_eq!((one.rows, one.bytes), (two.rows, two.bytes), "{}", query.sql);
            assert!(
                read_files_below(here.path()) == read_files_below(there.path()),
                "{}: {name}",
                query.sql
            );
        }
        (Err(_), Err(_)) => {
            assert!(read_files_below(there.path()).is_empty(), "{}", query.sql);
        }
        (Err(error), Ok(_)) => {
            panic!("{}: {name} is written by workers, and here {error}", query.sql)
        }
        // A worker has another memory budget.
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
fn files_written_by_workers_equal_those_of_one_process() {
    let folder = Folder::new();
    write_large_files(&folder, 11);
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
        let (query, here) = (source_query(&folder, sql), Folder::new());
        let to = |folder: &Folder| SinkSpec::new(format!("{}/{name}", folder.path().display()));
        let (expected, rows, _) = write_output(query.clone(), &to(&here), &settings()).unwrap();
        let all = read_files_below(here.path());
        for (threads, lost, above) in [(1, 0, Some(0)), (4, 3, Some(100_000)), (64, 2, None)] {
            let (there, scratch) = (Folder::new(), Folder::new());
            let workers = RandomOrderWorkerPool::new(seed, threads, lost);
            let own = query_with_workers(&query, workers.clone(), &scratch, above);
            let (written, read, warning) = write_output(own, &to(&there), &settings()).unwrap();
            let how = format!("{sql} to {name}, {threads} threads, above {above:?}");
            assert_eq!((written.files, written.rows), (expected.files, expected.rows), "{how}");
            assert_eq!((written.bytes, read), (expected.bytes, rows), "{how}");
            assert_eq!(warning, None, "{how}");
            let found = read_files_below(there.path());
            assert!(found.keys().eq(all.keys()), "{how}: {:?}", found.keys());
            assert!(found == all, "{how}");
            // An empty result has nothing to write, and the driver writes a small one.
            if above.is_some() || are_none(statement) {
                assert_eq!(workers.output_tasks() > 0, !are_none(statement), "{how}");
            }
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{how}");
        }
    }
}

#[test]
fn binary_files_written_by_workers_have_the_same_bytes() {
    let folder = Folder::new();
    write_large_files(&folder, 12);
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
        // The size of a row group depends on memory: this is the workers' budget.
        let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
        let (query, here) = (source_query(&folder, STATEMENTS[statement]), Folder::new());
        let to = |folder: &Folder| SinkSpec::new(format!("{}/{name}", folder.path().display()));
        write_output(query.clone(), &to(&here), &settings).unwrap();
        let all = read_files_below(here.path());
        for (threads, lost) in [(1, 0), (4, 3)] {
            let (there, scratch) = (Folder::new(), Folder::new());
            let workers = RandomOrderWorkerPool::new(seed, threads, lost);
            let own = query_with_workers(&query, workers.clone(), &scratch, Some(0));
            write_output(own, &to(&there), &settings).unwrap();
            assert!(workers.output_tasks() > 0, "{name}");
            let found = read_files_below(there.path());
            assert!(found.keys().eq(all.keys()), "{name}");
            let other = found.iter().find(|(path, content)| all[*path] != **content);
            assert_eq!(other.map(|(path, _)| path), None, "{name}: other bytes");
        }
    }
}

#[test]
fn too_many_and_existing_files_are_refused_with_and_without_workers() {
    let folder = Folder::new();
    write_large_files(&folder, 13);
    let query = source_query(&folder, "SELECT k, x FROM source");
    let refused = |spec: &SinkSpec, out: &Folder| {
        let scratch = Folder::new();
        let here = write_output(query.clone(), spec, &settings()).unwrap_err().to_string();
        let before = read_files_below(out.path());
        let own =
            query_with_workers(&query, RandomOrderWorkerPool::new(5, 4, 0), &scratch, Some(0));
        let there = write_output(own, spec, &settings()).unwrap_err().to_string();
        assert_eq!(there, here);
        assert_eq!(read_files_below(out.path()), before);
        here
    };
    let out = Folder::new();
    let spec = SinkSpec::new(format!("{}/{{k}}.csv", out.path().display()));
    // Fewer files than all workers meet together, and more than some of them have to write.
    let said = refused(&SinkSpec { max_files: 1_500, ..spec }, &out);
    assert!(said.contains("would write more than 1500 files"), "{said}");
    out.write("all.csv", "something");
    let said = refused(&SinkSpec::new(out.path().join("all.csv").to_string_lossy()), &out);
    assert!(said.contains("exists already"), "{said}");
}

/// A worker pool on a machine that does not see the output's folder.
#[derive(Debug)]
struct PoolWithoutOutputFolder(Arc<RandomOrderWorkerPool>);

impl WorkerPool for PoolWithoutOutputFolder {
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
fn output_folder_invisible_to_workers_is_written_locally_with_a_warning() {
    let folder = Folder::new();
    write_large_files(&folder, 14);
    let query = source_query(&folder, STATEMENTS[1]);
    let (here, there, scratch) = (Folder::new(), Folder::new(), Folder::new());
    let to = |folder: &Folder| SinkSpec::new(format!("{}/{{digit}}.csv", folder.path().display()));
    write_output(query.clone(), &to(&here), &settings()).unwrap();
    let workers = RandomOrderWorkerPool::new(3, 2, 0);
    let own = query_with_workers(
        &query,
        Arc::new(PoolWithoutOutputFolder(workers.clone())),
        &scratch,
        Some(0),
    );
    let (_, _, warning) = write_output(own, &to(&there), &settings()).unwrap();
    assert_eq!(workers.output_tasks(), 0);
    assert!(read_files_below(here.path()) == read_files_below(there.path()));
    assert_eq!(
        warning.as_deref(),
        Some(
            "the output's folder is not on `far`: its files are written by this process, which all rows pass"
        )
    );
}

#[test]
fn objects_uploaded_by_workers_equal_local_files_without_leftover_uploads() {
    let folder = Folder::new();
    write_large_files(&folder, 15);
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
        let (query, here) = (source_query(&folder, sql), Folder::new());
        let spec = SinkSpec::new(format!("{}/{name}", here.path().display()));
        let (expected, ..) = write_output(query.clone(), &spec, &settings()).unwrap();
        for (threads, lost, above) in [(1, 0, Some(0)), (4, 3, Some(100_000))] {
            let (bucket, scratch) = (FakeS3Bucket::new(), Folder::new());
            let spec = SinkSpec {
                storage_options: bucket.storage_options(),
                ..SinkSpec::new(format!("s3://out/a/{name}"))
            };
            let workers = RandomOrderWorkerPool::new(seed, threads, lost);
            let own = query_with_workers(&query, workers.clone(), &scratch, above);
            let (written, ..) = write_output(own, &spec, &settings()).unwrap();
            let how = format!("{sql} to {name}, {threads} threads, above {above:?}");
            assert_eq!((written.files, written.rows), (expected.files, expected.rows), "{how}");
            let found = bucket.objects_below("a/");
            let all = read_files_below(here.path());
            let names: Vec<PathBuf> = found.keys().map(PathBuf::from).collect();
            assert!(names.iter().eq(all.keys()), "{how}: {names:?}");
            assert!(found.values().eq(all.values()), "{how}");
            let kept = bucket.lock_contents();
            assert!(kept.uploads.is_empty(), "{how}: {} uploads", kept.uploads.len());
            assert_eq!(workers.output_tasks() > 0, !all.is_empty(), "{how}");
            let is_large = all.values().any(|content| content.len() > 256 << 10);
            assert!(kept.uploads_begun > 0 || !is_large, "{how}");
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{how}");
        }
    }
}

#[test]
fn output_of_crashing_workers_is_not_committed() {
    let folder = Folder::new();
    write_large_files(&folder, 16);
    let query = Query { split_attempts_max: Some(2), ..source_query(&folder, STATEMENTS[1]) };
    let (bucket, out, scratch) = (FakeS3Bucket::new(), Folder::new(), Folder::new());
    let to_bucket = SinkSpec {
        storage_options: bucket.storage_options(),
        ..SinkSpec::new("s3://out/{digit}.csv")
    };
    let to_folder = SinkSpec::new(format!("{}/{{digit}}.csv", out.path().display()));
    for (spec, seed) in [(&to_bucket, 1), (&to_folder, 2)] {
        let workers = Arc::new(WriteCrashingPool(RandomOrderWorkerPool::new(seed, 4, 0)));
        let own = query_with_workers(&query, workers, &scratch, Some(0));
        let error = write_output(own, spec, &settings()).unwrap_err().to_string();
        assert!(error.contains("a worker ended 2 times over the same files, task"), "{error}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
    let kept = bucket.lock_contents();
    assert!(kept.uploads_begun > 0 && kept.uploads.is_empty() && kept.objects.is_empty());
    assert!(read_files_below(out.path()).is_empty());
}

/// A worker pool whose workers end whenever they write.
#[derive(Debug)]
struct WriteCrashingPool(Arc<RandomOrderWorkerPool>);

impl WorkerPool for WriteCrashingPool {
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
        let before = self.0.output_tasks();
        let done = self.0.next_outcome(wait)?;
        let is_written = self.0.output_tasks() > before;
        Ok(done.map(|done| match is_written {
            true => TaskOutcome { result: Err("it was killed".into()), ..done },
            false => done,
        }))
    }

    fn end_job(&self) {
        self.0.end_job();
    }
}

/// More groups than a result sorts by their keys.
const GROUP_COUNT: u64 = 300_000;

#[test]
fn many_groups_are_written_by_workers_like_one_process() {
    let folder = Folder::new();
    let mut random = Random(18);
    for file in 0..3 {
        let mut text = String::from("k,x\n");
        for row in 0..GROUP_COUNT / 3 * 2 {
            let key = (row * 3 + file) % (GROUP_COUNT + 50_000);
            text.push_str(&format!("{key},{}\n", random.next_below(1 << 20)));
        }
        folder.write(&format!("{file}.csv"), text);
    }
    let all = "SELECT k, count(*) AS n, sum(x) AS s, k % 7 AS part FROM source GROUP BY k";
    let some =
        "SELECT k, max(x) AS x, 'g' || count(*) AS n FROM source GROUP BY k HAVING max(x) % 2 = 1";
    let none = "SELECT k, sum(x) AS s FROM source GROUP BY k HAVING sum(x) < 0";
    // Written by the driver: in the order of their keys, or in another one.
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
            (source_query(&folder, sql), Folder::new(), Folder::new(), Folder::new());
        let bucket = FakeS3Bucket::new();
        let name = if name == "s3" { "{n}.csv" } else { name };
        let is_bucket = name == "{n}.csv";
        let to = |folder: &Folder| SinkSpec::new(format!("{}/{name}", folder.path().display()));
        let (expected, read, _) = write_output(query.clone(), &to(&here), &settings).unwrap();
        let spec = match is_bucket {
            false => to(&there),
            true => SinkSpec {
                storage_options: bucket.storage_options(),
                ..SinkSpec::new(format!("s3://out/{name}"))
            },
        };
        let workers = RandomOrderWorkerPool::new(seed, 4, 4);
        let own = query_with_workers(&query, workers.clone(), &scratch, Some(0));
        let (written, rows, _) = write_output(own, &spec, &settings).unwrap();
        assert_eq!((written.files, written.rows), (expected.files, expected.rows), "{sql}: {name}");
        assert_eq!(rows, read, "{sql}");
        assert_eq!(workers.output_tasks() > 0, is_written, "{sql}: {name}");
        let found = match is_bucket {
            false => read_files_below(there.path()),
            true => {
                bucket.objects_below("").into_iter().map(|(key, it)| (key.into(), it)).collect()
            }
        };
        assert!(found == read_files_below(here.path()), "{sql}: {name}");
        assert!(bucket.lock_contents().uploads.is_empty());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{sql}");
    }
}
