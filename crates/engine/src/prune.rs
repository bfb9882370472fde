//! Parquet row groups that a filter rules out by their statistics are not read.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::planner::logical2physical;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::ParquetMetaData;

use crate::error::Result;
use crate::source::{Source, Split};

/// The source's splits without the row groups that `filters` rule out.
///
/// # Errors
/// As [`Source::splits`].
pub fn splits(source: &Source, filters: &[Expr]) -> Result<Vec<Split>> {
    let Some(predicate) = predicate(source.schema(), filters) else {
        return source.splits();
    };
    let mut kept_of_file: Vec<Option<Vec<bool>>> = Vec::new();
    for file in 0..source.files().len() {
        let kept = source.parquet_metadata(file).and_then(|metadata| {
            // Where statistics cannot be judged, everything is read.
            predicate.prune(&RowGroups { metadata, schema: source.schema() }).ok()
        });
        kept_of_file.push(kept);
    }
    source.splits_where(&mut |file, group| {
        let kept = kept_of_file.get(file).and_then(Option::as_ref);
        kept.and_then(|kept| kept.get(group)).copied().unwrap_or(true)
    })
}

fn predicate(schema: &SchemaRef, filters: &[Expr]) -> Option<PruningPredicate> {
    let filter = conjunction(filters.iter().cloned())?;
    // The filters name columns by the table's name in the query; the files know no such name.
    let filter = unqualified(filter)?;
    let physical = logical2physical(&filter, schema);
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let predicate = builder.try_build(physical).ok()?;
    (!predicate.always_true()).then_some(predicate)
}

fn unqualified(filter: Expr) -> Option<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let renamed = filter.transform(|expr| match expr {
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    });
    renamed.ok().map(|renamed| renamed.data)
}

/// A file's row groups as containers with statistics.
struct RowGroups<'a> {
    metadata: &'a ParquetMetaData,
    schema: &'a SchemaRef,
}

impl RowGroups<'_> {
    fn converter(&self, column: &Column) -> Option<StatisticsConverter<'_>> {
        let schema = self.metadata.file_metadata().schema_descr();
        StatisticsConverter::try_new(&column.name, self.schema, schema).ok()
    }
}

impl PruningStatistics for RowGroups<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.converter(column)?.row_group_mins(self.metadata.row_groups()).ok()
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.converter(column)?.row_group_maxes(self.metadata.row_groups()).ok()
    }

    fn num_containers(&self) -> usize {
        self.metadata.num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts = self.converter(column)?.row_group_null_counts(self.metadata.row_groups());
        counts.ok().map(|counts| Arc::new(counts) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = self.metadata.row_groups().iter();
        let counts = rows.map(|group| u64::try_from(group.num_rows()).ok());
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
