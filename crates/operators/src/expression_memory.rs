//! Keeps operators whose expressions produce text, lists or structs within the memory budget.
//!
//! - Below such an operator, [`ExpressionMemoryMode::SliceInput`] outputs batches of few enough rows that the
//!   expressions' output for them stays small. For most expressions the bytes of a batch bound the output.
//!   For functions whose arguments determine the size of the output
//!   ([`amplifying_functions`](crate::amplifying_functions)), only these arguments are evaluated first, the
//!   innermost call first.
//! - Above an operator that outputs the results, [`ExpressionMemoryMode::ReserveOutput`] reserves the actual
//!   size of a batch in the memory pool, until the next batch is requested.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{CaseExpr, CastExpr, Column, Literal, TryCastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use crate::amplifying_functions::{
    AmplifyingFunction, TEXT_ITEM_OVERHEAD_BYTES, value_byte_lengths,
};
use crate::memory_pool::id_set_memory_error;
use tidemill_planning::datafusion_names::scalars;
use tidemill_planning::error_carrier::into_datafusion_error;

/// The name that [`ExpressionMemoryMode::ReserveOutput`] registers with the memory pool.
pub(crate) const EXPRESSION_OUTPUT_CONSUMER: &str = "Rows";

/// Minimum size in bytes of a constant that counts as an amplifier.
const LARGE_CONSTANT_BYTES_MIN: usize = 4096;

/// Batches below this size in bytes are not sliced by the growth factor. The factor is an upper bound far above the
/// usual output of nested calls.
const SLICED_BATCH_BYTES_MIN: f64 = 65_536.0;

/// The output of an operator's expressions at a time may take the memory budget divided by this number.
pub const EXPRESSION_MEMORY_DIVISOR: u64 = 16;

/// Bytes that a row counts beside its own: a number cast to text, for example.
const ROW_OVERHEAD_BYTES: f64 = 64.0;

/// A physical rule that wraps operators whose expressions produce values of variable size.
#[derive(Debug)]
pub struct ExpressionMemoryRule {
    /// Maximum size in bytes of the output of an operator's expressions at a time.
    pub expression_bytes_max: u64,
}

