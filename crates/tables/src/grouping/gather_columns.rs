//! Column buffers from which rows are gathered in another order.
//!
//! Values of a fixed width and strings inlined in their views are copied into memory that is reused from one
//! block of rows to the next, and gathered from there; no intermediate array is built. All other types are
//! left to Arrow's `concat` and `take`.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, GenericByteViewArray, PrimitiveArray,
    UInt32Array, downcast_primitive,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use tidemill_base::error::Result;

use crate::value_encoding::compact_views;

/// A column of buffered rows.
pub(crate) struct GatherColumn {
    buffer: Option<Box<dyn ColumnBuffer>>,
    /// All arrays from the first one that cannot be buffered on; the rows buffered before it come first.
    fallback_arrays: Vec<ArrayRef>,
}

impl GatherColumn {
    /// Creates a column without rows.
    pub(crate) fn new(of: &DataType) -> Self {
        GatherColumn { buffer: new_column_buffer(of), fallback_arrays: Vec::new() }
    }

    /// Appends the rows of an array.
    pub(crate) fn push_array(&mut self, array: &ArrayRef) {
        if let Some(held) = &mut self.buffer {
            if self.fallback_arrays.is_empty() && held.push_array(array) {
                return;
            }
            self.fallback_arrays.extend(held.take_array());
        }
        self.fallback_arrays.push(Arc::clone(array));
    }

    /// Returns the rows in a form from which they can be gathered.
    ///
    /// # Errors
    /// Returns the errors of Arrow's `concat`.
    pub(crate) fn gatherable_rows(&self) -> Result<GatherableRows<'_>> {
        if self.fallback_arrays.is_empty()
            && let Some(held) = &self.buffer
        {
            return Ok(GatherableRows::Buffered(held.as_ref()));
        }
        let arrays: Vec<&dyn Array> = self.fallback_arrays.iter().map(AsRef::as_ref).collect();
        Ok(GatherableRows::Array(concat(&arrays)?))
    }

    /// Removes all rows and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.fallback_arrays.clear();
        if let Some(held) = &mut self.buffer {
            held.clear();
        }
    }
}

/// Rows from which others are gathered.
pub(crate) enum GatherableRows<'a> {
    Buffered(&'a dyn ColumnBuffer),
    Array(ArrayRef),
}

impl GatherableRows<'_> {
    /// Returns the given rows as an array.
    ///
    /// # Errors
    /// Returns the errors of Arrow's `take`.
    pub(crate) fn gather(&self, rows: &[u32]) -> Result<ArrayRef> {
        match self {
            GatherableRows::Buffered(held) => Ok(held.gather(rows)),
            GatherableRows::Array(array) => {
                let rows = UInt32Array::from(rows.to_vec());
                Ok(compact_views(&take(array, &rows, None)?))
            }
        }
    }
}

/// A reusable buffer of values.
pub(crate) trait ColumnBuffer: Send {
    /// Appends an array's values; returns false and appends nothing if they cannot be buffered.
    fn push_array(&mut self, array: &ArrayRef) -> bool;

    fn gather(&self, rows: &[u32]) -> ArrayRef;

    /// Takes all values out as an array; `None` if there are none.
    fn take_array(&mut self) -> Option<ArrayRef>;

    fn clear(&mut self);
}

/// Creates a buffer for values of a type; `None` if they cannot be buffered.
fn new_column_buffer(of: &DataType) -> Option<Box<dyn ColumnBuffer>> {
    macro_rules! primitive {
        ($t:ty, $of:expr) => {
            Some(Box::new(PrimitiveBuffer::<$t> {
                data_type: $of.clone(),
                values: BufferedValues::default(),
            }) as Box<dyn ColumnBuffer>)
        };
    }
    downcast_primitive! {
        of => (primitive, of),
        DataType::Utf8View => Some(Box::new(InlineViewBuffer::<StringViewType>::default())),
        DataType::BinaryView => Some(Box::new(InlineViewBuffer::<BinaryViewType>::default())),
        _ => None,
    }
}

struct BufferedValues<V> {
    values: Vec<V>,
    /// The validity of each value; empty while all are valid.
    is_valid: Vec<bool>,
}

impl<V> Default for BufferedValues<V> {
    fn default() -> Self {
        BufferedValues { values: Vec::new(), is_valid: Vec::new() }
    }
}

impl<V: Copy> BufferedValues<V> {
    fn push_values(&mut self, values: &[V], nulls: Option<&NullBuffer>) {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if nulls.is_some() || !self.is_valid.is_empty() {
            self.is_valid.resize(self.values.len(), true);
            match nulls {
                Some(nulls) => self.is_valid.extend(nulls),
                None => self.is_valid.resize(self.values.len() + values.len(), true),
            }
        }
        self.values.extend_from_slice(values);
    }

    fn gather(&self, rows: &[u32]) -> (ScalarBuffer<V>, Option<NullBuffer>)
    where
        V: arrow::datatypes::ArrowNativeType,
    {
        let values: Vec<V> = rows.iter().map(|row| self.values[*row as usize]).collect();
        let nulls = (!self.is_valid.is_empty()).then(|| {
            let is_valid = |at: usize| self.is_valid[rows[at] as usize];
            NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), is_valid))
        });
        (values.into(), nulls.filter(|nulls| nulls.null_count() > 0))
    }

    fn all_row_indexes(&self) -> Option<Vec<u32>> {
        let count = u32::try_from(self.values.len()).ok().filter(|count| *count > 0)?;
        Some((0..count).collect())
    }

    fn clear(&mut self) {
        self.values.clear();
        self.is_valid.clear();
    }
}

