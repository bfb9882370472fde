//! Delimited text: CSV and TSV.
//!
//! One pass finds every separator (delimiter or line end) that is not inside quotes, 64 bytes
//! at a time, and writes its position down. If records have `n` fields, field `k` of record `r`
//! then ends at separator `r * n + k`: no record is looked at but where a wanted column is, and
//! it is known that all are whole if every `n`-th separator is a line end and there are as many
//! line ends as records. What an unwanted field holds is never read; that it is UTF-8 and that
//! its quotes pair up is seen in the same pass.
//!
//! Whatever does not fit (another number of fields, a blank line, a literal quote, a lone `\r`,
//! a comment, an escape) makes the window irregular, and its records are split one by one by
//! the automaton of [`cut`](crate::cut).
//!
//! ```text
//!   text        a , b c , "d , e" \n f , …
//!   separators    ^     ^         ^    ^          by mask: (delimiter | line end) & !inside
//!   inside            00 11111110 0               parity of quotes, carried from block to block
//! ```

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;

use crate::column::{Column, Node};
use crate::cut::{Grammar, State};
use crate::decoder::{Decoder, Tokenizer, WINDOW_BYTES, Window, decodes};
use crate::dialect::Dialect;
use crate::fault::{Fault, FaultKind};
use crate::filter::Filter;
use crate::leaf::Context;
use crate::separators::Look;
use crate::simd::{BLOCK, Isa, dispatch};
use crate::span::Span;
use crate::values::Nulls;

/// Decodes delimited text.
///
/// Values are read as [`values`](crate::values) says; an empty field is null, and so are the
/// dialect's null strings. An empty field in quotes is an empty text, and null in a column that is
/// no text.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_schema::{DataType, Field};
/// use tidemill_text::{Decode, Decoded, Dialect, Options, csv::CsvDecoder};
///
/// let wanted = vec![(2, Arc::new(Field::new("n", DataType::Int64, true)))];
/// let mut decoder = CsvDecoder::new(&Dialect::default(), 3, wanted, Options::default()).unwrap();
/// let mut out = Decoded::default();
/// decoder.decode(b"a,\"b,\n\",1\nc,d,oops\ne,f,3\n", &mut out);
/// assert_eq!(out.batches[0].num_rows(), 2);
/// assert_eq!(out.bad[0].fault.to_string(), "expected a BIGINT, found `oops`");
/// ```
pub struct CsvDecoder {
    decoder: Decoder<Fields>,
}

impl CsvDecoder {
    /// A decoder of `columns`, each a field's position in records of `fields` fields and what
    /// it becomes. The header, if there is one, must not be in the blocks.
    ///
    /// # Errors
    /// The first column of a type that text cannot be read as.
    ///
    /// # Panics
    /// If a column's position is not below `fields`, or a special byte of the dialect is not
    /// ASCII, 0 or a line end.
    pub fn new(
        dialect: &Dialect,
        fields: usize,
        columns: Vec<(usize, FieldRef)>,
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        let special = [Some(dialect.delimiter), dialect.quote, dialect.escape, dialect.comment];
        assert!(
            special.iter().flatten().all(|b| b.is_ascii() && !matches!(b, 0 | b'\r' | b'\n')),
            "special bytes are ASCII and no line ends"
        );
        assert!(columns.iter().all(|(place, _)| *place < fields), "columns are fields");
        let (quote, escape) = (dialect.quote.unwrap_or(0), dialect.escape);
        let context = Context {
            nulls: Nulls::new(&dialect.nulls, true),
            unescape: Arc::new(move |raw, out| unescape(raw, quote, escape, out)),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            has_hex_bytes: true,
        };
        let (places, wanted): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let filter = Filter::new(options.predicates, &wanted);
        let tokenizer = Fields::new(dialect, fields, places);
        let canonical = &options.inferred;
        let rows = options.batch_rows;
        let decoder =
            Decoder::with_canonical(tokenizer, &wanted, canonical, context, filter, rows)?;
        Ok(Self { decoder })
    }
}

decodes!(CsvDecoder);

