//! Builders from spans to arrays, one for each type that a value can have.
//!
//! A builder takes all spans that a window has for its column at once, so that the type is dispatched once
//! per window and not per value. Its loop tries [`fast_value_parsing`](crate::fast_value_parsing). Whatever
//! that does not parse (a null, an escape, an unusual spelling, a mistake) goes to a cold path that
//! calls [`value_parsing`](crate::value_parsing).

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

use crate::canonical_spelling::{
    has_time_zone, is_canonical_float, is_canonical_integer, is_canonical_time,
};
use crate::fast_value_parsing;
use crate::inline_views::{VIEW_INLINE_BYTES_MAX, make_inline_view};
use crate::type_mismatches::ColumnMismatchCounter;
use crate::value_parsing::{self, NullStrings};
use crate::value_span::ValueSpan;

/// A format's function for escaped spans: appends the value that the bytes stand for, or returns false if an
/// escape is invalid.
pub(crate) type UnescapeFn = Arc<dyn Fn(&[u8], &mut Vec<u8>) -> bool + Send + Sync>;

/// Settings and counters that all columns of a decoder share.
#[derive(Clone)]
pub(crate) struct DecodingContext {
    /// The strings that mean null.
    pub(crate) nulls: NullStrings,
    /// The function that resolves escapes.
    pub(crate) unescape: UnescapeFn,
    /// True to read a value that is not of its column's type as NULL instead of rejecting its record.
    pub(crate) mismatch_is_null: bool,
    /// Counter of such NULLs in the column that is being built.
    pub(crate) mismatches: ColumnMismatchCounter,
    /// True if `\x0aff` is two bytes in a column of bytes, as this product and PostgreSQL write them.
    pub(crate) reads_hex_bytes: bool,
}

/// The prefix of bytes that are written as hexadecimal digits.
const HEX_PREFIX: &[u8] = b"\\x";

/// Decodes pairs of hexadecimal digits into bytes; returns `None` for other text.
fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    pairs.iter().map(byte).collect()
}

impl DecodingContext {
    /// Returns the bytes that a text stands for in a column of bytes: its own, or those of its digits after
    /// `\x`.
    pub(crate) fn decode_bytes<'a>(&self, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        match value.strip_prefix(HEX_PREFIX).filter(|_| self.reads_hex_bytes).and_then(decode_hex) {
            Some(bytes) => Cow::Owned(bytes),
            None => value,
        }
    }

    /// Returns whether a value that is not of its column's type becomes NULL, and counts it if so.
    #[cold]
    pub(crate) fn nullify_mismatch(&self, span: ValueSpan) -> bool {
        if self.mismatch_is_null {
            self.mismatches.count_mismatch(span.start());
        }
        self.mismatch_is_null
    }

    /// Returns the value of a span in a column that is not text; `None` for a null. Where an empty
    /// field means null, an empty field in quotes does too: there is no empty number.
    ///
    /// # Errors
    /// An escape is invalid.
    #[inline]
    pub(crate) fn scalar_value<'a>(
        &self,
        text: &'a [u8],
        span: ValueSpan,
    ) -> Result<Option<Cow<'a, [u8]>>, ()> {
        let value = self.text_value(text, span)?;
        Ok(value.filter(|value| !value.is_empty() || !self.nulls.contains_empty()))
    }

    /// Returns the value of a span in a column of text; `None` for a null. An empty field in
    /// quotes is an empty text; its span is marked as escaped.
    ///
    /// # Errors
    /// An escape is invalid.
    #[inline]
    pub(crate) fn text_value<'a>(
        &self,
        text: &'a [u8],
        span: ValueSpan,
    ) -> Result<Option<Cow<'a, [u8]>>, ()> {
        if span.is_null() {
            return Ok(None);
        }
        let raw = span.raw_bytes(text);
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

