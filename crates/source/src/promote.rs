//! Promotion: the fields of a nested record as columns of the source.
//!
//! ```text
//!   old file   day  input {user, url}          source   day  user  url
//!   new file   day  user  url                           from input, or from the file itself
//! ```
//!
//! A source whose files are of the old shape and of the new is one table: a promoted column is
//! the record's field where a file has the record, and the file's own column of that name where it
//! has that. Who reads can so move first, and who writes later. The record is a struct, JSON in a
//! string, or a row in bytes whose schema is with the column (`docs/formats/rowfile.md`).
//!
//! A row that has a value in both places is an error: neither can be said to be the right one. A row
//! whose JSON is no record is a malformed one, as a line is whose own JSON is none.

use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, StructArray, new_null_array,
};
use arrow::compute::{cast, concat_batches, is_not_null, kernels::zip::zip};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::Progress;
use tidemill_base::{MaxBad, suggest};
use tidemill_rowfile as rowfile;
use tidemill_text::infer::{self, SAMPLE_BYTES, SAMPLE_RECORDS};
use tidemill_text::json::JsonDecoder;
use tidemill_text::{Bad, Decode, Decoded, Options, shown, sql_type};

use super::batches::{from_rowfile, plain};
use super::decode::Fault;
use super::format::Mismatch;
use super::read::ReadOptions;
use super::unify::{adapted, masked, unify};
use super::{Origin, Rejects, Source, SourceFile, Split};

/// A column to be promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promote {
    /// The column that holds the record.
    pub column: String,
    /// What its fields' names begin with as columns. Default: nothing.
    pub prefix: String,
}

impl FromStr for Promote {
    type Err = Error;

    /// `input`, or `input=in_` for columns that begin with `in_`.
    fn from_str(text: &str) -> Result<Self> {
        let (column, prefix) = text.split_once('=').unwrap_or((text, ""));
        if column.is_empty() {
            return Err(Error::usage_hint(
                "no column is named to be promoted",
                "name the column that holds the record: --promote input",
            ));
        }
        Ok(Promote { column: column.to_owned(), prefix: prefix.to_owned() })
    }
}

/// A record whose fields are columns.
#[derive(Debug)]
pub(super) struct Promotion {
    /// Its column among the files' columns.
    pub(super) column: usize,
    name: String,
    kind: Kind,
    /// Its fields.
    fields: Fields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Struct,
    /// JSON in a string, or in bytes.
    Json,
    /// Rows of a rowfile in bytes, of the schema that the file's field has.
    Rows,
}

/// A column that comes from a record, or from a file's own column.
#[derive(Debug)]
pub(super) struct Promoted {
    /// Which promotion.
    pub(super) promotion: usize,
    /// The field's name in the record.
    pub(super) field: String,
    /// The column of its name among the files' columns, if a file has one.
    pub(super) own: Option<usize>,
    /// Why the two cannot be one column.
    clash: Option<String>,
}

impl Promoted {
    /// Why the column cannot be read, if it cannot.
    pub(super) fn refusal(&self, source: &Source, name: &str) -> Option<Error> {
        let record = source.promotions.get(self.promotion)?;
        if let Some(clash) = &self.clash {
            return Some(Error::usage_hint(
                format!("column `{name}` and what `{}` gives as it differ: {clash}", record.name),
                prefix_hint(&record.name),
            ));
        }
        let own = self.own?;
        // Where columns are found by name in every record, only the records can tell.
        if !source.format.is_typed() && !source.format.is_delimited() {
            return None;
        }
        let has = |file: usize, column: usize| {
            source.columns.layout(file).places.get(column).copied().flatten().is_some()
        };
        let both = source
            .files
            .iter()
            .find(|file| has(file.index, own) && has(file.index, record.column))?;
        Some(Error::usage_hint(
            format!(
                "`{}` has a column `{name}`, and its `{}` has a field `{}`",
                both.shown, record.name, self.field
            ),
            prefix_hint(&record.name),
        ))
    }
}

fn prefix_hint(column: &str) -> String {
    format!(
        "give the fields other names: --promote {column}={column}_ puts `{column}_` before each \
         (job file: source.promote)"
    )
}

