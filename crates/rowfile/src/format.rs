//! The bytes of a file around its rows: `docs/formats/rowfile.md` is the whole story.
//!
//! ```text
//!   file    = header (block* footer)*
//!   block   = section of rows
//!   footer  = section that lists the blocks since the last footer, and a trailer
//!   section = kind, file, offset, rows, sizes, checksums  (48 bytes), content
//! ```
//!
//! Nothing is ever overwritten. An append adds blocks and a footer of their own behind the end; until its
//! last byte is there, readers find the footer before it. A section says which file it belongs
//! to (by the checksum of the header) and where it stands, so that a block that was moved, left
//! over, or is part of a rowfile within a rowfile, is not taken for another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::error::{Error, Fault, Part, Result};
use crate::layout::BLOCK_BYTES_MAX;
use crate::schema::Schema;
use crate::statistics::{BlockStatistics, take};

pub(crate) const MAGIC: &[u8; 8] = b"TIDEROWS";
const MAGIC_END: &[u8; 8] = b"TIDEREND";
pub(crate) const VERSION: u32 = 1;
/// The header's bytes before its JSON.
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const SECTION_BYTES: usize = 48;
pub(crate) const TRAILER_BYTES: usize = 32;
/// The header's JSON at most.
const JSON_BYTES_MAX: u32 = 64 << 20;

/// What the header's JSON holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub schema: Schema,
    /// Of the file's writer; each block says its own.
    pub codec: Codec,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl Header {
    /// The header's bytes, and their checksum.
    pub(crate) fn to_bytes(&self) -> Result<(Vec<u8>, u32)> {
        let json = serde_json::to_vec(self).map_err(|error| Error::Serde(error.to_string()))?;
        let length = u32::try_from(json.len()).ok().filter(|length| *length <= JSON_BYTES_MAX);
        let length = length.ok_or(Error::TooLarge {
            what: "the schema and the metadata",
            found: json.len() as u64,
            limit: JSON_BYTES_MAX.into(),
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

    /// How long the header is, from its first [`HEADER_BYTES`]: all of it.
    pub(crate) fn bytes(file: &str, first: &[u8]) -> Result<u64> {
        let magic = first.get(..MAGIC.len()).unwrap_or(first);
        if magic != MAGIC {
            let found = format!("`{}`", magic.escape_ascii());
            return Err(Error::NotARowfile { file: file.into(), found });
        }
        let version = number_at(first, 8);
        if version > VERSION {
            return Err(Error::Newer { file: file.into(), found: version, known: VERSION });
        }
        let length = number_at(first, 12);
        if version == 0 || length > JSON_BYTES_MAX {
            return Err(Error::Damaged {
                file: file.into(),
                part: Part::Header,
                offset: 0,
                reason: format!("version {version}, a schema of {length} bytes"),
            });
        }
        Ok(HEADER_BYTES as u64 + u64::from(length) + 4)
    }

    /// The header from all of its bytes, and its checksum.
    pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<(Self, u32)> {
        let damaged = |reason: String| Error::Damaged {
            file: file.into(),
            part: Part::Header,
            offset: 0,
            reason,
        };
        let (content, checksum) =
            bytes.split_last_chunk::<4>().ok_or_else(|| damaged("it ends too early".into()))?;
        let checksum = u32::from_le_bytes(*checksum);
        let found = crc32c::crc32c(content);
        if found != checksum {
            return Err(damaged(mismatch(checksum, found)));
        }
        let json = content.get(HEADER_BYTES..).unwrap_or_default();
        let header: Self =
            serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        header.schema.check().map_err(|error| damaged(error.to_string()))?;
        Ok((header, checksum))
    }
}

fn mismatch(expected: u32, found: u32) -> String {
    format!("its checksum should be {expected:08x} and is {found:08x}")
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |it| u32::from_le_bytes(*it))
}

fn long_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |it| u64::from_le_bytes(*it))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Footer,
}

impl Kind {
    pub(crate) fn name(self) -> &'static [u8; 4] {
        match self {
            Self::Block => b"TBLK",
            Self::Footer => b"TEND",
        }
    }
}

/// The first bytes of a block or footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    pub kind: Kind,
    /// Where it begins in its file.
    pub offset: u64,
    /// Rows of the file before it.
    pub first_row: u64,
    /// A block's rows; the blocks that a footer lists.
    pub count: u32,
    /// Bytes before compression.
    pub raw: u32,
    /// Bytes in the file.
    pub stored: u32,
    pub codec: u8,
    pub checksum: u32,
}

impl Section {
    /// Where the next section begins, or a footer's trailer.
    pub(crate) fn end(&self) -> u64 {
        self.offset + SECTION_BYTES as u64 + u64::from(self.stored)
    }

