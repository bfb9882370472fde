//! The table for people: aligned columns on a terminal.
//!
//! ```text
//! day         state  users
//! ----------  -----  -----
//! 2013-01-01  TX       123
//! 2013-01-01  NULL       7
//! ```
//!
//! The first rows (up to 1,000, or 1 MiB of text) decide how wide the columns are; from there
//! on rows are written as they come with these widths, so memory is bounded and nothing is
//! left out. A value wider than its column pushes the rest of its line to the right.
//!
//! Control characters are escaped (`\n`, `\x1b`), and so are the marks that turn text around:
//! what a log file holds must not drive the terminal that shows it.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use unicode_width::UnicodeWidthStr;

use super::{EncodeError, Encoder, Encoding, FileFormat};
use crate::compression::{Choice, leveled, plain};
use crate::error::{Error, Result};
use crate::estimates::{Estimates, is_shown};
use crate::out::{Out, buffered};
use crate::value::{self, TextColumn};

/// By what text is compressed, of this format and of others.
pub(super) const CODECS: &[Choice] = &[
    plain("none"),
    leveled("gzip", 0, 9, 6),
    leveled("zstd", 1, 22, 3),
    leveled("bzip2", 1, 9, 9),
    leveled("xz", 0, 9, 6),
];

/// Refuses columns that have no text.
pub(crate) fn refuse_textless(format: &str, schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        if !value::supported(field.data_type()) {
            return Err(Error::usage_hint(
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

/// The format.
pub(super) struct Text;

impl FileFormat for Text {
    fn name(&self) -> &str {
        "text"
    }

    fn suffix(&self) -> &str {
        "txt"
    }

    /// None: `.txt` may be anything.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    fn codecs(&self) -> &'static [Choice] {
        CODECS
    }

    fn is_text(&self) -> bool {
        true
    }

    fn has_header(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        refuse_textless(self.name(), schema)
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        Ok(Box::new(TextTable::new(buffered(out), schema, encoding)))
    }
}

const WINDOW_ROWS: usize = 1_000;
const WINDOW_BYTES: usize = 1 << 20;
/// A column is padded to at most this many cells: one long message in a window must not push
/// every other row off the screen.
const WIDTH_MAX: usize = 80;

/// Writes a table; see the module.
struct TextTable {
    out: BufWriter<Out>,
    estimates: Estimates,
    null: String,
    has_header: bool,
    names: Vec<String>,
    right: Vec<bool>,
    window: Window,
    line: String,
}

/// Whether the widths are known yet.
enum Window {
    /// Cells of the rows held back, in row order.
    Open {
        cells: Vec<String>,
        bytes: usize,
    },
    Closed {
        widths: Vec<usize>,
    },
}

impl TextTable {
    fn new(out: BufWriter<Out>, schema: &SchemaRef, encoding: &Encoding) -> Self {
        let estimates = Estimates::new(schema);
        let schema = Arc::clone(estimates.schema());
        TextTable {
            out,
            estimates,
            null: encoding.null.as_deref().unwrap_or("NULL").to_owned(),
            has_header: encoding.header,
            names: schema.fields().iter().map(|field| escaped(field.name())).collect(),
            right: schema
                .fields()
                .iter()
                .map(|field| is_number(field.data_type()) || is_shown(field))
                .collect(),
            window: Window::Open { cells: Vec::new(), bytes: 0 },
            line: String::new(),
        }
    }

    fn row(&mut self, mut row: Vec<String>) -> io::Result<()> {
        match &mut self.window {
            Window::Open { cells, bytes } => {
                *bytes += row.iter().map(String::len).sum::<usize>();
                cells.append(&mut row);
                let rows = cells.len() / self.names.len().max(1);
                if rows >= WINDOW_ROWS || *bytes >= WINDOW_BYTES {
                    self.close_window()
                } else {
                    Ok(())
                }
            }
            Window::Closed { widths } => {
                line(&mut self.line, &row, widths, &self.right);
                self.out.write_all(self.line.as_bytes())
            }
        }
    }

    fn close_window(&mut self) -> io::Result<()> {
        let Window::Open { cells, .. } = &self.window else { return Ok(()) };
        if self.names.is_empty() {
            return Ok(());
        }
        let name_width = |name: &String| if self.has_header { name.width() } else { 0 };
        let mut widths: Vec<usize> = self.names.iter().map(name_width).collect();
        for row in cells.chunks(self.names.len()) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width().min(WIDTH_MAX));
            }
        }
        if self.has_header {
            line(&mut self.line, &self.names, &widths, &self.right);
            self.out.write_all(self.line.as_bytes())?;
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            line(&mut self.line, &rule, &widths, &self.right);
            self.out.write_all(self.line.as_bytes())?;
        }
        for row in cells.chunks(self.names.len()) {
            line(&mut self.line, row, &widths, &self.right);
            self.out.write_all(self.line.as_bytes())?;
        }
        self.window = Window::Closed { widths };
        Ok(())
    }
}

impl Encoder for TextTable {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let batch = &self.estimates.shown(batch)?;
        let columns = batch.columns().iter().map(TextColumn::new).collect::<Result<Vec<_>>>()?;
        let mut text = Vec::new();
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(columns.len());
            for column in &columns {
                cells.push(if column.is_null(row) {
                    self.null.clone()
                } else {
                    text.clear();
                    column.text(row, &mut text);
                    escaped(&String::from_utf8_lossy(&text))
                });
            }
            self.row(cells)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        self.close_window()?;
        Ok(self.out.flush()?)
    }
}

/// The cells of some rows as a table for people shows them, row by row; none for a null. They are those of
/// [the columns that it has](crate::shown_columns): an estimate and its bounds are one, `12,300 ± 210`. Of a text of
/// more than `chars_max` characters the first are left, and `…`.
///
/// # Errors
/// [`Error::Usage`] for a column of a type that has no text.
pub fn cells(
    batch: &RecordBatch,
    rows: Range<usize>,
    chars_max: usize,
) -> Result<Vec<Vec<Option<String>>>> {
    // An estimate is no identifier, whose digits would be looked for as they are.
    let estimates = Estimates::new(batch.schema_ref());
    let batch = estimates.shown(&batch.slice(rows.start, rows.len()))?;
    let columns = batch.columns().iter().map(TextColumn::new).collect::<Result<Vec<_>>>()?;
    let mut text = Vec::new();
    let mut cell = |column: &TextColumn, row| {
        text.clear();
        column.text(row, &mut text);
        let whole = String::from_utf8_lossy(&text);
        match whole.char_indices().nth(chars_max) {
            Some((end, _)) => escaped(&whole[..end]) + "…",
            None => escaped(&whole),
        }
    };
    let mut cells = |row| {
        let columns = columns.iter();
        columns.map(|column| (!column.is_null(row)).then(|| cell(column, row))).collect()
    };
    Ok((0..batch.num_rows()).map(&mut cells).collect())
}

fn line(out: &mut String, cells: &[String], widths: &[usize], right: &[bool]) {
    out.clear();
    // Blanks are written when something follows them: none stand at a line's end.
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

/// Whether a table shows the type at the right side of its column.
pub fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_number(values),
        other => other.is_numeric(),
    }
}

/// The text with everything that a terminal might obey made visible.
pub(crate) fn escaped(text: &str) -> String {
    tidemill_base::redaction::escape_control_chars(text, &[])
}
