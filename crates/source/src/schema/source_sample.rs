//! Sampling of a source before its column types are known.
//!
//! A sample is the beginning of the source: whole files in their order, until there are [`SAMPLE_RECORDS_MIN`]
//! records or [`SAMPLE_BYTES_MAX`]. If files may differ, sampling also reads the first [`BEGINNING_READ_BYTES`]
//! of up to [`SPREAD_FILES_MAX`] more files, which are spread evenly over the listing and include the last
//! one. For delimited text, it reads every file's header.
//!
//! **Cost.** Opening 5,000 files for their headers takes about a tenth of a second if they are in the page
//! cache. A remote header is one request of [`HEADER_READ_BYTES`], with [`PENDING_REQUESTS_MAX`] requests in
//! flight: at 30 ms each some 2,000 a second. With no more than [`SPREAD_FILES_MAX`] files, the same request
//! brings their first records. An object of up to [`WHOLE_OBJECT_BYTES_MAX`] is read whole instead and kept,
//! up to [`KEPT_OBJECTS_BYTES_MAX`] in total, so that many small objects are requested once and not twice.
//!
//! DuckDB's `union_by_name` reads the schema of one file after the other (issue 8018: four minutes for 300
//! objects), Spark leaves `mergeSchema` off because of the cost, and ClickHouse its `union` mode. Reading
//! each header only when its file is read would cost nothing, but a column that was unknown when the query
//! was planned would then be lost or an error.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tidemill_text::infer::{self, SAMPLE_BYTES_MAX, SAMPLE_RECORDS_MIN};
use tidemill_text::record_boundaries::RecordGrammar;

use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, ByteReadContext};
use crate::files::unresponsive_files::FileProber;
use crate::formats::LogLineFormat;
use crate::formats::delimited::{RejectedSample, SuspectTextColumn, check_header};
use crate::rejects::record_fault::leading_nuls_hint;
use crate::schema::column_layouts::number_repeated_names;
use crate::schema::text_options::CsvDialect;
use crate::splits::text_blocks::{BlockFault, BlockReader, RecordFraming, TextBlock};
use crate::splits::text_stream::{ReadExtent, open_text_blocks};
use crate::{FileLocation, SourceFile};

/// Size of a read that nearly always contains the header.
const HEADER_READ_BYTES: usize = 16 << 10;
/// Size of the beginning that is inspected of each file, if the file is that large.
const BEGINNING_READ_BYTES: usize = 64 << 10;
/// Maximum number of files that are inspected in addition to the sample.
pub(crate) const SPREAD_FILES_MAX: usize = 64;
/// Maximum size of an object that is read whole.
const WHOLE_OBJECT_BYTES_MAX: u64 = 64 << 10;
/// Maximum total size of whole objects that are kept.
const KEPT_OBJECTS_BYTES_MAX: u64 = 32 << 20;
/// Maximum number of pending requests.
const PENDING_REQUESTS_MAX: usize = 64;
/// Maximum number of threads that inspect files: on a network file system each file takes a millisecond or
/// two.
const INSPECTION_THREADS_MAX: usize = 8;
/// Number of files for which a thread pays off.
const FILES_PER_THREAD: usize = 32;
/// Number of small objects that are fetched ahead during sampling.
const PREFETCHED_OBJECTS_MAX: usize = 8;

/// The header of a delimited text, with its first records.
pub(crate) struct DelimitedHeader {
    pub(crate) names: Arc<Vec<String>>,
    /// Types that the first records show; none if there are too many files to read records.
    pub(crate) inference: Option<infer::csv::CsvInference>,
    /// A note about repeated column names.
    pub(crate) repeated_names_note: Option<String>,
}

