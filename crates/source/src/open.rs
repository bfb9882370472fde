//! Opening a source: from what the user said to files, format, columns and their types.

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_text::{sql_type_name, value_parsing};

use super::columns::Columns;
use super::compression::{Compression, MAGIC_BYTES, STORED_BUFFER_BYTES, decode};
use super::confined;
use super::dialect::{CsvDialect, TextOptions};
use super::error::{Error, Result};
use super::formats::batches;
use super::formats::delimited::{MarkedColumn, RefusedSample};
use super::formats::{Format, Given, LogLines};
use super::hidden::Hidden;
#[cfg(target_os = "linux")]
use super::input::in_steps;
use super::input::{ByteInput, Identity, ProgramOutput, ReaderInput, Watch};
use super::magic::name_foreign_content;
use super::patience::{Asking, LeftOut};
use super::promote::promote;
use super::sample::Sample;
use super::starts::LongRecords;
use super::unify::can_be_read_as;
use super::{FileLocation, Origin, Pending, Source, SourceFile, SourceSpec, hidden, listing, told};

/// What messages call standard input.
pub(super) const STANDARD_INPUT: &str = "standard input";

pub(super) fn open(
    spec: &SourceSpec,
    stdin: Box<dyn Read + Send>,
    cancel: &CancelFlag,
    asking: Option<Arc<Asking>>,
    pipe_until: Option<Instant>,
) -> Result<Source> {
    let mut source = open_files(spec, stdin, cancel, asking, pipe_until)?;
    if !spec.promote.is_empty() {
        source = promote(source, &spec.promote)?;
    }
    add_hidden(&mut source)?;
    Ok(source)
}

/// Adds what is known of each record besides what is in it.
fn add_hidden(source: &mut Source) -> Result<()> {
    let mut fields: Vec<FieldRef> = source.schema.fields().to_vec();
    for (hidden, name) in &source.spec.unhidden {
        if fields.iter().any(|field| field.name() == name) {
            return Err(Error::usage_hint(
                format!("the source has a column `{name}` already"),
                match hidden {
                    Hidden::RowNumber => {
                        "leave the option out: the column is there already".to_owned()
                    }
                    _ => format!(
                        "give the name of the file another name: filename = '{name}_of_file'"
                    ),
                },
            ));
        }
        fields.push(hidden.field(name));
        source.origins.push(Origin::Hidden(*hidden));
    }
    for (field, hidden) in hidden::beside(&fields) {
        source.hidden.push(field);
        source.origins.push(Origin::Hidden(hidden));
    }
    source.schema = Arc::new(Schema::new(fields));
    Ok(())
}

