//! A HyperLogLog command interpreter for compatibility tests with other languages: one command per line on
//! standard input, its answer as a line on standard output.
//!
//! ```text
//! $ printf '%s\n' 'new a 11 5 auto true postgresql' 'ints a 1 2' 'bytes a' | cargo run -p tidemill-sketch --example hll
//! ok
//! ok
//! \x128b7fde0820a06c76c0a8004403b7fb05c44a
//! ```
//!
//! | command | answer |
//! | --- | --- |
//! | `new NAME LOG2M REGWIDTH EXPLICIT SPARSE DIALECT` | `ok` |
//! | `read NAME HEX SPARSE DIALECT` | `ok` |
//! | `ints NAME INTEGER…`, `floats NAME FLOAT…`, `texts NAME HEX…`, `hashes NAME INTEGER…` | `ok` |
//! | `range NAME FROM TO`: the integers from one to before the other | `ok` |
//! | `update NAME OTHER`, `fold NAME LOG2M REGWIDTH` | `ok` |
//! | `bytes NAME` | the sketch, in hexadecimal behind `\x` |
//! | `cardinality NAME`, `ertl NAME` | the number |
//! | `intersection NAME OTHER` | the number and its standard error |
//!
//! EXPLICIT is `auto`, 0 or a power of two; SPARSE `true`, `false` or a number of registers; DIALECT
//! `postgresql` or `java`. A failed command is answered with a line that begins with `error: `.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::str::FromStr;

use tidemill_sketch::{
    CardinalityEstimator, ExplicitThreshold, Hll, HllParams, HllStorageDialect, hash_bytes,
    hash_f64, hash_i64,
};

type Answer = Result<String, Box<dyn Error>>;

#[derive(Default)]
struct Sketches {
    by_name: HashMap<String, (Hll, HllStorageDialect)>,
}

impl Sketches {
    fn answer(&mut self, line: &str) -> Answer {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [command, name, rest @ ..] = words.as_slice() else {
            return Err("a command and the name of a sketch are needed".into());
        };
        match (*command, rest) {
            ("new", [log2m, regwidth, explicit, sparse, dialect]) => {
                let (sparse, dialect) = parse_writing_options(sparse, dialect)?;
                let expthresh = match *explicit {
                    "auto" => ExplicitThreshold::Automatic,
                    count => ExplicitThreshold::from_count(count.parse()?)?,
                };
                let [log2m, regwidth] = [log2m.parse()?, regwidth.parse()?];
                let hll = Hll::new(HllParams { log2m, regwidth, expthresh, sparse })?;
                self.by_name.insert((*name).to_owned(), (hll, dialect));
            }
            ("read", [hex, sparse, dialect]) => {
                let (sparse, dialect) = parse_writing_options(sparse, dialect)?;
                let mut hll = Hll::from_bytes(&bytes(hex)?)?;
                if !sparse {
                    let mut without = Hll::new(HllParams { sparse, ..hll.params() })?;
                    without.merge(&hll);
                    hll = without;
                }
                self.by_name.insert((*name).to_owned(), (hll, dialect));
            }
            ("ints", values) => {
                let values = parse_all::<i64>(values)?;
                self.find_sketch(name)?.0.add_hash_iter(values.into_iter().map(hash_i64));
            }
            ("floats", values) => {
                let values = parse_all::<f64>(values)?;
                self.find_sketch(name)?.0.add_hash_iter(values.into_iter().map(hash_f64));
            }
            ("texts", values) => {
                for value in values {
                    let hash = hash_bytes(&bytes(value)?, 0);
                    self.find_sketch(name)?.0.add_hash(hash);
                }
            }
            ("hashes", values) => {
                let values = parse_all::<i64>(values)?;
                self.find_sketch(name)?.0.add_hash_iter(values.into_iter().map(i64::cast_unsigned));
            }
            ("range", [from, to]) => {
                let range = from.parse::<i64>()?..to.parse()?;
                self.find_sketch(name)?.0.add_i64s(&range.collect::<Vec<_>>());
            }
            ("update", [other]) => {
                let other = self.find_sketch(other)?.0.clone();
                self.find_sketch(name)?.0.merge(&other);
            }
            ("fold", [log2m, regwidth]) => {
                let hll = &mut self.find_sketch(name)?.0;
                *hll = hll.fold_to_params(log2m.parse()?, regwidth.parse()?)?;
            }
            ("bytes", []) => {
                let (hll, dialect) = self.find_sketch(name)?;
                let digits = hll.to_bytes(*dialect).into_iter().map(|byte| format!("{byte:02x}"));
                return Ok(format!("\\x{}", digits.collect::<String>()));
            }
            ("cardinality", []) => return Ok(self.find_sketch(name)?.0.cardinality().to_string()),
            ("ertl", []) => {
                return Ok(self
                    .find_sketch(name)?
                    .0
                    .cardinality_with(CardinalityEstimator::Improved)
                    .to_string());
            }
            ("intersection", [other]) => {
                let other = self.find_sketch(other)?.0.clone();
                let found = self.find_sketch(name)?.0.compare(&other).intersection;
                return Ok(format!("{} {}", found.value, found.standard_error));
            }
            _ => return Err(format!("there is no such command: `{line}`").into()),
        }
        Ok("ok".to_owned())
    }

    fn find_sketch(&mut self, name: &str) -> Result<&mut (Hll, HllStorageDialect), String> {
        self.by_name.get_mut(name).ok_or_else(|| format!("there is no sketch `{name}`"))
    }
}

fn parse_writing_options(
    sparse: &str,
    dialect: &str,
) -> Result<(bool, HllStorageDialect), Box<dyn Error>> {
    let sparse_registers_max = match sparse {
        "true" | "false" => None,
        number => Some(number.parse()?),
    };
    let dialect = match dialect {
        "postgresql" => HllStorageDialect::Postgres { sparse_registers_max },
        "java" => HllStorageDialect::Java,
        _ => return Err(format!("there is no dialect `{dialect}`").into()),
    };
    Ok((sparse != "false", dialect))
}

fn parse_all<T: FromStr>(words: &[&str]) -> Result<Vec<T>, T::Err> {
    words.iter().map(|word| word.parse()).collect()
}

/// Decodes hexadecimal digits, with or without a leading `\x`.
fn bytes(hex: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits = hex.strip_prefix("\\x").unwrap_or(hex).as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hexadecimal digits".into());
    }
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut sketches = Sketches::default();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        match sketches.answer(&line?) {
            Ok(answer) => writeln!(output, "{answer}")?,
            Err(error) => writeln!(output, "error: {}", error.to_string().replace('\n', " "))?,
        }
        output.flush()?;
    }
    Ok(())
}