    pub(crate) fn to_bytes(self, file: u32) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        let fields: [&[u8]; 9] = [
            self.kind.name(),
            &file.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.first_row.to_le_bytes(),
            &self.count.to_le_bytes(),
            &self.raw.to_le_bytes(),
            &self.stored.to_le_bytes(),
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

    /// The section at `offset`, of the file with this checksum.
    pub(crate) fn parse(bytes: &[u8], file: u32, offset: u64) -> Result<Self, Fault> {
        let (content, checksum) =
            match bytes.get(..SECTION_BYTES).and_then(<[u8]>::split_last_chunk) {
                Some((content, checksum)) => (content, u32::from_le_bytes(*checksum)),
                None => return Err(Fault::damaged("it ends too early")),
            };
        let found = crc32c::crc32c(content);
        if found != checksum {
            return Err(Fault::damaged(mismatch(checksum, found)));
        }
        let kind =
            [Kind::Block, Kind::Footer].into_iter().find(|kind| content.starts_with(kind.name()));
        let section = Self {
            kind: kind.ok_or_else(|| Fault::damaged("neither a block nor a footer"))?,
            offset: long_at(content, 8),
            first_row: long_at(content, 16),
            count: number_at(content, 24),
            raw: number_at(content, 28),
            stored: number_at(content, 32),
            codec: content.get(36).copied().unwrap_or(u8::MAX),
            checksum: number_at(content, 40),
        };
        if number_at(content, 4) != file || section.offset != offset {
            return Err(Fault::damaged("it belongs to another place or file"));
        }
        let is_large = u64::from(section.raw.max(section.stored)) > BLOCK_BYTES_MAX;
        if is_large || content.get(37..40) != Some(&[0, 0, 0]) {
            return Err(Fault::damaged("sizes or flags that no writer writes"));
        }
        Ok(section)
    }

    /// Looks whether `stored` is what the section says.
    /// Whether its content is stored as it is.
    pub(crate) fn is_plain(&self) -> bool {
        self.codec == Codec::None.number() && self.stored == self.raw
    }

    pub(crate) fn verify(&self, stored: &[u8]) -> Result<(), Fault> {
        let found = crc32c::crc32c(stored);
        if found != self.checksum {
            return Err(Fault::damaged(mismatch(self.checksum, found)));
        }
        Ok(())
    }
}

/// The last bytes of a footer, and of a file that is not being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Where the footer begins.
    pub footer: u64,
    /// Where the trailer ends.
    pub end: u64,
}

impl Trailer {
    pub(crate) fn to_bytes(self, file: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        bytes.extend_from_slice(&self.footer.to_le_bytes());
        bytes.extend_from_slice(&self.end.to_le_bytes());
        bytes.extend_from_slice(&file.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(MAGIC_END);
        bytes
    }

    /// The trailer that ends at `end`, if it is one.
    pub(crate) fn parse(bytes: &[u8], file: u32, end: u64) -> Option<Self> {
        let content = bytes.get(..20)?;
        let trailer = Self { footer: long_at(content, 0), end: long_at(content, 8) };
        let is_one = bytes.len() == TRAILER_BYTES
            && bytes.ends_with(MAGIC_END)
            && number_at(bytes, 20) == crc32c::crc32c(content)
            && number_at(content, 16) == file
            && trailer.end == end
            && trailer.footer < end;
        is_one.then_some(trailer)
    }
}

/// A block, as a footer lists it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub offset: u64,
    /// Its bytes in the file, those of the section included.
    pub bytes: u32,
    pub rows: u32,
    pub statistics: BlockStatistics,
}

/// What a footer says.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Footer {
    /// Where the footer before it begins; 0 if there is none.
    pub previous: u64,
    /// Leaves of which it has statistics.
    pub leaves: Vec<u32>,
    pub entries: Vec<Entry>,
}

impl Footer {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.previous.to_le_bytes());
        let count = u32::try_from(self.leaves.len()).unwrap_or_default();
        out.extend_from_slice(&count.to_le_bytes());
        for leaf in &self.leaves {
            out.extend_from_slice(&leaf.to_le_bytes());
        }
        for entry in &self.entries {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.bytes.to_le_bytes());
            out.extend_from_slice(&entry.rows.to_le_bytes());
            entry.statistics.write(out);
        }
    }

    /// The footer of `count` blocks.
    pub(crate) fn parse(mut bytes: &[u8], count: u32) -> Result<Self, Fault> {
        let bytes = &mut bytes;
        let previous = long_at(take(bytes, 8)?, 0);
        let columns = number_at(take(bytes, 4)?, 0);
        let leaves = take(bytes, (columns as usize).saturating_mul(4))?;
        let leaves: Vec<u32> = leaves.chunks_exact(4).map(|it| number_at(it, 0)).collect();
        // Each takes 16 bytes at least.
        if count as usize > bytes.len() / 16 {
            return Err(Fault::damaged(format!("{count} blocks do not fit in it")));
        }
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let entry = take(bytes, 16)?;
            entries.push(Entry {
                offset: long_at(entry, 0),
                bytes: number_at(entry, 8),
                rows: number_at(entry, 12),
                statistics: BlockStatistics::parse(bytes, leaves.len())?,
            });
        }
        if !bytes.is_empty() {
            return Err(Fault::damaged(format!("{} bytes too many", bytes.len())));
        }
        Ok(Self { previous, leaves, entries })
    }
}
