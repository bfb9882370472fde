//! Logical plans of statements, with distinct column names for casts and subqueries.
//!
//! DataFusion's planner names a column by its expression, and leaves casts out of the name. In `SELECT ts,
//! CAST(ts AS DATE) AS day … GROUP BY ts, day` both keys are named `ts`, and in `SELECT sum(v) AS a,
//! sum(CAST(v AS DOUBLE)) AS b` both sums have one name; the planner refuses both as duplicates. After such
//! an error, each cast of the statement is wrapped in a function that returns its argument and is named like
//! the cast, and the statement is planned again. The optimizer removes the function before any rule looks for
//! a cast.
//!
//! Subqueries of a select list, or in the clauses beside it, are wrapped too: the planner names all of them
//! `EXISTS`, `IN` or by their selected column.
//!
//! Arrow reports a value that does not fit without the cast. [`explain_cast_error`] finds the cast in the SQL
//! by its type.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as PlanResult, ScalarValue, SchemaError, plan_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    CastKind, Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, ObjectName, OrderByKind, Query, Select, SelectItem,
    TypedString, Value, ValueWithSpan, Visitor, VisitorMut,
};
use tidemill_base::arrow_errors::sql_name_of_arrow_type;
use tidemill_base::error::Error;
use tidemill_base::large_stack::run_on_large_stack;
use tidemill_planning::{
    DynLogicalPlan, DynTreeNode, walk_expr, walk_expr_mut, walk_statement, walk_statement_mut,
};

use tidemill_dialect::statement::schema_from_sql;
use tidemill_dialect::syntax;
use tidemill_dialect::translation::{add_implicit_laterals, outer_fields};
use tidemill_planning::datafusion_names::DUPLICATE_NAMES_MESSAGE;
use tidemill_planning::plan_rewriting::expression_input_schema;

/// Maximum number of outer columns whose fields the subqueries of a statement can access.
const OUTER_COLUMNS_MAX: usize = 16;

/// Name of the wrapping function, which nobody writes by accident.
const NAMED_EXPRESSION_FUNCTION: &str = "cast as named";

/// Plans a statement by `plan`, with distinct column names for a cast and its value, or for two casts.
///
/// If `plan` does not know a column, the statement is planned again with LATERAL before the subqueries in
/// FROM that follow a source. If `plan` refuses a field of an outer row in a subquery, the statement is
/// planned again with `get_field`. `plan` runs at most four times, and four times more for each such column.
///
/// # Errors
/// The errors of `plan`.
pub fn plan_with_retries<T>(
    state: &SessionState,
    mut statement: Statement,
    plan: impl Fn(&SessionState, Statement) -> PlanResult<T>,
) -> PlanResult<T> {
    let error = match plan_with_outer_fields(state, &mut statement, &plan) {
        Err(error) if is_unknown_column_error(&error) => error,
        planned => return planned,
    };
    let lateral = match statement {
        Statement::Statement(statement) => add_implicit_laterals(*statement),
        _ => None,
    };
    let Some(lateral) = lateral else { return Err(error) };
    let mut lateral = Statement::Statement(Box::new(lateral));
    plan_with_outer_fields(state, &mut lateral, &plan).map_err(|_| error)
}

/// Plans a statement, and replaces fields of outer rows in subqueries by `get_field` where `plan` refuses
/// them.
fn plan_with_outer_fields<T>(
    state: &SessionState,
    statement: &mut Statement,
    plan: &impl Fn(&SessionState, Statement) -> PlanResult<T>,
) -> PlanResult<T> {
    let mut planned = plan_with_named_casts(state, statement.clone(), plan);
    for _ in 0..OUTER_COLUMNS_MAX {
        let refused = planned.as_ref().err().and_then(outer_fields::refused_outer_column);
        let (Some(column), Statement::Statement(own)) = (refused, &*statement) else { break };
        let changed = outer_fields::rewrite_outer_fields(own.as_ref().clone(), &column);
        let Some(changed) = changed else { break };
        *statement = Statement::Statement(Box::new(changed));
        planned = plan_with_named_casts(state, statement.clone(), plan);
    }
    planned
}

