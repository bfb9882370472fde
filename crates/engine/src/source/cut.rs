//! Where a record ends: the cut that makes one large file many splits.
//!
//! For JSON lines and plain lines a record ends at every `\n`. In delimited text a quoted
//! field may hold line ends, so whether a `\n` ends a record depends on every quote before
//! it. [`Cutter`] is the automaton that knows; it follows `csv_core` to the letter, because
//! the decoder behind it does: a quote opens only at the start of a field, a doubled quote
//! inside quotes is one quote, a quote inside an unquoted field is literal, and `\r`, `\n`
//! and `\r\n` all end a record. It only ever *cuts* at `\n`, which is enough and keeps
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
//! Speed: a block without a quote is left to `memchr`/`memrchr`. In one with quotes a byte is
//! inside quotes if an odd number of them comes before it, *unless* some quote is literal, in
//! an unquoted field; both are found for 64 bytes at a time from bit masks (Langdale and
//! Lemire, "Parsing Gigabytes of JSON per Second", VLDB Journal 2019), and only a block with a
//! literal quote is walked quote by quote. On a file with every field quoted, cutting and reading
//! by masks added a tenth to the decoder's own CPU time; the walk more than doubled it.
//!
//! A reader that begins in the middle of a file cannot know whether it is inside quotes.
//! [`guess_start`] follows both possibilities over a window and takes the one whose records
//! have the right number of fields; the caller verifies the guess against where the reader
//! before it ended (*speculate and verify*, as in Ge et al., "Speculative Distributed CSV Data
//! Parsing for Big Data Analytics", SIGMOD 2019).

use super::format::Dialect;

/// Where the automaton stands between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Before the first byte of a record; line ends here belong to no record.
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

/// The bytes that matter for cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grammar {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
}

impl Grammar {
    /// The grammar of formats in which every line is a record.
    pub(crate) const LINES: Self =
        Grammar { delimiter: b'\n', quote: None, escape: None, comment: None };

    /// The grammar of delimited text.
    pub(crate) fn delimited(dialect: &Dialect) -> Self {
        Grammar {
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            escape: dialect.escape.filter(|_| dialect.quote.is_some()),
            comment: dialect.comment,
        }
    }

    /// Whether every `\n` ends a record, so that a cut needs no look at what came before.
    pub(crate) fn every_line_ends_a_record(&self) -> bool {
        self.quote.is_none()
    }

    fn step(&self, state: State, byte: u8) -> State {
        match state {
            State::Quoted => {
                if Some(byte) == self.quote {
                    State::QuoteInQuoted
                } else if Some(byte) == self.escape {
                    State::Escaped
                } else {
                    State::Quoted
                }
            }
            State::Escaped => State::Quoted,
            State::QuoteInQuoted if Some(byte) == self.quote => State::Quoted,
            State::Comment => {
                if byte == b'\n' {
                    State::RecordStart
                } else {
                    State::Comment
                }
            }
            State::RecordStart | State::FieldStart if Some(byte) == self.quote => State::Quoted,
            State::RecordStart if Some(byte) == self.comment => State::Comment,
            _ if byte == self.delimiter => State::FieldStart,
            _ if byte == b'\n' || byte == b'\r' => State::RecordStart,
            _ => State::Field,
        }
    }
}

/// The automaton over a stream of bytes that come block by block.
#[derive(Debug, Clone)]
pub(crate) struct Cutter {
    grammar: Grammar,
    state: State,
}

impl Cutter {
    /// A cutter that begins at the start of a record.
    pub(crate) fn new(grammar: Grammar) -> Self {
        Self { grammar, state: State::RecordStart }
    }

    /// Where the automaton stands.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Takes the whole block and returns the end of its last record, if one ends in it.
    pub(crate) fn last_end(&mut self, block: &[u8]) -> Option<usize> {
        if let Some(last) = self.last_end_by_parity(block) {
            return last;
        }
        let mut last = None;
        self.walk(block, |stretch, base| {
            if let Some(found) = memchr::memrchr(b'\n', stretch) {
                last = Some(base + found + 1);
            }
            None
        });
        last
    }

