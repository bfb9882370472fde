//! Reader of a split: decodes its bytes to record batches, and collects rejected records.
//!
//! ```text
//!   part ── BlockReader ── Decode ─► batch of file columns ── RecordExtractor ─► … ── + key columns ──►
//!                            └─────► rejected records ◄─────────────┘
//!                                         └─ held until the split is accepted
//! ```
//!
//! An extractor reads JSON records in a promoted column ([`promoted_records`](crate::schema::promoted_records)). It
//! finds rows whose JSON is no record, when their position in the file is no longer known. The reader then
//! locates them by counting the block's records again, which costs only files that have such rows.

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

use crate::error::{Error, Result};
use crate::files::byte_input::{
    ByteInput, ByteReadContext, FileInput, OpenFile, ReadPattern, ReaderInput,
};
use crate::formats::{DecoderSpec, SplitPartReader, SplitPartRequest, TextFormat};
use crate::read_options::ReadOptions;
use crate::rejects::occurrence_counts::{OccurrenceCounts, OccurrenceLocation};
use crate::rejects::record_fault::{FaultContext, InvisibleBytes, RecordFault};
use crate::rejects::reject_log::{REJECT_COPY_BYTES_MAX, RejectLog, RejectedRecord};
use crate::schema::column_layouts::{ColumnLayoutPolicy, SAME_LAYOUT_HINT};
use crate::schema::distinct_map_keys::keep_last_map_entries;
use crate::schema::hidden_columns::{self, RecordNumbering};
use crate::schema::promoted_records::{
    ExtractedRecords, InvalidRecordValue, PromotedFieldCount, RecordExtractor,
};
use crate::schema::source_sample::{block_fault_hint, column_names, no_header_error};
use crate::schema::text_options::TypeMismatchPolicy;
use crate::splits::batch_assembly::BatchAssembler;
use crate::splits::split_boundaries::find_exact_boundaries;
use crate::splits::text_blocks::{BlockReader, RecordFraming, TextBlock};
use crate::splits::text_stream::{ReadExtent, find_records_offset, open_text_blocks};
use crate::{FileLocation, Source, SourceFile, Split, SplitPart};

/// Statistics of a split that a reader has read.
#[derive(Debug, Default)]
pub struct SplitStats {
    /// Number of good rows.
    pub rows: u64,
    /// Stored bytes of the split.
    pub bytes: u64,
    /// Number of rejected records, including those that were handed over early.
    pub rejected_count: u64,
    /// Start of the split's first record; none if nothing was read.
    pub first_record_offset: Option<u64>,
    /// First record start at or behind the split's end; none before the end is reached.
    pub next_record_offset: Option<u64>,
    pub(crate) rejected_records: Vec<RejectedRecord>,
    /// Occurrences of unknown keys.
    pub(crate) unknown_keys: OccurrenceCounts,
    /// Type mismatches.
    pub(crate) mismatches: OccurrenceCounts,
}

impl SplitStats {
    /// Commits the rejected records, unknown keys and type mismatches to the run's log. Must be called once
    /// per split, when its rows are accepted.
    ///
    /// # Errors
    /// [`Error::BadRecords`] if there are more than allowed; [`Error::Io`] if a copy cannot be written.
    pub fn commit_to(&mut self, rejects: &RejectLog) -> Result<()> {
        rejects.add_unknown_keys(std::mem::take(&mut self.unknown_keys));
        rejects.add_mismatches(std::mem::take(&mut self.mismatches));
        rejects.add_records(std::mem::take(&mut self.rejected_records))
    }

    /// Keeps only the first `count` rejected records, including those that were handed over early.
    pub fn truncate_rejected(&mut self, count: u64) {
        let over = self.rejected_count.saturating_sub(count);
        let kept = (self.rejected_records.len() as u64).saturating_sub(over);
        self.rejected_records.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.rejected_count = self.rejected_count.min(count);
    }
}

/// Bytes of rejected records that a reader holds before it hands them over early, if possible.
const HELD_REJECT_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of held records if another process counts them.
const DEFERRED_REJECT_BYTES_MAX: usize = 256 << 20;
/// Approximate memory of a rejected record in addition to its bytes.
const REJECT_OVERHEAD_BYTES: usize = 300;

/// Reads one split; an iterator of record batches.
///
/// # Verifying a guess
/// If [`is_start_exact`](Self::is_start_exact) is false, the start was guessed. When the split before it has
/// been read to its end, its [`SplitStats::next_record_offset`] is the true start of this one. If
/// [`first_record_offset`](Self::first_record_offset) differs, everything that this reader returned, errors
/// included, is void. The split must then be read again with [`ReadOptions::exact_start`].
pub struct SplitReader {
    source: Arc<Source>,
    options: ReadOptions,
    assembly: BatchAssembler,
    /// Extractors of promoted records, with the positions of their columns among the columns that are read.
    extractors: Vec<(usize, RecordExtractor)>,
    remaining_parts: VecDeque<SplitPart>,
    decoder: Option<Box<dyn BlockDecoder>>,
    current_part: Option<CurrentPart>,
    ready_batches: VecDeque<DecodedBatch>,
    scratch: DecodedBlocks,
    stats: SplitStats,
    held_reject_bytes: usize,
    /// Bytes of skipped rowfile blocks that could not be decoded.
    skipped_bytes: u64,
    is_start_exact: bool,
    has_failed: bool,
    split: Split,
    /// Keeps the split's prefetched bytes until it is dropped.
    taken_guard: SplitTakenGuard,
}

