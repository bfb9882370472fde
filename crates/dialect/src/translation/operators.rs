//! Translation of other databases' operators and special syntax.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, CeilFloorKind, DataType, DateTimeField, ExactNumberInfo,
    Expr, ExtractSyntax, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Interval,
    LambdaFunction, Subscript, TypedString, UnaryOperator, Value, ValueWithSpan, VisitorMut,
};
use tidemill_planning::walk_expr_mut;

use crate::column_names::normalize_ident;
use crate::marker_functions::JSON_CAST_FUNCTION;
use crate::translation::function_calls::{function_call, parenthesize};
use crate::translation::type_names;

/// Returns the translation of an operator or of special syntax; `None` if the expression needs none.
pub(super) fn translate_operator(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { left, op, right } => translate_binary(left, op, right),
        // `REGEXP` and `RLIKE`.
        Expr::RLike { negated, expr, pattern, regexp: _ } => {
            let op = match negated {
                true => BinaryOperator::PGRegexNotMatch,
                false => BinaryOperator::PGRegexMatch,
            };
            Some(binary_op(expr, op, pattern))
        }
        Expr::Like { negated, any: true, expr, pattern, escape_char: None } => {
            translate_like_any(*negated, expr, pattern, false)
        }
        Expr::ILike { negated, any: true, expr, pattern, escape_char: None } => {
            translate_like_any(*negated, expr, pattern, true)
        }
        Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
            translate_like_all(*negated, expr, pattern, false)
        }
        Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
            translate_like_all(*negated, expr, pattern, true)
        }
        Expr::Like { negated, any: false, expr, pattern, escape_char: Some(escape) } => {
            let pattern = Box::new(rewrite_like_escape(pattern, escape)?);
            let (negated, expr) = (*negated, expr.clone());
            Some(Expr::Like { negated, any: false, expr, pattern, escape_char: None })
        }
        Expr::ILike { negated, any: false, expr, pattern, escape_char: Some(escape) } => {
            let pattern = Box::new(rewrite_like_escape(pattern, escape)?);
            let (negated, expr) = (*negated, expr.clone());
            Some(Expr::ILike { negated, any: false, expr, pattern, escape_char: None })
        }
        // PostgreSQL's `substring(x FROM 'pattern')`: a text is no position; the shorthand `substr` has no
        // such form.
        Expr::Substring {
            expr,
            substring_from: Some(pattern),
            substring_for: None,
            shorthand: false,
            special: _,
        } if is_text_literal(pattern) => Some(first_regex_group(expr, pattern)),
        // ClickHouse's `extract(x, 'pattern')`, which shares its name with the field of a time.
        Expr::Extract {
            field: DateTimeField::Custom(field),
            syntax: ExtractSyntax::Comma,
            expr: pattern,
        } if is_text_literal(pattern) => {
            let found = first_regex_group(&Expr::Identifier(field.clone()), pattern);
            let none = Expr::value(Value::SingleQuotedString(String::new()));
            Some(function_call("coalesce", vec![found, none]))
        }
        // Fields that DataFusion's `date_part` lacks.
        Expr::Extract { field, syntax: _, expr } => {
            let name = field.to_string().to_lowercase();
            tidemill_functions::is_date_field_name(&name).then(|| {
                let named = Expr::value(Value::SingleQuotedString(name));
                function_call("date_field", vec![named, *expr.clone()])
            })
        }
        // `INTERVAL (n) HOUR` is n times an hour.
        Expr::Interval(Interval {
            value,
            leading_field: Some(unit),
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        }) if !matches!(value.as_ref(), Expr::Value(_) | Expr::UnaryOp { .. }) => {
            let one = Expr::Interval(Interval {
                value: Box::new(Expr::value(Value::SingleQuotedString("1".into()))),
                leading_field: Some(unit.clone()),
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            });
            Some(parenthesize(binary_op(value, BinaryOperator::Multiply, &one)))
        }
        Expr::InUnnest { expr, array_expr, negated } => {
            let has = function_call("array_has", vec![*array_expr.clone(), *expr.clone()]);
            Some(match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) },
                false => has,
            })
        }
        Expr::MemberOf(member) => {
            Some(function_call("array_has", vec![*member.array.clone(), *member.value.clone()]))
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
            if let Some(length) = type_names::character_limit(data_type) {
                let text = Expr::Cast {
                    kind: kind.clone(),
                    expr: expr.clone(),
                    data_type: DataType::Text,
                    array: false,
                    format: None,
                };
                let length = Expr::value(Value::Number(length.to_string(), false));
                return Some(function_call("left", vec![text, length]));
            }
            if matches!(data_type, DataType::JSON | DataType::JSONB) {
                return Some(function_call(JSON_CAST_FUNCTION, vec![*expr.clone()]));
            }
            if let Some(bytes) = type_names::bytes_literal(expr, data_type) {
                return Some(bytes);
            }
            let own = type_names::translate_type(data_type);
            let (digits, data_type) = match (decimal_literal_text(expr), own) {
                (Some(digits), own) if type_names::is_decimal(data_type) => {
                    (Some(digits), own.unwrap_or_else(|| data_type.clone()))
                }
                (_, own) => (None, own?),
            };
            Some(Expr::Cast {
                kind: kind.clone(),
                expr: digits.map_or_else(|| expr.clone(), Box::new),
                data_type,
                array: false,
                format: None,
            })
        }
        // A literal with a type that has another name in Tidemill becomes a cast: `BLOB '\x00'`.
        Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false })
            if type_names::translate_type(data_type).is_some() =>
        {
            translate_operator(&Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Value(value.clone())),
                data_type: data_type.clone(),
                array: false,
                format: None,
            })
        }
        Expr::UnaryOp { op, expr } => translate_unary(*op, expr),
        Expr::Floor { expr, field: CeilFloorKind::Scale(places) } => {
            Some(round_to_places("floor", expr, places))
        }
        Expr::Ceil { expr, field: CeilFloorKind::Scale(places) } => {
            Some(round_to_places("ceil", expr, places))
        }
        // Tidemill always compares texts by code points.
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
        Expr::CompoundFieldAccess { root, access_chain } => {
            // A dot after a plain name may qualify a source.
            let mut is_value = !matches!(**root, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            let chain = access_chain.iter().map(|one| {
                is_value |= matches!(one, AccessExpr::Subscript(_));
                if is_value { translate_access(one) } else { one.clone() }
            });
            let chain = chain.collect();
            let made = Expr::CompoundFieldAccess { root: root.clone(), access_chain: chain };
            (made != *expr).then_some(made)
        }
        Expr::Lambda(function) => translate_lambda_fields(function),
        _ => None,
    }
}

