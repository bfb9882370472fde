//! What a driver says of its query to workers, and how their parts are merged.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::ThreadCpuClock;
use tidemill_base::redaction::redact_url;
use tidemill_remote::scratch::ScratchFolder;
use tidemill_source::{Split, SplitStats};
use tidemill_sql::statement::parse_select;
use tidemill_tables::merge::{ChunkMerger, MergedTable, SORTED_ANSWER_GROUPS_MAX};
use tidemill_tables::{AggregateTable, TableSpec};

use super::dealer::{Cutting, Dealer, cut};
use super::drawn::Drawn;
use super::job::{Asked, DrawnSaid, Job, Said};
use super::laid::{LaidRows, Plans};
use super::output::Output;
use super::parted::Parting;
use super::reduction::{self, Reduction};
use super::rows::RowsElsewhere;
use super::unordered::ATTEMPTS_MAX;
use super::{HandedFile, HandedJob, Reach, Workers, not_elsewhere};
use crate::build_sides::{BuildSide, scanned};
use crate::explain::Elsewhere;
use crate::plan::Plan;
use crate::route::{Route, Tables};
use crate::scan::Scan;

/// Each thread gets about so many tasks: what is left for the last ones is small.
const TASKS_PER_THREAD: usize = 8;
/// Rows travel in parts of splits that have so many bytes at most, where a split has not more.
const ROWS_BYTES_MAX: u64 = 4 << 20;
/// What is expected of rows' bytes for each byte of their splits, until the first have come.
const ROWS_RATIO: f64 = 4.0;
/// Of so many files it is looked at whether all machines see them.
const PATHS_MAX: usize = 64;

/// Refuses what workers do not do.
///
/// # Errors
/// [`Error::Usage`], with the reason.
pub(crate) fn check(plan: &Plan) -> Result<()> {
    // A worker plans what stands in the SQL.
    parse_select(&plan.query.sql)
        .map_err(|_| not_elsewhere("SUMMARIZE is answered on one machine"))?;
    let (stream, map) = match &plan.route {
        Route::Tables(parts) => (&parts.stream, &parts.map),
        Route::Rows { stream, map, .. } => (stream, map),
        Route::Engine { why } => return Err(not_elsewhere(why)),
    };
    check_map(plan, stream, map)?;
    reduction::check(plan)?;
    let table = plan.table(stream.table());
    let source = table.as_ref().and_then(|table| table.source());
    source.map_or(Ok(()), |source| Ok(source.describe().map(drop)?))
}

/// How the query's splits would be read elsewhere, if they are.
///
/// # Errors
/// Where no worker can be reached.
pub(crate) fn explained(plan: &Plan) -> Result<Option<Elsewhere>> {
    let Some(workers) = &plan.query.workers else { return Ok(None) };
    let (stream, map, sides, cutting, asked) = match &plan.route {
        Route::Tables(parts) => {
            let asked = Asked::Tables(parts.spec.describe_keys_and_states());
            (&parts.stream, &parts.map, &parts.sides, of_tables(plan), asked)
        }
        Route::Rows { stream, map, sides, .. } => {
            (stream, map, sides, of_rows(plan), Asked::Rows { fetch: None })
        }
        Route::Engine { .. } => return Ok(None),
    };
    let turbo = plan.query.turbo.as_ref();
    if let Some(turbo) = turbo.filter(|turbo| turbo.cuts(&plan.route))
        && let Some(table) = plan.table(stream.table())
    {
        table.cut_finely(turbo.split_bytes);
    }
    let before = plan.settings.progress.bytes_total();
    let (_, scan) = plan.per_split(stream, map)?;
    // Nothing is read now.
    plan.tables.iter().for_each(|(_, table)| table.forget_scans());
    plan.settings.progress.set_bytes_total(before);
    // What is joined is read when it runs.
    let job = job(plan, stream, &sides[..0], (asked, None, None), &scan)?.encoded()?;
    let reach = workers.reach()?;
    let mut parts = match (&plan.route, turbo) {
        (Route::Tables(_), None) => {
            "a table each, merged by the driver in the order of the input as they come"
        }
        (Route::Tables(_), Some(_)) => {
            "a table each, of splits in a drawn order, merged by the driver as they come"
        }
        (Route::Rows { skip: 0, fetch: None, .. }, None)
            if plan.query.output.is_some()
                && reduction::place(plan, reach).is_some()
                && rows_fit(plan) =>
        {
            "rows, those of a task with many by scratch files to workers who write the output's files, which the driver commits"
        }
        (_, None) => "rows, written by the driver in the order of the input",
        (_, Some(_)) => "rows, of splits in a drawn order, written by the driver as they come",
    }
    .to_owned();
    if let (Route::Tables(tables), None) = (&plan.route, turbo)
        && let Some(large) = reduction::explained(plan, tables, reach)
    {
        parts.push_str(&format!("; {large}"));
    }
    let splits = scan.splits();
    Ok(Some(Elsewhere {
        reach,
        tasks: turbo.is_none().then(|| cut(splits, reach.threads, &cutting).len() as u64),
        splits: splits.len() as u64,
        bytes: splits.iter().map(|split| split.bytes).sum(),
        job_bytes: job.len() as u64,
        parts,
    }))
}

