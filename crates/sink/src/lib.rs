//! Where results go: files in one of the formats, one or many, committed as one.
//!
//! ```text
//!  batches ─┬─ one file ─────────────── format ── staged ─┐
//!           └─ router ─ groups by path ─ files ── staged ─┴─ commit: all names at once
//! ```
//!
//! - `template`: which file is a value's? Paths with columns in braces.
//! - `partition`: which rows go together?
//! - `format`: what has each format a place for? `value`, `lines`, `text`, `writer`: how is a value, a row, a file
//!   written?
//! - `compression`: by what is a file compressed?
//! - `registered`: how does a writer of the program's make one?
//! - `files`: how are many files written within a memory budget?
//! - `set`: how do files of known names appear, so many at once?
//! - `commit`: how do they appear, all or none? The staging folder and its recovery.
//! - `bucket`: the same in a bucket, where nothing can be renamed.
//! - `coverage_file`: where does a run's coverage go?
//! - `fs`: the file-system operations that the commit's promises rest on.
//!
//! A name of a device, a pipe or a descriptor (`/dev/null`, `/dev/stdout`) and `-` are written
//! directly: there is nothing to rename. A symbolic link to a file is followed, as a shell's
//! `>` does: the file it points to is written, staged beside it. New files have the
//! permissions that the umask leaves; a replaced file's are not carried over.

mod bucket;
mod commit;
mod compression;
pub mod coverage_file;
mod days;
mod files;
mod format;
mod fs;
mod lines;
mod partition;
mod registered;
mod row_groups;
mod set;
mod template;
mod text;
mod value;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

pub use self::commit::{Recovered, recover};
pub use self::compression::Compression;
pub use self::format::OutputFormat;
pub use self::set::FileSet;
pub use self::text::{cells, is_number};
pub use self::writer::RowWriter;

use tidemill_base::cancel::Cancel;
use tidemill_base::error::{Error, Result};
use tidemill_base::home::RunId;
use tidemill_remote::StorageOptions;
use tidemill_remote::location::{Location, refuse_mistyped};
use tidemill_remote::s3::Bucket;
use tidemill_source::program::Program;
use tracing::debug_span;

use self::bucket::{Remote, Shared};
use self::commit::{Entry, Staging};
use self::compression::Codec;
use self::files::{PartitionedFiles, Stage};
use self::fs::Output;
use self::partition::Router;
use self::template::{Template, below};
use self::writer::Writing;

/// How many files a template may name unless told otherwise.
pub const MAX_FILES: usize = 10_000;

/// How many paths [`Written`] lists.
const PATHS_SHOWN: usize = 5;

/// What to write, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSpec {
    /// A file or an object (`s3://bucket/key`), a template with columns in braces
    /// (`out/{day}.csv`), or `-` for standard output.
    pub url: String,
    /// The format; told from the file's suffix if `None` (standard output: CSV).
    pub format: Option<OutputFormat>,
    /// How files are compressed. Default: what the name tells of text, and what the format has by
    /// default.
    pub compression: Option<Compression>,
    /// Whether existing files may be replaced. Only names that this run writes are.
    pub overwrite: bool,
    /// How many files a template may name. Default: [`MAX_FILES`]. Each costs some 600 bytes of
    /// memory beyond the memory limit.
    pub max_files: usize,
    /// What a null looks like in CSV, TSV and text. Default: empty in CSV and TSV, `NULL` in
    /// text.
    pub null: Option<String>,
    /// A program that each file's bytes go through once they are in the format; what it gives is
    /// the file. Default: none.
    pub exec: Option<Program>,
    /// How stores are reached, beyond what the environment says. Default: nothing.
    pub storage_options: StorageOptions,
}

impl SinkSpec {
    /// A spec with the defaults.
    pub fn new(url: impl Into<String>) -> Self {
        SinkSpec {
            url: url.into(),
            format: None,
            compression: None,
            overwrite: false,
            max_files: MAX_FILES,
            null: None,
            exec: None,
            storage_options: StorageOptions::default(),
        }
    }

    /// Whether the format keeps what a schema says of its columns besides their names and values.
    pub fn keeps_columns(&self) -> bool {
        match self.parse() {
            Ok(parsed) => parsed.format.is_typed(),
            Err(_) => self.format.is_some_and(OutputFormat::is_typed),
        }
    }

