//! Chooses the codec of an output from the user's request, the file name and the format's abilities.

use crate::OutputFormat;
use crate::error::{Error, Result};
use crate::writing::compression::{OutputCodec, OutputCompression};

fn list_codecs(format: OutputFormat) -> String {
    let choices = format.codec_choices().iter().map(|choice| match choice.levels {
        Some((least, most, _)) => format!("{} ({least} to {most})", choice.name),
        None => choice.name.to_owned(),
    });
    choices.collect::<Vec<_>>().join(", ")
}

/// Returns the codec of an output's files. `name` is a file's name or its end, if there is one. If the output
/// `is_filtered`, its bytes pass through a program, and the name says nothing about them.
///
/// # Errors
/// [`Error::Usage`] for a codec that the format does not have, and for a name that contradicts the request.
pub(crate) fn resolve_codec(
    wanted: Option<&OutputCompression>,
    format: OutputFormat,
    name: Option<&str>,
    is_filtered: bool,
) -> Result<OutputCodec> {
    let told = match name {
        Some(name) if !is_filtered => {
            tidemill_source::Compression::strip_suffix(name).1.suffix_and_codec()
        }
        _ => None,
    };
    let is_text = !format.is_binary();
    if let (Some((suffix, codec)), false) = (told, is_text) {
        return Err(Error::usage_with_hint(
            format!("a name that ends in `{suffix}` is not one of {format}"),
            match format.codec_choices().iter().any(|choice| choice.name == codec) {
                true => format!("{format} is compressed inside: --compression {codec}"),
                false => format!("{format} is compressed inside: {}", list_codecs(format)),
            },
        ));
    }
    let wanted = match (wanted, told) {
        (None, None) => return find_codec(format, format.codec_choices()[0].name, None),
        (None, Some((_, codec))) => return find_codec(format, codec, None),
        (Some(wanted), _) => wanted,
    };
    let codec = find_codec(format, wanted.name, wanted.level)?;
    if let (Some(name), true, false) = (name, is_text, is_filtered) {
        let says = told.map_or("none", |(_, codec)| codec);
        // A name without a format's suffix says nothing about compression either.
        let tells = told.is_some() || OutputFormat::from_path(name).is_some();
        if tells && says != wanted.name {
            let right = tidemill_source::Compression::suffix_of_codec(wanted.name);
            return Err(Error::usage_with_hint(
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

fn find_codec(format: OutputFormat, name: &str, level: Option<u32>) -> Result<OutputCodec> {
    let Some(choice) = format.codec_choices().iter().find(|choice| choice.name == name) else {
        return Err(Error::usage_with_hint(
            format!("{format} cannot be compressed by `{name}`"),
            match format.codec_choices() {
                [_] => "its writer makes the file, and compresses it if it likes".to_owned(),
                _ => format!("it can by {}", list_codecs(format)),
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
            return Err(Error::usage_with_hint(
                format!("`{name}` has no levels in {format}, and `{name}:{level}` names one"),
                format!("write `{name}`"),
            ));
        }
        (Some((.., usual)), None) => usual,
        (_, level) => level.unwrap_or(0),
    };
    Ok(match name {
        "gzip" => OutputCodec::Gzip(usual),
        "zstd" => OutputCodec::Zstd(usual),
        "bzip2" => OutputCodec::Bzip2(usual),
        "xz" => OutputCodec::Xz(usual),
        "snappy" => OutputCodec::Snappy,
        "brotli" => OutputCodec::Brotli(usual),
        "lz4" => OutputCodec::Lz4,
        "deflate" => OutputCodec::Deflate(usual),
        _ => OutputCodec::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(wanted: &str, format: OutputFormat, name: &str) -> Result<OutputCodec, String> {
        let told = |error: Error| tidemill_base::Error::from(error).to_string();
        let wanted = match wanted {
            "" => None,
            text => Some(text.parse::<OutputCompression>().map_err(told)?),
        };
        let name = Some(name).filter(|name| !name.is_empty());
        resolve_codec(wanted.as_ref(), format, name, false).map_err(told)
    }

    #[test]
    fn requested_codec_must_agree_with_name_and_format() {
        use OutputFormat::{Arrow, Avro, Csv, Json, Parquet, Rowfile, Text};
        for (wanted, format, name, expected) in [
            ("", Csv, "a.csv", OutputCodec::None),
            ("", Csv, "", OutputCodec::None),
            ("", Csv, "a.csv.gz", OutputCodec::Gzip(6)),
            ("", Json, "a.JSON.ZST", OutputCodec::Zstd(3)),
            ("", Text, "a.txt.xz", OutputCodec::Xz(6)),
            ("", Csv, "dump.bz2", OutputCodec::Bzip2(9)),
            ("zstd:19", Json, "a.json.zst", OutputCodec::Zstd(19)),
            ("gzip", Csv, "", OutputCodec::Gzip(6)),
            ("gzip:1", Csv, "dump", OutputCodec::Gzip(1)),
            ("none", Csv, "a.csv", OutputCodec::None),
            ("", Parquet, "a.parquet", OutputCodec::Zstd(1)),
            ("brotli", Parquet, "a.parquet", OutputCodec::Brotli(1)),
            ("lz4", Parquet, "", OutputCodec::Lz4),
            ("none", Parquet, "a.parquet", OutputCodec::None),
            ("", Rowfile, "a.rowfile", OutputCodec::Zstd(1)),
            ("", Arrow, "a.arrow", OutputCodec::None),
            ("zstd", Arrow, "a.arrow", OutputCodec::Zstd(1)),
            ("", Avro, "a.avro", OutputCodec::Deflate(1)),
            ("snappy", Avro, "a.avro", OutputCodec::Snappy),
        ] {
            assert_eq!(resolve(wanted, format, name), Ok(expected), "{wanted} {format} {name}");
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
            let error = resolve(wanted, format, name).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        // A program makes the file, so the name describes the program's output.
        let gzip = resolve_codec(None, Csv, Some("a.csv.gz"), true).unwrap();
        assert_eq!(gzip, OutputCodec::None);
    }
}
