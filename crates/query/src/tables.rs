//! The partial-table runner: every split through the map into a table, the tables into one.
//!
//! Workers take splits in order, each fills a table of its own per split, and hands it over
//! as chunks. A gate lets splits through in split order. There the guess of where a split's
//! first record starts is checked against where the split before it ended; a split that
//! guessed wrong is read again, and nothing of its first reading has been counted. What waits at
//! the gate is bounded: a worker begins a split only a few behind the one that passes next.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use futures::executor::block_on;
use parking_lot::{Condvar, Mutex};
use tidemill_base::cancel::Cancel;
use tidemill_base::error::{Error, Result, caught};
use tidemill_base::progress::{Progress, ThreadClock};
use tidemill_base::stack::RUN_STACK_BYTES;
use tidemill_sql::Told;
use tidemill_tables::merge::{Merged, Merger, Pending};
use tidemill_tables::{Table, TableSpec};
use tracing::debug_span;

use crate::scan::{Outcome, Scan};

/// What the runner works on.
pub(crate) struct Work<'a> {
    /// The map as DataFusion's physical plan, one partition per split.
    pub map: Arc<dyn ExecutionPlan>,
    /// What the map's plan needs at run time.
    pub context: Arc<TaskContext>,
    /// The splits below the map.
    pub scan: Arc<Scan>,
    /// What is kept per group.
    pub spec: &'a Arc<TableSpec>,
    /// Threads at most.
    pub threads: usize,
    /// Memory for all tables together, in bytes.
    pub budget_bytes: usize,
    /// Where tables spill to.
    pub spill_folder: &'a Path,
    /// Stops the run.
    pub cancel: &'a Cancel,
    /// Told of what is spilled.
    pub progress: &'a Progress,
}

/// How often a worker that waits looks whether the run has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the map over all splits and merges what comes of them, in split order.
///
/// # Errors
/// The first that a split, in split order as far as is known, or a merge meets.
pub(crate) fn run(work: &Work<'_>) -> Result<Merged> {
    let split_count = work.scan.splits().len();
    let threads = work.threads.clamp(1, split_count.max(1));
    // A third for the workers' own tables, the rest for what is merged and waits.
    let merge_bytes = work.budget_bytes / 3 * 2;
    let worker_bytes = work.budget_bytes / 3 / threads;
    let merger =
        Merger::new(work.spec, merge_bytes, work.spill_folder, work.cancel, work.progress)?;
    let runner = Runner {
        work,
        merger: &merger,
        gate: Mutex::default(),
        passed: Condvar::new(),
        ahead_max: 4 * threads,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        worker_bytes,
    };
    let mut first_error = None;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let runner = &runner;
                std::thread::Builder::new()
                    .name(format!("split-{worker}"))
                    .stack_size(RUN_STACK_BYTES)
                    .spawn_scoped(scope, move || runner.work(worker))
            })
            .collect();
        for worker in workers {
            let ended = match worker.map(|worker| worker.join()) {
                Ok(Ok(ended)) => ended,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(e) => Err(Error::Io { action: "start", path: "a thread".into(), source: e }),
            };
            if let Err(error) = ended {
                // "Stopped because another failed" is not what the user should read.
                first_error.get_or_insert(error);
            }
        }
    });
    if let Some(error) = runner.gate.into_inner().error.or(first_error) {
        return Err(error);
    }
    work.cancel.check()?;
    let mut clock = ThreadClock::start();
    let merged = merger.finish();
    work.progress.tables().add_cpu(&mut clock);
    merged
}

struct Runner<'a> {
    work: &'a Work<'a>,
    merger: &'a Merger,
    gate: Mutex<Gate>,
    /// Told when the gate moves on.
    passed: Condvar,
    /// How many splits may be read beyond the one that passes next.
    ahead_max: usize,
    next: AtomicUsize,
    failed: AtomicBool,
    worker_bytes: usize,
}

/// A split that was read, well or not.
struct Read {
    chunks: Vec<Pending>,
    /// Rows that came out of the map.
    rows: u64,
    outcome: Option<Outcome>,
    result: Result<()>,
}

/// Splits pass in order.
#[derive(Default)]
struct Gate {
    next: usize,
    waiting: BTreeMap<usize, Read>,
    /// Where the last split that passed ended, and in which file.
    end: Option<(usize, u64)>,
    error: Option<Error>,
}

