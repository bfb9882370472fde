//! The bits that all values have, that some have, and that an odd number of them has.

use std::ops::{BitAnd, BitOr, BitXor, Not};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use tidemill_base::error::{Error, Result};

use super::extremes::values_of;
use super::seen::Seen;
use super::{Routes, Rows, StateColumn, States, mismatch};
use crate::spec::BitsOf;
use crate::value;

/// The bits of whole numbers.
pub(super) struct Bits<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    seen: Seen,
    of: BitsOf,
    argument: DataType,
}

/// An empty column of bits of values of type `argument`.
pub(super) fn bits(of: BitsOf, argument: &DataType) -> Result<Box<dyn StateColumn>> {
    macro_rules! whole {
        ($($is:ident => $t:ty),+) => {
            match argument {
                $(DataType::$is => Ok(Box::new(Bits::<$t>::new(of, argument.clone()))),)+
                other => Err(Error::Internal(format!("{} over {other}", of.name()))),
            }
        };
    }
    whole! {
        Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type,
        UInt8 => UInt8Type, UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type
    }
}

/// Numbers that are bits.
pub(super) trait Word:
    Sized + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

impl<N> Word for N where
    N: BitAnd<Output = N> + BitOr<Output = N> + BitXor<Output = N> + Not<Output = N>
{
}

impl<T: ArrowPrimitiveType> Bits<T>
where
    T::Native: Word,
{
    fn new(of: BitsOf, argument: DataType) -> Self {
        Bits { values: Vec::new(), seen: Seen::default(), of, argument }
    }

    /// A group without a value holds the one that changes no other.
    fn resize(&mut self, group_count: usize) {
        let none = T::Native::default();
        let unchanged = if self.of == BitsOf::And { !none } else { none };
        self.values.resize(group_count, unchanged);
    }
}

/// Calls `$each` of `$self` with the values of `$array` and what becomes of a group's bits.
macro_rules! taken {
    ($self:ident, $from:ident, $array:expr) => {{
        let values = $array.as_primitive::<T>();
        let (nulls, numbers) = (values.nulls(), values.values());
        let (held, seen) = (&mut $self.values, &mut $self.presence);
        match $self.of {
            BitsOf::And => {
                $from.each_state(nulls, held, seen, |held, row, _| *held = *held & numbers[row]);
            }
            BitsOf::Or => {
                $from.each_state(nulls, held, seen, |held, row, _| *held = *held | numbers[row]);
            }
            BitsOf::Xor => {
                $from.each_state(nulls, held, seen, |held, row, _| *held = *held ^ numbers[row]);
            }
        }
    }};
}

impl<T: ArrowPrimitiveType> StateColumn for Bits<T>
where
    T::Native: Word,
{
    fn update(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.resize(rows.group_count);
        let values = Arc::clone(rows.values()?);
        taken!(self, rows, values);
        Ok(())
    }

    fn merge(&mut self, states: &States, routes: &Routes<'_>) -> Result<()> {
        self.resize(routes.group_count);
        let States::Array(array) = states else { return Err(mismatch(self.of.name())) };
        taken!(self, routes, array);
        Ok(())
    }

    fn take(&mut self, group_count: usize) -> Result<States> {
        self.finish(group_count).map(States::Array)
    }

    fn decode(&self, array: &ArrayRef) -> Result<States> {
        values_of(self.of.name(), &self.argument, array)
    }

    fn finish(&mut self, group_count: usize) -> Result<ArrayRef> {
        self.resize(group_count);
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::new(values.into(), self.seen.take(group_count));
        value::cast_to(&(Arc::new(array) as ArrayRef), &self.argument)
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.bytes()
    }
}
