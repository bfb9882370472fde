//! The coverage of a result: how much of the input was read, rejected or left out, and how accurate each
//! estimate is.

use serde::{Deserialize, Serialize};

use crate::error::{BadRecord, escape_control_chars};
use crate::type_mismatches::TypeMismatches;
use crate::unknown_keys::UnknownKeys;

/// Version of the coverage's JSON form.
pub const COVERAGE_VERSION: u32 = 1;

/// Value of [`Coverage::stopped`] for a run that needed no more rows.
pub const LIMIT_REACHED: &str = "stopped once the limit was reached";

/// Schema metadata key of a result column that holds a bound: `low` or `high`, of the column before both.
pub const BOUND_METADATA_KEY: &str = "tidemill.bound";

/// The coverage that every result carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// The version of this record: 1.
    pub version: u32,
    /// True if the result rests on the whole input, apart from rejected records.
    pub complete: bool,
    /// True if the result came from states that can be merged with others.
    pub mergeable: bool,
    /// Number of files of all sources.
    pub files: u64,
    /// Number of splits of all sources.
    pub splits: ReadAmount,
    /// Stored bytes of all sources.
    pub bytes: ReadAmount,
    /// Records.
    pub rows: RecordCounts,
    /// The reason why reading ended before the end of the input, such as [`LIMIT_REACHED`].
    pub stopped: Option<String>,
    /// The place of the copies of rejected records, if there are any.
    pub rejected_copy: Option<String>,
    /// The accuracy of the estimates, one entry per estimated column.
    pub estimates: Vec<EstimateAccuracy>,
    /// The sample of a result that may rest on a part of the input; `None` for other results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<SamplingCoverage>,
    /// Damaged or truncated files of which salvage has read the intact parts, because the user requested it.
    #[serde(default)]
    pub salvaged: Vec<SalvagedFile>,
    /// Keys of JSON and logfmt records without a column, which were left out.
    #[serde(default, skip_serializing_if = "UnknownKeys::is_empty")]
    pub unknown_keys: UnknownKeys,
    /// Values that became NULL because they do not match their column's type, if the user requested that.
    #[serde(default, skip_serializing_if = "TypeMismatches::is_empty")]
    pub mismatches: TypeMismatches,
    /// The first few malformed records, by file and offset, if the result is incomplete without them. The
    /// JSON form leaves them out.
    #[serde(skip)]
    pub first_rejected: Vec<BadRecord>,
}

/// The part of the input on which a sampled result rests, and how it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingCoverage {
    /// The seed of the sampling order.
    pub seed: u64,
    /// The share of all answers whose confidence intervals contain the true value.
    pub confidence: f64,
    /// True if counts and sums are scaled up to the whole input. They remain those of the rows seen if the
    /// input was read in order, as nothing can be drawn from it, or if the user requested that.
    pub scaled: bool,
    /// The share of the bytes read, from 0 to 1.
    pub share: f64,
    /// Splits that were being read when the run stopped.
    pub in_flight: OmittedSplits,
    /// Splits that could not be read, and those that returned nothing for long. They are not left out at
    /// random, so confidence intervals do not cover them; their bytes are their share of the input.
    pub given_up: OmittedSplits,
    /// The first few files of the given-up splits, with the reasons.
    pub given_up_files: Vec<AbandonedFile>,
    /// Upper bound, with the stated confidence, on the share of splits that contain a group absent from the
    /// result. `None` if the input was read in order or completely, or if the query does not group.
    pub unseen_share: Option<f64>,
    /// Number of CSV splits, among those that could be checked, that began inside a record. Their first
    /// records are wrong, and so may be the values derived from them.
    pub wrong_starts: u64,
    /// The clauses that depend on estimates, so that other groups might pass them: `HAVING`, `QUALIFY`,
    /// `ORDER BY`, `LIMIT`.
    #[serde(default)]
    pub by_estimates: Vec<String>,
    /// Seconds by which the answer missed its deadline; `None` within 0.2 s.
    #[serde(default)]
    pub late_seconds: Option<f64>,
}

