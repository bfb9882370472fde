//! A query's tables filled with a part of the input, and looked at meanwhile.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use tidemill_base::error::{Error, Result};
use tidemill_sampling::{look_confidence, look_splits};
use tidemill_tables::merge::Merged;

use super::answer::Answering;
use super::bounds::Known;
use super::drawing::can_be_sampled;
use super::found::{Finding, FoundRows};
use super::runner::{self, Look, ReadPart, Snapshot, Taken};
use super::shown::{ShownBounds, note_bounds};
use super::{Turbo, account_of};
use crate::columns::named;
use crate::plan::Plan;
use crate::results::Account;
use crate::route::Tables;

impl Plan {
    /// Fills tables with as much of the input as there is time for.
    ///
    /// # Errors
    /// What reading, mapping and merging meet.
    pub(crate) fn fold_part(
        &self,
        parts: &Tables,
        turbo: &Turbo,
    ) -> Result<(Merged, Answering, Account)> {
        let stream = self.tables.iter().find(|(name, _)| name == parts.stream.table());
        if let Some((_, table)) = stream {
            table.cut_finely(turbo.split_bytes);
        }
        let coded = self.coded(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let (map, context, scan) = self.per_split(&parts.stream, map)?;
        let spec = match &self.bounds {
            Some(bounds) if can_be_sampled(scan.splits()) && !turbo.as_seen => {
                bounds.with_cells(&parts.spec, scan.splits().len())
            }
            _ => Arc::clone(&parts.spec),
        };
        let carried = self.bounds.as_ref().map_or(Vec::new(), |bounds| bounds.carried());
        let mut part = Answering {
            spec: Arc::clone(&spec),
            quantities: self.bounds.as_ref().map_or(Vec::new(), |it| it.quantities.clone()),
            formulas: self.bounds.as_ref().map_or(Vec::new(), |it| it.formulas.clone()),
            sample: None,
            is_exact: false,
            schema: parts.finished_schema_with(&carried),
        };
        let work = runner::Work {
            map,
            context,
            scan: Arc::clone(&scan),
            spec,
            threads: self.settings.threads,
            budget_bytes: self.settings.share(3, 4),
            spill_dirs: self.settings.spill_dirs.clone(),
            cancel: self.settings.cancel.clone(),
            enough: self.settings.enough.clone(),
            progress: self.settings.progress.clone(),
        };
        let until = turbo.until();
        let mut looking = Looking {
            plan: self,
            parts,
            part: &part,
            error: turbo.error,
            confidence: turbo.confidence(),
            look: 1,
        };
        let Taken { mut merged, read } = runner::run(work, &until, &mut looking)?;
        let mut account = self.account(None);
        part.sample = read.sample.clone().filter(|_| !turbo.as_seen && !read.is_whole());
        part.is_exact = read.is_whole();
        if read.is_whole() && read.wrong_starts > 0 {
            // All of it was read, and some of it from where no record begins: once more, in its order.
            self.tables.iter().for_each(|(_, table)| table.forget_scans());
            self.rejects.start_over()?;
            merged = self.fold(parts)?;
            part.spec = Arc::clone(&parts.spec);
            let read = ReadPart { wrong_starts: 0, ..read };
            account.part = Some(account_of(&scan, turbo, &read));
            return Ok((merged, part, account));
        }
        if read.is_whole() {
            let scans = self.tables.iter().flat_map(|(_, table)| table.scans());
            scans.into_iter().try_for_each(|scan| scan.read_rest())?;
        }
        account.part = Some(account_of(&scan, turbo, &read));
        let rows = self.tables.iter().flat_map(|(_, table)| table.scans());
        self.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
        Ok((merged, part, account))
    }
}

impl Plan {
    /// Starts to find rows, in no order.
    ///
    /// # Errors
    /// As planning, and where no thread can be started.
    pub(crate) fn find_rows(
        &self,
        stream: &TableReference,
        map: &LogicalPlan,
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<FoundRows> {
        let turbo = self.query.turbo.clone().unwrap_or_default();
        if let Some((_, table)) = self.tables.iter().find(|(name, _)| name == stream.table()) {
            table.cut_finely(turbo.split_bytes);
        }
        let (map, context, scan) = self.per_split(stream, map)?;
        let found = turbo.find.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let fetch = fetch.into_iter().chain(found).min();
        let finding = Finding {
            map,
            context,
            scan,
            cancel: self.settings.cancel.clone(),
            enough: self.settings.enough.clone(),
            progress: self.settings.progress.clone(),
            threads: self.settings.threads,
        };
        FoundRows::start(finding, turbo, (skip, fetch))
    }
}

/// Looks whether an answer is precise enough.
struct Looking<'a> {
    plan: &'a Plan,
    parts: &'a Tables,
    /// What makes answers, of no sample yet.
    part: &'a Answering,
    /// The widest that half of an interval may be, as a share of its number.
    error: Option<f64>,
    confidence: f64,
    /// The next look, from 1 on.
    look: u32,
}

impl Look for Looking<'_> {
    fn is_due(&self, splits_read: u64) -> bool {
        self.error.is_some() && splits_read >= look_splits(self.look)
    }

    fn look(&mut self, snapshot: Snapshot) -> Result<Option<f64>> {
        let Some(most) = self.error else { return Ok(None) };
        // The splits of the last look that is due: those before it are not made up for.
        while snapshot.sample.splits_read() >= look_splits(self.look + 1) {
            self.look += 1;
        }
        let confidence = look_confidence(self.look, self.confidence);
        self.look += 1;
        let sample = Some(snapshot.sample.with_confidence(confidence));
        let part = Answering { sample, ..self.part.clone() };
        let answer = part.answer(&snapshot.answer)?;
        let shown = self.shown(answer)?;
        let is_precise = shown.iter().all(|shown| shown.is_within(most));
        Ok(is_precise.then_some(confidence))
    }
}

impl Looking<'_> {
    /// How wide the intervals of the estimates are that the result would have.
    fn shown(&self, answer: arrow::array::RecordBatch) -> Result<Vec<ShownBounds>> {
        let bounds = self.plan.bounds.as_ref();
        let bounds = bounds.ok_or_else(|| Error::Internal("a look at no bounds".into()))?;
        let answers = Box::new(std::iter::once(Ok(answer)));
        let cancel = &self.plan.settings.cancel;
        let mut rows = self.plan.finish_over(self.parts, answers, &bounds.carried(), false)?;
        let mut shown = Vec::new();
        while let Some(batch) = rows.next(cancel)? {
            note_bounds(&mut shown, &named(batch, self.plan.schema())?);
        }
        // Of what is a bound by itself, and of what has no interval, more reading makes no other thing.
        let has_interval = bounds.with_intervals();
        let kept = shown.into_iter().zip(has_interval).filter_map(|(one, has)| has.then_some(one));
        Ok(kept.collect())
    }
}

/// Whether a plan has estimates that become more precise.
///
/// # Errors
/// [`Error::Usage`] where it has none.
pub(crate) fn check_precision(known: &[Known]) -> Result<()> {
    match known.iter().any(|known| matches!(known, Known::Estimate(_))) {
        true => Ok(()),
        false => Err(Error::usage_hint(
            "`error` is of counts, sums, means and ratios of them, and the query has none",
            "say when to stop: --deadline 7s, --drop 10% or --sample 1%",
        )),
    }
}
