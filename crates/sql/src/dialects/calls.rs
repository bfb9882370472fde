//! Functions that other databases have by another name or in another form, written as they are here.
//!
//! Each is a row: the call as it is written there, with its arguments' names, and what it is here. Whoever
//! looks for a function finds it by searching for its name. A
//! name that there is here, too, stands in no row, but for a number of arguments that it does not take.
//!
//! What a call has besides its arguments, `FILTER`, `OVER` and the like, goes to the function that the row
//! leads to, where that is an aggregate.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, ObjectNamePart,
    UnaryOperator, Value, ValueWithSpan, VisitorMut,
};
use tidemill_base::error::{Error, Result};
use tidemill_planning::walk_expr_mut;

use super::written;

/// Calls of functions of rows: as they are written elsewhere, and here.
const SCALARS: &[(&str, &str)] = &[
    // Parts of times.
    ("year(ts)", "date_part('year', ts)"),
    ("toyear(ts)", "date_part('year', ts)"),
    ("quarter(ts)", "date_part('quarter', ts)"),
    ("toquarter(ts)", "date_part('quarter', ts)"),
    ("month(ts)", "date_part('month', ts)"),
    ("tomonth(ts)", "date_part('month', ts)"),
    ("week(ts)", "date_part('week', ts)"),
    ("weekofyear(ts)", "date_part('week', ts)"),
    ("toisoweek(ts)", "date_part('week', ts)"),
    ("yearweek(ts)", "date_part('isoyear', ts) * 100 + date_part('week', ts)"),
    ("isoyear(ts)", "date_part('isoyear', ts)"),
    ("day(ts)", "date_part('day', ts)"),
    ("dayofmonth(ts)", "date_part('day', ts)"),
    ("day_of_month(ts)", "date_part('day', ts)"),
    ("todayofmonth(ts)", "date_part('day', ts)"),
    ("dayofweek(ts)", "date_part('dow', ts)"),
    ("weekday(ts)", "date_part('dow', ts)"),
    ("dow(ts)", "date_part('dow', ts)"),
    ("isodow(ts)", "date_part('isodow', ts)"),
    ("day_of_week(ts)", "date_part('isodow', ts)"),
    ("todayofweek(ts)", "date_part('isodow', ts)"),
    ("dayofyear(ts)", "date_part('doy', ts)"),
    ("day_of_year(ts)", "date_part('doy', ts)"),
    ("doy(ts)", "date_part('doy', ts)"),
    ("todayofyear(ts)", "date_part('doy', ts)"),
    ("hour(ts)", "date_part('hour', ts)"),
    ("tohour(ts)", "date_part('hour', ts)"),
    ("minute(ts)", "date_part('minute', ts)"),
    ("tominute(ts)", "date_part('minute', ts)"),
    ("second(ts)", "date_part('second', ts)"),
    ("tosecond(ts)", "date_part('second', ts)"),
    ("millisecond(ts)", "date_part('millisecond', ts)"),
    ("microsecond(ts)", "date_part('microsecond', ts)"),
    // Times.
    ("date(x)", "CAST(x AS DATE)"),
    ("todate(x)", "CAST(x AS DATE)"),
    ("timestamp(x)", "CAST(x AS TIMESTAMP)"),
    ("datetime(x)", "CAST(x AS TIMESTAMP)"),
    ("todatetime(x)", "CAST(x AS TIMESTAMP)"),
    ("datetrunc(unit, ts)", "date_trunc(unit, ts)"),
    ("datepart(unit, ts)", "date_part(unit, ts)"),
    ("getdate()", "now()"),
    ("sysdate()", "now()"),
    ("current_datetime()", "now()"),
    ("today()", "current_date()"),
    ("curdate()", "current_date()"),
    ("yesterday()", "current_date() - INTERVAL '1 day'"),
    ("fromunixtimestamp(n)", "from_unixtime(n)"),
    ("to_epoch(ts)", "date_part('epoch', ts)"),
    // Conditions.
    ("if(c, x, y)", "CASE WHEN c THEN x ELSE y END"),
    ("iif(c, x, y)", "CASE WHEN c THEN x ELSE y END"),
    ("iff(c, x, y)", "CASE WHEN c THEN x ELSE y END"),
    ("ifnull(x, y)", "coalesce(x, y)"),
    ("isnull(x)", "x IS NULL"),
    ("isnotnull(x)", "x IS NOT NULL"),
    ("zeroifnull(n)", "coalesce(n, 0)"),
    ("nullifzero(n)", "nullif(n, 0)"),
    ("equal_null(x, y)", "x IS NOT DISTINCT FROM y"),
    ("not(c)", "NOT c"),
    // Text.
    ("ucase(x)", "upper(x)"),
    ("lcase(x)", "lower(x)"),
    ("mid(x, n)", "substr(x, n)"),
    ("mid(x, n, m)", "substr(x, n, m)"),
    ("locate(part, x)", "strpos(x, part)"),
    ("charindex(part, x)", "strpos(x, part)"),
    ("positioncaseinsensitive(x, part)", "strpos(lower(x), lower(part))"),
    ("startswith(x, part)", "starts_with(x, part)"),
    ("prefix(x, part)", "starts_with(x, part)"),
    ("endswith(x, part)", "ends_with(x, part)"),
    ("suffix(x, part)", "ends_with(x, part)"),
    ("strlen(x)", "octet_length(x)"),
    ("lengthutf8(x)", "character_length(x)"),
    ("element_at(map, key)", "map[key]"),
    ("space(n)", "repeat(' ', n)"),
    ("ord(x)", "ascii(x)"),
    ("char(n)", "chr(n)"),
    ("like(x, pattern)", "x LIKE pattern"),
    ("notlike(x, pattern)", "x NOT LIKE pattern"),
    ("ilike(x, pattern)", "x ILIKE pattern"),
    ("rlike(x, pattern)", "regexp_like(x, pattern)"),
    ("regexp(x, pattern)", "regexp_like(x, pattern)"),
    ("regexp_contains(x, pattern)", "regexp_like(x, pattern)"),
    ("match(x, pattern)", "regexp_like(x, pattern)"),
    ("replaceall(x, part, other)", "replace(x, part, other)"),
    ("replaceregexpall(x, pattern, other)", "regexp_replace(x, pattern, other, 'g')"),
    ("replaceregexpone(x, pattern, other)", "regexp_replace(x, pattern, other)"),
    ("arraystringconcat(list, separator)", "array_to_string(list, separator)"),
    ("trimboth(x)", "btrim(x)"),
    ("trimleft(x)", "ltrim(x)"),
    ("trimright(x)", "rtrim(x)"),
    ("leftpad(x, n, fill)", "lpad(x, n, fill)"),
    ("rightpad(x, n, fill)", "rpad(x, n, fill)"),
    ("base64(x)", "encode(x, 'base64')"),
    ("base64encode(x)", "encode(x, 'base64')"),
    ("unbase64(x)", "decode(x, 'base64')"),
    ("base64decode(x)", "decode(x, 'base64')"),
    ("editdist3(x, y)", "levenshtein(x, y)"),
    // Types.
    ("string(x)", "CAST(x AS TEXT)"),
    ("tostring(x)", "CAST(x AS TEXT)"),
    ("to_string(x)", "CAST(x AS TEXT)"),
    ("int(x)", "CAST(x AS INT)"),
    ("bigint(x)", "CAST(x AS BIGINT)"),
    ("double(x)", "CAST(x AS DOUBLE)"),
    ("float(x)", "CAST(x AS FLOAT)"),
    ("boolean(x)", "CAST(x AS BOOLEAN)"),
    ("toint8(x)", "CAST(x AS TINYINT)"),
    ("toint16(x)", "CAST(x AS SMALLINT)"),
    ("toint32(x)", "CAST(x AS INT)"),
    ("toint64(x)", "CAST(x AS BIGINT)"),
    ("touint8(x)", "CAST(x AS TINYINT UNSIGNED)"),
    ("touint16(x)", "CAST(x AS SMALLINT UNSIGNED)"),
    ("touint32(x)", "CAST(x AS INT UNSIGNED)"),
    ("touint64(x)", "CAST(x AS BIGINT UNSIGNED)"),
    ("tofloat32(x)", "CAST(x AS FLOAT)"),
    ("tofloat64(x)", "CAST(x AS DOUBLE)"),
    ("toint32ornull(x)", "TRY_CAST(x AS INT)"),
    ("toint64ornull(x)", "TRY_CAST(x AS BIGINT)"),
    ("toint64orzero(x)", "coalesce(TRY_CAST(x AS BIGINT), 0)"),
    ("tofloat64ornull(x)", "TRY_CAST(x AS DOUBLE)"),
    ("todateornull(x)", "TRY_CAST(x AS DATE)"),
    ("todatetimeornull(x)", "TRY_CAST(x AS TIMESTAMP)"),
    // Numbers.
    ("modulo(n, m)", "n % m"),
    ("mod(n, m)", "n % m"),
    ("div(n, m)", "CAST(n / m AS BIGINT)"),
    ("intdiv(n, m)", "CAST(n / m AS BIGINT)"),
    ("ceiling(n)", "ceil(n)"),
    ("negate(n)", "-n"),
    ("negative(n)", "-n"),
    ("safe_divide(n, m)", "CAST(n AS DOUBLE) / nullif(m, 0)"),
    ("rand()", "random()"),
    ("bitand(n, m)", "n & m"),
    ("bitor(n, m)", "n | m"),
    ("bitxor(n, m)", "(n | m) - (n & m)"),
    ("xor(n, m)", "(n | m) - (n & m)"),
    ("shiftleft(n, m)", "n << m"),
    ("shiftright(n, m)", "n >> m"),
    // Lists, structs and maps.
    ("list_value(x, …)", "make_array(x, …)"),
    ("array(x, …)", "make_array(x, …)"),
    ("array_pack(x, …)", "make_array(x, …)"),
    ("explode(list)", "unnest(list)"),
    ("arrayjoin(list)", "unnest(list)"),
    ("list_min(list)", "array_min(list)"),
    ("list_count(list)", "array_length(array_compact(list))"),
    ("list_unique(list)", "array_length(array_distinct(array_compact(list)))"),
    ("list_apply(list, f)", "array_transform(list, f)"),
    ("array_apply(list, f)", "array_transform(list, f)"),
    ("apply(list, f)", "array_transform(list, f)"),
    ("transform(list, f)", "array_transform(list, f)"),
    ("filter(list, f)", "array_filter(list, f)"),
    ("arraymap(f, list)", "array_transform(list, f)"),
    ("arrayfilter(f, list)", "array_filter(list, f)"),
    ("arrayexists(f, list)", "array_any_match(list, f)"),
    ("arrayfirst(f, list)", "array_first(list, f)"),
    ("arraysum(list)", "array_sum(list)"),
    ("arrayavg(list)", "array_avg(list)"),
    ("arraymin(list)", "array_min(list)"),
    ("arraymax(list)", "array_max(list)"),
    ("arraydistinct(list)", "array_distinct(list)"),
    ("arrayreverse(list)", "array_reverse(list)"),
    ("arraysort(list)", "array_sort(list)"),
    ("arrayconcat(list, other)", "array_concat(list, other)"),
    ("arrayelement(list, n)", "list[n]"),
    ("arrayslice(list, n, m)", "array_slice(list, n, n + m - 1)"),
    ("arrayuniq(list)", "array_length(array_distinct(list))"),
    ("has(list, x)", "array_has(list, x)"),
    ("hasall(list, other)", "array_has_all(list, other)"),
    ("hasany(list, other)", "array_has_any(list, other)"),
    ("indexof(list, x)", "coalesce(array_position(list, x), 0)"),
    ("sort_array(list)", "array_sort(list)"),
    ("list_reverse_sort(list)", "array_sort(list, 'DESC')"),
    ("array_reverse_sort(list)", "array_sort(list, 'DESC')"),
    ("arrayreversesort(list)", "array_sort(list, 'DESC')"),
    ("sequence(first, last)", "generate_series(first, last)"),
    ("sequence(first, last, step)", "generate_series(first, last, step)"),
    ("struct_extract(s, name)", "s[name]"),
    ("tupleelement(s, name)", "s[name]"),
];