/// Splits that contribute nothing to a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedSplits {
    /// Number of splits.
    pub splits: u64,
    /// Their stored bytes, as far as known.
    pub bytes: u64,
}

/// A file with splits that the run gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbandonedFile {
    /// The file.
    pub path: String,
    /// Number of its splits that were given up.
    pub splits: u64,
    /// The reason as text.
    pub reason: String,
}

/// Maximum number of files that [`SamplingCoverage::given_up_files`] names.
pub const ABANDONED_FILES_MAX: usize = 8;

/// The salvaged part of a damaged or truncated file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedFile {
    /// The file.
    pub path: String,
    /// Number of its intact blocks.
    pub blocks: u64,
    /// Number of bytes outside of intact blocks.
    pub bytes_left_out: u64,
    /// Number of damaged places.
    pub places: u64,
    /// Byte offset of the first damaged place.
    pub offset: u64,
    /// The damage at that place.
    pub reason: String,
}

/// The read part of a known total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAmount {
    /// Amount read.
    pub done: u64,
    /// Amount planned.
    pub total: u64,
    /// Amount left out on purpose.
    pub left_out: u64,
}

/// Numbers of records read and rejected; their total is known only after reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordCounts {
    /// Number of records that reached the map.
    pub done: u64,
    /// Number of malformed records.
    pub rejected: u64,
}

/// The accuracy of an estimated column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EstimateAccuracy {
    /// The result's column.
    pub column: String,
    /// The method: `HyperLogLog (log2m 14, regwidth 6)`.
    pub method: String,
    /// True if every group's answer is exact, as those of small groups are.
    pub exact: bool,
    /// The widest confidence interval over all groups as text: `±1.6 % (95 %)`.
    pub interval: String,
    /// The number behind that text; its meaning depends on the method.
    pub error: f64,
}

impl Default for Coverage {
    /// Returns the coverage of an empty input, which is complete.
    fn default() -> Self {
        Coverage {
            version: COVERAGE_VERSION,
            complete: true,
            mergeable: false,
            files: 0,
            splits: ReadAmount::default(),
            bytes: ReadAmount::default(),
            rows: RecordCounts::default(),
            stopped: None,
            rejected_copy: None,
            estimates: Vec::new(),
            sampled: None,
            salvaged: Vec::new(),
            unknown_keys: UnknownKeys::default(),
            mismatches: TypeMismatches::default(),
            first_rejected: Vec::new(),
        }
    }
}

/// Prefix of an interval text if some answers are NULL because they would have been too large.
pub const TOO_LARGE_ESTIMATE_PREFIX: &str = "given up";

impl EstimateAccuracy {
    /// Returns true if some answers are NULL because they would have been too large.
    pub fn has_too_large_answers(&self) -> bool {
        !self.exact && self.interval.starts_with(TOO_LARGE_ESTIMATE_PREFIX)
    }
}

/// Maximum number of estimates in the one-line summary; the JSON form has all of them.
const SUMMARY_ESTIMATES_MAX: usize = 4;

