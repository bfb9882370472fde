//! Keys of records without a column.

use tidemill_base::unknown_keys::UnknownKey;

use super::*;

/// Keys with their counts, files, lines and offsets.
type KeyCounts = Vec<(String, u64, String, Option<u64>, u64)>;

fn key_counts(options: &ReadOptions) -> KeyCounts {
    let told = options.reject_log.unknown_keys();
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let key = |UnknownKey { key, count, path, line, offset, row, .. }: UnknownKey| {
        (key, count, name(&path), line.or(row), offset)
    };
    told.keys.into_iter().map(key).collect()
}

fn keys(expected: &[(&str, u64, &str, u64, u64)]) -> KeyCounts {
    let key = |(key, count, file, line, offset): &(&str, u64, &str, u64, u64)| {
        ((*key).to_owned(), *count, (*file).to_owned(), Some(*line), *offset)
    };
    expected.iter().map(key).collect()
}

/// Reads a source in splits of several sizes and checks that the counts are equal.
fn count_unknown_keys(source: &Arc<Source>, projection: Option<Vec<usize>>) -> KeyCounts {
    let all: Vec<KeyCounts> = [1 << 12, 100_000, 1 << 30]
        .into_iter()
        .map(|target| {
            let options = ReadOptions { projection: projection.clone(), ..rejects("100%", None) };
            read(source, target, &options).unwrap();
            key_counts(&options)
        })
        .collect();
    assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
    all[0].clone()
}

#[test]
fn keys_behind_the_sample_are_counted_on_every_path() {
    let line = |n: usize| format!("{{\"a\":{n},\"s\":{{\"x\":1}},\"l\":[{{\"y\":2}}]}}\n");
    let mut text: String = (0..15_000).map(line).collect();
    let (first_line, first) = (15_001, text.len() as u64);
    for n in 0..1000 {
        // In most records, in some, and in one.
        text += &format!(
            "{{\"a\":{n},\"plan\":\"p\",\"s\":{{\"x\":1{}}},\"l\":[{{\"y\":2}},{{\"z\":3}}]}}\n",
            if n % 100 == 7 { ",\"w\":[1]" } else { "" }
        );
    }
    text += "{\"a\":\"refused\",\"bad\":1}\n{\"a\":1,\"once\":null}\n";
    let last = text.find("\"once\"").unwrap() as u64;
    let pretty = format!("[{}]", text.trim_end().replace('\n', ",\n"));
    let folder = folder(&[
        ("a.json", text.as_bytes()),
        ("b.json.gz", &compressed("gz", text.as_bytes())),
        ("c.json", pretty.as_bytes()),
    ]);
    for (name, behind) in [("a.json", 0), ("b.json.gz", 0), ("c.json", 1)] {
        let source = open(&folder, name).unwrap();
        assert!(source.is_sampled());
        assert_eq!(source.schema().fields().len(), 3, "{name}");
        let w = text.find("\"w\"").unwrap() as u64;
        let z = text.find("\"z\"").unwrap() as u64;
        let commas = |line: u64| if behind == 0 { 0 } else { line };
        let at = |line: u64, offset: u64| offset + commas(line);
        let all = [
            ("plan", 1000, name, first_line, at(first_line, first + 7)),
            ("l[].z", 1000, name, first_line, at(first_line, z)),
            ("s.w", 10, name, first_line + 7, at(first_line + 7, w)),
            ("once", 1, name, 16_002, at(16_002, last)),
        ];
        let in_order = |keys: &[(&str, u64, &str, u64, u64)]| {
            let mut keys = super::unknown_keys::keys(keys);
            keys.sort_by_key(|key| key.4);
            keys
        };
        assert_eq!(count_unknown_keys(&source, None), in_order(&all), "{name}");
        // Fields within a column are seen if the column is read; records always are.
        assert_eq!(
            count_unknown_keys(&source, Some(vec![0])),
            in_order(&[all[0], all[3]]),
            "{name}"
        );
        assert_eq!(
            count_unknown_keys(&source, Some(vec![])),
            in_order(&[
                all[0],
                // No field of it is read, so nothing is rejected.
                ("bad", 1, name, 16_001, at(16_001, text.find("\"bad\"").unwrap() as u64)),
                all[3],
            ]),
            "{name}"
        );
        assert_eq!(count_unknown_keys(&source, Some(vec![1])).len(), 4, "{name}");
    }
    // A small file is all in the sample.
    write(folder.path(), "d.json", b"{\"a\":1}\n{\"b\":2}\n");
    let source = open(&folder, "d.json").unwrap();
    assert!(!source.is_sampled());
    assert_eq!(count_unknown_keys(&source, None), []);
}

