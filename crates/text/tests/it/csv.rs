//! Comparison of CSV with `arrow_csv`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_csv::reader::Format;
use arrow_schema::{ArrowError, DataType as T, Field, Schema, SchemaRef};
use proptest::prelude::*;
use proptest::sample::select;
use tidemill_text::csv::CsvDecoder;
use tidemill_text::{BlockDecoder, CsvDialect, DecodedBlocks, Options};

use crate::same;
use crate::values::{for_arrow, scalars, texts};

/// A field: its text, true if it is in quotes without need, and true if it escapes quotes by the escape byte.
type Value = (String, bool, bool);

#[derive(Debug, Clone)]
struct Record {
    values: Vec<Value>,
    end: &'static str,
    /// The text before it: blank lines or a comment.
    before: &'static str,
}

fn dialects() -> impl Strategy<Value = CsvDialect> {
    (select(b",\t;|".to_vec()), prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(
        |(delimiter, escape, comment)| CsvDialect {
            delimiter,
            escape: escape.then_some(b'\\'),
            comment: comment.then_some(b'#'),
            nulls: vec!["NA".into()],
            ..CsvDialect::default()
        },
    )
}

fn types() -> BoxedStrategy<Vec<T>> {
    let dictionary = T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8));
    prop::collection::vec(prop_oneof![20 => scalars(), 1 => Just(dictionary)], 1..7).boxed()
}

fn records(types: &[T]) -> BoxedStrategy<Vec<Record>> {
    let value = |text: BoxedStrategy<String>| {
        let text = prop_oneof![12 => text, 1 => select(vec!["", "NA"]).prop_map(str::to_owned)];
        (text, prop::bool::weighted(0.1), any::<bool>())
    };
    let good: Vec<_> = types.iter().map(|data_type| value(texts(data_type))).collect();
    // Too few fields, or too many.
    let odd = prop::collection::vec(value("[a-z]{0,2}".boxed()), 1..types.len() + 3);
    let values = prop_oneof![30 => good.boxed(), 1 => odd.boxed()];
    let end = prop_oneof![8 => Just("\n"), 3 => Just("\r\n"), 1 => Just("\r")];
    let before = prop_oneof![20 => Just(""), 1 => Just("\n"), 1 => Just("\r\n\n"), 1 => Just("#")];
    let record =
        (values, end, before).prop_map(|(values, end, before)| Record { values, end, before });
    prop::collection::vec(record, 0..30).boxed()
}

/// Writes a record, with values as `change` returns them.
fn write(
    record: &Record,
    dialect: &CsvDialect,
    change: impl Fn(usize, &str) -> String,
    out: &mut String,
) {
    match (record.before, dialect.comment) {
        ("#", Some(_)) => out.push_str("# no \"record, \n"),
        ("#", None) => {}
        (blank, _) => out.push_str(blank),
    }
    let delimiter = char::from(dialect.delimiter);
    for (index, (text, quoted, doubled)) in record.values.iter().enumerate() {
        if index > 0 {
            out.push(delimiter);
        }
        let text = change(index, text);
        // A record that begins with NUL bytes follows a hole in its file; Arrow does not refuse it.
        let is_needed = text.contains([delimiter, '\n', '\r'])
            || text.starts_with('"')
            || index == 0 && text.starts_with(['#', '\0'])
            || text.is_empty() && record.values.len() == 1;
        if !quoted && !is_needed {
            out.push_str(&text);
            continue;
        }
        let (escape, quote) = match dialect.escape {
            Some(_) => ("\\\\", if *doubled { "\"\"" } else { "\\\"" }),
            None => ("\\", "\"\""),
        };
        out.push('"');
        out.push_str(&text.replace('\\', escape).replace('"', "\u{1}").replace('\u{1}', quote));
        out.push('"');
    }
    out.push_str(record.end);
}

