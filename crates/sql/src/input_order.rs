//! Where in a source the rows of a batch are, told from a scan to a sort whose ties keep that order.
//!
//! Threads take splits as they come to them, so that a batch's rows could be any of the source's by the time that they
//! are sorted. A scan that is [asked to](crate::session::Stable) says it in the metadata of the batch's schema, which
//! steps that make batches of their own do not hand on: the sort has to stand upon the scan.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

const KEY: &str = "tidemill.place";

/// Where the rows of a batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The split, in the order of the source.
    pub split: u32,
    /// How many batches of it came before.
    pub batch: u32,
}

impl Place {
    /// The batch, which says where its rows are. Its columns are shared.
    pub fn told(self, batch: &RecordBatch) -> RecordBatch {
        let mut said: HashMap<String, String> = batch.schema_ref().metadata().clone();
        said.insert(KEY.to_owned(), self.number().to_string());
        let schema = Schema::new_with_metadata(batch.schema_ref().fields().clone(), said);
        // The same columns, and so the same schema but for what it says.
        batch.clone().with_schema(Arc::new(schema)).unwrap_or_else(|_| batch.clone())
    }

    /// Where a batch says that its rows are.
    pub(crate) fn of(batch: &RecordBatch) -> Option<Place> {
        let number: u64 = batch.schema_ref().metadata().get(KEY)?.parse().ok()?;
        Some(Place { split: (number >> 32) as u32, batch: number as u32 })
    }

    /// A number that orders as places do.
    pub(crate) fn number(&self) -> u64 {
        u64::from(self.split) << 32 | u64::from(self.batch)
    }

    /// Whether it is the next one of the same split.
    pub(crate) fn follows(&self, before: &Place) -> bool {
        self.split == before.split && before.batch.checked_add(1) == Some(self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};

    #[test]
    fn a_batch_says_where_it_is_and_keeps_what_else_is_said() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        assert_eq!(Place::of(&batch), None);
        let said = HashMap::from([("x".to_owned(), "y".to_owned())]);
        let fields = batch.schema_ref().fields().clone();
        let schema = Arc::new(Schema::new_with_metadata(fields, said));
        let batch = batch.with_schema(schema).unwrap();
        let place = Place { split: 7, batch: u32::MAX };
        let told = place.told(&batch);
        assert_eq!(Place::of(&told), Some(place));
        assert_eq!(told.schema_ref().metadata().get("x").map(String::as_str), Some("y"));
        assert_eq!(told.columns(), batch.columns());
    }

    #[test]
    fn places_follow_within_a_split_alone() {
        let place = |split, batch| Place { split, batch };
        assert!(place(3, 5).follows(&place(3, 4)));
        assert!(!place(3, 6).follows(&place(3, 4)));
        assert!(!place(4, 5).follows(&place(3, 4)));
        assert!(!place(3, 0).follows(&place(3, u32::MAX)));
        assert!(place(3, u32::MAX).number() < place(4, 0).number());
    }
}
