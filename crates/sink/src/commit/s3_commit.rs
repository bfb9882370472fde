//! Atomic commit of objects to `s3://`: all of a run's objects appear, or none.
//!
//! S3 has no rename, but an object whose parts are uploaded does not exist until one request
//! completes it. A run keeps the list of its uploads in the state folder, on this machine: a
//! bucket cannot be locked, and a killed run cannot tell anybody:
//!
//! ```text
//! $TIDEMILL_HOME/uploads/
//! └── 20261120T212055-1a2b3c4d/
//!     ├── lock             flock held while the run lives; contains run and bucket as JSON
//!     ├── uploads.jsonl    every upload, before it begins and with its name once it has
//!     ├── 0  1  2 …        files to be sent at the end; objects of at most 8 MiB
//!     ├── manifest.tmp     the manifest before it is durable
//!     ├── manifest.json    from the moment it has this name, the output is committed
//!     ├── published.jsonl  the server's answer for each object of the manifest
//!     └── undo.json        the manifest of a commit that is being undone
//! ```
//!
//! A run that writes several outputs at once has a folder for each. All but the first have names of
//! the same form that belong to no run.
//!
//! **Commit.**
//! 1. every part of every large object is uploaded; small objects are whole in the folder;
//! 2. no target exists (unless `overwrite`): one `HEAD` each;
//! 3. the manifest is made durable: **the commit**;
//! 4. uploads are completed and small objects put, [`CONCURRENT_REQUESTS_MAX`] at a time, each only if its
//!    name is still free (unless `overwrite`);
//! 5. the folder is removed.
//!
//! A run that dies before 3 has made nothing visible; its uploads are aborted. One that dies after 3 is
//! finished. The next run on this machine that writes to the same bucket does both. Step 4 can be repeated
//! safely: a missing upload has been completed if an object of its size and its parts' tag
//! exists; a small object carries its run's name. If somebody else has taken a name in
//! between, the commit is undone, unless it has already replaced an object.
//!
//! **Undo** waits until every request in flight has its answer, since the server
//! may still execute it after a check. It removes only objects that this run wrote, and
//! nothing that merely looks like one: an object of the version with which the server answered,
//! one that carries the run's name, or, if an answer was lost, one whose tag is that of the
//! parts. If nothing distinguishes an object from somebody else's, it stays and the user is asked.
//!
//! **Leftovers.** A run that is killed between the server's answer to "begin an upload" and
//! the log line for it, a few milliseconds, leaves an unknown upload without parts;
//! so does a machine that never runs again. Only a lifecycle rule of the bucket
//! (`AbortIncompleteMultipartUpload`) removes these; `docs/remote.md` has one.
//!
//! `docs/formats/staging.md` describes the contents of the files.

use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::FuturesUnordered;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::{Interrupted, WaitCallback};
use tidemill_base::state_folder::{RunId, StateFolder, create_private_folders_durably};
use tidemill_remote::NetworkTask;
use tidemill_remote::s3::Bucket;
use tidemill_remote::upload::{
    FinishedUpload, ObjectUpload, PART_BYTES, PublishOutcome, StoredObjectInfo, UploadJournal,
    multipart_e_tag,
};

use crate::commit::file_commit::{CommitState, HeldLock, RecoveryReport, to_json};
use crate::commit::fs;
use crate::error::{Error, Result};
use crate::writing::partitioned_files::StagingArea;

const FORMAT_VERSION: u64 = 1;
const LOCK_FILE: &str = "lock";
const UPLOADS_FILE: &str = "uploads.jsonl";
const MANIFEST_FILE: &str = "manifest.json";
const MANIFEST_TEMP_FILE: &str = "manifest.tmp";
const UNDO_FILE: &str = "undo.json";
const PUBLISHED_FILE: &str = "published.jsonl";
/// Maximum number of concurrent requests that look at objects or make them visible.
const CONCURRENT_REQUESTS_MAX: usize = 16;
/// Time limit for aborting unneeded uploads after a commit.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for aborting uploads when a run ends early.
const ABORT_TIMEOUT: Duration = Duration::from_millis(700);
/// Time limit for waiting while another run holds the folder's lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The content of a lock file.
#[derive(Debug, Serialize, Deserialize)]
struct S3LockRecord {
    version: u64,
    run: String,
    /// The run's output: a URL with columns in braces.
    url: String,
    bucket: String,
    /// The bucket's endpoint, if it is not at AWS.
    endpoint: Option<String>,
}

/// A line of `uploads.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct UploadRecord {
    key: String,
    /// `None` before the upload has begun.
    id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct S3CommitManifest {
    version: u64,
    run: String,
    url: String,
    overwrite: bool,
    objects: Vec<ObjectEntry>,
}

/// One object of a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ObjectEntry {
    pub(crate) key: String,
    pub(crate) bytes: u64,
    /// True if an object of this name exists already.
    pub(crate) replaces: bool,
    /// The version of that object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaced: Option<String>,
    #[serde(flatten)]
    how: PublishMethod,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PublishMethod {
    /// By one request, from a file of the folder.
    Staged(String),
    /// By completing an upload.
    Upload { id: String, parts: Vec<String> },
}

