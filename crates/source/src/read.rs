//! Reading a split: its bytes to record batches, with what was refused on the way.
//!
//! ```text
//!   piece ── Blocks ── Decode ─► batch of file columns ── Opener ─► … ── + key columns ──►
//!                        └─────► bad records ◄──────────────┘
//!                                     └─ held until the split is accepted
//! ```
//!
//! An opener makes records of JSON in a column that is promoted ([`opener`]). A row whose JSON is no
//! record is found there, when nothing tells any more where in the file the row is; so the block's
//! records are then counted off, which costs only files that have such rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StructArray};
use arrow::compute::{filter, filter_record_batch};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use arrow::record_batch::RecordBatch;
use tidemill_base::coverage::format_decimal_bytes;
use tidemill_remote::AccessPlan;
use tidemill_remote::reader::{SMALL_FILE_BYTES_MAX, SMALL_FILES_AHEAD};
use tidemill_text::{
    BlockColumnMismatches, BlockDecoder, BlockUnknownKey, DecodedBlocks, Options,
    RejectedTextRecord, TextFaultKind,
};

use super::assembly::Assembly;
use super::blocks::{Block, Blocks, Ends};
use super::columns::{Layouts, SAME_HINT};
use super::dialect::Mismatch;
use super::error::{Error, Result};
use super::fault::{Fault, Invisible, Whence};
use super::formats::{Decoding, PieceReader, Reading, TextFormat};
use super::hidden::{self, Numbering};
use super::input::{ByteInput, FileInput, OpenFile, ReadPattern, ReaderInput, Watch};
use super::map_keys::with_last_entries;
use super::opener::{BadValue, CountOfRows, Opened, Opener};
use super::options::ReadOptions;
use super::placed_counts::{FirstPlace, PlacedCounts};
use super::reject::{KEPT_BYTES_MAX, Refused, Rejects};
use super::sample::{column_names, fault_hint, no_header};
use super::starts::find_starts;
use super::stream::{Extent, records_at, stream};
use super::{FileLocation, Piece, Source, SourceFile, Split};

/// What a reader has read.
#[derive(Debug, Default)]
pub struct SplitStats {
    /// Good rows.
    pub rows: u64,
    /// Bytes of the split as stored.
    pub bytes: u64,
    /// Refused records, those included that were handed over early.
    pub rejected: u64,
    /// Where the first record of the split starts; none where nothing was read.
    pub start: Option<u64>,
    /// The first record start at or behind the split's end; none before the end is reached.
    pub end: Option<u64>,
    pub(super) refused: Vec<Refused>,
    /// Keys that no column has.
    pub(super) unknown: PlacedCounts,
    /// Values that became null because they are not of their column's type.
    pub(super) mismatches: PlacedCounts,
}

impl SplitStats {
    /// Counts the refused records, the keys that no column has and the values that became null because they are not of
    /// their column's type: to be called once per split, when its rows are taken.
    ///
    /// # Errors
    /// [`Error::BadRecords`] when there are more than allowed; [`Error::Io`] if a copy cannot
    /// be written.
    pub fn accept(&mut self, rejects: &Rejects) -> Result<()> {
        rejects.add_unknown(std::mem::take(&mut self.unknown));
        rejects.add_mismatches(std::mem::take(&mut self.mismatches));
        rejects.add(std::mem::take(&mut self.refused))
    }

    /// Leaves only the first `count` of the refused records, those included that were handed
    /// over early.
    pub fn forget_rejected_after(&mut self, count: u64) {
        let over = self.rejected.saturating_sub(count);
        let kept = (self.refused.len() as u64).saturating_sub(over);
        self.refused.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.rejected = self.rejected.min(count);
    }
}

/// A reader holds so many bytes of refused records, then hands them over if it may.
const HELD_BYTES_MAX: usize = 4 << 20;
/// So many where somebody else counts them.
const GIVEN_BYTES_MAX: usize = 256 << 20;
/// About what a refused record takes besides its bytes.
const HELD_OVERHEAD_BYTES: usize = 300;

/// Reads one split; an iterator of record batches.
///
/// # Verifying a guess
/// If [`is_exact`](Self::is_exact) is false, the start was guessed. When the split before it
/// has been read to its end, its [`SplitStats::end`] is where this one must have started; if
/// [`start`](Self::start) differs, everything that this reader gave, errors included, is void,
/// and the split must be read again with [`ReadOptions::exact_start`].
pub struct SplitReader {
    source: Arc<Source>,
    options: ReadOptions,
    assembly: Assembly,
    /// What opens the records among the columns of files that are read, by their positions.
    openers: Vec<(usize, Opener)>,
    pieces: VecDeque<Piece>,
    decoder: Option<Box<dyn BlockDecoder>>,
    current: Option<Current>,
    ready: VecDeque<Ready>,
    scratch: DecodedBlocks,
    stats: SplitStats,
    held_bytes: usize,
    /// Of blocks that could not be decoded, where these are left out.
    left_out_bytes: u64,
    exact: bool,
    failed: bool,
    split: Split,
    /// Until then what the split reads is kept for it.
    taken: Taken,
}

