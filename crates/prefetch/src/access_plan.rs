//! Access plans: ranges of any number of objects that will be read in a known order.
//!
//! ```text
//!   taken   being read      claimed, up to `window_bytes`          not yet
//!  [ task ][ task ][ task ][ task ][ task ][ task ]············[ task ][ task ]
//! ```
//!
//! Workers take tasks in order, each of some ranges. While they read, the plan claims the ranges of the next
//! tasks. A worker that takes a task first claims its ranges itself and then calls
//! [`AccessPlan::record_taken_task`]: the plan releases its claims on them and claims as many bytes further
//! on.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::prefetch_pool::{BlockClaims, OpenedObject};

/// Minimum bytes of a range that are claimed whatever the window: more than what most tasks read.
const RANGE_CLAIM_BYTES_MIN: u64 = 64 << 20;

/// Ranges of one object that a task reads.
#[derive(Debug, Clone)]
pub struct ObjectRanges {
    /// The object.
    pub object: Arc<OpenedObject>,
    /// The ranges, in order of need.
    pub ranges: Vec<Range<u64>>,
    /// True if they may be fetched by aligned blocks, which other tasks then share: for ranges that
    /// follow one another.
    pub is_block_aligned: bool,
}

impl ObjectRanges {
    fn total_bytes(&self) -> u64 {
        self.ranges.iter().map(range_length).sum()
    }
}

fn range_length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Returns the bytes of a task.
fn task_bytes(legs: &[ObjectRanges]) -> u64 {
    legs.iter().map(ObjectRanges::total_bytes).sum()
}

/// Tasks in the order in which workers take them, with the ranges that each reads.
#[derive(Debug)]
pub struct AccessPlan {
    window_bytes: u64,
    state: Mutex<AccessPlanState>,
}

#[derive(Debug, Default)]
struct AccessPlanState {
    tasks: Vec<Vec<ObjectRanges>>,
    /// Bytes of tasks that have not been claimed.
    unclaimed_bytes: u64,
    claims: HashMap<usize, Vec<BlockClaims>>,
    claimed_bytes: u64,
    /// Index of the first task that has not been claimed.
    next_task: usize,
}

impl AccessPlan {
    /// Creates a plan that claims up to `window_bytes` before tasks are taken.
    pub fn new(tasks: Vec<Vec<ObjectRanges>>, window_bytes: u64) -> AccessPlan {
        let left_bytes = tasks.iter().map(|task| task_bytes(task)).sum();
        let state = Mutex::new(AccessPlanState {
            tasks,
            unclaimed_bytes: left_bytes,
            ..AccessPlanState::default()
        });
        let course = AccessPlan { window_bytes, state };
        course.claim_ahead(None);
        course
    }

    /// Records that a worker has taken a task and claimed its ranges.
    pub fn record_taken_task(&self, task: usize) {
        self.claim_ahead(Some(task));
    }

    fn claim_ahead(&self, taken: Option<usize>) {
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock();
            if let Some(task) = taken {
                gone = state.claims.remove(&task).unwrap_or_default();
                state.claimed_bytes -= gone.iter().map(BlockClaims::total_bytes).sum::<u64>();
                while state.next_task <= task {
                    let passed = state.next_task;
                    state.unclaimed_bytes -=
                        state.tasks.get(passed).map_or(0, |legs| task_bytes(legs));
                    state.next_task += 1;
                }
            }
            while state.claimed_bytes < self.window_bytes && state.next_task < state.tasks.len() {
                let task = state.next_task;
                state.next_task += 1;
                let mut claims = Vec::new();
                for leg in std::mem::take(&mut state.tasks[task]) {
                    let mut left = state.unclaimed_bytes;
                    state.unclaimed_bytes -= leg.total_bytes();
                    let ObjectRanges { object, ranges, is_block_aligned: in_blocks } = leg;
                    // The reader of a longer range claims the rest when it gets there.
                    let most = self.window_bytes.max(RANGE_CLAIM_BYTES_MIN);
                    let begun = |range: &Range<u64>| {
                        range.start..range.start + range_length(range).min(most)
                    };
                    if !in_blocks {
                        let ranges: Vec<_> = ranges.iter().map(begun).collect();
                        claims.push(object.prefetch_ranges(&ranges));
                        continue;
                    }
                    for range in ranges {
                        claims.push(object.prefetch_blocks(begun(&range), left));
                        left -= range_length(&range);
                    }
                }
                state.claimed_bytes += claims.iter().map(BlockClaims::total_bytes).sum::<u64>();
                state.claims.insert(task, claims);
            }
        }
        // Released after the lock.
        drop(gone);
    }
}
