//! The layout of a row: positions of its bits, slots and variable-length values.
//!
//! A [`RowStructure`] is compiled once from a schema. It numbers the parts of a row: *bits* (null flags and
//! booleans), *slots* of fixed width (numbers, lengths, counts) and the variable-length values
//! behind them. Structs dissolve in the record that contains them. The items of a list are rows of
//! their own structure, and a map is a list of pairs.
//!
//! ```text
//!   row      = ┌ bits ┬ slot ┬ slot ┬ … ┬ 1st variable field ┬ 2nd ┬ …
//!              └ fixed part, the same for every row of a block ┘
//!   variable = a string or binary value: its length, then its bytes
//!              a list: the rows of its items, one after another; their number is in a slot
//! ```
//!
//! The length of a string stands before the string and not with the slots, because compressors then find
//! both together: events took 3 % more with separate lengths.
//!
//! A [`BlockLayout`] gives the width of each slot in one block. An integer is stored as the difference from
//! the block's smallest value, in as many bytes as the block's largest difference needs, possibly none. The
//! same holds for lengths, with null as length 0. A bit that is equal in all rows of a block takes no space
//! either. Reading a value is then one unaligned load of 8 bytes, a mask and an addition, for any width, and
//! rows are no longer than in a format with variable-length integers. (Frame of reference: Goldstein,
//! Ramakrishnan and Shaft, "Compressing relations and indexes", 1998.)

use crate::error::RowDecodeError;
use crate::schema::{FieldType, Schema, SchemaField, TemporalUnit};

/// Maximum size of a block before compression, and so of a row.
pub(crate) const BLOCK_BYTES_MAX: u64 = (1 << 31) - 1;

/// Maximum number of fields that share one byte of a row.
const FIELDS_PER_ROW_BYTE_MAX: usize = 16;

/// Number of readable bytes behind the rows of a block, so that one load can read any slot and any short
/// string.
pub(crate) const SLACK_BYTES: usize = 16;

/// The structure of a schema's rows, or of a list's items.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowStructure {
    /// Fields, each before the fields that it contains.
    pub leaves: Vec<LeafField>,
    /// Number of bits.
    pub bit_count: usize,
    /// Content of each slot.
    pub slots: Vec<SlotKind>,
    /// Structures of lists' items, in the order of the lists.
    pub children: Vec<RowStructure>,
}

/// A field of a row structure.
#[derive(Debug, Clone)]
pub(crate) struct LeafField {
    /// Path of the field, for messages.
    pub path: String,
    /// Bit that is set if the field is null, for a nullable field.
    pub null_bit: Option<usize>,
    /// Position of the field's value.
    pub kind: LeafKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    Null,
    Boolean { bit: usize },
    Integer { slot: usize },
    Wide { slot: usize },
    Float { slot: usize },
    Fixed { slot: usize },
    Bytes { slot: usize },
    List { count: usize, bytes: Option<usize>, child: usize },
    Struct,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// An integer of at most 64 bits.
    Integer { bytes: u8, signed: bool },
    /// A signed integer of 128 or 256 bits.
    Wide { bytes: u8 },
    /// A float.
    Float { bytes: u8 },
    /// A fixed number of bytes.
    Fixed { bytes: u32 },
    /// Number of bytes or items of a list.
    Length,
    /// Length of a string, stored directly before its bytes and not in the fixed part.
    Prefix,
}

impl RowStructure {
    pub(crate) fn new(schema: &Schema) -> Self {
        Self::from_fields(&schema.fields, "")
    }

    fn from_fields(fields: &[SchemaField], outer: &str) -> Self {
        let mut record = Self::default();
        record.add_fields(fields, outer);
        record
    }

    fn add_slot(&mut self, kind: SlotKind) -> usize {
        self.slots.push(kind);
        self.slots.len() - 1
    }

