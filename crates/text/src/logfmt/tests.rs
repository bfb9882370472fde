use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use proptest::prelude::*;

use super::*;
use crate::lines::tests::{check_windows, decode_with, rows};
use crate::predicate_filter::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
use crate::unknown_keys::quote_path_step;
use crate::{BlockUnknownKey, DecodedBlocks, Options};

fn text_columns(names: &[&str]) -> Vec<FieldRef> {
    let field = |name: &&str| Arc::new(Field::new(*name, DataType::Utf8View, true));
    names.iter().map(|name| field(name) as FieldRef).collect()
}

fn decode(columns: Vec<FieldRef>, options: Options, text: &[u8]) -> DecodedBlocks {
    decode_with(&mut LogfmtDecoder::new(columns, options).unwrap(), text)
}

/// A value: `None` for null, an error if its escapes are not those of JSON.
type Value = Result<Option<String>, ()>;

/// Returns the pairs of a line, by the module's documentation.
fn model(line: &str) -> Option<Vec<(String, Value)>> {
    if line.starts_with('\0') {
        return None;
    }
    let mut pairs = Vec::new();
    let mut rest = line.trim_start_matches([' ', '\t']);
    while !rest.is_empty() {
        let word = rest.split([' ', '\t']).next().unwrap();
        let Some((key, value)) = word.split_once('=') else {
            if word.contains('"') {
                return None;
            }
            pairs.push((word.to_owned(), Ok(Some("true".to_owned()))));
            rest = rest[word.len()..].trim_start_matches([' ', '\t']);
            continue;
        };
        if key.is_empty() || key.contains('"') {
            return None;
        }
        if !value.starts_with('"') {
            let value = Some(value.to_owned()).filter(|value| !value.is_empty());
            pairs.push((key.to_owned(), Ok(value)));
            rest = rest[word.len()..].trim_start_matches([' ', '\t']);
            continue;
        }
        let quoted: Vec<char> = rest[key.len() + 2..].chars().collect();
        let mut length = 0;
        while *quoted.get(length)? != '"' {
            length += if quoted[length] == '\\' { 2 } else { 1 };
        }
        let inner: String = quoted[..length].iter().collect();
        let mut out = Vec::new();
        let value = super::unescape_value(format!("\"{inner}\"").as_bytes(), &mut out);
        let value = value.then(|| String::from_utf8(out).unwrap());
        pairs.push((key.to_owned(), value.map(Some).ok_or(())));
        let tail = &rest[key.len() + 3 + inner.len()..];
        if !tail.is_empty() && !tail.starts_with([' ', '\t']) {
            return None;
        }
        rest = tail.trim_start_matches([' ', '\t']);
    }
    Some(pairs)
}

/// Returns the values of the wanted keys; `None` if the line is malformed.
fn model_row(line: &[u8], names: &[&str]) -> Option<Vec<Option<String>>> {
    let pairs = model(std::str::from_utf8(line).ok()?)?;
    let value = |name: &&str| {
        let last = pairs.iter().rfind(|(key, _)| key == name);
        last.map_or(Ok(None), |(_, value)| value.clone())
    };
    names.iter().map(|name| value(name).ok()).collect()
}

