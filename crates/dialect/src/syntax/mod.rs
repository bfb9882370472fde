//! Checks that Tidemill supports all of a statement's syntax: a clause that is parsed and then dropped would
//! be a wrong answer.
//!
//! The parser accepts the clauses of a dozen databases, and the planner silently ignores those that it does
//! not know, such as `TABLESAMPLE`, `PREWHERE` or `WITH ROLLUP`. This module therefore walks the whole
//! statement before it is planned, and refuses by name any clause that the planner does not carry out. It
//! destructures structs field by field and enums arm by arm, never with a rest pattern: if the parser gains a
//! clause, this module does not compile until somebody has decided about it.
//!
//! [`normalization`] first adds what a statement omits.
//!
//! Three checks depend on the position of an expression or on the function that a name calls: the position of
//! aggregates and windows ([`ClauseContext`]), the clauses of a function's call ([`function_checks`]), and
//! named windows, which the planner substitutes in the select list alone.

use std::collections::HashSet;
use std::fmt;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    ConnectByKind, Cte, Distinct, ExceptSelectItem, ExcludeSelectItem, Expr, ExprWithAlias,
    ExprWithAliasAndOrderBy, Fetch, ForClause, FormatClause, FunctionArg, FunctionArgExpr,
    GroupByExpr, GroupByWithModifier, Ident, Join, JoinConstraint, JoinOperator, LateralView,
    LimitClause, NamedWindowDefinition, NamedWindowExpr, ObjectName, ObjectNamePart, Offset,
    OrderBy, OrderByExpr, OrderByKind, OrderByOptions, PipeOperator, Query, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind,
    SelectModifiers, SetExpr, SetOperator, SetQuantifier, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, Top, TopQuantity, Value,
    ValueWithSpan, Values, VisitorMut, WildcardAdditionalOptions, With,
};
use tidemill_base::coverage::format_grouped_digits;
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_statement_mut;

use crate::column_names;

pub use dialect::TidemillDialect;

mod dialect;
mod expressions;
mod function_checks;
mod normalization;
#[cfg(test)]
mod tests;
mod type_checks;

pub(crate) use normalization::normalize_statement;
pub(crate) use type_checks::check_column_list;

/// Checks that all of a statement is supported.
///
/// `state` has the known functions.
///
/// # Errors
/// [`Error::Usage`] that names the first unsupported clause.
pub(crate) fn check_statement(statement: &Statement, state: &SessionState) -> Result<()> {
    match statement {
        Statement::Query(query) => {
            SyntaxChecker { state }.check_query(query, ClauseContext::result_clause("a query"))
        }
        // A query is one SELECT; the parser refuses other statements earlier.
        other => Err(Error::Internal(format!("a statement that is no query: {other}"))),
    }
}

/// Rewrites `* REPLACE (x AS a)` as `* EXCEPT (a), x AS a`; returns true if there was one.
pub fn rewrite_replace_as_except(statement: &mut Statement) -> bool {
    struct ReplaceRewriter(bool);

    impl VisitorMut for ReplaceRewriter {
        type Break = ();

        fn pre_visit_select(&mut self, select: &mut Select) -> std::ops::ControlFlow<()> {
            let mut more = Vec::new();
            for item in &mut select.projection {
                let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) =
                    item
                else {
                    continue;
                };
                let Some(replace) = options.opt_replace.take() else { continue };
                let names = replace.items.iter().map(|item| item.column_name.clone());
                let mut except: Vec<Ident> = Vec::new();
                if let Some(had) = options.opt_except.take() {
                    except.push(had.first_element);
                    except.extend(had.additional_elements);
                }
                except.extend(names);
                if let [first, rest @ ..] = except.as_slice() {
                    options.opt_except = Some(ExceptSelectItem {
                        first_element: first.clone(),
                        additional_elements: rest.to_vec(),
                    });
                }
                more.extend(replace.items.into_iter().map(|item| SelectItem::ExprWithAlias {
                    expr: item.expr,
                    alias: item.column_name,
                }));
            }
            self.0 |= !more.is_empty();
            select.projection.extend(more);
            std::ops::ControlFlow::Continue(())
        }
    }

    let mut replaced = ReplaceRewriter(false);
    walk_statement_mut(statement, &mut replaced);
    replaced.0
}

/// The clause that an expression stands in, with the functions that it allows.
#[derive(Debug, Clone, Copy)]
struct ClauseContext {
    /// The clause, in SQL's words.
    clause_name: &'static str,
    allows_aggregates: bool,
    allows_windows: bool,
    /// True for a part of a select list.
    is_select_list: bool,
    /// True if the query's named windows are known.
    allows_named_windows: bool,
}

impl ClauseContext {
    /// A clause that is evaluated for single rows.
    const fn row_clause(name: &'static str) -> Self {
        ClauseContext {
            clause_name: name,
            allows_aggregates: false,
            allows_windows: false,
            ..Self::result_clause(name)
        }
    }

    /// A clause that is evaluated for groups.
    const fn group_clause(name: &'static str) -> Self {
        ClauseContext { clause_name: name, allows_windows: false, ..Self::result_clause(name) }
    }

