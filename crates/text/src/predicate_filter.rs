//! Predicates that drop rows of text before their other columns are parsed.
//!
//! A predicate is a conjunct of a `WHERE` clause that compares one column with constants. If one is false for
//! a row, or unknown because the value is null, the filter drops the row after its separators
//! were found and before any of its values is parsed. The decoder never looks at the other columns of a
//! dropped row, so a value of the wrong type in them is no fault.
//!
//! A row whose value is not of the predicate's type passes. The decoder then rejects the row when it parses
//! the column, or reads a null there if mismatches are null.

use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{DataType, FieldRef};
use hashbrown::HashSet;

use crate::array_builders::DecodingContext;
use crate::canonical_spelling::is_canonical;
use crate::column_decoder::{AcceptedSpelling, ColumnDecoder, ColumnNode};
use crate::fast_value_parsing;
use crate::value_parsing;
use crate::value_span::ValueSpan;

/// A condition on one column.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    /// Position of the column among the requested columns.
    pub column: usize,
    /// The condition that a row's value must satisfy.
    pub condition: ValueCondition,
}

/// A condition on a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueCondition {
    /// The value compares so with the constant.
    Comparison(ComparisonOperator, PredicateConstant),
    /// The value equals one of the constants.
    InSet(ConstantSet),
    /// The value is null.
    IsNull,
    /// The value is not null.
    IsNotNull,
}

/// The constants that a value may equal. A large set uses a hash lookup, whose time does not grow with its
/// size.
#[derive(Debug, Clone, PartialEq)]
pub struct ConstantSet {
    constants: Vec<PredicateConstant>,
    texts: HashSet<Box<[u8]>>,
    ints: HashSet<i64>,
    /// The bits of [normalized](normalize_float) floats.
    floats: HashSet<u64>,
    /// True if all constants are of one kind.
    has_single_kind: bool,
}

impl From<Vec<PredicateConstant>> for ConstantSet {
    fn from(constants: Vec<PredicateConstant>) -> Self {
        let (mut texts, mut ints, mut floats) = Default::default();
        if constants.len() > ConstantSet::LINEAR_SEARCH_MAX {
            for constant in &constants {
                match constant {
                    PredicateConstant::Text(text) => {
                        _ = HashSet::insert(&mut texts, text.as_bytes().into())
                    }
                    PredicateConstant::Int(int) => _ = HashSet::insert(&mut ints, *int),
                    PredicateConstant::Float(float) => {
                        HashSet::insert(&mut floats, normalize_float(*float).to_bits());
                    }
                }
            }
        }
        let kind = std::mem::discriminant::<PredicateConstant>;
        let are_alike = constants.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1]));
        ConstantSet { constants, texts, ints, floats, has_single_kind: are_alike }
    }
}

impl ConstantSet {
    /// Maximum size of a set whose constants are compared one by one.
    const LINEAR_SEARCH_MAX: usize = 8;

    /// Returns whether the set contains a value, or the value is not of the constants' type.
    fn may_contain(&self, value: ParsedValue<'_>) -> bool {
        let fits = |constant: &PredicateConstant| {
            matches!(
                (constant, value),
                (PredicateConstant::Text(_), ParsedValue::Text(_))
                    | (PredicateConstant::Int(_), ParsedValue::Int(_))
                    | (PredicateConstant::Float(_), ParsedValue::Float(_))
            )
        };
        if self.constants.len() <= ConstantSet::LINEAR_SEARCH_MAX {
            return self
                .constants
                .iter()
                .any(|constant| !fits(constant) || is_equal_to_constant(constant, value));
        }
        let is_among = match value {
            ParsedValue::Text(text) => self.texts.contains(text),
            ParsedValue::Int(int) => self.ints.contains(&int),
            ParsedValue::Float(float) => self.floats.contains(&normalize_float(float).to_bits()),
        };
        // A value that differs in kind from some constant is kept.
        let is_comparable = self.has_single_kind && self.constants.first().is_some_and(fits);
        is_among || !is_comparable
    }
}

