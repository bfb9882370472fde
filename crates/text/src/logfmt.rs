//! The decoder of logfmt: lines of `key=value` pairs, as Heroku's routers and many Go programs write them.
//!
//! ```text
//!   at=info method=GET path="/a b?q=\"x\"" status=200 took=12.5 cached
//!   key=value                quoted         unquoted         a bare key: true
//! ```
//!
//! There is no standard. Sources: Brandur Leach, "logfmt" (2013); the Go packages
//! `kr/logfmt` and `go-logfmt/logfmt`, whose encoder most writers use.
//!
//! # Grammar
//! Spaces and tabs separate pairs, any number of them; a line with nothing else is no
//! record. A key is the text before `=` or the next separator and contains no quote. A key without
//! `=` is `true`. A value that starts with `"` extends to the next quote that is not escaped by
//! `\` and ends there. Its escapes are those of a JSON string, as go-logfmt writes them, or of a Go
//! string (`\x1b`, `\a`, `\U0001f600`), as loggers that use `strconv.Quote` write them. Any
//! other value extends to the next separator: quotes and `=` within it are part of it
//! (`url=/a?b=c`), unlike in the Go packages, which refuse them.
//!
//! `key=` is null, `key=""` is an empty string, and a missing key is null. If a key
//! comes twice, the last value counts.
//!
//! # Method
//! As in [`csv`](crate::csv), one pass finds the separators, here spaces, tabs, `=` and line ends
//! outside quotes, and writes their positions. A second pass walks over them once. As lines of one
//! program have the same keys in the same order, it compares the `k`-th key with the `k`-th of the
//! line before, in one word for up to eight bytes, and looks it up only if it differs. The decoder reads a
//! window with anything odd in it record by record.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use hashbrown::HashMap;

use crate::array_builders::DecodingContext;
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, decodes};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::infer::InferredTextType;
use crate::lines;
use crate::predicate_filter::SpanFilter;
use crate::separator_scan::SeparatorIndex;
use crate::text_fault::{TextFault, TextFaultKind};
use crate::unknown_keys::{KeyIndex, KeyTally, KnownKeys, ObjectScope};
use crate::value_parsing::NullStrings;
use crate::value_span::ValueSpan;

/// A decoder of logfmt.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{cast::AsArray, types::Int64Type};
/// use arrow_schema::{DataType, Field};
/// use tidemill_text::{BlockDecoder, DecodedBlocks, Options, logfmt::LogfmtDecoder};
///
/// let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
/// let columns = vec![field("status", DataType::Int64), field("cached", DataType::Boolean)];
/// let mut decoder = LogfmtDecoder::new(columns, Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// decoder.decode(b"path=\"/a b\" status=200 cached\nstatus=404\n", &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(0).as_primitive::<Int64Type>().values().to_vec(), [200, 404]);
/// assert!(batch.column(1).as_boolean().value(0));
/// ```
pub struct LogfmtDecoder {
    decoder: FormatDecoder<LogfmtTokenizer>,
}

impl LogfmtDecoder {
    /// Returns a decoder of `columns`, whose names are keys.
    ///
    /// # Errors
    /// The first column of a type that text cannot be read as.
    pub fn new(columns: Vec<FieldRef>, options: crate::Options) -> Result<Self, FieldRef> {
        if let Some(nested) = columns.iter().find(|field| field.data_type().is_nested()) {
            return Err(nested.clone());
        }
        let context = DecodingContext {
            nulls: NullStrings::default(),
            unescape: Arc::new(unescape_value),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: true,
        };
        let filter = SpanFilter::new(options.predicates, &columns);
        let tokenizer = LogfmtTokenizer::new(&columns, options.known_keys);
        let canonical = &options.inferred_columns;
        let rows = options.batch_rows;
        let decoder = FormatDecoder::with_canonical_columns(
            tokenizer, &columns, canonical, context, filter, rows,
        )?;
        Ok(Self { decoder })
    }
}

decodes!(LogfmtDecoder);

