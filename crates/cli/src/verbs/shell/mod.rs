//! `tidemill` alone on a terminal: a shell for SQL over files.
//!
//! - `typed`: what has been typed? `completer`: what could it be going on with?
//!
//! A statement ends with `;`, and a command begins with `.`. What was typed is kept in the state folder, but for lines
//! with secrets of URLs in them. The last result is `_` to the next query, up to a share of the memory budget.

mod completer;
mod typed;

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

use self::completer::Typing;
use super::output::{CoverageSink, Keep, Say, finish_keeping};
use super::query::begin;
use super::{Outcome, look, print};
use crate::args::{HeadArgs, LookArgs, SchemaArgs, SchemaForm, ShowArgs, SourceArgs};
use crate::terminal;

/// What the last result is called.
pub(super) const LAST: &str = "_";

/// One part in so many of the budget is for the last result.
const KEPT_SHARE: u64 = 8;

/// So many lines are remembered.
const HISTORY: usize = 10_000;

/// Of the files of a folder so many are shown.
const FILES_SHOWN: usize = 100;

const COMMANDS: &[(&str, &str)] = &[
    (".help", "what stands here"),
    (".tables", "the last result, and the files of this folder that can be read"),
    (".schema FILE", "a file's columns and their types"),
    (".head FILE", "a file's first records"),
    (".rows all|N", "how many rows of a result are shown"),
    (".thousands on|off", "whether digits are grouped: 10,103,280"),
    (".quit", "leave, as Ctrl-D does"),
];

/// Whether there is somebody to talk to.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// A session.
struct Shell {
    show: ShowArgs,
    last: Option<ResultCache>,
    is_left: bool,
}

