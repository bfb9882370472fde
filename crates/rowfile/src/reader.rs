//! The reader: a file to batches, with projection, block selection and schema resolution.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::SchemaRef;

use crate::block_statistics::{BlockStatistics, leaf_fields};
use crate::codec::SectionDecompressor;
use crate::error::{Error, FilePart, LastIntactBlock, Result, RowDecodeError};
use crate::file_format::{
    FileFooter, FileHeader, FooterEntry, FooterTrailer, HEADER_BYTES, SECTION_BYTES, SectionHeader,
    SectionKind, TRAILER_BYTES,
};
use crate::read_at::ReadAt;
use crate::row_decoder::BlockRowDecoder;
use crate::row_layout::{BlockLayout, SLACK_BYTES};
use crate::schema::{Schema, StringLayout};
use crate::schema_resolution::RowDecodePlan;

/// Number of bytes read at the beginning of a file, which usually contain the whole header.
const SPECULATIVE_READ_BYTES: u64 = 64 << 10;

/// Options of a read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Schema of the batches. Default: the file's, with strings in the layout of `strings`.
    pub schema: Option<SchemaRef>,
    /// Names of the requested columns, in this order. Default: all.
    pub columns: Option<Vec<String>>,
    /// Arrow layout of strings if `schema` is not given. Default: views.
    pub strings: StringLayout,
    /// Restricts the read to blocks that begin in this byte range of the file: consecutive ranges read
    /// every row once. Default: all.
    pub range: Option<Range<u64>>,
    /// Restricts the read to these block numbers. Default: all.
    pub blocks: Option<Vec<usize>>,
    /// Maximum rows of a batch; a batch never contains rows of two blocks. Default: 8192.
    pub batch_rows: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            schema: None,
            columns: None,
            strings: StringLayout::default(),
            range: None,
            blocks: None,
            batch_rows: 8192,
        }
    }
}

/// A block of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file, in bytes.
    pub bytes: u32,
    /// Number of rows.
    pub rows: u32,
    /// Number of rows of the file before the block.
    pub first_row: u64,
}

/// The statistics of a column, with one value for each block.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PerBlockStatistics {
    /// Lower bound of the block's values; null if unknown.
    pub min: ArrayRef,
    /// Upper bound of the block's values; null if unknown.
    pub max: ArrayRef,
    /// Number of nulls.
    pub nulls: UInt64Array,
}

/// An open rowfile. Cloning is cheap, and clones can be used by several threads.
pub struct Reader<S: ReadAt> {
    source: Arc<S>,
    index: Arc<FileIndex>,
}

impl<S: ReadAt> Clone for Reader<S> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), index: self.index.clone() }
    }
}

/// The header of a file and the content of its footers.
struct FileIndex {
    name: String,
    header: FileHeader,
    /// Checksum of the header, which identifies the file.
    header_checksum: u32,
    blocks: Vec<BlockInfo>,
    /// Statistics of each block, if it has any.
    statistics: Vec<BlockStatistics>,
    /// The leaves that have statistics.
    statistics_leaves: Vec<u32>,
    last_footer: u64,
    /// Offset of the first byte behind the last footer.
    footer_end: u64,
    /// Number of bytes behind the last footer, from an unfinished append.
    unfinished_bytes: u64,
    damages: Vec<(u64, String)>,
    skipped_bytes: u64,
}

impl<S: ReadAt> std::fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("name", &self.index.name).finish_non_exhaustive()
    }
}

impl Reader<File> {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Error::Io { file: name.clone(), error })?;
        Self::new(file, &name)
    }
}

impl<S: ReadAt> Reader<S> {
    /// Opens `source`, which messages call `name`, and reads its header and footers.
    ///
    /// # Errors
    /// If it is not a rowfile, is truncated, damaged, or from a later version; if it cannot be read.
    pub fn new(source: S, name: &str) -> Result<Self> {
        let mut open = FileOpener::new(source, name)?;
        open.find_last_footer()?;
        open.read_footers()?;
        Ok(open.into_reader())
    }

