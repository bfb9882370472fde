//! The partial file of a download, which a later run can resume.
//!
//! ```text
//!  out/
//!  ├── .tidemill-get-0123456789abcdef          the bytes so far, locked while a run writes
//!  ├── .tidemill-get-0123456789abcdef.done     for a large file: checksums of its blocks
//!  └── web.csv                                 the target; the partial file gets this name when it is durable
//! ```
//!
//! Both names derive from the target's name, so that the next run finds them. The first line of the second
//! file names the version, `tidemill-get 1 DIGEST`: the MD5 sum of URL, size and ETag. Each other line stands
//! for a written block of 8 MiB: its index and the CRC-32 of its bytes, in eight hexadecimal digits each. A
//! resumed run reads the blocks again and keeps those whose checksums match, up to the first that does not.
//! Neither a killed process nor a disk that lost bytes before they were durable can leave wrong bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::hex_digest;
use crate::error::{Error, Result};

/// Prefix of the names of partial files.
pub(super) const PARTIAL_FILE_PREFIX: &str = ".tidemill-get-";
/// Size of the blocks with a checksum. Only downloads of larger files can be resumed.
pub(super) const RESUME_BLOCK_BYTES: u64 = 8 << 20;
/// Size of the buffer that reads blocks for their checksums.
const READ_BUFFER_BYTES: usize = 1 << 20;
const CHECKSUMS_VERSION: &str = "tidemill-get 1";

/// An incomplete download, locked against other runs.
#[derive(Debug)]
pub(super) struct PartialDownload {
    path: PathBuf,
    file: File,
    checksums_path: PathBuf,
    /// The file of block checksums, if the download can be resumed.
    checksums: Option<File>,
    /// Number of bytes written.
    written_bytes: u64,
    /// CRC-32 of the bytes of the last, incomplete block.
    block_crc: crc32fast::Hasher,
}

impl PartialDownload {
    /// Opens and locks the partial file of a target. With a `version`, which identifies the object, keeps the
    /// intact blocks that an earlier run has written of this version, and passes them to `seen`.
    ///
    /// # Errors
    /// [`Error::Busy`] while another run writes the target; [`Error::Io`].
    pub(super) fn open(
        target: &Path,
        version: Option<&str>,
        seen: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<PartialDownload> {
        let path = partial_path(target);
        let file = open_locked(&path, target)?;
        let done_path = checksums_path(&path);
        let mut partial = PartialDownload {
            path,
            file,
            checksums_path: done_path,
            checksums: None,
            written_bytes: 0,
            block_crc: crc32fast::Hasher::new(),
        };
        match version {
            Some(version) => partial.resume(version, seen)?,
            None => remove_if_exists(&partial.checksums_path)?,
        }
        let failed = |error| Error::io("write", &partial.path, error);
        partial.file.set_len(partial.written_bytes).map_err(failed)?;
        partial.file.seek(SeekFrom::Start(partial.written_bytes)).map_err(failed)?;
        Ok(partial)
    }

    /// Reads the intact blocks, and opens the checksums file for those to come.
    fn resume(&mut self, version: &str, seen: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let head = format!("{CHECKSUMS_VERSION} {version}\n");
        let path = self.checksums_path.clone();
        let failed = |error| Error::io("write", &path, error);
        let mut done = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(no_follow_flag())
            .open(&path)
            .map_err(failed)?;
        let mut noted = Vec::new();
        done.read_to_end(&mut noted).map_err(failed)?;
        let mut good = 0;
        if noted.starts_with(head.as_bytes()) {
            good = head.len() as u64;
            for (index, line) in noted[head.len()..].chunks(CHECKSUM_LINE_BYTES).enumerate() {
                let Some(sum) = parse_checksum_line(line, index) else { break };
                if !self.is_block_intact(sum, seen)? {
                    break;
                }
                good += CHECKSUM_LINE_BYTES as u64;
                self.written_bytes += RESUME_BLOCK_BYTES;
            }
        } else {
            done.set_len(0).map_err(failed)?;
            done.seek(SeekFrom::Start(0)).map_err(failed)?;
            done.write_all(head.as_bytes()).map_err(failed)?;
        }
        if good > 0 {
            done.set_len(good).map_err(failed)?;
            done.seek(SeekFrom::Start(good)).map_err(failed)?;
        }
        self.checksums = Some(done);
        Ok(())
    }

    /// Returns true if the block at the current position has a checksum. Passes its bytes to `seen` in that
    /// case.
    fn is_block_intact(&self, sum: u32, seen: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        use std::os::unix::fs::FileExt;
        let failed = |error| Error::io("read", &self.path, error);
        let mut piece = vec![0; READ_BUFFER_BYTES];
        // Read twice: `seen` must not get bytes of a damaged block. The empty calls let it check for
        // cancellation.
        for sees in [false, true] {
            let mut hasher = crc32fast::Hasher::new();
            let mut at = self.written_bytes;
            while at < self.written_bytes + RESUME_BLOCK_BYTES {
                match self.file.read_at(&mut piece, at).map_err(failed)? {
                    0 => return Ok(false),
                    count => {
                        let left = usize::try_from(self.written_bytes + RESUME_BLOCK_BYTES - at)
                            .unwrap_or(count);
                        let bytes = &piece[..count.min(left)];
                        hasher.update(bytes);
                        if sees {
                            seen(bytes)?;
                        } else {
                            seen(&[])?;
                        }
                        at += bytes.len() as u64;
                    }
                }
            }
            if hasher.finalize() != sum {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the number of bytes written.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let left = RESUME_BLOCK_BYTES - self.written_bytes % RESUME_BLOCK_BYTES;
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let (now, later) = bytes.split_at(count);
            self.file.write_all(now).map_err(|error| Error::io("write", &self.path, error))?;
            self.written_bytes += count as u64;
            bytes = later;
            let Some(done) = &mut self.checksums else { continue };
            self.block_crc.update(now);
            if self.written_bytes.is_multiple_of(RESUME_BLOCK_BYTES) {
                let sum = std::mem::take(&mut self.block_crc).finalize();
                let line = checksum_line(self.written_bytes / RESUME_BLOCK_BYTES - 1, sum);
                done.write_all(line.as_bytes())
                    .map_err(|error| Error::io("write", &self.checksums_path, error))?;
            }
        }
        Ok(())
    }

    /// Renames the partial file to its target and sets the object's modification time. Discards it on
    /// failure.
    ///
    /// # Errors
    /// [`Error::Exists`] if the target exists and must not be replaced; [`Error::Io`].
    pub(super) fn finish(self, target: &Path, replaces: bool, modified_ns: i128) -> Result<()> {
        let finished = self.publish(target, replaces, modified_ns);
        match finished {
            Ok(()) => remove_if_exists(&self.checksums_path),
            Err(error) => {
                self.discard()?;
                Err(error)
            }
        }
    }

    fn publish(&self, target: &Path, replaces: bool, modified_ns: i128) -> Result<()> {
        let failed = |error| Error::io("write", &self.path, error);
        let since = u64::try_from(modified_ns).ok().filter(|ns| *ns > 0);
        if let Some(time) =
            since.and_then(|ns| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(ns)))
        {
            self.file.set_modified(time).map_err(failed)?;
        }
        self.file.sync_all().map_err(failed)?;
        rename_into_place(&self.path, target, replaces)
    }

    /// Keeps the file for the next run if it has at least one complete block, and returns true if so.
    pub(super) fn keep_for_resume(self) -> Result<bool> {
        if self.checksums.is_some() && self.written_bytes >= RESUME_BLOCK_BYTES {
            return Ok(true);
        }
        self.discard()?;
        Ok(false)
    }

    /// Deletes the partial file and its checksums.
    pub(super) fn discard(self) -> Result<()> {
        remove_if_exists(&self.checksums_path)?;
        remove_if_exists(&self.path)
    }
}

/// Removes the checksums that a process left if it was killed right after the rename to the target.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn remove_stale_checksums(target: &Path) -> Result<()> {
    let path = partial_path(target);
    if path.symlink_metadata().is_ok() { Ok(()) } else { remove_if_exists(&checksums_path(&path)) }
}

