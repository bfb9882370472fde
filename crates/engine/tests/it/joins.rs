//! Tests of joins: their path, their agreement with nested loops, and the build sides in memory.

use std::collections::BTreeMap;
use std::io::Write as _;

use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunSettings};

use crate::common::{Folder, Random, collect_answer, query, settings};

const TABLE_PATH: &str = "partial tables";
const ROW_PATH: &str = "rows";
const ENGINE_PATH: &str = "datafusion";

type JoinKey = Option<u64>;

/// `big.csv` of several splits and `small.csv`, with keys of both among the same few: some null, some without
/// a match, some twice.
struct JoinTables {
    folder: Folder,
    big: Vec<(u64, JoinKey)>,
    small: Vec<(JoinKey, u64)>,
}

fn join_tables(seed: u64, rows: u64) -> JoinTables {
    let mut random = Random(seed);
    let folder = Folder::new();
    let mut key = |of: u64| Some(random.next_below(of)).filter(|key| *key > 0);
    let big: Vec<(u64, JoinKey)> = (0..rows).map(|id| (id, key(12))).collect();
    let small: Vec<(JoinKey, u64)> = (0..9).map(|rank| (key(9), rank)).collect();
    let shown = |key: JoinKey| key.map(|key| key.to_string()).unwrap_or_default();
    let padding = "x".repeat(200);
    let mut text = String::from("id,k,note\n");
    for (id, k) in &big {
        // Quoted line ends make the split boundaries speculative.
        text.push_str(&format!("{id},{},\"a\n{padding}\"\n", shown(*k)));
    }
    folder.write("big.csv", text);
    let mut text = String::from("k,rank\n");
    small.iter().for_each(|(k, rank)| text.push_str(&format!("{},{rank}\n", shown(*k))));
    folder.write("small.csv", text);
    JoinTables { folder, big, small }
}

impl JoinTables {
    /// Returns the pairs of an id and a rank that a nested loop finds.
    fn nested_loop_pairs(&self, matches: impl Fn(JoinKey, JoinKey) -> bool) -> Vec<(u64, u64)> {
        let pairs = self.big.iter().flat_map(|(id, k)| {
            let partners = self.small.iter().filter(|(other, _)| matches(*k, *other));
            partners.map(|(_, rank)| (*id, *rank)).collect::<Vec<_>>()
        });
        pairs.collect()
    }

    fn assert_join(&self, sql: &str, path: &str, expected: impl IntoIterator<Item = Vec<String>>) {
        let sql = self.folder.substitute_path(sql);
        let plan =
            QueryPlan::new(&query(&sql), &settings()).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let explain = plan.explain().unwrap();
        assert_eq!(explain.path, path, "{sql}: {}", explain.why);
        // A source joined to the finished table is absent where tables are merged.
        assert!(!explain.mergeable || path == TABLE_PATH, "{sql}");
        let answer = collect_answer(plan.run().unwrap()).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let mut expected: Vec<_> = expected.into_iter().collect();
        let rows = match path {
            // In the order of the stream; the matches of one record in any order.
            ROW_PATH => {
                let ids = |rows: &[Vec<String>]| -> Vec<String> {
                    rows.iter().map(|row| row[0].clone()).collect()
                };
                let (mut found, expected) = (ids(&answer.rows()), ids(&expected));
                if sql.contains("LEFT") || sql.contains("RIGHT") {
                    // Records without a match follow the others of their batch.
                    assert!(found != expected, "{sql}: the order is kept, say so");
                    found.sort_by_key(|id| id.parse::<u64>().unwrap());
                }
                assert!(found == expected, "{sql}: the order differs");
                answer.sorted_rows()
            }
            _ => answer.sorted_rows(),
        };
        expected.sort();
        assert!(rows == expected, "{sql}: {} rows for {}", rows.len(), expected.len());
        let coverage = answer.coverage;
        assert!(coverage.complete && coverage.splits.done == coverage.splits.total, "{sql}");
        assert_eq!(coverage.mergeable, explain.mergeable, "{sql}");
        assert_eq!(coverage.files, 2);
    }
}

fn number_row(values: &[u64]) -> Vec<String> {
    values.iter().map(u64::to_string).collect()
}

/// Returns a row of both numbers, the second of which can be null.
fn outer_row(id: u64, rank: Option<u64>) -> Vec<String> {
    vec![id.to_string(), rank.map_or("∅".into(), |rank| rank.to_string())]
}

