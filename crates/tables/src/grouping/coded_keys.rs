//! Keys as small integers: dictionary codes of strings, as Parquet stores them, and integers from a narrow
//! range.
//!
//! Each combination of such codes is looked up once by its key values, and its group is stored. All further
//! rows with this combination find their group by the codes alone. A million rows of 100,000 distinct strings
//! thus cost 100,000 lookups; the strings of the other rows are not hashed, compared or even materialized.
//!
//! Cost per row: 1 to 2 ns if the stored groups fit the CPU cache.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, UInt32Array, downcast_integer,
};
use arrow::compute::{max, min, take};
use arrow::datatypes::{DataType, Date32Type, Int32Type};
use tidemill_base::column_types::dictionary_text_type;
use tidemill_base::error::{Error, Result};

use crate::value_encoding;

/// Maximum number of combinations of several columns.
const COMBINATIONS_MAX: usize = 1 << 18;

/// Maximum width of the range of an integer column.
const KEY_RANGE_MAX: i128 = 1 << 20;

/// Maximum ratio of codes of a single column to its groups and rows.
const SPARSE_RANGE_FACTOR_MAX: usize = 16;

/// Marks a combination that has occurred but has not been looked up yet.
const UNRESOLVED_GROUP: u32 = u32::MAX;

/// Returns true if keys of a type may come from a narrow range; others have no codes.
pub fn can_be_dense_key(of: &DataType) -> bool {
    of.is_integer() || of == &DataType::Date32
}

/// Returns true if a key column has dictionary codes.
pub(crate) fn is_dictionary_coded(key: &ArrayRef) -> bool {
    key.data_type() == &dictionary_text_type()
}

/// The groups of code combinations.
#[derive(Default)]
pub(crate) struct GroupCodes {
    code_columns: Vec<CodeColumn>,
    /// For each combination, its group counted from 1; 0 if it is not known.
    groups_by_combination: Vec<u32>,
    /// The combination of each row; reused for the next batch.
    row_combinations: Vec<u32>,
    /// True if codes are no longer used because there were too many combinations.
    is_abandoned: bool,
}

/// The meaning of a column's codes. The code after the last one stands for null.
enum CodeColumn {
    /// A dictionary: `values` as they arrived, held so that no other dictionary gets their address; and
    /// `normalized_values` in the type in which keys are stored.
    Dictionary { values: ArrayRef, normalized_values: ArrayRef },
    /// The `count` integers from `base` on.
    Range { base: i64, count: u32 },
}

impl CodeColumn {
    fn code_count(&self) -> usize {
        match self {
            CodeColumn::Dictionary { values: own, .. } => own.len(),
            CodeColumn::Range { count, .. } => *count as usize,
        }
    }
}

