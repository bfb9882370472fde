//! `SUMMARIZE` as one aggregate of all columns of a query.
//!
//! Eleven aggregates for each column would be as many expressions, and each of DataFusion's rules looks up
//! each name among all of them: planning 200 columns took six seconds, and twice as many columns four times
//! as long. All of them are therefore one call here, whose answer is a list with a struct for each column;
//! the plan above it has a constant size.
//!
//! The states are those of the individual aggregates: a [`TableSpec`] without keys. On the table path the
//! planner takes this spec over; elsewhere DataFusion calls an accumulator that is an [`AggregateTable`] of
//! this spec.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, new_empty_array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, filter_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::{Result as PlanResult, ScalarValue, exec_err, plan_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, TypeSignature,
    Volatility,
};
use parking_lot::Mutex;
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::{Error, Result};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_sketch::HllParams;
use tidemill_sql::IntoTidemillError;

use crate::aggregates::accumulators::encoded_state_type;
use crate::aggregates::aggregate_functions::TidemillAggregate;
use crate::aggregates::precision_recorder::PrecisionRecorder;
use crate::aggregates::statistics::MomentStatistic;
use crate::{AggregateTable, MergeableFunction, TableAggregate, TableSpec, has_mergeable_state};

/// The function's name. It is registered for a `SUMMARIZE` query after the summarized query has been planned,
/// so that no other query can call it.
const SUMMARY_FUNCTION_NAME: &str = "summary";

/// The answers for each column: their names and the columns that have them.
const SUMMARY_ANSWERS: [(&str, ColumnScope); 10] = [
    ("min", ColumnScope::Ordered),
    ("max", ColumnScope::Ordered),
    ("approx_unique", ColumnScope::Ordered),
    ("avg", ColumnScope::Numeric),
    ("std", ColumnScope::Numeric),
    ("q25", ColumnScope::Numeric),
    ("q50", ColumnScope::Numeric),
    ("q75", ColumnScope::Numeric),
    ("count", ColumnScope::All),
    (NON_NULL_COUNT_NAME, ColumnScope::All),
];

/// Name of the answer that counts a column's non-null values.
pub const NON_NULL_COUNT_NAME: &str = "known";

/// The columns that have an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnScope {
    /// Any column.
    All,
    /// A column whose values have an order.
    Ordered,
    /// A column of numbers.
    Numeric,
}

/// The columns of a summarized query, and the arguments of the call in which they arrive.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct QuerySummary {
    columns: Vec<SummarizedColumn>,
}

/// A summarized column and the arguments in which it arrives.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SummarizedColumn {
    name: String,
    /// The SQL name of the column's type.
    type_name: String,
    /// Index of the argument that is the column itself.
    value_argument: usize,
    /// Index of the argument of `min` and `max`; `None` for types without an order.
    ordered_argument: Option<usize>,
    /// Index of the argument that is the column as a DOUBLE; `None` for columns that are not numeric.
    number_argument: Option<usize>,
}

impl SummarizedColumn {
    fn argument_for(&self, of: ColumnScope) -> Option<usize> {
        match of {
            ColumnScope::All => Some(self.value_argument),
            ColumnScope::Ordered => self.ordered_argument,
            ColumnScope::Numeric => self.number_argument,
        }
    }
}

impl QuerySummary {
    /// Creates the summary of the columns of a schema, and the SQL of the call over them.
    pub fn from_schema(schema: &Schema) -> (Self, String) {
        let mut arguments = Vec::with_capacity(2 * schema.fields().len());
        let mut add = |argument: String| {
            arguments.push(argument);
            arguments.len() - 1
        };
        let columns = schema.fields().iter().map(|field| {
            let sql = format!("\"{}\"", field.name().replace('"', "\"\""));
            let own = add(sql.clone());
            let (mut ordered, mut number) = (None, None);
            match field.data_type() {
                DataType::Null => {}
                DataType::Float64 => (ordered, number) = (Some(own), Some(own)),
                of if of.is_numeric() => {
                    ordered = Some(own);
                    number = Some(add(format!("CAST({sql} AS DOUBLE)")));
                }
                of if of.is_nested() => {}
                DataType::Dictionary(_, value) => {
                    ordered = Some(add(format!("arrow_cast({sql}, '{value}')")));
                }
                DataType::FixedSizeBinary(_) => {
                    ordered = Some(add(format!("arrow_cast({sql}, 'Binary')")));
                }
                _ => ordered = Some(own),
            }
            let (name, type_name) = (field.name().clone(), sql_type_name(field.data_type()));
            SummarizedColumn {
                name,
                type_name,
                value_argument: own,
                ordered_argument: ordered,
                number_argument: number,
            }
        });
        let columns = columns.collect();
        (QuerySummary { columns }, format!("{SUMMARY_FUNCTION_NAME}({})", arguments.join(", ")))
    }

