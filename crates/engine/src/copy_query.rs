//! `COPY (SELECT …) TO 'file' (options)` as a query and an output: another spelling of a query run with an
//! output.
//!
//! Options have DuckDB's names where they mean the same here. Every other option is refused, because ignoring
//! an option would change the files.

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;
use tidemill_dialect::copy_statement::{CopyOption, CopyStatement};
use tidemill_sink::{OutputFormat, SinkSpec};

/// The option names, each followed by its synonyms.
const COPY_OPTION_NAMES: [&str; 17] = [
    "FORMAT",
    "HEADER",
    "DELIMITER",
    "DELIM",
    "SEP",
    "NULLSTR",
    "NULL",
    "COMPRESSION",
    "CODEC",
    "COMPRESSION_LEVEL",
    "PARTITION_BY",
    "WRITE_PARTITION_COLUMNS",
    "FILENAME_PATTERN",
    "OVERWRITE_OR_IGNORE",
    "OVERWRITE",
    "MAX_FILES",
    "FILE_EXTENSION",
];

/// A `COPY … TO` statement: the query whose rows are written, and their destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyQuery {
    /// The query as SQL.
    pub query_sql: String,
    /// The destination of the rows.
    pub sink: SinkSpec,
}

impl CopyQuery {
    /// Parses a text that begins with `COPY`; returns `None` for every other text.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid `COPY … TO`, for an unknown option, and for options that exclude each
    /// other.
    pub fn parse(sql: &str) -> Result<Option<Self>> {
        let Some(CopyStatement { query, target, options }) = CopyStatement::parse(sql)? else {
            return Ok(None);
        };
        let sink = CopyOptions::parse_options(&options)?.into_sink_spec(target)?;
        Ok(Some(CopyQuery { query_sql: query, sink }))
    }
}

/// The parsed options of a statement.
#[derive(Debug, Default)]
struct CopyOptions {
    format: Option<OutputFormat>,
    has_header: Option<bool>,
    delimiter: Option<String>,
    null_text: Option<String>,
    compression: Option<String>,
    compression_level: Option<String>,
    partition_by: Vec<String>,
    file_name_pattern: Option<String>,
    file_extension: Option<String>,
    overwrites_files: bool,
    /// True if `OVERWRITE` is set, with which DuckDB empties the folder of a partitioned output.
    empties_folder: bool,
    max_files: Option<usize>,
}

impl CopyOptions {
    fn parse_options(options: &[CopyOption]) -> Result<Self> {
        let mut read = CopyOptions::default();
        for option in options {
            match option.name.as_str() {
                "FORMAT" => read.format = Some(single_value(option)?.to_lowercase().parse()?),
                "HEADER" => read.has_header = Some(boolean_value(option)?),
                "DELIMITER" | "DELIM" | "SEP" => {
                    read.delimiter = Some(single_value(option)?.to_owned())
                }
                "NULL" | "NULLSTR" => read.null_text = Some(single_value(option)?.to_owned()),
                "COMPRESSION" | "CODEC" => {
                    read.compression = Some(single_value(option)?.to_lowercase())
                }
                "COMPRESSION_LEVEL" => {
                    read.compression_level = Some(single_value(option)?.to_owned())
                }
                "PARTITION_BY" => {
                    if option.values.is_empty() {
                        return Err(invalid_value_error(
                            option,
                            "columns: PARTITION_BY (state, day)",
                        ));
                    }
                    read.partition_by.clone_from(&option.values);
                }
                "WRITE_PARTITION_COLUMNS" => {
                    if !boolean_value(option)? {
                        return Err(Error::usage_with_hint(
                            "COPY leaves no columns out of the files: `WRITE_PARTITION_COLUMNS false` is not supported",
                            "the columns of PARTITION_BY stand in the files too; leave the option out",
                        ));
                    }
                }
                "FILENAME_PATTERN" => {
                    read.file_name_pattern = Some(single_value(option)?.to_owned())
                }
                "FILE_EXTENSION" => read.file_extension = Some(single_value(option)?.to_owned()),
                "OVERWRITE_OR_IGNORE" => read.overwrites_files |= boolean_value(option)?,
                "OVERWRITE" => read.empties_folder = boolean_value(option)?,
                "MAX_FILES" => {
                    let count = single_value(option)?.parse().ok().filter(|count| *count > 0);
                    read.max_files = Some(
                        count.ok_or_else(|| invalid_value_error(option, "a number of files"))?,
                    );
                }
                other => return Err(unknown_option_error(other)),
            }
        }
        Ok(read)
    }

