//! Encoding of several columns as one key, whose byte order is the requested order.
//!
//! | column | bytes |
//! | --- | --- |
//! | any | a byte that puts nulls first (0 before 1) or last (1 before 2) |
//! | unsigned | big-endian |
//! | signed, timestamps | big-endian, the sign bit flipped |
//! | floats | the sign bit flipped where it is clear, all bits where it is set (−0 before 0, NaN at the ends: IEEE 754's total order) |
//! | text, binary | each zero as `00 FF`, then `00 00` |
//!
//! A descending column has the bytes of its value inverted, not those of its null byte.

/// Position of the nulls of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NullPlacement {
    /// Before every value.
    First,
    /// Behind every value.
    #[default]
    Last,
}

/// Order of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyColumnOrder {
    /// True if the greatest value comes first. Default: no.
    pub descending: bool,
    /// Position of nulls, regardless of `descending`. Default: last.
    pub nulls: NullPlacement,
}

/// Builds the records of [`crate::record_order::EncodedKeyOrder`]: the key columns first, then the payload.
///
/// ```
/// use tidemill_sort::key_encoder::{KeyColumnOrder, KeyEncoder};
///
/// let mut encoder = KeyEncoder::default();
/// let (mut low, mut high) = (Vec::new(), Vec::new());
/// encoder.push_i64(KeyColumnOrder::default(), Some(-3));
/// encoder.finish_record(b"payload", &mut low);
/// encoder.push_i64(KeyColumnOrder::default(), Some(4));
/// encoder.finish_record(b"payload", &mut high);
/// assert!(low < high);
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeyEncoder {
    key: Vec<u8>,
}

impl KeyEncoder {
    fn push_null_byte(&mut self, column: KeyColumnOrder, valid: bool) -> bool {
        self.key.push(match (valid, column.nulls) {
            (false, NullPlacement::First) => 0,
            (true, _) => 1,
            (false, NullPlacement::Last) => 2,
        });
        valid
    }

    fn push_value_bytes(&mut self, column: KeyColumnOrder, bytes: &[u8]) {
        let flip = if column.descending { 0xFF } else { 0 };
        self.key.extend(bytes.iter().map(|byte| byte ^ flip));
    }

    /// Appends a signed number, a date or a timestamp.
    pub fn push_i64(&mut self, column: KeyColumnOrder, value: Option<i64>) {
        if self.push_null_byte(column, value.is_some()) {
            let bits = value.unwrap_or_default().cast_unsigned() ^ (1 << 63);
            self.push_value_bytes(column, &bits.to_be_bytes());
        }
    }

    /// Appends an unsigned number.
    pub fn push_u64(&mut self, column: KeyColumnOrder, value: Option<u64>) {
        if self.push_null_byte(column, value.is_some()) {
            self.push_value_bytes(column, &value.unwrap_or_default().to_be_bytes());
        }
    }

    /// Appends a number of 128 bits, such as a decimal.
    pub fn push_i128(&mut self, column: KeyColumnOrder, value: Option<i128>) {
        if self.push_null_byte(column, value.is_some()) {
            let bits = value.unwrap_or_default().cast_unsigned() ^ (1 << 127);
            self.push_value_bytes(column, &bits.to_be_bytes());
        }
    }

    /// Appends a float, in IEEE 754's total order.
    pub fn push_f64(&mut self, column: KeyColumnOrder, value: Option<f64>) {
        if self.push_null_byte(column, value.is_some()) {
            let bits = value.unwrap_or_default().to_bits();
            let flipped = if bits >> 63 == 1 { !bits } else { bits ^ (1 << 63) };
            self.push_value_bytes(column, &flipped.to_be_bytes());
        }
    }

    /// Appends a boolean; false precedes true.
    pub fn push_bool(&mut self, column: KeyColumnOrder, value: Option<bool>) {
        if self.push_null_byte(column, value.is_some()) {
            self.push_value_bytes(column, &[u8::from(value.unwrap_or_default())]);
        }
    }

