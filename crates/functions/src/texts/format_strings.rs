//! Values formatted into a text: `format('{:>10} {:,}', x, n)` as in Python and DuckDB's fmt, and
//! `printf('%-10s %05d', x, n)` as in C.
//!
//! A format of `format` without braces whose percent signs refer to values is read as PostgreSQL's, which
//! also has `%I` and `%L`: nobody writes `format('%s has %s', a, b)` to get that very text.
//!
//! All styles are parsed into the same segments. A constant format is checked at planning time, including its
//! references to missing values and to values of another type. A specification is
//! `[[fill]align][sign][#][0][width][grouping][.precision][type]`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    StringViewArray, UInt64Array,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int64Type, UInt64Type};
use datafusion_common::{DataFusionError, Result as PlanResult};
use datafusion_expr::ScalarUDF;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use super::TEXT_SECTION;
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, PlannedCall, cast_to_views, excerpt_for_message,
    format_as_texts, usage_error,
};

/// Maximum width and precision of a specification, which bounds the length of a result.
const FORMAT_WIDTH_MAX: usize = 1000;

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["format(format, x, …)"],
            "Values written into the braces of a text: {}, {0}, {:>10}, {:,}, {:.2f}, {:05d}, {:x}; or, where there \
             are none, in the places of %s, %1$s, %-10s, %I and %L, as PostgreSQL has them.",
        )
        .with_arguments(&[ArgumentKind::Text], 1)
        .with_variadic_argument(ArgumentKind::Any)
        .with_return_type_closure(|asked| check_constant_format(asked, FormatStyle::Braces))
        .into_udf(|call| format_rows(call, FormatStyle::Braces)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["printf(format, x, …)"],
            "Values written into a text in the places of %s, %d, %.2f, %05d, %x, %b and their like.",
        )
        .with_aliases(&["format_string"])
        .with_arguments(&[ArgumentKind::Text], 1)
        .with_variadic_argument(ArgumentKind::Any)
        .with_return_type_closure(|asked| check_constant_format(asked, FormatStyle::Printf))
        .into_udf(|call| format_rows(call, FormatStyle::Printf)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["format_number(n, places)"],
            "A number with commas between thousands, to so many places behind the point.",
        )
        .with_arguments(&[ArgumentKind::Any, ArgumentKind::Integer], 2)
        .with_return_type_closure(|asked| {
            let shape = FormatValueKind::from_type(asked.argument_type(0));
            match shape {
                FormatValueKind::Integer | FormatValueKind::Float | FormatValueKind::Decimal => Ok(DataType::Utf8View),
                _ => Err(usage_error(
                    format!(
                        "`format_number` takes a number, and this is a {}",
                        sql_type_name(asked.argument_type(0))
                    ),
                    "CAST(x AS DOUBLE) makes one",
                )),
            }
        })
        .into_udf(|call| {
            let (values, places) = (FormatOperand::from_array(&call.argument_column(0)?)?, call.integer_operand(1)?);
            call.build_texts(|row, made| {
                let (Some(value), Some(places)) = (values.get(row), places.get(row)) else {
                    return Ok(false);
                };
                let precision = usize::try_from(places).ok().filter(|places| *places <= FORMAT_WIDTH_MAX);
                let Some(precision) = precision else {
                    return Err(usage_error(
                        format!("`format_number` takes 0 to 1,000 places, and {places} is none of them"),
                        "round(n, -3) rounds to thousands",
                    ));
                };
                let place = FormatSpec {
                    group_separator: Some(','),
                    precision: Some(precision),
                    type_letter: Some('f'),
                    ..FormatSpec::default()
                };
                write_value(&place, &value, made);
                Ok(true)
            })
        }),
    ]
}

/// The style of a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormatStyle {
    Braces,
    Printf,
    /// PostgreSQL's percent signs, which also write names and literals.
    Postgres,
}

/// The position of a value within its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alignment {
    Left,
    Right,
    Center,
    /// The padding stands between the sign and the digits.
    AfterSign,
}

/// The specification of how a value is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct FormatSpec {
    fill: Option<char>,
    align: Option<Alignment>,
    /// `+` or a blank, written before a number that is not negative.
    sign: Option<char>,
    is_alternate: bool,
    is_zero_filled: bool,
    width: usize,
    group_separator: Option<char>,
    precision: Option<usize>,
    type_letter: Option<char>,
    /// True for formats of `printf`: the precision of an integer is its minimum number of digits, and other
    /// bases show the bits of negative numbers.
    is_c_style: bool,
}

/// A segment of a parsed format.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FormatSegment {
    Text(String),
    Value(usize, FormatSpec),
}

/// A syntax error in a format; the offset counts the characters before it.
#[derive(Debug, PartialEq, Eq)]
struct FormatSyntaxError {
    offset: usize,
    message: String,
}

/// A cursor over a format.
struct FormatCursor<'a> {
    format_text: &'a str,
    position: usize,
}

impl FormatCursor<'_> {
    fn peek(&self) -> Option<char> {
        self.format_text.get(self.position..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.position += letter.len_utf8();
        Some(letter)
    }

    fn consume(&mut self, letter: char) -> bool {
        let is_there = self.peek() == Some(letter);
        if is_there {
            self.next();
        }
        is_there
    }

    fn parse_number(&mut self) -> Result<Option<usize>, FormatSyntaxError> {
        let start = self.position;
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.next();
        }
        let digits = self.format_text.get(start..self.position).unwrap_or_default();
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(number) if number <= FORMAT_WIDTH_MAX => Ok(Some(number)),
            _ => Err(FormatSyntaxError {
                offset: self.chars_before(start),
                message: format!("{digits} is more than 1,000"),
            }),
        }
    }

    fn chars_before(&self, at: usize) -> usize {
        self.format_text.get(..at).unwrap_or_default().chars().count()
    }

    fn syntax_error(&self, what: impl Into<String>) -> FormatSyntaxError {
        FormatSyntaxError { offset: self.chars_before(self.position), message: what.into() }
    }
}