/// Returns whether a constant is of the same kind as a value and equals it.
fn is_equal_to_constant(constant: &PredicateConstant, value: ParsedValue<'_>) -> bool {
    match (constant, value) {
        (PredicateConstant::Text(wanted), ParsedValue::Text(value)) => value == wanted.as_bytes(),
        (PredicateConstant::Int(wanted), ParsedValue::Int(value)) => value == *wanted,
        (PredicateConstant::Float(wanted), ParsedValue::Float(value)) => {
            normalize_float(value).total_cmp(&normalize_float(*wanted)).is_eq()
        }
        _ => false,
    }
}

/// A comparison operator between a value and a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonOperator {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A constant in a predicate.
#[derive(Debug, Clone, PartialEq)]
pub enum PredicateConstant {
    /// Text, compared bytewise.
    Text(String),
    /// An integer.
    Int(i64),
    /// A float. -0.0 equals 0.0; a NaN equals any other and is the largest.
    Float(f64),
}

impl Predicate {
    /// Returns whether the filter can test columns of this type. The engine must test others later.
    #[must_use]
    pub fn is_applicable_to(&self, data_type: &DataType) -> bool {
        let fits = |constant: &PredicateConstant| match constant {
            PredicateConstant::Text(_) => matches!(data_type, DataType::Utf8 | DataType::Utf8View),
            PredicateConstant::Int(_) => data_type.is_signed_integer(),
            PredicateConstant::Float(_) => *data_type == DataType::Float64,
        };
        match &self.condition {
            ValueCondition::Comparison(_, constant) => fits(constant),
            ValueCondition::InSet(among) => among.constants.iter().all(fits),
            ValueCondition::IsNull | ValueCondition::IsNotNull => !data_type.is_nested(),
        }
    }
}

/// A parsed value that a condition tests.
#[derive(Debug, Clone, Copy)]
pub enum ParsedValue<'a> {
    /// Text.
    Text(&'a [u8]),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl ValueCondition {
    /// Returns whether a value passes, `None` being null. A value that is not of the constant's type passes.
    #[must_use]
    pub fn is_satisfied_by(&self, value: Option<ParsedValue<'_>>) -> bool {
        let Some(value) = value else { return *self == ValueCondition::IsNull };
        if let ValueCondition::InSet(among) = self {
            return among.may_contain(value);
        }
        let order = |constant: &PredicateConstant| match (constant, value) {
            (PredicateConstant::Text(wanted), ParsedValue::Text(value)) => {
                Some(value.cmp(wanted.as_bytes()))
            }
            (PredicateConstant::Int(wanted), ParsedValue::Int(value)) => Some(value.cmp(wanted)),
            (PredicateConstant::Float(wanted), ParsedValue::Float(value)) => {
                Some(normalize_float(value).total_cmp(&normalize_float(*wanted)))
            }
            _ => None,
        };
        self.is_satisfied_by_order(order)
    }

    /// Returns whether a value that is not null passes, by its order relative to a constant; `order` returns
    /// `None` where they are not comparable.
    #[inline(always)]
    fn is_satisfied_by_order(
        &self,
        order: impl Fn(&PredicateConstant) -> Option<std::cmp::Ordering>,
    ) -> bool {
        match self {
            ValueCondition::IsNull => false,
            ValueCondition::IsNotNull => true,
            ValueCondition::Comparison(comparison, constant) => {
                order(constant).is_none_or(|order| comparison.is_satisfied_by(order))
            }
            ValueCondition::InSet(among) => {
                let order = |constant| order(constant).is_none_or(|order| order.is_eq());
                among.constants.iter().any(order)
            }
        }
    }
}

