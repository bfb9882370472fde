//! A query that a master on a cluster runs, asked for over HTTP (`docs/formats/posted.md`).
//!
//! ```text
//!   whoever asks                               the master
//!     question: SQL, sources, options  ──────►  judged · planned · run by its workers
//!     progress · rows · sink · job log ◄──────  frames: schema, rows, progress, warnings, the end or an error
//! ```
//!
//! Who asks needs neither Python nor Ray. To it the run is as any other ([`Running::posted`](crate::running::Running::posted)): its
//! rows are written by the same code, and its errors have the same kinds. What is asked is judged by the master
//! ([`answering`]), which trusts nothing of it: no programs, no files of its machines and no settings that lead to its own
//! credentials, unless whoever started it said so.
//!
//! - [`asking`]: where is a master, who may ask it, and what comes back?
//! - [`answering`]: what may be asked, and how is it answered?
//! - `client_id`: the secret by which a master recognises a client's own jobs.

mod client_id;
pub mod master_client;
pub mod query_execution;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_base::cores::Priority;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{BadRecord, Error, Result};
use tidemill_base::progress::{PlanOutline, RunProgress, WorkerProgress};
use tidemill_base::state_folder::RunId;
use tidemill_base::{BadRecordLimit, RunSettings};
use tidemill_query::{NamedSource, Query, SerializedError, TurboSettings};
use tidemill_source::posted_source::PostedSource;
use tidemill_tables::sections;

/// The version of questions and frames.
const POSTED_QUERY_FORMAT_VERSION: u32 = 1;
/// A question has so many bytes at most.
pub const POSTED_QUERY_BYTES_MAX: usize = 1 << 20;
/// How any number of malformed records is written.
const UNLIMITED_BAD_RECORDS: &str = "any";

/// A question on its way to a master. It may hold secrets.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostedQuery {
    format: u32,
    /// `query`, `run` or `convert`.
    verb: String,
    /// What those who look at the master's jobs see: the statement as it was written.
    #[serde(default)]
    shown: String,
    sql: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<(String, PostedSource)>,
    #[serde(default)]
    defaults: PostedSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    map: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    per_record: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keeps_columns: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<usize>,
    #[serde(default = "default_bad_record_limit")]
    max_bad: String,
    #[serde(default = "default_priority")]
    priority: String,
    /// The options of an answer that may rest on a part of the input, as a job file has them; what is left of a deadline.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    turbo: BTreeMap<String, String>,
    /// What is to come of it.
    #[serde(default, skip_serializing_if = "PostedResultKind::is_rows")]
    gives: PostedResultKind,
    /// Whether whoever asks is shown the answer as it stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    watched: bool,
    /// The options that the texts are of.
    #[serde(skip)]
    own_turbo: Option<TurboSettings>,
}

/// What comes of a question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PostedResultKind {
    /// The rows of its result.
    #[default]
    Rows,
    /// A row that says how it would be run.
    Explanation,
    /// A partial table: rows of one column, whose values are the file's bytes one after the other.
    Partial {
        /// The run that asks.
        run: String,
    },
}

impl PostedResultKind {
    fn is_rows(&self) -> bool {
        *self == PostedResultKind::Rows
    }
}

fn default_bad_record_limit() -> String {
    BadRecordLimit::default().to_string()
}

fn default_priority() -> String {
    Priority::default().to_string()
}

impl PostedQuery {
    /// A query for a master. `shown` is what those who look at its jobs see of it.
    ///
    /// # Errors
    /// [`Error::Usage`] for what a master does not do.
    pub fn new(
        verb: &str,
        shown: &str,
        query: &Query,
        settings: &RunSettings,
        priority: Priority,
    ) -> Result<PostedQuery> {
        if query.scratch != tidemill_query::ScratchSpec::default() {
            return Err(unsupported_by_master_error(
                "a scratch folder is the cluster's own, and no one else's to name",
            ));
        }
        if query.stable_sort.is_some() {
            return Err(unsupported_by_master_error("records are put in order on one machine"));
        }
        let sources = query.sources.iter();
        let sources =
            sources.map(|NamedSource { name, spec }| Ok((name.clone(), PostedSource::new(spec)?)));
        Ok(PostedQuery {
            format: POSTED_QUERY_FORMAT_VERSION,
            verb: verb.to_owned(),
            shown: shown.to_owned(),
            sql: query.sql.clone(),
            sources: sources.collect::<Result<_>>()?,
            defaults: PostedSource::new(&query.file_defaults)?,
            map: query.map_sql.clone(),
            per_record: query.is_per_record,
            keeps_columns: query.keeps_columns,
            schema: query.schema.clone(),
            max_attempts: query.split_attempts_max,
            max_bad: settings.max_bad.to_string(),
            priority: priority.to_string(),
            turbo: BTreeMap::new(),
            gives: PostedResultKind::Rows,
            watched: false,
            own_turbo: query.turbo.clone().map(TurboSettings::with_start_time),
        })
    }