struct PrimitiveBuffer<T: ArrowPrimitiveType> {
    data_type: DataType,
    values: BufferedValues<T::Native>,
}

impl<T: ArrowPrimitiveType> ColumnBuffer for PrimitiveBuffer<T> {
    fn push_array(&mut self, array: &ArrayRef) -> bool {
        let array = array.as_primitive::<T>();
        self.values.push_values(array.values(), array.nulls());
        true
    }

    fn gather(&self, rows: &[u32]) -> ArrayRef {
        let (values, nulls) = self.values.gather(rows);
        Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(self.data_type.clone()))
    }

    fn take_array(&mut self) -> Option<ArrayRef> {
        let array = self.values.all_row_indexes().map(|rows| self.gather(&rows));
        self.values.clear();
        array
    }

    fn clear(&mut self) {
        self.values.clear();
    }
}

/// Maximum length of a value that its view holds inline, in bytes; the length is in the view's lowest four
/// bytes.
const INLINE_VIEW_BYTES_MAX: u32 = 12;

/// String or binary values that their views hold inline.
struct InlineViewBuffer<T: ByteViewType> {
    values: BufferedValues<u128>,
    view_type: PhantomData<T>,
}

impl<T: ByteViewType> Default for InlineViewBuffer<T> {
    fn default() -> Self {
        InlineViewBuffer { values: BufferedValues::default(), view_type: PhantomData }
    }
}

impl<T: ByteViewType> ColumnBuffer for InlineViewBuffer<T> {
    fn push_array(&mut self, array: &ArrayRef) -> bool {
        let array = array.as_byte_view::<T>();
        #[expect(clippy::cast_possible_truncation, reason = "its lowest four bytes")]
        let is_long = |view: &u128| *view as u32 > INLINE_VIEW_BYTES_MAX;
        // The view at a null position is arbitrary and may be long without having any bytes.
        if array.views().iter().any(is_long) {
            return false;
        }
        self.values.push_values(array.views(), array.nulls());
        true
    }

    fn gather(&self, rows: &[u32]) -> ArrayRef {
        let (views, nulls) = self.values.gather(rows);
        // SAFETY: each view comes from an array of the same type and holds its bytes inline.
        Arc::new(unsafe { GenericByteViewArray::<T>::new_unchecked(views, Vec::new(), nulls) })
    }

    fn take_array(&mut self) -> Option<ArrayRef> {
        let array = self.values.all_row_indexes().map(|rows| self.gather(&rows));
        self.values.clear();
        array
    }

    fn clear(&mut self) {
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryViewArray, BooleanArray, Decimal128Array, Int64Array, StringViewArray,
        TimestampMicrosecondArray,
    };
    use proptest::prelude::*;

    use super::*;

    fn arrays(values: &[Option<u8>], long: bool) -> Vec<ArrayRef> {
        let text = |n: u8| match n % 7 {
            0 if long => format!("a text that is longer than a view {n}"),
            1 => String::new(),
            n => n.to_string(),
        };
        let texts = || values.iter().map(|value| value.map(text));
        let wide = values.iter().map(|value| value.map(i128::from)).collect::<Decimal128Array>();
        let numbers = || values.iter().map(|value| value.map(i64::from));
        let bytes: BinaryViewArray = texts().map(|text| text.map(String::into_bytes)).collect();
        vec![
            Arc::new(numbers().collect::<Int64Array>()),
            Arc::new(texts().collect::<StringViewArray>()),
            Arc::new(bytes),
            Arc::new(wide.with_precision_and_scale(20, 3).unwrap()),
            Arc::new(numbers().collect::<TimestampMicrosecondArray>().with_timezone("+02:00")),
            Arc::new(values.iter().map(|v| v.map(|v| v > 2)).collect::<BooleanArray>()),
        ]
    }

    proptest! {
        #[test]
        fn rows_come_out_as_they_went_in(
            batches in prop::collection::vec(
                (prop::collection::vec(prop::option::weighted(0.9, any::<u8>()), 1..30), any::<bool>(), 0..3_usize),
                1..6,
            ),
            picked in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
            times in 1..3,
        ) {
            let sliced = |(values, long, skipped): &(Vec<Option<u8>>, bool, usize)| {
                let skipped = (*skipped).min(values.len() - 1);
                let slice = |array: &ArrayRef| array.slice(skipped, values.len() - skipped);
                arrays(values, *long).iter().map(slice).collect::<Vec<_>>()
            };
            let batches: Vec<Vec<ArrayRef>> = batches.iter().map(sliced).collect();
            let count: usize = batches.iter().map(|batch| batch[0].len()).sum();
            let rows: Vec<u32> = picked.iter().map(|index| index.index(count) as u32).collect();
            for at in 0..6 {
                let all: Vec<&dyn Array> = batches.iter().map(|batch| batch[at].as_ref()).collect();
                let expected = take(&concat(&all).unwrap(), &UInt32Array::from(rows.clone()), None).unwrap();
                let mut column = GatherColumn::new(expected.data_type());
                for _ in 0..times {
                    batches.iter().for_each(|batch| column.push_array(&batch[at]));
                    let found = column.gatherable_rows().unwrap().gather(&rows).unwrap();
                    found.to_data().validate_full().unwrap();
                    prop_assert_eq!(&found, &expected);
                    prop_assert_eq!(found.data_type(), expected.data_type());
                    column.clear();
                }
            }
        }
    }
}
