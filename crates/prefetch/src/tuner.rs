//! Which block and which window, told from what past runs saw.
//!
//! ```text
//!   one connection    │ first byte │────── block / rate ──────│ first byte │──────
//!   all of them       ═══════════════════ total rate ══════════════════════════════
//! ```
//!
//! **The block.** A connection gives nothing while it waits for the first byte, so this is to be a small share of
//! a block's whole time: 8 %, for which the block is 11.5 times what comes in the time to a first byte,
//! rounded to a power of two between [`BLOCK_BYTES_MIN`] and [`BLOCK_BYTES_MAX`]. Larger blocks take more memory for the same rate,
//! so it is halved while those that there is room for cannot bring a quarter more than was seen, or while an object has
//! fewer of them than there are connections to fill.
//!
//! **The window.** Bandwidth times delay: as many bytes are on their way as come in the time that a block takes, at
//! the best total rate that was seen; two blocks more, the one that is being read and the one behind. No model of a
//! server is true, so what was tried counts for more: never more than a window that reached the same rate;
//! doubled while readers waited for more than 5 % of the time, unless a larger window is known to be no
//! better (as where the line is full, and reading waits for it whatever the window); halved while more than 10 % of
//! what was fetched was in vain.
//!
//! **Neither** where others did better by more than 5 % in the last 32 runs, on about as many bytes: what a reader makes of a line,
//! as the time that it takes for what came, is in no model of the line.
//!
//! Each is a function of the records alone ([`choose`]): no state, no clock, no chance.

use std::time::Duration;

use crate::Options;
use crate::prefetch_pool::{
    AHEAD_BYTES_MAX, AHEAD_REQUESTS_MAX, BLOCK_BYTES_MIN as BLOCK_BYTES_LEAST, MEMORY_BLOCKS_MIN,
};

/// The least block that is chosen, where the memory has room for 16.
pub const TUNED_BLOCK_BYTES_MIN: u64 = 1 << 20;
/// The largest.
pub const TUNED_BLOCK_BYTES_MAX: u64 = 64 << 20;
/// A block's whole time is so many times that to its first byte, less one: 8 %.
const BLOCK_PER_FIRST_BYTE_RATIO: f64 = 11.5;
/// So many records, the last ones, say what to do.
const LINE_RECORDS_MAX: usize = 8;
/// So many say which settings did better than those that the model asks for.
const TRIED_RECORDS_MAX: usize = 32;
/// Of those with one window so many, the last ones, say how it did.
const TRIALS_PER_SETTING_MAX: usize = 3;
/// Readers that wait for less than this share of the time do not wait.
const STALL_SHARE_MAX: f64 = 0.05;
/// A window with this share of another's waits is better than it.
const STALL_IMPROVEMENT_RATIO: f64 = 0.9;
/// What is fetched in vain beyond this share is too much.
const WASTE_SHARE_MAX: f64 = 0.1;
/// A rate with this share of another is as good.
const SIMILAR_RATE_RATIO: f64 = 0.95;
/// Blocks are small enough for so many times the rate that was seen, which may be what the memory allowed.
const BLOCK_RATE_HEADROOM: f64 = 1.25;
/// So many requests go at once at least, unless the server has refused as many.
const INITIAL_REQUESTS_MIN: u64 = 16;

/// In which order something is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessOrder {
    /// By ranges that are told before.
    Declared,
    /// Front to back, without being told.
    Sequential,
    /// Here and there.
    Random,
}