/// Makes the fields of the columns that are named columns of the source.
///
/// # Errors
/// [`Error::Usage`] for a column that holds no record, and names that collide; what sampling
/// JSON meets.
pub(super) fn promote(source: Source, wanted: &[Promote]) -> Result<Source> {
    let mut source = Arc::new(source);
    let mut promotions: Vec<(Promotion, String)> = Vec::new();
    for promote in wanted {
        let schema = Arc::clone(source.schema());
        let Ok(index) = schema.index_of(&promote.column) else {
            // Once all files are of the new shape, there is nothing left to promote.
            let names = schema.fields().iter().map(|field| field.name().as_str());
            if let Some(nearest) = suggest::nearest(&promote.column, names) {
                return Err(Error::usage_hint(
                    format!("no file has a column `{}` to promote", promote.column),
                    format!("did you mean `{nearest}`?"),
                ));
            }
            continue;
        };
        if promotions.iter().any(|(other, _)| other.name == promote.column) {
            return Err(Error::usage(format!("`{}` is promoted twice", promote.column)));
        }
        let Some(Origin::File(column)) = source.origins.get(index).copied() else {
            return Err(Error::usage(format!(
                "column `{}` comes from a folder and holds no record",
                promote.column
            )));
        };
        if let Some(refusal) = source.refusal(index) {
            return Err(refusal);
        }
        let (kind, fields) = match schema.field(index).data_type() {
            DataType::Struct(fields) => (Kind::Struct, fields.clone()),
            DataType::BinaryView if has_rows(&source, &promote.column)? => {
                (Kind::Rows, fields_of_rows(&source, column, &promote.column)?)
            }
            DataType::Utf8View | DataType::BinaryView => {
                (Kind::Json, sampled(&source, index, &promote.column)?)
            }
            other => {
                return Err(Error::usage_hint(
                    format!(
                        "column `{}` is {} and holds no record",
                        promote.column,
                        sql_type(other)
                    ),
                    "what is promoted is a STRUCT, JSON in a string, or rows of a rowfile in bytes",
                ));
            }
        };
        let name = promote.column.clone();
        promotions.push((Promotion { column, name, kind, fields }, promote.prefix.clone()));
    }
    if promotions.is_empty() {
        return Arc::try_unwrap(source).map_err(|_| still_read());
    }
    let Some(source_mut) = Arc::get_mut(&mut source) else { return Err(still_read()) };
    arrange(source_mut, promotions)?;
    Arc::try_unwrap(source).map_err(|_| still_read())
}

fn still_read() -> Error {
    Error::Internal("a source is still being sampled".into())
}