impl PhysicalOptimizerRule for ExpressionMemoryRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            // Operators whose expressions refer to the columns of their one input.
            let hands_on = plan.downcast_ref::<ProjectionExec>();
            let is_known = hands_on.is_some()
                || plan.downcast_ref::<FilterExec>().is_some()
                || plan.downcast_ref::<SortExec>().is_some()
                || plan
                    .downcast_ref::<AggregateExec>()
                    .is_some_and(|plan| plan.mode().input_mode() == AggregateInputMode::Raw);
            let children = plan.children();
            let (true, [input]) = (is_known, children.as_slice()) else {
                return Ok(Transformed::no(plan));
            };
            let schema = input.schema();
            let makes = |expr: &Arc<dyn PhysicalExpr>| {
                let is_there = expr.is::<Column>() || expr.is::<Literal>();
                let made = (!is_there).then(|| expr.data_type(&schema).ok()).flatten();
                made.is_some_and(|made| fixed_value_bytes(&made).is_none())
            };
            let is_charged =
                hands_on.is_some_and(|step| step.expr().iter().any(|column| makes(&column.expr)));
            let mut found = ExpressionGrowth::default();
            plan.apply_expressions(&mut |expr| {
                found.add_expression(expr, &schema);
                Ok(TreeNodeRecursion::Continue)
            })?;
            if let Some(groups) = plan.downcast_ref::<AggregateExec>() {
                for call in groups.aggr_expr() {
                    if let Some(amplifier) =
                        AmplifyingFunction::from_aggregate_name(call.fun().name())
                    {
                        found.amplifying_calls.push(AmplifyingCall {
                            amplifier,
                            args: call.expressions(),
                            growth_factor: None,
                        });
                        found.rejects_oversized_id_sets |=
                            groups.filter_expr().iter().all(Option::is_none);
                    }
                }
            }
            let step = match found.is_empty() {
                true => Arc::clone(&plan),
                false => {
                    let work = ExpressionMemoryMode::SliceInput {
                        growth: Arc::new(found),
                        output_bytes_max: self.expression_bytes_max,
                    };
                    let cut = ExpressionMemoryExec { input: Arc::clone(input), mode: work };
                    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
                    Arc::clone(&plan).replace_children(vec![Arc::new(cut)], options)?
                }
            };
            Ok(Transformed::yes(match is_charged {
                true => Arc::new(ExpressionMemoryExec {
                    input: step,
                    mode: ExpressionMemoryMode::ReserveOutput,
                }),
                false => step,
            }))
        })
        .data()
    }

    fn name(&self) -> &str {
        "keep_to_budget"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the bytes of each value of a type, if all values have the same size.
fn fixed_value_bytes(of: &DataType) -> Option<f64> {
    match of {
        DataType::Null | DataType::Boolean => Some(1.0),
        DataType::FixedSizeBinary(bytes) => Some(f64::from(*bytes)),
        other => other.primitive_width().map(|bytes| bytes as f64),
    }
}

/// A call whose output size follows from its arguments.
#[derive(Debug)]
struct AmplifyingCall {
    amplifier: AmplifyingFunction,
    args: Vec<Arc<dyn PhysicalExpr>>,
    /// The result of [`growth_factor`] for the call.
    growth_factor: Option<f64>,
}

/// The output size of an operator's expressions.
#[derive(Debug, Default)]
struct ExpressionGrowth {
    /// Calls with computable output size, the innermost first.
    amplifying_calls: Vec<AmplifyingCall>,
    /// Upper bound of the bytes that all other expressions output for each byte of their row.
    growth_factor: f64,
    /// True if a single id set may be too large for the operator, which reads all rows.
    rejects_oversized_id_sets: bool,
}

impl ExpressionGrowth {
    fn is_empty(&self) -> bool {
        self.amplifying_calls.is_empty() && self.growth_factor == 0.0
    }

    /// Rejects a row whose id set alone exceeds the memory for expressions.
    fn check_id_set_size(&self, portion: &RecordBatch, bytes_max: u64) -> PlanResult<()> {
        if !self.rejects_oversized_id_sets || portion.num_rows() != 1 {
            return Ok(());
        }
        let of_sets = self
            .amplifying_calls
            .iter()
            .filter(|call| call.amplifier == AmplifyingFunction::IdSetItems);
        let most =
            of_sets.filter_map(|call| call_output_sizes(call, portion)?.first().copied()).max();
        match most.filter(|most| *most > bytes_max) {
            Some(most) => Err(into_datafusion_error(id_set_memory_error(most, bytes_max))),
            None => Ok(()),
        }
    }

    fn add_expression(&mut self, expr: &Arc<dyn PhysicalExpr>, schema: &Schema) {
        for child in expr.children() {
            self.add_expression(child, schema);
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            let bytes = literal.value().size();
            if bytes >= LARGE_CONSTANT_BYTES_MIN {
                let amplifier = AmplifyingFunction::ConstantColumn(bytes as u64);
                self.amplifying_calls.push(AmplifyingCall {
                    amplifier,
                    args: Vec::new(),
                    growth_factor: None,
                });
            }
        } else if let Some((amplifier, args)) = AmplifyingFunction::from_physical_expr(expr) {
            self.amplifying_calls.push(AmplifyingCall {
                amplifier,
                args,
                growth_factor: growth_factor(expr, schema),
            });
        } else if !expr.is::<Column>() {
            let made = expr.data_type(schema).ok();
            if made.is_none_or(|made| fixed_value_bytes(&made).is_none()) {
                self.growth_factor += growth_factor(expr, schema).unwrap_or(0.0);
            }
        }
    }
}

/// Functions that return parts of their arguments, or combine them.
const NON_GROWING_FUNCTIONS: [&str; 36] = [
    scalars::ARRAY_APPEND,
    scalars::ARRAY_CONCAT,
    scalars::ARRAY_DISTINCT,
    scalars::ARRAY_ELEMENT,
    scalars::ARRAY_EXCEPT,
    scalars::ARRAY_INTERSECT,
    scalars::ARRAY_POP_BACK,
    scalars::ARRAY_POP_FRONT,
    scalars::ARRAY_PREPEND,
    scalars::ARRAY_REMOVE,
    scalars::ARRAY_REMOVE_ALL,
    scalars::ARRAY_REVERSE,
    scalars::ARRAY_SLICE,
    scalars::ARRAY_SORT,
    scalars::ARRAY_UNION,
    scalars::BTRIM,
    scalars::COALESCE,
    scalars::GET_FIELD,
    scalars::GREATEST,
    scalars::LEAST,
    scalars::LEFT,
    scalars::LTRIM,
    scalars::MAKE_ARRAY,
    scalars::MAP_EXTRACT,
    scalars::MAP_KEYS,
    scalars::MAP_VALUES,
    scalars::NAMED_STRUCT,
    scalars::NULLIF,
    scalars::NVL,
    scalars::NVL2,
    scalars::REVERSE,
    scalars::RIGHT,
    scalars::RTRIM,
    scalars::SPLIT_PART,
    scalars::STRUCT,
    scalars::SUBSTR,
];

/// Returns an upper bound of the bytes that an expression outputs for each byte of its row, with
/// [`ROW_OVERHEAD_BYTES`] counted as bytes of the row; `None` where an argument sets the size of a function's output. The
/// bound shows without any evaluation that the most common expressions output little.
fn growth_factor(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<f64> {
    let bytes = |expr: &Arc<dyn PhysicalExpr>| {
        let literal = expr.downcast_ref::<Literal>()?.value().try_as_str()?;
        Some(literal.map_or(0.0, |text| text.len() as f64))
    };
    let of_all = |args: &[Arc<dyn PhysicalExpr>]| -> Option<f64> {
        args.iter().try_fold(0.0, |sum, arg| Some(sum + growth_factor(arg, schema)?))
    };
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Some(literal.value().size() as f64 / ROW_OVERHEAD_BYTES);
    }
    let made = expr.data_type(schema).ok();
    if let Some(bytes) = made.as_ref().and_then(fixed_value_bytes) {
        return Some(bytes / ROW_OVERHEAD_BYTES);
    }
    match AmplifyingFunction::from_physical_expr(expr) {
        Some((AmplifyingFunction::Concat, args)) => of_all(&args),
        Some((AmplifyingFunction::ConcatWs, args)) if !args.is_empty() => {
            let between = bytes(args.first()?)? * args.len() as f64 / ROW_OVERHEAD_BYTES;
            Some(between + of_all(&args[1..])?)
        }
        Some((AmplifyingFunction::Replace | AmplifyingFunction::RegexpReplace, args)) => {
            let (text, to) = (growth_factor(args.first()?, schema)?, bytes(args.get(2)?)?);
            Some(text * (2.0 + 2.0 * to) + to / ROW_OVERHEAD_BYTES)
        }
        // An item takes at least a bit, and each byte of a text may be an item.
        Some((AmplifyingFunction::ArrayToString, args)) if !args.is_empty() => {
            let each = args[1..].iter().try_fold(5.0, |sum, arg| Some(sum + bytes(arg)?))?;
            Some(growth_factor(args.first()?, schema)? * 8.0 * each)
        }
        Some((AmplifyingFunction::StringToArray, args)) => Some(
            growth_factor(args.first()?, schema)? * (1.0 + TEXT_ITEM_OVERHEAD_BYTES as f64) + 1.0,
        ),
        Some(_) => None,
        None => match expr.children().as_slice() {
            [] => Some(1.0),
            children => {
                let children: Vec<_> = children.iter().map(|child| Arc::clone(child)).collect();
                let given = of_all(&children)?;
                // Case conversion and hexadecimal digits turn one byte into two or three.
                Some(if never_grows_input(expr, schema) { given } else { 4.0 * given + 1.0 })
            }
        },
    }
}

/// Returns whether an expression outputs no more bytes than its arguments have.
fn never_grows_input(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return NON_GROWING_FUNCTIONS.contains(&call.fun().name());
    }
    let cast = expr.downcast_ref::<CastExpr>().map(CastExpr::expr);
    let cast = cast.or_else(|| expr.downcast_ref::<TryCastExpr>().map(TryCastExpr::expr));
    match cast.map(|given| given.data_type(schema)) {
        Some(Ok(given)) => !given.is_nested(),
        Some(Err(_)) => false,
        None => expr.is::<CaseExpr>(),
    }
}