/// What was seen of a stretch of text, as bits.
mod seen {
    /// A quote.
    pub(super) const QUOTE: u32 = 1;
    /// A quote right behind another one.
    pub(super) const DOUBLED: u32 = 2;
    /// A carriage return before a line feed.
    pub(super) const CR: u32 = 4;
    /// A byte that is not ASCII.
    pub(super) const HIGH: u32 = 8;
    /// A quote in an unquoted field, a lone carriage return, a comment.
    pub(super) const IRREGULAR: u32 = 16;
    /// A line feed within quotes.
    pub(super) const QUOTED_LINE: u32 = 32;
}

/// What a block of 64 bytes tells the next one.
#[derive(Debug, Clone, Copy)]
struct Carry {
    /// All bits, inside quotes; else none.
    inside: u64,
    /// 1 if a quote may come first: behind a separator or a quote.
    may_open: u64,
    /// 1 if a quote came last.
    quote: u64,
    /// 1 if a carriage return outside quotes came last.
    cr: u64,
    /// 1 if a line feed came last.
    line: u64,
}

impl Carry {
    /// At the start of a record.
    const START: Carry = Carry { inside: 0, may_open: 1, quote: 0, cr: 0, line: 1 };
}

/// The bytes that separate.
#[derive(Debug, Clone, Copy)]
struct Special {
    delimiter: u8,
    quote: Option<u8>,
    comment: Option<u8>,
}

dispatch! {
    /// Appends the positions of the separators in `from..to` of the text to `out`;
    /// returns what was seen on the way, and how many of them are line ends.
    fn separators(
        text: &[u8], from: usize, to: usize, special: Special, carry: &mut Carry, out: &mut Vec<u32>
    ) -> (u32, usize) => find
}

dispatch! {
    /// The same of text without quotes, of a dialect without comments. Where it has seen a quote,
    /// nothing else that it says is right.
    fn separators_unquoted(
        text: &[u8], from: usize, to: usize, special: Special, carry: &mut Carry, out: &mut Vec<u32>
    ) -> (u32, usize) => find_unquoted
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn find_unquoted<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    special: Special,
    carry: &mut Carry,
    out: &mut Vec<u32>,
) -> (u32, usize) {
    let special = [special.delimiter, special.quote.unwrap_or(0xff), 0];
    // SAFETY: as the caller promises.
    unsafe { find_with::<I, WATCHED, false>(text, from, to, special, carry, out) }
}

/// What is made of quotes: they are bytes like others, …
const NO_QUOTES: u8 = 0;
/// … or there should be none, …
const WATCHED: u8 = 1;
/// … or they are quotes.
const QUOTES: u8 = 2;

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn find<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    special: Special,
    carry: &mut Carry,
    out: &mut Vec<u32>,
) -> (u32, usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match special {
            Special { quote: Some(quote), comment: None, delimiter } => {
                find_with::<I, QUOTES, false>(text, from, to, [delimiter, quote, 0], carry, out)
            }
            Special { quote: None, comment: None, delimiter } => {
                find_with::<I, NO_QUOTES, false>(text, from, to, [delimiter, 0, 0], carry, out)
            }
            Special { quote, comment: Some(comment), delimiter } => {
                // A quote that is no byte of UTF-8 is none.
                let quote = quote.unwrap_or(0xff);
                find_with::<I, QUOTES, true>(
                    text,
                    from,
                    to,
                    [delimiter, quote, comment],
                    carry,
                    out,
                )
            }
        }
    }
}

/// # Safety
/// As `find`.
#[inline(always)]
unsafe fn find_with<I: Isa, const HOW: u8, const COMMENTS: bool>(
    text: &[u8],
    from: usize,
    to: usize,
    special: [u8; 3],
    carry: &mut Carry,
    out: &mut Vec<u32>,
) -> (u32, usize) {
    let mut look = Looking::<HOW, COMMENTS> { special, carry: *carry, seen: Seen::default() };
    // SAFETY: as the caller promises.
    unsafe { crate::separators::find::<I>(text, from, to, &mut look, out) };
    *carry = look.carry;
    let mut marks = 0;
    for (found, mark) in [
        (look.seen.quotes, seen::QUOTE),
        (look.seen.doubled, seen::DOUBLED),
        (look.seen.crs, seen::CR),
        (look.seen.high, seen::HIGH),
        (look.seen.irregular, seen::IRREGULAR),
        (look.seen.quoted_lines, seen::QUOTED_LINE),
    ] {
        if found != 0 {
            marks |= mark;
        }
    }
    (marks, look.seen.lines)
}

