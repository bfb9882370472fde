//! [`ClosureFunction`], a scalar function assembled from closures, and the access to its arguments; mostly
//! for functions of text.
//!
//! A [`ClosureFunction`] states its names, its arguments and its result; DataFusion receives it as a
//! [`ScalarUDF`]. Text arrives in any of Arrow's four layouts and is read as views. If the only column among
//! the arguments is dictionary-encoded, the function runs once per dictionary value and rows take the result
//! of their code. If the column is text with many repetitions, the function runs once per distinct text of
//! the batch: these functions cost several times as much as the lookup of a text.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, ListBuilder,
    StringViewArray, StringViewBuilder,
};
use arrow::compute::{cast_with_options, take};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::{DataFusionError, Result as PlanResult, ScalarValue};
use datafusion_expr::{
    ColumnarValue, DocSection, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::Error;

use crate::distinct_texts::{DistinctTexts, find_only_column};

/// The kind of value that an argument must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// Text, in any of Arrow's layouts.
    Text,
    /// A text or a list of texts.
    TextOrTextList,
    /// A text or an integer.
    TextOrInteger,
    /// An integer, cast to BIGINT.
    Integer,
    /// A number, cast to DOUBLE.
    Number,
    /// The number of a group in a regular expression. Lists of group names are arguments of other functions.
    RegexGroup,
    /// A value of any type, not cast.
    Any,
}

impl ArgumentKind {
    fn description(self) -> &'static str {
        match self {
            ArgumentKind::Text => "a TEXT",
            ArgumentKind::TextOrTextList => "a TEXT or a list of them",
            ArgumentKind::TextOrInteger => "a TEXT or a whole number",
            ArgumentKind::Integer => "a whole number",
            ArgumentKind::Number => "a number",
            ArgumentKind::RegexGroup => "a whole number or a list of constant names",
            ArgumentKind::Any => "any value",
        }
    }

    fn accepts(self, given: &DataType) -> bool {
        match self {
            _ if given.is_null() => true,
            ArgumentKind::Text => is_text_type(given),
            ArgumentKind::TextOrTextList => {
                is_text_type(given) || item_type(given).is_some_and(is_text_type)
            }
            ArgumentKind::TextOrInteger => is_text_type(given) || *given == DataType::Int64,
            ArgumentKind::Integer | ArgumentKind::RegexGroup => *given == DataType::Int64,
            ArgumentKind::Number => *given == DataType::Float64,
            ArgumentKind::Any => true,
        }
    }

    /// Returns the type that an argument is cast to before evaluation.
    fn coerced_type(self, given: &DataType) -> DataType {
        match self {
            ArgumentKind::Any => given.clone(),
            ArgumentKind::Text | ArgumentKind::TextOrTextList | ArgumentKind::TextOrInteger
                if given.is_null() =>
            {
                DataType::Utf8View
            }
            ArgumentKind::Integer | ArgumentKind::RegexGroup
                if given.is_integer() || given.is_null() =>
            {
                DataType::Int64
            }
            ArgumentKind::Number if given.is_numeric() || given.is_null() => DataType::Float64,
            ArgumentKind::TextOrInteger if given.is_integer() => DataType::Int64,
            ArgumentKind::TextOrTextList => match item_type(given) {
                Some(item) if is_text_type(item) && *item != DataType::Utf8View => {
                    list_type(DataType::Utf8View)
                }
                _ => given.clone(),
            },
            ArgumentKind::Text
            | ArgumentKind::TextOrInteger
            | ArgumentKind::Integer
            | ArgumentKind::Number
            | ArgumentKind::RegexGroup => given.clone(),
        }
    }
}

/// Returns whether values of a type are texts, in a dictionary too.
pub(crate) fn is_text_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text_type(values),
        _ => false,
    }
}

