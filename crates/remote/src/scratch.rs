//! Scratch storage for query data that is too large to send: files in a shared folder, or objects of a
//! bucket.
//!
//! ```text
//!   s3://bucket/prefix  or  /folder                       (named by the user)
//!     tidemill-scratch-20261128T101500-1a2b3c4d/          of one query
//!       lock                                              held by the driver while it lives; in folders only
//!       part-7-20261128T101501-5e6f7a8b                   output of a task
//! ```
//!
//! A writer announces a file's name when the file is complete, and readers open announced files only. A
//! killed worker can leave an incomplete file, which is removed with the folder. The driver removes the
//! folder at the end of the query. If the driver was killed, its folder remains until the next driver in the
//! same location finds its lock free and removes it. In a bucket it remains until a lifecycle rule for old
//! objects removes it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use chrono::DateTime;
use object_store::ObjectMeta;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_base::state_folder::{RunId, create_private_folders};

use crate::error::{Error, Result};
use crate::location::Location;
use crate::object::Object;
use crate::s3::Bucket;
use crate::upload::{FinishedUpload, NoUploadJournal, ObjectUpload, PublishOutcome};
use crate::{NetworkTask, StorageOptions, block_on};

/// Prefix of the name of a query's folder.
const FOLDER_PREFIX: &str = "tidemill-scratch-";
const LOCK_FILE_NAME: &str = "lock";
/// Size of one read of an object.
const READ_RANGE_BYTES: u64 = 4 << 20;
/// Size of the write buffer of a file.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Scratch storage of one query: a folder or a prefix in a bucket.
#[derive(Clone)]
pub struct ScratchStorage {
    backend: ScratchBackend,
    cancel: CancelFlag,
}

#[derive(Clone)]
enum ScratchBackend {
    Folder(PathBuf),
    Bucket { bucket: Arc<Bucket>, prefix: String },
}

/// A complete scratch file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchFile {
    name: String,
    bytes: u64,
    /// ETag, if the file is an object.
    e_tag: Option<String>,
}

impl ScratchFile {
    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.bytes
    }
}

impl ScratchStorage {
    /// Opens the storage that a driver has created.
    ///
    /// # Errors
    /// The errors of [`Location::parse`] and [`Bucket::open`]; [`Error::Usage`] for a web URL.
    pub fn open(
        url: &str,
        storage: &StorageOptions,
        cancel: &CancelFlag,
    ) -> Result<ScratchStorage> {
        let place = match Location::parse(url)? {
            None => ScratchBackend::Folder(local_path(url)),
            Some(Location::S3 { bucket, key }) => ScratchBackend::Bucket {
                bucket: Bucket::open(&bucket, storage, cancel)?,
                prefix: key.trim_end_matches('/').to_owned(),
            },
            Some(Location::Http(_)) => return Err(unsupported_location_error(url)),
        };
        Ok(ScratchStorage { backend: place, cancel: cancel.clone() })
    }

    /// Creates an empty file, whose name begins with `label`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create_file(&self, label: &str) -> Result<ScratchWriter> {
        let name = format!("{label}-{}", RunId::new().as_str());
        let out = match &self.backend {
            ScratchBackend::Folder(folder) => {
                let path = folder.join(&name);
                let file = File::options().write(true).create_new(true).open(&path);
                let file = file.map_err(|error| Error::io("write", &path, error))?;
                ScratchOutput::File {
                    file: BufWriter::with_capacity(WRITE_BUFFER_BYTES, file),
                    path,
                }
            }
            ScratchBackend::Bucket { bucket, prefix } => {
                let key = format!("{prefix}/{name}");
                let upload =
                    ObjectUpload::new(Arc::clone(bucket), Arc::new(NoUploadJournal), key.clone());
                ScratchOutput::Object { upload, bucket: Arc::clone(bucket), key }
            }
        };
        Ok(ScratchWriter { name, output: Some(out), bytes: 0, cancel: self.cancel.clone() })
    }

    /// Opens a reader of a range of a file.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened.
    pub fn read_range(&self, file: &ScratchFile, range: Range<u64>) -> Result<ScratchReader> {
        let from = match &self.backend {
            ScratchBackend::Folder(folder) => {
                let path = folder.join(&file.name);
                let opened = File::open(&path).and_then(|mut opened| {
                    opened.seek(SeekFrom::Start(range.start))?;
                    Ok(opened)
                });
                ScratchInput::File(opened.map_err(|error| Error::io("read", &path, error))?)
            }
            ScratchBackend::Bucket { bucket, prefix } => {
                let key = format!("{prefix}/{}", file.name);
                let meta = ObjectMeta {
                    location: object_store::path::Path::from(key),
                    last_modified: DateTime::UNIX_EPOCH,
                    size: file.bytes,
                    e_tag: file.e_tag.clone(),
                    version: None,
                };
                let object = Arc::new(Object::from_listing(bucket, meta));
                ScratchInput::Object { object, coming: None, current: Vec::new().into() }
            }
        };
        Ok(ScratchReader { input: from, unread_range: range, cancel: self.cancel.clone() })
    }
}