impl FormatStyle {
    /// Returns the style in which a format of this style is actually read: one without braces may be
    /// PostgreSQL's.
    fn resolve_for_format(self, format: &str) -> FormatStyle {
        let is_other = self == FormatStyle::Braces
            && !format.contains(['{', '}'])
            && parse_percents(format, true).is_ok_and(|pieces| {
                pieces.iter().any(|piece| matches!(piece, FormatSegment::Value(..)))
            });
        if is_other { FormatStyle::Postgres } else { self }
    }
}

fn parse_format(format: &str, style: FormatStyle) -> Result<Vec<FormatSegment>, FormatSyntaxError> {
    match style {
        FormatStyle::Braces => parse_braces(format),
        FormatStyle::Printf => parse_percents(format, false),
        FormatStyle::Postgres => parse_percents(format, true),
    }
}

/// Moves the collected text to a segment.
fn flush_text(text: &mut String, pieces: &mut Vec<FormatSegment>) {
    if !text.is_empty() {
        pieces.push(FormatSegment::Text(std::mem::take(text)));
    }
}

fn parse_braces(format: &str) -> Result<Vec<FormatSegment>, FormatSyntaxError> {
    let mut letters = FormatCursor { format_text: format, position: 0 };
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let (mut counted, mut numbered) = (0, false);
    while let Some(letter) = letters.next() {
        match letter {
            '{' if letters.consume('{') => text.push('{'),
            '}' if letters.consume('}') => text.push('}'),
            '}' => {
                letters.position -= 1;
                return Err(letters.syntax_error("a `}` that no `{` opens; `}}` writes one"));
            }
            '{' => {
                flush_text(&mut text, &mut pieces);
                let index = match letters.parse_number()? {
                    Some(index) => {
                        numbered = true;
                        index
                    }
                    None => {
                        counted += 1;
                        counted - 1
                    }
                };
                if numbered && counted > 0 {
                    return Err(letters
                        .syntax_error("values are counted, {}, or numbered, {0}, and not both"));
                }
                let place = match letters.consume(':') {
                    true => parse_brace_spec(&mut letters)?,
                    false => FormatSpec::default(),
                };
                match letters.peek() {
                    Some('}') => {
                        letters.next();
                    }
                    None => {
                        return Err(
                            letters.syntax_error("a `{` that no `}` closes; `{{` writes one")
                        );
                    }
                    Some('{') => {
                        return Err(letters
                            .syntax_error("a width or a precision is a number, and no value"));
                    }
                    Some(other) => {
                        return Err(
                            letters.syntax_error(format!("`{other}` is not known in braces"))
                        );
                    }
                }
                pieces.push(FormatSegment::Value(index, place));
            }
            other => text.push(other),
        }
    }
    flush_text(&mut text, &mut pieces);
    Ok(pieces)
}

fn parse_alignment(letter: char) -> Option<Alignment> {
    match letter {
        '<' => Some(Alignment::Left),
        '>' => Some(Alignment::Right),
        '^' => Some(Alignment::Center),
        '=' => Some(Alignment::AfterSign),
        _ => None,
    }
}

fn parse_brace_spec(letters: &mut FormatCursor<'_>) -> Result<FormatSpec, FormatSyntaxError> {
    let mut place = FormatSpec::default();
    let mut ahead = letters.format_text.get(letters.position..).unwrap_or_default().chars();
    match (ahead.next(), ahead.next().and_then(parse_alignment)) {
        (Some(fill), Some(align)) if fill != '{' && fill != '}' => {
            (place.fill, place.align) = (Some(fill), Some(align));
            letters.next();
            letters.next();
        }
        (Some(first), _) => {
            if let Some(align) = parse_alignment(first) {
                place.align = Some(align);
                letters.next();
            }
        }
        (None, _) => {}
    }
    if let Some(sign @ ('+' | '-' | ' ')) = letters.peek() {
        letters.next();
        place.sign = Some(sign).filter(|sign| *sign != '-');
    }
    place.is_alternate = letters.consume('#');
    place.is_zero_filled = letters.consume('0');
    place.width = letters.parse_number()?.unwrap_or(0);
    match letters.peek() {
        Some(grouping @ (',' | '_' | '\'')) => {
            letters.next();
            place.group_separator = Some(grouping);
        }
        // DuckDB's `t`: the next letter is the separator.
        Some('t') => {
            letters.next();
            place.group_separator = letters.next();
        }
        _ => {}
    }
    if letters.consume('.') {
        place.precision = match letters.parse_number()? {
            Some(precision) => Some(precision),
            None => return Err(letters.syntax_error("a precision is a number: {:.2f}")),
        };
    }
    if let Some(kind) =
        letters.peek().filter(|letter| letter.is_ascii_alphabetic() || *letter == '%')
    {
        if !"bBcdeEfFgGLosxX%".contains(kind) {
            return Err(letters.syntax_error(format!(
                "there is no type `{kind}`; there are s d f e g % x X o b c"
            )));
        }
        letters.next();
        // `L` has no effect, because numbers do not depend on the locale.
        place.type_letter = Some(kind).filter(|kind| *kind != 'L');
    }
    Ok(place)
}

