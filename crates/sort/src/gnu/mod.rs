//! GNU sort on top of this crate: its command line, its order (that of `LC_ALL=C`) and its exit statuses.
//!
//! Differences from GNU sort:
//! - An existing regular file needs `--overwrite` as output, and the output appears whole or not at all.
//! - `-h` and `-V` are GNU's options; help is `--help` alone.
//! - A key in the form `+1 -2` is refused; `--compress-program`, `--debug` and `--random-source` are unknown.
//! - `--limit` is an addition.
//! - `-g` compares numbers by their exact values, while GNU sort rounds to a long double.
//! - `-h` knows the units R and Q, and `-V` treats a name that is an extension as a whole (`.c`) as a name, as
//!   coreutils after 9.1 do.
//! - A line may have an eighth of the memory.
//!
//! ```no_run
//! use tidemill_sort::gnu::{GnuSortOptions, GnuSortStreams, run_gnu_sort};
//!
//! let command = GnuSortOptions::parse(["-t,", "-k2,2n", "in.csv", "-o", "out.csv"])?;
//! let outcome = run_gnu_sort(&command, &mut GnuSortStreams::from_process())?;
//! std::process::exit(outcome.exit_status());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic_output;
mod command_line;
mod line_input;
mod line_keys;
mod number_keys;
mod version_order;

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use command_line::{
    GNU_MEMORY_BYTES_MIN, GnuSortAction, GnuSortCommand, GnuSortOptions, HELP_TEXT, UsageError,
};
pub use line_keys::{IgnoredBytes, KeyComparison, KeyOptions, KeyPosition, LineKey, LineOrder};

use crate::block_feed::{BlockTask, feed_blocks, feed_multi_block_tasks};
use crate::cancel_flag::SortCancelFlag;
use crate::loser_tree::{self, LoserTree};
use crate::record_blocks::RecordShape;
use crate::record_order::{ByteOrder, ByteRangeOrder, RecordOrder, ReverseOrder};
use crate::report::SortReport;
use crate::sort_plan::{SortExplanation, SortPlan};
use crate::sorter::{SortTask, Sorter};
use crate::spill_storage::SpillStorage;
use atomic_output::AtomicOutput;
use line_input::{InputBlocks, LineReader, LineSource, SpilledLines};

/// The reason why lines were not sorted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GnuSortError {
    /// The operating system refused a file operation.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file; `-` for the standard streams.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The output exists already.
    #[error(
        "`{path}` exists\nhint: `--overwrite` replaces it when the output is complete, an input too"
    )]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// A line that exceeds its share of the memory.
    #[error(
        "a line of `{path}` is longer than {limit_bytes} bytes\nhint: give more memory with `-S`: a line may have an eighth of it"
    )]
    LineTooLong {
        /// The input.
        path: PathBuf,
        /// Maximum length.
        limit_bytes: usize,
    },
    /// An input that ends within a record.
    #[error(
        "`{path}` ends with {found} bytes of a record of {record_bytes}\nhint: give the size that its records have with `--records`"
    )]
    TruncatedRecord {
        /// The input.
        path: PathBuf,
        /// The size of the records.
        record_bytes: usize,
        /// Number of remaining bytes.
        found: usize,
    },
    /// An input list that is empty or contains an empty name.
    #[error(
        "`{path}`: {reason}\nhint: it is to hold names that each end with a zero byte, as `find -print0` writes them"
    )]
    InvalidInputList {
        /// The list.
        path: PathBuf,
        /// The defect of the list.
        reason: String,
    },
    /// An error of the sort itself.
    #[error(transparent)]
    Sort(#[from] crate::Error),
}

/// The standard streams of a command.
pub struct GnuSortStreams<'a> {
    /// Source of the input `-`.
    pub stdin: Box<dyn Read + Send + 'a>,
    /// Destination without `-o`.
    pub stdout: Box<dyn Write + 'a>,
    /// Destination of messages: the line out of order, inputs that end in NUL bytes, and the text of
    /// `--explain`.
    pub stderr: Box<dyn Write + 'a>,
    /// Cancels the command from another thread.
    pub cancel: SortCancelFlag,
}