/// Calls of functions of groups: as they are written elsewhere, and here.
const AGGREGATES: &[(&str, &str)] = &[
    ("count_if(c)", "count(*) FILTER (WHERE c)"),
    ("countif(c)", "count(*) FILTER (WHERE c)"),
    ("count_distinct(x)", "count(DISTINCT x)"),
    ("countd(x)", "count(DISTINCT x)"),
    ("uniqexact(x)", "count(DISTINCT x)"),
    ("approx_count_distinct(x)", "unique(x)"),
    ("uniq(x)", "unique(x)"),
    ("uniqhll12(x)", "unique(x)"),
    ("uniqcombined(x)", "unique(x)"),
    ("uniqcombined64(x)", "unique(x)"),
    ("ndv(x)", "unique(x)"),
    ("approx_quantile(n, q)", "quantile(n, q)"),
    ("approx_percentile(n, q)", "quantile(n, q)"),
    ("percentile_approx(n, q)", "quantile(n, q)"),
    ("percentile(n, q)", "quantile(n, q)"),
    ("quantiletdigest(n)", "quantile(n, 0.5)"),
    ("mode(x)", "top_k(x, 1)[1]['value']"),
    ("approx_top_k(x, k)", "top_k(x, k)"),
    (
        "arg_max(x, n)",
        "first_value(x ORDER BY n DESC) FILTER (WHERE x IS NOT NULL AND n IS NOT NULL)",
    ),
    (
        "argmax(x, n)",
        "first_value(x ORDER BY n DESC) FILTER (WHERE x IS NOT NULL AND n IS NOT NULL)",
    ),
    (
        "max_by(x, n)",
        "first_value(x ORDER BY n DESC) FILTER (WHERE x IS NOT NULL AND n IS NOT NULL)",
    ),
    ("arg_min(x, n)", "first_value(x ORDER BY n) FILTER (WHERE x IS NOT NULL AND n IS NOT NULL)"),
    ("argmin(x, n)", "first_value(x ORDER BY n) FILTER (WHERE x IS NOT NULL AND n IS NOT NULL)"),
    ("min_by(x, n)", "first_value(x ORDER BY n) FILTER (WHERE x IS NOT NULL AND n IS NOT NULL)"),
    ("first(x)", "first_value(x)"),
    ("arbitrary(x)", "any_value(x)"),
    ("last(x)", "last_value(x)"),
    ("list(x)", "array_agg(x)"),
    ("grouparray(x)", "array_agg(x) FILTER (WHERE x IS NOT NULL)"),
    ("collect_list(x)", "array_agg(x) FILTER (WHERE x IS NOT NULL)"),
    ("collect_set(x)", "array_agg(DISTINCT x) FILTER (WHERE x IS NOT NULL)"),
    ("groupuniqarray(x)", "array_agg(DISTINCT x) FILTER (WHERE x IS NOT NULL)"),
    ("group_concat(x)", "string_agg(CAST(x AS TEXT), ',')"),
    ("group_concat(x, separator)", "string_agg(CAST(x AS TEXT), separator)"),
    ("listagg(x)", "string_agg(CAST(x AS TEXT), ',')"),
    ("listagg(x, separator)", "string_agg(CAST(x AS TEXT), separator)"),
    ("string_agg(x)", "string_agg(CAST(x AS TEXT), ',')"),
    ("variance(n)", "var(n)"),
    ("std(n)", "stddev(n)"),
    ("stddevsamp(n)", "stddev(n)"),
    ("stddevpop(n)", "stddev_pop(n)"),
    ("varsamp(n)", "var(n)"),
    ("varpop(n)", "var_pop(n)"),
    ("covarsamp(n, m)", "covar_samp(n, m)"),
    ("covarpop(n, m)", "covar_pop(n, m)"),
    ("fsum(n)", "sum(n)"),
    ("kahan_sum(n)", "sum(n)"),
    ("sumkahan(n)", "sum(n)"),
    ("favg(n)", "avg(n)"),
    ("every(c)", "bool_and(c)"),
    ("some(c)", "bool_or(c)"),
    ("logical_and(c)", "bool_and(c)"),
    ("logical_or(c)", "bool_or(c)"),
    ("groupbitand(n)", "bit_and(n)"),
    ("groupbitor(n)", "bit_or(n)"),
    ("groupbitxor(n)", "bit_xor(n)"),
];