fn translate_unary(op: UnaryOperator, expr: &Expr) -> Option<Expr> {
    let call = |name: &str| Some(function_call(name, vec![expr.clone()]));
    match op {
        UnaryOperator::BitwiseNot => {
            let minus = Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(Expr::Nested(Box::new(expr.clone()))),
            };
            let one = Expr::value(Value::Number("1".into(), false));
            Some(parenthesize(binary_op(&minus, BinaryOperator::Minus, &one)))
        }
        UnaryOperator::PGAbs => call("abs"),
        UnaryOperator::PGSquareRoot => call("sqrt"),
        UnaryOperator::PGCubeRoot => call("cbrt"),
        UnaryOperator::PGPrefixFactorial | UnaryOperator::PGPostfixFactorial => call("factorial"),
        _ => None,
    }
}

/// Translates `floor(x, 1)` into `floor(x * 10 ^ 1) / 10 ^ 1`.
fn round_to_places(name: &str, expr: &Expr, places: &ValueWithSpan) -> Expr {
    let double = || DataType::Double(ExactNumberInfo::None);
    let ten = Expr::value(Value::Number("10".into(), false));
    let shift = || {
        function_call("power", vec![cast_expr(ten.clone(), double()), Expr::Value(places.clone())])
    };
    let moved = binary_op(&cast_expr(expr.clone(), double()), BinaryOperator::Multiply, &shift());
    let whole = function_call(name, vec![moved]);
    parenthesize(binary_op(&whole, BinaryOperator::Divide, &shift()))
}

