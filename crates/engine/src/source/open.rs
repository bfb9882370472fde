//! Opening a source: from what the user said to files, format, columns and their types.

use std::io::Read;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema};
use parking_lot::Mutex;
use tidemill_text::{cut, infer, json, logfmt, values};

use super::blocks::{Blocks, Ends};
use super::compression::{Compression, MAGIC_BYTES, decode};
use super::decode;
use super::format::{Dialect, Format};
use super::input::{
    Access, ByteInput, FileInput, Identity, JsonInput, OpenFile, ProgramInput, ProgramOutput,
    ReaderInput, Watch,
};
use super::{
    Origin, Pending, Place, Source, SourceFile, SourceSpec, listing, override_types, parquet,
};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::remote::location::shown;
use crate::suggest;

pub(super) fn open(
    spec: &SourceSpec,
    stdin: Box<dyn Read + Send>,
    cancel: &Cancel,
) -> Result<Source> {
    match (&spec.exec, spec.url.as_str()) {
        (None, "-") => return open_stdin(spec, stdin, "standard input", cancel),
        (Some(_), "-") => {
            return Err(Error::usage_hint(
                "standard input does not go through `exec`",
                "pipe it through the program: program < input | tidemill …",
            ));
        }
        (Some(program), "") => {
            let output = Box::new(ProgramOutput::start(program, cancel)?);
            let shown = format!("the output of `{}`", program.name());
            return open_stdin(spec, output, &shown, cancel);
        }
        _ => {}
    }
    let found = listing::list(spec, cancel)?;
    let format = common_format(spec, &found)?;
    if let (Some(program), Format::Parquet) = (&spec.exec, format) {
        return Err(Error::usage_hint(
            format!("Parquet cannot come from `{}`: it is read from its end", program.name()),
            "`format` says what the program writes: csv, json, lines, …",
        ));
    }
    let dialect = spec.options.dialect(format)?;
    let mut key_fields = listing::key_fields(&found);
    // What a schema says of the folders' columns is not said of the files'.
    let mut own = spec.clone();
    if let Some(wanted) = &spec.schema {
        let mut left = Vec::new();
        for field in wanted.fields() {
            let key = key_fields.iter_mut().find(|key| key.name() == field.name());
            match key {
                Some(key) if values::is_supported(field.data_type()) => {
                    key.set_data_type(field.data_type().clone());
                }
                Some(_) => {
                    return Err(Error::usage(format!(
                        "column `{}` comes from a folder and cannot be of type {}",
                        field.name(),
                        field.data_type()
                    )));
                }
                None => left.push(field.clone()),
            }
        }
        own.schema = (!left.is_empty()).then(|| Arc::new(Schema::new(left)));
    }
    let files: Vec<Arc<SourceFile>> = found
        .into_iter()
        .enumerate()
        .map(|(index, found)| {
            let compression = match format {
                Format::Parquet => Compression::None,
                _ => Compression::strip_suffix(&found.name).1,
            };
            Arc::new(SourceFile {
                place: found.place,
                shown: found.shown,
                identity: found.identity,
                compression,
                program: spec.exec.clone(),
                keys: found.keys,
                index,
                lines: Mutex::default(),
                metadata: std::sync::OnceLock::new(),
                cancel: cancel.clone(),
            })
        })
        .collect();
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let mut sample = Sample { files: &files, format, dialect: &dialect, watch, stdin: None };
    let columns = columns(&own, format, &mut sample)?;
    source(spec, format, dialect, files, columns, key_fields, None)
}

/// What can be read once: standard input, or a program's output.
fn open_stdin(
    spec: &SourceSpec,
    reader: Box<dyn Read + Send>,
    shown: &str,
    cancel: &Cancel,
) -> Result<Source> {
    // Of a program lines are expected, unless it is said what they are.
    let format = spec.format.or_else(|| spec.exec.is_some().then_some(Format::Lines));
    let Some(format) = format else {
        return Err(Error::usage_hint(
            format!("{shown} has no name that tells its format"),
            format!(
                "name it with --source-format (job file: source.format): {}",
                Format::NAMES.join(", ")
            ),
        ));
    };
    if format == Format::Parquet {
        return Err(Error::usage_hint(
            format!("Parquet cannot be read from {shown}: it is read from its end"),
            "write it to a file first",
        ));
    }
    let dialect = spec.options.dialect(format)?;
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };

    // What the sample takes is kept, and read again first.
    let shared = Arc::new(Mutex::new(Pending { taken: Vec::new(), reader }));
    let mut magic = [0; MAGIC_BYTES];
    let mut tap = Tap { shared: shared.clone() };
    let mut filled = 0;
    while filled < magic.len() {
        match tap.read(&mut magic[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => cancel.check()?,
            Err(error) => return Err(Error::io("read", shown, error)),
        }
    }
    let file = Arc::new(SourceFile {
        place: Place::Stdin,
        shown: shown.into(),
        identity: Identity { device: 0, inode: 0, size: 0, modified_ns: 0 },
        compression: Compression::from_magic(&magic[..filled]),
        program: None,
        keys: Vec::new(),
        index: 0,
        lines: Mutex::default(),
        metadata: std::sync::OnceLock::new(),
        cancel: cancel.clone(),
    });
    let files = vec![file];
    let input =
        ReaderInput::new(magic[..filled].to_vec(), tap, files[0].shown.clone(), watch.clone());
    let mut sample =
        Sample { files: &files, format, dialect: &dialect, watch, stdin: Some(Box::new(input)) };
    let columns = columns(spec, format, &mut sample)?;
    drop(sample);
    let pending = Arc::try_unwrap(shared)
        .map_err(|_| Error::Internal(format!("{shown} is still being sampled")))?
        .into_inner();
    source(spec, format, dialect, files, columns, Vec::new(), Some(pending))
}

