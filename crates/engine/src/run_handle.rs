//! A handle of a run on its own thread, whose owner can watch for other events while it waits.
//!
//! The command line waits for Ctrl-C, and Python for its interpreter's signals. A read from a
//! pipe without a writer cannot be interrupted, and must not block either of them. Therefore a
//! thread plans, reads and computes. It sends record batches through a short
//! channel, which the owner polls with a time limit ([`RunHandle::next_event`]). An owner that has
//! cancelled the run and waited [`CANCEL_GRACE_PERIOD`] abandons it. The thread ends at its next
//! check of the flag, or with the process.
//!
//! The output belongs to the owner and not to the thread: dropping it removes the staged files,
//! even if the thread is stuck.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::array::{AsArray, LargeBinaryArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tidemill_base::cancellation::{CancelFlag, Interrupted};
use tidemill_base::cores::{CoreSharing, PRIORITY_ENV_VAR, RunPriority};
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result, catch_panic, error_from_panic};
use tidemill_base::state_folder::{RunId, StateFolder};
use tidemill_base::{BadRecordLimit, RunSettings, memory_budget};
use tidemill_jobs::{RunDescription, RunEnding, RunRecorder};
use tidemill_query::{
    DistributedOutput, InterimResult, InterimResultObserver, PartialTableMerge, Query, QueryPlan,
    RepeatedRunPolicy, Results, TurboSettings, late_seconds,
};
use tidemill_sink::{OutputSummary, Sink, SinkResources, SinkSpec, StagedFile};

use crate::explanation::Explanation;
use crate::job::ResourceLimits;
use crate::posted_query::PostedQuery;
use crate::posted_query::master_client::{MasterClient, MasterMessage};
use crate::rowfile_reader::RowfileSet;
use crate::uniform_result_schema::UniformResultSchema;

/// Time that a cancelled run has to end by itself before its owner abandons it.
pub const CANCEL_GRACE_PERIOD: Duration = Duration::from_millis(500);

/// Environment variable for the number of threads. It overrides a job file's `threads`; `--threads` overrides
/// it.
pub const THREADS_ENV_VAR: &str = "TIDEMILL_THREADS";

/// Size of the pieces in which a partial table is sent.
const PARTIAL_TABLE_PIECE_BYTES: u64 = 1 << 20;

/// Maximum number of messages that wait for the owner.
const QUEUED_MESSAGES_MAX: usize = 2;

/// The id and the settings of a run, and a warning for the user before it starts.
#[derive(Debug)]
pub struct PreparedRun {
    /// The run's id.
    pub run_id: RunId,
    /// The settings that result from the resource limits.
    pub settings: RunSettings,
    /// The reason why rejected records cannot be saved or the priority has no effect, if there is one.
    pub warning: Option<String>,
}

impl PreparedRun {
    /// Starts the run's record in the job log. A failure to write it is a warning, unless there is
    /// a warning already.
    ///
    /// # Errors
    /// [`Error::Usage`] if [`JOB_LOG_ENV_VAR`](tidemill_jobs::JOB_LOG_ENV_VAR) is invalid.
    pub fn start_recorder(&mut self, about: RunDescription) -> Result<RunRecorder> {
        let (recorder, warning) = RunRecorder::start(&self.run_id, &self.settings, about)?;
        if self.warning.is_none() {
            self.warning = warning;
        }
        Ok(recorder)
    }
}

/// Converts resource limits from text into settings. The caller's own limits come first, then the
/// environment's, then the job's, then the defaults.
///
/// # Errors
/// [`Error::Usage`] for an invalid limit, and for a folder that cannot take spill files.
pub fn prepare_run(own: &ResourceLimits, job: &ResourceLimits) -> Result<PreparedRun> {
    let memory_bytes =
        memory_budget::resolve_memory_budget(own.memory.as_deref(), job.memory.as_deref())?;
    let mut settings = RunSettings::new(memory_bytes);
    if let Some(threads) =
        own.threads.map_or_else(threads_from_environment, |count| Ok(Some(count)))?
    {
        settings.threads = threads;
    } else if let Some(threads) = job.threads {
        settings.threads = threads;
    }
    if let Some(max_bad) = own.max_bad.as_ref().or(job.max_bad.as_ref()) {
        settings.max_bad = max_bad.parse()?;
    }
    if let Some(named) =
        [own, job].map(|limits| &limits.spill_dirs).into_iter().find(|named| !named.is_empty())
    {
        tidemill_operators::spills::check_spill_folders(named)?;
        settings.spill_dirs.clone_from(named);
    }
    let id = RunId::new();
    let mut warning = None;
    // The run folder takes copies of tolerated records; a run that tolerates none leaves no trace.
    if settings.max_bad != BadRecordLimit::Count(0) {
        let (home, why_not) = StateFolder::open();
        settings.rejected_folder = home.map(|home| home.run_folder(&id).path().to_owned());
        warning = why_not;
    }
    let (cores, why_not) = open_core_sharing(own.priority.as_deref(), job.priority.as_deref())?;
    settings.cores = cores;
    Ok(PreparedRun { run_id: id, settings, warning: warning.or(why_not) })
}

