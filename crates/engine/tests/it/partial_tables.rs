//! Tests of partial tables: writing, merging and damage.

use std::path::{Path, PathBuf};

use arrow::datatypes::Schema;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{
    Error, NamedSource, PartialTableMerge, Query, QueryPlan, RepeatedRunPolicy, Result, RunId,
    RunProgress, RunSettings,
};

use crate::common::{Folder, QueryAnswer, Random, collect_answer, settings};

const GROUP_SQL: &str = "SELECT k, count(*) AS n, count(x) FILTER (WHERE x > 3) AS p, sum(x) AS sx, \
    sum(f) AS sf, avg(f) AS mf, avg(x) AS mx, min(s) AS a, max(f) AS b, unique(s) AS u, \
    top_k(s, 2) AS t, quantile(f, 0.5) AS q1, quantile(f, 0.1, 0.9) AS q2, collect(s, 3) AS c, \
    stddev(f) AS d, var_pop(f) AS v, corr(x, f) AS r, regr_count(f, x) AS n2, var(x) AS vx, \
    median(f) AS md, median(x) AS mx2 \
    FROM source GROUP BY k";

fn write_events(folder: &Folder, name: &str, seed: u64, rows: usize, keys: u64) {
    let mut random = Random(seed);
    let mut out = String::from("k,x,f,s\n");
    for _ in 0..rows {
        let (k, x) = (random.next_below(keys), random.next_below(10));
        let (f, s) = (random.next_below(100_000) as f64 / 1e3, random.next_below(6));
        out.push_str(&format!("key {k},{x},{f},a string of some length {s}\n"));
    }
    folder.write(name, out);
}

fn source_query(folder: &Folder, sql: &str, pattern: &str) -> Query {
    let url = folder.substitute_path(&format!("$/{pattern}"));
    let spec = SourceSpec { url, ..SourceSpec::default() };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    let typed = sql == GROUP_SQL;
    let schema = typed.then(|| "k VARCHAR, x BIGINT, f DOUBLE, s VARCHAR".to_string());
    Query { sources, sql: sql.into(), schema, ..Query::default() }
}

fn write_partial_table(folder: &Folder, sql: &str, pattern: &str, out: &str) -> PathBuf {
    let plan = QueryPlan::new(&source_query(folder, sql, pattern), &settings()).unwrap();
    let out = folder.path().join(out);
    plan.write_partial_table(&out, false, &RunId::new()).unwrap();
    out
}

fn merge_partial_tables(partials: &[PathBuf], settings: &RunSettings) -> Result<QueryAnswer> {
    collect_answer(PartialTableMerge::new(partials, settings)?.run()?)
}

#[test]
fn merged_partial_tables_equal_the_whole() {
    for (rows, keys, memory) in [(60, 5, 64 << 20), (3000, 900, 1 << 16), (0, 1, 64 << 20)] {
        let folder = Folder::new();
        for part in 0..3 {
            write_events(&folder, &format!("{part}.csv"), part, rows, keys);
        }
        let whole = QueryPlan::new(&source_query(&folder, GROUP_SQL, "?.csv"), &settings())
            .unwrap()
            .run()
            .unwrap();
        let whole = collect_answer(whole).unwrap();
        let parts: Vec<PathBuf> = (0..3)
            .map(|part| {
                write_partial_table(
                    &folder,
                    GROUP_SQL,
                    &format!("{part}.csv"),
                    &format!("{part}.part"),
                )
            })
            .collect();
        let progress = RunProgress::new();
        let small = RunSettings { memory_bytes: memory, progress: progress.clone(), ..settings() };
        let merged = merge_partial_tables(&parts, &small).unwrap();
        assert_eq!(progress.spilled_bytes() > 0, memory < 1 << 20);
        if memory < 1 << 20 {
            assert_eq!(merged.sorted_rows(), whole.sorted_rows());
        } else {
            assert_eq!(merged.batches, whole.batches);
        }
        let (one, other) = (&merged.coverage, &whole.coverage);
        assert_eq!((one.rows, one.bytes, one.files), (other.rows, other.bytes, other.files));
        assert!(one.complete && one.mergeable);
        assert_eq!(one.estimates, other.estimates);
        // Two tables merged into one, and that one with the third, give the same again.
        let pair = folder.path().join("pair.part");
        let two = PartialTableMerge::new(&parts[..2], &settings()).unwrap();
        two.write_partial_table(&pair, false, &RunId::new()).unwrap();
        let again = merge_partial_tables(&[pair, parts[2].clone()], &settings()).unwrap();
        assert_eq!(again.batches, whole.batches);
        assert_eq!(again.coverage.rows, whole.coverage.rows);
    }
}

