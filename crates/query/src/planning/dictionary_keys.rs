//! Text group keys as dictionary codes.
//!
//! A text key can come as dictionary codes if Parquet stores its column as codes or if the column of a text file
//! has low cardinality, and if the query uses the column for nothing else. The map then passes codes on, and the
//! tables group by them ([`coded_keys`](tidemill_tables::grouping::coded_keys)).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Column, DFSchema, Result as PlanResult};
use datafusion::datasource::{TableProvider, TableType, provider_as_source};
use datafusion::logical_expr::logical_plan::TableScanBuilder;
use datafusion::logical_expr::{
    Expr, Filter, LogicalPlan, Projection, SubqueryAlias, TableProviderFilterPushDown,
};
use datafusion::physical_plan::ExecutionPlan;
use tidemill_base::column_types::dictionary_text_type;
use tidemill_tables::TableSpec;
use tidemill_tables::grouping::coded_keys::can_be_dense_key;

use crate::execution::scan::SourceTable;

/// A map whose text keys are dictionary codes.
pub(crate) struct DictionaryKeyMap {
    /// The map's plan, over a scan that returns codes.
    pub map: LogicalPlan,
}

/// Returns the map with text keys as dictionary codes, if some keys allow it and all other keys are whole
/// numbers.
///
/// # Errors
/// Errors of building DataFusion plans.
pub(crate) fn rewrite_with_dictionary_keys(
    map: &LogicalPlan,
    spec: &TableSpec,
    table: &Arc<SourceTable>,
) -> PlanResult<Option<DictionaryKeyMap>> {
    let Some(source) = table.source() else { return Ok(None) };
    let key_count = spec.keys.len();
    let mut used = BTreeSet::new();
    let Some(origins) = source_columns(map, &mut used) else { return Ok(None) };
    let columns: Option<Vec<usize>> = origins[..key_count].iter().copied().collect();
    let Some(columns) = columns.filter(|columns| !columns.is_empty()) else { return Ok(None) };
    used.extend(origins[key_count..].iter().flatten());
    let arguments = spec.aggregates.iter().flat_map(|aggregate| {
        [
            aggregate.argument_column,
            aggregate.second_argument.as_ref().map(|(at, _)| *at),
            aggregate.filter_column,
        ]
    });
    used.extend(arguments.flatten().filter(|at| *at < key_count).map(|at| columns[at]));
    let (coded, others): (Vec<usize>, Vec<usize>) = columns
        .into_iter()
        .partition(|column| !used.contains(column) && source.is_low_cardinality(*column));
    let own = table.schema();
    if coded.is_empty() || !others.iter().all(|at| can_be_dense_key(own.field(*at).data_type())) {
        return Ok(None);
    }
    let columns = coded;
    let fields = own.fields().iter().enumerate().map(|(at, field)| match columns.contains(&at) {
        true => Arc::new(field.as_ref().clone().with_data_type(dictionary_text_type())),
        false => Arc::clone(field),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let stored =
        DictionaryEncodedTable { table: Arc::clone(table), schema, encoded_columns: columns };
    let map = replace_table(map, Arc::new(stored))?;
    Ok(Some(DictionaryKeyMap { map }))
}

/// Returns for each column of a plan the source column that it passes through unchanged, if it is one. Adds
/// source columns that filters or expressions evaluate to `used`. Returns `None` for plans with other steps
/// than scans, filters, aliases and projections.
fn source_columns(plan: &LogicalPlan, used: &mut BTreeSet<usize>) -> Option<Vec<Option<usize>>> {
    match plan {
        LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
            let all = scan.source.schema();
            for column in scan.filters.iter().flat_map(Expr::column_refs) {
                used.insert(all.index_of(&column.name).ok()?);
            }
            let columns = match &scan.projection {
                Some(columns) => columns.clone(),
                None => (0..all.fields().len()).collect(),
            };
            Some(columns.into_iter().map(Some).collect())
        }
        LogicalPlan::Filter(filter) => {
            let origins = source_columns(&filter.input, used)?;
            mark_used_columns(&filter.predicate, filter.input.schema(), &origins, used)?;
            Some(origins)
        }
        LogicalPlan::SubqueryAlias(alias) => source_columns(&alias.input, used),
        LogicalPlan::Projection(projection) => {
            let below = source_columns(&projection.input, used)?;
            let schema = projection.input.schema();
            let of = |expr: &Expr| match plain_column(expr) {
                Some(column) => Some(below[schema.maybe_index_of_column(column)?]),
                None => mark_used_columns(expr, schema, &below, used).map(|()| None),
            };
            projection.expr.iter().map(of).collect()
        }
        _ => None,
    }
}

/// Returns the column that an expression consists of, ignoring aliases.
fn plain_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

/// Adds the source columns that an expression refers to to `used`. Returns `None` if a column is unknown.
fn mark_used_columns(
    expr: &Expr,
    schema: &DFSchema,
    origins: &[Option<usize>],
    used: &mut BTreeSet<usize>,
) -> Option<()> {
    for column in expr.column_refs() {
        used.extend(origins[schema.maybe_index_of_column(column)?]);
    }
    Some(())
}

/// Rebuilds a plan over another table.
fn replace_table(
    plan: &LogicalPlan,
    table: Arc<DictionaryEncodedTable>,
) -> PlanResult<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::TableScan(scan) => {
            let made = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(table))
                .with_projection(scan.projection.clone())
                .with_filters(scan.filters.clone());
            LogicalPlan::TableScan(made.build()?)
        }
        LogicalPlan::Filter(filter) => {
            let input = Arc::new(replace_table(&filter.input, table)?);
            LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), input)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let input = Arc::new(replace_table(&alias.input, table)?);
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input, alias.alias.clone())?)
        }
        LogicalPlan::Projection(projection) => {
            let input = Arc::new(replace_table(&projection.input, table)?);
            LogicalPlan::Projection(Projection::try_new(projection.expr.clone(), input)?)
        }
        other => other.clone(),
    })
}

/// A source table that returns some of its text columns as dictionary codes.
#[derive(Debug)]
struct DictionaryEncodedTable {
    table: Arc<SourceTable>,
    schema: SchemaRef,
    encoded_columns: Vec<usize>,
}

#[async_trait]
impl TableProvider for DictionaryEncodedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        self.table.scan_with_dictionary_codes(
            &self.schema,
            &self.encoded_columns,
            state,
            projection,
            filters,
        )
    }
}
