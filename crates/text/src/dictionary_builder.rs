//! Builder of dictionary columns: text with few distinct values, each stored once.
//!
//! The builder looks a value up in place. For a value of up to fifteen bytes, one load and a mask
//! put its bytes and its length into sixteen bytes: a word. A multiplication gives the word's slot in a table
//! of words, and one comparison with the word stored there tells whether it is the same. Strings
//! that mean null have words too, so that the lookup is the only test of a value.
//!
//! The builder keeps values from batch to batch, as one array until a new value arrives, so that a reader
//! that has seen their codes need not look at them again. Once there are many, it drops them with the batch.
//! If most rows have a new value, it does not look values up at all for a while.
//!
//! Cost per row: 2 to 4 ns for short values, 10 for long ones.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, PrimitiveArray, StringArray, StringViewArray};
use arrow_buffer::{NullBufferBuilder, ScalarBuffer};
use arrow_schema::DataType;
use hashbrown::HashTable;

use crate::array_builders::{
    DecodingContext, SpanArrayBuilder, take_and_reserve, truncate_validity,
};
use crate::value_span::ValueSpan;

/// Maximum length of a short value.
const SHORT_VALUE_BYTES_MAX: usize = 15;
/// Maximum number of values, and of their bytes, that the builder keeps for the next batch.
const RETAINED_VALUES_MAX: usize = 1 << 12;
const RETAINED_BYTES_MAX: usize = 1 << 20;
/// Size of a batch's values at which the batch ends: with those of one more window, offsets have 31 bits.
const BATCH_VALUE_BYTES_MAX: usize = 1 << 29;
/// Number of batches without lookup after a batch in which most rows had a new value.
const BYPASS_BATCHES: u32 = 64;
/// Number of slots of an empty table.
const SLOTS_MIN: usize = 128;
/// Minimum number of slots per word.
const SLOTS_PER_WORD: usize = 8;

/// The code of a word that means null.
const NULL_CODE: i32 = -1;
/// The word of an empty value in quotes, where one without quotes means null: no
/// [packed value](pack_short_value) is so large.
const QUOTED_EMPTY_WORD: u128 = u128::MAX;

/// Builds `Dictionary(Int32, Utf8 | Utf8View)`. A batch has its values in the order of their first
/// appearance, in this batch or an earlier one.
pub(crate) struct DictionarySpanBuilder {
    data_type: DataType,
    keys: Vec<i32>,
    validity: NullBufferBuilder,
    /// The concatenated values, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Number of values at the beginning of the batch.
    values_at_batch_start: usize,
    /// The words of short values, and their codes.
    short_words: Vec<u128>,
    word_codes: Vec<i32>,
    /// Hash table of indices into `short_words`, counted from 1; 0 for an empty slot. The length is a power
    /// of two and at least eight times the number of words: a mispredicted branch costs more than all else.
    slots: Vec<u32>,
    seeds: [u64; 2],
    /// Hash table of the codes of long values.
    long_value_codes: HashTable<u32>,
    hasher: hashbrown::DefaultHashBuilder,
    /// The array of all values, unless a value was added since.
    cached_values: Option<ArrayRef>,
    /// Number of further batches without lookup.
    bypass_batches_left: u32,
}

/// Masks of the first `n` bytes, at index `n`.
static PREFIX_MASKS: [u128; SHORT_VALUE_BYTES_MAX + 1] = {
    let mut masks = [0; SHORT_VALUE_BYTES_MAX + 1];
    let mut len = 1;
    while len <= SHORT_VALUE_BYTES_MAX {
        masks[len] = u128::MAX >> (8 * (16 - len));
        len += 1;
    }
    masks
};

/// Packs a short value at `start` into a word: its bytes, zeros, and its length plus one on top.
#[inline(always)]
fn pack_short_value(text: &[u8], start: usize, len: usize) -> u128 {
    debug_assert!(len <= SHORT_VALUE_BYTES_MAX);
    let bytes = match text.get(start..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u128::from_le_bytes(*bytes),
        None => {
            let mut padded = [0; 16];
            padded[..len].copy_from_slice(&text[start..start + len]);
            u128::from_le_bytes(padded)
        }
    };
    bytes & PREFIX_MASKS[len] | (len as u128 + 1) << 120
}