/// Says that a split has been taken, when it is dropped.
struct Taken(Option<(Arc<AccessPlan>, usize)>);

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some((course, index)) = self.0.take() {
            course.record_taken_task(index);
        }
    }
}

/// The opened records of a batch, by the positions of their columns; none where a file has none.
type Records = Vec<(usize, Option<StructArray>)>;

/// A batch of a file's columns, what was opened of it, and the numbers of its records where these are wanted.
struct Ready {
    batch: RecordBatch,
    records: Records,
    numbers: Option<ArrayRef>,
}

/// The block of text that batches are of.
struct OfBlock {
    block: Block,
    /// Where its records begin: behind the header.
    at: usize,
    /// Rows of it in the batches before.
    rows: usize,
    /// Where the records are that became rows, once that is asked for.
    records: Option<Vec<Range<usize>>>,
}

struct Current {
    file: Arc<SourceFile>,
    is_whole: bool,
    /// What is the same for all its rows, for so many of them.
    keys: Vec<Option<ArrayRef>>,
    keys_rows: usize,
    body: Body,
    /// Where records of text are numbered.
    numbering: Option<Numbering>,
}

/// The place of a row of a batch in its file.
struct RowPlace {
    offset: u64,
    line: Option<u64>,
    row: Option<u64>,
    /// A record of a block of text.
    record: Option<(Block, Range<usize>)>,
}

enum Body {
    Text { blocks: Blocks, open: Option<Arc<OpenFile>>, header: bool },
    Typed(Box<dyn PieceReader>),
}

impl SplitReader {
    pub(super) fn open(source: Arc<Source>, split: &Split, options: &ReadOptions) -> Result<Self> {
        let mut options = options.clone();
        options.batch_rows = options.batch_rows.max(1);
        let (assembly, openers) = Assembly::new(&source, &options)?;
        options.exact_start = options.exact_start.or(split.exact_start);
        let exact = options.exact_start.is_some()
            || source.starts_are_exact()
            || split.pieces.iter().all(|piece| piece.range.start == 0);
        let mut reader = Self {
            source,
            assembly,
            openers,
            pieces: split.pieces.iter().cloned().collect(),
            decoder: None,
            current: None,
            ready: VecDeque::new(),
            scratch: DecodedBlocks::default(),
            stats: SplitStats::default(),
            held_bytes: 0,
            left_out_bytes: 0,
            exact,
            failed: false,
            split: split.clone(),
            taken: Taken(options.course.take()),
            options,
        };
        reader.next_piece()?;
        if reader.pieces.is_empty() {
            // All of it has been claimed by its reader.
            drop(Taken(reader.taken.0.take()));
        }
        Ok(reader)
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.assembly.schema()
    }

    /// Whether the start is known rather than guessed.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Where the first record starts; none for a split without text.
    pub fn start(&self) -> Option<u64> {
        self.stats.start
    }

    /// The first record start at or behind the split's end; none before the end is reached.
    pub fn end(&self) -> Option<u64> {
        self.stats.end
    }

    /// What was read and refused so far.
    pub fn stats(&self) -> &SplitStats {
        &self.stats
    }

    /// What was read, with the refused records that [`SplitStats::accept`] counts.
    pub fn into_stats(self) -> SplitStats {
        self.stats
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(Ready { batch, records, numbers }) = self.ready.pop_front() {
                let Some(current) = &mut self.current else {
                    return Err(Error::Internal("a batch without a file".into()));
                };
                let rows = batch.num_rows();
                if rows > current.keys_rows {
                    // A small piece is not worth the largest batch.
                    let room = rows.next_power_of_two().min(self.options.batch_rows).max(rows);
                    current.keys = self.assembly.keys(&self.source, current.file.index, room)?;
                    current.keys_rows = room;
                }
                let (keys, numbers) = (&current.keys, numbers.as_ref());
                let batch =
                    self.assembly.assemble(&batch, &records, keys, numbers, &current.file)?;
                self.stats.rows += batch.num_rows() as u64;
                self.options.progress.add_rows(batch.num_rows() as u64);
                return Ok(Some(batch));
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            self.options.cancel.check()?;
            match &mut current.body {
                Body::Typed(reader) => match reader.next_batch()? {
                    Some(batch) => {
                        let dropped = reader.take_dropped();
                        self.count_dropped(dropped);
                        self.open_records(with_last_entries(batch)?, None)?;
                    }
                    None => {
                        let dropped = reader.take_dropped();
                        self.stats.rows += dropped;
                        self.options.progress.add_rows(dropped);
                        if let Some(end) = reader.end() {
                            self.stats.end = Some(end);
                        }
                        self.left_out_bytes += reader.left_out_bytes();
                        self.next_piece()?;
                    }
                },
                Body::Text { blocks, header, .. } => match blocks.next_block()? {
                    Some(block) => self.decode(block)?,
                    None => {
                        let end = blocks.position();
                        // The splits behind this one take what they find for records.
                        if *header && !current.is_whole && end < current.file.size() {
                            return Err(Error::Corrupt {
                                path: current.file.shown.to_string(),
                                offset: Some(0),
                                reason: format!("its first {end} bytes are blank lines"),
                                hint: Some("a header is expected at the beginning".into()),
                            });
                        }
                        self.stats.end = Some(end);
                        // Rows belong to the piece that they were read from.
                        if let Some(decoder) = &mut self.decoder {
                            decoder.finish(&mut self.scratch);
                        }
                        self.take_rows(None)?;
                        if self.ready.is_empty() {
                            self.next_piece()?;
                        }
                    }
                },
            }
        }
    }

