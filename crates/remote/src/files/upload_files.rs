//! Uploads files into objects.
//!
//! A file of at most one part takes one request. A larger file is sent in parts of 8 MiB, several of them
//! concurrently. Its upload is recorded first (`upload_resume_log`). If a run is killed or loses its server,
//! the next run resumes the upload if the file is unchanged, and aborts it otherwise. Ctrl-C aborts it at
//! once.
//!
//! By default an upload does not replace an object: the run checks for one first, and the requests that make
//! an object visible carry `If-None-Match: *`. Servers verify received bytes by the SHA-256 sum in the
//! signature. The upload compares the size in any case, and the MD5 sum if the ETag is one.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectMeta;
use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::{CancelFlag, Interrupted};
use tidemill_base::redaction::escape_control_chars;
use tidemill_base::state_folder::{RunId, StateFolder};

use super::download_files::{CONCURRENT_FILES_DEFAULT, Md5Sum};
use super::file_finder::{FileFinder, FileMatchKind, FoundFile, FoundLocation};
use super::parallel_copy::{self, CopyOutcome, CopySummary};
use super::upload_resume_log::{ResumableUpload, UploadResumeLog};
use super::{
    EtagVerification, FileAccessSettings, TargetRegistry, check_cancelled, hex_digest,
    is_transient, md5_from_e_tag, metadata_modified_ns, open_regular_file, usage_error,
};
use crate::NetworkTask;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::s3::Bucket;
use crate::upload::{PART_BYTES, PublishOutcome, multipart_e_tag};

/// Maximum number of parts of an upload. S3 allows 10,000, so some are left.
const PARTS_MAX: u64 = 9_000;
/// Maximum number of parts of one file in flight.
const PARTS_IN_FLIGHT_MAX: usize = 16;
/// Default of [`UploadOptions::shutdown_timeout`].
const SHUTDOWN_TIMEOUT_DEFAULT: Duration = Duration::from_millis(400);

/// Options of an upload.
#[derive(Debug, Clone)]
pub struct UploadOptions {
    /// Replaces existing objects.
    pub overwrite: bool,
    /// Skips a file whose object has its size and MD5 sum. Without a known MD5 sum, or above 8 MiB, skips a
    /// file whose object has its size and is not older.
    pub skip_existing: bool,
    /// Number of concurrent files. Minimum: 1.
    pub concurrent_files: usize,
    /// Folder of the upload resume logs. Default: the state folder.
    pub home: Option<PathBuf>,
    /// Maximum wait for the server when the run ends early: for the id of an upload that is starting, and for
    /// its abort. An upload that takes longer is left to the next run. Default: 0.4 seconds.
    pub shutdown_timeout: Duration,
    /// Selection of the ETags that are compared with the MD5 sum of the sent bytes.
    pub verify: EtagVerification,
}

impl Default for UploadOptions {
    fn default() -> Self {
        UploadOptions {
            overwrite: false,
            skip_existing: false,
            concurrent_files: CONCURRENT_FILES_DEFAULT,
            home: None,
            shutdown_timeout: SHUTDOWN_TIMEOUT_DEFAULT,
            verify: EtagVerification::default(),
        }
    }
}

