//! Detection of compression, and decompression as a stream.
//!
//! Files of several members or frames in sequence (`cat a.gz b.gz`, parallel compressors) are decoded to the
//! end ([`MultiMemberDecoder`]). NULs behind the last member are padding, which tapes and block devices add;
//! xz allows multiples of four. Any other trailing bytes are [`Error::Corrupt`], because a part of the file
//! may have been overwritten. So is a stream that ends early or does not decode. The error has the offset
//! reached in the compressed file.
//!
//! Decoding one gzip stream takes about as long as parsing its output, so a file of more than a few MiB gets
//! a helper thread ([`ThreadedDecompressor`]). A bounded channel of blocks lets the two overlap, and consumed
//! blocks go back to be filled again.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::coverage::format_decimal_bytes;
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};

use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, ByteReadContext, ReaderInput};

/// Compression of a file's bytes.
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

/// Minimum size of a compressed file that is decoded on a thread of its own, in bytes.
const THREADED_INPUT_BYTES_MIN: u64 = 4 << 20;
const DECODED_BLOCK_BYTES: usize = 512 << 10;
const DECODED_BLOCKS_MAX: usize = 4;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b, 0x08];
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Magic numbers of a block, and of the end of a file without blocks.
const BZIP2_BLOCK_MAGIC: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END_MAGIC: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
/// Maximum window in bytes, 128 MiB: Zstandard's own limit for decoders without other settings.
const ZSTD_WINDOW_BYTES_MAX: u64 = 1 << 27;
/// Number of leading bytes that identify every compression.
pub const COMPRESSION_MAGIC_BYTES: usize = 10;
/// Size of a read of a compressed file, in bytes.
pub(crate) const COMPRESSED_READ_BYTES: usize = 256 << 10;

impl Compression {
    /// Splits off the compression suffix of a name, and returns the compression that it declares.
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

    /// Returns the compression whose magic number the bytes begin with.
    pub fn from_magic(bytes: &[u8]) -> Self {
        // `BZh9` may begin a text; the bytes that follow it in a file cannot.
        let bzip2 = |bytes: &[u8]| match bytes {
            [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] => {
                rest.starts_with(BZIP2_BLOCK_MAGIC) || rest.starts_with(BZIP2_END_MAGIC)
            }
            _ => false,
        };
        // Zstandard has sixteen kinds of skippable frames.
        let skippable =
            matches!(bytes, [0x50..=0x5f, rest @ ..] if rest.starts_with(&[0x2a, 0x4d, 0x18]));
        if bytes.starts_with(GZIP_MAGIC) {
            Compression::Gzip
        } else if bytes.starts_with(ZSTD_MAGIC) || skippable {
            Compression::Zstd
        } else if bzip2(bytes) {
            Compression::Bzip2
        } else if bytes.starts_with(XZ_MAGIC) {
            Compression::Xz
        } else {
            Compression::None
        }
    }

    /// Returns true if these bytes, [`COMPRESSION_MAGIC_BYTES`] or all that there are, begin a member. The
    /// input may end within the magic number.
    fn can_begin_member(self, bytes: &[u8]) -> bool {
        let magics: &[&[u8]] = match self {
            Compression::None => &[],
            Compression::Gzip => &[GZIP_MAGIC],
            Compression::Zstd => &[ZSTD_MAGIC],
            Compression::Bzip2 => &[b"BZh"],
            Compression::Xz => &[XZ_MAGIC],
        };
        let is_cut = |magic: &&[u8]| {
            let both = bytes.iter().zip(*magic);
            bytes.len() < COMPRESSION_MAGIC_BYTES && both.into_iter().all(|(byte, own)| byte == own)
        };
        !bytes.is_empty() && (Self::from_magic(bytes) == self || magics.iter().any(is_cut))
    }

