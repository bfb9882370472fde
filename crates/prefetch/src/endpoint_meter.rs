//! Latency and throughput of an endpoint, measured from its answers.
//!
//! Three numbers decide the prefetch window: the latency of the first byte, the rate of one connection, and
//! the rate of all together. The first is the median of all answers. The second is the rate of the fastest
//! connections, the [`FASTEST_RANK`]th of them: on a full line each connection has a share of it, and only
//! those that were alone, as at the beginning, show what one can do. The third is all bytes divided by the
//! time in which any request was in flight.
//!
//! Times and rates are counted in steps of an eighth of an octave, so that an earlier state can be
//! subtracted: the measurements of a run are a difference, as with [`ReadStats`](crate::ReadStats). The cost
//! is a lock for each request, and none for a byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Rank of the connection rate that counts, from the fastest down.
const FASTEST_RANK: u64 = 8;
/// Minimum length of a body that tells a connection's rate.
const RATED_BODY_BYTES_MIN: u64 = 256 << 10;
/// Number of steps in each octave of values.
const STEPS_PER_OCTAVE: u64 = 8;

/// Counts of values by size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StepHistogram(Vec<u64>);

impl StepHistogram {
    /// Returns the step of a value. Values below [`STEPS_PER_OCTAVE`] have one each.
    fn step_index(value: u64) -> usize {
        let octave = u64::from(value.max(STEPS_PER_OCTAVE).ilog2() - STEPS_PER_OCTAVE.ilog2());
        let step = if value < STEPS_PER_OCTAVE {
            value
        } else {
            octave * STEPS_PER_OCTAVE + (value >> octave)
        };
        usize::try_from(step).unwrap_or(usize::MAX)
    }

    /// Returns the lowest value of a step.
    fn step_value(step: usize) -> u64 {
        let step = step as u64;
        if step < 2 * STEPS_PER_OCTAVE {
            return step;
        }
        let octave = step / STEPS_PER_OCTAVE - 1;
        (step - octave * STEPS_PER_OCTAVE)
            .checked_shl(u32::try_from(octave).unwrap_or(63))
            .unwrap_or(u64::MAX)
    }

    fn add(&mut self, value: u64) {
        let step = Self::step_index(value);
        if step >= self.0.len() {
            self.0.resize(step + 1, 0);
        }
        self.0[step] += 1;
    }

    fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the `rank`-th largest value; `None` if there are fewer.
    fn kth_largest(&self, rank: u64) -> Option<u64> {
        let mut left = rank.max(1);
        for (step, count) in self.0.iter().enumerate().rev() {
            match left.checked_sub(*count) {
                None | Some(0) => return Some(Self::step_value(step)),
                Some(rest) => left = rest,
            }
        }
        None
    }

    fn delta_since(&self, before: &StepHistogram) -> StepHistogram {
        let old = before.0.iter().copied().chain(std::iter::repeat(0));
        StepHistogram(self.0.iter().zip(old).map(|(now, old)| now.saturating_sub(old)).collect())
    }
}

/// Measurements of an endpoint so far; their difference describes the time in between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointMeasurements {
    /// Requests that were answered with bytes.
    pub requests: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time in which any request was in flight.
    pub busy_time: Duration,
    /// Answers 429 and 503: too many requests.
    pub throttled_responses: u64,
    /// First-byte latencies, in microseconds.
    first_byte_us: StepHistogram,
    /// Rates of connections, in bytes a second.
    connection_rates: StepHistogram,
}

impl EndpointMeasurements {
    /// Returns the difference to an earlier state.
    #[must_use]
    pub fn delta_since(&self, before: &EndpointMeasurements) -> EndpointMeasurements {
        EndpointMeasurements {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            busy_time: self.busy_time.saturating_sub(before.busy_time),
            throttled_responses: self
                .throttled_responses
                .saturating_sub(before.throttled_responses),
            first_byte_us: self.first_byte_us.delta_since(&before.first_byte_us),
            connection_rates: self.connection_rates.delta_since(&before.connection_rates),
        }
    }

    /// Returns the median first-byte latency, at most an eighth too low; `None` without answers.
    pub fn median_first_byte(&self) -> Option<Duration> {
        let median = self.first_byte_us.kth_largest(self.first_byte_us.count().div_ceil(2))?;
        Some(Duration::from_micros(median))
    }

    /// Returns the rate of one connection, in bytes a second; `None` if no body was long enough.
    pub fn connection_rate(&self) -> Option<u64> {
        self.connection_rates
            .kth_largest((self.connection_rates.count() / 10).clamp(1, FASTEST_RANK))
    }

