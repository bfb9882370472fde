//! Parquet files.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use arrow::record_batch::RecordBatch;

use super::input::Watch;
use super::read::ReadOptions;
use super::{Piece, SourceFile};
use crate::error::{Error, Result};

pub(super) fn columns(_files: &[Arc<SourceFile>]) -> Result<(Vec<FieldRef>, usize)> {
    Err(Error::usage("format `parquet` cannot be read yet"))
}

pub(super) fn row_group_runs(
    _file: &SourceFile,
    _target: u64,
    _wanted: &mut dyn FnMut(usize, usize) -> bool,
) -> Result<Vec<(Vec<usize>, u64)>> {
    Ok(vec![])
}

pub(super) struct ParquetReader;

impl ParquetReader {
    pub(super) fn open(
        _piece: &Piece,
        _columns: &[(usize, FieldRef)],
        _options: &ReadOptions,
        _watch: Watch,
    ) -> Result<Self> {
        Ok(Self)
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Ok(None)
    }
}
