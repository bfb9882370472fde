//! Files and objects as they are: listed, measured, read out, copied from here to there and back.
//!
//! ```text
//!  URL… ─ find ─► found, one after another, in the order of their names
//!                   ├─ ls · stat · du     as they come: nothing is kept of a million keys
//!                   ├─ cat                in order, the next ones on their way
//!                   └─ get · put          N at once ─► a name that appears when all is there
//! ```
//!
//! - `find`: which files and objects does a URL mean, and where do they stand below it?
//! - `list`: what is there, and how much of it? `ls`, `stat`, `du`.
//! - `read`: how do bytes of an object arrive in order? `cat`
//! - `open`: how are they read at any place?
//! - `get`: how does an object become a file? `partial`: what is there of one before it is whole?
//! - `put`: how does a file become an object? `begun`: what is known of an upload that was begun?
//! - `many`: how is something done to many at once, and what becomes of those that fail?
//!
//! **What a URL means** is what it means in a query (`pattern`), except that a folder is all that is below
//! it: what is copied is not data alone. The web has no folders.
//!
//! **Hostile names.** A key may be anything. What it would be called here is checked part by part before
//! anything is made; one that has no name here is refused by itself, and the others go on.

mod download_files;
mod file_finder;
mod listing;
mod parallel_copy;
mod partial_download;
mod random_access;
mod sequential_read;
mod upload_files;
mod upload_resume_log;

#[cfg(test)]
mod overload_tests;
#[cfg(test)]
pub(crate) mod test_s3_server;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde::Serialize;
use tidemill_base::hex::encode_hex;
use tidemill_base::redaction::{escape_control_chars, redact_url as url_shown};
use tidemill_base::{CancelFlag, RunProgress};

use crate::error::{Error, Result};
use crate::http::WebClient;
use crate::pattern::is_pattern;
use crate::s3::Bucket;
use crate::{PrefetchBudget, StorageOptions};

pub use download_files::{CONCURRENT_FILES_DEFAULT, DownloadOptions, download_files};
pub use listing::{
    EntryCallback, FileStat, FolderUsage, FolderUsageOptions, StatCallback, UsageCallback, du, ls,
    stat,
};
pub use parallel_copy::{CopyFailure, CopySummary};
pub use random_access::{RandomAccessFile, open_file};
pub use sequential_read::{BytesCallback, cat, parse_byte_range};
pub use upload_files::{UploadOptions, upload_files};

/// What all of these are told.
#[derive(Debug, Clone, Default)]
pub struct FileAccessSettings {
    /// How stores are reached and read.
    pub storage_options: StorageOptions,
    /// Ends whatever is done, within a tenth of a second.
    pub cancel: CancelFlag,
    /// Counts bytes, and files as rows.
    pub progress: RunProgress,
    /// The connections that are open, which clones share: of one set of `storage_options`.
    pub connections: StoreConnections,
    /// Whether names stand for themselves, whatever characters are in them. Default: no, they may be patterns.
    pub has_literal_names: bool,
}

impl FileAccessSettings {
    /// Whether a name may stand for several.
    fn may_match_several(&self, name: &str) -> bool {
        !self.has_literal_names && (is_pattern(name) || name.contains('{'))
    }
}

/// Buckets and clients that are open; cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct StoreConnections(Arc<Mutex<OpenConnections>>);

#[derive(Debug, Default)]
struct OpenConnections {
    buckets: HashMap<String, Arc<Bucket>>,
    /// Of web servers, by whether it may go without encryption.
    web_clients: HashMap<bool, WebClient>,
}

impl StoreConnections {
    fn open_bucket(
        &self,
        name: &str,
        options: &StorageOptions,
        cancel: &CancelFlag,
    ) -> Result<Arc<Bucket>> {
        let known = self.0.lock().buckets.get(name).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        // Credentials may be waited for, and not with the lock held.
        let bucket = Bucket::open(name, options, cancel)?;
        Ok(Arc::clone(self.0.lock().buckets.entry(name.to_owned()).or_insert(bucket)))
    }

    fn open_web_client(&self, options: &StorageOptions, is_plain: bool) -> Result<WebClient> {
        let mut open = self.0.lock();
        if let Some(known) = open.web_clients.get(&is_plain) {
            return Ok(known.clone());
        }
        let web = WebClient::open(options, is_plain)?;
        open.web_clients.insert(is_plain, web.clone());
        Ok(web)
    }
}

/// The memory for what is read ahead or sent, unless `read_memory` says otherwise: a sixteenth of what a run
/// may have, within these.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
const MEMORY_BYTES_MAX: u64 = 512 << 20;

impl FileAccessSettings {
    fn memory_bytes(&self) -> u64 {
        let asked = self.storage_options.read_memory_bytes();
        asked.unwrap_or_else(|| {
            let run = tidemill_base::memory_budget::resolve_memory_budget(None, None).unwrap_or(0);
            (run / 16).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
        })
    }

    fn budget(&self) -> PrefetchBudget {
        PrefetchBudget::new(self.memory_bytes())
    }
}

/// What something listed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A file or an object.
    File,
    /// A folder, or what keys have in common up to a `/`.
    Folder,
}

