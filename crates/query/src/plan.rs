//! Plans and runs a query.
//!
//! A [`QueryPlan`] opens the sources that the SQL names, lets DataFusion parse and optimise it, and chooses
//! the [execution path](crate::planning::execution_path). Before [`QueryPlan::run`] it reads only samples, to infer
//! schemas.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use chrono::DateTime;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{SchemaError, TableReference};
use datafusion::datasource::TableProvider;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectNamePart, TableFactor, Visitor};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::{self, Coverage};
use tidemill_base::error::{Error, Result};
use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_base::progress::{PlanOutline, ThreadCpuClock};
use tidemill_base::redaction::{self, redact_url};
use tidemill_base::state_folder::RunId;
use tidemill_base::{RunSettings, suggestions};
use tidemill_dialect::statement::{
    ParsedStatement, StatementKind, check_syntax, explain_analyze_query, parse_statement,
    schema_from_sql,
};
use tidemill_dialect::translation::{
    self, JSON_ENTRY_COLUMN, SourceColumns, TableFunctionSource, TableFunctionSources,
    UsedHiddenColumns,
};
use tidemill_dialect::{column_names, syntax, using_columns};
use tidemill_planning::{DynLogicalPlan, DynTreeNode, plan_statement, walk_statement};
use tidemill_remote::PrefetchBudget;
use tidemill_sink::StagedFile;
use tidemill_source::{
    Format, HiddenColumn, MemoryRows, OpenTimeouts, RejectLog, Source, SourceSpec, Split,
    SplitOptions, schema::flag_distribution, standard_input,
};
use tidemill_sql::random_values::evaluate_random_calls_once;
use tidemill_sql::{
    IntoTidemillError, correlated_subqueries, float_order, into_datafusion_error, session,
    statement_planning,
};
use tidemill_tables::aggregates::aggregate_calls::is_order_sensitive_call;
use tidemill_tables::aggregates::limited_lists::limit_lists;
use tidemill_tables::aggregates::order_sensitive_aggregates::add_row_numbers;
use tidemill_tables::aggregates::precision_recorder::{
    self, PlannedAggregateCall, PrecisionRecorder,
};
use tidemill_tables::aggregates::summary::{self, QuerySummary};
use tidemill_tables::merging::merge::MergedTable;
use tidemill_tables::merging::partial_tables::{
    PartialRun, PartialRunSource, PartialTableHeader, PartialTableWriter,
};
use tidemill_tables::sessions;

use crate::execution::background_execution::BackgroundExecution;
use crate::execution::buffered_answers::BufferedAnswers;
use crate::execution::finished_table::FinishedTable;
use crate::execution::map::SplitMap;
use crate::execution::ordered_rows::OrderedRows;
use crate::execution::result_columns::{
    apply_plan_types, build_result_schema, conform_batch_to_schema, strip_table_names,
};
use crate::execution::results::{CoverageBuilder, Results, RowSource, explain_run_error};
use crate::execution::row_calculation::RowCalculation;
use crate::execution::scan::{RunState, Scan, SourceTable};
use crate::execution::table_runner::{self, TableRun};
use crate::planning::build_side_extraction::{self, BuildSide};
use crate::planning::dictionary_keys::{self, DictionaryKeyMap};
use crate::planning::execution_path::{
    AggregationPlan, ExecutionPath, check_expression_places, check_recursive_subqueries,
    check_runnable, choose_execution_path, explain_optimiser_error, find_cross_record_step,
};
use crate::planning::pruning;
use crate::planning::table_sample;
use crate::planning::unresolved_tables::looks_like_file;
use crate::statements::explanation::{PlanExplanation, SourceExplanation};
use crate::statements::query_definition::Query;
use crate::statements::sql_redaction::{hide_secrets, note_table_function_urls, redact_sql};
use crate::tasks::{self, ClusterRows, FoldOutput};
use crate::turbo::answer_builder::AnswerBuilder;
use crate::turbo::intervals::IntervalCalculator;
use crate::turbo::result_bounds::ResultBounds;
use crate::turbo::sampled_execution::InterimResultObserver;
use crate::turbo::{self, TurboSettings};
use crate::{statements::explain_analyze, statements::metadata_statements};

/// Maximum time to sample a pipe for column types where the query wants its first rows: a slow pipe must not
/// delay them.
const PIPE_SAMPLE_TIMEOUT: Duration = Duration::from_millis(500);
/// Divisor of the memory budget: finished answers that wait for the consumer take at most this fraction, one
/// sixteenth.
const ANSWER_BACKLOG_BUDGET_DIVISOR: u64 = 16;

/// A query that is planned and ready to run.
pub struct QueryPlan {
    /// The query, with SQL that holds no secrets.
    pub(crate) query: Query,
    pub(crate) settings: RunSettings,
    pub(crate) rejects: Arc<RejectLog>,
    pub(crate) context: SessionContext,
    pub(crate) source_tables: Vec<(String, Arc<SourceTable>)>,
    pub(crate) logical_plan: LogicalPlan,
    schema: SchemaRef,
    pub(crate) execution_path: ExecutionPath,
    join_strategy: JoinStrategy,
    /// The estimated columns and their bounds, where the query may answer from a part of the input and states
    /// bounds.
    pub(crate) bounded_estimates: Option<Arc<ResultBounds>>,
    /// The estimated columns, where the query may answer from a part of the input but states no bounds.
    pub(crate) unbounded_estimates: Option<Arc<ResultBounds>>,
    /// The reason why the query runs on this machine although workers were requested.
    local_run_reason: Option<String>,
    /// Duration of planning, for `EXPLAIN ANALYZE`; `None` for a query that returns its rows.
    analyze_planning_time: Option<Duration>,
}

/// The join operators of a plan that takes the engine path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinStrategy {
    /// Hash joins: one input of each join fits in memory.
    HeldInMemory,
    /// Hash joins where an input is estimated to fit in memory, and sort-merge joins, which spill, for the
    /// others.
    LargeSidesSorted,
    /// Sort-merge joins alone, after an input did not fit in memory.
    AllSorted,
}

/// A planner for the query of a partial-table header, over the columns that the header records.
pub(crate) struct HeaderPlanner<'a> {
    /// The query, with the columns of its sources.
    pub header: &'a PartialTableHeader,
    pub settings: &'a RunSettings,
    pub rejects: Arc<RejectLog>,
    /// True to plan distinct counts beside other aggregates as earlier releases did.
    pub uses_legacy_distinct_counts: bool,
    /// The value of `now()`, in nanoseconds since 1970. Default: the current time.
    pub now_ns: Option<i64>,
}

impl HeaderPlanner<'_> {
    /// Plans the query's statement. `table` creates the table of a source from its name and columns.
    ///
    /// # Errors
    /// Errors of planning.
    pub(crate) fn plan_statement(
        self,
        mut statement: Statement,
        mut table: impl FnMut(&str, &SchemaRef) -> SourceTable,
    ) -> Result<QueryPlan> {
        let HeaderPlanner {
            header,
            settings,
            rejects,
            uses_legacy_distinct_counts: counts_as_before,
            now_ns: planned_ns,
        } = self;
        let called = parse_statement(&header.sql)?.function_sources;
        let context = sessions::open_session_with_options(
            settings.memory_share_bytes(1, 2),
            settings,
            counts_as_before,
        )?;
        let sources = [(&header.source_name, &header.source_schema)].into_iter();
        let sources =
            sources.chain(header.joined_sources.iter().map(|(name, schema)| (name, schema)));
        let mut tables = Vec::with_capacity(1 + header.joined_sources.len());
        for (name, schema) in sources {
            let row_sample = called.get(name).and_then(|called| called.row_sample);
            let made = Arc::new(table(name, schema).with_row_sample(row_sample));
            let provider = Arc::clone(&made) as Arc<dyn TableProvider>;
            context
                .register_table(TableReference::bare(name.as_str()), provider)
                .into_tidemill_error()?;
            tables.push((name.clone(), made));
        }
        resolve_column_names(&mut statement, &context, &tables)?;
        check_syntax(&statement, &context)?;
        let (sql, stream) = (header.sql.clone(), Some(header.source_name.as_str()));
        let query = Query { sql, now_ns: planned_ns, ..Query::default() };
        QueryPlan::plan_over_tables(&query, settings, rejects, context, statement, tables, stream)
    }
}

/// Adds a hint to an error that involves text columns: what the values of the named text columns look like,
/// where the query treats them as another type. For an unknown column, the hint is the line that looks more
/// like the header.
fn hint_at_odd_columns(error: Error, tables: &[(String, Arc<SourceTable>)], sql: &str) -> Error {
    match error {
        Error::Usage { message, hint } if message.contains("TEXT") => {
            // Text in single quotes is a file or a value, not a column.
            let outside: Vec<&str> = sql.split('\'').step_by(2).collect();
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let is_named = |column: &str| {
                let mut words = outside.iter().flat_map(|sql| sql.split(|c| !is_part(c)));
                match column.chars().all(is_part) {
                    true => words.any(|word| word.eq_ignore_ascii_case(column)),
                    false => outside.iter().any(|sql| sql.contains(column)),
                }
            };
            let sources = tables.iter().filter_map(|(_, table)| table.source());
            let mut refused =
                sources.clone().filter_map(|source| source.explain_rejected_sample(is_named));
            if let Some((message, hint)) = refused.next() {
                return Error::Usage { message, hint: Some(hint) };
            }
            let odd: Vec<String> =
                sources.filter_map(|source| source.column_warning(is_named)).collect();
            let hint = if odd.is_empty() { hint } else { Some(odd.join("; ")) };
            Error::Usage { message, hint }
        }
        // The columns of a file with titles take their names from its first line.
        Error::Usage { message, hint } if message.starts_with("unknown column") => {
            let mut sources = tables.iter().filter_map(|(_, table)| table.source());
            let header = sources.find_map(|source| source.header_hint());
            Error::Usage { message, hint: header.or(hint) }
        }
        other => other,
    }
}