/// What is made of a query's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    /// Its answers.
    Answers,
    /// Its groups with their states.
    Groups,
}

/// Runs the map of a query over all splits elsewhere, and merges what comes of them.
///
/// # Errors
/// The first that a split, in split order, or a merge meets; [`Error::Usage`] for what cannot be read elsewhere.
pub(crate) fn fold(
    plan: &Plan,
    parts: &Tables,
    workers: &Arc<dyn Workers>,
    gives: Gives,
) -> Result<MergedTable> {
    let asked = Asked::Tables(parts.spec.describe_keys_and_states());
    let of = (&parts.stream, &parts.map, parts.sides.as_slice());
    let reach = reached(plan, workers)?;
    let mut reduction = match gives {
        Gives::Answers => Reduction::create(plan, parts, reach)?,
        Gives::Groups => None,
    };
    let large = reduction.as_ref().map(|large| (large.parting(), large.lock()));
    let plans = match (&reduction, &plan.query.output) {
        (Some(large), Some(output)) if parts.finishes_by_group(&plan.logical) => {
            let folder = || Ok(Some(large.folder()));
            plans_of(plan, &parts.stream, output, folder, reach)?
        }
        _ => None,
    };
    let cutting = (of_tables(plan), large);
    let (mut dealer, scan, plans) = match plans {
        Some(plans) => start_laying(plan, of, asked, workers, cutting, plans)?,
        None => {
            let (dealer, scan) = start(plan, of, asked, workers, cutting, None)?;
            (dealer, scan, None)
        }
    };
    let settings = &plan.settings;
    let account = settings.new_table_account();
    let new_merger = || {
        ChunkMerger::new(
            &parts.spec,
            &account,
            &settings.spill_dirs,
            &settings.cancel,
            &settings.progress,
        )
    };
    let mut merger = new_merger()?;
    let decoder = AggregateTable::new(&parts.spec)?;
    let is_order_free = parts.spec.is_order_insensitive();
    let progress = &settings.progress;
    while let Some((places, mut part)) = dealer.next()? {
        if part.read.len() != places.len() {
            return Err(Dealer::of_others());
        }
        for read in part.read.drain(..) {
            let split = scan.splits().get(places.start + read.place);
            let split = split.ok_or_else(Dealer::of_others)?;
            let stats = SplitStats::from_description(read.stats, split)?;
            progress.add_bytes(split.bytes);
            progress.add_rows(stats.rows);
            progress.map_counters().add_rows(read.mapped_rows);
            scan.accept(stats)?;
        }
        let mut clock = ThreadCpuClock::start();
        if let Some(parted) = part.take_parted()? {
            let large = reduction.as_mut().ok_or_else(Dealer::of_others)?;
            // What came before it is before it.
            if !is_order_free && !merger.is_unused() {
                let before = std::mem::replace(&mut merger, new_merger()?);
                large.add_own(before.finish(settings.threads)?)?;
            }
            large.add(parted);
        }
        while let Some((_, groups)) = part.next_batch()? {
            let chunk = decoder.decode_chunk(&groups)?;
            match is_order_free {
                true => merger.add_chunk(chunk)?,
                false => merger.accept_deferred(merger.defer_chunk(chunk)?, 0)?,
            }
            merger.merge_and_spill(0)?;
        }
        progress.table_counters().add_thread_cpu(&mut clock);
    }
    settings.cancel.check()?;
    let mut clock = ThreadCpuClock::start();
    let merged = match reduction.filter(|large| !large.is_empty()) {
        None => merger.finish(settings.threads)?,
        Some(mut large) => {
            if !merger.is_unused() {
                let small = std::mem::replace(&mut merger, new_merger()?);
                large.add_own(small.finish(settings.threads)?)?;
            }
            let ranged = large.run(&dealer)?;
            let precisions = ranged.precisions();
            let answers = match &plans {
                // Fewer come in the order of their keys, which they have to be together for.
                Some(plans) if ranged.groups() > SORTED_ANSWER_GROUPS_MAX as u64 => {
                    progress.table_counters().add_rows(ranged.groups());
                    plans.have_groups_written(&dealer, ranged, plan.schema(), &settings.cancel)?;
                    Box::new(std::iter::empty())
                }
                _ => ranged.answers(),
            };
            merger.finish_with_remote_answers(precisions, answers)?
        }
    };
    drop(dealer);
    settings.progress.table_counters().add_thread_cpu(&mut clock);
    plan.tables
        .iter()
        .flat_map(|(_, table)| table.scans())
        .filter(|other| !Arc::ptr_eq(other, &scan))
        .try_for_each(|scan| scan.read_rest())?;
    let rows = plan.tables.iter().flat_map(|(_, table)| table.scans());
    plan.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
    Ok(merged)
}

