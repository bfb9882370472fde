//! Conversion: files of one format to files of another, record by record.
//!
//! ```text
//!   one output   all inputs as one table ── select · where ──► a sink
//!   a folder     each input ── select · where ──► a file of its own, a set of them at a time
//! ```
//!
//! With one output, a conversion is a query without grouping whose rows keep the order of the input.
//! With a folder, every input has its own output, named by the input's path below the listed folder.
//! The files appear in sets, each set at once. An input that cannot be converted is reported at the
//! end and does not stop the others. Workers of a cluster can convert them ([`cluster_conversion`]).

pub(crate) mod cluster_conversion;

pub use self::cluster_conversion::check_no_scratch_storage;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::RunSettings;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::coverage::{Coverage, ReadAmount};
use tidemill_base::error::{Error, Result, error_from_panic};
use tidemill_base::progress::PlanOutline;
use tidemill_base::redaction::redact_url;
use tidemill_base::state_folder::RunId;
use tidemill_query::{Query, QueryPlan, Results, WorkerPool, conform_batch_to_schema};
use tidemill_remote::location::Location;
use tidemill_remote::{AccessPlan, PrefetchBudget};
use tidemill_sink::{
    FileSet, FileSetWriter, FinishedObject, ObjectSetWriter, OutputFormat, OutputSummary, Sink,
    SinkResources, SinkSpec, StagedObject, StagedSetFile,
};
use tidemill_source::{
    Compression, Format, ReadOptions, RejectLog, Source, SourceSpec, Split, SplitReader,
    list_with_relative_paths,
};
use tidemill_tables::merging::partial_tables::merge_coverages;

use crate::run_handle::RunHandle;

/// Maximum number of files in a set.
const SET_FILES_MAX: usize = 1000;
/// A set is complete once its inputs have this many bytes.
const SET_INPUT_BYTES_TARGET: u64 = 1 << 30;
/// Number of inputs that cannot be converted after which no more are tried.
const FAILURES_MAX: usize = 100;
/// Maximum number of failed inputs that the error names.
const LISTED_FAILURES_MAX: usize = 5;
/// Maximum number of paths that [`OutputSummary`] lists.
const LISTED_PATHS_MAX: usize = 5;

/// A conversion: its inputs, the mapping of each record, and the output.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The inputs, and the options for reading them.
    pub source: SourceSpec,
    /// Columns and expressions as in SQL's SELECT list. Default: all columns.
    pub select: Option<String>,
    /// Condition as in SQL's WHERE clause; records that do not meet it are left out. Default: all records.
    pub condition: Option<String>,
    /// The output: a file, a template with columns in braces, or a folder.
    pub sink: SinkSpec,
    /// True if existing outputs in the output folder are skipped. Default: false, an existing output is an
    /// error.
    pub skip_existing: bool,
    /// The workers that convert inputs to files of a folder. Default: this process.
    pub workers: Option<ConversionWorkers>,
}

/// The cluster workers that execute a conversion.
#[derive(Debug, Clone)]
pub struct ConversionWorkers {
    /// The pool of workers.
    pub pool: Arc<dyn WorkerPool>,
    /// True if this process executes, with a warning, a conversion that cannot run on the workers.
    pub may_run_locally: bool,
    /// Number of workers that may end over the same inputs before the run fails. Default: 4.
    pub task_attempts_max: Option<usize>,
}

/// The outcome of a conversion to a folder.
#[derive(Debug, Default)]
pub struct ConversionReport {
    /// Counts and paths of the written files.
    pub output_summary: OutputSummary,
    /// Coverage of all converted inputs.
    pub coverage: Coverage,
    /// Number of existing outputs that were skipped.
    pub skipped_outputs: u64,
    /// Errors of the inputs that were not converted.
    pub failures: Vec<Error>,
    /// Number of inputs that were not tried because too many failed.
    pub untried_inputs: u64,
}

impl ConversionReport {
    /// Returns the failures as one error, or `None` if there are none.
    pub fn to_error(&self) -> Option<Error> {
        if self.failures.is_empty() {
            return None;
        }
        let files = self.output_summary.files
            + self.skipped_outputs
            + self.failures.len() as u64
            + self.untried_inputs;
        let shown = self.failures.iter().take(LISTED_FAILURES_MAX);
        Some(Error::UnconvertedFiles {
            failed: self.failures.len() as u64,
            untried: self.untried_inputs,
            files,
            first: shown.map(|error| error.to_string().replace('\n', "\n  ")).collect(),
        })
    }
}

