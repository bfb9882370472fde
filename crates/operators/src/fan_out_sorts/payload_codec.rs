//! The byte format of a sorted row's payload: the columns that are not sort keys.
//!
//! ```text
//!  row   [null bit for each column][fixed-width values at fixed offsets][length, bytes]…[arrow_row of the others]
//! ```
//!
//! A dictionary column of text gets codes of the sort's own, as long as its distinct values are few, and is decoded
//! to a dictionary column. A value without a code is stored like other text. Fixed-width values have Arrow's
//! representation; the bytes of a null are arbitrary. Text and bytes follow as a LEB128 length and the bytes, and
//! take nothing for a null. Lists, structs, maps and all other types are stored as rows of Arrow's row format.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryViewBuilder, BooleanArray, DictionaryArray,
    GenericBinaryArray, GenericStringArray, Int32Array, NullArray, OffsetSizeTrait, UInt32Array,
    make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use arrow::row::{RowConverter, SortField};
use datafusion::error::Result as PlanResult;
use parking_lot::Mutex;
use tidemill_base::error::Error;

use tidemill_planning::error_carrier::into_datafusion_error;

/// The encoding of a column's values in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadEncoding {
    /// No value: the column has the type NULL.
    Null,
    /// One byte at an offset.
    BooleanByte(usize),
    /// `width` bytes at an offset.
    FixedWidth { offset: usize, width: usize },
    /// A code at an offset; a value without a code follows the fixed-width part.
    DictionaryCode { offset: usize, dictionary_index: usize },
    /// Length and bytes after the fixed-width part.
    VariableLength,
    /// Part of one Arrow row at the end.
    Nested,
}

/// Encodes and decodes the payload columns of rows.
pub(super) struct PayloadCodec {
    types: Vec<DataType>,
    encodings: Vec<PayloadEncoding>,
    /// Size of the null bits and the fixed-width values.
    fixed_part_bytes: usize,
    nested: Option<RowConverter>,
    /// The dictionary of each dictionary column.
    dictionaries: Vec<Mutex<SortDictionary>>,
}

/// Limits of a column's dictionary: number of values and their total bytes.
const DICTIONARY_VALUES_MAX: usize = 1 << 16;
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// The code that marks a value outside of the dictionary.
const NO_CODE: u32 = u32::MAX;

/// The values of a dictionary column with their codes, which all inputs of the sort share.
#[derive(Default)]
struct SortDictionary {
    codes_by_value: HashMap<Arc<[u8]>, u32>,
    values: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl SortDictionary {
    fn code_for(&mut self, value: &[u8]) -> u32 {
        if let Some(code) = self.codes_by_value.get(value) {
            return *code;
        }
        if self.values.len() == DICTIONARY_VALUES_MAX
            || self.bytes + value.len() > DICTIONARY_BYTES_MAX
        {
            return NO_CODE;
        }
        let (code, value) = (self.values.len() as u32, Arc::<[u8]>::from(value));
        self.bytes += value.len();
        self.values.push(Arc::clone(&value));
        self.codes_by_value.insert(value, code);
        code
    }
}

/// The encoded payloads of a batch; the buffers are reused.
#[derive(Default)]
pub(super) struct EncodedPayloads {
    bytes: Vec<u8>,
    /// Offset of each row in `bytes`, followed by the end of the last row.
    row_starts: Vec<usize>,
    cursors: Vec<usize>,
    /// For each dictionary column the codes of the rows.
    codes: Vec<Vec<u32>>,
    /// For each dictionary column the batch's own dictionary with the sort's codes; the next batch may share it.
    batch_codes: Vec<Option<(ArrayRef, Vec<u32>)>>,
}

impl EncodedPayloads {
    pub(super) fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.row_starts[row]..self.row_starts[row + 1]]
    }
}