fn open_files(
    spec: &SourceSpec,
    stdin: Box<dyn Read + Send>,
    cancel: &CancelFlag,
    asking: Option<Arc<Asking>>,
    pipe_until: Option<Instant>,
) -> Result<Source> {
    confined::check(spec, cancel)?;
    let asked = asking.as_deref();
    if let Some(program) = &spec.exec {
        program.open_files(cancel)?;
    }
    if !spec.more.is_empty() && spec.urls().any(|url| url == "-") {
        return Err(Error::usage_hint(
            "standard input is not one of several files",
            "write it to a file first, or read it alone",
        ));
    }
    let stream = spec.urls().find(|url| is_stream_path(url));
    if let Some(url) = stream.filter(|_| !spec.more.is_empty()) {
        return Err(Error::usage_hint(
            format!("`{url}` can be read only once, and is not one of several files"),
            "write it to a file first, or read it alone",
        ));
    }
    if let Some(url) = stream {
        if spec.exec.is_some() {
            return Err(Error::usage_hint(
                format!("`{url}` does not go through `exec`"),
                "pipe it through the program: program < input | tidemill …",
            ));
        }
        let file = open_stream(url).map_err(|error| Error::io("open", url, error))?;
        return open_stdin(spec, file, url, cancel, pipe_until);
    }
    match (&spec.exec, spec.url.as_str()) {
        (None, "-") => return open_stdin(spec, stdin, STANDARD_INPUT, cancel, pipe_until),
        (Some(_), "-") => {
            return Err(Error::usage_hint(
                "standard input does not go through `exec`",
                "pipe it through the program: program < input | tidemill …",
            ));
        }
        (Some(program), "") => {
            let output = Box::new(ProgramOutput::start(program, cancel)?);
            let shown = format!("the output of `{}`", program.name());
            return open_stdin(spec, output, &shown, cancel, pipe_until);
        }
        _ => {}
    }
    if let Some(given) = &spec.given {
        return open_given(spec, given, cancel);
    }
    let mut found = listing::list(spec, cancel, asked)?;
    if found.is_empty() {
        return Err(nothing_listed(spec, asked));
    }
    match asked {
        Some(asking) => leave_out_made(&mut found, asking)?,
        None => refuse_made(&found)?,
    }
    let mut format = common_format(spec, &found)?;
    if format == Format::Lines && told::are_logs(spec, found.iter().map(|file| &*file.name)) {
        format = of_logs(spec, &found, cancel, asking.clone())?;
    }
    if let Some(program) = &spec.exec
        && format.is_typed()
    {
        return Err(Error::usage_hint(
            format!("{format} cannot come from `{}`: it is no text", program.name()),
            "`format` says what the program writes: csv, json, lines, …",
        ));
    }
    let dialect = spec.options.dialect(format.name(), format.takes())?;
    check_layouts(spec, format)?;
    if spec.recover && format != Format::Rowfile {
        return Err(Error::usage_hint(
            format!("option `recover` has no meaning for format `{format}`"),
            "it belongs to rowfile; elsewhere --max-bad skips malformed records",
        ));
    }
    let mut key_fields = listing::key_fields(&found);
    // What a schema says of the folders' columns is not said of the files'.
    let mut own = spec.clone();
    if let Some(wanted) = &spec.schema {
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
        own.schema = (!left.is_empty()).then(|| Arc::new(Schema::new(left)));
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
            SourceFile::found(found, index, compression, spec, &source_name, cancel)
        })
        .collect();
    refuse_encoded(&files, format)?;
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let (written, columns) = loop {
        let mut sample = sample(&files, format, dialect.clone(), watch.clone(), None);
        sample.asking = asking.clone();
        match (columns(&own, format, &mut sample), asked) {
            (Err(error), Some(asking)) => {
                if let Some(nobody) = asking.nobody_answered(&files) {
                    return Err(nobody);
                }
                asking.leave_out(&files, error)?;
            }
            (columns, _) => break (Written::of(sample), columns?),
        }
    };
    let mut source = source(spec, format, written, files, columns, key_fields, None)?;
    source.asking = asking;
    Ok(source)
}

/// The format of files that are logs by their names.
fn of_logs(
    spec: &SourceSpec,
    found: &[listing::ListedFile],
    cancel: &CancelFlag,
    asking: Option<Arc<Asking>>,
) -> Result<Format> {
    let format = Format::Lines;
    let source_name: Arc<str> = redact_url(&spec.url).into();
    let files: Vec<Arc<SourceFile>> = found
        .iter()
        .cloned()
        .enumerate()
        .map(|(index, found)| {
            let compression = Compression::strip_suffix(&found.name).1;
            SourceFile::found(found, index, compression, spec, &source_name, cancel)
        })
        .collect();
    refuse_encoded(&files, format)?;
    let dialect = TextOptions::default().dialect(format.name(), format.takes())?;
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let told = loop {
        let mut sample = sample(&files, format, dialect.clone(), watch.clone(), None);
        sample.asking = asking.clone();
        match (told::by_lines(&mut sample), &asking) {
            (Err(error), Some(asking)) => asking.leave_out(&files, error)?,
            (told, _) => break told?,
        }
    };
    Ok(told.unwrap_or(format))
}

