//! Expansion of expressions that need the columns of the sources: `COLUMNS('^d')`, `* ILIKE 'd%'`,
//! `* RENAME (a AS b)`, `geo.*` of a struct, and select-list aliases used in WHERE or in the list itself.
//!
//! The expansion visits each SELECT after those within it. Where it needs columns, it plans
//! `SELECT * FROM` the same sources. A name that is both a column and an alias means the column.

use std::collections::BTreeSet;
use std::mem::take;
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, ExceptSelectItem, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Join, JoinConstraint, JoinOperator, LambdaFunction, ObjectName,
    ObjectNamePart, OrderByExpr, OrderByKind, Query, RenameSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableWithJoins, Value,
    ValueWithSpan, Visitor, VisitorMut, WildcardAdditionalOptions, With,
};
use futures::executor::block_on;
use regex::Regex;
use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;
use tidemill_planning::{
    plan_statement, walk_expr, walk_expr_mut, walk_statement, walk_statement_mut,
};

use crate::column_names::{self, normalize_ident};
use crate::error_translation::{IntoTidemillError, column_count_error};
use crate::translation::function_calls::{and_conditions, parenthesize, unquoted_call_name};
use crate::translation::hidden_columns::{
    UsedHiddenColumns, add_hidden_aliases, hidden_columns_of,
};
use crate::translation::parse_statements;
use crate::translation::pivots::{text_literal, unexpanded_unpivot_entries, unpivot_items};
use crate::translation::set_operations::set_operation_sides;
use crate::using_columns::table_qualifier;

/// The function that stands for several columns.
const COLUMNS_FUNCTION: &str = "columns";

/// Returns true if a statement has expressions whose columns are known only once the sources are open.
pub fn needs_column_expansion(statement: &Parsed) -> bool {
    struct ExpansionFinder;

    impl Visitor for ExpansionFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match as_columns_call(expr) {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        }

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let order = query.order_by.as_ref().map(|order| &order.kind);
            match order {
                Some(OrderByKind::All(_)) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            let mut stars = select.projection.iter().filter_map(star_options);
            match stars.any(|(_, options)| has_ilike_or_rename(options)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }

    let Parsed::Statement(statement) = statement else { return false };
    walk_statement(statement, &mut ExpansionFinder)
}

/// Expands column patterns, and select-list aliases that WHERE or the list itself uses; returns true if there
/// were any. A `*` over a table with hidden columns is expanded without them.
///
/// # Errors
/// [`Error::Usage`] for a pattern that matches no column, for an alias that WHERE cannot use, and for a
/// NATURAL JOIN over hidden columns.
pub fn expand_columns(
    statement: &mut Parsed,
    state: &SessionState,
    unhidden: &UsedHiddenColumns,
) -> Result<bool> {
    let Parsed::Statement(statement) = statement else { return Ok(false) };
    if !unhidden.is_empty() {
        add_hidden_aliases(statement, unhidden)?;
    }
    let mut selects = ColumnExpansion {
        state,
        used_hidden: unhidden,
        ctes: Vec::new(),
        is_recursive: false,
        suspended_withs: Vec::new(),
        error: None,
        has_changed: false,
    };
    walk_statement_mut(statement, &mut selects);
    match selects.error {
        Some(error) => Err(error),
        None => Ok(selects.has_changed),
    }
}

struct ColumnExpansion<'a> {
    state: &'a SessionState,
    /// The hidden columns that this statement names, by source.
    used_hidden: &'a UsedHiddenColumns,
    /// The tables of WITH that are visible here, already expanded.
    ctes: Vec<Cte>,
    is_recursive: bool,
    /// The WITH of each enclosing query, and the length of `ctes` outside of that query.
    suspended_withs: Vec<(Option<With>, usize)>,
    error: Option<Error>,
    has_changed: bool,
}

