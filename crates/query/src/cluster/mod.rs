//! What a query would take on a cluster: measured here on a sample of its own input, and calculated from that.
//!
//! - `measure`: what do its bytes, the starts of its splits and the merging of its tables take here?
//! - `model`: what follows from that for so many cores and disks, and what bounds it?

mod measure;
mod model;

pub use model::{Bound, Cluster, Forecast, Measured, Outlook, PartSeconds, ReadShare};