impl GnuSortStreams<'_> {
    /// Returns the standard streams of the process.
    pub fn from_process() -> Self {
        GnuSortStreams {
            stdin: Box::new(io::stdin()),
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            cancel: SortCancelFlag::new(),
        }
    }
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GnuSortOutcome {
    /// The input was sorted, with the statistics of the sort.
    Sorted(Box<SortReport>),
    /// Inputs were merged, help was printed, or a check found nothing.
    Done,
    /// A check found a line that is out of order.
    Disorder {
        /// The input.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
    },
}

impl GnuSortOutcome {
    /// Returns GNU sort's exit status: 1 if a check found something, else 0. Errors have 2.
    pub fn exit_status(&self) -> i32 {
        i32::from(matches!(self, GnuSortOutcome::Disorder { .. }))
    }
}

/// Returns the machine's memory in bytes, as far as the system tells.
pub(crate) fn machine_memory_bytes() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
    }
    #[cfg(not(target_os = "linux"))]
    {
        4 << 30
    }
}

impl GnuSortOptions {
    fn memory_or_default(&self) -> u64 {
        self.memory_bytes
            .unwrap_or_else(|| (machine_memory_bytes() / 4).clamp(GNU_MEMORY_BYTES_MIN, 1 << 30))
    }

    fn threads_or_default(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn to_sort_options(
        &self,
        cancel: &SortCancelFlag,
        expected_bytes: Option<u64>,
    ) -> crate::Options {
        let default = crate::Options::default();
        crate::Options {
            memory_bytes: self.memory_or_default(),
            threads: self.threads_or_default(),
            spill_dirs: if self.spill_dirs.is_empty() {
                default.spill_dirs
            } else {
                self.spill_dirs.clone()
            },
            copy_dir: self.copy_dir.clone(),
            // Lines that tie as a whole are equal: their order is invisible.
            stable: self.stable && (self.record_bytes.is_some() || !self.compares_whole_lines()),
            unique: self.unique,
            limit: self.limit,
            expected_bytes,
            cancel: cancel.clone(),
        }
    }

    fn resolve_inputs(&self, stdin: &mut dyn Read) -> Result<Vec<PathBuf>, GnuSortError> {
        let Some(list) = &self.input_list else {
            return Ok(if self.inputs.is_empty() {
                vec![PathBuf::from("-")]
            } else {
                self.inputs.clone()
            });
        };
        let mut bytes = Vec::new();
        let read = if list.as_os_str() == "-" {
            stdin.read_to_end(&mut bytes)
        } else {
            line_input::open_input(list)?.read_to_end(&mut bytes)
        };
        read.map_err(|source| GnuSortError::Io { action: "read", path: list.clone(), source })?;
        let names = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        let wrong = |reason: &str| GnuSortError::InvalidInputList {
            path: list.clone(),
            reason: reason.to_owned(),
        };
        if names.is_empty() {
            return Err(wrong("no input in the list"));
        }
        names
            .split(|byte| *byte == 0)
            .map(|name| match name {
                [] => Err(wrong("an empty name in the list")),
                b"-" if list.as_os_str() == "-" => {
                    Err(wrong("standard input in a list that comes from there"))
                }
                name => Ok(PathBuf::from(OsStr::from_bytes(name))),
            })
            .collect()
    }
}

/// The inputs of a command. An irregular file is opened only once, when it is read.
struct ResolvedInputs {
    paths: Vec<PathBuf>,
    /// Total size, if all are regular files.
    total_bytes: Option<u64>,
}

/// Executes a parsed command line.
///
/// # Errors
/// [`GnuSortError`]; the exit status of the program is then 2. A closed pipe is an error of writing `-`.
pub fn run_gnu_sort(
    command: &GnuSortCommand,
    io: &mut GnuSortStreams<'_>,
) -> Result<GnuSortOutcome, GnuSortError> {
    let options = match command {
        GnuSortCommand::Run(options) => options,
        GnuSortCommand::Help => {
            write_stream(&mut *io.stdout, command_line::HELP_TEXT.as_bytes())?;
            return Ok(GnuSortOutcome::Done);
        }
    };
    let inputs = options.resolve_inputs(&mut *io.stdin)?;
    // Unreadable inputs are found before an hour's work is done.
    let mut bytes = Some(0);
    for path in &inputs {
        bytes = bytes.zip(line_input::probe_size(path)?).map(|(sum, bytes)| sum + bytes);
    }
    let inputs = ResolvedInputs { paths: inputs, total_bytes: bytes };
    if let GnuSortAction::Check { quiet } = options.action {
        return with_line_order(options, |order| {
            check_sorted(options, &inputs.paths, order, quiet, io)
        });
    }
    let mut output = match &options.output {
        Some(path) => Some(AtomicOutput::create(path, options.overwrite)?),
        None => None,
    };
    let outcome = if let Some(size) = options.record_bytes {
        let order = ByteRangeOrder::new(options.record_key.clone().unwrap_or(0..size));
        let shape = RecordShape::Fixed(size);
        if options.global.reverse {
            sort_inputs(options, &inputs, ReverseOrder(order), shape, io, output.as_mut())?
        } else {
            sort_inputs(options, &inputs, order, shape, io, output.as_mut())?
        }
    } else {
        match options.action {
            GnuSortAction::Merge => with_line_order(options, |order| {
                merge_inputs(options, &inputs, order, io, output.as_mut())
            })?,
            _ if options.compares_whole_lines() && options.global.reverse => sort_inputs(
                options,
                &inputs,
                ReverseOrder(ByteOrder),
                RecordShape::Variable,
                io,
                output.as_mut(),
            )?,
            _ if options.compares_whole_lines() => sort_inputs(
                options,
                &inputs,
                ByteOrder,
                RecordShape::Variable,
                io,
                output.as_mut(),
            )?,
            _ => sort_inputs(
                options,
                &inputs,
                build_line_order(options)?,
                RecordShape::Variable,
                io,
                output.as_mut(),
            )?,
        }
    };
    if let Some(output) = output {
        output.commit(options.sync)?;
    }
    Ok(outcome)
}

fn build_line_order(options: &GnuSortOptions) -> Result<LineOrder, GnuSortError> {
    let seed = match options.seed {
        Some(seed) => seed,
        None if options.has_random_order() => {
            getrandom::u64().map_err(|error| GnuSortError::Io {
                action: "read",
                path: PathBuf::from("the system's random numbers"),
                source: io::Error::other(error.to_string()),
            })?
        }
        None => 0,
    };
    Ok(options.line_order(seed))
}

fn with_line_order<T>(
    options: &GnuSortOptions,
    work: impl FnOnce(&LineOrder) -> Result<T, GnuSortError>,
) -> Result<T, GnuSortError> {
    work(&build_line_order(options)?)
}

fn write_stream(output: &mut dyn Write, bytes: &[u8]) -> Result<(), GnuSortError> {
    output.write_all(bytes).map_err(|source| GnuSortError::Io {
        action: "write",
        path: PathBuf::from("-"),
        source,
    })
}

/// Writes to the output file, or to standard output without one.
fn write_output(
    options: &GnuSortOptions,
    output: &mut Option<&mut AtomicOutput>,
    io: &mut GnuSortStreams<'_>,
    bytes: &[u8],
) -> Result<(), GnuSortError> {
    match (output, &options.output) {
        (Some(output), Some(path)) => output.write_all(bytes).map_err(|source| GnuSortError::Io {
            action: "write",
            path: path.clone(),
            source,
        }),
        _ => write_stream(&mut *io.stdout, bytes),
    }
}

fn open_source<'a>(
    path: &Path,
    stdin: &'a mut (dyn Read + Send),
) -> Result<LineSource<'a>, GnuSortError> {
    if path.as_os_str() == "-" {
        return Ok(LineSource::Stdin(stdin));
    }
    Ok(LineSource::File(line_input::open_input(path)?, path.to_path_buf()))
}

