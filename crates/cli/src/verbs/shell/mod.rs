//! The SQL shell, which `tidemill` without arguments starts on a terminal.
//!
//! - `statement_scanner`: statements, quotes and comments of the input
//! - `completer`: completion of words, columns and files
//!
//! A statement ends with `;`, and a command begins with `.`. The history is stored in the state folder,
//! except for lines with secrets of URLs. The next query can read the last result as `_`, up to a share of
//! the memory budget.

mod completer;
mod statement_scanner;

use std::io::IsTerminal;
use std::path::PathBuf;

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tidemill_engine::column_types::sql_type_name;
use tidemill_engine::error::redact_secrets;
use tidemill_engine::formats::Format;
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::jobs::RunDescription;
use tidemill_engine::run_handle::RunHandle;
use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::sink::{OutputFormat, SinkSpec};
use tidemill_engine::{CopyQuery, Error, Query, ResultCache, StateFolder, coverage};

use self::completer::ShellEditorHelper;
use super::query::begin_recorded;
use super::result_output::{
    CoverageDestination, ResultRetention, SummaryDetail, write_and_retain_result,
};
use super::{VerbOutcome, print_paged, schema_and_head};
use crate::args::{
    HeadArgs, ResultDisplayArgs, SchemaArgs, SchemaOutputFormat, SourceArgs, TableDisplayArgs,
};
use crate::terminal;

/// Table name of the last result.
pub(super) const LAST_RESULT_NAME: &str = "_";

/// Divisor of the memory budget that gives the maximum size of the retained last result.
const LAST_RESULT_BUDGET_DIVISOR: u64 = 8;

/// Maximum number of lines in the history.
const HISTORY_LINES_MAX: usize = 10_000;

/// Maximum number of files that `.tables` lists.
const LISTED_FILES_MAX: usize = 100;

const SHELL_COMMANDS: &[(&str, &str)] = &[
    (".help", "what stands here"),
    (".tables", "the last result, and the files of this folder that can be read"),
    (".schema FILE", "a file's columns and their types"),
    (".head FILE", "a file's first records"),
    (".rows all|N", "how many rows of a result are shown"),
    (".thousands on|off", "whether digits are grouped: 10,103,280"),
    (".quit", "leave, as Ctrl-D does"),
];

/// Returns true if standard input and output are a terminal.
pub(crate) fn has_interactive_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The state of a shell session.
struct ShellSession {
    display_args: ResultDisplayArgs,
    last_result: Option<ResultCache>,
    has_quit: bool,
}

