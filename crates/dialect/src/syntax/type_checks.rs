//! Checks of data types and their parameters.

use datafusion::sql::sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, ColumnDef, ColumnOption, ColumnOptionDef, CreateTable,
    DataType, ExactNumberInfo, Ident, ObjectName, Statement, StructField,
};
use tidemill_base::error::Result;

use crate::syntax::{SyntaxChecker, refuse_clause};
use crate::type_planners::parse_arrow_type;

impl SyntaxChecker<'_> {
    pub(super) fn check_data_type(&self, data_type: &DataType) -> Result<()> {
        check_type(data_type)
    }
}

/// Checks that a type is known, and that none of its parameters would be dropped.
fn check_type(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Custom(name, modifiers)
            if parse_arrow_type(&name.to_string(), modifiers).is_some() =>
        {
            Ok(())
        }
        DataType::Boolean
        | DataType::Bool
        | DataType::Text
        | DataType::Real
        | DataType::Float4
        | DataType::Float8
        | DataType::DoublePrecision
        | DataType::Date
        | DataType::Bytea => Ok(()),
        DataType::TinyInt(width)
        | DataType::SmallInt(width)
        | DataType::Int2(width)
        | DataType::Int(width)
        | DataType::Int4(width)
        | DataType::Integer(width)
        | DataType::BigInt(width)
        | DataType::Int8(width)
        | DataType::TinyIntUnsigned(width)
        | DataType::SmallIntUnsigned(width)
        | DataType::Int2Unsigned(width)
        | DataType::IntUnsigned(width)
        | DataType::Int4Unsigned(width)
        | DataType::IntegerUnsigned(width)
        | DataType::BigIntUnsigned(width)
        | DataType::Int8Unsigned(width) => match width {
            None => Ok(()),
            Some(_) => {
                refuse_clause(data_type, "whole numbers have no width; lpad(x, 5) fills a text up")
            }
        },
        DataType::Varchar(length) | DataType::Char(length) => match length {
            None => Ok(()),
            Some(CharacterLength::IntegerLength { length, unit: _ }) => refuse_clause(
                data_type,
                &format!("TEXT has any length; left(x, {length}) cuts a text off"),
            ),
            Some(CharacterLength::Max) => refuse_clause(data_type, "TEXT has any length"),
        },
        DataType::String(length) => match length {
            None => Ok(()),
            Some(_) => refuse_clause(data_type, "TEXT has any length"),
        },
        DataType::Float(ExactNumberInfo::None) | DataType::Double(ExactNumberInfo::None) => Ok(()),
        DataType::Float(ExactNumberInfo::Precision(_) | ExactNumberInfo::PrecisionAndScale(..))
        | DataType::Double(
            ExactNumberInfo::Precision(_) | ExactNumberInfo::PrecisionAndScale(..),
        ) => refuse_clause(data_type, "REAL has 24 bits, DOUBLE 53; DECIMAL(10, 2) has digits"),
        // The planner checks the bounds of both.
        DataType::Numeric(_) | DataType::Decimal(_) => Ok(()),
        DataType::Timestamp(precision, _) => match precision {
            None | Some(0 | 3 | 6 | 9) => Ok(()),
            Some(_) => refuse_clause(data_type, "a TIMESTAMP has 0, 3, 6 or 9 digits of a second"),
        },
        DataType::Time(precision, _) => match precision {
            None | Some(0 | 3 | 6 | 9) => Ok(()),
            Some(_) => refuse_clause(data_type, "a TIME has 0, 3, 6 or 9 digits of a second"),
        },
        DataType::Interval { fields, precision } => match (fields, precision) {
            (None, None) => Ok(()),
            _ => refuse_clause(data_type, "write INTERVAL"),
        },
        DataType::Array(ArrayElemTypeDef::AngleBracket(item)) => check_type(item),
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => check_type(item),
        DataType::Array(ArrayElemTypeDef::None | ArrayElemTypeDef::Parenthesis(_)) => {
            refuse_clause(data_type, "say of what: BIGINT[]")
        }
        DataType::Struct(fields, _) => {
            for StructField { field_name: _, field_type, options } in fields {
                check_type(field_type)?;
                if options.is_some() {
                    return refuse_clause(data_type, "leave the options of its fields out");
                }
            }
            Ok(())
        }
        DataType::Map(key, value) => {
            check_type(key)?;
            check_type(value)
        }
        DataType::Nvarchar(_)
        | DataType::Character(_)
        | DataType::CharacterVarying(_)
        | DataType::CharVarying(_)
        | DataType::CharacterLargeObject(_)
        | DataType::CharLargeObject(_)
        | DataType::Clob(_)
        | DataType::TinyText
        | DataType::MediumText
        | DataType::LongText
        | DataType::FixedString(_)
        | DataType::Uuid
        | DataType::JSON
        | DataType::JSONB
        | DataType::Enum(..)
        | DataType::Set(_) => refuse_clause(data_type, "write TEXT"),
        DataType::Binary(_)
        | DataType::Varbinary(_)
        | DataType::Blob(_)
        | DataType::TinyBlob
        | DataType::MediumBlob
        | DataType::LongBlob
        | DataType::Bytes(_)
        | DataType::Bit(_)
        | DataType::BitVarying(_)
        | DataType::VarBit(_) => refuse_clause(data_type, "write BYTEA"),
        DataType::BigNumeric(_)
        | DataType::BigDecimal(_)
        | DataType::Dec(_)
        | DataType::DecimalUnsigned(_)
        | DataType::DecUnsigned(_) => refuse_clause(data_type, "write DECIMAL(38, 10)"),
        DataType::FloatUnsigned(_) | DataType::RealUnsigned | DataType::Float32 => {
            refuse_clause(data_type, "write REAL")
        }
        DataType::DoubleUnsigned(_) | DataType::DoublePrecisionUnsigned | DataType::Float64 => {
            refuse_clause(data_type, "write DOUBLE")
        }
        DataType::UTinyInt | DataType::UInt8 => refuse_clause(data_type, "write TINYINT UNSIGNED"),
        DataType::USmallInt | DataType::UInt16 => {
            refuse_clause(data_type, "write SMALLINT UNSIGNED")
        }
        DataType::MediumIntUnsigned(_) | DataType::UInt32 => {
            refuse_clause(data_type, "write INT UNSIGNED")
        }
        DataType::UBigInt | DataType::UInt64 | DataType::Unsigned | DataType::UnsignedInteger => {
            refuse_clause(data_type, "write BIGINT UNSIGNED")
        }
        DataType::Int16 => refuse_clause(data_type, "write SMALLINT"),
        DataType::MediumInt(_) | DataType::Int32 => refuse_clause(data_type, "write INT"),
        DataType::Int64 | DataType::Signed | DataType::SignedInteger => {
            refuse_clause(data_type, "write BIGINT")
        }
        DataType::HugeInt
        | DataType::UHugeInt
        | DataType::Int128
        | DataType::Int256
        | DataType::UInt128
        | DataType::UInt256 => refuse_clause(data_type, "write DECIMAL(38, 0)"),
        DataType::Date32 => refuse_clause(data_type, "write DATE"),
        DataType::Datetime(_) | DataType::Datetime64(..) | DataType::TimestampNtz(_) => {
            refuse_clause(data_type, "write TIMESTAMP")
        }
        DataType::Tuple(_) | DataType::Nested(_) => {
            refuse_clause(data_type, "write STRUCT<a BIGINT, b TEXT>")
        }
        DataType::Nullable(item) => {
            refuse_clause(data_type, &format!("write {item}: any column may be null"))
        }
        DataType::LowCardinality(item) => refuse_clause(data_type, &format!("write {item}")),
        DataType::Table(_)
        | DataType::NamedTable { .. }
        | DataType::Regclass
        | DataType::Custom(..)
        | DataType::Union(_)
        | DataType::Unspecified
        | DataType::Trigger
        | DataType::AnyType
        | DataType::GeometricType(_)
        | DataType::TsVector
        | DataType::TsQuery => refuse_clause(data_type, TYPES_HINT),
    }
}

