//! What a file is: its format, told from its name or by the user, and the dialect of a text
//! format.
//!
//! A name is read from the right: a compression suffix (`.gz .zst .bz2 .xz`) is set aside,
//! then the last suffix decides.

use std::str::FromStr;

use tidemill_base::error::{Error, Result};
use tidemill_base::suggest;
pub use tidemill_text::Dialect;
use tidemill_text::syslog::Framing;

use super::compression::Compression;
use crate::formats::{self, Registered};

/// A file format that a source can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Delimited text, comma unless told otherwise.
    Csv,
    /// Delimited text, tab unless told otherwise.
    Tsv,
    /// JSON lines: one object per line.
    Json,
    /// Access logs of web servers, in the Common or Combined Log Format.
    AccessLog,
    /// System logs, of RFC 3164 or RFC 5424, a record per line.
    Syslog,
    /// `key=value` pairs, a record per line.
    Logfmt,
    /// Apache Parquet.
    Parquet,
    /// Plain lines of text, as one column `line`.
    Lines,
    /// Rows whose schema stands once (`docs/formats/rowfile.md`).
    Rowfile,
    /// Arrow IPC, files and streams.
    Arrow,
    /// Avro object container files.
    Avro,
    /// Batches that the program around has in memory.
    Memory,
    /// A format that the program around has added.
    Registered(&'static Registered),
}

impl Format {
    /// The names users write, in the order messages list them.
    pub const NAMES: &'static [&'static str] = &[
        "csv",
        "tsv",
        "json",
        "access-log",
        "syslog",
        "logfmt",
        "parquet",
        "arrow",
        "avro",
        "rowfile",
        "lines",
    ];

    /// These, and those of the formats that were added.
    pub fn names() -> Vec<&'static str> {
        Self::NAMES.iter().copied().chain(formats::names(false)).collect()
    }

    /// The format that a file's name tells, if it tells one.
    pub fn from_path(path: &str) -> Option<Self> {
        let suffix = suffix(path)?;
        let added = || formats::with_suffix(&suffix).map(Format::Registered);
        Self::of_suffix(&suffix).or_else(added)
    }

    /// The same, of the formats that are always there.
    pub(crate) fn built_in(path: &str) -> Option<Self> {
        Self::of_suffix(&suffix(path)?)
    }

    fn of_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "csv" => Format::Csv,
            "tsv" | "tab" => Format::Tsv,
            "json" | "jsonl" | "ndjson" => Format::Json,
            "parquet" | "pq" => Format::Parquet,
            "arrow" | "arrows" | "feather" | "ipc" => Format::Arrow,
            "avro" => Format::Avro,
            "rowfile" => Format::Rowfile,
            "logfmt" => Format::Logfmt,
            "txt" | "log" | "text" => Format::Lines,
            _ => return None,
        })
    }

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Json => "json",
            Format::AccessLog => "access-log",
            Format::Syslog => "syslog",
            Format::Logfmt => "logfmt",
            Format::Parquet => "parquet",
            Format::Lines => "lines",
            Format::Rowfile => "rowfile",
            Format::Arrow => "arrow",
            Format::Avro => "avro",
            Format::Memory => "memory",
            Format::Registered(format) => format.name(),
        }
    }

    /// Whether its columns have types of their own, which a schema may only widen.
    pub(crate) fn is_typed(self) -> bool {
        match self {
            Format::Parquet => true,
            other => other.is_batches(),
        }
    }

    /// Whether what can only be read from front to back can be of it.
    pub(crate) fn is_read_forwards(self) -> bool {
        !self.is_typed() || matches!(self, Format::Arrow | Format::Avro)
    }

    /// Whether its rows come as batches that no parser of ours makes.
    pub(crate) fn is_batches(self) -> bool {
        matches!(
            self,
            Format::Rowfile | Format::Arrow | Format::Avro | Format::Memory | Format::Registered(_)
        )
    }

    /// Whether records are delimited text with a [`Dialect`].
    pub fn is_delimited(self) -> bool {
        matches!(self, Format::Csv | Format::Tsv)
    }
}

