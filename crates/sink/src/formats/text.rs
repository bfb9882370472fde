//! The text format: a table of aligned columns for people.
//!
//! ```text
//! day         state  users
//! ----------  -----  -----
//! 2013-01-01  TX       123
//! 2013-01-01  NULL       7
//! ```
//!
//! The first rows (up to 1,000, or 1 MiB of text) decide the widths of the columns. Later
//! rows are written as they come with these widths, so memory is bounded and nothing is
//! left out. A value wider than its column pushes the rest of its line to the right.
//!
//! Control characters are escaped (`\n`, `\x1b`), and so are the marks that reverse the direction of text:
//! the content of a log file must not control the terminal that shows it.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use unicode_width::UnicodeWidthStr;

use super::{BatchEncoder, EncodeError, FileEncoding, FileFormat};
use crate::display::estimate_display::{EstimateDisplay, is_displayed_estimate};
use crate::error::{Error, Result};
use crate::writing::compression::{CodecChoice, codec_with_levels, codec_without_levels};
use crate::writing::encoder_output::{EncoderOutput, buffer_output};
use crate::writing::value_text::{self, TextColumn};

/// The codecs of this and the other text formats.
pub(super) const TEXT_CODECS: &[CodecChoice] = &[
    codec_without_levels("none"),
    codec_with_levels("gzip", 0, 9, 6),
    codec_with_levels("zstd", 1, 22, 3),
    codec_with_levels("bzip2", 1, 9, 9),
    codec_with_levels("xz", 0, 9, 6),
];

/// Returns an error for columns whose type has no text.
pub(crate) fn refuse_columns_without_text(format: &str, schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        if !value_text::can_write_as_text(field.data_type()) {
            return Err(Error::usage_with_hint(
                format!(
                    "column `{}` of type `{}` cannot be written as {format}",
                    field.name(),
                    field.data_type(),
                ),
                "cast the column, or write `parquet` or `arrow`",
            ));
        }
    }
    Ok(())
}

/// The definition of the text format.
pub(super) struct TextTableFormat;

impl FileFormat for TextTableFormat {
    fn name(&self) -> &str {
        "text"
    }

    fn suffix(&self) -> &str {
        "txt"
    }

    /// Returns nothing: `.txt` may be any format.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        TEXT_CODECS
    }

    fn is_text(&self) -> bool {
        true
    }

    fn has_optional_header(&self) -> bool {
        true
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        refuse_columns_without_text(self.name(), schema)
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        Ok(Box::new(TextTableEncoder::new(buffer_output(out), schema, encoding)))
    }
}

const WIDTH_SAMPLE_ROWS: usize = 1_000;
const WIDTH_SAMPLE_BYTES: usize = 1 << 20;
/// Maximum number of cells to which a column is padded: one long message in the sample must not push
/// all other rows off the screen.
const COLUMN_WIDTH_MAX: usize = 80;

/// Writes an aligned table; see the module.
struct TextTableEncoder {
    out: BufWriter<EncoderOutput>,
    estimates: EstimateDisplay,
    null_text: String,
    has_header: bool,
    names: Vec<String>,
    is_right_aligned: Vec<bool>,
    width_sample: WidthSample,
    line: String,
}

/// The state of the sample that decides the widths.
enum WidthSample {
    /// The cells of the rows held back, in row order.
    Collecting {
        cells: Vec<String>,
        bytes: usize,
    },
    Fixed {
        widths: Vec<usize>,
    },
}

impl TextTableEncoder {
    fn new(out: BufWriter<EncoderOutput>, schema: &SchemaRef, encoding: &FileEncoding) -> Self {
        let estimates = EstimateDisplay::new(schema);
        let schema = Arc::clone(estimates.schema());
        TextTableEncoder {
            out,
            estimates,
            null_text: encoding.null_text.as_deref().unwrap_or("NULL").to_owned(),
            has_header: encoding.has_header,
            names: schema.fields().iter().map(|field| escape_for_terminal(field.name())).collect(),
            is_right_aligned: schema
                .fields()
                .iter()
                .map(|field| is_numeric_type(field.data_type()) || is_displayed_estimate(field))
                .collect(),
            width_sample: WidthSample::Collecting { cells: Vec::new(), bytes: 0 },
            line: String::new(),
        }
    }