    /// Ends the current piece and opens the next one.
    fn next_piece(&mut self) -> Result<()> {
        if let Some(Current { body: Body::Text { open: Some(open), .. }, .. }) = &self.current {
            open.verify()?;
        }
        self.current = None;
        let Some(piece) = self.pieces.pop_front() else {
            self.stats.bytes = self.split.bytes.saturating_sub(self.left_out_bytes);
            return Ok(());
        };
        let early = if self.taken.0.is_some() { 0 } else { SMALL_FILES_AHEAD };
        for next in self.pieces.iter().take(early) {
            if let FileLocation::Object(object) = &next.file.place
                && !self.source.format.is_typed()
                && next.is_whole_file()
                && next.file.size() <= SMALL_FILE_BYTES_MAX
            {
                object.start_early_fetch(next.file.size())?;
            }
        }
        let watch = Watch {
            cancel: self.options.cancel.clone(),
            progress: self.options.progress.clone(),
            ahead: self.options.ahead.clone(),
            eager: self.options.eager,
            ..Watch::default()
        };
        let layout = self.source.columns.layout_index(piece.file.index);
        if self.assembly.turn_to(&self.source, layout)? {
            self.decoder = None;
        }
        let mut body = if let Some(format) = self.source.format.text() {
            self.open_text(format, &piece, watch)?
        } else if let Some(format) = self.source.format.typed() {
            let Some(metadata) = piece.file.metadata() else {
                return Err(Error::Internal(format!("`{}` was not looked at", piece.file.shown)));
            };
            let (columns, options) = (self.assembly.wanted_columns(&self.source), &self.options);
            let stdin = self.standard_input(&piece.file, &watch)?;
            let (piece, predicates) = (&piece, &self.assembly.layout()?.predicates);
            let reader = format.open(Reading {
                piece,
                metadata,
                columns,
                predicates,
                options,
                watch,
                stdin,
            })?;
            if let Some(start) = reader.start() {
                self.stats.start.get_or_insert(start);
            }
            Body::Typed(reader)
        } else {
            return Err(Error::Internal(format!("`{}` is of no kind", piece.file.shown)));
        };
        if let Body::Text { blocks, .. } = &mut body {
            let decoded = &self.assembly.layout()?.decoded;
            let leaves = decoded.iter().map(|(_, field)| leaf_count(field.data_type())).sum();
            blocks.set_column_count(leaves);
        }
        let keys_rows = 1;
        let keys = self.assembly.keys(&self.source, piece.file.index, keys_rows)?;
        let is_whole = piece.is_whole_file();
        let numbering = match (&body, self.assembly.is_numbered()) {
            (Body::Text { .. }, true) if piece.range.start > 0 => {
                return Err(Error::Internal(
                    "records are numbered from the middle of a text".into(),
                ));
            }
            (Body::Text { .. }, true) => Some(Numbering::default()),
            _ => None,
        };
        self.current =
            Some(Current { file: piece.file, is_whole, keys, keys_rows, body, numbering });
        Ok(())
    }

    fn new_decoder(&self, file: &SourceFile) -> Result<Box<dyn BlockDecoder>> {
        let found = self.assembly.layout()?;
        let Some(format) = self.source.format.text() else {
            return Err(Error::Internal(format!("{} is not text", self.source.format)));
        };
        let text = &self.source.spec.options;
        let mismatch_is_null = text.mismatch == Some(Mismatch::Null);
        // Mismatches are counted in all rows, whatever a query's conditions keep and where they are checked.
        let predicates = if mismatch_is_null { Vec::new() } else { found.predicates.clone() };
        let decoder = format.decoder(Decoding {
            dialect: &self.source.dialect,
            log: &self.source.log,
            fields: self.source.columns.layout(file.index).fields,
            columns: found.decoded.clone(),
            written_seconds: file.written_seconds(),
            framing: text.framing.unwrap_or_default(),
            options: Options {
                batch_rows: self.options.batch_rows,
                predicates,
                inferred_columns: found.inferred.clone(),
                known_keys: self.source.known_keys(),
                checks_skipped_values: text.strict.unwrap_or(false),
                mismatch_is_null,
            },
        });
        decoder.map_err(|field| {
            Error::Internal(format!("column `{}` cannot be {}", field.name(), field.data_type()))
        })
    }