#[test]
fn finish_plan_runs_after_the_merge() {
    let folder = Folder::new();
    for part in 0..2 {
        write_events(&folder, &format!("{part}.csv"), part, 500, 40);
    }
    let sql = "SELECT k, count(*) * 2 AS twice FROM source GROUP BY k HAVING count(*) > 20 \
        ORDER BY twice DESC, k LIMIT 7";
    let whole =
        QueryPlan::new(&source_query(&folder, sql, "?.csv"), &settings()).unwrap().run().unwrap();
    let parts = [0, 1]
        .map(|p| write_partial_table(&folder, sql, &format!("{p}.csv"), &format!("{p}.part")));
    let merged = merge_partial_tables(&parts, &settings()).unwrap();
    assert_eq!(merged.rows(), collect_answer(whole).unwrap().rows());
    assert_eq!(merged.rows().len(), 7);
}

#[test]
fn partial_tables_of_different_queries_are_refused() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\n");
    folder.write("b.csv", "k,x\na,1.5\n");
    let sum = "SELECT k, sum(x) FROM source GROUP BY k";
    let a = write_partial_table(&folder, sum, "a.csv", "a.part");
    for (other, pattern, expected) in [
        ("SELECT k, max(x) FROM source GROUP BY k", "a.csv", "of different queries"),
        (sum, "b.csv", "of different tables"),
    ] {
        let b = folder.path().join("b.part");
        let _ = std::fs::remove_file(&b);
        write_partial_table(&folder, other, pattern, "b.part");
        let error = PartialTableMerge::new(&[a.clone(), b], &settings()).err().unwrap();
        let message = error.to_string();
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("a.part") && message.contains("b.part"), "{message}");
    }
    for sql in ["SELECT x FROM source", "SELECT x FROM source ORDER BY x"] {
        let plan = QueryPlan::new(&source_query(&folder, sql, "a.csv"), &settings()).unwrap();
        let error = plan.write_partial_table(&folder.path().join("c.part"), false, &RunId::new());
        assert!(error.unwrap_err().to_string().contains("one aggregation over one source"));
        assert!(!folder.path().join("c.part").exists());
    }
    assert!(PartialTableMerge::new(&[], &settings()).is_err());
    let missing =
        PartialTableMerge::new(&[folder.path().join("no.part")], &settings()).err().unwrap();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    let other = PartialTableMerge::new(&[folder.path().join("a.csv")], &settings()).err().unwrap();
    assert!(other.to_string().contains("is damaged"), "{other}");
}

