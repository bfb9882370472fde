//! The decoder of delimited text: CSV and TSV.
//!
//! One pass finds every separator (delimiter or line end) outside quotes, 64 bytes
//! at a time, and writes its position. If records have `n` fields, field `k` of record `r`
//! then ends at separator `r * n + k`. The tokenizer looks at a record only where a wanted column is.
//! All records are whole if every `n`-th separator is a line end and there are as many
//! line ends as records. The tokenizer never reads an unwanted field; the same pass checks that it is UTF-8
//! and that its quotes are paired.
//!
//! Irregular text (another number of fields, a blank line, a literal quote, a lone `\r`,
//! a comment, an escape) makes the window irregular. The automaton of
//! [`record_boundaries`](crate::record_boundaries) then splits its records one by one.
//!
//! ```text
//!   text        a , b c , "d , e" \n f , …
//!   separators    ^     ^         ^    ^          by mask: (delimiter | line end) & !inside
//!   inside            00 11111110 0               parity of quotes, carried from block to block
//! ```

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::FieldRef;

use crate::array_builders::DecodingContext;
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, WINDOW_BYTES, decodes};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::csv_dialect::CsvDialect;
use crate::predicate_filter::SpanFilter;
use crate::record_boundaries::{CutterState, RecordGrammar};
use crate::separator_scan::SeparatorScan;
use crate::simd::{BLOCK_BYTES, Isa, dispatch};
use crate::text_fault::{TextFault, TextFaultKind};
use crate::value_parsing::NullStrings;
use crate::value_span::ValueSpan;

/// A decoder of delimited text.
///
/// [`value_parsing`](crate::value_parsing) defines how values are read. An empty field is null, and so are
/// the dialect's null strings. An empty field in quotes is an empty text, and null in a column that is
/// not text.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_schema::{DataType, Field};
/// use tidemill_text::{BlockDecoder, CsvDialect, DecodedBlocks, Options, csv::CsvDecoder};
///
/// let wanted = vec![(2, Arc::new(Field::new("n", DataType::Int64, true)))];
/// let mut decoder = CsvDecoder::new(&CsvDialect::default(), 3, wanted, Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// decoder.decode(b"a,\"b,\n\",1\nc,d,oops\ne,f,3\n", &mut out);
/// assert_eq!(out.batches[0].num_rows(), 2);
/// assert_eq!(out.rejected[0].fault.to_string(), "expected a BIGINT, found `oops`");
/// ```
pub struct CsvDecoder {
    decoder: FormatDecoder<CsvTokenizer>,
}

impl CsvDecoder {
    /// Returns a decoder of `columns`, each a field's position in records of `fields` fields and the column
    /// that it becomes. The blocks must not contain the header, if there is one.
    ///
    /// # Errors
    /// The first column of a type that text cannot be read as.
    ///
    /// # Panics
    /// If a column's position is not below `fields`, or a special byte of the dialect is not
    /// ASCII, 0 or a line end.
    pub fn new(
        dialect: &CsvDialect,
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
        let context = DecodingContext {
            nulls: NullStrings::new(&dialect.nulls, true),
            unescape: Arc::new(move |raw, out| unescape_field(raw, quote, escape, out)),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: true,
        };
        let (places, wanted): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let filter = SpanFilter::new(options.predicates, &wanted);
        let tokenizer = CsvTokenizer::new(dialect, fields, places);
        let canonical = &options.inferred_columns;
        let rows = options.batch_rows;
        let decoder = FormatDecoder::with_canonical_columns(
            tokenizer, &wanted, canonical, context, filter, rows,
        )?;
        Ok(Self { decoder })
    }
}

decodes!(CsvDecoder);

/// Flags of a stretch of text.
mod mark_bits {
    /// A quote.
    pub(super) const QUOTE: u32 = 1;
    /// A quote directly after another one.
    pub(super) const DOUBLED_QUOTE: u32 = 2;
    /// A carriage return before a line feed.
    pub(super) const CARRIAGE_RETURN: u32 = 4;
    /// A byte that is not ASCII.
    pub(super) const NON_ASCII: u32 = 8;
    /// Something irregular: a quote in an unquoted field, a lone carriage return, a comment.
    pub(super) const IRREGULAR: u32 = 16;
    /// A line feed within quotes.
    pub(super) const QUOTED_LINE_END: u32 = 32;
}

