use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;

use super::*;
use crate::filter::{Comparison, Constant, Predicate, Test};
use crate::lines::tests::{check_windows, decode_with, rows};
use crate::{Decoded, Options};

fn text_columns(places: &[usize]) -> Vec<(usize, FieldRef)> {
    let field = |place: &usize| Field::new(format!("c{place}"), DataType::Utf8View, true);
    places.iter().map(|place| (*place, Arc::new(field(place)))).collect()
}

fn decode(
    dialect: &Dialect,
    fields: usize,
    columns: Vec<(usize, FieldRef)>,
    options: Options,
    text: &[u8],
) -> Decoded {
    decode_with(&mut CsvDecoder::new(dialect, fields, columns, options).unwrap(), text)
}

fn dialects() -> impl Strategy<Value = Dialect> {
    (prop::bool::weighted(0.8), prop::bool::weighted(0.1), prop::bool::weighted(0.2)).prop_map(
        |(quote, escape, comment)| Dialect {
            quote: quote.then_some(b'"'),
            escape: escape.then_some(b'\\'),
            comment: comment.then_some(b'#'),
            ..Dialect::default()
        },
    )
}

/// Text that is mostly well formed, in records of three fields.
fn regular() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        8 => "[a-z0-9]{0,5}",
        2 => "[a-zé ]{10,90}",
        2 => Just("\"quoted, with \n a line end\"".to_owned()),
        1 => Just("\"a \"\"doubled\"\" quote\"".to_owned()),
        1 => Just("\"\"".to_owned()),
    ];
    let record = (field.clone(), field.clone(), field, prop::bool::weighted(0.1))
        .prop_map(|(a, b, c, crlf)| format!("{a},{b},{c}{}", if crlf { "\r\n" } else { "\n" }));
    let odd = prop_oneof![
        40 => record,
        1 => Just("\n".to_owned()),
        1 => Just("1,2\n".to_owned()),
        1 => Just("1,2,3,4\n".to_owned()),
        1 => Just("a\"b,c,d\n".to_owned()),
        1 => Just("a,b,c\rd,e,f\n".to_owned()),
        1 => Just("#c,\"o,m\n".to_owned()),
        1 => Just("\"a\"b,c,d\n".to_owned()),
    ];
    prop::collection::vec(odd, 0..60).prop_map(|records| records.concat())
}

/// Compares with the model: the good rows, and how many are bad.
fn check(
    dialect: &Dialect,
    text: &str,
    places: &[usize],
    batch_rows: usize,
) -> Result<(), TestCaseError> {
    let options = Options { batch_rows, ..Options::default() };
    let out = decode(dialect, 3, text_columns(places), options, text.as_bytes());
    // `csv_core` takes a comment that the input ends in for a record.
    let records = model::records(dialect, format!("{text}\n").as_bytes());
    let (good, bad): (Vec<_>, Vec<_>) = records.into_iter().partition(|r| r.len() == 3);
    // A quote that is never closed makes the last record bad, which `csv_core` lets pass.
    let unclosed = out.bad.last().is_some_and(|bad| bad.fault.kind == FaultKind::Unclosed);
    let mut expected: Vec<Vec<Option<String>>> = good
        .iter()
        .map(|fields| {
            let value = |place: &usize| {
                Some(String::from_utf8(fields[*place].clone()).unwrap()).filter(|v| !v.is_empty())
            };
            places.iter().map(value).collect()
        })
        .collect();
    if unclosed && out.bad.len() > bad.len() {
        expected.pop();
    } else {
        prop_assert_eq!(out.bad.len(), bad.len());
    }
    prop_assert_eq!(out.rows as usize, expected.len());
    prop_assert_eq!(rows(&out.batches), expected);
    prop_assert!(out.batches.iter().all(|batch| batch.num_rows() <= batch_rows));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn regular_text_is_read_as_csv_core_reads_it(
        dialect in dialects(), text in regular(), batch_rows in 1usize..50, last in prop::bool::ANY
    ) {
        let text = if last { text.trim_end_matches('\n') } else { &text };
        check(&dialect, text, &[0, 1, 2], batch_rows)?;
        check(&dialect, text, &[2], 8192)?;
        check(&dialect, text, &[], 8192)?;
    }

    #[test]
    fn any_text_is_read_as_csv_core_reads_it(
        dialect in dialects(),
        bytes in prop::collection::vec(prop::sample::select(b"a,\"\n\r\\# ".to_vec()), 0..200)
    ) {
        check(&dialect, std::str::from_utf8(&bytes).unwrap(), &[0, 2], 8192)?;
    }

    #[test]
    fn separators_are_the_same_with_every_instruction_set(
        bytes in prop::collection::vec(prop::sample::select(b"aaaaaaa,,\"\n\r#\xc3".to_vec()), 0..400),
        from in 0usize..100, comment: bool, quote: bool
    ) {
        let from = from.min(bytes.len());
        let special = Special {
            delimiter: b',', quote: quote.then_some(b'"'), comment: comment.then_some(b'#'),
        };
        let (mut one, mut carry_one) = (vec![7], Carry::START);
        let found = separators(&bytes, from, bytes.len(), special, &mut carry_one, &mut one);
        let (mut other, mut carry_other) = (vec![7], Carry::START);
        // SAFETY: this one asks nothing of the processor.
        let expected = unsafe {
            find::<crate::simd::Portable>(&bytes, from, bytes.len(), special, &mut carry_other, &mut other)
        };
        prop_assert_eq!(found, expected);
        prop_assert_eq!(one, other);
        prop_assert_eq!(format!("{carry_one:?}"), format!("{carry_other:?}"));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, fields in 1usize..4) {
        decode(&Dialect::default(), fields, text_columns(&[0]), Options::default(), &bytes);
    }

    #[test]
    fn predicates_keep_what_a_filter_on_values_keeps(
        values in prop::collection::vec(prop_oneof![
            6 => (-20i64..20).prop_map(|n| n.to_string()), 1 => Just(String::new()), 1 => Just("NA".to_owned())
        ], 0..40),
        limit in -20i64..20, op in 0usize..6
    ) {
        use Comparison as C;
        let comparison =
            [C::Equal, C::NotEqual, C::Less, C::LessOrEqual, C::Greater, C::GreaterOrEqual][op];
        let text: String = values.iter().enumerate().map(|(i, v)| format!("{i},{v},x\n")).collect();
        let dialect = Dialect { nulls: vec!["NA".into()], ..Dialect::default() };
        let columns = vec![
            (1, Arc::new(Field::new("v", DataType::Int64, true))),
            (0, Arc::new(Field::new("i", DataType::Int64, true))),
        ];
        let test = Test::Compare(comparison, Constant::Int(limit));
        let options = Options { predicates: vec![Predicate { column: 0, test }], ..Options::default() };
        let out = decode(&dialect, 3, columns, options, text.as_bytes());
        let found: Vec<i64> = out.batches.iter()
            .flat_map(|b| b.column(1).as_primitive::<Int64Type>().values().to_vec()).collect();
        let expected: Vec<i64> = values.iter().enumerate()
            .filter(|(_, v)| v.parse::<i64>().is_ok_and(|v| comparison.holds(v.cmp(&limit))))
            .map(|(i, _)| i as i64).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(out.rows as usize, values.len());
        prop_assert!(out.bad.is_empty());
    }
}