    /// Opens `source` for salvage, without its footers: reads every byte once and finds every whole block,
    /// whatever lies between them. [`damages`](Self::damages) lists the damaged places.
    ///
    /// # Errors
    /// If it is not a rowfile, its header is damaged, or it cannot be read.
    pub fn open_for_salvage(source: S, name: &str) -> Result<Self> {
        let mut open = FileOpener::new(source, name)?;
        open.scan_blocks()?;
        Ok(open.into_reader())
    }

    /// Returns the schema that the file was written with.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.index.header.schema
    }

    /// Returns the metadata that the writer stored.
    #[must_use]
    pub fn metadata(&self) -> &std::collections::BTreeMap<String, String> {
        &self.index.header.metadata
    }

    /// Returns the compression of the blocks; blocks that it would enlarge are stored uncompressed.
    #[must_use]
    pub fn codec(&self) -> crate::Codec {
        self.index.header.codec
    }

    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[BlockInfo] {
        &self.index.blocks
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.index.blocks.iter().map(|block| u64::from(block.rows)).sum()
    }

    /// Returns the number of bytes of an append that is in progress or was killed. They are not read.
    #[must_use]
    pub fn unfinished_bytes(&self) -> u64 {
        self.index.unfinished_bytes
    }

    /// Returns the damages that [`open_for_salvage`](Self::open_for_salvage) found: offset and description.
    #[must_use]
    pub fn damages(&self) -> &[(u64, String)] {
        &self.index.damages
    }

    /// Returns the number of bytes that [`open_for_salvage`](Self::open_for_salvage) skipped because they
    /// belong to nothing whole.
    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        self.index.skipped_bytes
    }

    /// Returns a reader of the same file through another source, without reading header or
    /// footers again. The source must contain the same file.
    #[must_use]
    pub fn with_source<T: ReadAt>(&self, source: T) -> Reader<T> {
        Reader { source: Arc::new(source), index: self.index.clone() }
    }

    pub(crate) fn append_state(&self) -> (FileHeader, u32, u64) {
        (self.index.header.clone(), self.index.header_checksum, self.index.footer_end)
    }

    pub(crate) fn last_footer(&self) -> u64 {
        self.index.last_footer
    }

    pub(crate) fn has_statistics(&self) -> bool {
        !self.index.statistics_leaves.is_empty() || self.index.header.schema.fields.is_empty()
    }

    /// Returns the statistics of a column, which is given by its path: `user.id`. `None`
    /// if there is no such column, its type has no order, or the writer kept no
    /// statistics.
    #[must_use]
    pub fn column_statistics(&self, column: &str) -> Option<PerBlockStatistics> {
        let schema = &self.index.header.schema;
        let record = crate::row_layout::RowStructure::new(schema);
        let leaf = record.leaves.iter().position(|leaf| leaf.path == column)?;
        let at = self.index.statistics_leaves.iter().position(|known| *known as usize == leaf)?;
        let fields = leaf_fields(&schema.fields);
        let field = fields.get(leaf)?;
        let all: Vec<_> = self.index.statistics.iter().map(|block| block.0.get(at)).collect();
        let bounds = |is_max: bool| {
            let bounds = all.iter().map(|found| {
                let (min, max) = found.as_ref()?.bounds.as_ref()?;
                Some(if is_max { max.as_slice() } else { min.as_slice() })
            });
            crate::scalar_arrays::array_from_bounds(&field.kind, bounds)
        };
        let nulls = all.iter().map(|found| found.map(|found| u64::from(found.nulls)));
        Some(PerBlockStatistics { min: bounds(false)?, max: bounds(true)?, nulls: nulls.collect() })
    }

    /// Returns the plan for `options`. It can be reused for other files with the same schema.
    ///
    /// # Errors
    /// [`Error::IncompatibleSchemas`] with every conflict of the schemas; if a column is unknown.
    pub fn plan(&self, options: &ReadOptions) -> Result<RowDecodePlan> {
        let schema = match &options.schema {
            Some(schema) => schema.clone(),
            None => Arc::new(self.schema().to_arrow(options.strings)),
        };
        let schema = match &options.columns {
            Some(columns) => {
                let fields = crate::schema_resolution::project_columns(&schema, columns)?;
                Arc::new(arrow_schema::Schema::new_with_metadata(fields, schema.metadata().clone()))
            }
            None => schema,
        };
        RowDecodePlan::new(self.schema(), &schema)
    }

    /// Reads batches in the order of the rows.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn read(&self, options: &ReadOptions) -> Result<RowfileBatches<S>> {
        let plan = Arc::new(self.plan(options)?);
        self.read_with_plan(plan, options)
    }

    /// Reads like [`read`](Self::read), with a prepared plan.
    ///
    /// # Errors
    /// If the plan is for another schema.
    pub fn read_with_plan(
        &self,
        plan: Arc<RowDecodePlan>,
        options: &ReadOptions,
    ) -> Result<RowfileBatches<S>> {
        if plan.writer_schema != *self.schema() {
            return Err(Error::InvalidSchema {
                column: String::new(),
                reason: "the plan was made for data of another schema".into(),
            });
        }
        let is_wanted = |block: &usize| {
            let offset = self.index.blocks.get(*block).map(|block| block.offset);
            offset.is_some_and(|at| options.range.as_ref().is_none_or(|range| range.contains(&at)))
        };
        let blocks: Vec<usize> = match &options.blocks {
            Some(blocks) => blocks.iter().copied().filter(is_wanted).collect(),
            None => (0..self.index.blocks.len()).filter(is_wanted).collect(),
        };
        Ok(RowfileBatches {
            reader: self.clone(),
            plan,
            blocks: blocks.into_iter(),
            batch_rows: options.batch_rows.max(1),
            buffers: KEPT.take().unwrap_or_default(),
            decompressor: SectionDecompressor::new(),
            current: None,
        })
    }

    /// Reads every byte and checks every checksum.
    ///
    /// # Errors
    /// The first damage.
    pub fn verify(&self) -> Result<()> {
        match self.find_damages()?.first() {
            Some((offset, reason)) => Err(Error::Damaged {
                file: self.index.name.clone(),
                part: FilePart::Block(self.index.blocks.iter().position(|it| it.offset == *offset)),
                offset: *offset,
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Reads every byte and checks every checksum. Returns all damages, each with its offset and
    /// description.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn find_damages(&self) -> Result<Vec<(u64, String)>> {
        let mut open = FileOpener::new(&*self.source, &self.index.name)?;
        open.file_bytes = self.index.footer_end;
        open.scan_blocks()?;
        Ok(open.damages)
    }
}

/// An iterator over the batches of a file.
pub struct RowfileBatches<S: ReadAt> {
    reader: Reader<S>,
    plan: Arc<RowDecodePlan>,
    blocks: std::vec::IntoIter<usize>,
    batch_rows: usize,
    buffers: BlockBuffers,
    decompressor: SectionDecompressor,
    current: Option<CurrentBlock>,
}

/// Buffers for a block: as stored, and decompressed.
#[derive(Default)]
struct BlockBuffers {
    /// As long as the longest block so far, plus [`SLACK_BYTES`].
    stored: Vec<u8>,
    raw: Vec<u8>,
}

/// Maximum buffer memory that a thread keeps for its next reader. Without reuse, readers of a few blocks each
/// would have the system clear as much memory as the file is long.
const REUSED_BUFFER_BYTES_MAX: usize = 4 << 20;

thread_local! {
    static KEPT: Cell<Option<BlockBuffers>> = const { Cell::new(None) };
}

impl BlockBuffers {
    fn block_bytes(&self, from: Option<usize>) -> &[u8] {
        match from {
            Some(from) => self.stored.get(from..).unwrap_or_default(),
            None => &self.raw,
        }
    }
}

impl<S: ReadAt> Drop for RowfileBatches<S> {
    fn drop(&mut self) {
        let buffers = std::mem::take(&mut self.buffers);
        if buffers.stored.capacity() + buffers.raw.capacity() <= REUSED_BUFFER_BYTES_MAX {
            // Fails if the thread is ending; nothing is kept then.
            let _ = KEPT.try_with(|kept| kept.set(Some(buffers)));
        }
    }
}

/// A block that is being decoded.
struct CurrentBlock {
    block: usize,
    layout: BlockLayout,
    /// Offset of the content in the stored bytes; `None` if it was decompressed.
    stored_offset: Option<usize>,
    /// Offsets of the next row and of the end of the rows.
    next_row_offset: usize,
    rows_end: usize,
    /// Number of decoded rows, and of all rows.
    decoded_rows: usize,
    rows: usize,
}

impl<S: ReadAt> RowfileBatches<S> {
    /// Returns the schema of the batches.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.plan.output_schema
    }

    fn load_block(&mut self, block: usize) -> Result<()> {
        let about = &*self.reader.index;
        let Some(info) = about.blocks.get(block) else { return Ok(()) };
        let fault = |fault: RowDecodeError| {
            fault.into_error(&about.name, FilePart::Block(Some(block)), info.offset, info.first_row)
        };
        let BlockBuffers { stored, raw } = &mut self.buffers;
        let bytes = info.bytes as usize;
        if stored.len() < bytes + SLACK_BYTES {
            // A new vector instead of `resize`: the old content need not be copied.
            *stored = vec![0; bytes + SLACK_BYTES];
        }
        let section = stored.get_mut(..bytes).unwrap_or_default();
        let read = self.reader.source.read_at(info.offset, section);
        read.map_err(|error| Error::Io { file: about.name.clone(), error })?;
        let content = section.get(SECTION_BYTES..).unwrap_or_default();
        let section =
            SectionHeader::parse(section, about.header_checksum, info.offset).map_err(fault)?;
        let is_same = section.kind == SectionKind::Block
            && section.count == info.rows
            && section.first_row == info.first_row
            && section.end() == info.offset + u64::from(info.bytes);
        if !is_same && about.damages.is_empty() {
            return Err(fault(RowDecodeError::from_damage(
                "it is not the block that the footer lists",
            )));
        }
        section.verify_checksum(content).map_err(fault)?;
        let size = section.raw_bytes as usize;
        let from = if section.is_uncompressed() && size == content.len() {
            // Decoded in place.
            if let Some(slack) = stored.get_mut(bytes..bytes + SLACK_BYTES) {
                slack.fill(0);
            }
            Some(SECTION_BYTES)
        } else {
            self.decompressor
                .decompress(section.codec, content, size, SLACK_BYTES, raw)
                .map_err(fault)?;
            None
        };
        let rows = section.count as usize;
        let mut rest = self.buffers.block_bytes(from).get(..size).unwrap_or_default();
        let layout = BlockLayout::read(&self.plan.record, &mut rest).map_err(fault)?;
        let at = size - rest.len();
        self.current = Some(CurrentBlock {
            block,
            layout,
            stored_offset: from,
            next_row_offset: at,
            rows_end: size,
            decoded_rows: 0,
            rows,
        });
        Ok(())
    }

    fn decode_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let about = &*self.reader.index;
        let Some(info) = about.blocks.get(current.block) else { return Ok(None) };
        let first_row = info.first_row + current.decoded_rows as u64;
        let fault = |fault: RowDecodeError| {
            fault.into_error(
                &about.name,
                FilePart::Block(Some(current.block)),
                info.offset,
                first_row,
            )
        };
        let rows = (current.rows - current.decoded_rows).min(self.batch_rows);
        let block = BlockRowDecoder {
            record: &self.plan.record,
            layout: &current.layout,
            bytes: self.buffers.block_bytes(current.stored_offset),
            rows_end: current.rows_end,
        };
        let (columns, at) = block
            .decode_next(&self.plan.record_plan, current.next_row_offset, rows)
            .map_err(fault)?;
        current.next_row_offset = at;
        current.decoded_rows += rows;
        if current.decoded_rows == current.rows {
            if current.next_row_offset != current.rows_end {
                let left = current.rows_end - current.next_row_offset;
                return Err(fault(RowDecodeError::from_damage(format!(
                    "{left} bytes follow its last row"
                ))));
            }
            self.current = None;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = self.plan.output_schema.clone();
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.current.is_some() {
                return self.decode_batch();
            }
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.load_block(block)?;
        }
    }
}

