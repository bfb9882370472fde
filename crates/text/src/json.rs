//! The decoder of JSON lines: one object per line, whose wanted keys become columns. [`record_sequence`]
//! finds the records of other JSON files.
//!
//! As in simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", VLDB Journal
//! 2019) a first stage finds all structural characters outside strings with SIMD, and a second
//! one walks over their positions. It departs from simdjson because only some keys are wanted, and
//! because lines delimit records:
//!
//! ```text
//!   window of lines ── structural_index ──► positions ─┬ record_patterns ──► spans of the wanted values
//!                        │ stage 1: SIMD                │  └ if not: index_walk ─┘
//!                        │                              │ stage 2: two entries per member
//!                        └── in doubt ──────────────────┴──► exact_reader: byte by byte, names the fault
//! ```
//!
//! - The index omits quotes and the starts of values, so that a member of an object is two
//!   entries, its colon and its comma. Masks of stage 1 prove that there is exactly one value
//!   between them.
//! - A record with the same keys as the one before has its members at the same places of the index.
//!   The decoder reads it without walking over them (see [`record_patterns`]).
//! - The decoder identifies a key from its end, which lies before the colon: if it is the key that came
//!   next in earlier records, by one comparison (see [`key_order`]), and otherwise by a lookup
//!   in a table of the wanted keys (as Mison does: Li et al., "Mison: A Fast JSON Parser for
//!   Data Analytics", VLDB 2017).
//! - The decoder does not look into unwanted values: it matches the brackets of a nested value and checks
//!   that its colons and commas are where they belong.
//! - Each window begins and ends with a line. A raw line end within a string breaks its record
//!   and no other.
//!
//! Measured on one core of a Zen 5 with AVX-512 (`bench/run.py text --only memory`), events of
//! 950 bytes: 3 of 40 keys 4.2 GB/s, half of it stage 1; 3 keys two levels deep 2.8; all 40 keys
//! 1.5. Without predicted keys: 2.7, 2.35 and 1.2.
//!
//! The decoder accepts the structure of RFC 8259 everywhere (brackets, separators, strings
//! without control characters, UTF-8). It checks the grammar of literals, numbers and escapes in
//! wanted values; with [`Options::checks_skipped_values`](crate::Options) in all values. It rejects half of a
//! surrogate pair like an invalid escape. If a key comes twice, the last value counts, also among the entries
//! of a map.
//!
//! Unlike serde_json, it does not limit the nesting depth of skipped values.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

use crate::array_builders::DecodingContext;
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, WINDOW_BYTES, decodes};
use crate::column_decoder::ColumnDecoder;
use crate::predicate_filter::SpanFilter;
use crate::text_fault::TextFault;
use crate::unknown_keys::{KeyTally, KnownKeys};
use crate::value_parsing::NullStrings;

mod exact_reader;
pub(crate) mod grammar;
mod index_walk;
mod key_order;
mod object_plan;
mod record_patterns;
mod record_sequence;
mod repeated_keys;
mod structural_index;

pub use record_sequence::{
    JsonLayout, MISSING_COMMA_MARKER, RECORD_SEPARATOR, RecordScanner, detect_layout,
};
pub(crate) use record_sequence::{first_record_length, is_blank_line, strip_separators};

/// A decoder of JSON lines.
///
/// [`value_parsing`](crate::value_parsing) defines how values are read. A number in quotes counts as a
/// number, unless the column's type is [inferred](crate::Options::inferred_columns). A number, a Boolean, an
/// object or an array in a text column becomes its JSON text. A missing key is null, and so are the null
/// strings. Of a struct only the given fields are read.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_schema::{DataType, Field};
/// use tidemill_text::{BlockDecoder, DecodedBlocks, Options, json::JsonDecoder};
///
/// let part = Field::new("n", DataType::Int64, true);
/// let wanted = vec![
///     Arc::new(Field::new("a", DataType::Struct(vec![part].into()), true)),
///     Arc::new(Field::new("t", DataType::Utf8View, true)),
/// ];
/// let mut decoder = JsonDecoder::new(wanted, &[], Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// decoder.decode(
///     b"{\"t\": \"x\", \"a\": {\"m\": [], \"n\": 1}}\n{\"a\": 2}\n{\"a\": null}\n",
///     &mut out,
/// );
/// assert_eq!(out.batches[0].num_rows(), 2);
/// assert_eq!(out.rejected[0].fault.to_string(), "expected an object, found a number `2`");
/// ```
pub struct JsonDecoder {
    decoder: FormatDecoder<JsonTokenizer>,
}