    /// What the names of files in a format end in, behind the format's own suffix.
    pub fn compression_suffix(&self, format: OutputFormat) -> &'static str {
        match &self.compression {
            Some(compression) if !format.is_compressed_inside() && self.exec.is_none() => {
                compression.suffix()
            }
            _ => "",
        }
    }

    /// Refuses a program for standard output.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_exec(&self) -> Result<()> {
        match &self.exec {
            Some(program) if self.url == "-" => Err(Error::usage_hint(
                "standard output does not go through `exec`",
                format!("pipe it through the program: tidemill … | {}", program.name()),
            )),
            _ => Ok(()),
        }
    }

    /// Whether it may wait for a program or a writer of the user's for any length of time.
    pub fn waits_for_others(&self) -> bool {
        let format = self.parse().map(|parsed| parsed.format);
        self.exec.is_some() || matches!(format, Ok(OutputFormat::Registered(_)))
    }

    /// What is to be made of it.
    fn parse(&self) -> Result<Parsed> {
        self.check_exec()?;
        let codec = |format, name: Option<&str>| {
            Codec::of(self.compression.as_ref(), format, name, self.exec.is_some())
        };
        if self.url == "-" {
            let format = self.format.unwrap_or(OutputFormat::Csv);
            return Ok(Parsed { format, codec: codec(format, None)?, template: None });
        }
        let template = Template::parse(&self.url)?;
        let format = match self.format.or_else(|| OutputFormat::from_path(template.suffix())) {
            Some(format) => format,
            None if template.bucket.is_none() && descriptor(&template.file()).is_some() => {
                OutputFormat::Csv
            }
            None => {
                let names = OutputFormat::names().join(", ");
                return Err(Error::usage_hint(
                    format!("cannot tell the output's format from the name `{}`", self.url),
                    format!("end it with a format's suffix or give --format: {names}"),
                ));
            }
        };
        let codec = codec(format, Some(template.suffix()))?;
        Ok(Parsed { format, codec, template: Some(template) })
    }
}

/// What a spec says.
struct Parsed {
    format: OutputFormat,
    codec: Codec,
    /// None for standard output.
    template: Option<Template>,
}

/// What a run would write: the answer of [`describe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The output as the user wrote it.
    pub url: String,
    /// How each file is written.
    pub format: OutputFormat,
    /// The folder that everything goes to; `None` for standard output.
    pub root: Option<String>,
    /// The columns whose values make the path, in its order; none for one file.
    pub columns: Vec<String>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.root.is_none() {
            return write!(f, "{} to standard output", self.format);
        }
        match self.columns.as_slice() {
            [] => write!(f, "one {} file, `{}`", self.format, self.url),
            columns => {
                let names: Vec<_> = columns.iter().map(|name| format!("`{name}`")).collect();
                let names = names.join(", ");
                write!(f, "one {} file for each {names}, `{}`", self.format, self.url)
            }
        }
    }
}

/// Says what would be written, without writing.
///
/// # Errors
/// [`Error::Usage`] for everything that [`Sink::create`] refuses in a spec and a schema.
pub fn describe(spec: &SinkSpec, schema: &SchemaRef) -> Result<Description> {
    let Parsed { format, template, .. } = spec.parse()?;
    format.check(schema)?;
    if let Some(template) = &template {
        template.resolve(schema)?;
    }
    Ok(Description {
        url: spec.url.clone(),
        format,
        root: template.as_ref().map(|template| match &template.bucket {
            Some(bucket) => format!("s3://{bucket}/{}", template.root.display()),
            None => template.root.display().to_string(),
        }),
        columns: template.map(|template| template.columns).unwrap_or_default(),
    })
}

/// Whether an output may be written to `path`: it is its file, or one that its template may name.
/// False for what is no template, and for what is elsewhere.
pub(crate) fn may_write(url: &str, path: &Path) -> bool {
    let Some(template) = local_template(url) else { return false };
    let path = settled(path);
    match template.is_partitioned() {
        false => settled(&template.file()) == path,
        true => {
            path.strip_prefix(settled(&template.root)).is_ok_and(|below| template.may_name(below))
        }
    }
}

