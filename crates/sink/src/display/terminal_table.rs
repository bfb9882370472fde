//! The layout of a result as a table on a terminal of a given width.
//!
//! ```text
//! carrier  origin     avg_delay  …  last
//! -------  ------  ------------  -  --------------------
//! AA       JFK        8.58625    …  2013-12-31T22:00:00Z
//! … 12 rows between; --rows all shows them
//! WN       LGA     1017.7        …  NULL
//! 3 of 7 columns are not shown: flights, miles, tailnum
//! ```
//!
//! No line is wider than the terminal. Of many rows the first and the last are kept, as text cut to the
//! length that could be shown, so that the screen and not the result bounds the memory; the rows between are
//! counted. When all rows are requested, the first of them (up to 1,000, or 1 MiB of text) decide the widths
//! of the columns, and the others are written as they come.
//!
//! A column is as wide as its widest value. If the table is too wide, texts are cut with `…` down to a
//! minimum width. They are cut in the middle if distinct ones, such as URLs of one site, would look alike
//! when cut at the end. Numbers, times and the like are never cut, for a cut number is another number. If the
//! minimum widths are too wide, columns in the middle are left out, those of bounds (`≥ 41`) before all
//! others; `…` stands for them, and a line names them. One row that does not fit is turned: a line for each
//! column.
//!
//! The table is for reading. A float with more than nine digits, such as a quotient or a mean, is rounded to
//! six (with at least two behind the point). A duration is `5d 14:34:50`. A text of the value `NULL` stands
//! in quotes, since a null is `NULL`. All other outputs of the program have all digits and ISO 8601.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, SchemaRef, TimeUnit,
};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::display::estimate_display::{EstimateDisplay, is_bound_text, is_displayed_estimate};
use crate::error::{Error, Result};
use crate::formats::text::{escape_for_terminal, is_numeric_type, refuse_columns_without_text};
use crate::writing::value_text::TextColumn;

/// Default maximum number of rows shown.
pub const DEFAULT_ROWS_MAX: usize = 40;

/// The options with which a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalTableOptions {
    /// The terminal's width in columns, at least 1.
    pub width: usize,
    /// Maximum number of rows shown, the first half of them from the beginning; `None` for all.
    pub rows_max: Option<usize>,
    /// True if digits are grouped: `10,103,280`.
    pub group_digits: bool,
    /// True if nulls and remarks are dimmed.
    pub use_colours: bool,
    /// True if the column names stand above the rows.
    pub has_header: bool,
}

/// Number of blanks between columns.
const COLUMN_GAP: usize = 2;
/// Minimum width of a cut text.
const TEXT_WIDTH_MIN: usize = 12;
/// Minimum width of a cut column name.
const NAME_WIDTH_MIN: usize = 8;
/// Maximum width of lists and records, which other outputs show better.
const NESTED_WIDTH_MAX: usize = 60;
/// Maximum number of lines of a turned row's value.
const VALUE_LINES_MAX: usize = 5;
/// Number of rows, and bytes of their text, that decide the widths if all rows are requested.
const WIDTH_SAMPLE_ROWS: usize = 1_000;
const WIDTH_SAMPLE_BYTES: usize = 1 << 20;

/// A row as text; `None` for a null.
type TextRow = Vec<Option<String>>;

/// A table to which rows are added while it is written to a terminal.
pub struct TerminalTable {
    options: TerminalTableOptions,
    estimates: EstimateDisplay,
    columns: Vec<TableColumn>,
    first_rows: Vec<TextRow>,
    last_rows: VecDeque<TextRow>,
    sample_bytes: usize,
    row_count: u64,
    /// The layout, once rows are written as they come.
    streaming_layout: Option<TableLayout>,
}

/// A column of the result.
struct TableColumn {
    /// Its position in a batch.
    index: usize,
    /// Its name, cut to the longest length that could be shown.
    name: String,
    /// Its full name.
    full_name: String,
    kind: DisplayKind,
}

/// The kind of display of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DisplayKind {
    Float,
    Number,
    /// A number with its error, already formatted.
    Estimate,
    /// A value that is no number but must not be cut: a date, a boolean.
    Fixed,
    Text,
    Nested,
}

impl DisplayKind {
    fn from_type(data_type: &DataType) -> DisplayKind {
        match data_type {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => DisplayKind::Float,
            DataType::Dictionary(_, values) => match DisplayKind::from_type(values) {
                DisplayKind::Float => DisplayKind::Number,
                kind => kind,
            },
            other if is_numeric_type(other) => DisplayKind::Number,
            other if other.is_nested() => DisplayKind::Nested,
            DataType::Boolean | DataType::Null => DisplayKind::Fixed,
            other if other.is_temporal() => DisplayKind::Fixed,
            _ => DisplayKind::Text,
        }
    }

    fn is_right_aligned(self) -> bool {
        matches!(self, DisplayKind::Float | DisplayKind::Number | DisplayKind::Estimate)
    }

    fn is_never_cut(self) -> bool {
        matches!(
            self,
            DisplayKind::Float | DisplayKind::Number | DisplayKind::Estimate | DisplayKind::Fixed
        )
    }
}

impl TerminalTable {
    /// Creates an empty table.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column that has no text.
    pub fn new(schema: &SchemaRef, look: TerminalTableOptions) -> Result<TerminalTable> {
        refuse_columns_without_text("text", schema)?;
        let look = TerminalTableOptions { width: look.width.max(1), ..look };
        let chars_max = chars_max(look.width);
        let estimates = EstimateDisplay::new(schema);
        let columns =
            estimates.schema().fields().iter().enumerate().map(|(index, field)| TableColumn {
                index,
                name: escape_for_terminal(first_chars(field.name(), chars_max)),
                full_name: escape_for_terminal(field.name()),
                kind: if is_displayed_estimate(field) {
                    DisplayKind::Estimate
                } else {
                    DisplayKind::from_type(field.data_type())
                },
            });
        let columns = columns.collect();
        Ok(TerminalTable {
            options: look,
            estimates,
            columns,
            first_rows: Vec::new(),
            last_rows: VecDeque::new(),
            sample_bytes: 0,
            row_count: 0,
            streaming_layout: None,
        })
    }

