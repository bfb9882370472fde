//! Tests of values in paths: distinct values have distinct names, whatever they are.

use proptest::prelude::*;
use tidemill_source::{is_ignored_name, parse_partition_keys};

use super::user_message;
use crate::writing::path_template::{NULL_PATH_TEXT, PathKey, PathTemplate, assign_paths};

fn key(values: &[Option<&str>]) -> PathKey {
    values.iter().map(|value| value.map(Box::from)).collect()
}

fn names(url: &str, keys: &[&[Option<&str>]], folds: bool) -> Vec<String> {
    let keys: Vec<PathKey> = keys.iter().map(|values| key(values)).collect();
    assign_paths(&PathTemplate::parse(url).unwrap(), &keys, folds).unwrap()
}

#[test]
fn a_value_is_encoded_only_where_it_must_be() {
    let check = |value: Option<&str>, expected: &str| {
        let found = names("out/{x}.csv", &[&[value]], false);
        assert_eq!(found, [format!("{expected}.csv")], "{value:?}");
    };
    check(Some("2013-01-01"), "2013-01-01");
    check(Some("2013-01-01T05:15:00"), "2013-01-01T05:15:00");
    check(Some("a b=c"), "a b=c");
    check(Some("Zürich"), "Zürich");
    check(Some("a/b"), "a%2Fb");
    check(Some("100%"), "100%25");
    check(Some("."), "%2E");
    check(Some(".."), "%2E.");
    check(Some(".tidemill-x"), "%2Etidemill-x");
    check(Some("a\0b\n\u{85}"), "a%00b%0A%C2%85");
    check(Some(""), "%empty");
    check(Some("%empty"), "%25empty");
    check(None, NULL_PATH_TEXT);
    check(Some(NULL_PATH_TEXT), "%5F_HIVE_DEFAULT_PARTITION__");
}

#[test]
fn a_dot_is_encoded_only_where_it_would_begin_a_name() {
    assert_eq!(names("v-{x}/{x}.csv", &[&[Some(".5")]], false), ["v-.5/%2E5.csv"]);
}

#[test]
fn a_folder_of_a_value_is_neither_a_key_nor_left_out() {
    let check = |value: &str, expected: &str| {
        assert_eq!(names("o/{x}/{x}", &[&[Some(value)]], false), [expected], "{value}");
    };
    check("a=b", "a%3Db/a=b");
    check("_SUCCESS", "%5FSUCCESS/%5FSUCCESS");
    check("_temporary", "%5Ftemporary/%5Ftemporary");
    check("_SUCCESS.", "_SUCCESS./_SUCCESS.");
    assert_eq!(names("o/k={x}/_{x}.csv", &[&[Some("a=b")]], false), ["k=a%3Db/_a=b.csv"]);
    assert_eq!(names("o/_{x}/y.csv", &[&[Some("metadata")]], false), ["_%6Detadata/y.csv"]);
}

#[test]
fn a_long_value_is_cut_and_stays_distinct() {
    let long = "é".repeat(200);
    let (a, b) = (format!("{long}a"), format!("{long}b"));
    let found = names("out/{x}.parquet", &[&[Some(&a)], &[Some(&b)]], false);
    assert_ne!(found[0], found[1]);
    for name in &found {
        assert!(
            name.len() <= 255 && name.starts_with("éé") && name.ends_with(".parquet"),
            "{name}"
        );
        assert!(name.contains("%~"), "{name}");
    }
    let escapes = "/".repeat(300);
    let found = names("out/{x}.csv", &[&[Some(&escapes)]], false);
    let (kept, _) = found[0].split_once("%~").unwrap();
    assert_eq!(kept.replace("%2F", ""), "");
}

#[test]
fn values_with_colliding_names_get_distinct_names() {
    let found = names(
        "out/{a}-{b}.csv",
        &[&[Some("x-y"), Some("z")], &[Some("x"), Some("y-z")], &[Some("p-q"), Some("r")]],
        false,
    );
    // A name without a collision stays plain.
    assert_eq!(found, ["x%2Dy-z.csv", "x-y%2Dz.csv", "p-q-r.csv"]);
    // Between letters: the separator itself is encoded in the values.
    let found =
        names("out/{a}x{b}.csv", &[&[Some("1x2"), Some("3")], &[Some("1"), Some("2x3")]], false);
    assert_eq!(found, ["1%782x3.csv", "1x2%783.csv"]);
}

