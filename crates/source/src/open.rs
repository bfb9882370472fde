//! Opening a source: from what the user said to files, format, columns and their types.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;
use tidemill_base::error::{Error, Result};
use tidemill_base::redact::shown;
use tidemill_text::{cut, infer, json, logfmt, sql_type, values};

use super::batches::{self, Given};
use super::blocks::{Blocks, Ends};
use super::columns::{Collected, Columns, Layouts, Shown, ShownBy};
use super::compression::{Compression, MAGIC_BYTES, STORED_BUFFER_BYTES};
use super::format::{Dialect, Format};
use super::input::{
    Access, ByteInput, FileInput, Identity, JsonInput, OpenFile, ProgramInput, ProgramOutput,
    ReaderInput, Watch,
};
use super::promote::promote;
use super::sample::{Header, SPREAD_FILES, Sample};
use super::unify::can_be_read_as;
use super::{
    Origin, Pending, Place, Source, SourceFile, SourceSpec, decode, listing, magic, override_types,
    parquet,
};

pub(super) fn open(
    spec: &SourceSpec,
    stdin: Box<dyn Read + Send>,
    cancel: &Cancel,
) -> Result<Source> {
    let source = open_files(spec, stdin, cancel)?;
    if spec.promote.is_empty() { Ok(source) } else { promote(source, &spec.promote) }
}

fn open_files(spec: &SourceSpec, stdin: Box<dyn Read + Send>, cancel: &Cancel) -> Result<Source> {
    if !spec.more.is_empty() && spec.urls().any(|url| url == "-") {
        return Err(Error::usage_hint(
            "standard input is not one of several files",
            "write it to a file first, or read it alone",
        ));
    }
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
    if let Some(given) = &spec.given {
        return open_given(spec, given, cancel);
    }
    let found = listing::list(spec, cancel)?;
    let format = common_format(spec, &found)?;
    if let Some(program) = &spec.exec
        && format.is_typed()
    {
        return Err(Error::usage_hint(
            format!("{format} cannot come from `{}`: it is no text", program.name()),
            "`format` says what the program writes: csv, json, lines, …",
        ));
    }
    let dialect = spec.options.dialect(format)?;
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
                format if format.is_typed() => Compression::None,
                _ => Compression::strip_suffix(&found.name).1,
            };
            source_file(found, index, compression, spec, cancel)
        })
        .collect();
    refuse_encoded(&files, format)?;
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let mut sample = Sample { files: &files, format, dialect: &dialect, watch, stdin: None };
    let columns = columns(&own, format, &mut sample)?;
    source(spec, format, dialect, files, columns, key_fields, None)
}

/// Refuses what a server says that it has encoded, where nothing is decoded: of formats that have
/// places of their own, and by what cannot be.
fn refuse_encoded(files: &[Arc<SourceFile>], format: Format) -> Result<()> {
    for file in files {
        let Place::Object(object) = &file.place else { continue };
        let Some(encoding) = object.encoding() else { continue };
        let is_decoded = matches!(encoding, "gzip" | "x-gzip" | "zstd") && !format.is_typed();
        if !is_decoded {
            return Err(Error::Remote {
                action: "read",
                url: file.shown.to_string(),
                offset: None,
                status: None,
                reason: format!("the server sends it encoded by `{encoding}`"),
                hint: Some("fetch it with a program that decodes it, and read it from disk".into()),
            });
        }
    }
    Ok(())
}

/// A file that was found, of which nothing more is known yet.
pub(super) fn source_file(
    found: listing::Found,
    index: usize,
    compression: Compression,
    spec: &SourceSpec,
    cancel: &Cancel,
) -> Arc<SourceFile> {
    Arc::new(SourceFile {
        place: found.place,
        shown: found.shown,
        identity: found.identity,
        compression,
        told: std::sync::OnceLock::new(),
        program: spec.exec.clone(),
        keys: found.keys,
        index,
        lines: Mutex::default(),
        metadata: std::sync::OnceLock::new(),
        chunked: std::sync::OnceLock::new(),
        recover: spec.recover,
        cancel: cancel.clone(),
    })
}

