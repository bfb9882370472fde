//! Stored bytes of one file, read by position and checked against the plan.
//!
//! A plan names byte ranges, so a file that is rewritten between planning and reading would give rows of
//! neither version. The listing records the file's identity (device, inode, size, modification time). Readers
//! compare it when they open the file, at an unexpected end, and at the end of reading; a difference is
//! [`Error::FileChanged`]. For a remote object, every response is compared ([`remote`](tidemill_remote)).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::progress::RunProgress;

use crate::error::{Error, Result};
use crate::files::confinement;
use crate::programs::filter_program::{FEED_CHUNK_BYTES, FilterProgram, RunningProgram};
pub(crate) use tidemill_remote::reader::ReadPattern;
use tidemill_remote::reader::{ObjectReader, PrefetchBudget};

use crate::{FileLocation, SourceFile};

/// A byte sequence that is read once, front to back.
pub(crate) trait ByteInput: Send {
    /// Fills `out` as far as possible. Returns fewer bytes than requested only at the end, or if the input
    /// allows [short reads](ByteReadContext::allows_short_reads); then 0 bytes mark the end.
    fn read(&mut self, out: &mut [u8]) -> Result<usize>;

    /// Returns true if a read may return fewer bytes than requested before the end.
    fn allows_short_reads(&self) -> bool {
        false
    }
}

/// The identity that distinguishes one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device that holds the file.
    pub device: u64,
    /// Inode on the device.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in nanoseconds since 1970.
    pub modified_ns: i128,
}

impl FileIdentity {
    pub(crate) fn from_metadata(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
        }
    }
}

/// A file opened for reading by position, which is known to be the planned one.
#[derive(Debug)]
pub(crate) struct OpenFile {
    bytes: OpenFileBytes,
    path: Arc<str>,
    planned_identity: FileIdentity,
}

#[derive(Debug)]
enum OpenFileBytes {
    Local(File),
    Remote(Box<ObjectReader>),
}

impl OpenFile {
    /// Opens a file, which must still have the identity that the listing recorded.
    ///
    /// # Errors
    /// [`Error::FileChanged`] if it is gone or differs; [`Error::Io`] if it cannot be opened.
    pub(crate) fn open(
        listed: &SourceFile,
        access: ReadPattern,
        watch: &ByteReadContext,
    ) -> Result<Self> {
        let (shown, planned) = (&listed.display_name, listed.identity);
        let path = match &listed.location {
            FileLocation::Local(path) => path,
            FileLocation::Object(object) => {
                let (cancel, ahead) = (watch.cancel.clone(), watch.prefetch_budget.clone());
                let reader = ObjectReader::new(object.clone(), access, cancel, ahead);
                let bytes = OpenFileBytes::Remote(Box::new(reader));
                return Ok(Self { bytes, path: shown.clone(), planned_identity: planned });
            }
            FileLocation::Stdin => {
                return Err(Error::Internal("standard input is not opened by its name".into()));
            }
            FileLocation::Memory(_) => {
                return Err(Error::Internal(format!("`{shown}` is no file to open")));
            }
        };
        // Does not block on a file that has become a pipe since the listing.
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(confinement::resolve_path(path, shown)?);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::FileChanged {
                    path: shown.to_string(),
                    reason: "it has been removed since it was listed".into(),
                });
            }
            Err(error) => return Err(Error::from_io("read", shown.as_ref(), error)),
        };
        let open = Self {
            bytes: OpenFileBytes::Local(file),
            path: shown.clone(),
            planned_identity: planned,
        };
        open.verify_identity()?;
        Ok(open)
    }

    pub(crate) fn size(&self) -> u64 {
        self.planned_identity.size
    }

    pub(crate) fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Checks that the open file is still the planned one.
    ///
    /// # Errors
    /// [`Error::FileChanged`].
    pub(crate) fn verify_identity(&self) -> Result<()> {
        // Each response of a remote object has been verified.
        let OpenFileBytes::Local(file) = &self.bytes else { return Ok(()) };
        let metadata =
            file.metadata().map_err(|error| Error::from_io("read", self.path.as_ref(), error))?;
        let found = FileIdentity::from_metadata(&metadata);
        if found == self.planned_identity {
            return Ok(());
        }
        let planned = self.planned_identity;
        let reason = if (found.device, found.inode) != (planned.device, planned.inode) {
            "it has been replaced by another file since it was listed".into()
        } else if found.size < planned.size {
            format!("it has shrunk from {} to {} bytes", planned.size, found.size)
        } else if found.size > planned.size {
            format!("it has grown from {} to {} bytes", planned.size, found.size)
        } else {
            "it has been written to since it was listed".into()
        };
        Err(Error::FileChanged { path: self.path.to_string(), reason })
    }

    /// Announces that reading up to the end of a split starts at `offset`.
    ///
    /// # Errors
    /// Those of reading a remote object.
    pub(crate) fn begin_reading_at(&self, offset: u64) -> Result<()> {
        match &self.bytes {
            OpenFileBytes::Local(_) => Ok(()),
            OpenFileBytes::Remote(reader) => Ok(reader.start_split_at(offset)?),
        }
    }

    /// Returns the reader of a remote file.
    pub(crate) fn remote_reader(&self) -> Option<&ObjectReader> {
        match &self.bytes {
            OpenFileBytes::Local(_) => None,
            OpenFileBytes::Remote(reader) => Some(reader),
        }
    }

    /// Fills `out` from `offset`; fewer bytes only at the end of the planned size.
    ///
    /// # Errors
    /// [`Error::FileChanged`] if the file ends before its planned size.
    pub(crate) fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        let file = match &self.bytes {
            OpenFileBytes::Local(file) => file,
            OpenFileBytes::Remote(reader) => return Ok(reader.read_at(out, offset)?),
        };
        let left = self.planned_identity.size.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let mut filled = 0;
        while filled < wanted {
            match file.read_at(&mut out[filled..wanted], offset + filled as u64) {
                Ok(0) => {
                    self.verify_identity()?;
                    return Err(Error::FileChanged {
                        path: self.path.to_string(),
                        reason: format!(
                            "it ends at byte {}, {} were planned",
                            offset + filled as u64,
                            self.planned_identity.size
                        ),
                    });
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("read", self.path.as_ref(), error)),
            }
        }
        Ok(filled)
    }
}