fn sort_inputs<O: RecordOrder>(
    options: &GnuSortOptions,
    inputs: &ResolvedInputs,
    order: O,
    shape: RecordShape,
    io: &mut GnuSortStreams<'_>,
    mut output: Option<&mut AtomicOutput>,
) -> Result<GnuSortOutcome, GnuSortError> {
    let ResolvedInputs { paths, total_bytes: expected } = inputs;
    let expected = *expected;
    let sorter = Sorter::new(order, shape, options.to_sort_options(&io.cancel, expected))?;
    let mut row_bytes = 0;
    if expected.is_some_and(|bytes| options.explain || bytes > sorter.budget().held_bytes_max / 4) {
        row_bytes = sample_inputs(options, paths, &sorter, shape)?;
    }
    let plan = expected.filter(|_| options.explain).map(|bytes| {
        let rows = bytes / row_bytes.max(1);
        let ends = if shape == RecordShape::Variable { rows } else { 0 };
        let plan = SortPlan::new(
            options.memory_or_default(),
            options.threads_or_default(),
            bytes - ends.min(bytes),
            rows,
        );
        options.limit.map_or(plan, |limit| plan.with_limit(limit))
    });
    if let Some(plan) = &plan {
        write_message(io, plan)?;
    }
    feed_inputs(options, paths, &sorter, shape, expected, io)?;
    let layout = match shape {
        RecordShape::Fixed(_) => crate::OutputFraming::Concatenated,
        RecordShape::Variable => crate::OutputFraming::Terminated(options.terminator),
    };
    let mut blocks = sorter.finish()?.into_blocks(layout)?;
    while let Some(block) = blocks.next_block()? {
        write_output(options, &mut output, io, block.bytes())?;
    }
    if output.is_none() {
        io.stdout.flush().map_err(|source| GnuSortError::Io {
            action: "write",
            path: PathBuf::from("-"),
            source,
        })?;
    }
    let report = blocks.finish()?;
    match plan {
        Some(plan) => write_message(io, &SortExplanation { plan, report: report.clone() })?,
        // The size of a pipe's data is unknown, so there was no plan.
        None if options.explain => write_message(io, &report)?,
        None => {}
    }
    Ok(GnuSortOutcome::Sorted(Box::new(report)))
}

