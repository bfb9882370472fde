//! Text as times: `strptime`, `try_strptime`, `date_parse`, and what PostgreSQL's patterns make of `to_timestamp` and
//! `to_date`.
//!
//! A text has to be of the format from its beginning to its end, but for blanks around it; a blank in the
//! format stands for any number of them. Parts that the format does not have are those of 1970-01-01 00:00:00; of `strptime` and
//! `try_strptime` those of 1900-01-01 00:00:00, as in Python and DuckDB.
//! A time with an offset or a zone becomes UTC. The functions return a TIMESTAMP, whatever the format, since a format
//! may become a constant only after types are settled. Where the statement has the format written out and
//! [`reads_instants`] holds, the planner casts the call to TIMESTAMP WITH TIME ZONE.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, PrimitiveArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use super::formats::{Format, Instant};
use super::written::Language;
use crate::callable::{
    Function, Given, Kept, Rows, Texts, Told, as_text, brief, broken, called_as, external, held,
    usage,
};

/// A text that is none of the formats.
fn unread(text: &str, formats: &[String], reasons: &[String], hint: &str) -> DataFusionError {
    let to = match (formats, reasons) {
        ([format], [reason]) => format!("the format `{}`: {reason}", brief(format)),
        _ => {
            let formats: Vec<_> =
                formats.iter().map(|format| format!("`{}`", brief(format))).collect();
            format!("any of the formats {}", formats.join(", "))
        }
    };
    external(Error::Cast { value: brief(text), to, cast: None, hint: Some(hint.to_owned()) })
}

/// A format, with its text.
struct Named {
    text: String,
    format: Format,
}

impl Named {
    fn of(text: &str, language: Language) -> Result<Self> {
        Ok(Named { text: text.to_owned(), format: language.parsed(text)? })
    }
}

/// The first of the formats that a text is of.
fn first_read(text: &str, formats: &[Named], hint: &str) -> Result<Instant> {
    let mut reasons = Vec::new();
    for named in formats {
        match named.format.read(text) {
            Ok(instant) => return Ok(instant),
            Err(failed) => reasons.push(failed.reason),
        }
    }
    let formats: Vec<String> = formats.iter().map(|named| named.text.clone()).collect();
    Err(unread(text, &formats, &reasons, hint))
}

fn micros_of(instant: Instant, text: &str) -> Result<i64> {
    i64::try_from(instant.nanos.div_euclid(1_000)).map_err(|_| {
        let to = "TIMESTAMP: it is before or after all that have microseconds".into();
        external(Error::Cast { value: brief(text), to, cast: None, hint: None })
    })
}

/// Text as a TIMESTAMP.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Strptime {
    /// `strptime`
    Sure,
    /// `try_strptime`, which is null for a text that is none of the format.
    Tried,
    /// `date_parse`, of Java's patterns and MySQL's codes.
    OfJava,
}

/// The formats of a call: one a row, or a list of them.
enum Formats {
    Texts(Texts),
    Lists(ArrayRef, Rows),
}

impl Formats {
    fn of(value: &ColumnarValue) -> Result<Self> {
        match value.data_type() {
            DataType::List(_) | DataType::LargeList(_) => {
                let (lists, rows) = held(value)?;
                Ok(Formats::Lists(lists, rows))
            }
            _ => Ok(Formats::Texts(Texts::of(value)?)),
        }
    }

    fn is_constant(&self) -> bool {
        matches!(
            self,
            Formats::Lists(_, Rows::Alike)
                | Formats::Texts(
                    Texts::Short(_, Rows::Alike)
                        | Texts::Long(_, Rows::Alike)
                        | Texts::Views(_, Rows::Alike)
                )
        )
    }

    /// The formats of a row, nulls left out; none where there is no list.
    fn at(&self, row: usize) -> Result<Option<Vec<String>>> {
        match self {
            Formats::Texts(texts) => Ok(texts.at(row).map(|text| vec![text.to_owned()])),
            Formats::Lists(lists, rows) => {
                let row = rows.at(row);
                match lists.data_type() {
                    DataType::List(_) => items(lists.as_list::<i32>(), row),
                    _ => items(lists.as_list::<i64>(), row),
                }
            }
        }
    }
}

fn items<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    row: usize,
) -> Result<Option<Vec<String>>> {
    if lists.is_null(row) {
        return Ok(None);
    }
    let list = cast_with_options(&lists.value(row), &DataType::Utf8, &STRICT_CAST_OPTIONS)?;
    Ok(Some(list.as_string::<i32>().iter().flatten().map(str::to_owned).collect()))
}

impl Strptime {
    fn language(&self) -> Language {
        match self {
            Strptime::OfJava => Language::Java,
            _ => Language::C,
        }
    }

