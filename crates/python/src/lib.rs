//! Glue between the `tidemill` Python package and the engine; no logic.
//!
//! - `errors`: which Python exception is an engine's error?
//! - `result`: how do a run's rows reach Python?
//!
//! Options arrive as the Python package has checked them, and what is a dictionary in Python
//! (the coverage, a job) crosses as JSON text.

mod errors;
mod result;

use pyo3::prelude::*;
use tidemill_engine::job::{Job, Limits};
use tidemill_engine::jobs::{self, About, Filter, JobLog, LIMIT_BYTES, Period};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::running::{Running, deliver, prepare};
use tidemill_engine::sink::SinkSpec;
use tidemill_engine::source::{SourceSpec, TextOptions};
use tidemill_engine::{Cancel, Home, Query};

use crate::errors::{raise, warn};
use crate::result::{RawResult, Waiter};

/// What a run that wrote files has done.
#[pyclass(frozen, get_all, module = "tidemill._tidemill")]
struct RawWritten {
    files: u64,
    rows: u64,
    bytes: u64,
    paths: Vec<String>,
    root: String,
    coverage: String,
}

/// How files are read; the same names as the flags.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SourceOptions {
    source_format: Option<String>,
    schema: Option<String>,
    layouts: Option<String>,
    null: Vec<String>,
    header: Option<bool>,
    delimiter: Option<u8>,
    quote: Option<u8>,
    /// Whether fields are quoted at all, if that was said.
    quoted: Option<bool>,
    escape: Option<u8>,
    comment: Option<u8>,
    strict: Option<bool>,
    mismatch: Option<String>,
    framing: Option<String>,
    storage_options: Vec<(String, String)>,
}

/// What a run may take; the same names as the flags.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LimitOptions {
    memory: Option<String>,
    threads: Option<usize>,
    max_bad: Option<String>,
}

/// Where a job's result goes instead of where the job says.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SinkOptions {
    output: Option<String>,
    format: Option<String>,
    overwrite: Option<bool>,
    max_files: Option<usize>,
    storage_options: Vec<(String, String)>,
}

/// The settings of stores, checked.
fn storage(pairs: &[(String, String)]) -> tidemill_engine::Result<StorageOptions> {
    let mut options = StorageOptions::default();
    for (name, value) in pairs {
        options.set(name, value.clone())?;
    }
    Ok(options)
}

impl From<LimitOptions> for Limits {
    fn from(options: LimitOptions) -> Self {
        Limits { memory: options.memory, max_bad: options.max_bad, threads: options.threads }
    }
}

impl SourceOptions {
    fn spec(self) -> tidemill_engine::Result<SourceSpec> {
        Ok(SourceSpec {
            url: String::new(),
            format: self.source_format.as_deref().map(str::parse).transpose()?,
            options: TextOptions {
                header: self.header,
                delimiter: self.delimiter,
                quote: self.quoted.map(|_| self.quote),
                escape: self.escape,
                comment: self.comment,
                nulls: self.null,
                strict: self.strict,
                mismatch: self.mismatch.as_deref().map(str::parse).transpose()?,
                framing: self
                    .framing
                    .as_deref()
                    .map(tidemill_engine::source::framing)
                    .transpose()?,
            },
            schema: self
                .schema
                .as_deref()
                .map(tidemill_engine::query::schema_from_sql)
                .transpose()?,
            layouts: self.layouts.as_deref().map(str::parse).transpose()?,
            storage_options: storage(&self.storage_options)?,
        })
    }
}

/// Answers SQL over files.
#[pyfunction]
fn query(
    py: Python<'_>,
    sql: String,
    source: SourceOptions,
    limits: LimitOptions,
) -> PyResult<RawResult> {
    let start = || {
        let about = About { verb: "query", mapper: Some(sql.clone()), ..About::default() };
        let query = Query { sql, defaults: source.spec()?, ..Query::default() };
        start(query, &limits.into(), &Limits::default(), about)
    };
    let started = py.detach(start).map_err(|error| raise(py, error))?;
    started.result(py)
}

/// Reads columns of files, in the order of the input.
#[pyfunction]
#[pyo3(signature = (url, columns, condition, source, limits))]
fn read_text(
    py: Python<'_>,
    url: String,
    columns: Option<Vec<String>>,
    condition: Option<String>,
    source: SourceOptions,
    limits: LimitOptions,
) -> PyResult<RawResult> {
    let start = || {
        let sources = vec![url.clone()];
        let spec = SourceSpec { url, ..source.spec()? };
        let query = Query::columns(spec, columns.as_deref(), condition.as_deref())?;
        let mapper = Some(query.sql.clone());
        let about = About { verb: "read_text", mapper, sources, ..About::default() };
        start(query, &limits.into(), &Limits::default(), about)
    };
    let started = py.detach(start).map_err(|error| raise(py, error))?;
    started.result(py)
}

