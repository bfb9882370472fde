//! How far a run is: counters that workers add to, and that a display and the job log read.

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
    /// Whether it is of a part of the work, the total of which is known.
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
    /// How many processes elsewhere somebody says that there are, and how many tasks they have lost.
    reported_worker_counts: Mutex<(u64, u64)>,
    /// What is waited for before anything is read.
    wait_reason: Mutex<Option<&'static str>>,
    /// Of the tasks that write the result elsewhere, how many have ended, and how many there are.
    write_task_counts: Mutex<(u64, u64)>,
}

/// What a process elsewhere did for a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerProgress {
    /// Tasks that it did.
    pub tasks_done: u64,
    /// Tasks that it had at hand when it was gone.
    pub tasks_lost: u64,
    /// Stored bytes of the tasks that it did.
    pub bytes_done: u64,
    /// The processor time of these.
    pub cpu_time: Duration,
    /// From when until when it was at work, in order.
    pub active_spans: Vec<(Instant, Instant)>,
}

impl WorkerProgress {
    /// So many spans are kept; of more, neighbours become one.
    const ACTIVE_SPANS_MAX: usize = 256;

    /// Adds a task that has just come, and took so long.
    pub fn add_task(&mut self, bytes: u64, cpu: Duration, took: Duration) {
        let now = Instant::now();
        let began = now.checked_sub(took).unwrap_or(now);
        self.tasks_done += 1;
        self.bytes_done += bytes;
        self.cpu_time += cpu;
        // What comes at once was done one after the other.
        let began = self.active_spans.last().map_or(began, |(_, last)| began.max(*last));
        self.active_spans.push((began, now));
        if self.active_spans.len() > Self::ACTIVE_SPANS_MAX {
            let pairs = self.active_spans.chunks(2);
            self.active_spans =
                pairs.filter_map(|pair| Some((pair.first()?.0, pair.last()?.1))).collect();
        }
    }
}

/// What a step has given out and taken.
#[derive(Debug, Default)]
pub struct StepCounters {
    rows: AtomicU64,
    cpu_ns: AtomicU64,
}

impl StepCounters {
    /// Adds rows, or groups, that the step gave out.
    pub fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds what this thread has computed since the clock was looked at last.
    pub fn add_thread_cpu(&self, clock: &mut ThreadCpuClock) {
        let now_ns = thread_cpu_ns();
        self.cpu_ns.fetch_add(now_ns.saturating_sub(clock.0), Ordering::Relaxed);
        clock.0 = now_ns;
    }

    /// Adds what was computed elsewhere.
    pub fn add_worker_cpu(&self, cpu: Duration) {
        let ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.cpu_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Rows, or groups, given out so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Processor time so far, in nanoseconds, of all threads.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

/// The processor time of the thread that made it, when it was looked at last.
///
/// A look is a system call of a few hundred nanoseconds: once per batch, not per row.
#[derive(Debug)]
pub struct ThreadCpuClock(u64);

impl ThreadCpuClock {
    /// A clock of this thread, looked at now.
    pub fn start() -> Self {
        ThreadCpuClock(thread_cpu_ns())
    }
}

/// The processor time of this thread, in nanoseconds.
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

/// The processor time of all threads of this process, in seconds.
pub fn process_cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure, or leaves it and returns an error.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    if status == 0 { time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9 } else { 0.0 }
}

/// How a run goes, once it is planned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanOutline {
    /// `partial tables`, `rows` or `datafusion`; none before.
    pub execution_path: Option<&'static str>,
    /// The tables in words, where there are some.
    pub tables: Option<String>,
    /// What is still to be done when all has been read, as a participle: `sorting`.
    pub final_activity: Option<&'static str>,
}

impl RunProgress {
    /// Counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same counters for a part of the work, which does not change the total.
    #[must_use]
    pub fn part_progress(&self) -> Self {
        RunProgress { counters: Arc::clone(&self.counters), is_part: true }
    }