/// An operator that bounds or accounts for the expression output of a neighbouring DataFusion operator.
#[derive(Debug)]
struct ExpressionMemoryExec {
    input: Arc<dyn ExecutionPlan>,
    mode: ExpressionMemoryMode,
}

#[derive(Debug, Clone)]
enum ExpressionMemoryMode {
    /// Slices batches so that the expressions of the operator above output little for each slice.
    SliceInput { growth: Arc<ExpressionGrowth>, output_bytes_max: u64 },
    /// Reserves the memory of the batches that the operator below outputs.
    ReserveOutput,
}

impl DisplayAs for ExpressionMemoryExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.mode {
            ExpressionMemoryMode::SliceInput { output_bytes_max: bytes_max, .. } => {
                write!(f, "Portions: bytes_max={bytes_max}")
            }
            ExpressionMemoryMode::ReserveOutput => write!(f, "Charge"),
        }
    }
}

impl ExecutionPlan for ExpressionMemoryExec {
    fn name(&self) -> &str {
        match self.mode {
            ExpressionMemoryMode::SliceInput { .. } => "Portions",
            ExpressionMemoryMode::ReserveOutput => "Charge",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                Ok(Arc::new(ExpressionMemoryExec { input, mode: self.mode.clone() }))
            }
            _ => Err(into_datafusion_error(Error::Internal(
                "portions of other than one input".into(),
            ))),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let (found, bytes_max) = match &self.mode {
            ExpressionMemoryMode::SliceInput { growth: found, output_bytes_max: bytes_max } => {
                (Arc::clone(found), *bytes_max)
            }
            ExpressionMemoryMode::ReserveOutput => {
                let consumer =
                    MemoryConsumer::new(format!("{EXPRESSION_OUTPUT_CONSUMER}[{partition}]"));
                let charge = consumer.register(context.memory_pool());
                let charged = input.map(move |batch| {
                    let batch = batch?;
                    charge.free();
                    charge.try_grow(batch.columns().iter().map(visible_values_bytes).sum())?;
                    Ok(batch)
                });
                return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, charged)));
            }
        };
        let portions = input.flat_map(move |batch| {
            let found = Arc::clone(&found);
            // Waiting batches are slices; each is sliced further only when it is its turn.
            let mut waiting = Vec::new();
            let mut failed = None;
            match batch {
                Ok(batch) => waiting.push(batch),
                Err(error) => failed = Some(error),
            }
            futures::stream::iter(std::iter::from_fn(move || {
                if let Some(error) = failed.take() {
                    return Some(Err::<RecordBatch, DataFusionError>(error));
                }
                let portion = next_slice(&mut waiting, &found, bytes_max)?;
                Some(
                    found
                        .check_id_set_size(
                            &portion,
                            bytes_max.saturating_mul(EXPRESSION_MEMORY_DIVISOR),
                        )
                        .map(|()| portion),
                )
            }))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, portions)))
    }
}

