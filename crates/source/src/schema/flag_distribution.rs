//! Distributes command-line flags over the files of a query.
//!
//! `--source-format`, `--schema` and the format options are given once, and the SQL may name several files.
//! Each flag applies to the files that it fits: a format to files whose names declare none, an option to
//! files whose format supports it, and a column's type to files that have the column. A flag that fits no
//! file is an error. Settings for a single file belong to a named source, in a job file's `[[source]]`.

use std::sync::Arc;

use arrow::datatypes::Schema;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_base::suggestions;

use crate::error::{Error, Result};
use crate::{Format, Source, SourceSpec, TextOptions, standard_input};

const NAMED_SOURCE_HINT: &str =
    "a job file's [[source]] has a `format`, options and a `schema` of its own";

/// Returns the source definitions of `urls`, which share the same `flags`, in the order of the URLs.
///
/// # Errors
/// [`Error::Usage`] for a flag that fits no file.
pub fn distribute_flags(
    flags: &SourceSpec,
    urls: &[&str],
    cancel: &CancelFlag,
) -> Result<Vec<SourceSpec>> {
    let bare = SourceSpec {
        format: None,
        text_options: TextOptions::default(),
        declared_schema: None,
        layout_policy: None,
        promotions: Vec::new(),
        salvage_damaged: false,
        ..flags.clone()
    };
    let mut specs: Vec<SourceSpec> =
        urls.iter().map(|url| SourceSpec { url: (*url).into(), ..bare.clone() }).collect();
    if let Some(format) = flags.declared_format() {
        distribute_format(&mut specs, format)?;
    }
    distribute_options(&mut specs, flags)?;
    if flags.declared_schema.is_some() || !flags.promotions.is_empty() {
        distribute_columns(&mut specs, flags, cancel)?;
    }
    Ok(specs)
}

/// Returns the format that a name declares; a log's suffix only declares text, and so counts as none.
fn format_from_name(url: &str) -> Option<Format> {
    let is_web = url.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let path = if is_web { url.split('?').next().unwrap_or(url) } else { url };
    Format::from_path(path).filter(|format| *format != Format::Lines)
}

fn distribute_format(specs: &mut [SourceSpec], format: Format) -> Result<()> {
    let told: Vec<Option<Format>> = specs.iter().map(|spec| format_from_name(&spec.url)).collect();
    let is_open = told.iter().any(|told| told.is_none_or(|told| told == format));
    // Names that all contradict the flag in the same way are wrong.
    let is_wrong = told.windows(2).all(|pair| pair[0] == pair[1]);
    if !is_open && !is_wrong {
        let names = specs.iter().zip(&told).map(|(spec, told)| {
            let told = told.map_or("text", Format::name);
            format!("`{}` is {told}", redact_url(&spec.url))
        });
        return Err(Error::usage_with_hint(
            format!(
                "`--source-format {format}` fits none of the files: by their names, {}",
                names.collect::<Vec<_>>().join(", ")
            ),
            NAMED_SOURCE_HINT,
        ));
    }
    for (spec, told) in specs.iter_mut().zip(told) {
        if told.is_none() || !is_open {
            spec.format = Some(format);
        }
    }
    Ok(())
}

