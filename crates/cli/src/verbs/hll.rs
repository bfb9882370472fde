//! `hll`: estimates, merges and creates HyperLogLog sketches, also those of other programs.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Result, anyhow};
use serde_json::json;
use tidemill_engine::coverage::format_grouped_digits;
use tidemill_engine::hex::{decode_hex, encode_hex};
use tidemill_engine::sink::StagedFile;
use tidemill_engine::sketch::{
    CardinalityEstimator, ExplicitThreshold, Hll, HllParams, HllStorageDialect, SketchError,
    SketchEstimate, hash_bytes, hash_i64,
};
use tidemill_engine::{CancelFlag, Error, RunId};

use super::{VerbOutcome, print_paged};
use crate::args::{
    HllAddArgs, HllArgs, HllDialect, HllEncoding, HllEstimator, HllExplicitThreshold, HllInfoArgs,
    HllIntersectArgs, HllSparseLimit, HllUnionArgs, HllValueType, HllVerb, HllWriteArgs,
    TextOrJson,
};
use crate::terminal;

/// Number of hashes added to a sketch at once.
const HASH_BATCH_LEN: usize = 4096;

/// `tidemill hll`.
pub(super) fn hll(args: HllArgs) -> Result<VerbOutcome> {
    // A signal ends the process at once: at most a rename needs to finish.
    terminal::watch_signals(&CancelFlag::new())?;
    terminal::clear_current_run();
    match args.verb {
        HllVerb::Info(args) => show_info(&args),
        HllVerb::Union(args) => union_sketches(&args),
        HllVerb::Add(args) => add_values(&args),
        HllVerb::Intersect(args) => estimate_intersection(&args),
    }
}

/// A sketch with the argument or line that it comes from.
struct LocatedSketch {
    origin: String,
    bytes: Vec<u8>,
    hll: Hll,
}

fn show_info(args: &HllInfoArgs) -> Result<VerbOutcome> {
    let estimator = match args.estimator {
        HllEstimator::Published => CardinalityEstimator::Published,
        HllEstimator::Ertl => CardinalityEstimator::Improved,
    };
    let mut all = Vec::new();
    for sketch in &args.sketches {
        for_each_sketch(sketch, args.read.max_log2m, |found| {
            all.push(SketchInfo::from_sketch(&found, estimator));
            Ok(())
        })?;
    }
    if all.is_empty() {
        return Err(no_sketch_error(&args.sketches.join("`, `")));
    }
    let text = match (args.format, all.as_slice()) {
        (TextOrJson::Json, all) => all.iter().map(|info| format!("{}\n", info.to_json())).collect(),
        (TextOrJson::Text, [one]) => one.to_text(),
        (TextOrJson::Text, all) => sketch_table(all),
    };
    print_paged(text.as_bytes())?;
    Ok(VerbOutcome::Complete)
}

/// The properties of a sketch that `hll info` shows.
struct SketchInfo {
    origin: String,
    encoding_kind: &'static str,
    params: HllParams,
    dialects: Vec<&'static str>,
    estimate: SketchEstimate,
    bytes: usize,
}

impl SketchInfo {
    fn from_sketch(found: &LocatedSketch, estimator: CardinalityEstimator) -> Self {
        let LocatedSketch { origin: place, bytes, hll } = found;
        let kinds = ["undefined", "empty", "explicit", "sparse", "full"];
        let kind = bytes.first().map_or(0, |byte| usize::from(byte & 0x0f));
        let would_write = |dialect: HllStorageDialect| {
            // The length comes first, as it takes no memory.
            hll.encoded_len(dialect) == bytes.len() && hll.to_bytes(dialect) == *bytes
        };
        let dialects =
            [("postgresql", HllStorageDialect::default()), ("java", HllStorageDialect::Java)];
        let dialects = dialects.into_iter().filter(|(_, dialect)| would_write(*dialect));
        SketchInfo {
            origin: place.clone(),
            encoding_kind: kinds.get(kind).copied().unwrap_or("unknown"),
            params: hll.params(),
            dialects: dialects.map(|(name, _)| name).collect(),
            estimate: hll.estimate(estimator),
            bytes: bytes.len(),
        }
    }

