//! SQL over files: planned, explained, run.
//!
//! A [`Plan`] opens the sources that the SQL names, lets DataFusion parse and optimise it,
//! and decides by which [route](crate::route) it runs. Nothing is read before [`Plan::run`]
//! but what finding the schema takes.

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
use tidemill_planning::{DynLogicalPlan, DynTreeNode, plan_statement, walk_statement};
use tidemill_remote::PrefetchBudget;
use tidemill_sink::StagedFile;
use tidemill_source::{
    Format, HiddenColumn, MemoryRows, OpenTimeouts, RejectLog, Source, SourceSpec, Split,
    SplitOptions, flag_distribution, standard_input,
};
use tidemill_sql::dialects::{
    self, JSON_ENTRY_COLUMN, SourceColumns, TableFunctionSource, TableFunctionSources,
    UsedHiddenColumns,
};
use tidemill_sql::random_values::evaluate_random_calls_once;
use tidemill_sql::statement::{
    ParsedStatement, StatementKind, check_syntax, explain_analyze_query, parse_statement,
    schema_from_sql,
};
use tidemill_sql::{
    IntoTidemillError, column_names, correlated_subqueries, float_order, into_datafusion_error,
    session, statement_planning, syntax, using_columns,
};
use tidemill_tables::aggregate_calls::is_order_sensitive_call;
use tidemill_tables::limited_lists::limit_lists;
use tidemill_tables::merge::MergedTable;
use tidemill_tables::order_sensitive_aggregates::add_row_numbers;
use tidemill_tables::partial_tables::{
    PartialRun, PartialRunSource, PartialTableHeader, PartialTableWriter,
};
use tidemill_tables::precision_recorder::{self, PlannedAggregateCall, PrecisionRecorder};
use tidemill_tables::sessions;
use tidemill_tables::summary::{self, QuerySummary};

use crate::answers::Answers;
use crate::background::Background;
use crate::build_sides::{self, BuildSide};
use crate::coded::{self, Coded};
use crate::columns::{named, result_schema, settled, unqualified};
use crate::explain::{Explain, ExplainSource};
use crate::finished::Finished;
use crate::map::Map;
use crate::prune;
use crate::question::Query;
use crate::results::{Account, Results, RowSource, explained};
use crate::route::{
    Route, Tables, misplaced, not_optimised, not_run, recursion_in_subquery, refusal_of_map, route,
};
use crate::row_calculation::RowCalculation;
use crate::rows::OrderedRows;
use crate::sampled;
use crate::scan::{RunState, Scan, SourceTable};
use crate::secrets::{hide_called, hide_secrets, shown_sql};
use crate::tables::{self, Work};
use crate::tasks::{self, Gives, RowsThere};
use crate::turbo::answer::Answering;
use crate::turbo::bounds::Bounds;
use crate::turbo::intervals::Intervals;
use crate::turbo::run::Watch;
use crate::turbo::{self, Turbo};
use crate::unknown::looks_like_file;
use crate::{about, analysis};

/// So long a pipe is looked at for its types where its first rows are wanted.
const PIPE_LOOK: Duration = Duration::from_millis(500);
/// Which share of the budget answers may take that wait to be taken.
const ANSWERS_SHARE: u64 = 16;

/// A query that is ready to run.
pub struct Plan {
    pub(crate) query: Query,
    pub(crate) settings: RunSettings,
    pub(crate) rejects: Arc<RejectLog>,
    pub(crate) context: SessionContext,
    pub(crate) tables: Vec<(String, Arc<SourceTable>)>,
    pub(crate) logical: LogicalPlan,
    schema: SchemaRef,
    pub(crate) route: Route,
    joins: Joins,
    /// Which columns are estimates, where the answer may rest on a part of the input and bounds are wanted.
    pub(crate) bounds: Option<Arc<Bounds>>,
    /// The same where no bounds are wanted.
    pub(crate) unbounded: Option<Arc<Bounds>>,
    /// Why it runs on this machine after all.
    here_because: Option<String>,
    /// Duration of the planning, if the plan with the figures of a run is wanted and not its rows.
    analyzed: Option<Duration>,
}

/// What is expected of the joins of a plan that DataFusion runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joins {
    /// One side of each fits in memory.
    Small,
    /// No side of some may fit in memory.
    Large,
    /// Some side did not fit: none is held.
    Sorted,
}

/// A query planned over the columns that another run has found.
pub(crate) struct Over<'a> {
    /// The query, and its sources' columns.
    pub header: &'a PartialTableHeader,
    pub settings: &'a RunSettings,
    pub rejects: Arc<RejectLog>,
    /// Whether distinct counts beside other aggregates are planned as earlier releases did.
    pub counts_as_before: bool,
    /// What `now()` is, in nanoseconds since 1970. Default: the time.
    pub planned_ns: Option<i64>,
}

impl Over<'_> {
    /// Plans the query's statement; `table` makes a table for a source's name and columns.
    ///
    /// # Errors
    /// As planning.
    pub(crate) fn plan(
        self,
        mut statement: Statement,
        mut table: impl FnMut(&str, &SchemaRef) -> SourceTable,
    ) -> Result<Plan> {
        let Over { header, settings, rejects, counts_as_before, planned_ns } = self;
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
        respell(&mut statement, &context, &tables)?;
        check_syntax(&statement, &context)?;
        let (sql, stream) = (header.sql.clone(), Some(header.source_name.as_str()));
        let query = Query { sql, planned_ns, ..Query::default() };
        Plan::with_tables(&query, settings, rejects, context, statement, tables, stream)
    }
}

/// An error of a query that takes text for something else, with what the columns of text that it names look like; or
/// one that names a column that there is not, with the line that looks more like the header.
fn of_odd_columns(error: Error, tables: &[(String, Arc<SourceTable>)], sql: &str) -> Error {
    match error {
        Error::Usage { message, hint } if message.contains("TEXT") => {
            // What is in single quotes is a file or a value.
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
        // The columns of a file with titles are called as the first of these is.
        Error::Usage { message, hint } if message.starts_with("unknown column") => {
            let mut sources = tables.iter().filter_map(|(_, table)| table.source());
            let header = sources.find_map(|source| source.header_hint());
            Error::Usage { message, hint: header.or(hint) }
        }
        other => other,
    }
}

/// An error about a column that no record of a sample had: it may be in others, and the user can declare it.
fn of_sampled_keys(error: Error, tables: &[(String, Arc<SourceTable>)]) -> Error {
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

/// One part in so many of the budget is for tables that are held whole. By the estimate before
/// they are read they must fit in half of it.
const HELD_SHARE: u64 = 8;

/// What a plan that DataFusion runs still does when its sources have been read: the last step that waits for
/// all of its input.
fn afterwards(plan: &LogicalPlan) -> Option<&'static str> {
    let mut found = None;
    // Nothing can fail in it, and what is not found is only not said.
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

/// The most that a source asks for as `read_memory`.
fn read_memory_bytes(query: &Query) -> Option<u64> {
    let named = query.sources.iter().map(|source| &source.spec);
    let specs = named.chain([&query.defaults]);
    specs.filter_map(|spec| spec.storage_options.read_memory_bytes()).max()
}

/// Whether a plan makes its rows of no table, one at most.
fn is_of_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => plan.inputs().into_iter().all(is_of_nothing),
        _ => false,
    }
}

