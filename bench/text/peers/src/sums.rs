//! What a parser delivered, in a few numbers: by them parsers are checked against one another
//! and against the engines.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use serde_json::{Value, json};

use crate::Result;
use crate::cases::{Case, Kind, Wanted};

#[derive(Default, Clone)]
struct Sum {
    count: u64,
    /// Of numbers; of a text's bytes; of true ones.
    int: i64,
    float: f64,
    min: Option<i64>,
    max: Option<i64>,
    hash: u64,
}

pub struct Sums {
    rows: u64,
    columns: Vec<Sum>,
}

impl Sums {
    pub fn new(case: &Case) -> Self {
        Self { rows: 0, columns: vec![Sum::default(); case.wanted.len()] }
    }

    pub fn add(&mut self, case: &Case, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        if batch.num_columns() == 0 {
            return Ok(()); // a limit's: it counts records only
        }
        for (sum, wanted) in self.columns.iter_mut().zip(&case.wanted) {
            let (array, valid) = leaf(batch, wanted)?;
            sum.add(&array, &valid, wanted.kind)?;
        }
        Ok(())
    }

    pub fn json(&self, case: &Case) -> Value {
        let columns = self.columns.iter().zip(&case.wanted).map(|(sum, wanted)| {
            let name = wanted.path.join("/");
            let hash = format!("{:016x}", sum.hash);
            match wanted.kind {
                Kind::Float => json!({"name": name, "count": sum.count, "sum": sum.float, "hash": hash}),
                Kind::Time => json!({"name": name, "count": sum.count, "min": sum.min, "max": sum.max, "hash": hash}),
                Kind::Bool => json!({"name": name, "count": sum.count, "true": sum.int, "hash": hash}),
                Kind::Text => json!({"name": name, "count": sum.count, "bytes": sum.int, "hash": hash}),
                Kind::Int => json!({"name": name, "count": sum.count, "sum": sum.int, "hash": hash}),
            }
        });
        json!({"rows": self.rows, "columns": columns.collect::<Vec<_>>()})
    }
}

impl Sum {
    fn add(&mut self, array: &ArrayRef, valid: &dyn Fn(usize) -> bool, kind: Kind) -> Result<()> {
        let rows = array.len();
        match kind {
            Kind::Int => {
                let array = array.as_primitive_opt::<Int64Type>().ok_or("not Int64")?;
                (0..rows).for_each(|row| self.value(valid(row).then(|| array.value(row))));
            }
            Kind::Time => {
                let array = array.as_primitive_opt::<TimestampMicrosecondType>();
                let array = array.ok_or("not Timestamp(µs)")?;
                (0..rows).for_each(|row| self.value(valid(row).then(|| array.value(row))));
            }
            Kind::Bool => {
                let array = array.as_boolean_opt().ok_or("not Boolean")?;
                (0..rows)
                    .for_each(|row| self.value(valid(row).then(|| i64::from(array.value(row)))));
            }
            Kind::Float => {
                let array = array.as_primitive_opt::<Float64Type>().ok_or("not Float64")?;
                for row in 0..rows {
                    let value = valid(row).then(|| array.value(row));
                    self.float += value.unwrap_or(0.0);
                    self.value(value.map(|value| value.to_bits().cast_signed()));
                }
            }
            Kind::Text => {
                let text = cast(array, &DataType::Utf8View)?;
                let text = text.as_string_view();
                for row in 0..rows {
                    let value = valid(row).then(|| text.value(row).as_bytes());
                    self.value(value.map(|bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX)));
                    for word in value.unwrap_or_default().chunks(8) {
                        let mut eight = [0; 8];
                        eight[..word.len()].copy_from_slice(word);
                        self.mix(u64::from_le_bytes(eight));
                    }
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, value: Option<i64>) {
        let Some(value) = value else {
            return self.mix(0x6e75_6c6c);
        };
        self.count += 1;
        self.int = self.int.wrapping_add(value);
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        self.mix(value.cast_unsigned());
    }

    /// Depends on the order of the values, and not on the borders of the batches.
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word ^ 0x5eed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A column and which of its rows hold a value, wherever a parser has put it: side by side
/// with the others under its keys joined by dots, or in structs.
fn leaf(batch: &RecordBatch, wanted: &Wanted) -> Result<(ArrayRef, Box<dyn Fn(usize) -> bool>)> {
    let name = wanted.path.join(".");
    if let Some(array) = batch.column_by_name(&name) {
        let nulls = array.logical_nulls();
        let valid = move |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        return Ok((Arc::clone(array), Box::new(valid)));
    }
    let missing = || format!("no column `{name}`");
    let mut array = Arc::clone(batch.column_by_name(&wanted.path[0]).ok_or_else(missing)?);
    let mut nulls = vec![array.logical_nulls()];
    for key in &wanted.path[1..] {
        let below = array.as_struct_opt().and_then(|parent| parent.column_by_name(key));
        array = Arc::clone(below.ok_or_else(missing)?);
        nulls.push(array.logical_nulls());
    }
    let valid = move |row: usize| nulls.iter().flatten().all(|nulls| nulls.is_valid(row));
    Ok((array, Box::new(valid)))
}