/// Refuses a URL that cannot hold scratch files.
///
/// # Errors
/// [`Error::Usage`].
pub fn check_scratch_url(url: &str) -> Result<()> {
    match Location::parse(url)? {
        Some(Location::Http(_)) => Err(unsupported_location_error(url)),
        _ => Ok(()),
    }
}

fn unsupported_location_error(url: &str) -> Error {
    Error::usage_with_hint(
        format!("`{}` is no place for scratch files", redact_url(url)),
        "name a folder that all machines see, or s3://bucket/prefix",
    )
}

/// Returns the local path in a path or `file://` URL.
fn local_path(url: &str) -> PathBuf {
    url.strip_prefix("file://").unwrap_or(url).into()
}

/// A writer of a scratch file. If it is dropped before it is finished, the file is removed.
pub struct ScratchWriter {
    name: String,
    output: Option<ScratchOutput>,
    bytes: u64,
    cancel: CancelFlag,
}

enum ScratchOutput {
    File { file: BufWriter<File>, path: PathBuf },
    Object { upload: ObjectUpload, bucket: Arc<Bucket>, key: String },
}

impl ScratchWriter {
    /// Returns the number of bytes written.
    pub fn written_bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the bytes cannot be written; [`Error::Remote`] and [`Error::Interrupted`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.cancel.check()?;
        self.bytes += bytes.len() as u64;
        let cancel = &self.cancel;
        match &mut self.output {
            None => Err(closed_writer_error()),
            Some(ScratchOutput::File { file, path }) => {
                file.write_all(bytes).map_err(|error| Error::io("write", path, error))
            }
            Some(ScratchOutput::Object { upload, bucket, key }) => {
                upload
                    .write_all(bytes)
                    .map_err(|error| Error::io("write", bucket.url(key), error))?;
                upload.send_full_parts(false, &mut || cancel.check())
            }
        }
    }

    /// Completes the file, which can be read from now on.
    ///
    /// # Errors
    /// As for [`ScratchWriter::write`].
    pub fn finish(mut self) -> Result<ScratchFile> {
        let (name, bytes) = (self.name.clone(), self.bytes);
        let e_tag = match self.output.take() {
            None => return Err(closed_writer_error()),
            Some(ScratchOutput::File { file, path }) => {
                let flushed = file.into_inner().map_err(io::IntoInnerError::into_error);
                flushed.map_err(|error| {
                    remove_ignoring_errors(&path);
                    Error::io("write", &path, error)
                })?;
                None
            }
            Some(ScratchOutput::Object { upload, bucket, key }) => {
                let cancel = &self.cancel;
                let run = RunId::new().as_str().to_owned();
                let finished = upload.finish(&mut || cancel.check())?;
                let own = Arc::clone(&bucket);
                let published = match finished {
                    FinishedUpload::Small(bytes) => {
                        block_on(cancel, own.put_object(key.clone(), bytes.into(), run, true))?
                    }
                    FinishedUpload::Parts { id, parts } => {
                        block_on(cancel, own.complete_upload(key.clone(), id, parts, true))?
                    }
                };
                match published {
                    PublishOutcome::Published(e_tag) => e_tag,
                    PublishOutcome::NameTaken | PublishOutcome::PartsGone => {
                        let gone = io::Error::other("somebody else writes to it");
                        return Err(Error::io("write", bucket.url(&key), gone));
                    }
                }
            }
        };
        Ok(ScratchFile { name, bytes, e_tag })
    }
}

impl Drop for ScratchWriter {
    fn drop(&mut self) {
        if let Some(ScratchOutput::File { path, .. }) = &self.output {
            remove_ignoring_errors(path);
        }
    }
}

/// Removes a file, and ignores errors: the file is removed with its folder later.
fn remove_ignoring_errors(path: &Path) {
    let _ = fs::remove_file(path);
}

