//! Content detection: determines compression and format from a file's first bytes, whatever its name says.
//!
//! Names can be wrong. A server stores an upload with `Content-Encoding: gzip` under `day.csv`, a download is
//! unpacked on its way and keeps its `.gz`, a log rotates to `access.log.1`. Text is therefore decompressed
//! according to its first bytes, up to [`COMPRESSION_LAYERS_MAX`] times. A file that begins like another
//! format is refused with that format's name. Detection uses the bytes that are read anyway
//! ([`PeekedInput`]). Only files that would be cut are probed beforehand ([`probe_files`]), because
//! compressed files cannot be cut.
//!
//! A filter program (`exec`) gets what the file's name declares.

use std::sync::Arc;

use tidemill_remote::NetworkTask;

use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, OpenFile, ReadPattern};
use crate::files::compression::{Compression, decompress};
use crate::formats::Format;
use crate::{FileLocation, SourceFile};

/// Number of bytes of a file that detection inspects.
const HEAD_PROBE_BYTES: usize = 512;
/// Minimum number of characters by which text without a byte-order mark and without a line end shows its
/// encoding: `a\0b\0` may be a list of names that each end in a NUL.
const UNMARKED_TEXT_UNITS_MIN: usize = 8;
/// Minimum number of bytes that show an encoding if the name declares compression.
const ENCODING_DETECTION_BYTES_MIN: usize = 32;
/// Maximum number of compression layers: a server may compress a file on the way that is compressed already.
const COMPRESSION_LAYERS_MAX: usize = 3;
/// Maximum number of pending requests.
const PENDING_REQUESTS_MAX: usize = 64;

/// An input whose first bytes were read ahead.
struct PeekedInput {
    head: Vec<u8>,
    position: usize,
    /// None after the end of the input.
    inner: Option<Box<dyn ByteInput>>,
}

impl PeekedInput {
    fn new(mut inner: Box<dyn ByteInput>, bytes: usize) -> Result<Self> {
        let mut head = vec![0; bytes.max(HEAD_PROBE_BYTES)];
        let mut count = inner.read(&mut head)?;
        let mut has_ended = count == 0 || count < head.len() && !inner.allows_short_reads();
        // A beginning with a NUL may be an archive, whose header is as long as the probe.
        while !has_ended
            && (count < crate::COMPRESSION_MAGIC_BYTES || is_short_with_nul(&head[..count]))
        {
            let more = inner.read(&mut head[count..])?;
            has_ended = more == 0;
            count += more;
        }
        let inner = (!has_ended).then_some(inner);
        head.truncate(count);
        Ok(Self { head, position: 0, inner })
    }
}

/// Returns true if a beginning contains a NUL and is shorter than the probe.
fn is_short_with_nul(head: &[u8]) -> bool {
    head.len() < HEAD_PROBE_BYTES && memchr::memchr(0, head).is_some()
}

impl ByteInput for PeekedInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let count = out.len().min(self.head.len() - self.position);
        out[..count].copy_from_slice(&self.head[self.position..self.position + count]);
        self.position += count;
        if self.position == self.head.len() && !self.head.is_empty() {
            self.head = Vec::new();
            self.position = 0;
        }
        match &mut self.inner {
            // Returns the available bytes before waiting for more.
            Some(inner) if count > 0 && inner.allows_short_reads() => Ok(count),
            Some(inner) if count < out.len() => Ok(count + inner.read(&mut out[count..])?),
            _ => Ok(count),
        }
    }

    fn allows_short_reads(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.allows_short_reads())
    }
}

/// Returns the decompressed bytes of a text file. `input` has the stored bytes from the first one on;
/// `read_bytes` and `stored_bytes` are as for [`decompress`].
///
/// # Errors
/// Those of reading; [`Error::Corrupt`] for bytes that are neither text nor compressed as the name declares,
/// and for a file of another format.
pub(crate) fn decompress_by_content(
    file: &SourceFile,
    mut input: Box<dyn ByteInput>,
    read_bytes: usize,
    stored_bytes: Option<u64>,
) -> Result<Box<dyn ByteInput>> {
    if file.filter_program.is_some() {
        return decompress(
            input,
            file.named_compression,
            &file.display_name,
            read_bytes,
            stored_bytes,
        );
    }
    if file.detected_compression.get() == Some(&Compression::None) {
        return Ok(input);
    }
    // One byte beyond the expected size shows that there are no more.
    let stored = stored_bytes.and_then(|bytes| usize::try_from(bytes.saturating_add(1)).ok());
    let stored = stored.unwrap_or(usize::MAX);
    for layer in 0..COMPRESSION_LAYERS_MAX {
        let peeked =
            PeekedInput::new(input, if layer == 0 { read_bytes.min(stored) } else { read_bytes })?;
        let found = match layer {
            0 => *file
                .detected_compression
                .get_or_init(|| detect_compression(file.named_compression, &peeked.head)),
            _ => Compression::from_magic(&peeked.head),
        };
        if found == Compression::None {
            check_is_text(&peeked.head, &file.display_name)?;
            return Ok(Box::new(peeked));
        }
        input = decompress(Box::new(peeked), found, &file.display_name, read_bytes, stored_bytes)?;
    }
    Ok(input)
}

