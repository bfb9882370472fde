//! Predicates on text: rows that are dropped before their other columns are read.
//!
//! A predicate is the conjunct of a `WHERE` that compares one column with constants. A row for
//! which one is false, or unknown because the value is null, is dropped after its separators
//! were found and before any of its values was parsed. What a dropped row's other columns hold
//! is not looked at, so a value of the wrong type in them is no fault.
//!
//! A value that is not of the predicate's type keeps its row, which is then refused when the
//! column is read, or has a null there if such values are null.

use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{DataType, FieldRef};
use hashbrown::HashSet;

use crate::canonical::is_canonical;
use crate::column::{Column, Node, Spelling};
use crate::fast;
use crate::leaf::Context;
use crate::span::Span;
use crate::values;

/// A comparison of a column with constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    /// The column's position among those that are read.
    pub column: usize,
    /// What must hold for a row to be kept.
    pub test: Test,
}

/// What must hold for a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// It compares so with the constant.
    Compare(Comparison, Constant),
    /// It equals one of these.
    In(Among),
    /// It is null.
    IsNull,
    /// It is not null.
    IsNotNull,
}

/// The constants that a value may equal. Of many it is looked up, in a time that does not grow with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Among {
    constants: Vec<Constant>,
    texts: HashSet<Box<[u8]>>,
    ints: HashSet<i64>,
    /// The bits of floats that are [`settled`].
    floats: HashSet<u64>,
    /// Whether they are of one kind.
    are_alike: bool,
}

impl From<Vec<Constant>> for Among {
    fn from(constants: Vec<Constant>) -> Self {
        let (mut texts, mut ints, mut floats) = Default::default();
        if constants.len() > Among::COMPARED {
            for constant in &constants {
                match constant {
                    Constant::Text(text) => _ = HashSet::insert(&mut texts, text.as_bytes().into()),
                    Constant::Int(int) => _ = HashSet::insert(&mut ints, *int),
                    Constant::Float(float) => {
                        HashSet::insert(&mut floats, settled(*float).to_bits());
                    }
                }
            }
        }
        let kind = std::mem::discriminant::<Constant>;
        let are_alike = constants.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1]));
        Among { constants, texts, ints, floats, are_alike }
    }
}

impl Among {
    /// So many are compared one by one.
    const COMPARED: usize = 8;

    /// Whether a value is among them; also if it is not of their type.
    fn has(&self, value: Tested<'_>) -> bool {
        let fits = |constant: &Constant| {
            matches!(
                (constant, value),
                (Constant::Text(_), Tested::Text(_))
                    | (Constant::Int(_), Tested::Int(_))
                    | (Constant::Float(_), Tested::Float(_))
            )
        };
        if self.constants.len() <= Among::COMPARED {
            return self
                .constants
                .iter()
                .any(|constant| !fits(constant) || equals(constant, value));
        }
        let is_among = match value {
            Tested::Text(text) => self.texts.contains(text),
            Tested::Int(int) => self.ints.contains(&int),
            Tested::Float(float) => self.floats.contains(&settled(float).to_bits()),
        };
        // A value that some constant is not of the kind of is kept.
        let is_comparable = self.are_alike && self.constants.first().is_some_and(fits);
        is_among || !is_comparable
    }
}

/// Whether a constant is a value of its own type.
fn equals(constant: &Constant, value: Tested<'_>) -> bool {
    match (constant, value) {
        (Constant::Text(wanted), Tested::Text(value)) => value == wanted.as_bytes(),
        (Constant::Int(wanted), Tested::Int(value)) => value == *wanted,
        (Constant::Float(wanted), Tested::Float(value)) => {
            settled(value).total_cmp(&settled(*wanted)).is_eq()
        }
        _ => false,
    }
}

/// An operator between a value and a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
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

/// A constant of a predicate.
#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    /// Text, compared by its bytes.
    Text(String),
    /// An integer.
    Int(i64),
    /// A float. -0.0 equals 0.0; a NaN equals any other and is the largest.
    Float(f64),
}

