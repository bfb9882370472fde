//! Unions of stored sketches, and how sketches are written to be stored.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use tidemill_base::error::Result;
use tidemill_functions::sketches::{decode_hex_text, decode_hll};
use tidemill_sketch::{Hll, HllStorageDialect, SketchError};

use super::Rows;
use super::sketches::{Filled, SketchKind};
use super::unique::published_error;
use crate::spec::{Aggregate, Precision};
use crate::value;

/// A column of stored sketches.
pub(super) enum Stored {
    Bytes(ArrayRef),
    Texts(ArrayRef),
}

impl Stored {
    /// The column; none where all of it is null.
    pub(super) fn of(values: &ArrayRef) -> Result<Option<Self>> {
        let values = match values.data_type() {
            DataType::Dictionary(_, of) => value::cast_to(values, of)?,
            _ => Arc::clone(values),
        };
        Ok(match values.data_type() {
            DataType::Null => None,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Some(Stored::Texts(value::cast_to(&values, &DataType::Utf8View)?))
            }
            _ => Some(Stored::Bytes(value::cast_to(&values, &DataType::BinaryView)?)),
        })
    }

    pub(super) fn nulls(&self) -> Option<NullBuffer> {
        let (Stored::Bytes(values) | Stored::Texts(values)) = self;
        values.logical_nulls()
    }

    /// The bytes of a row, which is not null.
    ///
    /// # Errors
    /// Where a text is not that of bytes.
    pub(super) fn at(&self, row: usize) -> Result<Cow<'_, [u8]>> {
        Ok(match self {
            Stored::Bytes(values) => Cow::Borrowed(values.as_binary_view().value(row)),
            Stored::Texts(values) => {
                Cow::Owned(decode_hex_text(values.as_string_view().value(row))?)
            }
        })
    }
}

/// Unions of stored HyperLogLogs; none of no sketch, of which no parameters are known.
pub(super) struct UnionOf {
    pub(super) log2m_max: u8,
}

impl SketchKind for UnionOf {
    type State = Option<Hll>;
    type Item = ();
    const NAME: &'static str = "hll_union";

    fn empty(&self) -> Option<Hll> {
        None
    }

    fn heap(state: &Option<Hll>) -> usize {
        state.as_ref().map_or(0, Hll::heap_bytes)
    }

    fn merge(into: &mut Option<Hll>, from: &mut Option<Hll>) {
        if let Some(from) = from.take() {
            unite(into, from);
        }
    }

    /// No bytes are no sketch.
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

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let Some(stored) = Stored::of(rows.values()?)? else { return Ok(()) };
        let sketch = |row: usize| decode_hll(&stored.at(row)?, self.log2m_max);
        let mut found = Ok(());
        states.each(rows, stored.nulls().as_ref(), |state, row| match sketch(row) {
            Ok(hll) => unite(state, hll),
            Err(error) if found.is_ok() => found = Err(error),
            Err(_) => {}
        });
        found
    }

    fn precision(state: &Option<Hll>, _: &Aggregate) -> Option<Precision> {
        let of = |hll: &Hll| Precision::new(hll.is_exact(), published_error(hll));
        Some(state.as_ref().map_or(Precision::EXACT, of))
    }

    fn finish(&self, states: &[Option<Hll>], _: &Aggregate) -> Result<ArrayRef> {
        Ok(written(states.iter().map(Option::as_ref)))
    }
}

fn unite(into: &mut Option<Hll>, from: Hll) {
    match into {
        Some(into) => into.merge_owned(from),
        None => *into = Some(from),
    }
}

/// Sketches as they are stored: in PostgreSQL's dialect.
pub(super) fn written<'a>(sketches: impl ExactSizeIterator<Item = Option<&'a Hll>>) -> ArrayRef {
    let mut stored = BinaryViewBuilder::with_capacity(sketches.len());
    sketches.for_each(|hll| {
        stored.append_option(hll.map(|hll| hll.to_bytes(HllStorageDialect::default())))
    });
    Arc::new(stored.finish())
}