    /// Returns the number of rows added.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Adds rows, and writes those that can be written already.
    ///
    /// # Errors
    /// Returns the error of `out`.
    pub fn add_batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<()> {
        let count = batch.num_rows();
        self.row_count += count as u64;
        let Some(shown) = self.options.rows_max else { return self.add_streaming(batch, out) };
        let head = shown.div_ceil(2);
        let of_head = head.saturating_sub(self.first_rows.len()).min(count);
        if of_head > 0 {
            self.first_rows.extend(self.format_rows(&batch.slice(0, of_head))?);
        }
        // Only the end of the remaining rows can stay.
        let tail = shown - head;
        let rest = count - of_head;
        let of_tail = rest.min(tail);
        if of_tail > 0 {
            let texts = self.format_rows(&batch.slice(count - of_tail, of_tail))?;
            self.last_rows.extend(texts);
            let surplus = self.last_rows.len().saturating_sub(tail);
            self.last_rows.drain(..surplus);
        }
        Ok(())
    }

    fn add_streaming(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<()> {
        let mut done = 0;
        while done < batch.num_rows() {
            let some = (batch.num_rows() - done).min(WIDTH_SAMPLE_ROWS);
            let texts = self.format_rows(&batch.slice(done, some))?;
            done += some;
            if let Some(layout) = &self.streaming_layout {
                for row in &texts {
                    write_error(layout.write_row(row, out))?;
                }
                continue;
            }
            let sizes = texts.iter().flatten().flatten().map(String::len);
            self.sample_bytes += sizes.sum::<usize>();
            self.first_rows.extend(texts);
            if self.first_rows.len() >= WIDTH_SAMPLE_ROWS || self.sample_bytes >= WIDTH_SAMPLE_BYTES
            {
                let layout = TableLayout::new(&self.columns, &self.first_rows, self.options);
                write_error(layout.write_header(out))?;
                for row in std::mem::take(&mut self.first_rows) {
                    write_error(layout.write_row(&row, out))?;
                }
                self.streaming_layout = Some(layout);
            }
        }
        Ok(())
    }

    /// Writes the remaining rows and remarks.
    ///
    /// # Errors
    /// Returns the error of `out`.
    pub fn finish(mut self, out: &mut dyn Write) -> Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        if let Some(layout) = &self.streaming_layout {
            return write_error(layout.write_footer(&self.columns, out));
        }
        let head = self.first_rows.len();
        let between = self.row_count - head as u64 - self.last_rows.len() as u64;
        let mut rows = std::mem::take(&mut self.first_rows);
        rows.extend(self.last_rows.drain(..));
        let layout = TableLayout::new(&self.columns, &rows, self.options);
        if let ([row], 1, true) = (rows.as_slice(), self.row_count, layout.is_truncated) {
            return write_error(self.write_turned_row(row, out));
        }
        write_error(self.write_table(&layout, &rows, head, between, out))
    }

    fn write_table(
        &self,
        layout: &TableLayout,
        rows: &[TextRow],
        head: usize,
        between: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        layout.write_header(out)?;
        for row in &rows[..head] {
            layout.write_row(row, out)?;
        }
        if between > 0 {
            let count = tidemill_base::coverage::format_grouped_digits(between);
            let s = if between == 1 { "" } else { "s" };
            let where_to = if rows.len() > head { " between" } else { "" };
            layout
                .write_remark(&format!("… {count} row{s}{where_to}; --rows all shows them"), out)?;
        }
        for row in &rows[head..] {
            layout.write_row(row, out)?;
        }
        if self.row_count == 0 {
            layout.write_remark("(no rows)", out)?;
        }
        layout.write_footer(&self.columns, out)
    }

    /// Writes one row, a line for each column.
    fn write_turned_row(&self, row: &TextRow, out: &mut dyn Write) -> io::Result<()> {
        let width = self.options.width;
        let widest = self.columns.iter().map(|column| column.name.width()).max().unwrap_or(0);
        // Values get at least half of the screen.
        let of_names = widest.min((width / 2).saturating_sub(COLUMN_GAP)).max(1);
        let of_values = width.saturating_sub(of_names + COLUMN_GAP).max(1);
        for (column, value) in self.columns.iter().zip(row) {
            let name = cut_to_width(&column.name, of_names);
            let padding = of_names.saturating_sub(name.width()) + COLUMN_GAP;
            let value = value.as_deref();
            let lines = match value {
                Some(value) => wrap_lines(value, of_values),
                None => vec![null_marker(self.options.use_colours)],
            };
            for (index, line) in lines.iter().enumerate() {
                let text = match index {
                    0 if line.is_empty() => name.clone(),
                    0 => format!("{name}{}{line}", " ".repeat(padding)),
                    _ => format!("{}{line}", " ".repeat(of_names + COLUMN_GAP)),
                };
                writeln!(out, "{}", text.trim_end_matches(' '))?;
            }
        }
        Ok(())
    }

    /// Formats the rows of a batch as text.
    fn format_rows(&self, batch: &RecordBatch) -> Result<Vec<TextRow>> {
        let chars_max = chars_max(self.options.width);
        let batch = &self.estimates.merge_bounds(batch)?;
        let mut rows = vec![Vec::with_capacity(self.columns.len()); batch.num_rows()];
        let mut buffer = Vec::new();
        for column in &self.columns {
            let array = batch.column(column.index);
            let values = TextColumn::new(array)?;
            for (index, row) in rows.iter_mut().enumerate() {
                if values.is_null(index) {
                    row.push(None);
                    continue;
                }
                if let Some(text) = format_duration(array, index) {
                    row.push(Some(text));
                    continue;
                }
                buffer.clear();
                values.write_text(index, &mut buffer);
                let text = String::from_utf8_lossy(&buffer);
                row.push(Some(self.format_value(column.kind, &text, chars_max)));
            }
        }
        Ok(rows)
    }