    /// Takes the block up to the first record end and returns that end; takes it all and
    /// returns none if no record ends in it.
    pub(crate) fn first_end(&mut self, block: &[u8]) -> Option<usize> {
        self.walk(block, |stretch, base| {
            memchr::memchr(b'\n', stretch).map(|found| base + found + 1)
        })
    }

    /// The same from quotes' parity; none, and nothing taken, where that does not tell.
    fn last_end_by_parity(&mut self, block: &[u8]) -> Option<Option<usize>> {
        let quote = self.grammar.quote?;
        if self.grammar.escape.is_some() || self.grammar.comment.is_some() {
            return None;
        }
        let mut inside = match self.state {
            State::Quoted => u64::MAX,
            State::Escaped | State::Comment => return None,
            _ => 0,
        };
        // Whether a quote may open a field here: whether the byte before is a line end, a
        // delimiter, or a quote that has just closed.
        let mut may_open = u64::from(self.state != State::Field);
        let mut last = None;
        for (index, chunk) in block.chunks(64).enumerate() {
            let masks = masks(chunk, quote, self.grammar.delimiter);
            let within = prefix_xor(masks.quote) ^ inside;
            let before = (masks.quote | masks.delimiter | masks.line_feed | masks.carriage_return)
                << 1
                | may_open;
            if masks.quote & within & !before != 0 {
                return None; // A literal quote.
            }
            let ends = masks.line_feed & !within;
            if ends != 0 {
                last = Some(index * 64 + 64 - ends.leading_zeros() as usize);
            }
            // A last, shorter chunk ends the loop, so what is carried on from it is not used.
            inside = if within >> 63 == 1 { u64::MAX } else { 0 };
            may_open =
                (masks.quote | masks.delimiter | masks.line_feed | masks.carriage_return) >> 63;
            if chunk.len() < 64 {
                inside = if within >> (chunk.len() - 1) & 1 == 1 { u64::MAX } else { 0 };
            }
        }
        self.state = match block.last() {
            None => self.state,
            Some(_) if inside != 0 => State::Quoted,
            Some(byte) if *byte == quote => State::QuoteInQuoted,
            Some(byte) if *byte == self.grammar.delimiter => State::FieldStart,
            Some(b'\n' | b'\r') => State::RecordStart,
            Some(_) => State::Field,
        };
        Some(last)
    }

