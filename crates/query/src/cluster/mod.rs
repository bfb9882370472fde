//! The cluster model: the forecast of a query's time on a cluster, from measurements on a sample of its
//! input.
//!
//! - `measurement`: the measured costs of bytes, split starts, groups and merges on this machine.
//! - `model`: the forecast for a number of cores and disks, and its bottleneck.

mod measurement;
mod model;

pub use model::{
    Bottleneck, ClusterForecast, ClusterSpec, PhaseSeconds, QueryMeasurement, ReadScope,
    ScenarioForecast,
};
