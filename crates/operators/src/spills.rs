//! Spill storage of a run: one unnamed file per folder, allocated in blocks.
//!
//! Everything that spills in a run, aggregate tables' chunks and DataFusion's sorts alike, is written to
//! files without a name. The operating system reclaims them however the process ends, so nothing
//! remains to clean up. All spills of a folder together take one of the process's open files.
//! A folder's file is created when its first block is written.
//!
//! ```text
//!                block   0    1    2    3 …
//!  one folder           [a ] [b ] [  ] [a ]      a, b: spills; block 2 is free again
//!  another folder       [a ] [a ] [b·]           b·: a block that its folder had no room for to the end
//! ```
//!
//! A spill is a list of pieces and a length; it is written at its end, and several readers can read it
//! while it grows. A piece is the written part of a block, which is the whole block unless the folder
//! had no room for the rest. Blocks become free once the last handle of the spill is dropped, so the
//! files are as large as the data spilled at one time, not as all data ever spilled.
//!
//! Blocks alternate between the folders. A full folder is skipped as long as another has room: the write
//! continues in the next folder, from the first refused byte on. If all are full, each is tried again,
//! because blocks of its file may be free by then, or other programs may have freed disk space.
//! If none accepts the write, the error states the free space of each folder.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;
use parking_lot::Mutex;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::RunProgress;

/// Size of a block, large enough for sequential disk access. The unwritten part of a block takes no space.
const BLOCK_BYTES: u64 = 1 << 20;

/// Size of the write buffers, and of a read.
const BUFFER_BYTES: usize = 128 << 10;

