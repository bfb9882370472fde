//! Reports from the job log: the list of runs, one run in full, the largest consumers of processor time, and
//! the comparison of two groups of runs.
//!
//! Each report is a structure for programs (`Serialize`) and a text for people (`Display`).

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::error::{Error, Result};
use serde::Serialize;
use tidemill_base::coverage::{format_decimal_bytes, format_grouped_digits};
use tidemill_base::state_folder::RunId;
use tidemill_base::suggestions;
use unicode_width::UnicodeWidthStr;

use crate::job_log::{DamagedRecords, JobLog};
use crate::run_record::{RunOutcome, RunRecord};
use crate::time_period::{TimePeriod, format_date_time, format_iso};

/// Number of consecutive older runs after which reading stops. The log is in the order in which runs ended,
/// except for wrong clocks and processes that were slow to write.
const OLD_RUNS_MAX: u32 = 1000;

/// Maximum length of the text of a mapper or reducer in a table, in characters.
const TEXT_CHARS_MAX: usize = 72;

/// Selects the runs to list.
#[derive(Debug, Clone)]
pub struct RunFilter {
    /// Period of their start times.
    pub period: TimePeriod,
    /// Name of their job.
    pub name: Option<String>,
    /// Maximum number of runs.
    pub count_max: usize,
}

/// A run with derived figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedRun {
    /// Start time in ISO 8601.
    pub start: String,
    /// Processor time in seconds.
    pub vcore_seconds: f64,
    /// Memory over time, in 10⁹ byte-seconds.
    pub memory_gb_seconds: f64,
    /// The record in the log.
    #[serde(flatten)]
    pub record: RunRecord,
}

impl From<RunRecord> for ListedRun {
    fn from(record: RunRecord) -> Self {
        ListedRun {
            start: format_iso(record.start_us),
            vcore_seconds: micros_to_seconds(record.cpu_us()),
            memory_gb_seconds: to_billions(record.memory_byte_seconds),
            record,
        }
    }
}

/// The newest runs, newest first.
#[derive(Debug, Clone, Serialize)]
pub struct RunListing {
    /// The runs.
    pub runs: Vec<ListedRun>,
    /// Damaged records that were skipped.
    #[serde(skip)]
    pub damage: DamagedRecords,
}

/// Lists the last runs of a log.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] for a record of a newer version.
pub fn list_runs(log: &JobLog, filter: &RunFilter) -> Result<RunListing> {
    let mut runs = Vec::new();
    let name = filter.name.as_deref();
    let damage = visit_runs(log, filter.period, name, |record| {
        runs.push(ListedRun::from(record));
        runs.len() < filter.count_max
    })?;
    Ok(RunListing { runs, damage })
}

/// Visits the runs of a period from newest to oldest, of one job or of all, as long as `take` returns true.
fn visit_runs(
    log: &JobLog,
    period: TimePeriod,
    name: Option<&str>,
    mut take: impl FnMut(RunRecord) -> bool,
) -> Result<DamagedRecords> {
    let mut back = log.read_backwards()?;
    // The name as it stands in the JSON, so that runs of other jobs are not parsed.
    let pattern = name.map(|name| serde_json::Value::from(name).to_string());
    let wanted = |json: &[u8]| {
        pattern.as_ref().is_none_or(|name| memchr::memmem::find(json, name.as_bytes()).is_some())
    };
    let mut old = 0;
    while let Some(record) = back.next_matching(wanted)? {
        old = if record.end_us() < period.from_us { old + 1 } else { 0 };
        if old > OLD_RUNS_MAX {
            break;
        }
        let is_named = name.is_none_or(|name| record.name.as_deref() == Some(name));
        if is_named && period.contains(record.start_us) && !take(record) {
            break;
        }
    }
    Ok(back.damage().clone())
}

/// One run in full.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    /// The run.
    #[serde(flatten)]
    pub run: ListedRun,
    /// Damaged records that were skipped.
    #[serde(skip)]
    pub damage: DamagedRecords,
}

/// Returns the run called `id`: its name, a prefix of it, or the last eight digits.
///
/// # Errors
/// [`Error::Usage`] if no run or more than one matches; otherwise as [`list_runs`].
pub fn show_run(log: &JobLog, id: &str) -> Result<RunSummary> {
    let (mut runs, damage) = find_runs_by_id(log, &[id])?;
    match runs.pop() {
        Some(record) => Ok(RunSummary { run: record.into(), damage }),
        None => Err(Error::Internal("a run was found and lost".to_owned())),
    }
}

/// Returns whether a word names a run and not a job.
fn is_run_id(word: &str) -> bool {
    let is_end =
        word.len() == 8 && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let start = "20260101T000000-00000000";
    let is_start = (15..=24).contains(&word.len())
        && start.get(word.len()..).is_some_and(|rest| {
            // A prefix that is completed with zeros is a whole name.
            word.is_ascii() && format!("{word}{rest}").parse::<RunId>().is_ok()
        });
    is_end || is_start
}

