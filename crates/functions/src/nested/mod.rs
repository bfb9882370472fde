//! Functions of lists and structs.
//!
//! - `sums`: exact sums and means of a list's numbers. `aggregates`: `list_aggregate` and what is called like
//!   its aggregates. `vectors`: distances and products of two lists. `structs`: structs with other fields.

mod aggregates;
mod structs;
mod sums;
#[cfg(test)]
mod tests;
mod vectors;

use datafusion_expr::ScalarUDF;

use crate::callable::Function;

/// Returns all functions of this room.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    use aggregates::{ListAggregate, ListFunction};
    use structs::StructChange;
    use sums::OfItems;
    use vectors::VectorFunction;
    let mut all = vec![
        OfItems::Sum.registered(),
        OfItems::Mean.registered(),
        ListAggregate.registered(),
        StructChange::Update.registered(),
        StructChange::Insert.registered(),
    ];
    all.extend(ListFunction::all().map(Function::registered));
    all.extend(VectorFunction::ALL.map(Function::registered));
    all
}