/// Context of a read: cancellation, progress and limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByteReadContext {
    pub(crate) cancel: CancelFlag,
    pub(crate) progress: RunProgress,
    /// Budget for prefetching remote bytes.
    pub(crate) prefetch_budget: PrefetchBudget,
    /// True if a read returns the available bytes instead of waiting for more.
    pub(crate) allows_short_reads: bool,
    /// Number of bytes that the file's filter program has returned.
    pub(crate) program_output_bytes: Arc<AtomicU64>,
}

/// An input for a byte range of a file.
///
/// A read may go past the range's end, since a record may begin before it and end behind it. Such bytes
/// belong to the next range and are not counted here.
pub(crate) struct FileInput {
    file: Arc<OpenFile>,
    position: u64,
    counted_end: u64,
    context: ByteReadContext,
    /// Bytes that were already read, with their offset.
    already_read_bytes: (u64, Vec<u8>),
}

impl FileInput {
    pub(crate) fn new(
        file: Arc<OpenFile>,
        at: u64,
        counted_to: u64,
        watch: ByteReadContext,
    ) -> Self {
        Self {
            file,
            position: at,
            counted_end: counted_to,
            context: watch,
            already_read_bytes: (0, Vec::new()),
        }
    }

    /// Returns the input with bytes that were already read, which it does not read again.
    pub(crate) fn with_already_read_bytes(self, from: u64, seen: Vec<u8>) -> Self {
        Self { already_read_bytes: (from, seen), ..self }
    }

    /// Copies bytes that were already read at the current position; returns their number.
    fn take_already_read_bytes(&mut self, out: &mut [u8]) -> usize {
        let (from, seen) = &self.already_read_bytes;
        let before = self.position.checked_sub(*from).and_then(|at| usize::try_from(at).ok());
        let rest = before.and_then(|before| seen.get(before..)).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        if count == rest.len() {
            self.already_read_bytes = (0, Vec::new());
        }
        count
    }
}

impl ByteInput for FileInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        self.context.cancel.check()?;
        let seen = self.take_already_read_bytes(out);
        let count = match seen == out.len() {
            true => seen,
            false => seen + self.file.read_at(&mut out[seen..], self.position + seen as u64)?,
        };
        let end = self.position + count as u64;
        self.context.progress.add_bytes(end.min(self.counted_end).saturating_sub(self.position));
        self.position = end;
        if count < out.len() {
            self.file.verify_identity()?;
        }
        Ok(count)
    }
}

