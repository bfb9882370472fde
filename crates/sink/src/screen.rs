//! What does a result look like on a terminal of so many columns?
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
//! No line is wider than the terminal. Of many rows the first and the last are kept, as text that is cut to what
//! could be shown, so that memory is bounded by the screen and not by the result; the rows between are counted.
//! Where all rows are wanted the first of them (up to 1,000, or 1 MiB of text) decide how wide the columns are,
//! and the others are written as they come.
//!
//! A column is as wide as its widest value. Where that is too wide, texts are cut with `…` down to a floor, in their
//! middle if some that differ, as URLs of one site, would look alike when cut at their end; numbers,
//! times and the like never are, for a cut number is another number. Where the floors are too wide, columns in
//! the middle are left out, those of bounds (`≥ 41`) before all others, `…` stands for them, and a line says which. One row that does not fit is turned: a line
//! for each column.
//!
//! What is shown is for reading. A float with more than nine digits, as a division or a mean gives, is rounded to six
//! (two behind the point at least); a duration is `5d 14:34:50`; a text that says `NULL` stands in quotes, since
//! a null is `NULL`. Every other way out of the program has all digits and ISO 8601.

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

use crate::error::{Error, Result};
use crate::estimates::{Estimates, is_bound, is_shown};
use crate::formats::text::{escaped, is_number, refuse_textless};
use crate::value::TextColumn;

/// How many rows are shown unless told otherwise.
pub const ROWS_SHOWN: usize = 40;

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The terminal's columns, at least 1.
    pub width: usize,
    /// The most rows that are shown, the first half of them from the beginning; none for all.
    pub rows: Option<usize>,
    /// Whether digits are grouped: `10,103,280`.
    pub thousands: bool,
    /// Whether what is no value is dimmed.
    pub colours: bool,
    /// True if the names of columns stand above the rows.
    pub header: bool,
}

/// Blanks between columns.
const GAP: usize = 2;
/// What a text is not cut below.
const TEXT_FLOOR: usize = 12;
/// What a name is not cut below.
const NAME_FLOOR: usize = 8;
/// Lists and records are read elsewhere: they are no wider than this.
const NESTED_MAX: usize = 60;
/// A turned row's value has no more lines than this.
const LINES_MAX: usize = 5;
/// What decides the widths where all rows are wanted.
const WINDOW_ROWS: usize = 1_000;
const WINDOW_BYTES: usize = 1 << 20;

/// A row as text; none for a null.
type Row = Vec<Option<String>>;

/// A result on its way to the screen.
pub struct Screen {
    look: Look,
    estimates: Estimates,
    columns: Vec<Column>,
    first: Vec<Row>,
    last: VecDeque<Row>,
    bytes: usize,
    rows: u64,
    /// Set once rows are written as they come.
    laid_out: Option<Layout>,
}

/// A column of the result.
struct Column {
    /// Where it stands in a batch.
    index: usize,
    /// Its name, as far as it could be shown.
    name: String,
    /// The name as it is.
    whole: String,
    kind: Kind,
}

/// How a column's values are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Float,
    Number,
    /// A number with what it may be off by, as it is to be shown.
    Estimate,
    /// Neither a number nor to be cut: a date, a boolean.
    Fixed,
    Text,
    Nested,
}

impl Kind {
    fn of(data_type: &DataType) -> Kind {
        match data_type {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Kind::Float,
            DataType::Dictionary(_, values) => match Kind::of(values) {
                Kind::Float => Kind::Number,
                kind => kind,
            },
            other if is_number(other) => Kind::Number,
            other if other.is_nested() => Kind::Nested,
            DataType::Boolean | DataType::Null => Kind::Fixed,
            other if other.is_temporal() => Kind::Fixed,
            _ => Kind::Text,
        }
    }

    fn is_right(self) -> bool {
        matches!(self, Kind::Float | Kind::Number | Kind::Estimate)
    }

    fn is_whole(self) -> bool {
        matches!(self, Kind::Float | Kind::Number | Kind::Estimate | Kind::Fixed)
    }
}

