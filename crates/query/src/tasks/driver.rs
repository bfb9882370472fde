//! Who deals a query's splits out, and merges what comes back.
//!
//! Tasks are dealt in the order of the splits, so many ahead of the gate that no worker waits for another; what came
//! back before its turn waits, in so many messages at most. A task whose worker is gone is handed in again, up to
//! [`ATTEMPTS_MAX`] times. A task of which the first split began elsewhere than it should have is handed in again with the
//! right start; nothing of it has been merged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::error::{Error, Result};
use tidemill_base::progress::ThreadClock;
use tidemill_base::redact::shown;
use tidemill_source::{Split, SplitStats};
use tidemill_sql::statement::one_select;
use tidemill_tables::Table;
use tidemill_tables::merge::{Merged, Merger};

use super::job::{Job, Said, bad};
use super::task::{Part, Task};
use super::{Handed, HandedJob, Workers, not_elsewhere};
use crate::build_sides::scanned;
use crate::plan::Plan;
use crate::route::Tables;
use crate::scan::Scan;

/// A task that takes its worker down so often fails the query.
pub(super) const ATTEMPTS_MAX: usize = 4;

/// Each thread gets about so many tasks, where there are so many splits: what is left for the last ones is small.
const TASKS_PER_THREAD: usize = 8;
/// So many splits are one task at most.
const SPLITS_MAX: usize = 64;
/// So many tasks for each thread are dealt ahead of the gate.
const AHEAD_PER_THREAD: usize = 4;
/// Of so many files it is looked at whether all machines see them.
const PATHS_MAX: usize = 64;
/// How long it is waited for a message before it is looked whether the run has ended.
const TICK: Duration = Duration::from_millis(50);

/// Runs the map of a query over all splits elsewhere, and merges what comes of them.
///
/// # Errors
/// The first that a split, in split order, or a merge meets; [`Error::Usage`] for what cannot be read elsewhere.
pub(crate) fn fold(plan: &Plan, parts: &Tables, workers: &dyn Workers) -> Result<Merged> {
    // A worker plans what stands in the SQL.
    one_select(&plan.query.sql)
        .map_err(|_| not_elsewhere("SUMMARIZE is answered on one machine"))?;
    check_map(plan, parts)?;
    let (_, scan) = plan.per_split(&parts.stream, &parts.map)?;
    workers.begin(HandedJob {
        content: job(plan, parts, &scan)?.encoded()?,
        secrets: scan.source().spec().storage_options.for_workers(),
        paths: paths(scan.splits())?,
    })?;
    let settings = &plan.settings;
    let merger = Merger::new(
        &parts.spec,
        settings.share(3, 4) / 3 * 2,
        &settings.spill_dirs,
        &settings.cancel,
        &settings.progress,
    )?;
    let decoder = Table::new(&parts.spec)?;
    let mut driver = Driver {
        plan,
        workers,
        scan: &scan,
        merger: &merger,
        decoder,
        is_order_free: parts.spec.is_order_free(),
        tasks: cut(scan.splits(), workers.threads()),
        attempts: BTreeMap::new(),
        told: BTreeSet::new(),
        came: BTreeMap::new(),
        end: None,
    };
    let dealt = driver.deal();
    workers.end();
    dealt?;
    drop(driver);
    settings.cancel.check()?;
    let mut clock = ThreadClock::start();
    let merged = merger.finish(settings.threads)?;
    settings.progress.tables().add_cpu(&mut clock);
    plan.tables
        .iter()
        .flat_map(|(_, table)| table.scans())
        .filter(|other| !Arc::ptr_eq(other, &scan))
        .try_for_each(|scan| scan.read_rest())?;
    let rows = plan.tables.iter().flat_map(|(_, table)| table.scans());
    plan.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
    Ok(merged)
}

/// Refuses a map that reads something besides its split: a worker has no more.
fn check_map(plan: &Plan, parts: &Tables) -> Result<()> {
    let scanned = scanned(&parts.map)?;
    let sources = || scanned.iter().filter(|name| plan.table(name.table()).is_some());
    let other = sources().find(|name| **name != parts.stream);
    match (other, sources().count()) {
        (None, 0 | 1) => Ok(()),
        (other, _) => {
            let name = other.unwrap_or(&parts.stream);
            Err(not_elsewhere(&format!(
                "a subquery reads `{}` beside each record",
                shown(name.table())
            )))
        }
    }
}