fn closed_writer_error() -> Error {
    Error::Internal("a scratch file is written to behind its end".to_owned())
}

/// A reader of a range of a scratch file.
pub struct ScratchReader {
    input: ScratchInput,
    /// The part of the range that has not been read.
    unread_range: Range<u64>,
    cancel: CancelFlag,
}

enum ScratchInput {
    File(File),
    Object { object: Arc<Object>, coming: Option<(u64, NetworkTask<Bytes>)>, current: Bytes },
}

impl Read for ScratchReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left =
            usize::try_from(self.unread_range.end - self.unread_range.start).unwrap_or(usize::MAX);
        let wanted = left.min(out.len());
        if wanted == 0 {
            return Ok(0);
        }
        let out = &mut out[..wanted];
        let count = match &mut self.input {
            ScratchInput::File(file) => file.read(out)?,
            ScratchInput::Object { object, coming, current } => {
                if current.is_empty() {
                    let ask = |start: u64| {
                        let end = self.unread_range.end.min(start + READ_RANGE_BYTES);
                        (start < end)
                            .then(|| object.fetch_range(start..end).map(|fetch| (end, fetch)))
                    };
                    let next = match coming.take() {
                        Some(next) => Some(next),
                        None => ask(self.unread_range.start).transpose().map_err(to_io_error)?,
                    };
                    if let Some((end, fetch)) = next {
                        // Request the next range while this one arrives.
                        *coming = ask(end).transpose().map_err(to_io_error)?;
                        *current = fetch.wait(&self.cancel).map_err(to_io_error)?;
                    }
                }
                let count = current.len().min(wanted);
                out[..count].copy_from_slice(&current.split_to(count));
                count
            }
        };
        if count == 0 {
            // The file was complete when its name was announced.
            let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "a scratch file was cut off");
            return Err(cut);
        }
        self.unread_range.start += count as u64;
        Ok(count)
    }
}

/// Wraps the error that the user sees as an I/O error, for `Read`.
fn to_io_error(error: Error) -> io::Error {
    io::Error::other(tidemill_base::Error::from(error))
}

/// Scratch storage of a query, which its driver creates, and removes on drop.
pub struct ScratchFolder {
    /// The storage.
    pub storage: ScratchStorage,
    /// URL by which workers open the storage.
    pub url: String,
    /// A file that all machines must see; `None` in a bucket.
    pub lock_path: Option<PathBuf>,
    /// The parent folder, if it was created for this query.
    created_parent: Option<PathBuf>,
    /// The lock, held as long as the storage is in use.
    _lock_file: Option<File>,
}

impl ScratchFolder {
    /// Creates the storage of a query in the location that the user names, and removes the folders of killed
    /// drivers.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be created or locked, and the errors of [`ScratchStorage::open`].
    pub fn create(url: &str, storage: &StorageOptions, cancel: &CancelFlag) -> Result<Self> {
        let name = format!("{FOLDER_PREFIX}{}", RunId::new().as_str());
        let remote = Location::parse(url)?.is_some();
        if remote {
            let url = format!("{}/{name}", url.trim_end_matches('/'));
            let scratch = ScratchStorage::open(&url, storage, cancel)?;
            return Ok(ScratchFolder {
                storage: scratch,
                url,
                lock_path: None,
                created_parent: None,
                _lock_file: None,
            });
        }
        let parent = local_path(url);
        let parent =
            std::path::absolute(&parent).map_err(|error| Error::io("find", &parent, error))?;
        let failed = |path: &Path, error| Error::io("write", path, error);
        // Create one missing folder, but no path of several: that is probably mistyped.
        let is_own = match fs::create_dir(&parent) {
            Ok(()) => Some(parent.clone()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(failed(&parent, error)),
        };
        remove_abandoned_folders(&parent);
        // Until the folder is locked, other drivers would take it for an abandoned one, so use a temporary
        // name.
        let making = parent.join(format!(".{name}"));
        let folder = parent.join(&name);
        create_private_folders(&making).map_err(|error| failed(&making, error))?;
        let lock = making.join(LOCK_FILE_NAME);
        let made = File::options().write(true).create_new(true).open(&lock);
        let held = made
            .and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from))
            .and_then(|file| fs::rename(&making, &folder).map(|()| file));
        let held = held.map_err(|error| {
            let _ = fs::remove_dir_all(&making);
            failed(&folder, error)
        })?;
        let lock = folder.join(LOCK_FILE_NAME);
        let scratch = ScratchStorage {
            backend: ScratchBackend::Folder(folder.clone()),
            cancel: cancel.clone(),
        };
        let url = folder.to_string_lossy().into_owned();
        Ok(ScratchFolder {
            storage: scratch,
            url,
            lock_path: Some(lock),
            created_parent: is_own,
            _lock_file: Some(held),
        })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        match &self.storage.backend {
            ScratchBackend::Folder(folder) => {
                let _ = fs::remove_dir_all(folder);
                // Fails if other queries use the parent by now.
                let _ = self.created_parent.as_ref().map(fs::remove_dir);
            }
            ScratchBackend::Bucket { bucket, prefix } => {
                // Remove the objects even if the run was cancelled.
                let cancel = CancelFlag::default();
                let listed =
                    block_on(&cancel, Arc::clone(bucket).list_objects(format!("{prefix}/")));
                let Ok(listed): Result<_> = listed else { return };
                let removals: Vec<_> = listed
                    .into_iter()
                    .filter_map(|object| {
                        let key = object.location.to_string();
                        NetworkTask::start(Arc::clone(bucket).remove_object(key)).ok()
                    })
                    .collect();
                for removal in removals {
                    let _: Result<()> = removal.wait(&cancel);
                }
            }
        }
    }
}

