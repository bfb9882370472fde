//! Formats for rows, side by side in memory.
//!
//! ```text
//! peers generate wide ROWS FILE                       write events as an Arrow IPC file
//! peers measure ROUNDS FILE CODEC FORMAT,FORMAT...    encode, decode all, decode 3 columns
//! ```
//!
//! `measure` reads the batches of an Arrow IPC file into memory and hands them to each format in
//! turn, once unmeasured, when what comes back is compared value by value, and then ROUNDS
//! times. One JSON object per line: `{"format", "codec", "round", "step", "rows", "bytes", "work_s",
//! "cpu_s"}`, in which `bytes` is the size of the encoded file, or `{"format", "failed"}`.

mod formats;
mod generate;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use serde_json::json;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Rows of a batch, for formats that want to know.
const BATCH_ROWS: usize = 8192;

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
            let batches = generate::batches(rows.parse()?, 1024)?;
            let file = std::fs::File::create(file)?;
            let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &generate::schema())?;
            for batch in &batches {
                writer.write(batch)?;
            }
            Ok(writer.finish()?)
        }
        ["measure", rounds, file, codec, names] => {
            let names: Vec<&str> = names.split(',').collect();
            measure(rounds.parse()?, Path::new(file), codec, &names)
        }
        _ => Err("usage: peers generate wide ROWS FILE | \
                  peers measure ROUNDS FILE CODEC FORMATS"
            .into()),
    }
}

fn measure(rounds: usize, path: &Path, codec: &str, names: &[&str]) -> Result<()> {
    let file =
        std::fs::File::open(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let reader = arrow_ipc::reader::FileReader::try_new(file, None)?;
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>()?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    // The first, a middle one and the last column but one.
    let last = schema.fields().len() - 2;
    let few = [0, last / 2, last];
    let mut names: Vec<&str> = names.to_vec();
    // The memory that is written to is there before: page faults are not the formats' doing.
    let mut spare: std::collections::HashMap<&str, Vec<u8>> = std::collections::HashMap::new();
    for round in 0..=rounds {
        names.retain(|name| {
            let done = (|| -> Result<bool> {
                let Some(format) = formats::format(name, codec)? else { return Ok(false) };
                let mut out = spare.remove(name).unwrap_or_default();
                out.clear();
                let clock = Clock::start();
                let bytes = format.encode(&schema, &batches, out)?;
                let encode = clock.stop();
                let mut found = Vec::new();
                let clock = Clock::start();
                let mut count = 0;
                format.decode(&schema, &bytes, None, &mut |batch| {
                    count += batch.num_rows();
                    if round == 0 {
                        found.push(batch);
                    }
                })?;
                let decode = clock.stop();
                let mut found_few = Vec::new();
                let clock = Clock::start();
                format.decode(&schema, &bytes, Some(&few), &mut |batch| {
                    if round == 0 {
                        found_few.push(batch);
                    }
                })?;
                let decode_few = clock.stop();
                if round == 0 {
                    if *name != "copy" {
                        compare(&schema, &batches, &found, None)?;
                        compare(&schema, &batches, &found_few, Some(&few))?;
                    }
                    spare.insert(name, bytes);
                    return Ok(true);
                }
                if count != rows && *name != "copy" {
                    return Err(format!("{count} rows, expected {rows}").into());
                }
                for (step, (work_s, cpu_s)) in
                    [("encode", encode), ("decode", decode), ("decode-few", decode_few)]
                {
                    println!(
                        "{}",
                        json!({
                            "format": name, "codec": codec, "round": round, "step": step,
                            "rows": rows, "bytes": bytes.len(), "work_s": work_s, "cpu_s": cpu_s,
                        })
                    );
                }
                spare.insert(name, bytes);
                Ok(true)
            })();
            if let Err(error) = &done {
                println!(
                    "{}",
                    json!({"format": name, "codec": codec, "failed": error.to_string()})
                );
            }
            done.unwrap_or(false)
        });
    }
    Ok(())
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

    fn stop(&self) -> (f64, f64) {
        (self.wall.elapsed().as_secs_f64(), cpu_s() - self.cpu_s)
    }
}

/// The processor time of this thread.
fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
