//! What a result rests on: how much of the input was read, what was rejected or left out,
//! and how good each estimate is.

use serde::{Deserialize, Serialize};

use crate::error::BadRecord;

/// The version of the JSON form.
pub const VERSION: u32 = 1;

/// Why reading ended early where no more rows were wanted.
pub const LIMIT_REACHED: &str = "stopped once the limit was reached";

/// The account that every result carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// The version of this record: 1.
    pub version: u32,
    /// Whether the result rests on the whole input, rejected records apart.
    pub complete: bool,
    /// Whether the result came from states that can be merged with others.
    pub mergeable: bool,
    /// Files of all sources.
    pub files: u64,
    /// Splits of all sources.
    pub splits: Amount,
    /// Stored bytes of all sources.
    pub bytes: Amount,
    /// Records.
    pub rows: RowAmount,
    /// Why reading ended before the end of the input, where it did: [`LIMIT_REACHED`].
    pub stopped: Option<String>,
    /// Where copies of rejected records are, if there are any.
    pub rejected_copy: Option<String>,
    /// How good the estimates are, one entry per estimated column.
    pub estimates: Vec<Estimate>,
    /// Files that are damaged or were cut off and of which only the whole parts were read, because
    /// that was asked for.
    #[serde(default)]
    pub salvaged: Vec<Salvaged>,
    /// The first few malformed records, by file and offset, where the result is incomplete for them. The
    /// JSON form is without them.
    #[serde(skip)]
    pub first_rejected: Vec<BadRecord>,
}

/// What was read of a file that is not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salvaged {
    /// The file.
    pub path: String,
    /// Its whole blocks.
    pub blocks: u64,
    /// Bytes that belong to none of them.
    pub bytes_left_out: u64,
    /// How many places are damaged.
    pub places: u64,
    /// Where the first of them is, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub reason: String,
}

/// How much of a known total was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Read.
    pub done: u64,
    /// Planned.
    pub total: u64,
    /// Left out on purpose.
    pub left_out: u64,
}

/// Records read and refused; their total is known only by reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowAmount {
    /// Records that reached the map.
    pub done: u64,
    /// Malformed records.
    pub rejected: u64,
}

/// How far an estimated column may be off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The result's column.
    pub column: String,
    /// The method: `HyperLogLog (log2m 14, regwidth 6)`.
    pub method: String,
    /// Whether every group's answer is exact, as small groups' are.
    pub exact: bool,
    /// The widest interval over all groups, in words: `±1.6 % (95 %)`.
    pub interval: String,
    /// The number behind the words; its meaning is the method's.
    pub error: f64,
}

impl Default for Coverage {
    /// Of nothing, and so complete.
    fn default() -> Self {
        Coverage {
            version: VERSION,
            complete: true,
            mergeable: false,
            files: 0,
            splits: Amount::default(),
            bytes: Amount::default(),
            rows: RowAmount::default(),
            stopped: None,
            rejected_copy: None,
            estimates: Vec::new(),
            salvaged: Vec::new(),
            first_rejected: Vec::new(),
        }
    }
}

/// How an interval begins where an answer is null because it would have been too large.
pub const GIVEN_UP: &str = "given up";

impl Estimate {
    /// Whether some answers are null because they would have been too large.
    pub fn is_given_up(&self) -> bool {
        !self.exact && self.interval.starts_with(GIVEN_UP)
    }
}

/// So many estimates are in the one line; all are in what is written as JSON.
const ESTIMATES_SAID: usize = 4;

impl Coverage {
    /// One line for people: what was read, what was not.
    pub fn one_line(&self) -> String {
        let whole = if self.complete { "complete" } else { "INCOMPLETE" };
        let (rows, of_rows) = (grouped(self.rows.done), if self.rows.done == 1 { "" } else { "s" });
        let (files, of_files) = (grouped(self.files), if self.files == 1 { "" } else { "s" });
        let mut line = match self.stopped.as_deref() {
            // How much of a split was read when no more rows were wanted is known in rows alone.
            Some(LIMIT_REACHED) => format!(
                "{whole}: limit reached; {rows} row{of_rows} looked at, of {files} file{of_files} with {}",
                human_bytes(self.bytes.total),
            ),
            _ => format!(
                "{whole}: {rows} row{of_rows} from {files} file{of_files} ({}), {}/{} splits",
                human_bytes(self.bytes.done),
                grouped(self.splits.done),
                grouped(self.splits.total),
            ),
        };
        if self.splits.left_out > 0 {
            line.push_str(&format!(", {} splits left out", grouped(self.splits.left_out)));
        }
        if self.rows.rejected > 0 {
            let s = if self.rows.rejected == 1 { "" } else { "s" };
            line.push_str(&format!(", {} record{s} rejected", grouped(self.rows.rejected)));
            if let Some(path) = &self.rejected_copy {
                line.push_str(&format!(" (kept in {path})"));
            }
        }
        if let Some(why) = self.stopped.as_deref().filter(|why| *why != LIMIT_REACHED) {
            line.push_str(&format!(", {why}"));
        }
        if let Some(first) = self.salvaged.first() {
            let (of, and_more) = match self.salvaged.len() {
                1 => (String::new(), String::new()),
                files => (format!(" of {} files", grouped(files as u64)), " and others".to_owned()),
            };
            let bytes = self.salvaged.iter().map(|file| file.bytes_left_out).sum();
            line.push_str(&format!(
                ", {}{of} left out (`{}` from byte {}: {}{and_more})",
                human_bytes(bytes),
                first.path,
                first.offset,
                first.reason,
            ));
        }
        let estimates: Vec<&Estimate> =
            self.estimates.iter().filter(|estimate| !estimate.exact).collect();
        for estimate in estimates.iter().take(ESTIMATES_SAID) {
            line.push_str(&format!(", {} {}", estimate.column, estimate.interval));
        }
        if let Some(more) = estimates.len().checked_sub(ESTIMATES_SAID).filter(|more| *more > 0) {
            line.push_str(&format!(", {} more are estimates", grouped(more as u64)));
        }
        line
    }
}

/// A count with thousands separators: `10,103,280`.
pub fn grouped(number: u64) -> String {
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

/// A size as people read it, in decimal units: `932 MB`.
pub fn human_bytes(bytes: u64) -> String {
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
    use super::{grouped, human_bytes};

    #[test]
    fn numbers_are_written_for_people() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (10_103_280, "10,103,280")]
        {
            assert_eq!(grouped(number), expected);
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
            assert_eq!(human_bytes(bytes), expected);
        }
    }
}
