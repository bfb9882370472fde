//! Walks over SQL syntax trees and plans, and the planning of statements, without type parameters.
//!
//! A generic walk or planner compiles anew in each crate that calls it; `README.md` has the measurements.
//! Every crate that walks over a tree or plans a statement therefore calls these functions.
//!
//! - [`DynTreeNode`], [`DynLogicalPlan`]: walks over DataFusion's expressions and plans.
//! - `datafusion_names`: the names by which Tidemill recognises DataFusion's rules, functions and memory consumers.
//! - `plan_rewriting`: helpers of the rules that rewrite plans.
//! - `error_carrier`: Tidemill's errors inside of DataFusion's.

pub mod datafusion_names;
mod dyn_tree_node;
pub mod error_carrier;
pub mod plan_rewriting;

use std::ops::ControlFlow;

use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};
use futures::executor::block_on;

pub use dyn_tree_node::{DynLogicalPlan, DynTreeNode};

/// Plans a statement against the tables of the session.
///
/// # Errors
/// Returns the error of DataFusion's planner.
pub fn plan_statement(state: &SessionState, statement: Parsed) -> Result<LogicalPlan> {
    block_on(state.statement_to_plan(statement))
}

/// Parses and plans SQL text in DataFusion's own dialect, without rewriting the text.
///
/// # Errors
/// Returns the error of DataFusion's parser or planner.
pub fn plan_sql(context: &SessionContext, sql: &str) -> Result<DataFrame> {
    let state = context.state();
    let dialect = state.config_options().sql_parser.dialect;
    let statement = state.sql_to_statement(sql, &dialect)?;
    let plan = plan_statement(&state, statement)?;
    Ok(DataFrame::new(state, plan))
}

/// Walks over a statement. Returns true if the visitor stopped the walk.
pub fn walk_statement(statement: &Statement, visitor: &mut dyn Visitor<Break = ()>) -> bool {
    statement.visit(&mut DynVisitor(visitor)).is_break()
}

/// Walks over an expression. Returns true if the visitor stopped the walk.
pub fn walk_expr(expr: &Expr, visitor: &mut dyn Visitor<Break = ()>) -> bool {
    expr.visit(&mut DynVisitor(visitor)).is_break()
}

/// Walks over a statement with a visitor that may change it. Returns true if the visitor stopped the walk.
pub fn walk_statement_mut(
    statement: &mut Statement,
    visitor: &mut dyn VisitorMut<Break = ()>,
) -> bool {
    statement.visit(&mut DynVisitorMut(visitor)).is_break()
}

/// Walks over an expression with a visitor that may change it. Returns true if the visitor stopped the walk.
pub fn walk_expr_mut(expr: &mut Expr, visitor: &mut dyn VisitorMut<Break = ()>) -> bool {
    expr.visit(&mut DynVisitorMut(visitor)).is_break()
}

/// The one visitor type that every read-only walk is compiled for; it forwards to a `dyn Visitor`.
struct DynVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

/// The one visitor type that every changing walk is compiled for; it forwards to a `dyn VisitorMut`.
struct DynVisitorMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

/// Defines visitor methods that forward to the wrapped visitor.
macro_rules! forwarded {
    ($($name:ident: $of:ty),* $(,)?) => {
        $(fn $name(&mut self, of: $of) -> ControlFlow<()> {
            self.0.$name(of)
        })*
    };
}

impl Visitor for DynVisitor<'_> {
    type Break = ();

    forwarded! {
        pre_visit_query: &Query,
        post_visit_query: &Query,
        pre_visit_select: &Select,
        post_visit_select: &Select,
        pre_visit_relation: &ObjectName,
        post_visit_relation: &ObjectName,
        pre_visit_table_factor: &TableFactor,
        post_visit_table_factor: &TableFactor,
        pre_visit_expr: &Expr,
        post_visit_expr: &Expr,
        pre_visit_statement: &Statement,
        post_visit_statement: &Statement,
        pre_visit_value: &ValueWithSpan,
        post_visit_value: &ValueWithSpan,
    }
}

impl VisitorMut for DynVisitorMut<'_> {
    type Break = ();

    forwarded! {
        pre_visit_query: &mut Query,
        post_visit_query: &mut Query,
        pre_visit_select: &mut Select,
        post_visit_select: &mut Select,
        pre_visit_relation: &mut ObjectName,
        post_visit_relation: &mut ObjectName,
        pre_visit_table_factor: &mut TableFactor,
        post_visit_table_factor: &mut TableFactor,
        pre_visit_expr: &mut Expr,
        post_visit_expr: &mut Expr,
        pre_visit_statement: &mut Statement,
        post_visit_statement: &mut Statement,
        pre_visit_value: &mut ValueWithSpan,
        post_visit_value: &mut ValueWithSpan,
    }
}