/// The sample of a source, as blocks of whole records.
pub(crate) struct SourceSample<'a> {
    pub(crate) files: &'a [Arc<SourceFile>],
    /// True if a file's first record names its columns.
    pub(crate) has_header: bool,
    pub(crate) dialect: CsvDialect,
    /// Field separator that the first line of the first file declares.
    pub(crate) declared_separator: Option<u8>,
    /// Line layout of an access log.
    pub(crate) log_lines: LogLineFormat,
    /// Notes for the user about the sample.
    pub(crate) notes: Vec<String>,
    /// Text columns that would have another type but for a few marker words.
    pub(crate) marked_columns: Vec<SuspectTextColumn>,
    /// Line of the first file that is likely to be its header, if another line was taken for it.
    pub(crate) likely_header_line: Option<u64>,
    /// Set if records were sampled and all of them are malformed.
    pub(crate) rejected_sample: Option<RejectedSample>,
    /// The error of the first file that ends in NUL bytes, for a source without any record.
    pub(crate) trailing_nuls_error: Option<Error>,
    /// True if the sampled blocks contain all records.
    pub(crate) covers_all_records: bool,
    pub(crate) context: ByteReadContext,
    pub(crate) stdin: Option<Box<dyn ByteInput>>,
    /// Opens standard input again, from its beginning.
    pub(crate) reopen_stdin: Option<Box<dyn Fn() -> Box<dyn ByteInput>>>,
    /// Prober for files that may not respond; none without a deadline.
    pub(crate) prober: Option<Arc<FileProber>>,
    /// The file that was read to detect the dialect.
    begun_file: Option<BegunFile>,
}

/// A file whose first block was inspected and is kept, so that a remote file is requested once.
struct BegunFile {
    file_index: usize,
    framing: RecordFraming,
    blocks: BlockReader,
    first_block: Option<TextBlock>,
}

impl<'a> SourceSample<'a> {
    pub(crate) fn new(
        files: &'a [Arc<SourceFile>],
        dialect: CsvDialect,
        has_header: bool,
        watch: ByteReadContext,
        stdin: Option<Box<dyn ByteInput>>,
    ) -> Self {
        SourceSample {
            files,
            has_header,
            dialect,
            declared_separator: None,
            log_lines: LogLineFormat::default(),
            notes: Vec::new(),
            marked_columns: Vec::new(),
            likely_header_line: None,
            rejected_sample: None,
            trailing_nuls_error: None,
            covers_all_records: false,
            context: watch,
            stdin,
            reopen_stdin: None,
            prober: None,
            begun_file: None,
        }
    }

    /// Returns true if a file is skipped because it is empty or cannot be read now.
    fn is_skipped_file(&self, file: &SourceFile) -> bool {
        is_empty_file(file) || self.prober.as_ref().is_some_and(|asking| !asking.is_readable(file))
    }

    /// Returns the first decoded bytes of the first file that has any, with the file's position. Reads
    /// [`BEGINNING_READ_BYTES`] behind leading NUL bytes, and more if a record is longer. The bytes may end
    /// within a record.
    ///
    /// A later call that reads this file's blocks with the same framing continues with these bytes.
    pub(crate) fn read_beginning(
        &mut self,
        ends: impl Into<RecordFraming>,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        let ends = ends.into();
        for (index, file) in self.files.iter().enumerate() {
            if self.is_skipped_file(file) {
                continue;
            }
            fetch_small_object(file)?;
            let stdin = self.stdin.take();
            let (asking, watch) = (self.prober.as_deref(), &self.context);
            let first = inspect_file(asking, file, watch, |watch| {
                let mut blocks = open_text_blocks(file, stdin, ends, watch, ReadExtent::Sample)?.0;
                let first = blocks.next_block()?;
                Ok(first.map(|first| (blocks, first)))
            })?;
            // A file of NUL bytes alone shows nothing.
            let is_text = |(_, first): &(BlockReader, TextBlock)| {
                !first.fault.is_some_and(BlockFault::is_trailing_nuls)
            };
            let Some((blocks, first)) = first.flatten().filter(is_text) else {
                self.stdin = self.reopen_stdin.as_ref().map(|again| again());
                continue;
            };
            let bytes = blocks.block_bytes(first);
            // A run of NULs at the beginning shows nothing.
            let nuls = bytes.iter().take_while(|byte| **byte == 0).count();
            let wanted = nuls + BEGINNING_READ_BYTES;
            let line_end = memchr::memchr(b'\n', bytes.get(wanted..).unwrap_or_default());
            let end = line_end.map_or(bytes.len(), |at| wanted + at + 1);
            let bytes = bytes[..end].to_vec();
            self.declared_separator = blocks.declared_separator();
            self.begun_file = Some(BegunFile {
                file_index: index,
                framing: ends,
                blocks,
                first_block: Some(first),
            });
            return Ok(Some((index, bytes)));
        }
        Ok(None)
    }