    /// Formats a value for display.
    fn format_value(&self, kind: DisplayKind, text: &str, chars_max: usize) -> String {
        let text = match kind {
            DisplayKind::Float => round_float_text(text),
            DisplayKind::Text if text == "NULL" => "'NULL'".to_owned(),
            _ if text.chars().nth(chars_max).is_some() => {
                escape_for_terminal(first_chars(text, chars_max)) + "…"
            }
            _ => escape_for_terminal(text),
        };
        if self.options.group_digits && matches!(kind, DisplayKind::Float | DisplayKind::Number) {
            group_thousands(&text)
        } else {
            text
        }
    }
}

/// Maximum number of characters of a text that can be shown: a turned row has it in several lines.
fn chars_max(width: usize) -> usize {
    width.saturating_mul(VALUE_LINES_MAX)
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn write_error(result: io::Result<()>) -> Result<()> {
    result.map_err(|error| Error::io("write", "standard output", error))
}

/// The layout of a table's columns.
struct TableLayout {
    options: TerminalTableOptions,
    /// The columns that are shown.
    columns: Vec<ColumnLayout>,
    /// True if parts of values or columns are left out.
    is_truncated: bool,
}

/// The layout of one column.
struct ColumnLayout {
    /// The position of the column; `None` for the mark of left-out columns.
    column: Option<usize>,
    name: String,
    width: usize,
    /// The width of its longest fraction, including the `.`.
    fraction_width: usize,
    kind: DisplayKind,
    /// True if texts are cut in the middle, because distinct ones begin alike.
    is_cut_in_middle: bool,
}

impl TableLayout {
    fn new(columns: &[TableColumn], rows: &[TextRow], look: TerminalTableOptions) -> TableLayout {
        let measured: Vec<MeasuredColumn> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                MeasuredColumn::new(column, rows.iter().map(|row| row[at].as_deref()))
            })
            .collect();
        let is_bound = |at: usize| {
            let of = |row: &TextRow| row[at].as_deref().is_some_and(is_bound_text);
            columns[at].kind == DisplayKind::Estimate && rows.iter().any(of)
        };
        let bounds: Vec<bool> = (0..columns.len()).map(is_bound).collect();
        let kept = choose_columns(&measured, &bounds, look.width);
        let has_gap = kept.len() < measured.len();
        let gaps = count_gaps(&kept, measured.len());
        let room = look.width.saturating_sub(COLUMN_GAP * (kept.len() + gaps));
        // There is one gap less than columns.
        let room = (room + COLUMN_GAP).saturating_sub(gaps);
        let widths =
            distribute_width(&kept.iter().map(|at| &measured[*at]).collect::<Vec<_>>(), room);
        let is_cut = |(at, width): (&usize, &usize)| *width < measured[*at].value_width;
        let is_short = has_gap || kept.iter().zip(&widths).any(is_cut);
        let mut places = Vec::with_capacity(kept.len() + 1);
        for (index, (at, width)) in kept.iter().zip(&widths).enumerate() {
            let previous = if index == 0 { None } else { Some(kept[index - 1]) };
            if previous.map_or(*at > 0, |previous| *at > previous + 1) {
                places.push(ColumnLayout::gap_marker());
            }
            let column = &columns[*at];
            places.push(ColumnLayout {
                column: Some(*at),
                name: column.name.clone(),
                width: *width,
                fraction_width: measured[*at].fraction_width,
                kind: column.kind,
                is_cut_in_middle: *width < measured[*at].value_width
                    && would_look_alike(rows.iter().filter_map(|row| row[*at].as_deref()), *width),
            });
        }
        if has_gap && kept.last().is_some_and(|last| last + 1 < columns.len()) {
            places.push(ColumnLayout::gap_marker());
        }
        TableLayout { options: look, columns: places, is_truncated: is_short }
    }

    fn write_header(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.options.has_header {
            return Ok(());
        }
        let names = self.columns.iter().map(|place| place.fit_text(&place.name));
        self.write_line(names, out)?;
        let rules: Vec<_> = self.columns.iter().map(|place| "-".repeat(place.width)).collect();
        writeln!(out, "{}", rules.join("  "))
    }

    fn write_row(&self, row: &TextRow, out: &mut dyn Write) -> io::Result<()> {
        let texts = self.columns.iter().map(|place| match place.column {
            None => place.fit_text("…"),
            Some(at) => match &row[at] {
                Some(value) => place.fit_value(value, self.options.width),
                None => place.null_text(),
            },
        });
        self.write_line(texts, out)
    }

    /// Writes a line without trailing blanks.
    fn write_line(
        &self,
        texts: impl Iterator<Item = PaddedText>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut line = String::new();
        let mut blanks = 0;
        for text in texts {
            blanks += text.blanks_before;
            if !text.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', blanks));
                match text.is_null && self.options.use_colours {
                    true => line.push_str(&dim_text(&text.text)),
                    false => line.push_str(&text.text),
                }
                blanks = 0;
            }
            blanks += text.blanks_after + COLUMN_GAP;
        }
        // A text may end with its own blanks.
        writeln!(out, "{}", line.trim_end_matches(' '))
    }

    /// Writes a remark about the table.
    fn write_remark(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let text = cut_to_width(text, self.options.width);
        match self.options.use_colours {
            true => writeln!(out, "{}", dim_text(&text)),
            false => writeln!(out, "{text}"),
        }
    }

    /// Writes the names of left-out columns.
    fn write_footer(&self, columns: &[TableColumn], out: &mut dyn Write) -> io::Result<()> {
        let is_shown = |at: usize| self.columns.iter().any(|place| place.column == Some(at));
        let absent = (0..columns.len()).filter(|at| !is_shown(*at));
        let names: Vec<&str> = absent.map(|at| columns[at].full_name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let are = if names.len() == 1 { "is" } else { "are" };
        let text = format!(
            "{} of {} columns {are} not shown: {}",
            names.len(),
            columns.len(),
            names.join(", ")
        );
        self.write_remark(&text, out)
    }
}