impl PayloadCodec {
    pub(super) fn new<'a>(
        fields: impl Iterator<Item = &'a Arc<Field>>,
    ) -> PlanResult<PayloadCodec> {
        let types: Vec<DataType> = fields.map(|field| field.data_type().clone()).collect();
        let mut head_bytes = types.len().div_ceil(8);
        let mut place = |bytes: usize| {
            head_bytes += bytes;
            head_bytes - bytes
        };
        let mut coded = 0;
        let kinds = types.iter().map(|of| match of {
            DataType::Null => PayloadEncoding::Null,
            DataType::Boolean => PayloadEncoding::BooleanByte(place(1)),
            DataType::FixedSizeBinary(bytes) => match usize::try_from(*bytes) {
                Ok(bytes) => PayloadEncoding::FixedWidth { offset: place(bytes), width: bytes },
                Err(_) => PayloadEncoding::Nested,
            },
            DataType::Dictionary(keys, values)
                if is_text_or_bytes(values)
                    && matches!(**keys, DataType::Int32 | DataType::UInt32) =>
            {
                coded += 1;
                PayloadEncoding::DictionaryCode { offset: place(4), dictionary_index: coded - 1 }
            }
            DataType::Dictionary(_, values) if is_text_or_bytes(values) => {
                PayloadEncoding::VariableLength
            }
            of if is_text_or_bytes(of) => PayloadEncoding::VariableLength,
            of => match of.primitive_width() {
                Some(bytes) => PayloadEncoding::FixedWidth { offset: place(bytes), width: bytes },
                None => PayloadEncoding::Nested,
            },
        });
        let kinds: Vec<PayloadEncoding> = kinds.collect();
        let nested = types.iter().zip(&kinds).filter(|(_, kind)| **kind == PayloadEncoding::Nested);
        let nested: Vec<_> = nested.map(|(of, _)| SortField::new(of.clone())).collect();
        let nested = (!nested.is_empty()).then(|| RowConverter::new(nested)).transpose()?;
        let codes = (0..coded).map(|_| Mutex::default()).collect();
        Ok(PayloadCodec {
            types,
            encodings: kinds,
            fixed_part_bytes: head_bytes,
            nested,
            dictionaries: codes,
        })
    }

    /// Encodes the rows of payload columns.
    pub(super) fn encode(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        into: &mut EncodedPayloads,
    ) -> PlanResult<()> {
        let EncodedPayloads { bytes, row_starts: starts, cursors, codes, batch_codes: own } = into;
        let of_kind =
            |kind| columns.iter().zip(&self.encodings).filter(move |(_, it)| **it == kind);
        let nested = self.nested.as_ref().map(|converter| {
            let columns = of_kind(PayloadEncoding::Nested).map(|(column, _)| Arc::clone(column));
            converter.convert_columns(&columns.collect::<Vec<_>>())
        });
        let nested = nested.transpose()?;
        // The length of each row, and from the lengths the row's start.
        starts.clear();
        starts.resize(rows + 1, self.fixed_part_bytes);
        for (column, _) in of_kind(PayloadEncoding::VariableLength) {
            for_each_value_bytes(column, &mut |row, value| {
                starts[row] += value.len() + leb128_length(value.len());
            })?;
        }
        codes.resize(self.dictionaries.len(), Vec::new());
        own.resize(self.dictionaries.len(), None);
        for (column, kind) in columns.iter().zip(&self.encodings) {
            let PayloadEncoding::DictionaryCode { dictionary_index: nth, .. } = *kind else {
                continue;
            };
            self.assign_codes(nth, column, &mut own[nth], &mut codes[nth])?;
            for_each_uncoded_value(column, &codes[nth], &mut |row, value| {
                starts[row] += value.len() + leb128_length(value.len());
            })?;
        }
        if let Some(nested) = &nested {
            starts.iter_mut().zip(nested.iter()).for_each(|(sum, row)| *sum += row.data().len());
        }
        let mut end = 0;
        for start in starts.iter_mut().take(rows) {
            end += std::mem::replace(start, end);
        }
        starts[rows] = end;
        bytes.clear();
        bytes.resize(end, 0);
        cursors.clear();
        cursors.extend(starts[..rows].iter().map(|start| start + self.fixed_part_bytes));
        for (index, (column, kind)) in columns.iter().zip(&self.encodings).enumerate() {
            if let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
                let bit = 1 << (index % 8);
                for (row, start) in starts[..rows].iter().enumerate() {
                    bytes[start + index / 8] |= if nulls.is_null(row) { bit } else { 0 };
                }
            }
            match *kind {
                PayloadEncoding::Null | PayloadEncoding::Nested => {}
                PayloadEncoding::BooleanByte(at) => {
                    let values = column.as_boolean().values();
                    for (value, start) in values.iter().zip(&starts[..rows]) {
                        bytes[start + at] = u8::from(value);
                    }
                }
                PayloadEncoding::FixedWidth { offset: at, width } => {
                    let data = column.to_data();
                    let values = &data.buffers()[0].as_slice()[data.offset() * width..];
                    copy_fixed_width_values(values, width, &starts[..rows], at, bytes);
                }
                PayloadEncoding::DictionaryCode { offset: at, dictionary_index: nth } => {
                    for (code, start) in codes[nth].iter().zip(&starts[..rows]) {
                        bytes[start + at..start + at + 4].copy_from_slice(&code.to_le_bytes());
                    }
                    for_each_uncoded_value(column, &codes[nth], &mut |row, value| {
                        write_value_bytes(value, &mut cursors[row], bytes);
                    })?;
                }
                PayloadEncoding::VariableLength => {
                    for_each_value_bytes(column, &mut |row, value| {
                        write_value_bytes(value, &mut cursors[row], bytes);
                    })?
                }
            }
        }
        if let Some(nested) = &nested {
            for (row, cursor) in nested.iter().zip(cursors) {
                bytes[*cursor..*cursor + row.data().len()].copy_from_slice(row.data());
            }
        }
        Ok(())
    }

    /// Finds the codes of a column's rows; the code of a null is arbitrary.
    fn assign_codes(
        &self,
        nth: usize,
        column: &ArrayRef,
        own: &mut Option<(ArrayRef, Vec<u32>)>,
        into: &mut Vec<u32>,
    ) -> PlanResult<()> {
        /// Marks a value that is not looked up yet.
        const CODE_NOT_LOOKED_UP: u32 = u32::MAX - 1;
        let theirs = column.as_any_dictionary();
        let values = theirs.values();
        let same = own.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, values));
        if !same {
            *own = Some((Arc::clone(values), vec![CODE_NOT_LOOKED_UP; values.len()]));
        }
        into.clear();
        let (Some((_, own)), false) = (own, values.is_empty()) else {
            into.resize(column.len(), 0);
            return Ok(());
        };
        let value_at = value_bytes_fn(values)?;
        let mut codes = self.dictionaries[nth].lock();
        for (row, key) in theirs.normalized_keys().into_iter().enumerate() {
            if column.is_null(row) || values.is_null(key) {
                into.push(0);
                continue;
            }
            let code = &mut own[key];
            if *code == CODE_NOT_LOOKED_UP {
                *code = codes.code_for(value_at(key));
            }
            into.push(*code);
        }
        Ok(())
    }

    /// Decodes the rows' values of a dictionary column to its type.
    fn decode_dictionary_column(
        &self,
        nth: usize,
        at: usize,
        of: &DataType,
        rows: &[&[u8]],
        tails: &mut [&[u8]],
        nulls: Option<NullBuffer>,
    ) -> PlanResult<ArrayRef> {
        let DataType::Dictionary(keys, plain) = of else { return Err(corrupt_row_error()) };
        let known = self.dictionaries[nth].lock();
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        // For each code its index among the distinct values of these rows.
        let mut places = vec![NO_CODE; known.values.len()];
        let mut values: Vec<&[u8]> = Vec::new();
        let mut codes: Vec<u32> = Vec::with_capacity(rows.len());
        for (row, bytes) in rows.iter().enumerate() {
            if is_null(row) {
                codes.push(0);
                continue;
            }
            let code =
                bytes.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or_else(corrupt_row_error)?;
            let code = u32::from_le_bytes(*code);
            if code == NO_CODE {
                let (value, rest) = split_value_bytes(tails[row])?;
                tails[row] = rest;
                codes.push(values.len() as u32);
                values.push(value);
                continue;
            }
            let place = places.get_mut(code as usize).ok_or_else(corrupt_row_error)?;
            if *place == NO_CODE {
                *place = values.len() as u32;
                values.push(&known.values[code as usize]);
            }
            codes.push(*place);
        }
        let values = build_bytes_array(plain, &values, None)?;
        Ok(match **keys {
            DataType::UInt32 => {
                let codes = UInt32Array::new(codes.into(), nulls);
                Arc::new(DictionaryArray::try_new(codes, values)?)
            }
            _ => {
                let codes = codes.into_iter().map(u32::cast_signed).collect::<Vec<_>>();
                let codes = Int32Array::new(codes.into(), nulls);
                Arc::new(DictionaryArray::try_new(codes, values)?)
            }
        })
    }

    /// Decodes rows to columns.
    pub(super) fn decode(&self, rows: &[&[u8]]) -> PlanResult<Vec<ArrayRef>> {
        if rows.iter().any(|row| row.len() < self.fixed_part_bytes) {
            return Err(corrupt_row_error());
        }
        let mut tails: Vec<&[u8]> = rows.iter().map(|row| &row[self.fixed_part_bytes..]).collect();
        let mut columns = Vec::with_capacity(self.types.len());
        for (index, (of, kind)) in self.types.iter().zip(&self.encodings).enumerate() {
            let nulls = decode_null_bits(rows, index);
            columns.push(match *kind {
                PayloadEncoding::Null => Arc::new(NullArray::new(rows.len())) as ArrayRef,
                // Replaced below: nested values follow all others.
                PayloadEncoding::Nested => Arc::new(NullArray::new(0)),
                PayloadEncoding::BooleanByte(at) => {
                    let values = BooleanBuffer::collect_bool(rows.len(), |row| rows[row][at] != 0);
                    Arc::new(BooleanArray::new(values, nulls))
                }
                PayloadEncoding::FixedWidth { offset: at, width: bytes } => {
                    let data = ArrayData::builder(of.clone())
                        .len(rows.len())
                        .add_buffer(collect_fixed_width_values(rows, at, bytes))
                        .nulls(nulls);
                    make_array(data.build()?)
                }
                PayloadEncoding::DictionaryCode { offset: at, dictionary_index: nth } => {
                    self.decode_dictionary_column(nth, at, of, rows, &mut tails, nulls)?
                }
                PayloadEncoding::VariableLength => {
                    let plain = match of {
                        DataType::Dictionary(_, values) => values.as_ref(),
                        of => of,
                    };
                    let column = decode_variable_length_column(plain, &mut tails, nulls)?;
                    if plain == of { column } else { cast(&column, of)? }
                }
            });
        }
        if let Some(nested) = &self.nested {
            let parser = nested.parser();
            let mut nested =
                nested.convert_rows(tails.iter().map(|row| parser.parse(row)))?.into_iter();
            for (column, of) in
                columns.iter_mut().zip(&self.types).zip(&self.encodings).filter_map(
                    |(column, kind)| (*kind == PayloadEncoding::Nested).then_some(column),
                )
            {
                let made = nested.next().ok_or_else(corrupt_row_error)?;
                *column = if made.data_type() == of { made } else { cast(&made, of)? };
            }
        }
        Ok(columns)
    }
}

