//! Resolution of local paths: the file to which a path leads, and outputs that are written directly.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::writing::path_template::PathTemplate;
use crate::{commit::file_commit, commit::fs};

/// Returns true if an output may be written to `path`: its file, or one that its template can name.
/// Returns false for an invalid template and for an output on another machine.
pub(crate) fn can_write_path(url: &str, path: &Path) -> bool {
    let Some(template) = parse_local_template(url) else { return false };
    let path = resolve_path(path);
    match template.is_partitioned() {
        false => resolve_path(&template.file_path()) == path,
        true => path
            .strip_prefix(resolve_path(&template.root))
            .is_ok_and(|below| template.can_name_path(below)),
    }
}

/// Returns the local folder of an output, which may not exist yet.
pub(crate) fn output_folder(url: &str) -> Option<PathBuf> {
    match parse_local_template(url) {
        Some(template) => Some(resolve_path(&template.root)),
        None if url.ends_with('/') && !url.contains("://") => Some(resolve_path(Path::new(url))),
        None => None,
    }
}

fn parse_local_template(url: &str) -> Option<PathTemplate> {
    let template = if url == "-" { None } else { PathTemplate::parse(url).ok() };
    template.filter(|template| template.bucket.is_none())
}

/// Resolves links, `.` and `..` in a path as far as its components exist; the result is always absolute.
pub(crate) fn resolve_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // A link to a missing file leads there all the same.
    for _ in 0..40 {
        let Ok(link) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut settled = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(settled.pop()),
            std::path::Component::CurDir => {}
            part => {
                settled.push(part);
                if let Ok(real) = std::fs::canonicalize(&settled) {
                    settled = real;
                }
            }
        }
    }
    settled
}

pub(crate) fn check_path_absent(path: &Path, overwrite: bool) -> Result<()> {
    match fs::lstat(path).map_err(|e| Error::io("read", path, e))? {
        Some(found) if found.is_dir() => Err(file_commit::folder_in_place_error(path)),
        Some(_) if !overwrite => {
            Err(Error::OutputExists { path: path.display().to_string(), more: 0 })
        }
        _ => Ok(()),
    }
}

/// Returns the number of the descriptor that a path stands for.
pub(crate) fn descriptor_number(path: &Path) -> Option<u32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?;
    number.parse().ok()
}

/// Duplicates the descriptor of standard output or standard error, which shares its position: opening
/// `/dev/stdout` anew would overwrite the start of a file to which it is redirected.
pub(crate) fn duplicate_descriptor(number: u32, url: &str) -> Result<OwnedFd> {
    let copy = match number {
        1 => io::stdout().as_fd().try_clone_to_owned(),
        _ => io::stderr().as_fd().try_clone_to_owned(),
    };
    copy.map_err(|e| Error::io("write", url, e))
}

/// Returns true if a path names a device, a pipe or a descriptor, which is written without staging.
pub(crate) fn is_direct_output(path: &Path) -> bool {
    let is_special = |found: std::fs::Metadata| {
        let kind = found.file_type();
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
    };
    descriptor_number(path).is_some() || std::fs::metadata(path).is_ok_and(is_special)
}

/// Opens a device, a pipe or a descriptor for writing. Returns `None` for a file.
pub(crate) fn open_direct_output(path: &Path) -> Result<Option<File>> {
    let error = |e| Error::io("write", path, e);
    let open = || File::options().write(true).open(path).map_err(error);
    match descriptor_number(path) {
        Some(number @ 1..=2) => {
            return Ok(Some(File::from(duplicate_descriptor(
                number,
                &path.display().to_string(),
            )?)));
        }
        Some(_) => return Ok(Some(open()?)),
        None => {}
    }
    match std::fs::metadata(path) {
        Ok(found) => {
            let kind = found.file_type();
            if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() {
                return Ok(Some(open()?));
            }
            Ok(None)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(e) => Err(error(e)),
    }
}

/// Returns the folder and the name of the file to which a path leads, following symbolic links, whether
/// it exists or not.
pub(crate) fn resolve_folder_and_name(path: &Path) -> Result<(PathBuf, String)> {
    let mut path = path.to_owned();
    // Linux follows the same number of links.
    for _ in 0..40 {
        let Ok(link) = std::fs::read_link(&path) else { break };
        // An absolute target replaces the whole path.
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name = name.ok_or_else(|| {
        Error::usage(format!("`{}` is not a name that a file can have", path.display()))
    })?;
    let root = match path.parent() {
        Some(root) if !root.as_os_str().is_empty() => root.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok((root, name))
}