/// Appends the value of a quoted text; for a bare key, which has no quotes, `true`.
pub(crate) fn unescape_value(raw: &[u8], out: &mut Vec<u8>) -> bool {
    match raw {
        [b'"', inner @ .., b'"'] => {
            let start = out.len();
            crate::json::unescape_string(inner, out) || {
                out.truncate(start);
                unescape_go_string(inner, out).is_ok()
            }
        }
        _ => {
            out.extend_from_slice(b"true");
            true
        }
    }
}

/// Appends the value of the inside of a Go string, as `strconv.Quote` writes it.
///
/// # Errors
/// Returns the position of the first malformed escape, or the end of `raw` if the bytes are not UTF-8.
fn unescape_go_string(raw: &[u8], out: &mut Vec<u8>) -> Result<(), usize> {
    let start = out.len();
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let place = raw.len() - rest.len() + at;
        let (&escape, tail) = rest[at + 1..].split_first().ok_or(place)?;
        rest = tail;
        let digits = match escape {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => 0,
        };
        if digits > 0 {
            let (code, tail) = rest.split_at_checked(digits).ok_or(place)?;
            rest = tail;
            let code = std::str::from_utf8(code).ok().filter(|code| !code.starts_with('+'));
            let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
            // The code is a byte or a character.
            match (escape, code, code.and_then(char::from_u32)) {
                (b'x', Some(code), _) => out.extend(u8::try_from(code)),
                (_, _, Some(character)) => {
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => return Err(place),
            }
            continue;
        }
        out.push(match escape {
            b'"' | b'\\' | b'\'' => escape,
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            _ => return Err(place),
        });
    }
    out.extend_from_slice(rest);
    std::str::from_utf8(&out[start..]).map_err(|_| raw.len())?;
    Ok(())
}

/// Returns position and reason of the first invalid escape in a value in quotes; `None` for a valid value.
fn describe_escape_fault(value: &[u8]) -> Option<(usize, String)> {
    let [b'"', inner @ .., b'"'] = value else { return None };
    let mut out = Vec::new();
    if crate::json::unescape_string(inner, &mut out) {
        return None;
    }
    out.clear();
    let at = unescape_go_string(inner, &mut out).err()?;
    let reason = match inner.get(at + 1) {
        None => "escapes that give no UTF-8".to_owned(),
        Some(escape) => {
            let digits = match escape {
                b'x' => 2,
                b'u' => 4,
                b'U' => 8,
                _ => 0,
            };
            let what = if digits > 0 { "a malformed escape" } else { "an unknown escape" };
            let text = String::from_utf8_lossy(&inner[at..]);
            let shown: String = text.chars().take(2 + digits).collect();
            format!("{what} `{}`", crate::value_excerpt(&shown).replace("\\\\", "\\"))
        }
    };
    Some((at + 1, reason))
}

// ------------------------------------------------------------------------------------ keys

/// The key that is expected at a position of a record.
#[derive(Debug, Clone)]
struct ExpectedLogfmtKey {
    /// Its first eight bytes, and the mask of the existing ones.
    word: u64,
    mask: u64,
    key: Vec<u8>,
    slot: KeySlot,
}

/// The use of a key's value.
#[derive(Debug, Clone, Copy)]
enum KeySlot {
    /// A wanted key, with its slot.
    Wanted(usize),
    /// A key of another column.
    NotWanted,
    /// A key that no column has, which the tally counts.
    Unknown(KeyIndex),
}

/// Maximum number of positions in a record with an expected key.
const EXPECTED_KEYS_MAX: usize = 256;

/// Lookup of the wanted keys.
struct LogfmtKeys {
    slots_by_key: HashMap<Vec<u8>, usize>,
    expected_keys: Vec<ExpectedLogfmtKey>,
    /// Generation of the tally's key indices in `expected_keys`.
    key_generation: u64,
    /// The keys of all columns, if others are counted.
    known_keys: Option<Arc<KnownKeys>>,
    tally: KeyTally,
}

