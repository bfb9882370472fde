//! Boundaries of records: the cuts that turn one large file into many splits.
//!
//! In JSON lines and plain lines a record ends at every `\n`. In delimited text a quoted
//! field may hold line ends, so whether a `\n` ends a record depends on every quote before
//! it. [`RecordCutter`] is the automaton that tracks this. It follows `csv_core` to the letter, because
//! the decoder does so too: a quote opens only at the start of a field, a doubled quote
//! inside quotes is one quote, a quote inside an unquoted field is literal, and `\r`, `\n`
//! and `\r\n` all end a record. The cutter only *cuts* at `\n`, which is enough and keeps
//! `\r\n` whole.
//!
//! ```text
//!            delimiter          quote               quote
//!   Field ───────────► FieldStart ───► Quoted ◄──────────────► QuoteInQuoted
//!     ▲  \n \r ┌───────────┘ ▲  other    │ escape                  │ other
//!     │        ▼             │           ▼                         ▼
//!     │   RecordStart ───────┘        Escaped (one byte)         Field
//! ```
//!
//! Speed: the cutter leaves a block without a quote to `memchr`/`memrchr`. In a block with quotes a byte is
//! inside quotes if an odd number of them comes before it, *unless* some quote is literal, in
//! an unquoted field. Bit masks find both for 64 bytes at a time (Langdale and
//! Lemire, "Parsing Gigabytes of JSON per Second", VLDB Journal 2019), so only a block with a
//! literal quote needs a walk from quote to quote. On a file with every field quoted, cutting and reading
//! by masks added a tenth to the decoder's own CPU time; the walk more than doubled it.
//!
//! A reader that begins in the middle of a file cannot know whether it is inside quotes.
//! [`guess_record_start`] follows both hypotheses over a window and takes the one whose records
//! have the right number of fields. The caller verifies the guess against the end of the split
//! before it (*speculate and verify*, as in Ge et al., "Speculative Distributed CSV Data
//! Parsing for Big Data Analytics", SIGMOD 2019).

use std::ops::Range;

use crate::csv_dialect::CsvDialect;
use crate::simd::{BLOCK_BYTES, Isa, dispatch};

/// State of the automaton between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutterState {
    /// Before the first byte of a record; a line end here belongs to no record.
    RecordStart,
    /// After a delimiter.
    FieldStart,
    /// Inside an unquoted field, or after a closing quote.
    Field,
    /// Inside quotes.
    Quoted,
    /// After an escape byte inside quotes.
    Escaped,
    /// After a quote inside quotes: it closes the field unless another one follows.
    QuoteInQuoted,
    /// Inside a comment line.
    Comment,
}

/// The special bytes that decide where records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordGrammar {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
}

impl RecordGrammar {
    /// The grammar of formats in which every line is a record.
    pub const LINES: Self =
        RecordGrammar { delimiter: b'\n', quote: None, escape: None, comment: None };

    /// Returns the grammar of delimited text in a dialect.
    #[must_use]
    pub fn from_dialect(dialect: &CsvDialect) -> Self {
        RecordGrammar {
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            escape: dialect.escape.filter(|_| dialect.quote.is_some()),
            comment: dialect.comment,
        }
    }

    /// Returns the grammar inside one field: quotes and escapes only.
    pub(crate) fn for_quoted_field(quote: u8, escape: Option<u8>) -> Self {
        RecordGrammar { delimiter: b'\n', quote: Some(quote), escape, comment: None }
    }

    /// Returns whether every `\n` ends a record, so that a cut does not depend on earlier bytes.
    #[must_use]
    pub fn is_line_delimited(&self) -> bool {
        self.quote.is_none()
    }

