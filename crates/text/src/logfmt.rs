//! logfmt: lines of `key=value` pairs, as Heroku's routers and many Go programs write them.
//!
//! ```text
//!   at=info method=GET path="/a b?q=\"x\"" status=200 took=12.5 cached
//!   key=value                quoted         unquoted         a bare key: true
//! ```
//!
//! There is no standard. Sources: Brandur Leach, "logfmt" (2013); the Go packages
//! `kr/logfmt` and `go-logfmt/logfmt`, whose encoder is what most writers use.
//!
//! # Grammar
//! Pairs are separated by spaces and tabs, any number of them; a line of nothing else is no
//! record. A key is what comes before `=` or the next separator and holds no quote. A key without
//! `=` is `true`. A value that starts with `"` goes on to the next quote that is not escaped by
//! `\` and ends there; its escapes are those of a JSON string, as go-logfmt writes them, or of a Go
//! string (`\x1b`, `\a`, `\U0001f600`), as loggers that use `strconv.Quote` write them. Any
//! other value goes on to the next separator: unlike the Go packages, which refuse them, quotes
//! and `=` within it are part of it (`url=/a?b=c`).
//!
//! `key=` is null, `key=""` is an empty string, and a key that is not there is null. Of a key
//! that comes twice, the last counts.
//!
//! # How
//! As in [`csv`](crate::csv), one pass finds what separates, here spaces, tabs, `=` and line ends
//! outside quotes, and writes the positions down. They are then walked once. As lines of one
//! program have the same keys in the same order, the `k`-th key is compared with the `k`-th of the
//! line before, in one word for up to eight bytes, and only looked up if it is another. A window
//! with anything odd in it is read record by record.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use hashbrown::HashMap;

use crate::column::{Column, Node};
use crate::decoder::{Decoder, Tokenizer, Window, decodes};
use crate::fault::{Fault, FaultKind};
use crate::filter::Filter;
use crate::infer::TextKind;
use crate::keys::{KeyId, KeyTally, KnownKeys, ObjectPlace};
use crate::leaf::Context;
use crate::lines;
use crate::separators::Separators;
use crate::span::Span;
use crate::values::Nulls;

/// Decodes logfmt.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{cast::AsArray, types::Int64Type};
/// use arrow_schema::{DataType, Field};
/// use tidemill_text::{Decode, Decoded, Options, logfmt::LogfmtDecoder};
///
/// let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
/// let columns = vec![field("status", DataType::Int64), field("cached", DataType::Boolean)];
/// let mut decoder = LogfmtDecoder::new(columns, Options::default()).unwrap();
/// let mut out = Decoded::default();
/// decoder.decode(b"path=\"/a b\" status=200 cached\nstatus=404\n", &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(0).as_primitive::<Int64Type>().values().to_vec(), [200, 404]);
/// assert!(batch.column(1).as_boolean().value(0));
/// ```
pub struct LogfmtDecoder {
    decoder: Decoder<Pairs>,
}

impl LogfmtDecoder {
    /// A decoder of `columns`, whose names are keys.
    ///
    /// # Errors
    /// The first column of a type that text cannot be read as.
    pub fn new(columns: Vec<FieldRef>, options: crate::Options) -> Result<Self, FieldRef> {
        if let Some(nested) = columns.iter().find(|field| field.data_type().is_nested()) {
            return Err(nested.clone());
        }
        let context = Context {
            nulls: Nulls::default(),
            unescape: Arc::new(unescape_value),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            has_hex_bytes: true,
        };
        let filter = Filter::new(options.predicates, &columns);
        let tokenizer = Pairs::new(&columns, options.known);
        let canonical = &options.inferred;
        let rows = options.batch_rows;
        let decoder =
            Decoder::with_canonical(tokenizer, &columns, canonical, context, filter, rows)?;
        Ok(Self { decoder })
    }
}

decodes!(LogfmtDecoder);

/// Appends what a quoted value stands for; of a bare key, which has no quotes, `true`.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
    match raw {
        [b'"', inner @ .., b'"'] => {
            let start = out.len();
            crate::json::unescape(inner, out) || {
                out.truncate(start);
                unescape_go(inner, out).is_ok()
            }
        }
        _ => {
            out.extend_from_slice(b"true");
            true
        }
    }
}

/// Appends what the inside of a Go string stands for, as `strconv.Quote` writes it.
///
/// # Errors
/// Returns the place of the first malformed escape, or the end of `raw` if the bytes are not UTF-8.
fn unescape_go(raw: &[u8], out: &mut Vec<u8>) -> Result<(), usize> {
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
            // A byte, or a character.
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

/// Why a value in quotes stands for nothing, and where in it; none for one that stands for something.
fn escape_fault(value: &[u8]) -> Option<(usize, String)> {
    let [b'"', inner @ .., b'"'] = value else { return None };
    let mut out = Vec::new();
    if crate::json::unescape(inner, &mut out) {
        return None;
    }
    out.clear();
    let at = unescape_go(inner, &mut out).err()?;
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
            format!("{what} `{}`", crate::shown(&shown).replace("\\\\", "\\"))
        }
    };
    Some((at + 1, reason))
}

