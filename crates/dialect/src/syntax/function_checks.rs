//! Checks of function calls: `DISTINCT`, `ORDER BY`, `FILTER`, `OVER` and other clauses beside the arguments.
//!
//! The planner passes these clauses to aggregates and windows, and drops them for all other functions.

use datafusion::logical_expr::AggregateUDF;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, LambdaFunction, LambdaFunctionParameter,
    NullTreatment, ObjectNamePart, OneOrManyWithParens, OrderByExpr, WindowType,
};
use tidemill_base::error::{Error, Result};

use crate::syntax::{ClauseContext, INLINE_WINDOW_HINT, SyntaxChecker, refuse_clause};
use crate::unknown_functions::{self, function_alternative};
use tidemill_planning::datafusion_names::{aggregates, windows};

/// The kind of function that a name calls.
enum CalledFunctionKind<'a> {
    Scalar,
    /// A list function that takes lambdas.
    HigherOrder,
    Aggregate(&'a AggregateUDF),
    Window,
    /// An unknown function; the planner reports it, with the nearest name.
    Unknown,
}

/// The aggregates that support DISTINCT. For `min` and the like, one value counts as much as two equal ones.
const DISTINCT_AGGREGATES: [&str; 22] = [
    aggregates::COUNT,
    aggregates::SUM,
    aggregates::AVG,
    aggregates::MIN,
    aggregates::MAX,
    aggregates::ARRAY_AGG,
    aggregates::STRING_AGG,
    aggregates::MEDIAN,
    aggregates::PERCENTILE_CONT,
    aggregates::BIT_AND,
    aggregates::BIT_OR,
    aggregates::BIT_XOR,
    aggregates::BOOL_AND,
    aggregates::BOOL_OR,
    aggregates::STDDEV,
    aggregates::STDDEV_POP,
    aggregates::VAR,
    aggregates::VAR_POP,
    aggregates::APPROX_DISTINCT,
    aggregates::APPROX_MEDIAN,
    "unique",
    aggregates::ANY_VALUE,
];

/// The aggregates that depend on an order; others fail with an ORDER BY, or ignore it.
const ORDERED_AGGREGATES: [&str; 5] = [
    aggregates::ARRAY_AGG,
    aggregates::STRING_AGG,
    aggregates::FIRST_VALUE,
    aggregates::LAST_VALUE,
    aggregates::NTH_VALUE,
];

/// The window functions that can ignore nulls.
const IGNORE_NULLS_WINDOWS: [&str; 5] =
    [windows::LAG, windows::LEAD, windows::FIRST_VALUE, windows::LAST_VALUE, windows::NTH_VALUE];