fn write_message(
    io: &mut GnuSortStreams<'_>,
    what: &dyn std::fmt::Display,
) -> Result<(), GnuSortError> {
    write_stream(&mut *io.stderr, format!("{what}\n").as_bytes())
}

/// Samples the inputs at some hundred positions, so that partitions suit all of them. Returns the mean length
/// of a record with its terminator.
fn sample_inputs<O: RecordOrder>(
    options: &GnuSortOptions,
    inputs: &[PathBuf],
    sorter: &Sorter<O>,
    shape: RecordShape,
) -> Result<u64, GnuSortError> {
    // One seek each on a disk: some seconds at most.
    const PLACES: u64 = 512;
    const BYTES: usize = 8 << 10;
    let mut files = Vec::new();
    for path in inputs {
        files.push((path, line_input::probe_size(path)?.unwrap_or(0)));
    }
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let each = (sorter.sample_rows_wanted() as u64).div_ceil(PLACES).max(8) as usize;
    let step = (total / PLACES).max(BYTES as u64);
    let mut buffer = vec![0; BYTES];
    let (mut first, mut place) = (0, step.min(total) / 2);
    let (mut seen_rows, mut seen_bytes) = (0, 0);
    for (path, bytes) in files {
        if place >= first + bytes {
            first += bytes;
            continue;
        }
        // Only one file is open at a time, however many there are.
        let file = line_input::open_input(path)?;
        while place < first + bytes {
            let offset = match shape {
                RecordShape::Fixed(size) => (place - first) / size as u64 * size as u64,
                RecordShape::Variable => place - first,
            };
            let read = file.read_at(&mut buffer, offset).unwrap_or(0);
            let found = &buffer[..read];
            match shape {
                RecordShape::Fixed(size) => {
                    found.chunks_exact(size).take(each).for_each(|record| sorter.add_sample(record))
                }
                RecordShape::Variable => {
                    // The first line may lack its start, and the last one its end.
                    let whole = memchr::memrchr(options.terminator, found).unwrap_or(0);
                    let lines = line_input::split_lines(&found[..whole], options.terminator);
                    for line in lines.skip(usize::from(offset > 0)).take(each) {
                        sorter.add_sample(line);
                        seen_rows += 1;
                        seen_bytes += line.len() as u64 + 1;
                    }
                }
            }
            place += step;
        }
        first += bytes;
    }
    Ok(match shape {
        RecordShape::Fixed(size) => size as u64,
        // A terminator that is nowhere within some kilobytes: the line is as long as the input.
        RecordShape::Variable if seen_rows == 0 => total.max(1),
        RecordShape::Variable => seen_bytes / seen_rows,
    })
}

