//! Cursor over the bytes of a block.

use crate::error::ValueFault;

/// Maximum memory of nulls in place of wide values in one batch.
const EXPANDED_BYTES_MAX: usize = 1 << 30;

/// A cursor that reads Avro's primitive values.
pub(crate) struct ValueCursor<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Memory of values that take no bytes in the file.
    expanded_bytes: usize,
}

const TRUNCATED_VALUE: ValueFault = "its block ends in the middle of it";

impl<'a> ValueCursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize, expanded: usize) -> Self {
        Self { bytes, position: at, expanded_bytes: expanded }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn expanded_bytes(&self) -> usize {
        self.expanded_bytes
    }

    pub(crate) fn remaining_bytes(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Counts the memory of a value that takes no bytes in the file.
    pub(crate) fn count_expanded(&mut self, bytes: usize) -> Result<(), ValueFault> {
        self.expanded_bytes = self.expanded_bytes.saturating_add(bytes);
        match self.expanded_bytes > EXPANDED_BYTES_MAX {
            true => Err("nulls that take more than 1 GiB of memory"),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], ValueFault> {
        let end = self.position.checked_add(count).ok_or(TRUNCATED_VALUE)?;
        let taken = self.bytes.get(self.position..end).ok_or(TRUNCATED_VALUE)?;
        self.position = end;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn take_array<const N: usize>(&mut self) -> Result<[u8; N], ValueFault> {
        let rest = self.bytes.get(self.position..).and_then(|rest| rest.first_chunk::<N>());
        let array = *rest.ok_or(TRUNCATED_VALUE)?;
        self.position += N;
        Ok(array)
    }

    /// Reads a variable-length integer without decoding its sign.
    #[inline]
    fn read_varint(&mut self) -> Result<u64, ValueFault> {
        let first = *self.bytes.get(self.position).ok_or(TRUNCATED_VALUE)?;
        if first < 0x80 {
            self.position += 1;
            return Ok(u64::from(first));
        }
        self.read_long_varint()
    }

    fn read_long_varint(&mut self) -> Result<u64, ValueFault> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = *self.bytes.get(self.position + index).ok_or(TRUNCATED_VALUE)?;
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.position += index + 1;
                return Ok(value);
            }
        }
        Err("an integer of more than 64 bits")
    }

    #[inline]
    pub(crate) fn read_long(&mut self) -> Result<i64, ValueFault> {
        let value = self.read_varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    #[inline]
    pub(crate) fn read_int(&mut self) -> Result<i32, ValueFault> {
        i32::try_from(self.read_long()?).map_err(|_| "an int of more than 32 bits")
    }

    /// Reads bytes after their length.
    #[inline]
    pub(crate) fn read_bytes(&mut self) -> Result<&'a [u8], ValueFault> {
        let length = usize::try_from(self.read_long()?).map_err(|_| "a length below zero")?;
        self.take_bytes(length)
    }

    #[inline]
    pub(crate) fn read_boolean(&mut self) -> Result<bool, ValueFault> {
        match self.take_array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a boolean that is neither 0 nor 1"),
        }
    }

    /// Reads the number of next items of an array or a map, and their length if it is
    /// stated; 0 items at the end. `item_bytes` is the minimum length of one item.
    pub(crate) fn read_item_count(
        &mut self,
        item_bytes: usize,
    ) -> Result<(usize, Option<usize>), ValueFault> {
        let count = self.read_long()?;
        let size = match count < 0 {
            true => Some(usize::try_from(self.read_long()?).map_err(|_| "a length below zero")?),
            false => None,
        };
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| TRUNCATED_VALUE)?;
        let most = match item_bytes {
            0 => ZERO_SIZE_ITEMS_MAX,
            bytes => self.remaining_bytes() / bytes,
        };
        match count > most {
            true => Err("more items than its block has bytes for"),
            false => Ok((count, size)),
        }
    }
}

/// Maximum number of items without bytes that an array may have in one group.
const ZERO_SIZE_ITEMS_MAX: usize = 1 << 20;
