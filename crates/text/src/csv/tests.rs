use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_schema::{DataType, Field, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::lines::tests::{check_windows, decode_with, rows};
use crate::predicate_filter::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
use crate::{DecodedBlocks, Options};

fn text_columns(places: &[usize]) -> Vec<(usize, FieldRef)> {
    let field = |place: &usize| Field::new(format!("c{place}"), DataType::Utf8View, true);
    places.iter().map(|place| (*place, Arc::new(field(place)))).collect()
}

fn decode(
    dialect: &CsvDialect,
    fields: usize,
    columns: Vec<(usize, FieldRef)>,
    options: Options,
    text: &[u8],
) -> DecodedBlocks {
    decode_with(&mut CsvDecoder::new(dialect, fields, columns, options).unwrap(), text)
}

fn dialects() -> impl Strategy<Value = CsvDialect> {
    (prop::bool::weighted(0.8), prop::bool::weighted(0.1), prop::bool::weighted(0.2)).prop_map(
        |(quote, escape, comment)| CsvDialect {
            quote: quote.then_some(b'"'),
            escape: escape.then_some(b'\\'),
            comment: comment.then_some(b'#'),
            ..CsvDialect::default()
        },
    )
}

/// Returns text that is mostly well-formed, in records of three fields.
fn regular_text() -> impl Strategy<Value = String> {
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

/// Compares the good rows and the number of rejected records with the model.
fn check(
    dialect: &CsvDialect,
    text: &str,
    places: &[usize],
    batch_rows: usize,
) -> Result<(), TestCaseError> {
    let options = Options { batch_rows, ..Options::default() };
    let out = decode(dialect, 3, text_columns(places), options, text.as_bytes());
    // `csv_core` takes a comment at the end of the input for a record.
    let records = model::records(dialect, format!("{text}\n").as_bytes());
    let (good, bad): (Vec<_>, Vec<_>) = records.into_iter().partition(|r| r.len() == 3);
    // An unclosed quote makes the last record malformed; `csv_core` accepts it.
    let unclosed =
        out.rejected.last().is_some_and(|bad| bad.fault.kind == TextFaultKind::UnclosedQuote);
    let mut expected: Vec<Vec<Option<String>>> = good
        .iter()
        .map(|fields| {
            let value = |place: &usize| {
                Some(String::from_utf8(fields[*place].clone()).unwrap()).filter(|v| !v.is_empty())
            };
            places.iter().map(value).collect()
        })
        .collect();
    if unclosed && out.rejected.len() > bad.len() {
        expected.pop();
    } else {
        prop_assert_eq!(out.rejected.len(), bad.len());
    }
    prop_assert_eq!(out.rows as usize, expected.len());
    // `csv_core` does not distinguish an empty field in quotes from one without.
    let mut found = rows(&out.batches);
    found.iter_mut().flatten().for_each(|value| _ = value.take_if(|value| value.is_empty()));
    prop_assert_eq!(found, expected);
    prop_assert!(out.batches.iter().all(|batch| batch.num_rows() <= batch_rows));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn regular_text_is_read_as_csv_core_reads_it(
        dialect in dialects(), text in regular_text(), batch_rows in 1usize..50, last in prop::bool::ANY
    ) {
        let text = if last { text.trim_end_matches('\n') } else { &text };
        check(&dialect, text, &[0, 1, 2], batch_rows)?;
        check(&dialect, text, &[2], 8192)?;
        check(&dialect, text, &[], 8192)?;
    }

    #[test]
    fn nothing_in_quotes_is_an_empty_text_and_nothing_without_them_is_null(
        values in prop::collection::vec(0usize..6, 0..400),
        batch_rows in 1usize..50, crlf: bool,
    ) {
        const WRITTEN: [&str; 6] = ["", "\"\"", "a", "\"a\"", "\"NA\"", "\"\"\"\""];
        let read = [None, Some(""), Some("a"), Some("a"), None, Some("\"")];
        let end = if crlf { "\r\n" } else { "\n" };
        let mut text = String::new();
        for value in &values {
            text += &format!("x,{},{}{end}", WRITTEN[*value], WRITTEN[*value]);
        }
        let dialect = CsvDialect { nulls: vec!["NA".into()], ..CsvDialect::default() };
        for kind in [DataType::Utf8View, DataType::Utf8, DataType::LargeUtf8, DataType::BinaryView] {
            let columns = vec![(1, Arc::new(Field::new("v", kind.clone(), true)))];
            let options = Options { batch_rows, ..Options::default() };
            let found = decode(&dialect, 3, columns, options, text.as_bytes());
            let found: Vec<Option<String>> = found.batches.iter().flat_map(|batch| {
                let texts = arrow_cast::cast(batch.column(0), &DataType::Utf8View).unwrap();
                let texts: Vec<_> = texts.as_string_view().iter().map(|v| v.map(str::to_owned)).collect();
                texts
            }).collect();
            let expected: Vec<Option<String>> =
                values.iter().map(|value| read[*value].map(str::to_owned)).collect();
            prop_assert_eq!(found, expected, "{}", kind);
        }
        // A predicate gives the same.
        for (test, keeps) in [(ValueCondition::IsNull, [0, 4].as_slice()), (ValueCondition::IsNotNull, &[1, 2, 3, 5]),
            (ValueCondition::Comparison(ComparisonOperator::Equal, PredicateConstant::Text(String::new())), &[1])]
        {
            let columns = vec![(1, Arc::new(Field::new("v", DataType::Utf8View, true)))];
            let predicates = vec![Predicate { column: 0, condition: test }];
            let options = Options { batch_rows, predicates, ..Options::default() };
            let found = decode(&dialect, 3, columns, options, text.as_bytes());
            let kept: usize = found.batches.iter().map(|batch| batch.num_rows()).sum();
            prop_assert_eq!(kept, values.iter().filter(|value| keeps.contains(value)).count());
        }
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
        let special = SpecialBytes {
            delimiter: b',', quote: quote.then_some(b'"'), comment: comment.then_some(b'#'),
        };
        let (mut one, mut carry_one) = (vec![7], CsvScanCarry::RECORD_START);
        let found = find_separators(&bytes, from, bytes.len(), special, &mut carry_one, &mut one);
        let (mut other, mut carry_other) = (vec![7], CsvScanCarry::RECORD_START);
        // SAFETY: the portable implementation needs nothing of the processor.
        let expected = unsafe {
            find_simd::<crate::simd::Portable>(&bytes, from, bytes.len(), special, &mut carry_other, &mut other)
        };
        prop_assert_eq!(found, expected);
        prop_assert_eq!(one, other);
        prop_assert_eq!(format!("{carry_one:?}"), format!("{carry_other:?}"));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, fields in 1usize..4) {
        decode(&CsvDialect::default(), fields, text_columns(&[0]), Options::default(), &bytes);
    }

    #[test]
    fn predicates_keep_what_a_filter_on_values_keeps(
        values in prop::collection::vec(prop_oneof![
            6 => (-20i64..20).prop_map(|n| n.to_string()), 1 => Just(String::new()), 1 => Just("NA".to_owned())
        ], 0..40),
        limit in -20i64..20, op in 0usize..6
    ) {
        use ComparisonOperator as C;
        let comparison =
            [C::Equal, C::NotEqual, C::Less, C::LessOrEqual, C::Greater, C::GreaterOrEqual][op];
        let text: String = values.iter().enumerate().map(|(i, v)| format!("{i},{v},x\n")).collect();
        let dialect = CsvDialect { nulls: vec!["NA".into()], ..CsvDialect::default() };
        let columns = vec![
            (1, Arc::new(Field::new("v", DataType::Int64, true))),
            (0, Arc::new(Field::new("i", DataType::Int64, true))),
        ];
        let test = ValueCondition::Comparison(comparison, PredicateConstant::Int(limit));
        let options = Options { predicates: vec![Predicate { column: 0, condition: test }], ..Options::default() };
        let out = decode(&dialect, 3, columns, options, text.as_bytes());
        let found: Vec<i64> = out.batches.iter()
            .flat_map(|b| b.column(1).as_primitive::<Int64Type>().values().to_vec()).collect();
        let expected: Vec<i64> = values.iter().enumerate()
            .filter(|(_, v)| v.parse::<i64>().is_ok_and(|v| comparison.is_satisfied_by(v.cmp(&limit))))
            .map(|(i, _)| i as i64).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(out.rows as usize, values.len());
        prop_assert!(out.rejected.is_empty());
    }
}

#[test]
fn values_get_their_types_and_faults_their_places() {
    let columns = vec![
        (0, Arc::new(Field::new("n", DataType::Int64, true))),
        (1, Arc::new(Field::new("x", DataType::Float64, true))),
        (2, Arc::new(Field::new("b", DataType::Boolean, true))),
    ];
    let dialect = CsvDialect { nulls: vec!["NA".into(), "-1".into()], ..CsvDialect::default() };
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
        .rejected
        .iter()
        .map(|bad| {
            let column = bad.fault.column.clone().unwrap();
            format!("{column} at {}: {}", bad.range.start + bad.fault.offset, bad.fault)
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
    let out = decode(&CsvDialect::default(), 3, text_columns(&[0]), Options::default(), text);
    assert_eq!(rows(&out.batches), [[Some("a".to_owned())], [Some("g".into())]]);
    assert_eq!(out.rejected[0].fault.to_string(), "field 2 is not valid UTF-8");
    assert_eq!((out.rejected[0].range.clone(), out.rejected[0].fault.offset), (6..12, 2));
}

#[test]
fn nul_is_no_quote_where_quoting_is_off() {
    let dialect = CsvDialect { quote: None, comment: Some(b'#'), ..CsvDialect::default() };
    let options = Options { batch_rows: 1, ..Options::default() };
    let out = decode(&dialect, 2, text_columns(&[1]), options, b"a,\0-\0\n\xff,b\n");
    assert_eq!(rows(&out.batches), [[Some("\0-\0".to_owned())]]);
    assert_eq!(out.rejected.len(), 1);
}

#[test]
fn result_does_not_depend_on_windows_and_blocks() {
    let record =
        |index, long| format!("{index},\"{}\",{}\n", "x".repeat(long), "é".repeat(index % 7));
    check_windows(record, |options, text| {
        decode(&CsvDialect::default(), 3, text_columns(&[0, 1, 2]), options, text)
    });
}

/// A column with an inferred type accepts only numbers that it does not change; one with a declared
/// type accepts every spelling.
#[test]
fn inferred_columns_refuse_numbers_that_would_lose_their_spelling() {
    let column =
        |data_type: &DataType| vec![(0, Arc::new(Field::new("n", data_type.clone(), true)))];
    let decode_as = |data_type: &DataType, is_inferred: bool, options: Options, text: &str| {
        let inferred = if is_inferred { vec![0] } else { Vec::new() };
        let options = Options { inferred_columns: inferred, ..options };
        decode(&CsvDialect::default(), 1, column(data_type), options, text.as_bytes())
    };
    let (int, uint, float) = (DataType::Int64, DataType::UInt64, DataType::Float64);
    // After many usual values, so that the fast parsers meet it too.
    for usual in [0, 1, 7, 100] {
        for (data_type, value, name) in [
            (&int, "01234", "a BIGINT"),
            (&int, "-07", "a BIGINT"),
            (&int, "-0", "a BIGINT"),
            (&int, "00000000000000000000000007", "a BIGINT"),
            (&int, "\"007\"", "a BIGINT"),
            (&uint, "007", "a BIGINT UNSIGNED"),
            (&float, "01.5", "a DOUBLE"),
            (&float, ".5", "a DOUBLE"),
            (&float, "5.", "a DOUBLE"),
            (&float, "12345e67", "a DOUBLE"),
            (&float, "1234e5678", "a DOUBLE"),
            (&float, "9007199254740993", "a DOUBLE"),
            (&float, "nan", "a DOUBLE"),
        ] {
            let text = format!("{}{value}\n{}", "12\n".repeat(usual), "0\n".repeat(20));
            let found = decode_as(data_type, true, Options::default(), &text);
            let faults: Vec<_> = found.rejected.iter().map(|bad| bad.fault.to_string()).collect();
            let shown = value.trim_matches('"');
            let expected = match shown {
                "9007199254740993" => {
                    format!("a DOUBLE holds no integer `{shown}`, only one close to it")
                }
                "1234e5678" => format!("`{shown}` is beyond the range of a DOUBLE"),
                _ => format!("expected {name}, found `{shown}`, whose spelling {name} would lose"),
            };
            assert_eq!(faults, [expected]);
            assert_eq!(found.rows, usual as u64 + 20);
            let lax = Options { mismatch_is_null: true, ..Options::default() };
            let found = decode_as(data_type, true, lax, &text);
            assert_eq!((found.rows, found.rejected.len()), (usual as u64 + 21, 0));
            assert!(found.batches[0].column(0).is_null(usual), "{value}");
            let declared = decode_as(data_type, false, Options::default(), &text);
            assert_eq!((declared.rows, declared.rejected.len()), (usual as u64 + 21, 0), "{value}");
            assert!(declared.batches[0].column(0).is_valid(usual), "{value}");
        }
    }
}

/// A predicate keeps values that it would have to read as another number.
#[test]
fn predicates_keep_values_that_are_no_canonical_numbers() {
    let column = vec![(0, Arc::new(Field::new("n", DataType::Int64, true)))];
    let predicates = vec![Predicate {
        column: 0,
        condition: ValueCondition::Comparison(ComparisonOperator::Equal, PredicateConstant::Int(5)),
    }];
    for (inferred, rows, bad) in [(vec![0], 1, 1), (vec![], 1, 0)] {
        let options = Options {
            predicates: predicates.clone(),
            inferred_columns: inferred,
            ..Options::default()
        };
        let found = decode(&CsvDialect::default(), 1, column.clone(), options, b"5\n007\n8\n");
        let kept: usize = found.batches.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!((kept, found.rejected.len()), (rows, bad));
    }
}

/// A sample in which some times state no zone is text. After the sample such a time is refused, not read as
/// UTC.
#[test]
fn inferred_columns_of_a_zone_refuse_times_without_one() {
    let zoned = |zone: &str, unit| DataType::Timestamp(unit, Some(zone.into()));
    let decode_as = |data_type: &DataType, is_inferred: bool, options: Options, text: &str| {
        let columns = vec![(0, Arc::new(Field::new("t", data_type.clone(), true)))];
        let inferred = if is_inferred { vec![0] } else { Vec::new() };
        let options = Options { inferred_columns: inferred, ..options };
        decode(&CsvDialect::default(), 1, columns, options, text.as_bytes())
    };
    let usual_value = "2026-01-01T00:00:00Z\n";
    for usual in [0, 1, 7, 100] {
        for (value, is_refused) in [
            ("2026-01-01T05:00:00", true),
            ("2026-01-01 05:00:00", true),
            ("2026-01-01T05:00:00.25", true),
            ("\"2026-01-01T05:00:00\"", true),
            ("2026-01-01", true),
            ("2026-01-01T05:00:00Z", false),
            ("2026-01-01T05:00:00+02:00", false),
            ("2026-01-01 05:00:00.5-03:00", false),
            ("\"2026-01-01T05:00:00Z\"", false),
        ] {
            let text = format!("{}{value}\n{}", usual_value.repeat(usual), usual_value.repeat(20));
            let data_type = zoned("UTC", TimeUnit::Microsecond);
            let found = decode_as(&data_type, true, Options::default(), &text);
            let faults: Vec<_> = found.rejected.iter().map(|bad| bad.fault.to_string()).collect();
            let expected = format!(
                "expected a timestamp with a time zone, to microseconds, found `{}`, which states none",
                value.trim_matches('"')
            );
            let expected = if is_refused { vec![expected] } else { Vec::new() };
            assert_eq!(faults, expected, "{value}");
            assert_eq!(found.rows, usual as u64 + 20 + u64::from(!is_refused), "{value}");
            let lax = Options { mismatch_is_null: true, ..Options::default() };
            let found = decode_as(&data_type, true, lax, &text);
            assert_eq!((found.rows, found.rejected.len()), (usual as u64 + 21, 0), "{value}");
            assert_eq!(found.batches[0].column(0).is_null(usual), is_refused, "{value}");
            for (zone, unit) in
                [("UTC", TimeUnit::Nanosecond), ("Europe/Berlin", TimeUnit::Millisecond)]
            {
                let data_type = zoned(zone, unit);
                let found = decode_as(&data_type, true, Options::default(), &text);
                assert_eq!(found.rejected.len(), usize::from(is_refused), "{value}");
                let declared = decode_as(&data_type, false, Options::default(), &text);
                assert_eq!(
                    (declared.rows, declared.rejected.len()),
                    (usual as u64 + 21, 0),
                    "{value}"
                );
            }
            let naive = DataType::Timestamp(TimeUnit::Microsecond, None);
            let text = text.replace(usual_value, "2026-01-01T00:00:00\n");
            let found = decode_as(&naive, true, Options::default(), &text);
            let is_offset = value.contains("00-") || value.contains('+') || value.contains("5-");
            assert_eq!(found.rejected.len(), usize::from(is_offset), "{value}");
        }
    }
    let predicates = vec![Predicate { column: 0, condition: ValueCondition::IsNull }];
    let options = Options { predicates, inferred_columns: vec![0], ..Options::default() };
    let columns = vec![(0, Arc::new(Field::new("t", zoned("UTC", TimeUnit::Microsecond), true)))];
    let text = b"2026-01-01T00:00:00Z\n2026-01-01T05:00:00\n\"\"\n";
    let found = decode(&CsvDialect::default(), 1, columns, options, text);
    assert_eq!((found.rows, found.rejected.len()), (2, 1));
}

/// There is no empty number, so files with all fields in quotes have nulls in such columns.
#[test]
fn nothing_in_quotes_is_null_in_columns_that_are_no_text() {
    let types = [
        DataType::Int64,
        DataType::UInt64,
        DataType::Float64,
        DataType::Boolean,
        DataType::Date32,
        DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, None),
        DataType::Decimal128(10, 2),
        DataType::Time64(arrow_schema::TimeUnit::Microsecond),
    ];
    for data_type in types {
        let columns = vec![(0, Arc::new(Field::new("n", data_type.clone(), true)))];
        for inferred in [vec![], vec![0]] {
            let options = Options { inferred_columns: inferred, ..Options::default() };
            let text = b"\"\",a\n,b\n";
            let found = decode(&CsvDialect::default(), 2, columns.clone(), options, text);
            assert_eq!((found.rows, found.rejected.len()), (2, 0), "{data_type}");
            assert_eq!(found.batches[0].column(0).null_count(), 2, "{data_type}");
        }
        for (test, rows) in [(ValueCondition::IsNull, 2), (ValueCondition::IsNotNull, 0)] {
            let predicates = vec![Predicate { column: 0, condition: test }];
            let options = Options { predicates, ..Options::default() };
            let text = b"\"\",a\n,b\n";
            let found = decode(&CsvDialect::default(), 2, columns.clone(), options, text);
            let kept: usize = found.batches.iter().map(|batch| batch.num_rows()).sum();
            assert_eq!(kept, rows, "{data_type}");
        }
    }
}

/// Records whose quotes contradict an unstated dialect, alone and among regular records.
#[test]
fn records_whose_quotes_contradict_an_unstated_dialect_are_refused() {
    let swallowed = |lines, fields| Some(TextFaultKind::QuotedRecords { lines, fields });
    let escaped = Some(TextFaultKind::ClosedAfterBackslash);
    for (delimiter, fields, record, fault) in [
        // An opening quote that is plain text, up to the next one.
        (b'\t', 3, "2\t\"Rome\t1945\n3\tB\t1950\n4\t\"Second\t1951\n", swallowed(3, 3)),
        (b'\t', 3, "2\t\"Rome\t1945\r\n3\tB\t1950\r\n4\tC\"\t1951\r\n", swallowed(3, 3)),
        (b'\t', 2, "2\t\"Rome\n3\t\"Second\n", swallowed(2, 2)),
        (b',', 3, "2,\"Rome,1945\n3,B,1950\n4,\"Second,1951\n", swallowed(3, 3)),
        (b',', 2, "2,\"Rome\n3,The \"Best\" of\n", swallowed(2, 2)),
        // Fields with line ends.
        (b',', 3, "1,Bob,\"12 Main St\nSpringfield, IL, 62701\"\n", None),
        (b'\t', 2, "1\t\"a\nb\tc\"\n", None),
        (b'\t', 3, "1\tBob\t\"a\nb\"\n", None),
        (b',', 1, "\"a\n\"b\n", None),
        // Quotes after backslashes.
        (b',', 2, "2,\"say \\\"hi\\\"\"\n", escaped.clone()),
        (b';', 2, "\"\\\"hi\\\" he said\";2\n", escaped.clone()),
        (b',', 2, "2,\"say \"hi\"\"\n", None),
        (b',', 2, "2,\"C:\\dir\\\"\n", None),
        (b',', 2, "2,\"a\\\\\"b\"c\"\n", None),
        (b',', 2, "2,say \\\"hi\\\"\n", None),
        (b',', 2, "2,\"{\"\"k\\\"\": 1}\"\n", None),
    ] {
        let plain = |records: usize| {
            let line = vec!["x"; fields].join(&char::from(delimiter).to_string());
            format!("{line}\n").repeat(records)
        };
        for (before, behind) in [(0, 0), (1, 0), (3, 200), (20_000, 1)] {
            for checks_quotes in [true, false] {
                let dialect = CsvDialect { delimiter, checks_quotes, ..CsvDialect::default() };
                for places in [&[0][..], &[]] {
                    let text = format!("{}{record}{}", plain(before), plain(behind));
                    let columns = text_columns(places);
                    let out =
                        decode(&dialect, fields, columns, Options::default(), text.as_bytes());
                    let found: Vec<_> =
                        out.rejected.into_iter().map(|bad| bad.fault.kind).collect();
                    let expected: Vec<_> =
                        fault.clone().filter(|_| checks_quotes).into_iter().collect();
                    assert_eq!(found, expected, "{record} {before} {behind}");
                    let rows = before + behind + usize::from(expected.is_empty());
                    assert_eq!(out.rows as usize, rows, "{record} {before} {behind}");
                }
            }
        }
    }
}

/// Bytes in the spelling of this product and PostgreSQL are read back; other texts are their own bytes.
#[test]
fn columns_of_bytes_take_hexadecimal_digits() {
    let text = b"\\x00ff\n\"\\xABcdef00112233445566778899\"\n\\x\n\\xabc\n\\xzz\nx\n";
    let expected: [&[u8]; 6] = [
        b"\x00\xff",
        b"\xab\xcd\xef\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99",
        b"",
        b"\\xabc",
        b"\\xzz",
        b"x",
    ];
    for kind in [DataType::Binary, DataType::BinaryView] {
        let column = vec![(0, Arc::new(Field::new("b", kind.clone(), true)))];
        let found = decode(&CsvDialect::default(), 1, column, Options::default(), text);
        assert!(found.rejected.is_empty());
        let bytes = arrow_cast::cast(found.batches[0].column(0), &DataType::Binary).unwrap();
        let bytes: Vec<&[u8]> = bytes.as_binary::<i32>().iter().flatten().collect();
        assert_eq!(bytes, expected, "{kind}");
    }
    let texts =
        decode(&CsvDialect::default(), 1, text_columns(&[0]), Options::default(), b"\\x78\n");
    assert_eq!(rows(&texts.batches), [[Some("\\x78".to_owned())]]);
}
