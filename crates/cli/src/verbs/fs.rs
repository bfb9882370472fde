//! `cat`, `get`, `put`, `ls`, `stat`, `du`: unconverted files and objects.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidemill_engine::coverage::{format_decimal_bytes, format_grouped_digits};
use tidemill_engine::error::escape_control_chars;
use tidemill_engine::remote::files::{
    self, CONCURRENT_FILES_DEFAULT, CopySummary, DownloadOptions, EntryKind, FileAccessSettings,
    FileStat, FolderUsage, FolderUsageOptions, ListingEntry, ListingTotals, UploadOptions,
    parse_byte_range,
};
use tidemill_engine::remote::{self, StorageOptions};
use tidemill_engine::{Error, Result};

use super::VerbOutcome;
use super::work_with_progress::{run_with_progress, run_with_progress_until_cancelled};
use crate::args::{CatArgs, CopyArgs, DuArgs, GetArgs, LsArgs, PutArgs, StatArgs, TextOrJson};
use crate::terminal::{self, RunProgressBar};

/// Maximum delay before a listed line is flushed.
const FLUSH_DELAY_MAX: Duration = Duration::from_millis(50);

fn prepare_settings(storage_options: StorageOptions) -> anyhow::Result<FileAccessSettings> {
    let settings = FileAccessSettings { storage_options, ..FileAccessSettings::default() };
    terminal::watch_signals(&settings.cancel)?;
    Ok(settings)
}

/// Standard output with a buffer, but without the line buffering of the standard library.
struct BufferedStdout {
    writer: BufWriter<File>,
    flushed_at: Instant,
}

impl BufferedStdout {
    fn new() -> Result<BufferedStdout> {
        let own = io::stdout().as_fd().try_clone_to_owned();
        let own = own.map_err(|error| Error::io("write", "standard output", error))?;
        Ok(BufferedStdout {
            writer: BufWriter::with_capacity(64 << 10, own.into()),
            flushed_at: Instant::now(),
        })
    }

    /// Writes a line, and flushes if the last flush is long enough ago.
    fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.writer.write_all(line.as_bytes())?;
        self.writer.write_all(b"\n")?;
        if self.flushed_at.elapsed() >= FLUSH_DELAY_MAX {
            self.writer.flush()?;
            self.flushed_at = Instant::now();
        }
        Ok(())
    }

    fn write_json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(value).map_err(io::Error::other)?;
        self.write_line(&line)
    }

    fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(|error| Error::io("write", "standard output", error))
    }
}

