//! Decoding of rows into Arrow arrays by a prepared plan.
//!
//! ```text
//!   rows ── walk ──► starts of rows, spans of the requested strings and lists     (1st pass)
//!        ── gather ► one array per requested field                               (2nd pass)
//! ```
//!
//! The walk reads nothing but lengths. A field that is not requested costs the addition of its length, and
//! nothing if it has a slot. Gathering goes field by field, with loops specialized to the type. Text is
//! validated as UTF-8 all at once when it is contiguous in its array, not string by string.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
    Float64Type, Int32Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt32Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, GenericByteArray,
    GenericByteViewArray, GenericListArray, MapArray, NullArray, OffsetSizeTrait, PrimitiveArray,
    StructArray,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer, i256,
};
use arrow_schema::{DataType, FieldRef, TimeUnit};

use crate::error::RowDecodeError;
use crate::row_encoder::SHORT_COPY_BYTES;
use crate::row_layout::{BitLayout, BlockLayout, LeafKind, RowStructure, SlotLayout};
use crate::scalar_arrays::with_integer_type;

/// The plan that decodes the rows of a record.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordDecodePlan {
    pub output_fields: Vec<OutputField>,
    /// For each leaf: the index of its spans among those that the walk records, if it has variable length and
    /// is requested.
    pub span_indexes: Vec<Option<usize>>,
    /// Number of requested leaves of variable length.
    pub span_count: usize,
}

impl RecordDecodePlan {
    pub(crate) fn new(record: &RowStructure) -> Self {
        Self {
            output_fields: Vec::new(),
            span_indexes: vec![None; record.leaves.len()],
            span_count: 0,
        }
    }

    /// Requests that the walk records the spans of a leaf. Returns their index.
    pub(crate) fn request_spans(&mut self, leaf: usize) -> usize {
        let next = self.span_count;
        match self.span_indexes.get_mut(leaf) {
            Some(Some(want)) => *want,
            Some(none) => {
                *none = Some(next);
                self.span_count += 1;
                next
            }
            None => next,
        }
    }
}

/// An output field of a decode.
#[derive(Debug, Clone)]
pub(crate) struct OutputField {
    pub field: FieldRef,
    /// Path of the field, for messages.
    pub path: String,
    /// The field is null in rows where one of these bits is set.
    pub null_bits: Vec<usize>,
    pub source: FieldValueSource,
}

/// The source of a field's values in the rows.
#[derive(Debug, Clone)]
pub(crate) enum FieldValueSource {
    Null,
    /// The same value in every row.
    Constant(ArrayRef),
    Boolean {
        bit: usize,
    },
    /// An integer, optionally multiplied by a factor, converted to the field's type.
    Integer {
        slot: usize,
        signed: bool,
        factor: i64,
    },
    Wide {
        slot: usize,
    },
    Float {
        slot: usize,
        bytes: u8,
    },
    Fixed {
        slot: usize,
    },
    Bytes {
        span_index: usize,
    },
    Enum {
        slot: usize,
        /// The reader's key for each of the writer's symbols.
        reader_keys: Vec<Option<i32>>,
        /// The writer's symbols, for messages.
        writer_symbols: Vec<String>,
        symbols: ArrayRef,
    },
    List {
        span_index: usize,
        count: usize,
        child: usize,
        items: RecordDecodePlan,
    },
    Struct(Vec<OutputField>),
}

/// Reads 8 bytes; 0 if they do not exist, which callers have ruled out.
#[inline]
fn load_u64(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

#[inline]
fn load_u128(bytes: &[u8], at: usize) -> u128 {
    match bytes.get(at..).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => u128::from_le_bytes(*bytes),
        None => 0,
    }
}

impl SlotLayout {
    #[inline]
    fn read_integer(&self, bytes: &[u8], start: u32) -> u64 {
        self.base.wrapping_add(load_u64(bytes, start as usize + self.offset as usize) & self.mask)
    }
}

/// A walker over rows that reads their lengths, in the order of the values.
struct RowWalker {
    slots: Vec<LengthSlot>,
    fixed: u64,
}

struct LengthSlot {
    slot: SlotLayout,
    /// True if the slot directly precedes the value's bytes instead of lying in the fixed part.
    is_prefix: bool,
    /// Bytes per counted unit.
    item_bytes: u64,
    span_index: Option<usize>,
}