impl Screen {
    /// An empty result.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column that has no text.
    pub fn new(schema: &SchemaRef, look: Look) -> Result<Screen> {
        refuse_textless("text", schema)?;
        let look = Look { width: look.width.max(1), ..look };
        let chars_max = chars_max(look.width);
        let estimates = Estimates::new(schema);
        let columns = estimates.schema().fields().iter().enumerate().map(|(index, field)| Column {
            index,
            name: escaped(first_chars(field.name(), chars_max)),
            whole: escaped(field.name()),
            kind: if is_shown(field) { Kind::Estimate } else { Kind::of(field.data_type()) },
        });
        let columns = columns.collect();
        Ok(Screen {
            look,
            estimates,
            columns,
            first: Vec::new(),
            last: VecDeque::new(),
            bytes: 0,
            rows: 0,
            laid_out: None,
        })
    }

    /// How many rows there were.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes rows, and writes what can be written already.
    ///
    /// # Errors
    /// What `out` refuses.
    pub fn add(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<()> {
        let count = batch.num_rows();
        self.rows += count as u64;
        let Some(shown) = self.look.rows else { return self.add_all(batch, out) };
        let head = shown.div_ceil(2);
        let of_head = head.saturating_sub(self.first.len()).min(count);
        if of_head > 0 {
            self.first.extend(self.texts(&batch.slice(0, of_head))?);
        }
        // Of what follows only the end can stay.
        let tail = shown - head;
        let rest = count - of_head;
        let of_tail = rest.min(tail);
        if of_tail > 0 {
            let texts = self.texts(&batch.slice(count - of_tail, of_tail))?;
            self.last.extend(texts);
            let surplus = self.last.len().saturating_sub(tail);
            self.last.drain(..surplus);
        }
        Ok(())
    }

    fn add_all(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<()> {
        let mut done = 0;
        while done < batch.num_rows() {
            let some = (batch.num_rows() - done).min(WINDOW_ROWS);
            let texts = self.texts(&batch.slice(done, some))?;
            done += some;
            if let Some(layout) = &self.laid_out {
                for row in &texts {
                    told(layout.row(row, out))?;
                }
                continue;
            }
            let sizes = texts.iter().flatten().flatten().map(String::len);
            self.bytes += sizes.sum::<usize>();
            self.first.extend(texts);
            if self.first.len() >= WINDOW_ROWS || self.bytes >= WINDOW_BYTES {
                let layout = Layout::new(&self.columns, &self.first, self.look);
                told(layout.head(out))?;
                for row in std::mem::take(&mut self.first) {
                    told(layout.row(&row, out))?;
                }
                self.laid_out = Some(layout);
            }
        }
        Ok(())
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// What `out` refuses.
    pub fn finish(mut self, out: &mut dyn Write) -> Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        if let Some(layout) = &self.laid_out {
            return told(layout.foot(&self.columns, out));
        }
        let head = self.first.len();
        let between = self.rows - head as u64 - self.last.len() as u64;
        let mut rows = std::mem::take(&mut self.first);
        rows.extend(self.last.drain(..));
        let layout = Layout::new(&self.columns, &rows, self.look);
        if let ([row], 1, true) = (rows.as_slice(), self.rows, layout.is_short) {
            return told(self.turned(row, out));
        }
        told(self.written(&layout, &rows, head, between, out))
    }

    fn written(
        &self,
        layout: &Layout,
        rows: &[Row],
        head: usize,
        between: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        layout.head(out)?;
        for row in &rows[..head] {
            layout.row(row, out)?;
        }
        if between > 0 {
            let count = tidemill_base::coverage::format_grouped_digits(between);
            let s = if between == 1 { "" } else { "s" };
            let where_to = if rows.len() > head { " between" } else { "" };
            layout.remark(&format!("… {count} row{s}{where_to}; --rows all shows them"), out)?;
        }
        for row in &rows[head..] {
            layout.row(row, out)?;
        }
        if self.rows == 0 {
            layout.remark("(no rows)", out)?;
        }
        layout.foot(&self.columns, out)
    }

    /// Writes one row, a line for each column.
    fn turned(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        let width = self.look.width;
        let widest = self.columns.iter().map(|column| column.name.width()).max().unwrap_or(0);
        // Values have half of the screen at least.
        let of_names = widest.min((width / 2).saturating_sub(GAP)).max(1);
        let of_values = width.saturating_sub(of_names + GAP).max(1);
        for (column, value) in self.columns.iter().zip(row) {
            let name = fitted(&column.name, of_names);
            let padding = of_names.saturating_sub(name.width()) + GAP;
            let value = value.as_deref();
            let lines = match value {
                Some(value) => folded(value, of_values),
                None => vec![null(self.look.colours)],
            };
            for (index, line) in lines.iter().enumerate() {
                let text = match index {
                    0 if line.is_empty() => name.clone(),
                    0 => format!("{name}{}{line}", " ".repeat(padding)),
                    _ => format!("{}{line}", " ".repeat(of_names + GAP)),
                };
                writeln!(out, "{}", text.trim_end_matches(' '))?;
            }
        }
        Ok(())
    }

    /// The rows of a batch as text.
    fn texts(&self, batch: &RecordBatch) -> Result<Vec<Row>> {
        let chars_max = chars_max(self.look.width);
        let batch = &self.estimates.shown(batch)?;
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
                if let Some(text) = span(array, index) {
                    row.push(Some(text));
                    continue;
                }
                buffer.clear();
                values.text(index, &mut buffer);
                let text = String::from_utf8_lossy(&buffer);
                row.push(Some(self.readable(column.kind, &text, chars_max)));
            }
        }
        Ok(rows)
    }

