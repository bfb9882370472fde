//! What there is to write to: what each does to begin, to write and to commit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tidemill_base::cancel::{Cancel, Tick};
use tidemill_base::home::RunId;
use tidemill_remote::s3::Bucket;

use crate::bucket::{Remote, Shared};
use crate::commit::{Entry, Recovered, Staging};
use crate::error::Result;
use crate::files::{PartitionedFiles, Stage};
use crate::formats::Encoding;
use crate::fs::Output;
use crate::partition::Router;
use crate::places::{descriptor_copy, direct, is_direct};
use crate::spec::{Parsed, SinkSpec};
use crate::template::{self, Template, below};
use crate::writer::{RowWriter, Writing, conform};
use crate::{PATHS_SHOWN, Room, Written, directly, staged_file};

/// Where rows go. Dropped before its commit, it removes what it has written.
pub(crate) trait Destination: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// As [`Sink::write_with`](crate::Sink::write_with).
    fn write(&mut self, batch: &RecordBatch, tick: Tick<'_>) -> Result<()>;

    /// What runs that died while they wrote to the same place had left.
    fn recovered(&self) -> Option<&Recovered>;

    /// Makes everything visible at once, and says what; the rows are counted elsewhere.
    ///
    /// # Errors
    /// As [`Sink::commit_with`](crate::Sink::commit_with).
    fn commit(self: Box<Self>, overwrite: bool, tick: Tick<'_>) -> Result<Written>;
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
    cancel: &Cancel,
    tick: Tick<'_>,
) -> Result<Box<dyn Destination>> {
    let Parsed { format, codec, template } = spec.parse()?;
    format.check(&schema)?;
    let is_stream = match &template {
        None => true,
        Some(template) => {
            template.suffix().to_ascii_lowercase().ends_with(".arrows")
                || (template.bucket.is_none()
                    && !template.is_partitioned()
                    && is_direct(&template.file()))
        }
    };
    let encoding = Encoding {
        codec,
        is_stream,
        null: spec.null.clone(),
        name: spec.url.clone(),
        memory_limit: room.memory_limit,
        threads: room.threads,
        cancel: cancel.clone(),
    };
    if let Some(program) = &spec.exec {
        program.open_files(cancel)?;
    }
    let writing = Writing { format, encoding, exec: spec.exec.clone() };
    let Some(template) = template else {
        let output = File::from(descriptor_copy(1, &spec.url)?);
        return Ok(Box::new(Direct::begin(output, &writing, schema)?));
    };
    Ok(match (&template.bucket, template.is_partitioned()) {
        (Some(bucket), is_partitioned) => {
            let bucket = Bucket::open_with(bucket, &spec.storage_options, tick)?;
            let remote = Remote::open(bucket, &spec.url, run, tick)?;
            match is_partitioned {
                true => {
                    let rows = Partitioned::begin(template, spec, writing, schema)?;
                    Box::new(ManyObjects { rows, remote })
                }
                false => {
                    let key = template.file().display().to_string();
                    Box::new(OneObject::begin(remote, key, spec.overwrite, &writing, schema, tick)?)
                }
            }
        }
        (None, true) => {
            let (root, pattern) = (template.root.clone(), template.pattern());
            let rows = Partitioned::begin(template, spec, writing, schema)?;
            let staging = Staging::open(&root, &pattern, run, tick)?;
            Box::new(ManyFiles { rows, staging })
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

/// What is written as it comes: standard output, a device, a pipe. There is nothing to commit.
struct Direct(RowWriter<Output>);

impl Direct {
    fn begin(output: File, writing: &Writing, schema: SchemaRef) -> Result<Self> {
        Ok(Direct(RowWriter::new(Output::new(output), writing, schema)?))
    }
}

impl Destination for Direct {
    fn write(&mut self, batch: &RecordBatch, _: Tick<'_>) -> Result<()> {
        directly(|| self.0.write(batch))
    }

    fn recovered(&self) -> Option<&Recovered> {
        None
    }

    fn commit(self: Box<Self>, _: bool, _: Tick<'_>) -> Result<Written> {
        let finished = directly(|| self.0.finish())?;
        Ok(Written { bytes: finished.bytes, ..Written::default() })
    }
}

/// One file, staged beside its place.
struct OneFile {
    writer: RowWriter<Output>,
    staging: Staging,
    name: String,
    /// The path as the user knows it, which may lead through a symbolic link.
    shown: PathBuf,
}

impl OneFile {
    fn begin(
        shown: PathBuf,
        overwrite: bool,
        run: &RunId,
        writing: &Writing,
        schema: SchemaRef,
        tick: Tick<'_>,
    ) -> Result<Self> {
        let (staging, name, output) = staged_file::begin(&shown, overwrite, run, tick)?;
        let writer = RowWriter::new(output, writing, schema)?;
        Ok(OneFile { writer, staging, name, shown })
    }
}

impl Destination for OneFile {
    fn write(&mut self, batch: &RecordBatch, _: Tick<'_>) -> Result<()> {
        self.writer.write(batch)
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.staging.recovered)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: Tick<'_>) -> Result<Written> {
        let OneFile { writer, staging, name, shown } = *self;
        let bytes = writer.finish()?.bytes;
        staging.commit(vec![Entry::new("0", name, bytes)], overwrite, tick)?;
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
struct Partitioned {
    template: Template,
    router: Router,
    files: PartitionedFiles,
}

impl Partitioned {
    fn begin(
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

    fn write(&mut self, batch: &RecordBatch, stage: &dyn Stage) -> Result<()> {
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
}

impl Destination for ManyFiles {
    fn write(&mut self, batch: &RecordBatch, _: Tick<'_>) -> Result<()> {
        self.rows.write(batch, &self.staging)
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.staging.recovered)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: Tick<'_>) -> Result<Written> {
        let ManyFiles { rows: Partitioned { template, mut router, files }, staging } = *self;
        let sizes = files.finish(&mut router, &staging)?;
        let folds = staging.folds_names()?;
        let targets = template::assign(&template, router.keys(), folds)?;
        let mut entries = Vec::with_capacity(targets.len());
        for (i, (target, bytes)) in targets.into_iter().zip(sizes).enumerate() {
            entries.push(Entry::new(i.to_string(), target, bytes));
        }
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
}

impl OneObject {
    fn begin(
        remote: Remote,
        key: String,
        overwrite: bool,
        writing: &Writing,
        schema: SchemaRef,
        tick: Tick<'_>,
    ) -> Result<Self> {
        if !overwrite {
            remote.check_absent(&key, tick)?;
        }
        let upload = Shared(Arc::new(Mutex::new(remote.upload(&key))));
        let writer = RowWriter::new(upload.clone(), writing, schema)?;
        Ok(OneObject { writer, upload, remote, key })
    }
}

impl Destination for OneObject {
    fn write(&mut self, batch: &RecordBatch, tick: Tick<'_>) -> Result<()> {
        self.writer.write(batch)?;
        Ok(self.upload.0.lock().settle(false, tick)?)
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.remote.recovered)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: Tick<'_>) -> Result<Written> {
        let OneObject { writer, upload, mut remote, key } = *self;
        drop(writer.finish()?);
        let upload = upload.into_inner()?;
        let bytes = upload.bytes;
        let finished = upload.finish(tick)?;
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
}

impl Destination for ManyObjects {
    fn write(&mut self, batch: &RecordBatch, _: Tick<'_>) -> Result<()> {
        self.rows.write(batch, &self.remote)
    }

    fn recovered(&self) -> Option<&Recovered> {
        Some(&self.remote.recovered)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: Tick<'_>) -> Result<Written> {
        let ManyObjects { rows: Partitioned { template, mut router, files }, mut remote } = *self;
        let sizes = files.finish(&mut router, &remote)?;
        let targets = template::assign(&template, router.keys(), false)?;
        let mut entries = Vec::with_capacity(targets.len());
        for (i, (target, bytes)) in targets.into_iter().zip(sizes).enumerate() {
            let key = below(&template.root, &target).display().to_string();
            entries.push(remote.staged(&key, &i.to_string(), bytes, tick)?);
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
