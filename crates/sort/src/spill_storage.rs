//! Storage for spilled data: one unnamed file in each spill folder.
//!
//! The operating system reclaims a file without a name however the process ends, so a
//! kill leaves nothing, and two sorts in one folder do not interfere. The file is created when
//! something is first written to it. Each write takes the next bytes of the file, rounded up to the
//! pages of a file system. If room is short, an extent is returned as a hole after its last read,
//! so that the file takes only as much of the disk as is still needed.
//!
//! Writes alternate between the folders. A full folder is skipped from then on, and so is one whose file may
//! not grow (`ulimit -f`), which is different from a full disk. The sort fails when all are, with the number
//! of bytes still to be written, or with the limit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};

const PAGE_BYTES: u64 = 4096;

/// Number and bytes of a sort's disk operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Writes to spill files.
    pub writes: u64,
    /// Bytes written to spill files.
    pub write_bytes: u64,
    /// Reads from spill files.
    pub reads: u64,
    /// Bytes read from spill files.
    pub read_bytes: u64,
}

impl DiskCounts {
    /// Returns the number of reads and writes.
    pub fn operations(&self) -> u64 {
        self.writes + self.reads
    }

    /// Returns the bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.write_bytes + self.read_bytes
    }
}

#[derive(Debug, Default)]
struct DiskCounters {
    writes: AtomicU64,
    write_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

/// A byte range of a spill file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpillExtent {
    folder: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// Offset of the same bytes in the folder of copies.
    copy_offset: Option<u64>,
}

#[derive(Debug)]
struct SortSpillFolder {
    path: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    end_offset: AtomicU64,
    is_full: AtomicBool,
    /// True if the folder is full because of the limit of a file's size.
    is_size_limited: AtomicBool,
}

impl SortSpillFolder {
    fn new(path: PathBuf) -> Self {
        SortSpillFolder {
            path,
            file: Mutex::default(),
            end_offset: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            is_size_limited: AtomicBool::new(false),
        }
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock();
        match &*file {
            Some(file) => Ok(Arc::clone(file)),
            None => Ok(Arc::clone(file.insert(Arc::new(tempfile::tempfile_in(&self.path)?)))),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let stats = rustix::fs::statvfs(&self.path).ok()?;
        Some(stats.f_bavail.saturating_mul(stats.f_frsize))
    }
}

#[derive(Debug)]
pub(crate) struct SpillStorage {
    folders: Vec<SortSpillFolder>,
    copies: Option<SortSpillFolder>,
    next_folder: AtomicUsize,
    counters: DiskCounters,
    /// Bytes that the sort is expected to write, for the message of a full disk; zero if unknown.
    expected_bytes: u64,
    #[cfg(test)]
    pub(crate) fault: fault::InjectedSpillFault,
}

impl SpillStorage {
    pub(crate) fn new(folders: &[PathBuf], copies: Option<&Path>, expected_bytes: u64) -> Self {
        SpillStorage {
            folders: folders.iter().cloned().map(SortSpillFolder::new).collect(),
            copies: copies.map(|path| SortSpillFolder::new(path.to_path_buf())),
            next_folder: AtomicUsize::new(0),
            counters: DiskCounters::default(),
            expected_bytes,
            #[cfg(test)]
            fault: fault::InjectedSpillFault::default(),
        }
    }

    pub(crate) fn disk_counts(&self) -> DiskCounts {
        let DiskCounters { writes, write_bytes, reads, read_bytes } = &self.counters;
        let [writes, write_bytes, reads, read_bytes] =
            [writes, write_bytes, reads, read_bytes].map(|counter| counter.load(Ordering::Relaxed));
        DiskCounts { writes, write_bytes, reads, read_bytes }
    }

    /// Returns the length of each folder's file.
    #[cfg(test)]
    pub(crate) fn file_bytes(&self) -> Vec<u64> {
        self.folders.iter().map(|folder| folder.end_offset.load(Ordering::Relaxed)).collect()
    }

    /// Writes bytes in one operation.
    pub(crate) fn write_extent(&self, bytes: &[u8]) -> Result<SpillExtent> {
        let first = self.next_folder.fetch_add(1, Ordering::Relaxed);
        let mut refused = None;
        for step in 0..self.folders.len() {
            let index = (first + step) % self.folders.len();
            let folder = &self.folders[index];
            if folder.is_full.load(Ordering::Relaxed) && self.folders.len() > 1 {
                continue;
            }
            match self.append_to_folder(folder, bytes) {
                Ok(offset) => {
                    let copy = match &self.copies {
                        Some(copies) => {
                            Some(self.append_to_folder(copies, bytes).map_err(|error| {
                                if is_full_error(&error) {
                                    mark_full(copies, &error);
                                    self.full_error(
                                        std::slice::from_ref(copies),
                                        bytes.len(),
                                        error,
                                    )
                                } else {
                                    Error::io_error("spill to", &copies.path, error)
                                }
                            })?)
                        }
                        None => None,
                    };
                    return Ok(SpillExtent {
                        folder: index,
                        offset,
                        bytes: bytes.len(),
                        copy_offset: copy,
                    });
                }
                Err(error) if is_full_error(&error) => {
                    mark_full(folder, &error);
                    refused = Some(error);
                }
                Err(error) => return Err(Error::io_error("spill to", &folder.path, error)),
            }
        }
        let refused = refused.unwrap_or_else(|| io::ErrorKind::StorageFull.into());
        Err(self.full_error(&self.folders, bytes.len(), refused))
    }