impl LogfmtKeys {
    /// Drops expected keys whose indices in the tally are no longer valid. Call it before each window and
    /// record.
    fn drop_stale_keys(&mut self) {
        if self.key_generation != self.tally.generation() {
            self.key_generation = self.tally.generation();
            self.expected_keys.clear();
        }
    }

    /// Returns the slot of the key at `start..end`, the `ordinal`-th of its record, if it is wanted.
    #[inline(always)]
    fn wanted_slot(
        &mut self,
        block: &[u8],
        start: usize,
        end: usize,
        ordinal: usize,
    ) -> Option<usize> {
        match self.find_slot(block, start, end, ordinal) {
            KeySlot::Wanted(slot) => Some(slot),
            KeySlot::NotWanted => None,
            KeySlot::Unknown(key) => {
                self.tally.add_occurrences(key, 1, start);
                None
            }
        }
    }

    #[inline(always)]
    fn find_slot(&mut self, block: &[u8], start: usize, end: usize, ordinal: usize) -> KeySlot {
        if let Some(expected) = self.expected_keys.get(ordinal)
            && expected.key.len() == end - start
            && let Some(word) = block.get(start..start + 8)
            && let Ok(word) = word.try_into()
            && u64::from_le_bytes(word) & expected.mask == expected.word
            && (end - start <= 8 || block[start..end] == expected.key[..])
        {
            return expected.slot;
        }
        self.look_up_slot(&block[start..end], ordinal)
    }

    #[inline(never)]
    fn look_up_slot(&mut self, key: &[u8], ordinal: usize) -> KeySlot {
        let slot = match (self.slots_by_key.get(key), &self.known_keys) {
            (Some(slot), _) => KeySlot::Wanted(*slot),
            (None, Some(known)) if !known.contains(key) => {
                KeySlot::Unknown(self.tally.intern_key(&ObjectScope::default(), key))
            }
            (None, _) => KeySlot::NotWanted,
        };
        let mut word = [0; 8];
        let count = key.len().min(8);
        word[..count].copy_from_slice(&key[..count]);
        let mask = if count == 8 { u64::MAX } else { (1 << (8 * count)) - 1 };
        let word = u64::from_le_bytes(word);
        if let Some(expected) = self.expected_keys.get_mut(ordinal) {
            (expected.word, expected.mask, expected.slot) = (word, mask, slot);
            expected.key.clear();
            expected.key.extend_from_slice(key);
        } else if self.expected_keys.len() == ordinal && ordinal < EXPECTED_KEYS_MAX {
            self.expected_keys.push(ExpectedLogfmtKey { word, mask, key: key.to_vec(), slot });
        }
        slot
    }
}

// ----------------------------------------------------------------------------------- pairs

/// A pair of a record: the range of its key, and of its value with its quotes, if the key is not bare.
struct LogfmtPair {
    key: Range<usize>,
    value: Option<Range<usize>>,
}

impl LogfmtPair {
    /// Parses the first pair of a line from `at` on; `None` if only spaces are left.
    fn parse_next(line: &[u8], mut at: usize) -> Result<Option<LogfmtPair>, TextFault> {
        let fault = |at, reason: &str| {
            Err(TextFault::new(at, TextFaultKind::SyntaxError(reason.to_owned())))
        };
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
        while line.get(at).is_some_and(is_space) {
            at += 1;
        }
        if at == line.len() {
            return Ok(None);
        }
        let start = at;
        while line.get(at).is_some_and(|byte| !is_space(byte) && *byte != b'=') {
            if line[at] == b'"' {
                return fault(at, "a quote in a key");
            }
            at += 1;
        }
        let key = start..at;
        if line.get(at) != Some(&b'=') {
            return Ok(Some(LogfmtPair { key, value: None }));
        }
        if key.is_empty() {
            return fault(at, "expected a key before `=`");
        }
        let start = at + 1;
        if line.get(start) != Some(&b'"') {
            let length = line[start..].iter().take_while(|byte| !is_space(byte)).count();
            return Ok(Some(LogfmtPair { key, value: Some(start..start + length) }));
        }
        let (mut at, mut escaped) = (start + 1, false);
        loop {
            match line.get(at) {
                None => return Err(TextFault::new(start, TextFaultKind::UnclosedQuote)),
                Some(b'"') if !escaped => break,
                Some(byte) => escaped = *byte == b'\\' && !escaped,
            }
            at += 1;
        }
        if !line.get(at + 1).is_none_or(is_space) {
            return fault(at + 1, "expected a space behind the closing quote");
        }
        Ok(Some(LogfmtPair { key, value: Some(start..at + 1) }))
    }

