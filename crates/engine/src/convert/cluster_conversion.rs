//! Conversion of inputs to files of a folder by the workers of a cluster.
//!
//! ```text
//!   driver                                   workers
//!     list · begin a set
//!       job: mapping of records, set folder ──►
//!       task: some inputs ───────────────────►  read · convert · write into the set's folder
//!     adopt · commit  ◄──────────────────────── written outputs and their coverage
//!                                                 (to a bucket: into uploads that the task names)
//! ```
//!
//! All machines see the output's folder. A worker writes files there under temporary names. The driver
//! commits them, all files of a set or none, as it commits its own. A worker that is gone leaves a truncated
//! file, which is removed with the set's folder.
//!
//! For a folder in a bucket, a task carries the names of uploads that the driver has begun. The driver logs
//! these uploads where the next run on its machine finds them. A worker sends the parts, and the driver
//! completes all uploads of a set or none. Each execution of a task has its own uploads: after a worker is
//! lost the driver begins new ones, and a worker that executes the task beside another ([`TASK_COPIES_MAX`])
//! has further uploads from the start. The driver aborts unused uploads at the end. An input that is likely
//! to become a small object has no upload, and its bytes come back inline. If it becomes a large object, the
//! driver submits it as another task.
//!
//! A job message is `TIDECONV` and a section `J`; a task and its result are the same with `T` and `D`. Behind
//! these, sections `B` hold copies of rejected records, and sections `O` hold small objects.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::progress::{RunProgress, process_cpu_seconds};
use tidemill_base::state_folder::create_private_folders;
use tidemill_base::{BadRecordLimit, RunSettings};
use tidemill_query::{
    EncodedTask, ScratchSpec, SerializedError, ShippedFile, SubmittedJob, TaskSource, TaskStats,
    TaskTime, UnorderedScheduler,
};
use tidemill_remote::StorageOptions;
use tidemill_sink::{
    BucketFolder, FileSet, FileSetWriter, ObjectSet, OutputFormat, OutputSummary, SinkSpec,
    StagedObject, StagedSetFile,
};
use tidemill_source::programs::companion_files::ProgramFiles;
use tidemill_source::programs::filter_program::FilterProgram;
use tidemill_source::{Compression, SpecDescription};
use tidemill_tables::merging::sections::{self, SectionReader};

use crate::program_files;

use super::{
    Conversion, ConversionInput, ConversionReport, ConversionTarget, ConversionWorkers,
    ConvertedInput, InputResources, RunId, UncommittedOutput,
};

/// The first bytes of each message.
pub(crate) const CONVERSION_MESSAGE_MAGIC: &[u8; 8] = b"TIDECONV";

const JOB_SECTION: u8 = b'J';
const TASK_SECTION: u8 = b'T';
const RESULT_SECTION: u8 = b'D';
const REJECTED_COPY_SECTION: u8 = b'B';
const OBJECT_SECTION: u8 = b'O';

/// Maximum number of inputs in one task.
const TASK_INPUTS_MAX: usize = 64;
/// Target number of tasks for each thread, if there are enough inputs.
const TASKS_PER_THREAD: usize = 8;
/// Maximum number of inputs that are probed for visibility on every machine.
const PROBED_PATHS_MAX: usize = 64;

/// Maximum number of workers that execute a task at the same time with uploads of their own. Large outputs of
/// a further worker become another task.
const TASK_COPIES_MAX: usize = 2;
/// Size from which an input is likely to become an object that is not small. A compressed input needs fewer
/// bytes.
const LARGE_INPUT_BYTES_MIN: u64 = 256 << 10;
const LARGE_COMPRESSED_INPUT_BYTES_MIN: u64 = 32 << 10;

/// The common part of all tasks of a conversion.
#[derive(Debug, Serialize, Deserialize)]
struct ConversionJob {
    source: SpecDescription,
    select: Option<String>,
    condition: Option<String>,
    /// Staging folder of the set; `None` for a folder in a bucket.
    folder: Option<PathBuf>,
    /// The output's path or URL, as the user wrote it.
    output: String,
    format: String,
    compression: Option<String>,
    null: Option<String>,
    header: bool,
    exec: Option<Vec<String>>,
    max_bad: String,
}

