//! `check`: checks rowfiles for damage and salvages intact blocks.

use std::path::Path;

use serde_json::json;
use tidemill_engine::coverage::{format_decimal_bytes, format_grouped_digits};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::run_handle::prepare_run;
use tidemill_engine::sink::StagedFile;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::source::files::rowfile_check::{
    CheckableRowfiles, RowfileCheck, RowfileDamage, RowfileSalvage,
};
use tidemill_engine::{Error, Result, RunId};

use super::work_with_progress::{run_with_progress, run_with_progress_until_cancelled};
use super::{VerbOutcome, print_paged};
use crate::args::{CheckArgs, TextOrJson};
use crate::terminal::{self, RunProgressBar};

/// Maximum number of damages shown per file.
const SHOWN_DAMAGES_MAX: usize = 10;

/// `tidemill check FILE…`.
pub(super) fn check(args: CheckArgs) -> anyhow::Result<VerbOutcome> {
    let preparation = prepare_run(&ResourceLimits::default(), &ResourceLimits::default())?;
    let settings = preparation.settings;
    terminal::watch_signals(&settings.cancel)?;
    let mut urls = args.files.into_iter();
    let spec = SourceSpec {
        url: urls.next().unwrap_or_default(),
        more_urls: urls.collect(),
        storage_options: args.storage.to_storage_options()?,
        ..SourceSpec::default()
    };
    let files = CheckableRowfiles::list(&spec, &settings.cancel, &settings.progress)
        .map_err(Error::from)?;
    let mut bar = RunProgressBar::new(&settings.progress);
    if let Some(out) = &args.salvage {
        if files.count() > 1 {
            return Err(Error::usage_with_hint(
                format!(
                    "--salvage is of one file, and these are {}",
                    format_grouped_digits(files.count() as u64)
                ),
                "salvage them one by one, each to a name of its own",
            )
            .into());
        }
        // The owner of the staged file removes it on failure, so that thread must be waited for.
        let kept = run_with_progress(&mut bar, || {
            salvage_to_file(&files, out, args.overwrite, &preparation.run_id)
        });
        bar.clear();
        return print_salvage_report(&kept?, out, args.format);
    }
    let mut bad = 0u64;
    for index in 0..files.count() {
        let checked = run_with_progress_until_cancelled(&settings.cancel, &mut bar, || {
            Ok(files.check_file(index)?)
        });
        match checked {
            Ok(found) => {
                bad += u64::from(!found.whole);
                let text = match args.format {
                    TextOrJson::Text => describe_check(&found),
                    TextOrJson::Json => format!("{}\n", serde_json::to_string(&found)?),
                };
                bar.suspend_while(|| print_paged(text.as_bytes()))?;
            }
            Err(error @ (Error::Interrupted | Error::ClosedPipe)) => return Err(error.into()),
            // The other files are still checked.
            Err(error) if files.count() > 1 => {
                bad += 1;
                bar.suspend_while(|| terminal::print_error(&error.into()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    bar.clear();
    if files.count() > 1 {
        let count = format_grouped_digits(files.count() as u64);
        terminal::print_note(&match bad {
            0 => format!("all {count} files are whole"),
            bad => format!("{} of {count} files are no whole rowfiles", format_grouped_digits(bad)),
        });
    }
    Ok(if bad == 0 { VerbOutcome::Complete } else { VerbOutcome::NegativeAnswer })
}

fn salvage_to_file(
    files: &CheckableRowfiles,
    out: &Path,
    overwrite: bool,
    run: &RunId,
) -> Result<(RowfileSalvage, u64)> {
    let file = StagedFile::create(out, overwrite, run)?;
    let (file, kept) = files.salvage_file(0, file, &out.display().to_string())?;
    let bytes = file.bytes_written();
    file.commit(bytes)?;
    Ok((kept, bytes))
}

fn print_salvage_report(
    (kept, bytes): &(RowfileSalvage, u64),
    out: &Path,
    format: TextOrJson,
) -> anyhow::Result<VerbOutcome> {
    let out = out.display().to_string();
    match format {
        TextOrJson::Json => {
            let mut described = json!(kept);
            described["path"] = out.into();
            described["bytes"] = (*bytes).into();
            print_paged(format!("{described}\n").as_bytes())?;
        }
        TextOrJson::Text => {
            let mut text = format!(
                "{out}: {} block{}, {} row{}, {}\n",
                format_grouped_digits(kept.blocks),
                plural_suffix(kept.blocks),
                format_grouped_digits(kept.rows),
                plural_suffix(kept.rows),
                format_decimal_bytes(*bytes)
            );
            if !kept.damages.is_empty() {
                text.push_str("not kept:\n");
                push_damages(&mut text, &kept.damages);
            }
            print_paged(text.as_bytes())?;
        }
    }
    Ok(if kept.damages.is_empty() { VerbOutcome::Complete } else { VerbOutcome::Incomplete })
}

fn plural_suffix(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn describe_check(found: &RowfileCheck) -> String {
    let blocks = format!(
        "{} block{}, {} row{}",
        format_grouped_digits(found.blocks),
        plural_suffix(found.blocks),
        format_grouped_digits(found.rows),
        plural_suffix(found.rows)
    );
    let path = &found.path;
    if !found.whole {
        let mut text = format!("{path}: DAMAGED; whole are {blocks}\n");
        push_damages(&mut text, &found.damages);
        text.push_str(&format!(
            "hint: tidemill check {path} --salvage OUT writes what is whole to a new file\n"
        ));
        return text;
    }
    let codec = found.codec.as_deref().map_or(String::new(), |codec| format!(", {codec}"));
    let mut text =
        format!("{path}: whole; {blocks}, {}{codec}\n", format_decimal_bytes(found.bytes));
    if found.unfinished_bytes > 0 {
        text.push_str(&format!(
            "  behind its end are {} of an append that is under way or was killed; they are not \
             read\n",
            format_decimal_bytes(found.unfinished_bytes)
        ));
    }
    text
}

fn push_damages(text: &mut String, damages: &[RowfileDamage]) {
    for damage in damages.iter().take(SHOWN_DAMAGES_MAX) {
        text.push_str(&format!("  at byte {}: {}\n", damage.offset, damage.reason));
    }
    if damages.len() > SHOWN_DAMAGES_MAX {
        text.push_str(&format!(
            "  … and {} more\n",
            format_grouped_digits((damages.len() - SHOWN_DAMAGES_MAX) as u64)
        ));
    }
}