    /// Converts the options into an output.
    fn into_sink_spec(self, target: String) -> Result<SinkSpec> {
        let format = self.resolve_format(&target)?;
        let mut sink = SinkSpec::new(target);
        sink.format = self.format;
        if let Some(delimiter) = &self.delimiter {
            sink.format = Some(format_with_delimiter(format, delimiter)?);
        }
        let is_table = [OutputFormat::Csv, OutputFormat::Tsv, OutputFormat::Text].contains(&format);
        for (name, is_said) in
            [("HEADER", self.has_header.is_some()), ("NULL", self.null_text.is_some())]
        {
            if is_said && !is_table {
                return Err(Error::usage_with_hint(
                    format!("the COPY option {name} means nothing to format `{format}`"),
                    "csv, tsv and text have it; leave it out",
                ));
            }
        }
        sink.has_header = self.has_header.unwrap_or(true);
        sink.null_text.clone_from(&self.null_text);
        sink.compression = self.compression_text()?.map(|text| text.parse()).transpose()?;
        sink.max_files = self.max_files.unwrap_or(sink.max_files);
        if self.empties_folder && !self.partition_by.is_empty() {
            return Err(Error::usage_with_hint(
                "the COPY option OVERWRITE empties the folder of a partitioned output, and no run empties a folder",
                "OVERWRITE_OR_IGNORE replaces the files of the names that are written, and leaves others",
            ));
        }
        sink.overwrite = self.overwrites_files || self.empties_folder;
        if self.partition_by.is_empty() {
            for (name, is_said) in [
                ("FILENAME_PATTERN", self.file_name_pattern.is_some()),
                ("FILE_EXTENSION", self.file_extension.is_some()),
            ] {
                if is_said {
                    return Err(Error::usage_with_hint(
                        format!("the COPY option {name} means nothing without PARTITION_BY"),
                        "name the file behind TO",
                    ));
                }
            }
            return Ok(sink);
        }
        sink.url = self.partitioned_url(&sink, format)?;
        sink.format = Some(sink.format.unwrap_or(format));
        Ok(sink)
    }

    /// Returns the stated format, or the format that the output's name tells. Standard output defaults to
    /// CSV.
    fn resolve_format(&self, target: &str) -> Result<OutputFormat> {
        let told = self.format.or_else(|| OutputFormat::from_path(target));
        if let Some(format) = told {
            return Ok(format);
        }
        // The sink also writes CSV to `/dev/stdout` and similar files.
        if target == "-" || target.starts_with("/dev/") {
            return Ok(OutputFormat::Csv);
        }
        let names = OutputFormat::names().join(", ");
        Err(Error::usage_with_hint(
            format!("cannot tell the output's format from the name `{target}`"),
            format!("end it with a format's suffix, or say it: (FORMAT parquet); {names}"),
        ))
    }

    /// Returns the compression as text that [`Compression`](tidemill_sink::OutputCompression) parses.
    fn compression_text(&self) -> Result<Option<String>> {
        let name = match self.compression.as_deref() {
            Some("uncompressed") => Some("none"),
            Some("auto") | None => None,
            other => other,
        };
        match (name, &self.compression_level) {
            (name, None) => Ok(name.map(str::to_owned)),
            (Some(name), Some(level)) => Ok(Some(format!("{name}:{level}"))),
            (None, Some(_)) => Err(Error::usage_with_hint(
                "the COPY option COMPRESSION_LEVEL means nothing without COMPRESSION",
                "say both: (COMPRESSION zstd, COMPRESSION_LEVEL 9)",
            )),
        }
    }

