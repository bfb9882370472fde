//! Text options: the user's options of text formats, and the options that each format supports.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
pub use tidemill_text::CsvDialect;
use tidemill_text::log_format::LogFormat;
use tidemill_text::syslog::SyslogFraming;

use crate::error::{Error, Result};

/// The options of text formats as the user gave them; absent options have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextOptions {
    /// The first record names the columns. Default: true.
    pub header: Option<bool>,
    /// The byte between fields. Default: `,` for csv, tab for tsv.
    pub delimiter: Option<u8>,
    /// The byte around quoted fields; `Some(None)` turns quoting off. Default: `"`.
    pub quote: Option<Option<u8>>,
    /// A byte that makes the next one literal inside quotes, besides doubled quotes.
    /// Default: none.
    pub escape: Option<u8>,
    /// Character at the beginning of lines that are skipped. Default: none.
    pub comment: Option<u8>,
    /// Number of lines at the beginning of each file that are neither header nor records. Default: 0.
    pub skip_lines: Option<u64>,
    /// Line number of each file's header, counted from 1; the lines above it are skipped. Excludes
    /// `skip_lines`. Default: the first line that is not skipped.
    pub header_row: Option<u64>,
    /// Strings that mean null, besides the empty field. Default: none.
    pub nulls: Vec<String>,
    /// Checks the grammar of JSON values that are not read, too. Default: false.
    pub strict: Option<bool>,
    /// Policy for a value that does not match its column's type. Default: its record is rejected.
    pub mismatch: Option<TypeMismatchPolicy>,
    /// Framing of the records of a system log. Default: every line is a record.
    pub framing: Option<SyslogFraming>,
    /// Line format of an access log, in its server's notation. Default: inferred from a sample.
    pub log_format: Option<String>,
}

/// The text options that a format supports.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TextOptionSupport {
    /// Default field separator of delimited text; none for other formats.
    pub(crate) default_delimiter: Option<u8>,
    /// Supports strings that mean null.
    pub(crate) nulls: bool,
    /// Supports checking the values that are not read.
    pub(crate) strict: bool,
    /// Supports a choice of record framing.
    pub(crate) framing: bool,
    /// Supports a description of log lines.
    pub(crate) log_format: bool,
}

/// Parses the framing of a system log from a job or a flag.
///
/// # Errors
/// [`Error::Usage`] for any word other than `lines` and `octets`.
pub fn parse_framing(word: &str) -> Result<SyslogFraming> {
    match word {
        "lines" => Ok(SyslogFraming::Lines),
        "octets" => Ok(SyslogFraming::Octets),
        _ => Err(Error::usage(format!("`framing` is `lines` or `octets`, not `{word}`"))),
    }
}

/// Compiles the line format of a log from a job or a flag.
///
/// # Errors
/// [`Error::Usage`] for an invalid format.
pub fn parse_log_format(description: &str) -> Result<LogFormat> {
    LogFormat::new(description)
        .map_err(|bad| Error::usage_with_hint(format!("`log_format`: {}", bad.message), bad.hint))
}

/// Policy for a text value that does not match its column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TypeMismatchPolicy {
    /// The record is rejected as malformed.
    #[default]
    Error,
    /// The value becomes null.
    Null,
}

impl FromStr for TypeMismatchPolicy {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "error" => Ok(TypeMismatchPolicy::Error),
            "null" => Ok(TypeMismatchPolicy::Null),
            _ => Err(Error::usage(format!("`mismatch` is `error` or `null`, not `{word}`"))),
        }
    }
}

/// Returns the ASCII character of an option: itself, `\t`, or its code as `\x01`.
#[must_use]
pub fn parse_option_character(text: &str) -> Option<u8> {
    let byte = match (text.as_bytes(), text.strip_prefix("\\x")) {
        ([one], _) => *one,
        (b"\\t", _) => b'\t',
        (_, Some(digits)) if digits.len() == 2 => u8::from_str_radix(digits, 16).ok()?,
        _ => return None,
    };
    byte.is_ascii().then_some(byte)
}

impl TextOptions {
    /// Returns the number of lines at the beginning of each file that are neither header nor records.
    pub(crate) fn skipped_line_count(&self) -> u64 {
        let above_header = self.header_row.map(|row| row.saturating_sub(1));
        self.skip_lines.or(above_header).unwrap_or(0)
    }

