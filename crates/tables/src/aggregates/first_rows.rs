//! The first rows of each group: `row_number() OVER (PARTITION BY k ORDER BY v) <= 3`.
//!
//! An optimizer rule turns a window below a condition that keeps the first rows of each partition into an
//! aggregation. Only the kept rows are then sorted, and they merge, spill and run on all cores as the states
//! of any other aggregate do:
//!
//! ```text
//!   Filter: row_number() <= 3                 Filter: row_number() <= 3
//!     Window: row_number() PARTITION BY k  ─►   Projection: k, v, s, number AS row_number()
//!             ORDER BY v                          Unnest: rows
//!       k, v, s                                     Aggregate: by k, rows = the 3 first of {v, s} by v
//! ```
//!
//! Rows that are equal in the ORDER BY columns are ordered by the kept columns, first to last, so the answer
//! does not depend on the order of the input.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, NullHandling, Result as PlanResult, ScalarValue, UnnestOptions, plan_err,
};
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::logical_expr::expr::{AggregateFunction, Sort, WindowFunction};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{
    AggregateOrderSensitivity, format_state_name, split_conjunction,
};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Between, BinaryExpr, Expr, ExprSchemable, Filter,
    GroupsAccumulator, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Signature,
    Volatility, Window, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use tidemill_base::error::{Error, Result};
use tidemill_planning::datafusion_names::windows;
use tidemill_sql::unnest_keys::hide_keys;
use tidemill_sql::{float_order, opaque_casts};

use crate::aggregates::accumulators::{StateAccumulator, StateGroupsAccumulator};
use crate::state::compute_key_prefixes;
use crate::{MergeableFunction, TableAggregate, encode_row_position};

/// Maximum number of rows of a group that are kept in memory. Above it, the kept rows may be nearly all rows,
/// and sorting takes less time and memory.
const FIRST_ROWS_MAX: usize = 1000;

/// Name of the column of a group's rows in plans.
const FIRST_ROWS_COLUMN: &str = "first rows";

/// Name of the answer's field with the row number.
const ROW_NUMBER_FIELD: &str = windows::ROW_NUMBER;

/// The definition of a group's first rows: their maximum count, columns, order and answer.
pub struct FirstRowsSpec {
    /// Maximum number of rows.
    pub(crate) rows_max: usize,
    /// The columns of the rows: the ORDER BY columns, then the others.
    pub(crate) columns: Fields,
    /// The sort options of the first columns.
    sort_options: Vec<SortOptions>,
    /// The answer computed from the rows.
    pub(crate) answer: FirstRowsAnswer,
    pub(crate) row_converter: RowConverter,
}

/// The answer computed from a group's first rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FirstRowsAnswer {
    /// The rows, each with its row number.
    NumberedRows,
    /// An answer from the last column. The last of the ORDER BY columns is the row's position in the input,
    /// which the table provides ([`TableSpec::needs_positions`](crate::TableSpec::needs_positions)).
    ColumnValue {
        /// True if rows without a value are skipped.
        skips_nulls: bool,
        /// The answer computed from the column.
        column_answer: ColumnAnswer,
    },
}

/// The answer computed from a column of the first rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ColumnAnswer {
    /// The value of the last row if there are as many rows as requested; for one row, the first value.
    LastValue,
    /// The values as a list; NULL without rows.
    List,
    /// The values joined with this separator; NULL without rows.
    JoinedText(String),
}

impl FirstRowsSpec {
    pub(crate) fn new(
        most: usize,
        columns: Fields,
        by: Vec<SortOptions>,
        answer: FirstRowsAnswer,
    ) -> PlanResult<Self> {
        let options = by.iter().copied().chain(std::iter::repeat(UNORDERED_COLUMN_OPTIONS));
        let fields = columns.iter().zip(options);
        let fields = fields.map(|(column, options)| {
            SortField::new_with_options(column.data_type().clone(), options)
        });
        let converter = RowConverter::new(fields.collect())?;
        Ok(FirstRowsSpec {
            rows_max: most,
            columns,
            sort_options: by,
            answer,
            row_converter: converter,
        })
    }

