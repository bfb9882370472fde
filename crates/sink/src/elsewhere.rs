//! Files and objects of an output that other processes write.
//!
//! ```text
//!   who has the output (Sink)              who has rows (Spread)             who writes (PlaceWriter)
//!     place ──────────────────────────────────────────────────────────────►  rows of some paths, each as a whole:
//!     of a bucket: begin an upload           apart, by their paths' values ►   files in the staging folder that nobody
//!     for each object, and note it ────────────────────────────────────────►   looks for, or parts of these uploads
//!     adopt  ◄─────────────────────────────────────────────────────────────  each file's values and size
//!     commit: as where it has written them itself
//! ```
//!
//! All rows of a path come to one writer, in their order; a file has its name once all values are known, as names that are
//! alike are told apart then ([`assign`]). Of a writer that is killed there are files without a name, which go with the
//! staging folder, and parts of uploads, which go with these. Each time that an object is written it has an upload of its
//! own, so that parts of two who write the same do not mix.

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

use crate::Room;
use crate::bucket::{Shared, Starter, send};
use crate::commit::Staging;
use crate::destination::{self, Partitioned};
use crate::error::{Error, Result};
use crate::files::Stage;
use crate::formats::OutputFormat;
use crate::fs::{self, Output};
use crate::partition::Router;
use crate::spec::SinkSpec;
use crate::template::{Key, Template, assign, below, fnv_1a_128};
use crate::writer::{RowWriter, Writing};

/// So large an object needs no upload: its bytes come to who has the output …
const SMALL_BYTES: u64 = 256 << 10;
/// … as long as they are no more than this together.
const SMALL_TOGETHER_BYTES: u64 = 16 << 20;

/// Where others write files of an output.
#[derive(Clone)]
pub enum Place {
    /// In a folder that all of them have to see.
    Folder(PlacedFolder),
    /// In a bucket.
    Bucket(PlacedBucket),
}

/// A folder, as who writes to it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedFolder {
    /// The folder that is theirs until the commit.
    folder: PathBuf,
    /// A file of it.
    pub lock: PathBuf,
}

/// A bucket, where uploads are begun by who has the output.
#[derive(Clone)]
pub struct PlacedBucket {
    starter: Starter,
    template: Arc<Template>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Folder(folder) => folder.fmt(f),
            Place::Bucket(bucket) => f.debug_tuple("Bucket").field(&bucket.template.url).finish(),
        }
    }
}

/// The values of a path's columns, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Values(Key);

/// An object of which somebody has begun an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunObject {
    values: Values,
    key: String,
    id: String,
}

impl Place {
    pub(crate) fn of_folder(staging: &Staging) -> Result<Place> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| Error::io("find", path, error));
        let (folder, lock) = (absolute(staging.folder())?, absolute(&staging.lock_path())?);
        Ok(Place::Folder(PlacedFolder { folder, lock }))
    }

    pub(crate) fn of_bucket(starter: Starter, template: Template) -> Place {
        Place::Bucket(PlacedBucket { starter, template: Arc::new(template) })
    }
}

impl PlacedBucket {
    /// The key of the object of each path; all paths that there are have to be among them.
    ///
    /// # Errors
    /// [`Error::Usage`] if two paths cannot be told apart.
    pub fn keys(&self, paths: &[Values]) -> Result<HashMap<Values, String>> {
        let template = &self.template;
        if !template.is_partitioned() {
            let key = template.file().display().to_string();
            return Ok([(Values(Key::new()), key)].into());
        }
        let values: Vec<Key> = paths.iter().map(|path| path.0.clone()).collect();
        let targets = assign(template, &values, false)?;
        let key = |target: String| below(&template.root, &target).display().to_string();
        Ok(paths.iter().cloned().zip(targets.into_iter().map(key)).collect())
    }

