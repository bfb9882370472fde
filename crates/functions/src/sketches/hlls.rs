//! Functions of stored HyperLogLogs: `hll_cardinality`, `hll_error`, and of two of them `hll_merge`,
//! `hll_intersection`, `hll_difference` and `hll_jaccard`.
//!
//! The cardinality comes from the published estimator by default, so that it equals the results of
//! PostgreSQL's `hll` and of java-hll; the name `ertl` selects Ertl's estimator, which `unique` uses. The
//! overlap of two sketches is calculated by inclusion and exclusion with Ertl's estimator, and its error has
//! the size of the larger sketch's error. The value is null if the error exceeds it, unless the last argument
//! is `true`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewBuilder, Float64Array, Float64Builder, StructArray, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion_common::{Result, ScalarValue};
use tidemill_sketch::{CardinalityEstimator, Hll, HllStorageDialect, SketchEstimate};

use super::{LOG2M_MAX, SKETCH_SECTION, SketchArgument, decode_hll, sketch_cast_type};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, external_error, usage_error, wrong_arguments_error,
};

/// Functions of one or two stored HyperLogLogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum HllFunction {
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

impl HllFunction {
    pub(super) const ALL: [HllFunction; 6] = [
        HllFunction::Cardinality,
        HllFunction::Error,
        HllFunction::Merge,
        HllFunction::Intersection,
        HllFunction::Difference,
        HllFunction::Jaccard,
    ];

    /// Returns the number of sketch arguments.
    fn sketch_count(self) -> usize {
        match self {
            HllFunction::Cardinality | HllFunction::Error => 1,
            HllFunction::Merge
            | HllFunction::Intersection
            | HllFunction::Difference
            | HllFunction::Jaccard => 2,
        }
    }

    /// Returns whether the result is a number with its error.
    fn has_error_bounds(self) -> bool {
        matches!(self, HllFunction::Intersection | HllFunction::Difference | HllFunction::Jaccard)
    }
}

/// Parses the name of an estimator.
///
/// # Errors
/// Fails for a name that is not an estimator, and for an argument that is not constant.
fn parse_estimator(name: Option<&ScalarValue>) -> Result<CardinalityEstimator> {
    match name.and_then(ScalarValue::try_as_str).flatten() {
        Some("published") => Ok(CardinalityEstimator::Published),
        Some("ertl") => Ok(CardinalityEstimator::Improved),
        found => Err(usage_error(
            match found {
                Some(found) => format!("there is no estimator `{found}`"),
                None => "an estimator is a constant".into(),
            },
            "'published' is PostgreSQL's, and the default; 'ertl' is without bias",
        )),
    }
}

/// Returns the fields of a number with its error.
fn estimate_fields() -> Fields {
    let fields = ["value", "error", "low", "high"];
    fields.into_iter().map(|name| Field::new(name, DataType::Float64, true)).collect()
}

