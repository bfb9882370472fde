//! The cache of a session's last result, which later queries can read as a source.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_query::NamedSource;
use tidemill_source::SourceSpec;
use tidemill_source::formats::MemoryRows;

/// The rows of a query result, in memory up to a byte limit.
#[derive(Debug)]
pub struct ResultCache {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    cached_bytes: u64,
    cached_bytes_max: u64,
    row_count: u64,
}

impl ResultCache {
    /// Creates an empty cache that keeps at most `bytes_max` bytes.
    pub fn new(schema: SchemaRef, bytes_max: u64) -> Self {
        ResultCache {
            schema,
            batches: Vec::new(),
            cached_bytes: 0,
            cached_bytes_max: bytes_max,
            row_count: 0,
        }
    }

    /// Adds a batch. Drops all rows once they exceed the limit.
    pub fn add_batch(&mut self, batch: &RecordBatch) {
        self.row_count += batch.num_rows() as u64;
        self.cached_bytes = self.cached_bytes.saturating_add(batch.get_array_memory_size() as u64);
        match self.is_too_large() {
            true => self.batches = Vec::new(),
            false => self.batches.push(batch.clone()),
        }
    }

    /// Returns true if the result exceeded the limit, and its rows are gone.
    pub fn is_too_large(&self) -> bool {
        self.cached_bytes > self.cached_bytes_max
    }

    /// Returns the columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of rows added, including rows that were dropped.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Returns the rows as a source called `name`, or `None` if they exceeded the limit.
    pub fn to_source(&self, name: &str) -> Option<NamedSource> {
        if self.is_too_large() {
            return None;
        }
        let given = MemoryRows::from_table(Arc::clone(&self.schema), self.batches.clone());
        let spec = SourceSpec { memory_rows: Some(Arc::new(given)), ..SourceSpec::default() };
        Some(NamedSource { name: name.to_owned(), spec })
    }
}
