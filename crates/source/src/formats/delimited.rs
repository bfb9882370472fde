//! Delimited text (CSV and TSV): detection of the dialect, inference of columns, and notes about values that
//! stay text.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use tidemill_base::coverage::format_grouped_digits;
use tidemill_text::csv::{self, CsvDecoder};
use tidemill_text::infer::{CommaNumbers, InferredTextType, NonIsoDates};
use tidemill_text::{
    BlockDecoder, DecodedBlocks, Options, infer, record_boundaries, value_parsing,
};

use super::inferred_columns::{check_readable_types, declared_columns_without_data};
use super::{DecoderSpec, FileFormat, Format, FormatKind, TextFormat};
use crate::error::{Error, Result};
use crate::rejects::record_fault::{
    ENCODING_HINT, FaultContext, InvisibleBytes, RecordFault, likely_header_hint, nul_hole_hint,
};
use crate::schema::column_layouts::{
    ColumnLayoutPolicy, ColumnNameCollector, FileColumns, SampledColumnType,
};
use crate::schema::source_sample::{
    DelimitedHeader, SPREAD_FILES_MAX, SourceSample, column_names_with_note,
};
use crate::schema::text_options::{CsvDialect, TextOptionSupport};
use crate::{SourceFile, SourceSpec};

/// Text with a delimiter between fields.
pub(super) struct DelimitedSourceFormat {
    name: &'static str,
    suffixes: &'static [&'static str],
    delimiter: u8,
}

pub(super) static CSV_FORMAT: DelimitedSourceFormat =
    DelimitedSourceFormat { name: "csv", suffixes: &["csv"], delimiter: b',' };
pub(super) static TSV_FORMAT: DelimitedSourceFormat =
    DelimitedSourceFormat { name: "tsv", suffixes: &["tsv", "tab"], delimiter: b'\t' };

impl FileFormat for DelimitedSourceFormat {
    fn name(&self) -> &str {
        self.name
    }

    fn suffixes(&self) -> &'static [&'static str] {
        self.suffixes
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Text(self)
    }
}

impl TextFormat for DelimitedSourceFormat {
    fn detect_text_options(&self, spec: &SourceSpec, sample: &mut SourceSample<'_>) -> Result<()> {
        let options = &spec.text_options;
        // Detection would start the filter program once more.
        if spec.filter_program.is_some() {
            return Ok(());
        }
        let Some((file, text)) = sample
            .read_beginning(record_boundaries::RecordGrammar::from_dialect(&sample.dialect))?
        else {
            return Ok(());
        };
        // A separator line and the `.tsv` suffix declare the delimiter.
        let said = sample.declared_separator.filter(|_| options.delimiter.is_none());
        if let Some(delimiter) = said {
            sample.dialect.delimiter = delimiter;
        }
        let given = csv::StatedDialectParts {
            delimiter: options.delimiter.is_some() || said.is_some() || self.delimiter != b',',
            quote: options.quote.is_some(),
            escape: options.escape.is_some(),
        };
        let csv::DetectedDialect { dialect, suspected_delimiter: suspect } =
            csv::detect_dialect(&sample.dialect, given, &text);
        sample.dialect = dialect;
        let shown = sample.files[file].display_name();
        let is_said = options.header.is_some() || options.skip_lines.is_some();
        if !is_said
            && options.header_row.is_none()
            && let Some(line) = csv::find_header_below_titles(&sample.dialect, given, &text)
        {
            // The text lacks the separator line.
            let line = line + u64::from(sample.declared_separator.is_some());
            sample.likely_header_line = Some(line);
            let note = format!(
                "the first record of `{shown}` is taken for the names of its columns, and line {line} looks more like \
                 them; {}",
                likely_header_hint(line)
            );
            sample.notes.push(note);
            return Ok(());
        }
        let note = match suspect {
            None => return Ok(()),
            Some(csv::SuspectedDelimiter::Byte(byte)) => {
                let byte = byte.escape_ascii();
                format!(
                    "`{shown}` is read as one column, and `{byte}` stands in nearly all of its \
                     records, though not as often in each; if it separates fields, say \
                     --delimiter '{byte}' (job file: source.options, delimiter = \"{byte}\")"
                )
            }
            Some(csv::SuspectedDelimiter::Spaces) => format!(
                "`{shown}` is read as one column, and spaces seem to separate fields; say \
                 --source-exec tr --source-exec -s --source-exec ' ' --delimiter ' ' if they do \
                 (job file: source.exec = [\"tr\", \"-s\", \" \"], source.options, delimiter = \" \")"
            ),
        };
        sample.notes.push(note);
        Ok(())
    }

