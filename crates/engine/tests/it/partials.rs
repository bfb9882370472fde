//! Partial tables: kept, merged, damaged.

use std::path::{Path, PathBuf};

use crate::common::{Answer, Folder, Random, answered, settings};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{Error, Merge, NamedSource, Plan, Progress, Query, Result, RunId, Settings};

const SQL: &str = "SELECT k, count(*) AS n, count(x) FILTER (WHERE x > 3) AS p, sum(x) AS sx, \
    sum(f) AS sf, avg(f) AS mf, avg(x) AS mx, min(s) AS a, max(f) AS b, unique(s) AS u, \
    top_k(s, 2) AS t, quantile(f, 0.5) AS q1, quantile(f, 0.1, 0.9) AS q2, collect(s, 3) AS c \
    FROM source GROUP BY k";

fn events(folder: &Folder, name: &str, seed: u64, rows: usize, keys: u64) {
    let mut random = Random(seed);
    let mut out = String::from("k,x,f,s\n");
    for _ in 0..rows {
        let (k, x) = (random.below(keys), random.below(10));
        let (f, s) = (random.below(100_000) as f64 / 1e3, random.below(6));
        out.push_str(&format!("key {k},{x},{f},a string of some length {s}\n"));
    }
    folder.write(name, out);
}

fn job(folder: &Folder, sql: &str, pattern: &str) -> Query {
    let url = folder.sql(&format!("$/{pattern}"));
    let spec = SourceSpec { url, ..SourceSpec::default() };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    let typed = sql == SQL;
    let schema = typed.then(|| "k VARCHAR, x BIGINT, f DOUBLE, s VARCHAR".to_string());
    Query { sources, sql: sql.into(), schema, ..Query::default() }
}

fn keep(folder: &Folder, sql: &str, pattern: &str, out: &str) -> PathBuf {
    let plan = Plan::new(&job(folder, sql, pattern), &settings()).unwrap();
    let out = folder.path().join(out);
    plan.run_partial(&out, false, &RunId::new()).unwrap();
    out
}

fn merge(partials: &[PathBuf], settings: &Settings) -> Result<Answer> {
    answered(Merge::new(partials, settings)?.run()?)
}

#[test]
fn parts_that_are_merged_answer_as_the_whole_does() {
    for (rows, keys, memory) in [(60, 5, 64 << 20), (3000, 900, 1 << 16), (0, 1, 64 << 20)] {
        let folder = Folder::new();
        for part in 0..3 {
            events(&folder, &format!("{part}.csv"), part, rows, keys);
        }
        let whole = Plan::new(&job(&folder, SQL, "?.csv"), &settings()).unwrap().run().unwrap();
        let whole = answered(whole).unwrap();
        let parts: Vec<PathBuf> = (0..3)
            .map(|part| keep(&folder, SQL, &format!("{part}.csv"), &format!("{part}.part")))
            .collect();
        let progress = Progress::new();
        let small = Settings { memory_bytes: memory, progress: progress.clone(), ..settings() };
        let merged = merge(&parts, &small).unwrap();
        assert_eq!(progress.spilled_bytes() > 0, memory < 1 << 20);
        if memory < 1 << 20 {
            assert_eq!(merged.sorted(), whole.sorted());
        } else {
            assert_eq!(merged.batches, whole.batches);
        }
        let (one, other) = (&merged.coverage, &whole.coverage);
        assert_eq!((one.rows, one.bytes, one.files), (other.rows, other.bytes, other.files));
        assert!(one.complete && one.mergeable);
        assert_eq!(one.estimates, other.estimates);
        // Of two merged into one, and that with the third: the same again.
        let pair = folder.path().join("pair.part");
        let two = Merge::new(&parts[..2], &settings()).unwrap();
        two.run_partial(&pair, false, &RunId::new()).unwrap();
        let again = merge(&[pair, parts[2].clone()], &settings()).unwrap();
        assert_eq!(again.batches, whole.batches);
        assert_eq!(again.coverage.rows, whole.coverage.rows);
    }
}

#[test]
fn what_follows_the_aggregation_is_done_after_the_merge() {
    let folder = Folder::new();
    for part in 0..2 {
        events(&folder, &format!("{part}.csv"), part, 500, 40);
    }
    let sql = "SELECT k, count(*) * 2 AS twice FROM source GROUP BY k HAVING count(*) > 20 \
        ORDER BY twice DESC, k LIMIT 7";
    let whole = Plan::new(&job(&folder, sql, "?.csv"), &settings()).unwrap().run().unwrap();
    let parts = [0, 1].map(|p| keep(&folder, sql, &format!("{p}.csv"), &format!("{p}.part")));
    let merged = merge(&parts, &settings()).unwrap();
    assert_eq!(merged.rows(), answered(whole).unwrap().rows());
    assert_eq!(merged.rows().len(), 7);
}