impl DictionarySpanBuilder {
    pub(crate) fn new(data_type: DataType) -> Self {
        let hasher = hashbrown::DefaultHashBuilder::default();
        Self {
            data_type,
            keys: Vec::new(),
            validity: NullBufferBuilder::new(0),
            bytes: Vec::new(),
            ends: Vec::new(),
            values_at_batch_start: 0,
            short_words: Vec::new(),
            word_codes: Vec::new(),
            slots: vec![0; SLOTS_MIN],
            seeds: [hasher.hash_one(0), hasher.hash_one(1)],
            long_value_codes: HashTable::new(),
            hasher,
            cached_values: None,
            bypass_batches_left: 0,
        }
    }

    /// Returns the index of a word among the short words.
    fn find_word(&self, word: u128) -> Option<usize> {
        find_word(word, &self.short_words, &self.slots, self.seeds)
    }

    /// Appends values up to the first that is not a known short one; returns their number.
    #[inline(always)]
    fn append_fast(&mut self, text: &[u8], spans: &[ValueSpan]) -> usize {
        let Self {
            keys,
            short_words: words,
            word_codes: codes,
            slots,
            seeds,
            bypass_batches_left: apart,
            ..
        } = self;
        if *apart > 0 {
            return 0;
        }
        let room = &mut keys.spare_capacity_mut()[..spans.len()];
        let mut count = 0;
        for (span, key) in spans.iter().zip(room) {
            if !span.is_plain() || span.len() > SHORT_VALUE_BYTES_MAX {
                break;
            }
            let word = pack_short_value(text, span.start(), span.len());
            let code = find_word(word, words, slots, *seeds).and_then(|place| codes.get(place));
            match code {
                Some(code) if *code != NULL_CODE => key.write(*code),
                _ => break,
            };
            count += 1;
        }
        // SAFETY: the loop wrote `count` keys after the last one.
        unsafe { keys.set_len(keys.len() + count) };
        count
    }

    /// Adds a new word.
    fn insert_word(&mut self, word: u128, code: i32) {
        self.short_words.push(word);
        self.word_codes.push(code);
        let mut from = self.short_words.len() - 1;
        if SLOTS_PER_WORD * self.short_words.len() > self.slots.len() {
            self.slots = vec![0; 2 * self.slots.len()];
            from = 0;
        }
        for place in from..self.short_words.len() {
            let mut at = first_slot(self.short_words[place], self.slots.len(), self.seeds);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = u32::try_from(place + 1).unwrap_or(0);
        }
    }

    /// Returns the code of a value, and adds the value if it is new; `None` if no code is left.
    fn find_or_add_code(&mut self, value: &[u8]) -> Option<i32> {
        if self.bypass_batches_left > 0 {
            return self.add_value(value);
        }
        if value.len() <= SHORT_VALUE_BYTES_MAX {
            let word = pack_short_value(value, 0, value.len());
            let place = self.find_word(word);
            if let Some(code) =
                place.map(|place| self.word_codes[place]).filter(|code| *code != NULL_CODE)
            {
                return Some(code);
            }
            let code = self.add_value(value)?;
            if place.is_none() {
                self.insert_word(word, code);
            }
            return Some(code);
        }
        let hash = self.hasher.hash_one(value);
        let Self { bytes, ends, long_value_codes: places, .. } = self;
        if let Some(place) = places.find(hash, |place| bytes[value_range(ends, *place)] == *value) {
            return i32::try_from(*place).ok();
        }
        let code = self.add_value(value)?;
        let Self { bytes, ends, long_value_codes: places, hasher, .. } = self;
        places.insert_unique(hash, code.unsigned_abs(), |place| {
            hasher.hash_one(&bytes[value_range(ends, *place)])
        });
        Some(code)
    }