/// What is a source by itself and no file: rows in memory, standard input.
fn only_file(
    place: Place,
    shown: &str,
    size: u64,
    compression: Compression,
    spec: &SourceSpec,
    cancel: &Cancel,
) -> Arc<SourceFile> {
    let shown: Arc<str> = shown.into();
    let found = listing::Found {
        place,
        name: Arc::clone(&shown),
        shown,
        identity: Identity { device: 0, inode: 0, size, modified_ns: 0 },
        keys: Vec::new(),
    };
    // A program gives what is read here, and does not take it.
    let spec = SourceSpec { recover: spec.recover, ..SourceSpec::default() };
    source_file(found, 0, compression, &spec, cancel)
}

/// Rows that are in memory already.
fn open_given(spec: &SourceSpec, given: &Arc<Given>, cancel: &Cancel) -> Result<Source> {
    let format = Format::Memory;
    let dialect = spec.options.dialect(format)?;
    let (place, size) = (Place::Given(Arc::clone(given)), given.bytes().max(1));
    let file = only_file(place, &spec.url, size, Compression::None, spec, cancel);
    let files = vec![file];
    let watch = Watch { cancel: cancel.clone(), ..Watch::default() };
    let mut sample = Sample { files: &files, format, dialect: &dialect, watch, stdin: None };
    let columns = columns(spec, format, &mut sample)?;
    source(spec, format, dialect, files, columns, Vec::new(), None)
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
    let dialect = spec.options.dialect(format)?;
    check_layouts(spec, format)?;
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
    let compression = match format.is_typed() {
        true => Compression::None,
        false => Compression::from_magic(&magic[..filled]),
    };
    let file = only_file(Place::Stdin, shown, 0, compression, spec, cancel);
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

fn columns(spec: &SourceSpec, format: Format, sample: &mut Sample<'_>) -> Result<Columns> {
    let mut columns = match format {
        Format::Csv | Format::Tsv => csv_columns(spec, sample)?,
        Format::Json => json_columns(spec, sample)?,
        Format::Logfmt => logfmt_columns(spec, sample)?,
        Format::AccessLog | Format::Syslog | Format::Lines => {
            Columns::uniform(decode::fixed_columns(format).unwrap_or_default())
        }
        Format::Parquet => parquet::columns(sample.files, spec.layouts.unwrap_or_default())?,
        Format::Rowfile | Format::Arrow | Format::Avro | Format::Memory | Format::Registered(_) => {
            let layouts = spec.layouts.unwrap_or_default();
            batches::columns(sample.files, format, layouts, &mut sample.stdin)?
        }
    };
    let Some(wanted) = &spec.schema else { return Ok(columns) };
    match format {
        Format::Lines
        | Format::AccessLog
        | Format::Syslog
        | Format::Parquet
        | Format::Rowfile
        | Format::Arrow
        | Format::Avro
        | Format::Memory
        | Format::Registered(_) => {
            check_types(&columns, wanted, format, sample.files)?;
            override_types(&mut columns, wanted)?;
        }
        Format::Csv | Format::Tsv => {
            rename_by_position(&mut columns.fields, wanted, sample.dialect);
            override_types(&mut columns, wanted)?;
            refuse_unreadable(&columns, format, values::is_supported)?;
        }
        Format::Json | Format::Logfmt => {
            // A key may come only behind the sample.
            for field in wanted.fields() {
                if !columns.fields.iter().any(|own| own.name() == field.name()) {
                    columns.push(field.clone());
                }
            }
            override_types(&mut columns, wanted)?;
            refuse_unreadable(&columns, format, tidemill_text::is_readable)?;
        }
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
        let own_types: Vec<DataType> = if format.is_typed() {
            // One file of each layout tells of all.
            let mut is_known = vec![false; columns.layouts.len()];
            let own = files.iter().filter_map(|file| {
                let layout = columns.layout_index(file.index);
                let own = columns.layouts[layout].places[place]?;
                let is_new = !std::mem::replace(&mut is_known[layout], true);
                let schema = match file.chunked.get() {
                    Some(chunked) => &chunked.schema,
                    None => file.metadata.get()?.schema(),
                };
                let own = schema.fields().get(own).filter(|_| is_new)?;
                Some(batches::plain(own).data_type().clone())
            });
            own.collect()
        } else {
            vec![columns.fields[place].data_type().clone()]
        };
        let can_be = |own: &DataType| match format {
            format if format.is_typed() => can_be_read_as(own, field.data_type()),
            _ => own == field.data_type(),
        };
        if let Some(own) = own_types.iter().find(|own| !can_be(own)) {
            return Err(Error::usage_hint(
                format!(
                    "column `{}` is {} in {format} and cannot be read as {}",
                    field.name(),
                    sql_type(own),
                    sql_type(field.data_type())
                ),
                "convert it in the query: CAST(column AS type)",
            ));
        }
    }
    Ok(())
}

fn refuse_unreadable(
    columns: &Columns,
    format: Format,
    is_readable: impl Fn(&DataType) -> bool,
) -> Result<()> {
    match columns.fields.iter().find(|field| !is_readable(field.data_type())) {
        Some(field) => Err(Error::usage(format!(
            "column `{}` cannot be of type {} in {format}",
            field.name(),
            field.data_type()
        ))),
        None => Ok(()),
    }
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
        Some(schema) => Ok(Columns::uniform(schema.fields().to_vec())),
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
    let grammar = cut::Grammar::delimited(&dialect);
    let may_differ = sample.files.len() > 1 && spec.layouts.unwrap_or_default() == Layouts::Union;
    let mut collected = Collected::default();
    // What is known of the beginnings of files already.
    let mut begun: HashMap<usize, infer::csv::Inference> = HashMap::new();
    if may_differ && dialect.header {
        let mut known: HashMap<Arc<Vec<String>>, usize> = HashMap::new();
        for (file, header) in sample.headers(grammar)?.into_iter().enumerate() {
            let Some(Header { names, records }) = header else { continue };
            let layout = match known.get(&names) {
                Some(layout) => *layout,
                None => {
                    let layout = collected.add(file, names.iter().map(String::as_str));
                    known.insert(names, layout);
                    layout
                }
            };
            collected.set(file, layout);
            begun.extend(records.map(|records| (file, records)));
        }
        refuse_stranger(&collected, sample.files)?;
    }

    let mut shown: Vec<Shown> = Vec::new();
    let mut take = |collected: &Collected, file: usize, inference: &infer::csv::Inference| {
        shown.resize(collected.names().len(), Shown::default());
        for (column, (kind, values)) in collected.columns_of(file).iter().zip(inference.kinds()) {
            shown[*column].add(file, kind, values);
        }
    };
    // The beginning of the source.
    let mut current: Option<(usize, infer::csv::Inference)> = None;
    let looked_at = sample.each_block(grammar, |file, mut block| {
        if current.as_ref().is_none_or(|(index, _)| *index != file.index) {
            let Some((fields, used)) = tidemill_text::csv::first_record(&dialect, block) else {
                return Ok(0);
            };
            if let Some((index, inference)) = current.take() {
                take(&collected, index, &inference);
            }
            if collected.is_empty() {
                let names = column_names(&dialect, fields, &file.shown)?;
                collected.add(file.index, names.iter().map(String::as_str));
            }
            let fields = collected.columns_of(file.index).len();
            current = Some((file.index, infer::csv::Inference::new(&dialect, fields)));
            if dialect.header {
                block = &block[used..];
            }
        }
        Ok(current.as_mut().map_or(0, |(_, inference)| inference.add(block)))
    })?;
    if let Some((index, inference)) = current.take() {
        take(&collected, index, &inference);
    }
    if collected.is_empty() {
        return nothing_to_infer(spec, sample.format);
    }
    if may_differ {
        // The beginnings of others.
        let look = |file: &SourceFile, block: &[u8]| {
            let fields = collected.columns_of(file.index).len();
            let mut inference = infer::csv::Inference::new(&dialect, fields);
            let records = match tidemill_text::csv::first_record(&dialect, block) {
                Some((_, used)) if dialect.header => &block[used..],
                _ => block,
            };
            inference.add(records);
            Some(inference)
        };
        let mut chosen = sample.spread(looked_at);
        let unread: Vec<usize> =
            chosen.iter().copied().filter(|file| !begun.contains_key(file)).collect();
        begun.extend(sample.beginnings(&unread, grammar, look)?);
        for file in &chosen {
            if let Some(inference) = begun.get(file) {
                take(&collected, *file, inference);
            }
        }
        // And of the first files with columns that nothing is known of yet.
        let is_unknown = |column: &usize| shown.get(*column).is_none_or(|shown| !shown.is_seen());
        let is_new = |file: &usize| *file >= looked_at && !chosen.contains(file);
        let unknown = collected.layouts().filter(|(_, columns)| columns.iter().any(is_unknown));
        chosen = unknown.map(|(file, _)| file).filter(is_new).take(SPREAD_FILES).collect();
        for (file, inference) in sample.beginnings(&chosen, grammar, look)? {
            for (column, (kind, values)) in collected.columns_of(file).iter().zip(inference.kinds())
            {
                shown[*column].add(file, kind, values);
            }
        }
    }
    shown.resize(collected.names().len(), Shown::default());
    let fields = collected.names().iter().zip(&shown).map(|(name, shown)| shown.field(name));
    let fields: Vec<FieldRef> = fields.collect();
    let shown_by = shown.iter().map(Shown::file).collect();
    let clashes = vec![None; fields.len()];
    Ok(collected.finish(fields, shown_by, clashes))
}

/// Where a file's header has nothing in common with the others', it is most likely a record, whose
/// values must not become columns.
fn refuse_stranger(collected: &Collected, files: &[Arc<SourceFile>]) -> Result<()> {
    let (Some((file, columns)), Some((first, _))) =
        (collected.stranger(), collected.layouts().next())
    else {
        return Ok(());
    };
    let shown = |file: usize| files.get(file).map_or("", |file| file.shown()).to_owned();
    let mut names: Vec<String> =
        columns.iter().take(4).map(|column| format!("`{}`", collected.names()[*column])).collect();
    if columns.len() > names.len() {
        names.push("…".into());
    }
    Err(Error::Differ {
        path: shown(file),
        other: shown(first),
        reason: format!("they have no column in common; its header is {}", names.join(", ")),
        hint: Some(
            "if it has no header, write one into it or make it a source of its own; --header=false \
             is for sources of which no file has one"
                .into(),
        ),
    })
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
    let nulls = sample.dialect.nulls.clone();
    let mut inference = infer::json::Inference::new(&nulls);
    let mut shown_by = ShownBy::default();
    let mut first_fault = None;
    let mut current: Option<usize> = None;
    let looked_at = sample.each_block(cut::Grammar::LINES, |file, block| {
        if current != Some(file.index) {
            refuse_other_layouts(block, &file.shown)?;
            note(&mut shown_by, current, || inference.fields());
            current = Some(file.index);
        }
        let records = inference.add(block);
        if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
            first_fault = Some((file.shown.to_string(), fault.to_string()));
        }
        if inference.is_too_wide() { Err(too_wide(file)) } else { Ok(records) }
    })?;
    note(&mut shown_by, current, || inference.fields());
    inference.settle();
    let chosen = sample.spread(looked_at);
    let look = |_: &SourceFile, block: &[u8]| {
        let mut inference = infer::json::Inference::new(&nulls);
        inference.add(block);
        Some(inference)
    };
    for (file, other) in sample.beginnings(&chosen, cut::Grammar::LINES, look)? {
        inference.widen(&other);
        if inference.is_too_wide() {
            return Err(too_wide(&sample.files[file]));
        }
        shown_by.note(file, &inference.fields());
    }
    match first_fault {
        _ if inference.objects() > 0 => Ok(found_by_name(inference.fields(), &shown_by)),
        None => nothing_to_infer(spec, Format::Json),
        Some((path, reason)) => Err(Error::Corrupt {
            path,
            offset: None,
            reason: format!("its lines are not JSON objects ({reason})"),
            hint: Some("--source-format names another format (job file: source.format)".into()),
        }),
    }
}