impl GroupCodes {
    /// Returns the memory of codes and groups, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = self.code_columns.iter().map(|column| match column {
            CodeColumn::Dictionary { normalized_values: kept, .. } => kept.get_array_memory_size(),
            CodeColumn::Range { .. } => 0,
        });
        (self.groups_by_combination.capacity() + self.row_combinations.capacity())
            * size_of::<u32>()
            + values.sum::<usize>()
    }

    /// Removes all codes and groups.
    pub(crate) fn clear(&mut self) {
        *self = GroupCodes::default();
    }

    /// Prepares the lookup of a batch of keys; `group_count` groups are known. Returns false if the keys have
    /// no usable codes.
    ///
    /// # Errors
    /// Returns the errors of Arrow's casts.
    pub(crate) fn prepare_batch(&mut self, keys: &[ArrayRef], group_count: usize) -> Result<bool> {
        if self.is_abandoned {
            return Ok(false);
        }
        let mut columns = std::mem::take(&mut self.code_columns).into_iter();
        let mut is_same = true;
        for key in keys {
            match next_code_column(columns.next(), key)? {
                Some((column, was_there)) => {
                    is_same &= was_there;
                    self.code_columns.push(column);
                }
                None => {
                    self.abandon();
                    return Ok(false);
                }
            }
        }
        if is_same {
            return Ok(true);
        }
        if let [CodeColumn::Range { count, .. }] = self.code_columns[..]
            && count as usize > SPARSE_RANGE_FACTOR_MAX * (group_count + keys[0].len())
        {
            // It may become dense once there are more groups.
            self.clear();
            return Ok(false);
        }
        match self.combination_count() {
            Some(count) => {
                self.groups_by_combination.clear();
                self.groups_by_combination.resize(count, 0);
                Ok(true)
            }
            None => {
                self.abandon();
                Ok(false)
            }
        }
    }

    fn abandon(&mut self) {
        *self = GroupCodes { is_abandoned: true, ..GroupCodes::default() };
    }

    /// Returns the number of combinations; `None` if it is too large.
    fn combination_count(&self) -> Option<usize> {
        let mut all = self.code_columns.iter().map(|column| column.code_count() + 1);
        let count = all.try_fold(1_usize, |all, one| all.checked_mul(one))?;
        let most =
            if self.code_columns.len() == 1 { UNRESOLVED_GROUP as usize } else { COMBINATIONS_MAX };
        (count < most).then_some(count)
    }

    /// Returns the key values of some rows.
    fn take_key_values(&self, keys: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
        let rows = UInt32Array::from(rows.to_vec());
        let values = keys.iter().zip(&self.code_columns).map(|(key, column)| match column {
            CodeColumn::Dictionary { normalized_values: kept, .. } => {
                let codes = take(key.as_any_dictionary().keys(), &rows, None)?;
                Ok(take(kept, &codes, None)?)
            }
            CodeColumn::Range { .. } => Ok(take(key, &rows, None)?),
        });
        values.collect()
    }

    /// Writes the groups of all rows of the prepared keys to `groups`. `look_up` finds the groups of rows
    /// whose combination is new, by their key values.
    ///
    /// # Errors
    /// Returns the errors of `look_up`, and an error if a code has no value.
    pub(crate) fn find_groups(
        &mut self,
        keys: &[ArrayRef],
        groups: &mut Vec<usize>,
        look_up: impl FnOnce(&[ArrayRef], &mut Vec<usize>) -> Result<()>,
    ) -> Result<()> {
        self.compute_combinations(keys)?;
        let mut is_known = true;
        groups.clear();
        groups.extend(self.row_combinations.iter().map(|at| {
            let group = self.groups_by_combination[*at as usize];
            is_known &= group != 0;
            group.wrapping_sub(1) as usize
        }));
        if is_known {
            return Ok(());
        }
        let mut rows: Vec<u32> = Vec::new();
        for (row, at) in self.row_combinations.iter().enumerate() {
            let group = &mut self.groups_by_combination[*at as usize];
            if *group == 0 {
                *group = UNRESOLVED_GROUP;
                rows.push(row as u32);
            }
        }
        // An error here ends the run, so the marks need no cleanup.
        let mut found = Vec::new();
        look_up(&self.take_key_values(keys, &rows)?, &mut found)?;
        for (row, group) in rows.iter().zip(&found) {
            let group = u32::try_from(group + 1).ok().filter(|group| *group != UNRESOLVED_GROUP);
            let group = group.ok_or_else(|| Error::Internal("a group past 2^32".into()))?;
            self.groups_by_combination[self.row_combinations[*row as usize] as usize] = group;
        }
        groups.clear();
        let all = self.row_combinations.iter();
        groups.extend(
            all.map(|at| self.groups_by_combination[*at as usize].wrapping_sub(1) as usize),
        );
        Ok(())
    }

    /// Computes each row's combination.
    fn compute_combinations(&mut self, keys: &[ArrayRef]) -> Result<()> {
        let row_count = keys.first().map_or(0, |key| key.len());
        self.row_combinations.clear();
        self.row_combinations.resize(row_count, 0);
        let mut stride = 1;
        for (key, column) in keys.iter().zip(&self.code_columns) {
            // The number of combinations is below 2^32.
            let count = column.code_count() as u32;
            let most = match column {
                CodeColumn::Dictionary { .. } => {
                    let codes = key.as_dictionary::<Int32Type>().keys();
                    add_codes::<Int32Type>(&mut self.row_combinations, codes, 0, (stride, count))
                }
                CodeColumn::Range { base, .. } => {
                    macro_rules! range {
                        ($t:ty) => {{
                            let key = key.as_primitive::<$t>();
                            add_codes::<$t>(&mut self.row_combinations, key, *base, (stride, count))
                        }};
                    }
                    downcast_integer! {
                        key.data_type() => (range),
                        DataType::Date32 => range!(Date32Type),
                        _ => count,
                    }
                }
            };
            if most > count {
                return Err(Error::Internal("a code of a key has no value".into()));
            }
            stride = stride.wrapping_mul(count + 1);
        }
        Ok(())
    }
}

