//! Counters of a run's progress, which workers add to, and which a display and the job log read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Counters of a running job; cloning shares them.
///
/// Bytes are those of the files as stored (compressed bytes of a compressed file), so that
/// `bytes_done / bytes_total` is a fraction that never falls.
#[derive(Debug, Clone, Default)]
pub struct RunProgress {
    counters: Arc<ProgressCounters>,
    /// True for a part of the work: its changes leave `bytes_total` as it is.
    is_part: bool,
}

#[derive(Debug, Default)]
struct ProgressCounters {
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    rows_done: AtomicU64,
    spilled_bytes: AtomicU64,
    partial_bytes: AtomicU64,
    map: StepCounters,
    tables: StepCounters,
    plan_outline: Mutex<PlanOutline>,
    workers: Mutex<BTreeMap<String, WorkerProgress>>,
    /// Number of worker processes and of their lost tasks, as reported by a process that knows their names.
    reported_worker_counts: Mutex<(u64, u64)>,
    /// The thing that the run waits for before it reads anything.
    wait_reason: Mutex<Option<&'static str>>,
    /// Numbers of finished and of all tasks with which workers write the result.
    write_task_counts: Mutex<(u64, u64)>,
}

/// The work of one worker process for a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerProgress {
    /// Number of completed tasks.
    pub tasks_done: u64,
    /// Number of tasks that the worker held when it was lost.
    pub tasks_lost: u64,
    /// Stored bytes of the completed tasks.
    pub bytes_done: u64,
    /// Processor time of the completed tasks.
    pub cpu_time: Duration,
    /// The time spans of its work, in order.
    pub active_spans: Vec<(Instant, Instant)>,
}

impl WorkerProgress {
    /// Maximum number of spans; beyond it, neighbouring spans are merged.
    const ACTIVE_SPANS_MAX: usize = 256;

    /// Adds a task that has just completed after `took`.
    pub fn add_task(&mut self, bytes: u64, cpu: Duration, took: Duration) {
        let now = Instant::now();
        let began = now.checked_sub(took).unwrap_or(now);
        self.tasks_done += 1;
        self.bytes_done += bytes;
        self.cpu_time += cpu;
        // Tasks that arrive together were executed one after the other.
        let began = self.active_spans.last().map_or(began, |(_, last)| began.max(*last));
        self.active_spans.push((began, now));
        if self.active_spans.len() > Self::ACTIVE_SPANS_MAX {
            let pairs = self.active_spans.chunks(2);
            self.active_spans =
                pairs.filter_map(|pair| Some((pair.first()?.0, pair.last()?.1))).collect();
        }
    }
}

/// The output rows and the processor time of an execution step.
#[derive(Debug, Default)]
pub struct StepCounters {
    rows: AtomicU64,
    cpu_ns: AtomicU64,
}

impl StepCounters {
    /// Adds rows, or groups, that the step produced.
    pub fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds the processor time of this thread since the last reading of `clock`.
    pub fn add_thread_cpu(&self, clock: &mut ThreadCpuClock) {
        let now_ns = thread_cpu_ns();
        self.cpu_ns.fetch_add(now_ns.saturating_sub(clock.0), Ordering::Relaxed);
        clock.0 = now_ns;
    }

    /// Adds processor time of worker processes.
    pub fn add_worker_cpu(&self, cpu: Duration) {
        let ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.cpu_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Returns the number of rows, or groups, produced so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Returns the processor time of all threads so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

/// The processor time of the thread that created it, at the last reading.
///
/// A reading is a system call of a few hundred nanoseconds: call it once per batch, not per row.
#[derive(Debug)]
pub struct ThreadCpuClock(u64);

impl ThreadCpuClock {
    /// Starts a clock of this thread, read now.
    pub fn start() -> Self {
        ThreadCpuClock(thread_cpu_ns())
    }
}

/// Returns the processor time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if status != 0 {
        return 0;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the processor time of all threads of this process, in seconds.
pub fn process_cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    if status == 0 { time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9 } else { 0.0 }
}

/// The outline of a run's plan, as displays show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanOutline {
    /// `partial tables`, `rows` or `datafusion`; `None` before planning.
    pub execution_path: Option<&'static str>,
    /// The aggregate tables as text, if the plan has any.
    pub tables: Option<String>,
    /// The activity that remains once all input is read, as a participle: `sorting`.
    pub final_activity: Option<&'static str>,
}