    fn add_row(&mut self, mut row: Vec<String>) -> io::Result<()> {
        match &mut self.width_sample {
            WidthSample::Collecting { cells, bytes } => {
                *bytes += row.iter().map(String::len).sum::<usize>();
                cells.append(&mut row);
                let rows = cells.len() / self.names.len().max(1);
                if rows >= WIDTH_SAMPLE_ROWS || *bytes >= WIDTH_SAMPLE_BYTES {
                    self.fix_widths()
                } else {
                    Ok(())
                }
            }
            WidthSample::Fixed { widths } => {
                format_line(&mut self.line, &row, widths, &self.is_right_aligned);
                self.out.write_all(self.line.as_bytes())
            }
        }
    }

    fn fix_widths(&mut self) -> io::Result<()> {
        let WidthSample::Collecting { cells, .. } = &self.width_sample else { return Ok(()) };
        if self.names.is_empty() {
            return Ok(());
        }
        let name_width = |name: &String| if self.has_header { name.width() } else { 0 };
        let mut widths: Vec<usize> = self.names.iter().map(name_width).collect();
        for row in cells.chunks(self.names.len()) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width().min(COLUMN_WIDTH_MAX));
            }
        }
        if self.has_header {
            format_line(&mut self.line, &self.names, &widths, &self.is_right_aligned);
            self.out.write_all(self.line.as_bytes())?;
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            format_line(&mut self.line, &rule, &widths, &self.is_right_aligned);
            self.out.write_all(self.line.as_bytes())?;
        }
        for row in cells.chunks(self.names.len()) {
            format_line(&mut self.line, row, &widths, &self.is_right_aligned);
            self.out.write_all(self.line.as_bytes())?;
        }
        self.width_sample = WidthSample::Fixed { widths };
        Ok(())
    }
}

impl BatchEncoder for TextTableEncoder {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let batch = &self.estimates.merge_bounds(batch)?;
        let columns = batch.columns().iter().map(TextColumn::new).collect::<Result<Vec<_>>>()?;
        let mut text = Vec::new();
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(columns.len());
            for column in &columns {
                cells.push(if column.is_null(row) {
                    self.null_text.clone()
                } else {
                    text.clear();
                    column.write_text(row, &mut text);
                    escape_for_terminal(&String::from_utf8_lossy(&text))
                });
            }
            self.add_row(cells)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        self.fix_widths()?;
        Ok(self.out.flush()?)
    }
}

/// Formats the cells of some rows as a table for people shows them, row by row; `None` for a null. The
/// columns are [those displayed](crate::displayed_columns): an estimate and its bounds are one, `12,300 ±
/// 210`. A text of more than `chars_max` characters is cut and ends with `…`.
///
/// # Errors
/// [`Error::Usage`] for a column of a type that has no text.
pub fn format_cells(
    batch: &RecordBatch,
    rows: Range<usize>,
    chars_max: usize,
) -> Result<Vec<Vec<Option<String>>>> {
    // An estimate is no identifier; nobody searches for its exact digits.
    let estimates = EstimateDisplay::new(batch.schema_ref());
    let batch = estimates.merge_bounds(&batch.slice(rows.start, rows.len()))?;
    let columns = batch.columns().iter().map(TextColumn::new).collect::<Result<Vec<_>>>()?;
    let mut text = Vec::new();
    let mut cell = |column: &TextColumn, row| {
        text.clear();
        column.write_text(row, &mut text);
        let whole = String::from_utf8_lossy(&text);
        match whole.char_indices().nth(chars_max) {
            Some((end, _)) => escape_for_terminal(&whole[..end]) + "…",
            None => escape_for_terminal(&whole),
        }
    };
    let mut cells = |row| {
        let columns = columns.iter();
        columns.map(|column| (!column.is_null(row)).then(|| cell(column, row))).collect()
    };
    Ok((0..batch.num_rows()).map(&mut cells).collect())
}

fn format_line(out: &mut String, cells: &[String], widths: &[usize], right: &[bool]) {
    out.clear();
    // Blanks are written only before further text, so that no line ends with them.
    let mut blanks = 0;
    for (i, cell) in cells.iter().enumerate() {
        let padding = widths[i].saturating_sub(cell.width());
        if right[i] {
            blanks += padding;
        }
        if !cell.is_empty() {
            out.extend(std::iter::repeat_n(' ', blanks));
            out.push_str(cell);
            blanks = 0;
        }
        if !right[i] {
            blanks += padding;
        }
        blanks += 2;
    }
    out.push('\n');
}

/// Returns true if a table aligns the type to the right.
pub fn is_numeric_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_numeric_type(values),
        other => other.is_numeric(),
    }
}

/// Escapes everything in a text that a terminal might obey.
pub(crate) fn escape_for_terminal(text: &str) -> String {
    tidemill_base::redaction::escape_control_chars(text, &[])
}