/// Returns the runs that the words name, in the order of the words.
fn find_runs_by_id(log: &JobLog, words: &[&str]) -> Result<(Vec<RunRecord>, DamagedRecords)> {
    if let Some(word) = words.iter().find(|word| !is_run_id(word)) {
        return Err(Error::usage_with_hint(
            format!("`{word}` is not a run"),
            "a run is called like `20261120T212055-1a2b3c4d`; its beginning with the time, or \
             its last eight digits, will do",
        ));
    }
    let mut found: Vec<Vec<RunRecord>> = vec![Vec::new(); words.len()];
    let mut back = log.read_backwards()?;
    let finders: Vec<_> = words.iter().map(|word| memchr::memmem::Finder::new(*word)).collect();
    let wanted = |json: &[u8]| finders.iter().any(|finder| finder.find(json).is_some());
    while let Some(record) = back.next_matching(wanted)? {
        for (word, found) in words.iter().zip(&mut found) {
            let is_it = record.id.starts_with(word)
                || (word.len() == 8 && record.id.ends_with(&format!("-{word}")));
            if is_it {
                found.push(record.clone());
            }
        }
        // A whole name occurs once; a shorter one may match several runs.
        if words.iter().zip(&found).all(|(word, found)| word.len() == 24 && !found.is_empty()) {
            break;
        }
    }
    let one = |(word, mut found): (&&str, Vec<RunRecord>)| match (found.pop(), found.first()) {
        (Some(record), None) => Ok(record),
        (Some(record), Some(other)) => Err(Error::usage_with_hint(
            format!("`{word}` is more than one run: `{}`, `{}`", record.id, other.id),
            "give more of its name",
        )),
        (None, _) => Err(Error::usage_with_hint(
            format!("there is no run `{word}` in the job log"),
            "tidemill jobs list shows the last ones",
        )),
    };
    let runs = words.iter().zip(found).map(one).collect::<Result<_>>()?;
    Ok((runs, back.damage().clone()))
}

/// The largest consumers of processor time in a period.
#[derive(Debug, Clone, Serialize)]
pub struct TopCpuReport {
    /// Start of the period in ISO 8601.
    pub since: String,
    /// Number of runs.
    pub runs: u64,
    /// Their processor time in seconds.
    pub vcore_seconds: f64,
    /// Mappers and reducers by processor time, most first.
    pub entries: Vec<TopCpuEntry>,
    /// Damaged records that were skipped.
    #[serde(skip)]
    pub damage: DamagedRecords,
}

/// A mapper, a reducer or the remainder in a [`TopCpuReport`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopCpuEntry {
    /// `map`, `tables`, `query` (a run without separate steps) or `other`.
    pub kind: &'static str,
    /// The mapper or the reducer.
    pub text: String,
    /// The names of its jobs, if they have names.
    pub names: Vec<String>,
    /// Number of runs with it.
    pub runs: u64,
    /// Processor time in seconds.
    pub vcore_seconds: f64,
    /// Its share of the whole period's processor time, 0 to 1.
    pub share: f64,
    /// Stored bytes read, for steps that read.
    pub bytes_in: Option<u64>,
}

/// Text of the entry for work outside of steps.
const OTHER_ENTRY_TEXT: &str =
    "planning, finishing and writing, and runs that never came to their steps";