    /// A clause that is evaluated when all rows of the result are known.
    const fn result_clause(name: &'static str) -> Self {
        ClauseContext {
            clause_name: name,
            allows_aggregates: true,
            allows_windows: true,
            is_select_list: false,
            allows_named_windows: false,
        }
    }
}

/// Returns the error for an unsupported `clause`; `hint` gives the alternative, or is empty.
fn refuse_clause<T>(clause: impl fmt::Display, hint: &str) -> Result<T> {
    let message = format!("`{clause}` is not supported");
    Err(match hint {
        "" => Error::usage(message),
        hint => Error::usage_with_hint(message, hint),
    })
}

struct SyntaxChecker<'a> {
    state: &'a SessionState,
}

impl SyntaxChecker<'_> {
    /// Checks a query. `place` is the query's position: in a select list, named windows need care.
    fn check_query(&self, query: &Query, place: ClauseContext) -> Result<()> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if let Some(with) = with {
            self.check_with(with)?;
        }
        self.check_set_expr(body, place)?;
        if let Some(order_by) = order_by {
            self.check_order_by(order_by, body)?;
        }
        if let Some(limit) = limit_clause {
            self.check_limit(limit)?;
        }
        if let Some(fetch) = fetch {
            return refuse_fetch(fetch);
        }
        if let Some(lock) = locks.first() {
            return refuse_clause(lock, "nothing else writes to the sources while a query runs");
        }
        if let Some(clause) = for_clause {
            return refuse_clause(
                match clause {
                    ForClause::Browse => "FOR BROWSE",
                    ForClause::Json { .. } => "FOR JSON",
                    ForClause::Xml { .. } => "FOR XML",
                },
                "--format json writes a result as JSON lines",
            );
        }
        if settings.is_some() {
            return refuse_clause("SETTINGS", "flags say how a query runs: --memory, --threads");
        }
        if let Some(format) = format_clause {
            return match format {
                FormatClause::Identifier(name) => refuse_clause(
                    format!("FORMAT {name}"),
                    "--format says how a result is written, as does the suffix of -o FILE",
                ),
                FormatClause::Null => refuse_clause("FORMAT NULL", ""),
            };
        }
        pipe_operators.iter().try_for_each(|operator| self.check_pipe_operator(operator))
    }

    fn check_with(&self, with: &With) -> Result<()> {
        let With { with_token: _, recursive, cte_tables } = with;
        for table in cte_tables {
            let Cte { alias, query, from, materialized, closing_paren_token: _ } = table;
            self.check_alias(alias)?;
            if let Some(from) = from {
                return refuse_clause(format!("WITH … FROM {from}"), "");
            }
            if let Some(materialized) = materialized {
                return refuse_clause(
                    format!("AS {materialized}"),
                    "leave it out: the answer is the same",
                );
            }
            if *recursive {
                self.check_recursive_cte(query, &alias.name)?;
            }
            self.check_query(query, ClauseContext::result_clause("a query"))?;
        }
        Ok(())
    }

    /// Checks a union in `WITH RECURSIVE`, of which the planner takes both sides and ignores everything else.
    fn check_recursive_cte(&self, query: &Query, name: &Ident) -> Result<()> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            // Refused everywhere.
            fetch: _,
            locks: _,
            for_clause: _,
            settings: _,
            format_clause: _,
            pipe_operators,
        } = query;
        let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left: _, right: _ } =
            body.as_ref()
        else {
            return Ok(());
        };
        let clause = match set_quantifier {
            SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName => {
                Some("BY NAME")
            }
            SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None => None,
        };
        let clause = clause
            .or(with.is_some().then_some("WITH"))
            .or(order_by.is_some().then_some("ORDER BY"))
            .or(limit_clause.is_some().then_some("LIMIT"))
            .or((!pipe_operators.is_empty()).then_some("|>"));
        match clause {
            Some(clause) => refuse_clause(
                format!("{clause} in WITH RECURSIVE {name}"),
                &format!("write it where the table is used: SELECT * FROM {name} …"),
            ),
            None => Ok(()),
        }
    }

    fn check_set_expr(&self, body: &SetExpr, place: ClauseContext) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.check_select(select, place),
            SetExpr::Query(query) => self.check_query(query, place),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                match (op, set_quantifier) {
                    (SetOperator::Minus, _) => return refuse_clause("MINUS", "write EXCEPT"),
                    (
                        SetOperator::Intersect | SetOperator::Except,
                        SetQuantifier::ByName
                        | SetQuantifier::AllByName
                        | SetQuantifier::DistinctByName,
                    ) => {
                        return refuse_clause(
                            format!("{op} {set_quantifier}"),
                            "name the columns in the same order on both sides",
                        );
                    }
                    (
                        SetOperator::Union,
                        SetQuantifier::ByName
                        | SetQuantifier::AllByName
                        | SetQuantifier::DistinctByName,
                    )
                    | (
                        SetOperator::Union | SetOperator::Intersect | SetOperator::Except,
                        SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None,
                    ) => {}
                }
                self.check_set_expr(left, place)?;
                self.check_set_expr(right, place)
            }
            SetExpr::Values(values) => self.check_values(values),
            SetExpr::Insert(_) => refuse_clause("INSERT", WRITE_RESULTS_HINT),
            SetExpr::Update(_) => refuse_clause("UPDATE", WRITE_RESULTS_HINT),
            SetExpr::Delete(_) => refuse_clause("DELETE", WRITE_RESULTS_HINT),
            SetExpr::Merge(_) => refuse_clause("MERGE", WRITE_RESULTS_HINT),
            SetExpr::Table(table) => {
                refuse_clause(table, "write SELECT * FROM …, with files in single quotes")
            }
        }
    }

    fn check_values(&self, values: &Values) -> Result<()> {
        // `VALUES` may have the word `ROW` before each row.
        let Values { explicit_row: _, value_keyword, rows } = values;
        if *value_keyword {
            return refuse_clause("VALUE", "write VALUES");
        }
        let mut items = rows.iter().flat_map(|row| &row.content);
        items.try_for_each(|item| self.check_expr(item, ClauseContext::row_clause("VALUES")))
    }

    fn check_select(&self, select: &Select, outer: ClauseContext) -> Result<()> {
        let Select {
            select_token: _,
            // Comments: hints to other systems change no answer.
            optimizer_hints: _,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        if let Some(modifiers) = select_modifiers {
            refuse_modifiers(modifiers)?;
        }
        if let Some(top) = top {
            return refuse_top(top);
        }
        if exclude.is_some() {
            return refuse_clause(
                "EXCLUDE behind a select list",
                "write it behind the *: * EXCLUDE (a)",
            );
        }
        if into.is_some() {
            return refuse_clause("SELECT INTO", WRITE_RESULTS_HINT);
        }
        if let Some(mode) = value_table_mode {
            return refuse_clause(format!("SELECT {mode}"), "struct(a, b) makes a struct");
        }
        if let Some(view) = lateral_views.first() {
            let LateralView {
                lateral_view: _,
                lateral_view_name: _,
                lateral_col_alias: _,
                outer: _,
            } = view;
            return refuse_clause(
                "LATERAL VIEW",
                "unnest(list) in the select list gives a row per item",
            );
        }
        if prewhere.is_some() {
            return refuse_clause("PREWHERE", "write WHERE");
        }
        if let Some(clause) = connect_by.first() {
            let hint = "WITH RECURSIVE follows parents and children";
            return match clause {
                ConnectByKind::ConnectBy { .. } => refuse_clause("CONNECT BY", hint),
                ConnectByKind::StartWith { .. } => refuse_clause("START WITH", hint),
            };
        }
        if !cluster_by.is_empty() {
            return refuse_clause("CLUSTER BY", "write ORDER BY");
        }
        if !distribute_by.is_empty() {
            return refuse_clause("DISTRIBUTE BY", "-o 'out/{column}.csv' writes a file per value");
        }
        if !sort_by.is_empty() {
            return refuse_clause("SORT BY", "write ORDER BY");
        }
        match flavor {
            SelectFlavor::Standard | SelectFlavor::FromFirst | SelectFlavor::FromFirstNoSelect => {}
        }
        if projection.is_empty() {
            return refuse_clause("SELECT without columns", "SELECT * takes all columns");
        }

        for table in from {
            self.check_table_with_joins(table)?;
        }
        if let Some(condition) = selection {
            self.check_expr(condition, ClauseContext::row_clause("WHERE"))?;
        }
        // Within a select list, the planner would look for the windows in the outer list's query.
        let results = ClauseContext {
            is_select_list: true,
            allows_named_windows: !outer.is_select_list && !named_window.is_empty(),
            ..ClauseContext::result_clause("the select list")
        };
        for window in named_window {
            let NamedWindowDefinition(name, window) = window;
            match window {
                NamedWindowExpr::NamedWindow(other) => {
                    return refuse_clause(format!("WINDOW {name} AS {other}"), INLINE_WINDOW_HINT);
                }
                NamedWindowExpr::WindowSpec(window) => self.check_window(window)?,
            }
        }
        match distinct {
            None | Some(Distinct::All | Distinct::Distinct) => {}
            Some(Distinct::On(exprs)) => {
                let place = ClauseContext::result_clause("DISTINCT ON");
                exprs.iter().try_for_each(|expr| self.check_expr(expr, place))?;
            }
        }
        projection.iter().try_for_each(|item| self.check_select_item(item, results))?;
        refuse_duplicate_items(projection)?;
        self.check_group_by(group_by, projection)?;
        if let Some(condition) = having {
            self.check_expr(condition, ClauseContext::group_clause("HAVING"))?;
        }
        if let Some(condition) = qualify {
            self.check_expr(condition, ClauseContext::result_clause("QUALIFY"))?;
        }
        Ok(())
    }

    fn check_group_by(&self, group_by: &GroupByExpr, columns: &[SelectItem]) -> Result<()> {
        let (exprs, modifiers) = match group_by {
            GroupByExpr::All(modifiers) => ([].as_slice(), modifiers),
            GroupByExpr::Expressions(exprs, modifiers) => (exprs.as_slice(), modifiers),
        };
        if let Some(modifier) = modifiers.first() {
            return match modifier {
                GroupByWithModifier::Rollup => {
                    refuse_clause("WITH ROLLUP", "write GROUP BY ROLLUP (a, b)")
                }
                GroupByWithModifier::Cube => {
                    refuse_clause("WITH CUBE", "write GROUP BY CUBE (a, b)")
                }
                GroupByWithModifier::Totals => {
                    refuse_clause("WITH TOTALS", "write GROUP BY GROUPING SETS ((a, b), ())")
                }
                GroupByWithModifier::GroupingSets(_) => refuse_clause(
                    "GROUPING SETS behind columns",
                    "write GROUP BY GROUPING SETS ((a, b), (a), ())",
                ),
            };
        }
        let place = ClauseContext::row_clause("GROUP BY");
        refuse_many_grouping_sets(exprs)?;
        for expr in exprs {
            match expr {
                Expr::Rollup(sets) | Expr::Cube(sets) => {
                    refuse_duplicate_keys(sets)?;
                    self.check_grouping_sets(sets, place)?;
                }
                Expr::GroupingSets(sets) => self.check_grouping_sets(sets, place)?,
                expr => {
                    refuse_constant_key(expr, "GROUP BY")?;
                    self.check_expr(
                        normalization::column_at_position(expr, columns).unwrap_or(expr),
                        place,
                    )?;
                }
            }
        }
        Ok(())
    }

    fn check_grouping_sets(&self, sets: &[Vec<Expr>], place: ClauseContext) -> Result<()> {
        sets.iter().flatten().try_for_each(|key| match key {
            // Positions of columns have been replaced before; `3e0` is a constant.
            Expr::Value(ValueWithSpan { value: Value::Number(number, _), span: _ })
                if number.bytes().all(|digit| digit.is_ascii_digit()) =>
            {
                Err(Error::usage_with_hint(
                    format!("`{number}` is the place of a column, and there is none"),
                    "the first of the select list is 1; behind a `*` a key goes by its name",
                ))
            }
            key => self.check_expr(key, place),
        })
    }

    fn check_select_item(&self, item: &SelectItem, place: ClauseContext) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr) => self.check_expr(expr, place),
            // DuckDB's clause, which the parser reads as an alias without AS.
            SelectItem::ExprWithAlias { expr: Expr::Function(_), alias }
                if alias.quote_style.is_none()
                    && alias.value.eq_ignore_ascii_case("export_state") =>
            {
                refuse_clause(
                    "EXPORT_STATE",
                    "tidemill run --partial writes tables that tidemill merge adds up later",
                )
            }
            SelectItem::ExprWithAlias { expr, alias: _ } => self.check_expr(expr, place),
            SelectItem::ExprWithAliases { expr: _, aliases } => refuse_clause(
                format!(
                    "AS ({})",
                    aliases.iter().map(Ident::to_string).collect::<Vec<_>>().join(", ")
                ),
                "give each column a name of its own",
            ),
            SelectItem::QualifiedWildcard(kind, options) => {
                match kind {
                    SelectItemQualifiedWildcardKind::ObjectName(name) => {
                        self.check_object_name(name)?
                    }
                    SelectItemQualifiedWildcardKind::Expr(expr) => {
                        return refuse_clause(
                            format!("({expr}).*"),
                            "unnest(s) in the select list makes columns of a struct's fields",
                        );
                    }
                }
                self.check_wildcard(options, place)
            }
            SelectItem::Wildcard(options) => self.check_wildcard(options, place),
        }
    }

    fn check_wildcard(
        &self,
        options: &WildcardAdditionalOptions,
        place: ClauseContext,
    ) -> Result<()> {
        let WildcardAdditionalOptions {
            wildcard_token: AttachedToken(_),
            opt_ilike,
            opt_exclude,
            opt_except,
            opt_replace,
            opt_rename,
            opt_alias,
        } = options;
        if let Some(ilike) = opt_ilike {
            return refuse_clause(format!("* {ilike}"), "name the columns");
        }
        match opt_exclude {
            None => {}
            Some(ExcludeSelectItem::Single(name)) => self.check_object_name(name)?,
            Some(ExcludeSelectItem::Multiple(names)) => {
                names.iter().try_for_each(|name| self.check_object_name(name))?;
            }
        }
        if let Some(ExceptSelectItem { first_element: _, additional_elements: _ }) = opt_except {
            // Treated like EXCLUDE.
        }
        if let Some(ReplaceSelectItem { items }) = opt_replace {
            for item in items {
                let ReplaceSelectElement { expr, column_name: _, as_keyword: _ } = item.as_ref();
                self.check_expr(expr, place)?;
            }
        }
        if let Some(rename) = opt_rename {
            return refuse_clause(format!("* {rename}"), "name the columns: a AS b");
        }
        if let Some(alias) = opt_alias {
            return refuse_clause(format!("* AS {alias}"), "name the columns");
        }
        Ok(())
    }

    fn check_order_by(&self, order_by: &OrderBy, of: &SetExpr) -> Result<()> {
        let OrderBy { kind, interpolate } = order_by;
        if interpolate.is_some() {
            return refuse_clause("INTERPOLATE", "");
        }
        let is_select = matches!(of, SetExpr::Select(_));
        match kind {
            OrderByKind::All(_) => refuse_clause(
                if is_select {
                    "ORDER BY ALL beside *"
                } else {
                    "ORDER BY ALL behind more than one SELECT"
                },
                "ORDER BY 1, 2 names columns",
            ),
            OrderByKind::Expressions(exprs) => {
                let place = match is_select {
                    true => ClauseContext::result_clause("ORDER BY"),
                    false => ClauseContext::row_clause("ORDER BY behind more than one SELECT"),
                };
                self.check_order_by_exprs(exprs, place)
            }
        }
    }

    /// Checks the expressions of an ORDER BY, none of which may be a constant text.
    fn check_order_by_exprs(&self, exprs: &[OrderByExpr], place: ClauseContext) -> Result<()> {
        for expr in exprs {
            refuse_constant_key(&expr.expr, "ORDER BY")?;
            self.check_order_by_expr(expr, place)?;
        }
        Ok(())
    }

    fn check_order_by_expr(&self, order: &OrderByExpr, place: ClauseContext) -> Result<()> {
        let OrderByExpr { expr, options: OrderByOptions { asc: _, nulls_first: _ }, with_fill } =
            order;
        if with_fill.is_some() {
            return refuse_clause(
                "WITH FILL",
                "join with SELECT unnest(range(start, end)) to fill gaps",
            );
        }
        self.check_expr(expr, place)
    }

    fn check_limit(&self, limit: &LimitClause) -> Result<()> {
        let place = ClauseContext::row_clause("LIMIT");
        match limit {
            LimitClause::LimitOffset { limit, offset, limit_by } => {
                if !limit_by.is_empty() {
                    return refuse_clause(
                        "LIMIT … BY",
                        "QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) <= 3",
                    );
                }
                // The words `ROW` and `ROWS` may follow OFFSET.
                let offset = offset.iter().map(|Offset { value, rows: _ }| value);
                limit.iter().chain(offset).try_for_each(|expr| self.check_expr(expr, place))
            }
            LimitClause::OffsetCommaLimit { offset, limit } => {
                self.check_expr(offset, place)?;
                self.check_expr(limit, place)
            }
        }
    }

    fn check_pipe_operator(&self, operator: &PipeOperator) -> Result<()> {
        let rows = ClauseContext::row_clause("a |> step");
        match operator {
            PipeOperator::Limit { expr, offset } => {
                self.check_expr(expr, rows)?;
                offset.iter().try_for_each(|offset| self.check_expr(offset, rows))
            }
            PipeOperator::Where { expr } => {
                self.check_expr(expr, ClauseContext::row_clause("WHERE"))
            }
            PipeOperator::OrderBy { exprs } => self.check_order_by_exprs(exprs, rows),
            PipeOperator::Select { exprs } | PipeOperator::Extend { exprs } => {
                exprs.iter().try_for_each(|item| self.check_select_item(item, rows))
            }
            PipeOperator::As { alias: _ } => Ok(()),
            PipeOperator::Aggregate { full_table_exprs, group_by_expr } => {
                let place = ClauseContext::group_clause("|> AGGREGATE");
                for (exprs, place) in [
                    (full_table_exprs, place),
                    (group_by_expr, ClauseContext::row_clause("GROUP BY")),
                ] {
                    for item in exprs {
                        let ExprWithAliasAndOrderBy { expr, order_by } = item;
                        let ExprWithAlias { expr, alias: _ } = expr;
                        let OrderByOptions { asc, nulls_first } = order_by;
                        if asc.is_some() || nulls_first.is_some() {
                            return refuse_clause(
                                "ASC and DESC in |> AGGREGATE",
                                "write |> ORDER BY behind it",
                            );
                        }
                        self.check_expr(expr, place)?;
                    }
                }
                Ok(())
            }
            PipeOperator::Union { set_quantifier: _, queries } => self.check_queries(queries),
            PipeOperator::Intersect { set_quantifier, queries }
            | PipeOperator::Except { set_quantifier, queries } => match set_quantifier {
                SetQuantifier::Distinct | SetQuantifier::None => self.check_queries(queries),
                SetQuantifier::All
                | SetQuantifier::ByName
                | SetQuantifier::AllByName
                | SetQuantifier::DistinctByName => refuse_clause(operator, ""),
            },
            PipeOperator::Join(join) => self.check_join(join),
            PipeOperator::Set { .. }
            | PipeOperator::Drop { .. }
            | PipeOperator::TableSample { .. }
            | PipeOperator::Rename { .. }
            | PipeOperator::Call { .. }
            | PipeOperator::Pivot { .. }
            | PipeOperator::Unpivot { .. } => {
                refuse_clause(format!("|> {operator}"), "write a SELECT")
            }
        }
    }

    fn check_queries(&self, queries: &[Query]) -> Result<()> {
        queries
            .iter()
            .try_for_each(|query| self.check_query(query, ClauseContext::result_clause("a query")))
    }

    fn check_table_with_joins(&self, table: &TableWithJoins) -> Result<()> {
        let TableWithJoins { relation, joins } = table;
        self.check_table(relation)?;
        joins.iter().try_for_each(|join| self.check_join(join))
    }

    fn check_join(&self, join: &Join) -> Result<()> {
        let Join { relation, global, join_operator } = join;
        if *global {
            return refuse_clause("GLOBAL JOIN", "write JOIN");
        }
        self.check_table(relation)?;
        match join_operator {
            JoinOperator::Right(JoinConstraint::Using(_) | JoinConstraint::Natural)
            | JoinOperator::RightOuter(JoinConstraint::Using(_) | JoinConstraint::Natural)
            | JoinOperator::FullOuter(JoinConstraint::Using(_) | JoinConstraint::Natural) => {
                refuse_clause(
                    "RIGHT or FULL JOIN of more than two sources with USING, or NATURAL",
                    "write ON a.k = b.k; coalesce(a.k, b.k) is the key, whichever side has the row",
                )
            }
            JoinOperator::Join(JoinConstraint::None)
            | JoinOperator::Inner(JoinConstraint::None)
            | JoinOperator::Left(JoinConstraint::None)
            | JoinOperator::LeftOuter(JoinConstraint::None)
            | JoinOperator::Right(JoinConstraint::None)
            | JoinOperator::RightOuter(JoinConstraint::None)
            | JoinOperator::FullOuter(JoinConstraint::None) => refuse_clause(
                "JOIN without ON",
                "write JOIN … ON a.x = b.x, or CROSS JOIN for each row with each",
            ),
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::LeftSemi(constraint)
            | JoinOperator::RightSemi(constraint)
            | JoinOperator::LeftAnti(constraint)
            | JoinOperator::RightAnti(constraint) => self.check_join_constraint(constraint),
            JoinOperator::CrossJoin(JoinConstraint::None) => Ok(()),
            JoinOperator::CrossJoin(
                JoinConstraint::On(_) | JoinConstraint::Using(_) | JoinConstraint::Natural,
            ) => refuse_clause("CROSS JOIN with a condition", "write JOIN … ON"),
            JoinOperator::Semi(_) => refuse_clause("SEMI JOIN", "write LEFT SEMI JOIN"),
            JoinOperator::Anti(_) => refuse_clause("ANTI JOIN", "write LEFT ANTI JOIN"),
            JoinOperator::CrossApply => refuse_clause("CROSS APPLY", "write JOIN … ON"),
            JoinOperator::OuterApply => refuse_clause("OUTER APPLY", "write LEFT JOIN … ON"),
            JoinOperator::AsOf { .. } => refuse_clause(
                "ASOF JOIN",
                "join on time <= and keep the latest: QUALIFY row_number() OVER (PARTITION BY id \
                 ORDER BY time DESC) = 1",
            ),
            JoinOperator::StraightJoin(_) => refuse_clause("STRAIGHT_JOIN", "write JOIN"),
            JoinOperator::ArrayJoin
            | JoinOperator::LeftArrayJoin
            | JoinOperator::InnerArrayJoin => {
                refuse_clause("ARRAY JOIN", "unnest(list) in the select list gives a row per item")
            }
        }
    }

    fn check_join_constraint(&self, constraint: &JoinConstraint) -> Result<()> {
        match constraint {
            JoinConstraint::On(condition) => {
                self.check_expr(condition, ClauseContext::row_clause("JOIN … ON"))
            }
            JoinConstraint::Using(names) => {
                names.iter().try_for_each(|name| self.check_object_name(name))
            }
            JoinConstraint::Natural | JoinConstraint::None => Ok(()),
        }
    }

    fn check_table(&self, table: &TableFactor) -> Result<()> {
        match table {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                self.check_object_name(name)?;
                self.check_optional_alias(alias)?;
                if let Some(TableFunctionArgs { args, settings }) = args {
                    if settings.is_some() {
                        return refuse_clause("SETTINGS", "");
                    }
                    self.check_table_function(name, args)?;
                }
                if !with_hints.is_empty() {
                    return refuse_clause(
                        format!("WITH ({})", comma_separated(with_hints)),
                        "leave it out",
                    );
                }
                if let Some(version) = version {
                    return refuse_clause(version, "name the files of that version");
                }
                if *with_ordinality {
                    return refuse_clause("WITH ORDINALITY", "row_number() OVER () numbers rows");
                }
                if !partitions.is_empty() {
                    return refuse_clause(
                        format!("PARTITION ({})", comma_separated(partitions)),
                        "name the files of the partition: FROM 'logs/day=2026-11-20/*.csv'",
                    );
                }
                if json_path.is_some() {
                    return refuse_clause(
                        table,
                        "fields are named with dots in the select list: a.b",
                    );
                }
                if sample.is_some() {
                    return refuse_sample();
                }
                if let Some(hint) = index_hints.first() {
                    return refuse_clause(hint, "leave it out: files have no index");
                }
                Ok(())
            }
            TableFactor::Derived { lateral: _, subquery, alias, sample } => {
                self.check_query(subquery, ClauseContext::result_clause("a query"))?;
                self.check_optional_alias(alias)?;
                match sample {
                    Some(_) => refuse_sample(),
                    None => Ok(()),
                }
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                self.check_object_name(name)?;
                self.check_optional_alias(alias)?;
                if *with_ordinality {
                    return refuse_clause("WITH ORDINALITY", "row_number() OVER () numbers rows");
                }
                self.check_table_function(name, args)
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset,
                with_offset_alias: _,
                with_ordinality,
            } => {
                self.check_optional_alias(alias)?;
                if *with_offset {
                    return refuse_clause("WITH OFFSET", "row_number() OVER () numbers rows");
                }
                if *with_ordinality {
                    return refuse_clause("WITH ORDINALITY", "row_number() OVER () numbers rows");
                }
                array_exprs
                    .iter()
                    .try_for_each(|expr| self.check_expr(expr, ClauseContext::row_clause("UNNEST")))
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                self.check_optional_alias(alias)?;
                self.check_table_with_joins(table_with_joins)
            }
            TableFactor::TableFunction { .. } => refuse_clause("TABLE (…)", UNNEST_HINT),
            TableFactor::JsonTable { .. } => refuse_clause("JSON_TABLE", UNNEST_HINT),
            TableFactor::OpenJsonTable { .. } => refuse_clause("OPENJSON", UNNEST_HINT),
            TableFactor::Pivot { .. } => refuse_clause(
                "PIVOT",
                "sum(x) FILTER (WHERE kind = 'a') AS a makes a column of a value",
            ),
            TableFactor::Unpivot { .. } => refuse_clause(
                "UNPIVOT",
                "SELECT id, 'a' AS name, a FROM … UNION ALL … makes rows of columns",
            ),
            TableFactor::MatchRecognize { .. } => refuse_clause("MATCH_RECOGNIZE", ""),
            TableFactor::XmlTable { .. } => refuse_clause("XMLTABLE", ""),
            TableFactor::SemanticView { .. } => refuse_clause("SEMANTIC_VIEW", ""),
        }
    }

    /// Checks a table function, whose arguments are positional.
    fn check_table_function(&self, name: &ObjectName, args: &[FunctionArg]) -> Result<()> {
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                    self.check_expr(expr, ClauseContext::row_clause("a table function"))?;
                }
                FunctionArg::Unnamed(
                    FunctionArgExpr::QualifiedWildcard(_)
                    | FunctionArgExpr::Wildcard
                    | FunctionArgExpr::WildcardWithOptions(_),
                )
                | FunctionArg::Named { .. }
                | FunctionArg::ExprNamed { .. } => {
                    return refuse_clause(
                        format!("{arg} in {name}(…)"),
                        "give the arguments in order",
                    );
                }
            }
        }
        Ok(())
    }

    fn check_optional_alias(&self, alias: &Option<TableAlias>) -> Result<()> {
        alias.iter().try_for_each(|alias| self.check_alias(alias))
    }

    fn check_alias(&self, alias: &TableAlias) -> Result<()> {
        let TableAlias { explicit, name, columns, at } = alias;
        if !explicit && name.quote_style.is_none() && name.value.eq_ignore_ascii_case("final") {
            return refuse_clause(
                name,
                "files have no versions of a row to be merged; QUALIFY row_number() OVER (PARTITION BY id ORDER BY \
                 version DESC) = 1 keeps the last one",
            );
        }
        for TableAliasColumnDef { name: column, data_type } in columns {
            if let Some(data_type) = data_type {
                return refuse_clause(
                    format!("{name}({column} {data_type})"),
                    &format!("CAST({column} AS {data_type}) converts a column"),
                );
            }
        }
        match at {
            Some(at) => refuse_clause(format!("AT {at}"), "row_number() OVER () numbers rows"),
            None => Ok(()),
        }
    }

    fn check_object_name(&self, name: &ObjectName) -> Result<()> {
        let ObjectName(parts) = name;
        for part in parts {
            match part {
                ObjectNamePart::Identifier(_) => {}
                ObjectNamePart::Function(_) => return refuse_clause(name, "write the name itself"),
            }
        }
        Ok(())
    }
}

