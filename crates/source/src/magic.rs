//! What a file's first bytes say of it, whatever its name says.
//!
//! Names lie: a server stores what was uploaded with `Content-Encoding: gzip` under `day.csv`, a
//! download is unpacked on its way and keeps its `.gz`, a log rotates to `access.log.1`. So text
//! is decoded by what it begins with, up to [`LAYERS_MAX`] times, and what begins like another
//! format's file is refused by that format's name. The bytes that are looked at are those that
//! are read anyway ([`Peeked`]); files that would be cut, which compressed ones cannot be, are
//! looked at beforehand ([`peek`]).
//!
//! A program of the user's (`exec`) gets what the file's name promises.

use std::sync::Arc;

use tidemill_remote::Fetch;

use super::compression::{Compression, decode};
use super::error::{Error, Result};
use super::input::{Access, ByteInput, OpenFile};
use super::{FileLocation, SourceFile};

/// What is looked at of a file.
const LOOK_BYTES: usize = 512;
/// A server may compress on the way what is compressed already.
const LAYERS_MAX: usize = 3;
/// So many requests are on their way at once.
const REQUESTS_AHEAD: usize = 64;

/// An input whose first bytes are known already.
struct Peeked {
    head: Vec<u8>,
    at: usize,
    /// None once it has ended.
    inner: Option<Box<dyn ByteInput>>,
}

impl Peeked {
    fn new(mut inner: Box<dyn ByteInput>, bytes: usize) -> Result<Self> {
        let mut head = vec![0; bytes.max(LOOK_BYTES)];
        let mut count = inner.read(&mut head)?;
        let mut has_ended = count == 0 || count < head.len() && !inner.is_eager();
        while !has_ended && count < crate::MAGIC_BYTES {
            let more = inner.read(&mut head[count..])?;
            has_ended = more == 0;
            count += more;
        }
        let inner = (!has_ended).then_some(inner);
        head.truncate(count);
        Ok(Self { head, at: 0, inner })
    }
}

impl ByteInput for Peeked {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let count = out.len().min(self.head.len() - self.at);
        out[..count].copy_from_slice(&self.head[self.at..self.at + count]);
        self.at += count;
        if self.at == self.head.len() && !self.head.is_empty() {
            self.head = Vec::new();
            self.at = 0;
        }
        match &mut self.inner {
            // What is here is given before more is waited for.
            Some(inner) if count > 0 && inner.is_eager() => Ok(count),
            Some(inner) if count < out.len() => Ok(count + inner.read(&mut out[count..])?),
            _ => Ok(count),
        }
    }

    fn is_eager(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_eager())
    }
}

/// The decoded bytes of a file of text, of which `input` has the stored ones from the first on.
/// `read_bytes` and `stored_bytes` are as for [`decode`].
///
/// # Errors
/// Those of reading; [`Error::Corrupt`] for what is neither compressed, as its name says, nor text,
/// and for a file of another format.
pub(super) fn decoded(
    file: &SourceFile,
    mut input: Box<dyn ByteInput>,
    read_bytes: usize,
    stored_bytes: Option<u64>,
) -> Result<Box<dyn ByteInput>> {
    if file.program.is_some() {
        return decode(input, file.compression, &file.shown, read_bytes, stored_bytes);
    }
    if file.told.get() == Some(&Compression::None) {
        return Ok(input);
    }
    // One byte more than there are tells that there are no more.
    let stored = stored_bytes.and_then(|bytes| usize::try_from(bytes.saturating_add(1)).ok());
    let stored = stored.unwrap_or(usize::MAX);
    for layer in 0..LAYERS_MAX {
        let peeked =
            Peeked::new(input, if layer == 0 { read_bytes.min(stored) } else { read_bytes })?;
        let found = match layer {
            0 => *file.told.get_or_init(|| compression_told(file.compression, &peeked.head)),
            _ => Compression::from_magic(&peeked.head),
        };
        if found == Compression::None {
            refuse_other_format(&peeked.head, &file.shown)?;
            return Ok(Box::new(peeked));
        }
        input = decode(Box::new(peeked), found, &file.shown, read_bytes, stored_bytes)?;
    }
    Ok(input)
}