    /// Standard input from its beginning; none for a file.
    fn standard_input(
        &self,
        file: &SourceFile,
        watch: &Watch,
    ) -> Result<Option<Box<dyn ByteInput>>> {
        if !file.is_stdin() {
            return Ok(None);
        }
        let Some(pending) = self.source.stdin.lock().take() else {
            return Err(Error::usage_hint(
                format!("{} can be read only once", file.shown),
                "a query that reads it twice needs a file",
            ));
        };
        let (taken, reader, watch) = (pending.taken, pending.reader, watch.clone());
        let input = ReaderInput::new(taken, reader, file.shown.clone(), watch);
        Ok(Some(Box::new(input)))
    }

    fn open_text(&mut self, format: &dyn TextFormat, piece: &Piece, watch: Watch) -> Result<Body> {
        let file = &piece.file;
        if self.decoder.is_none() || format.depends_on_file() {
            self.decoder = Some(self.new_decoder(file)?);
        }
        // A file that was cut has a record per line.
        let ends = match self.source.ends() {
            Ends::Json if !piece.is_whole_file() => self.source.grammar().into(),
            ends => ends,
        };
        let has_header = self.source.format.is_delimited() && self.source.dialect.header;
        // That it can be cut was believed of what is elsewhere, where there is a deadline.
        let is_believed =
            self.source.asking.is_some() && !file.is_local() && !piece.is_whole_file();
        if piece.range.start == 0 {
            if is_believed {
                check_cut(format, file, &watch)?;
            }
            let stdin = self.standard_input(file, &watch)?;
            let extent = Extent::Until(piece.range.end);
            let (blocks, open) = stream(file, stdin, ends, watch, extent)?;
            self.stats.start.get_or_insert(0);
            // Lines that are skipped may go on behind the split's end, and the header behind them.
            let is_ours = file.skip_lines == 0
                || piece.is_whole_file()
                || blocks.position() < piece.range.end;
            return Ok(Body::Text { blocks, open, header: has_header && is_ours });
        }
        if file.skip_lines > 0 {
            let first = records_at(file, ends, &watch)?;
            if piece.range.start <= first {
                return self.open_below_skipped(piece, first, watch);
            }
        }
        let open =
            Arc::new(OpenFile::open(file, ReadPattern::UntilSplitEnd(piece.range.end), &watch)?);
        open.start_at(piece.range.start)?;
        let (start, seen) = match self.options.exact_start {
            Some(start) => (start, Vec::new()),
            None => {
                let guess = self.source.long_records.guess(
                    file,
                    &open,
                    self.source.grammar(),
                    piece.range.clone(),
                    self.source.columns.layout(file.index).fields,
                )?;
                if is_believed && !format.shows_cut(&guess.seen) {
                    check_cut(format, file, &watch)?;
                }
                (guess.start, guess.seen)
            }
        };
        self.stats.start.get_or_insert(start);
        let input = FileInput::new(open.clone(), start, piece.range.end, watch.clone())
            .with_seen(piece.range.start - 1, seen);
        // What lies before the start was read by the split before this one, but is counted as
        // this one's.
        watch.progress.add_bytes(start.min(piece.range.end) - piece.range.start);
        let limit = Some(piece.range.end);
        let blocks = Blocks::new(Box::new(input), ends, start, limit);
        Ok(Body::Text { blocks, open: Some(open), header: false })
    }

    /// Opens a piece that begins in lines that are skipped, or right behind them; the file's header is at `first`.
    fn open_below_skipped(&mut self, piece: &Piece, first: u64, watch: Watch) -> Result<Body> {
        let open = Arc::new(OpenFile::open(
            &piece.file,
            ReadPattern::UntilSplitEnd(piece.range.end),
            &watch,
        )?);
        open.start_at(first.min(piece.range.end))?;
        self.stats.start.get_or_insert(first);
        watch.progress.add_bytes(first.min(piece.range.end) - piece.range.start);
        let input = FileInput::new(open.clone(), first, piece.range.end, watch);
        let limit = Some(piece.range.end);
        let blocks = Blocks::new(Box::new(input), self.source.ends(), first, limit);
        let has_header = self.source.format.is_delimited() && self.source.dialect.header;
        let header = has_header && first < piece.range.end;
        Ok(Body::Text { blocks, open: Some(open), header })
    }

