//! How outputs are compressed: what was asked for, what a name tells, and what a format can do.
//!
//! Text is compressed as a whole, beneath a name that tells it (`.gz .zst .bz2 .xz`), as sources read
//! it. Where many files wait in memory each move to a file is a member of its own, and readers read
//! members on end. The other formats compress inside, each in its own way.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use tidemill_base::error::{Error, Result};
use tidemill_base::suggest;

use super::format::OutputFormat;

/// How an output is to be compressed, as a user says it: `zstd`, `gzip:9`, `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    name: &'static str,
    level: Option<u32>,
}

const NAMES: [&str; 9] =
    ["none", "gzip", "zstd", "bzip2", "xz", "snappy", "brotli", "lz4", "deflate"];

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (word, level) = match text.split_once(':') {
            Some((word, level)) => (word, Some(level)),
            None => (text, None),
        };
        let name = NAMES.iter().find(|name| **name == word);
        let name =
            name.ok_or_else(|| Error::usage(suggest::unknown("compression", word, &NAMES)))?;
        let level = level.map(|level| {
            level.parse().map_err(|_| {
                Error::usage_hint(
                    format!("`{level}` is not a level of compression"),
                    format!("a level is a number: {name}:9"),
                )
            })
        });
        Ok(Compression { name, level: level.transpose()? })
    }
}

impl Compression {
    /// The suffix of a name that tells it, if there is one.
    pub(super) fn suffix(&self) -> &'static str {
        tidemill_source::Compression::suffix_of(self.name).unwrap_or_default()
    }

    /// Whether it is that there be none.
    pub fn is_none(&self) -> bool {
        self.name == "none"
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "{}:{level}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// What bytes are compressed by, with its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Gzip(u32),
    Zstd(u32),
    Bzip2(u32),
    Xz(u32),
    Snappy,
    Brotli(u32),
    Lz4,
    Deflate(u32),
}

/// A codec that a format can use: its name, and its least, most and usual level.
struct Choice {
    name: &'static str,
    levels: Option<(u32, u32, u32)>,
}

const fn plain(name: &'static str) -> Choice {
    Choice { name, levels: None }
}

const fn leveled(name: &'static str, least: u32, most: u32, usual: u32) -> Choice {
    Choice { name, levels: Some((least, most, usual)) }
}

const TEXT: &[Choice] = &[
    plain("none"),
    leveled("gzip", 0, 9, 6),
    leveled("zstd", 1, 22, 3),
    leveled("bzip2", 1, 9, 9),
    leveled("xz", 0, 9, 6),
];
/// The first one is what is used if nothing is said.
const PARQUET: &[Choice] = &[
    leveled("zstd", 1, 22, 1),
    plain("none"),
    plain("snappy"),
    leveled("gzip", 0, 9, 6),
    leveled("brotli", 0, 11, 1),
    plain("lz4"),
];
const ROWFILE: &[Choice] = &[leveled("zstd", 1, 22, 1), plain("none"), plain("lz4")];
const ARROW: &[Choice] = &[plain("none"), plain("lz4"), leveled("zstd", 1, 22, 1)];
const AVRO: &[Choice] = &[
    leveled("deflate", 0, 9, 1),
    plain("none"),
    plain("snappy"),
    leveled("zstd", 1, 22, 1),
    leveled("bzip2", 1, 9, 9),
    leveled("xz", 0, 9, 6),
];
const REGISTERED: &[Choice] = &[plain("none")];

fn choices(format: OutputFormat) -> &'static [Choice] {
    match format {
        OutputFormat::Text | OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Json => TEXT,
        OutputFormat::Parquet => PARQUET,
        OutputFormat::Arrow => ARROW,
        OutputFormat::Avro => AVRO,
        OutputFormat::Rowfile => ROWFILE,
        OutputFormat::Registered(_) => REGISTERED,
    }
}

fn listed(format: OutputFormat) -> String {
    let choices = choices(format).iter().map(|choice| match choice.levels {
        Some((least, most, _)) => format!("{} ({least} to {most})", choice.name),
        None => choice.name.to_owned(),
    });
    choices.collect::<Vec<_>>().join(", ")
}

