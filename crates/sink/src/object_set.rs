//! Objects of known names, written by other processes, of which a number appear at once: a conversion of many files to a
//! folder in a bucket.
//!
//! ```text
//!   who has the set (ObjectSet)                    who writes (ObjectWriter)
//!     begin: an upload, noted on this machine  ─►    parts
//!     adopt  ◄────────────────────────────────────   their ETags; or all of an object, if it is small
//!     commit: as in [`bucket`](super::bucket)
//! ```
//!
//! Nobody else can begin an upload: of one that is not noted where the set is, nobody would know when its writer is gone.
//! Each time that an object is written it has an upload of its own, so that parts of two who write the same do not mix.
//! One is in the manifest, and the others are thrown away.

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

use super::bucket::{Entry, Remote};
use super::codecs::codec_of;
use super::error::{Error, Result};
use super::formats::Encoding;
use super::template::Template;
use super::writer::{RowWriter, Writing};
use super::{OutputFormat, PATHS_SHOWN, SinkSpec, Written};

/// So large an object needs no upload: it comes to who has the set, and is written by one request.
const SMALL_BYTES: usize = 256 << 10;

/// Objects that appear together below one folder of a bucket. Dropped without a commit it leaves none.
pub struct ObjectSet {
    remote: Remote,
    place: ObjectPlace,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The keys of uploads.
    begun: HashMap<String, String>,
    /// With the rows of each.
    done: Vec<(Entry, u64)>,
}

/// A folder in a bucket.
#[derive(Clone)]
pub struct ObjectPlace {
    bucket: Arc<Bucket>,
    /// As the user names it.
    url: String,
}

/// Who writes objects of a set.
pub struct ObjectWriter {
    place: ObjectPlace,
    writing: Writing,
}

/// One of them being written.
pub struct SetObject {
    writer: RowWriter<Outlet>,
    outlet: Outlet,
    rows: u64,
    target: String,
}

/// An object that has been written.
#[derive(Debug)]
pub enum EndedObject {
    /// All of it is there, and its bytes are if it is small.
    Whole(ObjectPart, Vec<u8>),
    /// It is not small, and nothing was begun for it: it has to be written again.
    TooLarge,
}

/// An object of a set that is all there, and does not appear yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPart {
    target: String,
    bytes: u64,
    rows: u64,
    /// Its upload and the ETags of the parts, in order; none of a small one.
    upload: Option<(String, Vec<String>)>,
}

impl ObjectPart {
    /// Whether its bytes are not in the bucket.
    pub fn is_small(&self) -> bool {
        self.upload.is_none()
    }
}

