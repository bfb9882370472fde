//! Bindings between the `tidemill` Python package and the engine; they contain no logic.
//!
//! - `options`: options that arrive as dictionaries
//! - `interruptible_wait`: waits without the interpreter's lock, with signals and progress
//! - `result`: rows of a run as Arrow batches and streams
//! - `object_sources`: tables and streams of Python as sources, and formats that Python functions read and
//!   write
//! - `type_inference`: tables of Python objects
//! - `parameters`: values of SQL parameters
//! - `values`: conversion of Arrow values to Python objects
//! - `ipc`: rows and columns as bytes for pickling
//! - `arrow_import`: safe import of Arrow arrays and streams of other libraries
//! - `convert`: conversion, sorting, checks and salvage of files
//! - `id_file_sets`: set operations on files of ids
//! - `line_sorting`: GNU sort
//! - `file_operations`: listing and copying of files and objects
//! - `file_access`: reading of an open file or object
//! - `column_import`: columns of values from Arrow and NumPy
//! - `value_hashing`: hashes of Python objects in sketches
//! - `sketches`: HyperLogLog sketches
//! - `ids`: exact sets of ids
//! - `rowfile`: reading and writing of rowfiles
//! - `workers`: tasks for workers elsewhere, the worker itself, and the master's answers
//! - `process_bound`: values that only their own process may use after a fork
//! - `errors`: translation of errors to Python exceptions
//!
//! Options arrive validated by the Python package. Dictionaries of Python (the coverage, a job, a plan) cross
//! as JSON text.

mod arrow_import;
mod column_import;
mod convert;
mod errors;
mod file_access;
mod file_operations;
mod id_file_sets;
mod ids;
mod interruptible_wait;
mod ipc;
mod line_sorting;
mod object_sources;
mod options;
mod parameters;
mod process_bound;
mod result;
mod rowfile;
mod sketches;
mod type_inference;
mod value_hashing;
mod values;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidemill_engine::explanation::Explanation;
use tidemill_engine::filter_program::FilterProgram;
use tidemill_engine::job::{Job, ResourceLimits};
use tidemill_engine::jobs::{
    self, JobLog, LOG_BYTES_MAX_DEFAULT, RunDescription, RunFilter, TimePeriod,
};
use tidemill_engine::posted_query::PostedQuery;
use tidemill_engine::posted_query::master_client::MasterClient;
use tidemill_engine::remote::{self, ReadStats};
use tidemill_engine::run_handle::{
    PreparedRun, RunHandle, prepare_run, resolve_priority, write_to_sink,
};
use tidemill_engine::sink::SinkSpec;
use tidemill_engine::source::programs::companion_files::ProgramFiles;
use tidemill_engine::source::{Source, SourceSpec, standard_input};
use tidemill_engine::{
    CancelFlag, ClusterSpec, CopyQuery, Coverage, Error, NamedSource, PartialTableMerge, Query,
    QueryPlan, RepeatedRunPolicy, Result, RunSettings, StateFolder, TurboSettings, memory_budget,
    program_files,
};

use crate::errors::{issue_warning, to_exception};
use crate::interruptible_wait::{ProgressDisplay, SignalWaiter, run_on_thread};
use crate::object_sources::NamedObject;
use crate::options::{JobText, LimitOptions, OnOptions, SinkOptions, SourceOptions, TurboOptions};
use crate::parameters::{NamedPythonParameter, into_engine_parameters};
use crate::result::{RawAnswers, RawResult, RawSchema, coverage_json};
use crate::workers::{RawAnswering, RawWorker};

/// Name of this interface in the job log.
const JOB_LOG_INTERFACE: &str = "python";

/// The summary of a run that wrote files.
#[pyclass(frozen, get_all, module = "tidemill._tidemill")]
struct RawWritten {
    files: u64,
    rows: u64,
    bytes: u64,
    paths: Vec<String>,
    root: String,
    coverage: String,
    coverage_line: String,
    stats: Py<PyDict>,
}

/// Format, columns and size of files, found before a query.
#[pyclass(frozen, get_all, module = "tidemill._tidemill")]
struct RawSource {
    schema: Py<RawSchema>,
    format: String,
    files: usize,
    /// `None` for standard input.
    bytes: Option<u64>,
}

/// Converts objects to sources.
fn object_sources(py: Python<'_>, objects: Vec<NamedObject>) -> PyResult<Vec<NamedSource>> {
    let named = objects.into_iter().map(|object| {
        let (name, spec) = object.into_named_source(py)?;
        Ok(NamedSource { name, spec })
    });
    named.collect()
}

