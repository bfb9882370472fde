//! `struct_update` and `struct_insert`: structs with added or changed fields.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StructArray, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_STRUCT;

use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, RowMapping, argument_array, text_cast_type,
    usage_error, wrong_arguments_error,
};

/// A function that sets fields of a struct.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum StructChangeFunction {
    /// `struct_update`: replaces existing fields and appends new ones.
    Update,
    /// `struct_insert`: appends new fields only.
    Insert,
}

impl StructChangeFunction {
    /// Returns the fields of the result.
    fn result_fields(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<Fields> {
        let Some(DataType::Struct(own)) = taken.first() else {
            return Err(wrong_arguments_error(self, taken));
        };
        let mut fields: Vec<FieldRef> =
            own.iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
        let mut set_places: Vec<usize> = Vec::new();
        for (at, of) in taken.iter().enumerate().skip(2).step_by(2) {
            let name = constants.get(at - 1).copied().flatten();
            let Some(Some(name)) = name.and_then(|name| name.try_as_str()) else {
                return Err(usage_error(
                    format!("`{}` takes names of fields that are constant texts", self.names()[0]),
                    format!("it is called as {}", self.docs().syntax),
                ));
            };
            // Fields may differ only in case: the exact name takes precedence.
            let place = fields.iter().position(|field| field.name() == name).or_else(|| {
                fields.iter().position(|field| field.name().eq_ignore_ascii_case(name))
            });
            let is_set_twice = place.is_some_and(|place| set_places.contains(&place));
            if is_set_twice || (place.is_some() && *self == StructChangeFunction::Insert) {
                return Err(usage_error(
                    format!("`{}` would give a struct the field `{name}` twice", self.names()[0]),
                    "struct_update gives a field another value; name each field once",
                ));
            }
            set_places.push(place.unwrap_or(fields.len()));
            let field = Arc::new(Field::new(name, of.clone(), true));
            match place {
                Some(place) => fields[place] = field,
                None => fields.push(field),
            }
        }
        Ok(fields.into())
    }
}

/// Returns an argument as a column with one value per row.
fn argument_column(given: &ArgumentBatch<'_>, at: usize) -> Result<ArrayRef> {
    let (array, rows) = argument_array(given.argument(at)?)?;
    Ok(match rows {
        RowMapping::PerRow => array,
        RowMapping::Constant => {
            take(&array, &UInt64Array::from(vec![0_u64; given.row_count]), None)?
        }
    })
}

impl RowFunction for StructChangeFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            StructChangeFunction::Update => &["struct_update"],
            StructChangeFunction::Insert => &["struct_insert"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            StructChangeFunction::Update => (
                "struct_update(s, 'name', value, …)",
                "A struct with other values of fields that it has, by the same letters or else in either case, and further \
                 fields at its end: \
                 `struct_update(struct_insert(date_parts('year', DATE '2026-11-20'), 'a', 1), 'year', 'x', 'b', 2)` is \
                 `{year: x, a: 1, b: 2}`.",
            ),
            StructChangeFunction::Insert => (
                "struct_insert(s, 'name', value, …)",
                "A struct with further fields at its end: \
                 `struct_insert(date_parts('year', DATE '2026-11-20'), 'a', 1)` is `{year: 2026, a: 1}`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_STRUCT, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let has_pairs = matches!(given, [DataType::Struct(_), _, _, ..] if given.len() % 2 == 1);
        let is_named = given.iter().skip(1).step_by(2).all(|name| text_cast_type(name).is_some());
        match has_pairs && is_named {
            true => Ok(given.to_vec()),
            false => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        Ok(DataType::Struct(self.result_fields(taken, constants)?))
    }

    /// Not strict, because a field may be null.
    fn is_strict(&self) -> bool {
        false
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let DataType::Struct(fields) = given.return_type else {
            return Err(wrong_arguments_error(self, &[]));
        };
        let structs = argument_column(given, 0)?;
        let structs = structs.as_struct();
        // Fields of a null struct become null.
        let (_, mut columns, nulls) = structs.clone().into_parts();
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            let places: UInt64Array =
                (0..given.row_count).map(|row| nulls.is_valid(row).then_some(row as u64)).collect();
            for column in &mut columns {
                *column = take(column, &places, None)?;
            }
        }
        for at in (2..given.arguments.len()).step_by(2) {
            let name = given.text_argument(at - 1)?;
            let name = name.get(0).unwrap_or_default();
            let place = fields.iter().position(|field| field.name() == name);
            let value = argument_column(given, at)?;
            match place.filter(|place| *place < columns.len()) {
                Some(place) => columns[place] = value,
                None => columns.push(value),
            }
        }
        Ok(Arc::new(StructArray::try_new(fields.clone(), columns, None)?))
    }
}