fn corrupt_row_error() -> datafusion::error::DataFusionError {
    into_datafusion_error(Error::Internal("a sorted row is not what it was".into()))
}

fn is_text_or_bytes(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// Calls `take` with the bytes of each row that is not null.
fn for_each_value_bytes(column: &ArrayRef, take: &mut dyn FnMut(usize, &[u8])) -> PlanResult<()> {
    macro_rules! each {
        ($array:expr) => {{
            let array = $array;
            match array.null_count() {
                0 => (0..array.len()).for_each(|row| take(row, array.value(row).as_ref())),
                _ => (0..array.len())
                    .filter(|row| array.is_valid(*row))
                    .for_each(|row| take(row, array.value(row).as_ref())),
            }
        }};
    }
    match column.data_type() {
        DataType::Utf8 => each!(column.as_string::<i32>()),
        DataType::LargeUtf8 => each!(column.as_string::<i64>()),
        DataType::Utf8View => each!(column.as_string_view()),
        DataType::Binary => each!(column.as_binary::<i32>()),
        DataType::LargeBinary => each!(column.as_binary::<i64>()),
        DataType::BinaryView => each!(column.as_binary_view()),
        DataType::Dictionary(_, _) => {
            let codes = column.as_any_dictionary();
            let values = codes.values();
            if values.is_empty() {
                // All values are null.
                return Ok(());
            }
            let value_at = value_bytes_fn(values)?;
            for (row, code) in codes.normalized_keys().into_iter().enumerate() {
                if column.is_valid(row) && values.is_valid(code) {
                    take(row, value_at(code));
                }
            }
        }
        other => return Err(unsupported_type_error(other)),
    }
    Ok(())
}

/// Returns a function that returns the bytes of the value at an index.
fn value_bytes_fn<'a>(values: &'a ArrayRef) -> PlanResult<Box<dyn Fn(usize) -> &'a [u8] + 'a>> {
    macro_rules! at {
        ($array:expr) => {{
            let array = $array;
            Box::new(move |row| array.value(row).as_ref())
        }};
    }
    Ok(match values.data_type() {
        DataType::Utf8 => at!(values.as_string::<i32>()),
        DataType::LargeUtf8 => at!(values.as_string::<i64>()),
        DataType::Utf8View => at!(values.as_string_view()),
        DataType::Binary => at!(values.as_binary::<i32>()),
        DataType::LargeBinary => at!(values.as_binary::<i64>()),
        DataType::BinaryView => at!(values.as_binary_view()),
        other => return Err(unsupported_type_error(other)),
    })
}