/// Announces to the access plan, when dropped, that a split was taken.
struct SplitTakenGuard(Option<(Arc<AccessPlan>, usize)>);

impl Drop for SplitTakenGuard {
    fn drop(&mut self) {
        if let Some((course, index)) = self.0.take() {
            course.record_taken_task(index);
        }
    }
}

/// Extracted records of a batch, by the positions of their columns; none for a file without the column.
type ExtractedColumns = Vec<(usize, Option<StructArray>)>;

/// A batch of a file's columns with its extracted records, and record numbers if these are wanted.
struct DecodedBatch {
    batch: RecordBatch,
    records: ExtractedColumns,
    numbers: Option<ArrayRef>,
}

/// The text block that batches belong to, for locating their rows.
struct TextBlockRows {
    block: TextBlock,
    /// Start of the block's records, behind the header.
    records_start: usize,
    /// Number of the block's rows in previous batches.
    rows_before: usize,
    /// Ranges of the records that became rows; computed when needed.
    row_ranges: Option<Vec<Range<usize>>>,
}

struct CurrentPart {
    file: Arc<SourceFile>,
    is_whole: bool,
    /// Columns with a constant value for all rows of the file, as arrays of `constant_rows` values.
    constant_columns: Vec<Option<ArrayRef>>,
    constant_rows: usize,
    content: PartContent,
    /// Numbers the records of text, if record numbers are wanted.
    numbering: Option<RecordNumbering>,
}

/// Location of a batch's row in its file.
struct RowLocation {
    offset: u64,
    line: Option<u64>,
    row: Option<u64>,
    /// The record in a block of text.
    text_record: Option<(TextBlock, Range<usize>)>,
}

enum PartContent {
    Text { blocks: BlockReader, open: Option<Arc<OpenFile>>, header: bool },
    Typed(Box<dyn SplitPartReader>),
}

impl SplitReader {
    pub(crate) fn open(source: Arc<Source>, split: &Split, options: &ReadOptions) -> Result<Self> {
        let mut options = options.clone();
        options.batch_rows = options.batch_rows.max(1);
        let (assembly, openers) = BatchAssembler::new(&source, &options)?;
        options.exact_start = options.exact_start.or(split.exact_start);
        let exact = options.exact_start.is_some()
            || source.has_exact_starts()
            || split.parts.iter().all(|piece| piece.range.start == 0);
        let mut reader = Self {
            source,
            assembly,
            extractors: openers,
            remaining_parts: split.parts.iter().cloned().collect(),
            decoder: None,
            current_part: None,
            ready_batches: VecDeque::new(),
            scratch: DecodedBlocks::default(),
            stats: SplitStats::default(),
            held_reject_bytes: 0,
            skipped_bytes: 0,
            is_start_exact: exact,
            has_failed: false,
            split: split.clone(),
            taken_guard: SplitTakenGuard(options.access_plan.take()),
            options,
        };
        reader.next_part()?;
        if reader.remaining_parts.is_empty() {
            // This reader has claimed all of the split.
            drop(SplitTakenGuard(reader.taken_guard.0.take()));
        }
        Ok(reader)
    }

