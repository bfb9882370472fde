//! The folder of the disk tier, shared by all processes of a user.
//!
//! ```text
//! FOLDER/                       0700
//!   CACHEDIR.TAG                so that backups leave it out
//!   v1/                         0700, owned by the user
//!     used                      upper bound of the size; locked by a process that evicts or reserves
//!     tmp/                      pieces that are being written, each locked by its writer
//!     5e/9f…c1/                 an object's version, by the SHA-256 of its identity
//!       0-800000                a piece: first byte and end, in hexadecimal
//! ```
//!
//! **A writer reserves room before it writes.** Under the lock it adds the charge of its file to the sum in
//! `used` and creates the file, at its full length. So a count of the folder's files includes those being
//! written, and the sum is never less than the actual size, whatever dies at whatever moment. A crash leaves
//! it too large, which the next count corrects. The files are counted anew whenever the sum reaches the
//! limit, when it cannot be read, and after [`COUNT_AGE_MAX`], because a power cut may leave an old sum.
//!
//! **Eviction removes the least recently read files** of all processes. A file's modification time is that of
//! its last read, up to [`DiskTierOptions::touch_interval`](super::DiskTierOptions::touch_interval). Eviction
//! frees a 16th of the limit at once, so that the folder is scanned once for as many written bytes.

use std::collections::BinaryHeap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::cached_piece::{self, CachedObjectId};

/// File system block: a file is charged in whole blocks, and one more for its name and metadata.
const FILE_BLOCK_BYTES: u64 = 4 << 10;
/// Age at which the sum is counted anew.
const COUNT_AGE_MAX: Duration = Duration::from_secs(3600);
/// Maximum attempts to create an object's folder for a piece.
const NAMING_TRIES_MAX: usize = 16;
/// Length of `used`: the sum, the time of the count, and the CRC-32C of both.
const USED_FILE_BYTES: usize = 20;
const CACHEDIR_TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                   # Objects that tidemill has read. It may be removed at any time.\n";

/// Returns the charge of a file: at least 8 KiB, which limits the number of files.
pub(super) fn charged_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(FILE_BLOCK_BYTES).saturating_add(FILE_BLOCK_BYTES)
}