    /// Returns the index of the column with the row's position in the input, if there is one.
    pub(crate) fn position_column(&self) -> Option<usize> {
        match self.answer {
            FirstRowsAnswer::NumberedRows => None,
            FirstRowsAnswer::ColumnValue { .. } => self.sort_options.len().checked_sub(1),
        }
    }

    /// Returns the columns of the rows: those of the argument and, if needed, the position in the input.
    /// Floats of the ORDER BY columns are normalized for sorting.
    ///
    /// # Errors
    /// Returns an error if positions are needed and missing.
    pub(crate) fn add_positions(
        &self,
        argument: &[ArrayRef],
        positions: Option<&ArrayRef>,
    ) -> Result<Vec<ArrayRef>> {
        let Some(place) = self.position_column() else { return Ok(argument.to_vec()) };
        let Some(positions) = positions else {
            return Err(Error::Internal("rows that are kept have no positions".into()));
        };
        let (by, rest) = argument.split_at(place.min(argument.len()));
        let by = by.iter().map(float_order::normalize_floats);
        Ok(by.chain([Arc::clone(positions)]).chain(rest.iter().cloned()).collect())
    }

    /// Creates the positions of a partial table's rows, whose groups `offsets` delimits: rows of a later file
    /// have larger positions.
    pub(crate) fn create_file_positions(
        &self,
        file: usize,
        offsets: &OffsetBuffer<i64>,
    ) -> ArrayRef {
        let is_last = self.sort_options.last().is_some_and(|by| by.descending);
        let places = offsets.windows(2).flat_map(|ends| {
            let count = (ends[1] - ends[0]).cast_unsigned();
            (0..count).map(move |row| {
                encode_row_position(file, if is_last { count - 1 - row } else { row })
            })
        });
        Arc::new(UInt64Array::from_iter_values(places))
    }

    /// Returns the function's name in SQL.
    pub(crate) fn sql_name(&self) -> &'static str {
        match &self.answer {
            FirstRowsAnswer::NumberedRows => ROW_NUMBER_FIELD,
            FirstRowsAnswer::ColumnValue { column_answer: ColumnAnswer::LastValue, .. }
                if self.rows_max > 1 =>
            {
                "nth_value"
            }
            FirstRowsAnswer::ColumnValue { column_answer: ColumnAnswer::LastValue, .. } => {
                "first_value"
            }
            FirstRowsAnswer::ColumnValue { column_answer: ColumnAnswer::List, .. } => "array_agg",
            FirstRowsAnswer::ColumnValue { column_answer: ColumnAnswer::JoinedText(_), .. } => {
                "string_agg"
            }
        }
    }

    /// Returns 64 bits of each value of the first column, which decide most comparisons of rows.
    pub(crate) fn compute_key_prefixes(&self, first: &ArrayRef) -> Vec<u64> {
        compute_key_prefixes(
            first,
            self.sort_options.first().copied().unwrap_or(UNORDERED_COLUMN_OPTIONS),
        )
    }

    /// Returns the fields of the answer's rows.
    pub(crate) fn answer_fields(&self) -> Fields {
        let number = Arc::new(Field::new(ROW_NUMBER_FIELD, DataType::UInt64, false));
        self.columns.iter().cloned().chain([number]).collect()
    }

    fn list_type(fields: Fields) -> DataType {
        DataType::LargeList(Arc::new(Field::new_list_field(DataType::Struct(fields), true)))
    }
}

/// The sort options of columns that are not in the ORDER BY.
const UNORDERED_COLUMN_OPTIONS: SortOptions = SortOptions { descending: false, nulls_first: false };

impl fmt::Display for FirstRowsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.sql_name())?;
        match self.rows_max {
            usize::MAX => write!(f, "all")?,
            most => write!(f, "at most {most}")?,
        }
        for (index, by) in self.sort_options.iter().enumerate() {
            let before = if index == 0 { "; by" } else { "," };
            let direction = if by.descending { "DESC" } else { "ASC" };
            write!(f, "{before} {} {direction}", self.columns[index].name())?;
            if self.position_column() != Some(index) {
                write!(f, " NULLS {}", if by.nulls_first { "FIRST" } else { "LAST" })?;
            }
        }
        if let FirstRowsAnswer::ColumnValue { skips_nulls: true, .. } = &self.answer {
            f.write_str("; without nulls")?;
        }
        if let FirstRowsAnswer::ColumnValue {
            column_answer: ColumnAnswer::JoinedText(separator),
            ..
        } = &self.answer
        {
            // The text is a line of a partial table, so no character may break the line.
            write!(f, "; with {separator:?} between")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for FirstRowsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} of {:?}", self.columns)
    }
}