/// `tidemill` alone.
pub(crate) fn shell() -> anyhow::Result<Outcome> {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor: Editor<Typing, FileHistory> = Editor::with_config(config)?;
    editor.set_max_history_size(HISTORY)?;
    editor.set_history_ignore_dups(true)?;
    editor.set_helper(Some(Typing::new()));
    let history = history();
    if let Some(path) = &history {
        // The first session has none.
        let _ = editor.load_history(path);
    }
    terminal::keep_shell();
    print(
        format!("tidemill {}; .help says what there is\n", env!("CARGO_PKG_VERSION")).as_bytes(),
    )?;
    let mut shell = Shell { show: ShowArgs::default(), last: None, is_left: false };
    while !shell.is_left {
        match editor.readline("tidemill> ") {
            Ok(text) => {
                // A line that holds a secret is gone with the session, as the job log has none.
                if !typed::is_blank(&text) && redact_secrets(&text) == text {
                    editor.add_history_entry(text.trim_end())?;
                    if let Some(path) = &history {
                        // At once: whoever closes the window wants it, too.
                        let _ = editor.append_history(path);
                    }
                }
                shell.perform(&text);
                if let Some(typing) = editor.helper_mut() {
                    typing.learn(&text, shell.last.as_ref());
                }
            }
            // What was typed is thrown away.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(error)) => {
                return Err(Error::io("read", "the terminal", error).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Outcome::Complete)
}

/// Where lines are remembered; none without a state folder.
fn history() -> Option<PathBuf> {
    let (home, why_not) = StateFolder::open();
    if let Some(warning) = why_not {
        terminal::warn(&warning);
    }
    home.map(|home| home.path().join("shell-history"))
}

impl Shell {
    /// Does what was typed; what goes wrong is told.
    fn perform(&mut self, text: &str) {
        let command = text.trim().strip_prefix('.').or(typed::command(text));
        if let Some(command) = command {
            if let Err(error) = self.command(command) {
                tell(&error);
            }
            return;
        }
        let (statements, rest) = typed::statements(text);
        for statement in statements.into_iter().chain([rest]) {
            if typed::is_blank(statement) {
                continue;
            }
            let done = self.query(statement);
            terminal::nothing_runs();
            if let Err(error) = done {
                // What follows was meant for a session in which it had gone well.
                return tell(&error);
            }
        }
    }

    fn query(&mut self, sql: &str) -> anyhow::Result<()> {
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
            begin(&ResourceLimits::default(), &ResourceLimits::default(), about)?;
        preparation.settings.max_bad = BadRecordLimit::Unlimited;
        let last = self.last.as_ref().and_then(|kept| kept.to_source(LAST));
        let query = Query { sql, sources: last.into_iter().collect(), ..Query::default() };
        let running =
            RunHandle::start_query(query, preparation.settings.clone())?.with_recorder(recorder);
        if is_shown && sink.format.is_none() {
            sink.format = Some(OutputFormat::Text);
        }
        let mut kept = None;
        let bytes_max = preparation.settings.memory_bytes / KEPT_SHARE;
        let ended = finish_keeping(
            running,
            &preparation,
            &sink,
            &CoverageSink::Nowhere,
            (Say::Coverage, self.show.showing()),
            Some(Keep { kept: &mut kept, bytes_max }),
        );
        // A result that was stopped half way is none.
        let is_whole = match &ended {
            Ok(_) => true,
            Err(error) => matches!(error.downcast_ref(), Some(Error::BadRecords { .. })),
        };
        if let (true, Some(kept)) = (is_whole, kept) {
            if kept.is_too_large() {
                terminal::note(&format!(
                    "the result is larger than {} and not kept as {LAST}",
                    coverage::format_decimal_bytes(bytes_max)
                ));
            }
            self.last = Some(kept);
        }
        ended.map(|_| ())
    }

    fn command(&mut self, command: &str) -> anyhow::Result<()> {
        let command = command.trim().trim_end_matches(';').trim_end();
        let (verb, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        match verb {
            "help" => help(),
            "quit" | "exit" => {
                self.is_left = true;
                Ok(())
            }
            "tables" => self.tables(),
            "schema" => {
                if rest == LAST {
                    return self.schema_of_last();
                }
                let args = SchemaArgs {
                    files: vec![file("schema", rest)?],
                    check: false,
                    format: SchemaForm::Text,
                    source: SourceArgs::default(),
                };
                look::schema(&args).map(|_| ())
            }
            "head" => {
                let args = HeadArgs {
                    files: vec![file("head", rest)?],
                    rows: 10,
                    format: Some("text".to_owned()),
                    max_bad: None,
                    look: LookArgs { thousands: self.show.look.thousands, no_pager: false },
                    source: SourceArgs::default(),
                };
                let shown = look::head(&args);
                terminal::nothing_runs();
                shown.map(|_| ())
            }
            "rows" => {
                let rows = crate::args::rows_shown(rest);
                let refused = |why: String| Error::usage(format!(".rows: `{rest}`: {why}"));
                self.show.rows = Some(rows.map_err(refused)?);
                Ok(())
            }
            "thousands" => {
                self.show.look.thousands = match rest {
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

    fn tables(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        match &self.last {
            Some(kept) if !kept.is_too_large() => {
                let (rows, columns) = (kept.row_count(), kept.schema().fields().len() as u64);
                text.push_str(&format!(
                    "{LAST}  the last result: {} row{} of {} column{}\n",
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
        for (name, bytes) in files.iter().take(FILES_SHOWN) {
            text.push_str(&format!("'{name}'{:1$}", "", width - name.chars().count()));
            text.push_str(&format!("  {}\n", coverage::format_decimal_bytes(*bytes)));
        }
        if files.len() > FILES_SHOWN {
            text.push_str(&format!("… and {} more\n", files.len() - FILES_SHOWN));
        }
        if text.is_empty() {
            text.push_str(
                "no file here can be read; a file of any folder stands in single quotes\n",
            );
        }
        Ok(print(text.as_bytes())?)
    }

    fn schema_of_last(&self) -> anyhow::Result<()> {
        let Some(kept) = &self.last else {
            return Err(
                Error::usage(format!("there is no result yet that `{LAST}` could be")).into()
            );
        };
        let fields = kept.schema().fields();
        let width = fields.iter().map(|field| field.name().chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for field in fields {
            let padding = width - field.name().chars().count();
            let (name, sql_type) = (field.name(), sql_type_name(field.data_type()));
            text.push_str(&format!("  {name}{:padding$}  {sql_type}\n", ""));
        }
        Ok(print(text.as_bytes())?)
    }
}

fn help() -> anyhow::Result<()> {
    let width = COMMANDS.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let mut text = String::from(
        "SQL ends with a semicolon; a file stands in single quotes where SQL has a table:\n  \
         SELECT count() FROM 'logs/*.json';\n_ is the last result:\n  \
         SELECT * FROM _ LIMIT 10;\nTab completes, Ctrl-C stops a query.\n\n",
    );
    for (command, what) in COMMANDS {
        text.push_str(&format!("{command:width$}  {what}\n"));
    }
    Ok(print(text.as_bytes())?)
}

/// The file that a command is about, with or without the quotes that SQL wants.
fn file(command: &str, rest: &str) -> Result<String, Error> {
    let quoted = rest.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match quoted.unwrap_or(rest) {
        "" => Err(Error::usage(format!(".{command} wants a file: .{command} logs.csv"))),
        // Where the shell reads, nobody else can.
        "-" => Err(Error::usage("standard input is the shell's own")),
        file => Ok(file.to_owned()),
    }
}

/// What went wrong; that a pager was left is nothing.
fn tell(error: &anyhow::Error) {
    match error.downcast_ref::<Error>() {
        Some(Error::ClosedPipe) => {}
        Some(Error::Interrupted) => terminal::note("interrupted"),
        _ => terminal::complain(error),
    }
}
