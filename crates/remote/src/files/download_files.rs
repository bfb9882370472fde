//! Downloads objects into files.
//!
//! A download writes beside the target (`partial_download`) and renames the file when it is complete. It is
//! complete if the size is the object's, and if the MD5 sum matches where the server documents that the ETag
//! is one. The blocks of a large object arrive concurrently and are written in order, so the file is always a
//! prefix of the object. If a run is stopped or killed, the next run resumes after the last block whose
//! checksum matches, provided that the object still has the same version.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::durability::sync_path;
use tidemill_base::hex::encode_hex;
use tidemill_base::redaction::{escape_control_chars, redact_url};

use super::file_finder::{
    FileFinder, FileMatchKind, FoundFile, FoundLocation, ListingPages, last_component,
};
use super::parallel_copy::{self, CopyOutcome, CopySummary};
use super::partial_download::{
    PARTIAL_FILE_PREFIX, PartialDownload, RESUME_BLOCK_BYTES, remove_stale_checksums,
};
use super::sequential_read::{SMALL_OBJECT_BYTES_MAX, SequentialObjectReader};
use super::{
    EtagVerification, FileAccessSettings, TargetRegistry, check_cancelled, display_path,
    hex_digest, is_transient, md5_from_e_tag, metadata_modified_ns, open_regular_file, usage_error,
};
use crate::block_on;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::object::Object;
use crate::reader::PrefetchBudget;
use crate::s3::Bucket;

/// Default number of concurrent files. Small files wait for their first byte most of the time.
pub const CONCURRENT_FILES_DEFAULT: usize = 32;
/// Maximum length of a file name, in bytes, on any usual file system.
const NAME_BYTES_MAX: usize = 255;
/// Size of the buffer that reads a file for its MD5 sum.
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Number of folders with new names that triggers a sync of all of them.
const UNSYNCED_FOLDERS_MAX: usize = 1_000;

/// Options of a download.
#[derive(Debug, Clone)]
pub struct DownloadOptions {
    /// The file or folder to write to. Default: the name of the file or of the folder; for a pattern, the
    /// current folder.
    pub output: Option<String>,
    /// Replaces existing files.
    pub overwrite: bool,
    /// Skips a file that has the object's size and MD5 sum. Without a known MD5 sum, or above 8 MiB, skips a
    /// file of the same size that is not older than the object.
    pub skip_existing: bool,
    /// Number of concurrent files. Minimum: 1.
    pub concurrent_files: usize,
    /// Selection of the ETags that are compared with the MD5 sum of the received bytes.
    pub verify: EtagVerification,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        let (at_once, verify) = (CONCURRENT_FILES_DEFAULT, EtagVerification::default());
        DownloadOptions {
            output: None,
            overwrite: false,
            skip_existing: false,
            concurrent_files: at_once,
            verify,
        }
    }
}

