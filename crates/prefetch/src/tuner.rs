//! Block and window sizes, derived from the measurements of past runs.
//!
//! ```text
//!   one connection    │ first byte │────── block / rate ──────│ first byte │──────
//!   all of them       ═══════════════════ total rate ══════════════════════════════
//! ```
//!
//! **The block.** A connection transfers nothing while it waits for the first byte, so that wait should be a
//! small share of a block's whole time: 8 %. For that the block has 11.5 times the bytes that arrive in the
//! time to a first byte, rounded to a power of two between [`TUNED_BLOCK_BYTES_MIN`] and
//! [`TUNED_BLOCK_BYTES_MAX`]. Larger blocks take more memory for the same rate. So the block is halved while
//! as many as fit the memory cannot reach a quarter more than the measured rate, or while an object has fewer
//! blocks than there are connections to fill.
//!
//! **The window.** Bandwidth times delay: as many bytes are in flight as arrive in the time of a block, at
//! the best measured total rate, plus two blocks, the one being read and the one behind. No model of a server
//! is exact, so past trials count for more. The window is never larger than one that reached the same rate.
//! It is doubled while readers waited for more than 5 % of the time, unless a larger window is known to be no
//! better (as on a full line, where reading waits whatever the window). It is halved while more than 10 % of
//! the fetched bytes were wasted.
//!
//! **Neither** applies if other settings did better by more than 5 % in the last 32 runs, on a similar number
//! of bytes: no model of the line includes the reader's share of the time.
//!
//! Both are functions of the records alone ([`choose_settings`]): no state, no clock, no randomness.

use std::time::Duration;

use crate::Options;
use crate::prefetch_pool::{
    AHEAD_BYTES_MAX, AHEAD_REQUESTS_MAX, BLOCK_BYTES_MIN as BLOCK_BYTES_LEAST, MEMORY_BLOCKS_MIN,
};

/// Minimum block that is chosen if the memory has room for 16 of them.
pub const TUNED_BLOCK_BYTES_MIN: u64 = 1 << 20;
/// Maximum block that is chosen.
pub const TUNED_BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Ratio of a block to the bytes that arrive in the time to its first byte: that time is then 8 % of the
/// whole.
const BLOCK_PER_FIRST_BYTE_RATIO: f64 = 11.5;
/// Number of latest records from which line and window are derived.
const LINE_RECORDS_MAX: usize = 8;
/// Number of latest records in which better settings than the model's are searched.
const TRIED_RECORDS_MAX: usize = 32;
/// Number of latest records that describe one window.
const TRIALS_PER_SETTING_MAX: usize = 3;
/// Share of time that readers may wait without a larger window.
const STALL_SHARE_MAX: f64 = 0.05;
/// A window is better than another if its share of waits is at most this ratio of the other's.
const STALL_IMPROVEMENT_RATIO: f64 = 0.9;
/// Share of fetched bytes that may be wasted.
const WASTE_SHARE_MAX: f64 = 0.1;
/// A rate is as good as another if it has this ratio of it.
const SIMILAR_RATE_RATIO: f64 = 0.95;
/// Blocks are small enough for this multiple of the measured rate, which the memory may have limited.
const BLOCK_RATE_HEADROOM: f64 = 1.25;
/// Minimum initial concurrency, unless the server has refused that many requests.
const INITIAL_REQUESTS_MIN: u64 = 16;

/// The order in which an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessOrder {
    /// By ranges that the reader declares in advance.
    Declared,
    /// Front to back, without declaration.
    Sequential,
    /// At random offsets.
    Random,
}

/// Measurements of an endpoint in one run, or by one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadHistoryRecord {
    /// End of the run, in seconds since 1970.
    pub ended_at_seconds: u64,
    /// Bucket or host for display, without secrets.
    pub location: String,
    /// Name of the job; empty if there is none.
    pub job_name: String,
    /// Order in which the objects were read.
    pub access_order: AccessOrder,
    /// The size of the largest object, rounded up to a power of two.
    pub object_bytes_max: u64,
    /// Memory limit of prefetching.
    pub memory_bytes: u64,
    /// Block size of the run.
    pub block_bytes: u64,
    /// Window size of the run.
    pub window_bytes: u64,
    /// Number of answered requests.
    pub requests: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Median first-byte latency in microseconds.
    pub first_byte_us: u64,
    /// Rate of one connection in bytes a second; 0 if no body was long enough.
    pub connection_rate: u64,
    /// Rate of all connections together, in bytes a second.
    pub total_rate: u64,
    /// Time in which any request was in flight.
    pub busy_ms: u64,
    /// Time that readers waited; concurrent waits count separately.
    pub stall_ms: u64,
    /// Bytes that were dropped before anybody read them.
    pub wasted_bytes: u64,
    /// Answers 429 and 503: too many requests.
    pub throttled_responses: u64,
    /// Concurrency limit at the end of the run.
    pub concurrent_requests_max: u64,
}