impl PartialEq for FirstRowsSpec {
    fn eq(&self, other: &Self) -> bool {
        (self.rows_max, &self.columns, &self.sort_options, &self.answer)
            == (other.rows_max, &other.columns, &other.sort_options, &other.answer)
    }
}

impl Eq for FirstRowsSpec {}

impl Hash for FirstRowsSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.rows_max, &self.columns, &self.sort_options, &self.answer).hash(state);
    }
}

// ── the rule ─────────────────────────────────────────────────────────────────────────────

/// The optimizer rule that replaces windows below a row-number condition with aggregations.
#[derive(Debug)]
pub(crate) struct FirstRowsRule;

impl OptimizerRule for FirstRowsRule {
    fn name(&self) -> &str {
        "keep_first_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
        match rewrite_filter(filter)? {
            Some(made) => Ok(Transformed::yes(made)),
            None => Ok(Transformed::no(plan)),
        }
    }
}

fn rewrite_filter(filter: &Filter) -> PlanResult<Option<LogicalPlan>> {
    let mut steps: Vec<&Projection> = Vec::new();
    let mut below = filter.input.as_ref();
    while let LogicalPlan::Projection(step) = below {
        steps.push(step);
        below = &step.input;
    }
    let LogicalPlan::Window(window) = below else { return Ok(None) };
    let [call] = window.window_expr.as_slice() else { return Ok(None) };
    let Some(call) = find_row_number_call(call) else { return Ok(None) };
    let Some(number) = window.schema.fields().last() else { return Ok(None) };
    let number = Column::new_unqualified(number.name());
    let bounds = split_conjunction(&filter.predicate).into_iter();
    let most = bounds.filter_map(|bound| find_row_number_bound(bound, &steps, &number)).min();
    let Some(most) = most.filter(|most| (1..=FIRST_ROWS_MAX).contains(most)) else {
        return Ok(None);
    };
    // Without a projection in between, the filter's parent may use all columns.
    let needed: Option<Vec<&Column>> =
        steps.last().map(|step| step.expr.iter().flat_map(Expr::column_refs).collect());
    let is_needed = |column: &Column| needed.as_ref().is_none_or(|all| all.contains(&column));
    let Some(mut made) = build_first_rows_aggregate(window, call, &number, most, is_needed)? else {
        return Ok(None);
    };
    for step in steps.into_iter().rev() {
        let step = LogicalPlan::Projection(step.clone());
        made = step.with_new_exprs(step.expressions(), vec![made])?;
    }
    Ok(Some(LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(made))?)))
}

/// Returns the window call of an expression, if it numbers all rows.
fn find_row_number_call(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::Alias(alias) => find_row_number_call(&alias.expr),
        Expr::WindowFunction(call)
            if call.fun.name() == windows::ROW_NUMBER
                && call.params.filter.is_none()
                && call.params.args.is_empty() =>
        {
            Some(call)
        }
        _ => None,
    }
}

/// Returns the maximum row number that a condition lets pass, if it is a condition on the row number.
fn find_row_number_bound(
    condition: &Expr,
    steps: &[&Projection],
    number: &Column,
) -> Option<usize> {
    let whole = |value: &Expr| match value {
        Expr::Literal(value, _) if value.data_type().is_integer() => {
            match value.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(Some(value))) => usize::try_from(value).ok(),
                _ => None,
            }
        }
        _ => None,
    };
    let is_number = |value: &Expr| is_column_below(value, steps, number);
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (op, most) = match (is_number(left), is_number(right)) {
                (true, false) => (*op, whole(right)?),
                (false, true) => (op.swap()?, whole(left)?),
                _ => return None,
            };
            match op {
                Operator::Eq | Operator::LtEq => Some(most),
                Operator::Lt => most.checked_sub(1),
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated: false, high, .. }) if is_number(expr) => whole(high),
        _ => None,
    }
}