/// A builder of a column's arrays from spans.
pub(crate) trait SpanArrayBuilder: Send {
    /// Appends the values of a window.
    ///
    /// # Errors
    /// Index of the first span that is not of the type; the number of appended values is then unspecified.
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize>;
    /// Drops all but the first `len` values.
    fn truncate(&mut self, len: usize);
    /// Returns the number of appended values.
    fn len(&self) -> usize;
    /// Returns whether an array of more values might be impossible.
    fn is_full(&self) -> bool {
        false
    }
    /// Returns the array of all appended values and clears the builder.
    fn finish(&mut self) -> ArrayRef;
}

/// Returns a builder for timestamps with a zone that takes only times that state theirs; `None` for other
/// types.
pub(crate) fn new_zoned_timestamp_builder(
    data_type: &DataType,
    context: &DecodingContext,
) -> Option<Box<dyn SpanArrayBuilder>> {
    match data_type {
        DataType::Timestamp(_, Some(_)) => new_timestamp_builder(data_type, context, true),
        _ => None,
    }
}

/// Returns a builder that takes only [canonical](crate::canonical_spelling) values; `None` for types that
/// have no other spellings.
pub(crate) fn new_canonical_builder(
    data_type: &DataType,
    context: &DecodingContext,
) -> Option<Box<dyn SpanArrayBuilder>> {
    let canonical: Option<fn(&[u8]) -> bool> = Some(match data_type {
        DataType::Float64 => is_canonical_float,
        DataType::Time64(_) => is_canonical_time,
        _ => is_canonical_integer,
    });
    Some(match data_type {
        DataType::Int64 => Box::new(PrimitiveSpanBuilder {
            parse_several: crate::simd::parse_canonical_ints,
            is_canonical: canonical,
            ..primitive_builder::<Int64Type, _>(
                data_type,
                context,
                fast_value_parsing::parse_canonical_int,
            )
        }),
        DataType::UInt64 => Box::new(PrimitiveSpanBuilder {
            is_canonical: canonical,
            ..primitive_builder::<UInt64Type, _>(data_type, context, |text: &[u8], at, len| {
                u64::try_from(fast_value_parsing::parse_canonical_int(text, at, len)?).ok()
            })
        }),
        DataType::Float64 => Box::new(PrimitiveSpanBuilder {
            parse_several: crate::simd::parse_canonical_floats,
            is_canonical: canonical,
            ..primitive_builder::<Float64Type, _>(
                data_type,
                context,
                fast_value_parsing::parse_canonical_float,
            )
        }),
        DataType::Time64(TimeUnit::Microsecond) => Box::new(PrimitiveSpanBuilder {
            is_canonical: canonical,
            ..primitive_builder::<Time64MicrosecondType, _>(
                data_type,
                context,
                fast_value_parsing::parse_canonical_time,
            )
        }),
        _ => return new_zoned_timestamp_builder(data_type, context),
    })
}

/// Returns a builder of doubles that refuses numbers which a double does not
/// [represent](value_parsing::is_representable_as_double). The fast parsers take only numbers whose digits
/// fit in 53 bits, which a double does represent.
pub(crate) fn new_representable_float_builder(
    context: &DecodingContext,
) -> Box<dyn SpanArrayBuilder> {
    let is_representable = |value: &[u8]| {
        std::str::from_utf8(value).is_ok_and(value_parsing::is_representable_as_double)
    };
    Box::new(PrimitiveSpanBuilder {
        parse_several: crate::simd::parse_floats,
        is_canonical: Some(is_representable),
        ..primitive_builder::<Float64Type, _>(
            &DataType::Float64,
            context,
            fast_value_parsing::parse_float,
        )
    })
}

