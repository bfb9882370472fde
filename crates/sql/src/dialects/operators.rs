//! Operators and forms of other databases, written as they are here.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator, Value,
};

use super::calls::{call_of, in_brackets};

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
        _ => None,
    }
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
        BinaryOperator::Regexp => Some(beside(left, BinaryOperator::PGRegexMatch, right)),
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
