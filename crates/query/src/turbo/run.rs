//! A query's tables filled with a part of the input, and looked at meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::logical_expr::{FetchType, LogicalPlan};
use tidemill_base::RunSettings;
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result};
use tidemill_sampling::{SplitSample, look_confidence, splits_before_look};
use tidemill_tables::merge::MergedTable;
use tidemill_tables::{StateUpdateSwitch, TableSpec};

use super::answer::{Answering, FewRead, RowCounts};
use super::bounds::Known;
use super::drawing::{can_be_sampled, splits_with_left_out};
use super::elsewhere::{self, FoundElsewhere};
use super::found::{Finding, FoundRows};
use super::runner::{self, Look, ReadPart, Snapshot, Taken, Why};
use super::shown::{ShownBounds, note_bounds};
use super::{Turbo, account_of, of_a_summary};
use crate::build_sides::BuildSide;
use crate::columns::named;
use crate::plan::Plan;
use crate::results::{Account, RowSource};
use crate::route::Tables;
use crate::scan::Scan;
use crate::tasks::{self, DrawnSaid, Gives};

impl Plan {
    /// Fills tables with as much of the input as there is time for.
    ///
    /// # Errors
    /// What reading, mapping and merging meet.
    pub(crate) fn fold_part(
        &self,
        parts: &Tables,
        turbo: &Turbo,
        watch: Option<Watch<'_>>,
    ) -> Result<(MergedTable, Answering, Account)> {
        self.fold_some(parts, turbo, watch, false)
    }