    fn end(&self) -> usize {
        self.value.as_ref().map_or(self.key.end, |value| value.end)
    }
}

/// Returns the span of a value, which is quoted if it starts with a quote.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
fn value_span(block: &[u8], start: usize, end: usize, escapes: bool) -> ValueSpan {
    if start == end {
        ValueSpan::NULL
    } else if block[start] != b'"' {
        ValueSpan::new_plain(start as u32, end as u32)
    } else if escapes && memchr::memchr(b'\\', &block[start..end]).is_some() {
        ValueSpan::new_escaped(start as u32, end as u32)
    } else {
        ValueSpan::new_plain(start as u32 + 1, end as u32 - 1)
    }
}

/// Returns the span of a bare key.
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
fn bare_key_span(start: usize, end: usize) -> ValueSpan {
    ValueSpan::new_escaped(start as u32, end as u32)
}

/// The tokenizer of logfmt.
struct LogfmtTokenizer {
    keys: LogfmtKeys,
    /// Slot of the key of each column.
    column_slots: Vec<usize>,
    /// Number of wanted keys.
    slot_count: usize,
    separators: SeparatorIndex,
    /// Spans found in a window: `slot_count` for each row.
    found_spans: Vec<ValueSpan>,
}

impl LogfmtTokenizer {
    fn new(columns: &[FieldRef], known: Option<Arc<KnownKeys>>) -> Self {
        let mut wanted = HashMap::new();
        let slot = |column: &FieldRef| {
            let next = wanted.len();
            *wanted.entry(column.name().as_bytes().to_vec()).or_insert(next)
        };
        let slots = columns.iter().map(slot).collect();
        Self {
            column_slots: slots,
            slot_count: wanted.len(),
            keys: LogfmtKeys {
                slots_by_key: wanted,
                expected_keys: Vec::new(),
                key_generation: 0,
                known_keys: known,
                tally: KeyTally::default(),
            },
            separators: SeparatorIndex::new(true),
            found_spans: Vec::new(),
        }
    }

    /// Walks over the separators of `rows` rows and returns the end of the last one; `None` if something is
    /// irregular.
    fn tokenize_rows(&mut self, block: &[u8], at: usize, rows: usize) -> Option<usize> {
        let (escapes, crs) =
            (self.separators.has_escapes(), self.separators.has_carriage_returns());
        let trim = |start: usize, end: usize| {
            end - usize::from(crs && end > start && block[end - 1] == b'\r')
        };
        // Returns the byte of a separator; the end of the block counts as a line end.
        let byte = |at: usize| block.get(at).copied().unwrap_or(b'\n');
        self.found_spans.clear();
        self.found_spans.resize(rows * self.slot_count, ValueSpan::NULL);
        let mut separators = self.separators.positions[1..].iter().map(|at| *at as usize);
        let (mut start, mut base) = (at, 0);
        for _ in 0..rows {
            let mut ordinal = 0;
            // Exact decoding reports this fault.
            if byte(start) == 0 {
                return None;
            }
            loop {
                let mut end = separators.next()?;
                if byte(end) == b'=' {
                    let equals = end;
                    if equals == start {
                        return None;
                    }
                    end = separators.next()?;
                    while byte(end) == b'=' {
                        // A quote here would have hidden separators, but the grammar gives it no meaning.
                        if byte(end + 1) == b'"' {
                            return None;
                        }
                        end = separators.next()?;
                    }
                    if let Some(slot) = self.keys.wanted_slot(block, start, equals, ordinal) {
                        let end = if byte(end) == b'\n' { trim(equals + 1, end) } else { end };
                        *self.found_spans.get_mut(base + slot)? =
                            value_span(block, equals + 1, end, escapes);
                    }
                    ordinal += 1;
                } else {
                    let key_end = if byte(end) == b'\n' { trim(start, end) } else { end };
                    if key_end > start {
                        if let Some(slot) = self.keys.wanted_slot(block, start, key_end, ordinal) {
                            *self.found_spans.get_mut(base + slot)? = bare_key_span(start, key_end);
                        }
                        ordinal += 1;
                    }
                }
                start = end + 1;
                if byte(end) == b'\n' {
                    break;
                }
            }
            // A blank line is no record.
            if ordinal == 0 {
                return None;
            }
            base += self.slot_count;
        }
        Some(start.min(block.len()))
    }

