//! Counts of values that became NULL because they are not of their column's type.
//!
//! With [`mismatch_is_null`](crate::Options::mismatch_is_null) such a value would be lost silently, so the
//! decoder counts it. The decoder builds the columns of a window one after the other. Each column counts its
//! mismatches in the [`DecodingContext`](crate::array_builders::DecodingContext), and the decoder adds them
//! to its tally. They count once the decoder commits the window, as [keys](crate::unknown_keys) do.

use std::cell::Cell;

use crate::unknown_keys::OccurrenceTally;

/// Number and first offset of a column's values in one block that became NULL because of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockColumnMismatches {
    /// Position of the column among the requested columns.
    pub column: usize,
    /// Number of values.
    pub count: u64,
    /// Offset of the first value in the block.
    pub first_offset: usize,
}

/// Counter of the mismatches in the column that is being built, with the offset of the first.
#[derive(Debug, Default, Clone)]
pub(crate) struct ColumnMismatchCounter(Cell<Option<(u64, usize)>>);

impl ColumnMismatchCounter {
    /// Counts a value that begins at `at`.
    pub(crate) fn count_mismatch(&self, at: usize) {
        let (count, first) = self.0.get().unwrap_or((0, at));
        self.0.set(Some((count + 1, first.min(at))));
    }

    /// Returns the count and the first offset, and resets the counter.
    pub(crate) fn take(&self) -> Option<(u64, usize)> {
        self.0.take()
    }
}

/// Mismatches of a decoder's columns.
#[derive(Debug, Default)]
pub(crate) struct ColumnMismatchTally {
    columns: Vec<OccurrenceTally>,
    /// True if mismatches were added since the last commit.
    has_uncommitted: bool,
}

impl ColumnMismatchTally {
    pub(crate) fn new(column_count: usize) -> Self {
        Self { columns: vec![OccurrenceTally::default(); column_count], has_uncommitted: false }
    }

    /// Adds mismatches of a column, the first of which is at `at`.
    pub(crate) fn add(&mut self, column: usize, count: u64, at: usize) {
        if let Some(occurrences) = self.columns.get_mut(column) {
            occurrences.add(count, at);
            self.has_uncommitted = true;
        }
    }

    /// Commits the added mismatches.
    pub(crate) fn commit(&mut self) {
        if std::mem::take(&mut self.has_uncommitted) {
            self.columns.iter_mut().for_each(OccurrenceTally::commit);
        }
    }

    /// Discards the mismatches added since the last commit.
    pub(crate) fn discard(&mut self) {
        if std::mem::take(&mut self.has_uncommitted) {
            self.columns.iter_mut().for_each(OccurrenceTally::discard);
        }
    }

