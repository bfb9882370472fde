//! Standard `SIMILAR TO`: `%` matches any text, `_` any character, and the pattern matches the whole text.
//!
//! DataFusion treats the pattern as a regular expression that may match anywhere. It also reports that a null does not
//! match `.*`.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::{BinaryExpr, Expr, Like, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

use tidemill_planning::plan_rewriting::rewrite_all_expressions;

/// An analyzer rule that translates `SIMILAR TO` to regular expressions.
#[derive(Debug)]
pub(crate) struct SimilarToRule;

impl AnalyzerRule for SimilarToRule {
    fn name(&self) -> &'static str {
        "similar_to"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_expressions(plan, &|expr, _| rewrite_pattern_match(expr))
    }
}

fn rewrite_pattern_match(expr: Expr) -> PlanResult<Transformed<Expr>> {
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr
        && matches!(
            op,
            Operator::RegexMatch
                | Operator::RegexNotMatch
                | Operator::RegexIMatch
                | Operator::RegexNotIMatch
        )
        && let Expr::Literal(pattern, _) = right.as_ref()
        && pattern.try_as_str() == Some(Some(".*"))
    {
        // DataFusion turns `.*` into a check for a value, in which a null does not match instead of being null.
        let all = BinaryExpr::new(left.clone(), *op, Box::new(lit("(?s:.*)")));
        return Ok(Transformed::yes(Expr::BinaryExpr(all)));
    }
    let Expr::SimilarTo(Like { negated, expr, pattern, escape_char, .. }) = expr else {
        return Ok(Transformed::no(expr));
    };
    let pattern = match pattern.as_ref() {
        Expr::Literal(value, _) if value.is_null() => {
            return Ok(Transformed::yes(Expr::Literal(ScalarValue::Boolean(None), None)));
        }
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    };
    let Some(pattern) = pattern else {
        return plan_err!(
            "the pattern of SIMILAR TO is a constant text; `x ~ y` matches a regular expression that \
             is computed"
        );
    };
    let expression = match pattern_to_regex(pattern, escape_char.unwrap_or('\\')) {
        Some(expression) => expression,
        None => return plan_err!("the pattern `{pattern}` of SIMILAR TO ends within an escape"),
    };
    if let Err(error) = regex::Regex::new(&expression) {
        // The text before it shows the generated expression.
        let text = error.to_string();
        let reason = text.rsplit("error: ").next().unwrap_or_default();
        return plan_err!("the pattern `{pattern}` of SIMILAR TO is not understood: {reason}");
    }
    let operator = if negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
    let matched = BinaryExpr::new(expr, operator, Box::new(lit(expression)));
    Ok(Transformed::yes(Expr::BinaryExpr(matched)))
}

/// Translates a pattern to a regular expression; returns `None` if it ends within an escape.
fn pattern_to_regex(pattern: &str, escape: char) -> Option<String> {
    let mut found = String::from("^(?s:");
    let mut letters = pattern.chars();
    let mut within_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            _ if letter == escape => push_escaped(letters.next()?, &mut found),
            ']' if within_class => {
                within_class = false;
                found.push(']');
            }
            // Plain characters in SQL, special ones in the regex syntax.
            '[' | '&' | '~' | '\\' if within_class => push_escaped(letter, &mut found),
            _ if within_class => found.push(letter),
            '[' => {
                within_class = true;
                found.push('[');
            }
            '%' => found.push_str(".*"),
            '_' => found.push('.'),
            '(' => found.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => found.push(letter),
            _ => push_escaped(letter, &mut found),
        }
    }
    found.push_str(")$");
    Some(found)
}

fn push_escaped(letter: char, found: &mut String) {
    let mut bytes = [0; 4];
    found.push_str(&regex::escape(letter.encode_utf8(&mut bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_to_matches_whole_text() {
        for (pattern, text, expected) in [
            ("b", "abc", false),
            ("%b%", "abc", true),
            ("a_c", "abc", true),
            ("(a|B).*", "straße", false),
            ("(a|s)%", "straße", true),
            ("a.c", "abc", false),
            ("a.c", "a.c", true),
            ("[a-c]+", "abc", true),
            ("[^a-c]{2}", "de", true),
            ("[[&&b]", "&", true),
            ("a\\%", "a%", true),
            ("a\\%", "ab", false),
            ("^a$", "a", false),
            ("a%b", "a\nb", true),
            ("a|b", "ab", false),
            ("", "", true),
        ] {
            let expression = regex::Regex::new(&pattern_to_regex(pattern, '\\').unwrap()).unwrap();
            assert_eq!(expression.is_match(text), expected, "{text} SIMILAR TO {pattern}");
        }
        assert_eq!(pattern_to_regex("a\\", '\\'), None);
        assert_eq!(pattern_to_regex("a!%", '!').as_deref(), Some("^(?s:a%)$"));
    }
}