impl ReadHistoryRecord {
    fn stall_share(&self) -> f64 {
        self.stall_ms as f64 / (self.busy_ms.max(1)) as f64
    }

    fn waste_share(&self) -> f64 {
        self.wasted_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Returns whether the run was long enough to say something of its window.
    fn has_filled_window(&self) -> bool {
        self.window_bytes > 0 && self.bytes / self.window_bytes >= 2
    }

    /// Returns whether its window is similar to this one.
    fn has_similar_window(&self, window_bytes: u64) -> bool {
        let ratio = self.window_bytes as f64 / window_bytes.max(1) as f64;
        (std::f64::consts::FRAC_1_SQRT_2..std::f64::consts::SQRT_2).contains(&ratio)
    }
}

/// The conditions for which settings are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningRequest {
    /// Name of the job; empty if there is none.
    pub job_name: String,
    /// Order in which it will read.
    pub access_order: AccessOrder,
    /// Memory limit of prefetching, for all readers. Minimum: 1 MiB.
    pub memory_bytes: u64,
    /// Fixed block size; `None`: the tuner chooses.
    pub block_bytes: Option<u64>,
    /// Fixed window size; `None`: the tuner chooses.
    pub window_bytes: Option<u64>,
}

/// The chosen settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunedSettings {
    /// Bytes that one request fetches.
    pub block_bytes: u64,
    /// Maximum bytes fetched ahead of a position.
    pub window_bytes: u64,
    /// First window of a sequential position; `None`: as without a history.
    pub first_window_bytes: Option<u64>,
    /// Initial concurrency; `None`: as without a history.
    pub initial_requests: Option<u64>,
    /// Number of records that they were derived from; 0: the defaults.
    pub tuned_from_runs: u64,
}

impl TunedSettings {
    /// Converts the settings to prefetch options.
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

/// Latency and rates of a line, derived from records.
struct LineRates {
    /// Latency of the first byte, in seconds.
    first_byte_seconds: f64,
    /// Rate of a connection, in bytes a second.
    connection_rate: f64,
    /// Rate of all connections, in bytes a second.
    total_rate: f64,
}

impl LineRates {
    /// Returns the bytes in flight when blocks of this size use the whole line.
    fn bytes_in_flight(&self, block_bytes: u64) -> f64 {
        self.total_rate * (self.first_byte_seconds + block_bytes as f64 / self.connection_rate)
    }
}

/// Returns the settings with the least waiting within the memory, derived from records of an endpoint, oldest
/// first. Without a usable record they are the defaults.
///
/// The block is at most a 16th of the memory, as everywhere, and the window at most seven eighths of it,
/// unless the request fixes them.
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
        // One connection is the minimum.
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
    // Past sequential readers read to the end, and little was wasted.
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

/// Returns block and window that did better than those of the model, if both have been tried on a similar
/// number of bytes as the last run: the model does not include the reader's share of the time.
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

/// Returns the memory without the eighth that is reserved for reads that cannot wait.
fn window_memory_bytes(memory_bytes: u64) -> u64 {
    memory_bytes - memory_bytes / 8
}

/// Rounds down to whole blocks, at least one.
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
    // The nearest power of two in terms of ratios.
    let exponent = ideal.log2().round().clamp(0.0, 62.0);
    let ideal = (exponent.exp2() as u64).clamp(least, most);
    let connections = line.total_rate / line.connection_rate;
    // Total rate with blocks of a size: as many as may be in flight, each in its time.
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
    // If none fits, the one with the highest total rate.
    let farthest = |block: u64, other: u64| if reach(other) > reach(block) { other } else { block };
    let best = smaller.clone().reduce(farthest).unwrap_or(ideal);
    smaller.find(|block| fits(*block)).unwrap_or(best)
}

/// Returns the window of the model; at most the smallest window that did as well.
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

/// Doubles the window while readers waited with it, unless larger ones were tried and no better.
fn grow_window(own: &[&ReadHistoryRecord], base: u64, block_bytes: u64, most: u64) -> u64 {
    let most = round_to_blocks(most, block_bytes);
    // Larger blocks are fewer in the same window: a different trial.
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

/// Halves the window while runs with it wasted too much.
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