impl VisitorMut for ColumnExpansion<'_> {
    type Break = ();

    /// Expands the tables of WITH one by one; each sees those before it.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let outside = self.ctes.len();
        let mut with = query.with.take();
        if let Some(with) = &mut with {
            self.is_recursive |= with.recursive;
            for cte in &mut with.cte_tables {
                let mut inner = Statement::Query(cte.query.clone());
                walk_statement_mut(&mut inner, self);
                if self.error.is_some() {
                    return ControlFlow::Break(());
                }
                if let Statement::Query(inner) = inner {
                    cte.query = inner;
                }
                self.ctes.push(cte.clone());
            }
        }
        self.suspended_withs.push((with, outside));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Err(error) = self.expand_order_by_all(query) {
            self.error = Some(error);
            return ControlFlow::Break(());
        }
        if let Some((with, outside)) = self.suspended_withs.pop() {
            query.with = with;
            self.ctes.truncate(outside);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let done = self.check_column_counts(select);
        let done = done
            .and_then(|()| self.expand_unpivot(select))
            .and_then(|()| self.expand_column_patterns(select))
            .and_then(|()| self.substitute_aliases(select));
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// A column of a SELECT's sources.
struct InputColumn {
    table: Option<String>,
    name: String,
    data_type: DataType,
}

impl ColumnExpansion<'_> {
    /// Returns the hidden columns of the sources, each with the qualifier of its table.
    fn hidden_columns(&self, from: &[TableWithJoins]) -> Vec<(String, String)> {
        let is_cte =
            |name: &str| self.ctes.iter().any(|cte| normalize_ident(&cte.alias.name) == name);
        hidden_columns_of(from, &is_cte, self.used_hidden)
    }

    /// Returns the columns of the sources that a `*` stands for.
    fn visible_columns(&self, from: &[TableWithJoins]) -> Result<Vec<InputColumn>> {
        let hidden = self.hidden_columns(from);
        let mut columns = match from.iter().any(merges_columns).then(|| source_qualifiers(from)) {
            Some(Some(sources)) => self.joined_columns(from, &sources)?,
            _ => self.input_columns(from)?,
        };
        columns.retain(|column| !is_listed_column(column, &hidden));
        Ok(columns)
    }

    /// Returns the columns of joined sources in the order of the sources. A column that a join merges by
    /// USING or NATURAL is taken from the first source that has it. (The planner's `*` takes it from the
    /// source whose name sorts first; its value is null where a LEFT JOIN finds no match.)
    fn joined_columns(
        &self,
        from: &[TableWithJoins],
        sources: &[Vec<Ident>],
    ) -> Result<Vec<InputColumn>> {
        let mut columns = self.plan_columns(&mut |body| {
            if let SetExpr::Select(select) = body {
                let star = |source: &Ident| {
                    let name = ObjectName::from(vec![source.clone()]);
                    let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
                    SelectItem::QualifiedWildcard(kind, WildcardAdditionalOptions::default())
                };
                select.projection = sources.iter().flatten().map(star).collect();
                select.from = from.to_vec();
            }
        })?;
        for (from, sources) in from.iter().zip(sources) {
            let mut before: Vec<String> = sources.iter().take(1).map(normalize_ident).collect();
            for (join, source) in from.joins.iter().zip(sources.iter().skip(1).map(normalize_ident))
            {
                let is_of =
                    |column: &InputColumn, source: &String| column.table.as_ref() == Some(source);
                let names: BTreeSet<String> = match inner_or_left_constraint(join) {
                    Some(JoinConstraint::Using(names)) => {
                        names.iter().map(|name| normalize_ident(&last_identifier(name))).collect()
                    }
                    Some(JoinConstraint::Natural) => {
                        let of_sources = columns
                            .iter()
                            .filter(|column| before.iter().any(|source| is_of(column, source)));
                        of_sources.map(|column| column.name.clone()).collect()
                    }
                    _ => BTreeSet::new(),
                };
                columns.retain(|column| !is_of(column, &source) || !names.contains(&column.name));
                before.push(source);
            }
        }
        Ok(columns)
    }

    /// Returns the columns that `t.*` stands for, with those of USING, which a plain `*` takes from one table
    /// only.
    fn qualified_star_columns(
        &self,
        star: &SelectItem,
        from: &[TableWithJoins],
    ) -> Result<Vec<InputColumn>> {
        let SelectItem::QualifiedWildcard(kind, _) = star else { return Ok(Vec::new()) };
        let hidden = self.hidden_columns(from);
        let mut columns = self.plan_columns(&mut |body| {
            if let SetExpr::Select(select) = body {
                let all = WildcardAdditionalOptions::default();
                select.projection = vec![SelectItem::QualifiedWildcard(kind.clone(), all)];
                select.from = from.to_vec();
            }
        })?;
        columns.retain(|column| !is_listed_column(column, &hidden));
        Ok(columns)
    }

    /// Returns the columns of the sources, or the planner's error.
    fn input_columns(&self, from: &[TableWithJoins]) -> Result<Vec<InputColumn>> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        self.plan_columns(&mut |body| {
            if let SetExpr::Select(select) = body {
                select.from = from.to_vec();
            }
        })
    }

    /// Returns the columns of `SELECT * FROM t` after `change` has edited its body.
    fn plan_columns(&self, change: &mut dyn FnMut(&mut SetExpr)) -> Result<Vec<InputColumn>> {
        let mut statements =
            parse_statements("SELECT * FROM t").map_err(|e| Error::Internal(e.to_string()))?;
        let Some(Statement::Query(query)) = statements.first_mut() else {
            return Err(Error::Internal("no query".into()));
        };
        change(&mut query.body);
        query.with = (!self.ctes.is_empty()).then(|| With {
            with_token: AttachedToken::empty(),
            recursive: self.is_recursive,
            cte_tables: self.ctes.clone(),
        });
        let statement = statements.remove(0);
        let plan = plan_statement(self.state, Parsed::Statement(Box::new(statement)))
            .into_tidemill_error()?;
        let columns = plan.schema().iter().map(|(table, field)| InputColumn {
            table: table.map(|table| table.table().to_owned()),
            name: field.name().clone(),
            data_type: field.data_type().clone(),
        });
        Ok(columns.collect())
    }

    /// Refuses an INTERSECT ALL or EXCEPT ALL whose sides differ in their number of columns: the planner's
    /// message would name the UNION that stands for it.
    fn check_column_counts(&self, select: &Select) -> Result<()> {
        let Some((operator, sides)) =
            select.from.first().and_then(|from| set_operation_sides(&from.relation))
        else {
            return Ok(());
        };
        let [left, right] = sides.map(|side| self.plan_columns(&mut |body| body.clone_from(side)));
        match (left, right) {
            (Ok(left), Ok(right)) if left.len() != right.len() => Err(column_count_error(operator)),
            // The planner reports all other errors.
            _ => Ok(()),
        }
    }

    /// Replaces `ORDER BY ALL` by the numbers of the columns.
    fn expand_order_by_all(&mut self, query: &mut Query) -> Result<()> {
        let Some(order) = &mut query.order_by else { return Ok(()) };
        let OrderByKind::All(options) = order.kind else { return Ok(()) };
        let of = &query.body;
        let columns = self.plan_columns(&mut |body| body.clone_from(of))?;
        let numbers = (1..=columns.len()).map(|number| OrderByExpr {
            expr: Expr::value(Value::Number(number.to_string(), false)),
            options,
            with_fill: None,
        });
        order.kind = OrderByKind::Expressions(numbers.collect());
        self.has_changed = true;
        Ok(())
    }

    /// Expands the columns of `UNPIVOT t ON COLUMNS(…)`.
    fn expand_unpivot(&mut self, select: &mut Select) -> Result<()> {
        let Some((entries, name, value)) = unexpanded_unpivot_entries(select) else {
            return Ok(());
        };
        let columns = self.visible_columns(&select.from)?;
        let mut written = Vec::with_capacity(columns.len());
        for (entry, label) in entries {
            match first_columns_call(&entry) {
                Some(_) => {
                    let each = self.expand_expr(&entry, &columns)?.into_iter();
                    written.extend(each.map(|(column, parts)| {
                        (column, text_literal(parts.into_iter().next().unwrap_or_default()))
                    }));
                }
                None => written.push((entry, label)),
            }
        }
        select.projection = unpivot_items(written, &name, &value);
        self.has_changed = true;
        Ok(())
    }

    /// Expands the items of a select list, and the condition of WHERE, that stand for several columns.
    fn expand_column_patterns(&mut self, select: &mut Select) -> Result<()> {
        let in_list = select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                first_columns_call(expr).is_some()
            }
            other => star_options(other).is_some_and(|(_, options)| has_ilike_or_rename(options)),
        });
        let has_star = select.projection.iter().any(|item| star_options(item).is_some());
        let hides = has_star && !self.hidden_columns(&select.from).is_empty();
        let has_bare_star =
            select.projection.iter().filter_map(star_options).any(|(of, _)| of.is_none());
        let merges = has_bare_star
            && select.from.iter().any(merges_columns)
            && source_qualifiers(&select.from).is_some();
        let in_where =
            select.selection.as_ref().is_some_and(|expr| first_columns_call(expr).is_some());
        let tables = source_names(&select.from);
        let of_fields = select.projection.iter().any(|item| is_field_star(item, &tables));
        if !in_list && !in_where && !hides && !merges && !of_fields {
            return Ok(());
        }
        self.has_changed = true;
        let columns = self.visible_columns(&select.from)?;
        let mut items = Vec::with_capacity(select.projection.len());
        for item in take(&mut select.projection) {
            match &item {
                SelectItem::UnnamedExpr(expr) if first_columns_call(expr).is_some() => {
                    for (made, _) in self.expand_expr(expr, &columns)? {
                        items.push(SelectItem::UnnamedExpr(made));
                    }
                }
                SelectItem::ExprWithAlias { expr, alias } if first_columns_call(expr).is_some() => {
                    // An earlier translation gave the item its original text as its name.
                    let call = first_columns_call(expr).map(|call| call.to_string());
                    for (expr, parts) in self.expand_expr(expr, &columns)? {
                        let (call, name) = (call.as_deref(), parts.first());
                        let alias = match (call, name) {
                            (Some(call), Some(name)) => alias.value.replace(call, name),
                            _ => alias.value.clone(),
                        };
                        let alias = Ident::with_quote('"', substitute_captures(&alias, &parts));
                        items.push(SelectItem::ExprWithAlias { expr, alias });
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) if is_field_star(&item, &tables) => {
                    match expand_field_star(name, options, &columns)? {
                        Some(fields) => items.extend(fields),
                        None => items.push(item.clone()),
                    }
                }
                item => match star_options(item) {
                    Some((Some(_), options)) if hides => {
                        let own = self.qualified_star_columns(item, &select.from)?;
                        items.extend(expand_star(None, options, &own, true)?);
                    }
                    Some((of, options))
                        if hides || has_ilike_or_rename(options) || merges && of.is_none() =>
                    {
                        items.extend(expand_star(of, options, &columns, false)?);
                    }
                    _ => items.push(item.clone()),
                },
            }
        }
        select.projection = items;
        if let Some(condition) = select.selection.take() {
            select.selection = Some(match first_columns_call(&condition) {
                Some(_) => {
                    let all = self.expand_expr(&condition, &columns)?;
                    let all = all.into_iter().map(|(condition, _)| parenthesize(condition));
                    all.reduce(and_conditions).unwrap_or(condition)
                }
                None => condition,
            });
        }
        Ok(())
    }

    /// Returns the expression for each column that its COLUMNS stands for, with the pattern's captures.
    fn expand_expr(
        &self,
        expr: &Expr,
        columns: &[InputColumn],
    ) -> Result<Vec<(Expr, Vec<String>)>> {
        let Some(call) = first_columns_call(expr) else { return Ok(Vec::new()) };
        let meant = self.matching_columns(&call, columns)?;
        let written = call.to_string();
        let made = meant.into_iter().map(|(column, parts)| {
            let mut put = ColumnSubstitution { call: &written, column: &column, other_call: None };
            let mut made = expr.clone();
            walk_expr_mut(&mut made, &mut put);
            match put.other_call {
                Some(other) => Err(Error::usage_with_hint(
                    format!(
                        "`{written}` and `{other}` in one expression stand for different columns"
                    ),
                    "write the same COLUMNS(…) in both places, or the columns by name",
                )),
                None => Ok((made, parts)),
            }
        });
        made.collect()
    }

    /// Returns the columns that a call of COLUMNS stands for, with the pattern's captures.
    fn matching_columns(
        &self,
        call: &Function,
        columns: &[InputColumn],
    ) -> Result<Vec<(Expr, Vec<String>)>> {
        let refused = || {
            Error::usage_with_hint(
                format!("`{call}` is not understood"),
                "COLUMNS takes *, a pattern in single quotes, names in single quotes or brackets, or a function \
                 of the name: COLUMNS(c -> c LIKE 'a%')",
            )
        };
        let FunctionArguments::List(list) = &call.args else { return Err(refused()) };
        let whole =
            |column: &InputColumn| (column_reference(column, columns), vec![column.name.clone()]);
        let found: Vec<_> = match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => {
                columns.iter().map(whole).collect()
            }
            [FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(of))] => {
                let of = of.to_string();
                let of = columns.iter().filter(|column| column.table.as_ref() == Some(&of));
                of.map(whole).collect()
            }
            [FunctionArg::Unnamed(FunctionArgExpr::WildcardWithOptions(options))] => {
                let items = expand_star(None, options, columns, false)?;
                let exprs = items.into_iter().filter_map(|item| match item {
                    SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                        let name = column_names::expr_display_text(&expr);
                        Some((expr, vec![name]))
                    }
                    _ => None,
                });
                exprs.collect()
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Lambda(function)))] => {
                let names = self.names_matching_lambda(function, columns)?;
                columns.iter().filter(|column| names.contains(&column.name)).map(whole).collect()
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(array)))] => {
                let named = array.elem.iter().map(|item| resolve_named_column(item, columns));
                named.collect::<Result<_>>()?
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(item))] if literal_text(item).is_none() => {
                vec![resolve_named_column(item, columns)?]
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(item))] => {
                let pattern = literal_text(item).ok_or_else(refused)?;
                let regex = Regex::new(&pattern).map_err(|_| {
                    Error::usage_with_hint(
                        format!("`{pattern}` in COLUMNS is no regular expression"),
                        "a name is found wherever the pattern is in it: COLUMNS('^delay_')",
                    )
                })?;
                let found = columns.iter().filter_map(|column| {
                    let parts = regex.captures(&column.name)?;
                    let parts = parts.iter().map(|part| part.map_or("", |part| part.as_str()));
                    let mut parts: Vec<String> = parts.map(str::to_owned).collect();
                    if let Some(whole) = parts.first_mut() {
                        whole.clone_from(&column.name);
                    }
                    Some((column_reference(column, columns), parts))
                });
                found.collect()
            }
            _ => return Err(refused()),
        };
        match found.is_empty() {
            true => Err(no_column_error(&call.to_string(), columns)),
            false => Ok(found),
        }
    }

    /// Returns the column names for which a lambda is true.
    fn names_matching_lambda(
        &self,
        function: &LambdaFunction,
        columns: &[InputColumn],
    ) -> Result<BTreeSet<String>> {
        let Some(name) = function.params.iter().next().map(|parameter| &parameter.name) else {
            return Err(Error::usage(format!("`{function}` in COLUMNS names no column")));
        };
        let body = &function.body;
        let rows: Vec<String> = columns
            .iter()
            .map(|column| format!("({})", Value::SingleQuotedString(column.name.clone())))
            .collect();
        let text = format!(
            "SELECT {name} FROM (VALUES {}) AS names({name}) WHERE {body}",
            rows.join(", ")
        );
        let mut statements = parse_statements(&text).map_err(|_| {
            Error::usage_with_hint(
                format!("`{function}` in COLUMNS is not understood"),
                "it is a condition on the name of a column: COLUMNS(c -> c LIKE 'a%')",
            )
        })?;
        if statements.len() != 1 {
            return Err(Error::Internal(text));
        }
        let statement = Parsed::Statement(Box::new(statements.remove(0)));
        let context = SessionContext::new_with_state(self.state.clone());
        let plan = plan_statement(self.state, statement).into_tidemill_error()?;
        let batches = block_on(async { context.execute_logical_plan(plan).await?.collect().await });
        let mut names = BTreeSet::new();
        for batch in batches.into_tidemill_error()? {
            let column = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8);
            let column = column.map_err(|e| Error::Internal(e.to_string()))?;
            let texts = arrow::array::AsArray::as_string::<i32>(&column);
            names.extend(texts.iter().flatten().map(str::to_owned));
        }
        Ok(names)
    }

    /// Replaces select-list aliases by their expressions in WHERE and in later items of the list.
    fn substitute_aliases(&mut self, select: &mut Select) -> Result<()> {
        let mut given: Vec<(String, Expr)> = Vec::new();
        let mut wanted = false;
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { expr, alias } => {
                    wanted |= uses_alias(expr, &given);
                    given.push((normalize_ident(alias), expr.clone()));
                }
                SelectItem::UnnamedExpr(expr) => wanted |= uses_alias(expr, &given),
                _ => {}
            }
        }
        // The planner substitutes aliases in QUALIFY itself.
        if let Some(condition) = &select.qualify {
            for (name, meant) in &given {
                self.refuse_volatile_reuse(condition, name, meant)?;
            }
        }
        if let Some(condition) = &select.selection {
            wanted |= uses_alias(condition, &given);
        }
        if !wanted {
            return Ok(());
        }
        // The planner reports an error in the sources better itself.
        let Ok(columns) = self.input_columns(&select.from) else { return Ok(()) };
        let is_column = |name: &str| columns.iter().any(|column| column.name == name);
        let mut given: Vec<(String, Expr)> = Vec::new();
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { expr, alias } => {
                    self.substitute_in_expr(expr, &given)?;
                    let name = normalize_ident(alias);
                    if !is_column(&name) {
                        given.push((name, expr.clone()));
                    }
                }
                SelectItem::UnnamedExpr(expr) if uses_alias(expr, &given) => {
                    let alias = Ident::with_quote('"', column_names::expr_display_text(expr));
                    self.substitute_in_expr(expr, &given)?;
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
                _ => {}
            }
        }
        if let Some(condition) = &mut select.selection
            && uses_alias(condition, &given)
        {
            for (name, expr) in &given {
                let one = [(name.clone(), expr.clone())];
                if uses_alias(condition, &one)
                    && let Some(clause) = self.required_clause(expr)
                {
                    return Err(Error::usage_with_hint(
                        format!("WHERE looks at single records, and `{name}` is {expr}"),
                        format!("write the condition in {clause}"),
                    ));
                }
            }
            self.substitute_in_expr(condition, &given)?;
        }
        Ok(())
    }

    /// Refuses an expression that uses the alias of a volatile value, since the value would be computed
    /// again.
    fn refuse_volatile_reuse(&self, expr: &Expr, name: &str, meant: &Expr) -> Result<()> {
        if uses_alias(expr, &[(name.to_owned(), meant.clone())])
            && let Some(function) = self.first_volatile_function(meant)
        {
            return Err(Error::usage_with_hint(
                format!("`{name}` is used twice, and {function}() gives another value each time"),
                format!(
                    "make the column in a query within this one: FROM (SELECT *, {meant} AS {name} FROM …)"
                ),
            ));
        }
        Ok(())
    }

    fn substitute_in_expr(&mut self, expr: &mut Expr, given: &[(String, Expr)]) -> Result<()> {
        if !uses_alias(expr, given) {
            return Ok(());
        }
        for (name, meant) in given {
            self.refuse_volatile_reuse(expr, name, meant)?;
        }
        self.has_changed = true;
        walk_expr_mut(
            expr,
            &mut AliasSubstitution {
                aliases: given,
                lambda_parameters: Vec::new(),
                query_depth: 0,
            },
        );
        Ok(())
    }

    /// Returns the clause for a condition on an expression that cannot stand in WHERE.
    fn required_clause(&self, expr: &Expr) -> Option<&'static str> {
        struct AggregateFinder<'a> {
            state: &'a SessionState,
            clause: Option<&'static str>,
        }

        impl Visitor for AggregateFinder<'_> {
            type Break = ();

            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
                if let Expr::Function(call) = expr {
                    let is_aggregate = || {
                        let name = call.name.to_string().to_lowercase();
                        self.state.aggregate_functions().contains_key(&name)
                    };
                    if call.over.is_some() {
                        self.clause = Some("QUALIFY");
                    } else if self.clause.is_none() && is_aggregate() {
                        self.clause = Some("HAVING");
                    }
                }
                ControlFlow::Continue(())
            }
        }

        let mut calls = AggregateFinder { state: self.state, clause: None };
        walk_expr(expr, &mut calls);
        calls.clause
    }

    /// Returns the first volatile function of an expression.
    fn first_volatile_function(&self, expr: &Expr) -> Option<String> {
        struct VolatileFinder<'a> {
            state: &'a SessionState,
            found: Option<String>,
        }

        impl Visitor for VolatileFinder<'_> {
            type Break = ();

            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
                let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
                let name = call.name.to_string().to_lowercase();
                match self.state.scalar_functions().get(&name) {
                    Some(function) if function.signature().volatility == Volatility::Volatile => {
                        self.found = Some(name);
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                }
            }
        }

        let mut calls = VolatileFinder { state: self.state, found: None };
        walk_expr(expr, &mut calls);
        calls.found
    }
}

