//! Spans to arrays: one builder for each type that a value can have.
//!
//! A builder takes a window's spans of its column at once, so that the type is decided once
//! per window and not per value. The loop in it tries [`fast`](crate::fast) and hands what that
//! does not answer (a null, an escape, an unusual spelling, a mistake) to a cold path that
//! asks [`values`](crate::values).

use std::borrow::Cow;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, BinaryType, BinaryViewType, ByteArrayType, ByteViewType, Date32Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, StringViewType,
    Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, GenericByteArray, GenericByteViewArray, PrimitiveArray,
    StringViewArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};

use crate::canonical::{has_zone, is_canonical_float, is_canonical_integer, is_canonical_time};
use crate::fast;
use crate::mismatches::BuiltMismatches;
use crate::span::Span;
use crate::values::{self, Nulls};
use crate::view::{INLINE_BYTES, short_view};

/// How a format reads an escaped span: appends what the bytes stand for; false if they stand for
/// nothing.
pub(crate) type Unescape = Arc<dyn Fn(&[u8], &mut Vec<u8>) -> bool + Send + Sync>;

/// What all columns of a format have in common.
#[derive(Clone)]
pub(crate) struct Context {
    /// Strings that mean null.
    pub(crate) nulls: Nulls,
    /// How escapes are read.
    pub(crate) unescape: Unescape,
    /// Whether a value that is not of its column's type is null, and not a fault.
    pub(crate) mismatch_is_null: bool,
    /// Values of the column being built that became null for that reason.
    pub(crate) mismatches: BuiltMismatches,
    /// Whether `\x0aff` is two bytes in a column of bytes, as this product and PostgreSQL write them.
    pub(crate) has_hex_bytes: bool,
}

/// What stands before bytes that are written as hexadecimal digits.
const HEX_PREFIX: &[u8] = b"\\x";

/// The bytes that hexadecimal digits are, two each; none for another text.
fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    pairs.iter().map(byte).collect()
}

impl Context {
    /// The bytes that a text is in a column of bytes: its own, or those that its digits behind `\x` are.
    pub(crate) fn bytes_of<'a>(&self, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        match value.strip_prefix(HEX_PREFIX).filter(|_| self.has_hex_bytes).and_then(from_hex) {
            Some(bytes) => Cow::Owned(bytes),
            None => value,
        }
    }

    /// Returns whether a value that is not of its column's type becomes null, and counts it if so.
    #[cold]
    pub(crate) fn nullifies(&self, span: Span) -> bool {
        if self.mismatch_is_null {
            self.mismatches.note(span.start());
        }
        self.mismatch_is_null
    }

    /// The value that a span stands for in a column that is no text; none for a null. Where an empty
    /// field means null, it does so in quotes, too: there is no empty number.
    ///
    /// # Errors
    /// Nothing where its escapes stand for nothing.
    #[inline]
    pub(crate) fn value<'a>(
        &self,
        text: &'a [u8],
        span: Span,
    ) -> Result<Option<Cow<'a, [u8]>>, ()> {
        let value = self.text_value(text, span)?;
        Ok(value.filter(|value| !value.is_empty() || !self.nulls.empty()))
    }

    /// The value that a span stands for in a column of text; none for a null. An empty field in
    /// quotes is an empty text, which the span shows by being escaped.
    ///
    /// # Errors
    /// Nothing where its escapes stand for nothing.
    #[inline]
    pub(crate) fn text_value<'a>(
        &self,
        text: &'a [u8],
        span: Span,
    ) -> Result<Option<Cow<'a, [u8]>>, ()> {
        if span.is_null() {
            return Ok(None);
        }
        let raw = span.raw(text);
        let value = if span.is_plain() {
            Cow::Borrowed(raw)
        } else {
            let mut out = Vec::with_capacity(raw.len());
            if !(self.unescape)(raw, &mut out) {
                return Err(());
            }
            Cow::Owned(out)
        };
        let is_quoted_empty = value.is_empty() && !span.is_plain();
        Ok((is_quoted_empty || !self.nulls.contains_bytes(&value)).then_some(value))
    }
}

