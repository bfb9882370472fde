//! The DataFusion declarations of Tidemill's aggregate functions ([`TidemillAggregate`]): `unique`, `top_k`
//! and so on.
//!
//! DataFusion plans and type-checks them by these declarations, also under the names that it has for some of
//! them ([`ApproximateAggregate`]). On the table path the planner replaces them with mergeable functions
//! ([`MergeableFunction`](crate::MergeableFunction)). Elsewhere (beside other aggregates, in a window)
//! DataFusion calls the accumulator below, which keeps the same states and reports the precision of its
//! answers.

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

use crate::TableAggregate;
use crate::aggregates::accumulators::StateAccumulator;
use crate::aggregates::aggregate_functions::{HLL_SKETCH_PARAMS_DEFAULT, TidemillAggregate};
use crate::aggregates::approximate_aggregates::ApproximateAggregate;
use crate::aggregates::distinct_rewrite::empty_list_value;
use crate::aggregates::precision_recorder::PrecisionRecorder;

/// Creates the functions for registration with DataFusion. Their accumulators report the precision of their
/// answers to `precisions`.
pub fn create_tidemill_udafs(
    precisions: &Arc<PrecisionRecorder>,
) -> impl Iterator<Item = AggregateUDF> {
    let declared = |added, standard, signature| {
        let precisions = Arc::clone(precisions);
        AggregateUDF::from(TidemillUdaf {
            aggregate: added,
            approximate_name: standard,
            signature,
            precision_recorder: precisions,
        })
    };
    let added = TidemillAggregate::ALL.into_iter();
    let added =
        added.map(move |added| (added, None, Signature::user_defined(Volatility::Immutable)));
    let standard = ApproximateAggregate::ALL.into_iter();
    let standard = standard
        .map(|standard| (standard.tidemill_aggregate(), Some(standard), standard.signature()));
    added
        .chain(standard)
        .map(move |(added, standard, signature)| declared(added, standard, signature))
}

/// The DataFusion declaration of one of Tidemill's aggregate functions.
#[derive(Debug, Clone)]
struct TidemillUdaf {
    aggregate: TidemillAggregate,
    /// The approximate aggregate of DataFusion under whose name the function is declared, if it is one.
    approximate_name: Option<ApproximateAggregate>,
    signature: Signature,
    /// Records the precision of every answer.
    precision_recorder: Arc<PrecisionRecorder>,
}

impl PartialEq for TidemillUdaf {
    fn eq(&self, other: &Self) -> bool {
        (self.aggregate, self.approximate_name) == (other.aggregate, other.approximate_name)
    }
}

impl Eq for TidemillUdaf {}

impl std::hash::Hash for TidemillUdaf {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.aggregate, self.approximate_name).hash(state);
    }
}