impl RunProgress {
    /// Creates counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a handle to the same counters for a part of the work, which does not change the total.
    #[must_use]
    pub fn part_progress(&self) -> Self {
        RunProgress { counters: Arc::clone(&self.counters), is_part: true }
    }

    /// Updates the progress of the worker process called `name`.
    pub fn update_worker(&self, name: &str, change: impl FnOnce(&mut WorkerProgress)) {
        change(self.counters.workers.lock().entry(name.to_owned()).or_default());
    }

    /// Returns the number of worker processes that took part, and the number of tasks lost with those gone.
    pub fn worker_counts(&self) -> (u64, u64) {
        let known = self.counters.workers.lock();
        let lost = known.values().map(|it| it.tasks_lost).sum();
        let told = *self.counters.reported_worker_counts.lock();
        (told.0.max(known.len() as u64), told.1.max(lost))
    }

    /// Sets the counts of [`worker_counts`](Self::worker_counts), as reported by a process that knows the
    /// workers' names.
    pub fn set_worker_counts(&self, count: (u64, u64)) {
        *self.counters.reported_worker_counts.lock() = count;
    }

    /// Sets the thing that the run waits for before it reads anything.
    pub fn set_wait_reason(&self, what: Option<&'static str>) {
        *self.counters.wait_reason.lock() = what;
    }

    /// Returns the thing that the run waits for before it reads anything.
    pub fn wait_reason(&self) -> Option<&'static str> {
        *self.counters.wait_reason.lock()
    }

    /// Sets the number of finished tasks, and of all tasks, with which workers write the result.
    pub fn set_write_task_counts(&self, done: u64, of: u64) {
        *self.counters.write_task_counts.lock() = (done, of);
    }

    /// Returns the number of finished tasks, and of all tasks, with which workers write the result.
    pub fn write_task_counts(&self) -> (u64, u64) {
        *self.counters.write_task_counts.lock()
    }

    /// Returns the progress of the worker processes by name.
    pub fn workers(&self) -> BTreeMap<String, WorkerProgress> {
        self.counters.workers.lock().clone()
    }

    /// Sets the number of stored bytes that the plan will read.
    pub fn set_bytes_total(&self, bytes: u64) {
        if !self.is_part {
            self.counters.bytes_total.store(bytes, Ordering::Relaxed);
        }
    }

    /// Adds stored bytes that were read.
    pub fn add_bytes(&self, bytes: u64) {
        self.counters.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds decoded rows.
    pub fn add_rows(&self, rows: u64) {
        self.counters.rows_done.fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds bytes of tables that were spilled to disk because they did not fit in memory.
    pub fn add_spilled_bytes(&self, bytes: u64) {
        self.counters.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the size of the partial table that was written.
    pub fn set_partial_table_bytes(&self, bytes: u64) {
        self.counters.partial_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the size of the partial table that was written; 0 without one.
    pub fn partial_table_bytes(&self) -> u64 {
        self.counters.partial_bytes.load(Ordering::Relaxed)
    }

    /// Sets the outline of the run's plan.
    pub fn set_plan_outline(&self, planned: PlanOutline) {
        *self.counters.plan_outline.lock() = planned;
    }

    /// Returns the outline of the run's plan, as far as known.
    pub fn plan_outline(&self) -> PlanOutline {
        self.counters.plan_outline.lock().clone()
    }

    /// Returns the counters of the map.
    pub fn map_counters(&self) -> &StepCounters {
        &self.counters.map
    }

    /// Returns the counters of the aggregate tables, including their merge and finish.
    pub fn table_counters(&self) -> &StepCounters {
        &self.counters.tables
    }

    /// Returns the stored bytes that the plan will read; 0 until known.
    pub fn bytes_total(&self) -> u64 {
        self.counters.bytes_total.load(Ordering::Relaxed)
    }

    /// Returns the stored bytes read so far.
    pub fn bytes_done(&self) -> u64 {
        self.counters.bytes_done.load(Ordering::Relaxed)
    }

    /// Returns the number of rows decoded so far.
    pub fn rows_done(&self) -> u64 {
        self.counters.rows_done.load(Ordering::Relaxed)
    }

    /// Returns the bytes of tables spilled to disk so far; a byte written twice counts twice.
    pub fn spilled_bytes(&self) -> u64 {
        self.counters.spilled_bytes.load(Ordering::Relaxed)
    }
}