/// Answers SQL over files and objects.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what Python gives by name")]
fn query<'py>(
    py: Python<'py>,
    sql: String,
    given: Vec<NamedPythonParameter>,
    source: SourceOptions,
    sink: SinkOptions,
    limits: LimitOptions,
    turbo: TurboOptions,
    progressive: bool,
    objects: Vec<NamedObject>,
    on: OnOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let began = Instant::now();
    let sources = object_sources(py, objects)?;
    // The job log records the statement without its values, which may be confidential.
    let about =
        RunDescription { verb: "query", mapper: Some(sql.clone()), ..RunDescription::default() };
    let (query, sink, master) = py
        .detach(|| -> Result<_> {
            let query = Query { sql, sources, ..Query::default() };
            let (query, copy) =
                split_copy(query.with_parameters(&into_engine_parameters(given)?)?)?;
            if progressive && copy.is_some() {
                return Err(Error::usage_with_hint(
                    "COPY writes one result, and `progressive` gives the answers before it",
                    "leave `progressive` out, or the query alone: SELECT …",
                ));
            }
            let turbo = turbo.with_job_defaults(&TurboSettings::default(), began)?;
            let files = source.program_files(&limits)?;
            let mut defaults = source.into_source_spec(String::new())?;
            let mut sink = match &copy {
                Some(copy) => sink.with_copy_defaults(copy)?,
                None => sink.with_job_defaults(None)?,
            };
            let master = on.named_master()?;
            program_files::attach_program_files(files.as_ref(), &mut defaults.filter_program);
            let of_sink = give_files_to_sink(files.as_ref(), sink.as_mut());
            program_files::check_files_have_a_program(
                files.as_ref(),
                &[defaults.filter_program.as_ref(), of_sink],
            )?;
            Ok((
                on.apply_to_query(Query { file_defaults: defaults, turbo, ..query })?,
                sink,
                master,
            ))
        })
        .map_err(|error| to_exception(py, error))?;
    match progressive {
        true => start_watched_query(py, (query, master), limits, about),
        false => run_query(py, (query, master), sink, limits, &ResourceLimits::default(), about),
    }
}

/// Splits a `COPY … TO` into its query and output; returns every other query as it is.
fn split_copy(mut query: Query) -> Result<(Query, Option<SinkSpec>)> {
    let copy = CopyQuery::parse(&query.sql)?;
    let sink = copy.map(|CopyQuery { query_sql: sql, sink }| {
        query.sql = sql;
        sink
    });
    Ok((query, sink))
}

/// Returns true if a text is a `COPY … TO`, which writes files itself.
#[pyfunction]
fn is_copy(py: Python<'_>, sql: &str) -> bool {
    // A syntax error is raised when the statement runs.
    py.detach(|| !matches!(CopyQuery::parse(sql), Ok(None)))
}

/// Reads columns of files, in the order of the input.
#[pyfunction]
#[pyo3(signature = (url, columns, condition, source, limits))]
fn read_text<'py>(
    py: Python<'py>,
    url: String,
    columns: Option<Vec<String>>,
    condition: Option<String>,
    source: SourceOptions,
    limits: LimitOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let sources = vec![url.clone()];
    let query = py
        .detach(|| {
            Query::select_columns(
                source.into_source_spec(url)?,
                columns.as_deref(),
                condition.as_deref(),
            )
        })
        .map_err(|error| to_exception(py, error))?;
    let mapper = Some(query.sql.clone());
    let about = RunDescription { verb: "read_text", mapper, sources, ..RunDescription::default() };
    run_query(py, (query, None), None, limits, &ResourceLimits::default(), about)
}

/// Returns the first rows of files. The job log does not record this.
#[pyfunction]
fn head<'py>(
    py: Python<'py>,
    url: String,
    rows: u64,
    source: SourceOptions,
    limits: LimitOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let (limits, display) = limits.into_limits_and_display();
    let prepared = py.detach(|| -> Result<_> {
        let source = NamedSource { name: "source".to_owned(), spec: source.into_source_spec(url)? };
        let sql = format!("SELECT * FROM source LIMIT {rows}");
        let max_bad = limits.max_bad.clone();
        let limits = ResourceLimits { max_bad: None, ..limits };
        let mut preparation = prepare_run(&limits, &ResourceLimits::default())?;
        // Set here and not as a limit, so that no copies of rejected records are written.
        if let Some(max_bad) = max_bad {
            preparation.settings.max_bad = max_bad.parse()?;
        }
        // The rows come from the start of the input; more threads would only read ahead.
        preparation.settings.threads = 1;
        Ok((Query { sql, sources: vec![source], ..Query::default() }, preparation))
    });
    let (query, preparation) = prepared.map_err(|error| to_exception(py, error))?;
    let begun = StartedRun::new(py, preparation, None, display, |settings| {
        RunHandle::start_query(query, settings)
    })?;
    begun.into_result(py)
}

