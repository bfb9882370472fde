//! Opening of a source: from its definition to files, format, columns and types.

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_text::{sql_type_name, value_parsing};

use super::error::{Error, Result};
use super::formats::delimited::{RejectedSample, SuspectTextColumn};
use super::formats::stored_batch_reader;
use super::formats::{Format, LogLineFormat, MemoryRows};
use super::{
    FileLocation, PendingStream, Source, SourceColumnOrigin, SourceFile, SourceSpec,
    files::listing, schema::hidden_columns, schema::log_detection,
};
#[cfg(target_os = "linux")]
use crate::files::byte_input::interruptible_pipe;
use crate::files::byte_input::{
    ByteInput, ByteReadContext, FileIdentity, ProgramOutputReader, ReaderInput,
};
use crate::files::compression::{
    COMPRESSED_READ_BYTES, COMPRESSION_MAGIC_BYTES, Compression, decompress,
};
use crate::files::confinement;
use crate::files::unresponsive_files::{FileProber, SkippedFile};
use crate::schema::column_layouts::FileColumns;
use crate::schema::content_detection::explain_foreign_content;
use crate::schema::field_promotion::promote_fields;
use crate::schema::hidden_columns::HiddenColumn;
use crate::schema::source_sample::SourceSample;
use crate::schema::text_options::{CsvDialect, TextOptions};
use crate::schema::type_unification::can_be_read_as;
use crate::splits::split_boundaries::LongRecordEnds;

/// Name of standard input in messages.
pub(super) const STANDARD_INPUT_NAME: &str = "standard input";

pub(super) fn open_source(
    spec: &SourceSpec,
    stdin: Box<dyn Read + Send>,
    cancel: &CancelFlag,
    asking: Option<Arc<FileProber>>,
    pipe_until: Option<Instant>,
) -> Result<Source> {
    let mut source = open_files(spec, stdin, cancel, asking, pipe_until)?;
    if !spec.promotions.is_empty() {
        source = promote_fields(source, &spec.promotions)?;
    }
    add_hidden_columns(&mut source)?;
    Ok(source)
}

/// Adds the hidden columns to a source.
fn add_hidden_columns(source: &mut Source) -> Result<()> {
    let mut fields: Vec<FieldRef> = source.schema.fields().to_vec();
    for (hidden, name) in &source.spec.exposed_hidden_columns {
        if fields.iter().any(|field| field.name() == name) {
            return Err(Error::usage_with_hint(
                format!("the source has a column `{name}` already"),
                match hidden {
                    HiddenColumn::RowNumber => {
                        "leave the option out: the column is there already".to_owned()
                    }
                    _ => format!(
                        "give the name of the file another name: filename = '{name}_of_file'"
                    ),
                },
            ));
        }
        fields.push(hidden.field(name));
        source.origins.push(SourceColumnOrigin::Hidden(*hidden));
    }
    for (field, hidden) in hidden_columns::available_hidden_columns(&fields) {
        source.hidden_columns.push(field);
        source.origins.push(SourceColumnOrigin::Hidden(hidden));
    }
    source.schema = Arc::new(Schema::new(fields));
    Ok(())
}