    /// Returns the path template of an output with a folder for each value: `out/state={state}/data_0.csv`.
    fn partitioned_url(&self, sink: &SinkSpec, format: OutputFormat) -> Result<String> {
        if sink.url == "-" {
            return Err(Error::usage_with_hint(
                "the COPY option PARTITION_BY writes folders, and the output is standard output",
                "name a folder behind TO",
            ));
        }
        let mut url = sink.url.trim_end_matches('/').to_owned();
        for column in &self.partition_by {
            if column.contains(['{', '}', '/', '=', '%']) {
                return Err(Error::usage_with_hint(
                    format!("`{column}` cannot be the name of a folder's key"),
                    "give the column another name: SELECT … AS day",
                ));
            }
            url.push_str(&format!("/{column}={{{column}}}"));
        }
        let pattern = self.file_name_pattern.as_deref().unwrap_or("data_{i}");
        let is_known = |name: &str| !name.replace("{i}", "").contains(['{', '}', '/']);
        if !is_known(pattern) {
            return Err(Error::usage_with_hint(
                format!("`{pattern}` is no pattern of a file's name here"),
                "it is a name, in which {i} is 0, as there is one file for each value",
            ));
        }
        let format = sink.format.unwrap_or(format);
        let suffix = match &self.file_extension {
            Some(extension) => extension.clone(),
            None => format!("{}{}", format.suffix(), sink.compression_suffix(format)),
        };
        url.push_str(&format!("/{}.{suffix}", pattern.replace("{i}", "0")));
        Ok(url)
    }
}

fn unknown_option_error(name: &str) -> Error {
    let meant = match suggestions::nearest_candidate(name, COPY_OPTION_NAMES) {
        Some(option) => format!("; did you mean `{option}`?"),
        None => String::new(),
    };
    Error::usage_with_hint(
        format!("unknown COPY option `{name}`{meant}"),
        format!("the options are {}", COPY_OPTION_NAMES.join(", ")),
    )
}

/// Returns the single value of an option.
fn single_value(option: &CopyOption) -> Result<&str> {
    match option.values.as_slice() {
        [value] => Ok(value),
        _ => Err(invalid_value_error(option, "one value")),
    }
}

/// Returns the boolean value of an option; an option without a value is true.
fn boolean_value(option: &CopyOption) -> Result<bool> {
    let word = match option.values.as_slice() {
        [] => return Ok(true),
        [word] => word.to_lowercase(),
        _ => String::new(),
    };
    match word.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(invalid_value_error(option, "true or false")),
    }
}

fn invalid_value_error(option: &CopyOption, wanted: &str) -> Error {
    let CopyOption { name, values } = option;
    let found = match values.is_empty() {
        true => "nothing".to_owned(),
        false => format!("`{}`", values.join(", ")),
    };
    Error::usage(format!("the COPY option {name} takes {wanted}, and not {found}"))
}

