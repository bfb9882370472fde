//! `sort`: sorts lines with GNU sort's options, and rows by their columns, in memory or on disk.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use tidemill_engine::jobs::RunDescription;
use tidemill_engine::run_handle::RunHandle;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{CancelFlag, Error, Query};
use tidemill_sort::cluster_cost_model::ClusterSortModel;
use tidemill_sort::gnu::{self, GnuSortCommand, GnuSortOptions, GnuSortStreams};

use super::query::begin_recorded;
use super::result_output::{CoverageDestination, SummaryDetail, write_result};
use super::work_with_progress::run_with_progress_until_cancelled;
use super::{VerbOutcome, print_paged};
use crate::args::SortByArgs;
use crate::terminal::{self, RunProgressBar};

/// Text after the help of line sorting.
const SORT_BY_HELP: &str = "
With --by COLUMNS the rows of tables are sorted, of any format, here or in a bucket:
  tidemill sort --by country,revenue:desc sales.csv -o sorted.parquet
`tidemill sort --by COLUMNS --help` has the options of that.
";

/// `tidemill sort WORD…`, with the words of GNU sort.
pub(crate) fn sort_lines(words: Vec<OsString>) -> anyhow::Result<VerbOutcome> {
    if let Some(model) = model_parameters(&words)? {
        let model =
            ClusterSortModel::parse(&model).map_err(|error| Error::usage(error.to_string()))?;
        print_paged(format!("{model}\n").as_bytes())?;
        return Ok(VerbOutcome::Complete);
    }
    let elsewhere = |word: &OsString| {
        let word = word.to_string_lossy();
        ["s3://", "http://", "https://"]
            .iter()
            .any(|scheme| word.starts_with(scheme))
            .then(|| word.into_owned())
    };
    if let Some(url) = words.iter().find_map(elsewhere) {
        return Err(Error::usage_with_hint(
            format!("`{url}`: lines are sorted of files on this machine"),
            "tidemill cat URL | tidemill sort; rows of tables are sorted wherever they are: tidemill sort --by COLUMNS URL",
        )
        .into());
    }
    let command = GnuSortOptions::parse(words);
    let command = command.map_err(|error| Error::usage_with_hint(error.message, error.hint))?;
    let is_help = matches!(command, GnuSortCommand::Help);
    let cancel = CancelFlag::new();
    terminal::watch_signals(&cancel)?;
    let outcome =
        run_with_progress_until_cancelled(&cancel, &mut RunProgressBar::disabled(), || {
            let mut io = GnuSortStreams::from_process();
            io.cancel = cancel.atomic_flag().into();
            gnu::run_gnu_sort(&command, &mut io).map_err(translate_gnu_sort_error)
        })?;
    if is_help {
        print_paged(SORT_BY_HELP.as_bytes())?;
    }
    Ok(match outcome {
        gnu::GnuSortOutcome::Disorder { .. } => VerbOutcome::NegativeAnswer,
        _ => VerbOutcome::Complete,
    })
}

/// Returns true if the words contain `--by`, which sorts rows of tables.
pub(crate) fn sorts_by_columns(words: &[OsString]) -> bool {
    let mut words = words.iter().map(|word| word.to_str().unwrap_or_default());
    words
        .by_ref()
        .take_while(|word| *word != "--")
        .any(|word| word == "--by" || word.starts_with("--by="))
}

/// `tidemill sort --by COLUMNS IN…`.
pub(crate) fn sort_rows(args: SortByArgs) -> anyhow::Result<VerbOutcome> {
    let asks_for_stats = args.source.read_ahead.stats;
    super::report_remote_reads_after(asks_for_stats, || run_row_sort(args))
}

fn run_row_sort(args: SortByArgs) -> anyhow::Result<VerbOutcome> {
    refuse_direction_argument(&args.by, &args.files)?;
    let mut inputs = args.files.into_iter();
    let url = inputs.next().unwrap_or_default();
    let source = SourceSpec { url, more_urls: inputs.collect(), ..args.source.to_source_spec()? };
    let mut sink = args.sink.to_sink_spec(None)?;
    sink.storage_options = source.storage_options.clone();
    let about = RunDescription {
        verb: "sort",
        mapper: Some(format!("ORDER BY {}", args.by)),
        sources: source.urls().cloned().collect(),
        output: Some(sink.url.clone()),
        ..RunDescription::default()
    };
    let query = Query::select_sorted(source, &args.by, args.limit)?;
    let query = Query { keeps_columns: sink.preserves_column_metadata(), ..query };
    let coverage = CoverageDestination::new(args.limits.coverage.as_deref(), Some(&sink.url))?;
    let (preparation, recorder) =
        begin_recorded(&args.limits.to_limits(), &Default::default(), about)?;
    let running =
        RunHandle::start_query(query, preparation.settings.clone())?.with_recorder(recorder);
    write_result(
        running,
        &preparation,
        &sink,
        &coverage,
        (SummaryDetail::OutputsAndCoverageForPeople, args.show.display_settings()),
    )
}

/// Refuses `--by amount desc FILE`, where the direction has become a file argument.
fn refuse_direction_argument(by: &str, files: &[String]) -> Result<(), Error> {
    let is_direction = |file: &&String| {
        ["asc", "desc"].iter().any(|word| file.eq_ignore_ascii_case(word))
            && !Path::new(file).exists()
    };
    let Some(direction) = files.iter().find(is_direction) else { return Ok(()) };
    let hint = match direction.eq_ignore_ascii_case("desc") {
        true => format!("the direction stands behind a colon: --by {by}:desc"),
        false => format!("ascending is the default: --by {by}"),
    };
    Err(Error::usage_with_hint(format!("no such file: `{direction}`"), hint))
}

/// Returns the parameters of `--model`, the cost model of a cluster sort.
fn model_parameters(words: &[OsString]) -> Result<Option<String>, Error> {
    let of = |word: &OsString| word.to_str().unwrap_or_default().to_owned();
    match words {
        [word, rest @ ..] if word == "--model" => {
            Ok(Some(rest.iter().map(of).collect::<Vec<_>>().join(",")))
        }
        [word] if of(word).starts_with("--model=") => {
            Ok(of(word).strip_prefix("--model=").map(str::to_owned))
        }
        _ if words.iter().any(|word| of(word).starts_with("--model")) => {
            Err(Error::usage_with_hint(
                "`--model` stands alone: it calculates, and sorts nothing",
                "tidemill sort --model records=1e9,size=100,drives=24",
            ))
        }
        _ => Ok(None),
    }
}

/// Translates an error of GNU sort. The status of all its errors is 2, as 1 means that a file is out of
/// order.
fn translate_gnu_sort_error(error: gnu::GnuSortError) -> Error {
    match error {
        gnu::GnuSortError::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe => {
            Error::ClosedPipe
        }
        gnu::GnuSortError::Sort(tidemill_sort::Error::Cancelled) => Error::Interrupted,
        gnu::GnuSortError::Io { action, path, source } => {
            Error::usage(Error::io(action, path, source).to_string())
        }
        other => Error::usage(other.to_string()),
    }
}