    /// Calls `outside` with every maximal stretch outside quotes and its position, until it
    /// returns a position to stop at, which must be just after a `\n` of that stretch.
    fn walk(
        &mut self,
        block: &[u8],
        mut outside: impl FnMut(&[u8], usize) -> Option<usize>,
    ) -> Option<usize> {
        if self.grammar.comment.is_some() {
            return self.walk_bytes(block, outside);
        }
        let Some(quote) = self.grammar.quote else {
            let stop = outside(block, 0);
            self.state = State::RecordStart;
            return stop;
        };
        let mut at = 0;
        while at < block.len() {
            match self.state {
                State::Quoted => {
                    let rest = &block[at..];
                    let next = match self.grammar.escape {
                        Some(escape) => memchr::memchr2(quote, escape, rest),
                        None => memchr::memchr(quote, rest),
                    };
                    let next = next?;
                    self.state = self.grammar.step(State::Quoted, rest[next]);
                    at += next + 1;
                }
                State::Escaped => {
                    self.state = State::Quoted;
                    at += 1;
                }
                State::QuoteInQuoted if block[at] == quote => {
                    self.state = State::Quoted;
                    at += 1;
                }
                _ => {
                    // Outside quotes up to the next quote that opens a field.
                    let start = at;
                    let mut opens = None;
                    while let Some(found) = memchr::memchr(quote, &block[at..]) {
                        let found = at + found;
                        let opening = if found == start {
                            matches!(self.state, State::RecordStart | State::FieldStart)
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
                        self.state = State::RecordStart;
                        return Some(stop);
                    }
                    if opens.is_some() {
                        self.state = State::Quoted;
                    } else {
                        let last = block[block.len() - 1];
                        // A single byte cannot leave `QuoteInQuoted` into quotes here: a quote
                        // was handled above, and any other byte decides by itself.
                        self.state = if last == self.grammar.delimiter {
                            State::FieldStart
                        } else if last == b'\n' || last == b'\r' {
                            State::RecordStart
                        } else {
                            State::Field
                        };
                        at = block.len();
                    }
                }
            }
        }
        None
    }

    /// The same, byte by byte: where comments make line starts matter.
    fn walk_bytes(
        &mut self,
        block: &[u8],
        mut outside: impl FnMut(&[u8], usize) -> Option<usize>,
    ) -> Option<usize> {
        for (at, &byte) in block.iter().enumerate() {
            self.state = self.grammar.step(self.state, byte);
            if byte == b'\n'
                && self.state == State::RecordStart
                && let Some(stop) = outside(&block[at..=at], at)
            {
                return Some(stop);
            }
        }
        None
    }
}

/// Which bytes of a chunk of up to 64 are what: bit `i` for byte `i`.
struct Masks {
    quote: u64,
    delimiter: u64,
    line_feed: u64,
    carriage_return: u64,
}

fn masks(chunk: &[u8], quote: u8, delimiter: u8) -> Masks {
    let mut padded = [0; 64];
    let bytes: &[u8; 64] = match chunk.try_into() {
        Ok(bytes) => bytes,
        Err(_) => {
            padded[..chunk.len()].copy_from_slice(chunk);
            &padded
        }
    };
    // No grammar gives zero bytes a role, so padding sets no bit.
    Masks {
        quote: equal(bytes, quote),
        delimiter: equal(bytes, delimiter),
        line_feed: equal(bytes, b'\n'),
        carriage_return: equal(bytes, b'\r'),
    }
}

/// Which bytes equal `byte`. SSE2 is part of every x86-64.
#[cfg(target_arch = "x86_64")]
#[inline]
fn equal(bytes: &[u8; 64], byte: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let mut mask = 0;
    for (index, part) in bytes.chunks_exact(16).enumerate() {
        // Every part is 16 bytes long, and the load needs no alignment.
        let found = unsafe {
            let part = _mm_loadu_si128(part.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(part, _mm_set1_epi8(byte.cast_signed())))
        };
        mask |= u64::from(found.cast_unsigned()) << (16 * index);
    }
    mask
}

/// Which bytes equal `byte`, eight at a time.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal(bytes: &[u8; 64], byte: u8) -> u64 {
    equal_by_words(bytes, byte)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_by_words(bytes: &[u8; 64], byte: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let wanted = u64::from_le_bytes([byte; 8]);
    let mut mask = 0;
    for (index, part) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(part.try_into().unwrap_or_default()) ^ wanted;
        // The top bit of each byte that is zero.
        let zero = !(((word & LOW) + LOW) | word | LOW);
        // Byte i's bit to bit i.
        let gathered = (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= gathered << (8 * index);
    }
    mask
}

/// Bit `i` is the parity of bits `0..=i`.
#[inline]
fn prefix_xor(mut mask: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        mask ^= mask << shift;
    }
    mask
}

/// The records of a block of whole records, as byte ranges, line ends included.
///
/// Byte by byte, and also cut at a lone `\r` in delimited text, as the decoder reads it: for
/// the inspection of a block that failed, not for the good case.
pub(crate) fn records(
    grammar: Grammar,
    delimited: bool,
    block: &[u8],
) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    let mut state = State::RecordStart;
    let mut push = |range: std::ops::Range<usize>| {
        let blank = delimited && block[range.clone()].iter().all(|b| matches!(b, b'\r' | b'\n'));
        if !blank && !range.is_empty() {
            ranges.push(range);
        }
    };
    for (at, &byte) in block.iter().enumerate() {
        state = grammar.step(state, byte);
        let ends = if delimited {
            let line_end = byte == b'\n' || byte == b'\r' && block.get(at + 1) != Some(&b'\n');
            line_end && state == State::RecordStart
        } else {
            byte == b'\n'
        };
        if ends {
            push(start..at + 1);
            start = at + 1;
        }
    }
    push(start..block.len());
    ranges
}