impl SyntaxChecker<'_> {
    fn function_kind(&self, name: &str) -> CalledFunctionKind<'_> {
        let state = self.state;
        if state.scalar_functions().contains_key(name) || matches!(name, "make_map" | "map") {
            CalledFunctionKind::Scalar
        } else if state.higher_order_functions().contains_key(name) {
            CalledFunctionKind::HigherOrder
        } else if matches!(name, "unnest" | "unnest_outer") {
            CalledFunctionKind::Scalar
        } else if let Some(aggregate) = state.aggregate_functions().get(name) {
            CalledFunctionKind::Aggregate(aggregate)
        } else if state.window_functions().contains_key(name) {
            CalledFunctionKind::Window
        } else {
            CalledFunctionKind::Unknown
        }
    }

    pub(super) fn check_function(&self, function: &Function, place: ClauseContext) -> Result<()> {
        let Function {
            name,
            // Braces around the call.
            uses_odbc_syntax: _,
            parameters,
            args,
            filter,
            null_treatment,
            over,
            within_group,
        } = function;
        self.check_object_name(name)?;
        let name = match name.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] if ident.quote_style.is_none() => {
                ident.value.to_lowercase()
            }
            [ObjectNamePart::Identifier(ident)] => ident.value.clone(),
            _ => name.to_string(),
        };
        match parameters {
            FunctionArguments::None => {}
            FunctionArguments::Subquery(_) | FunctionArguments::List(_) => {
                let hint = function_alternative(&name.to_lowercase());
                return refuse_clause(
                    format!("{name}{parameters}{args}"),
                    hint.unwrap_or("parameters follow the value: quantile(x, 0.5)"),
                );
            }
        }
        let nothing =
            FunctionArgumentList { duplicate_treatment: None, args: vec![], clauses: vec![] };
        let list = match args {
            FunctionArguments::None => &nothing,
            FunctionArguments::List(list) => list,
            FunctionArguments::Subquery(_) => {
                return refuse_clause(
                    format!("{name}(SELECT …)"),
                    "write the subquery in parentheses of its own, or array_agg(x) in it",
                );
            }
        };
        let FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        let is_distinct = match duplicate_treatment {
            Some(DuplicateTreatment::Distinct) => true,
            Some(DuplicateTreatment::All) | None => false,
        };
        let mut nulls = *null_treatment;
        let mut order_by: &[OrderByExpr] = &[];
        for clause in clauses {
            match clause {
                FunctionArgumentClause::IgnoreOrRespectNulls(treatment) => nulls = Some(*treatment),
                FunctionArgumentClause::OrderBy(exprs) => order_by = exprs,
                FunctionArgumentClause::Limit(_) => {
                    return refuse_clause(
                        format!("LIMIT in {name}(…)"),
                        "collect(x, 10) takes the first values; array_slice cuts a list",
                    );
                }
                FunctionArgumentClause::OnOverflow(_) => {
                    return refuse_clause(format!("ON OVERFLOW in {name}(…)"), "");
                }
                FunctionArgumentClause::Having(_) => {
                    return refuse_clause(
                        format!("HAVING in {name}(…)"),
                        "first_value(x ORDER BY y) takes the value of the least y",
                    );
                }
                FunctionArgumentClause::Separator(_) => {
                    return refuse_clause(
                        format!("SEPARATOR in {name}(…)"),
                        "write string_agg(x, ', ')",
                    );
                }
                FunctionArgumentClause::JsonNullClause(_)
                | FunctionArgumentClause::JsonReturningClause(_) => {
                    return refuse_clause(format!("{clause} in {name}(…)"), "");
                }
            }
        }
        let called = self.function_kind(&name);
        let is_window = over.is_some();
        // The clauses beside the arguments.
        let beside = [
            (is_distinct, "DISTINCT"),
            (!order_by.is_empty(), "ORDER BY"),
            (filter.is_some(), "FILTER"),
            (nulls.is_some(), "IGNORE NULLS or RESPECT NULLS"),
            (is_window, "OVER"),
            (!within_group.is_empty(), "WITHIN GROUP"),
        ];
        let mut beside = beside.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name);
        match &called {
            CalledFunctionKind::Scalar | CalledFunctionKind::HigherOrder => {
                if let Some(clause) = beside.next() {
                    return refuse_clause(
                        format!("{clause} of {name}"),
                        "it is for aggregate and window functions",
                    );
                }
            }
            CalledFunctionKind::Aggregate(aggregate) => {
                if is_distinct && !DISTINCT_AGGREGATES.contains(&aggregate.name()) {
                    return refuse_clause(
                        format!("{name}(DISTINCT …)"),
                        "take it of SELECT DISTINCT … in a subquery",
                    );
                }
                if !order_by.is_empty()
                    && !ORDERED_AGGREGATES.contains(&aggregate.name())
                    && !takes_within_group(aggregate)
                {
                    return refuse_clause(
                        format!("{name}(… ORDER BY …)"),
                        "its answer is of no order; array_agg(x ORDER BY y) has one",
                    );
                }
                if is_window {
                    if let Some(NullTreatment::IgnoreNulls) = nulls
                        && !IGNORE_NULLS_WINDOWS.contains(&aggregate.name())
                    {
                        return refuse_clause(
                            format!("{name}(…) IGNORE NULLS OVER"),
                            "FILTER (WHERE x IS NOT NULL) leaves nulls out",
                        );
                    }
                    if filter.is_some() && IGNORE_NULLS_WINDOWS.contains(&aggregate.name()) {
                        return refuse_clause(
                            format!("FILTER of {name} with OVER"),
                            "CASE WHEN … THEN x END with IGNORE NULLS passes over values",
                        );
                    }
                }
                // The planner puts the ORDER BY in place of the first argument.
                if let ([FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), _, ..], [order]) =
                    (args.as_slice(), order_by)
                    && takes_within_group(aggregate)
                    && *value != order.expr
                {
                    return refuse_clause(
                        format!("{name}({value}, … ORDER BY {})", order.expr),
                        &format!("write {name}(…) WITHIN GROUP (ORDER BY {value})"),
                    );
                }
            }
            CalledFunctionKind::Window => {
                if !is_window {
                    return Err(Error::usage_with_hint(
                        format!("`{name}` is a window function, and has no OVER"),
                        format!("write {name}(…) OVER (PARTITION BY a ORDER BY b)"),
                    ));
                }
                if let Some(clause) =
                    beside.find(|clause| matches!(*clause, "DISTINCT" | "ORDER BY" | "FILTER"))
                {
                    return refuse_clause(format!("{clause} of {name}"), "");
                }
                if nulls == Some(NullTreatment::IgnoreNulls)
                    && !IGNORE_NULLS_WINDOWS.contains(&name.as_str())
                {
                    return refuse_clause(format!("IGNORE NULLS of {name}"), "");
                }
            }
            CalledFunctionKind::Unknown => {}
        }
        let is_aggregate = matches!(called, CalledFunctionKind::Aggregate(_)) && !is_window;
        let allowed = match (is_window, is_aggregate) {
            (true, _) => place.allows_windows,
            (false, true) => place.allows_aggregates,
            (false, false) => true,
        };
        if !allowed {
            return Err(misplaced_call_error(&name, is_window, place));
        }
        let inner = match (is_window, is_aggregate) {
            (true, _) => ClauseContext::group_clause("a window function"),
            (false, true) => ClauseContext::row_clause("an aggregate function"),
            // Named windows are found anywhere in the select list.
            (false, false) => place,
        };
        args.iter()
            .try_for_each(|arg| self.check_argument(&name, &called, arg, is_distinct, inner))?;
        self.check_order_by_exprs(order_by, inner)?;
        within_group.iter().try_for_each(|order| self.check_order_by_expr(order, inner))?;
        if let Some(condition) = filter {
            self.check_expr(condition, ClauseContext::row_clause("FILTER"))?;
        }
        match over {
            None => Ok(()),
            Some(WindowType::WindowSpec(window)) => self.check_window(window),
            Some(WindowType::NamedWindow(_)) if place.allows_named_windows => Ok(()),
            Some(WindowType::NamedWindow(window)) => {
                refuse_clause(format!("OVER {window} in {}", place.clause_name), INLINE_WINDOW_HINT)
            }
        }
    }

    fn check_argument(
        &self,
        name: &str,
        called: &CalledFunctionKind<'_>,
        arg: &FunctionArg,
        is_distinct: bool,
        place: ClauseContext,
    ) -> Result<()> {
        let arg = match arg {
            FunctionArg::Unnamed(arg) => arg,
            // The planner sorts named arguments into the order of the function's own names.
            FunctionArg::Named { name: _, arg, operator: _ }
            | FunctionArg::ExprNamed { name: Expr::Identifier(_), arg, operator: _ }
                if !matches!(called, CalledFunctionKind::HigherOrder)
                    && !matches!(name, "map" | "make_map" | "unnest" | "unnest_outer") =>
            {
                arg
            }
            FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                return refuse_clause(format!("{arg} in {name}(…)"), "give the arguments in order");
            }
        };
        match arg {
            FunctionArgExpr::Expr(Expr::Lambda(lambda))
                if matches!(called, CalledFunctionKind::HigherOrder) =>
            {
                self.check_lambda(lambda)
            }
            FunctionArgExpr::Expr(expr) => self.check_expr(expr, place),
            FunctionArgExpr::Wildcard if name == "count" && !is_distinct => Ok(()),
            FunctionArgExpr::Wildcard if name == "count" => refuse_clause(
                "count(DISTINCT *)",
                "SELECT count(*) FROM (SELECT DISTINCT * FROM …) counts different rows",
            ),
            FunctionArgExpr::QualifiedWildcard(_)
            | FunctionArgExpr::Wildcard
            | FunctionArgExpr::WildcardWithOptions(_) => {
                if matches!(called, CalledFunctionKind::Unknown) {
                    return Err(unknown_functions::unknown_function_error(name));
                }
                refuse_clause(
                    format!("{name}({arg})"),
                    "count(*) counts rows; others take a column",
                )
            }
        }
    }

    fn check_lambda(&self, lambda: &LambdaFunction) -> Result<()> {
        let LambdaFunction { params, body, syntax: _ } = lambda;
        let params = match params {
            OneOrManyWithParens::One(param) => std::slice::from_ref(param),
            OneOrManyWithParens::Many(params) => params,
        };
        for LambdaFunctionParameter { name, data_type } in params {
            if let Some(data_type) = data_type {
                return refuse_clause(format!("{name} {data_type} -> …"), "leave the type out");
            }
        }
        self.check_expr(body, ClauseContext::row_clause("a lambda"))
    }
}

/// Returns true if an aggregate's value may stand in `WITHIN GROUP (ORDER BY value)`.
fn takes_within_group(aggregate: &AggregateUDF) -> bool {
    aggregate.supports_within_group_clause()
        || matches!(
            aggregate.name(),
            "percentile_cont" | "approx_percentile_cont" | "approx_percentile_cont_with_weight"
        )
}

/// Returns the error for an aggregate or window function in a clause that does not allow it.
fn misplaced_call_error(name: &str, is_window: bool, place: ClauseContext) -> Error {
    let what = if is_window { "the window function" } else { "the aggregate function" };
    let message = format!("{what} `{name}` cannot stand in {}", place.clause_name);
    let hint = match (is_window, place.clause_name) {
        (true, "WHERE") => "QUALIFY filters by it: … QUALIFY rank() OVER (ORDER BY a) <= 3",
        (true, _) => "take it in a subquery, and name its column",
        (false, "WHERE") => "HAVING filters groups: … GROUP BY a HAVING count(*) > 3",
        (false, _) => "take it in a subquery, and name its column",
    };
    Error::usage_with_hint(message, hint)
}