/// Keys that are values are no columns.
fn too_wide(file: &SourceFile) -> Error {
    Error::usage_hint(
        format!(
            "the records of `{}` have more than {} different keys, and each would be a column",
            file.shown,
            infer::json::COLUMNS_MAX
        ),
        "--source-format lines reads each record as one text (job file: source.format); to have \
         such keys as a map, they belong into an object of their own within the record",
    )
}

fn logfmt_columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let mut inference = logfmt::Inference::default();
    let mut shown_by = ShownBy::default();
    let mut current: Option<usize> = None;
    let looked_at = sample.each_block(cut::Grammar::LINES, |file, block| {
        if current != Some(file.index) {
            note(&mut shown_by, current, || inference.fields());
            current = Some(file.index);
        }
        Ok(inference.add(block))
    })?;
    note(&mut shown_by, current, || inference.fields());
    inference.settle();
    let chosen = sample.spread(looked_at);
    let look = |_: &SourceFile, block: &[u8]| {
        let mut inference = logfmt::Inference::default();
        inference.add(block);
        Some(inference)
    };
    for (file, other) in sample.beginnings(&chosen, cut::Grammar::LINES, look)? {
        inference.widen(&other);
        shown_by.note(file, &inference.fields());
    }
    match inference.fields() {
        fields if fields.is_empty() => nothing_to_infer(spec, Format::Logfmt),
        fields => Ok(found_by_name(fields, &shown_by)),
    }
}