    /// A value as it is shown.
    fn readable(&self, kind: Kind, text: &str, chars_max: usize) -> String {
        let text = match kind {
            Kind::Float => rounded(text),
            Kind::Text if text == "NULL" => "'NULL'".to_owned(),
            _ if text.chars().nth(chars_max).is_some() => {
                escaped(first_chars(text, chars_max)) + "…"
            }
            _ => escaped(text),
        };
        if self.look.thousands && matches!(kind, Kind::Float | Kind::Number) {
            with_thousands(&text)
        } else {
            text
        }
    }
}

/// More of a text is never shown: a turned row has it in several lines.
fn chars_max(width: usize) -> usize {
    width.saturating_mul(LINES_MAX)
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn told(result: io::Result<()>) -> Result<()> {
    result.map_err(|error| Error::io("write", "standard output", error))
}

/// Where a table's columns stand.
struct Layout {
    look: Look,
    /// The columns that are shown.
    places: Vec<Place>,
    /// Whether something of a value or a column is left out.
    is_short: bool,
}

/// Where one column stands.
struct Place {
    /// The column; none for those that are left out.
    column: Option<usize>,
    name: String,
    width: usize,
    /// What its longest fraction takes, `.` included.
    fraction: usize,
    kind: Kind,
    /// Whether texts are cut in their middle, since some begin alike.
    has_ends: bool,
}

impl Layout {
    fn new(columns: &[Column], rows: &[Row], look: Look) -> Layout {
        let measured: Vec<Measured> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| Measured::new(column, rows.iter().map(|row| row[at].as_deref())))
            .collect();
        let is_bound = |at: usize| {
            let of = |row: &Row| row[at].as_deref().is_some_and(is_bound);
            columns[at].kind == Kind::Estimate && rows.iter().any(of)
        };
        let bounds: Vec<bool> = (0..columns.len()).map(is_bound).collect();
        let kept = kept(&measured, &bounds, look.width);
        let has_gap = kept.len() < measured.len();
        let gaps = gaps(&kept, measured.len());
        let room = look.width.saturating_sub(GAP * (kept.len() + gaps));
        // The gaps between are one less than the columns.
        let room = (room + GAP).saturating_sub(gaps);
        let widths = widths(&kept.iter().map(|at| &measured[*at]).collect::<Vec<_>>(), room);
        let is_cut = |(at, width): (&usize, &usize)| *width < measured[*at].cells;
        let is_short = has_gap || kept.iter().zip(&widths).any(is_cut);
        let mut places = Vec::with_capacity(kept.len() + 1);
        for (index, (at, width)) in kept.iter().zip(&widths).enumerate() {
            let previous = if index == 0 { None } else { Some(kept[index - 1]) };
            if previous.map_or(*at > 0, |previous| *at > previous + 1) {
                places.push(Place::of_others());
            }
            let column = &columns[*at];
            places.push(Place {
                column: Some(*at),
                name: column.name.clone(),
                width: *width,
                fraction: measured[*at].fraction,
                kind: column.kind,
                has_ends: *width < measured[*at].cells
                    && look_alike(rows.iter().filter_map(|row| row[*at].as_deref()), *width),
            });
        }
        if has_gap && kept.last().is_some_and(|last| last + 1 < columns.len()) {
            places.push(Place::of_others());
        }
        Layout { look, places, is_short }
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.look.header {
            return Ok(());
        }
        let names = self.places.iter().map(|place| place.text(&place.name));
        self.line(names, out)?;
        let rules: Vec<_> = self.places.iter().map(|place| "-".repeat(place.width)).collect();
        writeln!(out, "{}", rules.join("  "))
    }

    fn row(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        let texts = self.places.iter().map(|place| match place.column {
            None => place.text("…"),
            Some(at) => match &row[at] {
                Some(value) => place.value(value, self.look.width),
                None => place.null(),
            },
        });
        self.line(texts, out)
    }

    /// Writes a line without blanks at its end.
    fn line(&self, texts: impl Iterator<Item = Text>, out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        let mut blanks = 0;
        for text in texts {
            blanks += text.before;
            if !text.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', blanks));
                match text.is_null && self.look.colours {
                    true => line.push_str(&dimmed(&text.text)),
                    false => line.push_str(&text.text),
                }
                blanks = 0;
            }
            blanks += text.after + GAP;
        }
        // A text may end with blanks of its own.
        writeln!(out, "{}", line.trim_end_matches(' '))
    }

    /// A line about the table.
    fn remark(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let text = fitted(text, self.look.width);
        match self.look.colours {
            true => writeln!(out, "{}", dimmed(&text)),
            false => writeln!(out, "{text}"),
        }
    }

    /// Says which columns are left out.
    fn foot(&self, columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
        let is_shown = |at: usize| self.places.iter().any(|place| place.column == Some(at));
        let absent = (0..columns.len()).filter(|at| !is_shown(*at));
        let names: Vec<&str> = absent.map(|at| columns[at].whole.as_str()).collect();
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
        self.remark(&text, out)
    }
}

