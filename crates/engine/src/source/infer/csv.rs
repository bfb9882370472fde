//! Columns of delimited text: names from the header, types from the sample.

use arrow::datatypes::{DataType, Field};

use super::TextKind;
use crate::source::format::Dialect;

/// Reads a record's fields from the front of `block`: the fields and how many bytes they took.
pub(crate) fn first_record(dialect: &Dialect, block: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut records = Records::new(dialect, block);
    if !records.advance() {
        return None;
    }
    let fields = records.fields().map(|field| String::from_utf8_lossy(field).into_owned());
    Some((fields.collect(), records.used))
}

fn parser(dialect: &Dialect) -> csv_core::Reader {
    let mut builder = csv_core::ReaderBuilder::new();
    builder.delimiter(dialect.delimiter).escape(dialect.escape).comment(dialect.comment);
    match dialect.quote {
        Some(quote) => builder.quote(quote),
        None => builder.quoting(false),
    };
    builder.build()
}

/// The records of a block, fields unquoted.
struct Records<'a> {
    parser: csv_core::Reader,
    block: &'a [u8],
    used: usize,
    out: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl<'a> Records<'a> {
    fn new(dialect: &Dialect, block: &'a [u8]) -> Self {
        let mut parser = parser(dialect);
        let (mut out, mut ends) = (vec![0; 4096], vec![0; 64]);
        parser.read_record(b"\n", &mut out, &mut ends);
        Self { parser, block, used: 0, out, ends, count: 0 }
    }

    /// Goes to the next record; false after the last.
    fn advance(&mut self) -> bool {
        use csv_core::ReadRecordResult as R;
        let mut written = 0;
        self.count = 0;
        loop {
            let (result, used, more, ended) = self.parser.read_record(
                &self.block[self.used..],
                &mut self.out[written..],
                &mut self.ends[self.count..],
            );
            self.used += used;
            written += more;
            self.count += ended;
            match result {
                R::Record => return true,
                R::End => return false,
                // The next call has no input left, which ends a last record.
                R::InputEmpty => {}
                R::OutputFull => self.out.resize(2 * self.out.len(), 0),
                R::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
            }
        }
    }

    fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends[..self.count].iter().map(move |&end| {
            let field = &self.out[start..end];
            start = end;
            field
        })
    }
}

/// Columns as the sample shows them so far.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    kinds: Vec<TextKind>,
    pub(crate) records: u64,
}

impl Inference {
    /// For records of so many fields.
    pub(crate) fn new(fields: usize) -> Self {
        Self { kinds: vec![TextKind::default(); fields], records: 0 }
    }

    /// Takes a block of whole records. Records with another number of fields are left to the
    /// reading, which reports them.
    pub(crate) fn add(&mut self, dialect: &Dialect, block: &[u8]) {
        let mut records = Records::new(dialect, block);
        let expected = self.kinds.len();
        while records.advance() {
            self.records += 1;
            if records.count != expected {
                continue;
            }
            for (kind, field) in self.kinds.iter_mut().zip(records.fields()) {
                if let Ok(text) = std::str::from_utf8(field)
                    && !dialect.is_null(text)
                {
                    kind.add(text);
                }
            }
        }
    }

    /// The columns.
    pub(crate) fn fields(&self, names: &[String]) -> Vec<Field> {
        names
            .iter()
            .zip(&self.kinds)
            .map(|(name, kind)| {
                Field::new(name, kind.data_type().unwrap_or(DataType::Utf8View), true)
            })
            .collect()
    }
}