/// Downloads the objects that the URLs stand for into files.
///
/// # Errors
/// [`Error::Usage`] for a URL on this machine; [`Error::NotFound`], [`Error::Remote`] and [`Error::Io`] if
/// nothing could start, or if the only object failed; [`Error::Interrupted`]. If one of many objects fails,
/// its error is in [`CopySummary::failures`].
pub fn download_files(
    urls: &[String],
    options: &DownloadOptions,
    settings: &FileAccessSettings,
) -> Result<CopySummary> {
    for url in urls {
        if Location::parse(url)?.is_none() {
            let message = match std::fs::exists(url) {
                Ok(false) => format!("`{url}` is neither a URL nor a file on this machine"),
                _ => format!("`{url}` is on this machine already"),
            };
            return Err(usage_error(
                message,
                "`tidemill get` fetches from s3:// and https://, `tidemill put` brings files to s3://, and \
                 cp copies files here",
            ));
        }
    }
    if let Some(output) = &options.output {
        if output.is_empty() {
            return Err(usage_error(
                "--output is empty",
                "name a file or a folder, or leave --output away for the names that the objects have",
            ));
        }
        if output == "-" {
            return Err(usage_error(
                "--output `-` would be a file of that name",
                "`tidemill cat` writes to standard output; `./-` is the file",
            ));
        }
        if Location::parse(output)?.is_some() {
            return Err(usage_error(
                format!(
                    "--output `{}` is not on this machine",
                    escape_control_chars(&redact_url(output), &[])
                ),
                "there is no copying between buckets: `tidemill get` to a folder here, then `tidemill put`",
            ));
        }
    }
    let several = urls.len() > 1;
    let (cancel, progress) = (&settings.cancel, &settings.progress);
    let stores = FileFinder::new(settings);
    let run = DownloadRun {
        options,
        cancel,
        settings,
        budget: settings.budget(),
        unsynced_folders: Mutex::default(),
    };
    let mut total = 0;
    let mut targets = TargetRegistry::new(urls);
    let produce = |each: &mut dyn FnMut((FoundFile, Result<PathBuf>)) -> Result<()>| {
        urls.iter().enumerate().try_for_each(|(index, url)| {
            stores.find_files(url, &mut |found| {
                check_cancelled(cancel)?;
                total += found.size;
                progress.set_bytes_total(total);
                let target = target_path(url, &found, options.output.as_deref(), several);
                let target = target.and_then(|target| {
                    targets.register(index, &found, target.as_os_str().as_bytes(), || {
                        display_path(&target)
                    })?;
                    Ok(target)
                });
                each((found, target))
            })
        })
    };
    let copied = parallel_copy::run_in_parallel(
        options.concurrent_files,
        cancel,
        produce,
        |(found, target)| {
            let done = match target {
                Ok(target) => run.download_file(found, target),
                Err(error) => Err(error.duplicate()),
            };
            if done.is_ok() {
                progress.add_rows(1);
            }
            done
        },
        |(found, _)| found.url(),
    );
    run.sync_folders(0)?;
    copied
}

struct DownloadRun<'a> {
    options: &'a DownloadOptions,
    cancel: &'a CancelFlag,
    settings: &'a FileAccessSettings,
    budget: PrefetchBudget,
    /// Folders that contain new names, each with one of these names.
    unsynced_folders: Mutex<BTreeMap<PathBuf, PathBuf>>,
}

