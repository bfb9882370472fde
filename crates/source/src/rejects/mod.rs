//! Rejected records: faults, counts and the reject log.
//!
//! - `occurrence_counts`: counts by name with the location of the first occurrence, for unknown keys and
//!   for type mismatches.
//! - `record_fault`: faults of rejected records, with reasons and hints for the command line.
//! - `reject_log`: log of malformed records.

pub(crate) mod occurrence_counts;
pub(crate) mod record_fault;
pub(crate) mod reject_log;