/// Uploads files to a bucket: a single file to the key in `url`; several files, or any file if the key ends
/// with `/`, below that key.
///
/// # Errors
/// [`Error::Usage`] for a source that is not on this machine, and for a target that is not a bucket;
/// [`Error::NotFound`], [`Error::Remote`] and [`Error::Io`] if nothing could start, or if the only file
/// failed; [`Error::Interrupted`]. If one of many files fails, its error is in [`CopySummary::failures`].
pub fn upload_files(
    paths: &[String],
    url: &str,
    options: &UploadOptions,
    settings: &FileAccessSettings,
) -> Result<CopySummary> {
    let (bucket, key) = match Location::parse(url)? {
        Some(Location::S3 { bucket, key }) => (bucket, key),
        Some(Location::Http(_)) => {
            return Err(usage_error(
                "a web server takes no files".to_owned(),
                "the last URL is where to: s3://bucket/folder/",
            ));
        }
        None => {
            return Err(usage_error(
                format!("`{url}` is on this machine"),
                "the last URL is where to: s3://bucket/folder/; `tidemill get` fetches, and cp copies \
                 files here",
            ));
        }
    };
    for path in paths {
        if let Some(location) = Location::parse(path)? {
            return Err(usage_error(
                format!("`{location}` is not on this machine"),
                "fetch it first: tidemill get",
            ));
        }
    }
    let several = paths.len() > 1;
    let (home, warning) = match &options.home {
        Some(home) => (Some(home.clone()), None),
        None => {
            let (home, warning) = StateFolder::open();
            (home.map(|home| home.path().to_owned()), warning)
        }
    };
    let warning = warning
        .filter(|_| home.is_none())
        .map(|warning| format!("{warning}; an upload that is killed stays in the bucket, unseen"));
    let stores = FileFinder::new(settings);
    let run = UploadRun {
        bucket: stores.open_bucket(&bucket)?,
        home,
        options,
        settings,
        send_memory: SendMemory::new(settings.memory_bytes()),
        run_id: RunId::new(),
    };
    let mut total = 0;
    let mut targets = TargetRegistry::new(paths);
    let copied = parallel_copy::run_in_parallel(
        options.concurrent_files,
        &settings.cancel,
        |each| {
            paths.iter().enumerate().try_for_each(|(index, path)| {
                stores.find_files(path, &mut |found| {
                    check_cancelled(&settings.cancel)?;
                    total += found.size;
                    settings.progress.set_bytes_total(total);
                    let key = target_key(&key, &found, several).and_then(|key| {
                        let url = || escape_control_chars(&run.bucket.url(&key), &[]);
                        targets.register(index, &found, key.as_bytes(), url)?;
                        Ok(key)
                    });
                    each((found, key))
                })
            })
        },
        |(found, key)| {
            let done = match key {
                Ok(key) => run.upload_file(found, key),
                Err(error) => Err(error.duplicate()),
            };
            if done.is_ok() {
                settings.progress.add_rows(1);
            }
            done
        },
        |(found, _)| found.url(),
    );
    let mut copied = copied?;
    copied.warnings.extend(warning);
    Ok(copied)
}

/// Returns the key that a file is uploaded to.
fn target_key(key: &str, found: &FoundFile, several: bool) -> Result<String> {
    let FoundLocation::LocalPath(path) = &found.location else {
        return Err(Error::Internal("an object among files".into()));
    };
    if path.to_str().is_none() {
        return Err(usage_error(
            format!("`{}` cannot be a key: its name is not UTF-8", path.display()),
            "rename it",
        ));
    }
    let is_folder =
        key.is_empty() || key.ends_with('/') || several || found.match_kind != FileMatchKind::Exact;
    Ok(match is_folder {
        true if key.is_empty() || key.ends_with('/') => format!("{key}{}", found.relative_path),
        true => format!("{key}/{}", found.relative_path),
        false => key.to_owned(),
    })
}

struct UploadRun<'a> {
    bucket: Arc<Bucket>,
    home: Option<PathBuf>,
    options: &'a UploadOptions,
    settings: &'a FileAccessSettings,
    send_memory: SendMemory,
    /// Id that distinguishes the objects of this run from those of others.
    run_id: RunId,
}

/// State of a key in the bucket.
enum KeyState {
    Present(ObjectMeta),
    Absent,
    /// The client may not read the key.
    Forbidden,
}

/// A local file in the state that it had when its upload started.
struct LocalSource {
    path: PathBuf,
    file: File,
    size: u64,
    modified_ns: i128,
    /// Digest of device, inode, size and modification time.
    identity: String,
}

