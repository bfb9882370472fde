//! `query`, `run` and `merge`: the verbs that return results.

use std::path::Path;

use tidemill_engine::explanation::Explanation;
use tidemill_engine::job::{Job, ResourceLimits};
use tidemill_engine::jobs::{RunDescription, RunRecorder};
use tidemill_engine::posted_query::PostedQuery;
use tidemill_engine::posted_query::master_client::MasterClient;
use tidemill_engine::query::QueryParameter;
use tidemill_engine::run_handle::{self, PreparedRun, RunHandle};
use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::sink::SinkSpec;
use tidemill_engine::{
    ClusterSpec, CopyQuery, Error, PartialTableMerge, Query, QueryPlan, RepeatedRunPolicy,
    TurboSettings, program_files,
};

use super::result_output::{
    CoverageDestination, SummaryDetail, can_show_interim_results, copy_flag_conflict,
    finish_partial_table, write_result, writes_to_terminal,
};
use super::{VerbOutcome, print_paged, read_text};
use crate::args::{ExecutionTargetArgs, MergeArgs, QueryArgs, ResourceLimitArgs, RunArgs};
use crate::{allocator_tuning, terminal};

/// `tidemill query SQL`.
pub(super) fn query(args: &QueryArgs) -> anyhow::Result<VerbOutcome> {
    let sql = match (args.sql.as_deref(), &args.file) {
        (Some("-"), _) => read_text(Path::new("-"))?,
        (Some(sql), _) if is_sql_file(sql) => {
            return Err(Error::usage_with_hint(
                format!("`{sql}` is the name of a file, and no SQL"),
                format!("read the statement from the file: --file {sql}"),
            )
            .into());
        }
        (Some(sql), _) => sql.to_owned(),
        (None, Some(path)) => read_text(path)?,
        (None, None) => return Err(Error::usage("no SQL is given").into()),
    };
    let parameters = args.param.iter();
    let parameters = parameters.map(|(name, text)| (name.clone(), QueryParameter::from_text(text)));
    let turbo = args.turbo.with_job_defaults(&TurboSettings::default())?;
    let limits = args.limits.to_limits();
    let mut defaults = args.source.to_source_spec()?;
    let files = program_files::open_program_files(
        &args.files.named,
        &defaults.storage_options,
        &[&limits],
    )?;
    program_files::attach_program_files(files.as_ref(), &mut defaults.filter_program);
    let query = Query { sql, file_defaults: defaults, turbo, ..Query::default() };
    // The job log records the statement without its values, which may be confidential.
    let about = RunDescription {
        verb: "query",
        mapper: Some(query.sql.clone()),
        ..RunDescription::default()
    };
    let shown = query.sql.clone();
    let mut query = query.with_parameters(&parameters.collect::<Vec<_>>())?;
    let copy = CopyQuery::parse(&query.sql)?;
    let copy = copy.map(|CopyQuery { query_sql: sql, sink }| {
        query.sql = sql;
        sink
    });
    let query = args.scratch.apply_to_query(query)?;
    let cluster = args.cluster.as_deref().map(ClusterSpec::parse).transpose()?;
    if cluster.is_some() && !args.explain {
        return Err(Error::usage_with_hint(
            "`--cluster` says what a query would take elsewhere, and this one is to be run here",
            "add --explain",
        )
        .into());
    }
    let none = ResourceLimits::default();
    let posting = |watched| MasterSubmission {
        verb: "query",
        displayed_text: &shown,
        job_limits: &none,
        is_watched: watched,
    };
    if args.explain {
        let preparation = prepare_interruptible(&args.limits.to_limits(), &none)?;
        if let (Some(_), Some(output)) = (&copy, &args.sink.output) {
            return Err(copy_flag_conflict("--output", output).into());
        }
        // With `--explain`, `--format` is the format of the plan.
        let output = args.sink.output.as_deref().map(SinkSpec::new);
        let explaining = ExplanationOptions {
            submission: posting(false),
            on: &args.on,
            limits: &args.limits,
            format: args.sink.write.format.as_deref(),
            output: output.as_ref(),
            cluster: cluster.as_ref(),
        };
        return print_explanation(&explaining, query, &preparation, copy.as_ref());
    }
    let mut sink = match &copy {
        Some(copy) => args.sink.copy_to_sink_spec(copy)?,
        None => args.sink.to_sink_spec(None)?,
    };
    sink.storage_options = args.source.storage.to_storage_options()?;
    program_files::attach_program_files(files.as_ref(), &mut sink.exec);
    program_files::check_files_have_a_program(
        files.as_ref(),
        &[query.file_defaults.filter_program.as_ref(), sink.exec.as_ref()],
    )?;
    let coverage = CoverageDestination::new(args.limits.coverage.as_deref(), Some(&sink.url))?;
    let about = RunDescription { output: Some(sink.url.clone()), ..about };
    let (mut preparation, recorder) =
        begin_recorded(&args.limits.to_limits(), &ResourceLimits::default(), about)?;
    if query.turbo.is_some() {
        terminal::answer_early_on_signal(&preparation.settings.stop_reading);
    }
    // On a terminal, malformed records are shown beside the intact ones.
    if args.limits.max_bad.is_none() && writes_to_terminal(&sink) {
        preparation.settings.max_bad = BadRecordLimit::Unlimited;
    }
    let running = match posting(can_show_interim_results(&sink)).begin_on_master(
        (&args.on, &args.limits),
        &query,
        &preparation,
    )? {
        Some(running) => running,
        None => {
            let query =
                args.on.apply_to_query(query, &args.limits, &preparation.settings.cancel)?;
            start_query(query, &preparation, &sink)?
        }
    };
    let running = running.with_recorder(recorder);
    write_result(
        running,
        &preparation,
        &sink,
        &coverage,
        (SummaryDetail::OutputsAndCoverageForPeople, args.show.display_settings()),
    )
}