fn corruption_message(folder: &Folder, bytes: &[u8], what: &str) -> String {
    let path = folder.write("damaged.part", bytes);
    match merge_partial_tables(&[path], &settings()) {
        Ok(answer) => panic!("{what}: answered {:?}", answer.rows()),
        Err(error @ Error::Corrupt { .. }) => error.to_string(),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn every_damaged_byte_is_detected() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\nb,2\na,5\n");
    let sql = "SELECT k, count(*) AS n, avg(x) AS m, unique(x) AS u FROM source GROUP BY k";
    let path = write_partial_table(&folder, sql, "a.csv", "a.part");
    let sound = std::fs::read(&path).unwrap();
    assert!(sound.len() < 20_000, "{} bytes are too many to damage each", sound.len());
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= [0x01, 0x02, 0x80][at % 3];
        let message = corruption_message(&folder, &bytes, &format!("byte {at}"));
        assert!(message.contains("damaged.part"), "{message}");
    }
    // Truncated lengths inside a section are alike, so few of them are tried.
    let (mut ends, mut end) = (vec![0, 12], 12);
    while let Some(length) = sound.get(end + 1..end + 9) {
        end += 13 + u64::from_le_bytes(length.try_into().unwrap()) as usize;
        ends.push(end);
    }
    assert_eq!(end, sound.len());
    let is_near = |length: usize| ends.iter().any(|end| length.abs_diff(*end) < 20);
    for length in (0..sound.len()).filter(|length| length % 23 == 0 || is_near(*length)) {
        corruption_message(&folder, &sound[..length], &format!("cut to {length}"));
    }
    let message = corruption_message(&folder, &[&sound[..], b"x"].concat(), "a byte more");
    assert!(message.contains("follow its end"), "{message}");
    let twice = [&sound[..], &sound[..]].concat();
    corruption_message(&folder, &twice, "twice");
}

/// Computes the CRC-32 of gzip, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

#[test]
fn damage_with_a_valid_checksum_causes_no_internal_error() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\nb,2\na,5\n");
    let sql = "SELECT k, sum(x) AS s, median(x) AS m, stddev(x) AS d FROM source GROUP BY k";
    let sound = std::fs::read(write_partial_table(&folder, sql, "a.csv", "a.part")).unwrap();
    let mut section = 12;
    while section < sound.len() {
        let length = u64::from_le_bytes(sound[section + 1..section + 9].try_into().unwrap());
        let content = section + 13..section + 13 + length as usize;
        // A merge reads all of the damaged bytes but the header's text, whose words are the query's.
        for at in content.clone().step_by(3) {
            let mut bytes = sound.clone();
            bytes[at] ^= [0x01, 0x10, 0x80, 0xff][at % 4];
            let sum = crc32(&[&bytes[section..section + 9], &bytes[content.clone()]].concat());
            bytes[section + 9..section + 13].copy_from_slice(&sum.to_le_bytes());
            let path = folder.write("damaged.part", &bytes);
            let message =
                merge_partial_tables(&[path], &settings()).err().map(|error| error.to_string());
            let is_fault =
                message.as_ref().is_some_and(|message| message.contains("internal error"));
            assert!(!is_fault, "byte {at}: {message:?}");
        }
        section = content.end;
    }
}

/// Returns the sections of a partial table, each with its head.
fn split_sections(table: &[u8]) -> Vec<&[u8]> {
    let (mut sections, mut at) = (Vec::new(), 12);
    while at < table.len() {
        let length = u64::from_le_bytes(table[at + 1..at + 9].try_into().unwrap()) as usize;
        sections.push(&table[at..at + 13 + length]);
        at += 13 + length;
    }
    sections
}

#[test]
fn group_sections_of_another_table_are_refused_by_file_name() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\nb,2\na,5\n");
    let read = |sql: &str, out: &str| {
        std::fs::read(write_partial_table(&folder, sql, "a.csv", out)).unwrap()
    };
    let few = read("SELECT k, count(*) AS n FROM source GROUP BY k", "a.part");
    let many = read("SELECT k, count(*) AS n, max(x) AS m FROM source GROUP BY k", "b.part");
    for (own, other, columns) in [(&few, &many, "3 columns"), (&many, &few, "2 columns")] {
        let mut forged = own[..12].to_vec();
        let of = |table: &[u8], is_of_groups: bool| -> Vec<Vec<u8>> {
            let sections = split_sections(table).into_iter();
            sections
                .filter(|section| (section[0] == b'G') == is_of_groups)
                .map(<[u8]>::to_vec)
                .collect()
        };
        let mut around = of(own, false);
        let end = around.pop().unwrap();
        around.extend(of(other, true));
        around.push(end);
        forged.extend(around.concat());
        let message = corruption_message(&folder, &forged, columns);
        assert!(message.contains("damaged.part") && message.contains(columns), "{message}");
    }
}