fn plan_with_named_casts<T>(
    state: &SessionState,
    statement: Statement,
    plan: &impl Fn(&SessionState, Statement) -> PlanResult<T>,
) -> PlanResult<T> {
    let error = match plan(state, statement.clone()) {
        Err(error) if is_duplicate_name_error(&error) => error,
        planned => return planned,
    };
    let Some(named) = name_casts_and_subqueries(statement) else { return Err(error) };
    let mut state = state.clone();
    let function = NamedExpressionFunction { signature: Signature::any(2, Volatility::Immutable) };
    state.register_udf(Arc::new(ScalarUDF::from(function)))?;
    plan(&state, named).map_err(|again| if is_duplicate_name_error(&again) { error } else { again })
}

/// Returns the logical plan of a statement, with distinct column names.
///
/// # Errors
/// The errors of DataFusion's planner.
pub fn statement_to_plan(state: &SessionState, statement: Statement) -> PlanResult<LogicalPlan> {
    plan_with_retries(state, statement, tidemill_planning::plan_statement)
}

fn is_unknown_column_error(error: &DataFusionError) -> bool {
    let root = match error.find_root() {
        DataFusionError::Collection(errors) => errors.first().map(DataFusionError::find_root),
        root => Some(root),
    };
    match root {
        Some(DataFusionError::SchemaError(cause, _)) => {
            matches!(cause.as_ref(), SchemaError::FieldNotFound { .. })
        }
        _ => false,
    }
}

/// Returns true if the planner refused two columns because of one name.
fn is_duplicate_name_error(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Plan(message) => message.contains(DUPLICATE_NAMES_MESSAGE),
        DataFusionError::SchemaError(cause, _) => matches!(
            cause.as_ref(),
            SchemaError::DuplicateUnqualifiedField { .. }
                | SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::AmbiguousReference { .. }
        ),
        _ => false,
    }
}

/// Hint for a value that does not fit.
const TRY_CAST_HINT: &str = "TRY_CAST gives NULL where a value does not fit";

/// Adds the cast, as written in the SQL, to an error of a value that does not fit, if the cast can be
/// determined. `plan` is the executed plan; `None` while the query is planned.
pub fn explain_cast_error(error: Error, sql: &str, plan: Option<&LogicalPlan>) -> Error {
    let Error::Cast { value, to, cast: None, hint } = error else { return error };
    // A long chain of operators needs a large stack.
    let bytes = (16usize << 20).saturating_add(sql.len().saturating_mul(512));
    let mut found =
        run_on_large_stack(bytes, || Ok(find_written_casts(sql, &to))).unwrap_or_default();
    // A cast of a text literal is at fault only if the value is that text.
    found.retain(|cast| cast.cast_literal.as_ref().is_none_or(|literal| *literal == value));
    let of_value: Vec<&WrittenCast> =
        found.iter().filter(|cast| cast.cast_literal.as_deref() == Some(value.as_str())).collect();
    // An implicit cast may be at fault too.
    let are_all = plan.is_some_and(|plan| count_planned_casts(plan, &to) <= found.len());
    let blamed: Vec<&WrittenCast> = match of_value.is_empty() {
        false => of_value,
        true if are_all => found.iter().collect(),
        true => Vec::new(),
    };
    let join = |first: Option<String>, second: &str| match first {
        Some(first) => Some(format!("{first}; {second}")),
        None => Some(second.to_owned()),
    };
    match blamed.as_slice() {
        [] if found.is_empty() => {
            let hint = match parse_castable_type(&to) {
                Some(of) if of.is_numeric() => join(
                    hint,
                    &format!(
                        "beside a number a text is read as one: TRY_CAST(x AS {to}) gives NULL for \
                         what is none, CAST(number AS TEXT) has them meet as text"
                    ),
                ),
                Some(_) => {
                    join(hint, &format!("TRY_CAST(x AS {to}) gives NULL for a text that is none"))
                }
                // The error of a function that reads text, such as a format or `a UUID`, has a hint of its own.
                None => hint,
            };
            Error::Cast { value, to, cast: None, hint }
        }
        [] => Error::Cast { value, to, cast: None, hint: join(hint, TRY_CAST_HINT) },
        [one] => {
            let hint = if one.is_cast { join(hint, TRY_CAST_HINT) } else { hint };
            Error::Cast { value, to: one.type_name.clone(), cast: Some(one.sql_text.clone()), hint }
        }
        [first, .., last] => {
            let between = if blamed.len() > 2 { ", …" } else { "" };
            let cast = Some(format!("{}`{between} or `{}", first.sql_text, last.sql_text));
            Error::Cast { value, to, cast, hint: join(hint, TRY_CAST_HINT) }
        }
    }
}