/// What a guess is made from: the window's first byte is the one before the range's start.
///
/// Returns the likeliest first record start in the window, as an index into it, at least 1;
/// none if no record ends in the window under the likelier hypothesis.
pub(crate) fn guess_start(grammar: Grammar, window: &[u8], fields: usize) -> Option<usize> {
    if grammar.every_line_ends_a_record() {
        return memchr::memchr(b'\n', window).map(|found| found + 1);
    }
    // A quote at the window's first byte may also open a field.
    let opening = (window.first().copied() == grammar.quote).then_some(State::FieldStart);
    let mut best: Option<Trail> = None;
    for state in [State::Field, State::Quoted].into_iter().chain(opening) {
        let trail = follow(grammar, state, window, fields);
        if best.as_ref().is_none_or(|best| trail.score() > best.score()) {
            best = Some(trail);
        }
    }
    best?.first
}

/// How one hypothesis fared over a window.
#[derive(Debug, Default)]
struct Trail {
    first: Option<usize>,
    fitting: i64,
    faults: i64,
}

impl Trail {
    fn score(&self) -> i64 {
        self.fitting - 4 * self.faults
    }
}

/// Follows the automaton from `state`, counting the records that have the expected number of
/// fields and the things that hardly occur in a well-formed file: a record with another
/// number, a quote within an unquoted field, a byte between a closing quote and a delimiter.
fn follow(grammar: Grammar, state: State, window: &[u8], fields: usize) -> Trail {
    let mut trail = Trail::default();
    let mut state = state;
    let mut count = 1;
    let mut record_start = None;
    for (at, &byte) in window.iter().enumerate() {
        let before = state;
        let after = grammar.step(before, byte);
        match (before, after) {
            (State::Field, State::Field) if Some(byte) == grammar.quote && at > 0 => {
                trail.faults += 1;
            }
            (State::QuoteInQuoted, State::Field) => trail.faults += 1,
            (_, State::FieldStart) => count += 1,
            (_, State::RecordStart) => {
                if let Some(start) = record_start {
                    // Blank lines are no records.
                    if at > start && before != State::RecordStart {
                        if count == fields {
                            trail.fitting += 1;
                        } else {
                            trail.faults += 1;
                        }
                    }
                }
                if byte == b'\n' {
                    trail.first.get_or_insert(at + 1);
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
    use crate::source::format::{Format, TextOptions};
    use proptest::prelude::*;

    fn dialect(options: &TextOptions) -> Dialect {
        options.dialect(Format::Csv).unwrap()
    }

    /// The record ends after which `csv_core` begins a new record, at `\n` only.
    fn model_ends(dialect: &Dialect, input: &[u8]) -> Vec<usize> {
        // A position is a record end iff the parser, fed the bytes up to it, stands before a
        // record: it then answers the end of input with `End` and not with a record.
        (1..=input.len())
            .filter(|&end| {
                if input[end - 1] != b'\n' {
                    return false;
                }
                let mut parser = dialect.parser();
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

    fn ends(cutter: &mut Cutter, input: &[u8]) -> Vec<usize> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(end) = cutter.first_end(&input[at..]) {
            at += end;
            found.push(at);
        }
        found
    }

    fn options() -> impl Strategy<Value = TextOptions> {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(quote, escape, comment)| {
            TextOptions {
                quote: if quote { None } else { Some(None) },
                escape: escape.then_some(b'\\'),
                comment: comment.then_some(b'#'),
                ..TextOptions::default()
            }
        })
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(b"a,\"\n\r\\# ".to_vec()), 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn records_end_where_csv_core_ends_them(options in options(), input in bytes()) {
            let dialect = dialect(&options);
            let grammar = Grammar::delimited(&dialect);
            let found = ends(&mut Cutter::new(grammar), &input);
            prop_assert_eq!(found, model_ends(&dialect, &input));
        }

        #[test]
        fn the_last_end_is_the_same_however_the_input_is_blocked(
            options in options(), input in bytes(), at in 0usize..40
        ) {
            let grammar = Grammar::delimited(&dialect(&options));
            let all = ends(&mut Cutter::new(grammar), &input);
            let at = at.min(input.len());
            let mut cutter = Cutter::new(grammar);
            let head = cutter.last_end(&input[..at]);
            let tail = cutter.last_end(&input[at..]).map(|end| end + at);
            prop_assert_eq!(head, all.iter().copied().rfind(|end| *end <= at));
            prop_assert_eq!(tail, all.iter().copied().rfind(|end| *end > at));
        }

        #[test]
        fn a_block_is_the_sum_of_its_records(options in options(), input in bytes()) {
            let grammar = Grammar::delimited(&dialect(&options));
            let ranges = records(grammar, true, &input);
            let mut at = 0;
            for range in &ranges {
                prop_assert!(range.start >= at && range.end > range.start);
                // Only blank lines lie between records.
                prop_assert!(input[at..range.start].iter().all(|b| matches!(b, b'\r' | b'\n')));
                at = range.end;
            }
            prop_assert!(input[at..].iter().all(|b| matches!(b, b'\r' | b'\n')));
        }
    }

    #[test]
    fn a_guess_inside_a_quoted_field_finds_the_next_true_record() {
        let grammar = Grammar::delimited(&dialect(&TextOptions::default()));
        let file = b"1,\"one\nline, two\nthree\",x\n2,plain,y\n3,\"a \"\"b\"\"\n\",z\n4,q,w\n";
        let starts = ends(&mut Cutter::new(grammar), file);
        for from in 1..file.len() {
            let Some(guess) = guess_start(grammar, &file[from - 1..], 3) else { continue };
            let truth = starts.iter().find(|start| **start >= from);
            if from < 40 {
                assert_eq!(Some(&(from - 1 + guess)), truth, "from byte {from}");
            }
        }
    }

    proptest! {
        #[test]
        fn masks_are_the_same_by_word_and_by_byte(bytes: [[u8; 32]; 2], byte in 0u8..4) {
            let bytes: Vec<u8> = bytes.concat().into_iter().map(|b| b % 5).collect();
            let bytes: [u8; 64] = bytes.try_into().unwrap();
            let expected = (0..64).filter(|i| bytes[*i] == byte).fold(0, |m, i| m | 1u64 << i);
            prop_assert_eq!(equal(&bytes, byte), expected);
            prop_assert_eq!(equal_by_words(&bytes, byte), expected);
        }

        #[test]
        fn long_blocks_end_where_their_last_record_ends(
            parts in prop::collection::vec(
                prop::sample::select(vec!["a", ",", "\"", "\n", "\"b\"", "\"\"", "\r\n", "cccccccc"]), 0..200),
            at in 0usize..400,
        ) {
            let input = parts.concat().into_bytes();
            let grammar = Grammar::delimited(&dialect(&TextOptions::default()));
            let mut state = State::RecordStart;
            let mut all = Vec::new();
            for (index, byte) in input.iter().enumerate() {
                state = grammar.step(state, *byte);
                if *byte == b'\n' && state == State::RecordStart {
                    all.push(index + 1);
                }
            }
            let at = at.min(input.len());
            let mut cutter = Cutter::new(grammar);
            let head = cutter.last_end(&input[..at]);
            let tail = cutter.last_end(&input[at..]).map(|end| end + at);
            prop_assert_eq!(head, all.iter().copied().rfind(|end| *end <= at));
            prop_assert_eq!(tail, all.iter().copied().rfind(|end| *end > at));
            prop_assert_eq!(cutter.state(), state);
        }
    }

    #[test]
    fn a_guess_in_plain_lines_is_exact() {
        assert_eq!(guess_start(Grammar::LINES, b"\nabc\n", 1), Some(1));
        assert_eq!(guess_start(Grammar::LINES, b"xabc\nd", 1), Some(5));
        assert_eq!(guess_start(Grammar::LINES, b"xabc", 1), None);
    }
}
