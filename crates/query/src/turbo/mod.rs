//! Turbo: answers that may rest on a part of the input, and state the coverage and the error.
//!
//! The input is cut finely, and its splits are read in a sampling order that is fixed before anything is read
//! ([`SamplingOrder`](tidemill_sampling::SamplingOrder)). So at any moment the splits read are a sample of all. The
//! [runner](local_runner) decides by the clock and by bytes, never by rows, when to stop.
//!
//! Sums and counts are scaled up to the whole input, and the variation between splits gives their error
//! ([`answer_builder`]). The plan tells which columns of the result are estimates and how their bounds reach
//! it ([`result_bounds`]). The bounds are computed above the finish plan ([`intervals`]).
//!
//! - `sampled_execution`: runs a query's tables or rows over a part of the input, and shows interim results.
//! - `local_runner`, `worker_runner`: fill tables on this process's threads, or from the results of workers.
//! - `unordered_rows`: rows of a query without aggregation, in the order in which threads find them.
//! - `sampling_plan`, `split_tally`: the order of the splits, and those that are complete.
//! - `reader_threads`: the state of threads that read, by which stalls are detected.
//! - `result_bounds`, `answer_builder`, `intervals`: estimates, scaled answers and confidence intervals.
//! - `partial_coverage`: the coverage of a result.

pub(crate) mod answer_builder;
pub(crate) mod intervals;
pub(crate) mod local_runner;
pub(crate) mod partial_coverage;
pub(crate) mod reader_threads;
pub(crate) mod result_bounds;
pub(crate) mod sampled_execution;
pub(crate) mod sampling_plan;
mod split_tally;
pub(crate) mod unordered_rows;
pub(crate) mod worker_runner;

use std::time::{Duration, Instant};

use local_runner::StopCondition;
pub(crate) use partial_coverage::build_partial_coverage;
use tidemill_base::error::{Error, Result};
use tidemill_base::memory_budget::{MemorySize, parse_size};

use crate::planning::execution_path::ExecutionPath;

/// Turbo settings: the stop condition of a query, and the form of its answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurboSettings {
    /// Time from the start of the query to the last byte of the answer.
    pub deadline: Option<Duration>,
    /// Share of the bytes that may be left out, from 0 to 1: the bytes of stragglers and those that cannot be
    /// read.
    pub drop_share: Option<f64>,
    /// Target error: reading stops once half the width of each displayed interval is within this share of its
    /// estimate.
    pub target_error: Option<f64>,
    /// Share of the splits that is read, from 0 to 1.
    pub sample_share: Option<f64>,
    /// Maximum number of rows to find, anywhere in the input; for queries without aggregation.
    pub find_rows_max: Option<u64>,
    /// Seed of the sampling order. Default: 0.
    pub seed: Option<u64>,
    /// Confidence of intervals: the share of answers whose intervals contain the true value. Default: 0.95.
    pub confidence: Option<f64>,
    /// Bytes of a split. Default: a 4096th of the input, from 16 KiB to 1 MiB.
    pub split_bytes: Option<u64>,
    /// True if numbers are those of the part read and are not scaled up (option `as_seen`).
    pub is_unscaled: bool,
    /// True if the result has no columns of bounds (option `no_intervals`).
    pub is_without_intervals: bool,
    /// Start of the deadline's time. Default: when the query is planned.
    pub started_at: Option<Instant>,
}

/// The names of the options on the command line, in job files and in Python.
pub const OPTION_NAMES: [&str; 10] = [
    "deadline",
    "drop",
    "error",
    "sample",
    "find",
    "seed",
    "confidence",
    "split_bytes",
    "as_seen",
    "no_intervals",
];

/// Default confidence of intervals.
pub(crate) const CONFIDENCE_DEFAULT: f64 = 0.95;

