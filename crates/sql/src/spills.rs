//! Where a run keeps what does not fit memory: one unnamed file a folder, given out in blocks.
//!
//! Everything that spills in a run, our tables' chunks and DataFusion's sorts alike, writes to
//! files that have no name: the operating system reclaims them however the process ends, so nothing
//! is left to clean up, and however many spills there are, they take one of the files that a process
//! may have open for each folder. A folder's is made when its first block is written.
//!
//! ```text
//!                block   0    1    2    3 …
//!  one folder           [a ] [b ] [  ] [a ]      a, b: spills; block 2 is free again
//!  another folder       [a ] [a ] [b·]           b·: a block that its folder had no room for to the end
//! ```
//!
//! A spill is a list of pieces and a length; it is written at its end and can be read, by several
//! readers, while it grows. A piece is what of a block was written, and all of it unless the folder
//! had no room for the rest. Blocks are free for others once nobody holds the spill any more, so the
//! files are as large as what was spilled at one time, not as all that ever was.
//!
//! Blocks go round the folders. A folder that refuses because it is full is left out as long as another
//! has room: what was to be written goes to the next one, from the byte on that was refused. Where all
//! are full, each is asked again, as blocks of its file may be free by then, or others may have
//! removed something; if none takes it, the error says how much is free in each.

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

/// Large enough for a disk. What of a block is not written takes none.
const BLOCK_BYTES: u64 = 1 << 20;

/// What is gathered before it is written, and read at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// Looks at folders that somebody has named, before there is work to be lost: each exists and takes an
/// unnamed file. One that is full is no mistake; another may have room.
///
/// # Errors
/// [`Error::Usage`] that names the first that cannot be spilled to.
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

/// Whether a folder has no room, or none for this user or this file.
fn is_disk_full_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// The place where a run spills to.
#[derive(Clone)]
pub struct SpillSpace {
    inner: Arc<SpillFolders>,
}

struct SpillFolders {
    folders: Vec<SpillFolder>,
    /// Whose turn it is, counted on and on.
    next_folder: AtomicUsize,
    progress: RunProgress,
}

struct SpillFolder {
    path: PathBuf,
    blocks: Mutex<FolderBlocks>,
    /// It has refused a write for want of room.
    is_full: AtomicBool,
    #[cfg(test)]
    fault: fault::InjectedWriteFault,
}

#[derive(Default)]
struct FolderBlocks {
    file: Option<Arc<File>>,
    /// Blocks below `end` that nothing holds.
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
    /// A place in `folders`, one at least, where nothing is made before it is needed. What is written
    /// counts as spilled in `progress`.
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

    /// An empty spill.
    pub fn create_spill(&self) -> SpilledData {
        let extent = SpillBlocks { space: Arc::clone(&self.inner), block_list: Mutex::default() };
        SpilledData { blocks: Arc::new(extent) }
    }

    /// How many blocks each folder's file has, and how many of them are free.
    #[cfg(test)]
    fn block_counts(&self) -> Vec<(u64, usize)> {
        let counts = |folder: &SpillFolder| {
            let blocks = folder.blocks.lock();
            (blocks.end_block, blocks.free_blocks.len())
        };
        self.inner.folders.iter().map(counts).collect()
    }
}

/// What a write has met so far.
#[derive(Default)]
struct FullFolders {
    /// The folders that had no room.
    folders: Vec<usize>,
    last_error: Option<io::Error>,
}

impl SpillFolders {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// The folders in the order in which they are asked for a block: from the one on whose turn it is, and
    /// those that are full after the others. One that becomes full meanwhile may come twice.
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

    /// An empty piece at `start` of a spill, in a block that nobody else has.
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
    /// Its file, and a block of it that nobody else has.
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

    /// A block is free again.
    fn free_block(&self, block: u64) {
        self.blocks.lock().free_blocks.push(block);
    }

