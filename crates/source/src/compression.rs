//! Compressed files: which kind, and their bytes decoded as a stream.
//!
//! Files made of several members or frames one after another (`cat a.gz b.gz`, parallel
//! compressors) are decoded to the end. A stream that ends early or does not decode is
//! [`Error::Corrupt`] with the offset reached in the compressed file.
//!
//! Decoding one gzip stream is about as much work as parsing what comes out, so a file of
//! more than a few MiB gets a helper thread ([`Ahead`]): a bounded channel of blocks lets the
//! two overlap, and the blocks go back to be filled again.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::coverage::human_bytes;

use super::error::{Error, Result};
use super::input::{ByteInput, ReaderInput, Watch};

/// How a file's bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip (RFC 1952), `.gz`.
    Gzip,
    /// Zstandard (RFC 8878), `.zst`.
    Zstd,
    /// bzip2, `.bz2`.
    Bzip2,
    /// xz, `.xz`.
    Xz,
}

/// A compressed file of at least this size is decoded on a thread of its own.
const AHEAD_BYTES_MIN: u64 = 4 << 20;
const AHEAD_BLOCK_BYTES: usize = 512 << 10;
const AHEAD_BLOCKS: usize = 4;
const ZSTD_FRAME: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A block's beginning, and that of the end of a file without one.
const BZIP2_BLOCK: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
/// Zstandard's own limit for who is not told otherwise: a window of 128 MiB.
const ZSTD_WINDOW_BYTES_MAX: u64 = 1 << 27;
/// So many bytes tell every kind.
pub const MAGIC_BYTES: usize = 10;
/// What is read of a compressed file at once.
pub(crate) const STORED_BUFFER_BYTES: usize = 256 << 10;

impl Compression {
    /// The name without its compression suffix, and the compression that the suffix tells.
    pub fn strip_suffix(name: &str) -> (&str, Self) {
        let lower = name.to_ascii_lowercase();
        for (suffix, compression) in [
            (".gz", Compression::Gzip),
            (".zst", Compression::Zstd),
            (".bz2", Compression::Bzip2),
            (".xz", Compression::Xz),
        ] {
            if lower.ends_with(suffix) {
                return (&name[..name.len() - suffix.len()], compression);
            }
        }
        (name, Compression::None)
    }

    /// The compression whose magic number the bytes begin with.
    pub fn from_magic(bytes: &[u8]) -> Self {
        // `BZh9` may begin a text; what follows it in a file cannot.
        let bzip2 = |bytes: &[u8]| match bytes {
            [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] => {
                rest.starts_with(BZIP2_BLOCK) || rest.starts_with(BZIP2_END)
            }
            _ => false,
        };
        // Zstandard has frames that are to be skipped, of sixteen kinds.
        let skippable =
            matches!(bytes, [0x50..=0x5f, rest @ ..] if rest.starts_with(&[0x2a, 0x4d, 0x18]));
        if bytes.starts_with(&[0x1f, 0x8b, 0x08]) {
            Compression::Gzip
        } else if bytes.starts_with(ZSTD_FRAME) || skippable {
            Compression::Zstd
        } else if bzip2(bytes) {
            Compression::Bzip2
        } else if bytes.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            Compression::Xz
        } else {
            Compression::None
        }
    }

    /// Whether these bytes, all that there are, may be the beginning of a magic number that is cut off:
    /// those of bzip2 are letters.
    pub(crate) fn may_begin(self, bytes: &[u8]) -> bool {
        let magic: &[u8] = match self {
            Compression::Bzip2 => b"BZh",
            Compression::Zstd => ZSTD_FRAME,
            // Their first byte is in no text.
            Compression::None | Compression::Gzip | Compression::Xz => return false,
        };
        let cut = bytes.len().min(magic.len());
        !bytes.is_empty() && bytes.len() < MAGIC_BYTES && bytes[..cut] == magic[..cut]
    }

    /// The suffix that tells it, and its name as one of outputs; none of what is not compressed.
    pub fn codec(self) -> Option<(&'static str, &'static str)> {
        match self {
            Compression::None => None,
            Compression::Gzip => Some((".gz", "gzip")),
            Compression::Zstd => Some((".zst", "zstd")),
            Compression::Bzip2 => Some((".bz2", "bzip2")),
            Compression::Xz => Some((".xz", "xz")),
        }
    }

    /// The suffix of what is compressed so.
    pub fn suffix_of(name: &str) -> Option<&'static str> {
        let all = [Compression::Gzip, Compression::Zstd, Compression::Bzip2, Compression::Xz];
        let codecs = all.into_iter().filter_map(Compression::codec);
        codecs.into_iter().find(|(_, own)| *own == name).map(|(suffix, _)| suffix)
    }

    fn name(self) -> &'static str {
        match self {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }
}