    /// Returns the summary of a call, if the call is one.
    pub fn from_call(call: &AggregateFunction) -> Option<&Arc<QuerySummary>> {
        Some(&call.func.inner().downcast_ref::<SummaryUdaf>()?.summary)
    }

    /// Returns the spec of the states for arguments of the given types: the aggregates ordered by answer, and
    /// for each answer by column.
    ///
    /// # Errors
    /// Returns a message for the user if a column's type has no state.
    pub fn table_spec(&self, types: &[DataType]) -> Result<TableSpec, String> {
        let mut aggregates = Vec::with_capacity(SUMMARY_ANSWERS.len() * self.columns.len());
        for (asked, of) in SUMMARY_ANSWERS {
            if asked == "count" {
                aggregates.push(new_table_aggregate("count(*)", asked, None, &DataType::Null));
                continue;
            }
            for column in &self.columns {
                let Some(argument) = column.argument_for(of) else { continue };
                // Distinct values are counted before any cast.
                let argument =
                    if asked == "approx_unique" { column.value_argument } else { argument };
                let argument_type =
                    types.get(argument).ok_or_else(|| "a summary lost a column".to_owned())?;
                let name = format!("{asked}({})", column.name);
                let made = new_table_aggregate(&name, asked, Some(argument), argument_type);
                if !has_mergeable_state(&made) {
                    let of = sql_type_name(&made.argument_type);
                    return Err(format!("no mergeable state for `{asked}` over {of}"));
                }
                aggregates.push(made);
            }
        }
        Ok(TableSpec::new(Vec::new(), aggregates))
    }

    /// Returns the type of the answer: a list of a struct for each column.
    pub fn answer_type(&self) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(DataType::Struct(answer_fields()), true)))
    }

    /// Builds the answer from a finished table of the [spec](QuerySummary::table_spec), which has one row.
    ///
    /// # Errors
    /// Returns an error if the table has another spec.
    pub fn build_answer(&self, finished: &RecordBatch) -> Result<ListArray> {
        let internal = |e: &dyn fmt::Display| Error::Internal(format!("a summary: {e}"));
        if finished.num_rows() != 1 {
            return Err(internal(&"its table has more than one group"));
        }
        let mut found = finished.columns().iter();
        let mut next = || found.next().ok_or_else(|| internal(&"an aggregate is missing"));
        let texts = |of: fn(&SummarizedColumn) -> &str| -> ArrayRef {
            let texts = self.columns.iter().map(of);
            Arc::new(StringArray::from_iter_values(texts))
        };
        let mut columns =
            vec![texts(|column| &column.name), texts(|column| column.type_name.as_str())];
        for ((asked, of), field) in SUMMARY_ANSWERS.iter().zip(&answer_fields()[columns.len()..]) {
            let to = field.data_type();
            let nothing = new_null_array(to, 1);
            let count = if *asked == "count" { Some(Arc::clone(next()?)) } else { None };
            let mut answers = Vec::with_capacity(self.columns.len());
            for column in &self.columns {
                answers.push(match (&count, column.argument_for(*of)) {
                    (Some(count), _) => Arc::clone(count),
                    (None, None) => Arc::clone(&nothing),
                    // The text is the same as that of `CAST(min(x) AS TEXT)`.
                    (None, Some(_)) => ColumnarValue::Array(Arc::clone(next()?))
                        .cast_to(to, None)
                        .and_then(|value| value.into_array(1))
                        .into_tidemill_error()?,
                });
            }
            let answers: Vec<&dyn Array> = answers.iter().map(AsRef::as_ref).collect();
            columns.push(match answers.is_empty() {
                true => new_empty_array(to),
                false => concat(&answers)?,
            });
        }
        let rows =
            StructArray::try_new_with_length(answer_fields(), columns, None, self.columns.len())?;
        let DataType::List(item) = self.answer_type() else {
            return Err(internal(&"its answer is no list"));
        };
        let offsets = OffsetBuffer::from_lengths([self.columns.len()]);
        Ok(ListArray::try_new(item, offsets, Arc::new(rows), None)?)
    }

    /// Returns the estimated answers: their name, which is the same in plan and result, and their function.
    pub(crate) fn estimated_columns(&self) -> impl Iterator<Item = (String, MergeableFunction)> {
        SUMMARY_ANSWERS.into_iter().flat_map(|(asked, of)| {
            let function = summary_function(asked);
            let estimates = matches!(
                function,
                MergeableFunction::Unique(_) | MergeableFunction::Quantile { .. }
            );
            let columns = self
                .columns
                .iter()
                .filter(move |column| estimates && column.argument_for(of).is_some());
            columns.map(move |column| (format!("{asked}({})", column.name), function.clone()))
        })
    }
}