/// A row, taken apart.
struct Form {
    parameters: Vec<String>,
    /// Whether more arguments follow, which go behind those of the one call that it leads to.
    takes_more: bool,
    made: Expr,
    is_aggregate: bool,
}

impl Form {
    /// A row's form, and the name that it is called by; none where the row is no SQL, which a test excludes.
    fn of(call: &str, made: &str, is_aggregate: bool) -> Option<(String, Form)> {
        let (name, arguments) = call.strip_suffix(')')?.split_once('(')?;
        let takes_more = arguments == "x, …";
        let named = arguments.split(", ").filter(|name| !name.is_empty() && !takes_more);
        let parameters = named.map(str::to_owned).collect();
        let made = written(&made.replace("x, …", "")).ok()?;
        Some((name.to_owned(), Form { parameters, takes_more, made, is_aggregate }))
    }
}

/// All rows, by name.
fn forms() -> &'static HashMap<String, Vec<Form>> {
    static FORMS: OnceLock<HashMap<String, Vec<Form>>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let mut forms: HashMap<String, Vec<Form>> = HashMap::new();
        let scalars = SCALARS.iter().map(|row| (row, false));
        let rows = scalars.chain(AGGREGATES.iter().map(|row| (row, true)));
        for (name, form) in
            rows.filter_map(|((call, made), is_aggregate)| Form::of(call, made, is_aggregate))
        {
            forms.entry(name).or_default().push(form);
        }
        forms
    })
}