/// Gives files to a sink's program, and returns that program.
fn give_files_to_sink<'a>(
    files: Option<&Arc<ProgramFiles>>,
    sink: Option<&'a mut SinkSpec>,
) -> Option<&'a FilterProgram> {
    let sink = sink?;
    program_files::attach_program_files(files, &mut sink.exec);
    sink.exec.as_ref()
}

/// Gives a job's files to all its programs, and returns the destination of its result.
fn prepare_job_and_sink(
    job: &mut Job,
    sink: SinkOptions,
    limits: &ResourceLimits,
) -> Result<Option<SinkSpec>> {
    let files = job.attach_program_files(limits)?;
    let mut sink = sink.with_job_defaults(job.sink.as_ref())?;
    let of_sink = give_files_to_sink(files.as_ref(), sink.as_mut());
    let programs = job.source_programs().chain([of_sink]).collect::<Vec<_>>();
    program_files::check_files_have_a_program(files.as_ref(), &programs)?;
    Ok(sink)
}

/// Runs a job.
#[pyfunction]
fn run<'py>(
    py: Python<'py>,
    mut job: JobText,
    sink: SinkOptions,
    limits: LimitOptions,
    turbo: TurboOptions,
    on: OnOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let began = Instant::now();
    let given = job.take_object_sources(py)?;
    let mut job = run_on_thread(py, CancelFlag::new(), move || job.parse_job(given))?;
    let turbo =
        turbo.with_job_defaults(&job.turbo, began).map_err(|error| to_exception(py, error))?;
    let sink = prepare_job_and_sink(&mut job, sink, &limits.spill_folder_limits())
        .map_err(|error| to_exception(py, error))?;
    let output = sink.as_ref().map(|sink| sink.url.clone());
    let master = on.named_master().map_err(|error| to_exception(py, error))?;
    let query = on
        .apply_to_query(Query { turbo, ..job.to_query() })
        .map_err(|error| to_exception(py, error))?;
    run_query(py, (query, master), sink, limits, &job.limits, job.describe_run(output))
}

/// Runs a job up to its tables, and writes these as a partial table.
#[pyfunction]
fn run_partial(
    py: Python<'_>,
    mut job: JobText,
    out: PathBuf,
    overwrite: bool,
    limits: LimitOptions,
    turbo: TurboOptions,
    on: OnOptions,
) -> PyResult<RawWritten> {
    let began = Instant::now();
    let given = job.take_object_sources(py)?;
    let mut job = run_on_thread(py, CancelFlag::new(), move || job.parse_job(given))?;
    let turbo =
        turbo.with_job_defaults(&job.turbo, began).map_err(|error| to_exception(py, error))?;
    let checked = job.attach_program_files(&limits.spill_folder_limits()).and_then(|files| {
        program_files::check_files_have_a_program(
            files.as_ref(),
            &job.source_programs().collect::<Vec<_>>(),
        )
    });
    checked.map_err(|error| to_exception(py, error))?;
    let about = job.describe_run(Some(out.display().to_string()));
    let master = on.named_master().map_err(|error| to_exception(py, error))?;
    let query = on
        .apply_to_query(Query { turbo, ..job.to_query() })
        .map_err(|error| to_exception(py, error))?;
    let priority = limits.priority_of(&job.limits).map_err(|error| to_exception(py, error))?;
    write_partial_table(
        py,
        limits,
        &job.limits,
        about,
        &out.clone(),
        move |PartialTableRun { id, settings }| {
            let Some(master) = master else {
                let cancel = settings.cancel.clone();
                return RunHandle::start_without_rows(cancel, move || {
                    QueryPlan::new(&query, &settings)?.write_partial_table(&out, overwrite, &id)
                });
            };
            let question = PostedQuery::new("run", &query.sql, &query, &settings, priority)?;
            RunHandle::start_posted_partial_table(master, question, settings, (out, overwrite, id))
        },
    )
}