/// A line of `published.jsonl`: the result of publishing an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PublishRecord {
    key: String,
    /// True if this run wrote the object; false if an equal one existed before.
    ours: bool,
    /// The object's version, if the server reports it.
    e_tag: Option<String>,
}

/// The growing log `uploads.jsonl`.
pub(crate) struct UploadLog {
    path: PathBuf,
    file_and_records: Mutex<(File, Vec<UploadRecord>)>,
}

impl UploadLog {
    /// Appends records and makes them durable at once.
    fn append_records(&self, lines: Vec<UploadRecord>) -> tidemill_remote::Result<()> {
        let noted = || {
            let mut text = Vec::new();
            for line in &lines {
                serde_json::to_writer(&mut text, line)?;
                text.push(b'\n');
            }
            let mut state = self.file_and_records.lock();
            fs::write_all(&mut state.0, &text).and_then(|()| fs::sync_file(&state.0))?;
            Ok(state)
        };
        let path = || self.path.display().to_string();
        let mut state = noted().map_err(|source| tidemill_remote::Error::Io {
            action: "write",
            path: path(),
            source,
        })?;
        state.1.extend(lines);
        Ok(())
    }
}

impl UploadJournal for UploadLog {
    fn record_upload(&self, key: &str, id: Option<&str>) -> tidemill_remote::Result<()> {
        self.append_records(vec![UploadRecord { key: key.to_owned(), id: id.map(str::to_owned) }])
    }
}

/// Begins uploads for other writers, and logs them with the run's own.
#[derive(Clone)]
pub(crate) struct UploadStarter {
    bucket: Arc<Bucket>,
    upload_log: Arc<UploadLog>,
}

impl UploadStarter {
    /// Begins uploads whose parts other processes send. Returns their names in the order of `keys`.
    pub(crate) fn begin_uploads(
        &self,
        keys: &[String],
        tick: WaitCallback<'_>,
    ) -> Result<Vec<String>> {
        let before = |key: &String| UploadRecord { key: key.clone(), id: None };
        self.upload_log.append_records(keys.iter().map(before).collect())?;
        let mut begun = Vec::with_capacity(keys.len());
        for some in keys.chunks(CONCURRENT_REQUESTS_MAX) {
            let (bucket, keys) = (Arc::clone(&self.bucket), some.to_vec());
            let uploads = Arc::clone(&self.upload_log);
            let coming = NetworkTask::start(async move {
                let begin = |(at, key): (usize, String)| {
                    let begun = Arc::clone(&bucket).begin_upload(key.clone());
                    async move { (at, key, begun.await) }
                };
                let answers = stream::iter(keys.into_iter().enumerate().map(begin));
                // Logged as answers come, several at once if possible, and regardless of the other answers.
                let mut answers = answers
                    .buffer_unordered(CONCURRENT_REQUESTS_MAX)
                    .ready_chunks(CONCURRENT_REQUESTS_MAX);
                let (mut ids, mut failed) = (Vec::new(), None);
                while let Some(some) = answers.next().await {
                    let mut lines = Vec::with_capacity(some.len());
                    for (at, key, begun) in some {
                        match begun {
                            Ok(id) => {
                                ids.push((at, id.clone()));
                                lines.push(UploadRecord { key, id: Some(id) });
                            }
                            Err(error) => failed = Some(error),
                        }
                    }
                    uploads.append_records(lines)?;
                }
                ids.sort_unstable();
                match failed {
                    Some(error) => Err(error),
                    None => Ok(ids.into_iter().map(|(_, id)| id).collect::<Vec<_>>()),
                }
            })?;
            // An interrupted run waits a little longer: nobody would know of an upload that begins now.
            let mut interrupted: Option<Instant> = None;
            let ids = coming.wait_with_tick(&mut || match interrupted {
                Some(since) if since.elapsed() > ABORT_TIMEOUT => Err(Interrupted),
                Some(_) => Ok(()),
                None => {
                    interrupted = tick().is_err().then(Instant::now);
                    Ok(())
                }
            })?;
            tick()?;
            begun.extend(ids);
        }
        Ok(begun)
    }
}

/// Sends a file in parts, and removes it. Returns the upload's name and the ETags of the parts.
pub(crate) fn send_file_in_parts(
    mut upload: ObjectUpload,
    path: &Path,
    tick: WaitCallback<'_>,
) -> Result<(String, Vec<String>)> {
    let error = |e| Error::io("read", path, e);
    let mut file = fs::open(path).map_err(error)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(error)?;
        if count == 0 {
            break;
        }
        upload.write_all(&buffer[..count]).map_err(error)?;
        upload.send_full_parts(false, tick)?;
    }
    let finished = upload.finish(tick)?;
    // Frees disk space after each file.
    fs::remove_file(path).map_err(|e| Error::io("remove", path, e))?;
    match finished {
        FinishedUpload::Parts { id, parts } => Ok((id, parts)),
        FinishedUpload::Small(_) => Err(Error::Internal("a large object without parts".into())),
    }
}