/// The folder on this machine that an output goes to, which may not be there yet.
pub(crate) fn folder_of(url: &str) -> Option<PathBuf> {
    match local_template(url) {
        Some(template) => Some(settled(&template.root)),
        None if url.ends_with('/') && !url.contains("://") => Some(settled(Path::new(url))),
        None => None,
    }
}

fn local_template(url: &str) -> Option<Template> {
    let template = if url == "-" { None } else { Template::parse(url).ok() };
    template.filter(|template| template.bucket.is_none())
}

/// A path without links, `.` and `..`, as far as what it names is there; absolute in any case.
pub(crate) fn settled(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // A link to what is not there yet leads there all the same.
    for _ in 0..40 {
        let Ok(link) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut settled = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(settled.pop()),
            std::path::Component::CurDir => {}
            part => {
                settled.push(part);
                if let Ok(real) = std::fs::canonicalize(&settled) {
                    settled = real;
                }
            }
        }
    }
    settled
}

/// What a committed sink has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Files; 0 for standard output.
    pub files: u64,
    /// Rows in all files.
    pub rows: u64,
    /// Bytes in all files.
    pub bytes: u64,
    /// The first few paths in alphabetical order.
    pub paths: Vec<String>,
    /// The folder that holds them; empty for standard output.
    pub root: String,
    /// What the user should be told once, if anything.
    pub warning: Option<String>,
}

/// An output being written. Nothing is visible before [`commit`](Sink::commit); dropped
/// without it, everything written is removed.
pub struct Sink {
    target: Target,
    overwrite: bool,
    rows: u64,
}

enum Target {
    /// Written as it comes; there is nothing to commit.
    Direct(Box<RowWriter<Output>>),
    One {
        writer: Box<RowWriter<Output>>,
        staging: Staging,
        name: String,
        /// The path as the user knows it, which may lead through a symbolic link.
        shown: PathBuf,
    },
    Many {
        template: Template,
        router: Box<Router>,
        files: Box<PartitionedFiles>,
        staging: Staging,
    },
    /// One object in a bucket, sent as it is written.
    OneObject {
        writer: Box<RowWriter<Shared>>,
        upload: Shared,
        remote: Box<Remote>,
        key: String,
    },
    /// Many objects in a bucket.
    ManyObjects {
        template: Template,
        router: Box<Router>,
        files: Box<PartitionedFiles>,
        remote: Box<Remote>,
    },
}

impl Sink {
    /// Begins an output. Runs that died while they wrote to the same folder are finished or
    /// removed first.
    ///
    /// `memory_limit` bounds, in bytes, what waits to be written.
    ///
    /// # Errors
    /// [`Error::Usage`] for a template or a format that does not fit the schema,
    /// [`Error::Exists`] for an existing file without `overwrite` (with columns in the name that
    /// is known at commit only), [`Error::Busy`] if a live run writes the same names.
    pub fn create(
        spec: &SinkSpec,
        schema: SchemaRef,
        run: &RunId,
        memory_limit: usize,
    ) -> Result<Sink> {
        Self::create_with(spec, schema, run, memory_limit, &Cancel::new(), &mut || Ok(()))
    }