/// Checks the folders named by the user before there is work to lose: each exists and accepts an
/// unnamed file. A full folder passes; another may have room.
///
/// # Errors
/// [`Error::Usage`] that names the first folder that cannot be spilled to.
pub fn check_spill_folders(folders: &[PathBuf]) -> Result<()> {
    for folder in folders {
        let shown = folder.display();
        let refused = match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => tempfile::tempfile_in(folder).err(),
            Ok(_) => {
                return Err(Error::usage_with_hint(
                    format!("cannot spill to `{shown}`: it is a file"),
                    "--spill-dir DIR names a folder",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::usage_with_hint(
                    format!("cannot spill to `{shown}`: there is no such folder"),
                    "make it, or name one that exists: --spill-dir DIR",
                ));
            }
            Err(error) => Some(error),
        };
        match refused {
            Some(error) if !is_disk_full_error(&error) => {
                return Err(Error::usage_with_hint(
                    format!("cannot spill to `{shown}`: {error}"),
                    "name a folder that can be written to: --spill-dir DIR",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether an error means that a folder has no room, or none for this user or this file.
fn is_disk_full_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// The spill storage of a run.
#[derive(Clone)]
pub struct SpillSpace {
    inner: Arc<SpillFolders>,
}

struct SpillFolders {
    folders: Vec<SpillFolder>,
    /// Counter that selects the folder of the next block, modulo the number of folders.
    next_folder: AtomicUsize,
    progress: RunProgress,
}

struct SpillFolder {
    path: PathBuf,
    blocks: Mutex<FolderBlocks>,
    /// True once a write has failed for lack of space.
    is_full: AtomicBool,
    #[cfg(test)]
    fault: fault::InjectedWriteFault,
}

#[derive(Default)]
struct FolderBlocks {
    file: Option<Arc<File>>,
    /// Blocks below `end_block` that no spill holds.
    free_blocks: Vec<u64>,
    end_block: u64,
}

impl fmt::Debug for SpillSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&Path> = self.inner.paths().collect();
        f.debug_struct("SpillSpace").field("folders", &paths).finish_non_exhaustive()
    }
}

impl SpillSpace {
    /// Creates a spill space in `folders`, at least one. Files are created when they are needed. `progress` counts
    /// the written bytes as spilled.
    pub fn new(folders: &[PathBuf], progress: &RunProgress) -> Self {
        let folder = |path: &PathBuf| SpillFolder {
            path: path.clone(),
            blocks: Mutex::default(),
            is_full: AtomicBool::new(false),
            #[cfg(test)]
            fault: fault::InjectedWriteFault::default(),
        };
        SpillSpace {
            inner: Arc::new(SpillFolders {
                folders: folders.iter().map(folder).collect(),
                next_folder: AtomicUsize::new(0),
                progress: progress.clone(),
            }),
        }
    }

    /// Creates an empty spill.
    pub fn create_spill(&self) -> SpilledData {
        let extent = SpillBlocks { space: Arc::clone(&self.inner), block_list: Mutex::default() };
        SpilledData { blocks: Arc::new(extent) }
    }

    /// Returns for each folder the number of blocks of its file and the number of free ones.
    #[cfg(test)]
    fn block_counts(&self) -> Vec<(u64, usize)> {
        let counts = |folder: &SpillFolder| {
            let blocks = folder.blocks.lock();
            (blocks.end_block, blocks.free_blocks.len())
        };
        self.inner.folders.iter().map(counts).collect()
    }
}

/// The refusals during one write.
#[derive(Default)]
struct FullFolders {
    /// Indices of the folders without room.
    folders: Vec<usize>,
    last_error: Option<io::Error>,
}

impl SpillFolders {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// Returns the folders in the order in which to try them for a block: round-robin from the next folder, full
    /// ones after the others. A folder that becomes full meanwhile may come twice.
    fn folders_in_write_order(&self) -> impl Iterator<Item = (usize, &SpillFolder)> {
        let first = self.next_folder.fetch_add(1, Ordering::Relaxed);
        let count = self.folders.len();
        let asked = move |wanted: bool| {
            let order = (0..count).map(move |step| (first % count + step) % count);
            order
                .map(|index| (index, &self.folders[index]))
                .filter(move |(_, folder)| folder.is_full.load(Ordering::Relaxed) == wanted)
        };
        asked(false).chain(asked(true))
    }

    /// Allocates a block and returns it as an empty piece at `start` of a spill.
    fn allocate_piece(&self, start: u64, refusals: &mut FullFolders) -> Result<SpillPiece> {
        for (index, folder) in self.folders_in_write_order() {
            if refusals.folders.contains(&index) {
                continue;
            }
            match folder.allocate_block() {
                Ok((file, block)) => {
                    return Ok(SpillPiece { folder: index, file, block, start, bytes: 0 });
                }
                Err(error) if is_disk_full_error(&error) => self.mark_full(index, error, refusals),
                Err(error) => return Err(Error::io("spill to", &folder.path, error)),
            }
        }
        let last = refusals.last_error.take().unwrap_or_else(|| io::ErrorKind::StorageFull.into());
        Err(Error::spill_disk_full(self.paths(), last))
    }

    fn mark_full(&self, index: usize, error: io::Error, refusals: &mut FullFolders) {
        let folder = &self.folders[index];
        folder.is_full.store(true, Ordering::Relaxed);
        tracing::debug!(folder = %folder.path.display(), %error, "no room to spill");
        refusals.folders.push(index);
        refusals.last_error = Some(error);
    }
}

impl SpillFolder {
    /// Allocates a block; returns the folder's file and the block.
    fn allocate_block(&self) -> io::Result<(Arc<File>, u64)> {
        let mut blocks = self.blocks.lock();
        let file = match &blocks.file {
            Some(file) => Arc::clone(file),
            None => {
                #[cfg(test)]
                self.fault.accepted_bytes(0, 1)?;
                let file = Arc::new(tempfile::tempfile_in(&self.path)?);
                Arc::clone(blocks.file.insert(file))
            }
        };
        let block = blocks.free_blocks.pop().unwrap_or_else(|| {
            blocks.end_block += 1;
            blocks.end_block - 1
        });
        Ok((file, block))
    }

    /// Frees a block.
    fn free_block(&self, block: u64) {
        self.blocks.lock().free_blocks.push(block);
    }

    /// Frees a block of which nothing could be written. It is reused last; the disk may have room for the other
    /// free blocks already.
    fn free_refused_block(&self, block: u64) {
        let mut blocks = self.blocks.lock();
        match block + 1 == blocks.end_block {
            true => blocks.end_block = block,
            false => blocks.free_blocks.insert(0, block),
        }
    }

    /// Writes a prefix of the bytes, at least one byte, and returns its length.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        #[cfg(test)]
        let bytes = &bytes[..self.fault.accepted_bytes(offset, bytes.len())?];
        match file.write_at(bytes, offset) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            written => written,
        }
    }
}

/// The part of a block that holds a spill's bytes from `start` on.
struct SpillPiece {
    folder: usize,
    file: Arc<File>,
    block: u64,
    start: u64,
    /// Up to [`BLOCK_BYTES`].
    bytes: u64,
}

impl SpillPiece {
    /// Returns the offset of its block in the folder's file.
    fn file_offset(&self) -> u64 {
        self.block * BLOCK_BYTES
    }

    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The blocks of one spill.
struct SpillBlocks {
    space: Arc<SpillFolders>,
    block_list: Mutex<SpillBlockList>,
}

#[derive(Default)]
struct SpillBlockList {
    /// Each piece begins where the one before ends; the last ends at `bytes`.
    pieces: Vec<SpillPiece>,
    /// Free bytes of the last block: 0 if the block or its folder is full.
    last_block_room: u64,
    bytes: u64,
}

impl SpillBlocks {
    fn append(&self, mut bytes: &[u8]) -> Result<()> {
        // Readers see a length only once its bytes are written.
        let mut held = self.block_list.lock();
        self.space.progress.add_spilled_bytes(bytes.len() as u64);
        let mut refusals = FullFolders::default();
        while !bytes.is_empty() {
            if held.last_block_room == 0 {
                let piece = self.space.allocate_piece(held.bytes, &mut refusals)?;
                held.pieces.push(piece);
                held.last_block_room = BLOCK_BYTES;
            }
            let SpillBlockList { pieces, last_block_room: room, bytes: total } = &mut *held;
            let Some(piece) = pieces.last_mut() else {
                return Err(Error::Internal("a spill without a block".to_owned()));
            };
            let most = usize::try_from(*room).unwrap_or(usize::MAX).min(bytes.len());
            let folder = &self.space.folders[piece.folder];
            match folder.write_at(&piece.file, &bytes[..most], piece.file_offset() + piece.bytes) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    piece.bytes += written as u64;
                    *total += written as u64;
                    *room -= written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_disk_full_error(&error) => {
                    // The bytes that the folder accepted stay there.
                    *room = 0;
                    self.space.mark_full(piece.folder, error, &mut refusals);
                    if piece.bytes == 0 {
                        folder.free_refused_block(piece.block);
                        pieces.pop();
                    }
                }
                Err(error) => return Err(Error::io("spill to", &folder.path, error)),
            }
        }
        Ok(())
    }

    /// Reads available bytes from `position` on; returns 0 at the current end.
    fn read_at(&self, position: u64, into: &mut [u8]) -> Result<usize> {
        let (folder, file, offset, most) = {
            let held = self.block_list.lock();
            let index = held.pieces.partition_point(|piece| piece.end() <= position);
            let Some(piece) = held.pieces.get(index) else { return Ok(0) };
            let offset = piece.file_offset() + (position - piece.start);
            (piece.folder, Arc::clone(&piece.file), offset, piece.end() - position)
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(into.len());
        loop {
            let error = match file.read_at(&mut into[..most], offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) if most > 0 => io::ErrorKind::UnexpectedEof.into(),
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            return Err(Error::io("read a spill in", &self.space.folders[folder].path, error));
        }
    }
}

impl Drop for SpillBlocks {
    fn drop(&mut self) {
        // The block written first is reused first.
        for piece in std::mem::take(&mut self.block_list.get_mut().pieces).into_iter().rev() {
            self.space.folders[piece.folder].free_block(piece.block);
        }
    }
}

/// The bytes of one spill on disk; a shared handle.
#[derive(Clone)]
pub struct SpilledData {
    blocks: Arc<SpillBlocks>,
}

impl SpilledData {
    /// Returns the number of written bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.block_list.lock().bytes
    }

    /// Returns a writer that appends.
    pub fn writer(&self) -> SpillAppender {
        SpillAppender { blocks: Arc::clone(&self.blocks), buffer: Vec::new() }
    }

    /// Fills `into` with the bytes from `position` on.
    ///
    /// # Errors
    /// Disk errors, and the end of the spill before `into` is full. A disk error wraps a workspace error, which
    /// [`Error::io`] unwraps.
    pub fn read_exact_at(&self, mut position: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let read = self.blocks.read_at(position, into).map_err(io::Error::other)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[read..];
            position += read as u64;
        }
        Ok(())
    }

    /// Returns a reader that starts at the beginning.
    pub fn reader(&self) -> SpillReader {
        SpillReader {
            blocks: Arc::clone(&self.blocks),
            position: 0,
            buffer: Vec::new(),
            buffer_position: 0,
        }
    }
}

/// A buffered writer that appends to a spill. Unflushed bytes are lost.
pub struct SpillAppender {
    blocks: Arc<SpillBlocks>,
    buffer: Vec<u8>,
}

impl SpillAppender {
    /// Flushes, and releases the buffer until the next write.
    ///
    /// # Errors
    /// The errors of flushing.
    pub fn flush_and_release_buffer(&mut self) -> io::Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }
}

