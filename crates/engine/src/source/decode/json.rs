//! JSON lines.

use arrow::datatypes::{DataType, FieldRef};
use arrow::record_batch::RecordBatch;

use super::{Fault, RecordDecoder};
use crate::error::{Error, Result};

pub(crate) fn is_supported(_data_type: &DataType) -> bool {
    false
}

pub(crate) struct JsonDecoder;

impl JsonDecoder {
    pub(crate) fn new(
        _nulls: &[String],
        _columns: Vec<(usize, FieldRef)>,
        _rows: usize,
    ) -> Result<Self> {
        Err(Error::usage("format `json` cannot be read yet"))
    }
}

impl RecordDecoder for JsonDecoder {
    fn decode(
        &mut self,
        _block: &[u8],
        _out: &mut Vec<RecordBatch>,
    ) -> std::result::Result<(), usize> {
        Ok(())
    }

    fn explain(&self, _record: &[u8]) -> Option<Fault> {
        None
    }
}