/// How a text is compressed that begins so, with [`MAGIC_BYTES`](crate::MAGIC_BYTES) at least, and whose name says
/// `named`.
pub fn compression_told(named: Compression, head: &[u8]) -> Compression {
    match Compression::from_magic(head) {
        // Cut off within its magic number, or damaged: its decoder says so.
        Compression::None if !looks_like_text(head) || named.may_begin(head) => named,
        found => found,
    }
}

/// Whether these are the first bytes of a text: a damaged file is not taken for one.
fn looks_like_text(head: &[u8]) -> bool {
    let is_odd =
        |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0x1b);
    let head = &head[..head.len().min(LOOK_BYTES)];
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        // A character may be cut off at the end.
        Err(error) => error.error_len().is_none() && head.len() == LOOK_BYTES,
    };
    is_utf8 && !head.iter().any(is_odd)
}

/// Refuses a file that was cut because of its name and turns out to be compressed. Its first bytes are looked at only
/// where `seen`, from somewhere within it, is no text.
///
/// # Errors
/// [`Error::Corrupt`]; those of reading.
pub(super) fn check_cut(file: &SourceFile, open: &OpenFile, seen: &[u8]) -> Result<()> {
    // A character may be cut off at the beginning.
    let is_within = |byte: &&u8| **byte & 0xc0 == 0x80;
    let seen = &seen[seen.iter().take(3).take_while(is_within).count()..];
    let found = match file.told.get() {
        Some(found) => *found,
        None if looks_like_text(seen) => return Ok(()),
        None => {
            let mut head = [0; LOOK_BYTES];
            let count = open.read_at(&mut head, 0)?;
            let found = compression_told(file.compression, &head[..count]);
            if found == Compression::None {
                refuse_other_format(&head[..count], &file.shown)?;
            }
            *file.told.get_or_init(|| found)
        }
    };
    match found {
        Compression::None => Ok(()),
        _ => Err(Error::Corrupt {
            path: file.shown.to_string(),
            offset: None,
            reason: "it is compressed, and its name does not say so".into(),
            hint: Some(
                "rename it; without --deadline and --drop the beginning of each file is looked at first".into(),
            ),
        }),
    }
}

/// Looks at the first bytes of files whose names say that they are not compressed, before they are
/// cut; those that have been looked at are not looked at again.
///
/// # Errors
/// Those of reading; [`Error::Corrupt`] for a file of another format.
pub(super) fn peek(files: &[&Arc<SourceFile>]) -> Result<()> {
    let is_new = |file: &&&Arc<SourceFile>| file.told.get().is_none() && file.program.is_none();
    let files: Vec<&Arc<SourceFile>> = files.iter().filter(is_new).copied().collect();
    let mut asked: std::collections::VecDeque<Option<Fetch<bytes::Bytes>>> =
        std::collections::VecDeque::new();
    let mut next = files.iter();
    for file in &files {
        while asked.len() < REQUESTS_AHEAD
            && let Some(next) = next.next()
        {
            let length = next.size().min(LOOK_BYTES as u64);
            asked.push_back(match &next.place {
                FileLocation::Object(object) if !object.is_stream() => {
                    Some(object.fetch(0..length)?)
                }
                _ => None,
            });
        }
        let mut local = [0; LOOK_BYTES];
        let remote;
        let head = match asked.pop_front().flatten() {
            Some(fetch) => {
                remote = fetch.wait(&file.cancel)?;
                &remote[..]
            }
            None => {
                let open = OpenFile::open(file, Access::Random, &file.watch())?;
                let count = open.read_at(&mut local, 0)?;
                &local[..count]
            }
        };
        if *file.told.get_or_init(|| compression_told(file.compression, head)) == Compression::None
        {
            refuse_other_format(head, &file.shown)?;
        }
    }
    Ok(())
}

