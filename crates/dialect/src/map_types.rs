//! Plans `MAP(TEXT, BIGINT)` as a type, which DataFusion's planner does not support.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Fields};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo};

use crate::type_planners::SqlTypePlanner;

/// Returns the type of maps from `key` to `value`, or `None` if either is a type that is not supported here.
///
/// # Errors
/// The errors of [`SqlTypePlanner`].
pub(crate) fn map_type(key: &SqlType, value: &SqlType) -> PlanResult<Option<DataType>> {
    let (Some(key), Some(value)) = (arrow_type(key)?, arrow_type(value)?) else { return Ok(None) };
    // The key type of other maps: DataFusion compares keys of one type only.
    let key = if key == DataType::Utf8View { DataType::Utf8 } else { key };
    let pair = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    let entries = Arc::new(Field::new("entries", DataType::Struct(pair), false));
    Ok(Some(DataType::Map(entries, false)))
}

/// Returns the Arrow type of an SQL type, by the same rules as DataFusion's planner.
fn arrow_type(sql_type: &SqlType) -> PlanResult<Option<DataType>> {
    if let Some(field) = SqlTypePlanner.plan_type_field(sql_type)? {
        return Ok(Some(field.data_type().clone()));
    }
    Ok(Some(match sql_type {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::TinyIntUnsigned(_) => DataType::UInt8,
        SqlType::SmallIntUnsigned(_) => DataType::UInt16,
        SqlType::IntUnsigned(_) => DataType::UInt32,
        SqlType::BigIntUnsigned(_) => DataType::UInt64,
        SqlType::Real | SqlType::Float4 | SqlType::Float(ExactNumberInfo::None) => {
            DataType::Float32
        }
        SqlType::DoublePrecision | SqlType::Double(ExactNumberInfo::None) | SqlType::Float8 => {
            DataType::Float64
        }
        SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, scale))
        | SqlType::Numeric(ExactNumberInfo::PrecisionAndScale(precision, scale)) => {
            match (u8::try_from(*precision), i8::try_from(*scale)) {
                (Ok(precision @ 1..=DECIMAL128_MAX_PRECISION), Ok(scale))
                    if scale >= 0 && scale.unsigned_abs() <= precision =>
                {
                    DataType::Decimal128(precision, scale)
                }
                _ => return Ok(None),
            }
        }
        SqlType::Bytea => DataType::Binary,
        SqlType::Text | SqlType::Varchar(None) | SqlType::String(None) => DataType::Utf8View,
        SqlType::Date => DataType::Date32,
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::SquareBracket(item, None),
        ) => match arrow_type(item)? {
            Some(item) => DataType::List(Arc::new(Field::new_list_field(item, true))),
            None => return Ok(None),
        },
        SqlType::Struct(fields, _) => {
            let mut made = Vec::with_capacity(fields.len());
            for field in fields {
                let (Some(name), Some(data_type)) =
                    (&field.field_name, arrow_type(&field.field_type)?)
                else {
                    return Ok(None);
                };
                made.push(Field::new(name.value.clone(), data_type, true));
            }
            DataType::Struct(made.into())
        }
        _ => return Ok(None),
    }))
}
