//! Which expressions are honoured.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DateTimeField,
    DictionaryField, Expr, Interval, Map, MapEntry, Subscript, TypedString, UnaryOperator, Value,
    ValueWithSpan, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec,
};
use tidemill_base::error::{Error, Result};

use super::{Place, WRITE_WINDOW_OUT, Walk, refused};

impl Walk<'_> {
    fn exprs<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>, place: Place) -> Result<()> {
        exprs.into_iter().try_for_each(|expr| self.expr(expr, place))
    }

    /// Looks at an expression; its subqueries are places of their own.
    pub(super) fn expr(&self, expr: &Expr, place: Place) -> Result<()> {
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Ok(()),
            Expr::CompoundFieldAccess { root, access_chain } => {
                self.expr(root, place)?;
                access_chain.iter().try_for_each(|access| self.access(access, place))
            }
            Expr::IsFalse(of)
            | Expr::IsNotFalse(of)
            | Expr::IsTrue(of)
            | Expr::IsNotTrue(of)
            | Expr::IsNull(of)
            | Expr::IsNotNull(of)
            | Expr::IsUnknown(of)
            | Expr::IsNotUnknown(of)
            | Expr::Nested(of) => self.expr(of, place),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.exprs([left.as_ref(), right], place)
            }
            Expr::InList { expr, list, negated: _ } => {
                self.expr(expr, place)?;
                self.exprs(list, place)
            }
            Expr::InSubquery { expr, subquery, negated: _ } => {
                self.expr(expr, place)?;
                self.query(subquery, place)
            }
            Expr::Exists { subquery, negated: _ } | Expr::Subquery(subquery) => {
                self.query(subquery, place)
            }
            Expr::Between { expr, negated: _, low, high } => {
                self.exprs([expr.as_ref(), low, high], place)
            }
            Expr::BinaryOp { .. } => self.binary(expr, place),
            Expr::Like { negated: _, any, expr, pattern, escape_char }
            | Expr::ILike { negated: _, any, expr, pattern, escape_char } => {
                if *any {
                    return refused("LIKE ANY", "write x LIKE 'a%' OR x LIKE 'b%'");
                }
                match escape_char.as_ref().map(|escape| &escape.value) {
                    None => {}
                    Some(Value::SingleQuotedString(escape)) if escape == "\\" => {}
                    Some(escape) => {
                        return refused(
                            format!("ESCAPE {escape}"),
                            "a backslash escapes % and _ without being named",
                        );
                    }
                }
                self.exprs([expr.as_ref(), pattern], place)
            }
            Expr::SimilarTo { negated: _, expr, pattern, escape_char } => {
                match escape_char.as_ref().map(|escape| &escape.value) {
                    None => {}
                    Some(Value::SingleQuotedString(escape)) if escape.chars().count() == 1 => {}
                    Some(escape) => {
                        let what = format!("SIMILAR TO … ESCAPE {escape}");
                        return refused(what, "an escape is one character: ESCAPE '!'");
                    }
                }
                self.exprs([expr.as_ref(), pattern], place)
            }
            // `SOME` is another word for `ANY`.
            Expr::AnyOp { left, compare_op, right, is_some: _ } => {
                binary_operator(compare_op)?;
                self.exprs([left.as_ref(), right], place)
            }
            Expr::AllOp { left, compare_op, right } => {
                binary_operator(compare_op)?;
                self.exprs([left.as_ref(), right], place)
            }
            Expr::UnaryOp { op, expr } => {
                unary_operator(op)?;
                self.expr(expr, place)
            }
            Expr::Cast { kind, expr, data_type, array, format } => {
                match kind {
                    CastKind::Cast
                    | CastKind::TryCast
                    | CastKind::SafeCast
                    | CastKind::DoubleColon => {}
                }
                if *array {
                    return refused("CAST … ARRAY", "write the type with brackets: BIGINT[]");
                }
                if let Some(format) = format {
                    return refused(
                        format!("CAST … FORMAT {format}"),
                        "to_timestamp(text, '%d.%m.%Y') and to_char(time, '%d.%m.%Y') take formats",
                    );
                }
                self.data_type(data_type)?;
                self.expr(expr, place)
            }
            Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: _ }) => {
                self.data_type(data_type)?;
                self.value(value)
            }
            Expr::AtTimeZone { timestamp, time_zone } => match time_zone.as_ref() {
                Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(zone), span: _ }) => {
                    if Tz::from_str(zone).is_err() {
                        return Err(Error::usage_with_hint(
                            format!("there is no time zone `{zone}`"),
                            "a zone is 'Europe/Berlin', 'UTC' or '+02:00'",
                        ));
                    }
                    self.expr(timestamp, place)
                }
                other => refused(
                    format!("AT TIME ZONE {other}"),
                    "a zone is a text in single quotes: AT TIME ZONE 'Europe/Berlin'",
                ),
            },
            // `date_part` knows fields, and refuses others by name.
            Expr::Extract { field: _, syntax: _, expr } => self.expr(expr, place),
            Expr::Ceil { expr: of, field } | Expr::Floor { expr: of, field } => match field {
                CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => self.expr(of, place),
                CeilFloorKind::DateTimeField(_) => {
                    refused(expr, "date_trunc('day', time) rounds a time down")
                }
                CeilFloorKind::Scale(_) => refused(expr, "write floor(x * 100) / 100"),
            },
            Expr::Position { expr, r#in } => self.exprs([expr.as_ref(), r#in], place),
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                if substring_from.is_none() && substring_for.is_none() {
                    return refused(
                        format!("substring({expr})"),
                        "say from where: substring(x, 2)",
                    );
                }
                self.expr(expr, place)?;
                self.exprs(
                    substring_from.as_deref().into_iter().chain(substring_for.as_deref()),
                    place,
                )
            }
            Expr::Trim { trim_where: _, trim_what, expr: of, trim_characters } => {
                if let Some([_, _, ..]) = trim_characters.as_deref() {
                    return refused(expr, "give all characters as one text: trim(x, 'ab')");
                }
                self.expr(of, place)?;
                self.exprs(trim_what.as_deref(), place)?;
                self.exprs(trim_characters.iter().flatten(), place)
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                self.exprs([expr.as_ref(), overlay_what, overlay_from], place)?;
                self.exprs(overlay_for.as_deref(), place)
            }
            Expr::Value(value) => self.value(value),
            Expr::Function(function) => self.function(function, place),
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.exprs(operand.as_deref(), place)?;
                for CaseWhen { condition, result } in conditions {
                    self.exprs([condition, result], place)?;
                }
                self.exprs(else_result.as_deref(), place)
            }
            Expr::Tuple(values) => self.exprs(values, place),
            Expr::Struct { values, fields } => {
                if !fields.is_empty() {
                    return refused(expr, "named_struct('a', 1, 'b', 2) makes a struct");
                }
                values.iter().try_for_each(|value| match value {
                    Expr::Named { expr, name: _ } => self.expr(expr, place),
                    value => self.expr(value, place),
                })
            }
            Expr::Dictionary(fields) => fields
                .iter()
                .try_for_each(|DictionaryField { key: _, value }| self.expr(value, place)),
            Expr::Map(Map { entries }) => entries
                .iter()
                .try_for_each(|MapEntry { key, value }| self.exprs([key.as_ref(), value], place)),
            // `ARRAY[…]` and `[…]` are one.
            Expr::Array(Array { elem, named: _ }) => self.exprs(elem, place),
            Expr::Interval(interval) => self.interval(interval, place),
            Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) => {
                refused(expr, "it stands in GROUP BY, beside no operator")
            }
            Expr::JsonAccess { value, path } => {
                let path = path.to_string();
                refused(
                    expr,
                    &format!(
                        "fields are named with dots: {value}.{}",
                        path.trim_start_matches(':')
                    ),
                )
            }
            Expr::InUnnest { .. } => refused("IN UNNEST", "write array_has(list, x)"),
            Expr::RLike { .. } => refused("RLIKE", REGULAR),
            Expr::Convert { .. } => refused("CONVERT", "write CAST(x AS TYPE)"),
            Expr::Collate { expr: _, collation } => refused(
                format!("COLLATE {collation}"),
                "text is compared by its bytes; lower(x) folds case",
            ),
            Expr::IsNormalized { .. } => refused("IS NORMALIZED", ""),
            Expr::Prefixed { prefix, value } => {
                refused(format!("{prefix} {value}"), "write the text alone")
            }
            Expr::Named { .. } => refused(expr, "names stand in struct(x AS a)"),
            Expr::MatchAgainst { .. } => refused("MATCH … AGAINST", REGULAR),
            Expr::Wildcard(AttachedToken(_)) | Expr::QualifiedWildcard(_, AttachedToken(_)) => {
                refused(expr, "* stands alone in a select list, or in count(*)")
            }
            Expr::OuterJoin(_) => refused("(+)", "write LEFT JOIN … ON"),
            Expr::Prior(_) => refused("PRIOR", "WITH RECURSIVE follows parents and children"),
            Expr::Lambda(_) => {
                refused(expr, "unnest(list) in a subquery gives rows to calculate with")
            }
            Expr::MemberOf(_) => refused("MEMBER OF", "write array_has(list, x)"),
        }
    }

    /// A chain of operators, which is as deep as it is long, without a call for each.
    fn binary(&self, expr: &Expr, place: Place) -> Result<()> {
        let mut rest = vec![expr];
        while let Some(expr) = rest.pop() {
            match expr {
                Expr::BinaryOp { left, op, right } => {
                    binary_operator(op)?;
                    rest.extend([right.as_ref(), left]);
                }
                other => self.expr(other, place)?,
            }
        }
        Ok(())
    }

    fn access(&self, access: &AccessExpr, place: Place) -> Result<()> {
        match access {
            AccessExpr::Dot(Expr::Identifier(_)) => Ok(()),
            AccessExpr::Dot(Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(_) | Value::DoubleQuotedString(_),
                span: _,
            })) => Ok(()),
            AccessExpr::Dot(other) => refused(
                format!(".{other}"),
                "a field is named by its name, or by a text in brackets",
            ),
            AccessExpr::Subscript(Subscript::Index { index }) => self.expr(index, place),
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
                match (lower_bound, upper_bound) {
                    (Some(low), Some(high)) => {
                        self.exprs([low, high].into_iter().chain(stride), place)
                    }
                    _ => refused(
                        "a slice without both ends",
                        "array_slice(list, 2, array_length(list)) has both",
                    ),
                }
            }
        }
    }

    fn interval(&self, interval: &Interval, place: Place) -> Result<()> {
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
            return refused(interval, "write INTERVAL '1 day 2 hours'");
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
            return refused(interval, "name the unit: INTERVAL '5 days', INTERVAL '90 seconds'");
        }
        self.expr(value, place)
    }

    fn value(&self, ValueWithSpan { value, span: _ }: &ValueWithSpan) -> Result<()> {
        match value {
            Value::Number(..)
            | Value::SingleQuotedString(_)
            | Value::DoubleQuotedString(_)
            | Value::DollarQuotedString(_)
            | Value::EscapedStringLiteral(_)
            | Value::HexStringLiteral(_)
            | Value::Boolean(_)
            | Value::Null => Ok(()),
            Value::Placeholder(_) => refused(value, "write the value itself"),
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
                refused(value, "a text is in single quotes, bytes are X'00ff'")
            }
        }
    }

    /// What a window is over. Its rows may be of groups, but of no other window.
    pub(super) fn window(&self, window: &WindowSpec) -> Result<()> {
        let WindowSpec { window_name, partition_by, order_by, window_frame } = window;
        if let Some(name) = window_name {
            return refused(format!("OVER ({name} …)"), WRITE_WINDOW_OUT);
        }
        let place = Place::groups("a window");
        self.exprs(partition_by, place)?;
        self.ordered(order_by, place)?;
        if let Some(WindowFrame { units, start_bound, end_bound }) = window_frame {
            match units {
                WindowFrameUnits::Rows | WindowFrameUnits::Range | WindowFrameUnits::Groups => {}
            }
            for bound in [Some(start_bound), end_bound.as_ref()].into_iter().flatten() {
                match bound {
                    WindowFrameBound::CurrentRow => {}
                    WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => {
                        self.exprs(by.as_deref(), Place::rows("a window's frame"))?;
                    }
                }
            }
        }
        Ok(())
    }
}

