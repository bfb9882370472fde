//! Writes many files at once within a memory budget, with one of them open at a time.
//!
//! Rows arrive in any order of paths. Rows that wait for their file are held in memory; past the
//! budget they move to the staged files:
//!
//! - The line formats are encoded at once, and each path has a buffer of bytes. The largest
//!   buffers are appended to their files until half of the budget is free: few large writes on
//!   skewed data, and on even data one write per path for each quarter of the budget. (The last
//!   quarter covers the allocator's losses between growing buffers.) If the files are compressed, each
//!   appended piece is a member of its own.
//! - Parquet, Arrow, Avro and text cannot be appended to. The batches themselves are held, gathered by
//!   path, and past the budget every path's rows go to its `N.spool`, one Arrow stream per
//!   move. In the end files are written one by one from spool and memory. Without memory pressure
//!   there is no spool.
//!
//! Each move opens, appends to and closes a file, so one file is open, regardless of the number of
//! paths. Handles kept open would save two system calls per move, which is little
//! beside the move, and the number of handles is limited.

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

use crate::commit::fs::{self, CountingFile};
use crate::error::{Error, Result};
use crate::formats::line_format::{ENCODED_ROWS_MAX, LineFormat};
use crate::formats::{EncodeError, FileEncoding};
use crate::writing::compression::OutputCodec;
use crate::writing::row_router::{PathGroupedRows, RowRouter};
use crate::writing::row_writer::{FileWriteSpec, RowWriter};

/// Approximate memory of the rows gathered for one write of a spooled format.
const WRITE_CHUNK_BYTES: usize = 8 << 20;

/// Number of rows of a spooled format that are gathered by file at a time: 4 million rows to 10,000
/// Parquet files take 7.8 s of CPU instead of the 13.3 s with 8,192 rows.
const GATHER_ROWS: usize = 1 << 17;
/// Maximum bytes of those rows: a column of strings has room for 2 GiB.
const GATHER_BYTES: usize = 256 << 20;

/// Memory that a waiting column may keep alive beyond its visible values: batches are gathered, so there
/// are few of them.
const WAITING_SLACK_BYTES: usize = 64 << 10;

/// A folder for files before they have their final names.
pub(crate) trait StagingArea {
    /// Returns the path of a staged file.
    fn staged_path(&self, name: &str) -> PathBuf;
}

/// The files of a partitioned output, identified by numbers.
pub(crate) struct PartitionedFiles {
    write_spec: FileWriteSpec,
    schema: SchemaRef,
    buffers: PartitionBuffers,
    /// Number of files so far.
    file_count: usize,
}

enum PartitionBuffers {
    Lines(LineBuffers),
    Spooled(SpooledRows),
}

struct LineBuffers {
    format: Box<dyn LineFormat>,
    codec: OutputCodec,
    /// Per file, the encoded bytes that wait, and the number of bytes written already.
    buffers: Vec<(Vec<u8>, u64)>,
    /// Capacity of all buffers.
    held_bytes: usize,
}

struct SpooledRows {
    /// Batches as they came. A gathered batch costs a little per path in it, so
    /// small batches are concatenated first.
    unrouted: Vec<RecordBatch>,
    unrouted_rows: usize,
    unrouted_bytes: usize,
    /// Batches whose rows are grouped by file.
    batches: Vec<RecordBatch>,
    held_bytes: usize,
    /// Per file, its ranges of rows in the batches, in order.
    slices: Vec<Vec<BatchRange>>,
    /// Per file, true if it has a spool.
    has_spool: Vec<bool>,
}

#[derive(Clone, Copy)]
struct BatchRange {
    batch: u32,
    start: u32,
    len: u32,
}

impl PartitionedFiles {
    pub(crate) fn new(writing: FileWriteSpec, schema: SchemaRef) -> Self {
        let kind = match writing.line_format() {
            Some(format) => {
                let codec = writing.encoding.codec;
                PartitionBuffers::Lines(LineBuffers {
                    format,
                    codec,
                    buffers: Vec::new(),
                    held_bytes: 0,
                })
            }
            None => PartitionBuffers::Spooled(SpooledRows {
                unrouted: Vec::new(),
                unrouted_rows: 0,
                unrouted_bytes: 0,
                batches: Vec::new(),
                held_bytes: 0,
                slices: Vec::new(),
                has_spool: Vec::new(),
            }),
        };
        PartitionedFiles { write_spec: writing, schema, buffers: kind, file_count: 0 }
    }