/// What one run, or one reader, saw of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadHistoryRecord {
    /// When it ended, in seconds since 1970.
    pub ended_at_seconds: u64,
    /// What was read, for people: a bucket or a host, without what may be secret.
    pub location: String,
    /// The job's name, or nothing.
    pub job_name: String,
    /// In which order.
    pub access_order: AccessOrder,
    /// The size of the largest object, rounded up to a power of two.
    pub object_bytes_max: u64,
    /// The memory for what is read ahead.
    pub memory_bytes: u64,
    /// The block that was used.
    pub block_bytes: u64,
    /// The window that was used.
    pub window_bytes: u64,
    /// How many requests were answered.
    pub requests: u64,
    /// How many bytes came.
    pub bytes: u64,
    /// The median time to a first byte, in microseconds.
    pub first_byte_us: u64,
    /// What a connection can do, in bytes a second; 0 where no body was long enough to tell.
    pub connection_rate: u64,
    /// All of them together, in bytes a second.
    pub total_rate: u64,
    /// For how long any request was on its way.
    pub busy_ms: u64,
    /// For how long readers waited, those that did so at the same time counted each.
    pub stall_ms: u64,
    /// Bytes that came and were dropped before anybody read them.
    pub wasted_bytes: u64,
    /// How often the server said that it is asked too much.
    pub throttled_responses: u64,
    /// How many requests could be on their way at the end.
    pub concurrent_requests_max: u64,
}

impl ReadHistoryRecord {
    fn stall_share(&self) -> f64 {
        self.stall_ms as f64 / (self.busy_ms.max(1)) as f64
    }

    fn waste_share(&self) -> f64 {
        self.wasted_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Whether it was long enough to say something of its window.
    fn has_filled_window(&self) -> bool {
        self.window_bytes > 0 && self.bytes / self.window_bytes >= 2
    }

    /// Whether its window is about this one.
    fn has_similar_window(&self, window_bytes: u64) -> bool {
        let ratio = self.window_bytes as f64 / window_bytes.max(1) as f64;
        (std::f64::consts::FRAC_1_SQRT_2..std::f64::consts::SQRT_2).contains(&ratio)
    }
}

/// What settings are wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningRequest {
    /// The job's name, or nothing.
    pub job_name: String,
    /// In which order it is going to read.
    pub access_order: AccessOrder,
    /// The memory for what is read ahead, of all readers. Minimum: 1 MiB.
    pub memory_bytes: u64,
    /// The block, if that is not to be chosen.
    pub block_bytes: Option<u64>,
    /// The window, if that is not to be chosen.
    pub window_bytes: Option<u64>,
}

/// What was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunedSettings {
    /// What one request fetches.
    pub block_bytes: u64,
    /// How far ahead of a place.
    pub window_bytes: u64,
    /// The first window of a place that is read on from; `None`: as without a history.
    pub first_window_bytes: Option<u64>,
    /// How many requests may go at once to begin with; `None`: as without a history.
    pub initial_requests: Option<u64>,
    /// From how many records; 0: the defaults.
    pub tuned_from_runs: u64,
}

impl TunedSettings {
    /// How that is read.
    pub fn to_options(&self, memory_bytes: u64) -> Options {
        let defaults = Options::default();
        Options {
            block_bytes: self.block_bytes,
            window_bytes: self.window_bytes,
            memory_bytes,
            first_window_bytes: self.first_window_bytes.unwrap_or(defaults.first_window_bytes),
        }
    }
}

/// A line as records show it.
struct LineRates {
    /// To the first byte, in seconds.
    first_byte_seconds: f64,
    /// Of a connection, in bytes a second.
    connection_rate: f64,
    /// Of all, in bytes a second.
    total_rate: f64,
}

impl LineRates {
    /// So many bytes are on their way when all of it is used by blocks of this size.
    fn bytes_in_flight(&self, block_bytes: u64) -> f64 {
        self.total_rate * (self.first_byte_seconds + block_bytes as f64 / self.connection_rate)
    }
}