const WRITE_RESULTS_HINT: &str = "results are written with -o FILE or a job file's [sink]";
const UNNEST_HINT: &str = "unnest(list) in the select list gives a row per item";
const INLINE_WINDOW_HINT: &str = "write the window itself: OVER (PARTITION BY a ORDER BY b)";

fn comma_separated<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Refuses equal unnamed expressions in a select list, which would be two columns of the same name.
fn refuse_duplicate_items(projection: &[SelectItem]) -> Result<()> {
    let mut seen = HashSet::new();
    for item in projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let mut expr = expr;
        while let Expr::Nested(inner) = expr {
            expr = inner;
        }
        if !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) && !seen.insert(expr)
        {
            let written = column_names::expr_display_text(expr);
            return Err(Error::usage_with_hint(
                format!("two columns of a select list are `{written}`"),
                format!("name one of them: {written} AS other"),
            ));
        }
    }
    Ok(())
}

fn refuse_sample<T>() -> Result<T> {
    refuse_clause("TABLESAMPLE", "WHERE random() < 0.1 keeps about one row in ten")
}

fn refuse_fetch(fetch: &Fetch) -> Result<()> {
    let Fetch { with_ties, percent, quantity } = fetch;
    let hint = match (with_ties, percent, quantity) {
        (true, _, _) => "QUALIFY rank() OVER (ORDER BY a) <= 10 keeps ties".to_string(),
        (false, true, _) => {
            "QUALIFY percent_rank() OVER (ORDER BY a) < 0.1 keeps a share".to_string()
        }
        (false, false, Some(quantity)) => format!("write LIMIT {quantity}"),
        (false, false, None) => "write LIMIT 1".to_string(),
    };
    refuse_clause(fetch, &hint)
}

