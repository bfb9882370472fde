//! Functions of stored id sets: `id_set_cardinality`, `id_set_contains`, `id_set_ids`, and of two sets
//! `id_set_merge`, `id_set_common`, `id_set_difference` and `id_set_jaccard`. All results are exact.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewBuilder, BooleanArray, Float64Array, Int64Array,
    Int64Builder, ListBuilder,
};
use arrow::datatypes::{DataType, Field, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use tidemill_sketch::SortedIdSet;

use super::{
    SKETCH_SECTION, SketchArgument, decode_id_set, id_set_len_and_contains, sketch_cast_type,
};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, external_error, wrong_arguments_error,
};

/// Functions of one or two stored id sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IdSetFunction {
    /// `id_set_cardinality`
    Cardinality,
    /// `id_set_contains`
    Contains,
    /// `id_set_ids`
    List,
    /// `id_set_merge`
    Merge,
    /// `id_set_common`
    Common,
    /// `id_set_difference`
    Difference,
    /// `id_set_jaccard`
    Jaccard,
}

impl IdSetFunction {
    pub(super) const ALL: [IdSetFunction; 7] = [
        IdSetFunction::Cardinality,
        IdSetFunction::Contains,
        IdSetFunction::List,
        IdSetFunction::Merge,
        IdSetFunction::Common,
        IdSetFunction::Difference,
        IdSetFunction::Jaccard,
    ];
}

