//! The stored bytes of one file: read by position, checked against what was planned.
//!
//! A plan names byte ranges, so a file that is rewritten between planning and reading would
//! give rows of neither version. Its identity (device, inode, size, modification time) is
//! taken when it is listed and compared when it is opened, at an unexpected end and once
//! more at the end of reading; a difference is [`Error::Changed`]. An object elsewhere is
//! compared with each answer ([`remote`](tidemill_remote)).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::progress::RunProgress;

use super::confined;
use super::error::{Error, Result};
use crate::program::{FEED_BYTES, Filter, Program};
pub(crate) use tidemill_remote::reader::ReadPattern;
use tidemill_remote::reader::{ObjectReader, PrefetchBudget};

use super::{FileLocation, SourceFile};

/// A sequence of bytes that is read once, front to back.
pub(crate) trait ByteInput: Send {
    /// Fills `out` as far as it can; fewer bytes than asked for only at the end, or where the input is
    /// [eager](Watch::eager): none are the end then.
    fn read(&mut self, out: &mut [u8]) -> Result<usize>;

    /// Whether fewer bytes than asked for may come before the end.
    fn is_eager(&self) -> bool {
        false
    }
}

/// What tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The device that holds it.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last modified, in nanoseconds since 1970.
    pub modified_ns: i128,
}

impl Identity {
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
        }
    }
}

/// A file opened for reading by position, known to be the one that was planned.
#[derive(Debug)]
pub(crate) struct OpenFile {
    bytes: Bytes,
    path: Arc<str>,
    planned: Identity,
}

#[derive(Debug)]
enum Bytes {
    Here(File),
    There(Box<ObjectReader>),
}

impl OpenFile {
    /// Opens a file, which must still have the identity that it was listed with.
    ///
    /// # Errors
    /// [`Error::Changed`] if it is gone or differs; [`Error::Io`] if it cannot be opened.
    pub(crate) fn open(listed: &SourceFile, access: ReadPattern, watch: &Watch) -> Result<Self> {
        let (shown, planned) = (&listed.shown, listed.identity);
        let path = match &listed.place {
            FileLocation::Local(path) => path,
            FileLocation::Object(object) => {
                let (cancel, ahead) = (watch.cancel.clone(), watch.ahead.clone());
                let reader = ObjectReader::new(object.clone(), access, cancel, ahead);
                let bytes = Bytes::There(Box::new(reader));
                return Ok(Self { bytes, path: shown.clone(), planned });
            }
            FileLocation::Stdin => {
                return Err(Error::Internal("standard input is not opened by its name".into()));
            }
            FileLocation::Given(_) => {
                return Err(Error::Internal(format!("`{shown}` is no file to open")));
            }
        };
        // What has become a pipe since is not waited for.
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(confined::resolved(path, shown)?);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::Changed {
                    path: shown.to_string(),
                    reason: "it has been removed since it was listed".into(),
                });
            }
            Err(error) => return Err(Error::io("read", shown.as_ref(), error)),
        };
        let open = Self { bytes: Bytes::Here(file), path: shown.clone(), planned };
        open.verify()?;
        Ok(open)
    }

    pub(crate) fn size(&self) -> u64 {
        self.planned.size
    }

    pub(crate) fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Whether the open file is still what was planned.
    ///
    /// # Errors
    /// [`Error::Changed`].
    pub(crate) fn verify(&self) -> Result<()> {
        // Of an object elsewhere each answer has been verified.
        let Bytes::Here(file) = &self.bytes else { return Ok(()) };
        let metadata =
            file.metadata().map_err(|error| Error::io("read", self.path.as_ref(), error))?;
        let found = Identity::of(&metadata);
        if found == self.planned {
            return Ok(());
        }
        let planned = self.planned;
        let reason = if (found.device, found.inode) != (planned.device, planned.inode) {
            "it has been replaced by another file since it was listed".into()
        } else if found.size < planned.size {
            format!("it has shrunk from {} to {} bytes", planned.size, found.size)
        } else if found.size > planned.size {
            format!("it has grown from {} to {} bytes", planned.size, found.size)
        } else {
            "it has been written to since it was listed".into()
        };
        Err(Error::Changed { path: self.path.to_string(), reason })
    }

    /// Says that reading up to the end of a split starts here.
    ///
    /// # Errors
    /// Where nothing can be read of what is elsewhere.
    pub(crate) fn start_at(&self, offset: u64) -> Result<()> {
        match &self.bytes {
            Bytes::Here(_) => Ok(()),
            Bytes::There(reader) => Ok(reader.start_split_at(offset)?),
        }
    }

    /// Where it is, if it is elsewhere.
    pub(crate) fn remote(&self) -> Option<&ObjectReader> {
        match &self.bytes {
            Bytes::Here(_) => None,
            Bytes::There(reader) => Some(reader),
        }
    }

    /// Fills `out` from `offset`; fewer bytes only where the planned size ends.
    ///
    /// # Errors
    /// [`Error::Changed`] if the file ends before its planned size.
    pub(crate) fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        let file = match &self.bytes {
            Bytes::Here(file) => file,
            Bytes::There(reader) => return Ok(reader.read_at(out, offset)?),
        };
        let left = self.planned.size.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let mut filled = 0;
        while filled < wanted {
            match file.read_at(&mut out[filled..wanted], offset + filled as u64) {
                Ok(0) => {
                    self.verify()?;
                    return Err(Error::Changed {
                        path: self.path.to_string(),
                        reason: format!(
                            "it ends at byte {}, {} were planned",
                            offset + filled as u64,
                            self.planned.size
                        ),
                    });
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", self.path.as_ref(), error)),
            }
        }
        Ok(filled)
    }
}