    /// Decodes a block into `ready`, holding what is refused.
    fn decode(&mut self, block: Block) -> Result<()> {
        let Some(Current { file, body: Body::Text { blocks, header, .. }, numbering, .. }) =
            &mut self.current
        else {
            return Err(Error::Internal("there is no text to decode".into()));
        };
        let Some(decoder) = &mut self.decoder else {
            return Err(Error::Internal("there is no decoder".into()));
        };
        let bytes = blocks.bytes(block);
        if let Some(fault) = block.fault {
            // Behind NULs at the end nothing is to be named by a header.
            if *header && !fault.is_nuls() {
                return Err(no_header(file, blocks, block, fault));
            }
            *header = false;
            if let Some(numbering) = numbering {
                numbering.refused(0);
            }
            let kept = &bytes[..bytes.len().min(KEPT_BYTES_MAX)];
            let hint = fault_hint(file, blocks, block, fault);
            self.held_bytes += kept.len() + HELD_OVERHEAD_BYTES;
            self.stats.rejected += 1;
            self.stats.refused.push(Refused {
                file: file.clone(),
                offset: block.offset,
                line: block.line,
                row: None,
                fault: Fault { column: None, reason: fault.reason(bytes.len()), hint: Some(hint) },
                bytes: kept.to_vec(),
                truncated: true,
            });
            return self.settle_refused();
        }
        let mut at = 0;
        if *header {
            match tidemill_text::csv::read_first_record(&self.source.dialect, bytes) {
                // Only blank lines and comments so far.
                None => return Ok(()),
                Some((names, used)) => {
                    check_header(&self.source, file, names)?;
                    *header = false;
                    at = used;
                }
            }
        }
        let out = &mut self.scratch;
        decoder.push(&bytes[at..], out);
        // Once a batch has rows of several blocks, nothing tells where one of them is.
        let may_refuse = self.openers.iter().any(|(_, opener)| opener.may_refuse());
        if may_refuse {
            decoder.finish(out);
        }
        let mut counted = (0, block.line);
        for RejectedTextRecord { range, fault, rows_before } in out.rejected.drain(..) {
            if let Some(numbering) = numbering {
                numbering.refused(rows_before);
            }
            let (mut start, end) = (at + range.start, at + range.end);
            start += self.source.blank_before(&bytes[start..end]);
            if let Some(line) = &mut counted.1 {
                *line += blocks.line_ends(block, counted.0..start);
                counted.0 = start;
            }
            let record = blocks.written(block, start..end);
            let kept = &record[..record.len().min(KEPT_BYTES_MAX)];
            self.held_bytes += kept.len() + HELD_OVERHEAD_BYTES;
            self.stats.rejected += 1;
            let whence = Whence {
                format: self.source.format,
                columns: &self.source.columns.fields,
                log: &self.source.log,
                other: shown_by(&self.source, file, &fault),
                may_be_comment: self.source.may_have_comments(record),
                likely_header: self.source.likely_header,
                invisible: Invisible::of(record),
            };
            self.stats.refused.push(Refused {
                file: file.clone(),
                offset: blocks.offset(block, start),
                line: counted.1,
                row: None,
                fault: Fault::of(fault, &whence),
                bytes: kept.to_vec(),
                truncated: kept.len() < record.len(),
            });
        }
        if let Some(numbering) = numbering {
            numbering.found(out.rows);
        }
        let first = |place: usize, known: Option<&FirstPlace>| {
            if known.is_some_and(|known| Arc::ptr_eq(&known.file, file)) {
                return None;
            }
            let offset = blocks.offset(block, at + place);
            let line = block.line.map(|line| line + blocks.line_ends(block, 0..at + place));
            Some(FirstPlace { file: Arc::clone(file), offset, line, row: None })
        };
        self.stats.unknown.others += std::mem::take(&mut out.unknown_key_overflow_count);
        for BlockUnknownKey { path, column: within, count, first_offset: at } in
            out.unknown_keys.drain(..)
        {
            self.stats.unknown.add(&path, within.as_ref(), count, |known| first(at, known));
        }
        for BlockColumnMismatches { column, count, first_offset: at } in out.mismatches.drain(..) {
            if let Some((_, field)) = self.assembly.layout()?.decoded.get(column) {
                let name = field.name();
                self.stats.mismatches.add(name, None, count, |known| first(at, known));
            }
        }
        if self.options.eager && !may_refuse {
            decoder.finish(out);
        }
        let text = may_refuse.then_some(OfBlock { block, at, rows: 0, records: None });
        self.take_rows(text)?;
        self.settle_refused()
    }