fn check(text: &[u8], batch_rows: usize) -> Result<(), TestCaseError> {
    let lines = text.split(|byte| *byte == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let is_blank = |line: &&[u8]| !line.iter().all(|byte| b" \t".contains(byte));
    let lines: Vec<_> = lines.filter(is_blank).collect();
    for names in [&["a", "msg", "long_key_name"][..], &["b", "a", "b"], &["msg"], &[]] {
        let expected: Vec<_> = lines.iter().filter_map(|line| model_row(line, names)).collect();
        let known: Vec<FieldRef> = text_columns(&[names, &["b", "other"]].concat());
        let known = Arc::new(KnownKeys::new(&known, |_| true));
        let options = Options { batch_rows, known_keys: Some(known), ..Options::default() };
        let out = decode(text_columns(names), options, text);
        // Line by line, as in the model.
        let mut unknown = std::collections::BTreeMap::<String, u64>::new();
        for line in lines.iter().filter(|line| model_row(line, names).is_some()) {
            let pairs = model(std::str::from_utf8(line).unwrap()).unwrap_or_default();
            for (key, _) in pairs {
                if !names.contains(&key.as_str()) && key != "b" && key != "other" {
                    *unknown.entry(quote_path_step(&key).into_owned()).or_default() += 1;
                }
            }
        }
        let mut counted = std::collections::BTreeMap::new();
        for BlockUnknownKey { path, count, first_offset: at, .. } in &out.unknown_keys {
            // A key has no quotes of its own.
            prop_assert!(text[*at..].starts_with(path.trim_matches('"').as_bytes()));
            *counted.entry(path.clone()).or_default() += *count;
        }
        prop_assert_eq!(counted, unknown);
        prop_assert_eq!(out.rows as usize, expected.len());
        prop_assert_eq!(out.rejected.len(), lines.len() - expected.len());
        if !names.is_empty() {
            prop_assert_eq!(rows(&out.batches), expected);
        }
        prop_assert!(out.batches.iter().all(|batch| batch.num_rows() <= batch_rows));
    }
    let mut inference = LogfmtInference::default();
    prop_assert_eq!(inference.add_block(text) as usize, lines.len());
    let mut kinds = std::collections::BTreeMap::<String, InferredTextType>::new();
    for pairs in lines.iter().filter_map(|line| model(std::str::from_utf8(line).ok()?)) {
        for (key, value) in pairs {
            let kind = kinds.entry(key).or_default();
            if let Ok(Some(value)) = value {
                kind.add_value(&value);
            }
        }
    }
    let found = inference.fields();
    for (key, kind) in kinds {
        let field = found.iter().find(|field| *field.name() == key);
        // Malformed lines may have narrowed it further.
        prop_assert!(field.is_some());
        if out_is_clean(&lines) {
            let expected = kind.data_type().unwrap_or(DataType::Utf8View);
            prop_assert_eq!(field.unwrap().data_type(), &expected);
        }
    }
    Ok(())
}

fn out_is_clean(lines: &[&[u8]]) -> bool {
    lines.iter().all(|line| std::str::from_utf8(line).is_ok_and(|line| model(line).is_some()))
}

fn log() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        6 => "[a-z0-9./:-]{0,12}",
        2 => Just("\"a b\"".to_owned()),
        1 => Just(r#""a \"b\" \\ \n \u00e9=é""#.to_owned()),
        1 => Just("\"\"".to_owned()),
        1 => Just(r#""\d""#.to_owned()),
        1 => Just("/x?y=z&k=".to_owned()),
    ];
    let pair = prop_oneof![
        8 => ("(a|b|msg|long_key_name|other)", value).prop_map(|(key, value)| format!("{key}={value}")),
        1 => "(a|b|flag|msg)",
    ];
    let line = (
        prop::collection::vec(pair, 1..6),
        prop::sample::select(vec![" ", " ", " ", "  ", "\t"]),
        0..20u8,
    )
        .prop_map(|(pairs, space, end)| {
            let end = match end {
                0 => " \n",
                1 => "\r\n",
                2 => "\r",
                _ => "\n",
            };
            format!("{}{end}", pairs.join(space))
        });
    let odd = prop_oneof![
        Just("\n".to_owned()),
        Just("  \t\n".to_owned()),
        Just("=x a=1\n".to_owned()),
        Just("a=\"open\n".to_owned()),
        Just("a=\"x\"y\n".to_owned()),
        Just("a\"b=1\n".to_owned()),
        Just("a=b=\"c d\"\n".to_owned()),
        Just("a=b\"c d\"\n".to_owned()),
        Just("a=\\\"x\n".to_owned()),
        Just("\\\"a=b\n".to_owned()),
        "[a= \"\\\\\t\r]{0,12}\n",
    ];
    prop::collection::vec(prop_oneof![30 => line, 1 => odd], 0..40).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn logs_are_read_as_the_model_reads_them(log in log(), batch_rows in 1usize..50, last: bool) {
        let text = if last { log.trim_end_matches('\n') } else { &log };
        check(text.as_bytes(), batch_rows)?;
    }

    #[test]
    fn any_text_is_read_as_the_model_reads_it(
        pieces in prop::collection::vec(prop::sample::select(vec![
            " ", "\"", "\\", "\n", "\r", "\t", "=", "a", "a=", "msg=\"", "\" ", "long_key_name=", "é",
        ]), 0..80)
    ) {
        check(pieces.concat().as_bytes(), 8192)?;
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, log in log()) {
        let mut text = log.into_bytes();
        text.extend(bytes);
        check(&text, 8192)?;
        let typed = Arc::new(Field::new("a", DataType::Int64, true));
        decode(vec![typed], Options::default(), &text);
    }
}

#[test]
fn values_get_their_types_and_faults_their_places() {
    let text = concat!(
        "n=1 x=2.5 ok\n",
        "x=\"1e3\" n= ok=false\n",
        "n=1 n=2 other=\"a\\\"b\" ok=true\n",
        "n=1 n=two\n",
        "n=1 =2\n",
        "n=1 msg=\"open\n",
        "n=1 msg=\"a\"b\n",
        "ok=maybe\n",
    );
    let columns = vec![
        Arc::new(Field::new("n", DataType::Int64, true)),
        Arc::new(Field::new("x", DataType::Float64, true)),
        Arc::new(Field::new("ok", DataType::Boolean, true)),
    ];
    let out = decode(columns.clone(), Options::default(), text.as_bytes());
    let batch = &out.batches[0];
    let ints: Vec<_> = batch.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ints, [Some(1), None, Some(2)]);
    let floats: Vec<_> = batch.column(1).as_primitive::<Float64Type>().iter().collect();
    assert_eq!(floats, [Some(2.5), Some(1000.0), None]);
    let flags: Vec<_> = batch.column(2).as_boolean().iter().collect();
    assert_eq!(flags, [Some(true), Some(false), Some(true)]);
    let faults: Vec<_> = out
        .rejected
        .iter()
        .map(|bad| {
            let column = bad.fault.column.clone().unwrap_or_default();
            format!("{column} {}: {}", bad.fault.offset, bad.fault)
        })
        .collect();
    assert_eq!(
        faults,
        [
            "n 6: expected a BIGINT, found `two`",
            " 4: expected a key before `=` at byte 5",
            " 8: a quote is never closed",
            " 11: expected a space behind the closing quote at byte 12",
            "ok 3: expected a Boolean (true or false), found `maybe`",
        ]
    );
    let options = Options { mismatch_is_null: true, ..Options::default() };
    let out = decode(columns, options, text.as_bytes());
    assert_eq!((out.rows, out.rejected.len()), (5, 3));
}