/// Returns a builder for a type other than a dictionary; `None` for a type that text cannot be read as.
pub(crate) fn new_array_builder(
    data_type: &DataType,
    context: &DecodingContext,
) -> Option<Box<dyn SpanArrayBuilder>> {
    use DataType as T;
    Some(match data_type {
        T::Utf8View => Box::new(ViewSpanBuilder::<StringViewType>::default()),
        T::Utf8 => Box::new(OffsetSpanBuilder::<Utf8Type>::default()),
        T::BinaryView => Box::new(ViewSpanBuilder::<BinaryViewType>::default()),
        T::Binary => Box::new(OffsetSpanBuilder::<BinaryType>::default()),
        T::Boolean => Box::new(BooleanSpanBuilder::default()),
        T::Int8 => boxed_int_builder::<Int8Type>(data_type, context),
        T::Int16 => boxed_int_builder::<Int16Type>(data_type, context),
        T::Int32 => boxed_int_builder::<Int32Type>(data_type, context),
        T::Int64 => Box::new(PrimitiveSpanBuilder {
            parse_several: crate::simd::parse_ints,
            ..primitive_builder::<Int64Type, _>(data_type, context, fast_value_parsing::parse_int)
        }),
        T::UInt8 => boxed_int_builder::<UInt8Type>(data_type, context),
        T::UInt16 => boxed_int_builder::<UInt16Type>(data_type, context),
        T::UInt32 => boxed_int_builder::<UInt32Type>(data_type, context),
        T::UInt64 => boxed_int_builder::<UInt64Type>(data_type, context),
        T::Float32 => boxed_primitive_builder::<Float32Type, _>(data_type, context, || {
            // Rounding twice would not give the nearest value, so only values that are exact in both types
            // pass.
            |text: &[u8], at, len| {
                let wide = fast_value_parsing::parse_float(text, at, len)?;
                #[allow(clippy::cast_possible_truncation)]
                let narrow = wide as f32;
                (f64::from(narrow) == wide).then_some(narrow)
            }
        }),
        T::Float64 => Box::new(PrimitiveSpanBuilder {
            parse_several: crate::simd::parse_floats,
            ..primitive_builder::<Float64Type, _>(
                data_type,
                context,
                fast_value_parsing::parse_float,
            )
        }),
        T::Date32 => boxed_primitive_builder::<Date32Type, _>(data_type, context, || {
            |text: &[u8], at: usize, len: usize| {
                fast_value_parsing::parse_date(text.get(at..at + len)?)
            }
        }),
        T::Timestamp(_, _) => new_timestamp_builder(data_type, context, false)?,
        other if value_parsing::is_supported_type(other) => {
            Box::new(TextCastBuilder::new(other.clone()))
        }
        _ => return None,
    })
}

/// Returns a builder for a type of timestamps; `None` for an unknown zone. With `needs_zone` each value must
/// state its zone.
fn new_timestamp_builder(
    data_type: &DataType,
    context: &DecodingContext,
    needs_zone: bool,
) -> Option<Box<dyn SpanArrayBuilder>> {
    let DataType::Timestamp(unit, zone) = data_type else { return None };
    if !value_parsing::is_supported_type(data_type) {
        return None;
    }
    let zone = zone.as_deref();
    // The fast parser takes a time without a zone only if no zone rule applies.
    let is_utc = matches!(zone, Some("UTC" | "Z" | "utc"));
    let rules = TimestampRules {
        parses_zoneless_fast: !needs_zone && (is_utc || zone.is_none()),
        needs_zone,
    };
    Some(match unit {
        TimeUnit::Second => {
            timestamp_builder_of_unit::<TimestampSecondType>(data_type, context, 1, rules)
        }
        TimeUnit::Millisecond => {
            timestamp_builder_of_unit::<TimestampMillisecondType>(data_type, context, 1_000, rules)
        }
        TimeUnit::Microsecond => timestamp_builder_of_unit::<TimestampMicrosecondType>(
            data_type, context, 1_000_000, rules,
        ),
        TimeUnit::Nanosecond => timestamp_builder_of_unit::<TimestampNanosecondType>(
            data_type,
            context,
            1_000_000_000,
            rules,
        ),
    })
}

// ---------------------------------------------------------------------- primitive types

type BulkParser<N> = fn(&[u8], &[ValueSpan], &mut [MaybeUninit<N>]) -> usize;

