//! Casts with names of their own.
//!
//! The planner names a column by its expression, and leaves casts out of the name: in
//! `SELECT ts, CAST(ts AS DATE) AS day … GROUP BY ts, day` both keys are called `ts`, in
//! `SELECT sum(v) AS a, sum(CAST(v AS DOUBLE)) AS b` both sums are, and it refuses them as one.
//! Where it does, each cast of the statement is put into a function that gives back what it is
//! given and whose name is that of the cast, and the statement is planned once more. The optimiser
//! takes the function away, before anything looks for a cast.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue, SchemaError, plan_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Select, SelectItem, Value, Visit, VisitMut, Visitor,
    VisitorMut,
};
use futures::executor::block_on;

/// The function's name, which nobody writes by accident.
const NAME: &str = "cast as named";

/// What `plan` makes of a statement, in which two casts, or a cast and what it is of, are two columns.
///
/// # Errors
/// As `plan`.
pub fn told_apart<T>(
    state: &SessionState,
    statement: Statement,
    plan: impl Fn(&SessionState, Statement) -> PlanResult<T>,
) -> PlanResult<T> {
    let error = match plan(state, statement.clone()) {
        Err(error) if is_of_names(&error) => error,
        planned => return planned,
    };
    let Some(named) = with_names(statement) else { return Err(error) };
    let mut state = state.clone();
    let function = Named { signature: Signature::any(2, Volatility::Immutable) };
    state.register_udf(Arc::new(ScalarUDF::from(function)))?;
    plan(&state, named).map_err(|again| if is_of_names(&again) { error } else { again })
}

/// The plan of a statement, in which they are.
///
/// # Errors
/// As DataFusion's planner.
pub fn planned(state: &SessionState, statement: Statement) -> PlanResult<LogicalPlan> {
    told_apart(state, statement, |state, statement| block_on(state.statement_to_plan(statement)))
}

/// Whether two columns are refused because they have one name.
fn is_of_names(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Plan(message) => message.contains("require unique expression names"),
        DataFusionError::SchemaError(cause, _) => matches!(
            cause.as_ref(),
            SchemaError::DuplicateUnqualifiedField { .. }
                | SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::AmbiguousReference { .. }
        ),
        _ => false,
    }
}

/// The statement with a function around each cast, if it has one.
fn with_names(mut statement: Statement) -> Option<Statement> {
    let Statement::Statement(inner) = &mut statement else { return None };
    let mut names = Names::default();
    let _: ControlFlow<()> = inner.visit(&mut names);
    names.found.then_some(statement)
}

#[derive(Default)]
struct Names {
    found: bool,
    /// How many selects are around what is looked at.
    depth: usize,
}

impl VisitorMut for Names {
    type Break = ();

    /// A column without a name of its own is called what the query says; so are those of subqueries,
    /// which the optimiser joins by their names.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.depth += 1;
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && !matches!(expr, SqlExpr::Identifier(_) | SqlExpr::CompoundIdentifier(_))
                && (self.depth > 1 || has_cast(expr))
            {
                self.found = true;
                let alias = Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<()> {
        let SqlExpr::Cast { kind, data_type, .. } = expr else { return ControlFlow::Continue(()) };
        self.found = true;
        let word = match kind {
            CastKind::Cast | CastKind::DoubleColon => "CAST",
            CastKind::TryCast | CastKind::SafeCast => "TRY_CAST",
        };
        let name = Value::SingleQuotedString(format!("{word} {data_type}"));
        let args = [expr.clone(), SqlExpr::value(name)];
        let args = args.map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).to_vec();
        *expr = SqlExpr::Function(Function {
            name: ObjectName::from(vec![Ident::with_quote('"', NAME)]),
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
        });
        ControlFlow::Continue(())
    }
}

fn has_cast(expr: &SqlExpr) -> bool {
    struct Found;

    impl Visitor for Found {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<()> {
            match expr {
                SqlExpr::Cast { .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    expr.visit(&mut Found).is_break()
}

/// Gives back its first argument; the second is the cast's word and type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Named {
    signature: Signature,
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => plan_err!("`{NAME}` has no argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        match args.arg_fields.first() {
            Some(field) => Ok(Arc::clone(field)),
            None => plan_err!("`{NAME}` has no argument"),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        match args {
            [cast, Expr::Literal(ScalarValue::Utf8(Some(name)), _)] => {
                let (word, data_type) = name.split_once(' ').unwrap_or(("CAST", name));
                Ok(format!("{word}({} AS {data_type})", cast.schema_name()))
            }
            _ => Ok(NAME.into()),
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
            true => plan_err!("`{NAME}` has no argument"),
        }
    }
}