    /// Returns the block reader of a file, and its first block if that was read; none for a skipped file.
    fn open_blocks(
        &mut self,
        index: usize,
        ends: RecordFraming,
    ) -> Result<Option<(BlockReader, Option<TextBlock>)>> {
        match self.begun_file.take() {
            Some(begun) if begun.file_index == index && begun.framing == ends => {
                return Ok(Some((begun.blocks, begun.first_block)));
            }
            Some(_) => self.stdin = self.reopen_stdin.as_ref().map(|again| again()),
            None => {}
        }
        let stdin = self.stdin.take();
        let file = &self.files[index];
        let (asking, watch) = (self.prober.as_deref(), &self.context);
        inspect_file(asking, file, watch, |watch| {
            let mut blocks = open_text_blocks(file, stdin, ends, watch, ReadExtent::Sample)?.0;
            let first = blocks.next_block()?;
            Ok((blocks, first))
        })
    }

    /// Calls `take` with the blocks of files in their order until the sample is large enough. `take` returns
    /// the number of records it took. Returns the number of files that were read.
    pub(crate) fn for_each_block(
        &mut self,
        ends: impl Into<RecordFraming>,
        mut take: impl FnMut(&SourceFile, &[u8]) -> Result<u64>,
    ) -> Result<usize> {
        let ends = ends.into();
        self.covers_all_records = false;
        let (mut records, mut bytes) = (0, 0);
        let files = self.files;
        for (index, file) in files.iter().enumerate() {
            if self.is_skipped_file(file) {
                continue;
            }
            files[index..]
                .iter()
                .take(PREFETCHED_OBJECTS_MAX)
                .try_for_each(|file| fetch_small_object(file))?;
            let Some((mut blocks, mut read)) = self.open_blocks(index, ends)? else { continue };
            let began = Instant::now();
            let mut is_first = true;
            loop {
                let next = match (read.take(), &self.prober) {
                    (Some(first), _) => Some(first),
                    (None, Some(asking)) => match blocks.next_block() {
                        // The records that arrived in time show the columns.
                        Err(Error::Interrupted)
                            if records > 0 && !self.context.cancel.is_cancelled() =>
                        {
                            asking.record_remote_wait(began.elapsed(), false);
                            return Ok(index + 1);
                        }
                        next => asking
                            .handle_inspection(file, began, (&self.context.cancel, 0), next)?
                            .flatten(),
                    },
                    (None, None) => blocks.next_block()?,
                };
                let Some(block) = next else { break };
                // The split reader rejects a record that is too large.
                let is_header = std::mem::take(&mut is_first) && self.has_header;
                if let Some(fault) = block.fault {
                    if fault.ends_in_nuls() {
                        self.trailing_nuls_error
                            .get_or_insert_with(|| no_record_error(file, &blocks, block, fault));
                    }
                    if fault.is_trailing_nuls() {
                        continue;
                    }
                    if is_header {
                        return Err(no_header_error(file, &blocks, block, fault));
                    }
                    if records > 0 {
                        return Ok(index + 1);
                    }
                    continue;
                }
                let block = blocks.block_bytes(block);
                bytes += block.len() as u64;
                records += take(file, block)?;
                if records >= SAMPLE_RECORDS_MIN || bytes >= SAMPLE_BYTES_MAX {
                    return Ok(index + 1);
                }
            }
        }
        self.covers_all_records = true;
        Ok(self.files.len())
    }