// ------------------------------------------------------------------------------------ keys

/// A key that is likely to come, at its place in a record.
#[derive(Debug, Clone)]
struct Expected {
    /// Its first eight bytes, and which of those there are.
    word: u64,
    mask: u64,
    key: Vec<u8>,
    slot: Slot,
}

/// The use of a key's value.
#[derive(Debug, Clone, Copy)]
enum Slot {
    /// It is wanted, as that of this number.
    Wanted(usize),
    /// Another column has it.
    Other,
    /// No column has it, which is counted.
    Unknown(KeyId),
}

/// Places in a record for which a key is expected.
const EXPECTED_MAX: usize = 256;

/// The wanted keys.
struct Keys {
    slots: HashMap<Vec<u8>, usize>,
    expected: Vec<Expected>,
    /// The generation of the tally's keys of which `expected` is.
    generation: u64,
    /// The keys of all columns, where others are counted.
    known: Option<Arc<KnownKeys>>,
    tally: KeyTally,
}

impl Keys {
    /// Forgets expected keys whose indices in the tally are no longer valid: to be called before each window and record.
    fn begin(&mut self) {
        if self.generation != self.tally.generation() {
            self.generation = self.tally.generation();
            self.expected.clear();
        }
    }

    /// The slot of the key that stands at `start..end` and is the `ordinal`-th of its record, if it is wanted.
    #[inline(always)]
    fn slot(&mut self, block: &[u8], start: usize, end: usize, ordinal: usize) -> Option<usize> {
        match self.any_slot(block, start, end, ordinal) {
            Slot::Wanted(slot) => Some(slot),
            Slot::Other => None,
            Slot::Unknown(key) => {
                self.tally.add(key, 1, start);
                None
            }
        }
    }

    #[inline(always)]
    fn any_slot(&mut self, block: &[u8], start: usize, end: usize, ordinal: usize) -> Slot {
        if let Some(expected) = self.expected.get(ordinal)
            && expected.key.len() == end - start
            && let Some(word) = block.get(start..start + 8)
            && let Ok(word) = word.try_into()
            && u64::from_le_bytes(word) & expected.mask == expected.word
            && (end - start <= 8 || block[start..end] == expected.key[..])
        {
            return expected.slot;
        }
        self.look_up(&block[start..end], ordinal)
    }

    #[inline(never)]
    fn look_up(&mut self, key: &[u8], ordinal: usize) -> Slot {
        let slot = match (self.slots.get(key), &self.known) {
            (Some(slot), _) => Slot::Wanted(*slot),
            (None, Some(known)) if !known.contains(key) => {
                Slot::Unknown(self.tally.key(&ObjectPlace::default(), key))
            }
            (None, _) => Slot::Other,
        };
        let mut word = [0; 8];
        let count = key.len().min(8);
        word[..count].copy_from_slice(&key[..count]);
        let mask = if count == 8 { u64::MAX } else { (1 << (8 * count)) - 1 };
        let word = u64::from_le_bytes(word);
        if let Some(expected) = self.expected.get_mut(ordinal) {
            (expected.word, expected.mask, expected.slot) = (word, mask, slot);
            expected.key.clear();
            expected.key.extend_from_slice(key);
        } else if self.expected.len() == ordinal && ordinal < EXPECTED_MAX {
            self.expected.push(Expected { word, mask, key: key.to_vec(), slot });
        }
        slot
    }
}

// ----------------------------------------------------------------------------------- pairs

/// A pair of a record: where its key is, and its value with its quotes, if it is not bare.
struct Pair {
    key: Range<usize>,
    value: Option<Range<usize>>,
}

impl Pair {
    /// The first pair of a line from `at` on; none if there is only space.
    fn next(line: &[u8], mut at: usize) -> Result<Option<Pair>, Fault> {
        let fault = |at, reason: &str| Err(Fault::new(at, FaultKind::Syntax(reason.to_owned())));
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
            return Ok(Some(Pair { key, value: None }));
        }
        if key.is_empty() {
            return fault(at, "expected a key before `=`");
        }
        let start = at + 1;
        if line.get(start) != Some(&b'"') {
            let length = line[start..].iter().take_while(|byte| !is_space(byte)).count();
            return Ok(Some(Pair { key, value: Some(start..start + length) }));
        }
        let (mut at, mut escaped) = (start + 1, false);
        loop {
            match line.get(at) {
                None => return Err(Fault::new(start, FaultKind::Unclosed)),
                Some(b'"') if !escaped => break,
                Some(byte) => escaped = *byte == b'\\' && !escaped,
            }
            at += 1;
        }
        if !line.get(at + 1).is_none_or(is_space) {
            return fault(at + 1, "expected a space behind the closing quote");
        }
        Ok(Some(Pair { key, value: Some(start..at + 1) }))
    }

    fn end(&self) -> usize {
        self.value.as_ref().map_or(self.key.end, |value| value.end)
    }
}