    /// The year of texts whose format has none.
    fn missing_year(&self) -> Option<i64> {
        match self {
            Strptime::OfJava => None,
            Strptime::Sure | Strptime::Tried => Some(1900),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Strptime::OfJava => {
                "try_strptime(text, format), which takes C's codes, is NULL for what is none of the format"
            }
            _ => "try_strptime(text, format) is NULL for what is none of the format",
        }
    }
}

impl Function for Strptime {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Strptime::Sure => &["strptime", "parse_timestamp"],
            Strptime::Tried => &["try_strptime"],
            Strptime::OfJava => &["date_parse", "str_to_date", "parse_datetime", "parsedatetime"],
        }
    }

    fn told(&self) -> Told {
        match self {
            Strptime::OfJava => Told {
                section: DOC_SECTION_DATETIME,
                calls: "date_parse(text, pattern)",
                what: "The TIMESTAMP that a text is by Java's patterns, or, where there is a `%`, by MySQL's codes: \
                       `date_parse('20.11.2026 08:05', 'dd.MM.yyyy HH:mm')` is `2026-11-20T08:05:00`, and \
                       `date_parse('November 20th, 2026', '%M %D, %Y')` is `2026-11-20T00:00:00`.",
            },
            Strptime::Tried => Told {
                section: DOC_SECTION_DATETIME,
                calls: "try_strptime(text, format)\ntry_strptime(text, [format1, format2, …])",
                what: "As `strptime`, but NULL for a text that is none of the format: \
                       `try_strptime('today', '%d.%m.%Y')` is `NULL`.",
            },
            Strptime::Sure => Told {
                section: DOC_SECTION_DATETIME,
                calls: "strptime(text, format)\nstrptime(text, [format1, format2, …])",
                what: "The TIMESTAMP that a text is by C's and Python's codes, of several formats the first that fits, in \
                       1900 where it has no year, or the TIMESTAMP WITH TIME ZONE in UTC where a format that is written out has an offset (`%z`) or a \
                       zone (`%Z`): `strptime('20/Nov/2026 08:05', '%d/%b/%Y %H:%M')` is `2026-11-20T08:05:00`.",
            },
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [text, format] = given else { return Err(called_as(self, given)) };
        let text = as_text(text).ok_or_else(|| called_as(self, given))?;
        let format = match format {
            DataType::List(item) | DataType::LargeList(item)
                if as_text(item.data_type()).is_some() =>
            {
                match item.data_type() {
                    DataType::Null => {
                        DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
                    }
                    _ => format.clone(),
                }
            }
            DataType::FixedSizeList(item, _) if as_text(item.data_type()).is_some() => {
                DataType::List(Arc::clone(item))
            }
            other => as_text(other).ok_or_else(|| called_as(self, given))?,
        };
        Ok(vec![text, format])
    }

    fn gives(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let constant = constants.get(1).copied().flatten().filter(|constant| !constant.is_null());
        if let Some(constant) = constant {
            let formats = Formats::of(&ColumnarValue::Scalar(constant.clone()))?;
            for format in formats.at(0)?.into_iter().flatten() {
                self.language().parsed(&format)?;
            }
        }
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let texts = given.texts(0)?;
        let formats = Formats::of(given.value(1)?)?;
        let parsed = |row: usize| -> Result<Option<Vec<Named>>> {
            let Some(formats) = formats.at(row)? else { return Ok(None) };
            let named = formats.iter().map(|format| {
                let mut named = Named::of(format, self.language())?;
                named.format.missing_year = self.missing_year();
                Ok(named)
            });
            Ok(Some(named.collect::<Result<_>>()?))
        };
        let constant = if formats.is_constant() { parsed(0)? } else { None };
        let mut found = PrimitiveArray::<TimestampMicrosecondType>::builder(given.rows);
        for row in 0..given.rows {
            let own = if formats.is_constant() { None } else { parsed(row)? };
            let (Some(text), Some(formats)) = (texts.at(row), own.as_ref().or(constant.as_ref()))
            else {
                found.append_null();
                continue;
            };
            if formats.is_empty() {
                found.append_null();
                continue;
            }
            if *self == Strptime::Tried {
                let read = formats.iter().find_map(|named| named.format.read(text).ok());
                found.append_option(read.and_then(|instant| micros_of(instant, text).ok()));
                continue;
            }
            let instant = first_read(text, formats, self.hint())?;
            found.append_value(micros_of(instant, text)?);
        }
        Ok(Arc::new(found.finish()))
    }
}

/// Texts of one format as seconds, for functions of other rooms.
pub(super) fn instants(
    given: &Given<'_>,
    text: usize,
    format: usize,
    language: Language,
    hint: &str,
) -> Result<Vec<Option<Instant>>> {
    let texts = given.texts(text)?;
    let formats = given.texts(format)?;
    let mut kept = Kept::new();
    let rows = (0..given.rows).map(|row| {
        let (Some(text), Some(format)) = (texts.at(row), formats.at(row)) else { return Ok(None) };
        let named = kept.of(format, |format| Ok([Named::of(format, language)?]))?;
        first_read(text, named, hint).map(Some)
    });
    rows.collect()
}