/// Returns true for a single word that ends in `.sql`, which is no statement.
fn is_sql_file(text: &str) -> bool {
    let text = text.trim();
    let suffix = text.len().checked_sub(4).and_then(|start| text.get(start..));
    suffix.is_some_and(|it| it.eq_ignore_ascii_case(".sql"))
        && (!text.contains(char::is_whitespace) || Path::new(text).exists())
}

/// A query to send to a master, if the options name one.
pub(super) struct MasterSubmission<'a> {
    pub(super) verb: &'static str,
    /// The text that the master's job list shows.
    pub(super) displayed_text: &'a str,
    pub(super) job_limits: &'a ResourceLimits,
    /// True if a person at a terminal watches interim results.
    pub(super) is_watched: bool,
}

impl MasterSubmission<'_> {
    /// Returns the master that the options name and the request for it, if they name one.
    fn master_and_request(
        &self,
        (on, limits): (&ExecutionTargetArgs, &ResourceLimitArgs),
        query: &Query,
        preparation: &PreparedRun,
    ) -> anyhow::Result<Option<(MasterClient, PostedQuery)>> {
        let Some(master) = on.named_master()? else { return Ok(None) };
        let attempts_max = on.max_attempts.or(query.split_attempts_max);
        let query = Query { split_attempts_max: attempts_max, ..query.clone() };
        let priority = run_handle::resolve_priority(&limits.to_limits(), self.job_limits)?;
        let settings = &preparation.settings;
        let question =
            PostedQuery::new(self.verb, self.displayed_text, &query, settings, priority)?;
        Ok(Some((master, question.with_interim_results(self.is_watched))))
    }

    pub(super) fn begin_on_master(
        &self,
        on: (&ExecutionTargetArgs, &ResourceLimitArgs),
        query: &Query,
        preparation: &PreparedRun,
    ) -> anyhow::Result<Option<RunHandle>> {
        let Some((master, question)) = self.master_and_request(on, query, preparation)? else {
            return Ok(None);
        };
        Ok(Some(RunHandle::start_posted_query(master, question, preparation.settings.clone())?))
    }
}

/// The options of an explanation.
struct ExplanationOptions<'a> {
    submission: MasterSubmission<'a>,
    on: &'a ExecutionTargetArgs,
    limits: &'a ResourceLimitArgs,
    /// `text` or `json`.
    format: Option<&'a str>,
    /// The output that the result would go to.
    output: Option<&'a SinkSpec>,
    cluster: Option<&'a ClusterSpec>,
}

