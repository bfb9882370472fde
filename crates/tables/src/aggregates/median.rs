//! `median` on DataFusion's path, by the states of aggregate tables.
//!
//! The mean of the two middle values is exact: the answer of a DECIMAL has one more fractional digit, which
//! holds half of a sum, up to 38 digits (76 for wide decimals), where it is rounded. Times are kept as
//! numbers of their units ([`CastingAccumulator`]), and the answer is rounded to a unit, half away from zero,
//! as in `avg` and `percentile_cont`.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DECIMAL256_MAX_PRECISION, DECIMAL256_MAX_SCALE,
    DataType, Field, FieldRef,
};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};

use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_sql::percentiles::interpolated_time_type;

use crate::aggregates::accumulators::{
    DistinctAccumulator, StateAccumulator, StateGroupsAccumulator,
};
use crate::aggregates::wide_sums::{CastingAccumulator, TIME_NUMBER_TYPE};
use crate::{MergeableFunction, TableAggregate, has_mergeable_state};

/// Creates the function, which replaces DataFusion's of the same name.
pub(crate) fn create_median_udaf() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    AggregateUDF::from(MedianUdaf { datafusion_udaf: median_udaf(), signature })
}

/// The `median` function, which uses DataFusion's implementation for types without a mergeable state.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MedianUdaf {
    datafusion_udaf: Arc<AggregateUDF>,
    signature: Signature,
}

/// Returns the type in which values are kept, and the type of the answer over these.
fn state_and_answer_types(argument: &DataType) -> (DataType, DataType) {
    match interpolated_time_type(argument) {
        Some(_) => (TIME_NUMBER_TYPE, TIME_NUMBER_TYPE),
        None => {
            let answer = widen_decimal(argument).unwrap_or_else(|| argument.clone());
            (argument.clone(), answer)
        }
    }
}

/// Returns a decimal type with one more fractional digit for half of a sum; `None` for other types.
fn widen_decimal(of: &DataType) -> Option<DataType> {
    Some(match *of {
        DataType::Decimal128(precision, scale) => DataType::Decimal128(
            (precision + 1).min(DECIMAL128_MAX_PRECISION),
            (scale + 1).min(DECIMAL128_MAX_SCALE),
        ),
        DataType::Decimal256(precision, scale) => DataType::Decimal256(
            (precision + 1).min(DECIMAL256_MAX_PRECISION),
            (scale + 1).min(DECIMAL256_MAX_SCALE),
        ),
        _ => return None,
    })
}

impl MedianUdaf {
    fn table_aggregate(&self, name: &str, argument: &DataType) -> Option<TableAggregate> {
        let (kept, answer) = state_and_answer_types(argument);
        let aggregate = TableAggregate {
            function: MergeableFunction::Median,
            argument_column: Some(0),
            argument_type: kept,
            second_argument: None,
            filter_column: None,
            output_field: Arc::new(Field::new(name, answer, true)),
            udf: Arc::clone(&self.datafusion_udaf),
        };
        has_mergeable_state(&aggregate).then_some(aggregate)
    }

    fn table_aggregate_of_call(&self, args: &AccumulatorArgs<'_>) -> Option<TableAggregate> {
        self.table_aggregate(args.name, args.expr_fields.first()?.data_type())
    }

    /// Wraps an accumulator of numbers so that it accepts the call's values.
    fn wrap_with_casts<A: ?Sized>(
        args: &AccumulatorArgs<'_>,
        number: DataType,
        inner: Box<A>,
    ) -> CastingAccumulator<A> {
        let answer = args.return_field.data_type().clone();
        CastingAccumulator {
            call_name: args.name.to_owned(),
            number_type: number,
            answer_type: answer,
            inner_accumulator: inner,
        }
    }

