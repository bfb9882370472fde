//! A piece of an object as a file, and the checks of such a file.
//!
//! ```text
//!   0       8    12     16                48      56      64          64+4n  68+4n
//!   [ magic │ 1  │ 64Ki │ object, SHA-256 │ start │ count │ n CRC-32C │ CRC  │ count bytes
//! ```
//!
//! All numbers are little-endian. Checksums cover chunks of [`CHUNK_BYTES`], so that a small read
//! of a large piece reads and checks only the chunks that it touches; the last CRC-32C covers
//! everything before it. The whole format is `docs/formats/read-cache.md`.
//!
//! A piece is written beside its place and renamed into it, without `fsync`: after a power cut a file may be
//! shorter than before, or zeros. Its length must match its name, its header must match its name and object,
//! and its chunks must match their checksums; anything else is no piece.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Number of bytes that share a checksum: 6 µs of work for the smallest read.
const CHUNK_BYTES: u64 = 64 << 10;
const CHUNK_LENGTH: usize = 64 << 10;
/// Number of chunks in one read: larger buffers are new memory each time, which took a third longer.
const CHUNKS_PER_READ: u64 = 1;
const MAGIC: [u8; 8] = *b"TMCACHE\n";
const FORMAT_VERSION: u32 = 1;
/// Length of the header before the checksums of the chunks.
const FIXED_HEADER_BYTES: u64 = 64;
const CHECKSUM_BYTES: u64 = 4;

/// Hash that identifies one version of one object.
pub(super) type CachedObjectId = [u8; 32];

/// The reason why a piece's bytes are unavailable.
#[derive(Debug)]
pub(super) enum PieceReadError {
    /// Somebody removed the file.
    Missing,
    /// The file does not have the written contents.
    Damaged,
    /// The operating system refused.
    Failed(io::Error),
    /// The reader stopped.
    Unwanted,
}

impl From<io::Error> for PieceReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => PieceReadError::Missing,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::IsADirectory => PieceReadError::Damaged,
            // The error for a socket.
            _ if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                PieceReadError::Damaged
            }
            _ => PieceReadError::Failed(error),
        }
    }
}

fn chunk_count(count: u64) -> u64 {
    count.div_ceil(CHUNK_BYTES)
}

fn header_bytes(count: u64) -> u64 {
    FIXED_HEADER_BYTES + CHECKSUM_BYTES * (chunk_count(count) + 1)
}

/// Returns the length of the file for `count` bytes.
pub(super) fn file_bytes(count: u64) -> u64 {
    header_bytes(count).saturating_add(count)
}

/// Returns the file name of a range.
pub(super) fn piece_file_name(range: &Range<u64>) -> String {
    format!("{:x}-{:x}", range.start, range.end)
}

/// Parses the range from a file name.
pub(super) fn parse_piece_name(name: &str) -> Option<Range<u64>> {
    let (start, end) = name.split_once('-')?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    // Other spellings of a number are foreign files.
    (range.start < range.end && self::piece_file_name(&range) == name).then_some(range)
}

/// Writes the piece that begins at `start` of an object.
///
/// # Errors
/// I/O errors.
pub(super) fn write_piece(
    file: &mut File,
    object: &CachedObjectId,
    start: u64,
    bytes: &[u8],
) -> io::Result<()> {
    let count = bytes.len() as u64;
    let length = usize::try_from(header_bytes(count)).unwrap_or_default();
    let mut header = Vec::with_capacity(length);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&(64_u32 << 10).to_le_bytes());
    header.extend_from_slice(object);
    header.extend_from_slice(&start.to_le_bytes());
    header.extend_from_slice(&count.to_le_bytes());
    for chunk in bytes.chunks(CHUNK_LENGTH) {
        header.extend_from_slice(&crc32c::crc32c(chunk).to_le_bytes());
    }
    let sum = crc32c::crc32c(&header);
    header.extend_from_slice(&sum.to_le_bytes());
    file.write_all(&header)?;
    file.write_all(bytes)
}

