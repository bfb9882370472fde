//! What the clocks of a zone show, as instants.
//!
//! Arrow refuses a time that the clocks show twice, or never, and a whole query ends with it. Here a time
//! that is shown twice is the later one, by the clocks of winter, and one that is skipped is as long
//! after the leap as it would have been: PostgreSQL and DuckDB have it so. A day, a week, a month begins
//! at the first of two midnights.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::error::Error;
use tidemill_base::types::EXACTLY;

use crate::messages::external;
use crate::rewrite::{all_expressions, of_one};

/// Whether the clocks of the zone show UTC.
pub(crate) fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00")
}

/// How many of a unit a second has.
pub(crate) fn units(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Which of two instants a time is that the clocks show twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twice {
    First,
    Last,
}

/// What the clocks of a zone show, in a timestamp without a zone, as a timestamp of it.
///
/// # Errors
/// [`Error::Overflow`] for a time that the calendar does not have.
pub(crate) fn instants(
    shown: &ArrayRef,
    unit: TimeUnit,
    zone: &str,
    twice: Twice,
) -> PlanResult<ArrayRef> {
    let tz: Tz = zone.parse()?;
    let units = units(unit);
    let shown = cast_with_options(shown, &DataType::Int64, &EXACTLY)?;
    let instants: Int64Array = shown.as_primitive::<Int64Type>().try_unary(|time| {
        let ahead = DateTime::from_timestamp(time.div_euclid(units), 0)
            .and_then(|shown| seconds_ahead(&tz, shown.naive_utc(), twice));
        ahead.and_then(|ahead| time.checked_sub(i64::from(ahead).checked_mul(units)?)).ok_or_else(
            || {
                let message = format!("a time does not fit the calendar of `{zone}`");
                external(Error::Overflow { message, hint: None })
            },
        )
    })?;
    let to = DataType::Timestamp(unit, Some(zone.into()));
    Ok(cast_with_options(&instants, &to, &EXACTLY)?)
}

/// What the clocks of a zone show at instants of it, as a timestamp without a zone.
///
/// # Errors
/// [`Error::Overflow`] for a time that the calendar does not have.
pub(crate) fn clocks(instants: &ArrayRef, unit: TimeUnit, zone: &str) -> PlanResult<ArrayRef> {
    let tz: Tz = zone.parse()?;
    let units = units(unit);
    let instants = cast_with_options(instants, &DataType::Int64, &EXACTLY)?;
    let shown: Int64Array = instants.as_primitive::<Int64Type>().try_unary(|time| {
        let ahead = DateTime::from_timestamp(time.div_euclid(units), 0)
            .map(|at| tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc());
        ahead.and_then(|ahead| time.checked_add(i64::from(ahead).checked_mul(units)?)).ok_or_else(
            || {
                let message = format!("a time does not fit the calendar of `{zone}`");
                external(Error::Overflow { message, hint: None })
            },
        )
    })?;
    Ok(cast_with_options(&shown, &DataType::Timestamp(unit, None), &EXACTLY)?)
}

/// How far the clocks are ahead of UTC when they show a time.
fn seconds_ahead(tz: &Tz, shown: NaiveDateTime, twice: Twice) -> Option<i32> {
    let offset = match tz.offset_from_local_datetime(&shown) {
        MappedLocalTime::Single(offset) => offset,
        MappedLocalTime::Ambiguous(first, last) => match twice {
            Twice::First => first,
            Twice::Last => last,
        },
        // As they were before the leap; no clock leaps further than a day.
        MappedLocalTime::None => {
            let before = shown.checked_sub_signed(TimeDelta::hours(25))?;
            tz.offset_from_local_datetime(&before).earliest()?
        }
    };
    Some(offset.fix().local_minus_utc())
}

/// The rule that casts what the clocks show.
#[derive(Debug)]
pub(crate) struct Clocks;

impl AnalyzerRule for Clocks {
    fn name(&self) -> &'static str {
        "clocks"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        all_expressions(plan, &resolved)
    }
}

fn resolved(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let (Expr::Cast(Cast { expr: shown, field }) | Expr::TryCast(TryCast { expr: shown, field })) =
        &expr
    else {
        return Ok(Transformed::no(expr));
    };
    let (DataType::Timestamp(unit, Some(zone)), DataType::Timestamp(_, None) | DataType::Date32) =
        (field.data_type(), shown.get_type(schema)?)
    else {
        return Ok(Transformed::no(expr));
    };
    if is_utc(zone) {
        return Ok(Transformed::no(expr));
    }
    let to = DataType::Timestamp(*unit, None);
    let shown = match &expr {
        Expr::TryCast(_) => Expr::TryCast(TryCast::new(shown.clone(), to)),
        _ => Expr::Cast(Cast::new(shown.clone(), to)),
    };
    let function = AtZone { unit: *unit, zone: Arc::clone(zone), signature: signature() };
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![shown]);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

fn signature() -> Signature {
    Signature::any(1, Volatility::Immutable)
}

/// A timestamp without a zone as one of a zone, whose clocks show it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AtZone {
    unit: TimeUnit,
    zone: Arc<str>,
    signature: Signature,
}

impl ScalarUDFImpl for AtZone {
    fn name(&self) -> &str {
        "at_time_zone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        of_one(&args.args, |shown| instants(shown, self.unit, &self.zone, Twice::Last))
    }
}
