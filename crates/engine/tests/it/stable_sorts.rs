//! Tests of sorts by some of the columns: ties keep the order of the source, whatever thread or worker reads
//! which part of it.

use arrow::array::AsArray;
use arrow::datatypes::DataType::UInt64 as UINT64;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{Query, RunProgress, RunSettings};

use crate::common::{Folder, QueryAnswer, Random, run_query};

/// Enough for several splits, and for a spill with the least memory.
const ROW_COUNT: u64 = 250_000;

fn sort_files(
    folder: &Folder,
    files: &str,
    by: &str,
    limit: Option<u64>,
    settings: &RunSettings,
) -> QueryAnswer {
    let url = folder.path().join(files).to_str().unwrap().to_owned();
    let query =
        Query::select_sorted(SourceSpec { url, ..SourceSpec::default() }, by, limit).unwrap();
    run_query(&query, settings).unwrap()
}

/// Returns rows of a key and a place, with a text that makes them long.
fn random_rows(random: &mut Random, keys: u64) -> Vec<(u64, u64, String)> {
    let row = |place| {
        let text = format!("{:x}", random.next()).repeat(1 + random.next_below(16) as usize);
        (random.next_below(keys), place, text)
    };
    (0..ROW_COUNT).map(row).collect()
}

#[test]
fn ties_keep_the_order_of_the_source() {
    let mut random = Random(26);
    let spill = Folder::new();
    for keys in [1, 5, ROW_COUNT / 2] {
        let rows = random_rows(&mut random, keys);
        let folder = Folder::new();
        let csv = |rows: &[(u64, u64, String)]| {
            let lines = rows.iter().map(|(key, place, text)| match place % 11 {
                // A line end inside a field.
                0 => format!("{key},{place},\"\n{text}\"\n"),
                _ => format!("{key},{place},{text}\n"),
            });
            std::iter::once("k,place,text\n".to_owned()).chain(lines).collect::<String>()
        };
        folder.write("one/x.csv", csv(&rows));
        let line = |(key, place, text): &(u64, u64, String)| {
            format!("{{\"k\": {key}, \"place\": {place}, \"text\": \"{text}\"}}\n")
        };
        folder.write("json/x.jsonl", rows.iter().map(line).collect::<String>());
        let many = rows.chunks(rows.len() / 30 + 1).enumerate();
        for (number, some) in many {
            folder.write(&format!("many/{number:02}.csv"), csv(some));
        }
        let mut expected: Vec<(u64, u64)> = rows.iter().map(|row| (row.0, row.1)).collect();
        expected.sort_by_key(|row| row.0);
        for (files, threads, megabytes) in [
            ("one/x.csv", 2, 64),
            ("one/x.csv", 4, 512),
            ("json/x.jsonl", 3, 64),
            ("json/x.jsonl", 2, 512),
            ("many/*.csv", 4, 64),
            ("many/*.csv", 2, 512),
            ("many/*.csv", 1, 512),
        ] {
            let settings = RunSettings {
                threads,
                spill_dirs: vec![spill.path().to_owned()],
                ..RunSettings::new(megabytes << 20)
            };
            let limits = [None, Some(1000), Some(1), Some(ROW_COUNT - 1), Some(2 * ROW_COUNT)];
            for limit in limits.into_iter().take(if threads == 4 { 5 } else { 2 }) {
                let settings = RunSettings { progress: RunProgress::new(), ..settings.clone() };
                let answer = sort_files(&folder, files, "k", limit, &settings);
                if limit.is_none_or(|limit| limit < 2000) {
                    let spills = megabytes == 64 && limit.is_none();
                    assert_eq!(settings.progress.spilled_bytes() > 0, spills, "{files} {limit:?}");
                }
                let found = answer.batches.iter().flat_map(|batch| {
                    let of = |column: usize| {
                        let values = arrow::compute::cast(batch.column(column), &UINT64).unwrap();
                        values.as_primitive::<arrow::datatypes::UInt64Type>().values().to_vec()
                    };
                    of(0).into_iter().zip(of(1))
                });
                let found: Vec<(u64, u64)> = found.collect();
                let wanted = limit.map_or(rows.len(), |limit| rows.len().min(limit as usize));
                assert!(
                    found == expected[..wanted],
                    "{files}, {keys} keys, {threads} threads, {megabytes} MiB, {limit:?}"
                );
            }
        }
    }
}
