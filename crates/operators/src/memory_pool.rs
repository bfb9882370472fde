//! The memory pool that DataFusion's operators share.
//!
//! An operator asks the pool before it keeps something. With DataFusion's own pools, earlier requests starve
//! later ones: sorts fill the pool, and the merge of their spilled runs, which needs
//! little, gets nothing. This pool gives each operator the memory to make progress:
//!
//! - An operator that can spill, a sort or a table of groups, has an equal share. Requests beyond a fraction
//!   of it are refused, upon which the operator spills. One batch is always granted: it is in memory already.
//! - Fan-out sorts learn their share when they start, spill within it, and reserve the part that they have filled.
//! - The merge of a DataFusion sort is guaranteed as much again, or a quarter of the pool if that is more;
//!   if refused, it merges fewer runs at a time.
//! - The merge of a sort's partitions holds a few batches of each. Their text lies in the buffers of all
//!   runs that they were merged from, and each batch counts all of these buffers. Such a merge may use the whole
//!   pool, whatever other operators hold.
//! - The output of an expression is in memory already, and is emitted soon: a quarter of the pool is granted
//!   whatever other operators hold.
//! - An operator that holds the rows of one window partition, or the peers of one row, has half of the pool: the sort
//!   below it has the rest.
//! - An operator that holds an unbounded number of rows (one side of a join, the values of a median) is guaranteed
//!   a quarter, and may use free memory. If that is not enough, the run ends. The message names the operator, the
//!   memory it holds, and a sufficient `--memory`, extrapolated from the part of the input that has been read.
//! - Small requests are always granted: starving the merge of a few batches
//!   would not save memory.
//!
//! The total may thus exceed the pool by a share or two; the pool is half of a run's budget.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;
use tidemill_base::coverage::format_grouped_digits;
use tidemill_base::error::Error;
use tidemill_base::memory_budget::format_binary_bytes;
use tidemill_base::progress::RunProgress;

use crate::windows::{hash_partitioned, running_totals, whole_partitions};
use crate::{expression_memory, fan_out_sorts};
use tidemill_planning::datafusion_names::consumers;
use tidemill_planning::error_carrier::OUT_OF_MEMORY_PREFIX;

/// Minimum size of expression output that the pool always grants, in bytes.
const EXPRESSION_OUTPUT_BYTES_MIN: usize = 1 << 20;

/// The reaction of an operator to a refused request, derived from the consumer name that it registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryConsumerKind {
    /// Sorts the held rows and spills them.
    Sort,
    /// Spills by itself before it exceeds its share.
    FanOutSort,
    /// Merges the spilled runs of a sort, fewer at a time.
    SpilledRunMerge,
    /// Merges sorted partitions, and cannot reduce its memory.
    PartitionMerge,
    /// Spills its groups.
    GroupTable,
    /// Spills batches that wait for the receiver of a channel.
    ChannelBuffer,
    /// Emits its rows.
    ExpressionOutput,
    /// Fails; its rows come from the sort below it.
    WindowPartition,
    /// Fails.
    Unspillable,
}

impl MemoryConsumerKind {
    /// Returns whether operators of this kind share memory equally.
    fn has_equal_share(self) -> bool {
        matches!(
            self,
            MemoryConsumerKind::Sort
                | MemoryConsumerKind::FanOutSort
                | MemoryConsumerKind::GroupTable
        )
    }

    /// Returns the kind of a memory consumer, by its registered name.
    pub fn from_consumer(consumer: &MemoryConsumer) -> Self {
        let name = consumer.name();
        match consumer.can_spill() {
            _ if name.starts_with(consumers::EXTERNAL_SORTER_MERGE) => {
                MemoryConsumerKind::SpilledRunMerge
            }
            _ if name.starts_with(consumers::SORT_PRESERVING_MERGE) => {
                MemoryConsumerKind::PartitionMerge
            }
            true if name.starts_with(consumers::EXTERNAL_SORTER) => MemoryConsumerKind::Sort,
            true if name.starts_with(fan_out_sorts::FAN_OUT_SORT_CONSUMER) => {
                MemoryConsumerKind::FanOutSort
            }
            true if name.contains(consumers::REPARTITION) => MemoryConsumerKind::ChannelBuffer,
            true => MemoryConsumerKind::GroupTable,
            false if name.starts_with(expression_memory::EXPRESSION_OUTPUT_CONSUMER) => {
                MemoryConsumerKind::ExpressionOutput
            }
            false
                if name.starts_with(running_totals::RUNNING_TOTALS_CONSUMER)
                    || name.starts_with(whole_partitions::WHOLE_PARTITIONS_CONSUMER) =>
            {
                MemoryConsumerKind::WindowPartition
            }
            false => MemoryConsumerKind::Unspillable,
        }
    }
}