/// What all tasks have in common.
fn job(plan: &Plan, parts: &Tables, scan: &Scan) -> Result<Job> {
    let is_stream = |name: &str| name == parts.stream.table();
    let (mut streams, others): (Vec<_>, Vec<_>) = plan
        .tables
        .iter()
        .map(|(name, table)| (name.clone(), table.kept_schema()))
        .partition(|(name, _)| is_stream(name));
    streams.extend(others);
    let (names, schemas) = streams.into_iter().unzip();
    let table = plan.table(parts.stream.table());
    let said = Said {
        sql: plan.query.sql.clone(),
        names,
        tables: parts.spec.describe(),
        planned_ns: plan.query.planned_ns.unwrap_or(0),
        source: scan.source().describe()?,
        sample: table.and_then(|table| table.sample()).map(Into::into),
    };
    let sides = parts.sides.iter().map(|side| side.rows.filled()).collect();
    Ok(Job { said, schemas, sides })
}

/// Files on a disk that splits are of, at most [`PATHS_MAX`] of them, spread over all.
fn paths(splits: &[Split]) -> Result<Vec<String>> {
    let files = splits.iter().flat_map(|split| &split.pieces).map(|piece| &piece.file);
    let mut paths = Vec::new();
    for path in files.filter_map(|file| file.local_path()) {
        let path = std::path::absolute(path).map_err(|e| Error::io("find", path, e))?;
        let path = path.to_string_lossy().into_owned();
        if paths.last() != Some(&path) {
            paths.push(path);
        }
    }
    let each = paths.len().div_ceil(PATHS_MAX).max(1);
    let last = paths.last().cloned();
    let mut some: Vec<String> = paths.into_iter().step_by(each).collect();
    some.extend(last);
    some.dedup();
    Ok(some)
}

/// Runs of splits that are about equally large, as places among the splits.
fn cut(splits: &[Split], threads: usize) -> Vec<std::ops::Range<usize>> {
    let total: u64 = splits.iter().map(|split| split.bytes).sum();
    let wanted = (threads.max(1) * TASKS_PER_THREAD) as u64;
    let target = total.div_ceil(wanted).max(1);
    let (mut tasks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (place, split) in splits.iter().enumerate() {
        bytes += split.bytes;
        if bytes >= target || place + 1 - start >= SPLITS_MAX || place + 1 == splits.len() {
            tasks.push(start..place + 1);
            (start, bytes) = (place + 1, 0);
        }
    }
    tasks
}

struct Driver<'a> {
    plan: &'a Plan,
    workers: &'a dyn Workers,
    scan: &'a Scan,
    merger: &'a Merger,
    decoder: Table,
    is_order_free: bool,
    /// The places of each task's splits.
    tasks: Vec<std::ops::Range<usize>>,
    /// How often a task was handed in, if more than once.
    attempts: BTreeMap<usize, usize>,
    /// The tasks that were told where they start.
    told: BTreeSet<usize>,
    /// What came back before its turn.
    came: BTreeMap<usize, Result<Part>>,
    /// Where the last split that passed ended, and in which file.
    end: Option<(usize, u64)>,
}

