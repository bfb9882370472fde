//! What is looked at before the types of columns are known.
//!
//! A sample is the beginning of the source: whole files in their order, until there are
//! [`SAMPLE_RECORDS`] records or [`SAMPLE_BYTES`]. Where files may differ, the first
//! [`BEGINNING_BYTES`] of [`SPREAD_FILES`] more files are looked at, of all if there are no more,
//! else of some that are spread evenly over the listing, the last one included; and of delimited
//! text every file's header.
//!
//! **What it costs.** Opening 5,000 files for their headers takes about a tenth of a second where
//! they are in the page cache. Elsewhere a header is one request of [`HEADER_BYTES`], of which
//! [`REQUESTS_AHEAD`] are on their way at once: at 30 ms each some 2,000 a second. Where there are
//! no more than [`SPREAD_FILES`], their first records come with it. An object of up to
//! [`WHOLE_BYTES`] is read whole instead and kept, up to [`KEPT_BYTES_MAX`] of them together, so
//! that many small objects are asked for once and not twice.
//!
//! DuckDB's `union_by_name` reads the schema of one file after the other (issue 8018: four minutes
//! for 300 objects), Spark leaves `mergeSchema` off because of the cost, and ClickHouse its
//! `union` mode. Reading headers only once their file's turn comes would cost nothing, but a
//! column that nobody knew of when the query was planned is then lost or an error.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tidemill_text::infer::{self, SAMPLE_BYTES_MAX, SAMPLE_RECORDS_MIN};
use tidemill_text::record_boundaries::RecordGrammar;

use super::byte_input::{ByteInput, ReadContext};
use super::error::{Error, Result};
use super::file_columns::number_repeated_names;
use super::formats::LogLineFormat;
use super::formats::delimited::{RejectedSample, SuspectTextColumn, check_header};
use super::record_fault::leading_nuls_hint;
use super::text_blocks::{BlockFault, BlockReader, RecordFraming, TextBlock};
use super::text_options::CsvDialect;
use super::text_stream::{ReadExtent, open_text_blocks};
use super::unresponsive_files::FileProber;
use super::{FileLocation, SourceFile};

/// A header is nearly always in this much.
const HEADER_READ_BYTES: usize = 16 << 10;
/// Of one of several files at least this much is looked at, if there is so much.
const BEGINNING_READ_BYTES: usize = 64 << 10;
/// So many files are looked at beyond the sample.
pub(super) const SPREAD_FILES_MAX: usize = 64;
/// An object of at most this size is read whole …
const WHOLE_OBJECT_BYTES_MAX: u64 = 64 << 10;
/// … and kept, as long as all that are kept are no more than this.
const KEPT_OBJECTS_BYTES_MAX: u64 = 32 << 20;
/// So many requests are on their way at once.
const PENDING_REQUESTS_MAX: usize = 64;
/// So many files are looked at at once, where there are many: on a network's file system each
/// takes a millisecond or two.
const INSPECTION_THREADS_MAX: usize = 8;
/// A thread is worth this many files.
const FILES_PER_THREAD: usize = 32;
/// Small objects are asked for while the one before is looked at.
const PREFETCHED_OBJECTS_MAX: usize = 8;

/// What the beginning of a delimited text shows.
pub(super) struct DelimitedHeader {
    pub(super) names: Arc<Vec<String>>,
    /// The first records, where files are so few that they are looked at at once.
    pub(super) inference: Option<infer::csv::CsvInference>,
    /// What is said of names that are there again.
    pub(super) repeated_names_note: Option<String>,
}

/// The beginning of the source, as whole records.
pub(super) struct SourceSample<'a> {
    pub(super) files: &'a [Arc<SourceFile>],
    /// Whether a file's first record names its columns.
    pub(super) has_header: bool,
    pub(super) dialect: CsvDialect,
    /// What the first line of the first file says of what stands between fields.
    pub(super) declared_separator: Option<u8>,
    /// What the lines of an access log look like.
    pub(super) log_lines: LogLineFormat,
    /// What the user should know of what was seen.
    pub(super) notes: Vec<String>,
    /// Columns that would have another type but for a few words.
    pub(super) marked_columns: Vec<SuspectTextColumn>,
    /// The line of the first file that is likely to be its header, where another one is taken for it.
    pub(super) likely_header_line: Option<u64>,
    /// Set where records were looked at and all of them are malformed.
    pub(super) rejected_sample: Option<RejectedSample>,
    /// The error of the first file that ends in NUL bytes, for a source without any record.
    pub(super) trailing_nuls_error: Option<Error>,
    /// True if all records were in the blocks that were looked at.
    pub(super) covers_all_records: bool,
    pub(super) context: ReadContext,
    pub(super) stdin: Option<Box<dyn ByteInput>>,
    /// Standard input once more, from its beginning.
    pub(super) reopen_stdin: Option<Box<dyn Fn() -> Box<dyn ByteInput>>>,
    /// Whom files are asked by before they are opened, where these may not answer.
    pub(super) prober: Option<Arc<FileProber>>,
    /// What was read to find out how the source is written.
    begun_file: Option<BegunFile>,
}

/// A file whose first block has been looked at, and may be looked at again: what is elsewhere is asked for once.
struct BegunFile {
    file_index: usize,
    framing: RecordFraming,
    blocks: BlockReader,
    first_block: Option<TextBlock>,
}

