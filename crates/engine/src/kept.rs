//! The last result of a session, kept to be asked again.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_query::NamedSource;
use tidemill_source::SourceSpec;
use tidemill_source::formats::MemoryRows;

/// A result's rows, in memory as long as they fit.
#[derive(Debug)]
pub struct Kept {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: u64,
    bytes_max: u64,
    rows: u64,
}

impl Kept {
    /// A result without rows so far, of which at most so many bytes are kept.
    pub fn new(schema: SchemaRef, bytes_max: u64) -> Self {
        Kept { schema, batches: Vec::new(), bytes: 0, bytes_max, rows: 0 }
    }

    /// Keeps rows too. Once they are too many, all are let go.
    pub fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.bytes = self.bytes.saturating_add(batch.get_array_memory_size() as u64);
        match self.is_too_large() {
            true => self.batches = Vec::new(),
            false => self.batches.push(batch.clone()),
        }
    }

    /// Whether it was too large to be kept.
    pub fn is_too_large(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many rows there were.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows as a source of a name; none if they were too many.
    pub fn source(&self, name: &str) -> Option<NamedSource> {
        if self.is_too_large() {
            return None;
        }
        let given = MemoryRows::from_table(Arc::clone(&self.schema), self.batches.clone());
        let spec = SourceSpec { memory_rows: Some(Arc::new(given)), ..SourceSpec::default() };
        Some(NamedSource { name: name.to_owned(), spec })
    }
}