    fn explicit_text(&self) -> String {
        match self.params.expthresh {
            ExplicitThreshold::Never => "0".to_owned(),
            ExplicitThreshold::PowerOfTwo(power) => format_grouped_digits(1 << power),
            _ => "auto".to_owned(),
        }
    }

    fn dialects_text(&self) -> String {
        match self.dialects.as_slice() {
            [] => "another".to_owned(),
            some => some.join(" or "),
        }
    }

    fn cardinality_text(&self) -> String {
        match self.estimate.value {
            value if value.is_nan() => "unknown".to_owned(),
            value => format_estimate(value),
        }
    }

    /// Returns the standard error, absolute and in percent.
    fn error_text(&self) -> String {
        let SketchEstimate { value, standard_error, .. } = self.estimate;
        match standard_error {
            error if error.is_nan() => "unknown".to_owned(),
            0.0 => "0 (exact)".to_owned(),
            error => format!("{} ({:.2} %)", format_estimate(error), error / value * 100.0),
        }
    }

    fn to_text(&self) -> String {
        let registers = format_grouped_digits(1 << self.params.log2m);
        let lines = [
            ("sketch", self.origin.clone()),
            ("type", self.encoding_kind.to_owned()),
            ("log2m", format!("{} ({registers} registers)", self.params.log2m)),
            ("regwidth", self.params.regwidth.to_string()),
            ("explicit", self.explicit_text()),
            ("sparse", self.params.sparse.to_string()),
            ("dialect", self.dialects_text()),
            ("cardinality", self.cardinality_text()),
            ("standard error", self.error_text()),
            ("bytes", format_grouped_digits(self.bytes as u64)),
        ];
        lines.iter().map(|(name, value)| format!("{name:<14}  {value}\n")).collect()
    }

    fn to_json(&self) -> serde_json::Value {
        let explicit = match self.params.expthresh {
            ExplicitThreshold::Never => json!(0),
            ExplicitThreshold::PowerOfTwo(power) => json!(1_u64 << power),
            _ => json!("auto"),
        };
        let finite = |value: f64| value.is_finite().then_some(value);
        let (low, high) = self.estimate.confidence_interval();
        json!({
            "sketch": self.origin,
            "type": self.encoding_kind,
            "log2m": self.params.log2m,
            "regwidth": self.params.regwidth,
            "explicit": explicit,
            "sparse": self.params.sparse,
            "dialects": self.dialects,
            "cardinality": finite(self.estimate.value),
            "standard_error": finite(self.estimate.standard_error),
            "low": finite(low),
            "high": finite(high),
            "bytes": self.bytes,
        })
    }
}