/// Opens the core sharing with other runs. Returns a warning if a requested priority cannot take effect.
fn open_core_sharing(
    own: Option<&str>,
    job: Option<&str>,
) -> Result<(Option<CoreSharing>, Option<String>)> {
    let variable = std::env::var(PRIORITY_ENV_VAR).ok();
    let Some(priority) = first_given_priority(own, variable.as_deref(), job)? else {
        // A run that requests no priority gets no warning.
        return Ok((Some(CoreSharing::new(RunPriority::default())), None));
    };
    let (home, why_not) = StateFolder::open();
    let Some(home) = home else { return Ok((None, why_not)) };
    Ok(match CoreSharing::open(&home, priority) {
        Ok(cores) => (Some(cores), None),
        Err(error) => {
            let folder = home.path().display();
            let warning = format!(
                "priority `{priority}` changes nothing: runs cannot share cores through the state \
                 folder `{folder}`: {error}"
            );
            (None, Some(warning))
        }
    })
}

/// Returns the priority that a run requests: the caller's own, then the environment's, then the job's.
///
/// # Errors
/// [`Error::Usage`] for an invalid priority.
pub fn resolve_priority(own: &ResourceLimits, job: &ResourceLimits) -> Result<RunPriority> {
    let variable = std::env::var(PRIORITY_ENV_VAR).ok();
    let said = first_given_priority(
        own.priority.as_deref(),
        variable.as_deref(),
        job.priority.as_deref(),
    )?;
    Ok(said.unwrap_or_default())
}

/// Parses the first priority that is given.
fn first_given_priority(
    own: Option<&str>,
    variable: Option<&str>,
    job: Option<&str>,
) -> Result<Option<RunPriority>> {
    let variable = variable.filter(|text| !text.trim().is_empty());
    match (own, variable, job) {
        (Some(text), _, _) | (None, None, Some(text)) => text.parse().map(Some),
        (None, Some(text), _) => {
            let named = |error| Error::usage(format!("{PRIORITY_ENV_VAR}: {error}"));
            text.parse().map(Some).map_err(named)
        }
        (None, None, None) => Ok(None),
    }
}

fn threads_from_environment() -> Result<Option<usize>> {
    let Ok(text) = std::env::var(THREADS_ENV_VAR) else { return Ok(None) };
    match text.trim() {
        "" => Ok(None),
        count => match count.parse() {
            Ok(count) if count > 0 => Ok(Some(count)),
            _ => Err(Error::usage(format!(
                "{THREADS_ENV_VAR}: `{count}` is not a number of threads, at least 1"
            ))),
        },
    }
}

/// Starts the time of a query's deadline, unless it has started already. Returns the query and its deadline.
fn start_clock(query: Query) -> (Query, Option<Instant>) {
    let turbo = query.turbo.map(TurboSettings::with_start_time);
    let ends_at = turbo.as_ref().and_then(TurboSettings::ends_at);
    (Query { turbo, ..query }, ends_at)
}

/// Sends the schema before the work, which may take long, and then the rows as they arrive.
fn send_results(
    messages: &SyncSender<RunMessage>,
    schema: SchemaRef,
    work: impl FnOnce() -> Result<Results>,
) -> Result<Coverage> {
    let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
    send(RunMessage::Schema(Arc::clone(&schema)))?;
    let mut results = work()?;
    // An interim result that becomes the result has bounds beside its estimates.
    if *results.schema() != schema {
        send(RunMessage::Schema(Arc::clone(results.schema())))?;
    }
    for batch in &mut results {
        send(RunMessage::Batch(batch?))?;
    }
    Ok(results.coverage())
}

/// A message from the run's thread to the owner.
enum RunMessage {
    Schema(SchemaRef),
    Batch(RecordBatch),
    /// A newer interim result is available, unless the owner has taken it since.
    InterimResultReady,
    /// A warning for the user, independent of the run's outcome.
    Warning(String),
    End(Result<Box<Coverage>>),
}

/// The newest interim result, until the owner takes it. A slow owner misses those before it.
type LatestInterimResult = Arc<Mutex<Option<Box<InterimResult>>>>;

/// Replaces the interim result, and wakes the owner.
fn publish_interim_result(
    latest: &LatestInterimResult,
    messages: &SyncSender<RunMessage>,
    glimpse: InterimResult,
) {
    *latest.lock() = Some(Box::new(glimpse));
    // The message only wakes the owner, who also checks for an interim result after every other message.
    drop(messages.try_send(RunMessage::InterimResultReady));
}

/// The event that [`RunHandle::next_event`] returns within its time limit.
#[derive(Debug)]
pub enum RunEvent {
    /// A batch of rows.
    Batch(RecordBatch),
    /// The newest interim result of a [watched query](RunHandle::start_watched_query). Older ones that were
    /// not taken are skipped. Rows come after the last one.
    InterimResult(Box<InterimResult>),
    /// The end of the run; [`RunHandle::coverage`] is final.
    End,
    /// No event within the time limit.
    NothingYet,
}