fn parse_percents(format: &str, has_names: bool) -> Result<Vec<FormatSegment>, FormatSyntaxError> {
    let mut letters = FormatCursor { format_text: format, position: 0 };
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let (mut counted, mut numbered) = (0, false);
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        if letters.consume('%') {
            text.push('%');
            continue;
        }
        flush_text(&mut text, &mut pieces);
        let mut place = FormatSpec { is_c_style: !has_names, ..FormatSpec::default() };
        let start = letters.position;
        let mut index = None;
        if letters.peek().is_some_and(|first| first.is_ascii_digit() && first != '0') {
            let number = letters.parse_number()?;
            match letters.consume('$') {
                true => index = number.and_then(|number| number.checked_sub(1)),
                false => letters.position = start,
            }
        }
        while let Some(flag @ ('-' | '+' | ' ' | '#' | '0' | ',' | '\'' | '_')) = letters.peek() {
            // Thus `100% of` is literal text.
            if has_names && flag != '-' {
                break;
            }
            letters.next();
            match flag {
                '-' => place.align = Some(Alignment::Left),
                '#' => place.is_alternate = true,
                '0' => place.is_zero_filled = true,
                ',' | '\'' | '_' => place.group_separator = Some(flag),
                '+' => place.sign = Some('+'),
                _ => place.sign = place.sign.or(Some(' ')),
            }
        }
        place.align = place.align.or((!place.is_zero_filled).then_some(Alignment::Right));
        place.width = letters.parse_number()?.unwrap_or(0);
        let has_point = letters.consume('.');
        if has_point {
            place.precision = letters.parse_number()?;
        }
        while letters.peek().is_some_and(|letter| "hlqjzt".contains(letter)) {
            letters.next();
        }
        place.type_letter = match letters.peek() {
            Some(kind @ ('s' | 'I' | 'L')) if has_names => Some(kind),
            Some(kind) if has_names => {
                return Err(
                    letters.syntax_error(format!("there is no %{kind}; there are %s %I %L"))
                );
            }
            Some('i' | 'u') => Some('d'),
            Some(kind) if "sdfFeEgGxXobBc".contains(kind) => Some(kind),
            Some('*') => {
                return Err(
                    letters.syntax_error("a width or a precision is a number, and no value")
                );
            }
            Some(other) => {
                return Err(letters.syntax_error(format!(
                    "there is no %{other}; there are %s %d %f %e %g %x %X %o %b %c, and %% writes a percent sign"
                )));
            }
            None => return Err(letters.syntax_error("a percent sign at the end; %% writes one")),
        };
        letters.next();
        // DuckDB's `%.d` puts points between thousands; other points without a number mean a precision of 0.
        if has_point && place.precision.is_none() {
            match place.type_letter {
                Some('d') if !has_names => place.group_separator = Some('.'),
                _ => place.precision = Some(0),
            }
        }
        let index = match index {
            Some(index) => {
                numbered = true;
                index
            }
            None => {
                counted += 1;
                counted - 1
            }
        };
        if numbered && counted > 0 {
            return Err(
                letters.syntax_error("values are counted, %s, or numbered, %1$s, and not both")
            );
        }
        pieces.push(FormatSegment::Value(index, place));
    }
    flush_text(&mut text, &mut pieces);
    Ok(pieces)
}

/// The kind of a value, as far as formatting distinguishes kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormatValueKind {
    Null,
    Integer,
    Float,
    Decimal,
    Boolean,
    /// Text, and all types that are cast to text.
    Other,
}

impl FormatValueKind {
    fn from_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Null => FormatValueKind::Null,
            DataType::Boolean => FormatValueKind::Boolean,
            other if other.is_integer() => FormatValueKind::Integer,
            DataType::Decimal128(_, 0) => FormatValueKind::Integer,
            other if other.is_floating() => FormatValueKind::Float,
            other if other.is_decimal() => FormatValueKind::Decimal,
            _ => FormatValueKind::Other,
        }
    }

    /// Returns the reason why a specification does not apply to values of this kind.
    fn rejection_reason(self, place: &FormatSpec) -> Option<String> {
        let kind = place.type_letter.unwrap_or('s');
        let is_number = matches!(
            self,
            FormatValueKind::Integer | FormatValueKind::Float | FormatValueKind::Decimal
        );
        match (self, kind) {
            (FormatValueKind::Null, _) | (_, 'I' | 'L') => None,
            (FormatValueKind::Boolean | FormatValueKind::Other, 's')
                if place.sign.is_some() || place.group_separator.is_some() =>
            {
                Some("a sign and thousands are a number's".into())
            }
            (FormatValueKind::Integer, 'd' | 'x' | 'X' | 'o' | 'b' | 'B') if place.is_c_style => {
                None
            }
            (FormatValueKind::Integer, 's' | 'd' | 'x' | 'X' | 'o' | 'b' | 'B' | 'c') => place
                .precision
                .map(|_| "a precision is of the types f, e and g, and of text".into()),
            (FormatValueKind::Boolean, 'd' | 'x' | 'X' | 'o' | 'b' | 'B') => None,
            (_, 's') => None,
            (_, 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | '%') if is_number => None,
            (_, 'd' | 'x' | 'X' | 'o' | 'b' | 'B' | 'c') if is_number => {
                Some(format!("`{kind}` is for whole numbers; `.0f` rounds to one"))
            }
            _ => Some(format!("`{kind}` is for numbers")),
        }
    }
}

/// Returns the error for an invalid format.
fn invalid_format_error(
    format: &str,
    wrong: &FormatSyntaxError,
    style: FormatStyle,
) -> DataFusionError {
    let hint = match style {
        FormatStyle::Braces => "it is written as format('{} {:>10} {:,} {:.2f}', a, b, n, m)",
        FormatStyle::Postgres => "it is written as format('%s %10s %I %L', a, b, n, m)",
        FormatStyle::Printf => "it is written as printf('%s %10s %d %.2f', a, b, n, m)",
    };
    let FormatSyntaxError { offset: at, message: what } = wrong;
    usage_error(
        format!(
            "the format `{}` is not understood at character {}: {what}",
            excerpt_for_message(format),
            at + 1
        ),
        hint,
    )
}