    /// Returns true if these bytes, all that there are, may be a truncated magic number that looks like text;
    /// that of bzip2 consists of letters.
    pub(crate) fn is_truncated_magic(self, bytes: &[u8]) -> bool {
        let magic: &[u8] = match self {
            Compression::Bzip2 => b"BZh",
            Compression::Zstd => ZSTD_MAGIC,
            // The first byte of these magic numbers occurs in no text.
            Compression::None | Compression::Gzip | Compression::Xz => return false,
        };
        let cut = bytes.len().min(magic.len());
        !bytes.is_empty() && bytes.len() < COMPRESSION_MAGIC_BYTES && bytes[..cut] == magic[..cut]
    }

    /// Returns the file suffix and the codec name for outputs; none if not compressed.
    pub fn suffix_and_codec(self) -> Option<(&'static str, &'static str)> {
        match self {
            Compression::None => None,
            Compression::Gzip => Some((".gz", "gzip")),
            Compression::Zstd => Some((".zst", "zstd")),
            Compression::Bzip2 => Some((".bz2", "bzip2")),
            Compression::Xz => Some((".xz", "xz")),
        }
    }

    /// Returns the file suffix of a codec, by its name.
    pub fn suffix_of_codec(name: &str) -> Option<&'static str> {
        let all = [Compression::Gzip, Compression::Zstd, Compression::Bzip2, Compression::Xz];
        let codecs = all.into_iter().filter_map(Compression::suffix_and_codec);
        codecs.into_iter().find(|(_, own)| *own == name).map(|(suffix, _)| suffix)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }
}

/// Compressed bytes as a decoder reads them. Counts the consumed bytes, and keeps this crate's errors (a
/// cancelled run, a changed file) from being mistaken for a damaged stream.
struct CompressedInput {
    input: Box<dyn ByteInput>,
    buffer: Vec<u8>,
    position: usize,
    filled: usize,
    /// Holds back the last byte that has arrived. A decoder that asks for more input before it has returned
    /// all its output would otherwise wait.
    allows_short_reads: bool,
    state: Arc<Mutex<CompressedInputState>>,
}

#[derive(Default)]
struct CompressedInputState {
    consumed_bytes: u64,
    error: Option<Error>,
}

impl Read for CompressedInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for CompressedInput {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position == self.filled {
            self.position = 0;
            self.filled = 0;
            match self.input.read(&mut self.buffer) {
                Ok(count) => self.filled = count,
                Err(error) => {
                    self.state.lock().error = Some(error);
                    return Err(io::Error::other("reading the stored bytes failed"));
                }
            }
        }
        let held = usize::from(self.allows_short_reads && self.filled - self.position > 1);
        Ok(&self.buffer[self.position..self.filled - held])
    }

    fn consume(&mut self, count: usize) {
        self.position += count;
        self.state.lock().consumed_bytes += count as u64;
    }
}

impl CompressedInput {
    /// Returns the next bytes without consuming them: `count`, or fewer at the end.
    fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        let count = count.min(self.buffer.len());
        self.buffer.copy_within(self.position..self.filled, 0);
        (self.position, self.filled) = (0, self.filled - self.position);
        while self.filled < count {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => break,
                Ok(more) => self.filled += more,
                Err(error) => {
                    self.state.lock().error = Some(error);
                    return Err(io::Error::other("reading the stored bytes failed"));
                }
            }
        }
        Ok(&self.buffer[..self.filled.min(count)])
    }

    /// Skips NULs, and returns their number before another byte or the end.
    fn skip_nuls(&mut self) -> io::Result<u64> {
        let mut nuls = 0;
        loop {
            let bytes = self.fill_buf()?;
            let (length, found) = (bytes.len(), bytes.iter().position(|byte| *byte != 0));
            let count = found.unwrap_or(length);
            nuls += count as u64;
            self.consume(count);
            if found.is_some() || length == 0 {
                return Ok(nuls);
            }
        }
    }
}

/// Holds the compressed input within a member's decoder, so that the next member's decoder can take it over.
struct CompressedInputSlot(Option<CompressedInput>);

impl CompressedInputSlot {
    fn compressed_input(&mut self) -> io::Result<&mut CompressedInput> {
        self.0.as_mut().ok_or_else(|| io::Error::other("a decoder without its bytes"))
    }
}

impl Read for CompressedInputSlot {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.compressed_input()?.read(out)
    }
}