impl<S: ReadAt> Iterator for RowfileBatches<S> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.next_batch();
        if step.is_err() {
            // No batch follows an error.
            self.blocks = Vec::new().into_iter();
            self.current = None;
        }
        step.transpose()
    }
}

/// The state of opening a file.
struct FileOpener<S> {
    source: S,
    name: String,
    header: FileHeader,
    header_checksum: u32,
    header_end: u64,
    file_bytes: u64,
    footer_end: u64,
    last_footer: u64,
    /// Footers from the last to the first.
    footers: Vec<FileFooter>,
    /// Blocks found by a scan, without a footer.
    scanned_blocks: Vec<BlockInfo>,
    damages: Vec<(u64, String)>,
    skipped_bytes: u64,
}

impl<S: ReadAt> FileOpener<S> {
    fn new(source: S, name: &str) -> Result<Self> {
        let io = |error| Error::Io { file: name.into(), error };
        let length = source.len().map_err(io)?;
        let cut_off = |end| Error::Truncated {
            file: name.into(),
            end: LastIntactBlock { block: None, end },
            blocks: 0,
            rows: 0,
        };
        let guess = usize::try_from(length.min(SPECULATIVE_READ_BYTES)).unwrap_or_default();
        let mut bytes = vec![0; guess];
        source.read_at(0, &mut bytes).map_err(io)?;
        if bytes.len() < HEADER_BYTES {
            // These bytes may be the beginning of a rowfile.
            if crate::file_format::MAGIC.starts_with(bytes.get(..8).unwrap_or(&bytes)) && guess > 0
            {
                return Err(cut_off(0));
            }
            FileHeader::total_bytes(name, &bytes)?;
        }
        let header_end = FileHeader::total_bytes(name, &bytes)?;
        if header_end > length {
            return Err(cut_off(0));
        }
        let rest = usize::try_from(header_end).unwrap_or_default();
        if rest > bytes.len() {
            bytes.resize(rest, 0);
            source.read_at(0, &mut bytes).map_err(io)?;
        }
        let (header, file) = FileHeader::parse(name, bytes.get(..rest).unwrap_or_default())?;
        Ok(Self {
            source,
            name: name.into(),
            header,
            header_checksum: file,
            header_end,
            file_bytes: length,
            footer_end: header_end,
            last_footer: 0,
            footers: Vec::new(),
            scanned_blocks: Vec::new(),
            damages: Vec::new(),
            skipped_bytes: 0,
        })
    }