impl RowFunction for IdSetFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            IdSetFunction::Cardinality => &["id_set_cardinality"],
            IdSetFunction::Contains => &["id_set_contains"],
            IdSetFunction::List => &["id_set_ids"],
            IdSetFunction::Merge => &["id_set_merge"],
            IdSetFunction::Common => &["id_set_common"],
            IdSetFunction::Difference => &["id_set_difference"],
            IdSetFunction::Jaccard => &["id_set_jaccard"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            IdSetFunction::Cardinality => {
                ("id_set_cardinality(s)", "How many numbers a stored set has.")
            }
            IdSetFunction::Contains => {
                ("id_set_contains(s, id)", "Whether a stored set has a number.")
            }
            IdSetFunction::List => (
                "id_set_ids(s)",
                "The numbers of a stored set, a list of BIGINTs in ascending order, those below zero last.",
            ),
            IdSetFunction::Merge => (
                "id_set_merge(a, b)",
                "The numbers that either of two stored sets has. Also `id_set_union(a, b)`.",
            ),
            IdSetFunction::Common => (
                "id_set_common(a, b)",
                "The numbers that both of two stored sets have. Also `id_set_intersection(a, b)`.",
            ),
            IdSetFunction::Difference => (
                "id_set_difference(a, b)",
                "The numbers that the first of two stored sets has and the second has not.",
            ),
            IdSetFunction::Jaccard => (
                "id_set_jaccard(a, b)",
                "The share of the numbers of two stored sets that both have, from 0 to 1; 0 of two empty ones.",
            ),
        };
        FunctionDocs { section: SKETCH_SECTION, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let refused = || wrong_arguments_error(self, given);
        Ok(match (self, given) {
            (IdSetFunction::Cardinality | IdSetFunction::List, [set]) => {
                vec![sketch_cast_type(set).ok_or_else(refused)?]
            }
            (IdSetFunction::Contains, [set, id]) => {
                let id = match id {
                    DataType::UInt64 => DataType::UInt64,
                    id if id.is_integer() || id.is_null() => DataType::Int64,
                    _ => return Err(refused()),
                };
                vec![sketch_cast_type(set).ok_or_else(refused)?, id]
            }
            (
                IdSetFunction::Merge
                | IdSetFunction::Common
                | IdSetFunction::Difference
                | IdSetFunction::Jaccard,
                [left, right],
            ) => {
                vec![
                    sketch_cast_type(left).ok_or_else(refused)?,
                    sketch_cast_type(right).ok_or_else(refused)?,
                ]
            }
            _ => return Err(refused()),
        })
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            IdSetFunction::Cardinality => DataType::Int64,
            IdSetFunction::Contains => DataType::Boolean,
            IdSetFunction::List => {
                DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
            }
            IdSetFunction::Merge | IdSetFunction::Common | IdSetFunction::Difference => {
                DataType::BinaryView
            }
            IdSetFunction::Jaccard => DataType::Float64,
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let sets = IdSetArgument::from_argument(given, 0)?;
        let all = 0..given.row_count;
        Ok(match self {
            IdSetFunction::Cardinality => {
                let counts = all.map(|row| {
                    let count = sets.len_and_contains(row, None)?.map(|(count, _)| count);
                    Ok(count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
                });
                Arc::new(counts.collect::<Result<Int64Array>>()?)
            }
            IdSetFunction::Contains => {
                let of = given.argument(1)?.data_type();
                let (wanted, rows) = given.cast_argument(1, &of)?;
                let id = |row: usize| {
                    let row = rows.value_index(row);
                    wanted.is_valid(row).then(|| match wanted.data_type() {
                        DataType::UInt64 => wanted.as_primitive::<UInt64Type>().value(row),
                        _ => wanted.as_primitive::<Int64Type>().value(row).cast_unsigned(),
                    })
                };
                let answers = all.map(|row| {
                    let id = id(row);
                    let found = sets.len_and_contains(row, id)?;
                    Ok(found.zip(id).map(|((_, has_id), _)| has_id))
                });
                Arc::new(answers.collect::<Result<BooleanArray>>()?)
            }
            IdSetFunction::List => {
                let mut lists = ListBuilder::new(Int64Builder::new());
                for row in all {
                    match sets.get(row)? {
                        Some(ids) => {
                            for id in ids.iter() {
                                lists.values().append_value(id.cast_signed());
                            }
                            lists.append(true);
                        }
                        None => lists.append_null(),
                    }
                }
                Arc::new(lists.finish())
            }
            IdSetFunction::Jaccard => {
                let others = IdSetArgument::from_argument(given, 1)?;
                let shares = all.map(|row| {
                    let pair = sets.get(row)?.zip(others.get(row)?);
                    Ok(pair.map(|(mut left, right)| {
                        let both = left.len() + right.len();
                        left.intersect_with(&right);
                        let shared = left.len();
                        shared as f64 / (both - shared).max(1) as f64
                    }))
                });
                Arc::new(shares.collect::<Result<Float64Array>>()?)
            }
            IdSetFunction::Merge | IdSetFunction::Common | IdSetFunction::Difference => {
                let others = IdSetArgument::from_argument(given, 1)?;
                let mut joined = BinaryViewBuilder::with_capacity(given.row_count);
                for row in all {
                    let pair = sets.get(row)?.zip(others.get(row)?);
                    joined.append_option(pair.map(|(mut left, right)| {
                        match self {
                            IdSetFunction::Common => left.intersect_with(&right),
                            IdSetFunction::Difference => left.subtract(&right),
                            _ => left.merge_owned(right),
                        }
                        let mut bytes = Vec::new();
                        left.encode(&mut bytes);
                        bytes
                    }));
                }
                Arc::new(joined.finish())
            }
        })
    }
}

/// An argument of id sets.
struct IdSetArgument(SketchArgument);

impl IdSetArgument {
    fn from_argument(given: &ArgumentBatch<'_>, at: usize) -> Result<Self> {
        SketchArgument::from_argument(given, at).map(IdSetArgument)
    }

    fn get(&self, row: usize) -> Result<Option<SortedIdSet>> {
        self.0.bytes(row)?.map(|bytes| decode_id_set(&bytes)).transpose().map_err(external_error)
    }

    /// Returns the number of ids in a set, and whether it contains `id`, without decoding the set into
    /// memory.
    fn len_and_contains(&self, row: usize, id: Option<u64>) -> Result<Option<(usize, bool)>> {
        let look = |bytes: std::borrow::Cow<'_, [u8]>| id_set_len_and_contains(&bytes, id);
        self.0.bytes(row)?.map(look).transpose().map_err(external_error)
    }
}