/// The carry from one block of 64 bytes to the next.
#[derive(Debug, Clone, Copy)]
struct CsvScanCarry {
    /// All bits set inside quotes; else zero.
    in_quotes: u64,
    /// 1 if a quote may come first: after a separator or a quote.
    quote_may_open: u64,
    /// 1 if the last byte was a quote.
    quote_last: u64,
    /// 1 if the last byte was a carriage return outside quotes.
    cr_last: u64,
    /// 1 if the last byte was a line feed.
    line_end_last: u64,
}

impl CsvScanCarry {
    /// The carry at the start of a record.
    const RECORD_START: CsvScanCarry = CsvScanCarry {
        in_quotes: 0,
        quote_may_open: 1,
        quote_last: 0,
        cr_last: 0,
        line_end_last: 1,
    };
}

/// The special bytes of the scan.
#[derive(Debug, Clone, Copy)]
struct SpecialBytes {
    delimiter: u8,
    quote: Option<u8>,
    comment: Option<u8>,
}

dispatch! {
    /// Appends the positions of the separators in `from..to` of the text to `out`;
    /// returns the flags of the stretch and the number of line ends among the separators.
    fn find_separators(
        text: &[u8], from: usize, to: usize, special: SpecialBytes, carry: &mut CsvScanCarry, out: &mut Vec<u32>
    ) -> (u32, usize) => find_simd
}

dispatch! {
    /// Does the same for text without quotes, of a dialect without comments. If the stretch has a quote,
    /// only that flag is right.
    fn find_separators_without_quotes(
        text: &[u8], from: usize, to: usize, special: SpecialBytes, carry: &mut CsvScanCarry, out: &mut Vec<u32>
    ) -> (u32, usize) => find_without_quotes_simd
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn find_without_quotes_simd<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    special: SpecialBytes,
    carry: &mut CsvScanCarry,
    out: &mut Vec<u32>,
) -> (u32, usize) {
    let special = [special.delimiter, special.quote.unwrap_or(0xff), 0];
    // SAFETY: as the caller promises.
    unsafe { find_in_mode::<I, QUOTES_WATCHED, false>(text, from, to, special, carry, out) }
}