/// An input and the name of its output.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ConversionInput {
    url: String,
    bytes: u64,
    /// Path of the output below the folder, with `/` as separator.
    target: String,
}

impl Conversion {
    /// Returns the mapping of each record as SQL text, or `None` if records are copied as they are.
    pub fn describe_selection(&self) -> Option<String> {
        match (&self.select, &self.condition) {
            (None, None) => None,
            (Some(select), None) => Some(format!("SELECT {select}")),
            (None, Some(condition)) => Some(format!("WHERE {condition}")),
            (Some(select), Some(condition)) => Some(format!("SELECT {select} WHERE {condition}")),
        }
    }

    /// Refuses options that need a folder as the output.
    ///
    /// # Errors
    /// [`Error::Usage`] for such an option.
    pub fn check_single_output(&self) -> Result<()> {
        match self.skip_existing {
            true => Err(Error::usage_with_hint(
                format!("`{}` is no folder, in which outputs could be left", self.sink.url),
                "--skip-existing is for a folder as the output: its name ends with `/`",
            )),
            false => Ok(()),
        }
    }

    /// Starts converting every input to a file of its own, on a thread. The report is complete once the
    /// run has ended.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_to_folder(
        self,
        settings: &RunSettings,
        run: &RunId,
    ) -> Result<(RunHandle, Arc<Mutex<ConversionReport>>)> {
        let (settings, run) = (settings.clone(), run.clone());
        let converted = Arc::new(Mutex::new(ConversionReport::default()));
        let result = Arc::clone(&converted);
        let running = RunHandle::start_without_rows(settings.cancel.clone(), move || {
            let all = self.run_to_folder(&settings, &run)?;
            let coverage = all.coverage.clone();
            *result.lock() = all;
            Ok(coverage)
        })?;
        Ok((running, converted))
    }

    /// Returns true if the output is a folder: it exists as one, or its name ends with `/`.
    pub fn is_to_folder(&self) -> bool {
        let url = &self.sink.url;
        url.ends_with('/') || (url != "-" && !url.contains("://") && Path::new(url).is_dir())
    }

    /// Returns the conversion to one output as a query.
    ///
    /// # Errors
    /// [`Error::Usage`] if `select` is not a select list or `condition` is not a condition.
    pub fn to_query(&self) -> Result<Query> {
        self.query_for_source(self.source.clone())
    }

    fn query_for_source(&self, source: SourceSpec) -> Result<Query> {
        let query =
            Query::select_per_record(source, self.select.as_deref(), self.condition.as_deref())?;
        Ok(Query {
            keeps_columns: self.select.is_none() && self.sink.preserves_column_metadata(),
            ..query
        })
    }

    /// Converts every input to a file of its own in the output folder.
    ///
    /// Cost: each input is listed, planned and read by itself, some milliseconds besides its
    /// bytes. Memory: a few hundred bytes for each input, and a share of the budget for each
    /// thread.
    ///
    /// # Errors
    /// Errors of the request as a whole: [`Error::Usage`], [`Error::NotFound`],
    /// [`Error::OutputExists`]; and [`Error::Interrupted`]. Errors of single inputs are in
    /// [`ConversionReport::failures`].
    pub fn run_to_folder(&self, settings: &RunSettings, run: &RunId) -> Result<ConversionReport> {
        self.to_query()?;
        let Some(format) = self.sink.format else {
            return Err(Error::usage_with_hint(
                format!("`{}` is a folder, which does not tell the format", self.sink.url),
                format!("give it with --format: {}", OutputFormat::names().join(", ")),
            ));
        };
        self.sink.check_exec()?;
        let mut all = ConversionReport::default();
        let there = self.usable_workers(&mut all)?;
        let mut tasks = self.list_inputs(format, &settings.cancel)?;
        all.skipped_outputs = self.skip_or_refuse_existing(&mut tasks)?;
        settings.progress.set_bytes_total(tasks.iter().map(|task| task.bytes).sum());
        settings.progress.set_plan_outline(PlanOutline {
            execution_path: Some("rows"),
            ..PlanOutline::default()
        });
        let mut rest = tasks.as_slice();
        while !rest.is_empty() {
            if all.failures.len() >= FAILURES_MAX {
                all.untried_inputs += rest.len() as u64;
                break;
            }
            let mut bytes = 0;
            let full = rest.iter().take(SET_FILES_MAX).position(|task| {
                bytes += task.bytes;
                bytes >= SET_INPUT_BYTES_TARGET
            });
            let count = full.map_or(rest.len().min(SET_FILES_MAX), |last| last + 1);
            let (set, others) = rest.split_at(count);
            match there {
                Some(there) => {
                    self.convert_set_on_workers(set, format, settings, run, there, &mut all)?
                }
                None => self.convert_set(set, format, settings, run, &mut all)?,
            }
            rest = others;
        }
        all.coverage.complete &= all.failures.is_empty();
        all.coverage.mergeable = false;
        Ok(all)
    }

    /// Lists the inputs, each with the name of its output.
    fn list_inputs(
        &self,
        format: OutputFormat,
        cancel: &CancelFlag,
    ) -> Result<Vec<ConversionInput>> {
        let mut tasks = Vec::new();
        let mut seen: HashSet<Arc<str>> = HashSet::new();
        for url in self.source.urls() {
            if url == "-" {
                return Err(Error::usage_with_hint(
                    "standard input has no name for a file in a folder",
                    "name the output's file",
                ));
            }
            for (url, bytes, below) in list_with_relative_paths(&self.source, url, cancel)? {
                if seen.insert(url.clone()) {
                    let compression = self.sink.compression_suffix(format);
                    let target = output_name(&below, format) + compression;
                    tasks.push(ConversionInput { url: url.to_string(), bytes, target });
                }
            }
        }
        let mut by_target: HashMap<&str, &ConversionInput> = HashMap::with_capacity(tasks.len());
        for task in &tasks {
            if let Some(other) = by_target.insert(&task.target, task) {
                return Err(Error::usage_with_hint(
                    format!(
                        "`{}` and `{}` would both be written to `{}`",
                        other.url, task.url, task.target
                    ),
                    "name the folder above them as the input, or convert them one by one",
                ));
            }
        }
        Ok(tasks)
    }

    /// Removes inputs whose outputs exist, if the conversion skips these; returns their number. Fails on the
    /// first existing output otherwise.
    fn skip_or_refuse_existing(&self, tasks: &mut Vec<ConversionInput>) -> Result<u64> {
        if self.sink.overwrite || self.bucket_url().is_some() {
            return Ok(0);
        }
        let root = Path::new(&self.sink.url);
        let exists = |task: &ConversionInput| root.join(&task.target).symlink_metadata().is_ok();
        let before = tasks.len();
        if self.skip_existing {
            tasks.retain(|task| !exists(task));
            return Ok((before - tasks.len()) as u64);
        }
        let mut there = tasks.iter().filter(|task| exists(task));
        match there.next() {
            None => Ok(0),
            Some(first) => {
                let path = root.join(&first.target).display().to_string();
                Err(Error::OutputExists { path, more: there.count() })
            }
        }
    }

    /// Returns the output's URL if it is in a bucket.
    fn bucket_url(&self) -> Option<&str> {
        let is_bucket = matches!(Location::parse(&self.sink.url), Ok(Some(Location::S3 { .. })));
        is_bucket.then_some(self.sink.url.as_str())
    }

    fn convert_set(
        &self,
        tasks: &[ConversionInput],
        format: OutputFormat,
        settings: &RunSettings,
        run: &RunId,
        all: &mut ConversionReport,
    ) -> Result<()> {
        let cancel = &settings.cancel;
        let mut wait = || cancel.check();
        let root = Path::new(&self.sink.url);
        let limit = InputResources::from_settings(settings, tasks.len()).output_memory_bytes_max;
        let target = match self.bucket_url() {
            Some(_) => ConversionTarget::SeparateObjects(run),
            None => {
                let create = FileSet::create;
                let set = create(root, &self.sink, format, run, limit, cancel, &mut wait)?;
                ConversionTarget::FileSet(Box::new(set))
            }
        };
        let results = Mutex::new(std::mem::take(all));
        let tried = self.convert_inputs(tasks, settings, &target, &|index, done| {
            let mut all = results.lock();
            match done {
                Ok(ConvertedInput { coverage, output_summary: written, uncommitted: part }) => {
                    if let (
                        ConversionTarget::FileSet(set),
                        Some(UncommittedOutput::StagedFile(part)),
                    ) = (&target, part)
                    {
                        set.adopt_file(part)?;
                    }
                    all.add_input(coverage, written, settings);
                    Ok(true)
                }
                Err(error) => Ok(all.add_failure(error, &tasks[index])),
            }
        })?;
        *all = results.into_inner();
        cancel.check()?;
        all.untried_inputs += (tasks.len() - tried) as u64;
        if let ConversionTarget::FileSet(set) = target {
            let written = set.commit(root, self.sink.overwrite, &mut wait)?;
            all.output_summary = sum_summaries(std::mem::take(&mut all.output_summary), written);
        }
        Ok(())
    }

    /// Converts inputs in parallel, one for each thread. `done` takes each outcome and returns false to stop.
    /// Returns the number of inputs that were tried.
    fn convert_inputs(
        &self,
        tasks: &[ConversionInput],
        settings: &RunSettings,
        target: &ConversionTarget<'_>,
        done: &(dyn Fn(usize, Result<ConvertedInput>) -> Result<bool> + Sync),
    ) -> Result<usize> {
        let InputResources {
            concurrent_inputs: workers,
            threads,
            memory_bytes,
            output_memory_bytes_max: limit,
        } = InputResources::from_settings(settings, tasks.len());
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failed = Mutex::new(None);
        let work = || {
            let mut turn = ComputeTurn::new(settings.cores.as_ref());
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { break };
                let own = RunSettings {
                    threads,
                    memory_bytes,
                    progress: settings.progress.part_progress(),
                    rejected_folder: settings
                        .rejected_folder
                        .as_ref()
                        .map(|folder| folder.join(task.rejected_copies_folder())),
                    ..settings.clone()
                };
                let goes_on = match self.convert_input(task, &own, target, limit, &mut turn) {
                    Err(Error::Interrupted) => Ok(false),
                    converted => done(index, converted),
                };
                match goes_on {
                    Ok(true) => {}
                    Ok(false) => stop.store(true, Ordering::Relaxed),
                    Err(error) => {
                        failed.lock().get_or_insert(error);
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = (0..workers)
                .map(|_| {
                    let thread = std::thread::Builder::new().name("convert".into());
                    let work = || {
                        tidemill_base::panics::silence_thread_panics();
                        work();
                    };
                    thread.spawn_scoped(scope, work).map_err(|e| Error::io("start", "a thread", e))
                })
                .collect::<Result<_>>()?;
            for thread in threads {
                thread.join().map_err(|panic| error_from_panic(panic.as_ref()))?;
            }
            Ok(())
        })?;
        match failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(next.into_inner().min(tasks.len())),
        }
    }

    fn convert_input(
        &self,
        task: &ConversionInput,
        settings: &RunSettings,
        target: &ConversionTarget<'_>,
        limit: usize,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<ConvertedInput> {
        let source =
            SourceSpec { url: task.url.clone(), more_urls: Vec::new(), ..self.source.clone() };
        let (mut rows, warning) = match self.describe_selection() {
            None => {
                let copy = WholeSourceReader::open(
                    &source,
                    settings,
                    self.sink.preserves_column_metadata(),
                )?;
                let warning = copy.source.warning();
                (InputRows::Source(Box::new(copy)), warning)
            }
            Some(_) => {
                let plan = QueryPlan::new(&self.query_for_source(source)?, settings)?;
                let warning = plan.warning();
                (InputRows::Query(Box::new(plan.run()?)), warning)
            }
        };
        let schema = rows.schema().clone();
        let cancel = &settings.cancel;
        // A query's own threads read its rows, and take turns of their own.
        let takes_turns = matches!(rows, InputRows::Source(_));
        let mut next_rows = || {
            if takes_turns {
                turn.acquire(|| cancel.is_cancelled());
                cancel.check()?;
            }
            rows.next_batch()
        };
        let begun = match target {
            ConversionTarget::SeparateObjects(run) => Err(*run),
            ConversionTarget::FileSet(set) => {
                Ok(set.begin_file(task.target.clone(), schema.clone())?)
            }
            ConversionTarget::StagedFiles(writer) => Ok(writer.begin_file(
                tidemill_sink::unique_staged_name(),
                task.target.clone(),
                schema.clone(),
            )?),
            ConversionTarget::UploadedObjects(writer, uploads) => {
                let upload = uploads.get(&task.target).cloned();
                let mut object =
                    writer.begin_object(task.target.clone(), upload, schema.clone())?;
                let mut wait = || cancel.check();
                let mut is_too_large = false;
                while !is_too_large && let Some(batch) = next_rows()? {
                    object.write(&batch, &mut wait)?;
                    is_too_large = object.is_too_large();
                }
                let ended = match is_too_large {
                    true => FinishedObject::TooLarge,
                    false => object.finish(&mut wait)?,
                };
                let part = match ended {
                    FinishedObject::Complete(part, content) => {
                        UncommittedOutput::UploadedObject(part, content)
                    }
                    FinishedObject::TooLarge => {
                        return Ok(ConvertedInput::from_uncommitted(UncommittedOutput::TooLarge));
                    }
                };
                let written = OutputSummary { warning, ..OutputSummary::default() };
                return Ok(ConvertedInput {
                    coverage: rows.coverage(),
                    output_summary: written,
                    uncommitted: Some(part),
                });
            }
        };
        let run = match begun {
            Err(run) => run,
            Ok(mut file) => {
                while let Some(batch) = next_rows()? {
                    file.write(&batch)?;
                }
                let part = match target {
                    ConversionTarget::StagedFiles(_) => file.finish_durably()?,
                    _ => file.finish()?,
                };
                let written = OutputSummary { warning, ..OutputSummary::default() };
                let part = Some(UncommittedOutput::StagedFile(part));
                return Ok(ConvertedInput {
                    coverage: rows.coverage(),
                    output_summary: written,
                    uncommitted: part,
                });
            }
        };
        let mut wait = || cancel.check();
        // Escaped: braces in a name are not columns of a path template.
        let target = task.target.replace('{', "{{").replace('}', "}}");
        let url = format!("{}/{target}", self.sink.url.trim_end_matches('/'));
        let spec = SinkSpec { url, ..self.sink.clone() };
        // One thread: several files are written at the same time.
        let room = SinkResources { memory_limit_bytes: limit, threads: 1 };
        let mut sink = match Sink::create_with(&spec, schema, run, room, cancel, &mut wait) {
            Err(tidemill_sink::Error::OutputExists { .. }) if self.skip_existing => {
                return Ok(ConvertedInput::default());
            }
            other => other?,
        };
        while let Some(batch) = next_rows()? {
            sink.write_with(&batch, &mut wait)?;
        }
        let written = sink.commit_with(&mut wait)?;
        let written = OutputSummary { warning: warning.or(written.warning), ..written };
        Ok(ConvertedInput { coverage: rows.coverage(), output_summary: written, uncommitted: None })
    }
}