    /// Changes what is known of a process elsewhere.
    pub fn update_worker(&self, name: &str, change: impl FnOnce(&mut WorkerProgress)) {
        change(self.counters.workers.lock().entry(name.to_owned()).or_default());
    }

    /// How many processes elsewhere did something, and how many tasks were lost with those that are gone.
    pub fn worker_counts(&self) -> (u64, u64) {
        let known = self.counters.workers.lock();
        let lost = known.values().map(|it| it.tasks_lost).sum();
        let told = *self.counters.reported_worker_counts.lock();
        (told.0.max(known.len() as u64), told.1.max(lost))
    }

    /// Takes what somebody who knows their names says of that.
    pub fn set_worker_counts(&self, count: (u64, u64)) {
        *self.counters.reported_worker_counts.lock() = count;
    }

    /// Says what is waited for before anything is read.
    pub fn set_wait_reason(&self, what: Option<&'static str>) {
        *self.counters.wait_reason.lock() = what;
    }

    /// What is waited for before anything is read.
    pub fn wait_reason(&self) -> Option<&'static str> {
        *self.counters.wait_reason.lock()
    }

    /// Says how many tasks that write the result elsewhere have ended, of how many.
    pub fn set_write_task_counts(&self, done: u64, of: u64) {
        *self.counters.write_task_counts.lock() = (done, of);
    }

    /// How many tasks that write the result elsewhere have ended, of how many.
    pub fn write_task_counts(&self) -> (u64, u64) {
        *self.counters.write_task_counts.lock()
    }

    /// What processes elsewhere did, by their names.
    pub fn workers(&self) -> BTreeMap<String, WorkerProgress> {
        self.counters.workers.lock().clone()
    }

    /// States how many stored bytes the plan will read.
    pub fn set_bytes_total(&self, bytes: u64) {
        if !self.is_part {
            self.counters.bytes_total.store(bytes, Ordering::Relaxed);
        }
    }

    /// Adds stored bytes that were read.
    pub fn add_bytes(&self, bytes: u64) {
        self.counters.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds rows that were decoded.
    pub fn add_rows(&self, rows: u64) {
        self.counters.rows_done.fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds bytes of tables that went to disk because they did not fit memory.
    pub fn add_spilled_bytes(&self, bytes: u64) {
        self.counters.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// States how large the partial table is that was written.
    pub fn set_partial_table_bytes(&self, bytes: u64) {
        self.counters.partial_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The size of the partial table that was written; 0 without one.
    pub fn partial_table_bytes(&self) -> u64 {
        self.counters.partial_bytes.load(Ordering::Relaxed)
    }

    /// States how the run goes.
    pub fn set_plan_outline(&self, planned: PlanOutline) {
        *self.counters.plan_outline.lock() = planned;
    }

    /// How the run goes, as far as is known.
    pub fn plan_outline(&self) -> PlanOutline {
        self.counters.plan_outline.lock().clone()
    }

    /// What the map has done.
    pub fn map_counters(&self) -> &StepCounters {
        &self.counters.map
    }

    /// What the tables have done, their merging and finishing included.
    pub fn table_counters(&self) -> &StepCounters {
        &self.counters.tables
    }

    /// Stored bytes that the plan will read; 0 until known.
    pub fn bytes_total(&self) -> u64 {
        self.counters.bytes_total.load(Ordering::Relaxed)
    }

    /// Stored bytes read so far.
    pub fn bytes_done(&self) -> u64 {
        self.counters.bytes_done.load(Ordering::Relaxed)
    }

    /// Rows decoded so far.
    pub fn rows_done(&self) -> u64 {
        self.counters.rows_done.load(Ordering::Relaxed)
    }

    /// Bytes of tables that went to disk so far, each as often as it was written.
    pub fn spilled_bytes(&self) -> u64 {
        self.counters.spilled_bytes.load(Ordering::Relaxed)
    }
}
