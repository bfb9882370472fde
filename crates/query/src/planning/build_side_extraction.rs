//! Build sides: join inputs that are small enough to hold in memory beside the source that is read in splits.
//!
//! The largest of the sources that a query joins is the **stream**, cut into splits as a single source is.
//! An input that is joined to it below the aggregation is a **build side**: a plan of its own over the other
//! sources, which runs once before the first split is read and whose rows stay in memory. The join is then a
//! per-record step like others: every split's map probes the same rows, so the tables of the splits merge as
//! usual. That holds for joins that keep or drop a row of the stream by its matches. A join that must know in
//! the end which rows of the build side had no match (`FULL`, or an outer join that keeps the build side's
//! rows) takes the engine path.
//!
//! ```text
//!   aggregation                       aggregation
//!       │                                 │            per split
//!     join ───────┐         ═►          join ──────┐
//!       │         │                       │        │
//!    stream   any plan                 stream    rows held   ◄── any plan, once
//! ```
//!
//! Before reading, the planner estimates from stored bytes whether the other sources are small. The rows are
//! measured again as they arrive: if they turn out larger, the run starts over on the engine path.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, FetchType, Join, LogicalPlan, LogicalPlanBuilder, SkipType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use tidemill_base::coverage::format_decimal_bytes;
use tidemill_base::error::{Error, Result};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_dialect::translation;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};
use tidemill_source::{Compression, Format, Source};
use tidemill_sql::IntoTidemillError;

use crate::planning::stand_in_tables::{positional_schema, scan_stand_in};

/// Estimates the bytes that a source's rows take in memory. Returns `None` for a source of unknown size.
///
/// Measured on the logs of `bench`: a Parquet file grows two to five times, compressed text five to twelve
/// times, uncompressed text shrinks or stays. The estimate is on the large side; the run checks it against
/// the rows.
pub(crate) fn estimate_memory_bytes(source: &Source) -> Option<u64> {
    source.files().iter().try_fold(0u64, |sum, file| {
        let factor = match (source.format(), file.compression()) {
            (Format::Parquet, _) => 5,
            (_, Compression::None) => 1,
            _ => 12,
        };
        (!file.is_stream()).then(|| sum.saturating_add(file.size().saturating_mul(factor)))
    })
}