    /// The same; while another run's commit holds the destination, `wait` is called every few
    /// milliseconds, and its error ends the wait. `cancel` ends a program that the bytes go
    /// through, and with it the writing.
    ///
    /// # Errors
    /// Those of [`create`](Self::create), and what `wait` returns.
    pub fn create_with(
        spec: &SinkSpec,
        schema: SchemaRef,
        run: &RunId,
        memory_limit: usize,
        cancel: &Cancel,
        wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Sink> {
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
        let writing = Writing {
            format,
            codec,
            is_stream,
            null: spec.null.clone(),
            exec: spec.exec.clone(),
            name: spec.url.clone(),
            memory_limit,
            cancel: cancel.clone(),
        };
        let writer = |output, schema| RowWriter::new(output, &writing, schema).map(Box::new);
        let sink = |target| Sink { target, overwrite: spec.overwrite, rows: 0 };
        let Some(template) = template else {
            let output = Output::new(File::from(descriptor_copy(1, &spec.url)?));
            return Ok(sink(Target::Direct(writer(output, schema)?)));
        };
        if let Some(bucket) = &template.bucket {
            let bucket = Bucket::open_with(bucket, &spec.storage_options, wait)?;
            let remote = Box::new(Remote::open(bucket, &spec.url, run, wait)?);
            if template.is_partitioned() {
                let positions = template.resolve(&schema)?;
                let router = Router::new(&schema, positions, &spec.url, spec.max_files)?;
                let files = PartitionedFiles::new(writing, schema);
                let (router, files) = (Box::new(router), Box::new(files));
                return Ok(sink(Target::ManyObjects { template, router, files, remote }));
            }
            let key = template.file().display().to_string();
            if !spec.overwrite {
                remote.check_absent(&key, wait)?;
            }
            let upload = Shared(Arc::new(Mutex::new(remote.upload(&key))));
            let writer = Box::new(RowWriter::new(upload.clone(), &writing, schema)?);
            return Ok(sink(Target::OneObject { writer, upload, remote, key }));
        }
        if template.is_partitioned() {
            let positions = template.resolve(&schema)?;
            let router = Router::new(&schema, positions, &spec.url, spec.max_files)?;
            let staging = Staging::open(&template.root, &template.pattern(), run, wait)?;
            let files = PartitionedFiles::new(writing, schema);
            let (router, files) = (Box::new(router), Box::new(files));
            return Ok(sink(Target::Many { template, router, files, staging }));
        }
        let shown = template.file();
        if let Some(file) = direct(&shown)? {
            return Ok(sink(Target::Direct(writer(Output::new(file), schema)?)));
        }
        let (root, name) = resolved(&shown)?;
        template::refuse_staging(&root.join(&name).display().to_string())?;
        let path = below(&root, &name);
        check_absent(&path, spec.overwrite)?;
        let staging = Staging::open(&root, &template::literal(&name), run, wait)?;
        // Again: a dead run's commit may just have been finished.
        check_absent(&path, spec.overwrite)?;
        let staged = staging.path("0");
        let output = fs::create_new(&staged).map_err(|e| Error::io("create", &staged, e))?;
        let writer = writer(Output::new(output), schema)?;
        Ok(sink(Target::One { writer, staging, name, shown }))
    }

    /// Adds rows. With columns in the path, rows of one path keep their order.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than `max_files`; what the file system
    /// refuses.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write_with(batch, &mut || Ok(()))
    }