/// Runs a job: from the file `path`, or else from `text`, which is TOML or JSON.
#[pyfunction]
#[pyo3(signature = (path, text, is_json, overrides, sink, limits))]
fn run<'py>(
    py: Python<'py>,
    path: Option<std::path::PathBuf>,
    text: &str,
    is_json: bool,
    overrides: Vec<(String, String)>,
    sink: SinkOptions,
    limits: LimitOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let job = match path {
        Some(path) => Job::from_file(&path, &overrides),
        None if is_json => Job::from_json(text, "job", &overrides),
        None => Job::from_toml(text, "job", &overrides),
    };
    let mut job = job.map_err(|error| raise(py, error))?;
    let over = storage(&sink.storage_options).map_err(|error| raise(py, error))?;
    for source in &mut job.sources {
        source.spec.storage_options = source.spec.storage_options.with(&over);
    }
    let limits: Limits = limits.into();
    let Some(spec) = sink.over(job.sink.as_ref()).map_err(|error| raise(py, error))? else {
        let started = start(job.query(), &limits, &job.limits, About::job(&job, None))
            .map_err(|error| raise(py, error))?;
        return Ok(started.result(py)?.into_pyobject(py)?.into_any());
    };
    let mut waiter = Waiter::default();
    let mut warnings = [None, None];
    let work = || -> tidemill_engine::Result<RawWritten> {
        let mut preparation = prepare(&limits, &job.limits)?;
        let about = About { via: VIA, ..About::job(&job, Some(spec.url.clone())) };
        let recorder = preparation.recorder(about)?;
        warnings[0] = preparation.warning;
        let settings = preparation.settings;
        let memory_bytes = settings.memory_bytes;
        let mut running = Running::query(job.query(), settings)?.recorded(recorder);
        let look = |_| waiter.look();
        let delivered = deliver(&mut running, &spec, &preparation.id, memory_bytes, look);
        warnings[1] = running.take_warning();
        let written = delivered?;
        Ok(RawWritten {
            files: written.files,
            rows: written.rows,
            bytes: written.bytes,
            paths: written.paths,
            root: written.root,
            coverage: result::coverage_json(running.coverage()),
        })
    };
    let done = py.detach(work);
    for warning in warnings.iter().flatten() {
        warn(py, warning)?;
    }
    match done {
        Ok(written) => Ok(Bound::new(py, written)?.into_any()),
        Err(error) => Err(waiter.raised().unwrap_or_else(|| raise(py, error))),
    }
}

/// What the job log calls this way in.
const VIA: &str = "python";

/// A run that has begun.
struct Started {
    running: Running,
    cancel: Cancel,
    warning: Option<String>,
}

impl Started {
    fn result(self, py: Python<'_>) -> PyResult<RawResult> {
        if let Some(warning) = &self.warning {
            warn(py, warning)?;
        }
        RawResult::new(py, self.running, self.cancel)
    }
}

fn start(
    query: Query,
    limits: &Limits,
    job: &Limits,
    about: About,
) -> tidemill_engine::Result<Started> {
    let mut preparation = prepare(limits, job)?;
    let recorder = preparation.recorder(About { via: VIA, ..about })?;
    let settings = preparation.settings;
    let cancel = settings.cancel.clone();
    let running = Running::query(query, settings)?.recorded(recorder);
    Ok(Started { running, cancel, warning: preparation.warning })
}

/// A report of the job log as JSON: `list`, `show`, `top` or `compare` of these runs.
#[pyfunction]
#[pyo3(name = "jobs", signature = (what, runs, since, name, last))]
fn job_log(
    py: Python<'_>,
    what: &str,
    runs: Vec<String>,
    since: Option<String>,
    name: Option<String>,
    last: usize,
) -> PyResult<String> {
    let report = || -> tidemill_engine::Result<_> {
        let log = JobLog::new(&Home::existing()?, LIMIT_BYTES);
        let period = since.as_deref().map_or(Ok(Period::ALWAYS), Period::since)?;
        Ok(match (what, runs.as_slice()) {
            ("show", [id]) => {
                let shown = jobs::show(&log, id)?;
                (serde_json::to_string(&shown), shown.damage)
            }
            ("top", []) => {
                let top = jobs::top(&log, period, last)?;
                (serde_json::to_string(&top), top.damage)
            }
            ("compare", [a, b]) => {
                let compared = jobs::compare(&log, a, b)?;
                (serde_json::to_string(&compared), compared.damage)
            }
            _ => {
                let listing = jobs::list(&log, &Filter { period, name, last })?;
                (serde_json::to_string(&listing.runs), listing.damage)
            }
        })
    };
    let (json, damage) = py.detach(report).map_err(|error| raise(py, error))?;
    if let Some(warning) = damage.warning() {
        warn(py, &warning)?;
    }
    json.map_err(|error| {
        raise(py, tidemill_engine::Error::Internal(format!("a report as JSON: {error}")))
    })
}

impl SinkOptions {
    /// These over what the job says; none if neither names an output.
    fn over(self, job: Option<&SinkSpec>) -> tidemill_engine::Result<Option<SinkSpec>> {
        let mut spec = match (self.output, job) {
            (Some(url), Some(job)) => SinkSpec { url, format: None, ..job.clone() },
            (Some(url), None) => SinkSpec::new(url),
            (None, Some(job)) => job.clone(),
            (None, None) => return Ok(None),
        };
        if let Some(format) = self.format {
            spec.format = Some(format.parse()?);
        }
        spec.overwrite = self.overwrite.unwrap_or(spec.overwrite);
        spec.max_files = self.max_files.unwrap_or(spec.max_files);
        spec.storage_options = spec.storage_options.with(&storage(&self.storage_options)?);
        Ok(Some(spec))
    }
}

#[pymodule]
fn _tidemill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<RawResult>()?;
    module.add_class::<RawWritten>()?;
    module.add_class::<result::RawSchema>()?;
    module.add_class::<result::RawBatch>()?;
    module.add_function(wrap_pyfunction!(query, module)?)?;
    module.add_function(wrap_pyfunction!(read_text, module)?)?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(job_log, module)?)?;
    Ok(())
}
