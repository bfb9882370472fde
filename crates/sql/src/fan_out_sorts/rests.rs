//! The columns that are not sorted by, as bytes of their row.
//!
//! ```text
//!  row   [a bit for each column: null?][values of one size, each at its place][length, bytes]…[arrow_row of the others]
//! ```
//!
//! Text that comes with codes gets codes of the sort's own, as long as its values are few, and comes out with codes; what
//! has none of these follows as other text does. Values of one size lie as Arrow has them, whatever is there where one is null. Text and bytes come behind, a LEB128 number and
//! so many bytes, nothing where one is null. Lists, structs, maps and what else there is are rows of Arrow's.

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

use crate::messages::external;

/// How a column's values lie in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// There is none.
    Null,
    /// A byte at its place.
    Bit(usize),
    /// So many bytes at its place.
    Fixed { at: usize, bytes: usize },
    /// A code at its place; without one, behind what has a place.
    Coded { at: usize, nth: usize },
    /// Behind what has a place.
    Bytes,
    /// Behind all others, together.
    Nested,
}

/// How the rows of some columns lie in bytes.
pub(super) struct Rests {
    types: Vec<DataType>,
    kinds: Vec<Kind>,
    /// Bits and values of one size.
    head_bytes: usize,
    nested: Option<RowConverter>,
    /// Of each column that has codes.
    codes: Vec<Mutex<Codes>>,
}

/// So many values of a column have codes, of so many bytes together.
const CODES_MAX: usize = 1 << 16;
const CODED_BYTES_MAX: usize = 1 << 20;

/// The code of a value that has none.
const UNCODED: u32 = u32::MAX;

/// Values that have codes, in all inputs the same.
#[derive(Default)]
struct Codes {
    known: HashMap<Arc<[u8]>, u32>,
    values: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl Codes {
    fn of(&mut self, value: &[u8]) -> u32 {
        if let Some(code) = self.known.get(value) {
            return *code;
        }
        if self.values.len() == CODES_MAX || self.bytes + value.len() > CODED_BYTES_MAX {
            return UNCODED;
        }
        let (code, value) = (self.values.len() as u32, Arc::<[u8]>::from(value));
        self.bytes += value.len();
        self.values.push(Arc::clone(&value));
        self.known.insert(value, code);
        code
    }
}

/// The rows of a batch.
#[derive(Default)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    /// Where each row begins, and the last one ends.
    starts: Vec<usize>,
    cursors: Vec<usize>,
    /// Of each column that has codes those of the rows.
    codes: Vec<Vec<u32>>,
    /// The same of the values that it came with, which the next batch may share.
    own: Vec<Option<(ArrayRef, Vec<u32>)>>,
}

impl Encoded {
    pub(super) fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.starts[row]..self.starts[row + 1]]
    }
}

