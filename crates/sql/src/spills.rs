//! Where a run keeps what does not fit memory: one unnamed file, given out in blocks.
//!
//! Everything that spills in a run, our tables' chunks and DataFusion's sorts alike, writes to one
//! file that has no name: the operating system reclaims it however the process ends, so nothing is
//! left to clean up, and however many spills there are, they take one of the files that a process
//! may have open. It is made when the first block is written.
//!
//! ```text
//!  block   0    1    2    3    4    5 …
//!         [a ] [a ] [b ] [a ] [  ] [b ]      a, b: spills; block 4 is free again
//! ```
//!
//! A spill is a list of blocks and a length; it is written at its end and can be read, by several
//! readers, while it grows. Its blocks are free for others once nobody holds it any more, so the
//! file is as large as what was spilled at one time, not as all that ever was.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;
use parking_lot::Mutex;
use tidemill_base::error::Error;
use tidemill_base::progress::Progress;

/// Large enough for a disk. What of a block is not written takes none.
const BLOCK_BYTES: u64 = 1 << 20;

/// What is gathered before it is written, and read at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// The place where a run spills to.
#[derive(Clone)]
pub struct SpillSpace {
    inner: Arc<SpillFolder>,
}

struct SpillFolder {
    folder: PathBuf,
    progress: Progress,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    file: Option<Arc<File>>,
    /// Blocks below `end` that nothing holds.
    free: Vec<u64>,
    end: u64,
}

impl fmt::Debug for SpillSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillSpace").field("folder", &self.inner.folder).finish_non_exhaustive()
    }
}

impl SpillSpace {
    /// A place in `folder`, where nothing is made before it is needed. What is written counts as
    /// spilled in `progress`.
    pub fn new(folder: &Path, progress: &Progress) -> Self {
        SpillSpace {
            inner: Arc::new(SpillFolder {
                folder: folder.to_path_buf(),
                progress: progress.clone(),
                blocks: Mutex::default(),
            }),
        }
    }

    /// An empty spill.
    pub fn create(&self) -> Spill {
        let extent = Extent { inner: Arc::clone(&self.inner), held: Mutex::default() };
        Spill { extent: Arc::new(extent) }
    }

    /// How many blocks the file has, and how many of them are free.
    #[cfg(test)]
    fn block_counts(&self) -> (u64, usize) {
        let blocks = self.inner.blocks.lock();
        (blocks.end, blocks.free.len())
    }
}

impl SpillFolder {
    /// The file, and a block of it that nobody else has.
    fn block(&self) -> io::Result<(Arc<File>, u64)> {
        let mut blocks = self.blocks.lock();
        let file = match &blocks.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(tempfile::tempfile_in(&self.folder)?);
                Arc::clone(blocks.file.insert(file))
            }
        };
        let block = blocks.free.pop().unwrap_or_else(|| {
            blocks.end += 1;
            blocks.end - 1
        });
        Ok((file, block))
    }

    /// One of our errors inside of an `io::Error`, where [`Error::io`] finds it again.
    fn failed(&self, source: io::Error) -> io::Error {
        io::Error::other(Error::io("spill to", &self.folder, source))
    }
}

/// The blocks of one spill.
struct Extent {
    inner: Arc<SpillFolder>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    file: Option<Arc<File>>,
    blocks: Vec<u64>,
    bytes: u64,
}

impl Extent {
    fn append(&self, mut bytes: &[u8]) -> io::Result<()> {
        // Whoever reads sees a length only once its bytes are there.
        let mut held = self.held.lock();
        self.inner.progress.add_spilled(bytes.len() as u64);
        while !bytes.is_empty() {
            let within = held.bytes % BLOCK_BYTES;
            if held.bytes / BLOCK_BYTES == held.blocks.len() as u64 {
                let (file, block) = self.inner.block()?;
                held.file = Some(file);
                held.blocks.push(block);
            }
            let (Some(file), Some(block)) = (&held.file, held.blocks.last()) else {
                return Err(io::Error::other("a spill without a block"));
            };
            let room = usize::try_from(BLOCK_BYTES - within).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            file.write_all_at(now, block * BLOCK_BYTES + within)?;
            held.bytes += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Reads what is there from `position` on; nothing at the present end.
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let (file, offset, most) = {
            let held = self.held.lock();
            let Some(file) = held.file.as_ref().filter(|_| position < held.bytes) else {
                return Ok(0);
            };
            let within = position % BLOCK_BYTES;
            let index = usize::try_from(position / BLOCK_BYTES).unwrap_or(usize::MAX);
            let Some(block) = held.blocks.get(index) else {
                return Err(io::Error::other("a spill without a block"));
            };
            let most = (BLOCK_BYTES - within).min(held.bytes - position);
            (Arc::clone(file), block * BLOCK_BYTES + within, most)
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(into.len());
        loop {
            match file.read_at(&mut into[..most], offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) if most > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => return read,
            }
        }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut self.held.get_mut().blocks);
        self.inner.blocks.lock().free.extend(blocks.into_iter().rev());
    }
}

