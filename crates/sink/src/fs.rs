//! Every file-system operation of the sink, one function each: the commit's promises rest on
//! their order, and in tests any one of them can be made to fail (see [`fault`]).

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Counts an operation; in tests it may be told to fail.
#[cfg(not(test))]
#[inline]
fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
fn step() -> io::Result<()> {
    fault::step()
}

/// Creates a folder.
pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    step()?;
    fs::create_dir(path)
}

/// Creates a folder that nobody else may look into.
pub(super) fn create_dir_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    step()?;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Creates a file that must not exist yet.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    step()?;
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Opens a file for writing at its end, creating it if it is missing.
pub(super) fn append(path: &Path) -> io::Result<File> {
    step()?;
    OpenOptions::new().append(true).create(true).open(path)
}

/// Opens a file or folder for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    step()?;
    File::open(path)
}

/// Reads a small file whole; anything beyond `limit` bytes is an error.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    step()?;
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too large"));
    }
    Ok(bytes)
}

/// Writes all bytes. A fault leaves half of them written.
pub(super) fn write_all(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if let Err(fault) = step() {
        file.write_all(&bytes[..bytes.len() / 2])?;
        return Err(fault);
    }
    file.write_all(bytes)
}

/// Makes a file's bytes durable.
pub(super) fn sync(file: &File) -> io::Result<()> {
    step()?;
    file.sync_data()
}

/// Makes a folder's names durable.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    step()?;
    match File::open(path)?.sync_all() {
        // Some network file systems have no such operation on folders: they write names
        // through by themselves.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        result => result,
    }
}

/// Renames a file over whatever has the name.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    fs::rename(from, to)
}

/// Renames a file to a name that nothing has yet; [`io::ErrorKind::AlreadyExists`] otherwise.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A file system or kernel without the flag: look first. What is between the look and
        // the rename is excluded among our own runs by the lock on the folder.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes a file; one that is missing already is fine.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    step()?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Removes an empty folder; one that is missing already is fine.
pub(super) fn remove_dir(path: &Path) -> io::Result<()> {
    step()?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// What has a name, without following a symbolic link; `None` if nothing has.
pub(super) fn lstat(path: &Path) -> io::Result<Option<fs::Metadata>> {
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

/// The names in a folder.
pub(super) fn list(path: &Path) -> io::Result<Vec<OsString>> {
    step()?;
    fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// A file being written, as the writers of formats want it.
pub(super) struct Output {
    file: File,
    /// Bytes written so far.
    pub(super) bytes: u64,
}

impl Output {
    pub(super) fn new(file: File) -> Self {
        Output { file, bytes: 0 }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all(&mut self.file, bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes a lock if nobody holds it.
pub(super) fn try_lock(file: &File) -> Result<(), fs::TryLockError> {
    step().map_err(fs::TryLockError::Error)?;
    file.try_lock()
}

/// Makes everything on a folder's file system durable; `false` where there is no such call.
#[cfg(target_os = "linux")]
pub(super) fn sync_all(folder: &Path) -> io::Result<bool> {
    step()?;
    rustix::fs::syncfs(File::open(folder)?)?;
    Ok(true)
}

/// Makes everything on a folder's file system durable; `false` where there is no such call.
#[cfg(not(target_os = "linux"))]
pub(super) fn sync_all(_folder: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Makes the n-th operation of this thread fail.
#[cfg(test)]
pub(super) mod fault {
    use std::cell::Cell;
    use std::io;

    /// What happens at the chosen operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// It fails; later ones work: a full disk, a refused permission.
        Once,
        /// It and all later ones fail: from here on the process is as good as dead.
        Crash,
        /// It fails, the next so many work, and then all fail: a crash in the middle of the
        /// answer to a failure.
        OnceThenCrash(usize),
        /// The process is killed there, as by `kill -9`.
        Kill,
    }

    thread_local! {
        static PLAN: Cell<Option<(usize, Fault)>> = const { Cell::new(None) };
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// Runs `work` with its `n`-th operation (from 0) failing; says whether it came that far.
    pub(crate) fn with<T>(n: usize, fault: Fault, work: impl FnOnce() -> T) -> (T, bool) {
        COUNT.set(0);
        PLAN.set(Some((n, fault)));
        let result = work();
        PLAN.set(None);
        (result, COUNT.get() > n)
    }

    pub(super) fn step() -> io::Result<()> {
        let Some((n, fault)) = PLAN.get() else { return Ok(()) };
        let count = COUNT.get();
        COUNT.set(count + 1);
        if count == n && fault == Fault::Kill {
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::KILL);
        }
        let fails = match fault {
            Fault::Once | Fault::Kill => count == n,
            Fault::Crash => count >= n,
            Fault::OnceThenCrash(later) => count == n || count > n + later,
        };
        if fails { Err(io::Error::other("injected fault")) } else { Ok(()) }
    }
}