/// Returns the tables that a plan reads, in the order of the plan, once for each read. Omits table functions
/// that generate their rows, such as `range(10)`.
///
/// # Errors
/// Errors of DataFusion's tree walk.
pub(crate) fn collect_scanned_tables(plan: &LogicalPlan) -> Result<Vec<TableReference>> {
    let mut names = Vec::new();
    plan.apply_with_subqueries_dyn(&mut |node| {
        if let LogicalPlan::TableScan(scan) = node
            && !translation::is_series_function(scan.table_name.table())
        {
            names.push(scan.table_name.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .into_tidemill_error()?;
    Ok(names)
}

/// Chooses the stream of a plan that reads several tables, or returns the reason why none can be it. All
/// other tables must fit in `build_bytes_max` of memory together, by the estimates of `bytes_of`.
pub(crate) fn choose_stream(
    scanned: &[TableReference],
    bytes_of: impl Fn(&TableReference) -> Option<u64>,
    build_bytes_max: u64,
) -> Result<TableReference, String> {
    let sized: Vec<(&TableReference, u64)> =
        scanned.iter().map(|name| (name, bytes_of(name).unwrap_or(u64::MAX))).collect();
    let Some((stream, _)) = sized.iter().rev().max_by_key(|(_, bytes)| *bytes) else {
        return Err("the query reads no source".into());
    };
    let mut is_first = true;
    let others: Vec<&(&TableReference, u64)> = sized
        .iter()
        .filter(|(name, _)| !(name == stream && std::mem::take(&mut is_first)))
        .collect();
    let built = others.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if built <= build_bytes_max {
        return Ok((*stream).clone());
    }
    let Some((largest, bytes)) = others.iter().max_by_key(|(_, bytes)| *bytes) else {
        return Ok((*stream).clone());
    };
    let limit = format_decimal_bytes(build_bytes_max);
    Err(match (largest == stream, *bytes) {
        (true, _) => format!(
            "the query reads `{}` more than once, and it may take more than the {limit} of \
             memory that are for tables held whole",
            largest.table()
        ),
        (false, u64::MAX) => format!(
            "`{}` has no size before it is read, and only one source can be read in splits",
            largest.table()
        ),
        (false, _) => format!(
            "`{}` is joined with `{}`, of which neither fits in the {limit} of memory that are \
             for tables held whole",
            stream.table(),
            largest.table()
        ),
    })
}

/// A join input whose plan runs once and whose rows are held in memory.
#[derive(Debug, Clone)]
pub(crate) struct BuildSide {
    /// Names of the sources that the plan reads.
    pub sources: Vec<String>,
    /// The plan that produces the rows.
    pub plan: LogicalPlan,
    /// The table that holds the rows once the plan has run.
    pub rows: Arc<BuildSideRows>,
}

/// Rewrites plans over the stream: replaces each join input beside it by a table of held rows.
pub(crate) struct BuildSideExtractor<'a> {
    stream: &'a TableReference,
    /// The build sides extracted so far.
    pub build_sides: Vec<BuildSide>,
}

impl<'a> BuildSideExtractor<'a> {
    /// Creates a rewriter of plans that read `stream` in splits.
    pub(crate) fn new(stream: &'a TableReference) -> Self {
        BuildSideExtractor { stream, build_sides: Vec::new() }
    }

    /// Returns the plan with build sides replaced by held rows, or `None` unless each step handles one record
    /// at a time.
    ///
    /// `fetch` is the number of the plan's rows that are needed, if not all. A limit of at least that many
    /// rows is omitted where the steps above it return one row or more for each: the optimiser has pushed it
    /// down there.
    ///
    /// # Errors
    /// Errors of DataFusion's plan builder.
    pub(crate) fn rewrite_per_record(
        &mut self,
        plan: &LogicalPlan,
        fetch: Option<usize>,
    ) -> Result<Option<LogicalPlan>> {
        let known = self.build_sides.len();
        let Some(map) = self.rewrite_node(plan, fetch)? else {
            self.build_sides.truncate(known);
            return Ok(None);
        };
        if map.schema() == plan.schema() {
            return Ok(Some(map));
        }
        // A rewritten join may have swapped its inputs: restore the order of the columns.
        let columns = plan
            .schema()
            .iter()
            .map(|(qualifier, field)| Expr::Column(Column::new(qualifier.cloned(), field.name())));
        Ok(Some(
            LogicalPlanBuilder::from(map)
                .project(columns.collect::<Vec<_>>())
                .into_tidemill_error()?
                .build()
                .into_tidemill_error()?,
        ))
    }

    fn rewrite_node(
        &mut self,
        plan: &LogicalPlan,
        fetch: Option<usize>,
    ) -> Result<Option<LogicalPlan>> {
        let is_enough = |rows: usize| fetch.is_some_and(|fetch| rows >= fetch);
        match plan {
            LogicalPlan::TableScan(scan) => {
                let is_whole = scan.fetch.is_none_or(is_enough);
                let is_map = scan.table_name == *self.stream && is_whole;
                Ok(is_map.then(|| plan.clone()))
            }
            LogicalPlan::Limit(limit) => {
                match (
                    limit.get_skip_type().into_tidemill_error()?,
                    limit.get_fetch_type().into_tidemill_error()?,
                ) {
                    (SkipType::Literal(0), FetchType::Literal(Some(rows))) if is_enough(rows) => {
                        self.rewrite_node(&limit.input, fetch)
                    }
                    _ => Ok(None),
                }
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Unnest(_) => {
                let [input] = plan.inputs()[..] else { return Ok(None) };
                if plan.expressions().iter().any(has_subquery) {
                    return Ok(None);
                }
                let known = self.build_sides.len();
                let fetch = match plan {
                    LogicalPlan::Filter(_) | LogicalPlan::Unnest(_) => None,
                    _ => fetch,
                };
                let before = input;
                let Some(input) = self.rewrite_node(input, fetch)? else { return Ok(None) };
                if input == *before && self.build_sides.len() == known {
                    return Ok(Some(plan.clone()));
                }
                Ok(Some(
                    plan.with_new_exprs(plan.expressions(), vec![input]).into_tidemill_error()?,
                ))
            }
            LogicalPlan::Join(join) => self.rewrite_join(join, fetch),
            _ => Ok(None),
        }
    }

    /// Rewrites a join such that the build side is the left input, the one that DataFusion holds in memory,
    /// and the stream the right input.
    fn rewrite_join(&mut self, join: &Join, fetch: Option<usize>) -> Result<Option<LogicalPlan>> {
        // `NOT IN` must know whether the side holds a null before it returns any row.
        if join.null_aware {
            return Ok(None);
        }
        let is_left = self.reads_stream(&join.left)?;
        let kept = if is_left { join.join_type.swap() } else { join.join_type };
        let keeps_stream = matches!(
            kept,
            JoinType::Inner
                | JoinType::Right
                | JoinType::RightSemi
                | JoinType::RightAnti
                | JoinType::RightMark
        );
        if !keeps_stream {
            return Ok(None);
        }
        let (stream, side) =
            if is_left { (&join.left, &join.right) } else { (&join.right, &join.left) };
        let fetch = fetch.filter(|_| matches!(kept, JoinType::Right | JoinType::RightMark));
        let Some(stream) = self.rewrite_node(stream, fetch)? else { return Ok(None) };
        let side = self.add_build_side(side)?;
        let on = join.on.iter().cloned();
        let on = on.map(|(left, right)| if is_left { (right, left) } else { (left, right) });
        let swapped = Join::try_new(
            Arc::new(side),
            Arc::new(stream),
            on.collect(),
            join.filter.clone(),
            kept,
            join.join_constraint,
            join.null_equality,
            false,
        )
        .into_tidemill_error()?;
        Ok(Some(LogicalPlan::Join(swapped)))
    }

    fn reads_stream(&self, plan: &LogicalPlan) -> Result<bool> {
        plan.exists_dyn(&mut |node| {
            Ok(matches!(node, LogicalPlan::TableScan(scan) if scan.table_name == *self.stream))
        })
        .into_tidemill_error()
    }

    /// Adds a build side, and returns the scan that replaces it.
    fn add_build_side(&mut self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let mut sources: Vec<String> =
            collect_scanned_tables(plan)?.iter().map(|name| name.table().to_string()).collect();
        sources.sort_unstable();
        sources.dedup();
        let schema = positional_schema(plan.schema());
        let rows = Arc::new(BuildSideRows { schema, batches: Mutex::default() });
        let name = format!("held_{}", self.build_sides.len() + 1);
        let provider = Arc::clone(&rows) as Arc<dyn TableProvider>;
        let scan = scan_stand_in(&name, provider, plan.schema())?;
        self.build_sides.push(BuildSide { sources, plan: plan.clone(), rows });
        Ok(scan)
    }
}

/// Returns true if an expression contains a subquery or a column of the outer query.
pub(crate) fn has_subquery(expr: &Expr) -> bool {
    // An expression that cannot be walked is not treated as per record.
    expr.exists_dyn(&mut |expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        ))
    })
    .unwrap_or(true)
}

/// A table of a build side's rows in memory. Its columns are named by position.
pub(crate) struct BuildSideRows {
    schema: SchemaRef,
    batches: Mutex<Option<Vec<RecordBatch>>>,
}

impl BuildSideRows {
    /// Returns the schema of the rows.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the held rows, or none before they are set.
    pub(crate) fn held_batches(&self) -> Vec<RecordBatch> {
        self.batches.lock().clone().unwrap_or_default()
    }

    /// Sets the rows, which must have the columns of [`schema`](Self::schema).
    pub(crate) fn set_batches(&self, batches: Vec<RecordBatch>) {
        *self.batches.lock() = Some(batches);
    }
}

impl fmt::Debug for BuildSideRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuildRows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for BuildSideRows {
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
        _: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let Some(batches) = self.batches.lock().clone() else {
            return Err(into_datafusion_error(Error::Internal(
                "a side was joined before it was read".into(),
            )));
        };
        let schema = Arc::clone(&self.schema);
        Ok(MemorySourceConfig::try_new_exec(&[batches], schema, projection.cloned())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_source_is_the_stream_if_the_others_fit() {
        let name = |table: &&str| TableReference::bare(*table);
        let bytes_of = |table: &TableReference| match table.table() {
            "unknown" | "pipe" => None,
            other => other.trim_matches(char::is_alphabetic).parse().ok(),
        };
        for (tables, expected) in [
            (&["a1"][..], "a1"),
            (&["a1", "b9", "c2"], "b9"),
            // The first of equal sizes, and the same table twice.
            (&["a1", "b1"], "a1"),
            (&["a1", "a1"], "a1"),
            (&["a10", "unknown"], "unknown"),
            (&["a10", "b10", "c1"], "!`a10` is joined with `b10`, of which neither fits"),
            (&["a11", "b1", "a11"], "!reads `a11` more than once"),
            (&["unknown", "pipe"], "!`pipe` has no size before it is read"),
            (&[], "!reads no source"),
        ] {
            let tables: Vec<_> = tables.iter().map(name).collect();
            let found = choose_stream(&tables, bytes_of, 10);
            match (found, expected.strip_prefix('!')) {
                (Ok(found), None) => assert_eq!(found.table(), expected),
                (Err(why), Some(part)) => assert!(why.contains(part), "{why}"),
                (found, _) => panic!("{tables:?}: {found:?}"),
            }
        }
    }
}