/// Returns the folder of Tidemill's state, and creates it if it is missing; `None` if there can be none.
#[pyfunction]
fn state_folder() -> Option<PathBuf> {
    StateFolder::open().0.map(|home| home.path().to_owned())
}

/// Returns a memory size in bytes: `512M`, `2GiB`, `50%`.
#[pyfunction]
fn memory_bytes(py: Python<'_>, size: &str) -> PyResult<u64> {
    memory_budget::resolve_memory_budget(Some(size), None).map_err(|error| to_exception(py, error))
}

/// Merges partial tables and finishes them.
#[pyfunction]
fn merge<'py>(
    py: Python<'py>,
    partials: Vec<PathBuf>,
    allow_repeats: bool,
    sink: SinkOptions,
    limits: LimitOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let sink = sink.with_job_defaults(None).map_err(|error| to_exception(py, error))?;
    let about = RunDescription::for_merge(&partials, sink.as_ref().map(|sink| sink.url.clone()));
    let begin =
        move |settings| RunHandle::start_merge(partials, repeats_policy(allow_repeats), settings);
    run_or_write(py, sink, limits, &ResourceLimits::default(), about, begin)
}

fn repeats_policy(are_allowed: bool) -> RepeatedRunPolicy {
    if are_allowed { RepeatedRunPolicy::Allow } else { RepeatedRunPolicy::Refuse }
}

/// Merges partial tables into one.
#[pyfunction]
fn merge_partial(
    py: Python<'_>,
    partials: Vec<PathBuf>,
    allow_repeats: bool,
    out: PathBuf,
    overwrite: bool,
    limits: LimitOptions,
) -> PyResult<RawWritten> {
    let about = RunDescription::for_merge(&partials, Some(out.display().to_string()));
    write_partial_table(
        py,
        limits,
        &ResourceLimits::default(),
        about,
        &out.clone(),
        move |PartialTableRun { id, settings }| {
            let cancel = settings.cancel.clone();
            RunHandle::start_without_rows(cancel, move || {
                let merge = PartialTableMerge::open_with_repeat_policy(
                    &partials,
                    repeats_policy(allow_repeats),
                    &settings,
                )?;
                merge.write_partial_table(&out, overwrite, &id)
            })
        },
    )
}

/// Returns the columns, format and size of files.
#[pyfunction]
fn schema(py: Python<'_>, url: String, source: SourceOptions) -> PyResult<RawSource> {
    let cancel = CancelFlag::new();
    let flag = cancel.clone();
    let source = run_on_thread(py, cancel, move || {
        Ok(Source::open_with_stdin(&source.into_source_spec(url)?, standard_input(), &flag)?)
    })?;
    Ok(RawSource {
        schema: Py::new(py, RawSchema { schema: source.schema().clone() })?,
        format: source.format().to_string(),
        files: source.files().len(),
        bytes: (!source.is_stdin()).then(|| source.total_bytes()),
    })
}

/// Returns the plan of SQL as text and as JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what Python gives by name")]
fn explain_query(
    py: Python<'_>,
    sql: String,
    given: Vec<NamedPythonParameter>,
    source: SourceOptions,
    limits: LimitOptions,
    turbo: TurboOptions,
    objects: Vec<NamedObject>,
    cluster: Option<String>,
    on: OnOptions,
) -> PyResult<(String, String)> {
    let began = Instant::now();
    let sources = object_sources(py, objects)?;
    let cluster = cluster.as_deref().map(ClusterSpec::parse).transpose();
    let cluster = cluster.map_err(|error| to_exception(py, error))?;
    let files = source.program_files(&limits).map_err(|error| to_exception(py, error))?;
    explain_plan(py, limits, cluster, on, move || {
        let turbo = turbo.with_job_defaults(&TurboSettings::default(), began)?;
        let mut defaults = source.into_source_spec(String::new())?;
        program_files::attach_program_files(files.as_ref(), &mut defaults.filter_program);
        let query = Query { sql, sources, file_defaults: defaults, turbo, ..Query::default() };
        let (query, sink) = split_copy(query.with_parameters(&into_engine_parameters(given)?)?)?;
        Ok(("query", query, sink, ResourceLimits::default()))
    })
}