/// Formats the line of a block: `0000000a 0123abcd`.
fn checksum_line(index: u64, sum: u32) -> String {
    format!("{index:08x} {sum:08x}\n")
}

const CHECKSUM_LINE_BYTES: usize = 18;

/// Parses the checksum in a line; `None` if the line is incomplete or of another block.
fn parse_checksum_line(bytes: &[u8], index: usize) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (number, sum) = text.split_once(' ')?;
    let is_it =
        bytes.len() == CHECKSUM_LINE_BYTES && usize::from_str_radix(number, 16).ok()? == index;
    if is_it { u32::from_str_radix(sum, 16).ok() } else { None }
}

fn partial_path(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let digest = hex_digest(&[&name]);
    target.with_file_name(format!("{PARTIAL_FILE_PREFIX}{}", &digest[..16]))
}

fn checksums_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".done");
    path.with_file_name(name)
}

/// Returns the open flag that refuses a symbolic link, which another user may have planted.
#[expect(clippy::cast_possible_wrap, reason = "flags of the system, as it has them")]
fn no_follow_flag() -> i32 {
    OFlags::NOFOLLOW.bits() as i32
}

/// Opens and locks the partial file of a target.
fn open_locked(path: &Path, target: &Path) -> Result<File> {
    let failed = |error| Error::io("write", path, error);
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(no_follow_flag())
            .open(path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Busy { path: target.display().to_string() });
            }
            // Some file systems have no locks.
            Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => {}
            Err(error) => return Err(failed(error.into())),
        }
        // The previous owner may have renamed the file between open and lock.
        let own = file.metadata().map_err(failed)?;
        match path.symlink_metadata() {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

fn rename_into_place(path: &Path, target: &Path, replaces: bool) -> Result<()> {
    let failed = |error| Error::io("write", target, error);
    let exists = || Error::Exists { path: target.display().to_string() };
    if replaces {
        return std::fs::rename(path, target).map_err(failed);
    }
    match renameat_with(CWD, path, CWD, target, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(exists()),
        // The file system cannot rename without replacing. A hard link fails if the target exists.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match std::fs::hard_link(path, target) {
                Ok(()) => remove_if_exists(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
                Err(_) if target.symlink_metadata().is_ok() => Err(exists()),
                Err(_) => std::fs::rename(path, target).map_err(failed),
            }
        }
        Err(error) => Err(failed(error.into())),
    }
}

