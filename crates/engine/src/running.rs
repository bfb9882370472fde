//! A run on a thread of its own, so that whoever waits for it can watch for other things.
//!
//! The command line waits for Ctrl-C, Python for its interpreter's signals; a read from a
//! pipe that nobody writes to cannot be interrupted, and must not keep either of them. So
//! planning, reading and computing happen on a thread, record batches come through a short
//! channel, and the owner looks in with a time limit ([`Running::next`]). An owner that has
//! cancelled the run and waited [`GRACE`] lets go of it: the thread ends by itself at its next
//! look at the flag, or with the process.
//!
//! The output is the owner's, not the thread's: dropped, it removes what was staged whatever
//! the thread is stuck in.

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
use tidemill_base::cores::{CoreSharing, PRIORITY_ENV_VAR, Priority};
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

use crate::answer_columns::AnswerColumns;
use crate::explanation::Explanation;
use crate::job::Limits;
use crate::posted::Question;
use crate::posted::asking::{Master, Taken};
use crate::rowfiles::Rowfiles;

/// How long a cancelled run may take to end by itself before its owner lets go of it.
pub const GRACE: Duration = Duration::from_millis(500);

/// The environment variable that stands between `--threads` and a job file's `threads`.
pub const THREADS_VARIABLE: &str = "TIDEMILL_THREADS";

/// A partial table is sent in pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Batches that wait for the owner.
const BATCHES_AHEAD: usize = 2;

/// A run's name, its settings, and what to tell the user before it starts.
#[derive(Debug)]
pub struct Preparation {
    /// The run's name.
    pub id: RunId,
    /// The limits as numbers.
    pub settings: RunSettings,
    /// Why no records of the run can be kept, or its priority is none, if that is so.
    pub warning: Option<String>,
}

impl Preparation {
    /// Begins the run's record in the job log. What keeps it from being written is a warning,
    /// unless that has been said already.
    ///
    /// # Errors
    /// [`Error::Usage`] if [`LOG_VARIABLE`](tidemill_jobs::LOG_VARIABLE) is not understood.
    pub fn recorder(&mut self, about: RunDescription) -> Result<RunRecorder> {
        let (recorder, warning) = RunRecorder::start(&self.id, &self.settings, about)?;
        if self.warning.is_none() {
            self.warning = warning;
        }
        Ok(recorder)
    }
}

/// Turns limits as people write them into settings: the caller's own first, then the
/// environment's, then the job's, then the defaults.
///
/// # Errors
/// [`Error::Usage`] for a limit that is not understood, and a folder that cannot be spilled to.
pub fn prepare(own: &Limits, job: &Limits) -> Result<Preparation> {
    let memory_bytes =
        memory_budget::resolve_memory_budget(own.memory.as_deref(), job.memory.as_deref())?;
    let mut settings = RunSettings::new(memory_bytes);
    if let Some(threads) = own.threads.map_or_else(threads_variable, |count| Ok(Some(count)))? {
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
        tidemill_sql::spills::check_spill_folders(named)?;
        settings.spill_dirs.clone_from(named);
    }
    let id = RunId::new();
    let mut warning = None;
    // Copies are kept of records that are let pass; a run that lets none pass leaves no trace.
    if settings.max_bad != BadRecordLimit::Count(0) {
        let (home, why_not) = StateFolder::open();
        settings.rejected_folder = home.map(|home| home.run_folder(&id).path().to_owned());
        warning = why_not;
    }
    let (cores, why_not) = cores(own.priority.as_deref(), job.priority.as_deref())?;
    settings.cores = cores;
    Ok(Preparation { id, settings, warning: warning.or(why_not) })
}

