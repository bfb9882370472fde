//! The last result of a session, kept to be asked again.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_query::NamedSource;
use tidemill_source::SourceSpec;
use tidemill_source::formats::MemoryRows;

/// A result's rows, in memory as long as they fit.
#[derive(Debug)]
pub struct ResultCache {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    cached_bytes: u64,
    cached_bytes_max: u64,
    row_count: u64,
}

impl ResultCache {
    /// A result without rows so far, of which at most so many bytes are kept.
    pub fn new(schema: SchemaRef, bytes_max: u64) -> Self {
        ResultCache {
            schema,
            batches: Vec::new(),
            cached_bytes: 0,
            cached_bytes_max: bytes_max,
            row_count: 0,
        }
    }

    /// Keeps rows too. Once they are too many, all are let go.
    pub fn add_batch(&mut self, batch: &RecordBatch) {
        self.row_count += batch.num_rows() as u64;
        self.cached_bytes = self.cached_bytes.saturating_add(batch.get_array_memory_size() as u64);
        match self.is_too_large() {
            true => self.batches = Vec::new(),
            false => self.batches.push(batch.clone()),
        }
    }

    /// Whether it was too large to be kept.
    pub fn is_too_large(&self) -> bool {
        self.cached_bytes > self.cached_bytes_max
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many rows there were.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// The rows as a source of a name; none if they were too many.
    pub fn to_source(&self, name: &str) -> Option<NamedSource> {
        if self.is_too_large() {
            return None;
        }
        let given = MemoryRows::from_table(Arc::clone(&self.schema), self.batches.clone());
        let spec = SourceSpec { memory_rows: Some(Arc::new(given)), ..SourceSpec::default() };
        Some(NamedSource { name: name.to_owned(), spec })
    }
}