/// Builds the array of a column.
pub(crate) trait Leaf: Send {
    /// Takes the values of a window.
    ///
    /// # Errors
    /// The first span that is not of the type; an unknown number of values was taken.
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize>;
    /// Forgets all but the first `len` values.
    fn truncate(&mut self, len: usize);
    /// Values taken.
    fn len(&self) -> usize;
    /// Whether an array of more values than these might not be made.
    fn is_full(&self) -> bool {
        false
    }
    /// The array of all values taken, which are forgotten.
    fn finish(&mut self) -> ArrayRef;
}

/// A builder for a type of times of a zone that takes only times that state theirs; none for other types.
pub(crate) fn zoned_leaf(data_type: &DataType, context: &Context) -> Option<Box<dyn Leaf>> {
    match data_type {
        DataType::Timestamp(_, Some(_)) => timestamp_leaf(data_type, context, true),
        _ => None,
    }
}

/// A builder for a type that takes only [`canonical`](crate::canonical) values; none for types that have no others.
pub(crate) fn canonical_leaf(data_type: &DataType, context: &Context) -> Option<Box<dyn Leaf>> {
    let canonical: Option<fn(&[u8]) -> bool> = Some(match data_type {
        DataType::Float64 => is_canonical_float,
        DataType::Time64(_) => is_canonical_time,
        _ => is_canonical_integer,
    });
    Some(match data_type {
        DataType::Int64 => Box::new(Primitive {
            several: crate::simd::canonical_ints,
            canonical,
            ..unboxed::<Int64Type, _>(data_type, context, fast::canonical_int)
        }),
        DataType::UInt64 => Box::new(Primitive {
            canonical,
            ..unboxed::<UInt64Type, _>(data_type, context, |text: &[u8], at, len| {
                u64::try_from(fast::canonical_int(text, at, len)?).ok()
            })
        }),
        DataType::Float64 => Box::new(Primitive {
            several: crate::simd::canonical_floats,
            canonical,
            ..unboxed::<Float64Type, _>(data_type, context, fast::canonical_float)
        }),
        DataType::Time64(TimeUnit::Microsecond) => Box::new(Primitive {
            canonical,
            ..unboxed::<Time64MicrosecondType, _>(data_type, context, fast::canonical_time)
        }),
        _ => return zoned_leaf(data_type, context),
    })
}

/// A builder of doubles that refuses numbers which they do not [represent](values::is_representable_as_double). The fast
/// parsers take only numbers whose digits fit in 53 bits, which they do.
pub(crate) fn representable_floats(context: &Context) -> Box<dyn Leaf> {
    let is_representable =
        |value: &[u8]| std::str::from_utf8(value).is_ok_and(values::is_representable_as_double);
    Box::new(Primitive {
        several: crate::simd::floats,
        canonical: Some(is_representable),
        ..unboxed::<Float64Type, _>(&DataType::Float64, context, fast::float)
    })
}

/// A builder for a type that is no dictionary; none for one that text cannot be read as.
pub(crate) fn leaf(data_type: &DataType, context: &Context) -> Option<Box<dyn Leaf>> {
    use DataType as T;
    Some(match data_type {
        T::Utf8View => Box::new(Views::<StringViewType>::default()),
        T::Utf8 => Box::new(Strings::<Utf8Type>::default()),
        T::BinaryView => Box::new(Views::<BinaryViewType>::default()),
        T::Binary => Box::new(Strings::<BinaryType>::default()),
        T::Boolean => Box::new(Booleans::default()),
        T::Int8 => ints::<Int8Type>(data_type, context),
        T::Int16 => ints::<Int16Type>(data_type, context),
        T::Int32 => ints::<Int32Type>(data_type, context),
        T::Int64 => Box::new(Primitive {
            several: crate::simd::ints,
            ..unboxed::<Int64Type, _>(data_type, context, fast::int)
        }),
        T::UInt8 => ints::<UInt8Type>(data_type, context),
        T::UInt16 => ints::<UInt16Type>(data_type, context),
        T::UInt32 => ints::<UInt32Type>(data_type, context),
        T::UInt64 => ints::<UInt64Type>(data_type, context),
        T::Float32 => primitive::<Float32Type, _>(data_type, context, || {
            // Rounded twice it would not be the nearest: only what is exact in both is taken.
            |text: &[u8], at, len| {
                let wide = fast::float(text, at, len)?;
                #[allow(clippy::cast_possible_truncation)]
                let narrow = wide as f32;
                (f64::from(narrow) == wide).then_some(narrow)
            }
        }),
        T::Float64 => Box::new(Primitive {
            several: crate::simd::floats,
            ..unboxed::<Float64Type, _>(data_type, context, fast::float)
        }),
        T::Date32 => primitive::<Date32Type, _>(data_type, context, || {
            |text: &[u8], at: usize, len: usize| fast::date(text.get(at..at + len)?)
        }),
        T::Timestamp(_, _) => timestamp_leaf(data_type, context, false)?,
        other if values::is_supported(other) => Box::new(Others::new(other.clone())),
        _ => return None,
    })
}