/// Checks that all values that a format refers to exist and have suitable types.
fn check_values(
    format: &str,
    pieces: &[FormatSegment],
    types: &[DataType],
    style: FormatStyle,
) -> PlanResult<()> {
    for piece in pieces {
        let FormatSegment::Value(index, place) = piece else { continue };
        let Some(data_type) = types.get(*index) else {
            let s = if types.len() == 1 { "" } else { "s" };
            return Err(usage_error(
                format!(
                    "the format `{}` has a place for a {} value, and there {} {} value{s}",
                    excerpt_for_message(format),
                    ordinal_word(index + 1),
                    if types.len() == 1 { "is" } else { "are" },
                    types.len()
                ),
                match style {
                    FormatStyle::Braces => "`{{` writes a brace, and needs no value",
                    FormatStyle::Printf | FormatStyle::Postgres => {
                        "`%%` writes a percent sign, and needs no value"
                    }
                },
            ));
        };
        if let Some(why) = FormatValueKind::from_type(data_type).rejection_reason(place) {
            return Err(usage_error(
                format!(
                    "the {} value for the format `{}` is a {}: {why}",
                    ordinal_word(index + 1),
                    excerpt_for_message(format),
                    sql_type_name(data_type)
                ),
                match style {
                    FormatStyle::Braces => "{} takes any value",
                    FormatStyle::Printf | FormatStyle::Postgres => "%s takes any value",
                },
            ));
        }
    }
    Ok(())
}

fn ordinal_word(number: usize) -> String {
    match number {
        1 => "first".into(),
        2 => "second".into(),
        3 => "third".into(),
        more => format!("{more}th"),
    }
}

fn check_constant_format(asked: &PlannedCall<'_>, style: FormatStyle) -> PlanResult<DataType> {
    if let Some(format) = asked.constant_text(0) {
        let style = style.resolve_for_format(format);
        let pieces = parse_format(format, style)
            .map_err(|wrong| invalid_format_error(format, &wrong, style))?;
        let types = (1..asked.argument_count()).map(|index| asked.argument_type(index).clone());
        check_values(format, &pieces, &types.collect::<Vec<_>>(), style)?;
    }
    Ok(DataType::Utf8View)
}

/// The values of an argument.
enum FormatOperand {
    Integers(Int64Array),
    Unsigned(UInt64Array),
    /// Decimals with scale 0.
    Decimal128Integers(Decimal128Array),
    Floats(Float64Array),
    Decimals(StringViewArray),
    Booleans(BooleanArray),
    Texts(StringViewArray),
}

/// A value to be formatted.
enum FormatValue<'a> {
    /// An integer, and the number of bits of its type.
    Integer(i128, u32),
    Float(f64),
    Decimal(&'a str),
    Boolean(bool),
    Text(&'a str),
}

impl FormatOperand {
    fn from_array(array: &ArrayRef) -> PlanResult<Self> {
        let as_type = |to: &DataType| cast_with_options(array, to, &STRICT_CAST_OPTIONS);
        Ok(match FormatValueKind::from_type(array.data_type()) {
            FormatValueKind::Integer if *array.data_type() == DataType::UInt64 => {
                FormatOperand::Unsigned(array.as_primitive::<UInt64Type>().clone())
            }
            FormatValueKind::Integer if array.data_type().is_decimal() => {
                FormatOperand::Decimal128Integers(array.as_primitive::<Decimal128Type>().clone())
            }
            FormatValueKind::Integer => FormatOperand::Integers(
                as_type(&DataType::Int64)?.as_primitive::<Int64Type>().clone(),
            ),
            // The DOUBLE nearest to the decimal notation of the FLOAT: 0.1, not 0.10000000149.
            FormatValueKind::Float if *array.data_type() == DataType::Float32 => {
                let floats = array.as_primitive::<Float32Type>();
                let wide = |float: f32| float.to_string().parse().unwrap_or(f64::from(float));
                FormatOperand::Floats(floats.unary::<_, Float64Type>(wide))
            }
            FormatValueKind::Float => FormatOperand::Floats(
                as_type(&DataType::Float64)?.as_primitive::<Float64Type>().clone(),
            ),
            FormatValueKind::Decimal => {
                FormatOperand::Decimals(cast_to_views(&as_type(&DataType::Utf8)?)?)
            }
            FormatValueKind::Boolean => FormatOperand::Booleans(array.as_boolean().clone()),
            FormatValueKind::Null => FormatOperand::Texts(cast_to_views(array)?),
            FormatValueKind::Other => FormatOperand::Texts(format_as_texts(array)?),
        })
    }

    fn get(&self, row: usize) -> Option<FormatValue<'_>> {
        match self {
            FormatOperand::Integers(all) => {
                all.is_valid(row).then(|| FormatValue::Integer(i128::from(all.value(row)), 64))
            }
            FormatOperand::Unsigned(all) => {
                all.is_valid(row).then(|| FormatValue::Integer(i128::from(all.value(row)), 64))
            }
            FormatOperand::Decimal128Integers(all) => {
                all.is_valid(row).then(|| FormatValue::Integer(all.value(row), 128))
            }
            FormatOperand::Floats(all) => {
                all.is_valid(row).then(|| FormatValue::Float(all.value(row)))
            }
            FormatOperand::Decimals(all) => {
                all.is_valid(row).then(|| FormatValue::Decimal(all.value(row)))
            }
            FormatOperand::Booleans(all) => {
                all.is_valid(row).then(|| FormatValue::Boolean(all.value(row)))
            }
            FormatOperand::Texts(all) => {
                all.is_valid(row).then(|| FormatValue::Text(all.value(row)))
            }
        }
    }
}

fn format_rows(call: &CallBatch, style: FormatStyle) -> PlanResult<ArrayRef> {
    let formats = call.text_operand(0)?;
    let columns = (1..call.argument_count()).map(|index| call.argument_column(index));
    let columns: Vec<ArrayRef> = columns.collect::<PlanResult<_>>()?;
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let values: Vec<FormatOperand> =
        columns.iter().map(FormatOperand::from_array).collect::<PlanResult<_>>()?;
    // The parsed format of the row before, which most rows share.
    let mut known: Option<(String, FormatStyle, Arc<[FormatSegment]>)> = None;
    call.build_texts(|row, made| {
        let Some(format) = formats.get(row) else { return Ok(false) };
        let (style, read) = match &known {
            Some((of, style, read)) if of == format => (*style, Arc::clone(read)),
            _ => {
                let style = style.resolve_for_format(format);
                let read = parse_format(format, style)
                    .map_err(|wrong| invalid_format_error(format, &wrong, style))?;
                check_values(format, &read, &types, style)?;
                let read: Arc<[FormatSegment]> = read.into();
                known = Some((format.to_owned(), style, Arc::clone(&read)));
                (style, read)
            }
        };
        if style == FormatStyle::Postgres {
            write_postgres_row(&read, row, &values, made);
            return Ok(true);
        }
        if values.iter().any(|values| values.get(row).is_none()) {
            return Ok(false);
        }
        for piece in read.iter() {
            match piece {
                FormatSegment::Text(text) => made.push_str(text),
                FormatSegment::Value(index, place) => {
                    if let Some(value) = values.get(*index).and_then(|values| values.get(row)) {
                        write_value(place, &value, made);
                    }
                }
            }
        }
        Ok(true)
    })
}