fn open_files(
    spec: &SourceSpec,
    stdin: Box<dyn Read + Send>,
    cancel: &CancelFlag,
    asking: Option<Arc<FileProber>>,
    pipe_until: Option<Instant>,
) -> Result<Source> {
    confinement::check_source_allowed(spec, cancel)?;
    let asked = asking.as_deref();
    if let Some(program) = &spec.filter_program {
        program.prepare_files(cancel)?;
    }
    if !spec.more_urls.is_empty() && spec.urls().any(|url| url == "-") {
        return Err(Error::usage_with_hint(
            "standard input is not one of several files",
            "write it to a file first, or read it alone",
        ));
    }
    let stream = spec.urls().find(|url| is_stream_path(url));
    if let Some(url) = stream.filter(|_| !spec.more_urls.is_empty()) {
        return Err(Error::usage_with_hint(
            format!("`{url}` can be read only once, and is not one of several files"),
            "write it to a file first, or read it alone",
        ));
    }
    if let Some(url) = stream {
        if spec.filter_program.is_some() {
            return Err(Error::usage_with_hint(
                format!("`{url}` does not go through `exec`"),
                "pipe it through the program: program < input | tidemill …",
            ));
        }
        let file = open_stream(url).map_err(|error| Error::from_io("open", url, error))?;
        return open_read_once_source(spec, file, url, cancel, pipe_until);
    }
    match (&spec.filter_program, spec.url.as_str()) {
        (None, "-") => {
            return open_read_once_source(spec, stdin, STANDARD_INPUT_NAME, cancel, pipe_until);
        }
        (Some(_), "-") => {
            return Err(Error::usage_with_hint(
                "standard input does not go through `exec`",
                "pipe it through the program: program < input | tidemill …",
            ));
        }
        (Some(program), "") => {
            let output = Box::new(ProgramOutputReader::start(program, cancel)?);
            let shown = format!("the output of `{}`", program.name());
            return open_read_once_source(spec, output, &shown, cancel, pipe_until);
        }
        _ => {}
    }
    if let Some(given) = &spec.memory_rows {
        return open_memory_rows(spec, given, cancel);
    }
    let mut found = listing::list_source_files(spec, cancel, asked)?;
    if found.is_empty() {
        return Err(nothing_listed_error(spec, asked));
    }
    match asked {
        Some(asking) => skip_generated_files(&mut found, asking)?,
        None => check_no_generated_files(&found)?,
    }
    let mut format = common_format(spec, &found)?;
    if format == Format::Lines
        && log_detection::needs_log_detection(spec, found.iter().map(|file| &*file.name))
    {
        format = log_files_format(spec, &found, cancel, asking.clone())?;
    }
    if let Some(program) = &spec.filter_program
        && format.is_typed()
    {
        return Err(Error::usage_with_hint(
            format!("{format} cannot come from `{}`: it is no text", program.name()),
            "`format` says what the program writes: csv, json, lines, …",
        ));
    }
    let dialect = spec.text_options.to_dialect(format.name(), format.supported_text_options())?;
    check_layout_option(spec, format)?;
    if spec.salvage_damaged && format != Format::Rowfile {
        return Err(Error::usage_with_hint(
            format!("option `recover` has no meaning for format `{format}`"),
            "it belongs to rowfile; elsewhere --max-bad skips malformed records",
        ));
    }
    let mut key_fields = listing::infer_key_fields(&found);
    // A declared type of a folder's column does not concern the files.
    let mut own = spec.clone();
    if let Some(wanted) = &spec.declared_schema {
        let mut left = Vec::new();
        for field in wanted.fields() {
            let key = key_fields.iter_mut().find(|key| key.name() == field.name());
            match key {
                Some(key) if value_parsing::is_supported_type(field.data_type()) => {
                    key.set_data_type(field.data_type().clone());
                }
                Some(_) => {
                    return Err(Error::usage(format!(
                        "column `{}` comes from a folder and cannot be of type {}",
                        field.name(),
                        sql_type_name(field.data_type())
                    )));
                }
                None => left.push(field.clone()),
            }
        }
        own.declared_schema = (!left.is_empty()).then(|| Arc::new(Schema::new(left)));
    }
    let source_name: Arc<str> = redact_url(&spec.url).into();
    let files: Vec<Arc<SourceFile>> = found
        .into_iter()
        .enumerate()
        .map(|(index, found)| {
            let compression = match format {
                format if format.is_typed() => Compression::None,
                _ => Compression::strip_suffix(&found.name).1,
            };
            SourceFile::from_listing(found, index, compression, spec, &source_name, cancel)
        })
        .collect();
    check_content_encoding(&files, format)?;
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
    let (written, columns) = loop {
        let mut sample = new_sample(&files, format, dialect.clone(), watch.clone(), None);
        sample.prober = asking.clone();
        match (infer_columns(&own, format, &mut sample), asked) {
            (Err(error), Some(asking)) => {
                if let Some(nobody) = asking.unanswered_error(&files) {
                    return Err(nobody);
                }
                asking.skip_faulty_file(&files, error)?;
            }
            (columns, _) => break (SampledTextProperties::from_sample(sample), columns?),
        }
    };
    let mut source = build_source(spec, format, written, files, columns, key_fields, None)?;
    source.prober = asking;
    Ok(source)
}

