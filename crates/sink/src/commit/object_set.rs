//! Objects of known names, written by worker processes, that appear together: a conversion of many files to a
//! folder in a bucket.
//!
//! ```text
//!   owner of the set (ObjectSet)                   worker (ObjectSetWriter)
//!     begin_uploads: uploads, logged here      ─►    parts
//!     adopt_object  ◄─────────────────────────────   their ETags; or the content, if it is small
//!     commit: as in [`s3_commit`](super::s3_commit)
//! ```
//!
//! Only the owner begins uploads: if one were not logged here, nobody would know of it when its writer is
//! gone. Each attempt to write an object has an upload of its own, so that the parts of two writers of one
//! object do not mix. One upload is in the manifest, and the others are aborted.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;
use tidemill_remote::StorageOptions;
use tidemill_remote::s3::Bucket;
use tidemill_remote::upload::{FinishedUpload, ObjectUpload};

use crate::commit::s3_commit::{ObjectEntry, S3Staging};
use crate::error::{Error, Result};
use crate::formats::FileEncoding;
use crate::writing::codec_resolution::resolve_codec;
use crate::writing::path_template::PathTemplate;
use crate::writing::row_writer::{FileWriteSpec, RowWriter};
use crate::{LISTED_PATHS_MAX, OutputFormat, OutputSummary, SinkSpec};

/// Maximum size of an object that needs no upload: its bytes go to the owner of the set, which writes it by
/// one request.
const INLINE_OBJECT_BYTES_MAX: usize = 256 << 10;

/// Objects that appear together below one folder of a bucket. Dropping the set without a commit leaves none.
pub struct ObjectSet {
    staging: S3Staging,
    folder: BucketFolder,
    state: Mutex<ObjectSetState>,
}

#[derive(Default)]
struct ObjectSetState {
    /// The keys of the uploads, by their names.
    key_by_upload_id: HashMap<String, String>,
    /// The adopted objects, each with its number of rows.
    adopted_objects: Vec<(ObjectEntry, u64)>,
}

/// A folder in a bucket.
#[derive(Clone)]
pub struct BucketFolder {
    bucket: Arc<Bucket>,
    /// The folder's URL as the user wrote it.
    url: String,
}

/// A writer of objects of a set.
pub struct ObjectSetWriter {
    folder: BucketFolder,
    write_spec: FileWriteSpec,
}

/// An object of a set that is being written.
pub struct OpenSetObject {
    writer: RowWriter<ObjectOutput>,
    output: ObjectOutput,
    rows: u64,
    target: String,
}

/// The result of writing an object.
#[derive(Debug)]
pub enum FinishedObject {
    /// The complete object, with its bytes if it is small.
    Complete(StagedObject, Vec<u8>),
    /// A large object without an upload: it has to be written again.
    TooLarge,
}

/// A complete object of a set that is not yet visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedObject {
    target: String,
    bytes: u64,
    rows: u64,
    /// Its upload and the ETags of the parts, in order; `None` for a small object.
    upload: Option<(String, Vec<String>)>,
}

impl StagedObject {
    /// Returns true if its bytes are not in the bucket.
    pub fn has_inline_content(&self) -> bool {
        self.upload.is_none()
    }
}

impl ObjectSet {
    /// Begins a set below the folder that `spec` names.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::create`](crate::Sink::create).
    pub fn create(
        spec: &SinkSpec,
        format: OutputFormat,
        run: &RunId,
        cancel: &CancelFlag,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        if let Some(program) = &spec.exec {
            program.prepare_files(cancel)?;
        }
        resolve_codec(spec.compression.as_ref(), format, None, spec.exec.is_some())?;
        let place = BucketFolder::open_with(&spec.url, &spec.storage_options, tick)?;
        // Nothing distinguishes two runs that write other names of one format to a folder.
        let url = format!("{}/*.{format}", spec.url.trim_end_matches('/'));
        let remote = S3Staging::open(Arc::clone(&place.bucket), &url, run, tick)?;
        Ok(ObjectSet { staging: remote, folder: place, state: Mutex::default() })
    }

    /// Returns the key of an object.
    ///
    /// # Errors
    /// [`Error::Usage`] for a name that no object can have.
    pub fn object_key(&self, target: &str) -> Result<String> {
        Ok(self.folder.bucket_and_key(target)?.1)
    }

    /// Returns the URL of a key.
    pub fn object_url(&self, key: &str) -> String {
        self.staging.object_url(key)
    }