#[test]
fn tables_of_different_questions_are_not_merged() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\n");
    folder.write("b.csv", "k,x\na,1.5\n");
    let sum = "SELECT k, sum(x) FROM source GROUP BY k";
    let a = keep(&folder, sum, "a.csv", "a.part");
    for (other, pattern, expected) in [
        ("SELECT k, max(x) FROM source GROUP BY k", "a.csv", "of different queries"),
        (sum, "b.csv", "of different tables"),
    ] {
        let b = folder.path().join("b.part");
        let _ = std::fs::remove_file(&b);
        keep(&folder, other, pattern, "b.part");
        let error = Merge::new(&[a.clone(), b], &settings()).err().unwrap();
        let message = error.to_string();
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("a.part") && message.contains("b.part"), "{message}");
    }
    for sql in ["SELECT x FROM source", "SELECT x FROM source ORDER BY x"] {
        let plan = Plan::new(&job(&folder, sql, "a.csv"), &settings()).unwrap();
        let error = plan.run_partial(&folder.path().join("c.part"), false, &RunId::new());
        assert!(error.unwrap_err().to_string().contains("one aggregation over one source"));
        assert!(!folder.path().join("c.part").exists());
    }
    assert!(Merge::new(&[], &settings()).is_err());
    let missing = Merge::new(&[folder.path().join("no.part")], &settings()).err().unwrap();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    let other = Merge::new(&[folder.path().join("a.csv")], &settings()).err().unwrap();
    assert!(other.to_string().contains("is damaged"), "{other}");
}

fn refused(folder: &Folder, bytes: &[u8], what: &str) -> String {
    let path = folder.write("damaged.part", bytes);
    match merge(&[path], &settings()) {
        Ok(answer) => panic!("{what}: answered {:?}", answer.rows()),
        Err(error @ Error::Corrupt { .. }) => error.to_string(),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn no_damaged_byte_goes_unnoticed() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\nb,2\na,5\n");
    let sql = "SELECT k, count(*) AS n, avg(x) AS m, unique(x) AS u FROM source GROUP BY k";
    let path = keep(&folder, sql, "a.csv", "a.part");
    let sound = std::fs::read(&path).unwrap();
    assert!(sound.len() < 20_000, "{} bytes are too many to damage each", sound.len());
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= [0x01, 0x02, 0x80][at % 3];
        let message = refused(&folder, &bytes, &format!("byte {at}"));
        assert!(message.contains("damaged.part"), "{message}");
    }
    for length in 0..sound.len() {
        refused(&folder, &sound[..length], &format!("cut to {length}"));
    }
    let message = refused(&folder, &[&sound[..], b"x"].concat(), "a byte more");
    assert!(message.contains("follow its end"), "{message}");
    let twice = [&sound[..], &sound[..]].concat();
    refused(&folder, &twice, "twice");
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\n");
    let path = keep(&folder, "SELECT k, count(*) FROM source GROUP BY k", "a.csv", "a.part");
    let mut bytes = std::fs::read(path).unwrap();
    bytes[8] = 3;
    let message = refused(&folder, &bytes, "version 3");
    assert!(message.contains("version 3") && message.contains("newer tidemill"), "{message}");
    bytes[8] = 0;
    let message = refused(&folder, &bytes, "version 0");
    assert!(message.contains("version 0") && !message.contains("newer"), "{message}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_that_fails_leaves_no_partial_table() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\na,0\n");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let sql = "SELECT k, sum(1 / x) FROM source GROUP BY k";
    let plan = Plan::new(&job(&folder, sql, "a.csv"), &settings()).unwrap();
    let error = plan.run_partial(&out.join("a.part"), false, &RunId::new()).unwrap_err();
    assert!(error.to_string().contains("by zero"), "{error}");
    assert_eq!(names(&out), [""; 0]);
    let sql = "SELECT k, sum(x) FROM source GROUP BY k";
    let kept = |overwrite| {
        let plan = Plan::new(&job(&folder, sql, "a.csv"), &settings()).unwrap();
        plan.run_partial(&out.join("a.part"), overwrite, &RunId::new())
    };
    kept(false).unwrap();
    assert_eq!(names(&out), ["a.part"]);
    assert!(matches!(kept(false), Err(Error::Exists { .. })));
    kept(true).unwrap();
    assert_eq!(names(&out), ["a.part"]);
}

#[test]
fn the_same_input_gives_the_same_file() {
    let folder = Folder::new();
    events(&folder, "a.csv", 1, 20_000, 3000);
    let one = std::fs::read(keep(&folder, SQL, "a.csv", "1.part")).unwrap();
    let two = std::fs::read(keep(&folder, SQL, "a.csv", "2.part")).unwrap();
    assert!(one == two);
}