impl LocalSource {
    fn open(path: &Path) -> Result<LocalSource> {
        let failed = |error| Error::io("read", path, error);
        let file = open_regular_file(path)?;
        let metadata = file.metadata().map_err(failed)?;
        let (size, modified_ns) = (metadata.len(), metadata_modified_ns(&metadata));
        let identity = hex_digest(&[
            &metadata.dev().to_string(),
            &metadata.ino().to_string(),
            &size.to_string(),
            &modified_ns.to_string(),
        ]);
        Ok(LocalSource { path: path.to_owned(), file, size, modified_ns, identity })
    }

    fn read_part(&self, at: u64, bytes: u64) -> Result<Bytes> {
        let length = usize::try_from(bytes)
            .map_err(|_| Error::Internal("a part larger than memory".into()))?;
        let mut part = vec![0; length];
        match self.file.read_exact_at(&mut part, at) {
            Ok(()) => Ok(part.into()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.changed_error("it has become shorter"))
            }
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }

    /// Fails if the file has been written to since its upload started.
    fn check_unchanged(&self) -> Result<()> {
        let metadata =
            self.file.metadata().map_err(|error| Error::io("read", &self.path, error))?;
        match (metadata.len(), metadata_modified_ns(&metadata)) == (self.size, self.modified_ns) {
            true => Ok(()),
            false => Err(self.changed_error("it has been written to")),
        }
    }

    fn changed_error(&self, reason: &str) -> Error {
        Error::Changed { path: self.path.display().to_string(), reason: reason.to_owned() }
    }

    fn md5(&self, cancel: &CancelFlag) -> Result<String> {
        let mut sum = Md5Sum::default();
        let mut at = 0;
        while at < self.size {
            check_cancelled(cancel)?;
            let bytes = (self.size - at).min(PART_BYTES as u64);
            sum.update(&self.read_part(at, bytes)?);
            at += bytes;
        }
        Ok(sum.hex_digits())
    }
}