/// Gives each option to the files whose format supports it.
fn distribute_options(specs: &mut [SourceSpec], flags: &SourceSpec) -> Result<()> {
    let formats: Vec<Option<Format>> =
        specs.iter().map(|spec| spec.format.or_else(|| Format::from_path(&spec.url))).collect();
    // The pattern is exhaustive, so that no option is left out.
    let TextOptions {
        header,
        delimiter,
        quote,
        escape,
        comment,
        skip_lines,
        header_row,
        nulls,
        strict,
        mismatch,
        framing,
        log_format,
    } = flags.text_options.clone();
    let none = TextOptions::default;
    for one in [
        TextOptions { header, ..none() },
        TextOptions { delimiter, ..none() },
        TextOptions { quote, ..none() },
        TextOptions { escape, ..none() },
        TextOptions { comment, ..none() },
        TextOptions { skip_lines, ..none() },
        TextOptions { header_row, ..none() },
        TextOptions { nulls, ..none() },
        TextOptions { strict, ..none() },
        TextOptions { mismatch, ..none() },
        TextOptions { framing, ..none() },
        TextOptions { log_format, ..none() },
    ] {
        let means = |format: &Option<Format>| match format {
            Some(format) => {
                one.to_dialect(format.name(), format.supported_text_options()).map(|_| ())
            }
            // A folder, or a name without a suffix: its files decide later.
            None => Ok(()),
        };
        let fits: Vec<Result<()>> = formats.iter().map(means).collect();
        if fits.iter().all(Result::is_err) {
            return fits.into_iter().next().unwrap_or(Ok(()));
        }
        for (spec, fits) in specs.iter_mut().zip(fits) {
            if fits.is_ok() {
                let had = std::mem::take(&mut spec.text_options);
                let nulls = if one.nulls.is_empty() { had.nulls } else { one.nulls.clone() };
                spec.text_options = TextOptions {
                    header: one.header.or(had.header),
                    delimiter: one.delimiter.or(had.delimiter),
                    quote: one.quote.or(had.quote),
                    escape: one.escape.or(had.escape),
                    comment: one.comment.or(had.comment),
                    skip_lines: one.skip_lines.or(had.skip_lines),
                    header_row: one.header_row.or(had.header_row),
                    nulls,
                    strict: one.strict.or(had.strict),
                    mismatch: one.mismatch.or(had.mismatch),
                    framing: one.framing.or(had.framing),
                    log_format: one.log_format.clone().or(had.log_format),
                };
            }
        }
    }
    let give =
        |specs: &mut [SourceSpec], fits: &dyn Fn(Format) -> bool, set: &dyn Fn(&mut SourceSpec)| {
            let fits = |format: &Option<Format>| format.is_none_or(fits);
            // If it fits no file, each reports that when it is opened.
            let fits_none = !formats.iter().any(fits);
            for (spec, format) in specs.iter_mut().zip(&formats) {
                if fits(format) || fits_none {
                    set(spec);
                }
            }
        };
    let has_layouts = |format: Format| format.is_delimited() || format.is_typed();
    give(specs, &has_layouts, &|spec| spec.layout_policy = flags.layout_policy);
    give(specs, &|format| format == Format::Rowfile, &|spec| {
        spec.salvage_damaged = flags.salvage_damaged
    });
    Ok(())
}