    /// Returns DataFusion's accumulator, built by `make`, over values that are cast first: times to numbers,
    /// decimals to wider ones; `None` for other values.
    fn build_datafusion_accumulator<A: ?Sized>(
        &self,
        args: &AccumulatorArgs<'_>,
        make: impl FnOnce(&AggregateUDF, AccumulatorArgs<'_>) -> PlanResult<Box<A>>,
    ) -> PlanResult<Option<CastingAccumulator<A>>> {
        let Some(argument) = args.expr_fields.first().map(|field| field.data_type()) else {
            return Ok(None);
        };
        let number = match interpolated_time_type(argument) {
            Some(_) => TIME_NUMBER_TYPE,
            None => match widen_decimal(argument) {
                Some(wider) => wider,
                None => return Ok(None),
            },
        };
        let field = Arc::new(Field::new("value", number.clone(), true));
        let fields = [Arc::clone(&field)];
        let over_numbers =
            AccumulatorArgs { expr_fields: &fields, return_field: field, ..args.clone() };
        let inner = make(self.datafusion_udaf.as_ref(), over_numbers)?;
        Ok(Some(Self::wrap_with_casts(args, number, inner)))
    }
}

/// Returns true if a call is over times.
fn is_over_times(args: &AccumulatorArgs<'_>) -> bool {
    args.expr_fields
        .first()
        .is_some_and(|field| interpolated_time_type(field.data_type()).is_some())
}

impl AggregateUDFImpl for MedianUdaf {
    fn name(&self) -> &str {
        self.datafusion_udaf.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_udaf.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        if let [of] = given
            && let Some(time) = interpolated_time_type(of)
        {
            return Ok(vec![time]);
        }
        if let [DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale)] =
            given
        {
            return Ok(vec![DataType::Decimal128(*precision, *scale)]);
        }
        let fields = given.iter().map(|of| Arc::new(Field::new("value", of.clone(), true)));
        let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.datafusion_udaf.as_ref());
        let fields = fields.map_err(|_| {
            let found: Vec<String> = given.iter().map(sql_type_name).collect();
            into_datafusion_error(Error::usage_with_hint(
                format!("`{}` takes numbers and times, not {}", self.name(), found.join(", ")),
                "cast what is a number: median(CAST(x AS DOUBLE))",
            ))
        })?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [of] => Ok(widen_decimal(of).unwrap_or_else(|| of.clone())),
            _ => self.datafusion_udaf.return_type(arguments),
        }
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.datafusion_udaf.default_value(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        // A static keeps DataFusion's function alive as long as the program.
        static THEIRS: std::sync::LazyLock<Arc<AggregateUDF>> =
            std::sync::LazyLock::new(median_udaf);
        THEIRS.documentation()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let Some(argument) = args.input_fields.first() else {
            return self.datafusion_udaf.state_fields(args);
        };
        let argument = argument.data_type();
        let Some(aggregate) = self.table_aggregate(args.name, argument) else {
            let Some(wide) = widen_decimal(argument) else {
                return self.datafusion_udaf.state_fields(args);
            };
            let field = Arc::new(Field::new("value", wide, true));
            let fields = [Arc::clone(&field)];
            let wide = StateFieldsArgs { input_fields: &fields, return_field: field, ..args };
            return self.datafusion_udaf.state_fields(wide);
        };
        let item = |of: &DataType| Arc::new(Field::new_list_field(of.clone(), true));
        let kept = match args.is_distinct {
            true => DataType::List(item(argument)),
            false => DataType::LargeList(item(&aggregate.argument_type)),
        };
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), kept, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let Some(aggregate) = self.table_aggregate_of_call(&args) else {
            let wide =
                self.build_datafusion_accumulator(&args, |theirs, args| theirs.accumulator(args))?;
            return match wide {
                Some(wide) => Ok(Box::new(wide)),
                None => self.datafusion_udaf.accumulator(args),
            };
        };
        let Some(argument) = args.expr_fields.first() else {
            return self.datafusion_udaf.accumulator(args);
        };
        let times = is_over_times(&args).then(|| args.return_field.data_type().clone());
        let name = args.name.to_owned();
        let one = move || -> PlanResult<Box<dyn Accumulator>> {
            let inner: Box<dyn Accumulator> =
                Box::new(StateAccumulator::new(aggregate.clone(), None)?);
            Ok(match &times {
                None => inner,
                Some(answer) => {
                    let (name, answer) = (name.clone(), answer.clone());
                    Box::new(CastingAccumulator {
                        call_name: name,
                        number_type: TIME_NUMBER_TYPE,
                        answer_type: answer,
                        inner_accumulator: inner,
                    })
                }
            })
        };
        match args.is_distinct {
            true => Ok(Box::new(DistinctAccumulator::new(argument.data_type(), one))),
            false => one(),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        // DataFusion's accumulator supports retraction; so does the one of distinct values.
        match args.is_distinct {
            true => self.accumulator(args),
            false => {
                let over_numbers = self.build_datafusion_accumulator(&args, |theirs, args| {
                    theirs.create_sliding_accumulator(args)
                })?;
                match over_numbers {
                    Some(over_numbers) => Ok(Box::new(over_numbers)),
                    None => self.datafusion_udaf.create_sliding_accumulator(args),
                }
            }
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.table_aggregate_of_call(&args) {
            Some(_) => !args.is_distinct,
            // Decimals of more than 38 digits are cast, one accumulator per group.
            None => {
                let wide = args.expr_fields.first().and_then(|of| widen_decimal(of.data_type()));
                wide.is_none() && self.datafusion_udaf.groups_accumulator_supported(args)
            }
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match self.table_aggregate_of_call(&args) {
            Some(aggregate) if is_over_times(&args) => {
                let inner: Box<dyn GroupsAccumulator> =
                    Box::new(StateGroupsAccumulator::new(aggregate)?);
                Ok(Box::new(Self::wrap_with_casts(&args, TIME_NUMBER_TYPE, inner)))
            }
            Some(aggregate) => Ok(Box::new(StateGroupsAccumulator::new(aggregate)?)),
            None => self.datafusion_udaf.create_groups_accumulator(args),
        }
    }
}
