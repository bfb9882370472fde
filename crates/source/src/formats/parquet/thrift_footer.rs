//! A cursor over footers in Thrift's compact protocol.
//!
//! It finds what the `parquet` crate skips (encryption), removes or replaces what the crate fails on, and checks the
//! number of row groups before the crate allocates memory for them.
//!
//! ```text
//!   field:    id delta (4 bits) ‖ kind (4 bits); a delta of 0 is followed by the id as a zigzag varint
//!   list:     size (4 bits) ‖ kind (4 bits); a size of 15 is followed by the size as a varint
//!   struct:   fields ‖ 00
//! ```

const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
/// Maximum nesting, so that a damaged footer cannot overflow the stack.
const NESTING_DEPTH_MAX: usize = 64;

/// A column order that no version of the format has, in place of an empty union: field 15, an empty struct.
const UNKNOWN_COLUMN_ORDER: [u8; 3] = [15 << 4 | STRUCT, STOP, STOP];

/// Size of the nonce and the tag behind a signed footer.
const SIGNATURE_BYTES: usize = 28;

/// Field ids of `parquet.thrift`.
mod ids {
    pub(super) const FILE_SCHEMA: i16 = 2;
    pub(super) const FILE_ROW_GROUPS: i16 = 4;
    pub(super) const FILE_KEY_VALUES: i16 = 5;
    pub(super) const FILE_COLUMN_ORDERS: i16 = 7;
    pub(super) const FILE_ENCRYPTION_ALGORITHM: i16 = 8;
    pub(super) const GROUP_COLUMNS: i16 = 1;
    pub(super) const COLUMN_METADATA: i16 = 3;
    pub(super) const COLUMN_CRYPTO_METADATA: i16 = 8;
    /// The first optional field of column metadata that reading does not need.
    pub(super) const METADATA_BLOOM_FILTER_OFFSET: i16 = 14;
}

/// The id and the kind of a field.
#[derive(Clone, Copy)]
struct FieldHead {
    id: i16,
    kind: u8,
}

/// A read position in a footer. All methods return `None` for a truncated or malformed value.
struct ThriftCursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> ThriftCursor<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn read_byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn skip_bytes(&mut self, count: usize) -> Option<()> {
        let end = self.position.checked_add(count)?;
        self.position = (end <= self.bytes.len()).then_some(end)?;
        Some(())
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads the head of the field after the field `last`; `Some(None)` is the end of the struct.
    fn read_field_head(&mut self, last: i16) -> Option<Option<FieldHead>> {
        let head = self.read_byte()?;
        let kind = head & 0x0f;
        if kind == STOP {
            return Some(None);
        }
        let id = match i16::from(head >> 4) {
            0 => {
                let zigzag = self.read_varint()?;
                let id = (zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed());
                i16::try_from(id).ok()?
            }
            delta => last.checked_add(delta)?,
        };
        Some(Some(FieldHead { id, kind }))
    }