/// Formats that are no text, by their first bytes; of these the program reads itself the name that
/// `--source-format` has for them.
const OTHERS: [(&[u8], &str, Option<&str>); 10] = [
    // Behind the magic number comes the header of a page, which begins with a field's type.
    (b"PAR1\x15", "Parquet", Some("parquet")),
    (b"ARROW1\0\0", "an Arrow file", Some("arrow")),
    (b"\xff\xff\xff\xff", "an Arrow stream", Some("arrow")),
    (b"Obj\x01", "Avro", Some("avro")),
    (b"TIDEROWS\x01", "a rowfile", Some("rowfile")),
    (b"PK\x03\x04", "a zip archive", None),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", None),
    (b"\x04\x22\x4d\x18", "lz4 data", None),
    (b"\x1f\x9d", "data of `compress`", None),
    (b"SQLite format 3\0", "an SQLite database", None),
];

fn refuse_other_format(head: &[u8], shown: &Arc<str>) -> Result<()> {
    let Some((_, what, name)) = OTHERS.iter().find(|(magic, _, _)| head.starts_with(magic)) else {
        return Ok(());
    };
    Err(Error::Corrupt {
        path: shown.to_string(),
        offset: Some(0),
        reason: format!("it is read as text and begins like {what}"),
        hint: Some(match name {
            Some(name) => format!("--source-format {name} reads it (job file: source.format)"),
            None => "unpack it first, or read it through a program: --source-exec".into(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::error::as_told;
    use super::*;

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
            // A frame that is to be skipped, as parallel compressors write.
            (C::Zstd, b"\x50\x2a\x4d\x18\x04\0\0\0", C::Zstd),
            (C::None, b"BZh91AY&SY", C::Bzip2),
            (C::None, b"BZh9\x17\x72\x45\x38\x50\x90", C::Bzip2),
            (C::None, b"BZh9,count\n", C::None),
            (C::None, b"\xfd7zXZ\0", C::Xz),
            // Cut off or damaged: its decoder will say so.
            (C::Gzip, b"\x1f", C::Gzip),
            (C::Gzip, b"\x1f\x0b\x08\0", C::Gzip),
            (C::Xz, b"\xfc7zXZ\0", C::Xz),
            (C::Bzip2, b"BZ", C::Bzip2),
            (C::Bzip2, b"BZh91AY", C::Bzip2),
            (C::Bzip2, b"B,count\n", C::None),
            (C::Zstd, b"(", C::Zstd),
            (C::Zstd, b"(1)\n", C::None),
            (C::Gzip, b"", C::None),
            (C::Bzip2, b"", C::None),
        ] {
            assert_eq!(compression_told(named, head), expected, "{named:?} {head:?}");
        }
        let mut cut = vec![b'a'; LOOK_BYTES - 1];
        cut.extend_from_slice("\u{e9}".as_bytes());
        assert_eq!(compression_told(C::Gzip, &cut), C::None);
    }

    #[test]
    fn what_was_peeked_is_read_again_in_pieces_of_any_size() {
        struct Bytes(std::io::Cursor<Vec<u8>>);
        impl ByteInput for Bytes {
            fn read(&mut self, out: &mut [u8]) -> Result<usize> {
                std::io::Read::read(&mut self.0, out).map_err(|e| Error::io("read", "x", e))
            }
        }
        for length in [0, 1, LOOK_BYTES - 1, LOOK_BYTES, LOOK_BYTES + 1, 3 * LOOK_BYTES] {
            let text: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            for piece in [1, 7, LOOK_BYTES, 10 * LOOK_BYTES] {
                let input = Box::new(Bytes(std::io::Cursor::new(text.clone())));
                let mut peeked = Peeked::new(input, 1).unwrap();
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

    #[test]
    fn a_file_of_another_format_is_named() {
        let path: Arc<str> = "x.csv".into();
        for (magic, what, _) in OTHERS {
            let message = as_told(refuse_other_format(magic, &path).unwrap_err());
            assert!(message.contains(what) && message.contains("hint: "), "{message}");
        }
        for text in [&b"PAR1,PAR2\n"[..], b"Obj,x\n", b"PK,x\n", b"ARROW1,x\n", b""] {
            refuse_other_format(text, &path).unwrap();
        }
    }
}