    /// The same; `is_careful` says that no split begins where its own bytes look as if a record did.
    fn fold_some(
        &self,
        parts: &Tables,
        turbo: &Turbo,
        watch: Option<Watch<'_>>,
        is_careful: bool,
    ) -> Result<(MergedTable, Answering, Account)> {
        let stream = self.tables.iter().find(|(name, _)| name == parts.stream.table());
        if let (Some((_, table)), true) = (stream, turbo.cuts(&self.route)) {
            table.cut_finely(turbo.split_bytes);
        }
        let coded = self.coded(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let (map, scan) = self.per_split(&parts.stream, map)?;
        let switch = StateUpdateSwitch::default();
        let is_scaled = can_be_sampled(scan.splits()) && !turbo.as_seen;
        let bounds = self.bounds.as_ref().filter(|_| is_scaled);
        let cells = bounds.map(|_| splits_with_left_out(&scan));
        let spec = match bounds.zip(cells) {
            Some((bounds, splits)) => bounds.with_cells(&parts.spec, splits, &switch),
            None => Arc::clone(&parts.spec),
        };
        let carried = self.bounds.as_ref().map_or(Vec::new(), |bounds| bounds.carried());
        let mut part = Answering {
            spec: Arc::clone(&spec),
            quantities: self.bounds.as_ref().map_or(Vec::new(), |it| it.quantities.clone()),
            values: self.bounds.as_ref().map_or(0, |it| it.values.len()),
            estimates: self.bounds.as_ref().map_or(Vec::new(), |it| it.estimates.clone()),
            sample: None,
            is_exact: false,
            is_withheld: false,
            row_counts: RowCounts::UNKNOWN,
            few_read: FewRead::default(),
            schema: parts.finished_schema_with(&carried),
        };
        let work = runner::Work {
            map,
            scan: Arc::clone(&scan),
            spec,
            threads: self.settings.threads,
            account: self.settings.new_table_account(),
            spill_dirs: self.settings.spill_dirs.clone(),
            cancel: self.settings.cancel.clone(),
            enough: self.settings.stop_reading.clone(),
            progress: self.settings.progress.clone(),
            interval_count: part.estimates.len(),
            rows_max: fetch_of(&self.logical).unwrap_or(usize::MAX),
            watched: (!turbo.may_stop()).then(|| switch.clone()),
            cells: switch.clone(),
            is_careful,
            patience: None,
            guessed: Arc::default(),
        };
        let until = turbo.until();
        let mut watch = watch;
        if let Some(watch) = &mut watch {
            (watch.show)(Glimpse {
                schema: self
                    .bounds
                    .as_ref()
                    .map_or(Ok(Arc::clone(self.schema())), |it| it.schema())?,
                batches: Vec::new(),
                share: 0.0,
                coverage: Coverage { complete: false, ..Coverage::default() },
            });
        }
        let mut looking = Looking {
            plan: self,
            parts,
            part: &part,
            scan: &scan,
            turbo,
            error: turbo.error,
            confidence: turbo.confidence(),
            look: 1,
            glimpse_at: Instant::now() + watch.as_ref().map_or(GLIMPSE_FIRST, |watch| watch.after),
            watch,
        };
        let taken = match &self.query.workers {
            None => runner::run(work, &until, &mut looking)?,
            Some(workers) => {
                let drawn = DrawnSaid { cells, is_careful };
                let tasks = tasks::drawn_tables(self, parts, &work.spec, drawn, &scan, workers)?;
                elsewhere::run(&work, tasks, &until, &mut looking)?
            }
        };
        let Taken { merged, read, .. } = taken;
        // A deadline leaves no time to read all of it once more, whatever that takes.
        let is_to_be_estimated = !read.is_whole() || until.ends_at.is_some();
        if read.wrong_starts > 0 && !is_careful && is_to_be_estimated && read.sample.is_some() {
            // Some rows are none: records begin elsewhere than they seem to.
            drop(merged);
            let watch = looking.watch.take();
            self.tables.iter().for_each(|(_, table)| table.forget_scans());
            self.rejects.reset()?;
            return self.fold_some(parts, turbo, watch, true);
        }
        let mut account = self.account(None);
        part.sample = read.sample.clone().filter(|_| !turbo.as_seen && !read.is_whole());
        part.is_exact = read.is_whole();
        part.is_withheld = switch.is_off();
        part.row_counts = row_counts(&scan, parts, read.sample.as_ref())?;
        part.few_read = FewRead::new(part.estimates.len());
        if part.is_exact && self.query.turbo.is_none() {
            // It is the answer that there would be without anybody who watches.
            (part.estimates, part.schema) = (Vec::new(), parts.finished_schema());
        }
        if read.is_whole() && read.wrong_starts > 0 {
            // All of it was read, and some of it from where no record begins: once more, in its order.
            self.tables.iter().for_each(|(_, table)| table.forget_scans());
            self.rejects.reset()?;
            drop(merged);
            let merged = self.fold(parts, Gives::Answers)?;
            part.spec = Arc::clone(&parts.spec);
            let read = ReadPart { wrong_starts: 0, ..read };
            account.part = turbo.may_stop().then(|| account_of(&scan, turbo, &read));
            return Ok((merged, part, account));
        }
        if read.is_whole() {
            let scans = self.tables.iter().flat_map(|(_, table)| table.scans());
            scans.into_iter().try_for_each(|scan| scan.read_rest())?;
        }
        if !read.is_whole() || turbo.may_stop() {
            let mut read = account_of(&scan, turbo, &read);
            let known = self.bounds.as_ref().or(self.unbounded.as_ref());
            if parts.spec.keys.is_empty() || known.is_some_and(|known| !known.has_groups) {
                // There is one group, and it is seen.
                read.sampled.unseen_share = None;
            }
            if let Some(known) = known {
                if !turbo.as_seen {
                    read.sampled.by_estimates =
                        known.by_estimates.iter().map(ToString::to_string).collect();
                }
                read.unbounded = known.unbounded(self.bounds.is_some(), read.sampled.scaled);
                read.few_read = (part.few_read.clone(), known.estimate_numbers());
            }
            account.part = Some(read);
        }
        let rows = self.tables.iter().flat_map(|(_, table)| table.scans());
        self.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
        Ok((merged, part, account))
    }
}

impl Plan {
    /// What is kept per group beside sums by place in the input, of so many splits.
    ///
    /// # Errors
    /// Where the query has no estimates.
    pub(crate) fn spec_with_cells(&self, parts: &Tables, splits: usize) -> Result<Arc<TableSpec>> {
        let bounds = parts.bounds(&self.logical, self.schema(), true);
        let bounds = bounds.ok_or_else(of_a_summary)?;
        Ok(bounds.with_cells(&parts.spec, splits, &StateUpdateSwitch::default()))
    }

