//! What there is to write to: what each does to begin, to write and to commit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;
use tidemill_remote::s3::Bucket;
use tidemill_remote::upload::FinishedUpload;

use crate::bucket::{Remote, Shared};
use crate::commit::{Entry, Recovered, Staging};
use crate::elsewhere::{Place, PlacedFile};
use crate::error::{Error, Result};
use crate::files::{PartitionedFiles, Stage};
use crate::formats::Encoding;
use crate::fs::{self, Output};
use crate::partition::Router;
use crate::places::{descriptor_copy, direct, is_direct};
use crate::spec::{Parsed, SinkSpec};
use crate::template::{self, Key, Template, below};
use crate::writer::{RowWriter, Writing, conform};
use crate::{PATHS_SHOWN, Room, Written, directly, staged_file};

/// Where rows go. Dropped before its commit, it removes what it has written.
pub(crate) trait Destination: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// As [`Sink::write_with`](crate::Sink::write_with).
    fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()>;

    /// Where others may write its files; none where only this process can.
    ///
    /// # Errors
    /// As [`Sink::place`](crate::Sink::place).
    fn place(&self) -> Result<Option<Place>> {
        Ok(None)
    }

    /// Takes files that others have written.
    ///
    /// # Errors
    /// As [`Sink::adopt`](crate::Sink::adopt).
    fn adopt(&mut self, _: Vec<PlacedFile>) -> Result<()> {
        Err(Error::Internal("others do not write this output".into()))
    }

    /// What runs that died while they wrote to the same place had left.
    fn recovered(&self) -> Option<&Recovered>;

    /// Throws away what was written, and waits for that longer than dropping does.
    fn abandon(self: Box<Self>, _: WaitCallback<'_>) {}

    /// Makes everything visible at once, and says what; the rows are counted elsewhere.
    ///
    /// # Errors
    /// As [`Sink::commit_with`](crate::Sink::commit_with).
    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written>;
}

/// Begins an output.
///
/// # Errors
/// As [`Sink::create_with`](crate::Sink::create_with).
pub(crate) fn open(
    spec: &SinkSpec,
    schema: SchemaRef,
    run: &RunId,
    room: Room,
    cancel: &CancelFlag,
    tick: WaitCallback<'_>,
) -> Result<Box<dyn Destination>> {
    let parsed = spec.parse()?;
    parsed.format.check(&schema)?;
    if let Some(program) = &spec.exec {
        program.prepare_files(cancel)?;
    }
    let writing = writing(spec, &parsed, room, cancel);
    let Some(template) = parsed.template else {
        let output = File::from(descriptor_copy(1, &spec.url)?);
        return Ok(Box::new(Direct::begin(output, &writing, schema)?));
    };
    Ok(match (&template.bucket, template.is_partitioned()) {
        (Some(bucket), is_partitioned) => {
            let bucket = Bucket::open_with_tick(bucket, &spec.storage_options, tick)?;
            let remote = Remote::open(bucket, &spec.url, run, tick)?;
            match is_partitioned {
                true => {
                    let rows = Partitioned::begin(template, spec, writing, schema)?;
                    Box::new(ManyObjects { rows, remote, adopted: Vec::new() })
                }
                false => {
                    let overwrite = spec.overwrite;
                    Box::new(OneObject::begin(remote, template, overwrite, &writing, schema, tick)?)
                }
            }
        }
        (None, true) => {
            let (root, pattern) = (template.root.clone(), template.pattern());
            let rows = Partitioned::begin(template, spec, writing, schema)?;
            let staging = Staging::open(&root, &pattern, run, tick)?;
            Box::new(ManyFiles { rows, staging, adopted: Vec::new() })
        }
        (None, false) => {
            let shown = template.file();
            match direct(&shown)? {
                Some(output) => Box::new(Direct::begin(output, &writing, schema)?),
                None => {
                    Box::new(OneFile::begin(shown, spec.overwrite, run, &writing, schema, tick)?)
                }
            }
        }
    })
}

/// How the files of an output are written.
pub(crate) fn writing(
    spec: &SinkSpec,
    parsed: &Parsed,
    room: Room,
    cancel: &CancelFlag,
) -> Writing {
    let Parsed { format, codec, template } = parsed;
    let is_stream = match template {
        None => true,
        Some(template) => {
            template.suffix().to_ascii_lowercase().ends_with(".arrows")
                || (template.bucket.is_none()
                    && !template.is_partitioned()
                    && is_direct(&template.file()))
        }
    };
    let encoding = Encoding {
        codec: *codec,
        is_stream,
        null: spec.null.clone(),
        header: spec.header,
        name: spec.url.clone(),
        memory_limit: room.memory_limit,
        threads: room.threads,
        cancel: cancel.clone(),
    };
    Writing { format: *format, encoding, exec: spec.exec.clone() }
}

/// What is written as it comes: standard output, a device, a pipe. There is nothing to commit.
struct Direct(RowWriter<Output>);

