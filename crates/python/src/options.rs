//! Options from Python: dictionaries that the package has completed, with the names of the command
//! line's flags as keys.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use tidemill_engine::filter_program::FilterProgram;
use tidemill_engine::job::{Job, ResourceLimits, SOURCE_NAME};
use tidemill_engine::posted_query::master_client::MasterClient;
use tidemill_engine::query::{ScratchSpec, WorkerPool};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::sink::SinkSpec;
use tidemill_engine::source::programs::companion_files::ProgramFiles;
use tidemill_engine::source::{self, SourceSpec, TextOptions};
use tidemill_engine::{
    ConversionWorkers, NamedSource, Query, RunPriority, TurboSettings, program_files,
};

use crate::object_sources::NamedObject;
use crate::result::RawSchema;
use crate::workers::PythonWorkerPool;

/// Options for reading files.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SourceOptions {
    source_format: Option<String>,
    schema: Option<String>,
    /// The columns of a schema found earlier, instead of a schema text.
    columns: Option<Py<RawSchema>>,
    layouts: Option<String>,
    recover: bool,
    null: Vec<String>,
    header: Option<bool>,
    delimiter: Option<u8>,
    quote: Option<u8>,
    /// Present if a quote character, or none, was given.
    quoted: Option<bool>,
    escape: Option<u8>,
    comment: Option<u8>,
    skip_lines: Option<u64>,
    header_row: Option<u64>,
    strict: Option<bool>,
    mismatch: Option<String>,
    framing: Option<String>,
    log_format: Option<String>,
    /// Columns whose records' fields become columns.
    promote: Vec<String>,
    /// The program and its arguments; empty for no program.
    source_exec: Vec<String>,
    /// Files that programs find by name.
    files: Vec<String>,
    storage_options: Vec<(String, String)>,
}

impl SourceOptions {
    /// Returns the files that programs find by name; the spill folders of these limits hold their copies.
    pub(crate) fn program_files(
        &self,
        limits: &LimitOptions,
    ) -> tidemill_engine::Result<Option<Arc<ProgramFiles>>> {
        let storage = parse_storage_options(&self.storage_options)?;
        program_files::open_program_files(&self.files, &storage, &[&limits.spill_folder_limits()])
    }

    /// Returns the source of these options for the files of `url`.
    pub(crate) fn into_source_spec(self, url: String) -> tidemill_engine::Result<SourceSpec> {
        Ok(SourceSpec {
            url,
            more_urls: Vec::new(),
            format: self.source_format.as_deref().map(str::parse).transpose()?,
            text_options: TextOptions {
                header: self.header,
                delimiter: self.delimiter,
                quote: self.quoted.map(|_| self.quote),
                escape: self.escape,
                comment: self.comment,
                skip_lines: self.skip_lines,
                header_row: self.header_row,
                nulls: self.null,
                strict: self.strict,
                mismatch: self.mismatch.as_deref().map(str::parse).transpose()?,
                framing: self.framing.as_deref().map(source::parse_framing).transpose()?,
                log_format: self.log_format,
            },
            declared_schema: match (self.columns, self.schema) {
                (Some(columns), _) => Some(columns.get().schema.clone()),
                (None, Some(text)) => Some(tidemill_engine::query::schema_from_sql(&text)?),
                (None, None) => None,
            },
            layout_policy: self.layouts.as_deref().map(str::parse).transpose()?,
            promotions: self
                .promote
                .iter()
                .map(|text| text.parse())
                .collect::<source::Result<_>>()?,
            filter_program: parse_program(self.source_exec)?,
            storage_options: parse_storage_options(&self.storage_options)?,
            salvage_damaged: self.recover,
            memory_rows: None,
            exposed_hidden_columns: Vec::new(),
            base_folder: None,
        })
    }
}

/// Returns the program that these words name, if there are any.
fn parse_program(words: Vec<String>) -> tidemill_engine::Result<Option<FilterProgram>> {
    Ok((!words.is_empty()).then(|| FilterProgram::new(words)).transpose()?)
}