/// Puts the promoted columns where the records were, or where a column of their name is before.
fn arrange(source: &mut Source, promotions: Vec<(Promotion, String)>) -> Result<()> {
    // By name: which promotion, and which of its fields.
    let mut given: HashMap<String, (usize, FieldRef)> = HashMap::new();
    for (index, (promotion, prefix)) in promotions.iter().enumerate() {
        for field in &promotion.fields {
            let name = format!("{prefix}{}", field.name());
            if let Some((other, _)) = given.insert(name.clone(), (index, field.clone())) {
                let (one, two) = (&promotions[other].0.name, &promotion.name);
                return Err(Error::usage_hint(
                    match one == two {
                        true => format!("`{one}` has two fields `{}`", field.name()),
                        false => format!("`{one}` and `{two}` both give a column `{name}`"),
                    },
                    prefix_hint(two),
                ));
            }
        }
    }
    let is_record = |column: usize| promotions.iter().any(|(it, _)| it.column == column);
    let names: HashMap<String, Origin> = source
        .schema
        .fields()
        .iter()
        .zip(&source.origins)
        .filter(|(_, origin)| !matches!(origin, Origin::File(column) if is_record(*column)))
        .map(|(field, origin)| (field.name().clone(), *origin))
        .collect();
    let (mut fields, mut origins, mut promoted) = (Vec::new(), Vec::new(), Vec::new());
    let mut place = |name: &str, fields: &mut Vec<FieldRef>, origins: &mut Vec<Origin>| {
        let Some((promotion, field)) = given.remove(name) else { return };
        let own = match names.get(name) {
            Some(Origin::File(own)) => Some(*own),
            // A folder's value counts, as it does against a file's own column.
            Some(Origin::Key(_)) => return,
            _ => None,
        };
        let inner = field.data_type();
        let own_type = own.map(|own| source.columns.fields[own].data_type());
        let (data_type, clash) = match own_type.map(|own| (own, unify(inner, own))) {
            None => (inner.clone(), None),
            Some((_, Ok(data_type))) => (data_type, None),
            Some((own, Err(_))) => {
                (inner.clone(), Some(format!("{} and {}", sql_type(own), sql_type(inner))))
            }
        };
        fields.push(Arc::new(Field::new(name, data_type, true)));
        origins.push(Origin::Promoted(promoted.len()));
        promoted.push(Promoted { promotion, field: field.name().clone(), own, clash });
    };
    for (field, origin) in source.schema.fields().iter().zip(&source.origins) {
        match origin {
            Origin::File(column) if is_record(*column) => {
                let Some((record, prefix)) = promotions.iter().find(|(it, _)| it.column == *column)
                else {
                    continue;
                };
                for inner in &record.fields {
                    place(&format!("{prefix}{}", inner.name()), &mut fields, &mut origins);
                }
            }
            Origin::File(_) => {
                let before = fields.len();
                place(field.name(), &mut fields, &mut origins);
                let is_placed = fields.len() > before
                    || fields.iter().any(|placed: &FieldRef| placed.name() == field.name());
                if !is_placed {
                    fields.push(field.clone());
                    origins.push(*origin);
                }
            }
            Origin::Key(_) | Origin::Promoted(_) => {
                fields.push(field.clone());
                origins.push(*origin);
            }
        }
    }
    source.schema = Arc::new(Schema::new(fields));
    source.origins = origins;
    source.promoted = promoted;
    source.promotions = promotions.into_iter().map(|(promotion, _)| promotion).collect();
    Ok(())
}

/// The schema of the rows that a file's column holds, if it says that it holds rows.
fn rows_of(file: &SourceFile, name: &str) -> Result<Option<rowfile::Schema>> {
    let schema = match (file.chunked.get(), file.metadata.get()) {
        (Some(chunked), _) => &chunked.schema,
        (None, Some(metadata)) => metadata.schema(),
        (None, None) => return Ok(None),
    };
    let Ok(field) = schema.field_with_name(name) else { return Ok(None) };
    rowfile::Schema::of_rows(field).map_err(|error| from_rowfile(error, &file.shown))
}

