//! An output that appears whole or not at all.
//!
//! The output is written to a file without a name in the target folder, and gets its name when
//! everything is there, so that neither a failure nor a kill leaves anything. If a file system does
//! not support files without names, it is a hidden file that a failure removes.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use tempfile::NamedTempFile;

use super::GnuSortError;

enum StagedOutput {
    Unnamed(File),
    Named(NamedTempFile),
    /// An irregular file at the end of all links, such as a device or a pipe, which is written in place.
    Direct(File),
}

pub(super) struct AtomicOutput {
    path: PathBuf,
    staged: StagedOutput,
    overwrite: bool,
    replaced_metadata: Option<Metadata>,
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> GnuSortError {
    GnuSortError::Io { action, path: path.to_path_buf(), source }
}

impl AtomicOutput {
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<Self, GnuSortError> {
        let at_the_end = path.metadata().ok();
        if let Some(metadata) = &at_the_end {
            if metadata.is_dir() {
                return Err(io_error("write", path, io::ErrorKind::IsADirectory.into()));
            }
            if !metadata.is_file() {
                // Opened by the given name: `/dev/stdout` may lead to a file that has no other.
                let file = File::options().write(true).open(path);
                let file = file.map_err(|error| io_error("write", path, error))?;
                return Ok(AtomicOutput::for_special_file(path, file));
            }
            if !overwrite {
                return Err(GnuSortError::OutputExists { path: path.to_path_buf() });
            }
        }
        // A link stays a link; its target is replaced.
        let place = match path.canonicalize() {
            Ok(place) => place,
            // A new file cannot take the place of an open one that has lost its name.
            Err(error) if at_the_end.is_some() => return Err(io_error("replace", path, error)),
            Err(_) => path.to_path_buf(),
        };
        let before = match place.symlink_metadata() {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io_error("write", path, error)),
        };
        if before.is_some() && !overwrite {
            return Err(GnuSortError::OutputExists { path: path.to_path_buf() });
        }
        let folder = parent_folder(&place);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let staged = match openat(CWD, folder, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => StagedOutput::Unnamed(File::from(file)),
            Err(_) => {
                let file = create_hidden_file(&place)
                    .map_err(|error| io_error("write beside", path, error))?;
                StagedOutput::Named(file)
            }
        };
        Ok(AtomicOutput { path: place, staged, overwrite, replaced_metadata: before })
    }

    fn for_special_file(path: &Path, file: File) -> Self {
        let place = path.to_path_buf();
        AtomicOutput {
            path: place,
            staged: StagedOutput::Direct(file),
            overwrite: true,
            replaced_metadata: None,
        }
    }

    pub(super) fn file(&mut self) -> &mut File {
        match &mut self.staged {
            StagedOutput::Unnamed(file) | StagedOutput::Direct(file) => file,
            StagedOutput::Named(file) => file.as_file_mut(),
        }
    }

    /// Gives the output its name.
    pub(super) fn commit(mut self, sync: bool) -> Result<(), GnuSortError> {
        let place = self.path.clone();
        let failed = |error| io_error("write", &place, error);
        if let Some(before) = self
            .replaced_metadata
            .take()
            .filter(|_| !matches!(self.staged, StagedOutput::Direct(_)))
        {
            let mode = before.permissions().mode() & 0o777;
            // The mode of somebody else's file cannot be kept; the contents are what matters.
            let _ = self.file().set_permissions(std::fs::Permissions::from_mode(mode));
        }
        if sync && !matches!(self.staged, StagedOutput::Direct(_)) {
            self.file().sync_data().map_err(failed)?;
        }
        match self.staged {
            StagedOutput::Direct(_) => return Ok(()),
            StagedOutput::Named(file) => {
                let kept = if self.overwrite {
                    file.persist(&place)
                } else {
                    file.persist_noclobber(&place)
                };
                kept.map_err(|error| exists_or_io_error(error.error, &place))?;
            }
            StagedOutput::Unnamed(file) => {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                let link = |to: &Path| {
                    linkat(CWD, &*own, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
                };
                match link(&place) {
                    Ok(()) => {}
                    Err(error)
                        if error.kind() == io::ErrorKind::AlreadyExists && self.overwrite =>
                    {
                        // A link cannot replace a name, so it gets one of its own first.
                        let mut result = Err(error);
                        for number in 0..1000 {
                            let beside = hidden_sibling(&place, number);
                            match link(&beside) {
                                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                                    continue;
                                }
                                Err(error) => result = Err(error),
                                Ok(()) => {
                                    result = std::fs::rename(&beside, &place);
                                    if result.is_err() {
                                        let _ = std::fs::remove_file(&beside);
                                    }
                                }
                            }
                            break;
                        }
                        result.map_err(failed)?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(exists_or_io_error(error, &place));
                    }
                    // Linking failed, for instance without `/proc`: copies the bytes.
                    Err(_) => copy_to_named_file(&own, &file, &place, self.overwrite, sync)?,
                }
            }
        }
        if sync {
            File::open(parent_folder(&place))
                .and_then(|folder| folder.sync_all())
                .map_err(failed)?;
        }
        Ok(())
    }
}

impl Write for AtomicOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parent_folder(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn hidden_sibling(place: &Path, number: u32) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.{}-{number}.sort", std::process::id()))
}

fn create_hidden_file(place: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".sort-")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(parent_folder(place))
}

fn exists_or_io_error(error: io::Error, place: &Path) -> GnuSortError {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return GnuSortError::OutputExists { path: place.to_path_buf() };
    }
    io_error("write", place, error)
}

fn copy_to_named_file(
    own: &str,
    file: &File,
    place: &Path,
    overwrite: bool,
    sync: bool,
) -> Result<(), GnuSortError> {
    let copy = || -> io::Result<NamedTempFile> {
        let target = create_hidden_file(place)?;
        // The file is open for writing only: it is read through its name under `/dev/fd`, if there is one.
        let mut source =
            File::open(own).or_else(|_| File::open(format!("/dev/fd/{}", file.as_raw_fd())))?;
        let mut writer = BufWriter::with_capacity(1 << 20, target);
        io::copy(&mut source, &mut writer)?;
        let target = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        if sync {
            target.as_file().sync_data()?;
        }
        Ok(target)
    };
    let target = copy().map_err(|error| io_error("write", place, error))?;
    let kept = if overwrite { target.persist(place) } else { target.persist_noclobber(place) };
    kept.map(|_| ()).map_err(|error| exists_or_io_error(error.error, place))
}
