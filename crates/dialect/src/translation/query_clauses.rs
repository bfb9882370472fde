//! Translation of other databases' clauses on the level of the syntax tree.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Fetch, GroupByExpr, GroupByWithModifier, JoinConstraint,
    JoinOperator, LimitClause, NamedWindowDefinition, NamedWindowExpr, OrderByExpr, OrderByKind,
    Query, Select, SelectItem, SetExpr, Top, TopQuantity, UnaryOperator, Value, ValueWithSpan,
    Visitor, VisitorMut, WindowSpec, WindowType,
};
use tidemill_base::error::{Error, Result};
use tidemill_planning::{walk_expr, walk_expr_mut};

use crate::column_names::normalize_ident;
use crate::marker_functions::ASOF_MARKER_FUNCTION;
use crate::translation::function_calls::{and_conditions, function_call};
use crate::translation::{parse_expr, random_value_checks};

/// Translates `FETCH FIRST 3 ROWS ONLY`, `SELECT TOP 3` and `LIMIT 3 BY k`.
pub(super) fn translate_query_clauses(query: &mut Query) {
    if query.limit_clause.is_none()
        && let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch
    {
        let limit = quantity.clone().unwrap_or_else(|| number_literal(1));
        query.limit_clause = Some(limit_clause(limit));
        query.fetch = None;
    }
    if let Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) = &query.limit_clause
        && limit_by.is_empty()
        && let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch
    {
        let limit = Some(quantity.clone().unwrap_or_else(|| number_literal(1)));
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
            TopQuantity::Constant(count) => number_literal(*count),
        };
        select.top = None;
        query.limit_clause = Some(limit_clause(limit));
    }
    translate_limit_by(query);
    translate_distinct_on(query);
    round_limit(query);
    translate_fetch(query);
}

/// Translates `SELECT DISTINCT ON (k) … ORDER BY t` into
/// `QUALIFY row_number() OVER (PARTITION BY k ORDER BY t) = 1`: the planner requires the order to begin with
/// the keys. A query with random values stays as it is, since a window would draw them again.
fn translate_distinct_on(query: &mut Query) {
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_ref().map(|order| &order.kind)
    else {
        return;
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(Distinct::On(keys)) = &select.distinct else { return };
    let meant: Vec<Expr> = keys.iter().map(|key| resolve_key(key, select)).collect();
    let ordered: Vec<Expr> = order.iter().map(|key| resolve_key(&key.expr, select)).collect();
    let begins_with_keys = ordered.len() >= meant.len()
        && ordered.iter().take(meant.len()).all(|key| meant.contains(key));
    // A window cannot stand in another window's ORDER BY, and beside a `*` a position names no known column.
    let stays = |expr: &Expr| {
        random_value_checks::count_random_calls(expr).iter().any(|count| *count > 0)
            || contains_window_call(expr)
            || matches!(expr, Expr::Value(_))
    };
    if begins_with_keys || select.qualify.is_some() || meant.iter().chain(&ordered).any(stays) {
        return;
    }
    let keys: Vec<String> = meant.iter().map(ToString::to_string).collect();
    let order = order.iter().zip(ordered).map(|(key, expr)| OrderByExpr { expr, ..key.clone() });
    let order: Vec<String> = order.map(|key| key.to_string()).collect();
    let text = format!(
        "row_number() OVER (PARTITION BY {} ORDER BY {}) = 1",
        keys.join(", "),
        order.join(", ")
    );
    let Ok(condition) = parse_expr(&text) else { return };
    select.qualify = Some(condition);
    select.distinct = None;
}

fn contains_window_call(expr: &Expr) -> bool {
    struct WindowCallFinder;

    impl Visitor for WindowCallFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(call) if call.over.is_some() => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut WindowCallFinder)
}

/// Casts the number in `SELECT 2026 AS year … GROUP BY year`, which the planner would take for a column's
/// position. As in PostgreSQL, a column of that name takes precedence; only the planner knows if there is
/// one.
fn cast_number_keys(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return };
    let names: Vec<_> = keys
        .iter()
        .filter_map(|key| match key {
            Expr::Identifier(name) => Some(normalize_ident(name)),
            _ => None,
        })
        .collect();
    for item in &mut select.projection {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        let is_whole = || expr.to_string().parse::<i64>().is_ok();
        if names.contains(&normalize_ident(alias))
            && is_whole()
            && let Ok(number) = parse_expr(&format!("CAST({expr} AS BIGINT)"))
        {
            *expr = number;
        }
    }
}

/// Resolves a key to an item of the select list, by position or alias, or to the key itself.
fn resolve_key(key: &Expr, select: &Select) -> Expr {
    let has_star = select
        .projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(_, _)));
    let item = match key {
        Expr::Value(ValueWithSpan { value: Value::Number(place, _), span: _ }) if !has_star => {
            let place = place.to_string().parse::<usize>().ok();
            place.and_then(|place| select.projection.get(place.checked_sub(1)?))
        }
        Expr::Identifier(name) => select.projection.iter().find(|item| {
            matches!(item, SelectItem::ExprWithAlias { alias, .. } if normalize_ident(alias) == normalize_ident(name))
        }),
        _ => None,
    };
    match item {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
            expr.clone()
        }
        _ => key.clone(),
    }
}