/// Returns the type of a list's items.
fn item_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// Returns the type of a list of items.
pub(crate) fn list_type(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// Returns the error for a mistake in a query, wrapped for DataFusion.
pub(crate) fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> DataFusionError {
    DataFusionError::External(Box::new(Error::usage_with_hint(message, hint)))
}

/// Returns the error for a value that a function does not take, wrapped for DataFusion.
pub(crate) fn query_error(message: impl fmt::Display, hint: &str) -> DataFusionError {
    DataFusionError::External(Box::new(Error::Query(format!("{message}\nhint: {hint}"))))
}

/// Shortens a value for a message and replaces its line breaks.
pub(crate) fn excerpt_for_message(value: &str) -> String {
    const EXCERPT_CHARS_MAX: usize = 60;
    match value.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
    .replace(['\n', '\r'], " ")
}

/// The argument types and constants of a call at planning time.
pub(crate) struct PlannedCall<'a> {
    function_name: &'static str,
    args: &'a ReturnFieldArgs<'a>,
}

impl PlannedCall<'_> {
    /// Returns the number of arguments.
    pub(crate) fn argument_count(&self) -> usize {
        self.args.arg_fields.len()
    }

    /// Returns the type of an argument, and the type of NULL for a missing one.
    pub(crate) fn argument_type(&self, index: usize) -> &DataType {
        self.args.arg_fields.get(index).map_or(&DataType::Null, |field| field.data_type())
    }

    /// Returns the value of a constant text argument that is not null.
    pub(crate) fn constant_text(&self, index: usize) -> Option<&str> {
        self.args.scalar_arguments.get(index)?.as_ref()?.try_as_str().flatten()
    }

    /// Returns the value of a constant integer argument that is not null.
    pub(crate) fn constant_integer(&self, index: usize) -> Option<i64> {
        match self.args.scalar_arguments.get(index)?.as_ref()?.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        }
    }

    /// Returns the name of the function.
    pub(crate) fn function_name(&self) -> &'static str {
        self.function_name
    }
}

type ReturnTypeClosure = Box<dyn Fn(&PlannedCall<'_>) -> PlanResult<DataType> + Send + Sync>;
type EvaluationClosure = Box<dyn Fn(&CallBatch) -> PlanResult<ArrayRef> + Send + Sync>;

/// The arguments whose null makes the result null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NullPropagation {
    AnyArgument,
    FirstArgument,
    Never,
}

/// A scalar function assembled from closures.
pub(crate) struct ClosureFunction {
    name: &'static str,
    aliases: Vec<String>,
    documentation: Documentation,
    signature: Signature,
    argument_kinds: &'static [ArgumentKind],
    arguments_min: usize,
    variadic_kind: Option<ArgumentKind>,
    null_propagation: NullPropagation,
    resolve_return_type: ReturnTypeClosure,
    evaluate: EvaluationClosure,
}

