//! Compression of outputs.
//!
//! Text is compressed as a whole, under a name that tells the codec (`.gz .zst .bz2 .xz`), as sources read
//! it. If many files wait in memory, each move to a file is a member of its own; readers accept
//! concatenated members. The other formats compress internally, each in its own way.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use tidemill_base::suggestions;

use crate::error::{Error, Result};

/// The compression of an output as the user specifies it: `zstd`, `gzip:9`, `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputCompression {
    pub(crate) name: &'static str,
    pub(crate) level: Option<u32>,
}

const COMPRESSION_NAMES: [&str; 9] =
    ["none", "gzip", "zstd", "bzip2", "xz", "snappy", "brotli", "lz4", "deflate"];

impl FromStr for OutputCompression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (word, level) = match text.split_once(':') {
            Some((word, level)) => (word, Some(level)),
            None => (text, None),
        };
        let name = COMPRESSION_NAMES.iter().find(|name| **name == word);
        let name = name.ok_or_else(|| {
            Error::usage(suggestions::unknown_name_message("compression", word, &COMPRESSION_NAMES))
        })?;
        let level = level.map(|level| {
            level.parse().map_err(|_| {
                Error::usage_with_hint(
                    format!("`{level}` is not a level of compression"),
                    format!("a level is a number: {name}:9"),
                )
            })
        });
        Ok(OutputCompression { name, level: level.transpose()? })
    }
}

impl OutputCompression {
    /// Returns the file suffix of the compression, or an empty text.
    pub(crate) fn file_suffix(&self) -> &'static str {
        tidemill_source::Compression::suffix_of_codec(self.name).unwrap_or_default()
    }

    /// Returns true for `none`.
    pub fn is_none(&self) -> bool {
        self.name == "none"
    }
}

impl fmt::Display for OutputCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "{}:{level}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// A codec with its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputCodec {
    None,
    Gzip(u32),
    Zstd(u32),
    Bzip2(u32),
    Xz(u32),
    Snappy,
    Brotli(u32),
    Lz4,
    Deflate(u32),
}

/// A codec that a format can use: its name, and its minimum, maximum and default level.
pub(crate) struct CodecChoice {
    pub(crate) name: &'static str,
    pub(crate) levels: Option<(u32, u32, u32)>,
}

pub(crate) const fn codec_without_levels(name: &'static str) -> CodecChoice {
    CodecChoice { name, levels: None }
}

pub(crate) const fn codec_with_levels(
    name: &'static str,
    least: u32,
    most: u32,
    usual: u32,
) -> CodecChoice {
    CodecChoice { name, levels: Some((least, most, usual)) }
}

impl OutputCodec {
    /// Returns a level as the zstd libraries take it.
    pub(crate) fn signed_level(level: u32) -> i32 {
        i32::try_from(level).unwrap_or(i32::MAX)
    }

    /// Compresses bytes to a member of a compressed file; returns them unchanged without compression.
    pub(crate) fn compress_member<'a>(
        self,
        bytes: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        if self == OutputCodec::None {
            return Ok(bytes);
        }
        out.clear();
        let mut compressed = CompressedWriter::new(&mut *out, self)?;
        compressed.write_all(bytes)?;
        compressed.finish()?;
        Ok(out)
    }
}

/// A writer that compresses its bytes for another writer.
///
/// Dropped before it is finished, it writes nothing more: a truncated stream must not end as if
/// it were complete.
pub(crate) struct CompressedWriter<W: Write>(Option<CompressorKind<W>>);

enum CompressorKind<W: Write> {
    Plain(W),
    Gzip(flate2::write::GzEncoder<GatedWriter<W>>),
    Zstd(zstd::stream::write::Encoder<'static, GatedWriter<W>>),
    Bzip2(bzip2::write::BzEncoder<GatedWriter<W>>),
    Xz(liblzma::write::XzEncoder<GatedWriter<W>>),
}

/// A writer that discards bytes once it is closed.
struct GatedWriter<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> Write for GatedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed { Ok(bytes.len()) } else { self.out.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed { Ok(()) } else { self.out.flush() }
    }
}