/// Returns the options of a `*` and the table that qualifies it, if any.
fn star_options(item: &SelectItem) -> Option<(Option<String>, &WildcardAdditionalOptions)> {
    match item {
        SelectItem::Wildcard(options) => Some((None, options)),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options) => {
            let mut parts = of.0.iter().rev().filter_map(|part| match part {
                ObjectNamePart::Identifier(ident) => Some(normalize_ident(ident)),
                ObjectNamePart::Function(_) => None,
            });
            Some((parts.next(), options))
        }
        _ => None,
    }
}

/// Returns the names of the sources of a FROM, without those within parentheses.
pub(super) fn source_names(from: &[TableWithJoins]) -> BTreeSet<String> {
    let factors = from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation))
    });
    let name = |factor: &TableFactor| match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(normalize_ident(&alias.name)),
        TableFactor::Table { name, .. } => Some(normalize_ident(&last_identifier(name))),
        _ => None,
    };
    factors.filter_map(name).collect()
}

/// Returns the constraint of an inner or left join.
fn inner_or_left_constraint(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on) => Some(on),
        _ => None,
    }
}

/// Returns true if an inner or left join merges two columns of the same name.
fn merges_columns(from: &TableWithJoins) -> bool {
    let is_merging = |join| {
        matches!(
            inner_or_left_constraint(join),
            Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
        )
    };
    from.joins.iter().any(is_merging)
}

