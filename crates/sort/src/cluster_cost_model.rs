//! Cost model of a sort on a cluster: a fan-out sort against a shuffle of N × M pieces.
//!
//! The model is the one that Quantcast published with its sort, for 10 TB in 10,000 tasks on each side
//! on 2,500 drives; input read and output written are left out, as there. Per byte of the input:
//!
//! | | shuffle | fan-out |
//! | --- | --- | --- |
//! | written by map tasks | 1 | `copies` |
//! | merged by map tasks | 2 a pass | |
//! | read by the shuffle, or by the sorter | 1 | 1 |
//! | written by reduce tasks, or as runs | 1 | `parity` |
//! | read for the last merge | 1 | 1 |
//! | seeks | one a piece: `maps` × `reduces` | one for each `run_bytes` of a run |
//! | through the core switch | 1 | `switch_bytes` |
//!
//! Two parameters are not published and had to be fitted: `run_bytes` = 10 MB, which follows from the 8
//! seconds of seeks (runs are "well over 1 MB"), and `switch_bytes` = 2.3, which follows from the 184
//! seconds and depends on where in the racks copies and stripes are. `parity` = 1.5 and one merge pass
//! are published, as terms of the sums. The cost of repeating a failed task ("hours" and "minutes")
//! is not modelled.

use std::fmt;

use crate::error::{Error, Result};

/// Parameters of a cluster and of a sort on it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ClusterSortModel {
    /// Number of records. Default: 10^11.
    pub record_count: f64,
    /// Bytes of each record. Default: 100.
    pub record_bytes: f64,
    /// Map tasks. Default: 10,000.
    pub map_tasks: f64,
    /// Reduce tasks. Default: 10,000.
    pub reduce_tasks: f64,
    /// Drives. Default: 2,500.
    pub drives: f64,
    /// Time of a seek in milliseconds. Default: 20.
    pub seek_ms: f64,
    /// Throughput of a drive in bytes a second. Default: 50 MB.
    pub drive_rate: f64,
    /// Bytes of each run that the last merge reads at once. Default: 10 MB.
    pub run_bytes: f64,
    /// Number of copies of the fanned-out records. Default: 2.
    pub fan_out_copies: f64,
    /// Bytes written for each byte of a run. Default: 1.5.
    pub parity: f64,
    /// Merge passes of the map tasks of the shuffle. Default: 1.
    pub merge_passes: f64,
    /// Throughput of the core switch in bytes a second. Default: 125 GB.
    pub switch_rate: f64,
    /// Bytes through the core switch for each byte sorted by the fan-out. Default: 2.3.
    pub switch_bytes: f64,
}

impl Default for ClusterSortModel {
    fn default() -> Self {
        ClusterSortModel {
            record_count: 1e11,
            record_bytes: 100.0,
            map_tasks: 10_000.0,
            reduce_tasks: 10_000.0,
            drives: 2500.0,
            seek_ms: 20.0,
            drive_rate: 50e6,
            run_bytes: 10e6,
            fan_out_copies: 2.0,
            parity: 1.5,
            merge_passes: 1.0,
            switch_rate: 125e9,
            switch_bytes: 2.3,
        }
    }
}

/// Cost of one of the two methods.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterSortCost {
    /// Seeks of all drives.
    pub seeks: f64,
    /// Time of the seeks in seconds, with all drives working.
    pub seek_seconds: f64,
    /// Bytes read and written.
    pub disk_bytes: f64,
    /// Time of the disk transfers in seconds, with all drives working.
    pub disk_seconds: f64,
    /// Bytes through the core switch.
    pub switch_bytes: f64,
    /// Time of the transfers through the switch in seconds.
    pub switch_seconds: f64,
}

