//! Folders and names that survive a power cut.
//!
//! Syncing a file makes its bytes durable; its name, and that of a folder, is durable once the
//! folder that it is in is synced.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes the names in a folder durable.
///
/// # Errors
/// What the system says.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // Some network file systems have no such operation on folders: they write names through
        // by themselves.
        Err(error) if is_unsupported(&error) => Ok(()),
        result => result,
    }
}

/// Makes the name of a file or folder durable.
///
/// # Errors
/// What the system says.
pub fn sync_name(path: &Path) -> io::Result<()> {
    match sync_folder(parent(path)) {
        // A folder that may be written to and not read: what is in it may be.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => sync_file_system(path),
        result => result,
    }
}

/// Creates a folder and those above it that are missing, by `create`, and makes their names
/// durable. Of folders that are there already nothing is asked of the disk.
///
/// # Errors
/// What `create` and the system say.
pub fn create_folders(path: &Path, create: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    create(path)?;
    missing.into_iter().try_for_each(sync_name)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(target_os = "linux")]
fn sync_file_system(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// There is no call for it: the system writes the name when it writes the rest.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_missing_are_created_once() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b/c");
        let mut calls = 0;
        for _ in 0..2 {
            create_folders(&path, |path| {
                calls += 1;
                std::fs::create_dir_all(path)
            })
            .unwrap();
            assert!(path.is_dir());
        }
        assert_eq!(calls, 2);
        let file = path.join("file");
        std::fs::write(&file, "").unwrap();
        assert!(create_folders(&file.join("d"), |path| std::fs::create_dir_all(path)).is_err());
        sync_name(&file).unwrap();
        assert!(sync_name(&temp.path().join("missing/file")).is_err());
        assert!(sync_folder(&temp.path().join("missing")).is_err());
    }
}