/// Returns the names of all sources; `None` if a source has no name or a join is neither inner, left nor
/// cross.
fn source_qualifiers(from: &[TableWithJoins]) -> Option<Vec<Vec<Ident>>> {
    let of_joins = |from: &TableWithJoins| {
        let joined = from.joins.iter().map(|join| match &join.join_operator {
            JoinOperator::CrossJoin(_) => table_qualifier(&join.relation),
            _ => inner_or_left_constraint(join).and_then(|_| table_qualifier(&join.relation)),
        });
        std::iter::once(table_qualifier(&from.relation)).chain(joined).collect()
    };
    from.iter().map(of_joins).collect()
}

/// Returns true for `x.*` if no source has the name `x`.
fn is_field_star(item: &SelectItem, tables: &BTreeSet<String>) -> bool {
    let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) = item
    else {
        return false;
    };
    let [ObjectNamePart::Identifier(only)] = of.0.as_slice() else { return true };
    !tables.contains(&normalize_ident(only))
}

/// Expands `geo.*` into a column for each field of a struct; `None` if `geo` is no struct.
fn expand_field_star(
    name: &ObjectName,
    options: &WildcardAdditionalOptions,
    columns: &[InputColumn],
) -> Result<Option<Vec<SelectItem>>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(ident.clone()),
        ObjectNamePart::Function(_) => None,
    };
    let Some(path) = name.0.iter().map(part).collect::<Option<Vec<Ident>>>() else {
        return Ok(None);
    };
    let of_table = |column: &&InputColumn| match path.as_slice() {
        [table, name, ..] => {
            column.table.as_ref() == Some(&normalize_ident(table)) && has_column_name(column, name)
        }
        _ => false,
    };
    let own =
        |column: &&InputColumn| path.first().is_some_and(|name| has_column_name(column, name));
    let (column, rest) = match columns.iter().find(of_table) {
        Some(column) => (column, path.get(2..)),
        None => match columns.iter().find(own) {
            Some(column) => (column, path.get(1..)),
            None => return Ok(None),
        },
    };
    let mut data_type = &column.data_type;
    for name in rest.unwrap_or_default() {
        let DataType::Struct(fields) = data_type else { return Ok(None) };
        let is_it = |field: &&FieldRef| {
            field.name() == &name.value
                || name.quote_style.is_none() && field.name().eq_ignore_ascii_case(&name.value)
        };
        let Some(field) = fields.iter().find(is_it) else { return Ok(None) };
        data_type = field.data_type();
    }
    let DataType::Struct(fields) = data_type else { return Ok(None) };
    let plain = WildcardAdditionalOptions {
        wildcard_token: options.wildcard_token.clone(),
        ..WildcardAdditionalOptions::default()
    };
    if *options != plain {
        return Err(Error::usage_with_hint(
            format!("`{name}.*{options}` is of a struct's fields"),
            format!("name those that are wanted: {name}.a, {name}.b"),
        ));
    }
    let items = fields.iter().map(|field| {
        let field = Ident::with_quote('"', field.name());
        let parts = path.iter().cloned().chain([field.clone()]);
        SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(parts.collect()), alias: field }
    });
    Ok(Some(items.collect()))
}

