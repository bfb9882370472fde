//! Qualifies columns of `USING` joins that are named without a source.
//!
//! In a select list DataFusion knows that both sides' `id` are one column. It rejects the name in WHERE, and
//! everywhere if there are more than two sources. Here such a name is qualified with the first source that has it, before
//! planning. The [translation](crate::translation) rewrites RIGHT and FULL joins of two sources with ON
//! (`outer_using`); with more sources, USING is rejected.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectNamePart, Query, Select, SelectItem,
    Statement, TableFactor, TableWithJoins, VisitorMut,
};
use tidemill_planning::{walk_expr_mut, walk_statement_mut};

/// Qualifies the columns that joins are USING with their source.
pub fn qualify_using_columns(statement: &mut Statement) {
    walk_statement_mut(statement, &mut UsingColumnVisitor);
}

struct UsingColumnVisitor;

impl VisitorMut for UsingColumnVisitor {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let [from] = select.from.as_slice() else { return ControlFlow::Continue(()) };
        let (merged, joins) = using_columns(from);
        if merged.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut named = UsingColumnQualifier::new(&merged);
        if let Some(condition) = &mut select.selection {
            walk_expr_mut(condition, &mut named);
        }
        // With two sources DataFusion resolves the name elsewhere.
        if joins < 2 {
            return ControlFlow::Continue(());
        }
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    if let Some(expr) = merged.get(&lookup_name(name)) {
                        let alias = name.clone();
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    }
                }
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    walk_expr_mut(expr, &mut named);
                }
                _ => {}
            }
        }
        if let Some(condition) = &mut select.having {
            walk_expr_mut(condition, &mut named);
        }
        ControlFlow::Continue(())
    }
}

/// Returns the qualified expression of each USING column, and the number of joins.
fn using_columns(from: &TableWithJoins) -> (HashMap<String, Expr>, usize) {
    let mut found: HashMap<String, Expr> = HashMap::new();
    let Some(first) = table_qualifier(&from.relation) else { return (found, 0) };
    // Sources that may have an unqualified column.
    let mut sources = vec![first];
    for join in &from.joins {
        let Some(right) = table_qualifier(&join.relation) else { return (HashMap::new(), 0) };
        let constraint = match &join.join_operator {
            JoinOperator::Join(on)
            | JoinOperator::Inner(on)
            | JoinOperator::Left(on)
            | JoinOperator::LeftOuter(on) => on,
            _ => return (HashMap::new(), 0),
        };
        if let JoinConstraint::Using(columns) = constraint {
            for column in columns {
                let [ObjectNamePart::Identifier(column)] = column.0.as_slice() else { continue };
                // If several sources may have it, the planner decides.
                if let [only] = sources.as_slice() {
                    let own = Expr::CompoundIdentifier(vec![only.clone(), column.clone()]);
                    found.entry(lookup_name(column)).or_insert(own);
                }
            }
        }
        sources.push(right);
    }
    (found, from.joins.len())
}

/// Returns the name by which columns of a table are qualified.
pub(crate) fn table_qualifier(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => match name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => Some(Ident::with_quote('"', &name.value)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the lookup form of a name: unquoted names ignore case.
fn lookup_name(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// A visitor that replaces names by qualified columns.
pub(crate) struct UsingColumnQualifier<'a> {
    columns: &'a HashMap<String, Expr>,
    /// Number of enclosing subqueries; names within them are their own.
    subquery_depth: usize,
}

impl<'a> UsingColumnQualifier<'a> {
    pub(crate) fn new(merged: &'a HashMap<String, Expr>) -> Self {
        UsingColumnQualifier { columns: merged, subquery_depth: 0 }
    }
}

impl VisitorMut for UsingColumnQualifier<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subquery_depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subquery_depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let (Expr::Identifier(name), 0) = (&*expr, self.subquery_depth)
            && let Some(found) = self.columns.get(&lookup_name(name))
        {
            *expr = found.clone();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn using_columns_are_qualified_with_first_source() {
        let joined = |how: &str| format!("x AS a {how} JOIN y AS b USING (k)");
        for (from, condition, expected) in [
            (joined(""), "K > 1", "a.k > 1"),
            (joined("LEFT"), "k > 1 AND v = 2", "a.k > 1 AND v = 2"),
            (joined("") + " JOIN z AS c USING (k)", "k > 1", "a.k > 1"),
            ("x AS a JOIN y AS b ON a.i = b.i JOIN z USING (k)".into(), "k > 1", "k > 1"),
            ("x JOIN y USING (k)".into(), "k > 1", "\"x\".k > 1"),
            (joined(""), "b.k > 1", "b.k > 1"),
            (joined(""), "k IN (SELECT k FROM z)", "a.k IN (SELECT k FROM z)"),
            (joined(""), "EXISTS (SELECT k)", "EXISTS (SELECT k)"),
            ("x AS a JOIN y AS b USING (\"K\")".into(), "k > 1", "k > 1"),
        ] {
            let sql = format!("SELECT v FROM {from} WHERE {condition}");
            let mut parsed = Parser::parse_sql(&GenericDialect {}, &sql).unwrap();
            qualify_using_columns(&mut parsed[0]);
            let text = parsed[0].to_string();
            let found = text.split(" WHERE ").nth(1).unwrap();
            assert_eq!(found, expected, "{sql}");
        }
    }
}