/// What a stretch of text has shown so far: any bits, and line ends.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    quotes: u64,
    doubled: u64,
    crs: u64,
    high: u64,
    irregular: u64,
    quoted_lines: u64,
    lines: usize,
}

/// What is looked for.
#[derive(Clone, Copy)]
struct Looking<const HOW: u8, const COMMENTS: bool> {
    /// Delimiter, quote, comment.
    special: [u8; 3],
    carry: Carry,
    seen: Seen,
}

impl<const HOW: u8, const COMMENTS: bool> Look for Looking<HOW, COMMENTS> {
    #[inline(always)]
    unsafe fn separators<I: Isa>(&mut self, block: I::Block, _: u64) -> u64 {
        let [delimiter, quote, comment] = self.special;
        let (state, seen) = (&mut self.carry, &mut self.seen);
        // SAFETY: as the caller promises.
        unsafe {
            let mut lines = I::equal(block, b'\n');
            let mut separators = I::equal(block, delimiter) | lines;
            let mut cr = I::equal(block, b'\r');
            seen.high |= I::high(block);
            if HOW == WATCHED {
                seen.quotes |= I::equal(block, quote);
                state.may_open = (separators | cr) >> 63;
                state.quote = 0;
            }
            if HOW == QUOTES {
                let quotes = I::equal(block, quote);
                seen.quotes |= quotes;
                let within = I::parity(quotes) ^ state.inside;
                let before = ((quotes | separators | cr) << 1) | state.may_open;
                seen.irregular |= quotes & within & !before;
                seen.doubled |= quotes & ((quotes << 1) | state.quote);
                state.may_open = (quotes | separators | cr) >> 63;
                state.quote = quotes >> 63;
                separators &= !within;
                seen.quoted_lines |= lines & within;
                lines &= !within;
                cr &= !within;
                // The last bit, to every bit.
                state.inside = (within.cast_signed() >> 63).cast_unsigned();
            }
            // A carriage return belongs before a line feed.
            seen.irregular |= ((cr << 1) | state.cr) & !lines;
            state.cr = cr >> 63;
            seen.crs |= cr;
            if COMMENTS {
                seen.irregular |= I::equal(block, comment) & ((lines << 1) | state.line);
                state.line = lines >> 63;
            }
            seen.lines += lines.count_ones() as usize;
            separators
        }
    }
}

/// Splits records into fields.
struct Fields {
    dialect: Dialect,
    special: Special,
    grammar: Grammar,
    /// Fields of a record.
    count: usize,
    /// The wanted ones.
    places: Vec<usize>,
    /// Separators that were found and not used up, and the one before the first record.
    separators: Vec<u32>,
    /// Up to where they were found, and where that was begun.
    found_to: usize,
    carry: Carry,
    marks: u32,
    /// Windows in which quotes are expected, since there were some of late.
    quoted: u32,
    /// Line ends among the separators.
    lines: usize,
    /// Where the next window must begin for the above to hold.
    expected: usize,
    /// Text to look at in one go: more where records are long.
    window_bytes: usize,
    scratch: Vec<Range<usize>>,
}

impl Fields {
    fn new(dialect: &Dialect, count: usize, places: Vec<usize>) -> Self {
        Self {
            special: Special {
                delimiter: dialect.delimiter,
                quote: dialect.quote,
                comment: dialect.comment,
            },
            grammar: Grammar::delimited(dialect),
            dialect: dialect.clone(),
            count,
            places,
            separators: Vec::new(),
            found_to: 0,
            carry: Carry::START,
            marks: 0,
            quoted: 0,
            lines: 0,
            expected: usize::MAX,
            window_bytes: WINDOW_BYTES,
            scratch: Vec::new(),
        }
    }

    /// Begins to look for separators at `at`, the start of a record.
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn begin(&mut self, at: usize) {
        self.separators.clear();
        self.separators.push((at as u32).wrapping_sub(1));
        self.found_to = at;
        self.carry = Carry::START;
        self.marks = 0;
        self.lines = 0;
    }

