//! Arrow arrays bound to the leaves of a row structure.
//!
//! Binding a batch resolves everything that depends on an array's layout, once: offsets or
//! views, dictionaries, the nulls of enclosing structs, lists with gaps. The encoder
//! then sees only rows, lengths and buffers.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, OffsetSizeTrait, PrimitiveArray};
use arrow_array::{downcast_dictionary_array, downcast_primitive_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::DataType;

use crate::error::{Error, Result};
use crate::row_layout::{BLOCK_BYTES_MAX, LeafKind, RowStructure};
use crate::schema::{FieldType, SchemaField};

/// The columns of some rows, one for each leaf.
#[derive(Debug)]
pub(crate) struct LeafColumns {
    pub rows: usize,
    /// One column for each leaf of the row structure.
    pub leaves: Vec<LeafArray>,
    /// Total length of all strings of each row, or [`u32::MAX`] if it is larger.
    pub string_bytes: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct LeafArray {
    /// Nulls of the value itself and of the structs that contain it.
    pub nulls: Option<NullBuffer>,
    pub values: LeafValues,
}

#[derive(Debug)]
pub(crate) enum LeafValues {
    /// No values: a struct, whose fields follow, or a null column.
    None,
    Boolean(BooleanBuffer),
    Integer(IntegerValues),
    Wide128(ScalarBuffer<i128>),
    Wide256(ScalarBuffer<i256>),
    /// The bits of floats, in this and the next variants.
    Float16(ScalarBuffer<u16>),
    Float32(ScalarBuffer<u32>),
    Float64(ScalarBuffer<u64>),
    Fixed {
        size: usize,
        bytes: Buffer,
    },
    Bytes {
        /// Length of each value; 0 for a null.
        lengths: Vec<u32>,
        source: StringBytes,
    },
    List {
        /// Start of each row's items, and the end of the last.
        offsets: Vec<u32>,
        items: LeafColumns,
    },
}

/// Integers of at most 64 bits.
#[derive(Debug)]
pub(crate) enum IntegerValues {
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
}

/// Evaluates `$body` with `$values` as a slice of the integers' own type.
macro_rules! with_integers {
    ($integers:expr, $values:ident => $body:expr) => {
        match $integers {
            $crate::columns::IntegerValues::I8($values) => $body,
            $crate::columns::IntegerValues::I16($values) => $body,
            $crate::columns::IntegerValues::I32($values) => $body,
            $crate::columns::IntegerValues::I64($values) => $body,
            $crate::columns::IntegerValues::U8($values) => $body,
            $crate::columns::IntegerValues::U16($values) => $body,
            $crate::columns::IntegerValues::U32($values) => $body,
            $crate::columns::IntegerValues::U64($values) => $body,
        }
    };
}
pub(crate) use with_integers;

/// The source of a string column's bytes.
#[derive(Debug)]
pub(crate) enum StringBytes {
    Small(OffsetBuffer<i32>, Buffer),
    Large(OffsetBuffer<i64>, Buffer),
    View(ScalarBuffer<u128>, Vec<Buffer>),
}

impl LeafColumns {
    /// Binds `arrays`, whose types match `fields`.
    ///
    /// # Errors
    /// If a required value is null, an enum has a symbol that its type does not list, or a
    /// value is larger than a block.
    pub(crate) fn new(
        record: &RowStructure,
        fields: &[SchemaField],
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<Self> {
        let leaves = Vec::with_capacity(record.leaves.len());
        let mut columns = Self { rows, leaves, string_bytes: vec![0; rows] };
        columns.bind_arrays(record, fields, arrays, None)?;
        for column in &columns.leaves {
            if let LeafValues::Bytes { lengths, .. } = &column.values {
                for (bytes, length) in columns.string_bytes.iter_mut().zip(lengths) {
                    // Each length is below 2^31, so a saturated sum is detected later.
                    *bytes = bytes.saturating_add(*length);
                }
            }
        }
        Ok(columns)
    }

    fn bind_arrays(
        &mut self,
        record: &RowStructure,
        fields: &[SchemaField],
        arrays: &[ArrayRef],
        outer: Option<&NullBuffer>,
    ) -> Result<()> {
        for (field, array) in fields.iter().zip(arrays) {
            let Some(leaf) = record.leaves.get(self.leaves.len()) else { return Ok(()) };
            let mismatch = |found: String| Error::SchemaMismatch {
                column: leaf.path.clone(),
                expected: field.kind.to_string(),
                found,
            };
            let array = unpack_dictionary(array, &field.kind)?;
            let own = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
            let nulls = NullBuffer::union(own.as_ref(), outer);
            if leaf.null_bit.is_none()
                && leaf.kind != LeafKind::Null
                && let Some(own) = &own
                && let Some(row) = (0..array.len())
                    .find(|&row| own.is_null(row) && outer.is_none_or(|outer| outer.is_valid(row)))
            {
                return Err(mismatch(format!("null in row {row} of the batch")));
            }
            let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            let values = match (&leaf.kind, array.data_type()) {
                (LeafKind::Null, _) => LeafValues::None,
                (LeafKind::Boolean { .. }, DataType::Boolean) => {
                    LeafValues::Boolean(array.as_boolean().values().clone())
                }
                (LeafKind::Integer { .. }, _) => match &field.kind {
                    FieldType::Enum { symbols, .. } => LeafValues::Integer(IntegerValues::U32(
                        symbol_positions(&array, symbols, &leaf.path)?,
                    )),
                    _ => LeafValues::Integer(
                        integer_values(&array)
                            .ok_or_else(|| mismatch(array.data_type().to_string()))?,
                    ),
                },
                (LeafKind::Wide { .. }, DataType::Decimal128(..)) => {
                    LeafValues::Wide128(array.as_primitive::<Decimal128Type>().values().clone())
                }
                (LeafKind::Wide { .. }, DataType::Decimal256(..)) => {
                    LeafValues::Wide256(array.as_primitive::<Decimal256Type>().values().clone())
                }
                (LeafKind::Float { .. }, DataType::Float16) => {
                    LeafValues::Float16(float_bits(array.as_primitive::<Float16Type>()))
                }
                (LeafKind::Float { .. }, DataType::Float32) => {
                    LeafValues::Float32(float_bits(array.as_primitive::<Float32Type>()))
                }
                (LeafKind::Float { .. }, DataType::Float64) => {
                    LeafValues::Float64(float_bits(array.as_primitive::<Float64Type>()))
                }
                (LeafKind::Fixed { .. }, DataType::FixedSizeBinary(_)) => {
                    let array = array.as_fixed_size_binary();
                    let size = usize::try_from(array.value_length()).unwrap_or_default();
                    LeafValues::Fixed { size, bytes: array.values().clone() }
                }
                (LeafKind::Bytes { .. }, _) => {
                    let source = StringBytes::from_array(&array)
                        .ok_or_else(|| mismatch(array.data_type().to_string()))?;
                    let lengths = source.value_lengths(nulls.as_ref())?;
                    LeafValues::Bytes { lengths, source }
                }
                (LeafKind::List { child, .. }, _) => {
                    let Some(record) = record.children.get(*child) else { return Ok(()) };
                    let (offsets, items) = list_items(&array)
                        .ok_or_else(|| mismatch(array.data_type().to_string()))?;
                    let (offsets, items) = remove_null_items(&offsets, items, is_null)?;
                    let rows = offsets.last().copied().unwrap_or_default() as usize;
                    let items = match &field.kind {
                        FieldType::List(item) => {
                            Self::new(record, std::slice::from_ref(item), &[items], rows)?
                        }
                        FieldType::Map { key, value, .. } => {
                            let pair = [(**key).clone(), (**value).clone()];
                            Self::new(record, &pair, items.as_struct().columns(), rows)?
                        }
                        _ => return Err(mismatch(array.data_type().to_string())),
                    };
                    LeafValues::List { offsets, items }
                }
                (LeafKind::Struct, DataType::Struct(_)) => LeafValues::None,
                (_, found) => return Err(mismatch(found.to_string())),
            };
            self.leaves.push(LeafArray { nulls: nulls.clone(), values });
            if let (FieldType::Struct(fields), DataType::Struct(_)) =
                (&field.kind, array.data_type())
            {
                self.bind_arrays(record, fields, array.as_struct().columns(), nulls.as_ref())?;
            }
        }
        Ok(())
    }
}

/// Returns the array without its dictionary, unless it is an enum.
fn unpack_dictionary(array: &ArrayRef, kind: &FieldType) -> Result<ArrayRef> {
    if matches!(kind, FieldType::Enum { .. }) {
        return Ok(array.clone());
    }
    let dynamic = array.as_ref();
    Ok(downcast_dictionary_array!(
        dynamic => arrow_select::take::take(dynamic.values(), dynamic.keys(), None)?,
        _ => array.clone(),
    ))
}

/// Returns the integers of a primitive array, for any logical type.
fn integer_values(array: &ArrayRef) -> Option<IntegerValues> {
    fn of<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Option<IntegerValues> {
        let (buffer, rows) = (array.values().inner().clone(), array.len());
        let is_signed = !array.data_type().is_unsigned_integer();
        Some(match (size_of::<T::Native>(), is_signed) {
            (1, true) => IntegerValues::I8(ScalarBuffer::new(buffer, 0, rows)),
            (2, true) => IntegerValues::I16(ScalarBuffer::new(buffer, 0, rows)),
            (4, true) => IntegerValues::I32(ScalarBuffer::new(buffer, 0, rows)),
            (8, true) => IntegerValues::I64(ScalarBuffer::new(buffer, 0, rows)),
            (1, false) => IntegerValues::U8(ScalarBuffer::new(buffer, 0, rows)),
            (2, false) => IntegerValues::U16(ScalarBuffer::new(buffer, 0, rows)),
            (4, false) => IntegerValues::U32(ScalarBuffer::new(buffer, 0, rows)),
            (8, false) => IntegerValues::U64(ScalarBuffer::new(buffer, 0, rows)),
            _ => return None,
        })
    }
    if array.data_type().is_floating() {
        return None;
    }
    let array = array.as_ref();
    downcast_primitive_array!(
        array => of(array),
        _ => None,
    )
}

/// Returns the bits of floats.
fn float_bits<T: ArrowPrimitiveType, B: arrow_buffer::ArrowNativeType>(
    array: &PrimitiveArray<T>,
) -> ScalarBuffer<B> {
    ScalarBuffer::new(array.values().inner().clone(), 0, array.len())
}

/// Returns the position of each value among an enum's symbols; 0 for a null.
fn symbol_positions(
    array: &ArrayRef,
    symbols: &[String],
    column: &str,
) -> Result<ScalarBuffer<u32>> {
    let known: HashMap<&str, u32> = symbols.iter().map(String::as_str).zip(0..).collect();
    let find = |symbol: &str| {
        known.get(symbol).copied().ok_or_else(|| Error::SchemaMismatch {
            column: column.into(),
            expected: format!("one of {}", symbols.join(", ")),
            found: format!("`{symbol}`"),
        })
    };
    let of_strings = |array: &ArrayRef| -> Result<Option<Vec<Result<u32>>>> {
        let found = |value: Option<&str>| value.map_or(Ok(0), find);
        Ok(Some(match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().iter().map(found).collect(),
            DataType::LargeUtf8 => array.as_string::<i64>().iter().map(found).collect(),
            DataType::Utf8View => array.as_string_view().iter().map(found).collect(),
            _ => return Ok(None),
        }))
    };
    fn keys<K: ArrowDictionaryKeyType>(
        array: &arrow_array::DictionaryArray<K>,
        found: Vec<Result<u32>>,
    ) -> Result<ScalarBuffer<u32>> {
        // An unknown symbol is an error only if a row uses it.
        let mut found: Vec<Option<Result<u32>>> = found.into_iter().map(Some).collect();
        let mut at = Vec::with_capacity(array.len());
        for key in array.keys_iter() {
            let Some(key) = key else {
                at.push(0);
                continue;
            };
            match found.get_mut(key) {
                Some(Some(Ok(position))) => at.push(*position),
                Some(unknown) => match unknown.take() {
                    Some(Err(error)) => return Err(error),
                    _ => at.push(0),
                },
                None => at.push(0),
            }
        }
        Ok(at.into())
    }
    let mismatch = || Error::SchemaMismatch {
        column: column.into(),
        expected: "enum".into(),
        found: array.data_type().to_string(),
    };
    let dynamic = array.as_ref();
    downcast_dictionary_array!(
        dynamic => keys(dynamic, of_strings(dynamic.values())?.ok_or_else(mismatch)?),
        _ => of_strings(array)?.ok_or_else(mismatch)?.into_iter().collect::<Result<Vec<u32>>>().map(Into::into),
    )
}

/// Returns the offsets and items of a list or map.
fn list_items(array: &ArrayRef) -> Option<(Vec<usize>, ArrayRef)> {
    fn wide<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<usize> {
        offsets.iter().map(|offset| offset.as_usize()).collect()
    }
    Some(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (wide(list.offsets()), list.values().clone())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            (wide(list.offsets()), list.values().clone())
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries = map.entries();
            (wide(map.offsets()), std::sync::Arc::new(entries.clone()) as ArrayRef)
        }
        _ => return None,
    })
}