/// Whether a path is no file but a stream: a pipe with a name, `<(…)`, `/dev/stdin` of a pipe, a
/// terminal, or what the system makes as it is read (`/proc/cpuinfo`, which says that it has no bytes and
/// gives some, and what is in `/sys`). It can be read once, from front to back.
pub(crate) fn is_stream_path(url: &str) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let is_stream = |found: std::fs::Metadata| {
            let kind = found.file_type();
            let is_made = || {
                // What goes wrong is told when it is read.
                let gives = || gives_bytes(url).unwrap_or(true);
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

/// Whether there is something to read in a file.
#[cfg(unix)]
fn gives_bytes(path: impl AsRef<std::path::Path>) -> std::io::Result<bool> {
    Ok(std::fs::File::open(path)?.read(&mut [0])? > 0)
}

/// Opens what can be read once, from front to back. A pipe is not waited for as it is opened, but as it is read: in
/// little steps, so that whoever reads it can stop.
fn open_stream(path: &str) -> std::io::Result<Box<dyn Read + Send>> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
        if std::fs::metadata(path)?.file_type().is_fifo() {
            let mut options = std::fs::OpenOptions::new();
            let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            return Ok(in_steps(file));
        }
    }
    Ok(Box::new(std::fs::File::open(path)?))
}

/// Returns the error of a source whose listing left out all of its files, with the reason of the last.
fn nothing_listed(spec: &SourceSpec, asked: Option<&Asking>) -> Error {
    match asked.and_then(|asking| asking.noted().pop()) {
        Some(LeftOut { path, reason, .. }) => {
            Error::io("read", path, std::io::Error::other(reason))
        }
        None => Error::Internal(format!("no file of `{}` was listed", redact_url(&spec.url))),
    }
}

/// Leaves out such files as [`refuse_made`] refuses.
fn leave_out_made(files: &mut Vec<listing::ListedFile>, asking: &Asking) -> Result<()> {
    let mut last = None;
    files.retain(|file| {
        let FileLocation::Local(path) = &file.place else { return true };
        if file.identity.size > 0 {
            return true;
        }
        let asked = file.clone();
        let (error, is_late) = match asking.ask(path, move || refuse_made(&[asked])) {
            Some(Ok(())) => return true,
            Some(Err(error)) => (error.to_string(), false),
            None => (asking.no_answer(), true),
        };
        asking.note(path, error.clone(), is_late);
        last = Some((Arc::clone(&file.shown), error));
        false
    });
    match last {
        Some((path, error)) if files.is_empty() => {
            Err(Error::io("read", &*path, std::io::Error::other(error)))
        }
        _ => Ok(()),
    }
}

/// Refuses files among several that say that they have no bytes and give some: they would be left out in silence.
fn refuse_made(files: &[listing::ListedFile]) -> Result<()> {
    #[cfg(unix)]
    for file in files.iter().filter(|file| file.identity.size == 0) {
        if let FileLocation::Local(path) = &file.place
            && gives_bytes(path).is_ok_and(|gives| gives)
            // Not if somebody has written into it by now.
            && std::fs::metadata(path).is_ok_and(|found| found.len() == 0)
        {
            return Err(Error::usage_hint(
                format!(
                    "`{}` says that it has no bytes and gives some, as the system's own files do",
                    file.shown
                ),
                "read it alone, or several through a pipe: cat FILES | tidemill …",
            ));
        }
    }
    Ok(())
}

/// Refuses what a server says that it has encoded, where nothing is decoded: of formats that have
/// places of their own, and by what cannot be.
fn refuse_encoded(files: &[Arc<SourceFile>], format: Format) -> Result<()> {
    for file in files {
        let FileLocation::Object(object) = &file.place else { continue };
        let Some(encoding) = object.encoding() else { continue };
        let is_decoded = matches!(encoding, "gzip" | "x-gzip" | "zstd") && !format.is_typed();
        if !is_decoded {
            return Err(Error::Remote(tidemill_remote::Error::Remote {
                action: "read",
                url: file.shown.to_string(),
                offset: None,
                status: None,
                reason: format!("the server sends it encoded by `{encoding}`"),
                hint: Some("fetch it with a program that decodes it, and read it from disk".into()),
            }));
        }
    }
    Ok(())
}

/// What is a source by itself and no file: rows in memory, standard input.
fn only_file(
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
        place,
        name: Arc::clone(&shown),
        shown,
        identity: Identity { device: 0, inode: 0, size, modified_ns: 0 },
        keys: Vec::new(),
    };
    // A program gives what is read here, and does not take it.
    let (recover, options) = (spec.recover, spec.options.clone());
    let spec = SourceSpec { recover, options, ..SourceSpec::default() };
    SourceFile::found(found, 0, compression, &spec, &source, cancel)
}