/// Reads the inputs, with threads that push the records of blocks: each block is a task, or `--map-tasks`
/// tasks.
fn feed_inputs<O: RecordOrder>(
    options: &GnuSortOptions,
    inputs: &[PathBuf],
    sorter: &Sorter<O>,
    shape: RecordShape,
    expected: Option<u64>,
    io: &mut GnuSortStreams<'_>,
) -> Result<(), GnuSortError> {
    let sizes = sorter.budget();
    // The length prefix of a line may take a byte more than its terminator.
    let mut block_bytes = sizes.block_bytes / 64 * 63;
    if let Some((bytes, tasks)) = expected.zip(options.map_tasks) {
        let each = usize::try_from(bytes.div_ceil(tasks)).unwrap_or(usize::MAX);
        block_bytes = block_bytes.min(each.max(1));
    }
    let terminator = options.terminator;
    let mut reader = match shape {
        RecordShape::Fixed(size) => InputBlocks::for_records(block_bytes, size),
        RecordShape::Variable => {
            InputBlocks::for_lines(block_bytes, terminator, sizes.record_bytes_max)
        }
    };
    let GnuSortStreams { stdin, cancel, .. } = io;
    let mut paths = inputs.iter();
    let mut current = None;
    let mut read = |block: &mut Vec<u8>| {
        loop {
            cancel.check_cancelled()?;
            if current.is_none() {
                let Some(path) = paths.next() else { return Ok(false) };
                let file = if path.as_os_str() == "-" {
                    None
                } else {
                    Some(line_input::open_input(path)?)
                };
                current = Some((file, path));
            }
            let Some((file, path)) = &mut current else { return Ok(false) };
            let more = match file {
                Some(file) => reader.next_block(file, path, block)?,
                None => reader.next_block(&mut **stdin, path, block)?,
            };
            if more {
                return Ok(true);
            }
            current = None;
        }
    };
    let take = |task: &mut SortTask<O>, block: &Vec<u8>| {
        match shape {
            RecordShape::Fixed(size) => {
                block.chunks_exact(size).try_for_each(|record| task.push(record))?
            }
            RecordShape::Variable => {
                line_input::split_lines(block, terminator).try_for_each(|line| task.push(line))?
            }
        }
        Ok(())
    };
    let Some(tasks) = options.map_tasks else {
        feed_blocks::<_, _, GnuSortError>(sorter, options.threads_or_default(), read, take)?;
        return warn_of_nul_tail(&reader, io);
    };
    let (mut number, mut bytes) = (0, 0);
    let read_placed = |block: &mut Vec<u8>| {
        if !read(block)? {
            return Ok(None);
        }
        let place = match expected.filter(|expected| *expected > 0) {
            Some(expected) => {
                let task = |at: u64| {
                    let task = u128::from(at) * u128::from(tasks) / u128::from(expected);
                    u64::try_from(task).unwrap_or(u64::MAX).min(tasks - 1)
                };
                let first = task(bytes);
                bytes += block.len() as u64;
                BlockTask { task: first, is_last: task(bytes) > first }
            }
            // The size of the input is unknown: the last task gets the rest.
            None => BlockTask { task: number.min(tasks - 1), is_last: number + 1 < tasks },
        };
        number += 1;
        Ok(Some(place))
    };
    feed_multi_block_tasks::<_, _, GnuSortError>(
        sorter,
        options.threads_or_default(),
        read_placed,
        take,
    )?;
    warn_of_nul_tail(&reader, io)
}

/// Warns of inputs that end in NUL bytes. They are sorted, as GNU sort does it.
fn warn_of_nul_tail(reader: &InputBlocks, io: &mut GnuSortStreams<'_>) -> Result<(), GnuSortError> {
    reader.nul_tail().map_or(Ok(()), |tail| write_message(io, tail))
}

/// A source of a merge: the lines of a reader.
struct MergeInput<'a> {
    lines: LineReader<'a>,
    error: Option<GnuSortError>,
}

impl loser_tree::MergeSource for MergeInput<'_> {
    fn head(&self) -> Option<&[u8]> {
        self.lines.current_line()
    }

    fn advance(&mut self) -> crate::Result<()> {
        self.lines.advance().map_err(|error| {
            self.error = Some(error);
            crate::Error::Cancelled
        })
    }
}