    fn read_bytes(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        // Callers request only bytes that the file contains.
        let mut into = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.source
            .read_at(offset, &mut into)
            .map_err(|error| Error::Io { file: self.name.clone(), error })?;
        Ok(into)
    }

    fn damaged_error(&self, part: FilePart, offset: u64, reason: impl Into<String>) -> Error {
        Error::Damaged { file: self.name.clone(), part, offset, reason: reason.into() }
    }

    /// Reads the trailer that ends at `end`.
    fn read_trailer(&self, end: u64) -> Result<Option<FooterTrailer>> {
        let Some(start) = end.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
        if start < self.header_end {
            return Ok(None);
        }
        Ok(FooterTrailer::parse(
            &self.read_bytes(start, TRAILER_BYTES as u64)?,
            self.header_checksum,
            end,
        ))
    }

    /// Finds the last whole footer.
    fn find_last_footer(&mut self) -> Result<()> {
        if let Some(trailer) = self.read_trailer(self.file_bytes)? {
            (self.last_footer, self.footer_end) = (trailer.footer_offset, trailer.end_offset);
            return Ok(());
        }
        // An append is in progress or was killed, or the file is truncated: walk from section to
        // section.
        let mut at = self.header_end;
        let (mut blocks, mut rows, mut last) = (0, 0, None);
        while let Some(section) = self.read_section(at)? {
            match section.kind {
                SectionKind::Block => {
                    if section.end() > self.file_bytes {
                        break;
                    }
                    last = Some((blocks, at));
                    blocks += 1;
                    rows += u64::from(section.count);
                    at = section.end();
                }
                SectionKind::Footer => {
                    let end = section.end().saturating_add(TRAILER_BYTES as u64);
                    if end > self.file_bytes {
                        break;
                    }
                    match self.read_trailer(end)? {
                        Some(trailer) if trailer.footer_offset == at => {
                            (self.last_footer, self.footer_end) = (at, end);
                            at = end;
                        }
                        _ => {
                            let reason = "its trailer is not what its checksum says";
                            return Err(self.damaged_error(FilePart::Footer, at, reason));
                        }
                    }
                }
            }
        }
        if self.last_footer == 0 {
            return Err(Error::Truncated {
                file: self.name.clone(),
                end: LastIntactBlock { block: last, end: at },
                blocks,
                rows,
            });
        }
        Ok(())
    }