/// A run's turns among others, and a warning where it asked for a priority that it cannot have.
fn cores(own: Option<&str>, job: Option<&str>) -> Result<(Option<CoreSharing>, Option<String>)> {
    let variable = std::env::var(PRIORITY_ENV_VAR).ok();
    let Some(priority) = priority(own, variable.as_deref(), job)? else {
        // Nobody is told that there is nothing of what nobody asked for.
        return Ok((Some(CoreSharing::new(Priority::default())), None));
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

/// The priority that a run asks for: the caller's own, then the environment's, then the job's.
///
/// # Errors
/// [`Error::Usage`] for what is none.
pub fn priority_of(own: &Limits, job: &Limits) -> Result<Priority> {
    let variable = std::env::var(PRIORITY_ENV_VAR).ok();
    let said = priority(own.priority.as_deref(), variable.as_deref(), job.priority.as_deref())?;
    Ok(said.unwrap_or_default())
}

/// The first priority that is said.
fn priority(
    own: Option<&str>,
    variable: Option<&str>,
    job: Option<&str>,
) -> Result<Option<Priority>> {
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

fn threads_variable() -> Result<Option<usize>> {
    let Ok(text) = std::env::var(THREADS_VARIABLE) else { return Ok(None) };
    match text.trim() {
        "" => Ok(None),
        count => match count.parse() {
            Ok(count) if count > 0 => Ok(Some(count)),
            _ => Err(Error::usage(format!(
                "{THREADS_VARIABLE}: `{count}` is not a number of threads, at least 1"
            ))),
        },
    }
}

/// A query whose time runs from now on, unless it does already, and when that is over.
fn begun(query: Query) -> (Query, Option<Instant>) {
    let turbo = query.turbo.map(TurboSettings::with_start_time);
    let ends_at = turbo.as_ref().and_then(TurboSettings::ends_at);
    (Query { turbo, ..query }, ends_at)
}

/// Sends the schema before the work, which may take long, and the rows as they come.
fn hand_over(
    messages: &SyncSender<Message>,
    schema: SchemaRef,
    work: impl FnOnce() -> Result<Results>,
) -> Result<Coverage> {
    let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
    send(Message::Schema(Arc::clone(&schema)))?;
    let mut results = work()?;
    // An answer that was taken as it stood has bounds beside its estimates.
    if *results.schema() != schema {
        send(Message::Schema(Arc::clone(results.schema())))?;
    }
    for batch in &mut results {
        send(Message::Batch(batch?))?;
    }
    Ok(results.coverage())
}

enum Message {
    Schema(SchemaRef),
    Batch(RecordBatch),
    /// That there was a newer answer as it stands, unless it has been taken since.
    Glimpse,
    /// What the user should be told, whatever becomes of the run.
    Warning(String),
    End(Result<Box<Coverage>>),
}

/// The newest answer as it stands, until it is taken: whoever is slow is not shown those before it.
type Latest = Arc<Mutex<Option<Box<InterimResult>>>>;

/// Puts an answer in the place of the one before.
fn show(latest: &Latest, messages: &SyncSender<Message>, glimpse: InterimResult) {
    *latest.lock() = Some(Box::new(glimpse));
    // It only wakes the owner, who looks behind every other message too.
    drop(messages.try_send(Message::Glimpse));
}

/// What [`Running::next`] found within its time limit.
#[derive(Debug)]
pub enum Next {
    /// Rows.
    Batch(RecordBatch),
    /// The answer as it stands, of a run that is [watched](Running::watched): the newest, with none of those before it that
    /// were not taken. Rows come after the last one.
    Glimpse(Box<InterimResult>),
    /// The end; [`Running::coverage`] is final.
    End,
    /// Nothing yet.
    Waiting,
}

/// A run on a thread of its own; dropped, it is cancelled.
#[derive(Debug)]
pub struct Running {
    messages: Receiver<Message>,
    latest: Latest,
    schema: Option<SchemaRef>,
    /// The result's columns as they were planned.
    planned: Option<SchemaRef>,
    /// The columns of answers as they stand; set before the result is sent, if there may be any.
    glimpsed: Arc<OnceLock<SchemaRef>>,
    /// True if all answers are to have the same columns.
    has_answer_columns: bool,
    /// These columns, once they are known; `None` inside where answers need no change.
    answer_columns: Option<Option<AnswerColumns>>,
    coverage: Option<Coverage>,
    cancel: CancelFlag,
    /// That the run has, for what is made of its rows too.
    threads: usize,
    cancelled_at: Option<Instant>,
    recorder: Option<RunRecorder>,
    rows: u64,
    warning: Option<String>,
    /// True if a master warns of what its coverage says.
    is_warned: bool,
    /// When its answer is to be there, if somebody has said so.
    ends_at: Option<Instant>,
    /// Where workers may write its rows; [`deliver`] says where that is, and takes what they have written.
    output: Option<DistributedOutput>,
}

impl Running {
    /// Plans and runs a query.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started; all others come from [`Running::schema`] and
    /// [`Running::next`].
    pub fn query(query: Query, settings: RunSettings) -> Result<Running> {
        let (query, ends_at) = begun(query);
        let output = query.output.clone();
        let mut running =
            Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
                let plan = QueryPlan::new(&query, &settings)?;
                if let Some(warning) = plan.warning() {
                    messages.send(Message::Warning(warning)).map_err(|_| Error::Interrupted)?;
                }
                hand_over(messages, plan.schema().clone(), || plan.run())
            })?;
        running.ends_at = ends_at;
        running.output = output;
        Ok(running)
    }

    /// The same for somebody who watches: [`Next::Glimpse`] shows the answer as it stands, where that can be, and the end of
    /// [`Settings::enough`] takes it for the result.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub fn watched(query: Query, settings: RunSettings) -> Result<Running> {
        let latest = Latest::default();
        let shown = Arc::clone(&latest);
        let glimpsed = Arc::<OnceLock<SchemaRef>>::default();
        let columns = Arc::clone(&glimpsed);
        let (query, ends_at) = begun(query);
        let mut running =
            Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
                let plan = QueryPlan::new(&query, &settings)?;
                if let Some(warning) = plan.warning() {
                    messages.send(Message::Warning(warning)).map_err(|_| Error::Interrupted)?;
                }
                let mut watch = |glimpse: InterimResult| {
                    columns.get_or_init(|| Arc::clone(&glimpse.schema));
                    show(&latest, messages, glimpse);
                };
                let watch = InterimResultObserver::new(&mut watch);
                hand_over(messages, plan.schema().clone(), || {
                    let results = plan.run_watched(Some(watch));
                    // The result takes the place of what was not taken.
                    latest.lock().take();
                    results
                })
            })?;
        running.latest = shown;
        running.glimpsed = glimpsed;
        running.ends_at = ends_at;
        Ok(running)
    }

    /// The same run, all answers of which have the same columns: those of the result, and behind each estimate its bounds.
    /// In the result of a whole input both bounds are the value. They are known once the first answer has come.
    #[must_use]
    pub fn with_answer_columns(mut self) -> Running {
        self.has_answer_columns = true;
        self
    }

    /// Returns true if the result has bounds that [`with_answer_columns`](Self::with_answer_columns) put there: it is exact, and
    /// both are the number.
    pub fn has_added_bounds(&mut self) -> bool {
        self.answer_columns().is_some()
    }

    /// Says how a query would be run, as a row for [`Explanation::asked`].
    ///
    /// # Errors
    /// As [`Running::query`].
    pub(crate) fn explained(query: Query, settings: RunSettings) -> Result<Running> {
        Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
            let row = Explanation::new(&query, &settings, None)?.row()?;
            send(Message::Schema(row.schema()))?;
            send(Message::Batch(row))?;
            Ok(Coverage::default())
        })
    }

    /// Gives a query's groups as the bytes of a partial table, for [`Running::posted_partial`]; `run` is what whoever
    /// asks calls it.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub(crate) fn kept(query: Query, settings: RunSettings, run: RunId) -> Result<Running> {
        Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
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
                let count = Read::by_ref(&mut file).take(PIECE_BYTES).read_to_end(&mut piece);
                if count.map_err(|e| Error::io("read", &path, e))? == 0 {
                    return Ok(coverage);
                }
                let piece = LargeBinaryArray::from_vec(vec![piece.as_slice()]);
                let piece = RecordBatch::try_from_iter([("bytes", Arc::new(piece) as _)])?;
                if !is_told {
                    send(Message::Schema(piece.schema()))?;
                    is_told = true;
                }
                send(Message::Batch(piece))?;
            }
        })
    }

    /// Has a master run a query up to its tables, and keeps these at `out`.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub fn posted_partial(
        master: Master,
        question: Question,
        settings: RunSettings,
        (out, overwrite, run): (PathBuf, bool, RunId),
    ) -> Result<Running> {
        Running::without_rows(settings.cancel.clone(), move || {
            let mut file = StagedFile::create(&out, overwrite, &run)?;
            let mut bytes = 0;
            let coverage = master.carry_out(question.partial(&run), &settings, |taken| {
                let Taken::Rows(batch) = taken else { return Ok(()) };
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

    /// Has a master on a cluster run a query.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub fn posted(master: Master, question: Question, settings: RunSettings) -> Result<Running> {
        let (latest, ends_at) = (Latest::default(), question.ends_at());
        let shown = Arc::clone(&latest);
        let mut running =
            Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
                master.carry_out(question, &settings, |taken| {
                    let message = match taken {
                        Taken::Schema(schema) => Message::Schema(schema),
                        Taken::Rows(batch) => {
                            // The result takes the place of what was not taken.
                            latest.lock().take();
                            Message::Batch(batch)
                        }
                        Taken::Glimpse(glimpse) => {
                            show(&latest, messages, *glimpse);
                            return Ok(());
                        }
                        Taken::Warning(text) => Message::Warning(text),
                    };
                    messages.send(message).map_err(|_| Error::Interrupted)
                })
            })?;
        running.latest = shown;
        running.is_warned = true;
        running.ends_at = ends_at;
        Ok(running)
    }

    /// Merges partial tables and finishes them.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub fn merge(
        partials: Vec<PathBuf>,
        repeats: RepeatedRunPolicy,
        settings: RunSettings,
    ) -> Result<Running> {
        Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let merge = PartialTableMerge::with_repeat_policy(&partials, repeats, &settings)?;
            hand_over(messages, merge.schema().clone(), || merge.run())
        })
    }

    /// Reads rowfiles as what they are.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub fn rowfiles(files: Arc<Rowfiles>, settings: RunSettings) -> Result<Running> {
        Running::spawn(settings.cancel.clone(), settings.threads, move |messages| {
            let send = |message| messages.send(message).map_err(|_| Error::Interrupted);
            send(Message::Schema(Arc::clone(files.schema())))?;
            let RunSettings { threads, cancel, progress, .. } = &settings;
            files.read(*threads, cancel, progress, |batch| send(Message::Batch(batch)))
        })
    }

    /// Runs something that has no rows to give, such as writing a partial table.
    ///
    /// # Errors
    /// As [`Running::query`].
    pub fn without_rows(
        cancel: CancelFlag,
        work: impl FnOnce() -> Result<Coverage> + Send + 'static,
    ) -> Result<Running> {
        Running::spawn(cancel, 1, move |_| work())
    }

    fn spawn(
        cancel: CancelFlag,
        threads: usize,
        work: impl FnOnce(&SyncSender<Message>) -> Result<Coverage> + Send + 'static,
    ) -> Result<Running> {
        let (sender, messages) = sync_channel(BATCHES_AHEAD);
        std::thread::Builder::new()
            .name("run".to_owned())
            .spawn(move || {
                let end = catch_panic(|| work(&sender)).map(Box::new);
                // Nobody listening is how a run that was let go of ends.
                let _ = sender.send(Message::End(end));
            })
            .map_err(|source| Error::io("start", "a thread", source))?;
        Ok(Running {
            messages,
            latest: Latest::default(),
            schema: None,
            planned: None,
            glimpsed: Arc::default(),
            has_answer_columns: false,
            answer_columns: None,
            coverage: None,
            cancel,
            threads,
            cancelled_at: None,
            recorder: None,
            rows: 0,
            warning: None,
            is_warned: false,
            ends_at: None,
            output: None,
        })
    }

    /// Has the run recorded in the job log when it ends: with its output if [`deliver`] writes
    /// that, else once its last row is taken.
    #[must_use]
    pub fn recorded(mut self, recorder: RunRecorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// What the user should be told besides the result, such as why the run could not be recorded;
    /// said once.
    pub fn take_warning(&mut self) -> Option<String> {
        for warning in tidemill_remote::disk_cache::take_warnings() {
            self.warn(Some(warning));
        }
        self.warning.take()
    }

    /// Closes the run's record, if it is still open.
    fn record(&mut self, ending: RunEnding<'_>) {
        if let Some(recorder) = self.recorder.take() {
            let warning = recorder.finish(ending);
            self.warn(warning);
        }
    }

    fn warn(&mut self, warning: Option<String>) {
        let Some(warning) = warning else { return };
        match &mut self.warning {
            Some(first) => {
                first.push('\n');
                first.push_str(&warning);
            }
            none => *none = Some(warning),
        }
    }

    /// The result's columns; waits for the plan, calling `tick` about every 50 ms.
    ///
    /// # Errors
    /// What planning meets; [`Error::Interrupted`] where `tick` says so.
    pub fn schema(
        &mut self,
        mut tick: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<SchemaRef> {
        loop {
            if let Some(schema) = &self.schema {
                let schema = Arc::clone(schema);
                let columns = self.answer_columns();
                return Ok(columns.map_or(schema, |columns| Arc::clone(columns.schema())));
            }
            tick()?;
            match self.receive(TICK)? {
                None | Some(Message::Schema(_) | Message::Warning(_)) => {}
                Some(Message::Batch(_) | Message::Glimpse | Message::End(_)) => {
                    return Err(Error::Internal("a run without a schema".to_owned()));
                }
            }
        }
    }

    /// The result's columns, if they are known by now.
    pub(crate) fn schema_so_far(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// The next rows, if there are any within `limit`.
    ///
    /// # Errors
    /// What the run met. [`Error::Interrupted`] once it is cancelled, after [`GRACE`] at most.
    pub fn next(&mut self, limit: Duration) -> Result<Next> {
        if self.coverage.is_some() {
            return Ok(Next::End);
        }
        match self.receive(limit)? {
            Some(Message::Batch(batch)) => match self.answer_columns() {
                Some(columns) => Ok(Next::Batch(columns.conform(&batch)?)),
                None => Ok(Next::Batch(batch)),
            },
            Some(Message::End(_)) => Ok(Next::End),
            Some(Message::Glimpse | Message::Schema(_) | Message::Warning(_)) | None => {
                let latest = self.latest.lock().take();
                let Some(mut glimpse) = latest else { return Ok(Next::Waiting) };
                if let Some(columns) = self.answer_columns() {
                    let batches = glimpse.batches.iter().map(|batch| columns.conform(batch));
                    // An estimate that its column's type does not hold: the next answer may fit.
                    let Ok(batches) = batches.collect::<Result<_>>() else {
                        return Ok(Next::Waiting);
                    };
                    glimpse.batches = batches;
                    glimpse.schema = Arc::clone(columns.schema());
                }
                Ok(Next::Glimpse(glimpse))
            }
        }
    }

    /// The columns that all answers are to have, if they are known and differ from what comes.
    fn answer_columns(&mut self) -> Option<&AnswerColumns> {
        if !self.has_answer_columns {
            return None;
        }
        if self.answer_columns.is_none()
            && let (Some(planned), Some(glimpsed)) = (&self.planned, self.glimpsed.get())
        {
            self.answer_columns = Some(AnswerColumns::new(planned, glimpsed));
        }
        self.answer_columns.as_ref()?.as_ref()
    }

    /// Calls `take` with all rows, and `tick` about every 50 ms while there are none.
    ///
    /// # Errors
    /// What the run met, and what `take` returns; [`Error::Interrupted`] where `tick` says so.
    pub fn drain(
        &mut self,
        mut take: impl FnMut(&RecordBatch) -> Result<()>,
        mut tick: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<()> {
        loop {
            tick()?;
            match self.next(TICK)? {
                Next::Batch(batch) => take(&batch)?,
                Next::End => return Ok(()),
                Next::Waiting | Next::Glimpse(_) => {}
            }
        }
    }

    /// What the result rests on; none before the end.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.coverage.as_ref()
    }

    /// The next message, with schema and coverage noted and the end recorded.
    fn receive(&mut self, limit: Duration) -> Result<Option<Message>> {
        let received = self.receive_message(limit);
        match &received {
            Ok(Some(Message::Batch(batch))) => self.rows += batch.num_rows() as u64,
            Ok(Some(Message::End(Ok(coverage)))) => {
                let rows = self.rows;
                self.record(RunEnding::Returned { coverage, rows });
            }
            Err(error) => self.record(RunEnding::Error { error, coverage: None }),
            Ok(_) => {}
        }
        received
    }

    fn receive_message(&mut self, limit: Duration) -> Result<Option<Message>> {
        if self.cancel.is_cancelled() {
            let since = *self.cancelled_at.get_or_insert_with(Instant::now);
            if since.elapsed() >= GRACE {
                return Err(Error::Interrupted);
            }
        }
        match self.messages.recv_timeout(limit) {
            Ok(Message::Warning(warning)) => {
                self.warn(Some(warning.clone()));
                Ok(Some(Message::Warning(warning)))
            }
            Ok(Message::Schema(schema)) => {
                self.planned.get_or_insert_with(|| Arc::clone(&schema));
                self.schema = Some(schema.clone());
                Ok(Some(Message::Schema(schema)))
            }
            Ok(Message::End(Ok(coverage))) => {
                if !self.is_warned {
                    self.warn(coverage.unknown_keys.warning());
                    self.warn(coverage.mismatches.warning());
                }
                self.coverage = Some((*coverage).clone());
                Ok(Some(Message::End(Ok(coverage))))
            }
            Ok(Message::End(Err(error))) => Err(error),
            Ok(batch) => Ok(Some(batch)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Internal("the run's thread ended without an answer".to_owned()))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.coverage.is_none() {
            self.cancel.cancel();
        }
    }
}

/// How often an owner that waits is called in between.
const TICK: Duration = Duration::from_millis(50);

/// Writes all rows of a run to its output and makes that visible as one; `tick` is called
/// with the number of rows so far, about every 50 ms and before each batch is written.
///
/// # Errors
/// What the run or the output met; [`Error::Interrupted`] where `tick` says so. Then nothing is visible.
pub fn deliver(
    running: &mut Running,
    sink: &SinkSpec,
    id: &RunId,
    memory_bytes: u64,
    mut tick: impl FnMut(u64) -> Result<(), Interrupted>,
) -> Result<OutputSummary> {
    // Only here is it known how the output ended.
    let recorder = running.recorder.take();
    let delivered = match sink.may_block_on_user_code() {
        false => write_out(running, sink, id, memory_bytes, &mut tick),
        true => write_out_beside(running, sink, id, memory_bytes, &mut tick),
    };
    running.recorder = recorder;
    // What is written is there once its program has ended, and its files are committed.
    let sampled = running.coverage.as_mut().and_then(|coverage| coverage.sampled.as_mut());
    if let (Some(ends_at), Some(sampled)) = (running.ends_at, sampled) {
        sampled.late_seconds = late_seconds(ends_at);
    }
    let coverage = running.coverage.clone();
    match (&delivered, &coverage) {
        (Ok(written), Some(coverage)) => running.record(RunEnding::Written { coverage, written }),
        (Err(error), coverage) => {
            running.record(RunEnding::Error { error, coverage: coverage.as_ref() });
        }
        (Ok(_), None) => {}
    }
    delivered
}

/// The same on a thread of its own, so that `tick` is called while a program or a writer of
/// the user's takes its time; its error ends that.
fn write_out_beside(
    running: &mut Running,
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
            catch_panic(|| write_out(running, sink, id, memory_bytes, &mut note))
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
            std::thread::park_timeout(TICK / 5);
        }
        writer.join().unwrap_or_else(|panic| Err(error_from_panic(panic.as_ref())))
    });
    // What was written in spite of it stands.
    match (written, failure) {
        (Err(_), Some(stopped)) => Err(stopped.into()),
        (written, _) => written,
    }
}

