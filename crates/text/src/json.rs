//! JSON lines: one object per line, of which the wanted keys become columns. How the records of other files are
//! found is in [`sequence`].
//!
//! As in simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", VLDB Journal
//! 2019) a first stage finds all structural characters outside strings with SIMD, and a second
//! one walks over their positions. It departs from it where only some keys are wanted, and
//! where lines delimit records:
//!
//! ```text
//!   window of lines ── index ──► positions ─┬ alike ──► spans of the wanted values
//!                        │ stage 1: SIMD      │  └ if not: walk ─┘
//!                        │                    │ stage 2: two entries per member
//!                        └── in doubt ────────┴──► read: byte by byte, says what is wrong
//! ```
//!
//! - The index has no quotes and no beginnings of values, so that a member of an object is two
//!   entries, its colon and its comma. That there is one value between them, neither more nor
//!   less, stage 1 knows from masks.
//! - A record with the same keys as the one before has its members at the same places of the index,
//!   and is taken without walking over them (see [`alike`]).
//! - A key is known from its end, which lies before the colon: where it is the one that came
//!   next in the records before, by one comparison (see [`order`]), and otherwise by looking it
//!   up in a table of the wanted ones (as Mison does: Li et al., "Mison: A Fast JSON Parser for
//!   Data Analytics", VLDB 2017).
//! - What is not wanted is not looked at: of a nested value the brackets are matched, and its
//!   colons and commas must be where they belong.
//! - Each window begins and ends with a line. A raw line end within a string breaks its record
//!   and no other.
//!
//! Measured on one core of a Zen 5 with AVX-512 (`bench/run.py text --only memory`), events of
//! 950 bytes: 3 of 40 keys 4.2 GB/s, half of it stage 1; 3 keys two levels deep 2.8; all 40 keys
//! 1.5. Before keys were guessed it was 2.7, 2.35 and 1.2.
//!
//! What is accepted: the structure of RFC 8259 everywhere (brackets, separators, strings
//! without control characters, UTF-8), and the grammar of literals, numbers and escapes in the
//! values that are wanted; with [`Options::strict`](crate::Options) in all. Half of a surrogate
//! pair stands for nothing and is refused like an escape that does not exist. Of a key that
//! comes twice, the last value counts, also among the entries of a map.
//!
//! Compared with serde_json, the depth of nesting is not limited for what is skipped.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

use crate::column::Column;
use crate::decoder::{Decoder, Tokenizer, WINDOW_BYTES, Window, decodes};
use crate::fault::Fault;
use crate::filter::Filter;
use crate::keys::{KeyTally, KnownKeys};
use crate::leaf::Context;
use crate::values::Nulls;

mod alike;
pub(crate) mod grammar;
mod index;
mod order;
mod plan;
mod read;
mod repeats;
mod sequence;
mod walk;

pub use sequence::{Layout, MISSING_COMMA, SEPARATOR, Scanner, layout};
pub(crate) use sequence::{first_of_line, is_blank, stripped};

/// Decodes JSON lines.
///
/// Values are read as [`values`](crate::values) says. A number in quotes is taken for a number, unless the
/// column's type is [`inferred`](crate::Options::inferred); and a number, a Boolean, an object or an array in a column of text for its text as it is written.
/// A key that is missing is null, and so are the null strings. Of a struct only the given fields are read.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_schema::{DataType, Field};
/// use tidemill_text::{Decode, Decoded, Options, json::JsonDecoder};
///
/// let part = Field::new("n", DataType::Int64, true);
/// let wanted = vec![
///     Arc::new(Field::new("a", DataType::Struct(vec![part].into()), true)),
///     Arc::new(Field::new("t", DataType::Utf8View, true)),
/// ];
/// let mut decoder = JsonDecoder::new(wanted, &[], Options::default()).unwrap();
/// let mut out = Decoded::default();
/// decoder.decode(
///     b"{\"t\": \"x\", \"a\": {\"m\": [], \"n\": 1}}\n{\"a\": 2}\n{\"a\": null}\n",
///     &mut out,
/// );
/// assert_eq!(out.batches[0].num_rows(), 2);
/// assert_eq!(out.bad[0].fault.to_string(), "expected an object, found a number `2`");
/// ```
pub struct JsonDecoder {
    decoder: Decoder<Members>,
}

