//! Pruning: leaves out row groups of Parquet and blocks of rowfiles by their statistics, rows of text that
//! fail a comparison with constants before they are built, and fields of nested columns that the query does
//! not name.
//!
//! A field of a struct is judged like a column: where a filter names one, the predicate's schema has it as a
//! column.
//!
//! Filters are inexact here: the query applies them again to the remaining rows.
//!
//! A filter compares settled float_order (see [`float_order`]): one zero, one NaN, NaN largest. Statistics are of
//! floats as they are stored, so only order-preserving expressions may stand between: a column, a field or a
//! cast of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray, RecordBatch, UInt64Array,
    new_null_array,
};
use arrow::datatypes::{
    DataType, Field, FieldRef, Float16Type, Float32Type, Float64Type, Schema, SchemaRef,
};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::ParquetMetaData;
use tidemill_base::error::Result;
use tidemill_planning::datafusion_names::scalars;
use tidemill_source::schema::nested_projection::{NestedProjection, NestedProjections};
use tidemill_source::{FileColumn, RowfileFooterStatistics, Source, Split, SplitOptions};
use tidemill_sql::float_order::{self, has_floats};
use tidemill_sql::opaque_casts;
use tidemill_text::{ComparisonOperator, Predicate, PredicateConstant, ValueCondition};

/// Returns the source's splits without the files and row groups that `filters` rule out. With `numbered` the
/// splits allow their records to be numbered.
///
/// # Errors
/// Those of [`Source::splits`].
pub(crate) fn prune_splits(
    source: &Source,
    filters: &[Expr],
    numbered: bool,
    target_bytes: Option<u64>,
) -> Result<Vec<Split>> {
    let kept = find_matching_files(source, filters);
    let cutting =
        SplitOptions { keeps_row_numbers: numbered, included_files: kept.as_deref(), target_bytes };
    let is_own = |filter: &Expr| {
        let own = |column: &Column| source.schema().index_of(&column.name).is_ok();
        filter.column_refs().into_iter().all(own)
    };
    let conjuncts = filters.iter().flat_map(split_conjunction);
    let filters: Vec<Expr> = conjuncts.filter(|filter| is_own(filter)).cloned().collect();
    let Some((predicate, nested)) = build_pruning_predicate(source.schema(), &filters) else {
        return Ok(source.splits_with_options(cutting, &mut |_, _| true)?);
    };
    let mut kept_of_file: Vec<Option<Vec<bool>>> = Vec::new();
    for file in 0..source.files().len() {
        // Without usable statistics, everything is read.
        let known = file_statistics(source, file, &nested);
        kept_of_file.push(known.and_then(|known| predicate.prune(known.as_ref()).ok()));
    }
    let splits = source.splits_with_options(cutting, &mut |file, group| {
        let kept = kept_of_file.get(file).and_then(Option::as_ref);
        kept.and_then(|kept| kept.get(group)).copied().unwrap_or(true)
    })?;
    Ok(splits)
}

/// Returns for each file whether it may hold rows that satisfy the filters, or `None` if all may. Only
/// filters over values that are the same for all rows of a file count: its name and the values of its
/// folders.
fn find_matching_files(source: &Source, filters: &[Expr]) -> Option<Vec<bool>> {
    let files = source.files().len();
    let all: Vec<_> =
        source.schema().fields().iter().chain(source.hidden_columns()).cloned().collect();
    let mut kept: Option<Vec<bool>> = None;
    for filter in filters.iter().flat_map(split_conjunction) {
        let columns = filter.column_refs();
        if columns.is_empty() || filter.is_volatile() {
            continue;
        }
        let place = |column: &&Column| all.iter().position(|field| *field.name() == column.name);
        let places: Option<Vec<usize>> = columns.iter().map(place).collect();
        let Some(places) = places else { continue };
        let Some(holds) = evaluate_filter_on_files(source, filter, &places, &all, files) else {
            continue;
        };
        match &mut kept {
            None => kept = Some(holds),
            Some(kept) => kept.iter_mut().zip(holds).for_each(|(kept, holds)| *kept &= holds),
        }
    }
    kept.filter(|kept| kept.contains(&false))
}

