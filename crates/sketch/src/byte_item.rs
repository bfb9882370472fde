//! Byte strings as entries of hash tables: short strings are stored inline, and comparisons of short strings
//! make no function call.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

/// Length of the longest item that is stored inline, in bytes.
const INLINE_BYTES_MAX: usize = 22;

/// A byte string of 24 bytes, plus heap memory if it is longer than [`INLINE_BYTES_MAX`].
#[derive(Clone, Debug)]
pub(crate) enum ByteItem {
    Inline { length: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Heap(Box<[u8]>),
}

impl ByteItem {
    pub(crate) fn new(item: &[u8]) -> Self {
        match u8::try_from(item.len()) {
            Ok(length) if item.len() <= INLINE_BYTES_MAX => {
                let mut bytes = [0; INLINE_BYTES_MAX];
                bytes[..item.len()].copy_from_slice(item);
                ByteItem::Inline { length, bytes }
            }
            _ => ByteItem::Heap(item.into()),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            ByteItem::Inline { length, bytes } => &bytes[..usize::from(*length)],
            ByteItem::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            ByteItem::Inline { .. } => 0,
            ByteItem::Heap(bytes) => bytes.len(),
        }
    }
}

/// An item to search for, with its first eight bytes (or fewer, padded with zeros) in one integer. Most
/// comparisons of short items end there, without a call to compare memory.
pub(crate) struct ItemProbe<'a> {
    item: &'a [u8],
    head: u64,
}

impl<'a> ItemProbe<'a> {
    #[inline]
    pub(crate) fn new(item: &'a [u8]) -> Self {
        let head = if let Some(first) = item.first_chunk() {
            u64::from_le_bytes(*first)
        } else if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
            // Two pieces of four bytes, which may overlap.
            u64::from(u32::from_le_bytes(*first))
                | u64::from(u32::from_le_bytes(*last)) << (8 * (item.len() - 4))
        } else {
            item.iter().rev().fold(0, |head, &byte| head << 8 | u64::from(byte))
        };
        ItemProbe { item, head }
    }

    #[inline]
    pub(crate) fn matches(&self, item: &ByteItem) -> bool {
        match item {
            ByteItem::Inline { length, bytes } => {
                let (head, tail) = bytes.split_at(8);
                usize::from(*length) == self.item.len()
                    && head == self.head.to_le_bytes()
                    && (self.item.len() <= 8
                        || tail.get(..self.item.len() - 8) == self.item.get(8..))
            }
            ByteItem::Heap(bytes) => **bytes == *self.item,
        }
    }
}

/// Returns the hash of an item for a hash table.
#[inline]
pub(crate) fn hash_item(hasher: &DefaultHashBuilder, item: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(item);
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_matches_only_its_item() {
        let text = b"abcdefghijklmnopqrstuvwxyz\0\0abcdefghijklmnopqrstuvwxyz";
        let items: Vec<&[u8]> = (0..text.len())
            .flat_map(|start| (start..=text.len()).map(move |end| &text[start..end]))
            .collect();
        for a in items.iter().filter(|item| item.len() < 30) {
            let item = ByteItem::new(a);
            assert_eq!(item.as_bytes(), *a);
            for b in &items {
                assert_eq!(ItemProbe::new(b).matches(&item), a == b, "{a:?} {b:?}");
            }
        }
    }
}