/// Returns true if a `*` has options that the planner ignores.
fn has_ilike_or_rename(options: &WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_some() || options.opt_rename.is_some()
}

/// Returns true if a column is in a list of pairs of table and column name.
fn is_listed_column(column: &InputColumn, names: &[(String, String)]) -> bool {
    let is_it = |(table, name): &(String, String)| {
        column.table.as_ref() == Some(table) && column.name == *name
    };
    names.iter().any(is_it)
}

/// Returns the columns that a `*` stands for. With `is_of_table`, `columns` are those of one table, and other
/// tables may have columns of the same names.
fn expand_star(
    of: Option<String>,
    options: &WildcardAdditionalOptions,
    columns: &[InputColumn],
    is_of_table: bool,
) -> Result<Vec<SelectItem>> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    if let Some(alias) = opt_alias {
        return Err(Error::usage_with_hint(
            format!("`* AS {alias}` is not supported"),
            "name the columns one by one, or with * RENAME (a AS b)",
        ));
    }
    let all: Vec<&InputColumn> = columns
        .iter()
        .filter(|column| of.as_ref().is_none_or(|of| column.table.as_ref() == Some(of)))
        .collect();
    let known = |name: &Ident| {
        let is_it = |column: &&&InputColumn| has_column_name(column, name);
        let names = || all.iter().map(|column| column.name.as_str()).collect::<Vec<_>>();
        let found = all.iter().find(is_it).map(|column| column.name.clone());
        found.ok_or_else(|| {
            Error::usage(suggestions::unknown_name_message("column", &name.value, &names()))
        })
    };
    let mut left_out = BTreeSet::new();
    match opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => {
            _ = left_out.insert(known(&last_identifier(name))?)
        }
        Some(ExcludeSelectItem::Multiple(names)) => {
            for name in names {
                left_out.insert(known(&last_identifier(name))?);
            }
        }
        None => {}
    }
    if let Some(ExceptSelectItem { first_element, additional_elements }) = opt_except {
        for name in std::iter::once(first_element).chain(additional_elements) {
            left_out.insert(known(name)?);
        }
    }
    let mut called = Vec::new();
    let renamed = match opt_rename {
        Some(RenameSelectItem::Single(one)) => std::slice::from_ref(one),
        Some(RenameSelectItem::Multiple(several)) => several.as_slice(),
        None => &[],
    };
    for item in renamed {
        called.push((known(&item.ident)?, item.alias.clone()));
    }
    let mut replaced = Vec::new();
    for item in opt_replace.iter().flat_map(|replace| &replace.items) {
        replaced.push((known(&item.column_name)?, item.expr.clone()));
    }
    let like = match opt_ilike {
        Some(item) => Some(like_regex(&item.pattern)?),
        None => None,
    };
    let mut items = Vec::new();
    for column in all {
        let name = &column.name;
        if left_out.contains(name) || like.as_ref().is_some_and(|like| !like.is_match(name)) {
            continue;
        }
        let expr = replaced.iter().find(|(replaced, _)| replaced == name);
        let alias = called.iter().find(|(called, _)| called == name);
        let own = || Ident::with_quote('"', name.clone());
        let alias = match (alias, expr) {
            (Some((_, alias)), _) => Some(alias.clone()),
            (None, Some(_)) => Some(own()),
            (None, None) => None,
        };
        let expr = match (expr, &column.table) {
            (Some((_, expr)), _) => expr.clone(),
            (None, Some(table)) if is_of_table => {
                let parts = [table, name].map(|part| Ident::with_quote('"', part.clone()));
                Expr::CompoundIdentifier(parts.to_vec())
            }
            (None, _) => column_reference(column, columns),
        };
        items.push(match alias {
            Some(alias) => SelectItem::ExprWithAlias { expr, alias },
            None => SelectItem::UnnamedExpr(expr),
        });
    }
    match items.is_empty() {
        true => Err(no_column_error(&format!("*{options}"), columns)),
        false => Ok(items),
    }
}