/// Returns true if an expression above the projections is the given column below them, under any name.
fn is_column_below(expr: &Expr, steps: &[&Projection], column: &Column) -> bool {
    let expr = strip_row_number_casts(expr);
    let Expr::Column(found) = expr else { return false };
    match steps.split_first() {
        None => found == column,
        Some((step, below)) => {
            let place = step.schema.maybe_index_of_column(found);
            place.is_some_and(|place| is_column_below(&step.expr[place], below, column))
        }
    }
}

/// Returns the expression below aliases and casts that do not change a row number.
fn strip_row_number_casts(expr: &Expr) -> &Expr {
    let keeps = |to: &DataType| matches!(to, DataType::Int64 | DataType::UInt64);
    match expr {
        Expr::Alias(alias) => strip_row_number_casts(&alias.expr),
        Expr::Cast(cast) if keeps(cast.field.data_type()) => strip_row_number_casts(&cast.expr),
        other => match opaque_casts::opaque_cast_parts(other) {
            Some((inner, to)) if keeps(to) => strip_row_number_casts(inner),
            _ => other,
        },
    }
}

/// Builds the plan that aggregates the first rows and unnests the needed window columns; `None` if the order
/// is not supported.
fn build_first_rows_aggregate(
    window: &Window,
    call: &WindowFunction,
    number: &Column,
    most: usize,
    is_needed: impl Fn(&Column) -> bool,
) -> PlanResult<Option<LogicalPlan>> {
    let below = window.input.schema();
    let of = |expr: &Expr| expr.get_type(below);
    let mut columns: Vec<Expr> = Vec::new();
    let mut by: Vec<SortOptions> = Vec::new();
    for Sort { expr, asc, nulls_first } in &call.params.order_by {
        let of = of(expr)?;
        if of.is_nested() || matches!(of, DataType::Interval(_) | DataType::Null) {
            return Ok(None);
        }
        if !columns.contains(expr) {
            columns.push(expr.clone());
            by.push(SortOptions { descending: !asc, nulls_first: *nulls_first });
        }
    }
    let mut keys: Vec<Expr> = Vec::new();
    for key in &call.params.partition_by {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    // Floats that are equal as keys may differ, so they are kept in each row and not taken from the key.
    let is_own = |expr: &Expr| {
        Ok::<_, datafusion::error::DataFusionError>(!has_distinguishable_equals(&of(expr)?))
    };
    let mut shown: Vec<(Expr, ColumnPlace)> = Vec::new();
    for (qualifier, field) in below.iter() {
        let column = Column::from((qualifier, field));
        let expr = Expr::Column(column.clone());
        if !is_needed(&column) {
            continue;
        }
        let place = match columns.iter().position(|known| known == &expr) {
            Some(place) => ColumnPlace::InRow(place),
            None if keys.contains(&expr) && is_own(&expr)? => ColumnPlace::Key,
            None => {
                columns.push(expr.clone());
                ColumnPlace::InRow(columns.len() - 1)
            }
        };
        shown.push((expr, place));
    }
    if columns.is_empty() {
        // Without columns, no row differs from another.
        columns.push(lit(0_i8));
    }
    let types = columns.iter().map(of).collect::<PlanResult<Vec<_>>>()?;
    let mut names: Vec<String> = vec![ROW_NUMBER_FIELD.to_owned()];
    for column in &columns {
        let own = match column {
            Expr::Column(column) => column.name.clone(),
            computed => computed.to_string(),
        };
        let others = (2..).map(|at: u32| format!("{own} {at}"));
        let mut all = std::iter::once(own.clone()).chain(others);
        names.extend(all.find(|name| !names.contains(name)));
    }
    names.remove(0);
    let fields = names.iter().zip(types).map(|(name, of)| Field::new(name, of, true));
    let fields: Fields = fields.collect();
    let sorted = fields.iter().map(|field| SortField::new(field.data_type().clone()));
    if !RowConverter::supports_fields(&sorted.collect::<Vec<_>>()) {
        return Ok(None);
    }
    let function = AggregateUDF::from(FirstRowsUdaf {
        spec: Arc::new(FirstRowsSpec::new(most, fields, by, FirstRowsAnswer::NumberedRows)?),
        signature: Signature::any(1, Volatility::Immutable),
    });
    let named = names.iter().zip(columns).flat_map(|(name, column)| [lit(name.as_str()), column]);
    let rows = vec![named_struct(named.collect())];
    let call = AggregateFunction::new_udf(Arc::new(function), rows, false, None, vec![], None);
    let keys = keys.into_iter().enumerate().map(|(at, key)| match key {
        Expr::Column(_) => key,
        computed => computed.alias(format!("part {at}")),
    });
    let options = UnnestOptions::new().with_null_handling(NullHandling::Drop);
    let rows = || Expr::Column(Column::new_unqualified(FIRST_ROWS_COLUMN));
    let mut outputs: Vec<Expr> = Vec::new();
    for (expr, place) in shown {
        let Expr::Column(column) = &expr else { continue };
        outputs.push(match place {
            ColumnPlace::Key => expr,
            ColumnPlace::InRow(at) => get_field(rows(), names[at].as_str())
                .alias_qualified(column.relation.clone(), column.name.clone()),
        });
    }
    if is_needed(number) {
        outputs.push(get_field(rows(), ROW_NUMBER_FIELD).alias(&number.name));
    }
    let groups = LogicalPlanBuilder::from(window.input.as_ref().clone())
        .aggregate(keys, [Expr::AggregateFunction(call).alias(FIRST_ROWS_COLUMN)])?
        .build()?;
    let lists = [Column::new_unqualified(FIRST_ROWS_COLUMN)];
    let made = LogicalPlanBuilder::from(hide_keys(groups, &lists)?)
        .unnest_column_with_options(Column::new_unqualified(FIRST_ROWS_COLUMN), options)?
        .project(outputs)?
        .build()?;
    Ok(Some(made))
}

/// The place of a column in the aggregation's answer.
enum ColumnPlace {
    Key,
    InRow(usize),
}

/// Returns true if different values of a type can be equal as keys: zeros and NaNs.
fn has_distinguishable_equals(of: &DataType) -> bool {
    of.is_nested() || of.is_floating() || matches!(of, DataType::Dictionary(_, _))
}

// ── DataFusion's aggregate function ──────────────────────────────────────────────────────

/// The aggregate function of such an aggregation, which SQL cannot call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FirstRowsUdaf {
    spec: Arc<FirstRowsSpec>,
    signature: Signature,
}