impl UploadRun<'_> {
    fn cancel(&self) -> &CancelFlag {
        &self.settings.cancel
    }

    fn block_on<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        crate::block_on(self.cancel(), work)
    }

    fn bucket(&self) -> Arc<Bucket> {
        Arc::clone(&self.bucket)
    }

    fn upload_file(&self, found: &FoundFile, key: &str) -> Result<CopyOutcome> {
        check_cancelled(self.cancel())?;
        let FoundLocation::LocalPath(path) = &found.location else {
            return Err(Error::Internal("an object among files".into()));
        };
        self.bucket.parse_key(key)?;
        let source = LocalSource::open(path)?;
        if (self.options.skip_existing || !self.options.overwrite)
            && let KeyState::Present(there) = self.inspect_key(key)?
        {
            if self.options.skip_existing && self.is_up_to_date(&source, key, &there)? {
                self.settings.progress.add_bytes(source.size);
                return Ok(CopyOutcome::Skipped);
            }
            if !self.options.overwrite {
                return Err(Error::Exists { path: self.bucket.url(key) });
            }
        }
        if source.size <= PART_BYTES as u64 {
            self.upload_small_file(&source, key)?;
            return Ok(CopyOutcome::Copied { bytes: source.size, resumed_bytes: 0 });
        }
        let mut upload = self.begin_or_resume(&source, key)?;
        loop {
            let resumed_bytes = upload.arrived_bytes(source.size);
            let is_resumed = upload.is_resumed;
            let sent = self.send_parts(&source, &mut upload);
            let sent = sent.and_then(|()| self.complete_upload(&source, &upload));
            let error = match sent {
                Ok(true) => {
                    upload.delete_resume_log()?;
                    return Ok(CopyOutcome::Copied { bytes: source.size, resumed_bytes });
                }
                // The upload that an earlier run started does not exist any more.
                Ok(false) if is_resumed => {
                    upload.restart(&self.bucket, &source)?;
                    continue;
                }
                Ok(false) => Error::Remote {
                    action: "write",
                    url: self.bucket.url(key),
                    offset: None,
                    status: Some(404),
                    reason: "its parts have been thrown away meanwhile".into(),
                    hint: Some("a lifecycle rule must leave uploads a day at least".into()),
                },
                Err(error) => error,
            };
            if let Error::Remote { status: Some(404), .. } = &error
                && is_resumed
            {
                upload.restart(&self.bucket, &source)?;
                continue;
            }
            // Keep an upload that a later run can resume, if it is in the log.
            if !(is_transient(&error) && upload.resume_log.is_some()) {
                self.abort_upload(upload);
            }
            return Err(error);
        }
    }

    /// Returns the state of a key.
    fn inspect_key(&self, key: &str) -> Result<KeyState> {
        match self.block_on(self.bucket().head_object(key.to_owned())) {
            Ok(Some(there)) => Ok(KeyState::Present(there)),
            Ok(None) => Ok(KeyState::Absent),
            // A client with write permission need not have read permission.
            Err(Error::Remote { status: Some(401 | 403), .. }) => Ok(KeyState::Forbidden),
            Err(error) => Err(error),
        }
    }

    /// Returns true if a file need not be uploaded. The object must have the file's size. It must also have
    /// the file's MD5 sum, if that is known and the file is small, or else must not be older than the file.
    fn is_up_to_date(&self, source: &LocalSource, key: &str, there: &ObjectMeta) -> Result<bool> {
        if there.size != source.size {
            return Ok(false);
        }
        // Servers report whole seconds.
        let modified_s = i128::from(there.last_modified.timestamp());
        let is_older = modified_s < source.modified_ns.div_euclid(1_000_000_000);
        let is_small = source.size <= PART_BYTES as u64;
        let verify = self.options.verify;
        let is_compared = verify != EtagVerification::Never && (is_small || is_older);
        let sum = there.e_tag.as_deref().filter(|_| is_compared).and_then(md5_from_e_tag);
        let Some(sum) = sum else { return Ok(!is_older) };
        if source.md5(self.cancel())? == sum {
            return Ok(true);
        }
        if is_older {
            return Ok(false);
        }
        // If a key management service encrypts, the ETag is not the MD5 sum of the content.
        let head = self.block_on(self.bucket().head_with_headers(key.to_owned()))?;
        Ok(head.is_some_and(|head| !head.e_tag_may_be_md5()))
    }

    fn upload_small_file(&self, source: &LocalSource, key: &str) -> Result<()> {
        let _permit = self.send_memory.acquire(source.size, self.cancel())?;
        let bytes = source.read_part(0, source.size)?;
        source.check_unchanged()?;
        let mut sum = Md5Sum::default();
        sum.update(&bytes);
        let sum = sum.hex_digits();
        let run = self.run_id.to_string();
        let put =
            self.bucket().put_object(key.to_owned(), bytes, run.clone(), self.options.overwrite);
        let e_tag = match self.block_on(put)? {
            PublishOutcome::Published(e_tag) => e_tag,
            // The object can be ours: after a lost response, the request was repeated.
            _ => match self.block_on(self.bucket().stat_object(key.to_owned()))? {
                Some(seen) if seen.run_id.as_deref() == Some(&run) && seen.size == source.size => {
                    seen.e_tag
                }
                _ => return Err(Error::Exists { path: self.bucket.url(key) }),
            },
        };
        self.settings.progress.add_bytes(source.size);
        self.verify_object(key, source.size, e_tag.as_deref(), &sum)
    }

    /// Compares the object's ETag with the MD5 sum of the sent bytes, if the ETag is one.
    fn verify_object(&self, key: &str, size: u64, e_tag: Option<&str>, sum: &str) -> Result<()> {
        let told = self.options.verify.expected_md5(&self.bucket, e_tag);
        if told.as_deref().is_none_or(|told| told == sum) {
            return Ok(());
        }
        let head = self.block_on(self.bucket().head_with_headers(key.to_owned()))?;
        let Some(head) = head else { return Err(self.removed_error(key)) };
        if head.listed.size == size && !head.e_tag_may_be_md5() {
            return Ok(());
        }
        Err(Error::Corrupt {
            path: self.bucket.url(key),
            reason: format!(
                "it has {} bytes and the ETag {}, and what was sent {size} and {sum}",
                head.listed.size,
                head.listed.e_tag.as_deref().unwrap_or("")
            ),
            hint: Some(
                "send it again with --overwrite, unless somebody else has written it".into(),
            ),
        })
    }

    fn removed_error(&self, key: &str) -> Error {
        let reason = "it has been removed by somebody else".to_owned();
        Error::Changed { path: self.bucket.url(key), reason }
    }

    /// Resumes the recorded upload of an earlier run if the file is the same. Otherwise aborts it and starts
    /// a new one.
    fn begin_or_resume(&self, source: &LocalSource, key: &str) -> Result<PartUpload> {
        let least = source.size.div_ceil(PARTS_MAX);
        // Round up to whole mebibytes.
        let part_bytes = least.max(PART_BYTES as u64).div_ceil(1 << 20) << 20;
        let (mut begun, known) = match &self.home {
            Some(home) => {
                let (begun, known) = UploadResumeLog::open(home, &self.bucket, key)?;
                (Some(begun), known)
            }
            None => (None, None),
        };
        let is_same = |known: &ResumableUpload| {
            known.file_identity == source.identity && known.part_bytes == part_bytes
        };
        let mut is_resumed = false;
        let known = match known {
            Some(known) if known.upload_id.is_some() && is_same(&known) => {
                is_resumed = true;
                if let Some(begun) = &mut begun {
                    begun.rewrite_from(&known, &self.bucket.url(key))?;
                }
                known
            }
            other => {
                if let Some(id) = other.and_then(|known| known.upload_id) {
                    self.block_on(self.bucket().abort_upload(key.to_owned(), id))?;
                }
                ResumableUpload {
                    part_bytes,
                    file_identity: source.identity.clone(),
                    upload_id: None,
                    part_e_tags: BTreeMap::new(),
                }
            }
        };
        let (key, begun) = (key.to_owned(), begun.map(share_resume_log));
        let mut upload = PartUpload { key, resume_log: begun, progress: known, is_resumed };
        if upload.progress.upload_id.is_none() {
            upload.restart(&self.bucket, source)?;
        }
        Ok(upload)
    }

    fn send_parts(&self, source: &LocalSource, upload: &mut PartUpload) -> Result<()> {
        self.settings.progress.add_bytes(upload.arrived_bytes(source.size));
        let id = match &upload.progress.upload_id {
            Some(id) => id.clone(),
            None => {
                let (bucket, key) = (self.bucket(), upload.key.clone());
                let begun = upload.resume_log.clone();
                // Record the id on the network thread, so that nothing can come between response and record.
                let asked: NetworkTask<String> = NetworkTask::start(async move {
                    let id = bucket.begin_upload(key).await?;
                    if let Some(begun) = begun
                        && let Some(begun) = begun.lock().as_mut()
                    {
                        begun.record_upload_id(&id)?;
                    }
                    Ok(id)
                })?;
                // An upload without a known id could not be aborted, so keep waiting for the id for a while.
                let mut cancelled = None;
                let id = asked.wait_with_tick(&mut || match self.cancel().check() {
                    Err(interrupted)
                        if cancelled.get_or_insert_with(Instant::now).elapsed()
                            > self.options.shutdown_timeout =>
                    {
                        Err(interrupted)
                    }
                    _ => Ok(()),
                })?;
                upload.progress.upload_id.insert(id).clone()
            }
        };
        let part_bytes = upload.progress.part_bytes;
        let count = usize::try_from(source.size.div_ceil(part_bytes))
            .map_err(|_| Error::Internal("more parts than can be counted".into()))?;
        let mut coming: VecDeque<InFlightPart<'_>> = VecDeque::new();
        for index in 0..count {
            if upload.progress.part_e_tags.contains_key(&index) {
                continue;
            }
            let at = index as u64 * part_bytes;
            let bytes = part_bytes.min(source.size - at);
            // A file that waits for memory must not hold any, so wait for its parts in flight first.
            let permit = loop {
                let permit = match coming.len() < PARTS_IN_FLIGHT_MAX {
                    true if coming.is_empty() => {
                        Some(self.send_memory.acquire(bytes, self.cancel())?)
                    }
                    true => self.send_memory.try_acquire(bytes),
                    false => None,
                };
                match (permit, coming.pop_front()) {
                    (Some(permit), front) => {
                        if let Some(front) = front {
                            coming.push_front(front);
                        }
                        break permit;
                    }
                    (None, Some(front)) => self.await_part(upload, front)?,
                    (None, None) => {}
                }
            };
            let part = source.read_part(at, bytes)?;
            let sent = self.bucket().upload_part(upload.key.clone(), id.clone(), index, at, part);
            coming.push_back(InFlightPart {
                index,
                bytes,
                answer: NetworkTask::start(sent)?,
                _permit: permit,
            });
        }
        while let Some(front) = coming.pop_front() {
            self.await_part(upload, front)?;
        }
        source.check_unchanged()
    }

    fn await_part(&self, upload: &mut PartUpload, coming: InFlightPart<'_>) -> Result<()> {
        let e_tag = coming.answer.wait(self.cancel())?;
        if let Some(begun) = &upload.resume_log
            && let Some(begun) = begun.lock().as_mut()
        {
            begun.record_part(coming.index, &e_tag)?;
        }
        upload.progress.part_e_tags.insert(coming.index, e_tag);
        self.settings.progress.add_bytes(coming.bytes);
        Ok(())
    }

    /// Completes the upload. Returns false if its parts do not exist any more.
    fn complete_upload(&self, source: &LocalSource, upload: &PartUpload) -> Result<bool> {
        let key = upload.key.clone();
        let id = upload.progress.upload_id.clone().unwrap_or_default();
        let parts: Vec<String> = upload.progress.part_e_tags.values().cloned().collect();
        let expected = multipart_e_tag(&parts);
        let replaces = self.options.overwrite;
        let published =
            self.block_on(self.bucket().complete_upload(key.clone(), id, parts, replaces))?;
        let there = self.inspect_key(&key)?;
        let is_ours = matches!(&there, KeyState::Present(there) if {
            let tag = there.e_tag.as_deref().map(|tag| tag.trim_matches('"').to_owned());
            there.size == source.size && expected.is_some() && tag == expected
        });
        match published {
            // After a lost response the request was repeated, and the second response says so.
            PublishOutcome::PartsGone | PublishOutcome::NameTaken if is_ours => Ok(true),
            PublishOutcome::PartsGone => Ok(false),
            PublishOutcome::NameTaken => Err(Error::Exists { path: self.bucket.url(&key) }),
            PublishOutcome::Published(_) => match there {
                KeyState::Absent => Err(self.removed_error(&key)),
                KeyState::Present(there) if there.size != source.size => Err(Error::Corrupt {
                    path: self.bucket.url(&key),
                    reason: format!(
                        "it has {} bytes, and what was sent {}",
                        there.size, source.size
                    ),
                    hint: Some(
                        "send it again with --overwrite, unless somebody else has written it"
                            .into(),
                    ),
                }),
                KeyState::Present(_) | KeyState::Forbidden => Ok(true),
            },
        }
    }

    /// Aborts an upload. The log stays if the server does not answer.
    fn abort_upload(&self, mut upload: PartUpload) {
        let Some(id) = upload.progress.upload_id.take() else {
            // No upload exists: either none was requested, or the server has answered.
            let _ = upload.delete_resume_log();
            return;
        };
        let since = Instant::now();
        let mut tick = || match since.elapsed() < self.options.shutdown_timeout {
            true => Ok(()),
            false => Err(Interrupted),
        };
        let aborted = NetworkTask::start(self.bucket().abort_upload(upload.key.clone(), id))
            .and_then(|asked| asked.wait_with_tick(&mut tick));
        if aborted.is_ok() {
            // If the deletion fails, the next run finds that the upload does not exist.
            let _ = upload.delete_resume_log();
        }
    }
}