const TYPES_HINT: &str = "types are BOOLEAN, TINYINT to BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, BYTEA, \
                     DATE, TIME, TIMESTAMP, INTERVAL, TYPE[], STRUCT<name TYPE> and MAP(TYPE, TYPE)";

/// Checks that a `CREATE TABLE` with a list of columns has names, types and `NOT NULL`, and nothing else.
///
/// # Errors
/// [`Error::Usage`](tidemill_base::error::Error::Usage) that names the other parts.
pub(crate) fn check_column_list(statement: &Statement) -> Result<()> {
    let Statement::CreateTable(table) = statement else {
        return refuse_clause(statement, "");
    };
    for ColumnDef { name, data_type, options } in &table.columns {
        check_type(data_type)?;
        for ColumnOptionDef { name: constraint, option } in options {
            match (constraint, option) {
                (None, ColumnOption::Null | ColumnOption::NotNull) => {}
                (_, option) => {
                    return refuse_clause(format!("{name} {data_type} {option}"), COLUMN_LIST_HINT);
                }
            }
        }
    }
    let name = ObjectName::from(vec![Ident::new("t")]);
    let columns: CreateTable = CreateTableBuilder::new(name).columns(table.columns.clone()).build();
    match columns.to_string() == table.to_string() {
        true => Ok(()),
        false => {
            let text = table.to_string();
            refuse_clause(text.trim_start_matches("CREATE TABLE t "), COLUMN_LIST_HINT)
        }
    }
}

const COLUMN_LIST_HINT: &str = "a schema has names, types and NOT NULL";