    /// Returns all bytes divided by the time in which any request was in flight, in bytes a second.
    pub fn total_rate(&self) -> Option<u64> {
        bytes_per_second(self.bytes, self.busy_time)
    }
}

fn bytes_per_second(bytes: u64, time: Duration) -> Option<u64> {
    let per_second = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(per_second).ok().filter(|rate| *rate > 0)
}

/// Measures an endpoint.
#[derive(Debug, Default)]
pub(crate) struct EndpointMeter(Mutex<MeterState>);

#[derive(Debug, Default)]
struct MeterState {
    measurements: EndpointMeasurements,
    in_flight: usize,
    /// Start of the current time with requests in flight.
    busy_since: Option<Instant>,
}

impl EndpointMeter {
    pub(crate) fn measurements(&self) -> EndpointMeasurements {
        let state = self.0.lock();
        let mut measured = state.measurements.clone();
        measured.busy_time += state.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        measured
    }

    pub(crate) fn record_throttled(&self) {
        self.0.lock().measurements.throttled_responses += 1;
    }

    /// Records that a request is sent.
    pub(crate) fn begin_request(self: &Arc<Self>) -> MeteredRequest {
        let sent = Instant::now();
        let mut state = self.0.lock();
        state.in_flight += 1;
        state.busy_since.get_or_insert(sent);
        MeteredRequest { meter: Arc::clone(self), sent_at: sent, answered_at: None, bytes: 0 }
    }
}

/// A request from its start until its last byte arrived.
#[derive(Debug)]
pub(crate) struct MeteredRequest {
    meter: Arc<EndpointMeter>,
    sent_at: Instant,
    answered_at: Option<Instant>,
    bytes: u64,
}

impl MeteredRequest {
    /// Records the first byte of the answer.
    pub(crate) fn record_first_byte(&mut self) {
        self.answered_at = Some(Instant::now());
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for MeteredRequest {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.meter.0.lock();
        state.in_flight -= 1;
        if state.in_flight == 0
            && let Some(since) = state.busy_since.take()
        {
            state.measurements.busy_time += now.duration_since(since);
        }
        let Some(answered) = self.answered_at else { return };
        let first = answered.duration_since(self.sent_at).as_micros();
        state.measurements.requests += 1;
        state.measurements.bytes += self.bytes;
        state.measurements.first_byte_us.add(u64::try_from(first).unwrap_or(u64::MAX));
        let rate = bytes_per_second(self.bytes, now.duration_since(answered));
        if let Some(rate) = rate.filter(|_| self.bytes >= RATED_BODY_BYTES_MIN) {
            state.measurements.connection_rates.add(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn kth_largest_value_is_within_an_eighth(
            mut values in proptest::collection::vec(any::<u64>().prop_map(|v| v >> (v % 64)), 1..200),
            before in proptest::collection::vec(any::<u64>(), 0..50),
            rank in 1..250u64,
        ) {
            let mut all = StepHistogram::default();
            before.iter().for_each(|value| all.add(*value));
            let then = all.clone();
            values.iter().for_each(|value| all.add(*value));
            let own = all.delta_since(&then);
            prop_assert_eq!(own.count(), values.len() as u64);
            values.sort_unstable_by_key(|value| std::cmp::Reverse(*value));
            let expected = values.get(usize::try_from(rank).unwrap() - 1);
            match (own.kth_largest(rank), expected) {
                (Some(found), Some(expected)) => {
                    prop_assert!(found <= *expected, "{} of {}", found, expected);
                    prop_assert!(expected - found <= expected / 8, "{} of {}", found, expected);
                }
                (found, expected) => prop_assert_eq!(found, expected.copied()),
            }
        }
    }

    #[test]
    fn measurements_need_answered_requests() {
        let meter = Arc::new(EndpointMeter::default());
        drop(meter.begin_request());
        let measured = meter.measurements();
        assert_eq!(
            (measured.requests, measured.median_first_byte(), measured.connection_rate()),
            (0, None, None)
        );
        let mut flight = meter.begin_request();
        flight.record_first_byte();
        flight.add_bytes(10);
        drop(flight);
        let measured = meter.measurements();
        assert_eq!((measured.requests, measured.bytes), (1, 10));
        assert!(measured.median_first_byte().is_some() && measured.connection_rate().is_none());
        assert_eq!(measured.delta_since(&measured.clone()).bytes, 0);
    }
}
