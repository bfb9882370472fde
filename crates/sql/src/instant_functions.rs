//! Functions that return instants: `now()`, and `to_timestamp` of a number.
//!
//! DataFusion returns a TIMESTAMP without a zone if the session has none. An instant is a TIMESTAMP WITH TIME ZONE in
//! UTC here, as in PostgreSQL and DuckDB: `to_timestamp(0) AT TIME ZONE 'Europe/Berlin'` shows 1 o'clock, where a
//! TIMESTAMP would be interpreted as local time of Berlin. `to_timestamp` of text stays a TIMESTAMP unless its format
//! has a zone, which the [translation](tidemill_dialect::translation) of function calls detects in the statement.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, FieldRef, Float64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::scalars;

/// The time zone of instants.
const UTC: &str = "UTC";

/// Returns `now()`, the time when the query was planned, in microseconds of UTC.
pub(crate) fn now_udf() -> ScalarUDF {
    ScalarUDF::from(NowFunction {
        signature: Signature::nullary(Volatility::Stable),
        aliases: vec!["current_timestamp".into()],
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NowFunction {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for NowFunction {
    fn name(&self) -> &str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())))
    }

    fn simplify(
        &self,
        arguments: Vec<Expr>,
        context: &SimplifyContext,
    ) -> PlanResult<ExprSimplifyResult> {
        let Some(start) = context.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(arguments));
        };
        let micros = Some(start.timestamp_micros());
        let literal = ScalarValue::TimestampMicrosecond(micros, Some(UTC.into()));
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(literal, None)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        internal_err!("`now` is evaluated before it is simplified")
    }

    fn documentation(&self) -> Option<&Documentation> {
        static OWN: LazyLock<Option<Documentation>> = LazyLock::new(|| {
            let theirs = datetime::now(&ConfigOptions::default());
            let documentation = theirs.documentation()?.clone();
            let description = "The time at which the query starts, a TIMESTAMP WITH TIME ZONE in UTC: the same wherever \
                               it stands in a query."
                .into();
            Some(Documentation { description, ..documentation })
        });
        OWN.as_ref()
    }
}

