//! Posted queries: queries that a client sends over HTTP to a master on a cluster (`docs/formats/posted.md`).
//!
//! ```text
//!   client                                     master
//!     posted query: SQL, sources, options ────►  validated · planned · run by its workers
//!     progress · rows · sink · job log ◄───────  frames: schema, rows, progress, warnings, end or error
//! ```
//!
//! A client needs neither Python nor Ray. For the client, the run is like any other
//! ([`RunHandle::start_posted_query`](crate::run_handle::RunHandle::start_posted_query)): the same code
//! writes its rows, and its errors have the same classes. The master validates the query
//! ([`query_execution`]) and trusts none of it. It accepts no programs, no files of its machines and no
//! settings that lead to its own credentials, unless the user who started it allowed them.
//!
//! - [`master_client`]: the client's side: the master's address, tokens, requests, and decoding of frames.
//! - [`query_execution`]: the master's side: validation, execution, and encoding of frames.
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
use tidemill_base::cores::RunPriority;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{BadRecord, Error, Result};
use tidemill_base::progress::{PlanOutline, RunProgress, WorkerProgress};
use tidemill_base::state_folder::RunId;
use tidemill_base::{BadRecordLimit, RunSettings};
use tidemill_query::{NamedSource, Query, SerializedError, TurboSettings};
use tidemill_source::posted_source::PostedSource;
use tidemill_tables::merging::sections;

/// Format version of posted queries and frames.
const POSTED_QUERY_FORMAT_VERSION: u32 = 1;
/// Maximum size of an encoded posted query.
pub const POSTED_QUERY_BYTES_MAX: usize = 1 << 20;
/// Spelling of an unlimited number of malformed records.
const UNLIMITED_BAD_RECORDS: &str = "any";

/// A query in the form in which a client posts it to a master. It may contain secrets.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostedQuery {
    format: u32,
    /// `query`, `run` or `convert`.
    verb: String,
    /// The statement as written, for listings of the master's jobs.
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
    /// Turbo options as in a job file. A deadline is the time that remains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    turbo: BTreeMap<String, String>,
    /// The kind of result.
    #[serde(default, skip_serializing_if = "PostedResultKind::is_rows")]
    gives: PostedResultKind,
    /// True if the client wants interim results.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    watched: bool,
    /// The turbo settings from which `turbo` is encoded.
    #[serde(skip)]
    own_turbo: Option<TurboSettings>,
}

/// The kind of result of a posted query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PostedResultKind {
    /// The rows of its result.
    #[default]
    Rows,
    /// One row that explains the plan.
    Explanation,
    /// A partial table: rows of one column, whose values are consecutive pieces of the file.
    Partial {
        /// The id of the client's run.
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
    RunPriority::default().to_string()
}

impl PostedQuery {
    /// Creates a posted query. `shown` is the statement for listings of the master's jobs.
    ///
    /// # Errors
    /// [`Error::Usage`] for a feature that a master does not support.
    pub fn new(
        verb: &str,
        shown: &str,
        query: &Query,
        settings: &RunSettings,
        priority: RunPriority,
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

    /// Sets whether the master sends interim results, if the query can have them.
    #[must_use]
    pub fn with_interim_results(self, watched: bool) -> PostedQuery {
        PostedQuery { watched, ..self }
    }

    /// Requests the explanation of the plan instead of the result.
    pub(crate) fn for_explanation(self) -> PostedQuery {
        PostedQuery { gives: PostedResultKind::Explanation, ..self }
    }

    /// Requests the groups as a partial table instead of the result. `run` is the client's run id.
    pub(crate) fn for_partial_table(self, run: &RunId) -> PostedQuery {
        PostedQuery { gives: PostedResultKind::Partial { run: run.to_string() }, ..self }
    }

    /// Returns the time at which the answer is due.
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

/// Returns the error for a feature that a master does not support.
fn unsupported_by_master_error(why: &str) -> Error {
    Error::usage_with_hint(
        format!("the query cannot be asked of a master: {why}"),
        "on one machine it can: leave `on` out",
    )
}

fn to_json_bytes<T: Serialize>(of: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(of).map_err(|error| Error::Internal(format!("no JSON: {error}")))
}

/// The head of a frame. Rows and columns are the frame's content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum FrameHead {
    /// The run's number among the master's jobs.
    Began {
        id: u64,
    },
    /// The run waits for its turn behind `before` others.
    Waiting {
        before: usize,
    },
    Schema {
        planned: SerializedPlanOutline,
    },
    Rows,
    /// An interim result. It rests on `share` of the input's bytes.
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

/// The counters of a run so far.
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
    /// Number of workers that executed a task; `lost` is the number of tasks lost with workers that are gone.
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

    /// Sets the counters of a run's progress to these values.
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

    /// Sets the plan outline of a run's progress, with the words that this release knows.
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

/// The work of one worker for a run.
#[derive(Debug, Serialize, Deserialize)]
struct SerializedWorkerProgress {
    name: String,
    tasks: u64,
    lost: u64,
    bytes: u64,
    cpu_ns: u64,
    /// Start and end of each active span, in microseconds before now.
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

/// Appends a frame: the length of its head (4 bytes, little-endian), the head (JSON), the length of its
/// content (8 bytes) and the content.
fn append_frame(out: &mut Vec<u8>, head: &FrameHead, content: &[u8]) -> Result<()> {
    let head = to_json_bytes(head)?;
    let length = u32::try_from(head.len()).map_err(|_| Error::Internal("a long head".into()))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(&(content.len() as u64).to_le_bytes());
    out.extend_from_slice(content);
    Ok(())
}

/// Encodes columns and rows as the content of a frame: an Arrow stream of one batch.
fn encode_frame_content(batch: &RecordBatch) -> Result<Vec<u8>> {
    sections::encode_batch(batch)
}

fn empty_batch(schema: &SchemaRef) -> RecordBatch {
    RecordBatch::new_empty(SchemaRef::clone(schema))
}
