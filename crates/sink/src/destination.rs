//! The destinations of an output: how each of them begins, writes and commits.

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

use crate::commit::file_commit::{FileEntry, RecoveryReport, StagingFolder};
use crate::commit::fs::{self, CountingFile};
use crate::commit::local_paths::{duplicate_descriptor, is_direct_output, open_direct_output};
use crate::commit::s3_commit::{S3Staging, SharedUpload};
use crate::error::{Error, Result};
use crate::formats::FileEncoding;
use crate::sink_spec::{ParsedSinkSpec, SinkSpec};
use crate::worker_output::{WorkerOutputFile, WorkerOutputTarget};
use crate::writing::partitioned_files::{PartitionedFiles, StagingArea};
use crate::writing::path_template::{self, PathKey, PathTemplate, join_below};
use crate::writing::row_router::RowRouter;
use crate::writing::row_writer::{FileWriteSpec, RowWriter, conform_to_schema};
use crate::{
    LISTED_PATHS_MAX, OutputSummary, SinkResources, commit::staged_file, run_direct_write,
};

/// A destination of rows. Dropping it before its commit removes everything written.
pub(crate) trait Destination: Send {
    /// Adds rows.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::write_with`](crate::Sink::write_with).
    fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()>;

    /// Returns the target to which worker processes may write the files; `None` if only this process can.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::worker_output_target`](crate::Sink::worker_output_target).
    fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        Ok(None)
    }

    /// Adopts files that worker processes have written.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::adopt_files`](crate::Sink::adopt_files).
    fn adopt_files(&mut self, _: Vec<WorkerOutputFile>) -> Result<()> {
        Err(Error::Internal("others do not write this output".into()))
    }

    /// Returns the report on runs that died while they wrote to the same place.
    fn recovery_report(&self) -> Option<&RecoveryReport>;

    /// Discards the output, and waits longer for that than dropping does.
    fn abandon(self: Box<Self>, _: WaitCallback<'_>) {}

    /// Makes everything visible at once, and returns a summary; the caller counts the rows.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::commit_with`](crate::Sink::commit_with).
    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<OutputSummary>;
}

/// Begins an output.
///
/// # Errors
/// Returns the errors of [`Sink::create_with`](crate::Sink::create_with).
pub(crate) fn open_destination(
    spec: &SinkSpec,
    schema: SchemaRef,
    run: &RunId,
    room: SinkResources,
    cancel: &CancelFlag,
    tick: WaitCallback<'_>,
) -> Result<Box<dyn Destination>> {
    let parsed = spec.parse()?;
    parsed.format.check_schema(&schema)?;
    if let Some(program) = &spec.exec {
        program.prepare_files(cancel)?;
    }
    let writing = new_write_spec(spec, &parsed, room, cancel);
    let Some(template) = parsed.template else {
        let output = File::from(duplicate_descriptor(1, &spec.url)?);
        return Ok(Box::new(DirectDestination::begin(output, &writing, schema)?));
    };
    Ok(match (&template.bucket, template.is_partitioned()) {
        (Some(bucket), is_partitioned) => {
            let bucket = Bucket::open_with_tick(bucket, &spec.storage_options, tick)?;
            let remote = S3Staging::open(bucket, &spec.url, run, tick)?;
            match is_partitioned {
                true => {
                    let rows = PartitionedRows::begin(template, spec, writing, schema)?;
                    Box::new(PartitionedObjectsDestination {
                        rows,
                        staging: remote,
                        adopted_uploads: Vec::new(),
                    })
                }
                false => {
                    let overwrite = spec.overwrite;
                    Box::new(SingleObjectDestination::begin(
                        remote, template, overwrite, &writing, schema, tick,
                    )?)
                }
            }
        }
        (None, true) => {
            let (root, pattern) = (template.root.clone(), template.pattern());
            let rows = PartitionedRows::begin(template, spec, writing, schema)?;
            let staging = StagingFolder::create(&root, &pattern, run, tick)?;
            Box::new(PartitionedFilesDestination { rows, staging, adopted_files: Vec::new() })
        }
        (None, false) => {
            let shown = template.file_path();
            match open_direct_output(&shown)? {
                Some(output) => Box::new(DirectDestination::begin(output, &writing, schema)?),
                None => Box::new(SingleFileDestination::begin(
                    shown,
                    spec.overwrite,
                    run,
                    &writing,
                    schema,
                    tick,
                )?),
            }
        }
    })
}