#[derive(Debug)]
struct PoolConsumer {
    kind: MemoryConsumerKind,
    /// Total of all its reservations.
    bytes: usize,
}

#[derive(Debug, Default)]
struct MemoryPoolState {
    consumers: HashMap<usize, PoolConsumer>,
    /// Number of consumers with an equal share.
    sharing_count: usize,
    bytes: usize,
    /// The part of `bytes` that cannot be spilled.
    unspillable_bytes: usize,
}

impl MemoryPoolState {
    fn grow(&mut self, consumer: usize, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.bytes = consumer.bytes.saturating_add(bytes);
            if consumer.kind == MemoryConsumerKind::Unspillable {
                self.unspillable_bytes = self.unspillable_bytes.saturating_add(bytes);
            }
        }
    }

    fn shrink(&mut self, consumer: usize, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.bytes = consumer.bytes.saturating_sub(bytes);
            if consumer.kind == MemoryConsumerKind::Unspillable {
                self.unspillable_bytes = self.unspillable_bytes.saturating_sub(bytes);
            }
        }
    }
}

/// The memory pool of one session.
#[derive(Debug)]
pub struct OperatorMemoryPool {
    bytes: usize,
    /// The memory budget of the whole run.
    run_memory_bytes: u64,
    progress: RunProgress,
    state: Mutex<MemoryPoolState>,
}

impl OperatorMemoryPool {
    /// Creates a pool of `bytes` for a run with a budget of `memory_bytes`.
    pub fn new(bytes: usize, memory_bytes: u64, progress: &RunProgress) -> Self {
        let (progress, state) = (progress.clone(), Mutex::default());
        OperatorMemoryPool { bytes, run_memory_bytes: memory_bytes, progress, state }
    }

    /// Returns the memory set aside for merges of a few batches and other small requests.
    fn headroom_bytes(&self) -> usize {
        self.bytes / 8
    }

    /// Returns the equal share of each operator that can spill.
    fn share_bytes_for(&self, state: &MemoryPoolState) -> usize {
        (self.bytes - self.headroom_bytes()) / state.sharing_count.max(1)
    }

    /// Returns the equal share of an operator that can spill, given the operators that have registered so far.
    pub(crate) fn spillable_share_bytes(&self) -> usize {
        self.share_bytes_for(&self.state.lock())
    }