    /// Reads the section header at `at`; `None` if the file ends within it.
    fn read_section(&self, at: u64) -> Result<Option<SectionHeader>> {
        if at.saturating_add(SECTION_BYTES as u64) > self.file_bytes {
            return Ok(None);
        }
        let bytes = self.read_bytes(at, SECTION_BYTES as u64)?;
        let section = SectionHeader::parse(&bytes, self.header_checksum, at);
        section
            .map(Some)
            .map_err(|fault| fault.into_error(&self.name, FilePart::Block(None), at, 0))
    }

    /// Reads the footers from the last to the first.
    fn read_footers(&mut self) -> Result<()> {
        let mut at = self.last_footer;
        let mut end = self.footer_end;
        let mut decompressor = SectionDecompressor::new();
        let mut raw = Vec::new();
        loop {
            let reason = "it is not where the trailer says";
            if at < self.header_end || at >= end {
                return Err(self.damaged_error(FilePart::Footer, at, reason));
            }
            // Read the header first; the footer's end, and with it its trailer, follows from there.
            let head = self.read_bytes(at, (SECTION_BYTES as u64).min(end - at))?;
            let fault =
                |fault: RowDecodeError| fault.into_error(&self.name, FilePart::Footer, at, 0);
            let section = SectionHeader::parse(&head, self.header_checksum, at).map_err(fault)?;
            let found = section.end() + TRAILER_BYTES as u64;
            if section.kind != SectionKind::Footer || found > end {
                return Err(self.damaged_error(FilePart::Footer, at, reason));
            }
            let stored =
                self.read_bytes(at + SECTION_BYTES as u64, u64::from(section.stored_bytes))?;
            section.verify_checksum(&stored).map_err(fault)?;
            decompressor
                .decompress(section.codec, &stored, section.raw_bytes as usize, 0, &mut raw)
                .map_err(fault)?;
            let footer = FileFooter::parse(&raw, section.count).map_err(fault)?;
            if self.read_trailer(found)?.is_none_or(|trailer| trailer.footer_offset != at) {
                let reason = "its trailer is not what its checksum says";
                return Err(self.damaged_error(FilePart::Footer, at, reason));
            }
            // Entries must be in order and lie between the previous footer and this one.
            let mut from = footer.previous_footer.max(self.header_end);
            for entry in &footer.entries {
                let entry_end = entry.offset.saturating_add(u64::from(entry.bytes));
                if entry.offset < from || entry_end > at || (entry.bytes as usize) < SECTION_BYTES {
                    return Err(self.damaged_error(
                        FilePart::Footer,
                        at,
                        "a block outside of the file",
                    ));
                }
                from = entry_end;
            }
            if self
                .footers
                .last()
                .is_some_and(|behind| behind.statistics_leaves != footer.statistics_leaves)
            {
                return Err(self.damaged_error(
                    FilePart::Footer,
                    at,
                    "statistics of other columns",
                ));
            }
            let previous = footer.previous_footer;
            self.footers.push(footer);
            if previous == 0 {
                return Ok(());
            }
            if previous >= at {
                return Err(self.damaged_error(
                    FilePart::Footer,
                    at,
                    "a footer before it that is behind it",
                ));
            }
            (end, at) = (at, previous);
        }
    }