/// Returns the next slice of the waiting batches, the last of which comes first. Slices until no expression outputs
/// more than `bytes_max` bytes for it, or until it has one row.
fn next_slice(
    waiting: &mut Vec<RecordBatch>,
    found: &ExpressionGrowth,
    bytes_max: u64,
) -> Option<RecordBatch> {
    let mut portion = waiting.pop()?;
    let mut own = batch_bytes_with_overhead(&portion);
    let may_have = (bytes_max as f64 / found.growth_factor).max(SLICED_BATCH_BYTES_MIN);
    if own > may_have {
        let sizes = row_sizes(&portion);
        split_off_rows(&mut portion, waiting, &sizes, may_have as u64);
        own = batch_bytes_with_overhead(&portion);
    }
    for call in &found.amplifying_calls {
        if call.growth_factor.is_some_and(|growth| growth * own <= bytes_max as f64) {
            continue;
        }
        if portion.num_rows() <= 1 {
            break;
        }
        let Some(sizes) = call_output_sizes(call, &portion) else { continue };
        split_off_rows(&mut portion, waiting, &sizes, bytes_max);
    }
    Some(portion)
}

/// Keeps the first rows whose `sizes` sum to at most `bytes_max`, at least one row, and returns the others to `waiting`.
fn split_off_rows(
    portion: &mut RecordBatch,
    waiting: &mut Vec<RecordBatch>,
    sizes: &[u64],
    bytes_max: u64,
) {
    let mut sum = 0u64;
    let within = |size: &&u64| {
        sum = sum.saturating_add(**size);
        sum <= bytes_max
    };
    let rows = sizes.iter().take_while(within).count().max(1);
    if rows < portion.num_rows() {
        waiting.push(portion.slice(rows, portion.num_rows() - rows));
        *portion = portion.slice(0, rows);
    }
}

