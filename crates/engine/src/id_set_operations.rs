//! Operations on sets of 64-bit ids in files of any size: union, intersection, difference.
//!
//! ```text
//!   text, raw ids ──────────────────────┐  sorted, in memory or with spilling,
//!   a column of a Parquet file, CSV … ──┴─► unless they are in order ──► merged ──► text, raw ids, a table
//! ```
//!
//! Each input is read once, except for files of text and raw ids, which are first read once to check whether
//! they are in order. An unsorted input that exceeds its part of the memory is written and read once more.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt64Type};
use tidemill_base::error::{BadRecord, Error, Result};
use tidemill_base::settings::RunSettings;
use tidemill_base::state_folder::RunId;
use tidemill_base::suggestions;
use tidemill_query::{Query, QueryPlan};
use tidemill_remote::StorageOptions;
use tidemill_remote::location::decoded_web_path;
use tidemill_sink::{CompressedStagedFile, OutputFormat, Sink, SinkSpec};
use tidemill_sort::id_sets::{self, IdFormat, IdSetOperand};
use tidemill_source::{
    COMPRESSION_MAGIC_BYTES, Compression, Format as SourceFormat, SourceSpec, decompressing_reader,
    detect_compression,
};

pub use tidemill_sort::id_sets::{IdSetCounts, SetOperation};
pub use tidemill_sql::convert_sort_error;

/// Minimum memory for sorting an input.
const SORT_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Name of the id column in an output table.
const ID_COLUMN_NAME: &str = "id";

/// Names of the operations.
pub const OPERATION_NAMES: [(&str, SetOperation); 5] = [
    ("union", SetOperation::Union),
    ("intersect", SetOperation::Intersect),
    ("diff", SetOperation::Diff),
    ("xor", SetOperation::Xor),
    ("count", SetOperation::Count),
];

/// The storage format of a set of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdSetFormat {
    /// One decimal number on each line.
    Text,
    /// Eight bytes for each id, little-endian.
    Raw,
    /// A column of a table, in a format that queries can read.
    Table,
}

impl IdSetFormat {
    /// Returns the format with a name: `text`, `raw`, `table`.
    ///
    /// # Errors
    /// [`Error::Usage`] for any other name.
    pub fn from_name(name: &str) -> Result<IdSetFormat> {
        match name {
            "text" => Ok(IdSetFormat::Text),
            "raw" => Ok(IdSetFormat::Raw),
            "table" => Ok(IdSetFormat::Table),
            _ => Err(Error::usage_with_hint(
                format!("ids are not stored as `{name}`"),
                "text: a number a line; raw: eight bytes each, little-endian; table: a column of a file that \
                 queries read",
            )),
        }
    }

    /// Infers the format from a file name: `.raw`, `.bin` and `.u64` are raw, a suffix that queries can read
    /// is a table, and everything else is text. A suffix of compression behind it is ignored.
    fn from_path(path: &str) -> IdSetFormat {
        let (stem, _) = Compression::strip_suffix(path);
        let suffix = stem.rsplit_once('.').map_or("", |(_, suffix)| suffix).to_ascii_lowercase();
        match suffix.as_str() {
            "raw" | "bin" | "u64" => IdSetFormat::Raw,
            _ if OutputFormat::from_path(path).is_some() => IdSetFormat::Table,
            _ => IdSetFormat::Text,
        }
    }
}

/// A request to combine sets of ids.
#[derive(Debug, Clone)]
pub struct IdSetRequest {
    /// The set operation.
    pub operation: SetOperation,
    /// Input files, each of them one set; `-` is standard input. A table may be a pattern or a URL and is one
    /// set.
    pub inputs: Vec<String>,
    /// Format of all inputs. Default: inferred from the name of each.
    pub input_format: Option<IdSetFormat>,
    /// The id column of tables. Default: their only column.
    pub id_column: Option<String>,
    /// True if ids are numbers in two's complement, which sort negative ids first. Default: false.
    pub signed_ids: bool,
    /// True if all inputs are in order. The run checks this, sorts nothing and reads nothing twice. Default:
    /// false.
    pub inputs_are_sorted: bool,
    /// The output file. Default: ids go to the writer passed to [`combine_id_sets`].
    pub output: Option<String>,
    /// Output format: `text`, `raw`, or a table's format. Default: inferred from the output's name, else
    /// text.
    pub output_format: Option<String>,
    /// True if the run may replace an existing output.
    pub overwrite: bool,
    /// Options for object stores, in addition to the environment's.
    pub storage_options: StorageOptions,
}