impl TurboSettings {
    /// Sets the option of this name from its text: `deadline` from `7s`, `drop` from `10%`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid value or an unknown name.
    pub fn set_option(&mut self, option: &str, text: &str) -> Result<()> {
        let flag = || {
            text.parse()
                .map_err(|_| Error::usage(format!("`{option}` is true or false, not `{text}`")))
        };
        match option {
            "deadline" => self.deadline = Some(parse_duration(text)?),
            "drop" => self.drop_share = Some(parse_share(option, text, "10%")?),
            "error" => self.target_error = Some(parse_share(option, text, "2%")?),
            "sample" => self.sample_share = Some(parse_share(option, text, "1%")?),
            "confidence" => self.confidence = Some(parse_share(option, text, "95%")?),
            "find" => {
                let rows = text.trim().parse().ok().filter(|rows| *rows > 0);
                self.find_rows_max = Some(rows.ok_or_else(|| {
                    Error::usage(format!("`{text}` is no number of rows to find, at least 1"))
                })?);
            }
            "seed" => {
                let seed = text.trim().parse();
                self.seed = Some(seed.map_err(|_| {
                    Error::usage(format!(
                        "`{text}` is no seed: it is a whole number from 0 to 2^64 - 1"
                    ))
                })?);
            }
            "split_bytes" => {
                let bytes = match parse_size(text) {
                    Some(MemorySize::Bytes(bytes)) if bytes >= SPLIT_BYTES_MIN => Some(bytes),
                    _ => None,
                };
                self.split_bytes = Some(bytes.ok_or_else(|| {
                    Error::usage_with_hint(
                        format!("`{text}` is no size of a split"),
                        "at least 1k; for example 64k or 1M",
                    )
                })?);
            }
            "as_seen" => self.is_unscaled = flag()?,
            "no_intervals" => self.is_without_intervals = flag()?,
            _ => {
                return Err(Error::usage(tidemill_base::suggestions::unknown_name_message(
                    "option",
                    option,
                    &OPTION_NAMES,
                )));
            }
        }
        Ok(())
    }

    /// Returns the options as texts that [`set_option`](Self::set_option) accepts. A deadline is the time
    /// left of it.
    pub fn option_texts(&self) -> Vec<(&'static str, String)> {
        let left = self.deadline.map(|all| {
            let spent = self.started_at.map_or(Duration::ZERO, |began| began.elapsed());
            let left = all.saturating_sub(spent).max(Duration::from_millis(1));
            format!("{:.3}ms", left.as_secs_f64() * 1e3)
        });
        let number = |number: f64| format!("{number:?}");
        let flag = |is_set: bool| is_set.then(|| "true".to_owned());
        let all = [
            ("deadline", left),
            ("drop", self.drop_share.map(number)),
            ("error", self.target_error.map(number)),
            ("sample", self.sample_share.map(number)),
            ("find", self.find_rows_max.map(|rows| rows.to_string())),
            ("seed", self.seed.map(|seed| seed.to_string())),
            ("confidence", self.confidence.map(number)),
            ("split_bytes", self.split_bytes.map(|bytes| bytes.to_string())),
            ("as_seen", flag(self.is_unscaled)),
            ("no_intervals", flag(self.is_without_intervals)),
        ];
        all.into_iter().filter_map(|(option, text)| Some((option, text?))).collect()
    }

    /// Returns true if the answer may be incomplete.
    pub fn can_stop_early(&self) -> bool {
        self.deadline.is_some()
            || self.find_rows_max.is_some()
            || [self.drop_share, self.target_error, self.sample_share].iter().any(Option::is_some)
    }

    /// Returns true if a query's input is cut into fine splits. Interim results alone do not change the
    /// splits, and neither does an order-sensitive aggregate, whose answer depends on them, unless the user
    /// gives `split_bytes`.
    pub(crate) fn needs_fine_splits(&self, route: &ExecutionPath) -> bool {
        match route {
            ExecutionPath::Tables(parts) => {
                self.can_stop_early()
                    && (parts.spec.is_order_insensitive() || self.split_bytes.is_some())
            }
            ExecutionPath::Rows { .. } => true,
            ExecutionPath::Engine { .. } => false,
        }
    }