/// Rounds a fractional limit: `LIMIT 1.5` becomes `LIMIT 2`.
fn round_limit(query: &mut Query) {
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause else {
        return;
    };
    for count in limit.iter_mut().chain(offset.as_mut().map(|offset| &mut offset.value)) {
        if let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), span: _ }) = &*count
            && digits.to_string().parse::<u64>().is_err()
            && let Ok(value) = digits.to_string().parse::<f64>()
            && (0.0..9e15).contains(&value)
        {
            // Not negative, and less than 2^53.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let rounded = value.round() as u64;
            *count = number_literal(rounded);
        }
    }
}

/// Translates number literals that are conditions of NOT or CASE.
pub(super) fn translate_number_conditions(expr: &mut Expr) {
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => translate_number_condition(expr),
        Expr::Case { operand: None, conditions, .. } => {
            conditions.iter_mut().for_each(|case| translate_number_condition(&mut case.condition));
        }
        _ => {}
    }
}

/// Translates a number literal `2` that is a condition into `2 <> 0`.
fn translate_number_condition(condition: &mut Expr) {
    match condition {
        Expr::Nested(inner) => translate_number_condition(inner),
        Expr::Value(ValueWithSpan { value: Value::Number(_, _), span: _ }) => {
            *condition = Expr::Nested(Box::new(Expr::BinaryOp {
                left: Box::new(condition.clone()),
                op: BinaryOperator::NotEq,
                right: Box::new(number_literal(0)),
            }));
        }
        _ => {}
    }
}

/// Translates `FETCH FIRST 3 ROWS WITH TIES` into `QUALIFY rank() OVER (ORDER BY …) <= 3`, and
/// `FETCH FIRST 20 PERCENT ROWS ONLY` into
/// `QUALIFY row_number() OVER (ORDER BY …) <= count(*) OVER () * 20 / 100`.
fn translate_fetch(query: &mut Query) {
    let Some(Fetch { with_ties, percent, quantity: Some(quantity) }) = &query.fetch else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if select.distinct.is_some() || query.limit_clause.is_some() || *with_ties && *percent {
        return;
    }
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(exprs)) => {
            let exprs: Vec<String> =
                exprs.iter().map(|expr| resolve_order_key(expr, select)).collect();
            format!("ORDER BY {}", exprs.join(", "))
        }
        None if *percent => String::new(),
        _ => return,
    };
    let text = match (with_ties, percent) {
        (true, _) => format!("rank() OVER ({order}) <= {quantity}"),
        (_, true) => {
            format!("row_number() OVER ({order}) <= count(*) OVER () * {quantity} / 100")
        }
        _ => return,
    };
    let Ok(condition) = parse_expr(&text) else { return };
    select.qualify = Some(match select.qualify.take() {
        Some(own) => and_conditions(own, condition),
        None => condition,
    });
    query.fetch = None;
}

/// Returns a key of ORDER BY as a window's key: a number there would not be a position in the select list.
fn resolve_order_key(key: &OrderByExpr, select: &Select) -> String {
    let mut key = key.clone();
    if let Expr::Value(ValueWithSpan { value: Value::Number(place, _), span: _ }) = &key.expr
        && let Ok(place) = place.to_string().parse::<usize>()
        && let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
            place.checked_sub(1).and_then(|place| select.projection.get(place))
    {
        key.expr = expr.clone();
    }
    key.to_string()
}

/// Inlines named windows that a call extends: `OVER (w ORDER BY b)`.
fn inline_named_windows(select: &mut Select) {
    if select.named_window.is_empty() {
        return;
    }
    let mut known: Vec<(String, WindowSpec)> = Vec::new();
    for NamedWindowDefinition(name, definition) in &select.named_window {
        if let NamedWindowExpr::WindowSpec(spec) = definition {
            known.push((normalize_ident(name), merge_base_window(spec, &known)));
        }
    }
    let mut windows = WindowInliner { named_windows: known };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            walk_expr_mut(expr, &mut windows);
        }
    }
    if let Some(condition) = &mut select.qualify {
        walk_expr_mut(condition, &mut windows);
    }
    for NamedWindowDefinition(_, definition) in &mut select.named_window {
        if let NamedWindowExpr::WindowSpec(spec) = definition {
            *spec = merge_base_window(spec, &windows.named_windows);
        }
    }
}

/// Returns a window merged with the named window that it extends, if it may extend it.
fn merge_base_window(spec: &WindowSpec, known: &[(String, WindowSpec)]) -> WindowSpec {
    let Some(name) = &spec.window_name else { return spec.clone() };
    let base =
        known.iter().find(|(known, _)| *known == normalize_ident(name)).map(|(_, spec)| spec);
    match base {
        Some(base)
            if base.window_name.is_none()
                && base.window_frame.is_none()
                && spec.partition_by.is_empty()
                && (base.order_by.is_empty() || spec.order_by.is_empty()) =>
        {
            let order_by = match base.order_by.is_empty() {
                true => spec.order_by.clone(),
                false => base.order_by.clone(),
            };
            WindowSpec {
                window_name: None,
                partition_by: base.partition_by.clone(),
                order_by,
                window_frame: spec.window_frame.clone(),
            }
        }
        _ => spec.clone(),
    }
}