/// A text with its padding.
struct PaddedText {
    text: String,
    blanks_before: usize,
    blanks_after: usize,
    is_null: bool,
}

impl ColumnLayout {
    fn gap_marker() -> ColumnLayout {
        let (name, kind) = ("…".to_owned(), DisplayKind::Text);
        ColumnLayout {
            column: None,
            name,
            width: 1,
            fraction_width: 0,
            kind,
            is_cut_in_middle: false,
        }
    }

    /// Fits a text to the column, aligned like the column's values.
    fn fit_text(&self, text: &str) -> PaddedText {
        self.align_text(cut_to_width(text, self.width))
    }

    fn align_text(&self, text: String) -> PaddedText {
        let padding = self.width.saturating_sub(text.width());
        let (before, after) =
            if self.kind.is_right_aligned() { (padding, 0) } else { (0, padding) };
        PaddedText { text, blanks_before: before, blanks_after: after, is_null: false }
    }

    /// Returns the padded text of a null, which is never cut: it may come after the widths were decided.
    fn null_text(&self) -> PaddedText {
        let text = "NULL".to_owned();
        let padding = self.width.saturating_sub(text.len());
        let (before, after) =
            if self.kind.is_right_aligned() { (padding, 0) } else { (0, padding) };
        PaddedText { text, blanks_before: before, blanks_after: after, is_null: true }
    }

    /// Fits a value to the column.
    fn fit_value(&self, value: &str, screen: usize) -> PaddedText {
        if self.kind.is_never_cut() && value.width() > self.width {
            // The value came after the widths were decided, or the screen is too narrow for it.
            let text = cut_to_width(value, screen);
            return PaddedText { text, blanks_before: 0, blanks_after: 0, is_null: false };
        }
        // A value without a point, such as `1e300`, is aligned right.
        if self.kind != DisplayKind::Float || fraction_width(value) == 0 {
            return match self.is_cut_in_middle {
                true => self.align_text(cut_middle(value, self.width)),
                false => self.fit_text(value),
            };
        }
        let after = self.fraction_width.saturating_sub(fraction_width(value));
        let before = self.width.saturating_sub(value.width() + after);
        // A fraction longer than those before begins further left.
        let after = self.width.saturating_sub(value.width() + before);
        PaddedText {
            text: value.to_owned(),
            blanks_before: before,
            blanks_after: after,
            is_null: false,
        }
    }
}

/// The natural and the minimum width of a column.
struct MeasuredColumn {
    /// The width of the widest value.
    value_width: usize,
    natural_width: usize,
    width_min: usize,
    fraction_width: usize,
}

impl MeasuredColumn {
    fn new<'a>(
        column: &TableColumn,
        values: impl Iterator<Item = Option<&'a str>>,
    ) -> MeasuredColumn {
        let (mut whole, mut fractions, mut others) = (0, 0, 0);
        for value in values {
            match value {
                None => others = others.max("NULL".len()),
                Some(value) if fraction_width(value) > 0 && column.kind == DisplayKind::Float => {
                    let behind = fraction_width(value);
                    whole = whole.max(value.width() - behind);
                    fractions = fractions.max(behind);
                }
                Some(value) => others = others.max(value.width()),
            }
        }
        let cells = (whole + fractions).max(others);
        let name = column.name.width();
        let natural = match column.kind {
            DisplayKind::Nested => cells.min(NESTED_WIDTH_MAX),
            _ => cells,
        };
        let natural = natural.max(name);
        let floor = match column.kind.is_never_cut() {
            true => cells.max(name.min(NAME_WIDTH_MIN)),
            false => natural.min(TEXT_WIDTH_MIN),
        };
        MeasuredColumn {
            value_width: cells,
            natural_width: natural,
            width_min: floor,
            fraction_width: fractions,
        }
    }
}

/// Chooses the columns that fit: all, or the first and the last. Columns of bounds are left out first.
fn choose_columns(measured: &[MeasuredColumn], bounds: &[bool], width: usize) -> Vec<usize> {
    // `…` and its gap stand for left-out columns.
    let fits = |kept: &[usize]| {
        let columns: usize = kept.iter().map(|at| measured[*at].width_min + COLUMN_GAP).sum();
        columns + count_gaps(kept, measured.len()) * (1 + COLUMN_GAP) <= width + COLUMN_GAP
    };
    let all: Vec<usize> = (0..measured.len()).collect();
    if fits(&all) {
        return all;
    }
    let (at_most, mut others): (Vec<usize>, Vec<usize>) = all.iter().partition(|at| bounds[**at]);
    if others.is_empty() {
        others = all;
    }
    let (mut first, mut last) = (0, others.len());
    let mut takes_first = true;
    let ends = |first: usize, last: usize| [&others[..first], &others[last..]].concat();
    while first < last {
        let (more, less) = if takes_first { (first + 1, last) } else { (first, last - 1) };
        // Keeps at least one column, even on a very narrow screen.
        if first > 0 && !fits(&ends(more, less)) {
            return ends(first, last);
        }
        (first, last) = (more, less);
        takes_first = !takes_first;
    }
    // Adds as many columns of bounds as fit.
    let mut kept = others;
    for at in at_most {
        let place = kept.partition_point(|other| *other < at);
        kept.insert(place, at);
        if !fits(&kept) {
            kept.remove(place);
        }
    }
    kept
}