impl ClosureFunction {
    /// Creates a function with the given call syntax and description. The first of `calls` determines its name.
    pub(crate) fn new(section: &'static str, calls: &[&'static str], what: &str) -> Self {
        let first = calls.first().copied().unwrap_or_default();
        let name = first.split('(').next().unwrap_or_default();
        let section = DocSection { include: true, label: section, description: None };
        let told = Documentation::builder(section, what, calls.join("\n"));
        ClosureFunction {
            name,
            aliases: Vec::new(),
            documentation: told.build(),
            signature: Signature::user_defined(Volatility::Immutable),
            argument_kinds: &[],
            arguments_min: 0,
            variadic_kind: None,
            null_propagation: NullPropagation::AnyArgument,
            resolve_return_type: Box::new(|_| Ok(DataType::Utf8View)),
            evaluate: Box::new(|call| {
                Err(query_error(format!("`{}` has no body", call.function_name), ""))
            }),
        }
    }

    /// Adds aliases.
    pub(crate) fn with_aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        self
    }

    /// Sets the kinds of the arguments, of which the first `least` are required.
    pub(crate) fn with_arguments(mut self, takes: &'static [ArgumentKind], least: usize) -> Self {
        self.argument_kinds = takes;
        self.arguments_min = least;
        self
    }

    /// Accepts any number of further arguments of this kind.
    pub(crate) fn with_variadic_argument(mut self, rest: ArgumentKind) -> Self {
        self.variadic_kind = Some(rest);
        self
    }

    /// Evaluates the function for null arguments as well.
    pub(crate) fn with_null_arguments(mut self) -> Self {
        self.null_propagation = NullPropagation::Never;
        self
    }

    /// Evaluates the function for nulls behind the first argument as well.
    pub(crate) fn with_null_trailing_arguments(mut self) -> Self {
        self.null_propagation = NullPropagation::FirstArgument;
        self
    }

    /// Sets the result type; the default is TEXT.
    pub(crate) fn with_return_type(self, data_type: DataType) -> Self {
        self.with_return_type_closure(move |_| Ok(data_type.clone()))
    }

    /// Sets the closure that checks constant arguments and returns the result type.
    pub(crate) fn with_return_type_closure(
        mut self,
        settles: impl Fn(&PlannedCall<'_>) -> PlanResult<DataType> + Send + Sync + 'static,
    ) -> Self {
        self.resolve_return_type = Box::new(settles);
        self
    }

    /// Sets the closure that evaluates a batch and turns the function into a [`ScalarUDF`].
    pub(crate) fn into_udf(
        mut self,
        runs: impl Fn(&CallBatch) -> PlanResult<ArrayRef> + Send + Sync + 'static,
    ) -> ScalarUDF {
        self.evaluate = Box::new(runs);
        ScalarUDF::from(self)
    }

    fn argument_kind(&self, index: usize) -> Option<ArgumentKind> {
        self.argument_kinds.get(index).copied().or(self.variadic_kind)
    }

    fn syntax(&self) -> String {
        self.documentation.syntax_example.lines().collect::<Vec<_>>().join(", ")
    }

    /// Evaluates the function once per distinct text, if the only column is text with few distinct values.
    fn evaluate_distinct_texts(&self, args: &ScalarFunctionArgs) -> PlanResult<Option<ArrayRef>> {
        let Some(DistinctTexts { argument_index: index, texts, text_indices: of_rows }) =
            DistinctTexts::from_arguments(args)?
        else {
            return Ok(None);
        };
        let mut call = CallBatch::from_arguments(self, args, texts.len());
        call.arguments[index] = ColumnarValue::Array(texts);
        Ok(Some(take(&(self.evaluate)(&call)?, &of_rows, None)?))
    }

    /// Evaluates the function once per dictionary value, if the only column is a dictionary.
    fn evaluate_dictionary_values(
        &self,
        args: &ScalarFunctionArgs,
    ) -> PlanResult<Option<ArrayRef>> {
        let Some((index, column)) = find_only_column(args) else { return Ok(None) };
        let is_strict = match self.null_propagation {
            NullPropagation::AnyArgument => true,
            NullPropagation::FirstArgument => index == 0,
            NullPropagation::Never => false,
        };
        let Some(coded) = column.as_any_dictionary_opt().filter(|_| is_strict) else {
            return Ok(None);
        };
        if coded.values().len() > args.number_rows {
            return Ok(None);
        }
        let mut call = CallBatch::from_arguments(self, args, coded.values().len());
        call.arguments[index] = ColumnarValue::Array(Arc::clone(coded.values()));
        match (self.evaluate)(&call) {
            Ok(made) => Ok(Some(take(&made, coded.keys(), None)?)),
            // The error may come from a dictionary value that no row has.
            Err(_) => Ok(None),
        }
    }
}

impl fmt::Debug for ClosureFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for ClosureFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ClosureFunction {}