/// Writes a row in PostgreSQL's style: a null is empty, and `NULL` as a literal.
fn write_postgres_row(
    pieces: &[FormatSegment],
    row: usize,
    values: &[FormatOperand],
    made: &mut String,
) {
    for piece in pieces {
        match piece {
            FormatSegment::Text(text) => made.push_str(text),
            FormatSegment::Value(index, place) => {
                let value = values.get(*index).and_then(|values| values.get(row));
                let plain = FormatSpec { type_letter: None, ..place.clone() };
                let mut text = String::new();
                if let Some(value) = &value {
                    let bare = FormatSpec { type_letter: None, ..FormatSpec::default() };
                    write_value(&bare, value, &mut text);
                }
                match (place.type_letter, &value) {
                    (Some('L'), None) => write_text(&plain, "NULL", made),
                    (Some('L'), Some(_)) => {
                        write_text(&plain, &format!("'{}'", text.replace('\'', "''")), made);
                    }
                    (Some('I'), Some(_)) if needs_quotes(&text) => {
                        write_text(&plain, &format!("\"{}\"", text.replace('"', "\"\"")), made);
                    }
                    _ => write_text(&plain, &text, made),
                }
            }
        }
    }
}

/// Returns whether a name needs quotes to be read as an identifier.
fn needs_quotes(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    !name.starts_with(is_letter)
        || !name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// Writes a value according to its specification.
fn write_value(place: &FormatSpec, value: &FormatValue<'_>, made: &mut String) {
    let kind = place.type_letter.unwrap_or('s');
    match *value {
        FormatValue::Text(text) => write_text(place, text, made),
        FormatValue::Boolean(flag) if kind != 's' => {
            write_value(place, &FormatValue::Integer(i128::from(flag), 64), made);
        }
        FormatValue::Boolean(flag) => write_text(place, if flag { "true" } else { "false" }, made),
        FormatValue::Integer(number, bits) => match kind {
            'c' => {
                let letter = u32::try_from(number).ok().and_then(char::from_u32);
                let mut bytes = [0; 4];
                write_text(place, letter.unwrap_or('\u{fffd}').encode_utf8(&mut bytes), made);
            }
            // Exact digits: a DOUBLE would lose those behind the sixteenth.
            'f' | 'F' => {
                let places = "0".repeat(place.precision.unwrap_or(6));
                let rest = if places.is_empty() { places } else { format!(".{places}") };
                let digits = number.unsigned_abs().to_string();
                write_number(place, number < 0, "", &digits, &rest, made);
            }
            'e' | 'E' | 'g' | 'G' | '%' => {
                #[allow(clippy::cast_precision_loss)]
                write_float(place, number as f64, made);
            }
            _ => {
                let is_of_bits = place.is_c_style && matches!(kind, 'x' | 'X' | 'o' | 'b' | 'B');
                let (is_negative, size) = match (is_of_bits && number < 0, bits) {
                    // The bits of a negative number in two's complement.
                    (true, 128) => (false, number.cast_unsigned()),
                    (true, _) => (false, number.cast_unsigned() & u128::from(u64::MAX)),
                    (false, _) => (number < 0, number.unsigned_abs()),
                };
                let (prefix, digits) = match kind {
                    'x' => ("0x", format!("{size:x}")),
                    'X' => ("0X", format!("{size:X}")),
                    'o' => ("0", format!("{size:o}")),
                    'b' => ("0b", format!("{size:b}")),
                    'B' => ("0B", format!("{size:b}")),
                    _ => ("", size.to_string()),
                };
                let prefix = if place.is_alternate { prefix } else { "" };
                let digits = match place.precision {
                    Some(least) => format!("{digits:0>least$}"),
                    None => digits,
                };
                write_number(place, is_negative, prefix, &digits, "", made);
            }
        },
        FormatValue::Float(number) => write_float(place, number, made),
        FormatValue::Decimal(text) => match kind {
            's' if place.precision.is_none() => {
                let (is_negative, size) = match text.strip_prefix('-') {
                    Some(size) => (true, size),
                    None => (false, text),
                };
                let (whole, rest) = split_at_point(size);
                write_number(place, is_negative, "", whole, rest, made);
            }
            _ => write_float(place, text.parse().unwrap_or(f64::NAN), made),
        },
    }
}

/// Splits a number into the digits before the point and the rest.
fn split_at_point(size: &str) -> (&str, &str) {
    let end = size.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(size.len());
    size.split_at(end)
}

fn write_float(place: &FormatSpec, number: f64, made: &mut String) {
    let (is_negative, size) = (number.is_sign_negative() && !number.is_nan(), number.abs());
    let kind = place.type_letter.unwrap_or('s');
    if !size.is_finite() {
        let word = match (size.is_nan(), kind.is_ascii_uppercase()) {
            (true, false) => "nan",
            (true, true) => "NAN",
            (false, false) => "inf",
            (false, true) => "INF",
        };
        let place = FormatSpec { is_zero_filled: false, group_separator: None, ..place.clone() };
        return write_number(&place, is_negative, "", "", word, made);
    }
    let precision = place.precision.unwrap_or(6);
    let mut digits = match kind.to_ascii_lowercase() {
        'f' => format!("{size:.precision$}"),
        '%' => format!("{:.precision$}%", size * 100.0),
        'e' => with_c_exponent(&format!("{size:.precision$e}")),
        'g' => format_general(size, precision, place.is_alternate),
        _ => match place.precision {
            Some(precision) => format_general(size, precision, place.is_alternate),
            None => with_c_exponent(&format!("{size:?}")),
        },
    };
    if kind.is_ascii_uppercase() {
        digits.make_ascii_uppercase();
    }
    let (whole, rest) = split_at_point(&digits);
    write_number(place, is_negative, "", whole, rest, made);
}

/// Rewrites the exponent of a number as C does: `1e5` as `1e+05`.
fn with_c_exponent(number: &str) -> String {
    let Some((digits, exponent)) = number.split_once('e') else { return number.to_owned() };
    let (sign, size) = match exponent.strip_prefix('-') {
        Some(size) => ('-', size),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{size:0>2}")
}

/// Writes `precision` significant digits like C's `%g`: with an exponent if the number is very large or
/// small.
fn format_general(size: f64, precision: usize, keeps_zeros: bool) -> String {
    let precision = precision.max(1);
    let written = format!("{size:.*e}", precision - 1);
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str| match digits.contains('.') && !keeps_zeros {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    let places = i32::try_from(precision).unwrap_or(i32::MAX) - 1 - exponent;
    match usize::try_from(places) {
        Ok(places) if exponent >= -4 => trimmed(&format!("{size:.places$}")),
        _ => with_c_exponent(&format!("{}e{exponent}", trimmed(digits))),
    }
}

/// Writes a text, truncated to its precision and padded to its width.
fn write_text(place: &FormatSpec, text: &str, made: &mut String) {
    let end = place.precision.and_then(|most| text.char_indices().nth(most));
    let text = end.and_then(|(end, _)| text.get(..end)).unwrap_or(text);
    write_padded(place, Alignment::Left, text.chars().count(), made, |made| made.push_str(text));
}

/// Writes a number's sign, prefix, digits and rest, padded to its width.
fn write_number(
    place: &FormatSpec,
    is_negative: bool,
    prefix: &str,
    whole: &str,
    rest: &str,
    made: &mut String,
) {
    let sign = if is_negative { Some('-') } else { place.sign };
    let grouped;
    let whole = match place.group_separator {
        Some(separator) => {
            grouped = group_thousands(whole, separator);
            &grouped
        }
        None => whole,
    };
    let letters = usize::from(sign.is_some()) + prefix.len() + whole.chars().count() + rest.len();
    let has_zeros = place.is_zero_filled && place.align.is_none();
    if has_zeros || place.align == Some(Alignment::AfterSign) {
        made.extend(sign);
        made.push_str(prefix);
        let filler = if has_zeros { '0' } else { place.fill.unwrap_or(' ') };
        made.extend(std::iter::repeat_n(filler, place.width.saturating_sub(letters)));
        made.push_str(whole);
        made.push_str(rest);
        return;
    }
    write_padded(place, Alignment::Right, letters, made, |made| {
        made.extend(sign);
        made.push_str(prefix);
        made.push_str(whole);
        made.push_str(rest);
    });
}

fn group_thousands(digits: &str, separator: char) -> String {
    let mut made = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            made.push(separator);
        }
        made.push(digit);
    }
    made
}

/// Writes the output of `write`, which has `letters` characters, with padding around it.
fn write_padded(
    place: &FormatSpec,
    otherwise: Alignment,
    letters: usize,
    made: &mut String,
    write: impl FnOnce(&mut String),
) {
    let missing = place.width.saturating_sub(letters);
    let before = match place.align.unwrap_or(otherwise) {
        Alignment::Left => 0,
        Alignment::Right | Alignment::AfterSign => missing,
        Alignment::Center => missing / 2,
    };
    let filler = place.fill.unwrap_or(' ');
    made.extend(std::iter::repeat_n(filler, before));
    write(made);
    made.extend(std::iter::repeat_n(filler, missing - before));
}

#[cfg(test)]
mod tests {
    use crate::closure_function::tests::{call_in_all_forms, text_constant};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    fn check(name: &str, rows: &[(&str, &[ScalarValue], &str)]) {
        for (format, values, expected) in rows {
            let mut args = vec![text_constant(format)];
            args.extend(values.iter().cloned());
            assert_eq!(call_in_all_forms(name, &args), *expected, "{name}({format:?}, {values:?})");
        }
    }

    fn n(number: i64) -> ScalarValue {
        ScalarValue::from(number)
    }

    fn f(number: f64) -> ScalarValue {
        ScalarValue::from(number)
    }

    #[test]
    fn brace_formats_match_duckdb() {
        let flag = ScalarValue::from(true);
        check(
            "format",
            &[
                ("{} {}", &[text_constant("a"), n(1)], "a 1"),
                ("{1} {0}", &[text_constant("a"), n(1)], "1 a"),
                ("{0}{0}", &[text_constant("a")], "aa"),
                ("{:,}", &[n(1_234_567)], "1,234,567"),
                ("{:,}", &[f(-1_234_567.5)], "-1,234,567.5"),
                ("{:,}", &[n(999)], "999"),
                ("{:.2f}", &[f(2.71938)], "2.72"),
                ("{:.2f}", &[n(3)], "3.00"),
                (
                    "{:>10}|{:<6}|{:^7}|",
                    &[text_constant("a"), text_constant("b"), text_constant("c")],
                    "         a|b     |   c   |",
                ),
                ("{:*^9}", &[text_constant("mid")], "***mid***"),
                ("{:ä>4}", &[text_constant("ö")], "äääö"),
                ("{:05d}", &[n(42)], "00042"),
                ("{:05d}", &[n(-42)], "-0042"),
                (
                    "{:x} {:X} {:#x} {:o} {:b} {:#b}",
                    &[n(255), n(255), n(255), n(8), n(5), n(5)],
                    "ff FF 0xff 10 101 0b101",
                ),
                ("{:e}", &[f(12345.678)], "1.234568e+04"),
                ("{:g}", &[f(12345.678)], "12345.7"),
                ("{}", &[f(12_345_678.9)], "12345678.9"),
                ("{}", &[f(1e20)], "1e+20"),
                ("{}", &[f(1.0)], "1.0"),
                ("{}", std::slice::from_ref(&flag), "true"),
                ("{}", &[ScalarValue::Date32(Some(19724))], "2024-01-02"),
                ("{:s}", &[text_constant("x")], "x"),
                ("{{}}", &[], "{}"),
                ("{:.2s}|", &[text_constant("abcdef")], "ab|"),
                ("{:+d} {: d}", &[n(5), n(5)], "+5  5"),
                ("{:10}|", &[n(5)], "         5|"),
                ("{:10}|", &[f(1.5)], "       1.5|"),
                ("{:10}|", std::slice::from_ref(&flag), "true      |"),
                ("{:.3}", &[f(2.71938)], "2.72"),
                ("{:,.2f}", &[f(1_234_567.891)], "1,234,567.89"),
                ("{:t,}", &[n(1_234_567)], "1,234,567"),
                ("{:_}", &[n(1_234_567)], "1_234_567"),
                ("{:'}", &[n(1_234_567)], "1'234'567"),
                ("{}", &[ScalarValue::Decimal128(Some(1250), 5, 2)], "12.50"),
                ("{:,}", &[ScalarValue::Decimal128(Some(-123_456_789), 12, 2)], "-1,234,567.89"),
                ("{:.1f}", &[ScalarValue::Decimal128(Some(1256), 5, 2)], "12.6"),
                ("{}", &[ScalarValue::Float32(Some(0.1))], "0.1"),
                ("{}", &[ScalarValue::from(u64::MAX)], "18446744073709551615"),
                ("{:%}", &[f(0.5)], "50.000000%"),
                ("{:.1%}", &[f(0.123)], "12.3%"),
                ("{:c}", &[n(65)], "A"),
                ("{:d} {:L} {:x}", &[flag.clone(), n(1234), n(-1)], "1 1234 -1"),
                ("{:,.1f}", &[n(9_007_199_254_740_993)], "9,007,199,254,740,993.0"),
                ("{:=+6}", &[n(5)], "+    5"),
                ("{}", &[f(f64::NAN)], "nan"),
                ("{:08.1f}", &[f(f64::NEG_INFINITY)], "    -inf"),
                ("{}", &[ScalarValue::Int64(None)], "NULL"),
                (
                    "{} {}",
                    &[text_constant("a")],
                    "the format `{} {}` has a place for a second value, and there is 1 value\nhint: `{{` writes a brace, and needs no value",
                ),
                (
                    "{:d}",
                    &[f(4.5)],
                    "the first value for the format `{:d}` is a DOUBLE: `d` is for whole numbers; `.0f` rounds to one\nhint: {} takes any value",
                ),
                (
                    "{:.2f}",
                    &[text_constant("a")],
                    "the first value for the format `{:.2f}` is a TEXT: `f` is for numbers\nhint: {} takes any value",
                ),
                (
                    "{:.2}",
                    &[n(4)],
                    "the first value for the format `{:.2}` is a BIGINT: a precision is of the types f, e and g, and of text\nhint: {} takes any value",
                ),
                (
                    "a}",
                    &[n(1)],
                    "the format `a}` is not understood at character 2: a `}` that no `{` opens; `}}` writes one\nhint: it is written as format('{} {:>10} {:,} {:.2f}', a, b, n, m)",
                ),
                (
                    "{0} {}",
                    &[n(1), n(2)],
                    "the format `{0} {}` is not understood at character 6: values are counted, {}, or numbered, {0}, and not both\nhint: it is written as format('{} {:>10} {:,} {:.2f}', a, b, n, m)",
                ),
                (
                    "{a}",
                    &[n(1)],
                    "the format `{a}` is not understood at character 2: `a` is not known in braces\nhint: it is written as format('{} {:>10} {:,} {:.2f}', a, b, n, m)",
                ),
                (
                    "{:5000}",
                    &[n(1)],
                    "the format `{:5000}` is not understood at character 3: 5000 is more than 1,000\nhint: it is written as format('{} {:>10} {:,} {:.2f}', a, b, n, m)",
                ),
                (
                    "{",
                    &[n(1)],
                    "the format `{` is not understood at character 2: a `{` that no `}` closes; `{{` writes one\nhint: it is written as format('{} {:>10} {:,} {:.2f}', a, b, n, m)",
                ),
            ],
        );
    }

    #[test]
    fn percent_formats_match_c() {
        check(
            "printf",
            &[
                (
                    "%d %s %.2f %05d %x",
                    &[n(1), text_constant("a"), f(2.71938), n(42), n(255)],
                    "1 a 2.72 00042 ff",
                ),
                ("%s", &[n(1)], "1"),
                ("%s", &[f(0.5)], "0.5"),
                ("%f", &[n(1)], "1.000000"),
                ("%5s|%-5s|", &[text_constant("a"), text_constant("b")], "    a|b    |"),
                ("%5s|", &[ScalarValue::from(true)], " true|"),
                ("100%%", &[], "100%"),
                (
                    "%e %g %G %E",
                    &[f(12345.678), f(12345.678), f(0.00001), f(1.5)],
                    "1.234568e+04 12345.7 1E-05 1.500000E+00",
                ),
                ("%,d", &[n(1_234_567)], "1,234,567"),
                ("%2$s %1$s", &[text_constant("a"), text_constant("b")], "b a"),
                ("%+d % d %#x %o %X", &[n(5), n(5), n(255), n(8), n(255)], "+5  5 0xff 10 FF"),
                ("%.3s", &[text_constant("abcdef")], "abc"),
                ("%c", &[n(65)], "A"),
                ("%i %u", &[n(65), n(66)], "65 66"),
                (
                    "%.d %'d %_d %.0d",
                    &[n(-123_456), n(1234), n(1234), n(1234)],
                    "-123.456 1'234 1_234 1234",
                ),
                ("%10.d|", &[n(12345)], "    12.345|"),
                (
                    "%.3d|%6.3d|%-6.3x|%06.3d",
                    &[n(-5), n(5), n(5), n(5)],
                    "-005|   005|005   |000005",
                ),
                (
                    "%d %+d %x",
                    &[ScalarValue::from(true), ScalarValue::from(true), ScalarValue::from(false)],
                    "1 +1 0",
                ),
                ("%b %#b %B", &[n(5), n(5), n(5)], "101 0b101 101"),
                (
                    "%x %X %o",
                    &[n(-1), n(-255), n(-8)],
                    "ffffffffffffffff FFFFFFFFFFFFFF01 1777777777777777777770",
                ),
                (
                    "%x",
                    &[ScalarValue::Decimal128(Some(-1), 38, 0)],
                    "ffffffffffffffffffffffffffffffff",
                ),
                (
                    "%d %,d",
                    &[
                        ScalarValue::Decimal128(Some(i128::from(i64::MAX) * 100), 38, 0),
                        ScalarValue::Decimal128(Some(-123_456), 10, 0),
                    ],
                    "922337203685477580700 -123,456",
                ),
                (
                    "%,.0f / %+,.1f / %f",
                    &[n(9_007_199_254_740_993), n(-5), ScalarValue::from(u64::MAX)],
                    "9,007,199,254,740,993 / -5.0 / 18446744073709551615.000000",
                ),
                ("%ld %lld", &[n(5), n(6)], "5 6"),
                ("%-6d|%06.2f|", &[n(5), f(-1.5)], "5     |-01.50|"),
                ("%g %g %g", &[f(0.0), f(100_000.0), f(1_000_000.0)], "0 100000 1e+06"),
                ("%s", &[ScalarValue::Utf8(None)], "NULL"),
                (
                    "%d",
                    &[f(1.5)],
                    "the first value for the format `%d` is a DOUBLE: `d` is for whole numbers; `.0f` rounds to one\nhint: %s takes any value",
                ),
                (
                    "%d%%%",
                    &[n(1)],
                    "the format `%d%%%` is not understood at character 6: a percent sign at the end; %% writes one\nhint: it is written as printf('%s %10s %d %.2f', a, b, n, m)",
                ),
                (
                    "%y",
                    &[n(1)],
                    "the format `%y` is not understood at character 2: there is no %y; there are %s %d %f %e %g %x %X %o %b %c, and %% writes a percent sign\nhint: it is written as printf('%s %10s %d %.2f', a, b, n, m)",
                ),
                (
                    "%*d",
                    &[n(5), n(3)],
                    "the format `%*d` is not understood at character 2: a width or a precision is a number, and no value\nhint: it is written as printf('%s %10s %d %.2f', a, b, n, m)",
                ),
            ],
        );
    }

    #[test]
    fn format_without_braces_follows_postgresql() {
        check(
            "format",
            &[
                ("%s has %s", &[text_constant("a"), n(1)], "a has 1"),
                ("%2$s %1$s", &[text_constant("a"), text_constant("b")], "b a"),
                ("%-5s|%5s|", &[text_constant("ab"), text_constant("c")], "ab   |    c|"),
                ("%L %L", &[text_constant("it's"), ScalarValue::Utf8(None)], "'it''s' NULL"),
                (
                    "%I %I %I",
                    &[text_constant("a b"), text_constant("a_1"), text_constant("A\"b")],
                    "\"a b\" a_1 \"A\"\"b\"",
                ),
                ("%s|", &[ScalarValue::Utf8(None)], "|"),
                ("%s%% of {}", &[n(5)], "%s%% of 5"),
                ("100%", &[n(5)], "100%"),
                ("100% of all", &[n(5)], "100% of all"),
                (
                    "%s %s",
                    &[text_constant("a")],
                    "the format `%s %s` has a place for a second value, and there is 1 value\nhint: `%%` writes a percent sign, and needs no value",
                ),
            ],
        );
    }

    #[test]
    fn format_number_groups_thousands() {
        for (value, places, expected) in [
            (f(1_234_567.891), 2, "1,234,567.89"),
            (n(1_234_567), 0, "1,234,567"),
            (n(-5), 1, "-5.0"),
            (ScalarValue::Decimal128(Some(123_456), 8, 2), 1, "1,234.6"),
            (
                f(1.0),
                -1,
                "`format_number` takes 0 to 1,000 places, and -1 is none of them\nhint: round(n, -3) rounds to thousands",
            ),
            (
                text_constant("1"),
                1,
                "`format_number` takes a number, and this is a TEXT\nhint: CAST(x AS DOUBLE) makes one",
            ),
        ] {
            assert_eq!(call_in_all_forms("format_number", &[value, n(places)]), expected);
        }
    }

    proptest! {
        #[test]
        fn padding_matches_rust_formatting(number in any::<i64>(), width in 0_usize..30) {
            let args = [text_constant(&format!("{{:{width}}}")), n(number)];
            prop_assert_eq!(call_in_all_forms("format", &args), format!("{number:width$}"));
            let args = [text_constant(&format!("%0{width}d")), n(number)];
            prop_assert_eq!(call_in_all_forms("printf", &args), format!("{number:0width$}"));
        }

        #[test]
        fn all_digits_parse_back_to_the_number(number in any::<f64>()) {
            let made = call_in_all_forms("format", &[text_constant("{:.17g}"), f(number)]);
            let read: f64 = made.parse().unwrap();
            prop_assert!(read == number || number.is_nan());
        }

        #[test]
        fn no_format_causes_a_panic(format in "[{}:<>^+#0-9.,%$dsfxt' ä]{0,12}", number in any::<i64>()) {
            call_in_all_forms("format", &[text_constant(&format), n(number), text_constant("x")]);
            call_in_all_forms("printf", &[text_constant(&format), n(number), text_constant("x")]);
        }
    }
}
