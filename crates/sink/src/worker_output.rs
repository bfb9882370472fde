//! Files and objects of an output that worker processes write.
//!
//! ```text
//!   owner of the output (Sink)             sender of rows (WriterPartitioner)   worker (WorkerOutputWriter)
//!     worker_output_target ───────────────────────────────────────────────►  rows of some paths, each path whole:
//!     bucket: begin and log an upload        partition by the paths' values ►  files in the staging folder that no
//!     for each object ─────────────────────────────────────────────────────►   recovery looks at, or upload parts
//!     adopt_files  ◄───────────────────────────────────────────────────────  each file's values and size
//!     commit: as if it had written the files itself
//! ```
//!
//! All rows of a path go to one writer, in their order. A file gets its name once the values of all paths are
//! known, because similar names are made distinct then ([`assign_paths`]). A killed writer leaves files
//! without a name, which are removed with the staging folder, and parts of uploads, which are removed with
//! the uploads. Each attempt to write an object has an upload of its own, so that the parts of two writers of
//! one object do not mix.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::batch_compaction;
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;
use tidemill_remote::StorageOptions;
use tidemill_remote::s3::Bucket;
use tidemill_remote::upload::{FinishedUpload, ObjectUpload};

use crate::SinkResources;
use crate::commit::file_commit::StagingFolder;
use crate::commit::fs::{self, CountingFile};
use crate::commit::s3_commit::{SharedUpload, UploadStarter, send_file_in_parts};
use crate::destination::{self, PartitionedRows};
use crate::error::{Error, Result};
use crate::formats::OutputFormat;
use crate::sink_spec::SinkSpec;
use crate::writing::partitioned_files::StagingArea;
use crate::writing::path_template::{PathKey, PathTemplate, assign_paths, fnv_1a_128, join_below};
use crate::writing::row_router::RowRouter;
use crate::writing::row_writer::{FileWriteSpec, RowWriter};

/// Maximum size of an object that needs no upload: its bytes go to the owner of the output …
const INLINE_OBJECT_BYTES_MAX: u64 = 256 << 10;
/// … as long as all such objects together have at most this size.
const INLINE_TOTAL_BYTES_MAX: u64 = 16 << 20;

/// The target to which worker processes write files of an output.
#[derive(Clone)]
pub enum WorkerOutputTarget {
    /// A folder that all workers have to see.
    Folder(WorkerOutputFolder),
    /// A bucket.
    Bucket(WorkerOutputBucket),
}

/// The staging folder of an output, as described to workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOutputFolder {
    /// The folder for the workers' files until the commit.
    folder: PathBuf,
    /// A file in that folder, for checking that a worker sees it.
    pub lock: PathBuf,
}

/// The bucket of an output, in which the output's owner begins uploads.
#[derive(Clone)]
pub struct WorkerOutputBucket {
    upload_starter: UploadStarter,
    template: Arc<PathTemplate>,
}

impl std::fmt::Debug for WorkerOutputTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WorkerOutputTarget::Folder(folder) => folder.fmt(f),
            WorkerOutputTarget::Bucket(bucket) => {
                f.debug_tuple("Bucket").field(&bucket.template.url).finish()
            }
        }
    }
}

/// The values of a path's columns, in the path's order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathValues(PathKey);

/// An upload that the output's owner has begun for an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunUpload {
    values: PathValues,
    key: String,
    id: String,
}

impl WorkerOutputTarget {
    pub(crate) fn from_staging(staging: &StagingFolder) -> Result<WorkerOutputTarget> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| Error::io("find", path, error));
        let (folder, lock) = (absolute(staging.folder_path())?, absolute(&staging.lock_path())?);
        Ok(WorkerOutputTarget::Folder(WorkerOutputFolder { folder, lock }))
    }

    pub(crate) fn from_bucket(
        starter: UploadStarter,
        template: PathTemplate,
    ) -> WorkerOutputTarget {
        WorkerOutputTarget::Bucket(WorkerOutputBucket {
            upload_starter: starter,
            template: Arc::new(template),
        })
    }
}