impl Codec {
    /// What the files of an output are compressed by. `name` is a file's name or how it ends, if
    /// there is one; the bytes of what `is_filtered` go through a program before they are there.
    ///
    /// # Errors
    /// [`Error::Usage`] for what the format does not have, and for a name that says otherwise.
    pub(super) fn of(
        wanted: Option<&Compression>,
        format: OutputFormat,
        name: Option<&str>,
        is_filtered: bool,
    ) -> Result<Self> {
        let told = match name {
            Some(name) if !is_filtered => {
                tidemill_source::Compression::strip_suffix(name).1.codec()
            }
            _ => None,
        };
        let is_text = !format.is_compressed_inside();
        if let (Some((suffix, codec)), false) = (told, is_text) {
            return Err(Error::usage_hint(
                format!("a name that ends in `{suffix}` is not one of {format}"),
                match choices(format).iter().any(|choice| choice.name == codec) {
                    true => format!("{format} is compressed inside: --compression {codec}"),
                    false => format!("{format} is compressed inside: {}", listed(format)),
                },
            ));
        }
        let wanted = match (wanted, told) {
            (None, None) => return Self::resolved(format, choices(format)[0].name, None),
            (None, Some((_, codec))) => return Self::resolved(format, codec, None),
            (Some(wanted), _) => wanted,
        };
        let codec = Self::resolved(format, wanted.name, wanted.level)?;
        if let (Some(name), true, false) = (name, is_text, is_filtered) {
            let says = told.map_or("none", |(_, codec)| codec);
            // A name that tells nothing of the format tells nothing of this either.
            let tells = told.is_some() || OutputFormat::from_path(name).is_some();
            if tells && says != wanted.name {
                let right = tidemill_source::Compression::suffix_of(wanted.name);
                return Err(Error::usage_hint(
                    match told {
                        Some((suffix, codec)) => format!(
                            "the output's name ends in `{suffix}`, which is {codec}, and its \
                             compression is to be `{wanted}`"
                        ),
                        None => format!(
                            "the output's name does not tell its compression, which is to be \
                             `{wanted}`: who reads it would take it for plain {format}"
                        ),
                    },
                    match right {
                        Some(suffix) => format!("end the name in `{suffix}`"),
                        None => "leave the name's last suffix away".to_owned(),
                    },
                ));
            }
        }
        Ok(codec)
    }

    fn resolved(format: OutputFormat, name: &str, level: Option<u32>) -> Result<Self> {
        let Some(choice) = choices(format).iter().find(|choice| choice.name == name) else {
            return Err(Error::usage_hint(
                format!("{format} cannot be compressed by `{name}`"),
                match format {
                    OutputFormat::Registered(_) => {
                        "its writer makes the file, and compresses it if it likes".to_owned()
                    }
                    _ => format!("it can by {}", listed(format)),
                },
            ));
        };
        let usual = match (choice.levels, level) {
            (Some((least, most, _)), Some(level)) if !(least..=most).contains(&level) => {
                return Err(Error::usage(format!(
                    "`{name}` has levels from {least} to {most} in {format}, not {level}"
                )));
            }
            (None, Some(level)) => {
                return Err(Error::usage_hint(
                    format!("`{name}` has no levels in {format}, and `{name}:{level}` names one"),
                    format!("write `{name}`"),
                ));
            }
            (Some((.., usual)), None) => usual,
            (_, level) => level.unwrap_or(0),
        };
        Ok(match name {
            "gzip" => Codec::Gzip(usual),
            "zstd" => Codec::Zstd(usual),
            "bzip2" => Codec::Bzip2(usual),
            "xz" => Codec::Xz(usual),
            "snappy" => Codec::Snappy,
            "brotli" => Codec::Brotli(usual),
            "lz4" => Codec::Lz4,
            "deflate" => Codec::Deflate(usual),
            _ => Codec::None,
        })
    }

