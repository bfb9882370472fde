//! Files and objects: listing, identity, decompression, checks and timeouts.
//!
//! - `access_plan`: access plans for remote splits.
//! - `byte_input`: stored bytes of one file, read by position and checked against the plan.
//! - `compression`: detection of compression, and decompression as a stream.
//! - `confinement`: confinement of a process that reads files on behalf of others.
//! - `listing`: listing.
//! - `rowfile_check`: integrity check of rowfiles, and salvage of damaged ones.
//! - `rowfile_listing`: listing of the rowfiles of a URL, for callers that copy their blocks unchanged.
//! - `rowfile_salvage`: access to the bytes of rowfiles, and salvage of damaged ones.
//! - `unresponsive_files`: opening a source some of whose files do not respond, or cannot be read.

pub(crate) mod access_plan;
pub(crate) mod byte_input;
pub(crate) mod compression;
pub(crate) mod confinement;
pub(crate) mod listing;
pub mod rowfile_check;
pub mod rowfile_listing;
pub mod rowfile_salvage;
pub(crate) mod unresponsive_files;
