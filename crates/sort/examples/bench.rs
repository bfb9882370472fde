//! The program of `bench/sort`: generates inputs, sorts them with GNU sort's options, and validates the
//! result.
//!
//! ```text
//! bench generate KIND BYTES FILE     records, words, integers, sorted, reversed, few, skewed
//! bench sort ARGUMENT…               those of GNU sort
//! bench validate FILE                records of 100 bytes
//! bench ids OPERATION FILE…          union, intersect, diff, xor, count over raw ids, in 256 MiB
//! ```

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use tidemill_sort::benchmark_records::{
    BenchmarkRecordForm, BenchmarkRecordGenerator, RECORD_BYTES, RecordOrderValidator,
};
use tidemill_sort::gnu::{GnuSortOptions, GnuSortStreams, run_gnu_sort};
use tidemill_sort::id_sets;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["generate", kind, bytes, file] => generate(kind, bytes, file).map(|()| 0),
        ["sort", ref rest @ ..] => sort(rest),
        ["validate", file] => validate(file),
        ["ids", operation, ref files @ ..] => combine(operation, files),
        _ => Err("see the first lines of crates/sort/examples/bench.rs".into()),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

fn generate(kind: &str, bytes: &str, file: &str) -> Result<(), Box<dyn Error>> {
    let bytes: u64 = bytes.parse()?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let mut random = Random(1);
    let mut records = BenchmarkRecordGenerator::new(BenchmarkRecordForm::Text, 0);
    let syllables =
        ["ba", "co", "du", "fe", "gi", "lo", "mar", "nes", "pi", "ro", "sta", "tin", "ver", "wu"];
    let mut written = 0;
    let mut line = Vec::with_capacity(128);
    for number in 0u64.. {
        if written >= bytes {
            break;
        }
        line.clear();
        let n = random.next();
        match kind {
            "records" => line.extend_from_slice(&records.next_record()),
            "raw-ids" => line.extend_from_slice(&(n >> 30).to_le_bytes()),
            "words" => {
                let mut n = n;
                for _ in 0..2 + n % 5 {
                    n /= 14;
                    line.extend_from_slice(syllables[(n % 14) as usize].as_bytes());
                }
                line.push(b'\n');
            }
            "integers" => writeln!(line, "{}", n.cast_signed())?,
            "sorted" => writeln!(
                line,
                "{number:012} and what follows it on the line, up to 80 bytes in all, as logs have it"
            )?,
            "reversed" => writeln!(
                line,
                "{:012} and what follows it on the line, up to 80 bytes in all, as logs have it",
                999_999_999_999 - number
            )?,
            "few" => writeln!(line, "value number {} of some", n % 10)?,
            "skewed" if n.is_multiple_of(2) => {
                line.extend_from_slice(b"the line that half of all lines are\n")
            }
            "skewed" => writeln!(line, "{n:020}")?,
            _ => return Err(format!("unknown kind `{kind}`").into()),
        }
        out.write_all(&line)?;
        written += line.len() as u64;
    }
    out.flush()?;
    Ok(())
}

fn sort(args: &[&str]) -> Result<u8, Box<dyn Error>> {
    let command = GnuSortOptions::parse(args.iter().map(|arg| (*arg).to_owned()))?;
    let outcome = run_gnu_sort(&command, &mut GnuSortStreams::from_process())?;
    Ok(u8::try_from(outcome.exit_status())?)
}

fn validate(file: &str) -> Result<u8, Box<dyn Error>> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file)?);
    let mut validator = RecordOrderValidator::default();
    let mut record = [0u8; RECORD_BYTES];
    while !std::io::BufRead::fill_buf(&mut reader)?.is_empty() {
        reader.read_exact(&mut record)?;
        validator.check_record(&record);
    }
    println!("{}", validator.summary());
    Ok(u8::from(validator.summary().disorder.is_some()))
}

fn combine(operation: &str, files: &[&str]) -> Result<u8, Box<dyn Error>> {
    let operation = match operation {
        "union" => id_sets::SetOperation::Union,
        "intersect" => id_sets::SetOperation::Intersect,
        "diff" => id_sets::SetOperation::Diff,
        "xor" => id_sets::SetOperation::Xor,
        _ => id_sets::SetOperation::Count,
    };
    let mut options = id_sets::IdSetOptions::default();
    options.memory_bytes = 256 << 20;
    let inputs: Result<Vec<_>, _> = files
        .iter()
        .map(|file| {
            id_sets::IdSetOperand::from_file(Path::new(file), id_sets::IdFormat::Raw, &options)
        })
        .collect();
    let mut out = std::io::sink();
    let counts = id_sets::combine_id_sets(operation, inputs?, &options, &mut |ids| {
        id_sets::write_ids(ids, id_sets::IdFormat::Raw, false, &mut out)
    })?;
    println!("{counts:?}");
    Ok(0)
}
