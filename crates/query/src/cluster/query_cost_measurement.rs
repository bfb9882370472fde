//! Measures the costs of a query on this machine by running it for a second on one thread.
//!
//! Splits are sampled from the whole input, as for an answer that rests on a part of it. They pass the
//! query's map into its tables. The measurement uses the processor's clock and not the wall clock, because
//! the wait for a disk is another part of the forecast. It is the process's clock, because other threads may
//! decompress some bytes.
//!
//! The cost of a split's start follows from splits of a kibibyte beside those of the usual size: two
//! equations in two unknowns. If the input cannot be cut so finely, the cost per byte includes it. The cost
//! of a merge is measured by merging the sample's table with itself, in the form in which partial tables are
//! stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::ipc::writer::StreamWriter;
use datafusion::logical_expr::LogicalPlan;
use tidemill_base::error::{Error, Result};
use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_base::progress::process_cpu_seconds;
use tidemill_base::redaction::redact_url;
use tidemill_sampling::SamplingOrder;
use tidemill_source::split_target_bytes;
use tidemill_sql::IntoTidemillError;
use tidemill_tables::grouping::batch_slices::BatchSlices;
use tidemill_tables::merging::merge::ChunkMerger;
use tidemill_tables::{AggregateTable, GroupChunk, StateUpdateSwitch, TableSpec};

use super::model::{
    ClusterForecast, ClusterSpec, QueryMeasurement, ReadScope, fit_group_growth, fit_split_costs,
};
use crate::execution::map::SplitMap;
use crate::execution::scan::{Scan, SourceTable, SplitSizing};
use crate::execution::table_runner::append_positions;
use crate::plan::QueryPlan;
use crate::planning::execution_path::AggregationPlan;
use crate::turbo::TurboSettings;
use crate::turbo::sampling_plan::can_sample_splits;

/// Time of reading before the measurement starts, so that code and files are in memory.
const WARMUP_TIME: Duration = Duration::from_millis(100);

/// Time of the measurement: no split begins later than this.
const SAMPLE_TIME: Duration = Duration::from_millis(1000);

/// Maximum time of the measurement: no split is read longer than this.
const SAMPLE_TIME_MAX: Duration = Duration::from_millis(2000);

/// Time during which tiny splits begin.
const TINY_SPLIT_TIME: Duration = Duration::from_millis(300);

/// Number of first tiny splits that are not measured.
const TINY_SPLIT_WARMUP_COUNT: usize = 16;

/// Time for measuring merges, and maximum number of rounds: some states grow with each merge.
const MERGE_TIME: Duration = Duration::from_millis(150);
const MERGE_ROUNDS_MAX: u64 = 64;

/// Minimum number of splits beyond those of the usual cut that makes the cost of cutting measurable.
const EXTRA_SPLITS_MIN: usize = 64;

/// Time for each interval of a group, as a deadline reserves it.
const INTERVAL_RESERVE_SECONDS: f64 = 15e-6;

/// The measurement of reading some splits.
#[derive(Default)]
struct ReadMeasurement {
    split_count: u64,
    /// Stored bytes of all columns.
    bytes: u64,
    row_count: u64,
    seconds: f64,
    /// Number of rows and groups after each batch.
    group_growth_marks: Vec<(u64, u64)>,
}

/// An aggregate table that a measurement fills.
struct MeasuredTable {
    table: AggregateTable,
    /// True if the table needs the position of each row.
    has_positions: bool,
}

impl MeasuredTable {
    fn new(spec: &Arc<TableSpec>) -> Result<Self> {
        Ok(MeasuredTable {
            table: AggregateTable::new(spec)?,
            has_positions: spec.needs_positions(),
        })
    }
}

/// Measures the reading of splits through a map into a table.
struct SplitMeasurer<'a> {
    map: SplitMap,
    scan: Arc<Scan>,
    plan: &'a QueryPlan,
    bytes_max: usize,
}

impl QueryPlan {
    /// Forecasts the query's time on a cluster from measurements here: runs the query for about a second, on
    /// one thread, over a sample of its input. The plan is consumed, because it cannot run afterwards.
    ///
    /// # Errors
    /// [`Error::Usage`] if the query is not one aggregation over one source, or if its input can be read only
    /// once, goes through a program or is empty; otherwise errors of reading and of the map.
    pub fn forecast(self, cluster: &ClusterSpec) -> Result<ClusterForecast> {
        run_on_large_stack(PLAN_STACK_BYTES, || self.measure_and_forecast(cluster))
    }