/// Determines the format of files that are logs by their names.
fn log_files_format(
    spec: &SourceSpec,
    found: &[listing::ListedFile],
    cancel: &CancelFlag,
    asking: Option<Arc<FileProber>>,
) -> Result<Format> {
    let format = Format::Lines;
    let source_name: Arc<str> = redact_url(&spec.url).into();
    let files: Vec<Arc<SourceFile>> = found
        .iter()
        .cloned()
        .enumerate()
        .map(|(index, found)| {
            let compression = Compression::strip_suffix(&found.name).1;
            SourceFile::from_listing(found, index, compression, spec, &source_name, cancel)
        })
        .collect();
    check_content_encoding(&files, format)?;
    let dialect =
        TextOptions::default().to_dialect(format.name(), format.supported_text_options())?;
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
    let told = loop {
        let mut sample = new_sample(&files, format, dialect.clone(), watch.clone(), None);
        sample.prober = asking.clone();
        match (log_detection::detect_log_format(&mut sample), &asking) {
            (Err(error), Some(asking)) => asking.skip_faulty_file(&files, error)?,
            (told, _) => break told?,
        }
    };
    Ok(told.unwrap_or(format))
}

/// Returns true if a path is a stream instead of a file: a named pipe, `<(…)`, `/dev/stdin` of a pipe, or a
/// terminal. Files that the system generates as they are read also count: `/proc/cpuinfo`, whose size is 0
/// although it gives bytes, and everything in `/sys`. A stream can be read once, from front to back.
pub(crate) fn is_stream_path(url: &str) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let is_stream = |found: std::fs::Metadata| {
            let kind = found.file_type();
            let is_made = || {
                // Reading reports the error.
                let gives = || has_bytes(url).unwrap_or(true);
                kind.is_file() && (found.len() == 0 && gives() || url.starts_with("/sys/"))
            };
            kind.is_fifo() || kind.is_char_device() || kind.is_socket() || is_made()
        };
        url != "-" && std::fs::metadata(url).is_ok_and(is_stream)
    }
    #[cfg(not(unix))]
    {
        let _ = url;
        false
    }
}

/// Returns true if a file gives at least one byte.
#[cfg(unix)]
fn has_bytes(path: impl AsRef<std::path::Path>) -> std::io::Result<bool> {
    Ok(std::fs::File::open(path)?.read(&mut [0])? > 0)
}

/// Opens a stream that can be read once, from front to back. Opening a pipe does not wait for its writer;
/// each read polls instead, so that the reader can be cancelled.
fn open_stream(path: &str) -> std::io::Result<Box<dyn Read + Send>> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
        if std::fs::metadata(path)?.file_type().is_fifo() {
            let mut options = std::fs::OpenOptions::new();
            let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            return Ok(interruptible_pipe(file));
        }
    }
    Ok(Box::new(std::fs::File::open(path)?))
}

/// Returns the error of a source whose listing skipped all of its files, with the reason of the last.
fn nothing_listed_error(spec: &SourceSpec, asked: Option<&FileProber>) -> Error {
    match asked.and_then(|asking| asking.skipped_unlisted_files().pop()) {
        Some(SkippedFile { path, reason, .. }) => {
            Error::from_io("read", path, std::io::Error::other(reason))
        }
        None => Error::Internal(format!("no file of `{}` was listed", redact_url(&spec.url))),
    }
}

/// Skips the files that [`check_no_generated_files`] refuses.
fn skip_generated_files(files: &mut Vec<listing::ListedFile>, asking: &FileProber) -> Result<()> {
    let mut last = None;
    files.retain(|file| {
        let FileLocation::Local(path) = &file.location else { return true };
        if file.identity.size > 0 {
            return true;
        }
        let asked = file.clone();
        let (error, is_late) = match asking.probe(path, move || check_no_generated_files(&[asked]))
        {
            Some(Ok(())) => return true,
            Some(Err(error)) => (error.to_string(), false),
            None => (asking.timeout_message(), true),
        };
        asking.skip_unlisted_file(path, error.clone(), is_late);
        last = Some((Arc::clone(&file.display_name), error));
        false
    });
    match last {
        Some((path, error)) if files.is_empty() => {
            Err(Error::from_io("read", &*path, std::io::Error::other(error)))
        }
        _ => Ok(()),
    }
}