    /// Returns whether a consumer may grow by `additional` bytes; it holds `parts` bytes in
    /// other reservations than the one that asks.
    fn can_grow(
        &self,
        state: &MemoryPoolState,
        consumer: &PoolConsumer,
        parts: usize,
        additional: usize,
    ) -> bool {
        let total = state.bytes.saturating_add(additional);
        let wanted = consumer.bytes.saturating_add(additional);
        let share = self.share_bytes_for(state);
        match consumer.kind {
            // It keeps to the share that it was given.
            MemoryConsumerKind::FanOutSort => true,
            MemoryConsumerKind::Sort if consumer.bytes == 0 => wanted <= self.bytes,
            // It is sorting the held rows in separate reservations and cannot spill now.
            MemoryConsumerKind::Sort if parts > 0 => wanted <= share + self.headroom_bytes(),
            MemoryConsumerKind::Sort => wanted <= share / 8 * 5,
            // An in-memory merge of batches cannot spill either. Its sort has at most
            // five eighths by then, and nothing if it merges spilled runs.
            MemoryConsumerKind::SpilledRunMerge => wanted <= share.max(self.bytes / 4),
            MemoryConsumerKind::PartitionMerge => wanted <= self.bytes,
            // Groups are sorted before they are spilled; the sort asks for its memory at once, after the groups
            // are released.
            MemoryConsumerKind::GroupTable if consumer.bytes <= share / 8 => {
                wanted <= 2 * share || total <= self.bytes
            }
            // The merge of spilled groups takes the memory it is given, and holds few groups
            // at a time. They come last, and cannot be spilled again.
            MemoryConsumerKind::GroupTable if parts > 0 => {
                wanted <= 2 * share || total <= self.bytes
            }
            MemoryConsumerKind::GroupTable => wanted <= share / 4 * 3,
            // Batches in a channel are received soon: spilling them is the last resort.
            MemoryConsumerKind::ChannelBuffer => wanted <= self.bytes / 4,
            MemoryConsumerKind::ExpressionOutput => {
                wanted <= (self.bytes / 4).max(EXPRESSION_OUTPUT_BYTES_MIN) || total <= self.bytes
            }
            MemoryConsumerKind::WindowPartition => wanted <= self.bytes / 2 || total <= self.bytes,
            MemoryConsumerKind::Unspillable => {
                let held = state.unspillable_bytes.saturating_add(additional);
                wanted <= self.bytes / 32 || held <= self.bytes / 4 || total <= self.bytes
            }
        }
    }

    /// Returns the error message. `held` is the consumer's memory, `others` that of all other consumers.
    fn refusal_message(
        &self,
        consumer: &MemoryConsumer,
        held: usize,
        others: usize,
        additional: usize,
    ) -> String {
        let wanted = held.saturating_add(additional) as u64;
        let (done, total) = (self.progress.bytes_done(), self.progress.bytes_total());
        // Emitted rows do not accumulate.
        let is_gathered =
            MemoryConsumerKind::from_consumer(consumer) != MemoryConsumerKind::ExpressionOutput;
        // A small part of the input predicts nothing, and reading runs ahead of the held rows.
        let is_known = is_gathered && done >= total / 50 && done > 0 && total > done;
        let factor = match (is_known, is_gathered) {
            (true, _) => total as f64 / done as f64,
            (false, true) => 2.0,
            (false, false) => 1.0,
        };
        let ratio = self.run_memory_bytes as f64 / self.bytes.max(1) as f64;
        let enough = round_up_memory_size(wanted as f64 * factor * ratio * 1.25)
            .max(2 * self.run_memory_bytes);
        let (step, advice) = operator_description(consumer.name());
        let reason = match is_known {
            true => format!(
                "--memory {} would do, judged by the {}% of the input that were read",
                format_memory_size(enough),
                done * 100 / total
            ),
            false => format!("--memory {} or more may do", format_memory_size(enough)),
        };
        let taken = match others {
            0 => "that a step may hold".to_owned(),
            _ => format!(
                "for all steps, of which others hold {}",
                format_binary_bytes(others as u64)
            ),
        };
        format!(
            "{OUT_OF_MEMORY_PREFIX}{step} has {} and needs {} more, of the {} {taken}\nhint: {reason}{advice}",
            format_binary_bytes(held as u64),
            format_binary_bytes(additional as u64),
            format_binary_bytes(self.bytes as u64),
        )
    }
}

/// Rounds up to the next of 64M, 96M, 128M, 192M, 256M, …
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size of memory for a message, far below 2^63"
)]
fn round_up_memory_size(bytes: f64) -> u64 {
    let bytes = bytes.clamp(1.0, 1e18) as u64;
    let power = bytes.next_power_of_two();
    if bytes <= power / 4 * 3 { power / 4 * 3 } else { power }
}

/// Returns the error for a stored id set whose ids take `bytes` bytes, more than the allowed `bytes_max`.
pub fn id_set_memory_error(bytes: u64, bytes_max: u64) -> Error {
    Error::MemoryBudgetTooSmall {
        message: format!(
            "out of memory: a stored set has {} ids, which are {} once it is unfolded, more than the {} that one may \
             have",
            format_grouped_digits(bytes / 8),
            format_binary_bytes(bytes),
            format_binary_bytes(bytes_max),
        ),
        hint: Some(format!(
            "--memory {} would do; id_set_cardinality and id_set_contains unfold nothing",
            memory_flag_value(bytes.saturating_mul(2))
        )),
    }
}

