//! Operators that keep to a memory budget, for DataFusion's physical plans.
//!
//! - `memory_pool`: divides the budget fairly among operators. `spills`: spill files without names.
//! - `fan_out_sorts`: sorts beyond memory, on crate [`sort`](tidemill_sort). `batch_positions`: the position of a batch
//!   within its source, for stable sorts.
//! - `windows`: window functions over hash partitions, whole partitions and running totals.
//! - `ordered_unions`: unions whose branches run one after the other.
//! - `expression_memory`, `amplifying_functions`: expressions whose output exceeds their input, evaluated over few rows
//!   at a time.
//! - `execution_override`: DataFusion operators with another execution and the same properties.
//!
//! The crate knows no SQL text. Its unit tests open sessions of crate `sql`, a dev-dependency.

pub mod amplifying_functions;
pub mod batch_positions;
pub mod execution_override;
pub mod expression_memory;
pub mod fan_out_sorts;
pub mod memory_pool;
pub mod ordered_unions;
pub mod spills;
pub mod windows;