/// The span of a value, which is quoted if it starts so.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
fn value(block: &[u8], start: usize, end: usize, escapes: bool) -> Span {
    if start == end {
        Span::NULL
    } else if block[start] != b'"' {
        Span::plain(start as u32, end as u32)
    } else if escapes && memchr::memchr(b'\\', &block[start..end]).is_some() {
        Span::escaped(start as u32, end as u32)
    } else {
        Span::plain(start as u32 + 1, end as u32 - 1)
    }
}

/// The span of a bare key.
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
fn bare(start: usize, end: usize) -> Span {
    Span::escaped(start as u32, end as u32)
}

/// Splits records into pairs.
struct Pairs {
    keys: Keys,
    /// Which key each column is of.
    slots: Vec<usize>,
    /// Keys that are wanted.
    count: usize,
    separators: Separators,
    /// What was found of a window: `count` for each row.
    found: Vec<Span>,
}

impl Pairs {
    fn new(columns: &[FieldRef], known: Option<Arc<KnownKeys>>) -> Self {
        let mut wanted = HashMap::new();
        let slot = |column: &FieldRef| {
            let next = wanted.len();
            *wanted.entry(column.name().as_bytes().to_vec()).or_insert(next)
        };
        let slots = columns.iter().map(slot).collect();
        Self {
            slots,
            count: wanted.len(),
            keys: Keys {
                slots: wanted,
                expected: Vec::new(),
                generation: 0,
                known,
                tally: KeyTally::default(),
            },
            separators: Separators::new(true),
            found: Vec::new(),
        }
    }

    /// Walks over the separators of so many rows; none if something is irregular, or the end.
    fn walk(&mut self, block: &[u8], at: usize, rows: usize) -> Option<usize> {
        let (escapes, crs) = (self.separators.has_escapes(), self.separators.has_crs());
        let trim = |start: usize, end: usize| {
            end - usize::from(crs && end > start && block[end - 1] == b'\r')
        };
        // The byte of a separator; the end of the block is one too.
        let byte = |at: usize| block.get(at).copied().unwrap_or(b'\n');
        self.found.clear();
        self.found.resize(rows * self.count, Span::NULL);
        let mut separators = self.separators.positions[1..].iter().map(|at| *at as usize);
        let (mut start, mut base) = (at, 0);
        for _ in 0..rows {
            let mut ordinal = 0;
            // The careful one says what is wrong with it.
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
                        // Were this quoted, it would not be by the grammar.
                        if byte(end + 1) == b'"' {
                            return None;
                        }
                        end = separators.next()?;
                    }
                    if let Some(slot) = self.keys.slot(block, start, equals, ordinal) {
                        let end = if byte(end) == b'\n' { trim(equals + 1, end) } else { end };
                        *self.found.get_mut(base + slot)? = value(block, equals + 1, end, escapes);
                    }
                    ordinal += 1;
                } else {
                    let key_end = if byte(end) == b'\n' { trim(start, end) } else { end };
                    if key_end > start {
                        if let Some(slot) = self.keys.slot(block, start, key_end, ordinal) {
                            *self.found.get_mut(base + slot)? = bare(start, key_end);
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
            base += self.count;
        }
        Some(start.min(block.len()))
    }

    /// Gives the columns what was found of so many rows.
    fn give(&self, columns: &mut [Column]) {
        for (column, &slot) in columns.iter_mut().zip(&self.slots) {
            if let Node::Leaf { spans, .. } = &mut column.node {
                spans.extend(self.found[slot..].iter().step_by(self.count));
            }
        }
    }
}

impl Tokenizer for Pairs {
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        _: &Context,
    ) -> Window {
        self.keys.begin();
        let Some(lines) = self.separators.window(block, at, rows_max) else {
            return Window::Irregular;
        };
        let rows = lines.min(rows_max);
        let Some(end) = self.walk(block, at, rows).filter(|end| *end > at) else {
            return Window::Irregular;
        };
        if !self.separators.is_utf8(&block[at..end]) {
            return Window::Irregular;
        }
        self.give(columns);
        Window::Rows { end, rows }
    }