/// Calls `work` with each URL. If one of several URLs fails, its error is printed and the others follow.
fn for_each_url(
    urls: &[String],
    out: &mut BufferedStdout,
    mut work: impl FnMut(&str, &mut BufferedStdout) -> remote::Result<()>,
) -> anyhow::Result<VerbOutcome> {
    let mut outcome = VerbOutcome::Complete;
    for url in urls {
        let done = work(url, out).map_err(Error::from);
        out.flush()?;
        match done {
            Ok(()) => {}
            Err(error @ (Error::Interrupted | Error::ClosedPipe)) => return Err(error.into()),
            Err(error) if urls.len() > 1 => {
                outcome = VerbOutcome::NegativeAnswer;
                terminal::print_error(&error.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(outcome)
}

fn size_text(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { format_decimal_bytes(bytes) }
}

/// Returns a count with its noun in the singular or plural.
fn count_with_noun(count: u64, one: &str) -> String {
    format!("{} {one}{}", format_grouped_digits(count), if count == 1 { "" } else { "s" })
}

/// `tidemill ls URL…`.
pub(super) fn ls(args: &LsArgs) -> anyhow::Result<VerbOutcome> {
    let settings = prepare_settings(args.storage.to_storage_options()?)?;
    let mut out = BufferedStdout::new()?;
    let mut all = ListingTotals::default();
    let several = args.urls.len() > 1;
    let outcome = for_each_url(&args.urls, &mut out, |url, out| {
        let sum = files::ls(url, args.recursive, &settings, &mut |entry| match args.format {
            TextOrJson::Json => out.write_json_line(&entry),
            TextOrJson::Text => out.write_line(&listing_line(&entry, args, several)),
        })?;
        all.files += sum.files;
        all.folders += sum.folders;
        all.bytes += sum.bytes;
        Ok(())
    })?;
    if args.format == TextOrJson::Text {
        let folders = match all.folders {
            0 => String::new(),
            count => format!(", {}", count_with_noun(count, "folder")),
        };
        let bytes = size_text(all.bytes, args.sizes.bytes);
        terminal::print_note(&format!("{}{folders}: {bytes}", count_with_noun(all.files, "file")));
    }
    Ok(outcome)
}

fn listing_line(entry: &ListingEntry, args: &LsArgs, several: bool) -> String {
    // Control characters become visible, because a terminal would obey them and a name must take one line.
    let name = escape_control_chars(if several { &entry.url } else { &entry.name }, &[]);
    if !args.long {
        return name;
    }
    let bytes = match entry.kind {
        EntryKind::Folder => "-".to_owned(),
        EntryKind::File => {
            entry.size.map_or("?".to_owned(), |bytes| size_text(bytes, args.sizes.bytes))
        }
    };
    format!("{bytes:>12}  {:<20}  {name}", entry.modified.as_deref().unwrap_or("-"))
}

/// `tidemill stat URL…`.
pub(super) fn stat(args: &StatArgs) -> anyhow::Result<VerbOutcome> {
    let settings = prepare_settings(args.storage.to_storage_options()?)?;
    for_each_url(&args.urls, &mut BufferedStdout::new()?, |url, out| {
        files::stat(url, &settings, &mut |stat| match args.format {
            TextOrJson::Json => out.write_json_line(&stat),
            TextOrJson::Text => stat_lines(&stat).iter().try_for_each(|line| out.write_line(line)),
        })
    })
}

fn stat_lines(stat: &FileStat) -> Vec<String> {
    let kind = match stat.kind {
        EntryKind::File => "file",
        EntryKind::Folder => "folder",
    };
    let bytes = |bytes| match bytes {
        0..1000 => format!("{bytes} B"),
        _ => format!("{} B ({})", format_grouped_digits(bytes), format_decimal_bytes(bytes)),
    };
    let mut facts = vec![("kind".to_owned(), Some(kind.to_owned()))];
    facts.push(("size".into(), stat.size.map(bytes)));
    facts.push(("modified".into(), stat.modified.clone()));
    facts.push(("e_tag".into(), stat.e_tag.clone()));
    facts.push(("content_type".into(), stat.content_type.clone()));
    facts.push(("storage_class".into(), stat.storage_class.clone()));
    let also = |(name, value): (&String, &String)| (name.clone(), Some(value.clone()));
    facts.extend(stat.more.iter().map(also));
    let written =
        |(name, value): (&String, &String)| (format!("metadata {name}"), Some(value.clone()));
    facts.extend(stat.metadata.iter().map(written));
    let facts = facts.into_iter().filter_map(|(name, value)| {
        Some(format!(
            "  {}: {}",
            escape_control_chars(&name, &[]),
            escape_control_chars(&value?, &[])
        ))
    });
    std::iter::once(escape_control_chars(&stat.url, &[])).chain(facts).collect()
}

/// `tidemill du URL…`.
pub(super) fn du(args: &DuArgs) -> anyhow::Result<VerbOutcome> {
    let settings = prepare_settings(args.storage.to_storage_options()?)?;
    let options = FolderUsageOptions { depth: if args.summarize { 0 } else { args.depth } };
    for_each_url(&args.urls, &mut BufferedStdout::new()?, |url, out| {
        files::du(url, options, &settings, &mut |usage| match args.format {
            TextOrJson::Json => out.write_json_line(&usage),
            TextOrJson::Text => {
                let FolderUsage { url, files, bytes } = &usage;
                let (bytes, files) =
                    (size_text(*bytes, args.sizes.bytes), count_with_noun(*files, "file"));
                out.write_line(&format!(
                    "{bytes:>12}  {files:>14}  {}",
                    escape_control_chars(url, &[])
                ))
            }
        })
    })
}

/// `tidemill cat URL…`.
pub(super) fn cat(args: &CatArgs) -> anyhow::Result<VerbOutcome> {
    let settings =
        prepare_settings(args.read_ahead.set_storage_options(args.storage.to_storage_options()?)?)?;
    let range = args.range.as_deref().map(parse_byte_range).transpose().map_err(Error::from)?;
    let mut out = BufferedStdout::new()?;
    let work = || -> Result<()> {
        files::cat(&args.urls, range.unwrap_or(0..u64::MAX), &settings, &mut |bytes| {
            out.writer.write_all(bytes)
        })?;
        out.flush()
    };
    // On a terminal a bar would mix with the output.
    let mut bar = match io::stdout().is_terminal() {
        true => RunProgressBar::disabled(),
        false => RunProgressBar::for_files(&settings.progress),
    };
    run_with_progress_until_cancelled(&settings.cancel, &mut bar, work)?;
    Ok(VerbOutcome::Complete)
}

/// `tidemill get URL…`.
pub(super) fn get(args: GetArgs) -> anyhow::Result<VerbOutcome> {
    let settings =
        prepare_settings(args.read_ahead.set_storage_options(args.storage.to_storage_options()?)?)?;
    let verify = args.copy.verify_mode();
    let CopyArgs { overwrite, skip_existing, parallel, .. } = args.copy;
    let at_once = parallel.unwrap_or(CONCURRENT_FILES_DEFAULT);
    let options = DownloadOptions {
        output: args.output,
        overwrite,
        skip_existing,
        concurrent_files: at_once,
        verify,
    };
    run_copy("fetched", &settings, || Ok(files::download_files(&args.urls, &options, &settings)?))
}

/// `tidemill put PATH… URL`.
pub(super) fn put(args: PutArgs) -> anyhow::Result<VerbOutcome> {
    let settings = prepare_settings(args.storage.to_storage_options()?)?;
    let verify = args.copy.verify_mode();
    let CopyArgs { overwrite, skip_existing, parallel, .. } = args.copy;
    let at_once = parallel.unwrap_or(CONCURRENT_FILES_DEFAULT);
    let options = UploadOptions {
        overwrite,
        skip_existing,
        concurrent_files: at_once,
        verify,
        ..UploadOptions::default()
    };
    let mut paths = args.paths;
    let url = paths.pop().unwrap_or_default();
    run_copy("sent", &settings, || Ok(files::upload_files(&paths, &url, &options, &settings)?))
}

/// Runs a copy while the bar moves, and prints its summary.
fn run_copy(
    what: &str,
    settings: &FileAccessSettings,
    work: impl FnOnce() -> Result<CopySummary> + Send,
) -> anyhow::Result<VerbOutcome> {
    let mut bar = RunProgressBar::for_files(&settings.progress);
    let copied = run_with_progress(&mut bar, work);
    bar.clear();
    let copied = copied?;
    for warning in &copied.warnings {
        terminal::print_warning(warning);
    }
    let failed = copied.failures.len() as u64;
    for failure in copied.failures {
        terminal::print_error(&Error::from(failure.error).into());
    }
    let mut line = format!(
        "{what} {}: {}",
        count_with_noun(copied.files, "file"),
        format_decimal_bytes(copied.bytes)
    );
    if copied.resumed_bytes > 0 {
        let bytes = format_decimal_bytes(copied.resumed_bytes);
        line.push_str(&format!(", of which {bytes} had been {what} before"));
    }
    if copied.skipped > 0 {
        line.push_str(&format!(
            "; left {} that were there already",
            format_grouped_digits(copied.skipped)
        ));
    }
    if failed > 0 {
        line.push_str(&format!("; {} failed", format_grouped_digits(failed)));
    }
    if copied.gave_up {
        line.push_str(", and no more were tried");
    }
    terminal::print_note(&line);
    Ok(if failed == 0 { VerbOutcome::Complete } else { VerbOutcome::NegativeAnswer })
}