    fn add_fields(&mut self, fields: &[SchemaField], outer: &str) {
        for field in fields {
            let path = crate::schema::field_path(outer, &field.name);
            let null = (field.nullable && field.kind != FieldType::Null).then(|| {
                self.bit_count += 1;
                self.bit_count - 1
            });
            let leaf = self.leaves.len();
            let place = |kind| LeafField { path: path.clone(), null_bit: null, kind };
            self.leaves.push(place(LeafKind::Struct));
            let integer = |bytes, signed| SlotKind::Integer { bytes, signed };
            let kind = match &field.kind {
                FieldType::Null => LeafKind::Null,
                FieldType::Boolean => {
                    self.bit_count += 1;
                    LeafKind::Boolean { bit: self.bit_count - 1 }
                }
                FieldType::Int8 => LeafKind::Integer { slot: self.add_slot(integer(1, true)) },
                FieldType::Int16 => LeafKind::Integer { slot: self.add_slot(integer(2, true)) },
                FieldType::Uint8 => LeafKind::Integer { slot: self.add_slot(integer(1, false)) },
                FieldType::Uint16 => LeafKind::Integer { slot: self.add_slot(integer(2, false)) },
                FieldType::Uint32 | FieldType::Enum { .. } => {
                    LeafKind::Integer { slot: self.add_slot(integer(4, false)) }
                }
                FieldType::Uint64 => LeafKind::Integer { slot: self.add_slot(integer(8, false)) },
                FieldType::Int32
                | FieldType::Date
                | FieldType::Time(TemporalUnit::Second | TemporalUnit::Millisecond)
                | FieldType::Decimal { bits: 32, .. } => {
                    LeafKind::Integer { slot: self.add_slot(integer(4, true)) }
                }
                FieldType::Int64
                | FieldType::Date64
                | FieldType::Time(_)
                | FieldType::Timestamp { .. }
                | FieldType::Duration(_)
                | FieldType::Decimal { bits: 64, .. } => {
                    LeafKind::Integer { slot: self.add_slot(integer(8, true)) }
                }
                FieldType::Decimal { bits, .. } => {
                    let bytes = if *bits == 128 { 16 } else { 32 };
                    LeafKind::Wide { slot: self.add_slot(SlotKind::Wide { bytes }) }
                }
                FieldType::Float16 => {
                    LeafKind::Float { slot: self.add_slot(SlotKind::Float { bytes: 2 }) }
                }
                FieldType::Float32 => {
                    LeafKind::Float { slot: self.add_slot(SlotKind::Float { bytes: 4 }) }
                }
                FieldType::Float64 => {
                    LeafKind::Float { slot: self.add_slot(SlotKind::Float { bytes: 8 }) }
                }
                FieldType::Fixed(bytes) => {
                    LeafKind::Fixed { slot: self.add_slot(SlotKind::Fixed { bytes: *bytes }) }
                }
                FieldType::String | FieldType::Binary => {
                    LeafKind::Bytes { slot: self.add_slot(SlotKind::Prefix) }
                }
                FieldType::List(item) => self.add_list(std::slice::from_ref(item), &path),
                FieldType::Map { key, value, .. } => {
                    self.add_list(&[(**key).clone(), (**value).clone()], &path)
                }
                FieldType::Struct(fields) => {
                    self.add_fields(fields, &path);
                    LeafKind::Struct
                }
            };
            self.leaves[leaf] = place(kind);
        }
    }

    fn add_list(&mut self, items: &[SchemaField], path: &str) -> LeafKind {
        let record = Self::from_fields(items, path);
        let count = self.add_slot(SlotKind::Length);
        // Items of fixed size need no byte length: their count determines it.
        let bytes = record.is_variable().then(|| self.add_slot(SlotKind::Length));
        self.children.push(record);
        LeafKind::List { count, bytes, child: self.children.len() - 1 }
    }

    /// Returns true if rows may have different sizes.
    pub(crate) fn is_variable(&self) -> bool {
        self.leaves
            .iter()
            .any(|leaf| matches!(leaf.kind, LeafKind::Bytes { .. } | LeafKind::List { .. }))
    }