/// Detects the compression of a text file from its first bytes, which must be at least
/// [`COMPRESSION_MAGIC_BYTES`](crate::COMPRESSION_MAGIC_BYTES). `named` is the compression that its name
/// declares.
pub fn detect_compression(named: Compression, head: &[u8]) -> Compression {
    match Compression::from_magic(head) {
        // The magic number is cut off, or the file is damaged; its decoder reports the fault.
        Compression::None if is_damaged_head(head) || named.is_truncated_magic(head) => named,
        found => found,
    }
}

/// Returns true if these first bytes are neither text nor a known format.
fn is_damaged_head(head: &[u8]) -> bool {
    // A few damaged bytes may be characters by chance.
    let is_encoded =
        || head.len() >= ENCODING_DETECTION_BYTES_MIN && TextEncoding::detect(head).is_some();
    !looks_like_text(head) && detect_foreign_format(head).is_none() && !is_encoded()
}

/// Returns true if these are the first bytes of a text, and not of a damaged compressed file.
fn looks_like_text(head: &[u8]) -> bool {
    let is_odd =
        |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0x1b);
    let head = &head[..head.len().min(HEAD_PROBE_BYTES)];
    utf8_prefix(head).is_some() && !head.iter().any(is_odd)
}

/// Returns the whole characters of a file's first bytes, if these are UTF-8. The last character may be cut
/// off at [`HEAD_PROBE_BYTES`].
fn utf8_prefix(head: &[u8]) -> Option<&str> {
    match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && head.len() == HEAD_PROBE_BYTES => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

/// Rejects a file that was cut because of its name and proves to be compressed. Its first bytes are read only
/// if `seen`, from within the file, is no text.
///
/// # Errors
/// [`Error::Corrupt`]; those of reading.
pub(crate) fn check_split_compression(
    file: &SourceFile,
    open: &OpenFile,
    seen: &[u8],
) -> Result<()> {
    // A character may be cut off at the beginning.
    let is_within = |byte: &&u8| **byte & 0xc0 == 0x80;
    let seen = &seen[seen.iter().take(3).take_while(is_within).count()..];
    let found = match file.detected_compression.get() {
        Some(found) => *found,
        None if looks_like_text(seen) => return Ok(()),
        None => {
            let mut head = [0; HEAD_PROBE_BYTES];
            let count = open.read_at(&mut head, 0)?;
            let found = detect_compression(file.named_compression, &head[..count]);
            if found == Compression::None {
                check_is_text(&head[..count], &file.display_name)?;
            }
            *file.detected_compression.get_or_init(|| found)
        }
    };
    match found {
        Compression::None => Ok(()),
        _ => Err(Error::Corrupt {
            path: file.display_name.to_string(),
            offset: None,
            reason: "it is compressed, and its name does not say so".into(),
            hint: Some(
                "rename it; without --deadline and --drop the beginning of each file is looked at first".into(),
            ),
        }),
    }
}

/// Inspects the first bytes of files before they are cut, if their names declare no compression. Files that
/// were inspected already are left out.
///
/// # Errors
/// Those of reading; [`Error::Corrupt`] for a file of another format.
pub(crate) fn probe_files(files: &[&Arc<SourceFile>]) -> Result<()> {
    let is_new = |file: &&&Arc<SourceFile>| {
        file.detected_compression.get().is_none() && file.filter_program.is_none()
    };
    let files: Vec<&Arc<SourceFile>> = files.iter().filter(is_new).copied().collect();
    let mut asked: std::collections::VecDeque<Option<NetworkTask<bytes::Bytes>>> =
        std::collections::VecDeque::new();
    let mut next = files.iter();
    for file in &files {
        while asked.len() < PENDING_REQUESTS_MAX
            && let Some(next) = next.next()
        {
            let length = next.size().min(HEAD_PROBE_BYTES as u64);
            asked.push_back(match &next.location {
                FileLocation::Object(object) if !object.is_stream() => {
                    Some(object.fetch_range(0..length)?)
                }
                _ => None,
            });
        }
        let mut local = [0; HEAD_PROBE_BYTES];
        let remote;
        let head = match asked.pop_front().flatten() {
            Some(fetch) => {
                remote = fetch.wait(&file.cancel)?;
                &remote[..]
            }
            None => {
                let open = OpenFile::open(file, ReadPattern::Random, &file.read_context())?;
                let count = open.read_at(&mut local, 0)?;
                &local[..count]
            }
        };
        if *file
            .detected_compression
            .get_or_init(|| detect_compression(file.named_compression, head))
            == Compression::None
        {
            check_is_text(head, &file.display_name)?;
        }
    }
    Ok(())
}

/// A file format other than text.
struct ForeignFormat {
    /// First bytes of its files.
    magic: &'static [u8],
    name: &'static str,
    /// The way to read it, for a hint.
    remedy: ForeignFormatRemedy,
}

/// The way to read a file that is not text.
#[derive(Debug, Clone, Copy)]
enum ForeignFormatRemedy {
    /// With this source format.
    SourceFormat(&'static str),
    /// Through this program, or after this step.
    Hint(&'static str),
}

const UNPACK_REMEDY: ForeignFormatRemedy = ForeignFormatRemedy::Hint(
    "unpack it first, or read it through a program: --source-exec (job file: source.exec)",
);
const ZLIB_REMEDY: ForeignFormatRemedy = ForeignFormatRemedy::Hint(
    "gzip files have another header: unpack it first, as with pigz -d < FILE, or read it so: --source-exec pigz \
     --source-exec -d (job file: source.exec = [\"pigz\", \"-d\"])",
);
const EXPORT_REMEDY: ForeignFormatRemedy = ForeignFormatRemedy::Hint(
    "export it as CSV or Parquet first, or read it through a program: --source-exec (job file: source.exec)",
);
const TAR_HINT: &str = "extract it first: tar -xf FILE; --source-exec tar --source-exec -xO reads the files within it one \
     behind the other, if they go together (job file: source.exec = [\"tar\", \"-xO\"])";

const fn foreign_format(
    magic: &'static [u8],
    name: &'static str,
    remedy: ForeignFormatRemedy,
) -> ForeignFormat {
    ForeignFormat { magic, name, remedy }
}

/// Formats other than text, by their first bytes. None of these sequences begins a text: an ASCII prefix is
/// followed by other bytes, or is an unmistakable signature.
const FOREIGN_FORMATS: [ForeignFormat; 33] = [
    // The header of a page follows the magic number, and begins with a field's type.
    foreign_format(b"PAR1\x15", "Parquet", ForeignFormatRemedy::SourceFormat("parquet")),
    foreign_format(b"ARROW1\0\0", "an Arrow file", ForeignFormatRemedy::SourceFormat("arrow")),
    foreign_format(
        b"\xff\xff\xff\xff",
        "an Arrow stream",
        ForeignFormatRemedy::SourceFormat("arrow"),
    ),
    foreign_format(b"Obj\x01", "Avro", ForeignFormatRemedy::SourceFormat("avro")),
    foreign_format(b"TIDEROWS\x01", "a rowfile", ForeignFormatRemedy::SourceFormat("rowfile")),
    foreign_format(b"PK\x03\x04", "a zip archive", UNPACK_REMEDY),
    foreign_format(b"PK\x05\x06", "an empty zip archive", UNPACK_REMEDY),
    foreign_format(b"PK\x07\x08", "a part of a zip archive", UNPACK_REMEDY),
    foreign_format(b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK_REMEDY),
    foreign_format(b"Rar!\x1a\x07", "a RAR archive", UNPACK_REMEDY),
    foreign_format(b"!<arch>\n", "an ar archive", UNPACK_REMEDY),
    foreign_format(b"\x04\x22\x4d\x18", "lz4 data", UNPACK_REMEDY),
    foreign_format(b"\x1f\x9d", "data of `compress`", UNPACK_REMEDY),
    foreign_format(b"\x1f\xa0", "data of `compress`", UNPACK_REMEDY),
    foreign_format(b"\x1f\x1e", "data of `pack`", UNPACK_REMEDY),
    foreign_format(b"\x89LZO\0\r\n\x1a\n", "lzop data", UNPACK_REMEDY),
    foreign_format(b"\xff\x06\0\0sNaPpY", "snappy data", UNPACK_REMEDY),
    foreign_format(b"LZIP\x01", "lzip data", UNPACK_REMEDY),
    foreign_format(b"SQLite format 3\0", "an SQLite database", EXPORT_REMEDY),
    // A workbook of before 2007, or a document.
    foreign_format(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an Excel workbook or another OLE document",
        EXPORT_REMEDY,
    ),
    foreign_format(b"%PDF-", "a PDF document", EXPORT_REMEDY),
    foreign_format(b"\x89HDF\r\n\x1a\n", "an HDF5 file", EXPORT_REMEDY),
    foreign_format(b"CDF\x01", "a NetCDF file", EXPORT_REMEDY),
    foreign_format(b"CDF\x02", "a NetCDF file", EXPORT_REMEDY),
    foreign_format(b"\x93NUMPY", "a NumPy array", EXPORT_REMEDY),
    foreign_format(
        b"FEA1\0\0\0\0",
        "a Feather file of version 1",
        ForeignFormatRemedy::Hint("pyarrow.feather reads it and writes version 2, which is Arrow"),
    ),
    foreign_format(b"SEQ\x06", "a Hadoop sequence file", EXPORT_REMEDY),
    foreign_format(b"RCF\x01", "an RCFile", EXPORT_REMEDY),
    foreign_format(b"ElfFile\0", "a Windows event log", EXPORT_REMEDY),
    foreign_format(
        b"LPKSHHRH",
        "a journal of systemd",
        ForeignFormatRemedy::Hint("journalctl --file FILE --output json writes it as JSON lines"),
    ),
    foreign_format(b"\xd4\xc3\xb2\xa1", "a capture of packets", EXPORT_REMEDY),
    foreign_format(b"\xa1\xb2\xc3\xd4", "a capture of packets", EXPORT_REMEDY),
    foreign_format(
        b"version https://git-lfs.github.com/spec/v1\n",
        "a pointer of Git LFS to a file that was not fetched",
        ForeignFormatRemedy::Hint("git lfs pull fetches the file"),
    ),
];

/// Detects the format of a file that is not text from its first bytes; returns the format's name and the way
/// to read it.
fn detect_foreign_format(head: &[u8]) -> Option<(&'static str, ForeignFormatRemedy)> {
    if is_tar(head) {
        return Some(("a tar archive", ForeignFormatRemedy::Hint(TAR_HINT)));
    }
    if head.starts_with(b"PK\x03\x04") && is_workbook(head) {
        return Some(("an Excel workbook", EXPORT_REMEDY));
    }
    // A text may begin with these bytes as well.
    if !looks_like_text(head) {
        if head.starts_with(b"ORC") {
            return Some(("ORC", EXPORT_REMEDY));
        }
        if head.starts_with(b"\n\r\r\n") {
            return Some(("a capture of packets", EXPORT_REMEDY));
        }
        if head.get(8..12) == Some(b"DUCK") {
            return Some(("a DuckDB database", EXPORT_REMEDY));
        }
        if is_zlib(head) {
            return Some(("zlib data", ZLIB_REMEDY));
        }
        // The protocol version, followed by a frame or by the objects that usually begin tables.
        if matches!(head, [0x80, 2..=5, b'\x95' | b'c' | b'}' | b']' | b'(' | b'K', ..]) {
            return Some(("a pickle of Python", EXPORT_REMEDY));
        }
    }
    FOREIGN_FORMATS
        .iter()
        .find(|other| head.starts_with(other.magic))
        .map(|other| (other.name, other.remedy))
}

/// Adds the detected content to the error of a file that could not be read as `format`, such as an HTML error
/// page, a Git LFS pointer, or a file compressed as a whole. Other errors remain unchanged.
pub(crate) fn explain_foreign_content(
    error: Error,
    files: &[Arc<SourceFile>],
    format: Format,
) -> Error {
    let Error::Corrupt { path, .. } = &error else { return error };
    let Some(file) = files.iter().find(|file| file.display_name() == path) else { return error };
    if file.is_stream() {
        return error;
    }
    let mut head = [0; HEAD_PROBE_BYTES];
    let Ok(open) = OpenFile::open(file, ReadPattern::Random, &file.read_context()) else {
        return error;
    };
    let Ok(count) = open.read_at(&mut head, 0) else { return error };
    match describe_foreign_content(&head[..count], format) {
        Some((what, hint)) => Error::Corrupt {
            path: path.clone(),
            offset: Some(0),
            reason: format!("it is read as {format} and begins like {what}"),
            hint: Some(hint),
        },
        None => error,
    }
}

/// Describes the content of a file that does not begin like `format`, and the way to read it.
fn describe_foreign_content(head: &[u8], format: Format) -> Option<(String, String)> {
    match detect_foreign_format(head) {
        Some((_, ForeignFormatRemedy::SourceFormat(name))) if name == format.name() => return None,
        Some((what, ForeignFormatRemedy::SourceFormat(name))) => {
            return Some((what.to_owned(), source_format_hint(name)));
        }
        Some((what, ForeignFormatRemedy::Hint(hint))) => {
            return Some((what.to_owned(), hint.to_owned()));
        }
        None => {}
    }
    let compression = Compression::from_magic(head);
    if compression != Compression::None {
        let hint = format!("files of {format} are compressed within; unpack it first");
        return Some((format!("{} data", compression.name()), hint));
    }
    if !looks_like_text(head) || head.is_empty() {
        return None;
    }
    if head.trim_ascii_start().starts_with(b"<") {
        let hint = "a server may have answered with a page instead of the file: fetch it again";
        return Some(("HTML or XML".to_owned(), hint.to_owned()));
    }
    let hint = "--source-format csv or json reads text (job file: source.format)";
    Some(("text".to_owned(), hint.to_owned()))
}

fn source_format_hint(name: &str) -> String {
    format!("--source-format {name} reads it (job file: source.format)")
}

fn check_is_text(head: &[u8], shown: &Arc<str>) -> Result<()> {
    let Some((what, remedy)) = detect_foreign_format(head) else {
        return TextEncoding::detect(head)
            .map_or(Ok(()), |encoding| Err(encoding.unsupported_error(shown)));
    };
    Err(Error::Corrupt {
        path: shown.to_string(),
        offset: Some(0),
        reason: format!("it is read as text and begins like {what}"),
        hint: Some(match remedy {
            ForeignFormatRemedy::SourceFormat(name) => source_format_hint(name),
            ForeignFormatRemedy::Hint(hint) => hint.into(),
        }),
    })
}

/// Returns true if a file begins with zlib data: a header, followed by data that can be inflated.
fn is_zlib(head: &[u8]) -> bool {
    // Deflate with a window of 32 KiB at any level, and no dictionary.
    if !matches!(head, [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..]) {
        return false;
    }
    let mut inflated = [0; HEAD_PROBE_BYTES];
    let mut inflate = flate2::Decompress::new(true);
    let result = inflate.decompress(head, &mut inflated, flate2::FlushDecompress::Sync);
    result.is_ok() && inflate.total_out() > 0
}

/// Size of a tar header, and the range of its checksum.
const TAR_HEADER_BYTES: usize = 512;
const TAR_CHECKSUM_RANGE: std::ops::Range<usize> = 148..156;
/// Range of the magic number in POSIX.1-1988 and GNU archives.
const TAR_MAGIC_RANGE: std::ops::Range<usize> = 257..262;

/// Returns true if a file begins with the header of a tar archive. Either its checksum is right, which is all
/// that archives of Unix V7 have, or it has the magic number and is no text.
fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..TAR_HEADER_BYTES) else { return false };
    let has_magic = header.get(TAR_MAGIC_RANGE) == Some(b"ustar");
    if has_magic && !looks_like_text(header) {
        return true;
    }
    let Some(stored) = header.get(TAR_CHECKSUM_RANGE).and_then(parse_octal) else { return false };
    let sum = |byte_value: fn(u8) -> i64| -> i64 {
        let bytes = header.iter().enumerate();
        bytes
            .map(|(at, byte)| {
                byte_value(if TAR_CHECKSUM_RANGE.contains(&at) { b' ' } else { *byte })
            })
            .sum()
    };
    // Some programs have added signed bytes.
    let is_sum = stored == sum(i64::from) || stored == sum(|byte| i64::from(byte.cast_signed()));
    is_sum && header.first().is_some_and(|byte| *byte != 0)
}

/// Parses a number of a tar header: octal digits between blanks and NULs.
fn parse_octal(field: &[u8]) -> Option<i64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field.iter().position(|byte| !is_blank(byte))?;
    let digits = field.get(start..)?.split(is_blank).next()?;
    digits.iter().try_fold(0, |value, digit| {
        matches!(digit, b'0'..=b'7').then(|| value * 8 + i64::from(digit - b'0'))
    })
}

