//! The `tidemill` command line: turns arguments into requests, and errors into exit statuses.
//!
//! - `args`: the flags and arguments of every verb
//! - `verbs`: the verbs
//! - `terminal`: progress bar, messages on standard error, and signals
//! - `stdout_display`: terminal size, colours and paging of standard output
//! - `allocator_tuning`: glibc's thresholds for freed memory
//! - `reference_page`: the reference page and the test that it is current
//! - `usage_errors`: messages for unknown verbs, flags and values

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
    // Without arguments a person at a terminal gets the shell; a program gets the help.
    if std::env::args_os().len() == 1 && verbs::is_shell_possible() {
        let spoken = tracing_output::init_tracing_from_environment()
            .map_err(Into::into)
            .and_then(|()| verbs::run_shell());
        return report_and_exit_code(spoken);
    }
    // `sort` takes GNU sort's options, which clap cannot parse.
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
    // SQL may begin with a comment, which clap would take for a flag; a line feed in front prevents that.
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

/// Exits with a message for arguments that clap refuses, or with the help that they request.
fn exit_with_clap_error(error: &clap::Error, mut command: Command, own_words: usize) -> ! {
    command.build();
    let words = std::env::args_os().skip(own_words);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(error) = usage_errors::explain_clap_error(error, &command, &words) {
        terminal::print_error(&error.into());
        std::process::exit(2);
    }
    // Clap's message repeats the refused word, which may hold a secret.
    let shown = error.render().to_string();
    if error.use_stderr() && redact_secrets(&shown) != shown {
        terminal::print_note(shown.trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Maximum time at exit for writing fetched blocks to the disk cache.
const CACHE_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the exit status, and prints the error if there is one.
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
            // The reader closed the pipe because it has enough.
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

/// Returns the columns of `tidemill sort --by` as an ORDER BY list.
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

/// Returns true for a word such as `-1`, which is a value and not a flag.
fn is_negative_number(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}