fn refuse_top(top: &Top) -> Result<()> {
    let Top { with_ties, percent, quantity } = top;
    let hint = match (with_ties, percent, quantity) {
        (true, _, _) => "QUALIFY rank() OVER (ORDER BY a) <= 10 keeps ties".to_string(),
        (false, true, _) => {
            "QUALIFY percent_rank() OVER (ORDER BY a) < 0.1 keeps a share".to_string()
        }
        (false, false, Some(TopQuantity::Expr(count))) => format!("write LIMIT {count}"),
        (false, false, Some(TopQuantity::Constant(count))) => format!("write LIMIT {count}"),
        (false, false, None) => "write LIMIT".to_string(),
    };
    refuse_clause(top, &hint)
}

fn refuse_modifiers(modifiers: &SelectModifiers) -> Result<()> {
    let SelectModifiers {
        high_priority,
        straight_join,
        sql_small_result,
        sql_big_result,
        sql_buffer_result,
        sql_no_cache,
        sql_calc_found_rows,
    } = modifiers;
    let words = [
        (high_priority, "HIGH_PRIORITY"),
        (straight_join, "STRAIGHT_JOIN"),
        (sql_small_result, "SQL_SMALL_RESULT"),
        (sql_big_result, "SQL_BIG_RESULT"),
        (sql_buffer_result, "SQL_BUFFER_RESULT"),
        (sql_no_cache, "SQL_NO_CACHE"),
        (sql_calc_found_rows, "SQL_CALC_FOUND_ROWS"),
    ];
    match words.into_iter().find(|(is_set, _)| **is_set) {
        Some((_, word)) => refuse_clause(word, "leave it out"),
        None => Ok(()),
    }
}