const REGULAR: &str = "x ~ 'pattern' matches a regular expression, ~* whatever the case";

fn unary_operator(op: &UnaryOperator) -> Result<()> {
    match op {
        UnaryOperator::Plus | UnaryOperator::Minus | UnaryOperator::Not => Ok(()),
        UnaryOperator::BangNot => refused(op, "write NOT"),
        UnaryOperator::PGAbs => refused(op, "write abs(x)"),
        UnaryOperator::PGCubeRoot => refused(op, "write cbrt(x)"),
        UnaryOperator::PGSquareRoot => refused(op, "write sqrt(x)"),
        UnaryOperator::PGPostfixFactorial | UnaryOperator::PGPrefixFactorial => {
            refused(op, "write factorial(x)")
        }
        UnaryOperator::BitwiseNot => refused(op, "write -1 - x"),
        UnaryOperator::AtDashAt
        | UnaryOperator::DoubleAt
        | UnaryOperator::Hash
        | UnaryOperator::QuestionDash
        | UnaryOperator::QuestionPipe => refused(op, ""),
    }
}

/// How what JSON holds is reached.
const FIELDS: &str = "fields of JSON are named with dots: a.b, a['b']; --promote makes columns of JSON in a \
                      string; a function stands where one is taken: array_filter(list, x -> x > 1)";

