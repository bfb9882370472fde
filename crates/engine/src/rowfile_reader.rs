//! A reader of rowfiles with their own types, or with the types of a reader's schema.
//!
//! A query reads files as one table of SQL types. This reader returns batches as the format's own schema
//! resolution makes them, with enums, decimals of any width and fields that may not be null.
//! Threads decode the blocks in turn, and the caller gets them in row order. Memory holds at most three
//! blocks for each thread.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::{self, Coverage, ReadAmount, RecordCounts, SalvagedFile};
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::progress::RunProgress;
use tidemill_remote::StorageOptions;
use tidemill_rowfile as rowfile;
use tidemill_rowfile::ReadAt;
use tidemill_source::error_from_rowfile;
use tidemill_source::files::rowfile_listing::{self, RowfileBytes};
use tidemill_source::files::rowfile_salvage;

/// An input of rowfiles.
pub enum RowfileInput {
    /// A URL as a source accepts it: a path, a URL, a pattern, a folder.
    Url(String),
    /// The display name and the bytes of a file that the calling program holds.
    Memory(String, RowfileBytes),
}

/// A request to read rowfiles: the inputs, and the selected columns and blocks.
pub struct RowfileReadRequest {
    /// The files, in this order.
    pub inputs: Vec<RowfileInput>,
    /// Options for object stores.
    pub storage_options: StorageOptions,
    /// The schema to read all files as. Default: the first one's.
    pub reader_schema: Option<SchemaRef>,
    /// Names of the columns wanted, in this order. Default: all.
    pub columns: Option<Vec<String>>,
    /// Numbers of the blocks to read, if there is only one file. Default: all blocks.
    pub block_numbers: Option<Vec<usize>>,
    /// Byte range in which the blocks to read begin, if there is only one file. Default: all blocks.
    pub byte_range: Option<Range<u64>>,
    /// Maximum number of rows in a batch.
    pub batch_rows_max: usize,
    /// True to read all intact blocks of a damaged or truncated file. Otherwise such a file is an
    /// error.
    pub salvage_damaged: bool,
}

/// An open rowfile.
pub struct OpenRowfile {
    display_name: String,
    size_bytes: u64,
    reader: rowfile::Reader<CancellableBytes>,
    read_plan: Arc<rowfile::RowDecodePlan>,
    /// Numbers of the selected blocks.
    selected_blocks: Vec<usize>,
}

impl OpenRowfile {
    /// Returns the file's name for messages.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// Returns the file's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the reader, which holds the file's header and footer.
    pub fn reader(&self) -> &rowfile::Reader<CancellableBytes> {
        &self.reader
    }
}

/// Open rowfiles, with the schema and the selected blocks.
pub struct RowfileSet {
    files: Vec<OpenRowfile>,
    schema: SchemaRef,
    batch_rows_max: usize,
    salvage_damaged: bool,
}

/// The bytes of a rowfile. A read fails once the run is cancelled.
pub struct CancellableBytes {
    bytes: RowfileBytes,
    cancel: CancelFlag,
}

impl ReadAt for CancellableBytes {
    fn len(&self) -> std::io::Result<u64> {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.cancel.check().map_err(|stopped| std::io::Error::other(Error::from(stopped)))?;
        self.bytes.read_at(offset, into)
    }
}

impl RowfileSet {
    /// Lists the files and reads their headers and footers; with `salvage_damaged`, reads all of their bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Rowfile`] for a file that is not a rowfile or not intact;
    /// [`Error::Usage`] with every conflict for a schema that does not match the data.
    pub fn open(request: &RowfileReadRequest, cancel: &CancelFlag) -> Result<Self> {
        let mut found: Vec<(String, RowfileBytes)> = Vec::new();
        for input in &request.inputs {
            match input {
                RowfileInput::Memory(name, bytes) => found.push((name.clone(), Arc::clone(bytes))),
                RowfileInput::Url(url) => {
                    let others = request.inputs.len();
                    found.extend(rowfile_listing::list_rowfiles(
                        url,
                        &request.storage_options,
                        others,
                        cancel,
                    )?);
                }
            }
        }
        let is_part = request.block_numbers.is_some() || request.byte_range.is_some();
        if is_part && found.len() != 1 {
            return Err(Error::usage(format!(
                "blocks are chosen of one file, and these are {}",
                found.len()
            )));
        }
        let mut files: Vec<OpenRowfile> = Vec::with_capacity(found.len());
        let mut wanted =
            request.reader_schema.clone().map(|schema| project_schema(&schema, request));
        for (name, bytes) in found {
            cancel.check()?;
            let watched = CancellableBytes { bytes, cancel: cancel.clone() };
            let size = watched.len().map_err(|error| Error::io("read", &name, error))?;
            let reader = match request.salvage_damaged {
                true => rowfile::Reader::open_for_salvage(watched, &name),
                false => rowfile::Reader::new(watched, &name),
            };
            let reader = reader.map_err(|error| error_from_rowfile(error, &name))?;
            let schema = wanted.get_or_insert_with(|| {
                project_schema(&reader.schema().to_arrow(rowfile::StringLayout::default()), request)
            });
            let schema = match schema {
                Ok(schema) => Arc::clone(schema),
                // The first file returns the error.
                Err(error) => return Err(std::mem::replace(error, Error::Interrupted)),
            };
            let plan = match files.last() {
                Some(last) if last.read_plan.writer_schema() == reader.schema() => {
                    Arc::clone(&last.read_plan)
                }
                _ => {
                    let plan = rowfile::RowDecodePlan::new(reader.schema(), &schema);
                    Arc::new(plan.map_err(|error| error_from_rowfile(error, &name))?)
                }
            };
            let blocks = select_blocks(&reader, &name, request)?;
            files.push(OpenRowfile {
                display_name: name,
                size_bytes: size,
                reader,
                read_plan: plan,
                selected_blocks: blocks,
            });
        }
        let Some(first) = files.first() else {
            return Err(Error::usage("no files to read"));
        };
        let schema = Arc::clone(first.read_plan.output_schema());
        let batch_rows = request.batch_rows_max.max(1);
        Ok(Self {
            files,
            schema,
            batch_rows_max: batch_rows,
            salvage_damaged: request.salvage_damaged,
        })
    }