impl Plan {
    /// Opens the sources and plans the query.
    ///
    /// # Errors
    /// [`Error::Usage`] for SQL that cannot be planned, [`Error::NotFound`] for files that are
    /// not there, and what inferring a schema meets.
    pub fn new(query: &Query, settings: &RunSettings) -> Result<Self> {
        run_on_large_stack(PLAN_STACK_BYTES, || Self::planned(query, settings))
            .map_err(|error| {
                text_in_quotes(
                    statement_planning::explain_cast_error(error, &query.sql, None),
                    &query.sql,
                )
            })
            .map_err(|error| dialects::explain_missing_record_id(error, &query.sql))
    }

    fn planned(query: &Query, settings: &RunSettings) -> Result<Self> {
        if let (Some(sql), false, None) =
            (explain_analyze_query(&query.sql)?, query.per_record, query.map.as_ref())
        {
            let began = Instant::now();
            let plan = Self::planned(&Query { sql, ..query.clone() }, settings)?;
            return Ok(Plan { analyzed: Some(began.elapsed()), ..plan });
        }
        let listed = match dialects::pivot_values_query(&query.sql) {
            Some(values) => Some(about::with_values(query, values, settings)?),
            None => None,
        };
        if let Some(query) = listed {
            return Self::planned(&query, settings);
        }
        // Its time runs from here, if from nowhere earlier.
        let query = &Query { turbo: query.turbo.clone().map(Turbo::begun), ..query.clone() };
        let rejects = Arc::new(RejectLog::new(settings.max_bad, settings.rejected_folder.clone()));
        let context = sessions::open_session(settings.memory_share_bytes(1, 2), settings)?;
        if let Some(stable) = query.stable {
            session::configure_stable_sort(&context, stable);
        }
        let ParsedStatement { mut statement, kind: wanted, function_sources: called } =
            parse_statement(&query.sql)?;
        let mut urls = HashMap::new();
        hide_secrets(&mut statement, &mut urls);
        hide_called(&called, &mut urls);
        // What stands for columns is looked at once they are known.
        if !dialects::needs_column_expansion(&statement) {
            check_syntax(&statement, &context)?;
        }
        let query = &Query { sql: shown_sql(&query.sql, &statement, &urls), ..query.clone() };
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::clone(&rejects),
            ahead: PrefetchBudget::with_prefetch_bytes(
                settings.memory_bytes / 16,
                read_memory_bytes(query),
            ),
            cores: settings.cores.clone(),
        };
        let mut tables: Vec<(String, Arc<SourceTable>)> = Vec::new();
        let mut references =
            context.state().resolve_table_references(&statement).into_tidemill_error()?;
        references.retain(|reference| !dialects::is_series_function(reference.table()));
        let mut found = references
            .iter()
            .map(|reference| {
                let (name, mut spec) = find(query, reference, &called, &settings.cancel)?;
                // A source in memory is only called so, which is for everybody to see.
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
            let fitted =
                flag_distribution::distribute_flags(&query.defaults, &paths, &settings.cancel)?;
            files.iter_mut().zip(fitted).for_each(|(spec, fitted)| **spec = fitted);
        }
        let mut opened = Vec::with_capacity(found.len());
        for (reference, (name, mut spec, _)) in references.into_iter().zip(found) {
            let lists_files = called.get(&name).is_some_and(|called| called.lists_files);
            if let (None, Some(schema), false) = (&spec.declared_schema, &query.schema, lists_files)
            {
                spec.declared_schema = Some(schema_from_sql(schema)?);
            }
            let source = opened_source(&spec, query.turbo.as_ref(), settings)?;
            opened.push((reference, name, source));
        }
        let columns = opened.iter().map(|(_, name, source)| (name.clone(), columns_of(source)));
        let mut unhidden = dialects::used_hidden_columns(&statement, &columns.collect());
        for (reference, name, source) in opened {
            let sample = called.get(&name).and_then(|called| called.percent_sample);
            let row_sample = called.get(&name).and_then(|called| called.row_sample);
            let mut hidden = unhidden.remove(&name).unwrap_or_default();
            if row_sample.is_some() {
                hidden.extend(sampled::place_columns(&source)?.map(str::to_owned));
            }
            let table = SourceTable::new(source, run.clone(), sample, &hidden);
            let table = Arc::new(table.with_row_sample(row_sample));
            context
                .register_table(reference, Arc::clone(&table) as Arc<dyn TableProvider>)
                .into_tidemill_error()?;
            tables.push((name, table));
        }
        respell(&mut statement, &context, &tables)
            .map_err(|error| of_sampled_keys(error, &tables))?;
        if let Some(map) = &query.map {
            let ParsedStatement { statement: mut map, kind: wanted, function_sources: called } =
                parse_statement(map)?;
            if !called.is_empty() || wanted != StatementKind::Select {
                return Err(Error::usage_with_hint(
                    "a map has no source of its own, and no sample of one",
                    "it is one SELECT of the records of the job's source",
                ));
            }
            hide_secrets(&mut map, &mut urls);
            respell(&mut map, &context, &tables)
                .map_err(|error| of_sampled_keys(error, &tables))?;
            check_syntax(&map, &context)?;
            let planned =
                statement_planning::statement_to_plan(&context.state(), map).into_tidemill_error();
            let planned = planned.map_err(|error| of_sampled_keys(error, &tables))?;
            if let Some(step) = refusal_of_map(&planned) {
                return Err(Error::usage_with_hint(
                    format!("the map's SQL has {step}, and a map sees one record at a time"),
                    "group in [tables]; order, limit and windows need a `tidemill query`",
                ));
            }
        }
        if query.per_record {
            let planned =
                statement_planning::statement_to_plan(&context.state(), statement.clone())
                    .into_tidemill_error();
            let planned = planned.map_err(|error| of_sampled_keys(error, &tables))?;
            if let Some(step) = refusal_of_map(&planned) {
                return Err(Error::usage_with_hint(
                    format!("a conversion sees one record at a time, and this one has {step}"),
                    "`tidemill query` groups and sorts, and writes every format too",
                ));
            }
        }
        if wanted != StatementKind::Select && (query.per_record || query.map.is_some()) {
            return Err(Error::usage(format!("`{}` is no query of records", wanted.keyword())));
        }
        let over = |statement: Statement, tables: Vec<(String, Arc<SourceTable>)>| {
            let (rejects, context) = (Arc::clone(&rejects), context.clone());
            let sources = tables.clone();
            Self::with_tables(query, settings, rejects, context, statement, tables, None)
                .map_err(|error| of_odd_columns(error, &sources, &query.sql))
                .map_err(|error| of_sampled_keys(error, &sources))
        };
        match wanted {
            StatementKind::Select => over(statement, tables),
            StatementKind::Describe => {
                let plan = over(statement, tables)?;
                over(about::described(&plan.schema)?, Vec::new())
            }
            StatementKind::Explain => {
                let plan = over(statement, tables)?;
                over(about::explained(&plan.explain()?.to_string())?, Vec::new())
            }
            StatementKind::Summarize => {
                let plan = over(statement.clone(), tables.clone())?;
                let (columns, call) = QuerySummary::from_schema(&plan.schema);
                context.register_udaf(summary::create_summary_udaf(columns, &plan.precisions()));
                over(about::summary(&statement, &plan.schema, &call)?, tables)
            }
        }
    }