impl DownloadRun<'_> {
    fn download_file(&self, found: &FoundFile, target: &Path) -> Result<CopyOutcome> {
        check_cancelled(self.cancel)?;
        if let Ok(there) = target.symlink_metadata() {
            check_replaceable(target)?;
            remove_stale_checksums(target)?;
            if self.options.skip_existing && self.is_up_to_date(found, target, &there)? {
                self.settings.progress.add_bytes(found.size);
                return Ok(CopyOutcome::Skipped);
            }
            if there.is_dir() {
                return Err(self.folder_conflict_error(found, target));
            }
            if !self.options.overwrite {
                return Err(Error::Exists { path: target.display().to_string() });
            }
        }
        let Some(object) = found.to_object()? else {
            return Err(Error::Internal("a file of this machine among objects".into()));
        };
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            self.create_folder(folder)
                .map_err(|error| create_folder_error(found, folder, error))?;
        }
        let done = self.write_file(found, &object, target)?;
        self.record_new_name(target);
        self.sync_folders(UNSYNCED_FOLDERS_MAX)?;
        Ok(done)
    }

    /// Creates a folder and its missing parents, and records their names as new.
    fn create_folder(&self, folder: &Path) -> std::io::Result<()> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
        std::fs::create_dir_all(folder)?;
        missing.into_iter().for_each(|path| self.record_new_name(path));
        Ok(())
    }

    /// Records a new name, so that its folder is synced later.
    fn record_new_name(&self, path: &Path) {
        let folder = path.parent().unwrap_or(Path::new(""));
        self.unsynced_folders.lock().insert(folder.to_owned(), path.to_owned());
    }

    /// Returns true if a file need not be downloaded. It must have the object's size. It must also have the
    /// object's MD5 sum, if that is known and the object is small, or else must not be older than the object.
    fn is_up_to_date(&self, found: &FoundFile, target: &Path, there: &Metadata) -> Result<bool> {
        if !there.is_file() || there.len() != found.size {
            return Ok(false);
        }
        let verify = self.options.verify;
        if let FoundLocation::BucketKey { bucket, listed } = &found.location
            && verify != EtagVerification::Never
            && found.size <= RESUME_BLOCK_BYTES
            && let Some(expected) = listed.e_tag.as_deref().and_then(md5_from_e_tag)
        {
            let mut file = open_regular_file(target)?;
            let failed = |error| Error::io("read", target, error);
            let mut sum = Md5Sum::default();
            let mut piece = vec![0; READ_BUFFER_BYTES];
            loop {
                check_cancelled(self.cancel)?;
                match file.read(&mut piece).map_err(failed)? {
                    0 => break,
                    count => sum.update(&piece[..count]),
                }
            }
            if sum.hex_digits() == expected {
                return Ok(true);
            }
            // If a key management service encrypts, the ETag is not the MD5 sum of the content.
            let head =
                block_on(self.cancel, Arc::clone(bucket).head_with_headers(listed.key.clone()))?;
            if head.is_some_and(|head| head.e_tag_may_be_md5()) {
                return Ok(false);
            }
        }
        Ok(found.modified_ns != 0 && metadata_modified_ns(there) >= found.modified_ns)
    }

    fn write_file(
        &self,
        found: &FoundFile,
        object: &Arc<Object>,
        target: &Path,
    ) -> Result<CopyOutcome> {
        let expected = match &found.location {
            FoundLocation::BucketKey { bucket, listed } => {
                self.options.verify.expected_md5(bucket, listed.e_tag.as_deref())
            }
            // The ETag of a web server need not be an MD5 sum.
            FoundLocation::WebObject(_) | FoundLocation::LocalPath(_) => None,
        };
        let mut sum = expected.map(|expected| (Md5Sum::default(), expected));
        // Without a version, a later run could not tell whether the partial file is of the same object.
        let is_gone_on = object.size() > RESUME_BLOCK_BYTES && !object.is_stream();
        let version = object
            .e_tag()
            .filter(|_| is_gone_on)
            .map(|tag| hex_digest(&[&object.request_url(), &object.size().to_string(), tag]));
        let mut partial = PartialDownload::open(target, version.as_deref(), &mut |bytes| {
            check_cancelled(self.cancel)?;
            if let Some((sum, _)) = &mut sum {
                sum.update(bytes);
            }
            Ok(())
        })?;
        let resumed_bytes = partial.written_bytes();
        self.settings.progress.add_bytes(resumed_bytes);
        let filled = self.fill_partial(&mut partial, object, &mut |bytes| {
            if let Some((sum, _)) = &mut sum {
                sum.update(bytes);
            }
        });
        let checked =
            filled.and_then(|()| self.verify_content(found, partial.written_bytes(), sum));
        match checked {
            Ok(()) => {}
            Err(error) if is_transient(&error) || matches!(error, Error::Interrupted) => {
                partial.keep_for_resume()?;
                return Err(error);
            }
            Err(error) => {
                partial.discard()?;
                return Err(error);
            }
        }
        let bytes = partial.written_bytes();
        let finished = partial.finish(target, self.options.overwrite, found.modified_ns);
        finished.map_err(|error| match target.symlink_metadata() {
            // Another process has created the folder meanwhile.
            Ok(there) if there.is_dir() => self.folder_conflict_error(found, target),
            _ => error,
        })?;
        Ok(CopyOutcome::Copied { bytes, resumed_bytes })
    }

    /// Returns the error for an object whose target path is a folder.
    fn folder_conflict_error(&self, found: &FoundFile, target: &Path) -> Error {
        let (shown, target) = (found.display_url(), display_path(target));
        let below = match &found.location {
            FoundLocation::BucketKey { bucket, listed } => {
                first_key_below(bucket, &listed.key, self.cancel)
            }
            _ => None,
        };
        match below {
            Some(key) => usage_error(
                format!(
                    "`{shown}` is to be written to `{target}`, which is a folder, because of the key `{}`",
                    escape_control_chars(&key, &[])
                ),
                "a name is a file or a folder here: fetch it by itself, with another place as --output",
            ),
            None => usage_error(
                format!("`{shown}` is to be written to `{target}`, which is a folder"),
                "name another place with --output",
            ),
        }
    }

    fn fill_partial(
        &self,
        partial: &mut PartialDownload,
        object: &Arc<Object>,
        seen: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let start = partial.written_bytes();
        let mut write = |bytes: &[u8]| {
            seen(bytes);
            self.settings.progress.add_bytes(bytes.len() as u64);
            partial.write(bytes)
        };
        let size = object.size();
        if !object.is_stream() && size <= SMALL_OBJECT_BYTES_MAX {
            return write(&object.fetch_range(0..size)?.wait(self.cancel)?);
        }
        let end = if object.is_stream() { u64::MAX } else { size };
        let mut pieces = SequentialObjectReader::new(object, start..end, self.cancel, &self.budget);
        while let Some(bytes) = pieces.next_bytes()? {
            check_cancelled(self.cancel)?;
            write(&bytes)?;
        }
        Ok(())
    }

    /// Checks size and MD5 sum of the received bytes against the object.
    fn verify_content(
        &self,
        found: &FoundFile,
        bytes: u64,
        sum: Option<(Md5Sum, String)>,
    ) -> Result<()> {
        let corrupt = |reason: String, hint: Option<String>| Error::Corrupt {
            path: found.display_url(),
            reason,
            hint,
        };
        if found.size > 0 && bytes != found.size {
            return Err(corrupt(
                format!("{bytes} bytes arrived of {}", found.size),
                Some("run again".into()),
            ));
        }
        let (Some((sum, expected)), FoundLocation::BucketKey { bucket, listed }) =
            (sum, &found.location)
        else {
            return Ok(());
        };
        let arrived = sum.hex_digits();
        if arrived == expected {
            return Ok(());
        }
        // If a key management service encrypts, the ETag is not the MD5 sum of the content.
        let head = block_on(self.cancel, Arc::clone(bucket).head_with_headers(listed.key.clone()))?;
        if head.is_none_or(|head| !head.e_tag_may_be_md5()) {
            return Ok(());
        }
        Err(corrupt(
            format!("the MD5 sum of what arrived is {arrived}, and its ETag {expected}"),
            Some(
                "run again; if it stays so, the object is damaged where it is, or its ETag is no MD5 sum: \
                 --no-verify compares none"
                    .into(),
            ),
        ))
    }

    /// Syncs the folders with new names if there are at least `least` of them.
    fn sync_folders(&self, least: usize) -> Result<()> {
        let folders = {
            let mut folders = self.unsynced_folders.lock();
            if folders.len() < least.max(1) {
                return Ok(());
            }
            std::mem::take(&mut *folders)
        };
        for (folder, name) in folders {
            sync_path(&name).map_err(|error| Error::io("write", &folder, error))?;
        }
        Ok(())
    }
}

