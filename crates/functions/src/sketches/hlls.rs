//! What HyperLogLogs tell: `hll_cardinality`, `hll_error`, and of two of them `hll_merge`, `hll_intersection`,
//! `hll_difference` and `hll_jaccard`.
//!
//! The cardinality is the published estimator's, so that it equals that of PostgreSQL's `hll` and of java-hll, or by
//! name Ertl's, which `unique` is. What two have in common follows by inclusion and exclusion with Ertl's, and carries an error of the size of the larger
//! sketch's: the number is null where that exceeds it, and there all the same where the last argument is `true`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewBuilder, Float64Array, Float64Builder, StructArray, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion_common::{Result, ScalarValue};
use tidemill_sketch::{CardinalityEstimator, Hll, HllStorageDialect, SketchEstimate};

use super::{LOG2M_MAX, SECTION, Stored, as_sketch, hll_of};
use crate::callable::{Function, Given, Told, called_as, external, usage};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OfHlls {
    /// `hll_cardinality`
    Cardinality,
    /// `hll_error`
    Error,
    /// `hll_merge`
    Merge,
    /// `hll_intersection`
    Intersection,
    /// `hll_difference`
    Difference,
    /// `hll_jaccard`
    Jaccard,
}

impl OfHlls {
    pub(super) const ALL: [OfHlls; 6] = [
        OfHlls::Cardinality,
        OfHlls::Error,
        OfHlls::Merge,
        OfHlls::Intersection,
        OfHlls::Difference,
        OfHlls::Jaccard,
    ];

    /// How many sketches it takes.
    fn sketches(self) -> usize {
        match self {
            OfHlls::Cardinality | OfHlls::Error => 1,
            OfHlls::Merge | OfHlls::Intersection | OfHlls::Difference | OfHlls::Jaccard => 2,
        }
    }

    /// Whether it answers with a number and its error.
    fn compares(self) -> bool {
        matches!(self, OfHlls::Intersection | OfHlls::Difference | OfHlls::Jaccard)
    }
}

/// The estimator that a constant names.
///
/// # Errors
/// Where it names none.
fn estimator(name: Option<&ScalarValue>) -> Result<CardinalityEstimator> {
    match name.and_then(ScalarValue::try_as_str).flatten() {
        Some("published") => Ok(CardinalityEstimator::Published),
        Some("ertl") => Ok(CardinalityEstimator::Improved),
        found => Err(usage(
            match found {
                Some(found) => format!("there is no estimator `{found}`"),
                None => "an estimator is a constant".into(),
            },
            "'published' is PostgreSQL's, and the default; 'ertl' is without bias",
        )),
    }
}

/// The fields of a number with its error.
fn estimate_fields() -> Fields {
    let fields = ["value", "error", "low", "high"];
    fields.into_iter().map(|name| Field::new(name, DataType::Float64, true)).collect()
}