/// What follows a name's last dot, its compression's suffix set aside.
fn suffix(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, _) = Compression::strip_suffix(name);
    Some(stem.rsplit_once('.')?.1.to_ascii_lowercase())
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Ok(match word.to_ascii_lowercase().as_str() {
            "csv" => Format::Csv,
            "tsv" => Format::Tsv,
            "json" | "jsonl" | "ndjson" => Format::Json,
            "access-log" => Format::AccessLog,
            "syslog" => Format::Syslog,
            "logfmt" => Format::Logfmt,
            "parquet" => Format::Parquet,
            "arrow" => Format::Arrow,
            "avro" => Format::Avro,
            "lines" => Format::Lines,
            "rowfile" => Format::Rowfile,
            other => match formats::named(other) {
                Some(format) => Format::Registered(format),
                None => {
                    return Err(Error::usage(suggest::unknown("format", word, &Self::names())));
                }
            },
        })
    }
}

/// The options of text formats as the user gave them; what is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Whether the first record names the columns. Default: true.
    pub header: Option<bool>,
    /// The byte between fields. Default: `,` for csv, tab for tsv.
    pub delimiter: Option<u8>,
    /// The byte around quoted fields; `Some(None)` turns quoting off. Default: `"`.
    pub quote: Option<Option<u8>>,
    /// A byte that makes the next one literal inside quotes, besides doubled quotes.
    /// Default: none.
    pub escape: Option<u8>,
    /// Lines that start with this byte are skipped. Default: none.
    pub comment: Option<u8>,
    /// Strings that mean null, besides the empty field. Default: none.
    pub nulls: Vec<String>,
    /// Whether the grammar of what is not read is checked too, in JSON. Default: false.
    pub strict: Option<bool>,
    /// What a value is read as that is not of its column's type. Default: a fault of its record.
    pub mismatch: Option<Mismatch>,
    /// How the records of a system log are told apart. Default: every line is one.
    pub framing: Option<Framing>,
}

/// What a job or a flag says of a system log's framing.
///
/// # Errors
/// [`Error::Usage`] for another word than `lines` and `octets`.
pub fn framing(word: &str) -> Result<Framing> {
    match word {
        "lines" => Ok(Framing::Lines),
        "octets" => Ok(Framing::Octets),
        _ => Err(Error::usage(format!("`framing` is `lines` or `octets`, not `{word}`"))),
    }
}

/// What becomes of a value of text that is not of its column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mismatch {
    /// Its record is malformed.
    #[default]
    Error,
    /// It is null, because the user said so.
    Null,
}

impl FromStr for Mismatch {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "error" => Ok(Mismatch::Error),
            "null" => Ok(Mismatch::Null),
            _ => Err(Error::usage(format!("`mismatch` is `error` or `null`, not `{word}`"))),
        }
    }
}

