//! Compression of blocks and footers.

use serde::{Deserialize, Serialize};

use crate::error::RowDecodeError;

/// The compression of a file's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Codec {
    /// No compression.
    None,
    /// LZ4 in its block format.
    Lz4,
    /// Zstandard at this level, 1 to 22.
    Zstd(i32),
}

impl Default for Codec {
    /// Zstandard at level 1.
    fn default() -> Self {
        Self::Zstd(1)
    }
}

/// Maximum decompressed size for which memory is allocated before decompression confirms it.
const BULK_DECOMPRESS_BYTES_MAX: usize = 4 << 20;

/// Maximum ratio of decompressed to compressed bytes in LZ4.
const LZ4_RATIO_MAX: usize = 255;

impl Codec {
    /// Returns the number of the codec in a section header.
    pub(crate) fn codec_number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd(_) => 2,
        }
    }
}

/// A compressor that reuses its state between sections.
pub(crate) struct SectionCompressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for SectionCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.codec.fmt(f)
    }
}

impl SectionCompressor {
    pub(crate) fn new(codec: Codec) -> std::io::Result<Self> {
        let zstd = match codec {
            Codec::Zstd(level) => Some(zstd::bulk::Compressor::new(level)?),
            _ => None,
        };
        Ok(Self { codec, zstd })
    }

    /// Appends `raw` compressed if that makes it smaller. Returns the codec's number, or `None`
    /// if `raw` should be stored as it is.
    pub(crate) fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> std::io::Result<Option<u8>> {
        let start = out.len();
        let size = match (self.codec, &mut self.zstd) {
            (Codec::Zstd(_), Some(zstd)) => {
                out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
                let to = out.get_mut(start..).unwrap_or_default();
                Some(zstd.compress_to_buffer(raw, to)?)
            }
            (Codec::Lz4, _) => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                let to = out.get_mut(start..).unwrap_or_default();
                lz4_flex::block::compress_into(raw, to).ok()
            }
            _ => None,
        };
        let size = size.filter(|size| *size < raw.len());
        out.truncate(start + size.unwrap_or_default());
        Ok(size.map(|_| self.codec.codec_number()))
    }
}

/// A decompressor that reuses its state between sections.
pub(crate) struct SectionDecompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl SectionDecompressor {
    pub(crate) fn new() -> Self {
        Self { zstd: None }
    }

    /// Replaces `out` by the `size` decompressed bytes of `stored`, and `slack` zeros. Memory grows with
    /// the actual output, not with the claimed size.
    pub(crate) fn decompress(
        &mut self,
        number: u8,
        stored: &[u8],
        size: usize,
        slack: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), RowDecodeError> {
        let wrong =
            || RowDecodeError::from_damage(format!("it does not decompress to {size} bytes"));
        out.clear();
        match number {
            0 if stored.len() == size => {
                out.reserve(size + slack);
                out.extend_from_slice(stored);
            }
            1 => {
                if size > stored.len().saturating_mul(LZ4_RATIO_MAX) {
                    return Err(wrong());
                }
                out.resize(size, 0);
                if lz4_flex::block::decompress_into(stored, out).ok() != Some(size) {
                    return Err(wrong());
                }
            }
            2 if size <= BULK_DECOMPRESS_BYTES_MAX => {
                if self.zstd.is_none() {
                    let new = zstd::bulk::Decompressor::new();
                    self.zstd =
                        Some(new.map_err(|error| RowDecodeError::from_damage(error.to_string()))?);
                }
                let Some(zstd) = &mut self.zstd else { return Err(wrong()) };
                out.reserve(size + slack);
                // Writes at most the capacity, which may exceed `size`.
                match zstd.decompress_to_buffer(stored, out) {
                    Ok(found) if found == size => {}
                    _ => return Err(wrong()),
                }
            }
            2 => {
                use std::io::Read;
                let stream = zstd::stream::read::Decoder::with_buffer(stored);
                let stream = stream.map_err(|_| wrong())?;
                stream.take(size as u64 + 1).read_to_end(out).map_err(|_| wrong())?;
                if out.len() != size {
                    return Err(wrong());
                }
            }
            0 => return Err(wrong()),
            other => {
                return Err(RowDecodeError::from_damage(format!(
                    "{other} is no codec that is known"
                )));
            }
        }
        out.resize(size + slack, 0);
        Ok(())
    }
}