fn merge_inputs(
    options: &GnuSortOptions,
    inputs: &ResolvedInputs,
    order: &LineOrder,
    io: &mut GnuSortStreams<'_>,
    output: Option<&mut AtomicOutput>,
) -> Result<GnuSortOutcome, GnuSortError> {
    let sort_options = options.to_sort_options(&io.cancel, None);
    let spill_files = sort_options.spill_dirs.len() + usize::from(options.copy_dir.is_some());
    let fan_in = merge_fan_in(options, openable_files(spill_files));
    let (mut passes, mut left) = (0, inputs.paths.len());
    while left > fan_in {
        left = left.div_ceil(fan_in);
        passes += 1;
    }
    // With a limit the size of the intermediate results is unknown.
    let expected = inputs.total_bytes.filter(|_| options.limit.is_none()).unwrap_or(0) * passes;
    let space = SpillStorage::new(&sort_options.spill_dirs, options.copy_dir.as_deref(), expected);
    let merging = StepwiseMerge { spill_storage: Arc::new(space), fan_in };
    merge_in_steps(options, &inputs.paths, order, io, output, &merging)
}

/// Returns the number of inputs that are merged at once. Half of the memory is for buffers, half for lines
/// that are longer than those; and the process may open a limited number of files.
fn merge_fan_in(options: &GnuSortOptions, files: usize) -> usize {
    let buffers = options.memory_or_default() / 2 / (64 << 10);
    options.batch_size.min(usize::try_from(buffers).unwrap_or(usize::MAX)).min(files).max(2)
}