/// `tidemill run JOB`.
pub(super) fn run_job(args: &RunArgs) -> anyhow::Result<VerbOutcome> {
    let mut job = Job::from_file(&args.job, &args.set)?;
    let storage = args.storage.to_storage_options()?;
    let of_sources = args.read_ahead.set_storage_options(storage.clone())?;
    for source in &mut job.sources {
        source.spec.storage_options = source.spec.storage_options.with_overrides(&of_sources);
        source.spec.salvage_damaged |= args.salvage;
    }
    job.program_files.extend(args.files.named.iter().cloned());
    let files = job.attach_program_files(&args.limits.to_limits())?;
    let query = Query { turbo: args.turbo.with_job_defaults(&job.turbo)?, ..job.to_query() };
    let query = args.scratch.apply_to_query(query)?;
    let sql = query.sql.clone();
    let posting = |watched| MasterSubmission {
        verb: "run",
        displayed_text: &sql,
        job_limits: &job.limits,
        is_watched: watched,
    };
    let explaining = ExplanationOptions {
        submission: posting(false),
        on: &args.on,
        limits: &args.limits,
        format: None,
        output: None,
        cluster: None,
    };
    if let Some(out) = &args.partial {
        program_files::check_files_have_a_program(
            files.as_ref(),
            &job.source_programs().collect::<Vec<_>>(),
        )?;
        if args.dry_run {
            let preparation = prepare_interruptible(&args.limits.to_limits(), &job.limits)?;
            return print_explanation(&explaining, query, &preparation, None);
        }
        let coverage = CoverageDestination::new(args.limits.coverage.as_deref(), out.to_str())?;
        let about = job.describe_run(Some(out.display().to_string()));
        let (preparation, recorder) = begin_recorded(&args.limits.to_limits(), &job.limits, about)?;
        let (settings, id) = (preparation.settings.clone(), preparation.run_id.clone());
        let (target, overwrite) = (out.clone(), args.sink.write.overwrite);
        let asked =
            posting(false).master_and_request((&args.on, &args.limits), &query, &preparation)?;
        let running = if let Some((master, question)) = asked {
            let to = (target, overwrite, id);
            RunHandle::start_posted_partial_table(master, question, settings, to)?
        } else {
            let query = args.on.apply_to_query(query, &args.limits, &settings.cancel)?;
            RunHandle::start_without_rows(settings.cancel.clone(), move || {
                let plan = QueryPlan::new(&query, &settings)?;
                if let Some(warning) = plan.warning() {
                    terminal::print_warning(&warning);
                }
                plan.write_partial_table(&target, overwrite, &id)
            })?
        };
        let running = running.with_recorder(recorder);
        return finish_partial_table(running, &preparation, &out.display().to_string(), &coverage);
    }
    let mut sink = args.sink.to_sink_spec(job.sink.as_ref())?;
    sink.storage_options = sink.storage_options.with_overrides(&storage);
    program_files::attach_program_files(files.as_ref(), &mut sink.exec);
    let programs = job.source_programs().chain([sink.exec.as_ref()]).collect::<Vec<_>>();
    program_files::check_files_have_a_program(files.as_ref(), &programs)?;
    if args.dry_run {
        let preparation = prepare_interruptible(&args.limits.to_limits(), &job.limits)?;
        return print_explanation(&explaining, query, &preparation, Some(&sink));
    }
    let coverage = CoverageDestination::new(args.limits.coverage.as_deref(), Some(&sink.url))?;
    let about = job.describe_run(Some(sink.url.clone()));
    let (preparation, recorder) = begin_recorded(&args.limits.to_limits(), &job.limits, about)?;
    if query.turbo.is_some() {
        terminal::answer_early_on_signal(&preparation.settings.stop_reading);
    }
    let posting = MasterSubmission {
        verb: "run",
        displayed_text: &query.sql,
        job_limits: &job.limits,
        is_watched: can_show_interim_results(&sink),
    };
    let running = match posting.begin_on_master((&args.on, &args.limits), &query, &preparation)? {
        Some(running) => running,
        None => {
            let query =
                args.on.apply_to_query(query, &args.limits, &preparation.settings.cancel)?;
            start_query(query, &preparation, &sink)?
        }
    };
    let running = running.with_recorder(recorder);
    write_result(
        running,
        &preparation,
        &sink,
        &coverage,
        (SummaryDetail::OutputsAndCoverage, args.show.display_settings()),
    )
}

/// Starts a query, with interim results if the sink can show them.
fn start_query(
    query: Query,
    preparation: &PreparedRun,
    sink: &SinkSpec,
) -> anyhow::Result<RunHandle> {
    let settings = preparation.settings.clone();
    Ok(match can_show_interim_results(sink) {
        true => RunHandle::start_watched_query(query, settings)?,
        false => RunHandle::start_query(query.with_worker_output(sink), settings)?,
    })
}

