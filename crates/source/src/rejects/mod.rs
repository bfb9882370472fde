//! Rejected records: faults, counts and the reject log.
//!
//! - `occurrence_counts`: counts unknown keys and type mismatches by name, with their first locations.
//! - `record_fault`: the reason why a record was rejected, with hints for the command line.
//! - `reject_log`: enforces the limit of rejected records, locates them and writes copies.

pub(crate) mod occurrence_counts;
pub(crate) mod record_fault;
pub(crate) mod reject_log;