/// Refuses a system-generated file among several files. Its size is 0 although it gives bytes, so it would
/// silently be left out.
fn check_no_generated_files(files: &[listing::ListedFile]) -> Result<()> {
    #[cfg(unix)]
    for file in files.iter().filter(|file| file.identity.size == 0) {
        if let FileLocation::Local(path) = &file.location
            && has_bytes(path).is_ok_and(|gives| gives)
            // Not if another process has written to it meanwhile.
            && std::fs::metadata(path).is_ok_and(|found| found.len() == 0)
        {
            return Err(Error::usage_with_hint(
                format!(
                    "`{}` says that it has no bytes and gives some, as the system's own files do",
                    file.display_name
                ),
                "read it alone, or several through a pipe: cat FILES | tidemill …",
            ));
        }
    }
    Ok(())
}

/// Refuses an HTTP content encoding that is not decoded: of typed formats, which are read by position, and
/// any unsupported encoding.
fn check_content_encoding(files: &[Arc<SourceFile>], format: Format) -> Result<()> {
    for file in files {
        let FileLocation::Object(object) = &file.location else { continue };
        let Some(encoding) = object.encoding() else { continue };
        let is_decoded = matches!(encoding, "gzip" | "x-gzip" | "zstd") && !format.is_typed();
        if !is_decoded {
            return Err(Error::Remote(tidemill_remote::Error::Remote {
                action: "read",
                url: file.display_name.to_string(),
                offset: None,
                status: None,
                reason: format!("the server sends it encoded by `{encoding}`"),
                hint: Some("fetch it with a program that decodes it, and read it from disk".into()),
            }));
        }
    }
    Ok(())
}

/// Creates the single file of a source that has no listing, such as rows in memory or standard input.
fn single_file(
    place: FileLocation,
    shown: &str,
    size: u64,
    compression: Compression,
    spec: &SourceSpec,
    cancel: &CancelFlag,
) -> Arc<SourceFile> {
    let shown: Arc<str> = shown.into();
    let source = Arc::clone(&shown);
    let found = listing::ListedFile {
        location: place,
        name: Arc::clone(&shown),
        display_name: shown,
        identity: FileIdentity { device: 0, inode: 0, size, modified_ns: 0 },
        partition_keys: Vec::new(),
    };
    // A program produces these bytes and does not filter them.
    let (recover, options) = (spec.salvage_damaged, spec.text_options.clone());
    let spec =
        SourceSpec { salvage_damaged: recover, text_options: options, ..SourceSpec::default() };
    SourceFile::from_listing(found, 0, compression, &spec, &source, cancel)
}

/// Opens a source of rows in memory.
fn open_memory_rows(
    spec: &SourceSpec,
    given: &Arc<MemoryRows>,
    cancel: &CancelFlag,
) -> Result<Source> {
    let format = Format::Memory;
    let dialect = spec.text_options.to_dialect(format.name(), format.supported_text_options())?;
    let (place, size) = (FileLocation::Memory(Arc::clone(given)), given.memory_bytes().max(1));
    let file = single_file(place, &spec.url, size, Compression::None, spec, cancel);
    let files = vec![file];
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };
    let mut sample = new_sample(&files, format, dialect, watch, None);
    let columns = infer_columns(spec, format, &mut sample)?;
    let written = SampledTextProperties::from_sample(sample);
    build_source(spec, format, written, files, columns, Vec::new(), None)
}