/// How a function of another database is called, if there is one of this name.
pub(crate) fn calls_of(name: &str) -> Vec<&'static str> {
    let rows = SCALARS.iter().chain(AGGREGATES).map(|(call, _)| *call);
    rows.filter(|call| call.split('(').next() == Some(name)).collect()
}

/// The rows, as they are written.
pub fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCALARS.iter().chain(AGGREGATES).copied()
}

/// What a call is here, where it is one of another database's.
///
/// # Errors
/// [`Error::Usage`] where it takes something besides its arguments that cannot go along.
pub(super) fn translated(call: &Function) -> Result<Option<Expr>> {
    let Some(name) = name_of(call) else { return Ok(None) };
    if let Some(made) = with_parameters(call, &name)?.or(on_condition(call, &name)?) {
        return Ok(Some(made));
    }
    // What stands in two pairs of brackets is nothing else.
    let FunctionArguments::None = call.parameters else { return Ok(None) };
    let Some(arguments) = arguments(call) else { return Ok(None) };
    if let Some(made) = of_its_own(&name, &arguments) {
        return beside(call, made, false).map(Some);
    }
    let Some(forms) = forms().get(&name) else { return Ok(None) };
    let form = forms.iter().find(|form| {
        form.parameters.len() == arguments.len() || (form.takes_more && !arguments.is_empty())
    });
    let Some(form) = form else { return Ok(None) };
    let mut made = form.made.clone();
    if form.takes_more {
        if let Expr::Function(into) = &mut made {
            into.args = call.args.clone();
        }
    } else {
        walk_expr_mut(&mut made, &mut Filled { names: &form.parameters, arguments: &arguments });
    }
    beside(call, made, form.is_aggregate).map(Some)
}

