//! Text of few different values, each written once.
//!
//! A value is looked up where it stands. One of up to fifteen bytes is one load and a mask, which
//! leave its bytes and its length in sixteen: a word. A multiplication makes a place in a table of
//! them, and one comparison with the word that was put there tells whether it is the same. Strings
//! that mean null have words as well, so that nothing is asked of a value but where it is.
//!
//! Values are kept from batch to batch, as one array until there is another one, so that whoever has
//! seen their codes need not look at them again. Once there are many they are forgotten with the batch;
//! where most rows have a value that is new, they are not looked up at all for a while.
//!
//! Cost a row: 2 to 4 ns for short values, 10 for long ones.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, PrimitiveArray, StringArray, StringViewArray};
use arrow_buffer::{NullBufferBuilder, ScalarBuffer};
use arrow_schema::DataType;
use hashbrown::HashTable;

use crate::leaf::{Context, Leaf, renew, truncate};
use crate::span::Span;

/// The longest values that are short.
const SHORT_BYTES: usize = 15;
/// So many values, and bytes of them, are kept for the next batch at most.
const KEPT_MAX: usize = 1 << 12;
const KEPT_BYTES_MAX: usize = 1 << 20;
/// More values than this are not for one batch: with those of one more window, offsets have 31 bits.
const FULL_BYTES: usize = 1 << 29;
/// Batches whose rows have a value of their own each, once most rows of a batch had a new one.
const APART: u32 = 64;
/// Slots of an empty table.
const SLOTS_MIN: usize = 128;
/// Slots for each word.
const SLOTS_A_WORD: usize = 8;

/// The code of what means null.
const NULL: i32 = -1;
/// The word of an empty value in quotes, where one without them means null: no
/// [`short_word`] is so large.
const QUOTED_EMPTY: u128 = u128::MAX;

/// Builds `Dictionary(Int32, Utf8 | Utf8View)`. A batch has its values in the order in which they first
/// appeared, in it or in those before it.
pub(crate) struct Dictionary {
    data_type: DataType,
    keys: Vec<i32>,
    validity: NullBufferBuilder,
    /// Values end to end, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// How many of them there were when the batch began.
    known: usize,
    /// The words of the short ones, and their codes.
    words: Vec<u128>,
    codes: Vec<i32>,
    /// The place of a word among these, counted from 1, where it is found; 0 of none. A power of two,
    /// at least eight times as many: a branch foretold wrongly costs more than all else.
    slots: Vec<u32>,
    seeds: [u64; 2],
    /// Where the others are.
    places: HashTable<u32>,
    hasher: hashbrown::DefaultHashBuilder,
    /// All values, unless one came since.
    values: Option<ArrayRef>,
    /// Batches in which values are not looked up.
    apart: u32,
}

/// The bits of the first bytes, as many as its place says.
static KEPT: [u128; SHORT_BYTES + 1] = {
    let mut masks = [0; SHORT_BYTES + 1];
    let mut len = 1;
    while len <= SHORT_BYTES {
        masks[len] = u128::MAX >> (8 * (16 - len));
        len += 1;
    }
    masks
};

/// What a short value at `start` is found by: its bytes, zeros, and its length and one more on top.
#[inline(always)]
fn short_word(text: &[u8], start: usize, len: usize) -> u128 {
    debug_assert!(len <= SHORT_BYTES);
    let bytes = match text.get(start..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u128::from_le_bytes(*bytes),
        None => {
            let mut padded = [0; 16];
            padded[..len].copy_from_slice(&text[start..start + len]);
            u128::from_le_bytes(padded)
        }
    };
    bytes & KEPT[len] | (len as u128 + 1) << 120
}

impl Dictionary {
    pub(crate) fn new(data_type: DataType) -> Self {
        let hasher = hashbrown::DefaultHashBuilder::default();
        Self {
            data_type,
            keys: Vec::new(),
            validity: NullBufferBuilder::new(0),
            bytes: Vec::new(),
            ends: Vec::new(),
            known: 0,
            words: Vec::new(),
            codes: Vec::new(),
            slots: vec![0; SLOTS_MIN],
            seeds: [hasher.hash_one(0), hasher.hash_one(1)],
            places: HashTable::new(),
            hasher,
            values: None,
            apart: 0,
        }
    }

