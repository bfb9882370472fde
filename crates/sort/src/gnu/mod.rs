//! GNU sort: its command line, its order (that of `LC_ALL=C`), its exit statuses, over this sort.
//!
//! What differs: an output that is a regular file and exists needs `--overwrite`, and appears whole or not at all; `-h` and
//! `-V` are GNU's, help is `--help` alone; a key in the form `+1 -2` is refused; `--compress-program`,
//! `--debug` and `--random-source` are not known; `--limit` is ours; `-g` compares numbers by their exact values where
//! GNU rounds to a long double; `-h` knows the units R and Q, and `-V` takes a name that is an extension as a whole (`.c`) for a name, as
//! coreutils after 9.1 do. A line may have an
//! eighth of the memory.
//!
//! ```no_run
//! use tidemill_sort::gnu::{Io, Options, run};
//!
//! let command = Options::parse(["-t,", "-k2,2n", "in.csv", "-o", "out.csv"])?;
//! let outcome = run(&command, &mut Io::of_process())?;
//! std::process::exit(outcome.exit_status());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod input;
mod keys;
mod numbers;
mod options;
mod output;
mod version;

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use keys::{Comparison, Ignore, Key, KeyOptions, KeyOrder, Position};
pub use options::{Action, Command, HELP, MEMORY_BYTES_MIN, Options, UsageError};

use crate::cancel::Cancel;
use crate::feed::{Place, feed, feed_tasks};
use crate::order::{ByteOrder, Order, RangeOrder, Reverse};
use crate::plan::{Explained, Plan};
use crate::report::Report;
use crate::rows::Shape;
use crate::sorter::{Sorter, Task};
use crate::space::Space;
use crate::tree::{self, Tree};
use input::{Blocks, Lines, Source, Spilled};
use output::Output;

/// Why lines were not sorted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The verb.
        action: &'static str,
        /// The file; `-` for the standard ones.
        path: PathBuf,
        /// The system's own words.
        source: io::Error,
    },
    /// The output is there already.
    #[error(
        "`{path}` exists\nhint: `--overwrite` replaces it when the output is complete, an input too"
    )]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// A line that is too long for the memory.
    #[error(
        "a line of `{path}` is longer than {limit_bytes} bytes\nhint: give more memory with `-S`: a line may have an eighth of it"
    )]
    LineTooLong {
        /// The input.
        path: PathBuf,
        /// What would have been taken.
        limit_bytes: usize,
    },
    /// An input that ends within a record.
    #[error(
        "`{path}` ends with {found} bytes of a record of {record_bytes}\nhint: give the size that its records have with `--records`"
    )]
    RecordCut {
        /// The input.
        path: PathBuf,
        /// The size of the records.
        record_bytes: usize,
        /// What is left over.
        found: usize,
    },
    /// A list of inputs that has none, or an empty name.
    #[error(
        "`{path}`: {reason}\nhint: it is to hold names that each end with a zero byte, as `find -print0` writes them"
    )]
    List {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What the sort itself says.
    #[error(transparent)]
    Sort(#[from] crate::Error),
}

/// Where a command reads and writes that names no files.
pub struct Io<'a> {
    /// Read for `-`.
    pub stdin: Box<dyn Read + Send + 'a>,
    /// Written without `-o`.
    pub stdout: Box<dyn Write + 'a>,
    /// Told which line is out of order, which input ends in NUL bytes, and what `--explain` says.
    pub stderr: Box<dyn Write + 'a>,
    /// Stops the command from another thread.
    pub cancel: Cancel,
}