    /// The same for somebody who is shown the answer as it stands, where that can be.
    #[must_use]
    pub fn with_interim_results(self, watched: bool) -> PostedQuery {
        PostedQuery { watched, ..self }
    }

    /// The same question, of how it would be run.
    pub(crate) fn for_explanation(self) -> PostedQuery {
        PostedQuery { gives: PostedResultKind::Explanation, ..self }
    }

    /// The same question, of its groups as a partial table; `run` is what the run is called that asks.
    pub(crate) fn for_partial_table(self, run: &RunId) -> PostedQuery {
        PostedQuery { gives: PostedResultKind::Partial { run: run.to_string() }, ..self }
    }

    /// When the answer is to be there.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.own_turbo.as_ref().and_then(TurboSettings::ends_at)
    }

    fn encode(&mut self) -> Result<Vec<u8>> {
        let texts = self.own_turbo.as_ref().map_or(Vec::new(), TurboSettings::option_texts);
        self.turbo = texts.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        let bytes = to_json_bytes(self)?;
        match bytes.len() <= POSTED_QUERY_BYTES_MAX {
            true => Ok(bytes),
            false => Err(unsupported_by_master_error(&format!(
                "what is asked has {} bytes, and a master takes {POSTED_QUERY_BYTES_MAX} at most",
                bytes.len()
            ))),
        }
    }
}

/// That a master does not do something.
fn unsupported_by_master_error(why: &str) -> Error {
    Error::usage_with_hint(
        format!("the query cannot be asked of a master: {why}"),
        "on one machine it can: leave `on` out",
    )
}

fn to_json_bytes<T: Serialize>(of: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(of).map_err(|error| Error::Internal(format!("no JSON: {error}")))
}

/// What a frame says; rows and columns are its content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum FrameHead {
    /// Its number among the master's jobs.
    Began {
        id: u64,
    },
    /// It waits for its turn, with so many before it.
    Waiting {
        before: usize,
    },
    Schema {
        planned: SerializedPlanOutline,
    },
    Rows,
    /// The answer as it stands, which rests on such a share of the bytes.
    Glimpse {
        share: f64,
        coverage: Box<Coverage>,
    },
    Progress(SerializedCounters),
    Warning {
        text: String,
    },
    End {
        coverage: Box<Coverage>,
        rejected: Vec<BadRecord>,
        counted: SerializedCounters,
        workers: Vec<SerializedWorkerProgress>,
        planned: SerializedPlanOutline,
    },
    Failed {
        error: SerializedError,
    },
}

/// Counters of a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct SerializedCounters {
    bytes_total: u64,
    bytes_done: u64,
    rows_done: u64,
    map_rows: u64,
    map_cpu_ns: u64,
    tables_rows: u64,
    tables_cpu_ns: u64,
    spilled_bytes: u64,
    /// Workers that did something, and tasks that were lost with those that are gone.
    workers: u64,
    lost: u64,
}

impl SerializedCounters {
    fn from_progress(progress: &RunProgress) -> SerializedCounters {
        let (workers, lost) = progress.worker_counts();
        SerializedCounters {
            workers,
            lost,
            bytes_total: progress.bytes_total(),
            bytes_done: progress.bytes_done(),
            rows_done: progress.rows_done(),
            map_rows: progress.map_counters().rows(),
            map_cpu_ns: progress.map_counters().cpu_ns(),
            tables_rows: progress.table_counters().rows(),
            tables_cpu_ns: progress.table_counters().cpu_ns(),
            spilled_bytes: progress.spilled_bytes(),
        }
    }

