//! What the functions of texts share: how one is described, which arguments it takes, and how its rows are had.
//!
//! A [`Function`] says what it is called, what it takes and what it answers; DataFusion meets it as a
//! [`ScalarUDF`]. Text comes in any of Arrow's four shapes and is read as views. Where the only column among
//! the arguments is coded, each of its values is worked on once and the rows take what their code says; and
//! where it is text of which many rows have the same, each text of a batch is worked on once: what these
//! functions do to one costs several times the look for it.

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

use crate::repeated::{Repeated, only_column};

/// What an argument has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text, of any of Arrow's shapes.
    Text,
    /// A text, or a list of texts.
    Texts,
    /// A text or a whole number.
    Key,
    /// A whole number; comes as a BIGINT.
    Integer,
    /// A number; comes as a DOUBLE.
    Number,
    /// A group of a regular expression, a whole number; names of groups are arguments of other functions.
    Group,
    /// Of any type, as it is.
    Any,
}

impl Kind {
    fn told(self) -> &'static str {
        match self {
            Kind::Text => "a TEXT",
            Kind::Texts => "a TEXT or a list of them",
            Kind::Key => "a TEXT or a whole number",
            Kind::Integer => "a whole number",
            Kind::Number => "a number",
            Kind::Group => "a whole number or a list of constant names",
            Kind::Any => "any value",
        }
    }

    fn takes(self, given: &DataType) -> bool {
        match self {
            _ if given.is_null() => true,
            Kind::Text => is_text(given),
            Kind::Texts => is_text(given) || items(given).is_some_and(is_text),
            Kind::Key => is_text(given) || *given == DataType::Int64,
            Kind::Integer | Kind::Group => *given == DataType::Int64,
            Kind::Number => *given == DataType::Float64,
            Kind::Any => true,
        }
    }

    /// What an argument is cast to before it comes.
    fn coerced(self, given: &DataType) -> DataType {
        match self {
            Kind::Any => given.clone(),
            Kind::Text | Kind::Texts | Kind::Key if given.is_null() => DataType::Utf8View,
            Kind::Integer | Kind::Group if given.is_integer() || given.is_null() => DataType::Int64,
            Kind::Number if given.is_numeric() || given.is_null() => DataType::Float64,
            Kind::Key if given.is_integer() => DataType::Int64,
            Kind::Texts => match items(given) {
                Some(item) if is_text(item) && *item != DataType::Utf8View => {
                    list_of(DataType::Utf8View)
                }
                _ => given.clone(),
            },
            Kind::Text | Kind::Key | Kind::Integer | Kind::Number | Kind::Group => given.clone(),
        }
    }
}

/// Whether values of a type are texts.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// The type of a list's items.
fn items(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// The type of a list.
pub(crate) fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// A mistake in a query, as DataFusion hands it on.
pub(crate) fn refused(message: impl Into<String>, hint: impl Into<String>) -> DataFusionError {
    DataFusionError::External(Box::new(Error::usage_with_hint(message, hint)))
}

/// A value that a function does not take, as DataFusion hands it on.
pub(crate) fn failed(message: impl fmt::Display, hint: &str) -> DataFusionError {
    DataFusionError::External(Box::new(Error::Query(format!("{message}\nhint: {hint}"))))
}

/// A value for a message, cut where it is long.
pub(crate) fn shown(value: &str) -> String {
    const LETTERS_MAX: usize = 60;
    match value.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
    .replace(['\n', '\r'], " ")
}

/// What is known of a call when it is planned.
pub(crate) struct Asked<'a> {
    name: &'static str,
    args: &'a ReturnFieldArgs<'a>,
}

impl Asked<'_> {
    /// How many arguments there are.
    pub(crate) fn count(&self) -> usize {
        self.args.arg_fields.len()
    }

    /// An argument's type; that of NULL where there is none.
    pub(crate) fn data_type(&self, index: usize) -> &DataType {
        self.args.arg_fields.get(index).map_or(&DataType::Null, |field| field.data_type())
    }

    /// The text that an argument is, where it is a constant and not null.
    pub(crate) fn text(&self, index: usize) -> Option<&str> {
        self.args.scalar_arguments.get(index)?.as_ref()?.try_as_str().flatten()
    }

    /// The number that an argument is, where it is a constant and not null.
    pub(crate) fn integer(&self, index: usize) -> Option<i64> {
        match self.args.scalar_arguments.get(index)?.as_ref()?.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        }
    }

    /// The name that the function is called by.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