/// Returns the mappers and reducers that took the most processor time, at most `count` of them, and the
/// remainder.
///
/// # Errors
/// As [`list_runs`].
pub fn top_cpu_consumers(log: &JobLog, period: TimePeriod, count: usize) -> Result<TopCpuReport> {
    #[derive(Default)]
    struct Sum {
        names: BTreeSet<String>,
        runs: u64,
        cpu_us: u64,
        bytes_in: Option<u64>,
    }
    let mut sums: HashMap<(&'static str, String), Sum> = HashMap::new();
    let (mut runs, mut total_us) = (0, 0u64);
    let damage = visit_runs(log, period, None, |record| {
        runs += 1;
        total_us += record.cpu_us();
        let mut left_us = record.cpu_us();
        let mut add = |kind: &'static str, text: &str, cpu_us: u64, bytes_in: Option<u64>| {
            let sum = sums.entry((kind, text.to_owned())).or_default();
            sum.names.extend(record.name.clone());
            sum.runs += 1;
            sum.cpu_us += cpu_us;
            if let Some(bytes) = bytes_in {
                *sum.bytes_in.get_or_insert(0) += bytes;
            }
        };
        let mapper = record.mapper.as_deref().unwrap_or("SELECT * FROM source");
        for step in &record.steps {
            // The clock of the process is coarser than that of the steps.
            let cpu_us = step.cpu_us.map(|cpu_us| cpu_us.min(left_us));
            match (step.name.as_str(), cpu_us) {
                ("map", Some(cpu_us)) => add("map", mapper, cpu_us, step.bytes_in),
                ("tables" | "merge", Some(cpu_us)) => {
                    let text = record.reducer.as_deref().unwrap_or_default();
                    let bytes_in = step.bytes_in;
                    add("tables", text, cpu_us, bytes_in);
                }
                ("plan", _) => add("query", mapper, left_us, step.bytes_in),
                _ => continue,
            }
            left_us -= cpu_us.unwrap_or(left_us);
        }
        if left_us > 0 {
            add("other", OTHER_ENTRY_TEXT, left_us, None);
        }
        true
    })?;
    let mut entries: Vec<TopCpuEntry> = sums
        .into_iter()
        .map(|((kind, text), sum)| TopCpuEntry {
            kind,
            text,
            names: sum.names.into_iter().collect(),
            runs: sum.runs,
            vcore_seconds: micros_to_seconds(sum.cpu_us),
            share: if total_us > 0 { sum.cpu_us as f64 / total_us as f64 } else { 0.0 },
            bytes_in: sum.bytes_in,
        })
        .collect();
    entries.sort_by(|a, b| {
        let by_cpu = b.vcore_seconds.total_cmp(&a.vcore_seconds);
        by_cpu.then_with(|| (a.kind, &a.text).cmp(&(b.kind, &b.text)))
    });
    // The remainder is always included.
    let other = entries.iter().position(|entry| entry.kind == "other").map(|at| entries.remove(at));
    entries.truncate(count);
    entries.extend(other.map(|other| TopCpuEntry { names: Vec::new(), ..other }));
    let since = format_iso(period.from_us);
    Ok(TopCpuReport { since, runs, vcore_seconds: micros_to_seconds(total_us), entries, damage })
}

/// A group of runs in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunGroup {
    /// The group as the user named it.
    pub label: String,
    /// The runs, newest first.
    pub runs: Vec<String>,
    /// Number of runs without a complete result.
    pub not_done: u64,
}

/// Mean, minimum and maximum of a figure over the runs of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FigureSpread {
    /// The mean.
    pub mean: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

/// A figure of two groups of runs, and its change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedFigure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The figure of the first group; `None` if no run has it.
    pub a: Option<FigureSpread>,
    /// The figure of the second group.
    pub b: Option<FigureSpread>,
    /// Difference of the second group's mean and the first group's; negative for a decrease.
    pub change: Option<f64>,
    /// The difference as a share of the first group's mean.
    pub change_share: Option<f64>,
    /// True if every run of one group is above every run of the other. False for one run each, because a
    /// single pair cannot exclude chance.
    pub is_apart: bool,
}

/// The comparison of two groups of runs.
#[derive(Debug, Clone, Serialize)]
pub struct RunComparison {
    /// The first group.
    pub a: RunGroup,
    /// The second group.
    pub b: RunGroup,
    /// The figures.
    pub figures: Vec<ComparedFigure>,
    /// Notes on how to read the figures.
    pub notes: Vec<String>,
    /// Damaged records that were skipped.
    #[serde(skip)]
    pub damage: DamagedRecords,
}

/// Compares one run, or group of runs, with another. A group is a comma list of runs, a job's name, or a
/// job's name, `@` and a [`TimePeriod`].
///
/// # Errors
/// [`Error::Usage`] for a group that is invalid or has no runs; otherwise as [`list_runs`].
pub fn compare_runs(log: &JobLog, a: &str, b: &str) -> Result<RunComparison> {
    let (a_runs, mut damage) = find_run_group(log, a)?;
    let (b_runs, b_damage) = find_run_group(log, b)?;
    if b_damage.count > damage.count {
        damage = b_damage;
    }
    let figures: Vec<ComparedFigure> = COMPARED_FIGURES
        .iter()
        .map(|(name, unit, of)| {
            let (a, b) = (figure_spread(&a_runs, of), figure_spread(&b_runs, of));
            let change = a.zip(b).map(|(a, b)| b.mean - a.mean);
            let share = change.zip(a).filter(|(_, a)| a.mean > 0.0);
            let are_several = a_runs.len() > 1 && b_runs.len() > 1;
            ComparedFigure {
                name,
                unit,
                a,
                b,
                change,
                change_share: share.map(|(change, a)| change / a.mean),
                is_apart: are_several
                    && a.zip(b).is_some_and(|(a, b)| a.max < b.min || b.max < a.min),
            }
        })
        .collect();
    let groups = [(a, &a_runs), (b, &b_runs)].map(|(label, runs)| RunGroup {
        label: label.to_owned(),
        runs: runs.iter().map(|run| run.id.clone()).collect(),
        not_done: runs.iter().filter(|run| run.outcome != RunOutcome::Done).count() as u64,
    });
    let mut notes = Vec::new();
    for group in groups.iter().filter(|group| group.not_done > 0) {
        notes.push(format!(
            "{} of the runs of `{}` did not end with a whole result",
            group.not_done, group.label
        ));
    }
    let read = figures.iter().find(|figure| figure.name == "rows in");
    if read.and_then(|figure| figure.change_share).is_some_and(|share| share.abs() > 0.01) {
        notes.push(
            "the groups did not read the same amount: the figures per GB or per million rows \
             are the ones to compare"
                .to_owned(),
        );
    }
    let shared = a_runs.iter().filter(|run| b_runs.iter().any(|other| other.id == run.id)).count();
    if shared > 0 {
        notes.push(format!("{shared} of the runs are in both groups"));
    }
    let [a, b] = groups;
    Ok(RunComparison { a, b, figures, notes, damage })
}