/// A builder of a primitive type whose fast parser is `parse`: text, start and length to a value.
struct PrimitiveSpanBuilder<T: ArrowPrimitiveType, F> {
    data_type: DataType,
    values: Vec<T::Native>,
    validity: NullBufferBuilder,
    parse: F,
    /// Parses several values at a time from the front of the spans, as many as it can.
    parse_several: BulkParser<T::Native>,
    /// True if a null string looks like a value of the type, so that the builder must check for nulls
    /// first.
    nulls_look_like_values: bool,
    /// Accepts the spellings that are values, if the column does not take every spelling of the type.
    is_canonical: Option<fn(&[u8]) -> bool>,
}

fn boxed_primitive_builder<T, F>(
    data_type: &DataType,
    context: &DecodingContext,
    parse: impl FnOnce() -> F,
) -> Box<dyn SpanArrayBuilder>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send + 'static,
{
    Box::new(primitive_builder::<T, F>(data_type, context, parse()))
}

fn primitive_builder<T, F>(
    data_type: &DataType,
    context: &DecodingContext,
    parse: F,
) -> PrimitiveSpanBuilder<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send,
{
    let look_alike = context
        .nulls
        .words()
        .any(|word| !word.is_empty() && value_parsing::can_parse_as(word, data_type));
    PrimitiveSpanBuilder {
        data_type: data_type.clone(),
        values: Vec::new(),
        validity: NullBufferBuilder::new(0),
        parse,
        parse_several: |_, _, _| 0,
        nulls_look_like_values: look_alike,
        is_canonical: None,
    }
}

fn boxed_int_builder<T: ArrowPrimitiveType>(
    data_type: &DataType,
    context: &DecodingContext,
) -> Box<dyn SpanArrayBuilder>
where
    T::Native: TryFrom<i64>,
{
    boxed_primitive_builder::<T, _>(data_type, context, || {
        |text: &[u8], at, len| {
            T::Native::try_from(fast_value_parsing::parse_int(text, at, len)?).ok()
        }
    })
}

/// Rules of a timestamp column for times that state no zone.
#[derive(Debug, Clone, Copy)]
struct TimestampRules {
    /// True if the fast parser takes such times.
    parses_zoneless_fast: bool,
    /// True if the column refuses such times.
    needs_zone: bool,
}

fn timestamp_builder_of_unit<T: ArrowPrimitiveType<Native = i64>>(
    data_type: &DataType,
    context: &DecodingContext,
    per_second: i64,
    rules: TimestampRules,
) -> Box<dyn SpanArrayBuilder> {
    let mut day = fast_value_parsing::DayCache::default();
    let parse = move |text: &[u8], at: usize, len: usize| {
        let (seconds, nanos, says_utc) = day.parse_date_time(text.get(at..at + len)?)?;
        if !(rules.parses_zoneless_fast || says_utc) {
            return None;
        }
        let nanos = i64::from(nanos);
        let step = 1_000_000_000 / per_second;
        // The careful parser refuses a time that the unit cannot hold.
        (nanos % step == 0).then(|| seconds.checked_mul(per_second)?.checked_add(nanos / step))?
    };
    Box::new(PrimitiveSpanBuilder {
        is_canonical: rules.needs_zone.then_some(has_time_zone as fn(&[u8]) -> bool),
        ..primitive_builder::<T, _>(data_type, context, parse)
    })
}

impl<T, F> PrimitiveSpanBuilder<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send,
{
    /// Appends values up to the first with an unusual spelling; returns their number.
    #[inline]
    fn append_fast(&mut self, text: &[u8], spans: &[ValueSpan]) -> usize {
        let room = &mut self.values.spare_capacity_mut()[..spans.len()];
        let mut count = 0;
        'all: while count < spans.len() {
            count += (self.parse_several)(text, &spans[count..], &mut room[count..]);
            // The span that stopped it is among the next eight.
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
        // SAFETY: the loop wrote `count` values after the last one.
        unsafe { self.values.set_len(self.values.len() + count) };
        count
    }