impl WorkerOutputBucket {
    /// Returns the object key of each path. `paths` has to contain all paths of the output.
    ///
    /// # Errors
    /// [`Error::Usage`] if two paths cannot get distinct names.
    pub fn object_keys(&self, paths: &[PathValues]) -> Result<HashMap<PathValues, String>> {
        let template = &self.template;
        if !template.is_partitioned() {
            let key = template.file_path().display().to_string();
            return Ok([(PathValues(PathKey::new()), key)].into());
        }
        let values: Vec<PathKey> = paths.iter().map(|path| path.0.clone()).collect();
        let targets = assign_paths(template, &values, false)?;
        let key = |target: String| join_below(&template.root, &target).display().to_string();
        Ok(paths.iter().cloned().zip(targets.into_iter().map(key)).collect())
    }

    /// Begins `times` uploads for each of some objects, each for another writer.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn begin_uploads(
        &self,
        objects: &[(PathValues, String)],
        times: usize,
        tick: WaitCallback<'_>,
    ) -> Result<Vec<Vec<BegunUpload>>> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let keys = (0..times).flat_map(|_| objects.iter().map(|(_, key)| key.clone()));
        let ids = self.upload_starter.begin_uploads(&keys.collect::<Vec<_>>(), tick)?;
        let begun = |ids: &[String]| {
            let begun = objects.iter().zip(ids).map(|((values, key), id)| BegunUpload {
                values: values.clone(),
                key: key.clone(),
                id: id.clone(),
            });
            begun.collect()
        };
        Ok(ids.chunks(objects.len()).map(begun).collect())
    }
}

/// A file that a worker has written, and that has no final name yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOutputFile {
    /// The values of the path's columns; empty for a path without columns.
    pub(crate) values: PathValues,
    pub(crate) bytes: u64,
    pub(crate) what: OutputContentLocation,
    /// The content of a small object, sent beside the serialized fields.
    #[serde(skip)]
    pub content: Vec<u8>,
}

/// The location of the file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputContentLocation {
    /// A file of the staging folder.
    Staged(String),
    /// In [`WorkerOutputFile::content`].
    Small,
    /// An upload with the ETags of its parts, in order.
    Sent { id: String, parts: Vec<String> },
}

impl WorkerOutputFile {
    /// Returns true if the bytes are in `content` and not in the bucket.
    pub fn has_inline_content(&self) -> bool {
        self.what == OutputContentLocation::Small
    }

    /// Returns the path's values, the staged name and the size of a complete file in the staging folder.
    pub(crate) fn into_staged_file(
        self,
        staging: &StagingFolder,
    ) -> Result<(PathKey, String, u64)> {
        let WorkerOutputFile { values: PathValues(key), bytes, what, .. } = self;
        let OutputContentLocation::Staged(staged) = what else {
            return Err(Error::Internal("an object in place of a file".into()));
        };
        check_staged_file(staging, &staged, bytes)?;
        Ok((key, staged, bytes))
    }

    /// Returns the path's values, the size and the upload that is to be completed.
    pub(crate) fn into_finished_upload(self) -> Result<(PathKey, u64, FinishedUpload)> {
        let WorkerOutputFile { values: PathValues(key), bytes, what, content } = self;
        let finished = match what {
            OutputContentLocation::Sent { id, parts } => FinishedUpload::Parts { id, parts },
            OutputContentLocation::Small if content.len() as u64 == bytes => {
                FinishedUpload::Small(content)
            }
            _ => return Err(Error::Internal("an object that was written by nobody".into())),
        };
        Ok((key, bytes, finished))
    }
}

