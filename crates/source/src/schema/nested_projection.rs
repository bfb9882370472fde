//! Projections of nested columns: for `connections.accepted`, reads that field and not the whole
//! `connections` record.
//!
//! A column that is used only through its fields is read as a struct of those; the other fields are null and
//! not decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StructArray, new_null_array};
use arrow::datatypes::{DataType, Field, FieldRef};

/// The used part of a column, or of a field in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NestedProjection {
    /// The whole value.
    Whole,
    /// Some of its fields, by name.
    Fields(BTreeMap<String, NestedProjection>),
}

/// Projections by column name, in any table.
pub type NestedProjections = BTreeMap<String, NestedProjection>;

/// Returns the column with only the used fields; none if all are used.
pub fn narrow_field(field: &FieldRef, projection: &NestedProjection) -> Option<FieldRef> {
    let (DataType::Struct(fields), NestedProjection::Fields(wanted)) =
        (field.data_type(), projection)
    else {
        return None;
    };
    let mut is_narrower = false;
    let mut kept = Vec::new();
    for inner in fields {
        match wanted.get(inner.name()) {
            None => is_narrower = true,
            Some(projection) => {
                let narrower = narrow_field(inner, projection);
                is_narrower |= narrower.is_some();
                kept.push(narrower.unwrap_or_else(|| inner.clone()));
            }
        }
    }
    // Repeated field names are ambiguous, and a struct has at least one field.
    let is_clear =
        fields.iter().all(|a| fields.iter().filter(|b| a.name() == b.name()).count() == 1);
    (is_narrower && is_clear && !kept.is_empty()).then(|| {
        Arc::new(Field::new(field.name(), DataType::Struct(kept.into()), field.is_nullable()))
    })
}

/// Null arrays by type, from which slices are shared.
#[derive(Debug, Default)]
pub struct NullColumns(Vec<ArrayRef>);

impl NullColumns {
    /// Returns `rows` nulls of a type.
    pub fn slice_of(&mut self, data_type: &DataType, rows: usize) -> ArrayRef {
        let known =
            self.0.iter().find(|nulls| nulls.data_type() == data_type && nulls.len() >= rows);
        match known {
            Some(nulls) => nulls.slice(0, rows),
            None => {
                self.0.retain(|nulls| nulls.data_type() != data_type);
                self.0.push(new_null_array(data_type, rows));
                new_null_array(data_type, rows)
            }
        }
    }
}

/// Converts a narrowed column back to the whole type, with nulls in the fields that were not read; none if it
/// is no narrowed column of that type.
pub fn widen_column(
    array: &ArrayRef,
    data_type: &DataType,
    nulls: &mut NullColumns,
) -> Option<ArrayRef> {
    if array.data_type() == data_type {
        return Some(array.clone());
    }
    let DataType::Struct(fields) = data_type else { return None };
    let array = array.as_struct_opt()?;
    let columns = fields
        .iter()
        .map(|field| match array.column_by_name(field.name()) {
            Some(column) => widen_column(column, field.data_type(), nulls),
            None => Some(nulls.slice_of(field.data_type(), array.len())),
        })
        .collect::<Option<Vec<_>>>()?;
    let validity = array.nulls().cloned();
    let whole = StructArray::try_new_with_length(fields.clone(), columns, validity, array.len());
    Some(Arc::new(whole.ok()?))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    #[test]
    fn a_narrowed_column_is_widened_by_nulls() {
        let int = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
        let inner: FieldRef =
            Arc::new(Field::new("s", DataType::Struct(vec![int("x"), int("y")].into()), true));
        let outer = DataType::Struct(vec![int("a"), inner, int("b")].into());
        let field: FieldRef = Arc::new(Field::new("c", outer.clone(), true));
        let only = |name: &str, projection| {
            NestedProjection::Fields([(name.to_owned(), projection)].into())
        };
        let narrow = narrow_field(&field, &only("s", only("y", NestedProjection::Whole))).unwrap();
        assert_eq!(narrow.data_type().to_string(), r#"Struct("s": Struct("y": Int64))"#);
        assert_eq!(narrow_field(&field, &NestedProjection::Whole), None);

        let y: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let s: ArrayRef = Arc::new(StructArray::from(vec![(int("y"), y)]));
        let s_field = Arc::new(Field::new("s", s.data_type().clone(), true));
        let c: ArrayRef = Arc::new(StructArray::from(vec![(s_field, s)]));
        let whole = widen_column(&c, &outer, &mut NullColumns::default()).unwrap();
        assert_eq!(whole.data_type(), &outer);
        let whole = whole.as_struct();
        assert_eq!(whole.column(0).null_count(), 2);
        let y = whole.column(1).as_struct().column(1).clone();
        assert_eq!(y.as_primitive::<arrow::datatypes::Int64Type>().value(0), 1);
    }
}