/// Returns the tables that SQL reads and that are neither in `names` nor files: each as it is written, and
/// the name that a source needs to match it. Returns nothing for invalid SQL.
#[pyfunction]
fn unknown_tables(
    py: Python<'_>,
    sql: String,
    given: Vec<NamedPythonParameter>,
    names: Vec<String>,
) -> Vec<(String, String)> {
    py.detach(|| {
        let named = |name| NamedSource { name, spec: SourceSpec::default() };
        let sources = names.into_iter().map(named).collect();
        let query = Query { sql, sources, ..Query::default() };
        let query = into_engine_parameters(given).and_then(|given| query.with_parameters(&given));
        let query = query.and_then(split_copy);
        let tables = query.map(|(query, _)| query.unresolved_tables()).unwrap_or_default();
        tables.into_iter().map(|table| (table.written_name, table.source_name)).collect()
    })
}

/// Returns the plan of a job as text and as JSON.
#[pyfunction]
fn explain_job(
    py: Python<'_>,
    mut job: JobText,
    sink: SinkOptions,
    limits: LimitOptions,
    turbo: TurboOptions,
    on: OnOptions,
) -> PyResult<(String, String)> {
    let began = Instant::now();
    let given = job.take_object_sources(py)?;
    let folders = limits.spill_folder_limits();
    explain_plan(py, limits, None, on, move || {
        let mut job = job.parse_job(given)?;
        let turbo = turbo.with_job_defaults(&job.turbo, began)?;
        let sink = prepare_job_and_sink(&mut job, sink, &folders)?;
        Ok(("run", Query { turbo, ..job.to_query() }, sink, job.limits))
    })
}

/// Reads and validates a job; returns its tree as JSON, and its SQL.
#[pyfunction]
fn read_job(py: Python<'_>, job: JobText) -> PyResult<(String, String)> {
    run_on_thread(py, CancelFlag::new(), move || {
        let (job, tree) = job.parse_job_without_objects()?;
        Ok((tree, job.to_sql()))
    })
}

/// Returns a report of the job log as JSON: `list`, `show`, `top` or `compare` of these runs.
#[pyfunction]
#[pyo3(name = "jobs", signature = (what, runs, since, name, last))]
fn job_log(
    py: Python<'_>,
    what: String,
    runs: Vec<String>,
    since: Option<String>,
    name: Option<String>,
    last: usize,
) -> PyResult<String> {
    let report = move || -> Result<_> {
        let log = JobLog::new(&StateFolder::locate()?, LOG_BYTES_MAX_DEFAULT);
        let period = since.as_deref().map_or(Ok(TimePeriod::ALL_TIME), TimePeriod::parse_since)?;
        Ok(match (what.as_str(), runs.as_slice()) {
            ("show", [id]) => {
                let shown = jobs::show_run(&log, id)?;
                (serde_json::to_string(&shown), shown.damage)
            }
            ("top", []) => {
                let top = jobs::top_cpu_consumers(&log, period, last)?;
                (serde_json::to_string(&top), top.damage)
            }
            ("compare", [a, b]) => {
                let compared = jobs::compare_runs(&log, a, b)?;
                (serde_json::to_string(&compared), compared.damage)
            }
            _ => {
                let listing = jobs::list_runs(&log, &RunFilter { period, name, count_max: last })?;
                (serde_json::to_string(&listing.runs), listing.damage)
            }
        })
    };
    let (json, damage) = run_on_thread(py, CancelFlag::new(), report)?;
    if let Some(warning) = damage.warning() {
        issue_warning(py, &warning)?;
    }
    json.map_err(|error| to_exception(py, Error::Internal(format!("a report as JSON: {error}"))))
}

fn run_query<'py>(
    py: Python<'py>,
    (query, master): (Query, Option<MasterClient>),
    sink: Option<SinkSpec>,
    limits: LimitOptions,
    job: &ResourceLimits,
    about: RunDescription,
) -> PyResult<Bound<'py, PyAny>> {
    let output = sink.as_ref().map(|sink| sink.url.clone());
    let about = RunDescription { output, ..about };
    let Some(master) = master else {
        let query = match &sink {
            Some(sink) => query.with_worker_output(sink),
            None => query,
        };
        let begin = move |settings| RunHandle::start_query(query, settings);
        return run_or_write(py, sink, limits, job, about, begin);
    };
    let priority = limits.priority_of(job).map_err(|error| to_exception(py, error))?;
    let (verb, shown) = (about.verb, about.mapper.clone().unwrap_or_else(|| query.sql.clone()));
    run_or_write(py, sink, limits, job, about, move |settings| {
        let question = PostedQuery::new(verb, &shown, &query, &settings, priority)?;
        RunHandle::start_posted_query(master, question, settings)
    })
}