    /// Returns the schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the files in reading order.
    pub fn files(&self) -> &[OpenRowfile] {
        &self.files
    }

    /// Returns the number of rows in the selected blocks.
    pub fn selected_row_count(&self) -> u64 {
        let rows = |file: &OpenRowfile| -> u64 {
            let blocks = file.reader.blocks();
            let wanted = file.selected_blocks.iter().filter_map(|block| blocks.get(*block));
            wanted.map(|block| u64::from(block.rows)).sum()
        };
        self.files.iter().map(rows).sum()
    }

    /// Reads the selected blocks, and calls `take` with their batches in row order.
    ///
    /// # Errors
    /// [`Error::Rowfile`] for a damaged block, unless the request salvages; [`Error::Usage`] for a value that
    /// does not match the schema; errors of `take`.
    pub(crate) fn read_batches(
        &self,
        threads: usize,
        cancel: &CancelFlag,
        progress: &RunProgress,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Coverage> {
        let of = |(index, file): (usize, &OpenRowfile)| -> Vec<RowfileBlockTask> {
            let blocks = file.reader.blocks();
            let tasks = file.selected_blocks.iter().filter_map(|number| {
                let block = blocks.get(*number)?;
                Some(RowfileBlockTask {
                    file_index: index,
                    block_number: *number,
                    row_count: block.rows,
                    size_bytes: block.bytes,
                })
            });
            tasks.collect()
        };
        let tasks: Vec<RowfileBlockTask> = self.files.iter().enumerate().flat_map(of).collect();
        let total: u64 = tasks.iter().map(|task| u64::from(task.size_bytes)).sum();
        progress.set_bytes_total(total);
        let threads = threads.clamp(1, tasks.len().max(1));
        let mut done = (ReadAmount { total: tasks.len() as u64, ..ReadAmount::default() }, 0, 0);
        let mut failed: Vec<(usize, String)> = Vec::new();
        std::thread::scope(|scope| -> Result<()> {
            let mut workers = Vec::with_capacity(threads);
            for worker in 0..threads {
                let (sender, receiver) = sync_channel(1);
                let mine: Vec<RowfileBlockTask> =
                    tasks.iter().skip(worker).step_by(threads).copied().collect();
                let work = move || {
                    let worked = catch_panic(|| self.decode_blocks(&mine, cancel, &sender));
                    if let Err(error) = worked {
                        // The receiver is gone if the caller gave up reading.
                        let _ = sender.send(Err(error));
                    }
                };
                let thread = std::thread::Builder::new().name("rowfile".into());
                thread
                    .spawn_scoped(scope, work)
                    .map_err(|source| Error::io("start", "a thread", source))?;
                workers.push(receiver);
            }
            for (index, task) in tasks.iter().enumerate() {
                cancel.check()?;
                let Ok(decoded) = workers[index % threads].recv() else {
                    return Err(Error::Internal("a reader ended without an answer".to_owned()));
                };
                progress.add_bytes(task.size_bytes.into());
                match decoded? {
                    BlockResult::Decoded(batches) => {
                        for batch in batches {
                            done.2 += batch.num_rows() as u64;
                            progress.add_rows(batch.num_rows() as u64);
                            take(batch)?;
                        }
                        done.0.done += 1;
                        done.1 += u64::from(task.size_bytes);
                    }
                    BlockResult::Damaged(reason) => failed.push((index, reason)),
                }
            }
            Ok(())
        })?;
        let salvaged = self.salvage_reports(&tasks, &failed);
        let left_out = salvaged.iter().map(|file| file.bytes_left_out).sum();
        Ok(Coverage {
            version: coverage::COVERAGE_VERSION,
            complete: salvaged.is_empty(),
            mergeable: false,
            files: self.files.len() as u64,
            splits: ReadAmount { left_out: failed.len() as u64, ..done.0 },
            bytes: ReadAmount { done: done.1, total, left_out },
            rows: RecordCounts { done: done.2, rejected: 0 },
            stopped: None,
            rejected_copy: None,
            estimates: Vec::new(),
            salvaged,
            sampled: None,
            unknown_keys: Default::default(),
            mismatches: Default::default(),
            first_rejected: Vec::new(),
        })
    }

    fn decode_blocks(
        &self,
        tasks: &[RowfileBlockTask],
        cancel: &CancelFlag,
        done: &SyncSender<Result<BlockResult>>,
    ) -> Result<()> {
        for of_file in tasks.chunk_by(|one, next| one.file_index == next.file_index) {
            let file = &self.files[of_file[0].file_index];
            let failed = |error| error_from_rowfile(error, &file.display_name);
            // Salvage reads each block by itself, because it may leave blocks out.
            let at_once = if self.salvage_damaged { 1 } else { of_file.len() };
            let all = rowfile::ReadOptions::default();
            let all = Arc::new(file.reader.plan(&all).map_err(failed)?);
            for tasks in of_file.chunks(at_once) {
                if self.salvage_damaged {
                    let block = tasks[0].block_number;
                    let reason = rowfile_salvage::find_undecodable_reason(
                        &file.reader,
                        &file.display_name,
                        &all,
                        block,
                        cancel,
                    )?;
                    if let Some(reason) = reason {
                        if done.send(Ok(BlockResult::Damaged(reason))).is_err() {
                            return Ok(());
                        }
                        continue;
                    }
                }
                let options = rowfile::ReadOptions {
                    blocks: Some(tasks.iter().map(|task| task.block_number).collect()),
                    batch_rows: self.batch_rows_max,
                    ..rowfile::ReadOptions::default()
                };
                let batches = file.reader.read_with_plan(Arc::clone(&file.read_plan), &options);
                let mut batches = batches.map_err(failed)?;
                for task in tasks {
                    cancel.check()?;
                    let whole = read_whole_block(&mut batches, task.row_count).map_err(failed)?;
                    if done.send(Ok(BlockResult::Decoded(whole))).is_err() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns a report for each file with blocks left out.
    fn salvage_reports(
        &self,
        tasks: &[RowfileBlockTask],
        failed: &[(usize, String)],
    ) -> Vec<SalvagedFile> {
        let of = |(index, file): (usize, &OpenRowfile)| {
            let failed = failed.iter().filter(|(task, _)| tasks[*task].file_index == index);
            let failed = failed.map(|(task, why)| (tasks[*task].block_number, why));
            rowfile_salvage::salvage_report(&file.display_name, &file.reader, failed)
        };
        self.files.iter().enumerate().filter_map(of).collect()
    }
}

/// Converts a rowfile error into the engine's error.
pub fn engine_error_from_rowfile(error: rowfile::Error, path: &str) -> Error {
    error_from_rowfile(error, path).into()
}

/// A block to decode.
#[derive(Clone, Copy)]
struct RowfileBlockTask {
    file_index: usize,
    block_number: usize,
    row_count: u32,
    size_bytes: u32,
}

/// The outcome of decoding a block.
enum BlockResult {
    Decoded(Vec<RecordBatch>),
    /// The reason for leaving the block out.
    Damaged(String),
}

/// Reads the batches of the next block.
fn read_whole_block(
    batches: &mut rowfile::RowfileBatches<CancellableBytes>,
    rows: u32,
) -> rowfile::Result<Vec<RecordBatch>> {
    let (mut whole, mut left) = (Vec::new(), rows as usize);
    loop {
        let Some(batch) = batches.next().transpose()? else { return Ok(whole) };
        left = left.saturating_sub(batch.num_rows());
        whole.push(batch);
        if left == 0 {
            return Ok(whole);
        }
    }
}

fn project_schema(schema: &Schema, request: &RowfileReadRequest) -> Result<SchemaRef> {
    let Some(columns) = &request.columns else { return Ok(Arc::new(schema.clone())) };
    let field = |name: &String| {
        let found = schema.fields().find(name).map(|(_, field)| Arc::clone(field));
        found.ok_or_else(|| {
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Error::usage(tidemill_base::suggestions::unknown_name_message("column", name, &names))
        })
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

fn select_blocks(
    reader: &rowfile::Reader<CancellableBytes>,
    name: &str,
    request: &RowfileReadRequest,
) -> Result<Vec<usize>> {
    let all = reader.blocks();
    let is_wanted = |block: &usize| {
        let range = request.byte_range.as_ref();
        all.get(*block).is_some_and(|block| range.is_none_or(|range| range.contains(&block.offset)))
    };
    let Some(blocks) = &request.block_numbers else {
        return Ok((0..all.len()).filter(is_wanted).collect());
    };
    if let Some(unknown) = blocks.iter().find(|block| **block >= all.len()) {
        return Err(Error::usage(format!(
            "`{name}` has no block {unknown}: it has {}, the first being 0",
            all.len()
        )));
    }
    Ok(blocks.iter().copied().filter(is_wanted).collect())
}