/// Returns the number of runs of left-out columns.
fn count_gaps(kept: &[usize], count: usize) -> usize {
    let between = kept.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    let before = kept.first().is_some_and(|first| *first > 0);
    let behind = kept.last().is_some_and(|last| last + 1 < count);
    between + usize::from(before) + usize::from(behind)
}

/// Distributes `room` over the columns: each gets at least its minimum width, and the narrowest get the rest
/// first.
fn distribute_width(measured: &[&MeasuredColumn], room: usize) -> Vec<usize> {
    let total = |level: usize| -> usize {
        measured.iter().map(|column| column.natural_width.min(column.width_min.max(level))).sum()
    };
    let widest = measured.iter().map(|column| column.natural_width).max().unwrap_or(0);
    // The highest level that fits: widths grow with it.
    let (mut low, mut high) = (0, widest);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= room { low = middle } else { high = middle - 1 }
    }
    let mut widths: Vec<usize> =
        measured.iter().map(|column| column.natural_width.min(column.width_min.max(low))).collect();
    let mut left = room.saturating_sub(widths.iter().sum());
    for (width, column) in widths.iter_mut().zip(measured) {
        if left > 0 && *width < column.natural_width {
            *width += 1;
            left -= 1;
        }
    }
    // The screen is too narrow for a single column.
    if let [width] = widths.as_mut_slice() {
        *width = (*width).min(room.max(1));
    }
    widths
}

/// Returns the width of a float's fraction, including the point; 0 with an exponent, and for text that is no
/// number.
fn fraction_width(text: &str) -> usize {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b','));
    match text.find('.') {
        Some(at) if is_plain => text.len() - at,
        _ => 0,
    }
}

/// Cuts a text to a width, with `…` at its end.
fn cut_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut end = 0;
    for (at, part) in text.grapheme_indices(true) {
        let next = at + part.len();
        if text[..next].width() + 1 > width {
            break;
        }
        end = next;
    }
    if width == 0 { String::new() } else { format!("{}…", &text[..end]) }
}

/// Returns true if distinct texts become equal when they are cut to a width.
fn would_look_alike<'a>(texts: impl Iterator<Item = &'a str>, width: usize) -> bool {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let mut cut = texts.filter(|text| text.width() > width);
    cut.any(|text| *seen.entry(cut_to_width(text, width)).or_insert(text) != text)
}

/// Cuts a text to a width, with `…` in its middle.
fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width || width < 3 {
        return cut_to_width(text, width);
    }
    let of_end = (width - 1) / 2;
    let first = cut_to_width(text, width - of_end);
    let mut start = text.len();
    for (at, _) in text.grapheme_indices(true).rev() {
        if text[at..].width() > of_end {
            break;
        }
        start = at;
    }
    format!("{first}{}", &text[start..])
}

/// Wraps a text into lines of a width. Keeps the first [`VALUE_LINES_MAX`] lines, and ends the last with `…`
/// if cut.
fn wrap_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while lines.len() + 1 < VALUE_LINES_MAX && rest.width() > width {
        let mut end = 0;
        for (at, part) in rest.grapheme_indices(true) {
            let next = at + part.len();
            // Takes at least one grapheme: a wide character may exceed a narrow screen.
            if rest[..next].width() > width && at > 0 {
                break;
            }
            end = next;
        }
        lines.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(cut_to_width(rest, width));
    }
    lines
}

fn dim_text(text: &str) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

fn null_marker(colours: bool) -> String {
    if colours { dim_text("NULL") } else { "NULL".to_owned() }
}

/// Significant digits of a float with more than [`EXACT_DIGITS_MAX`] digits.
const ROUNDED_DIGITS: usize = 6;
/// Maximum number of digits of a float that is shown unchanged: a person probably wrote it.
const EXACT_DIGITS_MAX: usize = 9;
/// Maximum number of decimals of a float that is shown unchanged.
const EXACT_DECIMALS_MAX: usize = 4;

