//! The engine through its public interface: SQL over files that the tests write.

mod accounting;
mod bad_input;
mod batches;
mod clauses;
mod common;
mod conversion;
mod formats;
mod joins;
mod layouts;
mod merging;
mod model;
mod overflow;
mod partials;
mod promotion;
mod quoted;
mod random_sql;
mod routes;
mod row_order;
mod rowfiles;
mod text;