/// How many workers there are, once they are there.
fn reached(plan: &Plan, workers: &Arc<dyn Workers>) -> Result<Reach> {
    let progress = &plan.settings.progress;
    progress.set_wait_reason(Some("waiting for the cluster's workers"));
    let reach = workers.reach();
    progress.set_wait_reason(None);
    reach
}

/// Rows that workers read.
pub(crate) enum RowsThere {
    /// They are sent.
    Sent(RowsElsewhere),
    /// They are laid down for workers who write the output's files.
    Laid(LaidRows),
}

/// Starts to read a map's rows elsewhere; `skip` of them are left out, then at most `fetch` are given. All rows of a query
/// with an output are written by workers, where they can.
///
/// # Errors
/// As [`fold`]; more may come from the iterator.
pub(crate) fn rows(
    plan: &Plan,
    of: (&TableReference, &LogicalPlan, &[BuildSide]),
    (skip, fetch): (usize, Option<usize>),
    workers: &Arc<dyn Workers>,
) -> Result<RowsThere> {
    let asked = Asked::Rows { fetch: fetch.map(|fetch| fetch.saturating_add(skip)) };
    let progress = &plan.settings.progress;
    let sent =
        |dealer, scan| RowsThere::Sent(RowsElsewhere::new(dealer, scan, progress, (skip, fetch)));
    let plans = match &plan.query.output {
        Some(output) if skip == 0 && fetch.is_none() && rows_fit(plan) => {
            let (stream, reach) = (of.0, reached(plan, workers)?);
            let folder = || Ok(reduction::folder(plan, stream, reach)?.map(Arc::new));
            plans_of(plan, stream, output, folder, reach)?
        }
        _ => None,
    };
    let Some(plans) = plans else {
        let (dealer, scan) = start(plan, of, asked, workers, (of_rows(plan), None), None)?;
        return Ok(sent(dealer, scan));
    };
    let (dealer, scan, plans) =
        start_laying(plan, of, asked, workers, (of_tables(plan), None), plans)?;
    Ok(match plans {
        Some(plans) => {
            let (schema, settings) = (Arc::clone(plan.schema()), &plan.settings);
            let own = (&settings.cancel, settings.memory_share_bytes(1, 1));
            RowsThere::Laid(LaidRows::new(dealer, scan, plans, schema, own))
        }
        None => sent(dealer, scan),
    })
}

/// Whether rows that are not laid down may be held by this process until it is known whether there are more.
fn rows_fit(plan: &Plan) -> bool {
    let held_max = plan.settings.memory_share_bytes(1, 16) as u64;
    plan.query.scratch.part_bytes_max.is_none_or(|bytes_max| bytes_max <= held_max)
}