    /// Returns files from `from` on, spread evenly, including the last one.
    pub(crate) fn spread_files(&self, from: usize) -> Vec<usize> {
        let rest: Vec<usize> =
            (from..self.files.len()).filter(|index| !is_empty_file(&self.files[*index])).collect();
        if rest.len() <= SPREAD_FILES_MAX {
            return rest;
        }
        let last = rest.len() - 1;
        (0..SPREAD_FILES_MAX).map(|k| rest[k * last / (SPREAD_FILES_MAX - 1)]).collect()
    }

    /// Returns the results of `inspect` on the first blocks of some files, in their order; files without a
    /// record are left out.
    pub(crate) fn inspect_beginnings<T: Send>(
        &self,
        files: &[usize],
        ends: impl Into<RecordFraming>,
        inspect: impl Fn(&SourceFile, &[u8]) -> Option<T> + Sync,
    ) -> Result<Vec<(usize, T)>> {
        let chosen: Vec<&Arc<SourceFile>> = files.iter().map(|index| &self.files[*index]).collect();
        let found =
            self.inspect_each(&chosen, BEGINNING_READ_BYTES, ends.into(), |file, mut blocks| {
                Ok(match blocks.next_block()? {
                    Some(block) if block.fault.is_some() => None,
                    Some(block) => inspect(file, blocks.block_bytes(block)),
                    None => None,
                })
            })?;
        let found = files.iter().zip(found);
        Ok(found.filter_map(|(index, found)| Some((*index, found?))).collect())
    }