/// The starts of rows, and the spans of their requested variable-length values.
#[derive(Debug, Default)]
pub(crate) struct RowPositions {
    starts: Vec<u32>,
    /// For each requested leaf and each row: start and length of the value.
    spans: Vec<(u32, u32)>,
}

impl RowPositions {
    fn spans(&self, want: usize) -> &[(u32, u32)] {
        let rows = self.starts.len();
        self.spans.get(want * rows..(want + 1) * rows).unwrap_or_default()
    }
}

impl RowWalker {
    fn new(record: &RowStructure, layout: &BlockLayout, plan: &RecordDecodePlan) -> Self {
        let mut slots = Vec::new();
        for (leaf, want) in record.leaves.iter().zip(&plan.span_indexes) {
            let (slot, is_prefix, each) = match leaf.kind {
                LeafKind::Bytes { slot } => (slot, true, 1),
                LeafKind::List { bytes: Some(slot), .. } => (slot, false, 1),
                LeafKind::List { count, child, .. } => (
                    count,
                    false,
                    layout.children.get(child).map_or(1, |item| item.fixed_bytes as u64),
                ),
                _ => continue,
            };
            let slot = layout.slots.get(slot).copied().unwrap_or_default();
            slots.push(LengthSlot { slot, is_prefix, item_bytes: each, span_index: *want });
        }
        Self { slots, fixed: layout.fixed_bytes as u64 }
    }

    /// Walks over one row that begins at `start`, and returns its end.
    #[inline]
    fn walk_row(
        &self,
        bytes: &[u8],
        start: u64,
        end: u64,
        row: usize,
        rows: usize,
        spans: &mut [(u32, u32)],
    ) -> Result<u64, RowDecodeError> {
        let behind = || RowDecodeError::from_damage("a row goes on behind the end of its bytes");
        let mut at = start + self.fixed;
        if at > end {
            return Err(behind());
        }
        let first = u32::try_from(start).map_err(|_| behind())?;
        for LengthSlot { slot, is_prefix, item_bytes: each, span_index: want } in &self.slots {
            // At most 2^33 each: a sum of many does not overflow.
            let length = if *is_prefix {
                #[expect(clippy::cast_possible_truncation, reason = "at most `end`, a u32")]
                let number = load_u64(bytes, at as usize) & slot.mask;
                at += u64::from(slot.width);
                slot.base.wrapping_add(number)
            } else {
                slot.read_integer(bytes, first).wrapping_mul(*each)
            };
            if at + length > end {
                return Err(behind());
            }
            if let Some(want) = want
                && let Some(span) = spans.get_mut(want * rows + row)
            {
                #[expect(clippy::cast_possible_truncation, reason = "at most `end`, a u32")]
                let found = (at as u32, length as u32);
                *span = found;
            }
            at += length;
        }
        Ok(at)
    }
}

/// A decoder for the rows of a block, in batches.
pub(crate) struct BlockRowDecoder<'a> {
    pub record: &'a RowStructure,
    pub layout: &'a BlockLayout,
    /// The rows, followed by [`SLACK_BYTES`](crate::row_layout::SLACK_BYTES) bytes.
    pub bytes: &'a [u8],
    /// End of the rows in `bytes`.
    pub rows_end: usize,
}