    #[inline]
    pub(crate) fn next_state(&self, state: CutterState, byte: u8) -> CutterState {
        match state {
            CutterState::Quoted => {
                if Some(byte) == self.quote {
                    CutterState::QuoteInQuoted
                } else if Some(byte) == self.escape {
                    CutterState::Escaped
                } else {
                    CutterState::Quoted
                }
            }
            CutterState::Escaped => CutterState::Quoted,
            CutterState::QuoteInQuoted if Some(byte) == self.quote => CutterState::Quoted,
            CutterState::Comment => {
                if byte == b'\n' {
                    CutterState::RecordStart
                } else {
                    CutterState::Comment
                }
            }
            CutterState::RecordStart | CutterState::FieldStart if Some(byte) == self.quote => {
                CutterState::Quoted
            }
            CutterState::RecordStart if Some(byte) == self.comment => CutterState::Comment,
            _ if byte == self.delimiter => CutterState::FieldStart,
            _ if byte == b'\n' || byte == b'\r' => CutterState::RecordStart,
            _ => CutterState::Field,
        }
    }
}

/// The automaton that finds record ends in a stream of blocks.
#[derive(Debug, Clone)]
pub struct RecordCutter {
    grammar: RecordGrammar,
    state: CutterState,
}

impl RecordCutter {
    /// Returns a cutter at the start of a record.
    #[must_use]
    pub fn new(grammar: RecordGrammar) -> Self {
        Self { grammar, state: CutterState::RecordStart }
    }

    /// Returns the grammar.
    #[must_use]
    pub fn grammar(&self) -> RecordGrammar {
        self.grammar
    }

    /// Returns the current state of the automaton.
    #[must_use]
    pub fn state(&self) -> CutterState {
        self.state
    }

    /// Consumes the whole block and returns the end of its last record, if one ends in it.
    pub fn find_last_record_end(&mut self, block: &[u8]) -> Option<usize> {
        if let Some(last) = self.find_last_end_by_parity(block) {
            return last;
        }
        let mut last = None;
        self.visit_unquoted(block, |stretch, base| {
            if let Some(found) = memchr::memrchr(b'\n', stretch) {
                last = Some(base + found + 1);
            }
            None
        });
        last
    }

    /// Consumes the block up to the first record end and returns that end. Consumes the whole block and
    /// returns `None` if no record ends in it.
    pub fn find_first_record_end(&mut self, block: &[u8]) -> Option<usize> {
        self.visit_unquoted(block, |stretch, base| {
            memchr::memchr(b'\n', stretch).map(|found| base + found + 1)
        })
    }

    /// Finds the last record end from the parity of quotes; returns `None` and consumes nothing where
    /// parity does not decide.
    fn find_last_end_by_parity(&mut self, block: &[u8]) -> Option<Option<usize>> {
        let quote = self.grammar.quote?;
        if self.grammar.escape.is_some() || self.grammar.comment.is_some() {
            return None;
        }
        let mut inside = match self.state {
            CutterState::Quoted => u64::MAX,
            CutterState::Escaped | CutterState::Comment => return None,
            _ => 0,
        };
        // 1 if a quote may open a field here: the byte before is a line end, a
        // delimiter, or a quote that has just closed.
        let may_open = u64::from(self.state != CutterState::Field);
        let last = if inside == 0 && memchr::memchr(quote, block).is_none() {
            memchr::memrchr(b'\n', block).map(|last| last + 1)
        } else {
            last_record_end_by_parity(block, quote, self.grammar.delimiter, &mut inside, may_open)?
        };
        self.state = match block.last() {
            None => self.state,
            Some(_) if inside != 0 => CutterState::Quoted,
            Some(byte) if *byte == quote => CutterState::QuoteInQuoted,
            Some(byte) if *byte == self.grammar.delimiter => CutterState::FieldStart,
            Some(b'\n' | b'\r') => CutterState::RecordStart,
            Some(_) => CutterState::Field,
        };
        Some(last)
    }