/// Returns the specification with which the files of an output are written.
pub(crate) fn new_write_spec(
    spec: &SinkSpec,
    parsed: &ParsedSinkSpec,
    room: SinkResources,
    cancel: &CancelFlag,
) -> FileWriteSpec {
    let ParsedSinkSpec { format, codec, template } = parsed;
    let is_stream = match template {
        None => true,
        Some(template) => {
            template.suffix().to_ascii_lowercase().ends_with(".arrows")
                || (template.bucket.is_none()
                    && !template.is_partitioned()
                    && is_direct_output(&template.file_path()))
        }
    };
    let encoding = FileEncoding {
        codec: *codec,
        is_stream,
        null_text: spec.null_text.clone(),
        has_header: spec.has_header,
        output_name: spec.url.clone(),
        memory_limit_bytes: room.memory_limit_bytes,
        threads: room.threads,
        cancel: cancel.clone(),
    };
    FileWriteSpec { format: *format, encoding, program: spec.exec.clone() }
}

/// A destination without a commit, written as rows come: standard output, a device, a pipe.
struct DirectDestination(RowWriter<CountingFile>);

impl DirectDestination {
    fn begin(output: File, writing: &FileWriteSpec, schema: SchemaRef) -> Result<Self> {
        Ok(DirectDestination(RowWriter::new(CountingFile::new(output), writing, schema)?))
    }
}

impl Destination for DirectDestination {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        run_direct_write(|| self.0.write(batch))
    }

    fn recovery_report(&self) -> Option<&RecoveryReport> {
        None
    }

    fn commit(self: Box<Self>, _: bool, _: WaitCallback<'_>) -> Result<OutputSummary> {
        let finished = run_direct_write(|| self.0.finish())?;
        Ok(OutputSummary { bytes: finished.bytes_written, ..OutputSummary::default() })
    }
}

/// Returns the one file of an output that a worker has written.
fn single_worker_file(files: Vec<WorkerOutputFile>) -> Result<WorkerOutputFile> {
    let [file] = <[_; 1]>::try_from(files)
        .map_err(|files| Error::Internal(format!("{} files for one", files.len())))?;
    Ok(file)
}

/// Staged name of the file that this process writes.
const OWN_STAGED_NAME: &str = "0";

/// A single file, staged beside its final place.
struct SingleFileDestination {
    writer: RowWriter<CountingFile>,
    staging: StagingFolder,
    name: String,
    /// The path as the user knows it, which may lead through a symbolic link.
    display_path: PathBuf,
    /// The staged name and size of the file that a worker has written in its place.
    adopted_file: Option<(String, u64)>,
}

impl SingleFileDestination {
    fn begin(
        shown: PathBuf,
        overwrite: bool,
        run: &RunId,
        writing: &FileWriteSpec,
        schema: SchemaRef,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        let (staging, name, output) = staged_file::begin_staged_file(&shown, overwrite, run, tick)?;
        let writer = RowWriter::new(output, writing, schema)?;
        Ok(SingleFileDestination { writer, staging, name, display_path: shown, adopted_file: None })
    }
}

impl Destination for SingleFileDestination {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        self.writer.write(batch)
    }

    fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        WorkerOutputTarget::from_staging(&self.staging).map(Some)
    }

    fn adopt_files(&mut self, files: Vec<WorkerOutputFile>) -> Result<()> {
        let (_, staged, bytes) = single_worker_file(files)?.into_staged_file(&self.staging)?;
        self.adopted_file = Some((staged, bytes));
        Ok(())
    }

    fn recovery_report(&self) -> Option<&RecoveryReport> {
        Some(&self.staging.recovery_report)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let SingleFileDestination {
            writer,
            staging,
            name,
            display_path: shown,
            adopted_file: adopted,
        } = *self;
        let (staged, bytes) = match adopted {
            Some(adopted) => {
                drop(writer);
                let own = staging.staged_path(OWN_STAGED_NAME);
                fs::remove_file(&own).map_err(|e| Error::io("remove", &own, e))?;
                adopted
            }
            None => (OWN_STAGED_NAME.to_owned(), writer.finish()?.bytes_written),
        };
        staging.commit(vec![FileEntry::new(staged, name, bytes)], overwrite, tick)?;
        let root = shown.parent().filter(|root| !root.as_os_str().is_empty());
        Ok(OutputSummary {
            files: 1,
            bytes,
            root: root.unwrap_or(Path::new(".")).display().to_string(),
            paths: vec![shown.display().to_string()],
            ..OutputSummary::default()
        })
    }
}