impl BlockRowDecoder<'_> {
    /// Decodes `rows` consecutive rows that begin at `at`. Returns the arrays and the end of the rows.
    pub(crate) fn decode_next(
        &self,
        plan: &RecordDecodePlan,
        at: usize,
        rows: usize,
    ) -> Result<(Vec<ArrayRef>, usize), RowDecodeError> {
        let left = self.rows_end.saturating_sub(at);
        if rows.saturating_mul(self.layout.fixed_bytes) > left {
            return Err(RowDecodeError::from_damage(format!(
                "{rows} rows do not fit in {left} bytes"
            )));
        }
        let lengths = RowWalker::new(self.record, self.layout, plan);
        let mut places = RowPositions {
            starts: Vec::with_capacity(rows),
            spans: vec![(0, 0); plan.span_count * rows],
        };
        let (mut start, end) = (at as u64, self.rows_end as u64);
        for row in 0..rows {
            let next = lengths.walk_row(self.bytes, start, end, row, rows, &mut places.spans)?;
            #[expect(clippy::cast_possible_truncation, reason = "at most `end`, a u32")]
            places.starts.push(start as u32);
            start = next;
        }
        let end = usize::try_from(start).unwrap_or(self.rows_end);
        Ok((self.gather_fields(plan, &places, None)?, end))
    }

    /// Decodes rows at the given spans. Each row must fill its span.
    pub(crate) fn decode_at_spans(
        &self,
        plan: &RecordDecodePlan,
        spans: &[(u32, u32)],
    ) -> Result<Vec<ArrayRef>, RowDecodeError> {
        let lengths = RowWalker::new(self.record, self.layout, plan);
        let rows = spans.len();
        let mut places = RowPositions {
            starts: Vec::with_capacity(rows),
            spans: vec![(0, 0); plan.span_count * rows],
        };
        for (row, (start, length)) in spans.iter().enumerate() {
            let end = u64::from(*start) + u64::from(*length);
            let found =
                lengths.walk_row(self.bytes, (*start).into(), end, row, rows, &mut places.spans)?;
            if found != end {
                return Err(RowDecodeError::from_damage(format!(
                    "it has {} bytes too many",
                    end - found
                )));
            }
            places.starts.push(*start);
        }
        self.gather_fields(plan, &places, None)
    }

    /// Walks over the items of lists.
    fn walk_list_items(
        &self,
        plan: &RecordDecodePlan,
        spans: &[(u32, u32)],
        counts: impl Iterator<Item = u64>,
    ) -> Result<(RowPositions, Vec<u32>), RowDecodeError> {
        let wrong = || RowDecodeError::from_damage("a list whose items are not as long as it says");
        let lengths = RowWalker::new(self.record, self.layout, plan);
        let mut offsets = Vec::with_capacity(spans.len() + 1);
        let mut total = 0_u64;
        offsets.push(0);
        for ((_, length), count) in spans.iter().zip(counts) {
            // Every item takes at least `fixed` bytes, so the count is bounded by the bytes.
            if count.checked_mul(lengths.fixed).is_none_or(|bytes| bytes > u64::from(*length)) {
                return Err(wrong());
            }
            total += count;
            offsets.push(u32::try_from(total).map_err(|_| wrong())?);
        }
        let rows = usize::try_from(total).map_err(|_| wrong())?;
        let mut places = RowPositions {
            starts: Vec::with_capacity(rows),
            spans: vec![(0, 0); plan.span_count * rows],
        };
        for ((start, length), pair) in spans.iter().zip(offsets.windows(2)) {
            let &[from, to] = pair else { continue };
            let (mut at, end) = (u64::from(*start), u64::from(*start) + u64::from(*length));
            for item in from..to {
                #[expect(clippy::cast_possible_truncation, reason = "at most `end`, a u32")]
                places.starts.push(at as u32);
                at = lengths.walk_row(
                    self.bytes,
                    at,
                    end,
                    item as usize,
                    rows,
                    &mut places.spans,
                )?;
            }
            if at != end {
                return Err(wrong());
            }
        }
        Ok((places, offsets))
    }

    fn gather_fields(
        &self,
        plan: &RecordDecodePlan,
        places: &RowPositions,
        outer: Option<&NullBuffer>,
    ) -> Result<Vec<ArrayRef>, RowDecodeError> {
        plan.output_fields.iter().map(|out| self.decode_field(out, places, outer)).collect()
    }

    fn bit(&self, bit: usize) -> BitLayout {
        self.layout.bits.get(bit).copied().unwrap_or(BitLayout::Constant(false))
    }

    fn slot(&self, slot: usize) -> SlotLayout {
        self.layout.slots.get(slot).copied().unwrap_or_default()
    }

    /// Returns a bit of each row, or `None` if it is set nowhere.
    fn read_bits(&self, bit: usize, starts: &[u32]) -> Option<BooleanBuffer> {
        match self.bit(bit) {
            BitLayout::Constant(false) => None,
            BitLayout::Constant(true) => Some(BooleanBuffer::new_set(starts.len())),
            BitLayout::Stored { byte, mask } => {
                Some(BooleanBuffer::collect_bool(starts.len(), |row| {
                    let at = starts.get(row).map_or(usize::MAX, |start| (start + byte) as usize);
                    self.bytes.get(at).is_some_and(|bits| bits & mask != 0)
                }))
            }
        }
    }

    fn read_nulls(&self, bits: &[usize], starts: &[u32]) -> Option<NullBuffer> {
        let mut nulls: Option<NullBuffer> = None;
        for bit in bits {
            if let Some(set) = self.read_bits(*bit, starts) {
                nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(!&set)));
            }
        }
        nulls.filter(|nulls| nulls.null_count() > 0)
    }

    fn decode_field(
        &self,
        out: &OutputField,
        places: &RowPositions,
        outer: Option<&NullBuffer>,
    ) -> Result<ArrayRef, RowDecodeError> {
        let starts = places.starts.as_slice();
        let nulls = self.read_nulls(&out.null_bits, starts);
        if !out.field.is_nullable()
            && let Some(nulls) = &nulls
            && let Some(row) = (0..nulls.len())
                .find(|&row| nulls.is_null(row) && outer.is_none_or(|outer| outer.is_valid(row)))
        {
            return Err(RowDecodeError::InvalidValue {
                row,
                column: out.path.clone(),
                reason: "it is null, which the reader's schema does not allow".into(),
            });
        }
        // Under a null parent a required field may be null: it then has no null buffer of its own.
        let skipped = nulls.clone();
        let nulls = nulls.filter(|_| out.field.is_nullable());
        let data_type = out.field.data_type();
        match &out.source {
            FieldValueSource::Null => Ok(match data_type {
                DataType::Null => Arc::new(NullArray::new(starts.len())),
                data_type => arrow_array::new_null_array(data_type, starts.len()),
            }),
            FieldValueSource::Constant(value) => {
                let indices = PrimitiveArray::<UInt32Type>::from_value(0, starts.len());
                Ok(arrow_select::take::take(value, &indices, None)?)
            }
            FieldValueSource::Boolean { bit } => {
                let values = self.read_bits(*bit, starts);
                let values = values.unwrap_or_else(|| BooleanBuffer::new_unset(starts.len()));
                Ok(Arc::new(BooleanArray::new(values, nulls)))
            }
            FieldValueSource::Integer { slot, signed, factor: times } => self.decode_integers(
                out,
                self.slot(*slot),
                (*signed, *times),
                starts,
                skipped.as_ref(),
                nulls,
            ),
            FieldValueSource::Wide { slot } => {
                let slot = self.slot(*slot);
                match data_type {
                    DataType::Decimal128(..) => {
                        let values = collect_values(starts, |start| self.read_i128(slot, start));
                        primitive_array::<Decimal128Type>(values, nulls, data_type)
                    }
                    _ => {
                        let values = collect_values(starts, |start| match slot.width {
                            32 => {
                                let at = start as usize + slot.offset as usize;
                                i256::from_parts(
                                    load_u128(self.bytes, at),
                                    load_u128(self.bytes, at + 16).cast_signed(),
                                )
                            }
                            _ => i256::from_i128(self.read_i128(slot, start)),
                        });
                        primitive_array::<Decimal256Type>(values, nulls, data_type)
                    }
                }
            }
            FieldValueSource::Float { slot, bytes } => {
                self.decode_floats(self.slot(*slot), *bytes, starts, nulls, data_type)
            }
            FieldValueSource::Fixed { slot } => {
                let slot = self.slot(*slot);
                let size = slot.width as usize;
                let mut values = Vec::with_capacity(size * starts.len());
                for start in starts {
                    let at = start + slot.offset;
                    values.extend_from_slice(span_bytes(self.bytes, (at, slot.width)));
                }
                let size =
                    i32::try_from(size).map_err(|_| RowDecodeError::from_damage("a fixed size"))?;
                Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(
                    size,
                    values.into(),
                    nulls,
                    starts.len(),
                )?))
            }
            FieldValueSource::Bytes { span_index: want } => {
                self.decode_strings(out, places.spans(*want), nulls)
            }
            FieldValueSource::Enum { slot, reader_keys: keys, writer_symbols: names, symbols } => {
                let known = (keys.as_slice(), names.as_slice(), symbols);
                self.decode_enum(out, self.slot(*slot), known, starts, skipped.as_ref(), nulls)
            }
            FieldValueSource::List { span_index: want, count, child, items } => {
                let (Some(record), Some(layout)) =
                    (self.record.children.get(*child), self.layout.children.get(*child))
                else {
                    return Err(RowDecodeError::from_damage("a list without items"));
                };
                let inner =
                    BlockRowDecoder { record, layout, bytes: self.bytes, rows_end: self.rows_end };
                let slot = self.slot(*count);
                let counts = starts.iter().map(|start| slot.read_integer(self.bytes, *start));
                let (found, offsets) = inner.walk_list_items(items, places.spans(*want), counts)?;
                let arrays = inner.gather_fields(items, &found, None);
                // Report the row of the list, not of the item.
                let arrays = arrays.map_err(|fault| match fault {
                    RowDecodeError::InvalidValue { row, column, reason } => {
                        let row = offsets.partition_point(|offset| *offset as usize <= row);
                        RowDecodeError::InvalidValue { row: row.saturating_sub(1), column, reason }
                    }
                    other => other,
                })?;
                list_array(&out.field, &offsets, arrays, nulls)
            }
            FieldValueSource::Struct(fields) => {
                let all = NullBuffer::union(skipped.as_ref(), outer);
                let arrays: Result<Vec<_>, _> =
                    fields.iter().map(|out| self.decode_field(out, places, all.as_ref())).collect();
                let DataType::Struct(inner) = data_type else {
                    return Err(RowDecodeError::from_damage("a struct that is none"));
                };
                let array =
                    StructArray::try_new_with_length(inner.clone(), arrays?, nulls, starts.len())?;
                Ok(Arc::new(array))
            }
        }
    }

    /// Reads an integer of at most 128 bits.
    fn read_i128(&self, slot: SlotLayout, start: u32) -> i128 {
        if slot.width > 8 {
            load_u128(self.bytes, start as usize + slot.offset as usize).cast_signed()
        } else {
            i128::from(slot.read_integer(self.bytes, start).cast_signed())
        }
    }

    fn decode_integers(
        &self,
        out: &OutputField,
        slot: SlotLayout,
        (signed, times): (bool, i64),
        starts: &[u32],
        skipped: Option<&NullBuffer>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, RowDecodeError> {
        let data_type = out.field.data_type();
        if times != 1 {
            let mut values = Vec::with_capacity(starts.len());
            for (row, start) in starts.iter().enumerate() {
                let value = slot.read_integer(self.bytes, *start).cast_signed();
                let is_null = skipped.is_some_and(|nulls| nulls.is_null(row));
                match value.checked_mul(times) {
                    Some(value) => values.push(value),
                    None if is_null => values.push(0),
                    None => {
                        return Err(RowDecodeError::InvalidValue {
                            row,
                            column: out.path.clone(),
                            reason: format!("day {value} is beyond what {data_type} holds"),
                        });
                    }
                }
            }
            return match data_type {
                DataType::Date64 => primitive_array::<Date64Type>(values.into(), nulls, data_type),
                DataType::Timestamp(TimeUnit::Second, _) => {
                    primitive_array::<TimestampSecondType>(values.into(), nulls, data_type)
                }
                DataType::Timestamp(TimeUnit::Millisecond, _) => {
                    primitive_array::<TimestampMillisecondType>(values.into(), nulls, data_type)
                }
                DataType::Timestamp(TimeUnit::Microsecond, _) => {
                    primitive_array::<TimestampMicrosecondType>(values.into(), nulls, data_type)
                }
                _ => primitive_array::<TimestampNanosecondType>(values.into(), nulls, data_type),
            };
        }
        /// Converts to an Arrow type that is known to hold the values.
        macro_rules! as_type {
            ($arrow:ty) => {{
                #[expect(
                    clippy::allow_attributes,
                    reason = "which of the casts lose depends on the type"
                )]
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_possible_wrap,
                    clippy::cast_lossless,
                    reason = "the schema says that it fits"
                )]
                let values = collect_integers(self.bytes, slot, starts, |value| {
                    value as <$arrow as ArrowPrimitiveType>::Native
                });
                primitive_array::<$arrow>(values, nulls, data_type)
            }};
        }
        with_integer_type!(data_type, Arrow => return as_type!(Arrow), _ => {});
        match data_type {
            DataType::Decimal128(..) => {
                let values = collect_integers(self.bytes, slot, starts, |value| {
                    i128::from(value.cast_signed())
                });
                primitive_array::<Decimal128Type>(values, nulls, data_type)
            }
            DataType::Decimal256(..) => {
                let values = collect_values(starts, |start| {
                    i256::from_i128(slot.read_integer(self.bytes, start).cast_signed().into())
                });
                primitive_array::<Decimal256Type>(values, nulls, data_type)
            }
            DataType::Float32 => {
                let values = collect_integers(self.bytes, slot, starts, |value| {
                    if signed { value.cast_signed() as f32 } else { value as f32 }
                });
                primitive_array::<Float32Type>(values, nulls, data_type)
            }
            DataType::Float64 => {
                let values = collect_integers(self.bytes, slot, starts, |value| {
                    if signed { value.cast_signed() as f64 } else { value as f64 }
                });
                primitive_array::<Float64Type>(values, nulls, data_type)
            }
            other => Err(RowDecodeError::from_damage(format!("an integer is not {other}"))),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a slot of as many bytes")]
    fn decode_floats(
        &self,
        slot: SlotLayout,
        bytes: u8,
        starts: &[u32],
        nulls: Option<NullBuffer>,
        data_type: &DataType,
    ) -> Result<ArrayRef, RowDecodeError> {
        match (bytes, data_type) {
            (2, DataType::Float16) => {
                type Half = <Float16Type as ArrowPrimitiveType>::Native;
                let values =
                    collect_integers(self.bytes, slot, starts, |bits| Half::from_bits(bits as u16));
                primitive_array::<Float16Type>(values, nulls, data_type)
            }
            (2, DataType::Float32) => {
                type Half = <Float16Type as ArrowPrimitiveType>::Native;
                let values = collect_integers(self.bytes, slot, starts, |bits| {
                    Half::from_bits(bits as u16).to_f32()
                });
                primitive_array::<Float32Type>(values, nulls, data_type)
            }
            (2, _) => {
                type Half = <Float16Type as ArrowPrimitiveType>::Native;
                let values = collect_integers(self.bytes, slot, starts, |bits| {
                    Half::from_bits(bits as u16).to_f64()
                });
                primitive_array::<Float64Type>(values, nulls, data_type)
            }
            (4, DataType::Float32) => {
                let values =
                    collect_integers(self.bytes, slot, starts, |bits| f32::from_bits(bits as u32));
                primitive_array::<Float32Type>(values, nulls, data_type)
            }
            (4, _) => {
                let values = collect_integers(self.bytes, slot, starts, |bits| {
                    f32::from_bits(bits as u32).into()
                });
                primitive_array::<Float64Type>(values, nulls, data_type)
            }
            _ => {
                let values = collect_integers(self.bytes, slot, starts, f64::from_bits);
                primitive_array::<Float64Type>(values, nulls, data_type)
            }
        }
    }

    fn decode_enum(
        &self,
        out: &OutputField,
        slot: SlotLayout,
        (keys, names, symbols): (&[Option<i32>], &[String], &ArrayRef),
        starts: &[u32],
        skipped: Option<&NullBuffer>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, RowDecodeError> {
        let mut found = Vec::with_capacity(starts.len());
        for (row, start) in starts.iter().enumerate() {
            if skipped.is_some_and(|nulls| nulls.is_null(row)) {
                found.push(0);
                continue;
            }
            let position =
                usize::try_from(slot.read_integer(self.bytes, *start)).unwrap_or(usize::MAX);
            match keys.get(position) {
                Some(Some(key)) => found.push(*key),
                Some(None) => {
                    let symbol = names.get(position).map_or("", String::as_str);
                    return Err(RowDecodeError::InvalidValue {
                        row,
                        column: out.path.clone(),
                        reason: format!(
                            "`{symbol}` is no symbol of the reader's enum, which has no default"
                        ),
                    });
                }
                None => {
                    return Err(RowDecodeError::from_damage(format!(
                        "symbol {position} of an enum with {} in column `{}`",
                        keys.len(),
                        out.path
                    )));
                }
            }
        }
        let keys = PrimitiveArray::<Int32Type>::try_new(found.into(), nulls)?;
        match out.field.data_type() {
            DataType::Dictionary(..) => {
                Ok(Arc::new(DictionaryArray::try_new(keys, symbols.clone())?))
            }
            _ => Ok(arrow_select::take::take(symbols, &keys, None)?),
        }
    }

    fn decode_strings(
        &self,
        out: &OutputField,
        spans: &[(u32, u32)],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, RowDecodeError> {
        let data_type = out.field.data_type();
        let is_text = crate::schema::is_string_type(data_type);
        let array: Option<ArrayRef> = match data_type {
            DataType::Utf8View | DataType::BinaryView => {
                let (views, data) = self.decode_string_views(spans, is_text);
                let Some((views, data)) = views.zip(data) else {
                    return self.invalid_utf8_error(out, spans);
                };
                let buffers = if data.is_empty() { vec![] } else { vec![Buffer::from_vec(data)] };
                Some(if is_text {
                    // SAFETY: views point into the buffer, and the text is validated.
                    Arc::new(unsafe {
                        GenericByteViewArray::<arrow_array::types::StringViewType>::new_unchecked(
                            views, buffers, nulls,
                        )
                    })
                } else {
                    // SAFETY: views point into the buffer.
                    Arc::new(unsafe {
                        GenericByteViewArray::<arrow_array::types::BinaryViewType>::new_unchecked(
                            views, buffers, nulls,
                        )
                    })
                })
            }
            DataType::Utf8 => {
                self.decode_offset_strings::<arrow_array::types::Utf8Type>(spans, true, nulls)?
            }
            DataType::LargeUtf8 => {
                self.decode_offset_strings::<arrow_array::types::LargeUtf8Type>(spans, true, nulls)?
            }
            DataType::Binary => {
                self.decode_offset_strings::<arrow_array::types::BinaryType>(spans, false, nulls)?
            }
            _ => self.decode_offset_strings::<arrow_array::types::LargeBinaryType>(
                spans, false, nulls,
            )?,
        };
        match array {
            Some(array) => Ok(array),
            None => self.invalid_utf8_error(out, spans),
        }
    }

    /// Returns the error of text that is not valid UTF-8.
    fn invalid_utf8_error<T>(
        &self,
        out: &OutputField,
        spans: &[(u32, u32)],
    ) -> Result<T, RowDecodeError> {
        let row = spans
            .iter()
            .position(|span| std::str::from_utf8(span_bytes(self.bytes, *span)).is_err())
            .unwrap_or_default();
        let reason = "it is not valid UTF-8".into();
        Err(RowDecodeError::InvalidValue { row, column: out.path.clone(), reason })
    }

    /// Builds an array of offsets and bytes; `None` if the bytes should be text and are not.
    fn decode_offset_strings<T: arrow_array::types::ByteArrayType>(
        &self,
        spans: &[(u32, u32)],
        is_text: bool,
        nulls: Option<NullBuffer>,
    ) -> Result<Option<ArrayRef>, RowDecodeError> {
        let total: usize = spans.iter().map(|(_, length)| *length as usize).sum();
        let mut data = vec![0; total + SHORT_COPY_BYTES];
        let mut offsets = Vec::with_capacity(spans.len() + 1);
        let mut at = 0;
        let mut is_whole = true;
        offsets.push(T::Offset::default());
        for &(start, length) in spans {
            copy_string(self.bytes, start as usize, length as usize, &mut data, at);
            is_whole &= length == 0 || data.get(at).is_some_and(|byte| byte & 0xC0 != 0x80);
            at += length as usize;
            offsets.push(T::Offset::from_usize(at).ok_or_else(|| {
                RowDecodeError::from_damage(
                    "strings of a batch take 2 GiB or more; read them as `Utf8View`",
                )
            })?);
        }
        data.truncate(total);
        if is_text && !(is_whole && simdutf8::basic::from_utf8(&data).is_ok()) {
            return Ok(None);
        }
        // SAFETY: offsets rise from 0 to the number of bytes.
        let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(offsets)) };
        // SAFETY: the text is validated, and every string begins with a character.
        Ok(Some(Arc::new(unsafe {
            GenericByteArray::<T>::new_unchecked(offsets, Buffer::from_vec(data), nulls)
        })))
    }

    /// Builds views, and the bytes of strings that are too long for their view; `None` if the bytes should be
    /// text and are not.
    fn decode_string_views(
        &self,
        spans: &[(u32, u32)],
        is_text: bool,
    ) -> (Option<ScalarBuffer<u128>>, Option<Vec<u8>>) {
        const INLINE: u32 = 12;
        const HIGH_BITS: u128 = 0x8080_8080_8080_8080_8080_8080_8080_8080;
        let long = spans.iter().map(|&(_, length)| if length > INLINE { length } else { 0 });
        let total: usize = long.map(|length| length as usize).sum();
        let mut data = vec![0; if total > 0 { total + SHORT_COPY_BYTES } else { 0 }];
        let mut views = Vec::with_capacity(spans.len());
        let mut at = 0;
        let (mut is_ascii, mut is_whole) = (true, true);
        for &(start, length) in spans {
            let head = load_u128(self.bytes, start as usize);
            if length <= INLINE {
                let value = head & ((1 << (8 * length)) - 1);
                is_ascii &= value & HIGH_BITS == 0;
                views.push(value << 32 | u128::from(length));
            } else {
                copy_string(self.bytes, start as usize, length as usize, &mut data, at);
                is_whole &= head & 0xC0 != 0x80;
                let prefix = head & 0xFFFF_FFFF;
                views.push((at as u128) << 96 | prefix << 32 | u128::from(length));
                at += length as usize;
            }
        }
        data.truncate(total);
        if is_text {
            is_whole &= simdutf8::basic::from_utf8(&data).is_ok();
            if is_whole && !is_ascii {
                let mut short = spans.iter().filter(|(_, length)| *length <= INLINE);
                is_whole =
                    short.all(|span| std::str::from_utf8(span_bytes(self.bytes, *span)).is_ok());
            }
            if !is_whole {
                return (None, None);
            }
        }
        (Some(views.into()), Some(data))
    }
}