    /// A level as the libraries of zstd take it.
    pub(super) fn signed(level: u32) -> i32 {
        i32::try_from(level).unwrap_or(i32::MAX)
    }

    /// Bytes as a member of a compressed file, or as they are.
    pub(super) fn member<'a>(self, bytes: &'a [u8], out: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if self == Codec::None {
            return Ok(bytes);
        }
        out.clear();
        let mut compressed = Compressed::new(&mut *out, self)?;
        compressed.write_all(bytes)?;
        compressed.finish()?;
        Ok(out)
    }
}

/// An output whose bytes are compressed on their way.
///
/// Dropped before it is finished it writes nothing more: a stream that broke off must not end as if
/// it were whole.
pub(super) struct Compressed<W: Write>(Option<Kind<W>>);

enum Kind<W: Write> {
    Plain(W),
    Gzip(flate2::write::GzEncoder<Gate<W>>),
    Zstd(zstd::stream::write::Encoder<'static, Gate<W>>),
    Bzip2(bzip2::write::BzEncoder<Gate<W>>),
    Xz(liblzma::write::XzEncoder<Gate<W>>),
}

/// What lets bytes through until it is closed.
struct Gate<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> Write for Gate<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed { Ok(bytes.len()) } else { self.out.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed { Ok(()) } else { self.out.flush() }
    }
}

impl<W: Write> Compressed<W> {
    /// Compresses by a codec of text; formats that compress inside are handed on as they are.
    pub(super) fn new(out: W, codec: Codec) -> io::Result<Self> {
        let gate = |out| Gate { out, is_closed: false };
        Ok(Compressed(Some(match codec {
            Codec::Gzip(level) => {
                let level = flate2::Compression::new(level);
                Kind::Gzip(flate2::write::GzEncoder::new(gate(out), level))
            }
            Codec::Zstd(level) => {
                let level = Codec::signed(level);
                let mut encoder = zstd::stream::write::Encoder::new(gate(out), level)?;
                encoder.include_checksum(true)?;
                Kind::Zstd(encoder)
            }
            Codec::Bzip2(level) => {
                let level = bzip2::Compression::new(level);
                Kind::Bzip2(bzip2::write::BzEncoder::new(gate(out), level))
            }
            Codec::Xz(level) => Kind::Xz(liblzma::write::XzEncoder::new(gate(out), level)),
            _ => Kind::Plain(out),
        })))
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        let kind = self.0.take().ok_or_else(|| io::Error::other("finished twice"))?;
        let mut gate = match kind {
            Kind::Plain(out) => return Ok(out),
            Kind::Gzip(encoder) => encoder.finish()?,
            Kind::Zstd(encoder) => encoder.finish()?,
            Kind::Bzip2(encoder) => encoder.finish()?,
            Kind::Xz(encoder) => encoder.finish()?,
        };
        gate.out.flush()?;
        Ok(gate.out)
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(Kind::Plain(out)) => out.write(bytes),
            Some(Kind::Gzip(encoder)) => encoder.write(bytes),
            Some(Kind::Zstd(encoder)) => encoder.write(bytes),
            Some(Kind::Bzip2(encoder)) => encoder.write(bytes),
            Some(Kind::Xz(encoder)) => encoder.write(bytes),
            None => Err(io::Error::other("written to after its end")),
        }
    }

    /// What is compressed stays until the end: handing it on early would make it larger.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Some(Kind::Plain(out)) => out.flush(),
            _ => Ok(()),
        }
    }
}