/// A task: inputs to convert.
#[derive(Debug, Serialize, Deserialize)]
struct ConversionTask {
    tasks: Vec<ConversionInput>,
    /// Uploads by task copy and input: the upload begun for the input, if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    uploads: Vec<Vec<Option<String>>>,
}

/// The result of a task, with one entry for each input.
#[derive(Debug, Serialize, Deserialize)]
struct ConversionTaskResult {
    done: Vec<InputResult>,
    cpu_us: u64,
    wall_us: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct InputResult {
    came: InputOutcome,
    /// Names of the copies of its rejected records. The contents follow as sections in this order.
    copies: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum InputOutcome {
    Converted {
        part: WrittenOutput,
        coverage: Box<Coverage>,
        warning: Option<String>,
    },
    /// The object needs an upload, which the driver has to begin.
    TooLarge,
    Failed(SerializedError),
}

/// The output of one input.
#[derive(Debug, Serialize, Deserialize)]
enum WrittenOutput {
    File(StagedSetFile),
    /// An object. The bytes of a small one follow in a section.
    Object(StagedObject),
}

impl From<Error> for InputOutcome {
    fn from(error: Error) -> Self {
        InputOutcome::Failed(error.into())
    }
}

fn invalid_message_error(why: &str) -> Error {
    Error::Corrupt {
        path: "a worker's message".to_owned(),
        offset: None,
        reason: why.to_owned(),
        hint: Some("the same release of tidemill has to be on all machines".to_owned()),
    }
}

fn encode_message(kind: u8, of: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(of)
        .map_err(|error| Error::Internal(format!("a message is no JSON: {error}")))?;
    let mut out = CONVERSION_MESSAGE_MAGIC.to_vec();
    append_section(&mut out, kind, &json)?;
    Ok(out)
}

fn append_section(out: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<()> {
    sections::write_section(out, kind, content)
        .map_err(|e| Error::io("write", "a worker's message", e))
}

/// Returns a reader of a message's sections.
fn open_message(bytes: &[u8]) -> Result<SectionReader<'_>> {
    let rest = bytes
        .strip_prefix(CONVERSION_MESSAGE_MAGIC)
        .ok_or_else(|| invalid_message_error("it is of no conversion"))?;
    Ok(SectionReader::new(rest))
}

fn decode_first_section<T: DeserializeOwned>(
    sections: &mut SectionReader<'_>,
    kind: u8,
) -> Result<T> {
    match sections.next_section().map_err(invalid_message_error)? {
        Some((found, content)) if found == kind => serde_json::from_slice(content)
            .map_err(|error| invalid_message_error(&error.to_string())),
        _ => Err(invalid_message_error("a section is missing")),
    }
}

/// Refuses options for scratch storage, which a conversion does not use.
///
/// # Errors
/// [`Error::Usage`] if an option is set.
pub fn check_no_scratch_storage(scratch: &ScratchSpec) -> Result<()> {
    if *scratch == ScratchSpec::default() {
        return Ok(());
    }
    Err(Error::usage_with_hint(
        "files of a folder are written by the workers that read their inputs: nothing goes to scratch files",
        "leave `scratch` and `scratch_above` out, or name a file as the output",
    ))
}

impl Conversion {
    /// Returns the workers of the conversion, if it has any and they can execute it.
    ///
    /// # Errors
    /// [`Error::Usage`] if only one machine can run the conversion. If it may run locally, this is a warning
    /// instead.
    pub(super) fn usable_workers(
        &self,
        all: &mut ConversionReport,
    ) -> Result<Option<&ConversionWorkers>> {
        let Some(there) = &self.workers else { return Ok(None) };
        let Err(why) = self.source.describe() else { return Ok(Some(there)) };
        let why = why.to_string();
        let why = why.lines().next().unwrap_or_default();
        if there.may_run_locally {
            all.output_summary.warning = Some(format!("it runs on this machine: {why}"));
            return Ok(None);
        }
        Err(Error::usage_with_hint(
            format!("the conversion cannot be run on a cluster: {why}"),
            "on one machine it can: leave `on` out",
        ))
    }

    /// Converts a set of inputs on the workers, and commits it.
    pub(super) fn convert_set_on_workers(
        &self,
        tasks: &[ConversionInput],
        format: OutputFormat,
        settings: &RunSettings,
        run: &RunId,
        there: &ConversionWorkers,
        all: &mut ConversionReport,
    ) -> Result<()> {
        match self.bucket_url() {
            Some(_) => self.convert_objects_on_workers(tasks, format, settings, run, there, all),
            None => self.convert_files_on_workers(tasks, format, settings, run, there, all),
        }
    }

    fn convert_files_on_workers(
        &self,
        tasks: &[ConversionInput],
        format: OutputFormat,
        settings: &RunSettings,
        run: &RunId,
        there: &ConversionWorkers,
        all: &mut ConversionReport,
    ) -> Result<()> {
        let (cancel, root) = (&settings.cancel, Path::new(&self.sink.url));
        let mut wait = || cancel.check();
        let limit = InputResources::from_settings(settings, 1).output_memory_bytes_max;
        let set = FileSet::create(root, &self.sink, format, run, limit, cancel, &mut wait)?;
        self.run_on_workers(tasks, &WorkerOutputSet::Files(&set), format, settings, there, all)?;
        let written = set.commit(root, self.sink.overwrite, &mut wait)?;
        all.output_summary = super::sum_summaries(std::mem::take(&mut all.output_summary), written);
        Ok(())
    }

    fn convert_objects_on_workers(
        &self,
        tasks: &[ConversionInput],
        format: OutputFormat,
        settings: &RunSettings,
        run: &RunId,
        there: &ConversionWorkers,
        all: &mut ConversionReport,
    ) -> Result<()> {
        let cancel = &settings.cancel;
        let mut wait = || cancel.check();
        let set = ObjectSet::create(&self.sink, format, run, cancel, &mut wait)?;
        let wanted = self.select_writable_inputs(tasks, &set, cancel, all)?;
        let dealt = match wanted.is_empty() {
            true => Ok(()),
            false => self.run_on_workers(
                &wanted,
                &WorkerOutputSet::Objects(&set),
                format,
                settings,
                there,
                all,
            ),
        };
        if let Err(error) = dealt {
            // An interrupted caller does not wait for the cleanup.
            if !cancel.is_cancelled() {
                set.abandon(&mut wait);
            }
            return Err(error);
        }
        let written = set.commit(self.sink.overwrite, &mut wait)?;
        all.output_summary = super::sum_summaries(std::mem::take(&mut all.output_summary), written);
        Ok(())
    }

    /// Returns the inputs whose objects may be written. Records the others as a conversion on one machine
    /// does.
    fn select_writable_inputs(
        &self,
        tasks: &[ConversionInput],
        set: &ObjectSet,
        cancel: &CancelFlag,
        all: &mut ConversionReport,
    ) -> Result<Vec<ConversionInput>> {
        let (mut named, mut keys) = (Vec::new(), Vec::new());
        for task in tasks {
            match set.object_key(&task.target) {
                Ok(key) => {
                    named.push(task);
                    keys.push(key);
                }
                Err(error) => {
                    all.add_failure(error.into(), task);
                }
            }
        }
        let taken = match self.sink.overwrite {
            true => vec![false; keys.len()],
            false => set.keys_exist(keys.clone(), &mut || cancel.check())?,
        };
        let mut wanted = Vec::new();
        for ((task, key), is_taken) in named.into_iter().zip(keys).zip(taken) {
            match (is_taken, self.skip_existing) {
                (false, _) => wanted.push(task.clone()),
                (true, true) => all.skipped_outputs += 1,
                (true, false) => {
                    all.add_failure(
                        Error::OutputExists { path: set.object_url(&key), more: 0 },
                        task,
                    );
                }
            }
        }
        if all.failures.len() >= super::FAILURES_MAX {
            all.untried_inputs += wanted.len() as u64;
            wanted.clear();
        }
        Ok(wanted)
    }

    /// Converts inputs on the workers into a set.
    fn run_on_workers(
        &self,
        tasks: &[ConversionInput],
        set: &WorkerOutputSet<'_>,
        format: OutputFormat,
        settings: &RunSettings,
        there: &ConversionWorkers,
        all: &mut ConversionReport,
    ) -> Result<()> {
        let cancel = &settings.cancel;
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| Error::io("find", path, error));
        let folder = match set {
            WorkerOutputSet::Files(set) => Some(absolute(set.staging_folder())?),
            WorkerOutputSet::Objects(_) => None,
        };
        let job = ConversionJob {
            source: self.source.describe()?,
            select: self.select.clone(),
            condition: self.condition.clone(),
            folder,
            output: self.sink.url.clone(),
            format: format.name().to_owned(),
            compression: self.sink.compression.as_ref().map(ToString::to_string),
            null: self.sink.null_text.clone(),
            header: self.sink.has_header,
            exec: self.sink.exec.as_ref().map(FilterProgram::portable_argv).transpose()?,
            max_bad: settings.max_bad.to_string(),
        };
        let local = |task: &&ConversionInput| !task.url.contains("://");
        let each = tasks.len().div_ceil(PROBED_PATHS_MAX).max(1);
        let mut paths = tasks
            .iter()
            .filter(local)
            .step_by(each)
            .map(|task| absolute(Path::new(&task.url)))
            .collect::<Result<Vec<_>>>()?;
        if let WorkerOutputSet::Files(set) = set {
            paths.push(absolute(&set.lock_path())?);
        }
        there.pool.start_job(SubmittedJob {
            encoded_job: encode_message(JOB_SECTION, &job)?,
            secrets: self
                .source
                .storage_options
                .with_overrides(&self.sink.storage_options)
                .worker_options(),
            shared_paths: paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            // The programs of source and sink find the same files.
            shipped_files: ShippedFile::collect_from_program(
                self.source.filter_program.as_ref().or(self.sink.exec.as_ref()),
                cancel,
            )?,
        })?;
        let ends = EndJobGuard(there);
        let threads = there.pool.worker_counts()?.threads;
        let inputs = group_inputs(tasks, threads);
        // A program can make many bytes of a few, and must not run twice for one input.
        let is_any = self.sink.exec.is_some() || self.source.filter_program.is_some();
        let mut dealt = ConversionTaskSource {
            uploads_every_input: vec![is_any; inputs.len()],
            large_input_bytes_min: LARGE_INPUT_BYTES_MIN,
            inputs_by_task: inputs,
            set,
            settings,
            report: std::mem::take(all),
            tried_inputs: 0,
        };
        let ran = UnorderedScheduler {
            workers: &there.pool,
            cancel,
            progress: &settings.progress,
            first_number: 0,
            attempts_max: there.task_attempts_max,
        }
        .run_tasks(&mut dealt);
        drop(ends);
        let tried = dealt.tried_inputs;
        *all = dealt.report;
        match ran {
            // Too many inputs have failed.
            Err(Error::Interrupted) if !cancel.is_cancelled() => {}
            ran => ran?,
        }
        cancel.check()?;
        all.untried_inputs += tasks.len().saturating_sub(tried) as u64;
        Ok(())
    }
}

/// The set of outputs that the workers write.
enum WorkerOutputSet<'a> {
    Files(&'a FileSet),
    Objects(&'a ObjectSet),
}

/// Ends the job of the workers when dropped.
struct EndJobGuard<'a>(&'a ConversionWorkers);

impl Drop for EndJobGuard<'_> {
    fn drop(&mut self) {
        self.0.pool.end_job();
    }
}