/// A handle of a run on its own thread. Dropping it cancels the run.
#[derive(Debug)]
pub struct RunHandle {
    messages: Receiver<RunMessage>,
    latest_interim_result: LatestInterimResult,
    current_schema: Option<SchemaRef>,
    /// The schema of the result as planned.
    planned_schema: Option<SchemaRef>,
    /// The schema of interim results. The thread sets it before it sends the result, if there are interim
    /// results.
    interim_schema: Arc<OnceLock<SchemaRef>>,
    /// True if all interim results and the result are to have one schema.
    wants_uniform_schema: bool,
    /// The common schema, once known; the inner value is `None` if batches need no change.
    uniform_schema: Option<Option<UniformResultSchema>>,
    coverage: Option<Coverage>,
    cancel: CancelFlag,
    /// Number of threads of the run. Encoding its rows uses as many.
    threads: usize,
    cancelled_at: Option<Instant>,
    recorder: Option<RunRecorder>,
    row_count: u64,
    warning: Option<String>,
    /// True if a master sends the warnings that follow from the coverage.
    master_sends_warnings: bool,
    /// Time at which the answer is due, if the query has a deadline.
    deadline: Option<Instant>,
    /// The output that workers may write. [`write_to_sink`] tells its location, and adopts the files that
    /// they have written.
    distributed_output: Option<DistributedOutput>,
}