    /// Finds the separators up to `to`: what was seen, and how many are line ends.
    fn find(&mut self, block: &[u8], to: usize) -> (u32, usize) {
        let Self { found_to, special, carry, separators: out, quoted, .. } = self;
        let is_quoted = *quoted > 0 || carry.inside != 0;
        if special.quote.is_some() && special.comment.is_none() && !is_quoted {
            let before = (*carry, out.len());
            let found = separators_unquoted(block, *found_to, to, *special, carry, out);
            if found.0 & seen::QUOTE == 0 {
                return found;
            }
            *carry = before.0;
            out.truncate(before.1);
            *quoted = QUOTED;
        }
        *quoted = quoted.saturating_sub(1);
        separators(block, *found_to, to, *special, carry, out)
    }
}

/// In so many windows behind one with a quote, more of them are expected.
const QUOTED: u32 = 64;

impl Tokenizer for Fields {
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        _: &Context,
    ) -> Window {
        if self.dialect.escape.is_some() {
            return Window::Irregular;
        }
        if at == 0 || at != self.expected {
            self.begin(at);
        }
        self.expected = usize::MAX;
        let fields = self.count;
        // What was seen before concerns what is left of it.
        let (mut marks, mut new_marks) = (self.marks, None);
        // Look for separators until there is a whole record, or there can be none; not while
        // there are records left over, or what was seen of those would have to be kept apart.
        let mut target = at + self.window_bytes;
        let all_rows = loop {
            let rows = (self.separators.len() - 1) / fields;
            if rows > 0 {
                break rows;
            }
            if self.found_to < target && self.found_to < block.len() {
                // Whole blocks, unless it is the end.
                let to = (self.found_to + (target - self.found_to).next_multiple_of(BLOCK))
                    .min(block.len());
                let (seen, lines) = self.find(block, to);
                new_marks = Some(new_marks.unwrap_or(0) | seen);
                marks |= seen;
                self.lines += lines;
                self.found_to = to;
            }
            if marks & seen::IRREGULAR != 0 {
                return Window::Irregular;
            }
            if self.found_to >= block.len() && self.separators.len() <= fields {
                // The last record may lack its line end.
                let is_last = self.separators.len() == fields
                    && self.carry.inside == 0
                    && block.last().is_some_and(|byte| *byte != b'\n');
                if !is_last {
                    return Window::Irregular;
                }
                #[allow(clippy::cast_possible_truncation)] // As above.
                self.separators.push(block.len() as u32);
                self.lines += 1;
                break 1;
            }
            target += self.window_bytes;
        };
        let rows = all_rows.min(rows_max);
        // Records that are still long leave room for more of them in the next window.
        if rows < 16 && rows < rows_max && self.window_bytes < 8 * WINDOW_BYTES {
            self.window_bytes *= 2;
        }
        // Every record must end where its last field does, and no line end may be elsewhere. None may begin with NUL bytes.
        let is_end = |end: u32| match block.get(end as usize..) {
            None | Some([]) => true,
            Some([end, behind, ..]) => *end == b'\n' && *behind != 0,
            Some([end]) => *end == b'\n',
        };
        let mut last_fields = self.separators[fields..].iter().step_by(fields);
        let is_sound = block.get(at) != Some(&0) && last_fields.all(|end| is_end(*end));
        if self.lines != all_rows || !is_sound {
            return Window::Irregular;
        }
        let end = self.separators[rows * fields] as usize;
        if fields == 1 && blank(block, &self.separators[..=rows]) {
            return Window::Irregular;
        }
        if marks & seen::HIGH != 0 && simdutf8::basic::from_utf8(&block[at..end]).is_err() {
            return Window::Irregular;
        }
        // A field with a line end in it is seldom, and more seldom one whose lines look like records.
        if marks & seen::QUOTED_LINE != 0 && self.dialect.checks_quotes {
            let ends = self.separators.iter().step_by(fields).take(rows + 1);
            let mut start = at;
            for end in ends.skip(1) {
                let end = *end as usize;
                if self.swallowed_lines(&block[start..end]).is_some() {
                    return Window::Irregular;
                }
                start = end + 1;
            }
        }
        self.marks = new_marks.unwrap_or(marks);
        self.lines -= rows;
        // Without a quote, a byte that is not UTF-8 was looked for.
        let has_quotes = self.special.quote.is_some() && marks & seen::QUOTE != 0;
        let trim = marks & seen::CR != 0;
        let quote = self.special.quote.unwrap_or(0);
        let doubled = marks & seen::DOUBLED != 0;
        for (column, &place) in columns.iter_mut().zip(&self.places) {
            let Node::Leaf { spans, .. } = &mut column.node else { return Window::Irregular };
            spans.reserve(rows);
            let trim = trim && place + 1 == fields;
            let mut several = 0;
            if !has_quotes && !trim {
                let room = &mut spans.spare_capacity_mut()[..rows];
                several = crate::simd::spans(&self.separators, place, fields, room);
                // SAFETY: so many were written behind the last one.
                unsafe { spans.set_len(spans.len() + several) };
            }
            let starts = self.separators.get(several * fields + place..).unwrap_or_default();
            let ends = starts.get(1..).unwrap_or_default();
            let pairs = starts.iter().step_by(fields).zip(ends.iter().step_by(fields));
            let pairs = pairs.take(rows - several);
            if !has_quotes && !trim {
                spans.extend(pairs.map(|(start, end)| Span::plain(start.wrapping_add(1), *end)));
            } else {
                spans.extend(pairs.map(|(start, end)| {
                    let (start, mut end) = (start.wrapping_add(1), *end);
                    if trim && end > start && block[end as usize - 1] == b'\r' {
                        end -= 1;
                    }
                    quoted(block, start, end, quote, has_quotes, doubled)
                }));
            }
        }
        // What was found behind the last record is for the next window.
        let next = (end + 1).min(block.len());
        self.separators.drain(..rows * fields);
        self.expected = next;
        Window::Rows { end: next, rows }
    }

    fn next(&self, block: &[u8], at: usize) -> Range<usize> {
        crate::cut::next_record(self.grammar, block, at)
    }

    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        _: &Context,
    ) -> Result<(), Fault> {
        self.expected = usize::MAX;
        let mut fields = std::mem::take(&mut self.scratch);
        let closed = split(self.grammar, &block[record.clone()], &mut fields);
        let result = self.check(&block[record.clone()], &fields, closed, columns);
        if result.is_ok() {
            let quote = self.special.quote.unwrap_or(0);
            for (column, &place) in columns.iter_mut().zip(&self.places) {
                if let Node::Leaf { spans, .. } = &mut column.node {
                    let field = &fields[place];
                    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
                    let (start, end) =
                        ((record.start + field.start) as u32, (record.start + field.end) as u32);
                    let has_quotes = self.special.quote.is_some();
                    let is_quoted =
                        has_quotes && block.get(field.start + record.start) == Some(&quote);
                    spans.push(if is_quoted && self.dialect.escape.is_some() && end > start {
                        Span::escaped(start, end)
                    } else {
                        quoted(block, start, end, quote, has_quotes, true)
                    });
                }
            }
        }
        self.scratch = fields;
        result
    }
}