/// Starts a query that returns interim results.
fn start_watched_query<'py>(
    py: Python<'py>,
    (query, master): (Query, Option<MasterClient>),
    limits: LimitOptions,
    about: RunDescription,
) -> PyResult<Bound<'py, PyAny>> {
    let priority =
        limits.priority_of(&ResourceLimits::default()).map_err(|error| to_exception(py, error))?;
    let (limits, display) = limits.into_limits_and_display();
    let preparation = py.detach(|| prepare_run(&limits, &ResourceLimits::default()));
    let preparation = preparation.map_err(|error| to_exception(py, error))?;
    let (verb, shown) = (about.verb, about.mapper.clone().unwrap_or_default());
    let begin = |settings: RunSettings| match master {
        None => RunHandle::start_watched_query(query, settings).map(RunHandle::with_uniform_schema),
        Some(master) => {
            let question = PostedQuery::new(verb, &shown, &query, &settings, priority)?;
            RunHandle::start_posted_query(master, question.with_interim_results(true), settings)
        }
    };
    let begun = StartedRun::new(py, preparation, Some(about), display, begin)?;
    let RunSettings { cancel, memory_bytes, .. } = begun.preparation.settings;
    let answers =
        RawAnswers::new(begun.running, cancel, begun.display, memory_bytes, begun.stats_before);
    Ok(Bound::new(py, answers)?.into_any())
}

/// Starts a run, and carries it out if its result goes to a sink.
fn run_or_write<'py>(
    py: Python<'py>,
    sink: Option<SinkSpec>,
    limits: LimitOptions,
    job: &ResourceLimits,
    about: RunDescription,
    begin: impl FnOnce(RunSettings) -> Result<RunHandle> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let (limits, display) = limits.into_limits_and_display();
    let preparation =
        py.detach(|| prepare_run(&limits, job)).map_err(|error| to_exception(py, error))?;
    let begun = StartedRun::new(py, preparation, Some(about), display, begin)?;
    match sink {
        None => begun.into_result(py),
        Some(sink) => Ok(Bound::new(py, begun.write_to_sink(py, &sink)?)?.into_any()),
    }
}

/// A run that has started.
struct StartedRun {
    running: RunHandle,
    preparation: PreparedRun,
    display: Option<Arc<ProgressDisplay>>,
    /// Statistics of remote reads of this process before the run.
    stats_before: ReadStats,
}

impl StartedRun {
    /// Starts a run; the job log records it if `about` describes it.
    fn new(
        py: Python<'_>,
        mut preparation: PreparedRun,
        about: Option<RunDescription>,
        display: Option<Py<PyAny>>,
        begin: impl FnOnce(RunSettings) -> Result<RunHandle> + Send,
    ) -> PyResult<Self> {
        let display = ProgressDisplay::new(display, &preparation.settings.progress);
        let before = remote::read_stats();
        let running = py.detach(|| -> Result<_> {
            let about = about.map(|about| RunDescription { via: JOB_LOG_INTERFACE, ..about });
            let recorder = about.map(|about| preparation.start_recorder(about)).transpose()?;
            let running = begin(preparation.settings.clone())?;
            Ok(match recorder {
                Some(recorder) => running.with_recorder(recorder),
                None => running,
            })
        });
        let running = running.map_err(|error| to_exception(py, error))?;
        if let Some(warning) = &preparation.warning {
            issue_warning(py, warning)?;
        }
        Ok(StartedRun { running, preparation, display, stats_before: before })
    }

    fn signal_waiter(&self) -> SignalWaiter {
        SignalWaiter::new(self.preparation.settings.cancel.clone(), self.display.clone())
    }

    /// Waits for a run that returns no rows.
    fn drain(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut waiter = self.signal_waiter();
        let running = &mut self.running;
        let done = py.detach(|| running.for_each_batch(|_| Ok(()), || waiter.check_signals()));
        let ending = self.running.take_warning();
        let done = waiter.finish(py, done);
        if let Some(warning) = ending {
            issue_warning(py, &warning)?;
        }
        done
    }