/// The resources of each of the inputs that are converted at the same time.
struct InputResources {
    /// Number of inputs converted at the same time.
    concurrent_inputs: usize,
    threads: usize,
    memory_bytes: u64,
    /// Part of `memory_bytes` that the output may hold.
    output_memory_bytes_max: usize,
}

impl InputResources {
    fn from_settings(settings: &RunSettings, inputs: usize) -> InputResources {
        let workers = settings.threads.min(inputs).max(1);
        let memory_bytes = settings.memory_bytes / workers as u64;
        let limit = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX);
        InputResources {
            concurrent_inputs: workers,
            threads: (settings.threads / workers).max(1),
            memory_bytes,
            output_memory_bytes_max: limit,
        }
    }
}

/// The destination of the outputs of a set of inputs.
enum ConversionTarget<'a> {
    /// Local files that are committed together.
    FileSet(Box<FileSet>),
    /// Staged files that the driver, which has the set, commits.
    StagedFiles(FileSetWriter),
    /// Objects that the driver, which has the set, commits. The map gives the upload of each target that has
    /// one.
    UploadedObjects(ObjectSetWriter, HashMap<String, String>),
    /// Objects, each of which is committed by itself.
    SeparateObjects(&'a RunId),
}

/// The outcome of converting one input.
#[derive(Default)]
struct ConvertedInput {
    coverage: Coverage,
    output_summary: OutputSummary,
    /// The output, if it is not committed yet.
    uncommitted: Option<UncommittedOutput>,
}