impl Predicate {
    /// Whether columns of this type can be tested so. Others must be tested later.
    #[must_use]
    pub fn applies_to(&self, data_type: &DataType) -> bool {
        let fits = |constant: &Constant| match constant {
            Constant::Text(_) => matches!(data_type, DataType::Utf8 | DataType::Utf8View),
            Constant::Int(_) => data_type.is_signed_integer(),
            Constant::Float(_) => *data_type == DataType::Float64,
        };
        match &self.test {
            Test::Compare(_, constant) => fits(constant),
            Test::In(among) => among.constants.iter().all(fits),
            Test::IsNull | Test::IsNotNull => !data_type.is_nested(),
        }
    }
}

/// A value to be tested that has been read already.
#[derive(Debug, Clone, Copy)]
pub enum Tested<'a> {
    /// Text.
    Text(&'a [u8]),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl Test {
    /// Whether a value passes, null being none; also if it is not of the constant's type.
    #[must_use]
    pub fn holds(&self, value: Option<Tested<'_>>) -> bool {
        let Some(value) = value else { return *self == Test::IsNull };
        if let Test::In(among) = self {
            return among.has(value);
        }
        let order = |constant: &Constant| match (constant, value) {
            (Constant::Text(wanted), Tested::Text(value)) => Some(value.cmp(wanted.as_bytes())),
            (Constant::Int(wanted), Tested::Int(value)) => Some(value.cmp(wanted)),
            (Constant::Float(wanted), Tested::Float(value)) => {
                Some(settled(value).total_cmp(&settled(*wanted)))
            }
            _ => None,
        };
        self.holds_in(order)
    }

    /// Whether a value that is not null passes, by its order beside a constant; none where it has none.
    #[inline(always)]
    fn holds_in(&self, order: impl Fn(&Constant) -> Option<std::cmp::Ordering>) -> bool {
        match self {
            Test::IsNull => false,
            Test::IsNotNull => true,
            Test::Compare(comparison, constant) => {
                order(constant).is_none_or(|order| comparison.holds(order))
            }
            Test::In(among) => {
                let order = |constant| order(constant).is_none_or(|order| order.is_eq());
                among.constants.iter().any(order)
            }
        }
    }
}

impl Comparison {
    #[inline(always)]
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// With one zero and one NaN, which the total order has at its end.
fn settled(float: f64) -> f64 {
    if float.is_nan() { f64::NAN } else { float + 0.0 }
}

/// Reads an integer as a column spells it.
pub(crate) type ReadInt = fn(&[u8]) -> Option<i64>;

/// As most columns do.
fn read_int(value: &[u8]) -> Option<i64> {
    fast::int(value, 0, value.len()).or_else(|| std::str::from_utf8(value).ok()?.parse().ok())
}

/// The predicates that can be settled on text.
pub(crate) struct Filter {
    predicates: Vec<Predicate>,
    /// Columns whose integers are written in a way of their own, and how.
    spelled: Vec<(usize, ReadInt)>,
    keep: Vec<bool>,
}

impl Filter {
    /// Those of the predicates that apply to their columns' types.
    pub(crate) fn new(mut predicates: Vec<Predicate>, columns: &[FieldRef]) -> Self {
        predicates.retain(|predicate| {
            columns.get(predicate.column).is_some_and(|f| predicate.applies_to(f.data_type()))
        });
        Self { predicates, spelled: Vec::new(), keep: Vec::new() }
    }

    /// The same where a column's integers are what `read` makes of its text.
    pub(crate) fn spelled(mut self, column: usize, read: ReadInt) -> Self {
        self.spelled.push((column, read));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.predicates.is_empty()
    }

    /// Drops rows of the window, the last `rows` of the columns; returns how many are left.
    /// Where columns are nested, rows stay and `kept` is told which are wanted.
    pub(crate) fn apply(
        &mut self,
        text: &[u8],
        columns: &mut [Column],
        context: &Context,
        rows: usize,
        kept: Option<&mut BooleanBufferBuilder>,
    ) -> usize {
        self.keep.clear();
        self.keep.resize(rows, true);
        for predicate in &self.predicates {
            let Some(column) = columns.get(predicate.column) else { continue };
            let Column { field, node: Node::Leaf { spans, .. }, spelling, .. } = column else {
                continue;
            };
            let data_type = field.data_type();
            let spelled = self.spelled.iter().find(|(column, _)| *column == predicate.column);
            let read = spelled.map_or(read_int as ReadInt, |(_, read)| *read);
            for (keep, span) in self.keep.iter_mut().zip(spans) {
                if !*keep {
                    continue;
                }
                let is_refused = column.refuses_string(text, *span, data_type)
                    && !matches!(context.value(text, *span), Ok(None));
                *keep = match is_refused {
                    // It is null then.
                    true if context.mismatch_is_null => predicate.test == Test::IsNull,
                    true => true,
                    false => {
                        let of_column = (data_type, *spelling);
                        test(&predicate.test, text, *span, context, read, of_column)
                    }
                };
            }
        }
        if let Some(kept) = kept {
            kept.append_slice(&self.keep);
            return rows;
        }
        let left = self.keep.iter().filter(|keep| **keep).count();
        if left < rows {
            for column in columns {
                if let Node::Leaf { spans, .. } = &mut column.node {
                    let mut keep = self.keep.iter();
                    spans.retain(|_| keep.next().copied().unwrap_or(true));
                }
            }
        }
        left
    }
}

/// Returns whether a column of this type takes any text, in whose codes it may be.
fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::BinaryView => true,
        _ => false,
    }
}