    fn full_error(&self, folders: &[SortSpillFolder], bytes: usize, source: io::Error) -> Error {
        let is_limited = |folder: &SortSpillFolder| folder.is_size_limited.load(Ordering::Relaxed);
        if let (Some(last), true) = (folders.last(), folders.iter().all(is_limited)) {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
            let (folder, limit_bytes) = (last.path.clone(), limit.current);
            return Error::FileSizeLimit { folder, limit_bytes, source };
        }
        let written = self.counters.write_bytes.load(Ordering::Relaxed);
        Error::DiskFull {
            needed_bytes: self.expected_bytes.saturating_sub(written).max(bytes as u64),
            folders: folders
                .iter()
                .map(|folder| (folder.path.clone(), folder.free_bytes()))
                .collect(),
            source,
        }
    }

    fn append_to_folder(&self, folder: &SortSpillFolder, bytes: &[u8]) -> io::Result<u64> {
        #[cfg(test)]
        self.fault.before_write()?;
        let length = bytes.len() as u64;
        let offset =
            folder.end_offset.fetch_add(length.next_multiple_of(PAGE_BYTES), Ordering::Relaxed);
        folder.file()?.write_all_at(bytes, offset)?;
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.write_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(offset)
    }

    /// Reads an extent in one operation; `into` has its length.
    pub(crate) fn read_extent(&self, extent: &SpillExtent, into: &mut [u8]) -> Result<()> {
        self.read_from(&self.folders[extent.folder], extent.offset, into)
    }

    /// Reads an extent's copy; `false` if there is none.
    pub(crate) fn read_copy(&self, extent: &SpillExtent, into: &mut [u8]) -> Result<bool> {
        match (&self.copies, extent.copy_offset) {
            (Some(folder), Some(offset)) => self.read_from(folder, offset, into).map(|()| true),
            _ => Ok(false),
        }
    }

    fn read_from(&self, folder: &SortSpillFolder, offset: u64, into: &mut [u8]) -> Result<()> {
        let read = folder.file().and_then(|file| {
            #[cfg(test)]
            let number = self.fault.before_read()?;
            file.read_exact_at(into, offset)?;
            #[cfg(test)]
            self.fault.after_read(number, into);
            Ok(())
        });
        read.map_err(|error| Error::io_error("read back the spill file in", &folder.path, error))?;
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Frees the room of an extent that nobody reads any more, if the system supports it and room is short.
    /// Punching a hole waits for the disk while its pages are being written, so it happens only if fewer
    /// bytes are free than were written.
    pub(crate) fn free_extent(&self, extent: &SpillExtent) {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            let copy = self.copies.as_ref().zip(extent.copy_offset);
            let places = [Some((&self.folders[extent.folder], extent.offset)), copy];
            for (folder, offset) in places.into_iter().flatten() {
                let written = folder.end_offset.load(Ordering::Relaxed);
                if folder.free_bytes().is_some_and(|free| free >= written) {
                    continue;
                }
                if let Ok(file) = folder.file() {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let bytes = (extent.bytes as u64).next_multiple_of(PAGE_BYTES);
                    // Without support for holes, the room is freed with the file.
                    let _ = fallocate(&*file, flags, offset, bytes);
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = extent;
    }

    pub(crate) fn extent_folder(&self, extent: &SpillExtent) -> &Path {
        &self.folders[extent.folder].path
    }
}

fn mark_full(folder: &SortSpillFolder, error: &io::Error) {
    folder.is_full.store(true, Ordering::Relaxed);
    folder.is_size_limited.store(error.kind() == io::ErrorKind::FileTooLarge, Ordering::Relaxed);
}

/// Returns whether an error means that a folder has no room, or none for this user or process.
pub(crate) fn is_full_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
pub(crate) mod fault {
    //! Disk operations that fail or corrupt data on request of a test.

    use parking_lot::Mutex;
    use std::io;

    #[derive(Debug, Default)]
    pub(crate) struct InjectedSpillFault(Mutex<InjectedFaultState>);

    #[derive(Debug, Default, Clone, Copy)]
    struct InjectedFaultState {
        writes: u64,
        reads: u64,
        fail_write: Option<(u64, io::ErrorKind, bool)>,
        fail_read: Option<u64>,
        flip_read: Option<(u64, usize)>,
    }

    impl InjectedSpillFault {
        /// Lets the n-th write (from 0) fail, and all later ones if `for_good`.
        pub(crate) fn fail_write(&self, n: u64, kind: io::ErrorKind, for_good: bool) {
            self.0.lock().fail_write = Some((n, kind, for_good));
        }

        pub(crate) fn fail_read(&self, n: u64) {
            self.0.lock().fail_read = Some(n);
        }

        /// Flips a bit in one byte of the n-th read.
        pub(crate) fn flip_read(&self, n: u64, place: usize) {
            self.0.lock().flip_read = Some((n, place));
        }

        pub(super) fn before_write(&self) -> io::Result<()> {
            let mut state = self.0.lock();
            let now = state.writes;
            state.writes += 1;
            match state.fail_write {
                Some((n, kind, for_good)) if now == n || (for_good && now > n) => Err(kind.into()),
                _ => Ok(()),
            }
        }

        /// Returns the number of the read: others may begin before it ends.
        pub(super) fn before_read(&self) -> io::Result<u64> {
            let mut state = self.0.lock();
            let now = state.reads;
            state.reads += 1;
            match state.fail_read {
                Some(n) if n == now => Err(io::Error::other("injected")),
                _ => Ok(now),
            }
        }

        pub(super) fn after_read(&self, number: u64, into: &mut [u8]) {
            let state = self.0.lock();
            if let Some((n, place)) = state.flip_read
                && n == number
                && !into.is_empty()
            {
                let place = place % into.len();
                into[place] ^= 4;
            }
        }
    }
}
