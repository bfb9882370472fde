//! Clauses of other databases, written as they are here.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, GroupByExpr, GroupByWithModifier, JoinConstraint, JoinOperator,
    LimitClause, OrderByKind, Query, Select, SetExpr, Top, TopQuantity, Value, ValueWithSpan,
};
use tidemill_base::error::{Error, Result};

use super::calls::{both, call_of};
use super::written;
use crate::asof;

/// `FETCH FIRST 3 ROWS ONLY`, `SELECT TOP 3` and `LIMIT 3 BY k`.
pub(super) fn of_query(query: &mut Query) {
    if query.limit_clause.is_none()
        && let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch
    {
        let limit = quantity.clone().unwrap_or_else(|| number(1));
        query.limit_clause = Some(limit_of(limit));
        query.fetch = None;
    }
    if let Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) = &query.limit_clause
        && limit_by.is_empty()
        && let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch
    {
        let limit = Some(quantity.clone().unwrap_or_else(|| number(1)));
        let offset = offset.clone();
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by: Vec::new() });
        query.fetch = None;
    }
    if query.limit_clause.is_none()
        && let SetExpr::Select(select) = query.body.as_mut()
        && let Some(Top { with_ties: false, percent: false, quantity: Some(quantity) }) =
            &select.top
    {
        let limit = match quantity {
            TopQuantity::Expr(expr) => expr.clone(),
            TopQuantity::Constant(count) => number(*count),
        };
        select.top = None;
        query.limit_clause = Some(limit_of(limit));
    }
    first_of_each(query);
}

/// `LIMIT 3 BY k` as `QUALIFY row_number() OVER (PARTITION BY k ORDER BY …) <= 3`.
fn first_of_each(query: &mut Query) {
    let Some(LimitClause::LimitOffset { limit, offset: None, limit_by }) = &mut query.limit_clause
    else {
        return;
    };
    let (false, Some(count), SetExpr::Select(select)) =
        (limit_by.is_empty(), limit.as_ref(), query.body.as_mut())
    else {
        return;
    };
    if select.distinct.is_some() {
        return;
    }
    let keys: Vec<String> = limit_by.iter().map(Expr::to_string).collect();
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(exprs)) => {
            let exprs: Vec<String> = exprs.iter().map(ToString::to_string).collect();
            format!(" ORDER BY {}", exprs.join(", "))
        }
        None => String::new(),
        Some(OrderByKind::All(_)) => return,
    };
    let text = format!("row_number() OVER (PARTITION BY {}{order}) <= {count}", keys.join(", "));
    let Ok(condition) = written(&text) else { return };
    select.qualify = Some(match select.qualify.take() {
        Some(own) => both(own, condition),
        None => condition,
    });
    query.limit_clause = None;
}

fn number(count: u64) -> Expr {
    Expr::value(Value::Number(count.to_string(), false))
}

fn limit_of(limit: Expr) -> LimitClause {
    LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by: Vec::new() }
}

/// `PREWHERE`, `GROUP BY a, b WITH ROLLUP`, `SEMI JOIN`, `ANTI JOIN`, `ASOF JOIN`.
pub(super) fn of_select(select: &mut Select) -> Result<()> {
    if let Some(before) = select.prewhere.take() {
        select.selection = Some(match select.selection.take() {
            Some(condition) => both(before, condition),
            None => before,
        });
    }
    if let GroupByExpr::Expressions(keys, modifiers) = &mut select.group_by
        && let [modifier] = modifiers.as_slice()
    {
        let sets = || keys.iter().map(|key| vec![key.clone()]).collect();
        let made = match modifier {
            GroupByWithModifier::Rollup => Some(Expr::Rollup(sets())),
            GroupByWithModifier::Cube => Some(Expr::Cube(sets())),
            GroupByWithModifier::Totals | GroupByWithModifier::GroupingSets(_) => None,
        };
        if let Some(made) = made {
            *keys = vec![made];
            modifiers.clear();
        }
    }
    for join in select.from.iter_mut().flat_map(|table| &mut table.joins) {
        let taken = std::mem::replace(
            &mut join.join_operator,
            JoinOperator::CrossJoin(JoinConstraint::None),
        );
        join.join_operator = match taken {
            JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
            JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
            JoinOperator::StraightJoin(constraint) => JoinOperator::Join(constraint),
            JoinOperator::AsOf { match_condition, constraint } => {
                as_of(match_condition, constraint)?
            }
            other => other,
        };
    }
    Ok(())
}

/// An ASOF join as a join whose comparison of times is marked. The condition is TRUE or FALSE, for LEFT, where the
/// ON clause has the comparison; otherwise it is the comparison, and the join is LEFT.
fn as_of(matched: Expr, constraint: JoinConstraint) -> Result<JoinOperator> {
    let marked = |expr: Expr| call_of(asof::NEAREST, vec![expr]);
    let ours = match &matched {
        Expr::Value(ValueWithSpan { value: Value::Boolean(is_inner), span: _ }) => Some(*is_inner),
        _ => None,
    };
    let refused = |what: &str| {
        Error::usage_hint(
            format!("an ASOF JOIN {what}"),
            "write ASOF JOIN … ON a.id = b.id AND a.ts >= b.ts: keys that are equal, if any, and one comparison \
             of times",
        )
    };
    let Some(is_inner) = ours else {
        let condition = match constraint {
            JoinConstraint::On(keys) => both(keys, marked(matched)),
            JoinConstraint::None => marked(matched),
            JoinConstraint::Using(_) | JoinConstraint::Natural => {
                return Err(refused("is not USING columns"));
            }
        };
        return Ok(JoinOperator::LeftOuter(JoinConstraint::On(condition)));
    };
    let JoinConstraint::On(condition) = constraint else {
        return Err(refused("is not USING columns"));
    };
    let mut conjuncts = Vec::new();
    split(condition, &mut conjuncts);
    let is_time = |expr: &Expr| {
        use BinaryOperator::{Gt, GtEq, Lt, LtEq};
        matches!(expr, Expr::BinaryOp { op: Gt | GtEq | Lt | LtEq, .. })
    };
    if conjuncts.iter().filter(|expr| is_time(expr)).count() != 1 {
        return Err(refused("has one comparison by >=, >, <= or <"));
    }
    let conjuncts =
        conjuncts.into_iter().map(|expr| if is_time(&expr) { marked(expr) } else { expr });
    let Some(condition) = conjuncts.reduce(both) else { return Err(refused("has a condition")) };
    let constraint = JoinConstraint::On(condition);
    Ok(match is_inner {
        true => JoinOperator::Inner(constraint),
        false => JoinOperator::LeftOuter(constraint),
    })
}

/// What a condition says by AND.
fn split(expr: Expr, conjuncts: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split(*left, conjuncts);
            split(*right, conjuncts);
        }
        Expr::Nested(inner) => split(*inner, conjuncts),
        other => conjuncts.push(other),
    }
}