/// Returns an error if a staged file is missing or incomplete.
pub(crate) fn check_staged_file(staging: &StagingFolder, staged: &str, bytes: u64) -> Result<()> {
    let path = staging.staged_path(staged);
    let found = fs::lstat(&path).map_err(|error| Error::io("read", &path, error))?;
    if found.map(|found| found.len()) != Some(bytes) {
        let missing = std::io::Error::other(format!("{bytes} bytes were written there"));
        return Err(Error::io("find", &path, missing));
    }
    Ok(())
}

/// The part of an output's spec that workers need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOutputSpec {
    url: String,
    format: String,
    compression: Option<String>,
    null: Option<String>,
    header: bool,
    max_files: usize,
}

impl WorkerOutputSpec {
    /// Extracts the workers' part of a spec. Returns `None` for an output that only this process can write:
    /// standard output, one that passes through a program, a format registered in this process.
    pub fn from_spec(spec: &SinkSpec) -> Option<WorkerOutputSpec> {
        let format = spec.parse().ok()?.format;
        if spec.url == "-" || spec.exec.is_some() || matches!(format, OutputFormat::Registered(_)) {
            return None;
        }
        Some(WorkerOutputSpec {
            url: spec.url.clone(),
            format: format.name().to_owned(),
            compression: spec.compression.as_ref().map(ToString::to_string),
            null: spec.null_text.clone(),
            header: spec.has_header,
            max_files: spec.max_files,
        })
    }

    /// Returns the spec of the output.
    ///
    /// # Errors
    /// [`Error::Usage`] if another release has written it.
    pub fn into_spec(self) -> Result<SinkSpec> {
        Ok(SinkSpec {
            format: Some(self.format.parse()?),
            compression: self.compression.as_deref().map(str::parse).transpose()?,
            null_text: self.null,
            has_header: self.header,
            max_files: self.max_files,
            ..SinkSpec::new(self.url)
        })
    }
}

/// Partitions rows by their writer: all rows of one path have the same writer.
pub struct WriterPartitioner {
    /// `None` for an output of one file.
    router: Option<RowRouter>,
    /// The writer of each path seen so far.
    writer_of_path: Vec<usize>,
    writer_count: usize,
}

impl WriterPartitioner {
    /// Creates a partitioner for at most `count` writers; an output of one file has one writer.
    ///
    /// # Errors
    /// [`Error::Usage`] for unknown columns in the path.
    pub fn new(spec: &SinkSpec, schema: &Schema, count: usize) -> Result<Self> {
        let parsed = spec.parse()?;
        let template = parsed.template.filter(|template| template.is_partitioned());
        let router = match template {
            None => None,
            Some(template) => {
                let positions = template.resolve_columns(schema)?;
                Some(RowRouter::new(schema, positions, &spec.url, spec.max_files)?)
            }
        };
        let count = if router.is_some() { count.max(1) } else { 1 };
        Ok(WriterPartitioner { router, writer_of_path: Vec::new(), writer_count: count })
    }

    /// Returns the values of the paths seen so far.
    pub fn path_values(&self) -> Vec<PathValues> {
        let keys = self.router.as_ref().map(RowRouter::path_keys).unwrap_or_default();
        keys.iter().cloned().map(PathValues).collect()
    }

    /// Returns an error if `count` exceeds the maximum number of paths.
    ///
    /// # Errors
    /// Returns the errors of [`partition_rows`](Self::partition_rows).
    pub fn check_path_count(&self, count: usize) -> Result<()> {
        self.router.as_ref().map_or(Ok(()), |router| router.check_path_count(count))
    }

    /// Returns the writer of a path.
    pub fn writer_index(&self, path: &PathValues) -> usize {
        writer_for_key(&path.0, self.writer_count)
    }

    /// Returns the number of writers.
    pub fn writer_count(&self) -> usize {
        self.writer_count
    }