/// Returns the operation with a name.
///
/// # Errors
/// [`Error::Usage`] for an unknown name.
pub fn parse_operation(name: &str) -> Result<SetOperation> {
    let found = OPERATION_NAMES.iter().find(|(known, _)| *known == name).map(|(_, of)| *of);
    found.ok_or_else(|| {
        let known = OPERATION_NAMES.map(|(known, _)| known);
        Error::usage_with_hint(
            format!("there is no operation `{name}` on sets of ids"),
            match suggestions::nearest_candidate(name, known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => known.join(", "),
            },
        )
    })
}

/// Combines the sets. Writes ids in order to the output file, or else to `out`; writes none for
/// [`SetOperation::Count`]. A file appears whole or not at all.
///
/// # Errors
/// [`Error::Usage`] for invalid combinations of inputs and options, [`Error::InvalidBytes`] for values that
/// are not ids, and errors of reading, sorting and writing.
pub fn combine_id_sets(
    request: &IdSetRequest,
    settings: &RunSettings,
    out: &mut dyn Write,
) -> Result<IdSetCounts> {
    run_operation(request, settings, out).map_err(|error| replace_foreign_hints(error, request))
}

fn run_operation(
    request: &IdSetRequest,
    settings: &RunSettings,
    out: &mut dyn Write,
) -> Result<IdSetCounts> {
    if request.inputs.is_empty() {
        return Err(Error::usage_with_hint("no sets of ids", "name at least one file"));
    }
    if request.inputs.iter().filter(|input| *input == "-").count() > 1 {
        return Err(Error::usage("standard input is read once: `-` stands for one set"));
    }
    if request.operation == SetOperation::Count && request.output.is_some() {
        return Err(Error::usage_with_hint(
            "`count` writes no ids",
            "`union` with an output writes those that it counts",
        ));
    }
    let has_table =
        request.inputs.iter().any(|name| resolve_input_format(name, request) == IdSetFormat::Table);
    if let (Some(column), false) = (&request.id_column, has_table) {
        return Err(Error::usage_with_hint(
            format!("--column `{column}` means nothing: no set is a table"),
            "a suffix tells a table, .csv or .parquet; --input-format table says so of all",
        ));
    }
    // Prefetching for the sort uses the rest.
    let memory_bytes = (settings.memory_bytes / 4 * 3).max(SORT_MEMORY_BYTES_MIN);
    let mut options = id_sets::IdSetOptions::default();
    options.memory_bytes = memory_bytes;
    options.threads = settings.threads;
    options.spill_dirs = settings.spill_dirs.clone();
    options.signed = request.signed_ids;
    options.cancel = settings.cancel.atomic_flag().into();
    let progress = settings.progress.clone();
    options.on_read = Some(Arc::new(move |bytes| progress.add_bytes(bytes)));
    set_progress_total(request, settings);
    let mut output = IdOutput::create(request, settings)?;
    let mut inputs = Vec::with_capacity(request.inputs.len());
    let (mut is_told, mut untold) = (false, None);
    for name in &request.inputs {
        match open_input(name, request, settings, &options) {
            Ok(input) => {
                is_told = true;
                inputs.push(input);
            }
            // An empty table without a header has no known columns. Beside other inputs it counts as an empty
            // set.
            Err(error) if is_empty_text_table(name, request, settings) => {
                untold.get_or_insert(error);
                inputs.push(IdSetOperand::from_batches(name, |_| Ok(())));
            }
            Err(error) => return Err(error),
        }
    }
    if let (Some(error), false) = (untold, is_told) {
        return Err(error);
    }
    let mut failed = None;
    let counts = id_sets::combine_id_sets(request.operation, inputs, &options, &mut |ids| {
        settings.progress.add_rows(ids.len() as u64);
        let written = output.write_ids(ids, request.signed_ids, out);
        written.map_err(|error| {
            failed = Some(error);
            io::Error::other("refused")
        })
    });
    let counts = counts.map_err(|error| failed.take().unwrap_or_else(|| error_from_ids(error)))?;
    output.commit()?;
    Ok(counts)
}

