//! Integrity check of rowfiles, and salvage of damaged ones.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::progress::RunProgress;
use tidemill_rowfile as rowfile;

use crate::error::{Error, Result};
use crate::files::byte_input::{ByteReadContext, OpenFile, ReadPattern};
use crate::files::compression::Compression;
use crate::files::rowfile_salvage::{StoredRowfile, error_from_rowfile};
use crate::{Format, SourceFile, SourceSpec, files::listing};

/// The result of checking all bytes of a rowfile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowfileCheck {
    /// The path or URL.
    pub path: String,
    /// True if every byte is as it was written.
    pub whole: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// Number of intact blocks.
    pub blocks: u64,
    /// Number of rows in these blocks.
    pub rows: u64,
    /// Compression of its blocks: `none`, `lz4` or `zstd:1`; none if this release does not know it.
    pub codec: Option<String>,
    /// Bytes behind the end, of an append that is in progress or was killed. They do no harm.
    pub unfinished_bytes: u64,
    /// The damaged places.
    pub damages: Vec<RowfileDamage>,
}

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowfileDamage {
    /// Offset of its first byte.
    pub offset: u64,
    /// The damage.
    pub reason: String,
}

/// The result of salvaging a damaged rowfile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowfileSalvage {
    /// Number of intact blocks.
    pub blocks: u64,
    /// Number of rows in these blocks.
    pub rows: u64,
    /// The damaged places, which were not kept.
    pub damages: Vec<RowfileDamage>,
}

/// A rowfile's bytes, which are counted as they are read.
struct CountedRowfile {
    stored: StoredRowfile,
    progress: RunProgress,
}

impl rowfile::ReadAt for CountedRowfile {
    fn len(&self) -> io::Result<u64> {
        self.stored.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.stored.read_at(offset, into)?;
        self.progress.add_bytes(into.len() as u64);
        Ok(())
    }
}

/// Rowfiles to be checked.
#[derive(Debug)]
pub struct CheckableRowfiles {
    files: Vec<Arc<SourceFile>>,
    watch: ByteReadContext,
}

impl CheckableRowfiles {
    /// Lists the files of the definition's URLs, whatever their suffix. `progress` counts their bytes as they
    /// are read.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Usage`], [`Error::Io`].
    pub fn list(spec: &SourceSpec, cancel: &CancelFlag, progress: &RunProgress) -> Result<Self> {
        if spec.urls().any(|url| url == "-") {
            return Err(Error::usage_with_hint(
                "standard input cannot be checked: a rowfile is read from its end",
                "write it to a file first",
            ));
        }
        let spec = SourceSpec { format: Some(Format::Rowfile), ..spec.clone() };
        let found = listing::list_source_files(&spec, cancel, None)?.into_iter().enumerate();
        let files = found.map(|(index, found)| {
            let source = Arc::clone(&found.display_name);
            SourceFile::from_listing(found, index, Compression::None, &spec, &source, cancel)
        });
        let files: Vec<Arc<SourceFile>> = files.collect();
        progress.set_bytes_total(files.iter().map(|file| file.size()).sum());
        let watch = ByteReadContext {
            cancel: cancel.clone(),
            progress: progress.clone(),
            ..ByteReadContext::default()
        };
        Ok(CheckableRowfiles { files, watch })
    }

    /// Returns the number of files.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    fn open_counted(&self, index: usize) -> Result<(&SourceFile, CountedRowfile)> {
        let Some(file) = self.files.get(index) else {
            return Err(Error::Internal(format!("there is no file {index}")));
        };
        let open = OpenFile::open(file, ReadPattern::Random, &self.watch)?;
        let progress = self.watch.progress.clone();
        Ok((file, CountedRowfile { stored: StoredRowfile::KeptOpen(open), progress }))
    }

    /// Reads every byte of a file and verifies every checksum.
    ///
    /// # Errors
    /// [`Error::Rowfile`] if the file is no rowfile or its header is damaged; [`Error::Io`] and
    /// [`Error::Interrupted`].
    pub fn check_file(&self, index: usize) -> Result<RowfileCheck> {
        let (file, stored) = self.open_counted(index)?;
        let path = file.display_name().to_owned();
        let failed = |error| error_from_rowfile(error, &path);
        let checked =
            |reader: &rowfile::Reader<CountedRowfile>, damages: Vec<RowfileDamage>| RowfileCheck {
                path: path.clone(),
                whole: damages.is_empty(),
                bytes: file.size(),
                blocks: reader.blocks().len() as u64,
                rows: reader.row_count(),
                codec: match reader.codec() {
                    rowfile::Codec::None => Some("none".to_owned()),
                    rowfile::Codec::Lz4 => Some("lz4".to_owned()),
                    rowfile::Codec::Zstd(level) => Some(format!("zstd:{level}")),
                    _ => None,
                },
                unfinished_bytes: reader.unfinished_bytes(),
                damages,
            };
        match rowfile::Reader::new(stored, &path) {
            Ok(reader) => {
                let found = reader.find_damages().map_err(failed)?;
                let lost: Vec<u64> = found.iter().map(|(offset, _)| *offset).collect();
                let whole: Vec<_> =
                    reader.blocks().iter().filter(|it| !lost.contains(&it.offset)).collect();
                Ok(RowfileCheck {
                    blocks: whole.len() as u64,
                    rows: whole.iter().map(|block| u64::from(block.rows)).sum(),
                    ..checked(&reader, to_damages(found))
                })
            }
            Err(rowfile::Error::Io { error, .. }) => Err(Error::from_io("read", &path, error)),
            Err(first @ (rowfile::Error::Truncated { .. } | rowfile::Error::Damaged { .. })) => {
                // Its header may be intact nevertheless.
                let (_, stored) = self.open_counted(index)?;
                match rowfile::Reader::open_for_salvage(stored, &path) {
                    Ok(reader) => Ok(checked(&reader, to_damages(reader.damages().to_vec()))),
                    Err(rowfile::Error::Io { error, .. }) => {
                        Err(Error::from_io("read", &path, error))
                    }
                    Err(_) => Err(failed(first)),
                }
            }
            Err(other) => Err(failed(other)),
        }
    }

    /// Writes every intact block of a file to `out`, as a rowfile of the same schema.
    ///
    /// # Errors
    /// As [`check_file`](Self::check_file), and those of writing.
    pub fn salvage_file<W: Write>(
        &self,
        index: usize,
        out: W,
        name: &str,
    ) -> Result<(W, RowfileSalvage)> {
        let (file, stored) = self.open_counted(index)?;
        match rowfile::salvage(stored, file.display_name(), out) {
            Ok((out, kept)) => {
                let damages = to_damages(kept.damages);
                Ok((out, RowfileSalvage { blocks: kept.blocks as u64, rows: kept.rows, damages }))
            }
            Err(rowfile::Error::Io { file: at, error }) => {
                let (action, path) =
                    if at == file.display_name() { ("read", at.as_str()) } else { ("write", name) };
                Err(Error::from_io(action, path, error))
            }
            Err(other) => Err(error_from_rowfile(other, file.display_name())),
        }
    }
}

fn to_damages(found: Vec<(u64, String)>) -> Vec<RowfileDamage> {
    found.into_iter().map(|(offset, reason)| RowfileDamage { offset, reason }).collect()
}
