//! What stored sets of whole numbers tell: `id_set_cardinality`, `id_set_contains`, `id_set_ids`, and of two of them
//! `id_set_merge`, `id_set_common`, `id_set_difference` and `id_set_jaccard`. All of it is exact.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewBuilder, BooleanArray, Float64Array, Int64Array,
    Int64Builder, ListBuilder,
};
use arrow::datatypes::{DataType, Field, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use tidemill_sketch::SortedIdSet;

use super::{SECTION, Stored, as_sketch, id_set_of, look_into_id_set};
use crate::callable::{Function, Given, Told, called_as, external};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OfIds {
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

impl OfIds {
    pub(super) const ALL: [OfIds; 7] = [
        OfIds::Cardinality,
        OfIds::Contains,
        OfIds::List,
        OfIds::Merge,
        OfIds::Common,
        OfIds::Difference,
        OfIds::Jaccard,
    ];
}

impl Function for OfIds {
    fn names(&self) -> &'static [&'static str] {
        match self {
            OfIds::Cardinality => &["id_set_cardinality"],
            OfIds::Contains => &["id_set_contains"],
            OfIds::List => &["id_set_ids"],
            OfIds::Merge => &["id_set_merge"],
            OfIds::Common => &["id_set_common"],
            OfIds::Difference => &["id_set_difference"],
            OfIds::Jaccard => &["id_set_jaccard"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            OfIds::Cardinality => ("id_set_cardinality(s)", "How many numbers a stored set has."),
            OfIds::Contains => ("id_set_contains(s, id)", "Whether a stored set has a number."),
            OfIds::List => (
                "id_set_ids(s)",
                "The numbers of a stored set, a list of BIGINTs in ascending order, those below zero last.",
            ),
            OfIds::Merge => (
                "id_set_merge(a, b)",
                "The numbers that either of two stored sets has. Also `id_set_union(a, b)`.",
            ),
            OfIds::Common => (
                "id_set_common(a, b)",
                "The numbers that both of two stored sets have. Also `id_set_intersection(a, b)`.",
            ),
            OfIds::Difference => (
                "id_set_difference(a, b)",
                "The numbers that the first of two stored sets has and the second has not.",
            ),
            OfIds::Jaccard => (
                "id_set_jaccard(a, b)",
                "The share of the numbers of two stored sets that both have, from 0 to 1; 0 of two empty ones.",
            ),
        };
        Told { section: SECTION, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let refused = || called_as(self, given);
        Ok(match (self, given) {
            (OfIds::Cardinality | OfIds::List, [set]) => vec![as_sketch(set).ok_or_else(refused)?],
            (OfIds::Contains, [set, id]) => {
                let id = match id {
                    DataType::UInt64 => DataType::UInt64,
                    id if id.is_integer() || id.is_null() => DataType::Int64,
                    _ => return Err(refused()),
                };
                vec![as_sketch(set).ok_or_else(refused)?, id]
            }
            (OfIds::Merge | OfIds::Common | OfIds::Difference | OfIds::Jaccard, [left, right]) => {
                vec![as_sketch(left).ok_or_else(refused)?, as_sketch(right).ok_or_else(refused)?]
            }
            _ => return Err(refused()),
        })
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            OfIds::Cardinality => DataType::Int64,
            OfIds::Contains => DataType::Boolean,
            OfIds::List => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
            OfIds::Merge | OfIds::Common | OfIds::Difference => DataType::BinaryView,
            OfIds::Jaccard => DataType::Float64,
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let sets = Sets::of(given, 0)?;
        let all = 0..given.rows;
        Ok(match self {
            OfIds::Cardinality => {
                let counts = all.map(|row| {
                    let count = sets.look_into(row, None)?.map(|(count, _)| count);
                    Ok(count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
                });
                Arc::new(counts.collect::<Result<Int64Array>>()?)
            }
            OfIds::Contains => {
                let of = given.value(1)?.data_type();
                let (wanted, rows) = given.cast(1, &of)?;
                let id = |row: usize| {
                    let row = rows.at(row);
                    wanted.is_valid(row).then(|| match wanted.data_type() {
                        DataType::UInt64 => wanted.as_primitive::<UInt64Type>().value(row),
                        _ => wanted.as_primitive::<Int64Type>().value(row).cast_unsigned(),
                    })
                };
                let answers = all.map(|row| {
                    let id = id(row);
                    let found = sets.look_into(row, id)?;
                    Ok(found.zip(id).map(|((_, has_id), _)| has_id))
                });
                Arc::new(answers.collect::<Result<BooleanArray>>()?)
            }
            OfIds::List => {
                let mut lists = ListBuilder::new(Int64Builder::new());
                for row in all {
                    match sets.at(row)? {
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
            OfIds::Jaccard => {
                let others = Sets::of(given, 1)?;
                let shares = all.map(|row| {
                    let pair = sets.at(row)?.zip(others.at(row)?);
                    Ok(pair.map(|(mut left, right)| {
                        let both = left.len() + right.len();
                        left.intersect_with(&right);
                        let shared = left.len();
                        shared as f64 / (both - shared).max(1) as f64
                    }))
                });
                Arc::new(shares.collect::<Result<Float64Array>>()?)
            }
            OfIds::Merge | OfIds::Common | OfIds::Difference => {
                let others = Sets::of(given, 1)?;
                let mut joined = BinaryViewBuilder::with_capacity(given.rows);
                for row in all {
                    let pair = sets.at(row)?.zip(others.at(row)?);
                    joined.append_option(pair.map(|(mut left, right)| {
                        match self {
                            OfIds::Common => left.intersect_with(&right),
                            OfIds::Difference => left.subtract(&right),
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

/// An argument of sets.
struct Sets(Stored);

impl Sets {
    fn of(given: &Given<'_>, at: usize) -> Result<Self> {
        Stored::of(given, at).map(Sets)
    }

    fn at(&self, row: usize) -> Result<Option<SortedIdSet>> {
        self.0.at(row)?.map(|bytes| id_set_of(&bytes)).transpose().map_err(external)
    }

    /// How many numbers a set has, and whether it has one; without the memory of them.
    fn look_into(&self, row: usize, id: Option<u64>) -> Result<Option<(usize, bool)>> {
        let look = |bytes: std::borrow::Cow<'_, [u8]>| look_into_id_set(&bytes, id);
        self.0.at(row)?.map(look).transpose().map_err(external)
    }
}
