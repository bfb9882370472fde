//! Deduplication of the texts in a batch, so that an expensive function runs once per distinct text.
//!
//! The columns of a log have few distinct values. A pattern match or a distance costs hundreds of nanoseconds
//! per text, while finding a text among the earlier ones takes ten. The first rows of a batch decide whether
//! deduplication pays.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::Result as PlanResult;
use datafusion_common::config::ConfigOptions;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use hashbrown::HashMap;

/// DataFusion functions of a text that cost much more than a hash lookup of the text.
pub const DEDUPLICATED_FUNCTIONS: [&str; 6] = [
    "levenshtein",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
];

/// The distinct texts of a batch.
pub(crate) struct DistinctTexts {
    /// Index of the argument that holds the texts.
    pub(crate) argument_index: usize,
    pub(crate) texts: ArrayRef,
    /// Index into `texts` for each row.
    pub(crate) text_indices: UInt32Array,
}

impl DistinctTexts {
    /// Deduplicates the only column among the arguments. Returns `None` if it is not text or has many
    /// distinct values.
    pub(crate) fn from_arguments(args: &ScalarFunctionArgs) -> PlanResult<Option<Self>> {
        let Some((index, column)) = find_only_column(args) else { return Ok(None) };
        let found = match column.data_type() {
            DataType::Utf8 => find_few_distinct(column.as_string::<i32>().iter()),
            DataType::LargeUtf8 => find_few_distinct(column.as_string::<i64>().iter()),
            DataType::Utf8View => find_few_distinct(column.as_string_view().iter()),
            _ => None,
        };
        let Some((firsts, of_rows)) = found else { return Ok(None) };
        Ok(Some(DistinctTexts {
            argument_index: index,
            texts: take(column, &firsts, None)?,
            text_indices: of_rows,
        }))
    }
}

/// Returns the index and the array of the only argument that is a column, if there is exactly one.
pub(crate) fn find_only_column(args: &ScalarFunctionArgs) -> Option<(usize, &ArrayRef)> {
    let mut columns = args.args.iter().enumerate().filter_map(|(index, value)| match value {
        ColumnarValue::Array(array) => Some((index, array)),
        ColumnarValue::Scalar(_) => None,
    });
    let first = columns.next();
    first.filter(|_| columns.next().is_none())
}

/// Returns the first row of each distinct text and, for each row, the index of its text. Returns `None` if
/// the first rows show that most texts differ. NULL counts as one distinct text.
fn find_few_distinct<'a>(
    texts: impl ExactSizeIterator<Item = Option<&'a str>>,
) -> Option<(UInt32Array, UInt32Array)> {
    /// Minimum rows of a batch; below this, deduplication costs more than it saves.
    const ROWS_MIN: usize = 64;
    /// Rows after which each distinct text must have occurred at least `ROWS_PER_TEXT_MIN` times on average.
    const ROWS_TRIED: usize = 512;
    const ROWS_PER_TEXT_MIN: usize = 4;
    let rows = texts.len();
    if rows < ROWS_MIN {
        return None;
    }
    let mut known: HashMap<Option<&str>, u32> =
        HashMap::with_capacity(ROWS_TRIED / ROWS_PER_TEXT_MIN);
    let mut firsts: Vec<u32> = Vec::new();
    let mut of_rows: Vec<u32> = Vec::with_capacity(rows);
    for (row, text) in texts.enumerate() {
        if (row == ROWS_TRIED || row == rows / 2) && firsts.len() * ROWS_PER_TEXT_MIN > row {
            return None;
        }
        let next = u32::try_from(firsts.len()).ok()?;
        let place = *known.entry(text).or_insert(next);
        if place == next {
            firsts.push(u32::try_from(row).ok()?);
        }
        of_rows.push(place);
    }
    Some((firsts.into(), of_rows.into()))
}

/// A DataFusion function that runs once per distinct text of a batch.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeduplicatedFunction {
    pub(crate) inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for DeduplicatedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        self.inner.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.coerce_types(given)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let theirs = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(ScalarUDF::from(DeduplicatedFunction { inner: theirs }))
    }

    fn return_type(&self, taken: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(taken)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        self.inner.inner().simplify(args, info)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let Some(DistinctTexts { argument_index: index, texts, text_indices: of_rows }) =
            DistinctTexts::from_arguments(&args)?
        else {
            return self.inner.invoke_with_args(args);
        };
        args.number_rows = texts.len();
        args.args[index] = ColumnarValue::Array(texts);
        Ok(match self.inner.invoke_with_args(args)? {
            ColumnarValue::Array(made) => ColumnarValue::Array(take(&made, &of_rows, None)?),
            constant @ ColumnarValue::Scalar(_) => constant,
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