/// Who writes the files of a query's output, and from where; none where this process does.
fn plans_of(
    plan: &Plan,
    stream: &TableReference,
    output: &Output,
    folder: impl FnOnce() -> Result<Option<Arc<ScratchFolder>>>,
    reach: Reach,
) -> Result<Option<Plans>> {
    let table = plan.table(stream.table());
    let Some(source) = table.as_ref().and_then(|table| table.source()) else { return Ok(None) };
    // Whoever reads a bucket and writes to another has one way to reach both.
    let of_source = &source.spec().storage_options;
    let both = of_source.with_overrides(output.storage()).worker_options();
    let is_remote = source.files().iter().any(|file| file.local_path().is_none());
    let secrets = (!is_remote || both == of_source.worker_options()).then_some(both);
    let bytes_max = reduction::bytes_max(plan).min(plan.settings.memory_share_bytes(1, 16) as u64);
    Plans::of(output, folder, (reach, bytes_max), secrets, &plan.settings.cancel)
}

/// Starts to read splits whose rows are laid down, or whose tables are when they are merged; without that where workers do
/// not see where the output is.
fn start_laying(
    plan: &Plan,
    of: (&TableReference, &LogicalPlan, &[BuildSide]),
    asked: Asked,
    workers: &Arc<dyn Workers>,
    (cutting, large): (Cutting, Option<(Parting, Option<PathBuf>)>),
    plans: Plans,
) -> Result<(Dealer, Arc<Scan>, Option<Plans>)> {
    let progress = &plan.settings.progress;
    let before = progress.bytes_total();
    let is_rows = matches!(asked, Asked::Rows { .. });
    let with = (cutting.clone(), large.clone());
    match start(plan, of, asked.clone(), workers, with, Some(&plans)) {
        Ok((dealer, scan)) => Ok((dealer, scan, Some(plans))),
        Err(error) if plans.is_out_of_sight(&error) => {
            plan.tables.iter().for_each(|(_, table)| table.forget_scans());
            progress.set_bytes_total(before);
            let cutting = if is_rows { of_rows(plan) } else { cutting };
            let (dealer, scan) = start(plan, of, asked, workers, (cutting, large), None)?;
            Ok((dealer, scan, None))
        }
        Err(error) => Err(error),
    }
}

/// How splits are made tasks whose parts are tables.
fn of_tables(plan: &Plan) -> Cutting {
    Cutting {
        per_thread: TASKS_PER_THREAD,
        bytes_max: u64::MAX,
        part_ratio: 0.0,
        held_bytes_max: plan.settings.memory_share_bytes(1, 4) as u64,
        attempts_max: plan.query.attempts_max.unwrap_or(ATTEMPTS_MAX),
    }
}

/// The same of tasks whose parts are rows.
fn of_rows(plan: &Plan) -> Cutting {
    Cutting {
        bytes_max: ROWS_BYTES_MAX,
        part_ratio: ROWS_RATIO,
        held_bytes_max: plan.settings.memory_share_bytes(1, 2) as u64,
        ..of_tables(plan)
    }
}

fn start(
    plan: &Plan,
    of: (&TableReference, &LogicalPlan, &[BuildSide]),
    asked: Asked,
    workers: &Arc<dyn Workers>,
    (cutting, large): (Cutting, Option<(Parting, Option<PathBuf>)>),
    plans: Option<&Plans>,
) -> Result<(Dealer, Arc<Scan>)> {
    let (stream, map, sides) = of;
    reached(plan, workers)?;
    let (_, scan) = plan.per_split(stream, map)?;
    let (parting, lock) = large.unzip();
    let said = (asked, parting, None);
    let mut job = job(plan, stream, sides, said, &scan)?;
    if let Some(plans) = plans {
        job.said.laying = Some(plans.laying.clone());
        job.output = Some(Arc::clone(plan.schema()));
    }
    let mut job = handed(plan, job, &scan)?;
    if let Some(plans) = plans {
        if let Some(secrets) = &plans.secrets {
            job.secrets.clone_from(secrets);
        }
        let own =
            plans.folder.lock_path.iter().chain(plans.laying.folder.as_ref().map(|it| &it.lock));
        job.paths.extend(own.map(|path| path.to_string_lossy().into_owned()));
    }
    job.paths.extend(lock.flatten().map(|lock| lock.to_string_lossy().into_owned()));
    let run = (&plan.settings.cancel, &plan.settings.progress);
    let dealer = Dealer::start(workers, job, Arc::clone(&scan), run, cutting)?;
    Ok((dealer, scan))
}

