use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;

use super::*;
use crate::predicate_filter::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};
use crate::{BlockDecoder, DecodedBlocks, Options};

/// Decodes with a fresh decoder and again with the same one; checks the invariants of every result.
pub(crate) fn decode_with(decoder: &mut dyn BlockDecoder, text: &[u8]) -> DecodedBlocks {
    let (mut out, mut again) = (DecodedBlocks::default(), DecodedBlocks::default());
    decoder.decode(text, &mut out);
    decoder.decode(text, &mut again);
    assert!(out.batches == again.batches);
    assert_eq!((&out.rejected, out.rows), (&again.rejected, again.rows));
    for batch in &out.batches {
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
    }
    let mut at = 0;
    for bad in &out.rejected {
        assert!(bad.range.start >= at && bad.range.end > bad.range.start);
        assert!(bad.range.end <= text.len() && bad.fault.offset <= bad.range.len());
        at = bad.range.end;
    }
    out
}

/// Returns the values of batches of Utf8View columns.
pub(crate) fn rows(batches: &[RecordBatch]) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |column: &arrow_array::ArrayRef| {
                let column = column.as_string_view();
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            rows.push(batch.columns().iter().map(value).collect());
        }
    }
    rows
}

/// Checks that batches of any size and blocks of any number of records give the same records.
/// `record` receives a number and a length, which occasionally exceeds a window.
pub(crate) fn check_windows(
    record: impl Fn(usize, usize) -> String,
    decode: impl Fn(Options, &[u8]) -> DecodedBlocks,
) {
    let long = |index| if index % 700 == 3 { 70_000 } else { index % 50 };
    let records: Vec<String> = (0..3000).map(|index| record(index, long(index))).collect();
    let of = |batch_rows, text: String| {
        decode(Options { batch_rows, ..Options::default() }, text.as_bytes())
    };
    let all = of(8192, records.concat());
    assert_eq!((all.rows, all.rejected.len()), (3000, 0));
    let found = rows(&all.batches);
    assert_eq!(found, rows(&of(7, records.concat()).batches));
    let pieces: Vec<_> =
        records.chunks(11).flat_map(|records| of(8192, records.concat()).batches).collect();
    assert_eq!(found, rows(&pieces));
}

/// Returns a real log beside the project, if it exists.
pub(crate) fn real_log(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/data/logs").join(name);
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        println!("skipped: there is no {}", path.display());
    }
    bytes
}

fn field(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("line", data_type, true))
}

fn decode(data_type: DataType, batch_rows: usize, text: &[u8]) -> DecodedBlocks {
    let options = Options { batch_rows, ..Options::default() };
    decode_with(&mut LinesDecoder::new(vec![field(data_type)], options).unwrap(), text)
}

/// Returns the lines of a text, by the standard library.
fn model(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect()
}

proptest! {
    #[test]
    fn lines_are_those_of_the_standard_library(
        pieces in prop::collection::vec(
            prop::sample::select(vec![&b"a"[..], b"\n", b"\r", b"\r\n", b"longer than a view", "é".as_bytes(), b"\xff", b""]),
            0..80),
        batch_rows in 1usize..20,
    ) {
        let text = pieces.concat();
        let lines = model(&text);
        let good: Vec<_> = lines.iter().filter_map(|line| std::str::from_utf8(line).ok()).collect();
        let out = decode(DataType::Utf8View, batch_rows, &text);
        let found = rows(&out.batches);
        let found: Vec<_> = found.iter().map(|row| row[0].as_deref().unwrap()).collect();
        prop_assert_eq!(&found, &good);
        prop_assert_eq!(out.rejected.len(), lines.len() - good.len());
        for bad in &out.rejected {
            let error = std::str::from_utf8(&text[bad.range.clone()]).unwrap_err();
            prop_assert_eq!(bad.fault.offset, error.valid_up_to());
            prop_assert_eq!(bad.fault.column.as_deref(), Some("line"));
        }
        prop_assert!(out.batches.iter().all(|batch| batch.num_rows() <= batch_rows));

        let out = decode(DataType::BinaryView, batch_rows, &text);
        prop_assert!(out.rejected.is_empty());
        let found: Vec<_> = out.batches.iter()
            .flat_map(|b| b.column(0).as_binary_view().iter().map(|v| v.unwrap())).collect();
        prop_assert_eq!(&found, &lines);
        let out = decode(DataType::Binary, batch_rows, &text);
        let found: Vec<_> = out.batches.iter()
            .flat_map(|b| b.column(0).as_binary::<i32>().iter().map(|v| v.unwrap())).collect();
        prop_assert_eq!(&found, &lines);
        let out = decode(DataType::Utf8, batch_rows, &text);
        prop_assert_eq!(out.rows as usize, good.len());
    }
}

#[test]
fn lines_can_be_counted_without_being_read() {
    let text = b"a\n\nb\r\n\xff\nlast";
    let mut decoder = LinesDecoder::new(vec![], Options::default()).unwrap();
    let out = decode_with(&mut decoder, text);
    assert_eq!((out.rows, out.rejected.len()), (4, 1));
    assert_eq!(out.batches[0].num_rows(), 4);
}

#[test]
fn a_line_of_text_beside_one_of_bytes_must_be_utf8() {
    let columns = vec![field(DataType::BinaryView), field(DataType::Utf8View)];
    let mut decoder = LinesDecoder::new(columns, Options::default()).unwrap();
    let out = decode_with(&mut decoder, b"a\n\xff\nb\n");
    assert_eq!((out.rows, out.rejected[0].range.clone()), (2, 2..4));
}

#[test]
fn predicates_drop_lines() {
    let test = ValueCondition::Comparison(
        ComparisonOperator::Greater,
        PredicateConstant::Text("b".into()),
    );
    let predicates = vec![Predicate { column: 0, condition: test }];
    let options = Options { predicates, ..Options::default() };
    let out =
        decode_with(&mut LinesDecoder::new(line_columns(), options).unwrap(), b"a\nb\nc\n\nd");
    assert_eq!(rows(&out.batches), [[Some("c".to_owned())], [Some("d".to_owned())]]);
    assert_eq!(out.rows, 5);
}

#[test]
fn lines_that_are_longer_than_a_window_are_whole() {
    let text = format!("{}\nshort\n{}", "x".repeat(100_000), "é".repeat(50_000));
    let out = decode(DataType::Utf8View, 8192, text.as_bytes());
    let lengths: Vec<_> = rows(&out.batches).iter().map(|r| r[0].as_ref().unwrap().len()).collect();
    assert_eq!(lengths, [100_000, 5, 100_000]);
}

#[test]
fn a_type_that_lines_cannot_be_is_refused() {
    let list = DataType::new_list(DataType::Utf8, true);
    assert!(LinesDecoder::new(vec![field(list)], Options::default()).is_err());
}