#[test]
fn pairs_of_logfmt_behind_the_sample_are_counted() {
    let mut text: String = (0..20_000).map(|n| format!("a={n} level=info\n")).collect();
    let at = text.len() as u64;
    for n in 0..100 {
        text +=
            &format!("a={n} http.status=200 level=info{}\n", if n == 50 { " flag" } else { "" });
    }
    let flag = text.find("flag").unwrap() as u64;
    let folder = folder(&[("a.logfmt", text.as_bytes())]);
    let source = open(&folder, "a.logfmt").unwrap();
    let expected = [
        ("\"http.status\"", 100, "a.logfmt", 20_001, at + 4),
        ("flag", 1, "a.logfmt", 20_051, flag),
    ];
    for projection in [None, Some(vec![1]), Some(vec![])] {
        assert_eq!(count_unknown_keys(&source, projection), keys(&expected));
    }
    let options = ReadOptions::default();
    read(&source, 1 << 20, &options).unwrap();
    let warning = options.reject_log.unknown_keys().warning().unwrap();
    assert!(warning.contains("--schema '\"http.status\" TEXT' makes a column"), "{warning}");
    let declared = vec![Field::new("http.status", DataType::Int64, true)];
    let spec = SourceSpec {
        declared_schema: Some(Arc::new(Schema::new(declared))),
        ..spec(&folder, "a.logfmt")
    };
    let source = Arc::new(Source::open(&spec).unwrap());
    assert_eq!(count_unknown_keys(&source, None), keys(&expected[1..]));
}

#[test]
fn declared_keys_are_columns_whose_fields_are_not_counted() {
    let line = |n: usize| format!("{{\"a\":{n},\"s\":{{\"x\":1}}}}\n");
    let mut text: String = (0..20_000).map(line).collect();
    text += "{\"a\":1,\"late\":5,\"later\":6,\"s\":{\"x\":1,\"y\":2}}\n";
    let folder = folder(&[("a.json", text.as_bytes())]);
    let all = ["late", "later", "s.y"];
    let names = |found: KeyCounts| found.into_iter().map(|key| key.0).collect::<Vec<_>>();
    assert_eq!(names(count_unknown_keys(&open(&folder, "a.json").unwrap(), None)), all);
    let inner = DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into());
    for (field, expected) in [
        (Field::new("late", DataType::Int64, true), &["later", "s.y"][..]),
        (Field::new("s", inner, true), &["late", "later"]),
        (Field::new("s", DataType::Utf8View, true), &["late", "later"]),
        (Field::new("a", DataType::Utf8View, true), &all),
    ] {
        let schema = Some(Arc::new(Schema::new(vec![field])));
        let source = SourceSpec { declared_schema: schema, ..spec(&folder, "a.json") };
        let source = Arc::new(Source::open(&source).unwrap());
        assert_eq!(names(count_unknown_keys(&source, None)), expected);
    }
}

#[test]
fn keys_of_promoted_records_are_counted_by_row_and_record() {
    let line = |n: usize| format!("{{\"n\":{n},\"input\":\"{{\\\"user\\\":\\\"u\\\"}}\"}}\n");
    let mut text: String = (0..30_000).map(line).collect();
    let at = text.len() as u64;
    text += "{\"n\":1,\"input\":\"{\\\"user\\\":\\\"u\\\",\\\"plan\\\":1}\"}\n\
             {\"n\":1,\"input\":\"oops\"}\n\
             {\"n\":1,\"input\":\"{\\\"user\\\":\\\"u\\\",\\\"plan\\\":1}\"}\n";
    let folder = folder(&[("a.json", text.as_bytes())]);
    let promote = vec!["input".parse().unwrap()];
    let spec = SourceSpec { promotions: promote, ..spec(&folder, "a.json") };
    let source = Arc::new(Source::open(&spec).unwrap());
    assert_eq!(count_unknown_keys(&source, None), keys(&[("input.plan", 2, "a.json", 30_001, at)]));
}

