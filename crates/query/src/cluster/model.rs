//! The model of a cluster: its specification, the measurements on this machine, and the forecast from both.
//!
//! ```text
//!   before             reading                       tables                         answer
//!   cut into splits    max(cores, disks, network)    a machine's cores merge,       finished on
//!   on the driver,                                   then all machines' tables      the driver
//!   then build sides                                 on the driver
//!   ──────────────────►──────────────────────────────►──────────────────────────────►
//! ```
//!
//! Reading and computing overlap, so only the slowest of them counts; the other phases follow one another.
//! This module neither measures nor reads a clock: equal figures give equal forecasts.

use std::fmt;

use serde::Serialize;
use tidemill_base::coverage::{format_decimal_bytes, format_grouped_digits};
use tidemill_base::error::{Error, Result};
use tidemill_base::memory_budget::{MemorySize, parse_size};
use tidemill_base::suggestions;

/// Default read rate of a disk in bytes per second: a magnetic disk, read sequentially.
const DISK_BYTES_PER_SECOND: u64 = 200_000_000;

/// Default size of the second input that a forecast covers, beside the input itself.
const TERABYTE: u64 = 1_000_000_000_000;

/// Maximum parallelism of a merge: the number of partitions of a table.
const MERGE_PARALLELISM_MAX: u64 = 16;

/// The keys of a cluster specification.
const CLUSTER_KEYS: [&str; 7] =
    ["cores", "disks", "disk", "machines", "network", "bytes", "groups"];

/// A specification of a cluster: the number of cores and disks, and their speed.
///
/// ```
/// use tidemill_query::ClusterSpec;
///
/// let cluster = ClusterSpec::parse("cores=1000,disks=200,disk=150MB/s,bytes=1TB").unwrap();
/// assert_eq!(cluster.cores, 1000);
/// assert_eq!(cluster.disk_bytes, Some(150_000_000));
/// assert!(ClusterSpec::parse("disks=200").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterSpec {
    /// Number of cores, each as fast as a core of this machine.
    pub cores: u64,
    /// Number of disks, over which the input is spread evenly. `None` leaves disks out of the forecast.
    pub disks: Option<u64>,
    /// Read rate of a disk in bytes per second. Default with disks: 200 MB.
    pub disk_bytes: Option<u64>,
    /// Number of machines, each of which sends one table to the driver. Default: the number of cores.
    pub machines: u64,
    /// Rate of a machine's network link in bytes per second. `None` leaves the network out of the forecast.
    pub network_bytes: Option<u64>,
    /// Size of the input to forecast. Default: the query's own input, and a terabyte.
    pub bytes: Option<u64>,
    /// Number of groups in the whole input. Default: extrapolated from the growth in the sample.
    pub groups: Option<u64>,
}

impl ClusterSpec {
    /// Parses `cores=1000,disks=200,disk=200MB/s,machines=32,network=1.25GB/s,bytes=1TB,groups=1e6`. Every
    /// key except `cores` is optional.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown or repeated key, for an invalid number or size, and if `cores` is
    /// missing.
    pub fn parse(text: &str) -> Result<Self> {
        let mut given: [Option<u64>; CLUSTER_KEYS.len()] = [None; CLUSTER_KEYS.len()];
        for part in text.split(',').map(str::trim) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(Error::usage_with_hint(
                    format!("`{part}` says nothing of a cluster"),
                    "names and values, such as cores=1000,disks=200",
                ));
            };
            let (key, value) = (key.trim(), value.trim());
            let Some(place) = CLUSTER_KEYS.iter().position(|known| *known == key) else {
                return Err(Error::usage(suggestions::unknown_name_message(
                    "cluster key",
                    key,
                    &CLUSTER_KEYS,
                )));
            };
            if given[place].is_some() {
                return Err(Error::usage(format!("`{key}` of the cluster is given twice")));
            }
            given[place] = Some(match key {
                "disk" | "network" => parse_positive_size(
                    value.strip_suffix("/s").unwrap_or(value),
                )
                .ok_or_else(|| {
                    Error::usage_with_hint(
                        format!("`{value}` is no speed for `{key}`"),
                        "bytes in a second, such as 200MB/s or 1.25GB/s",
                    )
                })?,
                "bytes" => parse_positive_size(value).ok_or_else(|| {
                    Error::usage_with_hint(
                        format!("`{value}` is no size for `bytes`"),
                        "at least a byte, such as 500GB or 1TB",
                    )
                })?,
                _ => parse_positive_count(value).ok_or_else(|| {
                    Error::usage_with_hint(
                        format!("`{value}` is no number of {key}"),
                        "a whole number, at least 1, such as 1000 or 1e6",
                    )
                })?,
            });
        }
        let [cores, disks, disk, machines, network, bytes, groups] = given;
        let Some(cores) = cores else {
            return Err(Error::usage_with_hint(
                "a cluster has cores, and how many is not said",
                "for example cores=1000,disks=200",
            ));
        };
        if disk.is_some() && disks.is_none() {
            return Err(Error::usage_with_hint(
                "`disk` says how fast a disk is, and not how many there are",
                "give both: disks=200,disk=200MB/s",
            ));
        }
        if network.is_some() && machines.is_none() {
            return Err(Error::usage_with_hint(
                "`network` is of a machine's link, and how many machines there are is not said",
                "give both: machines=32,network=1.25GB/s",
            ));
        }
        if machines.is_some_and(|machines| machines > cores) {
            return Err(Error::usage(format!(
                "of {} cores there are no {} machines",
                format_grouped_digits(cores),
                format_grouped_digits(machines.unwrap_or(0))
            )));
        }
        Ok(ClusterSpec {
            cores,
            disks,
            disk_bytes: disks.map(|_| disk.unwrap_or(DISK_BYTES_PER_SECOND)),
            machines: machines.unwrap_or(cores),
            network_bytes: network,
            bytes,
            groups,
        })
    }

    /// Returns the specification with another number of cores, and the same ratio of machines to cores.
    fn with_cores(&self, cores: u64) -> Self {
        let machines = u128::from(self.machines) * u128::from(cores) / u128::from(self.cores);
        let machines = u64::try_from(machines).unwrap_or(u64::MAX).clamp(1, cores);
        ClusterSpec { cores, machines, ..self.clone() }
    }
}

