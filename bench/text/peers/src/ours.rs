//! The one place where `tidemill-text` is called.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, FieldRef};
use tidemill_text::access_log::AccessLogDecoder;
use tidemill_text::csv::CsvDecoder;
use tidemill_text::json::JsonDecoder;
use tidemill_text::{Decode, Decoded, Dialect, Options};

use crate::cases::{Case, Wanted};
use crate::{BATCH_ROWS, Parser, Result};

pub fn parser(case: &Case) -> Result<Box<dyn Parser>> {
    let options = Options { batch_rows: BATCH_ROWS, ..Options::default() };
    let refused = |field: FieldRef| format!("`{}` cannot be read as that", field.name());
    let field = |wanted: &Wanted| -> FieldRef {
        Arc::new(Field::new(wanted.path.join("."), wanted.kind.data_type(), true))
    };
    let decoder: Box<dyn Decode> = match case.format.as_str() {
        "csv" => {
            let dialect = Dialect { nulls: vec!["NA".into()], ..Dialect::default() };
            let columns = case.wanted.iter().map(|wanted| (wanted.at, field(wanted))).collect();
            Box::new(CsvDecoder::new(&dialect, case.all.len(), columns, options).map_err(refused)?)
        }
        "json" => {
            let columns = case.schema().fields().iter().cloned().collect();
            Box::new(JsonDecoder::new(columns, &[], options).map_err(refused)?)
        }
        _ => {
            let columns = case.wanted.iter().map(|wanted| (wanted.at, field(wanted))).collect();
            Box::new(AccessLogDecoder::new(columns, options).map_err(refused)?)
        }
    };
    Ok(Box::new(Ours { decoder, out: Decoded::default() }))
}

struct Ours {
    decoder: Box<dyn Decode>,
    out: Decoded,
}

impl Parser for Ours {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        self.out.clear();
        self.decoder.decode(block, &mut self.out);
        if let Some(bad) = self.out.bad.first() {
            return Err(format!("refused a record: {}", bad.fault).into());
        }
        self.out.batches.iter().for_each(out);
        Ok(())
    }
}
