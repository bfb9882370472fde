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

/// Tasks in the order in which they are taken, and what each reads.
#[derive(Debug)]
pub struct Course {
    window_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tasks: Vec<Vec<Leg>>,
    claims: HashMap<usize, Vec<Claims>>,
    claimed_bytes: u64,
    /// The first task that has not been claimed.
    next: usize,
}

impl Course {
    /// Tasks, of which so many bytes are claimed before they are taken.
    pub fn new(tasks: Vec<Vec<Leg>>, window_bytes: u64) -> Course {
        let state = Mutex::new(State { tasks, ..State::default() });
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
                state.next = state.next.max(task + 1);
            }
            while state.claimed_bytes < self.window_bytes && state.next < state.tasks.len() {
                let task = state.next;
                state.next += 1;
                let claims: Vec<Claims> = std::mem::take(&mut state.tasks[task])
                    .into_iter()
                    .flat_map(|Leg { object, ranges, in_blocks }| match in_blocks {
                        true => {
                            ranges.into_iter().map(|range| object.claim_blocks(range)).collect()
                        }
                        false => vec![object.claim(&ranges)],
                    })
                    .collect();
                state.claimed_bytes += claims.iter().map(Claims::bytes).sum::<u64>();
                state.claims.insert(task, claims);
            }
        }
        // Freed when nobody waits for the lock.
        drop(gone);
    }
}