/// Parses a size of at least one byte.
fn parse_positive_size(text: &str) -> Option<u64> {
    match parse_size(text) {
        Some(MemorySize::Bytes(bytes)) if bytes > 0 => Some(bytes),
        _ => None,
    }
}

/// Parses an integer of at least 1, such as `1000` or `1e6`; `1,000` is invalid.
fn parse_positive_count(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse::<u64>() {
        return (number > 0).then_some(number);
    }
    let number: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number that was looked at before"
    )]
    ((1.0..1e18).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// The measured costs of a query, over a sample of its own input. Times are those of one core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueryMeasurement {
    /// Bytes of the input; for Parquet, those of the columns that are read.
    pub input_bytes: u64,
    /// Share of the input's stored bytes that belongs to the columns that are read.
    pub column_share: f64,
    /// Bytes of the input that were read for the measurement.
    pub bytes: u64,
    /// Number of splits in the sample, whole or begun.
    pub splits: u64,
    /// Number of rows of the sample above the map.
    pub rows: u64,
    /// Number of groups in the sample.
    pub groups: u64,
    /// Processor time of the measurement, over all threads of the process.
    pub seconds: f64,
    /// Time for each byte.
    pub byte_seconds: f64,
    /// Time for the start of a split. `None` if the time for its bytes includes it, as for files that are
    /// read whole.
    pub start_seconds: Option<f64>,
    /// Time for cutting one split, on the driver.
    pub cut_seconds: f64,
    /// Minimum bytes of a split if the input cannot be cut further; otherwise 0.
    pub split_bytes_min: u64,
    /// Growth exponent of groups: twice the bytes have 2 to the power of `growth` times as many groups. 0 if
    /// the sample has all groups, 1 if every row is a group of its own.
    pub growth: f64,
    /// Bytes of a group in a table that is sent to the driver.
    pub group_bytes: f64,
    /// Time to merge a group into a table.
    pub merge_seconds: f64,
    /// Time for a group from the merged table to its answer.
    pub finish_seconds: f64,
    /// Time to read the build sides, which comes before all else.
    pub held_seconds: f64,
}

/// Fits the time for the start of a split and the time for a byte, from splits of the usual size and tiny
/// ones. Each measurement is (splits, bytes, seconds). The start time is `None` without tiny splits.
pub(super) fn fit_split_costs(
    usual: (u64, u64, f64),
    tiny: Option<(u64, u64, f64)>,
) -> (Option<f64>, f64) {
    let (splits, bytes, seconds) = (usual.0 as f64, usual.1.max(1) as f64, usual.2);
    let whole = seconds / bytes;
    let Some((n, b, s)) = tiny.filter(|(n, ..)| *n > 0) else { return (None, whole) };
    let (n, b) = (n as f64, b as f64);
    // seconds = splits × start + bytes × byte, twice.
    let determinant = splits * b - n * bytes;
    let start = (seconds * b - s * bytes) / determinant;
    let byte = (splits * s - n * seconds) / determinant;
    match start.is_finite() && byte.is_finite() && start >= 0.0 && byte > 0.0 {
        true => (Some(start), byte),
        // The start time is too short to be distinguished from the time for bytes.
        false => (Some(0.0), whole),
    }
}

