//! States of `bit_and`, `bit_or` and `bit_xor`.

use std::ops::{BitAnd, BitOr, BitXor, Not};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use tidemill_base::error::{Error, Result};

use super::extremes::decode_value_states;
use super::value_presence::ValuePresence;
use super::{ChunkStates, GroupedRows, StateColumn, StateRoutes, state_type_error};
use crate::spec::BitwiseOperator;
use crate::value_encoding;

/// The combined bits of each group's integers.
pub(super) struct BitwiseStates<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    presence: ValuePresence,
    operator: BitwiseOperator,
    argument_type: DataType,
}

/// Creates an empty column for values of type `argument`.
pub(super) fn new_bitwise_column(
    of: BitwiseOperator,
    argument: &DataType,
) -> Result<Box<dyn StateColumn>> {
    macro_rules! whole {
        ($($is:ident => $t:ty),+) => {
            match argument {
                $(DataType::$is => Ok(Box::new(BitwiseStates::<$t>::new(of, argument.clone()))),)+
                other => Err(Error::Internal(format!("{} over {other}", of.sql_name()))),
            }
        };
    }
    whole! {
        Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type,
        UInt8 => UInt8Type, UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type
    }
}

/// Integers with bitwise operators.
pub(super) trait BitwiseNumber:
    Sized + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

impl<N> BitwiseNumber for N where
    N: BitAnd<Output = N> + BitOr<Output = N> + BitXor<Output = N> + Not<Output = N>
{
}

impl<T: ArrowPrimitiveType> BitwiseStates<T>
where
    T::Native: BitwiseNumber,
{
    fn new(of: BitwiseOperator, argument: DataType) -> Self {
        BitwiseStates {
            values: Vec::new(),
            presence: ValuePresence::default(),
            operator: of,
            argument_type: argument,
        }
    }

    /// Resizes the column. A group without a value holds the operator's neutral element.
    fn resize(&mut self, group_count: usize) {
        let none = T::Native::default();
        let unchanged = if self.operator == BitwiseOperator::And { !none } else { none };
        self.values.resize(group_count, unchanged);
    }
}

/// Combines the values of `$array` into the states of `$self`, by `$from`'s mapping of rows to groups.
macro_rules! taken {
    ($self:ident, $from:ident, $array:expr) => {{
        let values = $array.as_primitive::<T>();
        let (nulls, numbers) = (values.nulls(), values.values());
        let (held, seen) = (&mut $self.values, &mut $self.presence);
        match $self.operator {
            BitwiseOperator::And => {
                $from.update_states_and_presence(nulls, held, seen, |held, row, _| {
                    *held = *held & numbers[row]
                });
            }
            BitwiseOperator::Or => {
                $from.update_states_and_presence(nulls, held, seen, |held, row, _| {
                    *held = *held | numbers[row]
                });
            }
            BitwiseOperator::Xor => {
                $from.update_states_and_presence(nulls, held, seen, |held, row, _| {
                    *held = *held ^ numbers[row]
                });
            }
        }
    }};
}

impl<T: ArrowPrimitiveType> StateColumn for BitwiseStates<T>
where
    T::Native: BitwiseNumber,
{
    fn update(&mut self, rows: &GroupedRows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = Arc::clone(rows.required_values()?);
        taken!(self, rows, values);
        Ok(())
    }

    fn merge(&mut self, states: &ChunkStates, routes: &StateRoutes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let ChunkStates::Array(array) = states else {
            return Err(state_type_error(self.operator.sql_name()));
        };
        taken!(self, routes, array);
        Ok(())
    }

    fn take_states(&mut self, group_count: usize) -> Result<ChunkStates> {
        self.finish(group_count).map(ChunkStates::Array)
    }

    fn decode(&self, array: &ArrayRef) -> Result<ChunkStates> {
        decode_value_states(self.operator.sql_name(), &self.argument_type, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::new(values.into(), self.presence.take_nulls(group_count));
        value_encoding::cast_exactly(&(Arc::new(array) as ArrayRef), &self.argument_type)
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.presence.memory_bytes()
    }
}
