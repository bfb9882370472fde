//! Stand-in tables: tables that replace a part of a plan.
//!
//! A stand-in names its columns by position, `column_0` and so on, because two columns of a plan may differ
//! in nothing but their tables. A projection above its scan restores the tables and names of the replaced
//! part.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use tidemill_base::error::Result;
use tidemill_sql::IntoTidemillError;

fn positional_name(index: usize) -> String {
    format!("column_{index}")
}

/// Returns the schema of a table that replaces a plan with the schema `replaced`.
pub(crate) fn positional_schema(replaced: &DFSchema) -> SchemaRef {
    let fields = replaced.fields().iter().enumerate().map(|(index, field)| {
        Field::new(positional_name(index), field.data_type().clone(), field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns a plan of the `replaced` schema that scans the table `name`, whose columns are those of
/// [`positional_schema`].
///
/// # Errors
/// Errors of DataFusion's plan builder.
pub(crate) fn scan_stand_in(
    name: &str,
    provider: Arc<dyn TableProvider>,
    replaced: &DFSchema,
) -> Result<LogicalPlan> {
    let scan =
        LogicalPlanBuilder::scan(name, provider_as_source(provider), None).into_tidemill_error()?;
    let restored = replaced.iter().enumerate().map(|(index, (qualifier, field))| {
        Expr::Column(Column::new(Some(name), positional_name(index)))
            .alias_qualified(qualifier.cloned(), field.name())
    });
    scan.project(restored.collect::<Vec<_>>()).into_tidemill_error()?.build().into_tidemill_error()
}

/// Returns a step that reads a table of one partition.
///
/// # Errors
/// DataFusion's error for a projection that does not fit.
pub(crate) fn scan_one_partition(
    partition: Arc<dyn PartitionStream>,
    projection: Option<&Vec<usize>>,
    limit: Option<usize>,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let schema = Arc::clone(partition.schema());
    let table =
        StreamingTableExec::try_new(schema, vec![partition], projection, None, false, limit)?;
    Ok(Arc::new(table))
}
