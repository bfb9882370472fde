//! Text of few different values, each written once.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, PrimitiveArray, StringArray, StringViewArray};
use arrow_buffer::{NullBufferBuilder, ScalarBuffer};
use arrow_schema::DataType;
use hashbrown::HashTable;

use crate::leaf::{Context, Leaf, truncate};
use crate::span::Span;

/// Builds `Dictionary(Int32, Utf8 | Utf8View)`. Each batch has its own values, in the order of
/// their first appearance.
pub(crate) struct Dictionary {
    data_type: DataType,
    keys: Vec<i32>,
    validity: NullBufferBuilder,
    /// Values end to end, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    places: HashTable<u32>,
    hasher: hashbrown::DefaultHashBuilder,
}

impl Dictionary {
    pub(crate) fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            keys: Vec::new(),
            validity: NullBufferBuilder::new(0),
            bytes: Vec::new(),
            ends: Vec::new(),
            places: HashTable::new(),
            hasher: hashbrown::DefaultHashBuilder::default(),
        }
    }

    fn key(&mut self, value: &[u8]) -> Option<i32> {
        use std::hash::BuildHasher;
        let Self { bytes, ends, places, hasher, .. } = self;
        let at = |ends: &[usize], place: u32| {
            let place = place as usize;
            let start = if place == 0 { 0 } else { ends[place - 1] };
            start..ends[place]
        };
        let hash = hasher.hash_one(value);
        if let Some(place) = places.find(hash, |place| &bytes[at(ends, *place)] == value) {
            return i32::try_from(*place).ok();
        }
        let place = u32::try_from(ends.len()).ok()?;
        bytes.extend_from_slice(value);
        ends.push(bytes.len());
        places.insert_unique(hash, place, |place| hasher.hash_one(&bytes[at(ends, *place)]));
        i32::try_from(place).ok()
    }
}

impl Leaf for Dictionary {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        for (index, &span) in spans.iter().enumerate() {
            let value = match context.value(text, span) {
                Ok(Some(bytes)) if !span.is_plain() && std::str::from_utf8(&bytes).is_err() => {
                    Err(())
                }
                value => value,
            };
            let value = match value {
                Ok(value) => value,
                Err(()) if context.mismatch_is_null => None,
                Err(()) => return Err(index),
            };
            self.validity.append(value.is_some());
            let key = match value {
                Some(value) => self.key(&value).ok_or(index)?,
                None => 0,
            };
            self.keys.push(key);
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        // Values that nothing refers to any more stay.
        self.keys.truncate(len);
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let keys = ScalarBuffer::from(std::mem::take(&mut self.keys));
        let keys = PrimitiveArray::<Int32Type>::new(keys, self.validity.finish());
        let mut start = 0;
        let values = self.ends.iter().map(|&end| {
            let value = std::str::from_utf8(&self.bytes[start..end]).unwrap_or_default();
            start = end;
            value
        });
        let is_view = matches!(&self.data_type, DataType::Dictionary(_, value) if **value == DataType::Utf8View);
        let values: ArrayRef = if is_view {
            Arc::new(StringViewArray::from_iter_values(values))
        } else {
            Arc::new(StringArray::from_iter_values(values))
        };
        self.bytes.clear();
        self.ends.clear();
        self.places.clear();
        // SAFETY: every key was given out for a value; those of nulls are 0 and not looked at,
        // unless there is no value at all, in which case all are null.
        Arc::new(unsafe { DictionaryArray::new_unchecked(keys, values) })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_schema::Field;

    use super::*;
    use crate::csv::CsvDecoder;
    use crate::{Decode, Decoded, Dialect, Options};

    #[test]
    fn each_batch_has_every_value_once_in_the_order_of_appearance() {
        for value in [DataType::Utf8, DataType::Utf8View] {
            let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(value));
            let field = Arc::new(Field::new("c", data_type, true));
            let options = Options { batch_rows: 5, ..Options::default() };
            let mut decoder =
                CsvDecoder::new(&Dialect::default(), 2, vec![(0, field)], options).unwrap();
            let mut out = Decoded::default();
            let long = "a value that is longer than a view";
            let text =
                format!("b,1\na,2\n,3\n\"b\",4\n{long},5\n{long},6\nb,7\n,8\n\"x\"\"y\",9\n");
            decoder.decode(text.as_bytes(), &mut out);
            let expected: [&[Option<&str>]; 2] = [
                &[Some("b"), Some("a"), None, Some("b"), Some(long)],
                &[Some(long), Some("b"), None, Some("x\"y")],
            ];
            for (batch, expected) in out.batches.iter().zip(expected) {
                let column = batch.column(0).as_dictionary::<Int32Type>();
                column.to_data().validate_full().unwrap();
                assert_eq!(column.values().len(), 3);
                let values = arrow_cast::cast(column, &DataType::Utf8).unwrap();
                let values: Vec<Option<&str>> = values.as_string::<i32>().iter().collect();
                assert_eq!(values, expected);
            }
            assert_eq!((out.batches.len(), out.bad.len()), (2, 0));
        }
    }
}