/// Rows that are in memory already.
fn open_given(spec: &SourceSpec, given: &Arc<Given>, cancel: &CancelFlag) -> Result<Source> {
    let format = Format::Memory;
    let dialect = spec.options.dialect(format.name(), format.takes())?;
    let (place, size) = (FileLocation::Given(Arc::clone(given)), given.bytes().max(1));
    let file = only_file(place, &spec.url, size, Compression::None, spec, cancel);
    let files = vec![file];
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let mut sample = sample(&files, format, dialect, watch, None);
    let columns = columns(spec, format, &mut sample)?;
    let written = Written::of(sample);
    source(spec, format, written, files, columns, Vec::new(), None)
}

/// What can be read once: standard input, or a program's output. Who cannot wait takes for a sample what has come until
/// then.
fn open_stdin(
    spec: &SourceSpec,
    reader: Box<dyn Read + Send>,
    shown: &str,
    cancel: &CancelFlag,
    until: Option<Instant>,
) -> Result<Source> {
    // Of a program lines are expected, unless it is said what they are.
    let format = spec
        .format_said()
        .or_else(|| spec.exec.is_some().then_some(Format::Lines))
        .or_else(|| Format::from_path(shown));
    let Some(format) = format else {
        return Err(Error::usage_hint(
            format!("{shown} has no name that tells its format"),
            format!(
                "name it with --source-format (job file: source.format): {}",
                Format::names().join(", ")
            ),
        ));
    };
    if !format.is_read_forwards() {
        return Err(Error::usage_hint(
            format!("{format} cannot be read from {shown}: it is not read from front to back"),
            "write it to a file first",
        ));
    }
    let dialect = spec.options.dialect(format.name(), format.takes())?;
    check_layouts(spec, format)?;
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };

    // What the sample takes is kept, and read again first.
    let shared = Arc::new(Mutex::new(Pending { taken: Vec::new(), reader, has_ended: false }));
    let mut magic = [0; MAGIC_BYTES];
    let mut tap = Tap { shared: shared.clone(), at: 0, until, in_lines: false };
    let mut filled = 0;
    while filled < magic.len() {
        match tap.read(&mut magic[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => cancel.check()?,
            Err(error) => return Err(Error::io("read", shown, error)),
        }
    }
    let compression = match format.is_typed() {
        true => Compression::None,
        false => Compression::from_magic(&magic[..filled]),
    };
    tap.in_lines = !format.is_typed() && compression == Compression::None;
    let in_lines = tap.in_lines;
    let only = |compression| only_file(FileLocation::Stdin, shown, 0, compression, spec, cancel);
    let files = vec![only(compression)];
    let name = files[0].shown.clone();
    // What there is of a stream in the middle is decoded here: it has no end by which it would be whole.
    let decodes = (compression != Compression::None).then_some(until).flatten();
    let sampled = match decodes {
        Some(_) => vec![only(Compression::None)],
        None => files.clone(),
    };
    let own_watch = watch.clone();
    let input = move |before: Vec<u8>, tap: Tap| -> Box<dyn ByteInput> {
        let watch = Watch { eager: decodes.is_some(), ..own_watch.clone() };
        let input = Box::new(ReaderInput::new(before, tap, name.clone(), watch));
        match decodes {
            Some(until) => Box::new(SoFar::new(input, compression, name.clone(), until)),
            None => input,
        }
    };
    let mut sample =
        sample(&sampled, format, dialect, watch, Some(input(magic[..filled].to_vec(), tap)));
    let tapped = shared.clone();
    sample.again = Some(Box::new(move || {
        input(Vec::new(), Tap { shared: tapped.clone(), at: 0, until, in_lines })
    }));
    let columns = columns(spec, format, &mut sample)?;
    let written = Written::of(sample);
    let pending = Arc::try_unwrap(shared)
        .map_err(|_| Error::Internal(format!("{} is still being sampled", files[0].shown)))?
        .into_inner();
    source(spec, format, written, files, columns, Vec::new(), Some(pending))
}