/// Returns the type of that SQL name; `None` if a cast cannot name it.
fn parse_castable_type(name: &str) -> Option<DataType> {
    let schema = schema_from_sql(&format!("x {name}")).ok()?;
    match schema.fields().as_ref() {
        [field] if field.is_nullable() => Some(field.data_type().clone()),
        _ => None,
    }
}

/// A cast as written in the SQL.
struct WrittenCast {
    /// The SQL text, shortened.
    sql_text: String,
    /// The type as written.
    type_name: String,
    /// The value, if it is a literal.
    cast_literal: Option<String>,
    /// True for a cast, false for `DATE '…'`.
    is_cast: bool,
}

/// Maximum number of characters of a cast that a message shows in full.
const CAST_TEXT_CHARS_MAX: usize = 100;

/// Returns the distinct casts to a type of this name in a statement.
fn find_written_casts(sql: &str, to: &str) -> Vec<WrittenCast> {
    struct WrittenCastFinder<'a> {
        type_name: &'a str,
        seen_texts: HashSet<String>,
        written_casts: Vec<WrittenCast>,
    }

    impl Visitor for WrittenCastFinder<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<()> {
            let text = |value: &ValueWithSpan| match &value.value {
                Value::SingleQuotedString(text) => Some(text.clone()),
                Value::Number(number, _) => Some(number.to_string()),
                _ => None,
            };
            let (data_type, literal, is_cast) = match expr {
                SqlExpr::Cast {
                    kind: CastKind::Cast | CastKind::DoubleColon,
                    expr,
                    data_type,
                    ..
                } => {
                    let literal = match expr.as_ref() {
                        SqlExpr::Value(value) => text(value),
                        _ => None,
                    };
                    (data_type, literal, true)
                }
                SqlExpr::TypedString(TypedString { data_type, value, .. }) => {
                    (data_type, text(value), false)
                }
                _ => return ControlFlow::Continue(()),
            };
            let to = data_type.to_string();
            let is_wanted = schema_from_sql(&format!("x {to}")).is_ok_and(|schema| {
                schema.fields().iter().all(|field| {
                    sql_name_of_arrow_type(&field.data_type().to_string()) == self.type_name
                })
            });
            let whole = expr.to_string();
            if is_wanted && self.seen_texts.insert(whole.clone()) {
                let text = match whole.chars().count() > CAST_TEXT_CHARS_MAX {
                    true => match is_cast {
                        true => format!("CAST(… AS {to})"),
                        false => format!("{to} '…'"),
                    },
                    false => whole,
                };
                self.written_casts.push(WrittenCast {
                    sql_text: text,
                    type_name: to,
                    cast_literal: literal,
                    is_cast,
                });
            }
            ControlFlow::Continue(())
        }
    }

    let Ok(statements) = DFParser::parse_sql_with_dialect(sql, &syntax::TidemillDialect) else {
        return Vec::new();
    };
    let mut casts =
        WrittenCastFinder { type_name: to, seen_texts: HashSet::new(), written_casts: Vec::new() };
    for statement in &statements {
        if let Statement::Statement(statement) = statement {
            walk_statement(statement, &mut casts);
        }
    }
    casts.written_casts
}