/// Evaluates a filter over such columns on each file. Returns `None` if its value is unknown before reading.
fn evaluate_filter_on_files(
    source: &Source,
    filter: &Expr,
    places: &[usize],
    all: &[FieldRef],
    files: usize,
) -> Option<Vec<bool>> {
    let mut values = Vec::with_capacity(places.len());
    for place in places {
        values.push(source.file_constant_values(*place).ok()??);
    }
    let fields: Vec<FieldRef> = places.iter().map(|place| Arc::clone(&all[*place])).collect();
    let schema = Arc::new(Schema::new(fields));
    let physical = create_physical_filter(&strip_qualifiers(filter.clone())?, &schema)?;
    let batch = RecordBatch::try_new(schema, values).ok()?;
    // An expression that fails here fails again where rows are filtered, and is reported there.
    let holds = physical.evaluate(&batch).ok()?.into_array(files).ok()?;
    let holds = holds.as_boolean_opt()?;
    Some((0..holds.len()).map(|file| holds.is_valid(file) && holds.value(file)).collect())
}

/// Returns the statistics of a file's parts: of row groups for Parquet, of blocks for a rowfile.
pub(crate) fn file_statistics<'a>(
    source: &'a Source,
    file: usize,
    nested: &'a NestedFields,
) -> Option<Box<dyn PruningStatistics + 'a>> {
    Some(match source.parquet_metadata(file) {
        Some(metadata) => Box::new(RowGroupStatistics { source, file, metadata }),
        None => Box::new(RowfileBlockStatistics {
            source,
            file,
            statistics: source.block_statistics(file)?,
            nested,
        }),
    })
}

/// Fields of structs that a filter names, by their column names in the predicate.
pub(crate) type NestedFields = HashMap<String, NestedField>;

/// A field of a struct, as a column of the predicate.
pub(crate) struct NestedField {
    /// The name of the column, followed by those of the fields down to this one.
    path: Vec<String>,
    data_type: DataType,
}

/// Returns true if every cast in a filter keeps the order of values. Bounds of timestamps say nothing about
/// their times of day, and bounds of texts nothing about numbers in them.
fn casts_keep_value_order(filter: &Expr, schema: &SchemaRef) -> bool {
    let columns = strip_qualifiers(filter.clone());
    let (Some(filter), Ok(schema)) = (columns, DFSchema::try_from(Arc::clone(schema))) else {
        return false;
    };
    let is_time = |of: &DataType| {
        matches!(of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _))
    };
    let mut turns = |expr: &Expr| {
        let (of, to) = match expr {
            Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
            Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
            _ => return Ok(false),
        };
        let of = of.get_type(&schema)?;
        let keeps = of == *to
            || of.is_null()
            || of.is_numeric() && to.is_numeric()
            || of.is_string() && to.is_string()
            || is_time(&of) && is_time(to)
            // A cast of a literal needs no bounds.
            || matches!(expr, Expr::Cast(cast) if matches!(cast.expr.as_ref(), Expr::Literal(_, _)));
        Ok(!keeps)
    };
    !filter.exists_dyn(&mut turns).unwrap_or(true)
}

fn build_pruning_predicate(
    schema: &SchemaRef,
    filters: &[Expr],
) -> Option<(PruningPredicate, NestedFields)> {
    let conjuncts = filters
        .iter()
        .flat_map(split_conjunction)
        .filter(|filter| casts_keep_value_order(filter, schema));
    let filter = conjunction(conjuncts.cloned())?;
    // The filters qualify columns by the table's name in the query, which the files do not have.
    let (filter, nested) = flatten_nested_fields(
        unwrap_settled_floats(restore_time_casts(strip_qualifiers(filter)?)?)?,
        schema,
    )?;
    let fields = nested
        .iter()
        .map(|(name, field)| Arc::new(Field::new(name, field.data_type.clone(), true)));
    let fields: Vec<_> = schema.fields().iter().cloned().chain(fields).collect();
    let schema = Arc::new(Schema::new(fields));
    // A subquery in a filter has no value yet, and makes this fail.
    let physical = create_physical_filter(&filter, &schema)?;
    let builder = PruningPredicateBuilder::new().with_file_schema(schema);
    let predicate = builder.try_build(physical).ok()?;
    (!predicate.always_true()).then_some((predicate, nested))
}