    /// Returns for each key whether an object exists there.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn keys_exist(&self, keys: Vec<String>, tick: WaitCallback<'_>) -> Result<Vec<bool>> {
        let seen = self.staging.stat_objects(keys, tick)?;
        Ok(seen.iter().map(Option::is_some).collect())
    }

    /// Begins an upload for each target, and returns the names of the uploads for their writers.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn begin_uploads(&self, targets: &[&str], tick: WaitCallback<'_>) -> Result<Vec<String>> {
        let keys =
            targets.iter().map(|target| self.object_key(target)).collect::<Result<Vec<_>>>()?;
        let ids = self.staging.begin_uploads(&keys, tick)?;
        self.state.lock().key_by_upload_id.extend(ids.iter().cloned().zip(keys));
        Ok(ids)
    }

    /// Adopts an object that a worker has written, with its bytes if it is small. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Internal`] if this set did not begin it; [`Error::Io`].
    pub fn adopt_object(&self, part: StagedObject, content: &[u8]) -> Result<()> {
        let StagedObject { target, bytes, rows, upload } = part;
        let key = self.object_key(&target)?;
        let mut state = self.state.lock();
        let finished = match upload {
            Some((id, parts)) if state.key_by_upload_id.get(&id) == Some(&key) => {
                FinishedUpload::Parts { id, parts }
            }
            None if content.len() as u64 == bytes => FinishedUpload::Small(content.to_vec()),
            _ => return Err(Error::Internal(format!("`{key}` was written by nobody"))),
        };
        let name = state.adopted_objects.len().to_string();
        let entry = self.staging.entry_for_upload(&key, &name, bytes, finished)?;
        state.adopted_objects.push((entry, rows));
        Ok(())
    }

    /// Makes the adopted objects visible at once.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::commit`](crate::Sink::commit).
    pub fn commit(self, overwrite: bool, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let ObjectSet { staging: mut remote, folder: place, state } = self;
        let mut done = state.into_inner().adopted_objects;
        done.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        let shown = done.iter().take(LISTED_PATHS_MAX);
        let written = OutputSummary {
            files: done.len() as u64,
            rows: done.iter().map(|(_, rows)| rows).sum(),
            bytes: done.iter().map(|(entry, _)| entry.bytes).sum(),
            paths: shown.map(|(entry, _)| remote.object_url(&entry.key)).collect(),
            root: place.url.trim_end_matches('/').to_owned(),
            warning: remote.warning.take(),
        };
        match done.is_empty() {
            true => remote.abandon(tick),
            false => {
                let entries = done.into_iter().map(|(entry, _)| entry).collect();
                remote.commit(entries, overwrite, tick)?;
            }
        }
        Ok(written)
    }

    /// Aborts all uploads, and waits longer for that than dropping does.
    pub fn abandon(self, tick: WaitCallback<'_>) {
        self.staging.abandon(tick);
    }
}

impl BucketFolder {
    /// Opens the folder of a URL, `s3://bucket/folder/`.
    ///
    /// # Errors
    /// [`Error::Usage`] for any other URL, and for columns in its name; [`Error::Remote`].
    pub fn open(url: &str, storage: &StorageOptions, cancel: &CancelFlag) -> Result<Self> {
        Self::open_with(url, storage, &mut || cancel.check())
    }

    fn open_with(url: &str, storage: &StorageOptions, tick: WaitCallback<'_>) -> Result<Self> {
        let (bucket, _) = parse_bucket_and_key(url, "x")?;
        let bucket = Bucket::open_with_tick(&bucket, storage, tick)?;
        Ok(BucketFolder { bucket, url: url.to_owned() })
    }

    fn bucket_and_key(&self, target: &str) -> Result<(String, String)> {
        parse_bucket_and_key(&self.url, target)
    }

    /// Creates a writer of objects in the folder, in the format of `spec`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a compression that the format does not have.
    pub fn new_writer(
        &self,
        spec: &SinkSpec,
        format: OutputFormat,
        memory_limit: usize,
        cancel: &CancelFlag,
    ) -> Result<ObjectSetWriter> {
        let encoding = FileEncoding {
            codec: resolve_codec(spec.compression.as_ref(), format, None, spec.exec.is_some())?,
            is_stream: false,
            null_text: spec.null_text.clone(),
            has_header: spec.has_header,
            output_name: spec.url.clone(),
            memory_limit_bytes: memory_limit,
            // Several objects are written at the same time.
            threads: 1,
            cancel: cancel.clone(),
        };
        let writing = FileWriteSpec { format, encoding, program: spec.exec.clone() };
        Ok(ObjectSetWriter { folder: self.clone(), write_spec: writing })
    }
}