/// Groups consecutive inputs into tasks of about equal size.
fn group_inputs(tasks: &[ConversionInput], threads: usize) -> Vec<&[ConversionInput]> {
    let total: u64 = tasks.iter().map(|task| task.bytes).sum();
    let target = total.div_ceil((threads.max(1) * TASKS_PER_THREAD) as u64).max(1);
    let most = tasks.len().div_ceil(threads.max(1) * TASKS_PER_THREAD).clamp(1, TASK_INPUTS_MAX);
    let (mut cut, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, task) in tasks.iter().enumerate() {
        bytes += task.bytes;
        if bytes >= target || at + 1 - start >= most || at + 1 == tasks.len() {
            cut.push(&tasks[start..=at]);
            (start, bytes) = (at + 1, 0);
        }
    }
    cut
}

/// The tasks of a conversion, and the results received so far.
struct ConversionTaskSource<'a> {
    inputs_by_task: Vec<&'a [ConversionInput]>,
    /// True for each task whose inputs all get uploads.
    uploads_every_input: Vec<bool>,
    /// In other tasks, inputs of at least this many bytes get uploads.
    large_input_bytes_min: u64,
    set: &'a WorkerOutputSet<'a>,
    settings: &'a RunSettings,
    report: ConversionReport,
    /// Number of inputs whose outcome is known.
    tried_inputs: usize,
}