impl<'a> SourceSample<'a> {
    pub(super) fn new(
        files: &'a [Arc<SourceFile>],
        dialect: CsvDialect,
        has_header: bool,
        watch: ReadContext,
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

    /// Whether a file is not looked at: there is nothing in it, or it cannot be read now.
    fn is_skipped_file(&self, file: &SourceFile) -> bool {
        is_empty_file(file) || self.prober.as_ref().is_some_and(|asking| !asking.is_readable(file))
    }

    /// The first bytes of the first file that has any, decoded, and that file's position: [`BEGINNING_BYTES`] behind the
    /// NUL bytes that they may begin with; more where a record is longer. They may end within a record.
    ///
    /// Whoever looks at its blocks by the same ends afterwards goes on with what was read.
    pub(super) fn read_beginning(
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
            // Nor does a file that is NUL bytes alone tell anything.
            let is_text = |(_, first): &(BlockReader, TextBlock)| {
                !first.fault.is_some_and(BlockFault::is_trailing_nuls)
            };
            let Some((blocks, first)) = first.flatten().filter(is_text) else {
                self.stdin = self.reopen_stdin.as_ref().map(|again| again());
                continue;
            };
            let bytes = blocks.block_bytes(first);
            // A hole at the beginning says nothing.
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

    /// The blocks of a file, and the first of them where it has been read; none for a file that is left out.
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

    /// Calls `take` with blocks of files in their order, which returns how many records it took,
    /// until the sample is large enough; returns how many files were looked at.
    pub(super) fn for_each_block(
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
                        // The records that came in time show the columns.
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
                // A record that is too large is refused by whoever reads it.
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

    /// Some of the files from `from` on, spread evenly, the last one among them.
    pub(super) fn spread_files(&self, from: usize) -> Vec<usize> {
        let rest: Vec<usize> =
            (from..self.files.len()).filter(|index| !is_empty_file(&self.files[*index])).collect();
        if rest.len() <= SPREAD_FILES_MAX {
            return rest;
        }
        let last = rest.len() - 1;
        (0..SPREAD_FILES_MAX).map(|k| rest[k * last / (SPREAD_FILES_MAX - 1)]).collect()
    }

    /// What `inspect` finds in the first blocks of some files, in their order; none for a file
    /// without a record.
    pub(super) fn inspect_beginnings<T: Send>(
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

    /// Every file's header, and what the records behind it show; none for a file without one.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read_headers(
        &self,
        grammar: RecordGrammar,
    ) -> Result<Vec<Option<DelimitedHeader>>> {
        let all: Vec<&Arc<SourceFile>> = self.files.iter().collect();
        let dialect = &self.dialect;
        // Of few files the records behind the header come with the same request.
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
                // Equal ones are one.
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

    /// What `inspect` finds in the beginnings of files, several of them at once; of errors the first
    /// file's.
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

/// What comes of looking at a file's beginning; none for a file that is left out. It ends where one that may take for ever takes too long.
fn inspect_file<T>(
    asking: Option<&FileProber>,
    file: &SourceFile,
    watch: &ReadContext,
    look: impl FnOnce(ReadContext) -> Result<T>,
) -> Result<Option<T>> {
    let until = asking.and_then(|asking| Some((asking, asking.file_inspection_deadline(file)?)));
    let Some((asking, until)) = until else { return look(watch.clone()).map(Some) };
    let began = Instant::now();
    let gave = Arc::default();
    let cancel = watch.cancel.child_flag_with_deadline(until);
    let limited = ReadContext { cancel, program_output_bytes: Arc::clone(&gave), ..watch.clone() };
    let found = look(limited);
    asking.handle_inspection(file, began, (&watch.cancel, gave.load(Ordering::Relaxed)), found)
}

/// Returns the error of a file whose first record, which is to name the columns, is no record.
pub(super) fn no_header_error(
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

/// Returns the error of a file in which a record of this fault stands in the place of all records.
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

/// Returns the hint for a record that no decoder is given.
pub(super) fn block_fault_hint(
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

/// Asks for a small object, all of it.
fn fetch_small_object(file: &SourceFile) -> Result<()> {
    match &file.location {
        FileLocation::Object(object) if object.size() <= WHOLE_OBJECT_BYTES_MAX => {
            Ok(object.start_early_fetch(object.size())?)
        }
        _ => Ok(()),
    }
}

/// Whether there is nothing in a file.
fn is_empty_file(file: &SourceFile) -> bool {
    file.size() == 0 && !file.is_stream()
}

/// The names in a header, or made-up ones. A name that is there again gets a number: `a`, `a_1`.
pub(super) fn column_names(dialect: &CsvDialect, first_record: Vec<String>) -> Vec<String> {
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

/// The same, and what is said of names that are there again.
pub(super) fn column_names_with_note(
    dialect: &CsvDialect,
    first_record: Vec<String>,
    shown: &str,
) -> (Vec<String>, Option<String>) {
    let names = column_names(dialect, first_record.clone());
    let again =
        if dialect.header { repeated_names_note(&first_record, &names, shown) } else { None };
    (names, again)
}

/// What is said of names that are there again in a header.
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
