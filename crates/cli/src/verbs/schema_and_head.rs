//! `schema` and `head`: columns and first rows of files.

use std::io::IsTerminal;

use serde_json::json;
use tidemill_engine::column_types::{quote_sql_name, sql_type_name};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::redaction::redact_url;
use tidemill_engine::run_handle::{RunHandle, prepare_run};
use tidemill_engine::sink::{OutputFormat, SinkSpec};
use tidemill_engine::source::{Source, SourceSpec, schema::schema_compatibility};
use tidemill_engine::{Error, NamedSource, Query, Result, coverage};

use super::result_output::{CoverageDestination, SummaryDetail, write_result};
use super::{VerbOutcome, print_paged};
use crate::args::{DisplayedRowsLimit, HeadArgs, SchemaArgs, SchemaOutputFormat};
use crate::terminal;

/// `tidemill schema FILE…`.
pub(super) fn show_schema(args: &SchemaArgs) -> anyhow::Result<VerbOutcome> {
    let defaults = args.source.to_source_spec()?;
    if args.check {
        return check_schema_compatibility(args, &defaults);
    }
    for url in &args.files {
        if args.format == SchemaOutputFormat::Rowfile {
            let spec = SourceSpec { url: url.clone(), ..defaults.clone() };
            let schema = schema_compatibility::read_schema(&spec).map_err(Error::from)?;
            print_paged(format!("{}\n", schema.to_json()).as_bytes())?;
            continue;
        }
        let source = Source::open(&SourceSpec { url: url.clone(), ..defaults.clone() });
        let source = source.map_err(Error::from)?;
        if let Some(warning) = source.warning() {
            terminal::print_warning(&warning);
        }
        let url = &redact_url(url);
        let text = match args.format {
            SchemaOutputFormat::Json => schema_json(url, &source)?,
            SchemaOutputFormat::Text | SchemaOutputFormat::Rowfile => schema_text(url, &source),
        };
        print_paged(text.as_bytes())?;
    }
    Ok(VerbOutcome::Complete)
}

/// `tidemill schema --check OLD NEW`.
fn check_schema_compatibility(
    args: &SchemaArgs,
    defaults: &SourceSpec,
) -> anyhow::Result<VerbOutcome> {
    let [old, new] = args.files.as_slice() else {
        return Err(Error::usage_with_hint(
            format!(
                "--check is of two files, and {} given",
                match args.files.len() {
                    1 => "one is".to_owned(),
                    count => format!("{count} are"),
                }
            ),
            "tidemill schema --check OLD NEW: does NEW's schema read OLD's data?",
        )
        .into());
    };
    let spec = |url: &String| SourceSpec { url: url.clone(), ..defaults.clone() };
    let conflicts =
        schema_compatibility::find_schema_conflicts(&spec(old), &spec(new)).map_err(Error::from)?;
    let (old, new) = (&redact_url(old), &redact_url(new));
    let text = match args.format {
        SchemaOutputFormat::Json => {
            let reasons = conflicts.iter();
            let reasons = reasons.map(|it| json!({"column": it.column, "reason": it.reason}));
            let described = json!({
                "old": old,
                "new": new,
                "reads": conflicts.is_empty(),
                "conflicts": reasons.collect::<Vec<_>>(),
            });
            format!("{described}\n")
        }
        _ if conflicts.is_empty() => format!("the schema of {new} reads the data of {old}\n"),
        _ => {
            let mut text = format!("the schema of {new} does not read the data of {old}:\n");
            for conflict in &conflicts {
                text.push_str(&format!("  column `{}`: {}\n", conflict.column, conflict.reason));
            }
            text
        }
    };
    print_paged(text.as_bytes())?;
    Ok(if conflicts.is_empty() { VerbOutcome::Complete } else { VerbOutcome::NegativeAnswer })
}

fn schema_text(url: &str, source: &Source) -> String {
    let files = source.files().len() as u64;
    let mut text = format!("{url}: {}", source.format());
    if let Some(written) = source.describe_detected_dialect() {
        text.push_str(&format!(" {written}"));
    }
    if files != 1 {
        text.push_str(&format!(", {} files", coverage::format_grouped_digits(files)));
    }
    if source.layout_count() > 1 {
        let layouts = coverage::format_grouped_digits(source.layout_count() as u64);
        text.push_str(&format!(" with {layouts} sets of columns"));
    }
    if !source.is_stdin() {
        text.push_str(&format!(", {}", coverage::format_decimal_bytes(source.total_bytes())));
    }
    text.push('\n');
    let fields = source.schema().fields();
    let names: Vec<_> = fields.iter().map(|field| quote_sql_name(field.name())).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (column, (field, name)) in fields.iter().zip(&names).enumerate() {
        let padding = " ".repeat(width.saturating_sub(name.chars().count()));
        text.push_str(&format!("  {name}{padding}  {}", sql_type_name(field.data_type())));
        if let Some(refusal) = unreadable_column_reason(source, column) {
            text.push_str(&format!("  (not readable: {refusal})"));
        }
        text.push('\n');
    }
    text
}