/// Returns true if a zip archive is a workbook, according to its first entry.
fn is_workbook(head: &[u8]) -> bool {
    let name = head.get(30..).unwrap_or_default();
    [
        &b"[Content_Types].xml"[..],
        b"xl/",
        b"_rels/.rels",
        b"docProps/",
        b"mimetypeapplication/vnd.oasis",
    ]
    .iter()
    .any(|begin| name.starts_with(begin))
}

/// A text encoding other than UTF-8, with units of two or four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextEncoding {
    unit_bytes: usize,
    is_big_endian: bool,
    has_mark: bool,
}

impl TextEncoding {
    const fn new(unit_bytes: usize, is_big_endian: bool, has_mark: bool) -> Self {
        Self { unit_bytes, is_big_endian, has_mark }
    }

    /// Detects the encoding of a text from its first bytes. A byte-order mark decides. Without one, the text
    /// must contain NULs, all its units must be characters of a text, and some of them ASCII, as line ends,
    /// separators and digits are.
    pub(crate) fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, 0, 0, ..] => return Some(Self::new(4, false, true)),
            [0, 0, 0xfe, 0xff, ..] => return Some(Self::new(4, true, true)),
            [0xff, 0xfe, ..] => return Some(Self::new(2, false, true)),
            [0xfe, 0xff, ..] => return Some(Self::new(2, true, true)),
            _ => {}
        }
        let head = head.get(..head.len().min(HEAD_PROBE_BYTES))?;
        memchr::memchr(0, head)?;
        let kinds = [(4, false), (4, true), (2, false), (2, true)];
        let kinds = kinds.into_iter().map(|(bytes, is_big)| Self::new(bytes, is_big, false));
        kinds.into_iter().find(|encoding| encoding.matches_text(head))
    }

    /// Returns true if a text that contains NULs and begins with `head` is in this encoding.
    fn matches_text(self, head: &[u8]) -> bool {
        let is_utf8_beyond_ascii = utf8_prefix(head).is_some_and(|text| !text.is_ascii());
        let (mut units, mut latin, mut ascii_pairs) = (0, 0, 0);
        let (mut is_behind_high, mut has_line_end) = (false, false);
        for unit in head.chunks_exact(self.unit_bytes) {
            let number = |byte: &u8| u32::from(*byte);
            let value = match self.is_big_endian {
                true => unit.iter().fold(0, |value, byte| value << 8 | number(byte)),
                false => unit.iter().rev().fold(0, |value, byte| value << 8 | number(byte)),
            };
            units += 1;
            let is_surrogate = self.unit_bytes == 2 && (0xd800..0xe000).contains(&value);
            let is_low = is_surrogate && value >= 0xdc00;
            if is_low != is_behind_high {
                return false;
            }
            is_behind_high = is_surrogate && !is_low;
            if is_surrogate {
                continue;
            }
            let Some(character) = char::from_u32(value) else { return false };
            let is_blank = matches!(character, '\t' | '\n' | '\r');
            let is_no_character = value & 0xfffe == 0xfffe || (0xfdd0..0xfdf0).contains(&value);
            if character.is_control() && !is_blank || is_no_character {
                return false;
            }
            has_line_end |= matches!(character, '\n' | '\r');
            latin += usize::from(character.is_ascii());
            // UTF-8 text with an occasional NUL would consist of pairs of ASCII characters.
            let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
            ascii_pairs += usize::from(unit.iter().all(is_text));
        }
        let is_text = latin > ascii_pairs || 2 * ascii_pairs <= units - latin;
        let is_enough = units >= UNMARKED_TEXT_UNITS_MIN || units >= 2 && has_line_end;
        is_enough && latin > 0 && is_text && !is_utf8_beyond_ascii
    }

    fn name(self) -> &'static str {
        match (self.unit_bytes, self.is_big_endian) {
            (2, false) => "UTF-16LE",
            (2, true) => "UTF-16BE",
            (_, false) => "UTF-32LE",
            (_, true) => "UTF-32BE",
        }
    }

    /// Returns the error for a file in this encoding.
    pub(crate) fn unsupported_error(self, shown: &str) -> Error {
        let name = self.name();
        let (family, _) = name.split_at(6);
        // A decoder that is told the family removes the byte-order mark.
        let (reason, from) = match self.has_mark {
            true => (format!("it begins with a {family} byte-order mark"), family),
            false => (format!("it is {name} without a byte-order mark"), name),
        };
        Error::Corrupt {
            path: shown.to_owned(),
            offset: Some(0),
            reason,
            hint: Some(format!(
                "text is read as UTF-8; convert it: iconv -f {from} -t UTF-8 FILE, or read it so: --source-exec iconv \
                 --source-exec -f --source-exec {from} (job file: source.exec = [\"iconv\", \"-f\", \"{from}\"])"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::user_message;

    #[test]
    fn compression_is_told_by_the_bytes_and_a_damaged_file_is_no_text() {
        use Compression as C;
        let text = "a,b\n1,\u{e9}\n".as_bytes();
        for (named, head, expected) in [
            (C::None, text, C::None),
            (C::Gzip, text, C::None),
            (C::Xz, &b"\x1b[31mred\n"[..], C::None),
            (C::None, b"\x1f\x8b\x08\0\0", C::Gzip),
            (C::Zstd, b"\x1f\x8b\x08\0\0", C::Gzip),
            (C::None, b"(\xb5/\xfd", C::Zstd),
            // A skippable frame, as parallel compressors write it.
            (C::Zstd, b"\x50\x2a\x4d\x18\x04\0\0\0", C::Zstd),
            (C::None, b"BZh91AY&SY", C::Bzip2),
            (C::None, b"BZh9\x17\x72\x45\x38\x50\x90", C::Bzip2),
            (C::None, b"BZh9,count\n", C::None),
            (C::None, b"\xfd7zXZ\0", C::Xz),
            // The data is cut off or damaged, and its decoder reports that.
            (C::Gzip, b"\x1f", C::Gzip),
            (C::Gzip, b"\x1f\x0b\x08\0", C::Gzip),
            (C::Xz, b"\xfc7zXZ\0", C::Xz),
            (C::Bzip2, b"BZ", C::Bzip2),
            (C::Bzip2, b"BZh91AY", C::Bzip2),
            (C::Bzip2, b"B,count\n", C::None),
            (C::Zstd, b"(", C::Zstd),
            (C::Zstd, b"(1)\n", C::None),
            // The data is neither damaged nor compressed; its format is reported.
            (C::Gzip, b"PK\x03\x04", C::None),
            (C::Zstd, &b"a\0,\0b\0\n\0".repeat(4), C::None),
            (C::Gzip, b"", C::None),
            (C::Bzip2, b"", C::None),
        ] {
            assert_eq!(detect_compression(named, head), expected, "{named:?} {head:?}");
        }
        let mut cut = vec![b'a'; HEAD_PROBE_BYTES - 1];
        cut.extend_from_slice("\u{e9}".as_bytes());
        assert_eq!(detect_compression(C::Gzip, &cut), C::None);
    }

    #[test]
    fn peeked_bytes_are_read_again_in_pieces_of_any_size() {
        struct Bytes(std::io::Cursor<Vec<u8>>);
        impl ByteInput for Bytes {
            fn read(&mut self, out: &mut [u8]) -> Result<usize> {
                std::io::Read::read(&mut self.0, out).map_err(|e| Error::from_io("read", "x", e))
            }
        }
        for length in [
            0,
            1,
            HEAD_PROBE_BYTES - 1,
            HEAD_PROBE_BYTES,
            HEAD_PROBE_BYTES + 1,
            3 * HEAD_PROBE_BYTES,
        ] {
            let text: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            for piece in [1, 7, HEAD_PROBE_BYTES, 10 * HEAD_PROBE_BYTES] {
                let input = Box::new(Bytes(std::io::Cursor::new(text.clone())));
                let mut peeked = PeekedInput::new(input, 1).unwrap();
                let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
                loop {
                    let count = peeked.read(&mut buffer).unwrap();
                    all.extend_from_slice(&buffer[..count]);
                    if count < piece {
                        break;
                    }
                }
                assert_eq!(all, text, "{length} {piece}");
            }
        }
    }

    /// Returns the header of a zip archive's first entry.
    fn zip(name: &str) -> Vec<u8> {
        let mut header = b"PK\x03\x04".to_vec();
        header.resize(26, 0);
        header.extend_from_slice(&[u8::try_from(name.len()).unwrap(), 0, 0, 0]);
        header.extend_from_slice(name.as_bytes());
        header
    }

    fn zlib(text: &str, level: u32) -> Vec<u8> {
        use std::io::Write;
        let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(level));
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn zlib_data_is_named_at_every_level_whatever_the_name_says() {
        let path: Arc<str> = "x.csv.gz".into();
        let long: String = (0..2_000).map(|row: u64| format!("{row},{}\n", row * row)).collect();
        for text in ["a\n", "a,b\n0,x0\n1,x1\n2,x2\n3,x3\n4,x4\n", &long] {
            for level in 0..=9 {
                let bytes = zlib(text, level);
                let head = &bytes[..bytes.len().min(HEAD_PROBE_BYTES)];
                let told = detect_compression(Compression::Gzip, head);
                assert_eq!(told, Compression::None, "{level} {}", text.len());
                let message = user_message(check_is_text(head, &path).unwrap_err());
                assert!(message.contains("begins like zlib data"), "{level} {message}");
                assert!(message.contains("pigz -d"), "{message}");
            }
        }
        // A text in UTF-16LE whose first character has the bytes of the zlib header.
        let utf16 = encoded("\u{5e78},b\n1,2\n3,4\n5,6\n", TextEncoding::new(2, false, false));
        assert!(!is_zlib(&utf16));
        assert!(user_message(check_is_text(&utf16, &path).unwrap_err()).contains("UTF-16LE"));
        for text in [&b"x^2,y\n1,2\n"[..], b"x\xda,y\n1,2\n", b"x\x01", b"x"] {
            assert!(!is_zlib(text), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_file_of_another_format_is_named() {
        let path: Arc<str> = "x.csv".into();
        let told = |head: &[u8]| user_message(check_is_text(head, &path).unwrap_err());
        for ForeignFormat { magic, name, .. } in FOREIGN_FORMATS {
            let message = told(magic);
            assert!(message.contains(name) && message.contains("hint: "), "{message}");
        }
        for (head, name) in [
            (&zip("[Content_Types].xml")[..], "an Excel workbook"),
            (&zip("xl/workbook.xml"), "an Excel workbook"),
            (&zip("a.csv"), "a zip archive"),
            (b"ORC\x10\0\0\x0a\x06", "ORC"),
            (b"\n\r\r\n\x6c\0\0\0", "a capture of packets"),
            (b"\0\0\0\0\0\0\0\0DUCK\x40\0", "a DuckDB database"),
            (b"\x80\x04\x95\x10\0\0\0", "a pickle of Python"),
            (&zlib("a,b\n0,x\n1,x\n", 6), "zlib data"),
        ] {
            let message = told(head);
            assert!(message.contains(name), "{message}");
        }
        for text in [
            &b"PAR1,PAR2\n"[..],
            b"Obj,x\n",
            b"PK,x\n",
            b"ARROW1,x\n",
            b"ORC,x\n",
            b"\n\r\r\na,b\n",
            b"a,b,c,d,DUCK\n",
            b"%PDF\n",
            b"LZIP,x\n",
            b"",
        ] {
            check_is_text(text, &path).unwrap();
        }
    }

    /// Returns a tar header as programs write it.
    fn tar_header(magic: &[u8], checksum: fn(i64) -> String) -> Vec<u8> {
        let mut header = vec![0; TAR_HEADER_BYTES];
        for (at, field) in [
            (0, &b"logs/\xc3\xa9.csv"[..]),
            (100, b"0000644\0"),
            (108, b"0001750\0"),
            (116, b"0001750\0"),
            (124, b"00000000014\0"),
            (136, b"14372612345\0"),
            (148, b"        "),
            (156, b"0"),
            (257, magic),
        ] {
            header[at..at + field.len()].copy_from_slice(field);
        }
        let sum = header.iter().map(|byte| i64::from(*byte)).sum();
        let sum = checksum(sum);
        header[148..148 + sum.len()].copy_from_slice(sum.as_bytes());
        header
    }

    #[test]
    fn tar_archives_of_every_age_are_told_and_texts_are_none() {
        let posix = |sum: i64| format!("{sum:06o}\0 ");
        // Signed, both bytes of the letter count as 256 less.
        let signed = |sum: i64| format!("{:06o}\0 ", sum - 512);
        for (header, expected) in [
            (tar_header(b"ustar\x0000", posix), true),
            (tar_header(b"ustar  \0", posix), true),
            (tar_header(b"", posix), true),
            (tar_header(b"", signed), true),
            (tar_header(b"", |sum| format!("{sum:o}\0")), true),
            (tar_header(b"", |sum| format!(" {sum:5o} \0")), true),
            // A damaged header is still recognized by its magic number.
            (tar_header(b"ustar\x0000", posix_plus), true),
            (tar_header(b"", posix_plus), false),
            (tar_header(b"", |_| "9".to_owned()), false),
            (tar_header(b"ustar\x0000", posix)[..511].to_vec(), false),
            (vec![0; 512], false),
            (format!("{:257}ustar{:250}\n", "a,b", "").into_bytes(), false),
            (b"a,b\n1,2\n".repeat(100), false),
        ] {
            assert_eq!(is_tar(&header), expected, "{}", header.escape_ascii());
        }
        let told = check_is_text(&tar_header(b"", posix), &"x.csv".into()).unwrap_err();
        let told = user_message(told);
        assert!(
            told.contains("begins like a tar archive\nhint: extract it first: tar -xf"),
            "{told}"
        );
    }

    fn posix_plus(sum: i64) -> String {
        format!("{:06o}\0 ", sum + 1)
    }

    fn encoded(text: &str, encoding: TextEncoding) -> Vec<u8> {
        let ordered = |mut bytes: Vec<u8>| {
            if encoding.is_big_endian {
                bytes.reverse();
            }
            bytes
        };
        match encoding.unit_bytes {
            2 => {
                text.encode_utf16().flat_map(|unit| ordered(unit.to_le_bytes().to_vec())).collect()
            }
            _ => text.chars().flat_map(|c| ordered(u32::from(c).to_le_bytes().to_vec())).collect(),
        }
    }

    const ENCODINGS: [TextEncoding; 4] = [
        TextEncoding::new(2, false, false),
        TextEncoding::new(2, true, false),
        TextEncoding::new(4, false, false),
        TextEncoding::new(4, true, false),
    ];

    #[test]
    fn text_in_other_encodings_is_told_with_and_without_a_mark() {
        for text in [
            "a,b\n1,2\n",
            "a\n",
            "eight ids",
            "name\tl\u{e4}nge\r\nM\u{fc}ller\t7\r\n",
            "\u{438}\u{43c}\u{44f},\u{447}\u{438}\u{441}\u{43b}\u{43e}\n\u{418}\u{432}\u{430}\u{43d},1\n",
            "\u{59d3}\u{540d},\u{5e74}\u{9f84}\n\u{5f20}\u{4f1f},31\n",
            "{\"a\": \"\u{1f600}\"}\n",
        ] {
            for encoding in ENCODINGS {
                let bytes = encoded(text, encoding);
                assert_eq!(TextEncoding::detect(&bytes), Some(encoding), "{text}");
                // The probe may end within a character.
                let cut = &bytes[..bytes.len() - 1];
                if cut.len() >= 2 * encoding.unit_bytes {
                    assert_eq!(TextEncoding::detect(cut), Some(encoding), "{text}");
                }
                let marked = encoded(&format!("\u{feff}{text}"), encoding);
                let found = TextEncoding { has_mark: true, ..encoding };
                assert_eq!(TextEncoding::detect(&marked), Some(found), "{text}");
                let told = user_message(found.unsupported_error("x.csv"));
                let name = &encoding.name()[..6];
                assert!(told.contains(&format!("a {name} byte-order mark\nhint: ")), "{told}");
                assert!(told.contains(&format!("iconv -f {name} -t UTF-8")), "{told}");
                let told = user_message(encoding.unsupported_error("x.csv"));
                assert!(told.contains(&format!("iconv -f {} -t UTF-8", encoding.name())), "{told}");
            }
        }
        for bytes in [
            &b""[..],
            b"\0",
            b"\0\0\0\0\0\0",
            b"a,b\n1,2\n",
            b"a,b\n1,2\n\0\0\0\0",
            b"a\0",
            // Names that each end in a NUL.
            b"a\0b\0",
            b"a\0b\0c\0d\0e\0f\0g\0",
            b"./a.txt\0./b.txt\0./c\0",
            b"abc\0def\0ghi\0",
            b"a,b\0c\n1,2\n",
            "\u{e9}t\u{e9}\0\u{e9}t\u{e9}\0".as_bytes(),
            b"\x01\0\x02\0\x03\0",
            b"\x1f\x8b\x08\0\0",
        ] {
            assert_eq!(TextEncoding::detect(bytes), None, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn an_encoding_is_told_where_the_look_ends_within_a_character() {
        // A NUL does not turn UTF-8 into another encoding.
        for (begin, character) in
            [("xxa\0", "\u{5e74}"), ("xab\0", "\u{e9}t"), ("b\0a", "\u{e9}"), ("x\0a", "\u{438}")]
        {
            let text = format!("{begin}{}\n", character.repeat(600));
            assert!(
                std::str::from_utf8(&text.as_bytes()[..HEAD_PROBE_BYTES]).is_err(),
                "{begin:?}"
            );
            assert_eq!(TextEncoding::detect(text.as_bytes()), None, "{begin:?}");
        }
        // The first byte of a UTF-8 character is none.
        for encoding in ENCODINGS {
            let units = HEAD_PROBE_BYTES / encoding.unit_bytes;
            let bytes = encoded(&format!("{}\u{e4},\n", "ab,c\n".repeat(200)), encoding);
            assert_eq!(TextEncoding::detect(&bytes), Some(encoding));
            let text = format!("{}\u{e4}{}", &"ab,c\n".repeat(200)[..units - 1], "ab\n".repeat(9));
            assert_eq!(TextEncoding::detect(&encoded(&text, encoding)), Some(encoding));
        }
    }

    proptest::proptest! {
        #[test]
        fn text_is_told_in_every_encoding_and_utf8_is_left_alone(text in "[a-z0-9,;\u{e4}\u{430}\u{59d3}\u{1f600}\"\t\n]{0,300}") {
            proptest::prop_assert_eq!(TextEncoding::detect(text.as_bytes()), None);
            let text = format!("a,b\n{text}");
            for encoding in ENCODINGS {
                let bytes = encoded(&text, encoding);
                proptest::prop_assert_eq!(TextEncoding::detect(&bytes), Some(encoding));
            }
        }

        #[test]
        fn no_bytes_make_a_look_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
            let _ = (TextEncoding::detect(&bytes), detect_foreign_format(&bytes), looks_like_text(&bytes));
        }
    }
}
