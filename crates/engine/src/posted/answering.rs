//! What may be asked of a master, and how is it answered?
//!
//! The master checks a [`Question`] before it does anything else: the form, the limits, the permissions and the storage
//! options (`remote/posted_options.rs`). The process that finds or opens a file checks it again (`source/confined.rs`),
//! and so does the process that connects to an address (`remote/guard.rs`). The question then runs like any other
//! query, and its messages are encoded as frames. `docs/posted-queries.md` lists what each field can reach, and the
//! check for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::compute::concat_batches;
use tidemill_base::cores::Priority;
use tidemill_base::error::{Error, Result, redact_secrets};
use tidemill_base::redaction::escape_control_chars;
use tidemill_base::{BadRecordLimit, RunSettings};
use tidemill_query::{
    InterimResult, NamedSource, Query, SerializedError, TurboSettings, WorkerPool,
};
use tidemill_source::posted_source::PostedSource;

use super::{
    ANY, Counted, FORMAT, Gives, Head, PlannedSaid, QUESTION_BYTES_MAX, Question, WorkerSaid,
    content, no_rows, put,
};
use crate::running::{Next, Running};

/// Whoever asks hears of the progress so often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// So many bytes of frames are handed on together at most, if there is more than one.
const TOGETHER_BYTES: usize = 1 << 20;
/// So much of a statement is shown.
const SHOWN_CHARS: usize = 1000;

/// Maximum of `max_attempts`, the number of times that a task is dealt although it ends its worker.
const ATTEMPTS_MAX: usize = 20;

/// A question that was judged.
pub struct Judged {
    query: Query,
    /// What is to come of it.
    gives: Gives,
    /// Whether whoever asks is shown the answer as it stands.
    watched: bool,
    max_bad: BadRecordLimit,
    /// Which go first.
    pub priority: Priority,
    /// `query`, `run` or `convert`.
    pub verb: String,
    /// What it is, for those who look at the master's jobs.
    pub shown: String,
}

/// Reads and judges a question.
///
/// # Errors
/// [`Error::Usage`] for what is none, and for what may not be asked.
pub fn judge(question: &[u8], may_run_programs: bool) -> Result<Judged> {
    if question.len() > QUESTION_BYTES_MAX {
        return Err(Error::usage(format!(
            "what is asked has {} bytes, and {QUESTION_BYTES_MAX} are the most",
            question.len()
        )));
    }
    let asked: Question = serde_json::from_slice(question).map_err(|error| {
        Error::usage_with_hint(
            format!("what is asked is no question: {error}"),
            "the same release of tidemill should be here and on the cluster",
        )
    })?;
    if asked.format != FORMAT {
        return Err(Error::usage(format!(
            "what is asked is of form {}, and this release of tidemill knows {FORMAT}",
            asked.format
        )));
    }
    for source in asked.sources.iter().map(|(_, source)| source).chain([&asked.defaults]) {
        judge_program(source, may_run_programs)?;
    }
    if let Some(count) = asked.max_attempts.filter(|count| *count > ATTEMPTS_MAX) {
        return Err(Error::usage_with_hint(
            format!("`max_attempts` is {count}, more than a cluster takes from those who ask it"),
            format!("at most {ATTEMPTS_MAX}"),
        ));
    }
    let max_bad = match asked.max_bad.as_str() {
        ANY => BadRecordLimit::Unlimited,
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
        // Its time runs from now on.
        turbo: turbo.validate()?.map(TurboSettings::with_start_time),
        ..Query::default()
    };
    let shown = escape_control_chars(&redact_secrets(&asked.shown), &['\n', '\t']);
    Ok(Judged {
        query,
        gives: asked.gives,
        watched: asked.watched,
        max_bad,
        priority: asked.priority.parse()?,
        verb: asked.verb.chars().filter(char::is_ascii_lowercase).take(16).collect(),
        shown: shown.chars().take(SHOWN_CHARS).collect(),
    })
}

fn judge_program(source: &PostedSource, may_run_programs: bool) -> Result<()> {
    match source.has_program() && !may_run_programs {
        false => Ok(()),
        true => Err(Error::usage_with_hint(
            "this cluster runs no programs for those who ask it",
            "leave `exec` out; or whoever started it: tidemill cluster up --allow-programs",
        )),
    }
}

/// A run whose messages are frames.
pub struct Answering {
    running: Running,
    settings: RunSettings,
    /// The columns that were told.
    said: Option<arrow::datatypes::SchemaRef>,
    counted: Counted,
    counted_at: Instant,
    has_ended: bool,
    has_failed: bool,
}