impl ConversionTaskSource<'_> {
    /// Begins uploads for the inputs of a task that are likely to need them, once for each copy of the task.
    fn begin_task_uploads(
        &self,
        number: usize,
        tasks: &[ConversionInput],
    ) -> Result<Vec<Vec<Option<String>>>> {
        let WorkerOutputSet::Objects(set) = self.set else { return Ok(Vec::new()) };
        let is_sure = self.uploads_every_input.get(number).copied().unwrap_or_default();
        let is_large = |task: &&ConversionInput| {
            let (_, compression) = Compression::strip_suffix(&task.url);
            let least = match compression {
                Compression::None => LARGE_INPUT_BYTES_MIN,
                _ => LARGE_COMPRESSED_INPUT_BYTES_MIN,
            };
            is_sure || task.bytes >= least.min(self.large_input_bytes_min)
        };
        let targets: Vec<&str> =
            tasks.iter().filter(is_large).map(|task| task.target.as_str()).collect();
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let cancel = &self.settings.cancel;
        let all = set.begin_uploads(&targets.repeat(TASK_COPIES_MAX), &mut || cancel.check())?;
        let given = |ids: &[String]| {
            let mut ids = ids.iter();
            let one =
                |task: &ConversionInput| if is_large(&task) { ids.next().cloned() } else { None };
            tasks.iter().map(one).collect()
        };
        Ok(all.chunks(targets.len()).map(given).collect())
    }

    /// Saves copies of rejected records where this machine saves its own.
    fn save_rejected_copies(
        &self,
        task: &ConversionInput,
        copies: Vec<(String, &[u8])>,
    ) -> Result<()> {
        let Some(folder) = &self.settings.rejected_folder else { return Ok(()) };
        let folder = folder.join(task.rejected_copies_folder());
        for (name, content) in copies {
            let name = Path::new(&name);
            if !name.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(invalid_message_error("a copy's name leads elsewhere"));
            }
            let path = folder.join(name);
            let parent = path.parent().unwrap_or(&folder);
            let written =
                create_private_folders(parent).and_then(|()| std::fs::write(&path, content));
            written.map_err(|error| Error::io("write", &path, error))?;
        }
        Ok(())
    }
}