/// The resource limits of a run, and the display of its progress.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct LimitOptions {
    memory: Option<String>,
    threads: Option<usize>,
    priority: Option<String>,
    max_bad: Option<String>,
    spill_dirs: Vec<PathBuf>,
    pub display: Option<Py<PyAny>>,
}

impl LimitOptions {
    /// Returns the priority from these limits, or else from the environment or the job.
    pub(crate) fn priority_of(&self, job: &ResourceLimits) -> tidemill_engine::Result<RunPriority> {
        let own = ResourceLimits { priority: self.priority.clone(), ..ResourceLimits::default() };
        tidemill_engine::run_handle::resolve_priority(&own, job)
    }

    /// Returns limits with only the spill folders set.
    pub(crate) fn spill_folder_limits(&self) -> ResourceLimits {
        ResourceLimits { spill_dirs: self.spill_dirs.clone(), ..ResourceLimits::default() }
    }

    /// Returns the limits and the display.
    pub(crate) fn into_limits_and_display(self) -> (ResourceLimits, Option<Py<PyAny>>) {
        let limits = ResourceLimits {
            memory: self.memory,
            max_bad: self.max_bad,
            threads: self.threads,
            priority: self.priority,
            spill_dirs: self.spill_dirs,
            split_attempts_max: None,
            scratch: ScratchSpec::default(),
        };
        (limits, self.display)
    }
}

/// The workers or the master that run a query.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OnOptions {
    workers: Option<Py<PyAny>>,
    /// The address of a master that runs the query.
    master: Option<String>,
    may_run_here: bool,
    max_attempts: Option<usize>,
    scratch: Option<String>,
    scratch_above: Option<String>,
}

impl OnOptions {
    /// Returns the master that runs the query, if one is named.
    pub(crate) fn named_master(&self) -> tidemill_engine::Result<Option<MasterClient>> {
        self.master.as_deref().map(|address| MasterClient::find(address, None)).transpose()
    }

    /// Refuses a master for an operation that masters do not offer.
    pub(crate) fn refuse_master(&self) -> tidemill_engine::Result<()> {
        match &self.master {
            None => Ok(()),
            Some(address) => Err(tidemill_engine::Error::usage_with_hint(
                format!(
                    "a master, as `on={address}` names one, answers queries and jobs, and writes no files: this is not for it"
                ),
                "on=\"ray\", or leave `on` out",
            )),
        }
    }

    /// Refuses scratch storage for an operation that exchanges no data between workers.
    pub(crate) fn refuse_scratch(&self) -> tidemill_engine::Result<()> {
        let own = ScratchSpec::from_options(self.scratch.clone(), self.scratch_above.as_deref())?;
        tidemill_engine::convert::check_no_scratch_storage(&own)
    }

    /// Returns the query with these options.
    ///
    /// # Errors
    /// If a size is invalid.
    pub(crate) fn apply_to_query(self, query: Query) -> tidemill_engine::Result<Query> {
        let attempts_max = self.max_attempts.or(query.split_attempts_max);
        let own = ScratchSpec::from_options(self.scratch, self.scratch_above.as_deref())?;
        let scratch = own.with_defaults(query.scratch);
        if self.master.is_some() {
            return Ok(Query { split_attempts_max: attempts_max, scratch, ..query });
        }
        let query = Query { split_attempts_max: attempts_max, scratch, ..query };
        let Some(object) = self.workers else { return Ok(query) };
        let workers: Arc<dyn WorkerPool> = Arc::new(PythonWorkerPool::new(object));
        let may_run_here = self.may_run_here;
        Ok(Query { workers: Some(workers), may_run_locally: may_run_here, ..query })
    }