/// A run's staging folder for output to a bucket. Dropping it without a commit aborts its uploads.
pub(crate) struct S3Staging {
    bucket: Arc<Bucket>,
    folder: PathBuf,
    run: String,
    url: String,
    upload_log: Arc<UploadLog>,
    /// The recovery of dead runs that wrote to this bucket.
    pub(crate) recovery_report: RecoveryReport,
    /// The reason why a later run could not recover this one, if there is one.
    pub(crate) warning: Option<String>,
    /// A temporary folder that replaces a missing state folder.
    _temporary: Option<tempfile::TempDir>,
    _lock: HeldLock,
    commit_state: CommitState,
}

impl StagingArea for S3Staging {
    fn staged_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl S3Staging {
    /// Creates a folder for a run that writes `url`. Finishes the commits of dead runs to the same bucket, or
    /// aborts their uploads.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] if a live run writes the same URL; [`Error::Io`]; [`Error::Remote`].
    pub(crate) fn open(
        bucket: Arc<Bucket>,
        url: &str,
        run: &RunId,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        let (home, mut warning) = StateFolder::open();
        let (root, temporary) = match home {
            Some(home) => (home.path().join("uploads"), None),
            None => {
                let folder = tempfile::tempdir()
                    .map_err(|e| Error::io("create a folder in", std::env::temp_dir(), e))?;
                if let Some(warning) = &mut warning {
                    warning.push_str(
                        "; if it is killed, its uploads stay in the bucket unseen until a \
                         lifecycle rule removes them",
                    );
                }
                (folder.path().to_owned(), Some(folder))
            }
        };
        create_private_folders_durably(&root)
            .map_err(|e| Error::io("create the folder", &root, e))?;
        let ((dir, lock, uploads), dead) = {
            let _guard = lock_uploads_root(&root, tick)?;
            let dead = find_dead_runs(&root, &bucket, url)?;
            (create_run_folder(&root, url, run, (bucket.name(), bucket.endpoint_url()))?, dead)
        };
        let mut remote = S3Staging {
            bucket,
            folder: dir,
            run: run.to_string(),
            url: url.to_owned(),
            upload_log: Arc::new(uploads),
            recovery_report: RecoveryReport::default(),
            warning,
            _temporary: temporary,
            _lock: lock,
            commit_state: CommitState::Open,
        };
        for dead in dead {
            remote.recover_dead_run(&dead, tick)?;
        }
        Ok(remote)
    }

    /// Returns the URL of a key.
    pub(crate) fn object_url(&self, key: &str) -> String {
        self.bucket.url(key)
    }

    /// Creates the upload of an object.
    pub(crate) fn new_upload(&self, key: &str) -> ObjectUpload {
        let journal = Arc::clone(&self.upload_log) as Arc<dyn UploadJournal>;
        ObjectUpload::new(Arc::clone(&self.bucket), journal, key.to_owned())
    }

    /// Returns a handle that begins uploads whose parts other processes send.
    pub(crate) fn upload_starter(&self) -> UploadStarter {
        UploadStarter { bucket: Arc::clone(&self.bucket), upload_log: Arc::clone(&self.upload_log) }
    }

    /// Begins uploads whose parts other processes send. Returns their names in the order of `keys`.
    pub(crate) fn begin_uploads(
        &self,
        keys: &[String],
        tick: WaitCallback<'_>,
    ) -> Result<Vec<String>> {
        self.upload_starter().begin_uploads(keys, tick)
    }

    /// Returns the entry of an object whose bytes are all in its upload. Writes a small object to the folder
    /// as `name`.
    pub(crate) fn entry_for_upload(
        &self,
        key: &str,
        name: &str,
        bytes: u64,
        finished: FinishedUpload,
    ) -> Result<ObjectEntry> {
        let how = match finished {
            FinishedUpload::Parts { id, parts } => PublishMethod::Upload { id, parts },
            FinishedUpload::Small(content) => {
                let path = self.staged_path(name);
                let written = fs::create_new_file(&path)
                    .and_then(|mut file| fs::write_all(&mut file, &content));
                written.map_err(|e| Error::io("write", &path, e))?;
                PublishMethod::Staged(name.into())
            }
        };
        Ok(ObjectEntry { key: key.to_owned(), bytes, replaces: false, replaced: None, how })
    }

    /// Returns the entry of an object whose bytes are in a staged file. Sends a large file now.
    pub(crate) fn entry_for_staged_file(
        &self,
        key: &str,
        name: &str,
        bytes: u64,
        tick: WaitCallback<'_>,
    ) -> Result<ObjectEntry> {
        tick()?;
        let how = if bytes <= PART_BYTES as u64 {
            PublishMethod::Staged(name.to_owned())
        } else {
            let (id, parts) =
                send_file_in_parts(self.new_upload(key), &self.staged_path(name), tick)?;
            PublishMethod::Upload { id, parts }
        };
        Ok(ObjectEntry { key: key.to_owned(), bytes, replaces: false, replaced: None, how })
    }

    /// Returns size and version of the object at each key, `None` where there is none.
    pub(crate) fn stat_objects(
        &self,
        keys: Vec<String>,
        tick: WaitCallback<'_>,
    ) -> Result<Vec<Option<StoredObjectInfo>>> {
        let bucket = Arc::clone(&self.bucket);
        let seen = NetworkTask::start(async move {
            let mut answers = stream::iter(keys)
                .map(|key| Arc::clone(&bucket).stat_object(key))
                .buffered(CONCURRENT_REQUESTS_MAX);
            let mut seen = Vec::new();
            while let Some(answer) = answers.next().await {
                seen.push(answer?);
            }
            Ok::<_, tidemill_remote::Error>(seen)
        })?;
        Ok(seen.wait_with_tick(tick)?)
    }

    /// Returns an error if an object exists at the key.
    ///
    /// # Errors
    /// [`Error::OutputExists`].
    pub(crate) fn check_object_absent(&self, key: &str, tick: WaitCallback<'_>) -> Result<()> {
        let seen = NetworkTask::start(Arc::clone(&self.bucket).stat_object(key.to_owned()))?
            .wait_with_tick(tick)?;
        match seen {
            Some(_) => Err(Error::OutputExists { path: self.bucket.url(key), more: 0 }),
            None => Ok(()),
        }
    }

    /// Makes all objects visible, or none.
    ///
    /// # Errors
    /// [`Error::OutputExists`], [`Error::Remote`]; [`Error::UnfinishedCommit`] if the commit can neither be
    /// finished nor undone now.
    pub(crate) fn commit(
        mut self,
        mut objects: Vec<ObjectEntry>,
        overwrite: bool,
        tick: WaitCallback<'_>,
    ) -> Result<()> {
        if let Err(error) = self.check_targets(&mut objects, overwrite, tick) {
            self.abandon(tick);
            return Err(error);
        }
        for object in &objects {
            if let PublishMethod::Staged(name) = &object.how {
                let path = self.folder.join(name);
                let synced = fs::open(&path).and_then(|file| fs::sync_file(&file));
                synced.map_err(|e| Error::io("write", &path, e))?;
            }
        }
        // Sync first: a power cut must not leave a manifest without the files that it names.
        fs::sync_dir(&self.folder).map_err(|e| Error::io("write", &self.folder, e))?;
        let manifest = S3CommitManifest {
            version: FORMAT_VERSION,
            run: self.run.clone(),
            url: self.url.clone(),
            overwrite,
            objects,
        };
        let (new, path) = (self.folder.join(MANIFEST_TEMP_FILE), self.folder.join(MANIFEST_FILE));
        let error = |e| Error::io("write", &path, e);
        let mut file = fs::create_new_file(&new).map_err(error)?;
        fs::write_all(&mut file, &to_json(&manifest)?).map_err(error)?;
        fs::sync_file(&file).map_err(error)?;
        self.commit_state = CommitState::Committed;
        fs::rename(&new, &path).and_then(|()| fs::sync_dir(&self.folder)).map_err(error)?;
        let result = publish_all(&self.bucket, &self.folder, &manifest, tick);
        match result {
            Ok(()) => {
                self.commit_state = CommitState::Done;
                self.clean_up(&manifest, tick);
                Ok(())
            }
            Err(error) => match undo_commit(&self.bucket, &self.folder, &manifest, tick) {
                Ok(()) => {
                    self.commit_state = CommitState::Done;
                    self.clean_up(&manifest, tick);
                    Err(error)
                }
                Err(_) => {
                    Err(Error::UnfinishedCommit { path: self.url.clone(), source: Box::new(error) })
                }
            },
        }
    }

    /// Aborts the unneeded uploads of a finished or undone commit, and removes its folder.
    fn clean_up(&self, manifest: &S3CommitManifest, tick: WaitCallback<'_>) {
        let lines = std::mem::take(&mut self.upload_log.file_and_records.lock().1);
        let begun = Instant::now();
        let mut patience = || {
            tick()?;
            match begun.elapsed() < CLEANUP_TIMEOUT {
                true => Ok(()),
                false => Err(Interrupted),
            }
        };
        remove_settled_folder(&self.bucket, &self.folder, &lines, manifest, &mut patience);
    }

    /// Aborts all uploads and removes the folder, without a commit.
    pub(crate) fn abandon(mut self, tick: WaitCallback<'_>) {
        let (run, url) = (self.run.clone(), self.url.clone());
        let none = S3CommitManifest {
            version: FORMAT_VERSION,
            run,
            url,
            overwrite: false,
            objects: Vec::new(),
        };
        self.commit_state = CommitState::Done;
        self.clean_up(&none, tick);
    }

    /// Checks for existing objects at the targets, and records them in the entries.
    fn check_targets(
        &self,
        objects: &mut [ObjectEntry],
        overwrite: bool,
        tick: WaitCallback<'_>,
    ) -> Result<()> {
        let keys = objects.iter().map(|object| object.key.clone()).collect();
        let taken = self.stat_objects(keys, tick)?;
        for (object, taken) in objects.iter_mut().zip(taken) {
            object.replaces = taken.is_some();
            object.replaced = taken.and_then(|seen| seen.e_tag.as_deref().map(trim_tag_quotes));
        }
        let mut taken = objects.iter().filter(|object| object.replaces);
        match taken.next() {
            Some(first) if !overwrite => {
                Err(Error::OutputExists { path: self.bucket.url(&first.key), more: taken.count() })
            }
            _ => Ok(()),
        }
    }

    /// Finishes the commit of a dead run, or aborts its uploads.
    fn recover_dead_run(&mut self, dead: &DeadRun, tick: WaitCallback<'_>) -> Result<()> {
        let run = dead.lock_record.run.clone();
        let lines = read_upload_log(&dead.folder.join(UPLOADS_FILE));
        let mut settled = None;
        let ended = if let Some(manifest) = read_manifest(&dead.folder.join(UNDO_FILE))? {
            let undone = undo_commit(&self.bucket, &dead.folder, &manifest, tick);
            settled = Some(manifest);
            undone.map(|()| &mut self.recovery_report.undone_runs)
        } else if let Some(manifest) = read_manifest(&dead.folder.join(MANIFEST_FILE))? {
            let ended = match publish_all(&self.bucket, &dead.folder, &manifest, tick) {
                Ok(()) => Ok(&mut self.recovery_report.finished_runs),
                Err(Error::OutputExists { .. }) if !manifest.overwrite => {
                    undo_commit(&self.bucket, &dead.folder, &manifest, tick)
                        .map(|()| &mut self.recovery_report.undone_runs)
                }
                Err(error) => Err(error),
            };
            settled = Some(manifest);
            ended
        } else {
            let aborted = abort_uploads(&self.bucket, &lines)?.wait_with_tick(tick);
            aborted.map(|()| &mut self.recovery_report.removed_runs).map_err(Error::from)
        };
        match ended {
            Ok(list) => {
                list.push(run);
                match settled {
                    Some(manifest) => {
                        remove_settled_folder(&self.bucket, &dead.folder, &lines, &manifest, tick)
                    }
                    None => remove_run_folder(&dead.folder),
                }
                Ok(())
            }
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // This run's objects must not mix with those of an unfinished commit to the same URL.
            Err(error) if dead.lock_record.url == self.url => Err(error),
            // A commit of another output: the next run that writes there tries again.
            Err(_) => {
                self.recovery_report.skipped_folders.push(dead.folder.display().to_string());
                Ok(())
            }
        }
    }
}

impl Drop for S3Staging {
    fn drop(&mut self) {
        if self.commit_state != CommitState::Open {
            return;
        }
        let lines = std::mem::take(&mut self.upload_log.file_and_records.lock().1);
        let begun = Instant::now();
        let mut patience = || match begun.elapsed() < ABORT_TIMEOUT {
            true => Ok(()),
            false => Err(Interrupted),
        };
        let is_clean = lines.is_empty()
            || abort_uploads(&self.bucket, &lines)
                .and_then(|aborts| aborts.wait_with_tick(&mut patience))
                .is_ok();
        // A later run aborts the uploads that could not be aborted now.
        if is_clean {
            remove_run_folder(&self.folder);
        }
    }
}

/// Aborts uploads whose names are known.
fn abort_uploads(
    bucket: &Arc<Bucket>,
    lines: &[UploadRecord],
) -> tidemill_remote::Result<NetworkTask<()>> {
    let named: Vec<(String, String)> =
        lines.iter().filter_map(|line| Some((line.key.clone(), line.id.clone()?))).collect();
    let bucket = Arc::clone(bucket);
    NetworkTask::start(async move {
        let mut aborts = stream::iter(named)
            .map(|(key, id)| Arc::clone(&bucket).abort_upload(key, id))
            .buffer_unordered(CONCURRENT_REQUESTS_MAX);
        let mut result = Ok(());
        while let Some(aborted) = aborts.next().await {
            result = result.and(aborted.map(drop));
        }
        result
    })
}

/// Removes the folder of a finished or undone commit, after aborting the uploads that are not in its
/// manifest: those of workers that are gone, or were not the first. If they cannot be aborted now, their
/// names stay without a manifest, for a later run.
fn remove_settled_folder(
    bucket: &Arc<Bucket>,
    dir: &Path,
    lines: &[UploadRecord],
    manifest: &S3CommitManifest,
    tick: WaitCallback<'_>,
) {
    let needed: HashSet<&str> = manifest
        .objects
        .iter()
        .filter_map(|object| match &object.how {
            PublishMethod::Upload { id, .. } => Some(id.as_str()),
            PublishMethod::Staged(_) => None,
        })
        .collect();
    let is_rest = |line: &&UploadRecord| line.id.as_deref().is_some_and(|id| !needed.contains(id));
    let rest: Vec<UploadRecord> = lines.iter().filter(is_rest).cloned().collect();
    if !rest.is_empty() {
        let ended = fs::remove_file(&dir.join(MANIFEST_FILE))
            .and_then(|()| fs::remove_file(&dir.join(UNDO_FILE)))
            .is_ok();
        let aborted = abort_uploads(bucket, &rest).and_then(|aborts| aborts.wait_with_tick(tick));
        if !ended || aborted.is_err() {
            return;
        }
    }
    remove_run_folder(dir);
}

/// Makes a manifest's objects visible. Can be repeated. After the first failure no more requests begin, and
/// those in flight are awaited: the server may execute a request to whose answer nobody listens.
fn publish_all(
    bucket: &Arc<Bucket>,
    dir: &Path,
    manifest: &S3CommitManifest,
    tick: WaitCallback<'_>,
) -> Result<()> {
    let (bucket, dir, manifest) = (Arc::clone(bucket), dir.to_owned(), manifest.clone());
    NetworkTask::start(async move {
        let (overwrite, run) = (manifest.overwrite, manifest.run);
        let mut rest = manifest.objects.into_iter();
        let mut under_way = FuturesUnordered::new();
        let mut result = Ok(());
        loop {
            while result.is_ok()
                && under_way.len() < CONCURRENT_REQUESTS_MAX
                && let Some(object) = rest.next()
            {
                under_way.push(publish_object(Arc::clone(&bucket), &dir, object, overwrite, &run));
            }
            match under_way.next().await {
                Some(published) => result = result.and(published),
                None => return result,
            }
        }
    })?
    .wait_with_tick(tick)
}

async fn publish_object(
    bucket: Arc<Bucket>,
    dir: &Path,
    object: ObjectEntry,
    overwrite: bool,
    run: &str,
) -> Result<()> {
    let key = || object.key.clone();
    let published = match &object.how {
        PublishMethod::Staged(name) => {
            let path = dir.join(name);
            let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
            Arc::clone(&bucket).put_object(key(), bytes.into(), run.to_owned(), overwrite).await
        }
        PublishMethod::Upload { id, parts } => {
            Arc::clone(&bucket).complete_upload(key(), id.clone(), parts.clone(), overwrite).await
        }
    };
    let published = match published {
        Ok(PublishOutcome::Published(e_tag)) => {
            return append_publish_record(dir, &PublishRecord { key: key(), ours: true, e_tag });
        }
        // The request may have succeeded although its answer was lost.
        other => {
            let gone = matches!(other, Ok(PublishOutcome::PartsGone));
            if is_own_object(&bucket, &object, run, gone).await.unwrap_or(false) {
                let mut ours = true;
                if let (Ok(PublishOutcome::NameTaken), PublishMethod::Upload { id, .. }) =
                    (&other, &object.how)
                {
                    // An existing upload was not completed: somebody else has written the
                    // very same object, which stays.
                    ours = !Arc::clone(&bucket).abort_upload(key(), id.clone()).await?;
                }
                return append_publish_record(
                    dir,
                    &PublishRecord { key: key(), ours, e_tag: None },
                );
            }
            other?
        }
    };
    let path = bucket.url(&object.key);
    Err(match published {
        PublishOutcome::PartsGone => object_error(
            "write",
            path,
            "its upload has been removed by somebody else",
            "run again; a lifecycle rule must leave uploads a day at least",
        ),
        _ => Error::OutputExists { path, more: 0 },
    })
}

/// Returns an error about an object that is not as expected.
fn object_error(action: &'static str, url: String, reason: &str, hint: &str) -> Error {
    Error::Remote(tidemill_remote::Error::Remote {
        action,
        url,
        offset: None,
        status: None,
        reason: reason.to_owned(),
        hint: Some(hint.to_owned()),
    })
}

/// Appends the result of publishing an object, for a later undo.
fn append_publish_record(dir: &Path, outcome: &PublishRecord) -> Result<()> {
    let path = dir.join(PUBLISHED_FILE);
    let mut line = serde_json::to_vec(outcome)
        .map_err(|e| Error::Internal(format!("cannot note an object: {e}")))?;
    line.push(b'\n');
    fs::open_append(&path)
        .and_then(|mut file| fs::write_all(&mut file, &line))
        .map_err(|e| Error::io("write", &path, e))
}

/// Returns true if the object at the entry's key is the one that this commit wrote, or equal to it. `gone`
/// says that the entry's upload no longer exists.
async fn is_own_object(
    bucket: &Arc<Bucket>,
    object: &ObjectEntry,
    run: &str,
    gone: bool,
) -> tidemill_remote::Result<bool> {
    let Some(seen) = Arc::clone(bucket).stat_object(object.key.clone()).await? else {
        return Ok(false);
    };
    let PublishMethod::Upload { parts, .. } = &object.how else {
        return Ok(seen.size == object.bytes && seen.run_id.as_deref() == Some(run));
    };
    let Some(tag) = seen.e_tag.as_deref().map(trim_tag_quotes) else { return Ok(false) };
    // If a key management service encrypts, the tag shows only the number of parts
    // and that it differs from the previous one.
    let may_be =
        || tag.ends_with(&format!("-{}", parts.len())) && object.replaced != Some(tag.clone());
    Ok(seen.size == object.bytes
        && (multipart_e_tag(parts).as_ref() == Some(&tag) || (gone && may_be())))
}

fn trim_tag_quotes(tag: &str) -> String {
    tag.trim_matches('"').to_owned()
}

/// Undoes a commit. Can be repeated.
///
/// # Errors
/// [`Error::Internal`] if an object was replaced already: then it cannot be undone.
fn undo_commit(
    bucket: &Arc<Bucket>,
    dir: &Path,
    manifest: &S3CommitManifest,
    tick: WaitCallback<'_>,
) -> Result<()> {
    let replacing: Vec<ObjectEntry> =
        manifest.objects.iter().filter(|object| object.replaces).cloned().collect();
    let (other, run) = (Arc::clone(bucket), manifest.run.clone());
    let replaced = NetworkTask::start(async move {
        for object in replacing {
            if is_own_object(&other, &object, &run, true).await? {
                return Ok(Some(object.key));
            }
        }
        Ok::<_, tidemill_remote::Error>(None)
    })?
    .wait_with_tick(tick)?;
    if let Some(key) = replaced {
        return Err(Error::Internal(format!("`{key}` was replaced already")));
    }
    let (forward, back) = (dir.join(MANIFEST_FILE), dir.join(UNDO_FILE));
    if fs::lstat(&forward).map_err(|e| Error::io("read", &forward, e))?.is_some() {
        fs::rename(&forward, &back)
            .and_then(|()| fs::sync_dir(dir))
            .map_err(|e| Error::io("write", &back, e))?;
    }
    let mut outcomes: HashMap<String, PublishRecord> = HashMap::new();
    for outcome in read_publish_log(dir) {
        // The first answer belongs to the request that made the object.
        outcomes.entry(outcome.key.clone()).or_insert(outcome);
    }
    let (bucket, manifest) = (Arc::clone(bucket), manifest.clone());
    NetworkTask::start(async move {
        let run = manifest.run.as_str();
        let mut removals = stream::iter(manifest.objects)
            .map(|object| {
                let (bucket, outcome) = (Arc::clone(&bucket), outcomes.get(&object.key));
                remove_own_object(bucket, object, outcome, run)
            })
            .buffer_unordered(CONCURRENT_REQUESTS_MAX);
        let mut result = Ok(());
        while let Some(removed) = removals.next().await {
            result = result.and(removed);
        }
        result
    })?
    .wait_with_tick(tick)
}

/// Removes an object if this run wrote it.
async fn remove_own_object(
    bucket: Arc<Bucket>,
    object: ObjectEntry,
    outcome: Option<&PublishRecord>,
    run: &str,
) -> Result<()> {
    match outcome {
        Some(PublishRecord { ours: false, .. }) => return Ok(()),
        Some(PublishRecord { e_tag: Some(written), .. }) => {
            let seen = Arc::clone(&bucket).stat_object(object.key.clone()).await?;
            let is_there = seen
                .and_then(|seen| seen.e_tag)
                .is_some_and(|tag| trim_tag_quotes(&tag) == trim_tag_quotes(written));
            if is_there {
                bucket.remove_object(object.key).await?;
            }
            return Ok(());
        }
        _ => {}
    }
    if let PublishMethod::Upload { id, .. } = &object.how {
        // An existing upload was not completed.
        if Arc::clone(&bucket).abort_upload(object.key.clone(), id.clone()).await? {
            return Ok(());
        }
    }
    if is_own_object(&bucket, &object, run, false).await? {
        return Ok(bucket.remove_object(object.key).await?);
    }
    if is_own_object(&bucket, &object, run, true).await? {
        return Err(object_error(
            "remove",
            bucket.url(&object.key),
            "nothing tells whether this run wrote it or somebody else",
            "remove it or rename it by hand if it is not to stay, and run again",
        ));
    }
    Ok(())
}

/// A dead run's folder, locked.
struct DeadRun {
    folder: PathBuf,
    lock_record: S3LockRecord,
    _lock: HeldLock,
}

/// Finds the dead runs that wrote to a bucket.
///
/// # Errors
/// [`Error::OutputBusy`] if a live run writes the same URL.
fn find_dead_runs(root: &Path, bucket: &Bucket, url: &str) -> Result<Vec<DeadRun>> {
    let mut dead = Vec::new();
    for name in fs::list_names(root).map_err(|e| Error::io("read", root, e))? {
        if name.to_str().is_none_or(|name| name.parse::<RunId>().is_err()) {
            continue;
        }
        let dir = root.join(&name);
        let path = dir.join(LOCK_FILE);
        let Ok(file) = fs::open(&path) else {
            // Folders are created under the lock that we hold: one without a lock file belongs to nobody.
            remove_run_folder(&dir);
            continue;
        };
        let note: Option<S3LockRecord> = fs::read_limited(&path, 1 << 20)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let same_bucket = |note: &S3LockRecord| {
            note.bucket == bucket.name() && note.endpoint.as_deref() == bucket.endpoint_url()
        };
        match fs::try_lock(&file) {
            Ok(()) => match note {
                Some(note) if same_bucket(&note) && note.version <= FORMAT_VERSION => {
                    dead.push(DeadRun { folder: dir, lock_record: note, _lock: HeldLock(file) });
                }
                Some(_) => {}
                None => remove_run_folder(&dir),
            },
            Err(TryLockError::WouldBlock) => {
                if let Some(note) = note.filter(|note| same_bucket(note) && note.url == url) {
                    return Err(Error::OutputBusy { path: url.to_owned(), run: note.run });
                }
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path, e)),
        }
    }
    Ok(dead)
}

