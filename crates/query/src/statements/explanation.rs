//! The description of a query plan that `--explain` prints and the JSON form serializes.

use std::fmt;

use serde::Serialize;
use tidemill_base::coverage;

use crate::cluster::ClusterForecast;
use crate::tasks::WorkerCounts;

/// The description of how a query would run.
#[derive(Debug, Clone, Serialize)]
pub struct PlanExplanation {
    /// The execution path: `partial tables`, `rows` or `datafusion`.
    pub path: String,
    /// The reason for that path.
    pub why: String,
    /// True if the result comes from states that can be merged with those of other runs.
    pub mergeable: bool,
    /// The memory budget, in bytes.
    pub memory_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// The sources that the query reads.
    pub sources: Vec<SourceExplanation>,
    /// Name and text of each step, such as `map` and its plan.
    pub steps: Vec<(String, String)>,
    /// The description of reading by workers, if workers were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<ClusterReadExplanation>,
    /// The forecast for a cluster, if one was requested: [`QueryPlan::forecast`](crate::QueryPlan::forecast).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ClusterForecast>,
}

/// The description of how workers on a cluster read a query's splits.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterReadExplanation {
    /// The machines, workers and threads that read.
    #[serde(flatten)]
    pub reach: WorkerCounts,
    /// Number of tasks; `None` if tasks are cut while they are submitted.
    pub tasks: Option<u64>,
    /// Number of splits of all tasks.
    pub splits: u64,
    /// Stored bytes of these splits.
    pub bytes: u64,
    /// Size of the job definition in bytes. It is sent once to each machine, which also holds the rows of
    /// build sides.
    pub job_bytes: u64,
    /// A text that says which parts the workers return and how they are merged.
    pub parts: String,
}

impl fmt::Display for ClusterReadExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: u64, word: &str| {
            let end = if count == 1 { "" } else { "s" };
            format!("{} {word}{end}", coverage::format_grouped_digits(count))
        };
        let WorkerCounts { machines, workers, threads, .. } = self.reach;
        writeln!(
            f,
            "on a cluster: {} on {}, {}",
            count(workers as u64, "worker"),
            count(machines as u64, "machine"),
            count(threads as u64, "thread"),
        )?;
        let tasks = self.tasks.map(|tasks| format!("{}, ", coverage::format_grouped_digits(tasks)));
        writeln!(
            f,
            "  tasks: {}of {} with {} together; the job has {}",
            tasks.unwrap_or_default(),
            count(self.splits, "split"),
            coverage::format_decimal_bytes(self.bytes),
            coverage::format_decimal_bytes(self.job_bytes),
        )?;
        writeln!(f, "  parts: {}", self.parts)
    }
}

/// The description of a source in a [`PlanExplanation`].
#[derive(Debug, Clone, Serialize)]
pub struct SourceExplanation {
    /// Name or URL.
    pub name: String,
    /// Name of the format.
    pub format: String,
    /// Number of files.
    pub files: u64,
    /// Number of splits, before statistics prune row groups.
    pub splits: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Name and type of each column.
    pub columns: Vec<(String, String)>,
}

impl fmt::Display for PlanExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "path: {} ({})", self.path, self.why)?;
        for source in &self.sources {
            writeln!(
                f,
                "source: {} ({}, {} file{}, {}, {} split{})",
                source.name,
                source.format,
                coverage::format_grouped_digits(source.files),
                if source.files == 1 { "" } else { "s" },
                coverage::format_decimal_bytes(source.bytes),
                coverage::format_grouped_digits(source.splits),
                if source.splits == 1 { "" } else { "s" },
            )?;
        }
        writeln!(
            f,
            "budget: {} of memory, {} thread{}",
            coverage::format_decimal_bytes(self.memory_bytes),
            self.threads,
            if self.threads == 1 { "" } else { "s" },
        )?;
        for (name, text) in &self.steps {
            writeln!(f, "{name}:")?;
            for line in text.lines() {
                writeln!(f, "  {line}")?;
            }
        }
        self.elsewhere.iter().try_for_each(|elsewhere| elsewhere.fmt(f))?;
        self.forecast.iter().try_for_each(|forecast| forecast.fmt(f))
    }
}
