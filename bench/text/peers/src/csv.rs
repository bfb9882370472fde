//! The peers that read CSV. `NA` means null.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use regex::Regex;

use crate::cases::Case;
use crate::columns::Columns;
use crate::{BATCH_ROWS, Parser, Result};

/// - `arrow-csv`: its decoder, with a projection and `NA` as its null pattern;
/// - `csv`: byte records into Arrow builders;
/// - `simd-csv`: `ZeroCopyReader` into Arrow builders;
/// - `simd-csv-total`: `TotalReader`, which takes text in memory, into Arrow builders.
pub fn parser(case: &Case, name: &str) -> Result<Box<dyn Parser>> {
    let builders = || Builders {
        columns: Columns::new(case),
        fields: case.wanted.iter().map(|wanted| wanted.at).collect(),
    };
    Ok(match name {
        "arrow-csv" => Box::new(ArrowCsv::new(case)?),
        "csv" => Box::new(Csv { builders: builders(), record: csv::ByteRecord::new() }),
        "simd-csv" => Box::new(SimdCsv(builders())),
        "simd-csv-total" => {
            Box::new(SimdCsvTotal { builders: builders(), record: simd_csv::ByteRecord::new() })
        }
        _ => return Err(format!("no parser `{name}`").into()),
    })
}

struct ArrowCsv(arrow_csv::reader::Decoder);

impl ArrowCsv {
    fn new(case: &Case) -> Result<Self> {
        let every =
            Case { format: String::new(), header: false, wanted: case.all.clone(), all: vec![] };
        let schema: Schema = every.flat_schema();
        let builder = arrow_csv::ReaderBuilder::new(Arc::new(schema))
            .with_header(false)
            .with_batch_size(BATCH_ROWS)
            .with_null_regex(Regex::new("^NA$")?)
            .with_projection(case.wanted.iter().map(|wanted| wanted.at).collect());
        Ok(Self(builder.build_decoder()))
    }
}

impl Parser for ArrowCsv {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut rest = block;
        while !rest.is_empty() {
            let read = self.0.decode(rest)?;
            rest = &rest[read..];
            if self.0.capacity() == 0 || rest.is_empty() {
                self.0.flush()?.iter().for_each(&mut *out);
            }
        }
        Ok(())
    }
}

struct Builders {
    columns: Columns,
    fields: Vec<usize>,
}

impl Builders {
    #[inline]
    fn append<'a>(
        &mut self,
        mut field: impl FnMut(usize) -> Option<std::borrow::Cow<'a, [u8]>>,
    ) -> Result<()> {
        for (column, &at) in self.columns.columns.iter_mut().zip(&self.fields) {
            match field(at).ok_or("a record is too short")? {
                value if &*value == b"NA" => column.null(),
                value => column.bytes(&value)?,
            }
        }
        Ok(())
    }
}

struct Csv {
    builders: Builders,
    record: csv::ByteRecord,
}

impl Parser for Csv {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .buffer_capacity(64 << 10)
            .from_reader(block);
        while reader.read_byte_record(&mut self.record)? {
            self.builders.append(|at| self.record.get(at).map(Into::into))?;
            self.builders.columns.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}

struct SimdCsv(Builders);

impl Parser for SimdCsv {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut reader = simd_csv::ZeroCopyReaderBuilder::new()
            .has_headers(false)
            .buffer_capacity(64 << 10)
            .from_reader(block);
        while let Some(record) = reader.read_byte_record()? {
            self.0.append(|at| record.unescape(at))?;
            self.0.columns.end_row(out)?;
        }
        self.0.columns.flush(out)
    }
}

struct SimdCsvTotal {
    builders: Builders,
    record: simd_csv::ByteRecord,
}

impl Parser for SimdCsvTotal {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut reader = simd_csv::TotalReaderBuilder::new().has_headers(false).from_bytes(block);
        while reader.read_byte_record(&mut self.record) {
            self.builders.append(|at| self.record.get(at).map(Into::into))?;
            self.builders.columns.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}