impl Function for OfHlls {
    fn names(&self) -> &'static [&'static str] {
        match self {
            OfHlls::Cardinality => &["hll_cardinality"],
            OfHlls::Error => &["hll_error"],
            OfHlls::Merge => &["hll_merge"],
            OfHlls::Intersection => &["hll_intersection"],
            OfHlls::Difference => &["hll_difference"],
            OfHlls::Jaccard => &["hll_jaccard"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            OfHlls::Cardinality => (
                "hll_cardinality(s)\nhll_cardinality(s, 'ertl')",
                "How many different values a HyperLogLog has seen, a DOUBLE as PostgreSQL's `hll` has it; NULL where it \
                 is undefined. By default with the published estimator, as PostgreSQL counts; with `'ertl'` as `unique` \
                 does, without that one's bias between 2.5 and 4 times as many values as registers.",
            ),
            OfHlls::Error => (
                "hll_error(s)\nhll_error(s, 'ertl')",
                "The relative standard error of `hll_cardinality` of the same arguments: 0 while that is exact.",
            ),
            OfHlls::Merge => (
                "hll_merge(a, b)",
                "Two HyperLogLogs as one, of what either has seen; of different parameters it has the smaller ones. Also \
                 `hll_union(a, b)`.",
            ),
            OfHlls::Intersection => (
                "hll_intersection(a, b)\nhll_intersection(a, b, true)",
                "How many values both HyperLogLogs have seen, by inclusion and exclusion: `{value, error, low, high}`, where \
                 `error` is the standard error, and `low` and `high` the interval at 95 %. `value` is NULL where the \
                 error at 95 % exceeds it, unless the last argument is `true`.",
            ),
            OfHlls::Difference => (
                "hll_difference(a, b)\nhll_difference(a, b, true)",
                "How many values the first HyperLogLog has seen and the second has not, as `hll_intersection` tells.",
            ),
            OfHlls::Jaccard => (
                "hll_jaccard(a, b)\nhll_jaccard(a, b, true)",
                "The share of all values that both HyperLogLogs have seen, as `hll_intersection` tells.",
            ),
        };
        Told { section: SECTION, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let refused = || called_as(self, given);
        let sketches = self.sketches();
        let (stored, rest) = given.split_at_checked(sketches).ok_or_else(refused)?;
        let taken = stored.iter().map(as_sketch).collect::<Option<Vec<_>>>();
        let mut taken = taken.ok_or_else(refused)?;
        match rest {
            [] => {}
            [DataType::Boolean] if self.compares() => taken.push(DataType::Boolean),
            [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View] if sketches == 1 => {
                taken.push(DataType::Utf8);
            }
            _ => return Err(refused()),
        }
        Ok(taken)
    }

    fn gives(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        match constants.get(self.sketches()) {
            None => {}
            Some(name) if self.sketches() == 1 => _ = estimator(*name)?,
            Some(Some(_)) => {}
            Some(None) => {
                return Err(usage(
                    format!("the last argument of `{}` is a constant", self.names()[0]),
                    "`true` has numbers told that are less than their error",
                ));
            }
        }
        Ok(match self {
            OfHlls::Cardinality | OfHlls::Error => DataType::Float64,
            OfHlls::Merge => DataType::BinaryView,
            OfHlls::Intersection | OfHlls::Difference | OfHlls::Jaccard => {
                DataType::Struct(estimate_fields())
            }
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        if self.sketches() == 1 {
            let sketches = Sketches::of(given, 0)?;
            let estimator = match given.values.get(1) {
                Some(name) => {
                    estimator(Some(&ScalarValue::try_from_array(&name.to_array(1)?, 0)?))?
                }
                None => CardinalityEstimator::default(),
            };
            let answers = (0..given.rows).map(|row| -> Result<Option<f64>> {
                let answer = sketches.at(row)?.map(|hll| match (self, hll.estimate(estimator)) {
                    (OfHlls::Error, estimate) if estimate.value == 0.0 => 0.0,
                    (OfHlls::Error, estimate) => estimate.standard_error / estimate.value,
                    (_, estimate) => estimate.value,
                });
                Ok(answer.filter(|answer| !answer.is_nan()))
            });
            return Ok(Arc::new(answers.collect::<Result<Float64Array>>()?));
        }
        let (left, right) = (Sketches::of(given, 0)?, Sketches::of(given, 1)?);
        let both =
            |row: usize| -> Result<Option<(Hll, Hll)>> { Ok(left.at(row)?.zip(right.at(row)?)) };
        if let OfHlls::Merge = self {
            let mut merged = BinaryViewBuilder::with_capacity(given.rows);
            for row in 0..given.rows {
                merged.append_option(both(row)?.map(|(mut left, right)| {
                    left.merge_owned(right);
                    left.to_bytes(HllStorageDialect::default())
                }));
            }
            return Ok(Arc::new(merged.finish()));
        }
        let is_forced = match given.values.get(2) {
            Some(last) => {
                let last = ScalarValue::try_from_array(&last.to_array(1)?, 0)?;
                matches!(last, ScalarValue::Boolean(Some(true)))
            }
            None => false,
        };
        if given.rows == 0 {
            return Ok(new_null_array(given.answer, 0));
        }
        let mut columns: [Float64Builder; 4] =
            std::array::from_fn(|_| Float64Builder::with_capacity(given.rows));
        let mut present = Vec::with_capacity(given.rows);
        for row in 0..given.rows {
            let found = both(row)?.map(|(left, right)| self.compared(&left, &right));
            let found = found.filter(|found| !found.value.is_nan());
            present.push(found.is_some());
            let [value, error, low, high] = &mut columns;
            let is_told =
                |found: &SketchEstimate| is_forced || found.margin_of_error() <= found.value;
            value.append_option(found.filter(is_told).map(|found| found.value));
            error.append_option(found.map(|found| found.standard_error));
            low.append_option(found.map(|found| found.confidence_interval().0));
            high.append_option(found.map(|found| found.confidence_interval().1));
        }
        let columns = columns.map(|mut column| Arc::new(column.finish()) as ArrayRef).into();
        let nulls = NullBuffer::from(present);
        Ok(Arc::new(StructArray::try_new(estimate_fields(), columns, Some(nulls))?))
    }
}

impl OfHlls {
    fn compared(self, left: &Hll, right: &Hll) -> SketchEstimate {
        let compared = left.compare(right);
        match self {
            OfHlls::Jaccard => compared.jaccard,
            OfHlls::Difference => compared.left_only,
            _ => compared.intersection,
        }
    }
}

/// An argument of HyperLogLogs.
struct Sketches(Stored);

impl Sketches {
    fn of(given: &Given<'_>, at: usize) -> Result<Self> {
        Stored::of(given, at).map(Sketches)
    }

    fn at(&self, row: usize) -> Result<Option<Hll>> {
        let bytes: Option<Cow<'_, [u8]>> = self.0.at(row)?;
        bytes.map(|bytes| hll_of(&bytes, LOG2M_MAX)).transpose().map_err(external)
    }
}