/// Errors are workspace errors inside of an `io::Error`, which [`Error::io`] unwraps.
impl Write for SpillAppender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        match bytes.len() < BUFFER_BYTES {
            true => self.buffer.extend_from_slice(bytes),
            false => self.blocks.append(bytes).map_err(io::Error::other)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.blocks.append(&self.buffer).map_err(io::Error::other)?;
        self.buffer.clear();
        Ok(())
    }
}

/// A buffered reader of a spill, up to the bytes written so far.
pub struct SpillReader {
    blocks: Arc<SpillBlocks>,
    position: u64,
    buffer: Vec<u8>,
    buffer_position: usize,
}

impl Read for SpillReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.buffer_position == self.buffer.len() && into.len() >= BUFFER_BYTES {
            let read = self.blocks.read_at(self.position, into).map_err(io::Error::other)?;
            self.position += read as u64;
            return Ok(read);
        }
        if self.buffer_position == self.buffer.len() {
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = self.blocks.read_at(self.position, &mut self.buffer);
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            self.buffer_position = 0;
            self.position += read.map_err(io::Error::other)? as u64;
        }
        let count = into.len().min(self.buffer.len() - self.buffer_position);
        into[..count]
            .copy_from_slice(&self.buffer[self.buffer_position..self.buffer_position + count]);
        self.buffer_position += count;
        Ok(count)
    }
}