/// Reads and remembers; each reads from the beginning, whoever else does.
struct Tap {
    shared: Arc<Mutex<Pending>>,
    /// What it has read so far.
    at: usize,
    /// From then on the lines that have come are all.
    until: Option<Instant>,
    /// Whether what is no whole line as yet is kept back until it is, where there is such a time.
    in_lines: bool,
}

impl Read for Tap {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut pending = self.shared.lock();
        loop {
            let known = pending.taken.get(self.at..).unwrap_or_default();
            let known = match self.until.is_some() && self.in_lines && !pending.has_ended {
                true => &known[..memchr::memrchr(b'\n', known).map_or(0, |end| end + 1)],
                false => known,
            };
            if !known.is_empty() {
                let count = known.len().min(out.len());
                out[..count].copy_from_slice(&known[..count]);
                self.at += count;
                return Ok(count);
            }
            let is_over = self.until.is_some_and(|until| Instant::now() >= until);
            let is_packed = Compression::from_magic(&pending.taken) != Compression::None;
            let is_line =
                self.at > 0 && (self.in_lines || is_packed || pending.taken.ends_with(b"\n"));
            if pending.has_ended || is_over && is_line {
                return Ok(0);
            }
            let count = pending.reader.read(out)?;
            pending.taken.extend_from_slice(&out[..count]);
            pending.has_ended = count == 0;
        }
    }
}

/// The whole lines that a compressed stream has come to until some time, whether it ends or not.
struct SoFar {
    input: Option<Box<dyn ByteInput>>,
    decoded: Option<Box<dyn ByteInput>>,
    compression: Compression,
    name: Arc<str>,
    until: Instant,
    /// What was decoded and not been given.
    held: Vec<u8>,
    has_ended: bool,
}

impl SoFar {
    fn new(
        input: Box<dyn ByteInput>,
        compression: Compression,
        name: Arc<str>,
        until: Instant,
    ) -> Self {
        let (input, decoded, held) = (Some(input), None, Vec::new());
        SoFar { input, decoded, compression, name, until, held, has_ended: false }
    }

