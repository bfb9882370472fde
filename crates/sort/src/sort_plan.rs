//! Forecast of a sort: partitions, passes, disk operations and bytes.

use std::fmt;

use crate::options::{SORT_BYTES_PER_ROW, SortBudget};
use crate::record_blocks::ENTRY_BYTES;
use crate::report::SortReport;
use crate::spill_frame::FRAME_HEADER_BYTES_MEAN;
use crate::spill_storage::DiskCounts;

/// A forecast. It assumes equal partitions, which a sample achieves within a fifth or so, and
/// ignores keys that many records share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SortPlan {
    /// Bytes of the records.
    pub bytes: u64,
    /// Approximate number of records.
    pub rows: u64,
    /// Memory of the sort.
    pub memory_bytes: u64,
    /// Threads of the sort.
    pub threads: usize,
    /// Partitions on disk; 0 if everything fits memory.
    pub partitions: u64,
    /// Runs for each partition; 0 if each is sorted whole.
    pub runs_per_partition: u64,
    /// Number of times that each byte is written to spill files: 0, 1, 2 with runs, more with merges of runs.
    pub passes: u64,
    /// Minimum size of a write, except the last ones of a run.
    pub write_bytes: u64,
    /// Operations on spill files, and their bytes.
    pub disk: DiskCounts,
}

impl SortPlan {
    /// Forecasts a sort of `rows` records with `bytes` bytes in total, without a limit.
    pub fn new(memory_bytes: u64, threads: usize, bytes: u64, rows: u64) -> Self {
        let sizes = SortBudget::new(memory_bytes);
        let mut plan = SortPlan {
            bytes,
            rows,
            memory_bytes: sizes.memory_bytes,
            threads,
            partitions: 0,
            runs_per_partition: 0,
            passes: 0,
            write_bytes: sizes.write_bytes as u64,
            disk: DiskCounts::default(),
        };
        // A length in front of each record: two bytes from 128 on.
        let stored = bytes + rows * if bytes / rows.max(1) < 128 { 1 } else { 2 };
        if stored + rows * (ENTRY_BYTES + 2) <= sizes.held_bytes_max {
            return plan;
        }
        plan.partitions = sizes.partition_count(threads, Some(bytes)) as u64;
        let blocks = stored.div_ceil(sizes.block_bytes as u64);
        let frames = (blocks * plan.partitions).max(stored / sizes.frame_bytes() as u64).min(rows);
        let stored = stored + frames * FRAME_HEADER_BYTES_MEAN;
        // At the end each buffer holds half a write that is never written.
        let tails = (plan.partitions * plan.write_bytes / 2).min(stored);
        let each = stored.div_ceil(plan.partitions);
        let need = each + rows.div_ceil(plan.partitions) * SORT_BYTES_PER_ROW;
        let needs = vec![need; usize::try_from(plan.partitions).unwrap_or(1)];
        let share = sizes.best_thread_budget(threads, tails, &needs);
        // Half the time a frame more than the minimum.
        let mean = plan.write_bytes + sizes.frame_bytes() as u64 / 2;
        let mut written = stored - tails;
        let mut writes = written.div_ceil(mean);
        plan.passes = 1;
        if need > share.partition_bytes {
            let buffer = sizes.buffer_bytes() as u64;
            plan.runs_per_partition =
                need.div_ceil(share.partition_bytes.saturating_sub(buffer).max(1));
            let fan_in = (share.partition_bytes / buffer).saturating_sub(1).max(2);
            let mut runs = plan.runs_per_partition;
            plan.passes = 2;
            written += stored;
            writes += stored.div_ceil(plan.write_bytes) + plan.partitions * runs / 2;
            while runs > fan_in {
                runs = runs.div_ceil(fan_in);
                plan.passes += 1;
                written += stored;
                writes += stored.div_ceil(plan.write_bytes);
            }
        }
        plan.disk = DiskCounts { writes, write_bytes: written, reads: writes, read_bytes: written };
        plan
    }
}

impl SortPlan {
    /// Returns the forecast for a sort with a limit on the number of output records.
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        // A few more are held than are wanted, and as many again until they are dropped.
        let rows = limit.saturating_mul(2).min(self.rows);
        let bytes = u128::from(self.bytes) * u128::from(rows) / u128::from(self.rows.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let held = SortPlan::new(self.memory_bytes, self.threads, bytes, rows);
        if held.partitions == 0 {
            return SortPlan { bytes: self.bytes, rows: self.rows, ..held };
        }
        self
    }
}

