//! Measures the cost of a run from its start to its end, and appends its record to the job log.
//!
//! Processor time and memory are those of the process: a run uses threads of several libraries, and on the
//! command line the process is the run. In a Python program, other work at the same time counts, too.
//!
//! [`MemoryWatch`] measures the memory.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidemill_base::RunSettings;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::Error;
use tidemill_base::memory_watch::MemoryWatch;
use tidemill_base::progress::RunProgress;
use tidemill_base::state_folder::{RunId, StateFolder};
use tidemill_sink::OutputSummary;

use crate::job_log::{JobLog, LogRetention};
use crate::run_record::{RunOutcome, RunRecord, RunStep, RunWorker};

/// The description of a run, known before it starts.
#[derive(Debug, Clone, Default)]
pub struct RunDescription {
    /// `query`, `run`, `merge` or `read_text`.
    pub verb: &'static str,
    /// `command line` or `python`.
    pub via: &'static str,
    /// The job's name.
    pub name: Option<String>,
    /// The map, as it was written.
    pub mapper: Option<String>,
    /// The tables, where they are known before planning.
    pub reducer: Option<String>,
    /// The sources, if they are not in the SQL.
    pub sources: Vec<String>,
    /// Destination of the result.
    pub output: Option<String>,
    /// Stored bytes of partial tables, which no source counts.
    pub bytes_in: Option<u64>,
}

impl RunDescription {
    /// Returns the description of a merge of partial tables.
    pub fn for_merge(partials: &[PathBuf], output: Option<String>) -> Self {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |data| data.len());
        RunDescription {
            verb: "merge",
            sources: partials.iter().map(|path| path.display().to_string()).collect(),
            bytes_in: Some(partials.iter().map(size).sum()),
            output,
            ..RunDescription::default()
        }
    }
}

/// The end of a run.
#[derive(Debug)]
pub enum RunEnding<'a> {
    /// Its rows were written.
    Written {
        /// The coverage of the rows.
        coverage: &'a Coverage,
        /// Rows and bytes written.
        written: &'a OutputSummary,
    },
    /// The caller has read its rows.
    Returned {
        /// The coverage of the rows.
        coverage: &'a Coverage,
        /// Number of rows.
        rows: u64,
    },
    /// An error or an interrupt ended it.
    Error {
        /// The error.
        error: &'a Error,
        /// The coverage, if all rows had been read.
        coverage: Option<&'a Coverage>,
    },
}

/// Measures a run. Dropped before the end, it records that the run was interrupted.
#[derive(Debug)]
pub struct RunRecorder(Option<Box<OpenRun>>);

#[derive(Debug)]
struct OpenRun {
    log: JobLog,
    description: RunDescription,
    id: String,
    progress: RunProgress,
    memory_limit_bytes: u64,
    threads: u64,
    start_time: SystemTime,
    start_instant: Instant,
    start_cpu: CpuTime,
    memory_watch: MemoryWatch,
}

impl RunRecorder {
    /// Starts measuring. Also returns a warning if the state folder cannot be written.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if [`JOB_LOG_ENV_VAR`](super::JOB_LOG_ENV_VAR) is invalid.
    pub fn start(
        id: &RunId,
        settings: &RunSettings,
        about: RunDescription,
    ) -> crate::Result<(RunRecorder, Option<String>)> {
        let LogRetention::SizeLimit(limit_bytes) = LogRetention::from_environment()? else {
            return Ok((RunRecorder(None), None));
        };
        let (home, warning) = StateFolder::open();
        let Some(home) = home else { return Ok((RunRecorder(None), warning)) };
        let open = OpenRun {
            log: JobLog::new(&home, limit_bytes),
            description: about,
            id: id.to_string(),
            progress: settings.progress.clone(),
            memory_limit_bytes: settings.memory_bytes,
            threads: settings.threads as u64,
            start_time: SystemTime::now(),
            start_instant: Instant::now(),
            start_cpu: CpuTime::now(),
            memory_watch: MemoryWatch::start(),
        };
        Ok((RunRecorder(Some(Box::new(open))), None))
    }