/// The stored bytes under a decoder: counts what the decoder has taken, and keeps our own
/// error (a cancelled run, a changed file) from being mistaken for a damaged stream.
struct Stored {
    input: Box<dyn ByteInput>,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    /// Whether the last byte that has come is handed on by itself: a decoder that asks for more before it has given all
    /// that it has would wait for it.
    eager: bool,
    state: Arc<Mutex<StoredState>>,
}

#[derive(Default)]
struct StoredState {
    taken: u64,
    error: Option<Error>,
}

impl Read for Stored {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Stored {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.filled {
            self.at = 0;
            self.filled = 0;
            match self.input.read(&mut self.buffer) {
                Ok(count) => self.filled = count,
                Err(error) => {
                    self.state.lock().error = Some(error);
                    return Err(io::Error::other("reading the stored bytes failed"));
                }
            }
        }
        let held = usize::from(self.eager && self.filled - self.at > 1);
        Ok(&self.buffer[self.at..self.filled - held])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
        self.state.lock().taken += count as u64;
    }
}

struct Decoded {
    decoder: Box<dyn Read + Send>,
    state: Arc<Mutex<StoredState>>,
    path: Arc<str>,
    compression: Compression,
    /// What the first frame of Zstandard wants, if it wants much.
    window_bytes: Option<u64>,
    empty: bool,
    /// Whether a read gives what the bytes that have come decode to, rather than wait for more.
    eager: bool,
}

/// What Zstandard says of a window beyond its limit.
const WINDOW_ERROR: &str = "Frame requires too much memory for decoding";

fn large_window(path: &str, window_bytes: Option<u64>) -> Error {
    let of = match window_bytes {
        Some(bytes) => format!(" of {}", human_bytes(bytes)),
        None => String::new(),
    };
    Error::Memory {
        message: format!(
            "`{path}` needs a window{of} to be decompressed, and {} is the most that is taken",
            human_bytes(ZSTD_WINDOW_BYTES_MAX)
        ),
        hint: Some(
            "zstd -d --long=31 decompresses it; compressed with --long=27 or less it is read"
                .into(),
        ),
    }
}

/// The window that a frame of Zstandard says it needs (RFC 8878, 3.1.1.1.2), if it is beyond the
/// limit.
fn window_bytes(frame: &[u8]) -> Option<u64> {
    let [descriptor, window, ..] = frame.strip_prefix(ZSTD_FRAME)? else { return None };
    let is_one_segment = descriptor & 0x20 != 0;
    let base = 1_u64 << (10 + (window >> 3));
    let bytes = base + base / 8 * u64::from(window & 7);
    (!is_one_segment && bytes > ZSTD_WINDOW_BYTES_MAX).then_some(bytes)
}

impl ByteInput for Decoded {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        if self.empty || out.is_empty() {
            return Ok(0);
        }
        let mut filled = 0;
        while filled < out.len() {
            match self.decoder.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    // The decoder stops within `out` where it has no more stored bytes.
                    if self.eager {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let mut state = self.state.lock();
                    if let Some(error) = state.error.take() {
                        return Err(error);
                    }
                    let kind = self.compression.name();
                    if self.compression == Compression::Zstd && error.to_string() == WINDOW_ERROR {
                        return Err(large_window(&self.path, self.window_bytes));
                    }
                    let (reason, hint) = if error.kind() == io::ErrorKind::UnexpectedEof {
                        (
                            format!("the {kind} stream ends before its end mark"),
                            "the file is truncated; fetch or compress it again",
                        )
                    } else {
                        (
                            format!("not a valid {kind} stream ({error})"),
                            "it was damaged on its way or when it was written; fetch or compress \
                             it again",
                        )
                    };
                    return Err(Error::Corrupt {
                        path: self.path.to_string(),
                        offset: Some(state.taken),
                        reason,
                        hint: Some(hint.into()),
                    });
                }
            }
        }
        Ok(filled)
    }

    fn is_eager(&self) -> bool {
        self.eager
    }
}