/// Creates a folder for an output of a run, with its lock and an empty list of uploads, and makes
/// all three durable. A later run needs them to find and abort uploads that this run has begun.
pub(crate) fn create_run_folder(
    root: &Path,
    url: &str,
    run: &RunId,
    bucket: (&str, Option<&str>),
) -> Result<(PathBuf, HeldLock, UploadLog)> {
    let dir = create_unique_folder(root, run)?;
    let begun = || {
        let lock = create_lock_file(&dir, url, run, bucket)?;
        let path = dir.join(UPLOADS_FILE);
        let file = fs::create_new_file(&path)
            .and_then(|file| fs::sync_file(&lock.0).map(|()| file))
            .and_then(|file| fs::sync_dir(&dir).map(|()| file))
            .and_then(|file| fs::sync_dir(root).map(|()| file));
        let file = file.map_err(|e| Error::io("create", &path, e))?;
        Ok::<_, Error>((lock, UploadLog { path, file_and_records: Mutex::new((file, Vec::new())) }))
    };
    let (lock, uploads) = begun().inspect_err(|_| remove_run_folder(&dir))?;
    Ok((dir, lock, uploads))
}

fn create_lock_file(
    dir: &Path,
    url: &str,
    run: &RunId,
    (bucket, endpoint): (&str, Option<&str>),
) -> Result<HeldLock> {
    let path = dir.join(LOCK_FILE);
    let error = |e| Error::io("write", &path, e);
    let mut lock = HeldLock(fs::create_new_file(&path).map_err(error)?);
    if let Err(TryLockError::Error(e)) = fs::try_lock(&lock.0) {
        return Err(Error::io("lock", &path, e));
    }
    let note = S3LockRecord {
        version: FORMAT_VERSION,
        run: run.to_string(),
        url: url.to_owned(),
        bucket: bucket.to_owned(),
        endpoint: endpoint.map(str::to_owned),
    };
    fs::write_all(&mut lock.0, &to_json(&note)?).map_err(error)?;
    Ok(lock)
}