    fn infer_columns(
        &self,
        spec: &SourceSpec,
        sample: &mut SourceSample<'_>,
    ) -> Result<FileColumns> {
        infer_columns(spec, sample)
    }

    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        sample: &SourceSample<'_>,
    ) -> Result<()> {
        rename_by_position(&mut columns.fields, wanted, &sample.dialect);
        columns.override_types(wanted)?;
        check_readable_types(columns, self.name, value_parsing::is_supported_type)
    }

    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let DecoderSpec { dialect, field_count: fields, columns, options, .. } = of;
        Ok(Box::new(CsvDecoder::new(dialect, fields, columns, options)?))
    }

    fn supported_options(&self) -> TextOptionSupport {
        TextOptionSupport {
            default_delimiter: Some(self.delimiter),
            nulls: true,
            ..TextOptionSupport::default()
        }
    }
}

/// Names the columns of files without a header by a schema with the same number of columns.
fn rename_by_position(fields: &mut [FieldRef], wanted: &Schema, dialect: &CsvDialect) {
    let foreign =
        || wanted.fields().iter().any(|field| !fields.iter().any(|own| own.name() == field.name()));
    if !dialect.header && wanted.fields().len() == fields.len() && foreign() {
        for (own, wanted) in fields.iter_mut().zip(wanted.fields()) {
            *own = Arc::new(Field::new(wanted.name(), own.data_type().clone(), true));
        }
    }
}