impl JsonDecoder {
    /// Returns a decoder of `columns`, each named as its key; `nulls` are the strings that mean null.
    ///
    /// # Errors
    /// The first column of a type that JSON cannot be read as, or that is not nullable or has
    /// a part that is not: any key can be missing. The keys of a map are never null.
    pub fn new(
        columns: Vec<FieldRef>,
        nulls: &[String],
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        if let Some(field) = columns.iter().find(|field| !is_supported_column(field)) {
            return Err(field.clone());
        }
        let context = DecodingContext {
            nulls: NullStrings::new(nulls, false),
            unescape: Arc::new(unescape_string),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: true,
        };
        let filter = SpanFilter::new(options.predicates, &columns);
        let tokenizer =
            JsonTokenizer::new(&columns, options.known_keys, options.checks_skipped_values);
        let mut is_inferred = vec![false; columns.len()];
        for place in options.inferred_columns {
            if let Some(is_inferred) = is_inferred.get_mut(place) {
                *is_inferred = true;
            }
        }
        let column = |(field, is_inferred): (&FieldRef, bool)| {
            let column = match is_inferred {
                true => ColumnDecoder::with_inferred_type(field, &context),
                false => ColumnDecoder::new(field, &context),
            };
            column.ok_or_else(|| field.clone())
        };
        let columns = columns.iter().zip(is_inferred).map(column).collect::<Result<Vec<_>, _>>()?;
        let decoder =
            FormatDecoder::with_columns(tokenizer, columns, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

impl JsonDecoder {
    /// Accepts several records in a line too, with separators of RFC 7464 before them and a comma after each.
    ///
    /// ```
    /// use tidemill_text::{BlockDecoder, DecodedBlocks, Options, json::JsonDecoder};
    ///
    /// let decoder = JsonDecoder::new(vec![], &[], Options::default()).unwrap();
    /// let mut decoder = decoder.with_joined_records();
    /// let mut out = DecodedBlocks::default();
    /// decoder.decode(b"{}{}\n\x1e{}\n{},\n{} {", &mut out);
    /// assert_eq!((out.rows, out.rejected[0].range.clone()), (5, 16..17));
    /// ```
    #[must_use]
    pub fn with_joined_records(mut self) -> Self {
        self.decoder.tokenizer_mut().has_joined_records = true;
        self
    }
}

decodes!(JsonDecoder);

/// Returns whether JSON can be read as this column, apart from its scalars.
fn is_supported_column(field: &FieldRef) -> bool {
    field.is_nullable()
        && match field.data_type() {
            DataType::Struct(fields) => fields.iter().all(is_supported_column),
            DataType::List(item) => is_supported_column(item),
            DataType::Map(entries, sorted) => match entries.data_type() {
                DataType::Struct(pair) => {
                    !sorted
                        && pair.len() == 2
                        && matches!(pair[0].data_type(), DataType::Utf8 | DataType::Utf8View)
                        && is_supported_column(&pair[1])
                }
                _ => false,
            },
            _ => true,
        }
}

/// Checks that a line is one object, by the whole grammar.
pub(crate) fn check_object_line(line: &[u8]) -> Result<(), TextFault> {
    if let Some(fault) = TextFault::from_leading_nuls(line) {
        return Err(fault);
    }
    let line = exact_reader::trim_trailing_whitespace(line);
    exact_reader::FaultReportingReader::new(line, 0, true, false)
        .read_record(&mut object_plan::ObjectPlan::from_columns(&[], None), &mut [])
}

/// The tokenizer of JSON lines.
struct JsonTokenizer {
    record_plan: object_plan::ObjectPlan,
    checks_skipped_values: bool,
    /// True if a line may hold several records.
    has_joined_records: bool,
    /// Counts of the keys that no column has.
    key_tally: RefCell<KeyTally>,
    /// Matcher for the pattern of recent records.
    pattern_matcher: record_patterns::PatternMatcher,
    /// Index of the window: positions of structural characters, the characters, and masks of backslashes.
    structural_positions: Vec<u32>,
    structural_bytes: Vec<u8>,
    backslash_masks: Vec<u64>,
    has_backslash: bool,
    /// Range of the indexed lines, and the number of index entries used.
    index_start: usize,
    index_end: usize,
    used_entries: usize,
    /// Start that the next window must have for the rest of the index to be valid.
    next_window_start: usize,
    /// Number of bytes to index in one pass: more where records are long.
    window_bytes: usize,
    /// True to treat every window as irregular.
    #[cfg(test)]
    is_always_exact: bool,
}

impl JsonTokenizer {
    fn new(columns: &[FieldRef], known: Option<Arc<KnownKeys>>, strict: bool) -> Self {
        Self {
            record_plan: object_plan::ObjectPlan::from_columns(columns, known),
            checks_skipped_values: strict,
            has_joined_records: false,
            key_tally: RefCell::default(),
            pattern_matcher: record_patterns::PatternMatcher::default(),
            structural_positions: Vec::new(),
            structural_bytes: Vec::new(),
            backslash_masks: Vec::new(),
            has_backslash: false,
            index_start: 0,
            index_end: 0,
            used_entries: 0,
            next_window_start: usize::MAX,
            window_bytes: WINDOW_BYTES,
            #[cfg(test)]
            is_always_exact: false,
        }
    }

    /// Builds the index of the lines from `at` on, as far as they are sound.
    fn build_index(&mut self, block: &[u8], at: usize) {
        let target = at.saturating_add(self.window_bytes).min(block.len());
        let end = if target == block.len() {
            target
        } else {
            memchr::memrchr(b'\n', &block[at..target])
                .map(|last| at + last)
                .or_else(|| memchr::memchr(b'\n', &block[target..]).map(|next| target + next))
                .map_or(block.len(), |line| line + 1)
        };
        let Self {
            structural_positions: index,
            structural_bytes: kinds,
            backslash_masks: backslashes,
            ..
        } = self;
        index.clear();
        kinds.clear();
        backslashes.clear();
        let seen = structural_index::index_structurals(block, at, end, index, kinds, backslashes);
        // The index ends before the line that contains a fault.
        let line_of = |place: usize| {
            memchr::memrchr(b'\n', &block[at..place]).map_or(at, |line| at + line + 1)
        };
        let mut sound_to = if seen.sound_to < end { line_of(seen.sound_to) } else { end };
        if seen.has_non_ascii && simdutf8::basic::from_utf8(&block[at..sound_to]).is_err() {
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
        self.has_backslash = seen.has_backslash;
        (self.index_start, self.index_end, self.used_entries) = (at, sound_to, 0);
    }
}

impl JsonTokenizer {
    /// Returns the number of bytes before the text of a record, and the text.
    fn record_text<'a>(&self, record: &'a [u8]) -> (usize, &'a [u8]) {
        if self.has_joined_records {
            strip_separators(record)
        } else {
            (0, exact_reader::trim_trailing_whitespace(record))
        }
    }
}

impl Tokenizer for JsonTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
    ) -> TokenizedWindow {
        #[cfg(test)]
        if self.is_always_exact {
            return TokenizedWindow::IrregularRows;
        }
        let is_next = at != 0
            && at == self.next_window_start
            && self.used_entries < self.structural_positions.len();
        self.next_window_start = usize::MAX;
        if !is_next {
            self.build_index(block, at);
        }
        self.pattern_matcher.drop_stale_pattern(self.key_tally.get_mut());
        let rows_before = columns.first().map_or(0, ColumnDecoder::len);
        let walk = index_walk::IndexWalk {
            text: block,
            positions: &self.structural_positions,
            structural_bytes: &self.structural_bytes,
            backslash_masks: self.has_backslash.then_some(&self.backslash_masks),
            backslash_base: self.index_start,
            checks_skipped_values: self.checks_skipped_values,
            mismatch_is_null: context.mismatch_is_null,
            key_tally: &self.key_tally,
        };
        let (mut place, mut rows, mut line) = (self.used_entries, 0, at);
        while rows < rows_max && place < self.structural_positions.len() {
            let (taken, places) = self.pattern_matcher.take_matching_records(
                &walk,
                columns,
                place,
                rows_before + rows,
                rows_max - rows,
            );
            if taken > 0 {
                rows += taken;
                place += places;
                line = walk.entry_position(place - 1) + 1;
                continue;
            }
            let open = place;
            let end = match walk.structural_byte(place) {
                b'{' => walk
                    .read_object(&mut self.record_plan, columns, place)
                    .filter(|end| walk.structural_byte(*end) == b'\n'),
                b'\n' if block[line..walk.entry_position(place)].trim_ascii().is_empty() => {
                    line = walk.entry_position(place) + 1;
                    place += 1;
                    continue;
                }
                _ => None,
            };
            let Some(end) = end else {
                // The rows before it are good.
                self.key_tally.borrow_mut().discard_record_keys();
                columns.iter_mut().for_each(|column| column.truncate(rows_before + rows));
                break;
            };
            self.key_tally.borrow_mut().add_record_keys();
            self.pattern_matcher.note_walked_record(&walk, &self.record_plan, open, end);
            rows += 1;
            line = walk.entry_position(end) + 1;
            place = end + 1;
        }
        if line == at {
            return TokenizedWindow::IrregularFirstRow;
        }
        // Long records leave room for more of them in the next window.
        if rows < 16
            && rows < rows_max
            && place == self.structural_positions.len()
            && self.window_bytes < 8 * WINDOW_BYTES
        {
            self.window_bytes *= 2;
        }
        self.used_entries = place;
        let end = line.min(block.len());
        self.next_window_start = end;
        TokenizedWindow::RegularRows { end, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        let mut start = at;
        while start < block.len() {
            let end =
                memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |line| start + line + 1);
            let line = &block[start..end];
            match self.has_joined_records {
                true if !is_blank_line(line) => return start..start + first_record_length(line),
                false if !line.trim_ascii().is_empty() => return start..end,
                _ => start = end,
            }
        }
        block.len()..block.len()
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
    ) -> Result<(), TextFault> {
        // The index remains valid after the record.
        self.next_window_start = usize::MAX;
        if self.index_start <= record.start && record.end <= self.index_end {
            self.used_entries =
                self.structural_positions.partition_point(|place| (*place as usize) < record.end);
            self.next_window_start = record.end;
        }
        let (before, text) = self.record_text(&block[record.clone()]);
        exact_reader::FaultReportingReader::new(
            text,
            record.start + before,
            self.checks_skipped_values,
            context.mismatch_is_null,
        )
        .with_key_tally(&self.key_tally)
        .read_record(&mut self.record_plan, columns)
        .map_err(|fault| TextFault { offset: before + fault.offset, ..fault })?;
        self.key_tally.get_mut().add_record_keys();
        Ok(())
    }

    fn key_tally(&mut self) -> Option<&mut KeyTally> {
        Some(self.key_tally.get_mut())
    }

    fn value_path(
        &mut self,
        record: &[u8],
        at: usize,
        columns: &mut [ColumnDecoder],
    ) -> Option<String> {
        let (before, text) = self.record_text(record);
        let mut reader =
            exact_reader::FaultReportingReader::with_sought_value(text, at.checked_sub(before)?);
        // The caller discards the spans.
        reader.read_record(&mut self.record_plan, columns).ok()?;
        reader.found_path
    }
}

/// Appends the value of the inside of a JSON string. Returns false if an escape is malformed or
/// is half of a surrogate pair.
pub(crate) fn unescape_string(raw: &[u8], out: &mut Vec<u8>) -> bool {
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
                let Some(first) = parse_hex4(&mut rest) else { return false };
                let code = match first {
                    0xd800..=0xdbff => {
                        let Some(tail) = rest.strip_prefix(b"\\u") else { return false };
                        rest = tail;
                        match parse_hex4(&mut rest) {
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

fn parse_hex4(rest: &mut &[u8]) -> Option<u32> {
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