/// A builder for a type of timestamps; none for an unknown zone. With `needs_zone` each value must state its zone.
fn timestamp_leaf(
    data_type: &DataType,
    context: &Context,
    needs_zone: bool,
) -> Option<Box<dyn Leaf>> {
    let DataType::Timestamp(unit, zone) = data_type else { return None };
    if !values::is_supported(data_type) {
        return None;
    }
    let zone = zone.as_deref();
    // A clock without a zone in its text is fast only where no rule has to be asked.
    let is_utc = matches!(zone, Some("UTC" | "Z" | "utc"));
    let rules =
        TimestampRules { reads_zoneless: !needs_zone && (is_utc || zone.is_none()), needs_zone };
    Some(match unit {
        TimeUnit::Second => timestamps::<TimestampSecondType>(data_type, context, 1, rules),
        TimeUnit::Millisecond => {
            timestamps::<TimestampMillisecondType>(data_type, context, 1_000, rules)
        }
        TimeUnit::Microsecond => {
            timestamps::<TimestampMicrosecondType>(data_type, context, 1_000_000, rules)
        }
        TimeUnit::Nanosecond => {
            timestamps::<TimestampNanosecondType>(data_type, context, 1_000_000_000, rules)
        }
    })
}

// ---------------------------------------------------------------------- primitive types

type Several<N> = fn(&[u8], &[Span], &mut [MaybeUninit<N>]) -> usize;

/// A type whose fast parser is `parse`: text, start and length to a value.
struct Primitive<T: ArrowPrimitiveType, F> {
    data_type: DataType,
    values: Vec<T::Native>,
    validity: NullBufferBuilder,
    parse: F,
    /// Takes several values at a time from the front of spans, as many as it can.
    several: Several<T::Native>,
    /// Whether a null string looks like a value of the type, so that it has to be asked for
    /// first.
    nulls_look_like_values: bool,
    /// Tells the spellings that are values, where not every spelling of the type is one.
    canonical: Option<fn(&[u8]) -> bool>,
}

fn primitive<T, F>(
    data_type: &DataType,
    context: &Context,
    parse: impl FnOnce() -> F,
) -> Box<dyn Leaf>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send + 'static,
{
    Box::new(unboxed::<T, F>(data_type, context, parse()))
}

fn unboxed<T, F>(data_type: &DataType, context: &Context, parse: F) -> Primitive<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send,
{
    let look_alike =
        context.nulls.words().any(|word| !word.is_empty() && values::accepts(word, data_type));
    Primitive {
        data_type: data_type.clone(),
        values: Vec::new(),
        validity: NullBufferBuilder::new(0),
        parse,
        several: |_, _, _| 0,
        nulls_look_like_values: look_alike,
        canonical: None,
    }
}

fn ints<T: ArrowPrimitiveType>(data_type: &DataType, context: &Context) -> Box<dyn Leaf>
where
    T::Native: TryFrom<i64>,
{
    primitive::<T, _>(data_type, context, || {
        |text: &[u8], at, len| T::Native::try_from(fast::int(text, at, len)?).ok()
    })
}

/// The rules of a column of timestamps for times that state no zone.
#[derive(Debug, Clone, Copy)]
struct TimestampRules {
    /// The fast parser takes them.
    reads_zoneless: bool,
    /// They are refused.
    needs_zone: bool,
}