    /// Moves the committed mismatches into `out`.
    pub(crate) fn drain(&mut self, out: &mut Vec<BlockColumnMismatches>) {
        let columns = self.columns.iter_mut().enumerate();
        out.extend(columns.filter_map(|(column, occurrences)| {
            let (count, at) = occurrences.drain()?;
            Some(BlockColumnMismatches { column, count, first_offset: at })
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType as T, Field, FieldRef, TimeUnit};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::csv::CsvDecoder;
    use crate::json::JsonDecoder;
    use crate::logfmt::LogfmtDecoder;
    use crate::{
        BlockDecoder, ComparisonOperator, CsvDialect, DecodedBlocks, Options, Predicate,
        PredicateConstant, ValueCondition,
    };

    fn field(name: &str, data_type: T) -> FieldRef {
        Arc::new(Field::new(name, data_type, true))
    }

    /// Scalars as CSV and logfmt write them, with 1 if the column has another type.
    type Values = &'static [(&'static str, u64)];

    fn flat_columns() -> Vec<(FieldRef, Values)> {
        let text = T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8View));
        vec![
            (field("n", T::Int64), &[("1", 0), ("-7", 0), ("x", 1), ("1.5", 1), ("", 0)]),
            (field("c", T::Int64), &[("1", 0), ("007", 1), ("+1", 1), ("", 0)]),
            (field("f", T::Float64), &[("1.5", 0), ("oops", 1), ("", 0)]),
            (field("b", T::Boolean), &[("true", 0), ("maybe", 1), ("", 0)]),
            (field("d", T::Date32), &[("2026-01-02", 0), ("2026-02-30", 1), ("", 0)]),
            (
                field("t", T::Time64(TimeUnit::Nanosecond)),
                &[("12:30", 0), ("25:00", 1), ("", 0), ("noon", 1)],
            ),
            (field("m", T::Decimal128(4, 1)), &[("1.5", 0), ("1.55", 1), ("", 0)]),
            (field("w", text), &[("a", 0), ("b", 0), ("", 0)]),
        ]
    }

    fn nested_columns() -> Vec<(FieldRef, Values)> {
        let item = field("item", T::Int64);
        let part = T::Struct(vec![field("x", T::Int64), field("y", T::Boolean)].into());
        let key = Arc::new(Field::new("key", T::Utf8, false));
        let pair = T::Struct(vec![key, field("value", T::Float64)].into());
        let map = T::Map(Arc::new(Field::new("entries", pair, false)), false);
        vec![
            (
                field("n", T::Int64),
                &[("1", 0), ("null", 0), ("\"7\"", 0), ("\"x\"", 1), ("{\"a\":1}", 1), ("[1]", 1)],
            ),
            (
                field("s", part),
                &[
                    ("{\"x\":1,\"y\":true}", 0),
                    ("{\"x\":\"a\"}", 1),
                    ("{\"x\":[],\"y\":{}}", 2),
                    ("{\"x\":\"a\",\"x\":1}", 0),
                    ("{\"x\":{},\"x\":1}", 0),
                    ("3", 1),
                    ("[{}]", 1),
                    ("null", 0),
                    ("{}", 0),
                ],
            ),
            (
                field("l", T::List(item)),
                &[("[1,2]", 0), ("[\"a\",1,{}, null]", 2), ("\"a\"", 1), ("null", 0), ("[]", 0)],
            ),
            (
                field("m", map),
                &[("{\"k\":1}", 0), ("{\"k\":\"x\",\"j\":[]}", 2), ("\"z\"", 1), ("{}", 0)],
            ),
            (field("t", T::Utf8View), &[("\"a\"", 0), ("1", 0), ("[1, 2]", 0), ("{}", 0)]),
        ]
    }

    fn columns(format: usize) -> Vec<(FieldRef, Values)> {
        if format == 2 { nested_columns() } else { flat_columns() }
    }

    /// Returns records with the number of mismatches in each column, or `None` for a rejected record.
    fn records(format: usize) -> impl Strategy<Value = Vec<(String, Option<Vec<u64>>)>> {
        let values: Vec<Values> = columns(format).into_iter().map(|(_, values)| values).collect();
        let record = values.into_iter().map(select).collect::<Vec<_>>();
        let record = (record, any::<u8>()).prop_map(move |(values, odd)| {
            let names = columns(format);
            let pairs =
                names.iter().zip(&values).map(|((field, _), (value, _))| (field.name(), value));
            let mut text = match format {
                0 => values.iter().map(|(value, _)| *value).collect::<Vec<_>>().join(","),
                1 => pairs
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" "),
                _ => {
                    let members: Vec<_> =
                        pairs.map(|(name, value)| format!("\"{name}\": {value}")).collect();
                    format!("{{{}}}", members.join(", "))
                }
            };
            let is_refused = odd < 10;
            if is_refused {
                text += [",", " =1", "}"][format];
            }
            text.push('\n');
            let counts = values.iter().map(|(_, count)| *count).collect();
            (text, (!is_refused).then_some(counts))
        });
        prop::collection::vec(record, 0..60)
    }

    fn decoder(format: usize, options: Options) -> Box<dyn BlockDecoder> {
        let fields: Vec<FieldRef> = columns(format).into_iter().map(|(field, _)| field).collect();
        // The second column takes only canonical numbers.
        let options = Options { inferred_columns: vec![1], mismatch_is_null: true, ..options };
        let placed = || fields.iter().cloned().enumerate().collect();
        match format {
            0 => {
                let dialect = CsvDialect::default();
                Box::new(CsvDecoder::new(&dialect, fields.len(), placed(), options).unwrap())
            }
            1 => Box::new(LogfmtDecoder::new(fields, options).unwrap()),
            _ => Box::new(JsonDecoder::new(fields, &[], options).unwrap()),
        }
    }

    /// Number of mismatches and place of the first, by column.
    type Found = Vec<(u64, Option<usize>)>;

    /// Decodes a text in blocks of `block_records` records.
    fn count_mismatches(
        decoder: &mut dyn BlockDecoder,
        records: &[&str],
        block_records: usize,
    ) -> Found {
        let mut found = vec![(0, None); decoder.schema().fields().len()];
        let (mut out, mut start) = (DecodedBlocks::default(), 0);
        for block in records.chunks(block_records) {
            let text = block.concat();
            out.clear();
            decoder.push(text.as_bytes(), &mut out);
            for BlockColumnMismatches { column, count, first_offset: at } in &out.mismatches {
                let (sum, first) = &mut found[*column];
                *sum += count;
                first.get_or_insert(start + at);
            }
            start += text.len();
        }
        decoder.finish(&mut out);
        found
    }

    proptest! {
        /// Windows, single records, batches and blocks of any size give the same counts, which match the
        /// values.
        #[test]
        fn mismatches_are_counted_alike_on_every_path(
            (format, records) in (0usize..3).prop_flat_map(|format| (Just(format), records(format))),
            batch_rows in 1usize..20, block_records in 1usize..10,
        ) {
            let texts: Vec<&str> = records.iter().map(|(text, _)| text.as_str()).collect();
            let whole = count_mismatches(&mut *decoder(format, Options::default()), &texts, texts.len().max(1));
            for (column, (count, _)) in whole.iter().enumerate() {
                let expected = records.iter().filter_map(|(_, counts)| counts.as_ref());
                let expected: u64 = expected.map(|counts| counts[column]).sum();
                prop_assert_eq!(*count, expected, "column {} of {:?}", column, texts);
            }
            for (batch_rows, block_records) in [(batch_rows, texts.len().max(1)), (batch_rows, block_records), (1, 1)] {
                let options = Options { batch_rows, ..Options::default() };
                let found = count_mismatches(&mut *decoder(format, options), &texts, block_records);
                prop_assert_eq!(&found, &whole, "{:?}", texts);
            }
        }
    }

    #[test]
    fn first_mismatch_offset_is_reported() {
        let texts = ["1,1,1.5,true,2026-01-02,12:30,1.5,a\n", "x,1,oops,,,,,\n", "y,007,,,,,,\n"];
        let found = count_mismatches(&mut *decoder(0, Options::default()), &texts, 3);
        let first = texts[0].len();
        let second = first + texts[1].len();
        assert_eq!(found[..3], [(2, Some(first)), (1, Some(second + 2)), (1, Some(first + 4))]);
        assert_eq!(found[3..], [(0, None); 5]);
    }

    /// A value of another type is null to predicates, too. It is not counted in rows that other predicates
    /// drop.
    #[test]
    fn predicates_treat_mismatches_as_null() {
        let texts = ["1,1,,,,,,\n", "x,1,,,,,,\n", "2,x,,,,,,\n"];
        let equal =
            ValueCondition::Comparison(ComparisonOperator::Equal, PredicateConstant::Int(1));
        for (test, rows, counts) in [
            (ValueCondition::IsNull, 3, [1, 1]),
            (ValueCondition::IsNotNull, 3, [1, 1]),
            (equal, 2, [1, 0]),
        ] {
            let predicates = vec![Predicate { column: 0, condition: test.clone() }];
            let mut decoder = decoder(0, Options { predicates, ..Options::default() });
            let mut out = DecodedBlocks::default();
            decoder.decode(texts.concat().as_bytes(), &mut out);
            // Some of them may turn out not to satisfy the predicate.
            let kept: usize = out.batches.iter().map(|batch| batch.num_rows()).sum();
            assert_eq!(kept, rows, "{test:?}");
            let mut found = [0, 0];
            out.mismatches.iter().for_each(|found_in| found[found_in.column] = found_in.count);
            assert_eq!(found, counts, "{test:?}");
        }
    }
}