fn create_physical_filter(filter: &Expr, schema: &SchemaRef) -> Option<Arc<dyn PhysicalExpr>> {
    let schema = DFSchema::try_from(schema.as_ref().clone()).ok()?;
    let props = ExecutionProps::new();
    create_physical_expr(filter, &schema, &props, &PhysicalPlanningContext::default()).ok()
}

/// Replaces fields of structs in a filter by columns of their own.
fn flatten_nested_fields(filter: Expr, schema: &SchemaRef) -> Option<(Expr, NestedFields)> {
    let mut nested = NestedFields::new();
    let flat = filter.transform_down_dyn(&mut |expr| {
        let Some((column, fields)) = field_path(&expr).filter(|(_, fields)| !fields.is_empty())
        else {
            return Ok(Transformed::no(expr));
        };
        let found = schema.field_with_name(&column).ok().and_then(|field| {
            fields.iter().try_fold(field.data_type(), |data_type, name| match data_type {
                DataType::Struct(inner) => Some(inner.find(name)?.1.data_type()),
                _ => None,
            })
        });
        let Some(data_type) = found.filter(|data_type| !data_type.is_nested()).cloned() else {
            return Ok(Transformed::no(expr));
        };
        let path: Vec<String> = std::iter::once(column).chain(fields).collect();
        // The NUL bytes keep the name apart from every column that SQL can name.
        let name = format!("\0{}", path.join("\0"));
        nested.insert(name.clone(), NestedField { path, data_type });
        let column = Expr::Column(Column::new_unqualified(name));
        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
    });
    flat.ok().map(|flat| (flat.data, nested))
}

fn strip_qualifiers(filter: Expr) -> Option<Expr> {
    let renamed = filter.transform_up_dyn(&mut |expr| match expr {
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    });
    renamed.ok().map(|renamed| renamed.data)
}

/// Replaces calls that stand for casts of times to other units by casts.
fn restore_time_casts(filter: Expr) -> Option<Expr> {
    let cast = filter.transform_up_dyn(&mut |expr| match opaque_casts::order_preserving_time_cast(
        &expr,
    ) {
        Some(cast) => Ok(Transformed::yes(Expr::Cast(cast))),
        None => Ok(Transformed::no(expr)),
    });
    cast.ok().map(|cast| cast.data)
}

/// Removes float settling where the bounds of stored floats are also those of settled ones.
fn unwrap_settled_floats(filter: Expr) -> Option<Expr> {
    fn keeps_float_order(expr: &Expr) -> bool {
        match expr {
            Expr::Cast(cast) => keeps_float_order(&cast.expr),
            Expr::TryCast(cast) => keeps_float_order(&cast.expr),
            other => field_path(other).is_some(),
        }
    }
    let bare = filter.transform_up_dyn(&mut |expr| match float_order::unwrap_comparable(&expr) {
        Some(inner) if keeps_float_order(inner) => Ok(Transformed::yes(inner.clone())),
        _ => Ok(Transformed::no(expr)),
    });
    bare.ok().map(|bare| bare.data)
}

/// Replaces NaN by null in an array of minima: a writer that took NaN for the smallest value knows no
/// minimum.
fn null_out_nans(bounds: &ArrayRef) -> ArrayRef {
    macro_rules! numbers {
        ($t:ty) => {{
            let values = bounds.as_primitive::<$t>().iter();
            let numbers = values.map(|value| value.filter(|value| !value.is_nan()));
            Arc::new(numbers.collect::<PrimitiveArray<$t>>())
        }};
    }
    match bounds.data_type() {
        DataType::Float16 => numbers!(Float16Type),
        DataType::Float32 => numbers!(Float32Type),
        DataType::Float64 => numbers!(Float64Type),
        other => new_null_array(other, bounds.len()),
    }
}

