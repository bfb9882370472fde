//! Folders and names that survive a power cut.
//!
//! Syncing a file makes its bytes durable. The name of a file or folder becomes durable when its
//! parent folder is synced.
//!
//! A folder that exists may have a name that is not durable: another program may have created it a
//! moment ago and never sync it, or was killed before it could. No attribute distinguishes such a
//! folder from an old one. Hence content counts as durable only after every folder above it, up to
//! the mount point, has been synced. Syncing an unchanged folder took 0.08 ms (ext4 on a virtual
//! disk).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// Makes the names in a folder durable.
///
/// # Errors
/// Returns an error if the folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // Some network file systems cannot sync folders; they write names through themselves.
        Err(error) if is_unsupported(&error) => Ok(()),
        result => result,
    }
}

/// Makes the path of a file or folder durable: its name, and the names of all folders above it up to the
/// mount point.
///
/// # Errors
/// Returns an error if one of the folders cannot be synced.
pub fn sync_path(path: &Path) -> io::Result<()> {
    let parent = parent_or_current(path);
    let folders = std::iter::once(parent.to_owned()).chain(ancestors_to_mount(parent)?);
    sync_folders(folders, path, sync_folder)
}

/// Syncs folders of the file system of `path`.
fn sync_folders(
    folders: impl IntoIterator<Item = PathBuf>,
    path: &Path,
    mut sync: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    for folder in folders {
        match sync(&folder) {
            // The folder may be writable but not readable. Syncing the file system covers all that remain.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return sync_file_system(path);
            }
            result => result?,
        }
    }
    Ok(())
}

/// Creates a folder and its missing parents with `create`, and makes the names of the folder and of
/// all its ancestors durable, up to the mount point, whether or not they existed.
///
/// # Errors
/// Returns the error of `create`, or an error if a name cannot be made durable.
pub fn create_folders_durably(
    path: &Path,
    create: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    create_folders_durably_with(path, create, sync_folder)
}

fn create_folders_durably_with(
    path: &Path,
    create: impl FnOnce(&Path) -> io::Result<()>,
    sync: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    create(path)?;
    sync_folders(ancestors_to_mount(path)?, path, sync)
}

/// Returns the ancestors of a folder on its file system, innermost first: the folders that have to
/// be synced to make the folder's path durable. Resolves symbolic links.
///
/// Leaves out ancestors that this user may neither read nor write: they cannot be synced, and no
/// run of this user has created a name in them.
///
/// # Errors
/// Returns an error if the folder does not exist or cannot be reached.
pub fn ancestors_to_mount(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Without links, `.` and `..`, the parent in the path is the folder that holds the name.
    let path = std::fs::canonicalize(folder)?;
    let device = std::fs::metadata(&path)?.dev();
    let mut ancestors = Vec::new();
    for ancestor in path.ancestors().skip(1) {
        if std::fs::metadata(ancestor)?.dev() != device {
            break;
        }
        let is_allowed = |access| rustix::fs::access(ancestor, access).is_ok();
        if is_allowed(Access::READ_OK) || is_allowed(Access::WRITE_OK) {
            ancestors.push(ancestor.to_owned());
        }
    }
    Ok(ancestors)
}

fn parent_or_current(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(target_os = "linux")]
fn sync_file_system(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Does nothing: only Linux has `syncfs`. The system writes the name in its own time.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folders_are_created_once() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b/c");
        let mut calls = 0;
        for _ in 0..2 {
            create_folders_durably(&path, |path| {
                calls += 1;
                std::fs::create_dir_all(path)
            })
            .unwrap();
            assert!(path.is_dir());
        }
        assert_eq!(calls, 2);
        let file = path.join("file");
        std::fs::write(&file, "").unwrap();
        assert!(
            create_folders_durably(&file.join("d"), |path| std::fs::create_dir_all(path)).is_err()
        );
        sync_path(&file).unwrap();
        assert!(sync_path(&temp.path().join("missing/file")).is_err());
        assert!(sync_folder(&temp.path().join("missing")).is_err());
    }

    #[test]
    fn every_folder_above_a_new_one_is_synced_even_if_it_exists() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        // Another program has created `a` and not synced it.
        std::fs::create_dir(root.join("a")).unwrap();
        let path = root.join("a/b/c");
        for _ in 0..2 {
            let mut synced = Vec::new();
            let note = |folder: &Path| {
                synced.push(folder.to_owned());
                Ok(())
            };
            create_folders_durably_with(&path, |path| std::fs::create_dir_all(path), note).unwrap();
            assert_eq!(synced[..3], [root.join("a/b"), root.join("a"), root.clone()]);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_synced_with_its_file_system() {
        let temp = tempfile::tempdir().unwrap();
        let denied = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
        create_folders_durably_with(
            &temp.path().join("a"),
            |path| std::fs::create_dir(path),
            denied,
        )
        .unwrap();
    }

    #[test]
    fn ancestors_resolve_links_and_relative_paths() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
        for path in ["a/b", "link", "a/../link", "a/b/."] {
            let ancestors = ancestors_to_mount(&root.join(path)).unwrap();
            assert_eq!(ancestors[..2], [root.join("a"), root.clone()], "{path}");
        }
        assert_eq!(
            ancestors_to_mount(Path::new("")).unwrap(),
            ancestors_to_mount(Path::new(".")).unwrap()
        );
        assert!(ancestors_to_mount(&root.join("missing")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn ancestors_end_at_the_mount_point() {
        let process = Path::new("/proc").join(std::process::id().to_string());
        let ancestors = ancestors_to_mount(&process.join("task")).unwrap();
        assert_eq!(ancestors, [process, PathBuf::from("/proc")]);
    }
}
