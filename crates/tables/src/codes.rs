//! Keys that come as codes of a dictionary, as Parquet stores them.
//!
//! A combination of codes is looked up once, by its values, and its group is noted; all further rows that
//! have it are found by the codes alone. So a million rows of 100,000 texts cost 100,000 look-ups, and no
//! text is hashed, compared or even put together for the others.
//!
//! Cost a row: 1 to 2 ns where what is noted fits the cache.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Int32Type};
use tidemill_base::error::{Error, Result};

use crate::value;

/// The groups of several dictionaries' combinations are noted where there are no more of these.
const COMBINATIONS_MAX: usize = 1 << 18;

/// What stands for a code that has been met and not been looked up.
const MET: u32 = u32::MAX;

/// The type of codes whose values are texts.
pub fn coded_text() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Whether a key comes as codes.
pub(crate) fn is_coded(key: &ArrayRef) -> bool {
    key.data_type() == &coded_text()
}

/// The groups of codes.
#[derive(Default)]
pub(crate) struct Codes {
    columns: Vec<Values>,
    /// Per combination, its group counted from 1; 0 of those that are not known.
    groups: Vec<u32>,
    /// Each row's combination, reused for the next batch.
    combined: Vec<u32>,
}

/// The values of a dictionary.
struct Values {
    /// As they came, and thus in a place that no other dictionary has meanwhile.
    own: ArrayRef,
    /// As keys are kept.
    kept: ArrayRef,
}

impl Codes {
    /// The memory that they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.columns.iter().map(|column| column.kept.get_array_memory_size());
        (self.groups.capacity() + self.combined.capacity()) * size_of::<u32>()
            + values.sum::<usize>()
    }

    /// Forgets all groups.
    pub(crate) fn clear(&mut self) {
        *self = Codes::default();
    }

    /// Turns to the dictionaries of a batch.
    ///
    /// # Errors
    /// As Arrow's casts.
    pub(crate) fn turn_to(&mut self, keys: &[ArrayRef], kept_as: &DataType) -> Result<()> {
        let is_same = |column: &Values, key: &ArrayRef| {
            let values = key.as_any_dictionary().values();
            Arc::ptr_eq(&column.own, values) || column.own.to_data().ptr_eq(&values.to_data())
        };
        let known = self.columns.iter().zip(keys);
        if self.columns.len() == keys.len() && known.into_iter().all(|(c, key)| is_same(c, key)) {
            return Ok(());
        }
        let columns = keys.iter().map(|key| {
            let own = Arc::clone(key.as_any_dictionary().values());
            let kept = value::cast_to(&own, kept_as)?;
            Ok(Values { own, kept })
        });
        self.columns = columns.collect::<Result<_>>()?;
        self.groups.clear();
        self.groups.resize(self.combinations().unwrap_or_default(), 0);
        Ok(())
    }

    /// How many combinations there are, a null being a value of each column; none of too many.
    fn combinations(&self) -> Option<usize> {
        let mut all = self.columns.iter().map(|column| column.own.len() + 1);
        let count = all.try_fold(1_usize, |all, one| all.checked_mul(one))?;
        let most = if self.columns.len() == 1 { MET as usize } else { COMBINATIONS_MAX };
        (count < most).then_some(count)
    }

    /// The values of some rows, or of all.
    ///
    /// # Errors
    /// As Arrow's `take`.
    pub(crate) fn values(&self, keys: &[ArrayRef], rows: Option<&[u32]>) -> Result<Vec<ArrayRef>> {
        let rows = rows.map(|rows| UInt32Array::from(rows.to_vec()));
        let values = keys.iter().zip(&self.columns).map(|(key, column)| {
            let codes = key.as_any_dictionary().keys();
            let some = match &rows {
                Some(rows) => take(codes, rows, None)?,
                None => codes.slice(0, codes.len()),
            };
            Ok(take(&column.kept, &some, None)?)
        });
        values.collect()
    }

    /// The groups of all rows; `look_up` gives those of some, by their numbers. False where there are
    /// too many combinations to note their groups, and nothing was done.
    ///
    /// # Errors
    /// As `look_up`; where a code has no value.
    pub(crate) fn groups(
        &mut self,
        keys: &[ArrayRef],
        groups: &mut Vec<usize>,
        look_up: impl FnOnce(&Self, &[u32], &mut Vec<usize>) -> Result<()>,
    ) -> Result<bool> {
        if self.groups.is_empty() {
            return Ok(false);
        }
        self.combine(keys)?;
        let mut is_known = true;
        let noted = |groups: &[u32], at: &u32| groups[*at as usize];
        groups.clear();
        groups.extend(self.combined.iter().map(|at| {
            let group = noted(&self.groups, at);
            is_known &= group != 0;
            group.wrapping_sub(1) as usize
        }));
        if is_known {
            return Ok(true);
        }
        let mut rows: Vec<u32> = Vec::new();
        for (row, at) in self.combined.iter().enumerate() {
            let group = &mut self.groups[*at as usize];
            if *group == 0 {
                *group = MET;
                rows.push(row as u32);
            }
        }
        // What fails here ends the run.
        let mut found = Vec::new();
        look_up(self, &rows, &mut found)?;
        for (row, group) in rows.iter().zip(&found) {
            let group = u32::try_from(group + 1).ok().filter(|group| *group != MET);
            let group = group.ok_or_else(|| Error::Internal("a group past 2^32".into()))?;
            self.groups[self.combined[*row as usize] as usize] = group;
        }
        groups.clear();
        let all = self.combined.iter();
        groups.extend(all.map(|at| noted(&self.groups, at).wrapping_sub(1) as usize));
        Ok(true)
    }

    /// Works out each row's combination.
    fn combine(&mut self, keys: &[ArrayRef]) -> Result<()> {
        let row_count = keys.first().map_or(0, |key| key.len());
        self.combined.clear();
        self.combined.resize(row_count, 0);
        let mut stride = 1;
        for (key, column) in keys.iter().zip(&self.columns) {
            let codes: &Int32Array = key.as_dictionary::<Int32Type>().keys();
            // Below 2^32, as all combinations are.
            let count = column.own.len() as u32;
            let mut most = 0;
            match codes.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => {
                    for (sum, code) in self.combined.iter_mut().zip(codes.values()) {
                        let code = code.cast_unsigned();
                        most = most.max(code.wrapping_add(1));
                        *sum = sum.wrapping_add(code.wrapping_mul(stride));
                    }
                }
                Some(nulls) => {
                    let rows = self.combined.iter_mut().zip(codes.values()).zip(nulls);
                    for ((sum, code), is_valid) in rows {
                        let code = if is_valid { code.cast_unsigned() } else { count };
                        most = most.max(if is_valid { code.wrapping_add(1) } else { 0 });
                        *sum = sum.wrapping_add(code.wrapping_mul(stride));
                    }
                }
            }
            if most > count {
                return Err(Error::Internal("a code of a key has no value".into()));
            }
            stride = stride.wrapping_mul(count + 1);
        }
        Ok(())
    }
}
