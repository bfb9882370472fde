//! Columns of stored sketches as input, the states of `hll_union`, and the encoding of stored sketches.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use tidemill_base::error::Result;
use tidemill_functions::sketches::{decode_hex_text, decode_hll};
use tidemill_sketch::{Hll, HllStorageDialect, SketchError};

use super::GroupedRows;
use super::hll_unique::compute_published_error;
use super::sketch_column::{BufferedSketchStates, SketchKind};
use crate::spec::{SketchPrecision, TableAggregate};
use crate::value_encoding;

/// A column of stored sketches, as bytes or as hexadecimal text.
pub(super) enum StoredSketchColumn {
    Bytes(ArrayRef),
    HexTexts(ArrayRef),
}

impl StoredSketchColumn {
    /// Casts a column of stored sketches; `None` for the Null type.
    pub(super) fn from_values(values: &ArrayRef) -> Result<Option<Self>> {
        let values = match values.data_type() {
            DataType::Dictionary(_, of) => value_encoding::cast_exactly(values, of)?,
            _ => Arc::clone(values),
        };
        Ok(match values.data_type() {
            DataType::Null => None,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Some(StoredSketchColumn::HexTexts(value_encoding::cast_exactly(
                    &values,
                    &DataType::Utf8View,
                )?))
            }
            _ => Some(StoredSketchColumn::Bytes(value_encoding::cast_exactly(
                &values,
                &DataType::BinaryView,
            )?)),
        })
    }

    pub(super) fn null_mask(&self) -> Option<NullBuffer> {
        let (StoredSketchColumn::Bytes(values) | StoredSketchColumn::HexTexts(values)) = self;
        values.logical_nulls()
    }

    /// Returns the bytes of a row, which must not be null.
    ///
    /// # Errors
    /// Returns an error for a text that is not `\x` and hexadecimal digits.
    pub(super) fn sketch_bytes(&self, row: usize) -> Result<Cow<'_, [u8]>> {
        Ok(match self {
            StoredSketchColumn::Bytes(values) => Cow::Borrowed(values.as_binary_view().value(row)),
            StoredSketchColumn::HexTexts(values) => {
                Cow::Owned(decode_hex_text(values.as_string_view().value(row))?)
            }
        })
    }
}

/// The sketch kind of unions of stored HyperLogLogs. The union of no sketch is NULL, as its parameters are
/// unknown.
pub(super) struct HllUnionKind {
    pub(super) log2m_max: u8,
}

impl SketchKind for HllUnionKind {
    type State = Option<Hll>;
    type Item = ();
    const NAME: &'static str = "hll_union";

    fn new_state(&self) -> Option<Hll> {
        None
    }

    fn heap_bytes(state: &Option<Hll>) -> usize {
        state.as_ref().map_or(0, Hll::heap_bytes)
    }

    fn merge(into: &mut Option<Hll>, from: &mut Option<Hll>) {
        if let Some(from) = from.take() {
            merge_hll_into(into, from);
        }
    }

    /// Appends the encoded sketch; no bytes stand for no sketch.
    fn encode(state: &Option<Hll>, out: &mut Vec<u8>) {
        if let Some(hll) = state {
            hll.encode(out);
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Option<Hll>, SketchError> {
        match bytes {
            [] => Ok(None),
            bytes => Hll::from_bytes_with_log2m_max(bytes, self.log2m_max).map(Some),
        }
    }

    fn update(
        &self,
        states: &mut BufferedSketchStates<Self>,
        rows: &GroupedRows<'_>,
    ) -> Result<()> {
        let Some(stored) = StoredSketchColumn::from_values(rows.required_values()?)? else {
            return Ok(());
        };
        let sketch = |row: usize| decode_hll(&stored.sketch_bytes(row)?, self.log2m_max);
        let mut found = Ok(());
        states.update_each(rows, stored.null_mask().as_ref(), |state, row| match sketch(row) {
            Ok(hll) => merge_hll_into(state, hll),
            Err(error) if found.is_ok() => found = Err(error),
            Err(_) => {}
        });
        found
    }

    fn precision(state: &Option<Hll>, _: &TableAggregate) -> Option<SketchPrecision> {
        let of = |hll: &Hll| SketchPrecision::new(hll.is_exact(), compute_published_error(hll));
        Some(state.as_ref().map_or(SketchPrecision::EXACT, of))
    }

    fn finish(&self, states: &[Option<Hll>], _: &TableAggregate) -> Result<ArrayRef> {
        Ok(encode_hlls(states.iter().map(Option::as_ref)))
    }
}

fn merge_hll_into(into: &mut Option<Hll>, from: Hll) {
    match into {
        Some(into) => into.merge_owned(from),
        None => *into = Some(from),
    }
}

/// Encodes sketches in the form in which they are stored: the dialect of PostgreSQL's `hll`.
pub(super) fn encode_hlls<'a>(
    sketches: impl ExactSizeIterator<Item = Option<&'a Hll>>,
) -> ArrayRef {
    let mut stored = BinaryViewBuilder::with_capacity(sketches.len());
    sketches.for_each(|hll| {
        stored.append_option(hll.map(|hll| hll.to_bytes(HllStorageDialect::default())))
    });
    Arc::new(stored.finish())
}