impl Hash for ClosureFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for ClosureFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let fields: Vec<FieldRef> = arguments
            .iter()
            .map(|data_type| Arc::new(Field::new("", data_type.clone(), true)))
            .collect();
        let scalar_arguments = vec![None; fields.len()];
        let args =
            ReturnFieldArgs { arg_fields: &fields, scalar_arguments: scalar_arguments.as_slice() };
        Ok(self.return_field_from_args(args)?.data_type().clone())
    }

    /// Leaves unsuitable types unchanged: an error from here would lose its hint on the way to the user.
    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        let coerced =
            arguments.iter().enumerate().map(|(index, given)| match self.argument_kind(index) {
                Some(kind) => kind.coerced_type(given),
                None => given.clone(),
            });
        Ok(coerced.collect())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let count = args.arg_fields.len();
        if count < self.arguments_min
            || (count > self.argument_kinds.len() && self.variadic_kind.is_none())
        {
            return Err(usage_error(
                format!("`{}` takes other arguments", self.name),
                format!("it is called as {}", self.syntax()),
            ));
        }
        for (index, field) in args.arg_fields.iter().enumerate() {
            let given = field.data_type();
            if let Some(kind) = self.argument_kind(index).filter(|kind| !kind.accepts(given)) {
                return Err(usage_error(
                    format!(
                        "`{}` takes {} as its {} argument, and this is a {}",
                        self.name,
                        kind.description(),
                        ordinal_word(index),
                        sql_type_name(given)
                    ),
                    match kind {
                        ArgumentKind::RegexGroup => format!(
                            "names are written out: ['key', 'value']; it is called as {}",
                            self.syntax()
                        ),
                        ArgumentKind::Integer => {
                            format!(
                                "CAST(x AS BIGINT) makes one; it is called as {}",
                                self.syntax()
                            )
                        }
                        ArgumentKind::Number => {
                            format!(
                                "CAST(x AS DOUBLE) makes one; it is called as {}",
                                self.syntax()
                            )
                        }
                        _ => {
                            format!("CAST(x AS TEXT) makes one; it is called as {}", self.syntax())
                        }
                    },
                ));
            }
        }
        let answer =
            (self.resolve_return_type)(&PlannedCall { function_name: self.name, args: &args })?;
        Ok(Arc::new(Field::new(self.name, answer, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        if let Some(made) = self.evaluate_dictionary_values(&args)? {
            return Ok(ColumnarValue::Array(made));
        }
        if let Some(made) = self.evaluate_distinct_texts(&args)? {
            return Ok(ColumnarValue::Array(made));
        }
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let call =
            CallBatch::from_arguments(self, &args, if is_constant { 1 } else { args.number_rows });
        let made = (self.evaluate)(&call)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

fn ordinal_word(index: usize) -> String {
    match index {
        0 => "first".into(),
        1 => "second".into(),
        2 => "third".into(),
        more => format!("{}th", more + 1),
    }
}

/// A batch of rows on which a [`ClosureFunction`] is evaluated.
pub(crate) struct CallBatch {
    function_name: &'static str,
    arguments: Vec<ColumnarValue>,
    row_count: usize,
    return_type: DataType,
}

/// A text argument of a batch.
pub(crate) enum TextOperand {
    /// One text for all rows.
    Constant(Option<String>),
    /// One text per row.
    Column(StringViewArray),
}

impl TextOperand {
    /// Returns the text of a row, unless it is null.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        match self {
            TextOperand::Constant(text) => text.as_deref(),
            TextOperand::Column(texts) => texts.is_valid(row).then(|| texts.value(row)),
        }
    }

    /// Returns the text that all rows share, unless it is null.
    pub(crate) fn constant(&self) -> Option<&str> {
        match self {
            TextOperand::Constant(text) => text.as_deref(),
            TextOperand::Column(_) => None,
        }
    }
}

/// An integer argument of a batch.
pub(crate) enum IntegerOperand {
    /// One number for all rows.
    Constant(Option<i64>),
    /// One number per row.
    Column(Int64Array),
}

impl IntegerOperand {
    /// Returns the number of a row, unless it is null.
    pub(crate) fn get(&self, row: usize) -> Option<i64> {
        match self {
            IntegerOperand::Constant(number) => *number,
            IntegerOperand::Column(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        }
    }
}

/// A DOUBLE argument of a batch.
pub(crate) enum DoubleOperand {
    /// One number for all rows.
    Constant(Option<f64>),
    /// One number per row.
    Column(Float64Array),
}

impl DoubleOperand {
    /// Returns the value of a row, unless it is null.
    pub(crate) fn get(&self, row: usize) -> Option<f64> {
        match self {
            DoubleOperand::Constant(number) => *number,
            DoubleOperand::Column(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        }
    }
}

impl CallBatch {
    fn from_arguments(function: &ClosureFunction, args: &ScalarFunctionArgs, rows: usize) -> Self {
        let answer = args.return_field.data_type().clone();
        CallBatch {
            function_name: function.name,
            arguments: args.args.clone(),
            row_count: rows,
            return_type: answer,
        }
    }

    /// Returns the name under which the function is registered.
    pub(crate) fn function_name(&self) -> &'static str {
        self.function_name
    }

    /// Returns the result type that planning settled on.
    pub(crate) fn return_type(&self) -> &DataType {
        &self.return_type
    }

    /// Returns the number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.row_count
    }

    /// Returns the number of arguments.
    pub(crate) fn argument_count(&self) -> usize {
        self.arguments.len()
    }

    /// Returns an argument as DataFusion passed it, or `None` if there are fewer arguments.
    pub(crate) fn argument(&self, index: usize) -> Option<&ColumnarValue> {
        self.arguments.get(index)
    }

    /// Returns an argument as a column with one value per row.
    pub(crate) fn argument_column(&self, index: usize) -> PlanResult<ArrayRef> {
        match self.arguments.get(index) {
            Some(value) => value.to_array(self.row_count),
            None => Ok(arrow::array::new_null_array(&DataType::Null, self.row_count)),
        }
    }

    /// Returns an argument as texts, which are null for a missing argument.
    pub(crate) fn text_operand(&self, index: usize) -> PlanResult<TextOperand> {
        Ok(match self.arguments.get(index) {
            None => TextOperand::Constant(None),
            Some(ColumnarValue::Scalar(value)) => {
                TextOperand::Constant(value.try_as_str().flatten().map(str::to_owned))
            }
            Some(ColumnarValue::Array(array)) => TextOperand::Column(cast_to_views(array)?),
        })
    }

    /// Returns an argument as integers, which are null for a missing argument.
    pub(crate) fn integer_operand(&self, index: usize) -> PlanResult<IntegerOperand> {
        Ok(match self.arguments.get(index) {
            None => IntegerOperand::Constant(None),
            Some(ColumnarValue::Scalar(value)) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(number) => IntegerOperand::Constant(number),
                _ => IntegerOperand::Constant(None),
            },
            Some(ColumnarValue::Array(array)) => {
                let numbers = cast_with_options(array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
                IntegerOperand::Column(numbers.as_primitive::<Int64Type>().clone())
            }
        })
    }

    /// Returns an argument as DOUBLEs, which are null for a missing argument.
    pub(crate) fn double_operand(&self, index: usize) -> PlanResult<DoubleOperand> {
        Ok(match self.arguments.get(index) {
            None => DoubleOperand::Constant(None),
            Some(ColumnarValue::Scalar(value)) => match value.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(number) => DoubleOperand::Constant(number),
                _ => DoubleOperand::Constant(None),
            },
            Some(ColumnarValue::Array(array)) => {
                let numbers = cast_with_options(array, &DataType::Float64, &STRICT_CAST_OPTIONS)?;
                DoubleOperand::Column(numbers.as_primitive::<Float64Type>().clone())
            }
        })
    }

    /// Builds a text column from slices that `of` borrows from the row's arguments.
    pub(crate) fn build_borrowed_texts<'a>(
        &self,
        mut of: impl FnMut(usize) -> PlanResult<Option<&'a str>>,
    ) -> PlanResult<ArrayRef> {
        let mut made = StringViewBuilder::with_capacity(self.row_count);
        for row in 0..self.row_count {
            match of(row)? {
                Some(text) => made.try_append_value(text)?,
                None => made.append_null(),
            }
        }
        Ok(Arc::new(made.finish()))
    }

    /// Builds a text column from texts that `of` writes into an empty string. A row is null if `of` returns
    /// false.
    pub(crate) fn build_texts(
        &self,
        mut of: impl FnMut(usize, &mut String) -> PlanResult<bool>,
    ) -> PlanResult<ArrayRef> {
        let mut made = StringViewBuilder::with_capacity(self.row_count);
        let mut text = String::new();
        for row in 0..self.row_count {
            text.clear();
            match of(row, &mut text)? {
                true => made.try_append_value(&text)?,
                false => made.append_null(),
            }
        }
        Ok(Arc::new(made.finish()))
    }

    /// Builds a column of text lists from items that `of` appends. A row is null if `of` returns false.
    pub(crate) fn build_text_lists(
        &self,
        mut of: impl FnMut(usize, &mut TextListBuilder) -> PlanResult<bool>,
    ) -> PlanResult<ArrayRef> {
        let mut lists =
            TextListBuilder { lists: ListBuilder::new(StringViewBuilder::new()), item_count: 0 };
        for row in 0..self.row_count {
            let is_list = of(row, &mut lists)?;
            lists.lists.append(is_list);
        }
        let lists: ListArray = lists.lists.finish();
        Ok(Arc::new(lists))
    }

    /// Builds a boolean column.
    pub(crate) fn build_booleans(
        &self,
        of: impl FnMut(usize) -> PlanResult<Option<bool>>,
    ) -> PlanResult<ArrayRef> {
        let flags: BooleanArray = (0..self.row_count).map(of).collect::<PlanResult<_>>()?;
        Ok(Arc::new(flags))
    }

    /// Builds a DOUBLE column.
    pub(crate) fn build_doubles(
        &self,
        of: impl FnMut(usize) -> PlanResult<Option<f64>>,
    ) -> PlanResult<ArrayRef> {
        let numbers: Float64Array = (0..self.row_count).map(of).collect::<PlanResult<_>>()?;
        Ok(Arc::new(numbers))
    }

    /// Builds a BIGINT column.
    pub(crate) fn build_integers(
        &self,
        of: impl FnMut(usize) -> PlanResult<Option<i64>>,
    ) -> PlanResult<ArrayRef> {
        let numbers: Int64Array = (0..self.row_count).map(of).collect::<PlanResult<_>>()?;
        Ok(Arc::new(numbers))
    }
}

