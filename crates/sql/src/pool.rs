//! How DataFusion's operators share the memory that is theirs.
//!
//! DataFusion asks a pool before it keeps something. Its own pools let what was asked first starve
//! what is asked later: sorts fill the pool, and the merge of what they spilled, which can do
//! without little, finds nothing. This one gives each operator what it needs to go on:
//!
//! - What can spill, a sort or a table of groups, has an equal share, and is refused beyond a part
//!   of it, upon which it spills. One batch is granted to it always: it is in memory by then.
//! - Our own sorts know their share when they begin, spill within it, and ask for what they have filled.
//! - The merge of a sort of DataFusion's has as much again for certain, or a quarter of the pool where that is more;
//!   refused, it merges fewer runs at a time.
//! - What merges the partitions of a sort holds a few batches of each. Their text lies in the buffers of all
//!   runs that they were merged of, and each batch counts all of these: such a merge may have the pool,
//!   whatever others hold.
//! - What an expression returned is in memory by then, and handed on soon: a quarter of the pool is granted
//!   whatever others hold.
//! - What holds the rows of one partition, or of one row's equals, has a half: the sort below it
//!   has the rest.
//! - What holds its rows whatever their number (one side of a join, the values of a median) has a
//!   quarter for certain, and what is left. Where that is not enough, the run ends, and the message says
//!   which step it was, what it holds, and what `--memory` would do, judged by how much of the input
//!   had been read.
//! - A little is granted to everybody: what keeps the merge of a few batches from its work is no
//!   way to save memory.
//!
//! The sum may so be exceeded by a share or two; the pool is half of a run's budget.

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

use crate::datafusion_names::consumers;
use crate::messages::OUT_OF_MEMORY;
use crate::windows::{in_parts, running_totals, whole_partitions};
use crate::{fan_out_sorts, portions};

/// What expressions may return whatever there is.
const ROWS_BYTES_MIN: usize = 1 << 20;

/// What an operator of DataFusion's does when it is refused memory, by the name it registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorKind {
    /// Sorts what it holds and writes it out.
    Sort,
    /// Spills by itself before it has more than its share.
    FanOut,
    /// Merges what a sort wrote, fewer runs at a time.
    Merge,
    /// Merges sorted partitions, and cannot do with less.
    Partitions,
    /// Writes its groups out.
    Groups,
    /// Writes batches out that wait for the other side of a channel.
    Channel,
    /// Hands its rows on.
    Rows,
    /// Fails, and holds rows that the sort below it had.
    Partition,
    /// Fails.
    Holds,
}

impl OperatorKind {
    /// Whether it has an equal share with its likes.
    fn shares(self) -> bool {
        matches!(self, OperatorKind::Sort | OperatorKind::FanOut | OperatorKind::Groups)
    }

    pub(crate) fn of(consumer: &MemoryConsumer) -> Self {
        let name = consumer.name();
        match consumer.can_spill() {
            _ if name.starts_with(consumers::EXTERNAL_SORTER_MERGE) => OperatorKind::Merge,
            _ if name.starts_with(consumers::SORT_PRESERVING_MERGE) => OperatorKind::Partitions,
            true if name.starts_with(consumers::EXTERNAL_SORTER) => OperatorKind::Sort,
            true if name.starts_with(fan_out_sorts::CONSUMER) => OperatorKind::FanOut,
            true if name.contains(consumers::REPARTITION) => OperatorKind::Channel,
            true => OperatorKind::Groups,
            false if name.starts_with(portions::CONSUMER) => OperatorKind::Rows,
            false
                if name.starts_with(running_totals::CONSUMER)
                    || name.starts_with(whole_partitions::CONSUMER) =>
            {
                OperatorKind::Partition
            }
            false => OperatorKind::Holds,
        }
    }
}

#[derive(Debug)]
struct Consumer {
    kind: OperatorKind,
    /// Of all its reservations.
    bytes: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    consumers: HashMap<usize, Consumer>,
    /// How many of them have a share.
    sharing: usize,
    bytes: usize,
    /// Of these, what cannot be spilled.
    held: usize,
}

impl PoolState {
    fn grow(&mut self, consumer: usize, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.bytes = consumer.bytes.saturating_add(bytes);
            if consumer.kind == OperatorKind::Holds {
                self.held = self.held.saturating_add(bytes);
            }
        }
    }

    fn shrink(&mut self, consumer: usize, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.bytes = consumer.bytes.saturating_sub(bytes);
            if consumer.kind == OperatorKind::Holds {
                self.held = self.held.saturating_sub(bytes);
            }
        }
    }
}

/// The pool of one session.
#[derive(Debug)]
pub struct Pool {
    bytes: usize,
    /// What the user gave the whole run.
    memory_bytes: u64,
    progress: RunProgress,
    state: Mutex<PoolState>,
}

