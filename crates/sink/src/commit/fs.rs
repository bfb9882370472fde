//! The file-system operations of the sink, one function each: the commit's promises rest on
//! their order. Tests can make any operation fail (`fault`), and can record all operations
//! (`recorder`) to compute the states that a power cut may leave.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Counts an operation; tests can make it fail.
#[cfg(not(test))]
#[inline]
fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
fn step() -> io::Result<()> {
    fault::step()
}

/// Reports a completed operation to the `recorder`. Expands to nothing outside of tests.
macro_rules! record {
    ($($operation:tt)*) => {
        #[cfg(test)]
        recorder::$($operation)*;
    };
}

/// Creates a folder.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    step()?;
    fs::create_dir(path)?;
    record!(folder_created(path));
    Ok(())
}

/// Creates a folder and its missing parents.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    match create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                create_dir_all(parent)?;
                create_dir(path)
            }
            _ => Err(error),
        },
        result => result,
    }
}

/// Creates a folder to which only the user has access.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    step()?;
    fs::DirBuilder::new().mode(0o700).create(path)?;
    record!(folder_created(path));
    Ok(())
}

/// Creates a file that must not exist yet.
pub(crate) fn create_new_file(path: &Path) -> io::Result<File> {
    step()?;
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    record!(file_created(path, &file));
    Ok(file)
}

/// Opens a file for writing at its end, creating it if it is missing.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    step()?;
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    record!(file_opened(path, &file));
    Ok(file)
}

/// Opens a file or folder for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    step()?;
    File::open(path)
}

/// Reads a whole small file; more than `limit` bytes are an error.
pub(crate) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    step()?;
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too large"));
    }
    Ok(bytes)
}

/// Writes all bytes. An injected fault leaves half of them written.
pub(crate) fn write_all(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if let Err(fault) = step() {
        let half = &bytes[..bytes.len() / 2];
        file.write_all(half)?;
        record!(written(file, half));
        return Err(fault);
    }
    file.write_all(bytes)?;
    record!(written(file, bytes));
    Ok(())
}

/// Makes a file's bytes durable.
pub(crate) fn sync_file(file: &File) -> io::Result<()> {
    step()?;
    file.sync_data()?;
    record!(file_synced(file));
    Ok(())
}

/// Makes a folder's names durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    step()?;
    match File::open(path)?.sync_all() {
        // Some network file systems have no such operation on folders: they write names
        // through by themselves.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {}
        result => result?,
    }
    record!(folder_synced(path));
    Ok(())
}

/// Renames a file, and replaces any file of the new name.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    fs::rename(from, to)?;
    record!(renamed(from, to));
    Ok(())
}

/// Renames a file to a free name; returns [`io::ErrorKind::AlreadyExists`] if it is taken.
pub(crate) fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Without the flag in the file system or kernel, check first. The lock on the folder
        // excludes our own runs between the check and the rename.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)?;
        }
        Err(error) => return Err(error.into()),
    }
    record!(renamed(from, to));
    Ok(())
}

/// Removes a file; a missing one is no error.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    step()?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result?,
    }
    record!(removed(path));
    Ok(())
}

/// Removes an empty folder; a missing one is no error.
pub(crate) fn remove_dir(path: &Path) -> io::Result<()> {
    step()?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result?,
    }
    record!(removed(path));
    Ok(())
}

