//! What did a run cost? Measured from its start to its end, and appended to the job log.
//!
//! Processor time and memory are the process's: a run uses threads of several libraries, and
//! on the command line the process is the run. In a Python program that computes something
//! else meanwhile, that is counted too.
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

use crate::log::{JobLog, Keep};
use crate::record::{Outcome, Record, Step, Worker};

/// What is known of a run before it starts.
#[derive(Debug, Clone, Default)]
pub struct About {
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
    /// What is read, where it is not in the SQL.
    pub sources: Vec<String>,
    /// Where the result goes.
    pub output: Option<String>,
    /// Stored bytes that are read, where no source counts them: of partial tables.
    pub bytes_in: Option<u64>,
}

impl About {
    /// What a merge of partial tables is.
    pub fn merge(partials: &[PathBuf], output: Option<String>) -> Self {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |data| data.len());
        About {
            verb: "merge",
            sources: partials.iter().map(|path| path.display().to_string()).collect(),
            bytes_in: Some(partials.iter().map(size).sum()),
            output,
            ..About::default()
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub enum Ending<'a> {
    /// Its rows were written.
    Written {
        /// What they rest on.
        coverage: &'a Coverage,
        /// What was written.
        written: &'a OutputSummary,
    },
    /// Its rows were taken, by whoever asked for them.
    Read {
        /// What they rest on.
        coverage: &'a Coverage,
        /// How many there were.
        rows: u64,
    },
    /// Something stopped it.
    Error {
        /// What.
        error: &'a Error,
        /// What its rows rest on, if they had all been read.
        coverage: Option<&'a Coverage>,
    },
}

/// A record in the making. Dropped before its end, it says that the run was interrupted.
#[derive(Debug)]
pub struct Recorder(Option<Box<Open>>);

#[derive(Debug)]
struct Open {
    log: JobLog,
    about: About,
    id: String,
    progress: RunProgress,
    memory_limit_bytes: u64,
    threads: u64,
    start: SystemTime,
    started: Instant,
    cpu: Cpu,
    memory: MemoryWatch,
}

impl Recorder {
    /// Begins to measure; where the state folder cannot be written, a warning too.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if [`LOG_VARIABLE`](super::LOG_VARIABLE) is not understood.
    pub fn start(
        id: &RunId,
        settings: &RunSettings,
        about: About,
    ) -> crate::Result<(Recorder, Option<String>)> {
        let Keep::Bytes(limit_bytes) = Keep::from_environment()? else {
            return Ok((Recorder(None), None));
        };
        let (home, warning) = StateFolder::open();
        let Some(home) = home else { return Ok((Recorder(None), warning)) };
        let open = Open {
            log: JobLog::new(&home, limit_bytes),
            about,
            id: id.to_string(),
            progress: settings.progress.clone(),
            memory_limit_bytes: settings.memory_bytes,
            threads: settings.threads as u64,
            start: SystemTime::now(),
            started: Instant::now(),
            cpu: Cpu::now(),
            memory: MemoryWatch::start(),
        };
        Ok((Recorder(Some(Box::new(open))), None))
    }

    /// Appends the record; a warning if it cannot be.
    pub fn end(mut self, ending: Ending<'_>) -> Option<String> {
        self.0.take().and_then(|open| open.end(&ending))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            // There is nobody left to be warned.
            let _ = open.end(&Ending::Error { error: &Error::Interrupted, coverage: None });
        }
    }
}