fn infer_columns(spec: &SourceSpec, sample: &mut SourceSample<'_>) -> Result<FileColumns> {
    let dialect = sample.dialect.clone();
    let grammar = record_boundaries::RecordGrammar::from_dialect(&dialect);
    let may_differ = sample.files.len() > 1
        && spec.layout_policy.unwrap_or_default() == ColumnLayoutPolicy::Union;
    let mut collected = ColumnNameCollector::default();
    // Inferences from files whose beginning has been read already.
    let mut begun: HashMap<usize, infer::csv::CsvInference> = HashMap::new();
    // The note about the first header with a repeated name.
    let mut again = None;
    if may_differ && dialect.header {
        let mut known: HashMap<Arc<Vec<String>>, usize> = HashMap::new();
        for (file, header) in sample.read_headers(grammar)?.into_iter().enumerate() {
            let Some(DelimitedHeader { names, inference: records, repeated_names_note: own }) =
                header
            else {
                continue;
            };
            again = again.or(own);
            let layout = match known.get(&names) {
                Some(layout) => *layout,
                None => {
                    let layout = collected.add_layout(file, names.iter().map(String::as_str));
                    known.insert(names, layout);
                    layout
                }
            };
            collected.set_file_layout(file, layout);
            begun.extend(records.map(|records| (file, records)));
        }
        check_headers_related(&collected, sample.files)?;
    }

    let mut shown: Vec<SampledColumnType> = Vec::new();
    let mut marked: Vec<TextColumnAnalysis> = Vec::new();
    // Record count of the sample, count of records with all fields, and the first record if it is malformed.
    let (mut record_count, mut fitting_count, mut first_record) = (0, 0, None);
    let mut take = |collected: &ColumnNameCollector,
                    file: usize,
                    inference: &infer::csv::CsvInference| {
        fitting_count += inference.fitting_records();
        shown.resize(collected.names().len(), SampledColumnType::default());
        for (column, (kind, values)) in
            collected.file_columns(file).iter().zip(inference.inferred_types())
        {
            shown[*column].add_sample(file, kind, values);
        }
        marked.resize(collected.names().len(), TextColumnAnalysis::default());
        let kinds = inference
            .inferred_types()
            .zip(inference.without_markers())
            .zip(inference.non_iso_dates());
        for (column, (((kind, _), found), order)) in collected.file_columns(file).iter().zip(kinds)
        {
            marked[*column].add_values(file, kind, found);
            marked[*column].day_order.merge(order);
        }
        for (column, commas) in collected.file_columns(file).iter().zip(inference.comma_numbers()) {
            marked[*column].comma_numbers.merge(commas);
        }
        let kinds = inference.inferred_types().zip(inference.trimmed_types());
        for (column, ((kind, _), trimmed)) in collected.file_columns(file).iter().zip(kinds) {
            marked[*column].has_spaces |= trimmed.is_some();
            marked[*column].trimmed_kind.merge(trimmed.unwrap_or(kind));
        }
    };
    // The beginning of the source.
    let mut current: Option<(usize, infer::csv::CsvInference)> = None;
    let looked_at = sample.for_each_block(grammar, |file, mut block| {
        if current.as_ref().is_none_or(|(index, _)| *index != file.index) {
            check_header(&dialect, file, block)?;
            let Some((fields, used)) = tidemill_text::csv::read_first_record(&dialect, block)
            else {
                return Ok(0);
            };
            if let Some((index, inference)) = current.take() {
                take(&collected, index, &inference);
            }
            if collected.is_empty() {
                let names;
                (names, again) = column_names_with_note(&dialect, fields, &file.display_name);
                collected.add_layout(file.index, names.iter().map(String::as_str));
            }
            let fields = collected.file_columns(file.index).len();
            current = Some((file.index, infer::csv::CsvInference::new(&dialect, fields)));
            let mut start = file.records_offset.get().copied().unwrap_or(0);
            if dialect.header {
                block = &block[used..];
                start += used as u64;
            }
            if first_record.is_none() && fields > 0 {
                first_record = find_malformed_record(&dialect, fields, block)
                    .map(|(at, fault)| (file.index, start + at as u64, fault));
            }
        }
        let records = current.as_mut().map_or(0, |(_, inference)| inference.add_block(block));
        record_count += records;
        Ok(records)
    })?;
    if let Some((index, inference)) = current.take() {
        take(&collected, index, &inference);
    }
    sample.notes.extend(again);
    if collected.is_empty() {
        let lacking = if sample.has_header { "header" } else { "record" };
        return declared_columns_without_data(spec, sample, lacking, "blank lines, if any");
    }
    if may_differ {
        // The beginnings of other files.
        let inspect = |file: &SourceFile, block: &[u8]| {
            let fields = collected.file_columns(file.index).len();
            let mut inference = infer::csv::CsvInference::new(&dialect, fields);
            let records = match tidemill_text::csv::read_first_record(&dialect, block) {
                Some((_, used)) if dialect.header => &block[used..],
                _ => block,
            };
            inference.add_block(records);
            Some(inference)
        };
        let mut chosen = sample.spread_files(looked_at);
        let unread: Vec<usize> =
            chosen.iter().copied().filter(|file| !begun.contains_key(file)).collect();
        begun.extend(sample.inspect_beginnings(&unread, grammar, inspect)?);
        for file in &chosen {
            if let Some(inference) = begun.get(file) {
                take(&collected, *file, inference);
            }
        }
        // The beginnings of the first files with columns that no earlier file has.
        let is_unknown =
            |column: &usize| shown.get(*column).is_none_or(|shown| !shown.has_values());
        let is_new = |file: &usize| *file >= looked_at && !chosen.contains(file);
        let unknown = collected.layouts().filter(|(_, columns)| columns.iter().any(is_unknown));
        chosen = unknown.map(|(file, _)| file).filter(is_new).take(SPREAD_FILES_MAX).collect();
        for (file, inference) in sample.inspect_beginnings(&chosen, grammar, inspect)? {
            for (column, (kind, values)) in
                collected.file_columns(file).iter().zip(inference.inferred_types())
            {
                shown[*column].add_sample(file, kind, values);
            }
        }
    }
    if let (true, Some((file, offset, malformed))) =
        (record_count > 0 && fitting_count == 0, first_record)
    {
        let MalformedRecord { fault, may_be_comment, invisible } = malformed;
        let whence = FaultContext {
            format: Format::Csv,
            columns: &[],
            log_lines: &sample.log_lines,
            type_witness: None,
            may_be_comment,
            likely_header_line: sample.likely_header_line,
            invisible_bytes: invisible,
        };
        sample.rejected_sample = Some(RejectedSample {
            file: Arc::clone(&sample.files[file]),
            record_count,
            offset,
            fault: RecordFault::from_text_fault(fault, &whence),
        });
    }
    shown.resize(collected.names().len(), SampledColumnType::default());
    let fields = collected.names().iter().zip(&shown).map(|(name, shown)| shown.to_field(name));
    let fields: Vec<FieldRef> = fields.collect();
    sample.marked_columns = find_suspect_text_columns(spec, &fields, &marked, sample.files);
    let shown_by = shown.iter().map(SampledColumnType::witness_file).collect();
    let clashes = vec![None; fields.len()];
    Ok(collected.into_columns(fields, shown_by, clashes))
}