impl ConvertedInput {
    fn from_uncommitted(part: UncommittedOutput) -> Self {
        ConvertedInput { uncommitted: Some(part), ..ConvertedInput::default() }
    }
}

/// An output that is not committed yet.
enum UncommittedOutput {
    StagedFile(StagedSetFile),
    /// An uploaded object. A small one is not uploaded yet, and its bytes are in the vector.
    UploadedObject(StagedObject, Vec<u8>),
    /// An object that is too large for the inline limit and needs an upload.
    TooLarge,
}

impl ConversionInput {
    /// Returns the name of the folder for copies of the input's rejected records, unique among the inputs.
    fn rejected_copies_folder(&self) -> String {
        self.target.replace('/', "-")
    }
}

impl ConversionReport {
    /// Adds the outcome of an input.
    fn add_input(&mut self, coverage: Coverage, written: OutputSummary, settings: &RunSettings) {
        let has_copy = self.coverage.rejected_copy.is_some() || coverage.rejected_copy.is_some();
        let folder = settings.rejected_folder.as_ref().filter(|_| has_copy);
        let rejected_copy = folder.map(|folder| folder.display().to_string());
        self.coverage = Coverage {
            rejected_copy,
            ..merge_coverages(&[std::mem::take(&mut self.coverage), coverage])
        };
        self.output_summary = sum_summaries(std::mem::take(&mut self.output_summary), written);
    }

