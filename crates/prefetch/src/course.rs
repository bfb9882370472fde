//! What will be read in a known order, of any number of objects.
//!
//! ```text
//!   taken   being read      claimed, up to `window_bytes`          not yet
//!  [ task ][ task ][ task ][ task ][ task ][ task ]············[ task ][ task ]
//! ```
//!
//! Workers take tasks in order, each of some ranges. While they read, the ranges of the tasks to
//! come are claimed. Who takes a task claims its ranges for himself first, and then says so
//! ([`Course::taken`]): the course's claims on them go, and it claims as much behind.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pool::{Claims, Opened};

/// So much of a range is claimed whatever the window: more than what one task mostly reads.
const CLAIMED_MIN: u64 = 64 << 20;

/// Ranges of an object that a task reads.
#[derive(Debug, Clone)]
pub struct Leg {
    /// The object.
    pub object: Arc<Opened>,
    /// The ranges, in order of need.
    pub ranges: Vec<Range<u64>>,
    /// Whether they may be fetched by aligned blocks, which other tasks then share: for ranges that
    /// follow one another.
    pub in_blocks: bool,
}

impl Leg {
    fn bytes(&self) -> u64 {
        self.ranges.iter().map(length).sum()
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Of a task.
fn bytes(legs: &[Leg]) -> u64 {
    legs.iter().map(Leg::bytes).sum()
}

/// Tasks in the order in which they are taken, and what each reads.
#[derive(Debug)]
pub struct Course {
    window_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tasks: Vec<Vec<Leg>>,
    /// How many bytes the tasks have that have not been claimed.
    left_bytes: u64,
    claims: HashMap<usize, Vec<Claims>>,
    claimed_bytes: u64,
    /// The first task that has not been claimed.
    next: usize,
}

impl Course {
    /// Tasks, of which so many bytes are claimed before they are taken.
    pub fn new(tasks: Vec<Vec<Leg>>, window_bytes: u64) -> Course {
        let left_bytes = tasks.iter().map(|task| bytes(task)).sum();
        let state = Mutex::new(State { tasks, left_bytes, ..State::default() });
        let course = Course { window_bytes, state };
        course.go_on(None);
        course
    }

    /// Says that a task has been taken, and its ranges claimed by whoever reads it.
    pub fn taken(&self, task: usize) {
        self.go_on(Some(task));
    }

    fn go_on(&self, taken: Option<usize>) {
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock();
            if let Some(task) = taken {
                gone = state.claims.remove(&task).unwrap_or_default();
                state.claimed_bytes -= gone.iter().map(Claims::bytes).sum::<u64>();
                while state.next <= task {
                    let passed = state.next;
                    state.left_bytes -= state.tasks.get(passed).map_or(0, |legs| bytes(legs));
                    state.next += 1;
                }
            }
            while state.claimed_bytes < self.window_bytes && state.next < state.tasks.len() {
                let task = state.next;
                state.next += 1;
                let mut claims = Vec::new();
                for leg in std::mem::take(&mut state.tasks[task]) {
                    let mut left = state.left_bytes;
                    state.left_bytes -= leg.bytes();
                    let Leg { object, ranges, in_blocks } = leg;
                    // Of what is longer its reader claims the rest as he comes to it.
                    let most = self.window_bytes.max(CLAIMED_MIN);
                    let begun =
                        |range: &Range<u64>| range.start..range.start + length(range).min(most);
                    if !in_blocks {
                        let ranges: Vec<_> = ranges.iter().map(begun).collect();
                        claims.push(object.claim(&ranges));
                        continue;
                    }
                    for range in ranges {
                        claims.push(object.claim_blocks(begun(&range), left));
                        left -= length(&range);
                    }
                }
                state.claimed_bytes += claims.iter().map(Claims::bytes).sum::<u64>();
                state.claims.insert(task, claims);
            }
        }
        // Freed when nobody waits for the lock.
        drop(gone);
    }
}