/// Returns the items of rows that are not null, and offsets into them.
fn remove_null_items(
    offsets: &[usize],
    items: ArrayRef,
    is_null: impl Fn(usize) -> bool,
) -> Result<(Vec<u32>, ArrayRef)> {
    let mut at = 0_usize;
    let mut kept = Vec::with_capacity(offsets.len());
    let mut has_gaps = false;
    kept.push(0);
    for (row, pair) in offsets.windows(2).enumerate() {
        let &[start, end] = pair else { continue };
        if is_null(row) {
            has_gaps |= end > start;
        } else {
            at += end - start;
        }
        let narrow = u32::try_from(at).ok().filter(|at| u64::from(*at) <= BLOCK_BYTES_MAX);
        kept.push(narrow.ok_or(Error::TooLarge {
            what: "the items of a batch",
            found: at as u64,
            limit: BLOCK_BYTES_MAX,
        })?);
    }
    let first = offsets.first().copied().unwrap_or_default();
    if !has_gaps {
        return Ok((kept, items.slice(first, at)));
    }
    let wanted = offsets.windows(2).enumerate().filter(|(row, _)| !is_null(*row));
    let wanted = wanted.filter_map(|(_, pair)| Some(*pair.first()? as u64..*pair.last()? as u64));
    let indices = arrow_array::UInt64Array::from_iter_values(wanted.flatten());
    Ok((kept, arrow_select::take::take(&items, &indices, None)?))
}

