//! Boundaries of the splits of cut files: guessed when splits are read in parallel, or found by reading the
//! file.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_text::record_boundaries::{self, RecordCutter};

use crate::error::Result;
use crate::files::byte_input::{ByteInput, ByteReadContext, FileInput, OpenFile, ReadPattern};
use crate::splits::text_blocks::{self, RECORD_BYTES_MAX};
use crate::splits::text_stream::{BYTE_ORDER_MARK, find_records_offset};
use crate::{Source, SourceFile, Split, schema::content_detection};

/// Maximum size of the window in which a boundary is guessed, in bytes.
const GUESS_WINDOW_BYTES_MAX: usize = 64 << 10;
/// Minimum size of that window; small splits use a quarter of their size. Following quotes takes some
/// nanoseconds a byte, so a window larger than the split would cost more than its records.
const GUESS_WINDOW_BYTES_MIN: usize = 2 << 10;
/// Minimum number of lines in a smaller window for its guess to count.
const SMALL_WINDOW_LINES_MIN: usize = 16;

/// Distance before a split at which a guess from before it begins, in bytes.
const LOOKBACK_BYTES: u64 = 256 << 10;

/// Minimum distance between a split's start and its first record for the guess to be cached.
const LONG_RECORD_BYTES_MIN: u64 = 1 << 20;

/// Ends of long records by file: the start of each search and the boundary it found. All splits that begin
/// within such a record share the boundary behind it. Otherwise each would scan the rest of the record, which
/// takes quadratic time in its length.
#[derive(Debug, Default)]
pub(crate) struct LongRecordEnds(Mutex<HashMap<usize, BTreeMap<u64, u64>>>);

impl LongRecordEnds {
    /// Returns the likeliest first record start at or behind the start of a split's `range`; the file's size
    /// if there is none.
    pub(crate) fn guess_boundary(
        &self,
        file: &SourceFile,
        open: &OpenFile,
        grammar: record_boundaries::RecordGrammar,
        range: Range<u64>,
        fields: usize,
    ) -> Result<BoundaryGuess> {
        let from = range.start;
        let known = |starts: &BTreeMap<u64, u64>| {
            let (_, start) = starts.range(..=from).next_back()?;
            (*start >= from).then_some(*start)
        };
        if let Some(start) = self.0.lock().get(&file.index).and_then(known) {
            return Ok(BoundaryGuess {
                offset: start,
                bytes_read: Vec::new(),
                is_conclusive: true,
            });
        }
        let guess = search_boundary(file, open, grammar, range, fields)?;
        let start = guess.offset;
        if start - from > LONG_RECORD_BYTES_MIN && guess.is_conclusive {
            self.0.lock().entry(file.index).or_default().insert(from, start);
        }
        Ok(guess)
    }
}

/// A guessed boundary of a split.
#[derive(Debug)]
pub(crate) struct BoundaryGuess {
    pub(crate) offset: u64,
    /// Bytes that were read for the guess, from the byte before the split on.
    pub(crate) bytes_read: Vec<u8>,
    /// True if a record begins there, or if none begins before the end of the file. False if the search was
    /// given up.
    is_conclusive: bool,
}

/// Maximum size of a split that is read whole for the guess: one read instead of two.
const WHOLE_SPLIT_READ_BYTES_MAX: usize = 64 << 10;

/// Searches for the boundary without the cache.
fn search_boundary(
    file: &SourceFile,
    open: &OpenFile,
    grammar: record_boundaries::RecordGrammar,
    range: Range<u64>,
    fields: usize,
) -> Result<BoundaryGuess> {
    // The preceding byte tells whether a record ends there.
    let base = range.start - 1;
    let is_exact = grammar.is_line_delimited();
    let quarter = usize::try_from((range.end - range.start) / 4).unwrap_or(usize::MAX);
    // In plain lines the first line end is the boundary.
    let first = if is_exact { 0 } else { quarter };
    let mut look = first.clamp(GUESS_WINDOW_BYTES_MIN, GUESS_WINDOW_BYTES_MAX);
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let whole = match open.remote_reader() {
        None if length <= WHOLE_SPLIT_READ_BYTES_MAX => {
            1 + length + text_blocks::tail_read_bytes(length)
        }
        _ => 0,
    };
    let mut window = vec![0; look.max(whole)];
    loop {
        let count = open.read_at(&mut window, base)?;
        let seen = &window[..count.min(look)];
        content_detection::check_split_compression(file, open, seen)?;
        let is_over = seen.len() < look;
        let is_believed = || {
            let lines = || memchr::memchr_iter(b'\n', seen).take(SMALL_WINDOW_LINES_MIN).count();
            is_exact
                || is_over
                || seen.len() >= GUESS_WINDOW_BYTES_MAX
                || lines() >= SMALL_WINDOW_LINES_MIN
        };
        if let Some(start) =
            record_boundaries::guess_record_start(grammar, seen, fields).filter(|_| is_believed())
        {
            window.truncate(count);
            return Ok(BoundaryGuess {
                offset: base + start as u64,
                bytes_read: window,
                is_conclusive: true,
            });
        }
        // If no record ends here, the reader of the previous record reports that. If there is no line end at
        // all, splits behind this one find none either.
        if is_over || look > RECORD_BYTES_MAX {
            let is_found = is_over && memchr::memchr(b'\n', seen).is_none();
            return Ok(BoundaryGuess {
                offset: open.size(),
                bytes_read: Vec::new(),
                is_conclusive: is_found,
            });
        }
        // One byte beyond the expected size shows that there are no more.
        let left = usize::try_from(open.size().saturating_sub(base)).unwrap_or(usize::MAX);
        look = (4 * look).min(left.saturating_add(1).max(look + 1));
        window.resize(look.max(window.len()), 0);
    }
}