impl Driver<'_> {
    fn deal(&mut self) -> Result<()> {
        let ahead_max = AHEAD_PER_THREAD * self.workers.threads().max(1);
        let (mut dealt, mut passed) = (0, 0);
        while passed < self.tasks.len() {
            while dealt < self.tasks.len() && dealt < passed + ahead_max {
                self.hand_in(dealt, None)?;
                dealt += 1;
            }
            self.plan.settings.cancel.check()?;
            let Some(done) = self.workers.next(TICK)? else { continue };
            let attempt = self.attempts.get(&done.number).copied().unwrap_or(0);
            if done.number < passed || done.attempt != attempt {
                continue;
            }
            match done.outcome {
                Ok(content) => _ = self.came.insert(done.number, Part::decoded(content)),
                Err(why) => self.again(done.number, &why)?,
            }
            while let Some(part) = self.came.remove(&passed) {
                match self.right_start(passed, &part) {
                    Some(start) => {
                        *self.attempts.entry(passed).or_default() += 1;
                        self.told.insert(passed);
                        self.hand_in(passed, Some(start))?;
                        break;
                    }
                    None => self.pass(passed, part?)?,
                }
                passed += 1;
            }
        }
        Ok(())
    }

    /// Hands a task in; its first split starts there, if that is known by now.
    fn hand_in(&self, number: usize, start: Option<u64>) -> Result<()> {
        let splits = self.splits_of(number);
        let source = self.scan.source();
        let (files, mut described) = source.describe_splits(splits)?;
        if let (Some(first), Some(start)) = (described.first_mut(), start) {
            first.exact_start = Some(start);
        }
        self.workers.submit(Handed {
            number,
            attempt: self.attempts.get(&number).copied().unwrap_or(0),
            bytes: splits.iter().map(|split| split.bytes).sum(),
            name: format!("{} of {}", number + 1, self.tasks.len()),
            content: Task { files, splits: described }.encoded()?,
        })
    }

    fn splits_of(&self, number: usize) -> &[Split] {
        let places = self.tasks.get(number).cloned().unwrap_or_default();
        self.scan.splits().get(places).unwrap_or_default()
    }

    /// Hands a task in again whose worker is gone.
    fn again(&mut self, number: usize, why: &str) -> Result<()> {
        let attempts = self.attempts.entry(number).or_default();
        *attempts += 1;
        if *attempts >= ATTEMPTS_MAX {
            let splits = self.splits_of(number);
            let piece = splits.first().and_then(|split| split.pieces.first());
            let place = piece.map_or(String::new(), |piece| {
                format!("`{}` from byte {} on", piece.file.shown(), piece.range.start)
            });
            return Err(Error::Query(format!(
                "a worker ended {ATTEMPTS_MAX} times over the same splits, {place}: {why}\n\
                 hint: read that file alone on one machine, with less --memory, to see what it does"
            )));
        }
        self.hand_in(number, None)
    }

    /// Where the first split of a task should have started, if it guessed wrong.
    fn right_start(&self, number: usize, part: &Result<Part>) -> Option<u64> {
        // What failed by a wrong start is not told from what fails anyhow.
        let first = self.splits_of(number).first()?;
        let file = first.pieces.first()?.file.index();
        let (end_file, end) = self.end?;
        if end_file != file {
            return None;
        }
        match part {
            Ok(part) => {
                let read = part.read.iter().find(|read| read.place == 0)?;
                (!read.is_exact && read.stats.start() != Some(end)).then_some(end)
            }
            Err(_) => {
                let is_exact = self.scan.source().starts_are_exact();
                let may_be_wrong = !is_exact && !self.told.contains(&number);
                may_be_wrong.then_some(end)
            }
        }
    }

    /// Counts what was read of a task's splits, and merges its part.
    fn pass(&mut self, number: usize, part: Part) -> Result<()> {
        let splits = self.tasks.get(number).cloned().unwrap_or_default();
        if part.read.len() != splits.len() {
            return Err(bad("a part is not of all splits of its task"));
        }
        let progress = &self.plan.settings.progress;
        for read in &part.read {
            let split = self.scan.splits().get(splits.start + read.place);
            let split = split.ok_or_else(|| bad("a part is of other splits"))?;
            let stats = SplitStats::described(read.stats.clone(), split)?;
            let last = split.pieces.last();
            self.end = last.and_then(|piece| Some((piece.file.index(), stats.end?)));
            progress.add_bytes(split.bytes);
            progress.add_rows(stats.rows);
            progress.map().add_rows(read.mapped_rows);
            self.scan.accept(stats)?;
        }
        let mut clock = ThreadClock::start();
        part.groups(|_, groups| {
            let chunk = self.decoder.decode(&groups)?;
            match self.is_order_free {
                true => self.merger.add(chunk)?,
                false => self.merger.accept(self.merger.defer(chunk)?, 0)?,
            }
            self.merger.work(0)
        })?;
        progress.tables().add_cpu(&mut clock);
        Ok(())
    }
}