/// A builder of one list of texts per row.
pub(crate) struct TextListBuilder {
    lists: ListBuilder<StringViewBuilder>,
    item_count: usize,
}

impl TextListBuilder {
    /// Appends an item to the list of the current row.
    pub(crate) fn append_item(&mut self, item: Option<&str>) -> PlanResult<()> {
        self.item_count += 1;
        check_item_count(self.item_count)?;
        match item {
            Some(item) => self.lists.values().try_append_value(item)?,
            None => self.lists.values().append_null(),
        }
        Ok(())
    }
}

/// Fails if the lists of a batch have more items than a 32-bit Arrow offset can count.
pub(crate) fn check_item_count(count: usize) -> PlanResult<()> {
    const ITEMS_MAX: usize = i32::MAX as usize;
    match count <= ITEMS_MAX {
        true => Ok(()),
        false => Err(query_error(
            "the lists of these rows have more than 2,147,483,647 items",
            "a condition leaves rows out: WHERE octet_length(x) < 1000000",
        )),
    }
}

/// Casts texts of any layout to views.
pub(crate) fn cast_to_views(array: &ArrayRef) -> PlanResult<StringViewArray> {
    Ok(match array.as_string_view_opt() {
        Some(views) => views.clone(),
        None => cast_with_options(array, &DataType::Utf8View, &STRICT_CAST_OPTIONS)?
            .as_string_view()
            .clone(),
    })
}