impl TextOptions {
    /// The full dialect for `format`.
    ///
    /// # Errors
    /// [`Error::Usage`] where an option does not belong to the format, or two options name
    /// the same byte.
    pub fn dialect(&self, format: Format) -> Result<Dialect> {
        let delimited = format.is_delimited();
        for (given, name) in [
            (self.header.is_some(), "header"),
            (self.delimiter.is_some(), "delimiter"),
            (self.quote.is_some(), "quote"),
            (self.escape.is_some(), "escape"),
            (self.comment.is_some(), "comment"),
        ] {
            if given && !delimited {
                return Err(Error::usage_hint(
                    format!("option `{name}` has no meaning for format `{format}`"),
                    "it belongs to csv and tsv; remove it, or name the format with \
                     --source-format (job file: source.format)",
                ));
            }
        }
        if !self.nulls.is_empty() && !delimited && format != Format::Json {
            return Err(Error::usage(format!(
                "option `null` has no meaning for format `{format}`"
            )));
        }
        if self.strict.is_some() && format != Format::Json {
            return Err(Error::usage_hint(
                format!("option `strict` has no meaning for format `{format}`"),
                "it belongs to json; in the other formats everything is checked always",
            ));
        }
        if self.mismatch.is_some() && format.is_typed() {
            return Err(Error::usage(format!(
                "option `mismatch` has no meaning for format `{format}`"
            )));
        }
        if self.framing.is_some() && format != Format::Syslog {
            return Err(Error::usage_hint(
                format!("option `framing` has no meaning for format `{format}`"),
                "it belongs to syslog: --source-format syslog (job file: source.format)",
            ));
        }
        let dialect = Dialect {
            header: self.header.unwrap_or(true),
            delimiter: self.delimiter.unwrap_or(if format == Format::Tsv { b'\t' } else { b',' }),
            quote: self.quote.unwrap_or(Some(b'"')),
            escape: self.escape,
            comment: self.comment,
            nulls: self.nulls.clone(),
        };
        let roles = [
            ("delimiter", Some(dialect.delimiter)),
            ("quote", dialect.quote),
            ("escape", dialect.escape),
            ("comment", dialect.comment),
        ];
        for (index, (name, byte)) in roles.iter().enumerate() {
            let Some(byte) = *byte else { continue };
            if matches!(byte, 0 | b'\r' | b'\n') || !byte.is_ascii() {
                return Err(Error::usage(format!(
                    "option `{name}` must be one ASCII character other than a line end, found \
                     `{}`",
                    byte.escape_ascii()
                )));
            }
            for (other, _) in roles[..index].iter().filter(|(_, used)| *used == Some(byte)) {
                // An escape that is the quote itself is the doubled quote, which is on anyway.
                if (*other, *name) == ("quote", "escape") {
                    continue;
                }
                return Err(Error::usage(format!(
                    "options `{other}` and `{name}` are both `{}`",
                    byte.escape_ascii()
                )));
            }
        }
        let escape = dialect.escape.filter(|escape| Some(*escape) != dialect.quote);
        Ok(Dialect { escape, ..dialect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_format_beneath_a_compression_suffix() {
        for (path, expected) in [
            ("a.csv", Some(Format::Csv)),
            ("dir.json/a.CSV.gz", Some(Format::Csv)),
            ("a.tab.xz", Some(Format::Tsv)),
            ("a.jsonl.zst", Some(Format::Json)),
            ("a.pq", Some(Format::Parquet)),
            ("a.arrow", Some(Format::Arrow)),
            ("a.arrows", Some(Format::Arrow)),
            ("a.feather", Some(Format::Arrow)),
            ("a.ipc", Some(Format::Arrow)),
            ("a.avro", Some(Format::Avro)),
            ("access.log.bz2", Some(Format::Lines)),
            ("access.log.1", None),
            ("a.gz", None),
            ("noext", None),
        ] {
            assert_eq!(Format::from_path(path), expected, "{path}");
        }
    }

    #[test]
    fn an_unknown_format_is_answered_with_the_nearest() {
        let message = "jsno".parse::<Format>().unwrap_err().to_string();
        assert!(message.contains("did you mean `json`"), "{message}");
    }

    #[test]
    fn options_that_contradict_one_another_or_the_format_are_refused() {
        let of = |change: fn(&mut TextOptions), format| {
            let mut options = TextOptions::default();
            change(&mut options);
            options.dialect(format).map_err(|e| e.to_string())
        };
        assert!(of(|o| o.delimiter = Some(b'"'), Format::Csv).unwrap_err().contains("both `\\\"`"));
        assert!(of(|o| o.header = Some(false), Format::Json).unwrap_err().contains("`header`"));
        assert!(of(|o| o.quote = Some(Some(b'\n')), Format::Csv).is_err());
        let octets = |o: &mut TextOptions| o.framing = Some(Framing::Octets);
        assert!(of(octets, Format::Syslog).is_ok());
        assert!(of(octets, Format::Lines).unwrap_err().contains("`framing`"));
        assert!(framing("octet").unwrap_err().to_string().contains("`lines` or `octets`"));
        assert_eq!(of(|o| o.escape = Some(b'"'), Format::Csv).unwrap().escape, None);
        assert_eq!(of(|_| (), Format::Tsv).unwrap().delimiter, b'\t');
    }
}