/// Opens a source that can be read once: standard input, a pipe, or a program's output. With a deadline, the
/// sample consists of the records that arrived before it.
fn open_read_once_source(
    spec: &SourceSpec,
    reader: Box<dyn Read + Send>,
    shown: &str,
    cancel: &CancelFlag,
    until: Option<Instant>,
) -> Result<Source> {
    // A program's output consists of lines unless a format is declared.
    let format = spec
        .declared_format()
        .or_else(|| spec.filter_program.is_some().then_some(Format::Lines))
        .or_else(|| Format::from_path(shown));
    let Some(format) = format else {
        return Err(Error::usage_with_hint(
            format!("{shown} has no name that tells its format"),
            format!(
                "name it with --source-format (job file: source.format): {}",
                Format::names().join(", ")
            ),
        ));
    };
    if !format.can_read_streams() {
        return Err(Error::usage_with_hint(
            format!("{format} cannot be read from {shown}: it is not read from front to back"),
            "write it to a file first",
        ));
    }
    let dialect = spec.text_options.to_dialect(format.name(), format.supported_text_options())?;
    check_layout_option(spec, format)?;
    let watch = ByteReadContext { cancel: cancel.clone(), ..ByteReadContext::default() };

    // Keeps the bytes that the sample takes, so that they are read again first.
    let shared =
        Arc::new(Mutex::new(PendingStream { sampled_bytes: Vec::new(), reader, has_ended: false }));
    let mut magic = [0; COMPRESSION_MAGIC_BYTES];
    let mut tap = ReplayReader {
        pending_stream: shared.clone(),
        position: 0,
        deadline: until,
        whole_lines_only: false,
    };
    let mut filled = 0;
    while filled < magic.len() {
        match tap.read(&mut magic[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => cancel.check()?,
            Err(error) => return Err(Error::from_io("read", shown, error)),
        }
    }
    let compression = match format.is_typed() {
        true => Compression::None,
        false => Compression::from_magic(&magic[..filled]),
    };
    tap.whole_lines_only = !format.is_typed() && compression == Compression::None;
    let in_lines = tap.whole_lines_only;
    let only = |compression| single_file(FileLocation::Stdin, shown, 0, compression, spec, cancel);
    let files = vec![only(compression)];
    let name = files[0].display_name.clone();
    // A stream cut off at the deadline is decompressed here, because its decoder would report the missing
    // end.
    let decodes = (compression != Compression::None).then_some(until).flatten();
    let sampled = match decodes {
        Some(_) => vec![only(Compression::None)],
        None => files.clone(),
    };
    let own_watch = watch.clone();
    let input = move |before: Vec<u8>, tap: ReplayReader| -> Box<dyn ByteInput> {
        let watch = ByteReadContext { allows_short_reads: decodes.is_some(), ..own_watch.clone() };
        let input = Box::new(ReaderInput::new(before, tap, name.clone(), watch));
        match decodes {
            Some(until) => {
                Box::new(PartialDecompressor::new(input, compression, name.clone(), until))
            }
            None => input,
        }
    };
    let mut sample =
        new_sample(&sampled, format, dialect, watch, Some(input(magic[..filled].to_vec(), tap)));
    let tapped = shared.clone();
    sample.reopen_stdin = Some(Box::new(move || {
        input(
            Vec::new(),
            ReplayReader {
                pending_stream: tapped.clone(),
                position: 0,
                deadline: until,
                whole_lines_only: in_lines,
            },
        )
    }));
    let columns = infer_columns(spec, format, &mut sample)?;
    let written = SampledTextProperties::from_sample(sample);
    let pending = Arc::try_unwrap(shared)
        .map_err(|_| Error::Internal(format!("{} is still being sampled", files[0].display_name)))?
        .into_inner();
    build_source(spec, format, written, files, columns, Vec::new(), Some(pending))
}

/// Reads a stream and records the bytes; each reader starts from the beginning, independently of the others.
struct ReplayReader {
    pending_stream: Arc<Mutex<PendingStream>>,
    /// Number of bytes this reader has read.
    position: usize,
    /// After this time, the lines that have arrived are all.
    deadline: Option<Instant>,
    /// Holds back an incomplete line until it is complete, if there is a deadline.
    whole_lines_only: bool,
}

impl Read for ReplayReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut pending = self.pending_stream.lock();
        loop {
            let known = pending.sampled_bytes.get(self.position..).unwrap_or_default();
            let known = match self.deadline.is_some() && self.whole_lines_only && !pending.has_ended
            {
                true => &known[..memchr::memrchr(b'\n', known).map_or(0, |end| end + 1)],
                false => known,
            };
            if !known.is_empty() {
                let count = known.len().min(out.len());
                out[..count].copy_from_slice(&known[..count]);
                self.position += count;
                return Ok(count);
            }
            let is_over = self.deadline.is_some_and(|until| Instant::now() >= until);
            let is_packed = Compression::from_magic(&pending.sampled_bytes) != Compression::None;
            let is_line = self.position > 0
                && (self.whole_lines_only || is_packed || pending.sampled_bytes.ends_with(b"\n"));
            if pending.has_ended || is_over && is_line {
                return Ok(0);
            }
            let count = pending.reader.read(out)?;
            pending.sampled_bytes.extend_from_slice(&out[..count]);
            pending.has_ended = count == 0;
        }
    }
}