/// Creates a folder for an output of a run. The run's name is free unless the run writes several
/// outputs at once.
fn create_unique_folder(root: &Path, run: &RunId) -> Result<PathBuf> {
    let mut name = run.clone();
    loop {
        let dir = root.join(name.as_str());
        match fs::create_private_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => name = RunId::new(),
            Err(e) => return Err(Error::io("create the folder", &dir, e)),
        }
    }
}

/// Locks the folder of all uploads against other runs that begin at the same moment.
fn lock_uploads_root(root: &Path, tick: WaitCallback<'_>) -> Result<HeldLock> {
    let file = fs::open(root).map_err(|e| Error::io("read", root, e))?;
    let begun = Instant::now();
    loop {
        match fs::try_lock(&file) {
            Ok(()) => return Ok(HeldLock(file)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                tick()?;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::OutputBusy {
                    path: root.display().to_string(),
                    run: "unknown".into(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", root, e)),
        }
    }
}

fn read_upload_log(path: &Path) -> Vec<UploadRecord> {
    // A truncated line names no upload yet.
    let text = fs::read_limited(path, 1 << 30).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn read_publish_log(dir: &Path) -> Vec<PublishRecord> {
    // A truncated line counts as not written.
    let text = fs::read_limited(&dir.join(PUBLISHED_FILE), 1 << 30).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn read_manifest(path: &Path) -> Result<Option<S3CommitManifest>> {
    let bytes = match fs::read_limited(path, 4 << 30) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let manifest: S3CommitManifest =
        serde_json::from_slice(&bytes).map_err(|e| Error::Corrupt {
            path: path.display().to_string(),
            reason: e.to_string(),
            hint: "it is an unfinished commit; remove its folder to forget it".into(),
        })?;
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    for object in &manifest.objects {
        match &object.how {
            PublishMethod::Staged(name) if !is_number(name) => {
                return Err(Error::Corrupt {
                    path: path.display().to_string(),
                    reason: format!("it names a file `{name}`"),
                    hint: "remove its folder to forget it".into(),
                });
            }
            _ => {}
        }
    }
    Ok(Some(manifest))
}

/// Removes a run's folder, the manifest first and the lock last. A later run removes the files that
/// cannot be removed now.
fn remove_run_folder(dir: &Path) {
    let remove = || {
        fs::remove_file(&dir.join(MANIFEST_FILE))?;
        fs::remove_file(&dir.join(UNDO_FILE))?;
        for name in fs::list_names(dir)? {
            if name != LOCK_FILE {
                fs::remove_file(&dir.join(name))?;
            }
        }
        fs::remove_file(&dir.join(LOCK_FILE))?;
        fs::remove_dir(dir)
    };
    let _: std::io::Result<()> = remove();
}

/// An upload shared by the row writer that fills it and the owner that settles it.
#[derive(Clone)]
pub(crate) struct SharedUpload(pub(crate) Arc<Mutex<ObjectUpload>>);

impl Write for SharedUpload {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl SharedUpload {
    /// Returns the upload, once no writer holds it any more.
    pub(crate) fn into_inner(self) -> Result<ObjectUpload> {
        let alone = Arc::try_unwrap(self.0);
        alone
            .map(Mutex::into_inner)
            .map_err(|_| Error::Internal("an upload is still being written".into()))
    }
}