    /// Finds every whole block, and records everything else as damage.
    fn scan_blocks(&mut self) -> Result<()> {
        let mut at = self.header_end;
        let mut has_end = false;
        while at < self.file_bytes {
            let section = match self.read_section(at) {
                Ok(section) => section.filter(|section| section.end() <= self.file_bytes),
                Err(Error::Damaged { reason, .. }) => {
                    at = self.skip_damage(at, at + 1, reason)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            has_end = false;
            let Some(section) = section else {
                at = self.skip_damage(at, at + 1, "it is cut off".into())?;
                continue;
            };
            let stored =
                self.read_bytes(at + SECTION_BYTES as u64, u64::from(section.stored_bytes))?;
            if let Err(fault) = section.verify_checksum(&stored) {
                let error = fault.into_error(&self.name, FilePart::Block(None), at, 0);
                let reason = match error {
                    Error::Damaged { reason, .. } => reason,
                    other => other.to_string(),
                };
                at = match section.kind {
                    SectionKind::Block => self.record_damage(at, section.end(), reason),
                    SectionKind::Footer => self.skip_damage(at, section.end(), reason)?,
                };
                continue;
            }
            match section.kind {
                SectionKind::Block => {
                    self.scanned_blocks.push(BlockInfo {
                        offset: at,
                        bytes: u32::try_from(section.end() - at).unwrap_or(u32::MAX),
                        rows: section.count,
                        first_row: section.first_row,
                    });
                    at = section.end();
                }
                SectionKind::Footer => {
                    let end = section.end() + TRAILER_BYTES as u64;
                    if end <= self.file_bytes
                        && self
                            .read_trailer(end)?
                            .is_some_and(|trailer| trailer.footer_offset == at)
                    {
                        has_end = true;
                        at = end;
                    } else {
                        let reason = "its trailer is not what its checksum says";
                        at = self.skip_damage(at, section.end(), reason.into())?;
                    }
                }
            }
        }
        if !has_end && self.damages.is_empty() {
            self.damages.push((self.file_bytes, "it has no footer".into()));
        }
        Ok(())
    }

    /// Records damage at `at`, and returns the position where the next section may begin.
    fn skip_damage(&mut self, at: u64, from: u64, reason: String) -> Result<u64> {
        let next = self.find_next_section(from)?;
        Ok(self.record_damage(at, next, reason))
    }

    fn record_damage(&mut self, at: u64, next: u64, reason: String) -> u64 {
        self.damages.push((at, reason));
        self.skipped_bytes += next - at;
        next
    }

    /// Returns the next position from `from` on where a section may begin; the end of the file if there is
    /// none.
    fn find_next_section(&self, from: u64) -> Result<u64> {
        const STEP: u64 = 1 << 20;
        let marks = [SectionKind::Block, SectionKind::Footer].map(|kind| {
            let mut mark = kind.magic().to_vec();
            mark.extend_from_slice(&self.header_checksum.to_le_bytes());
            mark
        });
        let mut at = from;
        while at < self.file_bytes {
            let bytes = self.read_bytes(at, (self.file_bytes - at).min(STEP + 8))?;
            let found = bytes.windows(8).position(|window| marks.iter().any(|mark| mark == window));
            if let Some(found) = found {
                return Ok(at + found as u64);
            }
            at += STEP;
        }
        Ok(self.file_bytes)
    }

    fn into_reader(self) -> Reader<S> {
        let (mut blocks, mut statistics, mut leaves) =
            (self.scanned_blocks, Vec::new(), Vec::new());
        let mut first_row = 0;
        for footer in self.footers.into_iter().rev() {
            leaves = footer.statistics_leaves;
            for FooterEntry { offset, bytes, rows, statistics: found } in footer.entries {
                blocks.push(BlockInfo { offset, bytes, rows, first_row });
                statistics.push(found);
                first_row += u64::from(rows);
            }
        }
        let about = FileIndex {
            unfinished_bytes: self.file_bytes - self.footer_end,
            name: self.name,
            header: self.header,
            header_checksum: self.header_checksum,
            blocks,
            statistics,
            statistics_leaves: leaves,
            last_footer: self.last_footer,
            footer_end: self.footer_end,
            damages: self.damages,
            skipped_bytes: self.skipped_bytes,
        };
        Reader { source: Arc::new(self.source), index: Arc::new(about) }
    }
}