impl Fields {
    fn check(
        &self,
        record: &[u8],
        fields: &[Range<usize>],
        closed: bool,
        columns: &[Column],
    ) -> Result<(), Fault> {
        if !closed {
            return Err(Fault::new(record.len(), FaultKind::Unclosed));
        }
        if fields.len() != self.count {
            let kind = FaultKind::FieldCount { expected: self.count, found: fields.len() };
            return Err(Fault::new(0, kind));
        }
        if let Some(fault) = self.quoting_fault(record, fields) {
            return Err(fault);
        }
        if let Err(error) = std::str::from_utf8(record) {
            let at = error.valid_up_to();
            let index = fields.iter().position(|field| field.end > at).unwrap_or(0);
            let column = self.places.iter().position(|place| *place == index);
            let mut fault = Fault::new(at, FaultKind::Utf8 { field: Some(index + 1) });
            fault.column = column.map(|column| columns[column].field.name().clone());
            return Err(fault);
        }
        Ok(())
    }
}

impl Fields {
    /// The fault of a whole record whose quotes seem to be written otherwise than the dialect says, if nobody stated it.
    fn quoting_fault(&self, record: &[u8], fields: &[Range<usize>]) -> Option<Fault> {
        let quote = self.dialect.quote.filter(|_| self.dialect.checks_quotes)?;
        let start_of_field = |wanted: &dyn Fn(&[u8]) -> bool| {
            let starts_quoted = |field: &&Range<usize>| record.get(field.start) == Some(&quote);
            let mut quoted = fields.iter().filter(starts_quoted);
            quoted.find(|field| wanted(&record[(*field).clone()])).map(|field| field.start)
        };
        if let Some(lines) = self.swallowed_lines(record) {
            let at = start_of_field(&|field| memchr::memchr(b'\n', field).is_some()).unwrap_or(0);
            let kind = FaultKind::SwallowedLines { lines, fields: self.count };
            return Some(Fault::new(at, kind));
        }
        if self.dialect.escape.is_some() || memchr::memchr(b'\\', record).is_none() {
            return None;
        }
        let at = start_of_field(&|field| is_torn_behind_backslash(self.grammar, quote, field))?;
        Some(Fault::new(at, FaultKind::EscapedQuote))
    }