#[test]
fn newer_version_is_refused_by_its_number() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\n");
    let path = write_partial_table(
        &folder,
        "SELECT k, count(*) FROM source GROUP BY k",
        "a.csv",
        "a.part",
    );
    let mut bytes = std::fs::read(path).unwrap();
    bytes[8] = 4;
    let message = corruption_message(&folder, &bytes, "version 4");
    assert!(message.contains("version 4") && message.contains("newer tidemill"), "{message}");
    bytes[8] = 0;
    let message = corruption_message(&folder, &bytes, "version 0");
    assert!(message.contains("version 0") && !message.contains("newer"), "{message}");
    for earlier in [1, 2] {
        bytes[8] = earlier;
        let message = corruption_message(&folder, &bytes, "an earlier version with runs");
        assert!(message.contains("version is not that of its header"), "{message}");
    }
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn failed_run_leaves_no_partial_table() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\na,0\n");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let sql = "SELECT k, sum(1 / x) FROM source GROUP BY k";
    let plan = QueryPlan::new(&source_query(&folder, sql, "a.csv"), &settings()).unwrap();
    let error = plan.write_partial_table(&out.join("a.part"), false, &RunId::new()).unwrap_err();
    assert!(error.to_string().contains("by zero"), "{error}");
    assert_eq!(file_names(&out), [""; 0]);
    let sql = "SELECT k, sum(x) FROM source GROUP BY k";
    let kept = |overwrite| {
        let plan = QueryPlan::new(&source_query(&folder, sql, "a.csv"), &settings()).unwrap();
        plan.write_partial_table(&out.join("a.part"), overwrite, &RunId::new())
    };
    kept(false).unwrap();
    assert_eq!(file_names(&out), ["a.part"]);
    assert!(matches!(kept(false), Err(Error::OutputExists { .. })));
    kept(true).unwrap();
    assert_eq!(file_names(&out), ["a.part"]);
}

#[test]
fn same_input_gives_byte_identical_partial_tables() {
    let folder = Folder::new();
    write_events(&folder, "a.csv", 1, 20_000, 3000);
    let run = RunId::new();
    let kept = |name: &str| {
        let out = folder.path().join(name);
        let plan = QueryPlan::new(&source_query(&folder, GROUP_SQL, "a.csv"), &settings()).unwrap();
        plan.write_partial_table(&out, false, &run).unwrap();
        std::fs::read(out).unwrap()
    };
    assert!(kept("1.part") == kept("2.part"));
}

#[test]
fn rows_of_a_run_merge_once_unless_repeats_are_allowed() {
    let folder = Folder::new();
    let sql = "SELECT k, count(*) AS n FROM source GROUP BY k";
    let [a, b] = ["a", "b"].map(|name| {
        folder.write(&format!("{name}.csv"), "k\nx\ny\n");
        write_partial_table(&folder, sql, &format!("{name}.csv"), &format!("{name}.part"))
    });
    let copy = folder.path().join("copy.part");
    std::fs::copy(&a, &copy).unwrap();
    let both = folder.path().join("both.part");
    let merged = PartialTableMerge::new(&[a.clone(), b.clone()], &settings()).unwrap();
    merged.write_partial_table(&both, false, &RunId::new()).unwrap();
    let counts = |parts: &[&PathBuf], repeats| -> Result<Vec<String>> {
        let parts: Vec<PathBuf> = parts.iter().map(PathBuf::from).collect();
        let merge = PartialTableMerge::open_with_repeat_policy(&parts, repeats, &settings())?;
        Ok(collect_answer(merge.run()?)?.rows().into_iter().map(|row| row[1].clone()).collect())
    };
    for (parts, message) in [
        (&[&a, &a][..], "a.part` is given twice"),
        (&[&a, &copy], "copy.part` both hold the rows of run"),
        (&[&a, &both], "both.part` both hold the rows of run"),
        (&[&both, &b], "b.part` both hold the rows of run"),
    ] {
        let error = counts(parts, RepeatedRunPolicy::Refuse).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("--allow-repeats"), "{error}");
        let twice = counts(parts, RepeatedRunPolicy::Allow).unwrap();
        let expected = parts.len() + parts.iter().filter(|part| **part == &both).count();
        assert_eq!(twice, [expected.to_string(), expected.to_string()]);
    }
    assert_eq!(counts(&[&a, &b], RepeatedRunPolicy::Refuse).unwrap(), ["2", "2"]);
    assert_eq!(counts(&[&both], RepeatedRunPolicy::Refuse).unwrap(), ["2", "2"]);
}