impl BufRead for CompressedInputSlot {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.compressed_input()?.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if let Some(stored) = &mut self.0 {
            stored.consume(count);
        }
    }
}

/// Decodes Zstandard frames. All frames share one context, whose memory is larger than many a frame.
struct ZstdFrameDecoder {
    context: raw::Decoder<'static>,
    input_slot: CompressedInputSlot,
    /// True if the current frame has been decoded.
    has_ended: bool,
}

impl Read for ZstdFrameDecoder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        // The context may still hold decoded bytes.
        let mut input: &[u8] = &[];
        loop {
            let (mut from, mut into) = (InBuffer::around(input), OutBuffer::around(&mut *out));
            self.has_ended = self.context.run(&mut from, &mut into)? == 0;
            let (taken, count) = (from.pos(), into.pos());
            self.input_slot.consume(taken);
            if count > 0 || self.has_ended {
                return Ok(count);
            }
            input = self.input_slot.fill_buf()?;
            if input.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The decoder of one member, frame or stream.
enum MemberDecoder {
    Gzip(flate2::bufread::GzDecoder<CompressedInputSlot>),
    Zstd(ZstdFrameDecoder),
    Bzip2(bzip2::bufread::BzDecoder<CompressedInputSlot>),
    Xz(liblzma::bufread::XzDecoder<CompressedInputSlot>),
}

impl MemberDecoder {
    fn input_slot(&mut self) -> &mut CompressedInputSlot {
        match self {
            MemberDecoder::Gzip(decoder) => decoder.get_mut(),
            MemberDecoder::Zstd(decoder) => &mut decoder.input_slot,
            MemberDecoder::Bzip2(decoder) => decoder.get_mut(),
            MemberDecoder::Xz(decoder) => decoder.get_mut(),
        }
    }
}

impl Read for MemberDecoder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            MemberDecoder::Gzip(decoder) => decoder.read(out),
            MemberDecoder::Zstd(decoder) => decoder.read(out),
            MemberDecoder::Bzip2(decoder) => decoder.read(out),
            MemberDecoder::Xz(decoder) => decoder.read(out),
        }
    }
}

/// Decodes all members of a file, and checks the bytes behind the last one.
struct MultiMemberDecoder {
    member: MemberDecoder,
    compression: Compression,
    path: Arc<str>,
    has_ended: bool,
}

impl MultiMemberDecoder {
    fn new(stored: CompressedInput, compression: Compression, path: &Arc<str>) -> io::Result<Self> {
        let stored = CompressedInputSlot(Some(stored));
        let member = match compression {
            Compression::None => return Err(io::Error::other("nothing to decode")),
            Compression::Gzip => MemberDecoder::Gzip(flate2::bufread::GzDecoder::new(stored)),
            Compression::Zstd => MemberDecoder::Zstd(ZstdFrameDecoder {
                context: raw::Decoder::new()?,
                input_slot: stored,
                has_ended: false,
            }),
            Compression::Bzip2 => MemberDecoder::Bzip2(bzip2::bufread::BzDecoder::new(stored)),
            Compression::Xz => MemberDecoder::Xz(xz_decoder(stored)?),
        };
        Ok(Self { member, compression, path: Arc::clone(path), has_ended: false })
    }

    /// Advances to the next member; false at the end of the file.
    fn next_member(&mut self) -> io::Result<bool> {
        let (compression, slot) = (self.compression, self.member.input_slot());
        let stored = slot.compressed_input()?;
        let end = stored.state.lock().consumed_bytes;
        let begins = |stored: &mut CompressedInput| -> io::Result<bool> {
            Ok(compression.can_begin_member(stored.peek(COMPRESSION_MAGIC_BYTES)?))
        };
        let is_member = begins(stored)? || {
            let nuls = stored.skip_nuls()?;
            let is_xz = compression == Compression::Xz;
            if stored.peek(1)?.is_empty() && (!is_xz || nuls.is_multiple_of(4)) {
                return Ok(false);
            }
            // Only xz has padding between its streams.
            is_xz && nuls > 0 && nuls.is_multiple_of(4) && begins(stored)?
        };
        if !is_member {
            let error = self.trailing_bytes_error(end)?;
            self.member.input_slot().compressed_input()?.state.lock().error = Some(error);
            return Err(io::Error::other("trailing bytes"));
        }
        let stored = CompressedInputSlot(slot.0.take());
        match &mut self.member {
            MemberDecoder::Gzip(decoder) => drop(decoder.reset(stored)),
            MemberDecoder::Zstd(decoder) => {
                decoder.context.reinit()?;
                (decoder.input_slot, decoder.has_ended) = (stored, false);
            }
            MemberDecoder::Bzip2(decoder) => *decoder = bzip2::bufread::BzDecoder::new(stored),
            MemberDecoder::Xz(decoder) => *decoder = xz_decoder(stored)?,
        }
        Ok(true)
    }

