//! Tidemill's errors inside of DataFusion's, from an operator or a rule to the code that reports them.

use datafusion::error::DataFusionError;
use tidemill_base::Error;

/// Wraps Tidemill's error in DataFusion's; `IntoTidemillError` of crate `dialect` unwraps it.
pub fn into_datafusion_error(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Prefix of the memory pool's messages, by which they are found inside DataFusion's.
pub const OUT_OF_MEMORY_PREFIX: &str = "out of memory: ";