#[test]
fn restarted_run_resets_unknown_keys_and_many_share_one_count() {
    let mut text: String = (0..40_000).map(|n| format!("{{\"a\":{n}}}\n")).collect();
    for n in 0..3000 {
        text += &format!("{{\"a\":{n},\"k{n}\":1}}\n");
    }
    let folder = folder(&[("a.json", text.as_bytes())]);
    let source = open(&folder, "a.json").unwrap();
    let options = ReadOptions::default();
    read(&source, 1 << 30, &options).unwrap();
    let told = options.reject_log.unknown_keys();
    assert_eq!((told.keys.len(), told.others), (1000, 2000));
    assert!(told.warning().unwrap().contains("and more than 995 others"));
    options.reject_log.reset().unwrap();
    assert!(options.reject_log.unknown_keys().is_empty());
}

#[test]
fn keys_of_malformed_records_and_long_keys_leave_room_for_others() {
    let json: String =
        (0..30_000).map(|n| format!("{{\"a\":{n},\"pad\":\"{n:0100}\"}}\n")).collect();
    let logfmt: String = (0..30_000).map(|n| format!("a={n} pad={n:0100}\n")).collect();
    let long = "k".repeat(5000);
    let bad = |n: usize| [format!("{{\"a\":1,\"bad{n}\":1\n"), format!("a=1 bad{n}=1 x=\"\n")];
    let good = [
        format!("{{\"a\":1,\"good\":1,\"{long}1\":1}}\n{{\"a\":1,\"good\":1,\"{long}2\":1}}\n"),
        format!("a=1 good=1 {long}1=1\na=1 good=1 {long}2=1\n"),
    ];
    for (name, format, mut text) in [("a.json", 0, json), ("a.logfmt", 1, logfmt)] {
        for n in 0..3000 {
            text += &bad(n)[format];
            if n % 500 == 499 {
                text += &good[format];
            }
        }
        let folder = folder(&[(name, text.as_bytes())]);
        let found = count_unknown_keys(&open(&folder, name).unwrap(), None);
        let counts: Vec<(&str, u64)> =
            found.iter().map(|key| (key.0.split('…').next().unwrap(), key.1)).collect();
        assert_eq!(counts, [("good", 12), (&long[..200], 6), (&long[..200], 6)], "{name}");
        assert_ne!(found[1].0, found[2].0);
    }
}

#[test]
fn keys_that_look_like_paths_are_not_those_within_a_column() {
    let line = |n: usize| format!("{{\"a\":{n},\"user\":{{\"id\":1,\"t\":{{\"x\":1}}}}}}\n");
    let mut text: String = (0..20_000).map(line).collect();
    text += "{\"user.vip\":1,\"user\":{\"vip\":1,\"t.y\":1,\"t\":{\"y\":1}}}\n";
    let folder = folder(&[("a.json", text.as_bytes())]);
    let names: Vec<String> = count_unknown_keys(&open(&folder, "a.json").unwrap(), None)
        .into_iter()
        .map(|key| key.0)
        .collect();
    assert_eq!(names, ["\"user.vip\"", "user.vip", "user.\"t.y\"", "user.t.y"]);
}

#[test]
fn worker_counts_of_unknown_keys_reach_the_driver() {
    let mut text: String = (0..40_000).map(|n| format!("{{\"a\":{n}}}\n")).collect();
    text += "{\"a\":1,\"late\":{\"x\":1}}\n";
    let folder = folder(&[("a.json", text.as_bytes())]);
    let source = open(&folder, "a.json").unwrap();
    let here = count_unknown_keys(&source, None);
    let description = serde_json::to_string(&source.describe().unwrap()).unwrap();
    let description = serde_json::from_str(&description).unwrap();
    let options = StorageOptions::default();
    let reopener = SourceReopener::new(description, &options, None, &CancelFlag::new()).unwrap();
    let driver = ReadOptions::default();
    for split in source.splits_with_target_bytes(100_000, &mut |_, _| true).unwrap() {
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
    assert_eq!(key_counts(&driver), here);
    assert_eq!(here.len(), 1);
}
