//! Values that do not match their column's type, where they are read as NULL.

use tidemill_base::type_mismatches::ColumnTypeMismatches;

use super::*;

/// Columns with their counts, files, lines and offsets.
type MismatchCounts = Vec<(String, u64, String, Option<u64>, u64)>;

fn mismatch_counts(options: &ReadOptions) -> MismatchCounts {
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let column = |of: ColumnTypeMismatches| {
        (of.column, of.count, name(&of.path), of.line.or(of.row), of.offset)
    };
    options.reject_log.mismatches().columns.into_iter().map(column).collect()
}

fn columns(expected: &[(&str, u64, &str, u64, u64)]) -> MismatchCounts {
    let column = |(column, count, file, line, offset): &(&str, u64, &str, u64, u64)| {
        ((*column).to_owned(), *count, (*file).to_owned(), Some(*line), *offset)
    };
    expected.iter().map(column).collect()
}

fn spec_with_null_mismatches(folder: &tempfile::TempDir, pattern: &str) -> SourceSpec {
    let options =
        TextOptions { mismatch: Some(TypeMismatchPolicy::Null), ..TextOptions::default() };
    SourceSpec { text_options: options, ..spec(folder, pattern) }
}

/// Reads a source in splits of several sizes and checks that the counts are equal.
fn count_mismatches(source: &Arc<Source>, options: impl Fn() -> ReadOptions) -> MismatchCounts {
    let all: Vec<MismatchCounts> = [1 << 12, 100_000, 1 << 30]
        .into_iter()
        .map(|target| {
            let options = options();
            read(source, target, &options).unwrap();
            mismatch_counts(&options)
        })
        .collect();
    assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
    all[0].clone()
}

#[test]
fn mismatch_counts_do_not_depend_on_splits_or_filters() {
    use tidemill_text::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
    let mut csv: String =
        "n,f\n".to_owned() + &"1,1.5000000000000000000000000000000\n".repeat(40_000);
    let first = csv.len() as u64;
    for n in 0..1000 {
        csv += &match n % 10 {
            0 => format!("x{n},1.5\n"),
            5 => "007,\"1,5\"\n".to_owned(),
            _ => format!("{n},2.5\n"),
        };
    }
    csv += "refused,1.5,3\n";
    let comma = csv.find("007").unwrap() as u64 + 5;
    let json: String = csv
        .lines()
        .skip(1)
        .map(|line| {
            let (n, f) = line.split_once(',').unwrap();
            let n = if n.starts_with(['x', '0']) { format!("\"{n}\"") } else { n.to_owned() };
            format!("{{\"n\": {n}, \"f\": {}}}\n", f.replace("\"1,5\"", "[1]"))
        })
        .filter(|line| !line.contains("refused"))
        .collect();
    let n_at = json.find("\"x0\"").unwrap() as u64 + 1;
    let f_at = json.find('[').unwrap() as u64;
    let folder = folder(&[
        ("a.csv", csv.as_bytes()),
        ("b.csv.gz", &compressed("gz", csv.as_bytes())),
        ("c.json", json.as_bytes()),
    ]);
    for (name, expected) in [
        ("a.csv", [("n", 200, "a.csv", 40_002, first), ("f", 100, "a.csv", 40_007, comma)]),
        (
            "b.csv.gz",
            [("n", 200, "b.csv.gz", 40_002, first), ("f", 100, "b.csv.gz", 40_007, comma)],
        ),
        ("c.json", [("n", 200, "c.json", 40_001, n_at), ("f", 100, "c.json", 40_006, f_at)]),
    ] {
        let source = Arc::new(Source::open(&spec_with_null_mismatches(&folder, name)).unwrap());
        assert_eq!(types(&source)[0].1, DataType::Int64, "{name}");
        let all = || rejects("100%", None);
        assert_eq!(count_mismatches(&source, all), columns(&expected), "{name}");
        // Only columns that are read are checked.
        for (projection, own) in
            [(vec![0], &expected[..1]), (vec![1], &expected[1..]), (vec![], &[])]
        {
            let of = || ReadOptions { projection: Some(projection.clone()), ..all() };
            assert_eq!(count_mismatches(&source, of), columns(own), "{name}");
        }
        // Rows that a condition drops are counted like others.
        for value in [2.5, 77.0] {
            let test = ValueCondition::Comparison(
                ComparisonOperator::Equal,
                PredicateConstant::Float(value),
            );
            let predicates = vec![Predicate { column: 1, condition: test }];
            let of = || ReadOptions { predicates: predicates.clone(), ..all() };
            assert_eq!(count_mismatches(&source, of), columns(&expected), "{name}");
        }
    }
}

#[test]
fn fields_of_promoted_records_are_counted_by_row() {
    let line = |n: usize| format!("{{\"n\":{n},\"input\":\"{{\\\"user\\\":{n}}}\"}}\n");
    let mut text: String = (0..30_000).map(line).collect();
    let at = text.len() as u64;
    text += "{\"n\":1,\"input\":\"{\\\"user\\\":\\\"u\\\"}\"}\n\
             {\"n\":1,\"input\":\"oops\"}\n\
             {\"n\":1,\"input\":\"{\\\"user\\\":[]}\"}\n";
    let folder = folder(&[("a.json", text.as_bytes())]);
    let promote = vec!["input".parse().unwrap()];
    let source = Source::open(&SourceSpec {
        promotions: promote,
        ..spec_with_null_mismatches(&folder, "a.json")
    });
    let source = Arc::new(source.unwrap());
    let expected = [("input.user", 2, "a.json", 30_001, at)];
    assert_eq!(count_mismatches(&source, || rejects("100%", None)), columns(&expected));
}

#[test]
fn counts_of_a_worker_reach_the_driver_and_are_forgotten_by_a_new_start() {
    let mut text: String = "n\n".to_owned() + &"1\n".repeat(300_000);
    text += "x\ny\n";
    let folder = folder(&[("a.csv", text.as_bytes())]);
    let source = Arc::new(Source::open(&spec_with_null_mismatches(&folder, "a.csv")).unwrap());
    let here = count_mismatches(&source, ReadOptions::default);
    assert_eq!(here, columns(&[("n", 2, "a.csv", 300_002, text.len() as u64 - 4)]));
    let description = serde_json::to_string(&source.describe().unwrap()).unwrap();
    let description = serde_json::from_str(&description).unwrap();
    let options = StorageOptions::default();
    let reopener = SourceReopener::new(description, &options, None, &CancelFlag::new()).unwrap();
    let driver = ReadOptions::default();
    for split in source.splits_with_target_bytes(10_000, &mut |_, _| true).unwrap() {
        let (files, splits) = source.describe_splits(std::slice::from_ref(&split)).unwrap();
        let worker = Arc::new(reopener.open_files(&files).unwrap());
        let own = worker.resolve_split(&splits[0]).unwrap();
        let held = ReadOptions {
            reject_log: Arc::new(RejectLog::with_deferred_counting()),
            ..ReadOptions::default()
        };
        let mut reader = worker.read_split(&own, &held).unwrap();
        reader.by_ref().for_each(|batch| drop(batch.unwrap()));
        let stats = serde_json::to_string(&reader.into_stats().describe(&own)).unwrap();
        let stats = serde_json::from_str(&stats).unwrap();
        SplitStats::from_description(stats, &split).unwrap().commit_to(&driver.reject_log).unwrap();
    }
    assert_eq!(mismatch_counts(&driver), here);
    driver.reject_log.reset().unwrap();
    assert!(driver.reject_log.mismatches().is_empty());
}