/// Adds a hint to an error about a column or field that no sampled record has: other records may have it, and
/// the user can declare it.
fn hint_at_unsampled_keys(error: Error, tables: &[(String, Arc<SourceTable>)]) -> Error {
    let is_sampled =
        tables.iter().filter_map(|(_, table)| table.source()).any(|source| source.is_sampled());
    match error {
        Error::Usage { message, hint } if is_sampled => {
            let named = |start: &str| {
                let (name, _) = message.strip_prefix(start)?.split_once('`')?;
                Some(name.to_owned())
            };
            let of_column = |name: String| {
                let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                    && name
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                let written = match is_plain {
                    true => name.clone(),
                    false => format!("\"{}\"", name.replace('"', "\"\"")),
                };
                format!(
                    "no sampled record has `{name}`; if others do, --schema '{written} TEXT' makes a \
                     column of it (job file: source.schema)"
                )
            };
            let of_field = |name: String| {
                format!(
                    "no sampled record has `{name}` there; if others do, --schema gives the column a \
                     type that has it, or TEXT (job file: source.schema)"
                )
            };
            let remedy = named("unknown column `")
                .map(of_column)
                .or_else(|| named("the struct has no field `").map(of_field));
            let hint = match (remedy, hint) {
                (Some(remedy), Some(hint)) => Some(format!("{remedy}; {hint}")),
                (remedy, hint) => remedy.or(hint),
            };
            Error::Usage { message, hint }
        }
        other => other,
    }
}

/// Divisor of the memory budget: build sides, the join inputs held in memory, take at most one eighth of it
/// together. The estimate before reading must fit in half of that, one sixteenth.
const BUILD_SIDES_BUDGET_DIVISOR: u64 = 8;

/// Returns a word for the plan's last step that waits for all of its input: the work that remains once
/// DataFusion has read the sources.
fn find_blocking_step(plan: &LogicalPlan) -> Option<&'static str> {
    let mut found = None;
    // The walk cannot fail; without a step found the progress display says nothing.
    let _ = plan.apply_dyn(&mut |node| {
        found = match node {
            LogicalPlan::Sort(_) => Some("sorting"),
            LogicalPlan::Window(_) => Some("computing windows"),
            LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => Some("grouping"),
            LogicalPlan::Join(_) => Some("joining"),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    });
    found
}

/// Returns the largest `read_memory` option of the query's sources.
fn read_memory_bytes_max(query: &Query) -> Option<u64> {
    let named = query.sources.iter().map(|source| &source.spec);
    let specs = named.chain([&query.file_defaults]);
    specs.filter_map(|spec| spec.storage_options.read_memory_bytes()).max()
}

/// Returns true if a plan reads no table, and so makes at most one row.
fn reads_no_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => plan.inputs().into_iter().all(reads_no_table),
        _ => false,
    }
}

impl QueryPlan {
    /// Opens the sources and plans the query.
    ///
    /// # Errors
    /// [`Error::Usage`] for SQL that cannot be planned, [`Error::NotFound`] for missing files, and errors of
    /// inferring a schema.
    pub fn new(query: &Query, settings: &RunSettings) -> Result<Self> {
        run_on_large_stack(PLAN_STACK_BYTES, || Self::plan_query(query, settings))
            .map_err(|error| {
                hint_at_single_quotes(
                    statement_planning::explain_cast_error(error, &query.sql, None),
                    &query.sql,
                )
            })
            .map_err(|error| translation::explain_sample_of_non_records(error, &query.sql))
    }