    /// Adds a batch's rows to the files that the router assigns to them.
    pub(crate) fn write(
        &mut self,
        batch: &RecordBatch,
        router: &mut RowRouter,
        staging: &dyn StagingArea,
    ) -> Result<()> {
        let PartitionBuffers::Spooled(spooled) = &mut self.buffers else {
            return self.route_batch(batch, router, staging);
        };
        let batch = compact_waiting_batch(batch)?;
        spooled.unrouted_rows += batch.num_rows();
        spooled.unrouted_bytes += batch_memory_bytes(&batch);
        spooled.unrouted.push(batch);
        let bytes = GATHER_BYTES.min(self.write_spec.encoding.memory_limit_bytes / 8);
        if spooled.unrouted_rows >= GATHER_ROWS || spooled.unrouted_bytes > bytes {
            self.route_unrouted(router, staging)?;
        }
        Ok(())
    }

    /// Routes the rows of a spooled format that have not been routed yet.
    fn route_unrouted(&mut self, router: &mut RowRouter, staging: &dyn StagingArea) -> Result<()> {
        let PartitionBuffers::Spooled(spooled) = &mut self.buffers else { return Ok(()) };
        if spooled.unrouted.is_empty() {
            return Ok(());
        }
        let batch = concat_and_clear(&self.schema, &mut spooled.unrouted)?;
        spooled.unrouted_rows = 0;
        spooled.unrouted_bytes = 0;
        self.route_batch(&batch, router, staging)
    }