fn count_by_rank(pairs: impl IntoIterator<Item = Option<u64>>) -> Vec<Vec<String>> {
    let mut counts: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    pairs.into_iter().for_each(|rank| *counts.entry(rank).or_default() += 1);
    let shown = |rank: Option<u64>| rank.map_or("∅".to_string(), |rank| rank.to_string());
    counts.into_iter().map(|(rank, count)| vec![shown(rank), count.to_string()]).collect()
}

#[test]
fn joins_with_a_small_table_run_per_split_and_match_nested_loops() {
    for seed in 0..3 {
        let data = join_tables(seed, 12_000);
        let equal = data.nested_loop_pairs(|a, b| a.is_some() && a == b);
        let less = data.nested_loop_pairs(|a, b| matches!((a, b), (Some(a), Some(b)) if a < b));
        let has_partner = |id: u64| equal.binary_search_by_key(&id, |pair| pair.0).is_ok();
        let left = || {
            data.big.iter().flat_map(|(id, _)| {
                let own: Vec<_> = equal.iter().filter(|pair| pair.0 == *id).collect();
                match own.is_empty() {
                    true => vec![(*id, None)],
                    false => own.into_iter().map(|pair| (*id, Some(pair.1))).collect(),
                }
            })
        };
        let inner = "'$/big.csv' b JOIN '$/small.csv' s ON b.k = s.k";
        let flipped = "'$/small.csv' s JOIN '$/big.csv' b ON b.k = s.k";
        for from in [inner, flipped, "'$/big.csv' b, '$/small.csv' s WHERE b.k = s.k"] {
            let pairs = equal.iter().map(|(id, rank)| number_row(&[*id, *rank]));
            data.assert_join(&format!("SELECT id, rank FROM {from}"), ROW_PATH, pairs);
            data.assert_join(
                &format!("SELECT rank, count(*) FROM {from} GROUP BY rank"),
                TABLE_PATH,
                count_by_rank(equal.iter().map(|pair| Some(pair.1))),
            );
        }
        for from in [
            "'$/big.csv' b LEFT JOIN '$/small.csv' s ON b.k = s.k",
            "'$/small.csv' s RIGHT JOIN '$/big.csv' b ON b.k = s.k",
        ] {
            let pairs = left().map(|(id, rank)| outer_row(id, rank));
            data.assert_join(&format!("SELECT id, rank FROM {from}"), ROW_PATH, pairs);
            data.assert_join(
                &format!("SELECT rank, count(*) FROM {from} GROUP BY rank"),
                TABLE_PATH,
                count_by_rank(left().map(|pair| pair.1)),
            );
        }
        data.assert_join(
            "SELECT rank, count(*) FROM '$/big.csv' b JOIN '$/small.csv' s ON b.k < s.k GROUP BY rank",
            TABLE_PATH,
            count_by_rank(less.iter().map(|pair| Some(pair.1))),
        );
        let ids = |wanted: &dyn Fn(u64) -> bool| -> Vec<Vec<String>> {
            let ids = data.big.iter().filter(|(id, _)| wanted(*id));
            ids.map(|(id, _)| number_row(&[*id])).collect()
        };
        let exists = "EXISTS (SELECT 1 FROM '$/small.csv' s WHERE s.k = b.k)";
        for (condition, path, expected) in [
            (exists.to_string(), ROW_PATH, ids(&has_partner)),
            ("k IN (SELECT k FROM '$/small.csv')".to_string(), ROW_PATH, ids(&has_partner)),
            (format!("NOT {exists}"), ROW_PATH, ids(&|id| !has_partner(id))),
            (
                format!("{exists} OR id % 7 = 0"),
                ROW_PATH,
                ids(&|id| has_partner(id) || id % 7 == 0),
            ),
        ] {
            data.assert_join(
                &format!("SELECT id FROM '$/big.csv' b WHERE {condition}"),
                path,
                expected,
            );
        }
    }
}