impl fmt::Display for SortPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rows, about       {:>16}", self.rows)?;
        writeln!(f, "bytes             {:>16}", self.bytes)?;
        writeln!(f, "memory            {:>16}", self.memory_bytes)?;
        writeln!(f, "threads           {:>16}", self.threads)?;
        if self.partitions == 0 {
            return write!(f, "fits memory: no file will be touched");
        }
        writeln!(f, "partitions        {:>16}", self.partitions)?;
        writeln!(f, "runs a partition  {:>16}", self.runs_per_partition)?;
        writeln!(f, "passes            {:>16}", self.passes)?;
        writeln!(f, "bytes a write, at least {:>10}", self.write_bytes)?;
        write!(f, "disk operations   {:>16}", self.disk.operations())
    }
}

/// A forecast beside the actual statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortExplanation {
    /// The forecast.
    pub plan: SortPlan,
    /// The actual statistics.
    pub report: SortReport,
}

impl fmt::Display for SortExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SortExplanation { plan, report } = self;
        writeln!(f, "{:<24} {:>16} {:>16}", "", "predicted", "actual")?;
        let mut row =
            |name: &str, plan: u64, report: u64| writeln!(f, "{name:<24} {plan:>16} {report:>16}");
        row("rows", plan.rows, report.input.rows)?;
        row("bytes", plan.bytes, report.input.bytes)?;
        if report.behind_limit.rows > 0 {
            writeln!(f, "{:<24} {:>33}", "dropped by the limit", report.behind_limit.rows)?;
        }
        let mut row =
            |name: &str, plan: u64, report: u64| writeln!(f, "{name:<24} {plan:>16} {report:>16}");
        row("partitions", plan.partitions, report.partitions)?;
        row("runs", plan.runs_per_partition * plan.partitions, report.runs)?;
        row("writes", plan.disk.writes, report.disk.writes)?;
        row("bytes written", plan.disk.write_bytes, report.disk.write_bytes)?;
        row("reads", plan.disk.reads, report.disk.reads)?;
        row("bytes read", plan.disk.read_bytes, report.disk.read_bytes)?;
        let mean = |disk: &DiskCounts| disk.bytes() / disk.operations().max(1);
        row("bytes an operation", mean(&plan.disk), mean(&report.disk))?;
        write!(
            f,
            "partitions of one key {}, merged from runs {}",
            report.partitions_tied, report.partitions_merged
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{SortExplanation, SortPlan};
    use crate::record_blocks::RecordShape;
    use crate::record_order::ByteOrder;
    use crate::sorter::Sorter;
    use crate::tests::Random;

    #[test]
    fn forecast_is_near_the_actual_counts() {
        for (memory, count, least) in
            [(4 << 20, 20_000u64, 0), (4 << 20, 150_000, 1), (1 << 20, 400_000, 2)]
        {
            let folder = tempfile::tempdir().unwrap();
            let options = crate::Options {
                memory_bytes: memory,
                threads: 2,
                expected_bytes: Some(count * 100),
                spill_dirs: vec![folder.path().to_path_buf()],
                ..crate::Options::default()
            };
            let plan = SortPlan::new(memory, 2, count * 100, count);
            let sorter = Sorter::new(ByteOrder, RecordShape::Variable, options).unwrap();
            let mut random = Random(count);
            let mut task = sorter.start_task(0);
            for _ in 0..count {
                let mut record = [0u8; 100];
                record[..8].copy_from_slice(&random.next().to_be_bytes());
                task.push(&record).unwrap();
            }
            task.commit().unwrap();
            let report = sorter.finish().unwrap().for_each(|_| Ok(())).unwrap();
            assert_eq!(plan.passes, least, "{plan}");
            let near = |a: u64, b: u64| a.abs_diff(b) <= b / 5;
            let explained = SortExplanation { plan, report };
            let (plan, report) = (&explained.plan, &explained.report);
            assert!(near(plan.disk.bytes(), report.disk.bytes()), "{explained}");
            assert!(near(plan.disk.operations(), report.disk.operations()), "{explained}");
            assert_eq!(plan.partitions, report.partitions);
            assert_eq!(explained.to_string().lines().count(), 11);
        }
    }
}