    fn next(&self, block: &[u8], at: usize) -> Range<usize> {
        lines::next_filled(block, at, |line| line.iter().all(|b| matches!(b, b' ' | b'\t')))
    }

    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        _: &Context,
    ) -> Result<(), Fault> {
        self.keys.begin();
        let start = record.start;
        let line = &block[lines::trim(block, record.clone())];
        self.found.clear();
        self.found.resize(self.count, Span::NULL);
        let (mut at, mut ordinal) = (0, 0);
        while let Some(pair) = Pair::next(line, at)? {
            at = pair.end();
            let key = start + pair.key.start..start + pair.key.end;
            if let Some(slot) = self.keys.slot(block, key.start, key.end, ordinal) {
                self.found[slot] = match pair.value {
                    Some(range) => value(block, start + range.start, start + range.end, true),
                    None => bare(key.start, key.end),
                };
            }
            ordinal += 1;
        }
        self.give(columns);
        lines::check_utf8(block, record, columns)
    }

    fn escape_fault(&self, value: &[u8]) -> Option<(usize, String)> {
        escape_fault(value)
    }

    fn tally(&mut self) -> Option<&mut KeyTally> {
        Some(&mut self.keys.tally)
    }
}

// ------------------------------------------------------------------------------- inference

/// Keys that are kept apart; those that come up later become no columns.
const KEYS_MAX: usize = 10_000;

/// Columns as a sample shows them so far: one for each key, in the order of their first
/// appearance.
///
/// ```
/// use tidemill_text::logfmt::Inference;
///
/// let mut inference = Inference::default();
/// assert_eq!(inference.add(b"at=2013-01-01 n=1\nn=2.5 up\n"), 2);
/// let fields = inference.fields();
/// let types: Vec<_> = fields.iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
/// assert_eq!(types, ["at Date32", "n Float64", "up Boolean"]);
/// ```
#[derive(Debug, Default)]
pub struct Inference {
    places: HashMap<String, usize>,
    keys: Vec<(String, TextKind)>,
    /// How many keys were there when the sample was said to be all, and which had values.
    settled: Vec<bool>,
    first_fault: Option<Fault>,
}

impl Inference {
    /// Takes a block of whole records and returns how many it holds. What is not well formed is
    /// left to the reading, which reports it.
    pub fn add(&mut self, block: &[u8]) -> u64 {
        let (mut records, mut value) = (0, Vec::new());
        for line in block.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(fault) = Fault::leading_nuls(line) {
                self.first_fault.get_or_insert(fault);
                records += 1;
                continue;
            }
            let (mut at, mut is_filled) = (0, false);
            loop {
                let pair = match Pair::next(line, at) {
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
                let Some(place) = self.place(key) else { continue };
                value.clear();
                let is_whole = match pair.value.map(|range| &line[range]) {
                    Some(raw) if raw.starts_with(b"\"") => unescape(raw, &mut value),
                    Some(raw) => {
                        value.extend_from_slice(raw);
                        !raw.is_empty()
                    }
                    None => unescape(key.as_bytes(), &mut value),
                };
                if is_whole && let Ok(value) = std::str::from_utf8(&value) {
                    self.keys[place].1.add(value);
                }
            }
            records += u64::from(is_filled);
        }
        records
    }

    /// The fault of the first record that is not well formed.
    #[must_use]
    pub fn first_fault(&self) -> Option<&Fault> {
        self.first_fault.as_ref()
    }

    /// Says that the sample so far is what types are taken from: what is
    /// [widened](Self::widen) from now on only widens them.
    pub fn settle(&mut self) {
        self.settled = self.keys.iter().map(|(_, kind)| kind.data_type().is_some()).collect();
    }

    /// Takes what the beginning of another file shows: keys that are new here as they are there,
    /// of the others wider numbers and times. What does not fit is left to the reading.
    pub fn widen(&mut self, other: &Self) {
        for (key, kind) in &other.keys {
            match self.place(key) {
                Some(place) if self.settled.get(place) == Some(&true) => {
                    self.keys[place].1.widen(kind);
                }
                Some(place) => self.keys[place].1.merge(kind),
                None => {}
            }
        }
    }

    /// The keys that had a value.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter(|(_, kind)| kind.data_type().is_some()).map(|(key, _)| key.as_str())
    }

    /// The place of a key, which may be new.
    fn place(&mut self, key: &str) -> Option<usize> {
        if let Some(place) = self.places.get(key) {
            return Some(*place);
        }
        let place = self.keys.len();
        if place == KEYS_MAX {
            return None;
        }
        self.places.insert(key.to_owned(), place);
        self.keys.push((key.to_owned(), TextKind::default()));
        Some(place)
    }

    /// The columns; a key whose values are all null is text.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldRef> {
        let field = |(key, kind): &(String, TextKind)| {
            let data_type = kind.data_type().unwrap_or(DataType::Utf8View);
            Arc::new(Field::new(key, data_type, true))
        };
        self.keys.iter().map(field).collect()
    }
}

#[cfg(test)]
mod tests;
