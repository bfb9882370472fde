//! Listing of the rowfiles of a URL, for callers that copy their blocks unchanged.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use tidemill_base::cancellation::CancelFlag;
use tidemill_remote::StorageOptions;
use tidemill_rowfile::ReadAt;

use crate::error::{Error, Result, to_external_error};
use crate::files::byte_input::{ByteReadContext, OpenFile, ReadPattern};
use crate::files::compression::Compression;
use crate::files::listing::{self, ListedFile};
use crate::files::rowfile_salvage::StoredRowfile;
use crate::{FileLocation, Format, SourceFile, SourceSpec};

/// Maximum number of files that stay open between two reads.
const OPEN_FILES_MAX: usize = 64;

/// The bytes of a rowfile.
pub type RowfileBytes = Arc<dyn ReadAt>;

/// A file that is opened for each read.
struct ReopeningFile(PathBuf);

impl ReadAt for ReopeningFile {
    fn len(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(&self.0)?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        ReadAt::read_at(&File::open(&self.0)?, offset, into)
    }
}

/// The bytes of a remote rowfile, for readers outside of this crate: converts its errors.
pub(crate) struct ExternalRowfileBytes(pub(crate) StoredRowfile);

impl ReadAt for ExternalRowfileBytes {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len().map_err(to_external_error)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, into).map_err(to_external_error)
    }
}

/// Lists the rowfiles of a source's URL by name. `others` is the number of files that the caller reads
/// besides.
///
/// # Errors
/// Those of listing and of opening.
pub fn list_rowfiles(
    url: &str,
    storage_options: &StorageOptions,
    others: usize,
    cancel: &CancelFlag,
) -> Result<Vec<(String, RowfileBytes)>> {
    let spec = SourceSpec {
        url: url.to_owned(),
        format: Some(Format::Rowfile),
        storage_options: storage_options.clone(),
        ..SourceSpec::default()
    };
    let listed = listing::list_source_files(&spec, cancel, None)?;
    let is_many = listed.len() + others > OPEN_FILES_MAX;
    listed.into_iter().map(|file| open_rowfile_bytes(file, is_many, cancel)).collect()
}

fn open_rowfile_bytes(
    found: ListedFile,
    is_many: bool,
    cancel: &CancelFlag,
) -> Result<(String, RowfileBytes)> {
    let name = found.display_name.to_string();
    if let FileLocation::Local(path) = &found.location {
        let bytes: RowfileBytes = match is_many {
            true => Arc::new(ReopeningFile(path.clone())),
            false => {
                Arc::new(File::open(path).map_err(|error| Error::from_io("read", &name, error))?)
            }
        };
        return Ok((name, bytes));
    }
    let (spec, source) = (SourceSpec::default(), Arc::clone(&found.display_name));
    let file = SourceFile::from_listing(found, 0, Compression::None, &spec, &source, cancel);
    if file.is_stream() {
        return Err(Error::usage_with_hint(
            format!("`{name}` cannot be read as a rowfile: its server has no ranges"),
            "a rowfile is read from its end; fetch the file first and read it from disk",
        ));
    }
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
    let open = OpenFile::open(&file, ReadPattern::Random, &watch)?;
    Ok((name, Arc::new(ExternalRowfileBytes(StoredRowfile::KeptOpen(open)))))
}