    /// Appends the record. Returns a warning if that fails.
    pub fn finish(mut self, ending: RunEnding<'_>) -> Option<String> {
        self.0.take().and_then(|open| open.finish(&ending))
    }
}

impl Drop for RunRecorder {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            // Nobody receives a warning here.
            let _ = open.finish(&RunEnding::Error { error: &Error::Interrupted, coverage: None });
        }
    }
}

impl OpenRun {
    fn finish(mut self, ending: &RunEnding<'_>) -> Option<String> {
        let wall = self.start_instant.elapsed();
        let cpu = self.start_cpu.elapsed();
        let memory = self.memory_watch.stop(wall);
        let (outcome, error, coverage) = match ending {
            RunEnding::Written { coverage, .. } | RunEnding::Returned { coverage, .. } => {
                let outcome =
                    if coverage.complete { RunOutcome::Done } else { RunOutcome::Incomplete };
                (outcome, None, Some(*coverage))
            }
            // The reader closed the pipe because it had read enough.
            RunEnding::Error { error: Error::ClosedPipe, coverage } => {
                (RunOutcome::Done, None, *coverage)
            }
            RunEnding::Error { error: Error::Interrupted, coverage } => {
                (RunOutcome::Interrupted, None, *coverage)
            }
            RunEnding::Error { error, coverage } => {
                let text = error.to_string();
                (RunOutcome::Failed, text.lines().next().map(str::to_owned), *coverage)
            }
        };
        let stopped = match ending {
            RunEnding::Error { error: error @ Error::ClosedPipe, .. } => Some(error.to_string()),
            _ => coverage.and_then(|coverage| coverage.stopped.clone()),
        };
        let planned = self.progress.plan_outline();
        let steps = self.run_steps(ending, coverage, planned.execution_path);
        let workers = self.run_workers();
        let about = self.description;
        let record = RunRecord {
            id: self.id,
            name: about.name,
            verb: about.verb.to_owned(),
            via: about.via.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mapper: about.mapper,
            reducer: about.reducer.or(planned.tables),
            sources: about.sources,
            output: about.output,
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            start_us: to_micros(self.start_time.duration_since(UNIX_EPOCH).unwrap_or_default()),
            wall_us: to_micros(wall),
            cpu_user_us: cpu.user_us,
            cpu_system_us: cpu.system_us,
            memory_peak_bytes: memory.peak_bytes,
            memory_byte_seconds: memory.byte_seconds,
            memory_limit_bytes: self.memory_limit_bytes,
            threads: self.threads,
            path: planned.execution_path.map(str::to_owned),
            steps,
            workers,
            splits_done: coverage.map_or(0, |coverage| coverage.splits.done),
            splits_total: coverage.map_or(0, |coverage| coverage.splits.total),
            rejected: coverage.map_or(0, |coverage| coverage.rows.rejected),
            spilled_bytes: self.progress.spilled_bytes(),
            outcome,
            error,
            stopped,
        };
        let appended = self.log.append(&record.redact_and_truncate());
        appended.err().map(|error| format!("this run is not in the job log: {error}"))
    }

    /// Returns the workers that read splits, by name.
    fn run_workers(&self) -> Vec<RunWorker> {
        let ms = |at: Instant| {
            u64::try_from(at.saturating_duration_since(self.start_instant).as_millis())
                .unwrap_or(u64::MAX)
        };
        let elsewhere = self.progress.workers().into_iter().map(|(name, done)| RunWorker {
            name,
            tasks: done.tasks_done,
            lost: done.tasks_lost,
            bytes_in: done.bytes_done,
            cpu_us: to_micros(done.cpu_time),
            busy_ms: done.active_spans.iter().map(|(from, to)| (ms(*from), ms(*to))).collect(),
        });
        elsewhere.collect()
    }

