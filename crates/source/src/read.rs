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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StructArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tidemill_base::cancel::Cancel;
use tidemill_base::error::{Error, Result};
use tidemill_remote::reader::{FILES_AHEAD, RANGE_BYTES};
use tidemill_text::cut::{self, Cutter};
use tidemill_text::{Bad, Decode, Decoded, FaultKind, Options, Predicate, Test};

use super::blocks::{Block, Blocks, RECORD_BYTES_MAX, record_too_large};
use super::columns::{Layouts, SAME_HINT};
use super::dialect::Mismatch;
use super::fault::Fault;
use super::formats::batches::WantedColumn;
use super::formats::{Decoding, PieceReader, Reading, TextFormat};
use super::input::{Access, ByteInput, FileInput, OpenFile, ReaderInput, Watch};
use super::opener::{self, BadValue, Opened, Opener};
use super::options::ReadOptions;
use super::projection::{self, Projection};
use super::reject::{KEPT_BYTES_MAX, Refused, Rejects};
use super::sample::{column_names, no_header};
use super::stream::{Extent, stream};
use super::{FileLocation, Origin, Piece, Source, SourceFile, Split};

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
}

impl SplitStats {
    /// Counts the refused records: to be called once per split, when its rows are taken.
    ///
    /// # Errors
    /// [`Error::BadRecords`] when there are more than allowed; [`Error::Io`] if a copy cannot
    /// be written.
    pub fn accept(&mut self, rejects: &Rejects) -> Result<()> {
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
/// About what a refused record takes besides its bytes.
const HELD_OVERHEAD_BYTES: usize = 300;
/// What a guess looks at first.
const WINDOW_BYTES: usize = 64 << 10;

/// Reads one split; an iterator of record batches.
///
/// # Verifying a guess
/// If [`is_exact`](Self::is_exact) is false, the start was guessed. When the split before it
/// has been read to its end, its [`SplitStats::end`] is where this one must have started; if
/// [`start`](Self::start) differs, everything that this reader gave, errors included, is void,
/// and the split must be read again with [`ReadOptions::exact_start`].
pub struct SplitReader {
    source: Arc<Source>,
    schema: SchemaRef,
    options: ReadOptions,
    columns: Vec<ColumnOrigin>,
    /// Columns of the files that are read.
    file_columns: Vec<(usize, FieldRef)>,
    /// What opens the records among them, by their positions.
    openers: Vec<(usize, Opener)>,
    /// By position among these.
    predicates: Vec<Predicate>,
    /// What fills up columns of which only parts are read, or that a file does not have.
    nulls: projection::Nulls,
    /// How a file is read that is like the last one.
    found: Option<LayoutColumns>,
    pieces: VecDeque<Piece>,
    decoder: Option<Box<dyn Decode>>,
    current: Option<Current>,
    ready: VecDeque<(RecordBatch, Records)>,
    scratch: Decoded,
    stats: SplitStats,
    held_bytes: usize,
    /// Of blocks that could not be decoded, where these are left out.
    left_out_bytes: u64,
    exact: bool,
    failed: bool,
    split: Split,
}

/// The opened records of a batch, by the positions of their columns; none where a file has none.
type Records = Vec<(usize, Option<StructArray>)>;

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

/// Where a column of the batches comes from.
enum ColumnOrigin {
    /// The folder key of this position.
    Key(usize),
    /// What is read of the file, by its position among that.
    File(usize),
    /// A field of a record, and a column of the file: positions as those.
    Promoted { record: usize, field: String, own: Option<usize> },
}

/// The columns that are read in files of one layout.
struct LayoutColumns {
    layout: usize,
    /// Per column that is read, which of the decoded ones it is; none if it is not there.
    slots: Vec<Option<usize>>,
    /// The decoded ones: their places in the file, and what they become.
    decoded: Vec<(usize, FieldRef)>,
    /// By position among the decoded ones.
    predicates: Vec<Predicate>,
    /// A predicate does not hold of a column that is not there: no row is wanted.
    drops_all: bool,
}

impl LayoutColumns {
    /// What a file has for a column that is read; none if it has nothing.
    fn column<'a>(&self, batch: &'a RecordBatch, at: usize) -> Result<Option<&'a ArrayRef>> {
        match self.slots.get(at) {
            Some(Some(slot)) => batch.columns().get(*slot).map(Some).ok_or_else(lacking),
            Some(None) => Ok(None),
            None => Err(lacking()),
        }
    }
}