impl Coverage {
    /// Returns a one-line summary for people of the input read and left out.
    pub fn summary_line(&self) -> String {
        let whole = if self.complete { "complete" } else { "INCOMPLETE" };
        let (rows, of_rows) =
            (format_grouped_digits(self.rows.done), if self.rows.done == 1 { "" } else { "s" });
        let (files, of_files) =
            (format_grouped_digits(self.files), if self.files == 1 { "" } else { "s" });
        let mut line = match self.stopped.as_deref() {
            // After a limit is reached, only rows tell how much of a split was read.
            Some(LIMIT_REACHED) => format!(
                "{whole}: limit reached; {rows} row{of_rows} looked at, of {files} file{of_files}{}",
                // The size of a pipe's content is unknown.
                format_known_bytes(" with ", self.bytes.total, self.files, ""),
            ),
            _ => format!(
                "{whole}: {rows} row{of_rows} from {files} file{of_files}{}, {}/{} splits",
                format_known_bytes(" (", self.bytes.done, self.rows.done, ")"),
                format_grouped_digits(self.splits.done),
                format_grouped_digits(self.splits.total),
            ),
        };
        if self.splits.left_out > 0 {
            let s = if self.splits.left_out == 1 { "" } else { "s" };
            line.push_str(&format!(
                ", {} split{s} left out",
                format_grouped_digits(self.splits.left_out)
            ));
        }
        if self.rows.rejected > 0 {
            let s = if self.rows.rejected == 1 { "" } else { "s" };
            line.push_str(&format!(
                ", {} record{s} rejected",
                format_grouped_digits(self.rows.rejected)
            ));
            if let Some(path) = &self.rejected_copy {
                line.push_str(&format!(" (kept in {path})"));
            }
        }
        if !self.mismatches.is_empty() {
            let count = self.mismatches.count();
            let values =
                if count == 1 { "value of another type is" } else { "values of another type are" };
            line.push_str(&format!(", {} {values} null", format_grouped_digits(count)));
        }
        if let Some(why) = self.stopped.as_deref().filter(|why| *why != LIMIT_REACHED) {
            line.push_str(&format!(", {why}"));
        }
        if let Some(sampled) = &self.sampled {
            sampled.append_summary(&mut line, self.complete);
        }
        if let Some(first) = self.salvaged.first() {
            let (of, and_more) = match self.salvaged.len() {
                1 => (String::new(), String::new()),
                files => (
                    format!(" of {} files", format_grouped_digits(files as u64)),
                    " and others".to_owned(),
                ),
            };
            let bytes = self.salvaged.iter().map(|file| file.bytes_left_out).sum();
            line.push_str(&format!(
                ", {}{of} left out (`{}` from byte {}: {}{and_more})",
                format_decimal_bytes(bytes),
                first.path,
                first.offset,
                first.reason,
            ));
        }
        let estimates: Vec<&EstimateAccuracy> =
            self.estimates.iter().filter(|estimate| !estimate.exact).collect();
        for estimate in estimates.iter().take(SUMMARY_ESTIMATES_MAX) {
            line.push_str(&format!(", {} {}", estimate.column, estimate.interval));
        }
        if let Some(more) =
            estimates.len().checked_sub(SUMMARY_ESTIMATES_MAX).filter(|more| *more > 0)
        {
            line.push_str(&format!(", {} more are estimates", format_grouped_digits(more as u64)));
        }
        // Names of columns and files may contain anything; the summary must stay one line.
        escape_control_chars(&line, &[])
    }
}

/// Formats a size between `before` and `behind`. Returns an empty text if the size is 0 although `of` things
/// exist: then it is unknown.
fn format_known_bytes(before: &str, bytes: u64, of: u64, behind: &str) -> String {
    match (bytes, of) {
        (0, 1..) => String::new(),
        _ => format!("{before}{}{behind}", format_decimal_bytes(bytes)),
    }
}