/// A text in its place.
struct Text {
    text: String,
    before: usize,
    after: usize,
    is_null: bool,
}

impl Place {
    fn of_others() -> Place {
        let (name, kind) = ("…".to_owned(), Kind::Text);
        Place { column: None, name, width: 1, fraction: 0, kind, has_ends: false }
    }

    /// A text at the side where the column's values are.
    fn text(&self, text: &str) -> Text {
        self.at_side(fitted(text, self.width))
    }

    fn at_side(&self, text: String) -> Text {
        let padding = self.width.saturating_sub(text.width());
        let (before, after) = if self.kind.is_right() { (padding, 0) } else { (0, padding) };
        Text { text, before, after, is_null: false }
    }

    /// What stands for no value, which is never cut: one may come after the widths were decided.
    fn null(&self) -> Text {
        let text = "NULL".to_owned();
        let padding = self.width.saturating_sub(text.len());
        let (before, after) = if self.kind.is_right() { (padding, 0) } else { (0, padding) };
        Text { text, before, after, is_null: true }
    }

    /// A value where its column has it.
    fn value(&self, value: &str, screen: usize) -> Text {
        if self.kind.is_whole() && value.width() > self.width {
            // It came after the widths were decided, or no screen is wide enough.
            let text = fitted(value, screen);
            return Text { text, before: 0, after: 0, is_null: false };
        }
        // What has no point, such as `1e300`, stands at the right.
        if self.kind != Kind::Float || fraction(value) == 0 {
            return match self.has_ends {
                true => self.at_side(with_ends(value, self.width)),
                false => self.text(value),
            };
        }
        let after = self.fraction.saturating_sub(fraction(value));
        let before = self.width.saturating_sub(value.width() + after);
        // A longer fraction than those before it begins further left.
        let after = self.width.saturating_sub(value.width() + before);
        Text { text: value.to_owned(), before, after, is_null: false }
    }
}

/// How wide a column would be, and may be.
struct Measured {
    /// Of the values.
    cells: usize,
    natural: usize,
    floor: usize,
    fraction: usize,
}

impl Measured {
    fn new<'a>(column: &Column, values: impl Iterator<Item = Option<&'a str>>) -> Measured {
        let (mut whole, mut fractions, mut others) = (0, 0, 0);
        for value in values {
            match value {
                None => others = others.max("NULL".len()),
                Some(value) if fraction(value) > 0 && column.kind == Kind::Float => {
                    let behind = fraction(value);
                    whole = whole.max(value.width() - behind);
                    fractions = fractions.max(behind);
                }
                Some(value) => others = others.max(value.width()),
            }
        }
        let cells = (whole + fractions).max(others);
        let name = column.name.width();
        let natural = match column.kind {
            Kind::Nested => cells.min(NESTED_MAX),
            _ => cells,
        };
        let natural = natural.max(name);
        let floor = match column.kind.is_whole() {
            true => cells.max(name.min(NAME_FLOOR)),
            false => natural.min(TEXT_FLOOR),
        };
        Measured { cells, natural, floor, fraction: fractions }
    }
}