    /// Plans over tables; `stream` is the one that was read in splits, where that is settled.
    pub(crate) fn with_tables(
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
        if let Some(planned_ns) = query.planned_ns {
            *now = Some(DateTime::from_timestamp_nanos(planned_ns));
        }
        let planned_ns = now.and_then(|now| now.timestamp_nanos_opt());
        let replaced = only_replaced(&statement);
        let plan = |state: &SessionState, statement| {
            let logical = column_names::plan_with_any_case(statement, |statement| {
                plan_statement(state, statement)
            })?;
            let logical = sampled::draw_rows(logical, &tables, state)?;
            correlated_subqueries::reject_outer_aggregates_in_subqueries(&logical)?;
            let once = evaluate_random_calls_once(logical.clone())?;
            let joins = || {
                let joins =
                    correlated_subqueries::rewrite_as_joins(&once)?.unwrap_or_else(|| once.clone());
                optimised_plan(state, &logical, joins)
            };
            let optimised = match correlated_subqueries::has_correlation_below_outer_join(&once)? {
                true => joins().map_err(|_| into_datafusion_error(below_outer_join()))?,
                // DataFusion's own refusal says more than that of the joins.
                false if correlated_subqueries::has_reference_beyond_enclosing_query(&once)? => {
                    joins().map_err(|error| {
                        match optimised_plan(state, &logical, once.clone()) {
                            Err(refusal) => refusal,
                            Ok(_) => error,
                        }
                    })?
                }
                false => {
                    let optimised = optimised_plan(state, &logical, once.clone());
                    // DataFusion plans few of the subqueries that depend on the row around them.
                    optimised.or_else(|error| joins().map_err(|_| error))?
                }
            };
            Ok((logical, optimised))
        };
        let spoken = statement.clone();
        let (logical, optimised) = statement_planning::plan_with_retries(&state, statement, plan)
            .map_err(|error| {
            ambiguous(&error, &spoken).unwrap_or_else(|| error.into_tidemill_error())
        })?;
        if let Some(replaced) = replaced {
            found_replaced(statement_planning::statement_to_plan(&state, replaced))?;
        }
        // The result's columns are named by the plan as written; optimising may rename. Their
        // types are settled by then: a UNION's, say, are not before.
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        let named = result_schema(&logical, &names, &spoken);
        let used = Arc::new(prune::used(&logical).into_tidemill_error()?);
        tables.iter().for_each(|(_, table)| table.set_used(&used));
        let logical = float_order::rewrite_nested_extremes(optimised).into_tidemill_error()?;
        let logical = limit_lists(logical).into_tidemill_error()?;
        let mut schema = Arc::new(settled(&named, logical.schema()));
        if let (true, [(_, table)]) = (query.keeps_columns, tables.as_slice()) {
            let own = table.source().and_then(|source| source.common_file_schema());
            let is_same = |own: &SchemaRef| {
                own.fields().iter().map(|f| f.name()).eq(schema.fields().iter().map(|f| f.name()))
            };
            schema = own.filter(is_same).unwrap_or(schema);
        }
        if !has_limit(&logical)? {
            tables.iter().for_each(|(_, table)| table.set_reads_all());
        }
        let scanned = build_sides::scanned(&logical)?;
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
            None => build_sides::stream_of(
                &scanned,
                |name| table_of(name).and_then(|source| build_sides::estimated_bytes(source)),
                settings.memory_bytes / HELD_SHARE / 2,
            ),
        };
        let route = route(&logical, &stream)?;
        // Where two of the sources are too large to be held, a join may have to be, too.
        let mut has_join = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Join(_)));
        let is_large = stream.is_err()
            && scanned.len() > 1
            && logical.exists_dyn(&mut has_join).into_tidemill_error()?;
        let joins = if is_large { Joins::Large } else { Joins::Small };
        let sampled = tables.iter().find(|(_, table)| table.is_sample());
        if let (Some(_), Some((name, _))) = (&query.turbo, sampled) {
            return Err(turbo::of_a_sample(name));
        }
        let (bounds, unbounded) = match (&query.turbo, &route) {
            (None, _) => (None, None),
            (Some(turbo), Route::Tables(parts)) => {
                if turbo.find.is_some() {
                    return Err(turbo::of_found_groups());
                }
                let of_part =
                    parts.bounds(&logical, &schema, true).ok_or_else(turbo::of_a_summary)?;
                if turbo.error.is_some() {
                    turbo::run::check_precision(&of_part.columns)?;
                    if !parts.spec.is_order_insensitive() {
                        return Err(turbo::of_order());
                    }
                }
                let of_part = Some(Arc::new(of_part));
                if turbo.no_intervals { (None, of_part) } else { (of_part, None) }
            }
            (Some(turbo), Route::Rows { skip, .. }) => {
                if turbo.error.is_some() {
                    return Err(turbo::of_rows());
                }
                if turbo.find.is_some() && *skip > 0 {
                    return Err(turbo::of_found_offset());
                }
                (None, None)
            }
            (Some(_), Route::Engine { why }) => return Err(turbo::not_mergeable(why)),
        };
        if let Some(bounds) = &bounds {
            schema = bounds.schema()?;
        }
        let query = Query { planned_ns, ..query.clone() };
        let settings = settings.clone();
        let mut plan = Plan {
            query,
            settings,
            rejects,
            context,
            tables,
            logical,
            schema,
            route,
            joins,
            bounds,
            unbounded,
            here_because: None,
            analyzed: None,
        };
        if is_of_nothing(&plan.logical) {
            // There is nothing for anybody else to do.
            plan.query.workers = None;
        }
        if plan.query.workers.is_some()
            && let Err(refused) = tasks::check(&plan)
        {
            plan.run_here(refused)?;
        }
        if plan.query.turbo.is_some() && matches!(plan.route, Route::Tables(_)) {
            // What another branch reads would be read as a whole.
            plan.mergeable().map_err(|error| {
                let message = error.to_string();
                turbo::not_mergeable(message.lines().next().unwrap_or_default())
            })?;
        }
        Ok(plan)
    }

    /// The result's columns.
    pub fn schema(&self) -> &SchemaRef {
        match self.analyzed {
            Some(_) => analysis::columns(),
            None => &self.schema,
        }
    }

    /// A plan's text without the tables' names, which are paths.
    fn short(&self, text: String) -> String {
        let names: Vec<&str> = self.tables.iter().map(|(name, _)| name.as_str()).collect();
        unqualified(&text, &names)
    }

    /// A source's splits as they would be read.
    fn splits_of(&self, name: &str, source: &Source) -> Result<Vec<Split>> {
        let turbo = self.query.turbo.as_ref().filter(|turbo| match &self.route {
            Route::Tables(parts) => parts.stream.table() == name && turbo.cuts(&self.route),
            Route::Rows { stream, .. } => stream.table() == name,
            Route::Engine { .. } => false,
        });
        let target_bytes = turbo
            .map(|turbo| turbo.split_bytes.unwrap_or_else(|| source.sample_split_target_bytes()));
        let cutting = SplitOptions { target_bytes, ..SplitOptions::default() };
        Ok(source.splits_with_options(cutting, &mut |_, _| true)?)
    }

    /// How the query would be run.
    ///
    /// # Errors
    /// As cutting the sources into splits.
    pub fn explain(&self) -> Result<Explain> {
        let sources = self
            .tables
            .iter()
            .filter_map(|(name, table)| Some((name, table.source()?)))
            .map(|(name, source)| {
                Ok(ExplainSource {
                    name: redact_url(name),
                    format: source.format().name().to_string(),
                    files: source.files().len() as u64,
                    splits: self.splits_of(name, source)?.len() as u64,
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
        // A parameter's value stands in a plan, and may be secret.
        let shown_text = |text: String| redaction::redact_message(&self.short(text));
        let text = |plan: &LogicalPlan| shown_text(plan.display_indent().to_string());
        let held = |sides: &[BuildSide]| -> Vec<(String, String)> {
            let held = sides.iter().enumerate();
            held.map(|(index, side)| (format!("held {}", index + 1), text(&side.plan))).collect()
        };
        let (path, why, steps) = match &self.route {
            Route::Tables(parts) => {
                let mut steps = held(&parts.sides);
                steps.push(("map".to_string(), text(&parts.map)));
                let mut tables = parts.spec.describe_keys_and_states();
                if self.coded(parts)?.is_some() {
                    tables.push("found by the codes of the keys".to_owned());
                }
                tables.push(parts.spec.describe_merge_order());
                steps.push(("tables".to_string(), shown_text(tables.join("\n"))));
                let finish = self.finish_of_nothing(parts)?;
                steps.push(("finish".to_string(), text(&finish)));
                let late = build_sides::scanned(&finish)?;
                let beside = self.beside(&parts.stream, &parts.sides, &late);
                ("partial tables", format!("one aggregation over one source{beside}"), steps)
            }
            Route::Rows { stream, sides, map, skip, fetch, projections } => {
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
                let beside = self.beside(stream, sides, &[]);
                let why = format!("per-record steps alone, in the order of the input{beside}");
                ("rows", why, steps)
            }
            Route::Engine { why } => {
                ("datafusion", why.clone(), vec![("plan".to_string(), text(&self.logical))])
            }
        };
        Ok(Explain {
            path: path.to_string(),
            why,
            mergeable: self.mergeable().is_ok(),
            memory_bytes: self.settings.memory_bytes,
            threads: self.settings.threads as u64,
            sources,
            steps,
            elsewhere: tasks::explained(self)?,
            forecast: None,
        })
    }

    /// What is said of the sources besides the stream.
    fn beside(
        &self,
        stream: &TableReference,
        sides: &[BuildSide],
        late: &[TableReference],
    ) -> String {
        let held: BTreeSet<&str> =
            sides.iter().flat_map(|side| &side.sources).map(String::as_str).collect();
        let late: BTreeSet<&str> = self.sources_of(late).collect();
        let mut said = String::new();
        if self.tables.len() > 1 {
            said.push_str(&format!(", `{}`", redact_url(stream.table())));
        }
        if !held.is_empty() {
            said.push_str(&format!("; {} held in memory beside it", in_backticks(held)));
        }
        if !late.is_empty() {
            said.push_str(&format!("; {} read for the finished table", in_backticks(late)));
        }
        said
    }

    /// What the user should be told of the sources, whatever becomes of the query.
    pub fn warning(&self) -> Option<String> {
        let mut read: HashMap<String, BTreeSet<String>> = HashMap::new();
        // What is not found here is only not said.
        let _ = self.logical.apply_with_subqueries_dyn(&mut |node| {
            if let LogicalPlan::TableScan(scan) = node {
                let own = read.entry(scan.table_name.table().to_owned()).or_default();
                own.extend(scan.projected_schema.fields().iter().map(|field| field.name().clone()));
                let refs = scan.filters.iter().flat_map(Expr::column_refs);
                own.extend(refs.map(|column| column.name.clone()));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        let sources = self.tables.iter().filter_map(|(name, table)| {
            let own = read.get(name);
            table
                .source()?
                .warning_for_columns(|column| own.is_some_and(|own| own.contains(column)))
        });
        let here = self.here_because.iter().map(|why| format!("it runs on this machine: {why}"));
        let warnings: Vec<String> = here.chain(sources).collect();
        (!warnings.is_empty()).then(|| warnings.join("\n"))
    }

    /// Those of the tables that are sources.
    fn sources_of<'a>(&self, tables: &'a [TableReference]) -> impl Iterator<Item = &'a str> {
        let is_source = |table: &&str| self.tables.iter().any(|(name, _)| name == table);
        tables.iter().map(TableReference::table).filter(is_source)
    }

    /// The plan above the aggregation, over no rows.
    fn finish_of_nothing(&self, parts: &Tables) -> Result<LogicalPlan> {
        let nothing = Finished::new(parts.finished_schema(), Box::new(std::iter::empty()));
        parts.finish(&self.logical, Arc::new(nothing))
    }

    /// Runs the query.
    ///
    /// Rows come as they are ready; an aggregation reads its whole input first.
    ///
    /// # Errors
    /// What reading, mapping and merging meet; more may come from the iterator.
    pub fn run(self) -> Result<Results> {
        self.run_watched(None)
    }

    /// The same; where the query is one aggregation, whoever watches is shown its answer as it stands, from time to
    /// time. The end of [`Settings::enough`] takes that for the result then.
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn run_watched(mut self, watch: Option<Watch<'_>>) -> Result<Results> {
        if let Some(planning) = self.analyzed.take() {
            return self.analyze(planning);
        }
        let (sql, plan) = (self.query.sql.clone(), self.logical.clone());
        let tables = self.tables.clone();
        self.started(watch).map_err(|error| explained(error, &sql, &plan, &tables))
    }

    fn started(mut self, watch: Option<Watch<'_>>) -> Result<Results> {
        if let Some(why) = self.fill_sides()? {
            if self.query.workers.is_some() {
                self.run_here(tasks::not_elsewhere(&why))?;
            }
            self.start_over(why)?;
        }
        if watch.is_some() && self.query.turbo.is_none() {
            self.bounds = self.watched_bounds();
        }
        let account = self.account(None);
        let schema = Arc::clone(&self.schema);
        let cancel = self.settings.cancel.clone();
        self.tell_progress();
        let inner = match &self.route {
            Route::Tables(parts) => match (&self.query.turbo, watch) {
                (Some(turbo), watch) => {
                    let (merged, part, account) = self.fold_part(parts, turbo, watch)?;
                    return self.finish(parts, merged, account, Some(part));
                }
                (None, Some(watch)) if self.bounds.is_some() => {
                    let turbo = Turbo::default();
                    match self.fold_part(parts, &turbo, Some(watch)) {
                        // Which records are the first that are refused is told in the order of the input.
                        Err(Error::BadRecords { .. }) => {
                            self.tables.iter().for_each(|(_, table)| table.forget_scans());
                            self.rejects.reset()?;
                            let merged = self.fold(parts, Gives::Answers)?;
                            return self.finish(parts, merged, account, None);
                        }
                        folded => {
                            let (merged, part, account) = folded?;
                            return self.finish(parts, merged, account, Some(part));
                        }
                    }
                }
                (None, _) => {
                    let merged = self.fold(parts, Gives::Answers)?;
                    return self.finish(parts, merged, account, None);
                }
            },
            Route::Rows { stream, sides, map, skip, fetch, .. } if self.query.turbo.is_some() => {
                self.find_rows((stream, map, sides), (*skip, *fetch))?
            }
            Route::Rows { stream, sides, map, skip, fetch, .. } => match &self.query.workers {
                Some(workers) => {
                    let of = (stream, map, sides.as_slice());
                    match tasks::rows(&self, of, (*skip, *fetch), workers)? {
                        RowsThere::Sent(rows) => RowSource::Elsewhere(Box::new(rows)),
                        RowsThere::Laid(rows) => RowSource::Laid(Box::new(rows)),
                    }
                }
                None => {
                    let (map, scan) = self.per_split(stream, map)?;
                    let budget_bytes = self.settings.memory_share_bytes(1, 2);
                    let (threads, limits) = (self.settings.threads, (*skip, *fetch));
                    RowSource::Rows(OrderedRows::start(
                        map,
                        scan,
                        threads,
                        budget_bytes,
                        (&cancel, &self.settings.progress),
                        limits,
                    )?)
                }
            },
            Route::Engine { .. } => match self.engine()? {
                Ok(engine) => RowSource::Engine(engine),
                Err(why) => {
                    self.start_over(why)?;
                    return self.started(watch);
                }
            },
        };
        let calculation = self.calculation()?;
        Ok(Results { schema, inner, calculation, account, cancel, ended: false, complete: false })
    }

    /// The projections above the limit of a route by rows, ready to run.
    fn calculation(&self) -> Result<Option<RowCalculation>> {
        match &self.route {
            Route::Rows { map, projections, .. } if !projections.is_empty() => {
                let state = self.context.state();
                RowCalculation::new(&state, map.schema(), projections).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What DataFusion runs a plan by whose rows come in order, as do those that its aggregates find equal.
    fn in_order(&self, plan: LogicalPlan, bytes: usize) -> Result<(SessionState, LogicalPlan)> {
        let state = session::single_threaded_state(&self.context.state(), bytes, &self.settings)?;
        Ok((state, add_row_numbers(plan).into_tidemill_error()?))
    }

    /// Has DataFusion run the plan; says why all of its joins have to be sorted, where one that holds a side
    /// does not fit in memory.
    pub(crate) fn engine(&self) -> Result<Result<Background, String>> {
        let state = self.context.state();
        let mut logical = self.logical.clone();
        let state = match &self.joins {
            Joins::Small if is_ordered(&logical)? => {
                let (state, in_order) =
                    self.in_order(logical, self.settings.memory_share_bytes(1, 2))?;
                logical = in_order;
                state
            }
            Joins::Small => state,
            Joins::Large => session::large_join_state(&state, false),
            Joins::Sorted => session::large_join_state(&state, true),
        };
        let cancel = &self.settings.cancel;
        let mut engine = Background::start(state, logical, self.settings.threads, cancel)?;
        let sources = || self.tables.iter().filter_map(|(_, table)| table.source());
        let is_stream =
            || sources().any(|source| source.files().iter().any(|file| file.is_stream()));
        if self.joins != Joins::Large || is_stream() {
            return Ok(Ok(engine));
        }
        // Sides that are held are read before the first row is there.
        match engine.await_first(cancel) {
            Err(Error::MemoryBudgetTooSmall { .. }) => {
                self.tables.iter().for_each(|(_, table)| table.forget_scans());
                engine.end();
                Ok(Err("what a join holds takes more memory than there is".into()))
            }
            Err(error) => Err(error),
            Ok(()) => Ok(Ok(engine)),
        }
    }

    /// Reads what is joined to the stream into memory; says why it cannot be held, where it is
    /// larger than it seemed.
    pub(crate) fn fill_sides(&self) -> Result<Option<String>> {
        let sides = match &self.route {
            Route::Tables(parts) => &parts.sides,
            Route::Rows { sides, .. } => sides,
            Route::Engine { .. } => return Ok(None),
        };
        if sides.is_empty() {
            return Ok(None);
        }
        self.tell_progress();
        let settings = &self.settings;
        let held_bytes_max = settings.memory_bytes / HELD_SHARE;
        let mut held_bytes = 0u64;
        let ends_at = self.query.turbo.as_ref().and_then(Turbo::ends_at);
        let cancel = ends_at
            .map_or(settings.cancel.clone(), |it| settings.cancel.child_flag_with_deadline(it));
        for side in sides {
            self.refuse_left_out(side)?;
            // What hangs is not waited for beyond the deadline.
            let in_time = |error: Error| match error {
                Error::Interrupted if !settings.cancel.is_cancelled() => {
                    let sources = in_backticks(side.sources.iter().map(String::as_str));
                    turbo::of_sides(&sources)
                }
                error => error,
            };
            let (state, plan) =
                self.in_order(side.plan.clone(), settings.memory_share_bytes(1, 4))?;
            let mut rows = Background::start(state, plan, 1, &cancel).map_err(in_time)?;
            let mut batches = Vec::new();
            while let Some(batch) = rows.next(&cancel).map_err(in_time)? {
                let batch = named(batch, side.rows.schema())?;
                held_bytes += batch.get_array_memory_size() as u64;
                if held_bytes > held_bytes_max {
                    return Ok(Some(format!(
                        "what is joined from {} takes more than the {} of memory that are for \
                         tables held whole",
                        in_backticks(side.sources.iter().map(String::as_str)),
                        coverage::format_decimal_bytes(held_bytes_max),
                    )));
                }
                batches.push(batch);
            }
            side.rows.fill(batches);
        }
        Ok(None)
    }

    /// Refuses to go without files of what is joined, which is read as a whole.
    fn refuse_left_out(&self, side: &BuildSide) -> Result<()> {
        let is_joined = |name: &String| side.sources.iter().any(|source| source == name);
        let tables = self.tables.iter().filter(|(name, _)| is_joined(name));
        for source in tables.filter_map(|(_, table)| table.source()) {
            const WHOLE: &str = "what is joined is read as a whole";
            if let Some(file) = source.skipped_files().first() {
                return Err(turbo::drawing::unreadable_file(file, WHOLE));
            }
            if let Some(file) = source.files().iter().find(|file| file.is_unresponsive()) {
                let late = std::io::Error::other(format!("it does not answer; {WHOLE}"));
                let path = file.display_name().to_owned();
                return Err(Error::Io { action: "read", path, source: late });
            }
        }
        Ok(())
    }

    /// Goes without workers, if it may.
    ///
    /// # Errors
    /// Why it cannot go with them.
    fn run_here(&mut self, refused: Error) -> Result<()> {
        if !self.query.may_run_here {
            return Err(refused);
        }
        self.query.workers = None;
        let said = refused.to_string();
        self.here_because = Some(said.lines().next().unwrap_or_default().to_owned());
        Ok(())
    }

    /// Goes DataFusion's way after all, as if nothing had been read.
    fn start_over(&mut self, why: String) -> Result<()> {
        self.tables.iter().for_each(|(_, table)| table.forget_scans());
        self.rejects.reset()?;
        self.precisions().clear();
        self.route = Route::Engine { why };
        self.joins = match self.joins {
            Joins::Small => Joins::Large,
            Joins::Large | Joins::Sorted => Joins::Sorted,
        };
        Ok(())
    }

    /// Says how the run goes, for the job log.
    pub(crate) fn tell_progress(&self) {
        let (path, tables, afterwards) = match &self.route {
            Route::Tables(parts) => {
                let tables = self.short(parts.spec.describe_keys_and_states().join("; "));
                ("partial tables", Some(tables), Some("merging groups"))
            }
            Route::Rows { .. } => ("rows", None, None),
            Route::Engine { .. } => ("datafusion", None, afterwards(&self.logical)),
        };
        self.settings.progress.set_plan_outline(PlanOutline {
            execution_path: Some(path),
            tables,
            final_activity: afterwards,
        });
    }

    pub(crate) fn account(&self, merged: Option<Coverage>) -> Account {
        Account {
            merged,
            tables: self.tables.clone(),
            rejects: Arc::clone(&self.rejects),
            mergeable: self.mergeable().is_ok(),
            rejected_folder: self.settings.rejected_folder.clone(),
            estimates: Arc::default(),
            precisions: self.precisions(),
            calls: self.calls(),
            sql: self.query.sql.clone(),
            plan: self.logical.clone(),
            cut_short: false,
            is_stable: self.query.stable.is_some(),
            part: None,
            shown: Vec::new(),
        }
    }

    /// What accumulators say of their answers.
    fn precisions(&self) -> Arc<PrecisionRecorder> {
        self.context.state().config().get_extension::<PrecisionRecorder>().unwrap_or_default()
    }

    /// The aggregates that DataFusion computes.
    fn calls(&self) -> Vec<PlannedAggregateCall> {
        let mut calls =
            precision_recorder::collect_aggregate_calls(&self.logical, |name| self.short(name));
        if let Route::Tables(parts) = &self.route {
            let computed = parts.computed();
            calls.retain(|call| !computed.contains(call.plan_name()));
        }
        calls
    }

    /// The answers of a whole table, through what the query asks on top of them.
    pub(crate) fn finish(
        &self,
        parts: &Tables,
        merged: MergedTable,
        account: Account,
        part: Option<Answering>,
    ) -> Result<Results> {
        let estimates = Arc::clone(&account.estimates);
        let names = parts.shown_names(&self.logical).into_iter();
        let names: Vec<String> = names.map(|name| self.short(name)).collect();
        let progress = self.settings.progress.clone();
        let is_exact = part.as_ref().is_none_or(|part| part.is_exact);
        // An exact answer to a query that is only watched is the plain one.
        let is_plain = part.is_none() || is_exact && self.query.turbo.is_none();
        let bounds = self.bounds.as_deref().filter(|_| !is_plain);
        let carried = bounds.map_or(Vec::new(), |bounds| bounds.carried());
        let schema = match (bounds, &self.query.turbo) {
            (Some(bounds), None) => bounds.schema()?,
            _ => Arc::clone(&self.schema),
        };
        let ends_at = self.query.turbo.as_ref().and_then(Turbo::intervals_end_at);
        let threads = self.settings.threads;
        let intervals = part.as_ref().and_then(|part| part.intervals(threads, ends_at));
        let summarised = parts.shaped();
        let shaped = move |answer: RecordBatch| match &part {
            Some(part) => part.answer(&answer),
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
        let answers =
            Answers::new(merged, next, self.settings.memory_share_bytes(1, ANSWERS_SHARE));
        let bounds = bounds.map(|bounds| (bounds, intervals.as_ref(), is_exact));
        let inner = self.finish_over(parts, Box::new(answers), &carried, bounds)?;
        let cancel = self.settings.cancel.clone();
        let inner = RowSource::Engine(inner);
        let calculation = None;
        Ok(Results { schema, inner, calculation, account, cancel, ended: false, complete: false })
    }

    /// Which columns are estimates while somebody watches; none where the answer cannot be watched: nothing is read
    /// in a drawn order that is elsewhere, or can be read once.
    fn watched_bounds(&self) -> Option<Arc<Bounds>> {
        let Route::Tables(parts) = &self.route else { return None };
        if self.query.workers.is_some() {
            return None;
        }
        let (_, table) = self.tables.iter().find(|(name, _)| name == parts.stream.table())?;
        let source = table.source()?;
        let is_here = source.files().iter().all(|file| file.is_local());
        let bounds = parts.bounds(&self.logical, &self.schema, false)?;
        // Where there is no place for bounds, there is no glimpse.
        bounds.schema().ok()?;
        let is_order_free = parts.spec.is_order_insensitive();
        (is_here && is_order_free && !table.is_sample()).then(|| Arc::new(bounds))
    }

    /// The rows of the result over the answers of its tables, whose last columns are `carried`, with `bounds` beside
    /// its estimates, by such intervals, or exact.
    pub(crate) fn finish_over(
        &self,
        parts: &Tables,
        answers: Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
        carried: &[FieldRef],
        bounds: Option<(&Bounds, Option<&Arc<Intervals>>, bool)>,
    ) -> Result<Background> {
        let finished: Arc<dyn TableProvider> =
            Arc::new(Finished::new(parts.finished_schema_with(carried), answers));
        let mut finish = parts.finish(&self.logical, finished)?;
        if let Some((bounds, intervals, is_exact)) = bounds {
            finish = bounds.with_bounds(finish, intervals, is_exact)?;
        }
        let (state, finish) = self.in_order(finish, self.settings.memory_share_bytes(1, 4))?;
        Background::start(state, finish, 1, &self.settings.cancel)
    }

    /// The parts of a query whose table can be kept and merged.
    pub(crate) fn mergeable(&self) -> Result<&Tables> {
        match &self.route {
            Route::Tables(parts) => {
                let finish = build_sides::scanned(&self.finish_of_nothing(parts)?)?;
                let late: BTreeSet<&str> = self.sources_of(&finish).collect();
                if late.is_empty() {
                    return Ok(parts);
                }
                Err(Error::usage_with_hint(
                    format!(
                        "{} {} needed to finish the table, and tables are merged and finished \
                         without their sources",
                        in_backticks(late.iter().copied()),
                        if late.len() == 1 { "is" } else { "are" },
                    ),
                    "join before the aggregation; or write the finished table, and join that",
                ))
            }
            Route::Rows { .. } => Err(Error::usage_with_hint(
                "there is no table to keep: the query has no aggregation",
                ONE_AGGREGATION,
            )),
            Route::Engine { why } => Err(not_mergeable(why)),
        }
    }

    /// Runs map and tables, and keeps the table at `out` instead of finishing it.
    ///
    /// # Errors
    /// [`Error::Usage`] where the query is not one aggregation over one source, or `out` is `-`; else as
    /// [`Plan::run`] and [`StagedFile::create`].
    pub fn run_partial(self, out: &Path, overwrite: bool, run: &RunId) -> Result<Coverage> {
        refuse_standard_output(out)?;
        if self.analyzed.is_some() {
            return Err(Error::usage_with_hint(
                "`EXPLAIN ANALYZE` has no tables to keep",
                "leave it out to write a partial table",
            ));
        }
        if self.query.turbo.is_some() {
            return Err(turbo::of_a_partial());
        }
        let parts = self.mergeable()?;
        self.tell_progress();
        let file = StagedFile::create(out, overwrite, run)?;
        if let Some(why) = self.fill_sides()? {
            return Err(not_mergeable(&why));
        }
        let of = (&self.query.sql, &self.logical, &self.tables);
        let merged =
            self.fold(parts, Gives::Groups).map_err(|error| explained(error, of.0, of.1, of.2))?;
        let sources = self.tables.iter().filter_map(|(name, table)| Some((name, table.source()?)));
        let sources = sources.map(|(name, source)| PartialRunSource {
            name: name.clone(),
            files: source.files().len() as u64,
            bytes: source.total_bytes(),
        });
        let run = PartialRun { run: run.to_string(), sources: sources.collect() };
        self.keep(parts, merged, out, file, (None, vec![run]))
    }

    pub(crate) fn keep(
        &self,
        parts: &Tables,
        mut merged: MergedTable,
        out: &Path,
        file: StagedFile,
        (of, runs): (Option<Coverage>, Vec<PartialRun>),
    ) -> Result<Coverage> {
        let named =
            |(name, table): &(String, Arc<SourceTable>)| (name.clone(), table.kept_schema());
        let (streams, others): (Vec<_>, Vec<_>) =
            self.tables.iter().map(named).partition(|(name, _)| name == parts.stream.table());
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
        // Nothing is estimated before the table is finished.
        let coverage = Account { calls: Vec::new(), ..self.account(of) }.coverage(true);
        let (file, bytes) = writer.finish(&coverage)?;
        self.settings.progress.set_partial_table_bytes(bytes);
        file.commit(bytes)?;
        Ok(coverage)
    }

    /// A map as a physical plan with a partition per split.
    pub(crate) fn per_split(&self, stream: &TableReference, map: &LogicalPlan) -> Result<PerSplit> {
        let state = session::split_scan_state(&self.context.state());
        let physical = session::create_physical_plan(&state, map)?;
        let table = self.tables.iter().find(|(name, _)| name == stream.table());
        let scan = table
            .and_then(|(_, table)| table.scans().pop())
            .ok_or_else(|| Error::Internal("a map without a source".into()))?;
        let partitions = physical.properties().partitioning.partition_count();
        if partitions != scan.partitions() {
            return Err(Error::Internal(format!(
                "a map of {partitions} partitions over {} splits",
                scan.splits().len()
            )));
        }
        let map = Map::new(physical, state.task_ctx(), Arc::clone(&scan))?;
        Ok((map, scan))
    }

    /// The map with keys as they are stored, where these are codes.
    pub(crate) fn coded(&self, parts: &Tables) -> Result<Option<Coded>> {
        let table = self.tables.iter().find(|(name, _)| name == parts.stream.table());
        let coded = table.map(|(_, table)| coded::coded(&parts.map, &parts.spec, table));
        Ok(coded.transpose().into_tidemill_error()?.flatten())
    }

    /// The table of a source, if it has one of this name.
    pub(crate) fn table(&self, name: &str) -> Option<Arc<SourceTable>> {
        let table = self.tables.iter().find(|(table, _)| table == name);
        table.map(|(_, table)| Arc::clone(table))
    }

    pub(crate) fn fold(&self, parts: &Tables, gives: Gives) -> Result<MergedTable> {
        if let Some(workers) = &self.query.workers {
            return tasks::fold(self, parts, workers, gives);
        }
        let coded = self.coded(parts)?;
        let map = coded.as_ref().map_or(&parts.map, |coded| &coded.map);
        let (map, scan) = self.per_split(&parts.stream, map)?;
        let work = Work {
            map,
            scan,
            spec: &parts.spec,
            threads: self.settings.threads,
            account: self.settings.new_table_account(),
            spill_dirs: &self.settings.spill_dirs,
            cancel: &self.settings.cancel,
            progress: &self.settings.progress,
        };
        let merged = tables::run(&work)?;
        self.tables
            .iter()
            .flat_map(|(_, table)| table.scans())
            .try_for_each(|scan| scan.read_rest())?;
        let rows = self.tables.iter().flat_map(|(_, table)| table.scans());
        self.rejects.finish(rows.map(|scan| scan.row_count()).sum())?;
        Ok(merged)
    }
}

fn in_backticks<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| format!("`{}`", redact_url(name)));
    names.collect::<Vec<_>>().join(", ")
}

const ONE_AGGREGATION: &str =
    "a partial table is of one aggregation over one source, to which small ones may be joined";

/// The refusal of a subquery that depends on the row around it, below an outer join.
fn below_outer_join() -> Error {
    Error::usage_with_hint(
        "a subquery has an outer join, and the rows of a side that may be missing depend on the row around the subquery",
        "put the condition into ON: LEFT JOIN b ON b.x = i.x AND b.y = outer.y",
    )
}

/// Optimises the plan `wanted` of a query, whose plan as it was written is `logical`.
///
/// # Errors
/// As DataFusion's optimiser, and where it leaves a subquery in a place where none is run.
fn optimised_plan(
    state: &SessionState,
    logical: &LogicalPlan,
    wanted: LogicalPlan,
) -> PlanResult<LogicalPlan> {
    recursion_in_subquery(&wanted).map_err(into_datafusion_error)?;
    misplaced(&wanted).map_err(into_datafusion_error)?;
    // Before rules take aggregates apart, and once more when constants are known.
    let wanted = limit_lists(wanted)?;
    let optimised = state.optimize(&wanted).map_err(|error| not_optimised(&wanted, error))?;
    // A condition that is never true leaves no source to aggregate, and nothing to merge with the tables of other runs.
    let optimised = match has_lost_its_source(logical, &optimised).map_err(into_datafusion_error)? {
        true => session::with_sources_kept(state).optimize(&wanted)?,
        false => optimised,
    };
    not_run(&optimised).map_err(into_datafusion_error)?;
    Ok(optimised)
}

/// Whether a plan's answer depends on the order of its input.
fn is_ordered(plan: &LogicalPlan) -> Result<bool> {
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

/// Whether a plan that aggregates rows of one source reads none any more, being optimised.
fn has_lost_its_source(plan: &LogicalPlan, optimised: &LogicalPlan) -> Result<bool> {
    let aggregates = plan
        .exists_dyn(&mut |node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
        .into_tidemill_error()?;
    Ok(aggregates
        && build_sides::scanned(plan)?.len() == 1
        && build_sides::scanned(optimised)?.is_empty())
}

/// Refuses `-` as the place of a partial table.
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

fn not_mergeable(why: &str) -> Error {
    let message = format!("the table cannot be merged with others: {why}");
    Error::usage_with_hint(message, ONE_AGGREGATION)
}

/// Spells a statement's names as the tables do, and writes out what stands for their columns.
pub(crate) fn respell(
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
        .filter(|(_, table)| !table.hidden().is_empty())
        .map(|(name, table)| (name.clone(), table.hidden().clone()))
        .collect();
    if dialects::expand_columns(statement, &context.state(), &unhidden)? {
        check_syntax(statement, context)?;
    }
    if let Statement::Statement(statement) = statement {
        column_names::refuse_ambiguous_order_by(statement, schemas.iter().map(AsRef::as_ref))?;
        using_columns::qualify_using_columns(statement);
    }
    Ok(())
}

/// A map, and the splits below it.
type PerSplit = (Map, Arc<Scan>);

/// Of a column that there is not and that stands in double quotes: that a text stands in single ones.
fn text_in_quotes(error: Error, sql: &str) -> Error {
    // What `Query::sorted` puts there is of names.
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
        // A word without quotes has lost its capitals, and a text keeps them.
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

/// What is said of a column's name that two columns have; none of another error.
fn ambiguous(error: &DataFusionError, statement: &Statement) -> Option<Error> {
    #[derive(Default)]
    struct Names(Vec<String>);

    impl Visitor for Names {
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
    let mut names = Names::default();
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

/// The statement with each `* REPLACE (x AS a)` as `* EXCEPT (a), x AS a`, if it has one.
fn only_replaced(statement: &Statement) -> Option<Statement> {
    let Statement::Statement(statement) = statement else { return None };
    let mut statement = statement.clone();
    syntax::rewrite_replace_as_except(&mut statement).then_some(Statement::Statement(statement))
}

/// The planner passes over a column to be replaced that there is not; one to be left out it
/// looks for. `plan` is of [`only_replaced`].
fn found_replaced(plan: PlanResult<LogicalPlan>) -> Result<()> {
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
            // The order of the columns is another; what depends on it is of no interest.
            _ => Ok(()),
        },
        Ok(_) => Ok(()),
    }
}

/// What a source's columns are called.
fn columns_of(source: &Source) -> SourceColumns {
    let names = |fields: &[FieldRef]| fields.iter().map(|field| field.name().clone()).collect();
    SourceColumns { data: names(source.schema().fields()), hidden: names(source.hidden_columns()) }
}

/// Opens a source; where the answer may go without some of it, without waiting for files that do not answer.
fn opened_source(
    spec: &SourceSpec,
    turbo: Option<&Turbo>,
    settings: &RunSettings,
) -> Result<Arc<Source>> {
    let (stdin, cancel, enough) =
        (standard_input(), &settings.cancel, settings.stop_reading.clone());
    let Some(turbo) = turbo else {
        return Ok(Arc::new(Source::open_with_stdin(spec, stdin, cancel)?));
    };
    // The first rows of a slow pipe are wanted when they come.
    let pipe_until = turbo.find.map(|_| Instant::now() + PIPE_LOOK);
    let patience = OpenTimeouts {
        deadline: turbo.ends_at(),
        pipe_deadline: pipe_until,
        early_stop: enough,
        ..OpenTimeouts::default()
    };
    Ok(Arc::new(match turbo.deadline.is_some() || turbo.drop.is_some() {
        true => Source::open_with_timeouts(spec, stdin, cancel, &patience)?,
        // What there is to answer with is nothing as yet.
        false => Source::open_with_early_stop(spec, stdin, cancel, &patience)
            .map_err(|error| Error::from(error).with_added_hint(turbo::drawing::LEAVES_OUT))?,
    }))
}

/// A source that SQL calls like a function, with what else is said of files.
fn called_source(
    query: &Query,
    called: &TableFunctionSource,
    cancel: &CancelFlag,
) -> Result<SourceSpec> {
    let mut urls = called.urls.iter().cloned();
    let mut spec = query.defaults.clone();
    spec.url = urls.next().unwrap_or_default();
    spec.more_urls = urls.collect();
    if called.lists_files {
        return listed_files(spec, cancel);
    }
    if let Some(format) = called.format {
        spec.format = Some(format.parse()?);
    }
    // Of options that exclude each other, those of the statement count.
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

/// A source whose rows are the names of the files that another means.
fn listed_files(spec: SourceSpec, cancel: &CancelFlag) -> Result<SourceSpec> {
    // With a format, a folder stands for all of its files and not for those with a data suffix.
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

/// What a table in the SQL is: a named source or a file.
fn find(
    query: &Query,
    reference: &TableReference,
    called: &TableFunctionSources,
    cancel: &CancelFlag,
) -> Result<(String, SourceSpec)> {
    let name = reference.table();
    if let Some(called) = called.get(name) {
        let Some(table) = &called.sampled_table else {
            return Ok((name.to_owned(), called_source(query, called, cancel)?));
        };
        let own = TableReference::bare(table.as_str());
        let (_, spec) = find(query, &own, &TableFunctionSources::new(), cancel).map_err(
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
        // Spark's name of a file: its format, a dot and its path.
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
    Ok((name.to_string(), SourceSpec { url: name.to_string(), ..query.defaults.clone() }))
}

/// Whether a plan may want no more rows of a source than it has.
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