/// The whole lines of a compressed stream that arrive before a deadline, even if the stream does not end.
struct PartialDecompressor {
    input: Option<Box<dyn ByteInput>>,
    decoded: Option<Box<dyn ByteInput>>,
    compression: Compression,
    name: Arc<str>,
    deadline: Instant,
    /// Decompressed bytes that were not returned yet.
    decoded_bytes: Vec<u8>,
    has_ended: bool,
}

impl PartialDecompressor {
    fn new(
        input: Box<dyn ByteInput>,
        compression: Compression,
        name: Arc<str>,
        until: Instant,
    ) -> Self {
        let (input, decoded, held) = (Some(input), None, Vec::new());
        PartialDecompressor {
            input,
            decoded,
            compression,
            name,
            deadline: until,
            decoded_bytes: held,
            has_ended: false,
        }
    }

    /// Decompresses more bytes; returns false at the end of the input that has arrived.
    fn decode_more(&mut self) -> Result<bool> {
        let decoded = match (self.input.take(), &mut self.decoded) {
            // Without a helper thread, which would wait for bytes together with its reader.
            (Some(input), decoded) => decoded.insert(decompress(
                input,
                self.compression,
                &self.name,
                COMPRESSED_READ_BYTES,
                Some(0),
            )?),
            (None, Some(decoded)) => decoded,
            (None, None) => return Ok(false),
        };
        let filled = self.decoded_bytes.len();
        self.decoded_bytes.resize(filled + COMPRESSED_READ_BYTES, 0);
        let read = decoded.read(&mut self.decoded_bytes[filled..]);
        self.decoded_bytes.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            // The stream ends early because the deadline has passed.
            Err(Error::Corrupt { .. }) if Instant::now() >= self.deadline => {
                let whole = memchr::memrchr(b'\n', &self.decoded_bytes).map_or(0, |end| end + 1);
                self.decoded_bytes.truncate(whole);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl ByteInput for PartialDecompressor {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        loop {
            let whole = match self.has_ended {
                true => self.decoded_bytes.len(),
                false => memchr::memrchr(b'\n', &self.decoded_bytes).map_or(0, |end| end + 1),
            };
            if whole > 0 || self.has_ended {
                let count = whole.min(out.len());
                out[..count].copy_from_slice(&self.decoded_bytes[..count]);
                self.decoded_bytes.drain(..count);
                return Ok(count);
            }
            self.has_ended = !self.decode_more()?;
        }
    }

    fn allows_short_reads(&self) -> bool {
        true
    }
}

fn common_format(spec: &SourceSpec, found: &[listing::ListedFile]) -> Result<Format> {
    if let Some(format) = spec.format {
        return Ok(format);
    }
    // A declared log line format applies to files whose names declare only text.
    if let Some(format) = spec.declared_format()
        && found
            .iter()
            .all(|file| Format::from_path(&file.name).is_none_or(|told| told == Format::Lines))
    {
        return Ok(format);
    }
    let mut first: Option<(Format, &listing::ListedFile)> = None;
    for file in found {
        let told = Format::from_path(&file.name);
        let Some(format) = told.or_else(|| spec.filter_program.is_some().then_some(Format::Lines))
        else {
            return Err(Error::usage_with_hint(
                format!("cannot tell the format of `{}` from its name", file.display_name),
                format!(
                    "name it with --source-format (job file: source.format): {}",
                    Format::names().join(", ")
                ),
            ));
        };
        match first {
            Some((expected, other)) if expected != format => {
                return Err(Error::usage_with_hint(
                    format!(
                        "one source has one format: `{}` is {expected}, `{}` is {format}",
                        other.display_name, file.display_name
                    ),
                    "name files of one format by a narrower pattern, or say that they are all \
                     the same with --source-format (job file: source.format)",
                ));
            }
            Some(_) => {}
            None => first = Some((format, file)),
        }
    }
    first.map(|(format, _)| format).ok_or_else(|| Error::Internal("no file was listed".into()))
}

fn check_layout_option(spec: &SourceSpec, format: Format) -> Result<()> {
    if spec.layout_policy.is_some() && !format.is_delimited() && !format.is_typed() {
        return Err(Error::usage_with_hint(
            format!("option `layouts` has no meaning for format `{format}`"),
            "it belongs to csv, tsv, parquet, arrow, avro and rowfile",
        ));
    }
    Ok(())
}

/// Properties of a text that a sample has shown.
struct SampledTextProperties {
    dialect: CsvDialect,
    log_lines: LogLineFormat,
    notes: Vec<String>,
    marked_columns: Vec<SuspectTextColumn>,
    likely_header_line: Option<u64>,
    rejected_sample: Option<RejectedSample>,
}

impl SampledTextProperties {
    fn from_sample(sample: SourceSample<'_>) -> Self {
        Self {
            dialect: sample.dialect,
            log_lines: sample.log_lines,
            notes: sample.notes,
            marked_columns: sample.marked_columns,
            likely_header_line: sample.likely_header_line,
            rejected_sample: sample.rejected_sample,
        }
    }
}

/// Returns true if folders have the complete values of a key. A value too long for a name is cut; then the
/// files' column of that name has the complete values.
///
/// # Errors
/// [`Error::Usage`] if one of the files has no such column.
fn has_whole_key_values(
    key: &str,
    columns: &FileColumns,
    files: &[Arc<SourceFile>],
) -> Result<bool> {
    if !files.iter().any(|file| listing::has_truncated_value(&file.display_name, key)) {
        return Ok(true);
    }
    let place = columns.fields.iter().position(|column| column.name() == key);
    let has_column = |file: &SourceFile| {
        let places = &columns.layout(file.index).places;
        place.is_some_and(|place| places.get(place).copied().flatten().is_some())
    };
    match files.iter().find(|file| !has_column(file)) {
        None => Ok(false),
        Some(file) => Err(Error::usage_with_hint(
            format!(
                "`{}` has no column `{key}`, and a folder's name has only the beginning of a value of it",
                redact_url(&file.display_name)
            ),
            format!("output with the column `{key}` in its files has the whole values"),
        )),
    }
}

fn build_source(
    spec: &SourceSpec,
    format: Format,
    SampledTextProperties {
        dialect,
        log_lines: log,
        notes,
        marked_columns: marked,
        likely_header_line: likely_header,
        rejected_sample: refused_sample,
    }: SampledTextProperties,
    files: Vec<Arc<SourceFile>>,
    columns: FileColumns,
    key_fields: Vec<Field>,
    stdin: Option<PendingStream>,
) -> Result<Source> {
    let (mut fields, mut origins) = (Vec::new(), Vec::new());
    let key_is_whole = key_fields
        .iter()
        .map(|key| has_whole_key_values(key.name(), &columns, &files))
        .collect::<Result<Vec<bool>>>()?;
    for (index, field) in columns.fields.iter().enumerate() {
        let key = key_fields.iter().position(|key| key.name() == field.name());
        if !key.is_some_and(|key| key_is_whole[key]) {
            fields.push(field.clone());
            origins.push(SourceColumnOrigin::File(index));
        }
    }
    for (index, field) in key_fields.into_iter().enumerate() {
        if key_is_whole[index] {
            fields.push(Arc::new(field));
            origins.push(SourceColumnOrigin::Key(index));
        }
    }
    Ok(Source {
        spec: spec.clone(),
        format,
        dialect,
        log_lines: log,
        notes,
        marked_columns: marked,
        likely_header_line: likely_header,
        rejected_sample: refused_sample,
        files,
        columns,
        origins,
        promoted_records: Vec::new(),
        promoted_columns: Vec::new(),
        schema: Arc::new(Schema::new(fields)),
        hidden_columns: Vec::new(),
        pending_stdin: Mutex::new(stdin),
        prober: None,
        low_cardinality: Mutex::default(),
        long_record_ends: LongRecordEnds::default(),
        known_keys: OnceLock::new(),
    })
}

/// Creates the sample from which the columns of text are inferred.
fn new_sample<'a>(
    files: &'a [Arc<SourceFile>],
    format: Format,
    dialect: CsvDialect,
    watch: ByteReadContext,
    stdin: Option<Box<dyn ByteInput>>,
) -> SourceSample<'a> {
    let has_header = format.is_delimited() && dialect.header;
    SourceSample::new(files, dialect, has_header, watch, stdin)
}

