//! `pauses`: how long the longest of many small inserts takes while a set grows.

use std::collections::HashSet;

use tidemill_sketch::IdSpace;

use crate::{Result, data, timed};

/// Ids that are inserted together.
const BATCH: u64 = 1000;

pub fn run(peer: &str, count: u64) -> Result<()> {
    match peer {
        "tidemill" => {
            let (mut space, mut indexes) = (IdSpace::default(), Vec::new());
            measure(count, |ids| {
                indexes.clear();
                space.insert_into(ids, &mut indexes).expect("there is room");
                u64::from(space.len())
            })
        }
        "hashset" => {
            let mut set = HashSet::<u64>::new();
            measure(count, |ids| {
                set.extend(ids);
                set.len() as u64
            })
        }
        "hashbrown" => {
            let mut set = hashbrown::HashSet::<u64>::new();
            measure(count, |ids| {
                set.extend(ids);
                set.len() as u64
            })
        }
        _ => return Err(format!("`{peer}` has no pauses").into()),
    }
    Ok(())
}

fn measure(count: u64, mut insert: impl FnMut(&[u64]) -> u64) {
    let mut took = Vec::with_capacity(count.div_ceil(BATCH) as usize);
    let (mut ids, mut length) = (Vec::new(), 0);
    for start in (0..count).step_by(BATCH as usize) {
        ids.clear();
        ids.extend((start..count.min(start + BATCH)).map(data::scrambled));
        let (seconds, now) = timed(|| insert(&ids));
        took.push(seconds);
        length = now;
    }
    let total: f64 = took.iter().sum();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize] * 1e6;
    println!(
        "{{\"us\": {{\"half\": {:.2}, \"99.9 %\": {:.2}, \"longest\": {:.2}}}, \"total_s\": {total:.4}, \"length\": {length}}}",
        at(0.5),
        at(0.999),
        at(1.0),
    );
}