impl AggregateUDFImpl for TidemillUdaf {
    fn name(&self) -> &str {
        self.approximate_name.map_or(self.aggregate.sql_name(), ApproximateAggregate::sql_name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        // A column without a value has the Null type; any type that the function accepts will do.
        let any = match self.aggregate {
            TidemillAggregate::HllUnion
            | TidemillAggregate::IdSetUnion
            | TidemillAggregate::IdSetIntersection => DataType::BinaryView,
            _ => DataType::Int64,
        };
        let typed = |of: &DataType| if of.is_null() { any.clone() } else { of.clone() };
        Ok(given.iter().map(typed).collect())
    }

    fn supports_within_group_clause(&self) -> bool {
        self.approximate_name == Some(ApproximateAggregate::PercentileCont)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // Calls with an order that would matter are rejected.
        AggregateOrderSensitivity::Insensitive
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let output = self.aggregate.return_type(arguments)?;
        Ok(self.approximate_name.map_or(output, ApproximateAggregate::return_type))
    }

    fn is_nullable(&self) -> bool {
        matches!(
            self.aggregate,
            TidemillAggregate::Quantile
                | TidemillAggregate::BootstrapSum
                | TidemillAggregate::HllUnion
                | TidemillAggregate::IdSetUnion
                | TidemillAggregate::IdSetIntersection
                | TidemillAggregate::DistinctValues
        )
    }

    fn default_value(&self, of: &DataType) -> PlanResult<ScalarValue> {
        match self.aggregate {
            TidemillAggregate::Unique | TidemillAggregate::UniqueExact => {
                Ok(ScalarValue::Int64(Some(0)))
            }
            TidemillAggregate::TopK
            | TidemillAggregate::Histogram
            | TidemillAggregate::DistinctValues
            | TidemillAggregate::DistinctSample
            | TidemillAggregate::InverseHistogram
            | TidemillAggregate::Collect => {
                Ok(empty_list_value(of).unwrap_or(ScalarValue::try_from(of)?))
            }
            TidemillAggregate::IdSet => {
                let mut bytes = Vec::new();
                SortedIdSet::new().encode(&mut bytes);
                Ok(ScalarValue::BinaryView(Some(bytes)))
            }
            // The call's parameters are unknown here; a sketch of no value may have any.
            TidemillAggregate::HllSketch => {
                let empty = Hll::new(HLL_SKETCH_PARAMS_DEFAULT).ok();
                let bytes = empty.map(|empty| empty.to_bytes(HllStorageDialect::default()));
                Ok(ScalarValue::BinaryView(bytes))
            }
            _ => ScalarValue::try_from(of),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> PlanResult<Vec<FieldRef>> {
        let state = match self.aggregate {
            TidemillAggregate::Collect => DataType::LargeList(Arc::new(Field::new_list_field(
                args.input_fields[0].data_type().clone(),
                true,
            ))),
            _ => DataType::LargeBinary,
        };
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), state, true))])
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(
            self.approximate_name
                .map_or(self.aggregate.documentation(), ApproximateAggregate::documentation),
        )
    }

    fn accumulator(&self, args: AccumulatorArgs) -> PlanResult<Box<dyn Accumulator>> {
        let weight = self.aggregate.per_row_argument_index(args.exprs.len());
        let parameters = (1..args.exprs.len())
            .filter(|place| Some(*place) != weight)
            .map(|place| match args.exprs[place].downcast_ref::<Literal>() {
                Some(literal) => Ok(literal.value().clone()),
                None => plan_err!(
                    "the parameters of `{}` are constants\nhint: it is called as {}",
                    self.name(),
                    self.aggregate.call_syntax()
                ),
            })
            .collect::<PlanResult<Vec<_>>>()?;
        let is_descending = args.order_bys.iter().any(|sort| sort.options.descending);
        let function = match self.approximate_name {
            Some(standard) => standard.resolve_function(&parameters, is_descending),
            None => self.aggregate.resolve_function(&parameters),
        };
        let function = match function {
            Ok(function) => function,
            Err(message) => return plan_err!("{message}"),
        };
        let aggregate = TableAggregate {
            function,
            argument_column: Some(0),
            argument_type: args.expr_fields[0].data_type().clone(),
            second_argument: weight
                .map(|place| (place, args.expr_fields[place].data_type().clone())),
            filter_column: None,
            output_field: Arc::clone(&args.return_field),
            udf: Arc::new(AggregateUDF::from(self.clone())),
        };
        let is_distinct = args.is_distinct;
        if is_distinct && self.aggregate != TidemillAggregate::Unique {
            return plan_err!("`{}` does not take DISTINCT", self.name());
        }
        if !args.order_bys.is_empty() && !self.supports_within_group_clause() {
            // The order of the rows would be ignored.
            return plan_err!(
                "`{}` does not take ORDER BY; array_agg(x ORDER BY y) does",
                self.name()
            );
        }
        let told = (args.name.to_owned(), Arc::clone(&self.precision_recorder));
        Ok(Box::new(StateAccumulator::new(aggregate, Some(told))?))
    }
}