impl Answering {
    /// Begins a run.
    ///
    /// # Errors
    /// [`Error::Io`] where there can be no thread for it.
    pub fn start(
        judged: Judged,
        workers: Arc<dyn WorkerPool>,
        settings: RunSettings,
    ) -> Result<Answering> {
        let settings = RunSettings { max_bad: judged.max_bad, ..settings };
        let query = Query { workers: Some(workers), ..judged.query };
        let own = settings.clone();
        let running = match (judged.gives, judged.watched) {
            (Gives::Rows, true) => Running::watched(query, own)?,
            (Gives::Rows, false) => Running::query(query, own)?,
            (Gives::Explanation, _) => Running::explained(query, own)?,
            (Gives::Partial { run }, _) => Running::kept(query, own, run.parse()?)?,
        };
        Ok(Answering {
            running,
            settings,
            said: None,
            counted: Counted::default(),
            counted_at: Instant::now(),
            has_ended: false,
            has_failed: false,
        })
    }

    /// Whether the last frame was given.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether that told of an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The next frames, one behind the other; nothing where there are none within `limit`.
    ///
    /// # Errors
    /// [`Error::Internal`]; what the run met is a frame.
    pub fn next(&mut self, limit: Duration) -> Result<Vec<u8>> {
        let mut frames = Vec::new();
        let mut wait = limit;
        while !self.has_ended && frames.len() < TOGETHER_BYTES {
            let next = self.running.next(wait);
            wait = Duration::ZERO;
            if let Some(text) = self.running.take_warning() {
                put(&mut frames, &Head::Warning { text: redact_secrets(&text) }, &[])?;
            }
            self.tell_schema(&mut frames)?;
            match next {
                Ok(Next::Batch(batch)) => {
                    self.tell_progress(&mut frames)?;
                    put(&mut frames, &Head::Rows, &content(&batch)?)?;
                }
                Ok(Next::Glimpse(glimpse)) => {
                    self.tell_progress(&mut frames)?;
                    tell_glimpse(&mut frames, *glimpse)?;
                }
                Ok(Next::Waiting) => {
                    self.tell_progress(&mut frames)?;
                    break;
                }
                Ok(Next::End) => {
                    self.has_ended = true;
                    self.tell_end(&mut frames)?;
                }
                Err(error) => {
                    (self.has_ended, self.has_failed) = (true, true);
                    put(&mut frames, &Head::Failed { error: error.into() }, &[])?;
                }
            }
        }
        Ok(frames)
    }

    fn tell_schema(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        match self.running.schema_so_far() {
            Some(schema) if self.said.as_ref() != Some(schema) => {
                let planned = PlannedSaid::of(&self.settings.progress);
                put(frames, &Head::Schema { planned }, &content(&no_rows(schema))?)?;
                self.said = Some(Arc::clone(schema));
            }
            _ => {}
        }
        Ok(())
    }

    fn tell_progress(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        if self.counted_at.elapsed() < PROGRESS_EVERY {
            return Ok(());
        }
        self.counted_at = Instant::now();
        // Told again where it has not changed: whoever waits hears that somebody is there.
        self.counted = Counted::of(&self.settings.progress);
        put(frames, &Head::Progress(self.counted), &[])
    }

    fn tell_end(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        let coverage = self.running.coverage();
        let coverage =
            coverage.ok_or_else(|| Error::Internal("an end without a coverage".into()))?;
        let end = Head::End {
            rejected: coverage.first_rejected.clone(),
            coverage: Box::new(coverage.clone()),
            counted: Counted::of(&self.settings.progress),
            workers: WorkerSaid::all_of(&self.settings.progress),
            planned: PlannedSaid::of(&self.settings.progress),
        };
        put(frames, &end, &[])
    }
}

fn tell_glimpse(frames: &mut Vec<u8>, glimpse: InterimResult) -> Result<()> {
    let InterimResult { schema, batches, bytes_read_share: share, coverage } = glimpse;
    let rows = concat_batches(&schema, &batches)?;
    put(frames, &Head::Glimpse { share, coverage: Box::new(coverage) }, &content(&rows)?)
}

/// The frame that says which of the master's jobs it is.
///
/// # Errors
/// [`Error::Internal`].
pub fn began(id: u64) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    put(&mut frame, &Head::Began { id }, &[])?;
    Ok(frame)
}

/// The frame that says what went wrong before there was a run.
///
/// # Errors
/// [`Error::Internal`].
pub fn failed(error: Error) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    put(&mut frame, &Head::Failed { error: SerializedError::from(error) }, &[])?;
    Ok(frame)
}

/// The frame that says that a run waits for its turn.
///
/// # Errors
/// [`Error::Internal`].
pub fn waiting(before: usize) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    put(&mut frame, &Head::Waiting { before }, &[])?;
    Ok(frame)
}