impl RunHandle {
    /// Starts to plan and run a query.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started; all others come from [`RunHandle::wait_for_schema`] and
    /// [`RunHandle::next_event`].
    pub fn start_query(query: Query, settings: RunSettings) -> Result<RunHandle> {
        let (query, ends_at) = start_clock(query);
        let output = query.output.clone();
        let mut running =
            RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
                let plan = QueryPlan::new(&query, &settings)?;
                if let Some(warning) = plan.warning() {
                    messages.send(RunMessage::Warning(warning)).map_err(|_| Error::Interrupted)?;
                }
                send_results(messages, plan.schema().clone(), || plan.run())
            })?;
        running.deadline = ends_at;
        running.distributed_output = output;
        Ok(running)
    }

    /// Starts a query as [`start_query`](Self::start_query) does, and also returns
    /// [`RunEvent::InterimResult`] if the query can have them. Setting [`RunSettings::stop_reading`] makes
    /// the last interim result the result.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_watched_query(query: Query, settings: RunSettings) -> Result<RunHandle> {
        let latest = LatestInterimResult::default();
        let shown = Arc::clone(&latest);
        let glimpsed = Arc::<OnceLock<SchemaRef>>::default();
        let columns = Arc::clone(&glimpsed);
        let (query, ends_at) = start_clock(query);
        let mut running =
            RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
                let plan = QueryPlan::new(&query, &settings)?;
                if let Some(warning) = plan.warning() {
                    messages.send(RunMessage::Warning(warning)).map_err(|_| Error::Interrupted)?;
                }
                let mut watch = |glimpse: InterimResult| {
                    columns.get_or_init(|| Arc::clone(&glimpse.schema));
                    publish_interim_result(&latest, messages, glimpse);
                };
                let watch = InterimResultObserver::new(&mut watch);
                send_results(messages, plan.schema().clone(), || {
                    let results = plan.run_watched(Some(watch));
                    // The result replaces an interim result that was not taken.
                    latest.lock().take();
                    results
                })
            })?;
        running.latest_interim_result = shown;
        running.interim_schema = glimpsed;
        running.deadline = ends_at;
        Ok(running)
    }

    /// Converts all interim results and the result to one schema: the result's columns, and bounds behind
    /// each estimate. In the result of a whole input both bounds equal the value. The schema is known after
    /// the first interim result.
    #[must_use]
    pub fn with_uniform_schema(mut self) -> RunHandle {
        self.wants_uniform_schema = true;
        self
    }

    /// Returns true if [`with_uniform_schema`](Self::with_uniform_schema) added bounds to the result. The
    /// result is then exact, and both bounds equal the value.
    pub fn has_added_bounds(&mut self) -> bool {
        self.uniform_schema().is_some()
    }

    /// Starts to explain a query, as one row for [`Explanation::request_from_master`].
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub(crate) fn start_explanation(query: Query, settings: RunSettings) -> Result<RunHandle> {
        RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
            let row = Explanation::new(&query, &settings, None)?.to_row()?;
            send(RunMessage::Schema(row.schema()))?;
            send(RunMessage::Batch(row))?;
            Ok(Coverage::default())
        })
    }

    /// Starts a query that returns its groups as the bytes of a partial table, for
    /// [`RunHandle::start_posted_partial_table`]. `run` is the client's run id.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub(crate) fn start_partial_table(
        query: Query,
        settings: RunSettings,
        run: RunId,
    ) -> Result<RunHandle> {
        RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
            let plan = QueryPlan::new(&query, &settings)?;
            let parent = settings.spill_dirs.first().cloned().unwrap_or_else(std::env::temp_dir);
            let folder = tempfile::Builder::new().prefix("tidemill-partial-").tempdir_in(&parent);
            let folder = folder.map_err(|e| Error::io("create a folder in", &parent, e))?;
            let path = folder.path().join("part");
            let coverage = plan.write_partial_table(&path, false, &run)?;
            let mut file = File::open(&path).map_err(|e| Error::io("read", &path, e))?;
            let mut is_told = false;
            loop {
                let mut piece = Vec::new();
                let count =
                    Read::by_ref(&mut file).take(PARTIAL_TABLE_PIECE_BYTES).read_to_end(&mut piece);
                if count.map_err(|e| Error::io("read", &path, e))? == 0 {
                    return Ok(coverage);
                }
                let piece = LargeBinaryArray::from_vec(vec![piece.as_slice()]);
                let piece = RecordBatch::try_from_iter([("bytes", Arc::new(piece) as _)])?;
                if !is_told {
                    send(RunMessage::Schema(piece.schema()))?;
                    is_told = true;
                }
                send(RunMessage::Batch(piece))?;
            }
        })
    }

    /// Starts a query on a master that stops at its aggregate tables, and writes these to `out` as a partial
    /// table.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_posted_partial_table(
        master: MasterClient,
        question: PostedQuery,
        settings: RunSettings,
        (out, overwrite, run): (PathBuf, bool, RunId),
    ) -> Result<RunHandle> {
        RunHandle::start_without_rows(settings.cancel.clone(), move || {
            let mut file = StagedFile::create(&out, overwrite, &run)?;
            let mut bytes = 0;
            let coverage =
                master.run_query(question.for_partial_table(&run), &settings, |taken| {
                    let MasterMessage::Rows(batch) = taken else { return Ok(()) };
                    let pieces = batch.columns().first().and_then(|it| it.as_binary_opt::<i64>());
                    for piece in pieces.into_iter().flatten().flatten() {
                        file.write_all(piece).map_err(|e| Error::io("write", &out, e))?;
                        bytes += piece.len() as u64;
                    }
                    Ok(())
                })?;
            settings.progress.set_partial_table_bytes(bytes);
            file.commit(bytes)?;
            Ok(coverage)
        })
    }

    /// Starts a query on a cluster's master.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_posted_query(
        master: MasterClient,
        question: PostedQuery,
        settings: RunSettings,
    ) -> Result<RunHandle> {
        let (latest, ends_at) = (LatestInterimResult::default(), question.deadline());
        let shown = Arc::clone(&latest);
        let mut running =
            RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
                master.run_query(question, &settings, |taken| {
                    let message = match taken {
                        MasterMessage::Schema(schema) => RunMessage::Schema(schema),
                        MasterMessage::Rows(batch) => {
                            // The result replaces an interim result that was not taken.
                            latest.lock().take();
                            RunMessage::Batch(batch)
                        }
                        MasterMessage::InterimResult(glimpse) => {
                            publish_interim_result(&latest, messages, *glimpse);
                            return Ok(());
                        }
                        MasterMessage::Warning(text) => RunMessage::Warning(text),
                    };
                    messages.send(message).map_err(|_| Error::Interrupted)
                })
            })?;
        running.latest_interim_result = shown;
        running.master_sends_warnings = true;
        running.deadline = ends_at;
        Ok(running)
    }

    /// Starts to merge and finish partial tables.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_merge(
        partials: Vec<PathBuf>,
        repeats: RepeatedRunPolicy,
        settings: RunSettings,
    ) -> Result<RunHandle> {
        RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let merge = PartialTableMerge::open_with_repeat_policy(&partials, repeats, &settings)?;
            send_results(messages, merge.schema().clone(), || merge.run())
        })
    }

    /// Starts to read rowfiles with their own types.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_rowfile_read(files: Arc<RowfileSet>, settings: RunSettings) -> Result<RunHandle> {
        RunHandle::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
            send(RunMessage::Schema(Arc::clone(files.schema())))?;
            let RunSettings { threads, cancel, progress, .. } = &settings;
            files.read_batches(*threads, cancel, progress, |batch| send(RunMessage::Batch(batch)))
        })
    }

    /// Starts work that returns no rows, such as writing a partial table.
    ///
    /// # Errors
    /// The errors of [`RunHandle::start_query`].
    pub fn start_without_rows(
        cancel: CancelFlag,
        work: impl FnOnce() -> Result<Coverage> + Send + 'static,
    ) -> Result<RunHandle> {
        RunHandle::spawn(cancel, 1, move |_| work())
    }

    fn spawn(
        cancel: CancelFlag,
        threads: usize,
        work: impl FnOnce(&SyncSender<RunMessage>) -> Result<Coverage> + Send + 'static,
    ) -> Result<RunHandle> {
        let (sender, messages) = sync_channel(QUEUED_MESSAGES_MAX);
        std::thread::Builder::new()
            .name("run".to_owned())
            .spawn(move || {
                let end = catch_panic(|| work(&sender)).map(Box::new);
                // An abandoned run has no receiver.
                let _ = sender.send(RunMessage::End(end));
            })
            .map_err(|source| Error::io("start", "a thread", source))?;
        Ok(RunHandle {
            messages,
            latest_interim_result: LatestInterimResult::default(),
            current_schema: None,
            planned_schema: None,
            interim_schema: Arc::default(),
            wants_uniform_schema: false,
            uniform_schema: None,
            coverage: None,
            cancel,
            threads,
            cancelled_at: None,
            recorder: None,
            row_count: 0,
            warning: None,
            master_sends_warnings: false,
            deadline: None,
            distributed_output: None,
        })
    }

    /// Records the run in the job log when it ends: with its output if [`write_to_sink`] writes
    /// one, or else once its last row is taken.
    #[must_use]
    pub fn with_recorder(mut self, recorder: RunRecorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Takes the warnings for the user, such as the reason why the run could not be recorded. Returns each
    /// warning once.
    pub fn take_warning(&mut self) -> Option<String> {
        for warning in tidemill_remote::disk_cache::take_warnings() {
            self.add_warning(Some(warning));
        }
        self.warning.take()
    }

    /// Finishes the run's record, if it is still open.
    fn finish_record(&mut self, ending: RunEnding<'_>) {
        if let Some(recorder) = self.recorder.take() {
            let warning = recorder.finish(ending);
            self.add_warning(warning);
        }
    }

    fn add_warning(&mut self, warning: Option<String>) {
        let Some(warning) = warning else { return };
        match &mut self.warning {
            Some(first) => {
                first.push('\n');
                first.push_str(&warning);
            }
            none => *none = Some(warning),
        }
    }

    /// Returns the result's schema. Waits for the plan, and calls `tick` about every 50 ms.
    ///
    /// # Errors
    /// Errors of planning; [`Error::Interrupted`] if `tick` returns it.
    pub fn wait_for_schema(
        &mut self,
        mut tick: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<SchemaRef> {
        loop {
            if let Some(schema) = &self.current_schema {
                let schema = Arc::clone(schema);
                let columns = self.uniform_schema();
                return Ok(columns.map_or(schema, |columns| Arc::clone(columns.schema())));
            }
            tick()?;
            match self.receive_and_record(POLL_INTERVAL)? {
                None | Some(RunMessage::Schema(_) | RunMessage::Warning(_)) => {}
                Some(
                    RunMessage::Batch(_) | RunMessage::InterimResultReady | RunMessage::End(_),
                ) => {
                    return Err(Error::Internal("a run without a schema".to_owned()));
                }
            }
        }
    }

    /// Returns the result's schema if it is known by now.
    pub(crate) fn known_schema(&self) -> Option<&SchemaRef> {
        self.current_schema.as_ref()
    }

    /// Returns the next event within `limit`.
    ///
    /// # Errors
    /// Errors of the run. [`Error::Interrupted`] at most [`CANCEL_GRACE_PERIOD`] after cancellation.
    pub fn next_event(&mut self, limit: Duration) -> Result<RunEvent> {
        if self.coverage.is_some() {
            return Ok(RunEvent::End);
        }
        match self.receive_and_record(limit)? {
            Some(RunMessage::Batch(batch)) => match self.uniform_schema() {
                Some(columns) => Ok(RunEvent::Batch(columns.conform_batch(&batch)?)),
                None => Ok(RunEvent::Batch(batch)),
            },
            Some(RunMessage::End(_)) => Ok(RunEvent::End),
            Some(
                RunMessage::InterimResultReady | RunMessage::Schema(_) | RunMessage::Warning(_),
            )
            | None => {
                let latest = self.latest_interim_result.lock().take();
                let Some(mut glimpse) = latest else { return Ok(RunEvent::NothingYet) };
                if let Some(columns) = self.uniform_schema() {
                    let batches = glimpse.batches.iter().map(|batch| columns.conform_batch(batch));
                    // An estimate does not fit its column's type; the next interim result may fit.
                    let Ok(batches) = batches.collect::<Result<_>>() else {
                        return Ok(RunEvent::NothingYet);
                    };
                    glimpse.batches = batches;
                    glimpse.schema = Arc::clone(columns.schema());
                }
                Ok(RunEvent::InterimResult(glimpse))
            }
        }
    }

    /// Returns the common schema of all answers, if it is known and differs from the batches'.
    fn uniform_schema(&mut self) -> Option<&UniformResultSchema> {
        if !self.wants_uniform_schema {
            return None;
        }
        if self.uniform_schema.is_none()
            && let (Some(planned), Some(glimpsed)) =
                (&self.planned_schema, self.interim_schema.get())
        {
            self.uniform_schema = Some(UniformResultSchema::new(planned, glimpsed));
        }
        self.uniform_schema.as_ref()?.as_ref()
    }

    /// Calls `take` with all batches, and `tick` about every 50 ms while there are none.
    ///
    /// # Errors
    /// Errors of the run and of `take`; [`Error::Interrupted`] if `tick` returns it.
    pub fn for_each_batch(
        &mut self,
        mut take: impl FnMut(&RecordBatch) -> Result<()>,
        mut tick: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<()> {
        loop {
            tick()?;
            match self.next_event(POLL_INTERVAL)? {
                RunEvent::Batch(batch) => take(&batch)?,
                RunEvent::End => return Ok(()),
                RunEvent::NothingYet | RunEvent::InterimResult(_) => {}
            }
        }
    }

    /// Returns the coverage of the result, or `None` before the end.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.coverage.as_ref()
    }

    /// Receives the next message. Updates schema and coverage, and records the end of the run.
    fn receive_and_record(&mut self, limit: Duration) -> Result<Option<RunMessage>> {
        let received = self.receive_message(limit);
        match &received {
            Ok(Some(RunMessage::Batch(batch))) => self.row_count += batch.num_rows() as u64,
            Ok(Some(RunMessage::End(Ok(coverage)))) => {
                let rows = self.row_count;
                self.finish_record(RunEnding::Returned { coverage, rows });
            }
            Err(error) => self.finish_record(RunEnding::Error { error, coverage: None }),
            Ok(_) => {}
        }
        received
    }

    fn receive_message(&mut self, limit: Duration) -> Result<Option<RunMessage>> {
        if self.cancel.is_cancelled() {
            let since = *self.cancelled_at.get_or_insert_with(Instant::now);
            if since.elapsed() >= CANCEL_GRACE_PERIOD {
                return Err(Error::Interrupted);
            }
        }
        match self.messages.recv_timeout(limit) {
            Ok(RunMessage::Warning(warning)) => {
                self.add_warning(Some(warning.clone()));
                Ok(Some(RunMessage::Warning(warning)))
            }
            Ok(RunMessage::Schema(schema)) => {
                self.planned_schema.get_or_insert_with(|| Arc::clone(&schema));
                self.current_schema = Some(schema.clone());
                Ok(Some(RunMessage::Schema(schema)))
            }
            Ok(RunMessage::End(Ok(coverage))) => {
                if !self.master_sends_warnings {
                    self.add_warning(coverage.unknown_keys.warning());
                    self.add_warning(coverage.mismatches.warning());
                }
                self.coverage = Some((*coverage).clone());
                Ok(Some(RunMessage::End(Ok(coverage))))
            }
            Ok(RunMessage::End(Err(error))) => Err(error),
            Ok(batch) => Ok(Some(batch)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Internal("the run's thread ended without an answer".to_owned()))
            }
        }
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if self.coverage.is_none() {
            self.cancel.cancel();
        }
    }
}

