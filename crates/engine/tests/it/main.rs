//! The engine through its public interface: SQL over files that the tests write.

mod accounting;
mod arithmetic;
mod bad_input;
mod batches;
mod common;
mod comparisons;
mod conversion;
mod first_bytes;
mod formats;
mod joins;
mod layouts;
mod merging;
mod model;
mod overflow;
mod partials;
mod promotion;
mod quoted;
mod routes;
mod row_order;
mod rowfiles;
mod sums;
mod text;
mod unions;