impl JsonDecoder {
    /// A decoder of `columns`, each named as its key; `nulls` are strings that mean null.
    ///
    /// # Errors
    /// The first column of a type that JSON cannot be read as, or that may not be null or has
    /// a part that may not: any key can be missing. The keys of a map are never null.
    pub fn new(
        columns: Vec<FieldRef>,
        nulls: &[String],
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        if let Some(field) = columns.iter().find(|field| !is_supported(field)) {
            return Err(field.clone());
        }
        let context = Context {
            nulls: Nulls::new(nulls, false),
            unescape: Arc::new(unescape_string),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            has_hex_bytes: true,
        };
        let filter = Filter::new(options.predicates, &columns);
        let tokenizer = Members::new(&columns, options.known, options.strict);
        let mut is_inferred = vec![false; columns.len()];
        for place in options.inferred {
            if let Some(is_inferred) = is_inferred.get_mut(place) {
                *is_inferred = true;
            }
        }
        let column = |(field, is_inferred): (&FieldRef, bool)| {
            let column = match is_inferred {
                true => Column::inferred(field, &context),
                false => Column::new(field, &context),
            };
            column.ok_or_else(|| field.clone())
        };
        let columns = columns.iter().zip(is_inferred).map(column).collect::<Result<Vec<_>, _>>()?;
        let decoder =
            Decoder::with_columns(tokenizer, columns, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

impl JsonDecoder {
    /// Takes several records in a line too, with separators of RFC 7464 before them and a comma behind each.
    ///
    /// ```
    /// use tidemill_text::{Decode, Decoded, Options, json::JsonDecoder};
    ///
    /// let decoder = JsonDecoder::new(vec![], &[], Options::default()).unwrap();
    /// let mut decoder = decoder.with_joined_records();
    /// let mut out = Decoded::default();
    /// decoder.decode(b"{}{}\n\x1e{}\n{},\n{} {", &mut out);
    /// assert_eq!((out.rows, out.bad[0].range.clone()), (5, 16..17));
    /// ```
    #[must_use]
    pub fn with_joined_records(mut self) -> Self {
        self.decoder.tokenizer_mut().joined = true;
        self
    }
}

decodes!(JsonDecoder);

/// Whether JSON can be read as this column, its scalars aside.
fn is_supported(field: &FieldRef) -> bool {
    field.is_nullable()
        && match field.data_type() {
            DataType::Struct(fields) => fields.iter().all(is_supported),
            DataType::List(item) => is_supported(item),
            DataType::Map(entries, sorted) => match entries.data_type() {
                DataType::Struct(pair) => {
                    !sorted
                        && pair.len() == 2
                        && matches!(pair[0].data_type(), DataType::Utf8 | DataType::Utf8View)
                        && is_supported(&pair[1])
                }
                _ => false,
            },
            _ => true,
        }
}

/// Whether a line is one object, by the whole grammar.
pub(crate) fn check(line: &[u8]) -> Result<(), Fault> {
    if let Some(fault) = Fault::leading_nuls(line) {
        return Err(fault);
    }
    let line = read::trimmed(line);
    read::Reader::new(line, 0, true, false).record(&mut plan::Object::of(&[], None), &mut [])
}

/// Splits records into members.
struct Members {
    wanted: plan::Object,
    strict: bool,
    /// True if a line may hold several records.
    joined: bool,
    /// The keys that no column has.
    tally: RefCell<KeyTally>,
    /// The pattern of the last records.
    alike: alike::Alike,
    /// The index of the window, the characters there, and which of its bytes are backslashes.
    index: Vec<u32>,
    kinds: Vec<u8>,
    backslashes: Vec<u64>,
    has_backslash: bool,
    /// The lines that the index is of, and how much of it is used up.
    base: usize,
    end: usize,
    used: usize,
    /// Where the next window must begin for the rest of the index to be of use.
    expected: usize,
    /// Text to look at in one go: more where records are long.
    window_bytes: usize,
    /// Every window is irregular.
    #[cfg(test)]
    careful: bool,
}

impl Members {
    fn new(columns: &[FieldRef], known: Option<Arc<KnownKeys>>, strict: bool) -> Self {
        Self {
            wanted: plan::Object::of(columns, known),
            strict,
            joined: false,
            tally: RefCell::default(),
            alike: alike::Alike::default(),
            index: Vec::new(),
            kinds: Vec::new(),
            backslashes: Vec::new(),
            has_backslash: false,
            base: 0,
            end: 0,
            used: 0,
            expected: usize::MAX,
            window_bytes: WINDOW_BYTES,
            #[cfg(test)]
            careful: false,
        }
    }

    /// Makes the index of the lines from `at` on, as far as they are sound.
    fn begin(&mut self, block: &[u8], at: usize) {
        let target = at.saturating_add(self.window_bytes).min(block.len());
        let end = if target == block.len() {
            target
        } else {
            memchr::memrchr(b'\n', &block[at..target])
                .map(|last| at + last)
                .or_else(|| memchr::memchr(b'\n', &block[target..]).map(|next| target + next))
                .map_or(block.len(), |line| line + 1)
        };
        let Self { index, kinds, backslashes, .. } = self;
        index.clear();
        kinds.clear();
        backslashes.clear();
        let seen = index::structurals(block, at, end, index, kinds, backslashes);
        // A line in which something is wrong is no longer part of it.
        let line_of = |place: usize| {
            memchr::memrchr(b'\n', &block[at..place]).map_or(at, |line| at + line + 1)
        };
        let mut sound_to = if seen.sound_to < end { line_of(seen.sound_to) } else { end };
        if seen.high && simdutf8::basic::from_utf8(&block[at..sound_to]).is_err() {
            let valid = match std::str::from_utf8(&block[at..sound_to]) {
                Ok(_) => sound_to,
                Err(error) => at + error.valid_up_to(),
            };
            sound_to = line_of(valid);
        }
        if sound_to < end {
            index.truncate(index.partition_point(|place| (*place as usize) < sound_to));
            kinds.truncate(index.len());
        } else if block.last() != Some(&b'\n') && end == block.len() {
            // The last line may lack its end.
            #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
            index.push(end as u32);
            kinds.push(b'\n');
        }
        self.has_backslash = seen.backslash;
        (self.base, self.end, self.used) = (at, sound_to, 0);
    }
}

impl Members {
    /// The text of a record, and the number of bytes before it.
    fn text<'a>(&self, record: &'a [u8]) -> (usize, &'a [u8]) {
        if self.joined { stripped(record) } else { (0, read::trimmed(record)) }
    }
}

impl Tokenizer for Members {
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        context: &Context,
    ) -> Window {
        #[cfg(test)]
        if self.careful {
            return Window::Irregular;
        }
        let is_next = at != 0 && at == self.expected && self.used < self.index.len();
        self.expected = usize::MAX;
        if !is_next {
            self.begin(block, at);
        }
        self.alike.begin(self.tally.get_mut());
        let rows_before = columns.first().map_or(0, Column::len);
        let walk = walk::Walk {
            text: block,
            index: &self.index,
            kinds: &self.kinds,
            backslashes: self.has_backslash.then_some(&self.backslashes),
            base: self.base,
            strict: self.strict,
            mismatch_is_null: context.mismatch_is_null,
            tally: &self.tally,
        };
        let (mut place, mut rows, mut line) = (self.used, 0, at);
        while rows < rows_max && place < self.index.len() {
            let (taken, places) =
                self.alike.take(&walk, columns, place, rows_before + rows, rows_max - rows);
            if taken > 0 {
                rows += taken;
                place += places;
                line = walk.position(place - 1) + 1;
                continue;
            }
            let open = place;
            let end = match walk.byte(place) {
                b'{' => walk
                    .object(&mut self.wanted, columns, place)
                    .filter(|end| walk.byte(*end) == b'\n'),
                b'\n' if block[line..walk.position(place)].trim_ascii().is_empty() => {
                    line = walk.position(place) + 1;
                    place += 1;
                    continue;
                }
                _ => None,
            };
            let Some(end) = end else {
                // The rows before it are good.
                self.tally.borrow_mut().drop_record();
                columns.iter_mut().for_each(|column| column.truncate(rows_before + rows));
                break;
            };
            self.tally.borrow_mut().end_record();
            self.alike.note(&walk, &self.wanted, open, end);
            rows += 1;
            line = walk.position(end) + 1;
            place = end + 1;
        }
        if line == at {
            return Window::Doubtful;
        }
        // Records that are still long leave room for more of them in the next window.
        if rows < 16
            && rows < rows_max
            && place == self.index.len()
            && self.window_bytes < 8 * WINDOW_BYTES
        {
            self.window_bytes *= 2;
        }
        self.used = place;
        let end = line.min(block.len());
        self.expected = end;
        Window::Rows { end, rows }
    }

    fn next(&self, block: &[u8], at: usize) -> Range<usize> {
        let mut start = at;
        while start < block.len() {
            let end =
                memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |line| start + line + 1);
            let line = &block[start..end];
            match self.joined {
                true if !is_blank(line) => return start..start + first_of_line(line),
                false if !line.trim_ascii().is_empty() => return start..end,
                _ => start = end,
            }
        }
        block.len()..block.len()
    }

    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        context: &Context,
    ) -> Result<(), Fault> {
        // The index goes on behind it.
        self.expected = usize::MAX;
        if self.base <= record.start && record.end <= self.end {
            self.used = self.index.partition_point(|place| (*place as usize) < record.end);
            self.expected = record.end;
        }
        let (before, text) = self.text(&block[record.clone()]);
        read::Reader::new(text, record.start + before, self.strict, context.mismatch_is_null)
            .counting(&self.tally)
            .record(&mut self.wanted, columns)
            .map_err(|fault| Fault { at: before + fault.at, ..fault })?;
        self.tally.get_mut().end_record();
        Ok(())
    }

    fn tally(&mut self) -> Option<&mut KeyTally> {
        Some(self.tally.get_mut())
    }

    fn path(&mut self, record: &[u8], at: usize, columns: &mut [Column]) -> Option<String> {
        let (before, text) = self.text(record);
        let mut reader = read::Reader::seeking(text, at.checked_sub(before)?);
        // Its spans are forgotten by the caller.
        reader.record(&mut self.wanted, columns).ok()?;
        reader.found
    }
}

/// Appends what the inside of a JSON string stands for; false if an escape is malformed or
/// stands for half of a surrogate pair.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let Some((&escape, tail)) = rest[at + 1..].split_first() else { return false };
        rest = tail;
        let byte = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let Some(first) = hex4(&mut rest) else { return false };
                let code = match first {
                    0xd800..=0xdbff => {
                        let Some(tail) = rest.strip_prefix(b"\\u") else { return false };
                        rest = tail;
                        match hex4(&mut rest) {
                            Some(second @ 0xdc00..=0xdfff) => {
                                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                            }
                            _ => return false,
                        }
                    }
                    code => code,
                };
                let Some(character) = char::from_u32(code) else { return false };
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return false,
        };
        out.push(byte);
    }
    out.extend_from_slice(rest);
    true
}

fn hex4(rest: &mut &[u8]) -> Option<u32> {
    let (digits, tail) = rest.split_at_checked(4)?;
    let mut code = 0;
    for digit in digits {
        code = code << 4 | char::from(*digit).to_digit(16)?;
    }
    *rest = tail;
    Some(code)
}

#[cfg(test)]
mod tests;