    /// Calls `outside` with every maximal stretch outside quotes and its position, until it
    /// returns a position to stop at, which must be just after a `\n` of that stretch.
    fn visit_unquoted(
        &mut self,
        block: &[u8],
        mut outside: impl FnMut(&[u8], usize) -> Option<usize>,
    ) -> Option<usize> {
        if self.grammar.comment.is_some() {
            return self.visit_unquoted_bytewise(block, outside);
        }
        let Some(quote) = self.grammar.quote else {
            let stop = outside(block, 0);
            self.state = CutterState::RecordStart;
            return stop;
        };
        let mut at = 0;
        while at < block.len() {
            match self.state {
                CutterState::Quoted => {
                    let rest = &block[at..];
                    let next = match self.grammar.escape {
                        Some(escape) => memchr::memchr2(quote, escape, rest),
                        None => memchr::memchr(quote, rest),
                    };
                    let next = next?;
                    self.state = self.grammar.next_state(CutterState::Quoted, rest[next]);
                    at += next + 1;
                }
                CutterState::Escaped => {
                    self.state = CutterState::Quoted;
                    at += 1;
                }
                CutterState::QuoteInQuoted if block[at] == quote => {
                    self.state = CutterState::Quoted;
                    at += 1;
                }
                _ => {
                    // Outside quotes up to the next quote that opens a field.
                    let start = at;
                    let mut opens = None;
                    while let Some(found) = memchr::memchr(quote, &block[at..]) {
                        let found = at + found;
                        let opening = if found == start {
                            matches!(self.state, CutterState::RecordStart | CutterState::FieldStart)
                        } else {
                            let before = block[found - 1];
                            before == self.grammar.delimiter || before == b'\n' || before == b'\r'
                        };
                        at = found + 1;
                        if opening {
                            opens = Some(found);
                            break;
                        }
                    }
                    let end = opens.unwrap_or(block.len());
                    if let Some(stop) = outside(&block[start..end], start) {
                        self.state = CutterState::RecordStart;
                        return Some(stop);
                    }
                    if opens.is_some() {
                        self.state = CutterState::Quoted;
                    } else {
                        let last = block[block.len() - 1];
                        // A single byte cannot lead from `QuoteInQuoted` into quotes here: the arm
                        // above handles a quote, and any other byte decides by itself.
                        self.state = if last == self.grammar.delimiter {
                            CutterState::FieldStart
                        } else if last == b'\n' || last == b'\r' {
                            CutterState::RecordStart
                        } else {
                            CutterState::Field
                        };
                        at = block.len();
                    }
                }
            }
        }
        None
    }

    /// Does the same byte by byte, for grammars with comments, where line starts matter.
    fn visit_unquoted_bytewise(
        &mut self,
        block: &[u8],
        mut outside: impl FnMut(&[u8], usize) -> Option<usize>,
    ) -> Option<usize> {
        for (at, &byte) in block.iter().enumerate() {
            self.state = self.grammar.next_state(self.state, byte);
            if byte == b'\n'
                && self.state == CutterState::RecordStart
                && let Some(stop) = outside(&block[at..=at], at)
            {
                return Some(stop);
            }
        }
        None
    }
}

dispatch! {
    /// Returns the end of the last record, if one ends in the block, and sets `inside` if the block
    /// ends in quotes. Returns `None` if there is a literal quote, which makes parity meaningless.
    fn last_record_end_by_parity(
        block: &[u8], quote: u8, delimiter: u8, inside: &mut u64, may_open: u64
    ) -> Option<Option<usize>> => last_record_end_simd
}

/// # Safety
/// The processor must have the instruction set.
#[inline(always)]
unsafe fn last_record_end_simd<I: Isa>(
    block: &[u8],
    quote: u8,
    delimiter: u8,
    inside: &mut u64,
    mut may_open: u64,
) -> Option<Option<usize>> {
    let mut last = None;
    for (index, chunk) in block.chunks(BLOCK_BYTES).enumerate() {
        let mut padded = [0; BLOCK_BYTES];
        let whole: *const u8 = if chunk.len() == BLOCK_BYTES {
            chunk.as_ptr()
        } else {
            padded[..chunk.len()].copy_from_slice(chunk);
            padded.as_ptr()
        };
        // SAFETY: 64 bytes are readable; the caller promises the instruction set. Zeros have no
        // role in any grammar, so padding sets no bit.
        let (quotes, separators, lines, within) = unsafe {
            let bytes = I::load(whole);
            let quotes = I::equal(bytes, quote);
            let lines = I::equal(bytes, b'\n');
            let separators = lines | I::equal(bytes, delimiter) | I::equal(bytes, b'\r');
            (quotes, separators, lines, I::parity(quotes) ^ *inside)
        };
        let may = quotes | separators;
        if quotes & within & !(may << 1 | may_open) != 0 {
            return None;
        }
        let ends = lines & !within;
        if ends != 0 {
            last = Some(index * BLOCK_BYTES + BLOCK_BYTES - ends.leading_zeros() as usize);
        }
        // After the last quote parity stays the same, through the padding too.
        *inside = (within.cast_signed() >> 63).cast_unsigned();
        may_open = may >> 63;
    }
    Some(last)
}