/// Totals of evicted files.
#[derive(Debug, Default)]
pub(super) struct EvictionCounters {
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct CacheFolder {
    /// `FOLDER/v1`.
    root: PathBuf,
    name_hasher: RandomState,
    name_serial: AtomicU64,
    pub(super) evicted: EvictionCounters,
}

/// A file that is being written; removed on drop unless it was published.
pub(super) struct TemporaryPiece {
    pub(super) file: File,
    path: PathBuf,
    is_named: bool,
}

impl Drop for TemporaryPiece {
    fn drop(&mut self) {
        if !self.is_named {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl CacheFolder {
    /// Opens the folder at a path and creates it if missing.
    ///
    /// # Errors
    /// I/O errors; a folder of another user, or one that others can write to.
    pub(super) fn open(path: &Path) -> io::Result<CacheFolder> {
        let folder = CacheFolder {
            root: path.join("v1"),
            name_hasher: RandomState::new(),
            name_serial: AtomicU64::new(0),
            evicted: EvictionCounters::default(),
        };
        folder.create_missing_folders()?;
        let about = fs::symlink_metadata(&folder.root)?;
        let is_own = about.is_dir()
            && about.uid() == rustix::process::geteuid().as_raw()
            && about.mode() & 0o022 == 0;
        if !is_own {
            let reason = format!(
                "`{}` is another user's, or others can write to it, and checksums tell \
                 damage, not forgery",
                folder.root.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        Ok(folder)
    }

    /// Creates missing folders.
    fn create_missing_folders(&self) -> io::Result<()> {
        if self.root.join("tmp").is_dir() {
            return Ok(());
        }
        make_folder(&self.root)?;
        if let Some(above) = self.root.parent() {
            let tag = above.join("CACHEDIR.TAG");
            if !tag.exists() {
                // Without the tag backups merely include the folder.
                let _ = fs::write(tag, CACHEDIR_TAG);
            }
        }
        make_folder(&self.root.join("tmp"))
    }

    /// Returns the folder of an object's pieces.
    pub(super) fn object_path(&self, object: &CachedObjectId) -> PathBuf {
        let hex: String = object.iter().map(|byte| format!("{byte:02x}")).collect();
        let (shard, rest) = hex.split_at(2);
        self.root.join(shard).join(rest)
    }

    /// Lists the pieces of an object by the names of their files.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn list_pieces(
        &self,
        object: &CachedObjectId,
    ) -> io::Result<Vec<std::ops::Range<u64>>> {
        let entries = match fs::read_dir(self.object_path(object)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for entry in entries {
            all.extend(entry?.file_name().to_str().and_then(cached_piece::parse_piece_name));
        }
        Ok(all)
    }

    /// Reserves room within the limit and creates the file for it; `None` if the limit is too small.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn reserve_file(
        &self,
        bytes: u64,
        limit: u64,
    ) -> io::Result<Option<TemporaryPiece>> {
        match self.try_reserve_file(bytes, limit) {
            // Somebody removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_missing_folders()?;
                self.try_reserve_file(bytes, limit)
            }
            taken => taken,
        }
    }

    fn try_reserve_file(&self, bytes: u64, limit: u64) -> io::Result<Option<TemporaryPiece>> {
        let charge = charged_bytes(bytes);
        let used = self.lock_used_file()?;
        let mut sum = used.read_sum()?;
        if sum.is_none_or(|sum| sum.saturating_add(charge) > limit) {
            let target = limit.saturating_sub(charge.max(limit / 16));
            let is_needed = |sum| sum > limit.saturating_sub(charge);
            let left = self.evict_to_target(target, is_needed, sum)?;
            used.write_sum(left, true)?;
            sum = Some(left);
        }
        let sum = sum.unwrap_or(limit).saturating_add(charge);
        if sum > limit {
            return Ok(None);
        }
        // The sum first: a process that dies here leaves it too large, not too small.
        used.write_sum(sum, false)?;
        let serial = self.name_serial.fetch_add(1, Relaxed);
        let name = format!("{:016x}", self.name_hasher.hash_one((std::process::id(), serial)));
        let path = self.root.join("tmp").join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let made = TemporaryPiece { file, path, is_named: false };
        made.file.try_lock().map_err(io::Error::from)?;
        made.file.set_len(bytes)?;
        Ok(Some(made))
    }

    /// Evicts files until the limit is kept: for a limit that has changed.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn evict_to_limit(&self, limit: u64) -> io::Result<()> {
        let used = self.lock_used_file()?;
        let sum = used.read_sum()?;
        if sum.is_none_or(|sum| sum > limit) {
            used.write_sum(self.evict_to_target(limit, |sum| sum > limit, sum)?, true)?;
        }
        Ok(())
    }

    /// Moves a written file to its place.
    ///
    /// # Errors
    /// I/O errors; [`io::ErrorKind::NotFound`] if somebody removed the file.
    pub(super) fn publish_piece(
        &self,
        mut made: TemporaryPiece,
        object: &CachedObjectId,
        name: &str,
        now: SystemTime,
    ) -> io::Result<()> {
        made.file.set_modified(now)?;
        let folder = self.object_path(object);
        let path = folder.join(name);
        let mut named = fs::rename(&made.path, &path);
        // An evicting process removes empty folders, even new ones.
        for _ in 0..NAMING_TRIES_MAX {
            match &named {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_folder(&folder)?;
                    named = fs::rename(&made.path, &path);
                }
                _ => break,
            }
        }
        named?;
        made.is_named = true;
        Ok(())
    }

    /// Removes a piece.
    pub(super) fn remove_piece(&self, object: &CachedObjectId, name: &str) {
        let _ = fs::remove_file(self.object_path(object).join(name));
    }

    fn lock_used_file(&self) -> io::Result<UsedFile> {
        let path = self.root.join("used");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(path)?;
        file.lock()?;
        Ok(UsedFile(file))
    }

    /// Counts the files and, if necessary, evicts the least recently read ones down to `target`. Returns the
    /// remaining sum. `guess` is an upper bound of the sum, if known.
    fn evict_to_target(
        &self,
        target: u64,
        is_needed: impl Fn(u64) -> bool,
        guess: Option<u64>,
    ) -> io::Result<u64> {
        let mut guess = guess.unwrap_or(0);
        loop {
            let (mut sum, oldest) = self.scan_files(guess.saturating_sub(target))?;
            if !is_needed(sum) {
                return Ok(sum);
            }
            let mut is_less = false;
            for file in oldest {
                if sum <= target {
                    return Ok(sum);
                }
                match fs::remove_file(&file.path) {
                    Ok(()) => {
                        self.evicted.files.fetch_add(1, Relaxed);
                        self.evicted.bytes.fetch_add(file.bytes, Relaxed);
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(_) => continue,
                }
                sum = sum.saturating_sub(charged_bytes(file.bytes));
                is_less = true;
                if let Some(folder) = file.path.parent() {
                    // Fails unless it was the last file.
                    let _ = fs::remove_dir(folder);
                }
            }
            if !is_less && guess >= sum {
                return Ok(sum);
            }
            guess = sum;
        }
    }

    /// Returns the charge of all files, and the least recently read ones in order, charged `wanted` or more.
    fn scan_files(&self, wanted: u64) -> io::Result<(u64, Vec<CacheFileAge>)> {
        let mut all = OldestFiles {
            wanted_bytes: wanted,
            total_bytes: 0,
            held_bytes: 0,
            files: BinaryHeap::new(),
        };
        self.sweep_temporary_files(&mut all)?;
        for shard in list_folders(&self.root)? {
            if shard.file_name().is_some_and(|name| name == "tmp") {
                continue;
            }
            for object in list_folders(&shard)? {
                for entry in list_entries(&object)? {
                    // Removed meanwhile, if it has no metadata.
                    let Ok(about) = entry.metadata() else { continue };
                    let touched = about.modified().unwrap_or(UNIX_EPOCH);
                    all.add_file(CacheFileAge {
                        last_read: touched,
                        path: entry.path(),
                        bytes: about.len(),
                    });
                }
            }
        }
        Ok((all.total_bytes, all.files.into_sorted_vec()))
    }

    /// Counts the files being written, and removes those without a writer.
    fn sweep_temporary_files(&self, all: &mut OldestFiles) -> io::Result<()> {
        for entry in list_entries(&self.root.join("tmp"))? {
            let path = entry.path();
            let is_left = match cached_piece::open_for_reading(&path) {
                // Its writer locked it under the lock that this process holds.
                Ok(file) => !matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
                Err(_) => false,
            };
            let is_gone = is_left && fs::remove_file(&path).is_ok();
            if !is_gone && let Ok(about) = entry.metadata() {
                all.total_bytes = all.total_bytes.saturating_add(charged_bytes(about.len()));
            }
        }
        Ok(())
    }
}

fn list_entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn list_folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = list_entries(folder)?.into_iter();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.path()).collect())
}