/// Returns the bucket and the key of an object below a folder.
fn parse_bucket_and_key(url: &str, target: &str) -> Result<(String, String)> {
    // Braces in a name do not mark columns.
    let target = target.replace('{', "{{").replace('}', "}}");
    let template = PathTemplate::parse(&format!("{}/{target}", url.trim_end_matches('/')))?;
    match &template.bucket {
        Some(bucket) if !template.is_partitioned() => {
            Ok((bucket.clone(), template.file_path().display().to_string()))
        }
        _ => Err(Error::usage_with_hint(
            format!("`{url}` is no folder in a bucket"),
            "write s3://bucket/folder/; a brace that is part of its name is written twice, `{{`",
        )),
    }
}

impl ObjectSetWriter {
    /// Begins the object that will be `target`, below the folder. Without an upload that the owner has begun
    /// for it, it has to be small.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema, and for a name that no object can have.
    pub fn begin_object(
        &self,
        target: String,
        upload: Option<String>,
        schema: SchemaRef,
    ) -> Result<OpenSetObject> {
        self.write_spec.format.check_schema(&schema)?;
        let BucketFolder { bucket, .. } = &self.folder;
        let (_, key) = self.folder.bucket_and_key(&target)?;
        let mut writing = self.write_spec.clone();
        writing.encoding.output_name = bucket.url(&key);
        let upload = upload.map(|id| ObjectUpload::from_upload_id(Arc::clone(bucket), key, id));
        let outlet =
            ObjectOutput(Arc::new(Mutex::new(ObjectBuffer { upload, ..ObjectBuffer::default() })));
        let writer = RowWriter::new(outlet.clone(), &writing, schema)?;
        Ok(OpenSetObject { writer, output: outlet, rows: 0, target })
    }
}

impl OpenSetObject {
    /// Adds rows; waits while too many parts are on their way.
    ///
    /// # Errors
    /// [`Error::Remote`], [`Error::Interrupted`], and a value that the format cannot hold.
    pub fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch)?;
        match &mut self.output.0.lock().upload {
            Some(upload) => Ok(upload.send_full_parts(false, tick)?),
            None => Ok(()),
        }
    }

    /// Returns true for a large object without an upload: adding more rows is useless.
    pub fn is_too_large(&self) -> bool {
        self.output.0.lock().is_too_large()
    }

    /// Finishes the object.
    ///
    /// # Errors
    /// Returns the errors of [`write`](Self::write), and any refusal by the format at the end.
    pub fn finish(self, tick: WaitCallback<'_>) -> Result<FinishedObject> {
        let OpenSetObject { writer, output: outlet, rows, target } = self;
        drop(writer.finish()?);
        let alone = Arc::into_inner(outlet.0);
        let alone = alone.ok_or_else(|| Error::Internal("an object is still written".into()))?;
        let going = alone.into_inner();
        if going.is_too_large() {
            return Ok(FinishedObject::TooLarge);
        }
        let ObjectBuffer { inline_content: small, upload, is_large, bytes } = going;
        let upload = match upload.filter(|_| is_large) {
            None => None,
            Some(upload) => match upload.finish(tick)? {
                FinishedUpload::Parts { id, parts } => Some((id, parts)),
                FinishedUpload::Small(_) => {
                    return Err(Error::Internal("a large object without parts".into()));
                }
            },
        };
        Ok(FinishedObject::Complete(StagedObject { target, bytes, rows, upload }, small))
    }
}

/// The receiver of an object's bytes, shared with its writer.
#[derive(Clone)]
struct ObjectOutput(Arc<Mutex<ObjectBuffer>>);

#[derive(Default)]
struct ObjectBuffer {
    /// All bytes of the object, while it is small.
    inline_content: Vec<u8>,
    upload: Option<ObjectUpload>,
    is_large: bool,
    /// Number of bytes written.
    bytes: u64,
}

impl ObjectBuffer {
    fn is_too_large(&self) -> bool {
        self.is_large && self.upload.is_none()
    }
}

impl Write for ObjectOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let ObjectBuffer { inline_content: small, upload, is_large, bytes: all } =
            &mut *self.0.lock();
        *all += bytes.len() as u64;
        if !*is_large && small.len() + bytes.len() <= INLINE_OBJECT_BYTES_MAX {
            small.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        *is_large = true;
        let before = std::mem::take(small);
        if let Some(upload) = upload {
            upload.write_all(&before)?;
            upload.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
