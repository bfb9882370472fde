//! The bytes of a block, read value by value.

use crate::error::Fault;

/// Nulls of wide types may stand for so many bytes in one batch.
const EXPANDED_BYTES_MAX: usize = 1 << 30;

/// Reads Avro's primitive values.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of memory that values have taken which are not in the file.
    expanded: usize,
}

const SHORT: Fault = "its block ends in the middle of it";

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize, expanded: usize) -> Self {
        Self { bytes, at, expanded }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn expanded(&self) -> usize {
        self.expanded
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Notes that a value takes so many bytes of memory without being there.
    pub(crate) fn expand(&mut self, bytes: usize) -> Result<(), Fault> {
        self.expanded = self.expanded.saturating_add(bytes);
        match self.expanded > EXPANDED_BYTES_MAX {
            true => Err("nulls that take more than 1 GiB of memory"),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(count).ok_or(SHORT)?;
        let taken = self.bytes.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let rest = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let array = *rest.ok_or(SHORT)?;
        self.at += N;
        Ok(array)
    }

    /// A variable-length integer before its sign is unfolded.
    #[inline]
    fn varint(&mut self) -> Result<u64, Fault> {
        let first = *self.bytes.get(self.at).ok_or(SHORT)?;
        if first < 0x80 {
            self.at += 1;
            return Ok(u64::from(first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = *self.bytes.get(self.at + index).ok_or(SHORT)?;
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        Err("an integer of more than 64 bits")
    }

    #[inline]
    pub(crate) fn long(&mut self) -> Result<i64, Fault> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    #[inline]
    pub(crate) fn int(&mut self) -> Result<i32, Fault> {
        i32::try_from(self.long()?).map_err(|_| "an int of more than 32 bits")
    }

    /// The bytes behind their length.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = usize::try_from(self.long()?).map_err(|_| "a length below zero")?;
        self.take(length)
    }

    #[inline]
    pub(crate) fn boolean(&mut self) -> Result<bool, Fault> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a boolean that is neither 0 nor 1"),
        }
    }

    /// How many items come next of an array or a map, and how many bytes they take if that is
    /// said; 0 items at its end. `item_bytes` is the least that one takes.
    pub(crate) fn items(&mut self, item_bytes: usize) -> Result<(usize, Option<usize>), Fault> {
        let count = self.long()?;
        let size = match count < 0 {
            true => Some(usize::try_from(self.long()?).map_err(|_| "a length below zero")?),
            false => None,
        };
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| SHORT)?;
        let most = match item_bytes {
            0 => ITEMS_WITHOUT_BYTES_MAX,
            bytes => self.left() / bytes,
        };
        match count > most {
            true => Err("more items than its block has bytes for"),
            false => Ok((count, size)),
        }
    }
}

/// Of items that take no bytes an array may have so many at once.
const ITEMS_WITHOUT_BYTES_MAX: usize = 1 << 20;