/// A file with the time of its last read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CacheFileAge {
    last_read: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// The least recently read files, limited to the wanted bytes.
struct OldestFiles {
    wanted_bytes: u64,
    /// Charge of all files.
    total_bytes: u64,
    /// Charge of the files in `files`.
    held_bytes: u64,
    files: BinaryHeap<CacheFileAge>,
}

impl OldestFiles {
    fn add_file(&mut self, file: CacheFileAge) {
        let bytes = charged_bytes(file.bytes);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        self.held_bytes += bytes;
        self.files.push(file);
        while let Some(newest) = self.files.peek()
            && self.held_bytes - charged_bytes(newest.bytes) >= self.wanted_bytes
        {
            self.held_bytes -= charged_bytes(newest.bytes);
            self.files.pop();
        }
    }
}

/// The locked file `used` with an upper bound of the files' charge.
struct UsedFile(File);

impl UsedFile {
    /// Returns the sum, if it is reliable.
    fn read_sum(&self) -> io::Result<Option<u64>> {
        let mut all = [0; USED_FILE_BYTES];
        match self.0.read_exact_at(&mut all, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let [sum @ .., a, b, c, d] = all;
        let is_right = crc32c::crc32c(&sum) == u32::from_le_bytes([a, b, c, d]);
        let (numbers, _) = sum.as_chunks::<8>();
        let [sum, counted] = numbers else { return Ok(None) };
        let age = unix_seconds().checked_sub(u64::from_le_bytes(*counted));
        let is_recent = age.is_some_and(|age| age <= COUNT_AGE_MAX.as_secs());
        Ok((is_right && is_recent).then_some(u64::from_le_bytes(*sum)))
    }

    /// Writes the sum, and the time of the count if `is_counted`.
    fn write_sum(&self, sum: u64, is_counted: bool) -> io::Result<()> {
        let mut all = [0; USED_FILE_BYTES];
        if is_counted {
            all[8..16].copy_from_slice(&unix_seconds().to_le_bytes());
        } else {
            self.0.read_exact_at(&mut all, 0)?;
        }
        all[..8].copy_from_slice(&sum.to_le_bytes());
        let check = crc32c::crc32c(&all[..16]);
        all[16..].copy_from_slice(&check.to_le_bytes());
        self.0.write_all_at(&all, 0)
    }
}

/// Returns the seconds since 1970.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