/// Returns the number of distinct casts to a type of this name in a plan, without casts of integers.
fn count_planned_casts(plan: &LogicalPlan, to: &str) -> usize {
    let mut found = HashSet::new();
    let walked = plan.apply_with_subqueries_dyn(&mut |node| {
        let schema = expression_input_schema(node)?;
        node.apply_expressions_dyn(&mut |expr| {
            expr.apply_dyn(&mut |expr| {
                if let Expr::Cast(cast) = expr
                    && sql_name_of_arrow_type(&cast.field.data_type().to_string()) == to
                    && cast.expr.get_type(&schema).is_ok_and(|of| !of.is_integer())
                {
                    found.insert(expr.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    walked.map_or(usize::MAX, |_| found.len())
}

/// Wraps each cast and subquery of a statement in the naming function; returns `None` if there is none.
fn name_casts_and_subqueries(mut statement: Statement) -> Option<Statement> {
    let Statement::Statement(inner) = &mut statement else { return None };
    let mut names = ColumnNamer::default();
    walk_statement_mut(inner, &mut names);
    names.has_changed.then_some(statement)
}

#[derive(Default)]
struct ColumnNamer {
    has_changed: bool,
    /// Number of enclosing SELECTs.
    select_depth: usize,
}

impl VisitorMut for ColumnNamer {
    type Break = ();

    /// Gives a column without an alias its SQL text as name. The columns of subqueries need one as well,
    /// because the optimizer joins subqueries by column names.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.select_depth += 1;
        let mut asked = SubqueryNamer::default();
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                walk_expr_mut(expr, &mut asked);
            }
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(|key| {
                walk_expr_mut(key, &mut asked);
            });
        }
        for condition in [&mut select.having, &mut select.qualify].into_iter().flatten() {
            walk_expr_mut(condition, &mut asked);
        }
        self.has_changed |= asked.has_changed;
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && !matches!(expr, SqlExpr::Identifier(_) | SqlExpr::CompoundIdentifier(_))
                && (self.select_depth > 1 || has_cast(expr))
            {
                self.has_changed = true;
                let alias = Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut asked = SubqueryNamer::default();
        if let Some(OrderByKind::Expressions(keys)) =
            query.order_by.as_mut().map(|order| &mut order.kind)
        {
            keys.iter_mut().for_each(|key| {
                walk_expr_mut(&mut key.expr, &mut asked);
            });
        }
        self.has_changed |= asked.has_changed;
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.select_depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<()> {
        let name = match expr {
            SqlExpr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, data_type, .. } => {
                format!("CAST {data_type}")
            }
            SqlExpr::Cast { kind: CastKind::TryCast | CastKind::SafeCast, data_type, .. } => {
                format!("TRY_CAST {data_type}")
            }
            // The planner turns it into a cast.
            SqlExpr::AtTimeZone { time_zone, .. } => format!("AT TIME ZONE {time_zone}"),
            _ => return ControlFlow::Continue(()),
        };
        self.has_changed = true;
        *expr = wrap_with_name(expr, name);
        ControlFlow::Continue(())
    }
}

/// Wraps an expression in the function that carries its name.
fn wrap_with_name(expr: &SqlExpr, name: String) -> SqlExpr {
    let args = [expr.clone(), SqlExpr::value(Value::SingleQuotedString(name))];
    let args = args.map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).to_vec();
    SqlExpr::Function(Function {
        name: ObjectName::from(vec![Ident::with_quote('"', NAMED_EXPRESSION_FUNCTION)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Prefix of a subquery's name, in the place of `CAST` or `TRY_CAST`.
const SUBQUERY_NAME_PREFIX: &str = "SELECT ";

/// Wraps the subqueries of a select list, and of the clauses beside it: the planner gives all of them one
/// name.
#[derive(Default)]
struct SubqueryNamer {
    has_changed: bool,
    /// Number of enclosing queries.
    query_depth: usize,
}

impl VisitorMut for SubqueryNamer {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.query_depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.query_depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<()> {
        use SqlExpr::{Exists, InSubquery, Subquery};
        if self.query_depth == 0 && matches!(expr, Exists { .. } | InSubquery { .. } | Subquery(_))
        {
            self.has_changed = true;
            *expr = wrap_with_name(expr, format!("{SUBQUERY_NAME_PREFIX}{expr}"));
        }
        ControlFlow::Continue(())
    }
}

fn has_cast(expr: &SqlExpr) -> bool {
    struct CastFinder;

    impl Visitor for CastFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<()> {
            match expr {
                SqlExpr::Cast { .. } | SqlExpr::AtTimeZone { .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut CastFinder)
}

/// The function that returns its first argument. The second argument is the keyword and type of the cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedExpressionFunction {
    signature: Signature,
}

impl ScalarUDFImpl for NamedExpressionFunction {
    fn name(&self) -> &str {
        NAMED_EXPRESSION_FUNCTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => plan_err!("`{NAMED_EXPRESSION_FUNCTION}` has no argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        match args.arg_fields.first() {
            Some(field) => Ok(Arc::clone(field)),
            None => plan_err!("`{NAMED_EXPRESSION_FUNCTION}` has no argument"),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        match args {
            [_, Expr::Literal(ScalarValue::Utf8(Some(name)), _)]
                if name.starts_with(SUBQUERY_NAME_PREFIX) =>
            {
                Ok(name[SUBQUERY_NAME_PREFIX.len()..].to_owned())
            }
            [cast, Expr::Literal(ScalarValue::Utf8(Some(name)), _)] => {
                let (word, data_type) = name.split_once(' ').unwrap_or(("CAST", name));
                Ok(format!("{word}({} AS {data_type})", cast.schema_name()))
            }
            _ => Ok(NAMED_EXPRESSION_FUNCTION.into()),
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        match args.len() {
            2 => Ok(ExprSimplifyResult::Simplified(args.swap_remove(0))),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.is_empty() {
            false => Ok(args.args.swap_remove(0)),
            true => plan_err!("`{NAMED_EXPRESSION_FUNCTION}` has no argument"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_cast_is_recommended_only_for_castable_types() {
        let hint = |to: &str| {
            let error = Error::Cast {
                value: "x".into(),
                to: to.into(),
                cast: None,
                hint: Some("own".into()),
            };
            match explain_cast_error(error, "SELECT f(s) FROM t", None) {
                Error::Cast { hint, .. } => hint.unwrap(),
                other => panic!("{other}"),
            }
        };
        for to in ["BIGINT", "TINYINT UNSIGNED", "DOUBLE", "DECIMAL"] {
            let expected =
                format!("own; beside a number a text is read as one: TRY_CAST(x AS {to}) gives");
            assert!(hint(to).starts_with(&expected), "{}", hint(to));
        }
        for to in ["DATE", "TIMESTAMP", "TIME(6)", "INTERVAL", "BOOLEAN"] {
            assert_eq!(
                hint(to),
                format!("own; TRY_CAST(x AS {to}) gives NULL for a text that is none")
            );
        }
        for to in [
            "a UUID",
            "a number of bytes",
            "hexadecimal digits",
            "the format `%d`: no day",
            "any of the formats `%d`, `%m`",
            "TIMESTAMP: it is before or after all that have microseconds",
        ] {
            assert_eq!(hint(to), "own", "{to}");
        }
    }
}