    /// Returns the steps as far as they are known. A failed run has the amounts read until then.
    fn run_steps(
        &self,
        ending: &RunEnding<'_>,
        coverage: Option<&Coverage>,
        path: Option<&'static str>,
    ) -> Vec<RunStep> {
        let progress = &self.progress;
        let Some(path) = path else { return Vec::new() };
        let step = |name: &str| RunStep { name: name.to_owned(), ..RunStep::default() };
        let is_merge = self.description.bytes_in.is_some();
        let mut steps = Vec::with_capacity(4);
        let first = RunStep {
            bytes_in: Some(coverage.map_or(progress.bytes_done(), |coverage| coverage.bytes.done)),
            rows_in: Some(coverage.map_or(progress.rows_done(), |coverage| coverage.rows.done)),
            ..step(if path == "datafusion" { "plan" } else { "map" })
        };
        let tables = RunStep {
            rows_out: Some(progress.table_counters().rows()),
            cpu_us: Some(progress.table_counters().cpu_ns() / 1000),
            ..step("tables")
        };
        let rows = match ending {
            RunEnding::Written { written, .. } => Some(written.rows),
            RunEnding::Returned { rows, .. } => Some(*rows),
            RunEnding::Error { .. } => None,
        };
        let cpu_us = Some(progress.map_counters().cpu_ns() / 1000);
        let is_partial = progress.partial_table_bytes() > 0;
        match path {
            "partial tables" => {
                if is_merge {
                    let bytes_in = self.description.bytes_in;
                    steps.push(RunStep { name: "merge".to_owned(), bytes_in, ..tables });
                } else {
                    let rows_out = Some(progress.map_counters().rows());
                    steps.push(RunStep { rows_out, cpu_us, ..first });
                    steps.push(RunStep { rows_in: rows_out, ..tables });
                }
                let groups = Some(progress.table_counters().rows());
                if !is_partial {
                    steps.push(RunStep { rows_in: groups, rows_out: rows, ..step("finish") });
                }
            }
            "rows" => steps.push(RunStep { rows_out: rows, cpu_us, ..first }),
            _ => steps.push(RunStep { rows_out: rows, ..first }),
        }
        if is_partial {
            let groups = Some(progress.table_counters().rows());
            let bytes_out = Some(progress.partial_table_bytes());
            steps.push(RunStep { rows_in: groups, rows_out: groups, bytes_out, ..step("sink") });
        } else if let RunEnding::Written { written, .. } = ending {
            steps.push(RunStep {
                rows_in: Some(written.rows),
                rows_out: Some(written.rows),
                bytes_out: Some(written.bytes),
                ..step("sink")
            });
        }
        steps
    }
}

fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Processor time of this process, in microseconds.
#[derive(Debug, Clone, Copy)]
struct CpuTime {
    user_us: u64,
    system_us: u64,
}

impl CpuTime {
    fn now() -> Self {
        // SAFETY: the structure is plain numbers, for which zeros are valid, and the call
        // fills it in or returns an error.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) == 0).then_some(usage)
        };
        let us = |time: libc::timeval| {
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            seconds
                .saturating_mul(1_000_000)
                .saturating_add(u64::try_from(time.tv_usec).unwrap_or(0))
        };
        match usage {
            Some(usage) => CpuTime { user_us: us(usage.ru_utime), system_us: us(usage.ru_stime) },
            None => CpuTime { user_us: 0, system_us: 0 },
        }
    }

    fn elapsed(self) -> Self {
        let now = CpuTime::now();
        CpuTime {
            user_us: now.user_us.saturating_sub(self.user_us),
            system_us: now.system_us.saturating_sub(self.system_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_taken_processor_time_and_memory() {
        let (cpu, mut memory) = (CpuTime::now(), MemoryWatch::start());
        let started = Instant::now();
        let mut numbers = vec![1u64; 4 << 20];
        // Until the processor's clock has ticked.
        while cpu.elapsed().user_us + cpu.elapsed().system_us == 0 {
            numbers.iter_mut().for_each(|number| *number = number.wrapping_mul(3));
        }
        let seen = memory.stop(started.elapsed());
        assert!(seen.peak_bytes > 32 << 20, "{seen:?}");
        assert!(numbers.contains(&numbers[0]));
    }
}