/// Converts a table to the format of earlier releases: with `sql` as its query, and without its runs.
fn to_version_1(bytes: &[u8], sql: &str, source: &str) -> Vec<u8> {
    let mut old = bytes[..12].to_vec();
    old[8] = 1;
    let mut at = 12;
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
        let content = &bytes[at + 13..at + 13 + length];
        let content = match bytes[at] {
            b'H' => {
                let schema = StreamReader::try_new(content, None).unwrap().schema();
                let mut metadata = schema.metadata().clone();
                metadata.remove("tidemill.runs").unwrap();
                metadata.insert("tidemill.sql".into(), sql.into());
                metadata.insert("tidemill.source".into(), source.into());
                let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
                let mut stream = StreamWriter::try_new(Vec::new(), &schema).unwrap();
                stream.finish().unwrap();
                stream.into_inner().unwrap()
            }
            _ => content.to_vec(),
        };
        let mut head = vec![bytes[at]];
        head.extend((content.len() as u64).to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head);
        sum.update(&content);
        head.extend(sum.finalize().to_le_bytes());
        old.extend(head);
        old.extend(content);
        at += 13 + length;
    }
    old
}

#[test]
fn version_1_partial_tables_merge_and_are_deduplicated_by_content() {
    let folder = Folder::new();
    let sql = "SELECT k, count(*) AS n FROM source GROUP BY k";
    let old = |name: &str, rows: &str, sql: &str, source: &str| {
        folder.write(&format!("{name}.csv"), rows);
        let kept = "SELECT k, count(*) AS n FROM source GROUP BY k";
        let part =
            write_partial_table(&folder, kept, &format!("{name}.csv"), &format!("{name}.new"));
        let bytes = to_version_1(&std::fs::read(part).unwrap(), sql, source);
        folder.write(&format!("{name}.part"), bytes)
    };
    let a = old("a", "k\nx\n", sql, "source");
    let b = old("b", "k\nx\nx\n", sql, "source");
    let new = folder.path().join("b.new");
    let both = folder.path().join("both.part");
    let merged = PartialTableMerge::new(&[a.clone(), b.clone()], &settings()).unwrap();
    merged.write_partial_table(&both, false, &RunId::new()).unwrap();
    assert_eq!(
        merge_partial_tables(std::slice::from_ref(&both), &settings()).unwrap().rows(),
        [["x", "3"]]
    );
    assert_eq!(merge_partial_tables(&[a.clone(), new], &settings()).unwrap().rows(), [["x", "3"]]);
    for parts in [[&a, &a], [&a, &both], [&both, &b]] {
        let error =
            merge_partial_tables(&parts.map(Clone::clone), &settings()).err().unwrap().to_string();
        assert!(error.contains("would count twice"), "{error}");
    }
    // The stored text may be secret: it is not shown, and the tables are merged.
    let hidden = "http://h/x.csv?…";
    let signed = |signature: &str| {
        format!("SELECT k, count(*) AS n FROM 'http://u:PW@h/x.csv?sig={signature}' GROUP BY k")
    };
    let one = old("one", "k\nx\n", &signed("SECRET"), hidden);
    let two = old("two", "k\nx\ny\n", &signed("OTHER"), hidden);
    let merged = merge_partial_tables(&[one.clone(), two], &settings()).unwrap();
    assert_eq!(merged.sorted_rows(), [["x", "2"], ["y", "1"]]);
    let error = merge_partial_tables(&[one, a], &settings()).err().unwrap().to_string();
    assert!(error.contains("h/x.csv") && error.contains("different queries"), "{error}");
    assert!(!error.contains("SECRET") && !error.contains("PW"), "{error}");
}