impl ClusterSortModel {
    /// Parses `records=1e9,size=100,…`; parameters that are not named have their defaults. Numbers may have
    /// the units k, M, G, T and P, thousands each.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for unknown names, and for values that are no numbers or not above zero.
    pub fn parse(text: &str) -> Result<Self> {
        let mut model = ClusterSortModel::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(Error::invalid_option(
                    format!("`{part}` is no parameter of the model"),
                    "write `name=number`",
                ));
            };
            let mut fields = model.named_fields();
            let names: Vec<_> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
            let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name.trim())
            else {
                let hint = format!("one of {}", names.join(", "));
                return Err(Error::invalid_option(
                    format!("unknown parameter `{}` of the model", name.trim()),
                    hint,
                ));
            };
            **field = parse_positive_number(value.trim()).ok_or_else(|| {
                Error::invalid_option(
                    format!("`{}` is no number for `{}`", value.trim(), name.trim()),
                    "give one above zero, as `1e9`, `10M` or `0.5`",
                )
            })?;
        }
        Ok(model)
    }

    fn named_fields(&mut self) -> [(&'static str, &mut f64); 13] {
        [
            ("records", &mut self.record_count),
            ("size", &mut self.record_bytes),
            ("maps", &mut self.map_tasks),
            ("reduces", &mut self.reduce_tasks),
            ("drives", &mut self.drives),
            ("seek_ms", &mut self.seek_ms),
            ("drive_rate", &mut self.drive_rate),
            ("run_bytes", &mut self.run_bytes),
            ("copies", &mut self.fan_out_copies),
            ("parity", &mut self.parity),
            ("merge_passes", &mut self.merge_passes),
            ("switch_rate", &mut self.switch_rate),
            ("switch_bytes", &mut self.switch_bytes),
        ]
    }

    /// Returns the total size of the records.
    pub fn total_bytes(&self) -> f64 {
        self.record_count * self.record_bytes
    }

    fn compute_cost(&self, seeks: f64, disk_bytes: f64, switch_bytes: f64) -> ClusterSortCost {
        ClusterSortCost {
            seeks,
            seek_seconds: seeks * self.seek_ms / 1000.0 / self.drives,
            disk_bytes,
            disk_seconds: disk_bytes / (self.drives * self.drive_rate),
            switch_bytes,
            switch_seconds: switch_bytes / self.switch_rate,
        }
    }

    /// Returns the cost of a shuffle: map tasks write a run for each reduce task, which fetches its piece
    /// from each.
    pub fn shuffle_cost(&self) -> ClusterSortCost {
        let bytes = self.total_bytes();
        self.compute_cost(
            self.map_tasks * self.reduce_tasks,
            bytes * (4.0 + 2.0 * self.merge_passes),
            bytes,
        )
    }

    /// Returns the cost of a fan-out: map tasks append to partitions, sorters cut these into runs, reduce
    /// tasks merge the runs.
    pub fn fan_out_cost(&self) -> ClusterSortCost {
        let bytes = self.total_bytes();
        self.compute_cost(
            bytes / self.run_bytes,
            bytes * (self.fan_out_copies + 2.0 + self.parity),
            bytes * self.switch_bytes,
        )
    }
}

fn parse_positive_number(text: &str) -> Option<f64> {
    let units = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)];
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (digits, factor) = unit.unwrap_or((text, &1.0));
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value > 0.0).then_some(value)
}

fn format_bytes(bytes: f64) -> String {
    let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.3} {name}", bytes / unit),
        None => format!("{bytes:.0} B"),
    }
}

fn format_seconds(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.0} s") } else { format!("{seconds:.3} s") }
}

impl fmt::Display for ClusterSortModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shuffle, fan_out) = (self.shuffle_cost(), self.fan_out_cost());
        writeln!(
            f,
            "{} in {:.0} map and {:.0} reduce tasks, {:.0} drives; input and output left out",
            format_bytes(self.total_bytes()),
            self.map_tasks,
            self.reduce_tasks,
            self.drives
        )?;
        let mut row = |name: &str, a: String, b: String| writeln!(f, "{name:<16} {a:>24} {b:>24}");
        row("", "shuffle of N × M".to_owned(), "fan-out".to_owned())?;
        let pair = |amount: String, seconds: f64| format!("{amount}, {}", format_seconds(seconds));
        let seeks = |cost: &ClusterSortCost| pair(format!("{:.2e}", cost.seeks), cost.seek_seconds);
        let disk = |cost: &ClusterSortCost| pair(format_bytes(cost.disk_bytes), cost.disk_seconds);
        let switch =
            |cost: &ClusterSortCost| pair(format_bytes(cost.switch_bytes), cost.switch_seconds);
        row("disk seeks", seeks(&shuffle), seeks(&fan_out))?;
        row("disk bytes", disk(&shuffle), disk(&fan_out))?;
        row("core switch", switch(&shuffle), switch(&fan_out))?;
        write!(
            f,
            "fitted to the published figures: run_bytes (10 MB) and switch_bytes (2.3); given now: {} and {}",
            format_bytes(self.run_bytes),
            self.switch_bytes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterSortModel;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.005 * b
    }

    #[test]
    fn published_table_is_reproduced() {
        let model = ClusterSortModel::default();
        let (shuffle, fan_out) = (model.shuffle_cost(), model.fan_out_cost());
        assert!(close(shuffle.seek_seconds, 800.0) && close(fan_out.seek_seconds, 8.0));
        assert!(close(shuffle.disk_bytes, 60e12) && close(shuffle.disk_seconds, 480.0));
        assert!(close(fan_out.disk_bytes, 55e12) && close(fan_out.disk_seconds, 440.0));
        assert!(close(shuffle.switch_seconds, 80.0) && close(fan_out.switch_seconds, 184.0));
        let two = ClusterSortModel::parse("merge_passes=2").unwrap().shuffle_cost();
        assert!(close(two.disk_bytes, 80e12) && close(two.disk_seconds, 640.0));
        let text = model.to_string();
        for figure in ["800 s", "8 s", "60.000 TB, 480 s", "55.000 TB, 440 s", "80 s", "184 s"] {
            assert!(text.contains(figure), "{text}");
        }
    }

    #[test]
    fn parameters_are_parsed_and_mistakes_are_named() {
        let model =
            ClusterSortModel::parse("records=1e9, size=0.2k,drives=10,drive_rate=150M").unwrap();
        assert_eq!(
            (model.record_count, model.record_bytes, model.drives, model.drive_rate),
            (1e9, 200.0, 10.0, 150e6)
        );
        for (text, part) in [
            ("seeks=1", "`seek_ms`"),
            ("size", "name=number"),
            ("size=x", "no number"),
            ("maps=0", "above zero"),
            ("maps=inf", "no number"),
        ] {
            let error = ClusterSortModel::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