/// Interval at which a waiting owner is called back.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Writes all rows of a run to its output and commits it. Calls `tick`
/// with the number of rows so far, about every 50 ms and before each batch.
///
/// # Errors
/// Errors of the run and of the output; [`Error::Interrupted`] if `tick` returns it. Nothing is visible then.
pub fn write_to_sink(
    running: &mut RunHandle,
    sink: &SinkSpec,
    id: &RunId,
    memory_bytes: u64,
    mut tick: impl FnMut(u64) -> Result<(), Interrupted>,
) -> Result<OutputSummary> {
    // Only this function knows the outcome of the output, so it records the end.
    let recorder = running.recorder.take();
    let delivered = match sink.may_block_on_user_code() {
        false => write_and_commit(running, sink, id, memory_bytes, &mut tick),
        true => write_on_own_thread(running, sink, id, memory_bytes, &mut tick),
    };
    running.recorder = recorder;
    // The answer is complete once the output's program has ended and its files are committed.
    let sampled = running.coverage.as_mut().and_then(|coverage| coverage.sampled.as_mut());
    if let (Some(ends_at), Some(sampled)) = (running.deadline, sampled) {
        sampled.late_seconds = late_seconds(ends_at);
    }
    let coverage = running.coverage.clone();
    match (&delivered, &coverage) {
        (Ok(written), Some(coverage)) => {
            running.finish_record(RunEnding::Written { coverage, written })
        }
        (Err(error), coverage) => {
            running.finish_record(RunEnding::Error { error, coverage: coverage.as_ref() });
        }
        (Ok(_), None) => {}
    }
    delivered
}