/// Fits the growth exponent of groups between half of a sample and all of it, each as (bytes, groups).
pub(super) fn fit_group_growth(half: (u64, u64), whole: (u64, u64)) -> f64 {
    let more = |one: u64, other: u64| (other.max(1) as f64 / one.max(1) as f64).ln();
    let bytes = more(half.0, whole.0);
    match bytes > 0.0 {
        true => (more(half.1, whole.1) / bytes).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// The time of each phase of a run, in seconds. The phases of reading overlap.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PhaseSeconds {
    /// Cutting the input into splits, on the driver.
    pub cut: f64,
    /// Reading the build sides, before all else.
    pub held: f64,
    /// Reading: starts of splits, on the cores.
    pub starts: f64,
    /// Reading: bytes, on the cores.
    pub cores: f64,
    /// Reading: bytes, from the disks.
    pub disks: f64,
    /// Reading: bytes, through the machines' links.
    pub network: f64,
    /// Transfer of tables to the driver.
    pub gather: f64,
    /// Merging: of the cores' tables on each machine, and of the machines' tables on the driver.
    pub merge: f64,
    /// Finishing the answers of the groups, on the driver.
    pub finish: f64,
}

impl PhaseSeconds {
    /// Returns the time of reading, in which the slowest resource counts.
    pub fn reading_seconds(&self) -> f64 {
        (self.starts + self.cores).max(self.disks).max(self.network)
    }

    /// Returns the time of all phases.
    pub fn total_seconds(&self) -> f64 {
        self.cut + self.held + self.reading_seconds() + self.gather + self.merge + self.finish
    }
}

/// The bottleneck of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The cores, which parse and aggregate.
    Cores,
    /// The number of splits, which is smaller than that of cores.
    Splits,
    /// The starts of splits.
    Starts,
    /// The disks.
    Disks,
    /// The machines' network links, through which the input comes.
    Network,
    /// Cutting the input, on the driver.
    Cut,
    /// The build sides, which are read first.
    Held,
    /// Merging tables and finishing groups, on the driver.
    Merge,
    /// The bytes of the groups, which pass through one machine's link.
    Groups,
}

impl Bottleneck {
    fn label(self) -> &'static str {
        match self {
            Bottleneck::Cores => "cores",
            Bottleneck::Splits => "splits: fewer than cores",
            Bottleneck::Starts => "starts of splits",
            Bottleneck::Disks => "disks",
            Bottleneck::Network => "network",
            Bottleneck::Cut => "cutting the input",
            Bottleneck::Held => "what is joined",
            Bottleneck::Merge => "merging at one place",
            Bottleneck::Groups => "size of the groups",
        }
    }
}

/// The forecast for an input of one size on one number of cores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioForecast {
    /// Bytes of the input.
    pub bytes: u64,
    /// Bytes of the input that are read: a part of it with `--sample` and `--drop`.
    pub read_bytes: u64,
    /// Number of cores.
    pub cores: u64,
    /// Number of machines.
    pub machines: u64,
    /// Number of splits that are read.
    pub splits: u64,
    /// Number of groups in a table that a machine sends.
    pub table_groups: u64,
    /// Number of groups of the answer.
    pub groups: u64,
    /// The time of each phase.
    pub parts: PhaseSeconds,
    /// The time of all phases, in seconds.
    pub seconds: f64,
    /// The bottleneck: the phase that takes longest.
    pub bound: Bottleneck,
    /// Share of `read_bytes` that is read by the deadline, if there is one.
    pub deadline_share: Option<f64>,
}

/// The part of the input that is read, and the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReadScope {
    /// Share of the bytes that is read: that of `--sample`, without that of `--drop`.
    pub share: f64,
    /// The deadline, in seconds.
    pub deadline_seconds: Option<f64>,
    /// True if the input is cut into fine splits, as for an answer that may rest on a part of it.
    pub is_fine: bool,
    /// Bytes of a split, if the user sets them.
    pub split_bytes: Option<u64>,
}

