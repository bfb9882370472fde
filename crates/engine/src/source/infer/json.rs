//! Columns of JSON lines.

use arrow::datatypes::FieldRef;

use crate::error::{Error, Result};

pub(crate) struct Inference;

impl Inference {
    pub(crate) fn new(_nulls: &[String]) -> Self {
        Self
    }

    pub(crate) fn add(&mut self, _block: &[u8], _is_first: bool, _shown: &str) -> Result<u64> {
        Err(Error::usage("format `json` cannot be read yet"))
    }

    pub(crate) fn fields(&self) -> Option<Vec<FieldRef>> {
        None
    }
}