    /// Returns these settings, with the values of `base` where this one has none.
    #[must_use]
    pub fn with_defaults(self, base: &TurboSettings) -> TurboSettings {
        TurboSettings {
            deadline: self.deadline.or(base.deadline),
            drop_share: self.drop_share.or(base.drop_share),
            target_error: self.target_error.or(base.target_error),
            sample_share: self.sample_share.or(base.sample_share),
            find_rows_max: self.find_rows_max.or(base.find_rows_max),
            seed: self.seed.or(base.seed),
            confidence: self.confidence.or(base.confidence),
            split_bytes: self.split_bytes.or(base.split_bytes),
            is_unscaled: self.is_unscaled || base.is_unscaled,
            is_without_intervals: self.is_without_intervals || base.is_without_intervals,
            started_at: self.started_at.or(base.started_at),
        }
    }

    /// Validates the settings. Returns `None` if the answer cannot be incomplete.
    ///
    /// # Errors
    /// [`Error::Usage`] for an option of incomplete answers without a stop condition, and for a target error
    /// without intervals.
    pub fn validate(self) -> Result<Option<TurboSettings>> {
        if self.target_error.is_some() && (self.is_unscaled || self.is_without_intervals) {
            return Err(Error::usage_with_hint(
                "`error` looks at intervals, and none are asked for",
                "leave --as-seen and --no-intervals out; or stop by --deadline, --drop or --sample",
            ));
        }
        if self.can_stop_early() {
            return Ok(Some(self));
        }
        let said = [
            ("seed", self.seed.is_some()),
            ("confidence", self.confidence.is_some()),
            ("split-bytes", self.split_bytes.is_some()),
            ("as-seen", self.is_unscaled),
            ("no-intervals", self.is_without_intervals),
        ];
        match said.iter().find(|(_, is_said)| *is_said) {
            Some((name, _)) => Err(Error::usage_with_hint(
                format!(
                    "`{name}` is of an answer that may rest on a part of the input, and this one is exact"
                ),
                "say when enough has been read: --deadline 7s, --drop 10%, --error 2% or --sample 1%",
            )),
            None => Ok(None),
        }
    }

    /// Returns the confidence of intervals: the share of them that contain the true value.
    pub(crate) fn confidence(&self) -> f64 {
        self.confidence.unwrap_or(CONFIDENCE_DEFAULT)
    }

    /// Returns the stop condition of a run.
    pub(crate) fn stop_condition(&self) -> StopCondition {
        StopCondition {
            ends_at: self.ends_at(),
            drop_share: self.drop_share,
            sample_share: self.sample_share,
            seed: self.seed.unwrap_or(0),
            confidence: self.confidence(),
        }
    }

    /// Returns the time at which the answer is due, if there is a deadline.
    pub fn ends_at(&self) -> Option<Instant> {
        let began = self.started_at.unwrap_or_else(Instant::now);
        self.deadline.map(|deadline| began + deadline)
    }

    /// Returns the time at which the computation of intervals ends, because the answer is written after it.
    pub(crate) fn intervals_end_at(&self) -> Option<Instant> {
        let ends_at = self.ends_at()?;
        Some(ends_at.checked_sub(local_runner::FINISH_RESERVE_MIN).unwrap_or(ends_at))
    }

    /// Returns these settings with the start of the deadline's time set to now, unless it is set.
    #[must_use]
    pub fn with_start_time(self) -> Self {
        TurboSettings { started_at: Some(self.started_at.unwrap_or_else(Instant::now)), ..self }
    }
}

const EXACT_ANSWER_HINT: &str =
    "leave --deadline, --drop, --error and --sample out: then the answer is exact";

/// Returns the error for a query without mergeable tables, which cannot be estimated.
pub(crate) fn not_mergeable_error(why: &str) -> Error {
    if why.contains("` is called as ") {
        // This mistake does not depend on how much is read.
        return Error::usage(why);
    }
    Error::usage_with_hint(
        format!("no estimate can be made of a part of the input: {why}"),
        format!("one aggregation over one source can be estimated; {EXACT_ANSWER_HINT}"),
    )
}