    /// Returns the rows of each writer, in their order; leaves out writers without rows.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than allowed.
    pub fn partition_rows(&mut self, rows: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let copied = |error| Error::Internal(format!("cannot copy a batch: {error}"));
        let Some(router) = &mut self.router else {
            return Ok(vec![(0, batch_compaction::compact_batch(rows).map_err(copied)?)]);
        };
        let count = self.writer_count;
        let apart = router
            .partition_rows(rows, &mut self.writer_of_path, |key| writer_for_key(key, count))?;
        apart
            .into_iter()
            .map(|(writer, own)| {
                Ok((writer, batch_compaction::compact_batch(&own).map_err(copied)?))
            })
            .collect()
    }
}

/// Returns the writer of a path among `count`: the same in every process.
fn writer_for_key(key: &PathKey, count: usize) -> usize {
    let mut bytes = Vec::new();
    for value in key {
        match value {
            None => bytes.push(0),
            Some(text) => {
                bytes.push(1);
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
    let hash = fnv_1a_128(&bytes);
    // The last bits of the hash are unevenly distributed for short values.
    (((hash >> 64) ^ hash) % count as u128) as usize
}

/// The opened target to which one worker writes files of an output.
pub enum OpenOutputTarget {
    /// The staging folder.
    Folder(PathBuf),
    /// The bucket.
    Bucket(Arc<Bucket>),
}

impl OpenOutputTarget {
    /// Opens the target of an output: the folder that the output's owner states, or the output's bucket.
    ///
    /// # Errors
    /// Returns an error if the bucket cannot be reached.
    pub fn open(
        spec: &SinkSpec,
        folder: Option<&WorkerOutputFolder>,
        storage: &StorageOptions,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        if let Some(WorkerOutputFolder { folder, .. }) = folder {
            return Ok(OpenOutputTarget::Folder(folder.clone()));
        }
        let template = spec.parse()?.template;
        match template.and_then(|template| template.bucket) {
            Some(bucket) => Ok(OpenOutputTarget::Bucket(Bucket::open(&bucket, storage, cancel)?)),
            None => Err(Error::Internal("an output that is nowhere".into())),
        }
    }
}

/// Writes rows to files of an output that another process owns.
pub struct WorkerOutputWriter<'a> {
    kind: WorkerWriterKind<'a>,
    rows: u64,
}

enum WorkerWriterKind<'a> {
    File(Box<RowWriter<CountingFile>>, UniqueStagedNames),
    Files(Box<PartitionedRows>, UniqueStagedNames),
    Object(Box<RowWriter<SharedUpload>>, SharedUpload),
    Objects(Box<PartitionedRows>, UniqueStagedNames, ObjectUploads<'a>),
}

/// Sends objects whose bytes are in local files.
struct ObjectUploads<'a> {
    bucket: &'a Arc<Bucket>,
    begun_uploads: &'a [BegunUpload],
    /// The folder of the local files.
    _folder: tempfile::TempDir,
}

/// Staged names that no other writer uses.
struct UniqueStagedNames {
    folder: PathBuf,
    prefix: String,
}

impl UniqueStagedNames {
    fn prefixed_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl StagingArea for UniqueStagedNames {
    fn staged_path(&self, name: &str) -> PathBuf {
        self.folder.join(self.prefixed_name(name))
    }
}

impl<'a> WorkerOutputWriter<'a> {
    /// Begins to write the rows of some paths, or of the one file. Objects go to the uploads in `begun`;
    /// those of several paths are files in `spill` first.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::create_with`](crate::Sink::create_with).
    pub fn new(
        spec: &SinkSpec,
        (place, begun): (&'a OpenOutputTarget, &'a [BegunUpload]),
        schema: SchemaRef,
        (room, spill): (SinkResources, &Path),
        cancel: &CancelFlag,
    ) -> Result<Self> {
        let parsed = spec.parse()?;
        parsed.format.check_schema(&schema)?;
        let writing = destination::new_write_spec(spec, &parsed, room, cancel);
        let template = parsed.template.filter(PathTemplate::is_partitioned);
        let many = |template, writing: FileWriteSpec| {
            Ok::<_, Error>(Box::new(PartitionedRows::begin(
                template,
                spec,
                writing,
                Arc::clone(&schema),
            )?))
        };
        let kind = match (place, template) {
            (OpenOutputTarget::Folder(folder), template) => {
                let names =
                    UniqueStagedNames { folder: folder.clone(), prefix: unique_staged_name() };
                match template {
                    Some(template) => WorkerWriterKind::Files(many(template, writing)?, names),
                    None => {
                        let path = names.staged_path("0");
                        let output = fs::create_new_file(&path)
                            .map_err(|e| Error::io("create", &path, e))?;
                        let writer = RowWriter::new(CountingFile::new(output), &writing, schema)?;
                        WorkerWriterKind::File(Box::new(writer), names)
                    }
                }
            }
            (OpenOutputTarget::Bucket(bucket), Some(template)) => {
                let own = tempfile::Builder::new().prefix("tidemill-objects-").tempdir_in(spill);
                let own = own.map_err(|e| Error::io("create a folder in", spill, e))?;
                let names =
                    UniqueStagedNames { folder: own.path().to_owned(), prefix: String::new() };
                let sending = ObjectUploads { bucket, begun_uploads: begun, _folder: own };
                WorkerWriterKind::Objects(many(template, writing)?, names, sending)
            }
            (OpenOutputTarget::Bucket(bucket), None) => {
                let [BegunUpload { key, id, .. }] = begun else {
                    return Err(Error::Internal("an object for which nothing was begun".into()));
                };
                let upload =
                    ObjectUpload::from_upload_id(Arc::clone(bucket), key.clone(), id.clone());
                let upload = SharedUpload(Arc::new(Mutex::new(upload)));
                let writer = RowWriter::new(upload.clone(), &writing, schema)?;
                WorkerWriterKind::Object(Box::new(writer), upload)
            }
        };
        Ok(WorkerOutputWriter { kind, rows: 0 })
    }

    /// Adds rows. Rows of one path keep their order.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::write_with`](crate::Sink::write_with).
    pub fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        match &mut self.kind {
            WorkerWriterKind::File(writer, _) => writer.write(batch),
            WorkerWriterKind::Files(rows, names) | WorkerWriterKind::Objects(rows, names, _) => {
                rows.write(batch, names)
            }
            WorkerWriterKind::Object(writer, upload) => {
                writer.write(batch)?;
                Ok(upload.0.lock().send_full_parts(false, tick)?)
            }
        }
    }

    /// Ends the files and makes them durable. Returns their number of rows and the files. Returns `None` if
    /// one is too large for an object without an upload: then all have to be written again.
    ///
    /// # Errors
    /// Returns the errors of [`write`](Self::write).
    pub fn finish(self, tick: WaitCallback<'_>) -> Result<Option<(u64, Vec<WorkerOutputFile>)>> {
        let WorkerOutputWriter { kind, rows } = self;
        let one = |bytes, what| {
            let values = PathValues(PathKey::new());
            Ok(Some((rows, vec![WorkerOutputFile { values, bytes, what, content: Vec::new() }])))
        };
        match kind {
            WorkerWriterKind::File(writer, names) => {
                let bytes = writer.finish()?.bytes_written;
                sync_staged_file(&names.staged_path("0"))?;
                one(bytes, OutputContentLocation::Staged(names.prefixed_name("0")))
            }
            WorkerWriterKind::Object(writer, upload) => {
                drop(writer.finish()?);
                let upload = upload.into_inner()?;
                let bytes = upload.written_bytes;
                match upload.finish(tick)? {
                    FinishedUpload::Parts { id, parts } => {
                        one(bytes, OutputContentLocation::Sent { id, parts })
                    }
                    FinishedUpload::Small(_) => {
                        Err(Error::Internal("an object without parts".into()))
                    }
                }
            }
            WorkerWriterKind::Files(partitioned, names) => {
                let (keys, sizes) = finish_partitioned_files(*partitioned, &names)?;
                let placed =
                    keys.into_iter().zip(sizes).enumerate().map(|(number, (key, bytes))| {
                        let number = number.to_string();
                        sync_staged_file(&names.staged_path(&number))?;
                        let what = OutputContentLocation::Staged(names.prefixed_name(&number));
                        Ok(WorkerOutputFile {
                            values: PathValues(key),
                            bytes,
                            what,
                            content: Vec::new(),
                        })
                    });
                Ok(Some((rows, placed.collect::<Result<_>>()?)))
            }
            WorkerWriterKind::Objects(partitioned, names, sending) => {
                let (keys, sizes) = finish_partitioned_files(*partitioned, &names)?;
                let placed = sending.upload_objects(keys, sizes, &names, tick)?;
                Ok(placed.map(|placed| (rows, placed)))
            }
        }
    }
}

fn finish_partitioned_files(
    partitioned: PartitionedRows,
    names: &UniqueStagedNames,
) -> Result<(Vec<PathKey>, Vec<u64>)> {
    let PartitionedRows { mut router, files, .. } = partitioned;
    let sizes = files.finish(&mut router, names)?;
    Ok((router.path_keys().to_vec(), sizes))
}

/// Makes a staged file durable. The owner may be on another machine, which cannot sync the memory of this
/// one.
fn sync_staged_file(path: &Path) -> Result<()> {
    let synced = fs::open(path).and_then(|file| fs::sync_file(&file));
    synced.map_err(|error| Error::io("write", path, error))
}

impl ObjectUploads<'_> {
    fn upload_objects(
        &self,
        keys: Vec<PathKey>,
        sizes: Vec<u64>,
        names: &UniqueStagedNames,
        tick: WaitCallback<'_>,
    ) -> Result<Option<Vec<WorkerOutputFile>>> {
        let begun: HashMap<&PathKey, &BegunUpload> =
            self.begun_uploads.iter().map(|begun| (&begun.values.0, begun)).collect();
        let mut together = 0;
        let mut placed = Vec::with_capacity(keys.len());
        for (number, (key, bytes)) in keys.into_iter().zip(sizes).enumerate() {
            tick()?;
            let path = names.staged_path(&number.to_string());
            let is_small =
                bytes <= INLINE_OBJECT_BYTES_MAX && together + bytes <= INLINE_TOTAL_BYTES_MAX;
            let (what, content) = if is_small {
                together += bytes;
                let content =
                    fs::read_limited(&path, bytes).map_err(|e| Error::io("read", &path, e))?;
                (OutputContentLocation::Small, content)
            } else {
                let Some(BegunUpload { key, id, .. }) = begun.get(&key) else { return Ok(None) };
                let upload =
                    ObjectUpload::from_upload_id(Arc::clone(self.bucket), key.clone(), id.clone());
                let (id, parts) = send_file_in_parts(upload, &path, tick)?;
                (OutputContentLocation::Sent { id, parts }, Vec::new())
            };
            placed.push(WorkerOutputFile { values: PathValues(key), bytes, what, content });
        }
        Ok(Some(placed))
    }
}

/// Returns a name for a worker's file in a staging folder: digits, as in the owner's own names, and enough of
/// them to be unique among processes.
pub fn unique_staged_name() -> String {
    // Many may begin a file within a second, and processes in containers have the same few numbers.
    let (run, more) = (RunId::new(), RunId::new());
    let split = |run: &RunId| {
        let (time, random) = run.as_str().split_once('-').unwrap_or((run.as_str(), ""));
        let time: String = time.chars().filter(char::is_ascii_digit).collect();
        (time, u32::from_str_radix(random, 16).unwrap_or(0))
    };
    let ((time, random), (_, further)) = (split(&run), split(&more));
    format!("{time}{random:010}{further:010}{:010}", std::process::id())
}