/// An MD5 sum over bytes that are added piece by piece.
#[derive(Default)]
pub(super) struct Md5Sum(md5::Md5);

impl Md5Sum {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        md5::Digest::update(&mut self.0, bytes);
    }

    pub(super) fn hex_digits(self) -> String {
        encode_hex(md5::Digest::finalize(self.0))
    }
}

/// Returns the first key below a key that is also a folder.
fn first_key_below(bucket: &Arc<Bucket>, key: &str, cancel: &CancelFlag) -> Option<String> {
    let page = ListingPages::new(bucket, &format!("{key}/"), false)
        .and_then(|mut pages| pages.next_page(cancel));
    Some(page.ok()??.objects.into_iter().next()?.key)
}

/// Returns the error for a folder that cannot be created.
fn create_folder_error(found: &FoundFile, folder: &Path, error: std::io::Error) -> Error {
    let mut above = folder.ancestors().filter(|path| path.metadata().is_ok_and(|is| !is.is_dir()));
    match above.next() {
        Some(file) => usage_error(
            format!(
                "`{}` is to be written to the folder `{}`, which is a file",
                found.display_url(),
                display_path(file)
            ),
            "a name is a file or a folder here: fetch it by itself, with another place as --output",
        ),
        None => Error::io("create", folder, error),
    }
}

