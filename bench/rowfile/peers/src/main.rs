//! Formats for rows, side by side.
//!
//! ```text
//! peers generate wide ROWS FILE         write events as an Arrow IPC file
//! peers promotion ROWS FOLDER           write events with their input in four shapes
//! peers strings ROUNDS                  encode and decode columns of strings
//! peers serve FILE COLUMN,COLUMN,...    do what standard input asks for
//! ```
//!
//! `serve` reads the batches of an Arrow IPC file into memory and answers each line of standard
//! input with one JSON object. A line is `STEP FORMAT CODEC PATH`, in which PATH is `-` for
//! memory:
//!
//! - `check`: encode and decode, all and the named columns, and compare every value; `{}`
//! - `encode`: to memory, or to PATH and on to the disk;
//!   `{"rows", "bytes", "work_s", "cpu_s"}`, in which `bytes` is the encoded size
//! - `decode`, `few`: what `encode` wrote last, all columns or the named ones; the same.
//!
//! What goes wrong is `{"failed"}`.

mod formats;
mod generate;
mod promotion;
mod strings;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::formats::{Rows, Source, Wanted};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Rows of a batch, for formats that want to know.
const BATCH_ROWS: usize = 8192;

/// Rows of a batch that is generated.
const GENERATED_ROWS: usize = 1024;

/// Bytes of a buffer between a format and a file.
const BUFFER_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["generate", "wide", rows, file] => {
            let file = File::create(file)?;
            let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &generate::schema())?;
            for batch in generate::batches(rows.parse()?, GENERATED_ROWS) {
                writer.write(&batch?)?;
            }
            Ok(writer.finish()?)
        }
        ["promotion", rows, folder] => promotion::write(rows.parse()?, Path::new(folder)),
        ["strings", rounds] => strings::measure(rounds.parse()?),
        ["serve", file, columns] => serve(Path::new(file), columns),
        _ => {
            Err("usage: peers generate wide ROWS FILE | promotion ROWS FOLDER | strings ROUNDS | \
                  serve FILE COLUMNS"
                .into())
        }
    }
}

fn serve(path: &Path, columns: &str) -> Result<()> {
    let file = File::open(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let reader = arrow_ipc::reader::FileReader::try_new(file, None)?;
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>()?;
    let few = columns.split(',').map(|name| schema.index_of(name)).collect::<Result<_, _>>()?;
    let mut server = Server { rows: Rows { schema, batches }, few, encoded: HashMap::new() };
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let answer = match words[..] {
            [step, format, codec, "-"] => server.answer(step, format, codec, None),
            [step, format, codec, path] => {
                server.answer(step, format, codec, Some(Path::new(path)))
            }
            _ => Err(format!("`{line}` is no request").into()),
        };
        let answer = answer.unwrap_or_else(|error| json!({"failed": error.to_string()}));
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

struct Server {
    rows: Rows,
    /// The positions of the columns that `few` decodes.
    few: Vec<usize>,
    /// What was encoded in memory, by format and codec.
    encoded: HashMap<String, Bytes>,
}

impl Server {
    fn answer(
        &mut self,
        step: &str,
        name: &str,
        codec: &str,
        path: Option<&Path>,
    ) -> Result<Value> {
        let key = format!("{name} {codec}");
        let format = formats::format(name, codec)?;
        if step == "encode" || step == "check" {
            // The memory that is written to is there before: page faults are not the formats' doing.
            let mut bytes = Vec::from(self.encoded.remove(&key).unwrap_or_default());
            bytes.clear();
            let clock = Clock::start();
            match path {
                Some(path) => {
                    let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
                    format.encode(&self.rows, &mut file)?;
                    file.into_inner()?.sync_all()?;
                }
                None => format.encode(&self.rows, &mut bytes)?,
            }
            let answer = clock.answer(self.rows.count());
            self.encoded.insert(key.clone(), bytes.into());
            if step == "encode" {
                return self.with_bytes(answer, &key, path);
            }
        }
        let source = match path {
            Some(path) => Source::File(path),
            None => Source::Memory(self.encoded.get(&key).ok_or("nothing has been encoded")?),
        };
        let schema = &self.rows.schema;
        if step == "check" {
            for columns in [None, Some(&self.few[..])] {
                let found = format
                    .decode(&Wanted { schema, columns }, source)?
                    .collect::<Result<Vec<_>>>()?;
                if name != "copy" {
                    compare(schema, &self.rows.batches, &found, columns)?;
                }
            }
            return Ok(json!({}));
        }
        let columns = match step {
            "decode" => None,
            "few" => Some(&self.few[..]),
            _ => return Err(format!("no step `{step}`").into()),
        };
        let clock = Clock::start();
        let mut count = 0;
        for batch in format.decode(&Wanted { schema, columns }, source)? {
            count += batch?.num_rows();
        }
        let answer = clock.answer(self.rows.count());
        if count != self.rows.count() && name != "copy" {
            return Err(format!("{count} rows, expected {}", self.rows.count()).into());
        }
        self.with_bytes(answer, &key, path)
    }

    fn with_bytes(&self, mut answer: Value, key: &str, path: Option<&Path>) -> Result<Value> {
        answer["bytes"] = match path {
            Some(path) => path.metadata()?.len().into(),
            None => self.encoded.get(key).map_or(0, Bytes::len).into(),
        };
        Ok(answer)
    }
}

/// Whether what came back is what went in, whichever layout strings have.
fn compare(
    schema: &SchemaRef,
    expected: &[RecordBatch],
    found: &[RecordBatch],
    columns: Option<&[usize]>,
) -> Result<()> {
    let expected = concat_batches(schema, expected)?;
    let expected = match columns {
        Some(columns) => expected.project(columns)?,
        None => expected,
    };
    let Some(first) = found.first() else { return Err("no rows".into()) };
    let found = concat_batches(&first.schema(), found)?;
    for (index, field) in expected.schema().fields().iter().enumerate() {
        let (expected, found) = (expected.column(index), found.column(index));
        let found = arrow_cast::cast(found, expected.data_type())?;
        if found.to_data() != expected.to_data() {
            return Err(format!("column `{}` came back with other values", field.name()).into());
        }
    }
    Ok(())
}

struct Clock {
    wall: Instant,
    cpu_s: f64,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu_s: cpu_s() }
    }

    fn answer(&self, rows: usize) -> Value {
        let (work_s, cpu_s) = (self.wall.elapsed().as_secs_f64(), cpu_s() - self.cpu_s);
        json!({"rows": rows, "work_s": work_s, "cpu_s": cpu_s})
    }

    /// Nanoseconds of processor time for each of so many.
    fn ns(&self, count: usize) -> f64 {
        1e9 * (cpu_s() - self.cpu_s) / count as f64
    }
}

/// The processor time of this thread.
fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