/// Returns the bytes of a batch plus [`ROW_OVERHEAD_BYTES`] for each row.
fn batch_bytes_with_overhead(batch: &RecordBatch) -> f64 {
    let shown: usize = batch.columns().iter().map(visible_values_bytes).sum();
    shown as f64 + ROW_OVERHEAD_BYTES * batch.num_rows() as f64
}

/// Returns the approximate bytes of each row.
fn row_sizes(batch: &RecordBatch) -> Vec<u64> {
    let mut bytes = vec![ROW_OVERHEAD_BYTES as u64; batch.num_rows()];
    for column in batch.columns() {
        for (sum, length) in bytes.iter_mut().zip(value_byte_lengths(column)) {
            *sum += length;
        }
    }
    bytes
}

/// Returns the bytes that a call outputs for each row; `None` if they are unknown, for example because an argument
/// fails. The operator reports that error if it evaluates the argument.
fn call_output_sizes(call: &AmplifyingCall, batch: &RecordBatch) -> Option<Vec<u64>> {
    let rows = batch.num_rows();
    let arrays = call.args.iter().map(|arg| arg.evaluate(batch)?.to_array(rows));
    Some(call.amplifier.estimate_row_bytes(&arrays.collect::<PlanResult<Vec<_>>>().ok()?, rows))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Int64Type};
    use datafusion::common::DFSchema;

    use super::*;
    use crate::amplifying_functions::tests::{open_test_session, run_test_query};

    #[test]
    fn growth_factor_bounds_common_expressions() {
        let context = open_test_session(64 << 20);
        let schema = Schema::new(vec![
            Field::new("s", DataType::Utf8View, true),
            Field::new("n", DataType::Int64, true),
        ]);
        let named = DFSchema::try_from(schema.clone()).unwrap();
        for (sql, most) in [
            ("concat(s, s, 'x')", Some(16.0)),
            ("s || upper(s)", Some(32.0)),
            ("replace(s, 'a', 'bcd')", Some(64.0)),
            ("replace(s, 'a', s)", None),
            ("concat(s, repeat(s, n))", None),
            ("concat(s, lpad(s, 10))", None),
            ("string_to_array(s, ',')", Some(100.0)),
            ("array_to_string(make_array(s, s), ',')", Some(2000.0)),
            ("array_to_string(make_array(s, s), s)", None),
            ("substr(trim(CASE WHEN n > 1 THEN s ELSE coalesce(s, 'x') END), 2)", Some(5.0)),
            ("CAST(n AS TEXT)", Some(1.0)),
            ("length(upper(upper(upper(s))))", Some(1.0)),
        ] {
            let expr = context.parse_sql_expr(sql, &named).unwrap();
            let expr = context.create_physical_expr(expr, &named).unwrap();
            match (growth_factor(&expr, &schema), most) {
                (Some(found), Some(most)) => assert!(found <= most, "{sql}: {found}"),
                (found, most) => assert_eq!(found, most, "{sql}"),
            }
        }
    }

    #[test]
    fn amplified_output_batches_stay_small() {
        for (sql, rows) in [
            ("SELECT repeat(s, 10000) FROM t", 1000),
            ("SELECT repeat(repeat(s, 100), 100) FROM t", 1000),
            ("SELECT rpad(s, 100000, '-') FROM t", 1000),
            ("SELECT n, range(0, 20000) FROM t", 1000),
            ("SELECT unnest(range(0, n)) FROM t WHERE n < 100", 4950),
            ("SELECT array_repeat(s, 10000) FROM t WHERE n < 50", 50),
            ("SELECT array_to_string(range(0, n), repeat(s, 10)) FROM t", 1000),
            ("SELECT string_to_array(repeat(s, 500), '') FROM t", 1000),
        ] {
            let found = run_test_query(sql).unwrap();
            assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{sql}");
            for batch in found {
                let bytes: usize = batch.columns().iter().map(visible_values_bytes).sum();
                assert!(bytes <= 6 << 20, "{sql}: {bytes} bytes in a batch");
            }
        }
    }

    #[test]
    fn sliced_batches_keep_rows_and_order() {
        let found = run_test_query("SELECT n, length(repeat(s, n * 100)) AS l FROM t").unwrap();
        let mut expected = 0;
        for batch in &found {
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            let lengths = cast(batch.column(1), &DataType::Int64).unwrap();
            for row in 0..batch.num_rows() {
                assert_eq!(numbers.value(row), expected);
                assert_eq!(lengths.as_primitive::<Int64Type>().value(row), expected * 1000);
                expected += 1;
            }
        }
        assert_eq!(expected, 1000);
        assert!(found.len() > 50, "{} batches", found.len());
    }

    #[test]
    fn wide_rows_are_processed_few_at_a_time() {
        // One batch contains 1,000 texts of 10,000 bytes.
        let sql = "WITH wide AS (SELECT n, repeat(s, 1000) AS w FROM t ORDER BY n) \
                   SELECT upper(w) AS a, lower(w) AS b, reverse(w) AS c FROM wide";
        let found = run_test_query(sql).unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
        for batch in found {
            assert!(
                batch_bytes_with_overhead(&batch) <= f64::from(6 << 20),
                "{} bytes",
                batch_bytes_with_overhead(&batch)
            );
        }
    }

    #[test]
    fn expression_output_is_reserved_in_memory_pool() {
        // A value of 12 MB fits, but three of them exceed the memory of all operators.
        let sql = "WITH wide AS (SELECT repeat(s, 1200000) AS w FROM t LIMIT 1) \
                   SELECT upper(w) AS a, lower(w) AS b, reverse(w) AS c FROM wide";
        let error = run_test_query(sql).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("out of memory: what expressions make of a few rows "), "{text}");
        assert!(text.contains("\nhint: --memory "), "{text}");
    }
}