/// Copies `length` bytes to `at` of `to`, which has [`SHORT_COPY_BYTES`] spare bytes.
#[inline]
fn copy_string(from: &[u8], start: usize, length: usize, to: &mut [u8], at: usize) {
    if length <= SHORT_COPY_BYTES
        && let Some(from) = from.get(start..start + SHORT_COPY_BYTES)
        && let Some(to) = to.get_mut(at..at + SHORT_COPY_BYTES)
    {
        to.copy_from_slice(from);
    } else if length <= 2 * SHORT_COPY_BYTES
        && let Some(from) = from.get(start..start + 2 * SHORT_COPY_BYTES)
        && let Some(to) = to.get_mut(at..at + 2 * SHORT_COPY_BYTES)
    {
        to.copy_from_slice(from);
    } else if let (Some(from), Some(to)) =
        (from.get(start..start + length), to.get_mut(at..at + length))
    {
        to.copy_from_slice(from);
    }
}

fn span_bytes(bytes: &[u8], (start, length): (u32, u32)) -> &[u8] {
    bytes.get(start as usize..start as usize + length as usize).unwrap_or_default()
}

fn collect_values<T>(starts: &[u32], get: impl Fn(u32) -> T) -> ScalarBuffer<T>
where
    T: arrow_buffer::ArrowNativeType,
{
    starts.iter().map(|start| get(*start)).collect::<Vec<_>>().into()
}

