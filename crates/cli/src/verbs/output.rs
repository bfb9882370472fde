//! Where a result goes, and what is said about it.

use std::io::IsTerminal;

use tidemill_engine::coverage_file::CoverageFile;
use tidemill_engine::running::{Preparation, Running, deliver};
use tidemill_engine::sink::{OutputFormat, SinkSpec, Written};
use tidemill_engine::{Coverage, Error, Result, coverage};

use super::{Outcome, print, program};
use crate::args::{SinkArgs, WriteArgs};
use crate::terminal::{self, Bar};

impl SinkArgs {
    /// The flags over what a job file says.
    pub(crate) fn sink(&self, job: Option<&SinkSpec>) -> Result<SinkSpec> {
        self.write.sink(self.output.as_deref(), job)
    }
}

impl WriteArgs {
    /// The flags over what a job file says, for a file that is named or the job's.
    pub(crate) fn sink(&self, output: Option<&str>, job: Option<&SinkSpec>) -> Result<SinkSpec> {
        let mut sink = match (output, job) {
            (Some(url), Some(job)) => {
                // Another file may have another suffix: the job's format was for its own.
                SinkSpec { url: url.to_owned(), format: None, compression: None, ..job.clone() }
            }
            (None, Some(job)) => job.clone(),
            (url, None) => SinkSpec::new(url.unwrap_or("-")),
        };
        if let Some(format) = &self.format {
            sink.format = Some(format.parse()?);
        }
        if let Some(compression) = &self.compression {
            sink.compression = Some(compression.parse()?);
        }
        if let Some(count) = self.max_files {
            sink.max_files = count;
        }
        sink.overwrite |= self.overwrite;
        if let Some(program) = program(&self.sink_exec)? {
            sink.exec = Some(program);
        }
        sink.check_exec()?;
        if sink.url == "-" {
            let terminal = std::io::stdout().is_terminal();
            let format = sink.format.unwrap_or(match terminal {
                true => OutputFormat::Text,
                false => OutputFormat::Csv,
            });
            let is_compressed = sink.compression.as_ref().is_some_and(|codec| !codec.is_none());
            if terminal && (format.is_binary() || is_compressed) {
                let what = match format.is_binary() {
                    true => format!("format `{}`", format.name()),
                    false => format!("compressed {}", format.name()),
                };
                return Err(Error::usage_hint(
                    format!("{what} is not for a terminal"),
                    "name a file with --output, or pipe it into a program that reads it",
                ));
            }
            sink.format = Some(format);
        }
        Ok(sink)
    }
}

/// Where the coverage goes as JSON.
pub(super) enum CoverageSink {
    Nowhere,
    StandardOutput,
    File(CoverageFile),
}

impl CoverageSink {
    /// Checks that the coverage can be written, and that the result does not go to the same place.
    pub(super) fn new(flag: Option<&str>, result_url: Option<&str>) -> Result<Self> {
        match flag {
            None => Ok(CoverageSink::Nowhere),
            Some("-") if result_url == Some("-") => Err(Error::usage_hint(
                "--coverage - and the result both want standard output",
                "give --coverage a file, or name the result's file with --output",
            )),
            Some("-") => Ok(CoverageSink::StandardOutput),
            Some(path) => Ok(CoverageSink::File(CoverageFile::create(path, result_url)?)),
        }
    }

    /// Writes it, if it is asked for.
    pub(super) fn write(&self, coverage: &Coverage) -> Result<()> {
        match self {
            CoverageSink::Nowhere => Ok(()),
            CoverageSink::File(file) => Ok(file.write(coverage)?),
            CoverageSink::StandardOutput => {
                let json = serde_json::to_string_pretty(coverage)
                    .map_err(|error| Error::Internal(format!("coverage as JSON: {error}")))?;
                print(format!("{json}\n").as_bytes())
            }
        }
    }
}

/// How much is said on standard error after a run that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Say {
    /// What was written and what it rests on.
    All,
    /// What it rests on, if the result is for people.
    Coverage,
    /// Nothing, unless something was rejected or left out.
    Faults,
}

/// Waits for a run, writes its rows, and says what the result rests on.
pub(super) fn finish(
    mut running: Running,
    preparation: &Preparation,
    sink: &SinkSpec,
    coverage: &CoverageSink,
    how: Say,
) -> anyhow::Result<Outcome> {
    let settings = &preparation.settings;
    let mut bar = Bar::new(&settings.progress);
    let to_terminal = sink.url == "-" && std::io::stdout().is_terminal();
    let written = deliver(&mut running, sink, &preparation.id, settings.memory_bytes, |rows| {
        if to_terminal && rows > 0 {
            // Rows and the bar are on the same screen.
            bar.clear();
        } else {
            bar.tick();
        }
        Ok(())
    });
    bar.clear();
    if let Some(warning) = running.take_warning() {
        terminal::warn(&warning);
    }
    let written = written?;
    if let Some(warning) = &written.warning {
        terminal::warn(warning);
    }
    let found = running
        .coverage()
        .ok_or_else(|| Error::Internal("a run that has ended without a coverage".to_owned()))?;
    say(found, sink, &written, how);
    coverage.write(found)?;
    Ok(if found.complete { Outcome::Complete } else { Outcome::Incomplete })
}

/// Waits for a run that gives no rows.
pub(super) fn wait(mut running: Running, preparation: &Preparation) -> anyhow::Result<Running> {
    let mut bar = Bar::new(&preparation.settings.progress);
    let ended = running.drain(
        |_| Ok(()),
        || {
            bar.tick();
            Ok(())
        },
    );
    bar.clear();
    if let Some(warning) = running.take_warning() {
        terminal::warn(&warning);
    }
    ended?;
    Ok(running)
}

/// Waits for a run that writes a partial table.
pub(super) fn finish_without_rows(
    running: Running,
    preparation: &Preparation,
    target: &str,
    coverage: &CoverageSink,
) -> anyhow::Result<Outcome> {
    let running = wait(running, preparation)?;
    let found = running
        .coverage()
        .ok_or_else(|| Error::Internal("a run that has ended without a coverage".to_owned()))?;
    terminal::note(&format!("wrote the partial table `{target}`"));
    terminal::note(&found.one_line());
    coverage.write(found)?;
    Ok(if found.complete { Outcome::Complete } else { Outcome::Incomplete })
}

/// The lines on standard error after a run.
fn say(found: &Coverage, sink: &SinkSpec, written: &Written, how: Say) {
    if how == Say::All && written.files > 0 {
        let what = match written.files {
            1 => format!("`{}`", written.paths.first().map_or(sink.url.as_str(), String::as_str)),
            files => format!("{} files in `{}`", coverage::grouped(files), written.root),
        };
        terminal::note(&format!(
            "wrote {what}: {} row{}, {}",
            coverage::grouped(written.rows),
            if written.rows == 1 { "" } else { "s" },
            coverage::human_bytes(written.bytes)
        ));
    }
    let for_people = sink.format == Some(OutputFormat::Text);
    let faulty = !found.complete || found.rows.rejected > 0;
    if how == Say::All || (how == Say::Coverage && for_people) || faulty {
        terminal::note(&found.one_line());
    }
}
