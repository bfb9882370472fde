//! `convert`: converts files from one format to another.

use tidemill_engine::convert::{Conversion, check_no_scratch_storage};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::jobs::RunDescription;
use tidemill_engine::run_handle::RunHandle;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{Error, Query, coverage, program_files};

use super::VerbOutcome;
use super::query::{MasterSubmission, begin_recorded};
use super::result_output::{
    CoverageDestination, SummaryDetail, wait_for_run_without_rows, write_result,
};
use crate::args::{ConvertArgs, ResultDisplayArgs};
use crate::terminal;

/// `tidemill convert IN… OUT`.
pub(super) fn convert(args: ConvertArgs) -> anyhow::Result<VerbOutcome> {
    let mut inputs = args.files;
    let output = inputs.pop().unwrap_or_default();
    let mut inputs = inputs.into_iter();
    let (url, more) = (inputs.next().unwrap_or_default(), inputs.collect::<Vec<_>>());
    let mut source = SourceSpec { url, more_urls: more, ..args.source.to_source_spec()? };
    let mut sink = args.sink.to_sink_spec(Some(&output), None)?;
    sink.storage_options = source.storage_options.clone();
    let limits = args.limits.to_limits();
    let files = &args.program_files.named;
    let files = program_files::open_program_files(files, &source.storage_options, &[&limits])?;
    program_files::attach_program_files(files.as_ref(), &mut source.filter_program);
    program_files::attach_program_files(files.as_ref(), &mut sink.exec);
    program_files::check_files_have_a_program(
        files.as_ref(),
        &[source.filter_program.as_ref(), sink.exec.as_ref()],
    )?;
    let conversion = Conversion {
        source,
        select: args.select,
        condition: args.condition,
        sink,
        skip_existing: args.skip_existing,
        workers: None,
    };
    let sources = conversion.source.urls().cloned().collect();
    let url = conversion.sink.url.clone();
    let about = RunDescription {
        verb: "convert",
        mapper: conversion.describe_selection(),
        sources,
        output: Some(url.clone()),
        ..RunDescription::default()
    };
    let coverage_sink = CoverageDestination::new(args.limits.coverage.as_deref(), Some(&url))?;
    if !conversion.is_to_folder() {
        conversion.check_single_output()?;
        let query = args.scratch.apply_to_query(conversion.to_query()?)?;
        let (preparation, recorder) = begin_recorded(&limits, &Default::default(), about)?;
        let posting = MasterSubmission {
            verb: "convert",
            displayed_text: &query.sql,
            job_limits: &ResourceLimits::default(),
            is_watched: false,
        };
        let running =
            match posting.begin_on_master((&args.on, &args.limits), &query, &preparation)? {
                Some(running) => running,
                None => {
                    let query = args.on.apply_to_query(
                        query,
                        &args.limits,
                        &preparation.settings.cancel,
                    )?;
                    RunHandle::start_query(
                        query.with_worker_output(&conversion.sink),
                        preparation.settings.clone(),
                    )?
                }
            };
        let running = running.with_recorder(recorder);
        let how =
            (SummaryDetail::OutputsAndCoverage, ResultDisplayArgs::default().display_settings());
        return write_result(running, &preparation, &conversion.sink, &coverage_sink, how);
    }
    check_no_scratch_storage(&args.scratch.apply_to_query(Query::default())?.scratch)?;
    let (preparation, recorder) = begin_recorded(&limits, &Default::default(), about)?;
    let elsewhere = args.on.remote_workers(&args.limits, &preparation.settings.cancel)?;
    let conversion = Conversion { workers: elsewhere, ..conversion };
    let (running, converted) =
        conversion.start_to_folder(&preparation.settings, &preparation.run_id)?;
    let running = wait_for_run_without_rows(running.with_recorder(recorder), &preparation)?;
    let found = running
        .coverage()
        .ok_or_else(|| Error::Internal("a run that has ended without a coverage".to_owned()))?;
    let converted = std::mem::take(&mut *converted.lock());
    if let Some(warning) = &converted.output_summary.warning {
        terminal::print_warning(warning);
    }
    let skipped = match converted.skipped_outputs {
        0 => String::new(),
        count => {
            format!("; left {} that were there already", coverage::format_grouped_digits(count))
        }
    };
    terminal::print_note(&format!(
        "wrote {} file{} in `{url}`: {} rows, {}{skipped}",
        coverage::format_grouped_digits(converted.output_summary.files),
        if converted.output_summary.files == 1 { "" } else { "s" },
        coverage::format_grouped_digits(converted.output_summary.rows),
        coverage::format_decimal_bytes(converted.output_summary.bytes),
    ));
    terminal::print_note(&found.summary_line());
    coverage_sink.write(found)?;
    match converted.to_error() {
        Some(error) => Err(error.into()),
        None if found.complete => Ok(VerbOutcome::Complete),
        None => Ok(VerbOutcome::Incomplete),
    }
}
