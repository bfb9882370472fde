//! Strings alone: a column of one string type, encoded and decoded.
//!
//! ```text
//! file   a file of many batches, written and read in memory, strings as views
//! file-offsets   the same with strings behind offsets when they come back
//! row    each string a row by itself, as in a message
//! ```
//!
//! The same alphabets, lengths and numbers of strings as in `java/`, where the other formats are.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde_json::json;
use tidemill_rowfile::{Codec, Plan, ReadOptions, Reader, Strings, WriteOptions, Writer};

use crate::generate::Random;
use crate::{Clock, Result};

/// Names, and the characters from which to which.
const ALPHABETS: [(&str, char, char); 3] =
    [("ascii", ' ', '~'), ("cyrillic", 'А', 'я'), ("chinese", '一', '龥')];
const LENGTHS: [usize; 5] = [1, 4, 16, 128, 16_384];

/// Bytes of strings in a batch, about; and how many strings there are at the least and at most.
const BATCH_BYTES: usize = 256 << 10;
const STRINGS: (usize, usize) = (16, 4096);

/// Bytes of a file, about: many batches, so that neither header nor footer count.
const FILE_BYTES: usize = 8 << 20;

/// Prints `{"alphabet", "length", "way", "round", "encode_ns", "decode_ns"}` a line, in
/// nanoseconds of processor time for a string.
pub fn measure(rounds: usize) -> Result<()> {
    let mut cases = Vec::new();
    for (alphabet, first, last) in ALPHABETS {
        for length in LENGTHS {
            for (way, run) in WAYS {
                cases.push((alphabet, length, *way, *run, Case::new(first, last, length)?));
            }
        }
    }
    for round in 0..=rounds {
        for (alphabet, length, way, run, case) in &mut cases {
            let (encode_ns, decode_ns) = run(case, round == 0)?;
            if round > 0 {
                println!(
                    "{}",
                    json!({
                        "alphabet": alphabet, "length": length, "way": way, "round": round,
                        "encode_ns": encode_ns, "decode_ns": decode_ns,
                    })
                );
            }
        }
    }
    Ok(())
}

/// Encodes and decodes a case, and compares what comes back if told to.
type Run = fn(&mut Case, bool) -> Result<(f64, f64)>;
const WAYS: &[(&str, Run)] = &[
    ("file", |case, check| case.file(Strings::View, check)),
    ("file-offsets", |case, check| case.file(Strings::Small, check)),
    ("row", Case::row),
];

struct Case {
    schema: tidemill_rowfile::Schema,
    batch: RecordBatch,
    batches: usize,
    /// What was encoded, and what it will be again.
    bytes: Vec<u8>,
}

impl Case {
    fn new(first: char, last: char, length: usize) -> Result<Self> {
        let random = &mut Random(0x7374_7269_6e67_7321);
        let (first, last) = (u32::from(first), u32::from(last));
        let character = |random: &mut Random| {
            char::from_u32(first + random.below((last - first + 1) as usize) as u32)
        };
        let size = length * char::from_u32(first).map_or(1, char::len_utf8);
        let count = (BATCH_BYTES / size).clamp(STRINGS.0, STRINGS.1);
        let strings: Vec<String> =
            (0..count).map(|_| (0..length).filter_map(|_| character(random)).collect()).collect();
        let arrow: SchemaRef =
            Arc::new(Schema::new(vec![Field::new("string", DataType::Utf8, false)]));
        Ok(Self {
            schema: tidemill_rowfile::Schema::from_arrow(&arrow)?,
            batch: RecordBatch::try_new(arrow, vec![Arc::new(StringArray::from(strings))])?,
            batches: (FILE_BYTES / (count * size)).clamp(4, 64),
            bytes: Vec::new(),
        })
    }

    fn file(&mut self, strings: Strings, check: bool) -> Result<(f64, f64)> {
        let count = self.batches * self.batch.num_rows();
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let clock = Clock::start();
        let options = WriteOptions { codec: Codec::None, ..WriteOptions::default() };
        let mut writer = Writer::new(bytes, &self.schema, options)?;
        for _ in 0..self.batches {
            writer.write(&self.batch)?;
        }
        self.bytes = writer.finish()?;
        let encode_ns = clock.ns(count);
        let options = ReadOptions { strings, ..ReadOptions::default() };
        let mut found = Vec::new();
        let clock = Clock::start();
        for batch in Reader::new(&self.bytes[..], "memory")?.read(&options)? {
            let batch = batch?;
            if check {
                found.push(batch);
            }
        }
        let decode_ns = clock.ns(count);
        if check {
            let found = arrow_select::concat::concat_batches(&found[0].schema(), &found)?;
            let found = arrow_cast::cast(found.column(0), &DataType::Utf8View)?;
            let expected = arrow_cast::cast(self.batch.column(0), &DataType::Utf8View)?;
            let view = |array: &Arc<dyn Array>| {
                array.as_any().downcast_ref::<StringViewArray>().cloned().ok_or("no strings")
            };
            let (found, expected) = (view(&found)?, view(&expected)?);
            if !found.iter().eq((0..self.batches).flat_map(|_| expected.iter())) {
                return Err("strings came back as others".into());
            }
        }
        Ok((encode_ns, decode_ns))
    }

    fn row(&mut self, check: bool) -> Result<(f64, f64)> {
        let count = self.batches * self.batch.num_rows();
        let mut rows = None;
        let clock = Clock::start();
        for _ in 0..self.batches {
            rows = Some(std::hint::black_box(self.schema.encode_rows(&self.batch)?));
        }
        let encode_ns = clock.ns(count);
        let rows = rows.ok_or("no rows")?;
        let plan = Plan::new(&self.schema, &self.batch.schema())?;
        let mut found = None;
        let clock = Clock::start();
        for _ in 0..self.batches {
            found = Some(std::hint::black_box(plan.decode_rows(&rows, "rows")?));
        }
        let decode_ns = clock.ns(count);
        if check && found.map(RecordBatch::from).as_ref() != Some(&self.batch) {
            return Err("strings came back as others".into());
        }
        Ok((encode_ns, decode_ns))
    }
}