    /// Returns the error for bytes behind the last member, which ends at offset `end`.
    fn trailing_bytes_error(&mut self, end: u64) -> io::Result<Error> {
        let kind = self.compression.name();
        let head = self.member.input_slot().compressed_input()?.peek(COMPRESSION_MAGIC_BYTES)?;
        let what = match Compression::from_magic(head) {
            Compression::None if head.is_empty() => {
                "a number of NUL bytes follows that is no multiple of four".to_owned()
            }
            Compression::None => format!("other bytes follow: `{}`", head.escape_ascii()),
            other => format!("{} data follows", other.name()),
        };
        Ok(Error::Corrupt {
            path: self.path.to_string(),
            offset: Some(end),
            reason: format!("the {kind} stream ends there, and {what}"),
            hint: Some(format!(
                "the file may be overwritten in part; if it is whole up to there, head -c {end} FILE writes it \
                 without the rest"
            )),
        })
    }
}

impl Read for MultiMemberDecoder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.has_ended && !out.is_empty() {
            let count = self.member.read(out)?;
            if count > 0 {
                return Ok(count);
            }
            self.has_ended = !self.next_member()?;
        }
        Ok(0)
    }
}

/// Returns a decoder of one xz stream, or of the older LZMA format with the same suffix.
fn xz_decoder(
    stored: CompressedInputSlot,
) -> io::Result<liblzma::bufread::XzDecoder<CompressedInputSlot>> {
    let stream = liblzma::stream::Stream::new_auto_decoder(u64::MAX, 0)?;
    Ok(liblzma::bufread::XzDecoder::new_stream(stored, stream))
}

struct DecompressedInput {
    decoder: MultiMemberDecoder,
    state: Arc<Mutex<CompressedInputState>>,
    path: Arc<str>,
    compression: Compression,
    /// Window size that the first Zstandard frame needs, if it exceeds the limit.
    window_bytes: Option<u64>,
    is_empty: bool,
    /// True if a read returns the decoded bytes of the input so far instead of waiting for more.
    allows_short_reads: bool,
}

/// Zstandard's message for a window beyond its limit.
const WINDOW_ERROR: &str = "Frame requires too much memory for decoding";

fn large_window_error(path: &str, window_bytes: Option<u64>) -> Error {
    let of = match window_bytes {
        Some(bytes) => format!(" of {}", format_decimal_bytes(bytes)),
        None => String::new(),
    };
    Error::Memory {
        message: format!(
            "`{path}` needs a window{of} to be decompressed, and {} is the most that is taken",
            format_decimal_bytes(ZSTD_WINDOW_BYTES_MAX)
        ),
        hint: Some(
            "zstd -d --long=31 decompresses it; compressed with --long=27 or less it is read"
                .into(),
        ),
    }
}

/// Returns the window size that a Zstandard frame declares (RFC 8878, 3.1.1.1.2), if it exceeds the limit.
fn excessive_window_bytes(frame: &[u8]) -> Option<u64> {
    let [descriptor, window, ..] = frame.strip_prefix(ZSTD_MAGIC)? else { return None };
    let is_one_segment = descriptor & 0x20 != 0;
    let base = 1_u64 << (10 + (window >> 3));
    let bytes = base + base / 8 * u64::from(window & 7);
    (!is_one_segment && bytes > ZSTD_WINDOW_BYTES_MAX).then_some(bytes)
}