    /// Returns every file's header with the types of the following records; none for a file without a header.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn read_headers(
        &self,
        grammar: RecordGrammar,
    ) -> Result<Vec<Option<DelimitedHeader>>> {
        let all: Vec<&Arc<SourceFile>> = self.files.iter().collect();
        let dialect = &self.dialect;
        // If there are few files, the same request brings the records behind the header.
        let takes_records = all.len() <= SPREAD_FILES_MAX;
        let read_bytes = if takes_records { BEGINNING_READ_BYTES } else { HEADER_READ_BYTES };
        let known: Mutex<HashSet<Arc<Vec<String>>>> = Mutex::default();
        self.inspect_each(&all, read_bytes, grammar.into(), |file, mut blocks| {
            while let Some(block) = blocks.next_block()? {
                match block.fault {
                    Some(fault) if fault.is_trailing_nuls() => continue,
                    Some(fault) => return Err(no_header_error(file, &blocks, block, fault)),
                    None => {}
                }
                let bytes = blocks.block_bytes(block);
                check_header(dialect, file, bytes)?;
                let Some((fields, used)) = tidemill_text::csv::read_first_record(dialect, bytes)
                else {
                    continue;
                };
                let (names, again) = column_names_with_note(dialect, fields, file.display_name());
                let records = takes_records.then(|| {
                    let mut inference = infer::csv::CsvInference::new(dialect, names.len());
                    inference.add_block(&bytes[used..]);
                    inference
                });
                // Equal headers are shared.
                let mut known = known.lock();
                let names = match known.get(&names) {
                    Some(known) => known.clone(),
                    None => {
                        let names = Arc::new(names);
                        known.insert(names.clone());
                        names
                    }
                };
                return Ok(Some(DelimitedHeader {
                    names,
                    inference: records,
                    repeated_names_note: again,
                }));
            }
            Ok(None)
        })
    }

    /// Returns the results of `inspect` on the beginnings of files, several of them in parallel. Of several
    /// errors, returns that of the first file.
    fn inspect_each<T: Send>(
        &self,
        files: &[&Arc<SourceFile>],
        read_bytes: usize,
        ends: RecordFraming,
        inspect: impl Fn(&SourceFile, BlockReader) -> Result<Option<T>> + Sync,
    ) -> Result<Vec<Option<T>>> {
        let mut kept_bytes = 0;
        let is_kept = |file: &&Arc<SourceFile>| {
            let keeps = file.size() <= WHOLE_OBJECT_BYTES_MAX
                && kept_bytes + file.size() <= KEPT_OBJECTS_BYTES_MAX;
            kept_bytes += if keeps { file.size() } else { 0 };
            keeps
        };
        let kept: Vec<bool> = files.iter().map(is_kept).collect();
        let asked = Mutex::new(0);
        let ask = |index: usize| -> Result<()> {
            let mut asked = asked.lock();
            while *asked < (index + PENDING_REQUESTS_MAX).min(files.len()) {
                if let FileLocation::Object(object) = &files[*asked].location {
                    let bytes = if kept[*asked] { object.size() } else { read_bytes as u64 };
                    object.start_early_fetch(bytes)?;
                }
                *asked += 1;
            }
            Ok(())
        };
        // Standard input, which the sample may hold, stays on its thread.
        let watch = &self.context;
        let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let asking = self.prober.as_deref();
        if let Some(asking) = asking {
            asking.probe_files(files.iter().copied().filter(|file| !is_empty_file(file)));
        }
        let open = |index: usize| {
            let file = files[index];
            if is_empty_file(file) || asking.is_some_and(|asking| !asking.is_readable(file)) {
                return Ok(None);
            }
            ask(index)?;
            let extent = ReadExtent::Beginning { read_bytes, keeps_object: kept[index] };
            let found = inspect_file(asking, file, watch, |watch| {
                inspect(file, open_text_blocks(file, None, ends, watch, extent)?.0)
            });
            Ok(found?.flatten())
        };
        let work = || {
            let mut found = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= files.len() || index > failed.load(Ordering::Relaxed) {
                    return found;
                }
                let result = open(index);
                if result.is_err() {
                    failed.fetch_min(index, Ordering::Relaxed);
                }
                found.push((index, result));
            }
        };
        let threads = (files.len() / FILES_PER_THREAD).clamp(1, INSPECTION_THREADS_MAX);
        let mut found =
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..threads)
                    .map(|_| {
                        scope.spawn(|| {
                            tidemill_base::panics::silence_thread_panics();
                            work()
                        })
                    })
                    .collect();
                let mut found = work();
                for other in others {
                    found.extend(other.join().map_err(|_| {
                        Error::Internal("a thread that looks at files gave up".into())
                    })?);
                }
                Ok::<_, Error>(found)
            })?;
        found.sort_unstable_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, result)| result).collect()
    }
}

/// Runs `look` on a file's beginning under its inspection deadline; returns none for a skipped file.
fn inspect_file<T>(
    asking: Option<&FileProber>,
    file: &SourceFile,
    watch: &ByteReadContext,
    look: impl FnOnce(ByteReadContext) -> Result<T>,
) -> Result<Option<T>> {
    let until = asking.and_then(|asking| Some((asking, asking.file_inspection_deadline(file)?)));
    let Some((asking, until)) = until else { return look(watch.clone()).map(Some) };
    let began = Instant::now();
    let gave = Arc::default();
    let cancel = watch.cancel.child_flag_with_deadline(until);
    let limited =
        ByteReadContext { cancel, program_output_bytes: Arc::clone(&gave), ..watch.clone() };
    let found = look(limited);
    asking.handle_inspection(file, began, (&watch.cancel, gave.load(Ordering::Relaxed)), found)
}

