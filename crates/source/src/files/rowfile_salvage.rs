//! Access to the bytes of rowfiles, and salvage of damaged ones.
//!
//! A local rowfile may be appended to while it is read. Readers use its old end, so that, unlike other files,
//! it may grow.
//!
//! A block may match its checksum and still hold no valid rows, because of a faulty or malicious writer. When
//! damage is skipped, each block is therefore decoded twice: first all of its columns, as a check, and then
//! the wanted ones. A block is thus read whole or not at all, whatever columns a query reads, and memory use
//! stays the same.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::{SalvagedFile, format_grouped_digits};
use tidemill_rowfile as rowfile;
use tidemill_rowfile::ReadAt;

use crate::SourceFile;
use crate::error::{Error, Result};
use crate::files::byte_input::{OpenFile, ReadPattern};

/// Reports the damage of a file; `failed` has the intact blocks that could not be decoded. None if nothing
/// was skipped.
pub fn salvage_report<'a, S: ReadAt>(
    name: &str,
    reader: &rowfile::Reader<S>,
    failed: impl Iterator<Item = (usize, &'a String)>,
) -> Option<SalvagedFile> {
    let blocks = reader.blocks();
    let mut damages: Vec<(u64, String)> = reader.damages().to_vec();
    let (mut whole, mut bytes) = (blocks.len() as u64, reader.skipped_bytes());
    for (block, reason) in failed {
        let Some(block) = blocks.get(block) else { continue };
        whole -= 1;
        bytes += u64::from(block.bytes);
        damages.push((block.offset, reason.clone()));
    }
    damages.sort_by_key(|(offset, _)| *offset);
    let (offset, reason) = damages.first()?.clone();
    Some(SalvagedFile {
        path: name.to_owned(),
        blocks: whole,
        bytes_left_out: bytes,
        places: damages.len() as u64,
        offset,
        reason,
    })
}

/// Returns the reason why the rows of a block cannot be decoded, if they cannot; `all` is the plan for all
/// columns as the file has them.
///
/// # Errors
/// Those of reading, and of cancellation.
pub fn find_undecodable_reason<S: ReadAt>(
    reader: &rowfile::Reader<S>,
    name: &str,
    all: &Arc<rowfile::RowDecodePlan>,
    block: usize,
    cancel: &CancelFlag,
) -> Result<Option<String>> {
    let options =
        rowfile::ReadOptions { blocks: Some(vec![block]), ..rowfile::ReadOptions::default() };
    let batches = reader.read_with_plan(Arc::clone(all), &options);
    for batch in batches.map_err(|error| error_from_rowfile(error, name))? {
        cancel.check()?;
        let Err(error) = batch else { continue };
        return match error {
            rowfile::Error::Io { .. } => Err(error_from_rowfile(error, name)),
            rowfile::Error::Damaged { reason, .. } => Ok(Some(reason)),
            rowfile::Error::InvalidValue { row, column, reason, .. } => {
                Ok(Some(format!("row {row}, column `{column}`: {reason}")))
            }
            other => Ok(Some(other.to_string())),
        };
    }
    Ok(None)
}

/// Intact blocks whose rows cannot be decoded, by number, with the reason.
pub(crate) type UndecodableBlocks = Arc<Mutex<BTreeMap<usize, String>>>;

/// Bytes and rows that a read has skipped.
#[derive(Debug, Default)]
pub(crate) struct SkippedRows {
    pub(crate) bytes: AtomicU64,
    pub(crate) rows: AtomicU64,
}

/// Reads the rows of those blocks that can be decoded.
pub(crate) struct DecodableRows {
    pub(crate) reader: rowfile::Reader<StoredRowfile>,
    /// The plan for the wanted columns.
    pub(crate) plan: Arc<rowfile::RowDecodePlan>,
    /// The plan for all columns, as the file has them.
    pub(crate) all_columns: Arc<rowfile::RowDecodePlan>,
    pub(crate) blocks: std::vec::IntoIter<usize>,
    pub(crate) batch_rows: usize,
    pub(crate) current: Option<rowfile::RowfileBatches<StoredRowfile>>,
    pub(crate) undecodable_blocks: UndecodableBlocks,
    pub(crate) skipped_rows: Arc<SkippedRows>,
    pub(crate) cancel: CancelFlag,
    pub(crate) path: String,
}

