//! SQL over files: planned, explained, run.
//!
//! A [`Plan`] opens the sources that the SQL names, lets DataFusion parse and optimise it,
//! and decides by which [route](crate::plan) it runs. Nothing is read before [`Plan::run`]
//! but what finding the schema takes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, SchemaError, TableReference};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, ObjectNamePart, Statement as SqlStatement, TableFactor, Visit, Visitor,
    visit_relations_mut,
};
use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde::Serialize;

use crate::cancel::Cancel;
use crate::compact;
use crate::coverage::{self, Amount, Coverage, Estimate, RowAmount};
use crate::digits;
use crate::error::{Error, Result, caught, nested_too_deeply, panicked};
use crate::estimates::{self, Call, Precisions};
use crate::floats;
use crate::home::RunId;
use crate::partial::{self, Header, PartialReader, PartialRun, PartialSource, PartialWriter};
use crate::plan::{Route, Tables, misplaced, not_run, refusal_of_map, route};
use crate::progress::{Progress, ThreadClock};
use crate::prune;
use crate::remote::Budget;
use crate::remote::location::shown;
use crate::rows::Rows;
use crate::scan::{RunState, Scan, SourceTable, external};
use crate::sides::{self, Side};
use crate::sink::StagedFile;
use crate::source::{MaxBad, Rejects, Source, SourceSpec, standard_input};
use crate::table::Table;
use crate::table::merge::{Merged, Merger, Parked};
use crate::table::value::EXACTLY;
use crate::tables::{self, Work};
use crate::types::sql_type;
use crate::{casts, fit, names, panics, session, suggest, syntax};

/// How a query is run: the same for the command line, a job file and Python.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The whole run's memory in bytes, tables and sorts included. Beyond it they spill.
    pub memory_bytes: u64,
    /// Threads that read and map. Default: the machine's cores.
    pub threads: usize,
    /// How many malformed records are skipped before the run fails. Default: none.
    pub max_bad: MaxBad,
    /// Where copies of malformed records go; none are kept where absent.
    pub rejected_folder: Option<PathBuf>,
    /// Where tables and sorts spill to. Default: the system's temporary folder.
    pub spill_folder: PathBuf,
    /// Stops the run.
    pub cancel: Cancel,
    /// What a display reads.
    pub progress: Progress,
}

impl Settings {
    /// The defaults with a memory budget, in bytes.
    pub fn new(memory_bytes: u64) -> Self {
        Settings {
            memory_bytes,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            max_bad: MaxBad::default(),
            rejected_folder: None,
            spill_folder: std::env::temp_dir(),
            cancel: Cancel::new(),
            progress: Progress::new(),
        }
    }

    /// A share of the budget, in bytes.
    fn share(&self, numerator: u64, denominator: u64) -> usize {
        let bytes = u128::from(self.memory_bytes) * u128::from(numerator) / u128::from(denominator);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// A source with the name that SQL knows it by.
#[derive(Debug, Clone)]
pub struct NamedSource {
    /// The name; one source alone is called `source`.
    pub name: String,
    /// What it is.
    pub spec: SourceSpec,
}

/// A question: SQL, and what its sources are.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// One `SELECT`. Files are named in quotes: `FROM 'logs/*.csv'`.
    pub sql: String,
    /// Sources with names.
    pub sources: Vec<NamedSource>,
    /// Format, options and schema of files that the SQL names; the URL is not looked at.
    pub defaults: SourceSpec,
    /// A part of `sql` that has to be per record: a job's map. It is checked, not run.
    pub map: Option<String>,
    /// Whether all of `sql` has to be per record: a conversion.
    pub per_record: bool,
    /// Whether the result's columns are what the source's files have, in every respect: required,
    /// categories, with what is said of them. For `SELECT *` over one source.
    pub keeps_columns: bool,
    /// Column types that override inference, as SQL has them: `id BIGINT, ts TIMESTAMP`. For
    /// sources without a schema of their own.
    pub schema: Option<String>,
}

impl Query {
    /// The query that reads `columns` of one source, or all of them, where `condition` holds.
    /// `a.b` is field `b` of column `a`.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no column, or the condition is not one.
    pub fn columns(
        spec: SourceSpec,
        columns: Option<&[String]>,
        condition: Option<&str>,
    ) -> Result<Self> {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let item = |column: &String| match column.contains('.') {
            false => quoted(column),
            true => {
                let path: Vec<String> = column.split('.').map(quoted).collect();
                format!("{} AS {}", path.join("."), quoted(column))
            }
        };
        let list = match columns {
            Some([]) => return Err(Error::usage("no column is asked for")),
            Some(columns) => columns.iter().map(item).collect::<Vec<_>>().join(", "),
            None => "*".into(),
        };
        Self::of_source(spec, &list, condition)
    }

    /// The query that gives `select`, columns and expressions as SQL has them, or all columns, for
    /// each record of one source where `condition` holds.
    ///
    /// # Errors
    /// [`Error::Usage`] if the list is none, or the condition.
    pub fn records(
        spec: SourceSpec,
        select: Option<&str>,
        condition: Option<&str>,
    ) -> Result<Self> {
        if let Some(select) = select {
            one_list(select)?;
        }
        let query = Self::of_source(spec, select.unwrap_or("*"), condition)?;
        Ok(Query { per_record: true, ..query })
    }

    fn of_source(spec: SourceSpec, list: &str, condition: Option<&str>) -> Result<Self> {
        let mut sql = format!("SELECT {list}\nFROM source");
        if let Some(condition) = condition {
            // By itself, so that what follows a condition in SQL is not taken for a part of it.
            one_condition(condition)?;
            sql.push_str(&format!(" WHERE ({condition}\n)"));
        }
        let sources = vec![NamedSource { name: "source".into(), spec }];
        Ok(Query { sql, sources, ..Query::default() })
    }
}

/// Checks that a text is a list of columns and expressions.
fn one_list(text: &str) -> Result<()> {
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser, tokenizer::Token};
    let refused = |reason: String| {
        Error::usage_hint(
            format!("`{text}` is not a list of columns: {reason}"),
            "for example: day, origin, distance * 1.609 AS km",
        )
    };
    let mut parser = Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(|error| refused(error.to_string()))?;
    parser
        .parse_comma_separated(Parser::parse_select_item)
        .map_err(|error| refused(error.to_string()))?;
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        other => Err(refused(format!("`{other}` comes after it"))),
    }
}

/// Checks that a text is one SQL expression.
fn one_condition(text: &str) -> Result<()> {
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser, tokenizer::Token};
    let refused = |reason: String| {
        Error::usage_hint(format!("`{text}` is not a condition: {reason}"), "for example: ms > 10")
    };
    let mut parser = Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(|error| refused(error.to_string()))?;
    parser.parse_expr().map_err(|error| refused(error.to_string()))?;
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        other => Err(refused(format!("`{other}` comes after it"))),
    }
}

/// A query that is ready to run.
pub struct Plan {
    query: Query,
    settings: Settings,
    rejects: Arc<Rejects>,
    context: SessionContext,
    tables: Vec<(String, Arc<SourceTable>)>,
    logical: LogicalPlan,
    schema: SchemaRef,
    route: Route,
    /// Whether no side of a join may fit in memory.
    joins_large: bool,
}

/// One part in so many of the budget is for tables that are held whole. By the estimate before
/// they are read they must fit in half of it.
const HELD_SHARE: u64 = 8;