/// Sets the total of the progress. Files that may have to be sorted count twice, because checking their order
/// reads them.
fn set_progress_total(request: &IdSetRequest, settings: &RunSettings) {
    let mut bytes = 0;
    for name in &request.inputs {
        let format = match resolve_input_format(name, request) {
            // The query that reads the table adds its own bytes.
            IdSetFormat::Table => continue,
            IdSetFormat::Text => IdFormat::Text,
            IdSetFormat::Raw => IdFormat::Raw,
        };
        // The decompressed size is unknown.
        if !matches!(file_compression(Path::new(name), format), Ok(Compression::None)) {
            return;
        }
        bytes += std::fs::metadata(name).map_or(0, |file| file.len());
    }
    if bytes > 0 {
        settings.progress.set_bytes_total(if request.inputs_are_sorted {
            bytes
        } else {
            2 * bytes
        });
    }
}

/// Converts an error of the set operation into the engine's error.
fn error_from_ids(error: id_sets::IdSetError) -> Error {
    match error {
        id_sets::IdSetError::Io { action, name, source } => match source.downcast::<Error>() {
            Ok(ours) => ours,
            Err(source) => Error::io(action, name, source),
        },
        id_sets::IdSetError::Sort(error) => convert_sort_error(error),
        id_sets::IdSetError::Output(source) => Error::io("write", "standard output", source),
        other => {
            let (message, hint) = split_hint(&other);
            Error::InvalidBytes { message, hint }
        }
    }
}

/// Splits an error's text into its message and its hint.
fn split_hint(error: &dyn std::error::Error) -> (String, Option<String>) {
    let text = error.to_string();
    match text.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (text, None),
    }
}

/// Returns the format of an input: the requested one, or the one inferred from its name.
fn resolve_input_format(name: &str, request: &IdSetRequest) -> IdSetFormat {
    request.input_format.unwrap_or_else(|| match name {
        "-" => IdSetFormat::Text,
        _ => IdSetFormat::from_path(&path_without_query(name)),
    })
}

fn open_input(
    name: &str,
    request: &IdSetRequest,
    settings: &RunSettings,
    options: &id_sets::IdSetOptions,
) -> Result<IdSetOperand<'static>> {
    let is_standard = name == "-";
    let format = match resolve_input_format(name, request) {
        IdSetFormat::Table => {
            let table = open_table_column(name, request, settings)?;
            return Ok(if request.inputs_are_sorted { table.assume_sorted() } else { table });
        }
        IdSetFormat::Text => IdFormat::Text,
        IdSetFormat::Raw => IdFormat::Raw,
    };
    if is_standard {
        let input = match format {
            IdFormat::Text => IdSetOperand::new(
                "standard input",
                format,
                LazyDecompressingReader::Unread(io::stdin()),
            ),
            IdFormat::Raw => IdSetOperand::new("standard input", format, io::stdin()),
        };
        return Ok(if request.inputs_are_sorted { input.assume_sorted() } else { input });
    }
    if name.contains("://") {
        return Err(Error::usage_with_hint(
            format!(
                "ids as text and raw ids are read from files of this machine, not from `{name}`"
            ),
            format!(
                "tidemill cat '{name}' | tidemill ids … -; if it is a table, --input-format table"
            ),
        ));
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(Error::NotFound { path: name.to_owned(), hint: None });
    }
    let compression = file_compression(path, format)?;
    if compression != Compression::None {
        let file = std::fs::File::open(path).map_err(|error| Error::io("open", name, error))?;
        let input = IdSetOperand::new(name, format, decompressing_reader(file, compression, name)?);
        return Ok(if request.inputs_are_sorted { input.assume_sorted() } else { input });
    }
    if request.inputs_are_sorted {
        let file = std::fs::File::open(path).map_err(|error| Error::io("open", name, error))?;
        return Ok(IdSetOperand::new(name, format, file).assume_sorted());
    }
    IdSetOperand::from_file(path, format, options).map_err(error_from_ids)
}

