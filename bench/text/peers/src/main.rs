//! Parsers of log text in memory, side by side: ours, its peers, and the limits above them.
//!
//! ```text
//! peers generate flat|nested BYTES FILE            write events, the same ones each time
//! peers measure DATA few|all THREADS ROUNDS FILE PARSER,PARSER...
//! ```
//!
//! `measure` reads FILE into memory, cuts it into blocks of whole records, about 1 MiB each,
//! and hands them to every parser in turn: once unmeasured, with every value of every batch
//! summed up and hashed (`Sums`), and then ROUNDS times measured. What a parser has to
//! deliver is the same for all: the columns asked for as Arrow arrays of their types, in
//! batches that are dropped as soon as they are counted. Two threads have half of the blocks
//! each, and a parser each.
//!
//! One JSON object per line is printed: `{"parser", "sums"}` after the unmeasured run,
//! `{"parser", "round", "bytes", "rows", "work_s", "cpu_s"}` for each measured one, and
//! `{"parser", "failed"}` for a parser that gave up. `work_s` is time on the clock, from the
//! first thread's start to the last one's end; `cpu_s` is the processor time of the thread that
//! used most, which is what it would have been with the machine to itself.

mod access;
mod cases;
mod columns;
mod csv;
mod generate;
mod json;
mod limits;
mod ours;
mod sums;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use arrow_array::RecordBatch;
use serde_json::json;

use crate::cases::Case;
use crate::sums::Sums;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

const BLOCK_BYTES: usize = 1 << 20;
/// Rows of a batch, for parsers that want to know: the engine's own.
const BATCH_ROWS: usize = 8192;

/// A parser under measurement.
trait Parser {
    /// Parses a block of whole records and hands on what came of it. No record is kept back.
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()>;
}

fn parser(case: &Case, name: &str) -> Result<Box<dyn Parser>> {
    if limits::PARSERS.contains(&name) {
        return Ok(limits::parser(name));
    }
    if name == "tidemill" {
        return ours::parser(case);
    }
    match case.format.as_str() {
        "csv" => csv::parser(case, name),
        "json" => json::parser(case, name),
        _ => access::parser(case, name),
    }
}

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
        ["generate", kind, bytes, file] => generate::write(kind, bytes.parse()?, Path::new(file)),
        ["measure", data, columns, threads, rounds, file, names] => {
            let case = Case::named(data, columns)?;
            let names: Vec<&str> = names.split(',').collect();
            measure(&case, threads.parse()?, rounds.parse()?, Path::new(file), &names)
        }
        _ => Err("usage: peers generate KIND BYTES FILE | \
                  measure DATA COLUMNS THREADS ROUNDS FILE PARSERS"
            .into()),
    }
}

fn measure(case: &Case, threads: usize, rounds: usize, file: &Path, names: &[&str]) -> Result<()> {
    let text = std::fs::read(file).map_err(|error| format!("`{}`: {error}", file.display()))?;
    let start = if case.header { line_end(&text, 0) } else { 0 };
    let records = &text[start..];
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut rest = records;
    for part in 0..threads {
        let cut = match part + 1 == threads {
            true => rest.len(),
            false => {
                line_end(records, records.len() * (part + 1) / threads)
                    - (records.len() - rest.len())
            }
        };
        let (head, tail) = rest.split_at(cut);
        parts.push(head);
        rest = tail;
    }

    let mut names: Vec<&str> = names.to_vec();
    let mut first_rows = None;
    for round in 0..=rounds {
        names.retain(|name| {
            let outcome = match round {
                0 => summed(case, name, &parts).map(|sums| {
                    let sums = sums.json(case);
                    println!("{}", json!({"parser": name, "sums": sums}));
                }),
                _ => timed(case, name, &parts).and_then(|Timed { rows, work_s, cpu_s }| {
                    // The limits count records too, by their newlines; but for the copy.
                    if *name != "copy" && rows != *first_rows.get_or_insert(rows) {
                        let others = first_rows.unwrap_or_default();
                        return Err(format!("{rows} records, the others found {others}").into());
                    }
                    println!(
                        "{}",
                        json!({
                            "parser": name, "round": round, "bytes": records.len(), "rows": rows,
                            "work_s": work_s, "cpu_s": cpu_s,
                        })
                    );
                    Ok(())
                }),
            };
            if let Err(error) = &outcome {
                println!("{}", json!({"parser": name, "failed": error.to_string()}));
            }
            outcome.is_ok()
        });
    }
    Ok(())
}

/// The offset behind the first newline at `from` or after it.
fn line_end(text: &[u8], from: usize) -> usize {
    memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |at| from + at + 1)
}

/// Cuts text into blocks of whole records.
fn blocks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let whole = match rest.get(..BLOCK_BYTES) {
            Some(block) => {
                memchr::memrchr(b'\n', block).map_or_else(|| line_end(rest, 0), |at| at + 1)
            }
            None => rest.len(),
        };
        let (block, tail) = rest.split_at(whole);
        rest = tail;
        (!block.is_empty()).then_some(block)
    })
}

/// Parses everything and looks at every value.
fn summed(case: &Case, name: &str, parts: &[&[u8]]) -> Result<Sums> {
    let mut total = Sums::new(case);
    for part in parts {
        let mut parser = parser(case, name)?;
        for block in blocks(part) {
            let mut wrong = None;
            parser
                .parse(block, &mut |batch| wrong = total.add(case, batch).err().or(wrong.take()))?;
            if let Some(error) = wrong {
                return Err(error);
            }
        }
    }
    Ok(total)
}

/// What a measured run took.
struct Timed {
    rows: u64,
    work_s: f64,
    cpu_s: f64,
}

/// Parses everything on a thread per part.
fn timed(case: &Case, name: &str, parts: &[&[u8]]) -> Result<Timed> {
    let ready = Barrier::new(parts.len());
    let done: Vec<(u64, Instant, Instant, f64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|part| {
                let ready = &ready;
                scope.spawn(move || {
                    let parser = parser(case, name);
                    ready.wait();
                    let mut parser = parser?;
                    let (start, cpu_start) = (Instant::now(), thread_cpu_s()?);
                    let mut rows = 0;
                    for block in blocks(part) {
                        parser.parse(block, &mut |batch| {
                            rows += std::hint::black_box(batch).num_rows() as u64;
                        })?;
                    }
                    Ok((rows, start, Instant::now(), thread_cpu_s()? - cpu_start))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Error::from("a thread panicked"))?)
            .collect::<Result<_>>()
    })?;
    let first = done.iter().map(|(_, start, ..)| *start).min().ok_or("no thread")?;
    let last = done.iter().map(|(_, _, end, _)| *end).max().ok_or("no thread")?;
    Ok(Timed {
        rows: done.iter().map(|(rows, ..)| rows).sum(),
        work_s: (last - first).as_secs_f64(),
        cpu_s: done.iter().map(|(.., cpu_s)| *cpu_s).fold(0.0, f64::max),
    })
}

/// The processor time that this thread has used.
fn thread_cpu_s() -> Result<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}