/// Returns a table with a row for each sketch.
fn sketch_table(all: &[SketchInfo]) -> String {
    let names = [
        "sketch",
        "type",
        "log2m",
        "regwidth",
        "explicit",
        "cardinality",
        "standard error",
        "bytes",
    ];
    // Numbers are right-aligned.
    let is_right = [false, false, true, true, true, true, true, true];
    let row = |info: &SketchInfo| {
        [
            info.origin.clone(),
            info.encoding_kind.to_owned(),
            info.params.log2m.to_string(),
            info.params.regwidth.to_string(),
            info.explicit_text(),
            info.cardinality_text(),
            info.error_text(),
            format_grouped_digits(info.bytes as u64),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(names.map(str::to_owned)).chain(all.iter().map(row)).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).zip(is_right).map(|((cell, &width), is_right)| {
            if is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn union_sketches(args: &HllUnionArgs) -> Result<VerbOutcome> {
    check_write_args(&args.write)?;
    let mut union: Option<Hll> = None;
    for sketch in &args.sketches {
        merge_argument(&mut union, sketch, args.read.max_log2m)?;
    }
    let union = union.ok_or_else(|| no_sketch_error(&args.sketches.join("`, `")))?;
    write_sketch(union, &args.write)
}

/// Merges all sketches of an argument into `union`.
fn merge_argument(union: &mut Option<Hll>, sketch: &str, max_log2m: u8) -> Result<()> {
    for_each_sketch(sketch, max_log2m, |found| {
        match union {
            Some(union) => union.merge_owned(found.hll),
            None => *union = Some(found.hll),
        }
        Ok(())
    })
}

fn no_sketch_error(place: &str) -> anyhow::Error {
    anyhow!("`{place}` has no sketch in it")
}

fn add_values(args: &HllAddArgs) -> Result<VerbOutcome> {
    check_write_args(&args.write)?;
    let mut hll = match &args.sketch {
        Some(sketch) => {
            let is_stdin = |path: &Path| path == Path::new("-");
            if sketch == "-" && args.values.iter().all(|path| is_stdin(path)) {
                let hint = "name a file of values with --values";
                let error = "the sketch and the values both come from standard input";
                return Err(Error::usage_with_hint(error, hint).into());
            }
            read_single_sketch(sketch, args.read.max_log2m)?
        }
        None => Hll::new(HllParams {
            log2m: args.log2m.unwrap_or(11),
            regwidth: args.regwidth.unwrap_or(5),
            expthresh: match args.explicit {
                None | Some(HllExplicitThreshold::Automatic) => ExplicitThreshold::Automatic,
                Some(HllExplicitThreshold::AtMost(count)) => {
                    ExplicitThreshold::from_count(count)
                        .map_err(|error| convert_sketch_error("", error))?
                }
            },
            sparse: true,
        })
        .map_err(|error| convert_sketch_error("", error))?,
    };
    let stdin = [std::path::PathBuf::from("-")];
    let values = if args.values.is_empty() { &stdin } else { args.values.as_slice() };
    for path in values {
        let (name, mut lines) = open_values(path)?;
        let mut hashes = Vec::with_capacity(HASH_BATCH_LEN);
        for_each_line(&name, &mut lines, |number, line| {
            let hash = hash_line(line, args.kind).map_err(|reason| {
                anyhow!("`{name}:{number}`: {reason}\nhint: --type text takes any line")
            })?;
            hashes.push(hash);
            if hashes.len() == HASH_BATCH_LEN {
                hll.add_hashes(&hashes);
                hashes.clear();
            }
            Ok(())
        })?;
        hll.add_hashes(&hashes);
    }
    write_sketch(hll, &args.write)
}

/// Returns the hash of a line as a value of the type `kind`.
fn hash_line(line: &[u8], kind: HllValueType) -> Result<u64, String> {
    if kind == HllValueType::Text {
        return Ok(hash_bytes(line, 0));
    }
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    let value: i64 = match (text.parse::<i64>(), text.parse::<u64>()) {
        (Ok(value), _) => value,
        (_, Ok(value)) => value.cast_signed(),
        _ => return Err(format!("`{text}` is no whole number of 64 bits")),
    };
    Ok(if kind == HllValueType::Hash { value.cast_unsigned() } else { hash_i64(value) })
}

/// Reads an argument that must contain exactly one sketch.
fn read_single_sketch(sketch: &str, max_log2m: u8) -> Result<Hll> {
    let mut all = Vec::new();
    for_each_sketch(sketch, max_log2m, |found| {
        all.push(found.hll);
        Ok(())
    })?;
    let count = all.len();
    match (all.pop(), count) {
        (Some(hll), 1) => Ok(hll),
        (None, _) => Err(no_sketch_error(sketch)),
        _ => Err(Error::usage_with_hint(
            format!(
                "`{sketch}` has {} sketches, and one is wanted",
                format_grouped_digits(count as u64)
            ),
            "tidemill hll union makes one of them",
        )
        .into()),
    }
}

fn estimate_intersection(args: &HllIntersectArgs) -> Result<VerbOutcome> {
    let united = |sketch: &str| -> Result<Hll> {
        let mut union = None;
        merge_argument(&mut union, sketch, args.read.max_log2m)?;
        union.ok_or_else(|| no_sketch_error(sketch))
    };
    if args.a == "-" && args.b == "-" {
        return Err(Error::usage("both sketches come from standard input").into());
    }
    let (a, b) = (united(&args.a)?, united(&args.b)?);
    let found = a.compare(&b).intersection;
    // This comparison is false for NaN.
    let is_certain = found.margin_of_error() <= found.value;
    if !is_certain && !args.uncertain {
        // Neither a usage error nor a damaged file: the estimate is below its own error.
        return Err(anyhow!(
            "the intersection cannot be told from nothing: {} ± {} (95 %)\n\
             hint: sketches of a larger log2m tell more; --uncertain prints it all the same",
            format_estimate(found.value),
            format_estimate(found.margin_of_error()),
        ));
    }
    let (low, high) = found.confidence_interval();
    let text = match args.format {
        TextOrJson::Json => {
            let finite = |value: f64| value.is_finite().then_some(value);
            let json = json!({
                "intersection": finite(found.value),
                "standard_error": finite(found.standard_error),
                "low": finite(low),
                "high": finite(high),
                "certain": is_certain,
            });
            format!("{json}\n")
        }
        TextOrJson::Text => {
            let mut text = String::new();
            let _ = writeln!(text, "intersection    {}", format_estimate(found.value));
            let error = match found.is_exact() {
                true => "0 (exact)".to_owned(),
                false => format_estimate(found.standard_error),
            };
            let _ = writeln!(text, "standard error  {error}");
            let _ = writeln!(
                text,
                "95 % interval   {} to {}",
                format_estimate(low),
                format_estimate(high)
            );
            text
        }
    };
    print_paged(text.as_bytes())?;
    Ok(VerbOutcome::Complete)
}

/// Formats an estimate with three digits, or all digits of a whole number.
fn format_estimate(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "unknown" } else { "infinite" }.to_owned();
    }
    if value.abs() >= 10.0 && value.abs() < 100.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    if value.abs() >= 100.0 || value.fract() == 0.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of values, for people"
        )]
        return format_grouped_digits(value.round() as u64);
    }
    format!("{value:.3}")
}

