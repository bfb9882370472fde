//! The sections of a file around its rows; `docs/formats/rowfile.md` is the full specification.
//!
//! ```text
//!   file    = header (block* footer)*
//!   block   = section of rows
//!   footer  = section that lists the blocks since the last footer, and a trailer
//!   section = kind, file, offset, rows, sizes, checksums  (48 bytes), content
//! ```
//!
//! Nothing is ever overwritten. An append adds blocks and its own footer behind the end; until its
//! last byte is written, readers find the previous footer. A section states its file
//! (by the checksum of the header) and its offset, so that a block that was moved, left
//! over, or is part of a rowfile within a rowfile, is not mistaken for another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::block_statistics::{BlockStatistics, take_bytes};
use crate::codec::Codec;
use crate::error::{Error, FilePart, Result, RowDecodeError};
use crate::row_layout::BLOCK_BYTES_MAX;
use crate::schema::Schema;

pub(crate) const MAGIC: &[u8; 8] = b"TIDEROWS";
const MAGIC_END: &[u8; 8] = b"TIDEREND";
pub(crate) const VERSION: u32 = 1;
/// Size of the header before its JSON, in bytes.
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const SECTION_BYTES: usize = 48;
pub(crate) const TRAILER_BYTES: usize = 32;
/// Maximum size of the header's JSON.
const HEADER_JSON_BYTES_MAX: u32 = 64 << 20;

/// The content of the header's JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileHeader {
    pub schema: Schema,
    /// The writer's codec; each block states its own.
    pub codec: Codec,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl FileHeader {
    /// Returns the header's bytes and their checksum.
    pub(crate) fn to_bytes(&self) -> Result<(Vec<u8>, u32)> {
        let json = serde_json::to_vec(self).map_err(|error| Error::Serde(error.to_string()))?;
        let length =
            u32::try_from(json.len()).ok().filter(|length| *length <= HEADER_JSON_BYTES_MAX);
        let length = length.ok_or(Error::TooLarge {
            what: "the schema and the metadata",
            found: json.len() as u64,
            limit: HEADER_JSON_BYTES_MAX.into(),
        })?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + json.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&json);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok((bytes, checksum))
    }

    /// Returns the total length of the header, from its first [`HEADER_BYTES`] bytes.
    pub(crate) fn total_bytes(file: &str, first: &[u8]) -> Result<u64> {
        let magic = first.get(..MAGIC.len()).unwrap_or(first);
        if magic != MAGIC {
            let found = format!("`{}`", magic.escape_ascii());
            return Err(Error::NotARowfile { file: file.into(), found });
        }
        let version = u32_at(first, 8);
        if version > VERSION {
            return Err(Error::NewerVersion { file: file.into(), found: version, known: VERSION });
        }
        let length = u32_at(first, 12);
        if version == 0 || length > HEADER_JSON_BYTES_MAX {
            return Err(Error::Damaged {
                file: file.into(),
                part: FilePart::Header,
                offset: 0,
                reason: format!("version {version}, a schema of {length} bytes"),
            });
        }
        Ok(HEADER_BYTES as u64 + u64::from(length) + 4)
    }

    /// Parses the whole header. Returns it with its checksum.
    pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<(Self, u32)> {
        let damaged = |reason: String| Error::Damaged {
            file: file.into(),
            part: FilePart::Header,
            offset: 0,
            reason,
        };
        let (content, checksum) =
            bytes.split_last_chunk::<4>().ok_or_else(|| damaged("it ends too early".into()))?;
        let checksum = u32::from_le_bytes(*checksum);
        let found = crc32c::crc32c(content);
        if found != checksum {
            return Err(damaged(checksum_mismatch(checksum, found)));
        }
        let json = content.get(HEADER_BYTES..).unwrap_or_default();
        let header: Self =
            serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        header.schema.validate().map_err(|error| damaged(error.to_string()))?;
        Ok((header, checksum))
    }
}

fn checksum_mismatch(expected: u32, found: u32) -> String {
    format!("its checksum should be {expected:08x} and is {found:08x}")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |it| u32::from_le_bytes(*it))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |it| u64::from_le_bytes(*it))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Block,
    Footer,
}

impl SectionKind {
    pub(crate) fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::Block => b"TBLK",
            Self::Footer => b"TEND",
        }
    }
}

/// The header of a section, which is a block or a footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionHeader {
    pub kind: SectionKind,
    /// Offset of the section in its file.
    pub offset: u64,
    /// Number of rows of the file before the section.
    pub first_row: u64,
    /// Number of rows in a block, or of blocks that a footer lists.
    pub count: u32,
    /// Content size before compression.
    pub raw_bytes: u32,
    /// Content size in the file.
    pub stored_bytes: u32,
    pub codec: u8,
    pub checksum: u32,
}

impl SectionHeader {
    /// Returns the offset of the next section, or of a footer's trailer.
    pub(crate) fn end(&self) -> u64 {
        self.offset + SECTION_BYTES as u64 + u64::from(self.stored_bytes)
    }