    /// Begins an upload for each of some objects, so many times; each time is for another who writes them.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn begin(
        &self,
        objects: &[(Values, String)],
        times: usize,
        tick: WaitCallback<'_>,
    ) -> Result<Vec<Vec<BegunObject>>> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let keys = (0..times).flat_map(|_| objects.iter().map(|(_, key)| key.clone()));
        let ids = self.starter.begin_all(&keys.collect::<Vec<_>>(), tick)?;
        let begun = |ids: &[String]| {
            let begun = objects.iter().zip(ids).map(|((values, key), id)| BegunObject {
                values: values.clone(),
                key: key.clone(),
                id: id.clone(),
            });
            begun.collect()
        };
        Ok(ids.chunks(objects.len()).map(begun).collect())
    }
}

/// A file that somebody has written, and that has no name yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedFile {
    /// The values of the path's columns; none of a file without any.
    pub(crate) values: Values,
    pub(crate) bytes: u64,
    pub(crate) what: Placed,
    /// All of a small object, which goes beside what is said of it.
    #[serde(skip)]
    pub content: Vec<u8>,
}

/// Where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Placed {
    /// In a file of the staging folder.
    Staged(String),
    /// Here.
    Small,
    /// In an upload, of which these are the ETags of the parts, in order.
    Sent { id: String, parts: Vec<String> },
}

impl PlacedFile {
    /// Whether its bytes are not in the bucket.
    pub fn is_small(&self) -> bool {
        self.what == Placed::Small
    }

    /// The file of a staging folder, which is there as a whole.
    pub(crate) fn staged(self, staging: &Staging) -> Result<(Key, String, u64)> {
        let PlacedFile { values: Values(key), bytes, what, .. } = self;
        let Placed::Staged(staged) = what else {
            return Err(Error::Internal("an object in place of a file".into()));
        };
        check_staged(staging, &staged, bytes)?;
        Ok((key, staged, bytes))
    }

    /// The object, as it is to be completed.
    pub(crate) fn finished(self) -> Result<(Key, u64, FinishedUpload)> {
        let PlacedFile { values: Values(key), bytes, what, content } = self;
        let finished = match what {
            Placed::Sent { id, parts } => FinishedUpload::Parts { id, parts },
            Placed::Small if content.len() as u64 == bytes => FinishedUpload::Small(content),
            _ => return Err(Error::Internal("an object that was written by nobody".into())),
        };
        Ok((key, bytes, finished))
    }
}

/// Refuses a staged file that is not there as a whole.
pub(crate) fn check_staged(staging: &Staging, staged: &str, bytes: u64) -> Result<()> {
    let path = staging.path(staged);
    let found = fs::lstat(&path).map_err(|error| Error::io("read", &path, error))?;
    if found.map(|found| found.len()) != Some(bytes) {
        let missing = std::io::Error::other(format!("{bytes} bytes were written there"));
        return Err(Error::io("find", &path, missing));
    }
    Ok(())
}

/// What others are told of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSaid {
    url: String,
    format: String,
    compression: Option<String>,
    null: Option<String>,
    header: bool,
    max_files: usize,
}

impl OutputSaid {
    /// What is to be said of an output; none of one that only this process can write: standard output, one that goes
    /// through a program, a format that was registered here.
    pub fn of(spec: &SinkSpec) -> Option<OutputSaid> {
        let format = spec.parse().ok()?.format;
        if spec.url == "-" || spec.exec.is_some() || matches!(format, OutputFormat::Registered(_)) {
            return None;
        }
        Some(OutputSaid {
            url: spec.url.clone(),
            format: format.name().to_owned(),
            compression: spec.compression.as_ref().map(ToString::to_string),
            null: spec.null.clone(),
            header: spec.header,
            max_files: spec.max_files,
        })
    }

    /// The output.
    ///
    /// # Errors
    /// [`Error::Usage`] where it is of another release.
    pub fn spec(self) -> Result<SinkSpec> {
        Ok(SinkSpec {
            format: Some(self.format.parse()?),
            compression: self.compression.as_deref().map(str::parse).transpose()?,
            null: self.null,
            header: self.header,
            max_files: self.max_files,
            ..SinkSpec::new(self.url)
        })
    }
}