/// Of so many files it is noted which showed what.
const NOTED_FILES: usize = 256;

fn note(shown_by: &mut ShownBy, file: Option<usize>, fields: impl FnOnce() -> Vec<FieldRef>) {
    if let Some(file) = file.filter(|file| *file < NOTED_FILES) {
        shown_by.note(file, &fields());
    }
}

/// Columns that every file has by their names.
fn found_by_name(fields: Vec<FieldRef>, shown_by: &ShownBy) -> Columns {
    let shown_by = fields.iter().map(|field| shown_by.of(field)).collect();
    Columns { shown_by, ..Columns::uniform(fields) }
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

/// How much of a file is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extent {
    /// The records that start before this offset.
    Until(u64),
    /// Its beginning, as much of it as a sample takes.
    Sample,
    /// Its very beginning, in reads of so many bytes.
    Beginning {
        read_bytes: usize,
        /// Whether an object that is read whole so may be kept.
        keeps: bool,
    },
}

/// A file's decoded bytes from its start, as blocks of records, behind a byte-order mark; and the
/// file itself, where there is one.
pub(super) fn stream(
    file: &SourceFile,
    stdin: Option<Box<dyn ByteInput>>,
    format: Format,
    ends: impl Into<Ends>,
    watch: Watch,
    extent: Extent,
) -> Result<(Blocks, Option<Arc<OpenFile>>)> {
    let cancel = watch.cancel.clone();
    let (access, limit) = match extent {
        Extent::Until(end) => (Access::Until(end), Some(end)),
        Extent::Sample => (Access::Sample, None),
        Extent::Beginning { keeps, .. } => (Access::Beginning { keeps }, None),
    };
    let (input, open): (Box<dyn ByteInput>, _) = match stdin {
        Some(input) => (input, None),
        None => {
            let open = Arc::new(OpenFile::open(file, access, &watch)?);
            let counted_to = match limit {
                Some(limit) if file.is_plain() => limit,
                _ => file.size(),
            };
            (Box::new(FileInput::new(open.clone(), 0, counted_to, watch)), Some(open))
        }
    };
    let (buffer_bytes, stored_bytes) = match extent {
        Extent::Beginning { read_bytes, .. } => (read_bytes, None),
        _ => (STORED_BUFFER_BYTES, (!file.is_stream()).then_some(file.size())),
    };
    let mut input = magic::decoded(file, input, buffer_bytes, stored_bytes)?;
    let is_stored = file.is_plain();
    if let Some(program) = &file.program {
        input = Box::new(ProgramInput::start(program, input, &file.shown, &cancel)?);
    }
    if format == Format::Json {
        input = Box::new(JsonInput::new(input, file.shown.clone()));
    }
    let limit = limit.filter(|_| is_stored && !file.is_stream());
    let mut blocks = Blocks::new(input, ends, 0, limit);
    if let Extent::Beginning { read_bytes, .. } = extent {
        blocks.set_read_bytes(read_bytes);
    }
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
        columns,
        origins,
        promotions: Vec::new(),
        promoted: Vec::new(),
        schema: Arc::new(Schema::new(fields)),
        stdin: Mutex::new(stdin),
    })
}