/// The columns that there is room for: all, or the first and the last; those of bounds are the first to be left out.
fn kept(measured: &[Measured], bounds: &[bool], width: usize) -> Vec<usize> {
    // `…` and its gap stand for those that are left out.
    let fits = |kept: &[usize]| {
        let columns: usize = kept.iter().map(|at| measured[*at].floor + GAP).sum();
        columns + gaps(kept, measured.len()) * (1 + GAP) <= width + GAP
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
        // One at least, however narrow the screen.
        if first > 0 && !fits(&ends(more, less)) {
            return ends(first, last);
        }
        (first, last) = (more, less);
        takes_first = !takes_first;
    }
    // Of bounds as many as there is room for.
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

/// How many runs of columns are left out.
fn gaps(kept: &[usize], count: usize) -> usize {
    let between = kept.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    let before = kept.first().is_some_and(|first| *first > 0);
    let behind = kept.last().is_some_and(|last| last + 1 < count);
    between + usize::from(before) + usize::from(behind)
}

/// Widths that together have room: none is less than its floor, and what is left goes to the narrowest first.
fn widths(measured: &[&Measured], room: usize) -> Vec<usize> {
    let total = |level: usize| -> usize {
        measured.iter().map(|column| column.natural.min(column.floor.max(level))).sum()
    };
    let widest = measured.iter().map(|column| column.natural).max().unwrap_or(0);
    // The highest level that fits: widths grow with it.
    let (mut low, mut high) = (0, widest);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= room { low = middle } else { high = middle - 1 }
    }
    let mut widths: Vec<usize> =
        measured.iter().map(|column| column.natural.min(column.floor.max(low))).collect();
    let mut left = room.saturating_sub(widths.iter().sum());
    for (width, column) in widths.iter_mut().zip(measured) {
        if left > 0 && *width < column.natural {
            *width += 1;
            left -= 1;
        }
    }
    // A screen that is too narrow for one.
    if let [width] = widths.as_mut_slice() {
        *width = (*width).min(room.max(1));
    }
    widths
}

/// What a float's text has from its point on; nothing of one with an exponent, or of none that is a number.
fn fraction(text: &str) -> usize {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b','));
    match text.find('.') {
        Some(at) if is_plain => text.len() - at,
        _ => 0,
    }
}

/// The text, cut to a width with `…`.
fn fitted(text: &str, width: usize) -> String {
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

/// Whether texts that differ are the same when they are cut to a width.
fn look_alike<'a>(texts: impl Iterator<Item = &'a str>, width: usize) -> bool {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let mut cut = texts.filter(|text| text.width() > width);
    cut.any(|text| *seen.entry(fitted(text, width)).or_insert(text) != text)
}

/// The text, cut to a width with `…` in its middle.
fn with_ends(text: &str, width: usize) -> String {
    if text.width() <= width || width < 3 {
        return fitted(text, width);
    }
    let of_end = (width - 1) / 2;
    let first = fitted(text, width - of_end);
    let mut start = text.len();
    for (at, _) in text.grapheme_indices(true).rev() {
        if text[at..].width() > of_end {
            break;
        }
        start = at;
    }
    format!("{first}{}", &text[start..])
}

/// The text in lines of a width; of many the first, the last of which ends with `…`.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while lines.len() + 1 < LINES_MAX && rest.width() > width {
        let mut end = 0;
        for (at, part) in rest.grapheme_indices(true) {
            let next = at + part.len();
            // One at least: a wide character on a narrow screen.
            if rest[..next].width() > width && at > 0 {
                break;
            }
            end = next;
        }
        lines.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(fitted(rest, width));
    }
    lines
}

fn dimmed(text: &str) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

fn null(colours: bool) -> String {
    if colours { dimmed("NULL") } else { "NULL".to_owned() }
}

/// Digits that a float is shown with, if it has more than [`DIGITS_KEPT`].
const DIGITS: usize = 6;
/// A float that has no more digits is shown as it is: somebody wrote it.
const DIGITS_KEPT: usize = 9;
/// Nor is one rounded that has no more digits behind the point.
const DECIMALS_KEPT: usize = 4;