/// A job with what workers need beside it.
fn handed(plan: &Plan, job: Job, scan: &Scan) -> Result<HandedJob> {
    Ok(HandedJob {
        content: job.encoded()?,
        secrets: scan.source().spec().storage_options.worker_options(),
        paths: paths(scan.splits())?,
        files: HandedFile::of(scan.source().spec().filter_program.as_ref(), &plan.settings.cancel)?,
    })
}

/// Starts to have drawn splits read into tables of `spec`.
///
/// # Errors
/// As [`fold`].
pub(crate) fn drawn_tables(
    plan: &Plan,
    parts: &Tables,
    spec: &TableSpec,
    drawn: DrawnSaid,
    scan: &Arc<Scan>,
    workers: &Arc<dyn Workers>,
) -> Result<Drawn> {
    let said = (Asked::Tables(spec.describe_keys_and_states()), None, Some(drawn));
    let job = job(plan, &parts.stream, &parts.sides, said, scan)?;
    start_drawn(plan, job, scan, workers, u64::MAX)
}

/// Starts to have rows of drawn splits found; `skip` of them are left out, then at most `fetch` are given.
///
/// # Errors
/// As [`rows`].
pub(crate) fn drawn_rows(
    plan: &Plan,
    (stream, sides): (&TableReference, &[BuildSide]),
    (skip, fetch): (usize, Option<usize>),
    scan: &Arc<Scan>,
    workers: &Arc<dyn Workers>,
) -> Result<Drawn> {
    let asked = Asked::Rows { fetch: fetch.map(|fetch| fetch.saturating_add(skip)) };
    let drawn = DrawnSaid { cells: None, is_careful: true };
    let job = job(plan, stream, sides, (asked, None, Some(drawn)), scan)?;
    start_drawn(plan, job, scan, workers, ROWS_BYTES_MAX)
}

fn start_drawn(
    plan: &Plan,
    job: Job,
    scan: &Arc<Scan>,
    workers: &Arc<dyn Workers>,
    bytes_max: u64,
) -> Result<Drawn> {
    let job = handed(plan, job, scan)?;
    let run = (&plan.settings.cancel, &plan.settings.progress);
    let attempts_max = plan.query.attempts_max.unwrap_or(ATTEMPTS_MAX);
    Drawn::start(workers, job, scan, run, (attempts_max, bytes_max))
}

/// Refuses a map that reads something besides its split: a worker has no more.
fn check_map(plan: &Plan, stream: &TableReference, map: &LogicalPlan) -> Result<()> {
    let scanned = scanned(map)?;
    let sources = || scanned.iter().filter(|name| plan.table(name.table()).is_some());
    let other = sources().find(|name| *name != stream);
    match (other, sources().count()) {
        (None, 0 | 1) => Ok(()),
        (other, _) => {
            let name = other.unwrap_or(stream);
            Err(not_elsewhere(&format!(
                "a subquery reads `{}` beside each record",
                redact_url(name.table())
            )))
        }
    }
}

/// What all tasks have in common.
fn job(
    plan: &Plan,
    stream: &TableReference,
    sides: &[BuildSide],
    (asked, parting, drawn): (Asked, Option<Parting>, Option<DrawnSaid>),
    scan: &Scan,
) -> Result<Job> {
    let (mut streams, others): (Vec<_>, Vec<_>) = plan
        .tables
        .iter()
        .map(|(name, table)| (name.clone(), table.kept_schema()))
        .partition(|(name, _)| name == stream.table());
    streams.extend(others);
    let (names, schemas): (_, Vec<SchemaRef>) = streams.into_iter().unzip();
    let table = plan.table(stream.table());
    let said = Said {
        sql: plan.query.sql.clone(),
        names,
        asked,
        planned_ns: plan.query.planned_ns.unwrap_or(0),
        source: scan.source().describe()?,
        sample: table.and_then(|table| table.sample()).map(Into::into),
        parting,
        laying: None,
        drawn,
    };
    let sides = sides.iter().map(|side| side.rows.filled()).collect();
    Ok(Job { said, schemas, sides, output: None })
}

/// Files on a disk that splits are of, at most [`PATHS_MAX`] of them, spread over all.
fn paths(splits: &[Split]) -> Result<Vec<String>> {
    let files = splits.iter().flat_map(|split| &split.parts).map(|piece| &piece.file);
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