/// Returns the first rows that a call of this function keeps.
pub(crate) fn find_first_rows_spec(call: &AggregateFunction) -> Option<&Arc<FirstRowsSpec>> {
    Some(&call.func.inner().downcast_ref::<FirstRowsUdaf>()?.spec)
}

impl FirstRowsUdaf {
    fn table_aggregate(&self, args: &AccumulatorArgs<'_>) -> PlanResult<TableAggregate> {
        let Some(argument) = args.expr_fields.first() else {
            return plan_err!("the first rows of nothing");
        };
        Ok(TableAggregate {
            function: MergeableFunction::FirstRows(Arc::clone(&self.spec)),
            argument_column: Some(0),
            argument_type: argument.data_type().clone(),
            second_argument: None,
            filter_column: None,
            output_field: Arc::clone(&args.return_field),
            udf: Arc::new(AggregateUDF::from(FirstRowsUdaf {
                spec: Arc::clone(&self.spec),
                signature: self.signature.clone(),
            })),
        })
    }
}

impl AggregateUDFImpl for FirstRowsUdaf {
    fn name(&self) -> &str {
        "first_rows"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(FirstRowsSpec::list_type(self.spec.answer_fields()))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let kept = FirstRowsSpec::list_type(self.spec.columns.clone());
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), kept, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(StateAccumulator::new(self.table_aggregate(&args)?, None)?))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(StateGroupsAccumulator::new(self.table_aggregate(&args)?)?))
    }
}