fn lacking() -> Error {
    Error::Internal("a batch lacks a column".into())
}

struct Current {
    file: Arc<SourceFile>,
    is_whole: bool,
    keys: Vec<Option<ArrayRef>>,
    body: Body,
}

enum Body {
    Text { blocks: Blocks, open: Option<Arc<OpenFile>>, header: bool },
    Typed(Box<dyn PieceReader>),
}

impl SplitReader {
    pub(super) fn open(source: Arc<Source>, split: &Split, options: &ReadOptions) -> Result<Self> {
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        let projection = options.projection.as_deref().unwrap_or(&all);
        let mut fields = Vec::with_capacity(projection.len());
        let mut columns = Vec::with_capacity(projection.len());
        let mut file_columns: Vec<(usize, FieldRef)> = Vec::new();
        let mut predicates = Vec::new();
        // Per promotion, the column that is read and the fields that are wanted.
        let mut records: BTreeMap<usize, (usize, BTreeMap<String, Projection>)> = BTreeMap::new();
        for &index in projection {
            if let Some(refusal) = source.refusal(index) {
                return Err(refusal);
            }
            let (Some(field), Some(origin)) =
                (source.schema.fields().get(index), source.origins.get(index))
            else {
                return Err(Error::Internal(format!("the source has no column {index}")));
            };
            fields.push(field.clone());
            let parts = options.used.as_ref().and_then(|used| used.get(field.name()));
            let next = file_columns.len();
            columns.push(match origin {
                Origin::Key(index) => ColumnOrigin::Key(*index),
                Origin::File(_) => ColumnOrigin::File(next),
                Origin::Promoted(index) => {
                    let promoted = &source.promoted[*index];
                    let record = source.promotions[promoted.promotion].column;
                    let (at, wanted) = records.entry(promoted.promotion).or_insert_with(|| {
                        file_columns.push((record, source.columns.fields[record].clone()));
                        (next, BTreeMap::new())
                    });
                    let parts = parts.cloned().unwrap_or(Projection::Whole);
                    wanted.insert(promoted.field.clone(), parts);
                    let (record, field) = (*at, promoted.field.clone());
                    let own = promoted.own.map(|own| {
                        file_columns.push((own, source.columns.fields[own].clone()));
                        file_columns.len() - 1
                    });
                    ColumnOrigin::Promoted { record, field, own }
                }
            });
            if let Origin::File(place) = origin {
                let own = options.predicates.iter().filter(|predicate| predicate.column == index);
                predicates
                    .extend(own.map(|own| Predicate { column: file_columns.len(), ..own.clone() }));
                let narrowed = match parts {
                    Some(parts) if source.format.reads_parts() => {
                        projection::narrowed(field, parts)
                    }
                    _ => None,
                };
                file_columns.push((*place, narrowed.unwrap_or_else(|| field.clone())));
            }
        }
        let mut options = options.clone();
        options.batch_rows = options.batch_rows.max(1);
        let mut openers = Vec::with_capacity(records.len());
        for (promotion, (at, wanted)) in records {
            let names: Vec<String> = wanted.keys().cloned().collect();
            let (_, field) = &mut file_columns[at];
            if source.format.reads_parts()
                && let Some(narrowed) = projection::narrowed(field, &Projection::Fields(wanted))
            {
                *field = narrowed;
            }
            let promotion = &source.promotions[promotion];
            openers.push((at, Opener::new(&source, promotion, &names, options.batch_rows)?));
        }
        options.exact_start = options.exact_start.or(split.exact_start);
        let exact = options.exact_start.is_some()
            || source.starts_are_exact()
            || split.pieces.iter().all(|piece| piece.range.start == 0);
        let mut reader = Self {
            schema: Arc::new(Schema::new(fields)),
            source,
            columns,
            file_columns,
            openers,
            predicates,
            nulls: projection::Nulls::default(),
            found: None,
            pieces: split.pieces.iter().cloned().collect(),
            decoder: None,
            current: None,
            ready: VecDeque::new(),
            scratch: Decoded::default(),
            stats: SplitStats::default(),
            held_bytes: 0,
            left_out_bytes: 0,
            exact,
            failed: false,
            split: split.clone(),
            options,
        };
        reader.next_piece()?;
        Ok(reader)
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
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
            if let Some((batch, records)) = self.ready.pop_front() {
                let batch = self.assemble(&batch, &records)?;
                self.stats.rows += batch.num_rows() as u64;
                self.options.progress.add_rows(batch.num_rows() as u64);
                return Ok(Some(batch));
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            self.options.cancel.check()?;
            match &mut current.body {
                Body::Typed(reader) => match reader.next_batch()? {
                    Some(batch) => self.open_records(batch, None)?,
                    None => {
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
        for next in self.pieces.iter().take(FILES_AHEAD) {
            if let FileLocation::Object(object) = &next.file.place
                && !self.source.format.is_typed()
                && next.is_whole_file()
                && next.file.size() <= RANGE_BYTES
            {
                object.fetch_early(next.file.size())?;
            }
        }
        let watch = Watch {
            cancel: self.options.cancel.clone(),
            progress: self.options.progress.clone(),
            ahead: self.options.ahead.clone(),
        };
        let layout = self.source.columns.layout_index(piece.file.index);
        if self.found.as_ref().is_none_or(|found| found.layout != layout) {
            self.found = Some(self.placed(layout)?);
            self.decoder = None;
        }
        let body = if let Some(format) = self.source.format.text() {
            self.open_text(format, &piece, watch)?
        } else if let Some(format) = self.source.format.typed() {
            let Some(metadata) = piece.file.metadata() else {
                return Err(Error::Internal(format!("`{}` was not looked at", piece.file.shown)));
            };
            let (columns, options) = (self.wanted_columns(), &self.options);
            let stdin = self.standard_input(&piece.file, &watch)?;
            let piece = &piece;
            let reader =
                format.open(Reading { piece, metadata, columns, options, watch, stdin })?;
            if let Some(start) = reader.start() {
                self.stats.start.get_or_insert(start);
            }
            Body::Typed(reader)
        } else {
            return Err(Error::Internal(format!("`{}` is of no kind", piece.file.shown)));
        };
        let keys = self
            .columns
            .iter()
            .map(|column| match column {
                ColumnOrigin::File(_) | ColumnOrigin::Promoted { .. } => Ok(None),
                ColumnOrigin::Key(index) => {
                    // As often as the largest batch has rows.
                    let rows = self.options.batch_rows;
                    self.source.key_values(piece.file.index, *index, rows).map(Some)
                }
            })
            .collect::<Result<_>>()?;
        let is_whole = piece.is_whole_file();
        self.current = Some(Current { file: piece.file, is_whole, keys, body });
        Ok(())
    }

    /// Where the wanted columns are in files of a layout.
    fn placed(&self, layout: usize) -> Result<LayoutColumns> {
        let Some(places) = self.source.columns.layouts.get(layout) else {
            return Err(Error::Internal(format!("there is no layout {layout}")));
        };
        let (mut slots, mut decoded) = (Vec::new(), Vec::new());
        for (index, field) in &self.file_columns {
            let place = places.places.get(*index).copied().flatten();
            slots.push(place.map(|_| decoded.len()));
            decoded.extend(place.map(|place| (place, field.clone())));
        }
        let (mut predicates, mut drops_all) = (Vec::new(), false);
        for predicate in &self.predicates {
            match slots.get(predicate.column).copied().flatten() {
                Some(slot) => predicates.push(Predicate { column: slot, ..predicate.clone() }),
                // All of it is null, and so is a comparison with it.
                None => drops_all |= predicate.test != Test::IsNull,
            }
        }
        Ok(LayoutColumns { layout, slots, decoded, predicates, drops_all })
    }

    fn wanted_columns(&self) -> Vec<WantedColumn> {
        let Some(found) = &self.found else { return Vec::new() };
        let present = self.file_columns.iter().zip(&found.slots).filter(|(_, slot)| slot.is_some());
        let columns = present.zip(&found.decoded).map(|(((index, _), _), (place, field))| {
            let shown_by = self.source.columns.shown_by.get(*index).copied().flatten();
            let shown_by = shown_by.and_then(|file| self.source.files.get(file)).cloned();
            WantedColumn { place: *place, field: field.clone(), shown_by }
        });
        columns.collect()
    }

    fn new_decoder(&self, file: &SourceFile) -> Result<Box<dyn Decode>> {
        let Some(found) = &self.found else {
            return Err(Error::Internal("columns are not found yet".into()));
        };
        let Some(format) = self.source.format.text() else {
            return Err(Error::Internal(format!("{} is not text", self.source.format)));
        };
        let text = &self.source.spec.options;
        let decoder = format.decoder(Decoding {
            dialect: &self.source.dialect,
            fields: self.source.columns.layout(file.index).fields,
            columns: found.decoded.clone(),
            written_seconds: file.written_seconds(),
            framing: text.framing.unwrap_or_default(),
            options: Options {
                batch_rows: self.options.batch_rows,
                predicates: found.predicates.clone(),
                strict: text.strict.unwrap_or(false),
                mismatch_is_null: text.mismatch == Some(Mismatch::Null),
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
        let ends = self.source.ends();
        if piece.range.start == 0 {
            let stdin = self.standard_input(file, &watch)?;
            let extent = Extent::Until(piece.range.end);
            let (blocks, open) = stream(file, stdin, format.opened(), ends, watch, extent)?;
            self.stats.start.get_or_insert(0);
            let header = self.source.format.is_delimited() && self.source.dialect.header;
            return Ok(Body::Text { blocks, open, header });
        }
        let open = Arc::new(OpenFile::open(file, Access::Until(piece.range.end), &watch)?);
        let start = match self.options.exact_start {
            Some(start) => start,
            None => guess(
                &open,
                self.source.grammar(),
                piece.range.start,
                self.source.columns.layout(file.index).fields,
            )?,
        };
        self.stats.start.get_or_insert(start);
        let input = FileInput::new(open.clone(), start, piece.range.end, watch.clone());
        // What lies before the start was read by the split before this one, but is counted as
        // this one's.
        watch.progress.add_bytes(start.min(piece.range.end) - piece.range.start);
        let limit = Some(piece.range.end);
        let blocks = Blocks::new(Box::new(input), ends, start, limit);
        Ok(Body::Text { blocks, open: Some(open), header: false })
    }

    /// Decodes a block into `ready`, holding what is refused.
    fn decode(&mut self, block: Block) -> Result<()> {
        let Some(Current { file, body: Body::Text { blocks, header, .. }, .. }) = &mut self.current
        else {
            return Err(Error::Internal("there is no text to decode".into()));
        };
        let Some(decoder) = &mut self.decoder else {
            return Err(Error::Internal("there is no decoder".into()));
        };
        let bytes = blocks.bytes(block);
        if block.is_cut {
            if *header {
                return Err(no_header(file, blocks, block));
            }
            let hint = blocks.large_hint();
            self.held_bytes += KEPT_BYTES_MAX + HELD_OVERHEAD_BYTES;
            self.stats.rejected += 1;
            self.stats.refused.push(Refused {
                file: file.clone(),
                offset: block.offset,
                line: block.line,
                row: None,
                fault: Fault { column: None, reason: record_too_large(), hint: Some(hint.into()) },
                bytes: bytes[..KEPT_BYTES_MAX].to_vec(),
                truncated: true,
            });
            return self.settle_refused();
        }
        let mut at = 0;
        if *header {
            match tidemill_text::csv::first_record(&self.source.dialect, bytes) {
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
        for Bad { range, fault } in out.bad.drain(..) {
            let (mut start, end) = (at + range.start, at + range.end);
            start += self.source.blank_before(&bytes[start..end]);
            if let Some(line) = &mut counted.1 {
                *line += newlines(&bytes[counted.0..start]);
                counted.0 = start;
            }
            let record = &bytes[start..end];
            let kept = &record[..record.len().min(KEPT_BYTES_MAX)];
            self.held_bytes += kept.len() + HELD_OVERHEAD_BYTES;
            self.stats.rejected += 1;
            let other = shown_by(&self.source, file, &fault);
            self.stats.refused.push(Refused {
                file: file.clone(),
                offset: block.offset + start as u64,
                line: counted.1,
                row: None,
                fault: Fault::of(fault, self.source.format.is_delimited(), other),
                bytes: kept.to_vec(),
                truncated: kept.len() < record.len(),
            });
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
        let mut dropped = std::mem::take(&mut self.scratch.dropped);
        if self.found.as_ref().is_some_and(|found| found.drops_all) {
            dropped +=
                self.scratch.batches.drain(..).map(|batch| batch.num_rows() as u64).sum::<u64>();
        }
        self.stats.rows += dropped;
        self.options.progress.add_rows(dropped);
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

    /// Opens the records of a batch; rows with a value that is none are left out and refused.
    fn open_records(&mut self, batch: RecordBatch, mut text: Option<&mut OfBlock>) -> Result<()> {
        let (records, bad) = self.opened(&batch)?;
        if bad.is_empty() {
            self.ready.push_back((batch, records));
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
        let batch = filter_record_batch(&batch, &BooleanArray::from(keep))?;
        if batch.num_rows() > 0 {
            let (records, bad) = self.opened(&batch)?;
            if !bad.is_empty() {
                return Err(Error::Internal("a record is none that was one".into()));
            }
            self.ready.push_back((batch, records));
        }
        Ok(())
    }

    /// The records of a batch; and the values that are none, each with its opener.
    fn opened(&mut self, batch: &RecordBatch) -> Result<(Records, Vec<(usize, BadValue)>)> {
        let (mut records, mut bad) = (Vec::with_capacity(self.openers.len()), Vec::new());
        if self.openers.is_empty() {
            return Ok((records, bad));
        }
        let (Some(current), Some(found)) = (&self.current, &self.found) else {
            return Err(Error::Internal("a batch without a file".into()));
        };
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

    /// Refuses the row of a value, which is of the batch that was opened last.
    fn refuse(&mut self, opener: usize, bad: &BadValue, text: Option<&mut OfBlock>) -> Result<()> {
        let (Some(current), Some((_, opener))) = (&self.current, self.openers.get(opener)) else {
            return Err(Error::Internal("a value without an opener".into()));
        };
        let fault = opener.fault(bad);
        let place = match (&current.body, text) {
            (Body::Text { blocks, .. }, Some(text)) => {
                let records = match &mut text.records {
                    Some(records) => records,
                    none => none.insert(self.records_of(text.block, text.at)?),
                };
                let bytes = blocks.bytes(text.block);
                records.get(text.rows + bad.row).map(|record| {
                    let blank = self.source.blank_before(&bytes[record.clone()]);
                    let start = record.start + blank;
                    let line = text.block.line.map(|line| line + newlines(&bytes[..start]));
                    (text.block.offset + start as u64, line, None, &bytes[start..record.end])
                })
            }
            (Body::Text { .. }, None) => None,
            (Body::Typed(reader), _) => {
                let (row, offset) = reader.row_number(bad.row);
                Some((offset, None, Some(row), opener.value(bad)))
            }
        };
        let Some((offset, line, row, record)) = place else {
            return Err(Error::Internal("a row is of no record".into()));
        };
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
        let (mut out, mut found, mut next) = (Decoded::default(), Vec::new(), 0);
        loop {
            let record = decoder.next_record(bytes, next);
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

    /// Adds the folders' columns, and nulls for those that the file does not have.
    fn assemble(
        &mut self,
        batch: &RecordBatch,
        records: &[(usize, Option<StructArray>)],
    ) -> Result<RecordBatch> {
        let (Some(current), Some(found)) = (&self.current, &self.found) else {
            return Err(Error::Internal("a batch without a file".into()));
        };
        let rows = batch.num_rows();
        let own = |at: usize| found.column(batch, at);
        let mut columns = Vec::with_capacity(self.columns.len());
        for ((column, key), field) in
            self.columns.iter().zip(&current.keys).zip(self.schema.fields())
        {
            columns.push(match (column, key) {
                (ColumnOrigin::Key(_), Some(key)) => key.slice(0, rows.min(key.len())),
                (ColumnOrigin::Key(_), None) => return Err(lacking()),
                (ColumnOrigin::File(at), _) => match own(*at)? {
                    None => self.nulls.get(field.data_type(), rows),
                    Some(column) => projection::widened(column, field.data_type(), &mut self.nulls)
                        .ok_or_else(lacking)?,
                },
                (ColumnOrigin::Promoted { record, field: name, own: column }, _) => {
                    let opened = records.iter().find(|(at, _)| at == record);
                    let inner = opened
                        .and_then(|(_, opened)| opened.as_ref())
                        .and_then(|opened| opener::field(opened, name));
                    let column = column.map(own).transpose()?.flatten().cloned();
                    opener::joined(inner, column, field, rows, &current.file)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))
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

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Another file that shows the column at fault to be of its type.
fn shown_by<'a>(
    source: &'a Source,
    file: &SourceFile,
    fault: &tidemill_text::Fault,
) -> Option<&'a str> {
    let FaultKind::WrongType { .. } = fault.kind else { return None };
    let path = fault.column.as_deref()?;
    let fields = &source.columns.fields;
    let place = |name: &str| fields.iter().position(|field| field.name() == name);
    // Of a nested column the first key of its path.
    let place = place(path).or_else(|| place(path.split(['.', '[']).next().unwrap_or(path)))?;
    let other = source.columns.shown_by.get(place).copied().flatten()?;
    (other != file.index).then(|| source.files.get(other).map(|file| file.shown())).flatten()
}

/// Where files may not differ, every file's header must name the first one's columns, in their
/// order; where they may, headers are known already.
fn check_header(source: &Source, file: &SourceFile, names: Vec<String>) -> Result<()> {
    let columns = &source.columns;
    if source.spec.layouts != Some(Layouts::Same) || file.index == columns.schema_file {
        return Ok(());
    }
    let names = column_names(&source.dialect, names, &file.shown)?;
    let expected = &columns.fields;
    let of = source.files.get(columns.schema_file).map_or("the schema", |file| file.shown());
    let difference = if names.len() != expected.len() {
        Some(format!("it has {} columns instead of {}", names.len(), expected.len()))
    } else {
        names.iter().zip(expected).enumerate().find(|(_, (name, field))| *name != field.name()).map(
            |(index, (name, field))| {
                format!("column {} is `{name}` instead of `{}`", index + 1, field.name())
            },
        )
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

/// The likeliest first record start at or behind `from`; the file's size if there is none.
fn guess(open: &OpenFile, grammar: cut::Grammar, from: u64, fields: usize) -> Result<u64> {
    // The byte before tells whether a record ends there.
    let base = from - 1;
    let mut window = vec![0; WINDOW_BYTES];
    loop {
        let count = open.read_at(&mut window, base)?;
        if let Some(start) = cut::guess_start(grammar, &window[..count], fields) {
            return Ok(base + start as u64);
        }
        if count < window.len() {
            return Ok(open.size());
        }
        if window.len() > RECORD_BYTES_MAX {
            // No record ends here; whoever reads the record before will say so.
            return Ok(open.size());
        }
        window.resize(4 * window.len(), 0);
    }
}

/// Finds where the splits of cut files start.
pub(super) fn find_starts(source: &Source, splits: &mut [Split], cancel: &Cancel) -> Result<()> {
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
        let open = Arc::new(OpenFile::open(&file, Access::Until(file.size()), &watch)?);
        let mut mark = [0; 3];
        let count = open.read_at(&mut mark, 0)?;
        let mut position = if mark[..count] == [0xef, 0xbb, 0xbf] { 3 } else { 0 };
        let mut input = FileInput::new(open.clone(), position, 0, watch);
        let mut buffer = vec![0; super::blocks::READ_BYTES];
        let mut cutter = Cutter::new(source.grammar());
        let mut next = wanted.next();
        while next.is_some() {
            let count = input.read(&mut buffer)?;
            let mut from = 0;
            while let Some(split) = &mut next {
                // The first record end at or behind the byte before the range.
                let target = split.pieces[0].range.start - 1;
                let ahead = usize::try_from(target.saturating_sub(position)).unwrap_or(usize::MAX);
                if ahead > from {
                    let to = ahead.min(count);
                    cutter.last_end(&buffer[from..to]);
                    from = to;
                }
                if from == count {
                    break;
                }
                match cutter.first_end(&buffer[from..count]) {
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