struct WindowInliner {
    named_windows: Vec<(String, WindowSpec)>,
}

impl VisitorMut for WindowInliner {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && let Some(WindowType::WindowSpec(spec)) = &mut call.over
        {
            *spec = merge_base_window(spec, &self.named_windows);
        }
        ControlFlow::Continue(())
    }
}

/// Translates `LIMIT 3 BY k` into `QUALIFY row_number() OVER (PARTITION BY k ORDER BY …) <= 3`.
fn translate_limit_by(query: &mut Query) {
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
    let Ok(condition) = parse_expr(&text) else { return };
    select.qualify = Some(match select.qualify.take() {
        Some(own) => and_conditions(own, condition),
        None => condition,
    });
    query.limit_clause = None;
}

fn number_literal(count: u64) -> Expr {
    Expr::value(Value::Number(count.to_string(), false))
}

fn limit_clause(limit: Expr) -> LimitClause {
    LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by: Vec::new() }
}

/// Translates `PREWHERE`, `GROUP BY a, b WITH ROLLUP`, `SEMI JOIN`, `ANTI JOIN` and `ASOF JOIN`.
pub(super) fn translate_select_clauses(select: &mut Select) -> Result<()> {
    inline_named_windows(select);
    cast_number_keys(select);
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    conditions.into_iter().flatten().for_each(translate_number_condition);
    if let Some(before) = select.prewhere.take() {
        select.selection = Some(match select.selection.take() {
            Some(condition) => and_conditions(before, condition),
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
        if let JoinOperator::Join(JoinConstraint::On(condition))
        | JoinOperator::Inner(JoinConstraint::On(condition))
        | JoinOperator::Left(JoinConstraint::On(condition))
        | JoinOperator::LeftOuter(JoinConstraint::On(condition))
        | JoinOperator::Right(JoinConstraint::On(condition))
        | JoinOperator::RightOuter(JoinConstraint::On(condition))
        | JoinOperator::FullOuter(JoinConstraint::On(condition)) = &mut join.join_operator
        {
            translate_number_condition(condition);
        }
        let taken = std::mem::replace(
            &mut join.join_operator,
            JoinOperator::CrossJoin(JoinConstraint::None),
        );
        join.join_operator = match taken {
            JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
            JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
            JoinOperator::StraightJoin(constraint) => JoinOperator::Join(constraint),
            JoinOperator::AsOf { match_condition, constraint } => {
                translate_asof_join(match_condition, constraint)?
            }
            other => other,
        };
    }
    Ok(())
}

/// Translates an ASOF join into a join that marks its comparison of times. If the match condition is TRUE, or
/// FALSE for LEFT, the ON clause has the comparison; otherwise the match condition is the comparison, and the
/// join is LEFT.
fn translate_asof_join(matched: Expr, constraint: JoinConstraint) -> Result<JoinOperator> {
    let marked = |expr: Expr| function_call(ASOF_MARKER_FUNCTION, vec![expr]);
    let ours = match &matched {
        Expr::Value(ValueWithSpan { value: Value::Boolean(is_inner), span: _ }) => Some(*is_inner),
        _ => None,
    };
    let refused = |what: &str| {
        Error::usage_with_hint(
            format!("an ASOF JOIN {what}"),
            "write ASOF JOIN … ON a.id = b.id AND a.ts >= b.ts: keys that are equal, if any, and one comparison \
             of times",
        )
    };
    let Some(is_inner) = ours else {
        let condition = match constraint {
            JoinConstraint::On(keys) => and_conditions(keys, marked(matched)),
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
    split_conjuncts(condition, &mut conjuncts);
    let is_time = |expr: &Expr| {
        use BinaryOperator::{Gt, GtEq, Lt, LtEq};
        matches!(expr, Expr::BinaryOp { op: Gt | GtEq | Lt | LtEq, .. })
    };
    if conjuncts.iter().filter(|expr| is_time(expr)).count() != 1 {
        return Err(refused("has one comparison by >=, >, <= or <"));
    }
    let conjuncts =
        conjuncts.into_iter().map(|expr| if is_time(&expr) { marked(expr) } else { expr });
    let Some(condition) = conjuncts.reduce(and_conditions) else {
        return Err(refused("has a condition"));
    };
    let constraint = JoinConstraint::On(condition);
    Ok(match is_inner {
        true => JoinOperator::Inner(constraint),
        false => JoinOperator::LeftOuter(constraint),
    })
}

/// Splits a condition into its conjuncts.
fn split_conjuncts(expr: Expr, conjuncts: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split_conjuncts(*left, conjuncts);
            split_conjuncts(*right, conjuncts);
        }
        Expr::Nested(inner) => split_conjuncts(*inner, conjuncts),
        other => conjuncts.push(other),
    }
}