impl<W: Write> Drop for Compressed<W> {
    fn drop(&mut self) {
        let gate = match &mut self.0 {
            Some(Kind::Gzip(encoder)) => encoder.get_mut(),
            Some(Kind::Zstd(encoder)) => encoder.get_mut(),
            Some(Kind::Bzip2(encoder)) => encoder.get_mut(),
            Some(Kind::Xz(encoder)) => encoder.get_mut(),
            Some(Kind::Plain(_)) | None => return,
        };
        gate.is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wanted: &str, format: OutputFormat, name: &str) -> Result<Codec, String> {
        let wanted = match wanted {
            "" => None,
            text => Some(text.parse::<Compression>().map_err(|error| error.to_string())?),
        };
        let name = Some(name).filter(|name| !name.is_empty());
        Codec::of(wanted.as_ref(), format, name, false).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_the_name_and_the_format_agree() {
        use OutputFormat::{Arrow, Avro, Csv, Json, Parquet, Rowfile, Text};
        for (wanted, format, name, expected) in [
            ("", Csv, "a.csv", Codec::None),
            ("", Csv, "", Codec::None),
            ("", Csv, "a.csv.gz", Codec::Gzip(6)),
            ("", Json, "a.JSON.ZST", Codec::Zstd(3)),
            ("", Text, "a.txt.xz", Codec::Xz(6)),
            ("", Csv, "dump.bz2", Codec::Bzip2(9)),
            ("zstd:19", Json, "a.json.zst", Codec::Zstd(19)),
            ("gzip", Csv, "", Codec::Gzip(6)),
            ("gzip:1", Csv, "dump", Codec::Gzip(1)),
            ("none", Csv, "a.csv", Codec::None),
            ("", Parquet, "a.parquet", Codec::Zstd(1)),
            ("brotli", Parquet, "a.parquet", Codec::Brotli(1)),
            ("lz4", Parquet, "", Codec::Lz4),
            ("none", Parquet, "a.parquet", Codec::None),
            ("", Rowfile, "a.rowfile", Codec::Zstd(1)),
            ("", Arrow, "a.arrow", Codec::None),
            ("zstd", Arrow, "a.arrow", Codec::Zstd(1)),
            ("", Avro, "a.avro", Codec::Deflate(1)),
            ("snappy", Avro, "a.avro", Codec::Snappy),
        ] {
            assert_eq!(of(wanted, format, name), Ok(expected), "{wanted} {format} {name}");
        }
        for (wanted, format, name, expected) in [
            ("zst", Csv, "", "unknown compression `zst`; did you mean `zstd`?"),
            ("gzip:best", Csv, "", "`best` is not a level"),
            ("gzip:10", Csv, "", "`gzip` has levels from 0 to 9 in csv, not 10"),
            (
                "snappy",
                Csv,
                "",
                "csv cannot be compressed by `snappy`\nhint: it can by none, gzip (0 to 9)",
            ),
            ("brotli", Rowfile, "", "hint: it can by zstd (1 to 22), none, lz4"),
            ("snappy:2", Parquet, "", "`snappy` has no levels in parquet"),
            (
                "zstd",
                Csv,
                "a.csv.gz",
                "ends in `.gz`, which is gzip, and its compression is to be `zstd`",
            ),
            ("zstd", Csv, "a.csv", "hint: end the name in `.zst`"),
            ("none", Csv, "a.csv.xz", "hint: leave the name's last suffix away"),
            ("", Parquet, "a.parquet.gz", "hint: parquet is compressed inside: --compression gzip"),
            (
                "",
                Arrow,
                "a.arrow.gz",
                "hint: arrow is compressed inside: none, lz4, zstd (1 to 22)",
            ),
        ] {
            let error = of(wanted, format, name).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        // A program makes the file, and its name is the program's.
        let gzip = Codec::of(None, Csv, Some("a.csv.gz"), true).unwrap();
        assert_eq!(gzip, Codec::None);
    }

    #[test]
    fn what_breaks_off_does_not_end_as_if_it_were_whole() {
        for codec in [Codec::Gzip(6), Codec::Zstd(3), Codec::Bzip2(9), Codec::Xz(0)] {
            let mut whole = Vec::new();
            let mut compressed = Compressed::new(&mut whole, codec).unwrap();
            compressed.write_all(&[7; 100_000]).unwrap();
            compressed.finish().unwrap();
            let mut broken = Vec::new();
            let mut compressed = Compressed::new(&mut broken, codec).unwrap();
            compressed.write_all(&[7; 100_000]).unwrap();
            drop(compressed);
            assert!(broken.len() < whole.len() && whole.starts_with(&broken), "{codec:?}");
        }
    }
}