fn timestamps<T: ArrowPrimitiveType<Native = i64>>(
    data_type: &DataType,
    context: &Context,
    per_second: i64,
    rules: TimestampRules,
) -> Box<dyn Leaf> {
    let mut day = fast::DayCache::default();
    let parse = move |text: &[u8], at: usize, len: usize| {
        let (seconds, nanos, says_utc) = day.date_time(text.get(at..at + len)?)?;
        if !(rules.reads_zoneless || says_utc) {
            return None;
        }
        let nanos = i64::from(nanos);
        let step = 1_000_000_000 / per_second;
        // What the unit cannot hold is refused, by the careful one.
        (nanos % step == 0).then(|| seconds.checked_mul(per_second)?.checked_add(nanos / step))?
    };
    Box::new(Primitive {
        canonical: rules.needs_zone.then_some(has_zone as fn(&[u8]) -> bool),
        ..unboxed::<T, _>(data_type, context, parse)
    })
}

impl<T, F> Primitive<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send,
{
    /// Takes values up to the first that is not spelled as usual; returns how many.
    #[inline]
    fn fast(&mut self, text: &[u8], spans: &[Span]) -> usize {
        let room = &mut self.values.spare_capacity_mut()[..spans.len()];
        let mut count = 0;
        'all: while count < spans.len() {
            count += (self.several)(text, &spans[count..], &mut room[count..]);
            // What stopped it is among the next eight.
            let end = spans.len().min(count + 8);
            for (span, place) in spans[count..end].iter().zip(&mut room[count..end]) {
                if !span.is_plain() {
                    break 'all;
                }
                let Some(value) = (self.parse)(text, span.start(), span.len()) else { break 'all };
                place.write(value);
                count += 1;
            }
        }
        // SAFETY: so many were written behind the last one.
        unsafe { self.values.set_len(self.values.len() + count) };
        count
    }

    /// What the fast parser left.
    #[cold]
    #[inline(never)]
    fn careful(&mut self, text: &[u8], span: Span, context: &Context) -> Option<()> {
        let native = match context.value(text, span) {
            Ok(None) => None,
            Ok(Some(bytes)) => match self.typed(&bytes) {
                None if context.nullifies(span) => None,
                None => return None,
                native => native,
            },
            Err(()) if context.nullifies(span) => None,
            Err(()) => return None,
        };
        match native {
            Some(native) => {
                self.values.push(native);
                self.validity.append_non_null();
            }
            None => {
                self.values.push(T::default_value());
                self.validity.append_null();
            }
        }
        Some(())
    }

    fn typed(&self, bytes: &[u8]) -> Option<T::Native> {
        if self.canonical.is_some_and(|is_canonical| !is_canonical(bytes)) {
            return None;
        }
        let value = std::str::from_utf8(bytes).ok()?;
        let one = StringViewArray::from_iter_values([value]);
        let array = values::column(&one, &self.data_type, &Nulls::default()).ok()?;
        Some(array.as_any().downcast_ref::<PrimitiveArray<T>>()?.value(0))
    }
}