    /// Adds the error of an input; returns true if further inputs are to be tried.
    fn add_failure(&mut self, error: Error, task: &ConversionInput) -> bool {
        self.failures.push(name_input_in_error(error, &redact_url(&task.url)));
        self.failures.len() < FAILURES_MAX
    }
}

/// The rows that are written for one input.
enum InputRows {
    /// The result of a query over the input.
    Query(Box<Results>),
    /// The input's records as they are. Planning takes a millisecond or two, which is most of the work
    /// for a small file.
    Source(Box<WholeSourceReader>),
}

impl InputRows {
    fn schema(&self) -> &SchemaRef {
        match self {
            InputRows::Query(results) => results.schema(),
            InputRows::Source(copy) => &copy.schema,
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            InputRows::Query(results) => results.next().transpose(),
            InputRows::Source(copy) => copy.next_batch(),
        }
    }

    fn coverage(&self) -> Coverage {
        match self {
            InputRows::Query(results) => results.coverage(),
            InputRows::Source(copy) => copy.coverage.clone(),
        }
    }
}

/// A reader of all splits of a source, from beginning to end.
struct WholeSourceReader {
    source: Arc<Source>,
    schema: SchemaRef,
    splits: std::vec::IntoIter<Split>,
    options: ReadOptions,
    /// The announced accesses of the splits to come.
    access_plan: Option<Arc<AccessPlan>>,
    reader: Option<SplitReader>,
    coverage: Coverage,
    rejected_folder: Option<PathBuf>,
}