    /// Nothing of a block could be written. It is the last to be tried again: others may have room on the
    /// disk already.
    fn free_refused_block(&self, block: u64) {
        let mut blocks = self.blocks.lock();
        match block + 1 == blocks.end_block {
            true => blocks.end_block = block,
            false => blocks.free_blocks.insert(0, block),
        }
    }

    /// Writes some of the bytes to a place of its file, at least one; how many.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        #[cfg(test)]
        let bytes = &bytes[..self.fault.accepted_bytes(offset, bytes.len())?];
        match file.write_at(bytes, offset) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            written => written,
        }
    }
}

/// What of a block holds a spill's bytes from `start` on.
struct SpillPiece {
    folder: usize,
    file: Arc<File>,
    block: u64,
    start: u64,
    /// Up to [`BLOCK_BYTES`].
    bytes: u64,
}

impl SpillPiece {
    /// Where its bytes are in the folder's file.
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
    /// Each begins where the one before ends; the last ends at `bytes`.
    pieces: Vec<SpillPiece>,
    /// How much the last block still takes: nothing where it is full, or its folder.
    last_block_room: u64,
    bytes: u64,
}

impl SpillBlocks {
    fn append(&self, mut bytes: &[u8]) -> Result<()> {
        // Whoever reads sees a length only once its bytes are there.
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
                    // What it has taken stays where it is.
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

    /// Reads what is there from `position` on; nothing at the present end.
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
        // The first to be written is the first to be taken again.
        for piece in std::mem::take(&mut self.block_list.get_mut().pieces).into_iter().rev() {
            self.space.folders[piece.folder].free_block(piece.block);
        }
    }
}

/// Bytes on disk.
#[derive(Clone)]
pub struct SpilledData {
    blocks: Arc<SpillBlocks>,
}

impl SpilledData {
    /// How many bytes have been written.
    pub fn bytes(&self) -> u64 {
        self.blocks.block_list.lock().bytes
    }

    /// Appends to it.
    pub fn writer(&self) -> SpillAppender {
        SpillAppender { blocks: Arc::clone(&self.blocks), buffer: Vec::new() }
    }

    /// Reads what was written to a place of it.
    ///
    /// # Errors
    /// As the disk, and where the spill ends before: one of ours, which [`Error::io`] finds again.
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

    /// Reads it from its beginning.
    pub fn reader(&self) -> SpillReader {
        SpillReader {
            blocks: Arc::clone(&self.blocks),
            position: 0,
            buffer: Vec::new(),
            buffer_position: 0,
        }
    }
}

/// Writes to the end of a spill. What is not flushed is lost.
pub struct SpillAppender {
    blocks: Arc<SpillBlocks>,
    buffer: Vec<u8>,
}

impl SpillAppender {
    /// Flushes it, and gives back what it gathers in until it is written to again.
    ///
    /// # Errors
    /// As flushing.
    pub fn flush_and_release_buffer(&mut self) -> io::Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }
}

/// What fails is one of our errors inside of an `io::Error`, where [`Error::io`] finds it again.
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

/// Reads a spill as far as it has been written.
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

/// DataFusion's spills.
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

    /// A read blocks for as long as the disk takes, on a thread that has nothing to do without it.
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
    //! A folder that takes no byte of its file beyond a place, when a test says so.

    use std::io;

    use parking_lot::Mutex;

    #[derive(Default)]
    pub(super) struct InjectedWriteFault(Mutex<Option<(u64, io::ErrorKind)>>);

    impl InjectedWriteFault {
        /// Bytes from `end` on are refused.
        pub(super) fn refuse_from(&self, end: u64, kind: io::ErrorKind) {
            *self.0.lock() = Some((end, kind));
        }

        /// Nothing is refused any more.
        pub(super) fn clear(&self) {
            *self.0.lock() = None;
        }

        /// How many of so many bytes are taken from a place on: as of a full disk, some of them or none.
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