/// Returns the fields of a column's struct.
fn answer_fields() -> Fields {
    let asked = SUMMARY_ANSWERS.into_iter().map(|(asked, _)| {
        let of = match asked {
            "min" | "max" => DataType::Utf8View,
            "approx_unique" | "count" | NON_NULL_COUNT_NAME => DataType::Int64,
            _ => DataType::Float64,
        };
        Field::new(asked, of, true)
    });
    let named = ["column_name", "column_type"].map(|name| Field::new(name, DataType::Utf8, true));
    named.into_iter().chain(asked).collect()
}

fn summary_function(asked: &str) -> MergeableFunction {
    let quantile =
        |rank: f64| MergeableFunction::Quantile { ranks: vec![rank], returns_list: false };
    match asked {
        "min" => MergeableFunction::Min,
        "max" => MergeableFunction::Max,
        "approx_unique" => MergeableFunction::Unique(HllParams::default()),
        "avg" => MergeableFunction::Mean,
        "std" => MergeableFunction::Statistic(MomentStatistic::Variance {
            is_sample: true,
            is_root: true,
        }),
        "q25" => quantile(0.25),
        "q50" => quantile(0.5),
        "q75" => quantile(0.75),
        _ => MergeableFunction::Count,
    }
}

fn new_table_aggregate(
    name: &str,
    asked: &str,
    argument: Option<usize>,
    of: &DataType,
) -> TableAggregate {
    let function = summary_function(asked);
    let (output, udf) = match function {
        MergeableFunction::Min => (of.clone(), min_udaf()),
        MergeableFunction::Max => (of.clone(), max_udaf()),
        MergeableFunction::Count | MergeableFunction::Unique(_) => (DataType::Int64, count_udaf()),
        _ => (DataType::Float64, count_udaf()),
    };
    TableAggregate {
        function,
        argument_column: argument,
        argument_type: of.clone(),
        second_argument: None,
        filter_column: None,
        output_field: Arc::new(Field::new(name, output, true)),
        udf,
    }
}

/// Creates the function for registration with DataFusion. Its accumulators report the precision of their
/// answers to `precisions`.
pub fn create_summary_udaf(
    summary: QuerySummary,
    precisions: &Arc<PrecisionRecorder>,
) -> AggregateUDF {
    // The query may have no columns at all.
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    AggregateUDF::from(SummaryUdaf {
        summary: Arc::new(summary),
        precision_recorder: Arc::clone(precisions),
        signature: Signature::one_of(any, Volatility::Immutable),
    })
}

/// The DataFusion declaration of the summary function.
#[derive(Debug)]
struct SummaryUdaf {
    summary: Arc<QuerySummary>,
    /// Records the precision of every answer.
    precision_recorder: Arc<PrecisionRecorder>,
    signature: Signature,
}

impl PartialEq for SummaryUdaf {
    fn eq(&self, other: &Self) -> bool {
        self.summary == other.summary
    }
}

impl Eq for SummaryUdaf {}

impl std::hash::Hash for SummaryUdaf {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.summary.hash(state);
    }
}