/// Returns a round value for `--memory` of at least `bytes` bytes.
pub fn memory_flag_value(bytes: u64) -> String {
    format_memory_size(round_up_memory_size(bytes as f64))
}

/// Formats a size in the syntax of `--memory`.
fn format_memory_size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ => format!("{}M", bytes.div_ceil(1 << 20)),
    }
}

/// Returns the user's term for the operator with a consumer name, and advice that reduces its memory.
pub fn operator_description(name: &str) -> (&'static str, &'static str) {
    let is = |part: &str| name.contains(part);
    if is(consumers::SORT_MERGE_JOIN) {
        ("a join of rows of which very many are equal", "; or join on more columns")
    } else if is(consumers::JOIN) {
        ("a join that holds one of its sides", "; or join fewer rows or columns")
    } else if is(consumers::TOP_K) {
        (
            "`ORDER BY … LIMIT`, which holds the rows of the limit,",
            "; or take fewer rows or columns",
        )
    } else if is(consumers::SORT_PRESERVING_MERGE) || is(consumers::EXTERNAL_SORTER) {
        ("the merge of a sort", "; or sort fewer columns")
    } else if is(consumers::AGGREGATE) {
        (
            "an aggregation that keeps its values (`median`, `array_agg`, `count(DISTINCT …)` …)",
            "; `quantile` and `unique` keep a summary instead",
        )
    } else if is(whole_partitions::WHOLE_PARTITIONS_CONSUMER)
        || is(hash_partitioned::HASH_PARTITIONED_WINDOW_CONSUMER)
    {
        (
            "a window over whole partitions, which holds one of them,",
            "; or partition by more columns",
        )
    } else if is(running_totals::RUNNING_TOTALS_CONSUMER) {
        (
            "a window over equal rows, which holds those that are equal,",
            "; or order by more columns, or give it a frame of ROWS",
        )
    } else if name.starts_with(expression_memory::EXPRESSION_OUTPUT_CONSUMER) {
        ("what expressions make of a few rows", "; or take fewer of long values at once")
    } else if is(consumers::RECURSIVE) {
        ("a recursive query", "; or let it end earlier")
    } else {
        ("a step of the query", "")
    }
}

impl fmt::Display for OperatorMemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of memory", format_binary_bytes(self.bytes as u64))
    }
}