    /// Returns the schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.assembly.schema()
    }

    /// Returns true if the start is known rather than guessed.
    pub fn is_start_exact(&self) -> bool {
        self.is_start_exact
    }

    /// Returns the start of the first record; none for a split without text.
    pub fn first_record_offset(&self) -> Option<u64> {
        self.stats.first_record_offset
    }

    /// Returns the first record start at or behind the split's end; none before the end is reached.
    pub fn next_record_offset(&self) -> Option<u64> {
        self.stats.next_record_offset
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> &SplitStats {
        &self.stats
    }

    /// Returns the statistics, with the rejected records for [`SplitStats::commit_to`].
    pub fn into_stats(self) -> SplitStats {
        self.stats
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(DecodedBatch { batch, records, numbers }) = self.ready_batches.pop_front() {
                let Some(current) = &mut self.current_part else {
                    return Err(Error::Internal("a batch without a file".into()));
                };
                let rows = batch.num_rows();
                if rows > current.constant_rows {
                    // A small part is not worth arrays of the maximum batch size.
                    let room = rows.next_power_of_two().min(self.options.batch_rows).max(rows);
                    current.constant_columns = self.assembly.file_constant_columns(
                        &self.source,
                        current.file.index,
                        room,
                    )?;
                    current.constant_rows = room;
                }
                let (keys, numbers) = (&current.constant_columns, numbers.as_ref());
                let batch =
                    self.assembly.assemble_batch(&batch, &records, keys, numbers, &current.file)?;
                self.stats.rows += batch.num_rows() as u64;
                self.options.progress.add_rows(batch.num_rows() as u64);
                return Ok(Some(batch));
            }
            let Some(current) = &mut self.current_part else { return Ok(None) };
            self.options.cancel.check()?;
            match &mut current.content {
                PartContent::Typed(reader) => match reader.next_batch()? {
                    Some(batch) => {
                        let dropped = reader.take_dropped_row_count();
                        self.count_dropped_rows(dropped);
                        self.extract_batch_records(keep_last_map_entries(batch)?, None)?;
                    }
                    None => {
                        let dropped = reader.take_dropped_row_count();
                        self.stats.rows += dropped;
                        self.options.progress.add_rows(dropped);
                        if let Some(end) = reader.next_record_offset() {
                            self.stats.next_record_offset = Some(end);
                        }
                        self.skipped_bytes += reader.skipped_bytes();
                        self.next_part()?;
                    }
                },
                PartContent::Text { blocks, header, .. } => match blocks.next_block()? {
                    Some(block) => self.decode_block(block)?,
                    None => {
                        let end = blocks.position();
                        // The following splits would take the header for a record.
                        if *header && !current.is_whole && end < current.file.size() {
                            return Err(Error::Corrupt {
                                path: current.file.display_name.to_string(),
                                offset: Some(0),
                                reason: format!("its first {end} bytes are blank lines"),
                                hint: Some("a header is expected at the beginning".into()),
                            });
                        }
                        self.stats.next_record_offset = Some(end);
                        // Rows belong to the part from which they were read.
                        if let Some(decoder) = &mut self.decoder {
                            decoder.finish(&mut self.scratch);
                        }
                        self.take_decoded_batches(None)?;
                        if self.ready_batches.is_empty() {
                            self.next_part()?;
                        }
                    }
                },
            }
        }
    }

    /// Ends the current part and opens the next one.
    fn next_part(&mut self) -> Result<()> {
        if let Some(CurrentPart { content: PartContent::Text { open: Some(open), .. }, .. }) =
            &self.current_part
        {
            open.verify_identity()?;
        }
        self.current_part = None;
        let Some(piece) = self.remaining_parts.pop_front() else {
            self.stats.bytes = self.split.bytes.saturating_sub(self.skipped_bytes);
            return Ok(());
        };
        let early = if self.taken_guard.0.is_some() { 0 } else { SMALL_FILES_AHEAD };
        for next in self.remaining_parts.iter().take(early) {
            if let FileLocation::Object(object) = &next.file.location
                && !self.source.format.is_typed()
                && next.is_whole_file()
                && next.file.size() <= SMALL_FILE_BYTES_MAX
            {
                object.start_early_fetch(next.file.size())?;
            }
        }
        let watch = ByteReadContext {
            cancel: self.options.cancel.clone(),
            progress: self.options.progress.clone(),
            prefetch_budget: self.options.prefetch_budget.clone(),
            allows_short_reads: self.options.low_latency,
            ..ByteReadContext::default()
        };
        let layout = self.source.columns.layout_index(piece.file.index);
        if self.assembly.switch_layout(&self.source, layout)? {
            self.decoder = None;
        }
        let mut body = if let Some(format) = self.source.format.as_text_format() {
            self.open_text(format, &piece, watch)?
        } else if let Some(format) = self.source.format.as_typed_format() {
            let Some(metadata) = piece.file.metadata() else {
                return Err(Error::Internal(format!(
                    "`{}` was not looked at",
                    piece.file.display_name
                )));
            };
            let (columns, options) = (self.assembly.wanted_columns(&self.source), &self.options);
            let stdin = self.take_standard_input(&piece.file, &watch)?;
            let (piece, predicates) = (&piece, &self.assembly.layout_projection()?.predicates);
            let reader = format.open_part(SplitPartRequest {
                part: piece,
                metadata,
                columns,
                predicates,
                options,
                context: watch,
                stdin,
            })?;
            if let Some(start) = reader.first_record_offset() {
                self.stats.first_record_offset.get_or_insert(start);
            }
            PartContent::Typed(reader)
        } else {
            return Err(Error::Internal(format!("`{}` is of no kind", piece.file.display_name)));
        };
        if let PartContent::Text { blocks, .. } = &mut body {
            let decoded = &self.assembly.layout_projection()?.decoded_columns;
            let leaves = decoded.iter().map(|(_, field)| leaf_count(field.data_type())).sum();
            blocks.limit_read_for_columns(leaves);
        }
        let keys_rows = 1;
        let keys =
            self.assembly.file_constant_columns(&self.source, piece.file.index, keys_rows)?;
        let is_whole = piece.is_whole_file();
        let numbering = match (&body, self.assembly.needs_row_numbers()) {
            (PartContent::Text { .. }, true) if piece.range.start > 0 => {
                return Err(Error::Internal(
                    "records are numbered from the middle of a text".into(),
                ));
            }
            (PartContent::Text { .. }, true) => Some(RecordNumbering::default()),
            _ => None,
        };
        self.current_part = Some(CurrentPart {
            file: piece.file,
            is_whole,
            constant_columns: keys,
            constant_rows: keys_rows,
            content: body,
            numbering,
        });
        Ok(())
    }

    fn new_decoder(&self, file: &SourceFile) -> Result<Box<dyn BlockDecoder>> {
        let found = self.assembly.layout_projection()?;
        let Some(format) = self.source.format.as_text_format() else {
            return Err(Error::Internal(format!("{} is not text", self.source.format)));
        };
        let text = &self.source.spec.text_options;
        let mismatch_is_null = text.mismatch == Some(TypeMismatchPolicy::Null);
        // All rows count their mismatches, whatever the conditions of a query keep and wherever they are
        // checked.
        let predicates = if mismatch_is_null { Vec::new() } else { found.predicates.clone() };
        let decoder = format.decoder(DecoderSpec {
            dialect: &self.source.dialect,
            log_lines: &self.source.log_lines,
            field_count: self.source.columns.layout(file.index).fields,
            columns: found.decoded_columns.clone(),
            modified_seconds: file.modified_seconds(),
            framing: text.framing.unwrap_or_default(),
            options: Options {
                batch_rows: self.options.batch_rows,
                predicates,
                inferred_columns: found.inferred_positions.clone(),
                known_keys: self.source.known_keys(),
                checks_skipped_values: text.strict.unwrap_or(false),
                mismatch_is_null,
            },
        });
        decoder.map_err(|field| {
            Error::Internal(format!("column `{}` cannot be {}", field.name(), field.data_type()))
        })
    }

    /// Returns standard input from its beginning; none for a file.
    fn take_standard_input(
        &self,
        file: &SourceFile,
        watch: &ByteReadContext,
    ) -> Result<Option<Box<dyn ByteInput>>> {
        if !file.is_stdin() {
            return Ok(None);
        }
        let Some(pending) = self.source.pending_stdin.lock().take() else {
            return Err(Error::usage_with_hint(
                format!("{} can be read only once", file.display_name),
                "a query that reads it twice needs a file",
            ));
        };
        let (taken, reader, watch) = (pending.sampled_bytes, pending.reader, watch.clone());
        let input = ReaderInput::new(taken, reader, file.display_name.clone(), watch);
        Ok(Some(Box::new(input)))
    }

    fn open_text(
        &mut self,
        format: &dyn TextFormat,
        piece: &SplitPart,
        watch: ByteReadContext,
    ) -> Result<PartContent> {
        let file = &piece.file;
        if self.decoder.is_none() || format.needs_file_context() {
            self.decoder = Some(self.new_decoder(file)?);
        }
        // A cut file has one record per line.
        let ends = match self.source.record_framing() {
            RecordFraming::Json if !piece.is_whole_file() => self.source.record_grammar().into(),
            ends => ends,
        };
        let has_header = self.source.format.is_delimited() && self.source.dialect.header;
        // Under a deadline, remote files count as splittable without inspection.
        let is_believed =
            self.source.prober.is_some() && !file.is_local() && !piece.is_whole_file();
        if piece.range.start == 0 {
            if is_believed {
                check_can_be_split(format, file, &watch)?;
            }
            let stdin = self.take_standard_input(file, &watch)?;
            let extent = ReadExtent::Until(piece.range.end);
            let (blocks, open) = open_text_blocks(file, stdin, ends, watch, extent)?;
            self.stats.first_record_offset.get_or_insert(0);
            // Skipped lines may extend beyond the split's end, with the header behind them.
            let is_ours = file.skipped_lines == 0
                || piece.is_whole_file()
                || blocks.position() < piece.range.end;
            return Ok(PartContent::Text { blocks, open, header: has_header && is_ours });
        }
        if file.skipped_lines > 0 {
            let first = find_records_offset(file, ends, &watch)?;
            if piece.range.start <= first {
                return self.open_in_skipped_lines(piece, first, watch);
            }
        }
        let open =
            Arc::new(OpenFile::open(file, ReadPattern::UntilSplitEnd(piece.range.end), &watch)?);
        open.begin_reading_at(piece.range.start)?;
        let (start, seen) = match self.options.exact_start {
            Some(start) => (start, Vec::new()),
            None => {
                let guess = self.source.long_record_ends.guess_boundary(
                    file,
                    &open,
                    self.source.record_grammar(),
                    piece.range.clone(),
                    self.source.columns.layout(file.index).fields,
                )?;
                if is_believed && !format.is_splittable_by_sample(&guess.bytes_read) {
                    check_can_be_split(format, file, &watch)?;
                }
                (guess.offset, guess.bytes_read)
            }
        };
        self.stats.first_record_offset.get_or_insert(start);
        let input = FileInput::new(open.clone(), start, piece.range.end, watch.clone())
            .with_already_read_bytes(piece.range.start - 1, seen);
        // The previous split's reader reads the bytes before the start, but they count for this split.
        watch.progress.add_bytes(start.min(piece.range.end) - piece.range.start);
        let limit = Some(piece.range.end);
        let blocks = BlockReader::new(Box::new(input), ends, start, limit);
        Ok(PartContent::Text { blocks, open: Some(open), header: false })
    }

    /// Opens a part that begins within skipped lines, or right behind them. The file's header is at `first`.
    fn open_in_skipped_lines(
        &mut self,
        piece: &SplitPart,
        first: u64,
        watch: ByteReadContext,
    ) -> Result<PartContent> {
        let open = Arc::new(OpenFile::open(
            &piece.file,
            ReadPattern::UntilSplitEnd(piece.range.end),
            &watch,
        )?);
        open.begin_reading_at(first.min(piece.range.end))?;
        self.stats.first_record_offset.get_or_insert(first);
        watch.progress.add_bytes(first.min(piece.range.end) - piece.range.start);
        let input = FileInput::new(open.clone(), first, piece.range.end, watch);
        let limit = Some(piece.range.end);
        let blocks = BlockReader::new(Box::new(input), self.source.record_framing(), first, limit);
        let has_header = self.source.format.is_delimited() && self.source.dialect.header;
        let header = has_header && first < piece.range.end;
        Ok(PartContent::Text { blocks, open: Some(open), header })
    }

    /// Decodes a block into `ready_batches`, and holds the rejected records.
    fn decode_block(&mut self, block: TextBlock) -> Result<()> {
        let Some(CurrentPart {
            file,
            content: PartContent::Text { blocks, header, .. },
            numbering,
            ..
        }) = &mut self.current_part
        else {
            return Err(Error::Internal("there is no text to decode".into()));
        };
        let Some(decoder) = &mut self.decoder else {
            return Err(Error::Internal("there is no decoder".into()));
        };
        let bytes = blocks.block_bytes(block);
        if let Some(fault) = block.fault {
            // NULs at the end of a file need no header.
            if *header && !fault.is_trailing_nuls() {
                return Err(no_header_error(file, blocks, block, fault));
            }
            *header = false;
            if let Some(numbering) = numbering {
                numbering.add_rejected(0);
            }
            let kept = &bytes[..bytes.len().min(REJECT_COPY_BYTES_MAX)];
            let hint = block_fault_hint(file, blocks, block, fault);
            self.held_reject_bytes += kept.len() + REJECT_OVERHEAD_BYTES;
            self.stats.rejected_count += 1;
            self.stats.rejected_records.push(RejectedRecord {
                file: file.clone(),
                offset: block.offset,
                line: block.line,
                row: None,
                fault: RecordFault {
                    column: None,
                    reason: fault.reason(bytes.len()),
                    hint: Some(hint),
                },
                bytes: kept.to_vec(),
                is_truncated: true,
            });
            return self.check_held_rejects();
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
        // A batch with rows of several blocks would not show where each row is.
        let may_refuse = self.extractors.iter().any(|(_, opener)| opener.can_reject());
        if may_refuse {
            decoder.finish(out);
        }
        let mut counted = (0, block.line);
        for RejectedTextRecord { range, fault, rows_before } in out.rejected.drain(..) {
            if let Some(numbering) = numbering {
                numbering.add_rejected(rows_before);
            }
            let (mut start, end) = (at + range.start, at + range.end);
            start += self.source.leading_blank_bytes(&bytes[start..end]);
            if let Some(line) = &mut counted.1 {
                *line += blocks.count_line_ends(block, counted.0..start);
                counted.0 = start;
            }
            let record = blocks.original_record(block, start..end);
            let kept = &record[..record.len().min(REJECT_COPY_BYTES_MAX)];
            self.held_reject_bytes += kept.len() + REJECT_OVERHEAD_BYTES;
            self.stats.rejected_count += 1;
            let whence = FaultContext {
                format: self.source.format,
                columns: &self.source.columns.fields,
                log_lines: &self.source.log_lines,
                type_witness: type_witness(&self.source, file, &fault),
                may_be_comment: self.source.can_have_comments(record),
                likely_header_line: self.source.likely_header_line,
                invisible_bytes: InvisibleBytes::find(record),
            };
            self.stats.rejected_records.push(RejectedRecord {
                file: file.clone(),
                offset: blocks.input_offset(block, start),
                line: counted.1,
                row: None,
                fault: RecordFault::from_text_fault(fault, &whence),
                bytes: kept.to_vec(),
                is_truncated: kept.len() < record.len(),
            });
        }
        if let Some(numbering) = numbering {
            numbering.add_accepted(out.rows);
        }
        let first = |place: usize, known: Option<&OccurrenceLocation>| {
            if known.is_some_and(|known| Arc::ptr_eq(&known.file, file)) {
                return None;
            }
            let offset = blocks.input_offset(block, at + place);
            let line = block.line.map(|line| line + blocks.count_line_ends(block, 0..at + place));
            Some(OccurrenceLocation { file: Arc::clone(file), offset, line, row: None })
        };
        self.stats.unknown_keys.other_count += std::mem::take(&mut out.unknown_key_overflow_count);
        for BlockUnknownKey { path, column: within, count, first_offset: at } in
            out.unknown_keys.drain(..)
        {
            self.stats.unknown_keys.add(&path, within.as_ref(), count, |known| first(at, known));
        }
        for BlockColumnMismatches { column, count, first_offset: at } in out.mismatches.drain(..) {
            if let Some((_, field)) = self.assembly.layout_projection()?.decoded_columns.get(column)
            {
                let name = field.name();
                self.stats.mismatches.add(name, None, count, |known| first(at, known));
            }
        }
        if self.options.low_latency && !may_refuse {
            decoder.finish(out);
        }
        let text = may_refuse.then_some(TextBlockRows {
            block,
            records_start: at,
            rows_before: 0,
            row_ranges: None,
        });
        self.take_decoded_batches(text)?;
        self.check_held_rejects()
    }

    /// Fails if the held records exceed the limit, and hands them over early if they take too much memory.
    fn check_held_rejects(&mut self) -> Result<()> {
        if self.stats.rejected_records.is_empty() {
            return Ok(());
        }
        let rejects = self.options.reject_log.clone();
        if rejects.would_exceed_limit(self.stats.rejected_records.len() as u64) {
            // The log counts them when the split is accepted; beyond a limit it may never be.
            return Err(rejects.limit_exceeded_error(&self.stats.rejected_records));
        }
        if rejects.is_counting_deferred() {
            return match self.held_reject_bytes > DEFERRED_REJECT_BYTES_MAX {
                true => Err(Error::usage_with_hint(
                    format!(
                        "more than {} of one split are malformed records, and a worker holds them all until the \
                         split is read",
                        format_decimal_bytes(DEFERRED_REJECT_BYTES_MAX as u64)
                    ),
                    "look at a few of them first: tidemill query over one of the files",
                )),
                false => Ok(()),
            };
        }
        if self.held_reject_bytes > HELD_REJECT_BYTES_MAX {
            if !self.is_start_exact {
                self.verify_start_guess()?;
            }
            self.held_reject_bytes = 0;
            rejects.add_records(std::mem::take(&mut self.stats.rejected_records))?;
        }
        Ok(())
    }

    /// Takes the full batches from the decoder, and counts the dropped rows.
    fn take_decoded_batches(&mut self, mut text: Option<TextBlockRows>) -> Result<()> {
        let mut dropped = std::mem::take(&mut self.scratch.filtered_rows);
        if self.assembly.layout_projection().is_ok_and(|layout| layout.drops_all_rows) {
            dropped +=
                self.scratch.batches.drain(..).map(|batch| batch.num_rows() as u64).sum::<u64>();
        }
        self.count_dropped_rows(dropped);
        let mut batches = std::mem::take(&mut self.scratch.batches);
        self.scratch.clear();
        for batch in batches.drain(..) {
            let rows = batch.num_rows();
            self.extract_batch_records(batch, text.as_mut())?;
            if let Some(text) = &mut text {
                text.rows_before += rows;
            }
        }
        self.scratch.batches = batches;
        Ok(())
    }

    /// Counts rows that are in no batch.
    fn count_dropped_rows(&mut self, dropped: u64) {
        self.stats.rows += dropped;
        self.options.progress.add_rows(dropped);
    }

    /// Extracts the promoted records of a batch; removes and rejects rows with invalid values.
    fn extract_batch_records(
        &mut self,
        batch: RecordBatch,
        mut text: Option<&mut TextBlockRows>,
    ) -> Result<()> {
        let numbers = self.row_numbers(batch.num_rows())?;
        let (records, bad) = self.extract_records(&batch)?;
        if bad.is_empty() {
            self.count_promoted_fields(text, |row| row)?;
            self.ready_batches.push_back(DecodedBatch { batch, records, numbers });
            return Ok(());
        }
        let mut keep = vec![true; batch.num_rows()];
        for (opener, bad) in bad {
            // A row is rejected once, whatever other faults it has.
            if keep.get_mut(bad.row).is_some_and(std::mem::take) {
                self.reject_row(opener, &bad, text.as_deref_mut())?;
            }
        }
        self.check_held_rejects()?;
        // The remaining rows are extracted once more.
        self.extractors.iter_mut().for_each(|(_, opener)| opener.clear_counts());
        let rows: Vec<usize> = (0..keep.len()).filter(|row| keep[*row]).collect();
        let keep = BooleanArray::from(keep);
        let batch = filter_record_batch(&batch, &keep)?;
        let numbers = numbers.map(|numbers| filter(&numbers, &keep)).transpose()?;
        if batch.num_rows() > 0 {
            let (records, bad) = self.extract_records(&batch)?;
            if !bad.is_empty() {
                return Err(Error::Internal("a record is none that was one".into()));
            }
            self.count_promoted_fields(text, |row| rows.get(row).copied().unwrap_or(row))?;
            self.ready_batches.push_back(DecodedBatch { batch, records, numbers });
        }
        Ok(())
    }

    /// Returns the numbers of the next records that became rows, if they are wanted.
    fn row_numbers(&mut self, rows: usize) -> Result<Option<ArrayRef>> {
        if !self.assembly.needs_row_numbers() {
            return Ok(None);
        }
        let Some(CurrentPart { content: body, numbering, .. }) = &mut self.current_part else {
            return Err(Error::Internal("a batch without a file".into()));
        };
        Ok(Some(match (body, numbering) {
            (PartContent::Typed(reader), _) => {
                hidden_columns::batch_row_numbers(reader.as_ref(), rows)?
            }
            (PartContent::Text { .. }, Some(numbering)) => numbering.next_numbers(rows),
            (PartContent::Text { .. }, None) => {
                return Err(Error::Internal("records are not numbered".into()));
            }
        }))
    }

    /// Extracts the promoted records of a batch; returns also the invalid values, each with its extractor's
    /// index.
    fn extract_records(
        &mut self,
        batch: &RecordBatch,
    ) -> Result<(ExtractedColumns, Vec<(usize, InvalidRecordValue)>)> {
        let (mut records, mut bad) = (Vec::with_capacity(self.extractors.len()), Vec::new());
        if self.extractors.is_empty() {
            return Ok((records, bad));
        }
        let Some(current) = &self.current_part else {
            return Err(Error::Internal("a batch without a file".into()));
        };
        let found = self.assembly.layout_projection()?;
        for (index, (at, opener)) in self.extractors.iter_mut().enumerate() {
            let column = found.decoded_column(batch, *at)?;
            let opened = column.map(|column| opener.extract(column, &current.file)).transpose()?;
            let opened = match opened {
                Some(ExtractedRecords::Records(opened)) => Some(opened),
                Some(ExtractedRecords::Invalid(values)) => {
                    bad.extend(values.into_iter().map(|value| (index, value)));
                    None
                }
                None => None,
            };
            records.push((*at, opened));
        }
        Ok((records, bad))
    }

    /// Counts the unknown keys and the type mismatches of the records that were extracted last. `row_of` maps
    /// a record to its row in the block or batch.
    fn count_promoted_fields(
        &mut self,
        mut text: Option<&mut TextBlockRows>,
        row_of: impl Fn(usize) -> usize,
    ) -> Result<()> {
        for at in 0..self.extractors.len() {
            let Some((_, opener)) = self.extractors.get_mut(at) else { continue };
            let (keys, others) = opener.take_unknown_keys();
            let column: Arc<str> = opener.column_name().into();
            let mismatches = opener.take_mismatches();
            self.stats.unknown_keys.other_count += others;
            for PromotedFieldCount { path, count, first_row: row } in keys {
                let known = self.stats.unknown_keys.counts.get(&path);
                let known = known.map(|known| known.first_location.clone());
                let first = self.first_location(known, row_of(row), text.as_deref_mut())?;
                self.stats.unknown_keys.add(&path, Some(&column), count, |_| first);
            }
            for PromotedFieldCount { path, count, first_row: row } in mismatches {
                let known = self.stats.mismatches.counts.get(&path);
                let known = known.map(|known| known.first_location.clone());
                let first = self.first_location(known, row_of(row), text.as_deref_mut())?;
                self.stats.mismatches.add(&path, None, count, |_| first);
            }
        }
        Ok(())
    }

    /// Returns the known location, or else the location of a row.
    fn first_location(
        &self,
        known: Option<OccurrenceLocation>,
        row: usize,
        text: Option<&mut TextBlockRows>,
    ) -> Result<Option<OccurrenceLocation>> {
        // Readers advance, so the first location stays the first.
        if known.is_some() {
            return Ok(known);
        }
        let place = self.row_location(row, text)?;
        Ok(self.current_part.as_ref().map(|current| OccurrenceLocation {
            file: Arc::clone(&current.file),
            offset: place.offset,
            line: place.line,
            row: place.row,
        }))
    }

    /// Returns the location of a row: within the text block, behind the rows of its previous batches, or
    /// within the last batch.
    fn row_location(&self, row: usize, text: Option<&mut TextBlockRows>) -> Result<RowLocation> {
        let Some(current) = &self.current_part else {
            return Err(Error::Internal("a row without a file".into()));
        };
        let place = match (&current.content, text) {
            (PartContent::Text { blocks, .. }, Some(text)) => {
                let records = match &mut text.row_ranges {
                    Some(records) => records,
                    none => none.insert(self.row_ranges(text.block, text.records_start)?),
                };
                let bytes = blocks.block_bytes(text.block);
                records.get(text.rows_before + row).map(|record| {
                    let start =
                        record.start + self.source.leading_blank_bytes(&bytes[record.clone()]);
                    let line = text.block.line;
                    RowLocation {
                        offset: blocks.input_offset(text.block, start),
                        line: line.map(|line| line + blocks.count_line_ends(text.block, 0..start)),
                        row: None,
                        text_record: Some((text.block, start..record.end)),
                    }
                })
            }
            (PartContent::Text { .. }, None) => None,
            (PartContent::Typed(reader), _) => {
                let (row, offset) = reader.batch_row_number(row);
                Some(RowLocation { offset, line: None, row: Some(row), text_record: None })
            }
        };
        place.ok_or_else(|| Error::Internal("a row is of no record".into()))
    }

    /// Rejects the row of an invalid value in the batch that was extracted last.
    fn reject_row(
        &mut self,
        opener: usize,
        bad: &InvalidRecordValue,
        text: Option<&mut TextBlockRows>,
    ) -> Result<()> {
        let place = self.row_location(bad.row, text)?;
        let (Some(current), Some((_, opener))) = (&self.current_part, self.extractors.get(opener))
        else {
            return Err(Error::Internal("a value without an opener".into()));
        };
        let fault = opener.record_fault(bad);
        let record = match (&current.content, place.text_record) {
            (PartContent::Text { blocks, .. }, Some((block, record))) => {
                blocks.original_record(block, record)
            }
            _ => opener.value_bytes(bad),
        };
        let RowLocation { offset, line, row, .. } = place;
        let kept = &record[..record.len().min(REJECT_COPY_BYTES_MAX)];
        self.held_reject_bytes += kept.len() + REJECT_OVERHEAD_BYTES;
        self.stats.rejected_count += 1;
        self.stats.rejected_records.push(RejectedRecord {
            file: current.file.clone(),
            offset,
            line,
            row,
            fault,
            bytes: kept.to_vec(),
            is_truncated: kept.len() < record.len(),
        });
        if self.held_reject_bytes > HELD_REJECT_BYTES_MAX {
            self.check_held_rejects()?;
        }
        Ok(())
    }

    /// Returns the ranges of those records of a block that become rows, by decoding each record alone.
    fn row_ranges(&self, block: TextBlock, at: usize) -> Result<Vec<Range<usize>>> {
        let Some(CurrentPart { file, content: PartContent::Text { blocks, .. }, .. }) =
            &self.current_part
        else {
            return Err(Error::Internal("there is no text to look at".into()));
        };
        let bytes = &blocks.block_bytes(block)[at..];
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

    /// Verifies the guessed start, so that held records can be handed over.
    ///
    /// # Errors
    /// Those of reading; if the guess was wrong, an error that is void like all other results.
    fn verify_start_guess(&mut self) -> Result<()> {
        let mut split = self.split.clone();
        find_exact_boundaries(
            &self.source,
            std::slice::from_mut(&mut split),
            &self.options.cancel,
        )?;
        if split.exact_start != self.stats.first_record_offset {
            return Err(Error::Internal("a split begins elsewhere than was guessed".into()));
        }
        self.is_start_exact = true;
        Ok(())
    }
}

impl Iterator for SplitReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_batch().transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}