/// Spills of DataFusion's operators.
impl TempFileFactory for SpillSpace {
    fn create_temp_file(&self, what: &str) -> PlanResult<Arc<dyn SpillFile>> {
        tracing::debug!(what, "spill");
        Ok(Arc::new(self.create_spill()))
    }
}

impl SpillFile for SpilledData {
    fn size(&self) -> Option<u64> {
        Some(self.bytes())
    }

    /// A read blocks its thread until the disk answers; the stream has no other work to do.
    fn read_stream(&self) -> PlanResult<Pin<Box<dyn Stream<Item = PlanResult<Bytes>> + Send>>> {
        let (extent, mut position) = (Arc::clone(&self.blocks), 0);
        Ok(Box::pin(futures::stream::poll_fn(move |_| {
            let mut bytes = vec![0; BUFFER_BYTES];
            match extent.read_at(position, &mut bytes) {
                Ok(0) => Poll::Ready(None),
                Ok(read) => {
                    position += read as u64;
                    bytes.truncate(read);
                    Poll::Ready(Some(Ok(bytes.into())))
                }
                Err(error) => Poll::Ready(Some(Err(DataFusionError::External(Box::new(error))))),
            }
        })))
    }

    fn open_writer(&self) -> PlanResult<Box<dyn SpillWriter>> {
        Ok(Box::new(self.writer()))
    }
}

impl SpillWriter for SpillAppender {
    fn finish(&mut self) -> PlanResult<()> {
        Ok(self.flush()?)
    }
}

#[cfg(test)]
mod fault {
    //! A test double for a disk that accepts no byte of a folder's file beyond an offset.

    use std::io;

    use parking_lot::Mutex;

    #[derive(Default)]
    pub(super) struct InjectedWriteFault(Mutex<Option<(u64, io::ErrorKind)>>);

    impl InjectedWriteFault {
        /// Refuses bytes from `end` on.
        pub(super) fn refuse_from(&self, end: u64, kind: io::ErrorKind) {
            *self.0.lock() = Some((end, kind));
        }

        /// Accepts all bytes again.
        pub(super) fn clear(&self) {
            *self.0.lock() = None;
        }

        /// Returns how many of `bytes` bytes at `offset` are accepted: like a full disk, some of them or none.
        pub(super) fn accepted_bytes(&self, offset: u64, bytes: usize) -> io::Result<usize> {
            match *self.0.lock() {
                Some((end, kind)) if offset >= end => Err(kind.into()),
                Some((end, _)) => {
                    Ok(bytes.min(usize::try_from(end - offset).unwrap_or(usize::MAX)))
                }
                None => Ok(bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests;