/// Adds a column's codes to the rows' combinations; returns the largest code plus 1.
fn add_codes<T: ArrowPrimitiveType>(
    combined: &mut [u32],
    key: &PrimitiveArray<T>,
    base: i64,
    (stride, count): (u32, u32),
) -> u32
where
    T::Native: DenseKeyNumber,
{
    match key.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => all_added(combined, key.values(), base, stride),
        Some(nulls) => {
            let mut most = 0;
            for ((sum, value), is_valid) in combined.iter_mut().zip(key.values()).zip(nulls) {
                let code = if is_valid { value.from(base) } else { count };
                most = most.max(if is_valid { code.saturating_add(1) } else { 0 });
                *sum = sum.wrapping_add(code.wrapping_mul(stride));
            }
            most
        }
    }
}

/// Defines a function that is compiled a second time for processors with AVX2 and dispatched at run time:
/// baseline x86-64 has neither 64-bit comparisons nor 32-bit products.
macro_rules! wider {
    ($(#[$attr:meta])* fn $name:ident / $wide:ident / $plain:ident
        ($($arg:ident: $type:ty),*) -> $out:ty $body:block) => {
        $(#[$attr])*
        fn $name<N: DenseKeyNumber>($($arg: $type),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor supports AVX2, as just detected.
                return unsafe { $wide($($arg),*) };
            }
            $plain($($arg),*)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn $wide<N: DenseKeyNumber>($($arg: $type),*) -> $out {
            $plain($($arg),*)
        }

        #[inline(always)]
        fn $plain<N: DenseKeyNumber>($($arg: $type),*) -> $out $body
    };
}

wider! {
    /// Works like [`add_codes`] for columns without nulls.
    fn all_added / all_added_wide / all_added_plain(
        combined: &mut [u32], values: &[N], base: i64, stride: u32
    ) -> u32 {
        let mut most = 0;
        for (sum, value) in combined.iter_mut().zip(values) {
            let code = value.from(base);
            most = most.max(code);
            *sum = sum.wrapping_add(code.wrapping_mul(stride));
        }
        if values.is_empty() { 0 } else { most.saturating_add(1) }
    }
}

wider! {
    /// Returns true if all values are among the `count` integers from `base` on.
    fn are_within / are_within_wide / are_within_plain(
        values: &[N], base: i64, count: u32
    ) -> bool {
        let count: u64 = count.into();
        let is_out = |value: &N| value.distance(base) >= count;
        !values.iter().fold(false, |any, value| any | is_out(value))
    }
}

/// An integer type of dense keys.
trait DenseKeyNumber: Copy {
    /// Returns the difference to `base`, which is at most 2^32.
    fn from(self, base: i64) -> u32;
    /// Returns the difference to a `base` of the same type; larger than 2^32 if the value is below `base`.
    fn distance(self, base: i64) -> u64;
    fn wide(self) -> i128;
}

macro_rules! close {
    ($($of:ty),+) => {$(
        impl DenseKeyNumber for $of {
            #[inline(always)]
            #[expect(clippy::allow_attributes, reason = "not all of the types need them")]
            #[allow(clippy::cast_possible_wrap, clippy::cast_lossless, reason = "two's complement")]
            fn from(self, base: i64) -> u32 {
                (self as i64).wrapping_sub(base) as u32
            }

            #[inline(always)]
            #[expect(clippy::allow_attributes, reason = "not all of the types need them")]
            #[allow(clippy::cast_possible_wrap, clippy::cast_lossless, reason = "two's complement")]
            fn distance(self, base: i64) -> u64 {
                (self as i64).wrapping_sub(base) as u64
            }

            fn wide(self) -> i128 {
                i128::from(self)
            }
        }
    )+};
}

close!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Returns the meaning of a column's codes in a batch, and whether it is the same as before; `None` if the
/// values are too far apart.
fn next_code_column(
    before: Option<CodeColumn>,
    key: &ArrayRef,
) -> Result<Option<(CodeColumn, bool)>> {
    if is_dictionary_coded(key) {
        let values = key.as_any_dictionary().values();
        if let Some(CodeColumn::Dictionary { values: own, normalized_values: kept }) = before
            && (Arc::ptr_eq(&own, values) || own.to_data().ptr_eq(&values.to_data()))
        {
            return Ok(Some((
                CodeColumn::Dictionary { values: own, normalized_values: kept },
                true,
            )));
        }
        let own = Arc::clone(values);
        let kept = value_encoding::cast_exactly(&own, &DataType::Utf8View)?;
        return Ok(Some((CodeColumn::Dictionary { values: own, normalized_values: kept }, false)));
    }
    macro_rules! ends {
        ($t:ty) => {
            value_bounds::<$t>(key.as_primitive())
        };
    }
    if let Some(CodeColumn::Range { base, count }) = before
        && key.null_count() == 0
    {
        macro_rules! within {
            ($t:ty) => {
                are_within(key.as_primitive::<$t>().values(), base, count)
            };
        }
        let is_same = downcast_integer! {
            key.data_type() => (within),
            DataType::Date32 => within!(Date32Type),
            _ => false,
        };
        if is_same {
            return Ok(Some((CodeColumn::Range { base, count }, true)));
        }
    }
    let ends = downcast_integer! {
        key.data_type() => (ends),
        DataType::Date32 => ends!(Date32Type),
        _ => return Ok(None),
    };
    let (base, count) = match before {
        Some(CodeColumn::Range { base, count }) => (base, count),
        _ => match ends {
            None => return Ok(Some((CodeColumn::Range { base: 0, count: 0 }, false))),
            Some((low, high)) => return Ok(new_range_column(low, high).map(|range| (range, false))),
        },
    };
    let now = (i128::from(base), i128::from(base) + i128::from(count) - 1);
    let is_within = ends.is_none_or(|(low, high)| now.0 <= low && high <= now.1);
    let Some((low, high)) = ends.filter(|_| !is_within) else {
        return Ok(Some((CodeColumn::Range { base, count }, true)));
    };
    let (low, high) = if count == 0 { (low, high) } else { (low.min(now.0), high.max(now.1)) };
    // With slack, values that rise from batch to batch extend the range only a few times.
    let slack = ((high - low) / 2).min(KEY_RANGE_MAX - (high - low + 1)).max(0);
    let wider = match low < now.0 {
        true => new_range_column((low - slack).max(i128::from(i64::MIN)), high),
        false => new_range_column(low, high + slack),
    };
    Ok(wider.map(|range| (range, false)))
}

/// Returns minimum and maximum of the values that are not null.
fn value_bounds<T: ArrowPrimitiveType>(key: &PrimitiveArray<T>) -> Option<(i128, i128)>
where
    T::Native: DenseKeyNumber,
{
    Some((min(key)?.wide(), max(key)?.wide()))
}

fn new_range_column(low: i128, high: i128) -> Option<CodeColumn> {
    let count = high - low + 1;
    let base = i64::try_from(low).ok()?;
    let count = u32::try_from(count).ok().filter(|count| i128::from(*count) <= KEY_RANGE_MAX)?;
    Some(CodeColumn::Range { base, count })
}
