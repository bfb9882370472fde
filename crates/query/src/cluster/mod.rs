//! The cluster model: the forecast of a query's time on a cluster, from measurements on a sample of its
//! input.
//!
//! - `query_cost_measurement`: the measured costs of bytes, split starts, groups and merges on this machine.
//! - `model`: the forecast for a number of cores and disks, and its bottleneck.

mod model;
mod query_cost_measurement;

pub use model::{
    Bottleneck, ClusterForecast, ClusterSpec, PhaseSeconds, QueryMeasurement, ReadScope,
    ScenarioForecast,
};