/// Returns the error for a source that the query itself samples.
pub(crate) fn sampled_source_error(name: &str) -> Error {
    Error::usage_with_hint(
        format!("`{}` is sampled by the query already", tidemill_base::redaction::redact_url(name)),
        "--sample 1% reads less instead, and says how far off the answer may be; or leave TABLESAMPLE",
    )
}

/// Returns the error for `find` with an aggregation.
pub(crate) fn find_with_groups_error() -> Error {
    Error::usage_with_hint(
        "`find` is of rows, and the query groups them: all of its input is looked at",
        "LIMIT shortens the result; --deadline, --drop, --error and --sample end reading before the end",
    )
}

/// Returns the error for `find` with OFFSET, which needs an order.
pub(crate) fn find_with_offset_error() -> Error {
    Error::usage_with_hint(
        "rows are found in no order, and OFFSET leaves out the first of one",
        "leave OFFSET out",
    )
}

/// Returns the error for a target error on a query of rows, which has no estimates.
pub(crate) fn target_error_without_estimates_error() -> Error {
    Error::usage_with_hint(
        "`error` is of counts, sums, means and ratios of them, and the query has none",
        "say when to stop: --deadline 7s, --drop 10%, --sample 1% or --find 10",
    )
}

/// Returns the error for a target error with an order-sensitive state, which has no answer until the end.
pub(crate) fn target_error_with_order_sensitive_error() -> Error {
    Error::usage_with_hint(
        "`error` looks at the tables meanwhile, and those of top_k and collect are put together in the end",
        "ask for these in a query of their own; or stop by --deadline, --drop or --sample",
    )
}

/// Returns the error for a deadline that passes before the build sides are read.
pub(crate) fn deadline_before_build_sides_error(sources: &str) -> Error {
    Error::usage_with_hint(
        format!("the deadline has passed, and {sources}, which is joined, has not been read yet"),
        "what is joined is read as a whole before all else: give it more time",
    )
}

/// Returns the error for SUMMARIZE with a stop condition.
pub(crate) fn turbo_summary_error() -> Error {
    Error::usage_with_hint("a summary of columns is of all rows", EXACT_ANSWER_HINT)
}

/// Returns the error for a partial table with a stop condition.
pub(crate) fn turbo_partial_table_error() -> Error {
    Error::usage_with_hint(
        "a table that others are merged with holds all of its input, and cannot end before that",
        EXACT_ANSWER_HINT,
    )
}

/// Minimum bytes of a split that a user can set.
const SPLIT_BYTES_MIN: u64 = 1 << 10;