/// Reads the integers of a slot.
fn collect_integers<T>(
    bytes: &[u8],
    slot: SlotLayout,
    starts: &[u32],
    get: impl Fn(u64) -> T,
) -> ScalarBuffer<T>
where
    T: arrow_buffer::ArrowNativeType,
{
    if slot.width == 0 {
        return vec![get(slot.base); starts.len()].into();
    }
    starts.iter().map(|start| get(slot.read_integer(bytes, *start))).collect::<Vec<_>>().into()
}

fn primitive_array<T: ArrowPrimitiveType>(
    values: ScalarBuffer<T::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, RowDecodeError> {
    let array = PrimitiveArray::<T>::try_new(values, nulls)?;
    Ok(Arc::new(if &T::DATA_TYPE == data_type {
        array
    } else {
        array.with_data_type(data_type.clone())
    }))
}

/// Builds a list or map array.
fn list_array(
    field: &FieldRef,
    offsets: &[u32],
    mut arrays: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, RowDecodeError> {
    fn narrow<O: OffsetSizeTrait>(offsets: &[u32]) -> Result<OffsetBuffer<O>, RowDecodeError> {
        let offsets = offsets.iter().map(|offset| {
            O::from_usize(*offset as usize)
                .ok_or_else(|| RowDecodeError::from_damage("a list with 2^31 items"))
        });
        let offsets: Vec<O> = offsets.collect::<Result<_, _>>()?;
        // SAFETY: the offsets ascend from 0.
        Ok(unsafe { OffsetBuffer::new_unchecked(offsets.into()) })
    }
    let none = || RowDecodeError::from_damage("a list without items");
    match field.data_type() {
        DataType::List(item) => {
            let values = arrays.pop().ok_or_else(none)?;
            Ok(Arc::new(GenericListArray::try_new(
                item.clone(),
                narrow::<i32>(offsets)?,
                values,
                nulls,
            )?))
        }
        DataType::LargeList(item) => {
            let values = arrays.pop().ok_or_else(none)?;
            Ok(Arc::new(GenericListArray::try_new(
                item.clone(),
                narrow::<i64>(offsets)?,
                values,
                nulls,
            )?))
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else { return Err(none()) };
            let rows = offsets.last().copied().unwrap_or_default() as usize;
            let values = StructArray::try_new_with_length(pair.clone(), arrays, None, rows)?;
            let offsets = narrow::<i32>(offsets)?;
            Ok(Arc::new(MapArray::try_new(entries.clone(), offsets, values, nulls, *sorted)?))
        }
        _ => Err(none()),
    }
}