/// A resume log that the network threads write to; `None` once it is deleted.
type SharedResumeLog = Arc<Mutex<Option<UploadResumeLog>>>;

fn share_resume_log(begun: UploadResumeLog) -> SharedResumeLog {
    Arc::new(Mutex::new(Some(begun)))
}

/// A multipart upload of one file.
struct PartUpload {
    key: String,
    resume_log: Option<SharedResumeLog>,
    progress: ResumableUpload,
    /// True if an earlier run started the upload.
    is_resumed: bool,
}

impl PartUpload {
    /// Returns the total size of the parts that have arrived.
    fn arrived_bytes(&self, size: u64) -> u64 {
        let of = |index: &usize| {
            let at = *index as u64 * self.progress.part_bytes;
            self.progress.part_bytes.min(size.saturating_sub(at))
        };
        self.progress.part_e_tags.keys().map(of).sum()
    }

    /// Discards the upload's id and parts, and starts a new log.
    fn restart(&mut self, bucket: &Bucket, source: &LocalSource) -> Result<()> {
        self.is_resumed = false;
        self.progress.upload_id = None;
        self.progress.part_e_tags.clear();
        if let Some(begun) = &self.resume_log
            && let Some(begun) = begun.lock().as_mut()
        {
            begun.start_new_upload(
                self.progress.part_bytes,
                &source.identity,
                &bucket.url(&self.key),
            )?;
        }
        Ok(())
    }

