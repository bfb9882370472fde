//! Positions of batches within a source, passed from a scan to a sort whose ties keep the source's order.
//!
//! Threads take splits from a shared queue, so that a batch alone does not show from which part of the source
//! its rows come. A scan in a session that is marked as a [stable sort](StableSort) writes
//! the position into the metadata of the batch's schema. Operators that build new batches drop it, so the
//! sort must be directly above the scan.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

/// Marks a session that runs one stable sort of a source; an extension of its configuration. Scans attach to
/// each batch the position of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StableSort {
    /// Number of rows that the query needs, if it has a limit.
    pub rows_max: Option<u64>,
}

const POSITION_METADATA_KEY: &str = "tidemill.place";

/// The position of a batch within its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchPosition {
    /// Index of the split, in the order of the source.
    pub split_index: u32,
    /// Number of batches of the split before this one.
    pub batch_index: u32,
}

impl BatchPosition {
    /// Returns the batch with this position in its schema's metadata. The columns are shared.
    pub fn attach_to(self, batch: &RecordBatch) -> RecordBatch {
        let mut said: HashMap<String, String> = batch.schema_ref().metadata().clone();
        said.insert(POSITION_METADATA_KEY.to_owned(), self.sort_key().to_string());
        let schema = Schema::new_with_metadata(batch.schema_ref().fields().clone(), said);
        // The schemas differ only in metadata, so this cannot fail.
        batch.clone().with_schema(Arc::new(schema)).unwrap_or_else(|_| batch.clone())
    }

    /// Returns the position that is attached to a batch.
    pub(crate) fn from_batch(batch: &RecordBatch) -> Option<BatchPosition> {
        let number: u64 = batch.schema_ref().metadata().get(POSITION_METADATA_KEY)?.parse().ok()?;
        Some(BatchPosition { split_index: (number >> 32) as u32, batch_index: number as u32 })
    }

    /// Returns a number that orders as positions do.
    pub(crate) fn sort_key(&self) -> u64 {
        u64::from(self.split_index) << 32 | u64::from(self.batch_index)
    }

    /// Returns true if this is the batch after `before` in the same split.
    pub(crate) fn is_directly_after(&self, before: &BatchPosition) -> bool {
        self.split_index == before.split_index
            && before.batch_index.checked_add(1) == Some(self.batch_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};

    #[test]
    fn attached_position_keeps_other_metadata() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        assert_eq!(BatchPosition::from_batch(&batch), None);
        let said = HashMap::from([("x".to_owned(), "y".to_owned())]);
        let fields = batch.schema_ref().fields().clone();
        let schema = Arc::new(Schema::new_with_metadata(fields, said));
        let batch = batch.with_schema(schema).unwrap();
        let place = BatchPosition { split_index: 7, batch_index: u32::MAX };
        let told = place.attach_to(&batch);
        assert_eq!(BatchPosition::from_batch(&told), Some(place));
        assert_eq!(told.schema_ref().metadata().get("x").map(String::as_str), Some("y"));
        assert_eq!(told.columns(), batch.columns());
    }

    #[test]
    fn positions_follow_only_within_one_split() {
        let place = |split, batch| BatchPosition { split_index: split, batch_index: batch };
        assert!(place(3, 5).is_directly_after(&place(3, 4)));
        assert!(!place(3, 6).is_directly_after(&place(3, 4)));
        assert!(!place(4, 5).is_directly_after(&place(3, 4)));
        assert!(!place(3, 0).is_directly_after(&place(3, u32::MAX)));
        assert!(place(3, u32::MAX).sort_key() < place(4, 0).sort_key());
    }
}