    /// Appends a value that the fast parser left.
    #[cold]
    #[inline(never)]
    fn append_carefully(
        &mut self,
        text: &[u8],
        span: ValueSpan,
        context: &DecodingContext,
    ) -> Option<()> {
        let native = match context.scalar_value(text, span) {
            Ok(None) => None,
            Ok(Some(bytes)) => match self.parse_value(&bytes) {
                None if context.nullify_mismatch(span) => None,
                None => return None,
                native => native,
            },
            Err(()) if context.nullify_mismatch(span) => None,
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

    fn parse_value(&self, bytes: &[u8]) -> Option<T::Native> {
        if self.is_canonical.is_some_and(|is_canonical| !is_canonical(bytes)) {
            return None;
        }
        let value = std::str::from_utf8(bytes).ok()?;
        let one = StringViewArray::from_iter_values([value]);
        let array =
            value_parsing::parse_column_with_nulls(&one, &self.data_type, &NullStrings::default())
                .ok()?;
        Some(array.as_any().downcast_ref::<PrimitiveArray<T>>()?.value(0))
    }
}

impl<T, F> SpanArrayBuilder for PrimitiveSpanBuilder<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8], usize, usize) -> Option<T::Native> + Send,
{
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        self.values.reserve(spans.len());
        let mut at = 0;
        while at < spans.len() {
            let fast =
                if self.nulls_look_like_values { 0 } else { self.append_fast(text, &spans[at..]) };
            self.validity.append_n_non_nulls(fast);
            at += fast;
            let Some(&span) = spans.get(at) else { break };
            if span.is_null()
                || span.is_plain() && span.len() == 0 && context.nulls.contains_empty()
            {
                self.values.push(T::default_value());
                self.validity.append_null();
            } else {
                self.append_carefully(text, span, context).ok_or(at)?;
            }
            at += 1;
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
        truncate_validity(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let values = ScalarBuffer::from(take_and_reserve(&mut self.values));
        let array = PrimitiveArray::<T>::new(values, self.validity.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

/// Returns the values and leaves a vector with room for as many again and an eighth more: the next array will
/// be about as large. Growing it step by step, mostly on pages never used before, took half of
/// the time for an access log with all its columns.
pub(crate) fn take_and_reserve<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len() + values.len() / 8;
    std::mem::replace(values, Vec::with_capacity(room))
}

/// Drops all but the first `len` bits, if there are more.
pub(crate) fn truncate_validity(validity: &mut NullBufferBuilder, len: usize) {
    if validity.len() > len {
        validity.truncate(len);
    }
}

/// A builder of a type that a format spells in its own way: `parse` alone decides whether a text is a value.
struct CustomSpellingBuilder<T: ArrowPrimitiveType, F> {
    data_type: DataType,
    values: Vec<T::Native>,
    validity: NullBufferBuilder,
    parse: F,
}

/// Returns a builder of `data_type`, which must be `T`'s apart from a time zone, that parses each value with
/// `parse`.
pub(crate) fn new_custom_spelling_builder<T: ArrowPrimitiveType>(
    data_type: &DataType,
    parse: impl FnMut(&[u8]) -> Option<T::Native> + Send + 'static,
) -> Box<dyn SpanArrayBuilder> {
    Box::new(CustomSpellingBuilder::<T, _> {
        data_type: data_type.clone(),
        values: Vec::new(),
        validity: NullBufferBuilder::new(0),
        parse,
    })
}

/// Returns a builder of JSON numbers or Booleans that refuses them in strings. A null string is null.
pub(crate) fn new_unquoted_builder(inner: Box<dyn SpanArrayBuilder>) -> Box<dyn SpanArrayBuilder> {
    Box::new(UnquotedValueBuilder { inner })
}

struct UnquotedValueBuilder {
    inner: Box<dyn SpanArrayBuilder>,
}

impl SpanArrayBuilder for UnquotedValueBuilder {
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        let Some(first) = spans.iter().position(|span| span.is_in_quotes(text)) else {
            return self.inner.append(text, spans, context);
        };
        let (before, rest) = spans.split_at(first);
        let mut bare = before.to_vec();
        for &span in rest {
            if !span.is_in_quotes(text) {
                bare.push(span);
            } else if matches!(context.scalar_value(text, span), Ok(None))
                || context.nullify_mismatch(span)
            {
                bare.push(ValueSpan::NULL);
            } else {
                // A value before it may be wrong too.
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

/// Returns a builder of instants from `parse`, which returns seconds since 1970-01-01 UTC
/// and nanoseconds. Returns `None` if the type is not a timestamp with a zone.
pub(crate) fn new_instant_builder(
    data_type: &DataType,
    mut parse: impl FnMut(&[u8]) -> Option<(i64, u32)> + Send + 'static,
) -> Option<Box<dyn SpanArrayBuilder>> {
    let DataType::Timestamp(unit, Some(_)) = data_type else { return None };
    if !value_parsing::is_supported_type(data_type) {
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
        // The builder refuses an instant that the unit cannot hold, as all timestamp columns do.
        let nanos = i64::from(nanos);
        (nanos % step == 0).then(|| seconds.checked_mul(per_second)?.checked_add(nanos / step))?
    };
    Some(match unit {
        TimeUnit::Second => new_custom_spelling_builder::<TimestampSecondType>(data_type, read),
        TimeUnit::Millisecond => {
            new_custom_spelling_builder::<TimestampMillisecondType>(data_type, read)
        }
        TimeUnit::Microsecond => {
            new_custom_spelling_builder::<TimestampMicrosecondType>(data_type, read)
        }
        TimeUnit::Nanosecond => {
            new_custom_spelling_builder::<TimestampNanosecondType>(data_type, read)
        }
    })
}

impl<T, F> SpanArrayBuilder for CustomSpellingBuilder<T, F>
where
    T: ArrowPrimitiveType,
    F: FnMut(&[u8]) -> Option<T::Native> + Send,
{
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        self.values.reserve(spans.len());
        for (index, &span) in spans.iter().enumerate() {
            let known = if span.is_plain() { (self.parse)(span.raw_bytes(text)) } else { None };
            let value = match known {
                Some(value) => Some(value),
                None => match context.scalar_value(text, span) {
                    Ok(None) => None,
                    Ok(Some(bytes)) => match (self.parse)(&bytes) {
                        None if !context.nullify_mismatch(span) => return Err(index),
                        value => value,
                    },
                    Err(()) if context.nullify_mismatch(span) => None,
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
        truncate_validity(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let values = ScalarBuffer::from(take_and_reserve(&mut self.values));
        let array = PrimitiveArray::<T>::new(values, self.validity.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

// -------------------------------------------------------------------------------- Booleans

struct BooleanSpanBuilder {
    values: BooleanBufferBuilder,
    validity: NullBufferBuilder,
}

impl Default for BooleanSpanBuilder {
    fn default() -> Self {
        Self { values: BooleanBufferBuilder::new(0), validity: NullBufferBuilder::new(0) }
    }
}

impl SpanArrayBuilder for BooleanSpanBuilder {
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        for (index, &span) in spans.iter().enumerate() {
            let known = if span.is_plain() {
                match span.raw_bytes(text) {
                    b"true" => Some(true),
                    b"false" => Some(false),
                    _ => None,
                }
            } else {
                None
            };
            let value = match known {
                Some(value) if !context.nulls.has_words() => Some(value),
                _ => match context.scalar_value(text, span) {
                    Ok(None) => None,
                    Ok(Some(bytes)) => {
                        let value =
                            std::str::from_utf8(&bytes).ok().and_then(value_parsing::parse_boolean);
                        if value.is_none() && !context.nullify_mismatch(span) {
                            return Err(index);
                        }
                        value
                    }
                    Err(()) if context.nullify_mismatch(span) => None,
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
        truncate_validity(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(self.values.finish(), self.validity.finish()))
    }
}

// ------------------------------------------------------------------------------------ text

/// A builder of text or bytes as views: a view itself stores up to 12 bytes.
struct ViewSpanBuilder<T> {
    _type: PhantomData<T>,
    views: Vec<u128>,
    validity: NullBufferBuilder,
    /// Full buffers of longer values, and the open one.
    full_buffers: Vec<Buffer>,
    open_buffer: Vec<u8>,
}

/// Maximum size of a buffer of longer values: an offset has 32 bits.
const VIEW_BUFFER_BYTES_MAX: usize = 1 << 30;

impl<T> Default for ViewSpanBuilder<T> {
    fn default() -> Self {
        Self {
            _type: PhantomData,
            views: Vec::new(),
            validity: NullBufferBuilder::new(0),
            full_buffers: Vec::new(),
            open_buffer: Vec::new(),
        }
    }
}

impl<T> ViewSpanBuilder<T> {
    #[inline]
    fn push_long(&mut self, bytes: &[u8]) {
        if self.open_buffer.len() + bytes.len() > VIEW_BUFFER_BYTES_MAX {
            self.full_buffers.push(Buffer::from_vec(std::mem::take(&mut self.open_buffer)));
        }
        // Both stay far below 2^32: a text is at most 2^30 bytes, and so is a buffer.
        #[allow(clippy::cast_possible_truncation)]
        let (block, offset) = (self.full_buffers.len() as u32, self.open_buffer.len() as u32);
        self.open_buffer.extend_from_slice(bytes);
        self.views.push(arrow_array::builder::make_view(bytes, block, offset));
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        if bytes.len() <= VIEW_INLINE_BYTES_MAX {
            self.views.push(make_inline_view(bytes, 0, bytes.len()));
        } else {
            self.push_long(bytes);
        }
    }
}

impl<T: ByteViewType> SpanArrayBuilder for ViewSpanBuilder<T> {
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        self.views.reserve(spans.len());
        let mut run = 0;
        let (empty, words) = (context.nulls.contains_empty(), context.nulls.has_words());
        let may_be_hex = |span: ValueSpan| {
            !T::IS_UTF8 && context.reads_hex_bytes && span.raw_bytes(text).starts_with(HEX_PREFIX)
        };
        for (index, &span) in spans.iter().enumerate() {
            if span.is_plain() && !may_be_hex(span) {
                let len = span.len();
                if len <= VIEW_INLINE_BYTES_MAX {
                    let view = make_inline_view(text, span.start(), len);
                    if (len > 0 || !empty) && !(words && context.nulls.contains_view(view)) {
                        self.views.push(view);
                        run += 1;
                        continue;
                    }
                } else if !words || !context.nulls.contains_bytes(span.raw_bytes(text)) {
                    self.push_long(span.raw_bytes(text));
                    run += 1;
                    continue;
                }
            } else if !span.is_null() {
                match context.text_value(text, span) {
                    Ok(Some(bytes)) => {
                        let bytes = if T::IS_UTF8 { bytes } else { context.decode_bytes(bytes) };
                        if !T::IS_UTF8 || std::str::from_utf8(&bytes).is_ok() {
                            self.push(&bytes);
                            run += 1;
                            continue;
                        }
                        if !context.nullify_mismatch(span) {
                            return Err(index);
                        }
                    }
                    Ok(None) => {}
                    Err(()) if context.nullify_mismatch(span) => {}
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
        // The bytes of dropped values stay, without a view.
        self.views.truncate(len);
        truncate_validity(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.views.len()
    }

    fn finish(&mut self) -> ArrayRef {
        let mut buffers = std::mem::take(&mut self.full_buffers);
        if !self.open_buffer.is_empty() {
            buffers.push(Buffer::from_vec(take_and_reserve(&mut self.open_buffer)));
        }
        let views = ScalarBuffer::from(take_and_reserve(&mut self.views));
        let validity = self.validity.finish();
        // SAFETY: every view was made for the bytes that it refers to. The decoder checked that a window's
        // bytes are UTF-8 before they came here, and separators are ASCII, unless all columns are
        // of bytes.
        Arc::new(unsafe { GenericByteViewArray::<T>::new_unchecked(views, buffers, validity) })
    }
}

/// A builder of text or bytes as one buffer with offsets.
struct OffsetSpanBuilder<T> {
    _type: PhantomData<T>,
    offsets: Vec<i32>,
    bytes: Vec<u8>,
    validity: NullBufferBuilder,
}

impl<T> Default for OffsetSpanBuilder<T> {
    fn default() -> Self {
        Self {
            _type: PhantomData,
            offsets: vec![0],
            bytes: Vec::new(),
            validity: NullBufferBuilder::new(0),
        }
    }
}

impl<T: ByteArrayType<Offset = i32>> SpanArrayBuilder for OffsetSpanBuilder<T> {
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        let any_bytes = T::DATA_TYPE == DataType::Binary;
        for (index, &span) in spans.iter().enumerate() {
            let is_whole = |bytes: &[u8]| span.is_plain() || std::str::from_utf8(bytes).is_ok();
            let value = match context.text_value(text, span) {
                Ok(Some(value)) if any_bytes => Some(context.decode_bytes(value)),
                Ok(Some(value)) if is_whole(&value) => Some(value),
                Ok(None) => None,
                Ok(_) | Err(()) if context.nullify_mismatch(span) => None,
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
        truncate_validity(&mut self.validity, len);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn finish(&mut self) -> ArrayRef {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let bytes = Buffer::from_vec(take_and_reserve(&mut self.bytes));
        // SAFETY: as for views; the offsets ascend with the bytes.
        Arc::new(unsafe {
            GenericByteArray::<T>::new_unchecked(offsets, bytes, self.validity.finish())
        })
    }
}

// ---------------------------------------------------------------------------------- others

/// A builder of types that event records seldom have: it collects text and then casts it to the type.
struct TextCastBuilder {
    data_type: DataType,
    text_builder: ViewSpanBuilder<StringViewType>,
    window_arrays: Vec<ArrayRef>,
    len: usize,
}

impl TextCastBuilder {
    fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            text_builder: ViewSpanBuilder::default(),
            window_arrays: Vec::new(),
            len: 0,
        }
    }
}

impl SpanArrayBuilder for TextCastBuilder {
    fn append(
        &mut self,
        text: &[u8],
        spans: &[ValueSpan],
        context: &DecodingContext,
    ) -> Result<(), usize> {
        self.text_builder.append(text, spans, context)?;
        let strings = self.text_builder.finish();
        let strings = strings.as_any().downcast_ref::<StringViewArray>().ok_or(0usize)?;
        // An empty text is a value only in a text column.
        let nulls = match self.data_type {
            DataType::LargeUtf8 => NullStrings::default(),
            _ => NullStrings::new(&[], context.nulls.contains_empty()),
        };
        let piece = match value_parsing::parse_column_with_nulls(strings, &self.data_type, &nulls) {
            Ok(piece) => piece,
            Err(index) if !context.mismatch_is_null => return Err(index),
            Err(_) => {
                let kept = strings.iter().zip(spans).map(|(value, &span)| {
                    let value =
                        value.filter(|value| !(value.is_empty() && nulls.contains_empty()))?;
                    let is_value = value_parsing::can_parse_as(value, &self.data_type);
                    (is_value || !context.nullify_mismatch(span)).then_some(value)
                });
                let kept: StringViewArray = kept.collect();
                value_parsing::parse_column_with_nulls(&kept, &self.data_type, &nulls)?
            }
        };
        self.len += piece.len();
        self.window_arrays.push(piece);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        drop(self.text_builder.finish());
        while let Some(last) = self.window_arrays.last_mut() {
            let over = self.len.saturating_sub(len);
            if over == 0 {
                break;
            }
            if over < last.len() {
                *last = last.slice(0, last.len() - over);
                self.len -= over;
            } else {
                self.len -= last.len();
                self.window_arrays.pop();
            }
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn finish(&mut self) -> ArrayRef {
        self.len = 0;
        let pieces = std::mem::take(&mut self.window_arrays);
        let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece.as_ref()).collect();
        match arrow_select::concat::concat(&pieces) {
            Ok(array) => array,
            Err(_) => arrow_array::new_empty_array(&self.data_type),
        }
    }
}