    /// Where a word is among the words.
    fn place(&self, word: u128) -> Option<usize> {
        place(word, &self.words, &self.slots, self.seeds)
    }

    /// Takes values up to the first that is not a short one that was there before; returns how many.
    #[inline(always)]
    fn fast(&mut self, text: &[u8], spans: &[Span]) -> usize {
        let Self { keys, words, codes, slots, seeds, apart, .. } = self;
        if *apart > 0 {
            return 0;
        }
        let room = &mut keys.spare_capacity_mut()[..spans.len()];
        let mut count = 0;
        for (span, key) in spans.iter().zip(room) {
            if !span.is_plain() || span.len() > SHORT_BYTES {
                break;
            }
            let word = short_word(text, span.start(), span.len());
            let code = place(word, words, slots, *seeds).and_then(|place| codes.get(place));
            match code {
                Some(code) if *code != NULL => key.write(*code),
                _ => break,
            };
            count += 1;
        }
        // SAFETY: so many were written behind the last one.
        unsafe { keys.set_len(keys.len() + count) };
        count
    }

    /// Adds a word that is not there.
    fn put(&mut self, word: u128, code: i32) {
        self.words.push(word);
        self.codes.push(code);
        let mut from = self.words.len() - 1;
        if SLOTS_A_WORD * self.words.len() > self.slots.len() {
            self.slots = vec![0; 2 * self.slots.len()];
            from = 0;
        }
        for place in from..self.words.len() {
            let mut at = first_slot(self.words[place], self.slots.len(), self.seeds);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = u32::try_from(place + 1).unwrap_or(0);
        }
    }

    /// The code of a value; none of more than there are codes.
    fn code(&mut self, value: &[u8]) -> Option<i32> {
        if self.apart > 0 {
            return self.add(value);
        }
        if value.len() <= SHORT_BYTES {
            let word = short_word(value, 0, value.len());
            let place = self.place(word);
            if let Some(code) = place.map(|place| self.codes[place]).filter(|code| *code != NULL) {
                return Some(code);
            }
            let code = self.add(value)?;
            if place.is_none() {
                self.put(word, code);
            }
            return Some(code);
        }
        let hash = self.hasher.hash_one(value);
        let Self { bytes, ends, places, .. } = self;
        if let Some(place) = places.find(hash, |place| bytes[at(ends, *place)] == *value) {
            return i32::try_from(*place).ok();
        }
        let code = self.add(value)?;
        let Self { bytes, ends, places, hasher, .. } = self;
        places.insert_unique(hash, code.unsigned_abs(), |place| {
            hasher.hash_one(&bytes[at(ends, *place)])
        });
        Some(code)
    }

    /// Adds a value; its code.
    fn add(&mut self, value: &[u8]) -> Option<i32> {
        let code = i32::try_from(self.ends.len()).ok()?;
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        self.values = None;
        Some(code)
    }

    /// The code of an empty value in quotes; none if there are no more codes.
    fn quoted_empty_code(&mut self) -> Option<i32> {
        if self.apart > 0 {
            return self.add(b"");
        }
        if let Some(place) = self.place(QUOTED_EMPTY) {
            return Some(self.codes[place]);
        }
        let code = self.add(b"")?;
        self.put(QUOTED_EMPTY, code);
        Some(code)
    }

    /// The code of what was not found where it stands; none of null.
    #[inline(never)]
    fn careful(&mut self, text: &[u8], span: Span, context: &Context) -> Result<Option<i32>, ()> {
        let value = match context.text_value(text, span) {
            Ok(Some(bytes)) if !span.is_plain() && std::str::from_utf8(&bytes).is_err() => Err(()),
            value => value,
        };
        match value {
            Ok(Some(value)) if value.is_empty() && context.nulls.empty() => {
                self.quoted_empty_code().map(Some).ok_or(())
            }
            Ok(Some(value)) => self.code(&value).map(Some).ok_or(()),
            Ok(None) => {
                if span.is_plain() && span.len() <= SHORT_BYTES && self.apart == 0 {
                    let word = short_word(text, span.start(), span.len());
                    if self.place(word).is_none() {
                        self.put(word, NULL);
                    }
                }
                Ok(None)
            }
            Err(()) if context.nullifies(span) => Ok(None),
            Err(()) => Err(()),
        }
    }

