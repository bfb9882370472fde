//! One schema for the interim results and the result of a watched query.
//!
//! An interim result has two columns of bounds behind each estimate, and its estimates are DOUBLE. The result
//! of a query that may read all of its input has neither. A caller that takes one answer after the other gets
//! one schema: each column has the type of the result, followed by its bounds. In the result both bounds
//! equal the value.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use tidemill_base::coverage::BOUND_METADATA_KEY;
use tidemill_base::error::{Error, Result};

/// The columns of a result, with bounds behind each column that is an estimate until all of the input is
/// read.
#[derive(Debug)]
pub(crate) struct UniformResultSchema {
    schema: SchemaRef,
    /// True for each column of the result that has bounds behind it.
    column_has_bounds: Vec<bool>,
}

impl UniformResultSchema {
    /// Returns the common schema of a result and an interim result. Returns `None` if they have the same
    /// columns, or if the interim columns are not the result's columns with bounds behind some of them.
    pub(crate) fn new(result: &Schema, answer: &Schema) -> Option<Self> {
        if result.fields() == answer.fields() {
            return None;
        }
        let (mut fields, mut has_bounds) = (Vec::new(), Vec::new());
        let mut shown = answer.fields().iter().peekable();
        for own in result.fields() {
            if shown.next()?.name() != own.name() {
                return None;
            }
            let next_bound =
                || shown.next_if(|field| field.metadata().contains_key(BOUND_METADATA_KEY));
            let bounds: Vec<_> = std::iter::from_fn(next_bound).cloned().collect();
            if !matches!(bounds.len(), 0 | 2) {
                return None;
            }
            let is_nullable = own.is_nullable() || !bounds.is_empty();
            fields.push(Arc::new(own.as_ref().clone().with_nullable(is_nullable)));
            has_bounds.push(!bounds.is_empty());
            fields.extend(bounds);
        }
        let schema = Schema::new_with_metadata(fields, result.metadata().clone());
        shown.next().is_none().then(|| UniformResultSchema {
            schema: Arc::new(schema),
            column_has_bounds: has_bounds,
        })
    }

    /// Returns the schema.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a batch of the result, or of an interim result, with this schema.
    ///
    /// # Errors
    /// [`Error::Overflow`] for an estimate that does not fit the type of its column.
    pub(crate) fn conform_batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let is_result = batch.num_columns() == self.column_has_bounds.len();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        let mut given = batch.columns().iter();
        for has_bounds in &self.column_has_bounds {
            let Some(own) = given.next() else { break };
            columns.push(Arc::clone(own));
            match (*has_bounds, is_result) {
                (false, _) => {}
                (true, true) => columns.extend([Arc::clone(own), Arc::clone(own)]),
                (true, false) => columns.extend(given.by_ref().take(2).cloned()),
            }
        }
        // Arrow calls it `safe` to return nulls instead of errors.
        let exactly = CastOptions { safe: false, ..CastOptions::default() };
        let typed = columns.iter().zip(self.schema.fields()).map(|(column, field)| {
            let cast = cast_with_options(column, field.data_type(), &exactly);
            cast.map_err(|error| Error::Overflow {
                message: format!(
                    "an estimate of `{}` does not fit its type: {error}",
                    field.name()
                ),
                hint: Some("cast it to DOUBLE".into()),
            })
        });
        let typed = typed.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), typed, &options)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};

    use super::*;

    fn result_field(name: &str, of: DataType) -> Field {
        Field::new(name, of, false)
    }

    fn estimate_fields(name: &str, of: DataType) -> [Field; 3] {
        let bound = |which: &str| {
            let said = [(BOUND_METADATA_KEY.to_owned(), which.to_owned())].into();
            Field::new(format!("{name}_{which}"), of.clone(), true).with_metadata(said)
        };
        [Field::new(name, of.clone(), true), bound("low"), bound("high")]
    }

    fn describe_fields(schema: &Schema) -> Vec<String> {
        let field = |field: &Arc<Field>| format!("{} {}", field.name(), field.data_type());
        schema.fields().iter().map(field).collect()
    }

    #[test]
    fn schema_has_result_types_and_interim_bounds() {
        let (text, whole, double) = (DataType::Utf8, DataType::Int64, DataType::Float64);
        let result =
            Schema::new(vec![result_field("k", text.clone()), result_field("n", whole.clone())]);
        let with_bounds = |fields: &[Field]| {
            let all =
                std::iter::once(result_field("k", text.clone())).chain(fields.iter().cloned());
            Schema::new(all.collect::<Vec<_>>())
        };
        let answer = with_bounds(&estimate_fields("n", double.clone()));
        let columns = UniformResultSchema::new(&result, &answer).unwrap();
        assert_eq!(
            describe_fields(columns.schema()),
            ["k Utf8", "n Int64", "n_low Float64", "n_high Float64"]
        );
        for (why, other) in [
            ("the same columns", result.clone()),
            ("another name", with_bounds(&estimate_fields("m", double.clone()))),
            ("a bound alone", with_bounds(&estimate_fields("n", double.clone())[..2])),
            ("a column more", with_bounds(&[result_field("n", whole), result_field("m", double)])),
            ("a column less", with_bounds(&[])),
        ] {
            assert!(UniformResultSchema::new(&result, &other).is_none(), "{why}");
        }
    }

    #[test]
    fn interim_results_and_result_have_one_schema() {
        let decimal = DataType::Decimal128(20, 2);
        let result = Schema::new(vec![
            result_field("k", DataType::Utf8),
            result_field("n", DataType::Int64),
            result_field("s", decimal.clone()),
        ]);
        let mut fields = vec![result_field("k", DataType::Utf8)];
        fields.extend(estimate_fields("n", DataType::Float64));
        fields.extend(estimate_fields("s", DataType::Float64));
        let answer = Arc::new(Schema::new(fields));
        let columns = UniformResultSchema::new(&result, &answer).unwrap();
        let large = (1_i64 << 53) + 1;
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let sums = Decimal128Array::from(vec![1_250]).with_data_type(decimal.clone());
        let last = RecordBatch::try_new(
            Arc::new(result),
            vec![Arc::clone(&keys), Arc::new(Int64Array::from(vec![large])), Arc::new(sums)],
        );
        let last = columns.conform_batch(&last.unwrap()).unwrap();
        // No digit of the result is lost.
        assert_eq!(last.column(1).as_primitive::<Int64Type>().value(0), large);
        for bound in [2, 3] {
            assert_eq!(last.column(bound).as_primitive::<Float64Type>().value(0), large as f64);
            assert_eq!(last.column(bound + 3).as_primitive::<Float64Type>().value(0), 12.5);
        }
        let number = |value: Option<f64>| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
        let early = |n: f64| {
            let numbers = [Some(n), Some(n - 1.0), None, Some(12.5), None, Some(13.0)];
            let values = std::iter::once(Arc::clone(&keys)).chain(numbers.map(number));
            RecordBatch::try_new(Arc::clone(&answer), values.collect()).unwrap()
        };
        let first = columns.conform_batch(&early(7.0)).unwrap();
        assert_eq!(first.schema(), last.schema());
        assert_eq!(first.column(1).as_primitive::<Int64Type>().value(0), 7);
        assert_eq!(first.column(2).as_primitive::<Float64Type>().value(0), 6.0);
        assert!(first.column(3).is_null(0) && first.column(5).is_null(0));
        // The overflow is an error and not a null.
        let error = columns.conform_batch(&early(1e300)).unwrap_err().to_string();
        assert!(error.starts_with("an estimate of `n` does not fit its type"), "{error}");
    }
}
