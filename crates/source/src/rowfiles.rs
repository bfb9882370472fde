//! The rowfiles that a URL means, for whoever copies their blocks as they are.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use tidemill_base::cancellation::CancelFlag;
use tidemill_remote::StorageOptions;
use tidemill_rowfile::ReadAt;

use super::compression::Compression;
use super::error::{Error, Result, for_others};
use super::input::{OpenFile, ReadPattern, Watch};
use super::listing::{self, ListedFile};
use super::stored::Stored;
use super::{FileLocation, Format, SourceFile, SourceSpec};

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

/// What is elsewhere, read by those who know nothing of this crate's errors.
pub(super) struct Lent(pub(super) Stored);

impl ReadAt for Lent {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len().map_err(for_others)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, into).map_err(for_others)
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
    cancel: &CancelFlag,
) -> Result<Vec<(String, Bytes)>> {
    let spec = SourceSpec {
        url: url.to_owned(),
        format: Some(Format::Rowfile),
        storage_options: storage_options.clone(),
        ..SourceSpec::default()
    };
    let listed = listing::list(&spec, cancel, None)?;
    let is_many = listed.len() + others > OPEN_MAX;
    listed.into_iter().map(|file| stored(file, is_many, cancel)).collect()
}

fn stored(found: ListedFile, is_many: bool, cancel: &CancelFlag) -> Result<(String, Bytes)> {
    let name = found.shown.to_string();
    if let FileLocation::Local(path) = &found.place {
        let bytes: Bytes = match is_many {
            true => Arc::new(Reopened(path.clone())),
            false => Arc::new(File::open(path).map_err(|error| Error::io("read", &name, error))?),
        };
        return Ok((name, bytes));
    }
    let (spec, source) = (SourceSpec::default(), Arc::clone(&found.shown));
    let file = SourceFile::found(found, 0, Compression::None, &spec, &source, cancel);
    if file.is_stream() {
        return Err(Error::usage_hint(
            format!("`{name}` cannot be read as a rowfile: its server has no ranges"),
            "a rowfile is read from its end; fetch the file first and read it from disk",
        ));
    }
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let open = OpenFile::open(&file, ReadPattern::Random, &watch)?;
    Ok((name, Arc::new(Lent(Stored::Open(open)))))
}