#[test]
fn names_that_differ_in_case_are_told_apart_where_the_file_system_folds_it() {
    let values: &[&[Option<&str>]] = &[&[Some("Texas")], &[Some("texas")], &[Some("EWR")]];
    assert_eq!(names("out/{s}/x.csv", values, false), ["Texas/x.csv", "texas/x.csv", "EWR/x.csv"]);
    // Percent-decoding returns the value.
    assert_eq!(names("out/{s}/x.csv", values, true), ["%54exas/x.csv", "texas/x.csv", "EWR/x.csv"]);
    // The composed and the decomposed form are one name there.
    assert_eq!(
        names("out/{s}.csv", &[&[Some("\u{e9}")], &[Some("e\u{301}")]], true),
        ["%C3%A9.csv", "e%CC%81.csv"]
    );
    let null: &[&[Option<&str>]] = &[&[None], &[Some("__hive_default_partition__")]];
    let found = names("out/{s}.csv", null, true);
    assert_eq!(found[0], format!("{NULL_PATH_TEXT}.csv"));
    assert_eq!(found[1], "%5F%5Fhive%5Fdefault%5Fpartition%5F%5F.csv");
}

#[test]
fn templates_split_into_root_pattern_and_columns() {
    let check = |url: &str, root: &str, pattern: &str, columns: &[&str]| {
        let template = PathTemplate::parse(url).unwrap();
        assert_eq!(template.root.to_str(), Some(root), "{url}");
        assert_eq!(template.pattern(), pattern, "{url}");
        assert_eq!(template.columns, columns, "{url}");
    };
    check("out/{day}.csv", "out", "{day}.csv", &["day"]);
    check("{day}.csv", ".", "{day}.csv", &["day"]);
    check("./out//{a}/{b}/{a}.csv", "./out", "{a}/{b}/{a}.csv", &["a", "b"]);
    check("/tmp/../x/{a}_{b}.csv", "/tmp/../x", "{a}_{b}.csv", &["a", "b"]);
    check("/{a}.csv", "/", "{a}.csv", &["a"]);
    check("out/state={state}/x.csv", "out", "state={state}/x.csv", &["state"]);
    check("out/{{a}}/b{{.csv", "out/{a}", "b{{.csv", &[]);
    check("a.csv", ".", "a.csv", &[]);
    check("file:///data/a%20b/{x}.csv", "/data/a b", "{x}.csv", &["x"]);
    check("{a/b}.csv", ".", "{a/b}.csv", &["a/b"]);
}

#[test]
fn a_template_that_cannot_work_is_refused_with_the_reason() {
    for (url, reason) in [
        ("", "no name"),
        ("out/", "names a folder"),
        ("out/..", "names a folder"),
        ("out/{day", "without its partner"),
        ("out/day}.csv", "without its partner"),
        ("out/{a{b}}.csv", "without its partner"),
        ("out/{}.csv", "without a column's name"),
        ("out/{a}{b}.csv", "nothing between"),
        ("out/{a}/../x.csv", "behind a column"),
        ("out/{a}%{b}.csv", "`%`"),
        ("out/.{a}.csv", "begins with `.tidemill-`"),
        ("out/.tidemill-x", "begins with `.tidemill-`"),
        ("out/{a}-{b}-{c}-{d}-{e}-{f}-{g}.csv", "too little room"),
        ("gs://bucket/{a}.csv", "`gs://` is not supported"),
        ("s3://bucket/a//{a}.csv", "keys with empty parts"),
        ("s3://bucket", "names a folder"),
        ("file://host/a.csv", "another machine"),
    ] {
        let error = user_message(PathTemplate::parse(url).unwrap_err());
        assert!(error.contains(reason), "{url}: {error}");
    }
}

/// Values that are likely to clash: few letters, all the special ones, long ones.
fn value() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(NULL_PATH_TEXT.to_owned())),
        1 => Just(Some(NULL_PATH_TEXT.to_lowercase())),
        8 => "[-aAxX.%/5Ff_ \u{0}\u{e9}]{0,5}".prop_map(Some),
        2 => "(aaaaaaaaaa|AAAAAAAAAA|//////////|\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}){20,40}[ab]".prop_map(Some),
        1 => any::<String>().prop_map(Some),
        2 => "%(empty|5F|2F|~[0-9a-f]{32})?".prop_map(Some),
    ]
}