impl ComparisonOperator {
    #[inline(always)]
    pub(crate) fn is_satisfied_by(self, order: std::cmp::Ordering) -> bool {
        match self {
            ComparisonOperator::Equal => order.is_eq(),
            ComparisonOperator::NotEqual => order.is_ne(),
            ComparisonOperator::Less => order.is_lt(),
            ComparisonOperator::LessOrEqual => order.is_le(),
            ComparisonOperator::Greater => order.is_gt(),
            ComparisonOperator::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// Normalizes zero and NaN to one value each, because the total order has several.
fn normalize_float(float: f64) -> f64 {
    if float.is_nan() { f64::NAN } else { float + 0.0 }
}

/// A parser of integers in a column's own spelling.
pub(crate) type IntParser = fn(&[u8]) -> Option<i64>;

/// Parses an integer in the spelling of most columns.
fn parse_int(value: &[u8]) -> Option<i64> {
    fast_value_parsing::parse_int(value, 0, value.len())
        .or_else(|| std::str::from_utf8(value).ok()?.parse().ok())
}

/// A filter of a window's rows by the predicates that can be tested on spans.
pub(crate) struct SpanFilter {
    predicates: Vec<Predicate>,
    /// Columns whose integers have their own spelling, with the parsers.
    int_parsers: Vec<(usize, IntParser)>,
    row_mask: Vec<bool>,
}

impl SpanFilter {
    /// Returns a filter by those predicates that apply to their columns' types.
    pub(crate) fn new(mut predicates: Vec<Predicate>, columns: &[FieldRef]) -> Self {
        predicates.retain(|predicate| {
            columns.get(predicate.column).is_some_and(|f| predicate.is_applicable_to(f.data_type()))
        });
        Self { predicates, int_parsers: Vec::new(), row_mask: Vec::new() }
    }

    /// Adds a parser for the integers of a column.
    pub(crate) fn with_int_parser(mut self, column: usize, read: IntParser) -> Self {
        self.int_parsers.push((column, read));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.predicates.is_empty()
    }

    /// Drops rows of the window, the last `rows` of the columns; returns the number of rows that remain.
    /// If columns are nested, all rows remain and `kept` receives a bit for each.
    pub(crate) fn filter_window(
        &mut self,
        text: &[u8],
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
        rows: usize,
        kept: Option<&mut BooleanBufferBuilder>,
    ) -> usize {
        self.row_mask.clear();
        self.row_mask.resize(rows, true);
        for predicate in &self.predicates {
            let Some(column) = columns.get(predicate.column) else { continue };
            let ColumnDecoder {
                field,
                node: ColumnNode::Leaf { spans, .. },
                accepted_spelling: spelling,
                ..
            } = column
            else {
                continue;
            };
            let data_type = field.data_type();
            let spelled = self.int_parsers.iter().find(|(column, _)| *column == predicate.column);
            let read = spelled.map_or(parse_int as IntParser, |(_, read)| *read);
            for (keep, span) in self.row_mask.iter_mut().zip(spans) {
                if !*keep {
                    continue;
                }
                let is_refused = column.rejects_string(text, *span, data_type)
                    && !matches!(context.scalar_value(text, *span), Ok(None));
                *keep = match is_refused {
                    // The value becomes null.
                    true if context.mismatch_is_null => {
                        predicate.condition == ValueCondition::IsNull
                    }
                    true => true,
                    false => {
                        let of_column = (data_type, *spelling);
                        can_satisfy(&predicate.condition, text, *span, context, read, of_column)
                    }
                };
            }
        }
        if let Some(kept) = kept {
            kept.append_slice(&self.row_mask);
            return rows;
        }
        let left = self.row_mask.iter().filter(|keep| **keep).count();
        if left < rows {
            for column in columns {
                if let ColumnNode::Leaf { spans, .. } = &mut column.node {
                    let mut keep = self.row_mask.iter();
                    spans.retain(|_| keep.next().copied().unwrap_or(true));
                }
            }
        }
        left
    }
}

/// Returns whether a type is a text type, possibly as dictionary codes.
fn is_text_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text_type(value),
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::BinaryView => true,
        _ => false,
    }
}

/// Returns whether a value of a column of this type passes the condition. A value that is not of the
/// constant's type, or has a spelling that the column does not accept, passes.
#[inline]
fn can_satisfy(
    test: &ValueCondition,
    text: &[u8],
    span: ValueSpan,
    context: &DecodingContext,
    read: IntParser,
    (data_type, spelling): (&DataType, AcceptedSpelling),
) -> bool {
    // A plain value that is longer than every null string is no null.
    let is_text = is_text_type(data_type);
    let value = match is_text {
        true => context.text_value(text, span),
        false => context.scalar_value(text, span),
    };
    let value = match value {
        Ok(value) => value,
        Err(()) => return true,
    };
    let Some(value) = value else { return *test == ValueCondition::IsNull };
    // The value becomes null if it is not of the column's type.
    if *test == ValueCondition::IsNull && context.mismatch_is_null {
        return true;
    }
    let is_taken = match spelling {
        AcceptedSpelling::AnySpelling => true,
        AcceptedSpelling::Canonical => is_canonical(&value, data_type),
        AcceptedSpelling::ExactDouble => {
            fast_value_parsing::parse_float(&value, 0, value.len()).is_some()
                || std::str::from_utf8(&value).is_ok_and(value_parsing::is_representable_as_double)
        }
    };
    if !is_taken {
        return true;
    }
    let float = || {
        fast_value_parsing::parse_float(&value, 0, value.len())
            .or_else(|| value_parsing::parse_float(std::str::from_utf8(&value).ok()?))
    };
    if let ValueCondition::InSet(among) = test {
        let value = match among.constants.first() {
            None => return false,
            Some(PredicateConstant::Text(_)) => Some(ParsedValue::Text(&value)),
            Some(PredicateConstant::Int(_)) => read(&value).map(ParsedValue::Int),
            Some(PredicateConstant::Float(_)) => float().map(ParsedValue::Float),
        };
        return value.is_none_or(|value| among.may_contain(value));
    }
    let order = |constant: &PredicateConstant| match constant {
        PredicateConstant::Text(wanted) => Some((*value).cmp(wanted.as_bytes())),
        PredicateConstant::Int(wanted) => Some(read(&value)?.cmp(wanted)),
        PredicateConstant::Float(wanted) => {
            Some(normalize_float(float()?).total_cmp(&normalize_float(*wanted)))
        }
    };
    test.is_satisfied_by_order(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a small set, which is searched linearly, with a large one, which is looked up.
    #[test]
    fn linear_search_and_lookup_agree() {
        let floats = [0.0, -0.0, f64::NAN, 1.5, f64::INFINITY].map(PredicateConstant::Float);
        let texts = ["", "a", "b", "ä"].map(|text| PredicateConstant::Text(text.into()));
        let ints = [0, -1, i64::MAX].map(PredicateConstant::Int);
        let mixed = [PredicateConstant::Int(1), PredicateConstant::Text("a".into())];
        for few in [&floats[..], &texts, &ints, &mixed] {
            let many: Vec<PredicateConstant> = few.iter().cycle().take(40).cloned().collect();
            let (few, many) =
                (ValueCondition::InSet(few.to_vec().into()), ValueCondition::InSet(many.into()));
            let values = [
                Some(ParsedValue::Text(b"")),
                Some(ParsedValue::Text("ä".as_bytes())),
                Some(ParsedValue::Text(b"\xff")),
                Some(ParsedValue::Int(0)),
                Some(ParsedValue::Int(7)),
                Some(ParsedValue::Float(-0.0)),
                Some(ParsedValue::Float(-f64::NAN)),
                Some(ParsedValue::Float(2.5)),
                None,
            ];
            for value in values {
                assert_eq!(
                    few.is_satisfied_by(value),
                    many.is_satisfied_by(value),
                    "{few:?} {value:?}"
                );
            }
        }
        let none = ValueCondition::InSet(Vec::new().into());
        assert!(!none.is_satisfied_by(Some(ParsedValue::Int(1))) && !none.is_satisfied_by(None));
    }
}