    /// Adds a value and returns its code.
    fn add_value(&mut self, value: &[u8]) -> Option<i32> {
        let code = i32::try_from(self.ends.len()).ok()?;
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        self.cached_values = None;
        Some(code)
    }

    /// Returns the code of an empty value in quotes; `None` if no code is left.
    fn find_or_add_quoted_empty(&mut self) -> Option<i32> {
        if self.bypass_batches_left > 0 {
            return self.add_value(b"");
        }
        if let Some(place) = self.find_word(QUOTED_EMPTY_WORD) {
            return Some(self.word_codes[place]);
        }
        let code = self.add_value(b"")?;
        self.insert_word(QUOTED_EMPTY_WORD, code);
        Some(code)
    }

    /// Returns the code of a value that is not among the known short ones; `Ok(None)` for null.
    #[inline(never)]
    fn encode_carefully(
        &mut self,
        text: &[u8],
        span: ValueSpan,
        context: &DecodingContext,
    ) -> Result<Option<i32>, ()> {
        let value = match context.text_value(text, span) {
            Ok(Some(bytes)) if !span.is_plain() && std::str::from_utf8(&bytes).is_err() => Err(()),
            value => value,
        };
        match value {
            Ok(Some(value)) if value.is_empty() && context.nulls.contains_empty() => {
                self.find_or_add_quoted_empty().map(Some).ok_or(())
            }
            Ok(Some(value)) => self.find_or_add_code(&value).map(Some).ok_or(()),
            Ok(None) => {
                if span.is_plain()
                    && span.len() <= SHORT_VALUE_BYTES_MAX
                    && self.bypass_batches_left == 0
                {
                    let word = pack_short_value(text, span.start(), span.len());
                    if self.find_word(word).is_none() {
                        self.insert_word(word, NULL_CODE);
                    }
                }
                Ok(None)
            }
            Err(()) if context.nullify_mismatch(span) => Ok(None),
            Err(()) => Err(()),
        }
    }

    /// Returns the array of all values.
    fn values_array(&mut self) -> ArrayRef {
        if let Some(values) = &self.cached_values {
            return Arc::clone(values);
        }
        let mut start = 0;
        let each = self.ends.iter().map(|&end| {
            let value = std::str::from_utf8(&self.bytes[start..end]).unwrap_or_default();
            start = end;
            value
        });
        let is_view = matches!(&self.data_type, DataType::Dictionary(_, value) if **value == DataType::Utf8View);
        let values: ArrayRef = if is_view {
            Arc::new(StringViewArray::from_iter_values(each))
        } else {
            Arc::new(StringArray::from_iter_values(each))
        };
        self.cached_values = Some(Arc::clone(&values));
        values
    }

    /// Ends a batch of `row_count` rows.
    fn end_batch(&mut self, row_count: usize) {
        let new = self.ends.len() - self.values_at_batch_start;
        if self.bypass_batches_left > 0 {
            self.bypass_batches_left -= 1;
            self.clear_values();
        } else if self.ends.len() > RETAINED_VALUES_MAX || self.bytes.len() > RETAINED_BYTES_MAX {
            if new > row_count / 2 {
                self.bypass_batches_left = BYPASS_BATCHES;
            }
            self.clear_values();
        }
        self.values_at_batch_start = self.ends.len();
    }

    fn clear_values(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.long_value_codes.clear();
        self.short_words.clear();
        self.word_codes.clear();
        self.slots.truncate(SLOTS_MIN);
        self.slots.fill(0);
        self.cached_values = None;
    }
}

/// Returns the index of a word in `words`.
#[inline(always)]
fn find_word(word: u128, words: &[u128], slots: &[u32], seeds: [u64; 2]) -> Option<usize> {
    let mut at = first_slot(word, slots.len(), seeds);
    loop {
        let place = (*slots.get(at)? as usize).checked_sub(1)?;
        if *words.get(place)? == word {
            return Some(place);
        }
        at = (at + 1) & (slots.len() - 1);
    }
}