/// A line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListingEntry {
    /// Its name below what was named; of a folder with a `/` at its end.
    pub name: String,
    /// Its URL or path, by which it can be named again.
    pub url: String,
    /// What it is.
    pub kind: EntryKind,
    /// Its bytes; none of a folder, and of what a server does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When it was last written, in UTC: `2026-11-20T21:20:55Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// Its version in a bucket, in quotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
    /// How a bucket stores it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// How much was listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ListingTotals {
    /// Files and objects.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// A time as it is shown.
fn format_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// The same of nanoseconds since 1970, where somebody said.
fn format_time_ns(ns: i128) -> Option<String> {
    let ns = i64::try_from(ns).ok().filter(|ns| *ns != 0)?;
    Some(format_time(DateTime::from_timestamp_nanos(ns)))
}

fn metadata_modified_ns(metadata: &std::fs::Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// A digest of texts, in 32 hexadecimal digits.
fn hex_digest(texts: &[&str]) -> String {
    use md5::{Digest, Md5};
    let mut all = Md5::new();
    for text in texts {
        all.update((text.len() as u64).to_le_bytes());
        all.update(text.as_bytes());
    }
    encode_hex(all.finalize())
}

/// The MD5 sum that an ETag may be: of an object in one part, where no key of a service encrypts.
fn md5_from_e_tag(e_tag: &str) -> Option<String> {
    let digits = e_tag.trim_matches('"');
    let is_md5 = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_md5.then(|| digits.to_ascii_lowercase())
}

/// Selection of the ETags that are compared with the MD5 sum of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EtagVerification {
    /// Those that look like an MD5 sum, of servers that document that they are one: AWS.
    #[default]
    Documented,
    /// All that look like an MD5 sum.
    Always,
    /// None.
    Never,
}

impl EtagVerification {
    /// Returns the MD5 sum that an ETag of a bucket is to be, if it is one.
    fn expected_md5(self, bucket: &Bucket, e_tag: Option<&str>) -> Option<String> {
        let is_compared = match self {
            EtagVerification::Documented => bucket.documents_md5(),
            EtagVerification::Always => true,
            EtagVerification::Never => false,
        };
        e_tag.filter(|_| is_compared).and_then(md5_from_e_tag)
    }
}

/// Refuses an option that has no place among files as they are.
fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::usage_with_hint(message, hint)
}

/// Whether it is worth trying again: there was no answer, or one of a server that is overloaded or broken.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Remote { status, .. } => {
            status.is_none_or(|status| matches!(status, 408 | 429 | 500..=599))
        }
        _ => false,
    }
}

/// A path as it is told of: what a terminal would obey is made visible.
fn display_path(path: &Path) -> String {
    escape_control_chars(&path.to_string_lossy(), &[])
}

/// Opens a file to be read, and nothing else: there is a look before, as to open a device may do something, and
/// one after, without waiting for whoever writes to a pipe.
///
/// # Errors
/// [`Error::Usage`] for a device, a pipe and a socket, [`Error::NotFound`] for a link to nothing; [`Error::Io`].
fn open_regular_file(path: &Path) -> Result<std::fs::File> {
    let failed = |error: std::io::Error| match file_finder::dangling_link_error(path) {
        Some(dangling) => dangling,
        None => Error::io("read", path, error),
    };
    let look = |about: &std::fs::Metadata| match about.is_file() {
        true => Ok(()),
        false => Err(usage_error(
            format!("`{}` is not a regular file", display_path(path)),
            "devices, pipes and sockets have no size; write it to a file first",
        )),
    };
    look(&std::fs::metadata(path).map_err(failed)?)?;
    #[expect(clippy::cast_possible_wrap, reason = "flags of the system, as it has them")]
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    look(&file.metadata().map_err(failed)?)?;
    Ok(file)
}

/// What sources become, where there are several: no two of them one.
///
/// It costs 24 bytes for each file, and nothing of a source that is alone.
struct TargetRegistry<'a> {
    sources: &'a [String],
    /// The digest of each target, and which source has it.
    source_by_target: Option<HashMap<u128, u32>>,
}

impl<'a> TargetRegistry<'a> {
    fn new(sources: &'a [String]) -> TargetRegistry<'a> {
        TargetRegistry { sources, source_by_target: (sources.len() > 1).then(HashMap::new) }
    }

    /// Takes what something found at a source becomes.
    ///
    /// # Errors
    /// [`Error::Usage`], if something else becomes the same.
    fn register(
        &mut self,
        index: usize,
        found: &file_finder::FoundFile,
        target: &[u8],
        shown: impl FnOnce() -> String,
    ) -> Result<()> {
        use md5::{Digest, Md5};
        let Some(seen) = &mut self.source_by_target else { return Ok(()) };
        let sum = u128::from_le_bytes(Md5::digest(target).into());
        let own = u32::try_from(index).unwrap_or(u32::MAX);
        let first = *seen.entry(sum).or_insert(own);
        // A source by itself has nothing twice.
        if first == own {
            return Ok(());
        }
        let first =
            self.sources.get(first as usize).map(|url| escape_control_chars(&url_shown(url), &[]));
        Err(usage_error(
            format!(
                "`{}` is to become `{}`, and so is one of `{}`, which was named before",
                found.display_url(),
                shown(),
                first.unwrap_or_default()
            ),
            "copy them one after another, each to a place of its own",
        ))
    }
}

/// A check that ends whatever is done.
fn check_cancelled(cancel: &CancelFlag) -> Result<()> {
    Ok(cancel.check()?)
}