/// The settings with the least waiting for the memory, as records of an endpoint tell them, oldest first. With no record that says
/// something they are the defaults.
///
/// The block is at most a 16th of the memory, as everywhere, and the window at most seven eighths of it, unless they are
/// not to be chosen.
pub fn choose_settings(records: &[ReadHistoryRecord], reading: &TuningRequest) -> TunedSettings {
    let says = |record: &&ReadHistoryRecord| {
        let ReadHistoryRecord { first_byte_us, connection_rate, total_rate, bytes, .. } = record;
        [first_byte_us, connection_rate, total_rate, bytes].iter().all(|value| **value > 0)
    };
    let all: Vec<&ReadHistoryRecord> = records.iter().filter(says).collect();
    let kept = |is_one: &dyn Fn(&ReadHistoryRecord) -> bool| -> Vec<&ReadHistoryRecord> {
        let mut kept: Vec<&ReadHistoryRecord> =
            all.iter().copied().filter(|record| is_one(record)).collect();
        kept.drain(..kept.len().saturating_sub(LINE_RECORDS_MAX));
        kept
    };
    let is_alike = |record: &ReadHistoryRecord| record.access_order == reading.access_order;
    let line = kept(&|_| true);
    let mut own = kept(&|record| is_alike(record) && record.job_name == reading.job_name);
    if own.is_empty() {
        own = kept(&is_alike);
    }
    let like = if own.is_empty() { &line } else { &own };
    let (Some(first), Some(rate), Some(total)) = (
        median(line.iter().map(|record| record.first_byte_us)),
        median(line.iter().map(|record| record.connection_rate)),
        like.iter().map(|record| record.total_rate).max(),
    ) else {
        return default_settings(reading);
    };
    let line = LineRates {
        first_byte_seconds: Duration::from_micros(first).as_secs_f64(),
        connection_rate: rate as f64,
        // One connection is the least that there is.
        total_rate: total.max(rate) as f64,
    };
    let object = median(like.iter().map(|record| record.object_bytes_max)).unwrap_or(0);
    let block_bytes =
        reading.block_bytes.unwrap_or_else(|| choose_block_bytes(&line, object, reading));
    let window_bytes = reading.window_bytes.unwrap_or_else(|| {
        let most = window_memory_bytes(reading.memory_bytes).max(block_bytes);
        let base =
            base_window_bytes(&line, like, block_bytes).min(round_to_blocks(most, block_bytes));
        let grown = grow_window(&own, base, block_bytes, most);
        shrink_window(&own, grown, block_bytes)
    });
    let block_bytes = match reading.block_bytes {
        Some(fixed) => fixed,
        None => block_bytes.min(window_bytes),
    };
    let tried: Vec<&ReadHistoryRecord> = all
        .iter()
        .copied()
        .filter(|record| is_alike(record) && record.job_name == reading.job_name)
        .collect();
    let tried = &tried[tried.len().saturating_sub(TRIED_RECORDS_MAX)..];
    let (block_bytes, window_bytes) =
        find_faster_settings(tried, (block_bytes, window_bytes), reading)
            .unwrap_or((block_bytes, window_bytes));
    // Who reads on did so to the end, and little of it was in vain.
    let mut last = own.iter().rev().take(TRIALS_PER_SETTING_MAX);
    let goes_on = reading.access_order == AccessOrder::Sequential
        && !own.is_empty()
        && last
            .all(|record| record.bytes >= window_bytes && record.waste_share() <= WASTE_SHARE_MAX);
    let refused =
        all.iter().rev().take(TRIALS_PER_SETTING_MAX).find(|record| record.throttled_responses > 0);
    let wanted =
        (window_bytes / block_bytes.max(1)).clamp(INITIAL_REQUESTS_MIN, AHEAD_REQUESTS_MAX as u64);
    TunedSettings {
        block_bytes,
        window_bytes,
        first_window_bytes: goes_on.then_some(window_bytes),
        initial_requests: Some(
            refused.map_or(wanted, |record| record.concurrent_requests_max.clamp(1, wanted)),
        ),
        tuned_from_runs: like.len() as u64,
    }
}

