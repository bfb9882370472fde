//! The aggregate functions that SQL gains: `unique`, `top_k` and the like ([`Added`]).
//!
//! Here they are declared to DataFusion, which plans and type-checks them, also by the names that it
//! has for some of them ([`Standard`]). On the partial-table path the planner takes them over
//! ([`Function`]); elsewhere (beside other aggregates, in a window) DataFusion calls the accumulator
//! below, which keeps the very same states, and says how good its answers are.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use tidemill_sketch::{Hll, HllStorageDialect, SortedIdSet};

use crate::Aggregate;
use crate::accumulators::OneGroup;
use crate::added::{Added, SKETCH};
use crate::approximate::Standard;
use crate::distinct::empty_list;
use crate::estimates::Precisions;

/// The functions as DataFusion wants them registered, for a run that wants to know how good their
/// answers are.
pub fn all(precisions: &Arc<Precisions>) -> impl Iterator<Item = AggregateUDF> {
    let declared = |added, standard, signature| {
        let precisions = Arc::clone(precisions);
        AggregateUDF::from(Declared { added, standard, signature, precisions })
    };
    let added = Added::ALL.into_iter();
    let added =
        added.map(move |added| (added, None, Signature::user_defined(Volatility::Immutable)));
    let standard = Standard::ALL.into_iter();
    let standard =
        standard.map(|standard| (standard.added(), Some(standard), standard.signature()));
    added
        .chain(standard)
        .map(move |(added, standard, signature)| declared(added, standard, signature))
}

#[derive(Debug, Clone)]
struct Declared {
    added: Added,
    /// The name that DataFusion has for it, where it is called by that.
    standard: Option<Standard>,
    signature: Signature,
    /// Told of every answer.
    precisions: Arc<Precisions>,
}

impl PartialEq for Declared {
    fn eq(&self, other: &Self) -> bool {
        (self.added, self.standard) == (other.added, other.standard)
    }
}

impl Eq for Declared {}

impl std::hash::Hash for Declared {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.added, self.standard).hash(state);
    }
}

impl AggregateUDFImpl for Declared {
    fn name(&self) -> &str {
        self.standard.map_or(self.added.name(), Standard::name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        // A column without a value has no type; one that the function takes is as good as any.
        let any = match self.added {
            Added::HllUnion | Added::IdSetUnion | Added::IdSetIntersection => DataType::BinaryView,
            _ => DataType::Int64,
        };
        let typed = |of: &DataType| if of.is_null() { any.clone() } else { of.clone() };
        Ok(given.iter().map(typed).collect())
    }

    fn supports_within_group_clause(&self) -> bool {
        self.standard == Some(Standard::PercentileCont)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // What is called with an order that matters is refused.
        AggregateOrderSensitivity::Insensitive
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let output = self.added.output(arguments)?;
        Ok(self.standard.map_or(output, Standard::output))
    }

    fn is_nullable(&self) -> bool {
        matches!(
            self.added,
            Added::Quantile
                | Added::BootstrapSum
                | Added::HllUnion
                | Added::IdSetUnion
                | Added::IdSetIntersection
                | Added::DistinctValues
        )
    }

    fn default_value(&self, of: &DataType) -> PlanResult<ScalarValue> {
        match self.added {
            Added::Unique | Added::UniqueExact => Ok(ScalarValue::Int64(Some(0))),
            Added::TopK
            | Added::Histogram
            | Added::DistinctValues
            | Added::DistinctSample
            | Added::InverseHistogram
            | Added::Collect => Ok(empty_list(of).unwrap_or(ScalarValue::try_from(of)?)),
            Added::IdSet => {
                let mut bytes = Vec::new();
                SortedIdSet::new().encode(&mut bytes);
                Ok(ScalarValue::BinaryView(Some(bytes)))
            }
            // Which parameters the call has is not known here. One of no value has any.
            Added::HllSketch => {
                let empty = Hll::new(SKETCH).ok();
                let bytes = empty.map(|empty| empty.to_bytes(HllStorageDialect::default()));
                Ok(ScalarValue::BinaryView(bytes))
            }
            _ => ScalarValue::try_from(of),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> PlanResult<Vec<FieldRef>> {
        let state = match self.added {
            Added::Collect => DataType::LargeList(Arc::new(Field::new_list_field(
                args.input_fields[0].data_type().clone(),
                true,
            ))),
            _ => DataType::LargeBinary,
        };
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), state, true))])
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(self.standard.map_or(self.added.documentation(), Standard::documentation))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> PlanResult<Box<dyn Accumulator>> {
        let weight = self.added.weight(args.exprs.len());
        let parameters = (1..args.exprs.len())
            .filter(|place| Some(*place) != weight)
            .map(|place| match args.exprs[place].downcast_ref::<Literal>() {
                Some(literal) => Ok(literal.value().clone()),
                None => plan_err!(
                    "the parameters of `{}` are constants\nhint: it is called as {}",
                    self.name(),
                    self.added.usage()
                ),
            })
            .collect::<PlanResult<Vec<_>>>()?;
        let is_descending = args.order_bys.iter().any(|sort| sort.options.descending);
        let function = match self.standard {
            Some(standard) => standard.function(&parameters, is_descending),
            None => self.added.with_parameters(&parameters),
        };
        let function = match function {
            Ok(function) => function,
            Err(message) => return plan_err!("{message}"),
        };
        let aggregate = Aggregate {
            function,
            argument: Some(0),
            argument_type: args.expr_fields[0].data_type().clone(),
            second: weight.map(|place| (place, args.expr_fields[place].data_type().clone())),
            filter: None,
            output: Arc::clone(&args.return_field),
            udf: Arc::new(AggregateUDF::from(self.clone())),
        };
        let is_distinct = args.is_distinct;
        if is_distinct && self.added != Added::Unique {
            return plan_err!("`{}` does not take DISTINCT", self.name());
        }
        if !args.order_bys.is_empty() && !self.supports_within_group_clause() {
            // The rows would come in any order all the same.
            return plan_err!(
                "`{}` does not take ORDER BY; array_agg(x ORDER BY y) does",
                self.name()
            );
        }
        let told = (args.name.to_owned(), Arc::clone(&self.precisions));
        Ok(Box::new(OneGroup::new(aggregate, Some(told))?))
    }
}