    /// Returns true if rows end with their only string and have no lists.
    pub(crate) fn has_only_one_string(&self) -> bool {
        let count = |is_it: fn(&LeafKind) -> bool| {
            self.leaves.iter().filter(|leaf| is_it(&leaf.kind)).count()
        };
        count(|kind| matches!(kind, LeafKind::Bytes { .. })) == 1
            && count(|kind| matches!(kind, LeafKind::List { .. })) == 0
    }
}

/// The layout that all rows of one block share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    pub bits: Vec<BitLayout>,
    pub slots: Vec<SlotLayout>,
    pub children: Vec<BlockLayout>,
    /// Size of the fixed part in bytes; at least one for every [`FIELDS_PER_ROW_BYTE_MAX`] fields, so that
    /// decoded data is never more than a fixed multiple of the input.
    pub fixed_bytes: usize,
}

/// The position of a bit in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitLayout {
    /// Equal in every row of the block, and not stored.
    Constant(bool),
    /// Stored in each row: in this byte, under this mask.
    Stored { byte: u32, mask: u8 },
}

/// The position and encoding of a slot in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SlotLayout {
    /// Offset in the row; meaningless for a prefix.
    pub offset: u32,
    /// Width in bytes.
    pub width: u32,
    /// Value that is added to the stored integer.
    pub base: u64,
    /// Bits of an 8-byte load that belong to the slot.
    pub mask: u64,
}

/// The parameters that determine a block's layout: the states of each bit, and base and width of each slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayoutParams {
    /// For each bit: true if it is 0 anywhere, and true if it is 1 anywhere.
    pub bits: Vec<(bool, bool)>,
    /// For each slot: its base and width.
    pub slots: Vec<(u64, u32)>,
    pub children: Vec<LayoutParams>,
}

/// Returns the number of bytes that an unsigned integer needs.
pub(crate) fn byte_width(value: u64) -> u32 {
    8 - value.leading_zeros() / 8
}

impl BlockLayout {
    /// Creates the layout of a block with the given parameters.
    ///
    /// # Errors
    /// If the fixed part would exceed a block; returns its size.
    pub(crate) fn new(record: &RowStructure, extent: &LayoutParams) -> Result<Self, u64> {
        let mut count = 0_u32;
        let bits: Vec<BitLayout> = (extent.bits.iter())
            .map(|(zero, one)| match (zero, one) {
                (_, false) => BitLayout::Constant(false),
                (false, true) => BitLayout::Constant(true),
                (true, true) => {
                    count += 1;
                    BitLayout::Stored { byte: (count - 1) / 8, mask: 1 << ((count - 1) % 8) }
                }
            })
            .collect();
        let mut at = u64::from(count.div_ceil(8));
        let mut slots = Vec::with_capacity(record.slots.len());
        for (&(base, width), kind) in extent.slots.iter().zip(&record.slots) {
            let mask = match width {
                0 => 0,
                1..8 => (1 << (8 * width)) - 1,
                _ => u64::MAX,
            };
            slots.push(SlotLayout {
                offset: u32::try_from(at).map_err(|_| at)?,
                width,
                base,
                mask,
            });
            if *kind != SlotKind::Prefix {
                at += u64::from(width);
            }
        }
        let fixed = at.max(record.leaves.len().div_ceil(FIELDS_PER_ROW_BYTE_MAX).max(1) as u64);
        if fixed > BLOCK_BYTES_MAX {
            return Err(fixed);
        }
        let children = record.children.iter().zip(&extent.children);
        let children = children.map(|(record, extent)| Self::new(record, extent));
        let fixed = usize::try_from(fixed).map_err(|_| fixed)?;
        Ok(Self { bits, slots, children: children.collect::<Result<_, _>>()?, fixed_bytes: fixed })
    }

    /// Creates the plain layout of a row that is encoded by itself, with lengths of `lengths` bytes. It omits
    /// nothing.
    pub(crate) fn new_plain(record: &RowStructure, lengths: u32) -> Result<Self, u64> {
        Self::new(record, &LayoutParams::new_plain(record, lengths))
    }

