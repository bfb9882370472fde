//! `SUMMARIZE` as one aggregate of all columns of a query.
//!
//! Eleven aggregates for each column are as many expressions, and DataFusion looks each name up among all of them, in
//! each of its rules: to plan 200 columns took six seconds, and twice as many took four times as long. So all of them
//! are one call here, whose answer is a list with a struct for each column; what is planned above it is of one size.
//!
//! What is kept is what the aggregates would keep that are written one by one: a [`TableSpec`] without keys. Where a
//! query is cut into map, tables and finish, the planner takes the spec over, and elsewhere DataFusion calls an
//! accumulator that is a [`Table`] of that spec.

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
use tidemill_sketch::HllParams;
use tidemill_sql::IntoTidemillError;
use tidemill_sql::error_translation::into_datafusion_error;

use crate::accumulators::kept_type;
use crate::added::Added;
use crate::estimates::Precisions;
use crate::statistics::Statistic;
use crate::{Aggregate, Function, Table, TableSpec, supports};

/// The function's name. It is registered for a query that is a summary, when what is summarized has been planned
/// without it: nobody else can call it.
const NAME: &str = "summary";

/// What is asked of a column: the name of the answer, and of which columns it is.
const ASKED: [(&str, Of); 10] = [
    ("min", Of::Ordered),
    ("max", Of::Ordered),
    ("approx_unique", Of::Ordered),
    ("avg", Of::Numbers),
    ("std", Of::Numbers),
    ("q25", Of::Numbers),
    ("q50", Of::Numbers),
    ("q75", Of::Numbers),
    ("count", Of::All),
    (KNOWN, Of::All),
];

/// How many values of a column are not null.
pub const KNOWN: &str = "known";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Any column.
    All,
    /// A column whose values have an order.
    Ordered,
    /// A column of numbers.
    Numbers,
}

/// The columns of a query that is summarized, and in which arguments of the call they arrive.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Summary {
    columns: Vec<Column>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Column {
    name: String,
    /// What SQL calls its type.
    type_name: String,
    /// The argument that is the column itself.
    own: usize,
    /// The argument that `min` and `max` are of; none where there is no order.
    ordered: Option<usize>,
    /// The argument that is the column as a DOUBLE; none where it has no numbers.
    number: Option<usize>,
}

impl Column {
    fn argument(&self, of: Of) -> Option<usize> {
        match of {
            Of::All => Some(self.own),
            Of::Ordered => self.ordered,
            Of::Numbers => self.number,
        }
    }
}