/// A float's text (the shortest that reads back as the same), with as many digits as are read.
fn rounded(text: &str) -> String {
    let Ok(value) = text.parse::<f64>() else { return text.to_owned() };
    if !value.is_finite() {
        return text.to_owned();
    }
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    if let Some((mantissa, _)) = text.split_once('e') {
        return match digits(mantissa) {
            count if count <= DIGITS_KEPT => text.to_owned(),
            _ => {
                let rounded = format!("{value:.*e}", DIGITS - 1);
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
    if behind.len() <= DECIMALS_KEPT || written <= DIGITS_KEPT {
        return text.to_owned();
    }
    let decimals =
        if of_whole > 0 { DIGITS.saturating_sub(of_whole).max(2) } else { zeros + DIGITS };
    let rounded = format!("{value:.decimals$}");
    let short = rounded.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// A number with its digits in groups.
pub(crate) fn with_thousands(text: &str) -> String {
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

/// A duration or an interval as people read it; none for other types.
fn span(array: &ArrayRef, row: usize) -> Option<String> {
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
            push_days(nanos, &mut text);
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

const NANOS_OF_DAY: i128 = 86_400_000_000_000;

/// `5d 14:34:50`.
fn push_days(nanos: i128, out: &mut String) {
    let days = nanos.abs() / NANOS_OF_DAY;
    if days == 0 {
        return push_time(nanos, out);
    }
    let sign = if nanos < 0 { "-" } else { "" };
    out.push_str(&format!("{sign}{days}d "));
    push_time(nanos.abs() % NANOS_OF_DAY, out);
}

/// `14:34:50.250`; hours are as many as there are.
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

    const LOOK: Look =
        Look { width: 80, rows: Some(40), thousands: false, colours: false, header: true };

    /// What a terminal shows of batches.
    fn screen(batches: &[RecordBatch], look: Look) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&batches[0].schema(), look).unwrap();
        for batch in batches {
            screen.add(batch, &mut out).unwrap();
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
    fn check(batch: &RecordBatch, look: Look, expected: &str) {
        let found = screen(std::slice::from_ref(batch), look);
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
            LOOK,
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
        check(&some, Look { header: false, ..LOOK }, " 1  a\n20  b\n");
    }

    #[test]
    fn digits_are_grouped_where_that_is_wanted() {
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
            assert_eq!(with_thousands(text), expected);
        }
        let some = batch(vec![("n", numbers([1, 10_103_280])), ("t", texts(&["1000", "2000"]))]);
        check(
            &some,
            Look { thousands: true, ..LOOK },
            "\x20        n  t
----------  ----
         1  1000
10,103,280  2000
",
        );
    }

    #[test]
    fn a_float_has_the_digits_that_are_read() {
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
            assert_eq!(rounded(text), expected, "{text}");
        }
    }

    #[test]
    fn a_span_of_time_is_read_at_a_glance() {
        for (nanos, expected) in [
            (0, "00:00:00"),
            (52_490_000_000_000, "14:34:50"),
            (5 * NANOS_OF_DAY + 52_490_000_000_000, "5d 14:34:50"),
            (-NANOS_OF_DAY - 1_500_000_000, "-1d 00:00:01.500"),
            (-1_000, "-00:00:00.000001"),
            (1, "00:00:00.000000001"),
        ] {
            let mut text = String::new();
            push_days(nanos, &mut text);
            assert_eq!(text, expected);
        }
        let spans: ArrayRef = Arc::new(DurationSecondArray::from(vec![Some(484_490), None]));
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            IntervalMonthDayNano::new(14, 3, 3_600_000_000_000),
            IntervalMonthDayNano::new(0, 0, 0),
        ]));
        check(
            &batch(vec![("up", spans), ("every", intervals)]),
            LOOK,
            "\
up           every
-----------  -------------------
5d 14:34:50  1y 2mon 3d 01:00:00
NULL         00:00:00
",
        );
    }

    #[test]
    fn many_rows_are_shown_by_their_ends() {
        let all: Vec<RecordBatch> =
            (0..10).map(|at| batch(vec![("n", numbers(at * 7..at * 7 + 7))])).collect();
        let look = Look { rows: Some(5), ..LOOK };
        let expected = "\x20n
--
 0
 1
 2
… 65 rows between; --rows all shows them
68
69
";
        assert_eq!(screen(&all, look), expected);
        let one = Look { rows: Some(1), ..LOOK };
        let expected = "n\n-\n0\n… 6 rows; --rows all shows them\n";
        assert_eq!(screen(&all[..1], one), expected);
        let whole = screen(&all, Look { rows: None, ..LOOK });
        assert_eq!(whole, screen(&all, Look { rows: Some(70), ..LOOK }));
        assert_eq!(whole.lines().count(), 72);
    }

    #[test]
    fn no_rows_are_said_to_be_none() {
        check(&batch(vec![("a", texts(&[])), ("n", numbers([]))]), LOOK, "a  n\n-  -\n(no rows)\n");
    }

    #[test]
    fn all_rows_are_written_as_they_come() {
        let some = batch(vec![("n", numbers(0..700)), ("t", texts(&vec!["abc"; 700]))]);
        let wider = batch(vec![("n", numbers([123_456])), ("t", texts(&["abcdef"]))]);
        let mut out = Vec::new();
        let mut screen = Screen::new(&some.schema(), Look { rows: None, ..LOOK }).unwrap();
        screen.add(&some, &mut out).unwrap();
        assert!(out.is_empty());
        screen.add(&some, &mut out).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1402);
        screen.add(&wider, &mut out).unwrap();
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
            Look { width: 30, ..LOOK },
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
            screen(
                &[batch(vec![("url", texts(&values)), ("n", counts)])],
                Look { width: 24, ..LOOK },
            )
        };
        assert_eq!(
            shown(&[url("1"), url("22"), "/a".into()]),
            "url                    n\n---------------------  -\nhttps://sh…ue/items/1  0\n\
             https://sh…e/items/22  1\n/a                     2\n"
        );
        // What is the same may look so.
        assert!(shown(&[url("1"), url("1")]).contains("https://shop.example…  0"));
    }

    #[test]
    fn columns_in_the_middle_are_left_out() {
        let columns = ["a", "b", "c", "d", "e", "f"];
        let some = batch(columns.map(|name| (name, texts(&["twelve chars", "x"]))).to_vec());
        check(
            &some,
            Look { width: 50, ..LOOK },
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
            let found = screen(std::slice::from_ref(&estimates), Look { width, ..LOOK });
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
            Look { width: 30, ..LOOK },
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
            LOOK,
            "\
name  nothing  message                               tags
----  -------  ------------------------------------  -------
Ann   NULL     0123456789abcdefghijklmnopqrstuvwxyz  [0,1,2]
",
        );
    }

    #[test]
    fn a_text_is_cut_between_what_is_seen_as_one() {
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
            assert_eq!(fitted(text, width), expected, "{text} {width}");
        }
    }

    #[test]
    fn a_null_is_dimmed_where_colours_are_shown() {
        let some = batch(vec![("n", Arc::new(Int64Array::from(vec![None, Some(1)])) as ArrayRef)]);
        check(&some, Look { colours: true, ..LOOK }, "   n\n----\n\x1b[2mNULL\x1b[0m\n   1\n");
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
            let found = screen(&[some], Look { width, rows: shown, ..LOOK });
            for line in found.lines() {
                prop_assert!(line.width() <= width, "{}: {line:?}", line.width());
                prop_assert!(!line.ends_with(' '), "{line:?}");
            }
            let is_turned = count == 1 && !found.lines().nth(1).is_some_and(|line| line.starts_with('-'));
            if !is_turned {
                // Name, rule, rows or what stands for them, and what is left out.
                let rows = shown.unwrap_or(count).min(count);
                let at_least = 2 + rows.max(1) + usize::from(rows > 0 && rows < count);
                let lines = found.lines().count();
                prop_assert!(lines == at_least || lines == at_least + 1, "{found}");
            }
        }

        #[test]
        fn a_folded_text_loses_nothing_but_its_end(text in "\\PC{0,60}", width in 2_usize..40) {
            let lines = folded(&text, width);
            prop_assert!(!lines.is_empty() && lines.len() <= LINES_MAX);
            let joined = lines.concat();
            match joined.strip_suffix('…') {
                Some(cut) if joined != text => prop_assert!(text.starts_with(cut)),
                _ => prop_assert_eq!(joined, text),
            }
        }
    }
}
