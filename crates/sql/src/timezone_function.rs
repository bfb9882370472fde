//! The function `timezone(zone, ts)`: converts a TIMESTAMP, as local time of the zone, to an instant, and an instant to
//! local time, a TIMESTAMP, as in PostgreSQL and DuckDB. `ts AT TIME ZONE zone` always returns an instant here.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::local_times::instants_to_local_times;

/// The internal name of the function; the call is planned as `tidemill_timezone(ts AT TIME ZONE zone, ts)`.
const FUNCTION_NAME: &str = "tidemill_timezone";

/// Returns the function to register.
pub(crate) fn timezone_udf() -> ScalarUDF {
    ScalarUDF::from(TimezoneFunction { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimezoneFunction {
    signature: Signature,
}

impl ScalarUDFImpl for TimezoneFunction {
    fn name(&self) -> &str {
        FUNCTION_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> PlanResult<DataType> {
        match given {
            [DataType::Timestamp(unit, Some(_)), DataType::Timestamp(_, Some(_))] => {
                Ok(DataType::Timestamp(*unit, None))
            }
            [in_zone, _] => Ok(in_zone.clone()),
            _ => Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [in_zone, _] = args.args.as_slice() else {
            return internal_err!("a time is asked of one zone");
        };
        let (DataType::Timestamp(unit, Some(zone)), DataType::Timestamp(_, None)) =
            (in_zone.data_type(), args.return_field.data_type())
        else {
            return Ok(in_zone.clone());
        };
        let is_constant = matches!(in_zone, ColumnarValue::Scalar(_));
        let rows = if is_constant { 1 } else { args.number_rows };
        let shown = instants_to_local_times(&in_zone.to_array(rows)?, unit, &zone)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&shown, 0)?),
            false => ColumnarValue::Array(shown),
        })
    }
}