    /// Walks a struct. `visit` either consumes the value and returns true, or returns false to skip it.
    fn walk_struct(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, FieldHead) -> Option<bool>,
    ) -> Option<()> {
        let mut last = 0;
        while let Some(head) = self.read_field_head(last)? {
            if !visit(self, head)? {
                self.skip_value(head.kind, NESTING_DEPTH_MAX)?;
            }
            last = head.id;
        }
        Some(())
    }

    /// Reads the size of a list and the kind of its items.
    fn read_list_head(&mut self) -> Option<(usize, u8)> {
        let head = self.read_byte()?;
        let size = match head >> 4 {
            15 => usize::try_from(self.read_varint()?).ok()?,
            size => usize::from(size),
        };
        Some((size, head & 0x0f))
    }

    /// Walks a list of structs.
    fn walk_structs(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, usize) -> Option<()>,
    ) -> Option<()> {
        let (size, kind) = self.read_list_head()?;
        (0..size).try_for_each(|index| match kind {
            STRUCT => visit(self, index),
            _ => self.skip_item(kind, NESTING_DEPTH_MAX),
        })
    }

    /// Walks the column chunks of all row groups; `visit` gets the index of each in its row group.
    fn walk_column_chunks(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, usize) -> Option<()>,
    ) -> Option<()> {
        self.walk_structs(&mut |walk, _| {
            walk.walk_struct(&mut |walk, head| match (head.id, head.kind) {
                (ids::GROUP_COLUMNS, LIST) => walk.walk_structs(visit).map(|()| true),
                _ => Some(false),
            })
        })
    }

    fn skip_value(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // The head of a field holds its boolean value.
            TRUE | FALSE => Some(()),
            BYTE => self.skip_bytes(1),
            I16..=I64 => self.read_varint().map(|_| ()),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = usize::try_from(self.read_varint()?).ok()?;
                self.skip_bytes(length)
            }
            LIST | SET => {
                let (size, kind) = self.read_list_head()?;
                (0..size).try_for_each(|_| self.skip_item(kind, depth))
            }
            MAP => {
                let size = self.read_varint()?;
                let kinds = if size > 0 { self.read_byte()? } else { 0 };
                (0..size).try_for_each(|_| {
                    self.skip_item(kinds >> 4, depth)?;
                    self.skip_item(kinds & 0x0f, depth)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some(head) = self.read_field_head(last)? {
                    self.skip_value(head.kind, depth)?;
                    last = head.id;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Skips an item of a list or a map, in which a boolean takes a byte.
    fn skip_item(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => self.skip_bytes(1),
            other => self.skip_value(other, depth),
        }
    }
}

/// Returns whether a footer claims more row groups than it has bytes. The `parquet` crate allocates memory for the
/// claimed number.
pub(super) fn has_too_many_row_groups(footer: &[u8]) -> bool {
    let mut has_too_many = false;
    // The walk ends at the row groups.
    let _ = ThriftCursor::new(footer).walk_struct(&mut |walk, head| match (head.id, head.kind) {
        (ids::FILE_ROW_GROUPS, LIST) => {
            let (size, _) = walk.read_list_head()?;
            has_too_many = size > walk.bytes.len() - walk.position;
            None
        }
        _ => Some(false),
    });
    has_too_many
}

/// Returns the indices of the encrypted columns of a plaintext footer, or `None` if the footer is not that of an
/// encrypted file: such a footer is signed.
pub(super) fn find_encrypted_columns(footer: &[u8]) -> Option<Vec<usize>> {
    let (mut is_encrypted, mut columns) = (false, Vec::new());
    let mut walk = ThriftCursor::new(footer);
    walk.walk_struct(&mut |walk, head| {
        match (head.id, head.kind) {
            (ids::FILE_ENCRYPTION_ALGORITHM, STRUCT) => is_encrypted = true,
            (ids::FILE_ROW_GROUPS, LIST) => {
                walk.walk_column_chunks(&mut |walk, place| {
                    walk.walk_struct(&mut |_, head| {
                        if head.id == ids::COLUMN_CRYPTO_METADATA {
                            columns.push(place);
                        }
                        Some(false)
                    })
                })?;
                return Some(true);
            }
            _ => {}
        }
        Some(false)
    })?;
    columns.sort_unstable();
    columns.dedup();
    (is_encrypted && footer.len() - walk.position == SIGNATURE_BYTES).then_some(columns)
}

/// Returns a footer without the parts that the `parquet` crate fails on, or `None` if it has none of them or is
/// malformed:
///
/// - optional trailing fields of column metadata, whose ids some programs used for their own data;
/// - empty lists whose items have no kind, as some programs write them;
/// - column orders that are empty unions: they become unknown ones, with which no bounds of the column are used.
pub(super) fn repair_footer(footer: &[u8]) -> Option<Vec<u8>> {
    let mut repaired = Vec::with_capacity(footer.len());
    let mut from = 0;
    ThriftCursor::new(footer).walk_struct(&mut |walk, head| {
        let has_structs = matches!(
            head.id,
            ids::FILE_SCHEMA
                | ids::FILE_ROW_GROUPS
                | ids::FILE_KEY_VALUES
                | ids::FILE_COLUMN_ORDERS
        );
        if has_structs && head.kind == LIST && footer.get(walk.position) == Some(&0) {
            repaired.extend_from_slice(footer.get(from..walk.position)?);
            repaired.push(STRUCT);
            from = walk.position + 1;
        }
        if (head.id, head.kind) == (ids::FILE_COLUMN_ORDERS, LIST) {
            walk.walk_structs(&mut |walk, _| {
                let start = walk.position;
                walk.skip_value(STRUCT, NESTING_DEPTH_MAX)?;
                if walk.position == start + 1 {
                    repaired.extend_from_slice(footer.get(from..start)?);
                    repaired.extend(UNKNOWN_COLUMN_ORDER);
                    from = walk.position;
                }
                Some(())
            })?;
            return Some(true);
        }
        if (head.id, head.kind) != (ids::FILE_ROW_GROUPS, LIST) {
            return Some(false);
        }
        walk.walk_column_chunks(&mut |walk, _| {
            walk.walk_struct(&mut |walk, head| {
                if (head.id, head.kind) != (ids::COLUMN_METADATA, STRUCT) {
                    return Some(false);
                }
                if let Some((start, end)) = find_trailing_fields(walk)? {
                    repaired.extend_from_slice(footer.get(from..start)?);
                    from = end;
                }
                Some(true)
            })
        })?;
        Some(true)
    })?;
    repaired.extend_from_slice(footer.get(from..)?);
    (repaired != footer).then_some(repaired)
}

/// Walks the metadata of a column; returns the byte range of its trailing optional fields, if it has any and no
/// other field follows them.
fn find_trailing_fields(walk: &mut ThriftCursor<'_>) -> Option<Option<(usize, usize)>> {
    let (mut last, mut first) = (0, None);
    loop {
        let start = walk.position;
        let Some(head) = walk.read_field_head(last)? else {
            return Some(first.map(|first| (first, start)));
        };
        match (head.id >= ids::METADATA_BLOOM_FILTER_OFFSET, first) {
            (true, None) => first = Some(start),
            (false, Some(_)) => first = None,
            _ => {}
        }
        walk.skip_value(head.kind, NESTING_DEPTH_MAX)?;
        last = head.id;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The head of a field.
    fn head(delta: u8, kind: u8) -> u8 {
        delta << 4 | kind
    }

    fn list(kind: u8, items: &[Vec<u8>]) -> Vec<u8> {
        [vec![u8::try_from(items.len()).unwrap() << 4 | kind], items.concat()].concat()
    }

    /// A column chunk whose metadata ends with the fields `later`.
    fn chunk(later: &[u8], is_encrypted: bool) -> Vec<u8> {
        let mut chunk = vec![head(2, I64), 8, head(1, STRUCT)];
        // A type, a list of encodings and a data page offset.
        chunk.extend([head(1, 5), 2, head(1, LIST), 0x25, 0, 6, head(7, I64), 9]);
        chunk.extend(later);
        chunk.push(STOP);
        if is_encrypted {
            chunk.extend([head(5, STRUCT), head(1, STRUCT), STOP, STOP]);
        }
        chunk.push(STOP);
        chunk
    }

    /// A footer with one row group, signed if it is that of an encrypted file.
    fn footer(chunks: &[Vec<u8>], is_encrypted: bool) -> Vec<u8> {
        let mut footer = vec![head(1, 5), 2, head(1, LIST), 0x1c, head(4, BINARY), 1, b'm', STOP];
        footer.extend([head(1, I64), 12, head(1, LIST), 0x1c, head(1, LIST)]);
        footer.extend(list(STRUCT, chunks));
        footer.extend([head(1, I64), 2, STOP]);
        footer.extend([head(2, BINARY), 2, b'b', b'y']);
        if is_encrypted {
            footer.extend([head(2, STRUCT), head(1, STRUCT), STOP, STOP]);
        }
        footer.push(STOP);
        footer.extend([7; SIGNATURE_BYTES].iter().filter(|_| is_encrypted));
        footer
    }

    #[test]
    fn encrypted_columns_are_found() {
        let (plain, secret) = (chunk(&[], false), chunk(&[], true));
        for (chunks, is_encrypted, expected) in [
            (vec![plain.clone()], false, None),
            (vec![plain.clone()], true, Some(vec![])),
            (vec![plain.clone(), secret.clone()], false, None),
            (vec![plain.clone(), secret.clone()], true, Some(vec![1])),
            (vec![secret.clone(), plain, secret], true, Some(vec![0, 2])),
        ] {
            assert_eq!(find_encrypted_columns(&footer(&chunks, is_encrypted)), expected);
        }
    }

    #[test]
    fn only_trailing_optional_fields_are_removed() {
        // Ids 15 and 16: a list of structs, and a double.
        let later =
            [head(6, LIST), 0x1c, head(1, 5), 2, STOP, head(1, DOUBLE), 1, 2, 3, 4, 5, 6, 7, 8];
        let with = [chunk(&later, true), chunk(&[], false), chunk(&later, false)];
        let without = [chunk(&[], true), chunk(&[], false), chunk(&[], false)];
        assert_eq!(repair_footer(&footer(&with, true)), Some(footer(&without, true)));
        assert_eq!(repair_footer(&footer(&without, true)), None);
        // A field that follows them would get another id.
        let behind = [&later[..], &[head(0, I64), 4, 3]].concat();
        assert_eq!(repair_footer(&footer(&[chunk(&behind, false)], false)), None);
    }

    #[test]
    fn empty_lists_get_a_kind() {
        let whole = footer(&[], false);
        // The list of row groups, and a list of key-value pairs.
        let groups = [0x16, 12, head(1, LIST)];
        let start = whole.windows(3).position(|bytes| bytes == groups).unwrap() + 3;
        let with = |kind: u8| [&whole[..start], &[kind, head(1, LIST), kind, STOP]].concat();
        assert_eq!(repair_footer(&with(0)), Some(with(STRUCT)));
        assert_eq!(repair_footer(&with(STRUCT)), None);
    }

    #[test]
    fn empty_column_orders_become_unknown_ones() {
        let whole = footer(&[chunk(&[], false)], true);
        let created_by = [head(2, BINARY), 2, b'b', b'y'];
        let end = whole.windows(4).position(|bytes| bytes == created_by).unwrap() + 4;
        // Behind the orders comes the encryption algorithm, whose id counts on from theirs.
        let with = |orders: &[Vec<u8>]| {
            let behind = [&[head(1, STRUCT)][..], &whole[end + 1..]].concat();
            [&whole[..end], &[head(1, LIST)], &list(STRUCT, orders), &behind].concat()
        };
        let (own, empty) = (vec![head(1, STRUCT), STOP, STOP], vec![STOP]);
        let unknown = UNKNOWN_COLUMN_ORDER.to_vec();
        let found = repair_footer(&with(&[own.clone(), empty.clone(), own.clone(), empty]));
        assert_eq!(found, Some(with(&[own.clone(), unknown.clone(), own.clone(), unknown])));
        assert_eq!(repair_footer(&with(&[own.clone(), own])), None);
    }

    #[test]
    fn row_group_count_is_checked_against_the_footer_size() {
        let mut few = footer(&[chunk(&[], false)], false);
        assert!(!has_too_many_row_groups(&few));
        let place = few.windows(2).position(|bytes| bytes == [head(1, LIST), 0x1c]).unwrap();
        let place =
            place + few[place + 1..].windows(2).position(|it| it == [head(1, LIST), 0x1c]).unwrap();
        // The size as a varint of four bytes.
        few.splice(place + 2..place + 3, [0xfc, 0xff, 0xff, 0xff, 0x07]);
        assert!(has_too_many_row_groups(&few));
    }

    proptest! {
        #[test]
        fn walker_terminates_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = find_encrypted_columns(&bytes);
            let _ = has_too_many_row_groups(&bytes);
            if let Some(repaired) = repair_footer(&bytes) {
                prop_assert!(repaired.len() <= UNKNOWN_COLUMN_ORDER.len() * bytes.len());
            }
        }

        #[test]
        fn truncated_footer_yields_nothing(end in 0usize..90, byte in any::<u8>(), at in 0usize..90) {
            let whole = footer(&[chunk(&[], true), chunk(&[], false)], true);
            let mut cut = whole[..end.min(whole.len() - 1)].to_vec();
            prop_assert_eq!(find_encrypted_columns(&cut), None);
            if let Some(changed) = cut.get_mut(at) {
                *changed = byte;
            }
            let _ = find_encrypted_columns(&cut);
            let _ = repair_footer(&cut);
        }
    }
}