/// Rows on their way to the files of their path values.
pub(crate) struct PartitionedRows {
    pub(crate) template: PathTemplate,
    pub(crate) router: RowRouter,
    pub(crate) files: PartitionedFiles,
}

impl PartitionedRows {
    pub(crate) fn begin(
        template: PathTemplate,
        spec: &SinkSpec,
        writing: FileWriteSpec,
        schema: SchemaRef,
    ) -> Result<Self> {
        let positions = template.resolve_columns(&schema)?;
        let router = RowRouter::new(&schema, positions, &spec.url, spec.max_files)?;
        let files = PartitionedFiles::new(writing, schema);
        Ok(PartitionedRows { template, router, files })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch, stage: &dyn StagingArea) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = conform_to_schema(batch, self.files.schema())?;
        self.files.write(&batch, &mut self.router, stage)
    }
}

/// Many files, staged below their common root folder.
struct PartitionedFilesDestination {
    rows: PartitionedRows,
    staging: StagingFolder,
    /// The files that workers have written: path values, staged name and size.
    adopted_files: Vec<(PathKey, String, u64)>,
}

impl Destination for PartitionedFilesDestination {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        self.rows.write(batch, &self.staging)
    }

    fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        WorkerOutputTarget::from_staging(&self.staging).map(Some)
    }

    fn adopt_files(&mut self, files: Vec<WorkerOutputFile>) -> Result<()> {
        self.rows.router.check_path_count(files.len())?;
        let staged = files.into_iter().map(|file| file.into_staged_file(&self.staging));
        self.adopted_files = staged.collect::<Result<_>>()?;
        Ok(())
    }

    fn recovery_report(&self) -> Option<&RecoveryReport> {
        Some(&self.staging.recovery_report)
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let PartitionedFilesDestination { rows, staging, adopted_files: adopted } = *self;
        let PartitionedRows { template, mut router, files } = rows;
        let sizes = files.finish(&mut router, &staging)?;
        let own = sizes.into_iter().enumerate().map(|(i, bytes)| (i.to_string(), bytes));
        let mut keys = router.path_keys().to_vec();
        let mut staged: Vec<(String, u64)> = own.collect();
        for (key, name, bytes) in adopted {
            keys.push(key);
            staged.push((name, bytes));
        }
        let folds = staging.has_folding_names()?;
        let targets = path_template::assign_paths(&template, &keys, folds)?;
        let entries = targets.into_iter().zip(staged);
        let mut entries: Vec<FileEntry> = entries
            .map(|(target, (staged, bytes))| FileEntry::new(staged, target, bytes))
            .collect();
        entries.sort_by(|a, b| a.target.cmp(&b.target));
        let shown = entries.iter().take(LISTED_PATHS_MAX);
        let written = OutputSummary {
            files: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            paths: shown
                .map(|entry| join_below(&template.root, &entry.target).display().to_string())
                .collect(),
            root: template.root.display().to_string(),
            ..OutputSummary::default()
        };
        // Without rows there are no paths: dropping the staging folder leaves nothing.
        if !entries.is_empty() {
            staging.commit(entries, overwrite, tick)?;
        }
        Ok(written)
    }
}

/// A single object in a bucket, sent while it is written.
struct SingleObjectDestination {
    writer: RowWriter<SharedUpload>,
    upload: SharedUpload,
    staging: S3Staging,
    key: String,
    template: PathTemplate,
    /// The size and the upload of the object that a worker has written in its place.
    adopted_upload: Option<(u64, FinishedUpload)>,
}

impl SingleObjectDestination {
    fn begin(
        remote: S3Staging,
        template: PathTemplate,
        overwrite: bool,
        writing: &FileWriteSpec,
        schema: SchemaRef,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        let key = template.file_path().display().to_string();
        if !overwrite {
            remote.check_object_absent(&key, tick)?;
        }
        let upload = SharedUpload(Arc::new(Mutex::new(remote.new_upload(&key))));
        let writer = RowWriter::new(upload.clone(), writing, schema)?;
        Ok(SingleObjectDestination {
            writer,
            upload,
            staging: remote,
            key,
            template,
            adopted_upload: None,
        })
    }
}

impl Destination for SingleObjectDestination {
    fn write(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.writer.write(batch)?;
        Ok(self.upload.0.lock().send_full_parts(false, tick)?)
    }

    fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        Ok(Some(WorkerOutputTarget::from_bucket(
            self.staging.upload_starter(),
            self.template.clone(),
        )))
    }

    fn adopt_files(&mut self, files: Vec<WorkerOutputFile>) -> Result<()> {
        let (_, bytes, finished) = single_worker_file(files)?.into_finished_upload()?;
        self.adopted_upload = Some((bytes, finished));
        Ok(())
    }

    fn recovery_report(&self) -> Option<&RecoveryReport> {
        Some(&self.staging.recovery_report)
    }

    fn abandon(self: Box<Self>, tick: WaitCallback<'_>) {
        self.staging.abandon(tick);
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let SingleObjectDestination {
            writer,
            upload,
            staging: mut remote,
            key,
            adopted_upload: adopted,
            ..
        } = *self;
        let (bytes, finished) = match adopted {
            Some(adopted) => adopted,
            None => {
                drop(writer.finish()?);
                let upload = upload.into_inner()?;
                (upload.written_bytes, upload.finish(tick)?)
            }
        };
        let entry = remote.entry_for_upload(&key, "0", bytes, finished)?;
        let written = OutputSummary {
            files: 1,
            bytes,
            root: remote.object_url(key.rsplit_once('/').map_or("", |(folder, _)| folder)),
            paths: vec![remote.object_url(&key)],
            warning: remote.warning.take(),
            ..OutputSummary::default()
        };
        remote.commit(vec![entry], overwrite, tick)?;
        Ok(written)
    }
}

/// Many objects in a bucket.
struct PartitionedObjectsDestination {
    rows: PartitionedRows,
    staging: S3Staging,
    /// The objects that workers have written: path values, size and upload.
    adopted_uploads: Vec<(PathKey, u64, FinishedUpload)>,
}

impl Destination for PartitionedObjectsDestination {
    fn write(&mut self, batch: &RecordBatch, _: WaitCallback<'_>) -> Result<()> {
        self.rows.write(batch, &self.staging)
    }

    fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        Ok(Some(WorkerOutputTarget::from_bucket(
            self.staging.upload_starter(),
            self.rows.template.clone(),
        )))
    }

    fn adopt_files(&mut self, files: Vec<WorkerOutputFile>) -> Result<()> {
        self.rows.router.check_path_count(files.len())?;
        self.adopted_uploads =
            files.into_iter().map(WorkerOutputFile::into_finished_upload).collect::<Result<_>>()?;
        Ok(())
    }

    fn recovery_report(&self) -> Option<&RecoveryReport> {
        Some(&self.staging.recovery_report)
    }

    fn abandon(self: Box<Self>, tick: WaitCallback<'_>) {
        self.staging.abandon(tick);
    }

    fn commit(self: Box<Self>, overwrite: bool, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let PartitionedObjectsDestination { rows, staging: mut remote, adopted_uploads: adopted } =
            *self;
        let PartitionedRows { template, mut router, files } = rows;
        let sizes = files.finish(&mut router, &remote)?;
        let mut keys = router.path_keys().to_vec();
        keys.extend(adopted.iter().map(|(key, ..)| key.clone()));
        let targets = path_template::assign_paths(&template, &keys, false)?;
        let keys =
            targets.iter().map(|target| join_below(&template.root, target).display().to_string());
        let mut entries = Vec::with_capacity(targets.len());
        let mut adopted = adopted.into_iter();
        for (i, key) in keys.enumerate() {
            let name = i.to_string();
            entries.push(match sizes.get(i) {
                Some(bytes) => remote.entry_for_staged_file(&key, &name, *bytes, tick)?,
                None => match adopted.next() {
                    Some((_, bytes, finished)) => {
                        remote.entry_for_upload(&key, &name, bytes, finished)?
                    }
                    None => break,
                },
            });
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        let root = match template.root.to_str() {
            Some(".") | None => remote.object_url(""),
            Some(root) => remote.object_url(root),
        };
        let shown = entries.iter().take(LISTED_PATHS_MAX);
        let written = OutputSummary {
            files: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            paths: shown.map(|entry| remote.object_url(&entry.key)).collect(),
            root,
            warning: remote.warning.take(),
            ..OutputSummary::default()
        };
        if !entries.is_empty() {
            remote.commit(entries, overwrite, tick)?;
        }
        Ok(written)
    }
}
