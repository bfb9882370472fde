//! Translation of struct fields of the outer row in a subquery:
//! `EXISTS (SELECT 1 FROM m WHERE m.os = l.device.os)`.
//!
//! Inside a subquery, DataFusion resolves the outer column `l.device`, but not its fields. The translation
//! reads the field by `get_field`.

use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError};
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Statement, Value, VisitorMut};
use tidemill_planning::walk_statement_mut;

use crate::translation::function_calls::function_call;

const OUTER_FIELD_ERROR: &str =
    "Nested identifiers are not yet supported for OuterReferenceColumn ";

/// Returns the qualified or unqualified column whose field made planning fail.
pub fn refused_outer_column(error: &DataFusionError) -> Option<Vec<String>> {
    let DataFusionError::NotImplemented(message) = error.find_root() else { return None };
    let (_, column) = message.split_once(OUTER_FIELD_ERROR)?;
    let column = Column::from_qualified_name(column.lines().next()?);
    let mut names = column.relation.map_or(Vec::new(), |table| table.to_vec());
    names.push(column.name);
    Some(names)
}

/// Returns a statement whose subqueries read the fields of a column by `get_field`; `None` without such a
/// field.
pub fn rewrite_outer_fields(mut statement: Statement, column: &[String]) -> Option<Statement> {
    let mut fields = OuterFieldRewriter { column, query_depth: 0, rewritten_count: 0 };
    walk_statement_mut(&mut statement, &mut fields);
    (fields.rewritten_count > 0).then_some(statement)
}

struct OuterFieldRewriter<'a> {
    column: &'a [String],
    /// Number of enclosing queries.
    query_depth: usize,
    rewritten_count: usize,
}

impl OuterFieldRewriter<'_> {
    /// Returns the number of a name's leading parts that name the column.
    fn column_part_count(&self, parts: &[Ident]) -> Option<usize> {
        let is_same = |(part, name): (&Ident, &String)| match part.quote_style {
            Some(_) => part.value == *name,
            None => part.value.to_lowercase() == *name,
        };
        // The column, qualified or unqualified.
        let named = [self.column, &self.column[self.column.len().saturating_sub(1)..]];
        let named = named
            .into_iter()
            .find(|column| column.len() < parts.len() && parts.iter().zip(*column).all(is_same))?;
        Some(named.len())
    }
}

impl VisitorMut for OuterFieldRewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.query_depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.query_depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::CompoundIdentifier(parts) = expr else { return ControlFlow::Continue(()) };
        let Some(count) = self.column_part_count(parts).filter(|_| self.query_depth > 1) else {
            return ControlFlow::Continue(());
        };
        let fields = parts.split_off(count);
        let column = match <[Ident; 1]>::try_from(std::mem::take(parts)) {
            Ok([name]) => Expr::Identifier(name),
            Err(parts) => Expr::CompoundIdentifier(parts),
        };
        let name = |field: Ident| {
            let name = match field.quote_style {
                Some(_) => field.value,
                None => field.value.to_lowercase(),
            };
            Expr::Value(Value::SingleQuotedString(name).into())
        };
        *expr = fields
            .into_iter()
            .fold(column, |record, field| function_call("get_field", vec![record, name(field)]));
        self.rewritten_count += 1;
        ControlFlow::Continue(())
    }
}