    /// Returns the statistics of remote reads since the start of the run.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(file_access::stats_dict(py, &remote::read_stats().delta_since(&self.stats_before))?
            .unbind())
    }

    /// Returns the coverage of the run's result.
    fn coverage(&self) -> Option<&Coverage> {
        self.running.coverage()
    }

    /// Returns a result from which Python reads the rows.
    fn into_result(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let memory_bytes = self.preparation.settings.memory_bytes;
        let cancel = self.preparation.settings.cancel;
        let result = RawResult::new(
            py,
            self.running,
            cancel,
            self.display,
            memory_bytes,
            self.stats_before,
        )?;
        Ok(Bound::new(py, result)?.into_any())
    }

    /// Writes all rows to a sink.
    fn write_to_sink(mut self, py: Python<'_>, sink: &SinkSpec) -> PyResult<RawWritten> {
        let mut waiter = self.signal_waiter();
        let memory_bytes = self.preparation.settings.memory_bytes;
        let id = &self.preparation.run_id;
        let running = &mut self.running;
        let done = py
            .detach(|| write_to_sink(running, sink, id, memory_bytes, |_| waiter.check_signals()));
        let ending = self.running.take_warning();
        let done = waiter.finish(py, done);
        if let Some(warning) = ending {
            issue_warning(py, &warning)?;
        }
        let written = done?;
        if let Some(warning) = &written.warning {
            issue_warning(py, warning)?;
        }
        let (coverage, coverage_line) = coverage_json_and_line(self.running.coverage());
        let stats = self.stats(py)?;
        Ok(RawWritten {
            files: written.files,
            rows: written.rows,
            bytes: written.bytes,
            paths: written.paths,
            root: written.root,
            coverage,
            coverage_line,
            stats,
        })
    }
}

/// Runs a job or merge that writes the partial table `out`.
fn write_partial_table(
    py: Python<'_>,
    limits: LimitOptions,
    job: &ResourceLimits,
    about: RunDescription,
    out: &Path,
    begin: impl FnOnce(PartialTableRun) -> Result<RunHandle> + Send,
) -> PyResult<RawWritten> {
    let (limits, display) = limits.into_limits_and_display();
    let preparation =
        py.detach(|| prepare_run(&limits, job)).map_err(|error| to_exception(py, error))?;
    let progress = preparation.settings.progress.clone();
    let id = preparation.run_id.clone();
    let begin = move |settings| begin(PartialTableRun { id, settings });
    let mut begun = StartedRun::new(py, preparation, Some(about), display, begin)?;
    begun.drain(py)?;
    let (coverage, coverage_line) = coverage_json_and_line(begun.running.coverage());
    let stats = begun.stats(py)?;
    Ok(RawWritten {
        files: 1,
        rows: progress.table_counters().rows(),
        bytes: progress.partial_table_bytes(),
        paths: vec![out.display().to_string()],
        root: out.parent().map_or_else(String::new, |folder| folder.display().to_string()),
        coverage,
        coverage_line,
        stats,
    })
}

/// The inputs of a run that writes a partial table.
struct PartialTableRun {
    id: tidemill_engine::RunId,
    settings: RunSettings,
}

/// Returns a coverage as JSON and as a line of text.
fn coverage_json_and_line(coverage: Option<&Coverage>) -> (String, String) {
    (coverage_json(coverage), coverage.map(Coverage::summary_line).unwrap_or_default())
}

/// Plans a query and returns the plan as text and as JSON.
fn explain_plan(
    py: Python<'_>,
    limits: LimitOptions,
    cluster: Option<ClusterSpec>,
    on: OnOptions,
    question: impl FnOnce() -> Result<(&'static str, Query, Option<SinkSpec>, ResourceLimits)>
    + Send
    + 'static,
) -> PyResult<(String, String)> {
    let (limits, _) = limits.into_limits_and_display();
    let cancel = CancelFlag::new();
    let flag = cancel.clone();
    run_on_thread(py, cancel, move || {
        let (verb, query, sink, job) = question()?;
        let mut settings = prepare_run(&limits, &job)?.settings;
        settings.cancel = flag;
        let explained = match on.named_master()? {
            Some(_) if cluster.is_some() => Err(Error::usage_with_hint(
                "`cluster` runs a second of the query on this machine, and a master runs elsewhere",
                "leave `on` out",
            )),
            Some(master) => {
                let priority = resolve_priority(&limits, &job)?;
                let query = on.apply_to_query(query)?;
                let sql = query.sql.clone();
                let question = PostedQuery::new(verb, &sql, &query, &settings, priority)?;
                Explanation::request_from_master(&master, question, &settings)
            }
            None => {
                let mut query = on.apply_to_query(query)?;
                if let Some(sink) = &sink {
                    query = query.with_worker_output(sink);
                }
                Explanation::new(&query, &settings, cluster.as_ref())
            }
        };
        let explained = explained?.with_sink(sink.as_ref())?;
        Ok((explained.text, explained.json))
    })
}

/// Waits at most `seconds` until fetched blocks are written to the read cache.
#[pyfunction]
fn flush_read_cache(py: Python<'_>, seconds: f64) {
    let timeout = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| tidemill_engine::remote::disk_cache::flush_disk_tiers(timeout));
}

