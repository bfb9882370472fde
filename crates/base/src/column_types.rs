//! Column types in SQL terms, as `tidemill schema` shows them and `--schema` takes them.

use arrow::datatypes::{DataType, TimeUnit};

use arrow::compute::CastOptions;
use arrow::util::display::FormatOptions;

pub use tidemill_text::{quote_sql_name, sql_type_name};

/// Metadata key of a schema field whose name was written without quotes. SQL ignores the case of such a name.
pub const UNQUOTED_NAME_METADATA_KEY: &str = "tidemill:unquoted_name";

/// Options of a cast that fails on a value that does not fit, instead of returning NULL.
pub const STRICT_CAST_OPTIONS: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// Returns true if arrays of the type can exist. A file's schema may declare, for example, a map with
/// entries of three fields, which no Arrow array can hold.
pub fn is_valid_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(entries, _) => {
            matches!(entries.data_type(), DataType::Struct(fields) if fields.len() == 2)
                && is_valid_type(entries.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| is_valid_type(field.data_type())),
        DataType::Union(fields, _) => {
            fields.iter().all(|(_, field)| is_valid_type(field.data_type()))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => is_valid_type(item.data_type()),
        DataType::FixedSizeList(item, length) => *length >= 0 && is_valid_type(item.data_type()),
        DataType::FixedSizeBinary(length) => *length >= 0,
        DataType::Dictionary(keys, values) => {
            keys.is_dictionary_key_type() && is_valid_type(values)
        }
        DataType::RunEndEncoded(ends, values) => {
            ends.data_type().is_run_ends_type() && is_valid_type(values.data_type())
        }
        DataType::Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        DataType::Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        _ => true,
    }
}

/// Returns the dictionary type of text columns that are read as dictionary codes.
pub fn dictionary_text_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::is_valid_type;
    use arrow::datatypes::DataType::{self, *};
    use arrow::datatypes::{Fields, TimeUnit};

    #[test]
    fn type_that_no_array_can_have_is_invalid() {
        let map = |names: &[&str]| {
            let fields: Fields = names.iter().map(|name| Field::new(*name, Int8, false)).collect();
            Map(Arc::new(Field::new("entries", Struct(fields), false)), false)
        };
        let list = |item: DataType| List(Arc::new(Field::new("item", item, true)));
        for (data_type, expected) in [
            (map(&["k", "v"]), true),
            (map(&["k", "v", "w"]), false),
            (map(&["k"]), false),
            (list(map(&[])), false),
            (Map(Arc::new(Field::new("entries", Int8, false)), false), false),
            (FixedSizeList(Arc::new(Field::new("item", Int8, true)), -1), false),
            (FixedSizeBinary(-1), false),
            (Dictionary(Box::new(Utf8), Box::new(Int8)), false),
            (Dictionary(Box::new(Int8), Box::new(Utf8)), true),
            (Time32(TimeUnit::Nanosecond), false),
            (Time64(TimeUnit::Nanosecond), true),
        ] {
            assert_eq!(is_valid_type(&data_type), expected, "{data_type}");
            if expected {
                arrow::array::new_empty_array(&data_type);
            }
        }
    }
}