impl ByteInput for DecompressedInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        if self.is_empty || out.is_empty() {
            return Ok(0);
        }
        let mut filled = 0;
        while filled < out.len() {
            match self.decoder.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    // The decoder stops within `out` if it has no more compressed bytes.
                    if self.allows_short_reads {
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
                        return Err(large_window_error(&self.path, self.window_bytes));
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
                        offset: Some(state.consumed_bytes),
                        reason,
                        hint: Some(hint.into()),
                    });
                }
            }
        }
        Ok(filled)
    }

    fn allows_short_reads(&self) -> bool {
        self.allows_short_reads
    }
}

/// Returns the decompressed bytes of `input`, which is read `buffer_bytes` at a time. `stored_bytes` is the
/// input's size, if that is known and all of it is wanted.
///
/// # Errors
/// [`Error::Io`] if a decoder cannot be set up; reads report all other errors.
pub(crate) fn decompress(
    input: Box<dyn ByteInput>,
    compression: Compression,
    path: &Arc<str>,
    buffer_bytes: usize,
    stored_bytes: Option<u64>,
) -> Result<Box<dyn ByteInput>> {
    if compression == Compression::None {
        return Ok(input);
    }
    let state = Arc::new(Mutex::new(CompressedInputState::default()));
    let eager = input.allows_short_reads();
    let (buffer, own) = (vec![0; buffer_bytes.max(COMPRESSION_MAGIC_BYTES)], state.clone());
    let mut stored = CompressedInput {
        input,
        buffer,
        position: 0,
        filled: 0,
        allows_short_reads: eager,
        state: own,
    };
    // A compressed file of zero bytes decodes to zero bytes, as in other tools.
    let (empty, window_bytes) = match stored.fill_buf() {
        Ok(bytes) => (bytes.is_empty(), excessive_window_bytes(bytes)),
        Err(error) => {
            return Err(match state.lock().error.take() {
                Some(error) => error,
                None => Error::from_io("read", path.as_ref(), error),
            });
        }
    };
    let decoder = MultiMemberDecoder::new(stored, compression, path)
        .map_err(|error| Error::from_io("decode", path.as_ref(), error))?;
    let path_shown = path.clone();
    let decoded = DecompressedInput {
        decoder,
        state,
        path: path_shown,
        compression,
        window_bytes,
        is_empty: empty,
        allows_short_reads: eager,
    };
    Ok(match stored_bytes {
        Some(bytes) if bytes < THREADED_INPUT_BYTES_MIN => Box::new(decoded),
        _ => Box::new(ThreadedDecompressor::start(decoded, path)?),
    })
}

/// Returns a reader of the decompressed bytes of any reader. `path` is for messages; errors are
/// [`tidemill_base::error::Error`] within one of `std::io`.
///
/// # Errors
/// [`Error::Io`] if a decoder cannot be set up, or the first bytes cannot be read; reads report all other
/// errors.
pub fn decompressing_reader(
    reader: impl Read + Send + 'static,
    compression: Compression,
    path: &str,
) -> Result<Box<dyn Read + Send>> {
    let path: Arc<str> = path.into();
    let input = ReaderInput::new(Vec::new(), reader, Arc::clone(&path), ByteReadContext::default());
    let bytes = decompress(Box::new(input), compression, &path, COMPRESSED_READ_BYTES, None)?;
    Ok(Box::new(DecompressingReader(bytes)))
}

struct DecompressingReader(Box<dyn ByteInput>);

impl Read for DecompressingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(|error| io::Error::other(tidemill_base::error::Error::from(error)))
    }
}

/// Decompresses on a thread of its own, a few blocks ahead of the reader.
struct ThreadedDecompressor {
    blocks: Option<Receiver<Result<Vec<u8>>>>,
    recycled_blocks: Sender<Vec<u8>>,
    current: Vec<u8>,
    position: usize,
    worker: Option<JoinHandle<()>>,
    allows_short_reads: bool,
}

