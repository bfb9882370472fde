//! Logical and bitwise aggregates over sliding window frames: `bool_or(x) OVER (ORDER BY t ROWS 10
//! PRECEDING)`.
//!
//! Values that leave a frame are retracted from its state. DataFusion's accumulators cannot retract, or lose
//! the fact that the frame is empty. These functions replace DataFusion's of the same names and delegate to
//! them, except over sliding frames: there the answers are computed from counts.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Decimal128Type, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_operators::windows::filter_clauses::window_state_error;
use tidemill_planning::datafusion_names::aggregates;

/// Wraps those functions of `all` that this module implements over sliding frames.
pub(crate) fn wrap_sliding_udafs<'a>(
    all: impl Iterator<Item = &'a Arc<AggregateUDF>>,
) -> impl Iterator<Item = AggregateUDF> {
    all.filter_map(|theirs| {
        let answer = SlidingFunction::from_name(theirs.name())?;
        Some(AggregateUDF::from(SlidingUdaf {
            datafusion_udaf: Arc::clone(theirs),
            function: answer,
        }))
    })
}

/// A function with an implementation over sliding frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SlidingFunction {
    BoolAnd,
    BoolOr,
    BitAnd,
    BitOr,
    BitXor,
}

impl SlidingFunction {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            aggregates::BOOL_AND => SlidingFunction::BoolAnd,
            aggregates::BOOL_OR => SlidingFunction::BoolOr,
            aggregates::BIT_AND => SlidingFunction::BitAnd,
            aggregates::BIT_OR => SlidingFunction::BitOr,
            aggregates::BIT_XOR => SlidingFunction::BitXor,
            _ => return None,
        })
    }
}

/// The declaration of such a function: DataFusion's, with another accumulator over sliding frames.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SlidingUdaf {
    datafusion_udaf: Arc<AggregateUDF>,
    function: SlidingFunction,
}

impl AggregateUDFImpl for SlidingUdaf {
    fn name(&self) -> &str {
        self.datafusion_udaf.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_udaf.aliases()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_udaf.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_udaf.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.datafusion_udaf.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.datafusion_udaf.default_value(data_type)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.datafusion_udaf.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.datafusion_udaf.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.datafusion_udaf.documentation()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.datafusion_udaf.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        self.datafusion_udaf.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.datafusion_udaf.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        self.datafusion_udaf.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.datafusion_udaf.create_sliding_accumulator(args);
        }
        Ok(match self.function {
            SlidingFunction::BoolAnd | SlidingFunction::BoolOr => {
                Box::new(BooleanCountAccumulator {
                    is_or: self.function == SlidingFunction::BoolOr,
                    false_count: 0,
                    true_count: 0,
                })
            }
            SlidingFunction::BitAnd | SlidingFunction::BitOr | SlidingFunction::BitXor => {
                Box::new(BitCountAccumulator {
                    function: self.function,
                    data_type: args.return_field.data_type().clone(),
                    value_count: 0,
                    counts_by_bit: [0; 64],
                })
            }
        })
    }
}

// ── accumulators of counts ───────────────────────────────────────────────────────────────

/// Counts of the false and true values in a frame.
#[derive(Debug)]
struct BooleanCountAccumulator {
    is_or: bool,
    false_count: usize,
    true_count: usize,
}

impl BooleanCountAccumulator {
    fn count_booleans(values: &[ArrayRef]) -> (usize, usize) {
        let flags = values[0].as_boolean();
        let trues = flags.true_count();
        (flags.len() - flags.null_count() - trues, trues)
    }
}

impl Accumulator for BooleanCountAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let (falses, trues) = Self::count_booleans(values);
        self.false_count += falses;
        self.true_count += trues;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let (falses, trues) = Self::count_booleans(values);
        self.false_count -= falses;
        self.true_count -= trues;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let value = if self.is_or { self.true_count > 0 } else { self.false_count == 0 };
        Ok(ScalarValue::Boolean((self.false_count + self.true_count > 0).then_some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        window_state_error()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        window_state_error()
    }
}

/// For each bit, the number of values in a frame that have it set.
#[derive(Debug)]
struct BitCountAccumulator {
    function: SlidingFunction,
    data_type: DataType,
    value_count: u64,
    counts_by_bit: [u64; 64],
}

/// A type that holds the values of all integer types.
const INTEGER_CAST_TYPE: DataType = DataType::Decimal128(20, 0);

impl BitCountAccumulator {
    fn update_counts(&mut self, values: &ArrayRef, back: bool) -> PlanResult<()> {
        let values = cast_with_options(values, &INTEGER_CAST_TYPE, &STRICT_CAST_OPTIONS)?;
        let step = |count: &mut u64| if back { *count -= 1 } else { *count += 1 };
        for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
            step(&mut self.value_count);
            let mut rest = value.cast_unsigned() as u64;
            while rest != 0 {
                step(&mut self.counts_by_bit[rest.trailing_zeros() as usize]);
                rest &= rest - 1;
            }
        }
        Ok(())
    }
}

impl Accumulator for BitCountAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_counts(&values[0], false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_counts(&values[0], true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        if self.value_count == 0 {
            return ScalarValue::try_from(&self.data_type);
        }
        let is_set = |count: u64| match self.function {
            SlidingFunction::BitAnd => count == self.value_count,
            SlidingFunction::BitOr => count > 0,
            _ => !count.is_multiple_of(2),
        };
        let bits = self.counts_by_bit.iter().enumerate().filter(|(_, count)| is_set(**count));
        let bits = bits.fold(0_u64, |bits, (bit, _)| bits | 1 << bit);
        Ok(match self.data_type {
            DataType::Int8 => ScalarValue::Int8(Some(bits as i8)),
            DataType::Int16 => ScalarValue::Int16(Some(bits as i16)),
            DataType::Int32 => ScalarValue::Int32(Some(bits as i32)),
            DataType::Int64 => ScalarValue::Int64(Some(bits.cast_signed())),
            DataType::UInt8 => ScalarValue::UInt8(Some(bits as u8)),
            DataType::UInt16 => ScalarValue::UInt16(Some(bits as u16)),
            DataType::UInt32 => ScalarValue::UInt32(Some(bits as u32)),
            DataType::UInt64 => ScalarValue::UInt64(Some(bits)),
            _ => return window_state_error(),
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        window_state_error()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        window_state_error()
    }
}