/// Rounds a number to an integer, at least 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "floats become the nearest number that there is"
)]
fn round_to_integer(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

/// Forecasts an input of `bytes` bytes on a cluster; `target` is the target size of its splits.
pub(super) fn forecast_scenario(
    measured: &QueryMeasurement,
    cluster: &ClusterSpec,
    reading: &ReadScope,
    bytes: u64,
    target: u64,
) -> ScenarioForecast {
    let read = bytes as f64 * reading.share;
    let split_bytes = target.max(measured.split_bytes_min).clamp(1, bytes.max(1));
    let all_splits = bytes.div_ceil(split_bytes).max(1);
    let splits = round_to_integer((all_splits as f64 * reading.share).ceil()).max(1);
    // A core reads whole splits, so the number of rounds counts.
    let rounds = splits.div_ceil(cluster.cores) as f64;
    let each = read / splits as f64;
    let used_cores = cluster.cores.min(splits);
    let machines = cluster.machines.min(used_cores);
    let cores_each = used_cores.div_ceil(machines);
    let groups_of = |bytes: f64| {
        let more = (bytes / measured.bytes.max(1) as f64).powf(measured.growth);
        let found = measured.groups as f64 * more;
        let found = cluster.groups.map_or(found, |known| found.min(known as f64));
        // At least one group if there are any. Without growth there are no more groups than in the sample.
        if measured.groups == 0 { 0.0 } else { found.max(1.0) }
    };
    let core_groups = groups_of(read / used_cores as f64);
    let machine_groups = groups_of(read / machines as f64);
    let groups = cluster.groups.map_or_else(|| groups_of(read), |known| known as f64);
    let on_machine = match cores_each > 1 {
        true => cores_each as f64 * core_groups / cores_each.min(MERGE_PARALLELISM_MAX) as f64,
        false => 0.0,
    };
    let at_one_place = if machines > 1 { machines as f64 * machine_groups } else { 0.0 };
    let per = |rate: u64| read / rate.max(1) as f64;
    let parts = PhaseSeconds {
        cut: all_splits as f64 * measured.cut_seconds,
        held: measured.held_seconds,
        starts: rounds * measured.start_seconds.unwrap_or(0.0),
        cores: rounds * each * measured.byte_seconds,
        disks: cluster
            .disks
            .zip(cluster.disk_bytes)
            .map_or(0.0, |(disks, each)| per(disks.saturating_mul(each))),
        network: cluster
            .network_bytes
            .map_or(0.0, |link| per(link.saturating_mul(cluster.machines))),
        gather: cluster
            .network_bytes
            .map_or(0.0, |link| at_one_place * measured.group_bytes / link.max(1) as f64),
        merge: (on_machine + at_one_place) * measured.merge_seconds,
        finish: groups * measured.finish_seconds,
    };
    let seconds = parts.total_seconds();
    let deadline_share = reading.deadline_seconds.map(|deadline| {
        let left = deadline - (seconds - parts.reading_seconds());
        match parts.reading_seconds() > 0.0 {
            true => (left / parts.reading_seconds()).clamp(0.0, 1.0),
            false => 1.0,
        }
    });
    ScenarioForecast {
        bytes,
        read_bytes: round_to_integer(read),
        cores: cluster.cores,
        machines: cluster.machines,
        splits,
        table_groups: round_to_integer(machine_groups),
        groups: round_to_integer(groups),
        bound: find_bottleneck(&parts, splits < cluster.cores),
        parts,
        seconds,
        deadline_share,
    }
}

/// Returns the phase that takes longest. Phases of reading overlap, so only the slowest of them counts.
fn find_bottleneck(parts: &PhaseSeconds, has_idle_cores: bool) -> Bottleneck {
    let computing = parts.starts + parts.cores;
    let while_reading = if computing >= parts.disks.max(parts.network) {
        match parts.starts > parts.cores {
            true => Bottleneck::Starts,
            false if has_idle_cores => Bottleneck::Splits,
            false => Bottleneck::Cores,
        }
    } else if parts.disks >= parts.network {
        Bottleneck::Disks
    } else {
        Bottleneck::Network
    };
    let others = [
        (Bottleneck::Cut, parts.cut),
        (Bottleneck::Held, parts.held),
        (Bottleneck::Merge, parts.merge + parts.finish),
        (Bottleneck::Groups, parts.gather),
    ];
    let mut found = (while_reading, parts.reading_seconds());
    for other in others {
        if other.1 > found.1 {
            found = other;
        }
    }
    found.0
}

/// The forecast of a query's time on a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterForecast {
    /// The cluster, as the user specified it.
    pub cluster: ClusterSpec,
    /// The part of the input that is read.
    pub reading: ReadScope,
    /// The costs measured on this machine.
    pub measured: QueryMeasurement,
    /// The forecasts for each input size on the given cores, and for the last size on a tenth and on ten
    /// times as many.
    pub outlooks: Vec<ScenarioForecast>,
}

impl ClusterForecast {
    /// Computes the forecasts from the measurements; `target` returns the target split size for an input of a
    /// given size.
    pub(super) fn new(
        cluster: &ClusterSpec,
        reading: ReadScope,
        measured: QueryMeasurement,
        target: impl Fn(u64) -> u64,
    ) -> Self {
        let sizes = match cluster.bytes {
            Some(bytes) => vec![bytes],
            None => vec![measured.input_bytes, TERABYTE],
        };
        let last = sizes.last().copied().unwrap_or(TERABYTE);
        let own = sizes.into_iter().map(|bytes| (bytes, cluster.cores));
        let fewer = (cluster.cores / 10).max(1);
        let others = [fewer, cluster.cores.saturating_mul(10)].into_iter();
        let others = others.filter(|cores| *cores != cluster.cores).map(|cores| (last, cores));
        let outlooks = own.chain(others).map(|(bytes, cores)| {
            forecast_scenario(&measured, &cluster.with_cores(cores), &reading, bytes, target(bytes))
        });
        let outlooks = outlooks.collect();
        ClusterForecast { cluster: cluster.clone(), reading, measured, outlooks }
    }
}