fn infer_columns(
    spec: &SourceSpec,
    format: Format,
    sample: &mut SourceSample<'_>,
) -> Result<FileColumns> {
    if let Some(text) = format.as_text_format() {
        text.detect_text_options(spec, sample)?;
        let mut columns = text.infer_columns(spec, sample)?;
        if let Some(wanted) = &spec.declared_schema {
            text.declare_types(&mut columns, wanted, sample)?;
        }
        return Ok(columns);
    }
    let Some(typed) = format.as_typed_format() else {
        return Err(Error::Internal(format!("{format} is neither text nor typed")));
    };
    if let Some(asking) = &sample.prober {
        return readable_typed_columns(spec, format, sample.files, asking);
    }
    let is_empty = |file: &&Arc<SourceFile>| file.size() == 0 && !file.is_stream();
    if let Some(file) = sample.files.iter().find(is_empty).filter(|_| !spec.salvage_damaged) {
        return Err(Error::usage_with_hint(
            format!("`{}` cannot be read as {format}: it is empty (0 bytes)", file.display_name()),
            "write it again, or leave it out by a narrower pattern",
        ));
    }
    let layouts = spec.layout_policy.unwrap_or_default();
    let mut columns = typed
        .inspect_columns(sample.files, layouts, &mut sample.stdin)
        .map_err(|error| explain_foreign_content(error, sample.files, format))?;
    // The files of a source mostly have the same columns, so one note is enough.
    let note = sample.files.iter().find_map(|file| file.metadata()?.user_note());
    sample.notes.extend(note.map(str::to_owned));
    if let Some(wanted) = &spec.declared_schema {
        check_declared_types(&columns, wanted, format, sample.files)?;
        columns.override_types(wanted)?;
    }
    Ok(columns)
}