    /// Number of lines of a record that has line ends within quotes and looks like several records without quoting:
    /// every line has as many fields as a record should have. None for any other record.
    ///
    /// A field of prose can look so by chance where commas delimit (`"12 Main St⏎Springfield, IL, 62701"` as the
    /// third field). Therefore text must follow a closing quote, which no writer of quoted fields leaves, or the
    /// delimiter must be a tab, with three fields or more.
    fn swallowed_lines(&self, record: &[u8]) -> Option<usize> {
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        memchr::memchr(b'\n', record).filter(|_| self.count > 1)?;
        let mut lines = 0;
        for line in record.split(|byte| *byte == b'\n') {
            if memchr::memchr_iter(self.dialect.delimiter, line).count() + 1 != self.count {
                return None;
            }
            lines += 1;
        }
        let is_unlikely_in_text = self.dialect.delimiter == b'\t' && self.count > 2;
        (is_unlikely_in_text || has_torn_field(self.grammar, record)).then_some(lines)
    }
}

/// Returns whether something else than a delimiter or a line end follows a closing quote.
fn has_torn_field(grammar: Grammar, record: &[u8]) -> bool {
    let mut state = State::RecordStart;
    record.iter().any(|&byte| {
        let after = grammar.step(state, byte);
        let before = std::mem::replace(&mut state, after);
        (before, after) == (State::QuoteInQuoted, State::Field)
    })
}

/// Returns whether a field's closing quote stands behind an odd number of backslashes, and text with another
/// quote in it follows.
fn is_torn_behind_backslash(grammar: Grammar, quote: u8, field: &[u8]) -> bool {
    let mut state = State::FieldStart;
    for (at, &byte) in field.iter().enumerate() {
        let after = grammar.step(state, byte);
        if (state, after) == (State::QuoteInQuoted, State::Field) {
            let before = field.get(..at - 1).unwrap_or_default();
            let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            return backslashes % 2 == 1 && memchr::memchr(quote, &field[at..]).is_some();
        }
        state = after;
    }
    false
}

/// Whether a record of one field is a blank line.
fn blank(block: &[u8], ends: &[u32]) -> bool {
    ends.windows(2).any(|pair| {
        let (start, end) = (pair[0].wrapping_add(1), pair[1]);
        end == start || (end == start + 1 && block[start as usize] == b'\r')
    })
}

/// The span of a field that may be quoted.
#[inline(always)]
fn quoted(block: &[u8], start: u32, end: u32, quote: u8, has_quotes: bool, doubled: bool) -> Span {
    let field = &block[start as usize..end as usize];
    if !has_quotes || field.first() != Some(&quote) {
        return Span::plain(start, end);
    }
    let [_, inner @ .., last] = field else { return Span::escaped(start, end) };
    // Nothing in quotes is an empty text, and nothing without them is null.
    if *last != quote || inner.is_empty() || doubled && memchr::memchr(quote, inner).is_some() {
        return Span::escaped(start, end);
    }
    Span::plain(start + 1, end - 1)
}