/// The name of a call in lower letters, unless it is in quotes or of several parts.
pub(super) fn name_of(call: &Function) -> Option<String> {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] if name.quote_style.is_none() => {
            Some(name.value.to_lowercase())
        }
        _ => None,
    }
}

/// The arguments of a call, none of which has a name or is a `*`.
fn arguments(call: &Function) -> Option<Vec<&Expr>> {
    let list = match &call.args {
        FunctionArguments::None => return Some(Vec::new()),
        FunctionArguments::List(list) => list,
        FunctionArguments::Subquery(_) => return None,
    };
    let expr = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().map(expr).collect()
}

/// Puts arguments in the places of their names.
struct Filled<'a> {
    names: &'a [String],
    arguments: &'a [&'a Expr],
}

impl VisitorMut for Filled<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some(at) = self.names.iter().position(|own| *own == name.value)
        {
            *expr = in_brackets(self.arguments[at].clone());
        }
        ControlFlow::Continue(())
    }
}

/// An operator's result in brackets, since other operators may come to stand beside it.
pub(super) fn in_brackets(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryOp { .. }
        | Expr::UnaryOp { .. }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsNotDistinctFrom(..)
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::Between { .. }
        | Expr::InList { .. } => Expr::Nested(Box::new(expr)),
        other => other,
    }
}