/// Rows by who is to write them: all of one path have the same writer.
pub struct Spread {
    /// None where there is one file.
    router: Option<Router>,
    /// The writer of each path that was met.
    writers: Vec<usize>,
    count: usize,
}

impl Spread {
    /// For so many writers at most; of one file there is one.
    ///
    /// # Errors
    /// [`Error::Usage`] for columns in the path that are not there.
    pub fn new(spec: &SinkSpec, schema: &Schema, count: usize) -> Result<Self> {
        let parsed = spec.parse()?;
        let template = parsed.template.filter(|template| template.is_partitioned());
        let router = match template {
            None => None,
            Some(template) => {
                let positions = template.resolve(schema)?;
                Some(Router::new(schema, positions, &spec.url, spec.max_files)?)
            }
        };
        let count = if router.is_some() { count.max(1) } else { 1 };
        Ok(Spread { router, writers: Vec::new(), count })
    }

    /// The paths that were met, each with its writer.
    pub fn paths(&self) -> Vec<Values> {
        let keys = self.router.as_ref().map(Router::keys).unwrap_or_default();
        keys.iter().cloned().map(Values).collect()
    }

    /// Refuses more paths than are allowed.
    ///
    /// # Errors
    /// As [`apart`](Self::apart).
    pub fn check_count(&self, count: usize) -> Result<()> {
        self.router.as_ref().map_or(Ok(()), |router| router.check_count(count))
    }

    /// Which writer a path has.
    pub fn writer(&self, path: &Values) -> usize {
        writer_of(&path.0, self.count)
    }

    /// How many writers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What each writer has of some rows, in their order; those that have none are left out.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than allowed.
    pub fn apart(&mut self, rows: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let copied = |error| Error::Internal(format!("cannot copy a batch: {error}"));
        let Some(router) = &mut self.router else {
            return Ok(vec![(0, batch_compaction::compact_batch(rows).map_err(copied)?)]);
        };
        let count = self.count;
        let apart = router.apart(rows, &mut self.writers, |key| writer_of(key, count))?;
        apart
            .into_iter()
            .map(|(writer, own)| {
                Ok((writer, batch_compaction::compact_batch(&own).map_err(copied)?))
            })
            .collect()
    }
}

/// Which of so many writers a path has: the same wherever it is asked.
fn writer_of(key: &Key, count: usize) -> usize {
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
    // Its last bits are not spread well where values are short.
    (((hash >> 64) ^ hash) % count as u128) as usize
}

/// Where one process writes files of an output that somebody else has.
pub enum OwnPlace {
    /// In the staging folder.
    Folder(PathBuf),
    /// In a bucket.
    Bucket(Arc<Bucket>),
}

impl OwnPlace {
    /// The place of an output: in the folder that who has it tells, or in the output's bucket.
    ///
    /// # Errors
    /// Where the bucket cannot be reached.
    pub fn open(
        spec: &SinkSpec,
        folder: Option<&PlacedFolder>,
        storage: &StorageOptions,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        if let Some(PlacedFolder { folder, .. }) = folder {
            return Ok(OwnPlace::Folder(folder.clone()));
        }
        let template = spec.parse()?.template;
        match template.and_then(|template| template.bucket) {
            Some(bucket) => Ok(OwnPlace::Bucket(Bucket::open(&bucket, storage, cancel)?)),
            None => Err(Error::Internal("an output that is nowhere".into())),
        }
    }
}

/// Writes rows to files of an output that somebody else has.
pub struct PlaceWriter<'a> {
    kind: Kind<'a>,
    rows: u64,
}

enum Kind<'a> {
    File(Box<RowWriter<Output>>, OwnNames),
    Files(Box<Partitioned>, OwnNames),
    Object(Box<RowWriter<Shared>>, Shared),
    Objects(Box<Partitioned>, OwnNames, Sending<'a>),
}