/// Opens a file for reading, without waiting for the writer of a pipe in its place.
///
/// # Errors
/// I/O errors.
pub(super) fn open_for_reading(path: &Path) -> io::Result<File> {
    #[expect(clippy::cast_possible_wrap, reason = "flags of the system, as it has them")]
    let flags = OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// An open piece with a valid header.
#[derive(Debug)]
pub(super) struct CachedPiece {
    file: File,
    range: Range<u64>,
    /// The CRC-32C of each chunk.
    chunk_checksums: Vec<u32>,
    /// Recorded time of the last read.
    pub(super) last_read: SystemTime,
}

impl CachedPiece {
    /// Opens the file of an object's range and checks its header.
    ///
    /// # Errors
    /// [`PieceReadError`].
    pub(super) fn open(
        path: &Path,
        object: &CachedObjectId,
        range: Range<u64>,
    ) -> Result<Self, PieceReadError> {
        let mut file = open_for_reading(path)?;
        let about = file.metadata()?;
        let count = range.end.saturating_sub(range.start);
        if !about.is_file() || about.len() != file_bytes(count) {
            return Err(PieceReadError::Damaged);
        }
        // The file has the expected length, so this is no more than there is.
        let length = usize::try_from(header_bytes(count)).map_err(|_| PieceReadError::Damaged)?;
        let mut header = vec![0; length];
        file.read_exact(&mut header)?;
        let mut expected = Vec::with_capacity(64);
        expected.extend_from_slice(&MAGIC);
        expected.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        expected.extend_from_slice(&(64_u32 << 10).to_le_bytes());
        expected.extend_from_slice(object);
        expected.extend_from_slice(&range.start.to_le_bytes());
        expected.extend_from_slice(&count.to_le_bytes());
        let Some((summed, sum)) = header.split_last_chunk::<4>() else {
            return Err(PieceReadError::Damaged);
        };
        let is_right =
            summed.starts_with(&expected) && crc32c::crc32c(summed) == u32::from_le_bytes(*sum);
        let Some(sums) = summed.get(expected.len()..).filter(|_| is_right) else {
            return Err(PieceReadError::Damaged);
        };
        let (sums, _) = sums.as_chunks::<4>();
        let sums = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        Ok(CachedPiece { file, range, chunk_checksums: sums, last_read: about.modified()? })
    }

    /// Records the time of a read.
    pub(super) fn record_read_time(&self, now: SystemTime) {
        // Without it the file is merely evicted earlier.
        let _ = self.file.set_modified(now);
    }

    /// Asks the system to read a range ahead, all of it at once.
    fn advise_read_ahead(&self, offset: u64, length: u64) {
        #[cfg(target_os = "linux")]
        {
            let length = std::num::NonZeroU64::new(length);
            // Reading works without it, slower.
            let _ = rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::WillNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, length);
    }

    /// Passes a part to `out` in order and checked, in runs of chunks, until `out` stops.
    ///
    /// # Errors
    /// [`PieceReadError`]; the bytes passed before it are valid.
    pub(super) fn read_range(
        &self,
        wanted: Range<u64>,
        out: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<(), PieceReadError> {
        let wanted = wanted.start.max(self.range.start)..wanted.end.min(self.range.end);
        let count = self.range.end - self.range.start;
        let head = header_bytes(count);
        if wanted.end.saturating_sub(wanted.start) > CHUNK_BYTES {
            self.advise_read_ahead(
                head + (wanted.start - self.range.start),
                wanted.end - wanted.start,
            );
        }
        let mut at = wanted.start;
        while at < wanted.end {
            let first = (at - self.range.start) / CHUNK_BYTES;
            let begins = first * CHUNK_BYTES;
            let last = chunk_count(wanted.end - self.range.start).min(first + CHUNKS_PER_READ);
            let ends = (last * CHUNK_BYTES).min(count);
            let place = |at: u64| usize::try_from(at).map_err(|_| PieceReadError::Damaged);
            let mut run = vec![0; place(ends - begins)?];
            self.file.read_exact_at(&mut run, head + begins)?;
            let sums = self.chunk_checksums.get(place(first)?..).unwrap_or_default();
            for (index, chunk) in run.chunks(CHUNK_LENGTH).enumerate() {
                if sums.get(index) != Some(&crc32c::crc32c(chunk)) {
                    return Err(PieceReadError::Damaged);
                }
            }
            let skip = place(at - self.range.start - begins)?;
            let until = self.range.start + ends;
            let length = place(until.min(wanted.end) - at)?;
            at += length as u64;
            if !out(Bytes::from(run).slice(skip..skip + length)) {
                return Err(PieceReadError::Unwanted);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OBJECT: CachedObjectId = [7; 32];

    fn write_test_piece(
        start: u64,
        bytes: &[u8],
    ) -> (tempfile::TempDir, std::path::PathBuf, Range<u64>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("piece");
        write_piece(&mut File::create(&path).unwrap(), &OBJECT, start, bytes).unwrap();
        (folder, path, start..start + bytes.len() as u64)
    }

    fn read_test_piece(
        path: &Path,
        object: &CachedObjectId,
        range: Range<u64>,
        wanted: Range<u64>,
    ) -> Vec<u8> {
        let mut all = Vec::new();
        if let Ok(piece) = CachedPiece::open(path, object, range) {
            let _ = piece.read_range(wanted, &mut |bytes| {
                all.extend_from_slice(&bytes);
                true
            });
        }
        all
    }

    fn bytes_of(length: usize, seed: u64) -> Vec<u8> {
        let mixed = |at: u64| (at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        (0..length as u64).map(|at| mixed(at).to_le_bytes()[0]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_part_reads_back_and_no_damage_is_read(
            start in prop_oneof![Just(0), 0..u64::MAX / 2],
            length in 1..400_000usize,
            (from, to) in (0.0..1.0, 0.0..1.0),
            (damaged, bit, cut) in (any::<proptest::sample::Index>(), 0..8u8, any::<bool>()),
        ) {
            let bytes = bytes_of(length, start);
            let (_folder, path, range) = write_test_piece(start, &bytes);
            let place = |part: f64| (part * length as f64) as usize;
            let (from, to) = (place(f64::min(from, to)), place(f64::max(from, to)));
            let wanted = start + from as u64..start + to as u64;
            let found = read_test_piece(&path, &OBJECT, range.clone(), wanted.clone());
            prop_assert!(found == bytes[from..to]);

            let mut all = std::fs::read(&path).unwrap();
            let at = damaged.index(all.len());
            if cut { all.truncate(at) } else { all[at] ^= 1 << bit }
            std::fs::write(&path, &all).unwrap();
            let found = read_test_piece(&path, &OBJECT, range.clone(), wanted);
            prop_assert!(bytes[from..to].starts_with(&found));
            prop_assert!(read_test_piece(&path, &OBJECT, range.clone(), range).len() < length);
        }
    }

    #[test]
    fn file_of_another_object_or_range_is_damaged() {
        let bytes = bytes_of(100_000, 3);
        let (_folder, path, range) = write_test_piece(1_000, &bytes);
        assert_eq!(read_test_piece(&path, &OBJECT, range.clone(), range.clone()), bytes);
        assert!(read_test_piece(&path, &[8; 32], range.clone(), range.clone()).is_empty());
        let moved = 2_000..101_000;
        assert!(read_test_piece(&path, &OBJECT, moved.clone(), moved).is_empty());
    }

    #[test]
    fn irregular_file_in_place_of_a_piece_is_damaged_and_does_not_block() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("piece");
        for kind in [FileType::Fifo, FileType::Socket, FileType::Directory] {
            match kind {
                FileType::Directory => std::fs::create_dir(&path).unwrap(),
                kind => mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, 0).unwrap(),
            }
            let opened = CachedPiece::open(&path, &OBJECT, 0..1);
            assert!(matches!(opened, Err(PieceReadError::Damaged)), "{kind:?}: {opened:?}");
            let _ = std::fs::remove_file(&path);
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for range in [0..1, 10..u64::MAX, 255..256] {
            assert_eq!(parse_piece_name(&piece_file_name(&range)), Some(range));
        }
        for wrong in ["", "-", "0-", "1-1", "2-1", "0-0a", "+0-1", "0-A", "0-1-2", "x", "0-1.tmp"] {
            assert_eq!(parse_piece_name(wrong), None, "{wrong}");
        }
    }
}