/// Returns the reason why a column cannot be read, without the hint.
fn unreadable_column_reason(source: &Source, column: usize) -> Option<String> {
    let message = Error::from(source.column_error(column)?).to_string();
    Some(message.lines().next().unwrap_or_default().to_owned())
}

fn schema_json(url: &str, source: &Source) -> anyhow::Result<String> {
    let columns = source.schema().fields().iter().enumerate().map(|(index, field)| {
        let mut column = json!({
            "name": field.name(),
            "type": sql_type_name(field.data_type()),
            "arrow": field.data_type().to_string(),
        });
        if let Some(refusal) = unreadable_column_reason(source, index) {
            column["refusal"] = refusal.into();
        }
        column
    });
    let mut described = json!({
        "url": url,
        "format": source.format().name(),
        "files": source.files().len(),
        "bytes": source.total_bytes(),
        "layouts": source.layout_count(),
        "columns": columns.collect::<Vec<_>>(),
    });
    if source.format().is_delimited() {
        let dialect = source.dialect();
        let text = |byte: u8| String::from(char::from(byte));
        described["delimiter"] = text(dialect.delimiter).into();
        described["quote"] = dialect.quote.map(text).into();
        described["escape"] = dialect.escape.map(text).into();
    }
    Ok(format!("{}\n", serde_json::to_string(&described)?))
}

/// `tidemill head FILE…`.
pub(super) fn show_head(args: &HeadArgs) -> anyhow::Result<VerbOutcome> {
    let format = match &args.format {
        Some(format) => format.parse().map_err(Error::from)?,
        None if std::io::stdout().is_terminal() => OutputFormat::Text,
        None => OutputFormat::Csv,
    };
    check_head_format(format, args.files.len())?;
    let defaults = args.source.to_source_spec()?;
    let mut preparation = prepare_run(&ResourceLimits::default(), &ResourceLimits::default())?;
    // Set here and not as a limit, so that `head` writes no copies of rejected records.
    if let Some(max_bad) = &args.max_bad {
        preparation.settings.max_bad = max_bad.parse()?;
    }
    terminal::watch_signals(&preparation.settings.cancel)?;
    // The rows come from the start of the input; more threads would only read ahead.
    preparation.settings.threads = 1;
    let mut outcome = VerbOutcome::Complete;
    for (position, url) in args.files.iter().enumerate() {
        if args.files.len() > 1 && format == OutputFormat::Text {
            let gap = if position > 0 { "\n" } else { "" };
            print_paged(format!("{gap}==> {} <==\n", redact_url(url)).as_bytes())?;
        }
        let source = NamedSource {
            name: "source".to_owned(),
            spec: SourceSpec { url: url.clone(), ..defaults.clone() },
        };
        let sql = format!("SELECT * FROM source LIMIT {}", args.rows);
        let query = Query { sql, sources: vec![source], ..Query::default() };
        let mut sink = SinkSpec::new("-");
        sink.format = Some(format);
        let running = RunHandle::start_query(query, preparation.settings.clone())?;
        let coverage = CoverageDestination::new(None, None)?;
        let how = (SummaryDetail::FaultsOnly, args.look.display_settings(DisplayedRowsLimit::All));
        if let VerbOutcome::Incomplete = write_result(running, &preparation, &sink, &coverage, how)?
        {
            outcome = VerbOutcome::Incomplete;
        }
    }
    Ok(outcome)
}

fn check_head_format(format: OutputFormat, files: usize) -> Result<()> {
    match format {
        OutputFormat::Text | OutputFormat::Json => Ok(()),
        OutputFormat::Csv | OutputFormat::Tsv if files == 1 => Ok(()),
        OutputFormat::Csv | OutputFormat::Tsv => Err(Error::usage_with_hint(
            "the first rows of several files do not make one table",
            "give --format text or json, or one pattern in quotes",
        )),
        other => Err(Error::usage_with_hint(
            format!("the first rows are not shown as `{}`", other.name()),
            "tidemill query writes files of that format",
        )),
    }
}