impl ThreadedDecompressor {
    fn start(decoded: DecompressedInput, path: &Arc<str>) -> Result<Self> {
        let eager = decoded.allows_short_reads;
        let (sender, blocks) = sync_channel(DECODED_BLOCKS_MAX);
        let (spent, recycled) = channel();
        let worker = std::thread::Builder::new()
            .name("tidemill-decode".into())
            .spawn(move || Self::decode_blocks(decoded, &sender, &recycled))
            .map_err(|error| Error::from_io("start a thread to decode", path.as_ref(), error))?;
        let (blocks, worker) = (Some(blocks), Some(worker));
        Ok(Self {
            blocks,
            recycled_blocks: spent,
            current: Vec::new(),
            position: 0,
            worker,
            allows_short_reads: eager,
        })
    }

    fn decode_blocks(
        mut decoded: DecompressedInput,
        sender: &SyncSender<Result<Vec<u8>>>,
        recycled: &Receiver<Vec<u8>>,
    ) {
        loop {
            let mut block = recycled.try_recv().unwrap_or_default();
            block.resize(DECODED_BLOCK_BYTES, 0);
            let read = decoded.read(&mut block);
            let last = !matches!(read, Ok(count) if count > 0);
            let message = read.map(|count| {
                block.truncate(count);
                block
            });
            // The reader was dropped, so nobody wants the rest.
            if sender.send(message).is_err() || last {
                return;
            }
        }
    }
}

impl ByteInput for ThreadedDecompressor {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            if self.position == self.current.len() {
                let Some(blocks) = &self.blocks else { break };
                let next = match self.allows_short_reads && filled > 0 {
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
                        self.position = 0;
                        let _ = self.recycled_blocks.send(spent);
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
            let count = (self.current.len() - self.position).min(out.len() - filled);
            out[filled..filled + count]
                .copy_from_slice(&self.current[self.position..self.position + count]);
            self.position += count;
            filled += count;
        }
        Ok(filled)
    }

    fn allows_short_reads(&self) -> bool {
        self.allows_short_reads
    }
}

impl Drop for ThreadedDecompressor {
    fn drop(&mut self) {
        // Closing the channel makes the thread's next send fail, which ends it.
        self.blocks = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::error::user_message;

    const ALL: [Compression; 4] =
        [Compression::Gzip, Compression::Zstd, Compression::Bzip2, Compression::Xz];

    fn member(kind: Compression, text: &[u8]) -> Vec<u8> {
        fn written(mut encoder: impl Write, text: &[u8]) {
            encoder.write_all(text).unwrap();
        }
        let mut out = Vec::new();
        match kind {
            Compression::None => out.extend_from_slice(text),
            Compression::Gzip => {
                let level = flate2::Compression::fast();
                written(flate2::write::GzEncoder::new(&mut out, level), text);
            }
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(&mut out, 1).unwrap();
                encoder.include_checksum(true).unwrap();
                written(encoder.auto_finish(), text);
            }
            Compression::Bzip2 => {
                let level = bzip2::Compression::fast();
                written(bzip2::write::BzEncoder::new(&mut out, level), text);
            }
            Compression::Xz => written(liblzma::write::XzEncoder::new(&mut out, 1), text),
        }
        out
    }

    /// Returns its bytes in pieces, as a pipe may.
    struct Pieces {
        bytes: Vec<u8>,
        at: usize,
        piece: usize,
        is_eager: bool,
    }

    impl ByteInput for Pieces {
        fn read(&mut self, out: &mut [u8]) -> Result<usize> {
            let piece = if self.is_eager { self.piece } else { out.len() };
            let count = out.len().min(self.bytes.len() - self.at).min(piece);
            out[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }

        fn allows_short_reads(&self) -> bool {
            self.is_eager
        }
    }