fn write_out(
    running: &mut Running,
    sink: &SinkSpec,
    id: &RunId,
    memory_bytes: u64,
    tick: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<OutputSummary> {
    let schema = running.schema(|| tick(0))?;
    let memory_limit = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX);
    let room = SinkResources { memory_limit_bytes: memory_limit, threads: running.threads };
    let cancel = running.cancel.clone();
    let mut sink = Sink::create_with(sink, schema, id, room, &cancel, &mut || {
        tick(0)?;
        cancel.check()
    })?;
    let filled = fill(running, &mut sink, &cancel, tick);
    let rows = sink.rows_written();
    let mut tick = || {
        tick(rows)?;
        cancel.check()
    };
    match filled {
        Ok(()) => Ok(sink.commit_with(&mut tick)?),
        // Whoever is interrupted does not wait for what has to be thrown away.
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            sink.abandon(&mut tick);
            Err(error)
        }
    }
}

/// Writes all rows of a run to its output, or has it take what workers have written.
fn fill(
    running: &mut Running,
    sink: &mut Sink,
    cancel: &CancelFlag,
    tick: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
) -> Result<()> {
    let output = running.output.take();
    if let Some(output) = &output {
        output.set_location(sink.worker_output_target()?);
    }
    loop {
        match running.next(TICK)? {
            Next::Batch(batch) => {
                tick(sink.rows_written() + batch.num_rows() as u64)?;
                let rows = sink.rows_written() + batch.num_rows() as u64;
                sink.write_with(&batch, &mut || {
                    tick(rows)?;
                    cancel.check()
                })?;
            }
            Next::Waiting | Next::Glimpse(_) => tick(sink.rows_written())?,
            Next::End => {
                if let Some(output) = &output {
                    running.warn(output.take_warning());
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
    fn an_owner_is_not_kept_by_a_run_that_is_stuck() {
        let (release, stuck) = channel::<()>();
        let cancel = CancelFlag::new();
        let mut running = Running::without_rows(cancel.clone(), move || {
            let _ = stuck.recv();
            Err(Error::Interrupted)
        })
        .unwrap();
        assert!(matches!(running.next(Duration::ZERO), Ok(Next::Waiting)));
        cancel.cancel();
        let ended = loop {
            match running.next(Duration::from_millis(1)) {
                Ok(Next::Waiting) => {}
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
        let running = Running::without_rows(cancel.clone(), move || {
            let _ = stuck.recv();
            Err(Error::Interrupted)
        });
        drop(running);
        assert!(cancel.is_cancelled());
        drop(release);
    }

    #[test]
    fn an_owner_who_is_slow_is_shown_the_newest_answer() {
        let glimpse = |share| InterimResult {
            schema: Arc::new(arrow::datatypes::Schema::empty()),
            batches: Vec::new(),
            bytes_read_share: share,
            coverage: Coverage::default(),
        };
        let latest = Latest::default();
        let (shown, hear_shown) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let showing = Arc::clone(&latest);
        let running = Running::spawn(CancelFlag::new(), 1, move |messages| {
            for shares in [[0.1, 0.2, 0.3, 0.4].as_slice(), &[0.5]] {
                shares.iter().for_each(|share| show(&showing, messages, glimpse(*share)));
                shown.send(()).unwrap();
                let _ = may_go_on.recv();
            }
            Ok(Coverage::default())
        });
        let mut running = running.unwrap();
        running.latest = latest;
        for expected in [0.4, 0.5] {
            hear_shown.recv().unwrap();
            let next = loop {
                match running.next(Duration::from_millis(1)).unwrap() {
                    Next::Waiting => {}
                    next => break next,
                }
            };
            assert!(matches!(next, Next::Glimpse(glimpse) if glimpse.bytes_read_share == expected));
            assert!(matches!(running.next(Duration::ZERO), Ok(Next::Waiting)));
            go_on.send(()).unwrap();
        }
        running.drain(|_| Ok(()), || Ok(())).unwrap();
    }

    #[test]
    fn answers_and_the_result_of_a_watched_run_have_the_same_columns() {
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
        let latest = Latest::default();
        let (showing, planned) = (Arc::clone(&latest), Arc::clone(&plain));
        let glimpsed = Arc::<OnceLock<SchemaRef>>::default();
        let columns = Arc::clone(&glimpsed);
        let (taken, is_taken) = channel();
        let running = Running::spawn(CancelFlag::new(), 1, move |messages| {
            messages.send(Message::Schema(planned)).unwrap();
            columns.get_or_init(|| early.schema());
            let schema = early.schema();
            let glimpse = InterimResult {
                schema,
                batches: vec![early],
                bytes_read_share: 0.5,
                coverage: Coverage::default(),
            };
            show(&showing, messages, glimpse);
            is_taken.recv().unwrap();
            messages.send(Message::Batch(last)).unwrap();
            Ok(Coverage::default())
        });
        let mut running = running.unwrap().with_answer_columns();
        (running.latest, running.glimpsed) = (latest, glimpsed);
        running.schema(|| Ok(())).unwrap();
        let mut answers = Vec::new();
        loop {
            match running.next(Duration::from_millis(1)).unwrap() {
                Next::Glimpse(glimpse) => {
                    answers.extend(glimpse.batches);
                    taken.send(()).unwrap();
                }
                Next::Batch(batch) => answers.push(batch),
                Next::Waiting => {}
                Next::End => break,
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
        assert_eq!(running.schema(|| Ok(())).unwrap(), answers[0].schema());
    }

    #[test]
    fn what_the_run_meets_reaches_the_owner() {
        let query = |sql: &str| {
            let query = Query { sql: sql.to_owned(), ..Query::default() };
            Running::query(query, RunSettings::new(memory_budget::MEMORY_BUDGET_BYTES_MIN)).unwrap()
        };
        let error = query("SELECT").schema(|| Ok(())).unwrap_err();
        assert!(matches!(error, Error::Usage { .. }), "{error}");

        let mut running = query("SELECT 1 AS one");
        assert_eq!(running.schema(|| Ok(())).unwrap().field(0).name(), "one");
        let mut rows = 0;
        running
            .drain(
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
            Running::without_rows(CancelFlag::new(), || panic!("a test's own panic")).unwrap();
        let error = running.schema(|| Ok(())).unwrap_err();
        assert!(matches!(error, Error::Internal(_)), "{error}");
    }

    #[test]
    fn limits_come_from_the_caller_before_the_job() {
        let limits = |memory: &str, max_bad: &str, threads| Limits {
            memory: Some(memory.to_owned()),
            max_bad: Some(max_bad.to_owned()),
            threads: Some(threads),
            ..Limits::default()
        };
        let settings = prepare(&limits("1G", "2", 3), &limits("2G", "4", 5)).unwrap().settings;
        assert_eq!(
            (settings.memory_bytes, settings.max_bad.to_string(), settings.threads),
            (1 << 30, "2".to_owned(), 3)
        );
        let error = prepare(&limits("1G", "some", 1), &Limits::default()).unwrap_err();
        assert!(error.to_string().contains("`some`"), "{error}");
    }

    #[test]
    fn a_priority_comes_from_the_caller_then_the_environment_then_the_job() {
        let check = |own, variable, job, expected| {
            assert_eq!(
                priority(own, variable, job).unwrap(),
                expected,
                "{own:?} {variable:?} {job:?}"
            );
        };
        check(None, None, None, None);
        check(None, None, Some("low"), Some(Priority::Low));
        check(None, Some(" "), Some("low"), Some(Priority::Low));
        check(None, Some("high"), Some("low"), Some(Priority::High));
        check(Some("normal"), Some("high"), Some("low"), Some(Priority::Normal));
        let error = priority(None, Some("urgent"), None).unwrap_err().to_string();
        let expected = "TIDEMILL_PRIORITY: `urgent` is not a priority";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn folders_to_spill_to_are_looked_at_before_there_is_work() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        let limits = |spill_dirs: &[&PathBuf]| Limits {
            spill_dirs: spill_dirs.iter().copied().cloned().collect(),
            ..Limits::default()
        };
        let chosen = |own: &[&PathBuf], job: &[&PathBuf]| {
            prepare(&limits(own), &limits(job)).map(|prepared| prepared.settings.spill_dirs)
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
            // What the caller says stands for what the job says.
            assert!(chosen(&[&one], &[named]).is_ok());
        }
    }
}