impl SamplingCoverage {
    fn append_summary(&self, line: &mut String, is_complete: bool) {
        if let Some(late) = self.late_seconds {
            line.push_str(&format!(", {late:.1} s after the deadline"));
        }
        if !is_complete && !self.scaled {
            line.push_str(", numbers are those of what was seen");
        }
        if let Some(first) = self.given_up_files.first() {
            let s = if self.given_up.splits == 1 { "" } else { "s" };
            line.push_str(&format!(
                ", {} split{s} given up (`{}`: {}{})",
                format_grouped_digits(self.given_up.splits),
                escape_control_chars(&first.path, &[]),
                escape_control_chars(&first.reason, &[]),
                if self.given_up_files.len() > 1 { "; and others" } else { "" },
            ));
        }
        if self.wrong_starts > 0 {
            line.push_str(&format!(
                ", {} splits began inside a record",
                format_grouped_digits(self.wrong_starts)
            ));
        }
        if let Some(share) = self.unseen_share {
            line.push_str(&format!(
                ", a group that is not here is in less than {} of the splits ({})",
                format_percent(share),
                format_confidence(self.confidence),
            ));
        }
        if let (Some((last, others)), false) = (self.by_estimates.split_last(), is_complete) {
            let (others, and) = (others.join(", "), if others.is_empty() { "" } else { " and " });
            let s = if others.is_empty() { "es" } else { "" };
            line.push_str(&format!(", {others}{and}{last} go{s} by estimates"));
        }
    }
}

/// Formats a confidence level in percent, with all its digits: `95 %`, `99.9999 %`.
pub fn format_confidence(share: f64) -> String {
    // Fewer digits could round it to 100 %, as if no error were possible.
    let mut rounded = (6..=13).map(|digits| {
        let scale = 10_f64.powi(digits);
        (share * 100.0 * scale).round() / scale
    });
    let is_told = |percent: &f64| *percent > 0.0 && *percent < 100.0;
    format!("{} %", rounded.find(is_told).unwrap_or(share * 100.0))
}

/// Formats a share as percent with two digits: `1.5 %`.
pub fn format_percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent >= 9.95 => format!("{percent:.0} %"),
        _ if percent >= 0.995 => format!("{percent:.1} %"),
        _ => format!("{percent:.2} %"),
    }
}

/// Formats a count with thousands separators: `10,103,280`.
pub fn format_grouped_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size for people in decimal units: `932 MB`.
pub fn format_decimal_bytes(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 999.5 && unit + 1 < units.len() {
        size /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if size < 9.995 => format!("{size:.2} {}", units[unit]),
        _ if size < 99.95 => format!("{size:.1} {}", units[unit]),
        _ => format!("{size:.0} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Coverage, LIMIT_REACHED, ReadAmount, RecordCounts, format_confidence, format_decimal_bytes,
        format_grouped_digits,
    };

    #[test]
    fn unknown_size_is_left_out_of_summary() {
        let line = |bytes, rows, stopped: Option<&str>| {
            let coverage = Coverage {
                files: 1,
                bytes: ReadAmount { done: bytes, total: bytes, left_out: 0 },
                rows: RecordCounts { done: rows, rejected: 0 },
                stopped: stopped.map(str::to_owned),
                ..Coverage::default()
            };
            coverage.summary_line()
        };
        for (bytes, rows, stopped, expected) in [
            (10, 2, None, "complete: 2 rows from 1 file (10 B), 0/0 splits"),
            (0, 0, None, "complete: 0 rows from 1 file (0 B), 0/0 splits"),
            (0, 2, None, "complete: 2 rows from 1 file, 0/0 splits"),
            (
                10,
                2,
                Some(LIMIT_REACHED),
                "complete: limit reached; 2 rows looked at, of 1 file with 10 B",
            ),
            (0, 2, Some(LIMIT_REACHED), "complete: limit reached; 2 rows looked at, of 1 file"),
        ] {
            assert_eq!(line(bytes, rows, stopped), expected);
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (10_103_280, "10,103,280")]
        {
            assert_eq!(format_grouped_digits(number), expected);
        }
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (99_960, "100 kB"),
            (932_000_000, "932 MB"),
            (999_700_000, "1.00 GB"),
        ] {
            assert_eq!(format_decimal_bytes(bytes), expected);
        }
        for (share, expected) in [
            (0.95, "95 %"),
            (0.999_999, "99.9999 %"),
            (0.999_999_999_999, "99.9999999999 %"),
            (1e-12, "0.0000000001 %"),
        ] {
            assert_eq!(format_confidence(share), expected);
        }
    }
}