/// A malformed record at the beginning of a sample.
struct MalformedRecord {
    fault: tidemill_text::TextFault,
    may_be_comment: bool,
    invisible: Option<InvisibleBytes>,
}

/// Returns the first record of a block and its offset if the record is malformed.
fn find_malformed_record(
    dialect: &CsvDialect,
    fields: usize,
    block: &[u8],
) -> Option<(usize, MalformedRecord)> {
    let mut decoder = CsvDecoder::new(dialect, fields, Vec::new(), Options::default()).ok()?;
    let first = decoder.next_record_range(block, 0);
    let mut out = DecodedBlocks::default();
    decoder.decode(&block[first.clone()], &mut out);
    let bad = out.rejected.into_iter().next()?;
    let start = first.start + bad.range.start;
    let record = &block[start..first.start + bad.range.end];
    let may_be_comment = dialect.comment.is_none() && record.starts_with(b"#");
    let invisible = InvisibleBytes::find(record);
    Some((start, MalformedRecord { fault: bad.fault, may_be_comment, invisible }))
}

/// A sample whose records are all malformed, so that they show no types.
#[derive(Debug)]
pub(crate) struct RejectedSample {
    /// The file of the first record.
    file: Arc<SourceFile>,
    record_count: u64,
    /// Offset of the first record, and why it is rejected.
    offset: u64,
    fault: RecordFault,
}

impl RejectedSample {
    /// Returns the message and the hint. The hint declares `column` as an example.
    pub(crate) fn explain(&self, column: &str) -> (String, String) {
        let line = self.file.line_number_at(self.offset).ok().filter(|line| *line > 0);
        let place = match line {
            Some(line) => format!("line {line} (byte {})", self.offset),
            None => format!("byte {}", self.offset),
        };
        let records = match self.record_count {
            1 => "the only record of the sample is".to_owned(),
            count => format!("all {} records of the sample are", format_grouped_digits(count)),
        };
        let message = format!(
            "`{}`: {records} malformed, so no value shows the type of a column: {place}: {}",
            self.file.display_name, self.fault.reason
        );
        let declared = format!(
            "--schema '{} BIGINT' declares the type of a column (job file: source.schema); --delimiter, --quote and \
             --header-row say how the file is written",
            quote_identifier(column)
        );
        let hint = match &self.fault.hint {
            Some(own) => format!("{own}; {declared}"),
            None => declared,
        };
        (message, hint)
    }
}