/// Returns the columns of the files that can be read now.
fn readable_typed_columns(
    spec: &SourceSpec,
    format: Format,
    files: &[Arc<SourceFile>],
    asking: &FileProber,
) -> Result<FileColumns> {
    let Some(typed) = format.as_typed_format() else {
        return Err(Error::Internal(format!("{format} is not typed")));
    };
    let mut present = Vec::with_capacity(files.len());
    asking.probe_files(files.iter().filter(|file| file.size() > 0));
    for file in files {
        if file.size() == 0 && !file.is_stream() && !spec.salvage_damaged {
            file.skip_unreadable(format!("it cannot be read as {format}: it is empty (0 bytes)"));
        } else if asking.is_readable(file) {
            present.push(Arc::clone(file));
        } else {
            // The file's columns would be unknown.
            file.skip_unresponsive(asking.timeout_message());
        }
    }
    if let (Some(file), true) = (files.first(), present.is_empty()) {
        let reason = file.skip_reason.get().map_or(String::new(), |reason| reason.message.clone());
        return Err(Error::from_io("read", file.display_name(), std::io::Error::other(reason)));
    }
    let mut columns = typed
        .inspect_columns(&present, spec.layout_policy.unwrap_or_default(), &mut None)
        .map_err(|error| explain_foreign_content(error, &present, format))?;
    if let Some(wanted) = &spec.declared_schema {
        check_declared_types(&columns, wanted, format, &present)?;
        columns.override_types(wanted)?;
    }
    Ok(columns)
}

/// Checks declared types of a typed format, which can only widen the files' own types.
fn check_declared_types(
    columns: &FileColumns,
    wanted: &Schema,
    format: Format,
    files: &[Arc<SourceFile>],
) -> Result<()> {
    for field in wanted.fields() {
        let place = columns.fields.iter().position(|own| own.name() == field.name());
        // [`override_types`](FileColumns::override_types) reports an unknown name.
        let Some(place) = place else { continue };
        // One file of each layout is enough.
        let mut is_known = vec![false; columns.layouts.len()];
        let own_types = files.iter().filter_map(|file| {
            let layout = columns.layout_index(file.index);
            let own = columns.layouts[layout].places[place]?;
            let is_new = !std::mem::replace(&mut is_known[layout], true);
            let own = file.metadata()?.schema().fields().get(own).filter(|_| is_new)?;
            Some(stored_batch_reader::normalize_field(own).data_type().clone())
        });
        let own_types: Vec<DataType> = own_types.collect();
        let can_be = |own: &DataType| can_be_read_as(own, field.data_type());
        if let Some(own) = own_types.iter().find(|own| !can_be(own)) {
            return Err(Error::usage_with_hint(
                format!(
                    "column `{}` is {} in {format} and cannot be read as {}",
                    field.name(),
                    sql_type_name(own),
                    sql_type_name(field.data_type())
                ),
                "convert it in the query: CAST(column AS type)",
            ));
        }
    }
    Ok(())
}