    /// Rejects line numbers that contradict each other or the header.
    fn check_line_options(&self) -> Result<()> {
        match (self.skip_lines, self.header_row) {
            (Some(_), Some(_)) => Err(Error::usage_with_hint(
                "options `skip_lines` and `header_row` exclude each other",
                "`header_row` N is `skip_lines` N - 1 of a file with a header",
            )),
            (_, Some(0)) => Err(Error::usage_with_hint(
                "option `header_row` is 0, and the first line of a file is 1",
                "leave it out, or say header = false of a file without a header (--header=false)",
            )),
            (_, Some(_)) if self.header == Some(false) => Err(Error::usage_with_hint(
                "option `header_row` names the line of a header, and `header` says that there is none",
                "`skip_lines` leaves out lines above the records of a file without a header",
            )),
            _ => Ok(()),
        }
    }

    /// Sets an option by its name from text: one character, a number, or `true` or `false`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown option, or an invalid value.
    pub fn set_option(&mut self, option: &str, value: &str) -> Result<()> {
        let refused = |expected: &str| {
            Error::usage(format!("option `{option}` is {expected}, not `{}`", value.escape_debug()))
        };
        let one_character =
            || parse_option_character(value).ok_or_else(|| refused("one ASCII character"));
        let number = || value.parse().map_err(|_| refused("a number of lines"));
        match option {
            "header" => {
                let is_there = value.to_ascii_lowercase().parse();
                self.header = Some(is_there.map_err(|_| refused("`true` or `false`"))?);
            }
            "delimiter" => self.delimiter = Some(one_character()?),
            "quote" if value.is_empty() => self.quote = Some(None),
            "quote" => self.quote = Some(Some(one_character()?)),
            "escape" => self.escape = Some(one_character()?),
            "comment" => self.comment = Some(one_character()?),
            "skip_lines" => self.skip_lines = Some(number()?),
            "header_row" => self.header_row = Some(number()?),
            "null" => self.nulls.push(value.to_owned()),
            "log_format" => {
                parse_log_format(value)?;
                self.log_format = Some(value.to_owned());
            }
            _ => return Err(Error::usage(format!("there is no option `{option}`"))),
        }
        Ok(())
    }

    /// Returns the full dialect of a format of this name. `takes` lists the options that the format supports;
    /// it is none for a format that is not text.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option does not belong to the format, or two options name the same byte.
    pub(crate) fn to_dialect(
        &self,
        format: &str,
        takes: Option<TextOptionSupport>,
    ) -> Result<CsvDialect> {
        let TextOptionSupport { default_delimiter: delimiter, nulls, strict, framing, log_format } =
            takes.unwrap_or_default();
        for (given, name) in [
            (self.header.is_some(), "header"),
            (self.delimiter.is_some(), "delimiter"),
            (self.quote.is_some(), "quote"),
            (self.escape.is_some(), "escape"),
            (self.comment.is_some(), "comment"),
            (self.skip_lines.is_some(), "skip_lines"),
            (self.header_row.is_some(), "header_row"),
        ] {
            if given && delimiter.is_none() {
                return Err(Error::usage_with_hint(
                    format!("option `{name}` has no meaning for format `{format}`"),
                    "it belongs to csv and tsv; remove it, or name the format with \
                     --source-format (job file: source.format)",
                ));
            }
        }
        self.check_line_options()?;
        if !self.nulls.is_empty() && !nulls {
            return Err(Error::usage(format!(
                "option `null` has no meaning for format `{format}`"
            )));
        }
        if self.strict.is_some() && !strict {
            return Err(Error::usage_with_hint(
                format!("option `strict` has no meaning for format `{format}`"),
                "it belongs to json; in the other formats everything is checked always",
            ));
        }
        if self.mismatch.is_some() && takes.is_none() {
            return Err(Error::usage(format!(
                "option `mismatch` has no meaning for format `{format}`"
            )));
        }
        if self.framing.is_some() && !framing {
            return Err(Error::usage_with_hint(
                format!("option `framing` has no meaning for format `{format}`"),
                "it belongs to syslog: --source-format syslog (job file: source.format)",
            ));
        }
        if self.log_format.is_some() && !log_format {
            return Err(Error::usage_with_hint(
                format!("option `log_format` has no meaning for format `{format}`"),
                "it belongs to access-log: --source-format access-log (job file: source.format)",
            ));
        }
        let dialect = CsvDialect {
            header: self.header.unwrap_or(true),
            delimiter: self.delimiter.or(delimiter).unwrap_or(b','),
            quote: self.quote.unwrap_or(Some(b'"')),
            escape: self.escape,
            comment: self.comment,
            nulls: self.nulls.clone(),
            checks_quotes: self.quote.is_none() && self.escape.is_none(),
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
                // An escape that equals the quote is the doubled quote, which is always on.
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
        Ok(CsvDialect { escape, ..dialect })
    }
}