/// Calls `take` with each sketch of an argument.
fn for_each_sketch(
    word: &str,
    max_log2m: u8,
    mut take: impl FnMut(LocatedSketch) -> Result<()>,
) -> Result<()> {
    let mut read = |place: String, bytes: Vec<u8>| {
        let hll = Hll::from_bytes_with_log2m_max(&bytes, max_log2m)
            .map_err(|error| convert_sketch_error(&place, error))?;
        take(LocatedSketch { origin: place, bytes, hll })
    };
    if word.starts_with("\\x") {
        let place = abridge_argument(word);
        let bytes = decode_sketch_hex(word)
            .ok_or_else(|| Error::usage(format!("`{place}` is no sketch in hexadecimal")))?;
        return read(place, bytes);
    }
    let (name, mut file) = open_values(Path::new(word))?;
    let failed = |error| Error::io("read", &name, error);
    let start = file.fill_buf().map_err(failed)?;
    // Version and type take one byte, which is no first byte of any text.
    if start.first().is_some_and(|byte| (0x10..0x20).contains(byte)) {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        return read(name.clone(), bytes);
    }
    let mut is_first = true;
    for_each_line(&name, &mut file, |number, line| {
        let text = String::from_utf8_lossy(line);
        let text = text.trim().trim_matches('"');
        let place = format!("{name}:{number}");
        let is_header = std::mem::replace(&mut is_first, false) && is_column_name(text);
        match decode_sketch_hex(text) {
            _ if text.is_empty() || text == "\\N" => Ok(()),
            Some(bytes) => read(place, bytes),
            None if is_header => Ok(()),
            None => Err(invalid_hex_error(&place)),
        }
    })
}

/// Returns true if a line may be the name of a column.
fn is_column_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && text.chars().all(|char| char.is_alphanumeric() || " _-.".contains(char))
}

fn invalid_hex_error(place: &str) -> anyhow::Error {
    anyhow!(
        "`{place}` is no sketch in hexadecimal\n\
         hint: a sketch is a line of its own, such as \\x128b7fb2f3d123f28fb5d4; `cut -d, -f2` takes \
         a column of a CSV file"
    )
}

/// Decodes hexadecimal digits with an optional `\x` in front; COPY doubles the backslash.
fn decode_sketch_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim();
    let digits = digits.trim_start_matches('\\').strip_prefix('x').unwrap_or(digits);
    decode_hex(digits).filter(|bytes| !bytes.is_empty())
}

