//! The verbs: each turns its arguments into requests to the engine and prints the results.
//!
//! - `query`: `query`, `run` and `merge`
//! - `convert`, `check`, `sort`, `ids`, `hll`, `jobs`, `cluster`: the verbs of these names
//! - `schema_and_head`: `schema` and `head`
//! - `fs`: `cat`, `get`, `put`, `ls`, `stat` and `du`
//! - `shell`: the SQL shell
//! - `result_output`: writing of results and coverage
//! - `remote_read_report`: the text of `--stats`
//! - `work_with_progress`: work on a thread while the progress bar moves

mod check;
mod cluster;
mod convert;
mod fs;
mod hll;
mod ids;
mod jobs;
mod query;
mod remote_read_report;
mod result_output;
mod schema_and_head;
mod shell;
mod sort;
mod work_with_progress;

use std::io::{Read, Write};
use std::path::Path;

use clap::CommandFactory;
use tidemill_engine::error::escape_control_chars;
use tidemill_engine::filter_program::FilterProgram;
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::query::ScratchSpec;
use tidemill_engine::remote::{self, StorageOptions};
use tidemill_engine::sink::run_direct_write;
use tidemill_engine::source::{self, SourceSpec, TextOptions};
use tidemill_engine::{Error, Result};

use crate::args::{
    Cli, CompletionsArgs, FsArgs, FsVerb, ReadAheadArgs, ResourceLimitArgs, SourceArgs,
    StorageArgs, Verb,
};
use crate::stdout_display::PagedStdout;
use crate::terminal;

pub(crate) use self::shell::{has_interactive_terminal as is_shell_possible, run_shell};
pub(crate) use self::sort::{sort_lines, sort_rows, sorts_by_columns};

/// The outcome of a verb that ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerbOutcome {
    /// The whole input was used.
    Complete,
    /// A part of the input was left out, as the options allow.
    Incomplete,
    /// The answer is negative: a file is damaged, or a schema does not fit.
    NegativeAnswer,
}

/// Runs a verb.
pub(crate) fn run_verb(verb: Verb) -> anyhow::Result<VerbOutcome> {
    let asks_for_stats = verb.read_ahead_args().is_some_and(|read_ahead| read_ahead.stats);
    terminal::report_silent_hosts();
    report_remote_reads_after(asks_for_stats, || dispatch_verb(verb))
}

/// Runs `work`, and prints statistics of remote reads if they are requested.
fn report_remote_reads_after(
    asks_for_stats: bool,
    work: impl FnOnce() -> anyhow::Result<VerbOutcome>,
) -> anyhow::Result<VerbOutcome> {
    let performed = work();
    // For verbs without a run, which would do this itself.
    remote::tuning::record_finished_run();
    if asks_for_stats {
        terminal::print_note(&remote_read_report::describe_remote_reads(&remote::read_stats()));
    }
    performed
}

fn dispatch_verb(verb: Verb) -> anyhow::Result<VerbOutcome> {
    match verb {
        Verb::Query(args) => query::query(&args),
        Verb::Run(args) => query::run_job(&args),
        Verb::Merge(args) => query::merge(args),
        Verb::Convert(args) => convert::convert(args),
        Verb::Check(args) => check::check(args),
        Verb::Schema(args) => schema_and_head::show_schema(&args),
        Verb::Head(args) => schema_and_head::show_head(&args),
        Verb::Jobs(args) => jobs::jobs(args),
        Verb::Sort(args) => sort::sort_lines(args.words),
        Verb::Ids(args) => ids::combine_id_files(args),
        Verb::Hll(args) => hll::hll(args),
        Verb::Cat(args) | Verb::Fs(FsArgs { verb: FsVerb::Cat(args) }) => fs::cat(&args),
        Verb::Get(args) | Verb::Fs(FsArgs { verb: FsVerb::Get(args) }) => fs::get(args),
        Verb::Put(args) | Verb::Fs(FsArgs { verb: FsVerb::Put(args) }) => fs::put(args),
        Verb::Ls(args) | Verb::Fs(FsArgs { verb: FsVerb::Ls(args) }) => fs::ls(&args),
        Verb::Stat(args) | Verb::Fs(FsArgs { verb: FsVerb::Stat(args) }) => fs::stat(&args),
        Verb::Du(args) | Verb::Fs(FsArgs { verb: FsVerb::Du(args) }) => fs::du(&args),
        Verb::Cluster(args) => cluster::cluster(args),
        Verb::Completions(args) => print_completions(&args),
    }
}

fn print_completions(args: &CompletionsArgs) -> anyhow::Result<VerbOutcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidemill", &mut script);
    print_paged(&script)?;
    Ok(VerbOutcome::Complete)
}