/// Who is told about stored bytes as they are read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    pub(crate) cancel: CancelFlag,
    pub(crate) progress: RunProgress,
    /// What may be read ahead of what is elsewhere.
    pub(crate) ahead: PrefetchBudget,
    /// Whether a read gives what is there rather than wait for more.
    pub(crate) eager: bool,
    /// How many bytes the program gave that the file goes through.
    pub(crate) gave: Arc<AtomicU64>,
}

/// A range of a file, front to back.
///
/// Reading past the range's end is allowed, since a record may begin before it and end
/// behind it; such bytes belong to the next range and are not counted here.
pub(crate) struct FileInput {
    file: Arc<OpenFile>,
    at: u64,
    counted_to: u64,
    watch: Watch,
    /// What has been read, and from where on.
    seen: (u64, Vec<u8>),
}

impl FileInput {
    pub(crate) fn new(file: Arc<OpenFile>, at: u64, counted_to: u64, watch: Watch) -> Self {
        Self { file, at, counted_to, watch, seen: (0, Vec::new()) }
    }

    /// The same, which does not read again what has been.
    pub(crate) fn with_seen(self, from: u64, seen: Vec<u8>) -> Self {
        Self { seen: (from, seen), ..self }
    }

    /// Takes what has been read from here on; how many bytes.
    fn take_seen(&mut self, out: &mut [u8]) -> usize {
        let (from, seen) = &self.seen;
        let before = self.at.checked_sub(*from).and_then(|at| usize::try_from(at).ok());
        let rest = before.and_then(|before| seen.get(before..)).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        if count == rest.len() {
            self.seen = (0, Vec::new());
        }
        count
    }
}

impl ByteInput for FileInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        self.watch.cancel.check()?;
        let seen = self.take_seen(out);
        let count = match seen == out.len() {
            true => seen,
            false => seen + self.file.read_at(&mut out[seen..], self.at + seen as u64)?,
        };
        let end = self.at + count as u64;
        self.watch.progress.add_bytes(end.min(self.counted_to).saturating_sub(self.at));
        self.at = end;
        if count < out.len() {
            self.file.verify()?;
        }
        Ok(count)
    }
}