fn binary_operator(op: &BinaryOperator) -> Result<()> {
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
        // Lists that hold one another.
        | BinaryOperator::AtArrow
        | BinaryOperator::ArrowAt => Ok(()),
        // What some take for the power is the exclusive or of bits to others.
        BinaryOperator::BitwiseXor | BinaryOperator::PGBitwiseXor | BinaryOperator::PGExp => refused(
            op,
            "write power(a, b); the exclusive or of bits is (a | b) - (a & b)",
        ),
        // The planner would take it for the exclusive or of bits.
        BinaryOperator::Xor => refused(op, "write a <> b of two booleans"),
        BinaryOperator::MyIntegerDivide => refused(op, "a // b divides without a rest"),
        BinaryOperator::Match | BinaryOperator::Regexp => refused(op, REGULAR),
        BinaryOperator::PGStartsWith => refused(op, "write starts_with(x, 'a')"),
        BinaryOperator::Custom(sign) if sign == "->" || sign == "->>" => refused(op, FIELDS),
        BinaryOperator::Arrow
        | BinaryOperator::LongArrow
        | BinaryOperator::HashArrow
        | BinaryOperator::HashLongArrow => refused(op, FIELDS),
        BinaryOperator::PGOverlap => refused(op, "write array_has_any(a, b)"),
        BinaryOperator::Overlaps => refused(op, "write a_start < b_end AND b_start < a_end"),
        BinaryOperator::Assignment => refused(op, "write ="),
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
        | BinaryOperator::TildeEq => refused(op, ""),
    }
}
