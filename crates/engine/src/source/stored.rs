//! The bytes of rowfiles, and what is left out of those that are not whole.
//!
//! What is on this machine may be appended to while it is read: its old end is what counts, so that,
//! unlike other files, it may grow.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use tidemill_rowfile as rowfile;
use tidemill_rowfile::ReadAt;

use super::batches::Stored;
use super::compression::Compression;
use super::input::{Access, OpenFile, Watch};
use super::listing::{self, Found};
use super::open::source_file;
use super::{Format, Place, SourceSpec};
use crate::cancel::Cancel;
use crate::coverage::Salvaged;
use crate::error::{Error, Result};
use crate::remote::StorageOptions;

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
pub(crate) fn list(
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
pub(crate) fn salvaged<'a, S: ReadAt>(
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