    /// Starts to find rows, in no order.
    ///
    /// # Errors
    /// As planning, and where no thread can be started.
    pub(crate) fn find_rows(
        &self,
        (stream, map, sides): (&TableReference, &LogicalPlan, &[BuildSide]),
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<RowSource> {
        let turbo = self.query.turbo.clone().unwrap_or_default();
        if let Some((_, table)) = self.tables.iter().find(|(name, _)| name == stream.table()) {
            table.cut_finely(turbo.split_bytes);
        }
        let (split_map, scan) = self.per_split(stream, map)?;
        let found = turbo.find.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let fetch = fetch.into_iter().chain(found).min();
        if let Some(workers) = &self.query.workers {
            let limits = (skip, fetch);
            let tasks = tasks::drawn_rows(self, (stream, sides), limits, &scan, workers)?;
            let RunSettings { progress, cancel, stop_reading: enough, .. } = &self.settings;
            let run = (progress, cancel, enough);
            let found = FoundElsewhere::start(&scan, tasks, turbo, limits, run)?;
            return Ok(RowSource::FoundElsewhere(Box::new(found)));
        }
        let map = split_map;
        let finding = Finding {
            map,
            scan,
            cancel: self.settings.cancel.clone(),
            enough: self.settings.stop_reading.clone(),
            progress: self.settings.progress.clone(),
            threads: self.settings.threads,
            patience: None,
        };
        Ok(RowSource::Found(FoundRows::start(finding, turbo, (skip, fetch))?))
    }
}

/// The most rows that a plan gives, where it says so.
fn fetch_of(plan: &LogicalPlan) -> Option<usize> {
    match plan {
        LogicalPlan::Limit(limit) => match limit.get_fetch_type().ok()? {
            FetchType::Literal(fetch) => fetch,
            FetchType::UnsupportedExpr => None,
        },
        LogicalPlan::Sort(sort) => sort.fetch.or_else(|| fetch_of(&sort.input)),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => match plan.inputs()[..] {
            [input] => fetch_of(input),
            _ => None,
        },
        _ => None,
    }
}

/// The most rows that splits which were not read can be thought to hold: twice as many as such bytes had, where a row was
/// read, and those of a split.
fn unread_rows(scan: &Scan, sample: Option<&SplitSample>) -> f64 {
    let Some(sample) = sample.filter(|sample| sample.splits_read() > 0) else {
        return f64::INFINITY;
    };
    let rows = scan.row_count() as f64;
    let unread = 1.0 / sample.read_share() - 1.0;
    2.0 * rows * unread + rows / sample.splits_read() as f64
}

/// Assumed maximum number of rows that a join or `unnest` makes of a row; the true number is unknown.
const MULTIPLIED: f64 = 10.0;

/// Returns the numbers of rows that limit the counts of a table.
///
/// # Errors
/// Returns an error if the plan of the map cannot be analysed.
fn row_counts(scan: &Scan, parts: &Tables, sample: Option<&SplitSample>) -> Result<RowCounts> {
    let read = scan.row_count() as f64;
    // A join or `unnest` may multiply rows by an unknown factor, so there is no limit on unread rows then.
    let (read, unread) = match parts.may_multiply()? {
        true => (read * MULTIPLIED, f64::INFINITY),
        false => (read, unread_rows(scan, sample)),
    };
    Ok(RowCounts { read, unread, are_of_table: parts.counts_every_row()? })
}

/// An answer as it stands while more is read. The first has no rows: it comes before anything is read, and says that
/// there may be others.
#[derive(Debug, Clone)]
pub struct Glimpse {
    /// Its columns, with the bounds of each estimate behind it.
    pub schema: SchemaRef,
    /// Its rows, or the first of many.
    pub batches: Vec<RecordBatch>,
    /// The share of the bytes that was read, from 0 to 1.
    pub share: f64,
    /// What it rests on: not all of the input.
    pub coverage: Coverage,
}

/// Whoever is shown glimpses.
pub struct Watch<'a> {
    /// Before this there is none: a short run shows its answer.
    pub after: Duration,
    /// What is done with each.
    pub show: &'a mut (dyn FnMut(Glimpse) + 'a),
}

