//! Comparison with Arrow's own readers: random schemas and random documents, which both must
//! read alike.
//!
//! For the known differences (`docs/corner-cases.md`), Arrow reads an equivalent document
//! in which both agree on the spelling of such values: [`values::for_arrow`],
//! and a function of the same name in `json`, have one rule per line.

mod csv;
mod json;
mod values;

use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;

/// Compares batches with those that Arrow made of the same records.
fn same(found: &[RecordBatch], expected: &[RecordBatch]) -> Result<(), TestCaseError> {
    let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    prop_assert_eq!(rows(found), rows(expected));
    let (Some(first), Some(other)) = (found.first(), expected.first()) else { return Ok(()) };
    let found = arrow_select::concat::concat_batches(&first.schema(), found).unwrap();
    let expected = arrow_select::concat::concat_batches(&other.schema(), expected).unwrap();
    for (found, expected) in found.columns().iter().zip(expected.columns()) {
        found.to_data().validate_full().unwrap();
        if found != expected {
            let row = (0..found.len()).find(|row| found.slice(*row, 1) != expected.slice(*row, 1));
            let (found, expected) = row.map_or((found.clone(), expected.clone()), |row| {
                (found.slice(row, 1), expected.slice(row, 1))
            });
            prop_assert!(false, "row {row:?}: {found:?}, Arrow: {expected:?}");
        }
    }
    Ok(())
}