/// Runs the shell until the user leaves it.
pub(crate) fn run_shell() -> anyhow::Result<VerbOutcome> {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor: Editor<ShellEditorHelper, FileHistory> = Editor::with_config(config)?;
    editor.set_max_history_size(HISTORY_LINES_MAX)?;
    editor.set_history_ignore_dups(true)?;
    editor.set_helper(Some(ShellEditorHelper::new()));
    let history = history_path();
    if let Some(path) = &history {
        // The file is missing in the first session.
        let _ = editor.load_history(path);
    }
    terminal::survive_signals();
    print_paged(
        format!("tidemill {}; .help says what there is\n", env!("CARGO_PKG_VERSION")).as_bytes(),
    )?;
    let mut shell = ShellSession {
        display_args: ResultDisplayArgs::default(),
        last_result: None,
        has_quit: false,
    };
    while !shell.has_quit {
        match editor.readline("tidemill> ") {
            Ok(text) => {
                // Lines with secrets are not stored, neither here nor in the job log.
                if !statement_scanner::is_blank(&text) && redact_secrets(&text) == text {
                    editor.add_history_entry(text.trim_end())?;
                    if let Some(path) = &history {
                        // Stored at once, so that closing the window loses nothing.
                        let _ = editor.append_history(path);
                    }
                }
                shell.execute_input(&text);
                if let Some(typing) = editor.helper_mut() {
                    typing.record_input(&text, shell.last_result.as_ref());
                }
            }
            // Ctrl-C discards the input.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(error)) => {
                return Err(Error::io("read", "the terminal", error).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(VerbOutcome::Complete)
}

/// Returns the path of the history; `None` without a state folder.
fn history_path() -> Option<PathBuf> {
    let (home, why_not) = StateFolder::open();
    if let Some(warning) = why_not {
        terminal::print_warning(&warning);
    }
    home.map(|home| home.path().join("shell-history"))
}

impl ShellSession {
    /// Executes an input, and prints errors.
    fn execute_input(&mut self, text: &str) {
        let command = text.trim().strip_prefix('.').or(statement_scanner::bare_word_command(text));
        if let Some(command) = command {
            if let Err(error) = self.run_command(command) {
                print_shell_error(&error);
            }
            return;
        }
        let (statements, rest) = statement_scanner::split_statements(text);
        for statement in statements.into_iter().chain([rest]) {
            if statement_scanner::is_blank(statement) {
                continue;
            }
            let done = self.run_statement(statement);
            terminal::clear_current_run();
            if let Err(error) = done {
                // The statements that follow may depend on the failed one.
                return print_shell_error(&error);
            }
        }
    }

    fn run_statement(&mut self, sql: &str) -> anyhow::Result<()> {
        let (sql, mut sink) = match CopyQuery::parse(sql)? {
            Some(CopyQuery { query_sql: query, sink }) => (query, sink),
            None => (sql.to_owned(), SinkSpec::new("-")),
        };
        let is_shown = sink.url == "-";
        let about = RunDescription {
            verb: "query",
            mapper: Some(sql.trim().to_owned()),
            output: Some(sink.url.clone()),
            ..RunDescription::default()
        };
        let (mut preparation, recorder) =
            begin_recorded(&ResourceLimits::default(), &ResourceLimits::default(), about)?;
        preparation.settings.max_bad = BadRecordLimit::Unlimited;
        let last = self.last_result.as_ref().and_then(|kept| kept.to_source(LAST_RESULT_NAME));
        let query = Query { sql, sources: last.into_iter().collect(), ..Query::default() };
        let running =
            RunHandle::start_query(query, preparation.settings.clone())?.with_recorder(recorder);
        if is_shown && sink.format.is_none() {
            sink.format = Some(OutputFormat::Text);
        }
        let mut kept = None;
        let bytes_max = preparation.settings.memory_bytes / LAST_RESULT_BUDGET_DIVISOR;
        let ended = write_and_retain_result(
            running,
            &preparation,
            &sink,
            &CoverageDestination::NotRequested,
            (SummaryDetail::OutputsAndCoverageForPeople, self.display_args.display_settings()),
            Some(ResultRetention { retained_result: &mut kept, bytes_max }),
        );
        // An interrupted result is not retained.
        let is_whole = match &ended {
            Ok(_) => true,
            Err(error) => matches!(error.downcast_ref(), Some(Error::BadRecords { .. })),
        };
        if let (true, Some(kept)) = (is_whole, kept) {
            if kept.is_too_large() {
                terminal::print_note(&format!(
                    "the result is larger than {} and not kept as {LAST_RESULT_NAME}",
                    coverage::format_decimal_bytes(bytes_max)
                ));
            }
            self.last_result = Some(kept);
        }
        ended.map(|_| ())
    }

    fn run_command(&mut self, command: &str) -> anyhow::Result<()> {
        let command = command.trim().trim_end_matches(';').trim_end();
        let (verb, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        match verb {
            "help" => print_help(),
            "quit" | "exit" => {
                self.has_quit = true;
                Ok(())
            }
            "tables" => self.list_tables(),
            "schema" => {
                if rest == LAST_RESULT_NAME {
                    return self.show_last_result_schema();
                }
                let args = SchemaArgs {
                    files: vec![file_argument("schema", rest)?],
                    check: false,
                    format: SchemaOutputFormat::Text,
                    source: SourceArgs::default(),
                };
                schema_and_head::show_schema(&args).map(|_| ())
            }
            "head" => {
                let args = HeadArgs {
                    files: vec![file_argument("head", rest)?],
                    rows: 10,
                    format: Some("text".to_owned()),
                    max_bad: None,
                    look: TableDisplayArgs {
                        thousands: self.display_args.look.thousands,
                        no_pager: false,
                    },
                    source: SourceArgs::default(),
                };
                let shown = schema_and_head::show_head(&args);
                terminal::clear_current_run();
                shown.map(|_| ())
            }
            "rows" => {
                let rows = crate::args::parse_displayed_rows(rest);
                let refused = |why: String| Error::usage(format!(".rows: `{rest}`: {why}"));
                self.display_args.rows = Some(rows.map_err(refused)?);
                Ok(())
            }
            "thousands" => {
                self.display_args.look.thousands = match rest {
                    "on" => true,
                    "off" => false,
                    other => {
                        let message = format!(".thousands is on or off, and not `{other}`");
                        return Err(Error::usage(message).into());
                    }
                };
                Ok(())
            }
            other => {
                let message = format!("there is no command `.{other}`");
                Err(Error::usage_with_hint(message, ".help lists them").into())
            }
        }
    }

    fn list_tables(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        match &self.last_result {
            Some(kept) if !kept.is_too_large() => {
                let (rows, columns) = (kept.row_count(), kept.schema().fields().len() as u64);
                text.push_str(&format!(
                    "{LAST_RESULT_NAME}  the last result: {} row{} of {} column{}\n",
                    coverage::format_grouped_digits(rows),
                    if rows == 1 { "" } else { "s" },
                    coverage::format_grouped_digits(columns),
                    if columns == 1 { "" } else { "s" },
                ));
            }
            _ => {}
        }
        let mut files: Vec<(String, u64)> = Vec::new();
        let entries = std::fs::read_dir(".").map_err(|error| Error::io("list", ".", error))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(known) = entry.metadata() else { continue };
            if known.is_file() && Format::from_path(&name).is_some() {
                files.push((name, known.len()));
            }
        }
        files.sort();
        let width = files.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, bytes) in files.iter().take(LISTED_FILES_MAX) {
            text.push_str(&format!("'{name}'{:1$}", "", width - name.chars().count()));
            text.push_str(&format!("  {}\n", coverage::format_decimal_bytes(*bytes)));
        }
        if files.len() > LISTED_FILES_MAX {
            text.push_str(&format!("… and {} more\n", files.len() - LISTED_FILES_MAX));
        }
        if text.is_empty() {
            text.push_str(
                "no file here can be read; a file of any folder stands in single quotes\n",
            );
        }
        Ok(print_paged(text.as_bytes())?)
    }

    fn show_last_result_schema(&self) -> anyhow::Result<()> {
        let Some(kept) = &self.last_result else {
            return Err(Error::usage(format!(
                "there is no result yet that `{LAST_RESULT_NAME}` could be"
            ))
            .into());
        };
        let fields = kept.schema().fields();
        let width = fields.iter().map(|field| field.name().chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for field in fields {
            let padding = width - field.name().chars().count();
            let (name, sql_type) = (field.name(), sql_type_name(field.data_type()));
            text.push_str(&format!("  {name}{:padding$}  {sql_type}\n", ""));
        }
        Ok(print_paged(text.as_bytes())?)
    }
}

fn print_help() -> anyhow::Result<()> {
    let width = SHELL_COMMANDS.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let mut text = String::from(
        "SQL ends with a semicolon; a file stands in single quotes where SQL has a table:\n  \
         SELECT count() FROM 'logs/*.json';\n_ is the last result:\n  \
         SELECT * FROM _ LIMIT 10;\nTab completes, Ctrl-C stops a query.\n\n",
    );
    for (command, what) in SHELL_COMMANDS {
        text.push_str(&format!("{command:width$}  {what}\n"));
    }
    Ok(print_paged(text.as_bytes())?)
}

/// Returns the file argument of a command, with or without the quotes that SQL needs.
fn file_argument(command: &str, rest: &str) -> Result<String, Error> {
    let quoted = rest.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match quoted.unwrap_or(rest) {
        "" => Err(Error::usage(format!(".{command} wants a file: .{command} logs.csv"))),
        // Standard input belongs to the shell.
        "-" => Err(Error::usage("standard input is the shell's own")),
        file => Ok(file.to_owned()),
    }
}

/// Prints an error; leaving a pager is none.
fn print_shell_error(error: &anyhow::Error) {
    match error.downcast_ref::<Error>() {
        Some(Error::ClosedPipe) => {}
        Some(Error::Interrupted) => terminal::print_note("interrupted"),
        _ => terminal::print_error(error),
    }
}
