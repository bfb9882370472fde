//! Checks of expressions.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DateTimeField,
    DictionaryField, Expr, Interval, Map, MapEntry, Subscript, TypedString, UnaryOperator, Value,
    ValueWithSpan, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec,
};
use tidemill_base::error::{Error, Result};

use crate::syntax::{ClauseContext, INLINE_WINDOW_HINT, SyntaxChecker, refuse_clause};

impl SyntaxChecker<'_> {
    fn check_exprs<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Expr>,
        place: ClauseContext,
    ) -> Result<()> {
        exprs.into_iter().try_for_each(|expr| self.check_expr(expr, place))
    }

    /// Checks an expression; its subqueries are checked in contexts of their own.
    pub(super) fn check_expr(&self, expr: &Expr, place: ClauseContext) -> Result<()> {
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Ok(()),
            Expr::CompoundFieldAccess { root, access_chain } => {
                self.check_expr(root, place)?;
                access_chain.iter().try_for_each(|access| self.check_access(access, place))
            }
            Expr::IsFalse(of)
            | Expr::IsNotFalse(of)
            | Expr::IsTrue(of)
            | Expr::IsNotTrue(of)
            | Expr::IsNull(of)
            | Expr::IsNotNull(of)
            | Expr::IsUnknown(of)
            | Expr::IsNotUnknown(of)
            | Expr::Nested(of) => self.check_expr(of, place),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.check_exprs([left.as_ref(), right], place)
            }
            Expr::InList { expr, list, negated: _ } => {
                self.check_expr(expr, place)?;
                self.check_exprs(list, place)
            }
            Expr::InSubquery { expr, subquery, negated: _ } => {
                self.check_expr(expr, place)?;
                self.check_query(subquery, place)
            }
            Expr::Exists { subquery, negated: _ } | Expr::Subquery(subquery) => {
                self.check_query(subquery, place)
            }
            Expr::Between { expr, negated: _, low, high } => {
                self.check_exprs([expr.as_ref(), low, high], place)
            }
            Expr::BinaryOp { .. } => self.check_operator_chain(expr, place),
            Expr::Like { negated: _, any, expr, pattern, escape_char }
            | Expr::ILike { negated: _, any, expr, pattern, escape_char } => {
                if *any {
                    return refuse_clause("LIKE ANY", "write x LIKE 'a%' OR x LIKE 'b%'");
                }
                match escape_char.as_ref().map(|escape| &escape.value) {
                    None => {}
                    Some(Value::SingleQuotedString(escape)) if escape == "\\" => {}
                    Some(escape) => {
                        return refuse_clause(
                            format!("ESCAPE {escape}"),
                            "a backslash escapes % and _ without being named",
                        );
                    }
                }
                self.check_exprs([expr.as_ref(), pattern], place)
            }
            Expr::SimilarTo { negated: _, expr, pattern, escape_char } => {
                match escape_char.as_ref().map(|escape| &escape.value) {
                    None => {}
                    Some(Value::SingleQuotedString(escape)) if escape.chars().count() == 1 => {}
                    Some(escape) => {
                        let what = format!("SIMILAR TO … ESCAPE {escape}");
                        return refuse_clause(what, "an escape is one character: ESCAPE '!'");
                    }
                }
                self.check_exprs([expr.as_ref(), pattern], place)
            }
            // `SOME` is another word for `ANY`.
            Expr::AnyOp { left, compare_op, right, is_some: _ } => {
                check_binary_operator(compare_op)?;
                self.check_exprs([left.as_ref(), right], place)
            }
            Expr::AllOp { left, compare_op, right } => {
                check_binary_operator(compare_op)?;
                self.check_exprs([left.as_ref(), right], place)
            }
            Expr::UnaryOp { op, expr } => {
                check_unary_operator(op)?;
                self.check_expr(expr, place)
            }
            Expr::Cast { kind, expr, data_type, array, format } => {
                match kind {
                    CastKind::Cast
                    | CastKind::TryCast
                    | CastKind::SafeCast
                    | CastKind::DoubleColon => {}
                }
                if *array {
                    return refuse_clause("CAST … ARRAY", "write the type with brackets: BIGINT[]");
                }
                if let Some(format) = format {
                    return refuse_clause(
                        format!("CAST … FORMAT {format}"),
                        "to_timestamp(text, '%d.%m.%Y') and to_char(time, '%d.%m.%Y') take formats",
                    );
                }
                self.check_data_type(data_type)?;
                self.check_expr(expr, place)
            }
            Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: _ }) => {
                self.check_data_type(data_type)?;
                self.check_value(value)
            }
            Expr::AtTimeZone { timestamp, time_zone } => match time_zone.as_ref() {
                Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(zone), span: _ }) => {
                    if Tz::from_str(zone).is_err() {
                        return Err(Error::usage_with_hint(
                            format!("there is no time zone `{zone}`"),
                            "a zone is 'Europe/Berlin', 'UTC' or '+02:00'",
                        ));
                    }
                    self.check_expr(timestamp, place)
                }
                other => refuse_clause(
                    format!("AT TIME ZONE {other}"),
                    "a zone is a text in single quotes: AT TIME ZONE 'Europe/Berlin'",
                ),
            },
            // `date_part` knows the fields, and refuses others by name.
            Expr::Extract { field: _, syntax: _, expr } => self.check_expr(expr, place),
            Expr::Ceil { expr: of, field } | Expr::Floor { expr: of, field } => match field {
                CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => {
                    self.check_expr(of, place)
                }
                CeilFloorKind::DateTimeField(_) => {
                    refuse_clause(expr, "date_trunc('day', time) rounds a time down")
                }
                CeilFloorKind::Scale(_) => refuse_clause(expr, "write floor(x * 100) / 100"),
            },
            Expr::Position { expr, r#in } => self.check_exprs([expr.as_ref(), r#in], place),
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                if substring_from.is_none() && substring_for.is_none() {
                    return refuse_clause(
                        format!("substring({expr})"),
                        "say from where: substring(x, 2)",
                    );
                }
                self.check_expr(expr, place)?;
                self.check_exprs(
                    substring_from.as_deref().into_iter().chain(substring_for.as_deref()),
                    place,
                )
            }
            Expr::Trim { trim_where: _, trim_what, expr: of, trim_characters } => {
                if let Some([_, _, ..]) = trim_characters.as_deref() {
                    return refuse_clause(expr, "give all characters as one text: trim(x, 'ab')");
                }
                self.check_expr(of, place)?;
                self.check_exprs(trim_what.as_deref(), place)?;
                self.check_exprs(trim_characters.iter().flatten(), place)
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                self.check_exprs([expr.as_ref(), overlay_what, overlay_from], place)?;
                self.check_exprs(overlay_for.as_deref(), place)
            }
            Expr::Value(value) => self.check_value(value),
            Expr::Function(function) => self.check_function(function, place),
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.check_exprs(operand.as_deref(), place)?;
                for CaseWhen { condition, result } in conditions {
                    self.check_exprs([condition, result], place)?;
                }
                self.check_exprs(else_result.as_deref(), place)
            }
            Expr::Tuple(values) => self.check_exprs(values, place),
            Expr::Struct { values, fields } => {
                if !fields.is_empty() {
                    return refuse_clause(expr, "named_struct('a', 1, 'b', 2) makes a struct");
                }
                values.iter().try_for_each(|value| match value {
                    Expr::Named { expr, name: _ } => self.check_expr(expr, place),
                    value => self.check_expr(value, place),
                })
            }
            Expr::Dictionary(fields) => fields
                .iter()
                .try_for_each(|DictionaryField { key: _, value }| self.check_expr(value, place)),
            Expr::Map(Map { entries }) => entries.iter().try_for_each(|MapEntry { key, value }| {
                self.check_exprs([key.as_ref(), value], place)
            }),
            // `ARRAY[…]` and `[…]` mean the same.
            Expr::Array(Array { elem, named: _ }) => self.check_exprs(elem, place),
            Expr::Interval(interval) => self.check_interval(interval, place),
            Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) => {
                refuse_clause(expr, "it stands in GROUP BY, beside no operator")
            }
            Expr::JsonAccess { value, path } => {
                let path = path.to_string();
                refuse_clause(
                    expr,
                    &format!(
                        "fields are named with dots: {value}.{}",
                        path.trim_start_matches(':')
                    ),
                )
            }
            Expr::InUnnest { .. } => refuse_clause("IN UNNEST", "write array_has(list, x)"),
            Expr::RLike { .. } => refuse_clause("RLIKE", REGEX_HINT),
            Expr::Convert { .. } => refuse_clause("CONVERT", "write CAST(x AS TYPE)"),
            Expr::Collate { expr: _, collation } => refuse_clause(
                format!("COLLATE {collation}"),
                "text is compared by its bytes; lower(x) folds case",
            ),
            Expr::IsNormalized { .. } => refuse_clause("IS NORMALIZED", ""),
            Expr::Prefixed { prefix, value } => {
                refuse_clause(format!("{prefix} {value}"), "write the text alone")
            }
            Expr::Named { .. } => refuse_clause(expr, "names stand in struct(x AS a)"),
            Expr::MatchAgainst { .. } => refuse_clause("MATCH … AGAINST", REGEX_HINT),
            Expr::Wildcard(AttachedToken(_)) | Expr::QualifiedWildcard(_, AttachedToken(_)) => {
                refuse_clause(expr, "* stands alone in a select list, or in count(*)")
            }
            Expr::OuterJoin(_) => refuse_clause("(+)", "write LEFT JOIN … ON"),
            Expr::Prior(_) => refuse_clause("PRIOR", "WITH RECURSIVE follows parents and children"),
            Expr::Lambda(_) => {
                refuse_clause(expr, "unnest(list) in a subquery gives rows to calculate with")
            }
            Expr::MemberOf(_) => refuse_clause("MEMBER OF", "write array_has(list, x)"),
        }
    }

    /// Checks a chain of operators, which is as deep as it is long, without recursion.
    fn check_operator_chain(&self, expr: &Expr, place: ClauseContext) -> Result<()> {
        let mut rest = vec![expr];
        while let Some(expr) = rest.pop() {
            match expr {
                Expr::BinaryOp { left, op, right } => {
                    check_binary_operator(op)?;
                    rest.extend([right.as_ref(), left]);
                }
                other => self.check_expr(other, place)?,
            }
        }
        Ok(())
    }

    fn check_access(&self, access: &AccessExpr, place: ClauseContext) -> Result<()> {
        match access {
            AccessExpr::Dot(Expr::Identifier(_)) => Ok(()),
            AccessExpr::Dot(Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(_) | Value::DoubleQuotedString(_),
                span: _,
            })) => Ok(()),
            AccessExpr::Dot(other) => refuse_clause(
                format!(".{other}"),
                "a field is named by its name, or by a text in brackets",
            ),
            AccessExpr::Subscript(Subscript::Index { index }) => self.check_expr(index, place),
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
                match (lower_bound, upper_bound) {
                    (Some(low), Some(high)) => {
                        self.check_exprs([low, high].into_iter().chain(stride), place)
                    }
                    _ => refuse_clause(
                        "a slice without both ends",
                        "array_slice(list, 2, array_length(list)) has both",
                    ),
                }
            }
        }
    }

    fn check_interval(&self, interval: &Interval, place: ClauseContext) -> Result<()> {
        let Interval {
            value,
            leading_field,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        } = interval;
        if leading_precision.is_some()
            || last_field.is_some()
            || fractional_seconds_precision.is_some()
        {
            return refuse_clause(interval, "write INTERVAL '1 day 2 hours'");
        }
        let amount = match value.as_ref() {
            Expr::Value(ValueWithSpan {
                value: Value::Number(amount, _) | Value::SingleQuotedString(amount),
                span: _,
            }) => Some(amount),
            _ => None,
        };
        let is_number = amount.is_some_and(|amount| amount.trim().parse::<f64>().is_ok());
        if is_number && leading_field.is_none() {
            return refuse_clause(
                interval,
                "name the unit: INTERVAL '5 days', INTERVAL '90 seconds'",
            );
        }
        self.check_expr(value, place)
    }

    fn check_value(&self, ValueWithSpan { value, span: _ }: &ValueWithSpan) -> Result<()> {
        match value {
            Value::Number(..)
            | Value::SingleQuotedString(_)
            | Value::DoubleQuotedString(_)
            | Value::DollarQuotedString(_)
            | Value::EscapedStringLiteral(_)
            | Value::HexStringLiteral(_)
            | Value::Boolean(_)
            | Value::Null => Ok(()),
            Value::Placeholder(_) => refuse_clause(value, "write the value itself"),
            Value::TripleSingleQuotedString(_)
            | Value::TripleDoubleQuotedString(_)
            | Value::UnicodeStringLiteral(_)
            | Value::SingleQuotedByteStringLiteral(_)
            | Value::DoubleQuotedByteStringLiteral(_)
            | Value::TripleSingleQuotedByteStringLiteral(_)
            | Value::TripleDoubleQuotedByteStringLiteral(_)
            | Value::SingleQuotedRawStringLiteral(_)
            | Value::DoubleQuotedRawStringLiteral(_)
            | Value::TripleSingleQuotedRawStringLiteral(_)
            | Value::TripleDoubleQuotedRawStringLiteral(_)
            | Value::NationalStringLiteral(_)
            | Value::QuoteDelimitedStringLiteral(_)
            | Value::NationalQuoteDelimitedStringLiteral(_) => {
                refuse_clause(value, "a text is in single quotes, bytes are X'00ff'")
            }
        }
    }

    /// Checks the specification of a window. It may contain aggregates, but no other window.
    pub(super) fn check_window(&self, window: &WindowSpec) -> Result<()> {
        let WindowSpec { window_name, partition_by, order_by, window_frame } = window;
        if let Some(name) = window_name {
            return refuse_clause(format!("OVER ({name} …)"), INLINE_WINDOW_HINT);
        }
        let place = ClauseContext::group_clause("a window");
        self.check_exprs(partition_by, place)?;
        self.check_order_by_exprs(order_by, place)?;
        if let Some(WindowFrame { units, start_bound, end_bound }) = window_frame {
            match units {
                WindowFrameUnits::Rows | WindowFrameUnits::Range | WindowFrameUnits::Groups => {}
            }
            for bound in [Some(start_bound), end_bound.as_ref()].into_iter().flatten() {
                match bound {
                    WindowFrameBound::CurrentRow => {}
                    WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => {
                        self.check_exprs(
                            by.as_deref(),
                            ClauseContext::row_clause("a window's frame"),
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

const REGEX_HINT: &str = "x ~ 'pattern' matches a regular expression, ~* whatever the case";

fn check_unary_operator(op: &UnaryOperator) -> Result<()> {
    match op {
        UnaryOperator::Plus | UnaryOperator::Minus | UnaryOperator::Not => Ok(()),
        UnaryOperator::BangNot => refuse_clause(op, "write NOT"),
        UnaryOperator::PGAbs => refuse_clause(op, "write abs(x)"),
        UnaryOperator::PGCubeRoot => refuse_clause(op, "write cbrt(x)"),
        UnaryOperator::PGSquareRoot => refuse_clause(op, "write sqrt(x)"),
        UnaryOperator::PGPostfixFactorial | UnaryOperator::PGPrefixFactorial => {
            refuse_clause(op, "write factorial(x)")
        }
        UnaryOperator::BitwiseNot => refuse_clause(op, "write -1 - x"),
        UnaryOperator::AtDashAt
        | UnaryOperator::DoubleAt
        | UnaryOperator::Hash
        | UnaryOperator::QuestionDash
        | UnaryOperator::QuestionPipe => refuse_clause(op, ""),
    }
}

/// Hint for access to fields of JSON.
const JSON_FIELD_HINT: &str = "fields of JSON are named with dots: a.b, a['b']; --promote makes columns of JSON in a \
                      string; a function stands where one is taken: array_filter(list, x -> x > 1)";

fn check_binary_operator(op: &BinaryOperator) -> Result<()> {
    match op {
        BinaryOperator::Plus
        | BinaryOperator::Minus
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::DuckIntegerDivide
        | BinaryOperator::Modulo
        | BinaryOperator::StringConcat
        | BinaryOperator::Gt
        | BinaryOperator::Lt
        | BinaryOperator::GtEq
        | BinaryOperator::LtEq
        | BinaryOperator::Spaceship
        | BinaryOperator::Eq
        | BinaryOperator::NotEq
        | BinaryOperator::And
        | BinaryOperator::Or
        | BinaryOperator::BitwiseOr
        | BinaryOperator::BitwiseAnd
        | BinaryOperator::PGBitwiseShiftLeft
        | BinaryOperator::PGBitwiseShiftRight
        | BinaryOperator::PGRegexMatch
        | BinaryOperator::PGRegexIMatch
        | BinaryOperator::PGRegexNotMatch
        | BinaryOperator::PGRegexNotIMatch
        | BinaryOperator::PGLikeMatch
        | BinaryOperator::PGILikeMatch
        | BinaryOperator::PGNotLikeMatch
        | BinaryOperator::PGNotILikeMatch
        // Containment of lists.
        | BinaryOperator::AtArrow
        | BinaryOperator::ArrowAt => Ok(()),
        // Some databases read these as a power, others as exclusive or of bits.
        BinaryOperator::BitwiseXor | BinaryOperator::PGBitwiseXor | BinaryOperator::PGExp => refuse_clause(
            op,
            "write power(a, b); the exclusive or of bits is (a | b) - (a & b)",
        ),
        // The planner would read it as the exclusive or of bits.
        BinaryOperator::Xor => refuse_clause(op, "write a <> b of two booleans"),
        BinaryOperator::MyIntegerDivide => refuse_clause(op, "a // b divides without a rest"),
        BinaryOperator::Match | BinaryOperator::Regexp => refuse_clause(op, REGEX_HINT),
        BinaryOperator::PGStartsWith => refuse_clause(op, "write starts_with(x, 'a')"),
        BinaryOperator::Custom(sign) if sign == "->" || sign == "->>" => refuse_clause(op, JSON_FIELD_HINT),
        BinaryOperator::Arrow
        | BinaryOperator::LongArrow
        | BinaryOperator::HashArrow
        | BinaryOperator::HashLongArrow => refuse_clause(op, JSON_FIELD_HINT),
        BinaryOperator::PGOverlap => refuse_clause(op, "write array_has_any(a, b)"),
        BinaryOperator::Overlaps => refuse_clause(op, "write a_start < b_end AND b_start < a_end"),
        BinaryOperator::Assignment => refuse_clause(op, "write ="),
        BinaryOperator::AtAt
        | BinaryOperator::HashMinus
        | BinaryOperator::AtQuestion
        | BinaryOperator::Question
        | BinaryOperator::QuestionAnd
        | BinaryOperator::QuestionPipe
        | BinaryOperator::Custom(_)
        | BinaryOperator::PGCustomBinaryOperator(_)
        | BinaryOperator::DoubleHash
        | BinaryOperator::LtDashGt
        | BinaryOperator::AndLt
        | BinaryOperator::AndGt
        | BinaryOperator::LtLtPipe
        | BinaryOperator::PipeGtGt
        | BinaryOperator::AndLtPipe
        | BinaryOperator::PipeAndGt
        | BinaryOperator::LtCaret
        | BinaryOperator::GtCaret
        | BinaryOperator::QuestionHash
        | BinaryOperator::QuestionDash
        | BinaryOperator::QuestionDashPipe
        | BinaryOperator::QuestionDoublePipe
        | BinaryOperator::At
        | BinaryOperator::TildeEq => refuse_clause(op, ""),
    }
}