/// Returns the range of the first record at or after `at`, its line end included; blank lines and comments
/// are not records. Returns an empty range after the last record.
///
/// Works byte by byte and also cuts at a lone `\r` in delimited text: meant for irregular records,
/// not for the fast path.
pub(crate) fn next_record_range(grammar: RecordGrammar, block: &[u8], at: usize) -> Range<usize> {
    let mut start = at;
    let (mut state, mut is_comment) = (CutterState::RecordStart, false);
    for (at, &byte) in block.iter().enumerate().skip(at) {
        let before = state;
        state = grammar.next_state(state, byte);
        if state == CutterState::RecordStart {
            let is_pair = byte == b'\r' && block.get(at + 1) == Some(&b'\n');
            let end = at + 1 + usize::from(is_pair);
            if before != CutterState::RecordStart && !is_comment {
                return start..end;
            }
            (start, is_comment) = (end, false);
        } else if before == CutterState::RecordStart {
            is_comment = state == CutterState::Comment;
        }
    }
    let is_over = is_comment || state == CutterState::RecordStart;
    if is_over { block.len()..block.len() } else { start..block.len() }
}

/// Returns the most likely first record start in a window, as an index of at least 1.
///
/// The window's first byte is the byte before the range's start. Returns `None` if no record ends in the
/// window under the more likely hypothesis.
#[must_use]
pub fn guess_record_start(grammar: RecordGrammar, window: &[u8], fields: usize) -> Option<usize> {
    if grammar.is_line_delimited() {
        return memchr::memchr(b'\n', window).map(|found| found + 1);
    }
    // A record starts after a line end: without one there is nothing to follow. If a range lies inside
    // one huge record, its window grows to that record's end.
    memchr::memchr(b'\n', window)?;
    // A quote at the window's first byte may also open a field.
    let opening = (window.first().copied() == grammar.quote).then_some(CutterState::FieldStart);
    let has_quotes = grammar.quote.is_some_and(|quote| memchr::memchr(quote, window).is_some());
    let mut best: Option<HypothesisTally> = None;
    for state in [CutterState::Field, CutterState::Quoted].into_iter().chain(opening) {
        let trail = match state {
            // Without a quote, nothing ends the quoted hypothesis.
            CutterState::Quoted if !has_quotes => HypothesisTally::default(),
            // Without a quote, there is only one way to read the window.
            CutterState::Field if !has_quotes => {
                follow_hypothesis(grammar, state, window, fields, FITTING_RECORDS_ENOUGH)
            }
            _ => follow_hypothesis(grammar, state, window, fields, i64::MAX),
        };
        if best.as_ref().is_none_or(|best| trail.score() > best.score()) {
            best = Some(trail);
        }
    }
    best?.first_record_start
}

/// Counts for one hypothesis over a window.
#[derive(Debug, Default)]
struct HypothesisTally {
    first_record_start: Option<usize>,
    fitting_records: i64,
    anomalies: i64,
}

impl HypothesisTally {
    fn score(&self) -> i64 {
        self.fitting_records - 4 * self.anomalies
    }
}

/// Number of consecutive fitting records after which a window without quotes needs no further check.
const FITTING_RECORDS_ENOUGH: i64 = 32;