/// Writes as [`write_and_commit`] does, on a thread of its own. So `tick` is called while a program or a
/// writer of the user's blocks, and an error of `tick` cancels the run.
fn write_on_own_thread(
    running: &mut RunHandle,
    sink: &SinkSpec,
    id: &RunId,
    memory_bytes: u64,
    tick: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<OutputSummary> {
    let cancel = running.cancel.clone();
    let (rows, mut failure) = (AtomicU64::new(0), None);
    let written = std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("sink".into()).spawn_scoped(scope, || {
            let mut note = |written| {
                rows.fetch_max(written, Ordering::Relaxed);
                Ok(())
            };
            catch_panic(|| write_and_commit(running, sink, id, memory_bytes, &mut note))
        });
        let writer = writer.map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })?;
        while !writer.is_finished() {
            if failure.is_none()
                && let Err(stopped) = tick(rows.load(Ordering::Relaxed))
            {
                failure = Some(stopped);
                cancel.cancel();
            }
            std::thread::park_timeout(POLL_INTERVAL / 5);
        }
        writer.join().unwrap_or_else(|panic| Err(error_from_panic(panic.as_ref())))
    });
    // An output that was committed in spite of the interrupt stays.
    match (written, failure) {
        (Err(_), Some(stopped)) => Err(stopped.into()),
        (written, _) => written,
    }
}

fn write_and_commit(
    running: &mut RunHandle,
    sink: &SinkSpec,
    id: &RunId,
    memory_bytes: u64,
    tick: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<OutputSummary> {
    let schema = running.wait_for_schema(|| tick(0))?;
    let memory_limit = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX);
    let room = SinkResources { memory_limit_bytes: memory_limit, threads: running.threads };
    let cancel = running.cancel.clone();
    let mut sink = Sink::create_with(sink, schema, id, room, &cancel, &mut || {
        tick(0)?;
        cancel.check()
    })?;
    let filled = write_rows(running, &mut sink, &cancel, tick);
    let rows = sink.rows_written();
    let mut tick = || {
        tick(rows)?;
        cancel.check()
    };
    match filled {
        Ok(()) => Ok(sink.commit_with(&mut tick)?),
        // An interrupted caller does not wait for the cleanup.
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            sink.abandon(&mut tick);
            Err(error)
        }
    }
}