    fn measure_and_forecast(&self, cluster: &ClusterSpec) -> Result<ClusterForecast> {
        let parts = self.require_mergeable().map_err(|error| {
            let message = error.to_string();
            let why = message.lines().next().unwrap_or_default();
            let before =
                ["the table cannot be merged with others: ", "there is no table to keep: "];
            let why = before.iter().find_map(|before| why.strip_prefix(before)).unwrap_or(why);
            forecast_error(why)
        })?;
        for (name, table) in &self.source_tables {
            let Some(source) = table.source() else { continue };
            if source.spec().filter_program.is_some() {
                return Err(forecast_error(&format!(
                    "`{}` goes through a program, whose part is not seen",
                    redact_url(name)
                )));
            }
            if source.files().iter().any(|file| file.is_stream()) {
                return Err(forecast_error(&format!(
                    "`{}` can be read only once, and measuring would use it up",
                    redact_url(name)
                )));
            }
        }
        let table = self.source_tables.iter().find(|(name, _)| name == parts.stream.table());
        let (Some((_, table)), Some(source)) = (table, table.and_then(|(_, table)| table.source()))
        else {
            return Err(Error::Internal("a map without a source".into()));
        };
        let began = Instant::now();
        if let Some(why) = self.read_build_sides()? {
            return Err(forecast_error(&why));
        }
        let held_seconds =
            if parts.build_sides.is_empty() { 0.0 } else { began.elapsed().as_secs_f64() };

        let turbo = self.query.turbo.clone().unwrap_or_default();
        let coded = self.map_with_dictionary_keys(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let fine = SplitSizing { split_bytes: turbo.split_bytes, reads_prefixes_only: false };
        table.set_split_sizing(Some(fine));
        let warm = self.split_measurer(parts, map)?;
        let spec = self.measured_table_spec(parts, &turbo, &warm.scan);
        let total = warm.scan.byte_amount().total;
        if total == 0 {
            return Err(forecast_error("its input has no bytes"));
        }
        let order = |count: usize| SamplingOrder::new(count, turbo.seed.unwrap_or(0));
        let mut filling = MeasuredTable::new(&spec)?;
        warm.read_splits(
            &mut filling,
            order(warm.scan.splits().len()),
            (WARMUP_TIME, WARMUP_TIME),
        )?;

        let (reader, cut_seconds) = self.measure_cutting(table, fine, parts, map)?;
        let splits = reader.scan.splits().len();
        filling = MeasuredTable::new(&spec)?;
        let mut read =
            reader.read_splits(&mut filling, order(splits), (SAMPLE_TIME, SAMPLE_TIME_MAX))?;
        if read.bytes == 0 {
            return Err(forecast_error("no byte of its input was read"));
        }
        let share = reader.scan.column_bytes_share();
        read.bytes = scale_bytes(read.bytes, share);
        let started = self.measure_tiny_splits(table, parts, map, &spec)?;
        let tiny =
            started.map(|tiny| (tiny.split_count, scale_bytes(tiny.bytes, share), tiny.seconds));
        let (start_seconds, byte_seconds) =
            fit_split_costs((read.split_count, read.bytes, read.seconds), tiny);

        let groups = filling.table.group_count() as u64;
        let half = read
            .group_growth_marks
            .iter()
            .min_by_key(|(rows, _)| rows.abs_diff(read.row_count / 2));
        // The middle mark must come after the first rows and before the last ones.
        let half =
            half.copied().filter(|(rows, _)| read.row_count / 4 < *rows && *rows < read.row_count);
        let merged = self.measure_merging(&spec, filling.table.take_chunk()?)?;
        let intervals = self.bounded_estimates.as_ref().map_or(0, |bounds| bounds.estimands.len());
        let target = source.sample_split_target_bytes_for(source.total_bytes());
        let mean = total / (splits as u64).max(1);
        let measured = QueryMeasurement {
            input_bytes: scale_bytes(total, share),
            column_share: share,
            bytes: read.bytes,
            splits: read.split_count,
            rows: read.row_count,
            groups,
            seconds: read.seconds,
            byte_seconds,
            start_seconds,
            cut_seconds,
            split_bytes_min: if mean > target + target / 2 { scale_bytes(mean, share) } else { 0 },
            growth: half.map_or(0.0, |half| fit_group_growth(half, (read.row_count, groups))),
            group_bytes: merged.group_bytes,
            merge_seconds: merged.merge_seconds,
            finish_seconds: merged.finish_seconds + intervals as f64 * INTERVAL_RESERVE_SECONDS,
            held_seconds,
        };
        self.source_tables.iter().for_each(|(_, table)| table.discard_scans());
        let reading = ReadScope {
            share: turbo.sample_share.unwrap_or(1.0) * (1.0 - turbo.drop_share.unwrap_or(0.0)),
            deadline_seconds: turbo.deadline.map(|deadline| deadline.as_secs_f64()),
            is_fine: turbo.can_stop_early()
                && (parts.spec.is_order_insensitive() || turbo.split_bytes.is_some()),
            split_bytes: turbo.split_bytes,
        };
        Ok(ClusterForecast::new(cluster, reading, measured, |bytes| match reading.is_fine {
            true => {
                reading.split_bytes.unwrap_or_else(|| source.sample_split_target_bytes_for(bytes))
            }
            false => split_target_bytes(bytes),
        }))
    }

    /// Returns the query's keys and aggregates, with the sums behind intervals if it has estimates.
    fn measured_table_spec(
        &self,
        parts: &AggregationPlan,
        turbo: &TurboSettings,
        scan: &Scan,
    ) -> Arc<TableSpec> {
        match &self.bounded_estimates {
            Some(bounds) if can_sample_splits(scan.splits()) && !turbo.is_unscaled => bounds
                .add_cell_aggregates(
                    &parts.spec,
                    scan.splits().len(),
                    &StateUpdateSwitch::default(),
                ),
            _ => Arc::clone(&parts.spec),
        }
    }

    fn split_measurer(
        &self,
        parts: &AggregationPlan,
        map: &LogicalPlan,
    ) -> Result<SplitMeasurer<'_>> {
        let (map, scan) = self.plan_map_per_split(&parts.stream, map)?;
        let bytes_max = self.settings.memory_share_bytes(1, 4);
        Ok(SplitMeasurer { map, scan, plan: self, bytes_max })
    }