#[test]
fn inferred_columns_refuse_numbers_that_would_lose_their_spelling() {
    let columns = || vec![Arc::new(Field::new("zip", DataType::Int64, true))];
    let text = format!("{}zip=01234\n", "zip=12345\n".repeat(100));
    let options = Options { inferred_columns: vec![0], ..Options::default() };
    let out = decode(columns(), options, text.as_bytes());
    assert_eq!(out.rows, 100);
    assert_eq!(
        out.rejected[0].fault.to_string(),
        "expected a BIGINT, found `01234`, whose spelling a BIGINT would lose"
    );
    let out = decode(columns(), Options::default(), text.as_bytes());
    assert_eq!((out.rows, out.rejected.len()), (101, 0));
}

#[test]
fn predicates_keep_what_a_filter_on_values_keeps() {
    let text: String = (0..1000)
        .map(|n| {
            let level = ["info", "\"warn\"", "\"\\u0065rror\""][n % 3];
            if n % 5 == 0 {
                format!("i={n} level={level}\n")
            } else {
                format!("level={level} n={n} i={n}\n")
            }
        })
        .collect();
    let predicate = |column, test| Predicate { column, condition: test };
    let predicates = vec![
        predicate(
            0,
            ValueCondition::InSet(
                vec![
                    PredicateConstant::Text("warn".into()),
                    PredicateConstant::Text("error".into()),
                ]
                .into(),
            ),
        ),
        predicate(
            1,
            ValueCondition::Comparison(ComparisonOperator::Greater, PredicateConstant::Int(500)),
        ),
    ];
    let options = Options { predicates, ..Options::default() };
    let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
    let columns = vec![
        field("level", DataType::Utf8View),
        field("n", DataType::Int64),
        field("i", DataType::Int64),
    ];
    let out = decode(columns, options, text.as_bytes());
    let found: Vec<i64> = out
        .batches
        .iter()
        .flat_map(|b| b.column(2).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    let expected: Vec<i64> = (501..1000).filter(|n| n % 3 != 0 && n % 5 != 0).collect();
    assert_eq!((found, out.rows), (expected, 1000));
}

#[test]
fn result_does_not_depend_on_windows_and_blocks() {
    let record =
        |index, long| format!("a={index} long_key_name=\"{} é\" msg=x\n", "x".repeat(long));
    let names = ["msg", "long_key_name", "a"];
    check_windows(record, |options, text| decode(text_columns(&names), options, text));
}

#[test]
fn records_have_any_number_of_pairs() {
    let keys: Vec<String> = (0..1000).map(|key| format!("k{key}={key}")).collect();
    let text = format!("{}\n{}\n", keys.join(" "), keys.join("\t"));
    let field = Arc::new(Field::new("k900", DataType::Int64, true));
    let out = decode(vec![field], Options::default(), text.as_bytes());
    assert_eq!(out.batches[0].column(0).as_primitive::<Int64Type>().values().to_vec(), [900, 900]);
    let mut inference = LogfmtInference::default();
    inference.add_block(text.as_bytes());
    assert_eq!(inference.fields().len(), 1000);
}

#[test]
fn record_behind_nuls_shows_no_key() {
    let mut inference = LogfmtInference::default();
    assert_eq!(inference.add_block(b"\0\0a=x b=1\na=1\n\0\0\n\0"), 4);
    let fields = inference.fields();
    let found: Vec<_> =
        fields.iter().map(|field| (field.name().as_str(), field.data_type())).collect();
    assert_eq!(found, [("a", &DataType::Int64)]);
    let fault = inference.first_fault().unwrap();
    assert_eq!(fault.to_string(), "the record begins with 2 NUL bytes");
}

#[test]
fn fault_of_an_escape_names_it() {
    let fault = |value: &str, data_type: DataType| {
        let field = Arc::new(Field::new("msg", data_type, true));
        let text = format!("n=1 msg=\"{value}\"\n");
        let out = decode(vec![field], Options::default(), text.as_bytes());
        assert_eq!((out.rows, out.rejected.len()), (0, 1), "{value}");
        let fault = &out.rejected[0].fault;
        format!("{}: {fault}", fault.column.clone().unwrap_or_default())
    };
    for (value, expected) in [
        (r"a \q", r"msg: an unknown escape `\q` at byte 12"),
        (r"\é", r"msg: an unknown escape `\é` at byte 10"),
        (r"a\n \x1z b", r"msg: a malformed escape `\x1z` at byte 14"),
        (r"\u12", r"msg: a malformed escape `\u12` at byte 10"),
        (r"\ud83d x", r"msg: a malformed escape `\ud83d` at byte 10"),
        (r"ab\xff", "msg: escapes that give no UTF-8 at byte 16"),
    ] {
        for data_type in [DataType::Utf8View, DataType::Int64] {
            assert_eq!(fault(value, data_type), expected, "{value}");
        }
    }
    assert_eq!(fault(r"a\n", DataType::Int64), r#"msg: expected a BIGINT, found `"a\\n"`"#);
}

#[test]
fn quoted_values_have_the_escapes_of_json_and_of_go() {
    for (inner, expected) in [
        (r"a\u00e9\n\/", Some("a\u{e9}\n/")),
        (r"\ud83d\ude00", Some("\u{1f600}")),
        (r"\x1b[31mred\x1b[0m", Some("\x1b[31mred\x1b[0m")),
        (r"\a\v\'\U0001f600\xc3\xa9", Some("\x07\x0b'\u{1f600}\u{e9}")),
        (r"\x1", None),
        (r"\x+1", None),
        (r"\xff", None),
        (r"\Uffffffff", None),
        (r"\q", None),
        (r"\", None),
    ] {
        let mut out = b"before".to_vec();
        let is_good = super::unescape_value(format!("\"{inner}\"").as_bytes(), &mut out);
        let found = is_good.then(|| String::from_utf8(out).unwrap());
        assert_eq!(found, expected.map(|text| format!("before{text}")), "{inner}");
    }
}