fn unsupported_type_error(of: &DataType) -> datafusion::error::DataFusionError {
    into_datafusion_error(Error::Internal(format!("{of} is no text and no bytes")))
}

/// Copies fixed-width values to their rows.
fn copy_fixed_width_values(
    values: &[u8],
    width: usize,
    starts: &[usize],
    at: usize,
    into: &mut [u8],
) {
    fn of<const N: usize>(values: &[u8], starts: &[usize], at: usize, into: &mut [u8]) {
        for (value, start) in values.as_chunks::<N>().0.iter().zip(starts) {
            if let Some(place) = into.get_mut(start + at..).and_then(<[u8]>::first_chunk_mut::<N>) {
                *place = *value;
            }
        }
    }
    match width {
        1 => of::<1>(values, starts, at, into),
        2 => of::<2>(values, starts, at, into),
        4 => of::<4>(values, starts, at, into),
        8 => of::<8>(values, starts, at, into),
        16 => of::<16>(values, starts, at, into),
        0 => {}
        width => {
            for (value, start) in values.chunks_exact(width).zip(starts) {
                into[start + at..start + at + width].copy_from_slice(value);
            }
        }
    }
}

/// Collects the fixed-width values at an offset of rows.
fn collect_fixed_width_values(rows: &[&[u8]], at: usize, width: usize) -> Buffer {
    fn of<const N: usize>(rows: &[&[u8]], at: usize, into: &mut MutableBuffer) {
        for row in rows {
            let value = row.get(at..).and_then(<[u8]>::first_chunk::<N>);
            into.extend_from_slice(value.unwrap_or(&[0; N]));
        }
    }
    let mut values = MutableBuffer::with_capacity(rows.len() * width);
    match width {
        1 => of::<1>(rows, at, &mut values),
        2 => of::<2>(rows, at, &mut values),
        4 => of::<4>(rows, at, &mut values),
        8 => of::<8>(rows, at, &mut values),
        16 => of::<16>(rows, at, &mut values),
        width => rows.iter().for_each(|row| values.extend_from_slice(&row[at..at + width])),
    }
    values.into()
}