/// Maximum number of grouping sets in a GROUP BY: every row belongs to a group of each, and the plan lists
/// all of them.
const GROUPING_SETS_MAX: u64 = 4096;

fn refuse_many_grouping_sets(keys: &[Expr]) -> Result<()> {
    let sets = keys.iter().fold(1_u64, |sets, key| {
        sets.saturating_mul(match key {
            Expr::Cube(keys) => u32::try_from(keys.len())
                .ok()
                .and_then(|keys| 1_u64.checked_shl(keys).filter(|_| keys < 64))
                .unwrap_or(u64::MAX),
            Expr::Rollup(keys) => keys.len() as u64 + 1,
            Expr::GroupingSets(sets) => sets.len() as u64,
            _ => 1,
        })
    });
    if sets <= GROUPING_SETS_MAX {
        return Ok(());
    }
    let most = format_grouped_digits(GROUPING_SETS_MAX);
    Err(Error::usage_with_hint(
        format!("GROUP BY has more than {most} grouping sets"),
        "CUBE (a, b) has one of each combination, 2 to the power of its keys; ROLLUP (a, b) has one more than keys",
    ))
}

/// Refuses a key that ROLLUP or CUBE has twice: each of the two would be null separately.
fn refuse_duplicate_keys(sets: &[Vec<Expr>]) -> Result<()> {
    let mut keys: Vec<&Expr> = Vec::new();
    for key in sets.iter().flatten() {
        if keys.contains(&key) {
            return Err(Error::usage_with_hint(
                format!("`{key}` stands twice in ROLLUP or CUBE"),
                "name each key once; GROUPING SETS ((a), (a)) has groups twice",
            ));
        }
        keys.push(key);
    }
    Ok(())
}

/// Refuses a constant key, by which all rows are equal. A column was probably meant: `ORDER BY 'name'`.
fn refuse_constant_key(expr: &Expr, clause: &str) -> Result<()> {
    let Expr::Value(ValueWithSpan { value, span: _ }) = expr else { return Ok(()) };
    match value {
        // The position of a column.
        Value::Number(..) => Ok(()),
        Value::SingleQuotedString(text) => Err(Error::usage_with_hint(
            format!("`{clause} {value}` is by a constant text"),
            format!("a column is named in double quotes or none: {clause} \"{text}\""),
        )),
        _ => Err(Error::usage_with_hint(
            format!("`{clause} {value}` is by a constant"),
            "a constant orders and groups nothing: leave it out",
        )),
    }
}