/// Evidence about a column that is read as text: the types its values would have under other readings.
#[derive(Debug, Clone, Default)]
struct TextColumnAnalysis {
    /// The kind of the values without words that usually mean null.
    other_kind: InferredTextType,
    /// Number of words that usually mean null.
    null_word_count: u64,
    null_words: Vec<&'static str>,
    /// The first file with such a word.
    first_file: Option<usize>,
    /// The order of day and month, if the values are dates in another spelling.
    day_order: NonIsoDates,
    /// The meaning of commas, if the values are numbers with commas.
    comma_numbers: CommaNumbers,
    /// True if some values have spaces around them.
    has_spaces: bool,
    /// The kind of the values without such spaces.
    trimmed_kind: InferredTextType,
}

impl TextColumnAnalysis {
    fn add_values(
        &mut self,
        file: usize,
        kind: &InferredTextType,
        found: Option<&infer::csv::ValuesWithoutMarkers>,
    ) {
        let Some(found) = found else { return self.other_kind.merge(kind) };
        self.other_kind.merge(&found.inferred_type);
        self.null_word_count += found.value_count;
        self.first_file.get_or_insert(file);
        for word in &found.markers {
            if !self.null_words.contains(word) {
                self.null_words.push(word);
            }
        }
    }
}

/// Finds columns that are text only because of a few values or an unusual spelling.
fn find_suspect_text_columns(
    spec: &SourceSpec,
    fields: &[FieldRef],
    marked: &[TextColumnAnalysis],
    files: &[Arc<SourceFile>],
) -> Vec<SuspectTextColumn> {
    let is_said = |name: &str| {
        spec.declared_schema.as_ref().is_some_and(|schema| schema.field_with_name(name).is_ok())
    };
    let found = fields.iter().zip(marked).filter_map(|(field, marked)| {
        let is_text = field.data_type() == &DataType::Utf8View;
        if !is_text || is_said(field.name()) {
            return None;
        }
        let formats = marked.day_order.strptime_formats();
        if !formats.is_empty() {
            let file = files.first()?.display_name().to_owned();
            return Some(SuspectTextColumn {
                name: field.name().clone(),
                alternative: TextAlternative::OtherDateFormats(formats),
                first_file: file,
            });
        }
        if marked.null_word_count == 0 && marked.other_kind.is_partly_zoned() {
            let file = files.first()?.display_name().to_owned();
            return Some(SuspectTextColumn {
                name: field.name().clone(),
                alternative: TextAlternative::PartlyZonedTimes,
                first_file: file,
            });
        }
        let reading = marked.comma_numbers.conversion_sql(&quote_identifier(field.name()));
        if !reading.is_empty() {
            let file = files.first()?.display_name().to_owned();
            return Some(SuspectTextColumn {
                name: field.name().clone(),
                alternative: TextAlternative::CommaNumbers(reading),
                first_file: file,
            });
        }
        let trimmed = marked.trimmed_kind.data_type().filter(|other| *other != DataType::Utf8View);
        if let Some(trimmed) = trimmed.filter(|_| marked.has_spaces) {
            let call = format!(
                "CAST(trim({}) AS {})",
                quote_identifier(field.name()),
                tidemill_text::sql_type_name(&trimmed)
            );
            let file = files.first()?.display_name().to_owned();
            return Some(SuspectTextColumn {
                name: field.name().clone(),
                alternative: TextAlternative::SpacedValues(vec![call]),
                first_file: file,
            });
        }
        let others = marked.other_kind.data_type().filter(|other| *other != DataType::Utf8View)?;
        let file = files.get(marked.first_file?)?.display_name().to_owned();
        let is = TextAlternative::NullWords {
            other_type: others,
            null_words: marked.null_words.clone(),
        };
        (marked.null_word_count > 0).then(|| SuspectTextColumn {
            name: field.name().clone(),
            alternative: is,
            first_file: file,
        })
    });
    found.collect()
}