/// Formats values of any type as texts.
pub(crate) fn format_as_texts(array: &ArrayRef) -> PlanResult<StringViewArray> {
    if is_text_type(array.data_type()) || array.data_type().is_null() {
        return cast_to_views(array);
    }
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(array, &options)?;
    let mut made = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            made.append_null();
            continue;
        }
        text.clear();
        if shown.value(row).write(&mut text).is_err() {
            return Err(query_error(
                format!("a value of type {} cannot be shown", sql_type_name(array.data_type())),
                "it is outside of the years that calendars have",
            ));
        }
        made.try_append_value(&text)?;
    }
    Ok(made.finish())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, StringArray};
    use arrow::datatypes::Int32Type;
    use datafusion_common::config::ConfigOptions;

    /// Finds the function of a name or alias.
    pub(crate) fn find_function(name: &str) -> ScalarUDF {
        let mut all = crate::scalar_functions();
        let found = all.find(|function| {
            function.name() == name || function.aliases().iter().any(|a| a == name)
        });
        found.unwrap_or_else(|| panic!("no function `{name}`"))
    }

    /// Calls a function with the steps in which DataFusion plans and evaluates a call.
    pub(crate) fn call_function(
        name: &str,
        args: Vec<ColumnarValue>,
        rows: usize,
    ) -> PlanResult<ArrayRef> {
        let function = find_function(name);
        let types: Vec<DataType> = args.iter().map(ColumnarValue::data_type).collect();
        let coerced = function.coerce_types(&types)?;
        let mut cast = Vec::new();
        for (value, to) in args.into_iter().zip(&coerced) {
            cast.push(value.cast_to(to, None)?);
        }
        let fields: Vec<FieldRef> =
            coerced.iter().map(|to| Arc::new(Field::new("x", to.clone(), true))).collect();
        let constants: Vec<Option<&ScalarValue>> = cast
            .iter()
            .map(|value| match value {
                ColumnarValue::Scalar(value) => Some(value),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let asked = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &constants };
        let return_field = function.return_field_from_args(asked)?;
        let made = function.invoke_with_args(ScalarFunctionArgs {
            args: cast,
            arg_fields: fields,
            number_rows: rows,
            return_field: Arc::clone(&return_field),
            config_options: Arc::new(ConfigOptions::default()),
        })?;
        assert_eq!(&made.data_type(), return_field.data_type(), "{name}");
        made.to_array(rows)
    }

    /// Returns a text constant for [`call_in_all_forms`].
    pub(crate) fn text_constant(text: &str) -> ScalarValue {
        ScalarValue::from(text)
    }

    /// Calls a function with constants, and again with a column of each text layout, which must give the
    /// same. Returns the result as text: `NULL` for null, lists in brackets with `''` for empty texts, errors
    /// by their message.
    pub(crate) fn call_in_all_forms(name: &str, args: &[ScalarValue]) -> String {
        let told = |made: PlanResult<ArrayRef>| match made {
            Ok(array) => format_value(&array, 0),
            Err(error) => error_message(error),
        };
        let scalars: Vec<ColumnarValue> = args.iter().cloned().map(ColumnarValue::Scalar).collect();
        let expected = told(call_function(name, scalars.clone(), 1));
        // The first argument becomes a column of three rows; the second row is null unless null has its own
        // result.
        let function = find_function(name);
        let is_strict =
            function.inner().downcast_ref::<ClosureFunction>().unwrap().null_propagation
                != NullPropagation::Never;
        if let Some(Some(first)) = args.first().map(ScalarValue::try_as_str) {
            let middle = first.filter(|_| !is_strict);
            let plain: ArrayRef = Arc::new(StringArray::from(vec![first, middle, first]));
            let coded: DictionaryArray<Int32Type> = [first, middle, first].into_iter().collect();
            let shapes = [
                Arc::clone(&plain),
                cast_with_options(&plain, &DataType::LargeUtf8, &STRICT_CAST_OPTIONS).unwrap(),
                cast_with_options(&plain, &DataType::Utf8View, &STRICT_CAST_OPTIONS).unwrap(),
                Arc::new(coded),
            ];
            for shape in shapes {
                let shape_type = shape.data_type().clone();
                let all = std::iter::once(ColumnarValue::Array(shape));
                let made =
                    call_function(name, all.chain(scalars[1..].iter().cloned()).collect(), 3);
                if let Ok(array) = &made {
                    assert_eq!(array.len(), 3, "{name}");
                    assert_eq!(format_value(array, 2), expected, "{name} of {shape_type}");
                }
                assert_eq!(told(made), expected, "{name} of {shape_type}");
            }
        }
        expected
    }

    /// Formats the value of a row.
    pub(crate) fn format_value(array: &ArrayRef, row: usize) -> String {
        if array.is_null(row) {
            return "NULL".into();
        }
        match array.data_type() {
            DataType::List(_) => {
                let items = array.as_list::<i32>().value(row);
                let shown = (0..items.len()).map(|item| match format_value(&items, item) {
                    none if none.is_empty() => "''".to_owned(),
                    item => item,
                });
                format!("[{}]", shown.collect::<Vec<_>>().join(", "))
            }
            _ => arrow::util::display::array_value_to_string(array, row).unwrap(),
        }
    }

    /// Returns an error's message as the user sees it.
    pub(crate) fn error_message(error: DataFusionError) -> String {
        match error {
            DataFusionError::External(error) => error.to_string(),
            other => format!("not in our words: {other}"),
        }
    }

    /// Checks the results of calls with text arguments.
    pub(crate) fn check_text_calls(rows: &[(&str, &[&str], &str)]) {
        for (name, args, expected) in rows {
            let args: Vec<ScalarValue> =
                args.iter().map(|argument| text_constant(argument)).collect();
            assert_eq!(call_in_all_forms(name, &args), *expected, "{name}{args:?}");
        }
    }

    #[test]
    fn wrong_arguments_error_names_the_syntax() {
        for (name, args, expected) in [
            (
                "regexp_matches",
                vec![text_constant("a")],
                "`regexp_matches` takes other arguments\nhint: it is called as regexp_matches(text, pattern), regexp_matches(text, pattern, options)",
            ),
            (
                "regexp_matches",
                vec![ScalarValue::from(1_i64), text_constant("a")],
                "`regexp_matches` takes a TEXT as its first argument, and this is a BIGINT\nhint: CAST(x AS TEXT) makes one; it is called as regexp_matches(text, pattern), regexp_matches(text, pattern, options)",
            ),
        ] {
            assert_eq!(call_in_all_forms(name, &args), expected);
        }
    }

    /// Compares a whole batch with single-row batches, for few and many distinct texts with nulls, in each
    /// layout.
    #[test]
    fn repeated_texts_give_same_results_as_single_rows() {
        for different in [1, 3, 40, 130, 1000] {
            let texts: Vec<Option<String>> = (0..1000)
                .map(|row| (row * 7919) % different)
                .map(|value| {
                    (value % 5 != 2)
                        .then(|| format!("https://h{value}.example/p{value}?id={value}"))
                })
                .collect();
            let plain: ArrayRef = Arc::new(StringArray::from(texts.clone()));
            for to in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
                let column = cast_with_options(&plain, &to, &STRICT_CAST_OPTIONS).unwrap();
                for (name, rest) in [
                    ("regexp_extract", &["id=(\\d+)"][..]),
                    ("url_extract_host", &[]),
                    ("is_private", &[]),
                ] {
                    let rest =
                        rest.iter().map(|argument| ColumnarValue::Scalar(text_constant(argument)));
                    let of = |column: ArrayRef, rows| {
                        let all = std::iter::once(ColumnarValue::Array(column));
                        call_function(name, all.chain(rest.clone()).collect(), rows)
                    };
                    let Ok(all) = of(Arc::clone(&column), 1000) else { continue };
                    for row in 0..1000 {
                        let single = of(column.slice(row, 1), 1).unwrap();
                        assert_eq!(
                            format_value(&all, row),
                            format_value(&single, 0),
                            "{name} {row}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn function_names_are_unique_and_documented() {
        let mut names = std::collections::BTreeSet::new();
        for function in crate::scalar_functions() {
            assert!(function.documentation().is_some(), "{}", function.name());
            let aliases = function.aliases().iter().map(String::as_str);
            for name in aliases.chain([function.name()]) {
                assert_eq!(name, name.to_lowercase());
                assert!(names.insert(name.to_owned()), "{name} twice");
            }
        }
    }
}