impl TaskSource for ConversionTaskSource<'_> {
    fn task_count(&self) -> usize {
        self.inputs_by_task.len()
    }

    fn encode_task(&mut self, number: usize) -> Result<EncodedTask> {
        let tasks = self.inputs_by_task.get(number).copied().unwrap_or_default();
        let uploads = self.begin_task_uploads(number, tasks)?;
        Ok(EncodedTask {
            cost_bytes: tasks.iter().map(|task| task.bytes).sum(),
            display_name: format!("convert {} of {}", number + 1, self.inputs_by_task.len()),
            encoded_task: encode_message(
                TASK_SECTION,
                &ConversionTask { tasks: tasks.to_vec(), uploads },
            )?,
        })
    }

    fn accept_result(&mut self, number: usize, content: Vec<u8>) -> Result<TaskStats> {
        let tasks = self.inputs_by_task.get(number).copied().unwrap_or_default();
        let mut sections = open_message(&content)?;
        let ConversionTaskResult { done, cpu_us, wall_us } =
            decode_first_section(&mut sections, RESULT_SECTION)?;
        if done.len() != tasks.len() {
            return Err(invalid_message_error("it is not of all inputs of its task"));
        }
        let (mut bytes, mut goes_on) = (0, true);
        self.tried_inputs += tasks.len();
        for (task, InputResult { came, copies }) in tasks.iter().zip(done) {
            let copies = copies
                .into_iter()
                .map(|name| match sections.next_section().map_err(invalid_message_error)? {
                    Some((REJECTED_COPY_SECTION, content)) => Ok((name, content)),
                    _ => Err(invalid_message_error("a copy is missing")),
                })
                .collect::<Result<Vec<_>>>()?;
            self.save_rejected_copies(task, copies)?;
            match came {
                InputOutcome::TooLarge => {
                    if let WorkerOutputSet::Files(_) = self.set {
                        return Err(invalid_message_error("a file is never too large"));
                    }
                    // Other inputs of its size are likely to be too large as well.
                    self.large_input_bytes_min = self.large_input_bytes_min.min(task.bytes);
                    self.tried_inputs -= 1;
                    self.inputs_by_task.push(std::slice::from_ref(task));
                    self.uploads_every_input.push(true);
                }
                InputOutcome::Converted { part, coverage, warning } => {
                    match (self.set, part) {
                        (WorkerOutputSet::Files(set), WrittenOutput::File(part)) => {
                            set.adopt_file(part)?
                        }
                        (WorkerOutputSet::Objects(set), WrittenOutput::Object(part)) => {
                            let content = match part.has_inline_content() {
                                false => &[],
                                true => match sections
                                    .next_section()
                                    .map_err(invalid_message_error)?
                                {
                                    Some((OBJECT_SECTION, content)) => content,
                                    _ => return Err(invalid_message_error("an object is missing")),
                                },
                            };
                            set.adopt_object(part, content)?;
                        }
                        _ => {
                            return Err(invalid_message_error(
                                "it was written elsewhere than it is asked for",
                            ));
                        }
                    }
                    bytes += coverage.bytes.done;
                    self.settings.progress.add_bytes(coverage.bytes.done);
                    self.settings.progress.add_rows(coverage.rows.done);
                    let written = OutputSummary { warning, ..OutputSummary::default() };
                    self.report.add_input(*coverage, written, self.settings);
                }
                InputOutcome::Failed(failure) => match Error::from(failure) {
                    Error::Interrupted => return Err(Error::Interrupted),
                    error => goes_on &= self.report.add_failure(error, task),
                },
            }
        }
        let took =
            TaskTime { cpu: Duration::from_micros(cpu_us), wall: Duration::from_micros(wall_us) };
        self.settings.progress.map_counters().add_worker_cpu(took.cpu);
        // Further inputs would fail as well.
        if goes_on {
            Ok(TaskStats { time: took, input_bytes: bytes })
        } else {
            Err(Error::Interrupted)
        }
    }

    fn work_description(&self, number: usize) -> String {
        let tasks = self.inputs_by_task.get(number).copied().unwrap_or_default();
        let first = tasks.first().map_or("", |task| task.url.as_str());
        let first = tidemill_base::redaction::redact_url(first);
        match tasks.len() {
            0 | 1 => format!("`{first}`"),
            count => format!("the same {count} inputs, `{first}` being the first"),
        }
    }
}