    /// Looks whether what was refused is too much, and hands it over if it is too much to hold.
    fn settle_refused(&mut self) -> Result<()> {
        if self.stats.refused.is_empty() {
            return Ok(());
        }
        let rejects = self.options.rejects.clone();
        if rejects.would_exceed(self.stats.refused.len() as u64) {
            // They are counted when the split is accepted: it may not be, past a limit.
            return Err(rejects.exceeded_by(&self.stats.refused));
        }
        if rejects.are_held() {
            return match self.held_bytes > GIVEN_BYTES_MAX {
                true => Err(Error::usage_hint(
                    format!(
                        "more than {} of one split are malformed records, and a worker holds them all until the \
                         split is read",
                        format_decimal_bytes(GIVEN_BYTES_MAX as u64)
                    ),
                    "look at a few of them first: tidemill query over one of the files",
                )),
                false => Ok(()),
            };
        }
        if self.held_bytes > HELD_BYTES_MAX {
            if !self.exact {
                self.confirm_start()?;
            }
            self.held_bytes = 0;
            rejects.add(std::mem::take(&mut self.stats.refused))?;
        }
        Ok(())
    }

    /// Takes over the batches that are full, and counts the rows that are in none.
    fn take_rows(&mut self, mut text: Option<OfBlock>) -> Result<()> {
        let mut dropped = std::mem::take(&mut self.scratch.filtered_rows);
        if self.assembly.layout().is_ok_and(|layout| layout.drops_all) {
            dropped +=
                self.scratch.batches.drain(..).map(|batch| batch.num_rows() as u64).sum::<u64>();
        }
        self.count_dropped(dropped);
        let mut batches = std::mem::take(&mut self.scratch.batches);
        self.scratch.clear();
        for batch in batches.drain(..) {
            let rows = batch.num_rows();
            self.open_records(batch, text.as_mut())?;
            if let Some(text) = &mut text {
                text.rows += rows;
            }
        }
        self.scratch.batches = batches;
        Ok(())
    }

    /// Counts rows that are in no batch.
    fn count_dropped(&mut self, dropped: u64) {
        self.stats.rows += dropped;
        self.options.progress.add_rows(dropped);
    }

    /// Opens the records of a batch; rows with a value that is none are left out and refused.
    fn open_records(&mut self, batch: RecordBatch, mut text: Option<&mut OfBlock>) -> Result<()> {
        let numbers = self.numbers(batch.num_rows())?;
        let (records, bad) = self.opened(&batch)?;
        if bad.is_empty() {
            self.count_of_records(text, |row| row)?;
            self.ready.push_back(Ready { batch, records, numbers });
            return Ok(());
        }
        let mut keep = vec![true; batch.num_rows()];
        for (opener, bad) in bad {
            // A row is refused once, whatever else is wrong with it.
            if keep.get_mut(bad.row).is_some_and(std::mem::take) {
                self.refuse(opener, &bad, text.as_deref_mut())?;
            }
        }
        self.settle_refused()?;
        // The other rows are opened once more.
        self.openers.iter_mut().for_each(|(_, opener)| opener.forget_counts());
        let rows: Vec<usize> = (0..keep.len()).filter(|row| keep[*row]).collect();
        let keep = BooleanArray::from(keep);
        let batch = filter_record_batch(&batch, &keep)?;
        let numbers = numbers.map(|numbers| filter(&numbers, &keep)).transpose()?;
        if batch.num_rows() > 0 {
            let (records, bad) = self.opened(&batch)?;
            if !bad.is_empty() {
                return Err(Error::Internal("a record is none that was one".into()));
            }
            self.count_of_records(text, |row| rows.get(row).copied().unwrap_or(row))?;
            self.ready.push_back(Ready { batch, records, numbers });
        }
        Ok(())
    }

    /// The numbers of the next records that became rows, where they are wanted.
    fn numbers(&mut self, rows: usize) -> Result<Option<ArrayRef>> {
        if !self.assembly.is_numbered() {
            return Ok(None);
        }
        let Some(Current { body, numbering, .. }) = &mut self.current else {
            return Err(Error::Internal("a batch without a file".into()));
        };
        Ok(Some(match (body, numbering) {
            (Body::Typed(reader), _) => hidden::of_rows(reader.as_ref(), rows)?,
            (Body::Text { .. }, Some(numbering)) => numbering.next(rows),
            (Body::Text { .. }, None) => {
                return Err(Error::Internal("records are not numbered".into()));
            }
        }))
    }

    /// The records of a batch; and the values that are none, each with its opener.
    fn opened(&mut self, batch: &RecordBatch) -> Result<(Records, Vec<(usize, BadValue)>)> {
        let (mut records, mut bad) = (Vec::with_capacity(self.openers.len()), Vec::new());
        if self.openers.is_empty() {
            return Ok((records, bad));
        }
        let Some(current) = &self.current else {
            return Err(Error::Internal("a batch without a file".into()));
        };
        let found = self.assembly.layout()?;
        for (index, (at, opener)) in self.openers.iter_mut().enumerate() {
            let column = found.column(batch, *at)?;
            let opened = column.map(|column| opener.open(column, &current.file)).transpose()?;
            let opened = match opened {
                Some(Opened::Records(opened)) => Some(opened),
                Some(Opened::Bad(values)) => {
                    bad.extend(values.into_iter().map(|value| (index, value)));
                    None
                }
                None => None,
            };
            records.push((*at, opened));
        }
        Ok((records, bad))
    }