impl Summary {
    /// Of columns, with the SQL of a call of the function over them.
    pub fn of(schema: &Schema) -> (Self, String) {
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
            Column { name, type_name, own, ordered, number }
        });
        let columns = columns.collect();
        (Summary { columns }, format!("{NAME}({})", arguments.join(", ")))
    }

    /// The one that a call is of, if it is one.
    pub fn of_call(call: &AggregateFunction) -> Option<&Arc<Summary>> {
        Some(&call.func.inner().downcast_ref::<Declared>()?.summary)
    }

    /// What is kept for arguments of such types: the aggregates by what is asked, and for each the columns in their
    /// order.
    ///
    /// # Errors
    /// A message for the user where there is no state for a column's type.
    pub fn spec(&self, types: &[DataType]) -> Result<TableSpec, String> {
        let mut aggregates = Vec::with_capacity(ASKED.len() * self.columns.len());
        for (asked, of) in ASKED {
            if asked == "count" {
                aggregates.push(aggregate("count(*)", asked, None, &DataType::Null));
                continue;
            }
            for column in &self.columns {
                let Some(argument) = column.argument(of) else { continue };
                // Different values are counted as they are.
                let argument = if asked == "approx_unique" { column.own } else { argument };
                let argument_type =
                    types.get(argument).ok_or_else(|| "a summary lost a column".to_owned())?;
                let name = format!("{asked}({})", column.name);
                let made = aggregate(&name, asked, Some(argument), argument_type);
                if !supports(&made) {
                    let of = sql_type_name(&made.argument_type);
                    return Err(format!("no mergeable state for `{asked}` over {of}"));
                }
                aggregates.push(made);
            }
        }
        Ok(TableSpec::new(Vec::new(), aggregates))
    }

    /// The type of the answer: a list of a struct for each column.
    pub fn answer_type(&self) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields()), true)))
    }

    /// The answer of a finished table of the [spec](Summary::spec), which is a row.
    ///
    /// # Errors
    /// Where it is of another table.
    pub fn answer(&self, finished: &RecordBatch) -> Result<ListArray> {
        let internal = |e: &dyn fmt::Display| Error::Internal(format!("a summary: {e}"));
        if finished.num_rows() != 1 {
            return Err(internal(&"its table has more than one group"));
        }
        let mut found = finished.columns().iter();
        let mut next = || found.next().ok_or_else(|| internal(&"an aggregate is missing"));
        let texts = |of: fn(&Column) -> &str| -> ArrayRef {
            let texts = self.columns.iter().map(of);
            Arc::new(StringArray::from_iter_values(texts))
        };
        let mut columns =
            vec![texts(|column| &column.name), texts(|column| column.type_name.as_str())];
        for ((asked, of), field) in ASKED.iter().zip(&fields()[columns.len()..]) {
            let to = field.data_type();
            let nothing = new_null_array(to, 1);
            let count = if *asked == "count" { Some(Arc::clone(next()?)) } else { None };
            let mut answers = Vec::with_capacity(self.columns.len());
            for column in &self.columns {
                answers.push(match (&count, column.argument(*of)) {
                    (Some(count), _) => Arc::clone(count),
                    (None, None) => Arc::clone(&nothing),
                    // The texts are those of `CAST(min(x) AS TEXT)`.
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
        let rows = StructArray::try_new_with_length(fields(), columns, None, self.columns.len())?;
        let DataType::List(item) = self.answer_type() else {
            return Err(internal(&"its answer is no list"));
        };
        let offsets = OffsetBuffer::from_lengths([self.columns.len()]);
        Ok(ListArray::try_new(item, offsets, Arc::new(rows), None)?)
    }

    /// What it estimates, by the names that the plan and the result have for it.
    pub(crate) fn estimates(&self) -> impl Iterator<Item = (String, Function)> {
        ASKED.into_iter().flat_map(|(asked, of)| {
            let function = function(asked);
            let estimates = matches!(function, Function::Unique(_) | Function::Quantile { .. });
            let columns = self
                .columns
                .iter()
                .filter(move |column| estimates && column.argument(of).is_some());
            columns.map(move |column| (format!("{asked}({})", column.name), function.clone()))
        })
    }
}

/// The fields of the struct.
fn fields() -> Fields {
    let asked = ASKED.into_iter().map(|(asked, _)| {
        let of = match asked {
            "min" | "max" => DataType::Utf8View,
            "approx_unique" | "count" | KNOWN => DataType::Int64,
            _ => DataType::Float64,
        };
        Field::new(asked, of, true)
    });
    let named = ["column_name", "column_type"].map(|name| Field::new(name, DataType::Utf8, true));
    named.into_iter().chain(asked).collect()
}

fn function(asked: &str) -> Function {
    let quantile = |rank: f64| Function::Quantile { ranks: vec![rank], list: false };
    match asked {
        "min" => Function::Min,
        "max" => Function::Max,
        "approx_unique" => Function::Unique(HllParams::default()),
        "avg" => Function::Mean,
        "std" => Function::Statistic(Statistic::Variance { is_sample: true, is_root: true }),
        "q25" => quantile(0.25),
        "q50" => quantile(0.5),
        "q75" => quantile(0.75),
        _ => Function::Count,
    }
}

fn aggregate(name: &str, asked: &str, argument: Option<usize>, of: &DataType) -> Aggregate {
    let function = function(asked);
    let (output, udf) = match function {
        Function::Min => (of.clone(), min_udaf()),
        Function::Max => (of.clone(), max_udaf()),
        Function::Count | Function::Unique(_) => (DataType::Int64, count_udaf()),
        _ => (DataType::Float64, count_udaf()),
    };
    Aggregate {
        function,
        argument,
        argument_type: of.clone(),
        second: None,
        filter: None,
        output: Arc::new(Field::new(name, output, true)),
        udf,
    }
}

/// The function as DataFusion wants it registered, for a run that wants to know how good its answers are.
pub fn function_of(summary: Summary, precisions: &Arc<Precisions>) -> AggregateUDF {
    // There may be no column at all.
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    AggregateUDF::from(Declared {
        summary: Arc::new(summary),
        precisions: Arc::clone(precisions),
        signature: Signature::one_of(any, Volatility::Immutable),
    })
}

#[derive(Debug)]
struct Declared {
    summary: Arc<Summary>,
    /// Told of every answer.
    precisions: Arc<Precisions>,
    signature: Signature,
}

impl PartialEq for Declared {
    fn eq(&self, other: &Self) -> bool {
        self.summary == other.summary
    }
}

impl Eq for Declared {}

impl std::hash::Hash for Declared {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.summary.hash(state);
    }
}

impl Declared {
    fn spec(&self, arguments: &[FieldRef]) -> PlanResult<Arc<TableSpec>> {
        let types: Vec<DataType> =
            arguments.iter().map(|field| field.data_type().clone()).collect();
        match self.summary.spec(&types) {
            Ok(spec) => Ok(Arc::new(spec)),
            Err(message) => plan_err!("{message}"),
        }
    }
}

impl AggregateUDFImpl for Declared {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        // A type that has no state is refused in the words of the function that asks for it.
        for column in self.summary.columns.iter().filter(|column| column.ordered.is_some()) {
            Added::Unique.output(arguments.get(column.own..).unwrap_or_default())?;
        }
        Ok(self.summary.answer_type())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let spec = self.spec(args.input_fields)?;
        let states = spec.leaders().enumerate().map(|(index, leader)| {
            Ok(Field::new(
                format!("state_{index}"),
                kept_type(leader).map_err(into_datafusion_error)?,
                true,
            ))
        });
        let states = DataType::Struct(states.collect::<PlanResult<Fields>>()?);
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), states, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let spec = self.spec(args.expr_fields)?;
        let rows = args.expr_fields.iter().enumerate().map(|(index, field)| {
            Field::new(format!("value_{index}"), field.data_type().clone(), true)
        });
        Ok(Box::new(OfColumns {
            summary: Arc::clone(&self.summary),
            table: Mutex::new(Table::new(&spec).map_err(into_datafusion_error)?),
            rows: Arc::new(Schema::new(rows.collect::<Vec<_>>())),
            spec,
            precisions: Arc::clone(&self.precisions),
        }))
    }
}

