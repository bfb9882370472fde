//! Where the splits of a cut file begin: guessed while its splits are read at once, or found by reading.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_text::record_boundaries::{self, RecordCutter};

use super::blocks::{self, RECORD_BYTES_MAX};
use super::error::Result;
use super::input::{ByteInput, FileInput, OpenFile, ReadPattern, Watch};
use super::stream::{MARK, records_at};
use super::{Source, SourceFile, Split, magic};

/// What a guess looks at …
const WINDOW_BYTES: usize = 64 << 10;
/// … or a quarter of a small split, but no less than this: following quotes takes some nanoseconds a byte, so that
/// a window larger than the split would cost more than its records do.
const WINDOW_BYTES_MIN: usize = 2 << 10;
/// A window that is smaller for that reason is believed if it has so many lines.
const LINES_MIN: usize = 16;

/// A look from before a split begins so far before it.
const BEFORE_BYTES: u64 = 256 << 10;

/// Guesses that are so far from where they began are kept.
const FAR_BYTES: u64 = 1 << 20;

/// Where long records end, by the files that they are in: for each guess where it began and what it found. The splits
/// that begin within a record that one of them has been through all begin behind it; each would go through the
/// rest of it otherwise, which takes the square of its length.
#[derive(Debug, Default)]
pub(super) struct LongRecords(Mutex<HashMap<usize, BTreeMap<u64, u64>>>);

impl LongRecords {
    /// The likeliest first record start at or behind the start of `range`, which is a split's; the file's size if
    /// there is none.
    pub(super) fn guess(
        &self,
        file: &SourceFile,
        open: &OpenFile,
        grammar: record_boundaries::RecordGrammar,
        range: Range<u64>,
        fields: usize,
    ) -> Result<Guess> {
        let from = range.start;
        let known = |starts: &BTreeMap<u64, u64>| {
            let (_, start) = starts.range(..=from).next_back()?;
            (*start >= from).then_some(*start)
        };
        if let Some(start) = self.0.lock().get(&file.index).and_then(known) {
            return Ok(Guess { start, seen: Vec::new(), is_found: true });
        }
        let guess = guess(file, open, grammar, range, fields)?;
        let start = guess.start;
        if start - from > FAR_BYTES && guess.is_found {
            self.0.lock().entry(file.index).or_default().insert(from, start);
        }
        Ok(guess)
    }
}

/// Where a split's first record is guessed to begin.
#[derive(Debug)]
pub(super) struct Guess {
    pub(super) start: u64,
    /// What was read on the way, from the byte before the split on.
    pub(super) seen: Vec<u8>,
    /// True if a record begins there, or none does up to the end of the file. Else the search was given up.
    is_found: bool,
}

/// Of a split of up to so many bytes all is read for the guess: one read in the place of two.
const READ_WHOLE_BYTES: usize = 64 << 10;

/// The same, without what is known.
fn guess(
    file: &SourceFile,
    open: &OpenFile,
    grammar: record_boundaries::RecordGrammar,
    range: Range<u64>,
    fields: usize,
) -> Result<Guess> {
    // The byte before tells whether a record ends there.
    let base = range.start - 1;
    let is_exact = grammar.is_line_delimited();
    let quarter = usize::try_from((range.end - range.start) / 4).unwrap_or(usize::MAX);
    // Of lines the first end tells all.
    let first = if is_exact { 0 } else { quarter };
    let mut look = first.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES);
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let whole = match open.remote() {
        None if length <= READ_WHOLE_BYTES => 1 + length + blocks::tail_bytes(length),
        _ => 0,
    };
    let mut window = vec![0; look.max(whole)];
    loop {
        let count = open.read_at(&mut window, base)?;
        let seen = &window[..count.min(look)];
        magic::check_cut(file, open, seen)?;
        let is_over = seen.len() < look;
        let is_believed = || {
            let lines = || memchr::memchr_iter(b'\n', seen).take(LINES_MIN).count();
            is_exact || is_over || seen.len() >= WINDOW_BYTES || lines() >= LINES_MIN
        };
        if let Some(start) =
            record_boundaries::guess_record_start(grammar, seen, fields).filter(|_| is_believed())
        {
            window.truncate(count);
            return Ok(Guess { start: base + start as u64, seen: window, is_found: true });
        }
        // Where no record ends here, whoever reads the record before will say so. A split behind this one finds
        // none either, if there is no line end at all.
        if is_over || look > RECORD_BYTES_MAX {
            let is_found = is_over && memchr::memchr(b'\n', seen).is_none();
            return Ok(Guess { start: open.size(), seen: Vec::new(), is_found });
        }
        // One byte more than there are tells that there are no more.
        let left = usize::try_from(open.size().saturating_sub(base)).unwrap_or(usize::MAX);
        look = (4 * look).min(left.saturating_add(1).max(look + 1));
        window.resize(look.max(window.len()), 0);
    }
}

