//! Arrow builders for parsers that deliver no columns of their own.
//!
//! A field of text becomes a value as `arrow-csv` makes it, by `arrow_cast::parse`: so a
//! difference between two tokenisers is a difference of tokenising.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::parse::Parser as _;
use arrow_schema::SchemaRef;

use crate::cases::{Case, Kind};
use crate::{BATCH_ROWS, Result};

pub enum Column {
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringViewBuilder),
    Time(TimestampMicrosecondBuilder),
}

/// A builder for each column that is asked for.
pub struct Columns {
    pub columns: Vec<Column>,
    pub rows: usize,
    schema: SchemaRef,
}

impl Columns {
    pub fn new(case: &Case) -> Self {
        Self {
            columns: case.wanted.iter().map(|wanted| Column::new(wanted.kind)).collect(),
            rows: 0,
            schema: Arc::new(case.flat_schema()),
        }
    }

    /// Ends a row. Hands on a batch when it is full.
    pub fn end_row(&mut self, out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        self.rows += 1;
        if self.rows == BATCH_ROWS { self.flush(out) } else { Ok(()) }
    }

    pub fn flush(&mut self, out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        if self.rows > 0 {
            self.rows = 0;
            let arrays = self.columns.iter_mut().map(Column::finish).collect();
            out(&RecordBatch::try_new(Arc::clone(&self.schema), arrays)?);
        }
        Ok(())
    }
}

impl Column {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Int => Self::Int(Int64Builder::with_capacity(BATCH_ROWS)),
            Kind::Float => Self::Float(Float64Builder::with_capacity(BATCH_ROWS)),
            Kind::Bool => Self::Bool(BooleanBuilder::with_capacity(BATCH_ROWS)),
            Kind::Text => Self::Text(StringViewBuilder::with_capacity(BATCH_ROWS)),
            Kind::Time => Self::Time(
                TimestampMicrosecondBuilder::with_capacity(BATCH_ROWS)
                    .with_data_type(kind.data_type()),
            ),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::Float(builder) => Arc::new(builder.finish()),
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Time(builder) => Arc::new(builder.finish()),
        }
    }

    pub fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder;
        match self {
            Self::Int(builder) => builder.len(),
            Self::Float(builder) => builder.len(),
            Self::Bool(builder) => builder.len(),
            Self::Text(builder) => builder.len(),
            Self::Time(builder) => builder.len(),
        }
    }

    pub fn null(&mut self) {
        match self {
            Self::Int(builder) => builder.append_null(),
            Self::Float(builder) => builder.append_null(),
            Self::Bool(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
            Self::Time(builder) => builder.append_null(),
        }
    }

    /// Appends what a field's text stands for.
    #[inline]
    pub fn text(&mut self, text: &str) -> Result<()> {
        let wrong = || format!("not a value: `{text}`");
        match self {
            Self::Int(builder) => builder.append_value(Int64Type::parse(text).ok_or_else(wrong)?),
            Self::Float(builder) => {
                builder.append_value(Float64Type::parse(text).ok_or_else(wrong)?)
            }
            Self::Bool(builder) => builder.append_value(text.parse()?),
            Self::Text(builder) => builder.append_value(text),
            Self::Time(builder) => {
                builder.append_value(TimestampMicrosecondType::parse(text).ok_or_else(wrong)?);
            }
        }
        Ok(())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.text(std::str::from_utf8(bytes)?)
    }

    pub fn int(&mut self, value: i64) -> Result<()> {
        match self {
            Self::Int(builder) => builder.append_value(value),
            Self::Float(builder) => builder.append_value(value as f64),
            Self::Time(builder) => builder.append_value(value),
            Self::Bool(_) | Self::Text(_) => return Err(format!("not expected: `{value}`").into()),
        }
        Ok(())
    }

    pub fn float(&mut self, value: f64) -> Result<()> {
        match self {
            Self::Float(builder) => builder.append_value(value),
            _ => return Err(format!("not expected: `{value}`").into()),
        }
        Ok(())
    }

    pub fn bool(&mut self, value: bool) -> Result<()> {
        match self {
            Self::Bool(builder) => builder.append_value(value),
            _ => return Err(format!("not expected: `{value}`").into()),
        }
        Ok(())
    }
}
