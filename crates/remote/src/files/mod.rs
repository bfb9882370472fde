//! Commands for files and objects as a whole: listing, sizes, output, and copies to and from buckets.
//!
//! ```text
//!  URL… ─ file_finder ─► found files, one after another, in byte order of their names
//!                          ├─ ls · stat · du     as they come; nothing is kept of a million keys
//!                          ├─ cat                in order, the next ones on their way
//!                          └─ download · upload  N at once ─► a name that appears when all bytes are there
//! ```
//!
//! - `file_finder`: the files and objects that a URL stands for, with their path below it.
//! - `listing`: `ls`, `stat` and `du`.
//! - `sequential_read`: reading an object in order, and `cat`.
//! - `random_access`: reading a file or an object at any offset.
//! - `download_files`: downloads of objects into files, with `partial_download` for incomplete files.
//! - `upload_files`: uploads of files into objects, with `upload_resume_log` for unfinished uploads.
//! - `parallel_copy`: concurrent copies of many files, with their errors.
//!
//! **URLs** have the same meaning as in a query (`pattern`), except that a folder stands for all files below
//! it, whether they are data or not. Web servers have no folders.
//!
//! **Hostile names.** A key can contain any characters. The local name of a key is checked component by
//! component before anything is created. A key without a valid local name is refused, and the other keys
//! continue.

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

/// Settings that all commands of this module share.
#[derive(Debug, Clone, Default)]
pub struct FileAccessSettings {
    /// Options for access to stores.
    pub storage_options: StorageOptions,
    /// Ends a command within a tenth of a second.
    pub cancel: CancelFlag,
    /// Receives the bytes done, and the files done as rows.
    pub progress: RunProgress,
    /// Open connections, which clones share. They belong to one set of `storage_options`.
    pub connections: StoreConnections,
    /// Takes names literally, whatever characters they contain. Default: false, names may be patterns.
    pub has_literal_names: bool,
}

impl FileAccessSettings {
    /// Returns true if a name may stand for several files.
    fn may_match_several(&self, name: &str) -> bool {
        !self.has_literal_names && (is_pattern(name) || name.contains('{'))
    }
}

/// Open buckets and web clients; clones share them.
#[derive(Debug, Clone, Default)]
pub struct StoreConnections(Arc<Mutex<OpenConnections>>);

#[derive(Debug, Default)]
struct OpenConnections {
    buckets: HashMap<String, Arc<Bucket>>,
    /// Web clients, by whether they allow `http://` without encryption.
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
        // Opening can wait for credentials, so do not hold the lock.
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

/// Limits of the memory for prefetched or sent bytes, which is a sixteenth of the memory budget.
/// `read_memory` overrides both.
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

/// Kind of a listed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A file or an object.
    File,
    /// A folder, or a common prefix of keys that ends with `/`.
    Folder,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListingEntry {
    /// Name below the listed URL; a folder's name ends with `/`.
    pub name: String,
    /// URL or path that names the entry.
    pub url: String,
    /// File or folder.
    pub kind: EntryKind,
    /// Size in bytes; `None` for a folder, and if the server does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time of the last modification, in UTC: `2026-11-20T21:20:55Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// ETag in a bucket, in quotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
    /// Storage class in the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// Totals of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ListingTotals {
    /// Number of files and objects.
    pub files: u64,
    /// Number of folders.
    pub folders: u64,
    /// Total size of all files in bytes.
    pub bytes: u64,
}

/// Formats a time for listings.
fn format_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Formats nanoseconds since 1970; returns `None` for an unknown time (0).
fn format_time_ns(ns: i128) -> Option<String> {
    let ns = i64::try_from(ns).ok().filter(|ns| *ns != 0)?;
    Some(format_time(DateTime::from_timestamp_nanos(ns)))
}

fn metadata_modified_ns(metadata: &std::fs::Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// Returns an MD5 digest of several texts, in 32 hexadecimal digits.
fn hex_digest(texts: &[&str]) -> String {
    use md5::{Digest, Md5};
    let mut all = Md5::new();
    for text in texts {
        all.update((text.len() as u64).to_le_bytes());
        all.update(text.as_bytes());
    }
    encode_hex(all.finalize())
}

/// Returns the MD5 sum in an ETag that looks like one. It is the sum of the content only for an object in one
/// part that is not encrypted with a key of a service.
fn md5_from_e_tag(e_tag: &str) -> Option<String> {
    let digits = e_tag.trim_matches('"');
    let is_md5 = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_md5.then(|| digits.to_ascii_lowercase())
}

/// Selection of the ETags that are compared with the MD5 sum of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EtagVerification {
    /// ETags that look like an MD5 sum, of servers that document that they are one: AWS.
    #[default]
    Documented,
    /// All ETags that look like an MD5 sum.
    Always,
    /// No ETags.
    Never,
}

impl EtagVerification {
    /// Returns the MD5 sum that an ETag of a bucket promises, if it is to be compared.
    fn expected_md5(self, bucket: &Bucket, e_tag: Option<&str>) -> Option<String> {
        let is_compared = match self {
            EtagVerification::Documented => bucket.documents_md5(),
            EtagVerification::Always => true,
            EtagVerification::Never => false,
        };
        e_tag.filter(|_| is_compared).and_then(md5_from_e_tag)
    }
}

/// Returns a usage error with a hint.
fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::usage_with_hint(message, hint)
}

/// Returns true if a retry may help: the server did not answer, or is overloaded or broken.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Remote { status, .. } => {
            status.is_none_or(|status| matches!(status, 408 | 429 | 500..=599))
        }
        _ => false,
    }
}

/// Returns a path for messages, with control characters escaped.
fn display_path(path: &Path) -> String {
    escape_control_chars(&path.to_string_lossy(), &[])
}

/// Opens a regular file for reading. Checks the file type before the open, because opening a device may have
/// effects, and again after it. The open does not wait for the writer of a pipe.
///
/// # Errors
/// [`Error::Usage`] for a device, a pipe and a socket; [`Error::NotFound`] for a dangling link;
/// [`Error::Io`].
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

/// The target paths of a copy, which detects two sources with the same target.
///
/// Cost: 24 bytes per file, and nothing for a single source.
struct TargetRegistry<'a> {
    sources: &'a [String],
    /// Index of the source for each target, by the target's digest; `None` for a single source.
    source_by_target: Option<HashMap<u128, u32>>,
}

impl<'a> TargetRegistry<'a> {
    fn new(sources: &'a [String]) -> TargetRegistry<'a> {
        TargetRegistry { sources, source_by_target: (sources.len() > 1).then(HashMap::new) }
    }

    /// Adds the target of a file that was found at a source.
    ///
    /// # Errors
    /// [`Error::Usage`] if a file of another source has the same target.
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
        // One source yields each target once.
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

/// Returns [`Error::Interrupted`] if the command was cancelled.
fn check_cancelled(cancel: &CancelFlag) -> Result<()> {
    Ok(cancel.check()?)
}