impl RowFunction for HllFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            HllFunction::Cardinality => &["hll_cardinality"],
            HllFunction::Error => &["hll_error"],
            HllFunction::Merge => &["hll_merge"],
            HllFunction::Intersection => &["hll_intersection"],
            HllFunction::Difference => &["hll_difference"],
            HllFunction::Jaccard => &["hll_jaccard"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            HllFunction::Cardinality => (
                "hll_cardinality(s)\nhll_cardinality(s, 'ertl')",
                "How many different values a HyperLogLog has seen, a DOUBLE as PostgreSQL's `hll` has it; NULL where it \
                 is undefined. By default with the published estimator, as PostgreSQL counts; with `'ertl'` as `unique` \
                 does, without that one's bias between 2.5 and 4 times as many values as registers.",
            ),
            HllFunction::Error => (
                "hll_error(s)\nhll_error(s, 'ertl')",
                "The relative standard error of `hll_cardinality` of the same arguments: 0 while that is exact.",
            ),
            HllFunction::Merge => (
                "hll_merge(a, b)",
                "Two HyperLogLogs as one, of what either has seen; of different parameters it has the smaller ones. Also \
                 `hll_union(a, b)`.",
            ),
            HllFunction::Intersection => (
                "hll_intersection(a, b)\nhll_intersection(a, b, true)",
                "How many values both HyperLogLogs have seen, by inclusion and exclusion: `{value, error, low, high}`, where \
                 `error` is the standard error, and `low` and `high` the interval at 95 %. `value` is NULL where the \
                 error at 95 % exceeds it, unless the last argument is `true`.",
            ),
            HllFunction::Difference => (
                "hll_difference(a, b)\nhll_difference(a, b, true)",
                "How many values the first HyperLogLog has seen and the second has not, as `hll_intersection` tells.",
            ),
            HllFunction::Jaccard => (
                "hll_jaccard(a, b)\nhll_jaccard(a, b, true)",
                "The share of all values that both HyperLogLogs have seen, as `hll_intersection` tells.",
            ),
        };
        FunctionDocs { section: SKETCH_SECTION, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let refused = || wrong_arguments_error(self, given);
        let sketches = self.sketch_count();
        let (stored, rest) = given.split_at_checked(sketches).ok_or_else(refused)?;
        let taken = stored.iter().map(sketch_cast_type).collect::<Option<Vec<_>>>();
        let mut taken = taken.ok_or_else(refused)?;
        match rest {
            [] => {}
            [DataType::Boolean] if self.has_error_bounds() => taken.push(DataType::Boolean),
            [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View] if sketches == 1 => {
                taken.push(DataType::Utf8);
            }
            _ => return Err(refused()),
        }
        Ok(taken)
    }

    fn return_type(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        match constants.get(self.sketch_count()) {
            None => {}
            Some(name) if self.sketch_count() == 1 => _ = parse_estimator(*name)?,
            Some(Some(_)) => {}
            Some(None) => {
                return Err(usage_error(
                    format!("the last argument of `{}` is a constant", self.names()[0]),
                    "`true` has numbers told that are less than their error",
                ));
            }
        }
        Ok(match self {
            HllFunction::Cardinality | HllFunction::Error => DataType::Float64,
            HllFunction::Merge => DataType::BinaryView,
            HllFunction::Intersection | HllFunction::Difference | HllFunction::Jaccard => {
                DataType::Struct(estimate_fields())
            }
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        if self.sketch_count() == 1 {
            let sketches = HllArgument::from_argument(given, 0)?;
            let estimator = match given.arguments.get(1) {
                Some(name) => {
                    parse_estimator(Some(&ScalarValue::try_from_array(&name.to_array(1)?, 0)?))?
                }
                None => CardinalityEstimator::default(),
            };
            let answers = (0..given.row_count).map(|row| -> Result<Option<f64>> {
                let answer = sketches.get(row)?.map(|hll| match (self, hll.estimate(estimator)) {
                    (HllFunction::Error, estimate) if estimate.value == 0.0 => 0.0,
                    (HllFunction::Error, estimate) => estimate.standard_error / estimate.value,
                    (_, estimate) => estimate.value,
                });
                Ok(answer.filter(|answer| !answer.is_nan()))
            });
            return Ok(Arc::new(answers.collect::<Result<Float64Array>>()?));
        }
        let (left, right) =
            (HllArgument::from_argument(given, 0)?, HllArgument::from_argument(given, 1)?);
        let both =
            |row: usize| -> Result<Option<(Hll, Hll)>> { Ok(left.get(row)?.zip(right.get(row)?)) };
        if let HllFunction::Merge = self {
            let mut merged = BinaryViewBuilder::with_capacity(given.row_count);
            for row in 0..given.row_count {
                merged.append_option(both(row)?.map(|(mut left, right)| {
                    left.merge_owned(right);
                    left.to_bytes(HllStorageDialect::default())
                }));
            }
            return Ok(Arc::new(merged.finish()));
        }
        let is_forced = match given.arguments.get(2) {
            Some(last) => {
                let last = ScalarValue::try_from_array(&last.to_array(1)?, 0)?;
                matches!(last, ScalarValue::Boolean(Some(true)))
            }
            None => false,
        };
        if given.row_count == 0 {
            return Ok(new_null_array(given.return_type, 0));
        }
        let mut columns: [Float64Builder; 4] =
            std::array::from_fn(|_| Float64Builder::with_capacity(given.row_count));
        let mut present = Vec::with_capacity(given.row_count);
        for row in 0..given.row_count {
            let found = both(row)?.map(|(left, right)| self.compare(&left, &right));
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

impl HllFunction {
    fn compare(self, left: &Hll, right: &Hll) -> SketchEstimate {
        let compared = left.compare(right);
        match self {
            HllFunction::Jaccard => compared.jaccard,
            HllFunction::Difference => compared.left_only,
            _ => compared.intersection,
        }
    }
}

/// An argument of HyperLogLogs.
struct HllArgument(SketchArgument);

impl HllArgument {
    fn from_argument(given: &ArgumentBatch<'_>, at: usize) -> Result<Self> {
        SketchArgument::from_argument(given, at).map(HllArgument)
    }

    fn get(&self, row: usize) -> Result<Option<Hll>> {
        let bytes: Option<Cow<'_, [u8]>> = self.0.bytes(row)?;
        bytes.map(|bytes| decode_hll(&bytes, LOG2M_MAX)).transpose().map_err(external_error)
    }
}