#[test]
fn values_get_their_types_and_faults_their_places() {
    let columns = vec![
        (0, Arc::new(Field::new("n", DataType::Int64, true))),
        (1, Arc::new(Field::new("x", DataType::Float64, true))),
        (2, Arc::new(Field::new("b", DataType::Boolean, true))),
    ];
    let dialect = Dialect { nulls: vec!["NA".into(), "-1".into()], ..Dialect::default() };
    let text = b"1,1.5,true\nNA,,false\n-1,\"2.25\",NA\n7,x,true\n9999999999999999999,1,true\n\
                 +5,1e300,TRUE\n-9223372036854775808,.5,false\n";
    let out = decode(&dialect, 3, columns, Options::default(), text);
    assert_eq!(out.batches.len(), 1);
    let batch = &out.batches[0];
    let ints = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), None, None, Some(5), Some(i64::MIN)]);
    let floats = batch.column(1).as_primitive::<Float64Type>();
    assert_eq!(
        floats.iter().collect::<Vec<_>>(),
        [Some(1.5), None, Some(2.25), Some(1e300), Some(0.5)]
    );
    let booleans = batch.column(2).as_boolean();
    assert_eq!(
        booleans.iter().collect::<Vec<_>>(),
        [Some(true), Some(false), None, Some(true), Some(false)]
    );
    let faults: Vec<String> = out
        .bad
        .iter()
        .map(|bad| {
            let column = bad.fault.column.clone().unwrap();
            format!("{column} at {}: {}", bad.range.start + bad.fault.at, bad.fault)
        })
        .collect();
    assert_eq!(
        faults,
        [
            "x at 36: expected a DOUBLE, found `x`",
            "n at 43: expected a BIGINT, found `9999999999999999999`"
        ]
    );
}

#[test]
fn invalid_utf8_is_refused_in_columns_that_are_not_wanted_too() {
    let text = b"a,b,c\nd,\xff,f\ng,h,i\n";
    let out = decode(&Dialect::default(), 3, text_columns(&[0]), Options::default(), text);
    assert_eq!(rows(&out.batches), [[Some("a".to_owned())], [Some("g".into())]]);
    assert_eq!(out.bad[0].fault.to_string(), "field 2 is not valid UTF-8");
    assert_eq!((out.bad[0].range.clone(), out.bad[0].fault.at), (6..12, 2));
}

#[test]
fn nul_is_no_quote_where_quoting_is_off() {
    let dialect = Dialect { quote: None, comment: Some(b'#'), ..Dialect::default() };
    let options = Options { batch_rows: 1, ..Options::default() };
    let out = decode(&dialect, 2, text_columns(&[1]), options, b"a,\0-\0\n\xff,b\n");
    assert_eq!(rows(&out.batches), [[Some("\0-\0".to_owned())]]);
    assert_eq!(out.bad.len(), 1);
}

#[test]
fn windows_and_blocks_do_not_show() {
    let record =
        |index, long| format!("{index},\"{}\",{}\n", "x".repeat(long), "é".repeat(index % 7));
    check_windows(record, |options, text| {
        decode(&Dialect::default(), 3, text_columns(&[0, 1, 2]), options, text)
    });
}