#[test]
fn joins_that_need_all_splits_run_on_the_engine_path() {
    let data = join_tables(5, 3000);
    let equal = data.nested_loop_pairs(|a, b| a.is_some() && a == b);
    let matched: std::collections::BTreeSet<u64> = equal.iter().map(|pair| pair.1).collect();
    let unmatched = data.small.len() - matched.len();
    let (big, small) = ("'$/big.csv' b", "'$/small.csv' s ON b.k = s.k");
    let alone = data.big.iter().filter(|(id, _)| !equal.iter().any(|pair| pair.0 == *id)).count();
    for (from, count) in [
        (format!("{big} FULL JOIN {small}"), equal.len() + alone + unmatched),
        (format!("{big} RIGHT JOIN {small}"), equal.len() + unmatched),
    ] {
        let expected = [number_row(&[count as u64])];
        data.assert_join(&format!("SELECT count(*) FROM {from}"), ENGINE_PATH, expected);
    }
    // With a null among the values, `NOT IN` is true of no row.
    let none = data.small.iter().any(|(k, _)| k.is_none());
    let in_none = data
        .big
        .iter()
        .filter(|(_, k)| !none && k.is_some() && !data.small.iter().any(|(other, _)| other == k));
    data.assert_join(
        "SELECT count(*) FROM '$/big.csv' WHERE k NOT IN (SELECT k FROM '$/small.csv')",
        ENGINE_PATH,
        [number_row(&[in_none.count() as u64])],
    );
}

#[test]
fn several_build_sides_are_held_in_memory() {
    let data = join_tables(7, 6000);
    data.folder.write("names.csv", "rank,name\n0,zero\n1,one\n2,two\n3,one\n");
    let sql = "SELECT n.name, count(*) AS c, sum(best.most) AS m FROM '$/big.csv' b \
        JOIN '$/small.csv' s ON b.k = s.k LEFT JOIN '$/names.csv' n USING (rank) \
        JOIN (SELECT k, max(rank) AS most FROM '$/small.csv' GROUP BY k) best ON best.k = b.k \
        GROUP BY n.name";
    let plan = QueryPlan::new(&query(data.folder.substitute_path(sql)), &settings()).unwrap();
    let explain = plan.explain().unwrap();
    assert_eq!(explain.path, TABLE_PATH, "{}", explain.why);
    let held = explain.steps.iter().filter(|(name, _)| name.starts_with("held")).count();
    assert_eq!(held, 3, "{explain}");
    assert!(explain.why.contains("big.csv`; `"), "{}", explain.why);

    let mut expected: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (_, k) in data.big.iter().filter(|(_, k)| k.is_some()) {
        let own = data.small.iter().filter(|(other, _)| other == k);
        let most = own.clone().map(|(_, rank)| *rank).max().unwrap_or(0);
        for (_, rank) in own {
            let name = ["zero", "one", "two", "one"].get(*rank as usize).unwrap_or(&"∅");
            let entry = expected.entry(name).or_default();
            *entry = (entry.0 + 1, entry.1 + most);
        }
    }
    let expected: Vec<Vec<String>> = expected
        .into_iter()
        .map(|(name, (count, most))| vec![name.into(), count.to_string(), most.to_string()])
        .collect();
    let mut expected = expected;
    expected.sort();
    assert_eq!(collect_answer(plan.run().unwrap()).unwrap().sorted_rows(), expected);
}