/// Gives declared columns, and columns to promote, to the files that have them.
fn distribute_columns(
    specs: &mut [SourceSpec],
    flags: &SourceSpec,
    cancel: &CancelFlag,
) -> Result<()> {
    // Files that need a schema, or that can be read only once, cannot show their columns.
    let names: Vec<Option<Vec<String>>> = specs
        .iter()
        .map(|spec| {
            cancel.check()?;
            if spec.url == "-" || crate::source_opening::is_stream_path(&spec.url) {
                return Ok(None);
            }
            let source = match Source::open_with_stdin(spec, standard_input(), cancel) {
                Ok(source) => source,
                Err(Error::Corrupt { .. }) if flags.declared_schema.is_some() => return Ok(None),
                Err(error) => return Err(error),
            };
            Ok(Some(source.schema().fields().iter().map(|field| field.name().clone()).collect()))
        })
        .collect::<Result<_>>()?;
    let formats: Vec<Option<Format>> =
        specs.iter().map(|spec| spec.format.or_else(|| Format::from_path(&spec.url))).collect();
    let owners = |flag: &str, column: &String| -> Result<Vec<usize>> {
        let has =
            |index: &usize| names[*index].as_ref().is_some_and(|names| names.contains(column));
        let owners: Vec<usize> = (0..names.len()).filter(has).collect();
        if !owners.is_empty() {
            return Ok(owners);
        }
        // JSON may have a key only behind the sample.
        let may_have = |index: &usize| {
            names[*index].is_none()
                || matches!(formats[*index], Some(Format::Json | Format::Logfmt))
        };
        match (0..names.len()).filter(may_have).collect::<Vec<usize>>().as_slice() {
            [one] => Ok(vec![*one]),
            [] => {
                let known: Vec<&str> =
                    names.iter().flatten().flatten().map(String::as_str).collect();
                let message = suggestions::unknown_name_message("column", column, &known);
                Err(Error::usage_with_hint(format!("{flag}: {message}"), NAMED_SOURCE_HINT))
            }
            [one, other, ..] => Err(Error::usage_with_hint(
                format!(
                    "{flag}: column `{column}` may be of `{}` or of `{}`, and neither shows it",
                    redact_url(&specs[*one].url),
                    redact_url(&specs[*other].url)
                ),
                NAMED_SOURCE_HINT,
            )),
        }
    };
    let mut given: Vec<Vec<_>> = vec![Vec::new(); specs.len()];
    for field in flags.declared_schema.iter().flat_map(|schema| schema.fields()) {
        for owner in owners("--schema", field.name())? {
            given[owner].push(Arc::clone(field));
        }
    }
    let mut promoted: Vec<Vec<_>> = vec![Vec::new(); specs.len()];
    for promote in &flags.promotions {
        for owner in owners("--promote", &promote.column)? {
            promoted[owner].push(promote.clone());
        }
    }
    for ((spec, fields), promote) in specs.iter_mut().zip(given).zip(promoted) {
        spec.declared_schema = (!fields.is_empty()).then(|| Arc::new(Schema::new(fields)));
        spec.promotions = promote;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

    use super::*;
    use crate::error::user_message;

    fn files(files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let write = |(name, text): &(&str, &str)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let urls = files.iter().map(write).collect();
        (folder, urls)
    }

    fn fitted(flags: &SourceSpec, urls: &[String]) -> Result<Vec<SourceSpec>> {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        distribute_flags(flags, &urls, &CancelFlag::new())
    }

    #[test]
    fn a_format_goes_to_the_files_whose_names_tell_none() {
        let check = |format: Format, urls: &[&str], expected: &[Option<Format>]| {
            let flags = SourceSpec { format: Some(format), ..SourceSpec::default() };
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let specs = fitted(&flags, &urls).unwrap();
            let found: Vec<Option<Format>> = specs.iter().map(|spec| spec.format).collect();
            assert_eq!(found, expected, "{urls:?}");
        };
        let log = Some(Format::AccessLog);
        check(Format::AccessLog, &["web.log", "codes.csv"], &[log, None]);
        check(Format::AccessLog, &["web", "codes.csv", "logs"], &[log, None, log]);
        check(Format::AccessLog, &["https://host/web?a=b.csv", "c.csv"], &[log, None]);
        check(Format::Csv, &["a.csv", "b.parquet"], &[None, None]);
        // Names that are all wrong in the same way.
        check(Format::Tsv, &["a.csv", "b.csv"], &[Some(Format::Tsv), Some(Format::Tsv)]);
        let flags = SourceSpec { format: Some(Format::Json), ..SourceSpec::default() };
        let error =
            user_message(fitted(&flags, &["a.csv".into(), "b.parquet".into()]).unwrap_err());
        assert_eq!(
            error,
            "`--source-format json` fits none of the files: by their names, `a.csv` is csv, \
             `b.parquet` is parquet\nhint: a job file's [[source]] has a `format`, options and a \
             `schema` of its own"
        );
    }

    #[test]
    fn an_option_goes_to_the_files_in_whose_format_it_means_something() {
        let options = TextOptions {
            nulls: vec!["NA".into()],
            delimiter: Some(b';'),
            ..TextOptions::default()
        };
        let flags = SourceSpec { text_options: options, ..SourceSpec::default() };
        let urls = ["a.csv", "b.json", "c.parquet"].map(str::to_owned);
        let specs = fitted(&flags, &urls).unwrap();
        let found: Vec<_> = specs
            .iter()
            .map(|spec| (spec.text_options.nulls.len(), spec.text_options.delimiter))
            .collect();
        assert_eq!(found, [(1, Some(b';')), (1, None), (0, None)]);
        let error =
            user_message(fitted(&flags, &["b.avro".into(), "c.parquet".into()]).unwrap_err());
        assert!(
            error.starts_with("option `delimiter` has no meaning for format `avro`"),
            "{error}"
        );
    }

    /// Parses names with the types `TEXT` or `DOUBLE`.
    fn schema(text: &str) -> Option<SchemaRef> {
        let field = |column: &str| {
            let (name, data_type) = column.split_once(' ').unwrap();
            let data_type =
                if data_type == "TEXT" { DataType::Utf8View } else { DataType::Float64 };
            Field::new(name, data_type, true)
        };
        Some(Arc::new(Schema::new(text.split(", ").map(field).collect::<Vec<_>>())))
    }

    #[test]
    fn a_type_goes_to_the_files_that_have_the_column() {
        let (_folder, urls) =
            files(&[("a.csv", "id,n\n1,2\n"), ("b.csv", "id,m\n1,2\n"), ("c.json", "{\"k\":1}\n")]);
        let given = |text: &str| {
            let schema = schema(text);
            fitted(&SourceSpec { declared_schema: schema, ..SourceSpec::default() }, &urls).map(
                |specs| {
                    let names = |spec: &SourceSpec| {
                        let fields = spec.declared_schema.iter().flat_map(|schema| schema.fields());
                        fields.map(|field| field.name().clone()).collect::<Vec<_>>().join(" ")
                    };
                    specs.iter().map(names).collect::<Vec<_>>()
                },
            )
        };
        assert_eq!(given("id TEXT, m DOUBLE").unwrap(), ["id", "id m", ""]);
        // JSON may have keys that its sample does not show.
        assert_eq!(given("n TEXT, later TEXT").unwrap(), ["n", "", "later"]);
        let (_folder, urls) = files(&[("a.csv", "id,n\n1,2\n"), ("b.csv", "id,m\n1,2\n")]);
        let schema = schema("nn TEXT");
        let error = fitted(&SourceSpec { declared_schema: schema, ..SourceSpec::default() }, &urls)
            .unwrap_err();
        let error = user_message(error);
        assert!(error.starts_with("--schema: unknown column `nn`"), "{error}");
    }
}