    /// The array of all values.
    fn values(&mut self) -> ArrayRef {
        if let Some(values) = &self.values {
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
        self.values = Some(Arc::clone(&values));
        values
    }

    /// Ends a batch of so many rows.
    fn settle(&mut self, row_count: usize) {
        let new = self.ends.len() - self.known;
        if self.apart > 0 {
            self.apart -= 1;
            self.forget();
        } else if self.ends.len() > KEPT_MAX || self.bytes.len() > KEPT_BYTES_MAX {
            if new > row_count / 2 {
                self.apart = APART;
            }
            self.forget();
        }
        self.known = self.ends.len();
    }

    fn forget(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.places.clear();
        self.words.clear();
        self.codes.clear();
        self.slots.truncate(SLOTS_MIN);
        self.slots.fill(0);
        self.values = None;
    }
}

/// Where a word is among others.
#[inline(always)]
fn place(word: u128, words: &[u128], slots: &[u32], seeds: [u64; 2]) -> Option<usize> {
    let mut at = first_slot(word, slots.len(), seeds);
    loop {
        let place = (*slots.get(at)? as usize).checked_sub(1)?;
        if *words.get(place)? == word {
            return Some(place);
        }
        at = (at + 1) & (slots.len() - 1);
    }
}

/// Where a word is sought first among so many slots, a power of two.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Halves of a word.
fn first_slot(word: u128, slot_count: usize, seeds: [u64; 2]) -> usize {
    let (low, high) = (word as u64 ^ seeds[0], (word >> 64) as u64 ^ seeds[1]);
    let product = u128::from(low) * u128::from(high);
    (product as u64 ^ (product >> 64) as u64) as usize & (slot_count - 1)
}

/// Where the value of a code is among the bytes.
fn at(ends: &[usize], place: u32) -> std::ops::Range<usize> {
    let place = place as usize;
    let start = if place == 0 { 0 } else { ends[place - 1] };
    start..ends[place]
}

impl Leaf for Dictionary {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        self.keys.reserve(spans.len());
        let mut at = 0;
        while at < spans.len() {
            let fast = self.fast(text, &spans[at..]);
            self.validity.append_n_non_nulls(fast);
            at += fast;
            let Some(&span) = spans.get(at) else { break };
            let mut code = None;
            if span.is_plain() && span.len() <= SHORT_BYTES && self.apart == 0 {
                let word = short_word(text, span.start(), span.len());
                code = self.place(word).and_then(|place| self.codes.get(place).copied());
            }
            let code = match code {
                Some(code) => code,
                None => self.careful(text, span, context).map_err(|()| at)?.unwrap_or(NULL),
            };
            self.keys.push(code.max(0));
            self.validity.append(code != NULL);
            at += 1;
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        // Values that nothing refers to any more stay.
        self.keys.truncate(len);
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() > FULL_BYTES
    }

    fn finish(&mut self) -> ArrayRef {
        let row_count = self.keys.len();
        let keys = ScalarBuffer::from(renew(&mut self.keys));
        let keys = PrimitiveArray::<Int32Type>::new(keys, self.validity.finish());
        let values = self.values();
        self.settle(row_count);
        // SAFETY: every key was given out for a value that has not been forgotten; those of nulls are
        // 0 and not looked at, unless there is no value at all, in which case all are null.
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
    use crate::{Decode, Decoded, Dialect, Options};

    fn decoder(value: DataType, nulls: &[&str], batch_rows: usize) -> CsvDecoder {
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(value));
        let field = Arc::new(Field::new("c", data_type, true));
        let nulls = nulls.iter().map(ToString::to_string).collect();
        let dialect = Dialect { nulls, ..Dialect::default() };
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
    fn values_are_in_the_order_of_appearance_and_kept_for_later_batches() {
        for value in [DataType::Utf8, DataType::Utf8View] {
            let mut decoder = decoder(value, &[], 5);
            let mut out = Decoded::default();
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
            assert_eq!((out.batches.len(), out.bad.len()), (3, 0));
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
    fn many_values_are_forgotten_with_their_batch_and_then_not_looked_up() {
        let mut decoder = decoder(DataType::Utf8, &["v77"], 8192);
        let mut out = Decoded::default();
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
        fn codes_stand_for_the_values_of_a_column_of_texts(
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
            let mut out = Decoded::default();
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