/// Returns the first slot to probe for a word; `slot_count` is a power of two.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Halves of a word.
fn first_slot(word: u128, slot_count: usize, seeds: [u64; 2]) -> usize {
    let (low, high) = (word as u64 ^ seeds[0], (word >> 64) as u64 ^ seeds[1]);
    let product = u128::from(low) * u128::from(high);
    (product as u64 ^ (product >> 64) as u64) as usize & (slot_count - 1)
}

/// Returns the byte range of a code's value.
fn value_range(ends: &[usize], place: u32) -> std::ops::Range<usize> {
    let place = place as usize;
    let start = if place == 0 { 0 } else { ends[place - 1] };
    start..ends[place]
}

impl SpanArrayBuilder for DictionarySpanBuilder {
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        self.keys.reserve(spans.len());
        let mut at = 0;
        while at < spans.len() {
            let fast = self.append_fast(text, &spans[at..]);
            self.validity.append_n_non_nulls(fast);
            at += fast;
            let Some(&span) = spans.get(at) else { break };
            let mut code = None;
            if span.is_plain()
                && span.len() <= SHORT_VALUE_BYTES_MAX
                && self.bypass_batches_left == 0
            {
                let word = pack_short_value(text, span.start(), span.len());
                code = self.find_word(word).and_then(|place| self.word_codes.get(place).copied());
            }
            let code = match code {
                Some(code) => code,
                None => self
                    .encode_carefully(text, span, context)
                    .map_err(|()| at)?
                    .unwrap_or(NULL_CODE),
            };
            self.keys.push(code.max(0));
            self.validity.append(code != NULL_CODE);
            at += 1;
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        // Values without a key stay.
        self.keys.truncate(len);
        truncate_validity(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() > BATCH_VALUE_BYTES_MAX
    }

    fn finish(&mut self) -> ArrayRef {
        let row_count = self.keys.len();
        let keys = ScalarBuffer::from(take_and_reserve(&mut self.keys));
        let keys = PrimitiveArray::<Int32Type>::new(keys, self.validity.finish());
        let values = self.values_array();
        self.end_batch(row_count);
        // SAFETY: every key was returned for a value that still exists. The keys of nulls are
        // 0 and never read, unless there is no value at all, in which case all rows are null.
        Arc::new(unsafe { DictionaryArray::new_unchecked(keys, values) })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::{Array, RecordBatch};
    use arrow_schema::Field;
    use proptest::prelude::*;

    use super::*;
    use crate::csv::CsvDecoder;
    use crate::{BlockDecoder, CsvDialect, DecodedBlocks, Options};

    fn decoder(value: DataType, nulls: &[&str], batch_rows: usize) -> CsvDecoder {
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(value));
        let field = Arc::new(Field::new("c", data_type, true));
        let nulls = nulls.iter().map(ToString::to_string).collect();
        let dialect = CsvDialect { nulls, ..CsvDialect::default() };
        let options = Options { batch_rows, ..Options::default() };
        CsvDecoder::new(&dialect, 2, vec![(0, field)], options).unwrap()
    }

    fn texts(batch: &RecordBatch) -> Vec<Option<String>> {
        let column = batch.column(0).as_dictionary::<Int32Type>();
        column.to_data().validate_full().unwrap();
        let values = arrow_cast::cast(column, &DataType::Utf8).unwrap();
        values.as_string::<i32>().iter().map(|value| value.map(str::to_owned)).collect()
    }

    #[test]
    fn values_keep_order_of_appearance_across_batches() {
        for value in [DataType::Utf8, DataType::Utf8View] {
            let mut decoder = decoder(value, &[], 5);
            let mut out = DecodedBlocks::default();
            let long = "a value that is longer than a view";
            let text =
                format!("b,1\na,2\n,3\n\"b\",4\n{long},5\n{long},6\nb,7\n,8\n\"x\"\"y\",9\n");
            decoder.decode(text.as_bytes(), &mut out);
            decoder.decode(b"a,1\n", &mut out);
            let expected: [&[Option<&str>]; 3] = [
                &[Some("b"), Some("a"), None, Some("b"), Some(long)],
                &[Some(long), Some("b"), None, Some("x\"y")],
                &[Some("a")],
            ];
            assert_eq!((out.batches.len(), out.rejected.len()), (3, 0));
            for (batch, expected) in out.batches.iter().zip(expected) {
                let expected: Vec<_> = expected.iter().map(|v| v.map(str::to_owned)).collect();
                assert_eq!(texts(batch), expected);
            }
            let values = |at: usize| out.batches[at].column(0).as_any_dictionary().values().clone();
            assert_eq!([values(0).len(), values(1).len()], [3, 4]);
            assert!(Arc::ptr_eq(&values(1), &values(2)), "nothing new came");
        }
    }

    #[test]
    fn high_cardinality_column_bypasses_lookup() {
        let mut decoder = decoder(DataType::Utf8, &["v77"], 8192);
        let mut out = DecodedBlocks::default();
        let mut counts = Vec::new();
        for round in 0..3 {
            let name =
                |row: usize| format!("v{}", if row.is_multiple_of(8) { 0 } else { row + round });
            let text: String = (0..8192).map(|row| format!("{},\n", name(row))).collect();
            out.clear();
            decoder.decode(text.as_bytes(), &mut out);
            let expected: Vec<_> = (0..8192).map(|row| Some(name(row))).collect();
            let found = texts(&out.batches[0]);
            assert!(found.iter().zip(expected).all(|(found, name)| match found {
                None => name.as_deref() == Some("v77"),
                found => *found == name,
            }));
            counts.push(out.batches[0].column(0).as_any_dictionary().values().len());
        }
        let different = |round: usize| {
            let of = |row: usize| if row.is_multiple_of(8) { 0 } else { row + round };
            let all: std::collections::BTreeSet<_> = (0..8192).map(of).collect();
            all.len() - usize::from(all.contains(&77))
        };
        assert_eq!(counts[0], different(0));
        assert!(counts[1..].iter().all(|count| *count >= 8191), "{counts:?}");
    }

    proptest! {
        #[test]
        fn codes_decode_to_the_column_values(
            values in prop::collection::vec(
                prop::sample::select(vec![
                    "", "a", "b", "NA", "none at all, and long", "fifteen bytes..", "sixteen bytes...",
                    "Ω", "\"\"", "a\"\"b", "fifteen bytes.\u{7f}", "seventeen bytes..", "0",
                ]),
                0..200,
            ),
            quoted in prop::collection::vec(any::<bool>(), 200),
            batch_rows in 1usize..40, has_view: bool,
        ) {
            let mut text = String::new();
            let is_plain = |value: &str, quoted: bool| !value.contains(['"', ',']) && !quoted;
            for (value, quoted) in values.iter().zip(&quoted) {
                text += &match is_plain(value, *quoted) {
                    true => format!("{value},1\n"),
                    false => format!("\"{value}\",1\n"),
                };
            }
            let value = if has_view { DataType::Utf8View } else { DataType::Utf8 };
            let nulls = ["NA", "none at all, and long"];
            let mut out = DecodedBlocks::default();
            decoder(value, &nulls, batch_rows).decode(text.as_bytes(), &mut out);
            let found: Vec<_> = out.batches.iter().flat_map(texts).collect();
            let expected = values.iter().zip(&quoted).map(|(value, quoted)| {
                let is_null = nulls.contains(value) || value.is_empty() && is_plain(value, *quoted);
                (!is_null).then(|| value.replace("\"\"", "\""))
            });
            prop_assert_eq!(&found, &expected.collect::<Vec<_>>());
            // A dictionary has each value once.
            for batch in &out.batches {
                let values = batch.column(0).as_any_dictionary().values();
                let values = arrow_cast::cast(values, &DataType::Utf8View).unwrap();
                let all: Vec<_> = values.as_string_view().iter().collect();
                let different: std::collections::BTreeSet<_> = all.iter().collect();
                prop_assert_eq!(all.len(), different.len());
            }
        }
    }
}