    /// Has a run's counters be these.
    fn apply_to(self, progress: &RunProgress) {
        progress.set_worker_counts((self.workers, self.lost));
        progress.set_bytes_total(self.bytes_total);
        progress.add_bytes(self.bytes_done.saturating_sub(progress.bytes_done()));
        progress.add_rows(self.rows_done.saturating_sub(progress.rows_done()));
        progress.add_spilled_bytes(self.spilled_bytes.saturating_sub(progress.spilled_bytes()));
        for (step, rows, cpu_ns) in [
            (progress.map_counters(), self.map_rows, self.map_cpu_ns),
            (progress.table_counters(), self.tables_rows, self.tables_cpu_ns),
        ] {
            step.add_rows(rows.saturating_sub(step.rows()));
            let cpu_ns = cpu_ns.saturating_sub(step.cpu_ns());
            step.add_worker_cpu(Duration::from_nanos(cpu_ns));
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SerializedPlanOutline {
    path: Option<String>,
    tables: Option<String>,
    afterwards: Option<String>,
}

impl SerializedPlanOutline {
    fn from_progress(progress: &RunProgress) -> SerializedPlanOutline {
        let PlanOutline { execution_path: path, tables, final_activity: afterwards } =
            progress.plan_outline();
        SerializedPlanOutline {
            path: path.map(str::to_owned),
            tables,
            afterwards: afterwards.map(str::to_owned),
        }
    }

    /// Words that this release has for the same.
    fn apply_to(self, progress: &RunProgress) {
        let known = |word: &str| {
            const KNOWN_WORDS: [&str; 4] = ["partial tables", "rows", "datafusion", "sorting"];
            KNOWN_WORDS.into_iter().find(|known| *known == word)
        };
        progress.set_plan_outline(PlanOutline {
            execution_path: self.path.as_deref().and_then(known),
            tables: self.tables,
            final_activity: self.afterwards.as_deref().and_then(known),
        });
    }
}

/// What a worker did for a run.
#[derive(Debug, Serialize, Deserialize)]
struct SerializedWorkerProgress {
    name: String,
    tasks: u64,
    lost: u64,
    bytes: u64,
    cpu_ns: u64,
    /// From when until when it was at work, in microseconds before now.
    spans_us: Vec<(u64, u64)>,
}

impl SerializedWorkerProgress {
    fn collect_from(progress: &RunProgress) -> Vec<SerializedWorkerProgress> {
        let now = Instant::now();
        let before = |then: Instant| to_micros(now.saturating_duration_since(then));
        let all = progress.workers().into_iter().map(|(name, done)| SerializedWorkerProgress {
            name,
            tasks: done.tasks_done,
            lost: done.tasks_lost,
            bytes: done.bytes_done,
            cpu_ns: u64::try_from(done.cpu_time.as_nanos()).unwrap_or(u64::MAX),
            spans_us: done
                .active_spans
                .iter()
                .map(|(from, to)| (before(*from), before(*to)))
                .collect(),
        });
        all.collect()
    }

    fn apply_to(self, progress: &RunProgress) {
        let now = Instant::now();
        let then = |before| now.checked_sub(Duration::from_micros(before)).unwrap_or(now);
        let done = WorkerProgress {
            tasks_done: self.tasks,
            tasks_lost: self.lost,
            bytes_done: self.bytes,
            cpu_time: Duration::from_nanos(self.cpu_ns),
            active_spans: self
                .spans_us
                .into_iter()
                .map(|(from, to)| (then(from), then(to)))
                .collect(),
        };
        progress.update_worker(&self.name, |it| *it = done);
    }
}

fn to_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A frame: the length of its head (4 bytes, little-endian), the head (JSON), the length of its content (8 bytes) and that.
fn append_frame(out: &mut Vec<u8>, head: &FrameHead, content: &[u8]) -> Result<()> {
    let head = to_json_bytes(head)?;
    let length = u32::try_from(head.len()).map_err(|_| Error::Internal("a long head".into()))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(&(content.len() as u64).to_le_bytes());
    out.extend_from_slice(content);
    Ok(())
}

/// Columns and rows as the content of a frame: an Arrow stream of one batch.
fn encode_frame_content(batch: &RecordBatch) -> Result<Vec<u8>> {
    sections::encode_batch(batch)
}

fn empty_batch(schema: &SchemaRef) -> RecordBatch {
    RecordBatch::new_empty(SchemaRef::clone(schema))
}