impl Direct {
    fn begin(output: File, writing: &Writing, schema: SchemaRef) -> Result<Self> {
        Ok(Direct(RowWriter::new(Output::new(output), writing, schema)?))
    }
}

impl Destination for Direct {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        directly(|| self.0.write(batch))
    }

    fn recovered(&self) -> Option<&Recovered> {
        None
    }

    fn commit(self: Box<Self>, _: bool, _: WaitCallback<'_>) -> Result<Written> {
        let finished = directly(|| self.0.finish())?;
        Ok(Written { bytes: finished.bytes, ..Written::default() })
    }
}

/// The one file of an output that others have written.
fn only(files: Vec<PlacedFile>) -> Result<PlacedFile> {
    let [file] = <[_; 1]>::try_from(files)
        .map_err(|files| Error::Internal(format!("{} files for one", files.len())))?;
    Ok(file)
}

/// What one file is called while it is staged.
const OWN: &str = "0";

/// One file, staged beside its place.
struct OneFile {
    writer: RowWriter<Output>,
    staging: Staging,
    name: String,
    /// The path as the user knows it, which may lead through a symbolic link.
    shown: PathBuf,
    /// What somebody else has written in its place.
    adopted: Option<(String, u64)>,
}

impl OneFile {
    fn begin(
        shown: PathBuf,
        overwrite: bool,
        run: &RunId,
        writing: &Writing,
        schema: SchemaRef,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        let (staging, name, output) = staged_file::begin(&shown, overwrite, run, tick)?;
        let writer = RowWriter::new(output, writing, schema)?;
        Ok(OneFile { writer, staging, name, shown, adopted: None })
    }
}

impl Destination for OneFile {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        self.writer.write(batch)
    }

    fn place(&self) -> Result<Option<Place>> {
        Place::of_folder(&self.staging).map(Some)
    }

    fn adopt(&mut self, files: Vec<PlacedFile>) -> Result<()> {
        let (_, staged, bytes) = only(files)?.staged(&self.staging)?;
        self.adopted = Some((staged, bytes));
        Ok(())
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.staging.recovered)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written> {
        let OneFile { writer, staging, name, shown, adopted } = *self;
        let (staged, bytes) = match adopted {
            Some(adopted) => {
                drop(writer);
                let own = staging.path(OWN);
                fs::remove_file(&own).map_err(|e| Error::io("remove", &own, e))?;
                adopted
            }
            None => (OWN.to_owned(), writer.finish()?.bytes),
        };
        staging.commit(vec![Entry::new(staged, name, bytes)], overwrite, tick)?;
        let root = shown.parent().filter(|root| !root.as_os_str().is_empty());
        Ok(Written {
            files: 1,
            bytes,
            root: root.unwrap_or(Path::new(".")).display().to_string(),
            paths: vec![shown.display().to_string()],
            ..Written::default()
        })
    }
}

/// Rows on their way to the files that their values name.
pub(crate) struct Partitioned {
    pub(crate) template: Template,
    pub(crate) router: Router,
    pub(crate) files: PartitionedFiles,
}

impl Partitioned {
    pub(crate) fn begin(
        template: Template,
        spec: &SinkSpec,
        writing: Writing,
        schema: SchemaRef,
    ) -> Result<Self> {
        let positions = template.resolve(&schema)?;
        let router = Router::new(&schema, positions, &spec.url, spec.max_files)?;
        let files = PartitionedFiles::new(writing, schema);
        Ok(Partitioned { template, router, files })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch, stage: &dyn Stage) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = conform(batch, self.files.schema())?;
        self.files.write(&batch, &mut self.router, stage)
    }
}

/// Many files, staged below the folder that holds them all.
struct ManyFiles {
    rows: Partitioned,
    staging: Staging,
    /// What others have written: of each path its file, and how many bytes that has.
    adopted: Vec<(Key, String, u64)>,
}

impl Destination for ManyFiles {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        self.rows.write(batch, &self.staging)
    }

    fn place(&self) -> Result<Option<Place>> {
        Place::of_folder(&self.staging).map(Some)
    }

    fn adopt(&mut self, files: Vec<PlacedFile>) -> Result<()> {
        self.rows.router.check_count(files.len())?;
        let staged = files.into_iter().map(|file| file.staged(&self.staging));
        self.adopted = staged.collect::<Result<_>>()?;
        Ok(())
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.staging.recovered)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written> {
        let ManyFiles { rows, staging, adopted } = *self;
        let Partitioned { template, mut router, files } = rows;
        let sizes = files.finish(&mut router, &staging)?;
        let own = sizes.into_iter().enumerate().map(|(i, bytes)| (i.to_string(), bytes));
        let mut keys = router.keys().to_vec();
        let mut staged: Vec<(String, u64)> = own.collect();
        for (key, name, bytes) in adopted {
            keys.push(key);
            staged.push((name, bytes));
        }
        let folds = staging.folds_names()?;
        let targets = template::assign(&template, &keys, folds)?;
        let entries = targets.into_iter().zip(staged);
        let mut entries: Vec<Entry> =
            entries.map(|(target, (staged, bytes))| Entry::new(staged, target, bytes)).collect();
        entries.sort_by(|a, b| a.target.cmp(&b.target));
        let shown = entries.iter().take(PATHS_SHOWN);
        let written = Written {
            files: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            paths: shown
                .map(|entry| below(&template.root, &entry.target).display().to_string())
                .collect(),
            root: template.root.display().to_string(),
            ..Written::default()
        };
        // No row, no path: what was staged goes as if nothing had been.
        if !entries.is_empty() {
            staging.commit(entries, overwrite, tick)?;
        }
        Ok(written)
    }
}