fn decode_null_bits(rows: &[&[u8]], index: usize) -> Option<NullBuffer> {
    let bit = 1 << (index % 8);
    let is_null = |row: &&[u8]| row[index / 8] & bit != 0;
    rows.iter().any(is_null).then(|| {
        NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |row| !is_null(&rows[row])))
    })
}

/// Reads a value off the front of each row that is not null.
fn decode_variable_length_column<'a>(
    of: &DataType,
    rows: &mut [&'a [u8]],
    nulls: Option<NullBuffer>,
) -> PlanResult<ArrayRef> {
    let mut values: Vec<&'a [u8]> = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter_mut().enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(index)) {
            values.push(&[]);
            continue;
        }
        let (value, rest) = split_value_bytes(row)?;
        values.push(value);
        *row = rest;
    }
    build_bytes_array(of, &values, nulls)
}

/// Splits a row into a value's bytes and the remainder.
fn split_value_bytes(row: &[u8]) -> PlanResult<(&[u8], &[u8])> {
    let (length, rest) = read_leb128(row).ok_or_else(corrupt_row_error)?;
    rest.split_at_checked(length).ok_or_else(corrupt_row_error)
}

/// Builds a column of text or bytes.
fn build_bytes_array(
    of: &DataType,
    values: &[&[u8]],
    nulls: Option<NullBuffer>,
) -> PlanResult<ArrayRef> {
    let views = |nulls: Option<NullBuffer>| {
        let mut views = BinaryViewBuilder::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                true => views.append_null(),
                false => views.append_value(value),
            }
        }
        views.finish()
    };
    Ok(match of {
        DataType::Utf8View => Arc::new(views(nulls).to_string_view()?),
        DataType::BinaryView => Arc::new(views(nulls)),
        DataType::Utf8 => Arc::new(build_string_array::<i32>(values, nulls)?),
        DataType::LargeUtf8 => Arc::new(build_string_array::<i64>(values, nulls)?),
        DataType::Binary => {
            let (offsets, bytes) = concat_value_bytes::<i32>(values)?;
            Arc::new(GenericBinaryArray::try_new(offsets, bytes, nulls)?)
        }
        _ => {
            let (offsets, bytes) = concat_value_bytes::<i64>(values)?;
            Arc::new(GenericBinaryArray::try_new(offsets, bytes, nulls)?)
        }
    })
}