impl DecodableRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.current.as_mut().and_then(Iterator::next) {
                return batch.map(Some).map_err(|error| error_from_rowfile(error, &self.path));
            }
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.current = None;
            if self.is_decodable(block)? {
                let options = rowfile::ReadOptions {
                    blocks: Some(vec![block]),
                    batch_rows: self.batch_rows,
                    ..rowfile::ReadOptions::default()
                };
                let batches = self.reader.read_with_plan(Arc::clone(&self.plan), &options);
                self.current =
                    Some(batches.map_err(|error| error_from_rowfile(error, &self.path))?);
            } else if let Some(info) = self.reader.blocks().get(block) {
                self.skipped_rows.bytes.fetch_add(info.bytes.into(), Ordering::Relaxed);
                self.skipped_rows.rows.fetch_add(info.rows.into(), Ordering::Relaxed);
            }
        }
    }

    fn is_decodable(&self, block: usize) -> Result<bool> {
        if self.undecodable_blocks.lock().contains_key(&block) {
            return Ok(false);
        }
        let reason = find_undecodable_reason(
            &self.reader,
            &self.path,
            &self.all_columns,
            block,
            &self.cancel,
        )?;
        let Some(reason) = reason else { return Ok(true) };
        self.undecodable_blocks.lock().insert(block, reason);
        Ok(false)
    }
}

impl Iterator for DecodableRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// The bytes of a local or remote rowfile.
#[derive(Debug)]
pub(crate) enum StoredRowfile {
    /// Opened for each read, so that of many files only those being read are open.
    OpenedPerRead(Box<SourceFile>),
    KeptOpen(OpenFile),
}

impl rowfile::ReadAt for StoredRowfile {
    fn len(&self) -> io::Result<u64> {
        Ok(match self {
            StoredRowfile::OpenedPerRead(file) => file.size(),
            StoredRowfile::KeptOpen(open) => open.size(),
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = match self {
            StoredRowfile::KeptOpen(open) => open.read_at(into, offset),
            StoredRowfile::OpenedPerRead(file) => {
                OpenFile::open(file, ReadPattern::Random, &file.read_context())
                    .and_then(|open| open.read_at(into, offset))
            }
        };
        match read {
            Ok(count) if count == into.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// Opens a reader whose file is opened for each read.
pub(crate) fn open_rowfile_per_read(file: &SourceFile) -> Result<rowfile::Reader<StoredRowfile>> {
    open_stored_rowfile(StoredRowfile::OpenedPerRead(Box::new(file.clone_unopened())), file)
}

pub(crate) fn open_stored_rowfile(
    stored: StoredRowfile,
    file: &SourceFile,
) -> Result<rowfile::Reader<StoredRowfile>> {
    let reader = match file.salvage_damaged {
        true => rowfile::Reader::open_for_salvage(stored, file.display_name()),
        false => rowfile::Reader::new(stored, file.display_name()),
    };
    reader.map_err(|error| error_from_rowfile(error, file.display_name()))
}

/// Converts an error of the rowfile crate.
pub fn error_from_rowfile(error: rowfile::Error, path: &str) -> Error {
    match error {
        rowfile::Error::Io { error, .. } => Error::from_io("read", path, error),
        rowfile::Error::Truncated { blocks, rows, .. } => {
            let text = error.to_string();
            let reason = text.split("\nhint: ").next().unwrap_or_default().to_owned();
            let count = |count: u64, what: &str| match count {
                1 => format!("1 {what}"),
                count => format!("{} {what}s", format_grouped_digits(count)),
            };
            let (blocks, rows) = (count(blocks as u64, "whole block"), count(rows, "row"));
            let hint = format!("--salvage reads the {blocks} before that, with {rows}");
            Error::Rowfile { path: path.to_owned(), reason, hint: Some(hint) }
        }
        // The request does not fit the file; the file is not at fault.
        rowfile::Error::IncompatibleSchemas(conflicts) => {
            Error::usage(format!("`{path}`: {conflicts}"))
        }
        rowfile::Error::InvalidValue { .. } | rowfile::Error::InvalidSchema { .. } => {
            Error::usage(error.to_string())
        }
        rowfile::Error::UnsupportedType { .. } | rowfile::Error::SchemaMismatch { .. } => {
            Error::usage(error.to_string())
        }
        other => {
            let text = other.to_string();
            let (reason, hint) = match text.split_once("\nhint: ") {
                Some((reason, hint)) => (reason.to_owned(), Some(hint.to_owned())),
                None => (text, None),
            };
            Error::Rowfile { path: path.to_owned(), reason, hint }
        }
    }
}
