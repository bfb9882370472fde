//! The `tidemill` command line: words into requests, errors into exit statuses.
//!
//! - `args`: what can be asked?
//! - `verbs`: what is done about it?
//! - `terminal`: what does the person at the terminal see meanwhile, and how do they stop it?
//! - `screen`: how large is the terminal, and who shows more than fits?
//! - `memory`: what is kept of freed memory?
//! - `reference`: does the reference page say what the command line is?
//! - `usage_errors`: which word was meant by one that is no verb, flag or value?

mod allocator_tuning;
mod args;
#[cfg(test)]
mod reference_page;
mod stdout_display;
mod terminal;
mod usage_errors;
mod verbs;

use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use tidemill_engine::error::redact_secrets;
use tidemill_engine::remote::disk_cache;
use tidemill_engine::{Error, ErrorClass, tracing_output};

use crate::args::{Cli, SortByArgs};

fn main() -> ExitCode {
    terminal::command_start();
    allocator_tuning::return_large_blocks_when_freed();
    terminal::ignore_file_size_signal();
    // Without a word somebody at a terminal wants to talk; a program that calls it so is told what there is.
    if std::env::args_os().len() == 1 && verbs::is_shell_possible() {
        let spoken = tracing_output::init_tracing_from_environment()
            .map_err(Into::into)
            .and_then(|()| verbs::run_shell());
        return report_and_exit_code(spoken);
    }
    // Its words are GNU sort's, of which clap knows nothing.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "sort") {
        let words: Vec<_> = std::env::args_os().skip(2).collect();
        if !verbs::sorts_by_columns(&words) {
            return report_and_exit_code(verbs::sort_lines(words));
        }
        let words = std::iter::once("tidemill sort".into()).chain(words);
        let args = SortByArgs::try_parse_from(words).unwrap_or_else(|error| {
            let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            match (error.kind(), unknown) {
                (ErrorKind::UnknownArgument, Some(unknown)) if !is_negative_number(&unknown) => {
                    let message = format!("`{unknown}` does not go with `--by`");
                    if unknown == "--explain" {
                        let hint = format!("`tidemill query --explain 'SELECT * FROM … ORDER BY {}'`", order_by_clause());
                        terminal::print_error(&Error::usage_with_hint(message, hint).into());
                        std::process::exit(2);
                    }
                    let hint = "GNU sort's options are of lines; of rows it is `:desc` behind a column, --memory, --threads, \
                                --output: `tidemill sort --by COLUMNS --help` has them all";
                    terminal::print_error(&Error::usage_with_hint(message, hint).into());
                    std::process::exit(2);
                }
                _ => exit_with_clap_error(&error, SortByArgs::command(), 2),
            }
        });
        return report_and_exit_code(verbs::sort_rows(args));
    }
    // SQL may begin with a comment, which looks like a flag; behind the end of a line it is none.
    let words = std::env::args_os().map(|word| match word.to_str() {
        Some(sql) if sql.starts_with("-- ") || sql.starts_with("--\n") => format!("\n{sql}").into(),
        _ => word,
    });
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| {
        let first = std::env::args().nth(1).unwrap_or_default();
        if error.kind() == ErrorKind::InvalidSubcommand && first.contains(' ') {
            let hint = "SQL is asked with `tidemill query \"SELECT …\"`";
            terminal::print_error(
                &Error::usage_with_hint(format!("there is no verb `{first}`"), hint).into(),
            );
            std::process::exit(2);
        }
        exit_with_clap_error(&error, Cli::command(), 1)
    });
    let performed = tracing_output::init_tracing_from_environment()
        .map_err(Into::into)
        .and_then(|()| verbs::run_verb(cli.verb));
    report_and_exit_code(performed)
}

/// Ends it where the words behind the first few are no command, or ask for help.
fn exit_with_clap_error(error: &clap::Error, mut command: Command, own_words: usize) -> ! {
    command.build();
    let words = std::env::args_os().skip(own_words);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(error) = usage_errors::explain_clap_error(error, &command, &words) {
        terminal::print_error(&error.into());
        std::process::exit(2);
    }
    // It repeats the word that it did not understand.
    let shown = error.render().to_string();
    if error.use_stderr() && redact_secrets(&shown) != shown {
        terminal::print_note(shown.trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// What was fetched and is to be kept on a disk has so long to get there when all else is done.
const CACHE_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The exit status; what went wrong is told.
fn report_and_exit_code(performed: anyhow::Result<verbs::VerbOutcome>) -> ExitCode {
    let error = performed.as_ref().err().and_then(|error| error.downcast_ref::<Error>());
    if !error.is_some_and(|error| error.class() == ErrorClass::Interrupted) {
        disk_cache::flush_disk_tiers(CACHE_FLUSH_TIMEOUT);
        disk_cache::take_warnings().iter().for_each(|warning| terminal::print_warning(warning));
    }
    match performed {
        Ok(verbs::VerbOutcome::Complete) => ExitCode::SUCCESS,
        Ok(verbs::VerbOutcome::Incomplete) => ExitCode::from(3),
        Ok(verbs::VerbOutcome::NegativeAnswer) => ExitCode::FAILURE,
        Err(error) => match error.downcast_ref::<Error>() {
            // The reader has what it wanted.
            Some(Error::ClosedPipe) => ExitCode::SUCCESS,
            known => {
                terminal::print_error(&error);
                ExitCode::from(match known.map(Error::class) {
                    Some(ErrorClass::Usage) => 2,
                    Some(ErrorClass::Interrupted) => 130,
                    _ => 1,
                })
            }
        },
    }
}

/// What `tidemill sort --by` is given, in SQL's words.
fn order_by_clause() -> String {
    let mut words = std::env::args_os().skip(2).map(|word| word.to_string_lossy().into_owned());
    let by = words.find_map(|word| match word.strip_prefix("--by") {
        Some("") => Some(None),
        Some(by) => by.strip_prefix('=').map(|by| Some(by.to_owned())),
        None => None,
    });
    let by = by.and_then(|by| by.or_else(|| words.next())).unwrap_or_default();
    let sql = [
        (":asc", " ASC"),
        (":desc", " DESC"),
        (":nulls-first", " NULLS FIRST"),
        (":nulls-last", " NULLS LAST"),
        (",", ", "),
    ];
    sql.iter().fold(by, |by, (word, of_sql)| by.replace(word, of_sql))
}

/// Returns true for a word such as `-1`, which is a value rather than a flag.
fn is_negative_number(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}