/// Reads and remembers.
struct Tap {
    shared: Arc<Mutex<Pending>>,
}

impl Read for Tap {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut pending = self.shared.lock();
        let count = pending.reader.read(out)?;
        pending.taken.extend_from_slice(&out[..count]);
        Ok(count)
    }
}

fn common_format(spec: &SourceSpec, found: &[listing::Found]) -> Result<Format> {
    if let Some(format) = spec.format {
        return Ok(format);
    }
    let mut first: Option<(Format, &listing::Found)> = None;
    for file in found {
        let told = Format::from_path(&file.name);
        let Some(format) = told.or_else(|| spec.exec.is_some().then_some(Format::Lines)) else {
            return Err(Error::usage_hint(
                format!("cannot tell the format of `{}` from its name", file.shown),
                format!(
                    "name it with --source-format (job file: source.format): {}",
                    Format::NAMES.join(", ")
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

/// The files' own columns, and which file they were taken from.
struct Columns {
    fields: Vec<FieldRef>,
    file: usize,
}

fn columns(spec: &SourceSpec, format: Format, sample: &mut Sample<'_>) -> Result<Columns> {
    let mut columns = match format {
        Format::Csv | Format::Tsv => csv_columns(spec, sample)?,
        Format::Json => json_columns(spec, sample)?,
        Format::Logfmt => logfmt_columns(spec, sample)?,
        Format::AccessLog | Format::Syslog | Format::Lines => {
            Columns { fields: decode::fixed_columns(format).unwrap_or_default(), file: 0 }
        }
        Format::Parquet => {
            parquet::columns(sample.files).map(|(fields, file)| Columns { fields, file })?
        }
    };
    if let Some(wanted) = &spec.schema {
        match format {
            Format::Lines | Format::AccessLog | Format::Syslog | Format::Parquet => {
                let own = Schema::new(columns.fields.clone());
                for field in wanted.fields() {
                    match own.field_with_name(field.name()) {
                        Ok(found) if found.data_type() == field.data_type() => {}
                        Ok(found) => {
                            return Err(Error::usage_hint(
                                format!(
                                    "column `{}` is {} in {format} and cannot be read as {}",
                                    field.name(),
                                    found.data_type(),
                                    field.data_type()
                                ),
                                "convert it in the query: CAST(column AS type)",
                            ));
                        }
                        Err(_) => {
                            let names: Vec<&str> =
                                own.fields().iter().map(|f| f.name().as_str()).collect();
                            return Err(Error::usage(suggest::unknown(
                                "column",
                                field.name(),
                                &names,
                            )));
                        }
                    }
                }
            }
            Format::Csv | Format::Tsv => {
                rename_by_position(&mut columns.fields, wanted, sample.dialect);
                override_types(&mut columns.fields, wanted)?;
                for field in &columns.fields {
                    if !values::is_supported(field.data_type()) {
                        return Err(Error::usage(format!(
                            "column `{}` cannot be of type {} in {format}",
                            field.name(),
                            field.data_type()
                        )));
                    }
                }
            }
            Format::Json | Format::Logfmt => {
                // A key may come only behind the sample.
                for field in wanted.fields() {
                    if !columns.fields.iter().any(|own| own.name() == field.name()) {
                        columns.fields.push(field.clone());
                    }
                }
                override_types(&mut columns.fields, wanted)?;
                for field in &columns.fields {
                    if !tidemill_text::is_readable(field.data_type()) {
                        return Err(Error::usage(format!(
                            "column `{}` cannot be of type {} in {format}",
                            field.name(),
                            field.data_type()
                        )));
                    }
                }
            }
        }
    }
    Ok(columns)
}

/// Without a header, a schema with as many columns as the file names them.
fn rename_by_position(fields: &mut [FieldRef], wanted: &Schema, dialect: &Dialect) {
    let foreign =
        || wanted.fields().iter().any(|field| !fields.iter().any(|own| own.name() == field.name()));
    if !dialect.header && wanted.fields().len() == fields.len() && foreign() {
        for (own, wanted) in fields.iter_mut().zip(wanted.fields()) {
            *own = Arc::new(Field::new(wanted.name(), own.data_type().clone(), true));
        }
    }
}

fn nothing_to_infer(spec: &SourceSpec, format: Format) -> Result<Columns> {
    match &spec.schema {
        Some(schema) => Ok(Columns { fields: schema.fields().to_vec(), file: 0 }),
        None => Err(Error::Corrupt {
            path: match (spec.url.as_str(), &spec.exec) {
                ("-", _) => "standard input".into(),
                ("", Some(program)) => format!("the output of {}", program.name()),
                (url, _) => shown(url),
            },
            offset: None,
            reason: format!("there is no {format} data to tell the columns from"),
            hint: Some("--schema 'a BIGINT, b TEXT' names the columns".into()),
        }),
    }
}

fn csv_columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let dialect = sample.dialect.clone();
    let mut names: Option<(Vec<String>, usize)> = None;
    let mut inference: Option<infer::csv::Inference> = None;
    sample.each_block(cut::Grammar::delimited(&dialect), |file, is_first, mut block| {
        if is_first && (dialect.header || names.is_none()) {
            let Some((fields, used)) = tidemill_text::csv::first_record(&dialect, block) else {
                return Ok(0);
            };
            if names.is_none() {
                inference = Some(infer::csv::Inference::new(&dialect, fields.len()));
                names = Some((column_names(&dialect, fields, &file.shown)?, file.index));
            }
            if dialect.header {
                block = &block[used..];
            }
        }
        Ok(inference.as_mut().map_or(0, |inference| inference.add(block)))
    })?;
    match (names, inference) {
        (Some((names, file)), Some(inference)) => {
            Ok(Columns { fields: inference.fields(&names), file })
        }
        _ => nothing_to_infer(spec, Format::Csv),
    }
}

/// The names in a header, or made-up ones; each must be there once.
pub(super) fn column_names(
    dialect: &Dialect,
    first_record: Vec<String>,
    shown: &str,
) -> Result<Vec<String>> {
    let numbered = |index: usize| format!("column_{}", index + 1);
    if !dialect.header {
        return Ok((0..first_record.len()).map(numbered).collect());
    }
    let mut seen = std::collections::HashSet::new();
    let mut twice: Vec<String> = Vec::new();
    let names: Vec<String> = first_record
        .into_iter()
        .enumerate()
        .map(|(index, name)| if name.is_empty() { numbered(index) } else { name })
        .inspect(|name| {
            if !seen.insert(name.clone()) {
                twice.push(format!("`{name}`"));
            }
        })
        .collect();
    if twice.is_empty() {
        return Ok(names);
    }
    twice.sort_unstable();
    twice.dedup();
    Err(Error::Corrupt {
        path: shown.into(),
        offset: Some(0),
        reason: format!("its header has {} more than once", twice.join(", ")),
        hint: Some(
            "rename them in the file; if there is no header, say so: --header=false (job file: \
             source.options, header = false)"
                .into(),
        ),
    })
}

fn json_columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let mut inference = infer::json::Inference::new(&sample.dialect.nulls);
    let mut first_fault = None;
    sample.each_block(cut::Grammar::LINES, |file, is_first, block| {
        if is_first {
            refuse_other_layouts(block, &file.shown)?;
        }
        let records = inference.add(block);
        if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
            first_fault = Some((file.shown.to_string(), fault.to_string()));
        }
        Ok(records)
    })?;
    match first_fault {
        _ if inference.objects() > 0 => Ok(Columns { fields: inference.fields(), file: 0 }),
        None => nothing_to_infer(spec, Format::Json),
        Some((path, reason)) => Err(Error::Corrupt {
            path,
            offset: None,
            reason: format!("its lines are not JSON objects ({reason})"),
            hint: Some("--source-format names another format (job file: source.format)".into()),
        }),
    }
}

fn logfmt_columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let mut inference = logfmt::Inference::default();
    sample.each_block(cut::Grammar::LINES, |_, _, block| Ok(inference.add(block)))?;
    match inference.fields() {
        fields if fields.is_empty() => nothing_to_infer(spec, Format::Logfmt),
        fields => Ok(Columns { fields, file: 0 }),
    }
}

/// Objects spread over lines are JSON but neither JSON lines nor an array.
fn refuse_other_layouts(block: &[u8], shown: &str) -> Result<()> {
    if json::layout(block) != json::Layout::Spread {
        return Ok(());
    }
    Err(Error::Corrupt {
        path: shown.into(),
        offset: Some(0),
        reason: "its objects span several lines, and JSON is read as lines with one object each, \
                 or as one array"
            .into(),
        hint: Some("jq -c . > file.jsonl makes JSON lines of it".into()),
    })
}

/// The beginning of the files, as whole records.
struct Sample<'a> {
    files: &'a [Arc<SourceFile>],
    format: Format,
    dialect: &'a Dialect,
    watch: Watch,
    stdin: Option<Box<dyn ByteInput>>,
}

impl Sample<'_> {
    /// Calls `take` with blocks (and whether they are a file's first), which returns how many
    /// records it took, until the sample is large enough.
    fn each_block(
        &mut self,
        grammar: cut::Grammar,
        mut take: impl FnMut(&SourceFile, bool, &[u8]) -> Result<u64>,
    ) -> Result<()> {
        let (mut records, mut bytes) = (0, 0);
        for file in self.files {
            if file.size() == 0 && !file.is_stream() {
                continue;
            }
            let mut blocks =
                stream(file, self.stdin.take(), self.format, grammar, self.watch.clone(), None)?.0;
            let mut is_first = true;
            while let Some(block) = blocks.next_block()? {
                let block = blocks.bytes(block);
                bytes += block.len() as u64;
                records += take(file, is_first, block)?;
                is_first = false;
                if records >= infer::SAMPLE_RECORDS || bytes >= infer::SAMPLE_BYTES {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// A file's decoded bytes from its start, as blocks of records that start before `limit`,
/// behind a byte-order mark; and the file itself, where there is one.
pub(super) fn stream(
    file: &SourceFile,
    stdin: Option<Box<dyn ByteInput>>,
    format: Format,
    ends: impl Into<Ends>,
    watch: Watch,
    limit: Option<u64>,
) -> Result<(Blocks, Option<Arc<OpenFile>>)> {
    let cancel = watch.cancel.clone();
    let (input, open): (Box<dyn ByteInput>, _) = match stdin {
        Some(input) => (input, None),
        None => {
            let access = limit.map_or(Access::Sample, Access::Until);
            let open = Arc::new(OpenFile::open(file, access, &watch)?);
            let counted_to = match limit {
                Some(limit) if file.is_plain() => limit,
                _ => file.size(),
            };
            (Box::new(FileInput::new(open.clone(), 0, counted_to, watch)), Some(open))
        }
    };
    let is_stored = file.is_plain();
    let stored_bytes = (!file.is_stream()).then_some(file.size());
    let mut input = decode(input, file.compression, &file.shown, stored_bytes)?;
    if let Some(program) = &file.program {
        input = Box::new(ProgramInput::start(program, input, &file.shown, &cancel)?);
    }
    if format == Format::Json {
        input = Box::new(JsonInput::new(input, file.shown.clone()));
    }
    let limit = limit.filter(|_| is_stored && !file.is_stream());
    let mut blocks = Blocks::new(input, ends, file.shown.clone(), 0, limit);
    if !is_stored || file.is_stream() {
        blocks.count_lines(1);
    }
    let skip = match blocks.peek(3)? {
        [0xef, 0xbb, 0xbf] => 3,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return Err(Error::Corrupt {
                path: file.shown.to_string(),
                offset: Some(0),
                reason: "it begins with a UTF-16 byte-order mark".into(),
                hint: Some("text is read as UTF-8; convert it: iconv -f UTF-16 -t UTF-8".into()),
            });
        }
        _ => 0,
    };
    blocks.skip(skip);
    Ok((blocks, open))
}

fn source(
    spec: &SourceSpec,
    format: Format,
    dialect: Dialect,
    files: Vec<Arc<SourceFile>>,
    columns: Columns,
    key_fields: Vec<Field>,
    stdin: Option<Pending>,
) -> Result<Source> {
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut origins = Vec::new();
    for (index, field) in columns.fields.iter().enumerate() {
        if !key_fields.iter().any(|key| key.name() == field.name()) {
            fields.push(field.clone());
            origins.push(Origin::File(index));
        }
    }
    for (index, field) in key_fields.into_iter().enumerate() {
        fields.push(Arc::new(field));
        origins.push(Origin::Key(index));
    }
    Ok(Source {
        spec: spec.clone(),
        format,
        dialect,
        files,
        file_fields: columns.fields,
        schema_file: columns.file,
        origins,
        schema: Arc::new(Schema::new(fields)),
        stdin: Mutex::new(stdin),
    })
}