/// Returns standard input as a reader that can be interrupted. If no byte arrives within 50 ms, a read ends
/// with `ErrorKind::Interrupted`; the caller checks its cancel flag and tries again.
pub fn standard_input() -> Box<dyn Read + Send> {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(InterruptibleReader { input: descriptor.into() }),
        Err(_) => Box::new(std::io::stdin()),
    }
}

/// Returns an interruptible reader of a pipe that was opened without waiting for its writer.
#[cfg(target_os = "linux")]
pub(crate) fn interruptible_pipe(input: File) -> Box<dyn Read + Send> {
    Box::new(InterruptibleReader { input })
}

/// Maximum wait of a read, in milliseconds.
const POLL_TIMEOUT_MS: i32 = 50;

struct InterruptibleReader {
    input: File,
}

impl Read for InterruptibleReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut wanted =
            libc::pollfd { fd: self.input.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `wanted` is one `pollfd`, of a descriptor that is open as long as `self`.
        match unsafe { libc::poll(&raw mut wanted, 1, POLL_TIMEOUT_MS) } {
            0 => Err(std::io::ErrorKind::Interrupted.into()),
            // A descriptor that cannot be polled is read directly, and its read reports the error. Another
            // process may have read the available bytes.
            _ => self.input.read(out).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => std::io::ErrorKind::Interrupted.into(),
                _ => error,
            }),
        }
    }
}

/// An input from any reader, such as standard input, behind bytes that were already taken from it.
pub(crate) struct ReaderInput<R> {
    prefix: std::io::Cursor<Vec<u8>>,
    reader: R,
    path: Arc<str>,
    context: ByteReadContext,
}

impl<R: Read + Send> ReaderInput<R> {
    pub(crate) fn new(before: Vec<u8>, reader: R, path: Arc<str>, watch: ByteReadContext) -> Self {
        Self { prefix: std::io::Cursor::new(before), reader, path, context: watch }
    }
}

impl<R: Read + Send> ByteInput for ReaderInput<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            self.context.cancel.check()?;
            let read = match self.prefix.read(&mut out[filled..]) {
                Ok(0) => self.reader.read(&mut out[filled..]),
                other => other,
            };
            match read {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    if self.context.allows_short_reads && filled > 0 {
                        break;
                    }
                }
                Err(error) => return Err(Error::from_io("read", self.path.as_ref(), error)),
            }
        }
        self.context.progress.add_bytes(filled as u64);
        Ok(filled)
    }

    fn allows_short_reads(&self) -> bool {
        self.context.allows_short_reads
    }
}

/// An input filtered by a program.
pub(crate) struct FilteredInput {
    program: RunningProgram,
    inner: Box<dyn ByteInput>,
}

impl FilteredInput {
    pub(crate) fn start(
        program: &FilterProgram,
        inner: Box<dyn ByteInput>,
        path: &str,
        (cancel, gave): (&CancelFlag, Arc<AtomicU64>),
    ) -> Result<Self> {
        let mut filter = RunningProgram::start(program, path, true, cancel)?;
        filter.output_bytes = gave;
        Ok(Self { program: filter, inner })
    }

    /// Allows or forbids short reads.
    pub(crate) fn with_short_reads(mut self, eager: bool) -> Self {
        self.program.set_short_reads_allowed(eager);
        self
    }
}

impl ByteInput for FilteredInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let inner = &mut self.inner;
        self.program.read(out, &mut |pending| {
            pending.resize(FEED_CHUNK_BYTES, 0);
            let count = inner.read(pending)?;
            pending.truncate(count);
            Ok(count > 0)
        })
    }

    fn allows_short_reads(&self) -> bool {
        self.program.allows_short_reads()
    }
}

/// The output of a program without input.
pub(crate) struct ProgramOutputReader(RunningProgram);

impl ProgramOutputReader {
    pub(crate) fn start(program: &FilterProgram, cancel: &CancelFlag) -> Result<Self> {
        let mut filter = RunningProgram::start(program, "", false, cancel)?;
        filter.set_short_reads_allowed(true);
        Ok(Self(filter))
    }
}

impl Read for ProgramOutputReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        // Returns after each poll, so that the reader can be cancelled.
        if !self.0.wait_for_output().map_err(std::io::Error::other)? {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        self.0.read(out, &mut |_| Ok::<_, Error>(false)).map_err(std::io::Error::other)
    }
}