/// Translates a lambda in which `s.a` is the field of a struct parameter, and `[x]` becomes a call.
fn translate_lambda_fields(function: &LambdaFunction) -> Option<Expr> {
    struct LambdaFieldRewriter<'a> {
        parameters: Vec<&'a Ident>,
        has_changed: bool,
    }

    impl VisitorMut for LambdaFieldRewriter<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            // The planner does not resolve lambda parameters within a list literal.
            if let Expr::Array(list) = expr
                && !list.elem.is_empty()
            {
                *expr = function_call("make_array", std::mem::take(&mut list.elem));
                self.has_changed = true;
                return ControlFlow::Continue(());
            }
            let Expr::CompoundIdentifier(parts) = expr else { return ControlFlow::Continue(()) };
            let Some((first, fields)) = parts.split_first() else {
                return ControlFlow::Continue(());
            };
            if self.parameters.iter().any(|own| normalize_ident(own) == normalize_ident(first)) {
                let mut made = Expr::Identifier(first.clone());
                for field in fields {
                    let name = Expr::value(Value::SingleQuotedString(normalize_ident(field)));
                    made = match field.value.is_empty() {
                        // Only the planner resolves fields with an empty name.
                        true => Expr::CompoundFieldAccess {
                            root: Box::new(made),
                            access_chain: vec![AccessExpr::Subscript(Subscript::Index {
                                index: name,
                            })],
                        },
                        false => function_call("get_field", vec![made, name]),
                    };
                }
                *expr = made;
                self.has_changed = true;
            }
            ControlFlow::Continue(())
        }
    }

    let parameters = function.params.iter().map(|parameter| &parameter.name).collect();
    let mut fields = LambdaFieldRewriter { parameters, has_changed: false };
    let mut body = function.body.clone();
    walk_expr_mut(&mut body, &mut fields);
    fields.has_changed.then(|| Expr::Lambda(LambdaFunction { body, ..function.clone() }))
}

fn translate_binary(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let both = || vec![left.clone(), right.clone()];
    match op {
        BinaryOperator::PGExp | BinaryOperator::BitwiseXor => {
            let base = cast_expr(left.clone(), DataType::Double(ExactNumberInfo::None));
            Some(function_call("power", vec![base, right.clone()]))
        }
        BinaryOperator::MyIntegerDivide => Some(cast_expr(
            binary_op(left, BinaryOperator::DuckIntegerDivide, right),
            DataType::BigInt(None),
        )),
        BinaryOperator::Custom(sign) if sign == "->" => Some(function_call("json_extract", both())),
        BinaryOperator::Custom(sign) if sign == "->>" => {
            Some(function_call("json_extract_string", both()))
        }
        BinaryOperator::HashArrow => {
            Some(function_call("json_extract_path", json_path_arguments(left, right)?))
        }
        BinaryOperator::HashLongArrow => {
            Some(function_call("json_extract_path_text", json_path_arguments(left, right)?))
        }
        BinaryOperator::Regexp => Some(binary_op(left, BinaryOperator::PGRegexMatch, right)),
        BinaryOperator::Overlaps => {
            let (Expr::Tuple(left), Expr::Tuple(right)) = (left, right) else { return None };
            let ([from, to], [start, end]) = (left.as_slice(), right.as_slice()) else {
                return None;
            };
            let before = binary_op(from, BinaryOperator::Lt, end);
            let after = binary_op(start, BinaryOperator::Lt, to);
            Some(parenthesize(binary_op(&before, BinaryOperator::And, &after)))
        }
        // PostgreSQL's `<<=`: an address in a range, or a range in one at least as wide. A literal range
        // marks it.
        BinaryOperator::PGBitwiseShiftLeft if is_address_range(right) => {
            Some(function_call("is_subnet_of", vec![right.clone(), left.clone()]))
        }
        BinaryOperator::PGBitwiseShiftRight if is_address_range(left) => {
            Some(function_call("is_subnet_of", vec![left.clone(), right.clone()]))
        }
        BinaryOperator::PGStartsWith => Some(function_call("starts_with", both())),
        BinaryOperator::PGOverlap => Some(function_call("array_has_any", both())),
        _ => None,
    }
}

/// Returns the text of a number with a decimal point, which a cast to DECIMAL takes digit by digit: the
/// DOUBLE 1.005 is less than 1.005.
fn decimal_literal_text(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => decimal_literal_text(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match decimal_literal_text(expr)? {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. })
                if !text.starts_with('-') =>
            {
                Some(Expr::value(Value::SingleQuotedString(format!("-{text}"))))
            }
            _ => None,
        },
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. })
            if text.contains('.') && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') =>
        {
            Some(Expr::value(Value::SingleQuotedString(text.clone())))
        }
        _ => None,
    }
}

/// Returns true if an expression is a text literal with a range of addresses: `'10.0.0.0/8'`.
fn is_address_range(expr: &Expr) -> bool {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = expr else {
        return false;
    };
    text.split_once('/').is_some_and(|(address, bits)| {
        address.parse::<std::net::IpAddr>().is_ok() && bits.parse::<u8>().is_ok()
    })
}

pub(super) fn cast_expr(expr: Expr, data_type: DataType) -> Expr {
    let expr = Box::new(expr);
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

pub(super) fn binary_op(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(parenthesize(left.clone())),
        op,
        right: Box::new(parenthesize(right.clone())),
    }
}