    /// Appends text or binary, in byte order.
    pub fn push_bytes(&mut self, column: KeyColumnOrder, value: Option<&[u8]>) {
        if self.push_null_byte(column, value.is_some()) {
            let mut rest = value.unwrap_or_default();
            while let Some(zero) = memchr::memchr(0, rest) {
                self.push_value_bytes(column, &rest[..zero]);
                self.push_value_bytes(column, &[0, 0xFF]);
                rest = &rest[zero + 1..];
            }
            self.push_value_bytes(column, rest);
            self.push_value_bytes(column, &[0, 0]);
        }
    }

    /// Appends a record to `record`: the columns pushed since the last one, and then the payload.
    pub fn finish_record(&mut self, payload: &[u8], record: &mut Vec<u8>) {
        // A key of 4 GiB is refused like any record that is too long.
        let length = u32::try_from(self.key.len()).unwrap_or(u32::MAX);
        record.extend_from_slice(&length.to_le_bytes());
        record.append(&mut self.key);
        record.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyColumnOrder, KeyEncoder, NullPlacement};
    use crate::record_order::{EncodedKeyOrder, RecordOrder};
    use proptest::prelude::*;
    use std::cmp::Ordering;

    type Row = (Option<i64>, Option<Vec<u8>>, Option<f64>, Option<bool>);

    fn compare_column<T>(
        column: KeyColumnOrder,
        a: Option<&T>,
        b: Option<&T>,
        compare: impl Fn(&T, &T) -> Ordering,
    ) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) if column.nulls == NullPlacement::First => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => compare_column(column, b, a, compare).reverse(),
            (Some(a), Some(b)) if column.descending => compare(b, a),
            (Some(a), Some(b)) => compare(a, b),
        }
    }

    fn column() -> impl Strategy<Value = KeyColumnOrder> {
        (any::<bool>(), any::<bool>()).prop_map(|(descending, first)| KeyColumnOrder {
            descending,
            nulls: if first { NullPlacement::First } else { NullPlacement::Last },
        })
    }

    fn row() -> impl Strategy<Value = Row> {
        let text = prop::collection::vec(prop_oneof![Just(0u8), Just(0xFF), 0..3u8], 0..12);
        (
            prop::option::of(prop_oneof![any::<i64>(), -2..2i64]),
            prop::option::of(text),
            prop::option::of(any::<f64>()),
            prop::option::of(any::<bool>()),
        )
    }

    proptest! {
        #[test]
        fn keys_order_as_their_columns_do(columns in prop::array::uniform4(column()), a in row(), b in row()) {
            let encode = |row: &Row| {
                let mut encoder = KeyEncoder::default();
                encoder.push_i64(columns[0], row.0);
                encoder.push_bytes(columns[1], row.1.as_deref());
                encoder.push_f64(columns[2], row.2);
                encoder.push_bool(columns[3], row.3);
                let mut record = Vec::new();
                encoder.finish_record(b"rest", &mut record);
                record
            };
            let expected = compare_column(columns[0], a.0.as_ref(), b.0.as_ref(), Ord::cmp)
                .then_with(|| compare_column(columns[1], a.1.as_ref(), b.1.as_ref(), Ord::cmp))
                .then_with(|| compare_column(columns[2], a.2.as_ref(), b.2.as_ref(), f64::total_cmp))
                .then_with(|| compare_column(columns[3], a.3.as_ref(), b.3.as_ref(), Ord::cmp));
            let (x, y) = (encode(&a), encode(&b));
            prop_assert_eq!(EncodedKeyOrder.compare(&x, &y), expected);
            prop_assert_eq!(EncodedKeyOrder::split_key(&x).1, b"rest");
            prop_assert!(EncodedKeyOrder.prefix(&x).cmp(&EncodedKeyOrder.prefix(&y)) == expected || EncodedKeyOrder.prefix(&x) == EncodedKeyOrder.prefix(&y));
        }
    }
}