/// Shortens a sketch given as an argument, for messages.
fn abridge_argument(word: &str) -> String {
    const CHARS_MAX: usize = 24;
    match word.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}

/// Converts an error of a sketch from `place`; `place` is empty for errors of parameters.
fn convert_sketch_error(place: &str, error: SketchError) -> Error {
    let (offset, reason) = match error {
        SketchError::ParameterOutOfRange { .. } => {
            let text = error.to_string().replace("`max_log2m`", "--max-log2m");
            let place = if place.is_empty() { String::new() } else { format!("`{place}`: ") };
            return Error::usage(format!("{place}{text}"));
        }
        SketchError::Corrupt { offset, problem, .. } => {
            (u64::try_from(offset).ok(), problem.to_owned())
        }
        other => (None, other.to_string()),
    };
    Error::Corrupt { path: place.to_owned(), offset, reason, hint: None }
}

/// Opens a file, or standard input for `-`, and returns its name for messages and its reader.
fn open_values(path: &Path) -> Result<(String, Box<dyn BufRead>)> {
    if path == Path::new("-") {
        return Ok(("standard input".to_owned(), Box::new(std::io::stdin().lock())));
    }
    let file = std::fs::File::open(path).map_err(|error| Error::io("read", path, error))?;
    Ok((path.display().to_string(), Box::new(BufReader::with_capacity(1 << 18, file))))
}

/// Calls `take` with the number and text of each line, without its line ending.
fn for_each_line(
    name: &str,
    lines: &mut dyn BufRead,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::io("read", name, error))? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        take(number, text.strip_suffix(b"\r").unwrap_or(text))?;
    }
    Ok(())
}

fn check_write_args(args: &HllWriteArgs) -> Result<()> {
    let is_terminal = args.output.is_none() && std::io::stdout().is_terminal();
    if args.format == HllEncoding::Binary && is_terminal {
        return Err(Error::usage_with_hint(
            "a sketch in binary is not for a terminal",
            "name a file with --output, or leave --format binary away",
        )
        .into());
    }
    match (args.dialect, args.sparse) {
        (HllDialect::Java, Some(HllSparseLimit::AtMost(_))) => Err(Error::usage_with_hint(
            "java-hll has no number of sparse registers",
            "--sparse true or false, or --dialect postgresql",
        )
        .into()),
        _ => Ok(()),
    }
}

/// Writes a sketch to the output that the arguments name.
fn write_sketch(mut hll: Hll, args: &HllWriteArgs) -> Result<VerbOutcome> {
    if args.sparse == Some(HllSparseLimit::Never) {
        let params = HllParams { sparse: false, ..hll.params() };
        let mut other = Hll::new(params).map_err(|error| convert_sketch_error("", error))?;
        // A merge keeps the smaller of each parameter; only `sparse` differs here.
        other.merge_owned(hll);
        hll = other;
    }
    let dialect = match (args.dialect, args.sparse) {
        (HllDialect::Java, _) => HllStorageDialect::Java,
        (_, Some(HllSparseLimit::AtMost(max))) => {
            HllStorageDialect::Postgres { sparse_registers_max: Some(max) }
        }
        _ => HllStorageDialect::default(),
    };
    let bytes = hll.to_bytes(dialect);
    let bytes = match args.format {
        HllEncoding::Binary => bytes,
        HllEncoding::Hex => format!("\\x{}\n", encode_hex(bytes)).into_bytes(),
    };
    match &args.output {
        Some(path) => {
            let file = StagedFile::create(path, args.overwrite, &RunId::new());
            let mut file = file.map_err(Error::from)?;
            file.write_all(&bytes).map_err(|error| Error::io("write", path, error))?;
            file.commit(bytes.len() as u64).map_err(Error::from)?;
        }
        None => {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(&bytes).and_then(|()| out.flush());
            written.map_err(|error| match error.kind() {
                std::io::ErrorKind::BrokenPipe => Error::ClosedPipe,
                _ => Error::io("write", "standard output", error),
            })?;
        }
    }
    Ok(VerbOutcome::Complete)
}