/// The decoded bytes of `input`, which is read `buffer_bytes` at a time and holds `stored_bytes`,
/// if that is known and all of it is wanted.
///
/// # Errors
/// [`Error::Io`] if a decoder cannot be set up; reading reports the rest.
pub(crate) fn decode(
    input: Box<dyn ByteInput>,
    compression: Compression,
    path: &Arc<str>,
    buffer_bytes: usize,
    stored_bytes: Option<u64>,
) -> Result<Box<dyn ByteInput>> {
    if compression == Compression::None {
        return Ok(input);
    }
    let state = Arc::new(Mutex::new(StoredState::default()));
    let eager = input.is_eager();
    let (buffer, own) = (vec![0; buffer_bytes], state.clone());
    let mut stored = Stored { input, buffer, at: 0, filled: 0, eager, state: own };
    // A compressed file of zero bytes holds zero bytes, as everywhere else.
    let (empty, window_bytes) = match stored.fill_buf() {
        Ok(bytes) => (bytes.is_empty(), window_bytes(bytes)),
        Err(error) => {
            return Err(match state.lock().error.take() {
                Some(error) => error,
                None => Error::io("read", path.as_ref(), error),
            });
        }
    };
    let decoder: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(stored),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stored)),
        Compression::Zstd => Box::new(
            zstd::stream::read::Decoder::with_buffer(stored)
                .map_err(|error| Error::io("decode", path.as_ref(), error))?,
        ),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(stored)),
        Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(stored)),
    };
    let path_shown = path.clone();
    let decoded =
        Decoded { decoder, state, path: path_shown, compression, window_bytes, empty, eager };
    Ok(match stored_bytes {
        Some(bytes) if bytes < AHEAD_BYTES_MIN => Box::new(decoded),
        _ => Box::new(Ahead::start(decoded, path)?),
    })
}

/// The decoded bytes of any reader, for who reads no records. `path` is for messages; errors are
/// [`tidemill_base::error::Error`] within one of `std::io`.
///
/// # Errors
/// [`Error::Io`] if a decoder cannot be set up, or the first bytes cannot be read; reading reports the rest.
pub fn decoded_reader(
    reader: impl Read + Send + 'static,
    compression: Compression,
    path: &str,
) -> Result<Box<dyn Read + Send>> {
    let path: Arc<str> = path.into();
    let input = ReaderInput::new(Vec::new(), reader, Arc::clone(&path), Watch::default());
    let bytes = decode(Box::new(input), compression, &path, STORED_BUFFER_BYTES, None)?;
    Ok(Box::new(DecodedReader(bytes)))
}

struct DecodedReader(Box<dyn ByteInput>);

impl Read for DecodedReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(|error| io::Error::other(tidemill_base::error::Error::from(error)))
    }
}

/// Decodes on a thread of its own, a few blocks ahead of the reader.
struct Ahead {
    blocks: Option<Receiver<Result<Vec<u8>>>>,
    spent: Sender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    worker: Option<JoinHandle<()>>,
    eager: bool,
}

impl Ahead {
    fn start(decoded: Decoded, path: &Arc<str>) -> Result<Self> {
        let eager = decoded.eager;
        let (sender, blocks) = sync_channel(AHEAD_BLOCKS);
        let (spent, recycled) = channel();
        let worker = std::thread::Builder::new()
            .name("tidemill-decode".into())
            .spawn(move || Self::run(decoded, &sender, &recycled))
            .map_err(|error| Error::io("start a thread to decode", path.as_ref(), error))?;
        let (blocks, worker) = (Some(blocks), Some(worker));
        Ok(Self { blocks, spent, current: Vec::new(), at: 0, worker, eager })
    }

    fn run(
        mut decoded: Decoded,
        sender: &SyncSender<Result<Vec<u8>>>,
        recycled: &Receiver<Vec<u8>>,
    ) {
        loop {
            let mut block = recycled.try_recv().unwrap_or_default();
            block.resize(AHEAD_BLOCK_BYTES, 0);
            let read = decoded.read(&mut block);
            let last = !matches!(read, Ok(count) if count > 0);
            let message = read.map(|count| {
                block.truncate(count);
                block
            });
            // The reader has gone: nobody wants the rest.
            if sender.send(message).is_err() || last {
                return;
            }
        }
    }
}

impl ByteInput for Ahead {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            if self.at == self.current.len() {
                let Some(blocks) = &self.blocks else { break };
                let next = match self.eager && filled > 0 {
                    true => match blocks.try_recv() {
                        Err(TryRecvError::Empty) => break,
                        next => next.map_err(drop),
                    },
                    false => blocks.recv().map_err(drop),
                };
                match next {
                    Ok(Ok(block)) if block.is_empty() => {
                        self.blocks = None;
                        break;
                    }
                    Ok(Ok(block)) => {
                        let spent = std::mem::replace(&mut self.current, block);
                        self.at = 0;
                        let _ = self.spent.send(spent);
                    }
                    Ok(Err(error)) => {
                        self.blocks = None;
                        return Err(error);
                    }
                    Err(()) => {
                        self.blocks = None;
                        return Err(Error::Internal("the decoding thread ended early".into()));
                    }
                }
            }
            let count = (self.current.len() - self.at).min(out.len() - filled);
            out[filled..filled + count].copy_from_slice(&self.current[self.at..self.at + count]);
            self.at += count;
            filled += count;
        }
        Ok(filled)
    }

    fn is_eager(&self) -> bool {
        self.eager
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Closing the channel makes the thread's next send fail, which ends it.
        self.blocks = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}