#[test]
fn join_above_the_aggregation_keeps_the_table_path() {
    let data = join_tables(8, 3000);
    let counts = count_by_rank(data.big.iter().map(|(_, k)| *k));
    let expected = data.small.iter().filter_map(|(k, rank)| {
        let k = (*k)?.to_string();
        let count = counts.iter().find(|count| count[0] == k)?;
        Some(vec![rank.to_string(), count[1].clone()])
    });
    let sql = "SELECT rank, n FROM (SELECT k, count(*) AS n FROM '$/big.csv' GROUP BY k) c \
        JOIN '$/small.csv' s ON s.k = c.k";
    data.assert_join(sql, TABLE_PATH, expected);
    let plan = QueryPlan::new(&query(data.folder.substitute_path(sql)), &settings()).unwrap();
    let why = plan.explain().unwrap().why;
    assert!(why.contains("small.csv` read for the finished table"), "{why}");
    let out = data.folder.path().join("a.part");
    let error = plan.write_partial_table(&out, false, &RunId::new()).unwrap_err().to_string();
    assert!(error.contains("small.csv` is needed to finish the table"), "{error}");
    assert!(!out.exists());
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn oversized_build_side_falls_back_to_the_engine_path() {
    let data = join_tables(9, 100_000);
    // Next to nothing as stored, and more than an eighth of the budget in memory.
    let mut text = String::from("k,rank,note\n1,2,one,field,too,many\n");
    let note = "y".repeat(40);
    for rank in 0..500_000 {
        text.push_str(&format!("{},{},{note}\n", 5 + rank % 4 * 100, rank % 2));
    }
    data.folder.write("dense.csv.gz", gzip(&text));
    let sql = "SELECT rank, count(*), count(d.note) FROM '$/big.csv' b JOIN '$/dense.csv.gz' d \
        ON b.k = d.k WHERE b.id < 60 GROUP BY rank";
    let folder = data.folder.path().join("run");
    let small = RunSettings {
        memory_bytes: 224 << 20,
        max_bad: BadRecordLimit::Count(1),
        rejected_folder: Some(folder.clone()),
        ..settings()
    };
    let plan = QueryPlan::new(&query(data.folder.substitute_path(sql)), &small).unwrap();
    let explain = plan.explain().unwrap();
    assert_eq!(explain.path, TABLE_PATH);
    assert!(explain.why.contains("dense.csv.gz` held in memory"), "{}", explain.why);
    let answer = collect_answer(plan.run().unwrap()).unwrap();
    let of_five = data.big.iter().take(60).filter(|(_, k)| *k == Some(5)).count() as u64;
    assert!(of_five > 0);
    let expected: Vec<_> = [number_row(&[0, of_five * 125_000, of_five * 125_000])].into();
    assert_eq!(answer.rows(), expected);
    // No record is counted twice, and the result names one path.
    let coverage = answer.coverage;
    assert!(!coverage.mergeable && coverage.complete);
    assert_eq!((coverage.rows.done, coverage.rows.rejected), (600_000, 1));
    let copies = std::fs::read_to_string(folder.join("rejected/1.jsonl")).unwrap();
    assert_eq!(copies.lines().count(), 1, "{copies}");

    let plan = QueryPlan::new(&query(data.folder.substitute_path(sql)), &small).unwrap();
    let out = data.folder.path().join("a.part");
    let error = plan.write_partial_table(&out, false, &RunId::new()).unwrap_err().to_string();
    assert!(error.contains("dense.csv.gz` takes more than"), "{error}");
    assert!(!out.exists());
}

#[test]
fn two_large_tables_join_on_the_engine_path() {
    let data = join_tables(10, 6000);
    let small = RunSettings { memory_bytes: 2 << 20, threads: 2, ..settings() };
    let sql = "SELECT count(*) FROM '$/big.csv' a JOIN '$/big.csv' b USING (id)";
    let plan = QueryPlan::new(&query(data.folder.substitute_path(sql)), &small).unwrap();
    let explain = plan.explain().unwrap();
    assert_eq!(explain.path, ENGINE_PATH);
    assert!(explain.why.contains("more than once"), "{}", explain.why);
}

fn join_query(folder: &Folder, events: &str) -> Query {
    let source = |name: &str, file: &str| {
        let spec = SourceSpec {
            url: folder.substitute_path(&format!("$/{file}")),
            ..SourceSpec::default()
        };
        NamedSource { name: name.into(), spec }
    };
    // The source that is read in splits is not the first.
    let sources = vec![source("airports", "airports.csv"), source("events", events)];
    let sql = "SELECT city, count(*) AS n, unique(who) AS u FROM events e JOIN airports a \
        ON e.airport = a.code GROUP BY city HAVING count(*) > 1 ORDER BY n DESC, city";
    Query { sql: sql.into(), sources, ..Query::default() }
}

fn write_events(folder: &Folder) -> [&'static str; 2] {
    folder.write("airports.csv", "code,city\nJFK,New York\nLGA,New York\nBOS,Boston\n");
    let mut one = String::from("airport,who\n");
    let mut two = one.clone();
    for at in 0..60 {
        one.push_str(&format!("{},{}\n", ["JFK", "BOS", "XYZ"][at % 3], at % 7));
        two.push_str(&format!("{},{}\n", ["LGA", "BOS"][at % 2], at % 11));
    }
    folder.write("one.csv", one);
    folder.write("two.csv", two);
    ["one.csv", "two.csv"]
}

#[test]
fn partial_tables_of_joins_merge() {
    let folder = Folder::new();
    let parts = write_events(&folder).map(|file| {
        let plan = QueryPlan::new(&join_query(&folder, file), &settings()).unwrap();
        let out = folder.path().join(format!("{file}.part"));
        plan.write_partial_table(&out, false, &RunId::new()).unwrap();
        out
    });
    let whole =
        QueryPlan::new(&join_query(&folder, "[ot]*.csv"), &settings()).unwrap().run().unwrap();
    let whole = collect_answer(whole).unwrap();
    // The merge needs none of the sources.
    std::fs::remove_file(folder.path().join("airports.csv")).unwrap();
    let merged =
        collect_answer(PartialTableMerge::new(&parts, &settings()).unwrap().run().unwrap())
            .unwrap();
    assert_eq!(merged.rows(), whole.rows());
    assert_eq!(merged.rows()[0][..2], ["Boston".to_string(), "50".to_string()]);
    let pair = folder.path().join("pair.part");
    let two = PartialTableMerge::new(&parts, &settings()).unwrap();
    two.write_partial_table(&pair, false, &RunId::new()).unwrap();
    let again =
        collect_answer(PartialTableMerge::new(&[pair], &settings()).unwrap().run().unwrap())
            .unwrap();
    assert_eq!(again.batches, merged.batches);
}

#[test]
fn every_damaged_byte_of_a_join_partial_table_is_detected() {
    let folder = Folder::new();
    let [file, _] = write_events(&folder);
    let path = folder.path().join("a.part");
    let plan = QueryPlan::new(&join_query(&folder, file), &settings()).unwrap();
    plan.write_partial_table(&path, false, &RunId::new()).unwrap();
    let sound = std::fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.part");
    let answer = |bytes: &[u8]| {
        std::fs::write(&damaged, bytes).unwrap();
        PartialTableMerge::new(std::slice::from_ref(&damaged), &settings())
            .and_then(|m| collect_answer(m.run()?))
    };
    answer(&sound).unwrap_or_else(|error| panic!("{error}"));
    for at in (0..sound.len()).chain([8, 8]) {
        let mut bytes = sound.clone();
        bytes[at] ^= [0x01, 0x03, 0x80][at % 3];
        assert!(answer(&bytes).is_err(), "byte {at}");
    }
    let mut bytes = sound.clone();
    bytes[8] = 1;
    assert!(answer(&bytes).is_err(), "an older version with a newer section");
    for length in 0..sound.len() {
        assert!(answer(&sound[..length]).is_err(), "cut to {length}");
    }
}

#[test]
fn join_stops_reading_at_its_limit() {
    let data = join_tables(11, 12_000);
    let left = "'$/big.csv' b LEFT JOIN '$/small.csv' s ON b.k = s.k";
    let inner = "'$/big.csv' b JOIN '$/small.csv' s ON b.k = s.k";
    let few = "(SELECT * FROM '$/big.csv' LIMIT 3) b JOIN '$/small.csv' s ON true";
    for (sql, path, count, is_cut_short) in [
        (format!("SELECT id, rank FROM {left} LIMIT 5"), ROW_PATH, 5, true),
        (format!("SELECT id, rank FROM {left} LIMIT 5 OFFSET 7"), ROW_PATH, 5, true),
        (format!("SELECT id, rank FROM {inner} LIMIT 5"), ROW_PATH, 5, true),
        // The plan keeps a limit of the query's own below the join.
        (format!("SELECT id, rank FROM {few} LIMIT 100"), ENGINE_PATH, 27, false),
        (format!("SELECT id, rank FROM {few}"), ENGINE_PATH, 27, false),
    ] {
        let plan = QueryPlan::new(&query(data.folder.substitute_path(&sql)), &settings()).unwrap();
        assert_eq!(plan.explain().unwrap().path, path, "{sql}");
        let answer = collect_answer(plan.run().unwrap()).unwrap();
        assert_eq!(answer.rows().len(), count, "{sql}");
        if is_cut_short {
            let splits = answer.coverage.splits;
            assert!(splits.done < splits.total, "{sql}: {splits:?}");
        }
    }
}

#[test]
fn condition_above_an_outer_join_uses_the_named_columns() {
    // Both sides have a column of each name.
    let folder = Folder::new();
    folder.write("a.csv", "k,w,f\n1,a,true\n2,b,false\n");
    folder.write("b.csv", "k,w,f\n1,,false\n2,7,true\n3,,true\n");
    for join in ["RIGHT", "LEFT", "FULL", "INNER"] {
        for beside in ["", ", row_number() OVER (ORDER BY a.k)"] {
            let sql = format!(
                "SELECT a.k{beside} FROM '$/a.csv' a {join} JOIN '$/b.csv' b ON a.k = b.k \
                 WHERE CASE WHEN b.w > 3 THEN b.f ELSE a.f END ORDER BY a.k"
            );
            let answer = folder.run_sql(&sql).rows();
            let keys: Vec<&str> = answer.iter().map(|row| row[0].as_str()).collect();
            assert_eq!(keys, ["1", "2"], "{sql}");
        }
    }
}