    /// Returns a measurer over the fine cut, and the cost of cutting one more split.
    fn measure_cutting(
        &self,
        table: &SourceTable,
        fine: SplitSizing,
        parts: &AggregationPlan,
        map: &LogicalPlan,
    ) -> Result<(SplitMeasurer<'_>, f64)> {
        let timed = |cut| -> Result<(SplitMeasurer<'_>, f64)> {
            table.set_split_sizing(cut);
            let began = process_cpu_seconds();
            let reader = self.split_measurer(parts, map)?;
            Ok((reader, process_cpu_seconds() - began))
        };
        let (coarse, coarse_seconds) = timed(None)?;
        let (reader, seconds) = timed(Some(fine))?;
        let more = reader.scan.splits().len().saturating_sub(coarse.scan.splits().len());
        let each = match more >= EXTRA_SPLITS_MIN {
            true => ((seconds - coarse_seconds) / more as f64).max(0.0),
            false => 0.0,
        };
        Ok((reader, each))
    }

    /// Reads tiny splits, which consist of little but their start. Returns `None` if the input cannot be cut
    /// between any two records.
    fn measure_tiny_splits(
        &self,
        table: &SourceTable,
        parts: &AggregationPlan,
        map: &LogicalPlan,
        spec: &Arc<TableSpec>,
    ) -> Result<Option<ReadMeasurement>> {
        table.set_split_sizing(Some(SplitSizing { split_bytes: None, reads_prefixes_only: true }));
        let reader = self.split_measurer(parts, map)?;
        let count = reader.scan.splits().len();
        if count < 2 * TINY_SPLIT_WARMUP_COUNT {
            return Ok(None);
        }
        let mut filling = MeasuredTable::new(spec)?;
        reader.read_splits(
            &mut filling,
            0..TINY_SPLIT_WARMUP_COUNT,
            (TINY_SPLIT_TIME, SAMPLE_TIME_MAX),
        )?;
        reader
            .read_splits(
                &mut filling,
                TINY_SPLIT_WARMUP_COUNT..count,
                (TINY_SPLIT_TIME, SAMPLE_TIME_MAX),
            )
            .map(Some)
    }

