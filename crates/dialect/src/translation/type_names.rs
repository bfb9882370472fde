//! Translation of other databases' type names.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Expr, Ident, StructField,
    TimezoneInfo, Value,
};
use tidemill_base::hex::encode_hex;

/// Returns true for a decimal type.
pub(super) fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_))
}

/// Returns Tidemill's name of another database's type; `None` if the name is the same.
pub(super) fn translate_type(of: &DataType) -> Option<DataType> {
    use DataType::*;
    let decimal = || Decimal(ExactNumberInfo::PrecisionAndScale(38, 0));
    Some(match of {
        Int16 => SmallInt(None),
        Int32 | MediumInt(None) => Int(None),
        Int64 | Signed | SignedInteger => BigInt(None),
        HugeInt | UHugeInt | Int128 | UInt128 => decimal(),
        UTinyInt | UInt8 => TinyIntUnsigned(None),
        USmallInt | UInt16 => SmallIntUnsigned(None),
        UInt32 | MediumIntUnsigned(None) => IntUnsigned(None),
        UBigInt | UInt64 | Unsigned | UnsignedInteger => BigIntUnsigned(None),
        Float32 => Real,
        Float64 => Double(ExactNumberInfo::None),
        Dec(info) => Decimal(*info),
        Date32 => Date,
        Datetime(precision) | TimestampNtz(precision) => Timestamp(
            precision.filter(|precision| [0, 3, 6, 9].contains(precision)),
            TimezoneInfo::None,
        ),
        Datetime64(precision, None) => Timestamp(
            Some(*precision).filter(|precision| [0, 3, 6, 9].contains(precision)),
            TimezoneInfo::None,
        ),
        Uuid
        | JSON
        | JSONB
        | TinyText
        | MediumText
        | LongText
        | Clob(None)
        | CharacterVarying(None)
        | CharVarying(None)
        | Character(None)
        | Nvarchar(None) => Text,
        Varchar(Some(CharacterLength::Max)) => Text,
        Blob(None) | TinyBlob | MediumBlob | LongBlob | Bytes(None) | Binary(None)
        | Varbinary(None) => Bytea,
        Nullable(item) | LowCardinality(item) => {
            translate_type(item).unwrap_or_else(|| *item.clone())
        }
        Array(ArrayElemTypeDef::AngleBracket(item)) => {
            Array(ArrayElemTypeDef::AngleBracket(Box::new(translate_type(item)?)))
        }
        Array(ArrayElemTypeDef::SquareBracket(item, length)) => {
            Array(ArrayElemTypeDef::SquareBracket(Box::new(translate_type(item)?), *length))
        }
        Array(ArrayElemTypeDef::Parenthesis(item)) => {
            let item = translate_type(item).unwrap_or_else(|| *item.clone());
            Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None))
        }
        Map(key, value) => {
            let translated = |of: &DataType| translate_type(of).unwrap_or_else(|| of.clone());
            Map(Box::new(translated(key)), Box::new(translated(value)))
        }
        Struct(fields, brackets) => {
            let is_ours = |field: &StructField| {
                translate_type(&field.field_type).is_none() && quoted_field_name(field).is_none()
            };
            if fields.iter().all(is_ours) {
                return None;
            }
            let fields = fields.iter().map(|field| StructField {
                field_name: quoted_field_name(field).or_else(|| field.field_name.clone()),
                field_type: translate_type(&field.field_type)
                    .unwrap_or_else(|| field.field_type.clone()),
                ..field.clone()
            });
            Struct(fields.collect(), *brackets)
        }
        Custom(name, modifiers) if modifiers.is_empty() => {
            match name.to_string().to_lowercase().as_str() {
                "long" => BigInt(None),
                "short" => SmallInt(None),
                "byte" => TinyInt(None),
                "inet" | "cidr" | "ipv4" | "ipv6" | "macaddr" | "json" | "jsonb" | "bpchar"
                | "name" => Text,
                "timestamp_ntz" | "timestamp_us" => Timestamp(None, TimezoneInfo::None),
                "timestamp_s" => Timestamp(Some(0), TimezoneInfo::None),
                "timestamp_ms" => Timestamp(Some(3), TimezoneInfo::None),
                "timestamp_ns" => Timestamp(Some(9), TimezoneInfo::None),
                "timestamptz_ns" => Timestamp(Some(9), TimezoneInfo::WithTimeZone),
                "timestamp_ltz" => Timestamp(None, TimezoneInfo::WithTimeZone),
                "int1" => TinyInt(None),
                "uint1" => TinyIntUnsigned(None),
                "uinteger" => IntUnsigned(None),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// Returns the name of a struct's field in quotes, if the planner would fold an unquoted name to lower case.
/// A field is found by its name, and texts and JSON show the name as the user wrote it.
fn quoted_field_name(field: &StructField) -> Option<Ident> {
    let name = field.field_name.as_ref()?;
    let is_changed = name.quote_style.is_none() && name.value.to_lowercase() != name.value;
    is_changed.then(|| Ident { quote_style: Some('"'), ..name.clone() })
}

/// Returns the bytes of a literal that is cast. `'\x00ff'::bytea` are two bytes in PostgreSQL, where `\x`
/// introduces all digits, and `'\x00ff'::BLOB` three bytes in DuckDB, where `\x` introduces one byte.
pub(super) fn bytes_literal(expr: &Expr, of: &DataType) -> Option<Expr> {
    let Expr::Value(value) = expr else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let digits = match of {
        DataType::Bytea => {
            let digits = text.strip_prefix("\\x")?;
            let is_whole =
                digits.len() % 2 == 0 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_whole.then(|| digits.to_owned())?
        }
        DataType::Blob(None) if text.contains("\\x") => {
            let mut digits = String::with_capacity(2 * text.len());
            let mut rest = text.as_str();
            while !rest.is_empty() {
                if let Some(escaped) = rest.strip_prefix("\\x") {
                    let byte = escaped.get(..2)?;
                    if !byte.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                        return None;
                    }
                    digits.push_str(byte);
                    rest = &escaped[2..];
                } else {
                    let length = rest.chars().next().map_or(0, char::len_utf8);
                    digits.push_str(&encode_hex(&rest[..length]));
                    rest = &rest[length..];
                }
            }
            digits
        }
        _ => return None,
    };
    Some(Expr::value(Value::HexStringLiteral(digits)))
}

/// Returns the maximum number of characters of a text type, to which a cast truncates.
pub(super) fn character_limit(of: &DataType) -> Option<u64> {
    use DataType::*;
    match of {
        Varchar(Some(CharacterLength::IntegerLength { length, unit: None }))
        | Char(Some(CharacterLength::IntegerLength { length, unit: None }))
        | CharVarying(Some(CharacterLength::IntegerLength { length, unit: None }))
        | CharacterVarying(Some(CharacterLength::IntegerLength { length, unit: None }))
        | Character(Some(CharacterLength::IntegerLength { length, unit: None }))
        | Nvarchar(Some(CharacterLength::IntegerLength { length, unit: None })) => Some(*length),
        FixedString(length) | String(Some(length)) => Some(*length),
        _ => None,
    }
}