impl Open {
    fn end(mut self, ending: &Ending<'_>) -> Option<String> {
        let wall = self.started.elapsed();
        let cpu = self.cpu.since();
        let memory = self.memory.stop(wall);
        let (outcome, error, coverage) = match ending {
            Ending::Written { coverage, .. } | Ending::Read { coverage, .. } => {
                let outcome = if coverage.complete { Outcome::Done } else { Outcome::Incomplete };
                (outcome, None, Some(*coverage))
            }
            // The reader has had what it wanted.
            Ending::Error { error: Error::ClosedPipe, coverage } => {
                (Outcome::Done, None, *coverage)
            }
            Ending::Error { error: Error::Interrupted, coverage } => {
                (Outcome::Interrupted, None, *coverage)
            }
            Ending::Error { error, coverage } => {
                let text = error.to_string();
                (Outcome::Failed, text.lines().next().map(str::to_owned), *coverage)
            }
        };
        let stopped = match ending {
            Ending::Error { error: error @ Error::ClosedPipe, .. } => Some(error.to_string()),
            _ => coverage.and_then(|coverage| coverage.stopped.clone()),
        };
        let planned = self.progress.plan_outline();
        let steps = self.steps(ending, coverage, planned.execution_path);
        let workers = self.workers();
        let about = self.about;
        let record = Record {
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
            start_us: micros(self.start.duration_since(UNIX_EPOCH).unwrap_or_default()),
            wall_us: micros(wall),
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
        let appended = self.log.append(&record.prepared());
        appended.err().map(|error| format!("this run is not in the job log: {error}"))
    }

    /// Those that read splits elsewhere, by their names.
    fn workers(&self) -> Vec<Worker> {
        let ms = |at: Instant| {
            u64::try_from(at.saturating_duration_since(self.started).as_millis())
                .unwrap_or(u64::MAX)
        };
        let elsewhere = self.progress.workers().into_iter().map(|(name, done)| Worker {
            name,
            tasks: done.tasks_done,
            lost: done.tasks_lost,
            bytes_in: done.bytes_done,
            cpu_us: micros(done.cpu_time),
            busy_ms: done.active_spans.iter().map(|(from, to)| (ms(*from), ms(*to))).collect(),
        });
        elsewhere.collect()
    }

    /// The steps as far as they are known: a run that failed knows how far it read.
    fn steps(
        &self,
        ending: &Ending<'_>,
        coverage: Option<&Coverage>,
        path: Option<&'static str>,
    ) -> Vec<Step> {
        let progress = &self.progress;
        let Some(path) = path else { return Vec::new() };
        let step = |name: &str| Step { name: name.to_owned(), ..Step::default() };
        let is_merge = self.about.bytes_in.is_some();
        let mut steps = Vec::with_capacity(4);
        let first = Step {
            bytes_in: Some(coverage.map_or(progress.bytes_done(), |coverage| coverage.bytes.done)),
            rows_in: Some(coverage.map_or(progress.rows_done(), |coverage| coverage.rows.done)),
            ..step(if path == "datafusion" { "plan" } else { "map" })
        };
        let tables = Step {
            rows_out: Some(progress.table_counters().rows()),
            cpu_us: Some(progress.table_counters().cpu_ns() / 1000),
            ..step("tables")
        };
        let rows = match ending {
            Ending::Written { written, .. } => Some(written.rows),
            Ending::Read { rows, .. } => Some(*rows),
            Ending::Error { .. } => None,
        };
        let cpu_us = Some(progress.map_counters().cpu_ns() / 1000);
        let is_partial = progress.partial_table_bytes() > 0;
        match path {
            "partial tables" => {
                if is_merge {
                    let bytes_in = self.about.bytes_in;
                    steps.push(Step { name: "merge".to_owned(), bytes_in, ..tables });
                } else {
                    let rows_out = Some(progress.map_counters().rows());
                    steps.push(Step { rows_out, cpu_us, ..first });
                    steps.push(Step { rows_in: rows_out, ..tables });
                }
                let groups = Some(progress.table_counters().rows());
                if !is_partial {
                    steps.push(Step { rows_in: groups, rows_out: rows, ..step("finish") });
                }
            }
            "rows" => steps.push(Step { rows_out: rows, cpu_us, ..first }),
            _ => steps.push(Step { rows_out: rows, ..first }),
        }
        if is_partial {
            let groups = Some(progress.table_counters().rows());
            let bytes_out = Some(progress.partial_table_bytes());
            steps.push(Step { rows_in: groups, rows_out: groups, bytes_out, ..step("sink") });
        } else if let Ending::Written { written, .. } = ending {
            steps.push(Step {
                rows_in: Some(written.rows),
                rows_out: Some(written.rows),
                bytes_out: Some(written.bytes),
                ..step("sink")
            });
        }
        steps
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Processor time of this process, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Cpu {
    user_us: u64,
    system_us: u64,
}

impl Cpu {
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
            Some(usage) => Cpu { user_us: us(usage.ru_utime), system_us: us(usage.ru_stime) },
            None => Cpu { user_us: 0, system_us: 0 },
        }
    }

    fn since(self) -> Self {
        let now = Cpu::now();
        Cpu {
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
        let (cpu, mut memory) = (Cpu::now(), MemoryWatch::start());
        let started = Instant::now();
        let mut numbers = vec![1u64; 4 << 20];
        // Until the processor's clock has ticked.
        while cpu.since().user_us + cpu.since().system_us == 0 {
            numbers.iter_mut().for_each(|number| *number = number.wrapping_mul(3));
        }
        let seen = memory.stop(started.elapsed());
        assert!(seen.peak_bytes > 32 << 20, "{seen:?}");
        assert!(numbers.contains(&numbers[0]));
    }
}