fn remove_if_exists(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn bytes(count: u64) -> Vec<u8> {
        (0..count).map(|at| (at * 31 % 251) as u8).collect()
    }

    fn open(target: &Path, version: &str) -> (PartialDownload, Vec<u8>) {
        let mut seen = Vec::new();
        let partial = PartialDownload::open(target, Some(version), &mut |bytes| {
            seen.extend_from_slice(bytes);
            Ok(())
        });
        (partial.unwrap(), seen)
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Writes `count` bytes of a file in odd pieces, as a process that is killed then.
    fn write_and_abandon(folder: &Path, count: u64) -> PathBuf {
        let target = folder.join("a.bin");
        let (mut partial, _) = open(&target, "v1");
        for piece in bytes(count).chunks(3_333_333) {
            partial.write(piece).unwrap();
        }
        target
    }

    #[test]
    fn same_version_is_resumed_block_by_block() {
        for (count, kept) in
            [(0, 0), (5, 0), (RESUME_BLOCK_BYTES, 1), (2 * RESUME_BLOCK_BYTES + 77, 2)]
        {
            let folder = tempfile::tempdir().unwrap();
            let target = write_and_abandon(folder.path(), count);
            let (partial, seen) = open(&target, "v1");
            assert_eq!(partial.written_bytes(), kept * RESUME_BLOCK_BYTES, "{count}");
            assert!(seen == bytes(kept * RESUME_BLOCK_BYTES), "{count}");
        }
        let folder = tempfile::tempdir().unwrap();
        let target = write_and_abandon(folder.path(), RESUME_BLOCK_BYTES + 1);
        let (mut partial, _) = open(&target, "v2");
        assert_eq!(partial.written_bytes(), 0, "another version");
        partial.write(b"all of it").unwrap();
        partial.finish(&target, false, 1_700_000_000_000_000_000).unwrap();
        assert_eq!(names(folder.path()), ["a.bin"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"all of it");
        assert_eq!(std::fs::metadata(&target).unwrap().mtime(), 1_700_000_000);
    }

    #[test]
    fn damage_is_found_and_intact_blocks_before_it_are_kept() {
        type ApplyDamage = fn(&Path, &Path);
        let damages: [(&str, ApplyDamage, u64); 6] = [
            ("a byte of the second block", |part, _| flip(part, RESUME_BLOCK_BYTES + 5), 1),
            ("a byte of the first block", |part, _| flip(part, 5), 0),
            ("bytes that never reached the disk", |part, _| cut(part, RESUME_BLOCK_BYTES + 9), 1),
            ("a line cut short", |_, done| cut(done, 48 + 18 + 7), 1),
            ("a line that is none", |_, done| flip(done, 48 + 18 + 3), 1),
            ("another version", |_, done| flip(done, 20), 0),
        ];
        for (what, damage, kept) in damages {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("a.bin");
            let version = "0123456789abcdef0123456789abcdef";
            let (mut partial, _) = open(&target, version);
            let all = bytes(2 * RESUME_BLOCK_BYTES + 100);
            partial.write(&all).unwrap();
            let (part, done) = (partial.path.clone(), partial.checksums_path.clone());
            drop(partial);
            damage(&part, &done);
            let (mut partial, seen) = open(&target, version);
            assert_eq!(partial.written_bytes(), kept * RESUME_BLOCK_BYTES, "{what}");
            assert!(seen == bytes(kept * RESUME_BLOCK_BYTES), "{what}");
            let at = usize::try_from(partial.written_bytes()).unwrap();
            partial.write(&all[at..]).unwrap();
            partial.finish(&target, false, 0).unwrap();
            assert!(std::fs::read(&target).unwrap() == all, "{what}");
            assert_eq!(names(folder.path()), ["a.bin"], "{what}");
        }
    }

    fn flip(path: &Path, at: u64) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[usize::try_from(at).unwrap()] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    fn cut(path: &Path, bytes: u64) {
        OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }

    #[test]
    fn concurrent_run_is_refused_and_existing_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let (partial, _) = open(&target, "v");
        let busy = PartialDownload::open(&target, None, &mut |_| Ok(()));
        assert!(matches!(busy, Err(Error::Busy { .. })));
        std::fs::write(&target, "mine").unwrap();
        let taken = partial.finish(&target, false, 0);
        assert!(matches!(taken, Err(Error::Exists { .. })), "{taken:?}");
        assert_eq!(std::fs::read(&target).unwrap(), b"mine");
        let (mut partial, _) = open(&target, "v");
        partial.write(b"new").unwrap();
        partial.finish(&target, true, 0).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_link_put_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, partial_path(&target)).unwrap();
        assert!(PartialDownload::open(&target, None, &mut |_| Ok(())).is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }
}