    /// Pushes the spans found in the window to the columns.
    fn push_spans(&self, columns: &mut [ColumnDecoder]) {
        for (column, &slot) in columns.iter_mut().zip(&self.column_slots) {
            if let ColumnNode::Leaf { spans, .. } = &mut column.node {
                spans.extend(self.found_spans[slot..].iter().step_by(self.slot_count));
            }
        }
    }
}

impl Tokenizer for LogfmtTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> TokenizedWindow {
        self.keys.drop_stale_keys();
        let Some(lines) = self.separators.index_window(block, at, rows_max) else {
            return TokenizedWindow::IrregularRows;
        };
        let rows = lines.min(rows_max);
        let Some(end) = self.tokenize_rows(block, at, rows).filter(|end| *end > at) else {
            return TokenizedWindow::IrregularRows;
        };
        if !self.separators.is_utf8(&block[at..end]) {
            return TokenizedWindow::IrregularRows;
        }
        self.push_spans(columns);
        TokenizedWindow::RegularRows { end, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        lines::next_nonblank_line(block, at, |line| line.iter().all(|b| matches!(b, b' ' | b'\t')))
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> Result<(), TextFault> {
        self.keys.drop_stale_keys();
        let start = record.start;
        let line = &block[lines::trim_line_end(block, record.clone())];
        self.found_spans.clear();
        self.found_spans.resize(self.slot_count, ValueSpan::NULL);
        let (mut at, mut ordinal) = (0, 0);
        while let Some(pair) = LogfmtPair::parse_next(line, at)? {
            at = pair.end();
            let key = start + pair.key.start..start + pair.key.end;
            if let Some(slot) = self.keys.wanted_slot(block, key.start, key.end, ordinal) {
                self.found_spans[slot] = match pair.value {
                    Some(range) => value_span(block, start + range.start, start + range.end, true),
                    None => bare_key_span(key.start, key.end),
                };
            }
            ordinal += 1;
        }
        self.push_spans(columns);
        lines::check_record_utf8(block, record, columns)
    }

    fn describe_escape_fault(&self, value: &[u8]) -> Option<(usize, String)> {
        describe_escape_fault(value)
    }

    fn key_tally(&mut self) -> Option<&mut KeyTally> {
        Some(&mut self.keys.tally)
    }
}

// ------------------------------------------------------------------------------- inference

/// Maximum number of inferred keys; later ones become no columns.
const INFERRED_KEYS_MAX: usize = 10_000;

/// Columns inferred from the sample so far: one for each key, in the order of their first
/// appearance.
///
/// ```
/// use tidemill_text::logfmt::LogfmtInference;
///
/// let mut inference = LogfmtInference::default();
/// assert_eq!(inference.add_block(b"at=2013-01-01 n=1\nn=2.5 up\n"), 2);
/// let fields = inference.fields();
/// let types: Vec<_> = fields.iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
/// assert_eq!(types, ["at Date32", "n Float64", "up Boolean"]);
/// ```
#[derive(Debug, Default)]
pub struct LogfmtInference {
    key_indices: HashMap<String, usize>,
    key_types: Vec<(String, InferredTextType)>,
    /// For each key that existed when the types were fixed: true if it had values.
    settled_keys: Vec<bool>,
    first_fault: Option<TextFault>,
}

impl LogfmtInference {
    /// Adds a block of whole records and returns their number. Ignores malformed
    /// text, which the decoder reports.
    pub fn add_block(&mut self, block: &[u8]) -> u64 {
        let (mut records, mut value) = (0, Vec::new());
        for line in block.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(fault) = TextFault::from_leading_nuls(line) {
                self.first_fault.get_or_insert(fault);
                records += 1;
                continue;
            }
            let (mut at, mut is_filled) = (0, false);
            loop {
                let pair = match LogfmtPair::parse_next(line, at) {
                    Ok(Some(pair)) => pair,
                    Ok(None) => break,
                    Err(fault) => {
                        self.first_fault.get_or_insert(fault);
                        is_filled = true;
                        break;
                    }
                };
                (at, is_filled) = (pair.end(), true);
                let Ok(key) = std::str::from_utf8(&line[pair.key.clone()]) else { continue };
                let Some(place) = self.find_or_add_key(key) else { continue };
                value.clear();
                let is_whole = match pair.value.map(|range| &line[range]) {
                    Some(raw) if raw.starts_with(b"\"") => unescape_value(raw, &mut value),
                    Some(raw) => {
                        value.extend_from_slice(raw);
                        !raw.is_empty()
                    }
                    None => unescape_value(key.as_bytes(), &mut value),
                };
                if is_whole && let Ok(value) = std::str::from_utf8(&value) {
                    self.key_types[place].1.add_value(value);
                }
            }
            records += u64::from(is_filled);
        }
        records
    }