    /// Counts, of the records that were opened last, the keys that no column has and the values that became null because
    /// they are not of their column's type. `row_of` says which row of the block or batch a record is in.
    fn count_of_records(
        &mut self,
        mut text: Option<&mut OfBlock>,
        row_of: impl Fn(usize) -> usize,
    ) -> Result<()> {
        for at in 0..self.openers.len() {
            let Some((_, opener)) = self.openers.get_mut(at) else { continue };
            let (keys, others) = opener.take_unknown();
            let column: Arc<str> = opener.name().into();
            let mismatches = opener.take_mismatches();
            self.stats.unknown.others += others;
            for CountOfRows { path, count, row } in keys {
                let known = self.stats.unknown.counts.get(&path);
                let known = known.map(|known| known.first.clone());
                let first = self.first_place(known, row_of(row), text.as_deref_mut())?;
                self.stats.unknown.add(&path, Some(&column), count, |_| first);
            }
            for CountOfRows { path, count, row } in mismatches {
                let known = self.stats.mismatches.counts.get(&path);
                let known = known.map(|known| known.first.clone());
                let first = self.first_place(known, row_of(row), text.as_deref_mut())?;
                self.stats.mismatches.add(&path, None, count, |_| first);
            }
        }
        Ok(())
    }

    /// Returns the place that is known, or else the place of a row.
    fn first_place(
        &self,
        known: Option<FirstPlace>,
        row: usize,
        text: Option<&mut OfBlock>,
    ) -> Result<Option<FirstPlace>> {
        // Readers go forwards.
        if known.is_some() {
            return Ok(known);
        }
        let place = self.row_place(row, text)?;
        Ok(self.current.as_ref().map(|current| FirstPlace {
            file: Arc::clone(&current.file),
            offset: place.offset,
            line: place.line,
            row: place.row,
        }))
    }

    /// Returns the place of a row: of text in a block, the rows before it aside, else in the last batch.
    fn row_place(&self, row: usize, text: Option<&mut OfBlock>) -> Result<RowPlace> {
        let Some(current) = &self.current else {
            return Err(Error::Internal("a row without a file".into()));
        };
        let place = match (&current.body, text) {
            (Body::Text { blocks, .. }, Some(text)) => {
                let records = match &mut text.records {
                    Some(records) => records,
                    none => none.insert(self.records_of(text.block, text.at)?),
                };
                let bytes = blocks.bytes(text.block);
                records.get(text.rows + row).map(|record| {
                    let start = record.start + self.source.blank_before(&bytes[record.clone()]);
                    let line = text.block.line;
                    RowPlace {
                        offset: blocks.offset(text.block, start),
                        line: line.map(|line| line + blocks.line_ends(text.block, 0..start)),
                        row: None,
                        record: Some((text.block, start..record.end)),
                    }
                })
            }
            (Body::Text { .. }, None) => None,
            (Body::Typed(reader), _) => {
                let (row, offset) = reader.row_number(row);
                Some(RowPlace { offset, line: None, row: Some(row), record: None })
            }
        };
        place.ok_or_else(|| Error::Internal("a row is of no record".into()))
    }

    /// Refuses the row of a value, which is of the batch that was opened last.
    fn refuse(&mut self, opener: usize, bad: &BadValue, text: Option<&mut OfBlock>) -> Result<()> {
        let place = self.row_place(bad.row, text)?;
        let (Some(current), Some((_, opener))) = (&self.current, self.openers.get(opener)) else {
            return Err(Error::Internal("a value without an opener".into()));
        };
        let fault = opener.fault(bad);
        let record = match (&current.body, place.record) {
            (Body::Text { blocks, .. }, Some((block, record))) => blocks.written(block, record),
            _ => opener.value(bad),
        };
        let RowPlace { offset, line, row, .. } = place;
        let kept = &record[..record.len().min(KEPT_BYTES_MAX)];
        self.held_bytes += kept.len() + HELD_OVERHEAD_BYTES;
        self.stats.rejected += 1;
        self.stats.refused.push(Refused {
            file: current.file.clone(),
            offset,
            line,
            row,
            fault,
            bytes: kept.to_vec(),
            truncated: kept.len() < record.len(),
        });
        if self.held_bytes > HELD_BYTES_MAX {
            self.settle_refused()?;
        }
        Ok(())
    }

