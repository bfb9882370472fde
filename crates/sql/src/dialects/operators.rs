//! Operators and forms of other databases, written as they are here.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, CeilFloorKind, DataType, ExactNumberInfo, Expr, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, LambdaFunction, UnaryOperator, Value, ValueWithSpan,
    VisitorMut,
};
use tidemill_planning::walk_expr_mut;

use super::calls::{call_of, in_brackets};
use super::types;
use crate::names::folded;

/// What an operator, or a form with words of its own, is here, where it is one of another database's.
pub(super) fn translated(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { left, op, right } => of_two(left, op, right),
        // `REGEXP` and `RLIKE`.
        Expr::RLike { negated, expr, pattern, regexp: _ } => {
            let op = match negated {
                true => BinaryOperator::PGRegexNotMatch,
                false => BinaryOperator::PGRegexMatch,
            };
            Some(beside(expr, op, pattern))
        }
        Expr::Like { negated, any: true, expr, pattern, escape_char: None } => {
            any_of(*negated, expr, pattern, false)
        }
        Expr::ILike { negated, any: true, expr, pattern, escape_char: None } => {
            any_of(*negated, expr, pattern, true)
        }
        Expr::InUnnest { expr, array_expr, negated } => {
            let has = call_of("array_has", vec![*array_expr.clone(), *expr.clone()]);
            Some(match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) },
                false => has,
            })
        }
        Expr::MemberOf(member) => {
            Some(call_of("array_has", vec![*member.array.clone(), *member.value.clone()]))
        }
        Expr::Convert {
            is_try,
            expr,
            data_type: Some(data_type),
            charset: None,
            target_before_value: _,
            styles,
        } if styles.is_empty() => Some(Expr::Cast {
            kind: if *is_try { CastKind::TryCast } else { CastKind::Cast },
            expr: expr.clone(),
            data_type: data_type.clone(),
            array: false,
            format: None,
        }),
        Expr::Cast { kind, expr, data_type, array: false, format: None } => {
            if let Some(length) = types::characters(data_type) {
                let text = Expr::Cast {
                    kind: kind.clone(),
                    expr: expr.clone(),
                    data_type: DataType::Text,
                    array: false,
                    format: None,
                };
                let length = Expr::value(Value::Number(length.to_string(), false));
                return Some(call_of("left", vec![text, length]));
            }
            Some(Expr::Cast {
                kind: kind.clone(),
                expr: expr.clone(),
                data_type: types::ours(data_type)?,
                array: false,
                format: None,
            })
        }
        Expr::UnaryOp { op, expr } => of_one(*op, expr),
        Expr::Floor { expr, field: CeilFloorKind::Scale(places) } => {
            Some(at_places("floor", expr, places))
        }
        Expr::Ceil { expr, field: CeilFloorKind::Scale(places) } => {
            Some(at_places("ceil", expr, places))
        }
        // Texts are in the order of their code points here.
        Expr::Collate { expr, collation }
            if ["c", "\"c\"", "posix", "\"posix\"", "binary", "utf8_binary", "\"ucs_basic\""]
                .contains(&collation.to_string().to_lowercase().as_str()) =>
        {
            Some(*expr.clone())
        }
        Expr::Value(ValueWithSpan {
            value:
                Value::SingleQuotedRawStringLiteral(text) | Value::DoubleQuotedRawStringLiteral(text),
            span: _,
        }) => Some(Expr::value(Value::SingleQuotedString(text.clone()))),
        Expr::Lambda(function) => of_fields(function),
        _ => None,
    }
}

fn of_one(op: UnaryOperator, expr: &Expr) -> Option<Expr> {
    let call = |name: &str| Some(call_of(name, vec![expr.clone()]));
    match op {
        UnaryOperator::BitwiseNot => {
            let minus = Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(Expr::Nested(Box::new(expr.clone()))),
            };
            let one = Expr::value(Value::Number("1".into(), false));
            Some(in_brackets(beside(&minus, BinaryOperator::Minus, &one)))
        }
        UnaryOperator::PGAbs => call("abs"),
        UnaryOperator::PGSquareRoot => call("sqrt"),
        UnaryOperator::PGCubeRoot => call("cbrt"),
        UnaryOperator::PGPrefixFactorial | UnaryOperator::PGPostfixFactorial => call("factorial"),
        _ => None,
    }
}