type Settles = Box<dyn Fn(&Asked<'_>) -> PlanResult<DataType> + Send + Sync>;
type Runs = Box<dyn Fn(&Call) -> PlanResult<ArrayRef> + Send + Sync>;

/// Arguments whose null makes the answer null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    OfAny,
    OfFirst,
    OfNone,
}

/// A function of one row's values.
pub(crate) struct Function {
    name: &'static str,
    aliases: Vec<String>,
    told: Documentation,
    signature: Signature,
    takes: &'static [Kind],
    least: usize,
    rest: Option<Kind>,
    nulls: Nulls,
    settles: Settles,
    runs: Runs,
}

impl Function {
    /// A function that is called as `calls` say, the first of which names it, and `what` it gives.
    pub(crate) fn new(section: &'static str, calls: &[&'static str], what: &str) -> Self {
        let first = calls.first().copied().unwrap_or_default();
        let name = first.split('(').next().unwrap_or_default();
        let section = DocSection { include: true, label: section, description: None };
        let told = Documentation::builder(section, what, calls.join("\n"));
        Function {
            name,
            aliases: Vec::new(),
            told: told.build(),
            signature: Signature::user_defined(Volatility::Immutable),
            takes: &[],
            least: 0,
            rest: None,
            nulls: Nulls::OfAny,
            settles: Box::new(|_| Ok(DataType::Utf8View)),
            runs: Box::new(|call| Err(failed(format!("`{}` has no body", call.name), ""))),
        }
    }

    /// Other names.
    pub(crate) fn also(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        self
    }

    /// What it takes, `least` of them always.
    pub(crate) fn takes(mut self, takes: &'static [Kind], least: usize) -> Self {
        self.takes = takes;
        self.least = least;
        self
    }

    /// What it takes any number of behind the others.
    pub(crate) fn and_more(mut self, rest: Kind) -> Self {
        self.rest = Some(rest);
        self
    }

    /// It answers nulls, too.
    pub(crate) fn of_nulls(mut self) -> Self {
        self.nulls = Nulls::OfNone;
        self
    }

    /// It answers nulls behind the first argument, too.
    pub(crate) fn of_nulls_behind(mut self) -> Self {
        self.nulls = Nulls::OfFirst;
        self
    }

    /// The type of its answers, where that is not TEXT.
    pub(crate) fn gives(self, data_type: DataType) -> Self {
        self.settles(move |_| Ok(data_type.clone()))
    }

    /// Tells the type of its answers, and what is wrong with constants.
    pub(crate) fn settles(
        mut self,
        settles: impl Fn(&Asked<'_>) -> PlanResult<DataType> + Send + Sync + 'static,
    ) -> Self {
        self.settles = Box::new(settles);
        self
    }

    /// Makes the answers.
    pub(crate) fn runs(
        mut self,
        runs: impl Fn(&Call) -> PlanResult<ArrayRef> + Send + Sync + 'static,
    ) -> ScalarUDF {
        self.runs = Box::new(runs);
        ScalarUDF::from(self)
    }

    fn kind(&self, index: usize) -> Option<Kind> {
        self.takes.get(index).copied().or(self.rest)
    }

    fn calls(&self) -> String {
        self.told.syntax_example.lines().collect::<Vec<_>>().join(", ")
    }

    /// The answers by the texts that are in a batch, where texts are the only column and few are different.
    fn by_text(&self, args: &ScalarFunctionArgs) -> PlanResult<Option<ArrayRef>> {
        let Some(Repeated { index, texts, of_rows }) = Repeated::of(args)? else { return Ok(None) };
        let mut call = Call::of(self, args, texts.len());
        call.values[index] = ColumnarValue::Array(texts);
        Ok(Some(take(&(self.runs)(&call)?, &of_rows, None)?))
    }

    /// The answers by the values of a dictionary, where one is the only column.
    fn by_code(&self, args: &ScalarFunctionArgs) -> PlanResult<Option<ArrayRef>> {
        let Some((index, column)) = only_column(args) else { return Ok(None) };
        let is_strict = match self.nulls {
            Nulls::OfAny => true,
            Nulls::OfFirst => index == 0,
            Nulls::OfNone => false,
        };
        let Some(coded) = column.as_any_dictionary_opt().filter(|_| is_strict) else {
            return Ok(None);
        };
        if coded.values().len() > args.number_rows {
            return Ok(None);
        }
        let mut call = Call::of(self, args, coded.values().len());
        call.values[index] = ColumnarValue::Array(Arc::clone(coded.values()));
        match (self.runs)(&call) {
            Ok(made) => Ok(Some(take(&made, coded.keys(), None)?)),
            // A value that no row has may be at fault.
            Err(_) => Ok(None),
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
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

    /// Types that do not fit are left as they are: what is refused here loses its hint on the way.
    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        let coerced = arguments.iter().enumerate().map(|(index, given)| match self.kind(index) {
            Some(kind) => kind.coerced(given),
            None => given.clone(),
        });
        Ok(coerced.collect())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let count = args.arg_fields.len();
        if count < self.least || (count > self.takes.len() && self.rest.is_none()) {
            return Err(refused(
                format!("`{}` takes other arguments", self.name),
                format!("it is called as {}", self.calls()),
            ));
        }
        for (index, field) in args.arg_fields.iter().enumerate() {
            let given = field.data_type();
            if let Some(kind) = self.kind(index).filter(|kind| !kind.takes(given)) {
                return Err(refused(
                    format!(
                        "`{}` takes {} as its {} argument, and this is a {}",
                        self.name,
                        kind.told(),
                        nth(index),
                        sql_type_name(given)
                    ),
                    match kind {
                        Kind::Group => format!(
                            "names are written out: ['key', 'value']; it is called as {}",
                            self.calls()
                        ),
                        Kind::Integer => {
                            format!("CAST(x AS BIGINT) makes one; it is called as {}", self.calls())
                        }
                        Kind::Number => {
                            format!("CAST(x AS DOUBLE) makes one; it is called as {}", self.calls())
                        }
                        _ => format!("CAST(x AS TEXT) makes one; it is called as {}", self.calls()),
                    },
                ));
            }
        }
        let answer = (self.settles)(&Asked { name: self.name, args: &args })?;
        Ok(Arc::new(Field::new(self.name, answer, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        if let Some(made) = self.by_code(&args)? {
            return Ok(ColumnarValue::Array(made));
        }
        if let Some(made) = self.by_text(&args)? {
            return Ok(ColumnarValue::Array(made));
        }
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let call = Call::of(self, &args, if is_constant { 1 } else { args.number_rows });
        let made = (self.runs)(&call)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.told)
    }
}

fn nth(index: usize) -> String {
    match index {
        0 => "first".into(),
        1 => "second".into(),
        2 => "third".into(),
        more => format!("{}th", more + 1),
    }
}

/// A batch of rows that a function is asked of.
pub(crate) struct Call {
    name: &'static str,
    values: Vec<ColumnarValue>,
    rows: usize,
    answer: DataType,
}

/// The texts of an argument.
pub(crate) enum Texts {
    /// The same for each row.
    Constant(Option<String>),
    /// One for each row.
    Column(StringViewArray),
}

impl Texts {
    /// That of a row, unless it is null.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Texts::Constant(text) => text.as_deref(),
            Texts::Column(texts) => texts.is_valid(row).then(|| texts.value(row)),
        }
    }

    /// The text, where it is the same for each row and not null.
    pub(crate) fn constant(&self) -> Option<&str> {
        match self {
            Texts::Constant(text) => text.as_deref(),
            Texts::Column(_) => None,
        }
    }
}

/// The numbers of an argument.
pub(crate) enum Integers {
    /// The same for each row.
    Constant(Option<i64>),
    /// One for each row.
    Column(Int64Array),
}

impl Integers {
    /// That of a row, unless it is null.
    pub(crate) fn get(&self, row: usize) -> Option<i64> {
        match self {
            Integers::Constant(number) => *number,
            Integers::Column(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        }
    }
}

/// DOUBLEs of an argument.
pub(crate) enum Doubles {
    /// The same for each row.
    Constant(Option<f64>),
    /// One for each row.
    Column(Float64Array),
}

impl Doubles {
    /// Returns the value of a row, unless it is null.
    pub(crate) fn get(&self, row: usize) -> Option<f64> {
        match self {
            Doubles::Constant(number) => *number,
            Doubles::Column(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        }
    }
}

impl Call {
    fn of(function: &Function, args: &ScalarFunctionArgs, rows: usize) -> Self {
        let answer = args.return_field.data_type().clone();
        Call { name: function.name, values: args.args.clone(), rows, answer }
    }

    /// The name that the function is registered by.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The type that was promised for the answers.
    pub(crate) fn answer(&self) -> &DataType {
        &self.answer
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many arguments there are.
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// An argument as it comes; none behind the last.
    pub(crate) fn value(&self, index: usize) -> Option<&ColumnarValue> {
        self.values.get(index)
    }

    /// An argument as a column of one value a row.
    pub(crate) fn column(&self, index: usize) -> PlanResult<ArrayRef> {
        match self.values.get(index) {
            Some(value) => value.to_array(self.rows),
            None => Ok(arrow::array::new_null_array(&DataType::Null, self.rows)),
        }
    }

    /// An argument as texts; nulls where there is none.
    pub(crate) fn texts(&self, index: usize) -> PlanResult<Texts> {
        Ok(match self.values.get(index) {
            None => Texts::Constant(None),
            Some(ColumnarValue::Scalar(value)) => {
                Texts::Constant(value.try_as_str().flatten().map(str::to_owned))
            }
            Some(ColumnarValue::Array(array)) => Texts::Column(views(array)?),
        })
    }

    /// An argument as whole numbers; nulls where there is none.
    pub(crate) fn integers(&self, index: usize) -> PlanResult<Integers> {
        Ok(match self.values.get(index) {
            None => Integers::Constant(None),
            Some(ColumnarValue::Scalar(value)) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(number) => Integers::Constant(number),
                _ => Integers::Constant(None),
            },
            Some(ColumnarValue::Array(array)) => {
                let numbers = cast_with_options(array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
                Integers::Column(numbers.as_primitive::<Int64Type>().clone())
            }
        })
    }

    /// An argument as DOUBLEs; nulls where there is none.
    pub(crate) fn doubles(&self, index: usize) -> PlanResult<Doubles> {
        Ok(match self.values.get(index) {
            None => Doubles::Constant(None),
            Some(ColumnarValue::Scalar(value)) => match value.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(number) => Doubles::Constant(number),
                _ => Doubles::Constant(None),
            },
            Some(ColumnarValue::Array(array)) => {
                let numbers = cast_with_options(array, &DataType::Float64, &STRICT_CAST_OPTIONS)?;
                Doubles::Column(numbers.as_primitive::<Float64Type>().clone())
            }
        })
    }

    /// Answers that are parts of a row's own texts.
    pub(crate) fn parts<'a>(
        &self,
        mut of: impl FnMut(usize) -> PlanResult<Option<&'a str>>,
    ) -> PlanResult<ArrayRef> {
        let mut made = StringViewBuilder::with_capacity(self.rows);
        for row in 0..self.rows {
            match of(row)? {
                Some(text) => made.try_append_value(text)?,
                None => made.append_null(),
            }
        }
        Ok(Arc::new(made.finish()))
    }

    /// Answers that are written into a text, which is empty before; none where `false` is returned.
    pub(crate) fn written(
        &self,
        mut of: impl FnMut(usize, &mut String) -> PlanResult<bool>,
    ) -> PlanResult<ArrayRef> {
        let mut made = StringViewBuilder::with_capacity(self.rows);
        let mut text = String::new();
        for row in 0..self.rows {
            text.clear();
            match of(row, &mut text)? {
                true => made.try_append_value(&text)?,
                false => made.append_null(),
            }
        }
        Ok(Arc::new(made.finish()))
    }

    /// Answers that are lists of texts, appended to what `of` is given; no list where `false` is returned.
    pub(crate) fn lists(
        &self,
        mut of: impl FnMut(usize, &mut Items) -> PlanResult<bool>,
    ) -> PlanResult<ArrayRef> {
        let mut lists = Items { made: ListBuilder::new(StringViewBuilder::new()), count: 0 };
        for row in 0..self.rows {
            let is_list = of(row, &mut lists)?;
            lists.made.append(is_list);
        }
        let lists: ListArray = lists.made.finish();
        Ok(Arc::new(lists))
    }

    /// Answers that are true or false.
    pub(crate) fn flags(
        &self,
        of: impl FnMut(usize) -> PlanResult<Option<bool>>,
    ) -> PlanResult<ArrayRef> {
        let flags: BooleanArray = (0..self.rows).map(of).collect::<PlanResult<_>>()?;
        Ok(Arc::new(flags))
    }

    /// Answers that are DOUBLEs.
    pub(crate) fn measures(
        &self,
        of: impl FnMut(usize) -> PlanResult<Option<f64>>,
    ) -> PlanResult<ArrayRef> {
        let numbers: Float64Array = (0..self.rows).map(of).collect::<PlanResult<_>>()?;
        Ok(Arc::new(numbers))
    }

    /// Answers that are whole numbers.
    pub(crate) fn numbers(
        &self,
        of: impl FnMut(usize) -> PlanResult<Option<i64>>,
    ) -> PlanResult<ArrayRef> {
        let numbers: Int64Array = (0..self.rows).map(of).collect::<PlanResult<_>>()?;
        Ok(Arc::new(numbers))
    }
}

/// The lists of a batch while they are made.
pub(crate) struct Items {
    made: ListBuilder<StringViewBuilder>,
    count: usize,
}

impl Items {
    /// Adds an item to the row's list.
    pub(crate) fn add(&mut self, item: Option<&str>) -> PlanResult<()> {
        self.count += 1;
        check_items(self.count)?;
        match item {
            Some(item) => self.made.values().try_append_value(item)?,
            None => self.made.values().append_null(),
        }
        Ok(())
    }
}

/// Refuses more items in the lists of a batch than Arrow counts in 32 bits.
pub(crate) fn check_items(count: usize) -> PlanResult<()> {
    const ITEMS_MAX: usize = i32::MAX as usize;
    match count <= ITEMS_MAX {
        true => Ok(()),
        false => Err(failed(
            "the lists of these rows have more than 2,147,483,647 items",
            "a condition leaves rows out: WHERE octet_length(x) < 1000000",
        )),
    }
}

/// Texts of any shape as views.
pub(crate) fn views(array: &ArrayRef) -> PlanResult<StringViewArray> {
    Ok(match array.as_string_view_opt() {
        Some(views) => views.clone(),
        None => cast_with_options(array, &DataType::Utf8View, &STRICT_CAST_OPTIONS)?
            .as_string_view()
            .clone(),
    })
}

/// Values of any type as they are shown.
pub(crate) fn as_texts(array: &ArrayRef) -> PlanResult<StringViewArray> {
    if is_text(array.data_type()) || array.data_type().is_null() {
        return views(array);
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
            return Err(failed(
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

    /// The function that is called so.
    pub(crate) fn function(name: &str) -> ScalarUDF {
        let mut all = crate::scalar_functions();
        let found = all.find(|function| {
            function.name() == name || function.aliases().iter().any(|a| a == name)
        });
        found.unwrap_or_else(|| panic!("no function `{name}`"))
    }

    /// What a function makes of arguments, planned as DataFusion plans a call.
    pub(crate) fn called(
        name: &str,
        args: Vec<ColumnarValue>,
        rows: usize,
    ) -> PlanResult<ArrayRef> {
        let function = function(name);
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

    /// A constant for [`answer`].
    pub(crate) fn text(text: &str) -> ScalarValue {
        ScalarValue::from(text)
    }

    /// What a call of constants answers as text, and the same of a column of each shape: `NULL` for null, lists
    /// in brackets with `''` for empty texts, errors by their message.
    pub(crate) fn answer(name: &str, args: &[ScalarValue]) -> String {
        let told = |made: PlanResult<ArrayRef>| match made {
            Ok(array) => shown_value(&array, 0),
            Err(error) => told(error),
        };
        let scalars: Vec<ColumnarValue> = args.iter().cloned().map(ColumnarValue::Scalar).collect();
        let expected = told(called(name, scalars.clone(), 1));
        // The first argument as a column of three rows, the second of which is null if null has an answer.
        let function = function(name);
        let is_strict = function.inner().downcast_ref::<Function>().unwrap().nulls != Nulls::OfNone;
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
                let made = called(name, all.chain(scalars[1..].iter().cloned()).collect(), 3);
                if let Ok(array) = &made {
                    assert_eq!(array.len(), 3, "{name}");
                    assert_eq!(shown_value(array, 2), expected, "{name} of {shape_type}");
                }
                assert_eq!(told(made), expected, "{name} of {shape_type}");
            }
        }
        expected
    }

    /// A value as text.
    pub(crate) fn shown_value(array: &ArrayRef, row: usize) -> String {
        if array.is_null(row) {
            return "NULL".into();
        }
        match array.data_type() {
            DataType::List(_) => {
                let items = array.as_list::<i32>().value(row);
                let shown = (0..items.len()).map(|item| match shown_value(&items, item) {
                    none if none.is_empty() => "''".to_owned(),
                    item => item,
                });
                format!("[{}]", shown.collect::<Vec<_>>().join(", "))
            }
            _ => arrow::util::display::array_value_to_string(array, row).unwrap(),
        }
    }

    /// An error's message, as a user reads it.
    pub(crate) fn told(error: DataFusionError) -> String {
        match error {
            DataFusionError::External(error) => error.to_string(),
            other => format!("not in our words: {other}"),
        }
    }

    /// Calls of texts, and what they answer.
    pub(crate) fn check(rows: &[(&str, &[&str], &str)]) {
        for (name, args, expected) in rows {
            let args: Vec<ScalarValue> = args.iter().map(|argument| text(argument)).collect();
            assert_eq!(answer(name, &args), *expected, "{name}{args:?}");
        }
    }

    #[test]
    fn what_a_function_does_not_take_is_told_with_its_call() {
        for (name, args, expected) in [
            (
                "regexp_matches",
                vec![text("a")],
                "`regexp_matches` takes other arguments\nhint: it is called as regexp_matches(text, pattern), regexp_matches(text, pattern, options)",
            ),
            (
                "regexp_matches",
                vec![ScalarValue::from(1_i64), text("a")],
                "`regexp_matches` takes a TEXT as its first argument, and this is a BIGINT\nhint: CAST(x AS TEXT) makes one; it is called as regexp_matches(text, pattern), regexp_matches(text, pattern, options)",
            ),
        ] {
            assert_eq!(answer(name, &args), expected);
        }
    }

    /// Few texts and many, nulls among them, in each shape: as one row after the other.
    #[test]
    fn repeated_texts_are_answered_as_single_ones() {
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
                    let rest = rest.iter().map(|argument| ColumnarValue::Scalar(text(argument)));
                    let of = |column: ArrayRef, rows| {
                        let all = std::iter::once(ColumnarValue::Array(column));
                        called(name, all.chain(rest.clone()).collect(), rows)
                    };
                    let Ok(all) = of(Arc::clone(&column), 1000) else { continue };
                    for row in 0..1000 {
                        let single = of(column.slice(row, 1), 1).unwrap();
                        assert_eq!(shown_value(&all, row), shown_value(&single, 0), "{name} {row}");
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_told_once_and_described() {
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