/// Returns the number of scalar columns within a type.
fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        DataType::List(item) | DataType::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}

/// Returns another file that shows the expected type of the column at fault.
fn type_witness<'a>(
    source: &'a Source,
    file: &SourceFile,
    fault: &tidemill_text::TextFault,
) -> Option<&'a str> {
    let TextFaultKind::WrongType { .. } = fault.kind else { return None };
    let path = fault.column.as_deref()?;
    let fields = &source.columns.fields;
    let place = |name: &str| fields.iter().position(|field| field.name() == name);
    // For a nested column, the first key of its path.
    let place = place(path).or_else(|| place(path.split(['.', '[']).next().unwrap_or(path)))?;
    let other = source.columns.type_witnesses.get(place).copied().flatten()?;
    (other != file.index).then(|| source.files.get(other).map(|file| file.display_name())).flatten()
}

/// Checks a file's header. If files may not differ, it must name the first file's columns in their order. If
/// they may, headers are known already, except for files that did not respond during inference.
fn check_header(source: &Source, file: &SourceFile, names: Vec<String>) -> Result<()> {
    let columns = &source.columns;
    let is_unknown =
        source.spec.layout_policy == Some(ColumnLayoutPolicy::Same) || file.is_unresponsive();
    if !is_unknown || file.index == columns.reference_file {
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
    let of =
        source.files.get(columns.reference_file).map_or("the schema", |file| file.display_name());
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
    Err(Error::IncompatibleFiles {
        path: file.display_name.to_string(),
        other: of.to_owned(),
        reason,
        hint: Some(SAME_LAYOUT_HINT.into()),
    })
}

/// Rejects a file that was cut because other files can be, although it must be read front to back.
fn check_can_be_split(
    format: &dyn TextFormat,
    file: &SourceFile,
    watch: &ByteReadContext,
) -> Result<()> {
    match format.is_unsplittable(file, watch)? {
        false => Ok(()),
        true => Err(Error::Corrupt {
            path: file.display_name().to_owned(),
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