/// `floor(x, 1)` as `floor(x * 10 ^ 1) / 10 ^ 1`.
fn at_places(name: &str, expr: &Expr, places: &ValueWithSpan) -> Expr {
    let double = || DataType::Double(ExactNumberInfo::None);
    let ten = Expr::value(Value::Number("10".into(), false));
    let shift = || call_of("power", vec![cast(ten.clone(), double()), Expr::Value(places.clone())]);
    let moved = beside(&cast(expr.clone(), double()), BinaryOperator::Multiply, &shift());
    let whole = call_of(name, vec![moved]);
    in_brackets(beside(&whole, BinaryOperator::Divide, &shift()))
}

/// A function in which `s.a` is the field of a struct that is its parameter.
fn of_fields(function: &LambdaFunction) -> Option<Expr> {
    struct Fields<'a> {
        parameters: Vec<&'a Ident>,
        changed: bool,
    }

    impl VisitorMut for Fields<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let Expr::CompoundIdentifier(parts) = expr else { return ControlFlow::Continue(()) };
            let Some((first, fields)) = parts.split_first() else {
                return ControlFlow::Continue(());
            };
            if self.parameters.iter().any(|own| folded(own) == folded(first)) {
                let mut made = Expr::Identifier(first.clone());
                for field in fields {
                    let name = Expr::value(Value::SingleQuotedString(folded(field)));
                    made = call_of("get_field", vec![made, name]);
                }
                *expr = made;
                self.changed = true;
            }
            ControlFlow::Continue(())
        }
    }

    let parameters = function.params.iter().map(|parameter| &parameter.name).collect();
    let mut fields = Fields { parameters, changed: false };
    let mut body = function.body.clone();
    walk_expr_mut(&mut body, &mut fields);
    fields.changed.then(|| Expr::Lambda(LambdaFunction { body, ..function.clone() }))
}

fn of_two(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let both = || vec![left.clone(), right.clone()];
    match op {
        BinaryOperator::PGExp | BinaryOperator::BitwiseXor => {
            let base = cast(left.clone(), DataType::Double(ExactNumberInfo::None));
            Some(call_of("power", vec![base, right.clone()]))
        }
        BinaryOperator::DuckIntegerDivide => {
            Some(in_brackets(beside(left, BinaryOperator::Divide, right)))
        }
        BinaryOperator::MyIntegerDivide => {
            Some(cast(beside(left, BinaryOperator::Divide, right), DataType::BigInt(None)))
        }
        BinaryOperator::Custom(sign) if sign == "->" => Some(call_of("json_extract", both())),
        BinaryOperator::Custom(sign) if sign == "->>" => {
            Some(call_of("json_extract_string", both()))
        }
        BinaryOperator::Regexp => Some(beside(left, BinaryOperator::PGRegexMatch, right)),
        BinaryOperator::Overlaps => {
            let (Expr::Tuple(left), Expr::Tuple(right)) = (left, right) else { return None };
            let ([from, to], [start, end]) = (left.as_slice(), right.as_slice()) else {
                return None;
            };
            let before = beside(from, BinaryOperator::Lt, end);
            let after = beside(start, BinaryOperator::Lt, to);
            Some(in_brackets(beside(&before, BinaryOperator::And, &after)))
        }
        BinaryOperator::PGStartsWith => Some(call_of("starts_with", both())),
        BinaryOperator::PGOverlap => Some(call_of("array_has_any", both())),
        _ => None,
    }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    let expr = Box::new(expr);
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

fn beside(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(in_brackets(left.clone())),
        op,
        right: Box::new(in_brackets(right.clone())),
    }
}

/// `x LIKE ANY ('a%', 'b%')` as `(x LIKE 'a%' OR x LIKE 'b%')`.
fn any_of(negated: bool, expr: &Expr, pattern: &Expr, folded: bool) -> Option<Expr> {
    let patterns: Vec<&Expr> = match pattern {
        Expr::Tuple(patterns) => patterns.iter().collect(),
        Expr::Array(array) => array.elem.iter().collect(),
        Expr::Nested(one) => vec![one.as_ref()],
        Expr::Function(call) => match &call.args {
            FunctionArguments::List(list) if call.name.to_string() == "make_array" => list
                .args
                .iter()
                .map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            _ => return None,
        },
        _ => return None,
    };
    let like = |pattern: &Expr| {
        let (expr, pattern) = (Box::new(expr.clone()), Box::new(pattern.clone()));
        match folded {
            true => Expr::ILike { negated: false, any: false, expr, pattern, escape_char: None },
            false => Expr::Like { negated: false, any: false, expr, pattern, escape_char: None },
        }
    };
    let all = patterns.into_iter().map(like).reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::Or,
        right: Box::new(right),
    });
    let all = Expr::Nested(Box::new(all.unwrap_or_else(|| Expr::value(Value::Boolean(false)))));
    Some(match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(all) },
        false => all,
    })
}