    /// Measures merging a table with itself, and finishing it.
    fn measure_merging(&self, spec: &Arc<TableSpec>, chunk: GroupChunk) -> Result<MergeCost> {
        let groups = chunk.group_count() as f64;
        if groups == 0.0 {
            return Ok(MergeCost::default());
        }
        let settings = &self.settings;
        let encoded = chunk.encode()?;
        let group_bytes = encoded_table_bytes(&encoded)? as f64 / groups;
        let (account, dirs) = (settings.new_table_account(), &settings.spill_dirs);
        let merger = ChunkMerger::new(spec, &account, dirs, &settings.cancel, &settings.progress)?;
        let decoder = AggregateTable::new(spec)?;
        let (began, clock) = (Instant::now(), process_cpu_seconds());
        let mut rounds = 0;
        while rounds == 0 || rounds < MERGE_ROUNDS_MAX && began.elapsed() < MERGE_TIME {
            settings.cancel.check()?;
            merger.add_chunk(decoder.decode_chunk(&encoded)?)?;
            merger.merge_and_spill(0)?;
            rounds += 1;
        }
        let merge_seconds = (process_cpu_seconds() - clock) / (rounds as f64 * groups);
        let clock = process_cpu_seconds();
        let mut merged = merger.finish(1)?;
        while merged.next_answer()?.is_some() {
            settings.cancel.check()?;
        }
        let finish_seconds = (process_cpu_seconds() - clock) / groups;
        Ok(MergeCost { group_bytes, merge_seconds, finish_seconds })
    }
}

/// The costs of a group when tables are merged.
#[derive(Default)]
struct MergeCost {
    group_bytes: f64,
    merge_seconds: f64,
    finish_seconds: f64,
}

impl SplitMeasurer<'_> {
    /// Reads splits into a table. No split begins after `begun`, and the current split is abandoned after
    /// `read`.
    fn read_splits(
        &self,
        filling: &mut MeasuredTable,
        order: impl Iterator<Item = usize>,
        (begun, read): (Duration, Duration),
    ) -> Result<ReadMeasurement> {
        let settings = &self.plan.settings;
        let mut turn = self.scan.new_core_turn();
        let mut found = ReadMeasurement::default();
        let began = Instant::now();
        for index in order {
            let is_late = found.split_count > 0 && began.elapsed() >= begun;
            if is_late || filling.table.memory_bytes() > self.bytes_max {
                break;
            }
            turn.acquire(|| settings.cancel.is_cancelled());
            settings.cancel.check()?;
            let (before, clock) = (settings.progress.bytes_done(), process_cpu_seconds());
            let is_whole = self.read_split(index, filling, &mut found, (began, read))?;
            found.seconds += process_cpu_seconds() - clock;
            found.split_count += 1;
            found.bytes += match is_whole {
                true => self.scan.splits()[index].bytes,
                false => settings.progress.bytes_done() - before,
            };
        }
        Ok(found)
    }

    /// Reads a split; returns true if all of it was read.
    fn read_split(
        &self,
        index: usize,
        filling: &mut MeasuredTable,
        found: &mut ReadMeasurement,
        (began, most): (Instant, Duration),
    ) -> Result<bool> {
        let MeasuredTable { table, has_positions } = filling;
        let mut batches = self.map.split_rows(index)?;
        let mut first = 0;
        for batch in batches.by_ref() {
            let mut batch = batch.into_tidemill_error()?;
            let rows = batch.num_rows() as u64;
            if *has_positions {
                batch = append_positions(&batch, index, first)?;
            }
            let mut portions = BatchSlices::new(table.spec(), &batch, self.bytes_max, usize::MAX)?;
            while let Some(rows) = portions.next_slice(table) {
                table.update(&rows)?;
            }
            first += rows;
            found.row_count += rows;
            found.group_growth_marks.push((found.row_count, table.group_count() as u64));
            self.plan.settings.cancel.check()?;
            if began.elapsed() >= most || table.memory_bytes() > self.bytes_max {
                return Ok(false);
            }
        }
        drop(batches);
        self.scan.read_unrequested_split(index)?;
        Ok(true)
    }
}

/// Returns the size of a table in a file of its own.
fn encoded_table_bytes(groups: &RecordBatch) -> Result<usize> {
    let mut writer = StreamWriter::try_new(Vec::new(), groups.schema_ref())?;
    writer.write(groups)?;
    writer.finish()?;
    Ok(writer.get_ref().len())
}

/// Returns a share of a number of bytes, at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of bytes"
)]
fn scale_bytes(bytes: u64, share: f64) -> u64 {
    if share >= 1.0 { bytes } else { ((bytes as f64 * share).round() as u64).max(1) }
}

fn forecast_error(why: &str) -> Error {
    Error::usage_with_hint(
        format!("no forecast can be made: {why}"),
        "it is of one aggregation over one source, in files that can be read again",
    )
}
