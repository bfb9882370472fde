//! An output that appears whole or not at all.
//!
//! It is written to a file without a name in the folder of its place, which gets its name when
//! everything is there, so that neither a failure nor a kill leaves anything. Where a file system has
//! no files without names, it is a hidden one that a failure removes.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use tempfile::NamedTempFile;

use super::Error;

enum Staged {
    Unnamed(File),
    Named(NamedTempFile),
    /// What is no regular file, at the end of all links, is written to as it is: a device, a pipe.
    Direct(File),
}

pub(super) struct Output {
    place: PathBuf,
    staged: Staged,
    overwrite: bool,
    before: Option<Metadata>,
}

fn refused(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, path: path.to_path_buf(), source }
}

impl Output {
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<Self, Error> {
        let at_the_end = path.metadata().ok();
        if let Some(metadata) = &at_the_end {
            if metadata.is_dir() {
                return Err(refused("write", path, io::ErrorKind::IsADirectory.into()));
            }
            if !metadata.is_file() {
                // By the name that was given: `/dev/stdout` may lead to what has no other.
                let file = File::options().write(true).open(path);
                let file = file.map_err(|error| refused("write", path, error))?;
                return Ok(Output::direct(path, file));
            }
            if !overwrite {
                return Err(Error::Exists { path: path.to_path_buf() });
            }
        }
        // A link stays a link, and what it leads to is replaced.
        let place = match path.canonicalize() {
            Ok(place) => place,
            // A new file cannot take the place of an open one that has lost its name.
            Err(error) if at_the_end.is_some() => return Err(refused("replace", path, error)),
            Err(_) => path.to_path_buf(),
        };
        let before = match place.symlink_metadata() {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(refused("write", path, error)),
        };
        if before.is_some() && !overwrite {
            return Err(Error::Exists { path: path.to_path_buf() });
        }
        let folder = folder(&place);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let staged = match openat(CWD, folder, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Staged::Unnamed(File::from(file)),
            Err(_) => {
                let file = named(&place).map_err(|error| refused("write beside", path, error))?;
                Staged::Named(file)
            }
        };
        Ok(Output { place, staged, overwrite, before })
    }

    fn direct(path: &Path, file: File) -> Self {
        let place = path.to_path_buf();
        Output { place, staged: Staged::Direct(file), overwrite: true, before: None }
    }

    pub(super) fn file(&mut self) -> &mut File {
        match &mut self.staged {
            Staged::Unnamed(file) | Staged::Direct(file) => file,
            Staged::Named(file) => file.as_file_mut(),
        }
    }

    /// Gives it its name.
    pub(super) fn commit(mut self, sync: bool) -> Result<(), Error> {
        let place = self.place.clone();
        let failed = |error| refused("write", &place, error);
        if let Some(before) =
            self.before.take().filter(|_| !matches!(self.staged, Staged::Direct(_)))
        {
            let mode = before.permissions().mode() & 0o777;
            // Somebody else's file cannot have its mode kept; its content is what was asked for.
            let _ = self.file().set_permissions(std::fs::Permissions::from_mode(mode));
        }
        if sync && !matches!(self.staged, Staged::Direct(_)) {
            self.file().sync_data().map_err(failed)?;
        }
        match self.staged {
            Staged::Direct(_) => return Ok(()),
            Staged::Named(file) => {
                let kept = if self.overwrite {
                    file.persist(&place)
                } else {
                    file.persist_noclobber(&place)
                };
                kept.map_err(|error| exists_or(error.error, &place))?;
            }
            Staged::Unnamed(file) => {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                let link = |to: &Path| {
                    linkat(CWD, &*own, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
                };
                match link(&place) {
                    Ok(()) => {}
                    Err(error)
                        if error.kind() == io::ErrorKind::AlreadyExists && self.overwrite =>
                    {
                        // A name cannot be linked over: it gets one of its own first.
                        let mut result = Err(error);
                        for number in 0..1000 {
                            let beside = beside(&place, number);
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
                        return Err(exists_or(error, &place));
                    }
                    // Without `/proc`, say: the bytes are copied.
                    Err(_) => copy_named(&own, &file, &place, self.overwrite, sync)?,
                }
            }
        }
        if sync {
            File::open(folder(&place)).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn folder(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(place: &Path, number: u32) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.{}-{number}.sort", std::process::id()))
}

fn named(place: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".sort-")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder(place))
}

fn exists_or(error: io::Error, place: &Path) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Error::Exists { path: place.to_path_buf() };
    }
    refused("write", place, error)
}

fn copy_named(
    own: &str,
    file: &File,
    place: &Path,
    overwrite: bool,
    sync: bool,
) -> Result<(), Error> {
    let copy = || -> io::Result<NamedTempFile> {
        let target = named(place)?;
        // Opened for writing alone: it is read through its name under `/dev/fd`, where there is one.
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
    let target = copy().map_err(|error| refused("write", place, error))?;
    let kept = if overwrite { target.persist(place) } else { target.persist_noclobber(place) };
    kept.map(|_| ()).map_err(|error| exists_or(error.error, place))
}
