//! Unions of stored sketches, and how sketches are written to be stored.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder};
use arrow::datatypes::DataType;
use tidemill_base::error::Result;
use tidemill_functions::sketches::{bytes_of_text, hll_of};
use tidemill_sketch::{Dialect, Hll, SketchError};

use super::Rows;
use super::sketches::{Filled, SketchKind};
use crate::spec::{Aggregate, Precision};
use crate::value;

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
            bytes => Hll::from_bytes_within(bytes, self.log2m_max).map(Some),
        }
    }

    fn update(&self, states: &mut Filled<Self>, rows: &Rows<'_>) -> Result<()> {
        let sketches = rows.values()?;
        if sketches.data_type() == &DataType::Null {
            return Ok(());
        }
        let is_text = matches!(
            sketches.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        let bytes = match is_text {
            true => value::cast_to(sketches, &DataType::Utf8View)?,
            false => value::cast_to(sketches, &DataType::BinaryView)?,
        };
        let stored = |row: usize| match is_text {
            true => hll_of(&bytes_of_text(bytes.as_string_view().value(row))?, self.log2m_max),
            false => hll_of(bytes.as_binary_view().value(row), self.log2m_max),
        };
        let mut found = Ok(());
        states.each(rows, bytes.logical_nulls().as_ref(), |state, row| match stored(row) {
            Ok(hll) => unite(state, hll),
            Err(error) if found.is_ok() => found = Err(error),
            Err(_) => {}
        });
        found
    }

    fn precision(state: &Option<Hll>, _: &Aggregate) -> Option<Precision> {
        let of = |hll: &Hll| Precision { exact: hll.is_exact(), error: hll.relative_error() };
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
    sketches.for_each(|hll| stored.append_option(hll.map(|hll| hll.to_bytes(Dialect::default()))));
    Arc::new(stored.finish())
}