/// Writes text for people to standard output, through the pager if it is longer than the screen of a
/// terminal. Control characters from names of files and columns are made visible, because a terminal would
/// obey them.
fn print_paged(bytes: &[u8]) -> Result<()> {
    let text = escape_control_chars(&String::from_utf8_lossy(bytes), &['\n', '\t']);
    let mut pages = PagedStdout::new(true);
    run_direct_write(|| {
        let written = pages.write_all(text.as_bytes());
        written.map_err(|error| Error::io("write", "standard output", error))?;
        pages.finish()
    })
}

/// Reads the text of a file, or of standard input for `-`.
fn read_text(path: &Path) -> Result<String> {
    let shown = if path == Path::new("-") { Path::new("standard input") } else { path };
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| Error::io("read", shown, error))
}

/// Returns the program that repeated flags name, if any.
fn parse_program(words: &[String]) -> Result<Option<FilterProgram>> {
    Ok((!words.is_empty()).then(|| FilterProgram::new(words.to_vec())).transpose()?)
}

impl SourceArgs {
    /// Returns the options for reading files as a source without a URL.
    fn to_source_spec(&self) -> Result<SourceSpec> {
        Ok(SourceSpec {
            url: String::new(),
            more_urls: Vec::new(),
            format: self.source_format.as_deref().map(str::parse).transpose()?,
            text_options: TextOptions {
                header: self.header,
                delimiter: self.delimiter,
                quote: self.quote.map(|quote| quote.0),
                escape: self.escape,
                comment: self.comment,
                skip_lines: self.skip_lines,
                header_row: self.header_row,
                nulls: self.null.clone(),
                strict: self.strict,
                mismatch: self.mismatch.as_deref().map(str::parse).transpose()?,
                framing: self.framing.as_deref().map(source::parse_framing).transpose()?,
                log_format: self.log_format.clone(),
            },
            declared_schema: self
                .schema
                .as_deref()
                .map(tidemill_engine::query::schema_from_sql)
                .transpose()?,
            promotions: self
                .promote
                .iter()
                .map(|text| text.parse())
                .collect::<source::Result<_>>()?,
            filter_program: parse_program(&self.source_exec)?,
            layout_policy: self.layouts.as_deref().map(str::parse).transpose()?,
            storage_options: self
                .read_ahead
                .set_storage_options(self.storage.to_storage_options()?)?,
            salvage_damaged: self.salvage,
            memory_rows: None,
            exposed_hidden_columns: Vec::new(),
            base_folder: None,
        })
    }
}

impl StorageArgs {
    /// Returns the validated storage options.
    fn to_storage_options(&self) -> Result<StorageOptions> {
        let mut options = StorageOptions::default();
        for text in &self.storage_option {
            // Validated here and not by clap, whose message would show the value, which may be secret.
            let (name, value) = text.split_once('=').unwrap_or_default();
            options.set(name, value)?;
        }
        Ok(options)
    }
}

impl Verb {
    /// Returns the read-ahead options of a verb that has them.
    fn read_ahead_args(&self) -> Option<&ReadAheadArgs> {
        match self {
            Verb::Query(args) => Some(&args.source.read_ahead),
            Verb::Run(args) => Some(&args.read_ahead),
            Verb::Convert(args) => Some(&args.source.read_ahead),
            Verb::Schema(args) => Some(&args.source.read_ahead),
            Verb::Head(args) => Some(&args.source.read_ahead),
            Verb::Cat(args) | Verb::Fs(FsArgs { verb: FsVerb::Cat(args) }) => {
                Some(&args.read_ahead)
            }
            Verb::Get(args) | Verb::Fs(FsArgs { verb: FsVerb::Get(args) }) => {
                Some(&args.read_ahead)
            }
            _ => None,
        }
    }
}

impl ReadAheadArgs {
    /// Returns the storage options with these options set.
    fn set_storage_options(&self, mut options: StorageOptions) -> Result<StorageOptions> {
        for (name, value) in [
            ("read_block", &self.read_block),
            ("read_window", &self.read_window),
            ("read_memory", &self.read_memory),
            ("read_cache", &self.read_cache),
            ("read_cache_dir", &self.read_cache_dir),
        ] {
            if let Some(value) = value {
                options.set(name, value.clone())?;
            }
        }
        Ok(options)
    }
}

impl ResourceLimitArgs {
    fn to_limits(&self) -> ResourceLimits {
        ResourceLimits {
            memory: self.memory.clone(),
            max_bad: self.max_bad.clone(),
            threads: self.threads,
            priority: self.priority.clone(),
            spill_dirs: self.spill_dir.clone(),
            split_attempts_max: None,
            scratch: ScratchSpec::default(),
        }
    }
}
