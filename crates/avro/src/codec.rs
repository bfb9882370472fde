//! Compression and decompression of blocks.

use std::io::{Read, Write};

use crate::error::ValueFault;

/// Maximum length of a decompressed block.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 30;
/// Maximum memory of an xz decoder.
const XZ_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of bytes that Snappy makes of one: a copy of 64 bytes takes three.
const SNAPPY_RATIO_MAX: usize = 32;
/// Maximum size of a buffer that the reader keeps from block to block.
const RETAINED_BUFFER_BYTES_MAX: usize = 16 << 20;

/// The compression of blocks. Every reader must support [`Null`](Codec::Null) and
/// [`Deflate`](Codec::Deflate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// No compression.
    Null,
    /// Deflate (RFC 1951) at this level, 0 to 9.
    Deflate(u32),
    /// Snappy, with a checksum.
    Snappy,
    /// Zstandard at this level, 1 to 22.
    Zstandard(i32),
    /// bzip2 at this level, 1 to 9.
    Bzip2(u32),
    /// xz at this level, 0 to 9.
    Xz(u32),
}

impl Codec {
    /// Returns the name in a file's metadata.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Null => "null",
            Codec::Deflate(_) => "deflate",
            Codec::Snappy => "snappy",
            Codec::Zstandard(_) => "zstandard",
            Codec::Bzip2(_) => "bzip2",
            Codec::Xz(_) => "xz",
        }
    }

    /// Returns the codec of this name, with a common level.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"null" => Codec::Null,
            b"deflate" => Codec::Deflate(6),
            b"snappy" => Codec::Snappy,
            b"zstandard" => Codec::Zstandard(1),
            b"bzip2" => Codec::Bzip2(6),
            b"xz" => Codec::Xz(6),
            _ => return None,
        })
    }
}

/// A compressor of consecutive blocks.
pub(crate) struct Compressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    pub(crate) fn new(codec: Codec) -> std::io::Result<Self> {
        let zstd = match codec {
            Codec::Zstandard(level) => Some(zstd::bulk::Compressor::new(level)?),
            _ => None,
        };
        Ok(Self { codec, zstd })
    }

    /// Compresses a block into `out`, whose contents it replaces.
    pub(crate) fn compress(&mut self, block: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        out.clear();
        match (self.codec, &mut self.zstd) {
            (Codec::Null, _) => out.extend_from_slice(block),
            (Codec::Deflate(level), _) => {
                let level = flate2::Compression::new(level);
                let mut encoder = flate2::write::DeflateEncoder::new(out, level);
                encoder.write_all(block)?;
                encoder.finish()?;
            }
            (Codec::Snappy, _) => {
                out.resize(snap::raw::max_compress_len(block.len()), 0);
                let count = snap::raw::Encoder::new().compress(block, out)?;
                out.truncate(count);
                out.extend_from_slice(&crc32fast::hash(block).to_be_bytes());
            }
            (Codec::Zstandard(_), Some(zstd)) => {
                out.resize(zstd::zstd_safe::compress_bound(block.len()), 0);
                let count = zstd.compress_to_buffer(block, out.as_mut_slice())?;
                out.truncate(count);
            }
            (Codec::Zstandard(level), None) => zstd::stream::copy_encode(block, out, level)?,
            (Codec::Bzip2(level), _) => {
                let mut encoder = bzip2::write::BzEncoder::new(out, bzip2::Compression::new(level));
                encoder.write_all(block)?;
                encoder.finish()?;
            }
            (Codec::Xz(level), _) => {
                let mut encoder = liblzma::write::XzEncoder::new(out, level);
                encoder.write_all(block)?;
                encoder.finish()?;
            }
        }
        Ok(())
    }
}

/// Decompresses a block into `out`, whose contents it replaces.
pub(crate) fn decompress(codec: Codec, stored: &[u8], out: &mut Vec<u8>) -> Result<(), ValueFault> {
    out.clear();
    out.shrink_to(RETAINED_BUFFER_BYTES_MAX);
    match codec {
        Codec::Null => {
            out.extend_from_slice(stored);
            Ok(())
        }
        Codec::Deflate(_) => read_all(flate2::bufread::DeflateDecoder::new(stored), out),
        Codec::Snappy => {
            let fault = "a block that is not snappy";
            let (body, checksum) = stored.split_last_chunk::<4>().ok_or(fault)?;
            let length = snap::raw::decompress_len(body).map_err(|_| fault)?;
            if length > BLOCK_BYTES_MAX || length > body.len().saturating_mul(SNAPPY_RATIO_MAX) {
                return Err("a block that is said to become longer than it can");
            }
            out.resize(length, 0);
            snap::raw::Decoder::new().decompress(body, out).map_err(|_| fault)?;
            match crc32fast::hash(out).to_be_bytes() == *checksum {
                true => Ok(()),
                false => Err("a block whose checksum is another"),
            }
        }
        Codec::Zstandard(_) => {
            let decoder = zstd::stream::read::Decoder::with_buffer(stored);
            read_all(decoder.map_err(|_| "no decoder for zstandard")?, out)
        }
        Codec::Bzip2(_) => read_all(bzip2::bufread::MultiBzDecoder::new(stored), out),
        Codec::Xz(_) => {
            let flags = liblzma::stream::CONCATENATED;
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, flags);
            let stream = stream.map_err(|_| "no decoder for xz")?;
            read_all(liblzma::bufread::XzDecoder::new_stream(stored, stream), out)
        }
    }
}

fn read_all(decoder: impl Read, out: &mut Vec<u8>) -> Result<(), ValueFault> {
    let limit = BLOCK_BYTES_MAX as u64 + 1;
    decoder.take(limit).read_to_end(out).map_err(|_| "a block that cannot be decompressed")?;
    match out.len() > BLOCK_BYTES_MAX {
        true => Err("a block of more than 1 GiB"),
        false => Ok(()),
    }
}
