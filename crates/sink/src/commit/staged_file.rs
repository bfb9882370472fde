//! Staged files of any content, which appear whole or not at all.

use std::io::Write;
use std::path::Path;

use tidemill_base::cancellation::WaitCallback;
use tidemill_base::state_folder::RunId;
use tidemill_remote::location::{Location, refuse_mistyped_url};

use crate::commit::file_commit::{FileEntry, StagingFolder};
use crate::commit::fs::{self, CountingFile};
use crate::commit::local_paths::{check_path_absent, resolve_folder_and_name};
use crate::error::{Error, Result};
use crate::formats::OutputFormat;
use crate::writing::codec_resolution::resolve_codec;
use crate::writing::compression::CompressedWriter;
use crate::writing::partitioned_files::StagingArea;
use crate::writing::path_template::{self, join_below};

/// Begins one file, staged as `0` beside its final place. Returns also its final name.
///
/// # Errors
/// Returns the errors of [`Sink::create_with`](crate::Sink::create_with).
pub(crate) fn begin_staged_file(
    path: &Path,
    overwrite: bool,
    run: &RunId,
    tick: WaitCallback<'_>,
) -> Result<(StagingFolder, String, CountingFile)> {
    let (root, name) = resolve_folder_and_name(path)?;
    path_template::refuse_staging_name(&root.join(&name).display().to_string())?;
    let path = join_below(&root, &name);
    check_path_absent(&path, overwrite)?;
    let staging = StagingFolder::create(&root, &path_template::escape_braces(&name), run, tick)?;
    // Checked again: recovery may just have finished a dead run's commit.
    check_path_absent(&path, overwrite)?;
    let staged = staging.staged_path("0");
    let output = fs::create_new_file(&staged).map_err(|e| Error::io("create", &staged, e))?;
    Ok((staging, name, CountingFile::new(output)))
}

/// A staged file of any content, which appears whole or not at all, as a sink's files do.
pub struct StagedFile {
    output: CountingFile,
    staging: StagingFolder,
    name: String,
    overwrite: bool,
}

impl StagedFile {
    /// Begins a file at `path`.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::create`](crate::Sink::create).
    pub fn create(path: &Path, overwrite: bool, run: &RunId) -> Result<StagedFile> {
        path.to_str().map_or(Ok(()), refuse_mistyped_url)?;
        if let Some(Ok(Some(location))) = path.to_str().map(Location::parse) {
            return Err(Error::usage_with_hint(
                format!("a partial table cannot be written to `{location}`"),
                "write it to a file on this machine",
            ));
        }
        let (staging, name, output) = begin_staged_file(path, overwrite, run, &mut || Ok(()))?;
        Ok(StagedFile { output, staging, name, overwrite })
    }

    /// Returns the number of bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.output.bytes_written
    }

    /// Makes the file visible.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::commit`](crate::Sink::commit).
    pub fn commit(self, bytes: u64) -> Result<()> {
        let StagedFile { mut output, staging, name, overwrite } = self;
        output.flush().map_err(|e| Error::io("write", &name, e))?;
        drop(output);
        let entry = FileEntry::new("0", name, bytes);
        staging.commit(vec![entry], overwrite, &mut || Ok(()))
    }
}

/// A [`StagedFile`] of text or other plain bytes, compressed as its name's suffix tells: `.gz`, `.zst`,
/// `.bz2`, `.xz`.
pub struct CompressedStagedFile {
    compressed: CompressedWriter<StagedFile>,
    name: String,
}

impl CompressedStagedFile {
    /// Begins a file at `path`.
    ///
    /// # Errors
    /// Returns the errors of [`StagedFile::create`].
    pub fn create(path: &Path, overwrite: bool, run: &RunId) -> Result<CompressedStagedFile> {
        let name = path.to_string_lossy();
        let codec = resolve_codec(None, OutputFormat::Csv, Some(&name), false)?;
        let file = StagedFile::create(path, overwrite, run)?;
        let compressed = CompressedWriter::new(file, codec);
        let compressed = compressed.map_err(|error| Error::io("compress", path, error))?;
        Ok(CompressedStagedFile { compressed, name: name.into_owned() })
    }

    /// Makes the file visible.
    ///
    /// # Errors
    /// Returns the errors of [`StagedFile::commit`].
    pub fn commit(self) -> Result<()> {
        let CompressedStagedFile { compressed, name } = self;
        let file = compressed.finish().map_err(|error| Error::io("write", &name, error))?;
        let bytes = file.bytes_written();
        file.commit(bytes)
    }
}

impl Write for CompressedStagedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.compressed.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.compressed.flush()
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}