type FigureValue = fn(&RunRecord) -> Option<f64>;

const COMPARED_FIGURES: [(&str, &str, FigureValue); 9] = [
    ("vcore-seconds", "s", |run| Some(micros_to_seconds(run.cpu_us()))),
    ("memory-seconds", "GB·s", |run| Some(to_billions(run.memory_byte_seconds))),
    ("wall", "s", |run| Some(micros_to_seconds(run.wall_us))),
    ("peak memory", "B", |run| Some(run.memory_peak_bytes as f64)),
    ("bytes in", "B", |run| run.bytes_in().map(|bytes| bytes as f64)),
    ("bytes out", "B", |run| run.bytes_out().map(|bytes| bytes as f64)),
    ("rows in", "", |run| run.rows_in().map(|rows| rows as f64)),
    ("vcore-seconds per GB in", "s", |run| {
        let bytes = run.bytes_in().filter(|bytes| *bytes > 0)?;
        Some(micros_to_seconds(run.cpu_us()) / to_billions(bytes))
    }),
    ("vcore-seconds per million rows", "s", |run| {
        let rows = run.rows_in().filter(|rows| *rows > 0)?;
        Some(micros_to_seconds(run.cpu_us()) / (rows as f64 / 1e6))
    }),
];

fn figure_spread(runs: &[RunRecord], of: &FigureValue) -> Option<FigureSpread> {
    let values: Vec<f64> = runs.iter().filter_map(of).collect();
    if values.is_empty() {
        return None;
    }
    Some(FigureSpread {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

fn find_run_group(log: &JobLog, text: &str) -> Result<(Vec<RunRecord>, DamagedRecords)> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Err(Error::usage("a group of runs is empty"));
    }
    if words.iter().all(|word| is_run_id(word)) {
        return find_runs_by_id(log, &words);
    }
    // A name may contain `@`; the text after the last one is a period.
    let (name, period) = match text.rsplit_once('@') {
        Some((name, period)) => (name, TimePeriod::parse(period)?),
        None => (text, TimePeriod::ALL_TIME),
    };
    let mut runs = Vec::new();
    let damage = visit_runs(log, period, Some(name), |record| {
        if record.outcome == RunOutcome::Done {
            runs.push(record);
        }
        true
    })?;
    if !runs.is_empty() {
        return Ok((runs, damage));
    }
    let mut names = BTreeSet::new();
    let mut left = 10_000;
    visit_runs(log, TimePeriod::ALL_TIME, None, |record| {
        names.extend(record.name);
        left -= 1;
        left > 0
    })?;
    if names.contains(name) {
        return Err(Error::usage_with_hint(
            format!("no run of `{name}` in the job log ended well in that time"),
            format!("tidemill jobs list --name '{name}' shows its runs"),
        ));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let hint = "a group is a run, a comma list of runs, a job's name, or NAME@PERIOD";
    if names.is_empty() {
        let message = format!("no job called `{name}` is in the job log");
        return Err(Error::usage_with_hint(message, hint));
    }
    Err(Error::usage_with_hint(suggestions::unknown_name_message("job", name, &names), hint))
}

fn micros_to_seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn to_billions(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Formats a duration in seconds with three digits.
fn format_seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{} s", format_rounded(s)),
        s if s >= 9.995 => format!("{s:.1} s"),
        s if s >= 0.9995 => format!("{s:.2} s"),
        s => format!("{:.0} ms", s * 1000.0),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure that is shown without a fraction"
)]
fn format_rounded(value: f64) -> String {
    format_grouped_digits(value.max(0.0).round() as u64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size that is shown with three digits"
)]
fn format_figure(value: f64, unit: &str) -> String {
    match unit {
        "B" => format_decimal_bytes(value.max(0.0) as u64),
        "s" => format_seconds(value),
        "" => format_rounded(value),
        unit if value < 0.001 && value > 0.0 => format!("{:.1}e-3 {unit}", value * 1000.0),
        unit => format!("{value:.3} {unit}"),
    }
}

/// Joins a text to one line without control characters, and shortens it to `width` characters.
fn shorten_to_line(text: &str, width: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= width {
        return line;
    }
    let mut line: String = line.chars().take(width.saturating_sub(1)).collect();
    line.push('…');
    line
}

/// Writes rows in columns of minimal width. The columns `right` are aligned to the right.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>], right: &[usize]) -> fmt::Result {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.width())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column].saturating_sub(cell.width()));
            let gap = if column > 0 { "  " } else { "" };
            match right.contains(&column) {
                true => line.push_str(&format!("{gap}{padding}{cell}")),
                false => line.push_str(&format!("{gap}{cell}{padding}")),
            }
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

fn text_or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

impl fmt::Display for RunListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["run", "start", "wall", "CPU", "memory", "in", "rows in", "outcome", "what"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for ListedRun { record, .. } in &self.runs {
            let what = record.name.as_ref().or(record.mapper.as_ref()).or(record.reducer.as_ref());
            rows.push(vec![
                record.id.clone(),
                format_date_time(record.start_us),
                format_seconds(micros_to_seconds(record.wall_us)),
                format_seconds(micros_to_seconds(record.cpu_us())),
                format_decimal_bytes(record.memory_peak_bytes),
                text_or_dash(record.bytes_in().map(format_decimal_bytes)),
                text_or_dash(record.rows_in().map(format_grouped_digits)),
                record.outcome.name().to_owned(),
                format!(
                    "{}: {}",
                    record.verb,
                    shorten_to_line(what.map_or("", String::as_str), TEXT_CHARS_MAX / 2)
                ),
            ]);
        }
        write_table(f, &rows, &[2, 3, 4, 5, 6])
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListedRun { record, .. } = &self.run;
        let mut line = |name: &str, text: &str| {
            // Continuation lines are indented below their entry.
            let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
            writeln!(f, "{name:<9} {}", text.trim_end().replace('\n', "\n          "))
        };
        line("run", &record.id)?;
        if let Some(name) = &record.name {
            line("name", name)?;
        }
        line("verb", &format!("{} ({}, tidemill {})", record.verb, record.via, record.version))?;
        let mut outcome = record.outcome.name().to_owned();
        for why in record.error.iter().chain(&record.stopped) {
            outcome.push_str(&format!(": {why}"));
        }
        line("outcome", &outcome)?;
        line("start", &format!("{} UTC", format_date_time(record.start_us)))?;
        line("wall", &format_seconds(micros_to_seconds(record.wall_us)))?;
        line(
            "CPU",
            &format!(
                "{} ({} user, {} system), {} thread{}",
                format_seconds(micros_to_seconds(record.cpu_us())),
                format_seconds(micros_to_seconds(record.cpu_user_us)),
                format_seconds(micros_to_seconds(record.cpu_system_us)),
                record.threads,
                if record.threads == 1 { "" } else { "s" },
            ),
        )?;
        line(
            "memory",
            &format!(
                "{} at most of {}; {} over time",
                format_decimal_bytes(record.memory_peak_bytes),
                format_decimal_bytes(record.memory_limit_bytes),
                format_figure(to_billions(record.memory_byte_seconds), "GB·s"),
            ),
        )?;
        if record.spilled_bytes > 0 {
            line("spilled", &format_decimal_bytes(record.spilled_bytes))?;
        }
        let rejected = match record.rejected {
            0 => String::new(),
            1 => ", 1 record rejected".to_owned(),
            count => format!(", {} records rejected", format_grouped_digits(count)),
        };
        if record.splits_total > 0 || record.rejected > 0 {
            let (done, total) = (
                format_grouped_digits(record.splits_done),
                format_grouped_digits(record.splits_total),
            );
            line("splits", &format!("{done}/{total}{rejected}"))?;
        }
        for source in &record.sources {
            line("source", source)?;
        }
        if let Some(mapper) = &record.mapper {
            line("mapper", mapper)?;
        }
        if let Some(reducer) = &record.reducer {
            line("tables", reducer)?;
        }
        if let Some(output) = &record.output {
            line("output", output)?;
        }
        if !record.command.is_empty() {
            line("command", &quote_shell_words(&record.command))?;
        }
        if record.steps.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let head = ["step", "CPU", "bytes in", "rows in", "rows out", "bytes out"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for step in &record.steps {
            rows.push(vec![
                step.name.clone(),
                text_or_dash(step.cpu_us.map(|us| format_seconds(micros_to_seconds(us)))),
                text_or_dash(step.bytes_in.map(format_decimal_bytes)),
                text_or_dash(step.rows_in.map(format_grouped_digits)),
                text_or_dash(step.rows_out.map(format_grouped_digits)),
                text_or_dash(step.bytes_out.map(format_decimal_bytes)),
            ]);
        }
        write_table(f, &rows, &[1, 2, 3, 4, 5])?;
        write_workers(f, record)
    }
}

/// Writes the workers, each with a timeline. The height of a timeline column is the busy share of that part
/// of the run.
fn write_workers(f: &mut fmt::Formatter<'_>, record: &RunRecord) -> fmt::Result {
    if record.workers.is_empty() {
        return Ok(());
    }
    writeln!(f)?;
    let time = format!("at work, from 0 to {}", format_seconds(micros_to_seconds(record.wall_us)));
    let head = ["worker", "tasks", "lost", "bytes in", "CPU", &time];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for worker in &record.workers {
        rows.push(vec![
            shorten_to_line(&worker.name, TEXT_CHARS_MAX / 2),
            format_grouped_digits(worker.tasks),
            text_or_dash((worker.lost > 0).then(|| format_grouped_digits(worker.lost))),
            format_decimal_bytes(worker.bytes_in),
            format_seconds(micros_to_seconds(worker.cpu_us)),
            format_timeline(&worker.busy_ms, record.wall_us / 1000),
        ]);
    }
    write_table(f, &rows, &[1, 2, 3, 4])
}

/// Number of columns of a timeline.
const TIMELINE_COLUMNS: u64 = 32;

/// Draws the busy share of each part of `wall_ms` for consecutive spans.
fn format_timeline(spans: &[(u64, u64)], wall_ms: u64) -> String {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let wall_ms = wall_ms.max(1);
    let height = |column: u64| {
        let part = |column: u64| wall_ms as f64 * column as f64 / TIMELINE_COLUMNS as f64;
        let (from, to) = (part(column), part(column + 1));
        let busy = spans
            .iter()
            .map(|(began, ended)| ((*ended as f64).min(to) - (*began as f64).max(from)).max(0.0));
        let share = (busy.sum::<f64>() / (to - from)).clamp(0.0, 1.0);
        // Any work is visible.
        HEIGHTS[(share * 8.0).ceil() as usize]
    };
    (0..TIMELINE_COLUMNS).map(height).collect::<String>().trim_end().to_owned()
}

/// Joins words, quoted as a shell needs them.
fn quote_shell_words(words: &[String]) -> String {
    let plain = |word: &String| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./:=,@%+".contains(c))
    };
    let quoted = words.iter().map(|word| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

impl fmt::Display for TopCpuReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} run{} since {}, {} of CPU",
            format_grouped_digits(self.runs),
            if self.runs == 1 { "" } else { "s" },
            self.since.get(..16).unwrap_or(&self.since).replace('T', " "),
            format_seconds(self.vcore_seconds),
        )?;
        if self.entries.is_empty() {
            return Ok(());
        }
        let head = ["share", "CPU", "runs", "in", "step", "what"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for entry in &self.entries {
            let names = match entry.names.is_empty() {
                true => String::new(),
                false => {
                    format!("{}: ", shorten_to_line(&entry.names.join(", "), TEXT_CHARS_MAX / 2))
                }
            };
            rows.push(vec![
                format!("{:.1}%", entry.share * 100.0),
                format_seconds(entry.vcore_seconds),
                format_grouped_digits(entry.runs),
                text_or_dash(entry.bytes_in.map(format_decimal_bytes)),
                entry.kind.to_owned(),
                format!("{names}{}", shorten_to_line(&entry.text, TEXT_CHARS_MAX)),
            ]);
        }
        write_table(f, &rows, &[0, 1, 2, 3])
    }
}