/// Block and window that did better than those that the model asks for, where these have been tried on about as many bytes
/// as the last run had: what a reader makes of a line is not in the model.
fn find_faster_settings(
    tried: &[&ReadHistoryRecord],
    asked: (u64, u64),
    reading: &TuningRequest,
) -> Option<(u64, u64)> {
    let last = tried.last()?.bytes;
    let is_alike = |record: &&&ReadHistoryRecord| {
        record.has_filled_window() && record.bytes / 2 <= last && last / 2 <= record.bytes
    };
    let rate = |is_one: &dyn Fn(&ReadHistoryRecord) -> bool| {
        let trials = tried.iter().rev().filter(is_alike).filter(|record| is_one(record));
        median(trials.take(TRIALS_PER_SETTING_MAX).map(|record| record.total_rate))
    };
    let (block_bytes, window_bytes) = asked;
    let own = rate(&|record| {
        record.block_bytes == block_bytes && record.has_similar_window(window_bytes)
    })?;
    let most = TUNED_BLOCK_BYTES_MAX
        .min((reading.memory_bytes / MEMORY_BLOCKS_MIN).max(BLOCK_BYTES_LEAST));
    let may_be = |record: &ReadHistoryRecord| {
        let ReadHistoryRecord { block_bytes: block, window_bytes: window, .. } = *record;
        let is_free = |fixed: Option<u64>, value: u64| fixed.is_none_or(|fixed| fixed == value);
        is_free(reading.block_bytes, block)
            && is_free(reading.window_bytes, window)
            && (reading.block_bytes.is_some() || (1..=most.min(window)).contains(&block))
            && (reading.window_bytes.is_some()
                || window <= window_memory_bytes(reading.memory_bytes))
            && record.waste_share() <= WASTE_SHARE_MAX
    };
    let others = tried.iter().filter(is_alike).filter(|record| may_be(record));
    let others = others.filter_map(|record| {
        let (block, window) = (record.block_bytes, record.window_bytes);
        let rate = rate(&|other| other.block_bytes == block && other.window_bytes == window)?;
        Some((rate, std::cmp::Reverse(window), block))
    });
    let (best, std::cmp::Reverse(window), block) = others.max()?;
    (best as f64 * SIMILAR_RATE_RATIO > own as f64).then_some((block, window))
}

fn default_settings(reading: &TuningRequest) -> TunedSettings {
    let Options { block_bytes, window_bytes, .. } = Options::default();
    let block_bytes = match (reading.block_bytes, reading.window_bytes) {
        (Some(block_bytes), _) => block_bytes,
        (None, Some(window_bytes)) => block_bytes.min(window_bytes),
        (None, None) => block_bytes,
    };
    let window_bytes = reading.window_bytes.unwrap_or(window_bytes.max(block_bytes));
    TunedSettings {
        block_bytes,
        window_bytes,
        first_window_bytes: None,
        initial_requests: None,
        tuned_from_runs: 0,
    }
}

fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// The memory without the eighth that is for reads that cannot wait.
fn window_memory_bytes(memory_bytes: u64) -> u64 {
    memory_bytes - memory_bytes / 8
}

/// So many bytes, or a few less, in whole blocks; one at least.
fn round_to_blocks(bytes: u64, block_bytes: u64) -> u64 {
    let block_bytes = block_bytes.max(1);
    (bytes / block_bytes).max(1).saturating_mul(block_bytes)
}