    /// Returns the workers that convert inputs to files of a folder; `None` if this process does.
    pub(crate) fn into_remote_workers(self) -> Option<ConversionWorkers> {
        let workers: Arc<dyn WorkerPool> = Arc::new(PythonWorkerPool::new(self.workers?));
        let (may_run_here, attempts_max) = (self.may_run_here, self.max_attempts);
        Some(ConversionWorkers {
            pool: workers,
            may_run_locally: may_run_here,
            task_attempts_max: attempts_max,
        })
    }
}

/// Options for answers from a part of the input, as texts that the flags accept.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TurboOptions {
    deadline: Option<String>,
    drop: Option<String>,
    error: Option<String>,
    sample: Option<String>,
    find: Option<String>,
    seed: Option<String>,
    confidence: Option<String>,
    split_bytes: Option<String>,
    as_seen: bool,
    no_intervals: bool,
}

impl TurboOptions {
    /// Returns these options with a job's options as defaults, for a call that began at `began`; `None` if
    /// the answer is to be exact.
    pub(crate) fn with_job_defaults(
        self,
        job: &TurboSettings,
        began: Instant,
    ) -> tidemill_engine::Result<Option<TurboSettings>> {
        let mut turbo = TurboSettings {
            is_unscaled: self.as_seen,
            is_without_intervals: self.no_intervals,
            started_at: Some(began),
            ..TurboSettings::default()
        };
        let said = [
            ("deadline", self.deadline),
            ("drop", self.drop),
            ("error", self.error),
            ("sample", self.sample),
            ("find", self.find),
            ("seed", self.seed),
            ("confidence", self.confidence),
            ("split_bytes", self.split_bytes),
        ];
        for (option, text) in said {
            if let Some(text) = text {
                turbo.set_option(option, &text)?;
            }
        }
        turbo.with_defaults(job).validate()
    }
}

/// The output that replaces the job's.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SinkOptions {
    output: Option<String>,
    format: Option<String>,
    compression: Option<String>,
    overwrite: Option<bool>,
    max_files: Option<usize>,
    sink_exec: Vec<String>,
    no_header: bool,
    storage_options: Vec<(String, String)>,
}

impl SinkOptions {
    /// Returns the sink with the job's sink as default; `None` if neither names an output.
    pub(crate) fn with_job_defaults(
        self,
        job: Option<&SinkSpec>,
    ) -> tidemill_engine::Result<Option<SinkSpec>> {
        let mut spec = match (self.output, job) {
            (Some(url), Some(job)) => {
                SinkSpec { url, format: None, compression: None, ..job.clone() }
            }
            (Some(url), None) => SinkSpec::new(url),
            (None, Some(job)) => job.clone(),
            (None, None) => return Ok(None),
        };
        if let Some(format) = self.format {
            spec.format = Some(format.parse()?);
        }
        if let Some(compression) = self.compression {
            spec.compression = Some(compression.parse()?);
        }
        if let Some(program) = parse_program(self.sink_exec)? {
            spec.exec = Some(program);
        }
        spec.overwrite = self.overwrite.unwrap_or(spec.overwrite);
        spec.has_header &= !self.no_header;
        spec.max_files = self.max_files.unwrap_or(spec.max_files);
        spec.storage_options =
            spec.storage_options.with_overrides(&parse_storage_options(&self.storage_options)?);
        Ok(Some(spec))
    }
}

impl SinkOptions {
    /// Returns the sink of a `COPY … TO`, with the options that COPY lacks.
    ///
    /// # Errors
    /// For an option that duplicates a part of the statement.
    pub(crate) fn with_copy_defaults(
        self,
        copy: &SinkSpec,
    ) -> tidemill_engine::Result<Option<SinkSpec>> {
        let said = [
            ("output", self.output.is_some()),
            ("format", self.format.is_some()),
            ("compression", self.compression.is_some()),
            ("no_header", self.no_header),
        ];
        match said.into_iter().find(|(_, is_said)| *is_said) {
            Some((name, _)) => Err(tidemill_engine::Error::usage_with_hint(
                format!("COPY names its output itself, and `{name}` is beside it"),
                "its own options say the rest: COPY … TO 'out' (FORMAT csv, HEADER false)",
            )),
            None => self.with_job_defaults(Some(copy)),
        }
    }
}

