//! Structs with other fields: `struct_update` and `struct_insert`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StructArray, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_STRUCT;

use crate::callable::{Function, Given, Rows, Told, as_text, called_as, held, usage};

/// A function that gives fields to a struct.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum StructChange {
    /// `struct_update`: a field that is there gets another value.
    Update,
    /// `struct_insert`: all fields are new.
    Insert,
}

impl StructChange {
    /// The fields of the answer.
    fn fields(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<Fields> {
        let Some(DataType::Struct(own)) = taken.first() else { return Err(called_as(self, taken)) };
        let mut fields: Vec<FieldRef> =
            own.iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
        let mut set_places: Vec<usize> = Vec::new();
        for (at, of) in taken.iter().enumerate().skip(2).step_by(2) {
            let name = constants.get(at - 1).copied().flatten();
            let Some(Some(name)) = name.and_then(|name| name.try_as_str()) else {
                return Err(usage(
                    format!("`{}` takes names of fields that are constant texts", self.names()[0]),
                    format!("it is called as {}", self.told().calls),
                ));
            };
            // Fields may differ in case alone: the one of this very name goes first.
            let place = fields.iter().position(|field| field.name() == name).or_else(|| {
                fields.iter().position(|field| field.name().eq_ignore_ascii_case(name))
            });
            let is_set_twice = place.is_some_and(|place| set_places.contains(&place));
            if is_set_twice || (place.is_some() && *self == StructChange::Insert) {
                return Err(usage(
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

/// An argument with a value for each row.
fn column(given: &Given<'_>, at: usize) -> Result<ArrayRef> {
    let (array, rows) = held(given.value(at)?)?;
    Ok(match rows {
        Rows::Each => array,
        Rows::Alike => take(&array, &UInt64Array::from(vec![0_u64; given.rows]), None)?,
    })
}

impl Function for StructChange {
    fn names(&self) -> &'static [&'static str] {
        match self {
            StructChange::Update => &["struct_update"],
            StructChange::Insert => &["struct_insert"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            StructChange::Update => (
                "struct_update(s, 'name', value, …)",
                "A struct with other values of fields that it has, by the same letters or else in either case, and further \
                 fields at its end: \
                 `struct_update(struct_insert(date_parts('year', DATE '2026-11-20'), 'a', 1), 'year', 'x', 'b', 2)` is \
                 `{year: x, a: 1, b: 2}`.",
            ),
            StructChange::Insert => (
                "struct_insert(s, 'name', value, …)",
                "A struct with further fields at its end: \
                 `struct_insert(date_parts('year', DATE '2026-11-20'), 'a', 1)` is `{year: 2026, a: 1}`.",
            ),
        };
        Told { section: DOC_SECTION_STRUCT, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let has_pairs = matches!(given, [DataType::Struct(_), _, _, ..] if given.len() % 2 == 1);
        let is_named = given.iter().skip(1).step_by(2).all(|name| as_text(name).is_some());
        match has_pairs && is_named {
            true => Ok(given.to_vec()),
            false => Err(called_as(self, given)),
        }
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Struct(self.fields(taken, constants)?))
    }

    /// A field may be null.
    fn is_strict(&self) -> bool {
        false
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let DataType::Struct(fields) = given.answer else { return Err(called_as(self, &[])) };
        let structs = column(given, 0)?;
        let structs = structs.as_struct();
        // Fields of a struct that is null are null.
        let (_, mut columns, nulls) = structs.clone().into_parts();
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            let places: UInt64Array =
                (0..given.rows).map(|row| nulls.is_valid(row).then_some(row as u64)).collect();
            for column in &mut columns {
                *column = take(column, &places, None)?;
            }
        }
        for at in (2..given.values.len()).step_by(2) {
            let name = given.texts(at - 1)?;
            let name = name.at(0).unwrap_or_default();
            let place = fields.iter().position(|field| field.name() == name);
            let value = column(given, at)?;
            match place.filter(|place| *place < columns.len()) {
                Some(place) => columns[place] = value,
                None => columns.push(value),
            }
        }
        Ok(Arc::new(StructArray::try_new(fields.clone(), columns, None)?))
    }
}