/// Returns whether `function` reads instants by `format`.
pub(crate) fn reads_instants(function: &str, format: &str) -> bool {
    let readers = [Strptime::Sure, Strptime::Tried, Strptime::OfJava];
    let own = readers.iter().find(|reader| reader.names().contains(&function));
    let language = match own {
        Some(reader) => reader.language(),
        None if function == "to_timestamp" || function.starts_with("to_timestamp_") => {
            Language::Postgres
        }
        None => return false,
    };
    language.parsed(format).is_ok_and(|format| format.has_instants())
}

/// A function of text by formats of chrono's, `to_timestamp` or `to_date`, that takes a pattern of PostgreSQL's
/// too: a constant without `%`.
pub(crate) fn with_patterns(theirs: &Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(WithPatterns::of(Arc::clone(theirs)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithPatterns {
    theirs: Arc<ScalarUDF>,
    documentation: Option<Documentation>,
}

impl WithPatterns {
    fn of(theirs: Arc<ScalarUDF>) -> Self {
        let documentation = theirs.documentation().map(|told| {
            let told = told.clone();
            let line = told.description.split_whitespace().collect::<Vec<_>>().join(" ");
            let what = line.split(". ").next().unwrap_or(&line).trim_end_matches('.');
            let description = format!(
                "{what}, text by formats of chrono's codes, of which the first that fits is taken, or by one \
                 pattern of PostgreSQL's, which has no `%`."
            );
            Documentation { description, ..told }
        });
        WithPatterns { theirs, documentation }
    }
}

/// The pattern that a constant is, if it is one.
fn pattern_of(constant: &ScalarValue) -> Option<&str> {
    let format = constant.try_as_str().flatten()?;
    let is_pattern = !format.contains('%') && format.contains(|of: char| of.is_ascii_alphabetic());
    is_pattern.then_some(format)
}

impl ScalarUDFImpl for WithPatterns {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        self.theirs.aliases()
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.theirs.coerce_types(given)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let theirs = Arc::new(self.theirs.inner().with_updated_config(config)?);
        Some(ScalarUDF::from(WithPatterns::of(theirs)))
    }

    fn return_type(&self, taken: &[DataType]) -> Result<DataType> {
        self.theirs.return_type(taken)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let [_, Some(constant)] = args.scalar_arguments
            && let Some(pattern) = pattern_of(constant)
        {
            Language::Postgres.parsed(pattern)?;
        }
        self.theirs.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [_, ColumnarValue::Scalar(constant)] if pattern_of(constant).is_some() => {
                by_pattern(&args)
            }
            _ => self.theirs.invoke_with_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.documentation.as_ref()
    }
}

/// What `to_timestamp`, `to_timestamp_micros` and their like, or `to_date`, are of text by a pattern of
/// PostgreSQL's.
///
/// # Errors
/// Where a text is none of the pattern, or a time that the answer's type does not reach.
fn by_pattern(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let answer = args.return_field.data_type();
    let text = args.args.first().ok_or_else(|| broken("a call has lost an argument"))?;
    if as_text(&text.data_type()).is_none() {
        return Err(usage(
            "a pattern is of text, and the first argument is none",
            "to_timestamp(x) alone takes seconds since 1970",
        ));
    }
    let values = match as_text(&text.data_type()).filter(|to| *to != text.data_type()) {
        Some(to) => {
            let mut values = args.args.clone();
            values[0] = values[0].cast_to(&to, None)?;
            values
        }
        None => args.args.clone(),
    };
    let given = Given { values: &values, rows, answer };
    let hint = "blanks and signs stand in a text as in its pattern; CASE and ~ choose a pattern by the text";
    let read = instants(&given, 0, 1, Language::Postgres, hint)?;
    let found: ArrayRef = match answer {
        DataType::Date32 => {
            let day = 86_400_i128 * 1_000_000_000;
            let days = read.into_iter().map(|instant| match instant {
                Some(instant) => i32::try_from(instant.nanos.div_euclid(day))
                    .map(Some)
                    .map_err(|_| super::clocks::beyond()),
                None => Ok(None),
            });
            Arc::new(days.collect::<Result<PrimitiveArray<Date32Type>>>()?)
        }
        DataType::Timestamp(unit, _) => {
            let one = i128::from(1_000_000_000 / super::clocks::units(*unit));
            let times = read.into_iter().map(|instant| match instant {
                Some(instant) => i64::try_from(instant.nanos.div_euclid(one))
                    .map(Some)
                    .map_err(|_| super::clocks::beyond()),
                None => Ok(None),
            });
            let times = times.collect::<Result<PrimitiveArray<Int64Type>>>()?;
            cast_with_options(&times, answer, &STRICT_CAST_OPTIONS)?
        }
        other => return Err(broken(&format!("a pattern makes no {other}"))),
    };
    match is_constant {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
        false => Ok(ColumnarValue::Array(found)),
    }
}