impl<T, F> Leaf for Primitive<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send,
{
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        self.values.reserve(spans.len());
        let mut at = 0;
        while at < spans.len() {
            let fast = if self.nulls_look_like_values { 0 } else { self.fast(text, &spans[at..]) };
            self.validity.append_n_non_nulls(fast);
            at += fast;
            let Some(&span) = spans.get(at) else { break };
            if span.is_null() || span.is_plain() && span.len() == 0 && context.nulls.empty() {
                self.values.push(T::default_value());
                self.validity.append_null();
            } else {
                self.careful(text, span, context).ok_or(at)?;
            }
            at += 1;
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let values = ScalarBuffer::from(renew(&mut self.values));
        let array = PrimitiveArray::<T>::new(values, self.validity.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

/// Takes the values and leaves room for as many again and an eighth more: the next array will be
/// about as large. Growing it step by step, most of it on pages never used before, was half of
/// the time that an access log with all its columns took.
pub(crate) fn renew<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len() + values.len() / 8;
    std::mem::replace(values, Vec::with_capacity(room))
}

/// Forgets all but the first `len` bits, if there are more.
pub(crate) fn truncate(validity: &mut NullBufferBuilder, len: usize) {
    if validity.len() > len {
        validity.truncate(len);
    }
}

/// A type that a format spells in its own way: `parse` alone decides what is a value.
struct Spelled<T: ArrowPrimitiveType, F> {
    data_type: DataType,
    values: Vec<T::Native>,
    validity: NullBufferBuilder,
    parse: F,
}

/// A builder of `data_type`, which must be `T`'s but for a time zone, from what `parse` makes
/// of each value.
pub(crate) fn spelled<T: ArrowPrimitiveType>(
    data_type: &DataType,
    parse: impl FnMut(&[u8]) -> Option<T::Native> + Send + 'static,
) -> Box<dyn Leaf> {
    Box::new(Spelled::<T, _> {
        data_type: data_type.clone(),
        values: Vec::new(),
        validity: NullBufferBuilder::new(0),
        parse,
    })
}

/// A builder of numbers or Booleans of JSON that refuses them in strings. A null string is null.
pub(crate) fn unquoted(inner: Box<dyn Leaf>) -> Box<dyn Leaf> {
    Box::new(Unquoted { inner })
}

struct Unquoted {
    inner: Box<dyn Leaf>,
}

impl Leaf for Unquoted {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        let Some(first) = spans.iter().position(|span| span.is_in_quotes(text)) else {
            return self.inner.append(text, spans, context);
        };
        let (before, rest) = spans.split_at(first);
        let mut bare = before.to_vec();
        for &span in rest {
            if !span.is_in_quotes(text) {
                bare.push(span);
            } else if matches!(context.value(text, span), Ok(None)) || context.nullifies(span) {
                bare.push(Span::NULL);
            } else {
                // A value before it may be wrong, too.
                self.inner.append(text, &bare, context)?;
                return Err(bare.len());
            }
        }
        self.inner.append(text, &bare, context)
    }

    fn truncate(&mut self, len: usize) {
        self.inner.truncate(len);
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn is_full(&self) -> bool {
        self.inner.is_full()
    }

    fn finish(&mut self) -> ArrayRef {
        self.inner.finish()
    }
}

/// A builder of instants from what `parse` makes of each value: seconds since 1970-01-01 UTC
/// and nanoseconds. None if the type is no timestamp with a zone.
pub(crate) fn instants(
    data_type: &DataType,
    mut parse: impl FnMut(&[u8]) -> Option<(i64, u32)> + Send + 'static,
) -> Option<Box<dyn Leaf>> {
    let DataType::Timestamp(unit, Some(_)) = data_type else { return None };
    if !values::is_supported(data_type) {
        return None;
    }
    let per_second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let step = 1_000_000_000 / per_second;
    let read = move |bytes: &[u8]| {
        let (seconds, nanos) = parse(bytes)?;
        // What the unit cannot hold is refused, as everywhere.
        let nanos = i64::from(nanos);
        (nanos % step == 0).then(|| seconds.checked_mul(per_second)?.checked_add(nanos / step))?
    };
    Some(match unit {
        TimeUnit::Second => spelled::<TimestampSecondType>(data_type, read),
        TimeUnit::Millisecond => spelled::<TimestampMillisecondType>(data_type, read),
        TimeUnit::Microsecond => spelled::<TimestampMicrosecondType>(data_type, read),
        TimeUnit::Nanosecond => spelled::<TimestampNanosecondType>(data_type, read),
    })
}

impl<T, F> Leaf for Spelled<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8]) -> Option<T::Native> + Send,
{
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        self.values.reserve(spans.len());
        for (index, &span) in spans.iter().enumerate() {
            let known = if span.is_plain() { (self.parse)(span.raw(text)) } else { None };
            let value = match known {
                Some(value) => Some(value),
                None => match context.value(text, span) {
                    Ok(None) => None,
                    Ok(Some(bytes)) => match (self.parse)(&bytes) {
                        None if !context.nullifies(span) => return Err(index),
                        value => value,
                    },
                    Err(()) if context.nullifies(span) => None,
                    Err(()) => return Err(index),
                },
            };
            self.values.push(value.unwrap_or_default());
            self.validity.append(value.is_some());
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let values = ScalarBuffer::from(renew(&mut self.values));
        let array = PrimitiveArray::<T>::new(values, self.validity.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

// -------------------------------------------------------------------------------- Booleans

struct Booleans {
    values: BooleanBufferBuilder,
    validity: NullBufferBuilder,
}

impl Default for Booleans {
    fn default() -> Self {
        Self { values: BooleanBufferBuilder::new(0), validity: NullBufferBuilder::new(0) }
    }
}

impl Leaf for Booleans {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        for (index, &span) in spans.iter().enumerate() {
            let known = if span.is_plain() {
                match span.raw(text) {
                    b"true" => Some(true),
                    b"false" => Some(false),
                    _ => None,
                }
            } else {
                None
            };
            let value = match known {
                Some(value) if !context.nulls.has_words() => Some(value),
                _ => match context.value(text, span) {
                    Ok(None) => None,
                    Ok(Some(bytes)) => {
                        let value = std::str::from_utf8(&bytes).ok().and_then(values::boolean);
                        if value.is_none() && !context.nullifies(span) {
                            return Err(index);
                        }
                        value
                    }
                    Err(()) if context.nullifies(span) => None,
                    Err(()) => return Err(index),
                },
            };
            self.values.append(value.unwrap_or(false));
            self.validity.append(value.is_some());
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        if self.values.len() > len {
            self.values.truncate(len);
        }
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(self.values.finish(), self.validity.finish()))
    }
}

// ------------------------------------------------------------------------------------ text

/// Text or bytes as views: up to 12 bytes lie in the view itself.
struct Views<T> {
    _type: PhantomData<T>,
    views: Vec<u128>,
    validity: NullBufferBuilder,
    /// Longer values, in buffers that are full and one that is not.
    full: Vec<Buffer>,
    buffer: Vec<u8>,
}

/// A buffer of longer values is closed when it would grow beyond this: an offset has 32 bits.
const BUFFER_BYTES_MAX: usize = 1 << 30;

impl<T> Default for Views<T> {
    fn default() -> Self {
        Self {
            _type: PhantomData,
            views: Vec::new(),
            validity: NullBufferBuilder::new(0),
            full: Vec::new(),
            buffer: Vec::new(),
        }
    }
}

impl<T> Views<T> {
    #[inline]
    fn push_long(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES_MAX {
            self.full.push(Buffer::from_vec(std::mem::take(&mut self.buffer)));
        }
        // Both stay far below 2^32: a text is at most 2^30 bytes, and so is a buffer.
        #[allow(clippy::cast_possible_truncation)]
        let (block, offset) = (self.full.len() as u32, self.buffer.len() as u32);
        self.buffer.extend_from_slice(bytes);
        self.views.push(arrow_array::builder::make_view(bytes, block, offset));
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        if bytes.len() <= INLINE_BYTES {
            self.views.push(short_view(bytes, 0, bytes.len()));
        } else {
            self.push_long(bytes);
        }
    }
}

impl<T: ByteViewType> Leaf for Views<T> {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        self.views.reserve(spans.len());
        let mut run = 0;
        let (empty, words) = (context.nulls.empty(), context.nulls.has_words());
        let may_be_hex = |span: Span| {
            !T::IS_UTF8 && context.has_hex_bytes && span.raw(text).starts_with(HEX_PREFIX)
        };
        for (index, &span) in spans.iter().enumerate() {
            if span.is_plain() && !may_be_hex(span) {
                let len = span.len();
                if len <= INLINE_BYTES {
                    let view = short_view(text, span.start(), len);
                    if (len > 0 || !empty) && !(words && context.nulls.contains_view(view)) {
                        self.views.push(view);
                        run += 1;
                        continue;
                    }
                } else if !words || !context.nulls.contains_bytes(span.raw(text)) {
                    self.push_long(span.raw(text));
                    run += 1;
                    continue;
                }
            } else if !span.is_null() {
                match context.text_value(text, span) {
                    Ok(Some(bytes)) => {
                        let bytes = if T::IS_UTF8 { bytes } else { context.bytes_of(bytes) };
                        if !T::IS_UTF8 || std::str::from_utf8(&bytes).is_ok() {
                            self.push(&bytes);
                            run += 1;
                            continue;
                        }
                        if !context.nullifies(span) {
                            return Err(index);
                        }
                    }
                    Ok(None) => {}
                    Err(()) if context.nullifies(span) => {}
                    Err(()) => return Err(index),
                }
            }
            self.validity.append_n_non_nulls(std::mem::take(&mut run));
            self.views.push(0);
            self.validity.append_null();
        }
        self.validity.append_n_non_nulls(run);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        // Bytes of forgotten values stay, referred to by nothing.
        self.views.truncate(len);
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.views.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let mut buffers = std::mem::take(&mut self.full);
        if !self.buffer.is_empty() {
            buffers.push(Buffer::from_vec(renew(&mut self.buffer)));
        }
        let views = ScalarBuffer::from(renew(&mut self.views));
        let validity = self.validity.finish();
        // SAFETY: every view was made for the bytes that it refers to, and a window's bytes
        // were checked to be UTF-8 before they came here, between bytes that are ASCII, unless
        // all columns are of bytes.
        Arc::new(unsafe { GenericByteViewArray::<T>::new_unchecked(views, buffers, validity) })
    }
}

/// Text or bytes as one buffer with offsets.
struct Strings<T> {
    _type: PhantomData<T>,
    offsets: Vec<i32>,
    bytes: Vec<u8>,
    validity: NullBufferBuilder,
}

impl<T> Default for Strings<T> {
    fn default() -> Self {
        Self {
            _type: PhantomData,
            offsets: vec![0],
            bytes: Vec::new(),
            validity: NullBufferBuilder::new(0),
        }
    }
}

impl<T: ByteArrayType<Offset = i32>> Leaf for Strings<T> {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        let any_bytes = T::DATA_TYPE == DataType::Binary;
        for (index, &span) in spans.iter().enumerate() {
            let is_whole = |bytes: &[u8]| span.is_plain() || std::str::from_utf8(bytes).is_ok();
            let value = match context.text_value(text, span) {
                Ok(Some(value)) if any_bytes => Some(context.bytes_of(value)),
                Ok(Some(value)) if is_whole(&value) => Some(value),
                Ok(None) => None,
                Ok(_) | Err(()) if context.nullifies(span) => None,
                Ok(_) | Err(()) => return Err(index),
            };
            self.validity.append(value.is_some());
            self.bytes.extend_from_slice(&value.unwrap_or_default());
            self.offsets.push(i32::try_from(self.bytes.len()).map_err(|_| index)?);
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        if let Some(end) = self.offsets.last() {
            self.bytes.truncate(usize::try_from(*end).unwrap_or(0));
        }
        truncate(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn finish(&mut self) -> ArrayRef {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let bytes = Buffer::from_vec(renew(&mut self.bytes));
        // SAFETY: as for views; offsets were counted upwards with the bytes.
        Arc::new(unsafe {
            GenericByteArray::<T>::new_unchecked(offsets, bytes, self.validity.finish())
        })
    }
}

// ---------------------------------------------------------------------------------- others

/// Types that event records seldom have: read as text, then given their type.
struct Others {
    data_type: DataType,
    views: Views<StringViewType>,
    pieces: Vec<ArrayRef>,
    len: usize,
}

impl Others {
    fn new(data_type: DataType) -> Self {
        Self { data_type, views: Views::default(), pieces: Vec::new(), len: 0 }
    }
}

impl Leaf for Others {
    fn append(&mut self, text: &[u8], spans: &[Span], context: &Context) -> Result<(), usize> {
        self.views.append(text, spans, context)?;
        let strings = self.views.finish();
        let strings = strings.as_any().downcast_ref::<StringViewArray>().ok_or(0usize)?;
        // An empty text is a value only of text.
        let nulls = match self.data_type {
            DataType::LargeUtf8 => Nulls::default(),
            _ => Nulls::new(&[], context.nulls.empty()),
        };
        let piece = match values::column(strings, &self.data_type, &nulls) {
            Ok(piece) => piece,
            Err(index) if !context.mismatch_is_null => return Err(index),
            Err(_) => {
                let kept = strings.iter().zip(spans).map(|(value, &span)| {
                    let value = value.filter(|value| !(value.is_empty() && nulls.empty()))?;
                    let is_value = values::accepts(value, &self.data_type);
                    (is_value || !context.nullifies(span)).then_some(value)
                });
                let kept: StringViewArray = kept.collect();
                values::column(&kept, &self.data_type, &nulls)?
            }
        };
        self.len += piece.len();
        self.pieces.push(piece);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        drop(self.views.finish());
        while let Some(last) = self.pieces.last_mut() {
            let over = self.len.saturating_sub(len);
            if over == 0 {
                break;
            }
            if over < last.len() {
                *last = last.slice(0, last.len() - over);
                self.len -= over;
            } else {
                self.len -= last.len();
                self.pieces.pop();
            }
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn finish(&mut self) -> ArrayRef {
        self.len = 0;
        let pieces = std::mem::take(&mut self.pieces);
        let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece.as_ref()).collect();
        match arrow_select::concat::concat(&pieces) {
            Ok(array) => array,
            Err(_) => arrow_array::new_empty_array(&self.data_type),
        }
    }
}