impl Pool {
    /// A pool of `bytes`, of a run that has `memory_bytes`.
    pub fn new(bytes: usize, memory_bytes: u64, progress: &RunProgress) -> Self {
        let (progress, state) = (progress.clone(), Mutex::default());
        Pool { bytes, memory_bytes, progress, state }
    }

    /// What is for merges of a few batches and the like.
    fn headroom(&self) -> usize {
        self.bytes / 8
    }

    /// What each of those has that can spill.
    fn share_of(&self, state: &PoolState) -> usize {
        (self.bytes - self.headroom()) / state.sharing.max(1)
    }

    /// What a step of those that can spill may have, as far as they are known by now.
    pub(crate) fn share(&self) -> usize {
        self.share_of(&self.state.lock())
    }

    /// Whether `additional` bytes are granted to a consumer, which holds `parts` bytes by
    /// other reservations than the one that asks.
    fn may_grow(
        &self,
        state: &PoolState,
        consumer: &Consumer,
        parts: usize,
        additional: usize,
    ) -> bool {
        let total = state.bytes.saturating_add(additional);
        let wanted = consumer.bytes.saturating_add(additional);
        let share = self.share_of(state);
        match consumer.kind {
            // It keeps to the share that it was told.
            OperatorKind::FanOut => true,
            OperatorKind::Sort if consumer.bytes == 0 => wanted <= self.bytes,
            // It sorts what it held, which it took apart for that, and cannot turn back.
            OperatorKind::Sort if parts > 0 => wanted <= share + self.headroom(),
            OperatorKind::Sort => wanted <= share / 8 * 5,
            // What merges batches in memory cannot turn back either; by then a sort has at most its
            // five eighths, and nothing any more where it merges what it wrote.
            OperatorKind::Merge => wanted <= share.max(self.bytes / 4),
            OperatorKind::Partitions => wanted <= self.bytes,
            // What is written out is sorted first, which is asked for in one piece once the groups
            // are given up.
            OperatorKind::Groups if consumer.bytes <= share / 8 => {
                wanted <= 2 * share || total <= self.bytes
            }
            // What was written out is merged, which takes what it is given, and the groups of that
            // are few at a time: they come last, and cannot be written out again.
            OperatorKind::Groups if parts > 0 => wanted <= 2 * share || total <= self.bytes,
            OperatorKind::Groups => wanted <= share / 4 * 3,
            // What waits in a channel is soon taken: to write it out is the last resort.
            OperatorKind::Channel => wanted <= self.bytes / 4,
            OperatorKind::Rows => {
                wanted <= (self.bytes / 4).max(ROWS_BYTES_MIN) || total <= self.bytes
            }
            OperatorKind::Partition => wanted <= self.bytes / 2 || total <= self.bytes,
            OperatorKind::Holds => {
                let held = state.held.saturating_add(additional);
                wanted <= self.bytes / 32 || held <= self.bytes / 4 || total <= self.bytes
            }
        }
    }

    /// `held` is what the consumer has, `others` what all others have.
    fn refusal(
        &self,
        consumer: &MemoryConsumer,
        held: usize,
        others: usize,
        additional: usize,
    ) -> String {
        let wanted = held.saturating_add(additional) as u64;
        let (done, total) = (self.progress.bytes_done(), self.progress.bytes_total());
        // What is handed on is not gathered.
        let is_gathered = OperatorKind::of(consumer) != OperatorKind::Rows;
        // A little of the input says nothing of the rest, and what is read is ahead of what is held.
        let is_known = is_gathered && done >= total / 50 && done > 0 && total > done;
        let factor = match (is_known, is_gathered) {
            (true, _) => total as f64 / done as f64,
            (false, true) => 2.0,
            (false, false) => 1.0,
        };
        let ratio = self.memory_bytes as f64 / self.bytes.max(1) as f64;
        let enough = rounded_up(wanted as f64 * factor * ratio * 1.25).max(2 * self.memory_bytes);
        let (step, advice) = words(consumer.name());
        let reason = match is_known {
            true => format!(
                "--memory {} would do, judged by the {}% of the input that were read",
                short(enough),
                done * 100 / total
            ),
            false => format!("--memory {} or more may do", short(enough)),
        };
        let taken = match others {
            0 => "that a step may hold".to_owned(),
            _ => format!(
                "for all steps, of which others hold {}",
                format_binary_bytes(others as u64)
            ),
        };
        format!(
            "{OUT_OF_MEMORY}{step} has {} and needs {} more, of the {} {taken}\nhint: {reason}{advice}",
            format_binary_bytes(held as u64),
            format_binary_bytes(additional as u64),
            format_binary_bytes(self.bytes as u64),
        )
    }
}