/// Detects the compression of a file. Only the name tells it for raw ids, because any eight bytes are an id.
fn file_compression(path: &Path, format: IdFormat) -> Result<Compression> {
    let (_, named) = Compression::strip_suffix(&path.to_string_lossy());
    if format == IdFormat::Raw || !path.is_file() {
        return Ok(named);
    }
    let file = std::fs::File::open(path).map_err(|error| Error::io("open", path, error))?;
    let mut head = Vec::new();
    let read = file.take(COMPRESSION_MAGIC_BYTES as u64).read_to_end(&mut head);
    read.map_err(|error| Error::io("read", path, error))?;
    Ok(detect_compression(named, &head))
}

/// A reader of text that is read once. It decompresses the text if the first bytes show a compression.
enum LazyDecompressingReader<R> {
    Unread(R),
    Started(Box<dyn Read + Send>),
    /// The first bytes could not be read.
    Failed,
}

impl<R: Read + Send + 'static> Read for LazyDecompressingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let LazyDecompressingReader::Started(reader) = self {
            return reader.read(out);
        }
        let LazyDecompressingReader::Unread(mut reader) =
            std::mem::replace(self, LazyDecompressingReader::Failed)
        else {
            return Ok(0);
        };
        let mut head = Vec::new();
        reader.by_ref().take(COMPRESSION_MAGIC_BYTES as u64).read_to_end(&mut head)?;
        let compression = detect_compression(Compression::None, &head);
        let all = io::Cursor::new(head).chain(reader);
        *self = LazyDecompressingReader::Started(match compression {
            Compression::None => Box::new(all),
            _ => decompressing_reader(all, compression, "standard input")
                .map_err(|error| io::Error::other(Error::from(error)))?,
        });
        self.read(out)
    }
}

/// Returns the part of a name that tells the format: the path of a web URL without its query, or the name
/// itself.
fn path_without_query(name: &str) -> Cow<'_, str> {
    match name.split_once("://") {
        Some(("http" | "https", _)) => decoded_web_path(name).into(),
        _ => name.into(),
    }
}

/// Returns the source of a table.
fn table_source(name: &str, request: &IdSetRequest) -> SourceSpec {
    SourceSpec {
        url: name.to_owned(),
        storage_options: request.storage_options.clone(),
        ..SourceSpec::default()
    }
}