fn last_identifier(name: &ObjectName) -> Ident {
    let mut parts = name.0.iter().rev().filter_map(|part| match part {
        ObjectNamePart::Identifier(ident) => Some(ident.clone()),
        ObjectNamePart::Function(_) => None,
    });
    parts.next().unwrap_or_else(|| Ident::new(name.to_string()))
}

fn has_column_name(column: &InputColumn, name: &Ident) -> bool {
    match name.quote_style {
        Some(_) => column.name == name.value,
        None => column.name.eq_ignore_ascii_case(&name.value),
    }
}

/// Returns a regular expression for whole names from a case-insensitive LIKE pattern.
fn like_regex(pattern: &str) -> Result<Regex> {
    let mut made = String::from("(?is)^");
    for character in pattern.chars() {
        match character {
            '%' => made.push_str(".*"),
            '_' => made.push('.'),
            other => made.push_str(&regex::escape(&other.to_string())),
        }
    }
    made.push('$');
    Regex::new(&made).map_err(|error| Error::usage(format!("`{pattern}`: {error}")))
}

fn no_column_error(what: &str, columns: &[InputColumn]) -> Error {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    Error::usage_with_hint(
        format!("no column is meant by `{what}`"),
        format!("columns: {}", suggestions::format_name_list(&names)),
    )
}