/// Writes all rows of a run to its output, or adopts the files that workers have written.
fn write_rows(
    running: &mut RunHandle,
    sink: &mut Sink,
    cancel: &CancelFlag,
    tick: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<()> {
    let output = running.distributed_output.take();
    if let Some(output) = &output {
        output.set_location(sink.worker_output_target()?);
    }
    loop {
        match running.next_event(POLL_INTERVAL)? {
            RunEvent::Batch(batch) => {
                tick(sink.rows_written() + batch.num_rows() as u64)?;
                let rows = sink.rows_written() + batch.num_rows() as u64;
                sink.write_with(&batch, &mut || {
                    tick(rows)?;
                    cancel.check()
                })?;
            }
            RunEvent::NothingYet | RunEvent::InterimResult(_) => tick(sink.rows_written())?,
            RunEvent::End => {
                if let Some(output) = &output {
                    running.add_warning(output.take_warning());
                    if let Some((rows, files)) = output.take_written_files() {
                        sink.adopt_files(rows, files)?;
                    }
                }
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use arrow::array::{ArrayRef, Float64Array, Int64Array};
    use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
    use tidemill_base::coverage::BOUND_METADATA_KEY;

    use super::*;

    #[test]
    fn cancelled_owner_is_released_from_a_stuck_run() {
        let (release, stuck) = channel::<()>();
        let cancel = CancelFlag::new();
        let mut running = RunHandle::start_without_rows(cancel.clone(), move || {
            let _ = stuck.recv();
            Err(Error::Interrupted)
        })
        .unwrap();
        assert!(matches!(running.next_event(Duration::ZERO), Ok(RunEvent::NothingYet)));
        cancel.cancel();
        let ended = loop {
            match running.next_event(Duration::from_millis(1)) {
                Ok(RunEvent::NothingYet) => {}
                other => break other,
            }
        };
        assert!(matches!(ended, Err(Error::Interrupted)));
        drop(release);
    }

    #[test]
    fn a_dropped_run_is_cancelled_and_a_finished_one_is_not() {
        let cancel = CancelFlag::new();
        let (release, stuck) = channel::<()>();
        let running = RunHandle::start_without_rows(cancel.clone(), move || {
            let _ = stuck.recv();
            Err(Error::Interrupted)
        });
        drop(running);
        assert!(cancel.is_cancelled());
        drop(release);
    }

    #[test]
    fn slow_owner_receives_the_newest_interim_result() {
        let glimpse = |share| InterimResult {
            schema: Arc::new(arrow::datatypes::Schema::empty()),
            batches: Vec::new(),
            bytes_read_share: share,
            coverage: Coverage::default(),
        };
        let latest = LatestInterimResult::default();
        let (shown, hear_shown) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let showing = Arc::clone(&latest);
        let running = RunHandle::spawn(CancelFlag::new(), 1, move |messages| {
            for shares in [[0.1, 0.2, 0.3, 0.4].as_slice(), &[0.5]] {
                shares
                    .iter()
                    .for_each(|share| publish_interim_result(&showing, messages, glimpse(*share)));
                shown.send(()).unwrap();
                let _ = may_go_on.recv();
            }
            Ok(Coverage::default())
        });
        let mut running = running.unwrap();
        running.latest_interim_result = latest;
        for expected in [0.4, 0.5] {
            hear_shown.recv().unwrap();
            let next = loop {
                match running.next_event(Duration::from_millis(1)).unwrap() {
                    RunEvent::NothingYet => {}
                    next => break next,
                }
            };
            assert!(
                matches!(next, RunEvent::InterimResult(glimpse) if glimpse.bytes_read_share == expected)
            );
            assert!(matches!(running.next_event(Duration::ZERO), Ok(RunEvent::NothingYet)));
            go_on.send(()).unwrap();
        }
        running.for_each_batch(|_| Ok(()), || Ok(())).unwrap();
    }

    #[test]
    fn interim_results_and_result_of_a_watched_run_have_one_schema() {
        let field = |name: &str, of| Field::new(name, of, true);
        let bound = |which: &str| {
            let said = [(BOUND_METADATA_KEY.to_owned(), which.to_owned())].into();
            field(&format!("n_{which}"), DataType::Float64).with_metadata(said)
        };
        let plain = Arc::new(Schema::new(vec![field("n", DataType::Int64)]));
        let fields = vec![field("n", DataType::Float64), bound("low"), bound("high")];
        let with_bounds = Arc::new(Schema::new(fields));
        let numbers = |numbers: [f64; 3]| {
            let columns = numbers.map(|it| Arc::new(Float64Array::from(vec![it])) as ArrayRef);
            RecordBatch::try_new(Arc::clone(&with_bounds), columns.into()).unwrap()
        };
        let early = numbers([8.0, 6.0, 9.0]);
        let number: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let last = RecordBatch::try_new(Arc::clone(&plain), vec![number]).unwrap();
        let latest = LatestInterimResult::default();
        let (showing, planned) = (Arc::clone(&latest), Arc::clone(&plain));
        let glimpsed = Arc::<OnceLock<SchemaRef>>::default();
        let columns = Arc::clone(&glimpsed);
        let (taken, is_taken) = channel();
        let running = RunHandle::spawn(CancelFlag::new(), 1, move |messages| {
            messages.send(RunMessage::Schema(planned)).unwrap();
            columns.get_or_init(|| early.schema());
            let schema = early.schema();
            let glimpse = InterimResult {
                schema,
                batches: vec![early],
                bytes_read_share: 0.5,
                coverage: Coverage::default(),
            };
            publish_interim_result(&showing, messages, glimpse);
            is_taken.recv().unwrap();
            messages.send(RunMessage::Batch(last)).unwrap();
            Ok(Coverage::default())
        });
        let mut running = running.unwrap().with_uniform_schema();
        (running.latest_interim_result, running.interim_schema) = (latest, glimpsed);
        running.wait_for_schema(|| Ok(())).unwrap();
        let mut answers = Vec::new();
        loop {
            match running.next_event(Duration::from_millis(1)).unwrap() {
                RunEvent::InterimResult(glimpse) => {
                    answers.extend(glimpse.batches);
                    taken.send(()).unwrap();
                }
                RunEvent::Batch(batch) => answers.push(batch),
                RunEvent::NothingYet => {}
                RunEvent::End => break,
            }
        }
        let shown: Vec<_> = answers
            .iter()
            .map(|answer| {
                assert_eq!(answer.schema(), answers[0].schema());
                let bound =
                    |place: usize| answer.column(place).as_primitive::<Float64Type>().value(0);
                (answer.column(0).as_primitive::<Int64Type>().value(0), bound(1), bound(2))
            })
            .collect();
        assert_eq!(shown, [(8, 6.0, 9.0), (7, 7.0, 7.0)]);
        assert_eq!(running.wait_for_schema(|| Ok(())).unwrap(), answers[0].schema());
    }

    #[test]
    fn errors_and_rows_of_a_run_reach_its_owner() {
        let query = |sql: &str| {
            let query = Query { sql: sql.to_owned(), ..Query::default() };
            RunHandle::start_query(query, RunSettings::new(memory_budget::MEMORY_BUDGET_BYTES_MIN))
                .unwrap()
        };
        let error = query("SELECT").wait_for_schema(|| Ok(())).unwrap_err();
        assert!(matches!(error, Error::Usage { .. }), "{error}");

        let mut running = query("SELECT 1 AS one");
        assert_eq!(running.wait_for_schema(|| Ok(())).unwrap().field(0).name(), "one");
        let mut rows = 0;
        running
            .for_each_batch(
                |batch| {
                    rows += batch.num_rows();
                    Ok(())
                },
                || Ok(()),
            )
            .unwrap();
        assert_eq!(rows, 1);
        assert!(running.coverage().unwrap().complete);

        let mut running =
            RunHandle::start_without_rows(CancelFlag::new(), || panic!("a test's own panic"))
                .unwrap();
        let error = running.wait_for_schema(|| Ok(())).unwrap_err();
        assert!(matches!(error, Error::Internal(_)), "{error}");
    }

    #[test]
    fn limits_come_from_the_caller_before_the_job() {
        let limits = |memory: &str, max_bad: &str, threads| ResourceLimits {
            memory: Some(memory.to_owned()),
            max_bad: Some(max_bad.to_owned()),
            threads: Some(threads),
            ..ResourceLimits::default()
        };
        let settings = prepare_run(&limits("1G", "2", 3), &limits("2G", "4", 5)).unwrap().settings;
        assert_eq!(
            (settings.memory_bytes, settings.max_bad.to_string(), settings.threads),
            (1 << 30, "2".to_owned(), 3)
        );
        let error = prepare_run(&limits("1G", "some", 1), &ResourceLimits::default()).unwrap_err();
        assert!(error.to_string().contains("`some`"), "{error}");
    }

    #[test]
    fn a_priority_comes_from_the_caller_then_the_environment_then_the_job() {
        let check = |own, variable, job, expected| {
            assert_eq!(
                first_given_priority(own, variable, job).unwrap(),
                expected,
                "{own:?} {variable:?} {job:?}"
            );
        };
        check(None, None, None, None);
        check(None, None, Some("low"), Some(RunPriority::Low));
        check(None, Some(" "), Some("low"), Some(RunPriority::Low));
        check(None, Some("high"), Some("low"), Some(RunPriority::High));
        check(Some("normal"), Some("high"), Some("low"), Some(RunPriority::Normal));
        let error = first_given_priority(None, Some("urgent"), None).unwrap_err().to_string();
        let expected = "TIDEMILL_PRIORITY: `urgent` is not a priority";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn spill_folders_are_checked_before_the_run_starts() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        let limits = |spill_dirs: &[&PathBuf]| ResourceLimits {
            spill_dirs: spill_dirs.iter().copied().cloned().collect(),
            ..ResourceLimits::default()
        };
        let chosen = |own: &[&PathBuf], job: &[&PathBuf]| {
            prepare_run(&limits(own), &limits(job)).map(|prepared| prepared.settings.spill_dirs)
        };
        assert_eq!(chosen(&[], &[]).unwrap(), [std::env::temp_dir()]);
        assert_eq!(chosen(&[], &[&one, &other]).unwrap(), [one.clone(), other.clone()]);
        assert_eq!(chosen(&[&other], &[&one]).unwrap(), [other]);
        assert_eq!(std::fs::read_dir(&one).unwrap().count(), 0);

        let missing = folder.path().join("missing");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (named, why) in [(&missing, "there is no such folder"), (&file, "it is a file")] {
            let error = chosen(&[], &[&one, named]).unwrap_err();
            assert!(matches!(error, Error::Usage { .. }), "{error:?}");
            let expected = format!("cannot spill to `{}`: {why}\nhint: ", named.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
            // The caller's folders replace the job's.
            assert!(chosen(&[&one], &[named]).is_ok());
        }
    }
}