/// Formats a time with a unit.
fn format_time(seconds: f64) -> String {
    match seconds {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{} ns", format_digits(s * 1e9)),
        s if s < 1e-3 => format!("{} µs", format_digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", format_digits(s * 1e3)),
        s if s < 6000.0 => format!("{} s", format_digits(s)),
        s if s < 100.0 * 3600.0 => format!("{} h", format_digits(s / 3600.0)),
        s => format!("{} days", format_digits(s / 86400.0)),
    }
}

/// Formats a number with two or three significant digits.
fn format_digits(number: f64) -> String {
    match number {
        n if n < 9.95 => format!("{n:.1}"),
        n if n < 1e15 => format_grouped_digits(round_to_integer(n)),
        n => format!("{n:.1e}"),
    }
}

/// Formats the rate per second of something that takes `seconds`.
fn format_rate(seconds: f64) -> String {
    if seconds <= 0.0 { "any number".to_owned() } else { format_digits(1.0 / seconds) }
}

fn format_count(count: u64, what: &str) -> String {
    format!("{} {what}{}", format_grouped_digits(count), if count == 1 { "" } else { "s" })
}

impl fmt::Display for ClusterForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, measured) = (&self.cluster, &self.measured);
        write!(f, "cluster: {}", format_count(cluster.cores, "core"))?;
        match (cluster.disks, cluster.disk_bytes) {
            (Some(disks), Some(bytes)) => {
                write!(
                    f,
                    ", {} of {}/s",
                    format_count(disks, "disk"),
                    format_decimal_bytes(bytes)
                )?;
            }
            _ => write!(f, ", disks left out")?,
        }
        match cluster.machines == cluster.cores && cluster.network_bytes.is_none() {
            true => write!(f, ", a table of each core merged at one place")?,
            false => write!(
                f,
                ", {}, a table of each merged at one place",
                format_count(cluster.machines, "machine")
            )?,
        }
        match cluster.network_bytes {
            Some(bytes) => writeln!(f, ", links of {}/s", format_decimal_bytes(bytes))?,
            None => writeln!(f)?,
        }
        writeln!(
            f,
            "measured here: {} of {}, {} rows, {}, in {} of one core",
            format_decimal_bytes(measured.bytes),
            format_count(measured.splits, "split"),
            format_grouped_digits(measured.rows),
            format_count(measured.groups, "group"),
            format_time(measured.seconds),
        )?;
        if measured.column_share < 1.0 {
            writeln!(
                f,
                "  bytes are those of the columns that are read, {} % of what is stored",
                format_digits(measured.column_share * 100.0)
            )?;
        }
        writeln!(
            f,
            "  a core: {}/s; {}",
            format_decimal_bytes(round_to_integer(1.0 / measured.byte_seconds.max(1e-15))),
            match measured.start_seconds {
                Some(seconds) if seconds > 0.0 => format!(
                    "{} starts of splits/s, {} each",
                    format_rate(seconds),
                    format_time(seconds)
                ),
                Some(_) => "starts of splits are too short to be told".to_owned(),
                None => "starts of splits are in it".to_owned(),
            }
        )?;
        writeln!(
            f,
            "  at one place: {}, {} groups merged/s, {} finished/s",
            match measured.cut_seconds > 0.0 {
                true => format!("{} splits cut/s", format_rate(measured.cut_seconds)),
                false => "cuts too short to be told".to_owned(),
            },
            format_rate(measured.merge_seconds),
            format_rate(measured.finish_seconds),
        )?;
        writeln!(
            f,
            "  a group: {} in a table; twice the bytes have {} times as many",
            format_decimal_bytes(round_to_integer(measured.group_bytes)),
            format_args!("{:.2}", measured.growth.exp2()),
        )?;
        if measured.held_seconds > 0.0 {
            writeln!(f, "  what is joined: read first, in {}", format_time(measured.held_seconds))?;
        }
        if self.reading.share < 1.0 {
            writeln!(
                f,
                "  read: {} % of the input, with --sample and --drop",
                format_digits(self.reading.share * 100.0)
            )?;
        }
        self.write_table(f)?;
        self.write_remarks(f)
    }
}