/// Where the first record of a split begins by what stands before it: a record is guessed some way before, and
/// followed from there. None for what is not guessed.
pub(super) fn seen_from_before(
    source: &Source,
    split: &Split,
    cancel: &CancelFlag,
) -> Result<Option<u64>> {
    let Some(piece) = split.pieces.first() else { return Ok(None) };
    let (file, start) = (&piece.file, piece.range.start);
    if start == 0 || source.starts_are_exact() || source.format.is_typed() || !file.is_plain() {
        return Ok(None);
    }
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let open = Arc::new(OpenFile::open(file, ReadPattern::Random, &watch)?);
    let grammar = source.grammar();
    let first = first_record(source, file, &watch)?;
    let mut position = match start.checked_sub(BEFORE_BYTES).filter(|from| *from > first) {
        Some(from) => {
            let fields = source.columns.layout(file.index).fields;
            let to = start.max(from + 4 * WINDOW_BYTES as u64);
            guess(file, &open, grammar, from..to, fields)?.start
        }
        None => first,
    };
    if position >= start {
        return Ok(Some(position));
    }
    let mut input = FileInput::new(open.clone(), position, 0, watch);
    let mut cutter = RecordCutter::new(grammar);
    let mut buffer = vec![0; WINDOW_BYTES];
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

/// Returns the offset of the header, or of the first record, of a file, behind lines that are skipped. A byte-order mark, or
/// a line that says what stands between fields, is as good as a part of the first record where nothing is skipped.
fn first_record(source: &Source, file: &SourceFile, watch: &Watch) -> Result<u64> {
    if file.skip_lines == 0 {
        let open = OpenFile::open(file, ReadPattern::Random, watch)?;
        let mut mark = [0; MARK.len()];
        let count = open.read_at(&mut mark, 0)?;
        return Ok(if mark[..count] == *MARK { MARK.len() as u64 } else { 0 });
    }
    records_at(file, source.ends(), watch)
}

/// Finds where the splits of cut files start.
pub(super) fn find_starts(
    source: &Source,
    splits: &mut [Split],
    cancel: &CancelFlag,
) -> Result<()> {
    let mut at = 0;
    while at < splits.len() {
        let first = at;
        let Some(piece) = splits[first].pieces.first().filter(|piece| !piece.is_whole_file())
        else {
            at += 1;
            continue;
        };
        let file = piece.file.clone();
        while at < splits.len()
            && splits[at].pieces.first().is_some_and(|piece| piece.file.index == file.index)
        {
            at += 1;
        }
        if let Some(format) = source.format.typed() {
            format.find_starts(&mut splits[first..at], cancel)?;
            continue;
        }
        if !file.is_plain() {
            continue;
        }
        let mut wanted = splits[first..at].iter_mut().filter(|s| s.pieces[0].range.start > 0);
        let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
        let mut position = first_record(source, &file, &watch)?;
        let open =
            Arc::new(OpenFile::open(&file, ReadPattern::UntilSplitEnd(file.size()), &watch)?);
        let mut input = FileInput::new(open.clone(), position, 0, watch);
        let mut buffer = vec![0; super::blocks::READ_BYTES];
        let mut cutter = RecordCutter::new(source.grammar());
        let mut next = wanted.next();
        // The last of the splits that begin in skipped lines has the header.
        while let Some(split) = &mut next
            && file.skip_lines > 0
            && split.pieces[0].range.start <= position
        {
            split.exact_start = Some(position);
            next = wanted.next();
        }
        while next.is_some() {
            let count = input.read(&mut buffer)?;
            let mut from = 0;
            while let Some(split) = &mut next {
                // The first record end at or behind the byte before the range.
                let target = split.pieces[0].range.start - 1;
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
                            if split.pieces[0].range.start > start {
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
        open.verify()?;
    }
    Ok(())
}