/// `made` with what stands beside the arguments of the call: within the aggregate that `made` has.
fn beside(call: &Function, made: Expr, is_aggregate: bool) -> Result<Expr> {
    let clauses = match &call.args {
        FunctionArguments::List(list) => (list.duplicate_treatment, list.clauses.clone()),
        _ => (None, Vec::new()),
    };
    let Function { filter, null_treatment, over, within_group, .. } = call;
    let has_none = matches!(clauses.0, None | Some(DuplicateTreatment::All))
        && clauses.1.is_empty()
        && filter.is_none()
        && null_treatment.is_none()
        && over.is_none()
        && within_group.is_empty();
    if has_none {
        return Ok(in_brackets(made));
    }
    if !is_aggregate {
        let name = name_of(call).unwrap_or_default();
        return Err(Error::usage_hint(
            format!("`{name}` takes nothing but its arguments"),
            "DISTINCT, ORDER BY, FILTER and OVER are for aggregate and window functions",
        ));
    }
    let mut made = made;
    let mut given = Given { call, clauses, is_given: false };
    walk_expr_mut(&mut made, &mut given);
    Ok(in_brackets(made))
}

/// Gives the first call that it meets what another has besides its arguments.
struct Given<'a> {
    call: &'a Function,
    clauses: (Option<DuplicateTreatment>, Vec<FunctionArgumentClause>),
    is_given: bool,
}

impl VisitorMut for Given<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(into) = expr else { return ControlFlow::Continue(()) };
        if self.is_given {
            return ControlFlow::Continue(());
        }
        self.is_given = true;
        if let FunctionArguments::List(list) = &mut into.args {
            if self.clauses.0.is_some() {
                list.duplicate_treatment = self.clauses.0;
            }
            list.clauses.append(&mut self.clauses.1);
        }
        into.filter = match (into.filter.take(), self.call.filter.clone()) {
            (Some(own), Some(other)) => Some(Box::new(both(*own, *other))),
            (own, other) => own.or(other),
        };
        into.null_treatment = into.null_treatment.or(self.call.null_treatment);
        into.over.clone_from(&self.call.over);
        into.within_group.extend(self.call.within_group.clone());
        ControlFlow::Continue(())
    }
}

/// Two conditions that both have to hold.
pub(super) fn both(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(left))),
        op: BinaryOperator::And,
        right: Box::new(Expr::Nested(Box::new(right))),
    }
}

/// `quantile(0.9)(n)` as `quantile(n, 0.9)`, as all functions of two pairs of brackets that are known.
fn with_parameters(call: &Function, name: &str) -> Result<Option<Expr>> {
    let FunctionArguments::List(parameters) = &call.parameters else { return Ok(None) };
    let (known, ends) = match name {
        "quantile" | "quantiles" | "quantiletdigest" | "quantilestdigest" => ("quantile", None),
        "topk" => ("top_k", Some("value")),
        "grouparray" => ("collect", None),
        _ => return Ok(None),
    };
    let FunctionArguments::List(arguments) = &call.args else { return Ok(None) };
    let mut made = call.clone();
    made.name = Ident::new(known).into();
    made.parameters = FunctionArguments::None;
    let mut all = arguments.clone();
    all.args.extend(parameters.args.iter().cloned());
    made.args = FunctionArguments::List(all);
    let made = Expr::Function(made);
    Ok(Some(match ends {
        Some(field) => {
            let mut list = written(&format!("array_transform(x, item -> item['{field}'])"))?;
            let names = ["x".to_owned()];
            walk_expr_mut(&mut list, &mut Filled { names: &names, arguments: &[&made] });
            list
        }
        None => made,
    }))
}

/// `sumIf(n, c)` as `sum(n) FILTER (WHERE c)`, for all aggregates that are called so elsewhere.
fn on_condition(call: &Function, name: &str) -> Result<Option<Expr>> {
    const BASES: [&str; 13] = [
        "sum",
        "avg",
        "min",
        "max",
        "uniq",
        "uniqexact",
        "median",
        "stddevsamp",
        "stddevpop",
        "grouparray",
        "groupuniqarray",
        "argmin",
        "argmax",
    ];
    let Some(base) = name.strip_suffix("if").filter(|base| BASES.contains(base)) else {
        return Ok(None);
    };
    let FunctionArguments::List(arguments) = &call.args else { return Ok(None) };
    let [of @ .., FunctionArg::Unnamed(FunctionArgExpr::Expr(condition))] =
        arguments.args.as_slice()
    else {
        return Ok(None);
    };
    if of.is_empty() {
        return Ok(None);
    }
    let mut made = call.clone();
    made.name = Ident::new(base).into();
    let mut rest = arguments.clone();
    rest.args = of.to_vec();
    made.args = FunctionArguments::List(rest);
    made.filter = Some(match made.filter.take() {
        Some(own) => Box::new(both(*own, condition.clone())),
        None => Box::new(condition.clone()),
    });
    Ok(Some(translated(&made)?.unwrap_or(Expr::Function(made))))
}