/// Returns the metadata of a path, without following a symbolic link; `None` if nothing exists there.
pub(crate) fn lstat(path: &Path) -> io::Result<Option<fs::Metadata>> {
    step()?;
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the names in a folder.
pub(crate) fn list_names(path: &Path) -> io::Result<Vec<OsString>> {
    step()?;
    fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// A file that is being written, with a count of its bytes, as a `Write` for the formats' writers.
pub(crate) struct CountingFile {
    file: File,
    /// Bytes written so far.
    pub(crate) bytes_written: u64,
}

impl CountingFile {
    pub(crate) fn new(file: File) -> Self {
        CountingFile { file, bytes_written: 0 }
    }
}

impl Write for CountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all(&mut self.file, bytes)?;
        self.bytes_written += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes a lock if it is free.
pub(crate) fn try_lock(file: &File) -> Result<(), fs::TryLockError> {
    step().map_err(fs::TryLockError::Error)?;
    file.try_lock()
}

/// Makes everything on a folder's file system durable; `false` where there is no such call.
#[cfg(target_os = "linux")]
pub(crate) fn sync_file_system(folder: &Path) -> io::Result<bool> {
    step()?;
    rustix::fs::syncfs(File::open(folder)?)?;
    record!(all_synced());
    Ok(true)
}

/// Makes everything on a folder's file system durable; `false` where there is no such call.
#[cfg(not(target_os = "linux"))]
pub(crate) fn sync_all(_folder: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Injects a fault into the n-th operation of this thread.
#[cfg(test)]
pub(crate) mod fault {
    use std::cell::Cell;
    use std::io;

    /// The effect at the chosen operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum InjectedFault {
        /// The operation fails and later ones work: a full disk, a refused permission.
        Once,
        /// The operation and all later ones fail, as if the process had died.
        Crash,
        /// The operation fails, the next `n` work, and then all fail: a crash during the
        /// handling of a failure.
        OnceThenCrash(usize),
        /// The process is killed at the operation, as by `kill -9`.
        Kill,
    }

    thread_local! {
        static PLANNED_FAULT: Cell<Option<(usize, InjectedFault)>> = const { Cell::new(None) };
        static OPERATION_COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// Runs `work` with a fault at its `n`-th operation (from 0). Returns its result, and whether it came
    /// that far.
    pub(crate) fn run_with_fault<T>(
        n: usize,
        fault: InjectedFault,
        work: impl FnOnce() -> T,
    ) -> (T, bool) {
        OPERATION_COUNT.set(0);
        PLANNED_FAULT.set(Some((n, fault)));
        let result = work();
        PLANNED_FAULT.set(None);
        (result, OPERATION_COUNT.get() > n)
    }

    pub(super) fn step() -> io::Result<()> {
        let Some((n, fault)) = PLANNED_FAULT.get() else { return Ok(()) };
        let count = OPERATION_COUNT.get();
        OPERATION_COUNT.set(count + 1);
        if count == n && fault == InjectedFault::Kill {
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::KILL);
        }
        let fails = match fault {
            InjectedFault::Once | InjectedFault::Kill => count == n,
            InjectedFault::Crash => count >= n,
            InjectedFault::OnceThenCrash(later) => count == n || count > n + later,
        };
        if fails { Err(io::Error::other("injected fault")) } else { Ok(()) }
    }
}

/// Records the operations of this thread that change the disk or make changes durable.
#[cfg(test)]
pub(crate) mod recorder {
    use std::cell::RefCell;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    /// A file's device and inode.
    pub(crate) type FileId = (u64, u64);

    /// A completed operation.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) enum RecordedOperation {
        CreateFolder(PathBuf),
        CreateFile(PathBuf, FileId),
        /// Bytes appended to a file.
        Write(FileId, Vec<u8>),
        SyncFile(FileId),
        SyncFolder(PathBuf),
        /// A call of `syncfs`.
        SyncAll,
        Rename(PathBuf, PathBuf),
        Remove(PathBuf),
    }

    struct Recorder {
        operations: Vec<RecordedOperation>,
        /// A folder with a hard link to every file, so that no file is gone before its states
        /// have been checked, and no inode is reused.
        vault: PathBuf,
    }

    thread_local! {
        static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    }

    /// Runs `work`, and returns its result and its operations.
    pub(crate) fn record_operations<T>(
        vault: &Path,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<RecordedOperation>) {
        let recorder = Recorder { operations: Vec::new(), vault: vault.to_owned() };
        RECORDER.set(Some(recorder));
        let result = work();
        let recorder = RECORDER.take().unwrap();
        (result, recorder.operations)
    }

    /// Links a file into the vault if it is not there yet; returns its id and its path in the vault.
    pub(crate) fn preserve_file(vault: &Path, path: &Path) -> (FileId, PathBuf) {
        let found = path.symlink_metadata().unwrap();
        let preserved = vault.join(found.ino().to_string());
        if !preserved.exists() {
            std::fs::hard_link(path, &preserved).unwrap();
        }
        ((found.dev(), found.ino()), preserved)
    }

    fn note(operation: impl FnOnce(&Path) -> Option<RecordedOperation>) {
        RECORDER.with_borrow_mut(|recorder| {
            if let Some(recorder) = recorder {
                recorder.operations.extend(operation(&recorder.vault));
            }
        });
    }

    fn id(file: &File) -> FileId {
        let found = file.metadata().unwrap();
        (found.dev(), found.ino())
    }

    pub(super) fn folder_created(path: &Path) {
        note(|_| Some(RecordedOperation::CreateFolder(path.to_owned())));
    }

    pub(super) fn file_created(path: &Path, file: &File) {
        note(|vault| {
            preserve_file(vault, path);
            Some(RecordedOperation::CreateFile(path.to_owned(), id(file)))
        });
    }

    /// Notes a file if opening it has created it.
    pub(super) fn file_opened(path: &Path, file: &File) {
        note(|vault| {
            let is_new = !vault.join(id(file).1.to_string()).exists();
            preserve_file(vault, path);
            is_new.then(|| RecordedOperation::CreateFile(path.to_owned(), id(file)))
        });
    }

    pub(super) fn written(file: &File, bytes: &[u8]) {
        note(|_| Some(RecordedOperation::Write(id(file), bytes.to_owned())));
    }

    pub(super) fn file_synced(file: &File) {
        note(|_| Some(RecordedOperation::SyncFile(id(file))));
    }

    pub(super) fn folder_synced(path: &Path) {
        note(|_| Some(RecordedOperation::SyncFolder(path.to_owned())));
    }

    pub(super) fn all_synced() {
        note(|_| Some(RecordedOperation::SyncAll));
    }

    pub(super) fn renamed(from: &Path, to: &Path) {
        note(|_| Some(RecordedOperation::Rename(from.to_owned(), to.to_owned())));
    }

    pub(super) fn removed(path: &Path) {
        note(|_| Some(RecordedOperation::Remove(path.to_owned())));
    }
}