/// Bytes on disk.
#[derive(Clone)]
pub struct Spill {
    extent: Arc<Extent>,
}

impl Spill {
    /// How many bytes have been written.
    pub fn bytes(&self) -> u64 {
        self.extent.held.lock().bytes
    }

    /// Appends to it.
    pub fn writer(&self) -> Writer {
        Writer { extent: Arc::clone(&self.extent), buffer: Vec::new() }
    }

    /// Reads what was written to a place of it.
    ///
    /// # Errors
    /// As the disk; [`io::ErrorKind::UnexpectedEof`] where it ends before.
    pub fn read_exact_at(&self, mut position: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let read = match self.extent.read_at(position, into) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            let read = read.map_err(|error| {
                io::Error::other(Error::io("read a spill in", &self.extent.inner.folder, error))
            })?;
            into = &mut into[read..];
            position += read as u64;
        }
        Ok(())
    }

    /// Reads it from its beginning.
    pub fn reader(&self) -> Reader {
        Reader { extent: Arc::clone(&self.extent), position: 0, buffer: Vec::new(), at: 0 }
    }
}

/// Writes to the end of a spill. What is not flushed is lost.
pub struct Writer {
    extent: Arc<Extent>,
    buffer: Vec<u8>,
}

impl Writer {
    /// Flushes it, and gives back what it gathers in until it is written to again.
    ///
    /// # Errors
    /// As flushing.
    pub fn rest(&mut self) -> io::Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        match bytes.len() < BUFFER_BYTES {
            true => self.buffer.extend_from_slice(bytes),
            false => {
                let appended = self.extent.append(bytes);
                appended.map_err(|e| self.extent.inner.failed(e))?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.extent.append(&self.buffer).map_err(|e| self.extent.inner.failed(e))?;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads a spill as far as it has been written.
pub struct Reader {
    extent: Arc<Extent>,
    position: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() && into.len() >= BUFFER_BYTES {
            let read = self.extent.read_at(self.position, into)?;
            self.position += read as u64;
            return Ok(read);
        }
        if self.at == self.buffer.len() {
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = self.extent.read_at(self.position, &mut self.buffer);
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            self.at = 0;
            self.position += read? as u64;
        }
        let count = into.len().min(self.buffer.len() - self.at);
        into[..count].copy_from_slice(&self.buffer[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// DataFusion's spills.
impl TempFileFactory for SpillSpace {
    fn create_temp_file(&self, what: &str) -> PlanResult<Arc<dyn SpillFile>> {
        tracing::debug!(what, "spill");
        Ok(Arc::new(self.create()))
    }
}

impl SpillFile for Spill {
    fn size(&self) -> Option<u64> {
        Some(self.bytes())
    }

    /// A read blocks for as long as the disk takes, on a thread that has nothing to do without it.
    fn read_stream(&self) -> PlanResult<Pin<Box<dyn Stream<Item = PlanResult<Bytes>> + Send>>> {
        let (extent, mut position) = (Arc::clone(&self.extent), 0);
        Ok(Box::pin(futures::stream::poll_fn(move |_| {
            let mut bytes = vec![0; BUFFER_BYTES];
            match extent.read_at(position, &mut bytes) {
                Ok(0) => Poll::Ready(None),
                Ok(read) => {
                    position += read as u64;
                    bytes.truncate(read);
                    Poll::Ready(Some(Ok(bytes.into())))
                }
                Err(error) => {
                    let error = Error::io("read a spill in", &extent.inner.folder, error);
                    Poll::Ready(Some(Err(DataFusionError::External(Box::new(error)))))
                }
            }
        })))
    }

    fn open_writer(&self) -> PlanResult<Box<dyn SpillWriter>> {
        Ok(Box::new(self.writer()))
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> PlanResult<()> {
        Ok(self.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::executor::block_on;

    use super::*;

    fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
        (0..bytes as u64).map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8).collect()
    }

    fn whole(spill: &Spill) -> Vec<u8> {
        let mut bytes = Vec::new();
        spill.reader().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn spills_that_are_written_in_turns_come_back_each_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let progress = Progress::new();
        let space = SpillSpace::new(folder.path(), &progress);
        let spills: Vec<Spill> = (0..3).map(|_| space.create()).collect();
        let mut writers: Vec<Writer> = spills.iter().map(Spill::writer).collect();
        let mut expected = vec![Vec::new(); 3];
        for turn in 0..60 {
            let index = turn % 3;
            let bytes = pattern(turn as u64, [1, 700, 40_000, 300_000][turn % 4]);
            writers[index].write_all(&bytes).unwrap();
            expected[index].extend(bytes);
        }
        writers.iter_mut().for_each(|writer| writer.flush().unwrap());
        for (spill, expected) in spills.iter().zip(&expected) {
            assert!(whole(spill) == *expected);
            assert_eq!(spill.bytes(), expected.len() as u64);
            let mut streamed = Vec::new();
            let mut stream = spill.read_stream().unwrap();
            while let Some(bytes) = block_on(stream.next()) {
                streamed.extend(bytes.unwrap());
            }
            assert!(streamed == *expected);
        }
        let total: usize = expected.iter().map(Vec::len).sum();
        assert_eq!(progress.spilled_bytes(), total as u64);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a spill has a name");
    }

    #[test]
    fn a_spill_is_read_while_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let spill = SpillSpace::new(folder.path(), &Progress::new()).create();
        let mut stream = spill.read_stream().unwrap();
        assert!(block_on(stream.next()).is_none());
        let mut writer = spill.writer();
        for part in [&b"one"[..], b"two"] {
            writer.write_all(part).unwrap();
            writer.flush().unwrap();
            assert_eq!(block_on(stream.next()).unwrap().unwrap(), part);
            assert!(block_on(stream.next()).is_none());
        }
    }

    #[test]
    fn what_nobody_holds_any_more_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let space = SpillSpace::new(folder.path(), &Progress::new());
        let bytes = pattern(5, 3 * BLOCK_BYTES as usize + 1);
        for _ in 0..10 {
            let spill = space.create();
            let mut writer = spill.writer();
            writer.write_all(&bytes).unwrap();
            writer.flush().unwrap();
            let reader = spill.reader();
            drop((spill, writer));
            assert_eq!(space.block_counts(), (4, 0), "a reader still reads");
            drop(reader);
            assert_eq!(space.block_counts(), (4, 4));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn any_number_of_spills_takes_one_open_file() {
        let folder = tempfile::tempdir().unwrap();
        let space = SpillSpace::new(folder.path(), &Progress::new());
        let spills: Vec<Spill> = (0..100).map(|_| space.create()).collect();
        for spill in &spills {
            let mut writer = spill.writer();
            writer.write_all(b"some").unwrap();
            writer.flush().unwrap();
        }
        let readers: Vec<Reader> = spills.iter().map(Spill::reader).collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        // A descriptor of another test may be gone by the time it is looked at.
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        assert_eq!(targets.filter(|target| target.starts_with(folder.path())).count(), 1);
        assert_eq!(readers.len(), 100);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_named_when_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let spill = SpillSpace::new(&missing, &Progress::new()).create();
        let mut writer = spill.writer();
        let error = writer.write_all(&pattern(1, BUFFER_BYTES)).unwrap_err();
        let message = Error::io("write", "elsewhere", error).to_string();
        assert!(message.starts_with(&format!("cannot spill to `{}`", missing.display())));
        assert!(message.contains("\nhint: TMPDIR"), "{message}");
    }
}
