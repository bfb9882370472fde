//! What a query would take on a cluster: measured here on a sample of its own input, and calculated from that.
//!
//! - `measure`: what do its bytes, the starts of its splits and the merging of its tables take here?
//! - `model`: what follows from that for so many cores and disks, and what bounds it?

mod measurement;
mod model;

pub use model::{
    Bottleneck, ClusterForecast, ClusterSpec, PhaseSeconds, QueryMeasurement, ReadScope,
    ScenarioForecast,
};