impl ObjectSet {
    /// Begins a set below the folder that `spec` names.
    ///
    /// # Errors
    /// As [`Sink::create`](super::Sink::create).
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
        codec_of(spec.compression.as_ref(), format, None, spec.exec.is_some())?;
        let place = ObjectPlace::open_with(&spec.url, &spec.storage_options, tick)?;
        // Two runs that write other names of one format to a folder are told apart by nothing.
        let url = format!("{}/*.{format}", spec.url.trim_end_matches('/'));
        let remote = Remote::open(Arc::clone(&place.bucket), &url, run, tick)?;
        Ok(ObjectSet { remote, place, state: Mutex::default() })
    }

    /// The key of an object.
    ///
    /// # Errors
    /// [`Error::Usage`] where none can have it.
    pub fn key(&self, target: &str) -> Result<String> {
        Ok(self.place.key(target)?.1)
    }

    /// The URL of a key.
    pub fn url(&self, key: &str) -> String {
        self.remote.url(key)
    }

    /// Which of some keys something has.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn taken(&self, keys: Vec<String>, tick: WaitCallback<'_>) -> Result<Vec<bool>> {
        let seen = self.remote.seen(keys, tick)?;
        Ok(seen.iter().map(Option::is_some).collect())
    }

    /// Begins an upload for each target; whoever writes it is given its name.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn begin(&self, targets: &[&str], tick: WaitCallback<'_>) -> Result<Vec<String>> {
        let keys = targets.iter().map(|target| self.key(target)).collect::<Result<Vec<_>>>()?;
        let ids = self.remote.begin_all(&keys, tick)?;
        self.state.lock().begun.extend(ids.iter().cloned().zip(keys));
        Ok(ids)
    }

    /// Takes an object that somebody has written, with its bytes if it is small. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Internal`] if this set did not begin it; [`Error::Io`].
    pub fn adopt(&self, part: ObjectPart, content: &[u8]) -> Result<()> {
        let ObjectPart { target, bytes, rows, upload } = part;
        let key = self.key(&target)?;
        let mut state = self.state.lock();
        let finished = match upload {
            Some((id, parts)) if state.begun.get(&id) == Some(&key) => {
                FinishedUpload::Parts { id, parts }
            }
            None if content.len() as u64 == bytes => FinishedUpload::Small(content.to_vec()),
            _ => return Err(Error::Internal(format!("`{key}` was written by nobody"))),
        };
        let name = state.done.len().to_string();
        let entry = self.remote.written(&key, &name, bytes, finished)?;
        state.done.push((entry, rows));
        Ok(())
    }

    /// Makes the objects that were taken visible at once.
    ///
    /// # Errors
    /// As [`Sink::commit`](super::Sink::commit).
    pub fn commit(self, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written> {
        let ObjectSet { mut remote, place, state } = self;
        let mut done = state.into_inner().done;
        done.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        let shown = done.iter().take(PATHS_SHOWN);
        let written = Written {
            files: done.len() as u64,
            rows: done.iter().map(|(_, rows)| rows).sum(),
            bytes: done.iter().map(|(entry, _)| entry.bytes).sum(),
            paths: shown.map(|(entry, _)| remote.url(&entry.key)).collect(),
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

    /// Throws away what was begun, and waits for that longer than dropping does.
    pub fn abandon(self, tick: WaitCallback<'_>) {
        self.remote.abandon(tick);
    }
}

impl ObjectPlace {
    /// The folder of a URL, `s3://bucket/folder/`.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is none, and for columns in its name; [`Error::Remote`].
    pub fn open(url: &str, storage: &StorageOptions, cancel: &CancelFlag) -> Result<Self> {
        Self::open_with(url, storage, &mut || cancel.check())
    }

    fn open_with(url: &str, storage: &StorageOptions, tick: WaitCallback<'_>) -> Result<Self> {
        let (bucket, _) = key_of(url, "x")?;
        let bucket = Bucket::open_with_tick(&bucket, storage, tick)?;
        Ok(ObjectPlace { bucket, url: url.to_owned() })
    }

    fn key(&self, target: &str) -> Result<(String, String)> {
        key_of(&self.url, target)
    }

    /// Who writes objects there, in the format of `spec`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a compression that the format does not have.
    pub fn writer(
        &self,
        spec: &SinkSpec,
        format: OutputFormat,
        memory_limit: usize,
        cancel: &CancelFlag,
    ) -> Result<ObjectWriter> {
        let encoding = Encoding {
            codec: codec_of(spec.compression.as_ref(), format, None, spec.exec.is_some())?,
            is_stream: false,
            null: spec.null.clone(),
            header: spec.header,
            name: spec.url.clone(),
            memory_limit,
            // Several objects are written at once.
            threads: 1,
            cancel: cancel.clone(),
        };
        let writing = Writing { format, encoding, exec: spec.exec.clone() };
        Ok(ObjectWriter { place: self.clone(), writing })
    }
}

/// The bucket and the key of an object below a folder.
fn key_of(url: &str, target: &str) -> Result<(String, String)> {
    // Braces in a name are no columns.
    let target = target.replace('{', "{{").replace('}', "}}");
    let template = Template::parse(&format!("{}/{target}", url.trim_end_matches('/')))?;
    match &template.bucket {
        Some(bucket) if !template.is_partitioned() => {
            Ok((bucket.clone(), template.file().display().to_string()))
        }
        _ => Err(Error::usage_hint(
            format!("`{url}` is no folder in a bucket"),
            "write s3://bucket/folder/; a brace that is part of its name is written twice, `{{`",
        )),
    }
}

impl ObjectWriter {
    /// Begins the object that will be `target`, below the folder. Without an upload that was begun for it, it has to be
    /// small.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema, and for a name that no object can have.
    pub fn begin(
        &self,
        target: String,
        upload: Option<String>,
        schema: SchemaRef,
    ) -> Result<SetObject> {
        self.writing.format.check(&schema)?;
        let ObjectPlace { bucket, .. } = &self.place;
        let (_, key) = self.place.key(&target)?;
        let mut writing = self.writing.clone();
        writing.encoding.name = bucket.url(&key);
        let upload = upload.map(|id| ObjectUpload::from_upload_id(Arc::clone(bucket), key, id));
        let outlet = Outlet(Arc::new(Mutex::new(Going { upload, ..Going::default() })));
        let writer = RowWriter::new(outlet.clone(), &writing, schema)?;
        Ok(SetObject { writer, outlet, rows: 0, target })
    }
}

impl SetObject {
    /// Adds rows; waits while too many parts are on their way.
    ///
    /// # Errors
    /// [`Error::Remote`], [`Error::Interrupted`], and a value that the format cannot hold.
    pub fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch)?;
        match &mut self.outlet.0.lock().upload {
            Some(upload) => Ok(upload.send_full_parts(false, tick)?),
            None => Ok(()),
        }
    }

    /// Whether it is not small, and nothing was begun for it: what is added is in vain.
    pub fn is_too_large(&self) -> bool {
        self.outlet.0.lock().is_too_large()
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`write`](Self::write), and what the format refuses in the end.
    pub fn end(self, tick: WaitCallback<'_>) -> Result<EndedObject> {
        let SetObject { writer, outlet, rows, target } = self;
        drop(writer.finish()?);
        let alone = Arc::into_inner(outlet.0);
        let alone = alone.ok_or_else(|| Error::Internal("an object is still written".into()))?;
        let going = alone.into_inner();
        if going.is_too_large() {
            return Ok(EndedObject::TooLarge);
        }
        let Going { small, upload, is_large, bytes } = going;
        let upload = match upload.filter(|_| is_large) {
            None => None,
            Some(upload) => match upload.finish(tick)? {
                FinishedUpload::Parts { id, parts } => Some((id, parts)),
                FinishedUpload::Small(_) => {
                    return Err(Error::Internal("a large object without parts".into()));
                }
            },
        };
        Ok(EndedObject::Whole(ObjectPart { target, bytes, rows, upload }, small))
    }
}

/// Where an object's bytes go.
#[derive(Clone)]
struct Outlet(Arc<Mutex<Going>>);

#[derive(Default)]
struct Going {
    /// All of it, while it is small.
    small: Vec<u8>,
    upload: Option<ObjectUpload>,
    is_large: bool,
    /// Bytes written.
    bytes: u64,
}

impl Going {
    fn is_too_large(&self) -> bool {
        self.is_large && self.upload.is_none()
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Going { small, upload, is_large, bytes: all } = &mut *self.0.lock();
        *all += bytes.len() as u64;
        if !*is_large && small.len() + bytes.len() <= SMALL_BYTES {
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