    fn read_all(
        kind: Compression,
        bytes: &[u8],
        buffer_bytes: usize,
        piece: Option<usize>,
    ) -> Result<Vec<u8>> {
        let (is_eager, piece) = (piece.is_some(), piece.unwrap_or(0));
        let input = Box::new(Pieces { bytes: bytes.to_vec(), at: 0, piece, is_eager });
        let mut input = decompress(input, kind, &"x".into(), buffer_bytes, Some(0))?;
        let (mut all, mut out) = (Vec::new(), [0; 100]);
        loop {
            match input.read(&mut out)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&out[..count]),
            }
        }
    }

    #[test]
    fn bytes_behind_the_last_member_are_padding_or_an_error() {
        let text: Vec<u8> = (0..3000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for kind in ALL {
            let one = member(kind, &text);
            let zeros = |count: usize| [&one[..], &vec![0; count]].concat();
            let with = |tail: &[u8]| [&one[..], tail].concat();
            let is_xz = kind == Compression::Xz;
            let name = kind.name();
            let rows: Vec<(Vec<u8>, Result<usize, &str>)> = vec![
                (vec![], Ok(0)),
                (one.clone(), Ok(1)),
                (with(&one), Ok(2)),
                (with(&member(kind, b"")), Ok(1)),
                (zeros(4), Ok(1)),
                (zeros(512), Ok(1)),
                (zeros(300_000), Ok(1)),
                (zeros(1), if is_xz { Err("no multiple of four") } else { Ok(1) }),
                (zeros(511), if is_xz { Err("no multiple of four") } else { Ok(1) }),
                // Only xz has padding between streams.
                ([zeros(8), one.clone()].concat(), if is_xz { Ok(2) } else { Err("data follows") }),
                ([zeros(7), one.clone()].concat(), Err("data follows")),
                (with(b"a,b\n1,2\n"), Err("other bytes follow: `a,b\\n1,2\\n`")),
                (with(b"\n"), Err("other bytes follow: `\\n`")),
                (with(&[0, 0, 0, 0, 9]), Err("other bytes follow: `\\t`")),
                (with(&[0x1f, 0x8b, 0x07, 1, 2, 3]), Err("other bytes")),
            ];
            for (bytes, expected) in rows {
                for (buffer, piece) in [(7, None), (1 << 18, None), (64, Some(1)), (64, Some(9))] {
                    let found = read_all(kind, &bytes, buffer, piece);
                    match (found, &expected) {
                        (Ok(found), Ok(times)) => assert!(found == text.repeat(*times), "{name}"),
                        (Err(error), Err(words)) => {
                            let Error::Corrupt { offset: Some(offset), .. } = &error else {
                                panic!("{name}: {error:?}")
                            };
                            assert_eq!(*offset, one.len() as u64, "{name}");
                            let told = user_message(error);
                            assert!(told.contains(words), "{name}: {told}");
                            assert!(told.contains(&format!("head -c {}", one.len())), "{told}");
                        }
                        (found, expected) => panic!("{name}: {found:?} and not {expected:?}"),
                    }
                }
            }
            let other =
                if kind == Compression::Gzip { Compression::Zstd } else { Compression::Gzip };
            let error = read_all(kind, &with(&member(other, &text)), 1 << 18, None).unwrap_err();
            let told = user_message(error);
            assert!(told.contains(&format!("{} data follows", other.name())), "{told}");
            // A truncated further member is not a trailing-bytes error.
            let two = with(&member(kind, b"some more text"));
            for length in one.len() + 1..two.len() {
                let told = user_message(read_all(kind, &two[..length], 64, None).unwrap_err());
                assert!(told.contains("before its end mark"), "{name} {length}: {told}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn members_of_any_size_are_read_one_behind_the_other(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
            padding in 0..3usize,
            buffer in 1..40usize,
            piece in prop::option::of(1..20usize),
        ) {
            for kind in ALL {
                let mut bytes: Vec<u8> = texts.iter().flat_map(|text| member(kind, text)).collect();
                bytes.resize(bytes.len() + 4 * padding, 0);
                let found = read_all(kind, &bytes, buffer, piece).unwrap();
                prop_assert_eq!(found, texts.concat(), "{}", kind.name());
            }
        }

        #[test]
        fn hostile_bytes_behind_a_member_never_panic(tail in prop::collection::vec(any::<u8>(), 0..60)) {
            for kind in ALL {
                let _ = read_all(kind, &[member(kind, b"text"), tail.clone()].concat(), 16, None);
            }
        }
    }
}