impl Rests {
    pub(super) fn new<'a>(fields: impl Iterator<Item = &'a Arc<Field>>) -> PlanResult<Rests> {
        let types: Vec<DataType> = fields.map(|field| field.data_type().clone()).collect();
        let mut head_bytes = types.len().div_ceil(8);
        let mut place = |bytes: usize| {
            head_bytes += bytes;
            head_bytes - bytes
        };
        let mut coded = 0;
        let kinds = types.iter().map(|of| match of {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Bit(place(1)),
            DataType::FixedSizeBinary(bytes) => match usize::try_from(*bytes) {
                Ok(bytes) => Kind::Fixed { at: place(bytes), bytes },
                Err(_) => Kind::Nested,
            },
            DataType::Dictionary(keys, values)
                if is_text_or_bytes(values)
                    && matches!(**keys, DataType::Int32 | DataType::UInt32) =>
            {
                coded += 1;
                Kind::Coded { at: place(4), nth: coded - 1 }
            }
            DataType::Dictionary(_, values) if is_text_or_bytes(values) => Kind::Bytes,
            of if is_text_or_bytes(of) => Kind::Bytes,
            of => match of.primitive_width() {
                Some(bytes) => Kind::Fixed { at: place(bytes), bytes },
                None => Kind::Nested,
            },
        });
        let kinds: Vec<Kind> = kinds.collect();
        let nested = types.iter().zip(&kinds).filter(|(_, kind)| **kind == Kind::Nested);
        let nested: Vec<_> = nested.map(|(of, _)| SortField::new(of.clone())).collect();
        let nested = (!nested.is_empty()).then(|| RowConverter::new(nested)).transpose()?;
        let codes = (0..coded).map(|_| Mutex::default()).collect();
        Ok(Rests { types, kinds, head_bytes, nested, codes })
    }

    /// The rows of some columns of these types.
    pub(super) fn encode(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        into: &mut Encoded,
    ) -> PlanResult<()> {
        let Encoded { bytes, starts, cursors, codes, own } = into;
        let of_kind = |kind| columns.iter().zip(&self.kinds).filter(move |(_, it)| **it == kind);
        let nested = self.nested.as_ref().map(|converter| {
            let columns = of_kind(Kind::Nested).map(|(column, _)| Arc::clone(column));
            converter.convert_columns(&columns.collect::<Vec<_>>())
        });
        let nested = nested.transpose()?;
        // How long each row is, and with that where it begins.
        starts.clear();
        starts.resize(rows + 1, self.head_bytes);
        for (column, _) in of_kind(Kind::Bytes) {
            each_bytes(column, &mut |row, value| {
                starts[row] += value.len() + number_bytes(value.len());
            })?;
        }
        codes.resize(self.codes.len(), Vec::new());
        own.resize(self.codes.len(), None);
        for (column, kind) in columns.iter().zip(&self.kinds) {
            let Kind::Coded { nth, .. } = *kind else { continue };
            self.put_codes(nth, column, &mut own[nth], &mut codes[nth])?;
            uncoded(column, &codes[nth], &mut |row, value| {
                starts[row] += value.len() + number_bytes(value.len());
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
        cursors.extend(starts[..rows].iter().map(|start| start + self.head_bytes));
        for (index, (column, kind)) in columns.iter().zip(&self.kinds).enumerate() {
            if let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
                let bit = 1 << (index % 8);
                for (row, start) in starts[..rows].iter().enumerate() {
                    bytes[start + index / 8] |= if nulls.is_null(row) { bit } else { 0 };
                }
            }
            match *kind {
                Kind::Null | Kind::Nested => {}
                Kind::Bit(at) => {
                    let values = column.as_boolean().values();
                    for (value, start) in values.iter().zip(&starts[..rows]) {
                        bytes[start + at] = u8::from(value);
                    }
                }
                Kind::Fixed { at, bytes: width } => {
                    let data = column.to_data();
                    let values = &data.buffers()[0].as_slice()[data.offset() * width..];
                    place_all(values, width, &starts[..rows], at, bytes);
                }
                Kind::Coded { at, nth } => {
                    for (code, start) in codes[nth].iter().zip(&starts[..rows]) {
                        bytes[start + at..start + at + 4].copy_from_slice(&code.to_le_bytes());
                    }
                    uncoded(column, &codes[nth], &mut |row, value| {
                        put_bytes(value, &mut cursors[row], bytes);
                    })?;
                }
                Kind::Bytes => each_bytes(column, &mut |row, value| {
                    put_bytes(value, &mut cursors[row], bytes);
                })?,
            }
        }
        if let Some(nested) = &nested {
            for (row, cursor) in nested.iter().zip(cursors) {
                bytes[*cursor..*cursor + row.data().len()].copy_from_slice(row.data());
            }
        }
        Ok(())
    }

    /// The codes of a column's rows; of nulls any.
    fn put_codes(
        &self,
        nth: usize,
        column: &ArrayRef,
        own: &mut Option<(ArrayRef, Vec<u32>)>,
        into: &mut Vec<u32>,
    ) -> PlanResult<()> {
        /// Not looked up yet.
        const NEW: u32 = u32::MAX - 1;
        let theirs = column.as_any_dictionary();
        let values = theirs.values();
        let same = own.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, values));
        if !same {
            *own = Some((Arc::clone(values), vec![NEW; values.len()]));
        }
        into.clear();
        let (Some((_, own)), false) = (own, values.is_empty()) else {
            into.resize(column.len(), 0);
            return Ok(());
        };
        let value_at = bytes_at(values)?;
        let mut codes = self.codes[nth].lock();
        for (row, key) in theirs.normalized_keys().into_iter().enumerate() {
            if column.is_null(row) || values.is_null(key) {
                into.push(0);
                continue;
            }
            let code = &mut own[key];
            if *code == NEW {
                *code = codes.of(value_at(key));
            }
            into.push(*code);
        }
        Ok(())
    }

    /// The rows' values of a column with codes, as the column is.
    fn decoded(
        &self,
        nth: usize,
        at: usize,
        of: &DataType,
        rows: &[&[u8]],
        tails: &mut [&[u8]],
        nulls: Option<NullBuffer>,
    ) -> PlanResult<ArrayRef> {
        let DataType::Dictionary(keys, plain) = of else { return Err(damaged()) };
        let known = self.codes[nth].lock();
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        // Of each code where it is among the values of these rows.
        let mut places = vec![UNCODED; known.values.len()];
        let mut values: Vec<&[u8]> = Vec::new();
        let mut codes: Vec<u32> = Vec::with_capacity(rows.len());
        for (row, bytes) in rows.iter().enumerate() {
            if is_null(row) {
                codes.push(0);
                continue;
            }
            let code = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or_else(damaged)?;
            let code = u32::from_le_bytes(*code);
            if code == UNCODED {
                let (value, rest) = split_bytes(tails[row])?;
                tails[row] = rest;
                codes.push(values.len() as u32);
                values.push(value);
                continue;
            }
            let place = places.get_mut(code as usize).ok_or_else(damaged)?;
            if *place == UNCODED {
                *place = values.len() as u32;
                values.push(&known.values[code as usize]);
            }
            codes.push(*place);
        }
        let values = plain_bytes(plain, &values, None)?;
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

    /// The columns of some rows.
    pub(super) fn decode(&self, rows: &[&[u8]]) -> PlanResult<Vec<ArrayRef>> {
        if rows.iter().any(|row| row.len() < self.head_bytes) {
            return Err(damaged());
        }
        let mut tails: Vec<&[u8]> = rows.iter().map(|row| &row[self.head_bytes..]).collect();
        let mut columns = Vec::with_capacity(self.types.len());
        for (index, (of, kind)) in self.types.iter().zip(&self.kinds).enumerate() {
            let nulls = nulls(rows, index);
            columns.push(match *kind {
                Kind::Null => Arc::new(NullArray::new(rows.len())) as ArrayRef,
                // They come behind all others.
                Kind::Nested => Arc::new(NullArray::new(0)),
                Kind::Bit(at) => {
                    let values = BooleanBuffer::collect_bool(rows.len(), |row| rows[row][at] != 0);
                    Arc::new(BooleanArray::new(values, nulls))
                }
                Kind::Fixed { at, bytes } => {
                    let data = ArrayData::builder(of.clone())
                        .len(rows.len())
                        .add_buffer(taken(rows, at, bytes))
                        .nulls(nulls);
                    make_array(data.build()?)
                }
                Kind::Coded { at, nth } => self.decoded(nth, at, of, rows, &mut tails, nulls)?,
                Kind::Bytes => {
                    let plain = match of {
                        DataType::Dictionary(_, values) => values.as_ref(),
                        of => of,
                    };
                    let column = take_bytes(plain, &mut tails, nulls)?;
                    if plain == of { column } else { cast(&column, of)? }
                }
            });
        }
        if let Some(nested) = &self.nested {
            let parser = nested.parser();
            let mut nested =
                nested.convert_rows(tails.iter().map(|row| parser.parse(row)))?.into_iter();
            for (column, of) in columns
                .iter_mut()
                .zip(&self.types)
                .zip(&self.kinds)
                .filter_map(|(column, kind)| (*kind == Kind::Nested).then_some(column))
            {
                let made = nested.next().ok_or_else(damaged)?;
                *column = if made.data_type() == of { made } else { cast(&made, of)? };
            }
        }
        Ok(columns)
    }
}