/// Wraps one of DataFusion's `to_timestamp`, `to_timestamp_seconds` and similar functions.
///
/// The wrapped function returns a TIMESTAMP WITH TIME ZONE in UTC for a number. DataFusion's `to_timestamp` returns the
/// nearest possible time for a DOUBLE beyond the range of nanoseconds: here it is an error, as for integers. A DOUBLE's
/// seconds are rounded to microseconds, as in PostgreSQL and DuckDB, because a DOUBLE has no digits beyond them.
pub(crate) fn to_timestamp_udf(theirs: &Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(ToTimestampFunction::new(Arc::clone(theirs)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestampFunction {
    datafusion_function: Arc<ScalarUDF>,
    documentation: Option<Documentation>,
}

impl ToTimestampFunction {
    fn new(theirs: Arc<ScalarUDF>) -> Self {
        let documentation = theirs.documentation().map(|documentation| {
            let description = documentation.description.trim_end().trim_end_matches('.');
            let description = format!(
                "{description}. Of a number it is a TIMESTAMP WITH TIME ZONE in UTC, and of text where the format has an \
                 offset or a zone."
            );
            Documentation { description, ..documentation.clone() }
        });
        ToTimestampFunction { datafusion_function: theirs, documentation }
    }
}

/// Returns whether a call takes a number.
fn takes_number(arguments: &[DataType]) -> bool {
    matches!(arguments, [argument] if argument.is_numeric())
}

/// Returns a timestamp type with the zone UTC.
fn timestamp_type_in_utc(timestamp: &DataType) -> DataType {
    match timestamp {
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, Some(UTC.into())),
        other => other.clone(),
    }
}

impl ScalarUDFImpl for ToTimestampFunction {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_function.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.datafusion_function.coerce_types(arguments)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let theirs = Arc::new(self.datafusion_function.inner().with_updated_config(config)?);
        Some(ScalarUDF::from(ToTimestampFunction::new(theirs)))
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let theirs = self.datafusion_function.return_type(arguments)?;
        Ok(if takes_number(arguments) { timestamp_type_in_utc(&theirs) } else { theirs })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let theirs = self.datafusion_function.return_field_from_args(args)?;
        if !takes_number(&types) {
            return Ok(theirs);
        }
        let zoned = timestamp_type_in_utc(theirs.data_type());
        Ok(Arc::new(theirs.as_ref().clone().with_data_type(zoned)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return self.datafusion_function.invoke_with_args(args);
        };
        let of = value.data_type();
        if self.name() == scalars::TO_TIMESTAMP && of.is_floating() {
            return timestamps_from_float_seconds(value, args.return_field.data_type());
        }
        if !of.is_numeric() {
            return self.datafusion_function.invoke_with_args(args);
        }
        let zoned = args.return_field.data_type().clone();
        self.datafusion_function.invoke_with_args(args)?.cast_to(&zoned, None)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.documentation.as_ref()
    }
}

/// Converts floating-point seconds since 1970 to timestamps of the type `to`.
///
/// # Errors
/// [`Error::Overflow`] for a number beyond the range of nanoseconds.
fn timestamps_from_float_seconds(
    value: &ColumnarValue,
    to: &DataType,
) -> PlanResult<ColumnarValue> {
    let doubles = cast_with_options(&value.to_array(1)?, &DataType::Float64, &STRICT_CAST_OPTIONS)?;
    let doubles = doubles.as_primitive::<Float64Type>();
    // The range of 64-bit nanoseconds.
    let is_beyond = |seconds: &f64| {
        !(seconds * 1e9).is_finite() || (seconds * 1e9).abs() >= 9.223_372_036_854_775e18
    };
    if let Some(found) = doubles.iter().flatten().find(is_beyond) {
        return Err(into_datafusion_error(Error::Overflow {
            message: format!(
                "{found} seconds are no time of the years 1677 to 2262, which nanoseconds have"
            ),
            hint: Some(
                "of milliseconds since 1970 to_timestamp_millis makes a time, of microseconds \
                 to_timestamp_micros, of seconds to_timestamp_seconds"
                    .into(),
            ),
        }));
    }
    let micros = doubles.unary::<_, TimestampMicrosecondType>(round_to_micros).with_timezone(UTC);
    let found = cast_with_options(&micros, to, &STRICT_CAST_OPTIONS)?;
    Ok(match value {
        ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
        ColumnarValue::Array(_) => ColumnarValue::Array(found),
    })
}

/// Rounds `seconds` to the nearest integer number of microseconds, once; a tie rounds
/// away from zero. The product `seconds * 1e6` alone would be rounded to a DOUBLE first, whose resolution for
/// present times is a quarter of a microsecond.
fn round_to_micros(seconds: f64) -> i64 {
    let (whole, fraction) = (seconds.trunc(), seconds.fract());
    let product = fraction * 1e6;
    // The rounding error of the product.
    let rest = fraction.mul_add(1e6, -product);
    let mut nearest = product.round();
    let is_tie = (product - product.trunc()).abs() == 0.5;
    if is_tie && rest != 0.0 && (rest < 0.0) == (product > 0.0) {
        nearest = product.trunc();
    }
    #[allow(clippy::cast_possible_truncation)]
    (whole as i64).saturating_mul(1_000_000).saturating_add(nearest as i64)
}

#[cfg(test)]
mod tests {
    use super::round_to_micros;

    #[test]
    fn float_seconds_round_once_to_microseconds() {
        for (seconds, micros) in [
            (1_646_861_401.524_102_4, 1_646_861_401_524_102),
            (-1_646_861_401.524_102_4, -1_646_861_401_524_102),
            (0.0, 0),
            (1.5, 1_500_000),
            (0.000_000_5, 0),
            (0.000_000_500_000_1, 1),
            (-0.000_000_7, -1),
            (253_402_300_799.0, 253_402_300_799_000_000),
        ] {
            assert_eq!(round_to_micros(seconds), micros, "{seconds}");
        }
        // Compared with exact arithmetic: a DOUBLE is a multiple of 2^-52 seconds, or of a larger power of two.
        let mut state = 1u64;
        for round in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let seconds = match round % 2 {
                0 => (state >> 11) as f64 / (1u64 << 53) as f64,
                _ => (state >> 30) as f64 / 8.0 + (state & 0xfffff) as f64 / 1_048_576.0,
            };
            let exact = (seconds * (1u64 << 53) as f64) as u128 * 1_000_000;
            let expected = (exact + (1 << 52)) >> 53;
            assert_eq!(round_to_micros(seconds) as u128, expected, "{seconds}");
            assert_eq!(round_to_micros(-seconds), -(expected as i64), "-{seconds}");
        }
    }
}