/// How objects are sent whose bytes are in files.
struct Sending<'a> {
    bucket: &'a Arc<Bucket>,
    begun: &'a [BegunObject],
    /// The folder of the files.
    _folder: tempfile::TempDir,
}

/// Names that no other writer has.
struct OwnNames {
    folder: PathBuf,
    prefix: String,
}

impl OwnNames {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Stage for OwnNames {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(self.name(name))
    }
}

impl<'a> PlaceWriter<'a> {
    /// Begins to write rows of some paths, or of the one file. Objects go to uploads that were `begun` for them; those of
    /// several paths are files in `spill` before.
    ///
    /// # Errors
    /// As [`Sink::create_with`](crate::Sink::create_with).
    pub fn new(
        spec: &SinkSpec,
        (place, begun): (&'a OwnPlace, &'a [BegunObject]),
        schema: SchemaRef,
        (room, spill): (Room, &Path),
        cancel: &CancelFlag,
    ) -> Result<Self> {
        let parsed = spec.parse()?;
        parsed.format.check(&schema)?;
        let writing = destination::writing(spec, &parsed, room, cancel);
        let template = parsed.template.filter(Template::is_partitioned);
        let many = |template, writing: Writing| {
            Ok::<_, Error>(Box::new(Partitioned::begin(
                template,
                spec,
                writing,
                Arc::clone(&schema),
            )?))
        };
        let kind = match (place, template) {
            (OwnPlace::Folder(folder), template) => {
                let names = OwnNames { folder: folder.clone(), prefix: staged_name() };
                match template {
                    Some(template) => Kind::Files(many(template, writing)?, names),
                    None => {
                        let path = names.path("0");
                        let output =
                            fs::create_new(&path).map_err(|e| Error::io("create", &path, e))?;
                        let writer = RowWriter::new(Output::new(output), &writing, schema)?;
                        Kind::File(Box::new(writer), names)
                    }
                }
            }
            (OwnPlace::Bucket(bucket), Some(template)) => {
                let own = tempfile::Builder::new().prefix("tidemill-objects-").tempdir_in(spill);
                let own = own.map_err(|e| Error::io("create a folder in", spill, e))?;
                let names = OwnNames { folder: own.path().to_owned(), prefix: String::new() };
                let sending = Sending { bucket, begun, _folder: own };
                Kind::Objects(many(template, writing)?, names, sending)
            }
            (OwnPlace::Bucket(bucket), None) => {
                let [BegunObject { key, id, .. }] = begun else {
                    return Err(Error::Internal("an object for which nothing was begun".into()));
                };
                let upload =
                    ObjectUpload::from_upload_id(Arc::clone(bucket), key.clone(), id.clone());
                let upload = Shared(Arc::new(Mutex::new(upload)));
                let writer = RowWriter::new(upload.clone(), &writing, schema)?;
                Kind::Object(Box::new(writer), upload)
            }
        };
        Ok(PlaceWriter { kind, rows: 0 })
    }