/// Returns the statistics of remote reads of this process.
#[pyfunction]
fn read_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    file_access::stats_dict(py, &remote::read_stats())
}

#[pymodule]
fn _tidemill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    tidemill_engine::tracing_output::init_tracing_from_environment()
        .map_err(|error| to_exception(module.py(), error))?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<RawAnswers>()?;
    module.add_class::<RawWorker>()?;
    module.add_class::<RawAnswering>()?;
    module.add_function(wrap_pyfunction!(workers::confine, module)?)?;
    module.add_function(wrap_pyfunction!(workers::ask_master, module)?)?;
    module.add_function(wrap_pyfunction!(workers::master_token, module)?)?;
    module.add_function(wrap_pyfunction!(state_folder, module)?)?;
    module.add_class::<RawResult>()?;
    module.add_class::<RawWritten>()?;
    module.add_class::<RawSource>()?;
    module.add_class::<RawSchema>()?;
    module.add_class::<result::RawBatch>()?;
    module.add_class::<object_sources::RawStream>()?;
    module.add_class::<object_sources::ReadMark>()?;
    module.add_class::<rowfile::RawRowfile>()?;
    module.add_class::<rowfile::writer::RawRowfileWriter>()?;
    module.add_class::<sketches::RawHll>()?;
    module.add_class::<ids::RawIdSpace>()?;
    module.add_class::<ids::RawIdSet>()?;
    module.add_class::<ids::RawIds>()?;
    module.add_class::<file_access::RawStore>()?;
    module.add_class::<file_access::RawFile>()?;
    module.add_function(wrap_pyfunction!(query, module)?)?;
    module.add_function(wrap_pyfunction!(read_text, module)?)?;
    module.add_function(wrap_pyfunction!(head, module)?)?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(run_partial, module)?)?;
    module.add_function(wrap_pyfunction!(memory_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(merge, module)?)?;
    module.add_function(wrap_pyfunction!(merge_partial, module)?)?;
    module.add_function(wrap_pyfunction!(convert::convert, module)?)?;
    module.add_function(wrap_pyfunction!(convert::sort_files, module)?)?;
    module.add_function(wrap_pyfunction!(convert::check, module)?)?;
    module.add_function(wrap_pyfunction!(convert::salvage, module)?)?;
    module.add_function(wrap_pyfunction!(convert::check_schema, module)?)?;
    module.add_function(wrap_pyfunction!(line_sorting::sort, module)?)?;
    module.add_function(wrap_pyfunction!(id_file_sets::combine_ids, module)?)?;
    module.add_function(wrap_pyfunction!(file_operations::cat, module)?)?;
    module.add_function(wrap_pyfunction!(file_operations::get, module)?)?;
    module.add_function(wrap_pyfunction!(file_operations::put, module)?)?;
    module.add_function(wrap_pyfunction!(file_operations::ls, module)?)?;
    module.add_function(wrap_pyfunction!(file_operations::stat, module)?)?;
    module.add_function(wrap_pyfunction!(file_operations::du, module)?)?;
    module.add_function(wrap_pyfunction!(schema, module)?)?;
    module.add_function(wrap_pyfunction!(explain_query, module)?)?;
    module.add_function(wrap_pyfunction!(is_copy, module)?)?;
    module.add_function(wrap_pyfunction!(unknown_tables, module)?)?;
    module.add_function(wrap_pyfunction!(type_inference::table_of_rows, module)?)?;
    module.add_function(wrap_pyfunction!(explain_job, module)?)?;
    module.add_function(wrap_pyfunction!(read_job, module)?)?;
    module.add_function(wrap_pyfunction!(job_log, module)?)?;
    module.add_function(wrap_pyfunction!(rowfile::read_rowfile, module)?)?;
    module.add_function(wrap_pyfunction!(object_sources::register_format, module)?)?;
    module.add_function(wrap_pyfunction!(object_sources::leave_python, module)?)?;
    module.add_function(wrap_pyfunction!(flush_read_cache, module)?)?;
    module.add_function(wrap_pyfunction!(read_stats, module)?)?;
    Ok(())
}
