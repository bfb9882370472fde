//! Sketches and sets in Rust, side by side: ours and their peers.
//!
//! ```text
//! peers hll PEER LOG2M VALUES                one sketch: inserts, merges, estimates, bytes
//! peers sets PEER random|dense COUNT FOLDER  one kind of set: build, combine, write, open
//! peers pauses PEER COUNT                    the longest of many small inserts
//! peers accuracy RUNS COUNT                  errors of the estimates; see `accuracy.py`
//! peers sizes RUNS COUNT                     error beside bytes, of each sketch
//! ```
//!
//! A process measures one peer, so that none profits from what another has left in the caches or in
//! the allocator; rounds are the caller's. What is printed is one JSON object a line. Data are made
//! before and answers checked after what is timed.

mod accuracy;
mod data;
mod hll;
mod memory;
mod pauses;
mod sets;
mod sketches;

use std::process::ExitCode;
use std::time::Instant;

type Error = Box<dyn std::error::Error>;
type Result<T, E = Error> = std::result::Result<T, E>;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// How long something takes, in seconds, and what comes of it.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let answer = work();
    (start.elapsed().as_secs_f64(), answer)
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
        ["hll", peer, log2m, values] => hll::run(peer, log2m.parse()?, values.parse()?),
        ["sets", peer, kind, count, folder] => {
            sets::run(peer, data::Kind::named(kind)?, count.parse()?, folder.as_ref())
        }
        ["pauses", peer, count] => pauses::run(peer, count.parse()?),
        ["accuracy", runs, count] => {
            accuracy::by_cardinality(runs.parse()?, count.parse()?);
            Ok(())
        }
        ["sizes", runs, count] => {
            accuracy::by_size(runs.parse()?, count.parse()?);
            Ok(())
        }
        _ => Err("usage: peers hll|sets|pauses|accuracy|sizes …".into()),
    }
}