    fn plan_query(query: &Query, settings: &RunSettings) -> Result<Self> {
        if let (Some(sql), false, None) =
            (explain_analyze_query(&query.sql)?, query.is_per_record, query.map_sql.as_ref())
        {
            let began = Instant::now();
            let plan = Self::plan_query(&Query { sql, ..query.clone() }, settings)?;
            return Ok(QueryPlan { analyze_planning_time: Some(began.elapsed()), ..plan });
        }
        let listed = match translation::pivot_values_query(&query.sql) {
            Some(values) => Some(metadata_statements::fill_pivot_values(query, values, settings)?),
            None => None,
        };
        if let Some(query) = listed {
            return Self::plan_query(&query, settings);
        }
        // A turbo query's clock starts here, unless it started earlier.
        let query = &Query {
            turbo: query.turbo.clone().map(TurboSettings::with_start_time),
            ..query.clone()
        };
        let rejects = Arc::new(RejectLog::new(settings.max_bad, settings.rejected_folder.clone()));
        let context = sessions::open_session(settings.memory_share_bytes(1, 2), settings)?;
        if let Some(stable) = query.stable_sort {
            session::configure_stable_sort(&context, stable);
        }
        let ParsedStatement { mut statement, kind: wanted, function_sources: called } =
            parse_statement(&query.sql)?;
        let mut urls = HashMap::new();
        hide_secrets(&mut statement, &mut urls);
        note_table_function_urls(&called, &mut urls);
        // Column patterns are checked once they are expanded.
        if !translation::needs_column_expansion(&statement) {
            check_syntax(&statement, &context)?;
        }
        let query = &Query { sql: redact_sql(&query.sql, &statement, &urls), ..query.clone() };
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::clone(&rejects),
            prefetch_budget: PrefetchBudget::with_prefetch_bytes(
                settings.memory_bytes / 16,
                read_memory_bytes_max(query),
            ),
            cores: settings.cores.clone(),
        };
        let mut tables: Vec<(String, Arc<SourceTable>)> = Vec::new();
        let mut references =
            context.state().resolve_table_references(&statement).into_tidemill_error()?;
        references.retain(|reference| !translation::is_series_function(reference.table()));
        let mut found = references
            .iter()
            .map(|reference| {
                let (name, mut spec) = find_source(query, reference, &called, &settings.cancel)?;
                // The URL of a source in memory is only a name, which holds no secret.
                if let (Some(url), None) = (urls.get(&name), &spec.memory_rows) {
                    spec.url.clone_from(url);
                }
                let is_named = query.sources.iter().any(|source| source.name == name);
                Ok((name, spec, is_named))
            })
            .collect::<Result<Vec<_>>>()?;
        tidemill_source::check_url_count(found.iter().map(|(_, spec, _)| spec))?;
        let mut files: Vec<&mut SourceSpec> = found
            .iter_mut()
            .filter_map(|(name, spec, is_named)| {
                (!*is_named && !called.contains_key(name)).then_some(spec)
            })
            .collect();
        if files.len() > 1 {
            let paths: Vec<&str> = files.iter().map(|spec| spec.url.as_str()).collect();
            let fitted = flag_distribution::distribute_flags(
                &query.file_defaults,
                &paths,
                &settings.cancel,
            )?;
            files.iter_mut().zip(fitted).for_each(|(spec, fitted)| **spec = fitted);
        }
        let mut opened = Vec::with_capacity(found.len());
        for (reference, (name, mut spec, _)) in references.into_iter().zip(found) {
            let lists_files = called.get(&name).is_some_and(|called| called.lists_files);
            if let (None, Some(schema), false) = (&spec.declared_schema, &query.schema, lists_files)
            {
                spec.declared_schema = Some(schema_from_sql(schema)?);
            }
            let source = open_source(&spec, query.turbo.as_ref(), settings)?;
            opened.push((reference, name, source));
        }
        let columns =
            opened.iter().map(|(_, name, source)| (name.clone(), source_column_names(source)));
        let mut unhidden = translation::used_hidden_columns(&statement, &columns.collect());
        for (reference, name, source) in opened {
            let sample = called.get(&name).and_then(|called| called.percent_sample);
            let row_sample = called.get(&name).and_then(|called| called.row_sample);
            let mut hidden = unhidden.remove(&name).unwrap_or_default();
            if row_sample.is_some() {
                hidden.extend(table_sample::row_identity_columns(&source)?.map(str::to_owned));
            }
            let table = SourceTable::new(source, run.clone(), sample, &hidden);
            let table = Arc::new(table.with_row_sample(row_sample));
            context
                .register_table(reference, Arc::clone(&table) as Arc<dyn TableProvider>)
                .into_tidemill_error()?;
            tables.push((name, table));
        }
        resolve_column_names(&mut statement, &context, &tables)
            .map_err(|error| hint_at_unsampled_keys(error, &tables))?;
        if let Some(map) = &query.map_sql {
            let ParsedStatement { statement: mut map, kind: wanted, function_sources: called } =
                parse_statement(map)?;
            if !called.is_empty() || wanted != StatementKind::Select {
                return Err(Error::usage_with_hint(
                    "a map has no source of its own, and no sample of one",
                    "it is one SELECT of the records of the job's source",
                ));
            }
            hide_secrets(&mut map, &mut urls);
            resolve_column_names(&mut map, &context, &tables)
                .map_err(|error| hint_at_unsampled_keys(error, &tables))?;
            check_syntax(&map, &context)?;
            let planned =
                statement_planning::statement_to_plan(&context.state(), map).into_tidemill_error();
            let planned = planned.map_err(|error| hint_at_unsampled_keys(error, &tables))?;
            if let Some(step) = find_cross_record_step(&planned) {
                return Err(Error::usage_with_hint(
                    format!("the map's SQL has {step}, and a map sees one record at a time"),
                    "group in [tables]; order, limit and windows need a `tidemill query`",
                ));
            }
        }
        if query.is_per_record {
            let planned =
                statement_planning::statement_to_plan(&context.state(), statement.clone())
                    .into_tidemill_error();
            let planned = planned.map_err(|error| hint_at_unsampled_keys(error, &tables))?;
            if let Some(step) = find_cross_record_step(&planned) {
                return Err(Error::usage_with_hint(
                    format!("a conversion sees one record at a time, and this one has {step}"),
                    "`tidemill query` groups and sorts, and writes every format too",
                ));
            }
        }
        if wanted != StatementKind::Select && (query.is_per_record || query.map_sql.is_some()) {
            return Err(Error::usage(format!("`{}` is no query of records", wanted.keyword())));
        }
        let over = |statement: Statement, tables: Vec<(String, Arc<SourceTable>)>| {
            let (rejects, context) = (Arc::clone(&rejects), context.clone());
            let sources = tables.clone();
            Self::plan_over_tables(query, settings, rejects, context, statement, tables, None)
                .map_err(|error| hint_at_odd_columns(error, &sources, &query.sql))
                .map_err(|error| hint_at_unsampled_keys(error, &sources))
        };
        match wanted {
            StatementKind::Select => over(statement, tables),
            StatementKind::Describe => {
                let plan = over(statement, tables)?;
                over(metadata_statements::build_describe_statement(&plan.schema)?, Vec::new())
            }
            StatementKind::Explain => {
                let plan = over(statement, tables)?;
                over(
                    metadata_statements::build_explain_statement(&plan.explain()?.to_string())?,
                    Vec::new(),
                )
            }
            StatementKind::Summarize => {
                let plan = over(statement.clone(), tables.clone())?;
                let (columns, call) = QuerySummary::from_schema(&plan.schema);
                context.register_udaf(summary::create_summary_udaf(
                    columns,
                    &plan.accumulator_precisions(),
                ));
                over(
                    metadata_statements::build_summarize_statement(
                        &statement,
                        &plan.schema,
                        &call,
                    )?,
                    tables,
                )
            }
        }
    }

    /// Plans over opened tables. `stream` names the source that is read in splits, where that is already
    /// decided.
    pub(crate) fn plan_over_tables(
        query: &Query,
        settings: &RunSettings,
        rejects: Arc<RejectLog>,
        context: SessionContext,
        statement: Statement,
        tables: Vec<(String, Arc<SourceTable>)>,
        stream: Option<&str>,
    ) -> Result<Self> {
        let mut state = context.state();
        let now = &mut state.execution_props_mut().query_execution_start_time;
        if let Some(planned_ns) = query.now_ns {
            *now = Some(DateTime::from_timestamp_nanos(planned_ns));
        }
        let planned_ns = now.and_then(|now| now.timestamp_nanos_opt());
        let replaced = replace_as_except(&statement);
        let plan = |state: &SessionState, statement| {
            let logical = column_names::plan_with_any_case(statement, |statement| {
                plan_statement(state, statement)
            })?;
            let logical = table_sample::insert_row_samples(logical, &tables, state)?;
            correlated_subqueries::reject_outer_aggregates_in_subqueries(&logical)?;
            let once = evaluate_random_calls_once(logical.clone())?;
            let joins = || {
                let joins =
                    correlated_subqueries::rewrite_as_joins(&once)?.unwrap_or_else(|| once.clone());
                optimise_plan(state, &logical, joins)
            };
            let optimised = match correlated_subqueries::has_correlation_below_outer_join(&once)? {
                true => joins()
                    .map_err(|_| into_datafusion_error(correlation_below_outer_join_error()))?,
                // DataFusion's own error says more than the error about joins.
                false if correlated_subqueries::has_reference_beyond_enclosing_query(&once)? => {
                    joins().map_err(|error| match optimise_plan(state, &logical, once.clone()) {
                        Err(refusal) => refusal,
                        Ok(_) => error,
                    })?
                }
                false => {
                    let optimised = optimise_plan(state, &logical, once.clone());
                    // DataFusion plans few kinds of correlated subqueries; joins replace the others.
                    optimised.or_else(|error| joins().map_err(|_| error))?
                }
            };
            Ok((logical, optimised))
        };
        let spoken = statement.clone();
        let (logical, optimised) = statement_planning::plan_with_retries(&state, statement, plan)
            .map_err(|error| {
            ambiguous_column_error(&error, &spoken).unwrap_or_else(|| error.into_tidemill_error())
        })?;
        if let Some(replaced) = replaced {
            check_replaced_columns(statement_planning::statement_to_plan(&state, replaced))?;
        }
        // The plan as written names the result's columns, because the optimiser may rename them. Their types
        // come from the optimised plan: those of a UNION, for example, are not final before.
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        let named = build_result_schema(&logical, &names, &spoken);
        let used = Arc::new(pruning::collect_used_fields(&logical).into_tidemill_error()?);
        tables.iter().for_each(|(_, table)| table.set_used_fields(&used));
        let logical = float_order::rewrite_nested_extremes(optimised).into_tidemill_error()?;
        let logical = limit_lists(logical).into_tidemill_error()?;
        let mut schema = Arc::new(apply_plan_types(&named, logical.schema()));
        if let (true, [(_, table)]) = (query.keeps_columns, tables.as_slice()) {
            let own = table.source().and_then(|source| source.common_file_schema());
            let is_same = |own: &SchemaRef| {
                own.fields().iter().map(|f| f.name()).eq(schema.fields().iter().map(|f| f.name()))
            };
            schema = own.filter(is_same).unwrap_or(schema);
        }
        if !has_limit(&logical)? {
            tables.iter().for_each(|(_, table)| table.set_reads_all_records());
        }
        let scanned = build_side_extraction::collect_scanned_tables(&logical)?;
        let table_of = |name: &TableReference| {
            let found = tables.iter().find(|(table, _)| table == name.table());
            found.and_then(|(_, table)| table.source())
        };
        let stream = match stream {
            Some(name) => scanned
                .iter()
                .find(|table| table.table() == name)
                .cloned()
                .ok_or_else(|| "the query does not read the source".to_string()),
            None => build_side_extraction::choose_stream(
                &scanned,
                |name| {
                    table_of(name)
                        .and_then(|source| build_side_extraction::estimate_memory_bytes(source))
                },
                settings.memory_bytes / BUILD_SIDES_BUDGET_DIVISOR / 2,
            ),
        };
        let route = choose_execution_path(&logical, &stream)?;
        // Where two of the sources are too large to hold, a join input may be as well.
        let mut has_join = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Join(_)));
        let is_large = stream.is_err()
            && scanned.len() > 1
            && logical.exists_dyn(&mut has_join).into_tidemill_error()?;
        let joins =
            if is_large { JoinStrategy::LargeSidesSorted } else { JoinStrategy::HeldInMemory };
        let sampled = tables.iter().find(|(_, table)| table.is_sampled());
        if let (Some(_), Some((name, _))) = (&query.turbo, sampled) {
            return Err(turbo::sampled_source_error(name));
        }
        let (bounds, unbounded) = match (&query.turbo, &route) {
            (None, _) => (None, None),
            (Some(turbo), ExecutionPath::Tables(parts)) => {
                if turbo.find_rows_max.is_some() {
                    return Err(turbo::find_with_groups_error());
                }
                let of_part = parts
                    .find_estimates(&logical, &schema, true)
                    .ok_or_else(turbo::turbo_summary_error)?;
                if turbo.target_error.is_some() {
                    turbo::sampled_execution::check_has_estimates(&of_part.columns)?;
                    if !parts.spec.is_order_insensitive() {
                        return Err(turbo::target_error_with_order_sensitive_error());
                    }
                }
                let of_part = Some(Arc::new(of_part));
                if turbo.is_without_intervals { (None, of_part) } else { (of_part, None) }
            }
            (Some(turbo), ExecutionPath::Rows { skip, .. }) => {
                if turbo.target_error.is_some() {
                    return Err(turbo::target_error_without_estimates_error());
                }
                if turbo.find_rows_max.is_some() && *skip > 0 {
                    return Err(turbo::find_with_offset_error());
                }
                (None, None)
            }
            (Some(_), ExecutionPath::Engine { reason: why }) => {
                return Err(turbo::not_mergeable_error(why));
            }
        };
        if let Some(bounds) = &bounds {
            schema = bounds.schema_with_bounds()?;
        }
        let query = Query { now_ns: planned_ns, ..query.clone() };
        let settings = settings.clone();
        let mut plan = QueryPlan {
            query,
            settings,
            rejects,
            context,
            source_tables: tables,
            logical_plan: logical,
            schema,
            execution_path: route,
            join_strategy: joins,
            bounded_estimates: bounds,
            unbounded_estimates: unbounded,
            local_run_reason: None,
            analyze_planning_time: None,
        };
        if reads_no_table(&plan.logical_plan) {
            // A query without a table leaves no work to workers.
            plan.query.workers = None;
        }
        if plan.query.workers.is_some()
            && let Err(refused) = tasks::check_cluster_support(&plan)
        {
            plan.fall_back_to_local_run(refused)?;
        }
        if plan.query.turbo.is_some() && matches!(plan.execution_path, ExecutionPath::Tables(_)) {
            // Sources that the finish plan reads would be read whole, so turbo needs a mergeable plan.
            plan.require_mergeable().map_err(|error| {
                let message = error.to_string();
                turbo::not_mergeable_error(message.lines().next().unwrap_or_default())
            })?;
        }
        Ok(plan)
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        match self.analyze_planning_time {
            Some(_) => explain_analyze::plan_line_schema(),
            None => &self.schema,
        }
    }

    /// Removes the sources' names, which are paths, from a plan's text.
    fn strip_source_names(&self, text: String) -> String {
        let names: Vec<&str> = self.source_tables.iter().map(|(name, _)| name.as_str()).collect();
        strip_table_names(&text, &names)
    }

    /// Returns a source's splits as a run would read them.
    fn plan_splits(&self, name: &str, source: &Source) -> Result<Vec<Split>> {
        let turbo = self.query.turbo.as_ref().filter(|turbo| match &self.execution_path {
            ExecutionPath::Tables(parts) => {
                parts.stream.table() == name && turbo.needs_fine_splits(&self.execution_path)
            }
            ExecutionPath::Rows { stream, .. } => stream.table() == name,
            ExecutionPath::Engine { .. } => false,
        });
        let target_bytes = turbo
            .map(|turbo| turbo.split_bytes.unwrap_or_else(|| source.sample_split_target_bytes()));
        let cutting = SplitOptions { target_bytes, ..SplitOptions::default() };
        Ok(source.splits_with_options(cutting, &mut |_, _| true)?)
    }

    /// Returns a description of how the query would run.
    ///
    /// # Errors
    /// Errors of splitting the sources.
    pub fn explain(&self) -> Result<PlanExplanation> {
        let sources = self
            .source_tables
            .iter()
            .filter_map(|(name, table)| Some((name, table.source()?)))
            .map(|(name, source)| {
                Ok(SourceExplanation {
                    name: redact_url(name),
                    format: source.format().name().to_string(),
                    files: source.files().len() as u64,
                    splits: self.plan_splits(name, source)?.len() as u64,
                    bytes: source.total_bytes(),
                    columns: source
                        .schema()
                        .fields()
                        .iter()
                        .map(|field| (field.name().clone(), field.data_type().to_string()))
                        .collect(),
                })
            })
            .collect::<Result<_>>()?;
        // A plan shows the values of parameters, which may be secret.
        let shown_text = |text: String| redaction::redact_message(&self.strip_source_names(text));
        let text = |plan: &LogicalPlan| shown_text(plan.display_indent().to_string());
        let held = |sides: &[BuildSide]| -> Vec<(String, String)> {
            let held = sides.iter().enumerate();
            held.map(|(index, side)| (format!("held {}", index + 1), text(&side.plan))).collect()
        };
        let (path, why, steps) = match &self.execution_path {
            ExecutionPath::Tables(parts) => {
                let mut steps = held(&parts.build_sides);
                steps.push(("map".to_string(), text(&parts.map)));
                let mut tables = parts.spec.describe_keys_and_states();
                if self.map_with_dictionary_keys(parts)?.is_some() {
                    tables.push("found by the codes of the keys".to_owned());
                }
                tables.push(parts.spec.describe_merge_order());
                steps.push(("tables".to_string(), shown_text(tables.join("\n"))));
                let finish = self.build_empty_finish_plan(parts)?;
                steps.push(("finish".to_string(), text(&finish)));
                let late = build_side_extraction::collect_scanned_tables(&finish)?;
                let beside = self.describe_other_sources(&parts.stream, &parts.build_sides, &late);
                ("partial tables", format!("one aggregation over one source{beside}"), steps)
            }
            ExecutionPath::Rows { stream, build_sides: sides, map, skip, fetch, projections } => {
                let mut steps = held(sides);
                steps.push(("map".to_string(), text(map)));
                if *skip > 0 || fetch.is_some() {
                    let fetch = fetch.map_or("all".to_string(), |fetch| fetch.to_string());
                    steps.push(("limit".to_string(), format!("skip {skip}, then {fetch}")));
                }
                steps.extend(projections.iter().map(|projection| {
                    let exprs: Vec<String> = projection.expr.iter().map(Expr::to_string).collect();
                    ("projection".to_string(), shown_text(exprs.join(", ")))
                }));
                let beside = self.describe_other_sources(stream, sides, &[]);
                let why = format!("per-record steps alone, in the order of the input{beside}");
                ("rows", why, steps)
            }
            ExecutionPath::Engine { reason: why } => {
                ("datafusion", why.clone(), vec![("plan".to_string(), text(&self.logical_plan))])
            }
        };
        Ok(PlanExplanation {
            path: path.to_string(),
            why,
            mergeable: self.require_mergeable().is_ok(),
            memory_bytes: self.settings.memory_bytes,
            threads: self.settings.threads as u64,
            sources,
            steps,
            elsewhere: tasks::explain_cluster_read(self)?,
            forecast: None,
        })
    }

    /// Describes the sources besides the stream, for the explanation.
    fn describe_other_sources(
        &self,
        stream: &TableReference,
        sides: &[BuildSide],
        late: &[TableReference],
    ) -> String {
        let held: BTreeSet<&str> =
            sides.iter().flat_map(|side| &side.sources).map(String::as_str).collect();
        let late: BTreeSet<&str> = self.filter_sources(late).collect();
        let mut said = String::new();
        if self.source_tables.len() > 1 {
            said.push_str(&format!(", `{}`", redact_url(stream.table())));
        }
        if !held.is_empty() {
            said.push_str(&format!("; {} held in memory beside it", list_in_backticks(held)));
        }
        if !late.is_empty() {
            said.push_str(&format!("; {} read for the finished table", list_in_backticks(late)));
        }
        said
    }

    /// Returns warnings about the sources the query reads, and about a run that falls back to this machine.
    pub fn warning(&self) -> Option<String> {
        let mut read: HashMap<String, BTreeSet<String>> = HashMap::new();
        // The walk cannot fail; without columns found a warning is only omitted.
        let _ = self.logical_plan.apply_with_subqueries_dyn(&mut |node| {
            if let LogicalPlan::TableScan(scan) = node {
                let own = read.entry(scan.table_name.table().to_owned()).or_default();
                own.extend(scan.projected_schema.fields().iter().map(|field| field.name().clone()));
                let refs = scan.filters.iter().flat_map(Expr::column_refs);
                own.extend(refs.map(|column| column.name.clone()));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        let sources = self.source_tables.iter().filter_map(|(name, table)| {
            let own = read.get(name);
            table
                .source()?
                .warning_for_columns(|column| own.is_some_and(|own| own.contains(column)))
        });
        let here =
            self.local_run_reason.iter().map(|why| format!("it runs on this machine: {why}"));
        let warnings: Vec<String> = here.chain(sources).collect();
        (!warnings.is_empty()).then(|| warnings.join("\n"))
    }

    /// Returns the names of those tables that are sources.
    fn filter_sources<'a>(&self, tables: &'a [TableReference]) -> impl Iterator<Item = &'a str> {
        let is_source = |table: &&str| self.source_tables.iter().any(|(name, _)| name == table);
        tables.iter().map(TableReference::table).filter(is_source)
    }

    /// Builds the plan above the aggregation over an empty table.
    fn build_empty_finish_plan(&self, parts: &AggregationPlan) -> Result<LogicalPlan> {
        let nothing = FinishedTable::new(parts.finished_schema(), Box::new(std::iter::empty()));
        parts.build_finish_plan(&self.logical_plan, Arc::new(nothing))
    }

    /// Runs the query.
    ///
    /// Rows come as they are ready; an aggregation reads its whole input first.
    ///
    /// # Errors
    /// Errors of reading, mapping and merging. The iterator may return further errors.
    pub fn run(self) -> Result<Results> {
        self.run_watched(None)
    }

    /// Runs the query. If it is one aggregation, `watch` receives its provisional answer from time to time.
    /// Cancelling [`RunSettings::stop_reading`] then ends the run with that answer as the result.
    ///
    /// # Errors
    /// Those of [`QueryPlan::run`].
    pub fn run_watched(mut self, watch: Option<InterimResultObserver<'_>>) -> Result<Results> {
        if let Some(planning) = self.analyze_planning_time.take() {
            return self.run_explain_analyze(planning);
        }
        let (sql, plan) = (self.query.sql.clone(), self.logical_plan.clone());
        let tables = self.source_tables.clone();
        self.start_run(watch).map_err(|error| explain_run_error(error, &sql, &plan, &tables))
    }

    fn start_run(mut self, watch: Option<InterimResultObserver<'_>>) -> Result<Results> {
        if let Some(why) = self.read_build_sides()? {
            if self.query.workers.is_some() {
                self.fall_back_to_local_run(tasks::cluster_unsupported_error(&why))?;
            }
            self.fall_back_to_engine(why)?;
        }
        if watch.is_some() && self.query.turbo.is_none() {
            self.bounded_estimates = self.find_watched_estimates();
        }
        let account = self.new_coverage_builder(None);
        let schema = Arc::clone(&self.schema);
        let cancel = self.settings.cancel.clone();
        self.report_execution_path();
        let inner = match &self.execution_path {
            ExecutionPath::Tables(parts) => match (&self.query.turbo, watch) {
                (Some(turbo), watch) => {
                    let (merged, part, account) = self.run_sampled_tables(parts, turbo, watch)?;
                    return self.finish_table(parts, merged, account, Some(part));
                }
                (None, Some(watch)) if self.bounded_estimates.is_some() => {
                    let turbo = TurboSettings::default();
                    match self.run_sampled_tables(parts, &turbo, Some(watch)) {
                        // The first rejected records must be reported in input order: run again in that
                        // order.
                        Err(Error::BadRecords { .. }) => {
                            self.source_tables.iter().for_each(|(_, table)| table.discard_scans());
                            self.rejects.reset()?;
                            let merged = self.aggregate_input(parts, FoldOutput::Answers)?;
                            return self.finish_table(parts, merged, account, None);
                        }
                        folded => {
                            let (merged, part, account) = folded?;
                            return self.finish_table(parts, merged, account, Some(part));
                        }
                    }
                }
                (None, _) => {
                    let merged = self.aggregate_input(parts, FoldOutput::Answers)?;
                    return self.finish_table(parts, merged, account, None);
                }
            },
            ExecutionPath::Rows { stream, build_sides: sides, map, skip, fetch, .. }
                if self.query.turbo.is_some() =>
            {
                self.start_unordered_rows((stream, map, sides), (*skip, *fetch))?
            }
            ExecutionPath::Rows { stream, build_sides: sides, map, skip, fetch, .. } => match &self
                .query
                .workers
            {
                Some(workers) => {
                    let of = (stream, map, sides.as_slice());
                    match tasks::read_rows_on_workers(&self, of, (*skip, *fetch), workers)? {
                        ClusterRows::SentRows(rows) => RowSource::WorkersInOrder(Box::new(rows)),
                        ClusterRows::ShuffledRows(rows) => {
                            RowSource::WrittenByWorkers(Box::new(rows))
                        }
                    }
                }
                None => {
                    let (map, scan) = self.plan_map_per_split(stream, map)?;
                    let budget_bytes = self.settings.memory_share_bytes(1, 2);
                    let (threads, limits) = (self.settings.threads, (*skip, *fetch));
                    RowSource::LocalInOrder(OrderedRows::start(
                        map,
                        scan,
                        threads,
                        budget_bytes,
                        (&cancel, &self.settings.progress),
                        limits,
                    )?)
                }
            },
            ExecutionPath::Engine { .. } => match self.start_engine()? {
                Ok(engine) => RowSource::Engine(engine),
                Err(why) => {
                    self.fall_back_to_engine(why)?;
                    return self.start_run(watch);
                }
            },
        };
        let calculation = self.plan_row_calculation()?;
        Ok(Results {
            schema,
            row_source: inner,
            row_calculation: calculation,
            coverage_builder: account,
            cancel,
            has_ended: false,
            is_complete: false,
        })
    }

    /// Plans the projections above the limit of the row path, ready to run.
    fn plan_row_calculation(&self) -> Result<Option<RowCalculation>> {
        match &self.execution_path {
            ExecutionPath::Rows { map, projections, .. } if !projections.is_empty() => {
                let state = self.context.state();
                RowCalculation::new(&state, map.schema(), projections).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns a session and a plan by which DataFusion keeps the order of rows, also of rows that its
    /// aggregates find equal. `bytes` is the memory of the session.
    fn prepare_ordered_execution(
        &self,
        plan: LogicalPlan,
        bytes: usize,
    ) -> Result<(SessionState, LogicalPlan)> {
        let state = session::single_threaded_state(&self.context.state(), bytes, &self.settings)?;
        Ok((state, add_row_numbers(plan).into_tidemill_error()?))
    }

    /// Starts the plan on DataFusion. Returns the reason to sort the inputs of all joins instead, if an input
    /// that a join holds does not fit in memory.
    pub(crate) fn start_engine(&self) -> Result<Result<BackgroundExecution, String>> {
        let state = self.context.state();
        let mut logical = self.logical_plan.clone();
        let state = match &self.join_strategy {
            JoinStrategy::HeldInMemory if depends_on_input_order(&logical)? => {
                let (state, in_order) = self
                    .prepare_ordered_execution(logical, self.settings.memory_share_bytes(1, 2))?;
                logical = in_order;
                state
            }
            JoinStrategy::HeldInMemory => state,
            JoinStrategy::LargeSidesSorted => session::large_join_state(&state, false),
            JoinStrategy::AllSorted => session::large_join_state(&state, true),
        };
        let cancel = &self.settings.cancel;
        let mut engine = BackgroundExecution::start(state, logical, self.settings.threads, cancel)?;
        let sources = || self.source_tables.iter().filter_map(|(_, table)| table.source());
        let is_stream =
            || sources().any(|source| source.files().iter().any(|file| file.is_stream()));
        if self.join_strategy != JoinStrategy::LargeSidesSorted || is_stream() {
            return Ok(Ok(engine));
        }
        // DataFusion reads held join inputs before the first row appears.
        match engine.wait_for_first_batch(cancel) {
            Err(Error::MemoryBudgetTooSmall { .. }) => {
                self.source_tables.iter().for_each(|(_, table)| table.discard_scans());
                engine.shut_down();
                Ok(Err("what a join holds takes more memory than there is".into()))
            }
            Err(error) => Err(error),
            Ok(()) => Ok(Ok(engine)),
        }
    }

    /// Reads the build sides into memory. Returns the reason why they cannot be held, if they are larger than
    /// estimated.
    pub(crate) fn read_build_sides(&self) -> Result<Option<String>> {
        let sides = match &self.execution_path {
            ExecutionPath::Tables(parts) => &parts.build_sides,
            ExecutionPath::Rows { build_sides: sides, .. } => sides,
            ExecutionPath::Engine { .. } => return Ok(None),
        };
        if sides.is_empty() {
            return Ok(None);
        }
        self.report_execution_path();
        let settings = &self.settings;
        let held_bytes_max = settings.memory_bytes / BUILD_SIDES_BUDGET_DIVISOR;
        let mut held_bytes = 0u64;
        let ends_at = self.query.turbo.as_ref().and_then(TurboSettings::ends_at);
        let cancel = ends_at
            .map_or(settings.cancel.clone(), |it| settings.cancel.child_flag_with_deadline(it));
        for side in sides {
            self.refuse_incomplete_build_side(side)?;
            // A source that hangs does not delay the run beyond the deadline.
            let in_time = |error: Error| match error {
                Error::Interrupted if !settings.cancel.is_cancelled() => {
                    let sources = list_in_backticks(side.sources.iter().map(String::as_str));
                    turbo::deadline_before_build_sides_error(&sources)
                }
                error => error,
            };
            let (state, plan) = self
                .prepare_ordered_execution(side.plan.clone(), settings.memory_share_bytes(1, 4))?;
            let mut rows = BackgroundExecution::start(state, plan, 1, &cancel).map_err(in_time)?;
            let mut batches = Vec::new();
            while let Some(batch) = rows.next_batch(&cancel).map_err(in_time)? {
                let batch = conform_batch_to_schema(batch, side.rows.schema())?;
                held_bytes += batch.get_array_memory_size() as u64;
                if held_bytes > held_bytes_max {
                    return Ok(Some(format!(
                        "what is joined from {} takes more than the {} of memory that are for \
                         tables held whole",
                        list_in_backticks(side.sources.iter().map(String::as_str)),
                        coverage::format_decimal_bytes(held_bytes_max),
                    )));
                }
                batches.push(batch);
            }
            side.rows.set_batches(batches);
        }
        Ok(None)
    }

    /// Returns an error if files of a build side are missing: build sides are read whole.
    fn refuse_incomplete_build_side(&self, side: &BuildSide) -> Result<()> {
        let is_joined = |name: &String| side.sources.iter().any(|source| source == name);
        let tables = self.source_tables.iter().filter(|(name, _)| is_joined(name));
        for source in tables.filter_map(|(_, table)| table.source()) {
            const WHOLE: &str = "what is joined is read as a whole";
            if let Some(file) = source.skipped_files().first() {
                return Err(turbo::sampling_plan::unreadable_file_error(file, WHOLE));
            }
            if let Some(file) = source.files().iter().find(|file| file.is_unresponsive()) {
                let late = std::io::Error::other(format!("it does not answer; {WHOLE}"));
                let path = file.display_name().to_owned();
                return Err(Error::Io { action: "read", path, source: late });
            }
        }
        Ok(())
    }

    /// Drops the workers, if the query may run without them.
    ///
    /// # Errors
    /// The reason why it cannot run with workers.
    fn fall_back_to_local_run(&mut self, refused: Error) -> Result<()> {
        if !self.query.may_run_locally {
            return Err(refused);
        }
        self.query.workers = None;
        let said = refused.to_string();
        self.local_run_reason = Some(said.lines().next().unwrap_or_default().to_owned());
        Ok(())
    }

    /// Switches to the engine path as if nothing had been read.
    fn fall_back_to_engine(&mut self, why: String) -> Result<()> {
        self.source_tables.iter().for_each(|(_, table)| table.discard_scans());
        self.rejects.reset()?;
        self.accumulator_precisions().clear();
        self.execution_path = ExecutionPath::Engine { reason: why };
        self.join_strategy = match self.join_strategy {
            JoinStrategy::HeldInMemory => JoinStrategy::LargeSidesSorted,
            JoinStrategy::LargeSidesSorted | JoinStrategy::AllSorted => JoinStrategy::AllSorted,
        };
        Ok(())
    }

    /// Reports the execution path and the tables to the progress, for the job log.
    pub(crate) fn report_execution_path(&self) {
        let (path, tables, afterwards) = match &self.execution_path {
            ExecutionPath::Tables(parts) => {
                let tables =
                    self.strip_source_names(parts.spec.describe_keys_and_states().join("; "));
                ("partial tables", Some(tables), Some("merging groups"))
            }
            ExecutionPath::Rows { .. } => ("rows", None, None),
            ExecutionPath::Engine { .. } => {
                ("datafusion", None, find_blocking_step(&self.logical_plan))
            }
        };
        self.settings.progress.set_plan_outline(PlanOutline {
            execution_path: Some(path),
            tables,
            final_activity: afterwards,
        });
    }

    /// Creates the coverage builder of a run; `merged` is the coverage of merged partial tables.
    pub(crate) fn new_coverage_builder(&self, merged: Option<Coverage>) -> CoverageBuilder {
        CoverageBuilder {
            merged_coverage: merged,
            source_tables: self.source_tables.clone(),
            rejects: Arc::clone(&self.rejects),
            is_mergeable: self.require_mergeable().is_ok(),
            rejected_folder: self.settings.rejected_folder.clone(),
            table_estimates: Arc::default(),
            engine_precisions: self.accumulator_precisions(),
            engine_aggregates: self.engine_aggregates(),
            sql: self.query.sql.clone(),
            logical_plan: self.logical_plan.clone(),
            is_cut_short: false,
            is_stable_sort: self.query.stable_sort.is_some(),
            part_read: None,
            shown_bounds: Vec::new(),
        }
    }

    /// Returns the precision of DataFusion's accumulators.
    fn accumulator_precisions(&self) -> Arc<PrecisionRecorder> {
        self.context.state().config().get_extension::<PrecisionRecorder>().unwrap_or_default()
    }

    /// Returns the aggregates that DataFusion computes, not the tables.
    fn engine_aggregates(&self) -> Vec<PlannedAggregateCall> {
        let mut calls = precision_recorder::collect_aggregate_calls(&self.logical_plan, |name| {
            self.strip_source_names(name)
        });
        if let ExecutionPath::Tables(parts) = &self.execution_path {
            let computed = parts.computed_aggregate_names();
            calls.retain(|call| !computed.contains(call.plan_name()));
        }
        calls
    }

    /// Runs the plan above the aggregation over the answers of a merged table. `part` describes the part of
    /// the input read.
    pub(crate) fn finish_table(
        &self,
        parts: &AggregationPlan,
        merged: MergedTable,
        account: CoverageBuilder,
        part: Option<AnswerBuilder>,
    ) -> Result<Results> {
        let estimates = Arc::clone(&account.table_estimates);
        let names = parts.aggregate_display_names(&self.logical_plan).into_iter();
        let names: Vec<String> = names.map(|name| self.strip_source_names(name)).collect();
        let progress = self.settings.progress.clone();
        let is_exact = part.as_ref().is_none_or(|part| part.is_exact);
        // An exact answer to a query that is only watched needs no bounds.
        let is_plain = part.is_none() || is_exact && self.query.turbo.is_none();
        let bounds = self.bounded_estimates.as_deref().filter(|_| !is_plain);
        let carried = bounds.map_or(Vec::new(), |bounds| bounds.carried_fields());
        let schema = match (bounds, &self.query.turbo) {
            (Some(bounds), None) => bounds.schema_with_bounds()?,
            _ => Arc::clone(&self.schema),
        };
        let ends_at = self.query.turbo.as_ref().and_then(TurboSettings::intervals_end_at);
        let threads = self.settings.threads;
        let intervals = part.as_ref().and_then(|part| part.interval_calculator(threads, ends_at));
        let summarised = parts.answer_shaper();
        let shaped = move |answer: RecordBatch| match &part {
            Some(part) => part.build_answer(&answer),
            None => summarised(answer),
        };
        let next = move |merged: &mut MergedTable| {
            let mut clock = ThreadCpuClock::start();
            let answer = merged.next_answer()?;
            progress.table_counters().add_thread_cpu(&mut clock);
            if let Some(answer) = &answer {
                progress.table_counters().add_rows(answer.num_rows() as u64);
            }
            *estimates.lock() = merged.estimates(&names);
            answer.map(&shaped).transpose()
        };
        let answers = BufferedAnswers::new(
            merged,
            next,
            self.settings.memory_share_bytes(1, ANSWER_BACKLOG_BUDGET_DIVISOR),
        );
        let bounds = bounds.map(|bounds| (bounds, intervals.as_ref(), is_exact));
        let inner = self.start_finish_plan(parts, Box::new(answers), &carried, bounds)?;
        let cancel = self.settings.cancel.clone();
        let inner = RowSource::Engine(inner);
        let calculation = None;
        Ok(Results {
            schema,
            row_source: inner,
            row_calculation: calculation,
            coverage_builder: account,
            cancel,
            has_ended: false,
            is_complete: false,
        })
    }

    /// Returns the estimated columns of a watched query, or `None` if it cannot be watched: sampling order
    /// needs an order-free aggregation over whole local files, read on this machine.
    fn find_watched_estimates(&self) -> Option<Arc<ResultBounds>> {
        let ExecutionPath::Tables(parts) = &self.execution_path else { return None };
        if self.query.workers.is_some() {
            return None;
        }
        let (_, table) =
            self.source_tables.iter().find(|(name, _)| name == parts.stream.table())?;
        let source = table.source()?;
        let is_here = source.files().iter().all(|file| file.is_local());
        let bounds = parts.find_estimates(&self.logical_plan, &self.schema, false)?;
        // Without room for bounds in the schema there are no provisional answers.
        bounds.schema_with_bounds().ok()?;
        let is_order_free = parts.spec.is_order_insensitive();
        (is_here && is_order_free && !table.is_sampled()).then(|| Arc::new(bounds))
    }

    /// Starts the plan above the aggregation over `answers` of the tables, whose last columns are `carried`.
    /// `bounds` adds bounds beside the estimates, from these intervals, or as exact values.
    pub(crate) fn start_finish_plan(
        &self,
        parts: &AggregationPlan,
        answers: Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
        carried: &[FieldRef],
        bounds: Option<(&ResultBounds, Option<&Arc<IntervalCalculator>>, bool)>,
    ) -> Result<BackgroundExecution> {
        let finished: Arc<dyn TableProvider> =
            Arc::new(FinishedTable::new(parts.finished_schema_with_columns(carried), answers));
        let mut finish = parts.build_finish_plan(&self.logical_plan, finished)?;
        if let Some((bounds, intervals, is_exact)) = bounds {
            finish = bounds.plan_with_bounds(finish, intervals, is_exact)?;
        }
        let (state, finish) =
            self.prepare_ordered_execution(finish, self.settings.memory_share_bytes(1, 4))?;
        BackgroundExecution::start(state, finish, 1, &self.settings.cancel)
    }

    /// Returns the aggregation plan, if its table can be kept and merged with others.
    ///
    /// # Errors
    /// [`Error::Usage`] with the reason otherwise.
    pub(crate) fn require_mergeable(&self) -> Result<&AggregationPlan> {
        match &self.execution_path {
            ExecutionPath::Tables(parts) => {
                let finish = build_side_extraction::collect_scanned_tables(
                    &self.build_empty_finish_plan(parts)?,
                )?;
                let late: BTreeSet<&str> = self.filter_sources(&finish).collect();
                if late.is_empty() {
                    return Ok(parts);
                }
                Err(Error::usage_with_hint(
                    format!(
                        "{} {} needed to finish the table, and tables are merged and finished \
                         without their sources",
                        list_in_backticks(late.iter().copied()),
                        if late.len() == 1 { "is" } else { "are" },
                    ),
                    "join before the aggregation; or write the finished table, and join that",
                ))
            }
            ExecutionPath::Rows { .. } => Err(Error::usage_with_hint(
                "there is no table to keep: the query has no aggregation",
                MERGEABLE_HINT,
            )),
            ExecutionPath::Engine { reason: why } => Err(not_mergeable_error(why)),
        }
    }

    /// Runs map and tables, and writes a partial table to `out` instead of finishing it.
    ///
    /// # Errors
    /// [`Error::Usage`] where the query is not one aggregation over one source, or `out` is `-`; else those
    /// of [`QueryPlan::run`] and [`StagedFile::create`].
    pub fn write_partial_table(self, out: &Path, overwrite: bool, run: &RunId) -> Result<Coverage> {
        refuse_standard_output(out)?;
        if self.analyze_planning_time.is_some() {
            return Err(Error::usage_with_hint(
                "`EXPLAIN ANALYZE` has no tables to keep",
                "leave it out to write a partial table",
            ));
        }
        if self.query.turbo.is_some() {
            return Err(turbo::turbo_partial_table_error());
        }
        let parts = self.require_mergeable()?;
        self.report_execution_path();
        let file = StagedFile::create(out, overwrite, run)?;
        if let Some(why) = self.read_build_sides()? {
            return Err(not_mergeable_error(&why));
        }
        let of = (&self.query.sql, &self.logical_plan, &self.source_tables);
        let merged = self
            .aggregate_input(parts, FoldOutput::Groups)
            .map_err(|error| explain_run_error(error, of.0, of.1, of.2))?;
        let sources =
            self.source_tables.iter().filter_map(|(name, table)| Some((name, table.source()?)));
        let sources = sources.map(|(name, source)| PartialRunSource {
            name: name.clone(),
            files: source.files().len() as u64,
            bytes: source.total_bytes(),
        });
        let run = PartialRun { run: run.to_string(), sources: sources.collect() };
        self.write_merged_table(parts, merged, out, file, (None, vec![run]))
    }

    /// Writes a merged table to `file` and commits it as the partial table `out`. Returns the coverage.
    pub(crate) fn write_merged_table(
        &self,
        parts: &AggregationPlan,
        mut merged: MergedTable,
        out: &Path,
        file: StagedFile,
        (of, runs): (Option<Coverage>, Vec<PartialRun>),
    ) -> Result<Coverage> {
        let named = |(name, table): &(String, Arc<SourceTable>)| {
            (name.clone(), table.schema_with_hidden_marks())
        };
        let (streams, others): (Vec<_>, Vec<_>) = self
            .source_tables
            .iter()
            .map(named)
            .partition(|(name, _)| name == parts.stream.table());
        let (source, schema) = streams
            .into_iter()
            .next()
            .ok_or_else(|| Error::Internal("an aggregation without a source".into()))?;
        let (sql, tables) = (self.query.sql.clone(), parts.spec.describe_keys_and_states());
        let header = PartialTableHeader {
            sql,
            source_name: source,
            source_schema: schema,
            joined_sources: others,
            table_description: tables,
            runs,
        };
        let mut writer = PartialTableWriter::new(file, out, &header)?;
        while let Some(groups) = merged.next_encoded_groups()? {
            self.settings.progress.table_counters().add_rows(groups.num_rows() as u64);
            writer.write_groups(&groups)?;
        }
        // Estimates arise only when the table is finished.
        let coverage =
            CoverageBuilder { engine_aggregates: Vec::new(), ..self.new_coverage_builder(of) }
                .build_coverage(true);
        let (file, bytes) = writer.finish(&coverage)?;
        self.settings.progress.set_partial_table_bytes(bytes);
        file.commit(bytes)?;
        Ok(coverage)
    }

    /// Plans a map with a partition per split. Returns it with the scan below it.
    pub(crate) fn plan_map_per_split(
        &self,
        stream: &TableReference,
        map: &LogicalPlan,
    ) -> Result<MapAndScan> {
        let state = session::split_scan_state(&self.context.state());
        let physical = session::create_physical_plan(&state, map)?;
        let table = self.source_tables.iter().find(|(name, _)| name == stream.table());
        let scan = table
            .and_then(|(_, table)| table.scans().pop())
            .ok_or_else(|| Error::Internal("a map without a source".into()))?;
        let partitions = physical.properties().partitioning.partition_count();
        if partitions != scan.partition_count() {
            return Err(Error::Internal(format!(
                "a map of {partitions} partitions over {} splits",
                scan.splits().len()
            )));
        }
        let map = SplitMap::new(physical, state.task_ctx(), Arc::clone(&scan))?;
        Ok((map, scan))
    }

    /// Returns the map with text keys as dictionary codes, where its source stores codes.
    pub(crate) fn map_with_dictionary_keys(
        &self,
        parts: &AggregationPlan,
    ) -> Result<Option<DictionaryKeyMap>> {
        let table = self.source_tables.iter().find(|(name, _)| name == parts.stream.table());
        let coded = table.map(|(_, table)| {
            dictionary_keys::rewrite_with_dictionary_keys(&parts.map, &parts.spec, table)
        });
        Ok(coded.transpose().into_tidemill_error()?.flatten())
    }

    /// Returns the source table of this name, if there is one.
    pub(crate) fn source_table(&self, name: &str) -> Option<Arc<SourceTable>> {
        let table = self.source_tables.iter().find(|(table, _)| table == name);
        table.map(|(_, table)| Arc::clone(table))
    }

    /// Reads the input through map and tables, on this machine or by workers, and merges the tables.
    pub(crate) fn aggregate_input(
        &self,
        parts: &AggregationPlan,
        gives: FoldOutput,
    ) -> Result<MergedTable> {
        if let Some(workers) = &self.query.workers {
            return tasks::aggregate_on_workers(self, parts, workers, gives);
        }
        let coded = self.map_with_dictionary_keys(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let (map, scan) = self.plan_map_per_split(&parts.stream, map)?;
        let work = TableRun {
            map,
            scan,
            spec: &parts.spec,
            threads_max: self.settings.threads,
            memory_account: self.settings.new_table_account(),
            spill_dirs: &self.settings.spill_dirs,
            cancel: &self.settings.cancel,
            progress: &self.settings.progress,
        };
        let merged = table_runner::run_tables(&work)?;
        self.source_tables
            .iter()
            .flat_map(|(_, table)| table.scans())
            .try_for_each(|scan| scan.read_remaining_splits())?;
        let rows = self.source_tables.iter().flat_map(|(_, table)| table.scans());
        self.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
        Ok(merged)
    }
}

fn list_in_backticks<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| format!("`{}`", redact_url(name)));
    names.collect::<Vec<_>>().join(", ")
}

const MERGEABLE_HINT: &str =
    "a partial table is of one aggregation over one source, to which small ones may be joined";

/// Returns the error for a correlated subquery below an outer join.
fn correlation_below_outer_join_error() -> Error {
    Error::usage_with_hint(
        "a subquery has an outer join, and the rows of a side that may be missing depend on the row around the subquery",
        "put the condition into ON: LEFT JOIN b ON b.x = i.x AND b.y = outer.y",
    )
}

/// Optimises the plan `wanted` of a query, whose plan as written is `logical`.
///
/// # Errors
/// Errors of DataFusion's optimiser, and [`Error::Usage`] where it leaves a subquery in a place where none
/// can run.
fn optimise_plan(
    state: &SessionState,
    logical: &LogicalPlan,
    wanted: LogicalPlan,
) -> PlanResult<LogicalPlan> {
    check_recursive_subqueries(&wanted).map_err(into_datafusion_error)?;
    check_expression_places(&wanted).map_err(into_datafusion_error)?;
    // Before rules split aggregates, and once more when constants are known.
    let wanted = limit_lists(wanted)?;
    let optimised =
        state.optimize(&wanted).map_err(|error| explain_optimiser_error(&wanted, error))?;
    // A condition that is never true removes the source of the aggregation, and the table could not merge
    // with other runs.
    let optimised = match has_lost_its_source(logical, &optimised).map_err(into_datafusion_error)? {
        true => session::with_sources_kept(state).optimize(&wanted)?,
        false => optimised,
    };
    check_runnable(&optimised).map_err(into_datafusion_error)?;
    Ok(optimised)
}

/// Returns true if a plan's answer depends on the order of its input.
fn depends_on_input_order(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries_dyn(&mut |node| {
        node.apply_expressions_dyn(&mut |expr| {
            found |= expr.exists_dyn(&mut |expr| {
                Ok(matches!(expr, Expr::AggregateFunction(call) if is_order_sensitive_call(call)))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .into_tidemill_error()?;
    Ok(found)
}

/// Returns true if a plan aggregates the rows of one source and its optimised form reads none.
fn has_lost_its_source(plan: &LogicalPlan, optimised: &LogicalPlan) -> Result<bool> {
    let aggregates = plan
        .exists_dyn(&mut |node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
        .into_tidemill_error()?;
    Ok(aggregates
        && build_side_extraction::collect_scanned_tables(plan)?.len() == 1
        && build_side_extraction::collect_scanned_tables(optimised)?.is_empty())
}

/// Checks that the path of a partial table is not `-`.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_standard_output(out: &Path) -> Result<()> {
    match out == Path::new("-") {
        true => Err(Error::usage_with_hint(
            "a partial table cannot be written to `-`, standard output: it is a file of its own",
            "name a file, such as monday.part",
        )),
        false => Ok(()),
    }
}

fn not_mergeable_error(why: &str) -> Error {
    let message = format!("the table cannot be merged with others: {why}");
    Error::usage_with_hint(message, MERGEABLE_HINT)
}

/// Gives the statement's names the spelling of the tables' columns, and expands patterns that stand for
/// columns.
pub(crate) fn resolve_column_names(
    statement: &mut Statement,
    context: &SessionContext,
    tables: &[(String, Arc<SourceTable>)],
) -> Result<()> {
    let schemas: Vec<SchemaRef> = tables.iter().map(|(_, table)| table.schema()).collect();
    if let Statement::Statement(statement) = statement {
        column_names::respell_names(statement, schemas.iter().map(AsRef::as_ref));
    }
    let unhidden: UsedHiddenColumns = tables
        .iter()
        .filter(|(_, table)| !table.hidden_columns().is_empty())
        .map(|(name, table)| (name.clone(), table.hidden_columns().clone()))
        .collect();
    if translation::expand_columns(statement, &context.state(), &unhidden)? {
        check_syntax(statement, context)?;
    }
    if let Statement::Statement(statement) = statement {
        column_names::refuse_ambiguous_order_by(statement, schemas.iter().map(AsRef::as_ref))?;
        using_columns::qualify_using_columns(statement);
    }
    Ok(())
}

/// A map, and the scan of the splits below it.
type MapAndScan = (SplitMap, Arc<Scan>);

/// Adds a hint to an error about an unknown column in double quotes: text stands in single quotes.
fn hint_at_single_quotes(error: Error, sql: &str) -> Error {
    // The ORDER BY that `Query::select_sorted` appends has column names in double quotes.
    let sql = sql.split_once("\nFROM source\nORDER BY ").map_or(sql, |(before, _)| before);
    match error {
        Error::Usage { message, hint: None } => {
            let name = message.strip_prefix("unknown column `");
            let name = name.and_then(|rest| rest.split_once('`')).map(|(name, _)| name);
            match name {
                Some(name) if sql.contains(&format!("\"{name}\"")) => {
                    let hint = format!(
                        "a text stands in single quotes: '{name}'; double ones are of names"
                    );
                    Error::usage_with_hint(message, hint)
                }
                _ => Error::Usage { message, hint: None },
            }
        }
        // An unquoted word has lost its capitals; a text keeps them.
        Error::Usage { message, hint: Some(hint) } => {
            let name = hint.strip_prefix("a text, if it is one, stands in single quotes: '");
            let name = name.and_then(|rest| rest.strip_suffix('\''));
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let typed = name.and_then(|name| {
                let mut words = sql.split(|c| !is_part(c));
                Some((name, words.find(|word| word.to_lowercase() == name)?))
            });
            match typed {
                Some((name, typed)) => Error::usage_with_hint(
                    message.replacen(&format!("`{name}`"), &format!("`{typed}`"), 1),
                    hint.replace(&format!("'{name}'"), &format!("'{typed}'")),
                ),
                None => Error::Usage { message, hint: Some(hint) },
            }
        }
        other => other,
    }
}

/// Returns the error for a column name that two columns have, or `None` for other errors.
fn ambiguous_column_error(error: &DataFusionError, statement: &Statement) -> Option<Error> {
    #[derive(Default)]
    struct TableNameCollector(Vec<String>);

    impl Visitor for TableNameCollector {
        type Break = ();

        fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
            let name = match table {
                TableFactor::Table { alias: Some(alias), .. }
                | TableFactor::Derived { alias: Some(alias), .. } => alias.name.value.clone(),
                TableFactor::Table { name, .. } => match name.0.as_slice() {
                    [ObjectNamePart::Identifier(name)] => name.value.clone(),
                    _ => name.to_string(),
                },
                _ => return ControlFlow::Continue(()),
            };
            if !self.0.contains(&name) {
                self.0.push(name);
            }
            ControlFlow::Continue(())
        }
    }

    let DataFusionError::SchemaError(cause, _) = error.find_root() else { return None };
    let SchemaError::AmbiguousReference { field } = cause.as_ref() else { return None };
    let Statement::Statement(statement) = statement else { return None };
    let mut names = TableNameCollector::default();
    walk_statement(statement, &mut names);
    let name = field.name();
    let is_word = |source: &String| source.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let has_entries = statement.to_string().contains(JSON_ENTRY_COLUMN);
    Some(match names.0.as_slice() {
        [] | [_] if has_entries => Error::usage_with_hint(
            format!("two columns are `{name}`"),
            "json_each(x) AS e (k, v) calls its columns k and v; of other columns one has another name where it is \
             selected",
        ),
        [] | [_] => Error::usage_with_hint(
            format!("two columns are `{name}`"),
            format!("give one of them another name where it is selected: {name} AS other"),
        ),
        [first, second, ..] if is_word(first) && is_word(second) => Error::usage_with_hint(
            format!("column `{name}` is in more than one source"),
            format!("say which: `{first}.{name}` or `{second}.{name}`"),
        ),
        [first, ..] => Error::usage_with_hint(
            format!("column `{name}` is in more than one source"),
            format!("name the sources, as in FROM '{first}' AS a, and say which: `a.{name}`"),
        ),
    })
}

/// Returns the statement with each `* REPLACE (x AS a)` as `* EXCEPT (a), x AS a`, if it has one.
fn replace_as_except(statement: &Statement) -> Option<Statement> {
    let Statement::Statement(statement) = statement else { return None };
    let mut statement = statement.clone();
    syntax::rewrite_replace_as_except(&mut statement).then_some(Statement::Statement(statement))
}

/// Checks that the columns of `* REPLACE` exist. The planner ignores an unknown column there, but not in `*
/// EXCEPT`: `plan` is of the statement from [`replace_as_except`].
fn check_replaced_columns(plan: PlanResult<LogicalPlan>) -> Result<()> {
    use datafusion::error::DataFusionError as Df;
    match plan {
        Err(error) => match error.find_root() {
            Df::SchemaError(cause, _)
                if matches!(cause.as_ref(), SchemaError::FieldNotFound { .. }) =>
            {
                Err(error.into_tidemill_error())
            }
            Df::Plan(message) if message.contains("duplicate column names") => {
                Err(Error::usage_with_hint(
                    "`* REPLACE` names a column that is left out, or one twice",
                    "name each column once",
                ))
            }
            // The columns are in another order; errors that follow from that do not matter.
            _ => Ok(()),
        },
        Ok(_) => Ok(()),
    }
}

/// Returns the names of a source's own and hidden columns.
fn source_column_names(source: &Source) -> SourceColumns {
    let names = |fields: &[FieldRef]| fields.iter().map(|field| field.name().clone()).collect();
    SourceColumns { data: names(source.schema().fields()), hidden: names(source.hidden_columns()) }
}

/// Opens a source. Where a turbo query may leave out a part of it, files that do not answer do not delay the
/// opening.
fn open_source(
    spec: &SourceSpec,
    turbo: Option<&TurboSettings>,
    settings: &RunSettings,
) -> Result<Arc<Source>> {
    let (stdin, cancel, enough) =
        (standard_input(), &settings.cancel, settings.stop_reading.clone());
    let Some(turbo) = turbo else {
        return Ok(Arc::new(Source::open_with_stdin(spec, stdin, cancel)?));
    };
    // A query for the first rows wants those of a slow pipe as soon as they come.
    let pipe_until = turbo.find_rows_max.map(|_| Instant::now() + PIPE_SAMPLE_TIMEOUT);
    let patience = OpenTimeouts {
        deadline: turbo.ends_at(),
        pipe_deadline: pipe_until,
        early_stop: enough,
        ..OpenTimeouts::default()
    };
    Ok(Arc::new(match turbo.deadline.is_some() || turbo.drop_share.is_some() {
        true => Source::open_with_timeouts(spec, stdin, cancel, &patience)?,
        // While the source is not open yet, there is nothing to answer with.
        false => Source::open_with_early_stop(spec, stdin, cancel, &patience)
            .map_err(|error| Error::from(error).with_added_hint(turbo::sampling_plan::DROP_HINT))?,
    }))
}

/// Returns the specification of a table function such as `read_csv('…')`, with the query's defaults for
/// files.
fn spec_of_table_function(
    query: &Query,
    called: &TableFunctionSource,
    cancel: &CancelFlag,
) -> Result<SourceSpec> {
    let mut urls = called.urls.iter().cloned();
    let mut spec = query.file_defaults.clone();
    spec.url = urls.next().unwrap_or_default();
    spec.more_urls = urls.collect();
    if called.lists_files {
        return spec_of_file_listing(spec, cancel);
    }
    if let Some(format) = called.format {
        spec.format = Some(format.parse()?);
    }
    // Of mutually exclusive options, those of the statement win.
    if called.options.iter().any(|(option, _)| matches!(*option, "skip_lines" | "header_row")) {
        (spec.text_options.skip_lines, spec.text_options.header_row) = (None, None);
    }
    for (option, value) in &called.options {
        spec.text_options.set_option(option, value)?;
    }
    if let Some(schema) = &called.schema {
        spec.declared_schema = Some(schema_from_sql(schema)?);
    }
    let filename = called.filename_column.iter().map(|name| (HiddenColumn::Filename, name.clone()));
    spec.exposed_hidden_columns.extend(filename);
    if called.has_file_row_number {
        spec.exposed_hidden_columns.push((HiddenColumn::RowNumber, "file_row_number".to_owned()));
    }
    Ok(spec)
}

/// Returns a source in memory whose rows are the names of the files that `spec` matches.
fn spec_of_file_listing(spec: SourceSpec, cancel: &CancelFlag) -> Result<SourceSpec> {
    // Without a format, a folder would stand only for its files with a data suffix.
    let any = SourceSpec { format: Some(Format::Lines), ..spec.clone() };
    let files = tidemill_source::list_paths(&any, cancel)?;
    let names = StringArray::from_iter_values(files.iter().map(|file| file.as_ref()));
    let schema = Arc::new(Schema::new(vec![Field::new("file", DataType::Utf8, true)]));
    let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(names)])?;
    let given = Some(Arc::new(MemoryRows::from_table(schema, vec![rows])));
    Ok(SourceSpec {
        url: format!("glob({})", redact_url(&spec.url)),
        memory_rows: given,
        ..SourceSpec::default()
    })
}

/// Returns the name and specification of a table in the SQL: a named source, a table function or a file.
fn find_source(
    query: &Query,
    reference: &TableReference,
    called: &TableFunctionSources,
    cancel: &CancelFlag,
) -> Result<(String, SourceSpec)> {
    let name = reference.table();
    if let Some(called) = called.get(name) {
        let Some(table) = &called.sampled_table else {
            return Ok((name.to_owned(), spec_of_table_function(query, called, cancel)?));
        };
        let own = TableReference::bare(table.as_str());
        let (_, spec) = find_source(query, &own, &TableFunctionSources::new(), cancel).map_err(
            |error| match error {
                Error::Usage { .. } => Error::usage_with_hint(
                    format!("`{}` is no source to take a sample of", redact_url(table)),
                    "TABLESAMPLE is of files and sources; rows of a query: WHERE random() < 0.1",
                ),
                other => other,
            },
        )?;
        return Ok((name.to_owned(), spec));
    }
    if let Some(format) = reference.schema() {
        // Spark names a file by its format, a dot and its path.
        let is_format = ["csv", "json", "parquet", "text", "orc", "delta"].contains(&format);
        let dotted = match is_format && looks_like_file(name) {
            true => name.to_owned(),
            false => reference.to_string(),
        };
        return Err(Error::usage_with_hint(
            format!("unknown table `{dotted}`"),
            format!("a file is named in single quotes: FROM '{dotted}'"),
        ));
    }
    if let Some(source) = query.sources.iter().find(|source| source.name == name) {
        return Ok((name.to_string(), source.spec.clone()));
    }
    if !looks_like_file(name) {
        let names: Vec<&str> = query.sources.iter().map(|source| source.name.as_str()).collect();
        let hint = "a file is named in single quotes: FROM 'logs.csv'";
        if names.is_empty() {
            return Err(Error::usage_with_hint(format!("unknown table `{name}`"), hint));
        }
        return Err(Error::usage_with_hint(
            suggestions::unknown_name_message("source", name, &names),
            hint,
        ));
    }
    Ok((name.to_string(), SourceSpec { url: name.to_string(), ..query.file_defaults.clone() }))
}

/// Returns true if a plan has a limit, and so may need fewer rows of a source than it has.
fn has_limit(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries_dyn(&mut |node| {
        found |= match node {
            LogicalPlan::Limit(_) => true,
            LogicalPlan::TableScan(scan) => scan.fetch.is_some(),
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .into_tidemill_error()?;
    Ok(found)
}
