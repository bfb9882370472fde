//! SQL over sources: planned, explained, run.
//!
//! - `question`: what is asked? `about`: and what about a query, but its rows? `plan`: how is it run? `explain`
//!   says it.
//! - `route`, `build_sides`: which way does a query go, and which sources are held beside the one that is read in
//!   splits?
//! - `scan`, `sampled`, `prune`, `known`: how does a source look to DataFusion, what need not be read, and what is known of it
//!   before?
//! - `tables`, `rows`: who reads which split, and in which order is it taken? `background`, `finished`: how are
//!   plans of DataFusion's run, and what do they read of a finished table?
//! - `stand_ins`: which tables take the place of a part of a plan? `row_calculation`: what is evaluated above a limit?
//! - `results`, `columns`: what comes out, and what is it called?
//! - `merge`: how do partial tables become one answer?
//! - `turbo`: what does a part of the input tell of all of it? `cluster`: and what would all of it take on many machines?
//! - `unknown`: which tables has nobody said anything of?
//! - `secrets`: SQL as it may be kept. `words`: which words does it know?

mod about;
mod analysis;
mod answers;
mod background;
mod build_sides;
mod cluster;
mod coded;
mod columns;
mod explain;
mod finished;
mod known;
mod map;
mod merge;
mod plan;
mod prune;
mod question;
mod results;
mod route;
mod row_calculation;
mod rows;
mod sampled;
mod scan;
mod secrets;
mod stand_ins;
mod tables;
mod tasks;
#[cfg(test)]
mod tests;
mod turbo;
mod unknown;
pub mod words;

pub use cluster::{Bound, Cluster, Forecast, Measured, Outlook, PartSeconds, ReadShare};
pub use columns::named;
pub use explain::{Explain, ExplainSource};
pub use merge::{Merge, Repeats};
pub use plan::Plan;
pub use question::{NamedSource, Query};
pub use results::Results;
pub use tasks::{
    Came, Done, Failure, Handed, HandedFile, HandedJob, NewTask, Output, Reach, ScratchSpec, Tasks,
    Took, Unordered, Worker, Workers,
};
pub use tidemill_sql::parameters::QueryParameter;
pub use tidemill_sql::statement::schema_from_sql;
pub use turbo::run::{Glimpse, Watch};
pub use turbo::shown::late_seconds;
pub use turbo::{OPTIONS as TURBO_OPTIONS, Turbo};
pub use unknown::UnknownTable;