    /// Adds rows. Those of one path keep their order.
    ///
    /// # Errors
    /// As [`Sink::write_with`](crate::Sink::write_with).
    pub fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        match &mut self.kind {
            Kind::File(writer, _) => writer.write(batch),
            Kind::Files(rows, names) | Kind::Objects(rows, names, _) => rows.write(batch, names),
            Kind::Object(writer, upload) => {
                writer.write(batch)?;
                Ok(upload.0.lock().send_full_parts(false, tick)?)
            }
        }
    }

    /// Ends the files, which are durable then; with how many rows they have. None where one is too large for an object
    /// that nothing was begun for: all have to be written again.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end(self, tick: WaitCallback<'_>) -> Result<Option<(u64, Vec<PlacedFile>)>> {
        let PlaceWriter { kind, rows } = self;
        let one = |bytes, what| {
            let values = Values(Key::new());
            Ok(Some((rows, vec![PlacedFile { values, bytes, what, content: Vec::new() }])))
        };
        match kind {
            Kind::File(writer, names) => {
                let bytes = writer.finish()?.bytes;
                durable(&names.path("0"))?;
                one(bytes, Placed::Staged(names.name("0")))
            }
            Kind::Object(writer, upload) => {
                drop(writer.finish()?);
                let upload = upload.into_inner()?;
                let bytes = upload.written_bytes;
                match upload.finish(tick)? {
                    FinishedUpload::Parts { id, parts } => one(bytes, Placed::Sent { id, parts }),
                    FinishedUpload::Small(_) => {
                        Err(Error::Internal("an object without parts".into()))
                    }
                }
            }
            Kind::Files(partitioned, names) => {
                let (keys, sizes) = ended(*partitioned, &names)?;
                let placed =
                    keys.into_iter().zip(sizes).enumerate().map(|(number, (key, bytes))| {
                        let number = number.to_string();
                        durable(&names.path(&number))?;
                        let what = Placed::Staged(names.name(&number));
                        Ok(PlacedFile { values: Values(key), bytes, what, content: Vec::new() })
                    });
                Ok(Some((rows, placed.collect::<Result<_>>()?)))
            }
            Kind::Objects(partitioned, names, sending) => {
                let (keys, sizes) = ended(*partitioned, &names)?;
                let placed = sending.send(keys, sizes, &names, tick)?;
                Ok(placed.map(|placed| (rows, placed)))
            }
        }
    }
}

fn ended(partitioned: Partitioned, names: &OwnNames) -> Result<(Vec<Key>, Vec<u64>)> {
    let Partitioned { mut router, files, .. } = partitioned;
    let sizes = files.finish(&mut router, names)?;
    Ok((router.keys().to_vec(), sizes))
}

/// Who makes it appear may be on another machine, which does not make durable what this one has in memory.
fn durable(path: &Path) -> Result<()> {
    let synced = fs::open(path).and_then(|file| fs::sync(&file));
    synced.map_err(|error| Error::io("write", path, error))
}

impl Sending<'_> {
    fn send(
        &self,
        keys: Vec<Key>,
        sizes: Vec<u64>,
        names: &OwnNames,
        tick: WaitCallback<'_>,
    ) -> Result<Option<Vec<PlacedFile>>> {
        let begun: HashMap<&Key, &BegunObject> =
            self.begun.iter().map(|begun| (&begun.values.0, begun)).collect();
        let mut together = 0;
        let mut placed = Vec::with_capacity(keys.len());
        for (number, (key, bytes)) in keys.into_iter().zip(sizes).enumerate() {
            tick()?;
            let path = names.path(&number.to_string());
            let is_small = bytes <= SMALL_BYTES && together + bytes <= SMALL_TOGETHER_BYTES;
            let (what, content) = if is_small {
                together += bytes;
                let content = fs::read(&path, bytes).map_err(|e| Error::io("read", &path, e))?;
                (Placed::Small, content)
            } else {
                let Some(BegunObject { key, id, .. }) = begun.get(&key) else { return Ok(None) };
                let upload =
                    ObjectUpload::from_upload_id(Arc::clone(self.bucket), key.clone(), id.clone());
                let (id, parts) = send(upload, &path, tick)?;
                (Placed::Sent { id, parts }, Vec::new())
            };
            placed.push(PlacedFile { values: Values(key), bytes, what, content });
        }
        Ok(Some(placed))
    }
}

/// What a file of a staging folder is called that another process writes: digits, as its owner's own are, and as many as no
/// other process has.
pub fn staged_name() -> String {
    // Many may begin one within a second, and processes of containers have the same few numbers.
    let (run, more) = (RunId::new(), RunId::new());
    let split = |run: &RunId| {
        let (time, random) = run.as_str().split_once('-').unwrap_or((run.as_str(), ""));
        let time: String = time.chars().filter(char::is_ascii_digit).collect();
        (time, u32::from_str_radix(random, 16).unwrap_or(0))
    };
    let ((time, random), (_, further)) = (split(&run), split(&more));
    format!("{time}{random:010}{further:010}{:010}", std::process::id())
}