/// Returns whether a value of a column of this type passes; also if it is not of the constant's type, or has a spelling
/// that the column does not take.
#[inline]
fn test(
    test: &Test,
    text: &[u8],
    span: Span,
    context: &Context,
    read: ReadInt,
    (data_type, spelling): (&DataType, Spelling),
) -> bool {
    // A plain value that is longer than any null string is what it is.
    let is_text = is_text(data_type);
    let value = match is_text {
        true => context.text_value(text, span),
        false => context.value(text, span),
    };
    let value = match value {
        Ok(value) => value,
        Err(()) => return true,
    };
    let Some(value) = value else { return *test == Test::IsNull };
    // It becomes null if it is not of the column's type.
    if *test == Test::IsNull && context.mismatch_is_null {
        return true;
    }
    let is_taken = match spelling {
        Spelling::Any => true,
        Spelling::Canonical => is_canonical(&value, data_type),
        Spelling::DoubleExact => {
            fast::float(&value, 0, value.len()).is_some()
                || std::str::from_utf8(&value).is_ok_and(values::is_representable_as_double)
        }
    };
    if !is_taken {
        return true;
    }
    let float = || {
        fast::float(&value, 0, value.len())
            .or_else(|| values::float(std::str::from_utf8(&value).ok()?))
    };
    if let Test::In(among) = test {
        let value = match among.constants.first() {
            None => return false,
            Some(Constant::Text(_)) => Some(Tested::Text(&value)),
            Some(Constant::Int(_)) => read(&value).map(Tested::Int),
            Some(Constant::Float(_)) => float().map(Tested::Float),
        };
        return value.is_none_or(|value| among.has(value));
    }
    let order = |constant: &Constant| match constant {
        Constant::Text(wanted) => Some((*value).cmp(wanted.as_bytes())),
        Constant::Int(wanted) => Some(read(&value)?.cmp(wanted)),
        Constant::Float(wanted) => Some(settled(float()?).total_cmp(&settled(*wanted))),
    };
    test.holds_in(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few constants, which are compared, and many, which are looked up, say the same.
    #[test]
    fn a_value_is_among_many_as_among_few() {
        let floats = [0.0, -0.0, f64::NAN, 1.5, f64::INFINITY].map(Constant::Float);
        let texts = ["", "a", "b", "ä"].map(|text| Constant::Text(text.into()));
        let ints = [0, -1, i64::MAX].map(Constant::Int);
        let mixed = [Constant::Int(1), Constant::Text("a".into())];
        for few in [&floats[..], &texts, &ints, &mixed] {
            let many: Vec<Constant> = few.iter().cycle().take(40).cloned().collect();
            let (few, many) = (Test::In(few.to_vec().into()), Test::In(many.into()));
            let values = [
                Some(Tested::Text(b"")),
                Some(Tested::Text("ä".as_bytes())),
                Some(Tested::Text(b"\xff")),
                Some(Tested::Int(0)),
                Some(Tested::Int(7)),
                Some(Tested::Float(-0.0)),
                Some(Tested::Float(-f64::NAN)),
                Some(Tested::Float(2.5)),
                None,
            ];
            for value in values {
                assert_eq!(few.holds(value), many.holds(value), "{few:?} {value:?}");
            }
        }
        let none = Test::In(Vec::new().into());
        assert!(!none.holds(Some(Tested::Int(1))) && !none.holds(None));
    }
}
