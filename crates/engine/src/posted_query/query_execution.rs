//! The master's side of posted queries: validation, execution, and encoding of frames.
//!
//! The master checks a [`PostedQuery`] before it does anything else: the form, the limits, the permissions
//! and the storage options (`remote/src/posted_options.rs`). The process that finds or opens a file checks it
//! again (`source/src/files/confinement.rs`), and so does the process that connects to an address
//! (`remote/src/address_guard.rs`). The query then runs like any other, and its messages are encoded as frames.
//! `docs/posted-queries.md` lists what each field can reach, and the check for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::compute::concat_batches;
use tidemill_base::cores::RunPriority;
use tidemill_base::error::{Error, Result, redact_secrets};
use tidemill_base::redaction::escape_control_chars;
use tidemill_base::{BadRecordLimit, RunSettings};
use tidemill_query::{
    InterimResult, NamedSource, Query, SerializedError, TurboSettings, WorkerPool,
};
use tidemill_source::posted_source::PostedSource;

use super::{
    FrameHead, POSTED_QUERY_BYTES_MAX, POSTED_QUERY_FORMAT_VERSION, PostedQuery, PostedResultKind,
    SerializedCounters, SerializedPlanOutline, SerializedWorkerProgress, UNLIMITED_BAD_RECORDS,
    append_frame, empty_batch, encode_frame_content,
};
use crate::run_handle::{RunEvent, RunHandle};

/// Interval at which the client receives the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum size of several frames that are returned together; a single frame may be larger.
const JOINED_FRAMES_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a statement in listings.
const DISPLAYED_STATEMENT_CHARS_MAX: usize = 1000;

/// Maximum of `max_attempts`, the number of times that a task is submitted although it ends its worker.
const SPLIT_ATTEMPTS_MAX: usize = 20;

/// A posted query that passed validation.
pub struct ValidatedPostedQuery {
    query: Query,
    /// The kind of result.
    result_kind: PostedResultKind,
    /// True if the client wants interim results.
    sends_interim_results: bool,
    max_bad: BadRecordLimit,
    /// Priority among the master's jobs.
    pub priority: RunPriority,
    /// `query`, `run` or `convert`.
    pub verb: String,
    /// The statement for listings of the master's jobs.
    pub displayed_statement: String,
}

/// Decodes and validates a posted query.
///
/// # Errors
/// [`Error::Usage`] for bytes that are not a posted query, and for anything that a client may not request.
pub fn validate_posted_query(
    question: &[u8],
    may_run_programs: bool,
) -> Result<ValidatedPostedQuery> {
    if question.len() > POSTED_QUERY_BYTES_MAX {
        return Err(Error::usage(format!(
            "what is asked has {} bytes, and {POSTED_QUERY_BYTES_MAX} are the most",
            question.len()
        )));
    }
    let asked: PostedQuery = serde_json::from_slice(question).map_err(|error| {
        Error::usage_with_hint(
            format!("what is asked is no question: {error}"),
            "the same release of tidemill should be here and on the cluster",
        )
    })?;
    if asked.format != POSTED_QUERY_FORMAT_VERSION {
        return Err(Error::usage(format!(
            "what is asked is of form {}, and this release of tidemill knows {POSTED_QUERY_FORMAT_VERSION}",
            asked.format
        )));
    }
    for source in asked.sources.iter().map(|(_, source)| source).chain([&asked.defaults]) {
        check_program_allowed(source, may_run_programs)?;
    }
    if let Some(count) = asked.max_attempts.filter(|count| *count > SPLIT_ATTEMPTS_MAX) {
        return Err(Error::usage_with_hint(
            format!("`max_attempts` is {count}, more than a cluster takes from those who ask it"),
            format!("at most {SPLIT_ATTEMPTS_MAX}"),
        ));
    }
    let max_bad = match asked.max_bad.as_str() {
        UNLIMITED_BAD_RECORDS => BadRecordLimit::Unlimited,
        text => text.parse()?,
    };
    let mut turbo = TurboSettings::default();
    asked.turbo.iter().try_for_each(|(option, text)| turbo.set_option(option, text))?;
    let sources = asked.sources.into_iter();
    let sources = sources.map(|(name, source)| Ok(NamedSource { name, spec: source.into_spec()? }));
    let query = Query {
        sources: sources.collect::<Result<_>>()?,
        file_defaults: asked.defaults.into_spec()?,
        sql: asked.sql,
        map_sql: asked.map,
        is_per_record: asked.per_record,
        keeps_columns: asked.keeps_columns,
        schema: asked.schema,
        split_attempts_max: asked.max_attempts.map(|count| count.max(1)),
        // The time of a deadline starts now.
        turbo: turbo.validate()?.map(TurboSettings::with_start_time),
        ..Query::default()
    };
    let shown = escape_control_chars(&redact_secrets(&asked.shown), &['\n', '\t']);
    Ok(ValidatedPostedQuery {
        query,
        result_kind: asked.gives,
        sends_interim_results: asked.watched,
        max_bad,
        priority: asked.priority.parse()?,
        verb: asked.verb.chars().filter(char::is_ascii_lowercase).take(16).collect(),
        displayed_statement: shown.chars().take(DISPLAYED_STATEMENT_CHARS_MAX).collect(),
    })
}

fn check_program_allowed(source: &PostedSource, may_run_programs: bool) -> Result<()> {
    match source.has_program() && !may_run_programs {
        false => Ok(()),
        true => Err(Error::usage_with_hint(
            "this cluster runs no programs for those who ask it",
            "leave `exec` out; or whoever started it: tidemill cluster up --allow-programs",
        )),
    }
}