/// Opens a column of a table as an input of ids.
fn open_table_column(
    name: &str,
    request: &IdSetRequest,
    settings: &RunSettings,
) -> Result<IdSetOperand<'static>> {
    let column = request.id_column.clone().map(|column| vec![column]);
    let query = Query::select_columns(table_source(name, request), column.as_deref(), None)?;
    let mut settings = settings.clone();
    let tables = request.inputs.len() as u64;
    // Sorted tables are merged directly, and all of them are read at the same time.
    settings.memory_bytes /= if request.inputs_are_sorted { 4 * tables } else { 4 };
    let mut plan = QueryPlan::new(&query, &settings).map_err(|error| match &request.id_column {
        Some(column) => unknown_column_error(name, column, request, &settings).unwrap_or(error),
        None => error,
    })?;
    let schema = Arc::clone(plan.schema());
    let [field] = schema.fields().as_ref() else {
        let names: Vec<String> =
            schema.fields().iter().map(|field| format!("`{}`", field.name())).collect();
        return Err(Error::usage_with_hint(
            format!("`{name}` has {} columns: {}", names.len(), names.join(", ")),
            "--column NAME says which of them has the ids",
        ));
    };
    let data_type = field.data_type();
    // Only one of the two plans runs, so the second must not add its bytes to the progress.
    let bytes = settings.progress.bytes_total();
    let as_ids = plan_with_id_type(name, field, request, &settings);
    settings.progress.set_bytes_total(bytes);
    let mut refusal = None;
    if !data_type.is_integer() && data_type != &DataType::Null {
        // A column without values has no type of its own: in a CSV file without rows it is text.
        if as_ids.is_none() && is_text_type(data_type) && !has_non_null_value(plan)? {
            return Ok(IdSetOperand::from_batches(name, |_| Ok(())));
        }
        let no_ids = Error::usage_with_hint(
            format!(
                "column `{}` of `{name}` is {}, and ids are whole numbers",
                field.name(),
                tidemill_base::column_types::sql_type_name(data_type),
            ),
            match data_type.is_numeric() {
                true => "CAST(x AS BIGINT) makes whole numbers of such ones in a query",
                false => "hash(x) makes numbers of texts and all other values in a query",
            },
        );
        // A column inferred as DOUBLE or TEXT may hold whole numbers that are out of range or have leading
        // zeros.
        let Some(as_ids) = as_ids else { return Err(no_ids) };
        refusal = Some(no_ids);
        plan = as_ids;
    } else if let Some(as_ids) = as_ids {
        plan = as_ids;
    }
    let (shown, column, signed) = (name.to_owned(), field.name().clone(), request.signed_ids);
    // The query starts when the merge first asks for its ids.
    let mut plan = Some(plan);
    let mut results = None;
    Ok(IdSetOperand::from_batches(name, move |ids| {
        let mut next = || -> Result<()> {
            if let Some(plan) = plan.take() {
                results = Some(plan.run()?);
            }
            let Some(results) = results.as_mut() else { return Ok(()) };
            while ids.is_empty() {
                let Some(batch) = results.next().transpose()? else { return Ok(()) };
                append_ids(batch.column(0), signed, &shown, &column, ids)?;
            }
            Ok(())
        };
        next().map_err(|error| {
            let is_other = !is_out_of_range_error(&error, signed);
            io::Error::other(refusal.take().filter(|_| is_other).unwrap_or(error))
        })
    }))
}

/// Returns the type of ids.
fn id_type(request: &IdSetRequest) -> DataType {
    if request.signed_ids { DataType::Int64 } else { DataType::UInt64 }
}

/// Plans to read a column with the type of ids. This helps if its type is inferred from its first values,
/// which may not include the greatest. Returns `None` if the column has a declared type, or a type that is
/// not taken for whole numbers.
fn plan_with_id_type(
    name: &str,
    field: &Field,
    request: &IdSetRequest,
    settings: &RunSettings,
) -> Option<QueryPlan> {
    let told = field.data_type();
    let is_number = told.is_integer()
        || is_text_type(told)
        || matches!(told, DataType::Null | DataType::Float64);
    let is_field = request.id_column.as_ref().is_some_and(|column| column.contains('.'));
    let is_typed =
        SourceFormat::from_path(&path_without_query(name)).is_some_and(SourceFormat::is_typed);
    // The first plan has consumed an input that can be read only once.
    let is_stream = name == "-"
        || std::fs::metadata(name).is_ok_and(|found| !found.is_file() && !found.is_dir());
    if !is_number || is_field || is_typed || is_stream {
        return None;
    }
    let ids = Schema::new(vec![Field::new(field.name(), id_type(request), true)]);
    let spec = SourceSpec { declared_schema: Some(Arc::new(ids)), ..table_source(name, request) };
    let column = request.id_column.clone().map(|column| vec![column]);
    // The files of a folder show only when opened that they have declared types, and refuse another one.
    QueryPlan::new(&Query::select_columns(spec, column.as_deref(), None).ok()?, settings).ok()
}

