//! Functions of lists and structs.
//!
//! - `sums`: exact sums and means of a list's numbers. `aggregates`: `list_aggregate`, and functions such as
//!   `list_median`. `vectors`: products and distances of two lists. `structs`: structs with added or changed
//!   fields.

mod aggregates;
mod structs;
mod sums;
#[cfg(test)]
mod tests;
mod vectors;

use datafusion_expr::ScalarUDF;

use crate::row_function::RowFunction;

/// Returns all functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    use aggregates::{ListAggregateFunction, NamedListAggregateFunction};
    use structs::StructChangeFunction;
    use sums::ListSumOrMean;
    use vectors::VectorFunction;
    let mut all = vec![
        ListSumOrMean::Sum.into_udf(),
        ListSumOrMean::Mean.into_udf(),
        ListAggregateFunction.into_udf(),
        StructChangeFunction::Update.into_udf(),
        StructChangeFunction::Insert.into_udf(),
    ];
    all.extend(NamedListAggregateFunction::all().map(RowFunction::into_udf));
    all.extend(VectorFunction::ALL.map(RowFunction::into_udf));
    all
}