/// Rounds a float's text (the shortest that reads back as the same number) to the digits that people read.
fn round_float_text(text: &str) -> String {
    let Ok(value) = text.parse::<f64>() else { return text.to_owned() };
    if !value.is_finite() {
        return text.to_owned();
    }
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    if let Some((mantissa, _)) = text.split_once('e') {
        return match digits(mantissa) {
            count if count <= EXACT_DIGITS_MAX => text.to_owned(),
            _ => {
                let rounded = format!("{value:.*e}", ROUNDED_DIGITS - 1);
                match rounded.split_once('e') {
                    Some((mantissa, exponent)) => {
                        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
                        format!("{mantissa}e{exponent}")
                    }
                    None => rounded,
                }
            }
        };
    }
    let Some((whole, behind)) = text.split_once('.') else { return text.to_owned() };
    let of_whole = digits(whole.trim_start_matches(['-', '0']));
    let zeros = behind.len() - behind.trim_start_matches('0').len();
    let written = if of_whole > 0 { of_whole + behind.len() } else { behind.len() - zeros };
    if behind.len() <= EXACT_DECIMALS_MAX || written <= EXACT_DIGITS_MAX {
        return text.to_owned();
    }
    let decimals = if of_whole > 0 {
        ROUNDED_DIGITS.saturating_sub(of_whole).max(2)
    } else {
        zeros + ROUNDED_DIGITS
    };
    let rounded = format!("{value:.decimals$}");
    let short = rounded.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Groups the digits of a number by thousands.
pub(crate) fn group_thousands(text: &str) -> String {
    let start = text.bytes().take_while(|byte| *byte == b'-').count();
    let count = text[start..].bytes().take_while(u8::is_ascii_digit).count();
    let (sign, rest) = text.split_at(start);
    let (whole, behind) = rest.split_at(count);
    let mut grouped = String::with_capacity(text.len() + count / 3);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (count - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{behind}")
}

/// Formats a duration or an interval for people; returns `None` for other types.
fn format_duration(array: &ArrayRef, row: usize) -> Option<String> {
    match array.data_type() {
        DataType::Duration(unit) => {
            let value = match unit {
                TimeUnit::Second => array.as_primitive::<DurationSecondType>().value(row),
                TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().value(row),
                TimeUnit::Microsecond => array.as_primitive::<DurationMicrosecondType>().value(row),
                TimeUnit::Nanosecond => array.as_primitive::<DurationNanosecondType>().value(row),
            };
            let per_second: i128 = match unit {
                TimeUnit::Second => 1,
                TimeUnit::Millisecond => 1_000,
                TimeUnit::Microsecond => 1_000_000,
                TimeUnit::Nanosecond => 1_000_000_000,
            };
            let nanos = i128::from(value) * (1_000_000_000 / per_second);
            let mut text = String::new();
            push_days_and_time(nanos, &mut text);
            Some(text)
        }
        DataType::Interval(unit) => {
            let (months, days, nanos) = match unit {
                IntervalUnit::YearMonth => {
                    (array.as_primitive::<IntervalYearMonthType>().value(row), 0, 0)
                }
                IntervalUnit::DayTime => {
                    let value = array.as_primitive::<IntervalDayTimeType>().value(row);
                    (0, value.days, i64::from(value.milliseconds) * 1_000_000)
                }
                IntervalUnit::MonthDayNano => {
                    let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                    (value.months, value.days, value.nanoseconds)
                }
            };
            let mut parts = Vec::new();
            for (count, unit) in [(months / 12, "y"), (months % 12, "mon"), (days, "d")] {
                if count != 0 {
                    parts.push(format!("{count}{unit}"));
                }
            }
            if nanos != 0 || parts.is_empty() {
                let mut time = String::new();
                push_time(i128::from(nanos), &mut time);
                parts.push(time);
            }
            Some(parts.join(" "))
        }
        _ => None,
    }
}

const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// Appends days and time of day: `5d 14:34:50`.
fn push_days_and_time(nanos: i128, out: &mut String) {
    let days = nanos.abs() / NANOS_PER_DAY;
    if days == 0 {
        return push_time(nanos, out);
    }
    let sign = if nanos < 0 { "-" } else { "" };
    out.push_str(&format!("{sign}{days}d "));
    push_time(nanos.abs() % NANOS_PER_DAY, out);
}

/// Appends a time, `14:34:50.250`, with any number of hours.
fn push_time(nanos: i128, out: &mut String) {
    if nanos < 0 {
        out.push('-');
    }
    let nanos = nanos.abs();
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    out.push_str(&format!("{hours:02}:{minutes:02}:{seconds:02}"));
    match rest {
        0 => {}
        _ if rest % 1_000_000 == 0 => out.push_str(&format!(".{:03}", rest / 1_000_000)),
        _ if rest % 1_000 == 0 => out.push_str(&format!(".{:06}", rest / 1_000)),
        _ => out.push_str(&format!(".{rest:09}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        DurationSecondArray, Float64Array, Int64Array, IntervalMonthDayNanoArray, ListArray,
        StringArray,
    };
    use arrow::datatypes::{Field, Int32Type, IntervalMonthDayNano, Schema};
    use proptest::prelude::*;
    use tidemill_base::coverage::BOUND_METADATA_KEY;

    use super::*;

    const OPTIONS: TerminalTableOptions = TerminalTableOptions {
        width: 80,
        rows_max: Some(40),
        group_digits: false,
        use_colours: false,
        has_header: true,
    };

    /// Renders batches as a terminal shows them.
    fn render(batches: &[RecordBatch], look: TerminalTableOptions) -> String {
        let mut out = Vec::new();
        let mut screen = TerminalTable::new(&batches[0].schema(), look).unwrap();
        for batch in batches {
            screen.add_batch(batch, &mut out).unwrap();
        }
        screen.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
            .collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
    }

    fn texts(values: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(values))
    }

    #[track_caller]
    fn check(batch: &RecordBatch, look: TerminalTableOptions, expected: &str) {
        let found = render(std::slice::from_ref(batch), look);
        assert_eq!(found, expected, "\n{found}");
    }

    #[test]
    fn a_table_is_aligned() {
        let floats: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(2.0 / 3.0), Some(1234.5), None, Some(1e300)]));
        let some = batch(vec![
            ("word", texts(&["a", "NULL", "日本", "x\ty\u{1b}[2J"])),
            ("number", numbers([1, -20, 1_234_567, 0])),
            ("mean", floats),
        ]);
        check(
            &some,
            OPTIONS,
            "\
word          number         mean
-----------  -------  -----------
a                  1     0.666667
'NULL'           -20  1234.5
日本         1234567         NULL
x\\ty\\x1b[2J        0        1e300
",
        );
    }

    #[test]
    fn a_table_without_a_header_is_its_rows() {
        let some = batch(vec![("n", numbers([1, 20])), ("s", texts(&["a", "b"]))]);
        check(&some, TerminalTableOptions { has_header: false, ..OPTIONS }, " 1  a\n20  b\n");
    }

    #[test]
    fn digits_are_grouped_if_requested() {
        for (text, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("-1234567", "-1,234,567"),
            ("-123", "-123"),
            ("1234567.8912", "1,234,567.8912"),
            ("1e300", "1e300"),
            ("NaN", "NaN"),
            ("inf", "inf"),
        ] {
            assert_eq!(group_thousands(text), expected);
        }
        let some = batch(vec![("n", numbers([1, 10_103_280])), ("t", texts(&["1000", "2000"]))]);
        check(
            &some,
            TerminalTableOptions { group_digits: true, ..OPTIONS },
            "\x20        n  t
----------  ----
         1  1000
10,103,280  2000
",
        );
    }

    #[test]
    fn long_floats_are_rounded_and_short_ones_kept() {
        for (text, expected) in [
            ("5.0", "5.0"),
            ("0.1", "0.1"),
            ("12.639070257304708", "12.6391"),
            ("0.30000000000000004", "0.3"),
            ("0.6666666666666666", "0.666667"),
            ("-0.6666666666666666", "-0.666667"),
            ("0.00012345678912345", "0.000123457"),
            ("-122.419416", "-122.419416"),
            ("12345678.25", "12345678.25"),
            ("1234567.891234567", "1234567.89"),
            ("99999.999999999", "100000.0"),
            ("123456789012345.0", "123456789012345.0"),
            ("1e16", "1e16"),
            ("1.2345678901234567e-7", "1.23457e-7"),
            ("1.0000000000000002e300", "1e300"),
            ("NaN", "NaN"),
            ("inf", "inf"),
            ("-inf", "-inf"),
        ] {
            assert_eq!(round_float_text(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_days_and_clock_time() {
        for (nanos, expected) in [
            (0, "00:00:00"),
            (52_490_000_000_000, "14:34:50"),
            (5 * NANOS_PER_DAY + 52_490_000_000_000, "5d 14:34:50"),
            (-NANOS_PER_DAY - 1_500_000_000, "-1d 00:00:01.500"),
            (-1_000, "-00:00:00.000001"),
            (1, "00:00:00.000000001"),
        ] {
            let mut text = String::new();
            push_days_and_time(nanos, &mut text);
            assert_eq!(text, expected);
        }
        let spans: ArrayRef = Arc::new(DurationSecondArray::from(vec![Some(484_490), None]));
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            IntervalMonthDayNano::new(14, 3, 3_600_000_000_000),
            IntervalMonthDayNano::new(0, 0, 0),
        ]));
        check(
            &batch(vec![("up", spans), ("every", intervals)]),
            OPTIONS,
            "\
up           every
-----------  -------------------
5d 14:34:50  1y 2mon 3d 01:00:00
NULL         00:00:00
",
        );
    }

    #[test]
    fn first_and_last_of_many_rows_are_shown() {
        let all: Vec<RecordBatch> =
            (0..10).map(|at| batch(vec![("n", numbers(at * 7..at * 7 + 7))])).collect();
        let look = TerminalTableOptions { rows_max: Some(5), ..OPTIONS };
        let expected = "\x20n
--
 0
 1
 2
… 65 rows between; --rows all shows them
68
69
";
        assert_eq!(render(&all, look), expected);
        let one = TerminalTableOptions { rows_max: Some(1), ..OPTIONS };
        let expected = "n\n-\n0\n… 6 rows; --rows all shows them\n";
        assert_eq!(render(&all[..1], one), expected);
        let whole = render(&all, TerminalTableOptions { rows_max: None, ..OPTIONS });
        assert_eq!(whole, render(&all, TerminalTableOptions { rows_max: Some(70), ..OPTIONS }));
        assert_eq!(whole.lines().count(), 72);
    }

    #[test]
    fn empty_result_says_no_rows() {
        check(
            &batch(vec![("a", texts(&[])), ("n", numbers([]))]),
            OPTIONS,
            "a  n\n-  -\n(no rows)\n",
        );
    }

    #[test]
    fn unlimited_rows_are_streamed() {
        let some = batch(vec![("n", numbers(0..700)), ("t", texts(&vec!["abc"; 700]))]);
        let wider = batch(vec![("n", numbers([123_456])), ("t", texts(&["abcdef"]))]);
        let mut out = Vec::new();
        let mut screen =
            TerminalTable::new(&some.schema(), TerminalTableOptions { rows_max: None, ..OPTIONS })
                .unwrap();
        screen.add_batch(&some, &mut out).unwrap();
        assert!(out.is_empty());
        screen.add_batch(&some, &mut out).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1402);
        screen.add_batch(&wider, &mut out).unwrap();
        assert!(out.ends_with(b"699  abc\n123456  ab\xe2\x80\xa6\n"));
        screen.finish(&mut out).unwrap();
        assert!(out.ends_with(b"ab\xe2\x80\xa6\n"));
    }

    #[test]
    fn texts_are_cut_and_numbers_are_not() {
        let long = "word ".repeat(30);
        let some = batch(vec![
            ("a_rather_long_name_of_a_number", numbers([1, 1_234_567_890_123])),
            ("text", texts(&[&long, "b"])),
        ]);
        check(
            &some,
            TerminalTableOptions { width: 30, ..OPTIONS },
            "\
a_rather_long…  text
--------------  --------------
             1  word word wor…
 1234567890123  b
",
        );
    }

    #[test]
    fn texts_that_begin_alike_are_cut_in_their_middle() {
        let url = |end: &str| format!("https://shop.example/catalogue/items/{end}");
        let shown = |values: &[String]| {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let counts = numbers(0..values.len() as i64);
            render(
                &[batch(vec![("url", texts(&values)), ("n", counts)])],
                TerminalTableOptions { width: 24, ..OPTIONS },
            )
        };
        assert_eq!(
            shown(&[url("1"), url("22"), "/a".into()]),
            "url                    n\n---------------------  -\nhttps://sh…ue/items/1  0\n\
             https://sh…e/items/22  1\n/a                     2\n"
        );
        // Equal texts may look equal.
        assert!(shown(&[url("1"), url("1")]).contains("https://shop.example…  0"));
    }

    #[test]
    fn columns_in_the_middle_are_left_out() {
        let columns = ["a", "b", "c", "d", "e", "f"];
        let some = batch(columns.map(|name| (name, texts(&["twelve chars", "x"]))).to_vec());
        check(
            &some,
            TerminalTableOptions { width: 50, ..OPTIONS },
            "\
a             b             …  f
------------  ------------  -  ------------
twelve chars  twelve chars  …  twelve chars
x             x             …  x
3 of 6 columns are not shown: c, d, e
",
        );
    }

    #[test]
    fn estimates_stay_longer_than_bounds() {
        let bound = |name: &str, which: &str| {
            Field::new(name, DataType::Float64, true)
                .with_metadata([(BOUND_METADATA_KEY.to_owned(), which.to_owned())].into())
        };
        let value = |name: &str| Field::new(name, DataType::Float64, true);
        let schema = Arc::new(Schema::new(vec![
            Field::new("carrier", DataType::Utf8, true),
            value("n"),
            bound("n_low", "low"),
            bound("n_high", "high"),
            value("d"),
            bound("d_low", "low"),
            bound("d_high", "high"),
            value("mx"),
            bound("mx_low", "low"),
            bound("mx_high", "high"),
            value("mn"),
            bound("mn_low", "low"),
            bound("mn_high", "high"),
        ]));
        let floats = |value: Option<f64>| Arc::new(Float64Array::from(vec![value; 2])) as ArrayRef;
        let columns = [
            [Some(12_304.0), Some(12_094.0), Some(12_514.0)],
            [Some(5.0), Some(4.0), Some(6.0)],
            [Some(41.0), Some(41.0), None],
            [Some(1.0), None, Some(1.0)],
        ];
        let mut arrays = vec![texts(&["AA", "DL"])];
        arrays.extend(columns.as_flattened().iter().map(|value| floats(*value)));
        let estimates = RecordBatch::try_new(schema, arrays).unwrap();
        for (width, expected) in [
            (47, "carrier             n          d    mx   mn"),
            (41, "carrier             n          d    mx  …"),
            (36, "carrier             n          d  …"),
            (26, "carrier  …          d  …"),
        ] {
            let found =
                render(std::slice::from_ref(&estimates), TerminalTableOptions { width, ..OPTIONS });
            assert_eq!(found.lines().next(), Some(expected), "{width}\n{found}");
            assert!(found.lines().all(|line| line.width() <= width), "{width}\n{found}");
        }
    }

    #[test]
    fn one_row_that_does_not_fit_is_turned() {
        let tags: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some((0..3).map(Some))]));
        let one = batch(vec![
            ("name", texts(&["Ann"])),
            ("nothing", Arc::new(StringArray::from(vec![None::<&str>]))),
            ("message", texts(&["0123456789abcdefghijklmnopqrstuvwxyz"])),
            ("tags", tags),
        ]);
        check(
            &one,
            TerminalTableOptions { width: 30, ..OPTIONS },
            "\
name     Ann
nothing  NULL
message  0123456789abcdefghijk
         lmnopqrstuvwxyz
tags     [0,1,2]
",
        );
        check(
            &one,
            OPTIONS,
            "\
name  nothing  message                               tags
----  -------  ------------------------------------  -------
Ann   NULL     0123456789abcdefghijklmnopqrstuvwxyz  [0,1,2]
",
        );
    }

    #[test]
    fn text_is_cut_between_graphemes() {
        for (text, width, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("👩‍👩‍👧x", 2, "…"),
            ("", 0, ""),
            ("a", 0, ""),
            ("ab", 1, "…"),
        ] {
            assert_eq!(cut_to_width(text, width), expected, "{text} {width}");
        }
    }

    #[test]
    fn a_null_is_dimmed_where_colours_are_shown() {
        let some = batch(vec![("n", Arc::new(Int64Array::from(vec![None, Some(1)])) as ArrayRef)]);
        check(
            &some,
            TerminalTableOptions { use_colours: true, ..OPTIONS },
            "   n\n----\n\x1b[2mNULL\x1b[0m\n   1\n",
        );
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(
            rows in prop::collection::vec(
                prop::collection::vec(prop::option::of("\\PC{0,40}|[a-z ]{0,30}|NULL|[0-9]{1,9}"), 7),
                0..12,
            ),
            counts in prop::collection::vec(any::<i64>(), 12),
            shares in prop::collection::vec(any::<f64>(), 12),
            width in 24_usize..220,
            shown in prop::option::of(1_usize..9),
        ) {
            let mut columns: Vec<(String, ArrayRef)> = (0..7)
                .map(|at| {
                    let values = rows.iter().map(|row| row[at].clone());
                    let array: ArrayRef = Arc::new(StringArray::from_iter(values));
                    (format!("column_{at}"), array)
                })
                .collect();
            let count = rows.len();
            columns.insert(3, ("count".into(), numbers(counts[..count].iter().copied())));
            let floats = Float64Array::from_iter_values(shares[..count].iter().copied());
            columns.insert(4, ("share".into(), Arc::new(floats)));
            let columns = columns.iter().map(|(name, array)| (name.as_str(), array.clone()));
            let some = batch(columns.collect());
            let found = render(&[some], TerminalTableOptions { width, rows_max: shown, ..OPTIONS });
            for line in found.lines() {
                prop_assert!(line.width() <= width, "{}: {line:?}", line.width());
                prop_assert!(!line.ends_with(' '), "{line:?}");
            }
            let is_turned = count == 1 && !found.lines().nth(1).is_some_and(|line| line.starts_with('-'));
            if !is_turned {
                // Names, rule, rows or their remark, and the remark on left-out columns.
                let rows = shown.unwrap_or(count).min(count);
                let at_least = 2 + rows.max(1) + usize::from(rows > 0 && rows < count);
                let lines = found.lines().count();
                prop_assert!(lines == at_least || lines == at_least + 1, "{found}");
            }
        }

        #[test]
        fn a_folded_text_loses_nothing_but_its_end(text in "\\PC{0,60}", width in 2_usize..40) {
            let lines = wrap_lines(&text, width);
            prop_assert!(!lines.is_empty() && lines.len() <= VALUE_LINES_MAX);
            let joined = lines.concat();
            match joined.strip_suffix('…') {
                Some(cut) if joined != text => prop_assert!(text.starts_with(cut)),
                _ => prop_assert_eq!(joined, text),
            }
        }
    }
}