/// Calls `take` with the bytes of each row that has a value without a code.
fn for_each_uncoded_value(
    column: &ArrayRef,
    codes: &[u32],
    take: &mut dyn FnMut(usize, &[u8]),
) -> PlanResult<()> {
    match codes.contains(&NO_CODE) {
        false => Ok(()),
        true => for_each_value_bytes(column, &mut |row, value| {
            if codes[row] == NO_CODE {
                take(row, value);
            }
        }),
    }
}

/// Writes a value's length and bytes.
fn write_value_bytes(value: &[u8], cursor: &mut usize, into: &mut [u8]) {
    *cursor = write_leb128(value.len(), *cursor, into);
    into[*cursor..*cursor + value.len()].copy_from_slice(value);
    *cursor += value.len();
}

fn build_string_array<O: OffsetSizeTrait>(
    values: &[&[u8]],
    nulls: Option<NullBuffer>,
) -> PlanResult<GenericStringArray<O>> {
    let (offsets, bytes) = concat_value_bytes::<O>(values)?;
    Ok(GenericStringArray::try_new(offsets, bytes, nulls)?)
}

fn concat_value_bytes<O: OffsetSizeTrait>(
    values: &[&[u8]],
) -> PlanResult<(OffsetBuffer<O>, Buffer)> {
    let total: usize = values.iter().map(|value| value.len()).sum();
    if O::from_usize(total).is_none() {
        return Err(into_datafusion_error(Error::Internal(
            "text of one batch beyond 2 GiB".into(),
        )));
    }
    let mut bytes = Vec::with_capacity(total);
    values.iter().for_each(|value| bytes.extend_from_slice(value));
    Ok((OffsetBuffer::from_lengths(values.iter().map(|value| value.len())), bytes.into()))
}

/// Returns the number of bytes of a length in LEB128.
fn leb128_length(number: usize) -> usize {
    1 + number.max(1).ilog2() as usize / 7
}

/// Writes a length in LEB128 and returns the position after it.
fn write_leb128(mut number: usize, mut at: usize, into: &mut [u8]) -> usize {
    while number >= 0x80 {
        into[at] = (number & 0x7f) as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    into[at] = number as u8;
    at + 1
}

/// Reads a length in LEB128 and returns it with the remaining bytes.
fn read_leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mut number = usize::from(first & 0x7f);
    let (mut more, mut shift) = (first >= 0x80, 7);
    while more {
        let (&byte, behind) = rest.split_first().filter(|_| shift < 63)?;
        number |= usize::from(byte & 0x7f) << shift;
        (more, shift, rest) = (byte >= 0x80, shift + 7, behind);
    }
    Some((number, rest))
}