/// A run of a posted query, whose messages are encoded as frames.
pub struct PostedRun {
    run: RunHandle,
    settings: RunSettings,
    /// The schema that was sent last.
    sent_schema: Option<arrow::datatypes::SchemaRef>,
    sent_counters: SerializedCounters,
    counters_sent_at: Instant,
    has_ended: bool,
    has_failed: bool,
}

impl PostedRun {
    /// Starts the run.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started for it.
    pub fn start(
        judged: ValidatedPostedQuery,
        workers: Arc<dyn WorkerPool>,
        settings: RunSettings,
    ) -> Result<PostedRun> {
        let settings = RunSettings { max_bad: judged.max_bad, ..settings };
        let query = Query { workers: Some(workers), ..judged.query };
        let own = settings.clone();
        let running = match (judged.result_kind, judged.sends_interim_results) {
            (PostedResultKind::Rows, true) => RunHandle::start_watched_query(query, own)?,
            (PostedResultKind::Rows, false) => RunHandle::start_query(query, own)?,
            (PostedResultKind::Explanation, _) => RunHandle::start_explanation(query, own)?,
            (PostedResultKind::Partial { run }, _) => {
                RunHandle::start_partial_table(query, own, run.parse()?)?
            }
        };
        Ok(PostedRun {
            run: running,
            settings,
            sent_schema: None,
            sent_counters: SerializedCounters::default(),
            counters_sent_at: Instant::now(),
            has_ended: false,
            has_failed: false,
        })
    }

    /// Returns true if the last frame was returned.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns true if the last frame contained an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the next frames, one behind the other; nothing if there are none within `limit`.
    ///
    /// # Errors
    /// [`Error::Internal`]; an error of the run is a frame.
    pub fn next_frames(&mut self, limit: Duration) -> Result<Vec<u8>> {
        let mut frames = Vec::new();
        let mut wait = limit;
        while !self.has_ended && frames.len() < JOINED_FRAMES_BYTES_MAX {
            let next = self.run.next_event(wait);
            wait = Duration::ZERO;
            if let Some(text) = self.run.take_warning() {
                append_frame(
                    &mut frames,
                    &FrameHead::Warning { text: redact_secrets(&text) },
                    &[],
                )?;
            }
            self.append_schema_frame(&mut frames)?;
            match next {
                Ok(RunEvent::Batch(batch)) => {
                    self.append_progress_frame(&mut frames)?;
                    append_frame(&mut frames, &FrameHead::Rows, &encode_frame_content(&batch)?)?;
                }
                Ok(RunEvent::InterimResult(glimpse)) => {
                    self.append_progress_frame(&mut frames)?;
                    append_interim_frame(&mut frames, *glimpse)?;
                }
                Ok(RunEvent::NothingYet) => {
                    self.append_progress_frame(&mut frames)?;
                    break;
                }
                Ok(RunEvent::End) => {
                    self.has_ended = true;
                    self.append_end_frame(&mut frames)?;
                }
                Err(error) => {
                    (self.has_ended, self.has_failed) = (true, true);
                    append_frame(&mut frames, &FrameHead::Failed { error: error.into() }, &[])?;
                }
            }
        }
        Ok(frames)
    }

    fn append_schema_frame(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        match self.run.known_schema() {
            Some(schema) if self.sent_schema.as_ref() != Some(schema) => {
                let planned = SerializedPlanOutline::from_progress(&self.settings.progress);
                append_frame(
                    frames,
                    &FrameHead::Schema { planned },
                    &encode_frame_content(&empty_batch(schema))?,
                )?;
                self.sent_schema = Some(Arc::clone(schema));
            }
            _ => {}
        }
        Ok(())
    }

    fn append_progress_frame(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        if self.counters_sent_at.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.counters_sent_at = Instant::now();
        // Unchanged counters are sent again: they show the waiting client that the master is alive.
        self.sent_counters = SerializedCounters::from_progress(&self.settings.progress);
        append_frame(frames, &FrameHead::Progress(self.sent_counters), &[])
    }

    fn append_end_frame(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        let coverage = self.run.coverage();
        let coverage =
            coverage.ok_or_else(|| Error::Internal("an end without a coverage".into()))?;
        let end = FrameHead::End {
            rejected: coverage.first_rejected.clone(),
            coverage: Box::new(coverage.clone()),
            counted: SerializedCounters::from_progress(&self.settings.progress),
            workers: SerializedWorkerProgress::collect_from(&self.settings.progress),
            planned: SerializedPlanOutline::from_progress(&self.settings.progress),
        };
        append_frame(frames, &end, &[])
    }
}

fn append_interim_frame(frames: &mut Vec<u8>, glimpse: InterimResult) -> Result<()> {
    let InterimResult { schema, batches, bytes_read_share: share, coverage } = glimpse;
    let rows = concat_batches(&schema, &batches)?;
    append_frame(
        frames,
        &FrameHead::Glimpse { share, coverage: Box::new(coverage) },
        &encode_frame_content(&rows)?,
    )
}

/// Encodes the frame with the run's number among the master's jobs.
///
/// # Errors
/// [`Error::Internal`].
pub fn encode_began_frame(id: u64) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    append_frame(&mut frame, &FrameHead::Began { id }, &[])?;
    Ok(frame)
}

/// Encodes the frame with an error that occurred before the run started.
///
/// # Errors
/// [`Error::Internal`].
pub fn encode_failed_frame(error: Error) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    append_frame(&mut frame, &FrameHead::Failed { error: SerializedError::from(error) }, &[])?;
    Ok(frame)
}

/// Encodes the frame of a run that waits for its turn behind `before` others.
///
/// # Errors
/// [`Error::Internal`].
pub fn encode_waiting_frame(before: usize) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    append_frame(&mut frame, &FrameHead::Waiting { before }, &[])?;
    Ok(frame)
}