    pub(crate) fn to_bytes(self, file: u32) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        let fields: [&[u8]; 9] = [
            self.kind.magic(),
            &file.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.first_row.to_le_bytes(),
            &self.count.to_le_bytes(),
            &self.raw_bytes.to_le_bytes(),
            &self.stored_bytes.to_le_bytes(),
            &[self.codec, 0, 0, 0],
            &self.checksum.to_le_bytes(),
        ];
        let all = fields.concat();
        let checksum = crc32c::crc32c(&all);
        for (to, from) in bytes.iter_mut().zip(all.iter().chain(&checksum.to_le_bytes())) {
            *to = *from;
        }
        bytes
    }

    /// Parses the section header at `offset` of the file whose header has the checksum `file`.
    pub(crate) fn parse(bytes: &[u8], file: u32, offset: u64) -> Result<Self, RowDecodeError> {
        let (content, checksum) =
            match bytes.get(..SECTION_BYTES).and_then(<[u8]>::split_last_chunk) {
                Some((content, checksum)) => (content, u32::from_le_bytes(*checksum)),
                None => return Err(RowDecodeError::from_damage("it ends too early")),
            };
        let found = crc32c::crc32c(content);
        if found != checksum {
            return Err(RowDecodeError::from_damage(checksum_mismatch(checksum, found)));
        }
        let kind = [SectionKind::Block, SectionKind::Footer]
            .into_iter()
            .find(|kind| content.starts_with(kind.magic()));
        let section = Self {
            kind: kind
                .ok_or_else(|| RowDecodeError::from_damage("neither a block nor a footer"))?,
            offset: u64_at(content, 8),
            first_row: u64_at(content, 16),
            count: u32_at(content, 24),
            raw_bytes: u32_at(content, 28),
            stored_bytes: u32_at(content, 32),
            codec: content.get(36).copied().unwrap_or(u8::MAX),
            checksum: u32_at(content, 40),
        };
        if u32_at(content, 4) != file || section.offset != offset {
            return Err(RowDecodeError::from_damage("it belongs to another place or file"));
        }
        let is_large = u64::from(section.raw_bytes.max(section.stored_bytes)) > BLOCK_BYTES_MAX;
        if is_large || content.get(37..40) != Some(&[0, 0, 0]) {
            return Err(RowDecodeError::from_damage("sizes or flags that no writer writes"));
        }
        Ok(section)
    }

    /// Returns true if the content is stored uncompressed.
    pub(crate) fn is_uncompressed(&self) -> bool {
        self.codec == Codec::None.codec_number() && self.stored_bytes == self.raw_bytes
    }

    /// Checks the checksum of the stored content.
    pub(crate) fn verify_checksum(&self, stored: &[u8]) -> Result<(), RowDecodeError> {
        let found = crc32c::crc32c(stored);
        if found != self.checksum {
            return Err(RowDecodeError::from_damage(checksum_mismatch(self.checksum, found)));
        }
        Ok(())
    }
}

/// The last bytes of a footer, and so of a file that is not being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FooterTrailer {
    /// Offset of the footer.
    pub footer_offset: u64,
    /// Offset of the trailer's end.
    pub end_offset: u64,
}

impl FooterTrailer {
    pub(crate) fn to_bytes(self, file: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        bytes.extend_from_slice(&self.footer_offset.to_le_bytes());
        bytes.extend_from_slice(&self.end_offset.to_le_bytes());
        bytes.extend_from_slice(&file.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(MAGIC_END);
        bytes
    }

    /// Parses the trailer that ends at `end`; `None` if the bytes are not one.
    pub(crate) fn parse(bytes: &[u8], file: u32, end: u64) -> Option<Self> {
        let content = bytes.get(..20)?;
        let trailer = Self { footer_offset: u64_at(content, 0), end_offset: u64_at(content, 8) };
        let is_one = bytes.len() == TRAILER_BYTES
            && bytes.ends_with(MAGIC_END)
            && u32_at(bytes, 20) == crc32c::crc32c(content)
            && u32_at(content, 16) == file
            && trailer.end_offset == end
            && trailer.footer_offset < end;
        is_one.then_some(trailer)
    }
}

/// A block's entry in a footer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FooterEntry {
    pub offset: u64,
    /// Size in the file, including the section header.
    pub bytes: u32,
    pub rows: u32,
    pub statistics: BlockStatistics,
}

/// The content of a footer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct FileFooter {
    /// Offset of the previous footer; 0 if there is none.
    pub previous_footer: u64,
    /// The leaves that have statistics.
    pub statistics_leaves: Vec<u32>,
    pub entries: Vec<FooterEntry>,
}

impl FileFooter {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.previous_footer.to_le_bytes());
        let count = u32::try_from(self.statistics_leaves.len()).unwrap_or_default();
        out.extend_from_slice(&count.to_le_bytes());
        for leaf in &self.statistics_leaves {
            out.extend_from_slice(&leaf.to_le_bytes());
        }
        for entry in &self.entries {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.bytes.to_le_bytes());
            out.extend_from_slice(&entry.rows.to_le_bytes());
            entry.statistics.write(out);
        }
    }

    /// Parses the footer of `count` blocks.
    pub(crate) fn parse(mut bytes: &[u8], count: u32) -> Result<Self, RowDecodeError> {
        let bytes = &mut bytes;
        let previous = u64_at(take_bytes(bytes, 8)?, 0);
        let columns = u32_at(take_bytes(bytes, 4)?, 0);
        let leaves = take_bytes(bytes, (columns as usize).saturating_mul(4))?;
        let leaves: Vec<u32> = leaves.chunks_exact(4).map(|it| u32_at(it, 0)).collect();
        // Each entry takes at least 16 bytes.
        if count as usize > bytes.len() / 16 {
            return Err(RowDecodeError::from_damage(format!("{count} blocks do not fit in it")));
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let entry = take_bytes(bytes, 16)?;
            entries.push(FooterEntry {
                offset: u64_at(entry, 0),
                bytes: u32_at(entry, 8),
                rows: u32_at(entry, 12),
                statistics: BlockStatistics::parse(bytes, leaves.len())?,
            });
        }
        if !bytes.is_empty() {
            return Err(RowDecodeError::from_damage(format!("{} bytes too many", bytes.len())));
        }
        Ok(Self { previous_footer: previous, statistics_leaves: leaves, entries })
    }
}