/// Translates `items[1].sku` into `items[1]['sku']`, and `items[:2]` into `items[1:2]`.
fn translate_access(one: &AccessExpr) -> AccessExpr {
    let number = |number: &str| Some(Expr::value(Value::Number(number.into(), false)));
    match one {
        AccessExpr::Dot(Expr::Identifier(field)) => {
            let index = Expr::value(Value::SingleQuotedString(normalize_ident(field)));
            AccessExpr::Subscript(Subscript::Index { index })
        }
        AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None })
            if lower_bound.is_none() || upper_bound.is_none() =>
        {
            let last = || {
                let one = Expr::value(Value::Number("1".into(), false));
                Some(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(one) })
            };
            AccessExpr::Subscript(Subscript::Slice {
                lower_bound: lower_bound.clone().or_else(|| number("1")),
                upper_bound: upper_bound.clone().or_else(last),
                stride: None,
            })
        }
        other => other.clone(),
    }
}

fn is_text_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), span: _ }))
}

/// Returns a pattern's first capture group, or the whole match without groups; null without a match.
fn first_regex_group(text: &Expr, pattern: &Expr) -> Expr {
    let groups = function_call("regexp_match", vec![text.clone(), pattern.clone()]);
    function_call("array_element", vec![groups, Expr::value(Value::Number("1".into(), false))])
}

/// Returns a document and the keys of a path `'{a,b}'` as arguments.
fn json_path_arguments(document: &Expr, path: &Expr) -> Option<Vec<Expr>> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(path), .. }) = path else {
        return None;
    };
    let path = path.strip_prefix('{')?.strip_suffix('}')?;
    let keys = path.split(',').map(|key| key.trim().trim_matches('"').to_owned());
    let keys = keys.map(|key| Expr::value(Value::SingleQuotedString(key)));
    Some(std::iter::once(document.clone()).chain(keys).collect())
}

/// Rewrites a LIKE pattern with an escape character of its own to the default escape, a backslash.
fn rewrite_like_escape(pattern: &Expr, escape: &ValueWithSpan) -> Option<Expr> {
    let Value::SingleQuotedString(escape) = &escape.value else { return None };
    let mut signs = escape.chars();
    let (sign, None) = (signs.next(), signs.next()) else { return None };
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(pattern), .. }) = pattern
    else {
        return None;
    };
    let mut made = String::with_capacity(pattern.len() + 4);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let (letter, is_escaped) = match Some(letter) == sign {
            true => (letters.next()?, true),
            false => (letter, false),
        };
        if letter == '\\' || (is_escaped && matches!(letter, '%' | '_')) {
            made.push('\\');
        }
        made.push(letter);
    }
    Some(Expr::value(Value::SingleQuotedString(made)))
}

/// Translates `x LIKE ALL ('a%', '%b')`, which the parser reads as a call, into
/// `(x LIKE 'a%' AND x LIKE '%b')`.
fn translate_like_all(negated: bool, expr: &Expr, pattern: &Expr, folded: bool) -> Option<Expr> {
    let Expr::Function(call) = pattern else { return None };
    if !call.name.to_string().eq_ignore_ascii_case("all") {
        return None;
    }
    let FunctionArguments::List(list) = &call.args else { return None };
    let patterns = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(pattern)) => {
            let (expr, pattern) = (Box::new(expr.clone()), Box::new(pattern.clone()));
            Some(match folded {
                true => Expr::ILike { negated, any: false, expr, pattern, escape_char: None },
                false => Expr::Like { negated, any: false, expr, pattern, escape_char: None },
            })
        }
        _ => None,
    });
    let all: Vec<Expr> = patterns.collect::<Option<_>>()?;
    all.into_iter()
        .reduce(|left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        })
        .map(|all| Expr::Nested(Box::new(all)))
}

/// Translates `x LIKE ANY ('a%', 'b%')` into `(x LIKE 'a%' OR x LIKE 'b%')`.
fn translate_like_any(negated: bool, expr: &Expr, pattern: &Expr, folded: bool) -> Option<Expr> {
    let patterns: Vec<&Expr> = match pattern {
        Expr::Tuple(patterns) => patterns.iter().collect(),
        Expr::Array(array) => array.elem.iter().collect(),
        Expr::Nested(one) if matches!(one.as_ref(), Expr::Array(_)) => {
            return translate_like_any(negated, expr, one, folded);
        }
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
