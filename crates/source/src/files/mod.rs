//! Files and objects: listing, identity, decompression, checks and timeouts.
//!
//! - `access_plan`: announces the byte ranges of all remote splits before the first is read.
//! - `byte_input`: reads a file's stored bytes by position and detects changes since the listing.
//! - `compression`: detects compression, and decompresses streams, large ones on a helper thread.
//! - `confinement`: restricts a process that reads files for others to allowed folders.
//! - `listing`: expands paths, patterns and URLs into sorted files with their partition keys.
//! - `rowfile_check`: checks the integrity of rowfiles and salvages damaged ones, for commands.
//! - `rowfile_listing`: lists the rowfiles of a URL, for callers that copy their blocks unchanged.
//! - `rowfile_salvage`: opens rowfiles for reading, and skips their damaged blocks.
//! - `unresponsive_files`: probes files on helper threads, and skips those that do not respond or fail.

pub(crate) mod access_plan;
pub(crate) mod byte_input;
pub(crate) mod compression;
pub(crate) mod confinement;
pub(crate) mod listing;
pub mod rowfile_check;
pub mod rowfile_listing;
pub mod rowfile_salvage;
pub(crate) mod unresponsive_files;