    fn delete_resume_log(self) -> Result<()> {
        match self.resume_log.and_then(|begun| begun.lock().take()) {
            Some(begun) => begun.delete(),
            None => Ok(()),
        }
    }
}

/// A part in flight, with its share of the memory.
struct InFlightPart<'a> {
    index: usize,
    bytes: u64,
    answer: NetworkTask<String>,
    _permit: SendMemoryPermit<'a>,
}

/// Memory for the bytes in flight, which all files of a run share.
struct SendMemory {
    total_bytes: u64,
    free_bytes: Mutex<u64>,
    freed: Condvar,
}

struct SendMemoryPermit<'a> {
    bytes: u64,
    memory: &'a SendMemory,
}

impl SendMemory {
    fn new(bytes: u64) -> SendMemory {
        SendMemory { total_bytes: bytes, free_bytes: Mutex::new(bytes), freed: Condvar::new() }
    }

    /// Waits until `bytes` are free and takes them; takes all memory if `bytes` is more than the total.
    fn acquire(&self, bytes: u64, cancel: &CancelFlag) -> Result<SendMemoryPermit<'_>> {
        loop {
            if let Some(permit) = self.try_acquire(bytes) {
                return Ok(permit);
            }
            check_cancelled(cancel)?;
            let mut free = self.free_bytes.lock();
            if *free < bytes.min(self.total_bytes) {
                self.freed.wait_for(&mut free, Duration::from_millis(50));
            }
        }
    }

    fn try_acquire(&self, bytes: u64) -> Option<SendMemoryPermit<'_>> {
        let bytes = bytes.min(self.total_bytes);
        let mut free = self.free_bytes.lock();
        *free = free.checked_sub(bytes)?;
        Some(SendMemoryPermit { bytes, memory: self })
    }
}

impl Drop for SendMemoryPermit<'_> {
    fn drop(&mut self) {
        *self.memory.free_bytes.lock() += self.bytes;
        self.memory.freed.notify_all();
    }
}