    /// The same; while a bucket is too slow, `wait` is called every few milliseconds, and its
    /// error ends the wait.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), [`Error::Remote`], and what `wait` returns.
    pub fn write_with(
        &mut self,
        batch: &RecordBatch,
        wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        match &mut self.target {
            Target::OneObject { writer, upload, .. } => {
                writer.write(batch)?;
                upload.0.lock().settle(false, wait)
            }
            Target::ManyObjects { router, files, remote, .. } => {
                if batch.num_rows() == 0 {
                    return Ok(());
                }
                let batch = writer::conform(batch, files.schema())?;
                files.write(&batch, router, remote.as_ref())
            }
            Target::Direct(writer) => writer.write(batch),
            Target::One { writer, .. } => writer.write(batch),
            Target::Many { router, files, staging, .. } => {
                if batch.num_rows() == 0 {
                    return Ok(());
                }
                files.write(&writer::conform(batch, files.schema())?, router, staging)
            }
        }
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What runs that died while they wrote to the same folder had left: their commits have
    /// been finished or taken back, their staged files removed.
    pub fn recovered(&self) -> Option<&Recovered> {
        match &self.target {
            Target::Direct(_) => None,
            Target::One { staging, .. } | Target::Many { staging, .. } => Some(&staging.recovered),
            Target::OneObject { remote, .. } | Target::ManyObjects { remote, .. } => {
                Some(&remote.recovered)
            }
        }
    }

    /// Makes everything visible at once.
    ///
    /// # Errors
    /// [`Error::Exists`] if a file exists and `overwrite` is not set; then, and after any other
    /// error but one, nothing is visible. The one is [`Error::Unfinished`]: the commit has
    /// already replaced files, or the file system refuses to take it back, and the next run to
    /// the same folder, or [`recover`], goes on from its manifest.
    pub fn commit(self) -> Result<Written> {
        self.commit_with(&mut || Ok(()))
    }

    /// The same; while another run's commit holds the destination, `wait` is called every few
    /// milliseconds, and its error ends the wait. Nothing is visible then.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit), and what `wait` returns.
    pub fn commit_with(self, wait: &mut dyn FnMut() -> Result<()>) -> Result<Written> {
        let Sink { target, overwrite, rows } = self;
        let _span = debug_span!("commit", rows).entered();
        match target {
            Target::Direct(writer) => {
                let bytes = writer.finish()?.bytes;
                Ok(Written { rows, bytes, ..Written::default() })
            }
            Target::One { writer, staging, name, shown } => {
                let bytes = writer.finish()?.bytes;
                let entry = Entry::new("0", name, bytes);
                staging.commit(vec![entry], overwrite, wait)?;
                let root = shown.parent().filter(|root| !root.as_os_str().is_empty());
                Ok(Written {
                    files: 1,
                    rows,
                    bytes,
                    root: root.unwrap_or(Path::new(".")).display().to_string(),
                    paths: vec![shown.display().to_string()],
                    warning: None,
                })
            }
            Target::Many { template, mut router, files, staging } => {
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
                    rows,
                    bytes: entries.iter().map(|entry| entry.bytes).sum(),
                    paths: shown
                        .map(|entry| below(&template.root, &entry.target).display().to_string())
                        .collect(),
                    root: template.root.display().to_string(),
                    warning: None,
                };
                if entries.is_empty() {
                    // No row, no path: what was staged goes as if nothing had been.
                    return Ok(written);
                }
                staging.commit(entries, overwrite, wait)?;
                Ok(written)
            }
            Target::OneObject { writer, upload, mut remote, key } => {
                drop(writer.finish()?);
                let upload = upload.into_inner()?;
                let bytes = upload.bytes;
                let finished = upload.finish(wait)?;
                let entry = remote.written(&key, bytes, finished)?;
                let warning = remote.warning.take();
                let paths = vec![remote.url(&key)];
                let root = remote.url(key.rsplit_once('/').map_or("", |(folder, _)| folder));
                remote.commit(vec![entry], overwrite, wait)?;
                Ok(Written { files: 1, rows, bytes, root, paths, warning })
            }
            Target::ManyObjects { template, mut router, files, mut remote } => {
                let sizes = files.finish(&mut router, remote.as_ref())?;
                let targets = template::assign(&template, router.keys(), false)?;
                let mut entries = Vec::with_capacity(targets.len());
                for (i, (target, bytes)) in targets.into_iter().zip(sizes).enumerate() {
                    let key = below(&template.root, &target).display().to_string();
                    entries.push(remote.staged(&key, &i.to_string(), bytes, wait)?);
                }
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                let root = match template.root.to_str() {
                    Some(".") | None => remote.url(""),
                    Some(root) => remote.url(root),
                };
                let shown = entries.iter().take(PATHS_SHOWN);
                let written = Written {
                    files: entries.len() as u64,
                    rows,
                    bytes: entries.iter().map(|entry| entry.bytes).sum(),
                    paths: shown.map(|entry| remote.url(&entry.key)).collect(),
                    root,
                    warning: remote.warning.take(),
                };
                if !entries.is_empty() {
                    remote.commit(entries, overwrite, wait)?;
                }
                Ok(written)
            }
        }
    }
}

/// A writer for a stream, standard output above all: rows leave as they come.
///
/// # Errors
/// [`Error::Usage`] if the format cannot hold the schema.
pub fn stdout_writer<W: Write + Send>(
    format: OutputFormat,
    schema: SchemaRef,
    null: Option<&str>,
    out: W,
) -> Result<RowWriter<W>> {
    format.check(&schema)?;
    let writing = Writing {
        format,
        codec: Codec::of(None, format, None, false)?,
        is_stream: true,
        null: null.map(str::to_owned),
        exec: None,
        name: "standard output".into(),
        memory_limit: STREAM_MEMORY,
        cancel: Cancel::new(),
    };
    RowWriter::new(out, &writing, schema)
}

/// What a stream's row groups may take.
const STREAM_MEMORY: usize = 128 << 20;