/// The place where a worker writes its outputs.
enum TaskOutputLocation {
    Folder(PathBuf),
    Bucket(BucketFolder),
}

/// Executes the tasks of a conversion in a worker process.
pub(crate) struct ConversionTaskExecutor {
    conversion: Conversion,
    output_location: TaskOutputLocation,
    format: OutputFormat,
    settings: RunSettings,
    /// Serializes tasks, as one task uses all threads.
    task_lock: Mutex<()>,
}

impl ConversionTaskExecutor {
    /// Prepares the execution of a job.
    ///
    /// # Errors
    /// Returns an error if the job comes from another release.
    pub(crate) fn new(
        job: &[u8],
        settings: &RunSettings,
        storage: &StorageOptions,
        files: &[(String, PathBuf)],
    ) -> Result<ConversionTaskExecutor> {
        let job: ConversionJob = decode_first_section(&mut open_message(job)?, JOB_SECTION)?;
        let format: OutputFormat = job.format.parse()?;
        let mut sink = SinkSpec {
            format: Some(format),
            compression: job.compression.as_deref().map(str::parse).transpose()?,
            null_text: job.null,
            has_header: job.header,
            exec: job.exec.map(FilterProgram::new).transpose()?,
            ..SinkSpec::new(job.output)
        };
        let mut source = job.source.to_source_spec(String::new(), storage)?;
        let parent = settings.spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
        let files = ProgramFiles::from_local_files(files, &parent)?;
        program_files::attach_program_files(files.as_ref(), &mut source.filter_program);
        program_files::attach_program_files(files.as_ref(), &mut sink.exec);
        let max_bad: BadRecordLimit = job.max_bad.parse()?;
        let settings = RunSettings { max_bad, cores: None, ..settings.clone() };
        let conversion = Conversion {
            source,
            select: job.select,
            condition: job.condition,
            sink,
            skip_existing: false,
            workers: None,
        };
        let place = match job.folder {
            Some(folder) => TaskOutputLocation::Folder(folder),
            None => {
                let url = &conversion.sink.url;
                TaskOutputLocation::Bucket(BucketFolder::open(url, storage, &settings.cancel)?)
            }
        };
        let in_work = Mutex::new(());
        Ok(ConversionTaskExecutor {
            conversion,
            output_location: place,
            format,
            settings,
            task_lock: in_work,
        })
    }