    /// Returns the fault of the first malformed record.
    #[must_use]
    pub fn first_fault(&self) -> Option<&TextFault> {
        self.first_fault.as_ref()
    }

    /// Fixes the types of the sample so far: further samples
    /// ([`widen`](Self::widen)) only widen them.
    pub fn settle_types(&mut self) {
        self.settled_keys =
            self.key_types.iter().map(|(_, kind)| kind.data_type().is_some()).collect();
    }

    /// Adds the beginning of another file: new keys with their types,
    /// and wider numbers and times for the others. The decoder reports values that do not fit.
    pub fn widen(&mut self, other: &Self) {
        for (key, kind) in &other.key_types {
            match self.find_or_add_key(key) {
                Some(place) if self.settled_keys.get(place) == Some(&true) => {
                    self.key_types[place].1.widen(kind);
                }
                Some(place) => self.key_types[place].1.merge(kind),
                None => {}
            }
        }
    }

    /// Returns the keys that had a value.
    pub fn non_null_keys(&self) -> impl Iterator<Item = &str> {
        self.key_types
            .iter()
            .filter(|(_, kind)| kind.data_type().is_some())
            .map(|(key, _)| key.as_str())
    }

    /// Returns the index of a key, and adds the key if it is new; `None` if there are too many keys.
    fn find_or_add_key(&mut self, key: &str) -> Option<usize> {
        if let Some(place) = self.key_indices.get(key) {
            return Some(*place);
        }
        let place = self.key_types.len();
        if place == INFERRED_KEYS_MAX {
            return None;
        }
        self.key_indices.insert(key.to_owned(), place);
        self.key_types.push((key.to_owned(), InferredTextType::default()));
        Some(place)
    }

    /// Returns the columns; a key whose values are all null is text.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldRef> {
        let field = |(key, kind): &(String, InferredTextType)| {
            let data_type = kind.data_type().unwrap_or(DataType::Utf8View);
            Arc::new(Field::new(key, data_type, true))
        };
        self.key_types.iter().map(field).collect()
    }
}

#[cfg(test)]
mod tests;