impl Io<'_> {
    /// The standard streams of the process.
    pub fn of_process() -> Self {
        Io {
            stdin: Box::new(io::stdin()),
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            cancel: Cancel::new(),
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The input was sorted, with what that took.
    Sorted(Box<Report>),
    /// Inputs were merged, or help was given, or a check found nothing.
    Done,
    /// A check found a line that is out of order.
    Disorder {
        /// The input.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
    },
}

impl Outcome {
    /// GNU sort's exit status: 1 where a check found something, else 0. Errors have 2.
    pub fn exit_status(&self) -> i32 {
        i32::from(matches!(self, Outcome::Disorder { .. }))
    }
}

/// The bytes of memory of the machine, or of its share of it, as far as the system says.
pub(crate) fn machine_bytes() -> u64 {
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

impl Options {
    fn memory(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(|| (machine_bytes() / 4).clamp(MEMORY_BYTES_MIN, 1 << 30))
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn sort_options(&self, cancel: &Cancel, expected_bytes: Option<u64>) -> crate::Options {
        let default = crate::Options::default();
        crate::Options {
            memory_bytes: self.memory(),
            threads: self.threads(),
            spill_dirs: if self.spill_dirs.is_empty() {
                default.spill_dirs
            } else {
                self.spill_dirs.clone()
            },
            copy_dir: self.copy_dir.clone(),
            // Lines that tie as a whole are the same: their order cannot be seen.
            stable: self.stable && (self.record_bytes.is_some() || !self.is_whole_lines()),
            unique: self.unique,
            limit: self.limit,
            expected_bytes,
            cancel: cancel.clone(),
        }
    }

    fn inputs(&self, stdin: &mut dyn Read) -> Result<Vec<PathBuf>, Error> {
        let Some(list) = &self.files_from else {
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
            input::open(list)?.read_to_end(&mut bytes)
        };
        read.map_err(|source| Error::Io { action: "read", path: list.clone(), source })?;
        let names = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        let wrong = |reason: &str| Error::List { path: list.clone(), reason: reason.to_owned() };
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

/// What is sorted, merged or checked. What is no regular file is opened once alone, when it is read.
struct Inputs {
    paths: Vec<PathBuf>,
    /// All their bytes, where all are regular files.
    bytes: Option<u64>,
}

/// Does what a command line says.
///
/// # Errors
/// [`Error`]; the exit status of the program is 2 then. A closed pipe is an error of writing `-`.
pub fn run(command: &Command, io: &mut Io<'_>) -> Result<Outcome, Error> {
    let options = match command {
        Command::Run(options) => options,
        Command::Help => {
            write_to(&mut *io.stdout, options::HELP.as_bytes())?;
            return Ok(Outcome::Done);
        }
    };
    let inputs = options.inputs(&mut *io.stdin)?;
    // What cannot be read is found before an hour's work is done.
    let mut bytes = Some(0);
    for path in &inputs {
        bytes = bytes.zip(input::size(path)?).map(|(sum, bytes)| sum + bytes);
    }
    let inputs = Inputs { paths: inputs, bytes };
    if let Action::Check { quiet } = options.action {
        return with_order(options, |order| check(options, &inputs.paths, order, quiet, io));
    }
    let mut output = match &options.output {
        Some(path) => Some(Output::create(path, options.overwrite)?),
        None => None,
    };
    let outcome = if let Some(size) = options.record_bytes {
        let order = RangeOrder::new(options.record_key.clone().unwrap_or(0..size));
        let shape = Shape::Fixed(size);
        if options.global.reverse {
            sort(options, &inputs, Reverse(order), shape, io, output.as_mut())?
        } else {
            sort(options, &inputs, order, shape, io, output.as_mut())?
        }
    } else {
        match options.action {
            Action::Merge => {
                with_order(options, |order| merge(options, &inputs, order, io, output.as_mut()))?
            }
            _ if options.is_whole_lines() && options.global.reverse => {
                sort(options, &inputs, Reverse(ByteOrder), Shape::Variable, io, output.as_mut())?
            }
            _ if options.is_whole_lines() => {
                sort(options, &inputs, ByteOrder, Shape::Variable, io, output.as_mut())?
            }
            _ => sort(options, &inputs, order(options)?, Shape::Variable, io, output.as_mut())?,
        }
    };
    if let Some(output) = output {
        output.commit(options.sync)?;
    }
    Ok(outcome)
}

fn order(options: &Options) -> Result<KeyOrder, Error> {
    let seed = match options.seed {
        Some(seed) => seed,
        None if options.is_random() => getrandom::u64().map_err(|error| Error::Io {
            action: "read",
            path: PathBuf::from("the system's random numbers"),
            source: io::Error::other(error.to_string()),
        })?,
        None => 0,
    };
    Ok(options.order(seed))
}

fn with_order<T>(
    options: &Options,
    work: impl FnOnce(&KeyOrder) -> Result<T, Error>,
) -> Result<T, Error> {
    work(&order(options)?)
}

fn write_to(output: &mut dyn Write, bytes: &[u8]) -> Result<(), Error> {
    output.write_all(bytes).map_err(|source| Error::Io {
        action: "write",
        path: PathBuf::from("-"),
        source,
    })
}

/// Writes to the output, which has a name, or to standard output.
fn write_out(
    options: &Options,
    output: &mut Option<&mut Output>,
    io: &mut Io<'_>,
    bytes: &[u8],
) -> Result<(), Error> {
    match (output, &options.output) {
        (Some(output), Some(path)) => output.write_all(bytes).map_err(|source| Error::Io {
            action: "write",
            path: path.clone(),
            source,
        }),
        _ => write_to(&mut *io.stdout, bytes),
    }
}

fn source<'a>(path: &Path, stdin: &'a mut (dyn Read + Send)) -> Result<Source<'a>, Error> {
    if path.as_os_str() == "-" {
        return Ok(Source::Stdin(stdin));
    }
    Ok(Source::File(input::open(path)?, path.to_path_buf()))
}

fn sort<O: Order>(
    options: &Options,
    inputs: &Inputs,
    order: O,
    shape: Shape,
    io: &mut Io<'_>,
    mut output: Option<&mut Output>,
) -> Result<Outcome, Error> {
    let Inputs { paths, bytes: expected } = inputs;
    let expected = *expected;
    let sorter = Sorter::new(order, shape, options.sort_options(&io.cancel, expected))?;
    let mut row_bytes = 0;
    if expected.is_some_and(|bytes| options.explain || bytes > sorter.sizes().hold_bytes / 4) {
        row_bytes = look(options, paths, &sorter, shape)?;
    }
    let plan = expected.filter(|_| options.explain).map(|bytes| {
        let rows = bytes / row_bytes.max(1);
        let ends = if shape == Shape::Variable { rows } else { 0 };
        let plan = Plan::new(options.memory(), options.threads(), bytes - ends.min(bytes), rows);
        options.limit.map_or(plan, |limit| plan.limited(limit))
    });
    if let Some(plan) = &plan {
        tell(io, plan)?;
    }
    feed_all(options, paths, &sorter, shape, expected, io)?;
    let layout = match shape {
        Shape::Fixed(_) => crate::Layout::Bare,
        Shape::Variable => crate::Layout::Terminated(options.terminator),
    };
    let mut blocks = sorter.finish()?.blocks(layout)?;
    while let Some(block) = blocks.next()? {
        write_out(options, &mut output, io, block.bytes())?;
    }
    if output.is_none() {
        io.stdout.flush().map_err(|source| Error::Io {
            action: "write",
            path: PathBuf::from("-"),
            source,
        })?;
    }
    let report = blocks.finish()?;
    match plan {
        Some(plan) => tell(io, &Explained { plan, report: report.clone() })?,
        // Of a pipe nobody knows what will come.
        None if options.explain => tell(io, &report)?,
        None => {}
    }
    Ok(Outcome::Sorted(Box::new(report)))
}

fn tell(io: &mut Io<'_>, what: &dyn std::fmt::Display) -> Result<(), Error> {
    write_to(&mut *io.stderr, format!("{what}\n").as_bytes())
}

/// Looks at the inputs in some hundred places, so that partitions suit all of them. Says how many bytes
/// a record has, with its end.
fn look<O: Order>(
    options: &Options,
    inputs: &[PathBuf],
    sorter: &Sorter<O>,
    shape: Shape,
) -> Result<u64, Error> {
    // A seek each, on a disk: some seconds at most.
    const PLACES: u64 = 512;
    const BYTES: usize = 8 << 10;
    let mut files = Vec::new();
    for path in inputs {
        files.push((path, input::size(path)?.unwrap_or(0)));
    }
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let each = (sorter.sample_count() as u64).div_ceil(PLACES).max(8) as usize;
    let step = (total / PLACES).max(BYTES as u64);
    let mut buffer = vec![0; BYTES];
    let (mut first, mut place) = (0, step.min(total) / 2);
    let (mut seen_rows, mut seen_bytes) = (0, 0);
    for (path, bytes) in files {
        if place >= first + bytes {
            first += bytes;
            continue;
        }
        // One alone is open at a time, however many there are.
        let file = input::open(path)?;
        while place < first + bytes {
            let offset = match shape {
                Shape::Fixed(size) => (place - first) / size as u64 * size as u64,
                Shape::Variable => place - first,
            };
            let read = file.read_at(&mut buffer, offset).unwrap_or(0);
            let found = &buffer[..read];
            match shape {
                Shape::Fixed(size) => {
                    found.chunks_exact(size).take(each).for_each(|record| sorter.sample(record))
                }
                Shape::Variable => {
                    // The first line is cut off in front, the last one behind.
                    let whole = memchr::memrchr(options.terminator, found).unwrap_or(0);
                    let lines = input::lines(&found[..whole], options.terminator);
                    for line in lines.skip(usize::from(offset > 0)).take(each) {
                        sorter.sample(line);
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
        Shape::Fixed(size) => size as u64,
        // What is nowhere within some kilobytes is as long as the input.
        Shape::Variable if seen_rows == 0 => total.max(1),
        Shape::Variable => seen_bytes / seen_rows,
    })
}

/// Reads the inputs, a block a task, with threads that take blocks apart; or as so many tasks as are wanted.
fn feed_all<O: Order>(
    options: &Options,
    inputs: &[PathBuf],
    sorter: &Sorter<O>,
    shape: Shape,
    expected: Option<u64>,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let sizes = sorter.sizes();
    // A line's length may take a byte more than what ended it.
    let mut block_bytes = sizes.block_bytes / 64 * 63;
    if let Some((bytes, tasks)) = expected.zip(options.map_tasks) {
        let each = usize::try_from(bytes.div_ceil(tasks)).unwrap_or(usize::MAX);
        block_bytes = block_bytes.min(each.max(1));
    }
    let terminator = options.terminator;
    let mut reader = match shape {
        Shape::Fixed(size) => Blocks::records(block_bytes, size),
        Shape::Variable => Blocks::lines(block_bytes, terminator, sizes.record_bytes_max),
    };
    let Io { stdin, cancel, .. } = io;
    let mut paths = inputs.iter();
    let mut current = None;
    let mut read = |block: &mut Vec<u8>| {
        loop {
            cancel.check()?;
            if current.is_none() {
                let Some(path) = paths.next() else { return Ok(false) };
                let file = if path.as_os_str() == "-" { None } else { Some(input::open(path)?) };
                current = Some((file, path));
            }
            let Some((file, path)) = &mut current else { return Ok(false) };
            let more = match file {
                Some(file) => reader.next(file, path, block)?,
                None => reader.next(&mut **stdin, path, block)?,
            };
            if more {
                return Ok(true);
            }
            current = None;
        }
    };
    let take = |task: &mut Task<O>, block: &Vec<u8>| {
        match shape {
            Shape::Fixed(size) => {
                block.chunks_exact(size).try_for_each(|record| task.push(record))?
            }
            Shape::Variable => {
                input::lines(block, terminator).try_for_each(|line| task.push(line))?
            }
        }
        Ok(())
    };
    let Some(tasks) = options.map_tasks else {
        feed::<_, _, Error>(sorter, options.threads(), read, take)?;
        return warn_of_nuls(&reader, io);
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
                Place { task: first, is_last: task(bytes) > first }
            }
            // Nobody knows how much will come: the last task has what is left.
            None => Place { task: number.min(tasks - 1), is_last: number + 1 < tasks },
        };
        number += 1;
        Ok(Some(place))
    };
    feed_tasks::<_, _, Error>(sorter, options.threads(), read_placed, take)?;
    warn_of_nuls(&reader, io)
}

/// Says that inputs end in NUL bytes. They are sorted, as GNU sort does it.
fn warn_of_nuls(reader: &Blocks, io: &mut Io<'_>) -> Result<(), Error> {
    reader.nul_tail().map_or(Ok(()), |tail| tell(io, tail))
}

/// A source of a merge: lines that some reader has.
struct Input<'a> {
    lines: Lines<'a>,
    failed: Option<Error>,
}

impl tree::Source for Input<'_> {
    fn head(&self) -> Option<&[u8]> {
        self.lines.line()
    }

    fn advance(&mut self) -> crate::Result<()> {
        self.lines.advance().map_err(|error| {
            self.failed = Some(error);
            crate::Error::Cancelled
        })
    }
}

fn merge(
    options: &Options,
    inputs: &Inputs,
    order: &KeyOrder,
    io: &mut Io<'_>,
    output: Option<&mut Output>,
) -> Result<Outcome, Error> {
    let sort_options = options.sort_options(&io.cancel, None);
    let spill_files = sort_options.spill_dirs.len() + usize::from(options.copy_dir.is_some());
    let fan_in = fan_in(options, files_left(spill_files));
    let (mut passes, mut left) = (0, inputs.paths.len());
    while left > fan_in {
        left = left.div_ceil(fan_in);
        passes += 1;
    }
    // With a limit nobody knows how much will be left out.
    let expected = inputs.bytes.filter(|_| options.limit.is_none()).unwrap_or(0) * passes;
    let space = Space::new(&sort_options.spill_dirs, options.copy_dir.as_deref(), expected);
    let merging = Merging { space: Arc::new(space), fan_in };
    merge_within(options, &inputs.paths, order, io, output, &merging)
}

/// How many inputs are merged at once: half of the memory is for buffers, half for lines that are longer than those; and
/// the process may have so many files open.
fn fan_in(options: &Options, files: usize) -> usize {
    let buffers = options.memory() / 2 / (64 << 10);
    options.batch.min(usize::try_from(buffers).unwrap_or(usize::MAX)).min(files).max(2)
}

/// How many inputs this process may open beside what it has open, and beside spill files that are still to
/// be made.
fn files_left(spill_files: usize) -> usize {
    // Other threads of the process may open some, too.
    const SPARE: usize = 4;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let Some(limit) = limit else { return usize::MAX };
    // The folder that is read is open as well, for as long. Where there is none, the standard streams are open.
    let open = match std::fs::read_dir("/dev/fd") {
        Ok(files) => files.count().saturating_sub(1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 3,
        Err(_) => return 0,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    limit.saturating_sub(open + spill_files + SPARE)
}

/// How inputs are merged in steps. Those of a step are opened when it begins, and closed when it ends.
struct Merging {
    space: Arc<Space>,
    fan_in: usize,
}

fn merge_within(
    options: &Options,
    inputs: &[PathBuf],
    order: &KeyOrder,
    io: &mut Io<'_>,
    mut output: Option<&mut Output>,
    merging: &Merging,
) -> Result<Outcome, Error> {
    let memory = options.memory();
    let Merging { space, fan_in } = merging;
    let mut sources: std::collections::VecDeque<Merged> =
        inputs.iter().cloned().map(Merged::Path).collect();
    while sources.len() > *fan_in {
        // Neighbours together, so that ties keep their order.
        let mut merged = std::collections::VecDeque::new();
        while !sources.is_empty() {
            let group: Vec<_> = sources.drain(..sources.len().min(*fan_in)).collect();
            let mut spilled = Spilled::new(Arc::clone(space));
            merge_some(options, group, order, io, memory, &mut |_, bytes| {
                spilled.write(bytes).map_err(Error::Sort)
            })?;
            spilled.rest();
            merged.push_back(Merged::Spilled(spilled));
        }
        sources = merged;
    }
    merge_some(options, sources.into(), order, io, memory, &mut |stdout, bytes| match (
        &mut output,
        &options.output,
    ) {
        (Some(output), Some(path)) => output.write_all(bytes).map_err(|source| Error::Io {
            action: "write",
            path: path.clone(),
            source,
        }),
        _ => write_to(stdout, bytes),
    })?;
    if output.is_none() {
        io.stdout.flush().map_err(|source| Error::Io {
            action: "write",
            path: PathBuf::from("-"),
            source,
        })?;
    }
    Ok(Outcome::Done)
}

/// What is merged: an input, or what came of merging some.
enum Merged {
    Path(PathBuf),
    Spilled(Spilled),
}

/// Takes merged lines; standard output is handed to it, for the case that they go there.
type Writing<'a> = &'a mut dyn FnMut(&mut dyn Write, &[u8]) -> Result<(), Error>;

fn merge_some(
    options: &Options,
    group: Vec<Merged>,
    order: &KeyOrder,
    io: &mut Io<'_>,
    memory: u64,
    write: Writing<'_>,
) -> Result<(), Error> {
    let sizes = crate::Sizes::new(memory);
    // What was spilled is read by pieces of such a size, into blocks of the same.
    let block_bytes = usize::try_from(memory / 4 / (group.len() as u64 + 1))
        .unwrap_or(usize::MAX)
        .clamp(4 << 10, 1 << 20);
    let Io { stdin, stdout, cancel, .. } = io;
    let mut stdin = Some(&mut **stdin);
    // All are opened before one is read: who writes to several pipes may open all of them first.
    let mut sources = Vec::new();
    for one in group {
        sources.push(match one {
            // Standard input named twice has nothing left the second time.
            Merged::Path(path) if path.as_os_str() == "-" => match stdin.take() {
                Some(stdin) => Source::Stdin(stdin),
                None => continue,
            },
            Merged::Path(path) => Source::File(input::open(&path)?, path),
            Merged::Spilled(spilled) => Source::Spilled(spilled),
        });
    }
    let mut inputs = Vec::with_capacity(sources.len());
    for source in sources {
        let lines = Lines::open(source, options.terminator, block_bytes, sizes.record_bytes_max)?;
        inputs.push(Input { lines, failed: None });
    }
    let mut tree = Tree::new(order, inputs);
    let mut block = Vec::with_capacity(block_bytes);
    let mut last: Option<Vec<u8>> = None;
    // What is behind the limit of some inputs is behind that of all.
    let mut wanted = options.limit.unwrap_or(u64::MAX);
    while let Some(input) = tree.first().filter(|_| wanted > 0) {
        let line = input.lines.line().unwrap_or_default();
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
                cancel.check()?;
                write(&mut **stdout, &block)?;
                block.clear();
            }
        }
        if let Err(error) = tree.advance() {
            let failed = tree.into_sources().into_iter().find_map(|input| input.failed);
            return Err(failed.unwrap_or(Error::Sort(error)));
        }
    }
    write(&mut **stdout, &block)
}

fn check(
    options: &Options,
    inputs: &[PathBuf],
    order: &KeyOrder,
    quiet: bool,
    io: &mut Io<'_>,
) -> Result<Outcome, Error> {
    let sizes = crate::Sizes::new(options.memory());
    let Io { stdin, stderr, cancel, .. } = io;
    let Some(path) = inputs.first() else { return Ok(Outcome::Done) };
    let mut lines = Lines::open(
        source(path, &mut **stdin)?,
        options.terminator,
        sizes.block_bytes,
        sizes.record_bytes_max,
    )?;
    let mut last = Vec::new();
    let mut number = 0u64;
    while let Some(line) = lines.line() {
        number += 1;
        if number > 1 {
            let compared = order.compare(&last, line);
            if compared.is_gt() || (options.unique && compared.is_eq()) {
                if !quiet {
                    let mut text = format!("sort: {}:{number}: disorder: ", lines.name().display())
                        .into_bytes();
                    text.extend_from_slice(line);
                    text.push(options.terminator);
                    write_to(&mut **stderr, &text)?;
                }
                return Ok(Outcome::Disorder { path: path.clone(), line: number });
            }
        }
        if number.is_multiple_of(4096) {
            cancel.check()?;
        }
        last.clear();
        last.extend_from_slice(line);
        lines.advance()?;
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::{Command, Error, Io, Merging, Options, fan_in, merge_within, order};
    use crate::space::Space;
    use std::io;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// Merges ten inputs, three at once, in a space that a test has prepared.
    fn merge_with(
        folders: &[PathBuf],
        copies: Option<&std::path::Path>,
        prepare: impl Fn(&Space),
    ) -> Result<Arc<Space>, Error> {
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
        let Command::Run(mut options) = Options::parse(args).unwrap() else { panic!("no help") };
        options.memory_bytes = Some(64 << 10);
        let space = Arc::new(Space::new(folders, copies, 0));
        prepare(&space);
        let mut written = Vec::new();
        let mut io = Io { stdout: Box::new(&mut written), ..Io::of_process() };
        let merging = Merging { space: Arc::clone(&space), fan_in: fan_in(&options, usize::MAX) };
        merge_within(&options, &paths, &order(&options).unwrap(), &mut io, None, &merging)?;
        drop(io);
        expected.sort_unstable();
        let expected: String = expected.iter().map(|number| format!("{number:09}\n")).collect();
        assert!(written == expected.as_bytes());
        Ok(space)
    }

    #[test]
    fn a_merge_in_steps_uses_all_folders_and_leaves_out_a_full_one() {
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
        let fail = |space: &Space| space.fault.fail_write(5, kind, true);
        let error = merge_with(&paths, None, fail).map(|_| ()).unwrap_err();
        let Error::Sort(crate::Error::DiskFull { needed_bytes, folders: told, .. }) = &error else {
            panic!("{error}")
        };
        assert!(*needed_bytes > 0 && told.len() == 2 && told[0].1.is_some(), "{error}");
        assert!(folders.iter().all(|folder| folder.path().read_dir().unwrap().next().is_none()));
    }

    #[test]
    fn what_is_damaged_between_two_merges_is_found_and_a_copy_makes_up_for_it() {
        let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = [folder.path().to_path_buf()];
        for (read, place) in [(0, 3), (2, 40), (7, 900)] {
            let flip = |space: &Space| space.fault.flip_read(read, place);
            let error = merge_with(&paths, None, flip).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Sort(crate::Error::Corrupt { .. })), "{error}");
            merge_with(&paths, Some(copies.path()), flip).unwrap();
        }
    }
}