fn damaged() -> datafusion::error::DataFusionError {
    external(Error::Internal("a sorted row is not what it was".into()))
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

/// Calls `take` with each row's bytes, but not of nulls.
fn each_bytes(column: &ArrayRef, take: &mut dyn FnMut(usize, &[u8])) -> PlanResult<()> {
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
                // All are null.
                return Ok(());
            }
            let value_at = bytes_at(values)?;
            for (row, code) in codes.normalized_keys().into_iter().enumerate() {
                if column.is_valid(row) && values.is_valid(code) {
                    take(row, value_at(code));
                }
            }
        }
        other => return Err(no_bytes(other)),
    }
    Ok(())
}

/// What gives the bytes of a value.
fn bytes_at<'a>(values: &'a ArrayRef) -> PlanResult<Box<dyn Fn(usize) -> &'a [u8] + 'a>> {
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
        other => return Err(no_bytes(other)),
    })
}

fn no_bytes(of: &DataType) -> datafusion::error::DataFusionError {
    external(Error::Internal(format!("{of} is no text and no bytes")))
}

/// Copies values of one size to their rows.
fn place_all(values: &[u8], width: usize, starts: &[usize], at: usize, into: &mut [u8]) {
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

/// The values of one size of some rows, one behind another.
fn taken(rows: &[&[u8]], at: usize, width: usize) -> Buffer {
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

fn nulls(rows: &[&[u8]], index: usize) -> Option<NullBuffer> {
    let bit = 1 << (index % 8);
    let is_null = |row: &&[u8]| row[index / 8] & bit != 0;
    rows.iter().any(is_null).then(|| {
        NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |row| !is_null(&rows[row])))
    })
}