/// Units of time, by which a first argument is known as one.
const UNITS: [&str; 24] = [
    "year",
    "years",
    "quarter",
    "quarters",
    "month",
    "months",
    "week",
    "weeks",
    "day",
    "days",
    "hour",
    "hours",
    "minute",
    "minutes",
    "second",
    "seconds",
    "millisecond",
    "milliseconds",
    "microsecond",
    "microseconds",
    "nanosecond",
    "nanoseconds",
    "yy",
    "dd",
];

/// The unit of time that an expression names, as a text or as a word.
fn unit_of(expr: &Expr) -> Option<String> {
    let unit = match expr {
        Expr::Identifier(name) if name.quote_style.is_none() => &name.value,
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: _ }) => text,
        _ => return None,
    };
    let unit = unit.to_lowercase();
    UNITS.contains(&unit.as_str()).then_some(unit)
}

/// Calls that take units of time, conditions in pairs, the names of aggregates, or any number of values.
fn of_its_own(name: &str, arguments: &[&Expr]) -> Option<Expr> {
    match (name, arguments) {
        ("date_add" | "dateadd" | "adddate" | "timestampadd", [unit, n, to])
            if unit_of(unit).is_some() =>
        {
            moved(&unit_of(unit)?, n, to, BinaryOperator::Plus)
        }
        ("date_sub" | "datesub" | "subdate", [unit, n, from]) if unit_of(unit).is_some() => {
            // Of two times it is their difference.
            whole(n)?;
            moved(&unit_of(unit)?, n, from, BinaryOperator::Minus)
        }
        ("date_add" | "dateadd" | "adddate", [to, Expr::Interval(_)]) => {
            Some(of_two(to, BinaryOperator::Plus, arguments[1]))
        }
        ("date_sub" | "datesub" | "subdate", [from, Expr::Interval(_)]) => {
            Some(of_two(from, BinaryOperator::Minus, arguments[1]))
        }
        (
            "date_diff" | "datediff" | "timestampdiff" | "timestamp_diff" | "date_sub" | "datesub"
            | "date_trunc" | "date_part",
            [unit @ Expr::Identifier(_), rest @ ..],
        ) => {
            let unit = Expr::value(Value::SingleQuotedString(unit_of(unit)?));
            let mut all: Vec<Expr> = vec![unit];
            all.extend(rest.iter().map(|&argument| argument.clone()));
            let name = match name {
                "datediff" => "date_diff",
                "datesub" | "timestampdiff" | "timestamp_diff" => "date_sub",
                other => other,
            };
            Some(call_of(name, all))
        }
        ("row" | "tuple", [_, ..]) => {
            Some(call_of("struct", arguments.iter().map(|&argument| argument.clone()).collect()))
        }
        ("multiif", [pairs @ .., last]) if pairs.len() >= 2 && pairs.len() % 2 == 0 => {
            let conditions = pairs
                .chunks_exact(2)
                .map(|pair| CaseWhen { condition: pair[0].clone(), result: pair[1].clone() });
            Some(Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: conditions.collect(),
                else_result: Some(Box::new((*last).clone())),
            })
        }
        ("list_aggregate" | "array_aggregate" | "list_aggr" | "array_aggr", [list, of]) => {
            let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(of), .. }) = of else {
                return None;
            };
            let function = match of.to_lowercase().as_str() {
                "sum" => "array_sum",
                "min" => "array_min",
                "max" => "array_max",
                "avg" | "mean" => "array_avg",
                "product" => "array_product",
                "count" => "array_length",
                _ => return None,
            };
            Some(call_of(function, vec![(*list).clone()]))
        }
        _ => None,
    }
}