/// Maximum deadline: a year, which is in effect none.
const DEADLINE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a time with a unit: `7s`, `200ms`, `1.5m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration> {
    let refused = || {
        Error::usage_with_hint(
            format!("`{text}` is no time"),
            "more than nothing, with a unit: 200ms, 7s, 1.5m or 1h",
        )
    };
    let text = text.trim();
    let unit = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(refused)?;
    let (number, unit) = text.split_at(unit);
    let seconds = match unit.trim() {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|_| refused())?;
    match time.is_zero() || time > DEADLINE_MAX {
        true => Err(refused()),
        false => Ok(time),
    }
}

/// Parses a share such as `10%` or `0.1`, greater than 0 and less than 1. A sample may also be the whole
/// input.
fn parse_share(option: &str, text: &str, example: &str) -> Result<f64> {
    let most = if option == "sample" { "at most 100 %" } else { "less than 100 %" };
    let refused = || {
        Error::usage_with_hint(
            format!("`{text}` is no share for `{option}`"),
            format!("more than 0 % and {most}, such as {example}; without `%` it is a part of one"),
        )
    };
    let trimmed = text.trim();
    let (number, scale) = match trimmed.strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (trimmed, 1.0),
    };
    let share = number.parse::<f64>().map_err(|_| refused())? / scale;
    // A sample of 100 % helps users who try several sizes. `1` may mean 1 %, so it is invalid; `1.0` is not.
    let is_all = option == "sample" && share == 1.0 && (scale == 100.0 || number.contains('.'));
    if share > 0.0 && share < 1.0 || is_all { Ok(share) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(option: &str, text: &str) -> Result<TurboSettings> {
        let mut turbo = TurboSettings::default();
        turbo.set_option(option, text).map(|()| turbo)
    }

    #[test]
    fn option_texts_with_units_and_percentages_are_parsed() {
        for (text, ms) in [("7s", 7000), ("200ms", 200), ("1.5m", 90_000), ("1 h", 3_600_000)] {
            assert_eq!(set("deadline", text).unwrap().deadline, Some(Duration::from_millis(ms)));
        }
        for text in ["", "7", "s", "-1s", "0s", "1e99h", "7 days", "NaNs", "1.2.3s", "∞s"] {
            assert!(set("deadline", text).is_err(), "{text}");
        }
        for (text, share) in [("10%", 0.1), ("0.5", 0.5), (" 1 % ", 0.01)] {
            assert_eq!(set("drop", text).unwrap().drop_share, Some(share));
        }
        for text in ["0", "0%", "100%", "1", "-1%", "NaN", "inf", "ten", "%", ""] {
            for option in ["drop", "error", "sample", "confidence"] {
                let is_all = (option, text) == ("sample", "100%");
                assert_eq!(set(option, text).is_ok(), is_all, "{option} {text}");
            }
        }
        let hint = |option| match set(option, "101%") {
            Err(Error::Usage { hint, .. }) => hint.unwrap_or_default(),
            other => panic!("{other:?}"),
        };
        assert!(hint("sample").contains("at most 100 %"), "{}", hint("sample"));
        assert!(hint("drop").contains("less than 100 %"), "{}", hint("drop"));
        assert_eq!(set("split_bytes", "64k").unwrap().split_bytes, Some(64 << 10));
        for text in ["0", "1", "x", "10%"] {
            assert!(set("split_bytes", text).is_err(), "{text}");
        }
        assert_eq!(set("seed", "7").unwrap().seed, Some(7));
        assert!(set("seed", "-7").is_err());
        assert!(set("dead_line", "7s").unwrap_err().to_string().contains("deadline"));
    }

    #[test]
    fn option_texts_round_trip() {
        let all = [
            ("deadline", "7s"),
            ("drop", "12.5%"),
            ("error", "1e-3"),
            ("sample", "100%"),
            ("find", "3"),
            ("seed", "18446744073709551615"),
            ("confidence", "99.9%"),
            ("split_bytes", "3k"),
            ("as_seen", "true"),
            ("no_intervals", "true"),
        ];
        let of = |options: &[(&str, &str)]| {
            let mut turbo = TurboSettings::default();
            options.iter().for_each(|(option, text)| turbo.set_option(option, text).unwrap());
            turbo
        };
        for turbo in [of(&all), of(&all[1..4]), TurboSettings::default()] {
            let texts = turbo.option_texts();
            let texts: Vec<_> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
            assert_eq!(of(&texts), turbo);
        }
        let began = Instant::now().checked_sub(Duration::from_secs(5));
        let left = of(&[of(&all[..1]), TurboSettings { started_at: began, ..of(&all[..1]) }][1]
            .option_texts()
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect::<Vec<_>>());
        assert!(left.deadline.unwrap() <= Duration::from_secs(2));
    }

    #[test]
    fn estimate_options_require_a_stop_condition() {
        assert_eq!(TurboSettings::default().validate().unwrap(), None);
        assert!(set("sample", "1%").unwrap().validate().unwrap().is_some());
        for (option, text) in [("seed", "1"), ("as_seen", "true"), ("confidence", "90%")] {
            let error = set(option, text).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains("exact"), "{error}");
        }
    }
}