impl<W: Write> CompressedWriter<W> {
    /// Creates a writer with a codec for text; other codecs, which formats apply internally, pass bytes
    /// unchanged.
    pub(crate) fn new(out: W, codec: OutputCodec) -> io::Result<Self> {
        let gate = |out| GatedWriter { out, is_closed: false };
        Ok(CompressedWriter(Some(match codec {
            OutputCodec::Gzip(level) => {
                let level = flate2::Compression::new(level);
                CompressorKind::Gzip(flate2::write::GzEncoder::new(gate(out), level))
            }
            OutputCodec::Zstd(level) => {
                let level = OutputCodec::signed_level(level);
                let mut encoder = zstd::stream::write::Encoder::new(gate(out), level)?;
                encoder.include_checksum(true)?;
                CompressorKind::Zstd(encoder)
            }
            OutputCodec::Bzip2(level) => {
                let level = bzip2::Compression::new(level);
                CompressorKind::Bzip2(bzip2::write::BzEncoder::new(gate(out), level))
            }
            OutputCodec::Xz(level) => {
                CompressorKind::Xz(liblzma::write::XzEncoder::new(gate(out), level))
            }
            _ => CompressorKind::Plain(out),
        })))
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        let kind = self.0.take().ok_or_else(|| io::Error::other("finished twice"))?;
        let mut gate = match kind {
            CompressorKind::Plain(out) => return Ok(out),
            CompressorKind::Gzip(encoder) => encoder.finish()?,
            CompressorKind::Zstd(encoder) => encoder.finish()?,
            CompressorKind::Bzip2(encoder) => encoder.finish()?,
            CompressorKind::Xz(encoder) => encoder.finish()?,
        };
        gate.out.flush()?;
        Ok(gate.out)
    }
}

impl<W: Write> Write for CompressedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(CompressorKind::Plain(out)) => out.write(bytes),
            Some(CompressorKind::Gzip(encoder)) => encoder.write(bytes),
            Some(CompressorKind::Zstd(encoder)) => encoder.write(bytes),
            Some(CompressorKind::Bzip2(encoder)) => encoder.write(bytes),
            Some(CompressorKind::Xz(encoder)) => encoder.write(bytes),
            None => Err(io::Error::other("written to after its end")),
        }
    }

    /// Keeps compressed bytes until the end: passing them on early would make the output larger.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Some(CompressorKind::Plain(out)) => out.flush(),
            _ => Ok(()),
        }
    }
}

impl<W: Write> Drop for CompressedWriter<W> {
    fn drop(&mut self) {
        let gate = match &mut self.0 {
            Some(CompressorKind::Gzip(encoder)) => encoder.get_mut(),
            Some(CompressorKind::Zstd(encoder)) => encoder.get_mut(),
            Some(CompressorKind::Bzip2(encoder)) => encoder.get_mut(),
            Some(CompressorKind::Xz(encoder)) => encoder.get_mut(),
            Some(CompressorKind::Plain(_)) | None => return,
        };
        gate.is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_writer_leaves_an_unfinished_stream() {
        for codec in
            [OutputCodec::Gzip(6), OutputCodec::Zstd(3), OutputCodec::Bzip2(9), OutputCodec::Xz(0)]
        {
            let mut whole = Vec::new();
            let mut compressed = CompressedWriter::new(&mut whole, codec).unwrap();
            compressed.write_all(&[7; 100_000]).unwrap();
            compressed.finish().unwrap();
            let mut broken = Vec::new();
            let mut compressed = CompressedWriter::new(&mut broken, codec).unwrap();
            compressed.write_all(&[7; 100_000]).unwrap();
            drop(compressed);
            assert!(broken.len() < whole.len() && whole.starts_with(&broken), "{codec:?}");
        }
    }
}