impl Plan {
    /// Opens the sources and plans the query.
    ///
    /// # Errors
    /// [`Error::Usage`] for SQL that cannot be planned, [`Error::NotFound`] for files that are
    /// not there, and what inferring a schema meets.
    pub fn new(query: &Query, settings: &Settings) -> Result<Self> {
        on_large_stack(PLAN_STACK_BYTES, || Self::planned(query, settings))
            .map_err(|error| casts::explained(error, &query.sql, None))
    }

    fn planned(query: &Query, settings: &Settings) -> Result<Self> {
        let rejects = Arc::new(Rejects::new(settings.max_bad, settings.rejected_folder.clone()));
        let context = session::open(settings.share(1, 2), settings)?;
        let mut statement = one_select(&query.sql)?;
        let mut urls = HashMap::new();
        hide_secrets(&mut statement, &mut urls);
        honoured(&statement, &context)?;
        let query = &Query { sql: shown_sql(&query.sql, &statement, &urls), ..query.clone() };
        let run = RunState {
            cancel: settings.cancel.clone(),
            progress: settings.progress.clone(),
            rejects: Arc::clone(&rejects),
            ahead: Budget::new(settings.memory_bytes / 16),
        };
        let mut tables: Vec<(String, Arc<SourceTable>)> = Vec::new();
        let references = context.state().resolve_table_references(&statement)?;
        let mut found = references
            .iter()
            .map(|reference| {
                let (name, mut spec) = find(query, reference)?;
                if let Some(url) = urls.get(&name) {
                    spec.url.clone_from(url);
                }
                let is_named = query.sources.iter().any(|source| source.name == name);
                Ok((name, spec, is_named))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut files: Vec<&mut SourceSpec> = found
            .iter_mut()
            .filter_map(|(_, spec, is_named)| (!*is_named).then_some(spec))
            .collect();
        if files.len() > 1 {
            let paths: Vec<&str> = files.iter().map(|spec| spec.url.as_str()).collect();
            let fitted = fit::fit(&query.defaults, &paths, &settings.cancel)?;
            files.iter_mut().zip(fitted).for_each(|(spec, fitted)| **spec = fitted);
        }
        for (reference, (name, mut spec, _)) in references.into_iter().zip(found) {
            if let (None, Some(schema)) = (&spec.schema, &query.schema) {
                spec.schema = Some(schema_from_sql(schema)?);
            }
            let source = Arc::new(Source::open_with(&spec, standard_input(), &settings.cancel)?);
            let table = Arc::new(SourceTable::new(source, run.clone()));
            context.register_table(reference, Arc::clone(&table) as Arc<dyn TableProvider>)?;
            tables.push((name, table));
        }
        respell(&mut statement, &tables);
        if let Some(map) = &query.map {
            let mut map = one_select(map)?;
            hide_secrets(&mut map, &mut urls);
            honoured(&map, &context)?;
            respell(&mut map, &tables);
            let planned = casts::planned(&context.state(), map)?;
            if let Some(step) = refusal_of_map(&planned) {
                return Err(Error::usage_hint(
                    format!("the map's SQL has {step}, and a map sees one record at a time"),
                    "group in [tables]; order, limit and windows need a `tidemill query`",
                ));
            }
        }
        if query.per_record {
            let planned = casts::planned(&context.state(), statement.clone())?;
            if let Some(step) = refusal_of_map(&planned) {
                return Err(Error::usage_hint(
                    format!("a conversion sees one record at a time, and this one has {step}"),
                    "`tidemill query` groups and sorts, and writes every format too",
                ));
            }
        }
        Self::with_tables(query, settings, rejects, context, statement, tables, None)
    }

    /// Plans over tables; `stream` is the one that was read in splits, where that is settled.
    fn with_tables(
        query: &Query,
        settings: &Settings,
        rejects: Arc<Rejects>,
        context: SessionContext,
        statement: Statement,
        tables: Vec<(String, Arc<SourceTable>)>,
        stream: Option<&str>,
    ) -> Result<Self> {
        let state = context.state();
        let replaced = only_replaced(&statement);
        let plan = |state: &SessionState, statement| {
            let logical = block_on(state.statement_to_plan(statement))?;
            misplaced(&logical).map_err(external)?;
            let optimised = state.optimize(&logical)?;
            // A condition that is never true leaves no source to aggregate, and nothing to merge with
            // the tables of other runs.
            let optimised = match has_lost_its_source(&logical, &optimised).map_err(external)? {
                true => session::keeping_sources(state).optimize(&logical)?,
                false => optimised,
            };
            Ok((logical, optimised))
        };
        let spoken = statement.clone();
        let (logical, optimised) = casts::told_apart(&state, statement, plan)
            .map_err(|error| ambiguous(&error, &spoken).unwrap_or_else(|| error.into()))?;
        if let Some(replaced) = replaced {
            found_replaced(casts::planned(&state, replaced))?;
        }
        // The result's columns are named by the plan as written; optimising may rename. Their
        // types are settled by then: a UNION's, say, are not before.
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        let named = result_schema(&logical, &names, &spoken);
        let used = Arc::new(prune::used(&logical)?);
        tables.iter().for_each(|(_, table)| table.set_used(&used));
        let logical = optimised;
        let mut schema = Arc::new(settled(&named, logical.schema()));
        if let (true, [(_, table)]) = (query.keeps_columns, tables.as_slice()) {
            let own = table.source().and_then(|source| source.own_columns());
            let is_same = |own: &SchemaRef| {
                own.fields().iter().map(|f| f.name()).eq(schema.fields().iter().map(|f| f.name()))
            };
            schema = own.filter(is_same).unwrap_or(schema);
        }
        not_run(&logical)?;
        if !has_limit(&logical)? {
            tables.iter().for_each(|(_, table)| table.set_reads_all());
        }
        let scanned = sides::scanned(&logical)?;
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
            None => sides::stream_of(
                &scanned,
                |name| table_of(name).and_then(|source| sides::estimated_bytes(source)),
                settings.memory_bytes / HELD_SHARE / 2,
            ),
        };
        let route = route(&logical, &stream)?;
        // Where two of the sources are too large to be held, a join may have to be, too.
        let joins_large = stream.is_err() && scanned.len() > 1;
        let query = query.clone();
        let settings = settings.clone();
        Ok(Plan { query, settings, rejects, context, tables, logical, schema, route, joins_large })
    }

    /// The result's columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A plan's text without the tables' names, which are paths.
    fn short(&self, text: String) -> String {
        let names: Vec<&str> = self.tables.iter().map(|(name, _)| name.as_str()).collect();
        unqualified(&text, &names)
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
                    name: shown(name),
                    format: source.format().name().to_string(),
                    files: source.files().len() as u64,
                    splits: source.splits()?.len() as u64,
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
        let text = |plan: &LogicalPlan| self.short(plan.display_indent().to_string());
        let held = |sides: &[Side]| -> Vec<(String, String)> {
            let held = sides.iter().enumerate();
            held.map(|(index, side)| (format!("held {}", index + 1), text(&side.plan))).collect()
        };
        let (path, why, steps) = match &self.route {
            Route::Tables(parts) => {
                let mut steps = held(&parts.sides);
                steps.push(("map".to_string(), text(&parts.map)));
                steps.push(("tables".to_string(), self.short(parts.spec.describe().join("\n"))));
                let finish = self.finish_of_nothing(parts)?;
                steps.push(("finish".to_string(), text(&finish)));
                let late = sides::scanned(&finish)?;
                let beside = self.beside(&parts.stream, &parts.sides, &late);
                ("partial tables", format!("one aggregation over one source{beside}"), steps)
            }
            Route::Rows { stream, sides, map, skip, fetch } => {
                let mut steps = held(sides);
                steps.push(("map".to_string(), text(map)));
                if *skip > 0 || fetch.is_some() {
                    let fetch = fetch.map_or("all".to_string(), |fetch| fetch.to_string());
                    steps.push(("limit".to_string(), format!("skip {skip}, then {fetch}")));
                }
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
        })
    }

    /// What is said of the sources besides the stream.
    fn beside(&self, stream: &TableReference, sides: &[Side], late: &[TableReference]) -> String {
        let held: BTreeSet<&str> =
            sides.iter().flat_map(|side| &side.sources).map(String::as_str).collect();
        let late: BTreeSet<&str> = self.sources_of(late).collect();
        let mut said = String::new();
        if self.tables.len() > 1 {
            said.push_str(&format!(", `{}`", shown(stream.table())));
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
        let sources = self.tables.iter().filter_map(|(_, table)| table.source());
        let warnings: Vec<String> = sources.filter_map(|source| source.warning()).collect();
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
        let (sql, plan) = (self.query.sql.clone(), self.logical.clone());
        self.started().map_err(|error| casts::explained(error, &sql, Some(&plan)))
    }

    fn started(mut self) -> Result<Results> {
        if let Some(why) = self.fill_sides()? {
            self.start_over(why)?;
        }
        let account = self.account(None);
        let schema = Arc::clone(&self.schema);
        let cancel = self.settings.cancel.clone();
        self.tell_progress();
        let inner = match &self.route {
            Route::Tables(parts) => {
                let merged = self.fold(parts)?;
                return self.finish(parts, merged, account);
            }
            Route::Rows { stream, map, skip, fetch, .. } => {
                let (map, context, scan) = self.per_split(stream, map)?;
                let budget_bytes = self.settings.share(1, 2);
                let (threads, limits) = (self.settings.threads, (*skip, *fetch));
                Inner::Rows(Rows::start(
                    map,
                    context,
                    scan,
                    threads,
                    budget_bytes,
                    (&cancel, &self.settings.progress),
                    limits,
                )?)
            }
            Route::Engine { .. } => Inner::Engine(Background::start(
                match self.joins_large {
                    true => session::joining_by_sorting(&self.context.state()),
                    false if collects(&self.logical)? => {
                        let bytes = self.settings.share(1, 2);
                        session::in_order(&self.context.state(), bytes, &self.settings)?
                    }
                    false => self.context.state(),
                },
                self.logical.clone(),
                self.settings.threads,
                &cancel,
            )?),
        };
        Ok(Results { schema, inner, account, cancel, ended: false, complete: false })
    }

    /// Reads what is joined to the stream into memory; says why it cannot be held, where it is
    /// larger than it seemed.
    fn fill_sides(&self) -> Result<Option<String>> {
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
        for side in sides {
            let bytes = settings.share(1, 4);
            let state = session::in_order(&self.context.state(), bytes, settings)?;
            let mut rows = Background::start(state, side.plan.clone(), 1, &settings.cancel)?;
            let mut batches = Vec::new();
            while let Some(batch) = rows.next(&settings.cancel)? {
                let batch = named(batch, side.rows.schema())?;
                held_bytes += batch.get_array_memory_size() as u64;
                if held_bytes > held_bytes_max {
                    return Ok(Some(format!(
                        "what is joined from {} takes more than the {} of memory that are for \
                         tables held whole",
                        in_backticks(side.sources.iter().map(String::as_str)),
                        coverage::human_bytes(held_bytes_max),
                    )));
                }
                batches.push(batch);
            }
            side.rows.fill(batches);
        }
        Ok(None)
    }

    /// Goes DataFusion's way after all, as if nothing had been read.
    fn start_over(&mut self, why: String) -> Result<()> {
        self.tables.iter().for_each(|(_, table)| table.forget_scans());
        self.rejects.start_over()?;
        self.precisions().clear();
        self.route = Route::Engine { why };
        self.joins_large = true;
        Ok(())
    }

    /// Says how the run goes, for the job log.
    fn tell_progress(&self) {
        let (path, tables) = match &self.route {
            Route::Tables(parts) => {
                ("partial tables", Some(self.short(parts.spec.describe().join("; "))))
            }
            Route::Rows { .. } => ("rows", None),
            Route::Engine { .. } => ("datafusion", None),
        };
        self.settings.progress.set_planned(path, tables);
    }

    fn account(&self, merged: Option<Coverage>) -> Account {
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
        }
    }

    /// What accumulators say of their answers.
    fn precisions(&self) -> Arc<Precisions> {
        self.context.state().config().get_extension::<Precisions>().unwrap_or_default()
    }

    /// The aggregates that DataFusion computes.
    fn calls(&self) -> Vec<Call> {
        let mut calls = estimates::calls(&self.logical, |name| self.short(name));
        if let Route::Tables(parts) = &self.route {
            calls.retain(|call| !parts.computes(call.name()));
        }
        calls
    }

    /// The answers of a whole table, through what the query asks on top of them.
    fn finish(&self, parts: &Tables, mut merged: Merged, account: Account) -> Result<Results> {
        let estimates = Arc::clone(&account.estimates);
        let names = parts.shown_names(&self.logical).into_iter();
        let names: Vec<String> = names.map(|name| self.short(name)).collect();
        let progress = self.settings.progress.clone();
        let answers = std::iter::from_fn(move || {
            let mut clock = ThreadClock::start();
            let answer = merged.next_answer().transpose();
            progress.tables().add_cpu(&mut clock);
            if let Some(Ok(answer)) = &answer {
                progress.tables().add_rows(answer.num_rows() as u64);
            }
            *estimates.lock() = merged.estimates(&names);
            answer
        });
        let finished: Arc<dyn TableProvider> =
            Arc::new(Finished::new(parts.finished_schema(), Box::new(answers)));
        let finish = parts.finish(&self.logical, finished)?;
        let cancel = self.settings.cancel.clone();
        let bytes = self.settings.share(1, 4);
        let state = session::in_order(&self.context.state(), bytes, &self.settings)?;
        let inner = Background::start(state, finish, 1, &cancel)?;
        let schema = Arc::clone(&self.schema);
        let inner = Inner::Engine(inner);
        Ok(Results { schema, inner, account, cancel, ended: false, complete: false })
    }

    /// The parts of a query whose table can be kept and merged.
    fn mergeable(&self) -> Result<&Tables> {
        match &self.route {
            Route::Tables(parts) => {
                let finish = sides::scanned(&self.finish_of_nothing(parts)?)?;
                let late: BTreeSet<&str> = self.sources_of(&finish).collect();
                if late.is_empty() {
                    return Ok(parts);
                }
                Err(Error::usage_hint(
                    format!(
                        "{} {} needed to finish the table, and tables are merged and finished \
                         without their sources",
                        in_backticks(late.iter().copied()),
                        if late.len() == 1 { "is" } else { "are" },
                    ),
                    "join before the aggregation; or write the finished table, and join that",
                ))
            }
            Route::Rows { .. } => Err(Error::usage_hint(
                "there is no table to keep: the query has no aggregation",
                ONE_AGGREGATION,
            )),
            Route::Engine { why } => Err(not_mergeable(why)),
        }
    }

    /// Runs map and tables, and keeps the table at `out` instead of finishing it.
    ///
    /// # Errors
    /// [`Error::Usage`] where the query is not one aggregation over one source; else as
    /// [`Plan::run`] and [`StagedFile::create`].
    pub fn run_partial(self, out: &Path, overwrite: bool, run: &RunId) -> Result<Coverage> {
        let parts = self.mergeable()?;
        self.tell_progress();
        let file = StagedFile::create(out, overwrite, run)?;
        if let Some(why) = self.fill_sides()? {
            return Err(not_mergeable(&why));
        }
        let merged = self
            .fold(parts)
            .map_err(|error| casts::explained(error, &self.query.sql, Some(&self.logical)))?;
        let sources = self.tables.iter().filter_map(|(name, table)| Some((name, table.source()?)));
        let sources = sources.map(|(name, source)| PartialSource {
            name: name.clone(),
            files: source.files().len() as u64,
            bytes: source.total_bytes(),
        });
        let run = PartialRun { run: run.to_string(), sources: sources.collect() };
        self.keep(parts, merged, out, file, (None, vec![run]))
    }

    fn keep(
        &self,
        parts: &Tables,
        mut merged: Merged,
        out: &Path,
        file: StagedFile,
        (of, runs): (Option<Coverage>, Vec<PartialRun>),
    ) -> Result<Coverage> {
        let named = |(name, table): &(String, Arc<SourceTable>)| (name.clone(), table.schema());
        let (streams, others): (Vec<_>, Vec<_>) =
            self.tables.iter().map(named).partition(|(name, _)| name == parts.stream.table());
        let (source, schema) = streams
            .into_iter()
            .next()
            .ok_or_else(|| Error::Internal("an aggregation without a source".into()))?;
        let (sql, tables) = (self.query.sql.clone(), parts.spec.describe());
        let header = Header { sql, source, schema, others, tables, runs };
        let mut writer = PartialWriter::new(file, out, &header)?;
        while let Some(chunk) = merged.next_chunk()? {
            if chunk.group_count() > 0 {
                self.settings.progress.tables().add_rows(chunk.group_count() as u64);
                writer.write(&chunk)?;
            }
        }
        // Nothing is estimated before the table is finished.
        let coverage = Account { calls: Vec::new(), ..self.account(of) }.coverage(true);
        let (file, bytes) = writer.finish(&coverage)?;
        self.settings.progress.set_partial_bytes(bytes);
        file.commit(bytes)?;
        Ok(coverage)
    }

    /// A map as a physical plan with a partition per split.
    fn per_split(&self, stream: &TableReference, map: &LogicalPlan) -> Result<PerSplit> {
        let state = session::per_split(&self.context.state());
        let physical = session::physical(&state, map)?;
        let table = self.tables.iter().find(|(name, _)| name == stream.table());
        let scan = table
            .and_then(|(_, table)| table.scans().pop())
            .ok_or_else(|| Error::Internal("a map without a source".into()))?;
        let partitions = physical.properties().partitioning.partition_count();
        if partitions != scan.splits().len() {
            return Err(Error::Internal(format!(
                "a map of {partitions} partitions over {} splits",
                scan.splits().len()
            )));
        }
        Ok((physical, state.task_ctx(), scan))
    }

    fn fold(&self, parts: &Tables) -> Result<Merged> {
        let (map, context, scan) = self.per_split(&parts.stream, &parts.map)?;
        let work = Work {
            map,
            context,
            scan,
            spec: &parts.spec,
            threads: self.settings.threads,
            budget_bytes: self.settings.share(3, 4),
            spill_folder: &self.settings.spill_folder,
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

/// Partial tables merged in the order given.
pub struct Merge {
    plan: Plan,
    partials: Vec<PathBuf>,
    repeats: Repeats,
}

/// Whether the rows of one run may be in several of the tables that are merged, and count as often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repeats {
    /// It is an error.
    #[default]
    Refused,
    /// They may.
    Allowed,
}

/// The runs that were met so far, and the first table that holds each.
#[derive(Default)]
struct Met {
    runs: Vec<PartialRun>,
    tables: HashMap<String, PathBuf>,
}

impl Met {
    fn add(&mut self, path: &Path, runs: Vec<PartialRun>, repeats: Repeats) -> Result<()> {
        for run in runs {
            match self.tables.get(&run.run) {
                None => {
                    self.tables.insert(run.run.clone(), path.to_path_buf());
                    self.runs.push(run);
                }
                Some(first) if repeats == Repeats::Refused => {
                    let both = match first == path {
                        true => format!("`{}` is given twice", path.display()),
                        false => format!(
                            "`{}` and `{}` both hold the rows of run `{}`",
                            first.display(),
                            path.display(),
                            run.run
                        ),
                    };
                    return Err(Error::usage_hint(
                        format!("{both}, which would count twice"),
                        "merge each table once; --allow-repeats counts it as often as it is given",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Merge {
    /// Opens the partial tables' headers and plans their query.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a file that is no partial table; [`Error::Usage`] where two are
    /// not of the same query, or hold rows of the same run.
    pub fn new(partials: &[PathBuf], settings: &Settings) -> Result<Self> {
        Self::with_repeats(partials, Repeats::Refused, settings)
    }

    /// The same, where rows of one run may be in several tables.
    ///
    /// # Errors
    /// As [`Merge::new`].
    pub fn with_repeats(
        partials: &[PathBuf],
        repeats: Repeats,
        settings: &Settings,
    ) -> Result<Self> {
        on_large_stack(PLAN_STACK_BYTES, || Self::planned(partials, repeats, settings))
    }

    fn planned(partials: &[PathBuf], repeats: Repeats, settings: &Settings) -> Result<Self> {
        let Some(first_path) = partials.first() else {
            return Err(Error::usage("there is nothing to merge"));
        };
        let mut oldest = None;
        let mut header = |path: &PathBuf| -> Result<(Statement, Header)> {
            let reader = PartialReader::open(path)?;
            let mut header = reader.header().clone();
            if !reader.is_of_unknown_run() {
                return Ok((one_select(&header.sql)?, header));
            }
            // Earlier releases kept what may be secret.
            oldest.get_or_insert_with(|| path.clone());
            let (statement, sql) = without_secrets(&header.sql)?;
            header.sql = sql;
            Ok((statement, header))
        };
        let (statement, first) = header(first_path)?;
        let mut met = Met::default();
        met.add(first_path, first.runs.clone(), repeats)?;
        for path in &partials[1..] {
            let (_, other) = header(path)?;
            let differs = if other.sql != first.sql {
                Some(("queries", first.sql.clone(), other.sql))
            } else if other.tables != first.tables {
                Some(("tables", first.tables.join("; "), other.tables.join("; ")))
            } else {
                None
            };
            if let Some((what, one, two)) = differs {
                return Err(Error::usage_hint(
                    format!(
                        "`{}` and `{}` are of different {what}:\n  {one}\n  {two}",
                        first_path.display(),
                        path.display()
                    ),
                    "merge partial tables of one job; `schema` in its [source] settles types",
                ));
            }
            met.add(path, other.runs, repeats)?;
        }
        let query = Query { sql: first.sql.clone(), ..Query::default() };
        let over_headers = |counts_as_before: bool, mut statement: Statement| -> Result<Plan> {
            let rejects = Arc::new(Rejects::new(settings.max_bad, None));
            let context = session::open_with(settings.share(1, 2), settings, counts_as_before)?;
            let run = RunState {
                cancel: settings.cancel.clone(),
                progress: settings.progress.clone(),
                rejects: Arc::clone(&rejects),
                ahead: Budget::default(),
            };
            let sources = [(&first.source, &first.schema)].into_iter();
            let sources = sources.chain(first.others.iter().map(|(name, schema)| (name, schema)));
            let mut tables = Vec::with_capacity(1 + first.others.len());
            for (name, schema) in sources {
                let schema = Arc::clone(schema);
                let empty = Arc::new(SourceTable::without_files(schema, run.clone()));
                context.register_table(
                    TableReference::bare(name.as_str()),
                    Arc::clone(&empty) as Arc<dyn TableProvider>,
                )?;
                tables.push((name.clone(), empty));
            }
            honoured(&statement, &context)?;
            respell(&mut statement, &tables);
            let stream = Some(first.source.as_str());
            Plan::with_tables(&query, settings, rejects, context, statement, tables, stream)
        };
        let mut plan = over_headers(false, statement.clone())?;
        let mut found = plan.mergeable()?.spec.describe();
        if found != first.tables && oldest.is_some() {
            // Earlier releases took some distinct counts apart in another way.
            plan = over_headers(true, statement)?;
            found = plan.mergeable()?.spec.describe();
        }
        if found != first.tables {
            return Err(Error::Corrupt {
                path: first_path.display().to_string(),
                offset: None,
                reason: "its tables are not those of its query".into(),
                hint: Some("make it again with this release".into()),
            });
        }
        if let (Some(path), true) = (oldest, plan.mergeable()?.spec.cuts_nanoseconds()) {
            return Err(Error::usage_hint(
                format!(
                    "`{}` is of an earlier release, whose `unique` and `top_k` cut nanoseconds to \
                     microseconds",
                    path.display()
                ),
                "make it again with this release",
            ));
        }
        Ok(Merge { plan, partials: partials.to_vec(), repeats })
    }

    /// The result's columns.
    pub fn schema(&self) -> &SchemaRef {
        self.plan.schema()
    }

    fn fold(&self) -> Result<(Merged, Coverage, Vec<PartialRun>)> {
        let parts = self.plan.mergeable()?;
        self.plan.tell_progress();
        let settings = &self.plan.settings;
        let mut clock = ThreadClock::start();
        let budget_bytes = settings.share(1, 2);
        let merger = Merger::new(
            &parts.spec,
            budget_bytes,
            &settings.spill_folder,
            &settings.cancel,
            &settings.progress,
        )?;
        let decoder = Table::new(&parts.spec)?;
        let mut coverages = Vec::with_capacity(self.partials.len());
        let mut met = Met::default();
        for path in &self.partials {
            let mut reader = PartialReader::open(path)?;
            while let Some(groups) = reader.next_groups()? {
                settings.cancel.check()?;
                let chunk = decoder.decode(&groups).map_err(|e| in_file(e, path))?;
                merger.accept(Parked::Memory(merger.deal(chunk)?), 0)?;
                merger.work(0)?;
            }
            coverages.extend(reader.coverage().cloned());
            met.add(path, reader.runs(), self.repeats)?;
        }
        let merged = merger.finish()?;
        settings.progress.tables().add_cpu(&mut clock);
        Ok((merged, partial::together(&coverages), met.runs))
    }

    /// Merges and finishes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file; else as [`Plan::run`].
    pub fn run(self) -> Result<Results> {
        let (merged, coverage, _) = self.fold()?;
        let account = self.plan.account(Some(coverage));
        self.plan.finish(self.plan.mergeable()?, merged, account)
    }

    /// Merges into one partial table at `out`.
    ///
    /// # Errors
    /// As [`Merge::run`] and [`StagedFile::create`].
    pub fn run_partial(self, out: &Path, overwrite: bool, run: &RunId) -> Result<Coverage> {
        let file = StagedFile::create(out, overwrite, run)?;
        let (merged, coverage, runs) = self.fold()?;
        self.plan.keep(self.plan.mergeable()?, merged, out, file, (Some(coverage), runs))
    }
}

fn in_backticks<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| format!("`{}`", shown(name)));
    names.collect::<Vec<_>>().join(", ")
}

const ONE_AGGREGATION: &str =
    "a partial table is of one aggregation over one source, to which small ones may be joined";

/// Whether a plan gathers values in the order of its input.
fn collects(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| {
                Ok(matches!(expr, Expr::AggregateFunction(call) if call.func.name() == "collect"))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Whether a plan that aggregates rows of one source reads none any more, being optimised.
fn has_lost_its_source(plan: &LogicalPlan, optimised: &LogicalPlan) -> Result<bool> {
    let aggregates = plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))?;
    Ok(aggregates && sides::scanned(plan)?.len() == 1 && sides::scanned(optimised)?.is_empty())
}

fn not_mergeable(why: &str) -> Error {
    let message = format!("the table cannot be merged with others: {why}");
    Error::usage_hint(message, ONE_AGGREGATION)
}

/// A complaint about a state, with the file that it is in.
fn in_file(error: Error, file: &Path) -> Error {
    match error {
        Error::Corrupt { offset, reason, hint, .. } => {
            Error::Corrupt { path: file.display().to_string(), offset, reason, hint }
        }
        other => other,
    }
}

fn respell(statement: &mut Statement, tables: &[(String, Arc<SourceTable>)]) {
    if let Statement::Statement(statement) = statement {
        let schemas: Vec<SchemaRef> = tables.iter().map(|(_, table)| table.schema()).collect();
        names::respell(statement, schemas.iter().map(AsRef::as_ref));
    }
}

/// How deep expressions may be nested, `a + b + c` counting as two. What walks over them
/// calls itself at each level, up to the evaluation of each batch.
const DEPTH_MAX: usize = 1000;

/// The stack of a thread that plans: enough for [`DEPTH_MAX`], of which only the pages that
/// are used are ever real.
const PLAN_STACK_BYTES: usize = 64 << 20;

/// The stack of a thread that evaluates expressions.
pub(crate) const RUN_STACK_BYTES: usize = 16 << 20;

/// What `run` returns, run on a thread with a stack of its own.
pub(crate) fn on_large_stack<T: Send>(
    bytes: usize,
    run: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("plan".into()).stack_size(bytes);
        let thread = thread.spawn_scoped(scope, || caught(run)).map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })?;
        thread.join().unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
    })
}

/// How deep the expressions of a statement are nested.
#[derive(Default)]
struct Depth {
    now: usize,
    most: usize,
}

impl Visitor for Depth {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &SqlExpr) -> ControlFlow<()> {
        self.now += 1;
        self.most = self.most.max(self.now);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &SqlExpr) -> ControlFlow<()> {
        self.now -= 1;
        ControlFlow::Continue(())
    }
}

/// A map with a partition per split, what it needs at run time, and the splits below it.
type PerSplit = (Arc<dyn ExecutionPlan>, Arc<TaskContext>, Arc<Scan>);

/// The statement, if it is one question.
fn one_select(sql: &str) -> Result<Statement> {
    // A chain of operators is as deep as it is long, and dropping it takes stack.
    let bytes = PLAN_STACK_BYTES.saturating_add(sql.len().saturating_mul(512));
    on_large_stack(bytes, || {
        let mut statement = parsed(sql)?;
        let mut depth = Depth::default();
        if let Statement::Statement(statement) = &mut statement {
            syntax::complete(statement);
            // It never breaks off.
            let _ = statement.visit(&mut depth);
        }
        if depth.most > DEPTH_MAX {
            return Err(Error::usage_hint(
                format!("the SQL nests expressions {} deep; {DEPTH_MAX} is the most", depth.most),
                "many alternatives are written `x IN (…)`, many rows as a source to join with",
            ));
        }
        Ok(statement)
    })
}

/// How many parentheses and CASEs within one another the parser is sure to follow. Beyond, it stumbles
/// over whatever comes next, and complains of that.
const NESTING_MAX: usize = 45;

/// How many parentheses and CASEs a text has within one another.
fn nesting(sql: &str) -> usize {
    use datafusion::sql::sqlparser::keywords::Keyword;
    use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
    let tokens = Tokenizer::new(&syntax::Spoken, sql).tokenize().unwrap_or_default();
    let (mut depth, mut most) = (0usize, 0);
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Word(word) if word.keyword == Keyword::CASE => depth += 1,
            Token::Word(word) if word.keyword == Keyword::END => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

fn parsed(sql: &str) -> Result<Statement> {
    let mut statements = match DFParser::parse_sql_with_dialect(sql, &syntax::Spoken) {
        Err(_) if nesting(sql) >= NESTING_MAX => return Err(nested_too_deeply()),
        parsed => parsed?,
    };
    let refused = |what: &str| {
        Err(Error::usage_hint(
            format!("{what} is not run here"),
            "a query is one SELECT; results are written with -o FILE or a job file's [sink]",
        ))
    };
    match (statements.pop_front(), statements.is_empty()) {
        (None, _) => Err(Error::usage("the SQL is empty")),
        (Some(_), false) => refused("more than one statement"),
        (Some(Statement::Statement(mut statement)), true) => match *statement {
            SqlStatement::Query(_) => {
                digits::keep(&mut statement);
                Ok(Statement::Statement(statement))
            }
            SqlStatement::Explain { .. } => Err(Error::usage_hint(
                "EXPLAIN is not run here",
                "--explain shows how a query runs",
            )),
            SqlStatement::ExplainTable { .. } => Err(Error::usage_hint(
                "DESCRIBE is not run here",
                "`tidemill schema FILE` shows a file's columns",
            )),
            other => {
                let text = other.to_string();
                refused(&format!("`{}`", text.split_whitespace().next().unwrap_or_default()))
            }
        },
        (Some(Statement::Explain(_)), true) => {
            Err(Error::usage_hint("EXPLAIN is not run here", "--explain shows how a query runs"))
        }
        (Some(_), true) => refused("a statement that changes something"),
    }
}

/// Checks that all that a statement says is honoured.
fn honoured(statement: &Statement, context: &SessionContext) -> Result<()> {
    match statement {
        Statement::Statement(statement) => syntax::check(statement, &context.state()),
        _ => Err(Error::Internal("a statement that is no SELECT".into())),
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
    // It never breaks off.
    let _ = statement.visit(&mut names);
    let name = field.name();
    let is_word = |source: &String| source.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    Some(match names.0.as_slice() {
        [] | [_] => Error::usage_hint(
            format!("two columns are `{name}`"),
            format!("give one of them another name where it is selected: {name} AS other"),
        ),
        [first, second, ..] if is_word(first) && is_word(second) => Error::usage_hint(
            format!("column `{name}` is in more than one source"),
            format!("say which: `{first}.{name}` or `{second}.{name}`"),
        ),
        [first, ..] => Error::usage_hint(
            format!("column `{name}` is in more than one source"),
            format!("name the sources, as in FROM '{first}' AS a, and say which: `a.{name}`"),
        ),
    })
}

/// The statement with each `* REPLACE (x AS a)` as `* EXCEPT (a), x AS a`, if it has one.
fn only_replaced(statement: &Statement) -> Option<Statement> {
    let Statement::Statement(statement) = statement else { return None };
    let mut statement = statement.clone();
    syntax::replace_by_except(&mut statement).then_some(Statement::Statement(statement))
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
                Err(error.into())
            }
            Df::Plan(message) if message.contains("duplicate column names") => {
                Err(Error::usage_hint(
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

/// Gives tables whose URLs hold what may be secret, a password or a signature, names without
/// it: plans, messages and columns' names show them. Notes the URLs by these names.
fn hide_secrets(statement: &mut Statement, urls: &mut HashMap<String, String>) {
    let Statement::Statement(statement) = statement else { return };
    let _: ControlFlow<()> = visit_relations_mut(statement.as_mut(), |relation| {
        let [ObjectNamePart::Identifier(name)] = relation.0.as_mut_slice() else {
            return ControlFlow::Continue(());
        };
        let plain = shown(&name.value);
        if plain != name.value {
            let numbered = (2..).map(|number| format!("{plain} ({number})"));
            let free = std::iter::once(plain.clone())
                .chain(numbered)
                .find(|other| urls.get(other).is_none_or(|url| *url == name.value));
            if let Some(free) = free {
                let url = std::mem::replace(&mut name.value, free.clone());
                urls.insert(free, url);
            }
        }
        ControlFlow::Continue(())
    });
}

/// The SQL as partial tables keep it and messages show it: as it was written, or, if that holds what
/// may be secret, as it was understood without it.
fn shown_sql(sql: &str, statement: &Statement, hidden: &HashMap<String, String>) -> String {
    if hidden.is_empty() { sql.to_string() } else { statement.to_string() }
}

/// The statement without what may be secret, and its text.
fn without_secrets(sql: &str) -> Result<(Statement, String)> {
    let mut statement = one_select(sql)?;
    let mut hidden = HashMap::new();
    hide_secrets(&mut statement, &mut hidden);
    let shown = shown_sql(sql, &statement, &hidden);
    Ok((statement, shown))
}

/// What a table in the SQL is: a named source or a file.
fn find(query: &Query, reference: &TableReference) -> Result<(String, SourceSpec)> {
    let name = reference.table();
    if reference.schema().is_some() {
        let dotted = reference.to_string();
        return Err(Error::usage_hint(
            format!("unknown table `{dotted}`"),
            format!("a file is named in single quotes: FROM '{dotted}'"),
        ));
    }
    if let Some(source) = query.sources.iter().find(|source| source.name == name) {
        return Ok((name.to_string(), source.spec.clone()));
    }
    let looks_like_file = name.contains(['/', '.', '*', '?', '[', '{', ':'])
        || name == "-"
        || Path::new(name).exists();
    if !looks_like_file {
        let names: Vec<&str> = query.sources.iter().map(|source| source.name.as_str()).collect();
        let hint = "a file is named in single quotes: FROM 'logs.csv'";
        if names.is_empty() {
            return Err(Error::usage_hint(format!("unknown table `{name}`"), hint));
        }
        return Err(Error::usage_hint(suggest::unknown("source", name, &names), hint));
    }
    Ok((name.to_string(), SourceSpec { url: name.to_string(), ..query.defaults.clone() }))
}

/// Column types in SQL's words as a schema: `id BIGINT, tags VARCHAR[]`.
///
/// # Errors
/// [`Error::Usage`] where they are not understood.
pub fn schema_from_sql(text: &str) -> Result<SchemaRef> {
    parse_schema(&SessionContext::new(), text)
}

fn parse_schema(context: &SessionContext, text: &str) -> Result<SchemaRef> {
    let hint = "write it as SQL does: --schema 'id BIGINT, name TEXT, ts TIMESTAMP'";
    let refused = |e: Error| Error::usage_hint(format!("the schema is not understood: {e}"), hint);
    let sql = format!("CREATE TABLE t ({text})");
    let mut statements = DFParser::parse_sql(&sql).map_err(|e| refused(e.into()))?;
    let statement = statements.pop_front().filter(|_| statements.is_empty());
    let statement = statement.ok_or_else(|| refused(Error::usage("it holds a `;`")))?;
    if let Statement::Statement(statement) = &statement {
        syntax::only_columns(statement)?;
    }
    let mut state = context.state();
    // What a zone's times are read as; without it the zone would be forgotten.
    state.config_mut().options_mut().execution.time_zone = Some("UTC".into());
    let plan = block_on(state.statement_to_plan(statement)).map_err(|e| refused(e.into()))?;
    match plan {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) => {
            Ok(Arc::new(without_metadata(table.input.schema().as_arrow())))
        }
        _ => Err(refused(Error::usage("it is no list of columns"))),
    }
}

/// Whether a plan may want no more rows of a source than it has.
fn has_limit(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= match node {
            LogicalPlan::Limit(_) => true,
            LogicalPlan::TableScan(scan) => scan.fetch.is_some(),
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The plan's schema with `sum(distance)` for `sum(flights.csv.distance)`, and `x + 1` for
/// `x + Int64(1)`.
fn result_schema(plan: &LogicalPlan, tables: &[&str], statement: &Statement) -> Schema {
    let mut qualifiers: Vec<String> = tables.iter().map(|table| (*table).to_string()).collect();
    // What is not found here is only not shortened.
    let _ = plan.apply(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node {
            qualifiers.push(alias.alias.table().to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let qualifiers: Vec<&str> = qualifiers.iter().map(String::as_str).collect();
    let is_given = given_names(plan);
    let written = match statement {
        Statement::Statement(statement) => names::written(statement),
        _ => Vec::new(),
    };
    // One `unnest` may stand for several columns.
    let is_known = written.len() == plan.schema().fields().len();
    let written = if is_known { written } else { Vec::new() };
    let short: Vec<String> = plan
        .schema()
        .iter()
        .enumerate()
        // The planner gives names, too, to calls that it writes in another way.
        .map(|(index, (_, field))| match is_given.get(index) {
            Some(true) if written.get(index).is_none_or(Option::is_none) => field.name().clone(),
            _ if !names::is_inward(field.name()) => unqualified(field.name(), &qualifiers),
            _ => {
                let name = written.get(index).and_then(Option::as_ref).unwrap_or(field.name());
                unqualified(name, &qualifiers)
            }
        })
        .collect();
    let fields = plan.schema().iter().zip(&short).map(|((qualifier, field), name)| {
        // Two columns that only their tables told apart keep their whole names.
        let is_unique = short.iter().filter(|other| *other == name).count() == 1;
        let name = match qualifier {
            _ if is_unique => name.clone(),
            Some(table) => format!("{}.{}", table.table(), field.name()),
            None => field.name().clone(),
        };
        let rows = field.metadata().get_key_value(tidemill_rowfile::keys::ROWS);
        let kept = rows.map(|(key, schema)| (key.clone(), schema.clone())).into_iter().collect();
        field.as_ref().clone().with_name(name).with_metadata(kept)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// The columns by their names, of the types that the optimised plan gives them.
fn settled(named: &Schema, plan: &DFSchema) -> Schema {
    let fields = named.fields().iter().zip(plan.fields()).map(|(field, found)| {
        let nullable = field.is_nullable() || found.is_nullable();
        field.as_ref().clone().with_data_type(found.data_type().clone()).with_nullable(nullable)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Which columns the query itself names, with `AS`.
fn given_names(plan: &LogicalPlan) -> Vec<bool> {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().map(|expr| matches!(expr, Expr::Alias(_))).collect()
        }
        LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Union(_) => plan.inputs().first().map_or(vec![], |input| given_names(input)),
        _ => Vec::new(),
    }
}

/// `text` without the tables' names before their columns.
fn unqualified(text: &str, tables: &[&str]) -> String {
    let mut text = text.to_string();
    for table in tables {
        for prefix in [format!("\"{table}\"."), format!("{table}.")] {
            let mut rest = text.as_str();
            let mut short = String::with_capacity(text.len());
            while let Some(at) = rest.find(&prefix) {
                let before = rest[..at].chars().next_back().or(short.chars().next_back());
                // `s.` within `cas.x` is no table's name.
                let is_inside = before
                    .is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '"' | '.' | '/'));
                let end = at + prefix.len();
                short.push_str(&rest[..if is_inside { end } else { at }]);
                rest = &rest[end..];
            }
            short.push_str(rest);
            text = short;
        }
    }
    text
}

fn without_metadata(schema: &Schema) -> Schema {
    Schema::new(schema.fields().clone())
}

/// How a query would be run.
#[derive(Debug, Clone, Serialize)]
pub struct Explain {
    /// `partial tables`, `rows` or `datafusion`.
    pub path: String,
    /// Why that path.
    pub why: String,
    /// Whether the result comes from states that merge with others.
    pub mergeable: bool,
    /// The memory budget.
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// What is read.
    pub sources: Vec<ExplainSource>,
    /// The steps by name, each with its plan.
    pub steps: Vec<(String, String)>,
}

/// A source in an [`Explain`].
#[derive(Debug, Clone, Serialize)]
pub struct ExplainSource {
    /// Its name or URL.
    pub name: String,
    /// Its format.
    pub format: String,
    /// How many files.
    pub files: u64,
    /// How many splits, before row groups are left out by their statistics.
    pub splits: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Names and types.
    pub columns: Vec<(String, String)>,
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "path: {} ({})", self.path, self.why)?;
        for source in &self.sources {
            writeln!(
                f,
                "source: {} ({}, {} file{}, {}, {} split{})",
                source.name,
                source.format,
                coverage::grouped(source.files),
                if source.files == 1 { "" } else { "s" },
                coverage::human_bytes(source.bytes),
                coverage::grouped(source.splits),
                if source.splits == 1 { "" } else { "s" },
            )?;
        }
        writeln!(
            f,
            "budget: {} of memory, {} thread{}",
            coverage::human_bytes(self.memory_bytes),
            self.threads,
            if self.threads == 1 { "" } else { "s" },
        )?;
        for (name, text) in &self.steps {
            writeln!(f, "{name}:")?;
            for line in text.lines() {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// A running query: an iterator of record batches that also accounts for its input.
pub struct Results {
    schema: SchemaRef,
    inner: Inner,
    account: Account,
    cancel: Cancel,
    ended: bool,
    /// Whether it ended without an error.
    complete: bool,
}

enum Inner {
    Rows(Rows),
    Engine(Background),
}

struct Account {
    /// What partial tables account for.
    merged: Option<Coverage>,
    tables: Vec<(String, Arc<SourceTable>)>,
    rejects: Arc<Rejects>,
    mergeable: bool,
    rejected_folder: Option<PathBuf>,
    /// Of the partial tables' columns.
    estimates: Arc<Mutex<Vec<Estimate>>>,
    /// Of the others, by the calls that they come from.
    precisions: Arc<Precisions>,
    calls: Vec<Call>,
    /// What was asked, and what is run for it.
    sql: String,
    plan: LogicalPlan,
    cut_short: bool,
}

impl Results {
    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What the result rests on; final once the iterator has ended.
    pub fn coverage(&self) -> Coverage {
        self.account.coverage(self.complete)
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>> {
        self.cancel.check()?;
        let next = match &mut self.inner {
            Inner::Rows(rows) => rows.next().transpose()?,
            Inner::Engine(background) => background.next(&self.cancel)?,
        };
        if let Some(batch) = next {
            return Ok(Some(named(batch, &self.schema)?));
        }
        self.cancel.check()?;
        if let Inner::Rows(rows) = &self.inner {
            self.account.cut_short = rows.is_cut_short();
        }
        self.account.scans().try_for_each(|scan| scan.read_rest())?;
        self.account.rejects.finish(self.account.rows())?;
        Ok(None)
    }
}

impl Account {
    /// An error that names an aggregate, without the names of tables, which are paths; one of a cast with
    /// the cast.
    fn shortened(&self, error: Error) -> Error {
        let Error::Overflow { message, hint } = error else {
            return casts::explained(error, &self.sql, Some(&self.plan));
        };
        let names: Vec<&str> = self.tables.iter().map(|(name, _)| name.as_str()).collect();
        Error::Overflow { message: unqualified(&message, &names), hint }
    }
}

impl Iterator for Results {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.pull().map_err(|error| self.account.shortened(error));
        self.ended = !matches!(next, Ok(Some(_)));
        self.complete = matches!(next, Ok(None));
        next.transpose()
    }
}

/// The batch under the names that the query gave, which the optimiser may have changed, and of
/// its types.
pub(crate) fn named(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            arrow::compute::cast_with_options(column, field.data_type(), &EXACTLY).map_err(|e| {
                let (from, to) = (sql_type(column.data_type()), sql_type(field.data_type()));
                Error::Query(format!(
                    "a {from} of column `{}` does not fit {to}: {}",
                    field.name(),
                    Error::from(e)
                ))
            })
        })
        .collect::<Result<_>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl Account {
    fn scans(&self) -> impl Iterator<Item = Arc<Scan>> + '_ {
        self.tables.iter().flat_map(|(_, table)| table.scans())
    }

    fn rows(&self) -> u64 {
        self.scans().map(|scan| scan.row_count()).sum()
    }

    fn estimates(&self) -> Vec<Estimate> {
        let mut estimates = self.estimates.lock().clone();
        estimates.extend(self.precisions.estimates(&self.calls));
        estimates
    }

    fn coverage(&self, ended: bool) -> Coverage {
        if let Some(merged) = &self.merged {
            let complete = merged.complete && ended;
            return Coverage { complete, estimates: self.estimates(), ..merged.clone() };
        }
        let sum = |of: fn(&Scan) -> Amount| {
            self.scans().map(|scan| of(&scan)).fold(Amount::default(), |a, b| Amount {
                done: a.done + b.done,
                total: a.total + b.total,
                left_out: a.left_out + b.left_out,
            })
        };
        let splits = sum(Scan::split_amount);
        let stopped = match (ended, self.cut_short || splits.done < splits.total) {
            (true, true) => Some("stopped once the limit was reached".to_string()),
            _ => None,
        };
        let rejected = self.scans().map(|scan| scan.rejected_count()).sum();
        let sources = self.tables.iter().filter_map(|(_, table)| table.source());
        let salvaged: Vec<_> = sources.flat_map(|source| source.salvaged()).collect();
        let mut bytes = sum(Scan::byte_amount);
        bytes.left_out += salvaged.iter().map(|file| file.bytes_left_out).sum::<u64>();
        Coverage {
            version: coverage::VERSION,
            complete: ended && salvaged.is_empty(),
            mergeable: self.mergeable,
            files: self
                .tables
                .iter()
                .filter_map(|(_, table)| table.source())
                .map(|source| source.files().len() as u64)
                .sum(),
            splits,
            bytes,
            rows: RowAmount { done: self.rows(), rejected },
            stopped,
            rejected_copy: self
                .rejected_folder
                .as_ref()
                .filter(|_| rejected > 0)
                .map(|folder| folder.display().to_string()),
            estimates: self.estimates(),
            salvaged,
        }
    }
}

/// A plan that DataFusion runs on threads of its own, its batches in a bounded channel.
struct Background {
    /// `None` is the end; without it, whoever sends has failed.
    batches: Receiver<PlanResult<Option<RecordBatch>>>,
    /// Dropped without waiting: a blocked thread must not hold up Ctrl-C.
    runtime: Option<tokio::runtime::Runtime>,
}

/// How often a waiting consumer looks whether it has been told to stop.
const LOOK: Duration = Duration::from_millis(50);

impl Background {
    fn start(
        state: SessionState,
        plan: LogicalPlan,
        threads: usize,
        cancel: &Cancel,
    ) -> Result<Self> {
        cancel.check()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("engine")
            .thread_stack_size(RUN_STACK_BYTES)
            .on_thread_start(panics::all_are_caught)
            .build()
            .map_err(|e| Error::Io { action: "start", path: "threads".into(), source: e })?;
        let (sender, batches) = std::sync::mpsc::sync_channel(2);
        runtime.spawn(async move {
            let fed = std::panic::AssertUnwindSafe(Self::feed(state, plan, &sender)).catch_unwind();
            let end = match fed.await {
                Ok(Ok(())) => Ok(None),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(external(panicked(panic.as_ref()))),
            };
            // A consumer that has gone wants no end either.
            let _ = tokio::task::block_in_place(|| sender.send(end));
        });
        Ok(Background { batches, runtime: Some(runtime) })
    }

    async fn feed(
        state: SessionState,
        plan: LogicalPlan,
        sender: &SyncSender<PlanResult<Option<RecordBatch>>>,
    ) -> PlanResult<()> {
        let plan = floats::with_right_extremes(plan)?;
        let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
        let mut stream = execute_stream(physical, state.task_ctx())?;
        while let Some(batch) = stream.next().await {
            let batch = Some(batch?);
            if tokio::task::block_in_place(|| sender.send(Ok(batch))).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn next(&mut self, cancel: &Cancel) -> Result<Option<RecordBatch>> {
        loop {
            cancel.check()?;
            match self.batches.recv_timeout(LOOK) {
                Ok(batch) => return Ok(batch?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Internal("the query's threads are gone".into()));
                }
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Answers = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// A finished table as something that DataFusion can read, once.
struct Finished {
    schema: SchemaRef,
    answers: Arc<Mutex<Option<Answers>>>,
}

impl Finished {
    fn new(schema: SchemaRef, answers: Answers) -> Self {
        Finished { schema, answers: Arc::new(Mutex::new(Some(answers))) }
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for Finished {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let partition: Arc<dyn PartitionStream> = Arc::new(Finished {
            schema: Arc::clone(&self.schema),
            answers: Arc::clone(&self.answers),
        });
        let schema = Arc::clone(&self.schema);
        let table =
            StreamingTableExec::try_new(schema, vec![partition], projection, None, false, limit)?;
        Ok(Arc::new(table))
    }
}

impl PartitionStream for Finished {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batch_rows = context.session_config().batch_size();
        let answers = self.answers.lock().take().unwrap_or_else(|| {
            let error = Error::Internal("a finished table was read twice".into());
            Box::new(std::iter::once(Err(error)))
        });
        let batches = answers.flat_map(move |answer| {
            let schema = Arc::clone(&schema);
            let answer = answer.and_then(|answer| named(answer, &schema)).map_err(external);
            in_batches(answer, batch_rows)
        });
        let schema = Arc::clone(&self.schema);
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }
}

/// A large batch as parts of at most `step` rows.
fn in_batches(
    answer: PlanResult<RecordBatch>,
    step: usize,
) -> impl Iterator<Item = PlanResult<RecordBatch>> + Send {
    let rows = answer.as_ref().map_or(1, RecordBatch::num_rows);
    let mut answer = Some(answer);
    (0..rows.div_ceil(step).max(1)).map_while(move |index| match answer.as_ref()? {
        Ok(batch) if batch.num_rows() <= step => Some(Ok(batch.clone())),
        Ok(batch) => {
            let start = index * step;
            // A slice keeps the whole batch alive, and counts as such where it is held.
            let slice = batch.slice(start, step.min(batch.num_rows() - start));
            Some(compact::compacted(&slice).map_err(Into::into))
        }
        Err(_) => answer.take(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_behind_a_query_ends_when_nobody_listens_any_more() {
        for sql in [
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT count(*) FROM t",
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT n FROM t",
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION SELECT 3 - n FROM t) SELECT count(*) FROM t AS a",
        ] {
            let settings = Settings { threads: 2, ..Settings::new(64 << 20) };
            let query = Query { sql: sql.into(), ..Query::default() };
            let plan = Plan::new(&query, &settings).unwrap();
            let state = plan.context.state();
            let mut background =
                Background::start(state, plan.logical.clone(), 2, &settings.cancel).unwrap();
            background.runtime.take().unwrap().shutdown_background();
            // The other end goes with the work, which is let go of where it waits next.
            while background.batches.recv().is_ok() {}
        }
    }
}