impl Runner<'_> {
    fn work(&self, worker: usize) -> Result<()> {
        let ended = caught(|| self.take_splits(worker));
        if ended.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        ended
    }

    fn take_splits(&self, worker: usize) -> Result<()> {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.work.scan.splits().len() || self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !self.may_begin(index)? {
                return Ok(());
            }
            let read = self.read(index);
            self.pass(index, read, worker)?;
            let mut clock = ThreadClock::start();
            self.merger.work(worker)?;
            self.work.progress.tables().add_cpu(&mut clock);
        }
    }

    /// Waits until a split is near enough to the gate; false where the run has failed. The split
    /// that passes next is always begun already, or may be.
    fn may_begin(&self, index: usize) -> Result<bool> {
        let mut gate = self.gate.lock();
        while index > gate.next + self.ahead_max {
            self.work.cancel.check()?;
            if self.failed.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.passed.wait_for(&mut gate, LOOK);
        }
        Ok(true)
    }

    /// Reads a split into chunks. Its error is part of the outcome: it may be void.
    fn read(&self, index: usize) -> Read {
        let mut chunks = Vec::new();
        let mut rows = 0;
        let result = caught(|| self.fill(index, &mut chunks, &mut rows));
        Read { chunks, rows, outcome: self.work.scan.outcome(index), result }
    }

    fn fill(&self, index: usize, chunks: &mut Vec<Pending>, rows: &mut u64) -> Result<()> {
        let mut table = Table::new(self.work.spec)?;
        let (map, tables) = (self.work.progress.map(), self.work.progress.tables());
        let mut clock = ThreadClock::start();
        let mut batches = self.work.map.execute(index, Arc::clone(&self.work.context)).told()?;
        let mapping = debug_span!("map", index);
        while let Some(batch) = mapping.in_scope(|| block_on(batches.next())) {
            map.add_cpu(&mut clock);
            let batch = batch.told()?;
            *rows += batch.num_rows() as u64;
            table.update(&batch)?;
            if table.bytes() > self.worker_bytes {
                chunks.push(self.merger.defer(self.merger.partition(table.take()?)?)?);
            }
            self.work.cancel.check()?;
            tables.add_cpu(&mut clock);
        }
        drop(batches);
        self.work.scan.read_unasked(index)?;
        map.add_cpu(&mut clock);
        if table.group_count() > 0 {
            chunks.push(self.merger.defer(self.merger.partition(table.take()?)?)?);
        }
        tables.add_cpu(&mut clock);
        Ok(())
    }

    /// Lets through what may pass, reading again what guessed wrong.
    fn pass(&self, index: usize, read: Read, worker: usize) -> Result<()> {
        let mut gate = self.gate.lock();
        gate.waiting.insert(index, read);
        loop {
            let index = gate.next;
            let Some(read) = gate.waiting.remove(&index) else { return Ok(()) };
            if gate.error.is_some() {
                return Ok(());
            }
            if let Some(start) = self.right_start(&gate, index, &read) {
                drop(read);
                self.work.scan.set_exact_start(index, start);
                let again = self.read(index);
                gate.waiting.insert(index, again);
                continue;
            }
            if let Err(error) = self.count(&mut gate, index, read, worker) {
                gate.error = Some(error);
                self.failed.store(true, Ordering::Relaxed);
                return Ok(());
            }
            gate.next += 1;
            self.passed.notify_all();
        }
    }

    /// Where a split should have started, if it guessed wrong.
    fn right_start(&self, gate: &Gate, index: usize, read: &Read) -> Option<u64> {
        let outcome = read.outcome.as_ref().filter(|outcome| !outcome.is_exact)?;
        let file = self.work.scan.splits()[index].pieces.first()?.file.index();
        let (end_file, end) = gate.end?;
        (end_file == file && outcome.stats.start != Some(end)).then_some(end)
    }

    fn count(&self, gate: &mut Gate, index: usize, read: Read, worker: usize) -> Result<()> {
        // Bad records are counted even where the split failed: they may be why.
        if let Some(outcome) = read.outcome {
            let last = self.work.scan.splits()[index].pieces.last();
            gate.end = last.and_then(|piece| Some((piece.file.index(), outcome.stats.end?)));
            self.work.scan.accept(outcome.stats)?;
        }
        read.result?;
        self.work.progress.map().add_rows(read.rows);
        let mut clock = ThreadClock::start();
        for chunk in read.chunks {
            self.merger.accept(chunk, worker)?;
        }
        self.work.progress.tables().add_cpu(&mut clock);
        Ok(())
    }
}