/// Returns a column as SQL refers to it, qualified if another table has a column of the same name.
fn column_reference(column: &InputColumn, columns: &[InputColumn]) -> Expr {
    let name = Ident::with_quote('"', column.name.clone());
    let same = columns.iter().filter(|other| other.name == column.name).count();
    match &column.table {
        Some(table) if same > 1 => {
            Expr::CompoundIdentifier(vec![Ident::with_quote('"', table.clone()), name])
        }
        _ => Expr::Identifier(name),
    }
}

/// Returns the column that an item of `COLUMNS([…])` names.
fn resolve_named_column(item: &Expr, columns: &[InputColumn]) -> Result<(Expr, Vec<String>)> {
    let name = match item {
        Expr::Identifier(name) => name.clone(),
        other => Ident::with_quote('"', literal_text(other).unwrap_or_else(|| other.to_string())),
    };
    let found = columns.iter().find(|column| has_column_name(column, &name));
    let names = || columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>();
    let found = found.ok_or_else(|| {
        Error::usage(suggestions::unknown_name_message("column", &name.value, &names()))
    })?;
    Ok((column_reference(found, columns), vec![found.name.clone()]))
}

fn literal_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ }) => {
            Some(text.clone())
        }
        _ => None,
    }
}

/// Replaces `\1` in a name by the text of the pattern's first capture group, and other digits alike.
fn substitute_captures(name: &str, parts: &[String]) -> String {
    let mut made = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(character) = rest.next() {
        let digit = rest.peek().and_then(|next| next.to_digit(10));
        match (character, digit) {
            ('\\', Some(digit)) => {
                rest.next();
                made.push_str(parts.get(digit as usize).map_or("", String::as_str));
            }
            (other, _) => made.push(other),
        }
    }
    made
}