impl SummaryUdaf {
    fn table_spec(&self, arguments: &[FieldRef]) -> PlanResult<Arc<TableSpec>> {
        let types: Vec<DataType> =
            arguments.iter().map(|field| field.data_type().clone()).collect();
        match self.summary.table_spec(&types) {
            Ok(spec) => Ok(Arc::new(spec)),
            Err(message) => plan_err!("{message}"),
        }
    }
}

impl AggregateUDFImpl for SummaryUdaf {
    fn name(&self) -> &str {
        SUMMARY_FUNCTION_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        // For a type without a state, the function that rejects it provides the message.
        for column in self.summary.columns.iter().filter(|column| column.ordered_argument.is_some())
        {
            TidemillAggregate::Unique
                .return_type(arguments.get(column.value_argument..).unwrap_or_default())?;
        }
        Ok(self.summary.answer_type())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let spec = self.table_spec(args.input_fields)?;
        let states = spec.first_aggregate_per_state().enumerate().map(|(index, leader)| {
            Ok(Field::new(
                format!("state_{index}"),
                encoded_state_type(leader).map_err(into_datafusion_error)?,
                true,
            ))
        });
        let states = DataType::Struct(states.collect::<PlanResult<Fields>>()?);
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), states, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let spec = self.table_spec(args.expr_fields)?;
        let rows = args.expr_fields.iter().enumerate().map(|(index, field)| {
            Field::new(format!("value_{index}"), field.data_type().clone(), true)
        });
        Ok(Box::new(SummaryAccumulator {
            summary: Arc::clone(&self.summary),
            table: Mutex::new(AggregateTable::new(&spec).map_err(into_datafusion_error)?),
            row_schema: Arc::new(Schema::new(rows.collect::<Vec<_>>())),
            spec,
            precision_recorder: Arc::clone(&self.precision_recorder),
        }))
    }
}

/// The states of all columns, as DataFusion's accumulator.
struct SummaryAccumulator {
    summary: Arc<QuerySummary>,
    spec: Arc<TableSpec>,
    /// The states. The mutex makes the accumulator `Sync`; it is never contended.
    table: Mutex<AggregateTable>,
    /// The schema of the table's input rows.
    row_schema: SchemaRef,
    precision_recorder: Arc<PrecisionRecorder>,
}

impl fmt::Debug for SummaryAccumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfColumns").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Accumulator for SummaryAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let row_count = values.first().map_or(0, Array::len);
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let rows = Arc::clone(&self.row_schema);
        let rows = RecordBatch::try_new_with_options(rows, values.to_vec(), &options)?;
        self.table.get_mut().update(&rows).map_err(into_datafusion_error)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let table = self.table.get_mut();
        for (aggregate, precision) in self.spec.aggregates.iter().zip(table.precisions()) {
            if let Some(precision) = precision {
                self.precision_recorder.record_precision(
                    aggregate.output_field.name(),
                    &aggregate.function,
                    precision,
                );
            }
        }
        let finished = table.finish().map_err(into_datafusion_error)?;
        Ok(ScalarValue::List(Arc::new(
            self.summary.build_answer(&finished).map_err(into_datafusion_error)?,
        )))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.table.lock().memory_bytes()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states = self.table.get_mut().take_chunk().and_then(|states| states.encode());
        let states = StructArray::from(states.map_err(into_datafusion_error)?);
        Ok(vec![ScalarValue::Struct(Arc::new(states))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let Some(states) = states[0].as_struct_opt() else {
            return exec_err!("states of a summary that are none");
        };
        let mut batch = RecordBatch::from(StructArray::new(
            states.fields().clone(),
            states.columns().to_vec(),
            None,
        ));
        if let Some(nulls) = states.nulls().filter(|nulls| nulls.null_count() > 0) {
            batch = filter_record_batch(&batch, &BooleanArray::new(nulls.inner().clone(), None))?;
        }
        let table = self.table.get_mut();
        let chunk = table.decode_chunk(&batch).map_err(into_datafusion_error)?;
        // There is one group, and a merge takes each group at most once.
        (0..batch.num_rows() as u32)
            .try_for_each(|row| table.merge(&chunk, &[row]))
            .map_err(into_datafusion_error)
    }
}