/// A job: the file `path`, or else `text`, which is TOML or JSON.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct JobText {
    path: Option<PathBuf>,
    text: String,
    is_json: bool,
    /// Name of the text in messages.
    origin: String,
    overrides: Vec<(String, String)>,
    /// Storage options of the sources, which override the job's.
    storage_options: Vec<(String, String)>,
    /// Files that programs find by name, in addition to the job's.
    files: Vec<String>,
    /// Sources that are objects.
    objects: Vec<NamedObject>,
}

impl JobText {
    /// Takes the sources that are objects: rows of tables are shared, and those of streams move.
    pub(crate) fn take_object_sources(&mut self, py: Python<'_>) -> PyResult<Vec<NamedSource>> {
        let objects = std::mem::take(&mut self.objects).into_iter();
        objects
            .map(|object| {
                let (name, spec) = object.into_named_source(py)?;
                Ok(NamedSource { name, spec })
            })
            .collect()
    }

    /// Reads and validates the job, some sources of which are objects.
    pub(crate) fn parse_job(self, given: Vec<NamedSource>) -> tidemill_engine::Result<Job> {
        Ok(self.parse_job_and_tree(given)?.0)
    }

    /// Reads and validates the job without touching its objects; returns its tree too, without the overrides,
    /// as JSON.
    pub(crate) fn parse_job_without_objects(mut self) -> tidemill_engine::Result<(Job, String)> {
        let objects = std::mem::take(&mut self.objects).into_iter();
        let named = |name: String| {
            let spec = SourceSpec { url: name.clone(), ..SourceSpec::default() };
            NamedSource { name, spec }
        };
        let mut given: Vec<NamedSource> = objects.map(|object| named(object.name)).collect();
        if given.is_empty() && self.needs_source()? {
            given.push(named(SOURCE_NAME.to_owned()));
        }
        self.parse_job_and_tree(given)
    }

    /// Returns true for tables over a source that a run has yet to supply. It reads the job's file.
    fn needs_source(&mut self) -> tidemill_engine::Result<bool> {
        if let Some(path) = self.path.take() {
            (self.origin, self.text) = Job::read_job_text(&path)?;
        }
        let tree: Option<serde_json::Value> = match self.is_json {
            // Invalid JSON is refused when the job is parsed.
            true => serde_json::from_str(&self.text).ok(),
            false => Some(Job::toml_to_json(&self.text, &self.origin)?),
        };
        let has = |key: &str| tree.as_ref().is_some_and(|tree| tree.get(key).is_some());
        Ok(has("tables") && !has("source") && !has("map"))
    }

    fn parse_job_and_tree(
        mut self,
        given: Vec<NamedSource>,
    ) -> tidemill_engine::Result<(Job, String)> {
        if let Some(path) = &self.path {
            (self.origin, self.text) = Job::read_job_text(path)?;
        }
        let (mut job, tree) = if self.is_json {
            (
                Job::from_json_with_sources(&self.text, &self.origin, &self.overrides, given)?,
                self.text,
            )
        } else {
            let job =
                Job::from_toml_with_sources(&self.text, &self.origin, &self.overrides, given)?;
            (job, Job::toml_to_json(&self.text, &self.origin)?.to_string())
        };
        let over = parse_storage_options(&self.storage_options)?;
        for source in &mut job.sources {
            source.spec.storage_options = source.spec.storage_options.with_overrides(&over);
        }
        job.program_files.append(&mut self.files);
        Ok((job, tree))
    }
}

/// Validates storage options.
pub(crate) fn parse_storage_options(
    pairs: &[(String, String)],
) -> tidemill_engine::Result<StorageOptions> {
    let mut options = StorageOptions::default();
    for (name, value) in pairs {
        options.set(name, value.clone())?;
    }
    Ok(options)
}