/// Converts those conjuncts of `filters` that readers can decide while they read, by the column's position in
/// `schema`.
pub(crate) fn build_read_predicates(schema: &SchemaRef, filters: &[Expr]) -> Vec<Predicate> {
    let conjuncts = filters.iter().flat_map(split_conjunction);
    conjuncts.filter_map(|filter| build_read_predicate(schema, filter)).collect()
}

fn build_read_predicate(schema: &SchemaRef, filter: &Expr) -> Option<Predicate> {
    let place = |expr: &Expr| match float_order::unwrap_comparable(expr).unwrap_or(expr) {
        Expr::Column(column) => schema.index_of(&column.name).ok(),
        _ => None,
    };
    let (column, test) = match filter {
        Expr::BinaryExpr(binary) => {
            let comparison = convert_operator(binary.op)?;
            match (place(&binary.left), convert_literal(&binary.right)) {
                (Some(column), Some(constant)) => {
                    (column, ValueCondition::Comparison(comparison, constant))
                }
                _ => {
                    let (column, constant) =
                        (place(&binary.right)?, convert_literal(&binary.left)?);
                    (column, ValueCondition::Comparison(swap_operands(comparison), constant))
                }
            }
        }
        Expr::InList(list) if !list.negated => {
            let constants = list.list.iter().map(convert_literal).collect::<Option<Vec<_>>>()?;
            (place(&list.expr)?, ValueCondition::InSet(constants.into()))
        }
        Expr::IsNull(inner) => (place(inner)?, ValueCondition::IsNull),
        Expr::IsNotNull(inner) => (place(inner)?, ValueCondition::IsNotNull),
        _ => return None,
    };
    let predicate = Predicate { column, condition: test };
    predicate.is_applicable_to(schema.field(column).data_type()).then_some(predicate)
}

fn convert_operator(operator: Operator) -> Option<ComparisonOperator> {
    Some(match operator {
        Operator::Eq => ComparisonOperator::Equal,
        Operator::NotEq => ComparisonOperator::NotEqual,
        Operator::Lt => ComparisonOperator::Less,
        Operator::LtEq => ComparisonOperator::LessOrEqual,
        Operator::Gt => ComparisonOperator::Greater,
        Operator::GtEq => ComparisonOperator::GreaterOrEqual,
        _ => return None,
    })
}

/// Returns the comparison with its operands swapped.
fn swap_operands(comparison: ComparisonOperator) -> ComparisonOperator {
    match comparison {
        ComparisonOperator::Less => ComparisonOperator::Greater,
        ComparisonOperator::LessOrEqual => ComparisonOperator::GreaterOrEqual,
        ComparisonOperator::Greater => ComparisonOperator::Less,
        ComparisonOperator::GreaterOrEqual => ComparisonOperator::LessOrEqual,
        same => same,
    }
}

fn convert_literal(expr: &Expr) -> Option<PredicateConstant> {
    let Expr::Literal(value, _) = expr else { return None };
    Some(match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => PredicateConstant::Text(text.clone()),
        ScalarValue::Int8(Some(number)) => PredicateConstant::Int(i64::from(*number)),
        ScalarValue::Int16(Some(number)) => PredicateConstant::Int(i64::from(*number)),
        ScalarValue::Int32(Some(number)) => PredicateConstant::Int(i64::from(*number)),
        ScalarValue::Int64(Some(number)) => PredicateConstant::Int(*number),
        ScalarValue::Float64(Some(number)) => PredicateConstant::Float(*number),
        _ => return None,
    })
}