/// Returns the error of a file whose first record, which should name the columns, is no record.
pub(crate) fn no_header_error(
    file: &SourceFile,
    blocks: &BlockReader,
    block: TextBlock,
    fault: BlockFault,
) -> Error {
    let reason = fault.reason(blocks.block_bytes(block).len());
    Error::Corrupt {
        path: file.display_name().to_owned(),
        offset: Some(block.offset),
        reason: format!("its header is no header: {reason}"),
        hint: Some(block_fault_hint(file, blocks, block, fault)),
    }
}

/// Returns the error of a file that has a faulty record instead of any data.
fn no_record_error(
    file: &SourceFile,
    blocks: &BlockReader,
    block: TextBlock,
    fault: BlockFault,
) -> Error {
    Error::Corrupt {
        path: file.display_name().to_owned(),
        offset: Some(block.offset),
        reason: fault.reason(blocks.block_bytes(block).len()),
        hint: Some(
            "it may have been cut off by a power failure; leave it out by a narrower pattern"
                .into(),
        ),
    }
}

/// Returns the hint for a record that is rejected without decoding.
pub(crate) fn block_fault_hint(
    file: &SourceFile,
    blocks: &BlockReader,
    block: TextBlock,
    fault: BlockFault,
) -> String {
    match fault {
        BlockFault::TrailingNuls(_) => {}
        BlockFault::TooLarge { ends_in_nuls: true } => return leading_nuls_hint(),
        BlockFault::TooLarge { ends_in_nuls: false } => return blocks.too_large_hint().to_owned(),
    }
    let skips = "--max-bad N or N% skips it, counts it and keeps a copy";
    match file.is_local() && file.is_read_as_stored() {
        true => format!(
            "a power failure leaves such files; truncate --size={} FILE removes what is no whole record, and {skips}",
            block.offset
        ),
        false => format!("a power failure leaves such files; {skips}"),
    }
}

/// Fetches a small object as a whole.
fn fetch_small_object(file: &SourceFile) -> Result<()> {
    match &file.location {
        FileLocation::Object(object) if object.size() <= WHOLE_OBJECT_BYTES_MAX => {
            Ok(object.start_early_fetch(object.size())?)
        }
        _ => Ok(()),
    }
}

/// Returns true for a file without bytes.
fn is_empty_file(file: &SourceFile) -> bool {
    file.size() == 0 && !file.is_stream()
}

/// Returns the column names of a header, or generated ones. Repeated names get a number: `a`, `a_1`.
pub(crate) fn column_names(dialect: &CsvDialect, first_record: Vec<String>) -> Vec<String> {
    let numbered = |index: usize| format!("column_{}", index + 1);
    if !dialect.header {
        return (0..first_record.len()).map(numbered).collect();
    }
    let filled = first_record.into_iter().enumerate();
    let mut names: Vec<String> =
        filled.map(|(index, name)| if name.is_empty() { numbered(index) } else { name }).collect();
    number_repeated_names(&mut names);
    names
}

/// Returns the column names, and a note about repeated ones.
pub(crate) fn column_names_with_note(
    dialect: &CsvDialect,
    first_record: Vec<String>,
    shown: &str,
) -> (Vec<String>, Option<String>) {
    let names = column_names(dialect, first_record.clone());
    let again =
        if dialect.header { repeated_names_note(&first_record, &names, shown) } else { None };
    (names, again)
}

/// Returns the note about repeated names in a header.
fn repeated_names_note(header: &[String], names: &[String], shown: &str) -> Option<String> {
    let again = header.iter().zip(names).filter(|(own, name)| !own.is_empty() && own != name);
    let again: Vec<String> = again.map(|(own, name)| format!("`{own}` is `{name}`")).collect();
    let (first, more) = (again.first()?, again.len() - 1);
    let more = if more > 0 { format!(", and so on {more} more") } else { String::new() };
    Some(format!(
        "`{shown}`: of columns of one name the second {first}{more}; if there is no header, say so: \
         --header=false (job file: source.options, header = false)"
    ))
}