/// Returns Arrow's batches for a text.
fn arrow(
    dialect: &CsvDialect,
    schema: &SchemaRef,
    wanted: &[usize],
    text: &str,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut format = Format::default().with_delimiter(dialect.delimiter);
    if let Some(escape) = dialect.escape {
        format = format.with_escape(escape);
    }
    if let Some(comment) = dialect.comment {
        format = format.with_comment(comment);
    }
    arrow_csv::ReaderBuilder::new(schema.clone())
        .with_format(format)
        .with_projection(wanted.to_vec())
        .build_buffered(text.as_bytes())?
        .collect()
}

fn ours(
    dialect: &CsvDialect,
    schema: &SchemaRef,
    wanted: &[usize],
    options: Options,
    text: &str,
) -> DecodedBlocks {
    let fields = schema.fields();
    let columns = wanted.iter().map(|place| (*place, fields[*place].clone())).collect();
    let mut decoder = CsvDecoder::new(dialect, fields.len(), columns, options).unwrap();
    let mut out = DecodedBlocks::default();
    decoder.decode(text.as_bytes(), &mut out);
    // Arrow reads an empty field in quotes as null.
    for batch in &mut out.batches {
        *batch = without_empty_texts(batch);
    }
    out
}

fn without_empty_texts(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(|column| {
        let is_text = matches!(
            column.data_type(),
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::BinaryView | T::Dictionary(..)
        );
        if !is_text {
            return Arc::clone(column);
        }
        let texts = arrow_cast::cast(column, &T::Utf8View).unwrap();
        let texts: StringViewArray = texts
            .as_string_view()
            .iter()
            .map(|text| text.filter(|text| !text.is_empty()))
            .collect();
        arrow_cast::cast(&texts, column.data_type()).unwrap()
    });
    let columns: Vec<_> = columns.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn documents_are_read_as_arrow_reads_them(
        dialect in dialects(),
        (types, records) in types().prop_flat_map(|types| (Just(types.clone()), records(&types))),
        wanted in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        batch_rows in 1usize..40,
        cut: bool,
    ) {
        let fields: Vec<_> = types.iter().enumerate()
            .map(|(place, t)| Arc::new(Field::new(format!("c{place}"), t.clone(), true))).collect();
        let schema = Arc::new(Schema::new(fields));
        let wanted: Vec<usize> = wanted.iter().map(|index| index.index(types.len())).collect();
        // Arrow takes null strings as a regular expression.
        let change = |place: usize, text: &str| match types.get(place) {
            _ if text == "NA" => String::new(),
            Some(_) if text.is_empty() => String::new(),
            Some(data_type) => for_arrow(text, data_type),
            None => text.to_owned(),
        };
        let (mut text, mut all_for_arrow) = (String::new(), String::new());
        // Arrow stops at the first fault, so each record is a document for it.
        let (mut good, mut bad) = (Vec::new(), 0);
        for record in &records {
            write(record, &dialect, |_, text| text.to_owned(), &mut text);
            let start = all_for_arrow.len();
            write(record, &dialect, change, &mut all_for_arrow);
            match arrow(&dialect, &schema, &wanted, &all_for_arrow[start..]) {
                Ok(batches) => good.extend(batches),
                Err(_) => bad += 1,
            }
        }
        let text = if cut { text.trim_end_matches(['\r', '\n']) } else { &text };
        let options = Options { batch_rows, ..Options::default() };
        let out = ours(&dialect, &schema, &wanted, options, text);
        prop_assert_eq!(out.rejected.len(), bad, "{:?}\n{:?}\n{:?}", out.rejected, text, all_for_arrow);
        same(&out.batches, &good)?;
        // The whole text gives the same.
        if bad == 0 {
            let whole = arrow(&dialect, &schema, &wanted, &all_for_arrow).unwrap();
            same(&out.batches, &whole)?;
        }
        // If a value that is not of its type becomes null, the others stay.
        let options = Options { mismatch_is_null: true, ..Options::default() };
        let lax = ours(&dialect, &schema, &wanted, options, text);
        let counted = records.iter().filter(|record| record.values.len() == types.len()).count();
        prop_assert_eq!(lax.rows as usize, counted);
    }
}