/// Mode of the scan in which quotes are ordinary bytes.
const QUOTES_AS_TEXT: u8 = 0;
/// Mode of the scan that expects no quotes and reports one.
const QUOTES_WATCHED: u8 = 1;
/// Mode of the scan in which quotes enclose fields.
const QUOTES_PARSED: u8 = 2;

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn find_simd<I: Isa>(
    text: &[u8],
    from: usize,
    to: usize,
    special: SpecialBytes,
    carry: &mut CsvScanCarry,
    out: &mut Vec<u32>,
) -> (u32, usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match special {
            SpecialBytes { quote: Some(quote), comment: None, delimiter } => {
                find_in_mode::<I, QUOTES_PARSED, false>(
                    text,
                    from,
                    to,
                    [delimiter, quote, 0],
                    carry,
                    out,
                )
            }
            SpecialBytes { quote: None, comment: None, delimiter } => {
                find_in_mode::<I, QUOTES_AS_TEXT, false>(
                    text,
                    from,
                    to,
                    [delimiter, 0, 0],
                    carry,
                    out,
                )
            }
            SpecialBytes { quote, comment: Some(comment), delimiter } => {
                // A byte that UTF-8 does not have stands for no quote.
                let quote = quote.unwrap_or(0xff);
                find_in_mode::<I, QUOTES_PARSED, true>(
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
/// As for `find_simd`.
#[inline(always)]
unsafe fn find_in_mode<I: Isa, const HOW: u8, const COMMENTS: bool>(
    text: &[u8],
    from: usize,
    to: usize,
    special: [u8; 3],
    carry: &mut CsvScanCarry,
    out: &mut Vec<u32>,
) -> (u32, usize) {
    let mut look = CsvSeparatorScan::<HOW, COMMENTS> {
        special,
        carry: *carry,
        tally: CsvScanTally::default(),
    };
    // SAFETY: as the caller promises.
    unsafe { crate::separator_scan::scan_separators::<I>(text, from, to, &mut look, out) };
    *carry = look.carry;
    let mut marks = 0;
    for (found, mark) in [
        (look.tally.quote_bits, mark_bits::QUOTE),
        (look.tally.doubled_quote_bits, mark_bits::DOUBLED_QUOTE),
        (look.tally.cr_bits, mark_bits::CARRIAGE_RETURN),
        (look.tally.non_ascii_bits, mark_bits::NON_ASCII),
        (look.tally.irregular_bits, mark_bits::IRREGULAR),
        (look.tally.quoted_line_end_bits, mark_bits::QUOTED_LINE_END),
    ] {
        if found != 0 {
            marks |= mark;
        }
    }
    (marks, look.tally.line_count)
}

/// Features of the text scanned so far: nonzero bits for each feature, and the number of line ends.
#[derive(Debug, Clone, Copy, Default)]
struct CsvScanTally {
    quote_bits: u64,
    doubled_quote_bits: u64,
    cr_bits: u64,
    non_ascii_bits: u64,
    irregular_bits: u64,
    quoted_line_end_bits: u64,
    line_count: usize,
}

/// The scan for separators of delimited text.
#[derive(Clone, Copy)]
struct CsvSeparatorScan<const HOW: u8, const COMMENTS: bool> {
    /// Delimiter, quote and comment byte.
    special: [u8; 3],
    carry: CsvScanCarry,
    tally: CsvScanTally,
}

impl<const HOW: u8, const COMMENTS: bool> SeparatorScan for CsvSeparatorScan<HOW, COMMENTS> {
    #[inline(always)]
    unsafe fn find_separators<I: Isa>(&mut self, block: I::Block, _: u64) -> u64 {
        let [delimiter, quote, comment] = self.special;
        let (state, seen) = (&mut self.carry, &mut self.tally);
        // SAFETY: as the caller promises.
        unsafe {
            let mut lines = I::equal(block, b'\n');
            let mut separators = I::equal(block, delimiter) | lines;
            let mut cr = I::equal(block, b'\r');
            seen.non_ascii_bits |= I::high(block);
            if HOW == QUOTES_WATCHED {
                seen.quote_bits |= I::equal(block, quote);
                state.quote_may_open = (separators | cr) >> 63;
                state.quote_last = 0;
            }
            if HOW == QUOTES_PARSED {
                let quotes = I::equal(block, quote);
                seen.quote_bits |= quotes;
                let within = I::parity(quotes) ^ state.in_quotes;
                let before = ((quotes | separators | cr) << 1) | state.quote_may_open;
                seen.irregular_bits |= quotes & within & !before;
                seen.doubled_quote_bits |= quotes & ((quotes << 1) | state.quote_last);
                state.quote_may_open = (quotes | separators | cr) >> 63;
                state.quote_last = quotes >> 63;
                separators &= !within;
                seen.quoted_line_end_bits |= lines & within;
                lines &= !within;
                cr &= !within;
                // Copies the last bit to every bit.
                state.in_quotes = (within.cast_signed() >> 63).cast_unsigned();
            }
            // A carriage return belongs before a line feed.
            seen.irregular_bits |= ((cr << 1) | state.cr_last) & !lines;
            state.cr_last = cr >> 63;
            seen.cr_bits |= cr;
            if COMMENTS {
                seen.irregular_bits |=
                    I::equal(block, comment) & ((lines << 1) | state.line_end_last);
                state.line_end_last = lines >> 63;
            }
            seen.line_count += lines.count_ones() as usize;
            separators
        }
    }
}

/// The tokenizer of delimited text.
struct CsvTokenizer {
    dialect: CsvDialect,
    special: SpecialBytes,
    grammar: RecordGrammar,
    /// Number of fields in a record.
    field_count: usize,
    /// Positions of the wanted fields.
    wanted_fields: Vec<usize>,
    /// Separators that were found and not used yet, and the one before the first record.
    separators: Vec<u32>,
    /// End of the scanned text.
    scanned_to: usize,
    carry: CsvScanCarry,
    marks: u32,
    /// Number of windows in which the scan expects quotes, because recent windows had some.
    quoted_windows_left: u32,
    /// Number of line ends among the separators.
    line_end_count: usize,
    /// Start that the next window must have for the fields above to be valid.
    next_window_start: usize,
    /// Number of bytes scanned in one pass: more where records are long.
    window_bytes: usize,
    field_ranges: Vec<Range<usize>>,
}

impl CsvTokenizer {
    fn new(dialect: &CsvDialect, count: usize, places: Vec<usize>) -> Self {
        Self {
            special: SpecialBytes {
                delimiter: dialect.delimiter,
                quote: dialect.quote,
                comment: dialect.comment,
            },
            grammar: RecordGrammar::from_dialect(dialect),
            dialect: dialect.clone(),
            field_count: count,
            wanted_fields: places,
            separators: Vec::new(),
            scanned_to: 0,
            carry: CsvScanCarry::RECORD_START,
            marks: 0,
            quoted_windows_left: 0,
            line_end_count: 0,
            next_window_start: usize::MAX,
            window_bytes: WINDOW_BYTES,
            field_ranges: Vec::new(),
        }
    }

    /// Begins a scan at `at`, the start of a record.
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn start_scan(&mut self, at: usize) {
        self.separators.clear();
        self.separators.push((at as u32).wrapping_sub(1));
        self.scanned_to = at;
        self.carry = CsvScanCarry::RECORD_START;
        self.marks = 0;
        self.line_end_count = 0;
    }

    /// Finds the separators up to `to`; returns the flags and the number of line ends among them.
    fn scan_to(&mut self, block: &[u8], to: usize) -> (u32, usize) {
        let Self {
            scanned_to: found_to,
            special,
            carry,
            separators: out,
            quoted_windows_left: quoted,
            ..
        } = self;
        let is_quoted = *quoted > 0 || carry.in_quotes != 0;
        if special.quote.is_some() && special.comment.is_none() && !is_quoted {
            let before = (*carry, out.len());
            let found = find_separators_without_quotes(block, *found_to, to, *special, carry, out);
            if found.0 & mark_bits::QUOTE == 0 {
                return found;
            }
            *carry = before.0;
            out.truncate(before.1);
            *quoted = QUOTED_WINDOWS_EXPECTED;
        }
        *quoted = quoted.saturating_sub(1);
        find_separators(block, *found_to, to, *special, carry, out)
    }
}

/// Number of windows after one with a quote in which the scan expects more of them.
const QUOTED_WINDOWS_EXPECTED: u32 = 64;

impl Tokenizer for CsvTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> TokenizedWindow {
        if self.dialect.escape.is_some() {
            return TokenizedWindow::IrregularRows;
        }
        if at == 0 || at != self.next_window_start {
            self.start_scan(at);
        }
        self.next_window_start = usize::MAX;
        let fields = self.field_count;
        // The earlier flags apply to the rest of the scanned text.
        let (mut marks, mut new_marks) = (self.marks, None);
        // Scan until there is a whole record, or there can be none. Do not scan while
        // records are left over, because their flags would then have to be kept separately.
        let mut target = at + self.window_bytes;
        let all_rows = loop {
            let rows = (self.separators.len() - 1) / fields;
            if rows > 0 {
                break rows;
            }
            if self.scanned_to < target && self.scanned_to < block.len() {
                // Whole blocks, except at the end.
                let to = (self.scanned_to
                    + (target - self.scanned_to).next_multiple_of(BLOCK_BYTES))
                .min(block.len());
                let (seen, lines) = self.scan_to(block, to);
                new_marks = Some(new_marks.unwrap_or(0) | seen);
                marks |= seen;
                self.line_end_count += lines;
                self.scanned_to = to;
            }
            if marks & mark_bits::IRREGULAR != 0 {
                return TokenizedWindow::IrregularRows;
            }
            if self.scanned_to >= block.len() && self.separators.len() <= fields {
                // The last record may lack its line end.
                let is_last = self.separators.len() == fields
                    && self.carry.in_quotes == 0
                    && block.last().is_some_and(|byte| *byte != b'\n');
                if !is_last {
                    return TokenizedWindow::IrregularRows;
                }
                #[allow(clippy::cast_possible_truncation)] // As above.
                self.separators.push(block.len() as u32);
                self.line_end_count += 1;
                break 1;
            }
            target += self.window_bytes;
        };
        let rows = all_rows.min(rows_max);
        // Long records leave room for more of them in the next window.
        if rows < 16 && rows < rows_max && self.window_bytes < 8 * WINDOW_BYTES {
            self.window_bytes *= 2;
        }
        // Every record must end where its last field does, and no line end may stand elsewhere. No record may
        // begin with NUL bytes.
        let is_end = |end: u32| match block.get(end as usize..) {
            None | Some([]) => true,
            Some([end, behind, ..]) => *end == b'\n' && *behind != 0,
            Some([end]) => *end == b'\n',
        };
        let mut last_fields = self.separators[fields..].iter().step_by(fields);
        let is_sound = block.get(at) != Some(&0) && last_fields.all(|end| is_end(*end));
        if self.line_end_count != all_rows || !is_sound {
            return TokenizedWindow::IrregularRows;
        }
        let end = self.separators[rows * fields] as usize;
        if fields == 1 && has_blank_record(block, &self.separators[..=rows]) {
            return TokenizedWindow::IrregularRows;
        }
        if marks & mark_bits::NON_ASCII != 0 && simdutf8::basic::from_utf8(&block[at..end]).is_err()
        {
            return TokenizedWindow::IrregularRows;
        }
        // A field with a line end is rare, and one whose lines look like records is rarer.
        if marks & mark_bits::QUOTED_LINE_END != 0 && self.dialect.checks_quotes {
            let ends = self.separators.iter().step_by(fields).take(rows + 1);
            let mut start = at;
            for end in ends.skip(1) {
                let end = *end as usize;
                if self.count_quoted_records(&block[start..end]).is_some() {
                    return TokenizedWindow::IrregularRows;
                }
                start = end + 1;
            }
        }
        self.marks = new_marks.unwrap_or(marks);
        self.line_end_count -= rows;
        // Without a quote byte, the scan looked for a byte that UTF-8 does not have.
        let has_quotes = self.special.quote.is_some() && marks & mark_bits::QUOTE != 0;
        let trim = marks & mark_bits::CARRIAGE_RETURN != 0;
        let quote = self.special.quote.unwrap_or(0);
        let doubled = marks & mark_bits::DOUBLED_QUOTE != 0;
        for (column, &place) in columns.iter_mut().zip(&self.wanted_fields) {
            let ColumnNode::Leaf { spans, .. } = &mut column.node else {
                return TokenizedWindow::IrregularRows;
            };
            spans.reserve(rows);
            let trim = trim && place + 1 == fields;
            let mut several = 0;
            if !has_quotes && !trim {
                let room = &mut spans.spare_capacity_mut()[..rows];
                several = crate::simd::spans_between_entries(&self.separators, place, fields, room);
                // SAFETY: `spans_between_entries` wrote this many after the last one.
                unsafe { spans.set_len(spans.len() + several) };
            }
            let starts = self.separators.get(several * fields + place..).unwrap_or_default();
            let ends = starts.get(1..).unwrap_or_default();
            let pairs = starts.iter().step_by(fields).zip(ends.iter().step_by(fields));
            let pairs = pairs.take(rows - several);
            if !has_quotes && !trim {
                spans.extend(
                    pairs.map(|(start, end)| ValueSpan::new_plain(start.wrapping_add(1), *end)),
                );
            } else {
                spans.extend(pairs.map(|(start, end)| {
                    let (start, mut end) = (start.wrapping_add(1), *end);
                    if trim && end > start && block[end as usize - 1] == b'\r' {
                        end -= 1;
                    }
                    field_span(block, start, end, quote, has_quotes, doubled)
                }));
            }
        }
        // The separators after the last record are for the next window.
        let next = (end + 1).min(block.len());
        self.separators.drain(..rows * fields);
        self.next_window_start = next;
        TokenizedWindow::RegularRows { end: next, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        crate::record_boundaries::next_record_range(self.grammar, block, at)
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> Result<(), TextFault> {
        self.next_window_start = usize::MAX;
        let mut fields = std::mem::take(&mut self.field_ranges);
        let closed = split_record(self.grammar, &block[record.clone()], &mut fields);
        let result = self.check_record(&block[record.clone()], &fields, closed, columns);
        if result.is_ok() {
            let quote = self.special.quote.unwrap_or(0);
            for (column, &place) in columns.iter_mut().zip(&self.wanted_fields) {
                if let ColumnNode::Leaf { spans, .. } = &mut column.node {
                    let field = &fields[place];
                    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
                    let (start, end) =
                        ((record.start + field.start) as u32, (record.start + field.end) as u32);
                    let has_quotes = self.special.quote.is_some();
                    let is_quoted =
                        has_quotes && block.get(field.start + record.start) == Some(&quote);
                    spans.push(if is_quoted && self.dialect.escape.is_some() && end > start {
                        ValueSpan::new_escaped(start, end)
                    } else {
                        field_span(block, start, end, quote, has_quotes, true)
                    });
                }
            }
        }
        self.field_ranges = fields;
        result
    }
}

impl CsvTokenizer {
    fn check_record(
        &self,
        record: &[u8],
        fields: &[Range<usize>],
        closed: bool,
        columns: &[ColumnDecoder],
    ) -> Result<(), TextFault> {
        if !closed {
            return Err(TextFault::new(record.len(), TextFaultKind::UnclosedQuote));
        }
        if fields.len() != self.field_count {
            let kind =
                TextFaultKind::FieldCount { expected: self.field_count, found: fields.len() };
            return Err(TextFault::new(0, kind));
        }
        if let Some(fault) = self.quoting_fault(record, fields) {
            return Err(fault);
        }
        if let Err(error) = std::str::from_utf8(record) {
            let at = error.valid_up_to();
            let index = fields.iter().position(|field| field.end > at).unwrap_or(0);
            let column = self.wanted_fields.iter().position(|place| *place == index);
            let mut fault =
                TextFault::new(at, TextFaultKind::InvalidUtf8 { field: Some(index + 1) });
            fault.column = column.map(|column| columns[column].field.name().clone());
            return Err(fault);
        }
        Ok(())
    }
}

impl CsvTokenizer {
    /// Returns the fault of a whole record whose quotes seem to contradict the dialect, if nobody stated the
    /// dialect.
    fn quoting_fault(&self, record: &[u8], fields: &[Range<usize>]) -> Option<TextFault> {
        let quote = self.dialect.quote.filter(|_| self.dialect.checks_quotes)?;
        let start_of_field = |wanted: &dyn Fn(&[u8]) -> bool| {
            let starts_quoted = |field: &&Range<usize>| record.get(field.start) == Some(&quote);
            let mut quoted = fields.iter().filter(starts_quoted);
            quoted.find(|field| wanted(&record[(*field).clone()])).map(|field| field.start)
        };
        if let Some(lines) = self.count_quoted_records(record) {
            let at = start_of_field(&|field| memchr::memchr(b'\n', field).is_some()).unwrap_or(0);
            let kind = TextFaultKind::QuotedRecords { lines, fields: self.field_count };
            return Some(TextFault::new(at, kind));
        }
        if self.dialect.escape.is_some() || memchr::memchr(b'\\', record).is_none() {
            return None;
        }
        let at = start_of_field(&|field| is_closed_after_backslash(self.grammar, quote, field))?;
        Some(TextFault::new(at, TextFaultKind::ClosedAfterBackslash))
    }

    /// Returns the number of lines of a record that has line ends within quotes and would be several records
    /// without quoting: every line has as many fields as a record should have. Returns `None` for any other
    /// record.
    ///
    /// A field of prose can look so by chance where commas delimit (`"12 Main St⏎Springfield, IL, 62701"` as
    /// the third field). The function therefore also requires text after a closing quote, which no writer of
    /// quoted fields leaves, or a tab as delimiter, with three fields or more.
    fn count_quoted_records(&self, record: &[u8]) -> Option<usize> {
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        memchr::memchr(b'\n', record).filter(|_| self.field_count > 1)?;
        let mut lines = 0;
        for line in record.split(|byte| *byte == b'\n') {
            if memchr::memchr_iter(self.dialect.delimiter, line).count() + 1 != self.field_count {
                return None;
            }
            lines += 1;
        }
        let is_unlikely_in_text = self.dialect.delimiter == b'\t' && self.field_count > 2;
        (is_unlikely_in_text || has_text_after_closing_quote(self.grammar, record)).then_some(lines)
    }
}

/// Returns whether a closing quote is followed by something other than a delimiter or a line end.
fn has_text_after_closing_quote(grammar: RecordGrammar, record: &[u8]) -> bool {
    let mut state = CutterState::RecordStart;
    record.iter().any(|&byte| {
        let after = grammar.next_state(state, byte);
        let before = std::mem::replace(&mut state, after);
        (before, after) == (CutterState::QuoteInQuoted, CutterState::Field)
    })
}

/// Returns whether a field's closing quote follows an odd number of backslashes, and is followed by text with
/// another quote in it.
fn is_closed_after_backslash(grammar: RecordGrammar, quote: u8, field: &[u8]) -> bool {
    let mut state = CutterState::FieldStart;
    for (at, &byte) in field.iter().enumerate() {
        let after = grammar.next_state(state, byte);
        if (state, after) == (CutterState::QuoteInQuoted, CutterState::Field) {
            let before = field.get(..at - 1).unwrap_or_default();
            let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            return backslashes % 2 == 1 && memchr::memchr(quote, &field[at..]).is_some();
        }
        state = after;
    }
    false
}

/// Returns whether a record of one field is a blank line.
fn has_blank_record(block: &[u8], ends: &[u32]) -> bool {
    ends.windows(2).any(|pair| {
        let (start, end) = (pair[0].wrapping_add(1), pair[1]);
        end == start || (end == start + 1 && block[start as usize] == b'\r')
    })
}

/// Returns the span of a field that may be quoted.
#[inline(always)]
fn field_span(
    block: &[u8],
    start: u32,
    end: u32,
    quote: u8,
    has_quotes: bool,
    doubled: bool,
) -> ValueSpan {
    let field = &block[start as usize..end as usize];
    if !has_quotes || field.first() != Some(&quote) {
        return ValueSpan::new_plain(start, end);
    }
    let [_, inner @ .., last] = field else { return ValueSpan::new_escaped(start, end) };
    // An empty field in quotes is an empty text, and one without quotes is null.
    if *last != quote || inner.is_empty() || doubled && memchr::memchr(quote, inner).is_some() {
        return ValueSpan::new_escaped(start, end);
    }
    ValueSpan::new_plain(start + 1, end - 1)
}

/// Splits one record into its fields, quotes included and its line end not. Returns whether every quote in
/// it is closed.
pub(crate) fn split_record(
    grammar: RecordGrammar,
    record: &[u8],
    fields: &mut Vec<Range<usize>>,
) -> bool {
    fields.clear();
    let mut state = CutterState::RecordStart;
    let mut start = 0;
    for (at, &byte) in record.iter().enumerate() {
        let after = grammar.next_state(state, byte);
        match after {
            CutterState::FieldStart => {
                fields.push(start..at);
                start = at + 1;
            }
            CutterState::RecordStart => {
                fields.push(start..at);
                return true;
            }
            _ => {}
        }
        state = after;
    }
    fields.push(start..record.len());
    // At the end of the input a record may lack its line end, but not its closing quote. A caller that
    // cut a whole record from the input knows that by the line end.
    !matches!(state, CutterState::Quoted | CutterState::Escaped)
}

/// Appends the value of a field that is written with quotes and escapes.
pub(crate) fn unescape_field(raw: &[u8], quote: u8, escape: Option<u8>, out: &mut Vec<u8>) -> bool {
    let grammar = RecordGrammar::for_quoted_field(quote, escape);
    let mut state = CutterState::FieldStart;
    for &byte in raw {
        let after = grammar.next_state(state, byte);
        let is_value = match (state, after) {
            // An opening quote, one that may close, and an escape.
            (CutterState::FieldStart, CutterState::Quoted)
            | (CutterState::Quoted, CutterState::QuoteInQuoted | CutterState::Escaped) => false,
            _ => true,
        };
        if is_value {
            out.push(byte);
        }
        // Delimiters and line ends inside a field were resolved before.
        state = if matches!(after, CutterState::FieldStart | CutterState::RecordStart) {
            CutterState::Field
        } else {
            after
        };
    }
    true
}

/// Reads the fields of a record at the front of `block`, unquoted. Returns the fields and the number of bytes
/// consumed, including blank lines and comments before the record; `None` if there is no record.
///
/// Replaces bytes that are not UTF-8. Without a header, the function skips records that begin with NUL bytes
/// if another record follows: they are malformed, and their number of fields means nothing.
#[must_use]
pub fn read_first_record(dialect: &CsvDialect, block: &[u8]) -> Option<(Vec<String>, usize)> {
    let grammar = RecordGrammar::from_dialect(dialect);
    let first = crate::record_boundaries::next_record_range(grammar, block, 0);
    if first.is_empty() {
        return None;
    }
    let mut record = first.clone();
    while !dialect.header && block.get(record.start) == Some(&0) {
        record = crate::record_boundaries::next_record_range(grammar, block, record.end);
        if record.is_empty() {
            record = first.clone();
            break;
        }
    }
    let mut names = Vec::new();
    for_each_field(dialect, &block[record.clone()], |field| {
        names.push(String::from_utf8_lossy(field).into_owned());
    });
    Some((names, record.end))
}

/// Returns the offset of the first byte in the first record that is not UTF-8, if there is one.
#[must_use]
pub fn first_invalid_utf8_offset(dialect: &CsvDialect, block: &[u8]) -> Option<usize> {
    let record =
        crate::record_boundaries::next_record_range(RecordGrammar::from_dialect(dialect), block, 0);
    let start = record.start;
    std::str::from_utf8(&block[record]).err().map(|error| start + error.valid_up_to())
}

/// Returns the offset of the first record and the number of NUL bytes that it begins with, if it does.
#[must_use]
pub fn leading_nuls_of_first_record(dialect: &CsvDialect, block: &[u8]) -> Option<(usize, usize)> {
    let record =
        crate::record_boundaries::next_record_range(RecordGrammar::from_dialect(dialect), block, 0);
    let nuls = block[record.clone()].iter().take_while(|byte| **byte == 0).count();
    (nuls > 0).then_some((record.start, nuls))
}

/// Calls `take` with each field of a record, unquoted.
pub(crate) fn for_each_field(dialect: &CsvDialect, record: &[u8], mut take: impl FnMut(&[u8])) {
    let mut fields = Vec::new();
    split_record(RecordGrammar::from_dialect(dialect), record, &mut fields);
    let mut value = Vec::new();
    for field in fields {
        let raw = &record[field];
        match dialect.quote {
            Some(quote) if raw.first() == Some(&quote) => {
                value.clear();
                unescape_field(raw, quote, dialect.escape, &mut value);
                take(&value);
            }
            _ => take(raw),
        }
    }
}

mod dialect_detection;
mod title_lines;

pub use dialect_detection::{
    DetectedDialect, StatedDialectParts, SuspectedDelimiter, detect_dialect,
};
pub use title_lines::find_header_below_titles;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
