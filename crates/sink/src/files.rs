//! Many files written at once within a memory budget, one of them open at a time.
//!
//! Rows arrive in any order of paths. What waits for its file is held in memory; past the
//! budget it moves to the staged files:
//!
//! - The line formats are encoded at once, and each path has a buffer of bytes. The largest
//!   buffers are appended to their files until half of the budget is free: on skewed data few
//!   large writes, on even data one write per path for each quarter of the budget. (The last
//!   quarter is what the allocator loses between buffers that grow.) Where they are compressed, what
//!   is appended is a member of its own.
//! - Parquet, Arrow, Avro and text cannot be appended to. The batches themselves are held, gathered by
//!   path, and past the budget every path's rows go to its `N.spool`, one Arrow stream per
//!   move. In the end files are written one by one from spool and memory. Without pressure
//!   there is no spool.
//!
//! A file is opened, appended to and closed for each move, so however many paths there are, one
//! of them is open. Handles kept open would save two system calls per move, which is little
//! beside the move, and would be a limit to run into.

use std::io::{BufReader, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use tidemill_base::batch_compaction;
use tidemill_base::cancellation::CancelFlag;

use super::compression::Codec;
use super::error::{Error, Result};
use super::formats::lines::{LineFormat, ROWS_AT_ONCE};
use super::formats::{EncodeError, Encoding};
use super::fs::{self, Output};
use super::partition::{Groups, Router};
use super::writer::{RowWriter, Writing};

/// Rows gathered for one write of a spooled format take about this much memory.
const CHUNK_BYTES: usize = 8 << 20;

/// Rows of a spooled format are gathered by file this many at a time: 4 million rows to 10,000
/// Parquet files take 7.8 s of CPU instead of the 13.3 s of 8,192 at a time.
const GATHER_ROWS: usize = 1 << 17;
/// And of this many bytes: a column of strings has room for 2 GiB.
const GATHER_BYTES: usize = 256 << 20;

/// What a column that waits may keep alive without showing it: batches are gathered so that there
/// are few.
const HELD_SLACK_BYTES: usize = 64 << 10;

/// A folder for files before they have their names.
pub(super) trait Stage {
    /// The path of a staged file.
    fn path(&self, name: &str) -> PathBuf;
}

/// The files of a partitioned output, called by number.
pub(super) struct PartitionedFiles {
    writing: Writing,
    schema: SchemaRef,
    kind: Waiting,
    /// How many files there are so far.
    count: usize,
}

enum Waiting {
    Lines(Lines),
    Spooled(Spooled),
}

struct Lines {
    format: Box<dyn LineFormat>,
    codec: Codec,
    /// Encoded bytes that wait, and how many have been written already, per file.
    buffers: Vec<(Vec<u8>, u64)>,
    /// The buffers' capacity.
    held: usize,
}

struct Spooled {
    /// Batches as they came. A gathered batch costs a little per path that it holds, so that
    /// small ones are put together first.
    unrouted: Vec<RecordBatch>,
    unrouted_rows: usize,
    unrouted_bytes: usize,
    /// Batches in groups of rows for one file.
    batches: Vec<RecordBatch>,
    held: usize,
    /// Per file: which rows of which batches, in order.
    pieces: Vec<Vec<BatchSlice>>,
    /// Per file: whether it has a spool.
    spooled: Vec<bool>,
}

#[derive(Clone, Copy)]
struct BatchSlice {
    batch: u32,
    start: u32,
    len: u32,
}

impl PartitionedFiles {
    pub(super) fn new(writing: Writing, schema: SchemaRef) -> Self {
        let kind = match writing.lines() {
            Some(format) => {
                let codec = writing.encoding.codec;
                Waiting::Lines(Lines { format, codec, buffers: Vec::new(), held: 0 })
            }
            None => Waiting::Spooled(Spooled {
                unrouted: Vec::new(),
                unrouted_rows: 0,
                unrouted_bytes: 0,
                batches: Vec::new(),
                held: 0,
                pieces: Vec::new(),
                spooled: Vec::new(),
            }),
        };
        PartitionedFiles { writing, schema, kind, count: 0 }
    }

    /// Adds a batch's rows to the files that the router gives them.
    pub(super) fn write(
        &mut self,
        batch: &RecordBatch,
        router: &mut Router,
        staging: &dyn Stage,
    ) -> Result<()> {
        let Waiting::Spooled(spooled) = &mut self.kind else {
            return self.route(batch, router, staging);
        };
        let batch = compacted(batch)?;
        spooled.unrouted_rows += batch.num_rows();
        spooled.unrouted_bytes += size(&batch);
        spooled.unrouted.push(batch);
        let bytes = GATHER_BYTES.min(self.writing.encoding.memory_limit / 8);
        if spooled.unrouted_rows >= GATHER_ROWS || spooled.unrouted_bytes > bytes {
            self.gather(router, staging)?;
        }
        Ok(())
    }

    /// Routes the rows of a spooled format that have not been routed yet.
    fn gather(&mut self, router: &mut Router, staging: &dyn Stage) -> Result<()> {
        let Waiting::Spooled(spooled) = &mut self.kind else { return Ok(()) };
        if spooled.unrouted.is_empty() {
            return Ok(());
        }
        let batch = together(&self.schema, &mut spooled.unrouted)?;
        spooled.unrouted_rows = 0;
        spooled.unrouted_bytes = 0;
        self.route(&batch, router, staging)
    }

    fn route(
        &mut self,
        batch: &RecordBatch,
        router: &mut Router,
        staging: &dyn Stage,
    ) -> Result<()> {
        let groups = router.route(batch)?;
        let last = groups.groups.iter().map(|(file, _)| *file).max();
        self.count = last.map_or(0, |file| file + 1).max(self.count);
        let files = self.count;
        match &mut self.kind {
            Waiting::Lines(lines) => lines.write(
                groups,
                files,
                &self.schema,
                self.writing.encoding.memory_limit,
                staging,
                &self.writing.encoding.name,
            ),
            Waiting::Spooled(spooled) => {
                spooled.write(groups, files)?;
                if spooled.held > self.writing.encoding.memory_limit / 2 {
                    let Encoding { name, cancel, .. } = &self.writing.encoding;
                    spooled.spool(&self.schema, staging, name, cancel)?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Writes what waits; the staged files are whole then. Returns their sizes in bytes.
    pub(super) fn finish(mut self, router: &mut Router, staging: &dyn Stage) -> Result<Vec<u64>> {
        self.gather(router, staging)?;
        match self.kind {
            Waiting::Lines(mut lines) => {
                for file in 0..lines.buffers.len() {
                    self.writing.encoding.cancel.check()?;
                    lines.append(file, staging, &self.writing.encoding.name)?;
                }
                Ok(lines.buffers.iter().map(|(_, written)| *written).collect())
            }
            Waiting::Spooled(spooled) => {
                let mut sizes = Vec::with_capacity(spooled.pieces.len());
                for file in 0..spooled.pieces.len() {
                    self.writing.encoding.cancel.check()?;
                    let path = staging.path(&file.to_string());
                    let output =
                        fs::create_new(&path).map_err(|e| Error::io("create", &path, e))?;
                    let schema = Arc::clone(&self.schema);
                    let mut writer = RowWriter::new(Output::new(output), &self.writing, schema)?;
                    if spooled.spooled[file] {
                        read_spool(staging, file, |batch| writer.write(&batch))?;
                    }
                    spooled.chunks(file, &self.schema, |batch| writer.write(&batch))?;
                    sizes.push(writer.finish()?.bytes);
                    if spooled.spooled[file] {
                        // Space is freed as it goes.
                        let path = staging.path(&format!("{file}.spool"));
                        fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
                    }
                }
                Ok(sizes)
            }
        }
    }
}

impl Lines {
    fn write(
        &mut self,
        groups: Groups,
        files: usize,
        schema: &SchemaRef,
        memory_limit: usize,
        staging: &dyn Stage,
        url: &str,
    ) -> Result<()> {
        let rows = self.format.prepare(&groups.batch)?;
        while self.buffers.len() < files {
            let mut header = Vec::new();
            self.format.header(schema, &mut header);
            self.held += header.capacity();
            self.buffers.push((header, 0));
        }
        for (file, range) in groups.groups {
            // A batch of wide rows for one file may be larger than the budget.
            for start in range.clone().step_by(ROWS_AT_ONCE) {
                let buffer = &mut self.buffers[file].0;
                let before = buffer.capacity();
                self.format.write(&rows, start..(start + ROWS_AT_ONCE).min(range.end), buffer);
                self.held += buffer.capacity() - before;
                if self.held > memory_limit / 4 * 3 {
                    self.make_room(memory_limit / 2, staging, url)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the largest buffers to their files until at most `limit` bytes are held.
    fn make_room(&mut self, limit: usize, staging: &dyn Stage, url: &str) -> Result<()> {
        let mut order: Vec<usize> =
            (0..self.buffers.len()).filter(|file| self.buffers[*file].0.capacity() > 0).collect();
        order.sort_unstable_by_key(|file| std::cmp::Reverse(self.buffers[*file].0.capacity()));
        for file in order {
            if self.held <= limit {
                break;
            }
            self.append(file, staging, url)?;
        }
        Ok(())
    }

    fn append(&mut self, file: usize, staging: &dyn Stage, url: &str) -> Result<()> {
        let (buffer, written) = &mut self.buffers[file];
        if buffer.is_empty() && *written > 0 {
            return Ok(());
        }
        let path = staging.path(&file.to_string());
        let mut output = fs::append(&path).map_err(|e| Error::io("create", &path, e))?;
        let mut compressed = Vec::new();
        let bytes = self.codec.member(buffer, &mut compressed);
        let bytes = bytes.map_err(|e| Error::io("compress", url, e))?;
        fs::write_all(&mut output, bytes).map_err(|e| Error::io("write", url, e))?;
        *written += bytes.len() as u64;
        self.held -= buffer.capacity();
        // Gives the memory back: the next to grow may be another one.
        *buffer = Vec::new();
        Ok(())
    }
}

impl Spooled {
    fn write(&mut self, groups: Groups, files: usize) -> Result<()> {
        let batch = compacted(&groups.batch)?;
        let index = u32::try_from(self.batches.len())
            .map_err(|_| Error::Internal("more than 4 billion batches".into()))?;
        self.held += size(&batch) + groups.groups.len() * size_of::<BatchSlice>();
        self.batches.push(batch);
        self.pieces.resize_with(files, Vec::new);
        self.spooled.resize(files, false);
        for (file, rows) in groups.groups {
            // A batch has fewer than 2^32 rows: the router has checked.
            let piece =
                BatchSlice { batch: index, start: rows.start as u32, len: rows.len() as u32 };
            self.pieces[file].push(piece);
        }
        Ok(())
    }

    /// Hands on a file's rows in order, gathered to batches of some size.
    fn chunks(
        &self,
        file: usize,
        schema: &SchemaRef,
        mut each: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut waiting: Vec<RecordBatch> = Vec::new();
        let mut bytes = 0;
        for piece in &self.pieces[file] {
            let batch = &self.batches[piece.batch as usize];
            waiting.push(batch.slice(piece.start as usize, piece.len as usize));
            bytes += size(batch) / batch.num_rows().max(1) * piece.len as usize;
            if bytes >= CHUNK_BYTES {
                each(own_rows(schema, &mut waiting)?)?;
                bytes = 0;
            }
        }
        if !waiting.is_empty() {
            each(own_rows(schema, &mut waiting)?)?;
        }
        Ok(())
    }

    /// Moves all rows to the files' spools.
    fn spool(
        &mut self,
        schema: &SchemaRef,
        staging: &dyn Stage,
        url: &str,
        cancel: &CancelFlag,
    ) -> Result<()> {
        for file in 0..self.pieces.len() {
            if self.pieces[file].is_empty() {
                continue;
            }
            cancel.check()?;
            let path = staging.path(&format!("{file}.spool"));
            let output = fs::append(&path).map_err(|e| Error::io("create", &path, e))?;
            let output = std::io::BufWriter::with_capacity(1 << 16, Output::new(output));
            let mut writer = StreamWriter::try_new(output, schema)
                .map_err(|e| EncodeError::from(e).told(url))?;
            self.chunks(file, schema, |batch| {
                writer.write(&batch).map_err(|e| EncodeError::from(e).told(url))
            })?;
            writer.finish().map_err(|e| EncodeError::from(e).told(url))?;
            let mut output = writer.into_inner().map_err(|e| EncodeError::from(e).told(url))?;
            output.flush().map_err(|e| Error::io("write", url, e))?;
            self.spooled[file] = true;
            self.pieces[file] = Vec::new();
        }
        self.batches.clear();
        self.held = 0;
        Ok(())
    }
}

/// One file's rows as one batch, without the other files' text: Arrow's writer writes all that
/// views could point into.
fn own_rows(schema: &SchemaRef, waiting: &mut Vec<RecordBatch>) -> Result<RecordBatch> {
    batch_compaction::compact_batch(&together(schema, waiting)?).map_err(uncopied)
}

fn together(schema: &SchemaRef, waiting: &mut Vec<RecordBatch>) -> Result<RecordBatch> {
    let batch = match waiting.as_slice() {
        [one] => Ok(one.clone()),
        many => concat_batches(schema, many),
    };
    waiting.clear();
    batch.map_err(|e| Error::Internal(format!("cannot put batches together: {e}")))
}

/// Reads the streams of a spool one after another.
fn read_spool(
    staging: &dyn Stage,
    file: usize,
    mut each: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let path = staging.path(&format!("{file}.spool"));
    let error = |e| Error::io("read", &path, e);
    let opened = fs::open(&path).map_err(error)?;
    let length = opened.metadata().map_err(error)?.len();
    let mut reader = BufReader::with_capacity(1 << 16, opened);
    while reader.stream_position().map_err(error)? < length {
        let stream = StreamReader::try_new(&mut reader, None);
        for batch in stream.map_err(|e| damaged(&path, &e))? {
            each(batch.map_err(|e| damaged(&path, &e))?)?;
        }
    }
    Ok(())
}

fn damaged(path: &std::path::Path, error: &arrow::error::ArrowError) -> Error {
    Error::Corrupt {
        path: path.display().to_string(),
        reason: error.to_string(),
        hint: "run again".into(),
    }
}

/// The memory that a batch keeps alive.
fn size(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size()
}

/// The batch without memory that it keeps alive but does not show, beyond some: it waits in memory
/// beside others of its kind.
fn compacted(batch: &RecordBatch) -> Result<RecordBatch> {
    batch_compaction::compact_batch_with_slack(batch, HELD_SLACK_BYTES).map_err(uncopied)
}

fn uncopied(error: ArrowError) -> Error {
    Error::Internal(format!("cannot copy a batch: {error}"))
}