/// The fields of one record, quotes included and its line end not, and whether every quote in
/// it is closed.
pub(crate) fn split(grammar: Grammar, record: &[u8], fields: &mut Vec<Range<usize>>) -> bool {
    fields.clear();
    let mut state = State::RecordStart;
    let mut start = 0;
    for (at, &byte) in record.iter().enumerate() {
        let after = grammar.step(state, byte);
        match after {
            State::FieldStart => {
                fields.push(start..at);
                start = at + 1;
            }
            State::RecordStart => {
                fields.push(start..at);
                return true;
            }
            _ => {}
        }
        state = after;
    }
    fields.push(start..record.len());
    // At the end of the input a record may lack its line end, but not its closing quote, unless
    // a whole record was cut from the input, which the caller knows by the line end.
    !matches!(state, State::Quoted | State::Escaped)
}

/// Appends the value of a field, as it is written with quotes and escapes.
pub(crate) fn unescape(raw: &[u8], quote: u8, escape: Option<u8>, out: &mut Vec<u8>) -> bool {
    let grammar = Grammar::quoting(quote, escape);
    let mut state = State::FieldStart;
    for &byte in raw {
        let after = grammar.step(state, byte);
        let is_value = match (state, after) {
            // An opening quote, one that may close, and an escape.
            (State::FieldStart, State::Quoted)
            | (State::Quoted, State::QuoteInQuoted | State::Escaped) => false,
            _ => true,
        };
        if is_value {
            out.push(byte);
        }
        // Inside a field, delimiters and line ends were settled before.
        state = if matches!(after, State::FieldStart | State::RecordStart) {
            State::Field
        } else {
            after
        };
    }
    true
}

/// Reads a record's fields from the front of `block`, unquoted: the fields and how many bytes
/// they took, blank lines and comments before them included; none if there is no record.
///
/// Bytes that are not UTF-8 are replaced. Without a header, records that begin with NUL bytes are passed over if another one
/// follows: they are malformed, and show no number of fields.
#[must_use]
pub fn first_record(dialect: &Dialect, block: &[u8]) -> Option<(Vec<String>, usize)> {
    let grammar = Grammar::delimited(dialect);
    let first = crate::cut::next_record(grammar, block, 0);
    if first.is_empty() {
        return None;
    }
    let mut record = first.clone();
    while !dialect.header && block.get(record.start) == Some(&0) {
        record = crate::cut::next_record(grammar, block, record.end);
        if record.is_empty() {
            record = first.clone();
            break;
        }
    }
    let mut names = Vec::new();
    each_field(dialect, &block[record.clone()], |field| {
        names.push(String::from_utf8_lossy(field).into_owned());
    });
    Some((names, record.end))
}

/// Where the first bytes of the first record stand that are not UTF-8, if there are any.
#[must_use]
pub fn first_fault(dialect: &Dialect, block: &[u8]) -> Option<usize> {
    let record = crate::cut::next_record(Grammar::delimited(dialect), block, 0);
    let start = record.start;
    std::str::from_utf8(&block[record]).err().map(|error| start + error.valid_up_to())
}

/// The place of the first record and the number of NUL bytes that it begins with, if it does.
#[must_use]
pub fn first_nuls(dialect: &Dialect, block: &[u8]) -> Option<(usize, usize)> {
    let record = crate::cut::next_record(Grammar::delimited(dialect), block, 0);
    let nuls = block[record.clone()].iter().take_while(|byte| **byte == 0).count();
    (nuls > 0).then_some((record.start, nuls))
}

/// Calls `take` with each field of a record, unquoted.
pub(crate) fn each_field(dialect: &Dialect, record: &[u8], mut take: impl FnMut(&[u8])) {
    let mut fields = Vec::new();
    split(Grammar::delimited(dialect), record, &mut fields);
    let mut value = Vec::new();
    for field in fields {
        let raw = &record[field];
        match dialect.quote {
            Some(quote) if raw.first() == Some(&quote) => {
                value.clear();
                unescape(raw, quote, dialect.escape, &mut value);
                take(&value);
            }
            _ => take(raw),
        }
    }
}

mod sniff;
mod titles;

pub use sniff::{Given, Sniffed, Suspect, sniff};
pub use titles::header_below_titles;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