pub(super) fn as_columns_call(expr: &Expr) -> Option<&Function> {
    match expr {
        Expr::Function(call) if unquoted_call_name(call).as_deref() == Some(COLUMNS_FUNCTION) => {
            Some(call)
        }
        _ => None,
    }
}

/// Returns true if an expression contains a call of COLUMNS and so stands for several columns.
pub(crate) fn contains_columns_call(expr: &Expr) -> bool {
    first_columns_call(expr).is_some()
}

/// Returns the first call of COLUMNS in an expression, ignoring subqueries.
fn first_columns_call(expr: &Expr) -> Option<Function> {
    struct ColumnsCallFinder {
        queries: usize,
        found: Option<Function>,
    }

    impl Visitor for ColumnsCallFinder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match as_columns_call(expr) {
                Some(call) if self.queries == 0 => {
                    self.found = Some(call.clone());
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    let mut first = ColumnsCallFinder { queries: 0, found: None };
    walk_expr(expr, &mut first);
    first.found
}

/// Replaces a call of COLUMNS by a column.
struct ColumnSubstitution<'a> {
    call: &'a str,
    column: &'a Expr,
    /// A different call of COLUMNS in the same expression.
    other_call: Option<String>,
}

impl VisitorMut for ColumnSubstitution<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Some(call) = as_columns_call(expr) else { return ControlFlow::Continue(()) };
        let written = call.to_string();
        match written == self.call {
            true => *expr = self.column.clone(),
            false => self.other_call = Some(written),
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if an expression uses one of the aliases, ignoring subqueries and lambda parameters.
fn uses_alias(expr: &Expr, given: &[(String, Expr)]) -> bool {
    struct AliasUseFinder<'a> {
        given: &'a [(String, Expr)],
        bound: Vec<String>,
        queries: usize,
    }

    impl Visitor for AliasUseFinder<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Lambda(function) => self.bound.extend(lambda_parameter_names(function)),
                Expr::Identifier(name) if self.queries == 0 => {
                    let name = normalize_ident(name);
                    if !self.bound.contains(&name)
                        && self.given.iter().any(|(given, _)| *given == name)
                    {
                        return ControlFlow::Break(());
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Lambda(function) = expr {
                let left =
                    self.bound.len().saturating_sub(lambda_parameter_names(function).count());
                self.bound.truncate(left);
            }
            ControlFlow::Continue(())
        }
    }

    !given.is_empty()
        && walk_expr(expr, &mut AliasUseFinder { given, bound: Vec::new(), queries: 0 })
}

fn lambda_parameter_names(function: &LambdaFunction) -> impl Iterator<Item = String> {
    function.params.iter().map(|parameter| normalize_ident(&parameter.name))
}

/// Replaces aliases by their expressions.
struct AliasSubstitution<'a> {
    aliases: &'a [(String, Expr)],
    lambda_parameters: Vec<String>,
    query_depth: usize,
}

impl VisitorMut for AliasSubstitution<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.query_depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.query_depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(function) = expr {
            self.lambda_parameters.extend(lambda_parameter_names(function));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(function) => {
                let left = self
                    .lambda_parameters
                    .len()
                    .saturating_sub(lambda_parameter_names(function).count());
                self.lambda_parameters.truncate(left);
            }
            Expr::Identifier(name) if self.query_depth == 0 => {
                let name = normalize_ident(name);
                // Of two items with the same alias, SQL means the last one.
                let meant = self.aliases.iter().rev().find(|(given, _)| *given == name);
                if let (Some((_, meant)), false) = (meant, self.lambda_parameters.contains(&name)) {
                    *expr = parenthesize(meant.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