impl fmt::Display for RunComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, group) in [("A", &self.a), ("B", &self.b)] {
            let count = group.runs.len() as u64;
            let s = if count == 1 { "" } else { "s" };
            writeln!(
                f,
                "{letter}: {} ({} run{s})",
                shorten_to_line(&group.label, TEXT_CHARS_MAX),
                format_grouped_digits(count)
            )?;
        }
        writeln!(f)?;
        let cell = |spread: Option<FigureSpread>, unit: &str| {
            text_or_dash(spread.map(|spread| {
                let mean = format_figure(spread.mean, unit);
                match spread.min < spread.max {
                    true => format!(
                        "{mean} ({} … {})",
                        format_figure(spread.min, unit),
                        format_figure(spread.max, unit)
                    ),
                    false => mean,
                }
            }))
        };
        let mut rows = vec![["", "A", "B", "change", ""].map(str::to_owned).to_vec()];
        for figure in &self.figures {
            let change = match (figure.change, figure.change_share) {
                (Some(0.0), _) => "same".to_owned(),
                (Some(change), share) => {
                    let sign = if change < 0.0 { "−" } else { "+" };
                    let share = share.map(|share| format!(" ({sign}{:.1}%)", share.abs() * 100.0));
                    format!(
                        "{sign}{}{}",
                        format_figure(change.abs(), figure.unit),
                        share.unwrap_or_default()
                    )
                }
                (None, _) => "-".to_owned(),
            };
            rows.push(vec![
                figure.name.to_owned(),
                cell(figure.a, figure.unit),
                cell(figure.b, figure.unit),
                change,
                if figure.is_apart { "apart" } else { "" }.to_owned(),
            ]);
        }
        write_table(f, &rows, &[1, 2, 3])?;
        let mut notes = self.notes.clone();
        if self.a.runs.len() > 1 || self.b.runs.len() > 1 {
            notes.push("each figure is the mean per run, with the least and the most".to_owned());
        }
        notes.push(match self.a.runs.len() > 1 && self.b.runs.len() > 1 {
            true => "apart: every run of one group is above every run of the other".to_owned(),
            false => "one run says nothing of chance: compare several of each".to_owned(),
        });
        for note in notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_log::LOG_BYTES_MAX_DEFAULT;
    use crate::job_log::tests::test_log;
    use crate::run_record::tests::sample_record;
    use crate::run_record::{RunStep, RunWorker};

    #[test]
    fn timeline_height_is_the_busy_share() {
        assert_eq!(format_timeline(&[], 1000), "");
        assert_eq!(format_timeline(&[(0, 3200)], 3200), "█".repeat(32));
        assert_eq!(format_timeline(&[(0, 100), (150, 200), (299, 300)], 3200), "█▄▁");
        // A run without elapsed time, and spans after its end.
        assert_eq!(format_timeline(&[(0, 1)], 0).chars().count(), 32);
        assert_eq!(format_timeline(&[(5000, 6000)], 3200), "");
    }

    #[test]
    fn workers_are_shown_with_a_timeline() {
        let mut record = sample_record(&id(1), START_US);
        record.wall_us = 3_200_000;
        let worker = |name: &str, lost, busy_ms: Vec<(u64, u64)>| RunWorker {
            name: name.to_owned(),
            tasks: busy_ms.len() as u64,
            lost,
            bytes_in: 3_000_000,
            cpu_us: 1_200_000,
            busy_ms,
        };
        record.workers =
            vec![worker("one:17", 0, vec![(0, 1600)]), worker("two:18", 2, vec![(0, 50)])];
        let shown =
            RunSummary { run: record.into(), damage: DamagedRecords::default() }.to_string();
        let lines: Vec<&str> = shown.lines().rev().take(3).collect();
        assert_eq!(lines[2].split_whitespace().take(6).last(), Some("CPU"));
        assert!(lines[2].ends_with("at work, from 0 to 3.20 s"), "{shown}");
        assert!(lines[1].starts_with("one:17") && lines[1].ends_with(&"█".repeat(16)), "{shown}");
        assert!(lines[0].contains(" 2 ") && lines[0].ends_with("▄"), "{shown}");
    }

    const DAY_US: u64 = 86_400_000_000;
    /// 2026-11-10T00:00:00Z
    const START_US: u64 = 1_794_268_800_000_000;

    fn id(number: u64) -> String {
        format!("20261110T000000-{number:08x}")
    }

    /// Appends ten runs, a day apart, of two jobs alternately; the later ones take half the time.
    fn append_ten_runs(log: &JobLog) {
        for number in 0..10 {
            let mut record = sample_record(&id(number), START_US + number * DAY_US);
            if number % 2 == 1 {
                record.name = Some("errors".to_owned());
                record.mapper = Some("SELECT status\n  FROM source".to_owned());
            }
            if number >= 5 {
                record.cpu_user_us /= 2;
                record.wall_us = 500_000 + number;
            }
            log.append(&record).unwrap();
        }
    }

    #[test]
    fn list_shows_the_last_runs_of_a_period_and_a_name() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        append_ten_runs(&log);
        let listed = |from_us, name: Option<&str>, last| {
            let period = TimePeriod { from_us, ..TimePeriod::ALL_TIME };
            let filter = RunFilter { period, name: name.map(str::to_owned), count_max: last };
            let listing = list_runs(&log, &filter).unwrap();
            listing.runs.into_iter().map(|run| run.record.id).collect::<Vec<_>>()
        };
        assert_eq!(listed(0, None, 2), [id(9), id(8)]);
        assert_eq!(listed(0, Some("errors"), 2), [id(9), id(7)]);
        assert_eq!(listed(START_US + 8 * DAY_US, None, 20), [id(9), id(8)]);
        assert_eq!(listed(0, Some("other"), 2), Vec::<String>::new());
    }

    #[test]
    fn clock_errors_hide_no_run_and_old_runs_are_not_read() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        let append = |number, start_us| log.append(&sample_record(&id(number), start_us)).unwrap();
        // The newest run comes last. The oldest would be found if reading went that far.
        append(0, START_US);
        (1..=u64::from(OLD_RUNS_MAX) + 1).for_each(|number| append(number, 0));
        append(5000, START_US);
        append(5001, 0);
        append(5002, START_US);
        let filter = RunFilter {
            period: TimePeriod { from_us: 1 << 30, ..TimePeriod::ALL_TIME },
            name: None,
            count_max: 20,
        };
        let found: Vec<String> =
            list_runs(&log, &filter).unwrap().runs.into_iter().map(|run| run.record.id).collect();
        assert_eq!(found, [id(5002), id(5000)]);
    }

    #[test]
    fn a_run_is_found_by_its_name_its_beginning_or_its_end() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        append_ten_runs(&log);
        for word in ["20261110T000000-00000003", "00000003"] {
            assert_eq!(show_run(&log, word).unwrap().run.record.id, id(3), "{word}");
        }
        let fails = |word: &str| show_run(&log, word).unwrap_err().to_string();
        assert!(fails("20261110T000000").contains("is more than one run"));
        assert!(fails("20261110T000000-0000000f").contains("there is no run"));
        for word in
            ["", "visitors", "2026", "20261110X000000", "20261110T000000-0000000g", "é0000000"]
        {
            assert!(fails(word).contains("is not a run"), "{word}");
        }
    }

    #[test]
    fn top_divides_the_whole_among_mappers_reducers_and_the_rest() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        append_ten_runs(&log);
        let mut engine = sample_record(&id(10), START_US + 10 * DAY_US);
        engine.steps = vec![RunStep { name: "plan".to_owned(), ..RunStep::default() }];
        engine.mapper = Some("SELECT a JOIN b".to_owned());
        log.append(&engine).unwrap();
        let found = top_cpu_consumers(&log, TimePeriod::ALL_TIME, 20).unwrap();
        assert_eq!(found.runs, 11);
        let share: f64 = found.entries.iter().map(|entry| entry.share).sum();
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        let sum: f64 = found.entries.iter().map(|entry| entry.vcore_seconds).sum();
        assert!((sum - found.vcore_seconds).abs() < 1e-6);
        let kinds: Vec<&str> = found.entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, ["map", "map", "tables", "query", "other"]);
        assert_eq!(found.entries[2].names, ["errors", "visitors"]);
        // The remainder is included, however small `count` is.
        let found = top_cpu_consumers(&log, TimePeriod::ALL_TIME, 1).unwrap();
        assert_eq!(found.entries.len(), 2);
        assert!(found.to_string().contains("other"), "{found}");
        let nothing =
            top_cpu_consumers(&log, TimePeriod { from_us: u64::MAX, to_us: u64::MAX }, 1).unwrap();
        assert_eq!((nothing.runs, nothing.entries.len()), (0, 0));
    }

    #[test]
    fn two_groups_are_compared_with_their_spread() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        append_ten_runs(&log);
        let found =
            compare_runs(&log, "visitors@2026-11-10..2026-11-15", "visitors@2026-11-15..").unwrap();
        assert_eq!((found.a.runs.len(), found.b.runs.len()), (3, 2));
        let cpu = &found.figures[0];
        assert!((cpu.a.unwrap().mean - 1.6).abs() < 1e-9);
        assert!((cpu.change.unwrap() + 0.75).abs() < 1e-9);
        assert!(cpu.is_apart);
        let wall = found.figures.iter().find(|figure| figure.name == "wall").unwrap();
        assert_eq!(wall.b.unwrap().min, 0.500_006);
        assert!(found.to_string().contains("1.60 s"), "{found}");
        let ids = format!("{},{}", id(0), id(2));
        let found = compare_runs(&log, &ids, &id(0)).unwrap();
        assert!(!found.figures[0].is_apart);
        assert_eq!(found.notes, ["1 of the runs are in both groups"]);
    }

    #[test]
    fn a_group_without_runs_says_what_there_is() {
        let temp = tempfile::tempdir().unwrap();
        let log = test_log(temp.path(), LOG_BYTES_MAX_DEFAULT);
        let fails = |group: &str| compare_runs(&log, group, group).unwrap_err().to_string();
        assert!(fails("visitors").contains("no job called `visitors`"));
        append_ten_runs(&log);
        assert!(fails("visitor").contains("did you mean `visitors`?"), "{}", fails("visitor"));
        assert!(fails("visitors@2020-01-01").contains("ended well in that time"));
        assert!(fails("visitors@soon").contains("`soon` is not a time"));
        assert!(fails(",").contains("empty"));
        let mut failed = sample_record(&id(20), START_US + 20 * DAY_US);
        failed.name = Some("hopeless".to_owned());
        failed.outcome = RunOutcome::Failed;
        log.append(&failed).unwrap();
        assert!(fails("hopeless").contains("ended well"));
        let found = compare_runs(&log, &id(20), &id(0)).unwrap();
        assert!(found.notes[0].contains("did not end with a whole result"));
    }

    #[test]
    fn figures_are_written_for_people() {
        for (value, unit, expected) in [
            (0.0123, "s", "12 ms"),
            (1.2345, "s", "1.23 s"),
            (12.34, "s", "12.3 s"),
            (12_345.6, "s", "12,346 s"),
            (0.25, "GB·s", "0.250 GB·s"),
            (0.000_25, "GB·s", "0.2e-3 GB·s"),
            (1500.0, "B", "1.50 kB"),
            (1500.0, "", "1,500"),
        ] {
            assert_eq!(format_figure(value, unit), expected);
        }
        assert_eq!(shorten_to_line("a\n  b\u{1b}[1m c", 20), "a b[1m c");
        assert_eq!(shorten_to_line("abcdef", 4), "abc…");
        assert_eq!(
            quote_shell_words(&["a".into(), "b c".into(), "it's".into()]),
            "a 'b c' 'it'\\''s'"
        );
    }
}