/// Returns the number of inputs that this process can open beside its open files and beside spill files that
/// it will create.
fn openable_files(spill_files: usize) -> usize {
    // Other threads of the process may open files, too.
    const SPARE: usize = 4;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let Some(limit) = limit else { return usize::MAX };
    // The folder that is read is open as well, meanwhile. Without it, the standard streams are open.
    let open = match std::fs::read_dir("/dev/fd") {
        Ok(files) => files.count().saturating_sub(1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 3,
        Err(_) => return 0,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    limit.saturating_sub(open + spill_files + SPARE)
}

/// State of a merge in steps. The inputs of a step are opened when it begins, and closed when it ends.
struct StepwiseMerge {
    spill_storage: Arc<SpillStorage>,
    fan_in: usize,
}

fn merge_in_steps(
    options: &GnuSortOptions,
    inputs: &[PathBuf],
    order: &LineOrder,
    io: &mut GnuSortStreams<'_>,
    mut output: Option<&mut AtomicOutput>,
    merging: &StepwiseMerge,
) -> Result<GnuSortOutcome, GnuSortError> {
    let memory = options.memory_or_default();
    let StepwiseMerge { spill_storage: space, fan_in } = merging;
    let mut sources: std::collections::VecDeque<MergeStepInput> =
        inputs.iter().cloned().map(MergeStepInput::Path).collect();
    while sources.len() > *fan_in {
        // Groups of neighbours, so that ties keep their order.
        let mut merged = std::collections::VecDeque::new();
        while !sources.is_empty() {
            let group: Vec<_> = sources.drain(..sources.len().min(*fan_in)).collect();
            let mut spilled = SpilledLines::new(Arc::clone(space));
            merge_group(options, group, order, io, memory, &mut |_, bytes| {
                spilled.append_lines(bytes).map_err(GnuSortError::Sort)
            })?;
            spilled.release_memory();
            merged.push_back(MergeStepInput::Spilled(spilled));
        }
        sources = merged;
    }
    merge_group(options, sources.into(), order, io, memory, &mut |stdout, bytes| match (
        &mut output,
        &options.output,
    ) {
        (Some(output), Some(path)) => output.write_all(bytes).map_err(|source| GnuSortError::Io {
            action: "write",
            path: path.clone(),
            source,
        }),
        _ => write_stream(stdout, bytes),
    })?;
    if output.is_none() {
        io.stdout.flush().map_err(|source| GnuSortError::Io {
            action: "write",
            path: PathBuf::from("-"),
            source,
        })?;
    }
    Ok(GnuSortOutcome::Done)
}

/// An input of a merge step: a file, or the spilled result of an earlier step.
enum MergeStepInput {
    Path(PathBuf),
    Spilled(SpilledLines),
}

/// A callback for merged lines; it also gets standard output, for the case that they go there.
type MergedLinesWriter<'a> = &'a mut dyn FnMut(&mut dyn Write, &[u8]) -> Result<(), GnuSortError>;

fn merge_group(
    options: &GnuSortOptions,
    group: Vec<MergeStepInput>,
    order: &LineOrder,
    io: &mut GnuSortStreams<'_>,
    memory: u64,
    write: MergedLinesWriter<'_>,
) -> Result<(), GnuSortError> {
    let sizes = crate::SortBudget::new(memory);
    // Spilled lines are read in pieces of this size, into blocks of the same size.
    let block_bytes = usize::try_from(memory / 4 / (group.len() as u64 + 1))
        .unwrap_or(usize::MAX)
        .clamp(4 << 10, 1 << 20);
    let GnuSortStreams { stdin, stdout, cancel, .. } = io;
    let mut stdin = Some(&mut **stdin);
    // All are opened before one is read: a writer to several pipes may open all of them first.
    let mut sources = Vec::new();
    for one in group {
        sources.push(match one {
            // Standard input named twice has nothing left the second time.
            MergeStepInput::Path(path) if path.as_os_str() == "-" => match stdin.take() {
                Some(stdin) => LineSource::Stdin(stdin),
                None => continue,
            },
            MergeStepInput::Path(path) => LineSource::File(line_input::open_input(&path)?, path),
            MergeStepInput::Spilled(spilled) => LineSource::Spilled(spilled),
        });
    }
    let mut inputs = Vec::with_capacity(sources.len());
    for source in sources {
        let lines =
            LineReader::open(source, options.terminator, block_bytes, sizes.record_bytes_max)?;
        inputs.push(MergeInput { lines, error: None });
    }
    let mut tree = LoserTree::new(order, inputs);
    let mut block = Vec::with_capacity(block_bytes);
    let mut last: Option<Vec<u8>> = None;
    // A line behind the limit of some inputs is behind the limit of all.
    let mut wanted = options.limit.unwrap_or(u64::MAX);
    while let Some(input) = tree.winner().filter(|_| wanted > 0) {
        let line = input.lines.current_line().unwrap_or_default();
        let same =
            options.unique && last.as_deref().is_some_and(|last| order.compare(last, line).is_eq());
        if !same {
            if options.unique {
                let kept = last.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(line);
            }
            block.extend_from_slice(line);
            block.push(options.terminator);
            wanted -= 1;
            if block.len() >= block_bytes {
                cancel.check_cancelled()?;
                write(&mut **stdout, &block)?;
                block.clear();
            }
        }
        if let Err(error) = tree.advance() {
            let failed = tree.into_sources().into_iter().find_map(|input| input.error);
            return Err(failed.unwrap_or(GnuSortError::Sort(error)));
        }
    }
    write(&mut **stdout, &block)
}

fn check_sorted(
    options: &GnuSortOptions,
    inputs: &[PathBuf],
    order: &LineOrder,
    quiet: bool,
    io: &mut GnuSortStreams<'_>,
) -> Result<GnuSortOutcome, GnuSortError> {
    let sizes = crate::SortBudget::new(options.memory_or_default());
    let GnuSortStreams { stdin, stderr, cancel, .. } = io;
    let Some(path) = inputs.first() else { return Ok(GnuSortOutcome::Done) };
    let mut lines = LineReader::open(
        open_source(path, &mut **stdin)?,
        options.terminator,
        sizes.block_bytes,
        sizes.record_bytes_max,
    )?;
    let mut last = Vec::new();
    let mut number = 0u64;
    while let Some(line) = lines.current_line() {
        number += 1;
        if number > 1 {
            let compared = order.compare(&last, line);
            if compared.is_gt() || (options.unique && compared.is_eq()) {
                if !quiet {
                    let mut text = format!("sort: {}:{number}: disorder: ", lines.name().display())
                        .into_bytes();
                    text.extend_from_slice(line);
                    text.push(options.terminator);
                    write_stream(&mut **stderr, &text)?;
                }
                return Ok(GnuSortOutcome::Disorder { path: path.clone(), line: number });
            }
        }
        if number.is_multiple_of(4096) {
            cancel.check_cancelled()?;
        }
        last.clear();
        last.extend_from_slice(line);
        lines.advance()?;
    }
    Ok(GnuSortOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::{
        GnuSortCommand, GnuSortError, GnuSortOptions, GnuSortStreams, StepwiseMerge,
        build_line_order, merge_fan_in, merge_in_steps,
    };
    use crate::spill_storage::SpillStorage;
    use std::io;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// Merges ten inputs, three at once, with a spill storage that the test has prepared.
    fn merge_with(
        folders: &[PathBuf],
        copies: Option<&std::path::Path>,
        prepare: impl Fn(&SpillStorage),
    ) -> Result<Arc<SpillStorage>, GnuSortError> {
        let inputs = tempfile::tempdir().unwrap();
        let mut args = vec![PathBuf::from("-mn"), PathBuf::from("--batch-size=3")];
        let (mut paths, mut expected) = (Vec::new(), Vec::new());
        for file in 0..10 {
            let path = inputs.path().join(file.to_string());
            let numbers: Vec<u32> = (0..3000).map(|number| number * 10 + file).collect();
            let lines: String = numbers.iter().map(|number| format!("{number:09}\n")).collect();
            std::fs::write(&path, lines).unwrap();
            expected.extend(numbers);
            paths.push(path);
        }
        args.extend(paths.iter().cloned());
        let GnuSortCommand::Run(mut options) = GnuSortOptions::parse(args).unwrap() else {
            panic!("no help")
        };
        options.memory_bytes = Some(64 << 10);
        let space = Arc::new(SpillStorage::new(folders, copies, 0));
        prepare(&space);
        let mut written = Vec::new();
        let mut io =
            GnuSortStreams { stdout: Box::new(&mut written), ..GnuSortStreams::from_process() };
        let merging = StepwiseMerge {
            spill_storage: Arc::clone(&space),
            fan_in: merge_fan_in(&options, usize::MAX),
        };
        merge_in_steps(
            &options,
            &paths,
            &build_line_order(&options).unwrap(),
            &mut io,
            None,
            &merging,
        )?;
        drop(io);
        expected.sort_unstable();
        let expected: String = expected.iter().map(|number| format!("{number:09}\n")).collect();
        assert!(written == expected.as_bytes());
        Ok(space)
    }

    #[test]
    fn stepwise_merge_uses_all_folders_and_skips_a_full_one() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths: Vec<_> = folders.iter().map(|folder| folder.path().to_path_buf()).collect();
        let space = merge_with(&paths, None, |_| ()).unwrap();
        let used = space.file_bytes();
        assert!(used.iter().all(|bytes| *bytes > 200_000), "{used:?}");
        let kind = io::ErrorKind::StorageFull;
        let space =
            merge_with(&paths, None, |space| space.fault.fail_write(0, kind, false)).unwrap();
        let used = space.file_bytes();
        assert!(used[0] < 100_000 && used[1] > 500_000, "{used:?}");
        let fail = |space: &SpillStorage| space.fault.fail_write(5, kind, true);
        let error = merge_with(&paths, None, fail).map(|_| ()).unwrap_err();
        let GnuSortError::Sort(crate::Error::DiskFull { needed_bytes, folders: told, .. }) = &error
        else {
            panic!("{error}")
        };
        assert!(*needed_bytes > 0 && told.len() == 2 && told[0].1.is_some(), "{error}");
        assert!(folders.iter().all(|folder| folder.path().read_dir().unwrap().next().is_none()));
    }

    #[test]
    fn damage_between_two_merges_is_found_and_repaired_from_a_copy() {
        let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = [folder.path().to_path_buf()];
        for (read, place) in [(0, 3), (2, 40), (7, 900)] {
            let flip = |space: &SpillStorage| space.fault.flip_read(read, place);
            let error = merge_with(&paths, None, flip).map(|_| ()).unwrap_err();
            assert!(
                matches!(error, GnuSortError::Sort(crate::Error::CorruptSpill { .. })),
                "{error}"
            );
            merge_with(&paths, Some(copies.path()), flip).unwrap();
        }
    }
}