    /// Appends the encoded layout.
    pub(crate) fn write(&self, record: &RowStructure, out: &mut Vec<u8>) {
        for bit in &self.bits {
            out.push(match bit {
                BitLayout::Constant(value) => u8::from(*value),
                BitLayout::Stored { .. } => 2,
            });
        }
        for (slot, kind) in self.slots.iter().zip(&record.slots) {
            if !matches!(kind, SlotKind::Fixed { .. }) {
                out.extend_from_slice(&slot.width.to_le_bytes()[..1]);
                out.extend_from_slice(&slot.base.to_le_bytes());
            }
        }
        for (layout, record) in self.children.iter().zip(&record.children) {
            layout.write(record, out);
        }
    }

    /// Reads a layout from the beginning of `bytes` and advances past it.
    pub(crate) fn read(record: &RowStructure, bytes: &mut &[u8]) -> Result<Self, RowDecodeError> {
        let extent = LayoutParams::read(record, bytes)?;
        Self::new(record, &extent).map_err(|_| RowDecodeError::from_damage("its rows are too wide"))
    }
}

impl LayoutParams {
    /// Returns the parameters of a block without rows.
    pub(crate) fn empty(record: &RowStructure) -> Self {
        Self {
            bits: vec![(false, false); record.bit_count],
            slots: vec![(0, 0); record.slots.len()],
            children: record.children.iter().map(Self::empty).collect(),
        }
    }

    fn new_plain(record: &RowStructure, lengths: u32) -> Self {
        let slot = |kind: &SlotKind| match *kind {
            SlotKind::Integer { bytes, signed: true } => {
                (i64::MIN.wrapping_shr(64 - 8 * u32::from(bytes)).cast_unsigned(), u32::from(bytes))
            }
            SlotKind::Integer { bytes, .. }
            | SlotKind::Wide { bytes }
            | SlotKind::Float { bytes } => (0, u32::from(bytes)),
            SlotKind::Fixed { bytes } => (0, bytes),
            SlotKind::Length | SlotKind::Prefix => (0, lengths),
        };
        Self {
            bits: vec![(true, true); record.bit_count],
            slots: record.slots.iter().map(slot).collect(),
            children: record.children.iter().map(|child| Self::new_plain(child, lengths)).collect(),
        }
    }

    fn read(record: &RowStructure, bytes: &mut &[u8]) -> Result<Self, RowDecodeError> {
        let mut take = |count: usize| {
            let (head, rest) = bytes
                .split_at_checked(count)
                .ok_or_else(|| RowDecodeError::from_damage("it ends within its layout"))?;
            *bytes = rest;
            Ok::<_, RowDecodeError>(head)
        };
        let bits = take(record.bit_count)?.iter().map(|state| match state {
            0 => Ok((true, false)),
            1 => Ok((false, true)),
            2 => Ok((true, true)),
            other => Err(RowDecodeError::from_damage(format!("{other} is no state of a bit"))),
        });
        let bits = bits.collect::<Result<_, _>>()?;
        let mut slots = Vec::with_capacity(record.slots.len());
        for kind in &record.slots {
            if let SlotKind::Fixed { bytes } = kind {
                slots.push((0, *bytes));
                continue;
            }
            let [width, base @ ..] = take(9)? else {
                return Err(RowDecodeError::from_damage("it ends within its layout"));
            };
            let width = u32::from(*width);
            let base = base.first_chunk().map_or(0, |base| u64::from_le_bytes(*base));
            let is_known = match kind {
                SlotKind::Integer { .. } => width <= 8,
                SlotKind::Wide { bytes } => width <= 8 || width == u32::from(*bytes) && base == 0,
                SlotKind::Float { bytes } => width == 0 || width == u32::from(*bytes) && base == 0,
                SlotKind::Length | SlotKind::Prefix => width <= 4 && base <= BLOCK_BYTES_MAX,
                SlotKind::Fixed { .. } => true,
            };
            if !is_known {
                return Err(RowDecodeError::from_damage(format!(
                    "a slot of {width} bytes from {base} on"
                )));
            }
            slots.push((base, width));
        }
        let children = record
            .children
            .iter()
            .map(|record| Self::read(record, bytes))
            .collect::<Result<_, _>>()?;
        Ok(Self { bits, slots, children })
    }
}