/// Runs the automaton from `state` and counts the records that have the expected number of
/// fields and the anomalies that hardly occur in a well-formed file: a record with another
/// number of fields, a quote within an unquoted field, a byte between a closing quote and a delimiter. Stops
/// early after `enough` fitting records without an anomaly.
fn follow_hypothesis(
    grammar: RecordGrammar,
    state: CutterState,
    window: &[u8],
    fields: usize,
    enough: i64,
) -> HypothesisTally {
    let mut trail = HypothesisTally::default();
    let mut state = state;
    let mut count = 1;
    let mut record_start = None;
    for (at, &byte) in window.iter().enumerate() {
        let before = state;
        let after = grammar.next_state(before, byte);
        match (before, after) {
            (CutterState::Field, CutterState::Field) if Some(byte) == grammar.quote && at > 0 => {
                trail.anomalies += 1;
            }
            (CutterState::QuoteInQuoted, CutterState::Field) => trail.anomalies += 1,
            (_, CutterState::FieldStart) => count += 1,
            (_, CutterState::RecordStart) => {
                if let Some(start) = record_start {
                    // Blank lines are no records.
                    if at > start && before != CutterState::RecordStart {
                        if count == fields {
                            trail.fitting_records += 1;
                            if trail.fitting_records >= enough && trail.anomalies == 0 {
                                break;
                            }
                        } else {
                            trail.anomalies += 1;
                        }
                    }
                }
                if byte == b'\n' {
                    trail.first_record_start.get_or_insert(at + 1);
                }
                record_start = Some(at + 1);
                count = 1;
            }
            _ => {}
        }
        state = after;
    }
    trail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csv_dialect::CsvDialect;
    use proptest::prelude::*;

    fn parser(dialect: &CsvDialect) -> csv_core::Reader {
        let mut builder = csv_core::ReaderBuilder::new();
        builder.delimiter(dialect.delimiter).escape(dialect.escape).comment(dialect.comment);
        match dialect.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        builder.build()
    }

    /// Returns the record ends after which `csv_core` begins a new record, at `\n` only.
    fn model_ends(dialect: &CsvDialect, input: &[u8]) -> Vec<usize> {
        // A position is a record end iff the parser, fed the bytes up to it, stands before a
        // record: it then answers the end of input with `End` and not with a record.
        (1..=input.len())
            .filter(|&end| {
                if input[end - 1] != b'\n' {
                    return false;
                }
                let mut parser = parser(dialect);
                let mut rest = &input[..end];
                let (mut out, mut ends) = (vec![0; input.len() + 16], vec![0; input.len() + 16]);
                loop {
                    let (result, used, _, _) = parser.read_record(rest, &mut out, &mut ends);
                    rest = &rest[used..];
                    if rest.is_empty() {
                        match result {
                            csv_core::ReadRecordResult::Record => return true,
                            csv_core::ReadRecordResult::InputEmpty => {
                                let (last, ..) = parser.read_record(&[], &mut out, &mut ends);
                                return last == csv_core::ReadRecordResult::End;
                            }
                            _ => return false,
                        }
                    }
                }
            })
            .collect()
    }

    fn records(grammar: RecordGrammar, input: &[u8]) -> Vec<Range<usize>> {
        let (mut found, mut at) = (Vec::new(), 0);
        loop {
            let record = next_record_range(grammar, input, at);
            if record.is_empty() {
                return found;
            }
            at = record.end;
            found.push(record);
        }
    }

    /// Returns whether the bytes hold only blank lines and comments.
    fn has_only_blanks_and_comments(bytes: &[u8]) -> bool {
        bytes.split(|byte| *byte == b'\n').all(|line| {
            let line = &line[line.iter().take_while(|byte| **byte == b'\r').count()..];
            line.is_empty() || line[0] == b'#'
        })
    }

    fn record_ends(cutter: &mut RecordCutter, input: &[u8]) -> Vec<usize> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(end) = cutter.find_first_record_end(&input[at..]) {
            at += end;
            found.push(at);
        }
        found
    }

    fn dialects() -> impl Strategy<Value = CsvDialect> {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(quote, escape, comment)| {
            CsvDialect {
                quote: quote.then_some(b'"'),
                escape: escape.then_some(b'\\'),
                comment: comment.then_some(b'#'),
                ..CsvDialect::default()
            }
        })
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(b"a,\"\n\r\\# ".to_vec()), 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn records_end_where_csv_core_ends_them(dialect in dialects(), input in bytes()) {
            let grammar = RecordGrammar::from_dialect(&dialect);
            let found = record_ends(&mut RecordCutter::new(grammar), &input);
            prop_assert_eq!(found, model_ends(&dialect, &input));
        }

        #[test]
        fn last_record_end_does_not_depend_on_block_size(
            dialect in dialects(), input in bytes(), at in 0usize..40
        ) {
            let grammar = RecordGrammar::from_dialect(&dialect);
            let all = record_ends(&mut RecordCutter::new(grammar), &input);
            let at = at.min(input.len());
            let mut cutter = RecordCutter::new(grammar);
            let head = cutter.find_last_record_end(&input[..at]);
            let tail = cutter.find_last_record_end(&input[at..]).map(|end| end + at);
            prop_assert_eq!(head, all.iter().copied().rfind(|end| *end <= at));
            prop_assert_eq!(tail, all.iter().copied().rfind(|end| *end > at));
        }

        #[test]
        fn records_and_blank_lines_cover_the_block(dialect in dialects(), input in bytes()) {
            let grammar = RecordGrammar::from_dialect(&dialect);
            let ranges = records(grammar, &input);
            let mut at = 0;
            for range in &ranges {
                prop_assert!(range.start >= at && range.end > range.start);
                prop_assert!(has_only_blanks_and_comments(&input[at..range.start]));
                at = range.end;
            }
            prop_assert!(has_only_blanks_and_comments(&input[at..]));
        }
    }

    #[test]
    fn guess_inside_quoted_field_finds_next_record() {
        let grammar = RecordGrammar::from_dialect(&CsvDialect::default());
        let file = b"1,\"one\nline, two\nthree\",x\n2,plain,y\n3,\"a \"\"b\"\"\n\",z\n4,q,w\n";
        let starts = record_ends(&mut RecordCutter::new(grammar), file);
        for from in 1..file.len() {
            let Some(guess) = guess_record_start(grammar, &file[from - 1..], 3) else { continue };
            let truth = starts.iter().find(|start| **start >= from);
            if from < 40 {
                assert_eq!(Some(&(from - 1 + guess)), truth, "from byte {from}");
            }
        }
    }

    proptest! {
        #[test]
        fn long_blocks_end_where_their_last_record_ends(
            parts in prop::collection::vec(
                prop::sample::select(vec!["a", ",", "\"", "\n", "\"b\"", "\"\"", "\r\n", "cccccccc"]), 0..200),
            at in 0usize..400,
        ) {
            let input = parts.concat().into_bytes();
            let grammar = RecordGrammar::from_dialect(&CsvDialect::default());
            let mut state = CutterState::RecordStart;
            let mut all = Vec::new();
            for (index, byte) in input.iter().enumerate() {
                state = grammar.next_state(state, *byte);
                if *byte == b'\n' && state == CutterState::RecordStart {
                    all.push(index + 1);
                }
            }
            let at = at.min(input.len());
            let mut cutter = RecordCutter::new(grammar);
            let head = cutter.find_last_record_end(&input[..at]);
            let tail = cutter.find_last_record_end(&input[at..]).map(|end| end + at);
            prop_assert_eq!(head, all.iter().copied().rfind(|end| *end <= at));
            prop_assert_eq!(tail, all.iter().copied().rfind(|end| *end > at));
            prop_assert_eq!(cutter.state(), state);
        }
    }

    #[test]
    fn guess_in_plain_lines_is_exact() {
        assert_eq!(guess_record_start(RecordGrammar::LINES, b"\nabc\n", 1), Some(1));
        assert_eq!(guess_record_start(RecordGrammar::LINES, b"xabc\nd", 1), Some(5));
        assert_eq!(guess_record_start(RecordGrammar::LINES, b"xabc", 1), None);
    }
}