const TEMPLATES: [&str; 7] = [
    "o/{a}/{b}.csv",
    "o/{a}-{b}.csv",
    "o/{a}x{b}.csv",
    "o/{a}X{b}",
    "o/{a}5{b}/{a}.csv",
    "o/{a}.{b}/y",
    "o/x={a}/p-{b}-{a}.csv",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn distinct_values_have_distinct_paths(
        values in prop::collection::hash_set((value(), value()), 1..40),
        which in 0..TEMPLATES.len(),
        folds: bool,
    ) {
        let template = PathTemplate::parse(TEMPLATES[which]).unwrap();
        let keys: Vec<PathKey> = values
            .into_iter()
            .map(|(a, b)| vec![a.map(String::into_boxed_str), b.map(String::into_boxed_str)])
            .collect();
        // `assign_paths` refuses names that fold to one, so its success is half of the test.
        let names = assign_paths(&template, &keys, folds).unwrap();
        let fold = |name: &String| if folds { name.to_ascii_lowercase() } else { name.clone() };
        let distinct: std::collections::HashSet<String> = names.iter().map(fold).collect();
        prop_assert_eq!(distinct.len(), keys.len());
        for name in &names {
            prop_assert_eq!(name.split('/').count(), TEMPLATES[which].split('/').count() - 1);
            for component in name.split('/') {
                prop_assert!(!component.is_empty() && component.len() <= 255, "{}", component);
                prop_assert!(component != "." && component != ".." , "{}", component);
                prop_assert!(!component.starts_with(".tidemill-"), "{}", component);
                prop_assert!(!component.contains(char::is_control), "{}", component);
                prop_assert!(!folds || component.is_ascii(), "{}", component);
            }
        }
        // The order in which values arrive does not matter.
        let mut reversed: Vec<PathKey> = keys.clone();
        reversed.reverse();
        let mut again = assign_paths(&template, &reversed, folds).unwrap();
        again.reverse();
        prop_assert_eq!(names, again);
    }

    #[test]
    fn folders_are_read_as_the_keys_that_were_written(
        a in prop_oneof![value(), "[=a_]{0,4}".prop_map(Some), Just(Some("_SUCCESS".into()))],
        b in prop_oneof![value(), "[=a_]{0,4}".prop_map(Some), Just(Some("_temporary".into()))],
        folds: bool,
    ) {
        // A cut value cannot be read back.
        let is_short = |value: &Option<String>| value.as_ref().is_none_or(|v| v.len() < 60);
        prop_assume!(is_short(&a) && is_short(&b));
        let template = PathTemplate::parse("o/{b}/x={a}/-{a}/y{b}z/{b}").unwrap();
        let keys = [key(&[b.as_deref(), a.as_deref()])];
        let path = assign_paths(&template, &keys, folds).unwrap().remove(0);
        let found = parse_partition_keys(path.split('/'), &path).unwrap();
        prop_assert_eq!(found.len(), 1, "{}", path);
        prop_assert_eq!(&found[0], &("x".to_owned(), a));
        prop_assert!(!path.split('/').any(is_ignored_name), "{}", path);
    }

    #[test]
    fn percent_decoding_a_folder_reads_the_value_back(value in "[a-zA-Z./%=\u{e9} -]{1,20}", folds: bool) {
        let template = PathTemplate::parse("o/x={a}/y.csv").unwrap();
        let upper = value.to_uppercase();
        let mut keys = vec![key(&[Some(&value)])];
        if upper != value {
            keys.push(key(&[Some(&upper)]));
        }
        for (name, key) in assign_paths(&template, &keys, folds).unwrap().iter().zip(&keys) {
            let text = name.strip_prefix("x=").unwrap().strip_suffix("/y.csv").unwrap();
            let decoded = percent_encoding::percent_decode_str(text).decode_utf8().unwrap();
            prop_assert_eq!(Some(decoded.as_ref()), key[0].as_deref());
        }
    }
}