/// Returns the columns and fields that a plan uses. A plan that is not optimised yet names all of them, so
/// one walk over its expressions finds them.
///
/// # Errors
/// None of its own.
pub(crate) fn collect_used_fields(plan: &LogicalPlan) -> PlanResult<NestedProjections> {
    let mut used = NestedProjections::new();
    plan.apply_with_subqueries_dyn(&mut |node| {
        node.apply_expressions_dyn(&mut |expr| {
            expr.apply_dyn(&mut |expr| {
                let Some((column, path)) = field_path(expr) else {
                    return Ok(TreeNodeRecursion::Continue);
                };
                let mut place =
                    used.entry(column).or_insert(NestedProjection::Fields(BTreeMap::new()));
                for field in path {
                    match place {
                        NestedProjection::Whole => return Ok(TreeNodeRecursion::Jump),
                        NestedProjection::Fields(fields) => {
                            place = fields
                                .entry(field)
                                .or_insert(NestedProjection::Fields(BTreeMap::new()));
                        }
                    }
                }
                *place = NestedProjection::Whole;
                Ok(TreeNodeRecursion::Jump)
            })
        })
    })?;
    Ok(used)
}

/// Returns the column and the path of fields, if the expression is a plain field access.
fn field_path(expr: &Expr) -> Option<(String, Vec<String>)> {
    match expr {
        Expr::Column(column) => Some((column.name.clone(), Vec::new())),
        Expr::ScalarFunction(call) if call.func.name() == scalars::GET_FIELD => {
            let (base, fields) = call.args.split_first()?;
            let (column, mut path) = field_path(base)?;
            for field in fields {
                let Expr::Literal(name, _) = field else { return None };
                path.push(name.try_as_str()??.to_owned());
            }
            Some((column, path))
        }
        _ => None,
    }
}

/// A file's row groups as DataFusion pruning containers.
///
/// Statistics are those of the file's own column, cast to the column's type in the source; a file's type may
/// be narrower, with the same order. A column that the file lacks is null in all rows, and a folder's value
/// is the same in all rows.
struct RowGroupStatistics<'a> {
    source: &'a Source,
    file: usize,
    metadata: &'a ParquetMetaData,
}

/// One of the two bounds of a column.
#[derive(Clone, Copy)]
enum StatisticsBound {
    Min,
    Max,
}

impl RowGroupStatistics<'_> {
    fn file_column(&self, column: &Column) -> Option<(usize, FileColumn<'_>)> {
        let index = self.source.schema().index_of(&column.name).ok()?;
        Some((index, self.source.file_column(self.file, index)?))
    }

    fn statistics_converter<'a>(
        &'a self,
        column: &'a Column,
        schema: &'a SchemaRef,
    ) -> Option<StatisticsConverter<'a>> {
        let own = self.metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(&column.name, schema, own).ok()?;
        // A writer that records no null count may have written nulls.
        Some(converter.with_missing_null_counts_as_zero(false))
    }

    fn bound_values(
        &self,
        column: &Column,
        bound: StatisticsBound,
        of: impl Fn(&StatisticsConverter<'_>) -> Option<ArrayRef>,
    ) -> Option<ArrayRef> {
        match self.file_column(column)? {
            (_, FileColumn::PartitionKey(key)) => {
                let values =
                    self.source.partition_values(self.file, key, self.num_containers()).ok()?;
                Some(float_order::normalize_floats(&values))
            }
            (index, FileColumn::Missing) => {
                let data_type = self.source.schema().field(index).data_type();
                Some(new_null_array(data_type, self.num_containers()))
            }
            (_, FileColumn::OwnColumn { keeps_order: false, .. }) => None,
            (index, FileColumn::OwnColumn { schema, .. }) => {
                let own = schema.field_with_name(&column.name).ok()?.data_type();
                let found = match (has_floats(own), bound) {
                    // Writers omit NaN, the largest float, from their bounds without saying so.
                    (true, StatisticsBound::Max) => new_null_array(own, self.num_containers()),
                    (true, StatisticsBound::Min) => {
                        null_out_nans(&of(&self.statistics_converter(column, schema)?)?)
                    }
                    (false, _) => of(&self.statistics_converter(column, schema)?)?,
                };
                self.source.cast_statistics(index, &found)
            }
        }
    }
}