/// `tidemill merge PARTIAL…`.
pub(super) fn merge(args: MergeArgs) -> anyhow::Result<VerbOutcome> {
    let repeats =
        if args.allow_repeats { RepeatedRunPolicy::Allow } else { RepeatedRunPolicy::Refuse };
    if let Some(out) = args.partial {
        let coverage = CoverageDestination::new(args.limits.coverage.as_deref(), out.to_str())?;
        let about = RunDescription::for_merge(&args.partials, Some(out.display().to_string()));
        let (preparation, recorder) =
            begin_recorded(&args.limits.to_limits(), &ResourceLimits::default(), about)?;
        let (settings, id) = (preparation.settings.clone(), preparation.run_id.clone());
        let (target, overwrite) = (out.display().to_string(), args.sink.write.overwrite);
        let running = RunHandle::start_without_rows(settings.cancel.clone(), move || {
            let merge =
                PartialTableMerge::open_with_repeat_policy(&args.partials, repeats, &settings)?;
            merge.write_partial_table(&out, overwrite, &id)
        })?
        .with_recorder(recorder);
        return finish_partial_table(running, &preparation, &target, &coverage);
    }
    let mut sink = args.sink.to_sink_spec(None)?;
    sink.storage_options = args.storage.to_storage_options()?;
    let coverage = CoverageDestination::new(args.limits.coverage.as_deref(), Some(&sink.url))?;
    let about = RunDescription::for_merge(&args.partials, Some(sink.url.clone()));
    let (preparation, recorder) =
        begin_recorded(&args.limits.to_limits(), &ResourceLimits::default(), about)?;
    let running = RunHandle::start_merge(args.partials, repeats, preparation.settings.clone())?;
    let running = running.with_recorder(recorder);
    write_result(
        running,
        &preparation,
        &sink,
        &coverage,
        (SummaryDetail::OutputsAndCoverageForPeople, args.show.display_settings()),
    )
}

/// Turns limits into run settings that Ctrl-C cancels.
fn prepare_interruptible(
    own: &ResourceLimits,
    job: &ResourceLimits,
) -> anyhow::Result<PreparedRun> {
    let preparation = run_handle::prepare_run(own, job)?;
    connect_signals(&preparation)?;
    Ok(preparation)
}

/// Turns limits into settings like [`prepare_interruptible`], for a run that the job log records.
pub(super) fn begin_recorded(
    own: &ResourceLimits,
    job: &ResourceLimits,
    about: RunDescription,
) -> anyhow::Result<(PreparedRun, RunRecorder)> {
    let mut preparation = run_handle::prepare_run(own, job)?;
    let recorder = preparation.start_recorder(RunDescription { via: "command line", ..about })?;
    connect_signals(&preparation)?;
    Ok((preparation, recorder))
}

fn connect_signals(preparation: &PreparedRun) -> anyhow::Result<()> {
    if let Some(warning) = &preparation.warning {
        terminal::print_warning(warning);
    }
    allocator_tuning::set_heap_step(&preparation.settings);
    terminal::watch_signals(&preparation.settings.cancel)
}

/// Prints the plan of a query, its outputs, and the forecast for a cluster.
fn print_explanation(
    explanation: &ExplanationOptions<'_>,
    query: Query,
    preparation: &PreparedRun,
    sink: Option<&SinkSpec>,
) -> anyhow::Result<VerbOutcome> {
    let ExplanationOptions { submission: posting, on, limits, format, output, cluster } =
        explanation;
    let settings = &preparation.settings;
    if let Some(other) = format.filter(|format| !matches!(*format, "text" | "json")) {
        return Err(Error::usage_with_hint(
            format!("a plan is not shown as `{other}`"),
            "with --explain, --format is text or json",
        )
        .into());
    }
    let explained = match posting.master_and_request((on, limits), &query, preparation)? {
        Some(_) if cluster.is_some() => {
            return Err(Error::usage_with_hint(
                "`--cluster` runs a second of the query on this machine, and a master runs elsewhere",
                "leave --on out",
            )
            .into());
        }
        Some((master, question)) => Explanation::request_from_master(&master, question, settings)?,
        None => {
            let mut query = on.apply_to_query(query, limits, &settings.cancel)?;
            if let Some(output) = output.or(sink) {
                query = query.with_worker_output(output);
            }
            Explanation::new(&query, settings, *cluster)?
        }
    };
    let explained = explained.with_sink(sink)?;
    let text = match *format {
        Some("json") => explained.json + "\n",
        _ => explained.text,
    };
    print_paged(text.as_bytes())?;
    Ok(VerbOutcome::Complete)
}