impl WholeSourceReader {
    fn open(spec: &SourceSpec, settings: &RunSettings, keeps_columns: bool) -> Result<Self> {
        let cancel = &settings.cancel;
        let source = Arc::new(Source::open_with_stdin(spec, Box::new(std::io::empty()), cancel)?);
        if let Some(refusal) =
            (0..source.schema().fields().len()).find_map(|at| source.column_error(at))
        {
            return Err(refusal.into());
        }
        let mut splits = source.splits()?;
        source.resolve_exact_starts(&mut splits, cancel)?;
        let coverage = Coverage {
            files: source.files().len() as u64,
            splits: ReadAmount { done: 0, total: splits.len() as u64, left_out: 0 },
            bytes: ReadAmount { done: 0, total: source.total_bytes(), left_out: 0 },
            ..Coverage::default()
        };
        let rejected_folder = settings.rejected_folder.clone();
        let rejects = Arc::new(RejectLog::new(settings.max_bad, rejected_folder.clone()));
        let options = ReadOptions {
            cancel: cancel.clone(),
            progress: settings.progress.clone(),
            reject_log: rejects,
            prefetch_budget: PrefetchBudget::with_prefetch_bytes(
                settings.memory_bytes / 16,
                spec.storage_options.read_memory_bytes(),
            ),
            ..ReadOptions::default()
        };
        let course = source.access_plan(&splits, &options)?;
        let splits = splits.into_iter();
        let own = if keeps_columns { source.common_file_schema() } else { None };
        let schema = own.unwrap_or_else(|| source.schema().clone());
        Ok(WholeSourceReader {
            source,
            schema,
            splits,
            options,
            access_plan: course,
            reader: None,
            coverage,
            rejected_folder,
        })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => match self.splits.next() {
                    Some(split) => {
                        let course = self.access_plan.clone().map(|course| (course, split.index));
                        let options = ReadOptions { access_plan: course, ..self.options.clone() };
                        none.insert(self.source.read_split(&split, &options)?)
                    }
                    None => {
                        self.options.reject_log.finish(self.coverage.rows.done)?;
                        // Damage is known only after reading.
                        let salvaged = self.source.salvage_reports();
                        let left_out = salvaged.iter().map(|file| file.bytes_left_out).sum();
                        self.coverage.bytes.left_out = left_out;
                        self.coverage.complete = salvaged.is_empty();
                        self.coverage.unknown_keys = self.options.reject_log.unknown_keys();
                        self.coverage.mismatches = self.options.reject_log.mismatches();
                        self.coverage.salvaged = salvaged;
                        return Ok(None);
                    }
                },
            };
            if let Some(batch) = reader.next() {
                return conform_batch_to_schema(batch?, &self.schema).map(Some);
            }
            let Some(reader) = self.reader.take() else { continue };
            let mut stats = reader.into_stats();
            stats.commit_to(&self.options.reject_log)?;
            let coverage = &mut self.coverage;
            coverage.splits.done += 1;
            coverage.bytes.done += stats.bytes;
            coverage.bytes.total = coverage.bytes.total.max(coverage.bytes.done);
            coverage.rows.done += stats.rows;
            coverage.rows.rejected += stats.rejected_count;
            if coverage.rows.rejected > 0 {
                let folder = self.rejected_folder.as_ref();
                coverage.rejected_copy = folder.map(|folder| folder.display().to_string());
            }
        }
    }
}