impl ClusterForecast {
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_network = self.cluster.network_bytes.is_some();
        let deadline = self.reading.deadline_seconds;
        let mut heads = vec!["forecast", "cores", "splits", "computing"];
        heads.extend(self.cluster.disks.map(|_| "disks"));
        heads.extend(has_network.then_some("network"));
        heads.extend(["tables", "in all"]);
        let by = deadline.map(|deadline| format!("by {}", format_time(deadline)));
        heads.extend(by.as_deref());
        heads.push("bound by");
        let mut rows = vec![heads.iter().map(ToString::to_string).collect::<Vec<_>>()];
        for outlook in &self.outlooks {
            let parts = &outlook.parts;
            let mut row = vec![
                format_decimal_bytes(outlook.bytes),
                format_grouped_digits(outlook.cores),
                format_grouped_digits(outlook.splits),
                format_time(parts.starts + parts.cores),
            ];
            row.extend(self.cluster.disks.map(|_| format_time(parts.disks)));
            row.extend(has_network.then(|| format_time(parts.network)));
            row.push(format_time(parts.gather + parts.merge + parts.finish));
            row.push(format_time(outlook.seconds));
            row.extend(
                outlook.deadline_share.map(|share| format!("{} %", format_digits(share * 100.0))),
            );
            row.push(outlook.bound.label().to_owned());
            rows.push(row);
        }
        let columns = rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "{cell:<width$}")?,
                    _ if column + 1 == columns => write!(f, "  {cell}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// Writes the costs that the forecast leaves out.
    fn write_remarks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left_out = Vec::new();
        if self.cluster.disks.is_none() {
            left_out.push("disks (disks=…)");
        }
        if self.cluster.network_bytes.is_none() {
            left_out.push("the network (machines=…,network=…)");
        }
        left_out.push("what starts and speaks with the machines");
        if self.reading.share == 1.0 {
            left_out.push("who is slower than others (--drop 10% does not wait for them)");
        }
        writeln!(
            f,
            "It is a forecast: all cores are as this one, and of more cores there are more machines. Left out: {}.",
            left_out.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns measured costs: 100 MB/s a core, 1 ms a start, a million splits cut and a million groups
    /// merged in a second.
    fn measured() -> QueryMeasurement {
        QueryMeasurement {
            input_bytes: 1_000_000_000,
            column_share: 1.0,
            bytes: 100_000_000,
            splits: 100,
            rows: 1_000_000,
            groups: 1000,
            seconds: 1.1,
            byte_seconds: 1e-8,
            start_seconds: Some(1e-3),
            cut_seconds: 1e-6,
            split_bytes_min: 0,
            growth: 0.0,
            group_bytes: 100.0,
            merge_seconds: 1e-6,
            finish_seconds: 0.0,
            held_seconds: 0.0,
        }
    }

    const WHOLE_INPUT: ReadScope =
        ReadScope { share: 1.0, deadline_seconds: None, is_fine: false, split_bytes: None };

    fn forecast_for(
        text: &str,
        measured: &QueryMeasurement,
        bytes: u64,
        target: u64,
    ) -> ScenarioForecast {
        let cluster = ClusterSpec::parse(text).unwrap();
        forecast_scenario(measured, &cluster, &WHOLE_INPUT, bytes, target)
    }

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1e-9)
    }

    #[test]
    fn cluster_text_is_parsed_with_defaults() {
        let cluster = ClusterSpec::parse("cores=1e3, disks=200, machines=50").unwrap();
        assert_eq!((cluster.cores, cluster.disks, cluster.machines), (1000, Some(200), 50));
        assert_eq!(cluster.disk_bytes, Some(200_000_000));
        let cluster = ClusterSpec::parse("cores=8,machines=2,network=1.25GB/s,bytes=1TB").unwrap();
        assert_eq!(cluster.network_bytes, Some(1_250_000_000));
        assert_eq!((cluster.disks, cluster.disk_bytes), (None, None));
        assert_eq!(cluster.bytes, Some(TERABYTE));
        assert_eq!(ClusterSpec::parse("cores=7").unwrap().machines, 7);
    }

    #[test]
    fn invalid_cluster_values_are_rejected() {
        for (text, said) in [
            ("", "says nothing"),
            ("cores", "says nothing"),
            ("cores=1000,", "says nothing"),
            ("disks=200", "how many is not said"),
            ("cores=0", "no number of cores"),
            ("cores=-1", "no number of cores"),
            ("cores=1.5", "no number of cores"),
            ("cores=many", "no number of cores"),
            ("cores=inf", "no number of cores"),
            ("cores=8,disks=0", "no number of disks"),
            ("cores=8,cores=9", "twice"),
            ("coers=8", "cores"),
            ("cores=8,disk=1MB/s", "how many there are"),
            ("cores=8,disks=1,disk=0", "no speed"),
            ("cores=8,disks=1,disk=fast", "no speed"),
            ("cores=8,disks=1,disk=10%", "no speed"),
            ("cores=8,network=1GB/s", "how many machines"),
            ("cores=8,machines=9", "no 9 machines"),
            ("cores=8,bytes=0", "no size"),
            ("cores=8,bytes=50%", "no size"),
            ("cores=8,bytes=1TB/s", "no size"),
        ] {
            let error = ClusterSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn fit_separates_start_cost_from_byte_cost() {
        // 100 splits of a megabyte, and 500 of a kilobyte: 1 ms a start, 10 ns a byte.
        let usual = (100, 100_000_000, 100.0 * 1e-3 + 1.0);
        let tiny = (500, 500_000, 500.0 * 1e-3 + 0.005);
        let (start, byte) = fit_split_costs(usual, Some(tiny));
        assert!(is_close(start.unwrap(), 1e-3) && is_close(byte, 1e-8));
        // Without tiny splits the bytes carry all of the cost.
        assert_eq!(fit_split_costs((1, 1000, 1.0), None), (None, 1e-3));
        // Noise could make the start time negative.
        assert_eq!(
            fit_split_costs((100, 100_000, 1.0), Some((100, 1000, 0.001))),
            (Some(0.0), 1e-5)
        );
    }

    #[test]
    fn group_growth_follows_the_sample() {
        assert!(is_close(fit_group_growth((50, 500), (100, 1000)), 1.0));
        assert!(is_close(fit_group_growth((50, 1000), (100, 1000)), 0.0));
        assert!(is_close(fit_group_growth((25, 500), (100, 1000)), 0.5));
        assert_eq!(fit_group_growth((100, 500), (100, 1000)), 0.0);
        assert_eq!(
            fit_group_growth((0, 0), (100, 1000)).clamp(0.0, 1.0),
            fit_group_growth((0, 0), (100, 1000))
        );
    }

    #[test]
    fn reading_takes_the_slowest_resource_and_tables_follow() {
        let terabyte = TERABYTE;
        // 31,250 splits of 32 MB: 32 rounds of 0.32 s and a start on a thousand cores.
        let found = forecast_for("cores=1000,disks=200", &measured(), terabyte, 32_000_000);
        assert_eq!(found.splits, 31_250);
        assert!(is_close(found.parts.cores, 10.24) && is_close(found.parts.starts, 0.032));
        assert!(is_close(found.parts.disks, 25.0) && is_close(found.parts.cut, 0.031_25));
        // A thousand tables of a thousand groups.
        assert!(is_close(found.parts.merge, 1.0));
        assert!(is_close(found.seconds, 25.0 + 0.031_25 + 1.0));
        assert_eq!(found.bound, Bottleneck::Disks);
        // The cores alone.
        let found = forecast_for("cores=1000", &measured(), terabyte, 32_000_000);
        assert_eq!((found.bound, found.parts.disks), (Bottleneck::Cores, 0.0));
        assert!(is_close(found.seconds, 10.24 + 0.032 + 0.031_25 + 1.0));
    }

    #[test]
    fn each_phase_can_be_the_bottleneck() {
        let check =
            |text: &str, change: &dyn Fn(&mut QueryMeasurement), bytes: u64, target, bound| {
                let mut measured = measured();
                change(&mut measured);
                let found = forecast_for(text, &measured, bytes, target);
                assert_eq!(found.bound, bound, "{text}: {found:?}");
            };
        let same = |_: &mut QueryMeasurement| {};
        check("cores=10", &same, TERABYTE, 32_000_000, Bottleneck::Cores);
        check("cores=1000", &same, 1_000_000_000, 10_000_000, Bottleneck::Splits);
        check("cores=10", &same, TERABYTE, 10_000, Bottleneck::Starts);
        check("cores=1000,disks=10", &same, TERABYTE, 32_000_000, Bottleneck::Disks);
        check(
            "cores=1000,machines=10,network=100MB/s",
            &same,
            TERABYTE,
            32_000_000,
            Bottleneck::Network,
        );
        let slow_cut = |measured: &mut QueryMeasurement| measured.cut_seconds = 0.1;
        check("cores=1000", &slow_cut, TERABYTE, 32_000_000, Bottleneck::Cut);
        let joined = |measured: &mut QueryMeasurement| measured.held_seconds = 60.0;
        check("cores=1000", &joined, TERABYTE, 32_000_000, Bottleneck::Held);
        check("cores=100000", &same, TERABYTE, 4_000_000, Bottleneck::Merge);
        let fat = |measured: &mut QueryMeasurement| measured.group_bytes = 1e6;
        check(
            "cores=1000,machines=100,network=1GB/s",
            &fat,
            TERABYTE,
            32_000_000,
            Bottleneck::Groups,
        );
    }

    #[test]
    fn machines_merge_their_cores_tables_first() {
        let measured = measured();
        let alone = forecast_for("cores=1000,machines=1", &measured, TERABYTE, 32_000_000);
        // A thousand tables in sixteen parts at once, and none on the driver.
        assert!(is_close(alone.parts.merge, 1000.0 * 1000.0 / 16.0 * 1e-6));
        let some = forecast_for("cores=1000,machines=100", &measured, TERABYTE, 32_000_000);
        // Ten tables of a machine, all ten at once, and a hundred on the driver.
        assert!(is_close(some.parts.merge, 1000.0 * 1e-6 + 100.0 * 1000.0 * 1e-6));
    }

    #[test]
    fn growing_groups_are_extrapolated_and_known_groups_are_not() {
        let growing = QueryMeasurement { growth: 1.0, ..measured() };
        let found = forecast_for("cores=100", &growing, TERABYTE, 32_000_000);
        // Ten million in all, a hundred thousand on each core.
        assert_eq!((found.groups, found.table_groups), (10_000_000, 100_000));
        let known = forecast_for("cores=100,groups=50000", &growing, TERABYTE, 32_000_000);
        assert_eq!((known.groups, known.table_groups), (50_000, 50_000));
        let none = QueryMeasurement { groups: 0, ..measured() };
        assert_eq!(forecast_for("cores=100", &none, TERABYTE, 32_000_000).parts.merge, 0.0);
    }

    #[test]
    fn reading_a_share_of_the_input_takes_that_share_of_the_time() {
        let cluster = ClusterSpec::parse("cores=1000").unwrap();
        let reading = ReadScope { share: 0.1, ..WHOLE_INPUT };
        let found = forecast_scenario(&measured(), &cluster, &reading, TERABYTE, 1_000_000);
        assert_eq!((found.read_bytes, found.splits), (100_000_000_000, 100_000));
        assert!(is_close(found.parts.cores, 1.0) && is_close(found.parts.cut, 1.0));
        let reading = ReadScope { deadline_seconds: Some(7.0), ..WHOLE_INPUT };
        let found = forecast_scenario(&measured(), &cluster, &reading, TERABYTE, 1_000_000);
        // 1 s of cutting and 1 s of merging leave five of the eleven that reading takes.
        assert!(is_close(found.deadline_share.unwrap(), 5.0 / 11.0), "{found:?}");
        let reading = ReadScope { deadline_seconds: Some(0.5), ..WHOLE_INPUT };
        let found = forecast_scenario(&measured(), &cluster, &reading, TERABYTE, 1_000_000);
        assert_eq!(found.deadline_share, Some(0.0));
    }

    #[test]
    fn uncuttable_input_keeps_its_split_size() {
        let whole_files = QueryMeasurement { split_bytes_min: 500_000_000, ..measured() };
        let found = forecast_for("cores=10000", &whole_files, TERABYTE, 32_000_000);
        assert_eq!((found.splits, found.bound), (2000, Bottleneck::Splits));
        assert!(is_close(found.parts.cores, 5.0));
        // An input of a few bytes is a split.
        assert_eq!(forecast_for("cores=8", &measured(), 7, 1 << 20).splits, 1);
    }

    #[test]
    fn forecast_text_states_measurements_and_omissions() {
        let cluster = ClusterSpec::parse("cores=1000,disks=200").unwrap();
        let reading = ReadScope { deadline_seconds: Some(7.0), ..WHOLE_INPUT };
        let forecast = ClusterForecast::new(&cluster, reading, measured(), |_| 32_000_000);
        let cores: Vec<_> = forecast.outlooks.iter().map(|it| (it.bytes, it.cores)).collect();
        let gigabyte = 1_000_000_000;
        assert_eq!(
            cores,
            [(gigabyte, 1000), (TERABYTE, 1000), (TERABYTE, 100), (TERABYTE, 10_000)]
        );
        let text = forecast.to_string();
        for said in [
            "cluster: 1,000 cores, 200 disks of 200 MB/s, a table of each core merged at one place",
            "measured here: 100 MB of 100 splits, 1,000,000 rows, 1,000 groups, in 1.1 s of one core",
            "  a core: 100 MB/s; 1,000 starts of splits/s, 1.0 ms each",
            "  at one place: 1,000,000 splits cut/s, 1,000,000 groups merged/s, any number finished/s",
            "  a group: 100 B in a table; twice the bytes have 1.00 times as many",
            "forecast   cores  splits  computing  disks  tables  in all  by 7.0 s  bound by",
            "1.00 TB    1,000  31,250       10 s   25 s   1.0 s    26 s      24 %  disks",
            "Left out: the network (machines=…,network=…); what starts",
            "--drop 10%",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
    }

    #[test]
    fn times_are_formatted_with_units() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (4.2e-8, "42 ns"),
            (4.25e-5, "43 µs"),
            (0.25, "250 ms"),
            (7.0, "7.0 s"),
            (1234.0, "1,234 s"),
            (7200.0, "2.0 h"),
            (864_000.0, "10 days"),
        ] {
            assert_eq!(format_time(seconds), expected);
        }
    }
}