fn has_rows(source: &Source, name: &str) -> Result<bool> {
    for file in &source.files {
        if rows_of(file, name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The fields of the rows that a column holds, those of all files by name.
fn fields_of_rows(source: &Source, column: usize, name: &str) -> Result<Fields> {
    let mut known: Option<(rowfile::Schema, usize)> = None;
    let mut all = DataType::Struct(Fields::empty());
    for file in &source.files {
        if source.columns.layout(file.index).places.get(column).copied().flatten().is_none() {
            continue;
        }
        let Some(schema) = rows_of(file, name)? else {
            return Err(Error::usage_hint(
                format!(
                    "column `{name}` holds rows of a rowfile in other files, and in `{}` nothing \
                     says of what schema they are",
                    file.shown
                ),
                "make each kind of file a source of its own",
            ));
        };
        if known.as_ref().is_some_and(|(other, _)| *other == schema) {
            continue;
        }
        let own = schema.to_arrow(rowfile::Strings::default());
        let own = DataType::Struct(own.fields().iter().map(plain).collect());
        all = unify(&all, &own).map_err(|clash| {
            let first = known.as_ref().map_or(0, |(_, first)| *first);
            let other = source.files.get(first).map_or("", |file| file.shown());
            Error::Differ {
                path: file.shown.to_string(),
                other: other.to_owned(),
                reason: format!(
                    "`{}` in the rows of column `{name}` is {}, not {}",
                    clash.path.join("."),
                    sql_type(&clash.two),
                    sql_type(&clash.one)
                ),
                hint: Some("make each kind of file a source of its own".into()),
            }
        })?;
        known.get_or_insert((schema, file.index));
    }
    match all {
        DataType::Struct(fields) => Ok(fields),
        _ => Err(Error::Internal("a record that is no struct".into())),
    }
}

/// So many files are looked at.
const SAMPLE_FILES: usize = 16;

/// The fields of the records that a column holds as JSON, as a sample shows them.
fn sampled(source: &Arc<Source>, column: usize, name: &str) -> Result<Fields> {
    if let Some(file) = source.files.iter().find(|file| file.is_stream()) {
        return Err(Error::usage_hint(
            format!(
                "`{name}` holds text, and {} cannot be read twice to see what it is",
                file.shown
            ),
            "write it to a file first",
        ));
    }
    // The beginnings of some files, spread over them.
    let splits: Vec<Split> = source
        .splits()?
        .into_iter()
        .filter(|split| split.pieces.first().is_some_and(|piece| piece.range.start == 0))
        .collect();
    let last = splits.len().saturating_sub(1);
    let count = splits.len().min(SAMPLE_FILES);
    let chosen = (0..count).map(|k| &splits[if count > 1 { k * last / (count - 1) } else { 0 }]);
    let mut inference = infer::json::Inference::new(&[]);
    let (mut lines, mut records, mut bytes) = (Vec::new(), 0, 0);
    let all_bad: MaxBad = "100%".parse()?;
    for split in chosen {
        let options = ReadOptions {
            projection: Some(vec![column]),
            cancel: source.files[0].cancel.clone(),
            progress: Progress::new(),
            rejects: Arc::new(Rejects::new(all_bad, None)),
            ..ReadOptions::default()
        };
        let mut of_split = 0;
        for batch in source.read(split, &options)? {
            let batch = batch?;
            let Some(values) = text(batch.column(0)) else { continue };
            lines.clear();
            write_lines(&values, false, &mut lines);
            bytes += lines.len() as u64;
            of_split += inference.add(&lines);
            if of_split >= SAMPLE_RECORDS / count as u64 || bytes >= SAMPLE_BYTES {
                break;
            }
        }
        records += of_split;
        inference.settle();
    }
    let fields = inference.fields();
    if fields.is_empty() {
        let reason = match (records, inference.first_fault()) {
            (0, _) => "it has no value in the files that were looked at".to_owned(),
            (_, Some(fault)) => fault.to_string(),
            (_, None) => "its objects are empty".to_owned(),
        };
        return Err(Error::usage_hint(
            format!("column `{name}` holds no JSON objects: {reason}"),
            "what is promoted is a STRUCT, JSON in a string, or rows of a rowfile in bytes",
        ));
    }
    Ok(fields.into())
}

/// Text, or bytes that are to be text.
fn text(values: &ArrayRef) -> Option<BinaryViewArray> {
    match values.data_type() {
        DataType::Utf8View => Some(values.as_string_view().clone().to_binary_view()),
        DataType::BinaryView => Some(values.as_binary_view().clone()),
        _ => None,
    }
}

/// A line for each value; for what is null or blank an empty object, if every row has to have one.
fn write_lines(values: &BinaryViewArray, every_row: bool, lines: &mut Vec<u8>) {
    for value in values {
        let value = value.unwrap_or_default().trim_ascii();
        if value.is_empty() {
            if every_row {
                lines.extend_from_slice(b"{}\n");
            }
            continue;
        }
        let start = lines.len();
        lines.extend_from_slice(value);
        // Between the parts of a value a line end is a blank; within a string it may not stand.
        for byte in &mut lines[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        lines.push(b'\n');
    }
}

/// How records are opened.
enum How {
    /// They are open.
    Struct,
    Json(Box<JsonDecoder>),
    /// By the plan for the file of this position, once it is known.
    Rows(Option<(usize, Box<rowfile::Plan>)>),
}

/// What became of a column's values.
pub(super) enum Opened {
    Records(StructArray),
    /// Those that are no records, in order.
    Bad(Vec<BadValue>),
}

/// A value that is no record.
pub(super) struct BadValue {
    /// Its row, the column's first being 0.
    pub(super) row: usize,
    fault: tidemill_text::Fault,
    /// Where it is in the opener's lines.
    line: Range<usize>,
}

/// Opens the records of a column, some of whose fields are wanted.
pub(super) struct Opener {
    name: String,
    hint: &'static str,
    how: How,
    /// The fields that are wanted.
    wanted: Vec<String>,
    lines: Vec<u8>,
    out: Decoded,
}

impl Opener {
    /// For the fields of these names.
    ///
    /// # Errors
    /// [`Error::Internal`] only.
    pub(super) fn new(
        source: &Source,
        promotion: &Promotion,
        wanted: &[String],
        batch_rows: usize,
    ) -> Result<Self> {
        let how = match promotion.kind {
            Kind::Struct => How::Struct,
            Kind::Rows => How::Rows(None),
            Kind::Json => {
                let fields = promotion.fields.iter().filter(|it| wanted.contains(it.name()));
                let options = Options {
                    batch_rows,
                    mismatch_is_null: source.spec.options.mismatch == Some(Mismatch::Null),
                    strict: source.spec.options.strict.unwrap_or(false),
                    ..Options::default()
                };
                let decoder = JsonDecoder::new(fields.cloned().collect(), &[], options);
                How::Json(Box::new(decoder.map_err(|field| {
                    Error::Internal(format!("`{}` cannot be read from JSON", field.name()))
                })?))
            }
        };
        let (lines, out) = (Vec::new(), Decoded::default());
        let hint = match source.format.is_typed() {
            true => {
                "every value has to be one JSON object, or null; --max-bad N or N% skips rows with \
                 others, counts them and keeps a copy"
            }
            false => {
                "every value has to be one JSON object, or null; --mismatch null reads what is of \
                 another type than elsewhere as null; --max-bad N or N% skips rows with others, \
                 counts them and keeps a copy"
            }
        };
        let (name, wanted) = (promotion.name.clone(), wanted.to_vec());
        Ok(Opener { name, hint, how, wanted, lines, out })
    }

    /// Whether its values may turn out to be no records.
    pub(super) fn may_refuse(&self) -> bool {
        matches!(self.how, How::Json(_))
    }

    /// The records of a batch, or which of its values are none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are no row of a rowfile.
    pub(super) fn open(&mut self, column: &ArrayRef, file: &SourceFile) -> Result<Opened> {
        let decoder = match &mut self.how {
            How::Struct => {
                let records = column.as_struct_opt().cloned().map(Opened::Records);
                return records
                    .ok_or_else(|| Error::Internal(format!("`{}` is no struct", self.name)));
            }
            How::Rows(plan) => {
                if plan.as_ref().is_none_or(|(known, _)| *known != file.index) {
                    *plan = Some((file.index, plan_of(file, &self.name, &self.wanted)?));
                }
                let Some((_, plan)) = plan else {
                    return Err(Error::Internal("rows without a plan".into()));
                };
                let records = plan.decode_rows(column, &self.name);
                return records.map(Opened::Records).map_err(|error| Error::Corrupt {
                    path: file.shown.to_string(),
                    offset: None,
                    reason: error.to_string(),
                    hint: None,
                });
            }
            How::Json(decoder) => decoder,
        };
        let Some(values) = text(column) else {
            return Err(Error::Internal(format!("`{}` is no text", self.name)));
        };
        self.lines.clear();
        write_lines(&values, true, &mut self.lines);
        self.out.clear();
        decoder.decode(&self.lines, &mut self.out);
        if !self.out.bad.is_empty() {
            return Ok(Opened::Bad(bad_values(&self.lines, self.out.bad.drain(..))));
        }
        let schema = decoder.schema().clone();
        let batch = concat_batches(&schema, &self.out.batches)?;
        if batch.num_rows() != values.len() {
            return Err(Error::Internal(format!(
                "{} values of `{}` gave {} records",
                values.len(),
                self.name,
                batch.num_rows()
            )));
        }
        self.out.clear();
        let columns = batch.columns().to_vec();
        let fields = schema.fields().clone();
        let records = StructArray::try_new_with_length(fields, columns, None, values.len())?;
        Ok(Opened::Records(records))
    }

    /// A value of the batch that was opened last.
    pub(super) fn value(&self, bad: &BadValue) -> &[u8] {
        self.lines.get(bad.line.clone()).unwrap_or_default().trim_ascii()
    }

    /// Why it is refused.
    pub(super) fn fault(&self, bad: &BadValue) -> Fault {
        let column = match &bad.fault.column {
            Some(within) => format!("{}.{within}", self.name),
            None => self.name.clone(),
        };
        let value = shown(&String::from_utf8_lossy(self.value(bad)));
        Fault {
            column: Some(column),
            reason: format!("{}, in `{value}`", bad.fault),
            hint: Some(self.hint.into()),
        }
    }
}

/// Which values are no records, each value being a line.
fn bad_values(lines: &[u8], bad: impl Iterator<Item = Bad>) -> Vec<BadValue> {
    let (mut values, mut row, mut at) = (Vec::new(), 0, 0);
    for Bad { range, fault } in bad {
        row += memchr::memchr_iter(b'\n', &lines[at..range.start]).count();
        at = range.start;
        // What is too long to be read is refused in one.
        for line in lines[range].split_inclusive(|byte| *byte == b'\n') {
            values.push(BadValue { row, fault: fault.clone(), line: at..at + line.len() });
            row += 1;
            at += line.len();
        }
    }
    values
}

/// The plan for the wanted fields of a file's rows.
fn plan_of(file: &SourceFile, name: &str, wanted: &[String]) -> Result<Box<rowfile::Plan>> {
    let failed = |error| from_rowfile(error, &file.shown);
    let Some(schema) = rows_of(file, name)? else {
        return Err(Error::Internal(format!("`{name}` holds no rows in `{}`", file.shown)));
    };
    let all = schema.to_arrow(rowfile::Strings::default());
    let fields: Vec<FieldRef> =
        all.fields().iter().filter(|field| wanted.contains(field.name())).cloned().collect();
    let plan = rowfile::Plan::new(&schema, &Arc::new(Schema::new(fields)));
    plan.map(Box::new).map_err(failed)
}

/// A field of records, null where the record is.
pub(super) fn field(records: &StructArray, name: &str) -> Option<ArrayRef> {
    let column = records.column_by_name(name)?;
    let Some(outer) = records.nulls().filter(|_| column.data_type() != &DataType::Null) else {
        return Some(column.clone());
    };
    // The nulls are as many as the values.
    masked(column, outer).ok()
}

/// A promoted column from what a file has for it.
///
/// # Errors
/// [`Error::Corrupt`] for a row with a value in both places, and for a value that the column's type
/// does not hold.
pub(super) fn joined(
    inner: Option<ArrayRef>,
    own: Option<ArrayRef>,
    wanted: &Field,
    rows: usize,
    file: &SourceFile,
) -> Result<ArrayRef> {
    let corrupt = |reason: String| Error::Corrupt {
        path: file.shown.to_string(),
        offset: None,
        reason: format!("column `{}`: {reason}", wanted.name()),
        hint: None,
    };
    let fit = |column: ArrayRef| match column.data_type() == wanted.data_type() {
        true => Ok(column),
        false => adapted(&column, wanted.data_type(), true).map_err(corrupt),
    };
    let (inner, own) = (inner.map(fit).transpose()?, own.map(fit).transpose()?);
    match (inner, own) {
        (None, None) => Ok(new_null_array(wanted.data_type(), rows)),
        (Some(column), None) | (None, Some(column)) => Ok(column),
        (Some(inner), Some(own)) => {
            let (has_inner, has_own) = (is_not_null(&inner)?, is_not_null(&own)?);
            let both = |at: &usize| has_inner.value(*at) && has_own.value(*at);
            if let Some(at) = (0..rows).find(both) {
                let value = |column: &ArrayRef| {
                    let text = cast(&column.slice(at, 1), &DataType::Utf8).ok();
                    text.map_or(String::new(), |text| {
                        format!(" `{}`", shown(text.as_string::<i32>().value(0)))
                    })
                };
                return Err(Error::Corrupt {
                    path: file.shown.to_string(),
                    offset: None,
                    reason: format!(
                        "column `{}`: a row has two values,{} of its own and{} in the record that \
                         is promoted",
                        wanted.name(),
                        value(&own),
                        value(&inner)
                    ),
                    hint: Some(
                        "give the record's fields other names: --promote COLUMN=PREFIX (job file: \
                         source.promote)"
                            .into(),
                    ),
                });
            }
            if has_own.true_count() == 0 {
                return Ok(inner);
            }
            let mask: BooleanArray = has_inner;
            Ok(zip(&mask, &inner, &own)?)
        }
    }
}