/// Takes a value's bytes off each row that has one.
fn take_bytes<'a>(
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
        let (value, rest) = split_bytes(row)?;
        values.push(value);
        *row = rest;
    }
    plain_bytes(of, &values, nulls)
}

/// A value's bytes, and what follows them.
fn split_bytes(row: &[u8]) -> PlanResult<(&[u8], &[u8])> {
    let (length, rest) = take_number(row).ok_or_else(damaged)?;
    rest.split_at_checked(length).ok_or_else(damaged)
}

/// A column of these values.
fn plain_bytes(of: &DataType, values: &[&[u8]], nulls: Option<NullBuffer>) -> PlanResult<ArrayRef> {
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
        DataType::Utf8 => Arc::new(text::<i32>(values, nulls)?),
        DataType::LargeUtf8 => Arc::new(text::<i64>(values, nulls)?),
        DataType::Binary => {
            let (offsets, bytes) = joined::<i32>(values)?;
            Arc::new(GenericBinaryArray::try_new(offsets, bytes, nulls)?)
        }
        _ => {
            let (offsets, bytes) = joined::<i64>(values)?;
            Arc::new(GenericBinaryArray::try_new(offsets, bytes, nulls)?)
        }
    })
}

/// Calls `take` with the bytes of each row that has a value and no code.
fn uncoded(column: &ArrayRef, codes: &[u32], take: &mut dyn FnMut(usize, &[u8])) -> PlanResult<()> {
    match codes.contains(&UNCODED) {
        false => Ok(()),
        true => each_bytes(column, &mut |row, value| {
            if codes[row] == UNCODED {
                take(row, value);
            }
        }),
    }
}

/// Writes a value's bytes behind their length.
fn put_bytes(value: &[u8], cursor: &mut usize, into: &mut [u8]) {
    *cursor = put_number(value.len(), *cursor, into);
    into[*cursor..*cursor + value.len()].copy_from_slice(value);
    *cursor += value.len();
}

fn text<O: OffsetSizeTrait>(
    values: &[&[u8]],
    nulls: Option<NullBuffer>,
) -> PlanResult<GenericStringArray<O>> {
    let (offsets, bytes) = joined::<O>(values)?;
    Ok(GenericStringArray::try_new(offsets, bytes, nulls)?)
}

fn joined<O: OffsetSizeTrait>(values: &[&[u8]]) -> PlanResult<(OffsetBuffer<O>, Buffer)> {
    let total: usize = values.iter().map(|value| value.len()).sum();
    if O::from_usize(total).is_none() {
        return Err(external(Error::Internal("text of one batch beyond 2 GiB".into())));
    }
    let mut bytes = Vec::with_capacity(total);
    values.iter().for_each(|value| bytes.extend_from_slice(value));
    Ok((OffsetBuffer::from_lengths(values.iter().map(|value| value.len())), bytes.into()))
}

/// How many bytes a length takes as a LEB128 number.
fn number_bytes(number: usize) -> usize {
    1 + number.max(1).ilog2() as usize / 7
}

/// Writes a length; where what follows is to be.
fn put_number(mut number: usize, mut at: usize, into: &mut [u8]) -> usize {
    while number >= 0x80 {
        into[at] = (number & 0x7f) as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    into[at] = number as u8;
    at + 1
}

/// A length, and what follows it.
fn take_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
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