    /// Where those records of a block are that become rows: each is read by itself.
    fn records_of(&self, block: Block, at: usize) -> Result<Vec<Range<usize>>> {
        let Some(Current { file, body: Body::Text { blocks, .. }, .. }) = &self.current else {
            return Err(Error::Internal("there is no text to look at".into()));
        };
        let bytes = &blocks.bytes(block)[at..];
        let mut decoder = self.new_decoder(file)?;
        let (mut out, mut found, mut next) = (DecodedBlocks::default(), Vec::new(), 0);
        loop {
            let record = decoder.next_record_range(bytes, next);
            if record.is_empty() {
                return Ok(found);
            }
            next = record.end;
            out.clear();
            decoder.decode(&bytes[record.clone()], &mut out);
            if !out.batches.is_empty() {
                found.push(at + record.start..at + record.end);
            }
        }
    }

    /// Finds out whether the start was guessed rightly, so that what is held can be handed over.
    ///
    /// # Errors
    /// Those of reading; and where the guess was wrong an error that is void with all the rest.
    fn confirm_start(&mut self) -> Result<()> {
        let mut split = self.split.clone();
        find_starts(&self.source, std::slice::from_mut(&mut split), &self.options.cancel)?;
        if split.exact_start != self.stats.start {
            return Err(Error::Internal("a split begins elsewhere than was guessed".into()));
        }
        self.exact = true;
        Ok(())
    }
}

impl Iterator for SplitReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_batch().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

/// Returns the number of columns of single values in a column of a type.
fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        DataType::List(item) | DataType::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}

/// Another file that shows the column at fault to be of its type.
fn shown_by<'a>(
    source: &'a Source,
    file: &SourceFile,
    fault: &tidemill_text::TextFault,
) -> Option<&'a str> {
    let TextFaultKind::WrongType { .. } = fault.kind else { return None };
    let path = fault.column.as_deref()?;
    let fields = &source.columns.fields;
    let place = |name: &str| fields.iter().position(|field| field.name() == name);
    // Of a nested column the first key of its path.
    let place = place(path).or_else(|| place(path.split(['.', '[']).next().unwrap_or(path)))?;
    let other = source.columns.shown_by.get(place).copied().flatten()?;
    (other != file.index).then(|| source.files.get(other).map(|file| file.shown())).flatten()
}

/// Where files may not differ, every file's header must name the first one's columns, in their
/// order; where they may, headers are known already, but for that of a file which did not answer when they were
/// looked at.
fn check_header(source: &Source, file: &SourceFile, names: Vec<String>) -> Result<()> {
    let columns = &source.columns;
    let is_unknown = source.spec.layouts == Some(Layouts::Same) || file.is_unseen();
    if !is_unknown || file.index == columns.schema_file {
        return Ok(());
    }
    let names = column_names(&source.dialect, names);
    let layout = columns.layout(file.index);
    let mut placed: Vec<(usize, &FieldRef)> = layout
        .places
        .iter()
        .zip(&columns.fields)
        .filter_map(|(place, field)| Some(((*place)?, field)))
        .collect();
    placed.sort_unstable_by_key(|(place, _)| *place);
    let expected: Vec<&FieldRef> = placed.into_iter().map(|(_, field)| field).collect();
    let of = source.files.get(columns.schema_file).map_or("the schema", |file| file.shown());
    let difference = if names.len() != expected.len() {
        Some(format!("it has {} columns instead of {}", names.len(), expected.len()))
    } else {
        names
            .iter()
            .zip(&expected)
            .enumerate()
            .find(|(_, (name, field))| *name != field.name())
            .map(|(index, (name, field))| {
                format!("column {} is `{name}` instead of `{}`", index + 1, field.name())
            })
    };
    let Some(difference) = difference else { return Ok(()) };
    let missing: Vec<&str> = expected
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| !names.iter().any(|own| own == name))
        .collect();
    let added: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !expected.iter().any(|field| field.name() == name))
        .collect();
    let mut reason = format!("its header is another: {difference}");
    for (what, names) in [("missing", missing), ("added", added)] {
        if !names.is_empty() {
            reason.push_str(&format!("; {what}: {}", names.join(", ")));
        }
    }
    Err(Error::Differ {
        path: file.shown.to_string(),
        other: of.to_owned(),
        reason,
        hint: Some(SAME_HINT.into()),
    })
}

/// Refuses a file that was cut because others can be, and is read front to back.
fn check_cut(format: &dyn TextFormat, file: &SourceFile, watch: &Watch) -> Result<()> {
    match format.is_whole(file, watch)? {
        false => Ok(()),
        true => Err(Error::Corrupt {
            path: file.shown().to_owned(),
            offset: None,
            reason: "its objects are not one per line, and it is read from its beginning to its end; others are not"
                .into(),
            hint: Some(
                "leave it out; without --deadline and --drop the beginning of each file is looked at first"
                    .into(),
            ),
        }),
    }
}