    /// Decodes some more; false at the end of what has come.
    fn decode(&mut self) -> Result<bool> {
        let decoded = match (self.input.take(), &mut self.decoded) {
            // Not ahead of who reads: what a thread waits for would be waited for with it.
            (Some(input), decoded) => decoded.insert(decode(
                input,
                self.compression,
                &self.name,
                STORED_BUFFER_BYTES,
                Some(0),
            )?),
            (None, Some(decoded)) => decoded,
            (None, None) => return Ok(false),
        };
        let filled = self.held.len();
        self.held.resize(filled + STORED_BUFFER_BYTES, 0);
        let read = decoded.read(&mut self.held[filled..]);
        self.held.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            // It ends within the stream because no more was waited for.
            Err(Error::Corrupt { .. }) if Instant::now() >= self.until => {
                let whole = memchr::memrchr(b'\n', &self.held).map_or(0, |end| end + 1);
                self.held.truncate(whole);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl ByteInput for SoFar {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        loop {
            let whole = match self.has_ended {
                true => self.held.len(),
                false => memchr::memrchr(b'\n', &self.held).map_or(0, |end| end + 1),
            };
            if whole > 0 || self.has_ended {
                let count = whole.min(out.len());
                out[..count].copy_from_slice(&self.held[..count]);
                self.held.drain(..count);
                return Ok(count);
            }
            self.has_ended = !self.decode()?;
        }
    }

    fn is_eager(&self) -> bool {
        true
    }
}

fn common_format(spec: &SourceSpec, found: &[listing::ListedFile]) -> Result<Format> {
    if let Some(format) = spec.format {
        return Ok(format);
    }
    // What a log's lines look like is said of files that are no more than text by their names.
    if let Some(format) = spec.format_said()
        && found
            .iter()
            .all(|file| Format::from_path(&file.name).is_none_or(|told| told == Format::Lines))
    {
        return Ok(format);
    }
    let mut first: Option<(Format, &listing::ListedFile)> = None;
    for file in found {
        let told = Format::from_path(&file.name);
        let Some(format) = told.or_else(|| spec.exec.is_some().then_some(Format::Lines)) else {
            return Err(Error::usage_hint(
                format!("cannot tell the format of `{}` from its name", file.shown),
                format!(
                    "name it with --source-format (job file: source.format): {}",
                    Format::names().join(", ")
                ),
            ));
        };
        match first {
            Some((expected, other)) if expected != format => {
                return Err(Error::usage_hint(
                    format!(
                        "one source has one format: `{}` is {expected}, `{}` is {format}",
                        other.shown, file.shown
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

fn check_layouts(spec: &SourceSpec, format: Format) -> Result<()> {
    if spec.layouts.is_some() && !format.is_delimited() && !format.is_typed() {
        return Err(Error::usage_hint(
            format!("option `layouts` has no meaning for format `{format}`"),
            "it belongs to csv, tsv, parquet, arrow, avro and rowfile",
        ));
    }
    Ok(())
}

/// How text is written, once a sample was looked at.
struct Written {
    dialect: CsvDialect,
    log: LogLines,
    notes: Vec<String>,
    marked: Vec<MarkedColumn>,
    likely_header: Option<u64>,
    refused_sample: Option<RefusedSample>,
}

impl Written {
    fn of(sample: Sample<'_>) -> Self {
        Self {
            dialect: sample.dialect,
            log: sample.log,
            notes: sample.notes,
            marked: sample.marked,
            likely_header: sample.likely_header,
            refused_sample: sample.refused,
        }
    }
}

/// Returns whether folders have the values of a key as they are. If not, since one was too long for a name, the files'
/// column of that name has them.
///
/// # Errors
/// [`Error::Usage`] if one of the files has no such column.
fn key_is_whole(key: &str, columns: &Columns, files: &[Arc<SourceFile>]) -> Result<bool> {
    if !files.iter().any(|file| listing::has_cut_value(&file.shown, key)) {
        return Ok(true);
    }
    let place = columns.fields.iter().position(|column| column.name() == key);
    let has_column = |file: &SourceFile| {
        let places = &columns.layout(file.index).places;
        place.is_some_and(|place| places.get(place).copied().flatten().is_some())
    };
    match files.iter().find(|file| !has_column(file)) {
        None => Ok(false),
        Some(file) => Err(Error::usage_hint(
            format!(
                "`{}` has no column `{key}`, and a folder's name has only the beginning of a value of it",
                redact_url(&file.shown)
            ),
            format!("output with the column `{key}` in its files has the whole values"),
        )),
    }
}

fn source(
    spec: &SourceSpec,
    format: Format,
    Written { dialect, log, notes, marked, likely_header, refused_sample }: Written,
    files: Vec<Arc<SourceFile>>,
    columns: Columns,
    key_fields: Vec<Field>,
    stdin: Option<Pending>,
) -> Result<Source> {
    let (mut fields, mut origins) = (Vec::new(), Vec::new());
    let key_is_whole = key_fields
        .iter()
        .map(|key| key_is_whole(key.name(), &columns, &files))
        .collect::<Result<Vec<bool>>>()?;
    for (index, field) in columns.fields.iter().enumerate() {
        let key = key_fields.iter().position(|key| key.name() == field.name());
        if !key.is_some_and(|key| key_is_whole[key]) {
            fields.push(field.clone());
            origins.push(Origin::File(index));
        }
    }
    for (index, field) in key_fields.into_iter().enumerate() {
        if key_is_whole[index] {
            fields.push(Arc::new(field));
            origins.push(Origin::Key(index));
        }
    }
    Ok(Source {
        spec: spec.clone(),
        format,
        dialect,
        log,
        notes,
        marked,
        likely_header,
        refused_sample,
        files,
        columns,
        origins,
        promotions: Vec::new(),
        promoted: Vec::new(),
        schema: Arc::new(Schema::new(fields)),
        hidden: Vec::new(),
        stdin: Mutex::new(stdin),
        asking: None,
        few: Mutex::default(),
        long_records: LongRecords::default(),
        known_keys: OnceLock::new(),
    })
}

/// What shows the columns of text.
fn sample<'a>(
    files: &'a [Arc<SourceFile>],
    format: Format,
    dialect: CsvDialect,
    watch: Watch,
    stdin: Option<Box<dyn ByteInput>>,
) -> Sample<'a> {
    let has_header = format.is_delimited() && dialect.header;
    Sample::new(files, dialect, has_header, watch, stdin)
}

fn columns(spec: &SourceSpec, format: Format, sample: &mut Sample<'_>) -> Result<Columns> {
    if let Some(text) = format.text() {
        text.sniff(spec, sample)?;
        let mut columns = text.columns(spec, sample)?;
        if let Some(wanted) = &spec.schema {
            text.settle(&mut columns, wanted, sample)?;
        }
        return Ok(columns);
    }
    let Some(typed) = format.typed() else {
        return Err(Error::Internal(format!("{format} is neither text nor typed")));
    };
    if let Some(asking) = &sample.asking {
        return typed_columns_of_some(spec, format, sample.files, asking);
    }
    let is_empty = |file: &&Arc<SourceFile>| file.size() == 0 && !file.is_stream();
    if let Some(file) = sample.files.iter().find(is_empty).filter(|_| !spec.recover) {
        return Err(Error::usage_hint(
            format!("`{}` cannot be read as {format}: it is empty (0 bytes)", file.shown()),
            "write it again, or leave it out by a narrower pattern",
        ));
    }
    let layouts = spec.layouts.unwrap_or_default();
    let mut columns = typed
        .columns(sample.files, layouts, &mut sample.stdin)
        .map_err(|error| name_foreign_content(error, sample.files, format))?;
    // The files of a source mostly have the same columns, so one note is enough.
    let note = sample.files.iter().find_map(|file| file.metadata()?.note());
    sample.notes.extend(note.map(str::to_owned));
    if let Some(wanted) = &spec.schema {
        check_types(&columns, wanted, format, sample.files)?;
        columns.override_types(wanted)?;
    }
    Ok(columns)
}

/// The columns of those files that can be read now.
fn typed_columns_of_some(
    spec: &SourceSpec,
    format: Format,
    files: &[Arc<SourceFile>],
    asking: &Asking,
) -> Result<Columns> {
    let Some(typed) = format.typed() else {
        return Err(Error::Internal(format!("{format} is not typed")));
    };
    let mut present = Vec::with_capacity(files.len());
    asking.ask_files(files.iter().filter(|file| file.size() > 0));
    for file in files {
        if file.size() == 0 && !file.is_stream() && !spec.recover {
            file.leave_out(format!("it cannot be read as {format}: it is empty (0 bytes)"));
        } else if asking.answers(file) {
            present.push(Arc::clone(file));
        } else {
            // Nobody would know what columns it has.
            file.leave_out_late(asking.no_answer());
        }
    }
    if let (Some(file), true) = (files.first(), present.is_empty()) {
        let reason = file.left_out.get().map_or(String::new(), |reason| reason.said.clone());
        return Err(Error::io("read", file.shown(), std::io::Error::other(reason)));
    }
    let mut columns = typed
        .columns(&present, spec.layouts.unwrap_or_default(), &mut None)
        .map_err(|error| name_foreign_content(error, &present, format))?;
    if let Some(wanted) = &spec.schema {
        check_types(&columns, wanted, format, &present)?;
        columns.override_types(wanted)?;
    }
    Ok(columns)
}

/// Of formats whose columns have types of their own, a schema may only widen them.
fn check_types(
    columns: &Columns,
    wanted: &Schema,
    format: Format,
    files: &[Arc<SourceFile>],
) -> Result<()> {
    for field in wanted.fields() {
        let place = columns.fields.iter().position(|own| own.name() == field.name());
        // An unknown one is for whoever takes the types over.
        let Some(place) = place else { continue };
        // One file of each layout tells of all.
        let mut is_known = vec![false; columns.layouts.len()];
        let own_types = files.iter().filter_map(|file| {
            let layout = columns.layout_index(file.index);
            let own = columns.layouts[layout].places[place]?;
            let is_new = !std::mem::replace(&mut is_known[layout], true);
            let own = file.metadata()?.schema().fields().get(own).filter(|_| is_new)?;
            Some(batches::plain(own).data_type().clone())
        });
        let own_types: Vec<DataType> = own_types.collect();
        let can_be = |own: &DataType| can_be_read_as(own, field.data_type());
        if let Some(own) = own_types.iter().find(|own| !can_be(own)) {
            return Err(Error::usage_hint(
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