/// The next of 64M, 96M, 128M, 192M, 256M, …
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size of memory for a message, far below 2^63"
)]
fn rounded_up(bytes: f64) -> u64 {
    let bytes = bytes.clamp(1.0, 1e18) as u64;
    let power = bytes.next_power_of_two();
    if bytes <= power / 4 * 3 { power / 4 * 3 } else { power }
}

/// What is said of a stored set of ids of which its numbers take more than one may have, in bytes.
pub fn too_large_a_set(bytes: u64, bytes_max: u64) -> Error {
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
            size_above(bytes.saturating_mul(2))
        )),
    }
}

/// What one would type for `--memory` to have at least so many bytes.
pub fn size_above(bytes: u64) -> String {
    short(rounded_up(bytes as f64))
}

/// As `--memory` takes it.
fn short(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ => format!("{}M", bytes.div_ceil(1 << 20)),
    }
}

/// What a user calls the operator of that name, and what else helps.
pub(crate) fn words(name: &str) -> (&'static str, &'static str) {
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
    } else if is(whole_partitions::CONSUMER) || is(in_parts::CONSUMER) {
        (
            "a window over whole partitions, which holds one of them,",
            "; or partition by more columns",
        )
    } else if is(running_totals::CONSUMER) {
        (
            "a window over equal rows, which holds those that are equal,",
            "; or order by more columns, or give it a frame of ROWS",
        )
    } else if name.starts_with(portions::CONSUMER) {
        ("what expressions make of a few rows", "; or take fewer of long values at once")
    } else if is(consumers::RECURSIVE) {
        ("a recursive query", "; or let it end earlier")
    } else {
        ("a step of the query", "")
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of memory", format_binary_bytes(self.bytes as u64))
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "tidemill"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let kind = OperatorKind::of(consumer);
        let mut state = self.state.lock();
        state.sharing += usize::from(kind.shares());
        state.consumers.insert(consumer.id(), Consumer { kind, bytes: 0 });
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        if let Some(gone) = state.consumers.remove(&consumer.id()) {
            state.sharing -= usize::from(gone.kind.shares());
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
                (self.may_grow(&state, consumer, parts, additional), consumer.bytes)
            }
            None => (state.bytes.saturating_add(additional) <= self.bytes, 0),
        };
        if !granted {
            let others = state.bytes.saturating_sub(held);
            drop(state);
            let refusal = self.refusal(asking, held, others, additional);
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

/// A pool as DataFusion holds it.
pub fn shared(bytes: usize, memory_bytes: u64, progress: &RunProgress) -> Arc<dyn MemoryPool> {
    Arc::new(Pool::new(bytes, memory_bytes, progress))
}

#[cfg(test)]
mod tests {
    use tidemill_base::error::Error;

    use super::*;
    use crate::Told;

    const MIB: usize = 1 << 20;

    fn consumer(pool: &Arc<dyn MemoryPool>, name: &str, can_spill: bool) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(can_spill).register(pool)
    }

    #[test]
    fn sorts_that_are_full_leave_their_merges_what_they_need() {
        let pool = shared(64 * MIB, 128 << 20, &RunProgress::new());
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
            // Of what was taken apart, too, it is the sum that counts.
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
    fn groups_that_were_written_out_are_merged_beside_what_merges_them() {
        let pool = shared(32 * MIB, 64 << 20, &RunProgress::new());
        let others = consumer(&pool, "PartialHashAggregateStream[0]", true);
        let table = consumer(&pool, "FinalHashAggregateStream[0]", true);
        others.try_grow(10 * MIB).unwrap();
        others.try_grow(MIB).unwrap_err();
        // Of one aggregation, both of them.
        let merge = table.new_empty();
        while merge.try_grow(MIB).is_ok() {}
        table.try_grow(10 * MIB).unwrap();
        merge.free();
        table.try_grow(MIB).unwrap_err();
    }

    #[test]
    fn what_merges_sorted_partitions_has_the_pool_whatever_others_hold() {
        let pool = shared(32 * MIB, 64 << 20, &RunProgress::new());
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
    fn what_cannot_spill_is_named_with_what_would_do() {
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
            let pool = shared(32 * MIB, 64 << 20, &progress);
            let holds = consumer(&pool, name, false);
            holds.try_grow(30 * MIB).unwrap();
            let error: Error = holds.try_grow(4 * MIB).unwrap_err().context("wrapped").told();
            assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn sizes_are_rounded_up_to_what_one_would_type() {
        for (bytes, expected) in [(1u64 << 26, "64M"), (65 << 20, "96M"), (900 << 20, "1G")] {
            assert_eq!(short(rounded_up(bytes as f64)), expected);
        }
    }
}