impl StringBytes {
    fn from_array(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                Self::Small(array.offsets().clone(), array.values().clone())
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                Self::Large(array.offsets().clone(), array.values().clone())
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                Self::Small(array.offsets().clone(), array.values().clone())
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                Self::Large(array.offsets().clone(), array.values().clone())
            }
            DataType::Utf8View => {
                let array = array.as_string_view();
                Self::View(array.views().clone(), array.data_buffers().to_vec())
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                Self::View(array.views().clone(), array.data_buffers().to_vec())
            }
            _ => return None,
        })
    }

    fn value_lengths(&self, nulls: Option<&NullBuffer>) -> Result<Vec<u32>> {
        let (mut lengths, largest): (Vec<u32>, u64) = match self {
            // 32-bit offsets bound every length.
            Self::Small(offsets, _) => {
                let pairs = offsets.iter().zip(offsets.get(1..).unwrap_or_default());
                (pairs.map(|(start, end)| (end - start).cast_unsigned()).collect(), 0)
            }
            Self::Large(offsets, _) => {
                let pairs = offsets.iter().zip(offsets.get(1..).unwrap_or_default());
                let lengths = pairs.map(|(start, end)| (end - start).cast_unsigned());
                let largest = lengths.clone().max().unwrap_or_default();
                #[expect(clippy::cast_possible_truncation, reason = "the largest is looked at")]
                let lengths = lengths.map(|length| length as u32).collect();
                (lengths, largest)
            }
            #[expect(clippy::cast_possible_truncation, reason = "a view's lowest four bytes")]
            Self::View(views, _) => {
                let lengths: Vec<u32> = views.iter().map(|view| *view as u32).collect();
                let largest = lengths.iter().max().copied().unwrap_or_default();
                (lengths, largest.into())
            }
        };
        if largest > BLOCK_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "a value",
                found: largest,
                limit: BLOCK_BYTES_MAX,
            });
        }
        if let Some(nulls) = nulls {
            // 64 rows at a time: most groups have no null.
            for (lengths, valid) in
                lengths.chunks_mut(64).zip(nulls.inner().bit_chunks().iter_padded())
            {
                let mut nulls = !valid;
                while let Some(length) = lengths.get_mut(nulls.trailing_zeros() as usize) {
                    *length = 0;
                    nulls &= nulls - 1;
                }
            }
        }
        Ok(lengths)
    }
}