/// One object in a bucket, sent as it is written.
struct OneObject {
    writer: RowWriter<Shared>,
    upload: Shared,
    remote: Remote,
    key: String,
    template: Template,
    /// What somebody else has written in its place.
    adopted: Option<(u64, FinishedUpload)>,
}

impl OneObject {
    fn begin(
        remote: Remote,
        template: Template,
        overwrite: bool,
        writing: &Writing,
        schema: SchemaRef,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        let key = template.file().display().to_string();
        if !overwrite {
            remote.check_absent(&key, tick)?;
        }
        let upload = Shared(Arc::new(Mutex::new(remote.upload(&key))));
        let writer = RowWriter::new(upload.clone(), writing, schema)?;
        Ok(OneObject { writer, upload, remote, key, template, adopted: None })
    }
}

impl Destination for OneObject {
    fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.writer.write(batch)?;
        Ok(self.upload.0.lock().send_full_parts(false, tick)?)
    }

    fn place(&self) -> Result<Option<Place>> {
        Ok(Some(Place::of_bucket(self.remote.starter(), self.template.clone())))
    }

    fn adopt(&mut self, files: Vec<PlacedFile>) -> Result<()> {
        let (_, bytes, finished) = only(files)?.finished()?;
        self.adopted = Some((bytes, finished));
        Ok(())
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.remote.recovered)
    }

    fn abandon(self: Box<Self>, tick: WaitCallback<'_>) {
        self.remote.abandon(tick);
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written> {
        let OneObject { writer, upload, mut remote, key, adopted, .. } = *self;
        let (bytes, finished) = match adopted {
            Some(adopted) => adopted,
            None => {
                drop(writer.finish()?);
                let upload = upload.into_inner()?;
                (upload.written_bytes, upload.finish(tick)?)
            }
        };
        let entry = remote.written(&key, "0", bytes, finished)?;
        let written = Written {
            files: 1,
            bytes,
            root: remote.url(key.rsplit_once('/').map_or("", |(folder, _)| folder)),
            paths: vec![remote.url(&key)],
            warning: remote.warning.take(),
            ..Written::default()
        };
        remote.commit(vec![entry], overwrite, tick)?;
        Ok(written)
    }
}

/// Many objects in a bucket.
struct ManyObjects {
    rows: Partitioned,
    remote: Remote,
    /// What others have written.
    adopted: Vec<(Key, u64, FinishedUpload)>,
}

impl Destination for ManyObjects {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        self.rows.write(batch, &self.remote)
    }

    fn place(&self) -> Result<Option<Place>> {
        Ok(Some(Place::of_bucket(self.remote.starter(), self.rows.template.clone())))
    }

    fn adopt(&mut self, files: Vec<PlacedFile>) -> Result<()> {
        self.rows.router.check_count(files.len())?;
        self.adopted = files.into_iter().map(PlacedFile::finished).collect::<Result<_>>()?;
        Ok(())
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.remote.recovered)
    }

    fn abandon(self: Box<Self>, tick: WaitCallback<'_>) {
        self.remote.abandon(tick);
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written> {
        let ManyObjects { rows, mut remote, adopted } = *self;
        let Partitioned { template, mut router, files } = rows;
        let sizes = files.finish(&mut router, &remote)?;
        let mut keys = router.keys().to_vec();
        keys.extend(adopted.iter().map(|(key, ..)| key.clone()));
        let targets = template::assign(&template, &keys, false)?;
        let keys = targets.iter().map(|target| below(&template.root, target).display().to_string());
        let mut entries = Vec::with_capacity(targets.len());
        let mut adopted = adopted.into_iter();
        for (i, key) in keys.enumerate() {
            let name = i.to_string();
            entries.push(match sizes.get(i) {
                Some(bytes) => remote.staged(&key, &name, *bytes, tick)?,
                None => match adopted.next() {
                    Some((_, bytes, finished)) => remote.written(&key, &name, bytes, finished)?,
                    None => break,
                },
            });
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        let root = match template.root.to_str() {
            Some(".") | None => remote.url(""),
            Some(root) => remote.url(root),
        };
        let shown = entries.iter().take(PATHS_SHOWN);
        let written = Written {
            files: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            paths: shown.map(|entry| remote.url(&entry.key)).collect(),
            root,
            warning: remote.warning.take(),
            ..Written::default()
        };
        if !entries.is_empty() {
            remote.commit(entries, overwrite, tick)?;
        }
        Ok(written)
    }
}