impl<'a> Watch<'a> {
    /// Shows glimpses of runs that take longer than 300 ms.
    pub fn new(show: &'a mut (dyn FnMut(Glimpse) + 'a)) -> Self {
        Watch { after: GLIMPSE_FIRST, show }
    }
}

/// More rows of a glimpse nobody sees.
const GLIMPSE_ROWS_MAX: usize = 10_000;

/// Before this there is no glimpse: short runs show their answer.
const GLIMPSE_FIRST: Duration = Duration::from_millis(300);

/// The time between two glimpses, at least …
const GLIMPSE_EACH: Duration = Duration::from_millis(150);

/// … and so many times what the last one took.
const GLIMPSE_SHARE: u32 = 20;

/// Looks at the tables meanwhile: whether the answer is precise enough, and for whoever watches.
struct Looking<'a, 'w> {
    plan: &'a Plan,
    parts: &'a Tables,
    /// What makes answers, of no sample yet.
    part: &'a Answering,
    scan: &'a Scan,
    turbo: &'a Turbo,
    /// The widest that half of an interval may be, as a share of its number.
    error: Option<f64>,
    confidence: f64,
    /// The next look, from 1 on.
    look: u32,
    watch: Option<Watch<'w>>,
    /// When the next glimpse is due.
    glimpse_at: Instant,
}

impl Look for Looking<'_, '_> {
    fn is_due(&self, splits_read: u64) -> bool {
        let is_precise_due = self.error.is_some() && splits_read >= splits_before_look(self.look);
        let is_glimpse_due = self.watch.is_some() && Instant::now() >= self.glimpse_at;
        splits_read > 0 && (is_precise_due || is_glimpse_due)
    }

    fn patience(&self) -> Option<Duration> {
        let soon = || self.glimpse_at.saturating_duration_since(Instant::now());
        self.watch.as_ref().map(|_| soon().max(Duration::from_millis(1)))
    }

    fn look(&mut self, snapshot: Snapshot) -> Result<Option<f64>> {
        let enough = self.is_precise(&snapshot)?;
        if self.watch.is_some() && Instant::now() >= self.glimpse_at {
            let began = Instant::now();
            let schema = match self.plan.bounds.as_ref() {
                Some(bounds) => bounds.schema()?,
                None => Arc::clone(self.plan.schema()),
            };
            let Snapshot { answer, sample, share, ends_at } = snapshot;
            let coverage = self.coverage(sample.clone(), share);
            let batches = interim(self.rows(&answer, sample, &schema, ends_at))?;
            if let (Some(watch), Some(batches)) = (&mut self.watch, batches) {
                (watch.show)(Glimpse { schema, batches, share, coverage });
            }
            self.glimpse_at = Instant::now() + GLIMPSE_EACH.max(began.elapsed() * GLIMPSE_SHARE);
        }
        Ok(enough)
    }
}

/// Returns an interim answer, or `None` where it cannot be computed: an early estimate may be too large for its type, or
/// meet a cast or division, where the answer over all of the input does not. Only the last answer's errors end a run.
///
/// # Errors
/// [`Error::Interrupted`] and [`Error::Internal`], which are no property of the estimate.
fn interim<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ (Error::Interrupted | Error::Internal(_))) => Err(error),
        Err(_) => Ok(None),
    }
}

