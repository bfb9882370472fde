//! How a query would run.

use std::fmt;

use serde::Serialize;
use tidemill_base::coverage;

use crate::cluster::ClusterForecast;
use crate::tasks::WorkerCounts;

/// How a query would be run.
#[derive(Debug, Clone, Serialize)]
pub struct PlanExplanation {
    /// `partial tables`, `rows` or `datafusion`.
    pub path: String,
    /// Why that path.
    pub why: String,
    /// Whether the result comes from states that merge with others.
    pub mergeable: bool,
    /// The memory budget.
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// What is read.
    pub sources: Vec<SourceExplanation>,
    /// The steps by name, each with its plan.
    pub steps: Vec<(String, String)>,
    /// How its splits are read elsewhere, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<ClusterReadExplanation>,
    /// What it would take on a cluster, where that was asked for: [`Plan::forecast`](crate::Plan::forecast).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ClusterForecast>,
}

/// How a query's splits are read by workers elsewhere.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterReadExplanation {
    /// Who reads.
    #[serde(flatten)]
    pub reach: WorkerCounts,
    /// How many tasks; none where they are cut as they are handed in.
    pub tasks: Option<u64>,
    /// Splits of all tasks.
    pub splits: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Bytes of the job, which goes to each machine once; rows of what is joined are held in it beside these.
    pub job_bytes: u64,
    /// What comes back, and what becomes of it.
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

/// A source in an [`Explain`].
#[derive(Debug, Clone, Serialize)]
pub struct SourceExplanation {
    /// Its name or URL.
    pub name: String,
    /// Its format.
    pub format: String,
    /// How many files.
    pub files: u64,
    /// How many splits, before row groups are left out by their statistics.
    pub splits: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Names and types.
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