/// A call of a function.
pub(super) fn call_of(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)));
    Expr::Function(Function {
        name: Ident::new(name).into(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// `left op right`, each in brackets where it has to be.
pub(super) fn of_two(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    let side = |expr: &Expr| Box::new(in_brackets(expr.clone()));
    Expr::BinaryOp { left: side(left), op, right: side(right) }
}

/// The whole number that an expression is.
fn whole(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), span: _ }) => {
            digits.parse().ok()
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => whole(expr)?.checked_neg(),
        Expr::Nested(inner) => whole(inner),
        _ => None,
    }
}

/// A time so many units later or earlier.
fn moved(unit: &str, n: &Expr, time: &Expr, op: BinaryOperator) -> Option<Expr> {
    let (count, unit) = match unit {
        "yy" => (1, "year"),
        "dd" => (1, "day"),
        "quarter" | "quarters" => (3, "month"),
        other => (1, other),
    };
    // A number that is written makes an interval that is written, of which a DATE stays a DATE.
    if let Some(n) = whole(n) {
        let interval = written(&format!("INTERVAL '{} {unit}'", n.checked_mul(count)?)).ok()?;
        return Some(of_two(time, op, &interval));
    }
    let interval = format!("INTERVAL '{count} {unit}'");
    let span = of_two(n, BinaryOperator::Multiply, &written(&interval).ok()?);
    Some(of_two(time, op, &span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_understood() {
        let rows = SCALARS.iter().chain(AGGREGATES);
        for (call, made) in rows {
            let name = call.split('(').next().unwrap();
            assert!(forms().contains_key(name), "{call}: {made}");
            assert_eq!(name.to_lowercase(), name, "{call}");
        }
        for (call, made) in SCALARS.iter().chain(AGGREGATES) {
            assert!(Form::of(call, made, false).is_some(), "{call}: {made}");
        }
    }

    #[test]
    fn calls_are_written_as_they_are_here() {
        for (call, expected) in [
            ("year(a)", "date_part('year', a)"),
            ("IF(a > 1, b, c)", "CASE WHEN (a > 1) THEN b ELSE c END"),
            ("mod(a + 1, 3)", "((a + 1) % 3)"),
            ("countIf(a > 1)", "count(*) FILTER (WHERE (a > 1))"),
            ("count_if(a) FILTER (WHERE b)", "count(*) FILTER (WHERE (a) AND (b))"),
            ("sumIf(a, b)", "sum(a) FILTER (WHERE b)"),
            ("uniqIf(a, b)", "unique(a) FILTER (WHERE b)"),
            (
                "arg_max(a, b) OVER (PARTITION BY c)",
                "first_value(a ORDER BY b DESC) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL) OVER (PARTITION BY c)",
            ),
            ("list(DISTINCT a)", "array_agg(DISTINCT a)"),
            ("list(a ORDER BY b)", "array_agg(a ORDER BY b)"),
            ("quantile(0.9)(a)", "quantile(a, 0.9)"),
            ("topK(3)(a)", "array_transform(top_k(a, 3), item -> item['value'])"),
            ("dateadd(day, 3, a)", "(a + INTERVAL '3 day')"),
            ("date_sub('quarter', -1, a)", "(a - INTERVAL '-3 month')"),
            ("date_add('quarter', n, a)", "(a + (n * INTERVAL '3 month'))"),
            ("date_diff('day', a, b)", "date_diff('day', a, b)"),
            ("DATEDIFF(day, a, b)", "date_diff('day', a, b)"),
            ("multiIf(a, 1, b, 2, 3)", "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END"),
            ("list_aggregate(a, 'sum')", "array_sum(a)"),
            ("list_value(1, 2)", "make_array(1, 2)"),
            ("tuple(1, a)", "struct(1, a)"),
            ("year(2)(a)", "year(2)(a)"),
        ] {
            let Expr::Function(parsed) = written(call).unwrap() else { panic!("{call}") };
            let made = translated(&parsed).unwrap().unwrap_or(Expr::Function(parsed));
            assert_eq!(made.to_string(), expected);
        }
        let Expr::Function(parsed) = written("year(a) FILTER (WHERE b)").unwrap() else { panic!() };
        assert!(translated(&parsed).is_err());
    }
}