/// A column that is read as text but probably has another type.
#[derive(Debug, Clone)]
pub(crate) struct SuspectTextColumn {
    pub(crate) name: String,
    alternative: TextAlternative,
    /// The first file that shows it.
    first_file: String,
}

/// The type that the values of a text column would have under another reading.
#[derive(Debug, Clone)]
enum TextAlternative {
    /// Another type except for a few words, which usually mean null.
    NullWords {
        /// The type without these words.
        other_type: DataType,
        null_words: Vec<&'static str>,
    },
    /// Dates in another spelling, and the formats that parse them.
    OtherDateFormats(Vec<String>),
    /// Times of which only some state a time zone.
    PartlyZonedTimes,
    /// Numbers with commas, and the SQL expressions that parse them.
    CommaNumbers(Vec<String>),
    /// Numbers, times or Booleans with spaces around them, and the SQL expressions that parse them.
    SpacedValues(Vec<String>),
}

/// Returns the warning about such columns, if there are any.
pub(crate) fn suspect_columns_warning<'a>(
    columns: impl Iterator<Item = &'a SuspectTextColumn>,
) -> Option<String> {
    let mut names = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let mut first = None;
    let (mut dates, mut times, mut numbers, mut spaced) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        let (others, own) = match &column.alternative {
            TextAlternative::NullWords { other_type: others, null_words: words } => (others, words),
            TextAlternative::OtherDateFormats(formats) => {
                dates.push((column, formats));
                continue;
            }
            TextAlternative::PartlyZonedTimes => {
                times.push((column, ()));
                continue;
            }
            TextAlternative::CommaNumbers(reading) => {
                numbers.push((column, reading));
                continue;
            }
            TextAlternative::SpacedValues(reading) => {
                spaced.push((column, reading));
                continue;
            }
        };
        names.push(format!("`{}` ({})", column.name, tidemill_text::sql_type_name(others)));
        first = first.or(Some(&column.first_file));
        for word in own {
            if !words.contains(word) {
                words.push(word);
            }
        }
    }
    let said = [
        date_formats_note(&dates),
        partly_zoned_note(&times),
        commas_note(&numbers),
        spaces_note(&spaced),
    ];
    let mut said: Vec<String> = said.into_iter().flatten().collect();
    let Some(file) = first else { return (!said.is_empty()).then(|| said.join("\n")) };
    let more = names.len().saturating_sub(4);
    names.truncate(4);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let list = |each: &dyn Fn(&&str) -> String, between: &str| {
        words.iter().map(each).collect::<Vec<_>>().join(between)
    };
    let of_words = format!(
        "`{file}`: read as text, but for {}: {}{more}; if that means null, say {} (job file: \
         source.options, null = [{}])",
        list(&|word| format!("`{word}`"), ", "),
        names.join(", "),
        list(&|word| format!("--null '{word}'"), " "),
        list(&|word| format!("\"{}\"", word.escape_default()), ", "),
    );
    said.insert(0, of_words);
    Some(said.join("\n"))
}

/// Returns the note about dates in another spelling.
fn date_formats_note(columns: &[(&SuspectTextColumn, &Vec<String>)]) -> Option<String> {
    let (first, formats) = columns.first()?;
    let name = quote_identifier(&first.name);
    let calls: Vec<String> =
        formats.iter().map(|format| format!("strptime({name}, '{format}')")).collect();
    Some(format!(
        "`{}`: read as text, though dates of another spelling than 2026-03-01: {}; {} makes times of it{}",
        first.first_file,
        list_first_names(columns),
        calls.join(" or "),
        if calls.len() > 1 { ", whichever of the two numbers is the day" } else { "" },
    ))
}