fn sum_summaries(one: OutputSummary, two: OutputSummary) -> OutputSummary {
    let mut paths = one.paths;
    paths.extend(two.paths);
    paths.truncate(LISTED_PATHS_MAX);
    OutputSummary {
        files: one.files + two.files,
        rows: one.rows + two.rows,
        bytes: one.bytes + two.bytes,
        paths,
        root: if one.root.is_empty() { two.root } else { one.root },
        warning: one.warning.or(two.warning),
    }
}

/// Adds the input's name to an error that does not contain it.
fn name_input_in_error(error: Error, url: &str) -> Error {
    if error.to_string().contains(url) {
        return error;
    }
    match error {
        Error::Usage { message, hint } => {
            Error::Usage { message: format!("`{url}`: {message}"), hint }
        }
        Error::Query(message) => Error::Query(format!("`{url}`: {message}")),
        other => other,
    }
}

/// Returns the output's name: the input's name with another suffix, without the suffix of its compression.
fn output_name(below: &str, format: OutputFormat) -> String {
    let (stem, _) = Compression::strip_suffix(below);
    let stem = match (Format::from_suffix(stem), stem.rsplit_once('.')) {
        (Some(_), Some((stem, _))) => stem,
        _ => stem,
    };
    format!("{stem}.{}", format.suffix())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_named_as_its_input_with_another_suffix() {
        for (below, expected) in [
            ("a.csv", "a.rowfile"),
            ("x/a.json.gz", "x/a.rowfile"),
            ("x.y/access", "x.y/access.rowfile"),
            ("2013.01", "2013.01.rowfile"),
            ("a.log.zst", "a.rowfile"),
            // The numbers tell these files apart.
            ("a.log.1", "a.log.1.rowfile"),
            ("a.log-20261128.gz", "a.log-20261128.rowfile"),
            ("a.rowfile", "a.rowfile"),
        ] {
            assert_eq!(output_name(below, OutputFormat::Rowfile), expected, "{below}");
        }
        assert_eq!(output_name("a.csv", OutputFormat::Text), "a.txt");
    }
}