impl PruningStatistics for RowGroupStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound_values(column, StatisticsBound::Min, |own| {
            own.row_group_mins(self.metadata.row_groups()).ok()
        })
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound_values(column, StatisticsBound::Max, |own| {
            own.row_group_maxes(self.metadata.row_groups()).ok()
        })
    }

    fn num_containers(&self) -> usize {
        self.metadata.num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        match self.file_column(column)? {
            (_, FileColumn::PartitionKey(key)) => {
                let value = self.source.partition_values(self.file, key, 1).ok()?;
                if value.is_null(0) {
                    return self.row_counts();
                }
                Some(Arc::new(UInt64Array::from(vec![0; self.num_containers()])))
            }
            (_, FileColumn::Missing) => self.row_counts(),
            (_, FileColumn::OwnColumn { schema, .. }) => {
                let own = self.statistics_converter(column, schema)?;
                let counts = own.row_group_null_counts(self.metadata.row_groups());
                counts.ok().map(|counts| Arc::new(counts) as ArrayRef)
            }
        }
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

/// A rowfile's blocks as DataFusion pruning containers, judged like row groups.
struct RowfileBlockStatistics<'a> {
    source: &'a Source,
    file: usize,
    statistics: RowfileFooterStatistics,
    nested: &'a NestedFields,
}

/// The values of a column or field in the blocks of a rowfile.
enum BlockColumnBounds {
    /// Every row has this value.
    Constant(ArrayRef),
    /// Every row is null.
    AllNull(DataType),
    /// Each block's values lie between these bounds, which have the type of the source.
    Range { min: ArrayRef, max: ArrayRef, nulls: UInt64Array },
}

impl RowfileBlockStatistics<'_> {
    fn column_bounds(&self, column: &Column) -> Option<BlockColumnBounds> {
        let nested = self.nested.get(&column.name);
        let path: Vec<&str> = match nested {
            Some(nested) => nested.path.iter().map(String::as_str).collect(),
            None => vec![column.name.as_str()],
        };
        let index = self.source.schema().index_of(path.first()?).ok()?;
        let own = self.source.schema().field(index).data_type();
        let data_type = nested.map_or(own, |nested| &nested.data_type);
        match self.source.file_column(self.file, index)? {
            FileColumn::PartitionKey(key) => {
                let value =
                    self.source.partition_values(self.file, key, self.num_containers()).ok()?;
                Some(BlockColumnBounds::Constant(float_order::normalize_floats(&value)))
            }
            FileColumn::Missing => Some(BlockColumnBounds::AllNull(data_type.clone())),
            FileColumn::OwnColumn { .. } => {
                let found = self.statistics.column_statistics(&path)?;
                Some(BlockColumnBounds::Range {
                    min: Source::cast_nested_statistics(&found.min, data_type)?,
                    max: Source::cast_nested_statistics(&found.max, data_type)?,
                    nulls: found.nulls,
                })
            }
        }
    }
}

impl PruningStatistics for RowfileBlockStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(match self.column_bounds(column)? {
            BlockColumnBounds::Constant(value) => value,
            BlockColumnBounds::AllNull(data_type) => {
                new_null_array(&data_type, self.num_containers())
            }
            BlockColumnBounds::Range { min, .. } => min,
        })
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(match self.column_bounds(column)? {
            BlockColumnBounds::Constant(value) => value,
            BlockColumnBounds::AllNull(data_type) => {
                new_null_array(&data_type, self.num_containers())
            }
            BlockColumnBounds::Range { max, .. } => max,
        })
    }

    fn num_containers(&self) -> usize {
        self.statistics.block_count()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        match self.column_bounds(column)? {
            BlockColumnBounds::AllNull(_) => self.row_counts(),
            BlockColumnBounds::Constant(value) if value.null_count() > 0 => self.row_counts(),
            BlockColumnBounds::Constant(_) => {
                Some(Arc::new(UInt64Array::from(vec![0; self.num_containers()])))
            }
            BlockColumnBounds::Range { nulls, .. } => Some(Arc::new(nulls)),
        }
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.statistics.block_row_counts().collect::<UInt64Array>()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