/// Returns the note about columns in which only some times state a time zone.
fn partly_zoned_note(columns: &[(&SuspectTextColumn, ())]) -> Option<String> {
    let (first, ()) = columns.first()?;
    Some(format!(
        "`{}`: read as text, because only some of the times state a time zone: {}; {}::TIMESTAMPTZ makes times of it, \
         in UTC where they state none",
        first.first_file,
        list_first_names(columns),
        quote_identifier(&first.name),
    ))
}

/// Returns the warning about values with spaces around them.
fn spaces_note(columns: &[(&SuspectTextColumn, &Vec<String>)]) -> Option<String> {
    let (first, reading) = columns.first()?;
    Some(format!(
        "`{}`: read as text for the spaces around its values: {}; {} reads it without them",
        first.first_file,
        list_first_names(columns),
        reading.join(" or "),
    ))
}

/// Returns the note about numbers with commas.
fn commas_note(columns: &[(&SuspectTextColumn, &Vec<String>)]) -> Option<String> {
    let (first, reading) = columns.first()?;
    Some(format!(
        "`{}`: read as text for the commas in its numbers: {}; {} makes numbers of it{}",
        first.first_file,
        list_first_names(columns),
        reading.join(" or "),
        if reading.len() > 1 { ", whichever the comma is" } else { "" },
    ))
}

/// Returns a column name as SQL writes it, quoted if necessary.
fn quote_identifier(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_plain = name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Lists the names of the first columns, and the number of further ones.
fn list_first_names<T>(columns: &[(&SuspectTextColumn, T)]) -> String {
    let names: Vec<String> =
        columns.iter().take(4).map(|(column, _)| format!("`{}`", column.name)).collect();
    match columns.len().saturating_sub(4) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Checks that a header is UTF-8, because the names of its columns would otherwise be wrong.
///
/// # Errors
/// [`Error::Corrupt`] with line and byte offset.
pub(crate) fn check_header(dialect: &CsvDialect, file: &SourceFile, block: &[u8]) -> Result<()> {
    if !dialect.header {
        return Ok(());
    }
    let first = file.records_offset.get().copied().unwrap_or(0);
    if let Some((at, nuls)) = csv::leading_nuls_of_first_record(dialect, block) {
        let s = if nuls == 1 { "" } else { "s" };
        return Err(Error::Corrupt {
            path: file.display_name().to_owned(),
            offset: Some(first + at as u64),
            reason: format!("its header begins with {nuls} NUL byte{s}"),
            hint: Some(nul_hole_hint()),
        });
    }
    let Some(at) = csv::first_invalid_utf8_offset(dialect, block) else { return Ok(()) };
    let line = file.skipped_lines + 1 + memchr::memchr_iter(b'\n', &block[..at]).count() as u64;
    Err(Error::Corrupt {
        path: file.display_name().to_owned(),
        offset: Some(first + at as u64),
        reason: format!("its header, line {line}, is not valid UTF-8"),
        hint: Some(ENCODING_HINT.into()),
    })
}

/// Checks that every header shares a column with the others. A header that does not is probably a record,
/// whose values must not become column names.
fn check_headers_related(collected: &ColumnNameCollector, files: &[Arc<SourceFile>]) -> Result<()> {
    let (Some((file, columns)), Some((first, _))) =
        (collected.find_unrelated_file(), collected.layouts().next())
    else {
        return Ok(());
    };
    let shown = |file: usize| files.get(file).map_or("", |file| file.display_name()).to_owned();
    let mut names: Vec<String> =
        columns.iter().take(4).map(|column| format!("`{}`", collected.names()[*column])).collect();
    if columns.len() > names.len() {
        names.push("…".into());
    }
    Err(Error::IncompatibleFiles {
        path: shown(file),
        other: shown(first),
        reason: format!("they have no column in common; its header is {}", names.join(", ")),
        hint: Some(
            "if it has no header, write one into it or make it a source of its own; --header=false \
             is for sources of which no file has one"
                .into(),
        ),
    })
}