/// The states of all columns, as DataFusion's accumulator.
struct OfColumns {
    summary: Arc<Summary>,
    spec: Arc<TableSpec>,
    /// In a mutex because an accumulator is `Sync`; nobody else holds it.
    table: Mutex<Table>,
    /// What the table takes.
    rows: SchemaRef,
    precisions: Arc<Precisions>,
}

impl fmt::Debug for OfColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfColumns").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Accumulator for OfColumns {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let row_count = values.first().map_or(0, Array::len);
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let rows = Arc::clone(&self.rows);
        let rows = RecordBatch::try_new_with_options(rows, values.to_vec(), &options)?;
        self.table.get_mut().update(&rows).map_err(into_datafusion_error)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let table = self.table.get_mut();
        for (aggregate, precision) in self.spec.aggregates.iter().zip(table.precisions()) {
            if let Some(precision) = precision {
                self.precisions.add(aggregate.output.name(), &aggregate.function, precision);
            }
        }
        let finished = table.finish().map_err(into_datafusion_error)?;
        Ok(ScalarValue::List(Arc::new(
            self.summary.answer(&finished).map_err(into_datafusion_error)?,
        )))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.table.lock().bytes()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states = self.table.get_mut().take().and_then(|states| states.encode());
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
        let chunk = table.decode(&batch).map_err(into_datafusion_error)?;
        // There is one group, and a group is taken once at a time.
        (0..batch.num_rows() as u32)
            .try_for_each(|row| table.merge(&chunk, &[row]))
            .map_err(into_datafusion_error)
    }
}