impl Looking<'_, '_> {
    /// With which confidence the answer is precise enough, if it is.
    fn is_precise(&mut self, snapshot: &Snapshot) -> Result<Option<f64>> {
        let (Some(most), Some(sample), Some(bounds)) =
            (self.error, &snapshot.sample, self.plan.bounds.as_ref())
        else {
            return Ok(None);
        };
        if sample.splits_read() < splits_before_look(self.look) {
            return Ok(None);
        }
        // The splits of the last look that is due: those before it are not made up for.
        while sample.splits_read() >= splits_before_look(self.look + 1) {
            self.look += 1;
        }
        let confidence = look_confidence(self.look, self.confidence);
        self.look += 1;
        let sample = sample.with_confidence(confidence);
        let mut shown: Vec<ShownBounds> = Vec::new();
        let Snapshot { answer, ends_at, .. } = snapshot;
        let rows = self.rows(answer, Some(sample), self.plan.schema(), *ends_at);
        let Some(batches) = interim(rows)? else { return Ok(None) };
        for batch in batches {
            note_bounds(&mut shown, &batch);
        }
        // Columns that are bounds by themselves never have an interval, so they do not count. An estimate that has no
        // interval yet makes the run read on.
        let mut estimates =
            shown.iter().zip(bounds.with_intervals()).filter(|(_, has_interval)| *has_interval);
        let is_precise = !shown.is_empty() && estimates.all(|(shown, _)| shown.is_within(most));
        Ok(is_precise.then_some(confidence))
    }

    /// What an answer rests on meanwhile.
    fn coverage(&self, sample: Option<SplitSample>, share: f64) -> Coverage {
        let bytes = self.plan.settings.progress.bytes_done();
        let read = ReadPart {
            why: Why::Asked,
            sample,
            given_up: Vec::new(),
            left_out: Vec::new(),
            in_flight: Vec::new(),
            wrong_starts: 0,
            bytes,
        };
        let mut part = account_of(self.scan, self.turbo, &read);
        (part.stopped, part.sampled.share) = (None, share);
        let account = Account { part: Some(part), ..self.plan.account(None) };
        account.coverage(false)
    }

    /// The rows that the result would have. Those behind which it is later than `ends_at` have no intervals, and are not
    /// precise.
    fn rows(
        &self,
        answer: &RecordBatch,
        sample: Option<SplitSample>,
        schema: &SchemaRef,
        ends_at: Option<Instant>,
    ) -> Result<Vec<RecordBatch>> {
        // Unread rows have no limit here: what is left is not known before the end.
        let counts = row_counts(self.scan, self.parts, None)?;
        let part = Answering { sample, row_counts: counts, ..self.part.clone() };
        let intervals = part.intervals(self.plan.settings.threads, ends_at);
        let answers = Box::new(std::iter::once(part.answer(answer)));
        let carried = self.plan.bounds.as_ref().map_or(Vec::new(), |bounds| bounds.carried());
        let cancel = &self.plan.settings.cancel;
        let bounds = self.plan.bounds.as_deref();
        let mut rows = self.plan.finish_over(
            self.parts,
            answers,
            &carried,
            bounds.map(|it| (it, intervals.as_ref(), false)),
        )?;
        let (mut batches, mut count) = (Vec::new(), 0);
        while let Some(batch) = rows.next(cancel)? {
            count += batch.num_rows();
            batches.push(named(batch, schema)?);
            // All of them are looked at for their precision.
            if self.error.is_none() && count > GLIMPSE_ROWS_MAX {
                break;
            }
        }
        Ok(batches)
    }
}

/// Whether a plan has estimates that become more precise.
///
/// # Errors
/// [`Error::Usage`] where it has none.
pub(crate) fn check_precision(known: &[Known]) -> Result<()> {
    match known.iter().any(|known| matches!(known, Known::Estimate(_))) {
        true => Ok(()),
        false => Err(Error::usage_with_hint(
            "`error` is of counts, sums, means and ratios of them, and the query has none",
            "say when to stop: --deadline 7s, --drop 10% or --sample 1%",
        )),
    }
}