fn choose_block_bytes(line: &LineRates, object_bytes: u64, reading: &TuningRequest) -> u64 {
    let memory = reading.memory_bytes;
    let most = (memory / MEMORY_BLOCKS_MIN).max(BLOCK_BYTES_LEAST);
    let most = TUNED_BLOCK_BYTES_MAX.min(1 << most.ilog2());
    let least = TUNED_BLOCK_BYTES_MIN.min(most);
    let ideal = (line.first_byte_seconds * line.connection_rate * BLOCK_PER_FIRST_BYTE_RATIO)
        .clamp(1.0, TUNED_BLOCK_BYTES_MAX as f64);
    // The nearest power of two, as ratios go.
    let exponent = ideal.log2().round().clamp(0.0, 62.0);
    let ideal = (exponent.exp2() as u64).clamp(least, most);
    let connections = line.total_rate / line.connection_rate;
    // What blocks of a size can bring in all: as many as there may be at once, each in its time.
    let reach = |block: u64| {
        let room = window_memory_bytes(memory).saturating_sub(2 * block).min(AHEAD_BYTES_MAX);
        let flying = (room as f64 / block as f64).clamp(1.0, AHEAD_REQUESTS_MAX as f64);
        flying * block as f64 / (line.first_byte_seconds + block as f64 / line.connection_rate)
    };
    let fits = |block: u64| {
        reach(block) >= line.total_rate * BLOCK_RATE_HEADROOM
            && (object_bytes == 0 || object_bytes as f64 / block as f64 >= connections)
    };
    let smaller = std::iter::successors(Some(ideal), |block| Some(block / 2));
    let mut smaller = smaller.take_while(|block| *block >= least);
    // Where none will do, the best that there is.
    let farthest = |block: u64, other: u64| if reach(other) > reach(block) { other } else { block };
    let best = smaller.clone().reduce(farthest).unwrap_or(ideal);
    smaller.find(|block| fits(*block)).unwrap_or(best)
}

/// What the line asks for; never more than what did as well.
fn base_window_bytes(line: &LineRates, like: &[&ReadHistoryRecord], block_bytes: u64) -> u64 {
    let blocks = (line.bytes_in_flight(block_bytes) / block_bytes.max(1) as f64).ceil() as u64;
    let asked = blocks.saturating_add(2).saturating_mul(block_bytes);
    let did_as_well = like.iter().filter(|record| {
        record.has_filled_window()
            && record.total_rate as f64 >= line.total_rate * SIMILAR_RATE_RATIO
    });
    let least = did_as_well.map(|record| record.window_bytes).min();
    asked.min(least.map_or(asked, |least| round_to_blocks(least, block_bytes))).max(block_bytes)
}

/// Doubled while readers waited with so much, and not as much with more, or more has not been tried.
fn grow_window(own: &[&ReadHistoryRecord], base: u64, block_bytes: u64, most: u64) -> u64 {
    let most = round_to_blocks(most, block_bytes);
    // Of larger blocks there are fewer at once in the same window: another trial.
    let trials = |is_one: &dyn Fn(&ReadHistoryRecord) -> bool| -> Vec<f64> {
        let alike = own.iter().rev().filter(|record| {
            record.has_filled_window() && record.block_bytes <= block_bytes && is_one(record)
        });
        alike.map(|record| record.stall_share()).collect()
    };
    let mut window = base.min(most);
    loop {
        let own = trials(&|record| {
            record.has_similar_window(window) && record.block_bytes == block_bytes
        });
        let Some(stalled) = average(own.into_iter().take(TRIALS_PER_SETTING_MAX)) else {
            return window;
        };
        if stalled <= STALL_SHARE_MAX || window >= most {
            return window;
        }
        let larger =
            trials(&|record| record.window_bytes > window && !record.has_similar_window(window));
        let best = larger.into_iter().min_by(f64::total_cmp);
        if best.is_some_and(|best| best >= stalled * STALL_IMPROVEMENT_RATIO) {
            return window;
        }
        window = window.saturating_mul(2).min(most);
    }
}

/// Halved while so much was fetched in vain with it.
fn shrink_window(own: &[&ReadHistoryRecord], window_bytes: u64, block_bytes: u64) -> u64 {
    let mut window = window_bytes;
    while window > block_bytes {
        let trials = own.iter().rev().filter(|record| record.has_similar_window(window));
        let wasted =
            average(trials.take(TRIALS_PER_SETTING_MAX).map(|record| record.waste_share()));
        if wasted.is_none_or(|wasted| wasted <= WASTE_SHARE_MAX) {
            break;
        }
        window = round_to_blocks(window / 2, block_bytes);
    }
    window
}

fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