/// Returns the text format with the given field delimiter.
fn format_with_delimiter(format: OutputFormat, delimiter: &str) -> Result<OutputFormat> {
    match (format, delimiter) {
        (OutputFormat::Csv, ",") => Ok(OutputFormat::Csv),
        (OutputFormat::Csv | OutputFormat::Tsv, "\t" | "\\t") => Ok(OutputFormat::Tsv),
        (OutputFormat::Csv | OutputFormat::Tsv, other) => Err(Error::usage_with_hint(
            format!("`{}` does not delimit the fields of an output", other.escape_default()),
            "csv has commas between fields and tsv has tabs: (FORMAT tsv)",
        )),
        (other, _) => Err(Error::usage_with_hint(
            format!("the COPY option DELIMITER means nothing to format `{other}`"),
            "csv and tsv have it; leave it out",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_sink(options: &str) -> Result<SinkSpec> {
        Ok(CopyQuery::parse(&format!("COPY (SELECT 1 AS a) TO {options}"))?.unwrap().sink)
    }

    #[test]
    fn copy_options_become_sink_settings() {
        let new = |url: &str| SinkSpec::new(url);
        let with = |url: &str, format: OutputFormat| SinkSpec { format: Some(format), ..new(url) };
        for (options, expected) in [
            ("'a.csv'", new("a.csv")),
            ("STDOUT", new("-")),
            ("'a.dat' (FORMAT Parquet)", with("a.dat", OutputFormat::Parquet)),
            ("'a.csv' (DELIM ',', HEADER)", with("a.csv", OutputFormat::Csv)),
            ("'a.csv' (SEP E'\\t')", with("a.csv", OutputFormat::Tsv)),
            ("'a.csv' (HEADER false)", SinkSpec { has_header: false, ..new("a.csv") }),
            ("'a.csv' (NULLSTR 'NA')", SinkSpec { null_text: Some("NA".into()), ..new("a.csv") }),
            ("'a.csv' (OVERWRITE_OR_IGNORE)", SinkSpec { overwrite: true, ..new("a.csv") }),
            ("'a.csv' (OVERWRITE 1)", SinkSpec { overwrite: true, ..new("a.csv") }),
            ("'a.csv' (MAX_FILES 3)", SinkSpec { max_files: 3, ..new("a.csv") }),
            (
                "'a.parquet' (COMPRESSION 'ZSTD', COMPRESSION_LEVEL 9)",
                SinkSpec { compression: Some("zstd:9".parse().unwrap()), ..new("a.parquet") },
            ),
            (
                "'a.parquet' (CODEC uncompressed)",
                SinkSpec { compression: Some("none".parse().unwrap()), ..new("a.parquet") },
            ),
            (
                "'out/' (FORMAT parquet, PARTITION_BY (a, \"B c\"))",
                with("out/a={a}/B c={B c}/data_0.parquet", OutputFormat::Parquet),
            ),
            (
                "'out' (FORMAT csv, PARTITION_BY a, COMPRESSION gzip)",
                SinkSpec {
                    compression: Some("gzip".parse().unwrap()),
                    ..with("out/a={a}/data_0.csv.gz", OutputFormat::Csv)
                },
            ),
            (
                "'out' (FORMAT json, PARTITION_BY (a), FILENAME_PATTERN 'part-{i}', FILE_EXTENSION 'jsonl')",
                with("out/a={a}/part-0.jsonl", OutputFormat::Json),
            ),
        ] {
            assert_eq!(parse_sink(options).unwrap(), expected, "{options}");
        }
    }

    #[test]
    fn unsupported_copy_options_are_refused() {
        for (options, expected) in [
            ("'a'", "cannot tell the output's format from the name `a`"),
            ("'a.csv' (HEADR)", "unknown COPY option `HEADR`; did you mean `HEADER`?"),
            ("'a.parquet' (ROW_GROUP_SIZE 5)", "unknown COPY option `ROW_GROUP_SIZE`"),
            ("'a.csv' (FORMAT xlsx)", "unknown output format `xlsx`"),
            (
                "'a.csv' (HEADER maybe)",
                "the COPY option HEADER takes true or false, and not `maybe`",
            ),
            ("'a.csv' (FORMAT)", "the COPY option FORMAT takes one value, and not nothing"),
            ("'a.json' (HEADER)", "the COPY option HEADER means nothing to format `json`"),
            ("'a.parquet' (NULL 'x')", "the COPY option NULL means nothing to format `parquet`"),
            ("'a.csv' (DELIMITER '|')", "`|` does not delimit the fields of an output"),
            (
                "'a.json' (DELIMITER ',')",
                "the COPY option DELIMITER means nothing to format `json`",
            ),
            ("'a.csv' (COMPRESSION zip)", "unknown compression `zip`"),
            ("'a.csv' (COMPRESSION_LEVEL 3)", "the COPY option COMPRESSION_LEVEL means nothing"),
            ("'a.csv' (MAX_FILES 0)", "the COPY option MAX_FILES takes a number of files"),
            ("'a.csv' (FILE_EXTENSION 'x')", "the COPY option FILE_EXTENSION means nothing"),
            ("'o' (FORMAT csv, PARTITION_BY (a), OVERWRITE)", "the COPY option OVERWRITE empties"),
            ("'o' (FORMAT csv, PARTITION_BY)", "the COPY option PARTITION_BY takes columns"),
            ("'o' (FORMAT csv, PARTITION_BY (\"a/b\"))", "`a/b` cannot be the name of a folder"),
            ("STDOUT (PARTITION_BY (a))", "the COPY option PARTITION_BY writes folders"),
            (
                "'o' (FORMAT csv, PARTITION_BY (a), FILENAME_PATTERN 'x_{uuid}')",
                "`x_{uuid}` is no pattern",
            ),
            (
                "'o' (FORMAT csv, PARTITION_BY (a), WRITE_PARTITION_COLUMNS false)",
                "COPY leaves no columns out of the files",
            ),
        ] {
            let error = parse_sink(options).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{options}: {error}");
        }
    }
}
