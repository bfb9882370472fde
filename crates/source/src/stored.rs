//! The bytes of rowfiles, and what is left out of those that are not whole.
//!
//! What is on this machine may be appended to while it is read: its old end is what counts, so that,
//! unlike other files, it may grow.
//!
//! A block may be what its checksum says and be no rows all the same: its writer was at fault, or
//! somebody made it so. Where what is damaged is left out, each block is therefore decoded twice: all
//! of its columns, to see whether that can be done, and then what is wanted of it. So it is there
//! whole or not at all, whatever is asked for, and no more of it is in memory than elsewhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;
use tidemill_base::coverage::Salvaged;
use tidemill_base::error::{Error, Result};
use tidemill_remote::StorageOptions;
use tidemill_rowfile as rowfile;
use tidemill_rowfile::ReadAt;

use super::batches::{Stored, from_rowfile};
use super::compression::Compression;
use super::input::{Access, OpenFile, Watch};
use super::listing::{self, Found};
use super::open::source_file;
use super::{Format, Place, SourceSpec};

/// Of more files than this none is kept open between two reads.
const OPEN_MAX: usize = 64;

/// Bytes that a rowfile is read from.
pub type Bytes = Arc<dyn ReadAt>;

/// A file that is opened for each read.
struct Reopened(PathBuf);

impl ReadAt for Reopened {
    fn len(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(&self.0)?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        ReadAt::read_at(&File::open(&self.0)?, offset, into)
    }
}

/// The files that a source's URL means, by their names, beside so many others.
///
/// # Errors
/// Those of listing and of opening.
pub fn list(
    url: &str,
    storage_options: &StorageOptions,
    others: usize,
    cancel: &Cancel,
) -> Result<Vec<(String, Bytes)>> {
    let spec = SourceSpec {
        url: url.to_owned(),
        format: Some(Format::Rowfile),
        storage_options: storage_options.clone(),
        ..SourceSpec::default()
    };
    let listed = listing::list(&spec, cancel)?;
    let is_many = listed.len() + others > OPEN_MAX;
    listed.into_iter().map(|file| stored(file, is_many, cancel)).collect()
}

/// What was left out of a file, of which these blocks were whole and could not be decoded; none if
/// nothing was.
pub fn salvaged<'a, S: ReadAt>(
    name: &str,
    reader: &rowfile::Reader<S>,
    failed: impl Iterator<Item = (usize, &'a String)>,
) -> Option<Salvaged> {
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
    Some(Salvaged {
        path: name.to_owned(),
        blocks: whole,
        bytes_left_out: bytes,
        places: damages.len() as u64,
        offset,
        reason,
    })
}

/// Why the rows of a block cannot be decoded, where they cannot; `all` is for all columns as the file
/// has them.
///
/// # Errors
/// Those of reading, and to be stopped.
pub fn undecodable<S: ReadAt>(
    reader: &rowfile::Reader<S>,
    name: &str,
    all: &Arc<rowfile::Plan>,
    block: usize,
    cancel: &Cancel,
) -> Result<Option<String>> {
    let options =
        rowfile::ReadOptions { blocks: Some(vec![block]), ..rowfile::ReadOptions::default() };
    let batches = reader.read_with(Arc::clone(all), &options);
    for batch in batches.map_err(|error| from_rowfile(error, name))? {
        cancel.check()?;
        let Err(error) = batch else { continue };
        return match error {
            rowfile::Error::Io { .. } => Err(from_rowfile(error, name)),
            rowfile::Error::Damaged { reason, .. } => Ok(Some(reason)),
            rowfile::Error::Value { row, column, reason, .. } => {
                Ok(Some(format!("row {row}, column `{column}`: {reason}")))
            }
            other => Ok(Some(other.to_string())),
        };
    }
    Ok(None)
}

/// Blocks that are whole and whose rows cannot be decoded, by their numbers, and why.
pub(super) type Undecodable = Arc<Mutex<BTreeMap<usize, String>>>;

/// What was left out of a reading.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub(super) bytes: AtomicU64,
    pub(super) rows: AtomicU64,
}

/// The rows of those blocks that can be decoded.
pub(super) struct Decodable {
    pub(super) reader: rowfile::Reader<Stored>,
    /// What is wanted.
    pub(super) plan: Arc<rowfile::Plan>,
    /// All columns, as the file has them.
    pub(super) all: Arc<rowfile::Plan>,
    pub(super) blocks: std::vec::IntoIter<usize>,
    pub(super) batch_rows: usize,
    pub(super) current: Option<rowfile::Batches<Stored>>,
    pub(super) undecodable: Undecodable,
    pub(super) left_out: Arc<LeftOut>,
    pub(super) cancel: Cancel,
    pub(super) path: String,
}

impl Decodable {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.current.as_mut().and_then(Iterator::next) {
                return batch.map(Some).map_err(|error| from_rowfile(error, &self.path));
            }
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.current = None;
            if self.is_decodable(block)? {
                let options = rowfile::ReadOptions {
                    blocks: Some(vec![block]),
                    batch_rows: self.batch_rows,
                    ..rowfile::ReadOptions::default()
                };
                let batches = self.reader.read_with(Arc::clone(&self.plan), &options);
                self.current = Some(batches.map_err(|error| from_rowfile(error, &self.path))?);
            } else if let Some(info) = self.reader.blocks().get(block) {
                self.left_out.bytes.fetch_add(info.bytes.into(), Ordering::Relaxed);
                self.left_out.rows.fetch_add(info.rows.into(), Ordering::Relaxed);
            }
        }
    }

    fn is_decodable(&self, block: usize) -> Result<bool> {
        if self.undecodable.lock().contains_key(&block) {
            return Ok(false);
        }
        let reason = undecodable(&self.reader, &self.path, &self.all, block, &self.cancel)?;
        let Some(reason) = reason else { return Ok(true) };
        self.undecodable.lock().insert(block, reason);
        Ok(false)
    }
}

impl Iterator for Decodable {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

fn stored(found: Found, is_many: bool, cancel: &Cancel) -> Result<(String, Bytes)> {
    let name = found.shown.to_string();
    if let Place::Local(path) = &found.place {
        let bytes: Bytes = match is_many {
            true => Arc::new(Reopened(path.clone())),
            false => Arc::new(File::open(path).map_err(|error| Error::io("read", &name, error))?),
        };
        return Ok((name, bytes));
    }
    let file = source_file(found, 0, Compression::None, &SourceSpec::default(), cancel);
    if file.is_stream() {
        return Err(Error::usage_hint(
            format!("`{name}` cannot be read as a rowfile: its server has no ranges"),
            "a rowfile is read from its end; fetch the file first and read it from disk",
        ));
    }
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let open = OpenFile::open(&file, Access::Random, &watch)?;
    Ok((name, Arc::new(Stored::Open(open))))
}
