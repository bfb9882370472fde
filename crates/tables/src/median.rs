//! `median` wherever DataFusion runs it, by the states of tables.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};

use crate::accumulators::{Distinct, Groups, OneGroup};
use crate::{Aggregate, Function, supports};

/// The function, in the place of DataFusion's of the same name.
pub(crate) fn function() -> AggregateUDF {
    AggregateUDF::from(Median { theirs: median_udaf() })
}

/// DataFusion's for types of which there is no state.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Median {
    theirs: Arc<AggregateUDF>,
}

impl Median {
    fn aggregate(&self, name: &str, argument: &DataType) -> Option<Aggregate> {
        let aggregate = Aggregate {
            function: Function::Median,
            argument: Some(0),
            argument_type: argument.clone(),
            second: None,
            filter: None,
            output: Arc::new(Field::new(name, argument.clone(), true)),
            udf: Arc::clone(&self.theirs),
        };
        supports(&aggregate).then_some(aggregate)
    }

    fn of(&self, args: &AccumulatorArgs<'_>) -> Option<Aggregate> {
        self.aggregate(args.name, args.expr_fields.first()?.data_type())
    }
}

impl AggregateUDFImpl for Median {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        self.theirs.aliases()
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.theirs.return_type(arguments)
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.theirs.default_value(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        // Theirs lives as long as the program.
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
            return self.theirs.state_fields(args);
        };
        let argument = argument.data_type();
        if self.aggregate(args.name, argument).is_none() {
            return self.theirs.state_fields(args);
        }
        let item = Arc::new(Field::new_list_field(argument.clone(), true));
        let kept = if args.is_distinct { DataType::List(item) } else { DataType::LargeList(item) };
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), kept, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let Some(aggregate) = self.of(&args) else { return self.theirs.accumulator(args) };
        if !args.is_distinct {
            return Ok(Box::new(OneGroup::new(aggregate, None)?));
        }
        let argument = aggregate.argument_type.clone();
        let one = move || -> PlanResult<Box<dyn Accumulator>> {
            Ok(Box::new(OneGroup::new(aggregate.clone(), None)?))
        };
        Ok(Box::new(Distinct::new(&argument, one)))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        // DataFusion's takes values back; so do different ones of ours.
        match args.is_distinct {
            true => self.accumulator(args),
            false => self.theirs.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.of(&args) {
            Some(_) => !args.is_distinct,
            None => self.theirs.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match self.of(&args) {
            Some(aggregate) => Ok(Box::new(Groups::new(aggregate)?)),
            None => self.theirs.create_groups_accumulator(args),
        }
    }
}