/// Standard input, such that whoever reads it can stop: where nothing comes for a moment, a
/// read ends with `ErrorKind::Interrupted`, which is to be tried again after a look at the
/// flag.
pub fn standard_input() -> Box<dyn Read + Send> {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(Patient { input: descriptor.into() }),
        Err(_) => Box::new(std::io::stdin()),
    }
}

/// The same of a pipe that was opened without waiting for who writes into it.
#[cfg(target_os = "linux")]
pub(crate) fn in_steps(input: File) -> Box<dyn Read + Send> {
    Box::new(Patient { input })
}

/// How long a read waits, in milliseconds.
const WAIT_MS: i32 = 50;

struct Patient {
    input: File,
}

impl Read for Patient {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut wanted =
            libc::pollfd { fd: self.input.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `wanted` is one `pollfd`, of a descriptor that is open as long as `self`.
        match unsafe { libc::poll(&raw mut wanted, 1, WAIT_MS) } {
            0 => Err(std::io::ErrorKind::Interrupted.into()),
            // What cannot be waited for is read as it is, and says itself what is wrong. Somebody else may have
            // read what was there.
            _ => self.input.read(out).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => std::io::ErrorKind::Interrupted.into(),
                _ => error,
            }),
        }
    }
}

/// Any reader, such as standard input, after bytes that were taken from it already.
pub(crate) struct ReaderInput<R> {
    before: std::io::Cursor<Vec<u8>>,
    reader: R,
    path: Arc<str>,
    watch: Watch,
}

impl<R: Read + Send> ReaderInput<R> {
    pub(crate) fn new(before: Vec<u8>, reader: R, path: Arc<str>, watch: Watch) -> Self {
        Self { before: std::io::Cursor::new(before), reader, path, watch }
    }
}

impl<R: Read + Send> ByteInput for ReaderInput<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            self.watch.cancel.check()?;
            let read = match self.before.read(&mut out[filled..]) {
                Ok(0) => self.reader.read(&mut out[filled..]),
                other => other,
            };
            match read {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    if self.watch.eager && filled > 0 {
                        break;
                    }
                }
                Err(error) => return Err(Error::io("read", self.path.as_ref(), error)),
            }
        }
        self.watch.progress.add_bytes(filled as u64);
        Ok(filled)
    }

    fn is_eager(&self) -> bool {
        self.watch.eager
    }
}

/// What a program makes of an input.
pub(crate) struct ProgramInput {
    filter: Filter,
    inner: Box<dyn ByteInput>,
}

impl ProgramInput {
    pub(crate) fn start(
        program: &Program,
        inner: Box<dyn ByteInput>,
        path: &str,
        (cancel, gave): (&CancelFlag, Arc<AtomicU64>),
    ) -> Result<Self> {
        let mut filter = Filter::start(program, path, true, cancel)?;
        filter.gave = gave;
        Ok(Self { filter, inner })
    }

    /// The same, which gives what is there.
    pub(crate) fn eager(mut self, eager: bool) -> Self {
        self.filter.set_eager(eager);
        self
    }
}

impl ByteInput for ProgramInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let inner = &mut self.inner;
        self.filter.read(out, &mut |pending| {
            pending.resize(FEED_BYTES, 0);
            let count = inner.read(pending)?;
            pending.truncate(count);
            Ok(count > 0)
        })
    }

    fn is_eager(&self) -> bool {
        self.filter.is_eager()
    }
}

/// The output of a program that is given nothing.
pub(crate) struct ProgramOutput(Filter);

impl ProgramOutput {
    pub(crate) fn start(program: &Program, cancel: &CancelFlag) -> Result<Self> {
        let mut filter = Filter::start(program, "", false, cancel)?;
        filter.set_eager(true);
        Ok(Self(filter))
    }
}

impl Read for ProgramOutput {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        // In little steps, so that whoever reads can stop.
        if !self.0.gives().map_err(std::io::Error::other)? {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        self.0.read(out, &mut |_| Ok::<_, Error>(false)).map_err(std::io::Error::other)
    }
}