    /// Executes a task, and returns the message for the driver: the results, or the error.
    pub(crate) fn run_task(&self, task: &[u8], copy: usize) -> Vec<u8> {
        let _alone = self.task_lock.lock();
        let tasks = open_message(task).and_then(|mut sections| {
            decode_first_section::<ConversionTask>(&mut sections, TASK_SECTION)
        });
        let count = tasks.as_ref().map_or(1, |inputs| inputs.tasks.len());
        let done = tasks.and_then(|inputs| catch_panic(|| self.convert_inputs(&inputs, copy)));
        done.or_else(|error| {
            let failed = |_| InputResult { came: error.duplicate().into(), copies: Vec::new() };
            encode_message(
                RESULT_SECTION,
                &ConversionTaskResult {
                    done: (0..count).map(failed).collect(),
                    cpu_us: 0,
                    wall_us: 0,
                },
            )
        })
        // An empty message is invalid, and the driver reports it.
        .unwrap_or_default()
    }

    fn convert_inputs(&self, inputs: &ConversionTask, copy: usize) -> Result<Vec<u8>> {
        let tasks = inputs.tasks.as_slice();
        let (began, cpu_before) = (Instant::now(), process_cpu_seconds());
        // Rejected records are copied if the run tolerates any.
        let copies = match self.settings.max_bad {
            BadRecordLimit::Count(0) => None,
            _ => Some(create_rejected_copies_folder(&self.settings)?),
        };
        let settings = RunSettings {
            rejected_folder: copies.as_ref().map(|copies| copies.0.clone()),
            progress: RunProgress::new(),
            ..self.settings.clone()
        };
        let limit = InputResources::from_settings(&settings, tasks.len()).output_memory_bytes_max;
        let (sink, cancel) = (&self.conversion.sink, &settings.cancel);
        let target = match &self.output_location {
            TaskOutputLocation::Folder(folder) => ConversionTarget::StagedFiles(
                FileSetWriter::new(folder, sink, self.format, limit, cancel)?,
            ),
            TaskOutputLocation::Bucket(place) => {
                let begun = inputs.uploads.get(copy).map(Vec::as_slice).unwrap_or_default();
                let begun = tasks
                    .iter()
                    .zip(begun)
                    .filter_map(|(task, upload)| Some((task.target.clone(), upload.clone()?)));
                let uploads: HashMap<String, String> = begun.collect();
                ConversionTarget::UploadedObjects(
                    place.new_writer(sink, self.format, limit, cancel)?,
                    uploads,
                )
            }
        };
        let done: Vec<Mutex<Option<Result<ConvertedInput>>>> =
            tasks.iter().map(|_| Mutex::new(None)).collect();
        self.conversion.convert_inputs(tasks, &settings, &target, &|index, one| {
            *done[index].lock() = Some(one);
            Ok(true)
        })?;
        cancel.check()?;
        let (mut said, mut kept) = (Vec::with_capacity(tasks.len()), Vec::new());
        for (task, one) in tasks.iter().zip(done) {
            let mut small = None;
            let came = match one.into_inner() {
                Some(Ok(ConvertedInput {
                    mut coverage,
                    output_summary: written,
                    uncommitted: part,
                })) => {
                    let told = match part {
                        Some(UncommittedOutput::StagedFile(part)) => {
                            Some(WrittenOutput::File(part))
                        }
                        Some(UncommittedOutput::UploadedObject(part, content)) => {
                            small = part.has_inline_content().then_some(content);
                            Some(WrittenOutput::Object(part))
                        }
                        Some(UncommittedOutput::TooLarge) | None => None,
                    };
                    coverage.rejected_copy = coverage.rejected_copy.map(|_| String::new());
                    let (coverage, warning) = (Box::new(coverage), written.warning);
                    match told {
                        Some(part) => InputOutcome::Converted { part, coverage, warning },
                        None => InputOutcome::TooLarge,
                    }
                }
                Some(Err(error)) => error.into(),
                None => Error::Interrupted.into(),
            };
            let folder = settings.rejected_folder.as_ref();
            // An input that is converted again reports its rejected records then.
            let folder = folder.filter(|_| !matches!(came, InputOutcome::TooLarge));
            let own = folder.map(|folder| folder.join(task.rejected_copies_folder()));
            let files = own.map_or(Ok(Vec::new()), |own| read_files_below(&own))?;
            let copies = files.iter().map(|(name, _)| name.clone()).collect();
            kept.extend(files.into_iter().map(|(_, content)| (REJECTED_COPY_SECTION, content)));
            kept.extend(small.map(|content| (OBJECT_SECTION, content)));
            said.push(InputResult { came, copies });
        }
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let cpu = (process_cpu_seconds() - cpu_before).max(0.0);
        let cpu_us = us(Duration::try_from_secs_f64(cpu).unwrap_or_default());
        let mut out = encode_message(
            RESULT_SECTION,
            &ConversionTaskResult { done: said, cpu_us, wall_us: us(began.elapsed()) },
        )?;
        for (kind, content) in kept {
            append_section(&mut out, kind, &content)?;
        }
        Ok(out)
    }
}

/// A temporary folder for copies of rejected records, removed when dropped.
struct RejectedCopiesFolder(PathBuf);

impl Drop for RejectedCopiesFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn create_rejected_copies_folder(settings: &RunSettings) -> Result<RejectedCopiesFolder> {
    let parent = settings.spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("tidemill-refused-{}", RunId::new()));
    create_private_folders(&folder).map_err(|error| Error::io("write", &folder, error))?;
    Ok(RejectedCopiesFolder(folder))
}

/// Reads all files below a folder: their relative paths and contents. A missing folder has no files.
fn read_files_below(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        let failed = |error| Error::io("read", &next, error);
        let entries = match std::fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            files.push((name, std::fs::read(&path).map_err(failed)?));
        }
    }
    files.sort();
    Ok(files)
}