/// Returns the boundary of a split, guessed from the bytes before it: guesses a record start some distance
/// before, and follows the records from there. None for splits that are not guessed.
pub(crate) fn guess_boundary_from_before(
    source: &Source,
    split: &Split,
    cancel: &CancelFlag,
) -> Result<Option<u64>> {
    let Some(piece) = split.parts.first() else { return Ok(None) };
    let (file, start) = (&piece.file, piece.range.start);
    if start == 0
        || source.has_exact_starts()
        || source.format.is_typed()
        || !file.is_read_as_stored()
    {
        return Ok(None);
    }
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
    let open = Arc::new(OpenFile::open(file, ReadPattern::Random, &watch)?);
    let grammar = source.record_grammar();
    let first = first_record_offset(source, file, &watch)?;
    let mut position = match start.checked_sub(LOOKBACK_BYTES).filter(|from| *from > first) {
        Some(from) => {
            let fields = source.columns.layout(file.index).fields;
            let to = start.max(from + 4 * GUESS_WINDOW_BYTES_MAX as u64);
            search_boundary(file, &open, grammar, from..to, fields)?.offset
        }
        None => first,
    };
    if position >= start {
        return Ok(Some(position));
    }
    let mut input = FileInput::new(open.clone(), position, 0, watch);
    let mut cutter = RecordCutter::new(grammar);
    let mut buffer = vec![0; GUESS_WINDOW_BYTES_MAX];
    loop {
        let count = input.read(&mut buffer)?;
        // The first record end at or behind the byte before the split.
        let before = usize::try_from((start - 1).saturating_sub(position)).unwrap_or(usize::MAX);
        let before = before.min(count);
        cutter.find_last_record_end(&buffer[..before]);
        if let Some(end) = cutter.find_first_record_end(&buffer[before..count]) {
            return Ok(Some(position + (before + end) as u64));
        }
        position += count as u64;
        if count < buffer.len() {
            return Ok(Some(open.size()));
        }
    }
}

/// Returns the offset of a file's header, or of its first record, behind skipped lines. If no lines are
/// skipped, only a byte-order mark is passed: the record automaton may take a line that declares the
/// separator for a part of the first record.
fn first_record_offset(source: &Source, file: &SourceFile, watch: &ByteReadContext) -> Result<u64> {
    if file.skipped_lines == 0 {
        let open = OpenFile::open(file, ReadPattern::Random, watch)?;
        let mut mark = [0; BYTE_ORDER_MARK.len()];
        let count = open.read_at(&mut mark, 0)?;
        return Ok(if mark[..count] == *BYTE_ORDER_MARK {
            BYTE_ORDER_MARK.len() as u64
        } else {
            0
        });
    }
    find_records_offset(file, source.record_framing(), watch)
}

/// Finds the exact boundaries of the splits of cut files.
pub(crate) fn find_exact_boundaries(
    source: &Source,
    splits: &mut [Split],
    cancel: &CancelFlag,
) -> Result<()> {
    let mut at = 0;
    while at < splits.len() {
        let first = at;
        let Some(piece) = splits[first].parts.first().filter(|piece| !piece.is_whole_file()) else {
            at += 1;
            continue;
        };
        let file = piece.file.clone();
        while at < splits.len()
            && splits[at].parts.first().is_some_and(|piece| piece.file.index == file.index)
        {
            at += 1;
        }
        if let Some(format) = source.format.as_typed_format() {
            format.find_exact_boundaries(&mut splits[first..at], cancel)?;
            continue;
        }
        if !file.is_read_as_stored() {
            continue;
        }
        let mut wanted = splits[first..at].iter_mut().filter(|s| s.parts[0].range.start > 0);
        let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
        let mut position = first_record_offset(source, &file, &watch)?;
        let open =
            Arc::new(OpenFile::open(&file, ReadPattern::UntilSplitEnd(file.size()), &watch)?);
        let mut input = FileInput::new(open.clone(), position, 0, watch);
        let mut buffer = vec![0; crate::splits::text_blocks::READ_BYTES];
        let mut cutter = RecordCutter::new(source.record_grammar());
        let mut next = wanted.next();
        // The last of the splits that begin in skipped lines has the header.
        while let Some(split) = &mut next
            && file.skipped_lines > 0
            && split.parts[0].range.start <= position
        {
            split.exact_start = Some(position);
            next = wanted.next();
        }
        while next.is_some() {
            let count = input.read(&mut buffer)?;
            let mut from = 0;
            while let Some(split) = &mut next {
                // The first record end at or behind the byte before the range.
                let target = split.parts[0].range.start - 1;
                let ahead = usize::try_from(target.saturating_sub(position)).unwrap_or(usize::MAX);
                if ahead > from {
                    let to = ahead.min(count);
                    cutter.find_last_record_end(&buffer[from..to]);
                    from = to;
                }
                if from == count {
                    break;
                }
                match cutter.find_first_record_end(&buffer[from..count]) {
                    Some(end) => {
                        from += end;
                        let start = position + from as u64;
                        split.exact_start = Some(start);
                        next = wanted.next();
                        // A record may span several ranges.
                        while let Some(split) = &mut next {
                            if split.parts[0].range.start > start {
                                break;
                            }
                            split.exact_start = Some(start);
                            next = wanted.next();
                        }
                    }
                    None => from = count,
                }
            }
            position += count as u64;
            if count < buffer.len() {
                while let Some(split) = next {
                    split.exact_start = Some(open.size());
                    next = wanted.next();
                }
            }
        }
        open.verify_identity()?;
    }
    Ok(())
}