/// Refuses a target that is a device, a pipe, a socket, or a link to one.
fn check_replaceable(target: &Path) -> Result<()> {
    match std::fs::metadata(target) {
        Ok(there) if !there.is_file() && !there.is_dir() => Err(usage_error(
            format!("`{}` is not a regular file", display_path(target)),
            "name another place with --output, or write to it: tidemill cat URL > PATH",
        )),
        _ => Ok(()),
    }
}

/// Returns the path of the file that an object is downloaded to.
fn target_path(
    url: &str,
    found: &FoundFile,
    output: Option<&str>,
    several: bool,
) -> Result<PathBuf> {
    let below = safe_relative_path(&found.relative_path).map_err(|reason| {
        let message = format!("`{}` cannot be a file here: {reason}", found.display_url());
        // The hint to name the object by itself does not help if its key is not readable at all.
        let is_read = match &found.location {
            FoundLocation::BucketKey { bucket, listed } => bucket.parse_key(&listed.key).is_ok(),
            _ => true,
        };
        match is_read {
            true => usage_error(message, "name it by itself, and the file with --output"),
            false => Error::usage(message),
        }
    });
    let is_folder = |path: &str| path.ends_with('/') || Path::new(path).is_dir();
    match (output, found.match_kind) {
        // The user gave the file's name.
        (Some(output), FileMatchKind::Exact) if !several && !is_folder(output) => {
            Ok(PathBuf::from(output))
        }
        (Some(output), _) => Ok(Path::new(output).join(below?)),
        (None, FileMatchKind::InFolder) => {
            let name = last_component(url.split_once("://").map_or(url, |(_, rest)| rest));
            let name = safe_relative_path(name).map_err(|reason| {
                usage_error(
                    format!("`{url}` cannot be a folder here: {reason}"),
                    "name the folder with --output",
                )
            })?;
            Ok(name.join(below?))
        }
        (None, _) => below,
    }
}

/// Returns a path below a folder. Fails if a component leads out of the folder or is not a valid file name.
fn safe_relative_path(below: &str) -> Result<PathBuf, String> {
    let mut path = PathBuf::new();
    for part in below.split('/') {
        match part {
            "" => return Err("a part of its name is empty".into()),
            "." | ".." => return Err(format!("`{part}` leads to another folder")),
            part if part.contains('\0') => return Err("its name has a zero byte".into()),
            part if part.len() > NAME_BYTES_MAX => {
                return Err(format!(
                    "a part of its name has {} bytes, and a file's name {NAME_BYTES_MAX} at most",
                    part.len()
                ));
            }
            part if part.starts_with(PARTIAL_FILE_PREFIX) => {
                return Err(format!(
                    "`{PARTIAL_FILE_PREFIX}…` are names of files that are not whole yet"
                ));
            }
            part => path.push(part),
        }
    }
    Ok(path)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn no_key_leads_out_of_its_folder() {
        for key in [
            "../a",
            "a/../b",
            "..",
            ".",
            "a/./b",
            "/etc/passwd",
            "a//b",
            "a/",
            "",
            "a\0b",
            ".tidemill-get-0123456789abcdef",
            "a/.tidemill-get-x",
        ] {
            assert!(safe_relative_path(key).is_err(), "{key}");
        }
        assert!(safe_relative_path(&"x".repeat(256)).is_err());
        assert!(safe_relative_path(&"é".repeat(128)).is_err());
        for key in ["a", "a/b.csv", ".hidden", "...", "a\\b", "C:", "a b/ü", &"x".repeat(255)] {
            assert_eq!(safe_relative_path(key).unwrap(), Path::new(key), "{key}");
        }
    }

    proptest::proptest! {
        #[test]
        fn safe_paths_stay_below_their_folder(key in "[./a\\\\\0]{0,12}") {
            if let Ok(path) = safe_relative_path(&key) {
                use std::path::Component;
                proptest::prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                proptest::prop_assert_eq!(path.to_str().unwrap(), key.as_str());
            }
        }
    }
}
