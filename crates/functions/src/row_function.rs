//! The trait [`RowFunction`] and its adapter to DataFusion: a function states its names, its argument types
//! and its result type, and how to calculate a column. The adapter supplies everything else that DataFusion
//! requires.
//!
//! A constant argument is not expanded to a column. A function reads each argument row by row through
//! [`TextArgument`] or a similar type of its module, in which row `n` of a constant is the constant. A call
//! that has only constants is calculated for one row.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeStringArray, StringArray, StringBuilder, StringViewArray,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, DocSection, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::Error;

/// The entry of a function in the reference: one row of a table.
#[derive(Debug, Clone)]
pub(crate) struct FunctionDocs {
    pub(crate) section: DocSection,
    /// Call syntax, one call per line.
    pub(crate) syntax: &'static str,
    /// One sentence. A test evaluates each example in it of the form "`f(1)` is `2`".
    pub(crate) description: &'static str,
}

/// A scalar function that returns one value per row.
pub(crate) trait RowFunction: Debug + Eq + Hash + Send + Sync + Sized + 'static {
    /// Returns the name of the function, followed by its aliases.
    fn names(&self) -> &'static [&'static str];

    fn docs(&self) -> FunctionDocs;

    /// Returns the types that arguments of the given types are cast to.
    ///
    /// # Errors
    /// Fails if the function does not take arguments of these types.
    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>>;

    /// Returns the result type for arguments of types that the function takes, and checks constant arguments
    /// once.
    ///
    /// # Errors
    /// Fails for a constant that the function does not take.
    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType>;

    /// Returns whether a null among the arguments makes the result null.
    fn is_strict(&self) -> bool {
        true
    }

    fn volatility(&self) -> Volatility {
        Volatility::Immutable
    }

    /// Calculates the results of a batch.
    ///
    /// # Errors
    /// Fails for a value that has no result.
    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef>;

    fn into_udf(self) -> ScalarUDF {
        let told = self.docs();
        let documentation =
            Documentation::builder(told.section, told.description, told.syntax).build();
        let aliases = self.names()[1..].iter().map(|&name| name.to_owned()).collect();
        let signature = Signature::user_defined(self.volatility());
        ScalarUDF::from(RowFunctionUdf { function: self, aliases, signature, documentation })
    }
}

/// The arguments of a batch of rows.
pub(crate) struct ArgumentBatch<'a> {
    /// Arguments, cast to the types that the function takes.
    pub(crate) arguments: &'a [ColumnarValue],
    pub(crate) row_count: usize,
    /// Result type that planning settled on.
    pub(crate) return_type: &'a DataType,
}

impl ArgumentBatch<'_> {
    /// Returns the argument at an index.
    ///
    /// # Errors
    /// Fails if there are fewer arguments, which planning excludes.
    pub(crate) fn argument(&self, at: usize) -> Result<&ColumnarValue> {
        self.arguments.get(at).ok_or_else(|| internal_error("a call has lost an argument"))
    }

    pub(crate) fn text_argument(&self, at: usize) -> Result<TextArgument> {
        TextArgument::from_value(self.argument(at)?)
    }

    /// Casts an argument to another type. Returns its array and the mapping of rows to values.
    pub(crate) fn cast_argument(&self, at: usize, to: &DataType) -> Result<(ArrayRef, RowMapping)> {
        let (array, rows) = argument_array(self.argument(at)?)?;
        Ok((cast_with_options(&array, to, &STRICT_CAST_OPTIONS)?, rows))
    }

    /// Builds a text column row by row. A row is null if `write` returns false.
    pub(crate) fn build_texts(
        &self,
        mut write: impl FnMut(usize, &mut String) -> Result<bool>,
    ) -> Result<ArrayRef> {
        let mut texts = StringBuilder::with_capacity(self.row_count, self.row_count * 16);
        let mut text = String::new();
        for row in 0..self.row_count {
            text.clear();
            match write(row, &mut text)? {
                true => texts.append_value(&text),
                false => texts.append_null(),
            }
        }
        Ok(Arc::new(texts.finish()))
    }
}

/// Maps a row to its index in an array that has either one value for all rows or one value per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowMapping {
    Constant,
    PerRow,
}

impl RowMapping {
    pub(crate) fn value_index(self, row: usize) -> usize {
        match self {
            RowMapping::Constant => 0,
            RowMapping::PerRow => row,
        }
    }
}

/// Returns an argument as an array; a constant becomes an array of one value.
pub(crate) fn argument_array(value: &ColumnarValue) -> Result<(ArrayRef, RowMapping)> {
    Ok(match value {
        ColumnarValue::Array(array) => (Arc::clone(array), RowMapping::PerRow),
        ColumnarValue::Scalar(value) => (value.to_array()?, RowMapping::Constant),
    })
}

/// A text argument in one of Arrow's three text layouts.
#[derive(Debug)]
pub(crate) enum TextArgument {
    Utf8(StringArray, RowMapping),
    LargeUtf8(LargeStringArray, RowMapping),
    Utf8View(StringViewArray, RowMapping),
}