/// Removes the folders of drivers that do not live any more, which are those with an unlocked lock file.
fn remove_abandoned_folders(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours =
            entry.file_name().to_str().is_some_and(|name| name.starts_with(FOLDER_PREFIX));
        let folder = entry.path();
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // A folder without a lock file is just being created, and stays.
        let Ok(lock) = File::options().write(true).open(folder.join(LOCK_FILE_NAME)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(parent: &Path) -> ScratchFolder {
        let url = parent.to_str().unwrap();
        ScratchFolder::create(url, &StorageOptions::default(), &CancelFlag::default()).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        entries.map(|entry| name(entry).unwrap()).collect()
    }

    #[test]
    fn finished_files_are_read_by_range_and_unfinished_ones_vanish() {
        let parent = tempfile::tempdir().unwrap();
        let made = create(parent.path());
        let mut writer = made.storage.create_file("part").unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        bytes.chunks(999).for_each(|chunk| writer.write(chunk).unwrap());
        assert_eq!(writer.written_bytes(), bytes.len() as u64);
        let file = writer.finish().unwrap();
        assert_eq!(file.size_bytes(), bytes.len() as u64);
        let begun = made.storage.create_file("part").unwrap();
        drop(begun);
        let folder = Path::new(&made.url);
        assert_eq!(names(folder).len(), 2, "the lock and one file");
        let found =
            ScratchStorage::open(&made.url, &StorageOptions::default(), &CancelFlag::default())
                .unwrap();
        for range in [0..10_u64, 5_000..5_000, 17..399_999, 0..400_000] {
            let mut read = Vec::new();
            found.read_range(&file, range.clone()).unwrap().read_to_end(&mut read).unwrap();
            assert_eq!(read, bytes[range.start as usize..range.end as usize]);
        }
        // Truncate the file after it was announced.
        let path = folder.join(&file.name);
        File::options().write(true).open(path).unwrap().set_len(1_000).unwrap();
        let error = found.read_range(&file, 0..400_000).unwrap().read_to_end(&mut Vec::new());
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(made);
        assert!(names(parent.path()).is_empty());
    }

    #[test]
    fn folders_of_killed_drivers_are_removed_and_live_ones_stay() {
        let parent = tempfile::tempdir().unwrap();
        let lives = create(parent.path());
        let left = parent.path().join(format!("{FOLDER_PREFIX}20200101T000000-00000000"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK_FILE_NAME), "").unwrap();
        fs::write(left.join("part-1"), "some").unwrap();
        let other = parent.path().join("tidemill-scratchy");
        fs::create_dir(&other).unwrap();
        let next = create(parent.path());
        assert!(!left.exists() && other.exists());
        assert!(Path::new(&lives.url).exists() && Path::new(&next.url).exists());
        drop((lives, next));
        assert_eq!(names(parent.path()), ["tidemill-scratchy"]);
    }

    #[test]
    fn web_url_is_refused_for_scratch_storage() {
        let (storage, cancel) = (StorageOptions::default(), CancelFlag::default());
        let error = ScratchFolder::create("https://host/x", &storage, &cancel).err().unwrap();
        assert!(error.to_string().contains("no place for scratch files"), "{error}");
    }
}