impl MemoryPool for OperatorMemoryPool {
    fn name(&self) -> &str {
        "tidemill"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let kind = MemoryConsumerKind::from_consumer(consumer);
        let mut state = self.state.lock();
        state.sharing_count += usize::from(kind.has_equal_share());
        state.consumers.insert(consumer.id(), PoolConsumer { kind, bytes: 0 });
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        if let Some(gone) = state.consumers.remove(&consumer.id()) {
            state.sharing_count -= usize::from(gone.kind.has_equal_share());
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.state.lock().grow(reservation.consumer().id(), additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.state.lock().shrink(reservation.consumer().id(), shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> PlanResult<()> {
        let asking = reservation.consumer();
        let mut state = self.state.lock();
        let (granted, held) = match state.consumers.get(&asking.id()) {
            Some(consumer) => {
                let parts = consumer.bytes.saturating_sub(reservation.size());
                (self.can_grow(&state, consumer, parts, additional), consumer.bytes)
            }
            None => (state.bytes.saturating_add(additional) <= self.bytes, 0),
        };
        if !granted {
            let others = state.bytes.saturating_sub(held);
            drop(state);
            let refusal = self.refusal_message(asking, held, others, additional);
            return Err(DataFusionError::ResourcesExhausted(refusal));
        }
        state.grow(asking.id(), additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.state.lock().bytes
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

/// Creates a pool as a trait object for DataFusion.
pub fn new_memory_pool(
    bytes: usize,
    memory_bytes: u64,
    progress: &RunProgress,
) -> Arc<dyn MemoryPool> {
    Arc::new(OperatorMemoryPool::new(bytes, memory_bytes, progress))
}

#[cfg(test)]
mod tests {
    use tidemill_base::error::Error;

    use super::*;
    use tidemill_sql::IntoTidemillError;

    const MIB: usize = 1 << 20;

    fn consumer(pool: &Arc<dyn MemoryPool>, name: &str, can_spill: bool) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(can_spill).register(pool)
    }

    #[test]
    fn full_sorts_leave_memory_to_their_merges() {
        let pool = new_memory_pool(64 * MIB, 128 << 20, &RunProgress::new());
        let pairs: Vec<_> = (0..4)
            .map(|index| {
                let sort = consumer(&pool, &format!("ExternalSorter[{index}]"), true);
                (sort, consumer(&pool, &format!("ExternalSorterMerge[{index}]"), false))
            })
            .collect();
        for (sort, _) in &pairs {
            while sort.try_grow(MIB).is_ok() {}
            assert_eq!(sort.size(), 8 * MIB);
        }
        for (sort, merge) in &pairs {
            // For split reservations, too, the sum counts.
            let part = sort.split(4 * MIB);
            assert!(sort.try_grow(15 * MIB).is_err());
            while merge.try_grow(MIB).is_ok() {}
            assert!(merge.size() >= 5 * MIB, "{}", merge.size());
            drop(part);
        }
        let beside = consumer(&pool, "SortPreservingMergeExec[0]", false);
        beside.try_grow(2 * MIB).unwrap();
        drop(pairs);
        beside.try_grow(62 * MIB).unwrap();
        assert_eq!(pool.reserved(), 64 * MIB);
        beside.free();
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn spilled_groups_are_merged_beside_their_merge_buffers() {
        let pool = new_memory_pool(32 * MIB, 64 << 20, &RunProgress::new());
        let others = consumer(&pool, "PartialHashAggregateStream[0]", true);
        let table = consumer(&pool, "FinalHashAggregateStream[0]", true);
        others.try_grow(10 * MIB).unwrap();
        others.try_grow(MIB).unwrap_err();
        // Two reservations of one aggregation.
        let merge = table.new_empty();
        while merge.try_grow(MIB).is_ok() {}
        table.try_grow(10 * MIB).unwrap();
        merge.free();
        table.try_grow(MIB).unwrap_err();
    }

    #[test]
    fn partition_merge_may_use_whole_pool() {
        let pool = new_memory_pool(32 * MIB, 64 << 20, &RunProgress::new());
        let merges: Vec<_> = (0..2)
            .map(|index| consumer(&pool, &format!("ExternalSorterMerge[{index}]"), false))
            .collect();
        for merge in &merges {
            merge.try_grow(8 * MIB).unwrap();
        }
        let beside = consumer(&pool, "SortPreservingMergeExec[0]", false);
        beside.try_grow(32 * MIB).unwrap();
        beside.try_grow(1).unwrap_err();
    }

    #[test]
    fn out_of_memory_error_names_operator_and_sufficient_memory() {
        let progress = RunProgress::new();
        progress.set_bytes_total(1000);
        for (name, done, expected) in [
            (
                "HashJoinInput",
                0,
                "out of memory: a join that holds one of its sides has 30 MiB and needs 4 MiB \
                 more, of the 32 MiB that a step may hold\nhint: --memory 192M or more may do; \
                 or join fewer rows or columns",
            ),
            (
                "TopK[0]",
                250,
                "out of memory: `ORDER BY … LIMIT`, which holds the rows of the limit, has 30 MiB \
                 and needs 4 MiB more, of the 32 MiB that a step may hold\nhint: --memory 384M \
                 would do, judged by the 25% of the input that were read; or take fewer rows or \
                 columns",
            ),
        ] {
            progress.add_bytes(done);
            let pool = new_memory_pool(32 * MIB, 64 << 20, &progress);
            let holds = consumer(&pool, name, false);
            holds.try_grow(30 * MIB).unwrap();
            let error: Error =
                holds.try_grow(4 * MIB).unwrap_err().context("wrapped").into_tidemill_error();
            assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn suggested_memory_sizes_are_round() {
        for (bytes, expected) in [(1u64 << 26, "64M"), (65 << 20, "96M"), (900 << 20, "1G")] {
            assert_eq!(format_memory_size(round_up_memory_size(bytes as f64)), expected);
        }
    }
}