impl TextArgument {
    pub(crate) fn from_value(value: &ColumnarValue) -> Result<Self> {
        let (array, rows) = argument_array(value)?;
        Ok(match array.data_type() {
            DataType::Utf8 => TextArgument::Utf8(array.as_string().clone(), rows),
            DataType::LargeUtf8 => TextArgument::LargeUtf8(array.as_string().clone(), rows),
            DataType::Utf8View => TextArgument::Utf8View(array.as_string_view().clone(), rows),
            other => return Err(internal_error(&format!("a {} is no text", sql_type_name(other)))),
        })
    }

    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        match self {
            TextArgument::Utf8(texts, rows) => {
                let row = rows.value_index(row);
                texts.is_valid(row).then(|| texts.value(row))
            }
            TextArgument::LargeUtf8(texts, rows) => {
                let row = rows.value_index(row);
                texts.is_valid(row).then(|| texts.value(row))
            }
            TextArgument::Utf8View(texts, rows) => {
                let row = rows.value_index(row);
                texts.is_valid(row).then(|| texts.value(row))
            }
        }
    }
}

/// A cache of one value parsed from a text, valid as long as the text stays the same from row to row. A
/// constant text is parsed once per batch.
pub(crate) struct LastTextCache<T> {
    text: Option<String>,
    value: Option<T>,
}

impl<T> LastTextCache<T> {
    pub(crate) fn new() -> Self {
        LastTextCache { text: None, value: None }
    }

    pub(crate) fn get_or_parse(
        &mut self,
        text: &str,
        make: impl FnOnce(&str) -> Result<T>,
    ) -> Result<&T> {
        if self.text.as_deref() != Some(text) {
            self.value = Some(make(text)?);
            self.text = Some(text.to_owned());
        }
        self.value.as_ref().ok_or_else(|| internal_error("a format is lost"))
    }
}

/// Returns whether a type is one of Arrow's text types. Dictionaries are not.
pub(crate) fn is_text_type(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns the text type that an argument is cast to; a dictionary becomes its value type. Returns `None` for
/// an argument that is neither text nor null.
pub(crate) fn text_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Null => Some(DataType::Utf8),
        DataType::Dictionary(_, values) => text_cast_type(values),
        other => is_text_type(other).then(|| other.clone()),
    }
}

/// Returns the error for a mistake in a query, with a hint.
pub(crate) fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> DataFusionError {
    external_error(Error::usage_with_hint(message.into(), hint.into()))
}

/// Returns the error for a value that has no result.
pub(crate) fn overflow_error(message: impl Into<String>, hint: Option<&str>) -> DataFusionError {
    external_error(Error::Overflow { message: message.into(), hint: hint.map(str::to_owned) })
}

/// Returns the error for a bug in this crate.
pub(crate) fn internal_error(message: &str) -> DataFusionError {
    external_error(Error::Internal(message.to_owned()))
}

pub(crate) fn external_error(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Returns the error for argument types that a function does not take; it names the call syntax.
pub(crate) fn wrong_arguments_error(
    function: &impl RowFunction,
    given: &[DataType],
) -> DataFusionError {
    let types = given.iter().map(sql_type_name).collect::<Vec<_>>().join(", ");
    let calls = function.docs().syntax.lines().collect::<Vec<_>>().join(", ");
    usage_error(
        format!("`{}` takes other arguments than ({types})", function.names()[0]),
        format!("it is called as {calls}"),
    )
}

/// Maximum length of a format in bytes. Each row of a result is about as long as the format.
const FORMAT_BYTES_MAX: usize = 1_000;

/// Fails for a format that exceeds the maximum length.
pub(crate) fn check_format_length(format: &str) -> Result<()> {
    match format.len() <= FORMAT_BYTES_MAX {
        true => Ok(()),
        false => Err(usage_error(
            format!("a format has {} bytes; {FORMAT_BYTES_MAX} is the most", format.len()),
            "concat puts long texts around what is formatted",
        )),
    }
}

/// Shortens a text for an error message to its first 80 characters.
pub(crate) fn shorten_for_message(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[derive(Debug)]
struct RowFunctionUdf<F> {
    function: F,
    aliases: Vec<String>,
    signature: Signature,
    documentation: Documentation,
}

impl<F: RowFunction> PartialEq for RowFunctionUdf<F> {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl<F: RowFunction> Eq for RowFunctionUdf<F> {}

impl<F: RowFunction> Hash for RowFunctionUdf<F> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

impl<F: RowFunction> ScalarUDFImpl for RowFunctionUdf<F> {
    fn name(&self) -> &str {
        self.function.names()[0]
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_strict(&self) -> bool {
        self.function.is_strict()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_argument_types(given)
    }

    fn return_type(&self, taken: &[DataType]) -> Result<DataType> {
        self.function.return_type(taken, &vec![None; taken.len()])
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let taken: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let answer = self.function.return_type(&taken, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(self.name(), answer, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let answer = args.return_field.data_type();
        let is_null =
            |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(of) if of.is_null());
        if self.function.is_strict() && args.args.iter().any(is_null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(answer)?));
        }
        let is_constant = self.function.volatility() == Volatility::Immutable
            && args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let found = self.function.calculate(&ArgumentBatch {
            arguments: &args.args,
            row_count: rows,
            return_type: answer,
        })?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
            false => Ok(ColumnarValue::Array(found)),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