/// Returns the value for which a record was rejected.
fn rejected_value(record: &BadRecord) -> Option<&str> {
    record.reason.strip_prefix("expected a ")?.split_once(", found `")?.1.strip_suffix('`')
}

fn is_whole_number(value: &str) -> bool {
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if a run failed at a whole number that is out of range, or for a reason other than a value.
fn is_out_of_range_error(error: &Error, signed: bool) -> bool {
    let is_out = |value: &str| {
        let is_id =
            if signed { value.parse::<i64>().is_ok() } else { value.parse::<u64>().is_ok() };
        is_whole_number(value) && !is_id
    };
    match error {
        Error::BadRecords { first, .. } => {
            first.first().and_then(rejected_value).is_none_or(is_out)
        }
        _ => true,
    }
}

/// Returns a hint that states the valid ids and what to do about `value`, which is not one.
fn id_range_hint(value: &str, signed: bool) -> String {
    let is_negative = value.starts_with('-');
    match (is_whole_number(value), signed) {
        (false, _) => "ids are whole numbers".into(),
        (true, false) if is_negative => {
            "ids are from 0 on: --signed for numbers in two's complement".into()
        }
        (true, false) => "ids go up to 18446744073709551615".into(),
        (true, true) if is_negative => "signed ids go from -9223372036854775808 on".into(),
        (true, true) if value.parse::<u64>().is_ok() => {
            "signed ids go up to 9223372036854775807: leave out --signed".into()
        }
        (true, true) => "signed ids go up to 9223372036854775807".into(),
    }
}

/// Replaces hints that name options of other commands.
fn replace_foreign_hints(error: Error, request: &IdSetRequest) -> Error {
    const OWN_OPTIONS: [&str; 11] = [
        "--output",
        "--format",
        "--input-format",
        "--column",
        "--signed",
        "--sorted",
        "--overwrite",
        "--memory",
        "--spill-dir",
        "--threads",
        "--storage-option",
    ];
    const CONVERT_HINT: &str =
        "`tidemill convert` has options for such files, and writes a table that ids are read from";
    let is_others = |hint: &str| {
        let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '-';
        let mut words = hint.split(|sign| !is_part(sign));
        // A hint with a complete command may have the options of that command.
        !hint.contains("tidemill ")
            && words.any(|word| {
                word.starts_with("--") && word.len() > 2 && !OWN_OPTIONS.contains(&word)
            })
    };
    let own = |hint: Option<String>| {
        hint.map(|hint| if is_others(&hint) { CONVERT_HINT.to_owned() } else { hint })
    };
    match error {
        Error::BadRecords { first, count, allowed } => match first.first() {
            Some(record) => Error::InvalidBytes {
                message: record.to_string(),
                hint: match rejected_value(record) {
                    Some(value) => Some(id_range_hint(value, request.signed_ids)),
                    None => {
                        own(Some(record.hint.clone().unwrap_or_else(|| CONVERT_HINT.to_owned())))
                    }
                },
            },
            None => Error::BadRecords { first, count, allowed },
        },
        Error::Usage { message, hint } => Error::Usage { message, hint: own(hint) },
        Error::Corrupt { path, offset, reason, hint } => {
            Error::Corrupt { path, offset, reason, hint: own(hint) }
        }
        Error::IncompatibleFiles { path, other, reason, hint } => {
            Error::IncompatibleFiles { path, other, reason, hint: own(hint) }
        }
        other => other,
    }
}

fn is_text_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns true if the only column of a query has a value that is not null.
fn has_non_null_value(plan: QueryPlan) -> Result<bool> {
    for batch in plan.run()? {
        let batch = batch?;
        if batch.column(0).null_count() < batch.num_rows() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the error for a column that a table does not have, or `None` if something else is wrong.
fn unknown_column_error(
    name: &str,
    column: &str,
    request: &IdSetRequest,
    settings: &RunSettings,
) -> Option<Error> {
    if name == "-" {
        return None;
    }
    let plan = QueryPlan::new(
        &Query::select_columns(table_source(name, request), None, None).ok()?,
        settings,
    )
    .ok()?;
    let names: Vec<&str> =
        plan.schema().fields().iter().map(|field| field.name().as_str()).collect();
    // `a.b` is a field of the record `a`, so `a` has to exist.
    let outer = column.split('.').next().unwrap_or(column);
    if names.contains(&column) || names.contains(&outer) {
        return None;
    }
    let near = suggestions::nearest_candidate(column, names.iter().copied());
    let meant = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    Some(Error::usage_with_hint(
        format!("`{name}` has no column `{column}`{meant}"),
        format!("its columns are {}", names.join(", ")),
    ))
}

/// Returns true if an input is a text table without records and header, whose columns are therefore unknown.
fn is_empty_text_table(name: &str, request: &IdSetRequest, settings: &RunSettings) -> bool {
    if name == "-" || resolve_input_format(name, request) != IdSetFormat::Table {
        return false;
    }
    let rows_of = |spec: SourceSpec| -> Result<usize> {
        let mut rows = 0;
        for batch in QueryPlan::new(&Query::select_columns(spec, None, None)?, settings)?.run()? {
            rows += batch?.num_rows();
        }
        Ok(rows)
    };
    let untold = table_source(name, request);
    // Such a table has no columns of its own, and no rows when it is read with a given column.
    let field = Field::new(ID_COLUMN_NAME, DataType::Int64, true);
    let told =
        SourceSpec { declared_schema: Some(Arc::new(Schema::new(vec![field]))), ..untold.clone() };
    let has_columns = Query::select_columns(untold, None, None)
        .and_then(|query| QueryPlan::new(&query, settings))
        .is_ok();
    !has_columns && rows_of(told).is_ok_and(|rows| rows == 0)
}

/// Appends the ids of a column, without its nulls.
fn append_ids(
    values: &ArrayRef,
    signed: bool,
    name: &str,
    column: &str,
    ids: &mut Vec<u64>,
) -> Result<()> {
    let refused = |value: String| Error::InvalidBytes {
        message: format!("column `{column}` of `{name}` has {value}, which is no id"),
        hint: Some(
            match signed {
                true => "signed ids go up to 9223372036854775807: leave out --signed",
                false => "ids are from 0 on: --signed for numbers in two's complement",
            }
            .into(),
        ),
    };
    ids.reserve(values.len());
    if values.data_type().is_unsigned_integer() {
        let values = cast(values, &DataType::UInt64)?;
        for id in values.as_primitive::<UInt64Type>().iter().flatten() {
            if signed && i64::try_from(id).is_err() {
                return Err(refused(id.to_string()));
            }
            ids.push(id);
        }
        return Ok(());
    }
    let values = cast(values, &DataType::Int64)?;
    for id in values.as_primitive::<Int64Type>().iter().flatten() {
        if !signed && id < 0 {
            return Err(refused(id.to_string()));
        }
        ids.push(id.cast_unsigned());
    }
    Ok(())
}

/// The destination of ids.
enum IdOutput {
    /// The writer passed by the caller.
    Writer(IdFormat),
    File(IdFormat, Box<CompressedStagedFile>, String),
    Table(Box<Sink>),
}

impl IdOutput {
    fn create(request: &IdSetRequest, settings: &RunSettings) -> Result<IdOutput> {
        let Some(output) = &request.output else {
            return match request.output_format.as_deref() {
                None | Some("text") => Ok(IdOutput::Writer(IdFormat::Text)),
                Some("raw") => Ok(IdOutput::Writer(IdFormat::Raw)),
                Some(other) => Err(Error::usage_with_hint(
                    format!("`{other}` is written to a file"),
                    "name one as output; without one ids are text, or raw",
                )),
            };
        };
        if output.ends_with('/') || Path::new(output).is_dir() {
            return Err(Error::usage_with_hint(
                format!("`{output}` is a folder"),
                "ids are written to one file",
            ));
        }
        let stored = match request.output_format.as_deref() {
            Some("text") => IdSetFormat::Text,
            Some("raw") => IdSetFormat::Raw,
            Some(_) => IdSetFormat::Table,
            None => IdSetFormat::from_path(output),
        };
        let format = match stored {
            IdSetFormat::Text => IdFormat::Text,
            IdSetFormat::Raw => IdFormat::Raw,
            IdSetFormat::Table => {
                let mut spec = SinkSpec::new(output.clone());
                let named = request.output_format.as_deref().map(str::parse::<OutputFormat>);
                spec.format = named.transpose()?;
                spec.overwrite = request.overwrite;
                spec.storage_options = request.storage_options.clone();
                let ids = Field::new(ID_COLUMN_NAME, id_type(request), false);
                let schema = Arc::new(Schema::new(vec![ids]));
                let memory = settings.memory_share_bytes(1, 8);
                let sink = Sink::create(&spec, schema, &RunId::new(), memory)?;
                return Ok(IdOutput::Table(Box::new(sink)));
            }
        };
        if output.contains("://") {
            return Err(Error::usage_with_hint(
                format!(
                    "ids as text and raw ids are written to files of this machine, not to `{output}`"
                ),
                "a name that ends in .parquet or .csv is written there",
            ));
        }
        let file =
            CompressedStagedFile::create(Path::new(output), request.overwrite, &RunId::new())?;
        Ok(IdOutput::File(format, Box::new(file), output.clone()))
    }

    fn write_ids(&mut self, ids: &[u64], signed: bool, out: &mut dyn Write) -> Result<()> {
        match self {
            IdOutput::Writer(format) => id_sets::write_ids(ids, *format, signed, out)
                .map_err(|error| Error::io("write", "standard output", error)),
            IdOutput::File(format, file, name) => id_sets::write_ids(ids, *format, signed, file)
                .map_err(|error| Error::io("write", name.as_str(), error)),
            IdOutput::Table(sink) => {
                let (of, column): (DataType, ArrayRef) = match signed {
                    true => {
                        let ids = ids.iter().map(|id| id.cast_signed());
                        (DataType::Int64, Arc::new(Int64Array::from_iter_values(ids)))
                    }
                    false => (DataType::UInt64, Arc::new(UInt64Array::from(ids.to_vec()))),
                };
                let schema = Arc::new(Schema::new(vec![Field::new(ID_COLUMN_NAME, of, false)]));
                Ok(sink.write(&RecordBatch::try_new(schema, vec![column])?)?)
            }
        }
    }

    fn commit(self) -> Result<()> {
        match self {
            IdOutput::Writer(_) => Ok(()),
            IdOutput::File(_, file, _) => Ok(file.commit()?),
            IdOutput::Table(sink) => {
                sink.commit()?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IdSetFormat, path_without_query};

    #[test]
    fn id_set_format_is_told_by_the_file_name() {
        for (name, expected) in [
            ("a.txt", IdSetFormat::Text),
            ("a", IdSetFormat::Text),
            ("a.u64", IdSetFormat::Raw),
            ("a.RAW", IdSetFormat::Raw),
            ("a.raw.zst", IdSetFormat::Raw),
            ("a.txt.gz", IdSetFormat::Text),
            ("a.parquet", IdSetFormat::Table),
            ("a.csv.gz", IdSetFormat::Table),
            ("https://host/p01.parquet?sig=abc.d", IdSetFormat::Table),
            ("http://host/a%2Ecsv#part", IdSetFormat::Table),
            ("https://host/p01?as=a.parquet", IdSetFormat::Text),
            ("s3://bucket/p?.csv", IdSetFormat::Table),
            ("what?.csv", IdSetFormat::Table),
        ] {
            assert_eq!(IdSetFormat::from_path(&path_without_query(name)), expected, "{name}");
        }
    }
}