fn check_absent(path: &Path, overwrite: bool) -> Result<()> {
    match fs::look(path).map_err(|e| Error::io("read", path, e))? {
        Some(found) if found.is_dir() => Err(commit::is_folder(path)),
        Some(_) if !overwrite => Err(Error::Exists { path: path.display().to_string(), more: 0 }),
        _ => Ok(()),
    }
}

/// The descriptor that a path stands for.
fn descriptor(path: &Path) -> Option<u32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?;
    number.parse().ok()
}

/// A copy of standard output's or standard error's descriptor, which shares its position: opening
/// `/dev/stdout` anew would write over the start of a file it is redirected to.
fn descriptor_copy(number: u32, url: &str) -> Result<OwnedFd> {
    let copy = match number {
        1 => io::stdout().as_fd().try_clone_to_owned(),
        _ => io::stderr().as_fd().try_clone_to_owned(),
    };
    copy.map_err(|e| Error::io("write", url, e))
}

/// Whether a path is of something that is written as it comes.
fn is_direct(path: &Path) -> bool {
    let is_special = |found: std::fs::Metadata| {
        let kind = found.file_type();
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
    };
    descriptor(path).is_some() || std::fs::metadata(path).is_ok_and(is_special)
}

/// Opens what is not a file but can be written: a device, a pipe, a descriptor.
fn direct(path: &Path) -> Result<Option<File>> {
    let error = |e| Error::io("write", path, e);
    let open = || File::options().write(true).open(path).map_err(error);
    match descriptor(path) {
        Some(number @ 1..=2) => {
            return Ok(Some(File::from(descriptor_copy(number, &path.display().to_string())?)));
        }
        Some(_) => return Ok(Some(open()?)),
        None => {}
    }
    match std::fs::metadata(path) {
        Ok(found) => {
            let kind = found.file_type();
            if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() {
                return Ok(Some(open()?));
            }
            Ok(None)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(e) => Err(error(e)),
    }
}

/// The folder and the name of the file that a path leads to, symbolic links followed, whether
/// it exists or not.
fn resolved(path: &Path) -> Result<(PathBuf, String)> {
    let mut path = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        let Ok(link) = std::fs::read_link(&path) else { break };
        // An absolute target replaces the whole path.
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name = name.ok_or_else(|| {
        Error::usage(format!("`{}` is not a name that a file can have", path.display()))
    })?;
    let root = match path.parent() {
        Some(root) if !root.as_os_str().is_empty() => root.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok((root, name))
}

/// A file of any content that appears whole or not at all, as a sink's files do.
pub struct StagedFile {
    output: Output,
    staging: Staging,
    name: String,
    overwrite: bool,
}

impl StagedFile {
    /// Begins a file at `path`.
    ///
    /// # Errors
    /// As [`Sink::create`].
    pub fn create(path: &Path, overwrite: bool, run: &RunId) -> Result<StagedFile> {
        path.to_str().map_or(Ok(()), refuse_mistyped)?;
        if let Some(Ok(Some(location))) = path.to_str().map(Location::parse) {
            return Err(Error::usage_hint(
                format!("a partial table cannot be written to `{location}`"),
                "write it to a file on this machine",
            ));
        }
        let (root, name) = resolved(path)?;
        template::refuse_staging(&root.join(&name).display().to_string())?;
        let path = below(&root, &name);
        check_absent(&path, overwrite)?;
        let staging = Staging::open(&root, &name, run, &mut || Ok(()))?;
        check_absent(&path, overwrite)?;
        let staged = staging.path("0");
        let output = fs::create_new(&staged).map_err(|e| Error::io("create", &staged, e))?;
        Ok(StagedFile { output: Output::new(output), staging, name, overwrite })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.output.bytes
    }

    /// Makes the file visible.
    ///
    /// # Errors
    /// As [`Sink::commit`].
    pub fn commit(self, bytes: u64) -> Result<()> {
        let StagedFile { mut output, staging, name, overwrite } = self;
        output.flush().map_err(|e| Error::io("write", &name, e))?;
        drop(output);
        let entry = Entry::new("0", name, bytes);
        staging.commit(vec![entry], overwrite, &mut || Ok(()))
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}