    fn route_batch(
        &mut self,
        batch: &RecordBatch,
        router: &mut RowRouter,
        staging: &dyn StagingArea,
    ) -> Result<()> {
        let groups = router.group_by_path(batch)?;
        let last = groups.groups.iter().map(|(file, _)| *file).max();
        self.file_count = last.map_or(0, |file| file + 1).max(self.file_count);
        let files = self.file_count;
        match &mut self.buffers {
            PartitionBuffers::Lines(lines) => lines.encode_groups(
                groups,
                files,
                &self.schema,
                self.write_spec.encoding.memory_limit_bytes,
                staging,
                &self.write_spec.encoding.output_name,
            ),
            PartitionBuffers::Spooled(spooled) => {
                spooled.add_groups(groups, files)?;
                if spooled.held_bytes > self.write_spec.encoding.memory_limit_bytes / 2 {
                    let FileEncoding { output_name: name, cancel, .. } = &self.write_spec.encoding;
                    spooled.spool_rows(&self.schema, staging, name, cancel)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Writes the waiting rows, which completes the staged files. Returns their sizes in bytes.
    pub(crate) fn finish(
        mut self,
        router: &mut RowRouter,
        staging: &dyn StagingArea,
    ) -> Result<Vec<u64>> {
        self.route_unrouted(router, staging)?;
        match self.buffers {
            PartitionBuffers::Lines(mut lines) => {
                for file in 0..lines.buffers.len() {
                    self.write_spec.encoding.cancel.check()?;
                    lines.append_buffer(file, staging, &self.write_spec.encoding.output_name)?;
                }
                Ok(lines.buffers.iter().map(|(_, written)| *written).collect())
            }
            PartitionBuffers::Spooled(spooled) => {
                let mut sizes = Vec::with_capacity(spooled.slices.len());
                for file in 0..spooled.slices.len() {
                    self.write_spec.encoding.cancel.check()?;
                    let path = staging.staged_path(&file.to_string());
                    let output =
                        fs::create_new_file(&path).map_err(|e| Error::io("create", &path, e))?;
                    let schema = Arc::clone(&self.schema);
                    let mut writer =
                        RowWriter::new(CountingFile::new(output), &self.write_spec, schema)?;
                    if spooled.has_spool[file] {
                        read_spool(staging, file, |batch| writer.write(&batch))?;
                    }
                    spooled.for_each_chunk(file, &self.schema, |batch| writer.write(&batch))?;
                    sizes.push(writer.finish()?.bytes_written);
                    if spooled.has_spool[file] {
                        // Frees disk space after each file.
                        let path = staging.staged_path(&format!("{file}.spool"));
                        fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
                    }
                }
                Ok(sizes)
            }
        }
    }
}

impl LineBuffers {
    fn encode_groups(
        &mut self,
        groups: PathGroupedRows,
        files: usize,
        schema: &SchemaRef,
        memory_limit: usize,
        staging: &dyn StagingArea,
        url: &str,
    ) -> Result<()> {
        let rows = self.format.prepare_batch(&groups.batch)?;
        while self.buffers.len() < files {
            let mut header = Vec::new();
            self.format.write_header(schema, &mut header);
            self.held_bytes += header.capacity();
            self.buffers.push((header, 0));
        }
        for (file, range) in groups.groups {
            // A batch of wide rows for one file may be larger than the budget.
            for start in range.clone().step_by(ENCODED_ROWS_MAX) {
                let buffer = &mut self.buffers[file].0;
                let before = buffer.capacity();
                self.format.write_rows(
                    &rows,
                    start..(start + ENCODED_ROWS_MAX).min(range.end),
                    buffer,
                );
                self.held_bytes += buffer.capacity() - before;
                if self.held_bytes > memory_limit / 4 * 3 {
                    self.append_largest_buffers(memory_limit / 2, staging, url)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the largest buffers to their files until at most `limit` bytes are held.
    fn append_largest_buffers(
        &mut self,
        limit: usize,
        staging: &dyn StagingArea,
        url: &str,
    ) -> Result<()> {
        let mut order: Vec<usize> =
            (0..self.buffers.len()).filter(|file| self.buffers[*file].0.capacity() > 0).collect();
        order.sort_unstable_by_key(|file| std::cmp::Reverse(self.buffers[*file].0.capacity()));
        for file in order {
            if self.held_bytes <= limit {
                break;
            }
            self.append_buffer(file, staging, url)?;
        }
        Ok(())
    }

    fn append_buffer(&mut self, file: usize, staging: &dyn StagingArea, url: &str) -> Result<()> {
        let (buffer, written) = &mut self.buffers[file];
        if buffer.is_empty() && *written > 0 {
            return Ok(());
        }
        let path = staging.staged_path(&file.to_string());
        let mut output = fs::open_append(&path).map_err(|e| Error::io("create", &path, e))?;
        let mut compressed = Vec::new();
        let bytes = self.codec.compress_member(buffer, &mut compressed);
        let bytes = bytes.map_err(|e| Error::io("compress", url, e))?;
        fs::write_all(&mut output, bytes).map_err(|e| Error::io("write", url, e))?;
        *written += bytes.len() as u64;
        self.held_bytes -= buffer.capacity();
        // Frees the memory: the next buffer to grow may be another one.
        *buffer = Vec::new();
        Ok(())
    }
}

impl SpooledRows {
    fn add_groups(&mut self, groups: PathGroupedRows, files: usize) -> Result<()> {
        let batch = compact_waiting_batch(&groups.batch)?;
        let index = u32::try_from(self.batches.len())
            .map_err(|_| Error::Internal("more than 4 billion batches".into()))?;
        self.held_bytes +=
            batch_memory_bytes(&batch) + groups.groups.len() * size_of::<BatchRange>();
        self.batches.push(batch);
        self.slices.resize_with(files, Vec::new);
        self.has_spool.resize(files, false);
        for (file, rows) in groups.groups {
            // A batch has fewer than 2^32 rows: the router has checked.
            let piece =
                BatchRange { batch: index, start: rows.start as u32, len: rows.len() as u32 };
            self.slices[file].push(piece);
        }
        Ok(())
    }

    /// Calls `each` with a file's rows in order, gathered to batches of about [`WRITE_CHUNK_BYTES`].
    fn for_each_chunk(
        &self,
        file: usize,
        schema: &SchemaRef,
        mut each: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut waiting: Vec<RecordBatch> = Vec::new();
        let mut bytes = 0;
        for piece in &self.slices[file] {
            let batch = &self.batches[piece.batch as usize];
            waiting.push(batch.slice(piece.start as usize, piece.len as usize));
            bytes += batch_memory_bytes(batch) / batch.num_rows().max(1) * piece.len as usize;
            if bytes >= WRITE_CHUNK_BYTES {
                each(concat_compacted(schema, &mut waiting)?)?;
                bytes = 0;
            }
        }
        if !waiting.is_empty() {
            each(concat_compacted(schema, &mut waiting)?)?;
        }
        Ok(())
    }

    /// Moves all waiting rows to the files' spools.
    fn spool_rows(
        &mut self,
        schema: &SchemaRef,
        staging: &dyn StagingArea,
        url: &str,
        cancel: &CancelFlag,
    ) -> Result<()> {
        for file in 0..self.slices.len() {
            if self.slices[file].is_empty() {
                continue;
            }
            cancel.check()?;
            let path = staging.staged_path(&format!("{file}.spool"));
            let output = fs::open_append(&path).map_err(|e| Error::io("create", &path, e))?;
            let output = std::io::BufWriter::with_capacity(1 << 16, CountingFile::new(output));
            let mut writer = StreamWriter::try_new(output, schema)
                .map_err(|e| EncodeError::from(e).into_sink_error(url))?;
            self.for_each_chunk(file, schema, |batch| {
                writer.write(&batch).map_err(|e| EncodeError::from(e).into_sink_error(url))
            })?;
            writer.finish().map_err(|e| EncodeError::from(e).into_sink_error(url))?;
            let mut output =
                writer.into_inner().map_err(|e| EncodeError::from(e).into_sink_error(url))?;
            output.flush().map_err(|e| Error::io("write", url, e))?;
            self.has_spool[file] = true;
            self.slices[file] = Vec::new();
        }
        self.batches.clear();
        self.held_bytes = 0;
        Ok(())
    }
}

/// Concatenates one file's rows into one batch, without the text of other files: Arrow's writer writes
/// everything that views could point into.
fn concat_compacted(schema: &SchemaRef, waiting: &mut Vec<RecordBatch>) -> Result<RecordBatch> {
    batch_compaction::compact_batch(&concat_and_clear(schema, waiting)?).map_err(copy_error)
}

fn concat_and_clear(schema: &SchemaRef, waiting: &mut Vec<RecordBatch>) -> Result<RecordBatch> {
    let batch = match waiting.as_slice() {
        [one] => Ok(one.clone()),
        many => concat_batches(schema, many),
    };
    waiting.clear();
    batch.map_err(|e| Error::Internal(format!("cannot put batches together: {e}")))
}

/// Reads the streams of a spool one after another.
fn read_spool(
    staging: &dyn StagingArea,
    file: usize,
    mut each: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let path = staging.staged_path(&format!("{file}.spool"));
    let error = |e| Error::io("read", &path, e);
    let opened = fs::open(&path).map_err(error)?;
    let length = opened.metadata().map_err(error)?.len();
    let mut reader = BufReader::with_capacity(1 << 16, opened);
    while reader.stream_position().map_err(error)? < length {
        let stream = StreamReader::try_new(&mut reader, None);
        for batch in stream.map_err(|e| corrupt_spool_error(&path, &e))? {
            each(batch.map_err(|e| corrupt_spool_error(&path, &e))?)?;
        }
    }
    Ok(())
}

fn corrupt_spool_error(path: &std::path::Path, error: &arrow::error::ArrowError) -> Error {
    Error::Corrupt {
        path: path.display().to_string(),
        reason: error.to_string(),
        hint: "run again".into(),
    }
}

/// Returns the memory that a batch keeps alive.
fn batch_memory_bytes(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size()
}

/// Returns the batch without most of the memory that it keeps alive but does not show: it waits in memory
/// beside others of its kind.
fn compact_waiting_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    batch_compaction::compact_batch_with_slack(batch, WAITING_SLACK_BYTES).map_err(copy_error)
}

fn copy_error(error: ArrowError) -> Error {
    Error::Internal(format!("cannot copy a batch: {error}"))
}
